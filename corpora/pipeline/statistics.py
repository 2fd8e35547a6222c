"""What a report says of a corpus, counted per unit and then added up: exact sums and samples chosen by hashes."""

import re
import zlib
from collections import Counter
from typing import Any

import numpy as np

from corpora.documents import Document
from corpora.pipeline.workspace import TaskFolder

EOJEOL = "eojeol.npy"
SAMPLE = "sample.jsonl"
LENGTHS = (50, 100, 200, 400, 800, 1_600, 3_200, 6_400)
"""Upper limits of the classes of lengths, in characters."""
EOJEOL_SHARE = 64
"""One in so many distinct eojeol is counted, chosen by its hash."""
SAMPLE_CHARS = 200_000
"""Characters of a unit's training documents, and of its held-out ones, that a language model is given."""
YEAR = re.compile(r"(?:19|20)\d\d")
MAX_SECTIONS = 200
"""Sections that are counted of a unit; a column that is no section has one a document."""


class Statistics:
    """Counts of the documents of a unit that stay."""

    def __init__(self) -> None:
        """Start with no document."""
        self._years: Counter[str] = Counter()
        self._sections: Counter[str] = Counter()
        self._lengths: Counter[str] = Counter()
        self._num_eojeol = 0
        self._hashes: set[int] = set()
        self._samples: dict[bool, list[tuple[int, str]]] = {False: [], True: []}

    def add(self, document: Document, digest: int, *, is_held_out: bool) -> None:
        """Count a document."""
        year = YEAR.search(document.date)
        self._years[year.group() if year else ""] += 1
        if document.section in self._sections or len(self._sections) < MAX_SECTIONS:
            self._sections[document.section] += 1
        self._lengths[str(next((limit for limit in LENGTHS if len(document.text) < limit), ""))] += 1
        words = document.text.split()
        self._num_eojeol += len(words)
        self._hashes.update(_sampled(words))
        self._samples[is_held_out].append((digest, document.text))
        if len(self._samples[is_held_out]) % 1_000 == 0:
            self._trim(is_held_out=is_held_out)

    def _trim(self, *, is_held_out: bool) -> None:
        sample = self._samples[is_held_out]
        # Held-out digests are all below a limit, so both samples are ordered by other bits.
        sample.sort(key=lambda item: (item[0] & 0xFFFFFFFF, item[1]))
        size = 0
        for k, (_, text) in enumerate(sample):
            size += len(text)
            if size > SAMPLE_CHARS:
                del sample[k + 1 :]
                return

    def write(self, task: TaskFolder) -> None:
        """Write the counts into the folder of a task."""
        task.write_array(EOJEOL, np.array(sorted(self._hashes), np.uint32))
        records: list[dict[str, Any]] = []
        for is_held_out in (False, True):
            self._trim(is_held_out=is_held_out)
            records += [{"is_held_out": is_held_out, "text": text} for _, text in self._samples[is_held_out]]
        task.write_records(SAMPLE, records)
        task.counts |= {
            "years": dict(sorted(self._years.items())),
            "sections": dict(sorted(self._sections.items())),
            "lengths": dict(self._lengths),
            "num_eojeol": self._num_eojeol,
        }


def _sampled(words: list[str]) -> set[int]:
    """Return the hashes of some distinct words, always the same ones."""
    hashes = {zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in set(words)}
    return {value for value in hashes if value % EOJEOL_SHARE == 0}
