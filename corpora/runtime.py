"""Ground floor of every package: errors, command lines, recipes, registries and atomic files.

Nothing here knows about text or models. An error a user can mend is a `SuiteError`; `run_command` turns it into one
line on stderr and exit code 2.
"""

import argparse
import contextlib
import difflib
import hashlib
import importlib
import importlib.resources
import io
import json
import logging
import os
import pkgutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

EXIT_DONE, EXIT_FAILED_CELLS, EXIT_USER_MUST_FIX = 0, 1, 2


class SuiteError(Exception):
    """Something the user must fix, told in one line: where, what is wrong, what to do."""

    def __init__(self, where: object, what: str, fix: str) -> None:
        """Keep the three parts; `str()` joins them.

        Args:
            where: file (with line), option or record.
            what: what is wrong there, with the value seen.
            fix: what to do about it.
        """
        self.where, self.what, self.fix = str(where), what, fix
        super().__init__(" ".join(f"{where}: {what}; {fix}".split()))

    def __reduce__(self) -> tuple[type["SuiteError"], tuple[str, str, str]]:
        """Let the error come back whole from another process."""
        return type(self), (self.where, self.what, self.fix)


class UsageError(SuiteError):
    """An unknown task, model or option on a command line."""


class RecipeError(SuiteError):
    """A recipe or configuration that cannot be used."""


class DataError(SuiteError):
    """Input data that is not what its format says."""


class DataUnavailableError(DataError):
    """A data file that is neither at hand nor to be had."""


class CheckpointError(SuiteError):
    """A model folder that cannot be loaded."""


class ResultError(SuiteError):
    """A result file that cannot be written, or read back."""


class Config(BaseModel):
    """Base of every `…Config`: frozen, and a misspelt key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


ConfigT = TypeVar("ConfigT", bound=Config)


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return a hint that names the nearest real choice, and otherwise all of them."""
    choices = sorted(choices)
    close = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"choose from: {', '.join(choices)}"


def validate(config: type[ConfigT], values: dict[str, Any], where: object) -> ConfigT:
    """Build CONFIG from VALUES, or tell in one line which key is wrong.

    Raises:
        RecipeError: a key is unknown or a value has the wrong type or range.
    """
    try:
        return config(**values)
    except ValidationError as error:
        # A misspelt key is often the reason for a missing one, so it is told first.
        first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = _fields_at(config, first["loc"][:-1])
            raise RecipeError(where, f"unknown key '{key}'", nearest(str(first["loc"][-1]), known)) from error
        raise RecipeError(where, f"{key}={first['input']!r}: {first['msg']}", "correct the value") from error


def _fields_at(config: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are known at a place inside CONFIG, e.g. under `loop`."""
    for name in place:
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
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(path, error.strerror or str(error), "check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(path, f"not a TOML file ({error})", "correct the syntax") from error


def discover(package: ModuleType, constant: str) -> dict[str, Any]:
    """Collect CONSTANT from every public module of PACKAGE, keyed by its `name`."""
    entries: dict[str, Any] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_"):
            entry = getattr(importlib.import_module(f"{package.__name__}.{info.name}"), constant)
            assert entry.name not in entries, f"two modules of {package.__name__} are called {entry.name}"
            entries[entry.name] = entry
    return entries


def package_path(package: str, *names: str) -> Path:
    """Return the path of a file or folder that comes with PACKAGE, wherever the module that asks for it lives."""
    return Path(str(importlib.resources.files(package).joinpath(*names)))


def sha256(*paths: Path) -> str:
    """Return the SHA-256 of the concatenated bytes of PATHS, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    return digest.hexdigest()


def fingerprint(value: object) -> str:
    """Return a SHA-256 of VALUE's canonical JSON: equal values give equal digits on every machine."""
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


@contextlib.contextmanager
def atomic_file(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file beside PATH for writing and rename it to PATH at the end.

    A reader sees the old content or the new, never half of it; a kill or a full disk leaves the old file.

    Args:
        path: final place; its folder is made if missing.
        mode: `w` for UTF-8 text, `wb` for bytes.

    Raises:
        ResultError: the folder cannot be made or written, or the disk is full.
    """
    scratch: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        scratch = Path(name)
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        scratch.chmod(0o644)
        scratch.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        if scratch is not None:
            scratch.unlink(missing_ok=True)


def cannot_write(path: Path, error: Exception) -> ResultError:
    """Describe a failed write in the suite's manner; safetensors reports a full disk by an exception of its own."""
    reason = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
    return ResultError(path, f"cannot write ({reason})", "free some space or give another folder with --out")


def write_text(path: Path, text: str) -> None:
    """Write TEXT to PATH atomically, as UTF-8."""
    with atomic_file(path) as file:
        file.write(text)


def write_json(path: Path, value: object, *, indent: int | None = 1) -> None:
    """Write VALUE to PATH atomically as JSON with Hangul left readable. NaN is refused: it is no JSON."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False) + "\n")


class ArgumentParser(argparse.ArgumentParser):
    """An `argparse` parser whose errors are a `UsageError` that names the nearest real option.

    argparse rather than Typer, because the public commands take lists (`--models A B`), which click cannot parse.
    """

    def __init__(self, prog: str, description: str) -> None:
        """Start a parser for PROG; every command has `--verbose`."""
        super().__init__(prog=prog, description=description, allow_abbrev=False)
        self.add_argument("--verbose", action="store_true", help="log what is done, not only warnings")

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage and exiting."""
        raise UsageError(self.prog, message, f"see {self.prog} --help")

    def parse(self, argv: list[str] | None) -> argparse.Namespace:
        """Parse ARGV (default: the process's), and set up logging.

        Raises:
            UsageError: an option is unknown or a value is not allowed.
        """
        known, unknown = self.parse_known_args(argv)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            raise UsageError(self.prog, f"unknown option '{unknown[0]}'", nearest(unknown[0], options))
        logging.basicConfig(
            level=logging.INFO if known.verbose else logging.WARNING,
            stream=sys.stderr,
            format="%(asctime)s %(levelname)s %(name)s %(message)s",
        )
        return known


def run_command(main: Callable[[list[str] | None], int]) -> NoReturn:
    """Run a command's MAIN as a process: a `SuiteError` becomes one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console without Hangul shows ? instead of a traceback
    try:
        code = main(None)
    except SuiteError as error:
        sys.stderr.write(f"{error}\n")
        code = EXIT_USER_MUST_FIX
    except BrokenPipeError:
        # The reader of our stdout is gone (… | head): nothing left to say, and nothing went wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_DONE
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was finished is kept, run the same command again to go on\n")
        code = 130
    sys.exit(code)
