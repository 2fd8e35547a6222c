"""Finished cells on disk, the gaps between them, and the leaderboard's rows made of both.

A cell is `results/TASK/MODEL/seed-N.json`, written whole or not at all, which is what makes a second run skip it. What
became of a cell that could not be filled is `missing/TASK/MODEL/seed-N.json`, until it is. Rows only read these files;
no model is ever loaded for a table, and the same files give the same bytes whenever and wherever it is written.
"""

import contextlib
import datetime
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import Field, ValidationError

from corpora.foundation.config import Config
from corpora.foundation.errors import ResultError
from corpora.foundation.files import atomic_file, package_path, write_json
from downstream.finetuning.result import Result, read_result
from downstream.metrics import Metric, bootstrap_ci95
from downstream.task import Task, all_tasks
from eval.board.comparison import Comparison, compare_models, rank_intervals
from eval.board.words import SOME_SEEDS, UNDEFINED
from eval.cells.measurements import KINDS, CostFile, NoiseFile, Sidecars
from eval.measures.noise import Condition, paired_drop

DROP_ROUNDS = 1000
"""Resamples for the interval of a drop: of eight conditions each, where one figure alone has ten thousand."""

REPORTED_JSON = package_path("eval", "reported.json")

Status = Literal["ok", "failed", "unavailable"]
T = TypeVar("T")


class NoiseFigure(Config):
    """A figure on noised input, beside that of the same examples as they are."""

    noise: str
    """Key of `eval.measures.noise.NOISES`."""
    rate: float
    """Share of the places where it can strike that are struck."""
    num_examples: int
    """Of the sample that was noised."""
    altered: float
    """Share of them that the noise changed."""
    value: float | None
    """Mean over seeds, as a fraction."""
    drop: float | None
    """The figure on the sample as it is, less `value`."""
    drop_ci95: tuple[float, float] | None = None
    """95 % interval of the drop over examples; of the ranking metric alone."""


class CleanFigure(Config):
    """A figure without the examples that stand in a training text."""

    corpus: str
    """The corpus's name, or that of the task's training split."""
    source: Literal["corpus", "split"]
    num_touched: int
    """Examples that any measure of `eval.contamination` finds."""
    value: float | None
    """On the others, as a fraction; None where it is undefined."""
    ci95: tuple[float, float] | None
    touched_value: float | None
    """On the touched ones."""


class Row(Config):
    """One figure of the leaderboard: a model on a task in a metric, over its seeds."""

    model: str
    task: str
    metric: str
    source: Literal["measured", "reported"] = "measured"
    status: Status = "ok"
    reason: str = ""
    """Why there is no value: what failed or is missing and what to do, or why the metric is undefined."""
    value: float | None = None
    """Mean over seeds, as a fraction."""
    ci95: tuple[float, float] | None = None
    """95 % bootstrap interval over examples: what another draw of examples might have given."""
    seeds: int = 0
    std: float | None = None
    """Sample standard deviation over seeds: what another seed might have given. None for a single one."""
    rank: tuple[int, int] | None = None
    """Best and worst place that paired tests leave to the model on this task; of the ranking metric alone."""
    num_examples: int = 0
    split: str = ""
    data_sha256: str = ""
    num_parameters: int = 0
    """Of the encoder, head left out; of a baseline all that it has learnt."""
    train_s: float = 0.0
    """Mean over seeds."""
    eval_s: float = 0.0
    """Mean over seeds."""
    size_bytes: int | None = None
    """Of the weights on disk, head included. None for what is not saved, or was not measured; so for the next four."""
    latency_ms: float | None = None
    """Median of one example at a time on one CPU core, from text to answer."""
    sentences_per_s: float | None = None
    """Examples of many at once on one CPU core."""
    cpu_share: float | None = None
    """Processor time over wall time of that: below 0.9 the machine was busy, and the times are too long."""
    cost_cpu: str = ""
    """The processor that was timed."""
    noise: list[NoiseFigure] = Field(default_factory=list)
    """The same metric under noise; empty where it was not measured."""
    clean: list[CleanFigure] = Field(default_factory=list)
    """The same metric without the examples that a training text touches; of the ranking metric alone."""
    reference: str = ""
    """Where a reported figure was published."""
    note: str = ""
    """What else a reader of the figure must know, such as another source that prints another one."""
    note_en: str = ""
    """The same in English, of reported figures; notes on our own have a fixed translation."""


class LeaderboardFile(Config):
    """`leaderboard.json`."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    created: str
    manifest: dict[str, Any]
    rows: list[Row]
    comparisons: list[Comparison] = Field(default_factory=list)
    """Every pair of models on every task, in the task's ranking metric."""


class Gap(Config):
    """A cell that could not be filled, and why."""

    task: str
    model: str
    seed: int
    status: Literal["failed", "unavailable"]
    reason: str
    at: str
    """When that was found, in ISO 8601 and UTC."""


def cell_path(out: Path, task: str, model: str, seed: int) -> Path:
    """Return where a cell lies."""
    return out / "results" / task / model.replace("/", "--") / f"seed-{seed}.json"


def cell_paths(out: Path, task: str, seed: int) -> list[Path]:
    """Return the cells of all models on a task with a seed."""
    return sorted((out / "results" / task).glob(f"*/seed-{seed}.json"))


def gap_path(out: Path, task: str, model: str, seed: int) -> Path:
    """Return where the gap of a cell lies."""
    return out / "missing" / task / model.replace("/", "--") / f"seed-{seed}.json"


def find_cells(out: Path) -> tuple[list[Result], list[ResultError]]:
    """Read all cells under OUT, the newest last; damaged files are returned as errors, not hidden.

    A cell that does not say when it was finished gets the time its file was written.
    """
    cells, errors = [], []
    for path in sorted((out / "results").glob("*/*/seed-*.json")):
        try:
            cell = read_result(path)
        except ResultError as error:
            errors.append(error)
            continue
        if "finished" not in cell.environment:
            written = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
            environment = cell.environment | {"finished": written.isoformat(timespec="microseconds")}
            cell = cell.model_copy(update={"environment": environment})
        cells.append(cell)
    return sorted(cells, key=lambda cell: cell.environment["finished"]), errors


def write_gap(out: Path, gap: Gap) -> None:
    """Note that a cell could not be filled.

    Raises:
        ResultError: the file cannot be written.
    """
    retried(lambda: write_json(gap_path(out, gap.task, gap.model, gap.seed), gap.model_dump()))


def retried(write: Callable[[], T]) -> T:
    """Call WRITE, and again if another process has removed the empty folder it was about to write to.

    Raises:
        ResultError: it cannot write for any other reason.
    """
    for _ in range(100):
        try:
            return write()
        except ResultError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return write()


def read_gap(path: Path) -> Gap:
    """Read what `write_gap` wrote.

    Raises:
        ResultError: the file is damaged.
    """
    try:
        return Gap.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ResultError(path, "not the note of a missing cell", "delete it") from error


def drop_gap(out: Path, task: str, model: str, seed: int) -> None:
    """Remove the note of a cell that is finished now, if there is one."""
    path = gap_path(out, task, model, seed)
    if path.is_file():
        path.unlink(missing_ok=True)
        remove_empty(path.parent, levels=3)


def remove_empty(folder: Path, *, levels: int) -> None:
    """Remove FOLDER and the folders above it, LEVELS in all, up to the first that holds something."""
    with contextlib.suppress(OSError):  # not empty, or another process was quicker
        for empty in [folder, *folder.parents][:levels]:
            empty.rmdir()


def find_gaps(out: Path) -> list[Gap]:
    """Read the gaps under OUT but those whose cell was finished later.

    Raises:
        ResultError: a file is damaged.
    """
    gaps = [read_gap(path) for path in sorted((out / "missing").glob("*/*/seed-*.json"))]
    finished = {(c.task, c.model, c.seed): c.environment["finished"] for c in find_cells(out)[0]} if gaps else {}
    return [gap for gap in gaps if finished.get((gap.task, gap.model, gap.seed), "") < gap.at]


def merge_results(folders: Sequence[Path], out: Path) -> list[ResultError]:
    """Copy the finished cells and gaps of other leaderboard folders to OUT; of the same cell the newest stays.

    What was measured beside a cell goes with it. Nothing is run, and no byte of a cell is changed.

    Returns:
        What could not be read.

    Raises:
        ResultError: a folder holds no results, a gap is damaged, or OUT cannot be written.
    """
    errors: list[ResultError] = []
    for folder in folders:
        if not (folder / "results").is_dir() and not (folder / "missing").is_dir():
            raise ResultError(folder, "no results in it", "give folders that eval/run_all.py has written with --out")
        cells, damaged = find_cells(folder)
        errors += damaged
        present = {(cell.task, cell.model, cell.seed): cell.environment["finished"] for cell in find_cells(out)[0]}
        for cell in cells:
            key = (cell.task, cell.model, cell.seed)
            if present.get(key, "") < cell.environment["finished"]:
                copies = [(kind.path(folder, *key), kind.path(out, *key)) for kind in KINDS]
                for source, target in (*copies, (cell_path(folder, *key), cell_path(out, *key))):
                    if source.is_file():
                        with atomic_file(target, "wb") as file:
                            file.write(source.read_bytes())
        for gap in find_gaps(folder):
            write_gap(out, gap)
    return errors


def read_reported() -> list[Row]:
    """Return the published figures."""
    return [Row(**row) for row in json.loads(REPORTED_JSON.read_text(encoding="utf-8"))["rows"]]


@dataclass(frozen=True)
class Table:
    """What a leaderboard is made of."""

    rows: list[Row]
    comparisons: list[Comparison]
    cells: list[Result]
    """Those that count in the rows."""

    def cells_of(self, task: str) -> dict[str, list[Result]]:
        """Return the cells of a task by model, in the order of the rows."""
        found: dict[str, list[Result]] = {}
        for cell in self.cells:
            if cell.task == task:
                found.setdefault(cell.model, []).append(cell)
        return found


def build_table(
    cells: Sequence[Result],
    gaps: Sequence[Gap],
    *,
    tasks: Sequence[str] = (),
    models: Sequence[str] = (),
    recipes: Mapping[tuple[str, str], str] | None = None,
    sidecars: Sidecars | None = None,
) -> Table:
    """Arrange finished cells, gaps and the published figures into rows, and compare the models of each task.

    A gap is a row only where nothing is finished, and a note elsewhere.

    Args:
        cells: of any tasks and models, the newest last.
        gaps: what could not be filled.
        tasks: names that come first, in this order; the others follow by name. So for models.
        models: names that come first.
        recipes: (task, model) → fingerprint of the recipe whose cells count; default: that of the newest cell.
        sidecars: what was measured beside the cells.
    """
    known = all_tasks()
    found: dict[str, dict[str, list[Result]]] = {}
    for cell in cells:
        if cell.task in known and cell.recipe_sha256 == (recipes or {}).get(
            (cell.task, cell.model), cell.recipe_sha256
        ):
            found.setdefault(cell.task, {}).setdefault(cell.model, []).append(cell)
    missing: dict[tuple[str, str], Gap] = {}
    for gap in sorted(gaps, key=lambda gap: gap.seed):
        missing.setdefault((gap.task, gap.model), gap)
    names = _first(tasks, {*found, *(task for task, _ in missing)})
    rows: list[Row] = []
    comparisons: list[Comparison] = []
    kept: list[Result] = []
    for name in names:
        counted = {model: of_newest_recipe(some) for model, some in found.get(name, {}).items()}
        compared = compare_models(known[name], counted)
        ranks = rank_intervals(compared)
        comparisons += compared
        for model in _first(models, {*counted, *(m for task, m in missing if task == name)}):
            kept += counted.get(model, [])
            rows += _rows_of_model(
                known[name], model, counted, missing.get((name, model)), ranks, sidecars or Sidecars()
            )
    return Table(rows + reported_rows(known[name] for name in names), comparisons, kept)


def _first(wanted: Sequence[str], present: set[str]) -> list[str]:
    """Return the names that are present: those wanted in their order, then the others by name."""
    return [name for name in dict.fromkeys(wanted) if name in present] + sorted(present - set(wanted))


def _rows_of_model(
    task: Task,
    model: str,
    counted: Mapping[str, Sequence[Result]],
    gap: Gap | None,
    ranks: Mapping[str, tuple[int, int]],
    sidecars: Sidecars,
) -> list[Row]:
    if model not in counted:
        assert gap is not None
        return missing_rows(task, model, gap.status, gap.reason)
    note = f"{SOME_SEEDS.ko}{gap.reason}" if gap else ""
    cost = _cost_fields(sidecars.cost_of(counted[model]))
    noised = sidecars.noise_of(counted[model]) or []
    rows = []
    for row in rows_of_cells(task, counted[model]):
        metric = next(metric for metric in task.metrics if metric.key == row.metric)
        is_ranking = metric is task.metrics[0]
        own = {"note": note, "rank": ranks.get(model) if is_ranking else None}
        noise = noise_figures(metric, noised, with_intervals=is_ranking)
        rows.append(row.model_copy(update=own | cost | {"noise": noise}))
    return rows


def _cost_fields(found: CostFile | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        "size_bytes": found.cost.size_bytes,
        "latency_ms": found.cost.latency_ms_median,
        "sentences_per_s": found.cost.sentences_per_s,
        "cpu_share": found.cost.cpu_share,
        "cost_cpu": found.cost.cpu,
    }


def noise_figures(metric: Metric, files: Sequence[NoiseFile], *, with_intervals: bool) -> list[NoiseFigure]:
    """Fold the seeds of one model on one task under noise.

    Args:
        metric: what is folded.
        files: one a seed, all on the same examples and under the same noise.
        with_intervals: whether drops get an interval.
    """
    if not files or any(metric.key not in file.robustness.conditions[0].metrics for file in files):
        return []
    clean, *noisy = zip(*(file.robustness.conditions for file in files), strict=True)
    return [_noise_figure(metric, clean, conditions, with_intervals=with_intervals) for conditions in noisy]


def _noise_figure(
    metric: Metric, clean: Sequence[Condition], noisy: Sequence[Condition], *, with_intervals: bool
) -> NoiseFigure:
    values, before = ([condition.metrics[metric.key] for condition in some] for some in (noisy, clean))
    value, reference = (
        None if any(x is None for x in some) else float(np.mean([x for x in some if x is not None]))
        for some in (values, before)
    )
    drop = None if value is None or reference is None else reference - value
    interval = None
    if with_intervals and drop is not None:
        columns = ([condition.metric_columns(metric.key) for condition in some] for some in (clean, noisy))
        found = paired_drop(metric, *columns, rounds=DROP_ROUNDS)
        interval = found[1] if found else None
    first = noisy[0]
    return NoiseFigure(
        noise=first.noise,
        rate=first.rate,
        num_examples=len(first.altered),
        altered=first.num_altered / len(first.altered),
        value=value,
        drop=drop,
        drop_ci95=interval,
    )


def of_newest_recipe(cells: Sequence[Result]) -> list[Result]:
    """Return the cells of the last one's recipe, by seed: seeds of different experiments are never averaged."""
    return sorted((c for c in cells if c.recipe_sha256 == cells[-1].recipe_sha256), key=lambda cell: cell.seed)


def rows_of_cells(task: Task, cells: Sequence[Result]) -> list[Row]:
    """Fold the seeds of one model on one task into rows, one a metric; cells of the last one's recipe count."""
    kept = of_newest_recipe(cells)
    # A cell from before the task got another metric has no figure in it, and keeps the others.
    known = [metric for metric in task.metrics if all(metric.key in cell.metrics for cell in kept)]
    return [_row(metric, kept) for metric in known]


def _row(metric: Metric, cells: Sequence[Result]) -> Row:
    first = cells[0]
    values = [cell.metrics[metric.key] for cell in cells]
    defined = [value for value in values if value is not None]
    is_defined = len(defined) == len(values)
    columns = [cell.metric_columns(metric.key) for cell in cells]
    return Row(
        model=first.model,
        task=first.task,
        metric=metric.key,
        reason="" if is_defined else UNDEFINED.ko.format(metric.title),
        value=float(np.mean(defined)) if is_defined else None,
        ci95=bootstrap_ci95(metric, columns) if is_defined else None,
        seeds=len(cells),
        std=float(np.std(defined, ddof=1)) if is_defined and len(defined) > 1 else None,
        num_examples=first.num_examples,
        split=first.split,
        data_sha256=first.data_sha256,
        num_parameters=first.num_parameters,
        train_s=round(float(np.mean([cell.train_s for cell in cells])), 3),
        eval_s=round(float(np.mean([cell.eval_s for cell in cells])), 3),
    )


def missing_rows(task: Task, model: str, status: Status, reason: str) -> list[Row]:
    """Return the rows of a cell that could not be filled, one a metric."""
    return [
        Row(model=model, task=task.name, metric=metric.key, status=status, reason=reason, split=task.eval_split)
        for metric in task.metrics
    ]


def reported_rows(tasks: Iterable[Task]) -> list[Row]:
    """Return the published figures on the official tasks that TASKS are or stand in for."""
    names = {task.official_name for task in tasks}
    return [row for row in read_reported() if row.task in names]
