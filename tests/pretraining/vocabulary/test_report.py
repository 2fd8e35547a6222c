"""The report on a vocabulary: its figures against counts by hand, independent counts and published ones."""

import collections
import csv
import json
import math
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from corpora.documents import read_documents
from corpora.foundation.errors import CheckpointError, ResultError, UsageError
from corpora.foundation.files import SAMPLE_ROOT
from corpora.official import data_root
from pretraining.vocab import main
from pretraining.vocabulary.report import (
    CONTINUATIONS,
    EXAMPLE,
    OTHER,
    SPECIAL,
    STARTS,
    UNUSED,
    HeldOut,
    VocabMeasures,
    analyse_held_out,
    choose_compared,
    draw_report,
    measure,
    position_and_script,
    render_report,
)
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS, open_wordpiece, save_tokenizer
from pretraining.vocabulary.wordpiece import BOUNDARY, split_eojeol, train_wordpiece

Fails = Callable[..., AbstractContextManager[None]]

NEWS = SAMPLE_ROOT / "news.jsonl"
PIECES = ("모델을", "모", "##델", "##을", "공개", "##합", "##니다", "갔다", "은", "##은", ".", "BE", "##RT", "大", "10")
TEXTS = ("BERT 모델을 공개합니다.", "모델은 갔다.\n大은 뷁")
"""By hand: BE ##RT, 모델을, 공개 ##합 ##니다 . and 모 ##델 ##은, 갔다 ., 大 은, [UNK]."""


def wordpiece(*pieces: str) -> Tokenizer:
    vocab = {piece: id_ for id_, piece in enumerate([*SPECIAL_TOKENS, "[unused0]", "[unused1]", *pieces])}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


@pytest.fixture(scope="module")
def by_hand() -> VocabMeasures:
    return measure("tiny", wordpiece(*PIECES), analyse_held_out(TEXTS))


@pytest.fixture(scope="module")
def news() -> list[str]:
    return [document.text for document in read_documents(NEWS)]


@pytest.fixture(scope="module")
def held_out_news(news: list[str]) -> HeldOut:
    return analyse_held_out(news[:30])


# ---- figures ----


def test_held_out_text_is_counted_by_documents_eojeol_and_characters() -> None:
    held_out = analyse_held_out([*TEXTS, "모델은"])
    assert (held_out.num_documents, held_out.num_eojeol) == (3, 8)
    assert held_out.num_characters == sum(map(len, TEXTS)) + 3
    assert held_out.eojeol[f"모델{BOUNDARY}은"] == 2


def test_splitting_and_unknown_tokens_are_those_counted_by_hand(by_hand: VocabMeasures) -> None:
    assert by_hand.tokens_per_eojeol == {2: 3, 1: 2, 4: 1, 3: 1}
    shares = by_hand.shares()
    assert math.isclose(shares["tokens_per_eojeol"], 15 / 7)
    assert math.isclose(shares["tokens_per_character"], 15 / (15 + 12))
    assert math.isclose(shares["eojeol_whole"], 1 / 7)  # 모델을; 뷁 is one token, but an unknown one
    assert math.isclose(shares["tokens_unknown"], 1 / 15)
    assert math.isclose(shares["eojeol_unknown"], 1 / 7)
    assert math.isclose(shares["entries_used"], 13 / 15)  # all but ##을 and 10
    assert by_hand.token_counts["."] == 2
    assert "[UNK]" not in by_hand.token_counts


def test_the_fit_to_morphemes_is_that_counted_by_hand(by_hand: VocabMeasures) -> None:
    # Kiwi: 모델|을 공개|합니다|. 모델|은 갔|다|. 大|은.
    # Hangul tokens: 모델을, 공개, ##합, ##니다, 모, ##델, ##은, 갔다, 은.
    shares = by_hand.shares()
    assert math.isclose(shares["tokens_on_borders"], 5 / 9)  # 모델을, 공개, ##은, 갔다, 은
    assert math.isclose(shares["tokens_one_morpheme"], 3 / 9)  # 공개, ##은, 은
    assert math.isclose(shares["tokens_across"], 2 / 9)  # 모델을, 갔다
    assert math.isclose(shares["entries_one_morpheme"], 3 / 9)


def test_an_entry_is_a_morpheme_if_it_is_one_more_often_than_not() -> None:
    cut, whole = f"가{BOUNDARY}나", "가나"
    for counts, share in (({cut: 1, whole: 2}, 1.0), ({cut: 1, whole: 1}, 0.0), ({cut: 2, whole: 1}, 0.0)):
        held_out = HeldOut(counts, num_documents=1, num_characters=9)
        assert measure("m", wordpiece("가나"), held_out).shares()["entries_one_morpheme"] == share


def test_the_composition_is_that_counted_by_hand(by_hand: VocabMeasures) -> None:
    assert by_hand.composition == {
        (SPECIAL, ""): 5,
        (UNUSED, ""): 2,
        (STARTS, "Hangul"): 5,
        (STARTS, "Latin"): 1,
        (STARTS, "Hanja"): 1,
        (STARTS, "digits"): 1,
        (STARTS, OTHER): 1,
        (CONTINUATIONS, "Hangul"): 5,
        (CONTINUATIONS, "Latin"): 1,
    }
    assert by_hand.num_single_syllables == {STARTS: 2, CONTINUATIONS: 4}
    assert by_hand.vocab_size == 22
    assert by_hand.longest[0] == "모델을"
    assert by_hand.example == ["[UNK]", "BE", "##RT", "모델을", "공개", "##합", "##니다", "."]


def test_an_entry_has_a_position_and_a_script(subtests: pytest.Subtests) -> None:
    for piece, expected in [
        ("언론", (STARTS, "Hangul")),
        ("##을", (CONTINUATIONS, "Hangul")),
        ("##", (STARTS, OTHER)),
        ("#", (STARTS, OTHER)),
        ("###", (CONTINUATIONS, OTHER)),
        ("新聞", (STARTS, "Hanja")),
        ("##RT", (CONTINUATIONS, "Latin")),
        ("é", (STARTS, OTHER)),
        ("2024", (STARTS, "digits")),
        ("①", (STARTS, OTHER)),
        ("3차", (STARTS, OTHER)),
        ("ㅋㅋ", (STARTS, OTHER)),
        ("[", (STARTS, OTHER)),
        ("[MASK]", (SPECIAL, "")),
        ("[unused12]", (UNUSED, "")),
    ]:
        with subtests.test(piece=piece):
            assert position_and_script(piece) == expected


def test_nothing_held_out_gives_zeros_and_a_report(tmp_path: Path) -> None:
    held_out = analyse_held_out([])
    measures = measure("none", wordpiece("가"), held_out)
    assert set(measures.shares().values()) == {0.0}
    assert "0 documents" in render_report([measures], held_out, command="c", facts=[])
    draw_report(tmp_path / "r.png", [measures])


def test_eojeol_by_eojeol_is_what_whole_documents_give(news: list[str], held_out_news: HeldOut) -> None:
    trained = train_wordpiece(news[30:], 2500)
    measures = measure("news", trained.backend_tokenizer, held_out_news)
    tokens = [token for text in news[:30] for token in trained.tokenize(text)]
    assert measures.num_tokens == len(tokens)
    assert measures.num_unknown == tokens.count("[UNK]") > 0
    assert measures.token_counts == collections.Counter(token for token in tokens if token != "[UNK]")
    assert measures.num_eojeol == sum(len(text.split()) for text in news[:30])
    split = [trained.tokenize(eojeol) for text in news[:30] for eojeol in text.split()]
    unknown = sum("[UNK]" in tokens for tokens in split)
    whole = sum(len(tokens) == 1 and "[UNK]" not in tokens for tokens in split)
    assert (measures.num_eojeol_unknown, measures.num_eojeol_whole) == (unknown, whole)


def test_subwords_trained_on_morphemes_are_morphemes_more_often(news: list[str], held_out_news: HeldOut) -> None:
    eojeol, morpheme = (
        measure(segmentation, tokenizer.backend_tokenizer, held_out_news).shares()
        for segmentation, tokenizer in (
            ("eojeol", train_wordpiece(news[30:], 3000)),
            ("morpheme", train_wordpiece(news[30:], 3000, segmentation="morpheme")),
        )
    )
    assert morpheme["tokens_on_borders"] > eojeol["tokens_on_borders"] + 0.1
    assert morpheme["tokens_one_morpheme"] > eojeol["tokens_one_morpheme"] + 0.1
    assert morpheme["entries_one_morpheme"] > eojeol["entries_one_morpheme"] + 0.1
    assert morpheme["tokens_across"] < eojeol["tokens_across"] / 5


# ---- page and chart ----


def test_the_page_holds_figures_definitions_and_the_command(by_hand: VocabMeasures) -> None:
    held_out = analyse_held_out(TEXTS)
    page = render_report([by_hand, by_hand], held_out, command="python -m x", facts=["Trained on little."])
    assert "# Vocabulary tiny\n\n- Trained on little.\n" in page
    assert "Held-out text: 2 documents, 7 eojeol (7 distinct), 27 characters." in page
    assert "```sh\npython -m x\n```" in page
    assert "| tokens per eojeol | 2.143 | 2.143 |" in page
    assert "| `[UNK]` among tokens | 6.7 % | 6.7 % |" in page
    assert "| word starts, Hangul | 5 | 5 |" in page
    assert f"`{EXAMPLE}`\n\n- tiny: `[UNK]` `BE` `##RT` `모델을` `공개` `##합` `##니다` `.`" in page
    assert "](report.png)" in page
    assert all(f"*{word}*" in page for word in ("eojeol", "token", "Morpheme boundaries", "Of one morpheme"))


def test_a_small_share_keeps_the_digits_that_tell_it_from_nothing() -> None:
    rare = HeldOut({"모델을": 9_999, "뷁": 1}, num_documents=1, num_characters=40_000)
    page = render_report([measure("m", wordpiece(*PIECES), rare)], rare, command="c", facts=[])
    assert "| `[UNK]` among tokens | 0.010 % |" in page
    assert "| Hangul tokens across a boundary | 0 % |" in page


@pytest.mark.filterwarnings("error")
def test_the_chart_is_drawn_whatever_the_vocabularies_are_called(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, names in enumerate([["tiny"], ["_가", "한국", "a$b$", "_"], ["x"] * 9]):
        with subtests.test(names=names):
            folder = tmp_path / str(number)
            folder.mkdir()
            held_out = analyse_held_out(TEXTS)
            measures = [measure(name, wordpiece(*PIECES), held_out) for name in names]
            draw_report(folder / "r.png", measures)
            content = (folder / "r.png").read_bytes()
            assert content.startswith(b"\x89PNG")
            width, height = struct.unpack(">II", content[16:24])
            assert width > height > 500
            draw_report(folder / "again.png", measures)
            assert (folder / "again.png").read_bytes() == content


def test_a_chart_that_cannot_be_written_is_one_error(by_hand: VocabMeasures, tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with fails(ResultError, tmp_path / "file", "cannot write"):
        draw_report(tmp_path / "file" / "r.png", [by_hand])


# ---- what is compared ----


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data root with a tokenizer under the name of kpfBERT's."""
    save_tokenizer(train_wordpiece(["한국 언론 기사"], 40), tmp_path / "data" / "kpfbert")
    monkeypatch.setenv("PRESSBERT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_kpfbert_is_compared_if_it_is_under_the_data_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_compared(None) == ({"kpfbert": root / "kpfbert"}, [])
    assert choose_compared([]) == ({}, [])
    monkeypatch.setenv("PRESSBERT_DATA", str(root / "kpfbert"))
    folders, notes = choose_compared(None)
    assert folders == {}
    assert [note.startswith("Not compared with kpfbert") for note in notes] == [True]


def test_a_tokenizer_is_found_by_folder_or_under_the_data_root(root: Path, tmp_path: Path) -> None:
    for name in ("a/vocab", "b/vocab"):
        save_tokenizer(train_wordpiece(["한국 언론 기사"], 40), tmp_path / name)
    first, second = str(tmp_path / "a" / "vocab"), str(tmp_path / "b" / "vocab")
    folders, _ = choose_compared([first, "kpfbert", second])
    assert folders == {"vocab": Path(first), "kpfbert": root / "kpfbert", second: Path(second)}


def test_an_unknown_tokenizer_is_an_error(root: Path, fails: Fails, subtests: pytest.Subtests) -> None:
    for name in ["", "kpfbart", ".", "/nonexistent"]:
        with subtests.test(name=name), fails(UsageError, "--compare", f"'{name}'", str(root)):
            choose_compared([name])


@pytest.mark.usefixtures("root")
def test_compared_tokenizers_have_a_column_in_the_report(tmp_path: Path) -> None:
    arguments = [str(NEWS), "--out", str(tmp_path / "kpfbert"), "--vocab-size", "2500"]
    assert main(arguments) == 0
    report = (tmp_path / "kpfbert" / "report.md").read_text(encoding="utf-8")
    assert "|  | kpfbert (new) | kpfbert |" in report
    assert "| entries | 2,500 | 17 |" in report
    assert f"python -m pretraining.vocab {NEWS} --out" in report
    manifest = json.loads((tmp_path / "kpfbert" / "manifest.json").read_text(encoding="utf-8"))
    assert set(manifest["held_out"]) == {"kpfbert (new)", "kpfbert"}


def test_a_tokenizer_of_another_kind_is_refused_by_its_file(root: Path, tmp_path: Path, fails: Fails) -> None:
    path = root / "kpfbert" / "tokenizer.json"
    path.write_text("{}", encoding="utf-8")
    with fails(CheckpointError, path, "not a tokenizer file"):
        main([str(NEWS), "--out", str(tmp_path / "o"), "--vocab-size", "2500"])
    assert not (tmp_path / "o").exists()


# ---- the published tokenizer ----


@pytest.fixture
def kpfbert(real_data: Path) -> Tokenizer:
    """Return the tokenizer that KPFBERT/kpfbert publishes, without the rules of the suite."""
    if not (real_data / "kpfbert" / "tokenizer.json").is_file():
        pytest.skip("put the files of KPFBERT/kpfbert's tokenizer under PRESSBERT_DATA/kpfbert to run this test")
    tokenizer: Tokenizer = open_wordpiece(real_data / "kpfbert" / "tokenizer.json")
    published = Tokenizer.from_file(str(real_data / "kpfbert" / "tokenizer.json"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = published.normalizer, published.pre_tokenizer
    return tokenizer


@pytest.mark.real_data
def test_kpfberts_vocabulary_is_composed_as_counted_elsewhere(kpfbert: Tokenizer) -> None:
    measures = measure("kpfbert", kpfbert, analyse_held_out([]))
    assert measures.composition == {
        (SPECIAL, ""): 5,
        (UNUSED, ""): 500,
        (STARTS, "Hangul"): 25_922,
        (STARTS, "Hanja"): 1_595,
        (STARTS, "Latin"): 1_136,
        (STARTS, "digits"): 651,
        (STARTS, OTHER): 684,
        (CONTINUATIONS, "Hangul"): 4_444,
        (CONTINUATIONS, "Latin"): 904,
        (CONTINUATIONS, "digits"): 102,
        (CONTINUATIONS, OTHER): 497,
    }
    assert measures.num_single_syllables == {STARTS: 1_793, CONTINUATIONS: 1_790}
    # The worked example of its README.
    assert " ".join(measures.example) == "언론 ##진흥 ##재단 BE ##RT 모델 ##을 공개 ##합니다 ."


@pytest.mark.real_data
def test_kpfbert_splits_korquad_as_counted_elsewhere(kpfbert: Tokenizer, real_data: Path) -> None:
    articles = json.loads((real_data / "korquad" / "KorQuAD_v1.0_dev.json").read_text(encoding="utf-8"))["data"]
    contexts = [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]
    eojeol = collections.Counter(eojeol for context in contexts for eojeol in split_eojeol(context))
    shares = measure("kpfbert", kpfbert, HeldOut(eojeol, len(contexts), sum(map(len, contexts)))).shares()
    assert math.isclose(shares["tokens_per_eojeol"], 2.34, abs_tol=0.005)
    assert math.isclose(shares["tokens_per_character"], 0.52, abs_tol=0.005)
    assert math.isclose(shares["tokens_unknown"], 0.00081, abs_tol=0.000005)


@pytest.mark.real_data
def test_on_held_out_wikinews_kpfbert_needs_fewer_tokens_than_a_small_vocabulary(
    kpfbert: Tokenizer, real_data: Path, tmp_path: Path
) -> None:
    assert data_root(None) == real_data
    assert kpfbert.get_vocab_size() == 36_440
    wikinews = real_data / "corpus" / "boddari_wikinews.csv"
    assert main([str(wikinews), "--out", str(tmp_path / "o"), "--vocab-size", "6000"]) == 0
    shares = json.loads((tmp_path / "o" / "manifest.json").read_text(encoding="utf-8"))["held_out"]
    assert list(shares) == ["o", "kpfbert"]
    assert shares["kpfbert"]["tokens_per_eojeol"] < shares["o"]["tokens_per_eojeol"]
    # Trained on morphemes, it respects their boundaries; the small one, trained on eojeol, does not.
    assert shares["kpfbert"]["tokens_one_morpheme"] > 0.75 > 0.6 > shares["o"]["tokens_one_morpheme"]
    assert shares["kpfbert"]["tokens_unknown"] < 0.005
    with wikinews.open(encoding="utf-8", newline="") as file:
        num_documents = sum(1 for _ in csv.DictReader(file))
    assert f"{math.ceil(num_documents / 50)} documents" in (tmp_path / "o" / "report.md").read_text(encoding="utf-8")
