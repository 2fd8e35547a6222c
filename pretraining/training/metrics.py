"""`metrics.jsonl`: a line for every few steps of a run; TensorBoard and Weights & Biases show the same numbers."""

import contextlib
import importlib.util
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from corpora.foundation.errors import UsageError, cannot_write, suggest
from corpora.foundation.files import write_text

METRICS = "metrics.jsonl"
REPORTERS = ("tensorboard", "wandb")
"""What metrics can be shown in, if it is installed."""
Report: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Takes a line of metrics."""


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read `metrics.jsonl`; a last line that a kill truncated is left out."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            lines.append(json.loads(text))
    return lines


def append_metrics(path: Path, line: Mapping[str, Any]) -> None:
    """Append a line; JSON has no NaN, and such a loss is written as null.

    Raises:
        ResultError: the file cannot be written.
    """
    clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()}
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(clean) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from error


def cut_metrics(path: Path, step: int) -> None:
    """Delete the lines after a step, which a resumed run writes again."""
    lines = [line for line in read_metrics(path) if line["step"] <= step]
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def check_reporters(names: Sequence[str]) -> None:
    """Raise UsageError for a reporter that is unknown or not installed."""
    for name in names:
        if name not in REPORTERS:
            raise UsageError("--report-to", f"'{name}' is unknown", suggest(name, REPORTERS))
        if importlib.util.find_spec(name) is None:
            raise UsageError("--report-to", f"{name} is not installed", f"pip install {name}")


def open_reporter(name: str, out: Path) -> Report:
    """Return what shows lines of metrics in TensorBoard, from files under OUT, or in Weights & Biases.

    Args:
        name: one of `REPORTERS`.
        out: folder of the run.

    Raises:
        UsageError: it is unknown or not installed.
    """
    check_reporters([name])
    if name == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter(out / name)

        def show(line: Mapping[str, Any]) -> None:
            for key, value in _values(line).items():
                writer.add_scalar(key, value, line["step"])
            writer.flush()

        return show
    wandb: Any = importlib.import_module(name)
    run = wandb.init(project="pressbert", name=out.resolve().name, dir=str(out))
    return lambda line: run.log(_values(line), step=line["step"])


def _values(line: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key, value in line.items() if key != "step" and value is not None}
