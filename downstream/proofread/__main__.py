"""The command `python -m downstream.proofread`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from corpora.documents import RejectedRecord, read_texts, report_rejected
from corpora.foundation.command import ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from corpora.readers.decoding import STANDARD_INPUT
from downstream.proofread import DEFAULT_KINDS, KINDS, MIN_CONFIDENCE, Proofreader, apply
from downstream.writing.files import place_of


def main(argv: list[str] | None = None) -> int:
    """Find or fix errors from the command line."""
    parser = ArgumentParser("python -m downstream.proofread", "Find errors in Korean text.")
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="text files, folders; default or -: the standard input"
    )
    parser.add_argument("--fix", action="store_true", help="print the corrected text, line breaks kept")
    parser.add_argument("--only", nargs="+", metavar="KIND", help=f"of {', '.join(KINDS)}; default: all but style")
    parser.add_argument("--quotations", action="store_true", help="correct quotations, too")
    parser.add_argument("--house", type=Path, metavar="TOML", help="house list for --only style")
    parser.add_argument("--min-confidence", type=float, default=MIN_CONFIDENCE)
    parser.add_argument("--json", action="store_true", help="print JSON, a line a correction")
    arguments = parser.parse(argv)
    only = arguments.only or DEFAULT_KINDS
    if unknown := [kind for kind in only if kind not in KINDS]:
        raise UsageError("--only", f"unknown kind '{unknown[0]}'", f"choose from {', '.join(KINDS)}")
    proofreader = Proofreader.load(arguments.house)
    rejected: list[RejectedRecord] = []
    for name, text in read_texts(arguments.files or [Path(STANDARD_INPUT)], rejected):
        found = proofreader.proofread(
            text, only=only, quotations=arguments.quotations, min_confidence=arguments.min_confidence
        )
        if arguments.fix:
            sys.stdout.write(apply(text, found))
            continue
        for correction in found:
            if arguments.json:
                line = json.dumps(asdict(correction), ensure_ascii=False)
            else:
                suggestions = " / ".join(correction.suggestions)
                line = (
                    f"{name}:{place_of(text, correction.start)}: {correction.text} → {suggestions}"
                    f" ({correction.kind}, {correction.confidence:.2f}) {correction.reason}"
                )
            sys.stdout.write(f"{line}\n")
    return report_rejected(rejected)


if __name__ == "__main__":
    run_command(main)
