"""Settings of a headline model, and the file that holds them: of one that generates, or of one that shortens."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from corpora.foundation.config import Config, validate
from corpora.foundation.errors import CheckpointError, UsageError
from corpora.foundation.files import parse_signed
from downstream.encoders.folder import ModelFolder

SETTINGS_FILE = "headline.json"


class HeadlineConfig(Config):
    """Settings of a fine-tuning."""

    epochs: int = Field(default=5, ge=1)
    batch_size: int = Field(default=16, ge=1)
    peak_lr: float = Field(default=3e-4, gt=0)
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    max_title: int = Field(default=48, ge=8)
    """Longest title in tokens."""
    seed: int = Field(default=0, ge=0)


class CompressionConfig(Config):
    """Settings of the training of a model that shortens."""

    epochs: int = Field(default=8, ge=1)
    batch_size: int = Field(default=256, ge=1)
    peak_lr: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.05, ge=0)
    dropout: float = Field(default=0.3, ge=0, lt=1)
    hidden_size: int = Field(default=96, ge=1)
    transition_size: int = Field(default=16, ge=1)
    """Dimensions in which units that follow each other are compared."""
    seed: int = Field(default=0, ge=0)


def finished(out: Path, task: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the facts of a finished training in a folder; None if there is none.

    Args:
        out: folder of the result.
        task: what decides the result, by the names of the facts.

    Raises:
        UsageError: the folder holds another training.
    """
    if not (out / SETTINGS_FILE).is_file():
        return None
    done = read_facts(out)
    if any(done.get(key) != value for key, value in task.items()):
        raise UsageError("--out", f"{out} holds a model of other data or settings", "give another folder")
    sys.stderr.write(f"{out}: finished already\n")
    return done


def read_settings(folder: Path) -> HeadlineConfig:
    """Return the settings of a folder that `downstream.headlines.training` saved.

    Raises:
        CheckpointError: it is none.
    """
    path = folder / SETTINGS_FILE
    if not path.is_file() or not ModelFolder(folder).has_config:
        fix = "train one: python -m downstream.headline train PAIRS… --model FOLDER --out DIR"
        raise CheckpointError(folder, "not a headline model", fix)
    return validate(HeadlineConfig, read_facts(folder).get("settings", {}), path)


def read_facts(folder: Path) -> dict[str, Any]:
    """Return what a headline model was trained on, and with which settings.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = folder / SETTINGS_FILE
    try:
        return parse_signed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(path, f"damaged ({error})", "train the model again") from error
