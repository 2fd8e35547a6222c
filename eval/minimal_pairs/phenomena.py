"""Phenomena of KoBLiMP-news: how a sentence is made wrong in one place.

A maker takes a sentence and returns it with one change that makes it ungrammatical, or None if it has no place for it.
The design follows BLiMP (Warstadt et al. 2020): both sentences of a pair have almost the same words.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from downstream.writing.hangul import compose, final_of, is_syllable, parts, with_final

Maker = Callable[[str], str | None]
VERBAL = frozenset("하되있없지키리시오가주보않같많")
"""Syllables before 은 and 는 that often belong to verbs."""
RIEUL = 8
"""Number of the final consonant ㄹ."""
FUTURE = {"지난해": "내년", "작년": "내년", "지난달": "다음 달", "지난주": "다음 주", "어제": "내일", "그저께": "모레"}
PEOPLE_COUNT, THING_COUNT = (
    re.compile(r"(\d|[두세네몇]\s?)명(?=[의을은에과,](?!다)|이\s)"),
    re.compile(r"(\d)개(?=[의를가는와](?![가-힣]))"),
)


@dataclass(frozen=True)
class Phenomenon:
    """One kind of contrast."""

    name: str
    about: str
    make: Maker


def _swap_particle(right: str, wrong: str, *, after_final: bool) -> Maker:
    """Return a maker that writes the form of a particle that does not fit the final consonant before it."""
    ending = re.compile(rf"(?<=[가-힣]{{2}}){right}(?=[\s,.])")

    def make(sentence: str) -> str | None:
        for found in ending.finditer(sentence):
            before = sentence[found.start() - 1]
            # 하는, 있는: an ending and no particle.
            if right in "은는" and before in VERBAL:
                continue
            final = final_of(before)
            if (final > 0) == after_final:
                return sentence[: found.start()] + wrong + sentence[found.end() :]
        return None

    return make


def _replace(pattern: str, wrong: str) -> Maker:
    compiled = re.compile(pattern)

    def make(sentence: str) -> str | None:
        changed = compiled.sub(wrong, sentence, count=1)
        return changed if changed != sentence else None

    return make


def _either(*makers: Maker) -> Maker:
    """Return a maker that takes turns, by the length of the sentence, so that all forms occur."""

    def make(sentence: str) -> str | None:
        start = len(sentence) % len(makers)
        for maker in (*makers[start:], *makers[:start]):
            if (made := maker(sentence)) is not None:
                return made
        return None

    return make


def _genitive(sentence: str) -> str | None:
    """Write an object particle between two nouns: 학교의 역사 → 학교를 역사."""
    for found in re.finditer(r"(?<=[가-힣]{3})의\s(?=[가-힣]{2,})", sentence):
        if final_of(sentence[found.start() - 1]) == 0:
            return f"{sentence[: found.start()]}를 {sentence[found.end() :]}"
    return None


def _harmony(sentence: str) -> str | None:
    """Write -었- for -았- and the reverse: 받았다 → 받었다."""
    for found in re.finditer(r"(?<=[가-힣])([았었])(?=[다던는으고을])", sentence):
        stem = sentence[found.start() - 1]
        lead, vowel, final = parts(stem)
        if final == 0 or lead < 0 or vowel < 0:
            continue
        wrong = "었" if found[1] == "았" else "았"
        return sentence[: found.start()] + wrong + sentence[found.end() :]
    return None


def _adnominal(sentence: str) -> str | None:
    """Write a final ending before a noun: 하는 것 → 한다 것."""
    for found in re.finditer(r"(?<=[가-힣])는\s(?=것|방법|사람|경우|곳|기능|데이터|서비스)", sentence):
        stem = sentence[found.start() - 1]
        if not is_syllable(stem) or stem in "있없에서지라다자까":
            continue
        final = final_of(stem)
        written = with_final(stem, 4) + "다 " if final == 0 else stem + "는다 "
        return sentence[: found.start() - 1] + written + sentence[found.end() :]
    return None


def _polarity(sentence: str) -> str | None:
    """Take the negation from a word that needs one: 밖에 없다 → 밖에 있다."""
    found = re.search(
        r"(?:밖에|전혀|결코|별로|아무도|아무런|아무것도|더\s?이상|도저히)[^.]{0,22}?(없(?=[다습는었을이고어으]))",
        sentence,
    )
    if not found:
        return None
    at = found.start(1)
    wrong = "있" if sentence[at + 1] != "이" else None
    return sentence[:at] + wrong + sentence[at + 1 :] if wrong else None


def _tense(sentence: str) -> str | None:
    """Put an adverb of the future beside a past ending: 지난해 … 했다. → 내년 … 했다."""
    if not re.search(r"(?:[했됐였렸졌았었났왔갔웠쳤겼]다|[했됐였렸졌았었났왔갔웠쳤겼]습니다)\.$", sentence):
        return None
    for past, future in FUTURE.items():
        if found := re.search(rf"(?<![가-힣]){past}(?=\s|에|의|부터)", sentence):
            return sentence[: found.start()] + future + sentence[found.end() :]
    found = re.search(r"(?<![가-힣])지난(?=\s\d+[월일])", sentence)
    return sentence[: found.start()] + "오는" + sentence[found.end() :] if found else None


def _counter(sentence: str) -> str | None:
    """Count people as animals, and things as people."""
    if found := PEOPLE_COUNT.search(sentence):
        at = found.end() - 1
        behind = {"이": "가", "은": "는", "을": "를", "과": "와"}.get(sentence[at + 1], sentence[at + 1])
        return sentence[:at] + "마리" + behind + sentence[at + 2 :]
    if found := THING_COUNT.search(sentence):
        at = found.end() - 1
        behind = {"가": "이", "는": "은", "를": "을", "와": "과"}.get(sentence[at + 1], sentence[at + 1])
        return sentence[:at] + "명" + behind + sentence[at + 2 :]
    return None


def _speech_level(sentence: str) -> str | None:
    """End a sentence of the humble 저, 제 in the plain style: 저는 … 합니다. → 저는 … 한다."""
    if not re.search(r"(?<![가-힣])(?:저는|저도|저의|제가|저희는|저희가|저희)(?=\s)", sentence):
        return None
    found = re.search(r"([가-힣])(니다)\.$", sentence)
    if not found or final_of(found[1]) != 17:
        return None
    stem = found[1]
    lead, vowel, _ = parts(stem)
    before = sentence[: found.start(1)]
    if stem == "습":
        return (before + "다.") if before and final_of(before[-1]) == 20 else None
    if stem == "입":
        return before + "이다."
    return before + compose(lead, vowel, 4) + "다."


def _spacing_split(sentence: str) -> str | None:
    """Separate a particle from its noun: 학교에서 → 학교 에서."""
    found = re.search(r"(?<=[가-힣]{2})(에서|에게|부터|까지|처럼|보다|으로)(?=\s)", sentence)
    return f"{sentence[: found.start()]} {sentence[found.start() :]}" if found else None


def _direction(sentence: str) -> str | None:
    """Write 로 for 으로 and the reverse."""
    for found in re.finditer(r"(?<=[가-힣]{2})(으로|로)(?=\s)", sentence):
        final = final_of(sentence[found.start() - 1])
        if found[1] == "으로" and final > 0 and final != RIEUL:
            return sentence[: found.start()] + "로" + sentence[found.end() :]
        if found[1] == "로" and final in (0, RIEUL) and sentence[found.start() - 1] != "으":
            return sentence[: found.start()] + "으로" + sentence[found.end() :]
    return None


PHENOMENA: Sequence[Phenomenon] = (
    Phenomenon(
        "object-particle",
        "을/를 after a final consonant or none",
        _either(_swap_particle("을", "를", after_final=True), _swap_particle("를", "을", after_final=False)),
    ),
    Phenomenon(
        "topic-particle",
        "은/는",
        _either(_swap_particle("은", "는", after_final=True), _swap_particle("는", "은", after_final=False)),
    ),
    Phenomenon(
        "subject-particle",
        "이/가",
        _either(_swap_particle("이", "가", after_final=True), _swap_particle("가", "이", after_final=False)),
    ),
    Phenomenon(
        "and-particle",
        "과/와",
        _either(_swap_particle("과", "와", after_final=True), _swap_particle("와", "과", after_final=False)),
    ),
    Phenomenon("direction-particle", "으로/로", _direction),
    Phenomenon(
        "genitive-case",
        "an object particle between two nouns",
        _genitive,
    ),
    Phenomenon(
        "particle-order", "에서는 → 는에서", _replace(r"(?<=[가-힣]{2})(에서|에게|에|으로|로)(는|도)(?=\s)", r"\2\1")
    ),
    Phenomenon("negative-polarity", "a word that needs a negation", _polarity),
    Phenomenon("tense-adverb", "an adverb of the future and a past ending", _tense),
    Phenomenon(
        "doe-dwae",
        "되 and 돼",
        _either(
            _replace(r"되(?=고|는|지|며|면|기|게|므로|거나)", "돼"),
            _replace(r"돼(?=야|서|요|\s있)", "되"),
            _replace(r"된(?=다\.)", "됀"),
        ),
    ),
    Phenomenon(
        "an-anh",
        "안 and 않",
        _either(
            _replace(r"(?<=지\s)않(?=는|고|은|았|습|을|으|도|아|게)", "안"),
            _replace(r"(?<![가-힣])안\s(?=되|돼|된|하|해|했)", "않 "),
        ),
    ),
    Phenomenon("counter", "people, animals and things are counted with other words", _counter),
    Phenomenon(
        "quoting-ending",
        "-다고 and -라고",
        _either(
            _replace(r"(?<=[했됐였었았있없])다(?=고\s(?:말|밝|설명|전|주장|강조|보|생각|덧|하|지적|했|발표))", "라"),
            _replace(r"(?<=이)라(?=고\s(?:말|밝|설명|전|주장|강조|하|했|부))", "다"),
        ),
    ),
    Phenomenon("spacing", "a particle is no word", _spacing_split),
    Phenomenon("speech-level", "the humble 저 and a plain ending", _speech_level),
    Phenomenon("vowel-harmony", "-았- and -었-", _harmony),
    Phenomenon("adnominal-ending", "a final ending before a noun", _adnominal),
)
"""All phenomena."""
BY_NAME: Mapping[str, Phenomenon] = {phenomenon.name: phenomenon for phenomenon in PHENOMENA}
