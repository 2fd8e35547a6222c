"""Training text, laid out for comparison with evaluation texts: documents in blocks, passages and sentences."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from corpora.characters import nfc
from corpora.cleaning import letters_of
from corpora.near_duplicates import IntArray, letter_codes
from corpora.sentences import split_by_rules

T = TypeVar("T")
BLOCK_LETTERS = 500_000
"""Letters that are compared at a time; a longer document is compared whole, so memory grows with the longest."""
SNIPPET, MARGIN = 200, 20
"""Characters of a snippet at most, and of what it shows before and behind the evaluation text."""
WHITE_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class TrainingText:
    """A training document, or the texts of a training example."""

    id: str
    parts: tuple[str, ...]
    """Title and text, or the fields of an example."""


class Block:
    """Training documents, laid out for comparison."""

    def __init__(self, documents: Sequence[TrainingText]) -> None:
        """Lay out DOCUMENTS."""
        self.ids = [document.id for document in documents]
        self.parts = [nfc(part) for document in documents for part in document.parts]
        owners = [number for number, document in enumerate(documents) for _ in document.parts]
        self.part_documents = np.array(owners, np.int64)
        """Index of the document of each part."""
        self.passages: list[tuple[str, int, int]] = []
        """Parts and their lines, with the positions where their letters begin and end."""
        self.sentences: list[tuple[int, int]] = []
        """Positions where the letters of sentences begin and end, other than of whole passages."""
        self._pieces: list[str] = []
        self._size = 0
        part_starts = []
        for part in self.parts:
            part_starts.append(self._size)
            self._add_part(part)
        self.part_starts = np.array(part_starts, np.int64)
        self.letters = "".join(self._pieces)
        """Letters of all parts, each followed by a line feed."""
        self.codes = letter_codes(self.letters)
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
        self._pieces.append("\n")  # no letter, so nothing is found across parts
        self._size += 1

    def part_at(self, positions: IntArray) -> IntArray:
        """Return the indices of the parts that contain letters at POSITIONS."""
        return np.searchsorted(self.part_starts, positions, side="right") - 1

    def documents_at(self, positions: IntArray) -> IntArray:
        """Return the indices of the documents that contain letters at POSITIONS."""
        return self.part_documents[self.part_at(positions)]

    def snippet(self, position: int, length: int) -> str:
        """Return the text of LENGTH letters from POSITION, with a margin on both sides."""
        number = int(self.part_at(np.array([position]))[0])
        text, positions = self._shown(number)
        first = position - int(self.part_starts[number])
        start = max(0, int(positions[min(first, len(positions) - 1)]) - MARGIN)
        end = int(positions[min(first + max(length, 1), len(positions)) - 1]) + 1 + MARGIN
        end = min(end, start + SNIPPET, len(text))
        words = WHITE_SPACE.sub(" ", text[start:end]).strip()
        return f"{'…' if start else ''}{words}{'…' if end < len(text) else ''}"

    def _shown(self, number: int) -> tuple[str, IntArray]:
        """Return the text of a part, and the position in it of each letter."""
        if self._last_shown is None or self._last_shown[0] != number:
            text, folded = self.parts[number], self.parts[number].casefold()
            text = text if len(text) == len(folded) else folded  # ß is two letters when folded
            is_letter = np.fromiter(map(str.isalnum, folded), np.bool_, len(folded))
            self._last_shown = number, text, np.flatnonzero(is_letter) if is_letter.any() else np.zeros(1, np.int64)
        return self._last_shown[1:]


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
