"""Which kept unit follows which: p(j | i) over the units behind unit i and the end of the headline.

It is the softmax over j of

    left_i · right_j / √K + reached_j + [j = i + 1] (before_i + behind_j) + distance(kind, j − i)

mixed with a little of the uniform distribution. The vectors and numbers with one index are linear in the features of
that unit. The start, before the first unit, and the end are rows with an indicator of their own.

Source: McCallum, Freitag and Pereira 2000 (Markov models whose transitions are softmaxes over features).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

BORDERS = (1, 2, 3, 4, 6, 9, 14)
"""Least distances, in units, of the classes of distance."""
START, BETWEEN, END = range(3)
"""Kinds of transition: from the start to a unit, from unit to unit, to the end."""
UNIFORM = 0.05
"""Share of the uniform distribution in the probabilities, so that no transition is out of question."""
NUM_BIASES = 3
"""Columns of the weights beside left and right: reached, before, behind."""


@dataclass(frozen=True)
class Grid:
    """What a transition between two rows is, without their features; arrays or tensors, (n + 2, n + 2) each."""

    is_behind: Any
    """Whether column j lies behind row i, as it must."""
    is_next: Any
    """1 if unit j is the one next to unit i, else 0."""
    kind: Any
    distance: Any
    """Class of the distance."""


def grid(num_units: int) -> Grid:
    """Return the grid of a sentence: row 0 is the start, row n + 1 the end."""
    places = np.arange(num_units + 2)
    steps = places[None] - places[:, None]
    is_start = np.broadcast_to((places == 0)[:, None], steps.shape)
    is_end = np.broadcast_to(places == num_units + 1, steps.shape)
    return Grid(
        steps > 0,
        ((steps == 1) & ~is_start & ~is_end).astype(np.float32),
        np.where(is_end, END, np.where(is_start, START, BETWEEN)),
        np.searchsorted(BORDERS[1:], np.maximum(steps, 1), side="right"),
    )


def with_borders(features: Floats) -> Floats:
    """Return features of units, (n, F), with rows for start and end, and columns for what a row is, (n + 2, F + 3)."""
    what = np.zeros((len(features) + 2, 3), np.float32)
    what[0, START] = what[1:-1, BETWEEN] = what[-1, END] = 1
    return np.concatenate([np.pad(features, ((1, 1), (0, 0))), what], axis=1)


def scores(rows: Any, weights: Any, distances: Any, of: Grid) -> Any:
    """Return the scores of transitions, (n + 2, n + 2), before the softmax over each row; arrays or tensors.

    Args:
        rows: of `with_borders`, (n + 2, F + 3).
        weights: (F + 3, 2 K + 3).
        distances: by kind and class of distance, (3, D).
        of: the grid of the sentence.
    """
    size = (weights.shape[1] - NUM_BIASES) // 2
    values = rows @ weights
    reached, before, behind = values[:, -3], values[:, -2], values[:, -1]
    both = values[:, :size] @ values[:, size : 2 * size].T / math.sqrt(size)
    return both + reached[None] + of.is_next * (before[:, None] + behind[None]) + distances[of.kind, of.distance]


@dataclass(frozen=True)
class Transitions:
    """The trained weights."""

    weights: Floats
    """(F + 3, 2 K + 3)."""
    distances: Floats
    """(3, D)."""

    def log_probabilities(self, features: Floats) -> Floats:
        """Return log p(j | i), (n + 2, n + 2): row 0 is the start, column n + 1 the end; -inf where j is not behind i.

        Args:
            features: of the units alone, (n, F).
        """
        of = grid(len(features))
        is_behind = of.is_behind[:-1]  # nothing follows the end
        found = scores(with_borders(features), self.weights, self.distances, of)[:-1]
        found = np.where(is_behind, found, -np.inf)
        odds = np.exp(found - found.max(axis=1, keepdims=True))
        p = (1 - UNIFORM) * odds / odds.sum(axis=1, keepdims=True) + UNIFORM / is_behind.sum(axis=1, keepdims=True)
        logs = np.log(p, out=np.full(p.shape, -np.inf), where=is_behind)
        return np.concatenate([logs, np.full((1, len(logs) + 1), -np.inf)]).astype(np.float32)
