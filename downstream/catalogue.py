"""Which models are at hand and what each is good for, told from their files without loading any.

for model in bundled_models():
print(model.kind, model.folder)
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from corpora.foundation.errors import CheckpointError, SuiteError
from downstream.embeddings.pipeline import PIPELINE
from downstream.encoders.hub import BUNDLED
from downstream.families.classification import Classification
from downstream.families.span_qa import SpanQA
from downstream.fill_mask import predicts_tokens
from downstream.finetune import TASK_KEY
from downstream.summaries.model import MODEL_FILE
from downstream.summaries.scorer import HEAD_CONFIG_FILE
from downstream.task import get_task

Kind: TypeAlias = Literal["summarizer", "embedder", "classifier", "reader", "encoder"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SUMMARIZER_FILES = (MODEL_FILE, HEAD_CONFIG_FILE)


@dataclass(frozen=True)
class ModelFolder:
    """A folder with a model."""

    folder: Path
    kind: Kind
    task: str
    """What it was fine-tuned on; empty for other kinds."""
    size_bytes: int
    is_bundled: bool

    @property
    def name(self) -> str:
        """Last part of the folder."""
        return self.folder.resolve().name


def describe_model(folder: Path) -> ModelFolder:
    """Tell what a folder holds.

    Raises:
        CheckpointError: it is no folder, or holds no model of a known kind.
    """
    if not folder.is_dir():
        raise CheckpointError(folder, "no such folder", "check the path")
    kind, task = _kind_of(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return ModelFolder(folder, kind, task, size, folder.resolve().is_relative_to(BUNDLED.resolve()))


def _kind_of(folder: Path) -> tuple[Kind, str]:
    if any((folder / name).is_file() for name in SUMMARIZER_FILES):
        return "summarizer", ""
    if (folder / PIPELINE).is_file():
        return "embedder", ""
    config = _read_config(folder)
    if name := str(config.get(TASK_KEY) or ""):
        task = get_task(name)
        if isinstance(task.family, SpanQA):
            return "reader", task.name
        if isinstance(task.family, Classification) and not task.takes_pairs:
            return "classifier", task.name
        what = f"fine-tuned on {task.title}, which is neither a label of a text nor an answer in a passage"
        raise CheckpointError(folder, what, "give a folder fine-tuned on nsmc, hate, korquad or klue-mrc")
    if predicts_tokens([str(name) for name in config.get("architectures") or []]):
        return "encoder", ""
    fix = "give a folder that this suite saved: a summariser, an embedder, a fine-tuned model or an encoder"
    raise CheckpointError(folder, "no model of a known kind in it", fix)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise CheckpointError(path, f"cannot be read ({error})", "download the folder again") from error
    return config if isinstance(config, dict) else {}


def bundled_models() -> list[ModelFolder]:
    """Return the models that come with the package and are there."""
    return find_models([BUNDLED])


def find_models(folders: Iterable[Path]) -> list[ModelFolder]:
    """Return the models in folders: each is a model, or holds models one level below.

    Folders of something else are passed over; use `describe_model` to learn why.
    """
    found: dict[Path, ModelFolder] = {}
    for folder in folders:
        inside = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        for path in (folder, *inside):
            try:
                found.setdefault(path.resolve(), describe_model(path))
            except SuiteError:
                continue
    return sorted(found.values(), key=lambda model: (KINDS.index(model.kind), not model.is_bundled, str(model.folder)))
