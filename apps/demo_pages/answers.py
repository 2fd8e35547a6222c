"""Page 질문과 답: an answer marked in its passage, or that there is none; without a model, the likeliest sentence."""

import streamlit as st

from apps.demo_pages.frame import Desk, Given, given_to, heading, missing_model, take, tell, tell_refusal
from apps.demo_pages.inputs import MAX_PASSAGE, check_text
from apps.demo_pages.marking import Mark, escaped, literal, marked, one_line, paper
from apps.demo_pages.texts import Say
from corpora.foundation.errors import SuiteError
from downstream.answer import Found, Reader, SentenceFinder
from downstream.task import SAMPLE_ROOT, QuestionExample, get_task

NUM_EXAMPLES = 3
LONGEST_QUESTION = 300


def show(desk: Desk) -> None:
    """Draw the page."""
    say = desk.say
    heading(say, "answers")
    _input(say)
    tell_refusal("answers", say)
    if given := given_to("answers"):
        question, passage = given.records
        try:
            with desk.model() as reader:
                found: Found = reader.answer(question, passage)
                caption = _caption(say, reader, found)
        except (SuiteError, ValueError) as error:
            tell(error, say)
        else:
            _answer(say, question, passage, found, caption)
    if desk.choice is not None and desk.choice.folder is None:
        missing_model(say, "reader")


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


def _input(say: Say) -> None:
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
        st.text_area(say("answers.passage"), key="answers-passage", height=200, placeholder=say("answers.passage_hint"))
        st.text_input(say("answers.question"), key="answers-question", placeholder=say("answers.question_hint"))
        st.form_submit_button(say("answers.go"), type="primary", icon=":material/search:", on_click=_take)


def _take_example(question: str, passage: str) -> None:
    st.session_state["answers-question"], st.session_state["answers-passage"] = question, passage
    _take()


def _take() -> None:
    def given() -> Given:
        passage = check_text(st.session_state["answers-passage"], MAX_PASSAGE, "error.no_passage")
        question = check_text(st.session_state["answers-question"], LONGEST_QUESTION, "error.no_question")
        return Given((question, passage), "text")

    take("answers", given)


def _caption(say: Say, reader: Reader | SentenceFinder, found: Found) -> str:
    """Return how far the answer is to be trusted."""
    if isinstance(reader, SentenceFinder):
        return say("answers.by_letters", share=found.confidence)
    if reader.can_refuse:
        return say("answers.confidence", share=found.confidence if found.is_answered else 1 - found.confidence)
    return say("answers.never_refuses")


def _answer(say: Say, question: str, passage: str, found: Found, caption: str) -> None:
    asked = f'<p class="pb-quiet" lang="ko">{escaped(question)}</p>'
    if found.is_answered:
        shown = f'<p class="pb-answer-text"><span class="pb-number">{say("answers.a")}</span>{escaped(found.text)}</p>'
        marks = [Mark(found.start, found.end, "answer", say("answers.a"))]
    else:
        shown = f'<p class="pb-answer-text pb-none">{say("answers.none")}</p>'
        marks = []
    st.html(f'<section class="pb-summary" lang="ko">{asked}{shown}</section>')
    st.caption(caption)
    st.html(paper(marked(passage, marks, say("omitted"))))
