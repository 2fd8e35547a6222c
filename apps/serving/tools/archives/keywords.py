"""Keywords of groups of titles: `apps.stories.keywords.ClassTfidf`."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic_core import to_json

from apps.serving.schemas import MAX_TITLES, Strict, Text
from apps.serving.tool import SAMPLE, Service, TextItem, Tool, UnsuitableError, options_json, request_model
from apps.stories.keywords import ClassTfidf, Keyword

FUNCTIONS = (ClassTfidf, ClassTfidf.__call__)
EXAMPLE = ["얀센 백신 예약 마감", "얀센 백신 예약 첫날", "한은 기준금리 동결", "기준금리 또 동결"]
REQUEST = request_model(
    "KeywordsRequest",
    "Titles, and the group of each.",
    FUNCTIONS,
    {
        "texts": (list[Text], Field(min_length=1, max_length=MAX_TITLES, examples=[EXAMPLE])),
        "labels": (
            list[Annotated[int, Field(ge=-1, lt=MAX_TITLES)]],
            Field(min_length=1, max_length=MAX_TITLES, examples=[[0, 0, 1, 1]]),
        ),
        "num_keywords": (int, Field(ge=0, le=100)),
        "diversity": (float, Field(ge=0, le=1)),
    },
)


class KeywordsResponse(Strict):
    """The keywords of each group, 0 to the highest label, the heaviest first."""

    model: str
    results: list[list[Keyword]]


def open_keywords(_source: str, _runtime: str) -> Service:
    """Serve c-TF-IDF, which needs no model but Kiwi."""

    def items(request: Any) -> list[TextItem]:
        if len(request.labels) != len(request.texts):
            raise UnsuitableError("labels", "labels", count=len(request.texts))
        return [TextItem(tuple(request.texts), options_json(request, "texts"))]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        options = json.loads(batch[0].settings)
        labels = np.array(options.pop("labels"), np.int64)
        return [to_json(ClassTfidf(**options)(item.texts, labels)) for item in batch]

    return Service(
        endpoint=TOOL.name,
        model="c-tf-idf",
        digest="",
        runtime="python",
        about={},
        request=REQUEST,
        response=KeywordsResponse,
        sample=TextItem((SAMPLE,), '{"labels": [0]}'),
        items=items,
        compute=compute,
        is_cached=False,
        is_whole=True,
    )


TOOL = Tool(name="keywords", functions=FUNCTIONS, request=REQUEST, response=KeywordsResponse, open=open_keywords)
