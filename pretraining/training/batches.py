"""Rows into batches: the data of step s is a function of (seed, s), for any number of processes and restarts."""

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pretraining.data.packing import expand_spans
from pretraining.data.rows import SPECIAL, RowCorpus
from pretraining.data.shards import IntArray
from pretraining.objective import Objective, RowBatch

if TYPE_CHECKING:
    import torch

ORDER_SEED = 0x0DE5
BLOCK_ROWS = 1 << 22
"""Rows that are shuffled together."""
KEPT_PERMUTATIONS = 6
"""A batch can hold the end of an epoch and the start of the next, and of two blocks in each."""
ROW_ENTRIES = (
    *("input_ids", "token_type_ids", "position_ids", "sequence_ids"),
    *("decoder_input_ids", "causal_rows", "order"),
)
"""Entries of a batch with one line per row; the others have one element per prediction."""
Weights = npt.NDArray[np.float64] | None
"""Of the vocabulary's entries, as in `RowBatch`."""


def collate(corpus: RowCorpus, rows: IntArray, epochs: IntArray, pad_id: int) -> RowBatch:
    """Pad rows to the longest and stack them.

    Args:
        corpus: the rows.
        rows: int (B,), row numbers.
        epochs: int (B,), the epoch of each.
        pad_id: token id of the padding.
    """
    located = [corpus.locate(int(row)) for row in rows]
    lengths = np.array([len(shard.ids[k]) for shard, k in located])
    width = int(lengths.max())  # T
    # Positions of all tokens in the flattened batch.
    row_starts = np.arange(len(rows), dtype=np.int64) * width
    token_positions = expand_spans(row_starts, lengths)

    def stack(values: Sequence[IntArray], fill: int) -> IntArray:
        flat = np.full(len(rows) * width, fill, np.int64)
        flat[token_positions] = np.concatenate(values)
        return flat.reshape(len(rows), width)

    token_slices = [slice(int(s.ids.offsets[k]), int(s.ids.offsets[k + 1])) for s, k in located]
    sequence_slices = [slice(int(s.lengths.offsets[k]), int(s.lengths.offsets[k + 1])) for s, k in located]
    sequence_lengths = [s.lengths.values[part] for (s, _), part in zip(located, sequence_slices, strict=True)]
    counts = np.array([len(part) for part in sequence_lengths])
    all_lengths = np.concatenate(sequence_lengths).astype(np.int64)  # (Q,)
    all_firsts = np.concatenate([s.first_lengths[part] for (s, _), part in zip(located, sequence_slices, strict=True)])
    numbers = expand_spans(np.ones(len(counts), np.int64), counts)  # 1, 2, … within each row
    positions = expand_spans(np.zeros(len(all_lengths), np.int64), all_lengths)
    masked_positions: IntArray | None = None
    masked_ids: IntArray | None = None
    static = [(p, ids, k) for s, k in located if (p := s.masked_positions) and (ids := s.masked_ids) is not None]
    if static:
        masked_positions = np.concatenate([p[k] + start for (p, _, k), start in zip(static, row_starts, strict=True)])
        masked_ids = np.concatenate([ids[p.offsets[k] : p.offsets[k + 1]] for p, ids, k in static]).astype(np.int64)
    return RowBatch(
        rows=rows,
        epochs=epochs,
        input_ids=stack([s.ids.values[part] for (s, _), part in zip(located, token_slices, strict=True)], pad_id),
        kinds=stack([s.kinds[part] for (s, _), part in zip(located, token_slices, strict=True)], SPECIAL),
        sequence_ids=stack([np.repeat(numbers, all_lengths)], 0),
        position_ids=stack([positions], 0),
        token_type_ids=stack([(positions >= np.repeat(all_firsts, all_lengths)).astype(np.int64)], 0),
        sequence_starts=token_positions[np.cumsum(all_lengths) - all_lengths],
        labels=np.concatenate([s.labels[part] for (s, _), part in zip(located, sequence_slices, strict=True)]),
        masked_positions=masked_positions,
        masked_ids=masked_ids,
    )


@dataclass(frozen=True)
class BatchStage:
    """Steps before UNTIL that have rows of another length, or another number of them."""

    until: int
    corpus: RowCorpus
    objective: Objective
    batch_size: int


@dataclass(frozen=True)
class BatchSource:
    """Batches of a row corpus by step number."""

    corpus: RowCorpus
    objective: Objective
    batch_size: int
    """Rows per optimizer step, over all processes."""
    num_steps: int | None = None
    """Steps of the run, for settings that change in its course; None: they have their last value."""
    stages: tuple[BatchStage, ...] = ()
    """Earlier parts of the run, in order; all later steps have the values above."""

    def progress(self, step: int) -> float:
        """Return the share of the run that is done at the beginning of a step: 0 at the first, 1 at the last."""
        return 1.0 if self.num_steps is None else min(1.0, step / max(1, self.num_steps - 1))

    def stage(self, step: int) -> BatchStage:
        """Return the stage of a step; the last one has no end."""
        return next(stage for stage in self._all_stages if step < stage.until)

    @functools.cached_property
    def _all_stages(self) -> tuple[BatchStage, ...]:
        return (*self.stages, BatchStage(sys.maxsize, self.corpus, self.objective, self.batch_size))

    def rows(self, step: int) -> tuple[IntArray, IntArray]:
        """Return rows and epochs of a step, int64 (B,) each; every epoch is shuffled.

        Stages of one corpus continue its epochs.
        """
        stage, first, begin = self.stage(step), 0, 0
        for other in self._all_stages:
            if other.corpus is stage.corpus:
                first += (min(step, other.until) - begin) * other.batch_size
            begin = other.until
            if step < begin:
                break
        numbers = np.arange(first, first + stage.batch_size)
        epochs, ranks = np.divmod(numbers, len(stage.corpus))
        rows = np.empty(stage.batch_size, np.int64)
        for epoch in np.unique(epochs):
            rows[epochs == epoch] = self._rows_at(stage, int(epoch), ranks[epochs == epoch])
        return rows, epochs

    def _rows_at(self, stage: BatchStage, epoch: int, ranks: IntArray) -> IntArray:
        """Return the rows with certain RANKS in the order of an epoch.

        A corpus of many rows is shuffled by blocks, whose order is random too: a permutation of all rows would take
        memory, and every batch would read from everywhere on the disk.
        """
        seed, num_rows = [ORDER_SEED, self.objective.layout.seed, epoch], len(stage.corpus)
        if num_rows <= BLOCK_ROWS:
            return self._permutation(tuple(seed), num_rows)[ranks]
        starts = np.arange(0, num_rows, BLOCK_ROWS)
        blocks = self._permutation((*seed, len(starts)), len(starts))
        sizes = np.minimum(BLOCK_ROWS, num_rows - starts)[blocks]
        ends = np.cumsum(sizes)
        places = np.searchsorted(ends, ranks, side="right")
        rows = np.empty(len(ranks), np.int64)
        for place in np.unique(places):
            block, own = int(blocks[place]), places == place
            order = self._permutation((*seed, len(starts), block), int(sizes[place]))
            rows[own] = starts[block] + order[ranks[own] - (ends - sizes)[place]]
        return rows

    def _permutation(self, seed: tuple[int, ...], length: int) -> IntArray:
        """Return a random order; the last ones are kept."""
        key = (*seed, -length)
        if key not in self._kept:
            while len(self._kept) >= KEPT_PERMUTATIONS:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = np.random.default_rng(list(seed)).permutation(length)
        return self._kept[key]

    @functools.cached_property
    def _kept(self) -> dict[tuple[int, ...], IntArray]:
        return {}

    def micro_batches(
        self, step: int, *, process: int, num_processes: int, size: int, weights: Weights = None
    ) -> list[dict[str, "torch.Tensor"]]:
        """Return the inputs of one process in a step, in micro-batches of at most SIZE rows.

        Row k of a step goes to process k modulo `num_processes`, so that the step is the same for any number of them.
        If there are several micro-batches, rows of similar length share one, for less padding.
        """
        stage = self.stage(step)
        rows, epochs = self.rows(step)
        rows, epochs = rows[process::num_processes], epochs[process::num_processes]
        if len(rows) > size:
            located = (stage.corpus.locate(int(row)) for row in rows)
            by_length = np.argsort([len(shard.ids[k]) for shard, k in located], kind="stable")
            rows, epochs = rows[by_length], epochs[by_length]
        done = self.progress(step)
        return [
            _tensors(stage, rows[k : k + size], epochs[k : k + size], done, weights) for k in range(0, len(rows), size)
        ]

    def held_out_tensors(self, rows: IntArray, epoch: int) -> dict[str, "torch.Tensor"]:
        """Return held-out rows as model inputs; for no rows, one row without predictions."""
        shown = rows if len(rows) else np.zeros(1, np.int64)
        batch = self.tensors(shown, np.full(len(shown), epoch))
        return batch if len(rows) else {k: v if k in ROW_ENTRIES else v[:0] for k, v in batch.items()}

    def tensors(
        self, rows: IntArray, epochs: IntArray, progress: float = 1.0, weights: Weights = None
    ) -> dict[str, "torch.Tensor"]:
        """Return rows of the last stage as arguments of the model's `forward`."""
        return _tensors(self._all_stages[-1], rows, epochs, progress, weights)


def _tensors(
    stage: BatchStage, rows: IntArray, epochs: IntArray, progress: float, weights: Weights
) -> dict[str, "torch.Tensor"]:
    import torch

    batch = collate(stage.corpus, rows, epochs, stage.objective.layout.specials.pad)
    inputs = stage.objective.inputs(replace(batch, progress=progress, weights=weights))
    return {
        name: torch.from_numpy(np.ascontiguousarray(array, np.float64 if array.dtype.kind == "f" else np.int64))
        for name, array in inputs.items()
    }
