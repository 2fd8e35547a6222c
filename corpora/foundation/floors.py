"""Our dependencies: the oldest versions that work, checked when a package of ours is imported first, and extras.

needs("torch", "transformers")      # one line that names the extra, where one of them is not installed
"""

import importlib.util
import re
import sys
from importlib import metadata
from types import TracebackType

from corpora.foundation.errors import SuiteError

FLOOR = re.compile(r"""([A-Za-z0-9._-]+)\s*>=\s*([0-9][0-9.]*)(?:\s*;\s*extra\s*==\s*["']([a-z-]+)["'])?$""")
"""A requirement of pyproject.toml, and the extra that it belongs to."""
OPTIONAL = re.compile(r"([A-Za-z0-9._-]+)[^;]*;.*\bextra == ['\"]([\w-]+)['\"]")
"""A requirement of an extra."""
DISTRIBUTION = "pressbert"
DISTRIBUTIONS = {"sentence_transformers": "sentence-transformers", "prometheus_client": "prometheus-client"}
"""Module → distribution, where the names differ."""
PREFERRED = ("train", "eval", "serve", "demo", "scale", "kernels")
"""Extras in the order in which one is named for a package that several of them have."""


class DependencyError(SuiteError, ImportError):
    """A dependency that is older than the oldest version that works."""


class MissingPackageError(SuiteError, ImportError):
    """An optional package that is not installed."""

    def __init__(self, module: str, what: str = "not installed", fix: str = "") -> None:
        """Name the extra that brings a module."""
        name = module.split(".")[0]
        super().__init__(DISTRIBUTIONS.get(name, name), what, fix or f"pip install '{_installable(name)}'")


def needs(*modules: str) -> None:
    """Check that optional packages are installed, before something fails inside.

    Raises:
        MissingPackageError: one of them is not.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise MissingPackageError(module)


def extras(requirements: list[str] | None = None) -> dict[str, list[str]]:
    """Return the extras of the installed distribution with the names of their packages.

    Args:
        requirements: e.g. `torch>=2.10; extra == "train"`; default: those of the installed distribution.
    """
    if requirements is None:
        try:
            requirements = metadata.requires(DISTRIBUTION) or []
        except metadata.PackageNotFoundError:
            requirements = []
    found: dict[str, list[str]] = {}
    for requirement in requirements:
        if match := OPTIONAL.match(requirement):
            found.setdefault(match[2], []).append(match[1])
    return found


def _installable(module: str) -> str:
    """Return what pip installs for a module: an extra of ours if one has it, else the package."""
    name = DISTRIBUTIONS.get(module, module)
    having = [extra for extra, packages in extras().items() if name in packages]
    return f"{DISTRIBUTION}[{min(having, key=_preference)}]" if having else name


def _preference(extra: str) -> tuple[int, str]:
    return (PREFERRED.index(extra) if extra in PREFERRED else len(PREFERRED), extra)


def check_floors(requirements: list[str] | None = None, *, extra: str | None = None) -> None:
    """Compare the installed versions of the dependencies with the floors of pyproject.toml.

    What is not installed is left to its own import.

    Args:
        requirements: e.g. `torch>=2.10`; default: those of the installed distribution, none if it is not installed.
        extra: whose requirements are compared, e.g. `serve`; default: those that are needed always.

    Raises:
        DependencyError: a version is below its floor.
    """
    if requirements is None:
        try:
            requirements = metadata.requires(DISTRIBUTION) or []
        except metadata.PackageNotFoundError:
            return
    for requirement in requirements:
        found = FLOOR.match(requirement)
        if found is None or found[3] != extra:
            continue
        name, floor, _ = found.groups()
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
