"""Counters of a run, and the sums over its steps, which stay on the device until they are read.

A step only adds to them. Reading them makes the program wait for the device; the loop does that where it writes a line,
a checkpoint or a model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

SUMS_OF_FLOATS = ("_loss", "_correct", "norm_sum")
"""Suffixes of the sums that may not be whole numbers."""
NUM_COUNTERS = 4
TOKENS, SKIPPED, IN_A_ROW, MOST_IN_A_ROW = range(NUM_COUNTERS)
"""Order of the counters of `StepCounters`."""


@dataclass
class Progress:
    """Counters in the state of a run."""

    step: int = 0
    """Optimizer steps done."""
    tokens: int = 0
    """Tokens seen, special ones included, padding excluded."""
    elapsed_s: float = 0.0
    """Step time summed over all resumed runs."""
    skipped: int = 0
    """Steps that were skipped because their gradient was not finite."""
    skipped_in_a_row: int = 0
    window: dict[str, float] = field(default_factory=dict)
    """Sums since the last line of `metrics.jsonl`; those of the device only in a checkpoint."""
    window_s: float = 0.0


class DeviceSums:
    """Sums by name, on the device."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.values: dict[str, Tensor] = {}

    def add(self, values: Mapping[str, Tensor], is_bad: Tensor | None = None) -> None:
        """Add scalars, unless IS_BAD, bool (), says that they are those of a skipped step."""
        for name, value in values.items():
            own = value if is_bad is None else torch.where(is_bad, torch.zeros_like(value), value)
            self.values[name] = self.values[name] + own if name in self.values else own

    def set(self, values: Mapping[str, float], device: torch.device) -> None:
        """Continue with sums that were read."""
        self.values = {
            name: torch.tensor(value, dtype=torch.float32 if _is_float(name, value) else torch.int64, device=device)
            for name, value in values.items()
        }

    def read(self) -> dict[str, float]:
        """Return the sums; waits for the device."""
        found: dict[str, float] = {}
        for is_float in (True, False):
            names = [name for name, value in self.values.items() if value.is_floating_point() == is_float]
            if names:
                numbers = torch.stack([self.values[name] for name in names])
                found |= zip(names, numbers.tolist(), strict=True)
        return {name: found[name] for name in self.values}


def _is_float(name: str, value: float) -> bool:
    return name.endswith(SUMS_OF_FLOATS) or value != int(value)


class StepCounters:
    """Tokens and skipped steps since they were last read, on the device."""

    def __init__(self, device: torch.device) -> None:
        """Start at 0."""
        self._counts = torch.zeros(NUM_COUNTERS, dtype=torch.int64, device=device)

    def add(self, tokens: Tensor, is_bad: Tensor) -> None:
        """Count a step.

        Args:
            tokens: int64 (), of the step.
            is_bad: bool (), whether it was skipped.
        """
        bad = is_bad.long()
        in_a_row = (self._counts[IN_A_ROW] + 1) * bad
        most = torch.maximum(self._counts[MOST_IN_A_ROW], in_a_row)
        self._counts = torch.stack([self._counts[TOKENS] + tokens, self._counts[SKIPPED] + bad, in_a_row, most])

    def read(self, progress: Progress) -> int:
        """Add the counts to PROGRESS, and return the most steps skipped in a row; waits for the device."""
        tokens, skipped, in_a_row, most = self._counts.tolist()
        progress.tokens += tokens
        progress.skipped += skipped
        progress.skipped_in_a_row = in_a_row
        self.set(in_a_row)
        return int(most)

    def set(self, in_a_row: int) -> None:
        """Continue after so many skipped steps in a row."""
        self._counts = torch.tensor([0, 0, in_a_row, in_a_row], device=self._counts.device)
