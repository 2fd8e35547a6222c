"""Examples on which models disagree: their texts, the gold label, and each model's answer."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corpora.foundation.config import Config
from corpora.foundation.errors import SuiteError
from downstream.families.classification import Regression
from downstream.families.dependency import Dependency
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import BLANK, Tagging
from downstream.finetuning.result import Result
from downstream.metrics import korquad_f1
from downstream.summaries.articles import Article
from downstream.summaries.family import SentenceChoice, SummaryExample, indices_of
from downstream.task import Prediction, QuestionExample, Task, TextExample, get_task
from eval.board.rows import Table

logger = logging.getLogger(__name__)

SHOWN = 40
"""Examples of a task."""
NOT_QUOTED = frozenset({"hate", "hate-bias"})
"""Official tasks whose texts are hate speech, often against named people; examples are counted but not shown."""
MIN_SPREAD = 0.2
"""Smallest difference in quality between the best and the worst answer of a disputed example."""
RIGHT, WRONG = 0.8, 0.5
"""An answer is right from the first quality on, and wrong below the second."""
EXCERPT = 160
"""Characters of a context that are shown on either side of the answer; of other texts four times as many."""


class Answer(Config):
    """A model's answer."""

    model: str
    text: str
    """Of its first seed."""
    quality: float
    """From 0 to 1, averaged over seeds; see `quality`."""

    @property
    def verdict(self) -> str:
        """`right`, `wrong`, or `partly`."""
        return "right" if self.quality >= RIGHT else "wrong" if self.quality < WRONG else "partly"


class DisputedExample(Config):
    """An example on which models disagree."""

    id: str
    texts: dict[str, str]
    """By field: text, pair, question, context."""
    gold: str
    answers: list[Answer]


class Disagreement(Config):
    """The examples of a task on which its models disagree."""

    task: str
    source: str
    """Of the data, with its licence."""
    num_examples: int
    num_disputed: int
    examples: list[DisputedExample]


def find_disagreements(table: Table, root: Path, *, shown: int = SHOWN) -> list[Disagreement]:
    """Collect the disputed examples of every task of a table with two models or more.

    Args:
        table: finished cells.
        root: data root; a task whose evaluation split is missing or has changed is left out and logged.
        shown: examples per task; none of those in `NOT_QUOTED`.
    """
    found = []
    for name in dict.fromkeys(cell.task for cell in table.cells):
        task, by_model = get_task(name), table.cells_of(name)
        if len(by_model) < 2:
            continue
        try:
            split = task.read_split(task.eval_split, root)
        except SuiteError as error:
            logger.warning("%s: no examples to show: %s", name, error)
            continue
        kept = {m: cells for m, cells in by_model.items() if cells[0].data_sha256.rpartition("+")[2] == split.sha256}
        if len(kept) > 1:
            quoted = 0 if task.official_name in NOT_QUOTED else shown
            found.append(disagreement(task, split.examples, kept, shown=quoted))
    return found


def disagreement(
    task: Task, examples: Sequence[Any], cells: Mapping[str, Sequence[Result]], *, shown: int = SHOWN
) -> Disagreement:
    """Collect the disputed examples of a task: largest differences first, equal ones by a hash of their ids.

    Args:
        task: the task.
        examples: its evaluation split.
        cells: model → its cells, one a seed.
        shown: number of examples to return.
    """
    qualities = {
        model: np.mean(
            [[quality(task, p, e) for p, e in zip(c.predictions, examples, strict=True)] for c in some], axis=0
        )
        for model, some in cells.items()
    }
    stacked = np.stack(list(qualities.values()))  # (models, N)
    spread = stacked.max(axis=0) - stacked.min(axis=0)
    disputed = [k for k in range(len(examples)) if spread[k] >= MIN_SPREAD]
    disputed.sort(key=lambda k: (-round(float(spread[k]), 2), hashlib.sha256(examples[k].id.encode()).digest()))
    return Disagreement(
        task=task.name,
        source=f"{task.source} ({task.licence})",
        num_examples=len(examples),
        num_disputed=len(disputed),
        examples=[
            DisputedExample(
                id=examples[k].id,
                texts=_texts(examples[k]),
                gold=_answer_text(task, examples[k], examples[k].gold),
                answers=[
                    Answer(
                        model=model,
                        text=_answer_text(task, examples[k], some[0].predictions[k]),
                        quality=round(float(qualities[model][k]), 4),
                    )
                    for model, some in cells.items()
                ],
            )
            for k in disputed[:shown]
        ],
    )


def quality(task: Task, prediction: Prediction, example: Any) -> float:
    """Return the quality of a prediction, from 0 to 1.

    A label is 1 or 0; a score loses its distance from the gold label as a share of half the scale; tags and heads are
    averaged; an answer has its best character F1 over the gold answers, a summary the F1 of its sentences.
    """
    if isinstance(task.family, Regression):
        distance = abs(float(prediction) - float(example.gold)) / (task.family.high - task.family.low)
        return max(0.0, 1.0 - 2 * distance)
    if isinstance(task.family, Tagging | Dependency):
        ours, theirs = str(prediction).split(), str(example.gold).split()
        return float(np.mean([a == b for a, b in zip(ours, theirs, strict=True)])) if theirs else 1.0
    if isinstance(task.family, SpanQA):
        return max(
            float(prediction == gold) if not gold or not prediction else korquad_f1(str(prediction), gold)
            for gold in example.gold
        )
    if isinstance(task.family, SentenceChoice):
        return task.metrics[0]([prediction], [example.gold])
    return float(prediction == example.gold)


def _texts(example: TextExample | QuestionExample | SummaryExample) -> dict[str, str]:
    if isinstance(example, SummaryExample):
        return {"text": _short(example.text)}
    if isinstance(example, TextExample):
        return {"text": _short(example.text)} | ({} if example.pair is None else {"pair": _short(example.pair)})
    start = example.answers[0].start if example.answers else 0
    end = start + len(example.answers[0].text) if example.answers else 0
    first, last = max(0, start - EXCERPT), end + EXCERPT
    context = "…" * (first > 0) + example.context[first:last] + "…" * (last < len(example.context))
    return {"question": _short(example.question), "context": context}


def _short(text: str) -> str:
    return text if len(text) <= 4 * EXCERPT else text[: 4 * EXCERPT] + "…"


def _answer_text(task: Task, example: Any, answer: Any) -> str:
    """Return an answer or gold label as text; of tags the entities."""
    if isinstance(task.family, Tagging):
        return _tagged(example.text, str(answer).split())
    if isinstance(task.family, Regression):
        return f"{float(answer):.2f}"
    if isinstance(task.family, SentenceChoice):
        chosen = answer.extractive if isinstance(answer, Article) else indices_of(answer)
        return " / ".join(example.article.texts[k] for k in chosen if k >= 0)
    texts = answer if isinstance(answer, tuple) else (answer,)
    return _short(" / ".join(dict.fromkeys(str(text) for text in texts)))


def _tagged(text: str, tags: Sequence[str]) -> str:
    """Return the entities of a text by strict IOB2, e.g. `서울:LC 3월:DT`."""
    characters = [c for c in text if c != BLANK]
    entities: list[list[str]] = []
    before = "O"
    for character, tag in zip(characters, tags, strict=False):
        if tag.startswith("B-"):
            entities.append([character, tag[2:]])
        elif entities and tag.startswith("I-") and before[2:] == tag[2:]:
            entities[-1][0] += character
        before = tag
    return " ".join(f"{name}:{kind}" for name, kind in entities) or "O"
