"""Benchmark of clustering: time, quality and near-duplicates of a day, against baselines in the same run.

    python -m benchmarks.clustering DATA
    python -m benchmarks.clustering DATA --titles 1500 --out trial.md    # a trial; figures are not representative

DATA holds `news/newstrust_20210601_sample.json`, and `corpus/`, `klue/`, `kpfbert/` and `nsmc/` beside it. The notebook
that is compared with needs `umap-learn` (`pressbert[benchmarks]`). Each part runs in a process of its own. Writes
`clustering_methods.md`; the page in the docs is that of `benchmarks.clustering_events`.
"""

import argparse
import gzip
import importlib.util
import json
import math
import re
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from apps.clustering import LETTERS, Stories, find_duplicates
from apps.stories.articles import Article, read_articles, to_articles
from apps.stories.clusters import (
    ClusteringConfig,
    Clusters,
    EmbeddedArticles,
    cluster,
    describe,
    distinct_texts,
    find_groups,
    make_clusterer,
    make_reducer,
)
from apps.stories.duplicates import DuplicateConfig, have_same_facts, letters_of
from apps.stories.files import write_report
from apps.stories.grouping import Labels, Library, neighbour_graph
from apps.stories.report import Report
from apps.stories.space import CharNgrams, Embedder
from benchmarks.clustering_measures import (
    Baseline,
    CachedEmbedder,
    Judge,
    brute_force,
    embedder_name,
    marked_names,
    minimal_pairs,
    open_embedder,
    run_day,
    run_measured,
)
from benchmarks.clustering_page import NEWS, NOTEBOOK, page
from corpora.foundation.command import run_command
from corpora.foundation.errors import DataError, UsageError
from corpora.foundation.files import write_text
from corpora.near_duplicates import similar_pairs
from corpora.readers.decoding import read_text

PAGE = Path("clustering_methods.md")

NUM_SHOWN, SHOWN_TITLES = 30, 5
NUM_TITLES = 12_006
NUM_CLUSTERER_RUNS = 5
NUM_DUPLICATE_TITLES, NUM_MINIMAL, NUM_ASSIGNED, NUM_LARGE = 20_000, 2_000, 4_000, 100_000


def main(argv: list[str] | None = None) -> int:
    """Run all parts and write the page."""
    parser = argparse.ArgumentParser(description="Benchmark clustering.")
    parser.add_argument("data", type=Path, help="data root")
    parser.add_argument("--model", help=f"embedder: folder or hub id, or '{LETTERS}'; default: the bundled one")
    parser.add_argument("--sample", type=int, default=256, help="titles that the notebook's encoder is timed on")
    parser.add_argument("--titles", type=int, default=NUM_TITLES, help="titles of a trial, drawn at random")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--part", help="internal: measure one part in this process and print its figures")
    arguments = parser.parse_args(argv)
    if not (arguments.data / NEWS).is_file():
        raise UsageError(arguments.data, f"no {NEWS} in it", "give the data root")
    if arguments.part in (None, "notebook") and importlib.util.find_spec("umap") is None:
        raise UsageError("umap-learn", "not installed", "pip install 'pressbert[benchmarks]'")
    parts: dict[str, Callable[[argparse.Namespace], Any]] = {
        "notebook": measure_notebook,
        "clusterers": measure_clusterers,
        "quality": measure_quality,
        "settings": measure_settings,
        "duplicates": measure_duplicates,
        "assign": measure_assign,
        "labels": measure_labels,
        "large": measure_large,
    }
    if arguments.part:
        sys.stdout.write(json.dumps(parts[arguments.part](arguments), ensure_ascii=False) + "\n")
        return 0
    results: dict[str, Any] = {"day": measure_day(arguments)}
    for name in parts:
        if name != "labels":
            results[name], results[name]["peak_mb"] = run_part(arguments, name)
            sys.stderr.write(f"{name}: {json.dumps(results[name], ensure_ascii=False)[:300]}\n")
    results["threads"] = measure_threads(arguments)
    is_trial = arguments.titles < NUM_TITLES
    options = f" --model {Path(arguments.model).name}" if arguments.model else ""
    options += f" --titles {arguments.titles}" if is_trial else ""
    embedder = embedder_name(arguments.model)
    write_text(arguments.out, page(results, options=options, embedder=embedder, is_trial=is_trial))
    sys.stdout.write(f"{arguments.out}\n")
    return 0


def run_part(arguments: argparse.Namespace, name: str, **environment: str) -> tuple[Any, float]:
    """Measure a part in a process of its own.

    Returns:
        Its figures, and its peak memory in MB.
    """
    command = [sys.executable, "-m", "benchmarks.clustering", str(arguments.data), "--part", name]
    command += ["--sample", str(arguments.sample), "--titles", str(arguments.titles)]
    command += ["--model", arguments.model] if arguments.model else []
    output, usage = run_measured(command, environment)
    return json.loads(output.splitlines()[-1]), usage.ru_maxrss / 1024


def read_day(arguments: argparse.Namespace) -> list[Article]:
    """Return the articles of the real day, or a random sample of them."""
    articles = to_articles(read_articles(arguments.data / NEWS))
    if arguments.titles >= len(articles):
        return articles
    return [
        articles[position]
        for position in sorted(np.random.default_rng(0).permutation(len(articles))[: arguments.titles])
    ]


def scaled(arguments: argparse.Namespace, number: int) -> int:
    """Return NUMBER scaled down to the titles of a trial."""
    share: float = min(arguments.titles, NUM_TITLES) / NUM_TITLES
    return math.ceil(number * share)


# ---- time ----


def measure_day(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the command on the real day, or on the titles of a trial."""
    if arguments.titles >= NUM_TITLES:
        return run_day(arguments.data / NEWS, arguments.model)
    with tempfile.TemporaryDirectory(prefix="pressbert-benchmark-") as scratch:
        file = Path(scratch) / NEWS.name
        records = [{"title": article.title, "category": article.category} for article in read_day(arguments)]
        write_text(file, json.dumps(records, ensure_ascii=False))
        return run_day(file, arguments.model)


def measure_notebook(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the notebook's pipeline: encode each title in fp32, then UMAP and HDBSCAN within each category.

    The encoder is a BERT-base with random weights, on which time does not depend.
    """
    import hdbscan
    import umap
    from sentence_transformers import SentenceTransformer

    articles = read_day(arguments)
    titles = [re.sub(r"\[[^\]]*\]", "", article.title) for article in articles]
    with tempfile.TemporaryDirectory(prefix="pressbert-benchmark-") as scratch:
        _write_random_bert(Path(scratch), arguments.data)
        model = SentenceTransformer(scratch, device="cpu", local_files_only=True)  # adds the mean over the tokens
    draw = np.random.default_rng(0)
    sample = [titles[position] for position in draw.permutation(len(titles))[: arguments.sample]]
    model.encode(sample[:32], batch_size=32)
    started = time.perf_counter()
    vectors = model.encode(sample, batch_size=32)
    encode_s = (time.perf_counter() - started) * len(titles) / len(sample)
    # The other vectors are those of the sample with noise: of the same number, length and similarity.
    rows = vectors[draw.integers(0, len(vectors), len(titles))]
    rows = (rows + vectors.std() * draw.standard_normal(rows.shape)).astype(np.float32)
    categories = np.array([article.category for article in articles])
    seconds = {"umap": 0.0, "hdbscan": 0.0}
    for category in sorted(set(categories.tolist())):
        some = rows[categories == category]
        if len(some) <= NOTEBOOK["neighbors"]:
            continue  # in a trial; UMAP has nothing to lay out
        started = time.perf_counter()
        positions = umap.UMAP(
            n_neighbors=NOTEBOOK["neighbors"], n_components=NOTEBOOK["components"], metric="cosine"
        ).fit_transform(some)
        reduced = time.perf_counter()
        hdbscan.HDBSCAN(
            min_cluster_size=NOTEBOOK["min_cluster_size"],
            min_samples=NOTEBOOK["min_samples"],
            allow_single_cluster=True,
        ).fit(positions)
        seconds["umap"] += reduced - started
        seconds["hdbscan"] += time.perf_counter() - reduced
    return {"encode_s": encode_s, "umap_s": seconds["umap"], "hdbscan_s": seconds["hdbscan"], "sample": len(sample)}


def _write_random_bert(folder: Path, data: Path) -> None:
    """Write a BERT of base size with random weights and kpfBERT's own tokenizer."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.manual_seed(0)
    tokenizer = BertTokenizer.from_pretrained(data / "kpfbert")
    BertModel(BertConfig(vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def measure_assign(arguments: argparse.Namespace) -> dict[str, Any]:
    """Fit two thirds of the day, and assign the rest."""
    # With ids of their own: copies of a title in a later batch are new articles.
    articles = [replace(article, id=f"article-{number}") for number, article in enumerate(read_day(arguments))]
    articles = [articles[position] for position in np.random.default_rng(0).permutation(len(articles))]
    size = scaled(arguments, NUM_ASSIGNED)
    batches = [articles[first : first + 1000] for first in range(len(articles) - size, len(articles), 1000)]
    embedder = CachedEmbedder(open_embedder(arguments.model))
    _embed(embedder, articles[:-size])
    started = time.perf_counter()
    stories = Stories.fit(articles[:-size], embedder=embedder)
    fitted = time.perf_counter()
    before = list(stories.story_of)
    for batch in batches:
        _embed(embedder, batch)
    vectors_at = time.perf_counter()
    joined = [story for batch in batches for story in stories.assign(batch, embedder=embedder)]
    assigned = time.perf_counter()
    new = stories.found()
    found = time.perf_counter()
    numbers = {id_: number for number, id_ in enumerate(stories.stories)} | {"": -1}
    judge = Judge(articles)
    config = ClusteringConfig()
    embedded = EmbeddedArticles.from_articles(articles, embedder, make_reducer(config))
    return {
        "num_fitted": len(articles) - size,
        "num_assigned": size,
        "fit_s": fitted - started,
        "titles_per_s": size / (assigned - vectors_at),
        "embedded_titles_per_s": size / (assigned - fitted),
        "joined": sum(story is not None for story in joined) / size,
        "found_s": found - assigned,
        "num_found": len(new),
        "num_moved": sum(a != b for a, b in zip(before, stories.story_of, strict=False) if a),
        "step_by_step": judge.judge(np.array([numbers[story] for story in stories.story_of])),
        "at_once": judge.judge(find_groups(embedded, config, make_clusterer(config))[0]),
    }


def _embed(embedder: Embedder, articles: Sequence[Article]) -> None:
    embedder.encode(distinct_texts(articles)[0])


def measure_large(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write all files for many titles, those of the day and film reviews; vectors are random."""

    class Drawn:
        sha256 = "drawn"

        def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.random.default_rng(0).standard_normal((len(texts), 256)).astype(np.float32)

    titles = [article.title for article in read_day(arguments)]
    titles += _lines(arguments.data / "nsmc" / "reviews_unlabeled.txt.gz", scaled(arguments, NUM_LARGE) - len(titles))
    started = time.perf_counter()
    clusters = cluster(titles, embedder=Drawn())
    duplicates = find_duplicates(titles, clusters.points)
    with tempfile.TemporaryDirectory(prefix="pressbert-benchmark-") as scratch:
        write_report(Path(scratch), Report(clusters, duplicates))
    return {
        "num_titles": len(titles),
        "num_stories": len(clusters.stories),
        "elapsed_s": time.perf_counter() - started,
    }


def _lines(path: Path, count: int) -> list[str]:
    """Return distinct lines of a file that are as long as titles."""
    found: dict[str, None] = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            if 12 <= len(line.strip()) <= 60:
                found[line.strip()] = None
            if len(found) >= count:
                return list(found)[:count]
    raise DataError(path, f"fewer than {count} lines of 12 to 60 characters", "give the whole file")


# ---- determinism ----


def measure_labels(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a digest of the real day's stories, and of those of the day shuffled."""
    from corpora.foundation.files import fingerprint

    config = ClusteringConfig()
    embedder = CachedEmbedder(open_embedder(arguments.model))

    def stories(articles: Sequence[Article]) -> list[list[str]]:
        embedded = EmbeddedArticles.from_articles(articles, embedder, make_reducer(config))
        found: dict[int, list[str]] = defaultdict(list)
        for label, article in zip(
            find_groups(embedded, config, make_clusterer(config))[0].tolist(), articles, strict=True
        ):
            if label >= 0:
                found[label].append(article.id)
        return sorted(sorted(ids) for ids in found.values())

    articles = read_day(arguments)
    shuffled = [articles[position] for position in np.random.default_rng(1).permutation(len(articles))]
    return {"digest": fingerprint(stories(articles)), "shuffled": fingerprint(stories(shuffled))}


def measure_threads(arguments: argparse.Namespace) -> bool:
    """Return whether one thread, two threads and another order give the same stories."""
    digests = set()
    for threads in ("1", "2"):
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        digests |= set(run_part(arguments, "labels", **limits)[0].values())
    return len(digests) == 1


# ---- quality ----


def measure_quality(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare with the baselines, and list some stories."""
    articles = read_day(arguments)
    judge = Judge(articles)
    embedder = CachedEmbedder(open_embedder(arguments.model))
    config = ClusteringConfig()
    embedded = EmbeddedArticles.from_articles(articles, embedder, make_reducer(config))
    labels, is_core = find_groups(embedded, config, make_clusterer(config))
    baseline = Baseline(embedded.texts, embedded.of_article)
    points = baseline.points()
    rows = {
        "ours": judge.judge(labels),
        "TF-IDF, LSA to 100, HDBSCAN": judge.judge(baseline.hdbscan(points)),
        "TF-IDF, LSA to 100, k-means with as many groups": judge.judge(baseline.kmeans(points, int(labels.max()) + 1)),
    }
    clusters = describe(embedded, labels, is_core, config)
    return {"rows": rows, "num_pairs": len(judge.pairs), "shown": _some_stories(clusters)}


def _some_stories(clusters: Clusters) -> list[dict[str, Any]]:
    """Return stories at equal distances in the order of size, with their first titles."""
    stories = clusters.stories
    positions = np.unique(np.linspace(0, len(stories) - 1, min(NUM_SHOWN, len(stories))).round().astype(int)).tolist()
    return [
        {
            "size": len(stories[position]),
            "headline": stories[position].headline,
            "keywords": [keyword.text for keyword in stories[position].keywords],
            "titles": list(dict.fromkeys(clusters.articles[m.index].title for m in stories[position].members))[
                :SHOWN_TITLES
            ],
        }
        for position in positions
    ]


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "`min_log_odds=-1`": {"min_log_odds": -1.0},
    "`min_log_odds=1`": {"min_log_odds": 1.0},
    "no stories joined by similarity (`join_similarity=2`)": {"join_similarity": 2.0},
    "no titles attached (`attach_similarity=2`)": {"attach_similarity": 2.0},
    "routine formats grouped (`routine=group`)": {"routine": "group"},
    "`min_size=5`": {"min_size": 5},
    "cut by category": {"by_category": True},
}
"""Settings of linkage."""
HDBSCAN_VARIANTS: dict[str, dict[str, Any]] = {
    "HDBSCAN": {},
    "not refined (`noise=keep`)": {"noise": "keep"},
    "not refined, eom": {"noise": "keep", "selection": "eom"},
    "eom": {"selection": "eom"},
    "no stories joined (`join_at=2`)": {"join_at": 2.0},
    "`min_typicality=0.02`": {"min_typicality": 0.02},
    "`min_typicality=0.1`": {"min_typicality": 0.1},
    "`min_samples=3`": {"min_samples": 3},
    "`min_samples=5`": {"min_samples": 5},
    "`min_size=5`": {"min_size": 5},
    "embedder alone (`letter_weight=0`)": {"letter_weight": 0.0},
    "`letter_weight=0.25`": {"letter_weight": 0.25},
    "`letter_weight=0.5`": {"letter_weight": 0.5},
    "letters alone (`letter_weight=1`)": {"letter_weight": 1.0},
    "within categories": {"by_category": True},
}
"""Settings with `clusterer=sklearn`."""


def measure_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the effect of each setting."""
    articles = read_day(arguments)
    judge = Judge(articles)
    opened = open_embedder(arguments.model)
    embedder = CachedEmbedder(opened)

    def judged(settings: dict[str, Any]) -> dict[str, float]:
        config = ClusteringConfig(**settings)
        embedded = EmbeddedArticles.from_articles(articles, embedder, make_reducer(config))
        return judge.judge(find_groups(embedded, config, make_clusterer(config))[0])

    has_vectors = not isinstance(opened, CharNgrams)
    return {
        "linkage": {name: judged(settings) for name, settings in VARIANTS.items()},
        "hdbscan": {
            name: judged({"clusterer": "sklearn"} | settings)
            for name, settings in HDBSCAN_VARIANTS.items()
            if has_vectors or "letter_weight" not in settings
        },
    }


# ---- clusterers ----


def measure_clusterers(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time HDBSCAN of both packages on the same graph, and compare their groups."""
    from sklearn.metrics import adjusted_rand_score

    config = ClusteringConfig()
    embedded = EmbeddedArticles.from_articles(read_day(arguments), open_embedder(arguments.model), make_reducer(config))
    graph = neighbour_graph(embedded.points, max(config.neighbours, config.min_samples))
    rows: dict[str, Any] = {"num_runs": NUM_CLUSTERER_RUNS}
    labels: dict[str, Labels] = {}
    for library in get_args(Library):
        clusterer = make_clusterer(config.model_copy(update={"clusterer": library}))
        assert clusterer is not None
        seconds = []
        for _ in range(NUM_CLUSTERER_RUNS):
            started = time.perf_counter()
            labels[library] = clusterer.fit_graph(graph.copy())
            seconds.append(time.perf_counter() - started)
        rows[library] = {
            "seconds": statistics.median(seconds),
            "num_groups": int(labels[library].max()) + 1,
            "ari": float(adjusted_rand_score(labels["sklearn"], labels[library])),
        }
    return rows


# ---- near-duplicates ----


def measure_duplicates(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare with brute force, and test pairs that differ in one number, name or negation."""
    titles = _many_titles(arguments.data, scaled(arguments, NUM_DUPLICATE_TITLES))
    config = DuplicateConfig()
    started = time.perf_counter()
    found = similar_pairs([letters_of(title) for title in titles], width=config.shingle, min_jaccard=config.min_jaccard)
    elapsed_s = time.perf_counter() - started
    expected = brute_force(titles, config.min_jaccard)
    accepted = sum(have_same_facts(titles[a], titles[b]) for a, b in sorted(expected))
    minimal = minimal_pairs(titles, marked_names(arguments.data), scaled(arguments, NUM_MINIMAL), seed=0)
    texts = [text for _, *pair in minimal for text in pair]
    embedder = open_embedder(arguments.model)
    embedded = EmbeddedArticles.from_articles(to_articles(texts), embedder, make_reducer(ClusteringConfig()))
    merged: Counter[str] = Counter()
    for group in find_duplicates(texts, embedded.article_points):
        members = set(group.members)
        merged.update(minimal[k // 2][0] for k in members if k % 2 == 0 and k + 1 in members)
    passed = Counter(kind for kind, first, second in minimal if have_same_facts(first, second))
    embedded = EmbeddedArticles.from_articles(read_day(arguments), embedder, make_reducer(ClusteringConfig()))
    groups = find_duplicates([article.title for article in embedded.articles], embedded.article_points)
    return {
        "num_titles": len(titles),
        "num_expected": len(expected),
        "precision": len(found & expected) / max(1, len(found)),
        "recall": len(found & expected) / max(1, len(expected)),
        "elapsed_s": elapsed_s,
        "accepted": accepted / max(1, len(expected)),
        "minimal": dict(Counter(kind for kind, *_ in minimal)),
        "merged": dict(merged),
        "passed": dict(passed),
        "num_groups": len(groups),
        "num_copies": sum(len(group.members) - 1 for group in groups),
    }


def _many_titles(data: Path, count: int) -> list[str]:
    """Return distinct titles: those of the day, other headlines, petitions, and reviews of similar length."""
    titles = [article.title for article in read_articles(data / NEWS)]
    titles += read_text(data / "corpus" / "news_titles_kocohub.txt.gz").splitlines()
    titles += [json.loads(line)["title"] for line in read_text(data / "corpus" / "petitions.jsonl.gz").splitlines()]
    distinct = list(dict.fromkeys(" ".join(title.split()) for title in titles if letters_of(title)))
    distinct += _lines(data / "nsmc" / "reviews_unlabeled.txt.gz", count)
    return list(dict.fromkeys(distinct))[:count]


if __name__ == "__main__":
    run_command(main)
