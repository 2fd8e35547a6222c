"""The examples that a model got wrong, beside the predictions of another model.

    result = read_result(Path("reports/results/nsmc/tfidf/seed-0.json"))
    find_mistakes(result, data_root(None))

A prediction is wrong if `eval.board.disagreement.quality` is below `RIGHT`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.foundation.errors import ResultError
from downstream.finetuning.result import Result
from downstream.task import Prediction, QuestionExample, get_task
from eval.board.disagreement import RIGHT, quality


@dataclass(frozen=True)
class Mistake:
    """An example with a wrong prediction."""

    id: str
    texts: tuple[str, ...]
    """A text, a pair of texts, or question and context."""
    gold: str
    prediction: str
    quality: float
    """Of the prediction, from 0 to 1."""
    other: str = ""
    """Prediction of the other model."""
    is_other_right: bool | None = None
    """Whether the other model is right; None if there is none."""


def find_mistakes(result: Result, root: Path, *, against: Result | None = None) -> list[Mistake]:
    """Find the wrong predictions of a model, worst first, equal ones in the order of the data.

    Args:
        result: a scored cell.
        root: data root; not read for the embedded sample.
        against: a cell of the same task and evaluation data.

    Raises:
        DataUnavailableError: the evaluation data are missing locally and not downloadable.
        ResultError: a cell was scored on other data.
    """
    task = get_task(result.task)
    split = task.read_split(task.eval_split, root)
    for cell in (result, against):
        if cell is not None and (cell.task != task.name or cell.data_sha256.rpartition("+")[2] != split.sha256):
            what = f"scored on other data than the {task.eval_split} split of {task.name} that is here"
            raise ResultError(f"{cell.model} on {cell.task}", what, "run the cell again")

    def qualities(cell: Result) -> list[float]:
        return [quality(task, p, e) for p, e in zip(cell.predictions, split.examples, strict=True)]

    own = qualities(result)
    other = qualities(against) if against is not None else None
    wrong = sorted((k for k in range(len(own)) if own[k] < RIGHT), key=lambda k: own[k])
    return [
        Mistake(
            id=str(split.examples[k].id),
            texts=_texts(split.examples[k]),
            gold=_shown(split.examples[k].gold),
            prediction=_shown(result.predictions[k]),
            quality=own[k],
            other="" if against is None else _shown(against.predictions[k]),
            is_other_right=None if other is None else other[k] >= RIGHT,
        )
        for k in wrong
    ]


def _texts(example: Any) -> tuple[str, ...]:
    if isinstance(example, QuestionExample):
        return example.question, example.context
    return tuple(text for text in (example.text, example.pair) if text is not None)


def _shown(value: Prediction | Sequence[str]) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return value if isinstance(value, str) else " / ".join(dict.fromkeys(value))
