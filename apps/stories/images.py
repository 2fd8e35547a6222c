"""Pictures of the stories of a day, with the bundled Korean font: the map, and the largest stories."""

import functools
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apps.stories.page import MAP_HEIGHT, MAP_WIDTH, OTHER_COLOUR, category_colours, circles, main_category
from apps.stories.report import Report
from corpora.foundation.files import atomic_file, package_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT = package_path("apps", "fonts", "PressBERTSansKR-Regular.otf")
MISSING = "□"
DPI = 150
NUM_LABELS = 40
NUM_BARS = 20
LONGEST_LABEL = 46


@functools.cache
def _font() -> tuple[Any, frozenset[int]]:
    """Return the bundled font and its characters."""
    from matplotlib.font_manager import FontProperties, get_font

    return FontProperties(fname=FONT), frozenset(get_font(str(FONT)).get_charmap())


def drawable(text: str) -> str:
    """Return a text with a box for every character that the font lacks."""
    _, known = _font()
    return "".join(letter if ord(letter) in known else MISSING for letter in text)


def write_images(out: Path, report: Report, positions: NDArray[np.float64]) -> list[Path]:
    """Write `stories-map.png` and `stories-largest.png`; none if there are no stories.

    Returns:
        The files.

    Raises:
        ResultError: a file cannot be written.
    """
    if not report.clusters.stories:
        return []
    drawings = {"stories-map.png": _draw_map(report, positions), "stories-largest.png": _draw_largest(report)}
    for name, figure in drawings.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
        with atomic_file(out / name, "wb") as file:
            file.write(buffer.getvalue())
    return [out / name for name in drawings]


def _figure(width: float, height: float) -> tuple["Figure", "Axes"]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure, figure.add_axes((0, 0, 1, 1))


def _write(axes: "Axes", x: float, y: float, text: str, **style: Any) -> Any:
    font, _ = _font()
    # Dollar signs of a headline would be parsed as mathematics.
    return axes.text(x, y, drawable(text), parse_math=False, fontproperties=font, **style)


def _draw_map(report: Report, positions: NDArray[np.float64]) -> "Figure":
    clusters = report.clusters
    colours = category_colours(clusters)
    figure, axes = _figure(12, 12 * (MAP_HEIGHT + 60) / MAP_WIDTH)
    axes.set(xlim=(0, MAP_WIDTH), ylim=(MAP_HEIGHT, -60))
    axes.axis("off")
    _write(axes, 20, -28, f"{report.title} · {report.source}".strip(" ·")[:LONGEST_LABEL], size=15, va="center")
    for number, (name, colour) in enumerate([*colours.items(), ("기타", OTHER_COLOUR)]):
        axes.scatter(28 + 86 * number, -3, s=40, color=colour, linewidths=0)
        _write(axes, 36 + 86 * number, -3, name[:6], size=8, va="center")
    taken: list[tuple[float, float, float]] = []
    found = circles(clusters, positions, colours)
    per_point = MAP_WIDTH / (12 * 72)
    radii = np.array([circle["r"] for circle in found])
    axes.scatter(
        [circle["x"] for circle in found],
        [circle["y"] for circle in found],
        s=(2 * radii / per_point) ** 2,
        color=[circle["colour"] for circle in found],
        alpha=0.6,
        linewidths=0,
    )
    for circle in found:
        half = len(circle["label"]) * 9 * 0.5 * per_point
        free = all(abs(x - circle["x"]) > other + half or abs(y - circle["y"]) > 14 for x, y, other in taken)
        if free and len(taken) < NUM_LABELS:
            taken.append((circle["x"], circle["y"], half))
            _write(axes, circle["x"], circle["y"], circle["label"], size=9, ha="center", va="center")
    return figure


def _draw_largest(report: Report) -> "Figure":
    clusters = report.clusters
    colours = category_colours(clusters)
    stories = sorted(clusters.stories, key=lambda story: -len(story))[:NUM_BARS]
    figure, axes = _figure(12, 0.8 + 0.36 * len(stories))
    largest = len(stories[0])
    axes.set(xlim=(-0.02 * largest, 2.2 * largest), ylim=(len(stories), -1.4))
    axes.axis("off")
    _write(axes, 0, -0.9, f"{report.title} · {report.source}".strip(" ·")[:LONGEST_LABEL], size=15, va="center")
    for row, story in enumerate(stories):
        colour = colours.get(main_category(story, clusters), OTHER_COLOUR)
        axes.barh(row, len(story), color=colour, height=0.72)
        title = story.title if len(story.title) <= LONGEST_LABEL else story.title[: LONGEST_LABEL - 1] + "…"
        _write(axes, len(story) + 0.015 * largest, row, f"{len(story)}  {title}", size=11, va="center")
    return figure
