"""Characters: composed Hangul, invisible characters and repeated blanks."""

import re
import unicodedata

# Categories Cc and Cf without tab and line ends, and the fillers inside a syllable of conjoining jamo. None replaces
# a blank: Korean input methods leave U+0008 inside words, web pages U+200B where a line may break. The joiner U+200D is
# kept inside an emoji.
INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200c\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001-\U000e007f]|(?<![\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d"
)
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
