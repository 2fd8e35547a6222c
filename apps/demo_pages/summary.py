"""Page 기사 요약: the selected sentences, highlighted in the article, and why they were selected."""

import functools
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import streamlit as st

from apps.demo_pages.frame import (
    Given,
    PageContext,
    download,
    file_field,
    given_to,
    heading,
    run_job,
    show_error,
    show_missing_model,
    show_refusal,
    take,
)
from apps.demo_pages.inputs import MAX_ARTICLE, check_text, read_upload
from apps.demo_pages.marking import LONGEST_SHOWN, Mark, bars, escaped, literal, marked, one_line, paper
from apps.demo_pages.work import Progress
from apps.summarize import Item, read_items, to_line, to_record
from corpora.foundation.errors import SuiteError
from corpora.foundation.files import SAMPLE_ROOT
from corpora.foundation.texts import Texts
from downstream.summarize import Summarizer, Summary, SummarySentence

EXAMPLES = ("pol-01", "eco-01", "soc-01", "cul-01")
NUMBERS = "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳"
SHOWN_REASONS = 4
MAX_SENTENCES = 20
"""Sentences of a summary that is limited by characters."""
LONG = 200_000
"""Characters from which on an article is summarized in the background."""


def show(context: PageContext) -> None:
    """Draw the page."""
    texts = context.texts
    heading(texts, "summary")
    if context.choice is None:
        show_missing_model(texts, "summarizer")
        return
    options = _input(texts)
    show_refusal("summary", texts)
    given = given_to("summary")
    if given is None:
        return
    items: tuple[Item, ...] = given.records
    item = items[0]
    if len(items) > 1:
        position = st.selectbox(
            texts("summary.which", count=len(items)),
            range(len(items)),
            format_func=lambda k: f"{k + 1}. {one_line(items[k].title or items[k].text, 60)}",
            key="summary-which",
        )
        item = items[position]
    summary = _summarize(context, item, options)
    if summary is not None:
        _result(texts, item, summary)
    if len(items) > 1:
        _all(context, items, options)


# ---- inputs ----


def _input(texts: Texts) -> dict[str, Any]:
    """Show the inputs, and return the settings as arguments of `summarize`."""
    examples = _examples()
    with st.container(horizontal=True, key="summary-examples"):
        for id_ in EXAMPLES:
            item = examples[id_]
            st.button(
                literal(one_line(item.title, 22)),
                key=f"example-{id_}",
                icon=":material/article:",
                on_click=_take_example,
                args=(item,),
            )
    paste, settings = st.columns([3, 2], gap="large")
    with paste, st.form("summary-form", border=False):
        st.text_area(texts("summary.text"), key="summary-text", height=270, placeholder=texts("summary.placeholder"))
        st.text_input(texts("summary.headline"), key="summary-headline")
        st.form_submit_button(texts("summary.go"), type="primary", icon=":material/summarize:", on_click=_take_text)
    with settings:
        file_field(texts, "summary", functools.partial(read_upload, "articles"))
        return _options(texts)


@st.cache_data(show_spinner=False)
def _examples() -> dict[str, Item]:
    items = {item.id: item for item in read_items([str(SAMPLE_ROOT / "news.jsonl")])}
    return {id_: items[id_] for id_ in EXAMPLES}


def _take_example(item: Item) -> None:
    st.session_state["summary-text"], st.session_state["summary-headline"] = item.text, item.title
    take("summary", lambda: Given((Item("example", 1, item.id, item.text, item.title),), "example"))


def _take_text() -> None:
    headline = st.session_state["summary-headline"].strip()

    def given() -> Given:
        text = check_text(st.session_state["summary-text"], MAX_ARTICLE)
        return Given((Item("text", 1, "text", text, headline),), "text")

    take("summary", given)


def _options(texts: Texts) -> dict[str, Any]:
    by = st.segmented_control(
        texts("summary.length"),
        ("sentences", "ratio", "chars"),
        default="sentences",
        required=True,
        format_func=lambda name: texts(f"summary.by_{name}"),
        key="by",
        bind="query-params",
    )
    if by == "ratio":
        percent = st.slider(texts("summary.ratio"), 5, 50, 20, 5, "%d%%", key="ratio", bind="query-params")
        length: dict[str, Any] = {"ratio": percent / 100}
    elif by == "chars":
        limit = st.slider(texts("summary.chars"), 100, 1000, 300, 50, key="chars", bind="query-params")
        length = {"max_chars": limit, "sentences": MAX_SENTENCES}
    else:
        count = st.slider(texts("summary.sentences"), 1, 10, 3, key="sentences", bind="query-params")
        length = {"sentences": count}
    focus = st.text_input(
        texts("summary.focus"),
        key="focus",
        bind="query-params",
        max_chars=60,
        placeholder=texts("summary.focus_hint"),
        help=texts("summary.focus_help"),
    )
    return length | {"focus": focus.strip()}


# ---- results ----


def _summarize(context: PageContext, item: Item, options: Mapping[str, Any]) -> Summary | None:
    def summarize(lend: AbstractContextManager[Summarizer]) -> Summary:
        with lend as summarizer:
            return summarizer.summarize(item.text, title=item.title, explain=True, **options)

    def work(progress: Progress) -> Summary:
        progress("read")
        return summarize(context.borrow())

    if len(item.text) >= LONG:
        return run_job(context.texts, "summary", (context.choice, item, tuple(sorted(options.items()))), work)
    try:
        return summarize(context.model())
    except SuiteError as error:
        show_error(error, context.texts)
        return None


def _result(texts: Texts, item: Item, summary: Summary) -> None:
    if not summary.sentences:
        st.warning(texts("summary.nothing"), icon=":material/info:")
        return
    shown = "".join(
        f'<li><span class="pb-number">{_number(k)}</span>{escaped(sentence.text)}</li>'
        for k, sentence in enumerate(summary.sentences)
    )
    st.html(f'<section class="pb-summary" lang="ko"><h3>{texts("summary.result")}</h3><ol>{shown}</ol></section>')
    share = sum(sentence.end - sentence.start for sentence in summary.sentences) / max(1, len(item.text))
    st.caption(
        texts(
            "summary.facts",
            chosen=len(summary.sentences),
            total=len(summary.candidates),
            chars=len(str(summary)),
            share=share,
        )
    )

    def as_json() -> bytes:
        return json.dumps(to_record(item, summary), ensure_ascii=False, indent=1).encode("utf-8", "replace")

    with st.container(horizontal=True):
        download(texts("download.txt"), str(summary) + "\n", "summary.txt")
        download(texts("download.json"), as_json, "summary.json")
    with st.expander(texts("summary.copy"), icon=":material/content_copy:"), st.container(key="summary-copy"):
        st.code(str(summary).encode("utf-8", "replace").decode("utf-8"), language=None, wrap_lines=True)
    article, why = st.columns([3, 2], gap="large")
    with article:
        st.subheader(texts("summary.article"), anchor=False)
        marks = _chosen_marks(texts, summary)
        is_whole = len(item.text) <= LONGEST_SHOWN
        if is_whole:
            marks += _excluded_marks(texts, summary)
        st.html(paper(marked(item.text, marks, texts("omitted")), title=item.title))
        if is_whole and summary.excluded:
            st.caption(texts("summary.excluded"))
    with why:
        st.subheader(texts("summary.why"), anchor=False)
        for k, sentence in enumerate(summary.sentences):
            st.html(_reasons(texts, k, sentence))
        st.caption(texts("summary.why_note"))


def _number(position: int) -> str:
    return NUMBERS[position] if position < len(NUMBERS) else f"({position + 1})"


def _chosen_marks(texts: Texts, summary: Summary) -> list[Mark]:
    return [
        Mark(s.start, s.end, "chosen", _number(k), hint=texts("summary.chosen_hint", number=k + 1, score=s.score))
        for k, s in enumerate(summary.sentences)
    ]


def _excluded_marks(texts: Texts, summary: Summary) -> list[Mark]:
    return [
        Mark(part.start, part.end, "excluded", hint=texts("summary.excluded_hint", kind=texts(f"part.{part.kind}")))
        for part in summary.excluded
        if part.end > part.start
    ]


def _reasons(texts: Texts, position: int, sentence: SummarySentence) -> str:
    """Return the parts of a sentence's score as HTML, the largest first."""
    parts = {name: value for name, value in sentence.components.items() if name != "bias" and abs(value) >= 0.005}
    largest = sorted(parts, key=lambda name: -abs(parts[name]))[:SHOWN_REASONS]
    rows = [(texts(f"feature.{name}"), parts[name], f"{parts[name]:+.2f}") for name in largest]
    head = f'<span class="pb-number">{_number(position)}</span>{escaped(one_line(sentence.text, 44))}'
    score = texts("summary.score", score=sentence.score)
    return (
        f'<div class="pb-reason" lang="ko"><p>{head}</p><p class="pb-quiet">{score}</p>'
        f"{bars(rows, max([1.0, *(abs(value) for value in parts.values())]))}</div>"
    )


def _all(context: PageContext, items: tuple[Item, ...], options: Mapping[str, Any]) -> None:
    """Offer the summaries of all articles of a file."""
    texts = context.texts
    asked = (context.choice, items, tuple(sorted(options.items())))
    if st.session_state.get("summary-all") != asked and not st.button(
        texts("summary.all", count=len(items)), icon=":material/playlist_add_check:"
    ):
        return
    st.session_state["summary-all"] = asked

    def work(progress: Progress) -> bytes:
        lines = []
        with context.borrow() as summarizer:
            for number, item in enumerate(items):
                progress("summarize", number, len(items))
                summary = summarizer.summarize(item.text, title=item.title, **options)
                lines.append(to_line(to_record(item, summary)))
        return "".join(lines).encode("utf-8")

    found = run_job(texts, "summaries", asked, work)
    if found is not None:
        download(texts("summary.download_all", count=len(items)), found, "summaries.jsonl", type="primary")
