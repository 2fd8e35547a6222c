"""A day of news on one page: its stories, the articles of each, and near-duplicates.

    python -m apps.clustering FILE --out DIR
    python -m apps.clustering morning.xlsx --out DIR --stories STATE     # and at noon again, with the new file:
    python -m apps.clustering noon.xlsx --out DIR --stories STATE        # new articles join, ids stay

FILE is an export of BigKinds (XLSX), the sample of KPFBERT/kpfSBERT_Clustering (JSON), JSONL, CSV, TSV, or lines of
titles; default: the bundled sample. Written to DIR are `stories.html` for readers, `stories.json` and `stories.csv` for
programs, pictures, and `rejected.jsonl` if records could not be read. Vectors are cached in `DIR/cache`: an interrupted
run resumes, and the next one is faster. From Python: `cluster(articles)`.
"""

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from apps.stories.articles import Article, parse_columns, read_articles
from apps.stories.clusters import (
    Cluster,
    ClusteringConfig,
    Clusters,
    EmbeddedArticles,
    Member,
    Method,
    cluster,
    default_embedder,
    describe,
    find_groups,
    make_clusterer,
    make_reducer,
)
from apps.stories.duplicates import DuplicateConfig, DuplicateGroup, find_duplicates
from apps.stories.files import write_report
from apps.stories.keywords import Keyword
from apps.stories.records import STATE_FILE, has_stories, lock_stories
from apps.stories.report import Report
from apps.stories.space import CharNgrams, Embedder, EmbeddingCache
from apps.stories.state import Stories
from corpora.documents import RejectedRecord
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.foundation.errors import UsageError
from corpora.foundation.files import LOCK_FILE, atomic_file, locked, package_path, write_text

__all__ = [
    "Article",
    "CharNgrams",
    "Cluster",
    "ClusteringConfig",
    "Clusters",
    "DuplicateGroup",
    "Keyword",
    "Member",
    "Stories",
    "cluster",
    "find_duplicates",
]

logger = logging.getLogger(__name__)

SAMPLE = package_path("corpora", "sample", "news.jsonl")
LETTERS = "letters"
REJECTED_FILE = "rejected.jsonl"


def main(argv: list[str] | None = None) -> int:
    """Find the stories of a file and write them; returns the exit code."""
    arguments = _parser().parse(argv)
    config = validate(ClusteringConfig, _overrides(arguments), "--set")
    _check_folders(arguments.out, arguments.stories)
    # Fails now rather than after the embedding.
    with atomic_file(arguments.out / ".probe"):
        pass
    (arguments.out / ".probe").unlink(missing_ok=True)
    steps = _Steps()
    source = arguments.file or SAMPLE
    rejected: list[RejectedRecord] = []
    with steps.step("read"):
        articles = read_articles(source, columns=parse_columns(arguments.column), rejected=rejected)
    _write_rejected(arguments.out / REJECTED_FILE, rejected)
    with steps.step("model"):
        embedder = _open_embedder(arguments)
    if arguments.stories is None:
        clusters = _first_batch(articles, embedder, config, steps)
    else:
        clusters = _next_batch(arguments, articles, embedder, config, steps)
    with steps.step("duplicates"):
        duplicates = _duplicates(clusters, arguments.duplicates_by)
    report = Report(
        clusters=clusters,
        duplicates=duplicates,
        title=arguments.title,
        source=source.name,
        num_rejected=len(rejected),
        settings={"embedder": embedder.sha256[:12]} | _departures(config),
        seed=config.seed,
    )
    with steps.step("page"), locked(arguments.out / LOCK_FILE, f"report in {arguments.out}", is_kept=False):
        files = write_report(arguments.out, report)
    _report_line(_summary(clusters, duplicates, rejected, arguments.out))
    if arguments.json:
        sys.stdout.write(json.dumps(_figures(clusters, duplicates, rejected, steps), ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(f"{files[0]}\n")
    return EXIT_DONE


def _check_folders(out: Path, stories: Path | None) -> None:
    """Refuse to write the report over stories that are kept: both have a `stories.json`."""
    if stories is not None and out.resolve() == stories.resolve():
        raise UsageError("--stories", f"{stories} is the folder of the report", "give another folder with --out")
    if has_stories(out):
        raise UsageError("--out", f"{out} holds stories that are kept", "give another folder")


def _parser() -> ArgumentParser:
    parser = ArgumentParser("python -m apps.clustering", "Find the stories of a day and show them on one page.")
    parser.add_argument(
        "file", nargs="?", type=Path, help=".xlsx, .xls, .json, .jsonl, .csv, .tsv, .txt; default: a sample"
    )
    parser.add_argument("--out", type=Path, default=Path("reports/stories"), help="folder (default: reports/stories)")
    parser.add_argument("--model", help=f"embedder: folder, hub id or '{LETTERS}' (n-grams alone); default: bundled")
    parser.add_argument(
        "--stories", type=Path, metavar="STATE", help="folder of stories that are kept over several runs"
    )
    parser.add_argument("--by-category", action="store_true", help="find stories within each category")
    parser.add_argument(
        "--noise", choices=["assign", "keep"], help="assign or keep the titles that HDBSCAN labels as noise"
    )
    parser.add_argument("--min-size", type=int, help="titles of the smallest story (default: 3)")
    parser.add_argument("--seed", type=int, help="of projection and map (default: 0)")
    parser.add_argument(
        "--clusterer", choices=get_args(Method), help="linkage, or HDBSCAN by a package (default: linkage)"
    )
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="FIELD=NAME",
        help="column of a field, e.g. title=헤드라인",
    )
    parser.add_argument(
        "--duplicates-by", choices=["title", "text"], default="title", help="what is compared (default: title)"
    )
    parser.add_argument("--title", default="오늘의 뉴스 묶음", help="title of the page")
    parser.add_argument("--cache", type=Path, help="folder of vectors (default: OUT/cache)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of apps.stories.clusters.ClusteringConfig",
    )
    parser.add_argument("--json", action="store_true", help="print counts and step times as JSON")
    return parser


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that were given; options override `--set`."""
    given = dict(setting.partition("=")[::2] for setting in arguments.set)
    if incomplete := [name for name, value in given.items() if not value]:
        raise UsageError("--set", f"'{incomplete[0]}' is not KEY=VALUE", "write for example --set min_size=4")
    options = {name: getattr(arguments, name) for name in ("noise", "min_size", "seed", "clusterer")}
    given |= {name: value for name, value in options.items() if value is not None}
    return given | ({"by_category": True} if arguments.by_category else {})


def _departures(config: ClusteringConfig) -> dict[str, Any]:
    defaults = ClusteringConfig().model_dump()
    return {name: value for name, value in config.model_dump().items() if value != defaults[name]}


def _open_embedder(arguments: argparse.Namespace) -> Embedder:
    if arguments.model == LETTERS:
        return CharNgrams()
    if arguments.model is None:
        embedder = default_embedder()
    else:
        from downstream.embed import Embedder as SentenceEmbedder

        embedder = SentenceEmbedder.load(arguments.model)
    if isinstance(embedder, CharNgrams):
        return embedder
    return EmbeddingCache(arguments.cache or arguments.out / "cache", embedder)


def _first_batch(
    articles: Sequence[Article], embedder: Embedder, config: ClusteringConfig, steps: "_Steps"
) -> Clusters:
    with steps.step("embed"):
        embedded = EmbeddedArticles.from_articles(articles, embedder, make_reducer(config))
    with steps.step("group"):
        labels, is_core = find_groups(embedded, config, make_clusterer(config))
    with steps.step("label"):
        return describe(embedded, labels, is_core, config)


def _next_batch(
    arguments: argparse.Namespace,
    articles: Sequence[Article],
    embedder: Embedder,
    config: ClusteringConfig,
    steps: "_Steps",
) -> Clusters:
    """Assign articles to the stories of a folder, or find its first ones; settings are those of the first run."""
    with lock_stories(arguments.stories):
        return _join_stories(arguments, articles, embedder, config, steps)


def _join_stories(
    arguments: argparse.Namespace,
    articles: Sequence[Article],
    embedder: Embedder,
    config: ClusteringConfig,
    steps: "_Steps",
) -> Clusters:
    if (arguments.stories / STATE_FILE).exists():
        stories = Stories.load(arguments.stories)
        if given := _overrides(arguments):
            what = f"these stories have settings of their own; '{min(given)}' would change them"
            raise UsageError(arguments.stories, what, "omit the option, or use another folder")
        with steps.step("embed"):
            stories.assign(articles, embedder=embedder)
        with steps.step("group"):
            stories.found()
    else:
        with steps.step("group"):
            stories = Stories.fit(articles, config, embedder=embedder)
    with steps.step("label"):
        clusters = stories.clusters()
    stories.save(arguments.stories)
    return clusters


def _duplicates(clusters: Clusters, by: str) -> list[DuplicateGroup]:
    if by == "title":
        return find_duplicates([article.title for article in clusters.articles], clusters.points, DuplicateConfig())
    return find_duplicates([article.text or article.title for article in clusters.articles])


def _write_rejected(path: Path, rejected: Sequence[RejectedRecord]) -> None:
    path.unlink(missing_ok=True)
    if rejected:
        write_text(path, "".join(json.dumps(vars(record), ensure_ascii=False) + "\n" for record in rejected))


def _summary(
    clusters: Clusters, duplicates: Sequence[DuplicateGroup], rejected: Sequence[RejectedRecord], out: Path
) -> str:
    size = len(clusters.articles)
    copies = sum(len(group.members) - 1 for group in duplicates)
    parts = [
        f"{size} articles",
        f"{len(clusters.stories)} stories",
        f"{len(clusters.noise)} in none",
        f"{copies} copies",
    ]
    parts += [f"{len(clusters.new)} new"] if clusters.new else []
    parts += [f"{len(rejected)} records rejected, see {out / REJECTED_FILE}"] if rejected else []
    return ", ".join(parts)


def _figures(
    clusters: Clusters, duplicates: Sequence[DuplicateGroup], rejected: Sequence[RejectedRecord], steps: "_Steps"
) -> dict[str, Any]:
    return {
        "num_articles": len(clusters.articles),
        "num_stories": len(clusters.stories),
        "num_noise": len(clusters.noise),
        "num_copies": sum(len(group.members) - 1 for group in duplicates),
        "num_new": len(clusters.new),
        "num_rejected": len(rejected),
        "elapsed_s": {name: round(seconds, 2) for name, seconds in steps.elapsed_s.items()},
    }


class _Steps:
    """Times the steps and reports them on stderr."""

    def __init__(self) -> None:
        self.elapsed_s: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; times of steps with the same name are summed."""
        started = time.perf_counter()
        yield
        elapsed_s = time.perf_counter() - started
        self.elapsed_s[name] = self.elapsed_s.get(name, 0.0) + elapsed_s
        _report_line(f"{name}: {elapsed_s:.1f} s")


def _report_line(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    run_command(main)
