"""Schemas of requests and responses, from which the OpenAPI description is generated."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_ITEMS = 64
"""Texts of one request."""
MAX_CHARACTERS = 20_000
"""Characters of a comment, a pair's text or a question: far more than any model reads."""
MAX_ARTICLE_CHARACTERS = 200_000

Text = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
NonBlank = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS, pattern=r"\S")]
ArticleText = Annotated[str, StringConstraints(max_length=MAX_ARTICLE_CHARACTERS)]
Passage = Annotated[str, StringConstraints(max_length=MAX_ARTICLE_CHARACTERS, pattern=r"\S")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pair(_Strict):
    """Two texts, for a model that compares them."""

    text: Text = Field(examples=["시는 다음 달부터 버스 노선을 바꾼다."])
    pair: Text = Field(examples=["버스 노선은 그대로다."])


class ClassifyRequest(_Strict):
    """Texts or pairs to classify."""

    texts: list[Text | Pair] = Field(min_length=1, max_length=MAX_ITEMS, examples=[["배우들 연기가 정말 좋았다"]])


class ClassifyTextsRequest(_Strict):
    """Texts to classify."""

    texts: list[Text] = Field(min_length=1, max_length=MAX_ITEMS, examples=[["배우들 연기가 정말 좋았다"]])


class ClassifyPairsRequest(_Strict):
    """Pairs to classify."""

    texts: list[Pair] = Field(min_length=1, max_length=MAX_ITEMS)


class Label(_Strict):
    """The most probable label, and the probabilities of all."""

    label: str
    scores: dict[str, float]


class Score(_Strict):
    """A score on the scale that the model was trained on."""

    score: float


class ClassifyResponse(_Strict):
    """One result for each text, in their order."""

    model: str
    results: list[Label | Score]


class EmbedRequest(_Strict):
    """Texts to embed."""

    texts: list[Text] = Field(min_length=1, max_length=MAX_ITEMS, examples=[["정부, 부동산 대책 발표"]])


class EmbedResponse(_Strict):
    """One vector of length 1 for each text."""

    model: str
    results: list[list[float]]


class Question(_Strict):
    """A question and the context that may answer it."""

    question: NonBlank = Field(examples=["다리는 언제 열렸나?"])
    context: Passage = Field(examples=["새 다리가 지난 3일 열렸다. 주민들은 반겼다."])


class AnswerRequest(_Strict):
    """Questions to answer."""

    questions: list[Question] = Field(min_length=1, max_length=MAX_ITEMS)


class Answer(_Strict):
    """A slice of the context in NFC; empty if the context does not answer the question."""

    answer: str
    is_answered: bool


class AnswerResponse(_Strict):
    """One answer for each question."""

    model: str
    results: list[Answer]


class Article(_Strict):
    """An article to summarize."""

    text: ArticleText = Field(examples=["새 다리가 열렸다. 시는 다음 달 버스 노선을 바꿀 계획이다. 주민들은 반겼다."])
    title: Text = Field(default="", description="제목. 알면 더 잘 고른다.")


class SummarizeRequest(_Strict):
    """Articles, and settings of their summaries."""

    articles: list[Article] = Field(min_length=1, max_length=MAX_ITEMS)
    sentences: int = Field(default=3, ge=1, le=50, description="기사마다 고를 문장 수")
    focus: str = Field(default="", max_length=200, description="이 낱말이 든 문장을 먼저 고른다.")


class Sentence(_Strict):
    """A sentence of the article: `article[start:end] == text`, in code points."""

    text: str
    start: int
    end: int
    index: int
    score: float


class Summary(_Strict):
    """Sentences in the order of the article."""

    sentences: list[Sentence]


class SummarizeResponse(_Strict):
    """One summary for each article."""

    model: str
    results: list[Summary]


class Problem(BaseModel):
    """Why a request was refused."""

    title: str
    status: int
    detail: str
    errors: list[str] = Field(default_factory=list, description="잘못된 자리와 까닭")


class ServedModel(_Strict):
    """A model behind an endpoint."""

    endpoint: str
    model: str
    digest: str = Field(description="결과를 정하는 모든 파일의 SHA-256")
    runtime: str
    about: dict[str, str]


class Models(_Strict):
    """All models that are served."""

    models: list[ServedModel]


class State(_Strict):
    """The state of the worker that answers."""

    status: Literal["ok", "ready", "draining", "overloaded"]
    waiting: int = Field(default=0, description="기다리는 글의 수")
