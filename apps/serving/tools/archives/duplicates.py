"""Near-duplicates among titles or articles: `apps.clustering.find_duplicates`."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field, FiniteFloat
from pydantic_core import to_json

from apps.clustering import DuplicateGroup, find_duplicates
from apps.serving.schemas import MAX_TITLES, ArticleText, Strict
from apps.serving.tool import SAMPLE, Service, TextItem, Tool, UnsuitableError, options_json, request_model
from apps.stories.duplicates import DuplicateConfig

UNIT = 1e-3
"""Farthest that the length of a vector may be from 1."""
EXAMPLE = ["금리 3.5% 동결", "금리, 3.5% 동결", "금리 4.5% 동결"]
Vector = Annotated[list[FiniteFloat], Field(min_length=1, max_length=4_096)]
REQUEST = request_model(
    "DuplicatesRequest",
    "Titles or articles to compare.",
    [find_duplicates],
    {
        "texts": (list[ArticleText], Field(min_length=1, max_length=MAX_TITLES, examples=[EXAMPLE])),
        "points": (list[Vector] | None, Field(max_length=MAX_TITLES)),
    },
)


class DuplicatesResponse(Strict):
    """Groups of two or more, the largest first; members are positions among the texts."""

    model: str
    results: list[DuplicateGroup]


def open_duplicates(_source: str, _runtime: str) -> Service:
    """Serve the comparison, which needs no model."""

    def items(request: Any) -> list[TextItem]:
        if request.points is not None:
            _check_points(request.points, len(request.texts))
        return [TextItem(tuple(request.texts), options_json(request, "texts"))]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        options = json.loads(batch[0].settings)
        if options.get("points") is not None:
            options["points"] = np.array(options["points"], np.float32)
        if options.get("config") is not None:
            options["config"] = DuplicateConfig(**options["config"])
        return [to_json(find_duplicates(item.texts, **options)) for item in batch]

    return Service(
        endpoint=TOOL.name,
        model="letters",
        digest="",
        runtime="python",
        about={},
        request=REQUEST,
        response=DuplicatesResponse,
        sample=TextItem((SAMPLE, SAMPLE), "{}"),
        items=items,
        compute=compute,
        is_whole=True,
    )


def _check_points(points: list[list[float]], num_texts: int) -> None:
    """Refuse anything but one vector of length 1 or 0 for each text, all of one dimension."""
    if len(points) != num_texts or len({len(point) for point in points}) != 1:
        raise UnsuitableError("points", "points", count=num_texts)
    lengths = np.linalg.norm(np.array(points, np.float64), axis=1)
    if not bool(((np.abs(lengths - 1) < UNIT) | (lengths == 0)).all()):
        raise UnsuitableError("points", "points", count=num_texts)


TOOL = Tool(
    name="duplicates",
    functions=(find_duplicates,),
    request=REQUEST,
    response=DuplicatesResponse,
    open=open_duplicates,
)
