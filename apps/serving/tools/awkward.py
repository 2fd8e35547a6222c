"""Awkward wording of texts: `downstream.awkward.awkward`."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field
from pydantic_core import to_json

from apps.serving.schemas import MAX_ITEMS, Strict, Text
from apps.serving.tool import SAMPLE, Service, TextItem, Tool, options_json, request_model, with_texts, without_texts
from downstream.awkward import Awkward, awkward

REQUEST = request_model(
    "AwkwardRequest",
    "Texts whose wording is judged.",
    [awkward],
    {
        "texts": (list[Text], Field(min_length=1, max_length=MAX_ITEMS, examples=[["그는 해결책을 필요로 했다."]])),
    },
    without=["text"],
)


class AwkwardResponse(Strict):
    """What is awkward in each text, in order."""

    model: str
    results: list[list[Awkward]]


def open_awkward(_source: str, _runtime: str) -> Service:
    """Serve the rules, and the bundled encoder where unlikely words are asked for."""

    def items(request: Any) -> list[TextItem]:
        settings = options_json(request, "texts")
        return [TextItem((text,), settings) for text in request.texts]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [without_texts(awkward(item.texts[0], **json.loads(item.settings))) for item in batch]

    return Service(
        endpoint=TOOL.name,
        model="awkward",
        digest="",
        runtime="python",
        about={},
        request=REQUEST,
        response=AwkwardResponse,
        sample=TextItem((SAMPLE,), "{}"),
        items=items,
        compute=compute,
        show=lambda item, value: to_json(with_texts(item.texts[0], value)),
        is_cached=False,
    )


TOOL = Tool(
    name="awkward",
    functions=(awkward,),
    request=REQUEST,
    response=AwkwardResponse,
    open=open_awkward,
    locations={"text": "texts"},
)
