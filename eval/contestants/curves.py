"""Training losses of a fine-tuned model, as its folder keeps them."""

import json
from pathlib import Path

from pydantic import ValidationError

from corpora.foundation.config import Config
from corpora.foundation.errors import CheckpointError


class CurvePoint(Config):
    """The training loss at a step."""

    step: int
    epoch: float
    loss: float
    """Mean since the previous point."""


def read_curve(path: Path) -> tuple[CurvePoint, ...]:
    """Read the training losses of a file of metrics; none if the file is missing.

    Raises:
        CheckpointError: the file is damaged.
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
