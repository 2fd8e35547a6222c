"""A day of news on one page: how long it takes, and what it is worth, against named baselines in the same run.

    python -m benchmarks.clustering DATA
    python -m benchmarks.clustering DATA --titles 1500 --out trial.md    # does it run? figures of no worth

DATA holds `news/newstrust_20210601_sample.json`, and `corpus/`, `klue/`, `kpfbert/` and `nsmc/` beside it. Besides the
suite's own packages, `umap-learn` and `hdbscan` have to be installed, of which the notebook that is compared with is
made. Each part runs in a process of its own. Writes the page in the docs.
"""

import argparse
import gzip
import importlib.util
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.clustering import LETTERS, Stories, find_duplicates
from apps.stories.articles import Article, read_articles, to_articles
from apps.stories.clusters import (
    ClusteringConfig,
    Clusters,
    EmbeddedArticles,
    cluster,
    default_embedder,
    describe,
    distinct_texts,
    find_groups,
    make_clusterer,
    make_reducer,
)
from apps.stories.duplicates import DuplicateConfig, have_same_facts, letters_of
from apps.stories.files import write_report
from apps.stories.report import Report
from apps.stories.space import CharNgrams, Embedder
from benchmarks.clustering_measures import (
    MAX_ENTITY,
    MAX_NUMBER,
    Baseline,
    Judge,
    brute_force,
    marked_names,
    minimal_pairs,
)
from corpora.documents import read_text
from corpora.foundation.command import run_command
from corpora.foundation.errors import DataError, UsageError
from corpora.foundation.files import write_text
from corpora.foundation.machine import cpu_name, versions
from corpora.near_duplicates import similar_pairs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "clustering.md"
NEWS = Path("news") / "newstrust_20210601_sample.json"

NUM_SHOWN, SHOWN_TITLES = 30, 5
NUM_TITLES = 12_006
NUM_DUPLICATE_TITLES, NUM_MINIMAL, NUM_ASSIGNED, NUM_LARGE = 20_000, 2_000, 4_000, 100_000
NOTEBOOK = {"neighbors": 15, "components": 5, "min_cluster_size": 15, "min_samples": 10}
"""The notebook's own defaults."""


def main(argv: list[str] | None = None) -> int:
    """Measure all and write the page."""
    parser = argparse.ArgumentParser(description="Benchmark clustering.")
    parser.add_argument("data", type=Path, help="data root")
    parser.add_argument("--model", help=f"embedder: folder or hub id, or '{LETTERS}'; default: the bundled one")
    parser.add_argument("--sample", type=int, default=256, help="titles that the notebook's encoder is timed on")
    parser.add_argument("--titles", type=int, default=NUM_TITLES, help="of the day, drawn at random; all else shrinks")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--part", help="internal: measure one part in this process and print its figures")
    arguments = parser.parse_args(argv)
    if not (arguments.data / NEWS).is_file():
        raise UsageError(arguments.data, f"no {NEWS} in it", "give the data root")
    if missing := [name for name in ("umap", "hdbscan") if importlib.util.find_spec(name) is None]:
        raise UsageError(missing[0], "not installed", "pip install umap-learn hdbscan")
    parts: dict[str, Callable[[argparse.Namespace], Any]] = {
        "notebook": measure_notebook,
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
    write_text(arguments.out, page(results, arguments))
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
    output, usage = _run(command, environment)
    return json.loads(output.splitlines()[-1]), usage.ru_maxrss / 1024


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, resource.struct_rusage]:
    """Run a command; returns its output and what it used."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, env=os.environ | environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        output.seek(0)
        return output.read(), usage


def open_embedder(name: str | None) -> Embedder:
    """Open the embedder that is measured."""
    if name == LETTERS:
        return CharNgrams()
    if name is None:
        return default_embedder()
    from downstream.embed import Embedder as SentenceEmbedder

    return SentenceEmbedder.load(name)


class Remembered:
    """An embedder that computes each text once, so that settings can be compared without waiting."""

    def __init__(self, embedder: Embedder) -> None:
        """Wrap an embedder."""
        self.sha256 = embedder.sha256
        self._embedder = embedder
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        self._vectors.update(zip(missing, self._embedder.encode(missing), strict=True))
        return np.stack([self._vectors[text] for text in texts])


def read_day(arguments: argparse.Namespace) -> list[Article]:
    """Return the articles of the real day, or those of them that are drawn."""
    articles = to_articles(read_articles(arguments.data / NEWS))
    if arguments.titles >= len(articles):
        return articles
    return [
        articles[position]
        for position in sorted(np.random.default_rng(0).permutation(len(articles))[: arguments.titles])
    ]


def scaled(arguments: argparse.Namespace, number: int) -> int:
    """Return how much of something a trial takes that has fewer titles."""
    share: float = min(arguments.titles, NUM_TITLES) / NUM_TITLES
    return math.ceil(number * share)


# ---- time ----


def measure_day(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the command on the real day, with nothing kept from before."""
    with tempfile.TemporaryDirectory(prefix="pressbert-benchmark-") as scratch:
        file = arguments.data / NEWS
        if arguments.titles < NUM_TITLES:
            file = Path(scratch) / NEWS.name
            records = [{"title": article.title, "category": article.category} for article in read_day(arguments)]
            write_text(file, json.dumps(records, ensure_ascii=False))
        command = [sys.executable, "-m", "apps.clustering", str(file), "--out", scratch, "--json"]
        command += ["--model", arguments.model] if arguments.model else []
        started = time.perf_counter()
        output, usage = _run(command, {})
        elapsed_s = time.perf_counter() - started
        size = {path.suffix[1:]: path.stat().st_size for path in Path(scratch).glob("stories.*")}
    figures = {"wall_s": elapsed_s, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024}
    return {**json.loads(output), **figures, "size_bytes": size}


def measure_notebook(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the notebook's pipeline: encode each title in fp32, then UMAP and HDBSCAN within each category.

    The encoder is a BERT of base size with random weights: time does not depend on them.
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
    # The vectors of the others are those of the sample with noise: as many, as long, and about as alike.
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
    """Fit two thirds of the day, and let the rest join."""
    articles = read_day(arguments)
    articles = [articles[position] for position in np.random.default_rng(0).permutation(len(articles))]
    size = scaled(arguments, NUM_ASSIGNED)
    batches = [articles[first : first + 1000] for first in range(len(articles) - size, len(articles), 1000)]
    embedder = Remembered(open_embedder(arguments.model))
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
    """Make all files of many titles: the day's, and reviews of films as further short texts; vectors are random."""

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
    """Return different lines of a file that are as long as titles."""
    found: dict[str, None] = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            if 12 <= len(line.strip()) <= 60:
                found[line.strip()] = None
            if len(found) >= count:
                return list(found)[:count]
    raise DataError(path, f"fewer than {count} lines of 12 to 60 characters", "give the whole file")


# ---- the same, whatever the threads and the order ----


def measure_labels(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a digest of the real day's stories, and of those of the day shuffled."""
    from corpora.foundation.files import fingerprint

    config = ClusteringConfig()
    embedder = Remembered(open_embedder(arguments.model))

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
    embedder = Remembered(open_embedder(arguments.model))
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
    "HDBSCAN as it is (`noise=keep`)": {"noise": "keep"},
    "HDBSCAN as it is, eom": {"noise": "keep", "selection": "eom"},
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


def measure_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure what each setting is worth."""
    articles = read_day(arguments)
    judge = Judge(articles)
    opened = open_embedder(arguments.model)
    embedder = Remembered(opened)
    rows = {}
    for name, settings in VARIANTS.items():
        config = ClusteringConfig(**settings)
        if isinstance(opened, CharNgrams) and "letter_weight" in settings:
            continue
        embedded = EmbeddedArticles.from_articles(articles, embedder, make_reducer(config))
        rows[name] = judge.judge(find_groups(embedded, config, make_clusterer(config))[0])
    return {"rows": rows}


# ---- near-duplicates ----


def measure_duplicates(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare with brute force, and try pairs that differ in a number, a name or a negation alone."""
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
    """Return different titles: the day's, other headlines, of petitions, and reviews that are as long."""
    titles = [article.title for article in read_articles(data / NEWS)]
    titles += read_text(data / "corpus" / "news_titles_kocohub.txt.gz").splitlines()
    titles += [json.loads(line)["title"] for line in read_text(data / "corpus" / "petitions.jsonl.gz").splitlines()]
    distinct = list(dict.fromkeys(" ".join(title.split()) for title in titles if letters_of(title)))
    distinct += _lines(data / "nsmc" / "reviews_unlabeled.txt.gz", count)
    return list(dict.fromkeys(distinct))[:count]


# ---- the page ----


def page(results: Mapping[str, Any], arguments: argparse.Namespace) -> str:
    """Return the page of the docs."""
    day, notebook = results["day"], results["notebook"]
    libraries = versions("scikit-learn", "scipy", "numpy", "kiwipiepy", "umap-learn", "hdbscan", "torch")
    lines = [
        "# A day of news on one page",
        "",
        f"Written by `python -m benchmarks.clustering DATA{_options(arguments)}`; do not edit.",
        "",
        f"- Machine: {cpu_name()}, {os.cpu_count()} threads.",
        f"- Data: `{NEWS}`, {day['num_articles']:,} titles of one day in 11 categories.",
        *([] if arguments.titles >= NUM_TITLES else ["- **A trial with a part of the titles: figures of no worth.**"]),
        f"- Embedder: {_model_name(arguments)}.",
        "- " + ", ".join(f"{name} {version}" for name, version in libraries.items()) + ".",
        "",
        *_asked_lines(results),
        *_time_lines(day, notebook),
        *_quality_lines(results["quality"], results["settings"]),
        *_duplicate_lines(results["duplicates"]),
        *_assign_lines(results["assign"]),
        "## The same every time",
        "",
        "- One thread, two threads and the day in another order give "
        f"{'the same' if results['threads'] else 'DIFFERENT'} stories.",
        "",
        *_large_lines(results["large"]),
        *_story_lines(results["quality"]["shown"], day["num_stories"]),
    ]
    return "\n".join(lines)


def _options(arguments: argparse.Namespace) -> str:
    model = f" --model {Path(arguments.model).name}" if arguments.model else ""
    return model + (f" --titles {arguments.titles}" if arguments.titles < NUM_TITLES else "")


def _asked_lines(results: Mapping[str, Any]) -> list[str]:
    day, large, assign, copies = results["day"], results["large"], results["assign"], results["duplicates"]
    ours = results["quality"]["rows"]["ours"]
    times = _notebook_s(results["notebook"]) / day["wall_s"]
    merged = sum(copies["merged"].values()) / sum(copies["minimal"].values())
    rate, embedded = assign["titles_per_s"], assign["embedded_titles_per_s"]
    asked = [
        ("one command for the day, at most 60 s", f"{day['wall_s']:.1f} s", day["wall_s"] <= 60),
        ("the notebook's pipeline takes at least 10 times as long", f"{times:.1f} times", times >= 10),
        ("pairs that share what is rare fall together far more often than random ones", _ratio(ours), _is_far(ours)),
        ("the same stories with 1 and 2 threads and in another order", "", results["threads"]),
        (f"{large['num_titles']:,} titles in 4,096 MB", f"{large['peak_mb']:,.0f} MB", large["peak_mb"] <= 4096),
        ("1,000 titles/s join stories, vectors given", f"{rate:,.0f} titles/s", rate >= 1000),
        ("… and with the embedder's own time", f"{embedded:,.0f} titles/s", embedded >= 1000),
        ("precision of copies at least 0.99", f"{copies['precision']:.4f}", copies["precision"] >= 0.99),
        ("recall of copies at least 0.98", f"{copies['recall']:.4f}", copies["recall"] >= 0.98),
        ("minimal pairs merged, at most 1 %", f"{100 * merged:.2f} %", merged <= 0.01),
    ]
    rows = [f"| {what} | {value} | {'yes' if is_reached else '**no**'} |" for what, value, is_reached in asked]
    return ["## What was asked for", "", "| asked | measured | reached |", "| --- | ---: | --- |", *rows, ""]


def _ratio(row: Mapping[str, float]) -> str:
    return f"{100 * row['pairs']:.1f} % against {100 * row['random']:.3f} %"


def _is_far(row: Mapping[str, float]) -> bool:
    return row["pairs"] > 100 * row["random"]


def _notebook_s(notebook: Mapping[str, Any]) -> float:
    return float(notebook["encode_s"] + notebook["umap_s"] + notebook["hdbscan_s"])


def _model_name(arguments: argparse.Namespace) -> str:
    if isinstance(open_embedder(arguments.model), CharNgrams):
        return "none, titles are compared by their letters"
    return f"`{Path(arguments.model).name}`" if arguments.model else "the bundled one"


def _time_lines(day: Mapping[str, Any], notebook: Mapping[str, Any]) -> list[str]:
    total = _notebook_s(notebook)
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
        "## Quality, without looking",
        "",
        "A *pair* is two different titles that share a rare name (a proper noun or Latin word by Kiwi, in at most "
        f"{MAX_ENTITY} titles) and a number (in at most {MAX_NUMBER} titles): there are {quality['num_pairs']}, and "
        "most tell one event. A clustering is good if pairs are in one story and random titles are not. AMI is the "
        "adjusted mutual information with the 11 categories, of the titles in stories and of all with noise as one "
        "more group; it cannot be high, as stories are far finer than categories.",
        "",
        *MEASURES,
        *(_measure_line(name, row) for name, row in quality["rows"].items()),
        "",
        "What each setting is worth:",
        "",
        *MEASURES,
        *(_measure_line(name, row) for name, row in settings["rows"].items()),
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
        f"- The guard lets {100 * result['accepted']:.1f} % of these pairs pass; the others differ in a number, a "
        "name, a negation or a word.",
        f"- The real day has {result['num_groups']:,} groups of copies with {result['num_copies']:,} copies beside "
        "their representatives.",
        f"- {total:,} pairs that differ in one number, name or negation alone: {merged} are merged "
        f"({100 * merged / total:.2f} %).",
        "",
        "| changed | pairs | merged | passed by the guard, whatever the similarity |",
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
        f"- {100 * result['joined']:.1f} % of them join a story; the rest founds {result['num_found']} new ones in "
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


if __name__ == "__main__":
    run_command(main)
