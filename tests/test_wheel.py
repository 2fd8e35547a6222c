"""Every file that belongs to a package is in the wheel; `python -m benchmarks.installation` builds and installs it."""

import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return done.stdout.rstrip("\0").split("\0")


def matches(path: str, pattern: str) -> bool:
    """Whether setuptools' glob PATTERN takes PATH; `**` stands for any number of folders."""
    if "**" in pattern:
        start, _, end = pattern.partition("**/")
        return path.startswith(start) and fnmatch(path.rsplit("/", 1)[-1], end.rsplit("/", 1)[-1])
    return path.count("/") == pattern.count("/") and fnmatch(path, pattern)


def test_every_data_file_of_a_package_is_in_the_wheel() -> None:
    packaged = PROJECT["tool"]["setuptools"]["package-data"]
    for path in tracked():
        package, _, inside = path.partition("/")
        if package in packaged and not path.endswith(".py"):
            assert any(matches(inside, pattern) for pattern in packaged[package]), f"{path} is in no package-data"


def test_every_package_is_in_the_wheel() -> None:
    found = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {path.split("/")[0] for path in tracked() if path.endswith("/__init__.py")} - {"tests", "benchmarks"}
    assert packages == {pattern.removesuffix("*") for pattern in found}


def test_the_wheel_stays_small() -> None:
    packages = PROJECT["tool"]["setuptools"]["package-data"]
    sizes = {path: (ROOT / path).stat().st_size for path in tracked() if path.split("/")[0] in packages}
    # Weights hardly shrink when they are packed.
    assert sum(sizes.values()) < 70_000_000, sorted(sizes, key=lambda path: -sizes[path])[:5]


def test_every_package_of_an_extra_is_pinned() -> None:
    pinned = {
        re.sub("[-_.]+", "-", line.split("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    }
    entries = [*PROJECT["project"]["dependencies"]]
    entries += [entry for extra in PROJECT["project"]["optional-dependencies"].values() for entry in extra]
    names = {re.split("[>=[]", entry)[0] for entry in entries if "[" not in entry}
    assert {name for name in names if name not in pinned} == set()
