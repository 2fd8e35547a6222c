"""Page 교열: errors in a text with suggestions, awkward wording, and completions of what is being written."""

import streamlit as st

from apps.demo_pages.frame import Given, PageContext, given_to, heading, show_refusal, take
from apps.demo_pages.inputs import MAX_PASSAGE, check_text
from apps.demo_pages.marking import Mark, literal, marked, one_line, paper, table
from corpora.foundation.texts import Texts
from downstream.awkward import awkward
from downstream.complete import complete
from downstream.proofread import KINDS, Correction, apply, proofread

EXAMPLES = ("writing.example_1", "writing.example_2")


def show(context: PageContext) -> None:
    """Draw the page."""
    texts = context.texts
    heading(texts, "writing")
    with st.container(horizontal=True):
        for key in EXAMPLES:
            st.button(
                literal(one_line(texts(key), 26)),
                key=f"example-{key}",
                icon=":material/spellcheck:",
                on_click=_take,
                args=(texts(key),),
            )
    with st.form("writing-form", border=False):
        st.text_area(texts("writing.text"), key="writing-text", height=200, placeholder=texts("writing.placeholder"))
        st.form_submit_button(texts("writing.go"), type="primary", icon=":material/spellcheck:", on_click=_take)
    kinds = st.pills(
        texts("writing.kinds"),
        KINDS,
        selection_mode="multi",
        default=[kind for kind in KINDS if kind != "style"],
        format_func=lambda kind: texts(f"writing.kind_{kind}"),
        key="writing-kinds",
    )
    quotations = st.toggle(texts("writing.quotations"), key="writing-quotations")
    show_refusal("writing", texts)
    if given := given_to("writing"):
        [text] = given.records
        with st.spinner(texts("writing.busy")):
            found = proofread(text, only=kinds, quotations=quotations)
        _show_found(texts, text, found)
        _show_awkward(texts, text, quotations=quotations)
    _completion(texts)


def _take(text: str | None = None) -> None:
    if text is not None:
        st.session_state["writing-text"] = text
    take("writing", lambda: Given((check_text(st.session_state["writing-text"], MAX_PASSAGE),), "text"))


def _show_found(texts: Texts, text: str, found: list[Correction]) -> None:
    if not found:
        st.success(texts("writing.none"), icon=":material/check:")
        return
    st.caption(texts("writing.count", count=len(found)))
    before, after = st.columns(2, gap="large")
    with before:
        marks = [
            Mark(one.start, one.end, "filled", str(number), hint=f"{one.suggestions[0]}: {one.reason}")
            for number, one in enumerate(found, start=1)
        ]
        st.html(paper(marked(text, marks), title=texts("writing.before")))
    with after:
        st.html(paper(marked(apply(text, found), []), title=texts("writing.after")))
    headings = [texts(f"writing.{name}") for name in ("word", "suggestion", "reason")]
    rows = [
        (
            f"{number} {one_line(one.text)}",
            " / ".join(one.suggestions),
            f"{texts(f'writing.kind_{one.kind}')}: {one.reason} ({texts('writing.confidence')} {one.confidence:.2f})",
        )
        for number, one in enumerate(found, start=1)
    ]
    st.html(table(headings, rows))
    st.caption(texts("writing.note"))


def _show_awkward(texts: Texts, text: str, *, quotations: bool) -> None:
    st.subheader(texts("writing.awkward"), anchor=False)
    found = awkward(text, quotations=quotations)
    if not found:
        st.caption(texts("writing.no_awkward"))
        return
    headings = [texts(f"writing.{name}") for name in ("word", "kind", "reason")]
    rows = [(one_line(one.text), texts(f"writing.kind_{one.kind}"), one.reason) for one in found]
    st.html(table(headings, rows))


def _completion(texts: Texts) -> None:
    st.subheader(texts("writing.completion"), anchor=False)
    written = st.text_input(
        texts("writing.completion_text"), key="completion-text", placeholder=texts("writing.completion_placeholder")
    )
    if not written.strip():
        return
    with st.container(horizontal=True):
        for number, one in enumerate(complete(written), start=1):
            st.button(
                literal(one_line(one.text, 30)),
                key=f"completion-{number}",
                icon=":material/add:",
                on_click=_append,
                args=(one.text,),
            )
    st.caption(texts("writing.completion_note"))


def _append(text: str) -> None:
    st.session_state["completion-text"] += f"{text} "
