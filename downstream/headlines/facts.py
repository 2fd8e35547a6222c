"""Numbers and names of a text, and which of a headline's are not in it.

A number counts with its unit: a text with “3명” does not support “3개”. Digits, Korean magnitudes and number words
before a counter are the same number: 3만5천 명, 35,000명; 두 명, 2명. A number without a unit may have any in the text.
Quantities in words, such as 절반 or 수십, must occur as they are.

Names are Kiwi's proper nouns, and words in Latin letters or Hanja. A name must be a noun of the text, or stand there
between a border and a particle: 김철 is not supported by 김철수.

>>> invented("참가자 35,000명 모여", "축제에 3만5천 명이 모였다. 지난해에는 2만 명이었다.")
()
>>> invented("참가자 3만 명 모여", "축제에 3만5천 명이 모였다.")
('3만 명',)
"""

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from corpora.sentences import split_article
from downstream.writing.morphemes import analyzer

SMALL = {"십": 10, "백": 100, "천": 1000}
LARGE = {"만": 10**4, "억": 10**8, "조": 10**12}
GROUP = re.compile(r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?P<magnitude>[십백천]?[만억조]|[십백천])?")
"""A number in digits with its magnitude; several of them may make one number, as in 1조 2천억."""
MOST_GROUPS = 16
"""Of a number: 조, 억, 만 and none, each with 천, 백, 십 and none."""
SIGN = re.compile(r"(?:(?<=[\s(])|^)[-−–△▽](?=\d)|영하\s?(?=\d)")
RANGE = re.compile(r"\s?[~\u223c\u301c–-]\s?(?=\d)|에서\s?(?=\d)")
"""Between two numbers that share a unit."""
NATIVE = {"하나": 1, "한": 1, "둘": 2, "두": 2, "셋": 3, "세": 3, "석": 3, "넷": 4, "네": 4, "다섯": 5, "여섯": 6}
NATIVE |= {"일곱": 7, "여덟": 8, "아홉": 9}
NATIVE_TENS = {"열": 10, "스물": 20, "스무": 20, "서른": 30, "마흔": 40, "쉰": 50, "예순": 60, "일흔": 70}
NATIVE_TENS |= {"여든": 80, "아흔": 90}
SINO = {"일": 1, "이": 2, "삼": 3, "사": 4, "오": 5, "육": 6, "칠": 7, "팔": 8, "구": 9}
UNIT_NAMES = (
    "명 인 사람 분 원 달러 유로 엔 위안 건 개 개월 개소 개국 곳 년 년대 년도 월 일 주 주년 주일 시 시간 초 회 차 차례 "
    "번 번째 위 호 호선 호기 층 가구 세대 세 살 대 마리 권 편 장 배 점 점대 도 톤 그램 킬로그램 면 동 평 종 가지 팀 "
    "쌍 잔 그루 채 척 학년 학기 학급 기 단계 등 등급 급 미터 킬로미터 센티미터 제곱미터 리터 킬로와트 메가와트 "
    "기가와트 퍼센트 프로 퍼센트포인트 포인트 자리 조각 과목 강 막 부 절 조 항 달 해 끼 줄 칸 필지 개교 개사 개팀 석"
)
UNITS = sorted(UNIT_NAMES.split(), key=len, reverse=True)
SAME_UNIT = {
    "퍼센트": "%",
    "프로": "%",
    "퍼센트포인트": "%p",
    "킬로미터": "km",
    "미터": "m",
    "센티미터": "cm",
    "인": "명",
}
SAME_UNIT |= {"사람": "명", "킬로그램": "kg", "그램": "g", "톤": "t", "제곱미터": "m2", "살": "세", "차례": "회"}
SAME_UNIT |= {"년도": "년", "해": "년", "개교": "개", "개사": "개", "개팀": "팀", "개소": "곳"}
WORD_COUNTERS = (
    r"(?:명|사람|개월|개국|개|건|곳|번째|번|차례|달|살|마리|가지|권|대|채|시간|배|해|분|팀|쌍|잔"
    r"|가구|그루|척|주|줄|끼|칸)"
)
SINO_COUNTERS = (
    r"(?:명|개월|개국|개|건|년|월|일|회|차|위|층|배|원|달러|주년|가구|곳|세대|세|톤|퍼센트|시간|분|초|점|호|번째|번|대)"
)
NATIVE_NUMBER = re.compile(
    rf"(?<![가-힣])(?P<tens>{'|'.join(NATIVE_TENS)})?(?P<ones>{'|'.join(NATIVE)})?\s?(?P<unit>{WORD_COUNTERS})"
)
SINO_NUMBER = re.compile(
    rf"(?<![가-힣\d])(?P<number>[일이삼사오육칠팔구십백천만억조]{{2,}})\s?(?:여\s?)?(?P<unit>{SINO_COUNTERS})"
)
IN_WORDS = re.compile(r"절반|반값|반토막|갑절|곱절|수십|수백|수천|수만|수억|수조|(?<![가-힣])첫(?![가-힣])")
JOSA = (
    "은|는|이|가|을|를|의|에|와|과|도|로|으로|에서|에게|께|께서|만|까지|부터|보다|처럼|이나|나"
    "|이며|이고|라고|이라|측|씨|님"
)
ALL_UNITS = rf"%p|%|℃|㎡|㎞|[a-zA-Z]+[23²³]?|{'|'.join(UNITS)}"
CLEAR_UNITS = "명|원|건|개월|개소|년|월|일|시간|퍼센트|달러|유로|가구|세대|곳|톤|킬로미터|미터|차례|번째|사람|마리"
"""Units that do not begin another word behind a space, as 조 does in 12 조회수."""
UNIT = re.compile(
    rf"여?(?P<unit>{ALL_UNITS})"
    rf"|\s(?:여\s?)?(?P<apart>{CLEAR_UNITS}|(?:{ALL_UNITS})(?=(?:{JOSA})?(?![가-힣])))"
)
NAME_TAGS = ("NNP", "SL", "SH")
PIECE = re.compile(r"\S.{0,999}(?!\S)|\S{1,1000}", re.S)
"""At most 1,000 characters up to a blank, or as many without one."""
WORD_TAGS = (*NAME_TAGS, "NNG", "NNB", "NR", "XR", "SN", "W_SERIAL")


@dataclass(frozen=True)
class Quantity:
    """A number of a text."""

    value: Decimal
    unit: str
    """One spelling of each unit; empty if there is none."""
    text: str


def quantities(text: str) -> list[Quantity]:
    """Return the numbers of a text, those in words included."""
    plain = unicodedata.normalize("NFKC", text)
    return [*_in_digits(plain), *_native(plain), *_sino(plain)]


def _in_digits(text: str) -> Iterator[Quantity]:
    groups = list(GROUP.finditer(text))
    behind_signs = {found.end() for found in SIGN.finditer(text)}
    number = 0
    while number < len(groups):
        first = groups[number]
        value, count = _number(text, groups[number : number + MOST_GROUPS])
        last = groups[number + count - 1]
        number += count
        unit = _unit_behind(text, last.end())
        is_negative = first.start() in behind_signs
        is_next = unit is not None and not GROUP.search(text, last.end(), unit.start())
        end = unit.end() if unit and is_next else last.end()
        signed = -value if is_negative else value
        yield Quantity(signed, _unit(unit["unit"] or unit["apart"]) if unit else "", text[first.start() : end])


def _number(text: str, groups: Sequence[re.Match[str]]) -> tuple[Decimal, int]:
    """Return the number that begins with the first group, and how many groups it has: 6억 4천680만 has three."""
    total = block = Decimal(0)
    room = Decimal("Infinity")  # a further group is smaller than the magnitude before it
    count = 0
    for group in groups:
        small, large = _magnitudes(group["magnitude"] or "")
        value = Decimal(group["digits"].replace(",", "")) * small
        if count and (text[groups[count - 1].end() : group.start()] not in {"", " "} or value >= room):
            break
        if count and not block and value * large >= room:
            break
        count += 1
        if large > 1:
            total, block, room = total + (block + value) * large, Decimal(0), Decimal(large)
        else:
            block, room = block + value, Decimal(small)
        if small * large == 1:
            break
    return total + block, count


def _magnitudes(letters: str) -> tuple[int, int]:
    """Return the magnitudes up to 천 and from 만 on of 천만, as factors."""
    small = large = 1
    for letter in letters:
        small, large = small * SMALL.get(letter, 1), large * LARGE.get(letter, 1)
    return small, large


def _unit_behind(text: str, end: int) -> re.Match[str] | None:
    """Return the unit of a number that ends at END; that of 25 in 25~30명 is 명."""
    unit = UNIT.match(text, end)
    border = None if unit else RANGE.match(text, end)
    if border is None:
        return unit
    following = GROUP.match(text, border.end())
    return UNIT.match(text, following.end()) if following else None


def _unit(name: str) -> str:
    lower = name.lower().replace("²", "2").replace("³", "3")
    return SAME_UNIT.get(lower, lower)


def _native(text: str) -> Iterator[Quantity]:
    for found in NATIVE_NUMBER.finditer(text):
        if found["tens"] or found["ones"]:
            value = NATIVE_TENS.get(found["tens"] or "", 0) + NATIVE.get(found["ones"] or "", 0)
            yield Quantity(Decimal(value), _unit(found["unit"]), found[0])


def _sino(text: str) -> Iterator[Quantity]:
    for found in SINO_NUMBER.finditer(text):
        total = block = digit = 0
        for letter in found["number"]:
            if letter in SINO:
                digit = SINO[letter]
            elif letter in SMALL:
                block, digit = block + (digit or 1) * SMALL[letter], 0
            else:
                total, block, digit = total + ((block + digit) or 1) * LARGE[letter], 0, 0
        yield Quantity(Decimal(total + block + digit), _unit(found["unit"]), found[0])


@dataclass(frozen=True)
class Facts:
    """What a text supports."""

    text: str
    """NFKC."""
    numbers: frozenset[tuple[Decimal, str]]
    words: frozenset[str]
    """Nouns and foreign words, case-folded."""

    @classmethod
    def of(cls, text: str) -> "Facts":
        """Read the facts of a text."""
        plain = unicodedata.normalize("NFKC", text)
        found = quantities(plain)
        numbers = {(quantity.value, quantity.unit) for quantity in found} | {(quantity.value, "") for quantity in found}
        tokens = (token for piece in _pieces(_encodable(plain)) for token in analyzer().tokenize(piece))
        words = {token.form.casefold() for token in tokens if token.tag in WORD_TAGS}
        return cls(plain, frozenset(numbers), frozenset(words))

    def invented(self, headline: str) -> tuple[str, ...]:
        """Return the numbers and names of a headline that are not in the text, in its spelling."""
        plain = unicodedata.normalize("NFKC", headline)
        found = [q.text.strip() for q in quantities(plain) if (q.value, q.unit) not in self.numbers]
        found += [match[0] for match in IN_WORDS.finditer(plain) if match[0] not in self.text]
        names = [token.form for token in analyzer().tokenize(_encodable(plain)) if token.tag in NAME_TAGS]
        found += [name for name in names if not self.has_name(name)]
        return tuple(dict.fromkeys(found))

    def has_name(self, name: str) -> bool:
        """Whether a name is a word of the text."""
        if name.casefold() in self.words:
            return True
        # Kiwi takes the short form of 에서 for a part of a name that it does not know: 장흥군서.
        if name.endswith("서") and len(name) > 2 and self.has_name(name[:-1]):
            return True
        border = r"(?<![가-힣A-Za-z0-9])"
        return re.search(rf"{border}{re.escape(name)}(?:(?:{JOSA})?(?![가-힣A-Za-z0-9]))", self.text, re.I) is not None


def _pieces(text: str) -> Iterator[str]:
    """Divide a text into sentences, and long ones at blanks: Kiwi's time grows faster than the length of a line."""
    for sentence in split_article(text):
        yield from (found[0] for found in PIECE.finditer(sentence.text))


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which Kiwi refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")


@functools.lru_cache(maxsize=16)
def facts_of(text: str) -> Facts:
    """Return the facts of a text; the last ones are kept."""
    return Facts.of(text)


def invented(headline: str, text: str) -> tuple[str, ...]:
    """Return the numbers and names of a headline that are not in a text."""
    return facts_of(text).invented(headline)
