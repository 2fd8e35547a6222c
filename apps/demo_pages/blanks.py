"""Page 빈칸 채우기: the encoder's predictions for the blanks of a sentence, with probabilities."""

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
from apps.demo_pages.inputs import MAX_BLANKS, check_text
from apps.demo_pages.marking import Mark, bars, literal, marked, one_line, paper
from corpora.characters import nfc
from corpora.foundation.errors import SuiteError
from corpora.foundation.texts import Texts
from downstream.fill_mask import Blank, filled

EXAMPLES = ("blanks.example_1", "blanks.example_2", "blanks.example_3")
SHOWN_FILLED = 3


def show(context: PageContext) -> None:
    """Draw the page."""
    texts = context.texts
    heading(texts, "blanks")
    if context.choice is None:
        show_missing_model(texts, "encoder")
        return
    with st.container(horizontal=True):
        for key in EXAMPLES:
            text = texts(key)
            st.button(
                literal(one_line(text, 26).replace("[MASK]", "□")),
                key=f"example-{key}",
                icon=":material/edit_note:",
                on_click=_take,
                args=(text,),
            )
    with st.form("blanks-form", border=False):
        st.text_area(texts("blanks.text"), key="blanks-text", height=90, placeholder=texts("blanks.placeholder"))
        st.form_submit_button(texts("blanks.go"), type="primary", icon=":material/edit_note:", on_click=_take)
    count = st.slider(texts("blanks.count"), 3, 20, 8, key="candidates", bind="query-params")
    show_refusal("blanks", texts)
    given = given_to("blanks")
    if given is None:
        return
    [text] = given.records
    try:
        with context.model() as filler:
            blanks: tuple[Blank, ...] = filler.fill(text, count)
    except (SuiteError, ValueError) as error:
        show_error(error, texts)
        return
    for number, blank in enumerate(blanks, start=1):
        _blank(texts, nfc(text), number, blank)
    st.caption(texts("blanks.note"))


def _take(text: str | None = None) -> None:
    if text is not None:
        st.session_state["blanks-text"] = text
    take("blanks", lambda: Given((check_text(st.session_state["blanks-text"], MAX_BLANKS),), "text"))


def _blank(texts: Texts, text: str, number: int, blank: Blank) -> None:
    st.subheader(texts("blanks.blank", number=number), anchor=False)
    bars_column, sentences = st.columns([2, 3], gap="large")
    with bars_column:
        rows = [
            (f"…{c.text}" if c.is_continuation else c.text, c.probability, f"{c.probability:.1%}")
            for c in blank.candidates
        ]
        st.html(bars(rows, max((value for _, value, _ in rows), default=1.0)))
    with sentences:
        lines = []
        for candidate in blank.candidates[:SHOWN_FILLED]:
            whole, start, end = filled(text, blank, candidate)
            lines.append(f"<p>{marked(whole, [Mark(start, end, 'filled')])}</p>")
        st.html(paper("".join(lines)))
