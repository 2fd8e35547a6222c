"""Stages `read` and `lines`: raw files → documents without markup and boilerplate → lines that a source repeats."""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import IO, Any

from corpora.characters import remove_invisible
from corpora.cleaning import CleaningConfig, edit
from corpora.corpus import record_of
from corpora.documents import Document, RejectedRecord, read_documents
from corpora.foundation.errors import DataError
from corpora.foundation.files import fingerprint
from corpora.pipeline.plan import Build, Unit
from corpora.pipeline.privacy import mask
from corpora.sentences import split_article

logger = logging.getLogger(__name__)

READ, LINES = "read", "lines"
DOCUMENTS, REJECTED, REPEATED = "documents.jsonl", "rejected.jsonl", "repeated.jsonl"
MIN_LINES = 3
"""Fewest lines of a document in which a line may be the furniture of a page."""
LINE_LENGTHS = range(2, 201)
"""Characters of such a line."""
MIN_LINE_DOCUMENTS = 10
"""Fewest documents with such a line."""
NUM_TOP_LINES = 20
"""Repeated lines that the report shows of a source."""


@dataclass
class Tally:
    """Counts of the documents of a unit."""

    num_read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    edited: Counter[str] = field(default_factory=Counter)
    """Documents by edit, dropped ones included; a document counts for each edit that changed it."""


# ---- read: a unit of a source → documents ----


def read_unit(build: Build, number: int) -> None:
    """Read a unit; write its documents, edited, and the records that cannot be read."""
    unit, cleaning = build.plan.units[number], build.plan.config.cleaning
    logger.info("reading %s", unit.path)
    tally = Tally()
    lines: Counter[str] = Counter()
    with build.workspace.task(READ, build.plan.key_of(number)) as task:
        with (
            (task.path / REJECTED).open("w", encoding="utf-8") as rejected,
            (task.path / DOCUMENTS).open("w", encoding="utf-8") as out,
        ):
            reader = _Reader(unit, rejected, cleaning)
            for document in share_of(reader.documents(), unit.file.share, tally):
                edited = _edited(document, cleaning, tally)
                lines.update(_furniture(edited.text))
                for part in list(_sentences(edited)) or [edited] if unit.file.sentences else [edited]:
                    tally.num_read += 1
                    out.write(json.dumps(record_of(part), ensure_ascii=False) + "\n")
        if cleaning.repeated_lines:
            repeated = sorted((line, count) for line, count in lines.items() if count > 1)
            task.write_records("lines.jsonl", [{"line": line, "count": count} for line, count in repeated])
        task.counts = {
            "num_read": tally.num_read,
            "num_rejected": reader.num_rejected,
            "first_reason": reader.first_reason,
            "dropped": dict(tally.dropped),
            "edited": dict(tally.edited),
        }


def share_of(documents: Iterable[Document], share: float, tally: Tally) -> Iterator[Document]:
    """Yield a share of the documents, chosen by a hash of their texts, and count the others."""
    for document in documents:
        # Not the digest that chooses held-out documents: the two choices are independent.
        if share == 1 or int(fingerprint(["share", document.text])[:16], 16) < share * 2**64:
            yield document
        else:
            tally.num_read += 1
            tally.dropped["not_sampled"] += 1


def _edited(document: Document, cleaning: CleaningConfig, tally: Tally) -> Document:
    text, edits = edit(document.text, cleaning)
    tally.edited.update(edits)
    title = " ".join(remove_invisible(document.title).split())
    title = "" if title == text else title  # a source of headlines may give title and text
    return replace(document, text=text, title=title)


def _sentences(document: Document) -> Iterator[Document]:
    """Yield title and sentences as documents."""
    texts = [document.title, *(sentence.text for sentence in split_article(document.text))]
    for number, text in enumerate(texts):
        if text.strip():
            yield replace(document, id=f"{document.id}/{number}", title="", text=" ".join(text.split()))


def _furniture(text: str) -> set[str]:
    """Return the lines of a text that may be repeated in others."""
    lines = text.split("\n")
    return {line for line in lines if len(line) in LINE_LENGTHS} if len(lines) >= MIN_LINES else set()


MOST_WITHOUT_DOCUMENT = 20_000
"""Bad records at the beginning of a file after which it is no file of articles."""


class _Reader:
    """Reads the documents of a unit, and writes bad records to a file, so that a million of them take no memory."""

    def __init__(self, unit: Unit, rejected: IO[str], cleaning: CleaningConfig) -> None:
        self.num_rejected = 0
        self.first_reason = ""
        self._num_named = 0
        self._unit, self._rejected, self._kinds = unit, rejected, cleaning.privacy

    def documents(self) -> Iterator[Document]:
        """Yield the documents; their ids are unique among all sources."""
        file = self._unit.file
        found = read_documents(
            self._unit.path,
            fields=file.fields,
            text_unit=file.text_unit or "block",
            rejected=self,
            encoding=file.encoding,
        )
        return map(self._named, found)

    def append(self, record: RejectedRecord) -> None:
        """Write a rejected record."""
        self.first_reason = self.first_reason or f"{record.where.rpartition('/')[2]}: {record.reason}"
        self.num_rejected += 1
        if self.num_rejected >= MOST_WITHOUT_DOCUMENT and not self._num_named:
            what = f"none of its first {self.num_rejected:,} records can be read; the first: {self.first_reason}"
            raise DataError(self._unit.path, what, "check that it is a file of articles")
        where = self._unit.file.name + record.where.removeprefix(str(self._unit.path))
        shown = mask(record.record, self._kinds).text
        written = {"where": where, "reason": record.reason, "fix": record.fix, "record": shown}
        self._rejected.write(json.dumps(written, ensure_ascii=False) + "\n")

    def _named(self, document: Document) -> Document:
        self._num_named += 1
        name, own = self._unit.file.name, document.source
        # `file:line` if the source has no ids, `file#id` if it has, `archive!file:line` inside an archive.
        has_id = not document.id.startswith((f"{own}:", f"{own}!"))
        id_ = f"{name}#{document.id}" if has_id else name + document.id.removeprefix(own)
        return Document(document.text, id_, document.title, document.date, document.section, source=name)


# ---- lines: the units of a source → lines that many of its documents have ----


def find_repeated_lines(build: Build, source: int) -> None:
    """Collect the lines that a source repeats, once it is plain that the source can be read.

    Raises:
        DataError: most of its records are bad: it is another format than its name says.
    """
    plan, workspace = build.plan, build.workspace
    keys = [plan.key_of(unit) for unit in plan.units_of(source)]
    counts = [workspace.counts(READ, key) for key in keys]
    _check_rejected(build, source, counts)
    found: Counter[str] = Counter()
    share = plan.config.cleaning.repeated_lines
    if share:
        for key in keys:
            found.update({record["line"]: record["count"] for record in workspace.records(READ, key, "lines.jsonl")})
    least = max(MIN_LINE_DOCUMENTS, share * sum(each["num_read"] for each in counts))
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    with workspace.task(LINES, plan.source_key(source)) as task:
        task.write_records(
            REPEATED, [{"line": line, "count": count} for line, count in ordered if share and count >= least]
        )
        kinds = plan.config.cleaning.privacy
        task.counts = {"top": [[mask(line, kinds).text, count] for line, count in ordered[:NUM_TOP_LINES]]}


def _check_rejected(build: Build, source: int, counts: list[dict[str, Any]]) -> None:
    plan = build.plan
    num_read = sum(each["num_read"] for each in counts)
    num_rejected = sum(each["num_rejected"] for each in counts)
    if num_read and num_rejected <= plan.config.max_rejected * (num_read + num_rejected):
        return
    first = next((each["first_reason"] for each in counts if each["first_reason"]), "")
    count = f"{num_read:,}" if num_read else "none"
    what = f"{count} of its {num_read + num_rejected:,} records can be read; the first bad one is {first}"
    fix = "name its columns with SOURCE:text=COLUMN, its encoding with --encoding, or allow more bad records"
    path = plan.units[plan.units_of(source)[0]].path
    raise DataError(path, what, f"{fix} with --max-rejected")
