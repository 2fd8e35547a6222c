"""Floors of dependencies: what is older is named in one line when anything of ours is imported."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path

import pytest

from corpora.foundation.floors import DependencyError, check_floors

Fails = Callable[..., AbstractContextManager[None]]

ROOT = Path(__file__).resolve().parents[3]


def test_versions_are_compared_by_their_numbers(
    monkeypatch: pytest.MonkeyPatch, fails: Fails, subtests: pytest.Subtests
) -> None:
    for installed, floor, is_old in (
        ("2.9.1", "2.10", True),
        ("2.10.0+cpu", "2.10", False),
        ("2.10", "2.10.0", False),
        ("3.0.0rc1", "2.10", False),
        ("0.22.9", "0.23.0", True),
        ("10.0", "9.9", False),
    ):
        with subtests.test(installed=installed, floor=floor):
            monkeypatch.setattr(metadata, "version", lambda _, installed=installed: installed)
            if is_old:
                with fails(DependencyError, "torch", installed, floor, f"pip install --upgrade 'torch>={floor}'"):
                    check_floors([f"torch>={floor}"])
            else:
                check_floors([f"torch>={floor}"])


def test_extras_and_what_is_not_installed_are_left_alone() -> None:
    check_floors(["numpy>=999; extra == 'test'", "surely-not-installed>=1", "numpy"])
    with pytest.raises(DependencyError, match="numpy"):
        check_floors(["numpy>=999; extra == 'test'"], extra="test")
    with pytest.raises(ImportError):
        check_floors(["numpy>=999"])


def test_every_dependency_has_a_floor_that_this_installation_meets() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert all(re.fullmatch(r"[a-z0-9-]+>=[0-9.]+", entry) for entry in project["dependencies"])
    check_floors(project["dependencies"])
    extras = project["optional-dependencies"]
    assert any(entry.startswith("onnx>=") for entry in project["dependencies"])
    assert any(entry.startswith("starlette>=") for entry in extras["serve"])
    for extra, entries in extras.items():
        floors = [entry for entry in entries if not entry.startswith("pressbert[")]
        assert all(re.fullmatch(r"[a-z0-9-]+>=[0-9.]+", entry) for entry in floors), extra
        check_floors(floors)


def test_an_old_dependency_ends_a_command_with_one_line() -> None:
    code = "from importlib import metadata; metadata.requires = lambda _: ['numpy>=999']; import downstream.task"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert re.match(r"numpy: version \S+ is installed, 999 or later is needed; pip install", done.stderr)
