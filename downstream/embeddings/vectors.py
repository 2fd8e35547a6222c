"""Vectors of many texts, computed once by a slow model and resumed after a kill.

    python -m downstream.embed vectors texts.txt --model TEACHER --prompt "query: " --out vectors/

The folder's format is that of `pretraining.data.vectors`. The pretraining objective `teacher_vectors` and the training
stage of the same name read it.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from corpora.foundation.errors import UsageError
from corpora.foundation.files import atomic_file, locked, sha256, write_signed, write_text
from pretraining.data.vectors import MANIFEST, SHARDS, TEXTS, StoredVectors, VectorManifest, read_vector_manifest

if TYPE_CHECKING:
    from downstream.embeddings.embedder import Embedder

logger = logging.getLogger(__name__)

SHARD_SIZE = 4096
"""Texts in a shard: what a kill costs."""


def write_vectors(
    texts: Sequence[str],
    embedder: "Embedder",
    out: Path,
    *,
    prompt: str = "",
    attribution: str = "",
    batch_size: int,
    reuse: Sequence[Path] = (),
) -> VectorManifest:
    """Compute the vectors of TEXTS; the same call resumes an interrupted one and computes missing shards only.

    Args:
        texts: N strings.
        embedder: the teacher.
        out: folder; created if missing.
        prompt: written before every text.
        attribution: line for the cards of models that learn from these vectors.
        batch_size: texts per batch.
        reuse: finished folders of the same model and prompt, from which the vectors of equal texts are copied.

    Raises:
        UsageError: the folder holds vectors of other texts or of another model, or one of `reuse` does.
        DataError: a folder of `reuse` is unfinished or damaged.
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
        known = _Known(manifest, reuse)
        write_signed(out / MANIFEST, manifest.model_dump())

        def encode(part: Sequence[str]) -> NDArray[np.float16]:
            new = [text for text in part if text not in known]
            computed = embedder.encode([prompt + text for text in new], batch_size=batch_size).astype(np.float16)
            return known.merge(part, dict(zip(new, computed, strict=True)))

        _write_shards(texts, encode, out)
    return manifest


class _Known:
    """Vectors that other folders hold."""

    def __init__(self, wanted: VectorManifest, folders: Sequence[Path]) -> None:
        self._stored = [StoredVectors.open(folder) for folder in folders]
        for folder, stored in zip(folders, self._stored, strict=True):
            for name in ("model_sha256", "prompt", "is_int8"):
                own, other = getattr(wanted, name), getattr(stored.manifest, name)
                if own != other:
                    what = f"'{folder}' has {name}={other!r}, these vectors {own!r}"
                    raise UsageError("--reuse", what, "give vectors of the same model and prompt")
        numbers = range(len(self._stored))
        self._rows = {text: (n, row) for n in numbers for row, text in enumerate(self._stored[n].texts)}

    def __contains__(self, text: str) -> bool:
        return text in self._rows

    def merge(self, texts: Sequence[str], computed: Mapping[str, NDArray[np.float16]]) -> NDArray[np.float16]:
        """Return the vectors of TEXTS, (N, D), those that are not known from COMPUTED."""
        found = []
        for text in texts:
            number, row = self._rows.get(text, (0, 0))
            found.append(computed[text] if text in computed else self._stored[number].rows([row])[0])
        return np.array(found, np.float16)


def _write_shards(texts: Sequence[str], encode: Callable[[Sequence[str]], NDArray[np.float16]], out: Path) -> None:
    names = {out / f"{first // SHARD_SIZE:05}.npy": first for first in range(0, len(texts), SHARD_SIZE)}
    with tqdm(total=len(texts), desc="vectors", unit="text", disable=None) as bar:
        for path, first in names.items():
            part = texts[first : first + SHARD_SIZE]
            if not path.is_file():
                vectors = encode(part)
                with atomic_file(path, "wb") as file:
                    np.save(file, vectors, allow_pickle=False)
            bar.update(len(part))
    write_signed(out / SHARDS, {path.name: sha256(path) for path in names})
