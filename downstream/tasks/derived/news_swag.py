"""News as multiple choice: which of four sentences continues the article? After SWAG (Zellers et al. 2018).

Made out of the Korean Wikinews when it is read; articles that share a sentence lie on the same side, and all sentences
of an example are of one side. The context is the three sentences before the right one. Wrong ones are sentences of the
same article, out of reach of the context, and of the articles that are most like it by their letters.

So that letters and lengths do not tell which is right, examples come in *groups*: four contexts, and for each of them
the same four sentences to choose from, every one of which is right once and wrong three times. A sentence alone, its
length included, is therefore right in exactly a quarter. A group's *advantage* is how much more the right pairs of
context and sentence are alike than the wrong ones, by cosines of TF-IDF. Groups are put together so that it is small,
and taken from the least on as long as the advantages do not sum up to more than nothing, as in `korquad_qnli`.

Encoders that were pretrained on Wikinews, ours on `open_korean` among them, have read these articles. `python -m
eval.contamination` tells how many; a corpus recipe without that source is free of them.
"""

import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from corpora.documents import Document, RejectedRecord, read_documents
from corpora.official import OfficialFile
from corpora.sentences import split_article
from downstream.families.multiple_choice import MultipleChoice
from downstream.metrics import accuracy
from downstream.substitutes import DECIMALS, GRAMS, Division, draw
from downstream.task import ChoiceExample, FinetuneConfig, Task

logger = logging.getLogger(__name__)

LICENCE = "CC-BY-2.5"
NUM_CHOICES = 4
CONTEXT = 3
"""Sentences before the right one."""
SHORTEST, LONGEST = 20, 200
"""Characters: shorter sentences are left out of their articles, longer ones are no choices."""
LIKE_ARTICLES = 12
MIN_GROUPS = 30
"""Of a split, whatever they sum up to: the embedded sample has few articles."""
WEIGHTS = (0.5, 1.0, 1.0)
"""Of the cosines over 1-, 2- and 3-grams: the first are large everywhere and say little."""
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
    """Return examples of four choices, four a group."""
    articles = [sentences_of(document) for document in documents]
    likes = _most_alike([" ".join(sentences) for sentences in articles])
    places = [place for number, sentences in enumerate(articles) for place in _places(number, sentences)]
    by_article: dict[int, list[int]] = defaultdict(list)
    for k, place in enumerate(places):
        by_article[place.article].append(k)
    likeness = _Likeness([place.text for place in places], [place.context for place in places])
    taken: set[int] = set()
    groups: list[tuple[float, list[int]]] = []
    for k in sorted(range(len(places)), key=lambda k: draw(f"order {places[k].text}", 1 << 62)):
        near = [o for article in (places[k].article, *likes[places[k].article]) for o in by_article.get(article, [])]
        pool = [k, *(other for other in near if other not in taken and other != k)]
        if k not in taken and (group := _group(pool, places, likeness(pool, pool))) is not None:
            taken.update(group[1])
            groups.append(group)
    examples = []
    total = 0.0
    for number, (advantage, members) in enumerate(sorted(groups)):
        if total + advantage > 0 and number >= MIN_GROUPS:
            break
        total += advantage
        examples += [_example(documents[places[k].article].id, k, members, places) for k in members]
    return examples


def _group(pool: Sequence[int], places: Sequence[_Place], likeness: Any) -> tuple[float, list[int]] | None:
    """Return the first of POOL with three others that make its advantage small; None if there are no three.

    Args:
        pool: numbers of places.
        places: all of them.
        likeness: (pool, pool), of sentences and contexts.
    """
    # What a pair of places adds to the advantage: right pairs against the two that are crossed.
    own = likeness.diagonal()
    added = own[:, None] + own[None, :] - likeness - likeness.T
    chosen = [0]
    while len(chosen) < NUM_CHOICES:
        fitting = [
            k for k in range(len(pool)) if all(_is_apart(places[pool[k]], places[pool[other]]) for other in chosen)
        ]
        if not fitting:
            return None
        chosen.append(min(fitting, key=lambda k: (round(float(added[k, chosen].sum()), DECIMALS), k)))
    advantage = sum(float(added[a, b]) for a, b in combinations(chosen, 2))
    return round(advantage, DECIMALS), [pool[k] for k in chosen]


def _is_apart(one: _Place, other: _Place) -> bool:
    """Whether neither sentence stands in the other's context or is the same."""
    is_near = one.article == other.article and abs(one.number - other.number) <= CONTEXT
    return not is_near and one.text != other.text and one.text not in other.context and other.text not in one.context


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
    """How alike sentences and contexts are: a sum of cosines of TF-IDF over 1-, 2- and 3-grams."""

    def __init__(self, texts: Sequence[str], contexts: Sequence[str]) -> None:
        from scipy import sparse
        from sklearn.feature_extraction.text import TfidfVectorizer

        weighted, plain = [], []
        for n, weight in zip(GRAMS, WEIGHTS, strict=True):
            vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(n, n), sublinear_tf=True, lowercase=False)
            table = vectorizer.fit_transform([*texts, *contexts])
            weighted.append(weight * table[: len(texts)])
            plain.append(table[len(texts) :])
        self._texts, self._contexts = sparse.hstack(weighted).tocsr(), sparse.hstack(plain).tocsr()

    def __call__(self, texts: Sequence[int], contexts: Sequence[int]) -> Any:
        """Return float (texts, contexts)."""
        return (self._texts[texts] @ self._contexts[contexts].T).toarray()


def _example(article: str, right: int, members: Sequence[int], places: Sequence[_Place]) -> ChoiceExample:
    id_ = f"{article}/{places[right].number}"
    order = sorted(members, key=lambda k: draw(f"{id_} {places[k].text}", 1 << 62))
    choices = tuple(places[k].text for k in order)
    return ChoiceExample(id_, places[right].context, None, str(order.index(right)), choices)


WIKINEWS = OfficialFile(
    path="corpus/boddari_wikinews.csv",
    url="https://raw.githubusercontent.com/yiunsr/boddari/6961ee938391d21e7b7520eb6798b56aacb51216/boddari/wikinews.csv",
    licence=LICENCE,
    sha256="bc099013ad5a5ff57f35a574007fd17030f987fd507b7802c4dd8c04b8b7b86b",
    size_bytes=1_290_570,
)

TASK = Task(
    name="news-swag",
    title="News-SWAG",
    family=MultipleChoice(NUM_CHOICES),
    files={"train": WIKINEWS, "dev": WIKINEWS},
    num_examples={"train": 1_372, "dev": 712},
    sample_num_examples={"train": 840, "dev": 380},
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
