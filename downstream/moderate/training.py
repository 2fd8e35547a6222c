"""Train a model of comments: `python -m downstream.moderate train --data ROOT --out FOLDER`.

Comments of all sources are trained on together. A source has a bias of its own, because sources differ in what they
call harmful; that of the graded ones is used afterwards. Comments that are harmful without a grade count as offensive
and hateful in the proportion that a model of the graded ones gives them. Thresholds and scores come from
cross-validation, in which comments with the same text stay together.
"""

import hashlib
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from corpora.foundation.config import Config, load_recipe
from corpora.foundation.errors import DataError
from corpora.foundation.files import package_path, sha256
from corpora.foundation.machine import versions
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import BUNDLED_SOURCE, bundled_or_folder
from downstream.moderate.features import Hashes, NgramSpace, jamo_stream, ngram_hashes
from downstream.moderate.model import (
    HEADLINE_SCALE,
    Encode,
    Moderator,
    ModeratorSettings,
    Probabilities,
    Regression,
    headline_hashes,
    open_encoder,
    plain,
)
from downstream.moderate.normalization import read
from downstream.moderate.sources import (
    LABELS,
    UNGRADED,
    Comment,
    CommentSource,
    NeutralSource,
    identity_sentences,
    read_comments,
    read_neutral,
)
from downstream.thresholds import threshold_points

logger = logging.getLogger(__name__)

RECIPE = package_path("downstream", "moderate", "recipe.toml")
FOLDS = 3
PRECISIONS = (0.7, 0.75, 0.8, 0.85, 0.9)
"""For which thresholds are stored."""
NEVER = -30.0
"""Logit of a label without examples."""


class ModeratorRecipe(Config):
    """Everything that decides a model besides the files themselves."""

    sources: list[CommentSource] = Field(min_length=1)
    neutral: list[NeutralSource] = Field(default_factory=list)
    encoder: str | None = BUNDLED_SOURCE
    """`bundled`, a folder, or None for n-grams only."""
    min_frequency: int = Field(default=3, ge=1)
    """Comments in which an n-gram must occur."""
    strength: float = Field(default=3.0, gt=0)
    """Inverse strength of regularisation over n-grams."""
    encoder_strength: float = Field(default=0.01, gt=0)
    """The same over the encoder's vector."""
    encoder_share: float = Field(default=0.5, ge=0, le=1)
    balance: float = Field(default=0.5, ge=0, le=1)
    """Exponent of the inverse frequency that a label is weighted with: 0 not at all, 1 all labels alike."""
    seed: int = 0


@dataclass(frozen=True)
class Examples:
    """Comments as features, with weights and labels."""

    comments: tuple[Comment, ...]
    hashes: tuple[Hashes, ...]
    headlines: tuple[Hashes, ...]
    vectors: NDArray[np.float32]
    """(N, D); D is 0 without an encoder."""

    @classmethod
    def from_comments(cls, comments: Sequence[Comment], encode: Encode | None) -> "Examples":
        """Read and encode comments."""
        found = [read(comment.text, is_read=False) for comment in comments]
        vectors = np.zeros((len(found), 0), np.float32)
        if encode is not None and found:
            vectors = encode([plain(reading) for reading in found])
        none = np.empty(0, np.uint32)
        return cls(
            tuple(comments),
            tuple(ngram_hashes(jamo_stream(reading)) for reading in found),
            tuple(headline_hashes(c.headline) if c.headline else none for c in comments),
            vectors,
        )

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.comments)

    def take(self, chosen: Sequence[int]) -> "Examples":
        """Return some of the examples."""
        return Examples(
            tuple(self.comments[k] for k in chosen),
            tuple(self.hashes[k] for k in chosen),
            tuple(self.headlines[k] for k in chosen),
            self.vectors[list(chosen)],
        )


def read_recipe(path: Path = RECIPE) -> ModeratorRecipe:
    """Read a recipe; default: that of the bundled model.

    Raises:
        RecipeError: it is missing or wrong.
    """
    return load_recipe(path, ModeratorRecipe)


def read_training(recipe: ModeratorRecipe, root: Path) -> tuple[list[Comment], list[Comment]]:
    """Return the labelled comments of a recipe, and what is added to them: neutral text, names, disguised comments.

    Raises:
        DataError: a file is missing or malformed.
    """
    draw = random.Random(recipe.seed)  # noqa: S311
    labelled = [comment for source in recipe.sources for comment in read_comments(source, root)]
    added = [comment for source in recipe.neutral for comment in read_neutral(source, root, draw)]
    return labelled, [*added, *identity_sentences()]


def train_moderator(recipe: ModeratorRecipe, root: Path) -> Moderator:
    """Train a model by a recipe.

    Args:
        recipe: of `read_recipe`.
        root: data root.

    Raises:
        SuiteError: the data or the encoder cannot be read.
    """
    labelled, added = read_training(recipe, root)
    digest = ""
    encode = None
    if recipe.encoder is not None:
        digest = ModelFolder(bundled_or_folder(recipe.encoder, "encoder")).digest()
        encode = open_encoder(recipe.encoder, digest, "recipe")
    logger.info("%d labelled comments, %d added texts", len(labelled), len(added))
    examples, more = Examples.from_comments(labelled, encode), Examples.from_comments(added, encode)
    files = [s.path for s in recipe.sources] + [s.headlines for s in recipe.sources if s.headlines]
    files += [s.path for s in recipe.neutral]
    record = {
        **recipe.model_dump(),
        "files": {name: sha256(root / name) for name in files},
        "versions": versions("scikit-learn", "numpy"),
    }
    return fit(recipe, examples, more, encode, encoder_sha256=digest, record=record)


def fit(
    recipe: ModeratorRecipe,
    examples: Examples,
    added: Examples,
    encode: Encode | None,
    *,
    encoder_sha256: str = "",
    record: Mapping[str, Any] | None = None,
) -> Moderator:
    """Fit a model to labelled comments and added texts.

    Args:
        recipe: settings.
        examples: labelled comments.
        added: texts that are trained on in every fold and not scored.
        encode: the encoder of both, if any.
        encoder_sha256: digest of the encoder.
        record: what the model is to say of its training.

    Raises:
        DataError: all comments have the same label.
    """
    seen = {comment.label for comment in examples.comments}
    labels = LABELS if "offensive" in seen else ("none", "hate")
    if len(seen) < 2:
        raise DataError("training", f"{len(examples)} comments with one label", "give comments of several labels")
    targets, more = _targets(recipe, labels, examples, added, encode)
    fold_of = np.array([fold(comment.text) for comment in examples.comments])
    held_out = np.zeros((len(examples), len(labels)))
    for number in range(FOLDS):
        rest, part = np.flatnonzero(fold_of != number).tolist(), np.flatnonzero(fold_of == number).tolist()
        if part:
            parts = (examples.take(rest), added)
            model = _fit_targets(recipe, labels, parts, np.vstack([targets[rest], more]), encode)
            held_out[part] = judge_examples(model, examples.take(part))
            logger.info("fold %d of %d", number + 1, FOLDS)
    model = _fit_targets(recipe, labels, (examples, added), np.vstack([targets, more]), encode)
    settings = ModeratorSettings(
        schema=1,
        labels=list(labels),
        thresholds=thresholds(model, held_out, examples.comments),
        encoder=recipe.encoder if encode is not None else None,
        encoder_sha256=encoder_sha256,
        encoder_share=recipe.encoder_share,
        recipe=dict(record or {}),
    )
    return replace(model, settings=settings)


def fold(text: str) -> int:
    """Return the fold of a comment, by its text without blanks."""
    digest = hashlib.sha256("".join(text.split()).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) % FOLDS


def thresholds(moderator: Moderator, held_out: Probabilities, comments: Sequence[Comment]) -> dict[str, float]:
    """Return, for each precision that is reached, the lowest score that has it in cross-validation."""
    scores = np.round(moderator.scores(held_out), 4)
    golds = [comment.label != "none" for comment in comments]
    steps = [k / 200 for k in range(1, 200)]
    points = threshold_points(scores.tolist(), golds, steps)
    found = {}
    for precision in PRECISIONS:
        # Above the lowest threshold the precision must stay: a few comments can reach it by chance.
        good = [point.precision is None or point.precision >= precision for point in points]
        lowest = next((k for k in range(len(good)) if all(good[k:]) and points[k].num_flagged), None)
        if lowest is not None:
            found[f"{precision:.2f}"] = points[lowest].threshold
    return found or {"0.00": 0.5}


def judge_examples(model: Moderator, examples: Examples, *, with_headlines: bool = False) -> Probabilities:
    """Return the probabilities of the labels of examples whose features are known, (N, C)."""
    num_words = len(model.words.keys)
    logits = model.words.matrix(examples.hashes) @ model.of_ngrams.weights[:num_words]
    if with_headlines:
        above = model.headlines.matrix(examples.headlines) @ model.of_ngrams.weights[num_words:]
        logits = logits + HEADLINE_SCALE * above
    rows = model.of_ngrams.probabilities(logits)
    if model.encode is None:
        return rows
    share = model.settings.encoder_share
    vectors = (examples.vectors - model.centre) * model.scale
    return (1 - share) * rows + share * model.of_vector.probabilities(vectors @ model.of_vector.weights)


def _targets(
    recipe: ModeratorRecipe, labels: Sequence[str], examples: Examples, added: Examples, encode: Encode | None
) -> tuple[Probabilities, Probabilities]:
    """Return the shares of labels of examples and added texts, (N, C) each.

    Comments without a grade are divided by a model of the graded ones.
    """
    targets, more = (
        np.array([_one_hot(comment.label, labels) for comment in part.comments]).reshape(len(part), len(labels))
        for part in (examples, added)
    )
    ungraded = [k for k, comment in enumerate(examples.comments) if comment.label == UNGRADED]
    if ungraded and len(labels) > 2:
        graded = [k for k, comment in enumerate(examples.comments) if comment.label != UNGRADED]
        parts = (examples.take(graded), added)
        first = _fit_targets(recipe, labels, parts, np.vstack([targets[graded], more]), encode)
        shares = judge_examples(first, examples.take(ungraded))[:, 1:]
        targets[ungraded, 0] = 0
        targets[ungraded, 1:] = shares / shares.sum(axis=1, keepdims=True)
    return targets, more


def _one_hot(label: str, labels: Sequence[str]) -> list[float]:
    """Return the target of a label; where there are two labels, every harmful one is the second."""
    at = labels.index(label) if label in labels else len(labels) - 1
    return [float(k == at) for k in range(len(labels))]


def _fit_targets(
    recipe: ModeratorRecipe,
    labels: Sequence[str],
    parts: tuple[Examples, Examples],
    targets: Probabilities,
    encode: Encode | None,
) -> Moderator:
    """Fit both regressions to shares of labels, (N, C)."""
    from scipy.sparse import csr_array, hstack, vstack

    comments = tuple(comment for part in parts for comment in part.comments)
    hashes = tuple(h for part in parts for h in part.hashes)
    above = tuple(h for part in parts for h in part.headlines)
    words = NgramSpace.fit(hashes, recipe.min_frequency)
    with_headline = [h for h in above if len(h)]
    headlines = NgramSpace.fit(with_headline or [np.empty(0, np.uint32)], recipe.min_frequency)
    names = sorted({comment.source for comment in comments} - {""})
    sources = csr_array([[float(c.source == name) if c.source else 1 / len(names) for name in names] for c in comments])
    ungraded = {comment.source for comment in comments if comment.label == UNGRADED}
    used = [k for k, name in enumerate(names) if name not in ungraded] or list(range(len(names)))
    table = words.matrix(hashes)
    headline_table = HEADLINE_SCALE * headlines.matrix(above)
    # Every comment is trained on with its headline and without one.
    has_headline = np.flatnonzero([len(h) > 0 for h in above])
    rows = np.concatenate([np.arange(len(comments)), has_headline])
    empty = csr_array((len(comments), headline_table.shape[1]))
    both = vstack([empty, headline_table[has_headline]]).tocsr()
    weight = np.where([len(h) > 0 for h in above], 0.5, 1.0)[rows]
    fitted = _regress(
        hstack([table[rows], both, sources[rows]]).tocsr(), targets[rows], recipe.strength, weight, recipe.balance
    )
    of_ngrams = _of_sources(fitted, len(names), used)
    vectors = np.concatenate([part.vectors for part in parts])
    centre, scale = vectors.mean(axis=0), 1 / np.maximum(vectors.std(axis=0), 1e-6)
    of_vector = Regression(np.zeros((0, len(labels)), np.float32), np.zeros(len(labels), np.float32))
    if encode is not None:
        standard = np.hstack([(vectors - centre) * scale, sources.toarray()])
        fitted = _regress(standard, targets, recipe.encoder_strength, np.ones(len(comments)), recipe.balance)
        of_vector = _of_sources(fitted, len(names), used)
    settings = ModeratorSettings(
        schema=1, labels=list(labels), thresholds={"0.00": 0.5}, encoder_share=recipe.encoder_share
    )
    arrays = [array.astype(np.float32) for array in (centre, scale)]
    return Moderator(settings, words, headlines, of_ngrams, of_vector, arrays[0], arrays[1], encode)


def _regress(
    table: Any, targets: Probabilities, strength: float, weights: NDArray[np.float64], balance: float
) -> Regression:
    """Fit a multinomial regression to shares of labels (N, C); a label without examples is never chosen."""
    from sklearn.linear_model import LogisticRegression

    rows, labels = np.nonzero(targets)
    shares = targets[rows, labels] * weights[rows]
    totals = np.bincount(labels, shares, minlength=targets.shape[1])
    shares *= (totals[labels] / totals.max()) ** -balance
    model = LogisticRegression(C=strength, max_iter=120, tol=1e-3).fit(table[rows], labels, sample_weight=shares)
    coefficients, intercepts = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        # Two labels have one logit, that of the second.
        coefficients, intercepts = np.vstack([-coefficients, coefficients]) / 2, np.r_[-intercepts, intercepts] / 2
    known = np.zeros((table.shape[1], targets.shape[1]), np.float32)
    bias = np.full(targets.shape[1], NEVER, np.float32)
    known[:, model.classes_], bias[model.classes_] = coefficients.T, intercepts
    return Regression(known, bias)


def _of_sources(regression: Regression, number: int, used: Sequence[int]) -> Regression:
    """Return a regression whose bias holds the mean of some of the sources' NUMBER biases, its last weights."""
    own = len(regression.weights) - number
    weights = regression.weights[:own].astype(np.float16).astype(np.float32)
    return Regression(weights, regression.bias + regression.weights[own:][used].mean(axis=0))
