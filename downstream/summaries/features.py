"""What tells that a sentence belongs in the summary: a few numbers per sentence, each with a meaning and a sane sign.

All but the embeddings' and the scorer's are computed from the text alone, in about a millisecond an article. Words are
matched by the character bigrams of their eojeol: particles and endings change from one mention to the next, the
syllables of the stem do not. Most numbers are standardised within their article, so that an article of long sentences
is judged like one of short ones; what is not known (a headline, paragraphs) is 0 for all and decides nothing.

Sources: Edmundson 1969 (position, headline, cue phrases); Radev et al. 2004 (centroid); Erkan and Radev 2004 (LexRank).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from downstream.summaries.articles import Article

FloatArray: TypeAlias = NDArray[np.float64]
Encode: TypeAlias = Callable[[list[str]], NDArray[np.float32]]
"""Texts → unit vectors (N, D), as `downstream.embed.encode`."""
Score: TypeAlias = Callable[[Sequence[str]], FloatArray]
"""An article's sentences → log-odds of each, as `downstream.summaries.scorer.SentenceScorer`."""

WORD = re.compile(r"[가-힣]+|[A-Za-z]+|[0-9][0-9,.]*[0-9]|[0-9]|[一-鿿]+")
NUMBER = re.compile(r"[0-9][0-9,.]*")
# What is to come: plans, decisions, forecasts, demands. Reports end on it, and editors like to.
OUTLOOK = re.compile(
    r"기로 (?:했|하고|결정)|계획(?:이|을|도|으로)|예정(?:이|인|으로)|방침(?:이|을|도)"
    r"|전망(?:이|된|했|하|도)|겠다(?:고|는|며)"
    r"|내다[봤보]|추진(?:하|한|할)|들어간다|나선다|나설|것으로 (?:보인|예상|전망|기대)|촉구|해야 (?:한다|할)"
    r"|내년|다음 달|내달|오는 \d|앞으로|향후"
)
LENGTH_READ = 4096
"""Characters of a sentence that embeddings and scorers read."""

FEATURES: Mapping[str, str] = {
    "lead": "nearness to the beginning: 1, 1/2, 1/3, …",
    "paragraph": "begins a paragraph, where the article has paragraphs of several sentences",
    "centrality": "likeness to the whole article in words",
    "headline": "likeness to the headline in words",
    "length": "length",
    "numbers": "figures and dates",
    "outlook": "speaks of plans, decisions or forecasts",
    "embedding_centrality": "likeness to the whole article in meaning",
    "embedding_headline": "likeness to the headline in meaning",
    "scorer": "log-odds of a trained BertSumExt",
}
"""Every feature by name, with what a reader is told it means."""
NEEDS_ENCODER = frozenset({"embedding_centrality", "embedding_headline"})
NEEDS_SCORER = frozenset({"scorer"})


def terms(text: str) -> list[str]:
    """Return what a text is matched by: character bigrams of Hangul and Hanja words, other words and numbers whole.

    >>> terms("금리는 3.5% AI 빚")
    ['금리', '리는', '3.5', 'ai', '빚']
    """
    found: list[str] = []
    for word in WORD.findall(text):
        if word[0] < "\u3400" or len(word) == 1:
            found.append(word.casefold())
        else:
            found += [word[k : k + 2] for k in range(len(word) - 1)]
    return found


class TfidfVectors:
    """TF-IDF vectors of an article's sentences, the sentences being the documents."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Weigh the terms of S sentences: (1 + log tf) · log(1 + S / df), rows of length 1."""
        counts = [Counter(terms(text)) for text in texts]
        df = Counter(term for count in counts for term in count)
        self._idf = {term: math.log1p(len(texts) / num) for term, num in df.items()}
        self.rows = [self._weigh(count) for count in counts]

    def _weigh(self, count: Mapping[str, int]) -> dict[str, float]:
        row = {term: (1 + math.log(num)) * self._idf[term] for term, num in count.items() if term in self._idf}
        norm = math.sqrt(sum(value * value for value in row.values()))
        return {term: value / norm for term, value in row.items()} if norm else {}

    @cached_property
    def centrality(self) -> FloatArray:
        """Cosine of each sentence with the sum of all: (S,)."""
        centroid: Counter[str] = Counter()
        for row in self.rows:
            centroid.update(row)
        norm = math.sqrt(sum(value * value for value in centroid.values())) or 1.0
        return np.array([sum(value * centroid[term] for term, value in row.items()) / norm for row in self.rows])

    def likeness(self, text: str) -> FloatArray:
        """Cosine of each sentence with another text: (S,)."""
        query = self._weigh(Counter(terms(text)))
        return np.array([sum(value * query.get(term, 0.0) for term, value in row.items()) for row in self.rows])

    def cosine(self, a: int, b: int) -> float:
        """Cosine of two sentences."""
        small, large = sorted((self.rows[a], self.rows[b]), key=len)
        return sum(value * large.get(term, 0.0) for term, value in small.items())


def standardise(values: FloatArray) -> FloatArray:
    """Shift to mean 0 and scale to deviation 1 within the article; all 0 where the values do not differ."""
    deviation = values.std()
    return (values - values.mean()) / deviation if deviation > 1e-9 else np.zeros_like(values)


def sentence_features(
    article: Article,
    names: Sequence[str],
    *,
    vectors: TfidfVectors | None = None,
    encode: Encode | None = None,
    score: Score | None = None,
) -> FloatArray:
    """Compute the features NAMES of an article's sentences.

    Args:
        article: with S sentences.
        names: keys of `FEATURES`.
        vectors: of the sentences, if they are at hand.
        encode: for the features in `NEEDS_ENCODER`.
        score: for those in `NEEDS_SCORER`.

    Returns:
        (S, len(names)).

    Raises:
        ValueError: a name is unknown, or what it needs is not given.
    """
    texts = article.texts
    if not texts:
        return np.zeros((0, len(names)))
    vectors = vectors or TfidfVectors(texts)
    columns: dict[str, FloatArray] = {}
    if wanted := NEEDS_ENCODER.intersection(names):
        if encode is None:
            raise ValueError(f"{', '.join(sorted(wanted))}: an encoder is needed")
        columns |= _embedded(article, encode)
    if NEEDS_SCORER.intersection(names):
        if score is None:
            raise ValueError("scorer: a scorer is needed")
        columns["scorer"] = np.asarray(score([text[:LENGTH_READ] for text in texts]), dtype=float)
    columns |= _lexical(article, texts, vectors)
    if unknown := set(names) - set(columns):
        raise ValueError(f"unknown features: {', '.join(sorted(unknown))}")
    return np.stack([columns[name] for name in names], axis=1)


def _lexical(article: Article, texts: Sequence[str], vectors: TfidfVectors) -> dict[str, FloatArray]:
    num = len(texts)
    places = np.arange(num)
    no = np.zeros(num)
    return {
        "lead": 1.0 / (1 + places),
        "paragraph": _paragraph(article.starts_paragraph),
        "centrality": standardise(vectors.centrality),
        "headline": standardise(vectors.likeness(article.title)) if article.title else no,
        "length": standardise(np.log([1.0 + len(text) for text in texts])),
        "numbers": standardise(np.array([float(len(NUMBER.findall(text))) for text in texts])),
        "outlook": np.array([float(OUTLOOK.search(text) is not None) for text in texts]),
    }


def _paragraph(starts: Sequence[bool]) -> FloatArray:
    """Return who begins a paragraph, less the share of those that do; the first sentence begins one either way."""
    values = np.array(starts, dtype=float)
    share = values[1:].mean() if len(values) > 1 else 0.0
    # One block of text, and one line a sentence, say nothing about paragraphs.
    if share in (0.0, 1.0):
        return np.zeros(len(values))
    values -= share
    values[0] = 0.0
    return values


def _embedded(article: Article, encode: Encode) -> dict[str, FloatArray]:
    texts = [text[:LENGTH_READ] for text in article.texts]
    # One call an article: vectors then cannot depend on what else is summarised along with it.
    encoded = np.asarray(encode([*texts, article.title] if article.title else texts), dtype=float)  # (S or S + 1, D)
    vectors = encoded[: len(texts)]
    headline = standardise(vectors @ encoded[-1]) if article.title else np.zeros(len(texts))
    return {
        "embedding_centrality": standardise(vectors @ vectors.sum(axis=0)),
        "embedding_headline": headline,
    }


def relevance(texts: Sequence[str], focus: str) -> FloatArray:
    """Return what share of the focus's terms each text has, in [0, 1]; all of it where the text holds it literally."""
    wanted = set(terms(focus))
    literal = "".join(focus.split()).casefold()
    shares = [
        1.0
        if literal in "".join(text.split()).casefold()
        else len(wanted.intersection(terms(text))) / max(1, len(wanted))
        for text in texts
    ]
    return np.array(shares)
