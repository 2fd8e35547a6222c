"""Errors that a user can fix, each one line: where, what is wrong, what to do."""

import difflib
import errno
import unicodedata
from collections.abc import Iterable
from pathlib import Path

MORE_FILES = "raise the limit of open files (ulimit -n)"
DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that reorder those around them."""


def printable(text: str) -> str:
    """Return a text in one line for a terminal or a log; what would steer either of them is written as its number.

    Names of files and words of records come from others.
    """
    if text.isprintable():
        return text
    return "".join(map(_shown, " ".join(text.splitlines())))


def _shown(character: str) -> str:
    is_steering = unicodedata.category(character) in {"Cc", "Cs"} or character in DIRECTIONS
    return ascii(character)[1:-1] if is_steering else character


class SuiteError(Exception):
    """An error that the user can fix, in one line: where, what is wrong, what to do."""

    def __init__(self, where: object, what: str, fix: str) -> None:
        """Keep the three parts; `str()` joins them.

        Args:
            where: file (with line), option or record.
            what: what is wrong, with the value seen.
            fix: what to do about it.
        """
        self.where, self.what, self.fix = str(where), what, fix
        super().__init__(printable(" ".join(f"{where}: {what}; {fix}".split())))

    def __reduce__(self) -> tuple[type["SuiteError"], tuple[str, str, str]]:
        """Keep the three parts when the error comes from another process."""
        return type(self), (self.where, self.what, self.fix)


class UsageError(SuiteError):
    """An unknown task, model or option on a command line."""


class RecipeError(SuiteError):
    """A recipe or configuration that cannot be used."""


class DataError(SuiteError):
    """Input data that does not follow its format."""


class DataUnavailableError(DataError):
    """A data file that is missing locally and not downloadable."""


class CheckpointError(SuiteError):
    """A model folder that cannot be loaded."""


class ResultError(SuiteError):
    """A result file that cannot be written, or read back."""


def suggest(name: str, choices: Iterable[str]) -> str:
    """Return a hint with the closest choice, or with all of them if none is close."""
    choices = sorted(choices)
    close = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"choose from: {', '.join(choices)}"


def cannot_write(path: Path, error: Exception) -> ResultError:
    """Return a failed write as a `ResultError`; safetensors reports a full disk by its own exception."""
    reason = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
    fix = "free some space or give another folder with --out"
    if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        fix = MORE_FILES
    return ResultError(path, f"cannot write ({reason})", fix)
