"""Edits of the stories of a session: merge, split, rename, pin, take articles out, move them, and undo."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from apps.demo_pages.frame import Given
from apps.demo_pages.marking import one_line
from apps.stories.clusters import Cluster, Clusters
from apps.stories.duplicates import DuplicateGroup
from apps.stories.records import Story
from apps.stories.report import Report
from apps.stories.state import MAX_UNDO, Stories
from corpora.foundation.errors import UsageError
from corpora.foundation.texts import Texts

MAX_PARTS = 6
NEW = ""
"""Target of articles that become a story of their own."""
BESIDE, GOLDEN_ANGLE = 0.03, 2.399963
"""Distance on the map, and angle between neighbours, of the parts of a story."""
Snapshot = tuple[list[str], dict[str, Any], list[Any]]


@dataclass
class SessionStories:
    """The stories of a session with their edits."""

    stories: Stories
    clusters: Clusters
    duplicates: list[DuplicateGroup]
    positions: dict[str, tuple[float, float]]
    """Position of each story on the map; edits do not change it, and new stories are beside those they come from."""
    given: Given
    history: list[tuple[str, Snapshot]] = field(default_factory=list)
    """Kind of each edit, and the stories before it."""

    def report(self, title: str) -> Report:
        """Return the report to download."""
        return Report(
            clusters=self.clusters,
            duplicates=self.duplicates,
            title=title,
            source=self.given.source,
            num_rejected=len(self.given.rejected),
            seed=self.stories.config.seed,
        )

    def map_positions(self) -> NDArray[np.float64]:
        """Return the positions of the current stories, (K, 2)."""
        return np.array([self.positions[story.id] for story in self.clusters.stories], np.float64).reshape(-1, 2)

    @property
    def last_edit(self) -> str:
        """Kind of the last edit that was not undone, or nothing."""
        return self.history[-1][0] if self.history else ""

    def edit(self, kind: str, change: Callable[[], object]) -> None:
        """Carry out an edit that can be undone.

        Raises:
            UsageError: it is impossible; then nothing has changed.
        """
        before = (list(self.stories.story_of), dict(self.stories.stories), list(self.stories.edits))
        change()
        self.history = [*self.history, (kind, before)][-MAX_UNDO:]
        self.clusters = self.stories.clusters()

    def undo(self) -> None:
        """Undo the last edit; without one, do nothing."""
        if self.history:
            _, (self.stories.story_of, self.stories.stories, self.stories.edits) = self.history.pop()
            self.clusters = self.stories.clusters()

    def split(self, story: str, parts: int) -> None:
        """Divide a story into parts; the largest keeps the id.

        Raises:
            UsageError: it has fewer different titles than parts.
        """
        self.edit("split", lambda: self._place(story, self.stories.split(story, parts)))

    def take_out(self, story: str, articles: Sequence[int]) -> None:
        """Put articles of a story in none.

        Raises:
            UsageError: an article is not in the story.
        """
        self.edit("take", lambda: self._reassign(story, articles, ""))

    def move(self, story: str, articles: Sequence[int], target: str) -> None:
        """Move articles of a story to another one, or to a new one.

        Raises:
            UsageError: an article is not in the story, or there is no such target.
        """

        def change() -> None:
            into = target
            if target == NEW:
                self._check(story, articles)
                into = f"s{self.stories.next_story}"
                self.stories.next_story += 1
                self.stories.stories[into] = Story(batch=self.stories.stories[story].batch)
                self._place(story, [into])
            else:
                self.stories.members(target)
            self._reassign(story, articles, into)

        self.edit("move", change)

    def _check(self, story: str, articles: Sequence[int]) -> None:
        if not articles or not set(articles) <= set(self.stories.members(story)):
            raise UsageError(story, f"articles {list(articles)} are not in it", "choose articles of the story")

    def _reassign(self, story: str, articles: Sequence[int], target: str) -> None:
        self._check(story, articles)
        for index in articles:
            self.stories.story_of[index] = target

    def _place(self, story: str, made: Sequence[str]) -> None:
        """Put new stories on the map around the one they come from."""
        x, y = self.positions[story]
        for id_ in made:
            angle = GOLDEN_ANGLE * len(self.positions)
            self.positions[id_] = (x + BESIDE * math.cos(angle), y + BESIDE * math.sin(angle))


def act(session: SessionStories, action: str, *values: Any) -> None:
    """Carry out what was pressed on this session's stories."""
    state = st.session_state
    try:
        match action, *values:
            case "merge", first, *others:
                session.edit("merge", lambda: session.stories.merge(first, *others))
                state["merge-chosen"] = []
            case "rename", story:
                session.edit("rename", lambda: session.stories.rename(story, state[f"name-{story}"]))
            case "pin", story, is_pinned:
                session.edit("pin", lambda: session.stories.pin(story, is_pinned=is_pinned))
            case "split", story:
                session.split(story, state[f"parts-{story}"])
            case "take", story:
                session.take_out(story, state[f"articles-{story}"])
                state[f"articles-{story}"] = []
            case "move", story:
                session.move(story, state[f"articles-{story}"], state[f"target-{story}"])
                state[f"articles-{story}"] = []
            case ("undo",):
                session.undo()
    except UsageError:
        # Pressed twice: the story no longer exists, or its articles are elsewhere.
        return


def toggle_editor(story: str) -> None:
    """Open the editor of a story, or close it."""
    st.session_state["editing"] = None if st.session_state.get("editing") == story else story


def show_editor(texts: Texts, session: SessionStories, story: Cluster) -> None:
    """Show the tools that change the articles of a story."""
    articles, texts_of = session.clusters.articles, session.stories.of_article
    titles = {member.index: one_line(articles[member.index].title, 80) for member in story.members}
    num_texts = len({texts_of[index] for index in titles})
    if num_texts > 1:
        number, button = st.columns([3, 2], vertical_alignment="bottom")
        number.number_input(
            texts("stories.parts"),
            2,
            min(MAX_PARTS, num_texts),
            2,
            key=f"parts-{story.id}",
            help=texts("stories.parts_help"),
        )
        button.button(
            texts("stories.split"),
            icon=":material/call_split:",
            key=f"split-{story.id}",
            on_click=act,
            args=(session, "split", story.id),
        )
    chosen = st.multiselect(
        texts("stories.which_articles"),
        list(titles),
        format_func=lambda index: titles.get(index, str(index)),
        key=f"articles-{story.id}",
        placeholder=texts("stories.which_articles_hint"),
    )
    others = {NEW: texts("stories.new_story")} | {
        other.id: f"{one_line(other.title, 60)} ({len(other)})"
        for other in session.clusters.stories
        if other.id != story.id
    }
    target, move, take = st.columns([3, 1, 1], vertical_alignment="bottom")
    target.selectbox(
        texts("stories.target"), list(others), format_func=lambda id_: others.get(id_, id_), key=f"target-{story.id}"
    )
    for column, action, icon in ((move, "move", "drive_file_move"), (take, "take", "remove_circle")):
        column.button(
            texts(f"stories.{action}"),
            icon=f":material/{icon}:",
            key=f"{action}-{story.id}",
            disabled=not chosen,
            on_click=act,
            args=(session, action, story.id),
        )
