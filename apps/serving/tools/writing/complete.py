"""The rest of a word, or the next one: `downstream.complete.complete`."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field
from pydantic_core import to_json

from apps.serving.schemas import MAX_ITEMS, Strict, Text
from apps.serving.tool import SAMPLE, Service, TextItem, Tool, options_json, request_model
from downstream.complete import Completion, bundled_completer, complete

REQUEST = request_model(
    "CompleteRequest",
    "Texts that are being written.",
    [complete],
    {
        "texts": (list[Text], Field(min_length=1, max_length=MAX_ITEMS, examples=[["시는 내년 예산을 확"]])),
        "num_completions": (int, Field(ge=1, le=24)),
    },
    without=["text"],
)


class CompleteResponse(Strict):
    """The completions of each text, the likeliest first."""

    model: str
    results: list[list[Completion]]


def open_completer(_source: str, _runtime: str) -> Service:
    """Serve the completer that comes with the package."""
    completer = bundled_completer()

    def items(request: Any) -> list[TextItem]:
        settings = options_json(request, "texts")
        return [TextItem((text,), settings) for text in request.texts]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [to_json(completer.complete(item.texts[0], **json.loads(item.settings))) for item in batch]

    return Service(
        endpoint=TOOL.name,
        model="completer",
        digest="",
        runtime="python",
        about={},
        request=REQUEST,
        response=CompleteResponse,
        sample=TextItem((SAMPLE,), "{}"),
        items=items,
        compute=compute,
        is_cached=False,
    )


TOOL = Tool(
    name="complete",
    functions=(complete,),
    request=REQUEST,
    response=CompleteResponse,
    open=open_completer,
    locations={"text": "texts"},
)
