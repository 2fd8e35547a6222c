"""Train the weights of a summarizer, ablate its features, and evaluate it: the command of `downstream.summarize`.

There are two kinds of training articles. Labelled articles have an editor's choice of sentences, and count with and
without their headlines. Pairs have a headline only: the sentences that a greedy oracle chooses to cover the headline
count as chosen, and the features do not see the headline. Together, the pairs have a fraction of the weight of the
labelled articles (`pair_weight`).

No feature depends on how the sentences of an article are joined, so that training needs no copies of articles with
other line breaks. The feature `reference` is not trained but a penalty: a summary must be understood without the rest.

Features are selected by cross-validation on the labelled articles of the split `train`. Articles on the same story stay
in one fold, and the reported split plays no part in the selection.
"""

import json
import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from corpora.foundation.command import EXIT_DONE, ArgumentParser
from corpora.foundation.config import Config, validate
from corpora.foundation.errors import DataError, UsageError
from corpora.foundation.files import alone, sha256
from corpora.foundation.machine import versions
from downstream.finetuning.arguments import parse_overrides
from downstream.metrics import FloatArray
from downstream.summaries.articles import Article
from downstream.summaries.choice_model import fit_choices
from downstream.summaries.evaluation import NUM_SENTENCES, as_json, evaluate, paired_p, sentence_scores, table
from downstream.summaries.features import (
    FEATURES,
    NEEDS_ENCODER,
    NEEDS_SCORER,
    Encode,
    Score,
    TfidfVectors,
    sentence_features,
)
from downstream.summaries.labelled import of_split, read_labelled
from downstream.summaries.model import SummaryModel, open_encoder, open_scorer, save_model
from downstream.summaries.summarizer import ScoredArticle, Summarizer

logger = logging.getLogger(__name__)

LEXICAL = tuple(name for name in FEATURES if name not in NEEDS_ENCODER | NEEDS_SCORER | {"lead"})
"""Features without a network that a model has by default; `lead` adds nothing to `first`."""
REFERENCE = "reference"


class TrainingConfig(Config):
    """Training settings of a summarizer."""

    inverse_l2: float = Field(default=0.3, gt=0)
    """A smaller value means stronger regularization, as scikit-learn's `C`."""
    real_weight: float = Field(default=1.0, gt=0)
    """Weight of an article of a real newspaper or office, relative to one of the embedded sample."""
    reference_penalty: float = Field(default=2.0, ge=0)
    """Log-odds that a sentence loses for referring to one that is not in the summary."""
    pair_weight: float = Field(default=0.3, ge=0)
    """Total weight of the pairs, relative to that of the labelled articles."""
    min_sentences: int = Field(default=5, ge=1)
    """Shortest article of a pair; in shorter ones nearly every sentence is a lead."""
    max_sentences: int = Field(default=40, ge=1)
    """Longest article of a pair; a headline covers little of a longer one."""
    redundancy: float = Field(default=0.6, gt=0)
    """See `SummaryModel.redundancy`."""
    folds: int = Field(default=10, ge=2)
    repeats: int = Field(default=5, ge=1)
    """Cross-validations with different folds, which are averaged."""


@dataclass(frozen=True)
class ArticleFeatures:
    """An article with the features of its S sentences."""

    article: Article
    vectors: TfidfVectors
    features: Mapping[str, FloatArray]
    """Name → (S,)."""
    untitled: "ArticleFeatures | None" = None
    """The article without its headline, if it has one."""

    def matrix(self, names: Sequence[str]) -> FloatArray:
        """Return (S, len(names))."""
        return np.stack([self.features[name] for name in names], axis=1)

    @property
    def views(self) -> list["ArticleFeatures"]:
        """The article with its headline, if it has one, and the article without."""
        return [self] if self.untitled is None else [self, self.untitled]

    @property
    def labels(self) -> FloatArray:
        """1 for chosen sentences, else 0: (S,)."""
        return np.isin(np.arange(len(self.article.sentences)), self.article.extractive).astype(float)


def make_examples(
    articles: Sequence[Article], names: Sequence[str], *, encode: Encode | None = None, score: Score | None = None
) -> list[ArticleFeatures]:
    """Compute the features NAMES of articles; articles without sentences are skipped."""

    def example(article: Article) -> ArticleFeatures:
        vectors = TfidfVectors(article.texts)
        matrix = sentence_features(article, names, vectors=vectors, encode=encode, score=score)
        untitled = example(replace(article, title="")) if article.title else None
        return ArticleFeatures(article, vectors, {name: matrix[:, k] for k, name in enumerate(names)}, untitled)

    return [example(article) for article in articles if article.sentences]


def fit(
    examples: Sequence[ArticleFeatures],
    pairs: Sequence[ArticleFeatures],
    names: Sequence[str],
    config: TrainingConfig,
) -> SummaryModel:
    """Fit the weights of the features NAMES; see `downstream.summaries.choice_model`.

    Raises:
        DataError: in no article some sentences are chosen and others not.
    """
    fitted = [name for name in names if name != REFERENCE]
    num = sum(len(example.labels) for example in examples)
    values: list[FloatArray] = []
    labels: list[FloatArray] = []
    weights: list[float] = []
    for example in examples:
        weight = (config.real_weight if example.article.source else 1.0) / len(example.views)
        for view in example.views:
            values.append(view.matrix(fitted))
            labels.append(example.labels)
            weights.append(weight)
    if config.pair_weight and pairs:
        num_in_pairs = sum(len(pair.labels) for pair in pairs)
        values += [pair.matrix(fitted) for pair in pairs]
        labels += [pair.labels for pair in pairs]
        weights += [config.pair_weight * num / num_in_pairs] * len(pairs)
    if not any(0 < label.sum() < len(label) for label in labels):
        raise DataError("training data", "only one class of sentences", "give articles with an editor's choice")
    if not fitted:
        raise UsageError("--features", "no feature to fit", f"name one besides '{REFERENCE}'")
    theta, bias = fit_choices(values, labels, weights, inverse_l2=config.inverse_l2)
    found = {name: round(float(w), 6) for name, w in zip(fitted, theta, strict=True)}
    if REFERENCE in names:
        found[REFERENCE] = -config.reference_penalty
    return SummaryModel(
        schema=1,
        weights=found,
        bias=round(bias, 6),
        redundancy=config.redundancy,
    )


def cross_validate(
    examples: Sequence[ArticleFeatures],
    pairs: Sequence[ArticleFeatures],
    names: Sequence[str],
    config: TrainingConfig,
) -> FloatArray:
    """Return the sentence F1 of each labelled article (N,), from models that were not trained on its story.

    That of an article with a headline is the mean of those with and without it.
    """
    groups = sorted({example.article.group for example in examples})
    f1 = np.zeros(len(examples))
    for repeat in range(config.repeats):
        order = np.random.default_rng(repeat).permutation(len(groups))
        folds = {groups[index]: number % config.folds for number, index in enumerate(order)}
        for fold in range(config.folds):
            training = [example for example in examples if folds[example.article.group] != fold]
            model = fit(training, pairs, names, config)
            for k, example in enumerate(examples):
                if folds[example.article.group] == fold:
                    scores = [
                        sentence_scores(choose(model, view), example.article.extractive)["f1"] for view in example.views
                    ]
                    f1[k] += np.mean(scores) / config.repeats
    return f1


def choose(model: SummaryModel, example: ArticleFeatures) -> list[int]:
    """Choose sentences of an article from its features."""
    parts = {name: weight * example.features[name] for name, weight in model.weights.items()}
    scored = ScoredArticle(example.article, example.vectors, parts, model.bias, model.redundancy)
    return scored.choose(NUM_SENTENCES)


@dataclass(frozen=True)
class Ablation:
    """Scores of a model without one of its parts."""

    left_out: str
    """`nothing` for the full model."""
    f1: float
    """Sentence F1, cross-validated on the labelled articles."""
    p: float | None = None
    """p-value of the difference to the full model, paired by article."""
    pairs_f1: float | None = None
    """Sentence F1 on held-out pairs, against the oracle of their headlines; None without pairs."""
    pairs_p: float | None = None


def ablate(
    examples: Sequence[ArticleFeatures],
    pairs: Sequence[ArticleFeatures],
    names: Sequence[str],
    config: TrainingConfig,
) -> list[Ablation]:
    """Remove one part of the model at a time; the first row is the full model.

    Every fifth pair is held out and scored.
    """
    held_out, kept = pairs[::5], [pair for k, pair in enumerate(pairs) if k % 5]

    def scores(
        names: Sequence[str], pairs: Sequence[ArticleFeatures], config: TrainingConfig
    ) -> tuple[FloatArray, FloatArray]:
        model = fit(examples, pairs, names, config)
        on_pairs = [sentence_scores(choose(model, pair), pair.article.extractive)["f1"] for pair in held_out]
        return cross_validate(examples, pairs, names, config), np.array(on_pairs)

    variants = {"nothing": (names, kept, config)}
    for name in names if len(names) > 1 else ():
        variants[name] = ([other for other in names if other != name], kept, config)
    if pairs:
        variants["the pairs"] = (names, [], config)
    variants["redundancy control"] = (names, kept, config.model_copy(update={"redundancy": 2.0}))
    results = {left_out: scores(*variant) for left_out, variant in variants.items()}
    whole = results.pop("nothing")

    def row(left_out: str, result: tuple[FloatArray, FloatArray]) -> Ablation:
        f1, pairs_f1 = (float(values.mean()) if len(values) else None for values in result)
        p, pairs_p = (paired_p(*both) if len(both[0]) else None for both in zip(whole, result, strict=True))
        assert f1 is not None, "fit() refuses data without labelled articles"
        return Ablation(left_out, f1, p, pairs_f1, pairs_p)

    first = Ablation("nothing", float(whole[0].mean()), None, float(whole[1].mean()) if held_out else None)
    return [first, *(row(left_out, result) for left_out, result in results.items())]


def ablation_table(rows: Sequence[Ablation]) -> str:
    """Return a Markdown table, in percent."""
    columns = ["f1", "p", "pairs_f1", "pairs_p"] if rows[0].pairs_f1 is not None else ["f1", "p"]
    titles = {"f1": "sentence F1", "p": "p", "pairs_f1": "F1 on held-out pairs", "pairs_p": "p"}
    lines = [f"| left out | {' | '.join(titles[column] for column in columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for row in rows:
        cells = []
        for column in columns:
            value, first = getattr(row, column), getattr(rows[0], column)
            if value is None:
                cells.append("")
            elif column.endswith("p"):
                cells.append(f"{value:.3f}")
            else:
                change = "" if row is rows[0] else f" ({100 * (value - first):+.1f})"
                cells.append(f"{100 * value:.1f}{change}")
        lines.append(f"| {row.left_out} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# ---- command line ----


def read_headline_pairs(paths: Sequence[Path], config: TrainingConfig) -> list[Article]:
    """Read articles with headlines, and keep those of a usable length.

    Raises:
        DataError: a file cannot be read.
    """
    skipped: Counter[str] = Counter()
    articles = [article for path in paths for article in read_labelled(path, skipped)]
    for reason, count in skipped.items():
        logger.warning("%d pairs skipped: %s", count, reason)
    return [a for a in articles if config.min_sentences <= len(a.sentences) <= config.max_sentences]


def main(argv: list[str] | None = None) -> int:
    """Train, evaluate or ablate a summarizer from the command line."""
    parser = ArgumentParser("python -m downstream.summarize", "Train or evaluate a summarizer.")
    parser.add_argument("command", choices=["train", "evaluate", "ablate"])
    parser.add_argument("data", type=Path, nargs="+", help="labelled articles; see downstream.summaries.labelled")
    parser.add_argument("--pairs", type=Path, nargs="*", default=[], help="files of articles with headlines")
    parser.add_argument("--out", type=Path, help="train: folder for the model")
    parser.add_argument("--model", help="evaluate: folder or hub id; default: the bundled model")
    parser.add_argument("--split", default="dev", help="evaluate: split of data that have splits")
    parser.add_argument("--features", nargs="*", help=f"from: {', '.join(FEATURES)}; default: those without a network")
    parser.add_argument("--encoder", help="embedder of the embedding features: folder, hub id, or 'bundled'")
    parser.add_argument("--scorer", help="BertSumExt of the feature scorer: folder or hub id")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. --set pair_weight=0")
    arguments = parser.parse(argv)
    articles = [article for path in arguments.data for article in read_labelled(path)]
    if arguments.command == "evaluate":
        held_out = [article for article in of_split(articles, arguments.split) if article.extractive]
        if not held_out:
            raise UsageError("--split", f"no labelled articles in '{arguments.split}'", "name another split")
        systems = evaluate(Summarizer.load(arguments.model), held_out)
        sys.stdout.write(f"{json.dumps(as_json(systems), ensure_ascii=False)}\n" if arguments.json else table(systems))
        return EXIT_DONE
    config = validate(TrainingConfig, parse_overrides(arguments.set), "--set")
    names = _features(arguments)
    encode = open_encoder(arguments.encoder) if arguments.encoder else None
    score = open_scorer(arguments.scorer) if arguments.scorer else None
    training = of_split(articles, "train")
    examples = make_examples(training, names, encode=encode, score=score)
    pairs = make_examples(read_headline_pairs(arguments.pairs, config), names, encode=encode, score=score)
    if arguments.command == "ablate":
        rows = ablate(examples, pairs, names, config)
        sys.stdout.write(
            f"{json.dumps([asdict(row) for row in rows], ensure_ascii=False)}\n"
            if arguments.json
            else ablation_table(rows)
        )
        return EXIT_DONE
    if arguments.out is None:
        raise UsageError("--out", "missing", "give a folder for the model")
    model = fit(examples, pairs, names, config).model_copy(
        update={
            "encoder": arguments.encoder,
            "scorer": arguments.scorer,
            "recipe": _recipe(arguments, config, examples, pairs),
        }
    )
    f1 = float(cross_validate(examples, pairs, names, config).mean())
    with alone(arguments.out):
        save_model(arguments.out, model, {"sentence F1, cross-validated on the training split": f1})
    sys.stdout.write(json.dumps({"out": str(arguments.out), "f1": round(f1, 4), "weights": model.weights}) + "\n")
    return EXIT_DONE


def _features(arguments: Any) -> list[str]:
    """Return the named features, by default all that the given networks allow."""
    if arguments.features:
        return list(arguments.features)
    wanted = set(LEXICAL)
    wanted |= NEEDS_ENCODER if arguments.encoder else set()
    wanted |= NEEDS_SCORER if arguments.scorer else set()
    return [name for name in FEATURES if name in wanted]


def _recipe(
    arguments: Any, config: TrainingConfig, examples: Sequence[ArticleFeatures], pairs: Sequence[ArticleFeatures]
) -> dict[str, Any]:
    return {
        "data": {path.name: sha256(path) for path in arguments.data},
        "pairs": {path.name: sha256(path) for path in arguments.pairs},
        "num_articles": len(examples),
        "num_pairs": len(pairs),
        "config": config.model_dump(),
        "versions": versions("numpy", "scipy"),
    }
