"""Comments as a model reads them: what hides a word from a filter is removed, and every character keeps its origin.

    reading = read("시1발", is_read=False)
    reading.text                    # "시발"
    reading.origins[1]              # 2: the character of the comment that 발 comes from

Removed are invisible characters, combining marks, symbols and emoji inside words, digits inside words, repetitions of
a letter and lengthened vowels. Jamo are composed ("ㅅㅣㅂㅏㄹ"), words that were typed with the keyboard set to Latin
are read as Hangul ("tlqkf"), and runs of single syllables with blanks between them are joined. A digit inside a word
may stand for a syllable ("4람") or for nothing ("시1발"): `readings` returns both.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

INITIALS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
FINALS = ("", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ")
KEYS = dict(
    zip(
        "qwertasdfgzxcvyuiophjklbnm",
        "ㅂㅈㄷㄱㅅㅁㄴㅇㄹㅎㅋㅌㅊㅍㅛㅕㅑㅐㅔㅗㅓㅏㅣㅠㅜㅡ",
        strict=True,
    )
)
"""Latin key → jamo of the two-set keyboard."""
SOUNDS = dict(zip("0123456789", "영일이삼사오육칠팔구", strict=True))
CURSED = "시씨쓰ㅅㅆ"
"""Before an 8, which then sounds 발."""
COUNTERS = frozenset("년월일시분초개명위원번차층살세회등도호대권배억만천백조점강인전후부장편급쪽주곳건석척마척팀골승패")
"""A number before one of these is a number."""
LONGEST_KEPT = {True: 1, False: 2}
"""Whether a character is a syllable → how often it is kept in a row."""
BASE, LAST = ord("가"), ord("힣")
MAX_DIGITS = 3
"""Digits in a row that may hide inside a word."""


@dataclass(frozen=True)
class Character:
    """A character as it is read, and the part of the raw text that it comes from."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Reading:
    """A text as it is read."""

    characters: tuple[Character, ...]

    @property
    def text(self) -> str:
        """What is read."""
        return "".join(character.text for character in self.characters)

    @property
    def origins(self) -> list[int]:
        """Offset in the raw text of each character, in code points."""
        return [character.start for character in self.characters]


def is_syllable(character: str) -> bool:
    """Whether a character is a composed syllable of Hangul."""
    return "가" <= character <= "힣"


def is_hangul(character: str) -> bool:
    """Whether a character is a composed syllable or a single jamo."""
    return is_syllable(character) or "ㄱ" <= character <= "ㅣ"


def jamo_of(syllable: str) -> tuple[str, str, str]:
    """Return initial, vowel and final of a syllable; the final may be empty."""
    code = ord(syllable) - BASE
    return INITIALS[code // 588], VOWELS[code % 588 // 28], FINALS[code % 28]


def compose(initial: str, vowel: str, final: str = "") -> str:
    """Return the syllable of three jamo."""
    return chr(BASE + INITIALS.index(initial) * 588 + VOWELS.index(vowel) * 28 + FINALS.index(final))


def readings(text: str) -> tuple[Reading, ...]:
    """Return the ways to read a text: digits inside words left out, and read as syllables; one way if both agree."""
    without, spoken = read(text, is_read=False), read(text, is_read=True)
    return (without,) if without.text == spoken.text else (without, spoken)


def read(text: str, *, is_read: bool) -> Reading:
    """Read a text.

    Args:
        text: any string; unpaired surrogates count as symbols.
        is_read: whether a digit inside a word is read as the syllable that it sounds like, or left out.
    """
    characters = _without_hidden_digits(_within_words(list(_folded(text))), is_read=is_read)
    return Reading(tuple(_without_repetitions(_joined(_composed(_from_keyboard(characters))))))


def _folded(text: str) -> Iterator[Character]:
    """Yield composed, narrow, lower-case characters without marks and invisible ones."""
    start = 0
    while start < len(text):
        end = start + 1
        while end < len(text) and ("\u1160" <= text[end] <= "\u11ff" or unicodedata.combining(text[end])):
            end += 1
        for part in unicodedata.normalize("NFC", text[start:end]):
            category = unicodedata.category(part)
            if category in {"Cf", "Cc", "Mn", "Me"} and not part.isspace():
                continue
            for character in _narrow(part):
                yield Character(" " if character.isspace() or character == "\u3164" else character, start, end)
        start = end


def _narrow(character: str) -> str:
    """Return the plain form of a wide, circled or mathematical letter; conjoining jamo become single ones."""
    if "ㄱ" <= character <= "ㆎ" or is_syllable(character):
        return character
    plain = []
    for part in unicodedata.normalize("NFKC", character).lower():
        code = ord(part)
        if 0x1100 <= code <= 0x1112:
            plain.append(INITIALS[code - 0x1100])
        elif 0x1161 <= code <= 0x1175:
            plain.append(VOWELS[code - 0x1161])
        elif 0x11A8 <= code <= 0x11C2:
            plain.append(FINALS[code - 0x11A7])
        elif not unicodedata.combining(part):
            plain.append(part)
    return "".join(plain)


def _within_words(characters: list[Character]) -> list[Character]:
    """Leave out symbols between two letters; others stay."""
    kept: list[Character] = []
    k = 0
    while k < len(characters):
        end = k
        while end < len(characters) and not (characters[end].text.isalnum() or characters[end].text == " "):
            end += 1
        is_inside = k > 0 and end < len(characters) and is_hangul(characters[k - 1].text)
        if end == k:
            kept.append(characters[k])
            end = k + 1
        elif not (is_inside and is_hangul(characters[end].text)) or _ends_sentence(characters[k:end]):
            kept += characters[k:end]
        k = end
    return kept


def _ends_sentence(symbols: Sequence[Character]) -> bool:
    """Whether symbols between letters divide sentences, which are often written without a blank."""
    return all(symbol.text in ".,!?…~;:/" for symbol in symbols) and (len(symbols) > 1 or symbols[0].text in "!?,")


def _without_hidden_digits(characters: list[Character], *, is_read: bool) -> list[Character]:
    kept: list[Character] = []
    k = 0
    while k < len(characters):
        end = k
        while end < len(characters) and characters[end].text in SOUNDS:
            end += 1
        if end == k:
            kept.append(characters[k])
            k += 1
            continue
        digits = characters[k:end]
        before = kept[-1].text if kept else " "
        after = characters[end].text if end < len(characters) else " "
        kept += _spoken(digits, before, after, is_read=is_read)
        k = end
    return kept


def _spoken(digits: list[Character], before: str, after: str, *, is_read: bool) -> list[Character]:
    """Return what digits between two characters are read as."""
    first = digits[0]
    if len(digits) == 1 and first.text == "8" and before in CURSED and after not in COUNTERS:
        return [Character("발", first.start, first.end)]
    if after in COUNTERS or len(digits) > MAX_DIGITS or not (is_hangul(before) or is_hangul(after)):
        return digits
    if len(digits) == 1 and first.text == "1" and before in INITIALS:
        return [Character("ㅣ", first.start, first.end)]
    if is_read and len(digits) == 1:
        return [Character(SOUNDS[first.text], first.start, first.end)]
    return [] if is_hangul(before) and is_hangul(after) else digits


def _from_keyboard(characters: list[Character]) -> list[Character]:
    """Read words typed on the Latin keyboard as Hangul if every letter of them goes into a syllable."""
    read_as: list[Character] = []
    k = 0
    while k < len(characters):
        end = k
        while end < len(characters) and characters[end].text in KEYS:
            end += 1
        if end == k:
            read_as.append(characters[k])
            k += 1
            continue
        word = [Character(KEYS[c.text], c.start, c.end) for c in characters[k:end]]
        composed = _composed(word)
        is_word = len(composed) > 1 and all(is_syllable(c.text) for c in composed)
        read_as += composed if is_word else characters[k:end]
        k = end
    return read_as


def _composed(characters: list[Character]) -> list[Character]:
    """Compose single jamo: an initial and a vowel, and a final if no vowel follows it."""
    composed: list[Character] = []
    k = 0
    while k < len(characters):
        parts = [c.text for c in characters[k : k + 4]] + ["", "", ""]
        if parts[0] in INITIALS and parts[1] and parts[1] in VOWELS:
            has_final = bool(parts[2]) and parts[2] in FINALS and not (parts[3] and parts[3] in VOWELS)
            size = 3 if has_final else 2
            syllable = compose(parts[0], parts[1], parts[2] if has_final else "")
            composed.append(Character(syllable, characters[k].start, characters[k + size - 1].end))
            k += size
        else:
            composed.append(characters[k])
            k += 1
    return composed


SINGLES = re.compile(r"(?<![^ ])[가-힣ㄱ-ㅣ](?: +[가-힣ㄱ-ㅣ](?![^ ])){2,}")
"""Three single syllables or more with blanks between them."""


def _joined(characters: list[Character]) -> list[Character]:
    """Leave out the blanks of words written syllable by syllable."""
    text = "".join(c.text if len(c.text) == 1 else c.text[0] for c in characters)
    blanks = {k for found in SINGLES.finditer(text) for k in range(*found.span()) if text[k] == " "}
    return [c for k, c in enumerate(characters) if k not in blanks]


def _without_repetitions(characters: list[Character]) -> Iterator[Character]:
    """Yield characters without repetitions and lengthened vowels ("시이이발")."""
    previous, count = "", 0
    for character in characters:
        text = character.text
        count = count + 1 if text == previous else 1
        if count > LONGEST_KEPT[is_syllable(text)]:
            continue
        if count == 1 and _lengthens(previous, text):
            continue
        previous = text
        yield character


def _lengthens(before: str, text: str) -> bool:
    """Whether a syllable only draws out the vowel of the one before it."""
    if not (before and is_syllable(before) and is_syllable(text)):
        return False
    initial, vowel, final = jamo_of(text)
    _, vowel_before, final_before = jamo_of(before)
    return initial == "ㅇ" and not final and not final_before and vowel == vowel_before
