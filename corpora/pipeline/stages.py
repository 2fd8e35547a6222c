"""The stages of a build, in order. Each is a list of independent tasks; the tasks of a stage read those before it.

| stage | a task | in | out |
| --- | --- | --- | --- |
| `read` | a unit of a source | raw records | documents: NFC, without markup, invisible characters and boilerplate |
| `lines` | a source | lines of its documents | those that many of its documents have |
| `filter` | a unit | documents | without these lines and personal data, Korean and of some quality; keys of the texts |
| `exact` | a range of digests | keys of all units | documents with the text of an earlier one |
| `near` | a range of MinHash bands | keys of all units | pairs of near-duplicates |
| `clusters` | all | pairs | documents that are near-duplicates of an earlier one |
| `select` | a unit | documents | shards without duplicates and evaluation texts; counts |
| `finish` | all | shards and counts | the corpus: numbered shards, manifest, report |

A task is a function of the plan and of finished tasks, and decides nothing by the number of tasks or their order.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corpora.corpus import MANIFEST, PROGRESS
from corpora.foundation.files import sha256
from corpora.pipeline.duplicates import (
    BANDS,
    CLUSTERS,
    EXACT,
    NEAR,
    KeyedUnits,
    find_clusters,
    find_exact,
    find_near,
    num_ranges,
)
from corpora.pipeline.filtering import FILTER, filter_key, filter_unit
from corpora.pipeline.finishing import finish
from corpora.pipeline.plan import PLAN, Build
from corpora.pipeline.reading import LINES, READ, find_repeated_lines, read_unit
from corpora.pipeline.selection import SELECT, Repeated, select_unit


@dataclass(frozen=True)
class Task:
    """A part of a stage that runs in one process."""

    key: str
    """Digest of all that decides its result."""
    run: Callable[[], None]
    size_bytes: int = 1
    """Of its input, for the progress bar."""


@dataclass(frozen=True)
class Stage:
    """A step of a build."""

    name: str
    tasks: Callable[[Build], list[Task]]
    """Its tasks, once the stages before it are finished."""

    def is_finished(self, build: Build, task: Task) -> bool:
        """Whether a task was run."""
        return build.workspace.is_finished(self.name, task.key)


# ---- the tasks of each stage ----


def _read(build: Build) -> list[Task]:
    return _by_unit(build, build.plan.key_of, read_unit)


def _lines(build: Build) -> list[Task]:
    sources = range(len(build.plan.sources))
    return [Task(build.plan.source_key(k), functools.partial(find_repeated_lines, build, k)) for k in sources]


def _filter(build: Build) -> list[Task]:
    return _by_unit(build, functools.partial(filter_key, build), filter_unit)


def _by_unit(build: Build, key_of: Callable[[int], str], run: Callable[[Build, int], None]) -> list[Task]:
    """Return a task for every unit; units of equal files are one task."""
    tasks = {
        key_of(number): Task(key_of(number), functools.partial(run, build, number), unit.file.size_bytes)
        for number, unit in enumerate(build.plan.units)
    }
    return list(tasks.values())


def _exact(build: Build) -> list[Task]:
    if not build.plan.config.cleaning.remove_duplicates:
        return []
    units = _keyed(build)
    count = num_ranges(int(units.offsets[-1]))

    def run(key: str, number: int) -> None:
        with build.workspace.task(EXACT, key) as task:
            find_exact(units, number, count, task)

    keys = [build.plan.key(EXACT, number, count, units.keys) for number in range(count)]
    return [Task(key, functools.partial(run, key, number)) for number, key in enumerate(keys)]


def _near(build: Build) -> list[Task]:
    cleaning = build.plan.config.cleaning
    if not (cleaning.remove_duplicates and cleaning.near_duplicates):
        return []
    units = _keyed(build)
    count = num_ranges(BANDS * int(units.offsets[-1]))

    def run(key: str, number: int) -> None:
        with build.workspace.task(NEAR, key) as task:
            find_near(units, number, count, cleaning.near_duplicates, task)

    keys = [build.plan.key(NEAR, number, count, units.keys) for number in range(count)]
    return [Task(key, functools.partial(run, key, number)) for number, key in enumerate(keys)]


def _clusters(build: Build) -> list[Task]:
    keys = [task.key for task in _near(build)]
    if not keys:
        return []
    key = build.plan.key(CLUSTERS, keys)

    def run() -> None:
        with build.workspace.task(CLUSTERS, key) as task:
            find_clusters([build.workspace.array(NEAR, each, "edges.npy") for each in keys], task)

    return [Task(key, run)]


def _select(build: Build) -> list[Task]:
    repeated = [(EXACT, task.key, "duplicate") for task in _exact(build)]
    repeated += [(CLUSTERS, task.key, "near_duplicate") for task in _clusters(build)]
    units = _keyed(build)
    settings = {name: build.plan.settings[name] for name in ("exclude", "held_out", "shard_mb")}

    def run(key: str, number: int) -> None:
        found: list[Repeated] = [
            (reason, build.workspace.array(stage, each, "documents.npy")) for stage, each, reason in repeated
        ]
        first, end = units.offsets[number : number + 2].tolist()
        select_unit(build, number, key, (first, end), found)

    return [
        Task(key, functools.partial(run, key, number), unit.file.size_bytes)
        for number, unit in enumerate(build.plan.units)
        for key in [build.plan.key(SELECT, number, units.keys[number], repeated, settings)]
    ]


def _finish(build: Build) -> list[Task]:
    def run() -> None:
        clusters = {EXACT: [task.key for task in _exact(build)], CLUSTERS: [task.key for task in _clusters(build)]}
        finish(build, [task.key for task in _select(build)], clusters)

    return [Task(MANIFEST, run)]


def _keyed(build: Build) -> KeyedUnits:
    keys = [filter_key(build, number) for number in range(len(build.plan.units))]
    return KeyedUnits(build, FILTER, keys)


STAGES = (
    Stage(READ, _read),
    Stage(LINES, _lines),
    Stage(FILTER, _filter),
    Stage(EXACT, _exact),
    Stage(NEAR, _near),
    Stage(CLUSTERS, _clusters),
    Stage(SELECT, _select),
    Stage("finish", _finish),
)


# ---- running a stage ----


def unfinished(build: Build, stage: Stage) -> list[int]:
    """Return the numbers of the tasks of a stage that are to be run."""
    return [k for k, task in enumerate(stage.tasks(build)) if not stage.is_finished(build, task)]


def run_tasks(out: Path, name: str, numbers: list[int] | slice) -> None:
    """Run tasks of a stage of the build in OUT, unless they are finished; what every executor calls.

    Args:
        out: folder of the corpus.
        name: of the stage.
        numbers: of the tasks; a slice is the share of one of several processes.
    """
    build, stage, tasks = _opened(out, name, sha256(out / PROGRESS / PLAN))
    chosen = tasks[numbers] if isinstance(numbers, slice) else [tasks[number] for number in numbers]
    for task in chosen:
        if not stage.is_finished(build, task):
            task.run()


@functools.lru_cache(maxsize=1)  # a process runs many tasks of a stage
def _opened(out: Path, name: str, _plan: str) -> tuple[Build, Stage, list[Task]]:
    build = Build.open(out)
    stage = next(stage for stage in STAGES if stage.name == name)
    return build, stage, stage.tasks(build)
