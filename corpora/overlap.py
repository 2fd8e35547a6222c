"""Occurrences of evaluation texts in training text, by five measures; the training text is streamed.

Evaluation texts are indexed. Of every training document its *passages* are compared with them: its title, its text
and, where there are several, the lines of these. *Letters* are what is left of a text after NFC, case folding and the
removal of all but letters and digits: white space, punctuation, symbols and emoji go. The measures:

- `exact`: a passage equals the text; both as NFC, without the white space around them. An empty text equals another.
- `normalised`: a passage has the same letters, or title or text of the document contain the letters of an evaluation
  text of at least `min_quote` letters, wherever words and sentences begin and end. Shorter texts are found only where
  they stand alone, as “재밌다” is part of any number of reviews.
- `ngram`: 13 eojeol in a row, compared by their letters, are in a title or text. One is enough, as for GPT-3 (Brown et
  al. 2020, appendix C). A text of fewer than 13 eojeol has no such n-gram: the measure does not apply to it, and it
  counts neither as touched nor as clean. Most Korean reviews and questions are so short, hence the next one.
- `letter_ngram`: the same with 13 letters in a row, some four eojeol. These recur by chance in what is not copied, so
  a text is touched if `min_share` of its distinct n-grams are somewhere in the training text, all documents taken
  together: the rule and the share of PaLM (Chowdhery et al. 2022, section 8) for n-grams of eight words. It does not
  apply to texts of fewer than 13 letters.
- `minhash`: the sets of 5 letters in a row of the text and of a passage, or of a sentence of at least `min_quote`
  letters in it, have a Jaccard index of at least `min_jaccard`. MinHash with banding (Broder 1997; Leskovec et al.,
  Mining of Massive Datasets, chapter 3) proposes the pairs, whose index is then counted, not estimated: no pair is
  wrongly found, one of exactly 0.8 is missed with a probability of 0.02 %, and one of 0.9 with 4·10⁻⁸. It does not
  apply to texts of fewer than 5 letters.

>>> from corpora.training_text import Block, TrainingText
>>> index = EvaluationIndex(["금리가 올랐다!"])
>>> index.scan(Block([TrainingText("1", ("금리가  올랐다", "총재는 말을 아꼈다."))]))
>>> [(measure, match.document, match.snippet) for measure in MEASURES for match in index.matches(measure)]
[('normalised', '1', '금리가 올랐다'), ('minhash', '1', '금리가 올랐다')]
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from corpora.characters import nfc
from corpora.cleaning import MIN_QUOTE, letters_of
from corpora.foundation.config import Config
from corpora.near_duplicates import (
    MAX_SETS,
    HashTable,
    IntArray,
    ShingleSets,
    SimilarSets,
    first_of_runs,
    letter_codes,
    spans,
    window_hashes,
)
from corpora.training_text import Block

Measure: TypeAlias = Literal["exact", "normalised", "ngram", "letter_ngram", "minhash"]
MEASURES: tuple[Measure, ...] = get_args(Measure)

MAX_UNIT_LETTERS = 1 << 21
"""Letters of the passages and sentences whose sets of shingles are in memory at a time; one alone may have more."""


class OverlapConfig(Config):
    """What counts as overlap."""

    ngram: int = Field(default=13, ge=1)
    """Eojeol, or letters, of an n-gram; GPT-3's number of words."""
    min_share: float = Field(default=0.7, gt=0, le=1)
    """Share of a text's letter n-grams from which on it is touched; PaLM's."""
    min_quote: int = Field(default=MIN_QUOTE, ge=1)
    """Letters from which on a text within a longer one, or a sentence, is nothing that people write by chance; a text
    within a longer one must have those of an n-gram, too."""
    shingle: int = Field(default=5, ge=1)
    """Letters of the n-grams whose sets MinHash compares."""
    min_jaccard: float = Field(default=0.8, gt=0, le=1)
    """Jaccard index of these sets from which on a text is touched."""
    bands: int = Field(default=16, ge=1)
    """Bands of a signature; two texts that agree in one of them are compared."""
    rows: int = Field(default=4, ge=1)
    """Hash functions of a band."""


@dataclass(frozen=True)
class Match:
    """An evaluation text that is touched by training text."""

    text: int
    """Its number in the index."""
    similarity: float
    """1 for `exact` and `normalised`, share of n-grams in the training text, highest Jaccard index."""
    num_documents: int
    """Training documents in which it is; for n-grams, those with at least one of them."""
    document: str
    """Id of the training document that is closest; the first of several."""
    snippet: str
    """The text there."""


# ---- what is found ----


@dataclass(frozen=True)
class _Found:
    """Pairs of evaluation texts and documents of a block, in any order and perhaps more than once."""

    texts: IntArray
    documents: IntArray
    similarities: NDArray[np.float64]
    positions: IntArray
    """Where in the block's letters."""

    @classmethod
    def from_positions(
        cls, texts: Sequence[int] | IntArray, positions: Sequence[int] | IntArray, block: Block
    ) -> "_Found":
        """Return pairs that are wholly alike."""
        found = np.asarray(positions, np.int64)
        return cls(np.asarray(texts, np.int64), block.documents_at(found), np.ones(len(found)), found)

    def __add__(self, other: "_Found") -> "_Found":
        """Return the pairs of both."""
        columns = ("texts", "documents", "similarities", "positions")
        return _Found(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in columns))


class _Record:
    """What was found of each evaluation text by one measure, block after block."""

    def __init__(self, lengths: Sequence[int]) -> None:
        """Begin with nothing found; LENGTHS are those of the texts, in letters."""
        self._lengths = lengths
        self.num_documents = 0
        """Documents that touch any text."""
        self.per_text = np.zeros(len(lengths), np.int64)
        """Documents that touch it, for each text."""
        self.best = np.zeros(len(lengths))
        self.where: dict[int, tuple[str, str]] = {}
        """Document and snippet of the closest, for each text that was found."""

    def add(self, block: Block, found: _Found) -> None:
        """Count the pairs of a block, and keep the closest document of each text: the first of equals."""
        order = np.lexsort((found.positions, -found.similarities, found.documents, found.texts))
        texts, documents = found.texts[order], found.documents[order]
        pairs = order[first_of_runs(texts, documents)]
        self.per_text += np.bincount(found.texts[pairs], minlength=len(self._lengths))
        self.num_documents += len(np.unique(documents))
        ranked = pairs[np.lexsort((found.documents[pairs], -found.similarities[pairs], found.texts[pairs]))]
        closest = ranked[first_of_runs(found.texts[ranked])]
        closest = closest[found.similarities[closest] > self.best[found.texts[closest]]]
        self.best[found.texts[closest]] = found.similarities[closest]
        # By position, so that a long text is searched for snippets once.
        for pair in closest[np.argsort(found.positions[closest])].tolist():
            text = int(found.texts[pair])
            snippet = block.snippet(int(found.positions[pair]), self._lengths[text])
            self.where[text] = (block.ids[int(found.documents[pair])], snippet)


class _NgramCounts:
    """Which evaluation texts have which n-grams, and which n-grams were seen in the training text."""

    def __init__(self, grams: IntArray, texts: IntArray, num_texts: int) -> None:
        """Take pairs of an n-gram's number and a text's, in any order and perhaps more than once."""
        order = np.lexsort((texts, grams))
        kept = order[first_of_runs(grams[order], texts[order])]
        self._grams, self._texts = grams[kept], texts[kept]
        num_grams = int(self._grams[-1]) + 1 if len(kept) else 0
        self._starts = np.searchsorted(self._grams, np.arange(num_grams + 1))
        self._sizes = np.bincount(self._texts, minlength=num_texts)
        """Distinct n-grams of each text."""
        self._seen = np.zeros(num_grams, np.bool_)

    def count(self, grams: IntArray, documents: IntArray, positions: IntArray) -> _Found:
        """Note n-grams as seen; return how much of each text was seen in each document.

        Args:
            grams: number of each n-gram that was found.
            documents: the document it was found in.
            positions: and where in the block.
        """
        self._seen[grams] = True
        order = np.lexsort((positions, grams, documents))
        kept = order[first_of_runs(documents[order], grams[order])]
        num_texts = np.diff(self._starts)[grams[kept]]
        texts = self._texts[spans(self._starts[grams[kept]], num_texts)]
        documents, positions = np.repeat(documents[kept], num_texts), np.repeat(positions[kept], num_texts)
        order = np.lexsort((positions, documents, texts))
        first = first_of_runs(texts[order], documents[order])
        counts = np.diff(first, append=len(order))
        pairs = order[first]
        return _Found(texts[pairs], documents[pairs], counts / self._sizes[texts[pairs]], positions[pairs])

    def shares(self) -> NDArray[np.float64]:
        """Return the share of each text's distinct n-grams that were seen; 0 for a text without any."""
        num_seen = np.bincount(self._texts, weights=self._seen[self._grams], minlength=len(self._sizes))
        return num_seen / np.maximum(self._sizes, 1)


class EvaluationIndex:
    """Evaluation texts that can be found in training text."""

    def __init__(self, texts: Sequence[str], config: OverlapConfig | None = None) -> None:
        """Index TEXTS, of any normalisation form; memory is about 4 kB a text of 40 letters."""
        self.config = config or OverlapConfig()
        composed = [nfc(text) for text in texts]
        self._letters = [letters_of(text) for text in composed]
        self._eojeol = [_eojeol_of(text) for text in composed]
        self.lengths = [len(letters) for letters in self._letters]
        """Letters of each text."""
        self._by_text: defaultdict[str, list[int]] = defaultdict(list)
        self._by_letters: defaultdict[str, list[int]] = defaultdict(list)
        for number, (text, letters) in enumerate(zip(composed, self._letters, strict=True)):
            self._by_text[text.strip()].append(number)
            if letters:
                self._by_letters[letters].append(number)
        self._index_letter_ngrams()
        self._index_ngrams()
        self._similar = _SimilarTexts(self._codes, self._starts, np.array(self.lengths, np.int64), self.config)
        self._records: dict[Measure, _Record] = {measure: _Record(self.lengths) for measure in MEASURES}

    def _index_letter_ngrams(self) -> None:
        width = self.config.ngram
        self._codes = letter_codes("\n".join(self._letters))
        lengths = np.array(self.lengths, np.int64)
        self._starts = np.cumsum(lengths + 1) - (lengths + 1)
        num_windows = np.maximum(lengths - width + 1, 0)
        windows = spans(self._starts, num_windows)
        hashes, first, grams = np.unique(
            window_hashes(self._codes, width)[windows], return_index=True, return_inverse=True
        )
        self._letter_grams = HashTable(hashes)
        self._letter_gram_positions = windows[first]
        owners = np.repeat(np.arange(len(lengths)), num_windows)
        self._letter_counts = _NgramCounts(grams, owners, len(lengths))
        # A text within a longer one is looked for where its first n-gram is.
        self._quotes: defaultdict[int, list[int]] = defaultdict(list)
        first_windows = np.cumsum(num_windows) - num_windows
        for text in np.flatnonzero(lengths >= max(width, self.config.min_quote)).tolist():
            self._quotes[int(grams[first_windows[text]])].append(text)
        self._is_quote = np.zeros(len(hashes), np.bool_)
        self._is_quote[list(self._quotes)] = True

    def _index_ngrams(self) -> None:
        self._grams: dict[str, int] = {}
        grams, owners = [], []
        for text, eojeol in enumerate(self._eojeol):
            for gram in _ngrams(eojeol, self.config.ngram):
                grams.append(self._grams.setdefault(gram, len(self._grams)))
                owners.append(text)
        self._counts = _NgramCounts(np.array(grams, np.int64), np.array(owners, np.int64), len(self._eojeol))

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._letters)

    def applies(self, measure: Measure) -> NDArray[np.bool_]:
        """Return for each text whether it is long enough for a measure."""
        lengths = np.array(self.lengths, np.int64)
        match measure:
            case "exact":
                return np.ones(len(lengths), np.bool_)
            case "normalised":
                return lengths > 0
            case "ngram":
                return np.array([len(eojeol) for eojeol in self._eojeol], np.int64) >= self.config.ngram
            case "letter_ngram":
                return lengths >= self.config.ngram
            case "minhash":
                return lengths >= self.config.shingle

    def scan(self, block: Block) -> None:
        """Look for the texts in a block of training text."""
        exact, same = self._find_equal(block)
        positions, grams = self._find_letter_ngrams(block)
        found: dict[Measure, _Found] = {
            "exact": exact,
            "normalised": same + self._find_quotes(block, positions, grams),
            "ngram": self._find_ngrams(block, positions),
            "letter_ngram": self._letter_counts.count(grams, block.documents_at(positions), positions),
            "minhash": self._similar.find(block),
        }
        for measure, pairs in found.items():
            self._records[measure].add(block, pairs)

    def touched(self, block: Block) -> NDArray[np.bool_]:
        """Return for each document of a block whether it holds an evaluation text, nearly one, or a run of one.

        By the measures that need one document only: `normalised`, `ngram`, `minhash`. Nothing is recorded.
        """
        _, same = self._find_equal(block)
        positions, grams = self._find_letter_ngrams(block)
        runs = self._find_ngrams(block, positions)
        found = same + self._find_quotes(block, positions, grams) + runs + self._similar.find(block)
        is_touched = np.zeros(len(block.ids), np.bool_)
        is_touched[found.documents] = True
        return is_touched

    def matches(self, measure: Measure) -> list[Match]:
        """Return what was found by a measure so far, in the order of the texts."""
        record = self._records[measure]
        similarities, is_touched = record.best, record.best > 0
        if measure == "ngram":
            similarities = self._counts.shares()
            is_touched = similarities > 0
        elif measure == "letter_ngram":
            similarities = self._letter_counts.shares()
            is_touched = similarities >= self.config.min_share
        return [
            Match(text, float(similarities[text]), int(record.per_text[text]), *record.where[text])
            for text in np.flatnonzero(is_touched).tolist()
        ]

    def num_documents(self, measure: Measure) -> int:
        """Return how many documents had at least one text in them, or one n-gram of one."""
        return self._records[measure].num_documents

    def _find_equal(self, block: Block) -> tuple[_Found, _Found]:
        """Return the texts that passages equal, and those whose letters they equal."""
        exact: tuple[list[int], list[int]] = ([], [])
        same: tuple[list[int], list[int]] = ([], [])
        for passage, start, end in block.passages:
            for (texts, positions), numbers in (
                (exact, self._by_text.get(passage, ())),
                (same, self._by_letters.get(block.letters[start:end], ())),
            ):
                texts.extend(numbers)
                positions.extend([start] * len(numbers))
        return _Found.from_positions(*exact, block), _Found.from_positions(*same, block)

    def _find_letter_ngrams(self, block: Block) -> tuple[IntArray, IntArray]:
        """Return the positions of the texts' letter n-grams in a block, ascending, and their numbers."""
        width = self.config.ngram
        positions, grams = self._letter_grams.find(window_hashes(block.codes, width))
        # Equal hashes are not yet equal letters.
        window = np.arange(width)
        ours = block.codes[positions[:, None] + window]
        theirs = self._codes[self._letter_gram_positions[grams][:, None] + window]
        is_equal = (ours == theirs).all(axis=1)
        return positions[is_equal], grams[is_equal]

    def _find_quotes(self, block: Block, positions: IntArray, grams: IntArray) -> _Found:
        """Return the texts that parts contain, given the letter n-grams found."""
        texts, found = [], []
        begins = self._is_quote[grams]
        for position, gram in zip(positions[begins].tolist(), grams[begins].tolist(), strict=True):
            for text in self._quotes[gram]:
                if block.letters.startswith(self._letters[text], position):
                    texts.append(text)
                    found.append(position)
        return _Found.from_positions(texts, found, block)

    def _find_ngrams(self, block: Block, positions: IntArray) -> _Found:
        """Return the texts that share eojeol n-grams with parts, given where letter n-grams were found.

        Thirteen eojeol have thirteen letters at least, so only these parts can hold one.
        """
        grams, found = [], []
        for part in np.unique(block.part_at(positions)).tolist():
            eojeol = _eojeol_of(block.parts[part])
            starts = np.cumsum([0, *map(len, eojeol)]) + block.part_starts[part]
            for number, gram in enumerate(_ngrams(eojeol, self.config.ngram)):
                if gram in self._grams:
                    grams.append(self._grams[gram])
                    found.append(int(starts[number]))
        where = np.array(found, np.int64)
        return self._counts.count(np.array(grams, np.int64), block.documents_at(where), where)


def _eojeol_of(text: str) -> list[str]:
    """Return the letters of each eojeol that has any."""
    return [letters for eojeol in text.split() if (letters := letters_of(eojeol))]


def _ngrams(eojeol: Sequence[str], size: int) -> Iterator[str]:
    for first in range(len(eojeol) - size + 1):
        yield " ".join(eojeol[first : first + size])


class _SimilarTexts:
    """Evaluation texts as sets of shingles, which similar passages and sentences are compared with."""

    def __init__(self, codes: NDArray[np.uint32], starts: IntArray, lengths: IntArray, config: OverlapConfig) -> None:
        """Take the letters of all texts, and where each begins and how long it is."""
        assert MAX_UNIT_LETTERS < MAX_SETS
        self._config = config
        self._texts = np.flatnonzero(lengths >= config.shingle)
        hashes = window_hashes(codes, config.shingle)
        sets = ShingleSets.from_spans(hashes, starts[self._texts], lengths[self._texts], config.shingle)
        self._similar = SimilarSets(sets, bands=config.bands, rows=config.rows, min_jaccard=config.min_jaccard)

    def find(self, block: Block) -> _Found:
        """Return the texts that are similar to passages or sentences of a block."""
        config = self._config
        passages = [(start, end) for _, start, end in block.passages if end - start >= config.shingle]
        longer = max(config.min_quote, config.shingle)
        sentences = [(start, end) for start, end in block.sentences if end - start >= longer]
        units = np.array(passages + sentences, np.int64).reshape(-1, 2)
        hashes = window_hashes(block.codes, config.shingle)
        found = _Found.from_positions((), (), block)
        # A few at a time: a long document is a unit itself, and so are its lines and their sentences.
        ends = np.cumsum(units[:, 1] - units[:, 0])
        for some in np.split(units, np.flatnonzero(np.diff(ends // MAX_UNIT_LETTERS)) + 1):
            sets = ShingleSets.from_spans(hashes, some[:, 0], some[:, 1] - some[:, 0], config.shingle)
            numbers, texts, similarities = self._similar.find(sets)
            positions = some[numbers, 0]
            found += _Found(self._texts[texts], block.documents_at(positions), similarities, positions)
        return found
