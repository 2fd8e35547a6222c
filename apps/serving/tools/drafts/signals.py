"""Signals of stance, advertorials and clickbait in articles: `downstream.stance`, `.advertorial`, `.clickbait`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field
from pydantic_core import to_json

from apps.serving.schemas import MAX_ITEMS, ArticleText, Strict, Text
from apps.serving.tool import SAMPLE, Service, TextItem, Tool, describe_field
from downstream.advertorial import advertorial
from downstream.clickbait import clickbait
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import bundled
from downstream.signals.finding import Findings
from downstream.stance import stance

FINDERS: Mapping[str, Callable[[str, str], Findings]] = {
    "stance": stance,
    "advertorial": advertorial,
    "clickbait": lambda text, title: clickbait(title, text),
}
"""Name of a result → what finds it in text and title."""


class SignalsArticle(Strict):
    """An article."""

    text: ArticleText = Field(examples=["시민단체는 “졸속 행정”이라고 비판했다. 시는 곧 답하기로 했다."])
    title: Text = Field(default="", examples=["새 조례를 두고 갑론을박"])


class SignalsRequest(Strict):
    """Articles."""

    articles: list[SignalsArticle] = Field(min_length=1, max_length=MAX_ITEMS, description=describe_field("articles"))


class SignalsResponse(Strict):
    """The signals of each article by tool, in their order."""

    model: str
    results: list[dict[str, Findings]]


def open_signals(_source: str, _runtime: str) -> Service:
    """Serve the three tools; a headline is compared with its article by the bundled embedder."""

    def items(request: Any) -> list[TextItem]:
        return [TextItem((article.text, article.title)) for article in request.articles]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [to_json({name: find(*item.texts) for name, find in FINDERS.items()}) for item in batch]

    return Service(
        endpoint=TOOL.name,
        model="signals",
        digest=ModelFolder(bundled("embedder")).digest(),
        runtime="python",
        about={"tools": ", ".join(FINDERS)},
        request=SignalsRequest,
        response=SignalsResponse,
        sample=TextItem((SAMPLE, SAMPLE)),
        items=items,
        compute=compute,
        # The signals are parts of the article.
        is_cached=False,
    )


TOOL = Tool(
    name="signals",
    functions=(stance, advertorial),
    request=SignalsRequest,
    response=SignalsResponse,
    open=open_signals,
    locations={"text": "articles.text", "title": "articles.title"},
)
