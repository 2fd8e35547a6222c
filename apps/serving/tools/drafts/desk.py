"""What all tools say of a draft: `apps.desk.examine`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic_core import to_json

from apps.desk.draft import Earlier, Examined, examine
from apps.serving.schemas import ArticleText, Strict, Text
from apps.serving.tool import SAMPLE, Service, TextItem, Tool, describe_field
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import BUNDLED_SOURCE, bundled
from downstream.headlines.writer import HeadlineWriter

MAX_DRAFTS, MAX_ARCHIVE = 8, 500


class DeskArticle(Strict):
    """A draft, or an earlier article."""

    text: ArticleText = Field(examples=["한빛시는 3일 강변 산책로를 연다고 밝혔다. 사업비는 12억 원이다."])
    title: Text = Field(default="", examples=["강변 산책로 3일 개장"])


class DeskRequest(Strict):
    """Drafts, and earlier articles that they are compared with."""

    articles: list[DeskArticle] = Field(min_length=1, max_length=MAX_DRAFTS, description=describe_field("articles"))
    archive: list[DeskArticle] = Field(default=[], max_length=MAX_ARCHIVE, description=describe_field("archive"))


class DeskResponse(Strict):
    """What the tools say of each draft, in their order."""

    model: str
    results: list[Examined]


def open_desk(source: str, _runtime: str) -> Service:
    """Serve the desk with the bundled models, and a folder of a model that writes headlines.

    Raises:
        CheckpointError: it is none.
    """
    writer = None if source == BUNDLED_SOURCE else HeadlineWriter.load(source)

    def items(request: Any) -> list[TextItem]:
        archive = tuple(text for each in request.archive for text in (each.title, each.text))
        return [TextItem((each.text, each.title, *archive)) for each in request.articles]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [to_json(_examined(item, writer)) for item in batch]

    return Service(
        endpoint=TOOL.name,
        model="desk" if source == BUNDLED_SOURCE else Path(source).name,
        digest=ModelFolder(bundled("embedder")).digest(),
        runtime="python",
        about={},
        request=DeskRequest,
        response=DeskResponse,
        sample=TextItem((SAMPLE, "")),
        items=items,
        compute=compute,
        # It consists of parts of the draft.
        is_cached=False,
    )


def _examined(item: TextItem, writer: HeadlineWriter | None) -> Examined:
    text, title, *earlier = item.texts
    archive = [Earlier(*pair) for pair in zip(earlier[::2], earlier[1::2], strict=True)]
    return examine(text, title, archive, writer=writer)


TOOL = Tool(
    name="desk",
    functions=(examine,),
    request=DeskRequest,
    response=DeskResponse,
    open=open_desk,
    locations={"text": "articles.text", "title": "articles.title"},
    server_side=frozenset({"archive", "writer"}),
    model="a model that writes headlines",
)
