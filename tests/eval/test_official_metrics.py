"""Every metric of the tasks against the official scripts' rules, written down anew, on 1,000 random predictions.

The references below share no line with `downstream.metrics`: they count and loop where that folds columns. The rules of
answers are those of KorQuAD 1.0's and KLUE-MRC's evaluation scripts; correlations are written from their definitions.
"""

import collections
import itertools
import math
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from downstream.families.classification import Regression
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import Tagging
from downstream.metrics import KLUE_NER_TAGS, KLUE_NER_TYPES, Metric
from downstream.task import Task, all_tasks

NUMBER = 1000

# --- the rules ------------------------------------------------------------------------------------------------------


def share(flags: Sequence[float]) -> float:
    return math.fsum(flags) / len(flags)


def accuracy(predictions: Sequence[str], golds: Sequence[str]) -> float:
    return share([p == g for p, g in zip(predictions, golds, strict=True)])


def macro(which: str) -> Callable[[Sequence[str], Sequence[str]], float]:
    def score(predictions: Sequence[str], golds: Sequence[str]) -> float:
        scores = []
        for label in {*predictions, *golds}:
            hit = sum(p == g == label for p, g in zip(predictions, golds, strict=True))
            precision = hit / predictions.count(label) if label in predictions else 0.0
            recall = hit / golds.count(label) if label in golds else 0.0
            both = 2 * precision * recall / (precision + recall) if hit else 0.0
            scores.append({"macro_f1": both, "macro_precision": precision, "macro_recall": recall}[which])
        return share(scores)

    return score


def pearson(x: Sequence[float], y: Sequence[float]) -> float:
    mean_x, mean_y = share(x), share(y)
    above = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    below = math.fsum((a - mean_x) ** 2 for a in x) * math.fsum((b - mean_y) ** 2 for b in y)
    return above / math.sqrt(below)


def ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks of values from the smallest, 1; equal ones share their mean rank."""
    found: dict[float, list[int]] = {}
    for rank, value in enumerate(sorted(values), start=1):
        found.setdefault(value, []).append(rank)
    return [share(found[value]) for value in values]


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    return pearson(ranks(x), ranks(y))


def f1_at_3(predictions: Sequence[float], golds: Sequence[float]) -> float:
    hit = sum(p >= 3 and g >= 3 for p, g in zip(predictions, golds, strict=True))
    precision, recall = hit / sum(p >= 3 for p in predictions), hit / sum(g >= 3 for g in golds)
    return 2 * precision * recall / (precision + recall)


def korquad_normal(text: str) -> str:
    for mark in ("'", '"', "《", "》", "<", ">", "〈", "〉", "(", ")", "‘", "’"):
        text = text.replace(mark, " ")
    return " ".join("".join(c for c in text.lower() if c not in string.punctuation).split())


def korquad_f1(prediction: str, gold: str) -> float:
    ours = [c for word in korquad_normal(prediction).split() for c in word]
    theirs = [c for word in korquad_normal(gold).split() for c in word]
    common = sum(min(ours.count(c), theirs.count(c)) for c in set(ours))
    if not common:
        return 0.0
    precision, recall = common / len(ours), common / len(theirs)
    return 2 * precision * recall / (precision + recall)


def klue_normal(text: str) -> str:
    # The script wants one of these marks with ()‘’ behind it, where it means any of them.
    for mark in ("'", '"', "《", "》", "<", ">", "〈", "〉"):
        text = text.replace(f"{mark}()‘’", " ")
    return " ".join("".join(c for c in text.lower() if c not in string.punctuation).split())


def klue_rouge_w(prediction: str, gold: str) -> float:
    ours, theirs = klue_normal(prediction), klue_normal(gold)
    if not ours or not theirs:
        return float(ours == theirs)
    longest = max(
        (length for k in range(len(ours)) for length in range(1, len(ours) - k + 1) if ours[k : k + length] in theirs),
        default=0,
    )
    precision, recall = longest / len(ours), longest / len(theirs)
    return 2 * precision * recall / (precision + recall) if longest else 0.0


def best(score: Callable[[str, str], float]) -> Callable[[Sequence[str], Sequence[Sequence[str]]], float]:
    return lambda predictions, golds: share(
        [max(score(p, gold) for gold in some) for p, some in zip(predictions, golds, strict=True)]
    )


def entities(tags: Sequence[str]) -> collections.Counter[tuple[str, int, int]]:
    found, start = [], 0
    for start, tag in enumerate(tags):
        if tag[0] == "B":
            rest = itertools.takewhile(lambda other, kind=tag[2:]: other == f"I-{kind}", tags[start + 1 :])
            found.append((tag[2:], start, start + len(list(rest))))
    return collections.Counter(found)


def entity_f1(predictions: Sequence[str], golds: Sequence[str]) -> float:
    pairs = [(entities(p.split()), entities(g.split())) for p, g in zip(predictions, golds, strict=True)]
    scores = []
    for kind in KLUE_NER_TYPES:
        of_kind = [[[s for s in spans if s[0] == kind] for spans in pair] for pair in pairs]
        hit = sum(len(set(ours) & set(theirs)) for ours, theirs in of_kind)
        found, real = sum(len(ours) for ours, _ in of_kind), sum(len(theirs) for _, theirs in of_kind)
        if found + real:
            scores.append(2 * hit / (found + real))
    return share(scores)


def char_macro_f1(predictions: Sequence[str], golds: Sequence[str]) -> float:
    ours, theirs = ([t for line in lines for t in ("O", *line.split(), "O")] for lines in (predictions, golds))
    scores = []
    for tag in KLUE_NER_TAGS:
        hit = sum(a == b == tag for a, b in zip(ours, theirs, strict=True))
        both = ours.count(tag) + theirs.count(tag)
        scores.append(2 * hit / both if both else 1.0)
    return share(scores)


def micro_f1(predictions: Sequence[Any], golds: Sequence[Any]) -> float:
    """KLUE-RE: no_relation is no class."""
    hits = sum(p == g != "no_relation" for p, g in zip(predictions, golds, strict=True))
    both = sum(label != "no_relation" for label in [*predictions, *golds])
    return 2 * hits / both


RULES: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": accuracy,
    "macro_f1": macro("macro_f1"),
    "macro_precision": macro("macro_precision"),
    "macro_recall": macro("macro_recall"),
    "micro_f1": micro_f1,
    "pearson": pearson,
    "spearman": spearman,
    "entity_f1": entity_f1,
    "char_macro_f1": char_macro_f1,
    "korquad exact_match": best(lambda p, g: float(korquad_normal(p) == korquad_normal(g))),
    "korquad f1": best(korquad_f1),
    "klue-mrc exact_match": best(lambda p, g: float(klue_normal(p) == klue_normal(g))),
    "klue-mrc rouge_w": best(klue_rouge_w),
    "klue-sts f1": f1_at_3,
}


def rule_of(task: Task, metric: Metric) -> Callable[[Any, Any], float]:
    official = task.base or task.name
    return RULES.get(f"{official} {metric.key}") or RULES[metric.key]


# --- 1,000 predictions ----------------------------------------------------------------------------------------------

FRAGMENTS = [
    "서울",
    "부산",
    "대구 ",
    "광역시",
    "의",
    "3.5%",
    "1997년",
    "《",
    "》",
    "‘",
    "’",
    "(",
    ")",
    "'",
    '"',
    "<",
    ">",
]
FRAGMENTS += ["'()‘’", "〈()‘’", " ", "KBS", "kbs", ",", ".", "-", "~", "세종대왕", "한글", "!", "·"]


def draw(task: Task, generator: np.random.Generator) -> tuple[list[Any], list[Any]]:
    """Draw golds, and predictions that are right, near and wrong."""
    family: Any = task.family
    if isinstance(family, Regression):
        golds = np.round(generator.uniform(family.low, family.high, NUMBER), 1)
        return (golds + generator.normal(0, 1.5, NUMBER)).round(2).tolist(), golds.tolist()
    if isinstance(family, Tagging):
        tags = [generator.choice(KLUE_NER_TAGS, k % 12) for k in range(NUMBER)]
        others = [np.where(generator.random(len(t)) < 0.7, t, generator.choice(KLUE_NER_TAGS, len(t))) for t in tags]
        return [" ".join(t) for t in others], [" ".join(t) for t in tags]
    if isinstance(family, SpanQA):
        texts = ["".join(generator.choice(FRAGMENTS, generator.integers(1, 7))) for _ in range(NUMBER)]
        golds_of = [(text,) if k % 3 else (text, text[: 1 + len(text) // 2]) for k, text in enumerate(texts)]
        if family.has_unanswerable:
            golds_of[::9] = [("",)] * len(golds_of[::9])
        answers = [
            (some[-1], some[0].lower() + ".", texts[k - 1], "", some[0][1:])[k % 5] for k, some in enumerate(golds_of)
        ]
        return answers, golds_of
    labels = list(family.labels)
    golds = generator.choice(labels, NUMBER)
    right = generator.random(NUMBER) < 0.6
    return np.where(right, golds, generator.choice(labels, NUMBER)).tolist(), golds.tolist()


CASES = [
    (task, metric)
    for task in all_tasks().values()
    # Random pieces of tags have no one reading; see the tests of korquad-2.
    if not task.base
    and task.name != "korquad-2"
    and (hasattr(task.family, "labels") or isinstance(task.family, Regression | Tagging | SpanQA))
    for metric in task.metrics
]


def test_figures_of_a_thousand_predictions_are_those_of_the_official_rules() -> None:
    assert len(CASES) > 15
    for task, metric in CASES:
        where = f"{task.name} {metric.key}"
        predictions, golds = draw(task, np.random.default_rng(7))
        assert len(predictions) == len(golds) == NUMBER
        ours = metric(predictions, golds)
        assert 0.05 < ours < 0.95, where  # neither trivially right nor trivially wrong
        assert ours == pytest.approx(rule_of(task, metric)(predictions, golds), abs=1e-9), where
