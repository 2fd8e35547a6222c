"""Near-duplicates: articles that print one text, told from articles that say something else in the same words.

Pairs come from two sources. MinHash with banding (Broder 1997) finds texts whose sets of 5 letters in a row have a
Jaccard index of at least 0.8; with 25 bands of 5 rows it misses one such pair in 20,000 on average. Neighbours in the
space of stories (`apps.stories.space`) whose cosine is high add texts that were put in another order or shortened. Then
a guard looks at each pair as an editor would: what differs must not be a number, a name or a negation, and no word may
stand in the place of another.

A group has one representative, and every member is a duplicate of it. Connected components would be larger, but in a
chain of small changes its ends need not be duplicates.

>>> find_duplicates(["금리 3.5% 동결", "금리, 3.5% 동결", "금리 4.5% 동결"])
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
from rensa import RMinHash, RMinHashLSH

from apps.stories.grouping import Points, nearest
from apps.stories.keywords import kiwi
from corpora.foundation.config import Config

BANDS, ROWS = 25, 5
"""A pair with Jaccard index s meets with probability 1 − (1 − s^ROWS)^BANDS: 0.99995 at 0.8."""
LSH_SEED = 42
NEIGHBOURS = 8
NUMBER = re.compile(r"(?<![\w.])[-−](?=\d)|\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?")
POINT = re.compile(r"(?<=\d)[.](?=\d)")
# Numerals before a noun; Kiwi tags them like any other word that stands there, such as 새 and 전.
NUMERALS = re.compile("한|두|세|석|서|네|넉|너|닷|엿|다섯|여섯|일곱|여덟|아홉|열|스무|첫|(?:첫|둘|셋|넷)째|양|온")
# Whatever Kiwi takes them for: a place inside (안) and what is nailed down (못) keep texts apart, too.
NEGATION = re.compile(r"(?<!\S)[안못](?!\S)|없|않|아니|못(?=하|해|한|할|했)")
NEGATING_PREFIX = frozenset("불부비미무반탈역몰")
LONGEST_DIFFERENCE = 5000
"""Letters between what two texts have in common at both ends; beyond, they count as different."""
NAMES = frozenset({"NNP", "SL", "SH"})
CONTENT = NAMES | {"NNG", "XR", "VV", "VA", "MAG", "NR"}


class DuplicateConfig(Config):
    """What counts as the same text."""

    shingle: int = Field(default=5, ge=1)
    """Letters in a row that are compared."""
    min_jaccard: float = Field(default=0.8, gt=0, le=1)
    min_cosine: float = Field(default=0.85, gt=0, le=1)
    """Of neighbours in the space of stories, if their Jaccard index reaches `least_jaccard`."""
    least_jaccard: float = Field(default=0.4, ge=0, le=1)


@dataclass(frozen=True)
class DuplicateGroup:
    """Texts that are one."""

    representative: int
    members: tuple[int, ...]
    """Indices, the representative's first, then in order."""


def find_duplicates(
    texts: Sequence[str], points: Points | None = None, config: DuplicateConfig | None = None
) -> list[DuplicateGroup]:
    """Find groups of texts that are copies of each other.

    Args:
        texts: titles or bodies; those without a letter or digit are copies of nothing.
        points: (N, P) unit vectors of the texts, zeros where there is none; default: compare letters alone.
        config: thresholds.

    Returns:
        Groups of two or more, the largest first. Their members do not depend on the order of the texts.
    """
    config = config or DuplicateConfig()
    places: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        squeezed = " ".join(unicodedata.normalize("NFC", text).split())
        if letters_of(squeezed):
            places.setdefault(squeezed, []).append(index)
    distinct = sorted(places)
    pairs = similar_pairs(distinct, config)
    if points is not None and len(distinct) > 1:
        pairs |= _near_pairs(distinct, points[[places[text][0] for text in distinct]], config)
    ordered = sorted(pairs)
    accepted = [pair for pair, same in zip(ordered, _say_the_same(distinct, ordered), strict=True) if same]
    groups = []
    for star in _stars(len(distinct), accepted, [len(places[text]) for text in distinct]):
        first, *others = (places[distinct[number]] for number in star)
        members = (first[0], *sorted([*first[1:], *(index for other in others for index in other)]))
        if len(members) > 1:
            groups.append(DuplicateGroup(first[0], members))
    return sorted(groups, key=lambda group: (-len(group.members), texts[group.representative]))


def letters_of(text: str) -> str:
    """Return the letters and digits of a text as they are compared, the point between digits among them."""
    folded = POINT.sub("\0", unicodedata.normalize("NFKC", text).casefold())
    return "".join(letter for letter in folded if letter.isalnum() or letter == "\0")


def shingles_of(text: str, size: int) -> frozenset[str]:
    """Return the sets of SIZE letters in a row; a shorter text is one by itself."""
    letters = letters_of(text)
    return frozenset(letters[start : start + size] for start in range(max(1, len(letters) - size + 1)))


def jaccard(ours: frozenset[str], theirs: frozenset[str]) -> float:
    """Return the share of all shingles that both have."""
    shared = len(ours & theirs)
    return shared / (len(ours) + len(theirs) - shared)


def similar_pairs(texts: Sequence[str], config: DuplicateConfig) -> set[tuple[int, int]]:
    """Return pairs of distinct texts whose Jaccard index is at least `min_jaccard`, the lower place first."""
    if len(texts) < 2:
        return set()
    shingles = [shingles_of(text, config.shingle) for text in texts]
    # A set has its elements in another order in every process, and MinHash does not care.
    tokens = [list(some) for some in shingles]
    lsh = RMinHashLSH(threshold=config.min_jaccard, num_perm=BANDS * ROWS, num_bands=BANDS)
    hashes = RMinHash.from_token_sets(tokens, BANDS * ROWS, LSH_SEED)
    lsh.insert_pairs(list(enumerate(hashes)))
    return {
        (place, other)
        for place, others in enumerate(lsh.query_all(hashes))
        for other in others
        if place < other and jaccard(shingles[place], shingles[other]) >= config.min_jaccard
    }


def _near_pairs(texts: Sequence[str], points: Points, config: DuplicateConfig) -> set[tuple[int, int]]:
    indices, cosines = nearest(points, min(NEIGHBOURS, len(texts) - 1))
    pairs = set()
    for place, column in np.argwhere(cosines >= config.min_cosine).tolist():
        first, second = sorted((place, int(indices[place, column])))
        ours, theirs = shingles_of(texts[first], config.shingle), shingles_of(texts[second], config.shingle)
        if jaccard(ours, theirs) >= config.least_jaccard:
            pairs.add((first, second))
    return pairs


def _stars(size: int, pairs: Iterable[tuple[int, int]], weights: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups whose members are all paired with the first; the text with most copies around it goes first."""
    neighbours: list[list[int]] = [[] for _ in range(size)]
    for first, second in pairs:
        neighbours[first].append(second)
        neighbours[second].append(first)
    reach = [weights[place] + sum(weights[other] for other in neighbours[place]) for place in range(size)]
    taken = [False] * size
    for place in sorted(range(size), key=lambda k: (-reach[k], -weights[k], k)):
        if not taken[place]:
            star = [place, *(other for other in neighbours[place] if not taken[other])]
            for member in star:
                taken[member] = True
            yield star


# ---- the guard ----


def _say_the_same(texts: Sequence[str], pairs: Sequence[tuple[int, int]]) -> Iterator[bool]:
    needed = sorted({place for pair in pairs for place in pair})
    facts = {
        place: Facts.of(texts[place], tokens)
        for place, tokens in zip(needed, kiwi().tokenize([texts[place] for place in needed]), strict=True)
    }
    return (facts[first].agree(facts[second]) for first, second in pairs)


def say_the_same(first: str, second: str) -> bool:
    """Whether two texts in nearly the same words tell the same: see `Facts.agree`."""
    return all(_say_the_same([first, second], [(0, 1)]))


@dataclass(frozen=True)
class Facts:
    """What of a text must not change."""

    letters: str
    numbers: str
    """Figures without thousands separators, and numerals, in the order of the text."""
    negations: tuple[str, ...]
    """In the order of the text; prefixes such as 비 in 비공개 behind the others."""
    names: tuple[str, ...]
    """Proper nouns, Latin and Hanja words in the order of the text."""
    words: Counter[str]
    """Nouns, verbs, adjectives and adverbs."""

    @classmethod
    def of(cls, text: str, tokens: Sequence[Any]) -> "Facts":
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
            # Only figures are kept apart: Kiwi takes 7천억 for one numeral and 7천 억 for two.
            numbers=re.sub(r"\|(?!-?\d)", "", "|".join(number for _, number in sorted(figures + numerals))),
            negations=tuple(NEGATION.findall(text) + [f for f, tag in forms if tag == "XPN" and f in NEGATING_PREFIX]),
            names=tuple(form for form, tag in forms if tag in NAMES),
            words=Counter(form for form, tag in forms if tag in CONTENT),
        )

    def agree(self, other: "Facts") -> bool:
        """Whether the texts differ in no number, name or negation, and by no word in the place of another."""
        if self.numbers != other.numbers or self.negations != other.negations:
            return False
        ours, theirs = self._words_beyond(other), other._words_beyond(self)
        if (ours and theirs) or any(word in self.names + other.names for word in ours + theirs):
            return False
        shared = set(self.names) & set(other.names)
        if [name for name in self.names if name in shared] != [name for name in other.names if name in shared]:
            return False
        return not _replaces_letters(self.letters, other.letters)

    def _words_beyond(self, other: "Facts") -> list[str]:
        """Return the words that the other text has not even as letters: Kiwi reads 코로나 19 in two ways."""
        words = self.words - other.words
        return [word for word in words if self._count(word) > other._count(word)]

    def _count(self, word: str) -> int:
        return self.letters.count(letters_of(word))


def _replaces_letters(ours: str, theirs: str) -> bool:
    """Whether two letters or more stand in the place of two or more others, as those of a name that Kiwi does not know.

    One letter may, as particles do: 은 and 이.
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
    """Return how many letters two texts have in common at the beginning."""
    shorter = min(len(ours), len(theirs))
    return next((place for place in range(shorter) if ours[place] != theirs[place]), shorter)
