"""Stories of a day: that they are found, whatever the order, and that every setting and step does something."""

import doctest
import os
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.metrics import adjusted_rand_score

import apps.stories.clusters
from apps.clustering import CharNgrams, ClusteringConfig, Clusters, Keyword, cluster
from apps.stories.articles import Article, clean_title
from apps.stories.clusters import make_clusterer
from apps.stories.space import Embedder

ROOT = Path(__file__).resolve().parents[3]


class News(Protocol):
    articles: tuple[Article, ...]
    events: NDArray[np.int64]


def stories_of(clusters: Clusters) -> set[frozenset[str]]:
    """Return the stories as sets of ids."""
    return {frozenset(clusters.articles[m.index].id for m in story.members) for story in clusters.stories}


def found(news: News, embedder: Embedder | None = None, **settings: Any) -> Clusters:
    return cluster(news.articles, ClusteringConfig(**settings), embedder=embedder or CharNgrams())


def test_the_events_of_a_day_are_its_stories(news: News) -> None:
    clusters = found(news)
    is_event = news.events >= 0
    assert adjusted_rand_score(news.events[is_event], clusters.labels[is_event]) > 0.9
    assert np.mean(clusters.labels[~is_event] < 0) == 1
    assert {news.articles[index].title for index in clusters.noise} >= {"[포토] 두루미 떼의 비행"}


def test_a_story_has_headline_keywords_and_members(news: News) -> None:
    clusters = found(news)
    for story in clusters.stories:
        titles = {clusters.articles[member.index].title for member in story.members}
        assert story.headline in titles
        assert story.title == story.headline
        assert 0 < len(story.keywords) <= 8
        assert all(keyword.weight > 0 for keyword in story.keywords)
        assert list(story.members) == sorted(story.members, key=lambda member: -member.typicality)
        assert all(0 <= member.typicality <= 1 for member in story.members)
    assert [story.id for story in clusters.stories] == [str(k + 1) for k in range(len(clusters.stories))]
    sizes = [len(story) for story in clusters.stories]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) + len(clusters.noise) == len(news.articles)


def test_the_headline_is_the_member_nearest_the_centre(news: News) -> None:
    clusters = found(news)
    for story, centre in zip(clusters.stories, clusters.centres, strict=True):
        indices = [member.index for member in story.members]
        cosines = clusters.points[indices] @ centre
        best = {
            clean_title(clusters.articles[k].title)
            for k, c in zip(indices, cosines, strict=True)
            if c > cosines.max() - 1e-5
        }
        assert clean_title(story.headline) in best
        assert np.linalg.norm(centre) == pytest.approx(1, abs=1e-5)


def test_the_order_of_the_articles_decides_nothing(news: News, words: Embedder) -> None:
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(news.articles))
        before = cluster(news.articles, embedder=words)
        after = cluster([news.articles[k] for k in order], embedder=words)
        assert stories_of(before) == stories_of(after), seed
        assert [(s.headline, s.keywords) for s in before.stories] == [
            (s.headline, s.keywords) for s in after.stories
        ], seed
        same = [[before.articles[m.index].id for m in story.members] for story in before.stories]
        assert same == [[after.articles[m.index].id for m in story.members] for story in after.stories], seed


THREADS = """
import sys
import numpy as np
from apps.stories.clusters import ClusteringConfig, EmbeddedArticles, make_clusterer, find_groups, make_reducer
from apps.stories.articles import to_articles

class Noise:
    sha256 = "noise"
    def encode(self, texts):
        return np.random.default_rng(len(texts)).standard_normal((len(texts), 96)).astype(np.float32)

titles = [f"{a} {b} {c}번째 {d}" for a in ("벼리시", "다솔군", "서율시") for b in ("예산", "축제", "감사", "도로")
          for c in range(1, 11) for d in ("발표", "개최", "취소", "논란", "연기", "확정", "추진")]
embedded = EmbeddedArticles.from_articles(to_articles(titles), Noise(), make_reducer(ClusteringConfig()))
sys.stdout.buffer.write(embedded.points.tobytes())
for config in (ClusteringConfig(), ClusteringConfig(clusterer="sklearn")):
    labels, is_core = find_groups(embedded, config, make_clusterer(config))
    sys.stdout.buffer.write(labels.tobytes() + is_core.tobytes())
"""


@pytest.mark.slow
def test_points_and_labels_are_the_same_bytes_with_one_thread_and_with_two() -> None:
    outputs = []
    for threads in ("1", "2"):
        limits = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED"), threads
        )
        command = [sys.executable, "-c", THREADS]
        outputs.append(
            subprocess.run(command, cwd=ROOT, env=os.environ | limits, capture_output=True, check=True).stdout
        )
    assert outputs[0] == outputs[1] != b""


# ---- edges ----


def test_few_or_empty_titles_make_no_story() -> None:
    for titles in [[], ["첫눈"], ["첫눈", "막차 연장"], ["", "···", "[ ]"]]:
        clusters = cluster(titles, embedder=CharNgrams())
        assert clusters.stories == (), titles
        assert clusters.noise == tuple(range(len(titles))), titles
        assert clusters.labels.tolist() == [-1] * len(titles), titles


def test_equal_titles_are_one_story() -> None:
    for noise in ["assign", "keep"]:
        clusters = cluster(["경매정보"] * 5, ClusteringConfig(noise=noise), embedder=CharNgrams())
        (story,) = clusters.stories
        assert (len(story), story.headline) == (5, "경매정보"), noise
        assert all(member.typicality == 0 or member.is_core for member in story.members), noise


def test_copies_of_a_lonely_title_are_a_story_and_stay_together(news: News) -> None:
    titles = [article.title for article in news.articles] + ["아무도 모르는 별자리 축제"] * 3 + ["[포토] 첫눈 온다"] * 2
    clusters = cluster(titles, embedder=CharNgrams())
    labels = clusters.labels[-5:]
    assert len(set(labels[:3].tolist())) == 1
    assert labels[0] >= 0
    assert labels[3] == labels[4] == -1


def test_vectors_without_information_give_a_defined_result(news: News) -> None:
    class Broken:
        sha256 = "broken"

        def __init__(self, vectors: str) -> None:
            self.vectors = vectors

        def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
            rows = np.ones((len(texts), 4), np.float32)
            rows[:: 1 if self.vectors == "nan" else 3] = np.nan if self.vectors != "equal" else 1
            return rows

    for vectors in ["nan", "equal", "some nan"]:
        clusters = found(news, Broken(vectors))
        assert stories_of(clusters) == stories_of(found(news)), vectors
        alone = found(news, Broken(vectors), letter_weight=0)
        assert len(alone.labels) == len(news.articles), vectors


HOSTILE = (
    "<script>alert(1)</script> & \"quotes\" 'here'",
    "🎉🎊 축제 👨‍👩‍👧‍👦 개막 🎉",
    unicodedata.normalize("NFD", "풀어쓴 자모 제목"),
    "짝 없는 \ud800 글자 \udfff",
    "가" * 100_000,
    "\x00\x07\u202e거꾸로 쓴 제목\u200b",
    "=cmd|' /C calc'!A0",
    "{{ 7 * 7 }} {% raw %}",
    "a" * 200 + " " + "ㅋ" * 500,
    "\n\n\t",
)


def test_hostile_titles_go_through_and_equal_ones_meet(news: News) -> None:
    titles = [*(article.title for article in news.articles), *HOSTILE * 3]
    clusters = cluster(titles, embedder=CharNgrams())
    first = len(news.articles)
    labels = clusters.labels[first:].reshape(3, -1)
    assert (labels == labels[0]).all()
    assert (labels[0, :-1] >= 0).all()
    assert labels[0, -1] == -1
    for article in clusters.articles:
        article.title.encode("utf-8")
    composed = cluster(
        [unicodedata.normalize("NFD", title) for title in titles if title.isprintable()], embedder=CharNgrams()
    )
    plain = cluster([title for title in titles if title.isprintable()], embedder=CharNgrams())
    assert composed.labels.tolist() == plain.labels.tolist()


# ---- settings and steps ----


class Nested:
    """Six events of three aspects of six titles, and 30 titles on their own, as vectors; a title is a number."""

    sha256 = "nested"

    def __init__(self) -> None:
        random = np.random.default_rng(3)

        def near(middle: NDArray[np.float64], distance: float) -> NDArray[np.float64]:
            step = random.standard_normal(24)
            row: NDArray[np.float64] = middle + distance * step / np.linalg.norm(step)
            return row / np.linalg.norm(row)

        rows = []
        for _ in range(6):
            event = near(np.zeros(24), 1)
            for _ in range(3):
                aspect = near(event, 0.6)
                rows += [near(aspect, 0.6) for _ in range(6)]
        self.vectors = np.array([*rows, *(near(np.zeros(24), 1) for _ in range(30))], np.float32)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.vectors[[int(text.split()[0]) for text in texts]]

    @property
    def articles(self) -> list[Article]:
        size = len(self.vectors)
        return [Article(f"{k} 번째 기사 소식", str(k), category="가" if k % 2 else "나") for k in range(size)]


def signature(clusters: Clusters) -> object:
    return (
        clusters.labels.tolist(),
        clusters.centres.tobytes(),
        [story.keywords for story in clusters.stories],
        [story.parts for story in clusters.stories],
        [[member.is_core for member in story.members] for story in clusters.stories],
    )


SETTINGS: list[tuple[str, object, dict[str, Any]]] = [
    ("min_size", 7, {}),
    ("min_samples", 6, {}),
    ("neighbours", 2, {}),
    ("selection", "eom", {}),
    ("noise", "keep", {}),
    ("min_typicality", 0.3, {}),
    ("join_at", 0.0, {}),
    ("join_at", 2.0, {"join_at": 0.0}),
    ("divide_above", 30, {"selection": "eom"}),
    ("divide_at", 0.9, {"selection": "eom"}),
    ("num_keywords", 1, {}),
    ("diversity", 0.0, {"num_keywords": 2}),
    ("dimensions", 6, {}),
    ("letter_dimensions", 64, {}),
    ("letter_weight", 0.5, {}),
    ("by_category", True, {}),
    ("seed", 9, {}),
]


@pytest.mark.slow
def test_every_setting_is_used() -> None:
    for setting, value, others in SETTINGS:
        nested = Nested()
        settings = {"letter_weight": 0.1, "clusterer": "sklearn"} | others
        before = cluster(nested.articles, ClusteringConfig(**settings), embedder=nested)
        after = cluster(nested.articles, ClusteringConfig(**settings | {setting: value}), embedder=nested)
        assert signature(before) != signature(after), (setting, value)


def test_all_settings_are_tested_here_or_change_no_clusters() -> None:
    linkage = {"min_log_odds", "join_similarity", "attach_similarity", "routine"}
    others = {"max_age_days", "clusterer", *linkage}
    assert {name for name, *_ in SETTINGS} == set(ClusteringConfig.model_fields) - others
    density = make_clusterer(ClusteringConfig(clusterer="hdbscan"))
    assert density is not None
    assert density.library == "hdbscan"
    assert make_clusterer(ClusteringConfig()) is None


def test_wrong_settings_are_refused() -> None:
    for settings in [{"min_size": 1}, {"letter_weight": 2}, {"noise": "drop"}, {"min_sise": 3}]:
        with pytest.raises(ValidationError):
            ClusteringConfig(**settings)


def test_within_categories_no_story_crosses_one(news: News) -> None:
    articles = [
        Article(a.title, a.id, a.text, a.date, "지역" if k % 2 else a.category) for k, a in enumerate(news.articles)
    ]
    clusters = cluster(articles, ClusteringConfig(by_category=True), embedder=CharNgrams())
    assert clusters.stories
    for story in clusters.stories:
        assert len({clusters.articles[member.index].category for member in story.members}) == 1
    ids = [story.id for story in clusters.stories]
    assert len(set(ids)) == len(ids)


def test_noise_is_kept_or_assigned(news: News) -> None:
    raw = np.full(len({clean_title(a.title) for a in news.articles}), -1)

    def nothing(points: NDArray[np.float32]) -> NDArray[np.int64]:
        return raw[: len(points)]

    assert cluster(news.articles, embedder=CharNgrams(), clusterer=nothing).stories == ()
    nested = Nested()
    by_points: dict[str, Any] = {"clusterer": "sklearn", "letter_weight": 0.1}
    kept = cluster(nested.articles, ClusteringConfig(noise="keep", **by_points), embedder=nested)
    assert all(member.is_core for story in kept.stories for member in story.members)
    assigned = cluster(nested.articles, ClusteringConfig(min_typicality=0, **by_points), embedder=nested)
    assert set(assigned.noise) < set(kept.noise)
    late = {m.index for story in assigned.stories for m in story.members if not m.is_core}
    assert late == set(kept.noise) - set(assigned.noise)
    strict = cluster(nested.articles, ClusteringConfig(min_typicality=0.3, **by_points), embedder=nested)
    assert set(strict.noise) > set(kept.noise)


def test_articles_in_no_story_have_a_nearest_one(news: News) -> None:
    clusters = found(news)
    for story in clusters.stories:
        indices = [member.index for member in story.members]
        assert {near[0].id for near in clusters.nearest_story(indices) if near} == {story.id}
    more = cluster([*news.articles, "너울전자 주가 하락 소식에 한숨 쉬는 사람들", "···"], embedder=CharNgrams())
    first = len(news.articles)
    assert more.noise[-2:] == (first, first + 1)
    stranger, nothing = more.nearest_story([first, first + 1])
    assert nothing is None
    assert stranger is not None
    assert {more.articles[m.index].id.partition("-")[0] for m in stranger[0].members} == {"a1"}
    assert 0 <= stranger[1] < min(member.typicality for member in stranger[0].members)
    assert cluster(["첫눈"], embedder=CharNgrams()).nearest_story([0]) == [None]


def test_each_step_can_be_another(news: News) -> None:
    class Pairs:
        """Places texts by their first letter alone."""

        def fit(self, *_: object) -> "Pairs":
            return self

        def transform(self, texts: Sequence[str], *_: object) -> NDArray[np.float32]:
            positions = {letter: k for k, letter in enumerate(sorted({text[0] for text in texts}))}
            rows = np.zeros((len(texts), len(positions)), np.float32)
            rows[np.arange(len(texts)), [positions[text[0]] for text in texts]] = 1
            return rows

    def by_letter(points: NDArray[np.float32]) -> NDArray[np.int64]:
        return points.argmax(axis=1)

    def first_words(texts: Sequence[str], labels: NDArray[np.int64]) -> list[tuple[Keyword, ...]]:
        return [(Keyword(texts[labels.tolist().index(k)][0], 1.0),) for k in range(labels.max() + 1)]

    clusters = cluster(
        news.articles,
        ClusteringConfig(noise="keep"),
        embedder=CharNgrams(),
        reducer=Pairs(),
        clusterer=by_letter,
        labeller=first_words,
    )
    for story in clusters.stories:
        (keyword,) = story.keywords
        assert {clean_title(clusters.articles[m.index].title)[0] for m in story.members} == {keyword.text}


def test_a_large_story_has_parts() -> None:
    nested = Nested()
    config = ClusteringConfig(clusterer="sklearn", selection="eom", letter_weight=0.1)
    clusters = cluster(nested.articles, config, embedder=nested)
    divided = [story for story in clusters.stories if story.parts]
    assert len(divided) >= 4
    for story in divided:
        parts = [set(part) for part in story.parts]
        assert set().union(*parts) <= {member.index for member in story.members}
        assert sum(map(len, parts)) == len(set().union(*parts))
        assert [len(part) for part in parts] == sorted(map(len, parts), reverse=True)
    # The first six titles are one aspect, and so on: parts are aspects or several of them.
    aspects = [{index // 6 for index in part} for story in divided for part in story.parts]
    assert np.mean([len(some) == 1 for some in aspects]) > 0.5


def test_one_string_is_no_list_of_titles() -> None:
    with pytest.raises(ValueError, match="one string"):
        cluster("기준금리 동결", embedder=CharNgrams())


def test_the_examples_are_true() -> None:
    assert doctest.testmod(apps.stories.clusters).failed == 0
