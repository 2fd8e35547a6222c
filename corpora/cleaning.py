"""Clean documents for pretraining: edits first, then reasons to drop a document.

Edits remove control and zero-width characters, repeated blanks, and boilerplate (bylines, datelines, captions,
copyright notices). A document is then dropped if the rest is too short, not Korean or repetitive. In doubt a line is
kept. `corpora.pipeline.stages` says what else happens to a document.

>>> edit("[서울=물빛통신] 김하늘 기자 = 금리가  올랐다. 총재는 말을 아꼈다.", CleaningConfig())[0]
'금리가 올랐다. 총재는 말을 아꼈다.'
"""

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from corpora.boilerplate import remove_boilerplate
from corpora.characters import collapse_blanks, nfc, remove_invisible
from corpora.foundation.config import Config
from corpora.foundation.errors import DataError, suggest
from corpora.foundation.plugins import plugins
from corpora.pipeline.privacy import DEFAULT_KINDS, Kind
from corpora.pipeline.quality import low_quality
from corpora.readers.decoding import format_of, read_lines, read_text
from corpora.readers.records import parse_json_object


@dataclass(frozen=True)
class Step:
    """An edit of a plug-in (`pressbert.steps`), run after ours where the settings list it."""

    name: str
    """Give it another name when it edits differently: finished corpora are recognized by it."""
    edit: Callable[[str], str]
    """Text of a document → edited text; an empty one drops the document."""


def _known_steps(names: tuple[str, ...]) -> tuple[str, ...]:
    known = plugins("steps", Step)
    for name in names:
        if name not in known:
            raise ValueError(f"no plug-in has a step '{name}'; {suggest(name, known)}")
    return names


class CleaningConfig(Config):
    """Settings of cleaning."""

    min_chars: int = Field(default=5, ge=0)
    """Fewest characters of a text after the edits."""
    min_hangul: float = Field(default=0.3, ge=0, le=1)
    """Smallest share of Hangul among the letters of a text; 0 keeps every text."""
    max_repetition: float = Field(default=0.7, gt=0, le=1)
    """Largest share of a text that one letter or one eojeol may have; 1 keeps every text."""
    quality: bool = True
    """Drop longer texts by the rules of `corpora.pipeline.quality`."""
    remove_boilerplate: bool = True
    """Remove bylines, datelines, captions, copyright notices and the like."""
    remove_duplicates: bool = True
    """Drop duplicate texts, and near-duplicates."""
    near_duplicates: float = Field(default=0.8, ge=0, le=1)
    """Jaccard index of the letters from which on texts are near-duplicates; 0 keeps them."""
    repeated_lines: float = Field(default=0.005, ge=0, le=1)
    """Share of a source's documents from which on a line that they have in common is removed; 0 keeps such lines."""
    privacy: tuple[Kind, ...] = DEFAULT_KINDS
    """Kinds of personal data that are masked; see `corpora.pipeline.privacy`."""
    # Left out of manifests where there are none, so that finished corpora stay valid.
    steps: Annotated[tuple[str, ...], AfterValidator(_known_steps)] = Field(
        default=(), exclude_if=lambda value: not value
    )
    """Names of steps of plug-ins, run in this order after the edits."""


# ---- texts that are the same ----

MIN_QUOTE = 20
"""Fewest characters of a line that counts as an evaluation text; shorter ones (“재밌다”) match by chance."""


NO_LETTERS = re.compile(r"[\W_]+")


def letters_of(text: str) -> str:
    """Return the letters and digits of an NFC text, case folded."""
    return NO_LETTERS.sub("", text.casefold())


def text_digest(text: str) -> int:
    """Return a 64-bit digest of the letters and digits of a text; other characters do not matter.

    Texts without any, such as “!!!”, are compared without white space. Among a hundred million different
    texts, two have the same digest with a probability of 0.03 %.
    """
    squeezed = letters_of(text) or "".join(text.split())
    return int.from_bytes(hashlib.blake2b(squeezed.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def forms_to_exclude(texts: Iterable[str], config: CleaningConfig) -> set[str]:
    """Return TEXTS as given and as cleaned, to find them among cleaned documents."""
    # A file of tagged tokens repeats the same label or character a hundred thousand times.
    return {form for text in set(texts) for form in (text, edit(text, config)[0]) if form}


EVALUATION_FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".txt")
ENTITY_MARK = re.compile("<([^<>]*):[A-Z]{2}>")


def evaluation_texts(path: Path) -> Iterator[str]:
    """Yield every string of every record of a file, for `--exclude`.

    Of JSON these are all strings however deep, of CSV all fields, and of TSV and plain text (NSMC's files are called
    `.txt`) all lines and their fields between tabs, also without the marks of entities as KLUE-NER has them.

    Raises:
        DataError: the file cannot be read.
    """
    suffix = format_of(path)
    if suffix not in EVALUATION_FORMATS:
        raise DataError(
            path, f"unknown format '{suffix}'", f"use one of {', '.join(EVALUATION_FORMATS)}, or .gz of these"
        )
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
            if "<" in text and (unmarked := ENTITY_MARK.sub(r"\1", text)) != text:
                yield unmarked


# ---- edits ----


def edit(text: str, config: CleaningConfig) -> tuple[str, set[str]]:
    """Return the edited TEXT, and the names of the edits that changed it."""
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
    for name in config.steps:
        before, edited = edited, plugins("steps", Step)[name].edit(edited)
        if edited != before:
            edits.add(name)
    return edited, edits


# ---- reasons to drop ----

HANGUL = re.compile("[가-힣ㄱ-ㆎ\u1100-\u11ff]")
MIN_UNITS = 5
"""Fewest letters or eojeol of a text that can be repetitive."""


def reason_to_drop(text: str, config: CleaningConfig, letters: Mapping[str, int] | None = None) -> str | None:
    """Return why an edited text is dropped because of its own content, or None.

    Args:
        text: as edited.
        config: the limits.
        letters: those of the text, if they are counted already.
    """
    if not text:
        return "empty"
    if len(text) < config.min_chars:
        return "too_short"
    letters = count_letters(text) if letters is None else letters
    if hangul_share(letters) < config.min_hangul:
        return "not_korean"
    # Punctuation counts neither way: “정말…………” repeats nothing.
    if max(repetition(letters), repetition(Counter(text.split()))) > config.max_repetition:
        return "repetitive"
    return low_quality(text) if config.quality else None


def count_letters(text: str) -> dict[str, int]:
    """Return how often each letter occurs in TEXT."""
    return {character: count for character, count in Counter(text).items() if character.isalpha()}


def hangul_share(letters: Mapping[str, int]) -> float:
    """Return the share of Hangul, single jamo included, among counted letters; 0 if there are none."""
    num_hangul = sum(letters[letter] for letter in HANGUL.findall("".join(letters)))
    return num_hangul / sum(letters.values()) if letters else 0.0


def repetition(counts: Mapping[str, int]) -> float:
    """Return the share of the most frequent of counted letters or eojeol; 0 for fewer than `MIN_UNITS` in all."""
    num_units = sum(counts.values())
    return max(counts.values()) / num_units if num_units >= MIN_UNITS else 0.0
