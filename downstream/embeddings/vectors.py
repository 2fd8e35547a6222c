"""Vectors of many texts, computed once by a slow model and resumed after a kill.

    python -m downstream.embed vectors texts.txt --model TEACHER --prompt "query: " --out vectors/

The folder's format is that of `pretraining.data.vectors`. The pretraining objective `teacher_vectors` and the training
stage of the same name read it.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from corpora.foundation.errors import UsageError
from corpora.foundation.files import atomic_file, locked, sha256, write_json, write_text
from pretraining.data.vectors import MANIFEST, SHARDS, TEXTS, VectorManifest, read_vector_manifest

if TYPE_CHECKING:
    from downstream.embeddings.embedder import Embedder

logger = logging.getLogger(__name__)

SHARD_SIZE = 4096
"""Texts in a shard: what a kill costs."""


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
            is_other |= read_vector_manifest(out) != manifest
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
