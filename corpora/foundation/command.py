"""Command lines: arguments, exit codes, and one line on stderr for every error that a user can fix."""

import argparse
import contextlib
import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from corpora.foundation.errors import MORE_FILES, SuiteError, UsageError, printable, suggest
from corpora.foundation.floors import DISTRIBUTIONS, MissingPackageError, extras

EXHAUSTED = {errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EROFS}
"""Errors of a system that has no room left, wherever they occur."""
EXIT_DONE, EXIT_FAILED_CELLS, EXIT_USER_MUST_FIX = 0, 1, 2


_TYPED: dict[str, str] = {}
"""Name of a program → what was typed in its place."""


@contextlib.contextmanager
def typed_as(typed: str, *programs: str) -> Iterator[None]:
    """Let the parsers of PROGRAMS call themselves TYPED in usage and errors."""
    _TYPED.update(dict.fromkeys(programs, typed))
    try:
        yield
    finally:
        for program in programs:
            del _TYPED[program]


def program_name(prog: str) -> str:
    """Return what was typed for PROG, which may be a program and one of its actions."""
    for program, typed in _TYPED.items():
        if prog == program or prog.startswith(f"{program} "):
            return typed + prog[len(program) :]
    return prog


class LineFormatter(logging.Formatter):
    """Writes a message as one line: a name in it that has line breaks forges no other line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        """Return the line; a traceback follows it."""
        record.message = printable(record.message)
        return super().formatMessage(record)


class ArgumentParser(argparse.ArgumentParser):
    """An `argparse` parser whose errors are a `UsageError` that names the nearest real option.

    argparse rather than Typer, because the public commands take lists (`--models A B`), which click cannot parse.
    """

    def __init__(self, prog: str, description: str) -> None:
        """Start a parser for PROG; every command has `--verbose`."""
        super().__init__(prog=program_name(prog), description=description, allow_abbrev=False)
        self.add_argument("--verbose", action="store_true", help="log progress, not only warnings")

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage and exiting."""
        raise UsageError(self.prog, message, f"see {self.prog} --help")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Convert values; an empty path, which would be the current folder, is refused."""
        if action.type is Path and "" in arg_strings:
            self.error(f"{'/'.join(action.option_strings) or action.dest} is empty")
        return super()._get_values(action, arg_strings)

    def parse(self, argv: list[str] | None) -> argparse.Namespace:
        """Parse ARGV (default: the process's), and set up logging.

        Raises:
            UsageError: an option is unknown or a value is not allowed.
        """
        known, unknown = self.parse_known_args(argv)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            raise UsageError(self.prog, f"unknown option '{unknown[0]}'", suggest(unknown[0], options))
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logging.basicConfig(level=logging.INFO if known.verbose else logging.WARNING, handlers=[handler])
        return known


def _with_limit(error: SuiteError) -> SuiteError:
    """Return an error with what to do where it comes from a lack of descriptors, wherever that was noticed."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno in {errno.EMFILE, errno.ENFILE}:
        return SuiteError(error.where, error.what, MORE_FILES)
    return error


def run_command(main: Callable[[list[str] | None], int]) -> NoReturn:
    """Run a command's MAIN as a process: a `SuiteError` becomes one line on stderr and exit code 2."""
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")  # a console without Hangul shows ? instead of a traceback
    try:
        code = main(None)
    except SuiteError as error:
        sys.stderr.write(f"{_with_limit(error)}\n")
        code = EXIT_USER_MUST_FIX
    except ModuleNotFoundError as error:
        name = (error.name or "").split(".")[0]
        if not any(DISTRIBUTIONS.get(name, name) in packages for packages in extras().values()):
            raise
        sys.stderr.write(f"{MissingPackageError(name)}\n")
        code = EXIT_USER_MUST_FIX
    except UnicodeEncodeError as error:
        # Question marks in place of a summary would pass for one.
        where, character = f"standard output ({error.encoding})", ascii(error.object[error.start])
        sys.stderr.write(f"{where}: it has no character {character}; set PYTHONIOENCODING=utf-8, or write to a file\n")
        code = EXIT_USER_MUST_FIX
    except BrokenPipeError:
        # The reader of stdout closed it (… | head), which is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_DONE
    except OSError as error:
        if error.errno not in EXHAUSTED:
            raise
        fix = "free some space, or raise the limit of open files (ulimit -n)"
        sys.stderr.write(f"{error.filename or 'system'}: cannot write or open ({error.strerror}); {fix}\n")
        code = EXIT_USER_MUST_FIX
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; finished work is kept, run the same command again to continue\n")
        code = 130
    sys.exit(code)
