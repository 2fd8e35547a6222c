"""How a leaderboard's figures were computed, and how to reproduce them.

Every cell notes its origin when it is finished. The manifest of a leaderboard summarizes the origins of its cells: the
machines and versions that computed the figures, not the one that printed the table. It lists the experiments with their
whole recipes; `--from` plans the same cells again, and refuses if data, versions or weights have changed.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError, field_validator

from corpora.foundation.config import Config
from corpora.foundation.errors import ResultError, UsageError
from corpora.foundation.files import package_path
from corpora.foundation.machine import cpu_name, versions
from downstream.finetuning.result import Result
from downstream.task import Task
from eval.cells.files import now
from eval.contestants.contestant import Contestant, all_kinds


class Experiment(Config):
    """A model on a task, with what is needed to run it again."""

    task: str
    model: str
    kind: str
    encoder: str
    """Folder, hub id or known key; empty for a model that is built from the task's own data, or comes bundled."""
    seeds: list[int]
    recipe: dict[str, Any]
    """What decides the predictions, as in the cells."""

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        if kind not in all_kinds():
            raise ValueError(f"unknown kind '{kind}'")
        return kind

    @property
    def contestant(self) -> Contestant:
        """The model with exactly the settings of the recipe."""
        return all_kinds()[self.kind].from_recipe(self.model, self.encoder, self.recipe)


def origin(model: Contestant, task: Task) -> dict[str, str]:
    """Return what a cell notes beside machine and recipe when it is finished."""
    return {
        "finished": now(),
        "kind": model.kind,
        "encoder": model.source,
        "git": git_commit(),
        "code_sha256": model.code_sha256(task),
        **_device(),
    }


def _device() -> dict[str, str]:
    """Return the accelerator and the number of threads; both can change a figure's last digits."""
    if "torch" not in sys.modules:
        return {}  # nothing was computed with it, and loading it takes seconds
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"device": device, "threads": str(torch.get_num_threads())}


@cache
def git_commit() -> str:
    """Return the commit of the source tree, with `+` for local changes; empty outside a checkout."""
    root = package_path("eval").parent
    if not (root / ".git").exists() or shutil.which("git") is None:
        return ""
    # `describe --dirty` takes the lock of the index, which a kill would leave behind; `status` does without.
    commit, changes = (
        subprocess.run(
            ["git", "--no-optional-locks", "-C", str(root), *command], capture_output=True, text=True, check=False
        )
        for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    )
    return commit.stdout.strip() + "+" * bool(commit.stdout and changes.stdout)


def fold_manifest(cells: Sequence[Result]) -> dict[str, Any]:
    """Return the manifest of a leaderboard made of CELLS; without cells, what this machine would run with."""
    if not cells:
        return {"versions": versions(), "git": git_commit(), "device": "cpu", "cpu": cpu_name(), "experiments": []}
    packages: dict[str, set[str]] = {}
    for cell in cells:
        for name, version in cell.recipe.get("versions", {}).items():
            packages.setdefault(name, set()).add(version)

    def noted(key: str) -> str:
        return _joined(cell.environment.get(key, "") for cell in cells)

    experiments: dict[tuple[str, str], list[Result]] = {}
    for cell in cells:
        experiments.setdefault((cell.task, cell.model), []).append(cell)
    return {
        "versions": {name: _joined(packages[name]) for name in sorted(packages)},
        "git": noted("git"),
        "device": _joined(cell.environment.get("device", cell.device) for cell in cells),
        "precision": noted("precision"),
        "cpu": noted("cpu"),
        "platform": noted("platform"),
        "threads": noted("threads"),
        "experiments": [
            {
                "task": task,
                "model": model,
                "kind": some[0].environment.get("kind", ""),
                "encoder": some[0].environment.get("encoder", ""),
                "seeds": sorted(cell.seed for cell in some),
                "recipe": some[0].recipe,
            }
            for (task, model), some in experiments.items()
        ],
    }


def _joined(values: Iterable[str]) -> str:
    return " / ".join(sorted({value for value in values if value}))


def read_experiments(path: Path) -> list[Experiment]:
    """Read the experiments of a manifest.

    Args:
        path: a leaderboard.json, its folder, or a file with its manifest alone.

    Raises:
        ResultError: the file is missing, is none of these, or does not say how its figures were computed.
    """
    file = path / "leaderboard.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        found = content.get("manifest", content)["experiments"]
        experiments = [Experiment(**item) for item in found]
    except OSError as error:
        raise ResultError(file, error.strerror or str(error), "give a leaderboard.json or its folder") from error
    except (ValueError, AttributeError, KeyError, TypeError, ValidationError) as error:
        what = "no manifest that says how its figures were computed"
        raise ResultError(file, what, "give the leaderboard.json of a run") from error
    if not experiments:
        raise ResultError(file, "its manifest has no experiment", "give the leaderboard.json of a run")
    return experiments


def refuse_drift(path: Path, experiment: Experiment, recipe: Mapping[str, Any], *, but: Iterable[str] = ()) -> None:
    """Refuse to repeat an experiment under other conditions.

    Args:
        path: the manifest, for the message.
        experiment: what was run.
        recipe: what would be run now.
        but: entries of the recipe that were changed on purpose.

    Raises:
        UsageError: an entry differs; the message has the first one with both values.
    """
    for key in sorted({*experiment.recipe, *recipe} - set(but)):
        there, here = experiment.recipe.get(key), recipe.get(key)
        if there == here:
            continue
        if isinstance(there, dict) and isinstance(here, dict):
            inner = next(name for name in sorted({*there, *here}) if there.get(name) != here.get(name))
            key, there, here = f"{key}.{inner}", there.get(inner), here.get(inner)
        what = f"{experiment.model} on {experiment.task}: {key} was {_short(there)} and is {_short(here)} now"
        raise UsageError(path, what, "restore it, or add --allow-drift to run with what is here")


def _short(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:12]}…{text[-12:]}"
