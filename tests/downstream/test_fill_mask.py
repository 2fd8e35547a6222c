"""Blanks: the probabilities are transformers' own, pieces are shown as text, other folders are refused."""

import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertTokenizer,
    PreTrainedModel,
)

from corpora.foundation.errors import CheckpointError
from downstream.encoders.tokenizers import HANGUL_LINE, load_tokenizer
from downstream.fill_mask import CONTINUATION, Blank, Candidate, MaskFiller, filled
from downstream.runtimes.weights import FloatArray
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS, save_tokenizer

TEXT = "시의회가 내년 [MASK]을 의결했다. 주민은 □했다."


@pytest.fixture(scope="module")
def filler(standins: dict[str, Path]) -> MaskFiller:
    return MaskFiller.load(standins["kpfbert"])


def test_probabilities_are_those_of_transformers(filler: MaskFiller, standins: dict[str, Path]) -> None:
    text = "시의회가 내년 [MASK] 의결했다."
    tokenizer = AutoTokenizer.from_pretrained(standins["kpfbert"], do_lower_case=False, strip_accents=False)
    model = AutoModelForMaskedLM.from_pretrained(standins["kpfbert"]).eval()
    batch = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        row = model(**batch).logits[0, batch["input_ids"][0].tolist().index(tokenizer.mask_token_id)].softmax(-1)
    row = row.clone()
    row[tokenizer.all_special_ids] = 0
    [blank] = filler.fill(text, 5)
    values, ids = row.topk(5)
    assert [c.probability for c in blank.candidates] == pytest.approx(values.tolist(), abs=1e-6)
    pieces = tokenizer.convert_ids_to_tokens(ids.tolist())
    assert [("##" if c.is_continuation else "") + c.text for c in blank.candidates] == pieces


def seen_ids(filler: MaskFiller, text: str) -> list[str]:
    """Return the pieces that the model of a filler gets to see."""
    seen: list[list[int]] = []

    def score(ids: list[int], places: list[int]) -> FloatArray:
        seen.append(ids)
        return np.zeros((len(places), len(tokenizer.get_vocab())), dtype=np.float32)

    tokenizer = filler._tokenizer
    MaskFiller(score, tokenizer, filler.folder, 0).fill(text, 1)
    pieces: list[str] = tokenizer.convert_ids_to_tokens(seen[0])
    return pieces[1:-1]


@pytest.mark.parametrize("kind", [BertForMaskedLM, BertForPreTraining])
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("내년 [MASK]은 본다", "내년 [MASK] ##은 본 ##다"),
        ("내년 [MASK] 은 본다", "내년 [MASK] 은 본 ##다"),
        ("□은 [MASK]에는 □.", "[MASK] ##은 [MASK] ##에 ##는 [MASK] ."),
        ("[MASK]은[MASK]", "[MASK] ##은 [MASK]"),
        ("[MASK]쀍 본다", "[MASK] [UNK] 본 ##다"),
        ("[MASK]은쀍에는", "[MASK] ##은 [UNK] 에는"),
        ("[MASK], 본다", "[MASK] , 본 ##다"),
    ],
    ids=["particle", "word", "several", "between", "unknown", "unknown behind", "punctuation"],
)
def test_what_follows_a_blank_without_a_space_goes_on_with_its_word(
    tmp_path: Path, text: str, pieces: str, kind: type[PreTrainedModel]
) -> None:
    words, endings = [",", ".", "내년", "은", "본", "에", "에는"], ["##은", "##다", "##에", "##는"]
    syllables = sorted(set(HANGUL_LINE) - {" ", *words})
    others = [f"{mark}{syllable}" for syllable in syllables for mark in ("", CONTINUATION)]
    vocabulary = [*SPECIAL_TOKENS, *words, *dict.fromkeys([*endings, *others])]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    save_tokenizer(BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=False), tmp_path)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    kind(config).save_pretrained(tmp_path)
    plain, whole = MaskFiller.load(tmp_path), MaskFiller._load_with_transformers(tmp_path)
    assert seen_ids(whole, text) == pieces.split()
    told = [c.text for blank in plain.fill(text, 3) for c in blank.candidates]
    assert told == [c.text for blank in whole.fill(text, 3) for c in blank.candidates]


def test_blanks_are_found_however_they_are_written(filler: MaskFiller) -> None:
    blanks = filler.fill(TEXT + " 그리고 ___ 갔다", 3)
    assert [(TEXT + " 그리고 ___ 갔다")[b.start : b.end] for b in blanks] == ["[MASK]", "□", "___"]
    assert all(len(b.candidates) == 3 for b in blanks)


def test_decomposed_hangul_gives_the_same(filler: MaskFiller) -> None:
    assert filler.fill(unicodedata.normalize("NFD", TEXT)) == filler.fill(TEXT)


def test_a_text_without_blank_and_one_too_long_are_refused(filler: MaskFiller) -> None:
    with pytest.raises(ValueError, match="no blank"):
        filler.fill("빈칸이 없다")
    with pytest.raises(ValueError, match="reads 512"):
        filler.fill("[MASK] " + "가 나 다 " * 400)
    with pytest.raises(ValueError, match="num_candidates=0"):
        filler.fill(TEXT, 0)


def test_pieces_of_sentencepiece_and_korbert_lose_their_marks(standins: dict[str, Path], tmp_path: Path) -> None:
    for kind in ("kobert", "korbert"):
        tokenizer = load_tokenizer(standins[kind])
        AutoModelForMaskedLM.from_pretrained(standins[kind]).save_pretrained(tmp_path / kind)
        save_tokenizer(tokenizer, tmp_path / kind)
        [blank] = MaskFiller.load(tmp_path / kind).fill("시의회가 [MASK] 의결했다", 50)
        assert not any("▁" in c.text or c.text.endswith("_") for c in blank.candidates)


def test_an_encoder_without_its_head_is_refused(
    standins: dict[str, Path], fails: Callable[..., AbstractContextManager[None]]
) -> None:
    with fails(CheckpointError, standins["klue-bert"], "without the head"):
        MaskFiller.load(standins["klue-bert"])


@pytest.mark.parametrize(
    ("candidate", "text", "place"),
    [
        (Candidate("예산", 0.5, False), "내년 예산 확정", (3, 5)),
        (Candidate("도", 0.5, True), "내년도 확정", (2, 3)),
    ],
)
def test_a_piece_that_goes_on_joins_the_word_before(candidate: Candidate, text: str, place: tuple[int, int]) -> None:
    assert filled("내년 [MASK] 확정", Blank(3, 9, ()), candidate) == (text, *place)
