"""Stage `select`: documents of a unit → without duplicates and evaluation texts → shards, and counts for the report."""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from corpora.cleaning import (
    MIN_QUOTE,
    CleaningConfig,
    evaluation_texts,
    forms_to_exclude,
    letters_of,
    text_digest,
)
from corpora.corpus import ShardWriter
from corpora.documents import Document
from corpora.near_duplicates import HashTable, IntArray, letter_codes, window_hashes
from corpora.overlap import EvaluationIndex
from corpora.pipeline.filtering import VICTIMS, Victims, kept_documents
from corpora.pipeline.plan import Build
from corpora.pipeline.statistics import Statistics
from corpora.sentences import split_by_rules
from corpora.training_text import BLOCK_LETTERS, Block, TrainingText, batches_of

SELECT = "select"
BEGINNING = 8
"""Letters with which a quoted text begins; a document that has none of these runs anywhere quotes nothing."""
Repeated: TypeAlias = tuple[str, IntArray]
"""A reason, and the numbers of the documents that it drops, ascending."""


class EvaluationTexts:
    """Texts that must not be in a corpus, in whole, in part, or nearly."""

    def __init__(self, files: Iterable[Path], cleaning: CleaningConfig) -> None:
        """Read the texts of FILES.

        Raises:
            DataError: one cannot be read.
        """
        texts = list(dict.fromkeys(text for path in files for text in evaluation_texts(path)))
        forms = forms_to_exclude(texts, cleaning)
        self._digests = {text_digest(form) for form in forms}
        beginnings = [letters[:BEGINNING] for form in forms if len(letters := letters_of(form)) >= BEGINNING]
        self._beginnings = HashTable(
            np.unique(window_hashes(letter_codes("".join(beginnings)), BEGINNING)[::BEGINNING])
        )
        # Shorter texts are matched by their digests as whole documents only.
        self._index = EvaluationIndex([text for text in texts if len(letters_of(text)) >= MIN_QUOTE])

    def reasons(self, documents: Iterable[Document]) -> Iterator[tuple[Document, str]]:
        """Yield each document with the reason to drop it: `excluded`, `overlap`, or none."""
        if not self._digests:
            yield from ((document, "") for document in documents)
            return
        for some in batches_of(documents, BLOCK_LETTERS, size_of=lambda d: len(d.title) + len(d.text)):
            block = Block([TrainingText(d.id, (d.title, d.text) if d.title else (d.text,)) for d in some])
            reasons = ["excluded" if is_known else "" for is_known in self._are_or_quote(some, block)]
            if len(self._index):
                is_touched = self._index.touched(block).tolist()
                reasons = [reason or "overlap" * touched for reason, touched in zip(reasons, is_touched, strict=True)]
            yield from zip(some, reasons, strict=True)

    def _are_or_quote(self, documents: Sequence[Document], block: Block) -> Iterator[bool]:
        """Yield for each document of a block whether its text is excluded, or a line or sentence of it."""
        positions, _ = self._beginnings.find(window_hashes(block.codes, BEGINNING))
        may_quote = set(block.documents_at(positions).tolist())
        for number, document in enumerate(documents):
            is_excluded = text_digest(document.text) in self._digests
            yield is_excluded or (number in may_quote and self._quotes(document))

    def _quotes(self, document: Document) -> bool:
        """Whether a line or sentence of a document is excluded: the premises of KLUE-NLI are sentences of news."""
        lines = f"{document.title}\n{document.text}".split("\n")
        parts = (part for line in lines for part in (line, *map(" ".join, split_by_rules(line))))
        return any(
            text_digest(part) in self._digests
            for part in parts
            if len(part) >= MIN_QUOTE and len(letters_of(part)) >= BEGINNING
        )


@functools.lru_cache(maxsize=1)  # a process reads the texts once, not for every unit
def _evaluation_texts(files: tuple[Path, ...], cleaning: str) -> EvaluationTexts:
    return EvaluationTexts(files, CleaningConfig.model_validate_json(cleaning))


def select_unit(build: Build, number: int, key: str, span: tuple[int, int], repeated: Sequence[Repeated]) -> None:
    """Write the documents of a unit that stay, as shards.

    Args:
        build: the build.
        number: of the unit.
        key: of the task.
        span: numbers of the unit's documents among all that the filter left.
        repeated: documents that repeat others; of two reasons the first is counted.
    """
    config = build.plan.config
    reasons: dict[int, str] = {}
    for reason, documents in repeated:
        begin, end = np.searchsorted(documents, span)
        for document in documents[begin:end].tolist():
            reasons.setdefault(document - span[0], reason)
    dropped: Counter[str] = Counter()
    victims, statistics = Victims(), Statistics()

    def distinct() -> Iterator[Document]:
        for k, document in enumerate(kept_documents(build, number)):
            if reason := reasons.get(k):
                dropped[reason] += 1
                victims.add(reason, document)
            else:
                yield document

    threshold = int(config.held_out * 2**64)  # a 64-bit digest below this is held out
    limit = int(config.shard_mb * 1_000_000)
    evaluation = _evaluation_texts(config.exclude, config.cleaning.model_dump_json())
    source = build.plan.units[number].file.name
    with build.workspace.task(SELECT, key) as task:
        with (
            ShardWriter(task.path, "train", source, limit) as train,
            ShardWriter(task.path, "held-out", source, limit) as held_out,
        ):
            for document, reason in evaluation.reasons(distinct()):
                if reason:
                    dropped[reason] += 1
                    victims.add(reason, document)
                    continue
                digest = text_digest(document.text)
                (held_out if digest < threshold else train).write(document)
                statistics.add(document, digest, is_held_out=digest < threshold)
        task.write_records(VICTIMS, victims.records())
        statistics.write(task)
        task.counts |= {
            "shards": [shard.model_dump() for shard in (*train.shards, *held_out.shards)],
            "num_kept": train.num_documents,
            "num_held_out": held_out.num_documents,
            "num_chars": train.num_chars,
            "dropped": dict(dropped),
        }
