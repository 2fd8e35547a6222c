"""Answers with their place, and refusals."""

import unicodedata
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import SAMPLE_ROOT
from corpora.sentences import split_article
from downstream.answer import Reader, SentenceFinder
from downstream.encoders.folder import TASK_KEY
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.families.span_qa import SpanQA
from downstream.runtimes.predictor import Predictor
from downstream.task import get_task
from pretraining.vocabulary.tokenizer import save_tokenizer

PASSAGE = "금리는 3.5%다. 물가는 2.1% 올랐다. 금리는 3.5%다."


class ScriptedPredictor:
    """Scores the words of a passage as a test says; a feature is the whole passage, a token a word behind [CLS]."""

    def __init__(self, family: SpanQA, null: float, starts: dict[int, float], ends: dict[int, float]) -> None:
        self.finetuned = SimpleNamespace(family=family, task=get_task("klue-mrc"), folder=Path("model"))
        self._null, self._starts, self._ends = null, starts, ends

    def outputs(self, examples: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        [example] = examples
        spans: list[tuple[int, int] | None] = [None]
        for word in example.context.split():
            last = spans[-1]
            start = example.context.index(word, last[1] if last else 0)
            spans.append((start, start + len(word)))
        row = np.full((2, len(spans)), -10.0)
        row[:, 0] = self._null / 2
        for side, scores in enumerate((self._starts, self._ends)):
            for place, score in scores.items():
                row[side, place] = score
        return [row], [{"_example": 0, "_offsets": spans, "input_ids": list(range(len(spans)))}]


def scripted(*, can_refuse: bool, null: float, starts: dict[int, float], ends: dict[int, float]) -> Reader:
    return Reader(cast(Predictor, ScriptedPredictor(SpanQA(can_refuse), null, starts, ends)))


def test_the_place_is_that_of_the_chosen_span_and_not_of_its_first_double() -> None:
    found = scripted(can_refuse=True, null=0, starts={7: 4}, ends={7: 4}).answer("금리는?", PASSAGE)
    assert (found.text, found.start) == ("3.5%다.", PASSAGE.rindex("3.5%다."))
    assert PASSAGE[found.start : found.end] == found.text
    assert found.confidence == pytest.approx(1 / (1 + np.exp(-8)))


def test_no_answer_is_told_where_the_model_can_refuse() -> None:
    scores: Any = {"null": 9, "starts": {2: 4}, "ends": {2: 4}}
    refused = scripted(can_refuse=True, **scores).answer("환율은?", PASSAGE)
    assert (refused.is_answered, refused.text) == (False, "")
    assert refused.confidence < 0.5
    assert scripted(can_refuse=False, **scores).answer("환율은?", PASSAGE).text == "3.5%다."


def test_a_blank_question_is_refused() -> None:
    for reader in (scripted(can_refuse=True, null=0, starts={}, ends={}), SentenceFinder()):
        with pytest.raises(ValueError, match="blank"):
            reader.answer(" ", PASSAGE)
        with pytest.raises(ValueError, match="blank"):
            reader.answer("금리는?", "\n")


# --- without a model --------------------------------------------------------------------------------------------------


def test_rare_letters_of_a_question_find_the_sentence() -> None:
    """By hand: of the pairs 올해, 해물 and 물가 the second sentence has 물가 alone, the first and third have 올해."""
    passage = "올해는 덥다. 물가가 뛰었다. 올해도 춥다."
    found = SentenceFinder().answer("올해 물가", passage)
    assert (found.text, passage[found.start : found.end]) == ("물가가 뛰었다.", "물가가 뛰었다.")
    weights = {"올해": np.log(1 + 3 / 2), "해물": np.log(1 + 3), "물가": np.log(1 + 3)}
    assert found.confidence == pytest.approx(weights["물가"] / sum(weights.values()))


def test_a_question_that_shares_nothing_has_no_sentence() -> None:
    found = SentenceFinder().answer("Why?", PASSAGE)
    assert (found.is_answered, found.text, found.confidence) == (False, "", 0.0)
    assert not SentenceFinder().answer("왜", PASSAGE).is_answered


@pytest.mark.real_data
def test_most_answers_of_korquad_stand_in_the_sentence_found(real_data: Path) -> None:
    """83 of 100; a sentence taken at random holds the answer 17 times."""
    examples = get_task("korquad").read_split("dev", real_data).examples
    finder = SentenceFinder()
    hits = chance = 0.0
    for example in examples:
        found = finder.answer(example.question, example.context)
        hits += any(found.start <= answer.start < found.end for answer in example.answers)
        chance += 1 / len(split_article(example.context))
    assert hits / len(examples) == pytest.approx(0.835, abs=0.01)
    assert chance / len(examples) == pytest.approx(0.175, abs=0.01)


@pytest.fixture(scope="module")
def save(standins: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def save_model(task_name: str) -> Path:
        task, out = get_task(task_name), tmp_path_factory.mktemp("answer") / task_name
        tokenizer = load_tokenizer(standins["klue-bert"])
        torch.manual_seed(3)
        model = load_model(standins["klue-bert"], tokenizer, task.family.auto_class, task.family.head_config())
        setattr(model.config, TASK_KEY, task.name)
        model.save_pretrained(out)
        save_tokenizer(tokenizer, out)
        return out

    return save_model


def test_a_real_model_answers_as_its_predictor_does(save: Callable[[str], Path]) -> None:
    folder = save("korquad-sample")
    examples = get_task("korquad-sample").read_split("dev", SAMPLE_ROOT).examples[:4]
    reader = Reader.load(folder)
    for example, expected in zip(examples, reader.predictor.predict(examples), strict=True):
        found = reader.answer(example.question, example.context)
        assert found.text == expected == example.context[found.start : found.end]


def test_a_classifier_is_refused(
    save: Callable[[str], Path], fails: Callable[..., AbstractContextManager[None]]
) -> None:
    folder = save("nsmc-sample")
    with fails(CheckpointError, folder, "answers no questions"):
        Reader.load(folder)


def test_decomposed_hangul_has_the_same_answer_at_its_own_offsets() -> None:
    passage = "다리는 어제 열렸다. 시장은 버스를 늘린다고 말했다."
    found = SentenceFinder().answer("시장은 무엇을 늘리나?", passage)
    source = unicodedata.normalize("NFD", passage)
    same = SentenceFinder().answer(unicodedata.normalize("NFD", "시장은 무엇을 늘리나?"), source)
    assert source[same.start : same.end] == same.text == unicodedata.normalize("NFD", found.text)
    assert same.confidence == found.confidence
