"""How well the proofreader finds errors that are put into clean text, what it flags in clean text, and how fast it is.

    python -m benchmarks.proofread --data ROOT --out docs/benchmarks

Sentences of three genres that trained nothing get errors by rule (`benchmarks.proofread_errors`). Thresholds were
chosen on the part `tune`; the page reports on `test`. Clean text is flagged where it is wrong already, too: the page
lists the flags so that they can be judged.
"""

import random
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.proofread_errors import RATES, Planted, plant
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import write_text
from corpora.official import data_root
from corpora.sentences import split_article
from downstream.proofread import Correction, Proofreader
from downstream.writing.training import GENRES, Role, texts_of

SHORTEST, LONGEST = 5, 40
"""Eojeol of a sentence that gets errors."""
NUM_SENTENCES = 2_000
BLANK_KINDS = ("blank_missing", "blank_added")


@dataclass
class Tally:
    """Counts of one genre and one group of kinds."""

    found: int = 0
    missed: int = 0
    false: int = 0
    first: int = 0
    """Errors found whose first suggestion is right."""
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def precision(self) -> float:
        """Share of the flags that are errors."""
        return self.found / max(1, self.found + self.false)

    @property
    def recall(self) -> float:
        """Share of the errors that are flagged."""
        return self.found / max(1, self.found + self.missed)

    @property
    def f0_5(self) -> float:
        """F with twice the weight on precision."""
        precision, recall = self.precision, self.recall
        return 1.25 * precision * recall / max(1e-9, 0.25 * precision + recall)


def compare(planted: Planted, corrections: Sequence[Correction], tallies: dict[str, Tally]) -> None:
    """Count what was found in a sentence; what is flagged although nothing was put there counts as false."""
    used: set[int] = set()
    for start, end, right, kind in planted.errors:
        name = "spacing" if kind in BLANK_KINDS else "spelling"
        at = next((k for k, c in enumerate(corrections) if c.start < end and start < c.end), None)
        tally = tallies[name]
        if at is None:
            tally.missed += 1
            continue
        used.add(at)
        found = corrections[at]
        fixed = planted.text[: found.start] + found.suggestions[0] + planted.text[found.end :]
        tally.found += 1
        tally.kinds[kind] += 1
        tally.first += right in fixed[max(0, start - 3) : end + 8]
    for k, found in enumerate(corrections):
        if k not in used:
            tallies["spacing" if found.kind == "spacing" else "spelling"].false += 1


def sentences_of(texts: Sequence[str], limit: int, rng: random.Random) -> list[str]:
    """Return sentences of one line and ordinary length, at random."""
    found = [
        sentence.text
        for text in texts
        for sentence in split_article(text)
        if SHORTEST <= len(sentence.text.split()) <= LONGEST and "\n" not in sentence.text and "  " not in sentence.text
    ]
    rng.shuffle(found)
    return found[:limit]


def start_cost() -> tuple[float, float]:
    """Return the seconds and megabytes of a fresh process that answers once."""
    code = (
        "import resource, time; begun = time.perf_counter(); from downstream.proofread import proofread;"
        "proofread('이렇게 하면 안되요.');"
        "print(time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    seconds, megabytes = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    return float(seconds), float(megabytes)


def page(root: Path, part: Role, flags: Path | None) -> str:
    """Measure, and return the page as Markdown."""
    proofreader = Proofreader.load()
    rows, clean_rows = [], []
    listed: list[str] = []
    num_sentences, elapsed_s = 0, 0.0
    for genre in GENRES:
        texts = texts_of(root, genre, part)
        rng = random.Random(7)  # noqa: S311 - no secrets
        planted = [plant(sentence, rng) for sentence in sentences_of(texts, NUM_SENTENCES, rng)]
        begun = time.process_time()
        found = [proofreader.proofread(one.text) for one in planted]
        elapsed_s += time.process_time() - begun
        num_sentences += len(planted)
        tallies = {"spacing": Tally(), "spelling": Tally()}
        for one, corrections in zip(planted, found, strict=True):
            compare(one, corrections, tallies)
        for name, t in tallies.items():
            rows.append(
                f"| {genre} | {name} | {t.found + t.missed} | {t.precision:.3f} | {t.recall:.3f} | {t.f0_5:.3f}"
                f" | {t.first / max(1, t.found):.3f} |"
            )
        eojeol, flagged = 0, 0
        for text in texts:
            eojeol += len(text.split())
            for c in proofreader.proofread(text):
                flagged += 1
                around = f"{text[max(0, c.start - 15) : c.start]}[{c.text}]{text[c.end : c.end + 15]}".replace(
                    "\n", " "
                )
                listed.append(f"{genre}\t{c.kind}\t{around}\t{c.suggestions[0]}".replace("\n", " "))
        clean_rows.append(f"| {genre} | {eojeol:,} | {flagged} | {1000 * flagged / max(1, eojeol):.2f} |")
    if flags:
        write_text(flags, "\n".join(listed) + "\n")
    seconds, megabytes = start_cost()
    rates = ", ".join(f"{kind} {rate:g}" for kind, rate in RATES.items())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return "\n".join(
        [
            "# Proofreader: errors put into clean text",
            "",
            f"`python -m benchmarks.proofread --data ROOT --part {part}`",
            "",
            f"Errors a hundred eojeol: {rates}. The rate of `sound` counts only words that have a sound-alike.",
            "",
            "| genre | errors | number | precision | recall | F0.5 | first suggestion right |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
            *rows,
            "",
            "Flags that lie on no planted error count as false, although the text may be wrong there.",
            "",
            "## Clean text",
            "",
            "| genre | eojeol | flags | flags in 1,000 eojeol |",
            "| --- | ---: | ---: | ---: |",
            *clean_rows,
            "",
            "## Cost, on one core",
            "",
            "| sentences/s | first answer of a process, s | its memory, MB | peak of this benchmark, MB |",
            "| ---: | ---: | ---: | ---: |",
            f"| {num_sentences / elapsed_s:.0f} | {seconds:.2f} | {megabytes:.0f} | {peak:.0f} |",
            "",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = ArgumentParser("python -m benchmarks.proofread", "Measure the proofreader.")
    parser.add_argument("--data", type=Path, help="data root")
    parser.add_argument("--part", choices=("tune", "test"), default="test")
    parser.add_argument("--out", type=Path, help="folder of the page; default: standard output")
    parser.add_argument("--flags", type=Path, help="file for what is flagged in clean text")
    arguments = parser.parse(argv)
    text = page(data_root(arguments.data), arguments.part, arguments.flags)
    if arguments.out:
        write_text(arguments.out / "proofread.md", text)
    sys.stdout.write(text)
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
