"""Characters: composed Hangul, invisible characters and repeated blanks."""

import re
import unicodedata
from collections.abc import Iterable

# Categories Cc and Cf without tab and line ends, and the fillers inside a syllable of conjoining jamo. None replaces
# a blank: Korean input methods leave U+0008 inside words, web pages U+200B where a line may break. The joiner U+200D is
# kept inside an emoji.
INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200c\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001-\U000e007f]|(?<![\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d"
)
LONGEST_CLUSTER = 64
"""Characters of a base with its combining marks that are mapped one by one."""
GAPS = "\u3164\uffa0\u2800\ufffd"
"""Characters shown as a gap: Hangul fillers, the empty Braille pattern, the replacement character."""


def nfc(text: str) -> str:
    """Return TEXT with composed Hangul (Unicode NFC)."""
    return unicodedata.normalize("NFC", text)


def remove_invisible(text: str) -> str:
    """Remove invisible characters, and replace those shown as a gap by a blank."""
    for gap in GAPS:
        text = text.replace(gap, " ")
    # Five times as fast as a search, and most texts have nothing to remove; fillers count as letters there.
    if text.replace("\n", "").isprintable() and "\u115f" not in text and "\u1160" not in text:
        return text
    return INVISIBLE.sub("", text)


def collapse_blanks(text: str) -> str:
    """Replace runs of blanks by one blank and runs of blank lines by one; strip lines and text."""
    if text.isprintable() and "  " not in text and text == text.strip():
        return text
    # Both split methods cover all blanks and line ends of Unicode.
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def as_texts(texts: Iterable[str]) -> list[str]:
    """Return TEXTS with composed Hangul.

    Raises:
        ValueError: TEXTS is one string, or an element is no string.
    """
    if isinstance(texts, str):
        raise ValueError("texts is a single string; give a list of strings")
    composed = []
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"a text is {text!r:.40}, not a string")
        composed.append(nfc(text))
    return composed


def compose(source: str) -> tuple[str, list[int] | None]:
    """Normalize SOURCE to composed form (NFC).

    Returns:
        The text, and for every offset in it the offset in SOURCE; None if the text is SOURCE itself.
    """
    if unicodedata.is_normalized("NFC", source):
        return source, None
    parts: list[str] = []
    offsets: list[int] = []
    start = 0
    for end in range(1, len(source) + 1):
        if end < len(source) and may_compose(source[end]):
            continue
        cluster = source[start:end]
        composed = unicodedata.normalize("NFC", cluster)
        parts.append(composed)
        if len(composed) == 1:
            offsets.append(start)
        else:
            ends = {unicodedata.normalize("NFC", cluster[:k]): k for k in range(min(len(cluster), LONGEST_CLUSTER))}
            offsets += [start + ends.get(composed[:k], 0) for k in range(len(composed))]
        start = end
    text = "".join(parts)
    assert text == unicodedata.normalize("NFC", source), "may_compose misses a character that composes"
    return text, [*offsets, len(source)]


def may_compose(character: str) -> bool:
    """Whether a character may compose with the one before it: marks, and the vowels and finals of Hangul."""
    if character < "\u0300":
        return False
    # The last ones are vowel signs of Kirat Rai, which Unicode 16 calls letters.
    is_letter = "\u1161" <= character <= "\u11c2" or "\U00016d63" <= character <= "\U00016d67"
    return is_letter or unicodedata.category(character)[0] == "M"
