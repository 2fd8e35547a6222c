"""Services: for every endpoint a loaded model, and how its inputs are grouped, computed, cached and shown.

A result is cached as bytes of JSON without any text of the request: answers and sentences are stored as offsets, and
converted to text for the client that sent the text.
"""

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field
from pydantic_core import to_json

from apps.serving.batching import Compute
from apps.serving.schemas import (
    AnswerRequest,
    AnswerResponse,
    ClassifyPairsRequest,
    ClassifyRequest,
    ClassifyResponse,
    ClassifyTextsRequest,
    EmbedRequest,
    EmbedResponse,
    Pair,
    SummarizeRequest,
    SummarizeResponse,
)
from corpora.characters import nfc
from corpora.foundation.config import Config
from corpora.foundation.errors import CheckpointError, UsageError
from corpora.foundation.files import sha256
from downstream.task import QuestionExample, TextExample

logger = logging.getLogger(__name__)

BUNDLED = "bundled"
"""Names the model that is bundled with the package."""
BUCKET = math.sqrt(2)
"""Texts whose lengths differ by no more than this factor are computed together."""

CLASSIFY_REQUESTS: Mapping[bool | None, type[BaseModel]] = {
    True: ClassifyPairsRequest,
    False: ClassifyTextsRequest,
    None: ClassifyRequest,
}
"""By whether a model takes pairs; None: unknown."""
SAMPLE = "새 다리가 열렸다. 주민들은 반겼다."


class UnsuitableError(Exception):
    """A well-formed request that this model cannot answer."""


class Settings(Config):
    """Models and limits of a server; every worker process loads its own models."""

    classify: str = ""
    """Folder of a fine-tuned classifier or regression, or `bundled`; empty: not served."""
    answer: str = ""
    """Folder of a fine-tuned question answerer."""
    embed: str = ""
    """Folder or hub id of an embedder, or `bundled`."""
    summarize: str = ""
    """Folder or hub id of a summarizer, or `bundled`."""
    runtime: str = "auto"
    max_batch: int = Field(default=32, ge=1)
    """Texts of a batch."""
    max_batch_characters: int = Field(default=8192, ge=1)
    max_waiting: int = Field(default=256, ge=1)
    """Texts that may wait in a worker."""
    timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Seconds from the complete request to its answer."""
    body_timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Seconds for the body of a request to arrive."""
    max_body_bytes: int = Field(default=1 << 20, ge=1)
    cache_bytes: int = Field(default=64 << 20, ge=0)
    drain_s: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """Seconds for connections to end when the server stops."""


@dataclass(frozen=True)
class TextItem:
    """One input of a request."""

    texts: tuple[str, ...]
    """All texts that determine the result."""
    settings: str = ""
    """Settings that determine the result."""


@dataclass(frozen=True)
class Service:
    """A model behind an endpoint."""

    endpoint: str
    """Path without the slash, e.g. `classify`."""
    model: str
    """Name of the folder."""
    digest: str
    runtime: str
    about: dict[str, str]
    request: type[BaseModel]
    response: type[BaseModel]
    sample: TextItem
    """Input that is computed once before the first request."""
    items: Callable[[Any], list[TextItem]]
    """Request → inputs; raises UnsuitableError."""
    compute: Compute
    """Inputs with the same `settings` and number of texts → JSON without texts."""
    show: Callable[[TextItem, bytes], bytes] = lambda _, value: value
    """Input and result → response."""
    described: type[BaseModel] | None = None
    """The part of `request` that `items` accepts, for the description; None: all of it."""

    def group(self, item: TextItem) -> tuple[str, str, int, int]:
        """Return the key of the group of inputs that are computed together."""
        return self.endpoint, item.settings, len(item.texts), round(math.log(self.cost(item), BUCKET))

    def cost(self, item: TextItem) -> int:
        """Return the characters of an input plus a constant for its overhead."""
        return 8 + sum(map(len, item.texts))


def load_services(settings: Settings) -> dict[str, Service]:
    """Load every model in the settings, and compute one input with each.

    Raises:
        SuiteError: a model cannot be loaded.
    """
    openers: dict[str, Callable[[str, str], Service]] = {
        "classify": open_classifier,
        "answer": open_reader,
        "embed": open_embedder,
        "summarize": open_summarizer,
    }
    services = {
        name: opener(source, settings.runtime)
        for name, opener in openers.items()
        if (source := getattr(settings, name))
    }
    for service in services.values():
        service.compute([service.sample])
    return services


# --- classify ---------------------------------------------------------------------------------------------------------


def open_classifier(source: str, runtime: str) -> Service:
    """Serve a model fine-tuned on texts or pairs."""
    from downstream.encoders.hub import bundled
    from downstream.families.classification import Classification, Regression
    from downstream.runtimes.predictor import Predictor

    folder = bundled("classifier") if source == BUNDLED else Path(source)
    predictor = Predictor.load(folder, runtime)
    finetuned = predictor.finetuned
    family, wants_pairs = finetuned.family, finetuned.task.takes_pairs
    if not isinstance(family, Classification | Regression):
        raise UsageError("--classify", f"{source} is a model for {finetuned.task.title}", "give a classifier's folder")
    is_scale = isinstance(family, Regression)
    labels = () if is_scale else tuple(getattr(family, "labels", ()))

    def items(request: ClassifyRequest) -> list[TextItem]:
        given = [(nfc(t.text), nfc(t.pair)) if isinstance(t, Pair) else (nfc(t),) for t in request.texts]
        for k, texts in enumerate(given):
            if wants_pairs != (len(texts) == 2):
                wanted = "pairs: {text, pair}" if wants_pairs else "single texts"
                raise UnsuitableError(f"texts.{k}: {finetuned.task.title} takes {wanted}")
        return [TextItem(texts) for texts in given]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        examples = [
            TextExample("", item.texts[0], item.texts[1] if len(item.texts) == 2 else None, "") for item in batch
        ]
        rows, _ = predictor.outputs(examples)
        if is_scale:
            return [to_json({"score": float(row[0])}) for row in rows]
        return [_label(labels, row) for row in rows]

    return Service(
        endpoint="classify",
        model=folder.resolve().name,
        digest=predictor.runtime.network.digest,
        runtime=predictor.runtime.name,
        about={
            "task": finetuned.task.name,
            "labels": ", ".join(labels),
            "max_length": f"{finetuned.max_length} tokens; the rest of a text is ignored",
        },
        request=ClassifyRequest,
        response=ClassifyResponse,
        sample=TextItem((SAMPLE,) * (2 if wants_pairs else 1)),
        items=items,
        compute=compute,
        described=CLASSIFY_REQUESTS[wants_pairs],
    )


def _label(labels: Sequence[str], row: Any) -> bytes:
    """Return the label with the largest logit, and the softmax of them all."""
    exponents = np.exp(row.astype(np.float64) - row.max())
    shares = exponents / exponents.sum()
    scores = {label: round(float(share), 6) for label, share in zip(labels, shares, strict=True)}
    return to_json({"label": labels[int(row.argmax())], "scores": scores})


# --- answer -----------------------------------------------------------------------------------------------------------


def open_reader(source: str, runtime: str) -> Service:
    """Serve a model fine-tuned on questions about a context."""
    from downstream.families.span_qa import SpanQA
    from downstream.runtimes.predictor import Predictor

    predictor = Predictor.load(Path(source), runtime)
    finetuned = predictor.finetuned
    if not isinstance(finetuned.family, SpanQA):
        raise UsageError(
            "--answer", f"{source} is a model for {finetuned.task.title}", "give a question answerer's folder"
        )

    def items(request: AnswerRequest) -> list[TextItem]:
        return [TextItem((nfc(q.question), nfc(q.context))) for q in request.questions]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        examples = [QuestionExample("", item.texts[0], item.texts[1], ()) for item in batch]
        answers = map(str, predictor.predict(examples))
        # An answer is a slice of its context, so its first occurrence and its length restore it.
        return [
            to_json([item.texts[1].index(answer), len(answer)]) for item, answer in zip(batch, answers, strict=True)
        ]

    def show(item: TextItem, value: bytes) -> bytes:
        start, length = json.loads(value)
        return to_json({"answer": item.texts[1][start : start + length], "is_answered": length > 0})

    return Service(
        endpoint="answer",
        model=Path(source).resolve().name,
        digest=predictor.runtime.network.digest,
        runtime=predictor.runtime.name,
        about={"task": finetuned.task.name, "has_unanswerable": str(finetuned.family.has_unanswerable).lower()},
        request=AnswerRequest,
        response=AnswerResponse,
        sample=TextItem((SAMPLE, SAMPLE)),
        items=items,
        compute=compute,
        show=show,
    )


# --- embed ------------------------------------------------------------------------------------------------------------


def open_embedder(source: str, runtime: str) -> Service:
    """Serve a sentence embedder."""
    from downstream.embed import Embedder, encode
    from downstream.runtimes.predictor import fast_embedder

    plain = Embedder.load(None if source == BUNDLED else source, device="cpu")
    try:
        embedder, loaded = fast_embedder(plain, runtime)
        backend = loaded.name
    except CheckpointError as error:
        if runtime not in ("auto", "torch"):
            raise
        logger.warning("%s; it runs in torch", error)
        embedder, backend = plain, "torch"

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        vectors = encode([item.texts[0] for item in batch], model=embedder)  # (N, D)
        return [to_json([round(x, 7) for x in vector]) for vector in vectors.tolist()]

    return Service(
        endpoint="embed",
        model=embedder.folder.resolve().name,
        digest=plain.sha256,
        runtime=backend,
        about={"dimension": str(embedder.dimension), "max_length": f"{embedder.max_length} tokens"},
        request=EmbedRequest,
        response=EmbedResponse,
        sample=TextItem((SAMPLE,)),
        items=lambda request: [TextItem((text,)) for text in request.texts],
        compute=compute,
    )


# --- summarize --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Titled:
    text: str
    title: str


def open_summarizer(source: str, runtime: str) -> Service:
    """Serve a summarizer.

    Raises:
        UsageError: it has neural parts, which do not run on the backend that is asked for.
    """
    from downstream.summarize import BUNDLED as BUNDLED_SUMMARIZER
    from downstream.summarize import RUNTIMES, Summarizer

    folder = BUNDLED_SUMMARIZER if source == BUNDLED else Path(source)
    summarizer = Summarizer.load(None if source == BUNDLED else source, runtime if runtime in RUNTIMES else "torch")
    is_neural = summarizer.model.needs_encoder or summarizer.model.needs_scorer
    if is_neural and runtime not in RUNTIMES:
        raise UsageError("--runtime", f"{runtime} does not run summarizers", f"choose from {', '.join(RUNTIMES)}")

    def items(request: SummarizeRequest) -> list[TextItem]:
        settings = f"{request.sentences}:{request.focus}"
        return [TextItem((article.text, article.title), settings) for article in request.articles]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        sentences, _, focus = batch[0].settings.partition(":")
        articles = [_Titled(item.texts[0], item.texts[1]) for item in batch]
        summaries = summarizer.summarize_many(articles, int(sentences), focus=focus)
        return [to_json([[s.start, s.end, s.index, s.score] for s in summary.sentences]) for summary in summaries]

    def show(item: TextItem, value: bytes) -> bytes:
        names = ("start", "end", "index", "score")
        rows = [dict(zip(names, row, strict=True)) for row in json.loads(value)]
        return to_json({"sentences": [{"text": item.texts[0][row["start"] : row["end"]]} | row for row in rows]})

    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    return Service(
        endpoint="summarize",
        model=source if source == BUNDLED else Path(source).name,
        digest=sha256(*files),
        runtime=runtime if is_neural else "numpy",
        about={"features": ", ".join(summarizer.model.weights)},
        request=SummarizeRequest,
        response=SummarizeResponse,
        sample=TextItem((SAMPLE, ""), "1:"),
        items=items,
        compute=compute,
        show=show,
    )
