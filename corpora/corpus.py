"""A finished corpus on the disk: its manifest, and its documents. `corpora.build` makes it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import Field, ValidationError

from corpora.documents import Document, TextUnit, read_documents
from corpora.foundation.config import Config
from corpora.foundation.errors import DataError

Split: TypeAlias = Literal["train", "held-out"]

MANIFEST = "manifest.json"
PROGRESS = ".progress"
"""Folder of what is finished while a corpus is being built; gone when it is."""
PREFIXES: Mapping[Split, str] = {"train": "documents-", "held-out": "held-out-"}


class SourceFile(Config):
    """A file of text, and how it is read: what must be the same for its documents to be the same."""

    name: str
    """The file's name without folders, with a number if there are several of that name."""
    sha256: str
    size_bytes: int
    text_unit: TextUnit | None
    """None where the format has records of its own."""
    fields: dict[str, str]
    share: float = 1.0
    """Of its documents that are taken."""


class Counts(Config):
    """What became of documents; `num_read` is the sum of those kept, held out and dropped."""

    num_read: int = 0
    num_rejected: int = 0
    """Records that were no documents; they stand in `rejected.jsonl`."""
    num_kept: int = 0
    """Documents in the training shards."""
    num_held_out: int = 0
    num_chars: int = 0
    """Characters of titles and texts in the training shards."""
    dropped: dict[str, int] = Field(default_factory=dict)
    """Documents by reason."""
    edited: dict[str, int] = Field(default_factory=dict)
    """Documents by edit."""


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
    """`manifest.json`. It holds no time and no folder: the same sources and settings give the same bytes."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    settings: dict[str, Any]
    totals: Counts
    sources: tuple[SourceRecord, ...]
    shards: tuple[ShardRecord, ...]


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a corpus.

    Raises:
        DataError: there is no corpus in FOLDER, or it is not finished.
    """
    if not folder.exists():
        raise DataError(folder, "no such file or folder", "check the path")
    if not (folder / MANIFEST).is_file():
        is_begun = (folder / PROGRESS).is_dir()
        what = "this corpus is not finished" if is_begun else f"no corpus: {MANIFEST} is missing"
        fix = "run the same command again" if is_begun else "make one with"
        raise DataError(folder, what, f"{fix}: python -m corpora.build SOURCE --out {folder}")
    return load_record(Manifest, folder / MANIFEST)


def corpus_files(path: Path, split: Split = "train") -> list[Path]:
    """Return the files of a corpus: the shards of a folder made by `build`; of a single file, that file for `train`.

    Raises:
        DataError: PATH is missing, or is a folder without a finished corpus, or with one that lacks a shard.
    """
    if path.is_file():
        return [path] if split == "train" else []
    manifest = read_manifest(path)
    check_shards(path, manifest.shards)
    return [path / shard.name for shard in manifest.shards if shard.split == split]


def read_corpus(path: Path, split: Split = "train") -> Iterator[Document]:
    """Yield the documents of a corpus; see `corpus_files`.

    Raises:
        DataError: as `corpus_files` does, or a single file holds a bad record.
    """
    for file in corpus_files(path, split):
        yield from read_shard(file) if is_shard(file) else read_documents(file)


def corpus_texts(file: Path) -> Iterator[str]:
    """Yield title, line break and text of every document of one of the files of `corpus_files`, as fast as may be.

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
    with file.open(encoding="utf-8", newline="\n") as lines:
        yield from map(json.loads, lines)


def check_shards(folder: Path, shards: Iterable[ShardRecord]) -> None:
    """Make sure that shards are there, in the size in which they were written.

    Raises:
        DataError: one is not.
    """
    for shard in shards:
        path = folder / shard.name
        if not path.is_file() or path.stat().st_size != shard.size_bytes:
            raise DataError(path, "missing or not as it was written", f"delete {folder} and build the corpus again")


LoadedT = TypeVar("LoadedT", bound=Config)


def load_record(kind: type[LoadedT], path: Path) -> LoadedT:
    """Read a record of a corpus.

    Raises:
        DataError: the file is damaged.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        fix = "delete the folder and build the corpus again"
        raise DataError(path, f"not the {kind.__name__.strip('_').lower()} of a corpus", fix) from error
