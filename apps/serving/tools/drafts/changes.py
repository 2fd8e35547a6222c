"""What an update of an article changed: `apps.desk.changes`."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field
from pydantic_core import to_json

from apps.desk.changes import Change, changes
from apps.serving.schemas import ArticleText, Strict
from apps.serving.tool import SAMPLE, Service, TextItem, Tool, request_model

REQUEST = request_model(
    "ChangesRequest",
    "Two versions of an article.",
    [changes],
    {
        "old": (ArticleText, Field(examples=["한빛시는 3일 다리를 연다. 김하늘 시장이 참석한다."])),
        "new": (ArticleText, Field(examples=["한빛시는 5일 다리를 연다. 박가람 시장이 참석한다."])),
    },
)


class ChangesResponse(Strict):
    """The changes, in the order of the new version."""

    model: str
    results: list[Change]


def open_changes(_source: str, _runtime: str) -> Service:
    """Serve the comparison, which needs no model but Kiwi."""

    def items(request: Any) -> list[TextItem]:
        return [TextItem((request.old, request.new))]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [to_json(changes(*item.texts)) for item in batch]

    return Service(
        endpoint=TOOL.name,
        model="changes",
        digest="",
        runtime="python",
        about={},
        request=REQUEST,
        response=ChangesResponse,
        sample=TextItem((SAMPLE, SAMPLE)),
        items=items,
        compute=compute,
        is_cached=False,
        is_whole=True,
    )


TOOL = Tool(name="changes", functions=(changes,), request=REQUEST, response=ChangesResponse, open=open_changes)
