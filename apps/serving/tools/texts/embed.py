"""Vectors of texts: `downstream.embed.encode`."""

import json
import logging
from collections.abc import Sequence
from typing import Any

from pydantic import Field
from pydantic_core import to_json

from apps.serving.schemas import MAX_ITEMS, Strict, Text
from apps.serving.tool import SAMPLE, Service, TextItem, Tool, options_json, request_model
from corpora.foundation.errors import CheckpointError
from downstream.embed import Embedder, encode
from downstream.encoders.hub import BUNDLED_SOURCE
from downstream.runtimes.predictor import fast_embedder

logger = logging.getLogger(__name__)

SERVER_SIDE = ("model", "progress")
REQUEST = request_model(
    "EmbedRequest",
    "Texts to embed.",
    [encode],
    {
        "texts": (list[Text], Field(min_length=1, max_length=MAX_ITEMS, examples=[["정부, 부동산 대책 발표"]])),
        "batch_size": (int, Field(ge=1, le=1_024)),
    },
    without=SERVER_SIDE,
)


class EmbedResponse(Strict):
    """One vector of length 1 for each text."""

    model: str
    results: list[list[float]]


def open_fast_embedder(source: str, runtime: str) -> tuple[Embedder, str, str]:
    """Return an embedder, its digest, and the name of what runs it."""
    plain = Embedder.load(None if source == BUNDLED_SOURCE else source, device="cpu")
    try:
        embedder, loaded = fast_embedder(plain, runtime)
        return embedder, plain.sha256, loaded.name
    except CheckpointError as error:
        if runtime not in ("auto", "torch"):
            raise
        logger.warning("%s; it runs in torch", error)
        return plain, plain.sha256, "torch"


def open_embedder(source: str, runtime: str) -> Service:
    """Serve a sentence embedder."""
    embedder, digest, backend = open_fast_embedder(source, runtime)

    def items(request: Any) -> list[TextItem]:
        settings = options_json(request, "texts")
        return [TextItem((text,), settings) for text in request.texts]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        options = json.loads(batch[0].settings)
        vectors = encode([item.texts[0] for item in batch], model=embedder, **options)  # (N, D)
        return [to_json([round(x, 7) for x in vector]) for vector in vectors.tolist()]

    return Service(
        endpoint=TOOL.name,
        model=embedder.folder.resolve().name,
        digest=digest,
        runtime=backend,
        about={"dimension": str(embedder.dimension), "max_length": f"{embedder.max_length} tokens"},
        request=REQUEST,
        response=EmbedResponse,
        sample=TextItem((SAMPLE,), "{}"),
        items=items,
        compute=compute,
    )


TOOL = Tool(
    name="embed",
    functions=(encode,),
    request=REQUEST,
    response=EmbedResponse,
    open=open_embedder,
    model="an embedder",
    server_side=frozenset(SERVER_SIDE),
)
