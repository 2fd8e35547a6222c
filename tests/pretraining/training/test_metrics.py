"""Metrics: what TensorBoard and Weights & Biases are given, and refusals."""

import importlib.machinery
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from corpora.foundation.errors import UsageError
from pretraining.training.metrics import append_metrics, check_reporters, open_reporter, read_metrics

Fails = Callable[..., AbstractContextManager[None]]
LINE = {"step": 7, "loss": 2.5, "perplexity": None}


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> None:
    """Let a module of that name be installed."""
    module = ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    for key, value in attributes.items():
        setattr(module, key, value)
    monkeypatch.setitem(sys.modules, name, module)


def test_a_reporter_is_given_every_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    given: list[Any] = []

    class Writer:
        def __init__(self, folder: Path) -> None:
            given.append(folder)

        def add_scalar(self, *values: Any) -> None:
            given.append(values)

        def flush(self) -> None:
            given.append("flush")

    class WandbRun:
        def log(self, values: dict[str, float], step: int) -> None:
            given.append((values, step))

    stand_in(monkeypatch, "tensorboard")
    stand_in(monkeypatch, "torch.utils.tensorboard", SummaryWriter=Writer)
    with subtests.test(name="tensorboard"):
        open_reporter("tensorboard", tmp_path)(LINE)
        assert given == [tmp_path / "tensorboard", ("loss", 2.5, 7), "flush"]
    given.clear()
    stand_in(monkeypatch, "wandb", init=lambda **options: given.append(options) or WandbRun())
    with subtests.test(name="wandb"):
        open_reporter("wandb", tmp_path)(LINE)
        assert given == [{"project": "pressbert", "name": tmp_path.name, "dir": str(tmp_path)}, ({"loss": 2.5}, 7)]


def test_a_reporter_that_is_not_there_is_refused(fails: Fails) -> None:
    with fails(UsageError, "--report-to", "'tensorbord' is unknown", "tensorboard"):
        check_reporters(["tensorbord"])


def test_a_number_that_is_not_finite_is_null(tmp_path: Path) -> None:
    append_metrics(tmp_path / "metrics.jsonl", {"step": 1, "loss": float("nan")})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": None}]
