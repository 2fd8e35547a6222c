"""The command `python -m downstream.complete`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from corpora.readers.decoding import STANDARD_INPUT, read_text
from downstream.complete import complete


def main(argv: list[str] | None = None) -> int:
    """Complete a text from the command line."""
    parser = ArgumentParser(
        "python -m downstream.complete", "Complete the word that is being written, or the next one."
    )
    parser.add_argument(
        "file", nargs="?", type=Path, default=STANDARD_INPUT, help="text so far; default or -: the standard input"
    )
    parser.add_argument("--count", type=int, default=3, help="completions")
    parser.add_argument("--json", action="store_true", help="print JSON, a line a completion")
    arguments = parser.parse(argv)
    if arguments.count < 1:
        raise UsageError("--count", f"{arguments.count} is less than 1", "give 1 or more")
    for found in complete(read_text(arguments.file), arguments.count):
        line = (
            json.dumps(asdict(found), ensure_ascii=False) if arguments.json else f"{found.probability:.2f} {found.text}"
        )
        sys.stdout.write(f"{line}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
