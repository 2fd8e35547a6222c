"""Cleaning documents for pretraining, in ordered steps: edits first, then reasons to drop a document.

Edits take out what no reader of an article reads: control and zero-width characters, blanks beyond one, and the lines
that newsrooms put around a text (bylines, datelines, captions, copyright notices). Then a document is dropped if what
is left is no Korean text worth learning from, if it was there before, or if it is a text that models are evaluated on.
Drops and edits are counted by reason. The rules rather leave a doubtful line than lose a sentence.

>>> document = Document("[서울=물빛통신] 김하늘 기자 = 금리가  올랐다. 총재는 말을 아꼈다.", "1")
>>> next(Cleaner().clean([document], Tally())).text
'금리가 올랐다. 총재는 말을 아꼈다.'
"""

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from corpora.documents import FORMATS, Document, format_of, nfc, parse_json_object, read_lines, read_text
from corpora.foundation.config import Config
from corpora.foundation.errors import DataError
from corpora.sentences import split_by_rules


class CleaningConfig(Config):
    """What is edited and what is dropped."""

    min_chars: int = Field(default=5, ge=0)
    """Characters that a text must have after the edits."""
    min_hangul: float = Field(default=0.3, ge=0, le=1)
    """Share of Hangul that a text's letters must have; 0 lets every text pass."""
    max_repetition: float = Field(default=0.7, gt=0, le=1)
    """Share of a text that one letter or one eojeol may have; 1 lets every text pass."""
    remove_boilerplate: bool = True
    """Take out bylines, datelines, captions, copyright notices and the like."""
    remove_duplicates: bool = True
    """Drop a text that was there before. The digests that tell take 75 to 97 MB per million documents kept."""


@dataclass
class Tally:
    """What happened to the documents of a source."""

    num_read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Documents by the first reason that held."""
    edited: Counter[str] = field(default_factory=Counter)
    """Documents by edit, dropped ones included; a document counts under each edit that changed it."""


class Cleaner:
    """Cleans documents and remembers the texts that it let through, from one source to the next."""

    def __init__(self, config: CleaningConfig | None = None, excluded: Collection[int] = frozenset()) -> None:
        """Start with no text seen.

        Args:
            config: what is edited and dropped.
            excluded: digests of texts that must not get through; see `digests_to_exclude`.
        """
        self.config = config or CleaningConfig()
        self.seen: set[int] = set()
        self._excluded = excluded

    def clean(self, documents: Iterable[Document], tally: Tally) -> Iterator[Document]:
        """Yield what is left of DOCUMENTS, and count the rest in TALLY."""
        for document in documents:
            tally.num_read += 1
            text, edits = edit(document.text, self.config)
            tally.edited.update(edits)
            title = " ".join(remove_invisible(document.title).split())
            reason = reason_to_drop(text, self.config) or self._reason_from_others(text, title)
            if reason is not None:
                tally.dropped[reason] += 1
            else:
                title = "" if title == text else title  # a source of headlines may give them as both
                is_same = text == document.text and title == document.title
                yield document if is_same else replace(document, text=text, title=title)

    def _reason_from_others(self, text: str, title: str) -> str | None:
        """Return why TEXT goes because of another text, or remember it."""
        if not self._excluded and not self.config.remove_duplicates:
            return None
        digest = text_digest(text)
        if self._excluded and (digest in self._excluded or self._quotes_excluded(f"{title}\n{text}")):
            return "excluded"
        if self.config.remove_duplicates:
            if digest in self.seen:
                return "duplicate"
            self.seen.add(digest)
        return None

    def _quotes_excluded(self, text: str) -> bool:
        """Whether a line of TEXT, or a sentence in it, is excluded: the premises of KLUE-NLI are sentences of news."""
        parts = (part for line in text.split("\n") for part in (line, *map(" ".join, split_by_rules(line))))
        return any(text_digest(part) in self._excluded for part in parts if len(part) >= MIN_QUOTE)


# ---- texts that are the same ----

MIN_QUOTE = 20
"""Characters from which on a title, a line or a sentence is no excluded text by chance, as “재밌다” would be."""


NO_LETTERS = re.compile(r"[\W_]+")


def letters_of(text: str) -> str:
    """Return the letters and digits of an NFC text, case folded."""
    return NO_LETTERS.sub("", text.casefold())


def text_digest(text: str) -> int:
    """Return 64 bits that are equal for texts with the same letters and digits, whatever stands between them.

    Texts without any, such as “!!!”, are compared as they are but for white space. Among a hundred million different
    texts, two have the same digest with a probability of 0.03 %.
    """
    squeezed = letters_of(text) or "".join(text.split())
    return int.from_bytes(hashlib.blake2b(squeezed.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def digests_to_exclude(texts: Iterable[str], config: CleaningConfig) -> set[int]:
    """Return the digests by which TEXTS are found among cleaned documents: of each as it is, and as it is cleaned."""
    # The same label or character stands there again and again, in a file of tagged tokens a hundred thousand times.
    forms = (form for text in set(texts) for form in (text, edit(text, config)[0]))
    return {text_digest(form) for form in forms if form}


ENTITY_MARK = re.compile("<([^<>]*):[A-Z]{2}>")


def evaluation_texts(path: Path) -> Iterator[str]:
    """Yield every string of every record of a file, for `--exclude`.

    Of JSON these are all strings however deep, of CSV all fields, and of TSV and plain text (NSMC's files are called
    `.txt`) all lines and their fields between tabs, also without the marks of entities as KLUE-NER has them.

    Raises:
        DataError: the file cannot be read.
    """
    suffix = format_of(path)
    if suffix not in FORMATS:
        raise DataError(path, f"unknown format '{suffix}'", f"use one of {', '.join(FORMATS)}, or .gz of these")
    texts = _records_of(path, suffix) if suffix in {".json", ".jsonl"} else _fields_of(path, suffix)
    yield from (nfc(text) for text in texts if text)


def _records_of(path: Path, suffix: str) -> Iterator[str]:
    if suffix == ".json":
        try:
            yield from _strings(json.loads(read_text(path)))
        except (ValueError, RecursionError) as error:
            raise DataError(path, f"not valid JSON ({error})", "download or export it again") from error
        return
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            record = parse_json_object(line, f"{path}:{number}")
            if isinstance(record, DataError):
                raise record
            yield from _strings(record)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _fields_of(path: Path, suffix: str) -> Iterator[str]:
    if suffix == ".csv":
        try:
            for row in csv.reader(read_lines(path)):
                yield from row
        except csv.Error as error:
            raise DataError(path, f"not valid CSV ({error})", "download or export it again") from error
        return
    for line in read_lines(path):
        yield line.strip()
        for text in line.strip().split("\t") if "\t" in line else ():
            yield text
            if (unmarked := ENTITY_MARK.sub(r"\1", text)) != text:
                yield unmarked


# ---- edits ----

# Categories Cc and Cf without tab and line ends, and the fillers inside a syllable of conjoining jamo. None stands for
# a blank: U+0008 is left in the middle of words by Korean input methods, U+200B where a page may break a line. A joiner
# (U+200D) stays inside an emoji.
INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200c\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001-\U000e007f]|(?<![\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d"
)
GAPS = "\u3164\uffa0\u2800\ufffd"
"""Shown as a gap: Hangul fillers, the empty Braille pattern, and what was lost in decoding."""


def edit(text: str, config: CleaningConfig) -> tuple[str, set[str]]:
    """Return TEXT after all edits, and the names of those that changed it."""
    edits: set[str] = set()
    visible = remove_invisible(text)
    if visible != text:
        edits.add("characters")
    edited = collapse_blanks(visible)
    if edited != visible:
        edits.add("blanks")
    if config.remove_boilerplate:
        edited, kinds = remove_boilerplate(edited)
        edits |= kinds
    return edited, edits


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


# ---- boilerplate ----

_NAME = r"[가-힣]{2,4}"
_ROLE = r"(?:(?:인턴|수습|선임|전문|객원|사진|시민|명예)\s?)?(?:기자|특파원|통신원|리포터|논설위원)"
_REPORTERS = rf"{_NAME}(?:\s?[·,]\s?{_NAME})*\s{{1,2}}{_ROLE}(?:\s?[·,/]?\s?{_NAME}\s{_ROLE})*"
_EMAIL = r"[A-Za-z0-9._+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
_OPEN, _CLOSE = r"[\[(【<〈]", r"[\])】>〉]"
_PLACE = r"[가-힣A-Za-z][가-힣A-Za-z0-9·,/ ]{1,18}"

LONGEST_BOILERPLATE = 150
"""Characters of the longest line that may go as a whole; what is longer is a paragraph."""
MARKS = (*"=@/ⓒ©▲▶☞►", "기자", "특파원", "통신원", "리포터", "논설위원", "저작권", "무단", "opyright", "eserved", "끝")
"""What boilerplate has in it: a text without any of these is not looked at closely."""
DATELINE = re.compile(
    rf"{_OPEN}\s?{_PLACE}=\s?[가-힣A-Za-z0-9.·/ ]{{2,20}}{_CLOSE}\s*(?:{_REPORTERS}\s*=\s*)?"
    rf"|{_OPEN}(?:[가-힣A-Za-z0-9]{{2,12}}[\s=])?{_REPORTERS}{_CLOSE}\s*=?\s*"
    rf"|(?:{_PLACE}=\s?)?{_REPORTERS}\s?=\s+"
)
"""Head of a line with text behind it: (서울=물빛통신) 김하늘 기자 = …, [물빛일보 김하늘 기자] …"""
LINES: Mapping[str, re.Pattern[str]] = {
    # 김하늘 기자 sky@press.example; 글·사진 김하늘 기자; 로스마=한지우 특파원
    "byline": re.compile(
        rf"[-―/]?\s?{_OPEN}?(?:글\s?[·,/]?\s?사진\s?[=:]?\s?)?(?:{_PLACE}=\s?)?{_REPORTERS}"
        rf"(?:\s?[/,|(]?\s?{_EMAIL}\)?)?{_CLOSE}?\.?(?:\s?\(끝\))?"
    ),
    # 제보 jebo@press.example; an address alone
    "email": re.compile(rf"[^.!?@]{{0,25}}{_OPEN}?{_EMAIL}{_CLOSE}?(?:\s?\(끝\))?"),
    # <저작권자 ⓒ 물빛통신, 무단 전재 및 재배포 금지>; but no sentence about the law, and no ⓒⓞⓞⓛ
    "copyright": re.compile(
        r"(?!.*[다요]\.$)(?:.*무단.{0,4}(?:전재|복제|배포|사용|수집).*금지.*|.{0,60}[ⓒ©](?!ⓞ).*|.*저작권자\s?\([cC]\).*"
        r"|.*[Cc]opyright.*|.*[Aa]ll [Rr]ights [Rr]eserved.*)"
    ),
    # … 내리고 있다. /사진=서율일보 길보미 기자; … 주민들. /윤슬타임스; [사진=물빛통신]
    "caption": re.compile(
        r"(?:.*[\s/.\[(【<〈])?(?:사진|그래픽|그림|자료|일러스트|영상)\s?(?:제공|출처|캡처|캡쳐)?(?:\s?[=ⓒ]\s?|\s/\s)"
        rf"[^.!?=]{{2,30}}{_CLOSE}?"
        rf"|.*[.\s]\s?/\s?(?:{_REPORTERS}|[가-힣A-Za-z0-9· ]{{2,18}}(?:제공|신문|일보|통신|뉴스|타임스|경제|매일))"
        r"|.*=\s?사진공동취재단"
    ),
    # ▶ 물빛통신 구독하기
    "promotion": re.compile(r"[▶☞►]\s?[^.]{0,60}(?:구독|바로\s?가기|보러\s?가기|제보|친구\s?추가)(?:하기)?[!~☞▶►]*"),
    "end_mark": re.compile(r"[\[(<]끝[\])>]"),
}
"""Lines that go as a whole."""


def remove_boilerplate(text: str) -> tuple[str, set[str]]:
    """Remove what newsrooms put around an article.

    Some kinds look like text elsewhere. Bylines and lines with an address go only where there are other lines, unless
    they are both at once. A line that begins with ▲ is a caption if it is the only such line among others; several of
    them are a list.

    Args:
        text: a text whose blanks are in order.

    Returns:
        What is left, and the kinds that were found: `dateline` and keys of `LINES`.
    """
    if not _is_marked(text):
        return text, set()
    lines = text.split("\n")
    is_list = sum(line.startswith("▲") for line in lines) != 1
    kinds: set[str] = set()
    kept = []
    for line in lines:
        kind = _kind_of(line, is_only=len(lines) == 1, is_list=is_list)
        if kind is None:
            head = DATELINE.match(line)
            kept.append(line[head.end() :] if head else line)
            kind = "dateline" if head else None
        if kind is not None:
            kinds.add(kind)
    return (collapse_blanks("\n".join(kept)), kinds) if kinds else (text, kinds)


def _is_marked(text: str) -> bool:
    return any(mark in text for mark in MARKS)


def _kind_of(line: str, *, is_only: bool, is_list: bool) -> str | None:
    """Return the kind of boilerplate that LINE is as a whole."""
    if len(line) > LONGEST_BOILERPLATE or not _is_marked(line):
        return None
    if line.startswith("▲") and not is_only and not is_list:
        return "caption"
    kind = next((kind for kind, pattern in LINES.items() if pattern.fullmatch(line)), None)
    is_doubtful = kind == "email" or (kind == "byline" and "@" not in line)
    return None if is_only and is_doubtful else kind


# ---- reasons to drop ----

MIN_UNITS = 5
"""Number of letters, or of eojeol, from which on one of them can be too many."""


def reason_to_drop(text: str, config: CleaningConfig) -> str | None:
    """Return why an edited text is not worth keeping in itself, or None."""
    if not text:
        return "empty"
    if len(text) < config.min_chars:
        return "too_short"
    letters = count_letters(text)
    if hangul_share(letters) < config.min_hangul:
        return "not_korean"
    # Punctuation counts neither way: “정말…………” repeats nothing.
    if max(repetition(letters), repetition(Counter(text.split()))) > config.max_repetition:
        return "repetitive"
    return None


def count_letters(text: str) -> dict[str, int]:
    """Return how often each letter occurs in TEXT."""
    return {character: count for character, count in Counter(text).items() if character.isalpha()}


def hangul_share(letters: Mapping[str, int]) -> float:
    """Return the share of Hangul, single jamo included, among counted letters; 0 if there are none."""
    num_hangul = sum(
        count
        for letter, count in letters.items()
        if "가" <= letter <= "힣" or "ㄱ" <= letter <= "ㆎ" or "\u1100" <= letter <= "\u11ff"
    )
    return num_hangul / sum(letters.values()) if letters else 0.0


def repetition(counts: Mapping[str, int]) -> float:
    """Return the share of the most frequent of counted letters or eojeol; 0 for fewer than `MIN_UNITS` in all."""
    num_units = sum(counts.values())
    return max(counts.values()) / num_units if num_units >= MIN_UNITS else 0.0
