"""Errors in texts: `downstream.proofread.proofread`."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field
from pydantic_core import to_json

from apps.serving.schemas import MAX_ITEMS, Strict, Text
from apps.serving.tool import (
    SAMPLE,
    Service,
    TextItem,
    Tool,
    options_json,
    request_model,
    with_texts,
    without_texts,
)
from downstream.proofread import Correction, Kind, Proofreader, proofread

REQUEST = request_model(
    "ProofreadRequest",
    "Texts that are checked.",
    [proofread],
    {
        "texts": (list[Text], Field(min_length=1, max_length=MAX_ITEMS, examples=[["이렇게 하면 안되요."]])),
        "only": (list[Kind], Field()),
        "min_confidence": (float, Field(ge=0, le=1)),
    },
    without=["text"],
)


class ProofreadResponse(Strict):
    """The corrections of each text, in order."""

    model: str
    results: list[list[Correction]]


def open_proofreader(_source: str, _runtime: str) -> Service:
    """Serve the proofreader that comes with the package."""
    proofreader = Proofreader.load()

    def items(request: Any) -> list[TextItem]:
        settings = options_json(request, "texts")
        return [TextItem((text,), settings) for text in request.texts]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [without_texts(proofreader.proofread(item.texts[0], **json.loads(item.settings))) for item in batch]

    return Service(
        endpoint=TOOL.name,
        model="proofreader",
        digest="",
        runtime="python",
        about={},
        request=REQUEST,
        response=ProofreadResponse,
        sample=TextItem((SAMPLE,), "{}"),
        items=items,
        compute=compute,
        show=lambda item, value: to_json(with_texts(item.texts[0], value)),
        # Suggestions hold words of the text.
        is_cached=False,
    )


TOOL = Tool(
    name="proofread",
    functions=(proofread,),
    request=REQUEST,
    response=ProofreadResponse,
    open=open_proofreader,
    locations={"text": "texts"},
)
