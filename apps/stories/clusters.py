"""From articles to stories: embed → reduce → group → describe. Each step is exchangeable; see the protocols.

Titles are grouped by the log-odds that two of them report one event (`apps.stories.linking`); HDBSCAN on the embedded
titles (`apps.stories.grouping`) is an option. Titles in a routine format are in no story.

>>> rocket = ["누리호 발사대 기립", "누리호, 발사대에 기립", "한국형 발사체 누리호 발사대 기립"]
>>> rate = ["기준금리 동결", "한은 기준금리 동결", "금통위, 기준금리 또 동결"]
>>> [story.headline for story in cluster([*rocket, *rate, "첫눈 내린 고갯길"], embedder=CharNgrams()).stories]
['기준금리 동결', '누리호 발사대 기립']
"""

import functools
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

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
    TypicalityScale,
    nearest_centres,
    refine,
    renumber,
    sub_stories,
)
from apps.stories.keywords import ClassTfidf, Keyword, Labeller
from apps.stories.linking.groups import Levels, cut_by_category, link
from apps.stories.linking.pairs import PairFeatures
from apps.stories.linking.routine import routine_kind
from apps.stories.space import CharNgrams, Embedder, HybridFeatures, Reducer, Space, embed_checked
from corpora.foundation.config import Config
from corpora.foundation.errors import CheckpointError

logger = logging.getLogger(__name__)

__all__ = ["CharNgrams", "Cluster", "ClusteringConfig", "Clusters", "Member", "cluster"]


Method: TypeAlias = Literal["linkage", "sklearn", "hdbscan"]
"""How titles are grouped."""


class ClusteringConfig(Config):
    """All settings; `benchmarks/clustering.py` measures the effect of each."""

    min_size: int = Field(default=3, ge=2)
    """Distinct titles of the smallest story; as many copies of one title are a story, too."""
    min_log_odds: float = 0.0
    """Linkage: mean log-odds from which on titles are a story; higher values give smaller and purer stories."""
    join_similarity: float = Field(default=0.4, ge=0)
    """Linkage: similarity at which two stories are joined; more than 1 joins none by it."""
    attach_similarity: float = Field(default=0.3, ge=0)
    """Linkage: similarity at which a title in no story joins one; more than 1 attaches none."""
    routine: Literal["apart", "group"] = "apart"
    """Keep titles in routine formats (weather, appointments, obituaries, …) out of stories, or group them, too."""
    min_samples: int = Field(default=2, ge=1)
    """HDBSCAN: titles within the core distance of a title, itself included; more give more noise."""
    neighbours: int = Field(default=16, ge=2)
    """Nearest neighbours of each title in HDBSCAN's graph."""
    selection: Literal["leaf", "eom"] = "leaf"
    """HDBSCAN: the finest groups, or the most persistent ones."""
    clusterer: Method = "linkage"
    """Linkage by log-odds, or the package whose HDBSCAN runs: scikit-learn, or `hdbscan` with the same groups in more
    time."""
    noise: Literal["assign", "keep"] = "assign"
    """HDBSCAN: assign every title by its typicality (`apps.stories.grouping`), or keep the labels of HDBSCAN."""
    min_typicality: float = Field(default=0.07, ge=0, le=1)
    """HDBSCAN with `assign`: share of the members of stories that are farther from their centre than one may be."""
    join_at: float = Field(default=0.25, ge=0)
    """HDBSCAN with `assign`: typicality at which two centres are merged; more than 1 merges none."""
    divide_above: int = Field(default=10, ge=2)
    """Distinct titles from which on a story is divided into parts."""
    divide_at: float = Field(default=0.5, ge=0, le=1)
    """Typicality within a part; higher values give more parts."""
    num_keywords: int = Field(default=8, ge=0)
    diversity: float = Field(default=0.3, ge=0, le=1)
    """Penalty for keywords that share characters."""
    dimensions: int = Field(default=256, ge=1)
    """Principal axes of the embeddings that are kept."""
    letter_dimensions: int = Field(default=512, ge=1)
    letter_weight: float = Field(default=0.75, ge=0, le=1)
    """Share of the character n-grams in a cosine; the rest is the embeddings'."""
    by_category: bool = False
    """No story crosses a category: stories are cut by it, and with HDBSCAN found within each."""
    max_age_days: float = Field(default=14.0, ge=0)
    """For persistent stories (`apps.stories`): days after its latest article in which a story accepts new ones."""
    seed: int = Field(default=0, ge=0)
    """Seed of the random projection and of the map."""


@dataclass(frozen=True)
class Member:
    """An article in a story."""

    index: int
    """Index among the articles."""
    typicality: float
    """Share of all stories' members that are no nearer to their centre than this one; see `apps.stories.grouping`."""
    is_core: bool
    """Whether the clusterer assigned it, rather than its typicality."""


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
    """Articles by part of a large story, the largest part first, without members in no part."""
    name: str = ""
    """Name given by an editor."""
    is_pinned: bool = False
    is_new: bool = False
    """Whether it began with the latest batch of articles; never true of a first batch."""

    @property
    def title(self) -> str:
        """The editor's name, else the headline."""
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
    embedded: "EmbeddedArticles"
    """The articles and their points."""
    scale: TypicalityScale
    """The scale of typicality."""
    new: frozenset[int] = frozenset()
    """Indices of the latest batch of articles; empty for a first batch."""

    @property
    def articles(self) -> tuple[Article, ...]:
        """N articles."""
        return self.embedded.articles

    @property
    def points(self) -> Points:
        """float32 (N, P): unit vector of each article; zeros for articles without features."""
        return self.embedded.article_points

    @property
    def labels(self) -> Labels:
        """int64 (N,): index of each article's story in `stories`, −1 for none."""
        labels = np.full(len(self.articles), -1)
        for number, story in enumerate(self.stories):
            labels[[member.index for member in story.members]] = number
        return labels

    @property
    def noise(self) -> tuple[int, ...]:
        """Indices of the articles that are in no story, in order."""
        return tuple(np.flatnonzero(self.labels < 0).tolist())

    @functools.cached_property
    def routine(self) -> dict[str, tuple[int, ...]]:
        """Indices of the articles that are in no story by kind of routine format (`apps.stories.linking.routine`)."""
        found: dict[str, list[int]] = {}
        for index in self.noise:
            if kind := routine_kind(self.articles[index].title):
                found.setdefault(kind, []).append(index)
        return {kind: tuple(found[kind]) for kind in sorted(found, key=lambda kind: (-len(found[kind]), kind))}

    def nearest_story(self, indices: Sequence[int]) -> list[tuple[Cluster, float] | None]:
        """Return the story nearest to each of some articles, and the article's typicality for it.

        None without stories, and for articles without features.
        """
        points = self.embedded.article_points[list(indices)]
        positions, cosines = nearest_centres(points, self.centres)
        ranks = self.scale.typicality(cosines).tolist()
        known = np.asarray((positions >= 0) & points.any(axis=1)).tolist()
        return [
            (self.stories[position], rank) if is_known else None
            for position, rank, is_known in zip(positions.tolist(), ranks, known, strict=True)
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

    The result does not depend on the order of the articles: titles are processed in the order of their digests.

    Args:
        articles: titles, `apps.stories.articles.Article`s or `corpora.documents.Document`s. Titles without a letter
            or digit are in no story.
        config: settings.
        embedder: default: see `default_embedder`; `CharNgrams()` needs no model.
        reducer: default: `apps.stories.space.HybridFeatures` with the settings.
        clusterer: groups points; default: titles are linked by their log-odds, see `ClusteringConfig.clusterer`.
        labeller: default: `apps.stories.keywords.ClassTfidf` with the settings.

    Returns:
        Stories with keywords, members and headline.

    Raises:
        CheckpointError: the embedder cannot be loaded, or its vectors are not one for each text.
        ValueError: `articles` is one string, or an element is no article.
    """
    config = config or ClusteringConfig()
    listed = to_articles(articles)
    embedded = EmbeddedArticles.from_articles(listed, embedder or default_embedder(), reducer or make_reducer(config))
    labels, is_core = find_groups(embedded, config, clusterer or make_clusterer(config))
    return describe(embedded, labels, is_core, config, labeller=labeller)


def default_embedder() -> Embedder:
    """Load the bundled sentence embedder; without one, warn, and compare titles by their character n-grams alone.

    Raises:
        CheckpointError: the bundled embedder is damaged.
    """
    from downstream import embed

    try:
        embed.bundled_embedder()
    except CheckpointError:
        logger.warning("no sentence embedder is bundled: titles are compared by letters alone; name one with --model")
        return CharNgrams()
    return embed.Embedder.load()


def make_reducer(config: ClusteringConfig) -> HybridFeatures:
    """Return the default reducer with the settings."""
    return HybridFeatures(config.dimensions, config.letter_dimensions, config.letter_weight, config.seed)


def make_clusterer(config: ClusteringConfig) -> Density | None:
    """Return HDBSCAN with the settings; None for linkage, which compares titles and not points."""
    if config.clusterer == "linkage":
        return None
    return Density(config.min_size, config.min_samples, config.neighbours, config.selection, config.clusterer)


def make_levels(config: ClusteringConfig) -> Levels:
    """Return the levels of linkage with the settings."""
    return Levels(config.min_log_odds, join=config.join_similarity, attach=config.attach_similarity)


@dataclass(frozen=True)
class EmbeddedArticles:
    """Articles, and the points of their distinct titles."""

    articles: tuple[Article, ...]
    texts: tuple[str, ...]
    """U distinct cleaned titles in the order of their digests."""
    of_article: Labels
    """(N,): index of each article's title in `texts`, −1 for titles without a letter or digit."""
    points: Points
    """(U, P)"""
    space: Space

    @classmethod
    def from_articles(cls, articles: Sequence[Article], embedder: Embedder, reducer: Reducer) -> "EmbeddedArticles":
        """Embed articles and fit a space to them."""
        texts, of_article = distinct_texts(articles)
        vectors = embed_checked(embedder, texts)
        space = reducer.fit(texts, vectors)
        return cls(tuple(articles), texts, of_article, space.transform(texts, vectors), space)

    @property
    def article_points(self) -> Points:
        """(N, P); zeros for articles without a text."""
        nowhere = np.zeros((1, self.points.shape[1]), np.float32)
        return np.vstack([self.points, nowhere])[self.of_article]


def distinct_texts(articles: Sequence[Article]) -> tuple[tuple[str, ...], Labels]:
    """Return the distinct cleaned titles in the order of their digests, and the index of each article's title.

    The index is −1 where cleaning leaves nothing of a title.
    """
    cleaned = [clean_title(article.title) for article in articles]
    texts = sorted(set(cleaned) - {""}, key=lambda text: hashlib.blake2b(text.encode("utf-8")).digest())
    positions = {text: position for position, text in enumerate(texts)} | {"": -1}
    return tuple(texts), np.array([positions[text] for text in cleaned], np.int64)


def find_groups(
    embedded: EmbeddedArticles,
    config: ClusteringConfig,
    clusterer: Clusterer | None,
    scale: TypicalityScale | None = None,
) -> tuple[Labels, NDArray[np.bool_]]:
    """Return the story of each article, −1 for none, and whether the clusterer assigned it.

    Without a CLUSTERER titles are linked by their log-odds (`apps.stories.linking.groups`). SCALE is that of other
    stories in the same space; default: of these. See `apps.stories.grouping.refine`.
    """
    labels, is_core = np.full(len(embedded.articles), -1), np.zeros(len(embedded.articles), bool)
    usable = embedded.article_points.any(axis=1)
    if config.routine == "apart":
        usable &= np.array([routine_kind(article.title) == "" for article in embedded.articles], bool)
    categories = np.array([article.category if config.by_category else "" for article in embedded.articles], object)
    # Linkage compares pairs, so it finds stories in the whole file and cuts them by category afterwards.
    separate = np.full(len(categories), "", object) if clusterer is None else categories
    for category in sorted(set(separate.tolist())):
        members = np.flatnonzero((separate == category) & usable)
        positions, inverse, counts = np.unique(embedded.of_article[members], return_inverse=True, return_counts=True)
        if clusterer is None:
            features = PairFeatures([embedded.texts[position] for position in positions])
            found = link(features, config.min_size, make_levels(config))
            core = found >= 0
        else:
            found, core = _refined(embedded.points[positions], config, clusterer, scale)
        # Copies of one title are a story, even if nothing else is similar.
        copied = np.flatnonzero((found < 0) & (counts >= config.min_size))
        found[copied] = found.max(initial=-1) + 1 + np.arange(len(copied))
        core[copied] = True
        labels[members] = np.where(found >= 0, found + labels.max(initial=-1) + 1, -1)[inverse]
        is_core[members] = core[inverse]
    if clusterer is None and config.by_category:
        labels = cut_by_category(labels, categories, config.min_size)
    return labels, is_core & (labels >= 0)


def _refined(
    points: Points, config: ClusteringConfig, clusterer: Clusterer, scale: TypicalityScale | None
) -> tuple[Labels, NDArray[np.bool_]]:
    found = renumber(np.asarray(clusterer(points), np.int64))
    if config.noise == "keep":
        return found, found >= 0
    return refine(
        points,
        found,
        min_size=config.min_size,
        min_typicality=config.min_typicality,
        join_at=config.join_at,
        scale=scale,
    )


@dataclass(frozen=True)
class Identity:
    """Attributes of a story that do not follow from its articles."""

    id: str = ""
    name: str = ""
    is_pinned: bool = False
    is_new: bool = False


def describe(
    embedded: EmbeddedArticles,
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
        embedded: articles and their points.
        labels: (N,) story of each article, from 0 without gaps, −1 for none.
        is_core: (N,) whether the clusterer assigned it.
        config: settings.
        labeller: default: `apps.stories.keywords.ClassTfidf`.
        identities: one for each story, by label; default: numbers in the order of size.
        new: indices of the latest batch of articles.
    """
    # A title counts once in a story, however many copies there are; within categories it may be in two stories.
    pairs, of_pair = np.unique(np.column_stack([labels, embedded.of_article]), axis=0, return_inverse=True)
    of_pair = of_pair.reshape(-1)
    pair_is_core = np.zeros(len(pairs), bool)
    np.logical_or.at(pair_is_core, of_pair, is_core)
    points = embedded.points[pairs[:, 1]] if len(embedded.points) else np.zeros((len(pairs), 0), np.float32)
    groups = Groups.from_labels(points, pairs[:, 0])
    has_text = pairs[:, 1] >= 0
    labeller = labeller or ClassTfidf(config.num_keywords, config.diversity)
    keywords = labeller([embedded.texts[position] for position in pairs[has_text, 1]], pairs[has_text, 0])
    scale = TypicalityScale.from_groups(points, groups, pair_is_core)
    describer = _Describer(embedded, config, points, of_pair, is_core, groups, groups.own_similarities(points), scale)
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
    return Clusters(tuple(ordered), groups.centres[by_size], embedded, scale, new)


@dataclass(frozen=True)
class _Describer:
    """Shared state for describing the stories one by one."""

    embedded: EmbeddedArticles
    config: ClusteringConfig
    points: Points
    """(Q, P): point of each pair of a story and a distinct title."""
    of_pair: Labels
    """(N,): index of the pair of each article."""
    is_core: NDArray[np.bool_]
    groups: Groups
    own: NDArray[np.float32]
    """(Q,): similarity of each pair's title to the centre of the other members of its story."""
    scale: TypicalityScale

    def describe(
        self, label: int, members: Sequence[int], keywords: tuple[Keyword, ...], identity: Identity
    ) -> Cluster:
        """Return the story of some articles."""
        articles, of_pair = self.embedded.articles, self.of_pair
        ranked = sorted(members, key=lambda k: (-self.own[of_pair[k]], *_tie_break(articles[k]), k))
        distinct = np.array(list(dict.fromkeys(of_pair[ranked].tolist())))
        middle = distinct[np.argmax(self.points[distinct] @ self.groups.centres[label])]
        titles = [articles[k].title for k in ranked if of_pair[k] == middle]
        typicality = self.scale.typicality(self.own[of_pair[ranked]]).tolist()
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
        # Two titles that have this similarity to their centre have its square to each other on average.
        near = self.scale.similarity_at(self.config.divide_at) ** 2
        parts: list[int] = sub_stories(self.points[distinct], near, self.config.min_size).tolist()
        return parts


def _tie_break(article: Article) -> tuple[str, str, str]:
    """Return the sort key of equally typical articles, so that the order of the file has no effect."""
    return article.title, article.date, article.id


def _parts(ranked: Sequence[int], parts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the articles of each part, the largest first; none if one part is the whole story."""
    groups: dict[int, list[int]] = {}
    for index, part in zip(ranked, parts, strict=True):
        groups.setdefault(part, []).append(index)
    groups.pop(-1, None)
    if len(groups) < 2:
        return ()
    return tuple(
        tuple(group) for group in sorted(groups.values(), key=lambda group: (-len(group), ranked.index(group[0])))
    )
