"""The stories of a day as data: a report, its JSON and its CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.stories.clusters import Cluster, Clusters
from apps.stories.duplicates import DuplicateGroup
from corpora.foundation.texts import spreadsheet_text

SCHEMA = 1


@dataclass(frozen=True)
class Report:
    """The stories of a day, and how they were found."""

    clusters: Clusters
    duplicates: Sequence[DuplicateGroup] = ()
    title: str = "오늘의 뉴스 묶음"
    source: str = ""
    """Origin of the articles, shown to readers."""
    num_rejected: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that reproduce it."""
    seed: int = 0

    def copies(self) -> dict[int, DuplicateGroup]:
        """Return the group of each article that is in one."""
        return {index: group for group in self.duplicates for index in group.members}


def to_json(report: Report) -> dict[str, Any]:
    """Return stories, articles in none, those of them in routine formats, and duplicates as plain data."""
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
        "routine": {kind: list(indices) for kind, indices in clusters.routine.items()},
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

    It begins with a byte order mark, without which Excel garbles Hangul.
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
        writer.writerow([spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in cells])

    for story in clusters.stories:
        part_of = {index: number for number, part in enumerate(story.parts, start=1) for index in part}
        for member in story.members:
            part = part_of.get(member.index, "")
            write(member.index, story.id, story.title, part, f"{member.typicality:.4f}", int(member.is_core))
    for index in clusters.noise:
        write(index, "", "", "", "", "")
    return "\ufeff" + buffer.getvalue()
