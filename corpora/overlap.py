"""Where evaluation texts occur in training text, by five measures; the training text streams by and is not kept.

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

>>> index = EvaluationIndex(["금리가 올랐다!"])
>>> index.scan(Block([TrainingText("1", ("금리가  올랐다", "총재는 말을 아꼈다."))]))
>>> [(measure, match.document, match.snippet) for measure in MEASURES for match in index.matches(measure)]
[('normalised', '1', '금리가 올랐다'), ('minhash', '1', '금리가 올랐다')]
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from corpora.cleaning import MIN_QUOTE, letters_of
from corpora.documents import nfc
from corpora.foundation.config import Config
from corpora.sentences import split_by_rules

Measure: TypeAlias = Literal["exact", "normalised", "ngram", "letter_ngram", "minhash"]
MEASURES: tuple[Measure, ...] = get_args(Measure)

IntArray: TypeAlias = NDArray[Any]
HashArray: TypeAlias = NDArray[np.uint64]

BLOCK_LETTERS = 500_000
"""Letters that are compared at a time; a longer document is compared as a whole, and memory grows with the longest."""
MAX_UNIT_LETTERS = 1 << 21
"""Letters of the passages and sentences whose sets of shingles are in memory at a time; one alone may have more."""
SNIPPET, MARGIN = 200, 20
"""Characters of a snippet at most, and of what it shows before and behind the evaluation text."""


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
class TrainingText:
    """A training document, or the texts of a training example."""

    id: str
    parts: tuple[str, ...]
    """Title and text, or the fields of an example."""


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
    """What stands there."""


# ---- letters, windows and hashes ----

_WHITE_SPACE = re.compile(r"\s+")
_SET_BITS, _SHINGLE_BITS = np.uint64(24), np.uint64(40)
"""Of a key: the number of a set in the upper bits, the hash of one of its shingles in the lower."""


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def _mix(values: HashArray) -> HashArray:
    """Spread the bits of VALUES: the finaliser of SplitMix64 (Steele et al. 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values


def _window_hashes(codes: NDArray[np.uint32], width: int) -> HashArray:
    """Hash every window of WIDTH codes (N,): a polynomial modulo 2⁶⁴, mixed; returns (N - WIDTH + 1,)."""
    count = max(len(codes) - width + 1, 0)
    hashes = np.zeros(count, np.uint64)
    for place in range(width):
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes += codes[place : place + count]
    return _mix(hashes)


def _spans(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the positions `start, start + 1, …` of every span, one after the other."""
    ends = np.cumsum(lengths)
    positions: IntArray = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return positions


def _first_of_runs(*columns: NDArray[Any]) -> IntArray:
    """Return where, in sorted columns, a combination of values stands for the first time."""
    is_first = np.ones(len(columns[0]), np.bool_)
    is_first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(is_first)


class _HashTable:
    """A set of hashes; most misses cost one look into a bitmap."""

    def __init__(self, hashes: HashArray) -> None:
        """Take sorted, distinct HASHES."""
        self._hashes = hashes
        bits = max(16, (8 * len(hashes)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._bitmap = np.zeros(1 << bits, np.bool_)
        self._bitmap[hashes >> self._shift] = True

    def find(self, hashes: HashArray) -> tuple[IntArray, IntArray]:
        """Return the positions in HASHES of those that are in the table, and their numbers there."""
        positions = np.flatnonzero(self._bitmap[hashes >> self._shift])
        numbers = np.searchsorted(self._hashes, hashes[positions])
        numbers[numbers == len(self._hashes)] = 0
        is_equal = self._hashes[numbers] == hashes[positions]
        return positions[is_equal], numbers[is_equal]


# ---- training text ----


class Block:
    """Some training documents, laid out for comparison."""

    def __init__(self, documents: Sequence[TrainingText]) -> None:
        """Lay out DOCUMENTS."""
        self.ids = [document.id for document in documents]
        self.parts = [nfc(part) for document in documents for part in document.parts]
        owners = [number for number, document in enumerate(documents) for _ in document.parts]
        self.part_documents = np.array(owners, np.int64)
        """The document that each part is of."""
        self.passages: list[tuple[str, int, int]] = []
        """Parts and their lines, and where their letters begin and end."""
        self.sentences: list[tuple[int, int]] = []
        """Where the letters of sentences begin and end that are not whole passages."""
        self._pieces: list[str] = []
        self._size = 0
        part_starts = []
        for part in self.parts:
            part_starts.append(self._size)
            self._add_part(part)
        self.part_starts = np.array(part_starts, np.int64)
        self.letters = "".join(self._pieces)
        """Letters of all parts, a line end behind each."""
        self.codes = _codes(self.letters)
        self._last_shown: tuple[int, str, IntArray] | None = None

    def _add_part(self, part: str) -> None:
        start = self._size
        lines = [line for line in part.splitlines() if line and not line.isspace()]
        for line in lines:
            line_start = self._size
            sentences = split_by_rules(line)
            for sentence in sentences:
                letters = letters_of("".join(sentence))
                self._pieces.append(letters)
                self._size += len(letters)
                if len(sentences) > 1:
                    self.sentences.append((self._size - len(letters), self._size))
            if len(lines) > 1:
                self.passages.append((line.strip(), line_start, self._size))
        self.passages.append((part.strip(), start, self._size))
        self._pieces.append("\n")  # no letter, so that nothing is found across the border
        self._size += 1

    def part_at(self, positions: IntArray) -> IntArray:
        """Return the numbers of the parts in which letters stand."""
        return np.searchsorted(self.part_starts, positions, side="right") - 1

    def documents_at(self, positions: IntArray) -> IntArray:
        """Return the numbers of the documents in which letters stand."""
        return self.part_documents[self.part_at(positions)]

    def snippet(self, position: int, length: int) -> str:
        """Return what stands where LENGTH letters begin at POSITION, with a little on both sides."""
        number = int(self.part_at(np.array([position]))[0])
        text, places = self._shown(number)
        first = position - int(self.part_starts[number])
        start = max(0, int(places[min(first, len(places) - 1)]) - MARGIN)
        end = int(places[min(first + max(length, 1), len(places)) - 1]) + 1 + MARGIN
        end = min(end, start + SNIPPET, len(text))
        words = _WHITE_SPACE.sub(" ", text[start:end]).strip()
        return f"{'…' if start else ''}{words}{'…' if end < len(text) else ''}"

    def _shown(self, number: int) -> tuple[str, IntArray]:
        """Return the text of a part, and where in it each of its letters stands."""
        if self._last_shown is None or self._last_shown[0] != number:
            text, folded = self.parts[number], self.parts[number].casefold()
            text = text if len(text) == len(folded) else folded  # ß is two letters when folded
            is_letter = np.fromiter(map(str.isalnum, folded), np.bool_, len(folded))
            self._last_shown = number, text, np.flatnonzero(is_letter) if is_letter.any() else np.zeros(1, np.int64)
        return self._last_shown[1:]


T = TypeVar("T")


def batches_of(items: Iterable[T], size: int, size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield ITEMS in batches of about SIZE in all."""
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size_of(item)
        if total >= size:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def blocks_of(documents: Iterable[TrainingText], size: int = BLOCK_LETTERS) -> Iterator[Block]:
    """Yield DOCUMENTS in blocks of about SIZE characters."""
    return map(Block, batches_of(documents, size, lambda document: sum(map(len, document.parts))))


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
    def of(cls, texts: Sequence[int] | IntArray, positions: Sequence[int] | IntArray, block: Block) -> "_Found":
        """Return pairs that are wholly alike."""
        places = np.asarray(positions, np.int64)
        return cls(np.asarray(texts, np.int64), block.documents_at(places), np.ones(len(places)), places)

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
        pairs = order[_first_of_runs(texts, documents)]
        self.per_text += np.bincount(found.texts[pairs], minlength=len(self._lengths))
        self.num_documents += len(np.unique(documents))
        ranked = pairs[np.lexsort((found.documents[pairs], -found.similarities[pairs], found.texts[pairs]))]
        closest = ranked[_first_of_runs(found.texts[ranked])]
        closest = closest[found.similarities[closest] > self.best[found.texts[closest]]]
        self.best[found.texts[closest]] = found.similarities[closest]
        # By place, as looking for snippets in one long text again and again takes long.
        for pair in closest[np.argsort(found.positions[closest])].tolist():
            text = int(found.texts[pair])
            snippet = block.snippet(int(found.positions[pair]), self._lengths[text])
            self.where[text] = (block.ids[int(found.documents[pair])], snippet)


class _NgramCounts:
    """Which evaluation texts have which n-grams, and which n-grams were seen in the training text."""

    def __init__(self, grams: IntArray, texts: IntArray, num_texts: int) -> None:
        """Take pairs of an n-gram's number and a text's, in any order and perhaps more than once."""
        order = np.lexsort((texts, grams))
        kept = order[_first_of_runs(grams[order], texts[order])]
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
        kept = order[_first_of_runs(documents[order], grams[order])]
        num_texts = np.diff(self._starts)[grams[kept]]
        texts = self._texts[_spans(self._starts[grams[kept]], num_texts)]
        documents, positions = np.repeat(documents[kept], num_texts), np.repeat(positions[kept], num_texts)
        order = np.lexsort((positions, documents, texts))
        first = _first_of_runs(texts[order], documents[order])
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
        self._similar = _SimilarSets(self._codes, self._starts, np.array(self.lengths, np.int64), self.config)
        self._records: dict[Measure, _Record] = {measure: _Record(self.lengths) for measure in MEASURES}

    def _index_letter_ngrams(self) -> None:
        width = self.config.ngram
        self._codes = _codes("\n".join(self._letters))
        lengths = np.array(self.lengths, np.int64)
        self._starts = np.cumsum(lengths + 1) - (lengths + 1)
        num_windows = np.maximum(lengths - width + 1, 0)
        windows = _spans(self._starts, num_windows)
        hashes, first, grams = np.unique(
            _window_hashes(self._codes, width)[windows], return_index=True, return_inverse=True
        )
        self._letter_grams = _HashTable(hashes)
        self._letter_gram_places = windows[first]
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
        return _Found.of(*exact, block), _Found.of(*same, block)

    def _find_letter_ngrams(self, block: Block) -> tuple[IntArray, IntArray]:
        """Return the positions of the texts' letter n-grams in a block, ascending, and their numbers."""
        width = self.config.ngram
        positions, grams = self._letter_grams.find(_window_hashes(block.codes, width))
        # Equal hashes are not yet equal letters.
        window = np.arange(width)
        ours = block.codes[positions[:, None] + window]
        theirs = self._codes[self._letter_gram_places[grams][:, None] + window]
        is_equal = (ours == theirs).all(axis=1)
        return positions[is_equal], grams[is_equal]

    def _find_quotes(self, block: Block, positions: IntArray, grams: IntArray) -> _Found:
        """Return the texts that parts contain, given the letter n-grams found."""
        texts, places = [], []
        begins = self._is_quote[grams]
        for position, gram in zip(positions[begins].tolist(), grams[begins].tolist(), strict=True):
            for text in self._quotes[gram]:
                if block.letters.startswith(self._letters[text], position):
                    texts.append(text)
                    places.append(position)
        return _Found.of(texts, places, block)

    def _find_ngrams(self, block: Block, positions: IntArray) -> _Found:
        """Return the texts that share eojeol n-grams with parts, given where letter n-grams were found.

        Thirteen eojeol have thirteen letters at least, so only these parts can hold one.
        """
        grams, places = [], []
        for part in np.unique(block.part_at(positions)).tolist():
            eojeol = _eojeol_of(block.parts[part])
            starts = np.cumsum([0, *map(len, eojeol)]) + block.part_starts[part]
            for number, gram in enumerate(_ngrams(eojeol, self.config.ngram)):
                if gram in self._grams:
                    grams.append(self._grams[gram])
                    places.append(int(starts[number]))
        found = np.array(places, np.int64)
        return self._counts.count(np.array(grams, np.int64), block.documents_at(found), found)


def _eojeol_of(text: str) -> list[str]:
    """Return the letters of each eojeol that has any."""
    return [letters for eojeol in text.split() if (letters := letters_of(eojeol))]


def _ngrams(eojeol: Sequence[str], size: int) -> Iterator[str]:
    for first in range(len(eojeol) - size + 1):
        yield " ".join(eojeol[first : first + size])


class _SimilarSets:
    """Evaluation texts as sets of shingles, found by MinHash with banding.

    A set is a run of ascending keys; see `_SET_BITS`. With 40 bits and a million different shingles, one in a million
    is mistaken for another.
    """

    def __init__(self, codes: NDArray[np.uint32], starts: IntArray, lengths: IntArray, config: OverlapConfig) -> None:
        """Take the letters of all texts, and where each begins and how long it is."""
        self._config = config
        self._texts = np.flatnonzero(lengths >= config.shingle)
        assert max(len(self._texts), MAX_UNIT_LETTERS) < 1 << int(_SET_BITS)
        hashes = _window_hashes(codes, config.shingle)
        self._keys, self._offsets = self._sets(hashes, starts[self._texts], lengths[self._texts])
        self._shingles = _HashTable(np.unique(_shingles_of(self._keys)))
        bands = self._band_keys(self._keys, self._offsets)
        self._order = np.argsort(bands, axis=1, kind="stable")
        self._bands = np.take_along_axis(bands, self._order, axis=1)

    def _sets(self, hashes: HashArray, starts: IntArray, lengths: IntArray) -> tuple[HashArray, IntArray]:
        """Return the keys of the sets of spans of letters, each at least a shingle long, and where each set begins."""
        num_windows = lengths - self._config.shingle + 1
        owners = np.repeat(np.arange(len(starts), dtype=np.uint64), num_windows)
        keys = (owners << _SHINGLE_BITS) | (hashes[_spans(starts, num_windows)] >> _SET_BITS)
        keys.sort()
        keys = keys[_first_of_runs(keys)]
        return keys, np.searchsorted(keys >> _SHINGLE_BITS, np.arange(len(starts) + 1, dtype=np.uint64))

    def _band_keys(self, keys: HashArray, offsets: IntArray) -> HashArray:
        """Return uint64 (bands, sets): equal numbers for sets that agree in all rows of a band."""
        config = self._config
        shingles = _shingles_of(keys)
        salts = _mix(np.arange(1, config.bands * config.rows + 1, dtype=np.uint64)).reshape(config.bands, config.rows)
        bands = np.zeros((config.bands, len(offsets) - 1), np.uint64)
        if len(keys):
            for band, row_salts in enumerate(salts):
                for salt in row_salts:
                    bands[band] = _mix(bands[band] + np.minimum.reduceat(_mix(shingles ^ salt), offsets[:-1]))
        return bands

    def find(self, block: Block) -> _Found:
        """Return the texts that are similar to passages or sentences of a block."""
        config = self._config
        spans = [(start, end) for _, start, end in block.passages if end - start >= config.shingle]
        longer = max(config.min_quote, config.shingle)
        spans += [(start, end) for start, end in block.sentences if end - start >= longer]
        units = np.array(spans, np.int64).reshape(-1, 2)
        hashes = _window_hashes(block.codes, config.shingle)
        found = _Found.of((), (), block)
        # A few at a time: a long document is a unit itself, and so are its lines and their sentences.
        ends = np.cumsum(units[:, 1] - units[:, 0])
        for some in np.split(units, np.flatnonzero(np.diff(ends // MAX_UNIT_LETTERS)) + 1):
            found += self._find_units(block, hashes, some)
        return found

    def _find_units(self, block: Block, hashes: HashArray, units: IntArray) -> _Found:
        keys, offsets = self._sets(hashes, units[:, 0], units[:, 1] - units[:, 0])
        keys, offsets, kept = self._possible(keys, offsets)
        numbers, texts = self._candidates(keys, offsets)
        similarities = self._jaccard(keys, offsets, numbers, texts)
        is_similar = similarities >= self._config.min_jaccard
        positions = units[kept[numbers[is_similar]], 0]
        return _Found(
            self._texts[texts[is_similar]], block.documents_at(positions), similarities[is_similar], positions
        )

    def _possible(self, keys: HashArray, offsets: IntArray) -> tuple[HashArray, IntArray, IntArray]:
        """Leave out sets that can be similar to no text, as too few of their shingles are in any.

        Returns:
            Keys and offsets of the others, and their numbers before.
        """
        sizes = np.diff(offsets)
        known, _ = self._shingles.find(_shingles_of(keys))
        owners = np.repeat(np.arange(len(sizes)), sizes)
        num_known = np.bincount(owners[known], minlength=len(sizes))
        kept = np.flatnonzero(num_known / sizes >= self._config.min_jaccard)
        keys = keys[_spans(offsets[:-1][kept], sizes[kept])]
        return keys, np.concatenate([[0], np.cumsum(sizes[kept])]), kept

    def _candidates(self, keys: HashArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
        """Return pairs of a set and a text that agree in a band, and are near enough in size."""
        pairs = [np.zeros(0, np.int64)]
        for band, order, queries in zip(self._bands, self._order, self._band_keys(keys, offsets), strict=True):
            first = np.searchsorted(band, queries, side="left")
            counts = np.searchsorted(band, queries, side="right") - first
            texts = order[_spans(first, counts)]
            pairs.append((np.repeat(np.arange(len(queries)), counts) << 32) | texts)
        distinct = np.unique(np.concatenate(pairs))
        numbers, texts = distinct >> 32, distinct & 0xFFFFFFFF
        ours, theirs = np.diff(offsets)[numbers], np.diff(self._offsets)[texts]
        is_near = np.minimum(ours, theirs) / np.maximum(ours, theirs) >= self._config.min_jaccard
        return numbers[is_near], texts[is_near]

    def _jaccard(self, keys: HashArray, offsets: IntArray, numbers: IntArray, texts: IntArray) -> NDArray[np.float64]:
        """Return the Jaccard index of each pair of a set and a text."""
        ours, theirs = np.diff(offsets)[numbers], np.diff(self._offsets)[texts]
        shingles = _shingles_of(keys[_spans(offsets[:-1][numbers], ours)]) >> _SET_BITS
        wanted = (np.repeat(texts.astype(np.uint64), ours) << _SHINGLE_BITS) | shingles
        places = np.searchsorted(self._keys, wanted)
        places[places == len(self._keys)] = 0
        is_shared = self._keys[places] == wanted
        num_shared = np.bincount(np.repeat(np.arange(len(numbers)), ours)[is_shared], minlength=len(numbers))
        return num_shared / (ours + theirs - num_shared)


def _shingles_of(keys: HashArray) -> HashArray:
    """Return the hashes of shingles alone, in the upper 40 bits."""
    return keys << _SET_BITS
