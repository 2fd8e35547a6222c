"""Errors that a user can fix, each one line: where, what is wrong, what to do."""

import difflib
from collections.abc import Iterable
from pathlib import Path


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


def suggest(name: str, choices: Iterable[str]) -> str:
    """Return a hint that names the nearest real choice, and otherwise all of them."""
    choices = sorted(choices)
    close = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"choose from: {', '.join(choices)}"


def cannot_write(path: Path, error: Exception) -> ResultError:
    """Describe a failed write in the suite's manner; safetensors reports a full disk by an exception of its own."""
    reason = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
    return ResultError(path, f"cannot write ({reason})", "free some space or give another folder with --out")
