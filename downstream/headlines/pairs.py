"""Pairs of body and title from files of articles, divided into train, dev and test by their titles."""

import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from corpora.documents import RejectedRecord, read_documents
from corpora.foundation.errors import DataError

Split: TypeAlias = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
NUM_BUCKETS = 10
MIN_CHARS = 100
"""Letters and digits of the shortest body."""
COMPARED_CHARS = 200
"""Letters and digits at the start of a body by which copies are recognized."""


@dataclass(frozen=True)
class Pair:
    """A text and its headline."""

    body: str
    title: str


def read_pairs(sources: Sequence[Path], split: Split) -> list[Pair]:
    """Read the pairs of a split: a tenth is for test, another for dev, by a hash of the title.

    A title at the start of its body is cut off there. Pairs with the title or the beginning of an earlier one are left
    out, and so are bodies that are too short.

    Raises:
        DataError: a file is unusable, or there are none.
    """
    pairs: list[Pair] = []
    seen: set[str] = set()
    for body, title in _titled(sources):
        keys = {_compact(title), _compact(body)[:COMPARED_CHARS]}
        if len(_compact(body)) >= MIN_CHARS and not keys & seen:
            seen |= keys
            if split_of(title) == split:
                pairs.append(Pair(body, title))
    if not pairs:
        raise DataError(", ".join(map(str, sources)), f"no pairs of title and body in {split}", "give other files")
    return pairs


def _titled(sources: Iterable[Path]) -> Iterable[tuple[str, str]]:
    for source in sources:
        rejected: list[RejectedRecord] = []
        for document in read_documents(source, rejected=rejected):
            title = " ".join(document.title.split())
            if title:
                yield document.text.strip().removeprefix(title).strip(), title
        if rejected:
            first = f"{rejected[0].where}: {rejected[0].reason}"
            sys.stderr.write(f"{source}: {len(rejected)} bad records left out, e.g. {first}\n")


def split_of(title: str) -> Split:
    """Return the split of a title; it depends on nothing else."""
    bucket = int(hashlib.sha256(_compact(title).encode("utf-8", "replace")).hexdigest()[:8], 16) % NUM_BUCKETS
    return {0: "test", 1: "dev"}.get(bucket, "train")  # type: ignore[return-value]


def _compact(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())
