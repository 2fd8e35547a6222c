"""Stories among the titles of a day: `apps.clustering.cluster`."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, StringConstraints
from pydantic_core import to_json

from apps.clustering import LETTERS, Article, CharNgrams, Cluster, ClusteringConfig, cluster
from apps.serving.schemas import MAX_TITLES, ArticleText, Strict, Text
from apps.serving.tool import Service, TextItem, Tool, options_json, request_model
from apps.serving.tools.texts.embed import open_fast_embedder

if TYPE_CHECKING:
    from apps.stories.space import Embedder

SERVER_SIDE = ("embedder", "reducer", "clusterer", "labeller")
EXAMPLE = ["누리호 발사대 기립", "누리호, 발사대에 기립", "한국형 발사체 누리호 발사대 기립", "첫눈 내린 고갯길"]


class StoryArticle(Strict):
    """An article with what is known of it."""

    title: Text
    id: Text = ""
    text: ArticleText = ""
    date: Annotated[str, StringConstraints(pattern=r"^(\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}.{0,20})?)?$")] = ""
    category: Text = ""
    publisher: Text = ""
    url: Text = ""


REQUEST = request_model(
    "StoriesRequest",
    "Titles or articles of a day, and settings of their stories.",
    [cluster],
    {
        "articles": (
            list[Text | StoryArticle],
            Field(min_length=1, max_length=MAX_TITLES, examples=[EXAMPLE]),
        )
    },
    without=SERVER_SIDE,
)


class Stories(Strict):
    """The stories of a request; members are positions among its articles."""

    stories: list[Cluster]
    noise: list[int] = Field(description="어느 묶음에도 들지 않은 기사의 자리")


class StoriesResponse(Strict):
    """One result: the stories of the articles."""

    model: str
    results: list[Stories]


def open_stories(source: str, runtime: str) -> Service:
    """Serve clustering with an embedder, or by letters alone."""
    embedder: Embedder = CharNgrams()
    model, digest, backend = LETTERS, embedder.sha256, "python"
    if source != LETTERS:
        embedder, digest, backend = found = open_fast_embedder(source, runtime)
        model = found[0].folder.resolve().name

    def items(request: Any) -> list[TextItem]:
        rows = [row if isinstance(row, str) else row.model_dump() for row in request.articles]
        return [TextItem((json.dumps(rows, ensure_ascii=False),), options_json(request, "articles"))]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [to_json(_stories(item)) for item in batch]

    def _stories(item: TextItem) -> dict[str, Any]:
        options = json.loads(item.settings)
        if options.get("config") is not None:
            options["config"] = ClusteringConfig(**options["config"])
        articles = [row if isinstance(row, str) else Article(**row) for row in json.loads(item.texts[0])]
        found = cluster(articles, embedder=embedder, **options)
        return {"stories": found.stories, "noise": found.noise}

    return Service(
        endpoint=TOOL.name,
        model=model,
        digest=digest,
        runtime=backend,
        about={"settings": "apps.clustering.ClusteringConfig"},
        request=REQUEST,
        response=StoriesResponse,
        sample=TextItem((json.dumps(EXAMPLE),), "{}"),
        items=items,
        compute=compute,
        is_cached=False,
    )


TOOL = Tool(
    name="stories",
    functions=(cluster,),
    request=REQUEST,
    response=StoriesResponse,
    open=open_stories,
    model=f"an embedder for stories, or {LETTERS}",
    server_side=frozenset(SERVER_SIDE),
)
