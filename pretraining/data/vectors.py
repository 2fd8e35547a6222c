"""Vectors of many texts in a folder, read from disk by row; written by `python -m downstream.embed vectors`.

| file | content |
| --- | --- |
| `manifest.json` | model, its digest, prompt, dimension, number and digest of the texts |
| `texts.jsonl` | a text per line, as JSON strings |
| `00000.npy`, … | float16 (4,096, D), unit length; the last one has fewer rows |
| `shards.json` | digest of every shard; written last |
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.config import Config, validate
from corpora.foundation.errors import DataError
from corpora.foundation.files import fingerprint, parse_signed, sha256

MANIFEST, TEXTS, SHARDS = "manifest.json", "texts.jsonl", "shards.json"
MEAN_ROWS = 20_000
"""Vectors whose mean stands for that of all."""


class VectorManifest(Config):
    """Everything that determines the vectors."""

    schema_version: Literal[1] = 1
    model: str
    """Name of the model's folder or its hub id."""
    model_sha256: str
    prompt: str
    """Written before every text, e.g. `query: `."""
    is_int8: bool
    dimension: int
    num_texts: int
    texts_sha256: str
    attribution: str = ""
    """Line for the cards of models that learn from these vectors."""


@dataclass(frozen=True)
class StoredVectors:
    """A finished folder, opened for reading."""

    manifest: VectorManifest
    sha256: str
    """Digest of the manifest and of all shards."""
    texts: Sequence[str]
    shards: Sequence[NDArray[np.float16]]
    """Memory-mapped, (4096, D) each."""

    @classmethod
    def open(cls, folder: Path) -> "StoredVectors":
        """Open a folder and check the digests of its files.

        Raises:
            DataError: the folder is unfinished or damaged.
        """
        redo = "compute it again: python -m downstream.embed vectors"
        if not (folder / SHARDS).is_file():
            raise DataError(folder, f"{SHARDS} is missing, so the vectors are not finished", redo)
        manifest = read_vector_manifest(folder)
        digests = dict(_read_json(folder / SHARDS))
        if sha256(folder / TEXTS) != manifest.texts_sha256:
            raise DataError(folder / TEXTS, "the digest differs from that of the manifest", redo)
        for name, digest in digests.items():
            if not (folder / name).is_file() or sha256(folder / name) != digest:
                raise DataError(folder / name, f"missing or damaged: the digest differs from that in {SHARDS}", redo)
        texts = [json.loads(line) for line in (folder / TEXTS).read_text(encoding="utf-8").splitlines()]
        shards = [np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in sorted(digests)]
        if sum(map(len, shards)) != len(texts) or len(texts) != manifest.num_texts:
            raise DataError(folder, f"{sum(map(len, shards)):,} vectors of {len(texts):,} texts", redo)
        return cls(manifest, fingerprint([manifest.model_dump(), digests]), texts, shards)

    def rows(self, numbers: Sequence[int]) -> NDArray[np.float32]:
        """Return the vectors with these row numbers, float32 (B, D)."""
        size = len(self.shards[0])
        found = [self.shards[n // size][n % size] for n in numbers]
        return np.array(found, np.float32).reshape(len(found), self.manifest.dimension)

    def mean(self) -> NDArray[np.float32]:
        """Return the mean of about `MEAN_ROWS` vectors at equal distances, float32 (D,)."""
        every = max(1, len(self.texts) // MEAN_ROWS)
        mean: NDArray[np.float32] = self.rows(range(0, len(self.texts), every)).mean(axis=0)
        return mean


def read_vector_manifest(folder: Path) -> VectorManifest:
    """Return the manifest of a folder, finished or not.

    Raises:
        DataError: it is missing or damaged.
    """
    return validate(VectorManifest, _read_json(folder / MANIFEST), folder / MANIFEST)


def _read_json(path: Path) -> Any:
    try:
        return parse_signed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(path, f"unreadable ({error})", "compute the folder again") from error
