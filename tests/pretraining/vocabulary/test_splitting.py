"""Rules of tokenizers: what an unknown character and a long word cost, composed Hangul, and what stays as it was."""

import json
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

from pretraining.vocabulary.splitting import add_rules, character_class, stands_alone
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS, TOKENIZER_FILE, save_tokenizer
from pretraining.vocabulary.wordpiece import train_wordpiece

PIECES = (
    "정말",
    "정",
    "말",
    "좋아",
    "##좋",
    "##아",
    "##요",
    "##말",
    "좋",
    "아",
    "요",
    "1",
    "##1",
    "㎢",
    "大",
    ".",
    "ㅋ",
    "##ㅋ",
)
UNKNOWN = (
    "😀",
    "👍🏽",
    "👨\u200d👩\u200d👧",
    "🇰🇷",
    "❤\ufe0f",
    "🏳\ufe0f\u200d🌈",
    "🏴\U000e0067\U000e0062\U000e007f",
    "뷁",
    "\u1100\u1100",
    "℃",
    "あ",
    "\U00020000",
    "\u0301",
)


def wordpiece(pieces: Sequence[str] = PIECES, *, uncased: bool = False) -> Tokenizer:
    vocab = {piece: k for k, piece in enumerate([*SPECIAL_TOKENS, *pieces])}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=uncased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def with_rules(tokenizer: Tokenizer) -> Tokenizer:
    add_rules(tokenizer)
    return tokenizer


def test_an_unknown_character_costs_only_itself(subtests: pytest.Subtests) -> None:
    tokenizer = with_rules(wordpiece())
    for unknown in UNKNOWN:
        for text in (f"좋아요{unknown}", f"{unknown}좋아요", f"정말{unknown}좋아요.{unknown}", unknown * 3 + "좋아요"):
            with subtests.test(unknown=unknown, text=text):
                encoded = tokenizer.encode(text)
                known = [token for token in encoded.tokens if token != "[UNK]"]
                assert known == wordpiece().encode(text.replace(unknown, " ")).tokens
                assert "[UNK]" in encoded.tokens
                covered = [text[start:end] for start, end in encoded.offsets]
                assert all(c in unknown * 3 for t, c in zip(encoded.tokens, covered, strict=True) if t == "[UNK]")
                assert [c for t, c in zip(encoded.tokens, covered, strict=True) if t != "[UNK]"] == [
                    token.removeprefix("##") for token in known
                ]


def test_a_keycap_and_a_variation_selector_leave_the_character_before_them(subtests: pytest.Subtests) -> None:
    for text, expected in {
        "1\ufe0f\u20e3요": ["1", "[UNK]", "요"],
        "㎢\ufe0f": ["㎢"],
        "좋아\ufe0e요": ["좋아", "요"],
        "11㎢": ["1", "##1", "㎢"],
        "11㎢㎢요": ["1", "##1", "㎢", "㎢", "##요"],
        "좋大아": ["좋", "大", "아"],
    }.items():
        with subtests.test(text=text):
            assert with_rules(wordpiece()).encode(text).tokens == expected


def test_a_selector_of_the_vocabulary_is_kept() -> None:
    assert with_rules(wordpiece([*PIECES, "##\ufe0f"])).encode("ㅋ\ufe0f").tokens == ["ㅋ", "##\ufe0f"]


def test_a_long_word_is_cut_and_a_text_with_marks_is_not(subtests: pytest.Subtests) -> None:
    tokenizer = with_rules(wordpiece())
    for text, lengths in {
        "ㅋ" * 100: [100],
        "ㅋ" * 250: [100, 100, 50],
        "요 " + "ㅋ" * 101: [1, 100, 1],
        "ㅋ" * 60 + "." + "요" * 60: [60, 1, 60],
        "ㅋ" * 150 + "." + "요" * 101: [100, 50, 1, 100, 1],
        "😀" + "ㅋ" * 120: [1, 100, 20],
        "ㅋ" * 50 + "뷁" + "ㅋ" * 120: [50, 1, 100, 20],
        "뷁" * 300 + "ㅋ": [300, 1],
    }.items():
        with subtests.test(text=text):
            words = tokenizer.pre_tokenizer.pre_tokenize_str(text)
            assert [len(word) for word, _ in words] == lengths
            assert tokenizer.encode(text).tokens.count("[UNK]") == sum(word[0] in "😀뷁" for word, _ in words)


@settings(max_examples=200)
@given(st.text(st.sampled_from("정말좋아요1㎢大.ㅋ뷁😀 \u200d\ufe0fAe"), max_size=60))
def test_words_that_are_known_have_the_same_tokens_as_without_the_rules(text: str) -> None:
    before, after = wordpiece().encode(text), with_rules(wordpiece()).encode(text)
    if "[UNK]" not in before.tokens:
        assert after.tokens == before.tokens
    assert after.tokens.count("[PAD]") == 0
    kept = [token for token in before.tokens if token != "[UNK]"]
    rest = iter(after.tokens)
    assert all(token in rest for token in kept)  # in the same order


def test_decomposed_text_has_the_tokens_of_composed_text() -> None:
    tokenizer = with_rules(wordpiece())
    text = "정말 좋아요😀"
    encoded = tokenizer.encode(unicodedata.normalize("NFD", text))
    assert encoded.tokens == tokenizer.encode(text).tokens == ["정말", "좋아", "##요", "[UNK]"]


def test_a_vocabulary_of_decomposed_hangul_gets_decomposed_text(subtests: pytest.Subtests) -> None:
    jamo = unicodedata.normalize("NFD", "정말좋아요")
    pieces = [jamo[0], *(f"##{character}" for character in jamo[1:]), "k", "##k"]
    for uncased in (False, True):
        for text in ("정말", unicodedata.normalize("NFD", "정말")):
            with subtests.test(uncased=uncased, text=text):
                tokens = with_rules(wordpiece(pieces, uncased=uncased)).encode(text).tokens
                assert "".join(token.removeprefix("##") for token in tokens) == unicodedata.normalize("NFD", "정말")


def test_the_rules_are_added_once_also_to_a_vocabulary_with_an_empty_line() -> None:
    tokenizer = with_rules(wordpiece([*PIECES, ""]))
    content = tokenizer.to_str()
    assert with_rules(tokenizer).to_str() == content
    assert with_rules(Tokenizer.from_str(content)).to_str() == content
    steps = json.loads(content)["normalizer"]["normalizers"]
    assert [step["type"] for step in steps] == ["NFC", "BertNormalizer"]


def test_plain_transformers_reads_a_saved_tokenizer_with_the_rules(tmp_path: Path, subtests: pytest.Subtests) -> None:
    trained = train_wordpiece(["정말 좋아요. 좋은 말, 좋은 요리 大學"] * 3, 100)
    save_tokenizer(trained, tmp_path)
    plain, backend = AutoTokenizer.from_pretrained(tmp_path), Tokenizer.from_file(str(tmp_path / TOKENIZER_FILE))
    for text in ("정말좋아요😀", unicodedata.normalize("NFD", "좋은 말"), "좋은" * 90, "좋은👨\u200d👩\u200d👧말"):
        with subtests.test(text=text):
            expected = trained.tokenize(text)
            assert plain.tokenize(text) == backend.encode(text, add_special_tokens=False).tokens == expected
            assert set(expected) - {"[UNK]"}
    assert plain("가", "나")["token_type_ids"] == trained("가", "나")["token_type_ids"]


def test_other_kinds_of_tokenizers_only_compose() -> None:
    tokenizer = Tokenizer(models.BPE({"각": 0, "[UNK]": 1}, [], unk_token="[UNK]"))
    add_rules(tokenizer)
    assert tokenizer.pre_tokenizer is None
    assert tokenizer.encode(unicodedata.normalize("NFD", "각")).tokens == ["각"]


def test_characters_that_stand_alone_are_those_that_bert_splits_off() -> None:
    bert = normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer()
    differing = []
    # The marks from U+2E43 on are younger than the library's tables.
    for point in (*range(0x21, 0x7F), *range(0xA1, 0x2E43, 7), *range(0x3000, 0xD7A4, 37), *range(0xF900, 0xFFEF, 5)):
        text = bert[0].normalize_str(f"가{chr(point)}나")
        if chr(point) in text and unicodedata.category(chr(point)) not in ("Zs", "Cn"):
            splits = len(bert[1].pre_tokenize_str(text)) == 3
            differing += [chr(point)] if splits != stands_alone(chr(point)) else []
    assert differing == []


def test_a_class_of_characters_holds_these_and_no_others() -> None:
    find: Callable[[str], list[str]] = lambda text: [  # noqa: E731
        word for word, _ in pre_tokenizers.Split(_pattern("]^-a가\\"), "removed").pre_tokenize_str(text)
    ]
    assert find("x]y^z-a\\b가나") == ["x", "y", "z", "b", "나"]


def _pattern(characters: str) -> object:
    from tokenizers import Regex

    return Regex(f"[{character_class(characters)}]+")
