"""What guessing is worth: one answer for every example."""

import collections
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from downstream.families.classification import Regression
from downstream.families.dependency import Dependency
from downstream.families.dialogue_state import DialogueState, count_turns
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import BLANK, Tagging
from downstream.task import Prediction, Task
from eval.contestants.contestant import Baseline, Fitted


class Majority(Baseline):
    """The most frequent label, tag or answer of the training split, or its mean score."""

    kind = "majority"

    def applies_to(self, task: Task) -> bool:
        """Whether TASK has something to count, dialogue states included."""
        return super().applies_to(task) or isinstance(task.family, DialogueState)

    def libraries(self) -> tuple[str, ...]:
        """Return what computes the mean."""
        return ("numpy",)

    def fit(self, task: Task, train: Sequence[Any]) -> Fitted:
        """Count the training labels."""
        if isinstance(task.family, Tagging):
            tag = _most_frequent([tag for example in train for tag in example.label.split()])
            return Fitted(
                lambda examples: [BLANK.join(tag for c in example.text if c != BLANK) for example in examples], 1
            )
        if isinstance(task.family, Dependency):
            relation = _most_frequent([item.partition(":")[2] for example in train for item in example.label.split()])
            return Fitted(lambda examples: [_chain(example.text, relation) for example in examples], 1)
        if isinstance(task.family, DialogueState):
            state = _most_frequent([json.dumps(turn) for example in train for turn in json.loads(example.label)])
            return Fitted(
                lambda examples: [f"[{', '.join([state] * count_turns(example.text))}]" for example in examples], 1
            )
        if isinstance(task.family, Regression):
            constant: Prediction = float(np.mean([example.label for example in train]))
        elif isinstance(task.family, SpanQA):
            constant = _most_frequent([example.gold[0] for example in train])
        else:
            constant = _most_frequent([example.label for example in train])
        return Fitted(lambda examples: [constant] * len(examples), 1)


def _chain(text: str, relation: str) -> str:
    """Return the parse in which every eojeol depends on the next one."""
    count = len(text.split(BLANK))
    return BLANK.join(f"{(number + 1) % (count + 1)}:{relation}" for number in range(1, count + 1))


def _most_frequent(labels: Sequence[str]) -> str:
    return collections.Counter(labels).most_common(1)[0][0]


CONTESTANT = Majority
