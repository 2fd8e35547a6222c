"""Characters that no reader sees, and blanks beyond one."""

import re

# Categories Cc and Cf without tab and line ends, and the fillers inside a syllable of conjoining jamo. None stands for
# a blank: U+0008 is left in the middle of words by Korean input methods, U+200B where a page may break a line. A joiner
# (U+200D) stays inside an emoji.
INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200c\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001-\U000e007f]|(?<![\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d"
)
GAPS = "\u3164\uffa0\u2800\ufffd"
"""Shown as a gap: Hangul fillers, the empty Braille pattern, and what was lost in decoding."""


def remove_invisible(text: str) -> str:
    """Remove characters that are not shown; those that are shown as a gap become a blank."""
    for gap in GAPS:
        text = text.replace(gap, " ")
    # Five times as fast as a search, and most texts have nothing to remove; fillers count as letters there.
    if text.replace("\n", "").isprintable() and "\u115f" not in text and "\u1160" not in text:
        return text
    return INVISIBLE.sub("", text)


def collapse_blanks(text: str) -> str:
    """Make any run of blanks one blank, and any run of blank lines one blank line; strip lines and text."""
    if text.isprintable() and "  " not in text and text == text.strip():
        return text
    # Both split methods know all blanks and line ends of Unicode.
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
