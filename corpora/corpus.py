"""A finished corpus on disk: manifest and document shards, as `corpora.build` writes them."""

import contextlib
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, TypeAlias

from pydantic import Field, ValidationError

from corpora.documents import Document, read_documents
from corpora.foundation.config import Config
from corpora.foundation.errors import DataError
from corpora.foundation.files import atomic_file, fingerprint, sha256, write_json
from corpora.readers.decoding import Encoding
from corpora.readers.records import TextUnit

Split: TypeAlias = Literal["train", "held-out"]

MANIFEST = "manifest.json"
PROGRESS = ".progress"
"""Folder of finished tasks during a build."""
LOCK = ".lock"
"""File that the process of a build holds."""
PREFIXES: Mapping[Split, str] = {"train": "documents-", "held-out": "held-out-"}


class SourceFile(Config):
    """A source file and how it is read; equal values give equal documents."""

    name: str
    """File name without folders, numbered if several files share it."""
    sha256: str
    size_bytes: int
    text_unit: TextUnit | None
    """None if the format has records."""
    fields: dict[str, str]
    share: float = 1.0
    """Share of its documents that is used."""
    sentences: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether each sentence of a document, and its title, is a document of its own."""
    encoding: Encoding = Field(default="auto", exclude_if=lambda value: value == "auto")


class Counts(Config):
    """Document counts; `num_read` is the sum of kept, held-out and dropped documents."""

    num_read: int = 0
    num_rejected: int = 0
    """Records that could not be read; they are in `rejected.jsonl`."""
    num_kept: int = 0
    """Documents in the training shards."""
    num_held_out: int = 0
    num_chars: int = 0
    """Characters of titles and texts in the training shards."""
    dropped: dict[str, int] = Field(default_factory=dict)
    """Documents by reason."""
    edited: dict[str, int] = Field(default_factory=dict)
    """Documents by edit."""
    masked: dict[str, int] = Field(default_factory=dict)
    """Spans of personal data by kind, in titles and texts, those of dropped documents included."""


class SourceRecord(Counts, SourceFile):
    """A finished source."""


class ShardRecord(Config):
    """A finished shard."""

    name: str
    split: Split
    source: str
    num_documents: int
    size_bytes: int
    sha256: str


class Manifest(Config):
    """`manifest.json`. It has no time and no path: equal sources and settings give equal bytes."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    digest: str = ""
    """Of all the rest; empty in manifests of version 0.1."""
    settings: dict[str, Any]
    totals: Counts
    sources: tuple[SourceRecord, ...]
    shards: tuple[ShardRecord, ...]


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a corpus.

    Raises:
        DataError: there is no corpus in FOLDER, or it is not finished, or the manifest is damaged.
    """
    if not folder.exists():
        raise DataError(folder, "no such file or folder", "check the path")
    if not (folder / MANIFEST).is_file():
        is_begun = (folder / PROGRESS).is_dir()
        what = "this corpus is not finished" if is_begun else f"no corpus: {MANIFEST} is missing"
        fix = "run the same command again" if is_begun else "make one with"
        raise DataError(folder, what, f"{fix}: python -m corpora.build SOURCE --out {folder}")
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except ValidationError as error:
        fix = "delete the folder and build the corpus again"
        raise DataError(folder / MANIFEST, "not the manifest of a corpus", fix) from error
    if manifest.digest and manifest.digest != _digest_of(manifest):
        what = "changed since it was written"
        raise DataError(folder / MANIFEST, what, "delete the folder and build the corpus again")
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a corpus, with its own digest."""
    signed = manifest.model_copy(update={"digest": _digest_of(manifest)})
    write_json(folder / MANIFEST, signed.model_dump(mode="json", by_alias=True))


def _digest_of(manifest: Manifest) -> str:
    return fingerprint(manifest.model_dump(mode="json", by_alias=True, exclude={"digest"}))


def corpus_files(path: Path, split: Split = "train", *, source: str = "") -> list[Path]:
    """Return the files of a corpus: the shards of a folder made by `build`, or a single file itself for `train`.

    Args:
        path: of the corpus.
        split: of its documents.
        source: name of the source in the manifest whose shards are returned; empty: all. A single file has none.

    Raises:
        DataError: PATH is missing, or is a folder without a finished corpus, or with one that lacks a shard.
    """
    if path.is_file():
        return [path] if split == "train" else []
    manifest = read_manifest(path)
    check_shards(path, manifest.shards)
    shards = [shard for shard in manifest.shards if shard.split == split and source in ("", shard.source)]
    return [path / shard.name for shard in shards]


def read_corpus(path: Path, split: Split = "train") -> Iterator[Document]:
    """Yield the documents of a corpus; see `corpus_files`.

    Raises:
        DataError: as `corpus_files` does, or a single file holds a bad record.
    """
    for file in corpus_files(path, split):
        yield from read_shard(file) if is_shard(file) else read_documents(file)


def corpus_texts(file: Path) -> Iterator[str]:
    """Yield title, line break and text of every document of a file of `corpus_files`.

    Raises:
        DataError: a file that is no shard holds a bad record.
    """
    if is_shard(file):
        for record in _shard_records(file):
            yield f"{record['title']}\n{record['text']}" if record["title"] else record["text"]
    else:
        for document in read_documents(file):
            yield f"{document.title}\n{document.text}" if document.title else document.text


def is_shard(file: Path) -> bool:
    """Whether FILE was written by `build`."""
    is_named_so = file.suffix == ".jsonl" and file.name.startswith(tuple(PREFIXES.values()))
    return is_named_so and file.with_name(MANIFEST).is_file()


def read_shard(file: Path) -> Iterator[Document]:
    """Yield the documents of a shard."""
    for record in _shard_records(file):
        yield Document(**record)


def _shard_records(file: Path) -> Iterator[dict[str, Any]]:
    manifest = file.with_name(MANIFEST)
    digests = _shard_digests(manifest, manifest.stat().st_mtime_ns)
    if sha256(file) != digests.get(file.name):
        raise _changed(file)
    with file.open(encoding="utf-8", newline="\n") as lines:
        yield from map(json.loads, lines)


@functools.lru_cache(maxsize=1)
def _shard_digests(manifest: Path, _changed_at: int) -> Mapping[str, str]:
    return {shard.name: shard.sha256 for shard in read_manifest(manifest.parent).shards}


def _changed(path: Path) -> DataError:
    return DataError(path, "missing or changed", f"delete {path.parent} and build the corpus again")


def check_shards(folder: Path, shards: Iterable[ShardRecord]) -> None:
    """Check that shards exist and have their recorded size.

    Raises:
        DataError: a shard is missing or has another size.
    """
    for shard in shards:
        path = folder / shard.name
        if not path.is_file() or path.stat().st_size != shard.size_bytes:
            raise _changed(path)


def record_of(document: Document) -> dict[str, str]:
    """Return a document as it is written: its id, title and text, and what is known of date, section and source."""
    record = {"id": document.id, "title": document.title, "text": document.text}
    for name in ("date", "section", "source"):
        if value := getattr(document, name):
            record[name] = value
    return record


class ShardWriter(contextlib.AbstractContextManager["ShardWriter"]):
    """Writes the documents of a source and split into shards; a shard gets its name when it is complete."""

    def __init__(self, out: Path, split: Split, source: str, limit: int) -> None:
        """Start without a shard.

        Args:
            out: folder of the shards.
            split: of the documents.
            source: name of their source.
            limit: largest size of a shard in bytes.
        """
        self.shards: list[ShardRecord] = []
        self.num_documents = self.num_chars = 0
        self._out, self._split, self._source, self._limit = out, split, source, limit
        self._stack = contextlib.ExitStack()
        self._file: IO[bytes] | None = None
        self._size = self._before = 0
        self._encode = json.JSONEncoder(ensure_ascii=False).encode

    def write(self, document: Document) -> None:
        """Write a document."""
        line = (self._encode(record_of(document)) + "\n").encode()
        if self._file is not None and self._size + len(line) > self._limit:
            self._close()
        if self._file is None:
            self._file = self._stack.enter_context(atomic_file(self._out / self._name, "wb"))
            self._digest, self._size, self._before = hashlib.sha256(), 0, self.num_documents
        self._file.write(line)
        self._digest.update(line)
        self._size += len(line)
        self.num_documents += 1
        self.num_chars += len(document.title) + len(document.text)

    @property
    def _name(self) -> str:
        return f"{PREFIXES[self._split]}{len(self.shards):05d}.jsonl"

    def _close(self) -> None:
        if self._file is None:
            return
        self._stack.close()
        self._file = None
        record = ShardRecord(
            name=self._name,
            split=self._split,
            source=self._source,
            num_documents=self.num_documents - self._before,
            size_bytes=self._size,
            sha256=self._digest.hexdigest(),
        )
        self.shards.append(record)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Complete the last shard, or discard it after an error."""
        if kind is None:
            self._close()
        else:
            self._stack.__exit__(kind, error, trace)


def add_counts(counts: Iterable[Counts]) -> Counts:
    """Return the sum of COUNTS."""
    counts = list(counts)
    sums = {
        name: sum(getattr(each, name) for each in counts)
        for name in ("num_read", "num_rejected", "num_kept", "num_held_out", "num_chars")
    }
    dropped, edited, masked = (
        dict(sorted(sum((Counter(getattr(each, name)) for each in counts), Counter[str]()).items()))
        for name in ("dropped", "edited", "masked")
    )
    return Counts(**sums, dropped=dropped, edited=edited, masked=masked)


def describe(counts: Mapping[str, int]) -> str:
    """Return `12 duplicate, 3 too_short`: largest first, without zeros."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered if count)


def summary_table(manifest: Manifest) -> str:
    """Return a table in Markdown: a row for each source, and the totals."""
    head = ("source", "read", "kept", "held out", "rejected", "dropped", "characters")
    rows = [
        (
            name,
            f"{counts.num_read:,}",
            f"{counts.num_kept:,}",
            f"{counts.num_held_out:,}",
            f"{counts.num_rejected:,}",
            describe(counts.dropped) or "0",
            f"{counts.num_chars:,}",
        )
        for name, counts in [*((source.name, source) for source in manifest.sources), ("total", manifest.totals)]
    ]
    rule = ("---", "---:", "---:", "---:", "---:", "---", "---:")
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))
