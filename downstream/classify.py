"""Label texts with probabilities, and tell which words decided.

    classify(["배우들 연기가 좋았다"])[0].label                 # "positive"
    classifier = Classifier.load()                              # of film reviews; or of a folder
    classifier.probabilities(["배우들 연기가 좋았다"])          # (1, C)
    classifier.weigh("배우들 연기가 좋았다", "positive")

A word's weight is what the label's log-odds lose when the word is taken out: occlusion (Zeiler and Fergus 2014; for
text, Li, Monroe and Jurafsky 2016). It asks the model nothing but its answers, and so holds for every runtime. Words
that only decide together have small weights each.
"""

import functools
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpora.characters import as_texts, nfc
from corpora.foundation.errors import CheckpointError
from downstream.encoders.hub import bundled
from downstream.families.classification import Classification
from downstream.runtimes.plain_bert import is_plain_bert
from downstream.runtimes.predictor import Predictor
from downstream.task import TextExample

EOJEOL = re.compile(r"\S+")
MAX_OCCLUSIONS = 64
"""Texts that are computed to weigh one; the words of a longer one are weighed in groups of neighbours."""
_LOCK = threading.Lock()
"""Of the model that `classify` shares: it is not for several threads at a time."""


@dataclass(frozen=True)
class WordWeight:
    """A word, or neighbouring words, of a text: `text[start:end]` in code points."""

    start: int
    end: int
    weight: float
    """Log-odds of the label that go with it: positive speaks for the label, negative against it."""


@dataclass(frozen=True)
class Label:
    """The label of a text."""

    label: str
    probability: float
    """Of this label, in [0, 1]."""
    probabilities: dict[str, float]
    """Of every label."""


def classify(texts: Sequence[str], *, model: str | Path | None = None) -> list[Label]:
    """Label texts. The model that was loaded last is cached.

    Args:
        texts: single texts, such as comments.
        model: folder of a finished fine-tuning; default: the bundled model of film reviews.

    Returns:
        The most probable label of each text, in their order.

    Raises:
        CheckpointError: the folder is no fine-tuned model that labels single texts.
        ValueError: TEXTS is one string, or an element is no string.
    """
    classifier = _load(None if model is None else Path(model).resolve())
    with _LOCK:
        rows = classifier.probabilities(texts)
    found = []
    for row in rows:
        best = int(row.argmax())
        probabilities = dict(zip(classifier.labels, row.tolist(), strict=True))
        found.append(Label(classifier.labels[best], float(row[best]), probabilities))
    return found


@functools.lru_cache(maxsize=1)
def _load(folder: Path | None) -> "Classifier":
    return Classifier.load(folder)


class Classifier:
    """A loaded model of single texts. Not for several threads at a time."""

    def __init__(self, predictor: Predictor) -> None:
        """Use a loaded model.

        Raises:
            CheckpointError: it labels something else than single texts.
        """
        finetuned = predictor.finetuned
        if not isinstance(finetuned.family, Classification) or finetuned.task.takes_pairs:
            what = f"a model for {finetuned.task.title}, which does not label single texts"
            raise CheckpointError(finetuned.folder, what, "give a folder fine-tuned on nsmc, hate or klue-tc")
        self.predictor, self.labels = predictor, finetuned.family.labels

    @classmethod
    def load(cls, folder: str | Path | None = None, runtime: str | None = None, *, threads: int = 1) -> "Classifier":
        """Load a fine-tuned folder, by default the bundled model of film reviews.

        Args:
            folder: of a finished fine-tuning.
            runtime: see `downstream.runtime.Predictor.load`; default: `onnx-fp32`, which is ready in a fraction of a
                second, for a plain BERT, else `torch`.
            threads: that compute.

        Raises:
            CheckpointError: the folder is no fine-tuned model that labels single texts.
            UsageError: the runtime is unknown or unsupported on this machine.
        """
        folder = Path(folder) if folder else bundled("classifier")
        runtime = runtime or ("onnx-fp32" if is_plain_bert(folder) else "torch")
        return cls(Predictor.load(folder, runtime, threads=threads))

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the probabilities of the labels, (N, C) in the order of `labels`; rows add up to 1.

        Raises:
            ValueError: TEXTS is one string, or an element is no string.
        """
        logits = self._logits(texts)
        exponents = np.exp(logits - logits.max(axis=1, keepdims=True)) if len(logits) else logits
        return np.asarray(exponents / exponents.sum(axis=1, keepdims=True))

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the most probable label of each text, as scikit-learn's classifiers do."""
        return [self.labels[int(best)] for best in self.probabilities(texts).argmax(axis=1)]

    def is_cut(self, text: str) -> bool:
        """Whether a text is longer than what the model reads; the rest decides nothing."""
        tokenizer = self.predictor.finetuned.tokenizer
        return len(tokenizer(nfc(text))["input_ids"]) > self.predictor.finetuned.max_length

    def weigh(self, text: str, label: str) -> list[WordWeight]:
        """Weigh the words of a text, in order.

        Args:
            text: as it is classified.
            label: one of `labels`, for or against which the words speak.

        Raises:
            ValueError: there is no such label.
        """
        if label not in self.labels:
            raise ValueError(f"label={label!r}: choose from {', '.join(self.labels)}")
        words = [found.span() for found in EOJEOL.finditer(text)]
        size = -(-len(words) // MAX_OCCLUSIONS) or 1
        groups = [(words[k][0], words[min(k + size, len(words)) - 1][1]) for k in range(0, len(words), size)]
        without = [text[:start] + text[end:] for start, end in groups]
        odds = self._log_odds([text, *without], self.labels.index(label))
        return [
            WordWeight(start, end, float(odds[0] - rest)) for (start, end), rest in zip(groups, odds[1:], strict=True)
        ]

    def _log_odds(self, texts: Sequence[str], label: int) -> NDArray[np.float64]:
        """Return the log-odds of a label against all others, (N,)."""
        logits = self._logits(texts)
        return np.asarray(logits[:, label] - np.logaddexp.reduce(np.delete(logits, label, axis=1), axis=1))

    def _logits(self, texts: Sequence[str]) -> NDArray[np.float64]:
        composed = as_texts(texts)
        if not composed:
            return np.zeros((0, len(self.labels)))
        rows, _ = self.predictor.outputs([TextExample(str(k), text, None, "") for k, text in enumerate(composed)])
        return np.stack(rows).astype(np.float64)
