"""The WordPiece vocabulary: the same text gives the same pieces, cased, and Hangul stays whole."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.documents import read_documents
from corpora.runtime import DataError
from downstream.task import SAMPLE_ROOT
from pretraining.vocab import SPECIAL_TOKENS, train_wordpiece

Fails = Callable[..., AbstractContextManager[None]]

TRAIN_AND_SAVE = """
import sys
from pathlib import Path
from corpora.documents import read_documents
from pretraining.vocab import train_wordpiece
texts = (document.text for document in read_documents(Path(sys.argv[1])))
train_wordpiece(texts, 3000).save_pretrained(sys.argv[2])
"""
JAMO = {chr(code) for code in range(0x1100, 0x1200)}
"""Conjoining jamo, into which NFD takes Hangul apart."""


@pytest.fixture(scope="module")
def lines() -> list[str]:
    texts = [document.text for document in read_documents(SAMPLE_ROOT / "news.jsonl")]
    return [line for text in texts for line in text.split("\n") if line.strip()]


def rejoin(tokens: Sequence[str]) -> str:
    return "".join(token.removeprefix("##") for token in tokens)


def without_blanks(text: str) -> str:
    return "".join(text.split())


def test_the_same_text_gives_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    processes = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", TRAIN_AND_SAVE, str(SAMPLE_ROOT / "news.jsonl"), str(tmp_path / seed)]
        processes.append(subprocess.Popen(command, env=os.environ | {"PYTHONHASHSEED": seed}))
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    first, second = ((tmp_path / seed / "tokenizer.json").read_bytes() for seed in ("1", "2"))
    assert first == second
    assert "한국".encode() in first


def test_texts_may_be_a_generator(lines: list[str]) -> None:
    assert train_wordpiece(iter(lines[:50]), 500).get_vocab() == train_wordpiece(lines[:50], 500).get_vocab()


def test_special_tokens_have_the_ids_of_the_korean_berts(lines: list[str]) -> None:
    tokenizer = train_wordpiece(lines, 1000)
    assert [tokenizer.get_vocab()[token] for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert SPECIAL_TOKENS == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    ids = (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert (*ids, tokenizer.mask_token_id) == (0, 1, 2, 3, 4)
    assert tokenizer("한국")["input_ids"][0] == 2
    assert tokenizer("한국")["input_ids"][-1] == 3


@pytest.mark.parametrize("size", [7, 8, 100, 1001, 3000])
def test_the_size_is_kept_to_and_ids_have_no_gaps(lines: list[str], size: int) -> None:
    vocab = train_wordpiece(lines, size).get_vocab()
    assert sorted(vocab.values()) == list(range(len(vocab)))
    assert len(vocab) <= size
    assert len(vocab) >= size - 1  # this much text fills any of them; an odd place may stay empty beside pairs


def test_a_rare_character_gives_way_to_a_frequent_one(lines: list[str]) -> None:
    vocab = train_wordpiece(lines, 5000, limit_alphabet=10).get_vocab()
    counts: dict[str, int] = {}
    for character in "".join(map(without_blanks, lines)):
        counts[character] = counts.get(character, 0) + 1
    frequent = sorted(counts, key=lambda character: -counts[character])[:10]
    assert {piece for piece in vocab if len(piece) == 1} == set(frequent)


def test_a_rare_pair_is_not_merged() -> None:
    texts = ["언론 언론 언론", "기자"]
    assert "언론" in train_wordpiece(texts, 50, min_frequency=3).get_vocab()
    assert "기자" not in train_wordpiece(texts, 50, min_frequency=2).get_vocab()
    assert "기자" in train_wordpiece(texts, 50, min_frequency=1).get_vocab()


def test_hangul_is_never_taken_apart(lines: list[str]) -> None:
    tokenizer = train_wordpiece(lines, 6000)
    assert not {piece for piece in tokenizer.get_vocab() if JAMO & set(piece)}
    for line in lines:
        tokens = tokenizer.tokenize(line)
        assert "[UNK]" not in tokens
        assert rejoin(tokens) == without_blanks(line)


def test_an_unseen_syllable_is_unknown_and_not_spelt_in_jamo(lines: list[str]) -> None:
    assert train_wordpiece(lines, 6000).tokenize("뷁") == ["[UNK]"]


def test_case_and_accents_are_kept() -> None:
    tokenizer = train_wordpiece(["Naver NAVER naver Café"] * 3, 100)
    pieces = set(tokenizer.get_vocab())
    assert {"N", "n", "A", "##A", "##a", "##é"} <= pieces
    assert rejoin(tokenizer.tokenize("Naver NAVER naver Café")) == "NaverNAVERnaverCafé"
    assert tokenizer.tokenize("NAVER") != tokenizer.tokenize("naver")
    assert tokenizer.do_lower_case is False


def test_punctuation_and_hanja_are_words_of_their_own() -> None:
    tokenizer = train_wordpiece(["大學, 시의회(市議會)는 “확정”"] * 3, 200)
    assert not {f"##{character}" for character in "大學市議會,()“”"} & set(tokenizer.get_vocab())
    assert tokenizer.tokenize("大學,") == ["大", "學", ","]


@pytest.mark.parametrize("texts", [[], [""], [" \n\t", "\u3000"], ["\x00\u200b"]])
def test_text_without_characters_is_an_error(texts: list[str], fails: Fails) -> None:
    with fails(DataError, "vocabulary", "no characters"):
        train_wordpiece(texts, 100)


@pytest.mark.parametrize("size", [-1, 0, 5, 6])
def test_a_vocabulary_without_room_is_an_error(size: int) -> None:
    with pytest.raises(ValueError, match=f"vocab_size {size} leaves no room"):
        train_wordpiece(["한국 언론"], size)


@settings(max_examples=40)
@given(
    texts=st.lists(st.text(alphabet=st.sampled_from("가각간한국언론 .A大\n"), max_size=30), min_size=1),
    size=st.integers(min_value=7, max_value=60),
)
def test_any_syllable_text_fits_the_size_and_rejoins(texts: list[str], size: int) -> None:
    if not "".join(texts).split():
        texts = [*texts, "가"]
    tokenizer = train_wordpiece(texts, size)
    vocab = tokenizer.get_vocab()
    assert len(vocab) <= size
    assert sorted(vocab.values()) == list(range(len(vocab)))
    assert [vocab[token] for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    for text in texts:
        tokens = tokenizer.tokenize(text)
        assert "[UNK]" in tokens or rejoin(tokens) == without_blanks(text)
