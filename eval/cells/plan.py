"""Which cells a comparison has, and how several machines share them."""

from collections.abc import Sequence

from corpora.foundation.errors import UsageError
from downstream.task import Task
from eval.contestants.contestant import Cell, Contestant


def plan_cells(models: Sequence[Contestant], tasks: Sequence[Task], seeds: int) -> list[Cell]:
    """Return the cells of models × tasks × seeds, task by task.

    A deterministic model has one seed, but for a few-shot task, whose examples the seed draws; a model has no cells on
    tasks that it cannot do.
    """
    return [
        Cell(model, task, seed)
        for task in tasks
        for model in models
        if model.applies_to(task)
        for seed in range(1 if model.is_deterministic and task.few_shot is None else seeds)
    ]


def share_of(cells: Sequence[Cell], index: int, count: int) -> list[Cell]:
    """Return share INDEX of COUNT: every COUNT-th cell from the INDEX-th on, counted from 1.

    It depends on the plan alone, not on what is finished, so that the shares of a job array are disjoint.
    """
    return list(cells[index - 1 :: count])


def parse_share(text: str) -> tuple[int, int]:
    """Read `I/N`.

    Raises:
        UsageError: it is not a share.
    """
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise UsageError("--shard", f"'{text}' is not a share", "give I/N with I from 1 to N, e.g. 1/4")
    return int(index), int(count)
