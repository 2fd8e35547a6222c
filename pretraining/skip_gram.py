"""Skip-gram vectors of a run's tokens, as its initial word embeddings (`init.embeddings = "skip_gram"`).

A token predicts those around it in its sequence, against tokens drawn by their frequency to the power of ¾. Frequent
tokens are left out at random, and near ones count more often than far ones, as in word2vec. Unlike there, the drawn
tokens are those of a whole batch, which makes matrix products of them, and the steps are those of Adagrad.

Source: Mikolov et al. 2013, “Distributed Representations of Words and Phrases and their Compositionality”.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from corpora.foundation.files import atomic_file, fingerprint
from pretraining.data.rows import SPECIAL, RowShard
from pretraining.data.shards import IntArray

WINDOW = 5
"""Tokens on either side that a token predicts."""
NUM_NEGATIVES = 5
"""Drawn tokens that a pair is worth."""
NUM_DRAWN = 128
"""Drawn tokens of a batch; their weight is that of `NUM_NEGATIVES`."""
KEPT_SHARE = 1e-3
"""Share of the text above which a token is left out at random."""
LEARNING_RATE = 0.05
BATCH = 1 << 11
"""Tokens whose pairs are learnt at a time."""
FORMAT = 2
"""Incremented when the files of a cache change."""


@dataclass(frozen=True)
class TokenRun:
    """Ordinary tokens with the numbers of their sequences."""

    ids: IntArray
    """int64 (N,)."""
    sequences: IntArray
    """int64 (N,), ascending."""


@dataclass(frozen=True)
class SkipGram:
    """Vectors, and what their training has cost."""

    vectors: Tensor
    """float32 (V, width); NaN for tokens that do not occur."""
    tokens: int
    """Ordinary tokens of the text, which is read once."""
    elapsed_s: float
    """Time of the training, in seconds."""


def token_runs(shards: Iterable[RowShard]) -> Iterator[TokenRun]:
    """Return the ordinary tokens of row shards, static masks undone, without special tokens."""
    for shard in shards:
        ids = shard.ids.values.astype(np.int64)
        if shard.masked_positions is not None and shard.masked_ids is not None:
            rows = np.repeat(np.arange(len(shard)), np.diff(shard.masked_positions.offsets))
            ids[shard.ids.offsets[rows] + shard.masked_positions.values] = shard.masked_ids
        sequences = np.repeat(np.arange(len(shard.lengths.values)), shard.lengths.values)
        is_ordinary = shard.kinds != SPECIAL
        yield TokenRun(ids[is_ordinary], sequences[is_ordinary])


def train_skip_gram(runs: Iterable[TokenRun], vocab_size: int, width: int, *, seed: int, epochs: int = 1) -> Tensor:
    """Return vectors of tokens, float32 (vocab_size, width); NaN for those that do not occur.

    Args:
        runs: the text.
        vocab_size: entries of the vocabulary.
        width: of a vector.
        seed: of vectors and draws.
        epochs: passes through the text.
    """
    texts = list(runs)
    counts = sum((np.bincount(run.ids, minlength=vocab_size) for run in texts), np.zeros(vocab_size, np.int64))
    if not counts.any():
        return torch.full((vocab_size, width), torch.nan)
    shares = counts / counts.sum()
    kept = np.minimum(1.0, np.sqrt(KEPT_SHARE / np.maximum(shares, 1e-12)))
    drawn = counts**0.75
    limits = np.cumsum(drawn / drawn.sum())
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng([seed, vocab_size, width])
    pair = _Vectors(vocab_size, width, generator)
    for _ in range(epochs):
        for run in texts:
            chosen = rng.random(len(run.ids)) < kept[run.ids]
            ids, sequences = run.ids[chosen], run.sequences[chosen]
            for first in range(0, len(ids), BATCH):
                some = slice(first, first + BATCH)
                centres, contexts = _pairs(ids[some], sequences[some], rng)
                others = np.minimum(np.searchsorted(limits, rng.random(NUM_DRAWN)), vocab_size - 1)
                if len(centres):
                    pair.learn(*(torch.from_numpy(part) for part in (centres, contexts, others)))
    vectors = pair.centres
    vectors[torch.from_numpy(counts == 0)] = torch.nan
    return vectors


def _pairs(ids: IntArray, sequences: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return tokens and those around them in their sequences, in both directions; int64 (P,) each."""
    left: list[IntArray] = []
    right: list[IntArray] = []
    for distance in range(1, WINDOW + 1):
        is_pair = sequences[distance:] == sequences[:-distance]
        is_pair &= rng.random(len(is_pair)) < (WINDOW + 1 - distance) / WINDOW
        left.append(ids[:-distance][is_pair])
        right.append(ids[distance:][is_pair])
    return np.concatenate(left + right), np.concatenate(right + left)


class _Vectors:
    """Vectors of tokens as centres and as contexts, with the sums of Adagrad."""

    def __init__(self, vocab_size: int, width: int, generator: torch.Generator) -> None:
        self.centres = (torch.rand(vocab_size, width, generator=generator) - 0.5) / width
        self.contexts = torch.zeros(vocab_size, width)
        self._vectors = [self.centres, self.contexts]
        self._sums = [torch.zeros(vocab_size, 1), torch.zeros(vocab_size, 1)]

    def learn(self, centres: Tensor, contexts: Tensor, drawn: Tensor) -> None:
        """Do a step with P pairs, int64 (P,), and drawn tokens, int64 (K,)."""
        own, theirs, others = self.centres[centres], self.contexts[contexts], self.contexts[drawn]
        positive = torch.sigmoid((own * theirs).sum(1, keepdim=True)) - 1  # (P, 1)
        negative = torch.sigmoid(own @ others.t()) * (NUM_NEGATIVES / len(drawn))  # (P, K)
        self._step(0, centres, positive * theirs + negative @ others)
        self._step(1, torch.cat([contexts, drawn]), torch.cat([positive * own, negative.t() @ own]))

    def _step(self, which: int, ids: Tensor, gradients: Tensor) -> None:
        """Change the vectors of tokens, int64 (N,), by gradients, float32 (N, width); those of a token are added."""
        vectors, sums = self._vectors[which], self._sums[which]
        rows, places = torch.unique(ids, return_inverse=True)
        gradient = torch.zeros(len(rows), vectors.shape[1]).index_add_(0, places, gradients)
        sums[rows] += gradient.square().mean(1, keepdim=True)
        vectors[rows] -= LEARNING_RATE * gradient / (sums[rows].sqrt() + 1e-8)


def scaled_like(vectors: Tensor, weight: Tensor) -> Tensor:
    """Return vectors with mean 0 and the standard deviation of a network's random embeddings; NaN stays."""
    is_given = ~vectors.isnan().any(1)
    centred = vectors - vectors[is_given].mean(0)
    return centred * (weight.std() / centred[is_given].std().clamp(min=1e-12))


def cached_skip_gram(
    cache: Path, shards: Iterable[RowShard], digest: str, *, vocab_size: int, width: int, seed: int
) -> SkipGram:
    """Return the vectors of a run's rows, trained once per cache.

    Args:
        cache: folder.
        shards: the rows.
        digest: of them.
        vocab_size: entries of the vocabulary.
        width: of a vector.
        seed: of the training.

    Raises:
        ResultError: the cache cannot be written.
    """
    from safetensors import safe_open
    from safetensors.torch import save

    settings = [digest, vocab_size, width, seed, WINDOW, NUM_NEGATIVES, NUM_DRAWN, KEPT_SHARE, LEARNING_RATE, BATCH]
    path = cache / f"skip-gram-{fingerprint([FORMAT, *settings])[:12]}.safetensors"
    if not path.is_file():
        started, texts = time.perf_counter(), list(token_runs(shards))
        vectors = train_skip_gram(texts, vocab_size, width, seed=seed)
        cost = {"tokens": sum(len(text.ids) for text in texts), "elapsed_s": time.perf_counter() - started}
        with atomic_file(path, "wb") as file:
            file.write(save({"vectors": vectors}, metadata={key: str(value) for key, value in cost.items()}))
    with safe_open(path, framework="pt") as file:
        known = file.metadata()
        return SkipGram(file.get_tensor("vectors"), int(known["tokens"]), float(known["elapsed_s"]))
