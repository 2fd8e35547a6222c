"""The clusters of cells that do not hold them, read from the data that were scored.

A cell holds the cluster of each example, where its task has clusters. Cells from before that, as those of an archive,
get them from the evaluation split if it is on this machine and is the one that was scored; otherwise their intervals
take examples as independent, and the table says so.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from corpora.foundation.errors import SuiteError
from downstream.finetuning.result import Result
from downstream.task import Task, all_tasks

logger = logging.getLogger(__name__)


def with_clusters(cells: Iterable[Result], root: Path) -> list[Result]:
    """Return cells with the clusters of their tasks, where these are known.

    Args:
        cells: of any tasks.
        root: data root.
    """
    known = all_tasks()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    completed = []
    for cell in cells:
        task = known.get(cell.task)
        if task is not None and lacks_clusters(task, [cell]):
            evaluated = cell.data_sha256.rpartition("+")[2]
            key = cell.task, evaluated
            if key not in found:
                found[key] = _read_clusters(task, evaluated, root)
            cell = cell.model_copy(update=found[key])
        completed.append(cell)
    return completed


def lacks_clusters(task: Task, cells: Sequence[Result]) -> bool:
    """Whether CELLS of a task with clusters do not say which examples belong together."""
    return task.cluster is not None and any(cell.clusters is None for cell in cells)


def _read_clusters(task: Task, evaluated: str, root: Path) -> dict[str, Any]:
    """Return ids and clusters of the evaluation split with the digest EVALUATED; empty if it is not on this machine."""
    try:
        split = task.read_split(task.eval_split, root)
    except SuiteError as error:
        logger.warning("%s: clusters unknown, examples count as independent (%s)", task.name, error)
        return {}
    if split.sha256 != evaluated:
        logger.warning("%s: clusters unknown, examples count as independent (other data than were scored)", task.name)
        return {}
    return {"ids": [example.id for example in split.examples], "clusters": split.cluster_numbers}
