"""Blanks that are missing or too many: what a model of letters and a morphological analysis agree on.

The model is sure of much that is common; the analysis knows which words are particles, endings, bound nouns and
auxiliaries. Where the analysis asks for a blank, or against one, little certainty of the model is enough; where it
leaves both open, as between the nouns of a compound, nothing is changed unless the model is very sure.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from downstream.writing.edits import Edit
from downstream.writing.hangul import is_syllable
from downstream.writing.linear import GapModel, Letters
from downstream.writing.morphemes import Morpheme

LONG_NOUN = 4
"""Letters of a compound that may well be a name: 광주예술의전당, 우리정책연구원."""
BLOCK = 20_000
"""Letters that are scored together."""
FREE_MODIFIERS = frozenset((*"각본전타총제매새한양귀현구신첫온맨주부대소고저순참", "오른", "왼"))
"""Determiners that many words are written together with."""
ONE_WORDS = frozenset(
    {"단둘", "참다못하", "보다못하"}
    | {size + noun for size in ("작은", "큰") for noun in ("방", "딸", "아들", "집", "형", "누나", "아버지", "어머니")}
)
"""Words that look like two."""
INSTITUTIONS = (
    *("병원", "교회", "성당", "미술관", "박물관", "전당", "도서관", "학교", "대학", "센터", "재단", "협회", "극장"),
    *("은행", "연대", "연합", "신문", "방송", "장터", "당"),
)
"""Ends of names that may hold whole phrases: 광주예술의전당."""
SEPARATE_ADVERBS = frozenset(
    {
        "안",
        "못",
        "더",
        "꼭",
        "좀",
        "너무",
        "많이",
        "빨리",
        "정말",
        "진짜",
        "아주",
        "매우",
        "자주",
        "가장",
        "모두",
        "다시",
        "아직",
        "이미",
        "바로",
        "계속",
        "서로",
        "직접",
        "먼저",
        "그냥",
        "별로",
        "절대",
        "항상",
        "늘",
        "또",
        "다",
        "왜",
        "이렇게",
        "그렇게",
        "어떻게",
        "열심히",
        "제대로",
        "완전",
        "조금",
        "훨씬",
        "점점",
    }
)
APART = frozenset({"NNP", "MAG", "MM", "ETM", "EF", "SN", "NR", "SL"})
"""Tags before words that stand alone."""
SEPARATE_TAGS = frozenset({"XPN", "XR", "SL", "SN", "SH"})
"""Tags that begin like those of particles and suffixes."""
LIKE_VERBS = frozenset("듯만법척체양뻔번성")
"""Bound nouns that form a verb with 하다 or 싶다."""
REASONS = {
    "bound": "의존 명사는 앞말과 띄어 씁니다.",
    "modifier": "꾸미는 말과 꾸밈을 받는 말은 띄어 씁니다.",
    "particle": "조사 뒤에 오는 말은 띄어 씁니다.",
    "auxiliary": "이 보조 용언은 앞말과 띄어 씁니다.",
    "verb": "두 용언은 띄어 씁니다.",
    "adverb": "부사는 뒷말과 띄어 씁니다.",
    "": "낱말과 낱말은 띄어 씁니다.",
}
JOIN_REASON = "앞말에 붙여 씁니다."


@dataclass(frozen=True)
class Thresholds:
    """Log-odds of the model from which on a blank is changed."""

    asked: float = 0.5
    """The analysis asks for the blank."""
    open: float = 5.0
    """The analysis leaves it open."""
    nouns: float = 6.0
    """Between two nouns, which may form a compound or a name."""
    joined_asked: float = 0.5
    joined_open: float = 6.0


def spacing_edits(
    text: str, sentences: Sequence[list[Morpheme]], model: GapModel, thresholds: Thresholds
) -> Iterator[Edit]:
    """Yield blanks to put in and to take out.

    Args:
        text: in composed form.
        sentences: morphemes of its sentences.
        model: of blanks.
        thresholds: from which on a blank is changed.
    """
    odds = gap_odds(text, model)
    for morphemes in sentences:
        for k in range(1, len(morphemes)):
            before, at = morphemes[k - 1].end, morphemes[k].start
            # Only between syllables: what belongs around numbers and signs is another question.
            if at not in odds or not (is_syllable(text[before - 1]) and is_syllable(text[at])):
                continue
            blank = text[before:at]
            if before == at:
                edit = _missing(morphemes, k, odds[at], thresholds)
            elif blank.isspace() and "\n" not in blank:
                edit = _needless(text, morphemes, k, odds[at], thresholds)
            else:
                continue
            if edit:
                yield edit


def _missing(morphemes: Sequence[Morpheme], k: int, odds: float, thresholds: Thresholds) -> Edit | None:
    verdict = wants_blank(morphemes, k)
    if verdict is None:
        return None
    need = thresholds.asked
    if verdict == "":
        is_compound = morphemes[k - 1].tag[:2] == "NN" and morphemes[k].tag[:2] == "NN"
        need = thresholds.nouns if is_compound else thresholds.open
    elif verdict in {"modifier", "particle", "verb"} and _may_be_name(morphemes, k):
        need = thresholds.open
    if odds <= need:
        return None
    at = morphemes[k].start
    return Edit(at, at, " ", "spacing", REASONS[verdict], certainty(odds, bool(verdict)))


def _needless(text: str, morphemes: Sequence[Morpheme], k: int, odds: float, thresholds: Thresholds) -> Edit | None:
    asked = wants_joining(text, morphemes, k)
    if asked is None or odds >= -(thresholds.joined_asked if asked else thresholds.joined_open):
        return None
    return Edit(morphemes[k - 1].end, morphemes[k].start, "", "spacing", JOIN_REASON, certainty(-odds, asked))


def _may_be_name(morphemes: Sequence[Morpheme], k: int) -> bool:
    """Return whether the nouns from a morpheme on are a long compound or end as names of institutions do."""
    nouns = list(itertools.takewhile(lambda m: m.tag[:2] in {"NN", "XS", "XP"}, morphemes[k:]))
    length = nouns[-1].end - morphemes[k].start if nouns else 0
    is_long = length >= LONG_NOUN and morphemes[k - 1].tag in {"ETM", "MM", "MAG", "NP"}
    return is_long or any("".join(m.form for m in nouns).endswith(end) for end in INSTITUTIONS)


def certainty(odds: float, is_asked: bool) -> float:
    """Return a confidence: that of the model, raised where the analysis agrees."""
    return float(1 / (1 + np.exp(-(odds + (3.0 if is_asked else -1.0)))))


def gap_odds(text: str, model: GapModel) -> dict[int, float]:
    """Return the log-odds of a blank before each letter of a text, by its offset."""
    odds: dict[int, float] = {}
    for start in range(0, len(text), BLOCK):
        # Letters at the borders are scored with their neighbours.
        first = max(0, start - 20)
        letters = Letters.of(text[first : start + BLOCK + 20])
        if not len(letters.codes):
            continue
        scores = model.log_odds(letters)
        for position, score in zip(letters.positions.tolist(), scores.tolist(), strict=True):
            if start <= first + position < start + BLOCK:
                odds[first + position] = score
    return odds


def wants_blank(morphemes: Sequence[Morpheme], k: int) -> str | None:
    """Return why the analysis asks for a blank before a morpheme.

    Returns:
        A key of `REASONS`; empty where either is possible, None where none may stand.
    """
    before, behind = morphemes[k - 1], morphemes[k]
    is_bound = behind.tag in {"VCP", "VCN"} or (behind.tag[0] in "JEXS" and behind.tag not in SEPARATE_TAGS)
    if is_bound or before.tag in {"XPN", "SS", "SO", "SW"} or before.start == behind.start:
        return None
    if before.form + behind.form in ONE_WORDS:
        return None
    if before.tag == "EC":
        return _after_connective(before, behind)
    if before.tag == "NNB" and behind.tag[0] == "V":
        # 할 듯하다, 할 만하다 are also written as one verb.
        return "" if before.form in LIKE_VERBS else "bound"
    if before.tag in {"ETM", "MM", "MAG"}:
        # 원숭이두창: what seems to be a determiner inside a word.
        is_inside = before.tag == "MM" and k > 1 and morphemes[k - 2].end == before.start
        return "" if is_inside else _after_modifier(before, behind)
    if before.tag[0] == "J":
        # 정은남, 국민의힘: what looks like a particle in a name.
        noun = morphemes[k - 2] if k > 1 else None
        is_short = noun is not None and noun.end == before.start and noun.end - noun.start == 1
        is_name = is_short and behind.tag[0] != "V"
        is_sure = behind.is_known and (behind.tag[0] == "V" or behind.end - behind.start > 1)
        return "particle" if behind.tag[0] in "NVM" and is_sure and not is_name else ""
    if before.tag == "NP" and before.form in {"우리", "저희", "누구"} and behind.tag[:2] == "NN":
        return "modifier"
    is_noun = before.tag[:2] in {"NN", "NP"} or before.tag in {"XSN", "ETN"}
    # 점등되다: a verb, and no enumeration.
    is_verb = k + 1 < len(morphemes) and morphemes[k + 1].tag == "XSV" and morphemes[k + 1].start == behind.end
    return "bound" if is_noun and not is_verb and behind.tag == "NNB" and behind.form in {"때문", "등", "따위"} else ""


def _after_connective(before: Morpheme, behind: Morpheme) -> str:
    # 해보다, 되어있다 are allowed.
    is_open = before.form in {"어", "아", "여"}
    if behind.tag[0] in "NM":
        return "verb"
    if behind.tag[0] != "V" or is_open:
        return ""
    return "auxiliary" if behind.tag[:2] == "VX" else "verb"


def _after_modifier(before: Morpheme, behind: Morpheme) -> str:
    if before.tag == "ETM":
        if behind.tag == "NNB":
            return "" if behind.form in LIKE_VERBS else "bound"
        return "modifier" if behind.tag[0] in "NVM" else ""
    if before.tag == "MM":
        is_free = before.form in FREE_MODIFIERS or (behind.tag == "NNB" and before.form == "그") or not behind.is_known
        return "" if is_free else "modifier"
    is_sure = before.form in SEPARATE_ADVERBS or (len(before.form) > 1 and before.form[-1] in "히게로")
    return "adverb" if is_sure and behind.tag[0] in "VM" else ""


def wants_joining(text: str, morphemes: Sequence[Morpheme], k: int) -> bool | None:
    """Return whether the analysis asks for a morpheme to be joined to the one before; None where it may not be."""
    before, behind = morphemes[k - 1], morphemes[k]
    if behind.tag[0] in "JE" or behind.tag in {"VCP", "XSN", "XSV", "XSA"}:
        if before.tag in {"SN", "NR", "MAG"} or before.tag[0] == "J":
            return None
        # A particle or an ending closes its eojeol; a guess in the middle of a name does not.
        rest = next((m.start for m in morphemes[k:] if m.tag[0] not in "JEXV"), None)
        is_end = rest is None or text[rest - 1].isspace() or not text[rest].isalnum()
        return True if is_end else None
    if before.tag == "EC" and before.form in {"어", "아", "여"} and behind.tag[:2] == "VX" and behind.form == "지":
        return True
    is_apart = before.tag in APART or before.tag[0] == "J" or behind.tag == "NNP"
    # Nouns may be written apart, even where most write them together; a verb never joins the noun behind it.
    are_words = all(m.tag == "NNG" and m.is_known and m.end - m.start > 1 for m in (before, behind))
    is_verb = before.tag == "EC" and behind.tag[:2] == "NN"
    return None if is_apart or are_words or is_verb else False
