"""Models of comments: which is offered first, what it has read, what it looks for, how well it does on news.

A model whose task stands earlier in `COMMENT_MODELS` is the default before all others, bundled or not. How well a model
finds hateful and offensive comments on news was measured by `python -m benchmarks.comments`, which writes the file that
is read here; for other weights than those that were measured, nothing is said.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass

from corpora.foundation.files import package_path
from corpora.foundation.texts import Texts
from downstream.encoders.folder import ModelFolder
from downstream.task import Task
from downstream.thresholds import ThresholdPoint

MEASURED = package_path("apps", "demo_pages", "comments.json")


@dataclass(frozen=True)
class CommentModel:
    """Models of a task on the page of comments."""

    task: str
    """Name of the official task that the model was fine-tuned on; its text is `comments.read_TASK`."""
    label: str
    """What is looked for unless the visitor chooses otherwise."""


COMMENT_MODELS = (
    CommentModel("hate", "hate"),
    CommentModel("nsmc", "negative"),
)
"""The first that is there is the default."""


@dataclass(frozen=True)
class OnNews:
    """How well a model's label finds hateful and offensive comments on news."""

    model: str
    """Digest of the model's files."""
    label: str
    source: str
    num_comments: int
    num_positive: int
    """Comments labelled hateful or offensive."""
    points: tuple[ThresholdPoint, ...]

    def at(self, threshold: float) -> ThresholdPoint:
        """Return the measured point nearest to a threshold."""
        return min(self.points, key=lambda point: abs(point.threshold - threshold))


def default_label(task: Task, labels: Sequence[str]) -> str:
    """Return the label that is looked for unless the visitor chooses another one."""
    found = next((entry.label for entry in COMMENT_MODELS if entry.task == task.official_name), "")
    return found if found in labels else labels[-1]


def what_it_read(texts: Texts, task: Task) -> str:
    """Return a sentence on the texts that a model has learnt from."""
    other = texts("comments.read_other", task=task.title)
    return texts.get(f"comments.read_{task.official_name}", other)


@functools.cache
def measured_on_news() -> tuple[OnNews, ...]:
    """Return what was measured, if anything was."""
    if not MEASURED.is_file():
        return ()
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))["models"]
    return tuple(OnNews(**row | {"points": tuple(ThresholdPoint(**point) for point in row["points"])}) for row in rows)


def on_news(model: ModelFolder, label: str) -> OnNews | None:
    """Return how well a label of these very weights finds hateful and offensive comments, if it was measured."""
    known = [found for found in measured_on_news() if found.label == label]
    digest = model.digest() if known else ""
    return next((found for found in known if found.model == digest), None)
