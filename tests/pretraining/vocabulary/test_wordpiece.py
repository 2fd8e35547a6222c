"""WordPiece training: deterministic, cased, with Hangul syllables whole and morphemes apart."""

import doctest
import itertools
import os
import subprocess
import sys
import unicodedata
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer, Tokenizer, models, normalizers, pre_tokenizers, trainers

import pretraining.vocabulary.wordpiece
from corpora.documents import read_documents
from corpora.foundation.errors import DataError
from corpora.foundation.files import SAMPLE_ROOT
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
"""Conjoining jamo, into which NFD decomposes Hangul."""


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


@pytest.mark.slow
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


def test_the_size_is_kept_to_and_ids_have_no_gaps(lines: list[str], subtests: pytest.Subtests) -> None:
    for size in [7, 8, 100, 1001, 3000]:
        with subtests.test(size=size):
            vocab = train_wordpiece(lines, size).get_vocab()
            assert sorted(vocab.values()) == list(range(len(vocab)))
            assert len(vocab) <= size
            assert len(vocab) >= size - 1  # this much text fills any of them; one entry may remain unused beside pairs


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


def test_hangul_is_never_decomposed(lines: list[str]) -> None:
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


def test_punctuation_and_hanja_are_words_of_their_own() -> None:
    tokenizer = train_wordpiece(["大學, 시의회(市議會)는 “확정”"] * 3, 200)
    assert not {f"##{character}" for character in "大學市議會,()“”"} & set(tokenizer.get_vocab())
    assert tokenizer.tokenize("大學,") == ["大", "學", ","]


def test_text_without_characters_is_an_error(fails: Fails, subtests: pytest.Subtests) -> None:
    for texts in [[], [""], [" \n\t", "\u3000"], ["\x00\u200b"]]:
        with subtests.test(texts=texts), fails(DataError, "vocabulary", "no characters"):
            train_wordpiece(texts, 100)


def test_a_vocabulary_without_room_is_an_error(subtests: pytest.Subtests) -> None:
    for size in [-1, 0, 5, 6]:
        with subtests.test(size=size), pytest.raises(ValueError, match=f"vocab_size {size} leaves no room"):
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


def test_decomposed_hangul_gives_the_same_vocabulary(lines: list[str], subtests: pytest.Subtests) -> None:
    for segmentation in ["eojeol", "morpheme"]:
        with subtests.test(segmentation=segmentation):
            decomposed = [unicodedata.normalize("NFD", line) for line in lines[:60]]
            assert decomposed != lines[:60]
            vocab = train_wordpiece(decomposed, 700, segmentation=segmentation).get_vocab()
            assert vocab == train_wordpiece(lines[:60], 700, segmentation=segmentation).get_vocab()
            assert not {piece for piece in vocab if JAMO & set(piece)}


def test_word_counts_train_the_same_subwords_as_running_text(lines: list[str]) -> None:
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


def test_texts_are_read_once_and_freed() -> None:
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


def test_unused_slots_follow_the_special_tokens_and_count_as_entries(lines: list[str]) -> None:
    vocab = train_wordpiece(lines, 3000, num_unused=500).get_vocab()
    assert [vocab[f"[unused{k}]"] for k in range(500)] == list(range(5, 505))
    assert [vocab[token] for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert len(vocab) == 3000
    without = train_wordpiece(lines, 2500).get_vocab()
    ordinary = {piece: id_ - 500 for piece, id_ in vocab.items() if id_ >= 505}
    assert ordinary == {piece: id_ for piece, id_ in without.items() if id_ >= 5}


def test_unused_slots_that_do_not_fit_are_an_error(subtests: pytest.Subtests) -> None:
    for size, unused, what in [(106, 100, "100 unused slots"), (1000, -1, "negative")]:
        with subtests.test(size=size), pytest.raises(ValueError, match=what):
            train_wordpiece(["한국 언론"], size, num_unused=unused)


def test_every_way_of_loading_gives_the_same_ids(
    lines: list[str], morphemes: WordCounts, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, segmentation in enumerate(["eojeol", "morpheme"]):
        with subtests.test(segmentation=segmentation):
            folder = tmp_path / str(number)
            folder.mkdir()
            from transformers import AutoTokenizer, BertTokenizerFast

            trained = train_wordpiece(morphemes if segmentation == "morpheme" else lines, 3000, num_unused=10)
            save_tokenizer(trained, folder)
            expected = trained(lines)["input_ids"]
            assert BertTokenizerFast.from_pretrained(folder)(lines)["input_ids"] == expected
            assert AutoTokenizer.from_pretrained(folder)(lines)["input_ids"] == expected
            vocab_txt = str(folder / "vocab.txt")
            plain = BertTokenizerFast(vocab=vocab_txt, do_lower_case=False, strip_accents=False)
            assert plain(lines)["input_ids"] == expected
            independent = BertWordPieceTokenizer(vocab_txt, lowercase=False, strip_accents=False)
            assert [encoding.ids for encoding in independent.encode_batch(lines)] == expected


# ---- morphemes ----


def test_an_eojeol_is_cut_where_a_morpheme_begins_a_syllable(subtests: pytest.Subtests) -> None:
    for text, marked in [
        ("언론진흥재단 BERT 모델을 공개합니다.", "언론|진흥|재단 BERT 모델|을 공개|합니다|."),
        ("나는 갔다.", "나|는 갔|다|."),  # 가 + 았 share a syllable
        ("버스가 달렸다", "버스|가 달렸|다"),  # 달리 ends in the syllable where 었 begins
        ("그건 친구야", "그건 친구|야"),  # the copula before 야 has no syllable at all
        ("시의회(市議會)는", "시|의회|(|市議會|)|는"),
        ("😀한국은행은\n기준금리를", "😀|한국은행|은 기준|금리|를"),
        ("", ""),
        (" \n\u3000", ""),
    ]:
        with subtests.test(text=text):
            assert [eojeol.replace(BOUNDARY, "|") for eojeol in split_eojeol(text, "morpheme")] == marked.split()


@settings(max_examples=60)
@given(
    st.text(
        alphabet=st.sampled_from("갔다그건을는한국大學 .,(A1ㅋ\n\r\t\x00\x0b\u00a0\u200b\ue000😀👍🏽\u1161"),
        max_size=40,
    )
)
def test_without_boundary_marks_text_is_unchanged(text: str) -> None:
    marked = split_eojeol(text, "morpheme")
    assert [eojeol.replace(BOUNDARY, "") for eojeol in marked] == split_eojeol(text)
    assert all(morpheme for eojeol in marked for morpheme in eojeol.split(BOUNDARY))


def test_no_subword_crosses_a_morpheme_boundary() -> None:
    texts = ["학교에서 모델을 배웠다. 학교에서 모델을 만들었다."] * 10
    by_eojeol = set(train_wordpiece(texts, 300).get_vocab())
    by_morpheme = set(train_wordpiece(texts, 300, segmentation="morpheme").get_vocab())
    assert {"학교에서", "모델을"} <= by_eojeol
    assert {"학교", "##에서", "모델", "##을"} <= by_morpheme
    assert not {"학교에서", "모델을", "##델을", "##교에"} & by_morpheme


def test_text_after_a_boundary_is_learnt_as_a_continuation_only() -> None:
    vocab = train_wordpiece(["서울에서 부산에서 대전에서"] * 3, 200, segmentation="morpheme").get_vocab()
    assert "##에서" in vocab
    assert "에서" not in vocab
    # After punctuation BERT begins a new word.
    vocab = train_wordpiece(["‘서울’에서 ‘부산’에서 ‘대전’에서"] * 3, 200, segmentation="morpheme").get_vocab()
    assert "에서" in vocab
    assert "##에서" not in vocab


def test_a_morpheme_vocabulary_has_the_requested_size_and_no_boundary_marks(morphemes: WordCounts) -> None:
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
