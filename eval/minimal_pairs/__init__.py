"""KoBLiMP-news: pairs of sentences that differ in one place, one of them ungrammatical; which one is likelier?

    python -m eval.minimal_pairs --data ROOT
    python -m eval.minimal_pairs FOLDER --data ROOT --json

A masked language model prefers the sentence with the higher pseudo-log-likelihood; equal values count half. No model is
trained. Pairs are made by rule from free text (`SOURCES`), at most `PER_PHENOMENON` for each phenomenon, the same ones
from the same data.

Source: BLiMP, Warstadt et al. 2020; pseudo-log-likelihood, Salazar et al. 2020.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora.documents import read_documents
from corpora.foundation.files import SAMPLE_ROOT
from corpora.sentences import split_article
from eval.minimal_pairs.phenomena import PHENOMENA

PER_PHENOMENON = 200
SHORTEST, LONGEST = 15, 60
"""Characters of a sentence."""
PLAIN = re.compile(r"[가-힣0-9 ,.%·]+[다요]\.")
"""Sentences without signs that a rule could trip over."""
MAX_DOCUMENTS = 1_500


@dataclass(frozen=True)
class Source:
    """Where sentences come from."""

    path: str
    """Under the data root; empty: the embedded sample."""
    licence: str
    is_unseen: bool
    """Whether the bundled encoder was pretrained without it."""


SOURCES: Mapping[str, Source] = {
    "sample": Source("", "CC0-1.0", is_unseen=True),
    "documentation": Source("corpus/msdocs_learn_ko.jsonl.gz", "CC-BY-4.0", is_unseen=False),
    "manuals": Source("corpus/msdocs_dynamics365_ko.jsonl.gz", "CC-BY-4.0", is_unseen=False),
    "wikinews": Source("corpus/boddari_wikinews.csv", "CC-BY-2.5", is_unseen=False),
    "reviews": Source("corpus/boddari_book_review01.csv", "CC-BY", is_unseen=False),
    "stories": Source("corpus/boddari_fairytale01.csv", "public domain, CC-BY-4.0", is_unseen=False),
    "petitions": Source(
        "corpus/petitions.jsonl.gz", "KOGL-1.0, which asks for the source as CC-BY does", is_unseen=False
    ),
}


@dataclass(frozen=True)
class Pair:
    """Two sentences."""

    phenomenon: str
    source: str
    right: str
    wrong: str


def make_pairs(root: Path | None, seed: int = 0) -> list[Pair]:
    """Make the pairs of all phenomena.

    Args:
        root: data root; None: of the embedded sample alone.
        seed: of the choice of sentences.

    Raises:
        DataError: a file is missing.
    """
    made: dict[str, dict[str, list[Pair]]] = {phenomenon.name: {} for phenomenon in PHENOMENA}
    for name, source in SOURCES.items():
        if source.path and root is None:
            continue
        path = (root or Path()) / source.path if source.path else SAMPLE_ROOT / "news.jsonl"
        sentences = list(dict.fromkeys(_sentences(path)))
        random.Random(seed).shuffle(sentences)  # noqa: S311 - no secrets
        for phenomenon in PHENOMENA:
            waiting = made[phenomenon.name].setdefault(name, [])
            for sentence in sentences:
                if len(waiting) == PER_PHENOMENON:
                    break
                wrong = phenomenon.make(sentence)
                if wrong is not None and wrong != sentence:
                    waiting.append(Pair(phenomenon.name, name, sentence, wrong))
    return [pair for by_source in made.values() for pair in _in_turn(list(by_source.values()))]


def _sentences(path: Path) -> Iterator[str]:
    for number, document in enumerate(read_documents(path, rejected=[])):
        if number == MAX_DOCUMENTS:
            return
        for sentence in split_article(document.text):
            if SHORTEST <= len(sentence.text) <= LONGEST and PLAIN.fullmatch(sentence.text):
                yield sentence.text


def _in_turn(queues: Sequence[list[Pair]]) -> list[Pair]:
    """Take pairs from each source in turn, so that no source has them all."""
    taken: list[Pair] = []
    for k in range(PER_PHENOMENON):
        for queue in queues:
            if k < len(queue) and len(taken) < PER_PHENOMENON:
                taken.append(queue[k])
    return taken


def wins(right: float, wrong: float) -> float:
    """Return 1 if the right sentence is likelier, ½ if both are equal, else 0."""
    return 1.0 if right > wrong else 0.5 if right == wrong else 0.0
