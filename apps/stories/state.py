"""Persistent stories: new articles join them without refitting, editors change them, and edits can be undone.

    python -m apps.stories DIR list
    python -m apps.stories DIR merge s3 s17

DIR is the folder of `python -m apps.clustering FILE --stories DIR`: `stories.json`, and vectors as safetensors. The id
of a story never changes and is never reused.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apps.stories.articles import Article, Articles, known_positions, to_articles
from apps.stories.clusters import (
    ClusteringConfig,
    Clusters,
    EmbeddedArticles,
    Identity,
    default_embedder,
    describe,
    distinct_texts,
    find_groups,
    make_clusterer,
    make_levels,
    make_reducer,
)
from apps.stories.grouping import Groups, Labels, Points, TypicalityScale, average_linkage, nearest_centres
from apps.stories.linking.growth import Judge
from apps.stories.linking.routine import routine_kind
from apps.stories.records import SCHEMA, STATE_FILE, Edit, StateFile, Story, read_state, write_state
from apps.stories.space import Embedder, HybridSpace, embed_checked
from corpora.foundation.errors import CheckpointError, DataError, UsageError, suggest

MAX_UNDO = 100
"""Edits that can be undone."""

KEPT_FIELDS = tuple(
    set(StateFile.model_fields) - {"schema_version", "embedder", "vectors", "vectors_sha256", "articles"}
)
"""Fields that `Stories` and its file have in common."""


@dataclass
class Stories:
    """Articles and their stories; created by `fit` or `load`."""

    config: ClusteringConfig
    embedder_sha256: str
    space: HybridSpace
    scale: TypicalityScale
    """Scale of typicality of the first stories."""
    articles: list[Article] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """Distinct cleaned titles, in the order of arrival."""
    points: Points = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """(U, P) of `texts`."""
    of_article: list[int] = field(default_factory=list)
    """Index of each article's title in `texts`; −1 for none."""
    story_of: list[str] = field(default_factory=list)
    """Id of each article's story; empty for none."""
    is_core: list[bool] = field(default_factory=list)
    batch_of: list[int] = field(default_factory=list)
    stories: dict[str, Story] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)
    num_batches: int = 0
    num_searched: int = 0
    """Articles among which `found` has looked for stories; a new story has a later one."""
    next_story: int = 1

    # ---- articles ----

    @classmethod
    def fit(
        cls, articles: Articles, config: ClusteringConfig | None = None, *, embedder: Embedder | None = None
    ) -> "Stories":
        """Find the first stories.

        Args:
            articles: see `apps.stories.clusters.cluster`.
            config: settings, kept with the stories.
            embedder: default: see `apps.stories.clusters.default_embedder`.

        Raises:
            CheckpointError: the embedder or its vectors are unusable.
        """
        config = config or ClusteringConfig()
        embedder = embedder or default_embedder()
        embedded = EmbeddedArticles.from_articles(to_articles(articles), embedder, make_reducer(config))
        labels, is_core = find_groups(embedded, config, make_clusterer(config))
        core = np.full(len(embedded.texts), -1)
        members = is_core & (embedded.of_article >= 0)
        core[embedded.of_article[members]] = labels[members]
        assert isinstance(embedded.space, HybridSpace)
        scale = TypicalityScale.from_groups(embedded.points, Groups.from_labels(embedded.points, core))
        stories = cls(config, embedder.sha256, embedded.space, scale)
        stories._add(embedded.articles, embedded.texts, embedded.points, embedded.of_article)
        stories._begin(labels, is_core, np.arange(len(embedded.articles)))
        stories.num_batches, stories.num_searched = 1, len(stories.articles)
        return stories

    def assign(self, articles: Articles, *, embedder: Embedder | None = None) -> list[str | None]:
        """Assign new articles to stories; articles that fit none wait for `found`.

        An article joins the story of the nearest centre if its mean log-odds with the titles of the story reach
        `min_log_odds`; with HDBSCAN, if it is as near to the centre as all but a share of `min_typicality` of the first
        stories' members are to theirs. A copy joins the story of its original. The articles of a batch are
        compared with the stories as they were before it. Known articles are not moved, and a batch of known articles
        alone changes nothing. An article is known by its id and title; one without an id, or with its position in a
        file for one, by everything else, as often as it occurs.

        Args:
            articles: see `apps.stories.clusters.cluster`.
            embedder: the one of `fit`; default: see `apps.stories.clusters.default_embedder`.

        Returns:
            The story's id for each article, None for none.

        Raises:
            CheckpointError: the embedder is another one, or its vectors are unusable.
        """
        embedder = embedder or default_embedder()
        if embedder.sha256 != self.embedder_sha256:
            what = f"the stories were made with embedder {self.embedder_sha256[:12]}, this is {embedder.sha256[:12]}"
            raise CheckpointError("stories", what, "give the same --model, or use another folder")
        listed = to_articles(articles)
        known = known_positions(self.articles, listed)
        new = [article for article in dict.fromkeys(listed) if article not in known]
        if not new:
            return [self.story_of[known[article]] or None for article in listed]
        texts, of_article = distinct_texts(new)
        points = self.space.transform(texts, embed_checked(embedder, texts))
        ids, centres, categories = self._centres(_newest(new))
        positions = {text: position for position, text in enumerate(self.texts)}
        joined = [""] * len(new)
        # Linkage compares with the titles of the nearest story, however far its centre is.
        level = -np.inf if self.config.clusterer == "linkage" else self.scale.level(self.config.min_typicality)
        for category in sorted({article.category for article in new}) if self.config.by_category else [None]:
            chosen = [k for k, article in enumerate(new) if category in (None, article.category)]
            is_open = np.array([category in (None, other) for other in categories], bool)
            open_ids = [id_ for id_, is_one in zip(ids, is_open, strict=True) if is_one]
            nearest_of, cosines = nearest_centres(points, centres[is_open])
            for index in chosen:
                text = int(of_article[index])
                is_routine = self.config.routine == "apart" and routine_kind(new[index].title) != ""
                if text >= 0 and points[text].any() and open_ids and not is_routine and cosines[text] >= level:
                    joined[index] = open_ids[int(nearest_of[text])]
        if self.config.clusterer == "linkage":
            chosen = [index for index, story in enumerate(joined) if story]
            judge = Judge(self._story_texts(), texts, make_levels(self.config))
            taken = judge.takes_each([joined[k] for k in chosen], [texts[of_article[k]] for k in chosen])
            for index in np.array(chosen, np.int64)[~taken].tolist():
                joined[index] = ""
        originals = self._stories_of_texts()
        for index, text in enumerate(of_article.tolist()):
            original = originals.get(positions.get(texts[text], -1), "") if text >= 0 else ""
            if original in ids:
                joined[index] = original
        self._add(new, texts, points, of_article)
        self.story_of[len(self.story_of) - len(new) :] = joined
        self.num_batches += 1
        known |= {article: len(self.articles) - len(new) + number for number, article in enumerate(new)}
        return [self.story_of[known[article]] or None for article in listed]

    def _story_texts(self) -> dict[str, list[str]]:
        """Return the distinct titles of each story."""
        found: dict[str, set[str]] = {}
        for story, text in zip(self.story_of, self.of_article, strict=True):
            if story and text >= 0:
                found.setdefault(story, set()).add(self.texts[text])
        return {story: sorted(some) for story, some in found.items()}

    def found(self) -> list[str]:
        """Find new stories among the articles in none; each has an article that came after the last search.

        A group that has enough in common with the story of the nearest centre joins that story instead.

        Returns:
            The ids of the new stories.
        """
        waiting = np.flatnonzero([not story for story in self.story_of])
        is_late = waiting >= self.num_searched
        self.num_searched = len(self.articles)
        if not is_late.any():
            return []
        embedded = self._embedded()
        pool = EmbeddedArticles(
            tuple(self.articles[k] for k in waiting),
            embedded.texts,
            embedded.of_article[waiting],
            embedded.points,
            self.space,
        )
        labels, is_core = find_groups(pool, self.config, make_clusterer(self.config), self.scale)
        groups = Groups.from_labels(pool.article_points, labels)
        labels = groups.labels  # in the order of the centres
        labels[~np.isin(labels, labels[is_late])] = -1
        ids, centres, _ = self._centres(_newest(self.articles))
        positions, cosines = nearest_centres(groups.centres, centres)
        joins = self._joining_groups(pool, labels, ids, positions, cosines)
        for label, story in joins.items():
            for index in waiting[labels == label].tolist():
                self.story_of[index] = story
            labels[labels == label] = -1
        return self._begin(labels, is_core, waiting)

    def _joining_groups(
        self,
        pool: EmbeddedArticles,
        labels: Labels,
        ids: Sequence[str],
        positions: Labels,
        cosines: NDArray[np.float32],
    ) -> dict[int, str]:
        """Return the groups that join a story; POSITIONS and COSINES are those of the nearest centres."""
        if self.config.by_category or not ids:
            return {}
        if self.config.clusterer != "linkage":
            near = self.scale.similarity_at(self.config.join_at) if self.config.join_at <= 1 else 2.0
            return {k: ids[positions[k]] for k, cosine in enumerate(cosines.tolist()) if cosine >= near}
        groups = {
            k: sorted({pool.texts[t] for t in pool.of_article[labels == k].tolist()}) for k in range(len(cosines))
        }
        judge = Judge(
            self._story_texts(), [text for some in groups.values() for text in some], make_levels(self.config)
        )
        nearest = {k: ids[position] for k, position in enumerate(positions.tolist())}
        return {k: nearest[k] for k, some in groups.items() if some and judge.takes(nearest[k], some)}

    def _add(self, articles: Sequence[Article], texts: Sequence[str], points: Points, of_article: Labels) -> None:
        """Append articles in no story, and texts not seen before."""
        positions = {text: position for position, text in enumerate(self.texts)}
        is_new = [text not in positions for text in texts]
        for text in texts:
            if text not in positions:
                positions[text] = len(self.texts)
                self.texts.append(text)
        self.points = np.vstack([self.points, points[is_new]]) if self.points.size else points[is_new]
        self.articles.extend(articles)
        self.of_article.extend(positions[texts[text]] if text >= 0 else -1 for text in of_article.tolist())
        self.story_of.extend([""] * len(articles))
        self.is_core.extend([False] * len(articles))
        self.batch_of.extend([self.num_batches] * len(articles))

    def _begin(self, labels: Labels, is_core: NDArray[np.bool_], indices: NDArray[np.int64]) -> list[str]:
        """Create stories from labelled articles, the largest first."""
        found: dict[int, list[int]] = {}
        for label, index in zip(labels.tolist(), indices.tolist(), strict=True):
            if label >= 0:
                found.setdefault(label, []).append(index)
        core = dict(zip(indices.tolist(), is_core.tolist(), strict=True))
        ids = []
        for members in sorted(found.values(), key=lambda members: (-len(members), self.articles[members[0]].title)):
            ids.append(self._new_story(members, max(self.batch_of[index] for index in members)))
            for index in members:
                self.is_core[index] = core[index]
        return ids

    def _new_story(self, members: Sequence[int], batch: int) -> str:
        id_ = f"s{self.next_story}"
        self.next_story += 1
        self.stories[id_] = Story(batch=batch)
        for index in members:
            self.story_of[index] = id_
        return id_

    def _embedded(self) -> EmbeddedArticles:
        return EmbeddedArticles(
            tuple(self.articles), tuple(self.texts), np.array(self.of_article, np.int64), self.points, self.space
        )

    def _stories_of_texts(self) -> dict[int, str]:
        return {text: story for text, story in zip(self.of_article, self.story_of, strict=True) if story and text >= 0}

    def _centres(self, newest: str) -> tuple[list[str], Points, list[str]]:
        """Return ids, centres and categories of the stories that accept new articles: pinned or recent ones."""
        latest: dict[str, str] = {}
        category: dict[str, str] = {}
        for article, story in zip(self.articles, self.story_of, strict=True):
            latest[story] = max(latest.get(story, ""), article.date)
            category.setdefault(story, article.category)
        ids = [
            id_
            for id_, story in self.stories.items()
            if id_ in latest and (story.is_pinned or _days_between(latest[id_], newest) <= self.config.max_age_days)
        ]
        position = {id_: number for number, id_ in enumerate(ids)}
        pairs = {(position[s], t) for s, t in zip(self.story_of, self.of_article, strict=True) if s in position}
        numbers, texts = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
        return ids, Groups.from_labels(self.points[texts], numbers).centres, [category[id_] for id_ in ids]

    # ---- editing ----

    def members(self, story: str) -> list[int]:
        """Return the indices of a story's articles.

        Raises:
            UsageError: there is no such story.
        """
        if story not in self.stories:
            raise UsageError(
                story, "no such story", suggest(story, self.stories) if self.stories else "there are no stories"
            )
        return [index for index, other in enumerate(self.story_of) if other == story]

    def merge(self, story: str, *others: str) -> None:
        """Merge stories under the id, name and pin of the first.

        Raises:
            UsageError: there is no such story, or one is named twice.
        """
        self.members(story)
        if not others or len({story, *others}) != 1 + len(others):
            raise UsageError("merge", f"stories {', '.join((story, *others))}", "name two or more different stories")
        moved = {other: self.members(other) for other in others}
        for members in moved.values():
            for index in members:
                self.story_of[index] = story
        gone = {other: self.stories.pop(other) for other in others}
        self._remember(Edit(kind="merge", story=story, gone=gone, moved=moved))

    def split(self, story: str, parts: int = 2) -> list[str]:
        """Split a story by average linkage; the largest part keeps the id.

        Returns:
            The ids of the other parts.

        Raises:
            UsageError: there is no such story, or it has fewer distinct titles than parts.
        """
        members = self.members(story)
        texts = sorted({self.of_article[index] for index in members})
        if not 2 <= parts <= len(texts):
            raise UsageError(
                story, f"{len(texts)} different titles cannot make {parts} parts", f"give 2 to {len(texts)}"
            )
        from scipy.cluster.hierarchy import fcluster

        labels = fcluster(average_linkage(self.points[texts]), parts, criterion="maxclust")
        label_of = dict(zip(texts, labels.tolist(), strict=True))
        groups: dict[int, list[int]] = {}
        for index in members:
            groups.setdefault(label_of[self.of_article[index]], []).append(index)
        _, *smaller = sorted(groups.values(), key=lambda group: (-len(group), group))
        batch = self.stories[story].batch
        made = [self._new_story(group, batch) for group in smaller]
        self._remember(Edit(kind="split", story=story, made=made))
        return made

    def rename(self, story: str, name: str) -> None:
        """Name a story; an empty name restores its headline.

        Raises:
            UsageError: there is no such story.
        """
        self._change(story, "rename", {"name": " ".join(name.split())})

    def pin(self, story: str, *, is_pinned: bool = True) -> None:
        """Keep a story at the top, and open to new articles whatever its age.

        Raises:
            UsageError: there is no such story.
        """
        self._change(story, "pin", {"is_pinned": is_pinned})

    def _change(self, story: str, kind: Literal["rename", "pin"], values: Mapping[str, Any]) -> None:
        self.members(story)
        before = self.stories[story]
        self.stories[story] = before.model_copy(update=dict(values))
        self._remember(Edit(kind=kind, story=story, before=before))

    def _remember(self, edit: Edit) -> None:
        self.edits = [*self.edits, edit][-MAX_UNDO:]

    def undo(self) -> Edit:
        """Undo the last edit that was not undone.

        Articles that joined a merged story since stay in it; articles that joined a part return with it.

        Returns:
            The edit.

        Raises:
            UsageError: there is no edit to undo.
        """
        if not self.edits:
            raise UsageError("undo", "there is no edit to undo", "list shows the stories")
        edit = self.edits.pop()
        if edit.before is not None:
            self.stories[edit.story] = edit.before
        self.stories |= edit.gone
        for other, members in edit.moved.items():
            for index in members:
                self.story_of[index] = other
        for index, story in enumerate(self.story_of):
            if story in edit.made:
                self.story_of[index] = edit.story
        for made in edit.made:
            del self.stories[made]
        return edit

    # ---- views ----

    def clusters(self) -> Clusters:
        """Return the current stories; those of the last batch are new, unless it is the first."""
        ids = [id_ for id_ in self.stories if id_ in set(self.story_of)]
        position = {id_: number for number, id_ in enumerate(ids)} | {"": -1}
        last = self.num_batches - 1
        is_later = self.num_batches > 1
        identities = [
            Identity(id_, story.name, story.is_pinned, is_later and story.batch == last)
            for id_, story in self.stories.items()
            if id_ in position
        ]
        return describe(
            self._embedded(),
            np.array([position[story] for story in self.story_of], np.int64),
            np.array(self.is_core, bool),
            self.config,
            identities=identities,
            new=frozenset(k for k, batch in enumerate(self.batch_of) if is_later and batch == last),
        )

    # ---- files ----

    def save(self, folder: Path) -> None:
        """Write the stories to a folder; a reader sees either the old or the new ones.

        Raises:
            ResultError: the folder cannot be written.
        """
        arrays = {f"space.{name}": array for name, array in self.space.arrays().items()}
        kept = {field: getattr(self, field) for field in KEPT_FIELDS}
        articles = [asdict(article) for article in self.articles]
        state = StateFile(schema=SCHEMA, embedder=self.embedder_sha256, vectors="", articles=articles, **kept)
        write_state(folder, state, {**arrays, "points": self.points.astype(np.float16), **vars(self.scale)})

    @classmethod
    def load(cls, folder: Path) -> "Stories":
        """Read what `save` wrote.

        Raises:
            DataError: there are no stories, or files are damaged.
        """
        state, arrays = read_state(folder)
        space = {name.removeprefix("space."): array for name, array in arrays.items() if name.startswith("space.")}
        try:
            return cls(
                embedder_sha256=state.embedder,
                space=HybridSpace.from_arrays(space),
                scale=TypicalityScale(arrays["own"], arrays["strange"]),
                articles=[Article(**article) for article in state.articles],
                points=arrays["points"].astype(np.float32),
                **{field: getattr(state, field) for field in KEPT_FIELDS},
            )
        except (TypeError, KeyError, ValueError) as error:
            what = f"damaged ({type(error).__name__}: {error})"
            raise DataError(folder / STATE_FILE, what, "restore the folder from a copy, or use another one") from error


def _newest(articles: Sequence[Article]) -> str:
    return max((article.date for article in articles), default="")


def _days_between(earlier: str, later: str) -> float:
    """Return the days between two ISO dates; 0 if one is unknown."""
    if not earlier or not later:
        return 0.0
    first, second = (datetime.datetime.fromisoformat(date) for date in (earlier, later))
    return (second - first).total_seconds() / 86_400
