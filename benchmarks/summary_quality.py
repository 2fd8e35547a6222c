"""Quality of summaries on articles that no model was chosen on, however their sentences are joined.

Part of the page that `python -m benchmarks.summarize` writes. An article reaches the summarizer in four ways: its
sentences joined by line breaks or by blanks, with its headline or without; and in each of them with its full stops or
without. The rules get the editor's sentences.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from corpora.foundation.files import SAMPLE_ROOT
from downstream.metrics import FloatArray, bootstrap_ci95
from downstream.summaries.articles import Article, join_sentences
from downstream.summaries.evaluation import MEAN, NUM_SENTENCES, RULES, chosen_by, paired_p, sentence_scores
from downstream.summaries.features import REFERENCE
from downstream.summaries.labelled import read_labelled
from downstream.summarize import Summarizer

CHOICES = SAMPLE_ROOT / "summary_choices.jsonl"
GENRES: Mapping[str, str] = {
    "": "embedded sample",
    "corpus/boddari_wikinews.csv": "Wikinews",
    "corpus/press_releases_municipal.jsonl.gz": "municipal press releases",
    "corpus/press_releases_korea_kr.jsonl.gz": "ministries' press releases",
}
"""File of the texts → name in the table."""
HELD_OUT = ("dev", "test")
LONG = 12
"""Sentences of an article of which three are a quarter or less."""
BASELINES = ("lead-3", "textrank")
LAST_STOP = re.compile(r"(?<=[가-힣])\.(?=[”’\"')]*$)")


@dataclass(frozen=True)
class Way:
    """How an article reaches the summarizer."""

    joint: str
    has_title: bool
    has_stops: bool = True

    @property
    def name(self) -> str:
        """Name in the table."""
        joint = "line breaks" if self.joint == "\n" else "blanks"
        return f"{joint}, {'headline' if self.has_title else 'no headline'}"


WAYS = [Way(joint, has_title) for joint in ("\n", " ") for has_title in (False, True)]


def joined(article: Article, way: Way) -> Article:
    """Return the article's sentences alone, joined in one way."""
    texts = article.texts if way.has_stops else [LAST_STOP.sub("", text) for text in article.texts]
    paragraphs = [[text] for text in texts] if way.joint == "\n" else [texts]
    text, sentences = join_sentences(paragraphs)
    return replace(article, text=text, sentences=sentences, title=article.title if way.has_title else "")


def f1_of(summarizer: Summarizer, articles: Sequence[Article], way: Way) -> FloatArray:
    """Return the sentence F1 of each of N articles in one way: (N,)."""
    scores = []
    for article in articles:
        given = joined(article, way)
        chosen = chosen_by(summarizer.summarize(given.text, NUM_SENTENCES, title=given.title), given)
        scores.append(sentence_scores(chosen, article.extractive)["f1"])
    return np.array(scores)


def dangling_share(summarizer: Summarizer, articles: Sequence[Article]) -> float:
    """Return the share of chosen sentences that refer to a sentence which is not chosen."""
    chosen = [summarizer.summarize(article.text, NUM_SENTENCES, title=article.title).sentences for article in articles]
    dangling = sum(
        REFERENCE.match(sentence.text) is not None and sentence.index - 1 not in {other.index for other in sentences}
        for sentences in chosen
        for sentence in sentences
    )
    return dangling / sum(map(len, chosen))


def held_out() -> dict[str, list[Article]]:
    """Return the articles on which nothing was chosen: by genre, some of several genres, and all.

    Raises:
        DataError: the data root lacks a file.
    """
    articles = [*read_labelled(SAMPLE_ROOT / "news.jsonl"), *read_labelled(CHOICES)]
    articles = [article for article in articles if article.split in HELD_OUT and article.extractive]
    genres = {name: [article for article in articles if article.source == source] for source, name in GENRES.items()}
    real = [article for article in articles if article.source]
    return genres | {
        "press releases, both kinds": [article for article in real if "press_releases" in article.source],
        "real": real,
        f"real, {LONG} sentences and more": [article for article in real if len(article.sentences) >= LONG],
        "all": articles,
    }


def section() -> list[str]:
    """Measure the bundled model and return the lines of the page.

    Raises:
        DataError: the data root lacks a file.
    """
    summarizer = Summarizer.load()
    genres = held_out()
    lines = [
        "# Summaries",
        "",
        "Written by `python -m benchmarks.summarize`; do not edit.",
        "",
        "## Quality",
        "",
        "Sentence F1 in percent [95 % interval], three sentences. The choices of features and weights were made on the "
        "articles of the split `train` (90 of the sample, 149 real); these are those of the splits `dev` and `test`. "
        "One annotator marked the sentences of the real articles (`corpora/sample/summary_choices.jsonl`). p: paired "
        "randomization test against the rule, by article. The articles of the sample are invented, their key sentences "
        "spread out; the real ones tell the most important things first.",
        "",
        "| articles | sentences joined by | F1 | without full stops | lead-3 | difference | p | TextRank | difference "
        "| p |",
        f"| --- | --- |{' ---: |' * 8}",
    ]
    spreads = []
    for name, articles in genres.items():
        rows, spread = rows_of(summarizer, name, articles)
        lines += rows
        spreads.append(f"{name} {spread:.1f}")
    lines += ["", f"Between the best and the worst of the four ways, F1 differs by (points): {', '.join(spreads)}."]
    share = 100 * dangling_share(summarizer, genres["all"])
    lines += ["", f"{share:.1f} % of the chosen sentences refer to a sentence that the summary does not hold."]
    return [*lines, "", f"Real texts: `{', '.join(source for source in GENRES if source)}` below the data root."]


def rows_of(summarizer: Summarizer, name: str, articles: Sequence[Article]) -> tuple[list[str], float]:
    """Return the rows of one genre, a way each, and the range of their F1 in points."""
    rules = {
        rule: np.array([sentence_scores(RULES[rule](a), a.extractive)["f1"] for a in articles]) for rule in BASELINES
    }
    lines, means = [], []
    for way in WAYS:
        f1 = f1_of(summarizer, articles, way)
        bare = f1_of(summarizer, articles, replace(way, has_stops=False))
        means.append(100 * f1.mean())
        cells = [
            f"{name} ({len(articles)})" if way is WAYS[0] else "",
            way.name,
            interval(f1),
            f"{100 * bare.mean():.1f}",
        ]
        for values in rules.values():
            cells += [f"{100 * values.mean():.1f}", interval(f1 - values), f"{paired_p(f1, values):.4f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines, float(max(means) - min(means))


def interval(values: FloatArray) -> str:
    """Return a mean with its interval, in percent."""
    bounds = bootstrap_ci95(MEAN, [values[:, None]])
    assert bounds is not None, "a mean is always defined"
    return f"{100 * values.mean():.1f} [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"
