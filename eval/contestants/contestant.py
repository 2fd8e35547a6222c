"""The compared models, and how one of them fills one cell (model × task × seed) of the leaderboard."""

import importlib.util
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field, ValidationError

from corpora.foundation.config import Config, load_toml, validate
from corpora.foundation.errors import CheckpointError, RecipeError, UsageError, suggest
from corpora.foundation.files import code_digest, fingerprint, package_path, sha256
from corpora.foundation.machine import versions
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import HUB_ID, bundled, resolve
from downstream.families.classification import Regression
from downstream.finetune import (
    TaskData,
    finetune,
    load_finetuned,
    predict,
)
from downstream.finetuning.result import Result, score
from downstream.finetuning.trainer import METRICS_FILE, finetune_recipe
from downstream.grid import Grid, choose
from downstream.summaries.family import SentenceChoice, choose_sentences
from downstream.task import FinetuneConfig, Prediction, Split, Task, TextExample, all_tasks
from eval.cells.measurements import CurvePoint
from eval.measures.cost import Cost, measure, measure_model
from eval.measures.noise import Predict

if TYPE_CHECKING:
    from downstream.embed import Embedder

LEADERBOARD_TOML = package_path("eval", "leaderboard.toml")

SCRATCH = {"vocab_size": 8000, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}


Kind: TypeAlias = Literal["encoder", "scratch", "embedder", "finetuned", "summary", "majority", "tfidf"]

RUNTIME_LIBRARIES = ("numba", "onnxruntime")
"""What other backends than torch compute with, as far as they are installed."""
# What a baseline's predictions hang on besides the code.
LIBRARIES: dict[str, tuple[str, ...]] = {"majority": ("numpy",), "tfidf": ("numpy", "scikit-learn", "scipy")}


class ModelEntry(Config):
    """One compared model."""

    name: str
    """Key in results."""
    kind: Kind = "encoder"
    encoder: str = ""
    """Folder, hub id or known key; default: the name. Of `embedder`, `finetuned` and `summary` the model's folder;
    default: the one that comes with the package."""
    encoder_sha256: str = ""
    """Digest of the encoder's files, where it is known: finished cells count then although the encoder is gone."""
    system: str = "summarizer"
    """Of `summary`: what `downstream.summaries.family.choose_sentences` calls it."""
    runtime: str = "torch"
    """Of `finetuned`: how it is computed, a word that `downstream.runtime` knows."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Departures from the tasks' fine-tuning defaults."""
    task_finetune: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Further departures on single tasks, by their names; a task of the embedded sample has a name of its own."""
    sample_finetune: dict[str, Any] = Field(default_factory=dict)
    """What stands for `finetune` on the embedded sample, where it differs there."""
    choice: dict[str, Any] = Field(default_factory=dict)
    """How a grid came to the departures; the record of `downstream.grid.choose`."""

    @property
    def finetuned_folder(self) -> Path:
        """The folder of a `finetuned` model."""
        return Path(self.encoder) if self.encoder else bundled("classifier")

    @property
    def is_deterministic(self) -> bool:
        """Whether one seed says it all."""
        return self.kind not in {"encoder", "scratch"}

    def applies_to(self, task: Task) -> bool:
        """Whether the model can do TASK.

        Embedders score pairs, summaries are for summarisers alone, a fine-tuned model does what it was trained on.

        Raises:
            CheckpointError: a fine-tuned model does not say what that is.
        """
        if self.kind == "summary" or isinstance(task.family, SentenceChoice):
            return self.kind == "summary" and isinstance(task.family, SentenceChoice)
        if self.kind == "embedder":
            return isinstance(task.family, Regression)
        return self.kind != "finetuned" or ModelFolder(self.finetuned_folder).task_name == task.name

    def with_overrides(self, overrides: dict[str, Any]) -> "ModelEntry":
        """Return this entry with further departures on every task."""
        sample = (self.sample_finetune or self.finetune) | overrides
        tasks = {name: departures | overrides for name, departures in self.task_finetune.items()}
        update = {"finetune": self.finetune | overrides, "task_finetune": tasks, "sample_finetune": sample}
        return self.model_copy(update=update)

    def chosen(self, grid: Grid, task: Task, train: Split, out: Path) -> "ModelEntry":
        """Return this encoder with the settings that a grid comes to on a part of the training split.

        Args:
            grid: what to choose from.
            task: what is trained.
            train: its training split, the only one that is looked at.
            out: folder of the points; finished ones are not computed again.

        Raises:
            SuiteError: encoder, data or folder are unusable.
        """
        encoder = self.encoder or self.name
        choice = choose(task, encoder, grid, out=out, train=train, overrides=self.overrides(task))
        changes = {"finetune": choice.settings, "task_finetune": {}, "sample_finetune": {}, "choice": choice.record}
        return self.model_copy(update=changes)

    def overrides(self, task: Task) -> dict[str, Any]:
        """Return the departures that hold for TASK."""
        general = self.sample_finetune if task.is_sample and self.sample_finetune else self.finetune
        return general | self.task_finetune.get(task.name, {})


class Leaderboard(Config):
    """The contents of `leaderboard.toml`."""

    seeds: int = Field(default=3, ge=1)
    """Per trained model."""
    tasks: list[str]
    """The published comparison, in the order of its columns; other tasks are run by name."""
    models: dict[str, ModelEntry]


def load_leaderboard(path: Path = LEADERBOARD_TOML) -> Leaderboard:
    """Read the file that says what is compared.

    Raises:
        RecipeError: it has an unknown key or a wrong value.
    """
    values = load_toml(path)
    models = values.pop("models", {})
    if not isinstance(models, dict) or not all(isinstance(entry, dict) for entry in models.values()):
        raise RecipeError(path, "a model is no table", "write [models.NAME] above its settings")
    entries = {
        name: validate(ModelEntry, {"name": name} | entry, f"{path}, models.{name}") for name, entry in models.items()
    }
    leaderboard = validate(Leaderboard, values | {"models": entries}, path)
    for name, entry in entries.items():
        for task in entry.task_finetune.keys() - all_tasks().keys():
            where = f"{path}, models.{name}, task_finetune"
            raise RecipeError(where, f"unknown task '{task}'", suggest(task, all_tasks()))
    return leaderboard


def choose_models(names: Sequence[str], known: dict[str, ModelEntry]) -> list[ModelEntry]:
    """Turn command line names into entries: a known key, `KEY=FOLDER`, a folder, or a hub id.

    Raises:
        UsageError: a name is none of these; the nearest known one is given.
    """
    chosen: dict[str, ModelEntry] = {}
    for name in names:
        entry = known[name] if name in known else _unlisted_model(name, known)
        if entry.name in chosen:
            raise UsageError("--models", f"two models are called '{entry.name}'", "name them apart with KEY=FOLDER")
        chosen[entry.name] = entry
    return list(chosen.values())


def _unlisted_model(name: str, known: dict[str, ModelEntry]) -> ModelEntry:
    key, is_named, folder = name.partition("=")
    if is_named and key:
        if not Path(folder).is_dir():
            raise UsageError("--models", f"'{folder}' of '{name}' is not a folder", "give KEY=FOLDER")
        entry = known.get(key, ModelEntry(name=key))
        kind = entry.kind if entry.kind in {"embedder", "finetuned"} else "encoder"
        return entry.model_copy(update={"encoder": folder, "kind": kind})
    if name and Path(name).is_dir() and Path(name).resolve().name:
        return ModelEntry(name=Path(name).resolve().name, encoder=name)
    if HUB_ID.fullmatch(name):
        return ModelEntry(name=name.split("/")[1], encoder=name)
    raise UsageError("--models", f"unknown model '{name}'", suggest(name, known))


def cell_recipe(entry: ModelEntry, task: Task, data: TaskData) -> dict[str, Any]:
    """Return everything but the seed that decides a cell; its fingerprint tells whether the cell is finished.

    Raises:
        CheckpointError: the encoder is not to be had.
        RecipeError: a fine-tuning setting is wrong.
    """
    about = {"model": entry.name, "task": task.name, "data_sha256": data.sha256}
    if entry.kind in {"majority", "tfidf"}:
        from eval.contestants.baselines import SETTINGS

        return about | {
            "settings": SETTINGS if entry.kind == "tfidf" else {},
            "code_sha256": code_sha256(entry, task),
            "versions": versions(*LIBRARIES[entry.kind]),
        }
    if entry.kind == "summary":
        return about | {
            "system": entry.system,
            "model_sha256": _summarizer_sha256(entry),
            "code_sha256": code_sha256(entry, task),
            "versions": versions("numpy", "kiwipiepy"),
        }
    if entry.kind == "embedder":
        from downstream.embeddings.embedder import bundled_embedder, model_files

        files = model_files(resolve(entry.encoder) if entry.encoder else bundled_embedder())
        return about | {"embedder_sha256": sha256(*files), "versions": versions("torch", "transformers", "tokenizers")}
    if entry.kind == "finetuned":
        weights = ModelFolder(entry.finetuned_folder).digest()
        libraries = ["torch", "transformers", "tokenizers"]
        if entry.runtime != "torch":
            libraries += [name for name in RUNTIME_LIBRARIES if importlib.util.find_spec(name)]
        return about | {"weights_sha256": weights, "runtime": entry.runtime, "versions": versions(*libraries)}
    config = _finetune_config(entry, task)
    if entry.kind == "scratch":
        return about | {
            "architecture": SCRATCH,
            "finetune": config.model_dump(),
            "versions": versions("torch", "transformers", "tokenizers", "accelerate"),
        }
    digest = entry.encoder_sha256 or ModelFolder(resolve(entry.encoder or entry.name)).digest()
    recipe = finetune_recipe(task, entry.name, digest, config, data)
    return recipe | ({"grid": entry.choice} if entry.choice else {})


def _summarizer_sha256(entry: ModelEntry) -> str:
    """Return a digest of a summariser's files; empty for a rule."""
    from downstream.summarize import BUNDLED

    if entry.system != "summarizer":
        return ""
    folder = resolve(entry.encoder) if entry.encoder else BUNDLED
    return sha256(*sorted(path for path in folder.rglob("*") if path.suffix in {".json", ".safetensors"}))


def code_sha256(entry: ModelEntry, task: Task) -> str:
    """Return a digest of the code that decides a cell's predictions: the syntax of its modules without docstrings.

    For a baseline it is part of the recipe, because running one anew costs little. A trained cell only notes it: most
    changes of these modules leave every prediction as it was, and discarding a night of training for a renamed
    variable would teach people to work around the check. What changes predictions changes the suite's version, and
    that is in every recipe.
    """
    modules = ["eval.contestants.baselines"]
    if entry.kind == "tfidf":
        modules += ["downstream.finetuning.ngrams"]
    elif entry.kind == "summary":
        modules = ["downstream.summaries.family", "downstream.summaries.evaluation", "downstream.summaries.summarizer"]
    elif entry.kind == "embedder":
        modules = [f"downstream.embeddings.{name}" for name in ("embedder", "pipeline", "pooling", "similarity")]
    elif entry.kind != "majority":
        reader = getattr(task.read, "func", task.read)  # of a partial
        modules = ["downstream.encoders", "downstream.finetune", reader.__module__, type(task.family).__module__]
    if entry.kind == "scratch":
        modules += ["eval.contestants.contestant", "pretraining.vocabulary.wordpiece"]
    return code_digest(modules)


def _finetune_config(entry: ModelEntry, task: Task) -> FinetuneConfig:
    values = task.finetune.model_dump() | entry.overrides(task)
    return validate(FinetuneConfig, values, f"model {entry.name} on {task.name}")


@dataclass(frozen=True)
class Fitted:
    """A model that has learnt a task, ready to be measured."""

    predict: Predict
    """N examples → N predictions, on the device it was trained on."""
    cost: Callable[[Sequence[Any]], Cost]
    """Times it on the CPU, on examples of the evaluation split."""


@dataclass(frozen=True)
class Filled:
    """What came of running a cell."""

    result: Result
    fitted: Callable[[], Fitted]
    """Returns the model, loaded anew where it was saved."""
    curve: tuple[CurvePoint, ...] = ()
    """How its loss fell, if the training says."""


def run_cell(entry: ModelEntry, task: Task, data: TaskData, recipe: dict[str, Any], *, seed: int, work: Path) -> Filled:
    """Train and score one cell.

    Args:
        entry: the model.
        task: the task.
        data: its splits.
        recipe: of `cell_recipe`.
        seed: of the whole cell.
        work: folder of the fine-tuned model; an interrupted training in it is continued.

    Raises:
        SuiteError: the encoder is unusable.
    """
    if entry.kind in {"majority", "tfidf"}:
        from eval.contestants.baselines import FITS

        started = time.perf_counter()
        baseline = FITS[entry.kind](task, data.train.examples)
        train_s = time.perf_counter() - started
        fitted = Fitted(baseline.predict, partial(measure, baseline.predict, num_parameters=baseline.num_parameters))
        return _scored(entry, task, data, recipe, fitted, seed, train_s, num_parameters=baseline.num_parameters)
    if entry.kind == "summary":
        chooser = choose_sentences(entry.system, entry.encoder or None)
        return _scored(entry, task, data, recipe, Fitted(chooser, partial(measure, chooser)), seed, 0.0)
    if entry.kind == "embedder":
        return _run_embedder(entry, task, data, recipe, seed)
    if entry.kind == "finetuned":
        return _run_finetuned(entry, task, data, recipe, seed)
    encoder = entry.encoder or entry.name
    if entry.kind == "scratch":
        encoder = str(build_scratch(data, work / "encoder", seed=seed))
    folder = work / "model"
    result = finetune(
        task, encoder, out=folder, model=entry.name, seed=seed, data=data, overrides=entry.overrides(task)
    )
    result = result.model_copy(update={"recipe": recipe, "recipe_sha256": fingerprint(recipe)})
    max_length = _finetune_config(entry, task).max_length
    return Filled(result, lambda: _load_fitted(folder, task, max_length), read_curve(folder / METRICS_FILE))


def _scored(
    entry: ModelEntry,
    task: Task,
    data: TaskData,
    recipe: dict[str, Any],
    fitted: Fitted,
    seed: int,
    train_s: float,
    **more: Any,
) -> Filled:
    """Predict and score the evaluation split with a model that is there."""
    started = time.perf_counter()
    predictions = list(fitted.predict(data.eval.examples))
    result = score(
        task,
        data.eval,
        predictions,
        model=entry.name,
        seed=seed,
        data_sha256=data.sha256,
        recipe=recipe,
        recipe_sha256=fingerprint(recipe),
        train_s=train_s,
        eval_s=time.perf_counter() - started,
        **({"device": "cpu"} | more),
    )
    return Filled(result, lambda: fitted)


def _run_embedder(entry: ModelEntry, task: Task, data: TaskData, recipe: dict[str, Any], seed: int) -> Filled:
    from downstream.embed import Embedder

    embedder = Embedder.load(entry.encoder or None)
    facts: dict[str, Any] = {"num_parameters": embedder.num_parameters}

    def cost(examples: Sequence[Any]) -> Cost:
        on_cpu = Embedder.load(embedder.folder, device="cpu")
        size = ModelFolder(embedder.folder).weights_bytes
        return measure(partial(similarities, on_cpu, task), examples, size_bytes=size, **facts)

    fitted = Fitted(partial(similarities, embedder, task), cost)
    return _scored(entry, task, data, recipe, fitted, seed, 0.0, device=embedder.device.partition(":")[0], **facts)


def similarities(embedder: "Embedder", task: Task, pairs: Sequence[TextExample]) -> list[Prediction]:
    """Score pairs by the cosine of their vectors, on the task's scale; see `downstream.embeddings.similarity`."""
    assert isinstance(task.family, Regression)
    texts = [pair.text for pair in pairs] + [pair.pair or "" for pair in pairs]
    vectors = embedder.encode(texts).astype(np.float64)  # (2N, D)
    cosines = (vectors[: len(pairs)] * vectors[len(pairs) :]).sum(axis=1)
    low, high = task.family.low, task.family.high
    return [float(low + (high - low) * cosine) for cosine in cosines]


def _run_finetuned(entry: ModelEntry, task: Task, data: TaskData, recipe: dict[str, Any], seed: int) -> Filled:
    from downstream.runtimes.predictor import Predictor

    predictor = Predictor.load(entry.finetuned_folder, entry.runtime)
    known = predictor.finetuned
    # An exported file lies in a cache under a name of its own.
    size = known.size_bytes if predictor.runtime.name == "torch" else None
    cost = partial(measure, predictor.predict, num_parameters=known.num_parameters, size_bytes=size)
    fitted = Fitted(predictor.predict, cost)
    # It was trained before and elsewhere: here it takes no time.
    filled = _scored(entry, task, data, recipe, fitted, seed, 0.0, num_parameters=known.num_parameters)
    noted = filled.result.environment | {"runtime": predictor.runtime.name}
    return replace(filled, result=filled.result.model_copy(update={"environment": noted}))


def _load_fitted(folder: Path, task: Task, max_length: int) -> Fitted:
    """Load a fine-tuned model where it would compute."""
    import torch

    from corpora.foundation.machine import no_file_bars

    with no_file_bars():
        model, tokenizer, _ = load_finetuned(folder)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    longest = min(max_length, tokenizer.model_max_length)
    return Fitted(
        partial(predict, model, tokenizer, task.family, max_length=longest),
        lambda examples: measure_model(model, tokenizer, task, examples, folder=folder, max_length=longest),
    )


def read_curve(path: Path) -> tuple[CurvePoint, ...]:
    """Read the training losses of a file of metrics; none where there is no file.

    Raises:
        CheckpointError: it is damaged.
    """
    if not path.is_file():
        return ()
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return tuple(
            CurvePoint(step=line["step"], epoch=line["epoch"], loss=line["loss"]) for line in lines if "loss" in line
        )
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        raise CheckpointError(path, "not a file of training metrics", "delete the folder and train again") from error


def build_scratch(data: TaskData, folder: Path, *, seed: int) -> Path:
    """Save a tiny randomly initialised BERT with a vocabulary trained on the task's training text.

    The same task, data and seed give the same bytes.
    """
    import torch
    from transformers import BertConfig, BertModel

    from corpora.foundation.machine import no_file_bars
    from pretraining.vocabulary.tokenizer import save_tokenizer
    from pretraining.vocabulary.wordpiece import train_wordpiece

    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = train_wordpiece(_training_texts(data), SCRATCH["vocab_size"])
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=SCRATCH["hidden_size"],
        num_hidden_layers=SCRATCH["num_hidden_layers"],
        num_attention_heads=SCRATCH["num_attention_heads"],
        intermediate_size=4 * SCRATCH["hidden_size"],
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    with no_file_bars():
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    return folder


def _training_texts(data: TaskData) -> list[str]:
    texts: list[str] = []
    for example in data.train.examples:
        if isinstance(example, TextExample):
            texts += [example.text, *getattr(example, "choices", ()), *([example.pair] if example.pair else [])]
        else:
            texts += [example.question, example.context]
    return list(dict.fromkeys(texts))
