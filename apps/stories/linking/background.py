"""How often letters and words occur in headlines at large, so that what is rare does not depend on the file.

    python -m apps.stories.linking.background TITLES

TITLES is a file of headlines, as for `apps.clustering`. Written are the numbers of headlines for hashed character
n-grams and hashed words to `background.safetensors` beside this module. The bundled file was made from the 54,038
headlines of KLUE-TC (YNAT; Park et al. 2021, CC BY-SA 4.0).
"""

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apps.stories.articles import clean_title, read_articles
from apps.stories.linking.words import words_of
from apps.stories.space import NUM_HASHES, ngram_counts
from corpora.foundation.arrays import read_arrays, write_arrays
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import package_path

FILE = package_path("apps", "stories", "linking", "background.safetensors")
NUM_WORDS = 1 << 17
STEPS = 8
"""Of a byte: one more is a factor of 2 ** (1 / STEPS)."""
HOT_SHARE, HOT_TITLES = 0.5, 300
"""Weight of the words of the file itself, and titles from which on a file counts by half."""


@dataclass(frozen=True)
class Background:
    """Numbers of headlines."""

    num_titles: int
    ngrams: NDArray[np.float64]
    """(NUM_HASHES,): headlines with each hashed character n-gram."""
    words: NDArray[np.float64]
    """(NUM_WORDS,): headlines with each hashed word."""

    def ngram_weights(self, counts: NDArray[np.int64], num_titles: int) -> NDArray[np.float64]:
        """Return −log of the rate of each n-gram, given its count in a file of NUM_TITLES."""
        return self._weights(self.ngrams, counts, num_titles)

    def word_weights(self, words: Iterable[str], counts: NDArray[np.int64], num_titles: int) -> NDArray[np.float64]:
        """Return −log of the rate of each word, given its count in a file of NUM_TITLES."""
        return self._weights(self.words[[hash_word(word) for word in words]], counts, num_titles)

    def _weights(self, known: NDArray[np.float64], counts: NDArray[np.int64], num_titles: int) -> NDArray[np.float64]:
        # What the day is full of is common even if it was rare before: 백신 in 2021. The margin of two standard
        # deviations keeps the words of a single story rare, however small the file is.
        here = HOT_SHARE * np.maximum(0, counts - 2 * np.sqrt(counts)) / (num_titles + HOT_TITLES)
        weights: NDArray[np.float64] = -np.log(np.maximum((1 + known) / (1 + self.num_titles), here))
        return weights


@functools.lru_cache(1 << 17)
def hash_word(word: str) -> int:
    """Return the index of a word."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=4).digest()) % NUM_WORDS


@functools.cache
def background() -> Background:
    """Load the bundled numbers."""
    arrays = read_arrays(FILE, is_required=True)
    ngrams, words = (_restore(arrays[name]) for name in ("ngrams", "words"))
    return Background(int(arrays["num_titles"][0]), ngrams, words)


def _restore(levels: NDArray[np.uint8]) -> NDArray[np.float64]:
    counts: NDArray[np.float64] = 2 ** (levels.astype(np.float64) / STEPS) - 1
    return counts


def _compress(counts: NDArray[np.int64]) -> NDArray[np.uint8]:
    return np.round(STEPS * np.log2(1 + counts)).astype(np.uint8)


def main(argv: list[str] | None = None) -> int:
    """Count the letters and words of headlines; returns the exit code."""
    parser = ArgumentParser("python -m apps.stories.linking.background", "Count letters and words of headlines.")
    parser.add_argument("file", type=Path, metavar="TITLES", help="headlines")
    parser.add_argument("--out", type=Path, default=FILE, help="file (default: the bundled one)")
    arguments = parser.parse(argv)
    texts = sorted({clean_title(article.title) for article in read_articles(arguments.file)} - {""})
    words = np.zeros(NUM_WORDS, np.int64)
    for found in words_of(texts):
        words[[hash_word(word) for word in found.all]] += 1
    arrays: dict[str, NDArray[np.generic]] = {
        "ngrams": _compress(np.bincount(ngram_counts(texts).indices, minlength=NUM_HASHES)),
        "words": _compress(words),
        "num_titles": np.array([len(texts)], np.int64),
    }
    write_arrays(arguments.out, arrays)
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
