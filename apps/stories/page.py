"""The stories of a day as one self-contained HTML page in Korean: map, timeline, stories, near-duplicates.

Everything that comes from articles is escaped. The same stories give the same bytes.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from apps.stories.articles import clean_title
from apps.stories.clusters import Cluster, Clusters
from apps.stories.duplicates import DuplicateGroup
from apps.stories.report import Report
from corpora.foundation.files import package_path

MAP_WIDTH, MAP_HEIGHT, MAP_MARGIN = 1000, 640, 40
LARGEST_MAP = 1500
"""Stories on the map; smaller ones are only listed."""
SHOWN_STORIES = 50
"""Stories that are listed at once; the others are folded, so that the height of the page is bounded."""
SHOWN_DUPLICATES, SHOWN_GROUPS = 200, 10
"""Groups of duplicates on the page, and those that are not folded."""
LONGEST_LABEL = 18
"""Characters of a label on the map."""
SHOWN_TITLE = 200
"""Characters of a title on the page; JSON and CSV hold whole titles."""
SHOWN_MEMBERS = 4
"""Members of a story that are shown while it is closed."""
TIMELINE_ROWS = 20
COLOURS = ("#3467b0", "#c2562d", "#3d8a4e", "#8a55a8", "#b08a1e", "#2f8f95", "#b5467f", "#6b6f2a", "#5a6b86", "#93603c")
QUOTES = " ,.?!:;'\"`‘’“”「」『』<>〈〉《》()[]"
OTHER_COLOUR = "#8a8f98"


def layout(centres: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """Return positions in the plane, (K, 2) in [0, 1]: t-SNE of unit vectors (van der Maaten and Hinton 2008)."""
    size = len(centres)
    if size < 5:
        turns = 2 * np.pi * np.arange(size) / max(1, size)
        return 0.5 + (0.3 if size > 1 else 0.0) * np.column_stack([np.cos(turns), np.sin(turns)])
    from sklearn.manifold import TSNE

    # In one thread the order of the sums is fixed, and so is the map.
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


def to_html(report: Report, positions: NDArray[np.float64]) -> str:
    """Return the page; its only external references are links to articles, which are http or https."""
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
    routine = {index for some in clusters.routine.values() for index in some}
    return environment.get_template("stories.html").render(
        report=report,
        stories=[_story_view(story, clusters, copies, colours) for story in clusters.stories],
        routine={kind: [_line(k, clusters, copies) for k in some] for kind, some in clusters.routine.items()},
        noise=[_line(index, clusters, copies) for index in clusters.noise if index not in routine],
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
        shown_stories=SHOWN_STORIES,
        shown_groups=SHOWN_GROUPS,
    )


def category_colours(clusters: Clusters) -> dict[str, str]:
    """Return the colours of the most frequent categories."""
    counts = Counter(article.category for article in clusters.articles if article.category)
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    return dict(zip(ordered, COLOURS, strict=False))


def main_category(story: Cluster, clusters: Clusters) -> str:
    """Return the most frequent category of a story's articles."""
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
    """Return what the page shows of a story; of near-duplicates only the representative, if it is in the story."""
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
    """Return the circles of the map, the largest first; areas are numbers of articles."""
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
                "label": story.name or phrase_of(story),
                "size": len(story),
                "title": shortened(story.title),
            }
        )
    return sorted(found, key=lambda circle: (-circle["size"], circle["id"]))


def phrase_of(story: Cluster) -> str:
    """Return the phrase of the headline that holds most of the keywords, of at most `LONGEST_LABEL` characters.

    >>> from apps.stories.keywords import Keyword
    >>> keywords = (Keyword("얀센", 0.4), Keyword("예약", 0.3), Keyword("마감", 0.1))
    >>> phrase_of(Cluster("1", "[속보] 30대 줄 선 얀센 백신 예약, 18시간 만에 마감", keywords, ()))
    '얀센 백신 예약'
    """
    words = [word for part in re.split(r"[…·|]|\.{2,}", clean_title(story.headline)) for word in [*part.split(), ""]]
    best, score = "", -1.0
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            if not words[end - 1]:
                break
            phrase = " ".join(words[start:end]).strip(QUOTES)
            if len(phrase) > LONGEST_LABEL:
                break
            found = sum(keyword.weight for keyword in story.keywords if keyword.text in phrase)
            # Among phrases with the same keywords the shortest is best.
            if phrase and (found, -len(phrase)) > (score, -len(best)):
                best, score = phrase, found
    return best or story.headline[:LONGEST_LABEL]


def timeline(clusters: Clusters) -> dict[str, Any]:
    """Return the articles of the largest stories by hour or by day; empty if all have the same time or none."""
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
