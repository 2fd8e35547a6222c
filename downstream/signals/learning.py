"""Learn a label of one's own from signals: a logistic regression over their figures and an encoder's vector.

    model = train(read_labelled(path), find, encoder="bundled")
    model.probabilities([("", article)])                    # (N, C)

The folder holds `judge.json` and `judge.safetensors`. The score is macro-F1 in cross-validation, beside that of always
answering the most frequent label.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from corpora.foundation.arrays import read_arrays, write_arrays
from corpora.foundation.config import Config
from corpora.foundation.errors import CheckpointError, DataError
from corpora.foundation.files import parse_signed, sha256, write_signed
from corpora.readers.records import read_records
from downstream.encoders.hub import BUNDLED_SOURCE
from downstream.metrics import macro_f1
from downstream.signals.finding import Findings

Find = Callable[[str, str], Findings]
"""Text and title → signals."""
Encode = Callable[[Sequence[str]], NDArray[np.float32]]
SETTINGS, WEIGHTS = "judge.json", "judge.safetensors"
FOLDS = 5
STRENGTH = 0.1
FEWEST = 2
"""Articles of each label."""
READ_CHARACTERS = 2000
"""Of an article that the encoder reads."""


@dataclass(frozen=True)
class Labelled:
    """A labelled article."""

    title: str
    text: str
    label: str


class JudgeSettings(Config):
    """What `judge.json` holds."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    tool: str
    labels: list[str] = Field(min_length=2)
    measures: list[str]
    """Figures that are read, in their order."""
    encoder: str | None
    scores: dict[str, float] = Field(default_factory=dict)
    """Macro-F1 in cross-validation, and of the most frequent label."""
    data_sha256: str = ""


@dataclass(frozen=True)
class Judge:
    """A model of one's own labels."""

    settings: JudgeSettings
    centre: NDArray[np.float32]
    scale: NDArray[np.float32]
    weights: NDArray[np.float32]
    """(F, C)"""
    bias: NDArray[np.float32]
    find: Find
    encode: Encode | None

    @classmethod
    def load(cls, folder: str | Path, tool: str, find: Find) -> "Judge":
        """Load a folder of `train`.

        Raises:
            CheckpointError: it is missing or damaged, or belongs to another tool.
        """
        path = Path(folder)
        fix = f"give a folder of python -m downstream.{tool} train"
        try:
            settings = JudgeSettings.model_validate(parse_signed((path / SETTINGS).read_text(encoding="utf-8")))
            arrays = read_arrays(path / WEIGHTS)
            centre, scale, weights, bias = (arrays[name] for name in ("centre", "scale", "weights", "bias"))
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(path, f"the model cannot be read ({error})", fix) from error
        if settings.tool != tool:
            raise CheckpointError(path, f"it was trained for {settings.tool}", fix)
        return cls(settings, centre, scale, weights, bias, find, open_encoder(settings.encoder))

    def save(self, folder: Path) -> None:
        """Write the model to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"centre": self.centre, "scale": self.scale, "weights": self.weights, "bias": self.bias}
        write_arrays(folder / WEIGHTS, arrays)
        write_signed(folder / SETTINGS, self.settings.model_dump(by_alias=True))

    def probabilities(self, articles: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return the probabilities of the labels of N articles, each title and text, (N, C)."""
        table = features(articles, self.settings.measures, self.find, self.encode)
        return _softmax(((table - self.centre) * self.scale) @ self.weights + self.bias)


def open_encoder(source: str | None) -> Encode | None:
    """Open an encoder: `bundled` is the bundled embedder; None: signals alone are read."""
    if source is None:
        return None
    from downstream.embed import Embedder

    return Embedder.load(None if source == BUNDLED_SOURCE else source).encode


def features(
    articles: Sequence[tuple[str, str]], measures: Sequence[str], find: Find, encode: Encode | None
) -> NDArray[np.float32]:
    """Return figures and vectors of N articles, (N, F)."""
    found = [find(text, title).measures for title, text in articles]
    table = np.array([[each.get(name, 0.0) for name in measures] for each in found], np.float32)
    table = table.reshape(len(articles), len(measures))
    if encode is None or not articles:
        return table
    vectors = encode([f"{title}\n{text}"[:READ_CHARACTERS] for title, text in articles])
    return np.hstack([table, vectors]).astype(np.float32)


def read_labelled(path: Path) -> list[Labelled]:
    """Read labelled articles from records with `text` or `title`, and `label`.

    Raises:
        DataError: a record lacks them, or a label has fewer than two articles.
    """
    found = []
    for record in read_records(path, "line"):
        values = record.values if record.error is None else {}
        title, text, label = (str(values.get(name) or "").strip() for name in ("title", "text", "label"))
        if not label or not (title or text):
            what = "no label" if title or text else "neither text nor title"
            raise DataError(record.where, what, "give records with text or title, and label")
        found.append(Labelled(title, text, label))
    counts = Counter(article.label for article in found)
    if len(counts) < 2 or min(counts.values()) < FEWEST:
        seen = ", ".join(f"{label}: {number}" for label, number in counts.most_common(5)) or "no records"
        raise DataError(path, seen, f"give at least two labels with {FEWEST} articles each")
    return found


def train(articles: Sequence[Labelled], tool: str, find: Find, encoder: str | None, path: Path | None = None) -> Judge:
    """Learn labels, and measure how well in cross-validation.

    Args:
        articles: labelled.
        tool: name of the tool, for messages and `judge.json`.
        find: its signals.
        encoder: `bundled`, a folder or hub id of any encoder, or None.
        path: file that the articles come from.
    """
    encode = open_encoder(encoder)
    given = [(article.title, article.text) for article in articles]
    measures = sorted({name for title, text in given for name in find(text, title).measures})
    table = features(given, measures, find, encode)
    labels = sorted({article.label for article in articles})
    golds = [article.label for article in articles]
    numbers = np.array([labels.index(gold) for gold in golds])
    centre = table.mean(axis=0)
    scale = (1 / np.maximum(table.std(axis=0), 1e-6)).astype(np.float32)
    standard = (table - centre) * scale
    folds = np.array([_fold(f"{title}\n{text}") for title, text in given])
    held_out = np.full(len(given), int(np.bincount(numbers).argmax()))
    for number in range(FOLDS):
        rest, part = folds != number, folds == number
        if part.any() and len(set(numbers[rest].tolist())) > 1:
            weights, bias = _fit(standard[rest], numbers[rest], len(labels))
            held_out[part] = (standard[part] @ weights + bias).argmax(axis=1)
    weights, bias = _fit(standard, numbers, len(labels))
    most = Counter(golds).most_common(1)[0][0]
    settings = JudgeSettings(
        schema=1,
        tool=tool,
        labels=labels,
        measures=measures,
        encoder=encoder,
        scores={
            "macro_f1": macro_f1([labels[k] for k in held_out], golds),
            "macro_f1_most_frequent": macro_f1([most] * len(golds), golds),
            "num_articles": float(len(golds)),
        },
        data_sha256=sha256(path) if path else "",
    )
    return Judge(settings, centre, scale, weights, bias, find, encode)


def _fit(table: Any, numbers: NDArray[np.int64], num_labels: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return weights (F, C) and bias (C,); a label without articles is never chosen."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=STRENGTH, max_iter=1000, class_weight="balanced").fit(table, numbers)
    coefficients, intercepts = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        coefficients, intercepts = np.vstack([-coefficients, coefficients]) / 2, np.r_[-intercepts, intercepts] / 2
    weights = np.zeros((table.shape[1], num_labels), np.float32)
    bias = np.full(num_labels, -1e9, np.float32)
    weights[:, model.classes_], bias[model.classes_] = coefficients.T, intercepts
    return weights, bias


def _fold(text: str) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) % FOLDS


def _softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    exponents = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = exponents / exponents.sum(axis=1, keepdims=True)
    return shares
