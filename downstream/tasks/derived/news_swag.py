"""News as multiple choice: which of four sentences continues the article? After SWAG (Zellers et al. 2018).

Derived from the Korean Wikinews when it is read; articles that share a sentence belong to the same part, and all
sentences of an example come from one part. The context is the three sentences before the correct one. Wrong choices are
sentences of the same article outside the context, and of the articles with the most similar characters.

So that characters and lengths do not predict the answer, examples come in *groups*: four contexts with the same four
choices, each of which is correct once and wrong three times. A sentence alone, its length included, is therefore
correct in exactly a quarter of its examples. A group's *advantage* is the similarity of its correct pairs of context
and sentence minus that of its wrong pairs, by cosines of TF-IDF. Groups are composed for a small advantage, and taken
in ascending order while the sum of advantages does not exceed zero, as in `korquad_qnli`.

Encoders pretrained on Wikinews, ours on `open_korean` among them, have seen these articles. `python -m
eval.contamination` reports how many; a corpus recipe without that source avoids them.
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
from downstream.families.multiple_choice import MultipleChoice
from downstream.metrics import accuracy
from downstream.substitutes import DECIMALS, GRAMS, Division, draw
from downstream.task import ChoiceExample, FinetuneConfig, Task
from downstream.tasks.derived._passages import split_passage

logger = logging.getLogger(__name__)

LICENCE = "CC-BY-2.5"
NUM_CHOICES = 4
CONTEXT = 3
"""Sentences before the correct one."""
SHORTEST, LONGEST = 20, 200
"""Characters: shorter sentences are removed from their articles, longer ones are not used as choices."""
NUM_SIMILAR_ARTICLES = 12
MIN_GROUPS = 30
"""Minimum of a split, whatever their advantages: the embedded sample has few articles."""
WEIGHTS = (0.5, 1.0, 1.0)
"""Weights of the cosines over 1-, 2- and 3-grams: those of 1-grams are large for any two texts."""
MARKUP = re.compile(r"\[\[[^\]]*\]\]|\[\d+\]")


def read_articles(path: Path) -> list[Document]:
    """Read articles; records without text are counted in the log."""
    rejected: list[RejectedRecord] = []
    documents = list(read_documents(path, rejected=rejected))
    logger.info("%s: %s articles, %s records without text", path, len(documents), len(rejected))
    return documents


def story_of(document: Document) -> str:
    """Return the key of the story that an article reports."""
    return str(document.extra.get("related") or document.id)


def article_keys(document: Document) -> list[str]:
    """Return the keys that articles of different parts must not share: sentences and related articles."""
    return [document.id, story_of(document), *sentences_of(document)]


def sentences_of(document: Document) -> list[str]:
    """Return the sentences of an article without footnote marks."""
    return [s.text for s in split_passage(MARKUP.sub("", document.text)) if len(s.text) >= SHORTEST]


@dataclass(frozen=True)
class _Candidate:
    """A sentence that can be the correct choice, with its position."""

    article: int
    number: int
    text: str
    context: str


def make_choices(_split: str, documents: Sequence[Document]) -> list[ChoiceExample]:
    """Return examples of four choices, four per group."""
    articles = [sentences_of(document) for document in documents]
    similar = _most_similar([" ".join(sentences) for sentences in articles])
    candidates = [
        candidate for number, sentences in enumerate(articles) for candidate in _candidates(number, sentences)
    ]
    by_article: dict[int, list[int]] = defaultdict(list)
    for k, candidate in enumerate(candidates):
        by_article[candidate.article].append(k)
    similarity = _Similarity(
        [candidate.text for candidate in candidates], [candidate.context for candidate in candidates]
    )
    taken: set[int] = set()
    groups: list[tuple[float, list[int]]] = []
    for k in sorted(range(len(candidates)), key=lambda k: draw(f"order {candidates[k].text}", 1 << 62)):
        near = [
            o
            for article in (candidates[k].article, *similar[candidates[k].article])
            for o in by_article.get(article, [])
        ]
        pool = [k, *(other for other in near if other not in taken and other != k)]
        if k not in taken and (group := _group(pool, candidates, similarity(pool, pool))) is not None:
            taken.update(group[1])
            groups.append(group)
    examples = []
    total = 0.0
    for number, (advantage, members) in enumerate(sorted(groups)):
        if total + advantage > 0 and number >= MIN_GROUPS:
            break
        total += advantage
        examples += [_example(documents[candidates[k].article].id, k, members, candidates) for k in members]
    return examples


def _group(pool: Sequence[int], candidates: Sequence[_Candidate], similarity: Any) -> tuple[float, list[int]] | None:
    """Return a group of the first of POOL and three others with a small advantage; None if there are no three.

    Args:
        pool: indices of candidates.
        candidates: all of them.
        similarity: (pool, pool), of sentences and contexts.
    """
    # Contribution of two candidates to the advantage: their correct pairs minus their crossed pairs.
    own = similarity.diagonal()
    added = own[:, None] + own[None, :] - similarity - similarity.T
    chosen = [0]
    while len(chosen) < NUM_CHOICES:
        fitting = [
            k
            for k in range(len(pool))
            if all(_is_apart(candidates[pool[k]], candidates[pool[other]]) for other in chosen)
        ]
        if not fitting:
            return None
        chosen.append(min(fitting, key=lambda k: (round(float(added[k, chosen].sum()), DECIMALS), k)))
    advantage = sum(float(added[a, b]) for a, b in combinations(chosen, 2))
    return round(advantage, DECIMALS), [pool[k] for k in chosen]


def _is_apart(one: _Candidate, other: _Candidate) -> bool:
    """Whether the sentences differ and neither occurs in the other's context."""
    is_near = one.article == other.article and abs(one.number - other.number) <= CONTEXT
    return not is_near and one.text != other.text and one.text not in other.context and other.text not in one.context


def _candidates(article: int, sentences: Sequence[str]) -> Iterator[_Candidate]:
    for number in range(CONTEXT, len(sentences)):
        context = " ".join(sentences[number - CONTEXT : number])
        if len(sentences[number]) <= LONGEST and sentences[number] not in context:
            yield _Candidate(article, number, sentences[number], context)


def _most_similar(texts: Sequence[str]) -> list[list[int]]:
    """Return for each text the indices of the most similar ones, by the cosine of TF-IDF over 2-grams."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(analyzer="char", ngram_range=(2, 2), sublinear_tf=True).fit_transform(texts)
    cosines = np.round((vectors @ vectors.T).toarray(), DECIMALS)  # (N, N); last digits differ between machines
    np.fill_diagonal(cosines, -1.0)
    return [list(map(int, row)) for row in np.argsort(-cosines, axis=1, kind="stable")[:, :NUM_SIMILAR_ARTICLES]]


class _Similarity:
    """Similarity of sentences and contexts: a weighted sum of TF-IDF cosines over 1-, 2- and 3-grams."""

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


def _example(article: str, right: int, members: Sequence[int], candidates: Sequence[_Candidate]) -> ChoiceExample:
    id_ = f"{article}/{candidates[right].number}"
    order = sorted(members, key=lambda k: draw(f"{id_} {candidates[k].text}", 1 << 62))
    choices = tuple(candidates[k].text for k in order)
    return ChoiceExample(id_, candidates[right].context, None, str(order.index(right)), choices)


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
    cluster=story_of,
    metrics=(accuracy,),
    chance=1 / NUM_CHOICES,
    finetune=FinetuneConfig(epochs=4, batch_size=16, peak_lr=3e-5, max_length=256),
    source="made by this suite out of Korean Wikinews, github yiunsr/boddari",
    licence=LICENCE,
)
