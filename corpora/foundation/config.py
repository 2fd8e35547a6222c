"""Configuration: frozen settings, TOML recipes that list departures from the defaults, and registries of modules."""

import importlib
import importlib.resources
import pkgutil
import tomllib
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from corpora.foundation.errors import RecipeError, suggest

LONGEST_TOML, LONGEST_TOML_LINE = 1 << 20, 20_000
"""Characters of a file of settings, and of a line of it."""


class Config(BaseModel):
    """Base of every `…Config`: frozen, and a misspelt key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


ConfigT = TypeVar("ConfigT", bound=Config)


def validate(config: type[ConfigT], values: dict[str, Any], where: object) -> ConfigT:
    """Build CONFIG from VALUES; an error names the wrong key.

    Raises:
        RecipeError: a key is unknown or a value has the wrong type or range.
    """
    try:
        return config(**values)
    except ValidationError as error:
        # A misspelt key often causes a missing one, so it is reported first.
        first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = _fields_at(config, first["loc"][:-1])
            raise RecipeError(where, f"unknown key '{key}'", suggest(str(first["loc"][-1]), known)) from error
        raise RecipeError(where, f"{key}={first['input']!r}: {first['msg']}", "correct the value") from error


def _fields_at(config: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of a nested configuration, e.g. of `loop`."""
    for name in location:
        field = config.model_fields.get(str(name))
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return []
        config = field.annotation
    return list(config.model_fields)


def load_recipe(path: Path, config: type[ConfigT]) -> ConfigT:
    """Read a TOML recipe that lists only departures from the defaults of CONFIG.

    Raises:
        RecipeError: the file is missing, is not TOML, or has a wrong key or value.
    """
    return validate(config, load_toml(path), path)


def load_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        RecipeError: the file is missing or is not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
        # Keys of many parts and lists in lists take tomllib the square of their length.
        if len(text) > LONGEST_TOML or max(map(len, text.split("\n"))) > LONGEST_TOML_LINE:
            what = f"more than {LONGEST_TOML:,} characters, or {LONGEST_TOML_LINE:,} in a line"
            raise RecipeError(path, what, "give a file of settings")
        return tomllib.loads(text)
    except OSError as error:
        raise RecipeError(path, error.strerror or str(error), "check the path") from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, and tables in tables in tables
        raise RecipeError(path, f"not a TOML file ({error})", "correct the syntax") from error


def discover(package: ModuleType, constant: str, *, key: str = "name", skip: Collection[str] = ()) -> dict[str, Any]:
    """Collect CONSTANT from every public module of PACKAGE but those in SKIP, by its attribute KEY."""
    entries: dict[str, Any] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_") and not info.ispkg and info.name not in skip:
            entry = getattr(importlib.import_module(f"{package.__name__}.{info.name}"), constant)
            name = getattr(entry, key)
            assert name not in entries, f"two modules of {package.__name__} are called {name}"
            entries[name] = entry
    return entries
