"""The page of `benchmarks/clustering.py`: figures as Markdown."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.clustering_measures import MAX_ENTITY, MAX_NUMBER
from corpora.foundation.machine import cpu_name, versions

NEWS = Path("news") / "newstrust_20210601_sample.json"
NOTEBOOK = {"neighbors": 15, "components": 5, "min_cluster_size": 15, "min_samples": 10}
"""The notebook's own defaults."""


def page(results: Mapping[str, Any], *, options: str, embedder: str, is_trial: bool) -> str:
    """Return the page of the docs.

    Args:
        results: figures of each part.
        options: options that the benchmark was run with.
        embedder: what readers call the embedder.
        is_trial: whether only a part of the titles was measured.
    """
    day, notebook = results["day"], results["notebook"]
    libraries = versions("scikit-learn", "scipy", "numpy", "kiwipiepy", "umap-learn", "hdbscan", "torch")
    lines = [
        "# A day of news on one page",
        "",
        f"Written by `python -m benchmarks.clustering DATA{options}`; do not edit.",
        "",
        f"- Machine: {cpu_name()}, {os.cpu_count()} threads.",
        f"- Data: `{NEWS}`, {day['num_articles']:,} titles of one day in 11 categories.",
        *(["- **A trial on a part of the titles: figures are not representative.**"] if is_trial else []),
        f"- Embedder: {embedder}.",
        "- " + ", ".join(f"{name} {version}" for name, version in libraries.items()) + ".",
        "",
        *_asked_lines(results),
        *day_lines(day),
        *_notebook_lines(day, notebook),
        *_clusterer_lines(results["clusterers"]),
        *_quality_lines(results["quality"], results["settings"]),
        *_duplicate_lines(results["duplicates"]),
        *_assign_lines(results["assign"]),
        "## Determinism",
        "",
        "- One thread, two threads and the day in another order give "
        f"{'the same' if results['threads'] else 'DIFFERENT'} stories.",
        "",
        *_large_lines(results["large"]),
        *_story_lines(results["quality"]["shown"], day["num_stories"]),
    ]
    return "\n".join(lines)


def _asked_lines(results: Mapping[str, Any]) -> list[str]:
    day, large, assign, copies = results["day"], results["large"], results["assign"], results["duplicates"]
    ours = results["quality"]["rows"]["ours"]
    times = _notebook_s(results["notebook"]) / day["wall_s"]
    merged = sum(copies["merged"].values()) / sum(copies["minimal"].values())
    rate, embedded = assign["titles_per_s"], assign["embedded_titles_per_s"]
    asked = [
        ("one command for the day, at most 60 s", f"{day['wall_s']:.1f} s", day["wall_s"] <= 60),
        ("the notebook's pipeline takes at least 10 times as long", f"{times:.1f} times", times >= 10),
        ("pairs that share rare words are together far more often than random pairs", _ratio(ours), _is_far(ours)),
        ("the same stories with 1 and 2 threads and in another order", "", results["threads"]),
        (f"{large['num_titles']:,} titles in 4,096 MB", f"{large['peak_mb']:,.0f} MB", large["peak_mb"] <= 4096),
        ("1,000 titles/s join stories, vectors given", f"{rate:,.0f} titles/s", rate >= 1000),
        ("… and with the embedder's own time", f"{embedded:,.0f} titles/s", embedded >= 1000),
        ("precision of copies at least 0.99", f"{copies['precision']:.4f}", copies["precision"] >= 0.99),
        ("recall of copies at least 0.98", f"{copies['recall']:.4f}", copies["recall"] >= 0.98),
        ("minimal pairs merged, at most 1 %", f"{100 * merged:.2f} %", merged <= 0.01),
    ]
    rows = [f"| {what} | {value} | {'yes' if is_reached else '**no**'} |" for what, value, is_reached in asked]
    return ["## Goals", "", "| goal | measured | reached |", "| --- | ---: | --- |", *rows, ""]


def _ratio(row: Mapping[str, float]) -> str:
    return f"{100 * row['pairs']:.1f} % against {100 * row['random']:.3f} %"


def _is_far(row: Mapping[str, float]) -> bool:
    return row["pairs"] > 100 * row["random"]


def _notebook_s(notebook: Mapping[str, Any]) -> float:
    return float(notebook["encode_s"] + notebook["umap_s"] + notebook["hdbscan_s"])


def day_lines(day: Mapping[str, Any]) -> list[str]:
    """Return the lines on the time of the command."""
    steps = "".join(f"| {name} | {seconds:.1f} |\n" for name, seconds in day["elapsed_s"].items())
    return [
        "## Time",
        "",
        "One command, `python -m apps.clustering FILE`, in a process of its own and with an empty cache:",
        "",
        "| step | seconds |",
        "| --- | ---: |",
        *steps.splitlines(),
        f"| all, start of Python included | {day['wall_s']:.1f} |",
        "",
        f"Processor time {day['cpu_s']:.1f} s; peak memory {day['peak_mb']:,.0f} MB; the page has "
        f"{day['size_bytes']['html'] / 1e6:.1f} MB.",
        "",
    ]


def _notebook_lines(day: Mapping[str, Any], notebook: Mapping[str, Any]) -> list[str]:
    total = _notebook_s(notebook)
    return [
        "The notebook's pipeline in the same run: `sentence-transformers` in fp32 with a BERT of base size and random "
        f"weights, timed on {notebook['sample']} titles and scaled up; UMAP to {NOTEBOOK['components']} and HDBSCAN "
        "within each category:",
        "",
        "| step | seconds |",
        "| --- | ---: |",
        f"| encode | {notebook['encode_s']:.1f} |",
        f"| UMAP | {notebook['umap_s']:.1f} |",
        f"| HDBSCAN | {notebook['hdbscan_s']:.1f} |",
        f"| all | {total:.1f} |",
        "",
        f"That is {total / day['wall_s']:.1f} times as long, without keywords, duplicates or a page.",
        "",
    ]


def _clusterer_lines(rows: Mapping[str, Any]) -> list[str]:
    return [
        f"HDBSCAN alone, on the graph of nearest neighbours of all distinct titles; median of {rows['num_runs']} runs:",
        "",
        "| package (`--clusterer`) | seconds | groups | adjusted Rand index |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {name} | {row['seconds']:.2f} | {row['num_groups']:,} | {row['ari']:.3f} |"
            for name, row in rows.items()
            if isinstance(row, Mapping)
        ),
        "",
    ]


MEASURES = (
    "| | stories | largest | noise | pairs together | random pairs together | times | AMI | AMI with noise |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)


def _measure_line(name: str, row: Mapping[str, float]) -> str:
    times = f"{row['pairs'] / row['random']:,.0f}" if row["random"] else "–"
    return (
        f"| {name} | {row['num_stories']:,} | {row['largest']} | {100 * row['noise']:.1f} % | "
        f"{100 * row['pairs']:.1f} % | {100 * row['random']:.3f} % | {times} | {row['ami']:.3f} | "
        f"{row['ami_all']:.3f} |"
    )


def _quality_lines(quality: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    return [
        "## Quality by automatic measures",
        "",
        "A *pair* is two different titles that share a rare name (a proper noun or Latin word by Kiwi, in at most "
        f"{MAX_ENTITY} titles) and a number (in at most {MAX_NUMBER} titles): there are {quality['num_pairs']}, and "
        "most report one event. A clustering is good if pairs are in one story and random titles are not. AMI is the "
        "adjusted mutual information with the 11 categories, of the titles in stories and of all with noise as one "
        "more group; it cannot be high, as stories are far finer than categories.",
        "",
        *MEASURES,
        *(_measure_line(name, row) for name, row in quality["rows"].items()),
        "",
        "Effect of each setting:",
        "",
        *MEASURES,
        *(_measure_line(name, row) for name, row in settings["linkage"].items()),
        "",
        "With HDBSCAN (`clusterer=sklearn`):",
        "",
        *MEASURES,
        *(_measure_line(name, row) for name, row in settings["hdbscan"].items()),
        "",
    ]


def _duplicate_lines(result: Mapping[str, Any]) -> list[str]:
    total, merged = sum(result["minimal"].values()), sum(result["merged"].values())
    return [
        "## Near-duplicates",
        "",
        f"- Of {result['num_titles']:,} titles, {result['num_expected']:,} pairs have a Jaccard index of 0.8 or more "
        f"by brute force. MinHash finds them with precision {result['precision']:.4f} and recall "
        f"{result['recall']:.4f} in {result['elapsed_s']:.1f} s.",
        f"- The guard passes {100 * result['accepted']:.1f} % of these pairs; the others differ in a number, a "
        "name, a negation or a word.",
        f"- The real day has {result['num_groups']:,} groups of copies with {result['num_copies']:,} copies beside "
        "their representatives.",
        f"- {total:,} pairs that differ in one number, name or negation alone: {merged} are merged "
        f"({100 * merged / total:.2f} %).",
        "",
        "| changed | pairs | merged | passed by the guard at any similarity |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {kind} | {number} | {result['merged'].get(kind, 0)} | {result['passed'].get(kind, 0)} |"
            for kind, number in result["minimal"].items()
        ),
        "",
    ]


def _assign_lines(result: Mapping[str, Any]) -> list[str]:
    return [
        "## Stories over time",
        "",
        f"- {result['num_fitted']:,} titles of the day, drawn at random, make stories in {result['fit_s']:.1f} s, "
        f"given their vectors; the other {result['num_assigned']:,} join at {result['titles_per_s']:,.0f} titles/s, "
        f"given theirs, and at {result['embedded_titles_per_s']:,.0f} with the time that the embedder takes.",
        f"- {100 * result['joined']:.1f} % of them join a story; the rest forms {result['num_found']} new ones in "
        f"{result['found_s']:.1f} s. {result['num_moved']} articles changed their story meanwhile.",
        "",
        *MEASURES,
        _measure_line("step by step", result["step_by_step"]),
        _measure_line("all at once", result["at_once"]),
        "",
    ]


def _large_lines(result: Mapping[str, Any]) -> list[str]:
    return [
        "## Many titles",
        "",
        f"- {result['num_titles']:,} titles with random vectors of 256 dimensions, from titles to the page: "
        f"{result['peak_mb']:,.0f} MB at most, {result['elapsed_s']:,.0f} s.",
        "",
    ]


def _story_lines(shown: Sequence[Mapping[str, Any]], number: int) -> list[str]:
    lines = [
        f"## {len(shown)} of {number:,} stories",
        "",
        "At equal distances in the order of size; the first titles of each, the nearest to the centre first.",
        "",
    ]
    for story in shown:
        lines.append(f"**{_plain(story['headline'])}** · {story['size']} · {_plain(', '.join(story['keywords']))}")
        lines += ["", *(f"- {_plain(title)}" for title in story["titles"]), ""]
    return lines


def _plain(text: str) -> str:
    """Return a text as Markdown shows it letter by letter."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text)
