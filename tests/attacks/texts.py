"""Attacks by tables, JSON and pages: lengths, depths, characters that steer, and names of files."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.attacks.attack import Attack
from tests.attacks.files import ARTICLE, SENTENCE, corpus, line, stories, summaries, write

HARMLESS = (0, 1, 2)


def named(name: str, content: bytes) -> Callable[[Path], Path]:
    """Return what writes a file of a name that steers a terminal or a log."""

    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return make


def text_attacks() -> list[Attack]:
    """Return attacks by texts."""
    both = (summaries, corpus)
    long, deep = SENTENCE * 5_000, "<div>" * 100_000
    tables = [
        ("zero bytes in a table", f"title,text\n\0a\0,{SENTENCE}\0\n".encode()),
        ("a table of a million columns", b"a," * 1_000_000 + b"\n" + b"b," * 1_000_000 + b"\n"),
        ("a field of half a megabyte", f'title,text\na,"{long}"\n'.encode()),
        ("a table with a name twice", f"text,text,title\na,{SENTENCE},b\n".encode()),
        ("a table in UTF-16 without a mark", f"title,text\na,{SENTENCE}\n".encode("utf-16-le")),
        ("a table in UTF-7", b"title,text\n+ADw-script+AD4-,a\n"),
        ("a table of line separators", f"title,text\n{chr(0x2028)}a{chr(0x85)},{SENTENCE}\n".encode()),
        ("a table of formulas", f'title,text\n"=HYPERLINK(""http://evil"")",{SENTENCE}\n'.encode()),
    ]
    values = [
        ("a number beyond all", b'{"text": 1e999999, "title": "a"}\n'),
        ("an infinite number", b'{"text": Infinity, "title": NaN}\n'),
        ("a key twice", b'{"text": "a", "text": [[[]]], "title": "b"}\n'),
        ("a key of a megabyte", line({"k" * (1 << 20): 1} | ARTICLE)),
        ("a hundred thousand keys", line({str(k): k for k in range(100_000)} | ARTICLE)),
        ("half of a character", json.dumps(ARTICLE | {"title": "\ud800"}).encode() + b"\n"),
        ("zero bytes in an article", line(ARTICLE | {"text": SENTENCE + "\0" + SENTENCE})),
        ("an id that leads up", line(ARTICLE | {"id": "../../../up"})),
        ("an id of a megabyte", line(ARTICLE | {"id": "i" * (1 << 20)})),
        ("an article with a date that is none", line(ARTICLE | {"date": "99999-99-99T99:99:99+99:99"})),
        ("a title that steers a terminal", line(ARTICLE | {"title": "\x1b]0;x\x07\x1b[2J\u202e"})),
        ("two hundred thousand combining marks", line({"text": SENTENCE + "가" + "\u0301" * 200_000})),
        ("a letter that grows in its normal form", line({"text": "\ufdfa" * 50_000})),
        ("two hundred thousand blanks", line({"text": SENTENCE + " " * 200_000 + SENTENCE})),
        ("ten thousand full stops", line({"text": SENTENCE + ". " * 10_000})),
        ("an address without end", line({"text": SENTENCE + "http://" + "a." * 50_000})),
        ("digits without end", line({"text": SENTENCE + "1," * 50_000})),
    ]
    pages = [
        ("a page a hundred thousand deep", (deep + SENTENCE).encode()),
        ("a page of a hundred thousand attributes", b"<p " + b"a=b " * 100_000 + b">" + SENTENCE.encode()),
        ("a page with a comment without end", b"<p>" + b"<!--" * 200_000),
        ("a page with a script", f"<script>{SENTENCE}</script><p>{SENTENCE}</p>".encode()),
        ("a page of open tags", b"<" * 500_000),
    ]
    attacks = [Attack(name, write("a.csv", content), both, codes=HARMLESS, max_s=4) for name, content in tables]
    attacks += [Attack(name, write("a.jsonl", content), both, codes=HARMLESS, max_s=6) for name, content in values]
    attacks += [
        Attack(name, write("a.html", content), (summaries,), codes=HARMLESS, max_s=6) for name, content in pages
    ]
    names = [
        ("a name with a line break", "a\nERROR forged\n.jsonl"),
        ("a name that steers a terminal", "\x1b]0;x\x07\x1b[2J.jsonl"),
        ("a name that reads backwards", "a\u202elnosj.jsonl"),
        ("a name that is an option", "--out.jsonl"),
    ]
    return attacks + [
        Attack(name, named(file, b'{"text": 1}\n[\n'), (summaries, corpus, stories), codes=HARMLESS, max_s=3)
        for name, file in names
    ]
