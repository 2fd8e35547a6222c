"""Vectors of many texts in a folder: computed once by a slow model, resumed after a kill, and read from disk by row.

    python -m downstream.embed vectors texts.txt --model TEACHER --prompt "query: " --out vectors/

| file | content |
| --- | --- |
| `manifest.json` | model, its digest, prompt, dimension, number and digest of the texts |
| `texts.jsonl` | a text per line, as JSON strings |
| `00000.npy`, … | float16 (4,096, D), unit length; the last one has fewer rows |
| `shards.json` | digest of every shard; written last |

A training stage of the kind `teacher_vectors` reads such a folder.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from corpora.foundation.config import Config, validate
from corpora.foundation.errors import DataError, UsageError
from corpora.foundation.files import atomic_file, fingerprint, locked, sha256, write_json, write_text

if TYPE_CHECKING:
    from downstream.embeddings.embedder import Embedder

logger = logging.getLogger(__name__)

SHARD_SIZE = 4096
"""Texts in a shard: what a kill costs."""
MANIFEST, TEXTS, SHARDS = "manifest.json", "texts.jsonl", "shards.json"


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
        manifest = validate(VectorManifest, _read_json(folder / MANIFEST), folder / MANIFEST)
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
        return np.stack([self.shards[n // SHARD_SIZE][n % SHARD_SIZE] for n in numbers]).astype(np.float32)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(path, f"unreadable ({error})", "compute the folder again") from error


def write_vectors(
    texts: Sequence[str], embedder: "Embedder", out: Path, *, prompt: str = "", attribution: str = "", batch_size: int
) -> VectorManifest:
    """Compute the vectors of TEXTS; the same call resumes an interrupted one and computes missing shards only.

    Args:
        texts: N strings.
        embedder: the teacher.
        out: folder; created if missing.
        prompt: written before every text.
        attribution: line for the cards of models that learn from these vectors.
        batch_size: texts per batch.

    Raises:
        UsageError: the folder holds vectors of other texts or of another model.
        ResultError: the folder cannot be written.
    """
    if not texts:
        raise UsageError("texts", "there are none", "give a file with at least one text")
    lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
    with locked(out / ".lock", f"vectors in {out}"):
        if not (out / TEXTS).is_file():
            write_text(out / TEXTS, lines)
        manifest = VectorManifest(
            model=embedder.folder.name,
            model_sha256=embedder.sha256,
            prompt=prompt,
            is_int8=embedder.is_int8,
            dimension=embedder.dimension,
            num_texts=len(texts),
            texts_sha256=sha256(out / TEXTS),
            attribution=attribution,
        )
        is_other = (out / TEXTS).read_text(encoding="utf-8") != lines
        if (out / MANIFEST).is_file():
            is_other |= validate(VectorManifest, _read_json(out / MANIFEST), out / MANIFEST) != manifest
        if is_other:
            raise UsageError(out, "the folder holds vectors of other texts or settings", "give another --out")
        write_json(out / MANIFEST, manifest.model_dump())
        _write_shards(texts, embedder, out, prompt, batch_size)
    return manifest


def _write_shards(texts: Sequence[str], embedder: "Embedder", out: Path, prompt: str, batch_size: int) -> None:
    names = {out / f"{first // SHARD_SIZE:05}.npy": first for first in range(0, len(texts), SHARD_SIZE)}
    with tqdm(total=len(texts), desc="vectors", unit="text", disable=None) as bar:
        for path, first in names.items():
            part = texts[first : first + SHARD_SIZE]
            if not path.is_file():
                vectors = embedder.encode([prompt + text for text in part], batch_size=batch_size)
                with atomic_file(path, "wb") as file:
                    np.save(file, vectors.astype(np.float16), allow_pickle=False)
            bar.update(len(part))
    write_json(out / SHARDS, {path.name: sha256(path) for path in names})
