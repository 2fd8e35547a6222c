"""Page 댓글 관리: is a comment hateful or offensive, which words carry it, and how it could be softened."""

import csv
import functools
import io

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
    show_refusal,
    take,
)
from apps.demo_pages.inputs import MAX_COMMENT, check_text, read_upload
from apps.demo_pages.marking import Mark, bars, escaped, literal, marked, one_line, paper
from apps.demo_pages.work import Progress
from corpora.foundation.errors import SuiteError
from corpora.foundation.texts import Texts, spreadsheet_text
from downstream.moderate.model import Moderation, Moderator, WordSpan, bundled_moderator
from downstream.moderate.softening import Softened, soften_with

EXAMPLES = ("moderation.example_1", "moderation.example_2", "moderation.example_3")
SHOWN_ROWS = 200
BLOCK = 32


def show(context: PageContext) -> None:
    """Draw the page."""
    texts = context.texts
    heading(texts, "moderation")
    try:
        moderator = bundled_moderator()
    except SuiteError as error:
        show_error(error, texts)
        return
    values = [float(key) for key in moderator.settings.thresholds]
    precision = st.select_slider(
        texts("moderation.precision"),
        values,
        value=min(values, key=lambda value: abs(value - 0.8)),
        format_func=lambda value: f"{value:.0%}",
        help=texts("moderation.precision_help"),
        key="moderation-precision",
    )
    one, many = st.tabs([texts("moderation.one"), texts("moderation.many")])
    with one:
        _one(texts, moderator, precision)
    with many:
        _many(texts, moderator, precision)


def _one(texts: Texts, moderator: Moderator, precision: float) -> None:
    with st.container(horizontal=True):
        for key in EXAMPLES:
            text = texts(key)
            st.button(literal(one_line(text, 24)), key=f"example-{key}", on_click=_take, args=(text,))
    with st.form("moderation-form", border=False):
        st.text_area(texts("moderation.text"), key="moderation-text", height=100)
        st.text_input(texts("moderation.headline"), key="moderation-headline")
        st.form_submit_button(texts("moderation.go"), type="primary", icon=":material/shield:", on_click=_take)
    show_refusal("moderation-one", texts)
    given = given_to("moderation-one")
    if given is None:
        return
    text, headline = given.records
    found = moderator.moderate(text, headline or None, precision=precision)
    _verdict(texts, found)
    rows = [(texts.get(f"label.{name}", name), value, f"{value:.0%}") for name, value in found.probabilities.items()]
    st.html(bars(rows, 1.0))
    st.html(paper(marked(text, marks_of(found.spans))))
    st.caption(texts("moderation.spans_note"))
    if found.is_flagged:
        st.subheader(texts("moderation.softened"), anchor=False)
        for each in soften_with(moderator, text, headline or None, precision=precision):
            _proposal(texts, each)
        st.caption(texts("moderation.advice"))


def _take(text: str | None = None) -> None:
    if text is not None:
        st.session_state["moderation-text"] = text
        st.session_state["moderation-headline"] = ""

    def given() -> Given:
        comment = check_text(st.session_state["moderation-text"], MAX_COMMENT)
        return Given((comment, st.session_state.get("moderation-headline", "")), "text")

    take("moderation-one", given)


def marks_of(spans: tuple[WordSpan, ...]) -> list[Mark]:
    """Return the words that carry a score as marks, the heavier the stronger."""
    heaviest = max((span.weight for span in spans), default=1.0)
    return [
        Mark(span.start, span.end, "against", strength=span.weight / heaviest, hint=f"{span.weight:.2f}")
        for span in spans
    ]


def _verdict(texts: Texts, found: Moderation) -> None:
    values = {
        "label": texts.get(f"label.{found.label}", found.label),
        "score": found.score,
        "threshold": found.threshold,
        "precision": found.precision,
    }
    if found.is_flagged:
        st.warning(texts("moderation.flagged", **values), icon=":material/flag:")
    else:
        st.success(texts("moderation.passed", **values), icon=":material/check:")


def _proposal(texts: Texts, each: Softened) -> None:
    state = texts("moderation.below" if each.is_below else "moderation.above", score=each.score, kept=each.kept)
    title = texts(f"moderation.manner_{each.manner}")
    st.html(paper(f'{escaped(each.text)}<p class="pb-quiet">{escaped(state)}</p>', title=title))


def _many(texts: Texts, moderator: Moderator, precision: float) -> None:
    file_field(texts, "moderation", functools.partial(read_upload, "comments"))
    show_refusal("moderation", texts)
    given = given_to("moderation")
    if given is None:
        return
    comments: tuple[str, ...] = given.records

    def work(progress: Progress) -> list[tuple[float, str]]:
        rows: list[tuple[float, str]] = []
        for first in range(0, len(comments), BLOCK):
            progress("classify", first, len(comments))
            block = comments[first : first + BLOCK]
            shares = moderator.probabilities(block)
            labels = [moderator.labels[int(row.argmax())] for row in shares]
            rows += zip(map(float, moderator.scores(shares)), labels, strict=True)
        return rows

    rows = run_job(texts, "moderate", id(given), work)
    if rows is None:
        return
    threshold = moderator.threshold(precision)
    order = sorted(range(len(rows)), key=lambda k: -rows[k][0])
    flagged = [k for k in order if rows[k][0] >= threshold]
    st.metric(texts("moderation.num_flagged"), f"{len(flagged):,} / {len(rows):,}")
    shown = [
        {
            texts("moderation.score"): round(rows[k][0], 3),
            texts("moderation.label"): texts.get(f"label.{rows[k][1]}", rows[k][1]),
            texts("moderation.text"): one_line(comments[k], 200),
        }
        for k in order[:SHOWN_ROWS]
    ]
    st.dataframe(shown, hide_index=True)
    download(texts("moderation.download"), to_csv(comments, rows, threshold), "moderated.csv")


def to_csv(comments: tuple[str, ...], rows: list[tuple[float, str]], threshold: float) -> str:
    """Return scores, labels and flags as a table for a spreadsheet, in the order of the file."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["score", "label", "is_flagged", "text"])
    for comment, (score, label) in zip(comments, rows, strict=True):
        writer.writerow([f"{score:.4f}", label, score >= threshold, spreadsheet_text(comment)])
    return "\ufeff" + out.getvalue()
