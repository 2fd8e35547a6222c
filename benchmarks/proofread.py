"""How well the proofreader finds errors that are put into clean text, what it flags in clean text, and how fast it is.

    python -m benchmarks.proofread --data ROOT --out docs/benchmarks

Sentences of three genres that trained nothing get errors by rule (`benchmarks.proofread_errors`). Thresholds were
chosen on the part `tune`; the page reports on `test`. Clean text is flagged where it is wrong already, too:
`benchmarks/data/proofread_judged.tsv` says of the flags in it, with their words before and behind, whether an editor
would make the correction. One reader judged them. A flag that is not in the file counts as a false alarm.

WikiTree stands for news that had no part in anything: half of its sentences were read to find kinds of false alarms,
and a part of the other half is reported.
"""

import hashlib
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
from downstream.readers import read_tsv_rows
from downstream.writing.training import GENRES, Role, texts_of

SHORTEST, LONGEST = 5, 40
"""Eojeol of a sentence that gets errors."""
NUM_SENTENCES = 2_000
BLANK_KINDS = ("blank_missing", "blank_added")
JUDGED = Path("benchmarks/data/proofread_judged.tsv")
WIKITREE = "klue/klue-ner-raw/train-raw-sent.tsv"
AROUND = 25
"""Characters before and behind a flag that stand in the file of judgements."""
CLEAN_GENRES = ("wikinews", "press", "reviews", "wikitree")


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


def wikitree_sentences(root: Path, part: Role) -> list[str]:
    """Return sentences of WikiTree: those that are reported (`test`), those that were read before, or the rest."""
    rows = (line.split("\t") for line in (root / WIKITREE).read_text(encoding="utf-8").splitlines())
    texts = [row[1] for row in rows if row[0].endswith("_wikitree")]
    digests = [int(hashlib.sha256(text.encode()).hexdigest(), 16) % 4 for text in texts]
    wanted = {"test": (3,), "tune": (0, 2), "train": (1,)}[part]
    return [text for text, digest in zip(texts, digests, strict=True) if digest in wanted]


def shown(text: str, found: Correction) -> str:
    """Return a correction with the text around it, in one line."""
    before, behind = text[max(0, found.start - AROUND) : found.start], text[found.end : found.end + AROUND]
    return " ".join(f"{before}[{found.text}→{found.suggestions[0]}]{behind}".split())


def clean_row(name: str, texts: Sequence[str], proofreader: Proofreader, listed: list[str]) -> str:
    """Return what is flagged in clean text of a genre, and how much of it is right; every flag is added to LISTED."""
    judged = {flag: verdict for _, (verdict, flag) in read_tsv_rows(JUDGED, "verdict", "flag")}
    eojeol = sum(len(text.split()) for text in texts)
    flags: list[tuple[str, str]] = []
    for text in texts:
        flags += [(found.kind, shown(text, found)) for found in proofreader.proofread(text)]
    listed += [f"{judged.get(flag, 'new')}\t{name}\t{kind}\t{flag}" for kind, flag in flags]
    false = sum(judged.get(flag) != "error" for _, flag in flags)
    is_judged = any(flag in judged for _, flag in flags)
    alarms = f"{false} | {1000 * false / max(1, eojeol):.2f}" if is_judged else "not judged | "
    return f"| {name} | {eojeol:,} | {len(flags)} | {1000 * len(flags) / max(1, eojeol):.2f} | {alarms} |"


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
    for name in CLEAN_GENRES:
        texts = wikitree_sentences(root, part) if name == "wikitree" else texts_of(root, name, part)
        clean_rows.append(clean_row(name, texts, proofreader, listed))
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
            "| genre | eojeol | flags | flags in 1,000 eojeol | false alarms | in 1,000 eojeol |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *clean_rows,
            "",
            f"The flags were judged by eye (`{JUDGED}`): is the text wrong there, and the first suggestion right? The "
            "others are false alarms. WikiTree's sentences are those of KLUE-NER; none of them chose anything. After "
            "the flags had been read, two rules that made three of the false alarms were mended (그뿐만, 터널뿐만).",
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
