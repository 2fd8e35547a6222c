"""The oldest versions of our dependencies that work; checked once, when a package of ours is imported first."""

import re
import sys
from importlib import metadata
from types import TracebackType

from corpora.foundation.errors import SuiteError

FLOOR = re.compile(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9][0-9.]*)$")
"""A requirement of pyproject.toml; those of extras have a marker behind it and are not checked."""
DISTRIBUTION = "pressbert"


class DependencyError(SuiteError, ImportError):
    """A dependency that is older than the oldest version that works."""


def check_floors(requirements: list[str] | None = None) -> None:
    """Compare the installed versions of the dependencies with the floors of pyproject.toml.

    What is not installed is left to its own import.

    Args:
        requirements: e.g. `torch>=2.10`; default: those of the installed distribution, none if it is not installed.

    Raises:
        DependencyError: a version is below its floor.
    """
    if requirements is None:
        try:
            requirements = metadata.requires(DISTRIBUTION) or []
        except metadata.PackageNotFoundError:
            return
    for requirement in requirements:
        if (found := FLOOR.match(requirement)) is None:
            continue
        name, floor = found.groups()
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if _release(installed) < _release(floor):
            what = f"version {installed} is installed, {floor} or later is needed"
            raise DependencyError(name, what, f"pip install --upgrade '{name}>={floor}'")


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version, without trailing zeros: `2.13.0+cpu` is (2, 13)."""
    numbers = re.match(r"[0-9]+(\.[0-9]+)*", version)
    parts = [int(part) for part in numbers[0].split(".")] if numbers else []
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def show_in_one_line() -> None:
    """Let a `DependencyError` that ends the process be one line on standard error instead of a traceback."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, DependencyError):
            sys.stderr.write(f"{error}\n")
        else:
            before(kind, error, traceback)

    sys.excepthook = hook
