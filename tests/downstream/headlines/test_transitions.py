"""Which kept unit follows which: the formula term by term, probabilities, and what training learns."""

import itertools
import math

import numpy as np
import pytest

from downstream.headlines.compression import Read
from downstream.headlines.compression_training import fit_transitions
from downstream.headlines.settings import CompressionConfig
from downstream.headlines.transitions import BETWEEN, BORDERS, END, START, UNIFORM, Transitions, with_borders

SIZE, NUM_FEATURES = 4, 5


def test_scores_are_the_formula_term_by_term() -> None:
    draw = np.random.default_rng(0)
    weights = draw.normal(size=(NUM_FEATURES + 3, 2 * SIZE + 3)).astype(np.float32)
    distances = draw.normal(size=(3, len(BORDERS))).astype(np.float32)
    features = draw.normal(size=(20, NUM_FEATURES)).astype(np.float32)
    found = Transitions(weights, distances).log_probabilities(features)
    values = with_borders(features) @ weights
    left, right = values[:, :SIZE], values[:, SIZE : 2 * SIZE]
    for i in range(21):
        expected = {}
        for j in range(i + 1, 22):
            kind = END if j == 21 else START if i == 0 else BETWEEN
            distance = max(k for k, border in enumerate(BORDERS) if border <= j - i)
            score = left[i] @ right[j] / math.sqrt(SIZE) + values[j, -3] + distances[kind, distance]
            if j == i + 1 and kind == BETWEEN:
                score += values[i, -2] + values[j, -1]
            expected[j] = float(score)
        total = sum(map(math.exp, expected.values()))
        mixed = [(1 - UNIFORM) * math.exp(score) / total + UNIFORM / len(expected) for score in expected.values()]
        assert found[i, : i + 1].max() == -math.inf
        assert np.exp(found[i, i + 1 :]) == pytest.approx(mixed, rel=1e-4)


def test_start_units_and_end_are_told_apart() -> None:
    rows = with_borders(np.full((2, 1), 7, np.float32))
    assert rows.tolist() == [[0, 1, 0, 0], [7, 0, 1, 0], [7, 0, 1, 0], [0, 0, 0, 1]]


def test_one_unit_is_the_only_headline_of_its_sentence() -> None:
    weights = np.ones((NUM_FEATURES + 3, 2 * SIZE + 3), np.float32)
    found = Transitions(weights, np.zeros((3, len(BORDERS)), np.float32)).log_probabilities(
        np.ones((1, NUM_FEATURES), "f4")
    )
    assert found[1, 2] == pytest.approx(0, abs=1e-6)
    assert np.exp(found[0, 1:]).sum() == pytest.approx(1)


def test_large_scores_overflow_nowhere() -> None:
    draw = np.random.default_rng(1)
    weights = 100 * draw.normal(size=(NUM_FEATURES + 3, 2 * SIZE + 3)).astype(np.float32)
    features = draw.normal(size=(30, NUM_FEATURES)).astype(np.float32)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = Transitions(weights, np.zeros((3, len(BORDERS)), np.float32)).log_probabilities(features)
    assert np.exp(found[:-1]).sum(axis=1) == pytest.approx(np.ones(31), abs=1e-5)


def test_what_follows_what_is_learned() -> None:
    """A unit of a colour is followed by the next one of the same colour, whatever stands between."""
    draw = np.random.default_rng(0)
    reads, targets, chains = [], [], []
    for _ in range(300):
        colours = draw.integers(2, size=9)
        kept = np.flatnonzero(colours == 1)
        features = np.eye(2, dtype=np.float32)[colours]
        reads.append(Read(((),) * 9, features, 2))  # type: ignore[arg-type]
        targets.append(np.stack([colours, colours], 1).astype(np.float32))
        chains.append([0, *(kept + 1), 10])
    config = CompressionConfig(epochs=30, peak_lr=0.02, dropout=0.0, transition_size=2)
    transitions, losses = fit_transitions(reads, targets, config)
    assert losses[-1] < 0.1 < losses[0]
    for read, chain in list(zip(reads, chains, strict=True))[:20]:
        found = transitions.log_probabilities(read.own)
        for a, b in itertools.pairwise(chain[1:]):
            assert found[a].argmax() == b
