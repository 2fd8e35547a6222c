"""Articles on a page: HTML as newsrooms publish it, the XML of agencies (NITF, NewsML 1, NewsML-G2), RSS and Atom.

XML is parsed without entities and without anything outside of the file.
"""

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from html.entities import html5
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

from corpora.readers.markup import BLOCK, HIDDEN

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

CHARSET = re.compile(rb"(?:charset|encoding)\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
CHARSET_WITHIN = 2048
"""Bytes of a page in which its encoding is named."""
KOREAN_CHARSETS = frozenset(["euc-kr", "ks_c_5601-1987", "ksc5601", "x-windows-949", "windows-949", "ms949", "uhc"])


def decode_page(content: bytes, encoding: str = "auto") -> str:
    """Return the text of a page, by its byte order mark, the encoding it names, UTF-8 or CP949.

    Raises:
        ValueError: it is none of these.
    """
    named = CHARSET.search(content[:CHARSET_WITHIN])
    declared = named[1].decode("ascii").lower() if named else "utf-8"
    declared = "cp949" if declared in KOREAN_CHARSETS else declared
    if content[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        declared = "utf-16"
    for name in dict.fromkeys((declared, "utf-8", "cp949") if encoding == "auto" else (encoding,)):
        try:
            return content.decode(name).removeprefix("\ufeff")
        except (UnicodeDecodeError, LookupError):
            continue
    raise ValueError(f"not {declared.upper() if encoding == 'auto' else encoding}, nor UTF-8 or CP949")


# ---- HTML ----

META = {
    "title": ("og:title", "twitter:title", "dc.title"),
    "date": ("article:published_time", "og:regdate", "pubdate", "dc.date.issued", "date"),
    "section": ("article:section", "og:section", "section"),
    "publisher": ("og:site_name", "article:publisher", "dc.publisher"),
    "byline": ("article:author", "author", "dc.creator"),
    "url": ("og:url",),
}
"""Field → names of its `<meta>`, in the order in which they are tried."""
BODY = re.compile(
    r"article[-_]?(?:body|content|text|view|cont)|news[-_]?(?:body|content|text|cont|view)|art[-_]?(?:body|text)"
    r"|content[-_]?body|view[-_]?(?:con|cont|content|text)|dic_area",
    re.IGNORECASE,
)
"""Ids, classes and item properties of the element that holds the article."""
OUTSIDE = frozenset(["nav", "header", "footer", "aside", "form", "button", "select", "figure", "title", *HIDDEN])
VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())  # noqa: SIM905


def read_html(page: str) -> dict[str, Any]:
    """Return the fields of the article on a page: those of its `<meta>`, and its text.

    The text is that of the element that is named like an article's body, else of `<article>`, else of all `<p>`.
    """
    parser = _Page()
    parser.feed(closed(page))
    parser.close()
    fields: dict[str, Any] = {
        field: next((parser.meta[name] for name in names if parser.meta.get(name)), "") for field, names in META.items()
    }
    fields["title"] = fields["title"] or parser.text_of("h1") or parser.text_of("title")
    fields["text"] = next((text for kind in ("body", "article", "p") if (text := parser.text_of(kind))), "")
    return {field: value for field, value in fields.items() if value}


def closed(page: str) -> str:
    """Return a page in which every markup that begins also ends: for each other one the parser reads all the rest."""
    for begin, end, instead in (("<!--", "-->", ""), ("<![", "]", ""), ("<", ">", "&lt;")):
        last = page.rfind(end) + len(end) if end in page else 0
        page = page[:last] + page[last:].replace(begin, instead)
    return page


class _Page(HTMLParser):
    """Collects the texts of the elements that may hold an article."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.meta: dict[str, str] = {}
        self._open: list[tuple[str, str]] = []
        """Open elements: tag, and the kind of text inside."""
        self._names, self._kinds = Counter[str](), Counter[str]()
        """Open elements by tag, and by kind."""
        self._parts: dict[str, list[str]] = {kind: [] for kind in ("body", "article", "p", "h1", "title")}

    def text_of(self, kind: str) -> str:
        """Return the text inside elements of a kind."""
        lines = "".join(self._parts[kind]).split("\n")
        return "\n".join(line for line in (" ".join(each.split()) for each in lines) if line)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a field of a `<meta>`, or open an element."""
        values = {name: value or "" for name, value in attrs}
        if tag == "meta":
            name = (values.get("property") or values.get("name") or values.get("itemprop") or "").lower()
            self.meta.setdefault(name, values.get("content", "").strip())
        if tag in BLOCK:
            self._add("\n")
        if tag in VOID:
            return
        named = " ".join(values.get(name, "") for name in ("id", "class", "itemprop"))
        kind = "body" if BODY.search(named) else tag
        self._open.append((tag, kind))
        self._names[tag] += 1
        self._kinds[kind] += 1

    def handle_endtag(self, tag: str) -> None:
        """Close an element, and those inside that were left open."""
        if tag in BLOCK:
            self._add("\n")
        while self._names[tag]:
            name, kind = self._open.pop()
            self._names[name] -= 1
            self._kinds[kind] -= 1
            if name == tag:
                break

    def handle_data(self, data: str) -> None:
        """Take text, unless it is in a part of the page that is no article."""
        self._add(data)

    def _add(self, text: str) -> None:
        inside = self._names
        if inside["title"] and not self._parts["body"]:
            self._parts["title"].append(text)
        if any(inside[name] for name in OUTSIDE):
            return
        for kind in ("body", "article", "p", "h1"):
            if self._kinds[kind] and (kind == "h1" or not inside["h1"]):
                self._parts[kind].append(text)


# ---- XML of agencies ----

ENTITY = re.compile(r"&([A-Za-z][A-Za-z0-9]*);")
XML_ENTITIES = frozenset(["amp", "lt", "gt", "quot", "apos"])
DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>")
ITEMS = ("newsItem", "NewsItem", "nitf")
"""Elements that are an article, outermost first."""
PATHS: dict[str, tuple[str, ...]] = {
    "title": ("hl1", "headline", "HeadLine", "hedline", "title"),
    "byline": ("byline", "ByLine", "by"),
    "section": ("tobject.subject", "subject", "SubjectCode"),
    "publisher": ("provider", "Provider", "distributor", "CopyrightLine"),
}
DATES = (
    "date.issue",
    "story.date",
    "versionCreated",
    "contentCreated",
    "DateAndTime",
    "FirstCreated",
    "ThisRevisionCreated",
)
IDS = ("doc-id", "NewsItemId", "PublicIdentifier")
BODIES = ("body.content", "inlineXML", "inlineData", "DataContent", "ContentItem")
FEEDS = {"rss": "item", "RDF": "item", "feed": "entry"}
"""Root of a feed → element of an article."""
ENTRY = {
    "title": ("title",),
    "text": ("encoded", "content", "description", "summary"),
    "date": ("pubDate", "published", "updated", "date"),
    "section": ("category",),
    "byline": ("author", "creator"),
    "url": ("link",),
    "id": ("guid", "id"),
}
MODULES = frozenset(["encoded", "creator", "date"])
"""Elements of `content:` and `dc:`."""
PARAGRAPHS = frozenset(["p", "h2", "h3", "li", "tr", "br", "hl2"])


def read_agency_xml(document: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of each article of a document.

    Raises:
        ValueError: it is no XML, has entities of its own, or no article of a known form.
    """
    prepared = ENTITY.sub(_as_character, DECLARATION.sub("", document.lstrip("\ufeff")))
    try:
        root = ElementTree.fromstring(prepared, forbid_dtd=False, forbid_entities=True, forbid_external=True)
    except (ElementTree.ParseError, DefusedXmlException, RecursionError) as error:
        raise ValueError(f"not well-formed XML ({error!r:.80})") from error
    items = next((found for name in ITEMS if (found := list(_all(root, name)))), [])
    entries = list(_all(root, FEEDS[_name(root)])) if _name(root) in FEEDS else []
    if not items and not entries:
        raise ValueError(f"<{_name(root)}> is no NITF, NewsML, NewsML-G2, RSS or Atom with an article")
    yield from map(_fields, items) if items else map(_entry, entries)


def _as_character(entity: re.Match[str]) -> str:
    """Return a named character of HTML as itself; XML knows five of them only."""
    name = entity[1]
    return entity[0] if name in XML_ENTITIES or f"{name};" not in html5 else unescape(entity[0])


def _name(element: "Element") -> str:
    return str(element.tag).rpartition("}")[2]


def _all(element: "Element", name: str) -> Iterator["Element"]:
    return (each for each in element.iter() if _name(each) == name)


def _fields(item: "Element") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field, names in PATHS.items():
        fields[field] = next((text for name in names for each in _all(item, name) if (text := _value(each))), "")
    fields["date"] = next((text for name in DATES for each in _all(item, name) if (text := _value(each))), "")
    own = item.get("guid", "")
    fields["id"] = own or next((text for name in IDS for each in _all(item, name) if (text := _value(each))), "")
    bodies = next((found for name in BODIES if (found := list(_all(item, name)))), [])
    fields["text"] = "\n".join(filter(None, map(_text, bodies)))
    return {field: value for field, value in fields.items() if value}


def _entry(entry: "Element") -> dict[str, Any]:
    """Return the fields of an entry of a feed; those of other modules, such as Media RSS, have the same names."""
    space = str(entry.tag).rpartition("}")[0]
    own = [each for each in entry if _name(each) in MODULES or str(each.tag).rpartition("}")[0] == space]
    found = {
        field: next(
            ((_text if field == "text" else _value)(each) for name in names for each in own if _name(each) == name), ""
        )
        for field, names in ENTRY.items()
    }
    return {field: value for field, value in found.items() if value}


def _value(element: "Element") -> str:
    """Return the text of an element, or the attribute that stands for it."""
    attributes = ("norm", "id-string", "tobject.subject.type", "literal", "FormalName", "href", "term")
    text = " ".join("".join(element.itertext()).split())
    return text or next((element.get(name, "") for name in attributes if element.get(name)), "")


def _text(element: "Element") -> str:
    """Return the paragraphs of a body, a line each."""
    parts: list[str] = []

    def walk(each: "Element") -> None:
        is_line = _name(each) in PARAGRAPHS
        parts.append("\n" * is_line + (each.text or ""))
        for child in each:
            if _name(child) not in {"head", "media", "media-caption", "hedline", "script", "style"}:
                walk(child)
            parts.append(child.tail or "")
        parts.append("\n" * is_line)

    walk(element)
    lines = (" ".join(line.split()) for line in "".join(parts).split("\n"))
    return "\n".join(line for line in lines if line)


# ---- HWPX ----


def read_hwpx_section(section: bytes) -> list[str]:
    """Return the paragraphs of a section of a HWPX document (KS X 6101).

    Raises:
        ValueError: it is no XML, or has a document type.
    """
    paragraphs = _all(_office_xml(section), "p")
    return ["".join("".join(t.itertext()) for t in _own(paragraph) if _name(t) == "t") for paragraph in paragraphs]


def read_docx_body(content: bytes) -> list[str]:
    """Return the paragraphs of the main part of a DOCX document (ISO/IEC 29500-1), without deleted text.

    Raises:
        ValueError: it is no XML, or has a document type.
    """
    root = _office_xml(content)
    # A text box is written twice, the second time for programs that do not know the first form.
    for parent in list(root.iter()):
        for child in [child for child in parent if _name(child) == "Fallback"]:
            parent.remove(child)
    breaks = {"br": "\n", "cr": "\n", "tab": "\t", "noBreakHyphen": "-"}
    return [
        "".join(run.text or "" if _name(run) == "t" else breaks.get(_name(run), "") for run in _own(paragraph))
        for paragraph in _all(root, "p")
    ]


def _office_xml(content: bytes) -> "Element":
    try:
        return ElementTree.fromstring(content, forbid_dtd=True)  # type: ignore[no-any-return]
    except (ElementTree.ParseError, DefusedXmlException) as error:
        raise ValueError(f"not well-formed XML ({error!r:.80})") from error


def _own(paragraph: "Element") -> Iterator["Element"]:
    """Yield the elements of a paragraph in order, without those of paragraphs in a table or box inside."""
    above = [iter(paragraph)]
    while above:
        child = next(above[-1], None)
        if child is None:
            above.pop()
        elif _name(child) not in {"p", "moveFrom", "tabs"}:
            yield child
            above.append(iter(child if _name(child) != "t" else ()))
