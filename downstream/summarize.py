"""Summaries of Korean news: the sentences that say most, as they stand in the article.

    python -m downstream.summarize train corpora/sample/news.jsonl --pairs DATA/corpus/boddari_wikinews.csv --out DIR
    python -m downstream.summarize evaluate corpora/sample/news.jsonl --split dev
    python -m downstream.summarize ablate corpora/sample/news.jsonl

A model is a small logistic one over named features (`downstream.summaries.features`): its weights are a readable JSON
file, and every score can be taken apart. A BertSumExt of `downstream.extractive` may be one of the features, or the
whole model. Newly written (abstractive) summaries are out of scope: what is printed under a paper's name should stand
in the article.

>>> article = "새 다리가 열렸다. 시는 다음 달 버스 노선을 바꿀 계획이다. 주민들은 반겼다. 하늘은 맑았다."
>>> str(summarize(article, sentences=1, title="새 다리 개통, 버스 노선도 바뀐다"))
'시는 다음 달 버스 노선을 바꿀 계획이다.'
"""

import functools
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from corpora.foundation.files import package_path

if TYPE_CHECKING:
    # None of these is needed before the first summary; together they take longer to import than all of this.
    from corpora.boilerplate import Segment
    from downstream.summaries.features import Encode, FloatArray, Score, Vectors
    from downstream.summaries.labelled import Article
    from downstream.summaries.model import SummaryModel

BUNDLED = package_path("downstream", "bundled", "summarizer")
RUNTIMES = ("auto", "torch", "onnx", "openvino")
FOCUS_WEIGHT = 12.0
"""Log-odds that a sentence gains by holding all of the focus: more than all else makes two sentences differ by."""
NUM_COMPARED = 100
"""Chosen sentences that a further one is compared with."""
LONGEST_CLUSTER = 64
"""Characters of a cluster of combining marks that is looked into."""


@dataclass(frozen=True)
class SummarySentence:
    """A sentence of an article: `article[start:end] == text`, in code points."""

    text: str
    start: int
    end: int
    index: int
    """Its number among the article's sentences, from 0; bylines, captions and the like are none."""
    score: float
    """How likely an editor would choose it, in [0, 1]."""
    components: Mapping[str, float] = field(default_factory=dict)
    """What made the score, if asked for: log-odds by feature, and `bias`; they add up to the score's log-odds."""


@dataclass(frozen=True)
class Excluded:
    """What stands around an article's sentences and was not to be chosen."""

    text: str
    start: int
    end: int
    kind: str
    """As in `corpora.boilerplate`, e.g. `byline`, `caption`, `copyright`; `headline` for a first line."""


@dataclass(frozen=True)
class Summary:
    """A summary; `str()` is its sentences, one a line.

    It has fewer sentences than asked for where the article has no more, or only repeats itself. It has none where the
    article has none: blank text, or nothing but bylines, captions and the like, which are never chosen.
    """

    sentences: tuple[SummarySentence, ...]
    """In the order of the article."""
    candidates: tuple[SummarySentence, ...] = ()
    """If asked to explain: every sentence of the article."""
    excluded: tuple[Excluded, ...] = ()
    """If asked to explain: everything that was not to be chosen."""

    def __str__(self) -> str:
        """Join the sentences by line breaks; none has one inside."""
        return "\n".join(sentence.text for sentence in self.sentences)


class Titled(Protocol):
    """A text with its headline, such as `corpora.documents.Document`."""

    @property
    def text(self) -> str:
        """Body."""

    @property
    def title(self) -> str:
        """Headline; empty if not known."""


@dataclass(frozen=True)
class Options:
    """What a summary should be like; see `Summarizer.summarize`."""

    sentences: int = 3
    ratio: float | None = None
    max_chars: int | None = None
    focus: str = ""
    explain: bool = False

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if isinstance(self.sentences, bool) or not isinstance(self.sentences, int) or self.sentences < 1:
            raise ValueError(f"sentences={self.sentences!r}: give a whole number from 1")
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise ValueError(f"ratio={self.ratio!r}: give a share of the sentences above 0 and up to 1")
        if self.max_chars is not None and (isinstance(self.max_chars, bool) or self.max_chars < 1):
            raise ValueError(f"max_chars={self.max_chars!r}: give a number of characters from 1")
        if not isinstance(self.focus, str):
            raise ValueError(f"focus={self.focus!r}: give words")

    def num_sentences(self, num: int) -> int:
        """Return how many of NUM sentences may be chosen."""
        return self.sentences if self.ratio is None else max(1, round(self.ratio * num))


class Summarizer:
    """A loaded model. A summary does not depend on what was summarised before it or along with it."""

    def __init__(self, model: "SummaryModel", *, encode: "Encode | None" = None, score: "Score | None" = None) -> None:
        """Use a model, with what its features need.

        Args:
            model: weights.
            encode: sentence embedder; for features of embeddings.
            score: sentence scorer; for the feature `scorer`.
        """
        self.model, self._encode, self._score = model, encode, score

    @classmethod
    def load(cls, source: str | Path | None = None, runtime: str = "auto") -> "Summarizer":
        """Load a model.

        Args:
            source: folder or hub id of a model that `downstream.summarize` or `downstream.extractive` saved; default:
                the bundled one.
            runtime: what computes neural parts, if the model has any: `torch`, `onnx`, `openvino`, or `auto` for a GPU
                if there is one, else the fastest on this CPU (see `downstream.runtime`).

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
        """Summarise an article.

        Args:
            article: raw text of any length, with its bylines and captions.
            sentences: how many to choose at most.
            ratio: instead of a number, the share of the article's sentences, in (0, 1]; at least one.
            max_chars: characters that `str(summary)` may have at most, in composed form (NFC). What does not fit makes
                way for the next best that does.
            title: headline, if known; a first line that looks like one is found without.
            focus: words that the summary should be about, e.g. `부동산`. Sentences that have them come before all
                others; if there are too few, the best of the others follow.
            explain: tell how every score came about, and what was left out; see `Summary`.

        Returns:
            Sentences that are exact slices of `article`, in its order, no two alike. The same for composed and
            decomposed Hangul, apart from offsets.

        Raises:
            ValueError: an argument makes no sense.
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
        """Summarise articles one by one, as they come: memory does not grow with their number.

        Args:
            articles: texts, or objects with `text` and `title` such as `corpora.documents.Document`.
            sentences: see `summarize`, as for the other arguments.
            ratio: instead of a number of sentences.
            max_chars: limit for each summary.
            focus: what every summary should be about.
            explain: take scores apart.

        Returns:
            One summary for each article, in order.

        Raises:
            ValueError: an argument makes no sense; raised before the first article is read.
        """
        options = Options(sentences, ratio, max_chars, focus, explain)
        return (
            self._summarize(article, "", options)
            if isinstance(article, str)
            else self._summarize(article.text, article.title, options)
            for article in articles
        )

    def _summarize(self, source: str, title: str, options: Options) -> Summary:
        from downstream.summaries.labelled import read_article

        if not isinstance(source, str) or not isinstance(title, str):
            raise ValueError(f"article and title must be strings, not {type(source).__name__}, {type(title).__name__}")
        text, places = _compose(source)
        article = read_article(text, unicodedata.normalize("NFC", title))
        judgement = self.judge(article, unicodedata.normalize("NFC", options.focus))
        chosen = judgement.choose(options.num_sentences(len(article.sentences)), max_chars=options.max_chars)

        def span(segment: "Segment") -> tuple[str, int, int]:
            start, end = (
                (segment.start, segment.end) if places is None else (places[segment.start], places[segment.end])
            )
            return source[start:end], start, end

        def sentence(index: int) -> SummarySentence:
            components = judgement.components(index) if options.explain else {}
            return SummarySentence(*span(article.sentences[index]), index, judgement.score(index), components)

        return Summary(
            sentences=tuple(sentence(index) for index in sorted(chosen)),
            candidates=tuple(map(sentence, range(len(article.sentences)))) if options.explain else (),
            excluded=tuple(Excluded(*span(s), s.kind) for s in article.around) if options.explain else (),
        )

    def judge(self, article: "Article", focus: str = "") -> "Judgement":
        """Score the sentences of an article that is already split; `focus` as in `summarize`."""
        from downstream.summaries.features import Vectors, relevance, sentence_features

        vectors = Vectors(article.texts)
        names = list(self.model.weights)
        features = sentence_features(article, names, vectors=vectors, encode=self._encode, score=self._score)
        parts = {name: self.model.weights[name] * features[:, k] for k, name in enumerate(names)}
        if focus.strip():
            parts["focus"] = FOCUS_WEIGHT * relevance(article.texts, focus)
        return Judgement(article, vectors, parts, self.model.bias, self.model.redundancy)


@dataclass(frozen=True)
class Judgement:
    """What a model makes of an article's S sentences."""

    article: "Article"
    vectors: "Vectors"
    parts: "Mapping[str, FloatArray]"
    """Log-odds by feature, (S,) each."""
    bias: float
    redundancy: float
    """Likeness in words from which on a sentence says nothing beside another one."""

    @functools.cached_property
    def log_odds(self) -> list[float]:
        """Sum of all parts for each sentence, rounded so that no last digit decides between equals."""
        return [
            round(self.bias + sum(float(part[k]) for part in self.parts.values()), 9)
            for k in range(len(self.article.sentences))
        ]

    def score(self, index: int) -> float:
        """Return how likely an editor would choose a sentence."""
        return round(1 / (1 + math.exp(-min(max(self.log_odds[index], -500.0), 500.0))), 6)

    def components(self, index: int) -> dict[str, float]:
        """Return what adds up to a sentence's log-odds."""
        # Adding 0 turns a negative zero into a plain one.
        return {name: round(float(part[index]), 6) + 0.0 for name, part in self.parts.items()} | {"bias": self.bias}

    def choose(self, num_sentences: int, *, max_chars: int | None = None) -> list[int]:
        """Choose sentences, the best first; the earlier one of equals.

        Args:
            num_sentences: at most.
            max_chars: of the summary with its line breaks, at most.
        """
        chosen: list[int] = []
        seen: set[str] = set()
        room = math.inf if max_chars is None else max_chars + 1
        for index in sorted(range(len(self.log_odds)), key=lambda k: (-self.log_odds[k], k)):
            if len(chosen) == num_sentences:
                break
            segment = self.article.sentences[index]
            squeezed = "".join(self.article.text[segment.start : segment.end].split())
            length = segment.end - segment.start + 1
            # An article of thousands of sentences, all of them wanted, must not compare each with each.
            if (
                length > room
                or squeezed in seen
                or any(self.vectors.cosine(index, other) >= self.redundancy for other in chosen[:NUM_COMPARED])
            ):
                continue
            room -= length
            seen.add(squeezed)
            chosen.append(index)
        return chosen


@functools.cache
def _bundled() -> Summarizer:
    return Summarizer.load()


def summarize(
    article: str,
    sentences: int = 3,
    *,
    ratio: float | None = None,
    max_chars: int | None = None,
    title: str = "",
    focus: str = "",
    explain: bool = False,
) -> Summary:
    """Summarise an article with the bundled model, offline; arguments and result as in `Summarizer.summarize`.

    Raises:
        ValueError: an argument makes no sense.
    """
    return _bundled().summarize(
        article, sentences, ratio=ratio, max_chars=max_chars, title=title, focus=focus, explain=explain
    )


def _compose(source: str) -> tuple[str, list[int] | None]:
    """Return SOURCE in composed form (NFC), and for every place in that the place in SOURCE; None if they are equal."""
    if unicodedata.is_normalized("NFC", source):
        return source, None
    parts: list[str] = []
    places: list[int] = []
    start = 0
    for end in range(1, len(source) + 1):
        if end < len(source) and _joins(source[end]):
            continue
        cluster = source[start:end]
        composed = unicodedata.normalize("NFC", cluster)
        parts.append(composed)
        if len(composed) == 1:
            places.append(start)
        else:
            ends = {unicodedata.normalize("NFC", cluster[:k]): k for k in range(min(len(cluster), LONGEST_CLUSTER))}
            places += [start + ends.get(composed[:k], 0) for k in range(len(composed))]
        start = end
    text = "".join(parts)
    assert text == unicodedata.normalize("NFC", source), "a character composes with the one before unbeknown to _joins"
    return text, [*places, len(source)]


def _joins(character: str) -> bool:
    """Whether CHARACTER may compose with what stands before it: marks, and the vowels and finals of Hangul."""
    if character < "\u0300":
        return False
    # The last ones are vowel signs of Kirat Rai, which Unicode 16 calls letters.
    is_letter = "\u1161" <= character <= "\u11c2" or "\U00016d63" <= character <= "\U00016d67"
    return is_letter or unicodedata.category(character)[0] == "M"


def main(argv: list[str] | None = None) -> int:
    """Train, score or take apart a summariser from the command line."""
    from downstream.summaries.training import main as run

    return run(argv)


if __name__ == "__main__":
    from corpora.foundation.command import run_command

    run_command(main)
