"""Parts of a training step, tried for their time and memory before a run."""

import collections
import time
from dataclasses import dataclass, replace

import torch

from corpora.foundation.errors import RecipeError
from pretraining.training.estimate import OPTIMIZER_STATES
from pretraining.training.loop import Trainer
from pretraining.training.memory import largest_micro_batch, release


@dataclass(frozen=True)
class StepSpeed:
    """Speed of a training step."""

    step_s: float
    tokens_per_s: float
    """Tokens without padding, over all processes."""
    matmul_share: float
    """Share of the floating-point rate of a large matrix product on the same devices."""


class TrialTrainer(Trainer):
    """A trainer whose steps can be tried."""

    def time_steps(self, seconds: float = 0.0, *, warm_up: int = 1) -> "StepSpeed":
        """Train for SECONDS, at least one step, and return the mean speed; the warm-up steps are not timed."""
        self._matmul_rate = self._measure_matmul_rate()
        for _ in range(warm_up):
            self._step(self._batches(self.progress.step))
        first, elapsed = self.progress.step, 0.0
        counts: collections.Counter[str] = collections.Counter()
        while self.progress.step == first or elapsed < seconds:
            batches = self._batches(self.progress.step)
            counts.update({name: int(number) for name, number in self._count(batches).items()})
            started = time.perf_counter()
            self._step(batches)
            self._synchronize()
            elapsed += time.perf_counter() - started
        share = self._matmul_share(counts, elapsed)
        return StepSpeed(elapsed / (self.progress.step - first), counts["tokens"] / elapsed, share)

    def time_micro_batch(self) -> StepSpeed:
        """Time one micro-batch and the optimizers, and multiply: a step of many micro-batches is too long to try."""
        self._matmul_rate = self._measure_matmul_rate()
        self.compute_gradients(1)  # warms up
        started = time.perf_counter()
        counts = self.compute_gradients(self.micro_batch_size)
        self._synchronize()
        elapsed = time.perf_counter() - started
        number = self._config.batch_size / (self.micro_batch_size * self.accelerator.num_processes)
        step_s = number * elapsed + self._time_optimizers()
        return StepSpeed(step_s, number * counts["tokens"] / step_s, self._matmul_share(counts, elapsed))

    def _time_optimizers(self) -> float:
        """Return the seconds that the optimizers take for a step."""
        self.compute_gradients(1, keep=True)
        seconds = 0.0
        for _ in range(2):  # the first allocates their state
            started = time.perf_counter()
            for optimizer in self._optimizers:
                optimizer.step()
            self._synchronize()
            seconds = time.perf_counter() - started
        self._zero_gradients()
        return seconds

    def _synchronize(self) -> None:
        if self.accelerator.device.type == "cuda":
            torch.cuda.synchronize(self.accelerator.device)

    def compute_gradients(self, size: int, *, keep: bool = False) -> dict[str, int]:
        """Compute the gradients of the first SIZE rows, and delete them unless KEEP; return what was counted."""
        # Those of the last stage, the longest ones.
        rows, epochs = replace(self._source, stages=()).rows(0)
        batch = self.model.prepare_batch(self._source.tensors(rows[:size], epochs[:size]))
        counts = self._count([batch])
        self._backward(batch, counts)
        if not keep:
            self._zero_gradients()
        return {name: int(number) for name, number in counts.items()}

    def largest_fitting(self, size: int) -> int:
        """Return the largest of SIZE rows, its half, … that every process has memory for; 0 if not even one."""
        fixed = 4 * self.num_parameters * (1 + OPTIMIZER_STATES)
        found = largest_micro_batch(self.compute_gradients, size, model=self.model, fixed_bytes=fixed)
        release(self.accelerator.device)
        if self.accelerator.num_processes == 1:
            return found
        every = self.accelerator.gather(torch.tensor([found], device=self.accelerator.device))
        return int(every.min())

    def does_not_fit(self, largest: int) -> RecipeError:
        """Return the error of a run that runs out of memory where micro-batches of LARGEST rows would fit."""
        what = f"out of memory with {self.micro_batch_size} rows at a time"
        if largest:
            return RecipeError("loop.micro_batch_size", what, f"--set loop.micro_batch_size={largest} fits, or 'auto'")
        fix = "use a smaller model or shorter rows"
        return RecipeError("loop.micro_batch_size", f"{what}, and not even one row fits", fix)
