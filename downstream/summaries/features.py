"""Features of sentences: a few interpretable numbers per sentence, each with an expected sign.

All but the embedding features and the scorer's are computed from the text alone, in about a millisecond per article.
Words are matched by the character bigrams of their eojeol: particles and endings vary between mentions, the syllables
of the stem do not. Most features are standardized within the article, so that their scale does not depend on its
length. None depends on how the sentences are joined, by blanks or by line breaks. Without a headline the first sentence
stands in for it.

Articles differ in kind. Press releases tell the most important things first; other reports begin with a scene, and name
decisions and dates at their end. `first_numbers` tells such a beginning from a first sentence that is the news, and
`late_plan` and `late_schedule` count more the later a sentence stands.

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
# 놓기로 했다, 바꿀 계획이다, 내놓겠다고: decisions and intentions.
PLAN = re.compile(
    r"기로 (?:했|하고|결정|합의)|계획(?:이|을|도|으로)|예정(?:이|인|으로)|방침(?:이|을|도)"
    r"|겠다(?:고|는|며)|추진(?:하|한|할)"
)
# 내년, 다음 달, 올해 안에, 2027년까지; 앞으로도 introduces good wishes.
SCHEDULE = re.compile(
    r"내년|다음 달|내달|오는 \d|앞으로(?!도)|향후|올해 안|연말|이르면|하반기|상반기|\d{4}년까지|월까지|말까지"
)
# 물빛시는, 교육청이, 연구소가.
ORGANIZATION = re.compile(r"(?:[시군구도부청처원회당사단국소]|대학교|센터)[은는이가] ")
QUOTATION = re.compile('“[^“”]*”|"[^"]*"')
# 한편, 하지만, 이에, 이는, 그는: what they refer to stands in the sentence before.
REFERENCE = re.compile(
    r"[“\"‘'(\[]?(?:한편|하지만|그러나|그런데|그리고|그래서|그러면서|그러자|그러니|따라서|그렇지만|그럼에도|그러므로|그래도"
    r"|그 결과|이 때문에|때문에|이에|이는|이를|이로|이와|이처럼|이같은|이 같은|이런|이러한|이들[은이]?|이어|이후|이밖에"
    r"|이외에도|이 밖에|이 가운데|이 중|이 과정에서|이 자리에서|그는|그가|그의|그도|그 역시|그녀[는가]|그들[은이]"
    r"|또|또한|다만|아울러|더불어|반면에?|반대로|게다가|나아가|여기에|즉|결국|더구나|더욱이|물론)(?=[\s,])"
)
# 했다. 했습니다.” 추진함 했다며, 했다.[1] 했다(사진). Questions, headings and items of lists end in another way.
STATEMENT_END = re.compile(
    r"(?:다|요|죠|며,|고,|[가-힣](?:음|함|됨|임))[.!…]*[”’\"')\]」』]*[.!]?(?:\[\d{1,3}\]|\([^()]*\)\.?)*$"
)
# The number is bounded, or a long one would be read again from each of its digits.
AMOUNT = re.compile(
    r"\d[\d,.]{0,40}\s?(?:[%\uff05㎡㏊]|(?:천|백|십)?(?:억|만|조|천)|명|원|건|곳|개|톤|배|위|세|가구|대(?![가-힣])|m\b|km|퍼센트|포인트"
    r"|달러|차례|종)"
)
LENGTH_READ = 4096
"""Characters of a sentence that embedders and scorers read."""

FEATURES: Mapping[str, str] = {
    "first": "is the first sentence of the article",
    "second": "is the second sentence of the article",
    "lead": "reciprocal rank in the article: 1, 1/2, 1/3, …",
    "centrality": "similarity to the whole article in words",
    "headline": "similarity in words to the headline, or without one to the first sentence",
    "length": "length",
    "numbers": "numbers and dates",
    "first_numbers": "is the first sentence, and has more numbers and dates than the others",
    "amount": "has a number with a unit: people, money, shares",
    "organization": "an office, company or other body is its topic or subject",
    "introduces": "first to mention words that come again later",
    "late_plan": "mentions a plan or decision, counted by how late in the article it stands",
    "late_schedule": "names a time to come, counted by how late in the article it stands",
    "quotation": "share of quotations in its characters",
    "fragment": "does not end like a statement: a question, a heading, an item of a list",
    "reference": "begins with a word that refers to the sentence before it, which the summary does not hold",
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
    place = np.arange(num)
    late = place / max(1, num - 1)
    numbers = standardize(np.array([float(len(NUMBER.findall(text))) for text in texts]))
    return {
        "first": (place == 0).astype(float),
        "second": (place == 1).astype(float),
        "lead": 1.0 / (1 + place),
        "centrality": standardize(vectors.centrality),
        "headline": standardize(vectors.similarity(article.title) if article.title else _similarity_to_first(vectors)),
        "length": standardize(np.log([1.0 + len(text) for text in texts])),
        "numbers": numbers,
        "first_numbers": np.where(place == 0, numbers, 0.0),
        "amount": _matches(AMOUNT, texts),
        "organization": _matches(ORGANIZATION, texts),
        "introduces": standardize(_num_introduced(vectors)),
        "late_plan": late * _matches(PLAN, texts),
        "late_schedule": late * _matches(SCHEDULE, texts),
        "quotation": np.array([_quoted_share(text) for text in texts]),
        "fragment": 1.0 - _matches(STATEMENT_END, texts),
        "reference": np.array([float(k > 0 and REFERENCE.match(text) is not None) for k, text in enumerate(texts)]),
    }


def _matches(pattern: re.Pattern[str], texts: Sequence[str]) -> FloatArray:
    """Return 1 for a text in which the pattern occurs, else 0: (S,)."""
    return np.array([float(pattern.search(text) is not None) for text in texts])


def _num_introduced(vectors: TfidfVectors) -> FloatArray:
    """Count the terms of each sentence that are in no earlier sentence and in a later one: (S,)."""
    seen: set[str] = set()
    introduced = []
    again = Counter(term for row in vectors.rows for term in row)
    for row in vectors.rows:
        introduced.append(float(sum(again[term] > 1 for term in row.keys() - seen)))
        seen.update(row)
    return np.array(introduced)


def _similarity_to_first(vectors: TfidfVectors) -> FloatArray:
    """Cosine of each sentence with the first one, which itself gets the mean of the others: (S,)."""
    values = np.array([vectors.cosine(0, k) for k in range(len(vectors.rows))])
    values[0] = values[1:].mean() if len(values) > 1 else 0.0
    return values


def _quoted_share(text: str) -> float:
    return sum(len(quotation.group()) for quotation in QUOTATION.finditer(text)) / len(text)


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
