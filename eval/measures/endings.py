"""Sentence endings in other speech levels: 갔습니다 ↔ 갔어요 ↔ 갔어 ↔ 갔다 ↔ 갔음.

An ending is replaced only if the morphological analyser (kiwipiepy) is unambiguous about stem, mood and ending, so that
the result is a sentence that somebody would write. Which endings those are depends on the versions of the analyser and
its model.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from eval.measures.keyboard import FINALS

LEVELS = ("formal", "polite", "intimate", "plain", "note")
"""합쇼체, 해요체, 해체(반말), 해라체, 음슴체."""

STATEMENT = {"formal": "습니다", "polite": "어요", "intimate": "어", "plain": "다", "note": "음"}
QUESTION = {"formal": "습니까", "polite": "어요", "intimate": "어", "plain": "냐"}
"""The ending of each level in the analyser's form; joining it with a stem contracts both."""

LEVEL_OF = {
    "습니다": "formal", "ᆸ니다": "formal", "습니까": "formal", "ᆸ니까": "formal",
    "어요": "polite", "에요": "polite", "예요": "polite",
    "어": "intimate", "야": "intimate",
    "다": "plain", "ᆫ다": "plain", "는다": "plain", "냐": "plain",
    "음": "note", "ᆷ": "note",
}  # fmt: skip
ONLY_ASKS = {"습니까", "ᆸ니까", "냐"}
ONLY_STATES = {"습니다", "ᆸ니다", "다", "ᆫ다", "는다", "음", "ᆷ"}

TAKES_YO = (
    "어", "네", "군", "는군", "더군", "지", "거든", "잖아", "더라고", "나", "ᆫ데", "은데", "는데", "던데",
    "ᆫ가", "은가", "는가", "ᆯ까", "을까", "ᆯ게", "을게", "ᆯ걸", "을걸",
)  # fmt: skip
"""Endings of 반말 that 요 makes polite, and that are 반말 again without it, in statements and questions."""

PREDICATES = {"VV", "VA", "VX", "VCP", "VCN", "XSV", "XSA"}
TENSES = {"었", "겠"}
HONORIFICS = {"시", "으시"}
# Verbs to the analyser; conjugated as adjectives as well, or only.
UNSURE_VERBS = {"맞", "모자라", "늦", "크", "밝", "굳", "길", "못되", "안되", "잘나", "못나", "잘생기", "못생기"}
# With these words a sentence may be a question without a question mark, and another ending would make it a statement.
ASKING_WORDS = {
    "누구", "뭐", "무엇", "뭣", "왜", "어디", "언제", "어떻", "어찌", "어쩌", "얼마", "몇", "무슨", "어느", "어떤",
    "웬", "뭔", "얼마나", "어째서", "이것",
}  # fmt: skip
SYMBOLS = {"SF", "SP", "SS", "SSO", "SSC", "SE", "SO", "SW", "W_EMOJI"}
"""The analyser's tags of what may follow an ending: marks, closing quotes, ㅋㅋ, emoji."""
NUMBERS = {"NR", "SN"}
QUESTION_MARKS = {"?", "\uff1f"}
# 있었다|면: characters without a blank in between may belong to a longer ending.
_GOES_ON = re.compile("[가-힣A-Za-z0-9]")


@dataclass(frozen=True)
class _Ending:
    """The end of a predicate, `text[start:end]`, and its forms in other speech levels."""

    start: int
    end: int
    options: Mapping[str, str]


@functools.lru_cache(maxsize=512)
def _endings(text: str) -> tuple[_Ending, ...]:
    """Find the sentence-final endings that can be replaced safely.

    That is: the analyser's morphemes, joined again, are the text; the sentence's mood is unambiguous; and the new
    sentence is analysed as the same morphemes with the new ending.
    """
    from corpora.sentences import kiwi

    tokens = kiwi().tokenize(text)
    found = []
    for _, sentence in groupby(range(len(tokens)), key=lambda k: tokens[k].sent_position):
        words = list(sentence)
        last = next((k for k in reversed(words) if tokens[k].tag not in SYMBOLS), None)
        if last is not None and tokens[last].tag == "EF":
            is_asked = any(QUESTION_MARKS & {*token.form} for token in tokens[last : words[-1] + 1])
            ending = _swap(text, tokens, words[0], last, is_asked=is_asked)
            if ending.options:
                found.append(ending)
    return tuple(found)


def _swap(text: str, tokens: Sequence[Any], first: int, last: int, *, is_asked: bool) -> _Ending:
    """Return the replacements of the ending TOKENS[LAST] of the sentence that begins with TOKENS[FIRST]."""
    stem = last - 1
    while stem >= first and tokens[stem].tag == "EP":
        stem -= 1
    if stem < first or not _is_plain_predicate(tokens, first, stem, last):
        return _Ending(0, 0, {})
    # The copula's form depends on the noun before it, with which it may be contracted (거 + 입니다 → 겁니다).
    begin = stem - 1 if tokens[stem].tag == "VCP" else stem
    start, end = tokens[max(begin, 0)].start, tokens[last].start + tokens[last].len
    unchanged = [(token.form, token.tag) for token in tokens[begin:last]]
    is_cut = begin < first or tokens[begin].tag in NUMBERS or _GOES_ON.match(text, end) is not None
    if is_cut or _join([*unchanged, (tokens[last].form, "EF")]) != text[start:end]:
        return _Ending(0, 0, {})
    candidates = _yo_candidates(text[start:end], tokens[last].form)
    for level, form in _level_candidates(tokens, first, stem, last, is_asked=is_asked):
        candidates.setdefault(level, _join([*unchanged, (form, "EF")]))
    head, tail = ("".join(token.form for token in part) for part in (tokens[:last], tokens[last + 1 :]))
    options = {
        level: new
        for level, new in candidates.items()
        if new != text[start:end] and _reads(text[:start] + new + text[end:], head, level, tail)
    }
    return _Ending(start, end, options)


def _is_plain_predicate(tokens: Sequence[Any], first: int, stem: int, last: int) -> bool:
    """Whether stem, tense and ending follow the rules, and not only the analyser's guess."""
    inner = {token.form for token in tokens[stem + 1 : last]}
    if _tag(tokens[stem]) not in PREDICATES or not inner <= TENSES | HONORIFICS:
        return False
    if stem > first and _tag(tokens[stem - 1]) in PREDICATES:
        return False  # 없져, a jest on 없죠, is read as 없 + 지 + 어
    return (tokens[stem].form, tokens[last].form) != ("알", "냐")  # 아냐 is short for 아니야


def _tag(token: Any) -> str:
    """Return a token's tag without the mark of (ir)regular conjugation."""
    return str(token.tag).removesuffix("-I").removesuffix("-R")


def _join(morphemes: Sequence[tuple[str, str]]) -> str:
    """Join morphemes to text, with the contractions that the analyser lacks: 못해요, 겁니다."""
    from corpora.sentences import kiwi

    joined = str(kiwi().join(morphemes)).replace("하아", "해").replace("하았", "했")
    return re.sub("거입(?=니[다까]$)", "겁", joined) if morphemes[0] == ("거", "NNB") else joined


def _yo_candidates(surface: str, form: str) -> dict[str, str]:
    """Return the polite form of 반말 or the 반말 of a polite form, if they differ in 요 alone."""
    if form == "지":
        return {"polite": surface[:-1] + "죠"}
    if form == "죠":
        return {"intimate": surface[:-1] + "지"}
    if form in TAKES_YO:
        return {"polite": surface + "요"}
    if form.removesuffix("요") != form and form.removesuffix("요") in TAKES_YO:
        return {"intimate": surface.removesuffix("요")}
    return {}


def _level_candidates(
    tokens: Sequence[Any], first: int, stem: int, last: int, *, is_asked: bool
) -> Iterator[tuple[str, str]]:
    """Yield the other levels with their endings, for unambiguous statements and questions."""
    form = tokens[last].form
    level = LEVEL_OF.get(form)
    is_descriptive = _is_descriptive(tokens, first, stem)
    if level is None or not _mood_is_sure(tokens, first, stem, last, is_descriptive, is_asked=is_asked):
        return
    has_tense = _has_tense(tokens, stem, last)
    honours = tokens[last - 1].form in HONORIFICS
    for other, ending in (QUESTION if is_asked else STATEMENT).items():
        if other == level or (honours and other in {"polite", "intimate"}):  # 하시어요 is 하세요, which may ask for it
            continue
        if tokens[stem].tag == "VCP" and not has_tense and ending in {"어요", "어"}:
            yield other, _copula(tokens[stem - 1].form, ending)
        elif tokens[stem].tag == "VCN" and not has_tense and ending in {"어요", "어"}:
            yield other, {"어요": "에요", "어": "야"}[ending]
        elif ending == "다" and not has_tense and is_descriptive is not True:
            if is_descriptive is False:
                yield other, "는다"
        else:
            yield other, ending


def _copula(noun: str, ending: str) -> str:
    """Return the ending of 이다 behind NOUN: 학생이에요, 최고예요, 학생이야."""
    is_open = "가" <= noun[-1] <= "힣" and (ord(noun[-1]) - ord("가")) % len(FINALS) == 0
    return "야" if ending == "어" else "예요" if is_open else "에요"


def _mood_is_sure(
    tokens: Sequence[Any], first: int, stem: int, last: int, is_descriptive: bool | None, *, is_asked: bool
) -> bool:
    """Whether the sentence is an unambiguous question (if IS_ASKED) or statement.

    -어요 and -어 are also imperative and hortative: only the past and adjectives are unambiguous statements.
    """
    form = tokens[last].form
    if is_asked:
        return form not in ONLY_STATES
    if form in ONLY_ASKS or any(token.form in ASKING_WORDS for token in tokens[first:last]):
        return False
    if form in {"다", "음", "ᆷ"} and not _has_tense(tokens, stem, last) and is_descriptive is not True:
        return False  # 먹다 is the dictionary's form, or a headline's; 할 말 잃음 is present or past
    if form in ONLY_STATES:
        return True
    is_past = any(token.form == "었" for token in tokens[stem + 1 : last])
    return is_past or (is_descriptive is True and tokens[stem].form != "있")


def _has_tense(tokens: Sequence[Any], stem: int, last: int) -> bool:
    return any(token.form in TENSES for token in tokens[stem + 1 : last])


def _is_descriptive(tokens: Sequence[Any], first: int, stem: int) -> bool | None:
    """Whether a predicate is conjugated as an adjective (예쁘다) and not as a verb (먹는다); None if ambiguous."""
    form, tag = tokens[stem].form, _tag(tokens[stem])
    before = tokens[stem - 1].form if stem > first else ""
    if form in {"않", "못하"} or (form == "하" and before == "못"):
        return _negated_is_descriptive(tokens, first, stem - (before == "못"))
    if tag in {"VA", "VCP", "VCN", "XSA"} or form == "있" or (form == "하" and before in {"듯", "만", "법", "뻔"}):
        return True
    if tag == "VX":
        return True if form == "싶" else False if before == "어" or (form == "하" and before == "어야") else None
    return None if form in UNSURE_VERBS else False


def _negated_is_descriptive(tokens: Sequence[Any], first: int, negation: int) -> bool | None:
    """Decide by what -지 않다 or -지 못하다 negates; 못하다 without -지 by its own tag."""
    host = negation - 1
    if host >= first and tokens[host].tag == "JX":
        host -= 1
    if host - 1 < first or tokens[host].form != "지" or _tag(tokens[host - 1]) not in PREDICATES:
        return None if tokens[negation].form == "않" else _tag(tokens[negation]) == "VA"
    return _is_descriptive(tokens, first, host - 1)


def _reads(text: str, head: str, level: str, tail: str) -> bool:
    """Whether TEXT is analysed as the morphemes of HEAD, an ending of LEVEL and the morphemes of TAIL."""
    from corpora.sentences import kiwi

    morphemes = "".join(token.form for token in kiwi().tokenize(text))
    if not (morphemes.startswith(head) and morphemes.endswith(tail)):
        return False
    form = morphemes[len(head) : len(morphemes) - len(tail)]
    gained_yo = level == "polite" and (form == "죠" or form[:-1] in TAKES_YO)
    return LEVEL_OF.get(form) == level or gained_yo or (level == "intimate" and form in TAKES_YO)


def ending_positions(text: str) -> list[int]:
    """Return the offsets of the endings that can be replaced."""
    return [ending.start for ending in _endings(text)]


def swap_endings(text: str, struck: Mapping[int, float]) -> str:
    """Replace the chosen endings by the level that the example drew, or by the next one that the sentence allows."""
    parts, done = [], 0
    for ending in _endings(text):
        if ending.start in struck:
            drawn = int(struck[ending.start] * len(LEVELS))
            level = next(level for level in (*LEVELS[drawn:], *LEVELS[:drawn]) if level in ending.options)
            parts += [text[done : ending.start], ending.options[level]]
            done = ending.end
    return "".join([*parts, text[done:]])
