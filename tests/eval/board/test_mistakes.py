"""Mistakes are exactly the predictions that are not right, and belong to the data they were scored on."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from corpora.foundation.errors import ResultError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.finetuning.result import Result, score
from downstream.task import Split, get_task
from eval.board.mistakes import find_mistakes


def split_of(task_name: str) -> Split:
    task = get_task(task_name)
    return task.read_split(task.eval_split, SAMPLE_ROOT)


def scored(task_name: str, predictions: list[Any], *, model: str = "m", data: str = "") -> Result:
    split = split_of(task_name)
    return score(
        get_task(task_name),
        split,
        predictions,
        model=model,
        seed=0,
        data_sha256=data or f"train+{split.sha256}",
        recipe={},
        recipe_sha256="r",
        train_s=0,
        eval_s=0,
        device="cpu",
    )


def test_wrong_labels_are_mistakes_beside_the_other_model() -> None:
    right = split_of("nsmc-sample").golds
    turned = {"negative": "positive", "positive": "negative"}
    own = [turned[gold] if k in (3, 7) else gold for k, gold in enumerate(right)]
    other = [turned[gold] if k in (7, 9) else gold for k, gold in enumerate(right)]
    found = find_mistakes(scored("nsmc-sample", own), Path(), against=scored("nsmc-sample", other, model="n"))
    assert [(m.gold, m.prediction, m.other, m.is_other_right) for m in found] == [
        (right[3], own[3], right[3], True),
        (right[7], own[7], own[7], False),
    ]
    assert found[0].texts == (split_of("nsmc-sample").examples[3].text,)


def test_without_another_model_nothing_is_said_of_one() -> None:
    own = ["positive"] * len(split_of("nsmc-sample").golds)
    found = find_mistakes(scored("nsmc-sample", own), Path())
    assert len(found) == split_of("nsmc-sample").golds.count("negative")
    assert {(m.other, m.is_other_right) for m in found} == {("", None)}


def test_the_worst_answers_come_first_and_right_ones_not_at_all() -> None:
    right = [gold[0] for gold in split_of("korquad-sample").golds]
    half = right[1][: -(-len(right[1]) // 2)]
    found = find_mistakes(scored("korquad-sample", [right[0], half, "xyz", *right[3:]]), Path())
    assert [m.prediction for m in found] == ["xyz", half]
    assert found[0].quality == 0 < found[1].quality < 1
    example = split_of("korquad-sample").examples[2]
    assert found[0].texts == (example.question, example.context)


def test_scores_are_wrong_by_their_distance() -> None:
    right = split_of("klue-sts-sample").golds
    own = [gold + {2: -1.0, 5: -2.0, 6: 0.1}.get(k, 0.0) if gold >= 2 else gold for k, gold in enumerate(right)]
    expected = [k for k in (5, 2) if right[k] >= 2]
    found = find_mistakes(scored("klue-sts-sample", own), Path())
    assert [m.id for m in found] == [split_of("klue-sts-sample").examples[k].id for k in expected]


def test_a_cell_of_other_data_is_refused(fails: Callable[..., AbstractContextManager[None]]) -> None:
    cell = scored("nsmc-sample", list(split_of("nsmc-sample").golds), data="a+b")
    with fails(ResultError, "m on nsmc-sample", "other data"):
        find_mistakes(cell, Path())
