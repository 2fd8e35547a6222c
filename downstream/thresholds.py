"""Precision and recall at thresholds on a score, with confidence intervals of shares.

>>> [point] = threshold_points([0.9, 0.8, 0.4, 0.1], [True, False, True, False], [0.5])
>>> point.precision, point.recall
(0.5, 0.5)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z95 = 1.959963984540054
"""Standard normal quantile of 0.975."""


@dataclass(frozen=True)
class ThresholdPoint:
    """Counts when every score of at least a threshold is flagged."""

    threshold: float
    num_flagged: int
    num_right: int
    """Flagged, and positive by the gold labels."""
    num_positive: int
    """Positive by the gold labels."""

    @property
    def precision(self) -> float | None:
        """Share of the flagged that is positive; None if nothing is flagged."""
        return self.num_right / self.num_flagged if self.num_flagged else None

    @property
    def recall(self) -> float | None:
        """Share of the positive that is flagged; None if there are none."""
        return self.num_right / self.num_positive if self.num_positive else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None if nothing is flagged or positive."""
        total = self.num_flagged + self.num_positive
        return 2 * self.num_right / total if total else None


def threshold_points(
    scores: Sequence[float], is_positive: Sequence[bool], thresholds: Sequence[float]
) -> list[ThresholdPoint]:
    """Count what is flagged at each threshold.

    Args:
        scores: (N,) of any scale; a score equal to the threshold is flagged.
        is_positive: (N,) gold.
        thresholds: in any order.

    Returns:
        A point for each threshold, in their order.

    Raises:
        ValueError: scores and golds differ in number, or a score is not finite.
    """
    values, gold = np.asarray(scores, np.float64), np.asarray(is_positive, bool)
    if values.shape != gold.shape or values.ndim != 1:
        raise ValueError(f"{values.shape} scores for {gold.shape} golds")
    if not np.isfinite(values).all():
        raise ValueError("a score is not finite")
    flagged = [values >= threshold for threshold in thresholds]
    return [
        ThresholdPoint(float(threshold), int(chosen.sum()), int((chosen & gold).sum()), int(gold.sum()))
        for threshold, chosen in zip(thresholds, flagged, strict=True)
    ]


def wilson95(num_right: int, num: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a share (Wilson 1927), which lies within [0, 1]; None if NUM is 0."""
    if num == 0:
        return None
    share = num_right / num
    centre = (share + Z95**2 / (2 * num)) / (1 + Z95**2 / num)
    half = Z95 * math.sqrt(share * (1 - share) / num + Z95**2 / (4 * num**2)) / (1 + Z95**2 / num)
    return max(0.0, centre - half), min(1.0, centre + half)
