"""Words that are missing in sentences of news: how often a model has the right one among its first candidates.

    python -m benchmarks.blanks
    python -m benchmarks.blanks --model runs/encoder

The page in the docs is the bundled encoder's; that of other models is printed, or written to `--out`.

The sentences of `data/news_blanks.tsv` are ours, each with every answer that an editor would accept; they were written
before the models that are measured on them were trained. A candidate is right if it is one of the answers to the
letter.
"""

import argparse
import csv
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora.foundation.command import run_command
from corpora.foundation.files import package_path, sha256, write_text
from downstream.fill_mask import MaskFiller

SENTENCES = package_path("benchmarks", "data", "news_blanks.tsv")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "blanks.md"
FIRST = (1, 5)
"""Numbers of candidates that are looked at."""


@dataclass(frozen=True)
class NewsBlank:
    """A sentence with one `[MASK]`."""

    sentence: str
    answers: frozenset[str]


def read_blanks(path: Path = SENTENCES) -> list[NewsBlank]:
    """Read the sentences and their answers."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return [NewsBlank(row["sentence"], frozenset(row["answers"].split("|"))) for row in rows]


def ranks(filler: MaskFiller, blanks: Sequence[NewsBlank]) -> list[int | None]:
    """Return the rank of the first right candidate of every sentence, counted from 1; None: not among the first."""
    found: list[int | None] = []
    for blank in blanks:
        [filled] = filler.fill(blank.sentence, num_candidates=max(FIRST))
        places = [rank for rank, c in enumerate(filled.candidates, start=1) if c.text in blank.answers]
        found.append(places[0] if places else None)
    return found


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share. Source: Wilson 1927."""
    z, share = 1.959964, hits / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return middle - half, middle + half


def main(argv: list[str] | None = None) -> int:
    """Measure every model and write or print the page."""
    parser = argparse.ArgumentParser(description="Missing words in sentences of news.")
    parser.add_argument("--model", action="append", default=[], type=Path, help="folder; default: the bundled encoder")
    parser.add_argument("--out", type=Path, help="page to write; default: printed, or the docs' page without --model")
    arguments = parser.parse_args(argv)
    out = arguments.out or (None if arguments.model else PAGE)
    blanks = read_blanks()
    fillers = {path.name: MaskFiller.load(path) for path in arguments.model} or {"bundled encoder": MaskFiller.load()}
    results = {name: ranks(filler, blanks) for name, filler in fillers.items()}
    if out:
        write_text(out, page(blanks, results, fillers))
    else:
        sys.stdout.write(page(blanks, results, fillers))
    return 0


def page(blanks: Sequence[NewsBlank], results: dict[str, list[int | None]], fillers: dict[str, MaskFiller]) -> str:
    """Return the page."""
    lines = [
        "# Missing words in sentences of news",
        "",
        f"`python -m benchmarks.blanks` on {len(blanks)} sentences of our own (`benchmarks/data/news_blanks.tsv`, "
        f"sha256 {sha256(SENTENCES)[:12]}). A candidate is right if it is one of the answers to the letter. 95 % "
        "intervals.",
        "",
        "| model | parameters | " + " | ".join(f"right among the first {count}" for count in FIRST) + " |",
        "| --- | ---: | " + " | ".join("---:" for _ in FIRST) + " |",
    ]
    for name, found in results.items():
        cells = []
        for count in FIRST:
            hits = sum(rank is not None and rank <= count for rank in found)
            low, high = wilson(hits, len(found))
            cells.append(f"{hits / len(found):.0%} [{low:.0%}, {high:.0%}]")
        lines.append(f"| {name} | {fillers[name].num_parameters:,} | {' | '.join(cells)} |")
    lines += ["", "| sentence | answers | " + " | ".join(results) + " |"]
    lines += ["| --- | --- | " + " | ".join("---:" for _ in results) + " |"]
    for number, blank in enumerate(blanks):
        placed = " | ".join(str(found[number] or "–") for found in results.values())
        lines.append(f"| {blank.sentence} | {', '.join(sorted(blank.answers))} | {placed} |")
    lines += ["", "The columns of models give the rank of the first right candidate."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run_command(main)
