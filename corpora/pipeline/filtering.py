"""Stage `filter`: documents of a unit → without repeated lines and personal data, Korean, and of some quality.

What is left is also what duplicates are found by: digests of the texts, and MinHash signatures.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from corpora.characters import collapse_blanks
from corpora.cleaning import CleaningConfig, count_letters, hangul_share, reason_to_drop
from corpora.corpus import record_of
from corpora.documents import Document
from corpora.foundation.files import fingerprint
from corpora.pipeline.duplicates import write_keys
from corpora.pipeline.plan import Build
from corpora.pipeline.privacy import mask
from corpora.pipeline.reading import DOCUMENTS, LINES, MIN_LINES, READ, REPEATED

FILTER = "filter"
VICTIMS = "victims.jsonl"
NUM_VICTIMS = 20
"""Dropped documents that are kept of each rule, to be looked at."""
LONGEST_VICTIM = 500
"""Characters of their texts."""


@dataclass
class Victims:
    """Some of the documents that each rule dropped: those with the lowest hashes, so a random sample."""

    by_rule: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)

    def add(self, rule: str, document: Document) -> None:
        """Take a dropped document."""
        record = {
            "rule": rule,
            "id": document.id,
            "title": document.title,
            "text": document.text[:LONGEST_VICTIM],
            "num_chars": len(document.text),
        }
        self.add_record(record)

    def add_record(self, record: dict[str, Any]) -> None:
        """Take a record of another sample."""
        kept = self.by_rule.setdefault(record["rule"], [])
        kept.append((fingerprint([record["id"], record["text"]]), record))
        if len(kept) > 2 * NUM_VICTIMS:
            self._trim(kept)

    def records(self) -> list[dict[str, Any]]:
        """Return the sample, rule by rule."""
        for kept in self.by_rule.values():
            self._trim(kept)
        return [record for rule in sorted(self.by_rule) for _, record in self.by_rule[rule]]

    @staticmethod
    def _trim(kept: list[tuple[str, dict[str, Any]]]) -> None:
        kept.sort(key=lambda item: (item[0], item[1]["id"]))
        del kept[NUM_VICTIMS:]


def filter_unit(build: Build, number: int) -> None:
    """Filter the documents of a unit."""
    plan, workspace = build.plan, build.workspace
    repeated = {
        record["line"] for record in workspace.records(LINES, plan.source_key(plan.units[number].source), REPEATED)
    }
    step = _Filter(plan.config.cleaning, repeated)
    texts: list[str] = []
    with workspace.task(FILTER, filter_key(build, number)) as task:
        with (task.path / DOCUMENTS).open("w", encoding="utf-8") as out:
            for record in workspace.records(READ, plan.key_of(number), DOCUMENTS):
                document = step.apply(Document(**record))
                if document is not None:
                    out.write(json.dumps(record_of(document), ensure_ascii=False) + "\n")
                    texts.append(document.text)
        task.write_records(VICTIMS, step.victims.records())
        write_keys(task, texts, plan.config.cleaning)
        task.counts = {
            "num_documents": len(texts),
            "dropped": dict(step.dropped),
            "edited": dict(step.edited),
            "masked": dict(step.masked),
            "hangul": dict(step.hangul),
        }


def filter_key(build: Build, number: int) -> str:
    """Return the key of the task of a unit: it depends on the lines that its source repeats."""
    plan = build.plan
    return plan.key(FILTER, plan.key_of(number), plan.source_key(plan.units[number].source))


class _Filter:
    """Document in, document or None out; what happened is counted."""

    def __init__(self, cleaning: CleaningConfig, repeated: set[str]) -> None:
        self.dropped: Counter[str] = Counter()
        self.edited: Counter[str] = Counter()
        self.masked: Counter[str] = Counter()
        self.hangul: Counter[str] = Counter()
        """Documents by tenths of the share of Hangul among their letters."""
        self.victims = Victims()
        self._cleaning, self._repeated = cleaning, repeated

    def apply(self, document: Document) -> Document | None:
        """Return the document as it is kept, or None if a rule drops it."""
        document = self._mask(self._without_repeated_lines(document))
        letters = count_letters(document.text)
        self.hangul[str(min(int(10 * hangul_share(letters)), 9))] += 1
        reason = reason_to_drop(document.text, self._cleaning, letters)
        if reason is None:
            return document
        self.dropped[reason] += 1
        self.victims.add(reason, document)
        return None

    def _without_repeated_lines(self, document: Document) -> Document:
        lines = document.text.split("\n") if self._repeated else []
        kept = [line for line in lines if line not in self._repeated]
        if len(lines) < MIN_LINES or len(kept) == len(lines):
            return document
        self.edited["repeated_line"] += 1
        return replace(document, text=collapse_blanks("\n".join(kept)))

    def _mask(self, document: Document) -> Document:
        kinds = self._cleaning.privacy
        if not kinds:
            return document
        text, title = mask(document.text, kinds), mask(document.title, kinds)
        counts = text.counts + title.counts
        if not counts:
            return document
        self.masked.update(counts)
        return replace(document, text=text.text, title=title.text)


def kept_documents(build: Build, number: int) -> Iterator[Document]:
    """Yield the documents that the filter left of a unit."""
    for record in build.workspace.records(FILTER, filter_key(build, number), DOCUMENTS):
        yield Document(**record)
