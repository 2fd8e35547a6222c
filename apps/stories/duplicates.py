"""Near-duplicates: articles that print the same text, and not those that state something else in the same words.

A text is compared without what newsrooms put around it: heads such as [속보] and revision marks of titles
(`apps.stories.articles.clean_title`), datelines, bylines, copyright lines and the like of bodies
(`corpora.boilerplate`). Then two rules hold.

* *Short texts*, titles above all. Pairs come from two sources. MinHash (`corpora.near_duplicates`) finds texts whose
  sets of 5 letters in a row have a Jaccard index of at least 0.8. Neighbours in the space of stories
  (`apps.stories.space`) with a high cosine add texts that were reordered or shortened. A guard then checks each pair as
  an editor would: the texts must not differ in a number, a name or a negation, no word may replace another, and their
  heads must not name two topics.
* *Bodies*: the Jaccard index of the sets, or the share of the smaller set that the larger one contains, is high. A word
  may be replaced and a sentence may be missing; most numbers must agree, because reports in a fixed wording differ in
  numbers alone.

A group has one representative, and every member is a duplicate of it. Connected components would be larger, but the
ends of a chain of small changes need not be duplicates.

>>> find_duplicates(["금리 3.5% 동결", "[속보] 금리, 3.5% 동결", "금리 4.5% 동결"])
[DuplicateGroup(representative=0, members=(0, 1))]
"""

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from apps.stories.articles import clean_title, topic_heads
from apps.stories.grouping import Points, nearest
from apps.stories.keywords import kiwi
from corpora.boilerplate import segments_of
from corpora.characters import as_texts, nfc
from corpora.foundation.config import Config
from corpora.near_duplicates import overlapping_pairs, similar_pairs

NEIGHBOURS = 8
CONTENT_SEGMENTS = frozenset({"", "heading", "list", "question"})
"""Kinds of segments of a body that are compared (`corpora.boilerplate`)."""
SHARED_NUMBERS = 0.6
"""Of two bodies with numbers: least share of the smaller collection that occurs in the other."""
NUMBER = re.compile(r"(?<![\w.])[-−](?=\d)|\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?")
POINT = re.compile(r"(?<=\d)[.](?=\d)")
# Numerals before a noun; Kiwi tags them like any other determiner, such as 새 and 전.
NUMERALS = re.compile("한|두|세|석|서|네|넉|너|닷|엿|다섯|여섯|일곱|여덟|아홉|열|스무|첫|(?:첫|둘|셋|넷)째|양|온")
# Whatever their tag: 안 (inside) and 못 (nail) count as negations, too, which only gives fewer copies.
NEGATION = re.compile(r"(?<!\S)[안못](?!\S)|없|않|아니|못(?=하|해|한|할|했)")
NEGATING_PREFIX = frozenset("불부비미무반탈역몰")
LONGEST_DIFFERENCE = 5000
"""Letters between the common beginning and end of two texts; with more they count as different."""
NAMES = frozenset({"NNP", "SL", "SH"})
CONTENT = NAMES | {"NNG", "XR", "VV", "VA", "MAG", "NR"}


class DuplicateConfig(Config):
    """Thresholds of near-duplicates."""

    shingle: int = Field(default=5, ge=1)
    """Letters of a shingle."""
    min_jaccard: float = Field(default=0.8, gt=0, le=1)
    min_cosine: float = Field(default=0.85, gt=0, le=1)
    """Lowest cosine of neighbours in the space of stories whose Jaccard index is at least `least_jaccard`."""
    least_jaccard: float = Field(default=0.4, ge=0, le=1)
    body_letters: int = Field(default=120, ge=1)
    """Letters from which on a text is a body; it is compared with texts of at least half as many."""
    body_jaccard: float = Field(default=0.7, gt=0, le=1)
    body_containment: float = Field(default=0.85, gt=0, le=1)
    """Least share of the shingles of the smaller body that the larger one contains."""
    least_size: float = Field(default=0.3, gt=0, le=1)
    """Least shingles of a contained body, as a share of the larger one's."""


@dataclass(frozen=True)
class DuplicateGroup:
    """Texts that are near-duplicates of one of them."""

    representative: int
    members: tuple[int, ...]
    """Indices, the representative's first, then in order."""


def find_duplicates(
    texts: Sequence[str], points: Points | None = None, config: DuplicateConfig | None = None
) -> list[DuplicateGroup]:
    """Find groups of near-duplicates.

    Args:
        texts: titles or bodies; those without a letter or digit are in no group.
        points: (N, P) unit vectors of the texts, zeros for texts without one; default: compare letters alone.
        config: thresholds.

    Returns:
        Groups of two or more, the largest first. They do not depend on the order of the texts.

    Raises:
        ValueError: TEXTS is one string, or an element is no string.
    """
    config = config or DuplicateConfig()
    positions: dict[str, list[int]] = {}
    for index, text in enumerate(as_texts(texts)):
        squeezed = "\n".join(" ".join(line.split()) for line in text.splitlines())
        if letters_of(squeezed):
            positions.setdefault(squeezed, []).append(index)
    distinct = sorted(positions, key=lambda text: (len(text), text))  # the plainest text represents
    compared = [compared_text(text, config.body_letters) for text in distinct]
    letters = [letters_of(text) for text in compared]
    accepted = _copied_bodies(compared, letters, config)
    short = [position for position, some in enumerate(letters) if len(some) < config.body_letters]
    pairs = similar_pairs([letters[k] for k in short], width=config.shingle, min_jaccard=config.min_jaccard)
    if points is not None and len(short) > 1:
        rows = [positions[distinct[k]][0] for k in short]
        pairs |= _near_pairs([compared[k] for k in short], points[rows], config)
    ordered = sorted((short[first], short[second]) for first, second in pairs)
    heads = {k: topic_heads(distinct[k]) for pair in ordered for k in pair}
    ordered = [(i, j) for i, j in ordered if not heads[i] or not heads[j] or heads[i] & heads[j]]
    accepted |= {pair for pair, same in zip(ordered, _have_same_facts(compared, ordered), strict=True) if same}
    groups = []
    for star in _stars(len(distinct), sorted(accepted), [len(positions[text]) for text in distinct]):
        first, *others = (positions[distinct[number]] for number in star)
        members = (first[0], *sorted([*first[1:], *(index for other in others for index in other)]))
        if len(members) > 1:
            groups.append(DuplicateGroup(first[0], members))
    return sorted(groups, key=lambda group: (-len(group.members), texts[group.representative]))


def compared_text(text: str, body_letters: int = DuplicateConfig().body_letters) -> str:
    """Return what is compared of a text: no dateline, byline, copyright line or the like, and no head of a title.

    A text that consists of these alone is compared as it is.
    """
    text = nfc(text)
    if "\n" in text or len(text) >= body_letters:
        content = [text[s.start : s.end] for s in segments_of(text) if s.kind in CONTENT_SEGMENTS]
        text = "\n".join(content) if letters_of("".join(content)) else text
    if len(letters_of(text)) >= body_letters:
        return text
    bare = clean_title(text)
    return bare if letters_of(bare) else text


def _copied_bodies(texts: Sequence[str], letters: Sequence[str], config: DuplicateConfig) -> set[tuple[int, int]]:
    """Return the pairs of bodies that are copies."""
    long = [position for position, some in enumerate(letters) if 2 * len(some) >= config.body_letters]
    found = overlapping_pairs(
        [letters[k] for k in long],
        width=config.shingle,
        min_jaccard=config.body_jaccard,
        min_containment=config.body_containment,
        least_size=config.least_size,
    )
    pairs = [(long[i], long[j]) for i, j in found]
    pairs = [(i, j) for i, j in pairs if max(len(letters[i]), len(letters[j])) >= config.body_letters]
    numbers = {k: _numbers(texts[k]) for pair in pairs for k in pair}
    return {(i, j) for i, j in pairs if _share_numbers(numbers[i], numbers[j])}


def _numbers(text: str) -> Counter[str]:
    return Counter(found[0].replace(",", "") for found in NUMBER.finditer(text))


def _share_numbers(ours: Counter[str], theirs: Counter[str]) -> bool:
    fewer = min(ours.total(), theirs.total())
    return (ours & theirs).total() >= SHARED_NUMBERS * fewer


def letters_of(text: str) -> str:
    """Return the letters and digits of a text as they are compared; a decimal point is kept as U+0000."""
    folded = POINT.sub("\0", unicodedata.normalize("NFKC", text).casefold())
    return "".join(letter for letter in folded if letter.isalnum() or letter == "\0")


def shingles_of(text: str, size: int) -> frozenset[str]:
    """Return the runs of SIZE letters; a shorter text is one by itself."""
    letters = letters_of(text)
    return frozenset(letters[start : start + size] for start in range(max(1, len(letters) - size + 1)))


def jaccard(ours: frozenset[str], theirs: frozenset[str]) -> float:
    """Return the Jaccard index of two sets."""
    shared = len(ours & theirs)
    return shared / (len(ours) + len(theirs) - shared)


def _near_pairs(texts: Sequence[str], points: Points, config: DuplicateConfig) -> set[tuple[int, int]]:
    indices, cosines = nearest(points, min(NEIGHBOURS, len(texts) - 1))
    pairs = set()
    for position, column in np.argwhere(cosines >= config.min_cosine).tolist():
        first, second = sorted((position, int(indices[position, column])))
        ours, theirs = shingles_of(texts[first], config.shingle), shingles_of(texts[second], config.shingle)
        if jaccard(ours, theirs) >= config.least_jaccard:
            pairs.add((first, second))
    return pairs


def _stars(size: int, pairs: Iterable[tuple[int, int]], weights: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups whose members are all paired with the first, which is the text with the most copies."""
    neighbours: list[list[int]] = [[] for _ in range(size)]
    for first, second in pairs:
        neighbours[first].append(second)
        neighbours[second].append(first)
    reach = [weights[position] + sum(weights[other] for other in neighbours[position]) for position in range(size)]
    taken = [False] * size
    for position in sorted(range(size), key=lambda k: (-reach[k], -weights[k], k)):
        if not taken[position]:
            star = [position, *(other for other in neighbours[position] if not taken[other])]
            for member in star:
                taken[member] = True
            yield star


# ---- the guard ----


def _have_same_facts(texts: Sequence[str], pairs: Sequence[tuple[int, int]]) -> Iterator[bool]:
    needed = sorted({position for pair in pairs for position in pair})
    facts = {
        position: Facts.from_tokens(texts[position], tokens)
        for position, tokens in zip(needed, kiwi().tokenize([texts[position] for position in needed]), strict=True)
    }
    return (facts[first].agree(facts[second]) for first, second in pairs)


def have_same_facts(first: str, second: str) -> bool:
    """Whether two similar texts state the same facts; see `Facts.agree`."""
    return all(_have_same_facts([first, second], [(0, 1)]))


@dataclass(frozen=True)
class Facts:
    """The parts of a text in which near-duplicates must agree."""

    letters: str
    numbers: str
    """Figures without thousands separators, and numerals, in the order of the text."""
    negations: tuple[str, ...]
    """In the order of the text, then prefixes such as 비 in 비공개."""
    names: tuple[str, ...]
    """Proper nouns, Latin and Hanja words in the order of the text."""
    words: Counter[str]
    """Nouns, verbs, adjectives and adverbs."""

    @classmethod
    def from_tokens(cls, text: str, tokens: Sequence[Any]) -> "Facts":
        """Collect the facts of a text from its morphemes."""
        forms = [(token.form.casefold(), token.tag.partition("-")[0]) for token in tokens]
        figures = [(found.start(), found[0].replace(",", "").replace("−", "-")) for found in NUMBER.finditer(text)]
        numerals = [
            (token.start, form)
            for token, (form, tag) in zip(tokens, forms, strict=True)
            if tag == "NR" or (tag == "MM" and NUMERALS.fullmatch(form))
        ]
        return cls(
            letters=letters_of(text),
            # Only figures are separated: Kiwi reads 7천억 as one numeral and 7천 억 as two.
            numbers=re.sub(r"\|(?!-?\d)", "", "|".join(number for _, number in sorted(figures + numerals))),
            negations=tuple(NEGATION.findall(text) + [f for f, tag in forms if tag == "XPN" and f in NEGATING_PREFIX]),
            names=tuple(form for form, tag in forms if tag in NAMES),
            words=Counter(form for form, tag in forms if tag in CONTENT),
        )

    def agree(self, other: "Facts") -> bool:
        """Whether the texts differ in no number, name or negation, and no word replaces another."""
        if self.numbers != other.numbers or self.negations != other.negations:
            return False
        ours, theirs = self.words_beyond(other), other.words_beyond(self)
        if (ours and theirs) or any(word in self.names + other.names for word in ours + theirs):
            return False
        shared = set(self.names) & set(other.names)
        if [name for name in self.names if name in shared] != [name for name in other.names if name in shared]:
            return False
        return not _replaces_letters(self.letters, other.letters)

    def words_beyond(self, other: "Facts") -> list[str]:
        """Return the words that the other text lacks even as letters: Kiwi may split the same letters differently."""
        words = self.words - other.words
        return [word for word in words if self.count(word) > other.count(word)]

    def count(self, word: str) -> int:
        """Return how often the letters of a word occur."""
        return self.letters.count(letters_of(word))


def _replaces_letters(ours: str, theirs: str) -> bool:
    """Whether two or more letters replace two or more others, as in a name that Kiwi does not know.

    A single letter may, as in the particles 은 and 이.
    """
    start = _num_shared(ours, theirs)
    ours, theirs = ours[start:], theirs[start:]
    end = _num_shared(ours[::-1], theirs[::-1])
    ours, theirs = ours[: len(ours) - end], theirs[: len(theirs) - end]
    if max(len(ours), len(theirs)) > LONGEST_DIFFERENCE:
        return True
    changes = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    return any(kind == "replace" and min(a2 - a1, b2 - b1) > 1 for kind, a1, a2, b1, b2 in changes)


def _num_shared(ours: str, theirs: str) -> int:
    """Return the length of the common beginning of two texts."""
    shorter = min(len(ours), len(theirs))
    return next((position for position in range(shorter) if ours[position] != theirs[position]), shorter)
