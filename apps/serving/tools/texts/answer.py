"""Answers from a passage: `downstream.answer.Reader.answer`, or the sentence most similar to the question."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic_core import to_json

from apps.serving.schemas import MAX_ITEMS, NonBlank, Passage, Strict
from apps.serving.tool import (
    SAMPLE,
    Service,
    TextItem,
    Tool,
    UnsuitableError,
    describe_field,
    with_texts,
    without_texts,
)
from corpora.foundation.errors import UsageError
from downstream.answer import Reader, SentenceFinder
from downstream.encoders.hub import BUNDLED_SOURCE
from downstream.families.span_qa import SpanQA
from downstream.runtimes.predictor import Predictor

SENTENCES = "sentence-finder"
"""Name of what answers without a model."""


class Question(Strict):
    """A question and the context that may answer it."""

    question: NonBlank = Field(examples=["다리는 언제 열렸나?"], description=describe_field("question"))
    context: Passage = Field(
        examples=["새 다리가 지난 3일 열렸다. 주민들은 반겼다."], description=describe_field("context")
    )


class AnswerRequest(Strict):
    """Questions to answer."""

    questions: list[Question] = Field(min_length=1, max_length=MAX_ITEMS, description=describe_field("questions"))


class Answer(Strict):
    """A slice of the context, `context[start:end]` in code points; empty if the context does not answer."""

    answer: str
    is_answered: bool
    start: int
    end: int
    confidence: float


class AnswerResponse(Strict):
    """One answer for each question."""

    model: str
    results: list[Answer]


def open_reader(source: str, runtime: str) -> Service:
    """Serve a model fine-tuned on questions about a context; for `bundled`, what finds sentences without a model."""
    finder: Reader | SentenceFinder = SentenceFinder()
    model, digest, backend = SENTENCES, "", "python"
    about = {"task": "the sentence that shares most letters with the question"}
    if source != BUNDLED_SOURCE:
        predictor = Predictor.load(Path(source), runtime)
        finetuned = predictor.finetuned
        if not isinstance(finetuned.family, SpanQA):
            what = f"{source} is a model for {finetuned.task.title}"
            raise UsageError("--answer", what, "give a question answerer's folder")
        finder = Reader(predictor)
        model, digest = Path(source).resolve().name, predictor.runtime.network.digest
        backend = predictor.runtime.name
        about = {"task": finetuned.task.name, "has_unanswerable": str(finder.can_refuse).lower()}

    def items(request: Any) -> list[TextItem]:
        for k, question in enumerate(request.questions):
            # What is blank to Python may not be to the pattern of the schema, e.g. U+001C.
            if not question.question.strip() or not question.context.strip():
                raise UnsuitableError("blank_question", f"questions.{k}")
        return [TextItem((q.question, q.context)) for q in request.questions]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [without_texts(finder.answer(*item.texts)) for item in batch]

    def show(item: TextItem, value: bytes) -> bytes:
        found = with_texts(item.texts[1], value)
        return to_json({"answer": found.pop("text"), "is_answered": found["end"] > found["start"], **found})

    return Service(
        endpoint=TOOL.name,
        model=model,
        digest=digest,
        runtime=backend,
        about=about,
        request=AnswerRequest,
        response=AnswerResponse,
        sample=TextItem((SAMPLE, SAMPLE)),
        items=items,
        compute=compute,
        show=show,
    )


TOOL = Tool(
    name="answer",
    functions=(Reader.answer,),
    request=AnswerRequest,
    response=AnswerResponse,
    open=open_reader,
    model="a model fine-tuned on questions",
    locations={"question": "questions.question", "passage": "questions.context"},
)
