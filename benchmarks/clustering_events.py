"""Benchmark of stories against marked events, of copies of bodies, and of time; writes the page in the docs.

    python -m benchmarks.clustering_events DATA
    python -m benchmarks.clustering_events DATA --fit        # print the weights of the log-odds, from the other half
    python -m benchmarks.clustering_events DATA --show 201   # print the stories of a random sample of 300 titles

DATA holds `news/newstrust_20210601_sample.json`, `corpus/` and `klue/`. The marks are in
`benchmarks/data/clustering_marks.json`: events with all their titles, and pairs. Events are divided by a hash of their
names: settings are chosen on one half and reported on the other.
"""

import argparse
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.stories.articles import Article, clean_title, read_articles
from apps.stories.clusters import (
    CharNgrams,
    ClusteringConfig,
    EmbeddedArticles,
    find_groups,
    make_clusterer,
    make_reducer,
)
from apps.stories.linking.pairs import FEATURES, PairFeatures
from apps.stories.linking.routine import routine_kind
from benchmarks.clustering_copies import measure_copies
from benchmarks.clustering_events_page import page
from benchmarks.clustering_measures import run_day
from benchmarks.clustering_page import NEWS
from corpora.foundation.command import run_command
from corpora.foundation.errors import DataError
from corpora.foundation.files import write_text

MARKS = Path(__file__).with_name("data") / "clustering_marks.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "clustering.md"
SAMPLES = {300: 20, 1_000: 6, 2_000: 3}
"""Random samples of each size."""
NUM_RESAMPLES = 1_000
LEAST_TITLES = 3
"""Different titles of an event in a sample from which on it is counted: smaller ones cannot be a story."""
CHOOSE, REPORT = 0, 1
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Marks:
    """Marked events and pairs, by positions in the file."""

    event_of: Mapping[int, str]
    left_out: frozenset[int]
    pairs: Sequence[tuple[int, int, bool]]
    judged: Mapping[int, Mapping[str, Sequence[int]]]
    """Seed → titles in stories, and those of them in a wrong one, judged by eye."""

    def half_of_pair(self, first: int, second: int) -> int:
        """Return the half of a pair: that of an event of its titles, else by a hash."""
        event = self.event_of.get(first) or self.event_of.get(second)
        return half(event or f"{first}-{second}")


def half(name: str) -> int:
    """Return the half that a name belongs to."""
    return hashlib.sha256(name.encode("utf-8")).digest()[0] & 1


def read_marks(file: Path) -> Marks:
    """Read the marks of a file of titles.

    Raises:
        DataError: the file is another one.
    """
    data = json.loads(MARKS.read_text(encoding="utf-8"))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != data["sha256"]:
        raise DataError(file, f"SHA-256 {digest[:12]}", f"give the file with {data['sha256'][:12]}: {data['source']}")
    return Marks(
        event_of={int(k): event["name"] for event in data["events"] for k in event["titles"]},
        left_out=frozenset(int(k) for event in data["events"] for k in event["left_out"]),
        pairs=[(pair["first"], pair["second"], pair["same"]) for pair in data["pairs"]],
        judged={int(seed): judged for seed, judged in data.get("judged", {}).items()},
    )


def main(argv: list[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="Benchmark stories and copies.")
    parser.add_argument("data", type=Path, help="data root")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--fit", action="store_true", help="print the weights of the log-odds")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the stories of a sample of 300 titles")
    arguments = parser.parse_args(argv)
    articles, marks = read_articles(arguments.data / NEWS), read_marks(arguments.data / NEWS)
    if arguments.fit:
        sys.stdout.write(json.dumps(fit_weights(articles, marks)) + "\n")
    elif arguments.show is not None:
        for story in stories_of(articles, sample(len(articles), 300, arguments.show)):
            sys.stdout.write("\n".join(f"{k}\t{articles[k].title}" for k in story) + "\n\n")
    else:
        results = {
            "day": run_day(arguments.data / NEWS),
            "rows": measure_sizes(articles, marks),
            "pairs": measure_pairs(articles, marks),
            "judged": measure_judged(articles, marks),
            "copies": measure_copies(arguments.data),
            "num_events": sum(half(name) == REPORT for name in set(marks.event_of.values())),
        }
        write_text(arguments.out, page(results))
        sys.stdout.write(f"{arguments.out}\n")
    return 0


def sample(size: int, count: int, seed: int) -> list[int]:
    """Return random positions, in order."""
    return sorted(np.random.default_rng(seed).permutation(size)[:count].tolist())


def group(articles: Sequence[Article], chosen: Sequence[int], **settings: Any) -> Labels:
    """Return the story of each chosen article, −1 for none; titles are compared without an embedder."""
    config = ClusteringConfig(**settings)
    embedded = EmbeddedArticles.from_articles([articles[k] for k in chosen], CharNgrams(), make_reducer(config))
    return find_groups(embedded, config, make_clusterer(config))[0]


def stories_of(articles: Sequence[Article], chosen: Sequence[int]) -> list[list[int]]:
    """Return the positions of the articles of each story, the largest first."""
    found: dict[int, list[int]] = defaultdict(list)
    for position, label in zip(chosen, group(articles, chosen).tolist(), strict=True):
        found[label].append(position)
    found.pop(-1, None)
    return sorted(found.values(), key=lambda story: (-len(story), story))


# ---- events ----


@dataclass(frozen=True)
class EventScore:
    """How one event of a sample is found. Copies of a title count once."""

    event: str
    precision: float | None
    """Mean share of the event in the story of each of its titles (BCubed); None if all titles are in none."""
    recall: float
    true: int
    """Pairs of titles in one story, of the event …"""
    false: int
    """… and of a title of the event with a stranger."""
    missed: int


def score_events(articles: Sequence[Article], chosen: Sequence[int], labels: Labels, marks: Marks) -> list[EventScore]:
    """Score the events of the reported half."""
    texts: dict[str, int] = {}
    for index, position in enumerate(chosen):
        texts.setdefault(clean_title(articles[position].title), index)
    indices = sorted(texts.values())
    left_out = {clean_title(articles[k].title) for k in marks.left_out}
    events: dict[str, list[int]] = defaultdict(list)
    for index in indices:
        event = marks.event_of.get(chosen[index])
        if event is not None and half(event) == REPORT:
            events[event].append(index)
    story: dict[int, list[int]] = defaultdict(list)
    for index in indices:
        if clean_title(articles[chosen[index]].title) not in left_out:
            story[int(labels[index])].append(index)
    scores = []
    for event, members in sorted(events.items()):
        if len(members) >= LEAST_TITLES:
            scores.append(_score(event, set(members), labels, story))
    return scores


def _score(event: str, members: set[int], labels: Labels, story: Mapping[int, Sequence[int]]) -> EventScore:
    precisions, recalls, true, false, missed = [], [], 0, 0, 0
    for index in sorted(members):
        label = int(labels[index])
        together = set(story[label]) if label >= 0 else {index}
        good, bad = len(together & members), len(together - members)
        recalls.append(good / len(members))
        if label >= 0:
            precisions.append(good / (good + bad))
        true, false, missed = true + good - 1, false + bad, missed + len(members) - good
    precision = float(np.mean(precisions)) if precisions else None
    return EventScore(event, precision, float(np.mean(recalls)), true // 2, false, missed // 2)


def summary(scores: Sequence[EventScore]) -> dict[str, float]:
    """Return BCubed averaged over events, and precision and recall of all pairs."""
    precisions = [score.precision for score in scores if score.precision is not None]
    true, false, missed = (sum(getattr(score, name) for score in scores) for name in ("true", "false", "missed"))
    return {
        "bcubed_precision": float(np.mean(precisions)) if precisions else 1.0,
        "bcubed_recall": float(np.mean([score.recall for score in scores])) if scores else 0.0,
        "pair_precision": true / max(1, true + false),
        "pair_recall": true / max(1, true + missed),
    }


def intervals(scores: Sequence[EventScore]) -> dict[str, tuple[float, float]]:
    """Return 95 % intervals of `summary`: events are resampled, with all their samples."""
    by_event: dict[str, list[EventScore]] = defaultdict(list)
    for score in scores:
        by_event[score.event].append(score)
    names, random = sorted(by_event), np.random.default_rng(0)
    drawn = []
    for _ in range(NUM_RESAMPLES):
        chosen = random.integers(len(names), size=len(names))
        drawn.append(summary([score for k in chosen for score in by_event[names[k]]]))
    return {
        name: (float(np.quantile([d[name] for d in drawn], 0.025)), float(np.quantile([d[name] for d in drawn], 0.975)))
        for name in drawn[0]
    }


def measure_sizes(articles: Sequence[Article], marks: Marks) -> list[dict[str, Any]]:
    """Score random samples of each size, and the whole day, by linkage and by HDBSCAN."""
    rows = []
    for method in ("linkage", "sklearn"):
        for count, num_samples in {**SAMPLES, len(articles): 1}.items():
            scores, largest, shares = [], [], []
            for seed in range(num_samples):
                chosen = sample(len(articles), count, 1_000 + seed)
                labels = group(articles, chosen, clusterer=method)
                scores += score_events(articles, chosen, labels, marks)
                largest.append(int(np.bincount(labels[labels >= 0], minlength=1).max()))
                shares.append(float((labels >= 0).mean()))
            rows.append(
                {
                    "method": method,
                    "num_titles": count,
                    "num_samples": num_samples,
                    "num_scores": len(scores),
                    **summary(scores),
                    "intervals": intervals(scores),
                    "largest": max(largest),
                    "in_stories": float(np.mean(shares)),
                }
            )
            sys.stderr.write(f"{rows[-1]}\n")
    return rows


def measure_pairs(articles: Sequence[Article], marks: Marks) -> dict[str, int]:
    """Compare the marked pairs of the reported half with the stories of the whole day."""
    labels = group(articles, range(len(articles)))
    counts = {"true": 0, "false": 0, "missed": 0, "separate": 0}
    for first, second, same in marks.pairs:
        if marks.half_of_pair(first, second) == REPORT and not _is_routine(articles, (first, second)):
            together = labels[first] == labels[second] >= 0
            counts[("true" if same else "false") if together else ("missed" if same else "separate")] += 1
    return counts


def _is_routine(articles: Sequence[Article], positions: Iterable[int]) -> bool:
    return any(routine_kind(articles[k].title) for k in positions)


def measure_judged(articles: Sequence[Article], marks: Marks) -> list[dict[str, int]]:
    """Return, for samples of 300 titles that were judged by eye, titles in stories and in wrong ones."""
    rows = []
    for seed, judged in marks.judged.items():
        inside = {k for story in stories_of(articles, sample(len(articles), 300, seed)) for k in story}
        wrong, known = inside & set(judged["wrong"]), set(judged["right"]) | set(judged["wrong"])
        row = {"seed": seed, "in_stories": len(inside), "wrong": len(wrong), "not_judged": len(inside - known)}
        rows.append(row)
    return rows


# ---- weights ----


def fit_weights(articles: Sequence[Article], marks: Marks) -> dict[str, float]:
    """Fit the weights of the log-odds to the half that is not reported.

    Positive pairs are marked pairs and pairs within events; negative ones are marked pairs, and titles of events with
    their nearest strangers. Each event counts as much as 15 pairs of either kind at most.
    """
    from sklearn.linear_model import LogisticRegression

    texts = sorted({clean_title(article.title) for article in articles} - {""})
    position = {text: k for k, text in enumerate(texts)}
    of_title = [position.get(clean_title(article.title), -1) for article in articles]
    features, random = PairFeatures(texts), np.random.default_rng(0)
    rows = [
        (of_title[first], of_title[second], same, 1.0)
        for first, second, same in marks.pairs
        if marks.half_of_pair(first, second) == CHOOSE and of_title[first] != of_title[second]
    ]
    events: dict[str, set[int]] = defaultdict(set)
    for title, event in marks.event_of.items():
        if half(event) == CHOOSE:
            events[event].add(of_title[title])
    left_out = {of_title[k] for k in marks.left_out}
    for event in sorted(events):
        rows += _pairs_of_event(features, events[event], left_out, random)
    first, second, same, weight = (np.array(column) for column in zip(*rows, strict=True))
    model = LogisticRegression(C=10, max_iter=1000).fit(features.features_of(first, second), same, weight)
    fitted = {name: round(float(value), 2) for name, value in zip(FEATURES, model.coef_[0], strict=True)}
    return {**fitted, "intercept": round(float(model.intercept_[0]), 2)}


def _pairs_of_event(
    features: PairFeatures, members: set[int], left_out: set[int], random: np.random.Generator
) -> list[tuple[int, int, bool, float]]:
    ordered = sorted(members)
    inside = [(a, b) for k, a in enumerate(ordered) for b in ordered[k + 1 :]]
    inside = [inside[k] for k in random.permutation(len(inside))[:60]]
    rows = [(a, b, True, min(len(inside), 15) / len(inside)) for a, b in inside]
    strangers = []
    for title in random.permutation(ordered)[:12].tolist():
        shared = (features.letters[[title]] @ features.letters.T + features.nouns[[title]] @ features.nouns.T).toarray()
        near = [k for k in np.argsort(-shared[0], kind="stable")[:60].tolist() if k not in members | left_out]
        strangers += [(title, other) for other in near[:12]]
    return rows + [(a, b, False, 15 / len(strangers)) for a, b in strangers]


if __name__ == "__main__":
    run_command(main)
