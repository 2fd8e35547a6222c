"""What is measured of a trained model beside its score: under noise, at work on a CPU, and while it learnt.

    OUT/noise/TASK/MODEL/seed-N.json     scores on noised input
    OUT/cost/TASK/MODEL/seed-0.json      size and speed
    OUT/curves/TASK/MODEL/seed-N.json    training loss by step

Times differ from one moment to the next, so that they stand apart from the results, which do not. A file that belongs
to its cell's recipe is never measured again; it is written before the cell's result, which is what finishes the cell.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar

from pydantic import Field, ValidationError

from corpora.foundation.config import Config
from corpora.foundation.errors import ResultError
from corpora.foundation.files import write_json
from downstream.finetuning.result import Result
from eval.measures.cost import Cost
from eval.measures.noise import Robustness

SCHEMA: Literal[1] = 1
IDLE_SHARE = 0.9
"""Processor time over wall time from which on a time counts as measured on an idle machine."""

CellKey = tuple[str, str, int]
"""Task, model and seed."""


class Sidecar(Config):
    """A file beside a cell."""

    schema_version: Literal[1] = Field(default=SCHEMA, alias="schema")
    task: str
    model: str
    seed: int
    recipe_sha256: str
    """Of the cell it was measured with."""


class NoiseFile(Sidecar):
    """Scores of a trained model under noise."""

    robustness: Robustness


class CostFile(Sidecar):
    """What a trained model costs."""

    cost: Cost
    train_s: float
    """Of the seed that was measured."""


class CurvePoint(Config):
    """The training loss at a step."""

    step: int
    epoch: float
    loss: float
    """Mean since the point before."""


class CurveFile(Sidecar):
    """How the loss of a fine-tuning fell."""

    points: list[CurvePoint]


SidecarT = TypeVar("SidecarT", bound=Sidecar)


@dataclass(frozen=True)
class Kind(Generic[SidecarT]):
    """One of the things that are measured."""

    name: str
    """Of its folder."""
    content: type[SidecarT]

    def path(self, out: Path, task: str, model: str, seed: int) -> Path:
        """Return where the file of a cell lies."""
        return out / self.name / task / model.replace("/", "--") / f"seed-{seed}.json"

    def write(self, out: Path, sidecar: SidecarT) -> None:
        """Write a file atomically.

        Raises:
            ResultError: it cannot be written.
        """
        path = self.path(out, sidecar.task, sidecar.model, sidecar.seed)
        write_json(path, sidecar.model_dump(by_alias=True), indent=None)

    def read(self, path: Path) -> SidecarT:
        """Read a file.

        Raises:
            ResultError: it is damaged or of another schema.
        """
        try:
            return self.content.model_validate_json(path.read_text(encoding="utf-8"))
        except (ValidationError, UnicodeDecodeError) as error:
            detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            fix = f"delete it and the cell under {path.parents[3] / 'results'}; the cell is run anew"
            raise ResultError(path, f"not a {self.name} file of schema {SCHEMA} ({detail})", fix) from error

    def find(self, out: Path) -> tuple[dict[CellKey, SidecarT], list[ResultError]]:
        """Read all files under OUT by task, model and seed; damaged ones are returned as errors."""
        found: dict[CellKey, SidecarT] = {}
        errors: list[ResultError] = []
        for path in sorted((out / self.name).glob("*/*/seed-*.json")):
            try:
                one = self.read(path)
            except ResultError as error:
                errors.append(error)
            else:
                found[one.task, one.model, one.seed] = one
        return found, errors

    def is_there(self, out: Path, key: CellKey, recipe_sha256: str) -> bool:
        """Whether the file of a cell is there, sound, and of this recipe."""
        path = self.path(out, *key)
        try:
            return path.is_file() and self.read(path).recipe_sha256 == recipe_sha256
        except ResultError:
            return False


NOISE, COST, CURVES = Kind("noise", NoiseFile), Kind("cost", CostFile), Kind("curves", CurveFile)
KINDS: tuple[Kind[NoiseFile] | Kind[CostFile] | Kind[CurveFile], ...] = (NOISE, COST, CURVES)


@dataclass(frozen=True)
class Sidecars:
    """All files beside the cells of a folder, those of other recipes than the cells' left out."""

    noise: Mapping[CellKey, NoiseFile] = field(default_factory=dict)
    cost: Mapping[CellKey, CostFile] = field(default_factory=dict)
    curves: Mapping[CellKey, CurveFile] = field(default_factory=dict)

    def noise_of(self, cells: Sequence[Result]) -> list[NoiseFile] | None:
        """Return the noise files of a model's cells on a task, or None where one of them has none."""
        found = [self.noise.get((cell.task, cell.model, cell.seed)) for cell in cells]
        kept = [one for one in found if one is not None]
        same = {tuple((c.noise, c.rate) for c in one.robustness.conditions) for one in kept}
        return kept if len(kept) == len(cells) and len(same) == 1 else None

    def cost_of(self, cells: Sequence[Result]) -> CostFile | None:
        """Return the cost of a model on a task: that of its first cell that has one."""
        return next(
            (one for cell in cells if (one := self.cost.get((cell.task, cell.model, cell.seed))) is not None), None
        )

    def curves_of(self, cells: Iterable[Result]) -> list[CurveFile]:
        """Return the learning curves of CELLS, in their order; of those that have one."""
        found = (self.curves.get((cell.task, cell.model, cell.seed)) for cell in cells)
        return [curve for curve in found if curve is not None and curve.points]


def find_sidecars(out: Path, cells: Iterable[Result]) -> tuple[Sidecars, list[ResultError]]:
    """Read the files beside CELLS; damaged ones are returned as errors."""
    recipes = {(cell.task, cell.model, cell.seed): cell.recipe_sha256 for cell in cells}

    def of_cells(found: dict[CellKey, SidecarT]) -> dict[CellKey, SidecarT]:
        return {key: one for key, one in found.items() if recipes.get(key) == one.recipe_sha256}

    noise, noise_errors = NOISE.find(out)
    cost, cost_errors = COST.find(out)
    curves, curve_errors = CURVES.find(out)
    errors = [*noise_errors, *cost_errors, *curve_errors]
    return Sidecars(of_cells(noise), of_cells(cost), of_cells(curves)), errors
