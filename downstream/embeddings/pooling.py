"""Encoders with their pooling: the mean of token vectors on onnxruntime or PyTorch, or another pipeline on PyTorch."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.errors import CheckpointError
from corpora.foundation.machine import num_threads, quiet_transformers, torch_threads
from downstream.embeddings.pipeline import (
    open_sentence_transformer,
    open_tokenizer,
    pipeline_max_length,
)
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.runtimes.backends import has_int8_units
from downstream.runtimes.graph import build_graph, open_session
from downstream.runtimes.plain_bert import PlainTokenizer, is_plain_bert
from downstream.runtimes.weights import EncoderWeights

Vectors: TypeAlias = NDArray[np.float32]
Compute: TypeAlias = Callable[[Sequence[str], int, Callable[[int], object]], Vectors]
"""Clean texts, batch size, progress callback (called with the number of finished texts) → float32 (N, D), any norm."""

MAX_PARALLEL_BATCHES = 8
"""Batches that run in parallel; each takes memory."""
SMALL_WIDTH = 384
"""Largest hidden size whose operations are too small to be split among threads."""
FEW_PRODUCTS = 2e12
"""Multiplications (at one token per character) that the CPU finishes in the time that PyTorch takes to be imported and
to look for a GPU: 600,000 characters for the bundled embedder, 20,000 for one of BERT's base size."""


@dataclass(frozen=True)
class PooledEncoder:
    """An encoder with its pooling, ready to compute."""

    dimension: int
    """Length D of the vectors."""
    max_length: int
    """Tokens of a text that the model reads, special tokens included."""
    num_parameters: int
    device: str | None
    """PyTorch device; None: detected when it is needed."""
    compute_for: Callable[[int], Compute]
    """Total number of characters → function that computes the texts."""


def default_device() -> str:
    """Return `cuda` if there is a GPU that PyTorch can use, else `cpu`."""
    if find_spec("torch") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def load_mean_pooled(
    folder: Path, settings: dict[str, Any] | None, device: str | None, *, is_int8: bool = False
) -> PooledEncoder:
    """Load an encoder with mean pooling.

    Args:
        folder: the encoder.
        settings: from `read_settings`; None: not a sentence-transformers folder.
        device: PyTorch device; None: a GPU for many texts, else the CPU, without PyTorch for a plain BERT. Where
            PyTorch is not installed, `cpu` needs none for a plain BERT.
        is_int8: compute on the CPU with weights of 8 bits.

    Raises:
        CheckpointError: 8 bits are asked for, and the encoder is no plain BERT.
    """
    if is_int8 and not is_plain_bert(folder):
        raise CheckpointError(folder, "8 bits are available for a plain BERT only", "load it without is_int8")
    is_on_cpu = is_int8 or (device == "cpu" and find_spec("torch") is None)
    if (device is not None and not is_on_cpu) or not is_plain_bert(folder):
        return _load_with_torch(folder, settings, device or default_device())
    weights, tokenizer = EncoderWeights.from_folder(folder), PlainTokenizer.load(folder)
    max_length = tokenizer.model_max_length if settings is None else pipeline_max_length(folder, settings)
    padding, hidden_size = int(tokenizer.pad_token_id or 0), weights.hidden_size
    graph = build_graph(
        weights,
        "mean",
        ["input_ids", "attention_mask"],
        is_int8=is_int8,
        reduce_range=is_int8 and not has_int8_units(),
    )
    run = open_session(graph, threads=1)

    def means(rows: Sequence[Sequence[int]]) -> Vectors:
        ids, mask = _pad(rows, padding)
        return run({"input_ids": ids, "attention_mask": mask})

    def compute(texts: Sequence[str], batch_size: int, advance: Callable[[int], object]) -> Vectors:
        rows = tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]
        # Threads that share one small operation spend more time waiting for each other than computing.
        with ThreadPoolExecutor(min(num_threads(), MAX_PARALLEL_BATCHES)) as pool:
            return _by_batches(rows, batch_size, hidden_size, means, pool.map, advance)

    @functools.cache
    def compute_many() -> Compute:
        found = default_device()
        return compute if found == "cpu" else _load_with_torch(folder, settings, found).compute_for(0)

    products_per_token = weights.products_per_token
    return PooledEncoder(
        dimension=hidden_size,
        max_length=max_length,
        num_parameters=weights.num_parameters,
        device="cpu" if is_on_cpu else None,
        compute_for=lambda characters: (
            compute if is_on_cpu or characters * products_per_token <= FEW_PRODUCTS else compute_many()
        ),
    )


def _load_with_torch(folder: Path, settings: dict[str, Any] | None, device: str) -> PooledEncoder:
    import torch

    tokenizer = load_tokenizer(folder) if settings is None else open_tokenizer(folder, settings)
    with quiet_transformers():
        model = load_model(folder, tokenizer, "AutoModel", {}).eval().to(device)
    max_length = int(tokenizer.model_max_length)

    @torch.inference_mode()
    def means(rows: Sequence[Sequence[int]]) -> Vectors:
        ids, mask = (torch.from_numpy(array).to(device) for array in _pad(rows, int(tokenizer.pad_token_id or 0)))
        tokens = model(input_ids=ids, attention_mask=mask).last_hidden_state  # (B, T, D)
        seen = mask.unsqueeze(-1)
        mean: Vectors = ((tokens * seen).sum(dim=1) / seen.sum(dim=1)).cpu().numpy()
        return mean

    def compute(texts: Sequence[str], batch_size: int, advance: Callable[[int], object]) -> Vectors:
        rows = tokenizer(list(texts), truncation=True, max_length=max_length)["input_ids"]
        width = int(model.config.hidden_size)
        if device.partition(":")[0] != "cpu" or width > SMALL_WIDTH:
            return _by_batches(rows, batch_size, width, means, map, advance)
        with _parallel_map() as run:
            return _by_batches(rows, batch_size, width, means, run, advance)

    return PooledEncoder(
        dimension=int(model.config.hidden_size),
        max_length=max_length,
        num_parameters=sum(p.numel() for p in model.parameters()),
        device=device,
        compute_for=lambda _: compute,
    )


def _by_batches(
    rows: Sequence[Sequence[int]],
    batch_size: int,
    dimension: int,
    means: Callable[[Sequence[Sequence[int]]], Vectors],
    run: Callable[..., Iterable[Vectors]],
    advance: Callable[[int], object],
) -> Vectors:
    """Compute rows of ids in batches of similar length, the longest first; RUN works like `map`."""
    order = sorted(range(len(rows)), key=lambda k: -len(rows[k]))
    batches = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    vectors = np.empty((len(rows), dimension), dtype=np.float32)
    for batch, computed in zip(batches, run(means, [[rows[k] for k in batch] for batch in batches]), strict=True):
        vectors[batch] = computed
        advance(len(batch))
    return vectors


def _pad(rows: Sequence[Sequence[int]], padding: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids and mask, (B, T) each."""
    ids = np.full((len(rows), max(map(len, rows))), padding, dtype=np.int64)
    mask = np.zeros_like(ids)
    for k, row in enumerate(rows):
        ids[k, : len(row)], mask[k, : len(row)] = row, 1
    return ids, mask


@contextlib.contextmanager
def _parallel_map() -> Iterator[Callable[..., Iterable[Any]]]:
    """Yield a `map` that runs the batches of a small model in parallel, one thread per batch.

    Threads that share one small operation spend more time waiting for each other than computing.
    """
    import torch

    workers = min(torch.get_num_threads(), MAX_PARALLEL_BATCHES)
    with torch_threads(1), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield pool.map


def load_pipeline(folder: Path, device: str) -> PooledEncoder:
    """Load any other sentence-transformers folder, such as one with [CLS] pooling, a dense layer or a prompt."""
    model = open_sentence_transformer(folder, device)

    def compute(texts: Sequence[str], batch_size: int, advance: Callable[[int], object]) -> Vectors:
        vectors: Vectors = np.asarray(model.encode(list(texts), batch_size=batch_size, show_progress_bar=False))
        advance(len(texts))
        return vectors

    return PooledEncoder(
        dimension=int(model.get_embedding_dimension()),
        max_length=int(model.max_seq_length),
        num_parameters=sum(p.numel() for p in model.parameters()),
        device=device,
        compute_for=lambda _: compute,
    )
