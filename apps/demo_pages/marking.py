"""Visitors' texts on a page: always escaped, with marks that do not rely on colour alone."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

SURROGATES = re.compile("[\ud800-\udfff]")
MARKDOWN = re.compile(r"[\\`*_{}\[\]<>()#+\-.!|~$:^=&]")
LONGEST_SHOWN = 60_000
"""Characters of a text that is shown whole; of longer ones, only the surroundings of marks are shown."""
AROUND = 1_500

Kind = Literal["chosen", "answer", "filled", "for", "against", "excluded"]


@dataclass(frozen=True)
class Mark:
    """A part of a text, `text[start:end]`."""

    start: int
    end: int
    kind: Kind
    label: str = ""
    """Shown before the part, e.g. a number or sign."""
    strength: float = 1.0
    """Intensity of the colour, in [0, 1]."""
    hint: str = ""
    """Tooltip, which screen readers read, too."""


def escaped(text: str) -> str:
    """Return a text escaped for HTML; a lone surrogate, which cannot be sent, becomes U+FFFD."""
    return html.escape(SURROGATES.sub("\ufffd", text))


def literal(text: str) -> str:
    """Return a text escaped for Markdown, for messages and labels."""
    return MARKDOWN.sub(r"\\\g<0>", SURROGATES.sub("\ufffd", text))


def one_line(text: str, limit: int = 80) -> str:
    """Return a text for a list or a table: one line, at most LIMIT characters."""
    line = " ".join(SURROGATES.sub("\ufffd", text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def marked(text: str, marks: Sequence[Mark], omitted: str = "…") -> str:
    """Return a text as HTML with marks.

    Args:
        text: the whole text.
        marks: marks that do not overlap.
        omitted: replaces omitted parts of a very long text.
    """
    parts = []
    is_long = len(text) > LONGEST_SHOWN
    end = 0
    ordered = sorted(marks, key=lambda mark: mark.start)
    for mark in ordered:
        assert end <= mark.start <= mark.end <= len(text), "marks overlap"
        parts += [_between(text[end : mark.start], omitted, is_long=is_long, is_first=end == 0), _mark(text, mark)]
        end = mark.end
    rest = text[end:]
    parts.append(
        escaped(rest) if not is_long or len(rest) <= AROUND else f"{escaped(rest[:AROUND])} {_omission(omitted)}"
    )
    return "".join(parts)


def _between(text: str, omitted: str, *, is_long: bool, is_first: bool) -> str:
    if not is_long or len(text) <= 2 * AROUND:
        return escaped(text)
    before = "" if is_first else escaped(text[:AROUND])
    return f"{before} {_omission(omitted)} {escaped(text[-AROUND:])}"


def _omission(omitted: str) -> str:
    return f'<span class="pb-omitted">{escaped(omitted)}</span>'


def _mark(text: str, mark: Mark) -> str:
    label = f'<span class="pb-label">{escaped(mark.label)}</span>' if mark.label else ""
    hint = f' title="{escaped(mark.hint)}"' if mark.hint else ""
    share = round(100 * min(max(mark.strength, 0.0), 1.0))
    tag = "span" if mark.kind == "excluded" else "mark"
    inside = escaped(text[mark.start : mark.end])
    return f'<{tag} class="pb-{mark.kind}" style="--strength:{share}%"{hint}>{label}{inside}</{tag}>'


def paper(inside: str, language: str = "ko", title: str = "") -> str:
    """Wrap HTML in a sheet of paper; TITLE is escaped here."""
    head = f"<h4>{escaped(title)}</h4>" if title else ""
    return f'<div class="pb-paper" lang="{language}" tabindex="0" role="region">{head}{inside}</div>'


def bars(rows: Sequence[tuple[str, float, str]], largest: float) -> str:
    """Return labelled bars as HTML.

    Args:
        rows: label, value, and the value as text.
        largest: value of a full bar; negative values have a pattern of their own.
    """
    lines = []
    for label, value, shown in rows:
        width = round(100 * min(1.0, abs(value) / largest)) if largest else 0
        sign = "minus" if value < 0 else "plus"
        lines.append(
            f'<li><span class="pb-name">{escaped(label)}</span><span class="pb-track">'
            f'<span class="pb-bar pb-{sign}" style="width:{width}%"></span></span>'
            f'<span class="pb-value">{escaped(shown)}</span></li>'
        )
    return f'<ul class="pb-bars">{"".join(lines)}</ul>'


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML whose lines break where the window is narrow; the first column names the rows.

    Args:
        headings: of the columns.
        rows: a text for each column; texts are escaped.
    """
    head = "".join(f'<th scope="col">{escaped(heading)}</th>' for heading in headings)
    lines = "".join(
        f'<tr><th scope="row">{escaped(row[0])}</th>{"".join(f"<td>{escaped(text)}</td>" for text in row[1:])}</tr>'
        for row in rows
    )
    return f'<table class="pb-changes"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
