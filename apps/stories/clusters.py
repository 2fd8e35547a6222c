"""From articles to stories: embed → place in a space → group → describe. Each step can be another; see the protocols.

>>> rocket = ["누리호 발사대 기립", "누리호, 발사대에 기립", "한국형 발사체 누리호 발사대 기립"]
>>> rate = ["기준금리 동결", "한은 기준금리 동결", "금통위, 기준금리 또 동결"]
>>> [story.headline for story in cluster([*rocket, *rate, "첫눈 내린 고갯길"], embedder=Letters()).stories]
['기준금리 동결', '누리호 발사대 기립']
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from apps.stories.articles import Article, Articles, clean_title, to_articles
from apps.stories.grouping import (
    Clusterer,
    Density,
    Groups,
    Labels,
    Points,
    Yardstick,
    nearest_centres,
    refine,
    renumbered,
    sub_stories,
)
from apps.stories.keywords import ClassTfidf, Keyword, Labeller
from apps.stories.space import Embedder, Letters, LettersAndMeaning, Reducer, Space, checked
from corpora.foundation.config import Config
from corpora.foundation.errors import CheckpointError

logger = logging.getLogger(__name__)

__all__ = ["Cluster", "ClusteringConfig", "Clusters", "Letters", "Member", "cluster"]


class ClusteringConfig(Config):
    """All settings; what each is worth is told by `benchmarks/clustering.py`."""

    min_size: int = Field(default=3, ge=2)
    """Distinct titles of the smallest story; as many copies of one title are one, too."""
    min_samples: int = Field(default=2, ge=1)
    """HDBSCAN: titles that make a place dense; more leave more titles out."""
    neighbours: int = Field(default=16, ge=2)
    """Nearest neighbours that HDBSCAN's graph remembers of each title."""
    selection: Literal["leaf", "eom"] = "leaf"
    """HDBSCAN: the finest groups, or the most persistent ones."""
    noise: Literal["assign", "keep"] = "assign"
    """Judge every title by its typicality (`apps.stories.grouping`), or leave what HDBSCAN found as it is."""
    min_typicality: float = Field(default=0.07, ge=0, le=1)
    """With `assign`: share of the members of stories that are farther from their centre than any member may be."""
    join_at: float = Field(default=0.25, ge=0)
    """With `assign`: typicality at which two centres are one story; more than 1 joins none."""
    divide_above: int = Field(default=10, ge=2)
    """Distinct titles from which on a story is divided into parts."""
    divide_at: float = Field(default=0.5, ge=0, le=1)
    """Typicality that holds a part together; more makes more parts."""
    num_keywords: int = Field(default=8, ge=0)
    diversity: float = Field(default=0.3, ge=0, le=1)
    """Deduction for keywords that share letters."""
    dimensions: int = Field(default=256, ge=1)
    """Principal axes that are kept of the embedder's vectors."""
    letter_dimensions: int = Field(default=512, ge=1)
    letter_weight: float = Field(default=0.75, ge=0, le=1)
    """Share of character n-grams in what is similar, beside the embedder."""
    by_category: bool = False
    """Find stories within each category, instead of across all."""
    max_age_days: float = Field(default=14.0, ge=0)
    """Of stories that are kept (`apps.stories`): days after its latest article that a story takes new ones."""
    seed: int = Field(default=0, ge=0)
    """Of the random projection, and of the map."""


@dataclass(frozen=True)
class Member:
    """An article in a story."""

    index: int
    """Place among the articles."""
    typicality: float
    """Share of all stories' members that are no nearer to their centre than this one; see `apps.stories.grouping`."""
    is_core: bool
    """Whether the clusterer itself put it here, and not its typicality."""


@dataclass(frozen=True)
class Cluster:
    """A story: articles on one event."""

    id: str
    headline: str
    """Title of the member nearest the centre."""
    keywords: tuple[Keyword, ...]
    members: tuple[Member, ...]
    """The most typical first."""
    parts: tuple[tuple[int, ...], ...] = ()
    """Articles by part of a large story, the largest part first; members in no part are left out."""
    name: str = ""
    """An editor's own name for it."""
    is_pinned: bool = False
    is_new: bool = False
    """Whether it began with the latest articles; never without earlier ones."""

    @property
    def title(self) -> str:
        """What it is called: the editor's name, else the headline."""
        return self.name or self.headline

    def __len__(self) -> int:
        """Return the number of articles."""
        return len(self.members)


@dataclass(frozen=True)
class Clusters:
    """The stories of some articles."""

    stories: tuple[Cluster, ...]
    """Pinned ones first, then by size."""
    centres: Points
    """float32 (K, P): unit vector of each story."""
    day: "Day"
    """The articles in their space."""
    yardstick: Yardstick
    """What typicality is measured by."""
    new: frozenset[int] = frozenset()
    """Indices of the latest articles, if there were earlier ones."""

    @property
    def articles(self) -> tuple[Article, ...]:
        """N articles."""
        return self.day.articles

    @property
    def points(self) -> Points:
        """float32 (N, P): unit vector of each article; zeros where there is nothing to go by."""
        return self.day.article_points

    @property
    def labels(self) -> Labels:
        """int64 (N,): the place of each article's story in `stories`, −1 for none."""
        labels = np.full(len(self.articles), -1)
        for number, story in enumerate(self.stories):
            labels[[member.index for member in story.members]] = number
        return labels

    @property
    def noise(self) -> tuple[int, ...]:
        """Indices of the articles that are in no story, in order."""
        return tuple(np.flatnonzero(self.labels < 0).tolist())

    def nearest_story(self, indices: Sequence[int]) -> list[tuple[Cluster, float] | None]:
        """Return the story nearest to each of some articles, and how typical of a story's member the nearness is.

        None where there are no stories, and for articles that have nothing to compare.
        """
        points = self.day.article_points[list(indices)]
        places, cosines = nearest_centres(points, self.centres)
        ranks = self.yardstick.typicality(cosines).tolist()
        known = np.asarray((places >= 0) & points.any(axis=1)).tolist()
        return [
            (self.stories[place], rank) if is_known else None
            for place, rank, is_known in zip(places.tolist(), ranks, known, strict=True)
        ]


def cluster(
    articles: Articles,
    config: ClusteringConfig | None = None,
    *,
    embedder: Embedder | None = None,
    reducer: Reducer | None = None,
    clusterer: Clusterer | None = None,
    labeller: Labeller | None = None,
) -> Clusters:
    """Find the stories among articles.

    The order of the articles decides nothing: what is computed is computed in the order of digests of the titles.

    Args:
        articles: titles, `apps.stories.articles.Article`s or `corpora.documents.Document`s. Titles without a letter
            or digit are in no story.
        config: settings.
        embedder: default: see `default_embedder`; `Letters()` needs no model.
        reducer: default: `apps.stories.space.LettersAndMeaning` with the settings.
        clusterer: default: `apps.stories.grouping.Density` with the settings.
        labeller: default: `apps.stories.keywords.ClassTfidf` with the settings.

    Returns:
        Stories with keywords, members and headline.

    Raises:
        CheckpointError: the embedder cannot be loaded, or its vectors are not one for each text.
        ValueError: `articles` is one string, or holds something else than articles.
    """
    config = config or ClusteringConfig()
    listed = to_articles(articles)
    day = Day.of(listed, embedder or default_embedder(), reducer or reducer_of(config))
    labels, is_core = find_groups(day, config, clusterer or clusterer_of(config))
    return describe(day, labels, is_core, config, labeller=labeller)


def default_embedder() -> Embedder:
    """Load the sentence embedder that comes with the package; where there is none, say so, and take letters alone.

    Raises:
        CheckpointError: there is one, and it is damaged.
    """
    from downstream import embed

    try:
        embed.bundled_embedder()
    except CheckpointError:
        logger.warning("no sentence embedder is bundled: titles are compared by their letters alone; --model names one")
        return Letters()
    return embed.Embedder.load()


def reducer_of(config: ClusteringConfig) -> LettersAndMeaning:
    """Return the default reducer with settings."""
    return LettersAndMeaning(config.dimensions, config.letter_dimensions, config.letter_weight, config.seed)


def clusterer_of(config: ClusteringConfig) -> Density:
    """Return the default clusterer with settings."""
    return Density(config.min_size, config.min_samples, config.neighbours, config.selection)


@dataclass(frozen=True)
class Day:
    """Articles, and the distinct titles among them in a space."""

    articles: tuple[Article, ...]
    texts: tuple[str, ...]
    """Distinct cleaned titles in the order of their digests; U of them."""
    of_article: Labels
    """(N,): place of each article's title in `texts`, −1 for titles that have nothing to compare."""
    points: Points
    """(U, P)"""
    space: Space

    @classmethod
    def of(cls, articles: Sequence[Article], embedder: Embedder, reducer: Reducer) -> "Day":
        """Embed articles and make a space of them."""
        texts, of_article = distinct_texts(articles)
        vectors = checked(embedder, texts)
        space = reducer.fit(texts, vectors)
        return cls(tuple(articles), texts, of_article, space.place(texts, vectors), space)

    @property
    def article_points(self) -> Points:
        """(N, P); zeros for articles without a text."""
        nowhere = np.zeros((1, self.points.shape[1]), np.float32)
        return np.vstack([self.points, nowhere])[self.of_article]


def distinct_texts(articles: Sequence[Article]) -> tuple[tuple[str, ...], Labels]:
    """Return the distinct titles as they are compared, in the order of their digests, and the place of each article's.

    The place is −1 where nothing is left of a title.
    """
    cleaned = [clean_title(article.title) for article in articles]
    texts = sorted(set(cleaned) - {""}, key=lambda text: hashlib.blake2b(text.encode("utf-8")).digest())
    places = {text: place for place, text in enumerate(texts)} | {"": -1}
    return tuple(texts), np.array([places[text] for text in cleaned], np.int64)


def find_groups(
    day: Day, config: ClusteringConfig, clusterer: Clusterer, yardstick: Yardstick | None = None
) -> tuple[Labels, NDArray[np.bool_]]:
    """Return the story of each article, −1 for none, and whether the clusterer put it there.

    YARDSTICK is what nearness is measured by, if not by these stories themselves; see `apps.stories.grouping.refine`.
    """
    categories = np.array([article.category if config.by_category else "" for article in day.articles], dtype=object)
    labels, is_core = np.full(len(day.articles), -1), np.zeros(len(day.articles), bool)
    has_direction = day.article_points.any(axis=1)
    for category in sorted(set(categories.tolist())):
        members = np.flatnonzero((categories == category) & has_direction)
        places, inverse, counts = np.unique(day.of_article[members], return_inverse=True, return_counts=True)
        points = day.points[places]
        found = renumbered(np.asarray(clusterer(points), np.int64))
        core = found >= 0
        if config.noise == "assign":
            found, core = refine(
                points,
                found,
                min_size=config.min_size,
                min_typicality=config.min_typicality,
                join_at=config.join_at,
                yardstick=yardstick,
            )
        # Copies of one title are a story, however lonely the title is.
        copied = np.flatnonzero((found < 0) & (counts >= config.min_size))
        found[copied] = found.max(initial=-1) + 1 + np.arange(len(copied))
        core[copied] = True
        labels[members] = np.where(found >= 0, found + labels.max(initial=-1) + 1, -1)[inverse]
        is_core[members] = core[inverse]
    return labels, is_core


@dataclass(frozen=True)
class Identity:
    """What a story is besides its articles."""

    id: str = ""
    name: str = ""
    is_pinned: bool = False
    is_new: bool = False


def describe(
    day: Day,
    labels: Labels,
    is_core: NDArray[np.bool_],
    config: ClusteringConfig,
    *,
    labeller: Labeller | None = None,
    identities: Sequence[Identity] = (),
    new: frozenset[int] = frozenset(),
) -> Clusters:
    """Describe stories: headline, keywords, order of members, parts.

    Args:
        day: articles in their space.
        labels: (N,) story of each article, from 0 without gaps, −1 for none.
        is_core: (N,) whether the clusterer put it there.
        config: settings.
        labeller: default: `apps.stories.keywords.ClassTfidf`.
        identities: of each story, by label; default: numbers in the order of size.
        new: indices of the latest articles.
    """
    # A title counts once in a story, however many copies there are; within categories it may be in two stories.
    pairs, of_pair = np.unique(np.column_stack([labels, day.of_article]), axis=0, return_inverse=True)
    of_pair = of_pair.reshape(-1)
    pair_is_core = np.zeros(len(pairs), bool)
    np.logical_or.at(pair_is_core, of_pair, is_core)
    points = day.points[pairs[:, 1]] if len(day.points) else np.zeros((len(pairs), 0), np.float32)
    groups = Groups.of(points, pairs[:, 0])
    has_text = pairs[:, 1] >= 0
    labeller = labeller or ClassTfidf(config.num_keywords, config.diversity)
    keywords = labeller([day.texts[place] for place in pairs[has_text, 1]], pairs[has_text, 0])
    yardstick = Yardstick.of(points, groups, pair_is_core)
    describer = _Describer(day, config, points, of_pair, is_core, groups, groups.own_similarities(points), yardstick)
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(len(groups.sizes) + 1))
    stories = [
        describer.describe(label, members.tolist(), keywords[label], identities[label] if identities else Identity())
        for label, members in enumerate(np.split(order, starts)[1:-1])
    ]
    by_size = sorted(
        range(len(stories)), key=lambda k: (not stories[k].is_pinned, -len(stories[k]), stories[k].headline)
    )
    ordered = [stories[label] for label in by_size]
    if not identities:
        ordered = [replace(story, id=str(number)) for number, story in enumerate(ordered, start=1)]
    return Clusters(tuple(ordered), groups.centres[by_size], day, yardstick, new)


@dataclass(frozen=True)
class _Describer:
    """What is needed to describe one story after the other."""

    day: Day
    config: ClusteringConfig
    points: Points
    """Of each pair of a story and a distinct title."""
    of_pair: Labels
    """(N,): the pair of each article."""
    is_core: NDArray[np.bool_]
    groups: Groups
    own: NDArray[np.float32]
    """Similarity of each pair's title to the centre of the others of its story."""
    yardstick: Yardstick

    def describe(
        self, label: int, members: Sequence[int], keywords: tuple[Keyword, ...], identity: Identity
    ) -> Cluster:
        """Return the story of some articles."""
        articles, of_pair = self.day.articles, self.of_pair
        ranked = sorted(members, key=lambda k: (-self.own[of_pair[k]], *_place_in_order(articles[k]), k))
        distinct = np.array(list(dict.fromkeys(of_pair[ranked].tolist())))
        middle = distinct[np.argmax(self.points[distinct] @ self.groups.centres[label])]
        titles = [articles[k].title for k in ranked if of_pair[k] == middle]
        typicality = self.yardstick.typicality(self.own[of_pair[ranked]]).tolist()
        part_of = dict(zip(distinct.tolist(), self._divide(distinct), strict=True))
        return Cluster(
            id=identity.id,
            headline=min(titles, key=lambda title: (len(title), title)),
            keywords=keywords,
            members=tuple(Member(k, rank, bool(self.is_core[k])) for k, rank in zip(ranked, typicality, strict=True)),
            parts=_parts(ranked, [part_of[pair] for pair in of_pair[ranked].tolist()]),
            name=identity.name,
            is_pinned=identity.is_pinned,
            is_new=identity.is_new,
        )

    def _divide(self, distinct: Labels) -> list[int]:
        """Return the part of each of a story's titles, −1 for none."""
        if len(distinct) < self.config.divide_above:
            return [-1] * len(distinct)
        # Two titles that are each so near to their centre are as near to each other as the product.
        near = self.yardstick.similarity_at(self.config.divide_at) ** 2
        parts: list[int] = sub_stories(self.points[distinct], near, self.config.min_size).tolist()
        return parts


def _place_in_order(article: Article) -> tuple[str, str, str]:
    """Return what decides between equally typical articles, so that their order in the file does not."""
    return article.title, article.date, article.id


def _parts(ranked: Sequence[int], parts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the articles of each part, the largest first; a part that is the whole story is none."""
    groups: dict[int, list[int]] = {}
    for index, part in zip(ranked, parts, strict=True):
        groups.setdefault(part, []).append(index)
    groups.pop(-1, None)
    if len(groups) < 2:
        return ()
    return tuple(
        tuple(group) for group in sorted(groups.values(), key=lambda group: (-len(group), ranked.index(group[0])))
    )
