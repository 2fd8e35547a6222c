"""A model of comments: logistic regressions over n-grams and over an encoder's vector, their probabilities averaged.

    moderator = Moderator.load()
    moderator.probabilities(["연기가 좋았다"])              # (1, C)

The folder holds `moderator.json` (labels, thresholds, how it was trained) and `moderator.safetensors`. The encoder is
not part of it: it is the bundled one, or a folder that is named; the model refuses other weights than those that it was
trained on.
"""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from corpora.foundation.arrays import read_arrays, write_arrays
from corpora.foundation.cards import render_card
from corpora.foundation.config import Config
from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import fingerprint, package_path, parse_signed, write_signed, write_text
from downstream.encoders.folder import BUNDLED, ModelFolder
from downstream.encoders.hub import bundled_or_folder
from downstream.moderate.features import HEADLINE_SALT, Hashes, NgramSpace, jamo_stream, ngram_hashes
from downstream.moderate.normalization import Reading, read, readings
from pretraining.folders import check_folder

Probabilities = NDArray[np.float64]
Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts → vectors (N, D)."""
SETTINGS, WEIGHTS = "moderator.json", "moderator.safetensors"
TEMPLATE = package_path("downstream", "templates", "card_moderator.md")
SEVERITY: Mapping[str, float] = {"none": 0.0, "offensive": 0.5, "hate": 1.0}
"""Label → what its probability adds to the score of a comment."""
HEADLINE_SCALE = 0.5
"""Length of a headline's vector beside that of the comment."""
EOJEOL = re.compile(r"\S+")
LETTER = re.compile("[가-힣ㄱ-ㅎㅏ-ㅣ]")
MAX_OCCLUSIONS = 48
"""Texts that are scored to weigh one; the words of a longer one are weighed in groups of neighbours."""
MAX_SPANS = 5
LEAST_WEIGHT = 0.02
"""Score that a word must carry to be named."""
SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class WordSpan:
    """A word, or neighbouring words, of a comment: `text[start:end]` in code points."""

    start: int
    end: int
    text: str
    weight: float
    """What the comment's score loses when it is left out."""


@dataclass(frozen=True)
class Moderation:
    """What a model says of a comment."""

    label: str
    """The most probable one."""
    probabilities: dict[str, float]
    score: float
    """In [0, 1]: the probability of hate and half of that of offence."""
    threshold: float
    """Score from which on a comment is flagged."""
    precision: float
    """Share of the flagged that was not `none`, in cross-validation on the training comments."""
    is_flagged: bool
    spans: tuple[WordSpan, ...]
    """The words that carry the score, the heaviest first."""


class ModeratorSettings(Config):
    """What `moderator.json` holds."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    labels: list[str] = Field(min_length=2)
    thresholds: dict[str, float] = Field(min_length=1)
    """Precision in cross-validation, e.g. `0.80` → the lowest score that has it."""
    encoder: str | None = None
    """`bundled`, a folder, or None for n-grams only."""
    encoder_sha256: str = ""
    encoder_share: float = Field(default=0.5, ge=0, le=1)
    """Share of the encoder's probabilities in the average."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Data with their digests, settings and scores of the training."""


@dataclass(frozen=True)
class Regression:
    """A multinomial logistic regression."""

    weights: NDArray[np.float32]
    """(F, C)"""
    bias: NDArray[np.float32]
    """(C,)"""

    def probabilities(self, logits: NDArray[Any]) -> Probabilities:
        """Return the softmax of logits without bias, (N, C)."""
        values = logits.astype(np.float64) + self.bias
        exponents = np.exp(values - values.max(axis=-1, keepdims=True))
        shares: Probabilities = exponents / exponents.sum(axis=-1, keepdims=True)
        return shares


@dataclass(frozen=True)
class Moderator:
    """A loaded model. Not for several threads at a time."""

    settings: ModeratorSettings
    words: NgramSpace
    headlines: NgramSpace
    """N-grams of headlines, which have weights of their own."""
    of_ngrams: Regression
    """Over the n-grams of the comment, followed by those of the headline."""
    of_vector: Regression
    """Over the encoder's vector of the comment, standardized."""
    centre: NDArray[np.float32]
    """(D,), subtracted from a vector."""
    scale: NDArray[np.float32]
    """(D,), which it is multiplied by."""
    encode: Encode | None
    folder: Path | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels, the mildest first."""
        return tuple(self.settings.labels)

    @classmethod
    def load(cls, folder: str | Path | None = None, encoder: str | Path | None = None) -> "Moderator":
        """Load a folder of `python -m downstream.moderate train`, by default the bundled model.

        Args:
            folder: of the model.
            encoder: folder of its encoder, where that has moved.

        Raises:
            CheckpointError: it is missing or damaged, or its encoder is another one than it was trained on.
        """
        path = Path(folder) if folder else BUNDLED / "moderator"
        settings, arrays = _read(path)
        encode = None
        if settings.encoder is not None:
            encode = open_encoder(encoder or settings.encoder, settings.encoder_sha256, path)
        words, headlines = (
            NgramSpace(arrays[f"{name}.keys"], arrays[f"{name}.idf"]) for name in ("words", "headlines")
        )
        of_ngrams, of_vector = (
            Regression(arrays[f"{name}.weights"], arrays[f"{name}.bias"]) for name in ("ngrams", "vector")
        )
        return cls(settings, words, headlines, of_ngrams, of_vector, arrays["centre"], arrays["scale"], encode, path)

    def save(self, folder: Path) -> None:
        """Write the model to a folder, weights in half precision."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, NDArray[Any]] = {
            "words.keys": self.words.keys,
            "words.idf": self.words.idf.astype(np.float16),
            "headlines.keys": self.headlines.keys,
            "headlines.idf": self.headlines.idf.astype(np.float16),
            "ngrams.weights": self.of_ngrams.weights.astype(np.float16),
            "ngrams.bias": self.of_ngrams.bias,
            "vector.weights": self.of_vector.weights,
            "vector.bias": self.of_vector.bias,
            "centre": self.centre,
            "scale": self.scale,
        }
        write_arrays(folder / WEIGHTS, arrays)
        write_signed(folder / SETTINGS, self.settings.model_dump(by_alias=True))
        write_text(folder / "README.md", self.card())

    def card(self) -> str:
        """Return the model card, with the YAML that model hubs read."""
        from huggingface_hub import ModelCardData

        head = ModelCardData(
            language="ko",
            license="cc-by-sa-4.0",
            library_name="pressbert",
            pipeline_tag="text-classification",
            tags=["hate-speech", "moderation"],
        )
        recipe = json.dumps(self.settings.recipe, ensure_ascii=False)
        return render_card(TEMPLATE, head, settings=self.settings, recipe=recipe)

    def digest(self) -> str:
        """Return the digest of all that decides the results."""
        settings = self.settings.model_dump(mode="json", by_alias=True)
        arrays = (self.words.keys, self.of_ngrams.weights, self.of_vector.weights)
        return fingerprint([settings, *(fingerprint(array.tobytes().hex()) for array in arrays)])

    def threshold(self, precision: float) -> float:
        """Return the score from which on a comment is flagged.

        Raises:
            ValueError: the model has no threshold for the precision.
        """
        key = f"{precision:.2f}"
        if key not in self.settings.thresholds:
            known = ", ".join(self.settings.thresholds)
            raise ValueError(f"precision={precision}: this model has thresholds for {known}")
        return self.settings.thresholds[key]

    def severities(self) -> NDArray[np.float64]:
        """Return what the probability of each label adds to the score, (C,)."""
        return np.array([SEVERITY.get(label, 1.0) for label in self.labels])

    def scores(self, probabilities: Probabilities) -> NDArray[np.float64]:
        """Return the scores of N comments, (N,)."""
        return np.asarray(probabilities @ self.severities())

    def probabilities(self, texts: Sequence[str], headlines: Sequence[str | None] | None = None) -> Probabilities:
        """Return the probabilities of the labels, (N, C) in the order of `labels`; rows add up to 1.

        Of the ways to read a comment, the one with the highest score counts.

        Args:
            texts: N comments.
            headlines: of the articles under which they stand, N or None.

        Raises:
            ValueError: TEXTS is one string, an element is no string, or the headlines are of another number.
        """
        above = list(headlines) if headlines is not None else [None] * len(texts)
        _check(texts, above)
        read_as = [(k, reading) for k, text in enumerate(texts) for reading in readings(text)]
        rows = self.judge([reading for _, reading in read_as], [above[k] for k, _ in read_as])
        found = np.zeros((len(texts), len(self.labels)))
        best = np.full(len(texts), -1.0)
        for (k, _), row, score in zip(read_as, rows, self.scores(rows), strict=True):
            if score > best[k]:
                found[k], best[k] = row, score
        return found

    def judge(self, read_as: Sequence[Reading], headlines: Sequence[str | None]) -> Probabilities:
        """Return the probabilities of readings, (N, C)."""
        if not read_as:
            return np.zeros((0, len(self.labels)))
        hashes = [ngram_hashes(jamo_stream(reading)) for reading in read_as]
        logits = np.stack([self._ngram_logits(h, above) for h, above in zip(hashes, headlines, strict=True)])
        rows = self.of_ngrams.probabilities(logits)
        if self.encode is None:
            return rows
        vectors = (self.encode([plain(reading) for reading in read_as]) - self.centre) * self.scale
        share = self.settings.encoder_share
        return (1 - share) * rows + share * self.of_vector.probabilities(vectors @ self.of_vector.weights)

    def _ngram_logits(self, hashes: Hashes, headline: str | None) -> NDArray[np.float32]:
        indices, values = self.words.vector(hashes)
        logits = values @ self.of_ngrams.weights[indices]
        if headline:
            indices, values = self.headlines.vector(headline_hashes(headline))
            logits = logits + HEADLINE_SCALE * values @ self.of_ngrams.weights[len(self.words.keys) + indices]
        return np.asarray(logits, np.float32)

    def moderate(self, text: str, headline: str | None = None, *, precision: float = 0.8) -> Moderation:
        """Judge a comment; see `downstream.moderate.moderate`."""
        threshold = self.threshold(precision)
        [row] = self.probabilities([text], [headline])
        score = float(row @ self.severities())
        return Moderation(
            label=self.labels[int(row.argmax())],
            probabilities=dict(zip(self.labels, map(float, row), strict=True)),
            score=score,
            threshold=threshold,
            precision=precision,
            is_flagged=score >= threshold,
            spans=tuple(self.spans(text, headline)),
        )

    def weigh(self, text: str, units: Sequence[tuple[int, int]], headline: str | None = None) -> NDArray[np.float64]:
        """Return what the score of a comment loses without each of its units, `(start, end)`, (U,)."""
        without = [text[:start] + " " + text[end:] for start, end in units]
        scores = self.scores(self.probabilities([text, *without], [headline] * (len(units) + 1)))
        return np.asarray(scores[0] - scores[1:])

    def spans(self, text: str, headline: str | None = None) -> list[WordSpan]:
        """Return the words that carry the score, the heaviest first, at most `MAX_SPANS`."""
        words = units_of(text)
        size = -(-len(words) // MAX_OCCLUSIONS) or 1
        groups = [(words[k][0], words[min(k + size, len(words)) - 1][1]) for k in range(0, len(words), size)]
        weights = self.weigh(text, groups, headline) if groups else np.zeros(0)
        found = [WordSpan(s, e, text[s:e], float(w)) for (s, e), w in zip(groups, weights, strict=True)]
        found = [span for span in found if span.weight >= LEAST_WEIGHT]
        return sorted(found, key=lambda span: (-span.weight, span.start))[:MAX_SPANS]


def units_of(text: str) -> list[tuple[int, int]]:
    """Return the words of a text as offsets; syllables that stand alone in a row are one word."""
    units: list[tuple[int, int]] = []
    singles = 0
    for found in EOJEOL.finditer(text):
        start, end = found.span()
        is_single = len(LETTER.findall(found[0])) == 1 and end - start <= 2
        if is_single and singles:
            units[-1] = (units[-1][0], end)
        else:
            units.append((start, end))
        singles = singles + 1 if is_single else 0
    return units


def headline_hashes(headline: str) -> Hashes:
    """Return the hashes of a headline's n-grams."""
    return ngram_hashes(jamo_stream(read(headline, is_read=False)), HEADLINE_SALT)


def plain(reading: Reading) -> str:
    """Return a reading as an encoder takes it."""
    return SURROGATES.sub("\ufffd", reading.text) or " "


@functools.cache
def bundled_moderator() -> Moderator:
    """Return the bundled model, loaded once."""
    return Moderator.load()


def open_encoder(source: str | Path, digest: str, where: Path | str) -> Encode:
    """Open an encoder by mean pooling.

    Args:
        source: `bundled`, or a folder.
        digest: of its files; empty: any.
        where: name of the model in messages.

    Raises:
        CheckpointError: it is missing, or has other weights.
    """
    from downstream.embed import Embedder

    folder = bundled_or_folder(source, "encoder")
    if digest and ModelFolder(folder).digest() != digest:
        what = f"was trained on another encoder than {folder}"
        raise CheckpointError(where, what, "train it again: python -m downstream.moderate train --out FOLDER")
    embedder = Embedder.load(folder)
    return embedder.encode


def _check(texts: Sequence[str], headlines: Sequence[str | None]) -> None:
    if isinstance(texts, str):
        raise ValueError("texts is a single string; give a list of strings")
    for text in (*texts, *(headline for headline in headlines if headline is not None)):
        if not isinstance(text, str):
            raise ValueError(f"a text is {text!r:.40}, not a string")
    if len(headlines) != len(texts):
        raise ValueError(f"{len(headlines)} headlines for {len(texts)} texts")


def _read(folder: Path) -> tuple[ModeratorSettings, dict[str, NDArray[Any]]]:
    fix = "give a folder of python -m downstream.moderate train"
    check_folder(folder)
    try:
        settings = ModeratorSettings.model_validate(parse_signed((folder / SETTINGS).read_text(encoding="utf-8")))
        arrays = read_arrays(folder / WEIGHTS)
    except FileNotFoundError as error:
        raise CheckpointError(folder, f"no {Path(error.filename).name} in it", fix) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(folder, f"the model cannot be read ({error})", fix) from error
    wide = {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in arrays.items()}
    names = {"words.keys", "words.idf", "headlines.keys", "headlines.idf", "ngrams.weights", "ngrams.bias"}
    if missing := sorted((names | {"vector.weights", "vector.bias", "centre", "scale"}) - wide.keys()):
        raise CheckpointError(folder, f"{WEIGHTS} lacks {missing[0]}", fix)
    rows = len(wide["words.keys"]) + len(wide["headlines.keys"])
    if wide["ngrams.weights"].shape != (rows, len(settings.labels)):
        raise CheckpointError(folder, f"weights of shape {wide['ngrams.weights'].shape} do not fit", fix)
    return settings, wide
