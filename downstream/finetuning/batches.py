"""Batches of features: which examples are trained on, in which order, and how they are padded."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from corpora.foundation.files import fingerprint
from downstream.families.classification import Classification
from downstream.families.multiple_choice import MultipleChoice, pad_choices
from downstream.finetuning.subword_dropout import SubwordDropout
from downstream.task import Features, FinetuneConfig, Task

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

NO_LABEL = -100
"""Label that torch's cross-entropy ignores."""
LENGTH_MULTIPLE = 8
"""What lengths of batches are rounded up to in 16 bits.

On a CPU oneDNN compiles a matrix product for every shape and keeps the last 1,024, which take a gigabyte and more where
batches have all lengths. Tensor cores of GPUs prefer such lengths.
"""
EPOCH_SEEDS = 1_000_003
"""Factor of the run's seed in the seed of an epoch's order, so that runs do not share orders."""


def subsample(examples: Sequence[Any], number: int | None) -> Sequence[Any]:
    """Return NUMBER of the examples in their order, or all of them.

    They are chosen by a hash of their ids, the same for all training seeds; subsets are nested.
    """
    if number is None or number >= len(examples):
        return examples
    ranked = sorted(range(len(examples)), key=lambda k: fingerprint(f"training part {examples[k].id}"))
    return [examples[k] for k in sorted(ranked[:number])]


def draw_few(task: Task, examples: Sequence[Any], seed: int) -> Sequence[Any]:
    """Return the labelled examples that a few-shot task is trained on with SEED, in their order; else all of them.

    Labels of a classification or choice are drawn equally often, as far as there are examples; other examples are drawn
    whatever their gold. A hash of seed and id decides, and smaller numbers are part of larger ones.
    """
    number = task.few_shot
    if number is None or number >= len(examples):
        return examples
    is_balanced = isinstance(task.family, Classification | MultipleChoice)
    classes: dict[str, list[int]] = {}
    for k in sorted(range(len(examples)), key=lambda k: fingerprint(f"few-shot {seed} {examples[k].id}")):
        classes.setdefault(str(examples[k].label) if is_balanced else "", []).append(k)
    # One of each class in turn, so that classes differ by one example at most.
    turns = zip_longest(*(classes[label] for label in sorted(classes)))
    chosen = [k for turn in turns for k in turn if k is not None][:number]
    return [examples[k] for k in sorted(chosen)]


def trained_examples(task: Task, examples: Sequence[Any], config: FinetuneConfig, seed: int) -> Sequence[Any]:
    """Return the labelled examples that are trained on: a few of a few-shot task, the number that is set, or all."""
    return subsample(draw_few(task, examples, seed), config.train_examples)


class FeatureDataset:
    """A training set of feature dicts without the keys that are not for the model; an epoch may augment them."""

    def __init__(self, features: Sequence[Features], augment: SubwordDropout | None = None, seed: int = 0) -> None:
        """Keep the features.

        Args:
            features: keys that begin with an underscore are dropped.
            augment: applied to every feature in every epoch; None: features stay as they are.
            seed: of the augmentation.
        """
        self._features = [{k: v for k, v in f.items() if not k.startswith("_")} for f in features]
        self._augment, self._seed = augment, seed
        self.lengths = [len(f["input_ids"]) for f in features]
        self.epoch = 0

    def __len__(self) -> int:
        """Return the number of features."""
        return len(self._features)

    def __getitem__(self, index: int) -> Features:
        """Return a feature, augmented for the current epoch."""
        if self._augment is None:
            return self._features[index]
        # Seeded by epoch and index alone: a resumed run sees the same augmentation as an uninterrupted one.
        return self._augment(self._features[index], np.random.default_rng((self._seed, self.epoch, index)))


class LengthGroupedSampler:
    """Puts examples of similar length side by side, in an order that depends on seed and epoch alone.

    The Trainer's own sampler draws from one generator for the whole run, so a resumed run would see another order.
    """

    def __init__(self, dataset: FeatureDataset, batch_size: int, seed: int) -> None:
        """Sample from DATASET."""
        self._dataset, self._batch_size, self._seed = dataset, batch_size, seed

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that begins; called by the loader."""
        self._dataset.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        """Yield the indices of an epoch."""
        import torch
        from transformers.trainer_pt_utils import get_length_grouped_indices

        grouped: Any = get_length_grouped_indices  # not annotated
        generator = torch.Generator().manual_seed(EPOCH_SEEDS * self._seed + self._dataset.epoch)
        return iter(grouped(self._dataset.lengths, self._batch_size, generator=generator))

    def __len__(self) -> int:
        """Return the number of indices."""
        return len(self._dataset)


def micro_batches(
    batch: Mapping[str, "Tensor"], size: int, multiple: int = 1
) -> Iterator[tuple[dict[str, "Tensor"], float]]:
    """Divide a batch in parts of SIZE examples; yields each with its share of what the mean loss is a mean of.

    The gradients of the parts' mean losses, weighted by the shares and added up, are the gradient of the whole batch's.
    Parts are cut to their own longest input, whose length is rounded up to a multiple of MULTIPLE.
    """
    labels = batch.get("labels")
    whole = _num_terms(labels, len(batch["input_ids"]))
    for first in range(0, len(batch["input_ids"]), size):
        part = {name: rows[first : first + size] for name, rows in batch.items()}
        shape = part["input_ids"].shape
        longest = min(rounded_up(int(part["attention_mask"].sum(-1).max()), multiple), shape[-1])
        # Contiguous, because transformers views labels as one row.
        part = {
            name: rows[..., :longest].contiguous() if _is_tokens(rows, shape) else rows for name, rows in part.items()
        }
        yield part, _num_terms(part.get("labels"), len(part["input_ids"])) / max(1, whole)


def _num_terms(labels: "Tensor | None", num_rows: int) -> int:
    """Return what a mean loss is a mean of: labelled tokens, or examples."""
    of_tokens = labels is not None and labels.ndim > 1 and not labels.is_floating_point()
    return int((labels != NO_LABEL).sum()) if labels is not None and of_tokens else num_rows


def _is_tokens(rows: "Tensor", shape: Sequence[int]) -> bool:
    """Whether ROWS have an entry for every token."""
    return rows.shape == shape and not rows.is_floating_point()


def rounded_up(length: int, multiple: int) -> int:
    """Return the smallest multiple of MULTIPLE that is not below LENGTH."""
    return -(-length // multiple) * multiple


class PaddingCollator:
    """Pads a batch to its longest input, not to the maximum; token labels are padded with `NO_LABEL`."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", multiple: int = 1) -> None:
        """Pad with the tokenizer's padding token.

        Args:
            tokenizer: of the inputs.
            multiple: what lengths are rounded up to, if the model's longest input is a multiple of it, too.
        """
        self._tokenizer = tokenizer
        self.multiple = multiple if tokenizer.model_max_length % multiple == 0 else 1

    def __call__(self, features: Sequence[Features]) -> dict[str, "Tensor"]:
        """Return the batch: int64 (B, T) for every input; (B, C, T) for multiple choice."""
        rows = [dict(f) for f in features]
        if isinstance(rows[0]["input_ids"][0], list):
            return pad_choices(self._tokenizer, rows, self.multiple)
        length = rounded_up(max(len(row["input_ids"]) for row in rows), self.multiple)
        for row in rows:
            if isinstance(row.get("labels"), list):
                row["labels"] = row["labels"] + [NO_LABEL] * (length - len(row["labels"]))
        return dict(self._tokenizer.pad(rows, pad_to_multiple_of=self.multiple, return_tensors="pt"))
