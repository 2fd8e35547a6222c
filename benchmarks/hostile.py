"""What the tools of the desk do with texts that nobody would write: no crash, and places that are exact.

    python -m benchmarks.hostile --number 10000
    python -m benchmarks.hostile --number 10000 --tools proofread awkward

Texts are drawn from several kinds: characters of all planes with lone surrogates, pieces of decomposed syllables, marks
without an end, tags and formulas, one letter without end, blanks of all sorts, and sentences of the embedded sample
with characters put in, taken out and doubled. Every tool gets every text. A place is exact if `text[start:end]` is what
the tool says stands there; places may not lie outside the text.
"""

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from corpora.documents import read_documents
from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.foundation.errors import UsageError, suggest
from corpora.foundation.files import SAMPLE_ROOT, write_text
from corpora.sentences import split_article

Place: TypeAlias = tuple[int, int, str, str]
"""Start, end, what should stand there, and the text that holds it."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "hostile.md"
LONGEST = 80
"""Characters of most texts; one in `EVERY_LONG` has up to `VERY_LONG`."""
EVERY_LONG, VERY_LONG = 200, 3_000
LONGEST_SCORED = 40
"""Characters of a text in which unlikely words are looked for, which takes long."""
HANGUL = "가나다라되돼안않을를이가은는과와의것수있없다요죠까ㅋㅎㅠㅏㅣㄱㄹ각힣"
DECOMPOSED = "".join(map(chr, (*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3))))
BLANKS = " \t\n\r\f\v\x00\x1b\x85\xa0\u200b\u200d\u2028\u2029\u202e\u2060\u3000\u3164\ufeff\ufffe\U000e0001"
SIGNS = "“”‘’\"'「」『』<>()[]{}…·~!?.,;:@#$%^&*_-=+|\\/`°℃\uff05\uff10①ㄱ①"
TAGS = ("<script>alert(1)</script>", "</textarea>", "=1+1", "{{7*7}}", "%s%n", "../../etc", "';--", "[x](javascript:1)")
FAMILY = "👨\u200d👩\u200d👧🇰🇷👍🏽💩"


def hostile_texts(number: int, seed: int = 0) -> Iterator[str]:
    """Yield texts, the same ones for a seed."""
    draw = random.Random(seed)  # noqa: S311
    documents = read_documents(SAMPLE_ROOT / "news.jsonl")
    sentences = [sentence.text for document in documents for sentence in split_article(document.text)]
    kinds: Sequence[Callable[[random.Random, int], str]] = (
        _of_all_planes,
        lambda draw, size: _drawn(draw, HANGUL + BLANKS + SIGNS, size),
        lambda draw, size: _drawn(draw, DECOMPOSED + HANGUL[:8] + " ", size),
        lambda draw, size: _drawn(draw, BLANKS + SIGNS, size),
        lambda draw, size: draw.choice(HANGUL + SIGNS + BLANKS + FAMILY) * size,
        lambda draw, size: " ".join(draw.choice(draw.choice((TAGS, sentences))) for _ in range(1 + size // 60)),
        lambda draw, size: _drawn(draw, FAMILY + "0123456789일이삼ㅅㅣ8" + HANGUL, size),
        lambda draw, _: _broken(draw, draw.choice(sentences)),
        lambda draw, _: _broken(draw, draw.choice(sentences)) + draw.choice(("", " ", "\r\n", "\ud83d")) * 2,
    )
    yield from ("", " ", "\ud800", "\x00", "\ufeff", "\u0301", "가" * VERY_LONG)[:number]
    for k in range(number - 7):
        size = draw.randint(1, VERY_LONG if k % EVERY_LONG == 0 else LONGEST)
        yield draw.choice(kinds)(draw, size)


def _of_all_planes(draw: random.Random, size: int) -> str:
    return "".join(chr(draw.choice((draw.randrange(0x110000), draw.randrange(0x3000)))) for _ in range(size))


def _drawn(draw: random.Random, letters: str, size: int) -> str:
    return "".join(draw.choice(letters) for _ in range(size))


def _broken(draw: random.Random, sentence: str) -> str:
    """Return a sentence with characters put in, taken out and doubled."""
    letters = list(sentence)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(letters) or 1)
        put = draw.choice(BLANKS + SIGNS + FAMILY + DECOMPOSED + "\ud800\udfff\u0301")
        letters[at : at + draw.choice((0, 1))] = [put] * draw.choice((1, 1, 2, 40))
    return "".join(letters)


def proofread_places(text: str) -> Iterator[Place]:
    """Yield the places of corrections."""
    from downstream.proofread import KINDS, proofread

    for found in proofread(text, only=KINDS, quotations=True):
        yield found.start, found.end, found.text, text


def awkward_places(text: str) -> Iterator[Place]:
    """Yield the places of awkward wording, unlikely words included."""
    from downstream.awkward import awkward

    for found in awkward(text, unlikely=len(text) <= LONGEST_SCORED, quotations=True):
        yield found.start, found.end, found.text, text


def complete_places(text: str) -> Iterator[Place]:
    """Complete a text; completions have no places."""
    from downstream.complete import complete

    complete(text, 3)
    yield from ()


def moderate_places(text: str) -> Iterator[Place]:
    """Yield the places of words that carry a comment's score."""
    from downstream.moderate import moderate

    for span in moderate(text, headline=text[:20] or None).spans:
        yield span.start, span.end, span.text, text


def soften_places(text: str) -> Iterator[Place]:
    """Yield the places of edits of proposals."""
    from downstream.moderate import soften

    for proposal in soften(text):
        for edit in proposal.edits:
            yield edit.start, edit.end, edit.text, text


def signals_places(text: str) -> Iterator[Place]:
    """Yield the places of signals of stance, advertising and clickbait."""
    from downstream.advertorial import advertorial
    from downstream.clickbait import clickbait
    from downstream.stance import stance

    title = text[-30:]
    for findings in (stance(text, title), advertorial(text, title), clickbait(title, text)):
        for found in findings.signals:
            yield found.start, found.end, found.text, title if found.part == "title" else text


def changes_places(text: str) -> Iterator[Place]:
    """Yield both places of what a text changed, beside itself turned around."""
    from apps.desk import changes

    other = text[len(text) // 2 :] + " 12억 원이다. " + text[: len(text) // 2]
    for found in changes(text, other):
        yield found.old_start, found.old_end, found.old_text, text
        yield found.new_start, found.new_end, found.new_text, other


def desk_places(text: str) -> Iterator[Place]:
    """Yield the places of all parts of a draft, and write both exports."""
    from apps.desk import Earlier, examine
    from apps.desk.export import to_html, to_text
    from corpora.foundation.texts import Texts

    found = examine(text, text[:30], [Earlier(text[:40], text)])
    for correction in found.corrections:
        yield correction.start, correction.end, correction.text, text
    for part in (*found.summary, *found.bullets, *found.headlines):
        yield part.start, part.end, part.text, text
    texts = Texts("ko", "demo")
    to_text(found, texts)
    to_html(found, texts).encode("utf-8")


TOOLS: Mapping[str, Callable[[str], Iterator[Place]]] = {
    "proofread": proofread_places,
    "awkward": awkward_places,
    "complete": complete_places,
    "moderate": moderate_places,
    "soften": soften_places,
    "signals": signals_places,
    "changes": changes_places,
    "desk": desk_places,
}
"""Tool → the places that it names in a text."""


def judge(tool: str, texts: Sequence[str]) -> tuple[int, list[str]]:
    """Return the number of places that a tool names, and what went wrong, with the text."""
    number = 0
    faults: list[str] = []
    for text in texts:
        try:
            for start, end, stated, whole in TOOLS[tool](text):
                number += 1
                if not 0 <= start <= end <= len(whole) or whole[start:end] != stated:
                    faults.append(f"{tool}: [{start}:{end}] is not {stated!r:.60} in {text!r:.200}")
        except Exception as error:
            # Which errors a text can raise is what is measured.
            faults.append(f"{tool}: {type(error).__name__}: {error!s:.100} of {text!r:.200}")
    return number, faults


def row_of(tool: str, number: int) -> tuple[str, list[str]]:
    """Return the row of a tool and its faults."""
    begun = time.perf_counter()
    places, faults = judge(tool, list(hostile_texts(number)))
    return f"| {tool} | {number:,} | {places:,} | {len(faults)} | {time.perf_counter() - begun:.0f} |", faults


def rows_of(page: Path) -> dict[str, str]:
    """Return the rows of a page by tool; none if there is no page."""
    lines = page.read_text(encoding="utf-8").splitlines() if page.is_file() else []
    return {name: line for line in lines for name in TOOLS if line.startswith(f"| {name} |")}


def page(rows: Mapping[str, str]) -> str:
    """Return the page with the rows of all tools that were measured."""
    shown = "\n".join(rows[name] for name in TOOLS if name in rows)
    return f"""# Hostile texts

`python -m benchmarks.hostile --number NUMBER --tools NAME …`

Characters of all planes, lone surrogates, decomposed syllables, marks without an end, tags, blanks of all sorts, and
broken sentences; every tool gets the same texts, the first of them where the number is lower. *Faults* are crashes, and
places that are not exact.

| tool | texts | places named | faults | s |
| --- | ---: | ---: | ---: | ---: |
{shown}
"""


def main(argv: list[str] | None = None) -> int:
    """Try the tools from the command line."""
    parser = ArgumentParser("python -m benchmarks.hostile", "Try the tools of the desk with hostile texts.")
    parser.add_argument("--number", type=int, default=10_000, help="texts")
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), metavar="NAME", help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--out", type=Path, default=PAGE, help="page; rows of other tools in it stay")
    arguments = parser.parse(argv)
    if unknown := [name for name in arguments.tools if name not in TOOLS]:
        raise UsageError("--tools", f"unknown tool '{unknown[0]}'", suggest(unknown[0], TOOLS))
    rows = rows_of(arguments.out)
    faults: list[str] = []
    for tool in arguments.tools:
        rows[tool], found = row_of(tool, arguments.number)
        faults += found
        write_text(arguments.out, page(rows))
        sys.stdout.write(rows[tool] + "\n")
        sys.stdout.flush()
    sys.stderr.writelines(f"{fault}\n".encode("utf-8", "backslashreplace").decode() for fault in faults[:40])
    return EXIT_FAILED_CELLS if faults else EXIT_DONE


if __name__ == "__main__":
    run_command(main)
