"""Errors in texts: `downstream.proofread.proofread`."""

from pydantic import Field

from apps.serving.schemas import MAX_ITEMS, Strict, Text
from apps.serving.tool import Service, Tool, findings_service, request_model
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
    return findings_service(TOOL, "proofreader", Proofreader.load().proofread)


TOOL = Tool(
    name="proofread",
    functions=(proofread,),
    request=REQUEST,
    response=ProofreadResponse,
    open=open_proofreader,
    locations={"text": "texts"},
)
