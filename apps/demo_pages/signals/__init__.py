"""Page 기사 신호: signals of stance, advertising and clickbait, marked in the article, and what they mean."""

import streamlit as st

from apps.demo_pages.frame import Given, PageContext, given_to, heading, show_refusal, take
from apps.demo_pages.inputs import MAX_PASSAGE, check_text
from apps.demo_pages.marking import Mark, escaped, marked, paper
from corpora.foundation.texts import Texts
from downstream.advertorial import advertorial
from downstream.clickbait import clickbait
from downstream.signals.finding import Findings, Part, Signal
from downstream.stance import stance

TOOLS = ("stance", "advertorial", "clickbait")


def show(context: PageContext) -> None:
    """Draw the page."""
    texts = context.texts
    heading(texts, "signals")
    st.info(texts("signals.no_claim"), icon=":material/info:")
    with st.form("signals-form", border=False):
        st.text_input(texts("signals.headline"), key="signals-headline")
        st.text_area(texts("signals.text"), key="signals-text", height=220)
        st.form_submit_button(texts("signals.go"), type="primary", icon=":material/search:", on_click=_take)
    st.button(texts("signals.example"), on_click=_take_example, args=(texts,), icon=":material/article:")
    show_refusal("signals", texts)
    if given := given_to("signals"):
        headline, text = given.records
        found = {
            "stance": stance(text, headline),
            "advertorial": advertorial(text, headline),
            "clickbait": clickbait(headline or text.partition("\n")[0], text),
        }
        for tab, tool in zip(st.tabs([texts(f"signals.{tool}") for tool in TOOLS]), TOOLS, strict=True):
            with tab:
                _tool(texts, found[tool], headline or text.partition("\n")[0], text)
    with st.expander(texts("signals.meaning"), icon=":material/menu_book:"):
        st.markdown(texts("signals.explanation"))


def _take() -> None:
    def given() -> Given:
        text = check_text(st.session_state["signals-text"], MAX_PASSAGE)
        return Given((st.session_state["signals-headline"], text), "text")

    take("signals", given)


def _take_example(texts: Texts) -> None:
    st.session_state["signals-headline"] = texts("signals.example_headline")
    st.session_state["signals-text"] = texts("signals.example_text")
    _take()


def _tool(texts: Texts, found: Findings, headline: str, text: str) -> None:
    if not found.signals:
        st.caption(texts("signals.none"))
    parts: tuple[tuple[Part, str], ...] = (("title", headline), ("text", text))
    for part, content in parts:
        marks = marks_of(texts, [signal for signal in found.signals if signal.part == part])
        if marks:
            st.html(paper(marked(content, marks, texts("omitted"))))
    rows = "".join(
        f"<li>{escaped(texts.get(f'measure.{name}', name))}: {value:.2f}</li>" for name, value in found.measures.items()
    )
    st.html(f'<ul class="pb-notes">{rows}</ul>')


def marks_of(texts: Texts, signals: list[Signal]) -> list[Mark]:
    """Return signals as marks that do not overlap; of two that do, the first stays."""
    marks: list[Mark] = []
    for signal in sorted(signals, key=lambda s: (s.start, -s.end)):
        if not marks or signal.start >= marks[-1].end:
            name = texts.get(f"signal.{signal.kind}", signal.kind)
            hint = " · ".join(filter(None, (name, signal.detail)))
            marks.append(Mark(signal.start, signal.end, "chosen", name, hint=hint))
    return marks
