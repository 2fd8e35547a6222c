"""The command `python -m downstream.awkward`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from corpora.documents import RejectedRecord, read_texts, report_rejected
from corpora.foundation.command import ArgumentParser, run_command
from corpora.readers.decoding import STANDARD_INPUT
from downstream.awkward import awkward
from downstream.writing.files import place_of


def main(argv: list[str] | None = None) -> int:
    """Find awkward wording from the command line."""
    parser = ArgumentParser("python -m downstream.awkward", "Find awkward wording in Korean text.")
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="text files, folders; default or -: the standard input"
    )
    parser.add_argument("--unlikely", action="store_true", help="find words that the bundled encoder does not expect")
    parser.add_argument("--quotations", action="store_true", help="judge quotations, too")
    parser.add_argument("--json", action="store_true", help="print JSON, a line a finding")
    arguments = parser.parse(argv)
    rejected: list[RejectedRecord] = []
    for name, text in read_texts(arguments.files or [Path(STANDARD_INPUT)], rejected):
        for found in awkward(text, unlikely=arguments.unlikely, quotations=arguments.quotations):
            if arguments.json:
                line = json.dumps(asdict(found), ensure_ascii=False)
            else:
                line = f"{name}:{place_of(text, found.start)}: {found.text} ({found.kind}) {found.reason}"
            sys.stdout.write(f"{line}\n")
    return report_rejected(rejected)


if __name__ == "__main__":
    run_command(main)
