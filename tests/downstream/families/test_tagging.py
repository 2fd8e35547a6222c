"""Tagging: the characters of a token, windows, labels and tags, with tokenizers built in the tests."""

import string
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from corpora.foundation.errors import DataError
from downstream.encoders.tokenizers import load_tokenizer
from downstream.families.tagging import Tagging
from downstream.metrics import KLUE_NER_TAGS, FloatArray, char_macro_f1, entity_f1
from downstream.task import Features, TextExample, get_task
from pretraining.vocabulary.splitting import add_rules

Fails = Callable[..., AbstractContextManager[None]]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FAMILY = Tagging(tags=KLUE_NER_TAGS, stride=4)


def tokenizer_of(pieces: Iterable[str]) -> BertTokenizer:
    """Build a cased WordPiece tokenizer that knows PIECES at the start of a word and inside it."""
    known = [*SPECIAL, *(mark + piece for piece in sorted(set(pieces)) for mark in ("", "##"))]
    return BertTokenizer(vocab={piece: k for k, piece in enumerate(known)}, do_lower_case=False)


def tagged(text: str, tags: str) -> TextExample:
    """Return an example; TAGS has `o` for outside and otherwise the letters of a type, the first of them capital."""
    names = {"o": "O", "P": "B-PS", "p": "I-PS", "L": "B-LC", "l": "I-LC"}
    return TextExample("1", text, None, " ".join(names[letter] for letter in tags.replace(" ", "")))


def featurize(
    examples: Sequence[TextExample], tokenizer: PreTrainedTokenizerBase, max_length: int = 64
) -> list[Features]:
    return FAMILY.featurize(examples, tokenizer, max_length, with_labels=True)


def labels_of(feature: Features) -> list[str]:
    return [KLUE_NER_TAGS[k] for k in feature["labels"]]


def sure_of(feature: Features, tags: Sequence[str] | None = None) -> FloatArray:
    """Return the scores (T, C) of a model that is sure of TAGS, by default of the labels; the batch is padded."""
    ids = feature["labels"] if tags is None else [KLUE_NER_TAGS.index(tag) for tag in tags]
    scores = np.zeros((len(ids) + 3, len(KLUE_NER_TAGS)))
    scores[np.arange(len(ids)), ids] = 1
    scores[len(ids) :, 0] = 9
    return scores


# --- labels ---------------------------------------------------------------------------------------------------------


def test_a_token_is_trained_on_the_tag_of_its_first_character() -> None:
    tokenizer = tokenizer_of(["홍길", "동", "은", "서울", "시", "로"])
    (feature,) = featurize([tagged("홍길동은 서울시로", "Pppo Lllo")], tokenizer)
    tokens = tokenizer.convert_ids_to_tokens(feature["input_ids"])
    assert tokens == ["[CLS]", "홍길", "##동", "##은", "서울", "##시", "##로", "[SEP]"]
    assert labels_of(feature) == ["O", "B-PS", "I-PS", "O", "B-LC", "I-LC", "O", "O"]
    assert feature["_characters"] == [[], [0, 1], [2], [3], [4, 5], [6], [7], []]


def test_a_token_that_straddles_two_entities_is_trained_on_the_first() -> None:
    (feature,) = featurize([tagged("홍길동은", "PpLo")], tokenizer_of(["홍", "길동", "은"]))
    assert labels_of(feature)[1:-1] == ["B-PS", "I-PS", "O"]


def test_an_unknown_character_costs_no_other_character_its_tag(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, str, str]] = [
        ("뷁이 홍길동", "Po Ppp", "[UNK] 이 홍길 ##동", "B-PS O B-PS I-PS"),
        ("홍길(뷁)은 동", "PpoLoo P", "홍길 ( [UNK] ) 은 동", "B-PS O B-LC O O B-PS"),
        ("홍길동😀은", "Pppoo", "홍길 ##동 [UNK] 은", "B-PS I-PS O O"),
        ("👨‍👩홍길", "oooPp", "[UNK] 홍길", "O B-PS"),
    ]
    for text, tags, tokens, labels in cases:
        with subtests.test(text=text):
            tokenizer = tokenizer_of(["홍길", "동", "은", "이", "(", ")"])
            add_rules(tokenizer.backend_tokenizer)
            example = tagged(text, tags)
            (feature,) = featurize([example], tokenizer)
            assert " ".join(tokenizer.convert_ids_to_tokens(feature["input_ids"][1:-1])) == tokens
            assert " ".join(labels_of(feature)[1:-1]) == labels
            assert FAMILY.decode([sure_of(feature)], [feature], [example]) == [example.label]


def test_what_a_model_does_not_take_begins_with_an_underscore() -> None:
    feature = featurize([tagged("홍", "P")], tokenizer_of("홍"))[0]
    taken = {"input_ids", "token_type_ids", "attention_mask", "labels"}
    assert {key for key in feature if not key.startswith("_")} == taken
    unlabelled = FAMILY.featurize([tagged("홍", "P")], tokenizer_of("홍"), 64, with_labels=False)[0]
    assert "labels" not in unlabelled


def test_a_model_config_names_its_tags_in_klue_baselines_order() -> None:
    head = get_task("klue-ner").family.head_config()
    assert [head["id2label"][k] for k in (0, 1, 2, 4, 6, 8, 10, 12)] == [
        *("B-PS", "I-PS", "B-LC", "B-OG", "B-DT", "B-TI", "B-QT", "O")
    ]
    assert all(head["label2id"][tag] == k for k, tag in head["id2label"].items())


# --- tags of characters ---------------------------------------------------------------------------------------------


def test_the_first_character_keeps_the_tag_and_the_others_continue_it() -> None:
    example = tagged("홍길동은 서울시로", "oooo oooo")
    tokenizer = tokenizer_of(["홍길동", "은", "서울시", "로"])
    (feature,) = featurize([example], tokenizer)
    predicted = sure_of(feature, ["O", "B-PS", "O", "I-LC", "B-LC", "O"])
    assert FAMILY.decode([predicted], [feature], [example]) == ["B-PS I-PS I-PS O I-LC I-LC I-LC B-LC"]


def test_an_unknown_word_gives_its_tag_to_all_characters_it_hides() -> None:
    example = tagged("뷁뷁뷁은(홍)", "ooooooo")
    (feature,) = featurize([example], tokenizer_of("(홍)"))
    predicted = sure_of(feature, ["O", "B-PS", "O", "B-LC", "O", "O"])
    assert FAMILY.decode([predicted], [feature], [example]) == ["B-PS I-PS I-PS I-PS O B-LC O"]


def test_gold_tags_come_back_where_no_entity_ends_inside_a_token(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("홍길동은 서울로 갔다.", "Pppo Llo ooo"),
        ("뷁뷁 서울,부산을 봤다", "Pp LloLlo oo"),
        ("홍 ", "P"),
        (" 홍  길동", "P Pp"),
        ("서울", "Ll"),
        ("", ""),
    ]
    for text, tags in cases:
        with subtests.test(text=text, tags=tags):
            tokenizer = tokenizer_of(["홍", "길동", "은", "서울", "부산", "을", "로", "갔다", "봤다", ".", ","])
            example = tagged(text, tags)
            features = featurize([example], tokenizer)
            assert FAMILY.decode([sure_of(feature) for feature in features], features, [example]) == [example.label]


def test_an_entity_that_ends_inside_a_token_cannot_come_back() -> None:
    example = tagged("뷁이 홍길동", "Po Ppo")
    features = featurize([example], tokenizer_of(["홍", "길동"]))
    assert FAMILY.decode([sure_of(features[0])], features, [example]) == ["B-PS I-PS B-PS I-PS I-PS"]


def test_a_character_that_the_tokenizer_drops_is_outside() -> None:
    example = tagged("홍\u200b길 \u200b", "Ppp p")
    (feature,) = featurize([example], tokenizer_of(["홍", "길"]))
    assert feature["_characters"] == [[], [0], [2], []]
    assert FAMILY.decode([sure_of(feature)], [feature], [example]) == ["B-PS O I-PS O"]


def test_the_blank_that_sentencepiece_counts_to_a_piece_has_no_tag() -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "그는", "▁", "▁서울", "로"]
    backend = Tokenizer(models.Unigram([(piece, -float(k)) for k, piece in enumerate(pieces)], unk_id=1))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="[CLS]", pad_token="[PAD]")
    example = tagged("그는 서울로 로", "oo Llo o")
    (feature,) = featurize([example], tokenizer)
    assert backend.encode(example.text).tokens == ["[CLS]", "그는", "▁서울", "로", "▁", "로", "[SEP]"]
    assert feature["_characters"] == [[], [0, 1], [2, 3], [4], [], [5], []]
    assert labels_of(feature) == ["O", "O", "B-LC", "O", "O", "O", "O"]
    assert FAMILY.decode([sure_of(feature)], [feature], [example]) == [example.label]


def test_the_first_of_several_byte_pieces_speaks_for_their_character() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: k for k, piece in enumerate(["<s>", "</s>", "<pad>", *alphabet])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>")
    example = tagged("홍길", "PP")
    (feature,) = featurize([example], tokenizer)
    assert feature["_characters"] == [[0]] * 3 + [[1]] * 3
    predicted = sure_of(feature, ["B-PS", "O", "B-LC", "I-PS", "B-LC", "O"])
    assert FAMILY.decode([predicted], [feature], [example]) == ["B-PS I-PS"]


# --- windows --------------------------------------------------------------------------------------------------------

LONG = "0123456789 " * 40
"""400 tokens of one character each."""


def test_a_long_text_loses_nothing(subtests: pytest.Subtests) -> None:
    for max_length in (
        8,
        13,
        64,
        300,
    ):
        with subtests.test(max_length=max_length):
            tokenizer = tokenizer_of(string.digits)
            example = tagged(LONG, "oPpoLlloPo" * 40)
            features = featurize([tagged("1", "P"), example, tagged("22", "Ll")], tokenizer, max_length)
            assert max(len(feature["input_ids"]) for feature in features) <= max_length
            assert {p for f in features if f["_example"] == 1 for places in f["_characters"] for p in places} == set(
                range(400)
            )
            decoded = FAMILY.decode(
                [sure_of(f) for f in features], features, [tagged("1", "P"), example, tagged("22", "Ll")]
            )
            assert decoded == ["B-PS", example.label, "B-LC I-LC"]


def test_a_token_in_two_windows_is_read_where_it_has_more_context() -> None:
    """Windows of 10 tokens that overlap by 4: characters 0–9, 6–15, 12–19."""
    example = tagged("01234567890123456789", "o" * 20)
    features = featurize([example], tokenizer_of(string.digits), max_length=12)
    assert [(f["_characters"][1], f["_characters"][-2]) for f in features] == [([0], [9]), ([6], [15]), ([12], [19])]
    outputs = [sure_of(f, [tag] * len(f["labels"])) for f, tag in zip(features, ("B-PS", "B-LC", "B-OG"), strict=True)]
    (decoded,) = FAMILY.decode(outputs, features, [example])
    assert decoded.split() == ["B-PS"] * 8 + ["B-LC"] * 6 + ["B-OG"] * 6


def test_examples_are_tagged_in_order_whatever_their_windows() -> None:
    examples = [tagged("0" * 50, "P" * 50), tagged("1", "L"), tagged("2" * 30, "o" * 30), tagged("3", "P")]
    features = featurize(examples, tokenizer_of(string.digits), max_length=16)
    decoded = FAMILY.decode([sure_of(f) for f in features], features, examples)
    assert decoded == [example.label for example in examples]


# --- examples -------------------------------------------------------------------------------------------------------


def test_an_example_with_other_tags_than_characters_is_refused(fails: Fails, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, str]] = [
        ("홍길", "B-PS I-PER", "tag 'I-PER' is unknown; choose from: B-DT, B-LC"),
        ("홍 길", "B-PS", "1 tags for 2 characters"),
        ("홍 길", "B-PS O I-PS", "3 tags for 2 characters"),
        ("홍", "", "0 tags for 1 characters"),
    ]
    for text, label, what in cases:
        with subtests.test(text=text, label=label), fails(DataError, "file, example 1: ", what):
            FAMILY.check(TextExample("1", text, None, label), "file, example 1")


@pytest.mark.real_data
def test_kpfbert_tokens_can_tell_nearly_all_entities_of_klue_ner(real_data: Path) -> None:
    """A model that is sure of its labels loses entities that end inside a token."""
    examples = get_task("klue-ner").read_split("dev", real_data).examples
    family = get_task("klue-ner").family
    tokenizer = load_tokenizer(real_data / "kpfbert")
    features = family.featurize(examples, tokenizer, 510, with_labels=True)
    assert len(features) == len(examples)
    predictions = family.decode([sure_of(feature) for feature in features], features, examples)
    golds = [example.gold for example in examples]
    assert entity_f1(predictions, golds) == pytest.approx(0.984418, abs=1e-6)
    assert char_macro_f1(predictions, golds) == pytest.approx(0.998089, abs=1e-6)
    windows = family.featurize(examples, tokenizer, 32, with_labels=True)
    assert len(windows) > 1.3 * len(examples)
    assert family.decode([sure_of(window) for window in windows], windows, examples) == predictions
