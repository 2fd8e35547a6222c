"""The compared models, and how one of them fills one cell (model × task × seed) of the leaderboard."""

import ast
import importlib
import shutil
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field

from corpora.runtime import Config, RecipeError, UsageError, fingerprint, load_toml, nearest, validate
from downstream.encoders import HUB_ID
from downstream.finetune import TaskData, finetune, finetune_recipe
from downstream.result import Result, score
from downstream.task import FinetuneConfig, Task, TextExample
from pretraining.machine import training_precision, versions

LEADERBOARD_TOML = Path(__file__).with_name("leaderboard.toml")

SCRATCH = {"vocab_size": 8000, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}


Kind: TypeAlias = Literal["encoder", "scratch", "majority", "tfidf"]

# What a baseline's predictions hang on besides the code.
LIBRARIES: dict[str, tuple[str, ...]] = {"majority": ("numpy",), "tfidf": ("numpy", "scikit-learn", "scipy")}


class ModelEntry(Config):
    """One compared model."""

    name: str
    """Key in results."""
    kind: Kind = "encoder"
    encoder: str = ""
    """Folder, hub id or known key; default: the name."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Departures from the task's fine-tuning defaults."""
    sample_finetune: dict[str, Any] = Field(default_factory=dict)
    """The same on the embedded sample, where they differ."""

    @property
    def is_deterministic(self) -> bool:
        """Whether one seed says it all."""
        return self.kind in {"majority", "tfidf"}

    def with_overrides(self, overrides: dict[str, Any]) -> "ModelEntry":
        """Return this entry with further departures on every task."""
        sample = (self.sample_finetune or self.finetune) | overrides
        return self.model_copy(update={"finetune": self.finetune | overrides, "sample_finetune": sample})

    def overrides(self, task: Task) -> dict[str, Any]:
        """Return the departures that hold for TASK."""
        return self.sample_finetune if task.is_sample and self.sample_finetune else self.finetune


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
    return validate(Leaderboard, values | {"models": entries}, path)


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
        return known.get(key, ModelEntry(name=key)).model_copy(update={"encoder": folder, "kind": "encoder"})
    if name and Path(name).is_dir() and Path(name).resolve().name:
        return ModelEntry(name=Path(name).resolve().name, encoder=name)
    if HUB_ID.fullmatch(name):
        return ModelEntry(name=name.split("/")[1], encoder=name)
    raise UsageError("--models", f"unknown model '{name}'", nearest(name, known))


def cell_recipe(entry: ModelEntry, task: Task, data: TaskData) -> dict[str, Any]:
    """Return everything but the seed that decides a cell; its fingerprint tells whether the cell is finished.

    Raises:
        CheckpointError: the encoder is not to be had.
        RecipeError: a fine-tuning setting is wrong.
    """
    if entry.kind in {"majority", "tfidf"}:
        from eval.baselines import SETTINGS

        settings = SETTINGS if entry.kind == "tfidf" else {}
        return {
            "model": entry.name,
            "task": task.name,
            "data_sha256": data.sha256,
            "settings": settings,
            "code_sha256": code_sha256(entry, task),
            "versions": versions(*LIBRARIES[entry.kind]),
        }
    config = _finetune_config(entry, task)
    if entry.kind == "scratch":
        return {
            "model": entry.name,
            "task": task.name,
            "data_sha256": data.sha256,
            "architecture": SCRATCH,
            "finetune": config.model_dump(),
            "precision": training_precision(),
            "versions": versions("torch", "transformers", "tokenizers", "accelerate"),
        }
    from downstream.encoders import resolve

    return finetune_recipe(task, entry.name, resolve(entry.encoder or entry.name), config, data)


def code_sha256(entry: ModelEntry, task: Task) -> str:
    """Return a digest of the code that decides a cell's predictions: the syntax of its modules without docstrings.

    For a baseline it is part of the recipe, because running one anew costs little. A trained cell only notes it: most
    changes of these modules leave every prediction as it was, and discarding a night of training for a renamed
    variable would teach people to work around the check. What changes predictions changes the suite's version, and
    that is in every recipe.
    """
    modules = ["eval.baselines"]
    if not entry.is_deterministic:
        reader = getattr(task.read, "func", task.read)  # of a partial
        modules = ["downstream.encoders", "downstream.finetune", reader.__module__, type(task.family).__module__]
    if entry.kind == "scratch":
        modules += ["eval.models", "pretraining.vocab"]
    return fingerprint([_syntax(module) for module in sorted(set(modules))])


@cache
def _syntax(module: str) -> str:
    return syntax_of(Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8"))


def syntax_of(source: str) -> str:
    """Return the syntax tree of Python code as text, without comments, layout and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for body in (value for _, value in ast.iter_fields(node) if isinstance(value, list)):
            body[:] = [item for item in body if not _is_text(item)]
    return ast.dump(tree)


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _finetune_config(entry: ModelEntry, task: Task) -> FinetuneConfig:
    values = task.finetune.model_dump() | entry.overrides(task)
    return validate(FinetuneConfig, values, f"model {entry.name} on {task.name}")


def run_cell(entry: ModelEntry, task: Task, data: TaskData, recipe: dict[str, Any], *, seed: int, work: Path) -> Result:
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
        from eval.baselines import BASELINES

        started = time.perf_counter()
        predictions = BASELINES[entry.kind](task, data.train.examples, data.eval.examples)
        return score(
            task,
            data.eval,
            predictions,
            model=entry.name,
            seed=seed,
            data_sha256=data.sha256,
            recipe=recipe,
            recipe_sha256=fingerprint(recipe),
            # One pass fits and predicts; the whole is the time a user waits.
            train_s=time.perf_counter() - started,
            eval_s=0.0,
            device="cpu",
        )
    encoder = entry.encoder or entry.name
    if entry.kind == "scratch":
        encoder = str(build_scratch(data, work / "encoder", seed=seed))
    result = finetune(
        task, encoder, out=work / "model", model=entry.name, seed=seed, data=data, overrides=entry.overrides(task)
    )
    return result.model_copy(update={"recipe": recipe, "recipe_sha256": fingerprint(recipe)})


def build_scratch(data: TaskData, folder: Path, *, seed: int) -> Path:
    """Save a tiny randomly initialised BERT with a vocabulary trained on the task's training text.

    The same task, data and seed give the same bytes.
    """
    import torch
    from transformers import BertConfig, BertModel

    from pretraining.machine import no_file_bars
    from pretraining.vocab import save_tokenizer, train_wordpiece

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
            texts += [example.text] if example.pair is None else [example.text, example.pair]
        else:
            texts += [example.question, example.context]
    return list(dict.fromkeys(texts))
