"""Summaries: `downstream.summarize.summarize`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints
from pydantic_core import to_json

from apps.serving.schemas import MAX_ITEMS, ArticleText, Strict, Text
from apps.serving.tool import (
    SAMPLE,
    Service,
    TextItem,
    Tool,
    describe_field,
    options_json,
    request_model,
    with_texts,
    without_texts,
)
from corpora.foundation.errors import UsageError
from corpora.foundation.files import sha256
from downstream.encoders.hub import BUNDLED_SOURCE
from downstream.summarize import BUNDLED as FOLDER
from downstream.summarize import RUNTIMES, Summarizer, Summary, summarize


class Article(Strict):
    """An article to summarize."""

    text: ArticleText = Field(
        examples=["새 다리가 열렸다. 시는 다음 달 버스 노선을 바꿀 계획이다. 주민들은 반겼다."],
        description=describe_field("text"),
    )
    title: Text = Field(default="", description=describe_field("title"))


REQUEST = request_model(
    "SummarizeRequest",
    "Articles, and options of their summaries.",
    [summarize],
    {
        "articles": (list[Article], Field(min_length=1, max_length=MAX_ITEMS)),
        "sentences": (int, Field(ge=1, le=1_000)),
        "ratio": (float | None, Field(gt=0, le=1, examples=[0.2])),
        "max_chars": (int | None, Field(ge=1, le=1_000_000, examples=[200])),
        "focus": (Annotated[str, StringConstraints(max_length=200)], Field()),
    },
    without=["article", "title"],
)


class SummarizeResponse(Strict):
    """One summary for each article."""

    model: str
    results: list[Summary]


@dataclass(frozen=True)
class _Titled:
    text: str
    title: str


def open_summarizer(source: str, runtime: str) -> Service:
    """Serve a summarizer.

    Raises:
        UsageError: it has neural parts, which do not run on the backend that is asked for.
    """
    folder = FOLDER if source == BUNDLED_SOURCE else Path(source)
    given = None if source == BUNDLED_SOURCE else source
    summarizer = Summarizer.load(given, runtime if runtime in RUNTIMES else "torch")
    is_neural = summarizer.model.needs_encoder or summarizer.model.needs_scorer
    if is_neural and runtime not in RUNTIMES:
        raise UsageError("--runtime", f"{runtime} does not run summarizers", f"choose from {', '.join(RUNTIMES)}")

    def items(request: Any) -> list[TextItem]:
        settings = options_json(request, "articles")
        return [TextItem((article.text, article.title), settings) for article in request.articles]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        articles = [_Titled(item.texts[0], item.texts[1]) for item in batch]
        return [without_texts(s) for s in summarizer.summarize_many(articles, **json.loads(batch[0].settings))]

    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    return Service(
        endpoint=TOOL.name,
        model=source if source == BUNDLED_SOURCE else Path(source).name,
        digest=sha256(*files),
        runtime=runtime if is_neural else "numpy",
        about={"features": ", ".join(summarizer.model.weights)},
        request=REQUEST,
        response=SummarizeResponse,
        sample=TextItem((SAMPLE, ""), "{}"),
        items=items,
        compute=compute,
        show=lambda item, value: to_json(with_texts(item.texts[0], value)),
    )


TOOL = Tool(
    name="summarize",
    functions=(summarize,),
    request=REQUEST,
    response=SummarizeResponse,
    open=open_summarizer,
    model="a summarizer",
    locations={"article": "articles.text", "title": "articles.title"},
)
