"""Syllables and their parts: final consonants, and neighbours on the keyboard."""

from collections.abc import Iterator

FIRST, LAST = 0xAC00, 0xD7A3
LEADS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
FINALS = ("", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ")
FINAL_JAMO = 0x11A7
"""The code point before the first conjoining final consonant."""


def is_syllable(letter: str) -> bool:
    """Whether a character is a composed syllable."""
    return len(letter) == 1 and FIRST <= ord(letter) <= LAST


def parts(syllable: str) -> tuple[int, int, int]:
    """Return the numbers of lead, vowel and final consonant (0: none)."""
    code = ord(syllable) - FIRST
    return code // 588, code // 28 % 21, code % 28


def compose(lead: int, vowel: int, final: int) -> str:
    """Return the syllable of these parts."""
    return chr(FIRST + lead * 588 + vowel * 28 + final)


def final_of(letter: str) -> int:
    """Return the number of the final consonant; 0 if there is none, -1 if it is no syllable."""
    return parts(letter)[2] if is_syllable(letter) else -1


def with_final(text: str, final: int) -> str:
    """Return TEXT whose last syllable has another final consonant."""
    lead, vowel, _ = parts(text[-1])
    return text[:-1] + compose(lead, vowel, final)


def with_finals(final: int) -> Iterator[str]:
    """Yield all syllables with a final consonant."""
    return (chr(code) for code in range(FIRST + final, LAST + 1, 28))
