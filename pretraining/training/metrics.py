"""`metrics.jsonl`: a line for every few steps of a run."""

import contextlib
import json
from pathlib import Path
from typing import Any

from corpora.foundation.files import write_text

METRICS = "metrics.jsonl"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read `metrics.jsonl`; a last line that a kill truncated is left out."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            lines.append(json.loads(text))
    return lines


def cut_metrics(path: Path, step: int) -> None:
    """Delete the lines after a step, which a resumed run writes again."""
    lines = [line for line in read_metrics(path) if line["step"] <= step]
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
