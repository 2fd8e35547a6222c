"""The page of `benchmarks/clustering_events.py`: figures as Markdown."""

import os
from collections.abc import Mapping
from typing import Any

from benchmarks.clustering_page import day_lines
from corpora.foundation.machine import cpu_name, versions

METHODS = {"linkage": "linkage (default)", "sklearn": "HDBSCAN (`--clusterer sklearn`)"}
MEASURES = ("bcubed_precision", "bcubed_recall", "pair_precision", "pair_recall")


def page(results: Mapping[str, Any]) -> str:
    """Return the page of the docs."""
    rows, pairs, judged, copies = (results[name] for name in ("rows", "pairs", "judged", "copies"))
    libraries = versions("scikit-learn", "scipy", "numpy", "kiwipiepy")
    lines = [
        "# Stories and copies",
        "",
        "Written by `python -m benchmarks.clustering_events DATA`; do not edit.",
        "",
        f"- Machine: {cpu_name()}, {os.cpu_count()} threads.",
        "- " + ", ".join(f"{name} {version}" for name, version in libraries.items()) + ".",
        "- Data: `news/newstrust_20210601_sample.json`; marks in `benchmarks/data/clustering_marks.json`.",
        "",
        "## Stories",
        "",
        f"All titles of {results['num_events']} events were marked; settings were chosen on other events. An event is "
        "one thing that happened or was announced, with its reactions. Precision and recall are BCubed, averaged over "
        "events that have 3 different titles in the sample, and of pairs of titles; intervals (95 %) resample events. "
        "Titles in routine formats belong to no event.",
        "",
        "| method | titles | samples | BCubed precision | BCubed recall | pair precision | pair recall | in stories | "
        "largest story |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(_size_line(row) for row in rows),
        "",
        "Marked pairs of the reported half, whole day: "
        f"precision {pairs['true'] / max(1, pairs['true'] + pairs['false']):.3f}, "
        f"recall {pairs['true'] / max(1, pairs['true'] + pairs['missed']):.3f} "
        f"({pairs['true'] + pairs['missed']} pairs on one event, {pairs['false'] + pairs['separate']} not).",
        "",
        *_judged_lines(judged),
        *_copy_lines(copies),
        *day_lines(results["day"]),
    ]
    return "\n".join(lines)


def _size_line(row: Mapping[str, Any]) -> str:
    cells = [f"{row[name]:.3f} ({row['intervals'][name][0]:.2f}–{row['intervals'][name][1]:.2f})" for name in MEASURES]
    head = f"| {METHODS[row['method']]} | {row['num_titles']:,} | {row['num_samples']} | "
    return head + " | ".join(cells) + f" | {100 * row['in_stories']:.1f} % | {row['largest']} |"


def _judged_lines(judged: list[Mapping[str, int]]) -> list[str]:
    if not judged:
        return []
    wrong, total = sum(row["wrong"] for row in judged), 300 * len(judged)
    return [
        f"Random samples of 300 titles whose stories were read one by one: {wrong} of {total:,} titles are in a wrong "
        f"story ({100 * wrong / total:.1f} %).",
        "",
        "| seed | titles in stories | in a wrong story | not judged |",
        "| ---: | ---: | ---: | ---: |",
        *(f"| {row['seed']} | {row['in_stories']} | {row['wrong']} | {row['not_judged']} |" for row in judged),
        "",
    ]


def _copy_lines(copies: Mapping[str, Any]) -> list[str]:
    return [
        "## Copies",
        "",
        f"{copies['num_bodies']} bodies of press releases and Wikinews, each with an edited copy:",
        "",
        "| edit | found |",
        "| --- | ---: |",
        *(f"| {name} | {number} |" for name, number in copies["found"].items()),
        "",
        "Titles that differ in one fact alone:",
        "",
        "| changed | pairs | merged |",
        "| --- | ---: | ---: |",
        *(f"| {kind} | {total} | {merged} |" for kind, (merged, total) in copies["merged"].items()),
        "",
    ]
