"""Awkward wording of texts: `downstream.awkward.awkward`."""

from pydantic import Field

from apps.serving.schemas import MAX_ITEMS, Strict, Text
from apps.serving.tool import Service, Tool, findings_service, request_model
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
    return findings_service(TOOL, "awkward", awkward)


TOOL = Tool(
    name="awkward",
    functions=(awkward,),
    request=REQUEST,
    response=AwkwardResponse,
    open=open_awkward,
    locations={"text": "texts"},
)
