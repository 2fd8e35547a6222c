"""The files of a day: that all is in them, that nothing of an article is markup, and that nothing leads elsewhere."""

import csv
import io
import json
import re
import subprocess
import warnings
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from apps.stories import page
from apps.stories.articles import Article
from apps.stories.clusters import CharNgrams, Clusters, cluster
from apps.stories.duplicates import DuplicateGroup, find_duplicates
from apps.stories.files import write_report
from apps.stories.images import FONT, drawable
from apps.stories.page import layout, timeline, to_html
from apps.stories.report import Report, to_csv, to_json
from apps.stories.state import Stories

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "</title></script><!-- \"'&amp; {{ 7*7 }}",
    '=HYPERLINK("http://evil.example")',
    "🎉 축제\u202e 개막 $x^2$",
    "가" * 100_000,
)


class News(Protocol):
    articles: tuple[Article, ...]
    events: NDArray[np.int64]


class Page(HTMLParser):
    """What a browser would make of a page: tags, attributes, text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._in_script = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_script = tag in {"script", "style"}

    def handle_endtag(self, _tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if not self._in_script:
            self.text.append(data)

    def count(self, tag: str, **attributes: str) -> int:
        names = {name.replace("_", ""): value for name, value in attributes.items()}
        return sum(t == tag and all(a.get(name) == value for name, value in names.items()) for t, a in self.tags)


def report(articles: Sequence[Article | str], **more: Any) -> Report:
    clusters = cluster(articles, embedder=CharNgrams())
    titles = [article.title for article in clusters.articles]
    return Report(clusters, find_duplicates(titles, clusters.points), **more)


def html_of(some: Report) -> str:
    return to_html(some, layout(some.clusters.centres, some.seed))


@pytest.fixture(scope="module")
def today(news: News) -> Report:
    return report(news.articles, source="news.json", num_rejected=3, settings={"seed": 0})


def test_every_article_is_on_the_page_and_every_story_on_the_map(today: Report) -> None:
    page = Page(html_of(today))
    text = "".join(page.text)
    assert all(article.title in text for article in today.clusters.articles)
    assert page.count("article", class_="story") == len(today.clusters.stories)
    assert page.count("circle") == len(today.clusters.stories)
    links = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    ids = {f"#{attributes['id']}" for _, attributes in page.tags if attributes.get("id")}
    assert {link for link in links if link and link.startswith("#")} <= ids
    for words in ("묶음 지도", "중복 기사", "묶이지 않은 기사", "읽지 못한 레코드", "news.json", "시기별"):
        assert words in text


def test_nothing_of_an_article_is_markup(news: News) -> None:
    articles = [
        *news.articles,
        *(
            Article(title, f"h{k}-{n}", "", "2021-06-01", title[:50], title[:50], "javascript:alert(1)")
            for n in range(3)
            for k, title in enumerate(HOSTILE)
        ),
    ]
    hostile = report(articles, title=HOSTILE[0], source=HOSTILE[1], settings={"x": HOSTILE[1]})
    html = html_of(hostile)
    page = Page(html)
    assert page.count("script") == 1
    assert page.count("img") == 0
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert not any((attributes.get("href") or "").startswith("javascript") for _, attributes in page.tags)
    text = "".join(page.text)
    assert all(title in text for title in HOSTILE[:4])
    assert "49" not in re.findall(r"\{\{ 7\*7 \}\}|49", text)
    assert HOSTILE[4] not in html
    html.encode("utf-8")


def test_nothing_leads_out_of_the_page_but_links_to_articles(news: News) -> None:
    articles = [Article(a.title, a.id, url=f"https://press.example/{a.id}") for a in news.articles]
    page = Page(html_of(report(articles)))
    for tag, attributes in page.tags:
        assert "src" not in attributes
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        href = attributes.get("href") or "#"
        assert href.startswith("#") or (tag == "a" and href.startswith("https://press.example/"))
    (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"url\(|@import", html_of(report(articles)))


def test_the_same_stories_give_the_same_bytes(news: News, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_report(tmp_path / name, report(news.articles))
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["stories-largest.png", "stories-map.png", "stories.csv", "stories.html", "stories.json"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_few_articles_make_a_page_too(tmp_path: Path) -> None:
    for titles in [[], ["첫눈"], ["첫눈 온다"] * 3, [f"{k}번 첫눈 온다 오늘" for k in "가나다"] * 2]:
        few = report(titles)
        files = write_report(tmp_path, few)
        assert all(path.stat().st_size > 0 for path in files), titles
        assert len(files) == (5 if few.clusters.stories else 3), titles
        assert Page((tmp_path / "stories.html").read_text(encoding="utf-8")).count("article") == len(
            few.clusters.stories
        ), titles


# ---- JSON and CSV ----


def test_json_has_every_article_once(today: Report) -> None:
    data = json.loads(json.dumps(to_json(today), ensure_ascii=False))
    members = [member for story in data["stories"] for member in story["members"]]
    indices = [article["index"] for article in [*members, *data["noise"]]]
    assert sorted(indices) == list(range(len(today.clusters.articles)))
    assert data["num_articles"] == len(indices)
    assert data["num_rejected"] == 3
    for story in data["stories"]:
        assert story["headline"] in {member["title"] for member in story["members"]}
        assert all(keyword["weight"] > 0 for keyword in story["keywords"])
        assert {index for part in story["parts"] for index in part} <= {m["index"] for m in story["members"]}
    assert all(group["representative"] in group["members"] for group in data["duplicates"])
    ids = {story["id"] for story in data["stories"]}
    assert data["noise"]
    assert all(article["nearest"]["story"] in ids for article in data["noise"])
    assert all(0 <= article["nearest"]["typicality"] < 1 for article in data["noise"])


def test_csv_has_a_row_for_each_article(today: Report) -> None:
    text = to_csv(today)
    assert text.startswith("\ufeff")
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    by_index = {int(row["index"]): row for row in rows}
    assert len(rows) == len(by_index) == len(today.clusters.articles)
    stories = {member.index: story for story in today.clusters.stories for member in story.members}
    for index, row in by_index.items():
        article = today.clusters.articles[index]
        assert (row["title"], row["id"], row["date"]) == (article.title, article.id, article.date)
        assert row["story"] == (stories[index].id if index in stories else "")


def test_csv_holds_no_formula() -> None:
    for title in ["=1+1", "+82-2", "-3% 하락", "@here", "\t=1"]:
        (row,) = list(csv.DictReader(io.StringIO(to_csv(report([title])).removeprefix("\ufeff"))))
        assert row["title"] == f"'{title}", title


def test_near_duplicates_are_counted_and_shown_once() -> None:
    titles = ["금리 3.5% 동결", "금리, 3.5% 동결", "금리 3.5% 동결 결정", "금리 3.5%로 동결"]
    clusters = cluster(titles, embedder=CharNgrams())
    some = Report(clusters, [DuplicateGroup(0, (0, 1))])
    text = " ".join("".join(Page(html_of(some)).text).split())
    assert "+ 중복 1건" in text
    rows = list(csv.DictReader(io.StringIO(to_csv(some).removeprefix("\ufeff"))))
    assert {row["index"]: row["duplicate_of"] for row in rows} == {"0": "", "1": "0", "2": "", "3": ""}


def test_many_groups_of_copies_are_cut_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch, today: Report) -> None:
    monkeypatch.setattr(page, "SHOWN_DUPLICATES", 1)
    some = Report(today.clusters, [DuplicateGroup(0, (0, 1)), DuplicateGroup(2, (2, 3))])
    html = html_of(some)
    assert html.count('class="group"') == 1
    assert "stories.json" in html


# ---- what an editor did, and what is new ----


def test_names_pins_and_news_are_shown(news: News) -> None:
    stories = Stories.fit(news.articles[:-20], embedder=CharNgrams())
    *_, last = stories.stories
    stories.rename(last, "편집자가 붙인 이름")
    stories.pin(last)
    stories.assign([*news.articles, *(f"다람쥐 구조대 {k}명 창설 소식" for k in range(4))], embedder=CharNgrams())
    stories.found()
    text = "".join(Page(html_of(Report(stories.clusters()))).text)
    for words in ("편집자가 붙인 이름", "고정", "새 묶음", "새 기사가 있는 묶음만"):
        assert words in text
    assert text.index("편집자가 붙인 이름") < text.index("다람쥐 구조대")


# ---- map and timeline ----


def test_the_map_has_a_place_for_each_story() -> None:
    for size in [0, 1, 2, 4, 5, 40]:
        random = np.random.default_rng(0).standard_normal((size, 8)).astype(np.float32)
        positions = layout(random, 0)
        assert positions.shape == (size, 2), size
        assert np.isfinite(positions).all(), size
        assert ((positions >= 0) & (positions <= 1)).all(), size


def test_the_map_depends_on_the_seed_alone_and_puts_like_to_like() -> None:
    random = np.random.default_rng(1)
    middles = random.standard_normal((2, 16))
    centres = np.vstack([m + 0.1 * random.standard_normal((15, 16)) for m in middles]).astype(np.float32)
    positions = layout(centres, 7)
    assert np.array_equal(positions, layout(centres, 7))
    inside = np.linalg.norm(positions[:15] - positions[:15].mean(axis=0), axis=1).mean()
    assert inside < np.linalg.norm(positions[:15].mean(axis=0) - positions[15:].mean(axis=0))


def dated(dates: Sequence[str]) -> Clusters:
    return cluster([Article("기준금리 동결 결정", f"a{k}", date=d) for k, d in enumerate(dates)], embedder=CharNgrams())


def test_the_timeline_counts_by_hour_or_day() -> None:
    for dates, labels in [
        (["2021-06-01T08:10", "2021-06-01T08:50", "2021-06-01T11:00"], ["8시", "11시"]),
        (["2021-06-01", "2021-06-02", "2021-06-02"], ["06.01", "06.02"]),
        (["2021-05-30T08:10", "2021-06-01T08:10", "2021-06-03T08:10"], ["05.30", "06.01", "06.03"]),
        (["2021-06-01", "2021-06-01", "2021-06-01"], None),
        (["", "", ""], None),
    ]:
        lines = timeline(dated(dates))
        assert lines.get("labels") == labels, dates
        if labels:
            assert sum(lines["rows"][0]["counts"]) == 3, dates
            assert lines["largest"] == max(lines["rows"][0]["counts"]), dates


# ---- pictures ----


def test_the_font_has_korean_and_its_licence() -> None:
    assert drawable("가힝 뷁 李與野 Ag 3.5% … “”‘’·→↑") == "가힝 □ 李與野 Ag 3.5% … “”‘’·→↑"
    assert drawable("🎉쓷") == "□□"
    assert FONT.stat().st_size < 2_500_000
    assert "SIL OPEN FONT LICENSE Version 1.1" in (FONT.parent / "OFL.txt").read_text(encoding="utf-8")


def test_pictures_show_any_title_without_a_warning(tmp_path: Path) -> None:
    titles = [
        f"{title} {k}" for title in ("$x^2$ & $$ 달러 강세", "🎉 축제 李 대표", "첫눈 \\frac{1}{2}") for k in "가나다라"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files = write_report(tmp_path, report(titles))
    pictures = [path.read_bytes() for path in files if path.suffix == ".png"]
    assert len(pictures) == 2
    for data in pictures:
        assert data.startswith(b"\x89PNG")
        assert int.from_bytes(data[16:20]) == 1800


def test_hangul_is_drawn_and_not_a_box(tmp_path: Path) -> None:
    """Two texts of the same length differ in their pictures, which boxes for missing letters would not."""
    for name, word in (("a", "금리 동결"), ("b", "첫눈 소식")):
        write_report(tmp_path / name, report([f"{word}"] * 3))
    assert (tmp_path / "a/stories-largest.png").read_bytes() != (tmp_path / "b/stories-largest.png").read_bytes()


# ---- in a browser ----


@pytest.mark.slow
def test_the_page_runs_in_a_browser(chromium: str, today: Report, tmp_path: Path) -> None:
    write_report(tmp_path, today)
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [*command, (tmp_path / "stories.html").as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    assert "Uncaught" not in done.stderr
    assert "Content Security Policy" not in done.stderr
    page = Page(done.stdout)
    # The script has been through: it takes the tips that browsers show, and its own are there instead.
    assert page.count("circle") == len(today.clusters.stories)
    assert sum(tag == "title" for tag, _ in page.tags) == 1
    assert any(tag == "text" and attributes.get("visibility") == "visible" for tag, attributes in page.tags)
