"""Which headline belongs to which article of its day: the bundled embedder and character n-grams.

    PRESSBERT_DATA=DATA python -m benchmarks.same_day

The press releases of the days that the bundled embedder's training leaves out (`held_out_days` of its recipe). Writes
docs/benchmarks/same_day.md.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpora.documents import read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import write_text
from corpora.official import data_root
from downstream.bundling.recipe import read_bundle_recipe
from downstream.embed import encode
from downstream.embeddings.rows import headlines, is_held_out
from downstream.encoders.hub import bundled
from downstream.finetuning.ngrams import vectorizer
from downstream.summaries.evaluation import paired_p

FloatArray = npt.NDArray[np.float64]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "same_day.md"
SOURCES = ("press_releases_municipal.jsonl.gz", "press_releases_korea_kr.jsonl.gz")
NGRAMS = (2, 4)
BASELINE = "character n-grams"


class Article(NamedTuple):
    """A press release."""

    title: str
    body: str
    day: str


def read_articles(paths: Sequence[Path]) -> list[Article]:
    """Return the different articles that have a title, a body and a day; a title at the beginning of a body is cut."""
    documents = (document for path in paths for document in read_documents(path, rejected=[]))
    found = (Article(*found) for found in headlines(documents, Counter()))
    return list(dict.fromkeys(article for article in found if article.day))


def held_out_share() -> float:
    """Return the share of the days that the training of the bundled embedder leaves out.

    Raises:
        ValueError: the stages with headlines do not leave out the same days.
    """
    stages = read_bundle_recipe().embedder["stages"]
    [share] = {stage.get("held_out_days", 0.0) for stage in stages if stage["kind"].startswith("headline")}
    return float(share)


def reciprocal_ranks(articles: Sequence[Article], likeness: Callable[[list[str], list[str]], FloatArray]) -> FloatArray:
    """Return one over the rank of every article's body for its title, among the bodies of its day; (N,).

    Args:
        articles: N articles.
        likeness: of texts and texts, (n, n), those of one day at a time.
    """
    ranks = np.empty(len(articles))
    for day in sorted({article.day for article in articles}):
        numbers = [k for k, article in enumerate(articles) if article.day == day]
        scores = likeness([articles[k].title for k in numbers], [articles[k].body for k in numbers])
        ranks[numbers] = 1 / (1 + (scores > scores.diagonal()[:, None]).sum(1))
    return ranks


def by_model(model: Path) -> Callable[[list[str], list[str]], FloatArray]:
    """Return the cosines of an embedder."""
    return lambda one, two: np.asarray(encode(one, model=model) @ encode(two, model=model).T, dtype=np.float64)


def by_ngrams(articles: Sequence[Article]) -> Callable[[list[str], list[str]], FloatArray]:
    """Return the cosines of the TF-IDF of character n-grams, counted on ARTICLES."""
    weights = vectorizer(*NGRAMS).fit([text for title, body, _ in articles for text in (title, body)])
    return lambda one, two: np.asarray((weights.transform(one) @ weights.transform(two).T).todense())


def page(num_train: int, test: Sequence[Article], ranks: Mapping[str, FloatArray]) -> str:
    """Return the page for the docs.

    Args:
        num_train: articles of the other days.
        test: N articles.
        ranks: of the baseline, and of the models; `reciprocal_ranks`.
    """
    days = len({article.day for article in test})
    baseline = ranks[BASELINE]
    lines = [
        "# Headlines and articles of a day",
        "",
        "`PRESSBERT_DATA=DATA python -m benchmarks.same_day`",
        "",
        f"A headline has to find its article among all of the same day: {len(test):,} press releases of {days} days. A "
        "hash chose the days; the embedder read these texts in pretraining, but learnt the pairs of headline and body "
        f"of other days only. The weights of the n-grams were counted on the {num_train:,} articles of the other days. "
        "p: paired randomization test over articles.",
        "",
        "| vectors | found at once, % | mean reciprocal rank | difference | p |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, found in ranks.items():
        figures = f"| {name} | {100 * (found == 1).mean():.1f} | {found.mean():.4f} |"
        is_baseline = name == BASELINE
        gap = "" if is_baseline else f"{found.mean() - baseline.mean():+.4f}"
        lines.append(f"{figures} {gap} | {'' if is_baseline else f'{paired_p(found, baseline):.4f}'} |")
    return "\n".join([*lines, ""])


def main(argv: list[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = ArgumentParser("python -m benchmarks.same_day", "Which headline belongs to which article of its day?")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA")
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse(argv)
    root, share = data_root(arguments.data), held_out_share()
    articles = read_articles([root / "corpus" / name for name in SOURCES])
    test = [article for article in articles if is_held_out(article.day, share)]
    train = [article for article in articles if not is_held_out(article.day, share)]
    likeness = {BASELINE: by_ngrams(train), "bundled embedder": by_model(bundled("embedder"))}
    ranks = {name: reciprocal_ranks(test, of_texts) for name, of_texts in likeness.items()}
    write_text(arguments.out, page(len(train), test, ranks))
    sys.stdout.write(f"{arguments.out}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
