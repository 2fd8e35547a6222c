"""Family for dialogue state tracking: the slots that a user has filled by each of their turns (Wizard of Seoul).

An example is a whole dialogue. A prediction, like its label, is a JSON array with the state of every user turn, which
is an array of `DOMAIN-SLOT-VALUE`. Metrics are KLUE-baseline's: joint goal accuracy, and F1 of slots, means over turns.
Values are generated in KLUE-baseline; no encoder head of transformers does that, so only baselines are compared.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from corpora.foundation.errors import DataError, UsageError
from downstream.metrics import FloatArray, Metric
from downstream.task import TextExample

USER = "user: "
"""Begins the lines of a dialogue that are a user's."""


@dataclass(frozen=True)
class DialogueState:
    """States of all user turns of a dialogue."""

    auto_class = ""

    def check(self, example: TextExample, where: str) -> None:
        """Raise DataError for another number of states than user turns, or a slot without domain, name and value."""
        states = json.loads(str(example.label))
        turns = count_turns(example.text)
        if len(states) != turns or not turns:
            raise DataError(where, f"{len(states)} states for {turns} user turns", "restore the official file")
        for slot in (slot for state in states for slot in state):
            if not all(slot.split("-", 2)) or slot.count("-") < 2:
                raise DataError(where, f"'{slot}' is not DOMAIN-SLOT-VALUE", "restore the official file")

    def refuse(self, *_arguments: Any, **_settings: Any) -> NoReturn:
        """Raise UsageError: values are generated, and transformers has no head for that."""
        raise UsageError("task", "an encoder cannot be fine-tuned on dialogue states", "compare baselines")

    head_config = featurize = decode = logits = refuse


def count_turns(text: str) -> int:
    """Return the number of user turns of a dialogue."""
    return sum(line.startswith(USER) for line in text.split("\n"))


def _turns(predictions: Sequence[str], golds: Sequence[str]) -> Iterator[list[tuple[set[str], set[str]]]]:
    """Yield every dialogue's predicted and gold states by turn."""
    for number, (prediction, gold) in enumerate(zip(predictions, golds, strict=True), start=1):
        ours, theirs = json.loads(prediction), json.loads(gold)
        if len(ours) != len(theirs):
            raise ValueError(f"dialogue {number}: {len(ours)} states for {len(theirs)} turns")
        yield [(set(a), set(b)) for a, b in zip(ours, theirs, strict=True)]


def _slot_f1(ours: set[str], theirs: set[str]) -> float:
    return 2 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 1.0


def _mean_over_turns(key: str, title: str, of_turn: Callable[[set[str], set[str]], float]) -> Metric:
    """Return the mean of a score over the turns of all dialogues."""

    def columns(predictions: Sequence[Any], golds: Sequence[Any]) -> FloatArray:
        rows = [[sum(of_turn(*turn) for turn in turns), len(turns)] for turns in _turns(predictions, golds)]
        return np.array(rows, dtype=np.float64)

    def aggregate(rows: FloatArray, weights: FloatArray) -> FloatArray:
        return np.asarray(weights @ rows[:, 0] / (weights @ rows[:, 1]))

    return Metric(key, title, columns, aggregate)


joint_goal_accuracy = _mean_over_turns("jga", "JGA", lambda ours, theirs: float(ours == theirs))
slot_f1 = _mean_over_turns("slot_f1", "slot F1", _slot_f1)
