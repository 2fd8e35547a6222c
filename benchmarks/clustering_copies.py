"""Copies of bodies made by the edits of newsrooms, and short texts that differ in one fact."""

import csv
import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apps.stories.articles import read_articles
from apps.stories.duplicates import find_duplicates, letters_of
from benchmarks.clustering_measures import marked_names, minimal_pairs
from benchmarks.clustering_page import NEWS

NUM_BODIES, NUM_MINIMAL = 100, 1_200
SHORTEST_BODY = 150
"""Letters of a body."""
Random = np.random.Generator


def read_bodies(data: Path) -> list[str]:
    """Return the bodies of press releases and of Wikinews with three sentences or more."""
    bodies = []
    for name in ("press_releases_municipal", "press_releases_korea_kr"):
        with gzip.open(data / "corpus" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            bodies += [json.loads(line)["text"] for line in file]
    with (data / "corpus" / "boddari_wikinews.csv").open(encoding="utf-8", newline="") as file:
        bodies += [row[3] for row in list(csv.reader(file))[1:] if len(row) > 3]
    return sorted({body for body in bodies if len(letters_of(body)) >= SHORTEST_BODY and body.count("다.") >= 3})


def _sentences(body: str) -> list[str]:
    return re.split(r"(?<=다\.)\s+", body)


def _drop_sentence(body: str, random: Random) -> str:
    sentences = _sentences(body)
    dropped = int(random.integers(len(sentences)))
    return " ".join(sentences[:dropped] + sentences[dropped + 1 :])


def _replace_word(body: str, random: Random) -> str:
    words = body.split(" ")
    replaced, other = random.integers(len(words), size=2).tolist()
    return " ".join([*words[:replaced], words[other][::-1], *words[replaced + 1 :]])


def _curl_quotes(body: str, _: Random) -> str:
    if any(mark in body for mark in "“”‘’"):
        return body.translate(str.maketrans("“”‘’", "\"\"''"))
    return re.sub(r'"([^"]*)"', "“\\1”", body)


def _reorder(body: str, random: Random) -> str:
    parts = body.split("\n") if body.count("\n") > 1 else _sentences(body)
    return "\n".join(parts[k] for k in random.permutation(len(parts)))


EDITS: Mapping[str, Callable[[str, Random], str]] = {
    "byline": lambda body, _: f"{body}\n김하늘 기자 sky@press.example",
    "dateline": lambda body, _: f"(서울=물빛통신) 김하늘 기자 = {body}",
    "copyright line": lambda body, _: f"{body}\n<저작권자 ⓒ 물빛통신, 무단 전재 및 재배포 금지>",
    "dateline, byline and copyright line": lambda body, _: (
        f"[세종=물빛뉴스] 김하늘 기자 = {body}\nsky@press.example\n▶ 물빛뉴스 구독하기\n"
        "Copyright ⓒ 물빛뉴스. All rights reserved."
    ),
    "one sentence dropped": _drop_sentence,
    "one word replaced": _replace_word,
    "quotation marks": _curl_quotes,
    "paragraphs reordered": _reorder,
}


def measure_copies(data: Path) -> dict[str, Any]:
    """Return how many edited bodies are found, and how many minimal pairs are merged."""
    bodies, random = read_bodies(data), np.random.default_rng(0)
    chosen = [bodies[k] for k in random.permutation(len(bodies))[:NUM_BODIES]]
    found = {name: _num_found(chosen, [edit(body, random) for body in chosen]) for name, edit in EDITS.items()}
    titles = [article.title for article in read_articles(data / NEWS)]
    pairs = minimal_pairs(sorted({title for title in titles if title.strip()}), marked_names(data), NUM_MINIMAL, seed=1)
    merged = {kind: [0, 0] for kind, _, _ in pairs}
    for kind, first, second in pairs:
        merged[kind][0] += bool(find_duplicates([first, second]))
        merged[kind][1] += 1
    return {"found": found, "num_bodies": len(chosen), "merged": merged}


def _num_found(bodies: Sequence[str], copies: Sequence[str]) -> int:
    groups = find_duplicates([*bodies, *copies])
    group_of = {member: number for number, group in enumerate(groups) for member in group.members}
    pairs = ((group_of.get(k, -1), group_of.get(len(bodies) + k, -2)) for k in range(len(bodies)))
    return sum(first == second for first, second in pairs)
