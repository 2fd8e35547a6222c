"""Page 질문과 답: the answer marked in its passage, or none; without a model, the most similar sentence."""

import streamlit as st

from apps.demo_pages.frame import (
    Given,
    PageContext,
    given_to,
    heading,
    show_error,
    show_missing_model,
    show_refusal,
    take,
)
from apps.demo_pages.inputs import MAX_PASSAGE, check_text
from apps.demo_pages.marking import Mark, escaped, literal, marked, one_line, paper
from corpora.foundation.errors import SuiteError
from corpora.foundation.files import SAMPLE_ROOT
from corpora.foundation.texts import Texts
from downstream.answer import Found, Reader, SentenceFinder
from downstream.task import QuestionExample, get_task

NUM_EXAMPLES = 3
LONGEST_QUESTION = 300


def show(context: PageContext) -> None:
    """Draw the page."""
    texts = context.texts
    heading(texts, "answers")
    _input(texts)
    show_refusal("answers", texts)
    if given := given_to("answers"):
        question, passage = given.records
        try:
            with context.model() as reader:
                found: Found = reader.answer(question, passage)
                caption = _caption(texts, reader, found)
        except (SuiteError, ValueError) as error:
            show_error(error, texts)
        else:
            _answer(texts, question, passage, found, caption)
    if context.choice is not None and context.choice.folder is None:
        show_missing_model(texts, "reader")


@st.cache_data(show_spinner=False)
def _examples() -> list[QuestionExample]:
    """Return questions on different passages of the embedded sample, an unanswerable one last."""
    examples = get_task("klue-mrc-sample").read_split("dev", SAMPLE_ROOT).examples
    answered: dict[str, QuestionExample] = {}
    for example in examples:
        if example.answers:
            answered.setdefault(example.context, example)
    unanswered = [example for example in examples if not example.answers]
    return [*list(answered.values())[: NUM_EXAMPLES - 1], *unanswered[:1]]


def _input(texts: Texts) -> None:
    with st.container(horizontal=True):
        for number, example in enumerate(_examples()):
            st.button(
                literal(one_line(example.question, 26)),
                key=f"example-{number}",
                icon=":material/help:",
                on_click=_take_example,
                args=(example.question, example.context),
            )
    with st.form("answers-form", border=False):
        st.text_area(
            texts("answers.passage"), key="answers-passage", height=200, placeholder=texts("answers.passage_hint")
        )
        st.text_input(texts("answers.question"), key="answers-question", placeholder=texts("answers.question_hint"))
        st.form_submit_button(texts("answers.go"), type="primary", icon=":material/search:", on_click=_take)


def _take_example(question: str, passage: str) -> None:
    st.session_state["answers-question"], st.session_state["answers-passage"] = question, passage
    _take()


def _take() -> None:
    def given() -> Given:
        passage = check_text(st.session_state["answers-passage"], MAX_PASSAGE, "error.no_passage")
        question = check_text(st.session_state["answers-question"], LONGEST_QUESTION, "error.no_question")
        return Given((question, passage), "text")

    take("answers", given)


def _caption(texts: Texts, reader: Reader | SentenceFinder, found: Found) -> str:
    """Return the confidence of the answer as a sentence."""
    if isinstance(reader, SentenceFinder):
        return texts("answers.by_letters", share=found.confidence)
    if reader.can_refuse:
        return texts("answers.confidence", share=found.confidence if found.is_answered else 1 - found.confidence)
    return texts("answers.never_refuses")


def _answer(texts: Texts, question: str, passage: str, found: Found, caption: str) -> None:
    asked = f'<p class="pb-quiet" lang="ko">{escaped(question)}</p>'
    if found.is_answered:
        shown = (
            f'<p class="pb-answer-text"><span class="pb-number">{texts("answers.a")}</span>{escaped(found.text)}</p>'
        )
        marks = [Mark(found.start, found.end, "answer", texts("answers.a"))]
    else:
        shown = f'<p class="pb-answer-text pb-none">{texts("answers.none")}</p>'
        marks = []
    st.html(f'<section class="pb-summary" lang="ko">{asked}{shown}</section>')
    st.caption(caption)
    st.html(paper(marked(passage, marks, texts("omitted"))))
