"""The files of a day: the page, JSON, CSV and pictures. The same stories give the same bytes."""

from pathlib import Path

from apps.stories.images import write_images
from apps.stories.page import LARGEST_MAP, layout, to_html
from apps.stories.report import Report, to_csv, to_json
from corpora.foundation.files import write_json, write_text


def write_report(out: Path, report: Report) -> list[Path]:
    """Write `stories.html`, `.json`, `.csv` and pictures to OUT, each atomically.

    Returns:
        The files.

    Raises:
        ResultError: a file cannot be written.
    """
    mapped = report.clusters.stories[:LARGEST_MAP]
    positions = layout(report.clusters.centres[: len(mapped)], report.seed)
    write_json(out / "stories.json", to_json(report))
    write_text(out / "stories.csv", to_csv(report))
    write_text(out / "stories.html", to_html(report, positions))
    return [*(out / f"stories.{kind}" for kind in ("html", "json", "csv")), *write_images(out, report, positions)]
