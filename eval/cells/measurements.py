"""What is measured of a trained model beside its score: under noise, at work on a CPU, and while it trained.

    OUT/noise/TASK/MODEL/seed-N.json     scores on noised input; on the embedded sample of the first seed
    OUT/cost/TASK/MODEL/seed-0.json      size and speed
    OUT/curves/TASK/MODEL/seed-N.json    training loss by step

Times differ from run to run, so they are kept apart from the results, which do not. A file of the cell's recipe is
never measured again; it is written before the cell's result, which is what finishes the cell.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import Field, ValidationError

from corpora.foundation.config import Config
from corpora.foundation.errors import ResultError
from corpora.foundation.files import parse_signed, write_signed
from downstream.finetuning.result import Result
from downstream.task import Task, get_task
from eval.cells.files import CellKey, cell_file
from eval.contestants.contestant import Job, Outcome
from eval.contestants.curves import CurvePoint
from eval.measures.cost import Cost
from eval.measures.noise import Robustness, can_be_noised, robustness

SCHEMA: Literal[1] = 1
IDLE_SHARE = 0.9
"""Processor time over wall time from which a time counts as measured on an idle machine."""

Extra: TypeAlias = Literal["noise", "cost"]
EXTRAS: tuple[Extra, ...] = ("noise", "cost")
"""What can be left out."""


class CellMeasurement(Config):
    """A file beside a cell."""

    schema_version: Literal[1] = Field(default=SCHEMA, alias="schema")
    task: str
    model: str
    seed: int
    recipe_sha256: str
    """Of the cell that was measured."""

    @property
    def key(self) -> CellKey:
        """Task, model and seed."""
        return self.task, self.model, self.seed


class NoiseFile(CellMeasurement):
    """Scores of a trained model under noise."""

    robustness: Robustness


class CostFile(CellMeasurement):
    """Size and speed of a trained model."""

    cost: Cost
    train_s: float
    """Of the seed that was measured."""


class CurveFile(CellMeasurement):
    """Training loss of a fine-tuning."""

    points: list[CurvePoint]


MeasurementT = TypeVar("MeasurementT", bound=CellMeasurement)


@dataclass(frozen=True)
class Measurement(Generic[MeasurementT]):
    """One of the things that are measured, and its files."""

    name: str
    """Of its folder."""
    content: type[MeasurementT]

    def path(self, out: Path, task: str, model: str, seed: int) -> Path:
        """Return the path of the file of a cell."""
        return cell_file(out, self.name, task, model, seed)

    def write(self, out: Path, job: Job, **content: Any) -> None:
        """Write the file of a cell atomically.

        Raises:
            ResultError: it cannot be written.
        """
        task, model, seed = job.key
        about: dict[str, Any] = {
            "schema": SCHEMA,
            "task": task,
            "model": model,
            "seed": seed,
            "recipe_sha256": job.recipe_sha256,
        }
        measured = self.content(**about, **content)
        write_signed(self.path(out, *job.key), measured.model_dump(by_alias=True), indent=None)

    def read(self, path: Path) -> MeasurementT:
        """Read a file.

        Raises:
            ResultError: it is damaged or of another schema.
        """
        try:
            return self.content(**parse_signed(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error).splitlines()[0]
            fix = f"delete it and the cell under {path.parents[3] / 'results'}; the cell is run again"
            raise ResultError(path, f"not a {self.name} file of schema {SCHEMA} ({detail})", fix) from error

    def find(self, out: Path) -> tuple[dict[CellKey, MeasurementT], list[ResultError]]:
        """Read all files under OUT by task, model and seed; damaged ones are returned as errors."""
        found: dict[CellKey, MeasurementT] = {}
        errors: list[ResultError] = []
        for path in sorted((out / self.name).glob("*/*/seed-*.json")):
            try:
                one = self.read(path)
            except ResultError as error:
                errors.append(error)
            else:
                found[one.key] = one
        return found, errors

    def has(self, out: Path, job: Job) -> bool:
        """Whether the file of a cell exists, is sound, and is of its recipe."""
        path = self.path(out, *job.key)
        try:
            return path.is_file() and self.read(path).recipe_sha256 == job.recipe_sha256
        except ResultError:
            return False


NOISE, COST, CURVES = (
    Measurement("noise", NoiseFile),
    Measurement("cost", CostFile),
    Measurement("curves", CurveFile),
)
MEASUREMENTS: tuple[Measurement[NoiseFile] | Measurement[CostFile] | Measurement[CurveFile], ...] = (
    NOISE,
    COST,
    CURVES,
)


def takes_noise(task: Task, seed: int) -> bool:
    """Whether a cell is scored under noise.

    The embedded sample shows what is measured; there, its first seed is enough, and predicting the answers of all would
    take longer than training them.
    """
    return can_be_noised(task) and (seed == 0 or not task.is_sample)


def missing_measurements(out: Path, job: Job, extras: Sequence[Extra]) -> list[Extra]:
    """Return those of EXTRAS that a cell lacks; speed is measured of the first seed alone."""
    has = {
        "noise": not takes_noise(job.task, job.seed) or NOISE.has(out, job),
        "cost": job.seed > 0 or COST.has(out, job),
    }
    return [extra for extra in extras if not has[extra]]


def write_measurements(out: Path, job: Job, outcome: Outcome, extras: Sequence[Extra]) -> None:
    """Measure what is missing beside the score of a cell; what an earlier run that was killed has measured stays.

    Raises:
        ResultError: a file cannot be written.
    """
    if outcome.curve:
        CURVES.write(out, job, points=list(outcome.curve))
    missing = missing_measurements(out, job, extras)
    if not missing:
        return
    fitted, examples = outcome.fitted(), job.data.eval.examples
    if "noise" in missing:
        NOISE.write(out, job, robustness=robustness(job.task, examples, fitted.predict))
    if "cost" in missing:
        COST.write(out, job, cost=fitted.cost(examples), train_s=outcome.result.train_s)


@dataclass(frozen=True)
class Measured:
    """All files beside the cells of a folder, without those of other recipes than the cells'."""

    noise: Mapping[CellKey, NoiseFile] = field(default_factory=dict)
    cost: Mapping[CellKey, CostFile] = field(default_factory=dict)
    curves: Mapping[CellKey, CurveFile] = field(default_factory=dict)

    def noise_of(self, cells: Sequence[Result]) -> list[NoiseFile] | None:
        """Return the noise files of a model's cells on a task, or None where one of them lacks its file."""
        noised = [cell for cell in cells if takes_noise(get_task(cell.task), cell.seed)]
        found = [self.noise.get((cell.task, cell.model, cell.seed)) for cell in noised]
        kept = [one for one in found if one is not None]
        same = {tuple((c.noise, c.rate) for c in one.robustness.conditions) for one in kept}
        return kept if len(kept) == len(noised) and len(same) == 1 else None

    def cost_of(self, cells: Sequence[Result]) -> CostFile | None:
        """Return the cost of a model on a task: that of its first cell that has one."""
        return next(
            (one for cell in cells if (one := self.cost.get((cell.task, cell.model, cell.seed))) is not None), None
        )

    def curves_of(self, cells: Iterable[Result]) -> list[CurveFile]:
        """Return the learning curves of CELLS, in their order; of those that have one."""
        found = (self.curves.get((cell.task, cell.model, cell.seed)) for cell in cells)
        return [curve for curve in found if curve is not None and curve.points]


def find_measurements(out: Path, cells: Iterable[Result]) -> tuple[Measured, list[ResultError]]:
    """Read the files beside CELLS; damaged ones are returned as errors."""
    recipes = {(cell.task, cell.model, cell.seed): cell.recipe_sha256 for cell in cells}

    def of_cells(found: dict[CellKey, MeasurementT]) -> dict[CellKey, MeasurementT]:
        return {key: one for key, one in found.items() if recipes.get(key) == one.recipe_sha256}

    noise, noise_errors = NOISE.find(out)
    cost, cost_errors = COST.find(out)
    curves, curve_errors = CURVES.find(out)
    errors = [*noise_errors, *cost_errors, *curve_errors]
    return Measured(of_cells(noise), of_cells(cost), of_cells(curves)), errors
