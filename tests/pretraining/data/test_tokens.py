"""Tokenising by eojeol: the ids of whole texts, with the borders of eojeol and sentences; and their shards."""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

import pretraining.data.tokens
from corpora.documents import read_documents
from corpora.foundation.errors import CheckpointError, DataError
from corpora.foundation.files import SAMPLE_ROOT
from corpora.sentences import split_by_rules
from pretraining.data.shards import write_shard
from pretraining.data.tokens import EojeolTokenizer, TokenShard, tokenize_corpus
from pretraining.vocabulary.splitting import add_rules
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS, open_wordpiece

Fails = Callable[..., AbstractContextManager[None]]
Write = Callable[[str, str | bytes], Path]

WORDS = st.text(
    alphabet=st.one_of(
        st.sampled_from(
            "가각는다을뷁.,!?…“”’()[]·~aZé0\uff19大學市😀👍🏽ㅋㅠ\u1161\u200b\u200d\ufeff\ufffd\ue000\u0301"
        ),
        st.characters(exclude_categories=["Cc", "Cs"]),
    ),
    min_size=1,
    max_size=8,
)
BLANKS = st.sampled_from([" ", "  ", "\n", "\n\n", " \n", "\u00a0", "\u3000", "\u2003", "\u2028", "\u202f"])
TEXTS = st.lists(st.tuples(WORDS | st.sampled_from(SPECIAL_TOKENS), BLANKS), max_size=12).map(
    lambda parts: "".join(map("".join, parts))
)


@pytest.fixture(scope="module")
def news() -> list[str]:
    return [document.text for document in read_documents(SAMPLE_ROOT / "news.jsonl")]


@pytest.fixture(scope="module")
def whole(vocabulary: Path) -> Tokenizer:
    """Return the tokenizer as the library has it, for whole texts in which the names of special tokens are text."""
    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return tokenizer


@pytest.fixture
def by_eojeol(vocabulary: Path) -> EojeolTokenizer:
    return EojeolTokenizer(vocabulary / "tokenizer.json")


@pytest.fixture(scope="module")
def practised(vocabulary: Path) -> EojeolTokenizer:
    """Return a tokenizer that has met many eojeol before."""
    return EojeolTokenizer(vocabulary / "tokenizer.json")


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def documents_of(shard: TokenShard) -> list[list[int]]:
    return [shard.ids[number].tolist() for number in range(len(shard))]


def starts_of(shard: TokenShard) -> list[list[int]]:
    starts = shard.columns()["eojeol_starts"]
    return [starts[number].tolist() for number in range(len(shard))]


def ends_of(shard: TokenShard) -> list[list[int]]:
    return [shard.sentence_ends[number].tolist() for number in range(len(shard))]


def expected_starts(tokenizer: Tokenizer, text: str) -> list[int]:
    """Tell from the offsets in the whole text which tokens are the first of their eojeol."""
    eojeol_of = list(itertools.accumulate(int(c.isspace()) for c in text))
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    numbers = [-1] + [eojeol_of[begin] for begin, _ in offsets]
    return [int(before != number) for before, number in itertools.pairwise(numbers)]


def expected_ends(tokenizer: Tokenizer, text: str) -> list[int]:
    lengths = [len(encode(tokenizer, " ".join(sentence))) for sentence in split_by_rules(text)]
    return list(itertools.accumulate(length for length in lengths if length))


def assert_equal_to_whole(shard: TokenShard, texts: Iterable[str], tokenizer: Tokenizer) -> None:
    texts = [text for text in texts if encode(tokenizer, text)]
    assert documents_of(shard) == [encode(tokenizer, text) for text in texts]
    assert starts_of(shard) == [expected_starts(tokenizer, text) for text in texts]
    assert ends_of(shard) == [expected_ends(tokenizer, text) for text in texts]


# ---- ids, eojeol, sentences ----


def test_the_sample_is_tokenised_as_the_library_tokenises_whole_texts(
    by_eojeol: EojeolTokenizer, whole: Tokenizer, news: list[str]
) -> None:
    shard = by_eojeol.encode(news)
    assert len(shard) == len(news) == 120
    assert_equal_to_whole(shard, news, whole)


@settings(max_examples=150)
@given(texts=st.lists(TEXTS, max_size=3))
def test_any_text_is_tokenised_as_the_library_tokenises_whole_texts(
    practised: EojeolTokenizer, whole: Tokenizer, texts: list[str]
) -> None:
    shard = practised.encode(texts)
    texts = [text for text in texts if encode(whole, text)]
    assert documents_of(shard) == [encode(whole, text) for text in texts]
    assert starts_of(shard) == [expected_starts(whole, text) for text in texts]
    # Unicode's own line break is a blank here; in the library's rules for sentences it ends a line.
    texts = [text.replace("\u2028", " ").replace("\u2029", " ") for text in texts]
    assert ends_of(shard) == [expected_ends(whole, text) for text in texts]


@pytest.mark.real_data
def test_petitions_are_tokenised_as_the_library_tokenises_whole_texts(
    real_data: Path, vocabulary: Path, subtests: pytest.Subtests
) -> None:
    for published in [False, True]:
        with subtests.test(published=published):
            tokenizer_json = (real_data / "kpfbert" if published else vocabulary) / "tokenizer.json"
            documents = read_documents(real_data / "corpus" / "petitions.jsonl.gz", rejected=[])
            texts = [
                pretraining.data.tokens.CONTROL.sub(" ", document.text) for document in itertools.islice(documents, 600)
            ]
            shard = EojeolTokenizer(tokenizer_json).encode(texts)
            whole = open_wordpiece(tokenizer_json)
            assert documents_of(shard) == [ids for ids in (encode(whole, text) for text in texts) if ids]


def test_the_name_of_a_special_token_is_text(
    by_eojeol: EojeolTokenizer, vocabulary: Path, subtests: pytest.Subtests
) -> None:
    for name in SPECIAL_TOKENS:
        with subtests.test(name=name):
            whole = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
            shard = by_eojeol.encode([f"기사에 {name} 표시가", f"기사{name}"])
            spelt = " ".join([name[0], name[1:-1], name[-1]])  # punctuation is a word of its own in any case
            assert documents_of(shard) == [encode(whole, f"기사에 {spelt} 표시가"), encode(whole, f"기사 {spelt}")]
            assert whole.token_to_id(name) in encode(whole, f"기사에 {name} 표시가")
            starts = shard.columns()["eojeol_starts"]
            assert starts[0].sum() == 3
            assert starts[1].sum() == 1


def test_a_control_character_is_a_blank(by_eojeol: EojeolTokenizer, subtests: pytest.Subtests) -> None:
    for control in ["\x00", "\x07", "\t", "\x0b", "\x0c", "\r", "\x1c", "\x1f", "\x7f", "\x85", "\x9f"]:
        with subtests.test(control=control):
            odd, plain = by_eojeol.encode([f"한국{control}언론"]), by_eojeol.encode(["한국 언론"])
            assert documents_of(odd) == documents_of(plain)
            assert starts_of(odd) == starts_of(plain)
            assert ends_of(odd) == ends_of(plain) == [[len(plain.ids[0])]]


def test_a_sentence_ends_with_its_line_or_an_eojeol_that_ends_one(by_eojeol: EojeolTokenizer, whole: Tokenizer) -> None:
    sentences = ["제목에는 마침표가 없다", "“3.5%로 올랐다.”라고 말했다.", "왜 그랬을까?", "1. 첫째", "끝"]
    text = f"{sentences[0]}\r\n{sentences[1]} {sentences[2]} {sentences[3]}\n\n \n{sentences[4]}\n"
    ends = np.cumsum([len(encode(whole, sentence)) for sentence in sentences])
    assert ends_of(by_eojeol.encode(["앞 글.", text])) == [[len(encode(whole, "앞 글."))], ends.tolist()]


def test_a_text_without_tokens_is_left_out(by_eojeol: EojeolTokenizer, whole: Tokenizer) -> None:
    texts = ["", "\u200b", "한국은행", " \n\u3000\t", "\u200b \n\ufeff", "금리.", "\x00"]
    assert_equal_to_whole(by_eojeol.encode(texts), texts, whole)
    assert documents_of(by_eojeol.encode(texts)) == [encode(whole, "한국은행"), encode(whole, "금리.")]


def test_an_eojeol_without_tokens_begins_nothing_and_ends_nothing(by_eojeol: EojeolTokenizer) -> None:
    plain = by_eojeol.encode(["언론 한국은행"])
    odd = by_eojeol.encode(["\u200b 언론 \u200b\n\u200b 한국은행\n\u200b"])
    assert plain.eojeol_starts[-1] == 0  # the last eojeol has several tokens
    assert documents_of(odd) == documents_of(plain)
    assert starts_of(odd) == starts_of(plain)
    length = int(np.flatnonzero(plain.eojeol_starts)[1])
    assert ends_of(odd) == [[length, len(plain.ids[0])]]


def test_a_shard_may_be_empty(by_eojeol: EojeolTokenizer, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, texts in enumerate([[], ["", "\u200b"]]):
        with subtests.test(texts=texts):
            folder = tmp_path / str(number)
            folder.mkdir()
            shard = by_eojeol.encode(texts)
            assert len(shard) == len(shard.ids.values) == 0
            write_shard(folder / "empty.arrow", shard.columns())
            assert len(TokenShard.from_columns(pretraining.data.tokens.read_shard(folder / "empty.arrow"))) == 0


def test_a_long_word_and_an_unknown_character_are_split_as_the_library_does(
    by_eojeol: EojeolTokenizer, whole: Tokenizer
) -> None:
    add_rules(whole)
    text = f"{'가' * 101} {'다' * 100} 한국😀은행 100㎢"
    assert documents_of(by_eojeol.encode([text])) == [encode(whole, text)]
    assert encode(whole, text).count(whole.token_to_id("[UNK]")) == 1


def test_resetting_the_cache_changes_nothing(
    vocabulary: Path, news: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tokenise() -> list[TokenShard]:
        tokenizer = EojeolTokenizer(vocabulary / "tokenizer.json")
        return [tokenizer.encode(news[begin : begin + 5]) for begin in (0, 5, 0, 10)]

    remembered = tokenise()
    forgotten: list[int] = []
    forget = EojeolTokenizer._reset
    monkeypatch.setattr(EojeolTokenizer, "_reset", lambda self: (forgotten.append(1), forget(self))[-1])
    monkeypatch.setattr(pretraining.data.tokens, "MAX_KNOWN_EOJEOL", 10)
    for before, after in zip(remembered, tokenise(), strict=True):
        assert documents_of(before) == documents_of(after)
        assert starts_of(before) == starts_of(after)
        assert ends_of(before) == ends_of(after)
    assert len(forgotten) == 4  # once at the start, and before each shard but the first


def test_ids_take_two_bytes_where_the_vocabulary_allows(by_eojeol: EojeolTokenizer, tmp_path: Path) -> None:
    assert by_eojeol.encode(["한국"]).ids.values.dtype == np.uint16
    pieces = [*SPECIAL_TOKENS, *(f"x{number}" for number in range(1 << 16)), "마지막"]
    tokenizer = Tokenizer(models.WordPiece({piece: id_ for id_, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ids = EojeolTokenizer(tmp_path / "tokenizer.json").encode(["x0 마지막"]).ids
    assert ids.values.tolist() == [5, len(pieces) - 1]


# ---- tokenizers that do not suit ----


def edited(vocabulary: Path, write: Write, edit: Callable[[Any], Any]) -> Path:
    content = json.loads((vocabulary / "tokenizer.json").read_text(encoding="utf-8"))
    edit(content)
    return write("edited/tokenizer.json", json.dumps(content, ensure_ascii=False))


def test_a_missing_tokenizer_is_an_error(tmp_path: Path, fails: Fails) -> None:
    with fails(CheckpointError, tmp_path / "tokenizer.json", "no such file", "python -m pretraining.vocab"):
        open_wordpiece(tmp_path / "tokenizer.json")


def test_a_file_that_is_not_a_tokenizer_is_an_error(write: Write, fails: Fails, subtests: pytest.Subtests) -> None:
    for content in ["", "{", "[1]", '{"model": {}}']:
        with subtests.test(content=content):
            path = write("tokenizer.json", content)
            with fails(CheckpointError, path, "not a tokenizer file", "python -m pretraining.vocab"):
                open_wordpiece(path)


def test_a_tokenizer_of_another_kind_is_an_error(tmp_path: Path, fails: Fails) -> None:
    Tokenizer(models.BPE({"가": 0}, [])).save(str(tmp_path / "tokenizer.json"))
    with fails(CheckpointError, tmp_path / "tokenizer.json", "a BPE tokenizer, not WordPiece"):
        open_wordpiece(tmp_path / "tokenizer.json")


def test_a_tokenizer_without_a_mask_is_an_error(vocabulary: Path, write: Write, fails: Fails) -> None:
    def drop_mask(content: Any) -> None:
        del content["model"]["vocab"]["[MASK]"]
        content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != "[MASK]"]

    path = edited(vocabulary, write, drop_mask)
    with fails(CheckpointError, path, "[MASK] missing"):
        open_wordpiece(path)


LOWER = {"type": "Lowercase"}
PLAIN = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}


def test_a_tokenizer_that_changes_letters_is_an_error(
    vocabulary: Path, write: Write, fails: Fails, subtests: pytest.Subtests
) -> None:
    for normalizer in [
        PLAIN | {"strip_accents": None, "lowercase": True},
        PLAIN | {"strip_accents": False, "lowercase": True},
        PLAIN | {"strip_accents": True, "lowercase": False},
        LOWER,
        {"type": "Sequence", "normalizers": [PLAIN | {"strip_accents": False, "lowercase": False}, LOWER]},
        {"type": "NFD"},
    ]:
        with subtests.test(normalizer=normalizer):
            path = edited(vocabulary, write, lambda content, new=normalizer: content.update(normalizer=new))
            with fails(CheckpointError, path):
                open_wordpiece(path)


def test_truncation_and_padding_saved_with_a_tokenizer_do_not_count(vocabulary: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    text = "한국은행은 기준금리를 올렸다"
    expected = encode(tokenizer, text)
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=40)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert documents_of(EojeolTokenizer(tmp_path / "tokenizer.json").encode([text])) == [expected]


# ---- a corpus in shards ----


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.arrow"))}


def test_an_interrupted_tokenisation_is_completed_with_the_same_bytes(
    corpus: Path, vocabulary: Path, tmp_path: Path
) -> None:
    tokenizer_json = vocabulary / "tokenizer.json"
    tokens, digest = tokenize_corpus(corpus, tokenizer_json, tmp_path)
    before = bytes_of(tmp_path)
    assert len(before) == len(tokens.shards) == 4
    for name in list(before)[1:3]:
        (tmp_path / name).unlink()
    kept = tmp_path / next(iter(before))
    modified_ns = kept.stat().st_mtime_ns
    again, same_digest = tokenize_corpus(corpus, tokenizer_json, tmp_path)
    assert bytes_of(tmp_path) == before
    assert kept.stat().st_mtime_ns == modified_ns
    assert same_digest == digest
    assert [documents_of(shard) for shard in again.shards] == [documents_of(shard) for shard in tokens.shards]


def test_a_corpus_is_its_titles_and_texts(corpus: Path, vocabulary: Path, tmp_path: Path, whole: Tokenizer) -> None:
    tokens, digest = tokenize_corpus(corpus, vocabulary / "tokenizer.json", tmp_path)
    held_out, other = tokenize_corpus(corpus, vocabulary / "tokenizer.json", tmp_path, split="held-out")
    assert digest != other
    for name, shards in (("documents", tokens.shards), ("held-out", held_out.shards)):
        records = [
            json.loads(line)
            for path in sorted(corpus.glob(f"{name}-*.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        expected = [encode(whole, f"{record['title']}\n{record['text']}") for record in records]
        assert [ids for shard in shards for ids in documents_of(shard)] == expected
    assert sum(len(shard.ids.values) for shard in tokens.shards) == sum(
        len(ids) for shard in tokens.shards for ids in documents_of(shard)
    )
    assert len(tokens) + len(held_out) == 120


def test_a_damaged_shard_is_an_error(corpus: Path, vocabulary: Path, tmp_path: Path, fails: Fails) -> None:
    tokenize_corpus(corpus, vocabulary / "tokenizer.json", tmp_path)
    shard = sorted(tmp_path.rglob("*.arrow"))[1]
    os.truncate(shard, shard.stat().st_size // 2)
    with fails(CheckpointError, shard, "damaged", "delete it"):
        tokenize_corpus(corpus, vocabulary / "tokenizer.json", tmp_path)


def test_a_file_is_a_corpus_without_held_out_documents(vocabulary: Path, tmp_path: Path, write: Write) -> None:
    path = write("news.txt", "첫 기사.\n\n둘째 기사.")
    assert len(tokenize_corpus(path, vocabulary / "tokenizer.json", tmp_path)[0]) == 2
    assert len(tokenize_corpus(path, vocabulary / "tokenizer.json", tmp_path, split="held-out")[0]) == 0


def test_a_corpus_without_a_token_is_an_error(vocabulary: Path, tmp_path: Path, write: Write, fails: Fails) -> None:
    path = write("news.txt", "\u200b\n\n\ufeff\n")
    with fails(DataError, path, "contains no text"):
        tokenize_corpus(path, vocabulary / "tokenizer.json", tmp_path)


def test_other_text_another_vocabulary_or_split_has_other_shards(
    vocabulary: Path, tmp_path: Path, write: Write
) -> None:
    other = tmp_path / "other.json"
    shutil.copy(vocabulary / "tokenizer.json", other)
    with other.open("a") as file:
        file.write("\n")
    digests = set()
    for content in ("첫 기사.", "첫 기사!"):
        path = write("news.txt", content)
        for tokenizer_json in (vocabulary / "tokenizer.json", other):
            digests |= {
                tokenize_corpus(path, tokenizer_json, tmp_path, split=split)[1] for split in ("train", "held-out")
            }
    assert len(digests) >= 6  # no held-out text is the same text for both files
    assert len(list(tmp_path.glob("tokens-train-*"))) == 4


def test_a_replaced_vocabulary_is_read_again(vocabulary: Path, tmp_path: Path, write: Write, whole: Tokenizer) -> None:
    path, tokenizer_json = write("news.txt", "한국은행"), tmp_path / "tokenizer.json"
    shutil.copy(vocabulary / "tokenizer.json", tokenizer_json)
    first, _ = tokenize_corpus(path, tokenizer_json, tmp_path)
    assert documents_of(first.shards[0]) == [encode(whole, "한국은행")]
    pieces = {piece: id_ for id_, piece in enumerate([*SPECIAL_TOKENS, "한국은행"])}
    tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(tokenizer_json))
    second, _ = tokenize_corpus(path, tokenizer_json, tmp_path)
    assert documents_of(second.shards[0]) == [[5]]
