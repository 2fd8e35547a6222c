"""Rows into batches: the data of step s is a function of (seed, s), for every process and after every restart."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pretraining.data.packing import spans
from pretraining.data.rows import SPECIAL, RowCorpus
from pretraining.data.shards import IntArray
from pretraining.objective import Objective, RowBatch

if TYPE_CHECKING:
    import torch

ORDER_SEED = 0x0DE5


def collate(corpus: RowCorpus, rows: IntArray, epochs: IntArray, pad_id: int) -> RowBatch:
    """Put rows side by side.

    Args:
        corpus: where they are.
        rows: int (B,), their numbers.
        epochs: int (B,), the pass over the corpus that each is fed in.
        pad_id: fills short rows up to the longest one.
    """
    shards, places = zip(*(corpus.locate(int(row)) for row in rows), strict=True)
    pairs = list(zip(shards, places, strict=True))
    lengths = np.array([len(shard.ids[k]) for shard, k in pairs])
    width = int(lengths.max())
    # Where each token of each row goes in the flattened batch.
    row_starts = np.arange(len(rows), dtype=np.int64) * width
    at = spans(row_starts, lengths)

    def lay(values: Sequence[IntArray], fill: int) -> IntArray:
        flat = np.full(len(rows) * width, fill, np.int64)
        flat[at] = np.concatenate(values)
        return flat.reshape(len(rows), width)

    token_slices = [slice(int(s.ids.offsets[k]), int(s.ids.offsets[k + 1])) for s, k in pairs]
    sequence_slices = [slice(int(s.lengths.offsets[k]), int(s.lengths.offsets[k + 1])) for s, k in pairs]
    sequence_lengths = [s.lengths.values[part] for (s, _), part in zip(pairs, sequence_slices, strict=True)]
    counts = np.array([len(part) for part in sequence_lengths])
    all_lengths = np.concatenate(sequence_lengths).astype(np.int64)
    all_firsts = np.concatenate([s.first_lengths[part] for (s, _), part in zip(pairs, sequence_slices, strict=True)])
    numbers = spans(np.ones(len(counts), np.int64), counts)  # 1, 2, … within each row
    positions = spans(np.zeros(len(all_lengths), np.int64), all_lengths)
    ids = lay([s.ids.values[part] for (s, _), part in zip(pairs, token_slices, strict=True)], pad_id)
    masked_at: IntArray | None = None
    masked_ids: IntArray | None = None
    if shards[0].masked_at is not None:
        masked_at = np.concatenate([s.masked_at[k] + start for (s, k), start in zip(pairs, row_starts, strict=True)])
        masked_ids = np.concatenate(
            [s.masked_ids[s.masked_at.offsets[k] : s.masked_at.offsets[k + 1]] for s, k in pairs]
        ).astype(np.int64)
    return RowBatch(
        rows=rows,
        epochs=epochs,
        input_ids=ids,
        kinds=lay([s.kinds[part] for (s, _), part in zip(pairs, token_slices, strict=True)], SPECIAL),
        sequence_ids=lay([np.repeat(numbers, all_lengths)], 0),
        position_ids=lay([positions], 0),
        token_type_ids=lay([(positions >= np.repeat(all_firsts, all_lengths)).astype(np.int64)], 0),
        first_at=at[np.cumsum(all_lengths) - all_lengths],
        labels=np.concatenate([s.labels[part] for (s, _), part in zip(pairs, sequence_slices, strict=True)]),
        masked_at=masked_at,
        masked_ids=masked_ids,
    )


@dataclass(frozen=True)
class Feed:
    """Batches of a corpus, by the number of the step."""

    corpus: RowCorpus
    objective: Objective
    batch_size: int
    """Rows per optimizer step, over all processes."""

    def rows(self, step: int) -> tuple[IntArray, IntArray]:
        """Return the rows of a step and the pass over the corpus each belongs to; passes are shuffled anew."""
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs, places = np.divmod(places, len(self.corpus))
        rows = np.empty(self.batch_size, np.int64)
        for epoch in np.unique(epochs):
            rows[epochs == epoch] = self._order(int(epoch))[places[epochs == epoch]]
        return rows, epochs

    def _order(self, epoch: int) -> IntArray:
        if epoch not in self._orders:
            rng = np.random.default_rng([ORDER_SEED, self.objective.layout.seed, epoch])
            # A batch can hold the end of one pass and the begin of the next, so two are kept.
            self._orders.pop(epoch - 2, None)
            self._orders[epoch] = rng.permutation(len(self.corpus))
        return self._orders[epoch]

    @functools.cached_property
    def _orders(self) -> dict[int, IntArray]:
        return {}

    def micro_batches(
        self, step: int, *, process: int, num_processes: int, size: int
    ) -> list[dict[str, "torch.Tensor"]]:
        """Return what one process feeds in a step, in micro-batches of at most SIZE rows.

        The rows of a step are dealt out one by one, so that every number of processes sees the same step.
        """
        rows, epochs = self.rows(step)
        rows, epochs = rows[process::num_processes], epochs[process::num_processes]
        return [self.tensors(rows[k : k + size], epochs[k : k + size]) for k in range(0, len(rows), size)]

    def tensors(self, rows: IntArray, epochs: IntArray) -> dict[str, "torch.Tensor"]:
        """Return rows as the model takes them; see its `forward`."""
        import torch

        batch = collate(self.corpus, rows, epochs, self.objective.layout.specials.pad)
        inputs = self.objective.inputs(batch)
        return {
            name: torch.from_numpy(np.ascontiguousarray(array, np.float64 if array.dtype.kind == "f" else np.int64))
            for name, array in inputs.items()
        }
