"""How people write around a filter: blanks, jamo, numerals, emoji and repetitions inside words.

Comments are disguised with these for training, and to measure what a model still finds.
"""

import random
from collections.abc import Callable, Mapping

from downstream.moderate.normalization import SOUNDS, is_syllable, jamo_of

EMOJI = "😀🔥💩🤡👍★♥・"
DIGIT_OF = {sound: digit for digit, sound in SOUNDS.items()} | {"발": "8", "공": "0"}
SHARE = 0.5
"""Share of the words of at least two syllables that are disguised, at least one."""


def _blanks(word: str, draw: random.Random) -> str:
    return draw.choice((" ", ".", "\u200b", "-")).join(word)


def _jamo(word: str, draw: random.Random) -> str:
    chosen = draw.randrange(len(word))
    is_whole = draw.random() < 0.5
    return "".join(
        "".join(jamo_of(c)) if is_syllable(c) and (is_whole or k == chosen) else c for k, c in enumerate(word)
    )


def _numerals(word: str, draw: random.Random) -> str:
    sounding = [k for k, c in enumerate(word) if c in DIGIT_OF]
    if sounding:
        k = draw.choice(sounding)
        return word[:k] + DIGIT_OF[word[k]] + word[k + 1 :]
    k = draw.randrange(1, len(word))
    return word[:k] + draw.choice("123456789") + word[k:]


def _emoji(word: str, draw: random.Random) -> str:
    k = draw.randrange(1, len(word))
    return word[:k] + draw.choice(EMOJI) * draw.choice((1, 1, 2)) + word[k:]


def _repeated(word: str, draw: random.Random) -> str:
    k = draw.randrange(len(word))
    return word[:k] + word[k] * draw.randrange(2, 5) + word[k + 1 :]


DISGUISES: Mapping[str, Callable[[str, random.Random], str]] = {
    "blanks": _blanks,
    "jamo": _jamo,
    "numerals": _numerals,
    "emoji": _emoji,
    "repeated": _repeated,
}
"""Name → what it does to a word of at least two syllables."""


def disguise(text: str, kind: str, draw: random.Random) -> str:
    """Return a text with half of its words disguised.

    Args:
        text: a comment; its blanks become single ones.
        kind: a key of `DISGUISES`.
        draw: source of randomness.
    """
    words = text.split()
    able = [k for k, word in enumerate(words) if sum(map(is_syllable, word)) > 1]
    chosen = set(draw.sample(able, max(1, round(SHARE * len(able))))) if able else set()
    return " ".join(DISGUISES[kind](word, draw) if k in chosen else word for k, word in enumerate(words))
