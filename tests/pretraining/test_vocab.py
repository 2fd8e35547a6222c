"""The WordPiece vocabulary: the same text gives the same pieces, cased, and Hangul stays whole; and its command."""

import doctest
import itertools
import json
import os
import subprocess
import sys
import unicodedata
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer, Tokenizer, models, normalizers, pre_tokenizers, trainers

import pretraining.vocabulary.wordpiece
from corpora import build
from corpora.corpus import read_manifest
from corpora.documents import read_documents
from corpora.foundation.errors import DataError, RecipeError, ResultError, UsageError
from downstream.task import SAMPLE_ROOT
from pretraining.vocab import main
from pretraining.vocabulary.build import Documents, open_corpus
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS, save_tokenizer
from pretraining.vocabulary.wordpiece import (
    BOUNDARY,
    Segmentation,
    WordCounts,
    count_words,
    split_eojeol,
    train_wordpiece,
)

Fails = Callable[..., AbstractContextManager[None]]
Write = Callable[[str, str | bytes], Path]

ROOT = Path(__file__).resolve().parents[2]
NEWS = SAMPLE_ROOT / "news.jsonl"
TRAIN_AND_SAVE = """
import sys
from itertools import islice
from pathlib import Path
from corpora.documents import read_documents
from pretraining.vocabulary.wordpiece import train_wordpiece
for segmentation in ("eojeol", "morpheme"):
    texts = (document.text for document in islice(read_documents(Path(sys.argv[1])), 20))
    train_wordpiece(texts, 1500, segmentation=segmentation).save_pretrained(Path(sys.argv[2], segmentation))
"""
JAMO = {chr(code) for code in range(0x1100, 0x1200)}
"""Conjoining jamo, into which NFD takes Hangul apart."""


@pytest.fixture(scope="module")
def lines() -> list[str]:
    texts = [document.text for document in read_documents(NEWS)]
    return [line for text in texts for line in text.split("\n") if line.strip()]


@pytest.fixture(scope="module")
def morphemes(lines: list[str]) -> WordCounts:
    """Return the words of the sample, cut into morphemes."""
    return count_words(lines, "morpheme")


def rejoin(tokens: Sequence[str]) -> str:
    return "".join(token.removeprefix("##") for token in tokens)


def without_blanks(text: str) -> str:
    return "".join(text.split())


def test_the_same_text_gives_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRAIN_AND_SAVE, str(NEWS), str(tmp_path / "other")]
    subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "1"}, check=True, timeout=120)
    texts = [document.text for document in itertools.islice(read_documents(NEWS), 20)]
    for segmentation in get_args(Segmentation):
        train_wordpiece(texts, 1500, segmentation=segmentation).save_pretrained(tmp_path / "here" / segmentation)
        other, here = (tmp_path / folder / segmentation / "tokenizer.json" for folder in ("other", "here"))
        assert other.read_bytes() == here.read_bytes()
        assert '"##다"' in here.read_text(encoding="utf-8")


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


# ---- composition, reading once, unused slots ----


@pytest.mark.parametrize("segmentation", ["eojeol", "morpheme"])
def test_decomposed_hangul_gives_the_same_vocabulary(lines: list[str], segmentation: Segmentation) -> None:
    decomposed = [unicodedata.normalize("NFD", line) for line in lines[:60]]
    assert decomposed != lines[:60]
    vocab = train_wordpiece(decomposed, 700, segmentation=segmentation).get_vocab()
    assert vocab == train_wordpiece(lines[:60], 700, segmentation=segmentation).get_vocab()
    assert not {piece for piece in vocab if JAMO & set(piece)}


def test_counted_words_train_the_pieces_that_running_text_trains(lines: list[str]) -> None:
    text = [*lines, "(大學)은 Café에서\u200b 😀\u00a0문을 \x0b열었다…"]
    vocab = train_wordpiece(text, 4000).get_vocab()
    reference = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    reference.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    single = sorted((piece for piece in vocab if len(piece.removeprefix("##")) == 1), key=vocab.__getitem__)
    trainer = trainers.WordPieceTrainer(
        vocab_size=4000,
        min_frequency=2,
        limit_alphabet=0,
        special_tokens=[*SPECIAL_TOKENS, *single],
        show_progress=False,
    )
    reference.train_from_iterator(text, trainer)
    assert reference.get_vocab() == vocab


def test_texts_are_read_once_and_let_go() -> None:
    class Text(str):
        __slots__ = ("__weakref__",)

    def stream() -> Iterator[str]:
        for number in range(100):
            text = Text(f"기자 {number}명이 모였다")
            read.append(weakref.ref(text))
            yield text
            del text
            assert sum(ref() is not None for ref in read) <= 1

    read: list[weakref.ref[str]] = []
    counts = count_words(stream())
    assert (counts.num_texts, counts.num_eojeol, counts.words["기자"]) == (100, 300, 100)
    assert counts.num_bytes == sum(len(f"기자 {number}명이 모였다".encode()) for number in range(100))


def test_unused_slots_stand_behind_the_special_tokens_and_count_as_pieces(lines: list[str]) -> None:
    vocab = train_wordpiece(lines, 3000, num_unused=500).get_vocab()
    assert [vocab[f"[unused{k}]"] for k in range(500)] == list(range(5, 505))
    assert [vocab[token] for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert len(vocab) == 3000
    without = train_wordpiece(lines, 2500).get_vocab()
    ordinary = {piece: id_ - 500 for piece, id_ in vocab.items() if id_ >= 505}
    assert ordinary == {piece: id_ for piece, id_ in without.items() if id_ >= 5}


@pytest.mark.parametrize(("size", "unused", "what"), [(106, 100, "100 unused slots"), (1000, -1, "negative")])
def test_unused_slots_that_do_not_fit_are_an_error(size: int, unused: int, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        train_wordpiece(["한국 언론"], size, num_unused=unused)


@pytest.mark.parametrize("segmentation", ["eojeol", "morpheme"])
def test_every_way_of_loading_gives_the_same_ids(
    lines: list[str], morphemes: WordCounts, tmp_path: Path, segmentation: Segmentation
) -> None:
    from transformers import AutoTokenizer, BertTokenizerFast

    trained = train_wordpiece(morphemes if segmentation == "morpheme" else lines, 3000, num_unused=10)
    save_tokenizer(trained, tmp_path)
    expected = trained(lines)["input_ids"]
    assert BertTokenizerFast.from_pretrained(tmp_path)(lines)["input_ids"] == expected
    assert AutoTokenizer.from_pretrained(tmp_path)(lines)["input_ids"] == expected
    vocab_txt = str(tmp_path / "vocab.txt")
    plain = BertTokenizerFast(vocab=vocab_txt, do_lower_case=False, strip_accents=False)
    assert plain(lines)["input_ids"] == expected
    independent = BertWordPieceTokenizer(vocab_txt, lowercase=False, strip_accents=False)
    assert [encoding.ids for encoding in independent.encode_batch(lines)] == expected


# ---- morphemes ----


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("언론진흥재단 BERT 모델을 공개합니다.", "언론|진흥|재단 BERT 모델|을 공개|합니다|."),
        ("나는 갔다.", "나|는 갔|다|."),  # 가 + 았 share a syllable
        ("버스가 달렸다", "버스|가 달렸|다"),  # 달리 ends in the syllable where 었 begins
        ("그건 친구야", "그건 친구|야"),  # the copula before 야 has no syllable at all
        ("시의회(市議會)는", "시|의회|(|市議會|)|는"),
        ("😀한국은행은\n기준금리를", "😀|한국은행|은 기준|금리|를"),
        ("", ""),
        (" \n\u3000", ""),
    ],
)
def test_an_eojeol_is_cut_where_a_morpheme_begins_a_syllable(text: str, marked: str) -> None:
    assert [eojeol.replace(BOUNDARY, "|") for eojeol in split_eojeol(text, "morpheme")] == marked.split()


@settings(max_examples=60)
@given(
    st.text(
        alphabet=st.sampled_from("갔다그건을는한국大學 .,(A1ㅋ\n\r\t\x00\x0b\u00a0\u200b\ue000😀👍🏽\u1161"),
        max_size=40,
    )
)
def test_without_its_borders_text_is_what_it_was(text: str) -> None:
    marked = split_eojeol(text, "morpheme")
    assert [eojeol.replace(BOUNDARY, "") for eojeol in marked] == split_eojeol(text)
    assert all(morpheme for eojeol in marked for morpheme in eojeol.split(BOUNDARY))


def test_no_piece_reaches_across_a_morpheme() -> None:
    texts = ["학교에서 모델을 배웠다. 학교에서 모델을 만들었다."] * 10
    by_eojeol = set(train_wordpiece(texts, 300).get_vocab())
    by_morpheme = set(train_wordpiece(texts, 300, segmentation="morpheme").get_vocab())
    assert {"학교에서", "모델을"} <= by_eojeol
    assert {"학교", "##에서", "모델", "##을"} <= by_morpheme
    assert not {"학교에서", "모델을", "##델을", "##교에"} & by_morpheme


def test_what_follows_a_border_is_learnt_as_a_continuation_only() -> None:
    vocab = train_wordpiece(["서울에서 부산에서 대전에서"] * 3, 200, segmentation="morpheme").get_vocab()
    assert "##에서" in vocab
    assert "에서" not in vocab
    # Behind punctuation BERT begins a new word, and so does the piece.
    vocab = train_wordpiece(["‘서울’에서 ‘부산’에서 ‘대전’에서"] * 3, 200, segmentation="morpheme").get_vocab()
    assert "에서" in vocab
    assert "##에서" not in vocab


def test_a_morpheme_vocabulary_is_of_the_size_asked_for_and_free_of_borders(morphemes: WordCounts) -> None:
    assert any(BOUNDARY in word for word in morphemes.words)
    assert BOUNDARY not in morphemes.characters
    for size in (2500, 3001):
        vocab = train_wordpiece(morphemes, size).get_vocab()
        assert sorted(vocab.values()) == list(range(size))
        assert not [piece for piece in vocab if any(unicodedata.category(c).startswith("C") for c in piece)]


def test_counted_texts_train_like_texts(lines: list[str]) -> None:
    for segmentation in get_args(Segmentation):
        counts = count_words(iter(lines[:60]), segmentation)
        vocab = train_wordpiece(iter(lines[:60]), 900, segmentation=segmentation).get_vocab()
        assert train_wordpiece(counts, 900).get_vocab() == vocab


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(pretraining.vocabulary.wordpiece).failed == 0


# ---- what is read of a corpus ----


def test_every_fiftieth_document_of_a_file_is_held_out(write: Write) -> None:
    path = write("c.txt", "\n".join(f"기사 {number}번" for number in range(120)))
    corpus = open_corpus(path, "line")
    assert list(corpus.held_out.read()) == ["기사 0번", "기사 50번", "기사 100번"]
    assert corpus.held_out.num_documents == 3
    assert len(list(corpus.train.read())) == corpus.train.num_documents == 117
    assert not set(corpus.train.read()) & set(corpus.held_out.read())


def test_a_sample_keeps_to_its_bytes_and_lies_evenly_whatever_the_order() -> None:
    texts = [f"기사 {number}번입니다" for number in range(4000)]
    budget = sum(len(text.encode()) for text in texts) // 4
    chosen = list(Documents.from_reader(lambda: iter(texts)).sample(budget))
    assert 0.9 * budget < sum(len(text.encode()) for text in chosen) <= budget
    assert 400 < sum(int(text[3:-4]) < 2000 for text in chosen) < 600
    backwards = set(Documents.from_reader(lambda: reversed(texts)).sample(budget))
    assert len(backwards & set(chosen)) > 0.95 * len(chosen)
    assert list(Documents.from_reader(lambda: iter(texts)).sample(4 * budget + 3)) == texts


# ---- the command ----


@pytest.fixture(autouse=True)
def no_data_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep what happens to lie under the user's data root out of the reports."""
    monkeypatch.delenv("PRESSBERT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(corpus: Path, out: Path, *options: object) -> int:
    return main([str(corpus), "--out", str(out), *map(str, options)])


def manifest_of(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    return content


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("segmentation", ["eojeol", "morpheme"])
def test_the_command_leaves_a_tokenizer_its_report_and_its_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], segmentation: Segmentation
) -> None:
    out = tmp_path / "o"
    news = tmp_path / "news.jsonl"
    news.write_bytes(b"".join(NEWS.read_bytes().splitlines(keepends=True)[:60]))
    options = ("--vocab-size", 2000, "--segmentation", segmentation, "--unused", 20, "--min-frequency", 3)
    assert run(news, out, *options) == 0
    assert capsys.readouterr().out == f"{out / 'report.md'}\n"
    assert set(files_of(out)) == {
        *("tokenizer.json", "vocab.txt", "tokenizer_config.json", "report.md", "report.png", "manifest.json")
    }
    trained_on = [document for k, document in enumerate(read_documents(news)) if k % 50]
    vocab = train_wordpiece(
        (f"{document.title}\n{document.text}" for document in trained_on),
        2000,
        num_unused=20,
        min_frequency=3,
        segmentation=segmentation,
    ).get_vocab()
    assert (out / "vocab.txt").read_text(encoding="utf-8").splitlines() == sorted(vocab, key=vocab.__getitem__)
    manifest = manifest_of(out)
    assert manifest["finished"] is True
    assert manifest["counts"]["train_documents"] == len(trained_on)
    assert manifest["counts"]["entries"] == 2000
    assert {"tokenizers", "transformers", "kiwipiepy", "kiwipiepy_model"} <= set(manifest["versions"])
    assert "Not compared with kpfbert" in (out / "report.md").read_text(encoding="utf-8")


def test_the_same_command_again_does_nothing_and_another_is_refused(
    tmp_path: Path, fails: Fails, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    assert run(NEWS, out, "--vocab-size", 2500) == 0
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    capsys.readouterr()
    assert run(NEWS, out, "--vocab-size", 2500, "--segmentation", "eojeol") == 0
    printed = capsys.readouterr()
    assert (printed.out, "nothing to do" in printed.err) == (f"{out / 'report.md'}\n", True)
    with fails(UsageError, out, "another vocabulary", "vocab_size=2500", "2600"):
        run(NEWS, out, "--vocab-size", 2600)
    with fails(UsageError, out, "another vocabulary", "segmentation='eojeol'"):
        run(NEWS, out, "--vocab-size", 2500, "--segmentation", "morpheme")
    shorter = tmp_path / "n.jsonl"
    shorter.write_bytes(b"".join(NEWS.read_bytes().splitlines(keepends=True)[:100]))
    with fails(UsageError, out, "another vocabulary", "corpus_sha256"):
        run(shorter, out, "--vocab-size", 2500)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(NEWS, tmp_path / name / "o", "--vocab-size", 2500)
    first, second = files_of(tmp_path / "a" / "o"), files_of(tmp_path / "b" / "o")
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "report.png"):
        assert first[name] == second[name]


def test_what_was_not_finished_is_done_anew_and_what_is_not_ours_is_left(tmp_path: Path, fails: Fails) -> None:
    out = tmp_path / "o"
    with fails(UsageError, "--vocab-size", "50,000 requested"):
        run(NEWS, out, "--vocab-size", 50_000)
    assert manifest_of(out)["finished"] is False
    assert run(NEWS, out, "--vocab-size", 2500) == 0
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "notes.txt").write_text("메모", encoding="utf-8")
    with fails(UsageError, theirs, "did not make"):
        run(NEWS, theirs, "--vocab-size", 2500)
    for content in ("{}", "[1]", "null", "{"):
        (theirs / "manifest.json").write_text(content, encoding="utf-8")
        with fails(UsageError, theirs, "manifest.json"):
            run(NEWS, theirs, "--vocab-size", 2500)
    assert set(files_of(theirs)) == {"notes.txt", "manifest.json"}


def test_a_size_that_the_corpus_does_not_support_is_refused_with_the_one_it_does(
    tmp_path: Path, fails: Fails, caplog: pytest.LogCaptureFixture
) -> None:
    options = ("--vocab-size", 50_000, "--min-frequency", 4)
    with fails(UsageError, "--vocab-size", "supports", "--min-frequency 4", "--allow-smaller"):
        run(NEWS, tmp_path / "o", *options)
    assert run(NEWS, tmp_path / "o", *options, "--allow-smaller") == 0
    supported = manifest_of(tmp_path / "o")["counts"]["entries"]
    assert 2500 < supported < 5000
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"the corpus supports {supported:,} entries at --min-frequency 4, not 50,000"
    ]
    report = (tmp_path / "o" / "report.md").read_text(encoding="utf-8")
    assert "50,000 entries were requested; the corpus supports no more" in report
    assert run(NEWS, tmp_path / "exact", "--vocab-size", supported, "--min-frequency", 4) == 0
    with fails(UsageError, "--vocab-size", f"supports {supported:,} entries"):
        run(NEWS, tmp_path / "more", "--vocab-size", supported + 1, "--min-frequency", 4)


def test_a_size_without_room_for_the_characters_is_refused_with_one_that_has(tmp_path: Path, fails: Fails) -> None:
    with fails(UsageError, "--vocab-size", "1,000 entries have room for 447 characters", "--limit-alphabet 447"):
        run(NEWS, tmp_path / "o", "--vocab-size", 1000, "--unused", 100)
    assert run(NEWS, tmp_path / "o", "--vocab-size", 1000, "--unused", 100, "--limit-alphabet", 447) == 0
    least = 5 + 2 * len(count_words(open_corpus(NEWS).train.read()).characters)
    with fails(UsageError, "--vocab-size", f"give {least:,} or more"):
        run(NEWS, tmp_path / "p", "--vocab-size", least - 1)
    assert run(NEWS, tmp_path / "p", "--vocab-size", least) == 0
    with fails(UsageError, "--vocab-size", "no room beside 505"):
        run(NEWS, tmp_path / "q", "--vocab-size", 506, "--unused", 500)


def test_a_built_corpus_is_tried_on_its_own_held_out_split(tmp_path: Path) -> None:
    build.main([str(NEWS), "--out", str(tmp_path / "corpus"), "--held-out", "0.2"])
    assert run(tmp_path / "corpus", tmp_path / "o", "--vocab-size", 2500) == 0
    manifest = read_manifest(tmp_path / "corpus")
    counts = manifest_of(tmp_path / "o")["counts"]
    assert counts["train_documents"] == manifest.totals.num_kept
    assert counts["held_out_documents"] == manifest.totals.num_held_out > 5
    assert "the corpus's own split" in (tmp_path / "o" / "report.md").read_text(encoding="utf-8")


def test_a_larger_corpus_than_the_budget_is_sampled_and_the_report_says_so(tmp_path: Path) -> None:
    run(NEWS, tmp_path / "o", "--vocab-size", 2500, "--max-bytes", 120_000)
    counts = manifest_of(tmp_path / "o")["counts"]
    assert 80_000 < counts["train_bytes"] <= 120_000
    assert 20 < counts["train_documents"] < 117
    assert "a sample of" in (tmp_path / "o" / "report.md").read_text(encoding="utf-8")


def test_records_that_hold_no_document_are_counted_in_the_report(write: Write, tmp_path: Path) -> None:
    good = NEWS.read_text(encoding="utf-8")
    run(write("c.jsonl", good + '{"text": " "}\n{"text"\n'), tmp_path / "o", "--vocab-size", 2500)
    assert manifest_of(tmp_path / "o")["counts"]["rejected_records"] == 2
    report = (tmp_path / "o" / "report.md").read_text(encoding="utf-8")
    assert "2 records were rejected, the first because: empty document" in report


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "zero bytes"),
        (" \n\n", "no documents in it"),
        ("기사 하나뿐", "only document is held out"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_corpus_without_text_to_train_on_is_an_error(
    write: Write, tmp_path: Path, fails: Fails, content: str | bytes, what: str
) -> None:
    path = write("c.txt", content)
    with fails(DataError, path, what):
        run(path, tmp_path / "o", "--vocab-size", 100)
    assert not (tmp_path / "o").exists()


def test_a_file_of_bad_records_alone_names_the_first(write: Write, tmp_path: Path, fails: Fails) -> None:
    with fails(DataError, path := write("c.jsonl", '{"text": ""}\n'), "c.jsonl:1: empty document"):
        run(path, tmp_path / "o", "--vocab-size", 100)


def test_wrong_settings_are_told_by_name(tmp_path: Path, fails: Fails) -> None:
    for option, key in (("--min-frequency", "min_frequency"), ("--unused", "num_unused"), ("--max-bytes", "max_bytes")):
        with fails(RecipeError, "python -m pretraining.vocab", f"{key}=-1"):
            run(NEWS, tmp_path / "o", "--vocab-size", 2500, option, -1)
    with fails(RecipeError, "python -m pretraining.vocab", "vocab_size=3"):
        run(NEWS, tmp_path / "o", "--vocab-size", 3)


def test_an_unwritable_folder_is_found_out_before_training(tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with fails(ResultError, tmp_path / "file", "cannot write"):
        run(NEWS, tmp_path / "file" / "o", "--vocab-size", 2500)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["no-such.jsonl", "--out", "o", "--vocab-size", "100"],
            "no-such.jsonl: no such file or folder; check the path",
        ),
        ([str(NEWS), "--out", "o", "--vocab-size", "100", "--compare", "kpfbart"], "--compare: no tokenizer folder"),
        ([str(NEWS), "--out", "o", "--vocab-size", "100", "--segmentation", "syllable"], "invalid choice: 'syllable'"),
        ([str(NEWS), "--out", "o"], "--vocab-size"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pretraining.vocab", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "o").exists()
