"""What characters alone are worth: n-grams and linear models, for every family of tasks.

Logistic regression over the TF-IDF of character n-grams for single texts; similarity features for pairs; a ranking of
candidate spans for questions; the n-grams around each character for tags. Deterministic.
"""

import collections
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from pydantic import Field
from scipy import sparse
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from corpora.foundation.files import fingerprint, parse_signed, write_signed
from downstream.families.classification import Regression
from downstream.families.dependency import Dependency
from downstream.families.multiple_choice import MultipleChoice
from downstream.families.retrieval import Retrieval, rank_neighbours
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import BLANK, Tagging
from downstream.finetuning import ngrams
from downstream.finetuning.ngrams import NgramClassifier
from downstream.finetuning.search import UNDEFINED, Grid, split_off_validation, validation_record
from downstream.metrics import normalize_korquad
from downstream.task import ChoiceExample, Prediction, QuestionExample, Split, Task, TaskData, TextExample
from eval.contestants.contestant import Baseline, Fitted

# Everything that decides the predictions, for the result's recipe.
SETTINGS: dict[str, Any] = {
    "ngrams": list(ngrams.LENGTHS),
    "sublinear_tf": True,
    "C": ngrams.C,
    "ridge_alpha": 1.0,
    "similarity_ngrams": [1, 2, 3],
    "candidate_eojeol": 4,
    "negatives_per_question": 30,
    "training_questions": 5000,
    "threshold_folds": 2,
    "tag_context": 3,
    "tag_ngrams": 4,
    "tag_hash_bits": 20,
    "tag_alpha": 1e-6,
    "tag_passes": 10,
}


class Tfidf(Baseline):
    """Character n-grams, by the method that fits the task's family; deterministic."""

    kind = "tfidf"
    takes_grid = True

    regularisation: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Strength of the regularisation of the linear models, as a multiple of that in `SETTINGS`."""
    choice: dict[str, Any] = Field(default_factory=dict)
    """How grid search selected it: the points with their scores."""

    @classmethod
    def from_recipe(cls, name: str, source: str, recipe: Mapping[str, Any]) -> Self:
        """Return the model of a finished cell."""
        strength = recipe.get("settings", {}).get("regularisation", 1.0)
        return cls(name=name, regularisation=strength, choice=recipe.get("grid", {}))

    def applies_to(self, task: Task) -> bool:
        """Whether TASK is one of texts, retrieval included."""
        return super().applies_to(task) or isinstance(task.family, Retrieval)

    def constants(self) -> dict[str, Any]:
        """Return everything that decides the predictions."""
        return SETTINGS | ({"regularisation": self.regularisation} if self.regularisation != 1 else {})

    def settings(self, task: Task) -> dict[str, Any]:
        """Return constants and code, with the record of a grid search."""
        return super().settings(task) | ({"grid": self.choice} if self.choice else {})

    def with_grid(self, grid: Grid, task: Task, train: Split, out: Path) -> Self:
        """Return this model with the strength of regularisation that scores highest on a part of the training split.

        The part is the one that encoders are tuned on, and the strengths are those of the same grid.
        """
        if isinstance(task.family, Retrieval):
            return self  # nothing is fitted but counts
        data = split_off_validation(task, train, seed=0)
        key = task.metrics[0].key
        points = [{"regularisation": x, key: self._score(x, task, data, out)} for x in grid.regularisations]
        best = max(points, key=lambda point: UNDEFINED if point[key] is None else float(point[key] or 0.0))
        record = {"metric": key, **validation_record(0, data), "points": points}
        return self.model_copy(update={"regularisation": best["regularisation"], "choice": record})

    def _score(self, strength: float, task: Task, data: TaskData, out: Path) -> float | None:
        """Score a strength on the validation part, or return the score that OUT holds of the same recipe."""
        model = self.model_copy(update={"regularisation": strength, "choice": {}})
        path = out / f"{fingerprint(model.recipe(task, data))[:16]}.json"
        if path.is_file():
            found = parse_signed(path.read_text(encoding="utf-8"))["value"]
            return None if found is None else float(found)
        fitted = model.fit(task, data.train.examples)
        value = task.metrics[0](list(fitted.predict(data.eval.examples)), data.eval.golds)
        score = None if np.isnan(value) else float(value)
        write_signed(path, {"regularisation": strength, "value": score})
        return score

    def libraries(self) -> tuple[str, ...]:
        """Return what counts and learns."""
        return "numpy", "scikit-learn", "scipy"

    def code(self, task: Task) -> list[Any]:
        """Return this module and that of the n-grams."""
        return [type(self), NgramClassifier]

    def fit(self, task: Task, train: Sequence[Any]) -> Fitted:
        """Learn from character n-grams."""
        strength = self.regularisation
        if isinstance(task.family, SpanQA):
            return _rank_spans(train, strength, has_unanswerable=task.family.has_unanswerable)
        if isinstance(task.family, Tagging):
            return _tag(train, strength)
        if isinstance(task.family, MultipleChoice):
            return _choose(train, strength)
        if isinstance(task.family, Retrieval):
            return _retrieve(train)
        if isinstance(task.family, Dependency):
            return _parse(train, strength)
        if train[0].pair is None:
            return _classify(train, strength)
        if isinstance(task.family, Regression):
            return _score_pairs(train, strength)
        return _classify_pairs(train, strength)


def _num_idf(*vectorizers: TfidfVectorizer) -> int:
    return sum(len(vectorizer.idf_) for vectorizer in vectorizers)


def _num_coefficients(model: Any) -> int:
    return int(np.size(model.coef_) + np.size(model.intercept_))


def _classify(train: Sequence[TextExample], strength: float) -> Fitted:
    model = NgramClassifier([e.text for e in train], [str(e.label) for e in train], c=ngrams.C / strength)

    def predict(examples: Sequence[TextExample]) -> list[Prediction]:
        return list(model.predict([e.text for e in examples]))

    return Fitted(predict, model.num_parameters)


class Similarity:
    """Similarity of two texts by characters: cosines of n-gram TF-IDF, containment both ways, ratio of lengths."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Learn the weights of n-grams."""
        self._vectorizers = [ngrams.vectorizer(n, n).fit(texts) for n in SETTINGS["similarity_ngrams"]]
        self.num_parameters = _num_idf(*self._vectorizers)

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


def _score_pairs(train: Sequence[TextExample], strength: float) -> Fitted:
    one, two = _pair(train)
    similarity = Similarity(one + two)
    model = make_pipeline(StandardScaler(), Ridge(alpha=SETTINGS["ridge_alpha"] * strength))
    model.fit(similarity(one, two), [float(e.label) for e in train])

    def predict(examples: Sequence[TextExample]) -> list[Prediction]:
        return [float(value) for value in model.predict(similarity(*_pair(examples)))]

    scaling = 2 * model[0].n_features_in_
    return Fitted(predict, similarity.num_parameters + scaling + _num_coefficients(model[-1]))


@dataclass(frozen=True)
class _PairClassifier:
    """A logistic regression over the n-grams of two texts and their similarity."""

    model: LogisticRegression
    features: Callable[[Sequence[TextExample]], Any]
    num_parameters: int


def _fit_pairs(train: Sequence[TextExample], strength: float) -> _PairClassifier:
    one, two = _pair(train)
    vectorizer = ngrams.vectorizer(*ngrams.LENGTHS).fit(one + two)
    similarity = Similarity(one + two)

    def features(examples: Sequence[TextExample]) -> Any:
        first, second = _pair(examples)
        a, b = vectorizer.transform(first), vectorizer.transform(second)
        return sparse.hstack([b, a.multiply(b), b - a.multiply(b > 0), similarity(first, second)]).tocsr()

    model = ngrams.logistic_regression(ngrams.C / strength).fit(features(train), [e.label for e in train])
    return _PairClassifier(model, features, similarity.num_parameters + _num_idf(vectorizer) + _num_coefficients(model))


def _classify_pairs(train: Sequence[TextExample], strength: float) -> Fitted:
    pairs = _fit_pairs(train, strength)

    def predict(examples: Sequence[TextExample]) -> list[Prediction]:
        return [str(label) for label in pairs.model.predict(pairs.features(examples))]

    return Fitted(predict, pairs.num_parameters)


def _choose(train: Sequence[ChoiceExample], strength: float) -> Fitted:
    """Learn which text and choice belong together, and predict the choice with the highest score."""

    def split(examples: Sequence[ChoiceExample]) -> list[TextExample]:
        return [
            TextExample(f"{e.id}-{k}", e.text, choice, str(str(k) == e.label))
            for e in examples
            for k, choice in enumerate(e.choices)
        ]

    pairs = _fit_pairs(split(train), strength)

    def predict(examples: Sequence[ChoiceExample]) -> list[Prediction]:
        scores = iter(pairs.model.decision_function(pairs.features(split(examples))))
        return [str(int(np.argmax([next(scores) for _ in e.choices]))) for e in examples]

    return Fitted(predict, pairs.num_parameters)


# --- retrieval ------------------------------------------------------------------------------------------------------


def _retrieve(train: Sequence[TextExample]) -> Fitted:
    """Rank texts by the cosine of their TF-IDF."""
    vectorizer = ngrams.vectorizer(*ngrams.LENGTHS).fit([e.text for e in train])

    def predict(examples: Sequence[TextExample]) -> list[Prediction]:
        vectors = sparse.csr_array(vectorizer.transform([e.text for e in examples]))
        return [*rank_neighbours(vectors, [str(e.label) for e in examples])]

    return Fitted(predict, _num_idf(vectorizer))


# --- dependencies ---------------------------------------------------------------------------------------------------


def _parse(train: Sequence[TextExample], strength: float) -> Fitted:
    """Learn the relation of an eojeol from its own n-grams; its head is the next one."""
    words = [word for e in train for word in e.text.split(BLANK)]
    relations_of = [item.partition(":")[2] for e in train for item in str(e.label).split(BLANK)]
    model = NgramClassifier(words, relations_of, c=ngrams.C / strength)

    def predict(examples: Sequence[TextExample]) -> list[Prediction]:
        sentences = [e.text.split(BLANK) for e in examples]
        relations = iter(model.predict([word for sentence in sentences for word in sentence]))
        return [
            BLANK.join(
                f"{(number + 1) % (len(sentence) + 1)}:{next(relations)}" for number, _ in enumerate(sentence, 1)
            )
            for sentence in sentences
        ]

    return Fitted(predict, model.num_parameters)


# --- tags -----------------------------------------------------------------------------------------------------------


def _tag(train: Sequence[TextExample], strength: float) -> Fitted:
    """Learn to tag each character from the n-grams around it and their offsets, by a logistic regression."""
    hasher = FeatureHasher(1 << SETTINGS["tag_hash_bits"], input_type="string", alternate_sign=False)
    model = SGDClassifier(
        loss="log_loss",
        alpha=SETTINGS["tag_alpha"] * strength,
        max_iter=SETTINGS["tag_passes"],
        tol=None,
        average=True,
        random_state=0,
    )
    model.fit(hasher.transform(_surroundings(train)), [tag for e in train for tag in str(e.label).split()])

    def predict(examples: Sequence[TextExample]) -> list[Prediction]:
        if all(not e.text.strip(BLANK) for e in examples):
            return [""] * len(examples)
        tags = iter(model.predict(hasher.transform(_surroundings(examples))))
        return [BLANK.join(next(tags) for c in e.text if c != BLANK) for e in examples]

    return Fitted(predict, _num_coefficients(model))


def _surroundings(examples: Sequence[TextExample]) -> Iterator[list[str]]:
    """Yield for every character but blanks the n-grams of the window around it, each with its offset in it."""
    reach = SETTINGS["tag_context"]
    width = 2 * reach + 1
    spans = [(a, b) for a in range(width) for b in range(a + 1, min(width, a + SETTINGS["tag_ngrams"]) + 1)]
    for example in examples:
        padded = "\n" * reach + example.text + "\n" * reach
        for k, character in enumerate(example.text):
            if character != BLANK:
                window = padded[k : k + width]
                yield [f"{a} {window[a:b]}" for a, b in spans]


# --- questions ------------------------------------------------------------------------------------------------------

_EOJEOL = re.compile(r"\S+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
# Particles and endings that are rarely part of an answer; the longest first.
_PARTICLE = re.compile(
    r"(?:에서는|으로는|이라고|에게서|으로써|으로서|에서|에게|으로|까지|부터|보다|처럼|이라|라고|이며|이고|이다|에는|은|는|이|가|을|를|의|에|로|와|과|도|만|며|고)?[\]).,!?’”'\"]*$"
)
_QUESTION_WORDS = ("누구", "언제", "어디", "얼마", "몇", "왜", "무엇", "어느", "어떤")


def _rank_spans(train: Sequence[QuestionExample], strength: float, *, has_unanswerable: bool) -> Fitted:
    """Learn to choose among short runs of eojeol, with and without their particle, by a logistic regression."""
    generator = np.random.default_rng(0)
    cap = SETTINGS["training_questions"]
    chosen = [train[k] for k in sorted(generator.permutation(len(train))[:cap])]
    texts = list(dict.fromkeys(e.context for e in chosen)) + [e.question for e in chosen]
    vectorizer = ngrams.vectorizer(2, 3).fit(texts)
    ranking = _fit_ranking(chosen, vectorizer, generator, strength)
    if ranking is None:
        return Fitted(lambda examples: [""] * len(examples), 1)
    rank, num_coefficients = ranking
    threshold = _no_answer_threshold(chosen, vectorizer, generator, strength) if has_unanswerable else -np.inf

    def predict(examples: Sequence[QuestionExample]) -> list[Prediction]:
        answers = [rank(example) for example in examples]
        return [text if score >= threshold else "" for score, text in answers]

    return Fitted(predict, _num_idf(vectorizer) + num_coefficients + has_unanswerable)


Ranking: TypeAlias = Callable[[QuestionExample], tuple[float, str]]


def _fit_ranking(
    questions: Sequence[QuestionExample],
    vectorizer: TfidfVectorizer,
    generator: np.random.Generator,
    strength: float,
) -> tuple[Ranking, int] | None:
    """Return a function that finds a question's best candidate with its score, and its number of coefficients.

    None where all candidates are right, or all wrong.
    """
    rows: list[dict[str, Any]] = []
    labels: list[bool] = []
    for example in questions:
        golds = {normalize_korquad(answer.text) for answer in example.answers}
        candidates = list(_candidates(example, vectorizer))
        right = [row for text, row in candidates if normalize_korquad(text) in golds]
        wrong = [row for text, row in candidates if normalize_korquad(text) not in golds]
        some = generator.permutation(len(wrong))[: SETTINGS["negatives_per_question"]]
        rows += right + [wrong[k] for k in some]
        labels += [True] * len(right) + [False] * len(some)
    if len(set(labels)) < 2:
        return None
    encoder = DictVectorizer()
    model = ngrams.logistic_regression(ngrams.C / strength).fit(encoder.fit_transform(rows), labels)

    def best(example: QuestionExample) -> tuple[float, str]:
        candidates = list(_candidates(example, vectorizer))
        if not candidates:
            return 0.0, ""
        scores = model.decision_function(encoder.transform([row for _, row in candidates]))
        return float(np.max(scores)), candidates[int(np.argmax(scores))][0]

    return best, _num_coefficients(model)


def _no_answer_threshold(
    questions: Sequence[QuestionExample],
    vectorizer: TfidfVectorizer,
    generator: np.random.Generator,
    strength: float,
) -> float:
    """Return the score from which an answer is right more often than no answer.

    Each question is scored by a ranking that was fitted on other articles: scores of training questions are too high.
    """
    contexts = list(dict.fromkeys(example.context for example in questions))
    folds = {context: k % SETTINGS["threshold_folds"] for k, context in enumerate(contexts)}
    known: list[tuple[float, int]] = []
    for fold in range(SETTINGS["threshold_folds"]):
        others = [example for example in questions if folds[example.context] != fold]
        ranking = _fit_ranking(others, vectorizer, generator, strength)
        for example in questions:
            if ranking is not None and folds[example.context] == fold:
                score, answer = ranking[0](example)
                golds = {normalize_korquad(gold.text) for gold in example.answers}
                # Gain of no answer over this one.
                known.append((score, int(not golds) - int(normalize_korquad(answer) in golds)))
    known.sort()
    cut = int(np.argmax(np.cumsum([0] + [gain for _, gain in known])))
    return known[cut][0] if cut < len(known) else np.inf


def _candidates(example: QuestionExample, vectorizer: TfidfVectorizer) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield candidate answers of a question with their features."""
    sentences = [s for s in _SENTENCE_END.split(example.context) if s.strip()]
    question = vectorizer.transform([example.question])
    similarities = np.asarray((vectorizer.transform(sentences) @ question.T).todense()).ravel()
    ranks = np.argsort(np.argsort(-similarities, kind="stable"), kind="stable")
    asked = next((word for word in _QUESTION_WORDS if word in example.question), "")
    for sentence, similarity, rank in zip(sentences, similarities, ranks, strict=True):
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


CONTESTANT = Tfidf
