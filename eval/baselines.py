"""Baselines without a neural network: what guessing and what letters alone are worth.

`majority` knows only the training labels. `tfidf` sees character n-grams: logistic regression over their TF-IDF for
single texts, similarity features for pairs, and a ranking of candidate spans for questions. Both are deterministic.
"""

import collections
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from downstream.classification import Regression
from downstream.metrics import normalize_korquad
from downstream.span_qa import SpanQA
from downstream.task import Prediction, QuestionExample, Task, TextExample

# Everything that decides the predictions, for the result's recipe.
SETTINGS: dict[str, Any] = {
    "ngrams": [1, 4],
    "sublinear_tf": True,
    "C": 4.0,
    "ridge_alpha": 1.0,
    "similarity_ngrams": [1, 2, 3],
    "candidate_eojeol": 4,
    "negatives_per_question": 30,
    "training_questions": 5000,
}


def majority(task: Task, train: Sequence[Any], evaluation: Sequence[Any]) -> list[Prediction]:
    """Predict the most frequent training label, the mean score, or the most frequent answer for every example."""
    if isinstance(task.family, Regression):
        constant: Prediction = float(np.mean([example.label for example in train]))
    elif isinstance(task.family, SpanQA):
        constant = collections.Counter(example.gold[0] for example in train).most_common(1)[0][0]
    else:
        constant = collections.Counter(example.label for example in train).most_common(1)[0][0]
    return [constant] * len(evaluation)


def tfidf(task: Task, train: Sequence[Any], evaluation: Sequence[Any]) -> list[Prediction]:
    """Predict from character n-grams, by the method that fits the task's family."""
    if isinstance(task.family, SpanQA):
        return _rank_spans(train, evaluation, has_unanswerable=task.family.has_unanswerable)
    if train[0].pair is None:
        return _classify(train, evaluation)
    if isinstance(task.family, Regression):
        return _score_pairs(train, evaluation)
    return _classify_pairs(train, evaluation)


BASELINES: dict[str, Callable[[Task, Sequence[Any], Sequence[Any]], list[Prediction]]] = {
    "majority": majority,
    "tfidf": tfidf,
}


def _vectorizer(low: int, high: int) -> TfidfVectorizer:
    return TfidfVectorizer(analyzer="char", ngram_range=(low, high), sublinear_tf=True, lowercase=False)


def _logistic_regression() -> LogisticRegression:
    return LogisticRegression(C=SETTINGS["C"], max_iter=1000)


def _classify(train: Sequence[TextExample], evaluation: Sequence[TextExample]) -> list[Prediction]:
    vectorizer = _vectorizer(*SETTINGS["ngrams"])
    model = _logistic_regression().fit(vectorizer.fit_transform([e.text for e in train]), [e.label for e in train])
    return [str(label) for label in model.predict(vectorizer.transform([e.text for e in evaluation]))]


class _Similarity:
    """How alike two texts are by their letters: cosines of n-gram TF-IDF, containment both ways, lengths."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._vectorizers = [_vectorizer(n, n).fit(texts) for n in SETTINGS["similarity_ngrams"]]

    def __call__(self, one: Sequence[str], two: Sequence[str]) -> Any:
        """Return float (N, 6): three cosines, two containments, the ratio of lengths."""
        cosines = [
            np.asarray(v.transform(one).multiply(v.transform(two)).sum(axis=1)).ravel() for v in self._vectorizers
        ]
        bags = [(collections.Counter(a), collections.Counter(b)) for a, b in zip(one, two, strict=True)]
        shared = np.array([(a & b).total() for a, b in bags], dtype=float)
        lengths = np.array([[max(1, a.total()), max(1, b.total())] for a, b in bags], dtype=float)
        ratio = lengths.min(axis=1) / lengths.max(axis=1)
        return np.column_stack([*cosines, shared / lengths[:, 0], shared / lengths[:, 1], ratio])


def _pair(examples: Sequence[TextExample]) -> tuple[list[str], list[str]]:
    return [e.text for e in examples], [e.pair or "" for e in examples]


def _score_pairs(train: Sequence[TextExample], evaluation: Sequence[TextExample]) -> list[Prediction]:
    one, two = _pair(train)
    similarity = _Similarity(one + two)
    model = make_pipeline(StandardScaler(), Ridge(alpha=SETTINGS["ridge_alpha"]))
    model.fit(similarity(one, two), [float(e.label) for e in train])
    return [float(value) for value in model.predict(similarity(*_pair(evaluation)))]


def _classify_pairs(train: Sequence[TextExample], evaluation: Sequence[TextExample]) -> list[Prediction]:
    one, two = _pair(train)
    vectorizer = _vectorizer(*SETTINGS["ngrams"]).fit(one + two)
    similarity = _Similarity(one + two)

    def features(examples: Sequence[TextExample]) -> Any:
        first, second = _pair(examples)
        a, b = vectorizer.transform(first), vectorizer.transform(second)
        return sparse.hstack([b, a.multiply(b), b - a.multiply(b > 0), similarity(first, second)]).tocsr()

    model = _logistic_regression().fit(features(train), [e.label for e in train])
    return [str(label) for label in model.predict(features(evaluation))]


# --- questions ------------------------------------------------------------------------------------------------------

_EOJEOL = re.compile(r"\S+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
# Particles and endings that are rarely part of an answer; the longest first.
_PARTICLE = re.compile(
    r"(?:에서는|으로는|이라고|에게서|으로써|으로서|에서|에게|으로|까지|부터|보다|처럼|이라|라고|이며|이고|이다|에는|은|는|이|가|을|를|의|에|로|와|과|도|만|며|고)?[\]).,!?’”'\"]*$"
)
_QUESTION_WORDS = ("누구", "언제", "어디", "얼마", "몇", "왜", "무엇", "어느", "어떤")


def _rank_spans(
    train: Sequence[QuestionExample], evaluation: Sequence[QuestionExample], *, has_unanswerable: bool
) -> list[Prediction]:
    """Choose among short runs of eojeol, with and without their particle, by a logistic regression."""
    generator = np.random.default_rng(0)
    cap = SETTINGS["training_questions"]
    chosen = [train[k] for k in sorted(generator.permutation(len(train))[:cap])]
    vectorizer = _vectorizer(2, 3).fit(list(dict.fromkeys(e.context for e in chosen)) + [e.question for e in chosen])
    rows: list[dict[str, Any]] = []
    labels: list[bool] = []
    for example in chosen:
        golds = {normalize_korquad(answer.text) for answer in example.answers}
        candidates = list(_candidates(example, vectorizer))
        right = [row for text, row in candidates if normalize_korquad(text) in golds]
        wrong = [row for text, row in candidates if normalize_korquad(text) not in golds]
        some = generator.permutation(len(wrong))[: SETTINGS["negatives_per_question"]]
        rows += right + [wrong[k] for k in some]
        labels += [True] * len(right) + [False] * len(some)
    if len(set(labels)) < 2:
        return [""] * len(evaluation)
    encoder = DictVectorizer()
    model = _logistic_regression().fit(encoder.fit_transform(rows), labels)

    def best(example: QuestionExample) -> tuple[float, str]:
        candidates = list(_candidates(example, vectorizer))
        if not candidates:
            return 0.0, ""
        scores = model.decision_function(encoder.transform([row for _, row in candidates]))
        return float(np.max(scores)), candidates[int(np.argmax(scores))][0]

    threshold = -np.inf
    if has_unanswerable:
        known = sorted((best(example)[0], bool(example.answers)) for example in chosen)
        # The cut that tells answerable from unanswerable training questions best.
        gains = np.cumsum([0] + [-1 if answerable else 1 for _, answerable in known])
        cut = int(np.argmax(gains))
        threshold = known[cut][0] if cut < len(known) else np.inf
    answers = [best(example) for example in evaluation]
    return [text if score >= threshold else "" for score, text in answers]


def _candidates(example: QuestionExample, vectorizer: TfidfVectorizer) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield candidate answers of a question with their features."""
    sentences = [s for s in _SENTENCE_END.split(example.context) if s.strip()]
    question = vectorizer.transform([example.question])
    likeness = np.asarray((vectorizer.transform(sentences) @ question.T).todense()).ravel()
    ranks = np.argsort(np.argsort(-likeness, kind="stable"), kind="stable")
    asked = next((word for word in _QUESTION_WORDS if word in example.question), "")
    for sentence, similarity, rank in zip(sentences, likeness, ranks, strict=True):
        words = list(_EOJEOL.finditer(sentence))
        hits = [word.group()[:2] in example.question for word in words]
        for first in range(len(words)):
            for last in range(first, min(first + SETTINGS["candidate_eojeol"], len(words))):
                span = sentence[words[first].start() : words[last].end()]
                tail = _PARTICLE.search(span)
                for text in filter(None, dict.fromkeys([span, span[: tail.start()] if tail else span])):
                    near = sum(hits[max(0, first - 3) : first]) + sum(hits[last + 1 : last + 4])
                    yield (
                        text,
                        {
                            "similarity": similarity,
                            "rank": min(int(rank), 5),
                            "top": float(rank == 0),
                            "near": near,
                            "asked_again": float(text in example.question),
                            "overlap": sum(hits[first : last + 1]),
                            "words": str(last - first + 1),
                            "characters": len(text) / 10,
                            f"tail={span[len(text) :][:3]}": 1.0,
                            f"{asked}&digit={any(c.isdigit() for c in text)}": 1.0,
                            f"{asked}&words={last - first + 1}": 1.0,
                            f"{asked}&end={text[-1]}": 1.0,
                        },
                    )
