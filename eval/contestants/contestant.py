"""The compared models: what `leaderboard.toml` lists, and what a kind of model has to answer.

A kind is a file of this folder with a class derived from `Contestant`, which the file calls `CONTESTANT`. The kinds are
listed nowhere else: whoever plans, runs, checks or describes a cell asks its model.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field

from corpora.foundation.config import Config, discover, load_toml, validate
from corpora.foundation.errors import RecipeError, UsageError, suggest
from corpora.foundation.files import code_digest, fingerprint, package_path
from corpora.foundation.machine import versions
from corpora.foundation.plugins import with_plugins
from downstream.encoders.hub import HUB_ID
from downstream.families.classification import check_labels_differ
from downstream.families.dialogue_state import DialogueState
from downstream.families.retrieval import Retrieval
from downstream.finetuning.batches import draw_few, subsample
from downstream.finetuning.result import Result, score
from downstream.finetuning.search import Grid
from downstream.summaries.family import SentenceChoice
from downstream.task import FinetuneConfig, Split, Task, TaskData, all_tasks
from eval import contestants
from eval.contestants.curves import CurvePoint
from eval.measures.cost import Cost, measure
from eval.measures.noise import Predict

LEADERBOARD_TOML = package_path("eval", "leaderboard.toml")
DEFAULT_KIND = "encoder"
TABLES_OF_TASKS = ("task_finetune", "teachers")
"""Fields of entries whose keys are names of tasks."""
SHARED_MODULES = ("contestant", "curves")
"""Modules of this folder that are no kind of model."""


@dataclass(frozen=True)
class Fitted:
    """A model that has learnt a task, ready to be measured."""

    predict: Predict
    """N examples → N predictions, on the device it was trained on."""
    num_parameters: int | None = None
    """Without the head of an encoder; of a baseline its coefficients. None where it cannot be counted."""
    size_bytes: int | None = None
    """Of the weights on disk, head included. None for a model that is not saved."""
    on_cpu: Callable[[], Predict] | None = None
    """Moves the model to the CPU; None if it is there."""

    def cost(self, examples: Sequence[Any]) -> Cost:
        """Time the model on the CPU.

        Args:
            examples: of the evaluation split.
        """
        predict = self.on_cpu() if self.on_cpu else self.predict
        return measure(predict, examples, num_parameters=self.num_parameters, size_bytes=self.size_bytes)


@dataclass(frozen=True)
class Outcome:
    """A cell that was run."""

    result: Result
    fitted: Callable[[], Fitted]
    """Returns the model, loaded again where it was saved."""
    curve: tuple[CurvePoint, ...] = ()
    """Training loss by step; empty where nothing is trained in steps."""


class Contestant(Config):
    """A compared model: its fields are an entry of `leaderboard.toml`, its methods are what its kind decides.

    By default a model is deterministic, needs no files, and does every task but summaries,
    retrieval and dialogue states.
    """

    kind: ClassVar[str]
    """Value of `kind` in the entry and in results."""
    description: ClassVar[str] = "no_weights"
    """What it is, for readers of `--validate`: a key of the texts under `report.check`."""
    is_deterministic: ClassVar[bool] = True
    """Whether all seeds give the same result."""
    takes_folder: ClassVar[bool] = False
    """Whether KEY=FOLDER on the command line gives such a model its folder; with other kinds KEY becomes an encoder."""
    takes_grid: ClassVar[bool] = False
    """Whether its settings can be chosen by grid search."""
    reads_tokens: ClassVar[bool] = False
    """Whether it reads subwords of a tokenizer in its folder."""

    name: str
    """Key in results."""

    @property
    def is_bundled(self) -> bool:
        """Whether everything it needs comes with the package."""
        return True

    @property
    def source(self) -> str:
        """Folder, hub id or known key to note in results; empty for a model that is built from the task's own data."""
        return ""

    @classmethod
    def from_recipe(cls, name: str, source: str, recipe: Mapping[str, Any]) -> Self:
        """Return the model of a finished cell, with exactly the settings of its recipe."""
        return cls(name=name)

    def applies_to(self, task: Task) -> bool:
        """Whether the model can do TASK.

        Raises:
            CheckpointError: that depends on the model's folder, which is unusable.
        """
        return not isinstance(task.family, SentenceChoice | Retrieval | DialogueState)

    def overrides(self, task: Task) -> dict[str, Any]:
        """Return the fine-tuning settings on TASK that differ from the task's own."""
        return {}

    def finetune_config(self, task: Task) -> FinetuneConfig | None:
        """Return all fine-tuning settings on TASK; None where nothing is fine-tuned.

        Raises:
            RecipeError: a setting is unknown or out of range.
        """
        return None

    def with_overrides(self, overrides: dict[str, Any]) -> "Contestant":
        """Return this model with other fine-tuning settings on every task; itself where nothing is fine-tuned."""
        return self

    def trial(self) -> "Contestant":
        """Return this model as it is timed on a few examples: for an epoch, on all that it is given."""
        return self.with_overrides({"epochs": 1, "train_examples": None})

    def num_trained(self, task: Task, data: TaskData) -> int:
        """Return the number of examples that it learns from in an epoch."""
        config = self.finetune_config(task)
        return len(subsample(data.train.examples, task.few_shot or (config.train_examples if config else None)))

    def with_grid(self, grid: Grid, task: Task, train: Split, out: Path) -> "Contestant":
        """Return this model with the settings selected by grid search on a part of the training split.

        Args:
            grid: what to choose from.
            task: what is trained.
            train: its training split, the only one that is read.
            out: folder of the points; finished ones are not computed again.

        Raises:
            SuiteError: encoder, data or folder are unusable.
        """
        return self

    # --- what decides a cell ----------------------------------------------------------------------------------------

    def recipe(self, task: Task, data: TaskData) -> dict[str, Any]:
        """Return everything but the seed that decides the predictions; a cell is finished if its fingerprint is equal.

        Raises:
            CheckpointError: the model's folder is missing or unusable.
            RecipeError: a fine-tuning setting is wrong.
        """
        about = {"model": self.name, "task": task.name, "data_sha256": data.sha256}
        return about | self.settings(task) | {"versions": versions(*self.libraries())}

    @abstractmethod
    def settings(self, task: Task) -> dict[str, Any]:
        """Return what decides the predictions besides task, data and versions."""

    @abstractmethod
    def libraries(self) -> Sequence[str]:
        """Return the distributions whose versions may change the predictions."""

    def code(self, task: Task) -> list[Any]:
        """Return classes and functions whose modules decide the predictions."""
        return [type(self)]

    def code_sha256(self, task: Task) -> str:
        """Return a digest of the code that decides the predictions: the syntax of its modules without docstrings.

        For a model that is trained in seconds it is part of the recipe. A cell that takes long to train only notes it:
        most changes of these modules change no prediction, and what does changes the suite's version, which is in every
        recipe.
        """
        # A reader may be a partial, and a family is an instance.
        return code_digest(getattr(item, "func", item).__module__ for item in self.code(task))

    # --- at work ----------------------------------------------------------------------------------------------------

    def folder(self) -> Path | None:
        """Return the folder of the weights; None where none are needed.

        Raises:
            CheckpointError: it is missing locally and not downloadable.
        """
        return None

    def check(self, task: Task, data: TaskData | None) -> tuple[str, dict[str, object]]:
        """Check the model on TASK without training it.

        Args:
            task: what would be learnt.
            data: its splits; None if they are missing.

        Returns:
            A description for people: the key of a text under `report.check`, and its values.

        Raises:
            CheckpointError: weights or tokenizer are unusable.
        """
        return self.description, {}

    @abstractmethod
    def run(self, job: "Job", work: Path) -> Outcome:
        """Learn and predict a cell.

        Args:
            job: the cell, of this model.
            work: folder of a fine-tuned model; an interrupted training in it is continued.

        Raises:
            SuiteError: the model's folder is unusable.
        """

    def predict_and_score(self, job: "Job", fitted: Fitted, *, train_s: float = 0.0, device: str = "cpu") -> Outcome:
        """Predict and score the evaluation split of a cell with a model that needs no further training."""
        started = time.perf_counter()
        predictions = list(fitted.predict(job.data.eval.examples))
        result = score(
            job.task,
            job.data.eval,
            predictions,
            model=self.name,
            seed=job.seed,
            data_sha256=job.data.sha256,
            recipe=job.recipe,
            recipe_sha256=job.recipe_sha256,
            train_s=train_s,
            eval_s=time.perf_counter() - started,
            device=device,
            num_parameters=fitted.num_parameters or 0,
        )
        return Outcome(result, lambda: fitted)


class Baseline(Contestant):
    """A model that is trained in seconds by code of this package, which is therefore part of the recipe."""

    def settings(self, task: Task) -> dict[str, Any]:
        """Return constants and code."""
        return {"settings": self.constants(), "code_sha256": self.code_sha256(task)}

    def constants(self) -> dict[str, Any]:
        """Return the constants that decide the predictions, for readers of a recipe."""
        return {}

    @abstractmethod
    def fit(self, task: Task, train: Sequence[Any]) -> Fitted:
        """Learn from the examples of a training split."""

    def run(self, job: "Job", work: Path) -> Outcome:
        """Learn the training split and predict the evaluation split."""
        started = time.perf_counter()
        train = draw_few(job.task, job.data.train.examples, job.seed)
        check_labels_differ(job.task.family, train, f"{job.task.name}, training split")
        fitted = self.fit(job.task, train)
        return self.predict_and_score(job, fitted, train_s=time.perf_counter() - started)


# --- cells ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A model on a task with a seed."""

    model: Contestant
    task: Task
    seed: int

    @property
    def label(self) -> str:
        """Name used in messages."""
        return f"{self.model.name} · {self.task.name} · seed {self.seed}"

    @property
    def key(self) -> tuple[str, str, int]:
        """Task, model and seed, as in file names."""
        return self.task.name, self.model.name, self.seed


@dataclass(frozen=True)
class Job(Cell):
    """A cell that can be run."""

    data: TaskData = field(repr=False)
    recipe: dict[str, Any] = field(repr=False)
    """Of `Contestant.recipe`."""

    @cached_property
    def recipe_sha256(self) -> str:
        """Fingerprint of the recipe."""
        return fingerprint(self.recipe)


# --- leaderboard.toml -----------------------------------------------------------------------------------------------


class Leaderboard(Config):
    """The contents of `leaderboard.toml`."""

    seeds: int = Field(default=3, ge=1)
    """Per trained model."""
    tasks: list[str]
    """The published comparison, in the order of its columns; other tasks are run by name."""
    models: dict[str, Contestant]


@cache
def all_kinds() -> Mapping[str, type[Contestant]]:
    """Return the kinds of models by name."""
    own = discover(contestants, "CONTESTANT", key="kind", skip=SHARED_MODULES)
    return with_plugins(own, "contestants", Contestant, key="kind")


def read_entry(name: str, entry: Mapping[str, Any], where: object) -> Contestant:
    """Return the model that an entry describes.

    Raises:
        RecipeError: its kind is unknown, or it has an unknown key or a wrong value.
    """
    values = {"name": name, **entry}
    kind = values.pop("kind", DEFAULT_KIND)
    if kind not in all_kinds():
        raise RecipeError(where, f"kind={kind!r} is unknown", suggest(str(kind), all_kinds()))
    return validate(all_kinds()[kind], values, where)


def load_leaderboard(path: Path = LEADERBOARD_TOML) -> Leaderboard:
    """Read the file that lists what is compared.

    Raises:
        RecipeError: it has an unknown key or a wrong value.
    """
    values = load_toml(path)
    models = values.pop("models", {})
    if not isinstance(models, dict) or not all(isinstance(entry, dict) for entry in models.values()):
        raise RecipeError(path, "a model is not a table", "write [models.NAME] above its settings")
    entries = {name: read_entry(name, entry, f"{path}, models.{name}") for name, entry in models.items()}
    leaderboard = validate(Leaderboard, values | {"models": entries}, path)
    for name, entry in models.items():
        for key in TABLES_OF_TASKS:
            for task in entry.get(key, {}).keys() - all_tasks().keys():
                where = f"{path}, models.{name}, {key}"
                raise RecipeError(where, f"unknown task '{task}'", suggest(task, all_tasks()))
    return leaderboard


def choose_models(names: Sequence[str], known: Mapping[str, Contestant]) -> list[Contestant]:
    """Return the models that the command line names: a known key, `KEY=FOLDER`, a folder, or a hub id.

    Raises:
        UsageError: a name is none of these; the hint suggests a known one.
    """
    chosen: dict[str, Contestant] = {}
    for name in names:
        model = known[name] if name in known else _unlisted_model(name, known)
        if model.name in chosen:
            raise UsageError("--models", f"two models are called '{model.name}'", "name one of them with KEY=FOLDER")
        chosen[model.name] = model
    return list(chosen.values())


def _unlisted_model(name: str, known: Mapping[str, Contestant]) -> Contestant:
    key, is_named, folder = name.partition("=")
    if is_named and key:
        if not Path(folder).is_dir():
            raise UsageError("--models", f"'{folder}' of '{name}' is not a folder", "give KEY=FOLDER")
        if key in known and known[key].takes_folder:
            return known[key].model_copy(update={"encoder": folder})
        return _encoder(key, folder, known.get(key))
    if name and Path(name).is_dir() and Path(name).resolve().name:
        return _encoder(Path(name).resolve().name, name)
    if HUB_ID.fullmatch(name):
        return _encoder(name.split("/")[1], name)
    raise UsageError("--models", f"unknown model '{name}'", suggest(name, known))


def _encoder(name: str, source: str, like: Contestant | None = None) -> Contestant:
    """Return an encoder with the fine-tuning settings of another model, as far as that one has any."""
    kind = all_kinds()[DEFAULT_KIND]
    settings = like.model_dump(include={"finetune", "task_finetune", "sample_finetune"}) if like else {}
    return validate(kind, settings | {"name": name, "encoder": source}, name)
