"""The Korean keyboard: the keys of a syllable, the text that keys compose, and typing mistakes.

The layout is the 2-set one (두벌식, KS X 5002). Keys are written as the jamo on them; a sequence of keys is composed as
by an input method, so that a mistake can change neighbouring syllables.
"""

import functools
import re
from collections.abc import Mapping

INITIALS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
MEDIALS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
FINALS = ("", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ")
"""Jamo in the order in which Unicode counts syllables from U+AC00."""

MEDIALS_OF_TWO_KEYS = {"ㅗㅏ": "ㅘ", "ㅗㅐ": "ㅙ", "ㅗㅣ": "ㅚ", "ㅜㅓ": "ㅝ", "ㅜㅔ": "ㅞ", "ㅜㅣ": "ㅟ", "ㅡㅣ": "ㅢ"}
FINALS_OF_TWO_KEYS = {
    "ㄱㅅ": "ㄳ", "ㄴㅈ": "ㄵ", "ㄴㅎ": "ㄶ", "ㄹㄱ": "ㄺ", "ㄹㅁ": "ㄻ", "ㄹㅂ": "ㄼ",
    "ㄹㅅ": "ㄽ", "ㄹㅌ": "ㄾ", "ㄹㅍ": "ㄿ", "ㄹㅎ": "ㅀ", "ㅂㅅ": "ㅄ",
}  # fmt: skip
_OF_TWO_KEYS = MEDIALS_OF_TWO_KEYS | FINALS_OF_TWO_KEYS
_KEYS_OF = {jamo: keys for keys, jamo in _OF_TWO_KEYS.items()}

KEYBOARD = ("ㅂㅈㄷㄱㅅㅛㅕㅑㅐㅔ", "ㅁㄴㅇㄹㅎㅗㅓㅏㅣ", "ㅋㅌㅊㅍㅠㅜㅡ")
"""The 2-set keyboard (두벌식, KS X 5002) without shift: the keys q–p, a–l, z–m."""
SHIFTED = {"ㅂ": "ㅃ", "ㅈ": "ㅉ", "ㄷ": "ㄸ", "ㄱ": "ㄲ", "ㅅ": "ㅆ", "ㅐ": "ㅒ", "ㅔ": "ㅖ"}
"""Key → its jamo with shift, if that is another one."""
ROW_OFFSETS = (0.0, 0.25, 0.75)
"""Horizontal offset of each row, in keys."""
NEIGHBOUR_DISTANCE = 1.3
"""Between the centres of keys that touch, in keys: 1 in a row, at most 1.25 across rows; the next key is 1.6 away."""

MISTAKES = ("neighbour",) * 7 + ("dropped", "doubled", "transposed")
"""Typing mistakes, each with a probability of a tenth: an assumption, not a measurement."""


def _neighbours() -> dict[str, tuple[str, ...]]:
    """Return the keys pressed instead of each key: adjacent ones with the same shift, or itself with shift changed."""
    centres = {
        jamo: complex(column + offset, row)
        for row, (keys, offset) in enumerate(zip(KEYBOARD, ROW_OFFSETS, strict=True))
        for column, jamo in enumerate(keys)
    }
    plain = {a: [b for b in centres if a != b and abs(centres[a] - centres[b]) < NEIGHBOUR_DISTANCE] for a in centres}
    shifted = {SHIFTED[a]: [SHIFTED[b] for b in plain[a] if b in SHIFTED] + [a] for a in SHIFTED}
    both = {a: plain[a] + ([SHIFTED[a]] if a in SHIFTED else []) for a in plain} | shifted
    return {jamo: tuple(sorted(near)) for jamo, near in both.items()}


NEIGHBOURS = _neighbours()

_TWO_MEDIALS, _TWO_FINALS = "|".join(MEDIALS_OF_TWO_KEYS), "|".join(FINALS_OF_TWO_KEYS)
_ONE_FINAL = "".join(final for final in FINALS if final and final not in _KEYS_OF)
# The automaton of the keyboard: a consonant before a vowel begins the next syllable.
_COMPOSED = re.compile(
    rf"([ㄱ-ㅎ])({_TWO_MEDIALS}|[ㅏ-ㅣ])((?:{_TWO_FINALS}|[{_ONE_FINAL}])(?![ㅏ-ㅣ]))?|{_TWO_MEDIALS}|."
)
_HANGUL_RUN = re.compile("[가-힣]+")


def type_keys(syllable: str) -> str:
    """Return the keys of the 2-set keyboard that type a syllable, as the jamo on them.

    >>> type_keys("값"), type_keys("꿔")
    ('ㄱㅏㅂㅅ', 'ㄲㅜㅓ')

    Args:
        syllable: one composed syllable, U+AC00 to U+D7A3.

    Raises:
        ValueError: it is not.
    """
    if not (len(syllable) == 1 and "가" <= syllable <= "힣"):
        raise ValueError(f"'{syllable}' is not one composed Hangul syllable")
    initial, rest = divmod(ord(syllable) - ord("가"), len(MEDIALS) * len(FINALS))
    medial, final = divmod(rest, len(FINALS))
    jamo = (INITIALS[initial], MEDIALS[medial], FINALS[final])
    return "".join(_KEYS_OF.get(one, one) for one in jamo)


def compose_keys(keys: str) -> str:
    """Return the text that KEYS compose on the 2-set keyboard: syllables, and single jamo where none can be formed.

    The keys of a run of syllables compose that run.

    >>> compose_keys("ㅇㅏㄴㄴㅕㅇ"), compose_keys("ㅇㄴㅏㄴㅕㅇ")
    ('안녕', 'ㅇ나녕')

    Args:
        keys: jamo as on the keys, `KEYBOARD` and `SHIFTED`.
    """

    def compose(match: re.Match[str]) -> str:
        initial, medial, final = match.groups()
        if initial is None:
            return _OF_TWO_KEYS.get(match.group(), match.group())
        index = INITIALS.index(initial) * len(MEDIALS) + MEDIALS.index(_OF_TWO_KEYS.get(medial, medial))
        return chr(ord("가") + index * len(FINALS) + FINALS.index(_OF_TWO_KEYS.get(final, final or "")))

    return _COMPOSED.sub(compose, keys)


@functools.cache
def mistypings(syllable: str) -> dict[str, tuple[str, ...]]:
    """Return for each kind of mistake the keys that are pressed when SYLLABLE is typed with one such mistake.

    Raises:
        ValueError: SYLLABLE is not one composed syllable.
    """
    keys = type_keys(syllable)
    positions = range(len(keys))
    return {
        "neighbour": tuple(keys[:k] + near + keys[k + 1 :] for k in positions for near in NEIGHBOURS[keys[k]]),
        "dropped": tuple(keys[:k] + keys[k + 1 :] for k in positions),
        "doubled": tuple(keys[: k + 1] + keys[k:] for k in positions),
        "transposed": tuple(keys[:k] + keys[k + 1] + keys[k] + keys[k + 2 :] for k in positions[1:] for k in [k - 1]),
    }


def _mistype(syllable: str, draw: float) -> str:
    """Return the keys of one mistake; DRAW in [0, 1) chooses its kind, then one of that kind evenly."""
    kind, rest = divmod(draw * len(MISTAKES), 1)
    options = mistypings(syllable)[MISTAKES[int(kind)]]
    return options[int(rest * len(options))]


def syllable_positions(text: str) -> list[int]:
    """Return the offsets of the composed syllables of a text."""
    return [position for position, character in enumerate(text) if "가" <= character <= "힣"]


def mistype_syllables(text: str, struck: Mapping[int, float]) -> str:
    """Type the runs of syllables again, with one mistake in each chosen syllable."""

    def retype(run: re.Match[str]) -> str:
        draws = [struck.get(position) for position in range(run.start(), run.end())]
        keys = (
            type_keys(syllable) if draw is None else _mistype(syllable, draw)
            for syllable, draw in zip(run.group(), draws, strict=True)
        )
        return compose_keys("".join(keys))

    return _HANGUL_RUN.sub(retype, text)
