"""Schemas that all tools share: texts with limits, refusals, reports of the server."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_ITEMS = 64
"""Texts of one request."""
MAX_TITLES = 2_000
"""Titles of one request, where they are compared with each other."""
MAX_CHARACTERS = 20_000
"""Characters of a comment, a pair's text or a question: far more than any model reads."""
MAX_ARTICLE_CHARACTERS = 200_000

Text = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
NonBlank = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS, pattern=r"\S")]
ArticleText = Annotated[str, StringConstraints(max_length=MAX_ARTICLE_CHARACTERS)]
Passage = Annotated[str, StringConstraints(max_length=MAX_ARTICLE_CHARACTERS, pattern=r"\S")]


class Strict(BaseModel):
    """Base of requests and responses: a misspelt field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Problem(BaseModel):
    """Why a request was refused, in English and Korean (RFC 9457)."""

    title: str
    title_ko: str
    status: int
    detail: str
    detail_ko: str
    errors: list[str] = Field(default_factory=list, description="잘못된 자리와 까닭(영어)")
    errors_ko: list[str] = Field(default_factory=list, description="잘못된 자리와 까닭")


class ServedModel(Strict):
    """A model behind an endpoint."""

    endpoint: str
    model: str
    digest: str = Field(description="결과를 정하는 모든 파일의 SHA-256")
    runtime: str
    about: dict[str, str]


class Models(Strict):
    """All models that are served."""

    models: list[ServedModel]


class State(Strict):
    """The state of the worker that answers."""

    status: Literal["ok", "ready", "draining", "overloaded"]
    waiting: int = Field(default=0, description="기다리는 글의 수")
