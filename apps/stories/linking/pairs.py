"""Log-odds that two titles report one event.

A logistic regression on what two titles share: character n-grams, nouns, names and numbers, each weighted by how rare
it is in headlines at large (`apps.stories.linking.background`). A value means the same in a file of any size. The
weights were fitted to marked events of one day, titles of pictures included;
`python -m benchmarks.clustering_events DATA --fit` leaves these out and gives similar values.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from apps.stories.linking.background import background
from apps.stories.linking.words import words_of
from apps.stories.space import ngram_counts

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Matrix: TypeAlias = NDArray[np.float32]

FEATURES = ("letters", "nouns", "contained", "names", "numbers", "conflict")
WEIGHTS = np.array([7.84, 6.59, -3.7, 0.29, 0.32, -0.62], np.float32)
INTERCEPT = -2.67


class PairFeatures:
    """What any two of some titles share."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Prepare distinct TEXTS."""
        from scipy.sparse import csr_array

        self.size = size = len(texts)
        counts = ngram_counts(texts)
        weights = background().ngram_weights(np.bincount(counts.indices, minlength=counts.shape[1]), size)
        letters = csr_array(
            ((1 + np.log(counts.data)) * weights[counts.indices], counts.indices, counts.indptr), shape=counts.shape
        )
        self.letters = unit_rows(letters)
        found = list(words_of(texts))
        totals = Counter(word for words in found for word in words.all)
        self._columns = {word: column for column, word in enumerate(totals)}
        self._weights = background().word_weights(totals, np.array([*totals.values()], np.int64), size)
        nouns = self._table([words.nouns for words in found])
        self.nouns = unit_rows(nouns)
        self._noun_totals = np.asarray(nouns.sum(axis=1), np.float32).ravel()
        # Products of square roots add up to the weights of shared words.
        self._shared_nouns = nouns.sqrt()
        self.names = self._table([words.names for words in found]).sqrt()
        self.numbers = self._table([words.numbers for words in found]).sqrt()
        self._num_numbers = np.array([len(words.numbers) for words in found])

    def _table(self, words: Sequence[frozenset[str]]) -> "csr_array":
        from scipy.sparse import csr_array

        columns = [sorted(self._columns[word] for word in some) for some in words]
        flat = np.array([column for some in columns for column in some], np.int64)
        starts = np.cumsum([0, *map(len, columns)])
        shape = (self.size, max(1, len(self._columns)))
        return csr_array((self._weights[flat].astype(np.float32), flat, starts), shape=shape)

    def log_odds(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Matrix:
        """Return (R, C): the log-odds of each title of ROWS with each of COLUMNS."""

        def shared(table: "csr_array") -> Matrix:
            products: Matrix = (table[rows] @ table[columns].T).toarray()
            return products

        least = np.minimum(self._noun_totals[rows][:, None], self._noun_totals[columns])
        has_number = (self._num_numbers[rows] > 0)[:, None] & (self._num_numbers[columns] > 0)
        return self._combine(
            shared(self.letters),
            shared(self.nouns),
            shared(self._shared_nouns),
            least,
            shared(self.names),
            shared(self.numbers),
            has_number,
        )

    def log_odds_of(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Matrix:
        """Return (N,): the log-odds of N pairs."""
        return (self.features_of(first, second) @ WEIGHTS + INTERCEPT).astype(np.float32)

    def features_of(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Matrix:
        """Return (N, 6): the `FEATURES` of N pairs."""

        def shared(table: "csr_array") -> Matrix:
            return np.asarray(table[first].multiply(table[second]).sum(axis=1), np.float32).ravel()

        numbers = shared(self.numbers)
        has_number = (self._num_numbers[first] > 0) & (self._num_numbers[second] > 0)
        least = np.minimum(self._noun_totals[first], self._noun_totals[second])
        return np.column_stack(
            [
                shared(self.letters),
                shared(self.nouns),
                shared(self._shared_nouns) / np.maximum(least, 1),
                np.log1p(shared(self.names)),
                np.log1p(numbers),
                has_number & (numbers == 0),
            ]
        ).astype(np.float32)

    @staticmethod
    def _combine(
        letters: Matrix,
        nouns: Matrix,
        shared: Matrix,
        least: Matrix,
        names: Matrix,
        numbers: Matrix,
        has_number: NDArray[np.bool_],
    ) -> Matrix:
        odds = WEIGHTS[0] * letters + WEIGHTS[1] * nouns + WEIGHTS[2] * shared / np.maximum(least, 1)
        odds += WEIGHTS[3] * np.log1p(names) + WEIGHTS[4] * np.log1p(numbers)
        odds += WEIGHTS[5] * (has_number & (numbers == 0)) + np.float32(INTERCEPT)
        combined: Matrix = odds.astype(np.float32)
        return combined


def unit_rows(table: "csr_array") -> "csr_array":
    """Return a table with rows of length 1 or 0, in single precision."""
    lengths = np.sqrt(np.asarray(table.multiply(table).sum(axis=1)).ravel())
    lengths = np.repeat(np.where(lengths > 0, lengths, 1), np.diff(table.indptr))
    scaled = table.copy()
    scaled.data = (table.data / lengths).astype(np.float32)
    return scaled
