"""Units of a sentence that a headline keeps or leaves out as a whole, and the headline that kept units make.

A unit is an eojeol, or several that mean something else apart: a number with its unit, a short quotation, a negation
with what it negates, a dependent noun or an auxiliary verb with what precedes it. Headlines leave out particles and
the light verb behind a noun: a unit ends either as in the sentence or with its stem.

>>> [unit.text for unit in units_of("강릉시(시장 김영수)는 버스 12 대를 늘리지 않기로 결정했다.")]
['강릉시는', '버스', '12 대를', '늘리지 않기로', '결정했다.']
>>> [unit.stem for unit in units_of("강릉시(시장 김영수)는 버스 12 대를 늘리지 않기로 결정했다.")]
['강릉시', '버스', '12 대', '늘리지 않기로', '결정']
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from downstream.writing.morphemes import analyzer

if TYPE_CHECKING:
    from kiwipiepy import Token

OPENING, CLOSING = "([\u3014\uff08", ")]\u3015\uff09"
IN_BRACKETS = re.compile(
    "|".join(
        rf"\s?{re.escape(left)}[^{re.escape(left + right)}]{{0,80}}{re.escape(right)}"
        for left, right in zip(OPENING, CLOSING, strict=True)
    )
)
QUOTATION = re.compile(r"‘[^‘’]+’|“[^“”]+”|「[^「」]+」|『[^『』]+』|《[^《》]+》|〈[^〈〉]+〉|\"[^\"]+\"|'[^']+'")
MARKS = ("‘“「『《〈\"'" + OPENING, "’”」』》〉\"'" + CLOSING)
"""Opening and closing marks, in pairs."""
LONGEST_QUOTATION = 6
"""Eojeol of a quotation that is kept or left out as a whole."""
END_MARKS = ".,;:!?…·-–—"
PUNCTUATION = ("SF", "SP", "SS", "SE", "SO", "SW", "SB")
NOMINAL = ("N", "XR", "XSN", "SN", "SL", "SH", "W_", "ETN")
"""Tags behind which particles and light verbs can be left out."""
PARTICLES = {"은", "는", "이", "가", "께서", "을", "를", "의", "에", "에서", "에게", "께", "로", "으로", "와", "과"} | {
    "고",
    "라고",
    "이라고",
}
"""Those that a headline can do without; others, such as “까지”, mean something."""
LIGHT_VERBS = ("XSV", "XSA", "VCP")
NEGATIONS = {("않", "VX"), ("못하", "VX"), ("말", "VX"), ("없", "VA"), ("아니", "VCN"), ("안", "MAG"), ("못", "MAG")}
"""Form and tag."""
CANNOT_END = ("ETM", "EC", "MM", "MAJ")
QUOTING = re.compile(r"(?<=[다라자냐])고$")
"""What makes a statement a quoted one."""
REPORTING = {"밝히", "전하"}
"""Verbs behind a quoted statement that a headline does without."""
RELATIVE = {"지난", "오는"}
"""Before a date."""


@dataclass(frozen=True)
class Unit:
    """Words that are kept or left out together."""

    text: str
    stem: str
    """The text without the particle, light verb or quoting ending that ends it, or the text."""
    morphemes: tuple[str, ...]
    """Forms without punctuation."""
    tags: tuple[str, ...]
    """Kiwi's tags of them, without the marks of irregular verbs."""
    num_stem: int
    """Morphemes of the stem."""
    is_topic: bool
    """Whether the tail makes it the topic or the subject."""
    is_listed: bool
    """Whether the tail joins it to the next unit, as “와” does."""
    is_negated: bool
    is_quoted: bool
    """Whether it is a predicate that the next unit quotes; only at the end it is one without its quoting ending."""

    @property
    def needs_previous(self) -> bool:
        """Whether it begins with a verb, which makes no sense without what precedes it."""
        return self.tags[:1] in {("VV",), ("VX",)} and not self.text.startswith(tuple(RELATIVE))

    @property
    def can_end(self) -> bool:
        """Whether a headline may end with its stem; a modifier or a connective asks for what follows."""
        return bool(self.num_stem) and not self.tags[self.num_stem - 1].startswith(CANNOT_END)


def units_of(sentence: str) -> list[Unit]:
    """Divide a sentence, without what stands in brackets."""
    # Kiwi refuses lone surrogates.
    plain = " ".join(IN_BRACKETS.sub("", sentence).split()).encode("utf-8", "replace").decode("utf-8")
    tokens = analyzer().tokenize(plain)
    spans: list[tuple[int, int]] = []
    of_span: list[list[Token]] = []
    for found in re.finditer(r"\S+", plain):
        inside = [token for token in tokens if found.start() <= token.start < found.end()]
        belongs = of_span and (
            plain[slice(*spans[-1])] in RELATIVE
            or _belong_together(of_span[-1], inside)
            or _in_quotation(plain, spans[-1][0], found.start())
        )
        if belongs:
            spans[-1] = spans[-1][0], found.end()
            of_span[-1] += inside
        else:
            spans.append(found.span())
            of_span.append(inside)
    units = [_unit(plain, span, inside) for span, inside in zip(spans, of_span, strict=True)]
    is_reported = len(units) > 1 and units[-1].morphemes[:1] in {(verb,) for verb in REPORTING}
    return units[:-1] if is_reported and QUOTING.search(units[-2].text) else units


def _belong_together(before: "Sequence[Token]", after: "Sequence[Token]") -> bool:
    """Whether two eojeol mean something else if one of them is left out."""
    if not before or not after:
        return False
    last, first = before[-1], after[0]
    if last.tag in {"SN", "NR"} and first.tag in {"SN", "NR", "NNB", "SW"}:
        return True
    if first.tag in {"NNB", "VX"} or (_is_negation(first) and first.tag != "MAG"):
        return True
    return len(before) == 1 and last.tag == "MAG" and _is_negation(last)


def _is_negation(token: "Token") -> bool:
    return (token.form, token.tag.partition("-")[0]) in NEGATIONS


def _in_quotation(text: str, start: int, border: int) -> bool:
    """Whether a short quotation that begins behind START goes on beyond BORDER."""
    return any(
        found.start() < border < found.end() and len(found[0].split()) <= LONGEST_QUOTATION
        for found in QUOTATION.finditer(text, start)
    )


def _unit(text: str, span: tuple[int, int], tokens: "Sequence[Token]") -> Unit:
    start, end = span
    cut = _cut(tokens)
    stem_end = end if cut is None else tokens[cut].start
    tail = [] if cut is None else tokens[cut:]
    words = [token for token in tokens if not token.tag.startswith(PUNCTUATION)]
    tags = [token.tag.partition("-")[0] for token in words]
    is_quoted = cut is None and tags[-1:] == ["EC"] and QUOTING.search(text[start:end]) is not None
    if is_quoted:
        stem_end, tags[-1] = end - 1, "EF"
    num_stem = sum(not token.tag.startswith(PUNCTUATION) for token in tokens[:cut])
    return Unit(
        text=text[start:end],
        stem=text[start:stem_end],
        morphemes=tuple(token.form for token in words),
        tags=tuple(tags),
        num_stem=num_stem,
        is_topic=any(token.tag == "JKS" or token.form in {"은", "는"} for token in tail),
        is_listed=any(token.tag == "JC" for token in tail),
        is_negated=any(map(_is_negation, tokens)),
        is_quoted=is_quoted,
    )


def _cut(tokens: "Sequence[Token]") -> int | None:
    """Return where the tail begins: the last run of particles, or a light verb with its endings, behind a noun.

    What is negated has no tail, for its noun alone would state the opposite.
    """
    if any(map(_is_negation, tokens)):
        return None
    first = len(tokens)
    while first and (tokens[first - 1].tag.startswith(("E", *PUNCTUATION)) or _can_go(tokens[first - 1])):
        first -= 1
    # An ending belongs to the verb before it, unless that is a light one.
    while first < len(tokens) and not _can_go(tokens[first]):
        first += 1
    is_behind_noun = 0 < first < len(tokens) and tokens[first - 1].tag.startswith((*NOMINAL, *PUNCTUATION))
    if not is_behind_noun or tokens[first].start == tokens[0].start:
        return None
    # 말했다, 택했다: the noun is no word by itself.
    is_one_syllable = tokens[first].tag.startswith("XS") and tokens[first].start - tokens[0].start == 1
    return None if is_one_syllable else first


def _can_go(token: "Token") -> bool:
    return token.tag.startswith(LIGHT_VERBS) or (token.tag.startswith("J") and token.form in PARTICLES)


def headline_of(units: Sequence[Unit], kept: Sequence[int], with_tail: Sequence[bool]) -> str:
    """Return the headline of kept units.

    The first topic is set off by a comma, and what was joined by a particle is joined by “·”. A headline ends with a
    stem or with a predicate.

    Args:
        units: of a sentence.
        kept: indices of units, ascending.
        with_tail: whether each kept unit ends as in the sentence.

    >>> units = units_of("강릉시는 버스와 택시를 늘린다고 밝혔다.")
    >>> headline_of(units, [0, 1, 2, 3], [False, False, False, False])
    '강릉시, 버스·택시 늘린다'
    """
    return _balanced("".join(_parts(units, kept, with_tail)).strip(f" {END_MARKS}"))


def _parts(units: Sequence[Unit], kept: Sequence[int], with_tail: Sequence[bool]) -> Iterator[str]:
    has_topic = False
    for place, (k, is_whole) in enumerate(zip(kept, with_tail, strict=True)):
        unit = units[k]
        is_next_kept = k + 1 in kept
        is_last = place + 1 == len(kept)
        may_be_whole = not is_last or unit.text.rstrip(END_MARKS).endswith("다")
        if unit.stem == unit.text or (is_whole and may_be_whole) or (unit.is_quoted and not is_last):
            yield unit.text if is_next_kept else unit.text.rstrip(END_MARKS)
        else:
            yield unit.stem
            if unit.is_listed and is_next_kept:
                yield "·"
                continue
            if unit.is_topic and not has_topic:
                has_topic = True
                yield ","
        yield " "


def _balanced(text: str) -> str:
    """Remove quotation marks and brackets that lost their other half."""
    for left, right in zip(MARKS[0], MARKS[1], strict=True):
        is_whole = text.count(left) % 2 == 0 if left == right else text.count(left) == text.count(right)
        if not is_whole:
            text = text.replace(left, "").replace(right, "")
    return " ".join(text.split())
