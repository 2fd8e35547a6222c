r"""HTML out of texts, with the offsets of what is left.

>>> plain = plain_text("<p>금리가 <b>올랐다</b>.<br/>물가도 &quot;올랐다&quot;.</p>")
>>> plain.text
'금리가 올랐다.\n물가도 "올랐다".'
>>> plain.span(0, 8)
(3, 18)
"""

import re
from array import array
from dataclasses import dataclass
from html.entities import html5

INLINE = frozenset(
    re.findall(
        r"\w+",
        "a abbr b big cite code em font i ins kbd label mark q s small span strike strong sub sup time tt u wbr",
    )
)
"""Tags inside a sentence."""
BLOCK = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote body br button caption center dd del details div dl dt fieldset figcaption "
        "figure footer form h1 h2 h3 h4 h5 h6 head header hr html img input legend li link main meta nav ol option p "
        "picture pre section select source summary table tbody td tfoot th thead tr ul",
    )
)
"""Tags that end a line."""
HIDDEN = frozenset(["audio", "canvas", "embed", "iframe", "noscript", "object", "script", "style", "svg", "template"])
HIDDEN_HEADS = frozenset(["textarea", "title", "video"])
"""Further elements whose content is no text of an article."""
LONGEST_TAG = 10_000
"""Characters of a tag; what is longer is text."""

_TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9]*)(?=[\s/>])[^<>]*>")
_ENTITY = re.compile(r"&(#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_START = re.compile(r"[<&]")


@dataclass(frozen=True)
class Plain:
    """A text without markup."""

    text: str
    _starts: "array[int]"
    _ends: "array[int]"
    """For each character, where it begins and ends in the text with markup."""

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where `text[start:end]` begins and ends in the text with markup; END is greater than START."""
        return self._starts[start], self._ends[end - 1]


def has_markup(text: str) -> bool:
    """Return whether a text holds HTML tags or comments; other uses of `<` and `>` do not count."""
    return "<!--" in text or any(_is_known(tag.group(1)) for tag in _TAG.finditer(text))


def strip_markup(text: str) -> str:
    """Return a text without tags, comments, scripts and entities; one without any is returned as it is."""
    return plain_text(text).text if "<" in text or "&" in text else text


def plain_text(text: str) -> Plain:
    """Take HTML out of a text.

    A block tag or `<br>` becomes a line break, several in a row at most two; an inline tag vanishes. Scripts, styles,
    comments and embedded objects vanish with their content. Entities become their characters. What is no tag of HTML,
    such as `<표>`, `<현대:OG>` or `a < b`, is text.
    """
    builder = _Builder(text)
    position = 0
    for found in _START.finditer(text):
        start = found.start()
        if start < position:
            continue
        end = builder.skip(start)
        if end > start:
            builder.keep(position, start)
            builder.replace(start, end)
            position = end
    builder.keep(position, len(text))
    return builder.plain()


def _is_known(name: str) -> bool:
    name = name.lower()
    return name in INLINE or name in BLOCK or name in HIDDEN or name in HIDDEN_HEADS


class _Builder:
    """A text without markup while it is made."""

    def __init__(self, text: str) -> None:
        self._text, self._lower = text, ""
        self._parts: list[str] = []
        self._starts, self._ends = array("L"), array("L")
        self._last_close: dict[str, int] = {}
        self._breaks = 0
        self._new = ""

    def skip(self, start: int) -> int:
        """Return where the markup that begins at START ends, or START if it is none."""
        text, self._new = self._text, ""
        if text[start] == "&":
            return self._entity(start)
        if text.startswith("<!--", start):
            return self._behind("-->", start + 4) or len(text)
        if text.startswith(("<!", "<?"), start) and text[start + 2 : start + 9].lower() in {"doctype", "xml ver"}:
            return self._behind(">", start) or start
        tag = _TAG.match(text, start, start + LONGEST_TAG)
        if tag is None or not _is_known(tag.group(1)):
            return start
        name = tag.group(1).lower()
        is_opening = text[start + 1] != "/"
        if is_opening and name in HIDDEN | HIDDEN_HEADS and not tag.group().endswith("/>"):
            end = self._behind(f"</{name}", tag.end())
            self._new = "\n"
            return (self._behind(">", end) or len(text)) if end else (len(text) if name in HIDDEN else tag.end())
        self._new = "" if name in INLINE else "\n"
        return tag.end()

    def _entity(self, start: int) -> int:
        entity = _ENTITY.match(self._text, start)
        if entity is None:
            return start
        name = entity.group(1)
        if name.startswith("#"):
            code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
            if not 0 < code < 0x110000 or 0xD800 <= code < 0xE000:
                return start
            self._new = chr(code)
        elif f"{name};" in html5:
            self._new = html5[f"{name};"]
        else:
            return start
        self._new = self._new.replace("\xa0", " ")
        return entity.end()

    def _behind(self, close: str, start: int) -> int:
        """Return the position behind the next CLOSE, 0 if there is none; each search for none is made once."""
        if self._last_close.get(close, len(self._text)) < start:
            return 0
        self._lower = self._lower or _lowered(self._text)
        found = self._lower.find(close, start)
        if found < 0:
            self._last_close[close] = start - 1
            return 0
        return found + len(close)

    def keep(self, start: int, end: int) -> None:
        """Take over a stretch of text."""
        if start < end:
            self._parts.append(self._text[start:end])
            self._starts.extend(range(start, end))
            self._ends.extend(range(start + 1, end + 1))
            if not self._text[start:end].isspace():
                self._breaks = 0

    def replace(self, start: int, end: int) -> None:
        """Put what stands for markup; of line breaks in a row, two at most."""
        if self._new == "\n":
            self._breaks += 1
            if self._breaks > 2:
                return
        elif self._new.strip():
            self._breaks = 0
        self._parts.append(self._new)
        self._starts.extend([start] * len(self._new))
        self._ends.extend([end] * len(self._new))

    def plain(self) -> Plain:
        """Return the text without the white space around it."""
        text = "".join(self._parts)
        first = len(text) - len(text.lstrip())
        last = len(text.rstrip())
        return Plain(text[first:last], self._starts[first:last], self._ends[first:last])


def _lowered(text: str) -> str:
    """Return TEXT with ASCII in lower case, and every character in its position."""
    return text if text.islower() else re.sub("[A-Z]+", lambda run: run.group().lower(), text)
