"""The summarizer: score an article's sentences with a model, choose the best, return exact slices of the article.

A model is a weighted sum of named features (`downstream.summaries.features`): its weights are a readable
JSON file, and every score can be explained. A BertSumExt of `downstream.extractive` can be one of the features, or the
whole model.
"""

import functools
import heapq
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from corpora.characters import compose
from corpora.foundation.files import package_path
from corpora.readers.lines import join_lines

if TYPE_CHECKING:
    # Imported with the first summary: `import downstream.summarize` takes a fraction of a second.
    from corpora.boilerplate import Segment
    from corpora.readers.markup import Plain
    from downstream.summaries.articles import Article
    from downstream.summaries.features import Encode, FloatArray, Score, TfidfVectors
    from downstream.summaries.model import SummaryModel

BUNDLED = package_path("downstream", "bundled", "summarizer")
RUNTIMES = ("auto", "torch", "onnx", "onnx-fp32", "onnx-int8")
"""Backends of the neural features: words of `downstream.runtime`."""
FOCUS_WEIGHT = 12.0
"""Log-odds of a sentence that contains the whole focus; outweighs every other difference between two sentences."""
# 했다. 했다.” 했습니다 했죠 추진함.
STATEMENT = re.compile(r"[가-힣](?:다|요|죠|음|함|됨|임)[.!…]*[”’\"')\]」』]*[.!]?(?:\[\d{1,3}\])*$")
LIST_ITEM = re.compile(r"(?:\d{1,2}[.)위]|[①-⑳]|[-•·▶▷☞*])\s")
NUM_COMPARED = 100
"""Chosen sentences that a candidate is compared with, so that time stays linear in long summaries."""


@dataclass(frozen=True)
class SummarySentence:
    """A sentence of an article: `article[start:end] == text`, in code points."""

    text: str
    start: int
    end: int
    index: int
    """Number among the article's sentences, from 0; bylines, captions and the like do not count."""
    score: float
    """Probability that an editor would choose it."""
    components: Mapping[str, float] = field(default_factory=dict)
    """With `explain`: log-odds by feature, and `bias`; their sum is the log-odds of the score."""


@dataclass(frozen=True)
class Excluded:
    """A segment of an article that a summary never holds."""

    text: str
    start: int
    end: int
    kind: str
    """As in `corpora.boilerplate`, e.g. `byline`, `caption`, `copyright`; or `headline`, for a first line."""


@dataclass(frozen=True)
class Summary:
    """A summary; `str()` gives its sentences, one per line.

    It has fewer sentences than requested if the article has fewer or repeats itself, and none if the article has none:
    blank text, or nothing but bylines, captions and the like.
    """

    sentences: tuple[SummarySentence, ...]
    """In the order of the article."""
    candidates: tuple[SummarySentence, ...] = ()
    """With `explain`: every sentence of the article."""
    excluded: tuple[Excluded, ...] = ()
    """With `explain`: everything that could not be chosen."""

    def __str__(self) -> str:
        """Join the sentences by line breaks, each in one line: those of a wrapped text are unwrapped."""
        return "\n".join(join_lines(sentence.text) for sentence in self.sentences)


class Titled(Protocol):
    """A text with its headline, such as `corpora.documents.Document`."""

    @property
    def text(self) -> str:
        """Body."""

    @property
    def title(self) -> str:
        """Headline; empty if unknown."""


@dataclass(frozen=True)
class Options:
    """Options of a summary; see `Summarizer.summarize`."""

    sentences: int = 3
    ratio: float | None = None
    max_chars: int | None = None
    focus: str = ""
    explain: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for invalid values."""
        if isinstance(self.sentences, bool) or not isinstance(self.sentences, int) or self.sentences < 1:
            raise ValueError(f"sentences={self.sentences!r}: give a positive whole number")
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise ValueError(f"ratio={self.ratio!r}: give a share of the sentences in (0, 1]")
        if self.max_chars is not None and (isinstance(self.max_chars, bool) or self.max_chars < 1):
            raise ValueError(f"max_chars={self.max_chars!r}: give a positive number of characters")
        if not isinstance(self.focus, str):
            raise ValueError(f"focus={self.focus!r}: give a string")

    def num_sentences(self, num: int) -> int:
        """Return how many of NUM sentences may be chosen."""
        return self.sentences if self.ratio is None else max(1, round(self.ratio * num))


class Summarizer:
    """A loaded model. A summary does not depend on the other articles that are summarized."""

    def __init__(self, model: "SummaryModel", *, encode: "Encode | None" = None, score: "Score | None" = None) -> None:
        """Use a model with the networks that its features need.

        Args:
            model: weights.
            encode: sentence embedder, for the embedding features.
            score: sentence scorer, for the feature `scorer`.
        """
        self.model, self._encode, self._score = model, encode, score

    @classmethod
    def load(cls, source: str | Path | None = None, runtime: str = "auto") -> "Summarizer":
        """Load a model.

        Args:
            source: folder or hub id of a model that `downstream.summarize` or `downstream.extractive` saved; default:
                the bundled one.
            runtime: backend of the neural features, if the model has any: one of `RUNTIMES`. `auto` is the GPU if there
                is one, else the fastest backend of this CPU (see `downstream.runtime`).

        Raises:
            CheckpointError: the model is missing or unusable.
            ValueError: the runtime is unknown.
        """
        from downstream.summaries.model import open_model

        if runtime not in RUNTIMES:
            raise ValueError(f"runtime={runtime!r}: choose from {', '.join(RUNTIMES)}")
        model, encode, score = open_model(BUNDLED if source is None else source, runtime)
        return cls(model, encode=encode, score=score)

    def summarize(
        self,
        article: str,
        sentences: int = 3,
        *,
        ratio: float | None = None,
        max_chars: int | None = None,
        title: str = "",
        focus: str = "",
        explain: bool = False,
    ) -> Summary:
        """Summarize an article.

        Args:
            article: raw text of any length, with its bylines and captions. HTML is recognized and ignored: scripts and
                tags are in no sentence, except for tags inside one.
            sentences: maximum number of sentences.
            ratio: share of the article's sentences in (0, 1], instead of a number; at least one sentence.
            max_chars: maximum length of `str(summary)` in composed form (NFC). A sentence that does not fit is replaced
                by the next best that does.
            title: headline, if known; a first line that looks like a headline is detected.
            focus: words that the summary should be about, e.g. `부동산`. Sentences with these words rank before all
                others; if there are too few, the best of the others follow.
            explain: add the components of every score and the excluded segments; see `Summary`.

        Returns:
            Exact slices of `article` in its order, without repetitions. Composed and decomposed Hangul give the same
            sentences, at different offsets.

        Raises:
            ValueError: an argument is invalid.
        """
        options = Options(sentences, ratio, max_chars, focus, explain)
        return self._summarize(article, title, options)

    def summarize_many(
        self,
        articles: Iterable["str | Titled"],
        sentences: int = 3,
        *,
        ratio: float | None = None,
        max_chars: int | None = None,
        focus: str = "",
        explain: bool = False,
    ) -> Iterator[Summary]:
        """Summarize a stream of articles; memory does not grow with their number.

        Args:
            articles: texts, or objects with `text` and `title` such as `corpora.documents.Document`.
            sentences: maximum number of sentences; this and the following arguments are those of `summarize`.
            ratio: share of the sentences, instead of a number.
            max_chars: maximum length of each summary.
            focus: words that every summary should be about.
            explain: add the components of every score.

        Returns:
            One summary per article, in order.

        Raises:
            ValueError: an argument is invalid; raised before the first article is read.
        """
        options = Options(sentences, ratio, max_chars, focus, explain)
        return (
            self._summarize(article, "", options)
            if isinstance(article, str)
            else self._summarize(article.text, article.title, options)
            for article in articles
        )

    def _summarize(self, source: str, title: str, options: Options) -> Summary:
        from downstream.summaries.articles import read_article

        if not isinstance(source, str) or not isinstance(title, str):
            raise ValueError(f"article and title must be strings, not {type(source).__name__}, {type(title).__name__}")
        plain = _without_markup(source)
        text, offsets = compose(source if plain is None else plain.text)
        article = read_article(text, unicodedata.normalize("NFC", title))
        scored = self.score_sentences(article, unicodedata.normalize("NFC", options.focus))
        chosen = scored.choose(options.num_sentences(len(article.sentences)), max_chars=options.max_chars)

        def span(segment: "Segment") -> tuple[str, int, int]:
            start, end = segment.start, segment.end
            if offsets is not None:
                start, end = offsets[start], offsets[end]
            if plain is not None:
                start, end = plain.span(start, end)
            return source[start:end], start, end

        def sentence(index: int) -> SummarySentence:
            components = scored.components(index) if options.explain else {}
            return SummarySentence(*span(article.sentences[index]), index, scored.score(index), components)

        return Summary(
            sentences=tuple(sentence(index) for index in sorted(chosen)),
            candidates=tuple(map(sentence, range(len(article.sentences)))) if options.explain else (),
            excluded=tuple(Excluded(*span(s), s.kind) for s in article.excluded) if options.explain else (),
        )

    def score_sentences(self, article: "Article", focus: str = "") -> "ScoredArticle":
        """Score the sentences of an article that is already split; `focus` as in `summarize`."""
        from downstream.summaries.features import TfidfVectors, relevance, sentence_features

        vectors = TfidfVectors(article.texts)
        names = list(self.model.weights)
        features = sentence_features(article, names, vectors=vectors, encode=self._encode, score=self._score)
        parts = {name: self.model.weights[name] * features[:, k] for k, name in enumerate(names)}
        if focus.strip():
            parts["focus"] = FOCUS_WEIGHT * relevance(article.texts, focus)
        return ScoredArticle(article, vectors, parts, self.model.bias, self.model.redundancy)


@dataclass(frozen=True)
class ScoredArticle:
    """An article with a model's scores of its S sentences."""

    article: "Article"
    vectors: "TfidfVectors"
    parts: "Mapping[str, FloatArray]"
    """Log-odds by feature, (S,) each."""
    bias: float
    redundancy: float
    """TF-IDF cosine from which on a sentence counts as a repetition of another one."""

    @functools.cached_property
    def log_odds(self) -> list[float]:
        """Sum of all parts for each sentence, rounded so that floating-point noise breaks no ties."""
        return [
            round(self.bias + sum(float(part[k]) for part in self.parts.values()), 9)
            for k in range(len(self.article.sentences))
        ]

    def score(self, index: int) -> float:
        """Return the probability that an editor would choose a sentence."""
        return round(1 / (1 + math.exp(-min(max(self.log_odds[index], -500.0), 500.0))), 6)

    def components(self, index: int) -> dict[str, float]:
        """Return the terms that add up to a sentence's log-odds."""
        # Adding 0 turns -0.0 into 0.0.
        return {name: round(float(part[index]), 6) + 0.0 for name, part in self.parts.items()} | {"bias": self.bias}

    def choose(self, num_sentences: int, *, max_chars: int | None = None) -> list[int]:
        """Choose sentences, the best first; ties go to the earlier sentence.

        A sentence that refers to the one before it loses the penalty for it (`reference`) once that one is chosen.

        Args:
            num_sentences: maximum.
            max_chars: maximum length of the summary, line breaks included. No sentence that says nothing by itself,
                such as an item of a list, fills it up.
        """
        chosen: list[int] = []
        seen: set[str] = set()
        considered: set[int] = set()
        remaining = math.inf if max_chars is None else max_chars + 1
        queue = [(-odds, index) for index, odds in enumerate(self.log_odds)]
        heapq.heapify(queue)
        while queue and len(chosen) < num_sentences:
            _, index = heapq.heappop(queue)
            if index in considered:
                continue
            considered.add(index)
            segment = self.article.sentences[index]
            text = self.article.text[segment.start : segment.end]
            without_spaces, length = "".join(text.split()), len(text) + 1
            if (
                length > remaining
                or (max_chars is not None and not says_something(text))
                or without_spaces in seen
                or any(self.vectors.cosine(index, other) >= self.redundancy for other in chosen[:NUM_COMPARED])
            ):
                continue
            remaining -= length
            seen.add(without_spaces)
            chosen.append(index)
            penalty = self._reference_penalty(index + 1)
            if penalty and index + 1 not in considered:
                heapq.heappush(queue, (-round(self.log_odds[index + 1] - penalty, 9), index + 1))
        return chosen

    def _reference_penalty(self, index: int) -> float:
        """Return the negative log-odds by which a sentence is held back for referring to the one before it."""
        part = self.parts.get("reference")
        return min(0.0, float(part[index])) if part is not None and index < len(part) else 0.0


def says_something(text: str) -> bool:
    """Whether a text is a statement by itself: not an item of a list, a question or a word or two.

    >>> [text for text in ("1. 배우 A씨 결혼", "왜 그랬을까?", "그렇다.", "날은 흐렸다.") if says_something(text)]
    ['날은 흐렸다.']
    """
    return len(text.split()) > 1 and LIST_ITEM.match(text) is None and STATEMENT.search(text) is not None


def _without_markup(source: str) -> "Plain | None":
    """Return a text without HTML, and where its characters were; None if it has none."""
    if "<" not in source and "&" not in source:
        return None
    from corpora.readers.markup import plain_text

    plain = plain_text(source)
    return plain if plain.text != source.strip() else None
