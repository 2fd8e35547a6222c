"""Features of titles: a sentence embedding and character n-grams, side by side.

Names and figures decide which story a title belongs to. A small embedder knows that 대면 면회 and 접촉면회 mean the
same, but confuses one name with another; character n-grams do the opposite. A point concatenates both, each of unit
length and weighted. `benchmarks/clustering.py` measures what each contributes.

* Embeddings are centred and projected onto their principal axes, which removes the direction that all vectors of an
  encoder share (Mu and Viswanath 2018).
* Character n-grams are TF-IDF over 2 to 4 characters within an eojeol, hashed and projected at random (Achlioptas
  2003): cosines change by less than 0.05, and only the idf has to be saved for later batches.

Points do not depend on the number of threads: sums whose order a thread could change run in one.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from corpora.foundation.arrays import read_arrays, write_arrays
from corpora.foundation.errors import CheckpointError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

logger = logging.getLogger(__name__)

Vectors: TypeAlias = NDArray[np.float32]

NUM_HASHES = 1 << 18
NGRAMS = (2, 4)
SIGNS_PER_HASH = 8
BLOCK = 1024
"""Texts that are embedded between two writes of the cache, and transformed at a time."""
FULL_WEIGHT = 1.0 - 1e-9


class Embedder(Protocol):
    """Texts in, vectors out. `downstream.embed.Embedder` is one."""

    @property
    def sha256(self) -> str:
        """Digest of everything that determines the vectors; vectors of different digests are never mixed."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return float32 (N, D); rows need not have length 1."""


class CharNgrams:
    """An embedder with no dimensions: titles are compared by their character n-grams alone. Needs no model."""

    sha256 = "letters"

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return (N, 0)."""
        return np.zeros((len(texts), 0), np.float32)


class Space(Protocol):
    """A fitted reducer, which transforms texts that it has not seen."""

    def transform(self, texts: Sequence[str], vectors: Vectors) -> Vectors:
        """Return a point for each text: float32 (N, P), of length 1, or 0 where a text has no features."""


class Reducer(Protocol):
    """How a space is fitted to texts."""

    def fit(self, texts: Sequence[str], vectors: Vectors) -> Space:
        """Fit a space to distinct texts and their vectors."""


@dataclass(frozen=True)
class HybridFeatures:
    """The reducer described above."""

    dimensions: int = 256
    """Principal axes of the embeddings that are kept; at most their dimension."""
    letter_dimensions: int = 512
    letter_weight: float = 0.5
    """Share of the character n-grams in a cosine; 1 ignores the embeddings, 0 the n-grams."""
    seed: int = 0
    """Of the random projection."""

    def fit(self, texts: Sequence[str], vectors: Vectors) -> "HybridSpace":
        """Fit the axes to vectors of distinct texts, and the idf to the texts."""
        usable = vectors[np.isfinite(vectors).all(axis=1)]
        with threadpool_limits(1):
            mean = usable.mean(axis=0, dtype=np.float64) if len(usable) else np.zeros(vectors.shape[1])
            covariance = np.zeros((vectors.shape[1], vectors.shape[1]))
            for first in range(0, len(usable), BLOCK):
                centred = usable[first : first + BLOCK] - mean
                covariance += centred.T @ centred
            _, axes = np.linalg.eigh(covariance)
        counts = ngram_counts(texts)
        num_texts = np.bincount(counts.indices, minlength=NUM_HASHES)
        return HybridSpace(
            mean=mean.astype(np.float32),
            axes=axes[:, ::-1][:, : self.dimensions].astype(np.float32),
            idf=(np.log((1 + len(texts)) / (1 + num_texts)) + 1).astype(np.float32),
            letter_dimensions=self.letter_dimensions,
            letter_weight=self.letter_weight,
            seed=self.seed,
        )


@dataclass(frozen=True)
class HybridSpace:
    """The fitted `HybridFeatures`."""

    mean: Vectors
    """(D,)"""
    axes: Vectors
    """(D, P)"""
    idf: Vectors
    """(NUM_HASHES,)"""
    letter_dimensions: int
    letter_weight: float
    seed: int

    def transform(self, texts: Sequence[str], vectors: Vectors) -> Vectors:
        """Return float32 (N, P + letter dimensions), rounded to half precision, in which points are saved.

        A text whose vector is not finite is represented by its character n-grams alone.
        """
        usable = np.asarray(np.isfinite(vectors).all(axis=1))
        if not usable.all():
            logger.warning(
                "%d of %d vectors are not finite: their texts are compared by character n-grams alone",
                (~usable).sum(),
                len(usable),
            )
            vectors = np.where(usable[:, None], vectors, self.mean)
        with threadpool_limits(1):
            meaning = _unit((vectors - self.mean) @ self.axes)
        letters = self._letters(texts) if self.letter_weight else np.zeros((len(texts), 0), np.float32)
        weight = self.letter_weight if self.axes.size else FULL_WEIGHT
        # Python's own numbers leave an array in single precision.
        points = _unit(np.hstack([float(np.sqrt(1 - weight)) * meaning, float(np.sqrt(weight)) * letters]))
        return points.astype(np.float16).astype(np.float32)

    def _letters(self, texts: Sequence[str]) -> Vectors:
        projection = self._projection()
        rows = np.zeros((len(texts), self.letter_dimensions), np.float32)
        for first in range(0, len(texts), BLOCK):
            counts = ngram_counts(texts[first : first + BLOCK])
            counts.data = (1 + np.log(counts.data)) * self.idf[counts.indices]
            rows[first : first + BLOCK] = (counts @ projection).toarray()
        return _unit(rows)

    def _projection(self) -> "csr_array":
        """Return (NUM_HASHES, letter dimensions): a few random signs in each row, determined by the seed."""
        from scipy.sparse import csr_array

        random = np.random.default_rng(self.seed)
        size = NUM_HASHES * SIGNS_PER_HASH
        signs = random.choice(np.array([-1, 1], np.float32), size)
        positions = random.integers(0, self.letter_dimensions, size, dtype=np.int32)
        return csr_array(
            (signs, positions, np.arange(0, size + 1, SIGNS_PER_HASH)), shape=(NUM_HASHES, self.letter_dimensions)
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.floating]]) -> "HybridSpace":
        """Return the space whose `arrays` these are."""
        dimensions, weight, seed = arrays["settings"].tolist()
        learnt = {name: arrays[name].astype(np.float32) for name in ("mean", "axes", "idf")}
        return cls(**learnt, letter_dimensions=int(dimensions), letter_weight=weight, seed=int(seed))

    def arrays(self) -> dict[str, NDArray[np.floating]]:
        """Return the arrays to save."""
        settings = np.array([self.letter_dimensions, self.letter_weight, self.seed], np.float64)
        return {"mean": self.mean, "axes": np.ascontiguousarray(self.axes), "idf": self.idf, "settings": settings}


def ngram_counts(texts: Sequence[str]) -> "csr_array":
    """Return (N, NUM_HASHES): how often each hashed character n-gram occurs in each text."""
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import HashingVectorizer

    if not texts:
        return csr_array(np.zeros((0, NUM_HASHES), np.float32))  # the vectorizer refuses an empty list
    vectorizer = HashingVectorizer(
        analyzer="char_wb", ngram_range=NGRAMS, n_features=NUM_HASHES, norm=None, alternate_sign=False, dtype=np.float32
    )
    return csr_array(vectorizer.transform(texts))


def _unit(rows: NDArray[np.floating]) -> Vectors:
    """Return rows of length 1; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vectors = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0).astype(np.float32)
    return unit


class EmbeddingCache:
    """Vectors on disk by model and text: an interrupted embedding resumes where it stopped.

    Each model has a folder with files of vectors and digests of their texts; a file is written once, never changed.
    """

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        """Read the vectors of this embedder in FOLDER; texts of damaged files are embedded again."""
        self._embedder = embedder
        self._folder = folder / embedder.sha256[:16]
        self._vectors: dict[bytes, Vectors] = {}
        for file in sorted(self._folder.glob("*.safetensors")):
            try:
                tensors = read_arrays(file)
                pairs = zip(tensors["keys"], tensors["vectors"], strict=True)
                self._vectors.update({key.tobytes(): vector for key, vector in pairs})
            except (CheckpointError, KeyError, ValueError) as error:
                logger.warning("%s is damaged (%s): its texts are embedded again", file, error)

    @property
    def sha256(self) -> str:
        """The embedder's own digest."""
        return self._embedder.sha256

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return the embedder's vectors; it is called for texts that are not cached only."""
        keys = [_digest(text) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._vectors}
        with tqdm(total=len(missing), desc="embed", unit="title", disable=None) as bar:
            new = list(missing)
            for first in range(0, len(new), BLOCK):
                some = new[first : first + BLOCK]
                vectors = self._embedder.encode([missing[key] for key in some])
                self._write(some, vectors)
                self._vectors.update(zip(some, vectors, strict=True))
                bar.update(len(some))
        if not texts:
            return self._embedder.encode([])
        return np.stack([self._vectors[key] for key in keys])

    def _write(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        rows = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1)
        name = hashlib.blake2b(b"".join(keys), digest_size=8).hexdigest()
        write_arrays(self._folder / f"{name}.safetensors", {"keys": rows, "vectors": vectors})


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()


def embed_checked(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Return the embedder's vectors, checked to have a row for each text.

    Raises:
        CheckpointError: the number of rows differs.
    """
    vectors = np.asarray(embedder.encode(texts), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        what = f"vectors of shape {vectors.shape} for {len(texts)} texts"
        raise CheckpointError(type(embedder).__name__, what, "give an embedder that returns a row for each text")
    return vectors
