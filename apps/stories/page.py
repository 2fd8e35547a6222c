"""The stories of a day as files: one page in Korean that needs nothing else, JSON, CSV and pictures.

All that comes from articles is text to the page, never markup. The same stories give the same bytes.
"""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from apps.stories.clusters import Cluster, Clusters
from apps.stories.duplicates import DuplicateGroup
from corpora.foundation.files import package_path, write_json, write_text

SCHEMA = 1
MAP_WIDTH, MAP_HEIGHT, MAP_MARGIN = 1000, 640, 40
LARGEST_MAP = 1500
"""Stories on the map; smaller ones are in the list alone."""
SHOWN_DUPLICATES = 200
SHOWN_TITLE = 200
"""Characters of a title on the page; JSON and CSV have all."""
SHOWN_MEMBERS = 4
"""Members of a story that are seen before it is opened."""
TIMELINE_ROWS = 20
COLOURS = ("#3467b0", "#c2562d", "#3d8a4e", "#8a55a8", "#b08a1e", "#2f8f95", "#b5467f", "#6b6f2a", "#5a6b86", "#93603c")
OTHER_COLOUR = "#8a8f98"
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Report:
    """All that the files tell."""

    clusters: Clusters
    duplicates: Sequence[DuplicateGroup] = ()
    title: str = "오늘의 이야기"
    source: str = ""
    """Where the articles came from, for the reader."""
    num_rejected: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How it was made, for who makes it again."""
    seed: int = 0

    def copies(self) -> dict[int, DuplicateGroup]:
        """Return the group of each article that is in one."""
        return {index: group for group in self.duplicates for index in group.members}


def layout(centres: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """Return places in the plane, (K, 2) in [0, 1]: t-SNE of unit vectors (van der Maaten and Hinton 2008)."""
    size = len(centres)
    if size < 5:
        turns = 2 * np.pi * np.arange(size) / max(1, size)
        return 0.5 + (0.3 if size > 1 else 0.0) * np.column_stack([np.cos(turns), np.sin(turns)])
    from sklearn.manifold import TSNE

    # In one thread the sums have one order, and the map is the same on every machine of a kind.
    with threadpool_limits(1):
        tsne = TSNE(
            n_components=2,
            perplexity=min(30.0, (size - 1) / 3),
            init="pca",
            metric="cosine",
            random_state=seed,
            max_iter=500,
        )
        positions: NDArray[np.float64] = tsne.fit_transform(centres.astype(np.float64)).astype(np.float64)
    low, high = positions.min(axis=0), positions.max(axis=0)
    scaled: NDArray[np.float64] = (positions - low) / np.where(high > low, high - low, 1)
    return scaled


def write_report(out: Path, report: Report) -> list[Path]:
    """Write `stories.html`, `.json`, `.csv` and pictures to OUT, each atomically.

    Returns:
        The files.

    Raises:
        ResultError: a file cannot be written.
    """
    from apps.stories.images import write_images

    mapped = report.clusters.stories[:LARGEST_MAP]
    positions = layout(report.clusters.centres[: len(mapped)], report.seed)
    write_json(out / "stories.json", to_json(report))
    write_text(out / "stories.csv", to_csv(report))
    write_text(out / "stories.html", to_html(report, positions))
    return [*(out / f"stories.{kind}" for kind in ("html", "json", "csv")), *write_images(out, report, positions)]


# ---- JSON and CSV ----


def to_json(report: Report) -> dict[str, Any]:
    """Return stories, articles in none, and duplicates for machines."""
    clusters = report.clusters
    return {
        "schema": SCHEMA,
        "source": report.source,
        "num_articles": len(clusters.articles),
        "num_rejected": report.num_rejected,
        "settings": dict(report.settings),
        "stories": [_story_json(story, clusters) for story in clusters.stories],
        "noise": [
            _article_json(index, clusters)
            | {"nearest": near and {"story": near[0].id, "typicality": round(near[1], 4)}}
            for index, near in zip(clusters.noise, clusters.nearest_story(clusters.noise), strict=True)
        ],
        "duplicates": [
            {"representative": group.representative, "members": list(group.members)} for group in report.duplicates
        ],
    }


def _story_json(story: Cluster, clusters: Clusters) -> dict[str, Any]:
    return {
        "id": story.id,
        "headline": story.headline,
        "name": story.name,
        "is_pinned": story.is_pinned,
        "is_new": story.is_new,
        "keywords": [{"text": keyword.text, "weight": round(keyword.weight, 6)} for keyword in story.keywords],
        "members": [
            _article_json(member.index, clusters)
            | {"typicality": round(member.typicality, 4), "is_core": member.is_core}
            for member in story.members
        ],
        "parts": [list(part) for part in story.parts],
    }


def _article_json(index: int, clusters: Clusters) -> dict[str, Any]:
    article = clusters.articles[index]
    facts = {name: value for name, value in vars(article).items() if value and name != "text"}
    return {"index": index, **facts, "is_new": index in clusters.new}


def to_csv(report: Report) -> str:
    """Return a row for each article, in the order of the stories and then of the articles.

    It begins with a byte order mark, without which Excel shows no Hangul. A cell that Excel would take for a formula
    gets an apostrophe before it.
    """
    clusters, copies = report.clusters, report.copies()
    buffer = io.StringIO()
    names = ["story", "story_title", "part", "typicality", "is_core", "duplicate_of", "index", "id", "title", "date"]
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*names, "category", "publisher", "url"])

    def write(index: int, *story: object) -> None:
        article = clusters.articles[index]
        group = copies.get(index)
        original = "" if group is None or group.representative == index else group.representative
        cells = [*story, original, index, article.id, article.title, article.date]
        cells += [article.category, article.publisher, article.url]
        writer.writerow([f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for cell in cells])

    for story in clusters.stories:
        part_of = {index: number for number, part in enumerate(story.parts, start=1) for index in part}
        for member in story.members:
            part = part_of.get(member.index, "")
            write(member.index, story.id, story.title, part, f"{member.typicality:.4f}", int(member.is_core))
    for index in clusters.noise:
        write(index, "", "", "", "", "")
    return "\ufeff" + buffer.getvalue()


# ---- HTML ----


def to_html(report: Report, positions: NDArray[np.float64]) -> str:
    """Return the page: no reference leads out of it but links to articles, which are http or https."""
    clusters = report.clusters
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(package_path("apps", "templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    colours = category_colours(clusters)
    copies = report.copies()
    return environment.get_template("stories.html").render(
        report=report,
        stories=[_story_view(story, clusters, copies, colours) for story in clusters.stories],
        noise=[_line(index, clusters, copies) for index in clusters.noise],
        num_in_stories=sum(map(len, clusters.stories)),
        num_copies=sum(len(group.members) - 1 for group in report.duplicates),
        span=_span([article.date for article in clusters.articles]),
        colours=colours,
        other_colour=OTHER_COLOUR,
        circles=circles(clusters, positions, colours),
        width=MAP_WIDTH,
        height=MAP_HEIGHT,
        timeline=timeline(clusters),
        duplicates=[
            [_line(index, clusters, {}) for index in group.members] for group in report.duplicates[:SHOWN_DUPLICATES]
        ],
        shown=SHOWN_MEMBERS,
    )


def category_colours(clusters: Clusters) -> dict[str, str]:
    """Return the colours of the most frequent categories."""
    counts = Counter(article.category for article in clusters.articles if article.category)
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    return dict(zip(ordered, COLOURS, strict=False))


def main_category(story: Cluster, clusters: Clusters) -> str:
    """Return the category that most of a story's articles have."""
    counts = Counter(clusters.articles[member.index].category for member in story.members)
    return min(counts, key=lambda name: (-counts[name], name))


def shortened(title: str) -> str:
    """Return a title as the page shows it."""
    return title if len(title) <= SHOWN_TITLE else title[: SHOWN_TITLE - 1] + "…"


def _line(index: int, clusters: Clusters, copies: Mapping[int, DuplicateGroup]) -> dict[str, Any]:
    article = clusters.articles[index]
    group = copies.get(index)
    return {
        "title": shortened(article.title) or "(제목 없음)",
        "url": article.url if article.url.startswith(("http://", "https://")) else "",
        "meta": " · ".join(text for text in (article.publisher, article.date.replace("T", " ")) if text),
        "copies": len(group.members) - 1 if group is not None and group.representative == index else 0,
        "is_new": index in clusters.new,
    }


def _story_view(
    story: Cluster, clusters: Clusters, copies: Mapping[int, DuplicateGroup], colours: Mapping[str, str]
) -> dict[str, Any]:
    """Return what the page shows of a story; of copies only the representative, if it is in the story, too."""
    inside = {member.index for member in story.members}
    hidden = {index for index in inside if index in copies and copies[index].representative in inside - {index}}
    part_of = {index: number for number, part in enumerate(story.parts) for index in part}
    rows = [member.index for member in story.members if member.index not in hidden]
    groups = [[index for index in rows if part_of.get(index) == number] for number in range(len(story.parts))]
    loose = [index for index in rows if index not in part_of] if story.parts else rows
    articles = [clusters.articles[member.index] for member in story.members]
    category = main_category(story, clusters)
    return {
        "story": story,
        "title": shortened(story.title),
        "headline": shortened(story.headline) if story.name else "",
        "colour": colours.get(category, OTHER_COLOUR),
        "category": category,
        "num_publishers": len({article.publisher for article in articles} - {""}),
        "span": _span([article.date for article in articles]),
        "num_new": sum(index in clusters.new for index in inside),
        "first": [_line(index, clusters, copies) for index in rows[:SHOWN_MEMBERS]],
        "num_lines": len(rows),
        "parts": [[_line(index, clusters, copies) for index in group] for group in groups if group],
        "loose": [_line(index, clusters, copies) for index in (loose if story.parts else loose[SHOWN_MEMBERS:])],
    }


def _span(dates: Sequence[str]) -> str:
    known = sorted(date.replace("T", " ") for date in dates if date)
    if not known:
        return ""
    return known[0] if known[0] == known[-1] else f"{known[0]} – {known[-1]}"


def circles(clusters: Clusters, positions: NDArray[np.float64], colours: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the circles of the map, the largest first: their area is the number of articles."""
    largest = max(map(len, clusters.stories), default=1)
    scale = 30 / np.sqrt(largest)
    size = np.array([MAP_WIDTH - 2 * MAP_MARGIN, MAP_HEIGHT - 2 * MAP_MARGIN])
    found = []
    for story, (x, y) in zip(clusters.stories, (MAP_MARGIN + positions * size).tolist(), strict=False):
        found.append(
            {
                "id": story.id,
                "x": round(x, 1),
                "y": round(y, 1),
                "r": round(max(2.0, scale * np.sqrt(len(story))), 1),
                "colour": colours.get(main_category(story, clusters), OTHER_COLOUR),
                "label": story.name or " ".join(keyword.text for keyword in story.keywords[:2]) or story.headline[:12],
                "size": len(story),
                "title": shortened(story.title),
            }
        )
    return sorted(found, key=lambda circle: (-circle["size"], circle["id"]))


def timeline(clusters: Clusters) -> dict[str, Any]:
    """Return when the articles of the largest stories appeared, by hour or by day; empty if that tells nothing."""
    stories = sorted(clusters.stories, key=lambda story: -len(story))[:TIMELINE_ROWS]
    dates = sorted({article.date for article in clusters.articles if article.date})
    if not dates or not stories:
        return {}
    has_hours = dates[0][:10] == dates[-1][:10] or len({date[:10] for date in dates}) <= 2
    width = len("2021-06-01T09") if has_hours and all("T" in date for date in dates) else len("2021-06-01")
    moments = sorted({date[:width] for date in dates})
    if len(moments) < 2:
        return {}
    tallies = [Counter(clusters.articles[member.index].date[:width] for member in story.members) for story in stories]
    counts = [[tally[moment] for moment in moments] for tally in tallies]
    is_hour = width > len("2021-06-01")
    return {
        "labels": [f"{int(moment[11:])}시" if is_hour else moment[5:].replace("-", ".") for moment in moments],
        "rows": [
            {"id": story.id, "title": shortened(story.title), "counts": row}
            for story, row in zip(stories, counts, strict=True)
        ],
        "largest": max(1, *map(max, counts)),
    }
