"""Features of sentences: a few interpretable numbers per sentence, each with an expected sign.

All but the embedding features and the scorer's are computed from the text alone, in about a millisecond per article.
Words are matched by the character bigrams of their eojeol: particles and endings vary between mentions, the syllables
of the stem do not. Most features are standardized within the article, so that their scale does not depend on its
length; unknown ones (no headline, no paragraphs) are 0 for every sentence and have no effect.

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
# Plans, decisions, forecasts, demands: news reports often end with them, and editors often choose them.
OUTLOOK = re.compile(
    r"기로 (?:했|하고|결정)|계획(?:이|을|도|으로)|예정(?:이|인|으로)|방침(?:이|을|도)"
    r"|전망(?:이|된|했|하|도)|겠다(?:고|는|며)"
    r"|내다[봤보]|추진(?:하|한|할)|들어간다|나선다|나설|것으로 (?:보인|예상|전망|기대)|촉구|해야 (?:한다|할)"
    r"|내년|다음 달|내달|오는 \d|앞으로|향후"
)
LENGTH_READ = 4096
"""Characters of a sentence that embedders and scorers read."""

FEATURES: Mapping[str, str] = {
    "lead": "reciprocal rank in the article: 1, 1/2, 1/3, …",
    "paragraph": "begins a paragraph, in articles with paragraphs of several sentences",
    "centrality": "similarity to the whole article in words",
    "headline": "similarity to the headline in words",
    "length": "length",
    "numbers": "numbers and dates",
    "outlook": "mentions plans, decisions or forecasts",
    "embedding_centrality": "similarity to the whole article in meaning",
    "embedding_headline": "similarity to the headline in meaning",
    "scorer": "log-odds of a trained BertSumExt",
}
"""Feature → description for readers."""
NEEDS_ENCODER = frozenset({"embedding_centrality", "embedding_headline"})
NEEDS_SCORER = frozenset({"scorer"})


def terms(text: str) -> list[str]:
    """Return the terms of a text: character bigrams of Hangul and Hanja words; other words and numbers whole.

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
    """TF-IDF vectors of an article's sentences, with the sentences as the documents."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Weight the terms of S sentences by (1 + log tf) · log(1 + S / df), normalized to length 1."""
        counts = [Counter(terms(text)) for text in texts]
        df = Counter(term for count in counts for term in count)
        self._idf = {term: math.log1p(len(texts) / num) for term, num in df.items()}
        self.rows = [self._weight(count) for count in counts]

    def _weight(self, count: Mapping[str, int]) -> dict[str, float]:
        row = {term: (1 + math.log(num)) * self._idf[term] for term, num in count.items() if term in self._idf}
        norm = math.sqrt(sum(value * value for value in row.values()))
        return {term: value / norm for term, value in row.items()} if norm else {}

    @cached_property
    def centrality(self) -> FloatArray:
        """Cosine of each sentence with the sum of all sentences: (S,)."""
        centroid: Counter[str] = Counter()
        for row in self.rows:
            centroid.update(row)
        norm = math.sqrt(sum(value * value for value in centroid.values())) or 1.0
        return np.array([sum(value * centroid[term] for term, value in row.items()) / norm for row in self.rows])

    def similarity(self, text: str) -> FloatArray:
        """Cosine of each sentence with another text: (S,)."""
        query = self._weight(Counter(terms(text)))
        return np.array([sum(value * query.get(term, 0.0) for term, value in row.items()) for row in self.rows])

    def cosine(self, a: int, b: int) -> float:
        """Cosine of two sentences."""
        small, large = sorted((self.rows[a], self.rows[b]), key=len)
        return sum(value * large.get(term, 0.0) for term, value in small.items())


def standardize(values: FloatArray) -> FloatArray:
    """Shift to mean 0 and scale to standard deviation 1 within the article; all 0 for equal values."""
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
        vectors: of the sentences, if already computed.
        encode: for the features in `NEEDS_ENCODER`.
        score: for the features in `NEEDS_SCORER`.

    Returns:
        (S, len(names)).

    Raises:
        ValueError: a name is unknown, or its network is missing.
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
    return {
        "lead": 1.0 / (1 + np.arange(num)),
        "paragraph": _paragraph(article.starts_paragraph),
        "centrality": standardize(vectors.centrality),
        "headline": standardize(vectors.similarity(article.title)) if article.title else np.zeros(num),
        "length": standardize(np.log([1.0 + len(text) for text in texts])),
        "numbers": standardize(np.array([float(len(NUMBER.findall(text))) for text in texts])),
        "outlook": np.array([float(OUTLOOK.search(text) is not None) for text in texts]),
    }


def _paragraph(starts: Sequence[bool]) -> FloatArray:
    """Return 1 where a sentence begins a paragraph, else 0, less the mean; 0 for the first sentence of the article."""
    values = np.array(starts, dtype=float)
    share = values[1:].mean() if len(values) > 1 else 0.0
    # A text in one block, or with a sentence per line, has no paragraphs to speak of.
    if share in (0.0, 1.0):
        return np.zeros(len(values))
    values -= share
    values[0] = 0.0
    return values


def _embedded(article: Article, encode: Encode) -> dict[str, FloatArray]:
    texts = [text[:LENGTH_READ] for text in article.texts]
    # One call per article, so that vectors do not depend on other articles.
    encoded = np.asarray(encode([*texts, article.title] if article.title else texts), dtype=float)  # (S or S + 1, D)
    vectors = encoded[: len(texts)]
    headline = standardize(vectors @ encoded[-1]) if article.title else np.zeros(len(texts))
    return {
        "embedding_centrality": standardize(vectors @ vectors.sum(axis=0)),
        "embedding_headline": headline,
    }


def relevance(texts: Sequence[str], focus: str) -> FloatArray:
    """Return each text's share of the focus's terms, in [0, 1]; 1 if the text contains the focus literally."""
    wanted = set(terms(focus))
    literal = "".join(focus.split()).casefold()
    shares = [
        1.0
        if literal in "".join(text.split()).casefold()
        else len(wanted.intersection(terms(text))) / max(1, len(wanted))
        for text in texts
    ]
    return np.array(shares)
