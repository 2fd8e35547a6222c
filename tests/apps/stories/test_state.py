"""Stories that live on: joining, founding, editing and taking back, and what is on the disk."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from apps.stories.__main__ import main
from apps.stories.articles import Article
from apps.stories.clusters import ClusteringConfig
from apps.stories.grouping import TypicalityScale
from apps.stories.records import STATE_FILE
from apps.stories.space import CharNgrams, Embedder
from apps.stories.state import MAX_UNDO, Stories
from corpora.foundation.errors import CheckpointError, DataError, UsageError

ROOT = Path(__file__).resolve().parents[3]
Fails = Callable[..., AbstractContextManager[None]]


class News(Protocol):
    articles: tuple[Article, ...]
    events: NDArray[np.int64]


@pytest.fixture
def morning(news: News) -> Stories:
    """Return the stories of all but two tellings of each event."""
    return Stories.fit(early(news), embedder=CharNgrams())


def early(news: News) -> list[Article]:
    return [a for a in news.articles if not a.id.endswith(("-4", "-5"))]


def late(news: News) -> list[Article]:
    return [a for a in news.articles if a.id.endswith(("-4", "-5"))]


def by_story(stories: Stories) -> dict[str, list[str]]:
    return {id_: [stories.articles[k].id for k in stories.members(id_)] for id_ in stories.stories}


def event_of(ids: list[str]) -> set[str]:
    return {id_.partition("-")[0] for id_ in ids}


# ---- articles ----


def test_new_articles_join_the_story_of_their_event(news: News, morning: Stories) -> None:
    before = by_story(morning)
    joined = morning.assign(late(news), embedder=CharNgrams())
    hits = [story for story in joined if story is not None]
    assert len(hits) >= 0.6 * len(joined)
    for article, story in zip(late(news), joined, strict=True):
        if story is not None:
            assert event_of([article.id]) <= event_of(before[story])
    # Nobody was moved, and no story got another id.
    after = by_story(morning)
    assert all(after[story][: len(ids)] == ids for story, ids in before.items())


def test_what_fits_nowhere_waits_and_founds_a_story(morning: Stories) -> None:
    strangers = [f"다람쥐 구조대 {what} 창설" for what in ("마침내", "드디어", "오늘", "내일", "곧")]
    assert morning.assign(strangers, embedder=CharNgrams()) == [None] * 5
    ids = set(morning.stories)
    (new,) = morning.found()
    assert new not in ids
    assert {morning.articles[k].title for k in morning.members(new)} == set(strangers)
    assert morning.assign(["다람쥐 구조대 드디어 창설 기념"], embedder=CharNgrams()) == [new]
    assert morning.found() == []


def test_late_articles_of_one_story_do_not_found_a_second_one(news: News) -> None:
    for joins in [True, False]:
        first = [article for article in news.articles if article.id.endswith(("-0", "-1", "-2"))]
        later = [article for article in news.articles if article.id.endswith(("-3", "-4", "-5"))]
        stories = Stories.fit(
            first, ClusteringConfig(clusterer="sklearn", join_at=0.25 if joins else 2), embedder=CharNgrams()
        )
        measure, before = stories.scale, set(stories.stories)
        stories.scale = TypicalityScale(np.ones(9, np.float32), np.ones(9, np.float32))  # none alone is near enough
        assert set(stories.assign(later, embedder=CharNgrams())) == {None}, joins
        stories.scale = measure
        assert len(stories.found()) == (0 if joins else len(before)), joins
        assert all(stories.story_of), joins
        assert all(len(event_of(ids)) == 1 for ids in by_story(stories).values()), joins


def test_the_order_within_a_batch_decides_nothing(news: News) -> None:
    states = []
    for step in (1, -1):
        stories = Stories.fit(early(news), embedder=CharNgrams())
        batch = late(news)[::step]
        joined = stories.assign(batch, embedder=CharNgrams())
        states.append({article.id: story for article, story in zip(batch, joined, strict=True)})
    assert states[0] == states[1]


def test_known_articles_stay_where_they_are(news: News, morning: Stories) -> None:
    size = len(morning.articles)
    again = morning.assign([*early(news), *early(news)[:3]], embedder=CharNgrams())
    assert len(morning.articles) == size
    assert again[: len(early(news))] == [story or None for story in morning.story_of]


def test_a_batch_of_known_articles_changes_nothing(news: News, tmp_path: Path) -> None:
    def in_file(name: str) -> list[Article]:
        return [replace(article, id=f"{name}.csv:{line}") for line, article in enumerate(early(news), start=2)]

    titles = [article.title for article in early(news)]
    for kind, first, later in (
        ("ids", early(news), early(news)),
        ("same file", in_file("morning"), in_file("morning")),
        ("renamed file", in_file("morning"), in_file("copy")),
        ("titles", titles, titles),
    ):
        stories = Stories.fit(first, embedder=CharNgrams())
        stories.assign(["지하철 막차 연장 검토"], embedder=CharNgrams())
        stories.found()
        folder = tmp_path / kind
        stories.save(folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        again = Stories.load(folder)
        joined = again.assign([*later[3:], *later[:3]], embedder=CharNgrams())
        assert joined[-3:] == [story or None for story in again.story_of[:3]], kind
        assert again.found() == [], kind
        again.save(folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before, kind


def test_a_title_without_an_id_is_known_as_often_as_it_occurs(morning: Stories) -> None:
    size = len(morning.articles)
    for number, added in ((2, 2), (2, 0), (3, 1), (1, 0)):
        morning.assign(["첫눈 내린 고갯길"] * number, embedder=CharNgrams())
        size += added
        assert len(morning.articles) == size, number
    morning.assign([Article("첫눈 내린 고갯길", id="n-17")], embedder=CharNgrams())
    assert len(morning.articles) == size + 1


def test_waiting_articles_found_no_story_without_a_new_one(morning: Stories) -> None:
    morning.assign(["두루미 떼 북상 시작", "두루미 떼 북상 이어져"], embedder=CharNgrams())
    assert morning.found() == []
    morning.assign(["두루미 떼 북상 막바지"], embedder=CharNgrams())
    (found,) = morning.found()
    assert len(morning.members(found)) == 3
    assert morning.found() == []


def test_a_copy_joins_where_its_original_is(morning: Stories) -> None:
    id_ = next(iter(morning.stories))
    odd = "아무 관계 없는 별자리 이야기"
    morning.assign([odd], embedder=CharNgrams())
    morning.story_of[-1] = id_
    assert morning.assign([f"[포토] {odd}"], embedder=CharNgrams()) == [id_]


def test_titles_with_nothing_to_compare_wait(morning: Stories) -> None:
    assert morning.assign(["", "···", "🎉"], embedder=CharNgrams()) == [None] * 3
    assert morning.found() == []
    assert morning.assign([], embedder=CharNgrams()) == []


def test_old_stories_take_nothing_unless_pinned(news: News) -> None:
    stories = Stories.fit(early(news), ClusteringConfig(max_age_days=3), embedder=CharNgrams())
    days = [Article(a.title, f"n{a.id}", date="2021-06-09T08:00") for a in late(news)]
    assert set(stories.assign(days, embedder=CharNgrams())) == {None}
    again = Stories.fit(early(news), ClusteringConfig(max_age_days=3), embedder=CharNgrams())
    pinned = next(iter(again.stories))
    again.pin(pinned)
    assert set(again.assign(days, embedder=CharNgrams())) == {None, pinned}
    kept = Stories.fit(early(news), ClusteringConfig(max_age_days=30), embedder=CharNgrams())
    assert len(set(kept.assign(days, embedder=CharNgrams()))) > 5


def test_within_categories_articles_join_their_own(news: News) -> None:
    stories = Stories.fit(early(news), ClusteringConfig(by_category=True), embedder=CharNgrams())
    other = [Article(a.title, f"x{a.id}", category="날씨") for a in late(news)]
    assert set(stories.assign(other, embedder=CharNgrams())) == {None}
    assert any(stories.assign(late(news), embedder=CharNgrams()))


def test_stories_of_no_articles_can_grow() -> None:
    stories = Stories.fit([], embedder=CharNgrams())
    assert stories.clusters().stories == ()
    assert stories.assign(["첫눈 온다 오늘 밤"] * 3, embedder=CharNgrams()) == [None] * 3
    assert stories.found() == ["s1"]


def test_another_embedder_is_refused(morning: Stories, words: Embedder, fails: Fails) -> None:
    with fails(CheckpointError, "stories", "were made with embedder letters"):
        morning.assign(["첫눈"], embedder=words)


def test_new_stories_and_articles_are_marked(news: News, morning: Stories) -> None:
    assert morning.clusters().new == frozenset()
    assert not any(story.is_new for story in morning.clusters().stories)
    morning.assign([*late(news), *(f"다람쥐 구조대 {k}명 창설 소식" for k in range(4))], embedder=CharNgrams())
    (new,) = morning.found()
    clusters = morning.clusters()
    assert {clusters.articles[k].id for k in clusters.new} == {a.id for a in late(news)} | {
        str(k + 1) for k in range(len(late(news)), len(late(news)) + 4)
    }
    assert [story.id for story in clusters.stories if story.is_new] == [new]


# ---- editing ----


def snapshot(stories: Stories) -> object:
    return dict(stories.stories), list(stories.story_of), [s.title for s in stories.clusters().stories]


EDITS: dict[str, Callable[[Stories, list[str]], object]] = {
    "merge": lambda stories, ids: stories.merge(ids[0], ids[1], ids[2]),
    "split": lambda stories, ids: stories.split(ids[0], 3),
    "rename": lambda stories, ids: stories.rename(ids[0], " 편집자가  붙인 이름 "),
    "pin": lambda stories, ids: stories.pin(ids[-1]),
}


def test_every_edit_can_be_taken_back(morning: Stories) -> None:
    for kind in EDITS:
        before = snapshot(morning)
        EDITS[kind](morning, list(morning.stories))
        assert snapshot(morning) != before, kind
        assert morning.undo().kind == kind, kind
        assert snapshot(morning) == before, kind


def test_edits_are_taken_back_one_after_the_other(morning: Stories) -> None:
    states = []
    for kind in ("merge", "rename", "split", "pin", "rename"):
        states.append(snapshot(morning))
        EDITS[kind](morning, list(morning.stories))
    for state in reversed(states):
        morning.undo()
        assert snapshot(morning) == state


def test_merged_stories_are_one_under_the_first_id(morning: Stories) -> None:
    first, second, *_ = morning.stories
    members = {*morning.members(first), *morning.members(second)}
    morning.merge(first, second)
    assert set(morning.members(first)) == members
    assert second not in morning.stories


def test_what_joined_a_merged_story_stays_when_the_merger_is_taken_back(news: News, morning: Stories) -> None:
    first, second, *_ = morning.stories
    before = by_story(morning)
    morning.merge(first, second)
    morning.assign(late(news), embedder=CharNgrams())
    joined = set(by_story(morning)[first]) - set(before[first]) - set(before[second])
    morning.undo()
    after = by_story(morning)
    assert set(after[first]) == set(before[first]) | joined
    assert after[second] == before[second]


def test_what_joined_a_part_returns_with_it(news: News, morning: Stories) -> None:
    first = next(iter(morning.stories))
    made = morning.split(first)
    morning.assign(late(news), embedder=CharNgrams())
    inside = {index for story in (first, *made) for index in morning.members(story)}
    morning.undo()
    assert set(morning.members(first)) == inside


def test_a_split_story_parts_where_its_titles_differ_most(news: News) -> None:
    stories = Stories.fit(news.articles, embedder=CharNgrams())
    ids = list(stories.stories)
    expected = {frozenset(stories.members(ids[0])), frozenset(stories.members(ids[1]))}
    stories.merge(ids[0], ids[1])
    made = stories.split(ids[0])
    assert {frozenset(stories.members(story)) for story in (ids[0], *made)} == expected
    assert len(stories.members(ids[0])) >= len(stories.members(made[0]))


def test_ids_are_never_given_twice(morning: Stories) -> None:
    first = next(iter(morning.stories))
    made = morning.split(first)
    morning.undo()
    assert set(morning.split(first)).isdisjoint(made)


def test_a_name_replaces_the_headline_and_a_pinned_story_is_first(morning: Stories) -> None:
    *_, last = morning.stories
    morning.rename(last, "편집자가 붙인 이름")
    morning.pin(last)
    story = morning.clusters().stories[0]
    assert (story.id, story.title, story.is_pinned) == (last, "편집자가 붙인 이름", True)
    assert story.headline != story.title
    morning.rename(last, "")
    morning.pin(last, is_pinned=False)
    assert not any(story.is_pinned or story.name for story in morning.clusters().stories)


def test_only_so_many_edits_are_remembered(morning: Stories) -> None:
    first = next(iter(morning.stories))
    for number in range(MAX_UNDO + 5):
        morning.rename(first, f"이름 {number}")
    for _ in range(MAX_UNDO):
        morning.undo()
    assert morning.stories[first].name == "이름 4"


def test_wrong_edits_are_one_line_errors(morning: Stories, fails: Fails) -> None:
    first, second, *_ = morning.stories
    with fails(UsageError, "s99", "no such story", "did you mean"):
        morning.merge(first, "s99")
    with fails(UsageError, "merge", "two or more"):
        morning.merge(first)
    with fails(UsageError, "merge", "two or more different"):
        morning.merge(first, second, second)
    with fails(UsageError, first, "cannot make 1 parts"):
        morning.split(first, 1)
    with fails(UsageError, first, "cannot make 999 parts"):
        morning.split(first, 999)
    with fails(UsageError, "none", "no such story"):
        morning.rename("none", "이름")
    with fails(UsageError, "undo", "no edit"):
        morning.undo()
    with fails(UsageError, "s1", "no such story", "there are no stories"):
        Stories.fit([], embedder=CharNgrams()).pin("s1")


# ---- files ----


def test_saving_and_loading_changes_nothing(news: News, morning: Stories, tmp_path: Path) -> None:
    first, second, *_ = morning.stories
    morning.merge(first, second)
    morning.save(tmp_path)
    loaded = Stories.load(tmp_path)
    assert snapshot(loaded) == snapshot(morning)
    for stories in (morning, loaded):
        stories.assign(late(news), embedder=CharNgrams())
        stories.found()
        stories.undo()
    assert snapshot(loaded) == snapshot(morning)
    assert np.array_equal(loaded.clusters().centres, morning.clusters().centres)


def test_a_folder_holds_json_and_one_file_of_vectors(news: News, morning: Stories, tmp_path: Path) -> None:
    morning.save(tmp_path)
    morning.assign(late(news), embedder=CharNgrams())
    morning.save(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == STATE_FILE
    assert len(names) == 2
    assert names[1].startswith("vectors-00002-")
    assert json.loads((tmp_path / STATE_FILE).read_text(encoding="utf-8"))["schema"] == 1


def test_an_interrupted_save_leaves_the_old_stories(
    news: News, morning: Stories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    morning.save(tmp_path)
    before = snapshot(morning)
    morning.assign(late(news), embedder=CharNgrams())

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("apps.stories.records.write_signed", fail)
    with pytest.raises(KeyboardInterrupt):
        morning.save(tmp_path)
    assert snapshot(Stories.load(tmp_path)) == before


def test_damaged_stories_are_one_line_errors(morning: Stories, tmp_path: Path, fails: Fails) -> None:
    for damage in ["{", "[]", '{"schema": 1}']:
        morning.save(tmp_path)
        (tmp_path / STATE_FILE).write_text(damage, encoding="utf-8")
        with fails(DataError, tmp_path / STATE_FILE, "damaged"):
            Stories.load(tmp_path)


def test_missing_or_truncated_files_are_one_line_errors(morning: Stories, tmp_path: Path, fails: Fails) -> None:
    with fails(DataError, tmp_path / STATE_FILE, "no such file"):
        Stories.load(tmp_path)
    morning.save(tmp_path)
    (vectors,) = tmp_path.glob("vectors-00001-*.safetensors")
    vectors.write_bytes(vectors.read_bytes()[:100])
    with fails(DataError, vectors, "changed since it was written"):
        Stories.load(tmp_path)
    vectors.unlink()
    with fails(DataError, vectors, "no such file"):
        Stories.load(tmp_path)


def test_a_newer_schema_is_refused(morning: Stories, tmp_path: Path, fails: Fails) -> None:
    morning.save(tmp_path)
    path = tmp_path / STATE_FILE
    state = json.loads(path.read_text(encoding="utf-8"))
    del state["digest"]
    path.write_text(json.dumps(state | {"schema": 2}), encoding="utf-8")
    with fails(DataError, path, "schema 2"):
        Stories.load(tmp_path)


# ---- command ----


def test_the_command_edits_and_takes_back(morning: Stories, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    morning.save(tmp_path)
    first, second, *_ = morning.stories

    def run(*arguments: str) -> str:
        assert main([str(tmp_path), *arguments]) == 0
        return capsys.readouterr().out

    before = run("list")
    assert len(before.splitlines()) == len(morning.stories)
    assert run("merge", first, second).startswith(f"{first}: ")
    made = run("split", first, "2").split()
    assert made[0] == first
    run("rename", first, "새 이름")
    run("pin", first)
    assert run("list").splitlines()[0].split("\t") == [
        first,
        str(len(Stories.load(tmp_path).members(first))),
        "*",
        "새 이름",
    ]
    for kind in ("pin", "rename", "split", "merge"):
        assert run("undo") == f"{kind} {first}: undone\n"
    assert run("list") == before


def test_wrong_commands_are_one_line_errors(morning: Stories, tmp_path: Path) -> None:
    for arguments, what in [
        (("merge", "s1"), "STORY STORY"),
        (("split", "s1", "x"), "STORY [PARTS]"),
        (("rename", "s1"), "STORY NAME"),
        (("pin",), "STORY"),
        (("undo", "s1"), "nothing"),
        (("pin", "s999"), "no such story"),
    ]:
        morning.save(tmp_path)
        with pytest.raises(UsageError, match=what.replace("[", r"\[")):
            main([str(tmp_path), *arguments])


def test_the_command_fails_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "apps.stories", str(tmp_path), "list"]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "no such file" in done.stderr
