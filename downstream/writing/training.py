"""Train what the writing tools come with: the model of blanks and the lexicon, from free text.

    python -m downstream.writing.training --data ROOT --out downstream/writing

Texts of news, press releases and reviews are divided by a hash: half of them train, a quarter chooses thresholds, a
quarter is what benchmarks report on. Texts that were written with care teach blanks; a part of the blanks is taken out
of them at random, more in some stretches than in others, so that the model does not rely on its neighbours being right.
"""

import hashlib
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from corpora.characters import nfc
from corpora.documents import read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.official import data_root
from downstream.writing.lexicon import Lexicon
from downstream.writing.linear import GapModel, Letters, train_gaps

Role = Literal["train", "tune", "test"]
GENRES: dict[str, str] = {
    "wikinews": "corpus/boddari_wikinews.csv",
    "press": "corpus/press_releases_municipal.jsonl.gz",
    "reviews": "corpus/boddari_book_review01.csv",
}
"""What is divided: a genre and its file."""
WHOLE: dict[str, int] = {
    "corpus/press_releases_korea_kr.jsonl.gz": 10**9,
    "corpus/boddari_book_review02.csv": 10**9,
    "corpus/boddari_fairytale01.csv": 10**9,
    "corpus/petitions.jsonl.gz": 10**9,
    "corpus/msdocs_learn_ko.jsonl.gz": 2_000_000,
    "corpus/msdocs_dynamics365_ko.jsonl.gz": 1_500_000,
    "corpus/msdocs_architecture_ko.jsonl.gz": 1_000_000,
    "corpus/court_rulings_kr.part1.jsonl.gz": 4_000_000,
    "corpus/boddari_unesco_report.txt": 10**9,
}
"""What trains as a whole: a file, and the characters that are read of it."""
PAIRS = {
    "klue/klue-nli-v1.1/klue-nli-v1.1_train.json": ("premise", "hypothesis"),
    "klue/klue-sts-v1.1/klue-sts-v1.1_train.json": ("sentence1", "sentence2"),
}
"""Sentences of everyday language."""
NUM_BUCKETS = 1 << 22
CHUNK = 100_000
"""Letters that are computed together."""
STRETCH = 200
"""Letters with the same rate of errors."""
RATES = (0.02, 0.1, 0.3, 0.6)
"""Shares of blanks that are taken out of a stretch, drawn at random."""
RATE_ADDED = 0.01
EOJEOL = re.compile(r"(?<!\S)[^\w\s]*([가-힣]{1,12})[^\w\s]*(?!\S)")


def role_of(text: str) -> Role:
    """Return what a text is used for; it depends on the text alone."""
    number = int(hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(), 16) % 4
    return "test" if number == 0 else "tune" if number == 1 else "train"


def texts_of(root: Path, genre: str, role: Role) -> list[str]:
    """Return the texts of a genre that have a role.

    Raises:
        DataError: the file is missing or no such file.
    """
    documents = read_documents(root / GENRES[genre], rejected=[])
    return [document.text for document in documents if role_of(document.text) == role]


def training_texts(root: Path) -> Iterator[str]:
    """Yield all texts that train."""
    for genre in GENRES:
        yield from texts_of(root, genre, "train")
    for path, limit in WHOLE.items():
        size = 0
        for document in read_documents(root / path, rejected=[]):
            yield document.text
            size += len(document.text)
            if size > limit:
                break
    for path, names in PAIRS.items():
        rows = json.loads((root / path).read_text(encoding="utf-8"))
        yield from dict.fromkeys(nfc(row[name]) for row in rows for name in names)


def count_eojeol(texts: Sequence[str], fewest: int = 2) -> dict[str, int]:
    """Return how often each eojeol of Hangul letters occurs, but those that occur less than FEWEST times."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(EOJEOL.findall(text))
    return {word: count for word, count in counts.items() if count >= fewest}


def fit_blanks(texts: Sequence[str], *, num_buckets: int = NUM_BUCKETS, epochs: int = 2) -> GapModel:
    """Train the model of blanks."""

    def batches(epoch: int) -> Iterator[tuple[Letters, np.ndarray]]:
        rng = np.random.default_rng(epoch)
        for chunk in _chunks(texts):
            letters = Letters.of(chunk)
            number = len(letters.blanks)
            rates = np.repeat(rng.choice(RATES, size=number // STRETCH + 1), STRETCH)[:number]
            noisy = letters.blanks.copy()
            noisy[(rng.random(number) < rates) & (letters.blanks == 1)] = 0
            noisy[(rng.random(number) < RATE_ADDED) & (letters.blanks == 0)] = 1
            yield Letters(letters.codes, noisy, letters.positions), letters.blanks

    return train_gaps(batches, num_buckets=num_buckets, epochs=epochs, learning_rate=0.1, smallest=0.02)


def _chunks(texts: Sequence[str]) -> Iterator[str]:
    waiting: list[str] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size > CHUNK:
            yield "\n".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield "\n".join(waiting)


def main(argv: list[str] | None = None) -> int:
    """Train from the command line."""
    parser = ArgumentParser("python -m downstream.writing.training", "Train the model of blanks and the lexicon.")
    parser.add_argument("--data", type=Path, help="data root")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse(argv)
    texts = list(training_texts(data_root(arguments.data)))
    random.Random(arguments.seed).shuffle(texts)  # noqa: S311 - no secrets
    arguments.out.mkdir(parents=True, exist_ok=True)
    Lexicon.of(count_eojeol(texts)).save(arguments.out / "lexicon.safetensors")
    fit_blanks(texts).save(arguments.out / "spacing.safetensors")
    sys.stdout.write(f"{len(texts)} texts, {sum(map(len, texts))} characters\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
