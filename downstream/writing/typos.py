"""Slips of the key and wrong particles: an unknown eojeol that one change of a letter makes a common one.

Candidates are the neighbours on the keyboard, letters that sound alike, letters left out or doubled, and the other form
of a particle. They are ranked in the context by the morphological analyzer's language model: what is shown reads better
than what was written by a wide margin.

Source: the noisy channel model, Kernighan, Church and Gale 1990.
"""

import math
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from downstream.writing.edits import Edit, Kind
from downstream.writing.hangul import FINALS, LEADS, VOWELS, compose, final_of, parts
from downstream.writing.lexicon import Lexicon
from downstream.writing.morphemes import Morpheme, score

WORD = re.compile(r"(?:(?<=[\s\"'“‘(])|^)[가-힣]{2,10}(?=[\s.,!?…”’\"']|$)", re.MULTILINE)
CONTEXT = 30
"""Characters before and behind an eojeol that are read with it."""
MAX_RANKED = 4
"""Candidates that are ranked in the context."""
KEYS = {
    "ㅂ": "ㅈㅁㅃㅍ",
    "ㅈ": "ㅂㄷㄴㅉㅊ",
    "ㄷ": "ㅈㄱㅇㄸㅌ",
    "ㄱ": "ㄷㅅㄹㄲㅋ",
    "ㅅ": "ㄱㅎㅆ",
    "ㅁ": "ㅂㄴㅋ",
    "ㄴ": "ㅁㅇㅈㅌ",
    "ㅇ": "ㄴㄹㄷㅊ",
    "ㄹ": "ㅇㅎㄱㅍ",
    "ㅎ": "ㄹㅅ",
    "ㅋ": "ㅁㅌㄱ",
    "ㅌ": "ㅋㅊㄴㄷ",
    "ㅊ": "ㅌㅍㅇㅈ",
    "ㅍ": "ㅊㄹㅂ",
    "ㅃ": "ㅂ",
    "ㅉ": "ㅈ",
    "ㄸ": "ㄷ",
    "ㄲ": "ㄱ",
    "ㅆ": "ㅅ",
    "ㅛ": "ㅕㅗ",
    "ㅕ": "ㅛㅑㅓ",
    "ㅑ": "ㅕㅐㅏ",
    "ㅐ": "ㅑㅔㅣㅒ",
    "ㅔ": "ㅐㅖ",
    "ㅒ": "ㅐ",
    "ㅖ": "ㅔ",
    "ㅗ": "ㅓㅛㅠㅜ",
    "ㅓ": "ㅗㅏㅕㅜ",
    "ㅏ": "ㅓㅣㅑㅡ",
    "ㅣ": "ㅏㅐㅢㅟ",
    "ㅠ": "ㅜㅗ",
    "ㅜ": "ㅠㅡㅓㅗ",
    "ㅡ": "ㅜㅏㅢ",
    "ㅢ": "ㅡㅣㅔ",
    "ㅚ": "ㅙㅞ",
    "ㅙ": "ㅚㅞ",
    "ㅞ": "ㅚㅙ",
    "ㅟ": "ㅣㅢ",
    "ㅘ": "ㅗㅏ",
    "ㅝ": "ㅓㅜ",
}
"""Neighbours on the Korean keyboard, and letters that sound alike."""
FINAL_SLIPS = {
    "": "ㄴㄹㅇㅁㅆㅂㄱㅅㅎ",
    "ㅅ": "ㅆㄷㅈㄱㅎ",
    "ㅆ": "ㅅㄱ",
    "ㄷ": "ㅅㅈㅌㄱㅇ",
    "ㅈ": "ㅅㅊㄷ",
    "ㅊ": "ㅈㅅ",
    "ㅌ": "ㅅㄷㅊ",
    "ㅎ": "ㅅㄶㅀ",
    "ㄴ": "ㄵㄶㅇㅁ",
    "ㄶ": "ㄴㅎ",
    "ㄵ": "ㄴ",
    "ㄱ": "ㄲㅋㄹㅅㄷ",
    "ㄲ": "ㄱㅋ",
    "ㄹ": "ㅀㄼㄺㅇㄱㅎ",
    "ㅂ": "ㅍㅄㅈㅁ",
    "ㅍ": "ㅂ",
    "ㅁ": "ㄻㄴㅂ",
    "ㅄ": "ㅂ",
    "ㅇ": "ㄴㄹㄷ",
    "ㅀ": "ㄹ",
    "ㄼ": "ㄹ",
    "ㄺ": "ㄱㄹ",
}
TITLE = re.compile(
    r"\s(?:교수|씨|의원|대표|감독|선수|기자|박사|작가|회장|사장|장관|대통령|총리|위원장|시장|군수|양|군|모)(?![가-힣]{3})"
)
"""Stands behind a name."""
NEIGHBOUR_BEFORE, NEIGHBOUR_BEHIND = re.compile(r"([가-힣]{2,}) $"), re.compile(r" ([가-힣]{2,})")
"""The eojeol beside another."""
PARTICLES = {"을": "를", "를": "을", "은": "는", "는": "은", "이": "가", "가": "이", "과": "와", "와": "과"}
NEEDS_FINAL = frozenset("을은이과")
REASONS = {"spelling": "글자를 잘못 친 것으로 보입니다.", "grammar": "앞말의 받침에 맞는 조사를 씁니다."}


@dataclass(frozen=True)
class TypoLimits:
    """When an unknown eojeol is a slip."""

    fewest: int = 3
    """Occurrences of what it should be, in edited text."""
    gain: float = 7.0
    """Logarithms by which the context must read better."""
    gain_particle: float = 4.5


def typo_edits(
    text: str, sentences: Sequence[Sequence[Morpheme]], lexicon: Lexicon, limits: TypoLimits
) -> Iterator[Edit]:
    """Yield slips of the key and wrong particles.

    Args:
        text: in composed form.
        sentences: its morphemes.
        lexicon: of edited text.
        limits: when something is one.
    """
    words = list(WORD.finditer(text))
    if not words:
        return
    counts = lexicon.count(word.group() for word in words).tolist()
    unknown = {at for morphemes in sentences for m in morphemes if not m.is_known for at in range(m.start, m.end)}
    # 먹는, 먹은: not the particle of a noun.
    endings = {m.end for morphemes in sentences for m in morphemes if m.tag == "ETM"}
    for word, count in zip(words, counts, strict=True):
        if count:
            continue
        particle = None if word.end() in endings else swapped_particle(word.group())
        is_suspect = not unknown.isdisjoint(range(word.start(), word.end()))
        slips = [*(candidates(word.group()) if is_suspect else ()), *([particle] if particle else [])]
        if not slips or TITLE.match(text, word.end()):
            continue
        if slips != [particle] and _is_name(text, word.start(), word.end(), unknown):
            slips = [particle] if particle else []
        found = [(int(known), slip) for known, slip in zip(lexicon.count(slips).tolist(), slips, strict=True) if known]
        found = [(known, slip) for known, slip in found if known >= (1 if slip == particle else limits.fewest)]
        if not found:
            continue
        found.sort(reverse=True)
        chosen = found[:MAX_RANKED]
        before, behind = _context(text, word.start(), word.end())
        written, *scores = score([before + w + behind for w in (word.group(), *(slip for _, slip in chosen))])
        ranked = sorted(
            ((s - written + 0.3 * math.log(known), slip) for s, (known, slip) in zip(scores, chosen, strict=True)),
            reverse=True,
        )
        gain, best = ranked[0]
        kind: Kind = "grammar" if best == particle else "spelling"
        if gain > (limits.gain_particle if best == particle else limits.gain):
            confidence = 1 / (1 + math.exp(-(gain - 3)))
            others = tuple(slip for other, slip in ranked[1:] if other > 0)
            yield Edit(word.start(), word.end(), best, kind, REASONS[kind], confidence, others)


def _is_name(text: str, start: int, end: int, unknown: Set[int]) -> bool:
    """Return whether an unknown eojeol is a name rather than a slip: it recurs, or an unknown one stands beside it."""
    stem = text[start : max(start + 2, end - 1)]
    if len(re.findall(rf"(?<![가-힣]){stem}", text)) > 1:
        return True
    before = NEIGHBOUR_BEFORE.search(text, max(0, start - CONTEXT), start)
    behind = NEIGHBOUR_BEHIND.match(text, end)
    return any(found is not None and not unknown.isdisjoint(range(*found.span(1))) for found in (before, behind))


def _context(text: str, start: int, end: int) -> tuple[str, str]:
    before = text[max(0, start - CONTEXT) : start].rsplit("\n", 1)[-1]
    behind = text[end : end + CONTEXT].split("\n", 1)[0]
    if start > CONTEXT:
        before = before.partition(" ")[2] or before
    return before, behind


def swapped_particle(word: str) -> str | None:
    """Return an eojeol with the other form of its particle, where the form that stands there is wrong."""
    if len(word) < 2 or word[-1] not in PARTICLES:
        return None
    has_final = final_of(word[-2]) > 0
    return None if has_final == (word[-1] in NEEDS_FINAL) else word[:-1] + PARTICLES[word[-1]]


def candidates(word: str) -> list[str]:
    """Return what may have been meant by an eojeol: one letter changed, left out or doubled."""
    found: dict[str, None] = {}
    for at, syllable in enumerate(word):
        lead, vowel, final = parts(syllable)
        changed = [compose(LEADS.index(jamo), vowel, final) for jamo in KEYS.get(LEADS[lead], "") if jamo in LEADS]
        changed += [compose(lead, VOWELS.index(jamo), final) for jamo in KEYS.get(VOWELS[vowel], "") if jamo in VOWELS]
        changed += [compose(lead, vowel, FINALS.index(jamo)) for jamo in FINAL_SLIPS.get(FINALS[final], "")]
        if final:
            changed.append(compose(lead, vowel, 0))
        for other in changed:
            found[word[:at] + other + word[at + 1 :]] = None
        if at + 1 < len(word):
            found[word[:at] + word[at + 1] + syllable + word[at + 2 :]] = None
            if word[at + 1] == syllable:
                found[word[:at] + word[at + 1 :]] = None
    found.pop(word, None)
    return list(found)
