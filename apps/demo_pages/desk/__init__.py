"""Page 편집 데스크: a draft, and what every tool says of it; corrections are accepted one by one and can be undone."""

import functools
from collections.abc import Iterable
from pathlib import Path

import streamlit as st

from apps.demo_pages.frame import (
    Given,
    PageContext,
    download,
    file_field,
    given_to,
    heading,
    model_folders,
    run_job,
    show_refusal,
    take,
)
from apps.demo_pages.inputs import MAX_PASSAGE, check_text, read_upload
from apps.demo_pages.marking import Mark, escaped, literal, marked, one_line, paper, table
from apps.desk.changes import Change, changes
from apps.desk.checkers import CHECKERS, Correction, accept
from apps.desk.draft import Earlier, Examined, examine
from apps.desk.export import to_html, to_text
from corpora.foundation.texts import Texts
from downstream.headlines.settings import SETTINGS_FILE
from downstream.headlines.writer import HeadlineWriter
from downstream.signals.finding import Findings

SHOWN_CORRECTIONS = 40
DRAFT, TITLE, HISTORY = "desk-text", "desk-title", "desk-history"


def show(context: PageContext) -> None:
    """Draw the page."""
    texts = context.texts
    heading(texts, "desk")
    draft, update = st.tabs([texts("desk.draft"), texts("desk.update")])
    with draft:
        _draft(texts)
    with update:
        _update(texts)


def _draft(texts: Texts) -> None:
    left, right = st.columns([3, 2], gap="large")
    with left:
        with st.form("desk-form", border=False):
            st.text_input(texts("desk.headline"), key=TITLE)
            st.text_area(texts("desk.text"), key=DRAFT, height=320)
            st.form_submit_button(texts("desk.go"), type="primary", icon=":material/fact_check:", on_click=_take)
        with st.container(horizontal=True):
            st.button(texts("desk.example"), on_click=_take_example, args=(texts,), icon=":material/article:")
            st.button(
                texts("desk.undo"),
                key="desk-undo",
                on_click=_undo,
                disabled=not st.session_state.get(HISTORY),
                icon=":material/undo:",
            )
        with st.expander(texts("desk.archive"), icon=":material/inventory_2:"):
            file_field(texts, "desk", functools.partial(read_upload, "titles"))
            show_refusal("desk", texts)
        writer = _choose_writer(texts)
        show_refusal("desk-draft", texts)
    given = given_to("desk-draft")
    if given is None:
        return
    title, text = given.records
    stored = given_to("desk")
    archive = [Earlier(a.title, a.text) for a in stored.records] if stored else []
    job = (title, text, id(stored), writer)
    found = run_job(
        texts, "desk", job, lambda _: examine(text, title, archive, writer=load_writer(writer) if writer else None)
    )
    if found is None:
        return
    with left:
        st.html(paper(marked(text, marks_of(texts, found.corrections), texts("omitted"))))
    with right:
        _corrections(texts, found)
        _beside(texts, found, has_archive=bool(archive))
    with left, st.container(horizontal=True):
        download(texts("desk.as_text"), to_text(found, texts), "desk.txt")
        download(texts("desk.as_html"), to_html(found, texts), "desk.html")


def _choose_writer(texts: Texts) -> str:
    """Show the choice of a model that writes headlines, if there is one; returns its folder or nothing."""
    found = writers_in(model_folders())
    if not found:
        return ""
    own = texts("desk.bundled_writer")
    return str(st.selectbox(texts("desk.writer"), ["", *map(str, found)], format_func=lambda f: Path(f).name or own))


def writers_in(folders: Iterable[Path]) -> list[Path]:
    """Return the folders that are models of `python -m downstream.headline train`, or lie in the given ones."""
    inside = (path for folder in folders if folder.is_dir() for path in (folder, *sorted(folder.iterdir())))
    return list(dict.fromkeys(path for path in inside if (path / SETTINGS_FILE).is_file()))


@functools.lru_cache(maxsize=1)
def load_writer(folder: str) -> HeadlineWriter:
    """Load a model that writes headlines; the last one stays in memory."""
    return HeadlineWriter.load(folder)


def _take() -> None:
    st.session_state[HISTORY] = []
    _store()


def _store() -> None:
    def given() -> Given:
        text = check_text(st.session_state[DRAFT], MAX_PASSAGE)
        return Given((st.session_state[TITLE], text), "text")

    take("desk-draft", given)


def _take_example(texts: Texts) -> None:
    st.session_state[TITLE], st.session_state[DRAFT] = texts("desk.example_headline"), texts("desk.example_text")
    _take()


def _accept(correction: Correction, suggestion: int) -> None:
    """Make a correction in the draft that was examined, and keep the draft for undoing."""
    given = given_to("desk-draft")
    if given is not None:
        _, text = given.records
        st.session_state.setdefault(HISTORY, []).append(text)
        st.session_state[DRAFT] = accept(text, correction, suggestion)
        _store()


def _undo() -> None:
    if st.session_state.get(HISTORY):
        st.session_state[DRAFT] = st.session_state[HISTORY].pop()
        _store()


def marks_of(texts: Texts, corrections: tuple[Correction, ...]) -> list[Mark]:
    """Return corrections as numbered marks."""
    return [
        Mark(c.start, c.end, "against", str(number), strength=c.confidence, hint=_reason(texts, c))
        for number, c in enumerate(corrections[:SHOWN_CORRECTIONS], start=1)
    ]


def _reason(texts: Texts, correction: Correction) -> str:
    kind = texts.get(f"correction.{correction.kind}", correction.kind)
    return f"{kind}: {correction.reason}" if correction.reason else kind


def _corrections(texts: Texts, found: Examined) -> None:
    st.subheader(texts("desk.corrections"), anchor=False)
    if not any(checker.is_installed for checker in CHECKERS):
        st.caption(texts("desk.no_checkers"))
    elif not found.corrections:
        st.caption(texts("desk.no_corrections"))
    for number, each in enumerate(found.corrections[:SHOWN_CORRECTIONS], start=1):
        st.html(
            f'<p class="pb-reason"><span class="pb-number">{number}</span>{escaped(one_line(each.text))} '
            f"<small>{escaped(_reason(texts, each))}</small></p>"
        )
        with st.container(horizontal=True):
            for k, suggestion in enumerate(each.suggestions[:3]):
                label = texts("desk.accept", text=one_line(suggestion, 30) or "∅")
                key = f"accept-{each.start}-{k}-{number}"
                st.button(literal(label), key=key, on_click=_accept, args=(each, k))
    if len(found.corrections) > SHOWN_CORRECTIONS:
        st.caption(texts("desk.more", count=len(found.corrections) - SHOWN_CORRECTIONS))


def _beside(texts: Texts, found: Examined, *, has_archive: bool) -> None:
    named = (
        ("bullets", [part.text for part in found.bullets]),
        ("headlines", [*found.written_headlines, *(part.text for part in found.headlines)]),
        ("summary", [part.text for part in found.summary]),
    )
    for name, lines in named:
        st.subheader(texts(f"desk.{name}"), anchor=False)
        items = "".join(f"<li>{escaped(' '.join(line.split()))}</li>" for line in lines)
        st.html(f'<ul class="pb-notes">{items}</ul>' if items else f'<p class="pb-quiet">{texts("desk.nothing")}</p>')
    st.subheader(texts("desk.signals"), anchor=False)
    rows = [
        f"<li>{escaped(texts(f'signals.{tool}'))}: {escaped(line)}</li>"
        for tool, findings in found.signals.items()
        if (line := signal_line(texts, findings))
    ]
    st.html(
        f'<ul class="pb-notes">{"".join(rows)}</ul>' if rows else f'<p class="pb-quiet">{texts("desk.nothing")}</p>'
    )
    st.subheader(texts("desk.similar"), anchor=False)
    if not has_archive:
        st.caption(texts("desk.no_archive"))
    for each in found.similar:
        copy = f" · {texts('desk.copy')}" if each.is_copy else ""
        st.text(f"{one_line(each.title)} ({each.similarity:.2f}){copy}")


def signal_line(texts: Texts, findings: Findings) -> str:
    """Return the kinds of signals with their numbers in one line."""
    counts: dict[str, int] = {}
    for signal in findings.signals:
        counts[signal.kind] = counts.get(signal.kind, 0) + 1
    return ", ".join(f"{texts.get(f'signal.{kind}', kind)} {number}" for kind, number in counts.items())


# ---- what an update changed ----


def _update(texts: Texts) -> None:
    with st.form("changes-form", border=False):
        old, new = st.columns(2)
        old.text_area(texts("desk.old"), key="desk-old", height=260)
        new.text_area(texts("desk.new"), key="desk-new", height=260)
        st.form_submit_button(texts("desk.compare"), type="primary", icon=":material/difference:", on_click=_compare)
    show_refusal("desk-update", texts)
    given = given_to("desk-update")
    if given is None:
        return
    before, after = given.records
    found = run_job(texts, "changes", (before, after), lambda _: changes(before, after))
    if found is None:
        return
    if not found:
        st.success(texts("desk.unchanged"), icon=":material/check:")
    st.html(changes_html(texts, found))


def _compare() -> None:
    def given() -> Given:
        texts = (st.session_state["desk-old"], st.session_state["desk-new"])
        return Given(tuple(check_text(text, MAX_PASSAGE) for text in texts), "text")

    take("desk-update", given)


def changes_html(texts: Texts, found: list[Change]) -> str:
    """Return changes as a table."""
    headings = [texts(f"desk.{name}") for name in ("kind", "old", "new")]
    rows = [(texts(f"desk.change_{each.kind}"), each.old_text or "–", each.new_text or "–") for each in found]
    return table(headings, rows) if rows else ""
