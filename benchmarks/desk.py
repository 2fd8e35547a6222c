"""How well `apps.desk.changes` names what an update changed, on press releases with planted changes.

    PRESSBERT_DATA=DATA python -m benchmarks.desk

In each article one number gets another digit, one sentence is left out, one of another article is put in, or nothing
but the order of two sentences changes. A change is found if `changes` gives one of its kind with the planted text; all
others are false alarms. Writes docs/benchmarks/desk.md.
"""

import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from apps.desk.changes import Change, changes
from corpora.documents import RejectedRecord, read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import write_text
from corpora.official import data_root
from corpora.sentences import split_article

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "desk.md"
SOURCE = "corpus/press_releases_municipal.jsonl.gz"
NUM_ARTICLES = 200
DIGIT = re.compile(r"[1-9]")
SHORTEST, LONGEST = 300, 3_000
"""Characters of an article."""


@dataclass(frozen=True)
class Planted:
    """An updated article and what was changed."""

    new: str
    kind: str
    """Empty: nothing that is to be named."""
    part: str
    """Text that the change must hold."""


def change_number(text: str, draw: random.Random, _: str) -> Planted | None:
    """Change a digit of a number."""
    places = [found.start() for found in DIGIT.finditer(text)]
    if not places:
        return None
    at = draw.choice(places)
    digit = str(int(text[at]) % 9 + 1)
    return Planted(text[:at] + digit + text[at + 1 :], "number", digit)


def remove_sentence(text: str, draw: random.Random, _: str) -> Planted | None:
    """Leave a sentence out."""
    sentence = draw.choice(split_article(text))
    return Planted(text[: sentence.start] + text[sentence.end :], "removed", sentence.text)


def add_sentence(text: str, draw: random.Random, other: str) -> Planted | None:
    """Put in a sentence of another article."""
    sentence, place = draw.choice(split_article(other)), draw.choice(split_article(text))
    if sentence.text in text:
        return None
    return Planted(f"{text[: place.end]}\n\n{sentence.text}\n\n{text[place.end :]}", "added", sentence.text)


def swap_sentences(text: str, draw: random.Random, _: str) -> Planted | None:
    """Exchange two neighbouring sentences."""
    sentences = split_article(text)
    if len(sentences) < 2:
        return None
    k = draw.randrange(len(sentences) - 1)
    first, second = sentences[k], sentences[k + 1]
    between = text[first.end : second.start]
    return Planted(f"{text[: first.start]}{second.text}{between}{first.text}{text[second.end :]}", "", "")


PLANTS: dict[str, Callable[[str, random.Random, str], Planted | None]] = {
    "a digit": change_number,
    "a sentence left out": remove_sentence,
    "a sentence put in": add_sentence,
    "two sentences exchanged": swap_sentences,
}


def is_found(planted: Planted, change: Change) -> bool:
    """Whether a change is the planted one."""
    text = change.old_text if planted.kind == "removed" else change.new_text
    return change.kind == planted.kind and (planted.part in text or text in planted.part)


def measure(texts: Sequence[str]) -> list[tuple[str, int, int, int]]:
    """Return for each manner the number of articles, of found changes, and of false alarms."""
    draw = random.Random(0)  # noqa: S311
    rows = []
    for name, plant in PLANTS.items():
        number = found = wrong = 0
        for k, text in enumerate(texts):
            planted = plant(text, draw, texts[k - 1])
            if planted is None:
                continue
            named = [is_found(planted, change) for change in changes(text, planted.new)]
            number += 1
            found += any(named) or (not planted.kind and not named)
            wrong += len(named) - any(named)
        rows.append((name, number, found, wrong))
    return rows


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = ArgumentParser("python -m benchmarks.desk", "Measure what changes() names of planted changes.")
    parser.add_argument("--data", type=Path, help="data root; default: PRESSBERT_DATA, else the user's cache")
    root = data_root(parser.parse(argv).data)
    rejected: list[RejectedRecord] = []
    texts = [d.text for d in read_documents(root / SOURCE, rejected=rejected) if SHORTEST <= len(d.text) <= LONGEST]
    texts = random.Random(0).sample(texts, min(NUM_ARTICLES, len(texts)))  # noqa: S311
    began = time.perf_counter()
    rows = measure(texts)
    per_article_ms = 1e3 * (time.perf_counter() - began) / sum(number for _, number, _, _ in rows)
    lines = "\n".join(f"| {name} | {number} | {found / number:.1%} | {wrong} |" for name, number, found, wrong in rows)
    page = f"""# Updates of an article

`PRESSBERT_DATA=DATA python -m benchmarks.desk`

Press releases with one planted change each. *Named*: a change of the right kind holds it; of exchanged sentences,
nothing is named. *Others*: further changes that were named, false alarms all.

| planted | articles | named | others |
| --- | ---: | ---: | ---: |
{lines}

A comparison takes {per_article_ms:.0f} ms on the mean.
"""
    write_text(PAGE, page)
    sys.stdout.write(f"{PAGE}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
