"""What the commands of the writing tools read, and how they name a place in it."""

import sys
from pathlib import Path

from corpora.foundation.errors import DataError

STANDARD_INPUT = "-"


def read_text(path: str) -> str:
    """Return the text of a file, or of the standard input for `-`, with its line breaks as they are.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        if path == STANDARD_INPUT:
            return sys.stdin.read()
        with Path(path).open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(path, f"cannot be read ({error})", "give a text file in UTF-8") from error


def place_of(text: str, offset: int) -> str:
    """Return line and column of an offset, both from 1 on."""
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - text.rfind(chr(10), 0, offset)}"
