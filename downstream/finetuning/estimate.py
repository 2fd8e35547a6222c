"""Time and memory of a fine-tuning: one micro-batch is computed, and multiplied by the number of them.

python -m downstream.finetune klue-nli --model klue/roberta-large --out runs/nli --dry-run
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from corpora.foundation.errors import RecipeError
from pretraining.training.estimate import format_duration, format_size
from pretraining.training.memory import largest_micro_batch, release, saved_bytes

BYTES = 4
"""Of a weight, a gradient or an entry of the optimizer's state."""
OPTIMIZER_STATES = 2


@dataclass(frozen=True)
class FinetuneEstimate:
    """The cost of a training. Times in seconds, sizes in bytes."""

    device: str
    num_parameters: int
    num_inputs: int
    steps: int
    micro_batch_size: int
    """Inputs that are computed at a time."""
    largest_micro_batch_size: int
    """Of the batch, its half, its quarter, …, the largest that fits with the longest inputs."""
    micro_batch_s: float
    """One micro-batch of the mean length, forward and backward."""
    optimizer_s: float
    training_s: float
    memory_bytes: int

    def table(self) -> str:
        """Return the estimate as a Markdown table."""
        rows = [
            ("device", self.device),
            ("parameters", f"{self.num_parameters:,}"),
            ("inputs per epoch", f"{self.num_inputs:,}"),
            ("one micro-batch", f"{self.micro_batch_size} inputs, {self.micro_batch_s:.3f} s"),
            ("largest micro-batch that fits", f"{self.largest_micro_batch_size} inputs"),
            (f"{self.steps:,} steps", format_duration(self.training_s)),
            ("peak memory", format_size(self.memory_bytes)),
        ]
        return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]) + "\n"


class Probe:
    """A trainer whose steps are tried without training."""

    def __init__(self, trainer: Any, *, batch_size: int) -> None:
        """Probe TRAINER, of `downstream.finetuning.trainer`, with batches of at most BATCH_SIZE inputs."""
        self._trainer, self._dataset = trainer, trainer.train_dataset
        self._batch_size = min(batch_size, len(self._dataset))
        self._by_length = sorted(range(len(self._dataset)), key=lambda k: -self._dataset.lengths[k])
        trainable = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
        self.fixed_bytes = BYTES * trainable * (1 + OPTIMIZER_STATES)

    def largest(self) -> int:
        """Return the largest of the batch, its half, its quarter, … that fits with the longest inputs; 0 if none."""
        found = largest_micro_batch(
            self.compute_longest, self._batch_size, model=self._trainer.model, fixed_bytes=self.fixed_bytes
        )
        release(self._trainer.model.device)
        return found

    def compute_longest(self, size: int) -> None:
        """Compute the gradients of the SIZE longest inputs, and delete them."""
        self._compute(self._by_length[:size])
        self._trainer.model.zero_grad(set_to_none=True)

    def _compute(self, chosen: list[int]) -> None:
        trainer = self._trainer
        batch = trainer.data_collator([self._dataset[k] for k in chosen])
        batch = {name: rows.to(trainer.model.device) for name, rows in batch.items()}
        trainer.model.train()
        with trainer.accelerator.autocast():
            loss = trainer.compute_loss(trainer.model, batch)
        loss.backward()
        if trainer.model.device.type == "cuda":
            torch.cuda.synchronize(trainer.model.device)

    def time_micro_batch(self, size: int) -> float:
        """Return the seconds that SIZE inputs of the mean length take, forward and backward."""
        mean = sum(self._dataset.lengths) / len(self._dataset)
        first = next(k for k, index in enumerate(self._by_length) if self._dataset.lengths[index] <= mean)
        first = max(0, min(first - size // 2, len(self._by_length) - size))
        chosen = self._by_length[first : first + size]
        self._compute(chosen[:1])  # warms up
        self._trainer.model.zero_grad(set_to_none=True)
        return _seconds(partial(self._compute, chosen))

    def time_optimizer(self) -> float:
        """Return the seconds of an optimizer step, after a micro-batch has left its gradients."""
        optimizer = self._trainer.create_optimizer()
        optimizer.step()  # allocates its state
        seconds = _seconds(optimizer.step)
        self._trainer.model.zero_grad(set_to_none=True)
        return seconds

    def memory_bytes(self, size: int) -> int:
        """Return the memory of a step on the SIZE longest inputs."""
        model = self._trainer.model
        if model.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(model.device))
        weights = BYTES * sum(p.numel() for p in model.parameters())
        one, two = (saved_bytes(partial(self.compute_longest, n), model) for n in (1, min(2, size)))
        return int(weights + self.fixed_bytes + one + (size - 1) * (two - one))


def _seconds(compute: Callable[[], object]) -> float:
    started = time.perf_counter()
    compute()
    return time.perf_counter() - started


def estimate_training(trainer: Any, *, where: str, batch_size: int, epochs: float) -> FinetuneEstimate:
    """Estimate a training; the model is changed.

    Args:
        trainer: of `downstream.finetuning.trainer`.
        where: the training, for messages.
        batch_size: inputs of an optimizer step.
        epochs: passes over the inputs.

    Raises:
        RecipeError: a micro-batch does not fit in memory; the message says which one does.
    """
    probe = Probe(trainer, batch_size=batch_size)
    num_inputs = len(trainer.train_dataset)
    largest = probe.largest()
    size = min(trainer.micro_batch_size or batch_size, batch_size, num_inputs)
    if size > largest:
        raise does_not_fit(where, size, largest)
    micro_batch_s = probe.time_micro_batch(size)
    optimizer_s = probe.time_optimizer()
    steps = max(1, round(epochs * -(-num_inputs // batch_size)))
    num_micro_batches = epochs * num_inputs / size
    device = trainer.model.device
    return FinetuneEstimate(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        num_parameters=sum(p.numel() for p in trainer.model.parameters()),
        num_inputs=num_inputs,
        steps=steps,
        micro_batch_size=size,
        largest_micro_batch_size=largest,
        micro_batch_s=micro_batch_s,
        optimizer_s=optimizer_s,
        training_s=num_micro_batches * micro_batch_s + steps * optimizer_s,
        memory_bytes=probe.memory_bytes(size),
    )


def does_not_fit(where: str, size: int, largest: int) -> RecipeError:
    """Return the error of a training that runs out of memory with micro-batches of SIZE where LARGEST would fit."""
    what = f"out of memory with {size} inputs at a time"
    if largest:
        return RecipeError(where, what, f"--set micro_batch_size={largest} fits and gives the same gradients")
    fix = "use a smaller max_length or encoder, or --set checkpoint_activations=true"
    return RecipeError(where, f"{what}, and not even one fits", fix)
