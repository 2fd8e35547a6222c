"""The rows of a leaderboard, made of finished cells, of those that could not be filled, and of published figures.

Rows only read files; no model is ever loaded for a table, and the same files give the same bytes whenever and wherever
it is written.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from corpora.foundation.config import Config
from corpora.foundation.files import package_path
from corpora.foundation.texts import Texts
from downstream.finetuning.result import Result
from downstream.metrics import FloatArray, Metric, bootstrap_ci95
from downstream.task import Task, all_tasks
from eval.board.comparison import Comparison, compare_models, rank_intervals
from eval.cells.files import FailedCell, Status
from eval.cells.measurements import CostFile, Measured, NoiseFile
from eval.measures.noise import Condition, paired_drop

MAX_TOUCHED_SHARE = 0.05
"""Share of touched examples up to which models are ranked on all examples."""
DROP_ROUNDS = 1000
"""Resamples for the interval of a drop: of eight conditions each, where one figure alone has ten thousand."""

REPORTED_JSON = package_path("eval", "reported.json")


class NoiseFigure(Config):
    """A figure on noised input, beside that of the same examples as they are."""

    noise: str
    """Key of `eval.measures.noise.NOISES`."""
    rate: float
    """Noise level: share of the positions where it can strike that are struck."""
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


@dataclass(frozen=True)
class Figure:
    """A metric on some examples, averaged over seeds."""

    value: float | None
    """Fraction; None where it is undefined, as without examples."""
    ci95: tuple[float, float] | None
    """95 % bootstrap interval over these examples."""
    num_examples: int


class CleanFigure(Config):
    """A figure without the evaluation examples that occur in a training text."""

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


@dataclass(frozen=True)
class TouchedExamples:
    """The examples of an evaluation split that occur in training text of a compared model."""

    data_sha256: str
    """Of the evaluation split."""
    positions: frozenset[int]
    """Their indices in the evaluation file, from 0."""

    def counts_for(self, cells: Iterable[Sequence[Result]]) -> bool:
        """Whether they are so many that models are ranked without them; they must be of the data that were scored."""
        firsts = [some[0] for some in cells if some]
        return bool(firsts) and all(
            cell.data_sha256.rpartition("+")[2] == self.data_sha256
            and len(self.positions) > MAX_TOUCHED_SHARE * cell.num_examples
            for cell in firsts
        )


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
    higher_is_better: bool = True
    """Whether a larger value is a better one."""
    rank: tuple[int, int] | None = None
    """Best and worst rank that paired tests leave to the model on this task; of the ranking metric alone."""
    is_clean_subset: bool = False
    """Whether `rank` is on the examples alone that occur in no training text of a compared model, because more than
    5 % of the others do. `value` is on all examples."""
    clean_value: float | None = None
    """The figure on these examples, as a fraction; of the ranking metric alone."""
    clean_ci95: tuple[float, float] | None = None
    num_clean_examples: int | None = None
    num_clusters: int | None = None
    """Clusters of examples that intervals and tests resample whole, such as articles; None where examples are
    independent, or where the cells do not say which belong together."""
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
    commit: str = ""
    """Source state that the seeds were run with: a commit, with `+` for uncommitted changes; several are joined by
    ` / `. Empty where it was not noted."""
    is_older_state: bool = False
    """Whether that is another state than that of the table's newest cell."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings the model was trained with: of the fine-tuning, or the constants of a baseline."""
    num_grid_points: int | None = None
    """Settings that a grid search on a part of the training split compared; None where there was none."""
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
    failed: Sequence[FailedCell],
    *,
    tasks: Sequence[str] = (),
    models: Sequence[str] = (),
    recipes: Mapping[tuple[str, str], str] | None = None,
    measured: Measured | None = None,
    touched: Mapping[str, TouchedExamples] | None = None,
) -> Table:
    """Arrange finished and failed cells and the published figures into rows, and compare the models of each task.

    A failed cell is a row only if no seed of the model is finished, and a note otherwise.

    Args:
        cells: of any tasks and models, the newest last.
        failed: cells that could not be run.
        tasks: names that come first, in this order; the others follow by name. So for models.
        models: names that come first.
        recipes: (task, model) → fingerprint of the recipe whose cells count; default: that of the newest cell.
        measured: what was measured beside the cells.
        touched: task → the examples that occur in training text.
    """
    known = all_tasks()
    found: dict[str, dict[str, list[Result]]] = {}
    for cell in cells:
        if cell.task in known and cell.recipe_sha256 == (recipes or {}).get(
            (cell.task, cell.model), cell.recipe_sha256
        ):
            found.setdefault(cell.task, {}).setdefault(cell.model, []).append(cell)
    missing: dict[tuple[str, str], FailedCell] = {}
    for one in sorted(failed, key=lambda one: one.seed):
        missing.setdefault((one.task, one.model), one)
    names = _first(tasks, {*found, *(task for task, _ in missing)})
    rows: list[Row] = []
    comparisons: list[Comparison] = []
    kept: list[Result] = []
    for name in names:
        counted = {model: of_newest_recipe(some) for model, some in found.get(name, {}).items()}
        compared, left_out = compare_on_clean(known[name], counted, (touched or {}).get(name))
        ranks = rank_intervals(compared)
        comparisons += compared
        for model in _first(models, {*counted, *(m for task, m in missing if task == name)}):
            kept += counted.get(model, [])
            failure = missing.get((name, model))
            rows += _rows_of_model(known[name], model, counted, failure, ranks, measured or Measured(), left_out)
    return Table(_mark_older(rows, kept) + reported_rows(known[name] for name in names), comparisons, kept)


def _mark_older(rows: Sequence[Row], cells: Sequence[Result]) -> list[Row]:
    """Return rows that say whether they come from another state of the source than the newest cell."""
    newest = max(cells, key=lambda cell: cell.environment.get("finished", ""), default=None)
    state = newest.environment.get("git", "") if newest else ""
    return [row.model_copy(update={"is_older_state": bool(row.commit) and row.commit != state}) for row in rows]


def compare_on_clean(
    task: Task, cells: Mapping[str, Sequence[Result]], touched: TouchedExamples | None
) -> tuple[list[Comparison], frozenset[int]]:
    """Compare the models of a task, without the examples in training text if these are more than 5 %.

    Args:
        task: the task.
        cells: model → its cells of one recipe, one a seed.
        touched: the examples that occur in training text; None if that was not checked.

    Returns:
        The comparisons, and the indices of the examples that were left out.
    """
    left_out = touched.positions if touched is not None and touched.counts_for(cells.values()) else frozenset()
    return compare_models(task, cells, touched=left_out), left_out


def _first(wanted: Sequence[str], present: set[str]) -> list[str]:
    """Return the names that are present: those wanted in their order, then the others by name."""
    return [name for name in dict.fromkeys(wanted) if name in present] + sorted(present - set(wanted))


def _rows_of_model(
    task: Task,
    model: str,
    counted: Mapping[str, Sequence[Result]],
    failed: FailedCell | None,
    ranks: Mapping[str, tuple[int, int]],
    measured: Measured,
    left_out: Collection[int],
) -> list[Row]:
    if model not in counted:
        assert failed is not None
        return missing_rows(task, model, failed.status, failed.reason)
    note = Texts("ko", "report")("some_seeds", reason=failed.reason) if failed else ""
    cost = _cost_fields(measured.cost_of(counted[model]))
    noised = measured.noise_of(counted[model]) or []
    rows = []
    for row in rows_of_cells(task, counted[model]):
        metric = next(metric for metric in task.metrics if metric.key == row.metric)
        is_ranking = metric is task.metrics[0]
        own = {"note": note, "rank": ranks.get(model) if is_ranking else None}
        if is_ranking and left_out:
            own |= _clean_fields(metric, counted[model], left_out)
        noise = noise_figures(metric, noised, counted[model][0], with_intervals=is_ranking)
        rows.append(row.model_copy(update=own | cost | {"noise": noise}))
    return rows


def _clean_fields(metric: Metric, cells: Sequence[Result], left_out: Collection[int]) -> dict[str, Any]:
    """Return the figure without the examples that training text contains."""
    kept = np.ones(cells[0].num_examples, np.bool_)
    kept[list(left_out)] = False
    columns = [cell.metric_columns(metric.key) for cell in cells]
    figure = figure_on(metric, columns, cells[0].clusters, kept)
    return {
        "is_clean_subset": True,
        "num_clean_examples": figure.num_examples,
        "clean_value": figure.value,
        "clean_ci95": figure.ci95,
    }


def figure_on(
    metric: Metric,
    columns: Sequence[FloatArray],
    clusters: Sequence[int] | None,
    group: NDArray[np.bool_],
    seed: int = 0,
) -> Figure:
    """Return a metric on some examples, averaged over seeds.

    Args:
        metric: what is averaged.
        columns: one (N, K) array per seed.
        clusters: (N,) number of each example's cluster; None where examples are independent.
        group: (N,) which examples count.
        seed: of the bootstrap.
    """
    own = [array[group] for array in columns]
    num_examples = int(group.sum())
    values = [metric.fold(array) for array in own] if num_examples else [np.nan]
    if np.isnan(values).any():
        return Figure(None, None, num_examples)
    owners = None if clusters is None else np.array(clusters)[group].tolist()
    return Figure(float(np.mean(values)), bootstrap_ci95(metric, own, seed=seed, clusters=owners), num_examples)


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


def noise_figures(
    metric: Metric, files: Sequence[NoiseFile], cell: Result, *, with_intervals: bool
) -> list[NoiseFigure]:
    """Fold the seeds of one model on one task under noise.

    Args:
        metric: what is folded.
        files: one a seed, all on the same examples and under the same noise.
        cell: one of the model's, which says which examples belong together.
        with_intervals: whether drops get an interval.
    """
    if not files or any(metric.key not in file.robustness.conditions[0].metrics for file in files):
        return []
    clean, *noisy = zip(*(file.robustness.conditions for file in files), strict=True)
    clusters = None
    if cell.clusters is not None and cell.ids is not None:
        cluster_of = dict(zip(cell.ids, cell.clusters, strict=True))
        clusters = [cluster_of[id_] for id_ in files[0].robustness.ids]
    return [_noise_figure(metric, clean, conditions, clusters, with_intervals=with_intervals) for conditions in noisy]


def _noise_figure(
    metric: Metric,
    clean: Sequence[Condition],
    noisy: Sequence[Condition],
    clusters: Sequence[int] | None,
    *,
    with_intervals: bool,
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
        found = paired_drop(metric, *columns, rounds=DROP_ROUNDS, clusters=clusters)
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
        reason="" if is_defined else Texts("ko", "report")("undefined", metric=metric.title),
        value=float(np.mean(defined)) if is_defined else None,
        ci95=bootstrap_ci95(metric, columns, clusters=first.clusters) if is_defined else None,
        seeds=len(cells),
        std=float(np.std(defined, ddof=1)) if is_defined and len(defined) > 1 else None,
        higher_is_better=metric.higher_is_better,
        num_examples=first.num_examples,
        num_clusters=None if first.clusters is None else len(set(first.clusters)),
        commit=" / ".join(sorted({git for cell in cells if (git := cell.environment.get("git", ""))})),
        settings=first.recipe.get("finetune") or first.recipe.get("settings") or {},
        num_grid_points=len(first.recipe["grid"]["points"]) if "grid" in first.recipe else None,
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
