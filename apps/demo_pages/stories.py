"""Page 오늘의 뉴스 묶음: a day's titles as stories, with map, timeline and copies; editors change them."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from apps.demo_pages.frame import (
    Given,
    PageContext,
    download,
    file_field,
    given_to,
    heading,
    run_job,
    show_missing_model,
    show_refusal,
    take,
)
from apps.demo_pages.inputs import read_upload
from apps.demo_pages.marking import escaped, one_line
from apps.demo_pages.story_edits import SessionStories, act, show_editor, toggle_editor
from apps.demo_pages.work import Progress
from apps.stories.articles import Article, read_articles
from apps.stories.clusters import Cluster, ClusteringConfig, Clusters
from apps.stories.duplicates import find_duplicates
from apps.stories.page import (
    MAP_HEIGHT,
    MAP_WIDTH,
    category_colours,
    circles,
    layout,
    main_category,
    timeline,
    to_html,
)
from apps.stories.report import to_csv, to_json
from apps.stories.space import Embedder
from apps.stories.state import Stories
from corpora.foundation.files import SAMPLE_ROOT
from corpora.foundation.texts import Texts

BLOCK = 256
"""Titles between two checks for cancellation."""
PER_PAGE = 10
NUM_LABELS = 20
LABEL_WIDTH, LABEL_HEIGHT = 16, 24
"""Size of a character of a label, in units of the map."""
PLAIN_COLOUR = "#5a7fae"
SHOWN_MEMBERS, SHOWN_GROUPS, SHOWN_COPIES = 300, 100, 50
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down")
VIEWS = ("list", "map", "time", "copies")


class WatchedEmbedder:
    """An embedder that reports progress, and can be cancelled between two blocks."""

    def __init__(self, embedder: Embedder, progress: Progress) -> None:
        """Watch EMBEDDER."""
        self._embedder, self._progress = embedder, progress

    @property
    def sha256(self) -> str:
        """The embedder's own."""
        return self._embedder.sha256

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embedder's vectors, (N, D)."""
        blocks = []
        for first in range(0, max(1, len(texts)), BLOCK):
            self._progress("embed", first, len(texts))
            blocks.append(np.asarray(self._embedder.encode(texts[first : first + BLOCK]), np.float32))
        return np.vstack(blocks)


def show(context: PageContext) -> None:
    """Draw the page."""
    texts = context.texts
    heading(texts, "stories")
    if context.choice is None or context.choice.folder is None:
        show_missing_model(texts, "embedder")
    if context.choice is None:
        return
    _input(texts)
    show_refusal("stories", texts)
    given = given_to("stories")
    if given is None:
        return
    config = _config(texts)
    if not context.load():
        return
    session = run_job(texts, "stories", (context.choice, given, config), partial(find_stories, context, given, config))
    if session is not None:
        _result(texts, session)


def find_stories(context: PageContext, given: Given, config: ClusteringConfig, progress: Progress) -> SessionStories:
    """Find the stories of articles, step by step."""
    with context.borrow() as embedder:
        stories = Stories.fit(given.records, config, embedder=WatchedEmbedder(embedder, progress))
    progress("label")
    clusters = stories.clusters()
    progress("duplicates")
    duplicates = find_duplicates([article.title for article in clusters.articles], clusters.points)
    progress("layout")
    positions = layout(clusters.centres, config.seed)
    where = {story.id: (float(x), float(y)) for story, (x, y) in zip(clusters.stories, positions, strict=True)}
    return SessionStories(stories, clusters, duplicates, where, given)


# ---- inputs ----


def _input(texts: Texts) -> None:
    file, sample = st.columns([3, 2], gap="large", vertical_alignment="center")
    with file:
        file_field(texts, "stories", functools.partial(read_upload, "titles"))
    with sample:
        st.button(
            texts("stories.sample"),
            icon=":material/newspaper:",
            key="stories-sample",
            on_click=_take_sample,
            args=(texts,),
        )
        st.caption(texts("stories.sample_note"))


@st.cache_data(show_spinner=False)
def _sample() -> tuple[Article, ...]:
    return tuple(read_articles(SAMPLE_ROOT / "news.jsonl", columns={"title": "title"}))


def _take_sample(texts: Texts) -> None:
    take("stories", lambda: Given(_sample(), texts("stories.sample_name")))


def _config(texts: Texts) -> ClusteringConfig:
    with st.expander(texts("stories.settings"), icon=":material/tune:"):
        st.caption(texts("stories.settings_note"))
        size = st.slider(texts("stories.min_size"), 2, 10, 3, key="min", bind="query-params")
        by_category = st.toggle(texts("stories.by_category"), key="bycategory", bind="query-params")
    return ClusteringConfig(min_size=size, by_category=by_category)


# ---- results ----


def _result(texts: Texts, session: SessionStories) -> None:
    clusters = session.clusters
    copies = sum(len(group.members) - 1 for group in session.duplicates)
    inside = sum(map(len, clusters.stories))
    facts = {
        "articles": f"{len(clusters.articles):,}",
        "stories": f"{len(clusters.stories):,}",
        "inside": f"{inside / max(1, len(clusters.articles)):.0%}",
        "copies": f"{copies:,}",
    }
    for column, (name, value) in zip(st.columns(4), facts.items(), strict=True):
        column.metric(texts(f"stories.{name}"), value)
    if not clusters.stories:
        st.info(texts("stories.none"), icon=":material/info:")
        return
    view = st.segmented_control(
        texts("stories.view"),
        VIEWS,
        default="list",
        required=True,
        format_func=lambda name: texts(f"stories.view_{name}"),
        key="view",
        bind="query-params",
        label_visibility="collapsed",
    )
    {"list": _list, "map": _map, "time": _time, "copies": _copies}[view or "list"](texts, session)
    _downloads(texts, session)


def _downloads(texts: Texts, session: SessionStories) -> None:
    st.divider()
    report = session.report(texts("stories.title"))
    files: Mapping[str, Callable[[], bytes]] = {
        "json": lambda: json.dumps(to_json(report), ensure_ascii=False, indent=1).encode(),
        "csv": lambda: to_csv(report).encode(),
        "html": lambda: to_html(report, session.map_positions()).encode(),
    }
    with st.container(horizontal=True):
        for kind, make in files.items():
            download(texts(f"download.{kind}"), make, f"stories.{kind}")


# ---- stories, one by one ----


def _list(texts: Texts, session: SessionStories) -> None:
    _tools(texts, session)
    wanted = st.text_input(
        texts("stories.find"), key="find", bind="query-params", icon=":material/search:", max_chars=60
    ).split()
    found = [
        story
        for story in session.clusters.stories
        if all(word in _searched(story, session.clusters) for word in wanted)
    ]
    if not found:
        st.info(texts("stories.not_found"), icon=":material/search_off:")
        return
    num_pages = -(-len(found) // PER_PAGE)
    page = st.pagination(num_pages, key="page") if num_pages > 1 else 1
    for story in found[(page - 1) * PER_PAGE : page * PER_PAGE]:
        _story(texts, session, story)


def _searched(story: Cluster, clusters: Clusters) -> str:
    titles = (clusters.articles[member.index].title for member in story.members)
    return " ".join([story.title, *(keyword.text for keyword in story.keywords), *titles])


def _tools(texts: Texts, session: SessionStories) -> None:
    """Show the tools for merging stories and undoing edits."""
    titles = {story.id: f"{one_line(story.title, 40)} ({len(story)})" for story in session.clusters.stories}
    merge, undo = st.columns([5, 2], vertical_alignment="bottom")
    with merge, st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.multiselect(
            texts("stories.merge_which"),
            list(titles),
            format_func=lambda id_: titles.get(id_, id_),
            key="merge-chosen",
            placeholder=texts("stories.merge_hint"),
        )
        st.button(
            texts("stories.merge"),
            icon=":material/merge:",
            disabled=len(chosen) < 2,
            key="merge",
            on_click=act,
            args=(session, "merge", *chosen),
        )
    with undo:
        last = session.last_edit
        label = texts("stories.undo_what", what=texts(f"edit.{last}")) if last else texts("stories.undo")
        st.button(label, icon=":material/undo:", disabled=not last, key="undo", on_click=act, args=(session, "undo"))


def _story(texts: Texts, session: SessionStories, story: Cluster) -> None:
    with st.container(border=True, key=f"story-{story.id}"):
        text, tools = st.columns([5, 2])
        with text:
            st.html(story_html(texts, story, session.clusters))
        with tools, st.container(horizontal=True, horizontal_alignment="right"):
            st.button(
                texts("stories.unpin" if story.is_pinned else "stories.pin"),
                icon=":material/keep:",
                key=f"pin-{story.id}",
                on_click=act,
                args=(session, "pin", story.id, not story.is_pinned),
                type="tertiary",
            )
            with st.popover(texts("stories.rename"), icon=":material/edit:", type="tertiary"):
                st.text_input(
                    texts("stories.name"), story.name, key=f"name-{story.id}", placeholder=story.headline[:60]
                )
                st.button(
                    texts("stories.save"), key=f"save-{story.id}", on_click=act, args=(session, "rename", story.id)
                )
            st.button(
                texts("stories.edit"),
                icon=":material/checklist:",
                key=f"edit-{story.id}",
                on_click=toggle_editor,
                args=(story.id,),
                type="tertiary",
            )
        if st.session_state.get("editing") == story.id:
            show_editor(texts, session, story)


def story_html(texts: Texts, story: Cluster, clusters: Clusters) -> str:
    """Return a story as HTML: title, keywords, articles."""
    articles = [clusters.articles[member.index] for member in story.members]
    facts = [texts("stories.count", count=len(story))]
    if category := main_category(story, clusters):
        facts.append(category)
    if publishers := {article.publisher for article in articles} - {""}:
        facts.append(texts("stories.publishers", count=len(publishers)))
    if dates := sorted({article.date[:10] for article in articles} - {""}):
        facts.append(dates[0] if dates[0] == dates[-1] else f"{dates[0]} – {dates[-1]}")
    pin = f'<span class="pb-pin">{texts("stories.pinned")}</span>' if story.is_pinned else ""
    was = f'<p class="pb-quiet">{escaped(one_line(story.headline, 120))}</p>' if story.name else ""
    words = "".join(f"<span>{escaped(keyword.text)}</span>" for keyword in story.keywords)
    lines = "".join(f"<li>{escaped(one_line(article.title, 200))}</li>" for article in articles[:SHOWN_MEMBERS])
    return (
        f'<article class="pb-story" lang="ko"><h3>{pin}{escaped(one_line(story.title, 160))}</h3>{was}'
        f'<p class="pb-quiet">{escaped(" · ".join(facts))}</p><p class="pb-words">{words}</p>'
        f"<details><summary>{texts('stories.members', count=len(story))}</summary><ul>{lines}</ul></details></article>"
    )


# ---- map, time, copies ----


def _map(texts: Texts, session: SessionStories) -> None:
    st.caption(texts("stories.map_note"))
    st.vega_lite_chart(map_chart(texts, session), key="stories-map", alt=texts("stories.map_alt"))


def map_chart(texts: Texts, session: SessionStories) -> dict[str, Any]:
    """Return the map as a Vega-Lite chart: area by articles, colour and shape by category."""
    colours = dict(list(category_colours(session.clusters).items())[: len(SHAPES) - 1])
    by_id = {story.id: story for story in session.clusters.stories}
    other = texts("stories.other")
    rows = []
    for circle in circles(session.clusters, session.map_positions(), colours):
        story = by_id[circle["id"]]
        category = main_category(story, session.clusters)
        rows.append(
            {
                "x": circle["x"],
                "y": MAP_HEIGHT - circle["y"],
                "size": circle["size"],
                "label": one_line(circle["label"], 16),
                "title": one_line(circle["title"], 80),
                "category": category if category in colours else other,
                "keywords": ", ".join(keyword.text for keyword in story.keywords[:5]),
            }
        )
    position = {
        "x": {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, MAP_WIDTH]}},
        "y": {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [0, MAP_HEIGHT]}},
    }
    category_of: dict[str, Any] = {"field": "category", "type": "nominal", "title": texts("stories.category")}
    if not colours:
        category_of["legend"] = None
    names, shapes = [*colours, other], [*SHAPES[1 : len(colours) + 1], SHAPES[0]]
    shown = (("title", "story"), ("size", "size"), ("category", "category"), ("keywords", "keywords"))
    largest = max(row["size"] for row in rows)
    size = {"field": "size", "type": "quantitative", "scale": {"domain": [0, largest], "range": [30, 1500]}}
    marks = {
        "mark": {"type": "point", "filled": True, "opacity": 0.6},
        "encoding": {
            **position,
            "size": size | {"legend": None},
            "color": category_of | {"scale": {"domain": names, "range": [*colours.values(), PLAIN_COLOUR]}},
            "shape": category_of | {"scale": {"domain": names, "range": shapes}},
            "tooltip": [{"field": name, "type": "nominal", "title": texts(f"stories.{key}")} for name, key in shown],
        },
    }
    labels = {
        "data": {"values": _labelled(rows)},
        "mark": {"type": "text", "fontSize": 12.5, "fontWeight": 600},
        "encoding": {**position, "text": {"field": "label", "type": "nominal"}},
    }
    legend = {"orient": "bottom", "columns": len(SHAPES), "labelLimit": 120}
    return {"data": {"values": rows}, "layer": [marks, labels], "height": 520, "config": {"legend": legend}}


def _labelled(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the largest stories whose labels do not overlap."""
    kept: list[dict[str, Any]] = []
    for row in rows:
        width = LABEL_WIDTH * len(row["label"])
        if len(kept) < NUM_LABELS and all(
            abs(row["x"] - other["x"]) > (width + LABEL_WIDTH * len(other["label"])) / 2
            or abs(row["y"] - other["y"]) > LABEL_HEIGHT
            for other in kept
        ):
            kept.append(row)
    return kept


def _time(texts: Texts, session: SessionStories) -> None:
    chart = time_chart(texts, session.clusters)
    if chart is None:
        st.info(texts("stories.no_time"), icon=":material/info:")
        return
    st.caption(texts("stories.time_note"))
    st.vega_lite_chart(chart, key="stories-time", alt=texts("stories.time_alt"))


def time_chart(texts: Texts, clusters: Clusters) -> dict[str, Any] | None:
    """Return the articles of the largest stories over time as a chart; None without different dates."""
    found = timeline(clusters)
    if not found:
        return None
    kept = [k for k in range(len(found["labels"])) if any(row["counts"][k] for row in found["rows"])]
    order = [found["labels"][k] for k in kept]
    rows = [
        {"when": found["labels"][k], "story": f"{row['id']} {one_line(row['title'], 34)}", "count": row["counts"][k]}
        for row in found["rows"]
        for k in kept
        if row["counts"][k]
    ]
    position = {
        "x": {"field": "when", "type": "ordinal", "sort": order, "title": None, "axis": {"labelAngle": -40}},
        "y": {"field": "story", "type": "ordinal", "sort": None, "title": None, "axis": {"labelLimit": 260}},
    }
    count = {"field": "count", "type": "quantitative", "title": texts("stories.size")}
    return {
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "rect", "opacity": 0.45}, "encoding": position | {"color": count | {"legend": None}}},
            {"mark": {"type": "text", "fontSize": 12}, "encoding": position | {"text": count}},
        ],
        "height": 28 * len(found["rows"]) + 60,
    }


def _copies(texts: Texts, session: SessionStories) -> None:
    if not session.duplicates:
        st.info(texts("stories.no_copies"), icon=":material/info:")
        return
    st.caption(
        texts("stories.copies_note", shown=min(SHOWN_GROUPS, len(session.duplicates)), count=len(session.duplicates))
    )
    articles = session.clusters.articles
    parts = []
    for group in session.duplicates[:SHOWN_GROUPS]:
        others = [articles[index].title for index in group.members if index != group.representative][:SHOWN_COPIES]
        lines = "".join(f"<li>{escaped(one_line(title, 200))}</li>" for title in others)
        head = escaped(one_line(articles[group.representative].title, 160))
        count = texts("stories.count", count=len(group.members))
        parts.append(f"<details><summary>{head} <small>{count}</small></summary><ul>{lines}</ul></details>")
    st.html(f'<div class="pb-copies" lang="ko">{"".join(parts)}</div>')
