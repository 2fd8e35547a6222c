"""News as multiple choice: which of four sentences continues the article? After SWAG (Zellers et al. 2018).

Made out of the Korean Wikinews when it is read; articles that share a sentence lie on the same side, and all sentences
of an example are of one side. The context is the three sentences before the right one. Wrong ones are sentences of the
same article, out of reach of the context, and of the articles that are most like it by their letters.

So that neither length nor what a choice shares with the context tells which is right, the right one's ranks among the
four by both, likeness being a sum of TF-IDF cosines, are dealt out evenly at first: of each of the 4 × 4 pairs of ranks
there are as many examples, and the wrong choices are those candidates nearest to the right one that give it its ranks.
Since the cosines differ, one of them may still put the right choice first where their sum does not. Therefore those
examples are kept that the fewest cosines put first, and a quarter as many of those that their sum puts first. Ranks by
length stay even. Every wrong choice could be the right one of another example.

Encoders that were pretrained on Wikinews, ours on `open_korean` among them, have read these articles. `python -m
eval.contamination` tells how many; a corpus recipe without that source is free of them.
"""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from corpora.documents import Document, RejectedRecord, read_documents
from corpora.official import OfficialFile
from corpora.sentences import split_article
from downstream.derivation import DECIMALS, GRAMS, draw
from downstream.metrics import accuracy
from downstream.multiple_choice import MultipleChoice
from downstream.task import ChoiceExample, Division, FinetuneConfig, Task

logger = logging.getLogger(__name__)

LICENCE = "CC-BY-2.5"
NUM_CHOICES = 4
CONTEXT = 3
"""Sentences before the right one."""
SHORTEST, LONGEST = 20, 200
"""Characters: shorter sentences are left out of their articles, longer ones are no choices."""
LIKE_ARTICLES = 12
MAX_USES = NUM_CHOICES - 1
"""How often a sentence is a wrong choice, at most: no oftener than it would be if all were right once."""
WEIGHTS = (0.5, 1.0, 1.0)
"""Of the cosines of 1-, 2- and 3-grams."""
KEPT = (0.15, 0.6, 0.6, 0.6)
"""Share of the examples that are kept, by the right one's rank in likeness to the context."""
MARKUP = re.compile(r"\[\[[^\]]*\]\]|\[\d+\]")


def read_articles(path: Path) -> list[Document]:
    """Read articles; records without text are counted in the log."""
    rejected: list[RejectedRecord] = []
    documents = list(read_documents(path, rejected=rejected))
    logger.info("%s: %s articles, %s records without text", path, len(documents), len(rejected))
    return documents


def article_keys(document: Document) -> list[str]:
    """Return what articles must not share across parts: sentences, and what they say they are related to."""
    return [document.id, str(document.extra.get("related") or document.id), *sentences_of(document)]


def sentences_of(document: Document) -> list[str]:
    """Return the sentences of an article without footnote marks."""
    return [s.text for s in split_article(MARKUP.sub("", document.text)) if len(s.text) >= SHORTEST]


@dataclass(frozen=True)
class _Place:
    """A sentence that can be the right choice, and where it stands."""

    article: int
    number: int
    text: str
    context: str


def make_choices(_split: str, documents: Sequence[Document]) -> list[ChoiceExample]:
    """Return examples of four choices, in the order of the articles."""
    articles = [sentences_of(document) for document in documents]
    likes = _most_alike([" ".join(sentences) for sentences in articles])
    places = [place for number, sentences in enumerate(articles) for place in _places(number, sentences)]
    by_article: dict[int, list[int]] = defaultdict(list)
    for k, place in enumerate(places):
        by_article[place.article].append(k)
    likeness = _Likeness([place.text for place in places], [place.context for place in places])
    made: dict[tuple[int, int], list[_Made]] = {(a, b): [] for a in range(NUM_CHOICES) for b in range(NUM_CHOICES)}
    uses: Counter[str] = Counter()
    pools = {article: [k for a in (article, *likes[article]) for k in by_article.get(a, [])] for article in by_article}
    cosines = {article: likeness(pool, by_article[article]) for article, pool in pools.items()}
    for k in sorted(range(len(places)), key=lambda k: draw(f"order {places[k].text}", 1 << 62)):
        place = places[k]
        own = by_article[place.article].index(k)  # of its article's pool the first are its own
        # 1-grams are much alike everywhere: their cosines are large and say little.
        advantages = (cosines[place.article][:, own] - cosines[place.article][own, own]) * WEIGHTS  # (candidates, 3)
        quadrants = _by_quadrant(place, [places[other] for other in pools[place.article]], advantages, uses)
        # Ranks that few examples can be given are filled first.
        for ranks in sorted(made, key=lambda ranks: len(made[ranks])):
            if (wrong := _with_ranks(quadrants, ranks)) is not None:
                firsts = sum(all(candidate.advantages[n] < 0 for candidate in wrong) for n in range(len(GRAMS)))
                made[ranks].append(_Made(firsts, k, [candidate.text for candidate in wrong]))
                uses.update(candidate.text for candidate in wrong)
                break
    number = min(len(examples) for examples in made.values())
    # What letters tell most clearly goes first.
    chosen = [example for (rank, _), some in made.items() for example in sorted(some)[: round(KEPT[rank] * number)]]
    chosen.sort(key=lambda example: example.place)
    return [_example(documents[places[e.place].article].id, places[e.place], e.wrong) for e in chosen]


def _places(article: int, sentences: Sequence[str]) -> Iterator[_Place]:
    for number in range(CONTEXT, len(sentences)):
        context = " ".join(sentences[number - CONTEXT : number])
        if len(sentences[number]) <= LONGEST and sentences[number] not in context:
            yield _Place(article, number, sentences[number], context)


def _most_alike(texts: Sequence[str]) -> list[list[int]]:
    """Return for each text the numbers of those most like it, by the cosine of TF-IDF over 2-grams."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(analyzer="char", ngram_range=(2, 2), sublinear_tf=True).fit_transform(texts)
    cosines = np.round((vectors @ vectors.T).toarray(), DECIMALS)  # (N, N); last digits differ between machines
    np.fill_diagonal(cosines, -1.0)
    return [list(map(int, row)) for row in np.argsort(-cosines, axis=1, kind="stable")[:, :LIKE_ARTICLES]]


class _Likeness:
    """How alike sentences and contexts are: cosines of TF-IDF over 1-, 2- and 3-grams."""

    def __init__(self, texts: Sequence[str], contexts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._tables = []
        for n in GRAMS:
            vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(n, n), sublinear_tf=True, lowercase=False)
            table = vectorizer.fit_transform([*texts, *contexts])
            self._tables.append((table[: len(texts)], table[len(texts) :]))

    def __call__(self, texts: Sequence[int], contexts: Sequence[int]) -> Any:
        """Return float (texts, contexts, 3)."""
        import numpy as np

        return np.round(np.stack([(t[texts] @ c[contexts].T).toarray() for t, c in self._tables], axis=-1), DECIMALS)


class _Candidate(NamedTuple):
    """A sentence that may be a wrong choice."""

    distance: float
    text: str
    advantages: tuple[float, ...]
    """What its cosines with the context have above those of the right one."""


class _Made(NamedTuple):
    """An example to be, in the order in which they are taken."""

    firsts: int
    """By how many of the cosines the right choice is the one most like the context."""
    place: int
    wrong: list[str]


_Quadrants = dict[tuple[bool, bool], list[_Candidate]]


def _by_quadrant(
    place: _Place, candidates: Sequence[_Place], advantages: Iterable[Sequence[float]], uses: Mapping[str, int]
) -> _Quadrants:
    """Return candidates by whether they are more like the context and whether they are longer, the nearest first."""
    ranked: dict[tuple[bool, bool], dict[str, _Candidate]] = defaultdict(dict)
    for other, cosines in zip(candidates, advantages, strict=True):
        is_near = other.article == place.article and abs(other.number - place.number) <= CONTEXT
        more, longer = sum(cosines), len(other.text) - len(place.text)
        if more and longer and not is_near and uses.get(other.text, 0) < MAX_USES:
            distance = sum(map(abs, cosines)) + abs(longer) / len(place.text) / 2
            candidate = _Candidate(round(float(distance), DECIMALS), other.text, tuple(map(float, cosines)))
            ranked[more > 0, longer > 0].setdefault(other.text, candidate)
    return {quadrant: sorted(some.values()) for quadrant, some in ranked.items()}


def _with_ranks(quadrants: _Quadrants, ranks: tuple[int, int]) -> list[_Candidate] | None:
    """Return wrong choices of which as many as RANKS say share more, and are longer; None if there are none."""
    more, longer = ranks
    for both in range(max(0, more + longer - NUM_CHOICES + 1), min(more, longer) + 1):
        wanted = {
            (True, True): both,
            (True, False): more - both,
            (False, True): longer - both,
            (False, False): NUM_CHOICES - 1 - more - longer + both,
        }
        if all(len(quadrants.get(quadrant, ())) >= number for quadrant, number in wanted.items()):
            return [one for quadrant, number in wanted.items() for one in quadrants.get(quadrant, [])[:number]]
    return None


def _example(article: str, place: _Place, wrong: Sequence[str]) -> ChoiceExample:
    id_ = f"{article}/{place.number}"
    choices = sorted(wrong, key=lambda text: draw(f"{id_} {text}", 1 << 62))
    right = draw(id_, NUM_CHOICES)
    choices.insert(right, place.text)
    return ChoiceExample(id_, place.context, None, str(right), tuple(choices))


WIKINEWS = OfficialFile(
    path="corpus/boddari_wikinews.csv",
    url="https://raw.githubusercontent.com/yiunsr/boddari/6961ee938391d21e7b7520eb6798b56aacb51216/boddari/wikinews.csv",
    licence=LICENCE,
    sha256="bc099013ad5a5ff57f35a574007fd17030f987fd507b7802c4dd8c04b8b7b86b",
    size_bytes=1_290_570,
)

TASK = Task(
    name="news-swag",
    title="뉴스 SWAG",
    family=MultipleChoice(NUM_CHOICES),
    files={"train": WIKINEWS, "dev": WIKINEWS},
    num_examples={"train": 1_444, "dev": 740},
    sample_num_examples={"train": 416, "dev": 184},
    sample_paths={"train": "news.jsonl", "dev": "news.jsonl"},
    read=read_articles,
    derive=make_choices,
    division=Division("train", {}, keys=article_keys, eval_share=0.3),
    metrics=(accuracy,),
    chance=1 / NUM_CHOICES,
    finetune=FinetuneConfig(epochs=4, batch_size=16, peak_lr=3e-5, max_length=256),
    source="made by this suite out of Korean Wikinews, github yiunsr/boddari",
    licence=LICENCE,
)
