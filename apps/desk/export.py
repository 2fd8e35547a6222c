"""A draft with what the tools say of it, as plain text and as one HTML file; every text is escaped."""

import html
from collections.abc import Sequence

from apps.desk.draft import Examined
from corpora.foundation.texts import Texts

STYLE = (
    "body{max-width:46rem;margin:2rem auto;padding:0 1rem;font:1rem/1.8 serif}pre{white-space:pre-wrap;font:inherit}"
)


def sections(found: Examined, texts: Texts) -> list[tuple[str, list[str]]]:
    """Return the headings and lines of an export, empty ones left out; texts are of the section `demo`."""
    corrections = [f"{c.text} → {' / '.join(c.suggestions) or '·'} ({c.reason or c.kind})" for c in found.corrections]
    similar = [f"{each.title} ({each.similarity:.2f})" for each in found.similar if not each.is_copy]
    named: list[tuple[str, list[str]]] = [
        ("summary", [" ".join(part.text.split()) for part in found.summary]),
        ("bullets", [f"· {part.text}" for part in found.bullets]),
        ("headlines", [*found.written_headlines, *(part.text for part in found.headlines)]),
        ("corrections", corrections),
        ("copies", [each.title for each in found.copies]),
        ("similar", similar),
    ]
    return [(texts(f"desk.{name}"), lines) for name, lines in named if lines]


def to_text(found: Examined, texts: Texts) -> str:
    """Return a draft and what the tools say of it as plain text."""
    parts = [found.title, found.text]
    parts += [f"[{heading}]\n" + "\n".join(lines) for heading, lines in sections(found, texts)]
    return "\n\n".join(filter(None, parts)) + "\n"


def to_html(found: Examined, texts: Texts) -> str:
    """Return a draft and what the tools say of it as one HTML file without scripts."""
    body = "".join(_section(heading, lines) for heading, lines in sections(found, texts))
    title = _escaped(found.title or texts("desk.title"))
    return (
        f'<!doctype html><html lang="{texts.language}"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1><pre>{_escaped(found.text)}</pre>{body}</body></html>\n"
    )


def _section(heading: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{_escaped(line)}</li>" for line in lines)
    return f"<h2>{_escaped(heading)}</h2><ul>{items}</ul>"


def _escaped(text: str) -> str:
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))
