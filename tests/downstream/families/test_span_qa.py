"""Span question answering: windows, labels and answers as exact slices, with tokenizers built on the spot."""

import string
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertTokenizer, PreTrainedTokenizerFast

from downstream.families.span_qa import SpanQA
from downstream.metrics import FloatArray
from downstream.task import Answer, Features, QuestionExample, get_task
from pretraining.vocabulary.splitting import add_rules

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LONG = "0123456789 " * 60
"""600 tokens of one character each, in words short enough for WordPiece (100 characters)."""
FAMILY = SpanQA(has_unanswerable=True, max_answer_length=50)


def tokenizer_of(pieces: Iterable[str]) -> BertTokenizer:
    """Build a cased WordPiece tokenizer that knows PIECES at the start of a word and inside it."""
    known = [*SPECIAL, *(mark + piece for piece in sorted(set(pieces)) for mark in ("", "##"))]
    return BertTokenizer(vocab={piece: k for k, piece in enumerate(known)}, do_lower_case=False)


def ask(context: str, answer: str = "", *, question: str = "12", start: int | None = None) -> QuestionExample:
    start = context.find(answer) if start is None else start
    return QuestionExample("q", question, context, (Answer(answer, start),) if answer else ())


def featurize(
    examples: Sequence[QuestionExample], tokenizer: BertTokenizer, max_length: int, family: SpanQA = FAMILY
) -> list[Features]:
    return family.featurize(examples, tokenizer, max_length, with_labels=True)


def one_hot(features: Iterable[Features]) -> list[FloatArray]:
    """Return the scores (2, T) of a model that is sure of every window's labels."""
    outputs = []
    for feature in features:
        scores = np.zeros((2, len(feature["input_ids"])))
        scores[0, feature["start_positions"]] = scores[1, feature["end_positions"]] = 1
        outputs.append(scores)
    return outputs


def labelled_slice(feature: Features, context: str) -> str | None:
    """Return the text under a window's labels; None where they point at [CLS]."""
    first, last = feature["_offsets"][feature["start_positions"]], feature["_offsets"][feature["end_positions"]]
    return None if first is None else context[first[0] : last[1]]


def every_character(context: str) -> set[tuple[int, int]]:
    return {(k, k + 1) for k, character in enumerate(context) if not character.isspace()}


# --- windows --------------------------------------------------------------------------------------------------------


def test_windows_cover_every_token_of_the_context_and_overlap_by_the_stride(subtests: pytest.Subtests) -> None:
    for max_length, stride in (
        (96, 10),
        (128, 30),
        (384, 128),
    ):
        with subtests.test(max_length=max_length, stride=stride):
            tokenizer = tokenizer_of(string.digits)
            family = SpanQA(has_unanswerable=False, stride=stride)
            features = featurize([ask(LONG), ask("34")], tokenizer, max_length, family)
            windows: dict[int, list[list[tuple[int, int]]]] = defaultdict(list)
            for feature in features:
                assert len(feature["input_ids"]) == len(feature["_offsets"]) <= max_length
                assert tokenizer.decode(feature["input_ids"][:4]).replace(" ", "") == "[CLS]12[SEP]"
                windows[feature["_example"]].append([span for span in feature["_offsets"] if span is not None])
            assert windows[1] == [[(0, 1), (1, 2)]]
            assert {span for window in windows[0] for span in window} == every_character(LONG)
            assert len(windows[0]) > 1
            assert {len(set(window) & set(after)) for window, after in pairwise(windows[0])} == {stride}


def test_a_long_question_keeps_its_first_tokens_and_the_context_all_of_its_own() -> None:
    question = "9" * 40 + " " + "8" * 60
    features = featurize([ask("1234567890", "456", question=question)], tokenizer_of(string.digits), 128)
    tokens = tokenizer_of(string.digits).convert_ids_to_tokens(features[0]["input_ids"])
    assert len(features) == 1
    assert "".join(tokens).replace("##", "") == "[CLS]" + "9" * 40 + "8" * 24 + "[SEP]1234567890[SEP]"
    assert labelled_slice(features[0], "1234567890") == "456"


def test_a_long_question_leaves_the_context_room_in_short_inputs_too(subtests: pytest.Subtests) -> None:
    for max_length in (
        32,
        64,
        68,
        80,
    ):
        with subtests.test(max_length=max_length):
            features = featurize([ask(LONG, question="9" * 100)], tokenizer_of(string.digits), max_length)
            covered = {span for feature in features for span in feature["_offsets"] if span is not None}
            assert covered == every_character(LONG)
            assert max(len(feature["input_ids"]) for feature in features) <= max_length


def test_what_a_model_does_not_take_begins_with_an_underscore() -> None:
    taken = {"input_ids", "token_type_ids", "attention_mask", "start_positions", "end_positions"}
    feature = featurize([ask("123", "2")], tokenizer_of(string.digits), 96)[0]
    assert {key for key in feature if not key.startswith("_")} == taken
    unlabelled = FAMILY.featurize([ask("123", "2")], tokenizer_of(string.digits), 96, with_labels=False)[0]
    assert not {"start_positions", "end_positions"} & set(unlabelled)


# --- labels ---------------------------------------------------------------------------------------------------------


def test_labels_are_the_tokens_that_cover_the_gold(subtests: pytest.Subtests) -> None:
    for answer, slice_ in (
        ("서울", "서울"),
        ("울은", "서울은"),
        ("대한", "대한"),
        ("한민", "대한민국"),
        ("서울은 대한", "서울은 대한"),
    ):
        with subtests.test(answer=answer, slice_=slice_):
            context = "그런데 서울은 대한민국 수도"
            tokenizer = tokenizer_of(["그런데", "서울", "은", "대한", "민국", "수도"])
            (feature,) = featurize([ask(context, answer)], tokenizer, 96)
            assert labelled_slice(feature, context) == slice_


def test_a_gold_with_blanks_at_its_edges_is_labelled_all_the_same(subtests: pytest.Subtests) -> None:
    """Three golds of KorQuAD dev end in a blank, e.g. `가브리엘의 집 `."""
    for answer, start in (
        ("나다 ", 1),
        (" 나다", 0),
        (" 나다 ", 0),
    ):
        with subtests.test(answer=answer, start=start):
            (feature,) = featurize([ask(" 나다 라", answer, start=start)], tokenizer_of("나다라"), 96)
            assert labelled_slice(feature, " 나다 라") == "나다"


def test_a_gold_is_labelled_from_its_first_to_its_last_token(subtests: pytest.Subtests) -> None:
    """Characters that the tokenizer drops are no part of a label, wherever they stand."""
    tokenizer = tokenizer_of("가나다라")
    add_rules(tokenizer.backend_tokenizer)
    for dropped in ("\u200b", "\u200e", "\ufeff", "\u00ad", "\x08", "\u3000", "\n\u200b "):
        for answer in (
            f"{dropped}나다",
            f"나다{dropped}",
            f"{dropped}나{dropped}다{dropped}{dropped}",
            f"{dropped}나다\U0001f600",
        ):
            for before in ("", "가 "):
                with subtests.test(answer=answer, before=before):
                    context = f"{before}{answer} 라"
                    (feature,) = featurize([ask(context, answer, start=len(before))], tokenizer, 96)
                    assert labelled_slice(feature, context) == answer.strip(dropped)


def test_offsets_are_those_of_the_context_as_it_was_given() -> None:
    tokenizer = tokenizer_of("가강나남")
    add_rules(tokenizer.backend_tokenizer)
    context, answer = (unicodedata.normalize("NFD", text) for text in ("가 강남 나", "강남"))
    (feature,) = featurize([ask(context, answer)], tokenizer, 96)
    assert labelled_slice(feature, context) == answer
    assert FAMILY.decode(one_hot([feature]), [feature], [ask(context)]) == [answer]


def test_a_gold_without_a_token_is_no_answer() -> None:
    (feature,) = featurize([ask("가\u200b 나", "\u200b")], tokenizer_of("가나"), 96)
    assert labelled_slice(feature, "가\u200b 나") is None


def test_a_window_that_ends_inside_a_trimmed_gold_points_at_cls() -> None:
    context = "0 " * 20 + "\u200b1 2 3\u200b" + " 0" * 20
    features = featurize([ask(context, "\u200b1 2 3\u200b")], tokenizer_of(string.digits), 20)
    assert len(features) > 2
    assert {labelled_slice(feature, context) for feature in features} == {None, "1 2 3"}


def test_the_first_gold_of_several_is_the_label() -> None:
    example = QuestionExample("q", "1", "한 달가량", (Answer("한 달", 0), Answer("한 달가량", 0)))
    (feature,) = featurize([example], tokenizer_of("한달가량1"), 96)
    assert labelled_slice(feature, example.context) == "한 달"


def test_a_window_that_cuts_the_gold_points_at_cls(subtests: pytest.Subtests) -> None:
    """91 tokens of the context fit in a window; the gold is its tokens 85 to 104."""
    for stride, labels in (
        (14, [None, "1" * 20]),
        (0, [None, None]),
    ):
        with subtests.test(stride=stride, labels=labels):
            context = "00000 " * 17 + "1" * 20
            family = SpanQA(has_unanswerable=False, stride=stride)
            features = featurize([ask(context, "1" * 20)], tokenizer_of("012"), 96, family)
            assert [labelled_slice(feature, context) for feature in features] == labels
            assert (features[0]["start_positions"], features[0]["end_positions"]) == (0, 0)


# --- answers --------------------------------------------------------------------------------------------------------


def test_gold_token_scores_give_every_sample_answer_exactly(subtests: pytest.Subtests) -> None:
    for name in (
        "korquad-sample",
        "klue-mrc-sample",
    ):
        with subtests.test(name=name):
            task = get_task(name)
            examples = [example for split in task.files for example in task.read_split(split, Path()).examples]
            tokenizer = tokenizer_of(
                c for example in examples for c in example.context + example.question if not c.isspace()
            )
            features = featurize(examples, tokenizer, 384)
            assert tokenizer.unk_token_id not in {token for feature in features for token in feature["input_ids"]}
            assert len(features) > len(examples)
            family = SpanQA(has_unanswerable=task.base == "klue-mrc", max_answer_length=FAMILY.max_answer_length)
            assert family.decode(one_hot(features), features, examples) == [example.gold[0] for example in examples]


def test_an_answer_in_the_second_window_beats_the_null_and_the_lesser_spans_of_the_first() -> None:
    example = ask("00000 " * 20 + "12345" + " 00000" * 4, "234")
    features = featurize([example], tokenizer_of(string.digits), 96)
    assert [labelled_slice(feature, example.context) for feature in features] == [None, "234"]
    outputs = one_hot(features)
    outputs[0][:, 10] = 0.9
    assert FAMILY.decode(outputs, features, [example]) == ["234"]


def decode_scores(family: SpanQA, context: str, starts: dict[int, float], ends: dict[int, float]) -> object:
    """Decode one window of the context `0123456789…` under scores by context position; -1 stands for [CLS]."""
    example = ask(context)
    (feature,) = featurize([example], tokenizer_of(string.digits), 96, family)
    scores = np.zeros((2, len(feature["input_ids"]) + 5))  # the batch is padded on the right
    first = next(k for k, span in enumerate(feature["_offsets"]) if span is not None)
    for row, given in enumerate((starts, ends)):
        for position, score in given.items():
            scores[row, 0 if position == -1 else first + position] = score
    return family.decode([scores], [feature], [example])[0]


def test_the_best_allowed_span_is_the_answer(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[int, float], dict[int, float], str]] = [
        ({2: 1}, {4: 1}, "234"),
        ({2: 1}, {2: 1}, "2"),
        ({4: 3}, {2: 3, 5: 1}, "45"),  # an end before its start is no span
        ({0: 3, 5: 1}, {9: 3}, "56789"),  # a span of ten is too long for a family of five
        ({2: 1, -3: 9}, {4: 1, -3: 9}, "234"),  # the question's tokens are no answer
        ({2: 1}, {4: 1, 12: 9}, "234"),  # nor is padding
        ({2: 1, -1: 0.9}, {4: 1, -1: 1}, "234"),
        ({2: 1, -1: 1}, {4: 1, -1: 1}, "234"),  # a tie is no reason to be silent
        ({2: 1, -1: 1.1}, {4: 1, -1: 1}, ""),
    ]
    for starts, ends, answer in cases:
        with subtests.test(starts=starts, ends=ends, answer=answer):
            family = SpanQA(has_unanswerable=True, max_answer_length=5)
            assert decode_scores(family, string.digits, starts, ends) == answer


def test_a_task_without_unanswerable_questions_always_answers() -> None:
    silent = {-1: 9.0}
    assert decode_scores(SpanQA(has_unanswerable=False), "0123", silent | {1: 0.1}, silent | {2: 0.1}) == "12"


def test_the_null_score_of_an_example_is_its_lowest_over_the_windows() -> None:
    """One window that is sure of the answer outweighs all windows that rightly do not see it."""
    example = ask("00000 " * 40 + "1", "1")
    features = featurize([example], tokenizer_of(string.digits), 96)
    outputs = one_hot(features)
    for scores in outputs[:-1]:
        scores[:, 0] = 50
    assert FAMILY.decode(outputs, features, [example]) == ["1"]
    outputs[-1][:, 0] = 49
    assert FAMILY.decode(outputs, features, [example]) == [""]


def test_answers_keep_the_blanks_and_line_breaks_of_the_context() -> None:
    context = "가나  다\n라 마"
    (feature,) = featurize([ask(context, "나  다\n라")], tokenizer_of("가나다라마12"), 96)
    assert FAMILY.decode(one_hot([feature]), [feature], [ask(context)]) == ["나  다\n라"]


def test_an_answer_inside_a_white_space_word_is_not_stretched_to_the_word() -> None:
    """The trap of KoBERT's published 16.85 EM: joined tokens give `서울에서는`, offsets give `서울`."""
    context = "그는 서울에서는 살았다"
    (feature,) = featurize([ask(context, "서울")], tokenizer_of(["그는", "서울", "에서는", "살았다"]), 96)
    assert FAMILY.decode(one_hot([feature]), [feature], [ask(context)]) == ["서울"]


def test_the_blank_that_sentencepiece_counts_to_a_piece_is_no_part_of_an_answer() -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁어디?", "그는", "▁서울", "▁산다"]
    backend = Tokenizer(models.WordLevel({piece: k for k, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="[CLS]", pad_token="[PAD]")
    example = ask("그는 서울 산다", "서울", question="어디?")
    features = FAMILY.featurize([example], tokenizer, 96, with_labels=True)
    assert "▁서울" in backend.encode(example.context).tokens
    assert FAMILY.decode(one_hot(features), features, [example]) == ["서울"]


def test_examples_are_answered_in_order_whatever_their_windows() -> None:
    examples = [ask("00000 " * 30 + "9", "9"), ask("8"), ask("7", "7"), ask("00000 " * 30 + "6", "6")]
    features = featurize(examples, tokenizer_of(string.digits), 96)
    assert FAMILY.decode(one_hot(features), features, examples) == ["9", "", "7", "6"]
