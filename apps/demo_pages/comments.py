"""Page 댓글·감성 분석: labels with probabilities, precision and recall of a threshold, and influential words."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from apps.demo_pages.comment_models import default_label, on_news, what_it_read
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
from apps.demo_pages.inputs import MAX_COMMENT, ReadFile, check_text, read_upload
from apps.demo_pages.marking import Mark, bars, literal, marked, one_line, paper
from apps.demo_pages.work import Progress
from corpora.foundation.errors import SuiteError
from corpora.foundation.files import SAMPLE_ROOT
from corpora.foundation.texts import Texts, spreadsheet_text
from corpora.official import data_root
from downstream.classify import Classifier
from downstream.encoders.folder import ModelFolder
from downstream.task import Task, get_task
from downstream.thresholds import ThresholdPoint, threshold_points, wilson95

BLOCK = 64
"""Comments between two checks for cancellation."""
NUM_MEASURED = 1_000
"""Examples of an evaluation set that are measured, from its beginning."""
SHOWN_ROWS = 500
EXAMPLES = ("comments.example_1", "comments.example_2", "comments.example_3")
THRESHOLDS = tuple(k / 100 for k in range(5, 100, 5))


@dataclass(frozen=True)
class Measured:
    """Scores of labelled examples."""

    labels: tuple[str, ...]
    probabilities: NDArray[np.float64]
    """(N, C)"""
    golds: tuple[str, ...]

    def points(self, label: str, thresholds: Sequence[float]) -> list[ThresholdPoint]:
        """Return precision and recall of thresholds on a label's probability."""
        scores = self.probabilities[:, self.labels.index(label)]
        return threshold_points(scores.tolist(), [gold == label for gold in self.golds], thresholds)


def show(context: PageContext) -> None:
    """Draw the page."""
    texts = context.texts
    heading(texts, "comments")
    if context.choice is None:
        show_missing_model(texts, "classifier")
        return
    try:
        with context.model() as classifier:
            labels, task = classifier.labels, classifier.predictor.finetuned.task
    except SuiteError as error:
        show_error(error, texts)
        return
    label, threshold = _settings(texts, labels, default_label(task, labels))
    _on_news(context, task, label, threshold)
    _cost(context, task, label, threshold)
    st.divider()
    single, batch = texts("comments.single"), texts("comments.batch")
    mode = st.segmented_control(
        texts("comments.mode"),
        (single, batch),
        default=single,
        required=True,
        key="mode",
        bind="query-params",
        label_visibility="collapsed",
    )
    if mode == batch:
        _batch(context, label, threshold)
    else:
        _single(context, label, threshold)


def label_name(texts: Texts, label: str) -> str:
    """Return a label in the visitor's language; unknown labels are unchanged."""
    return texts.get(f"label.{label}", label)


def _settings(texts: Texts, labels: Sequence[str], default: str) -> tuple[str, float]:
    which, where = st.columns([2, 3], gap="large")
    with which:
        label = st.selectbox(
            texts("comments.label"),
            labels,
            index=labels.index(default),
            format_func=partial(label_name, texts),
            key="label",
            bind="query-params",
            help=texts("comments.label_help"),
        )
    with where:
        threshold = st.slider(texts("comments.threshold"), 0.05, 0.95, 0.5, 0.05, key="threshold", bind="query-params")
    return label, threshold


# ---- precision and recall of a threshold ----


def _on_news(context: PageContext, task: Task, label: str, threshold: float) -> None:
    """Show what the model has read, and how well it finds hateful and offensive comments on news."""
    texts = context.texts
    assert context.choice is not None
    lines = [what_it_read(texts, task)]
    folder = context.choice.folder
    if folder is not None and (found := on_news(ModelFolder(folder), label)) is not None:
        point = found.at(threshold)
        lines.append(
            texts(
                "comments.on_news",
                source=found.source,
                count=found.num_comments,
                label=label_name(texts, label),
                threshold=point.threshold,
                precision=point.precision or 0.0,
                recall=point.recall or 0.0,
                base=found.num_positive / found.num_comments,
            )
        )
    elif task.official_name != "hate":
        lines.append(texts("comments.on_news_unknown"))
    if task.official_name != "hate":
        lines.append(texts("comments.see_moderation", page=texts("moderation.title")))
    st.info("\n\n".join(map(literal, lines)), icon=":material/info:")


def measurable_tasks(task: Task) -> list[Task]:
    """Return the tasks with labelled examples on this machine: the embedded sample and the official file."""
    official = get_task(task.official_name)
    found = [get_task(f"{official.name}-sample")] if official.sample_num_examples else []
    if (data_root(None) / official.files[official.eval_split].path).is_file():
        found.append(official)
    return found


def measure(context: PageContext, task: Task, progress: Progress) -> Measured:
    """Score labelled examples."""
    progress("read")
    root = SAMPLE_ROOT if task.is_sample else data_root(None)
    examples = task.read_split(task.eval_split, root).examples[:NUM_MEASURED]
    with context.borrow() as classifier:
        rows = score(classifier, [example.text for example in examples], progress)
        return Measured(classifier.labels, rows, tuple(str(example.label) for example in examples))


def score(classifier: Classifier, texts: Sequence[str], progress: Progress) -> NDArray[np.float64]:
    """Return the probabilities of texts, (N, C), block by block."""
    blocks = []
    for first in range(0, len(texts), BLOCK):
        progress("classify", first, len(texts))
        blocks.append(classifier.probabilities(texts[first : first + BLOCK]))
    return np.vstack(blocks)


def _cost(context: PageContext, task: Task, label: str, threshold: float) -> None:
    texts = context.texts
    tasks = {found.name: found for found in measurable_tasks(task)}
    if not tasks:
        st.caption(texts("comments.no_data", task=task.title))
        return
    name = next(iter(tasks))
    if len(tasks) > 1:
        name = st.selectbox(
            texts("comments.measured_on"),
            list(tasks),
            format_func=lambda key: tasks[key].title,
            key="measured",
            bind="query-params",
        )
    found = run_job(texts, "measure", (context.choice, name), partial(measure, context, tasks[name]))
    if found is None:
        return
    if label not in found.labels:
        return
    [point] = found.points(label, [threshold])
    figures = (
        ("precision", point.precision, wilson95(point.num_right, point.num_flagged)),
        ("recall", point.recall, wilson95(point.num_right, point.num_positive)),
    )
    first, second, third = st.columns(3)
    for column, (key, value, ends) in zip((first, second), figures, strict=True):
        shown = "—" if value is None else f"{value:.1%}"
        column.metric(texts(f"comments.{key}"), shown, help=texts(f"comments.{key}_help"))
        if ends:
            column.caption(texts("comments.interval", low=ends[0], high=ends[1]))
    third.metric(texts("comments.flagged"), f"{point.num_flagged:,} / {len(found.golds):,}")
    third.caption(texts("comments.basis", task=tasks[name].title, count=len(found.golds)))
    with st.expander(texts("comments.curve"), icon=":material/monitoring:"):
        st.vega_lite_chart(cost_chart(texts, found, label, threshold), key="cost", alt=texts("comments.curve_alt"))
        st.caption(texts("comments.curve_note"))


def cost_chart(texts: Texts, found: Measured, label: str, threshold: float) -> dict[str, Any]:
    """Return precision and recall by threshold as a chart; lines differ by dashes and marks, not only colour."""
    rows = [
        {"threshold": point.threshold, "share": value, "figure": texts(f"comments.{key}")}
        for point in found.points(label, THRESHOLDS)
        for key, value in (("precision", point.precision), ("recall", point.recall))
        if value is not None
    ]
    figure = {"field": "figure", "type": "nominal", "title": None}
    lines = {
        "mark": {"type": "line", "point": {"size": 45}},
        "encoding": {
            "x": {
                "field": "threshold",
                "type": "quantitative",
                "title": texts("comments.threshold"),
                "scale": {"domain": [0, 1]},
            },
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": None,
                "axis": {"format": ".0%"},
                "scale": {"domain": [0, 1]},
            },
            "color": figure | {"scale": {"range": ["#1d5fae", "#c2562d"]}},
            "strokeDash": figure,
            "shape": figure,
            "tooltip": [
                {"field": "threshold", "title": texts("comments.threshold")},
                {"field": "share", "format": ".1%", "title": texts("comments.share")},
                figure,
            ],
        },
    }
    rule = {
        "data": {"values": [{"threshold": threshold}]},
        "mark": {"type": "rule", "strokeDash": [2, 3]},
        "encoding": {"x": {"field": "threshold", "type": "quantitative"}},
    }
    legend = {"legend": {"orient": "bottom"}}
    return {"data": {"values": rows}, "layer": [lines, rule], "height": 260, "config": legend}


# ---- one comment ----


def _single(context: PageContext, label: str, threshold: float) -> None:
    texts = context.texts
    with st.container(horizontal=True):
        for key in EXAMPLES:
            text = texts(key)
            st.button(literal(one_line(text, 24)), key=f"example-{key}", on_click=_take, args=(text,))
    with st.form("comment-form", border=False):
        st.text_area(texts("comments.text"), key="comment-text", height=110, placeholder=texts("comments.placeholder"))
        st.form_submit_button(
            texts("comments.go"), type="primary", icon=":material/sentiment_satisfied:", on_click=_take
        )
    show_refusal("comment", texts)
    if given := given_to("comment"):
        [text] = given.records
        with context.model() as classifier:
            [row] = classifier.probabilities([text])
            weights = classifier.weigh(text, label)
            is_cut = classifier.is_cut(text)
            labels = classifier.labels
        value = float(row[labels.index(label)])
        _verdict(texts, label, value, threshold)
        st.html(
            bars([(label_name(texts, name), p, f"{p:.1%}") for name, p in zip(labels, row.tolist(), strict=True)], 1)
        )
        if is_cut:
            st.caption(texts("comments.cut"))
        st.subheader(texts("comments.why", label=label_name(texts, label)), anchor=False)
        st.html(paper(marked(text, weight_marks(texts, [(w.start, w.end, w.weight) for w in weights]))))
        st.caption(texts("comments.why_note"))


def _take(text: str | None = None) -> None:
    if text is not None:
        st.session_state["comment-text"] = text
    take("comment", lambda: Given((check_text(st.session_state["comment-text"], MAX_COMMENT),), "text"))


def _verdict(texts: Texts, label: str, value: float, threshold: float) -> None:
    name = label_name(texts, label)
    if value >= threshold:
        st.success(texts("comments.is", label=name, value=value, threshold=threshold), icon=":material/flag:")
    else:
        st.info(texts("comments.is_not", label=name, value=value, threshold=threshold), icon=":material/outlined_flag:")


def weight_marks(texts: Texts, weights: Sequence[tuple[int, int, float]]) -> list[Mark]:
    """Return marks for the most influential words: plus for the label, minus against it."""
    largest = max((abs(weight) for _, _, weight in weights), default=0.0)
    return [
        Mark(
            start,
            end,
            "for" if weight > 0 else "against",
            "+" if weight > 0 else "−",
            strength=abs(weight) / largest,
            hint=texts("comments.weight", weight=weight),
        )
        for start, end, weight in weights
        if abs(weight) >= max(0.1 * largest, 0.01)
    ]


# ---- many comments ----


def _batch(context: PageContext, label: str, threshold: float) -> None:
    texts = context.texts
    file_field(texts, "comments", _read_upload)
    _column_field(texts)
    if st.button(texts("comments.sample"), icon=":material/forum:"):
        take("comments", lambda: Given(_sample(), "sample"))
    show_refusal("comments", texts)
    given = given_to("comments")
    if given is None:
        return

    def work(progress: Progress) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        with context.borrow() as classifier:
            return classifier.labels, score(classifier, given.records, progress)

    found = run_job(texts, "comments", (context.choice, given), work)
    if found is not None and label in found[0]:
        _table(texts, given.records, *found, label, threshold)


def _read_upload(name: str, content: bytes) -> ReadFile:
    """Read a file, and keep the names of its columns also where none is recognized."""
    st.session_state["comments-columns"] = ((), None)
    st.session_state["comments-columns"] = read_upload("columns", name, content)
    found: ReadFile = read_upload("comments", name, content)
    return found


def _column_field(texts: Texts) -> None:
    """Let the visitor choose the column of the uploaded file that holds the comments."""
    file = st.session_state.get("comments-file")
    columns, found = st.session_state.get("comments-columns", ((), None))
    if file is None or len(columns) < 2:
        return
    key = f"comments-column-{file.file_id}"

    def chosen() -> None:
        def given() -> Given:
            read = read_upload("comments", file.name, file.getvalue(), st.session_state[key])
            return Given(read.records, file.name, read.rejected)

        take("comments", given)

    st.selectbox(
        texts("comments.column"),
        columns,
        index=None if found is None else columns.index(found),
        key=key,
        placeholder=texts("comments.column_placeholder"),
        on_change=chosen,
    )


@st.cache_data(show_spinner=False)
def _sample() -> tuple[str, ...]:
    split = get_task("nsmc-sample").read_split("test", SAMPLE_ROOT)
    return tuple(example.text for example in split.examples if example.text.strip())


def _table(
    texts: Texts,
    comments: Sequence[str],
    labels: Sequence[str],
    probabilities: NDArray[np.float64],
    label: str,
    threshold: float,
) -> None:
    scores = probabilities[:, labels.index(label)]
    flagged = scores >= threshold
    st.html(f'<p class="pb-lead">{texts("comments.found", count=int(flagged.sum()), total=len(comments))}</p>')
    only = st.toggle(texts("comments.only"), key="only", bind="query-params")
    order = [int(k) for k in np.argsort(-scores, kind="stable") if flagged[k] or not only]
    st.dataframe(
        {
            texts("comments.column_flag"): [
                "● " + texts("yes") if flagged[k] else "○ " + texts("no") for k in order[:SHOWN_ROWS]
            ],
            texts("comments.column_score"): [float(scores[k]) for k in order[:SHOWN_ROWS]],
            texts("comments.column_text"): [one_line(comments[k], 300) for k in order[:SHOWN_ROWS]],
        },
        hide_index=True,
        column_config={
            texts("comments.column_score"): st.column_config.ProgressColumn(min_value=0, max_value=1, format="percent"),
            texts("comments.column_text"): st.column_config.TextColumn(width="large"),
        },
    )
    if len(order) > SHOWN_ROWS:
        st.caption(texts("comments.more", shown=SHOWN_ROWS, total=len(order)))
    with st.container(horizontal=True):
        download(texts("download.csv"), to_csv(comments, labels, probabilities, flagged), "comments.csv")
        download(texts("download.jsonl"), to_jsonl(comments, labels, probabilities, flagged), "comments.jsonl")


def to_csv(
    comments: Sequence[str], labels: Sequence[str], probabilities: NDArray[np.float64], flagged: NDArray[np.bool_]
) -> bytes:
    """Return a row for each comment, in their order.

    As in `apps.stories.report`: with a byte order mark for Excel, and without formulas.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["text", "flagged", *labels])
    for text, row, is_flagged in zip(comments, probabilities.tolist(), flagged.tolist(), strict=True):
        writer.writerow([spreadsheet_text(text), int(is_flagged), *(f"{value:.6f}" for value in row)])
    return ("\ufeff" + buffer.getvalue()).encode("utf-8", "replace")


def to_jsonl(
    comments: Sequence[str], labels: Sequence[str], probabilities: NDArray[np.float64], flagged: NDArray[np.bool_]
) -> bytes:
    """Return a line of JSON for each comment, in their order."""
    lines = []
    for text, row, is_flagged in zip(comments, probabilities.tolist(), flagged.tolist(), strict=True):
        scores = {label: round(value, 6) for label, value in zip(labels, row, strict=True)}
        record = {"text": text, "flagged": bool(is_flagged), "scores": scores}
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    return "".join(lines).encode("utf-8", "replace")
