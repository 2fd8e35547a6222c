"""Hate and offence in comments, the words that carry it, softer wordings: `downstream.moderate`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic_core import to_json, to_jsonable_python

from apps.serving.schemas import MAX_ITEMS, Strict, Text
from apps.serving.tool import (
    SAMPLE,
    Service,
    TextItem,
    Tool,
    UnsuitableError,
    options_json,
    request_model,
    with_texts,
    without_texts,
)
from downstream.encoders.hub import BUNDLED_SOURCE
from downstream.moderate.model import Moderator, WordSpan, bundled_moderator
from downstream.moderate.softening import apply, soften_with


def _softening(*, soften: bool = False) -> None:
    """Stand for the option that adds the proposals of `soften_with`."""


REQUEST = request_model(
    "ModerateRequest",
    "Comments.",
    [Moderator.moderate, _softening],
    {
        "texts": (list[Text], Field(min_length=1, max_length=MAX_ITEMS, examples=[["정말 못생긴 놈이 나왔네"]])),
        "headline": (Text | None, Field()),
        "precision": (float, Field(gt=0, lt=1)),
    },
    without=["text"],
)


class Change(Strict):
    """A change of a comment: its part from `start` to `end` becomes `replacement`."""

    start: int
    end: int
    text: str
    replacement: str


class Proposal(Strict):
    """A softer wording."""

    manner: str
    softened: str
    edits: list[Change]
    score: float
    is_below: bool
    kept: float


class Judged(Strict):
    """What the model says of a comment."""

    label: str
    probabilities: dict[str, float]
    score: float
    threshold: float
    precision: float
    is_flagged: bool
    spans: list[WordSpan]
    proposals: list[Proposal]


class ModerateResponse(Strict):
    """One result for each comment, in their order."""

    model: str
    results: list[Judged]


def open_moderator(source: str, _runtime: str) -> Service:
    """Serve a model of comments."""
    moderator = bundled_moderator() if source == BUNDLED_SOURCE else Moderator.load(Path(source))

    def items(request: Any) -> list[TextItem]:
        try:
            moderator.threshold(request.precision)
        except ValueError:
            known = ", ".join(moderator.settings.thresholds)
            raise UnsuitableError("precision", "precision", known=known) from None
        settings = options_json(request, "texts")
        return [TextItem((text,), settings) for text in request.texts]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [_judge(moderator, item) for item in batch]

    folder = moderator.folder
    return Service(
        endpoint=TOOL.name,
        model=folder.name if folder else "moderator",
        digest=moderator.digest(),
        runtime="onnx-fp32" if moderator.encode else "python",
        about={"labels": ", ".join(moderator.labels), "thresholds": json.dumps(moderator.settings.thresholds)},
        request=REQUEST,
        response=ModerateResponse,
        sample=TextItem((SAMPLE,), f'{{"headline": null, "precision": {_first(moderator)}, "soften": false}}'),
        items=items,
        compute=compute,
        show=_show,
    )


def _first(moderator: Moderator) -> str:
    return next(iter(moderator.settings.thresholds))


def _judge(moderator: Moderator, item: TextItem) -> bytes:
    options = json.loads(item.settings)
    precision, headline = options["precision"], options["headline"]
    [text] = item.texts
    found = to_jsonable_python(moderator.moderate(text, headline, precision=precision))
    proposals = soften_with(moderator, text, headline, precision=precision) if options["soften"] else ()
    # The softened text is made of the comment and the edits for the client that sent it.
    found["proposals"] = [
        {name: value for name, value in to_jsonable_python(each).items() if name not in {"text", "probabilities"}}
        for each in proposals
    ]
    return without_texts(found)


def _show(item: TextItem, value: bytes) -> bytes:
    [text] = item.texts
    found = with_texts(text, value)
    for each in found["proposals"]:
        edits = {(edit["start"], edit["end"]): edit["replacement"] for edit in each["edits"]}
        each["softened"] = apply(text, edits, each["manner"])
    return to_json(found)


TOOL = Tool(
    name="moderate",
    functions=(Moderator.moderate,),
    request=REQUEST,
    response=ModerateResponse,
    open=open_moderator,
    model="a model of comments",
    locations={"text": "texts"},
)
