"""Personal data in Korean texts, masked by typed placeholders that stay readable text.

>>> mask("문의는 김하늘 기자(010-1234-5678, sky@press.example)에게.").text
'문의는 김하늘 기자([전화번호], [이메일])에게.'

| kind | what counts |
| --- | --- |
| `resident_number` | a birth date, a digit for century and sex (5 to 8: foreigners), six more digits |
| `phone` | mobile, area codes, 070, 080, 050x, 15xx to 18xx, +82, with hyphens, dots, blanks or none |
| `account` | 10 to 16 digits beside the name of a bank or a word such as 계좌 |
| `card` | 14 to 16 digits with the check digit of Luhn |
| `email` | an address, also with (at) |
| `vehicle` | a licence plate |
| `address` | street and number of a building, or parcel; an option, as news are about places |

Resident numbers issued since October 2020 have no check digit: their last six digits are random. So a number with the
usual hyphen counts by its date and the digit behind it, whether its check digit holds or not. Thirteen digits in a row
count if the check digit holds, if the date is of October 2020 or later, or behind a word such as 주민등록번호.

Names are left alone: a newspaper is about people, and no list tells a minister from a witness.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal["resident_number", "phone", "account", "card", "email", "vehicle", "address"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DEFAULT_KINDS: tuple[Kind, ...] = KINDS[:-1]
PLACEHOLDERS: dict[Kind, str] = {
    "resident_number": "[주민등록번호]",
    "phone": "[전화번호]",
    "account": "[계좌번호]",
    "card": "[카드번호]",
    "email": "[이메일]",
    "vehicle": "[차량번호]",
    "address": "[주소]",
}
# As many characters, so offsets hold: full-width forms of ASCII, the dashes of Unicode, and blanks other than a space.
PLAIN = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2015, 0x2212), ord("-")),
    **dict.fromkeys((0xA0, 0x2002, 0x2003, 0x2009, 0x3000), ord(" ")),
}
UNUSUAL = re.compile(f"[{''.join(map(chr, PLAIN))}]")
NUMBER_START = re.compile(r"\d+|[+(]")
"""Where a number may begin: at the first of some digits, or at a mark before them."""


@dataclass(frozen=True)
class Masked:
    """A text with placeholders."""

    text: str
    counts: Counter[Kind]
    """Masked spans by kind."""


def mask(text: str, kinds: Sequence[Kind] = DEFAULT_KINDS) -> Masked:
    """Replace personal data in TEXT.

    Args:
        text: in composed Hangul (NFC).
        kinds: what is masked.
    """
    counts: Counter[Kind] = Counter()
    parts: list[str] = []
    position = 0
    for start, end, kind in find(text, kinds):
        counts[kind] += 1
        parts += [text[position:start], PLACEHOLDERS[kind]]
        position = end
    return Masked("".join(parts) + text[position:] if parts else text, counts)


def find(text: str, kinds: Sequence[Kind] = DEFAULT_KINDS) -> list[tuple[int, int, Kind]]:
    """Return where personal data begins and ends in TEXT, and of which kind it is; no two overlap."""
    plain = text.translate(PLAIN) if UNUSUAL.search(text) else text
    starts = [match.start() for match in NUMBER_START.finditer(plain)]
    found: list[tuple[int, int, Kind]] = []
    for kind in KINDS:
        if kind in kinds:
            found += [(start, end, kind) for start, end in FINDERS[kind](plain, starts)]
    found.sort(key=lambda item: (item[0], KINDS.index(item[2])))
    kept: list[tuple[int, int, Kind]] = []
    for item in found:
        if not kept or item[0] >= kept[-1][1]:
            kept.append(item)
    return kept


Spans: TypeAlias = Iterator[tuple[int, int]]


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def _before(text: str, start: int, size: int) -> str:
    return text[max(0, start - size) : start]


def _matches(pattern: re.Pattern[str], text: str, starts: Sequence[int]) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern that begins at one of STARTS, like `finditer`, which tries every position."""
    end = 0
    for start in starts:
        if start >= end and (match := pattern.match(text, start)):
            end = match.end()
            yield match


# ---- resident registration numbers ----

RESIDENT = re.compile(r"(?<!\d\.)(?<![\d-])(\d{6})(\s?-\s?|\s)?([1-8])(\d{6}|[*●○xX]{6}|\d[*●○xX]{5})(?![\d*])(?!-\d)")
RESIDENT_CUE = re.compile(
    r"(?:주민|외국인|거소|등록|신고)\s?(?:등록|신고)?\s?(?:번호)?\s?[:=(]?\s?\Z|(?:주민|외국인)[^.\d]{0,12}\Z"
)
COMPANY_CUE = re.compile(r"법인\s?(?:등록)?\s?번호[^\d]{0,6}\Z")
WEIGHTS = (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)
LAST_CHECKED_MONTH = (2020, 9)


def _resident_numbers(text: str, starts: Sequence[int]) -> Spans:
    for match in _matches(RESIDENT, text, starts):
        birth, separator, century, rest = match.groups()
        born = _birth_date(birth, int(century))
        if born is None or COMPANY_CUE.search(_before(text, match.start(), 20)):
            continue
        if separator is None or not separator.strip():
            is_new = (born.year, born.month) > LAST_CHECKED_MONTH
            is_named = RESIDENT_CUE.search(_before(text, match.start(), 24)) is not None
            if not (is_named or (rest.isdecimal() and (is_new or has_check_digit(birth + century + rest)))):
                continue
        yield match.span()


def _birth_date(digits: str, century: int) -> date | None:
    year = (2000 if century in {3, 4, 7, 8} else 1900) + int(digits[:2])
    try:
        return date(year, int(digits[2:4]), int(digits[4:]))
    except ValueError:
        return None


def has_check_digit(number: str) -> bool:
    """Whether the last of 13 digits is the check digit of a resident number, or of that of a foreigner."""
    digits = [int(digit) for digit in number]
    rest = sum(weight * digit for weight, digit in zip(WEIGHTS, digits, strict=False)) % 11
    return digits[12] == ((13 if digits[6] >= 5 else 11) - rest) % 10


# ---- telephones ----

_S = r"(?:\s?[-.·]\s?|\s)"
_AREA = r"(?:2|3[1-3]|4[1-4]|5[1-5]|6[1-4])"
_SHORT = r"(?:15(?:22|33|44|51|66|77|88|99)|16(?:00|11|22|33|44|55|61|66|68|70|77|88|99)|18(?:00|11|33|55|66|77|99))"
_FREE = r"(?<!\d[.,-])(?<![\d-])"
_CLOSED = r"(?!\d|[-.]\d|,\d{3}(?![\d-]))"
"""Around a number: no digits, and no separators with more digits behind."""
_UNIT = r"(?:원|달러|명|개|건)(?![가-힣])"
_START, _END = rf"{_FREE}(?<!\d\s)", rf"{_CLOSED}(?![만억]?[원달명]|\s[만억]?\s?{_UNIT})(?:\s?~\s?\d{{1,4}}(?!\d))?"
PHONES = re.compile(
    "|".join(
        (
            # +82-10-1234-5678, +82 (0)2 123 4567, 0082-2-…
            rf"(?<!\d)(?:\+\s?82|0082|{_FREE}82(?=-)){_S}?\(?0?\)?{_S}?(?:1[016-9]|70|{_AREA})\)?{_S}?\d{{3,4}}{_S}?\d{{4}}{_END}",
            # 010-1234-5678, 010.1234.5678, 010 1234 5678, 01012345678, (010)1234-5678
            rf"{_START}(?:\(01[016-9]\)|01[016-9]\)?){_S}?\d{{3,4}}{_S}?\d{{4}}{_END}",
            # 02-123-4567, (02)123-4567, 02)123-4567, 031 123 4567; 070, 080, 060, 0505
            rf"{_START}(?:\(\s?0(?:{_AREA}|[678]0|50\d?)\s?\)|0(?:{_AREA}|[678]0|50\d?)\s?\)|0(?:{_AREA}|[678]0|50\d?)(?:{_S}|/))"
            rf"\s?\d{{3,4}}{_S}\d{{4}}{_END}",
            rf"{_START}{_SHORT}{_S}?\d{{4}}{_END}",
        )
    )
)
BARE_PHONE = re.compile(rf"{_START}0(?:{_AREA}|[678]0|50\d)\d{{7,8}}{_END}")
LOCAL_PHONE = re.compile(rf"{_START}\d{{3,4}}[-.]\d{{4}}{_END}")
PHONE_CUE = re.compile(
    r"(?:전화|연락처|문의처?|상담|예약|신고|제보|고객\s?센터|콜\s?센터|대표\s?번호|팩스|휴대폰|핸드폰|[☎☏📞]|\b(?:TEL|FAX|HP|CALL|T|F)\b)"
    r"[^\d.]{0,8}\.?\s?\(?\Z",
    re.IGNORECASE,
)
CUE_WIDTH = 24


def _phones(text: str, starts: Sequence[int]) -> Spans:
    for match in _matches(PHONES, text, starts):
        digits = _digits(match.group())
        if len(digits) == 8 and digits[0] == "1" and not _is_service(text, match, digits):
            continue
        yield match.span()
    for pattern in (BARE_PHONE, LOCAL_PHONE):
        for match in _matches(pattern, text, starts):
            if PHONE_CUE.search(_before(text, match.start(), CUE_WIDTH)):
                yield match.span()


def _is_service(text: str, match: re.Match[str], digits: str) -> bool:
    """Whether eight digits such as 1588-1234 are a number to call: no years, no amount."""
    if PHONE_CUE.search(_before(text, match.start(), CUE_WIDTH)):
        return True
    first, last = int(digits[:4]), int(digits[4:])
    is_grouped = "-" in match.group() or "." in match.group()
    return is_grouped and not first <= last <= first + 150


# ---- accounts and cards ----

_BANK = (
    r"(?:국민|신한|우리|하나|기업|농협|수협|신협|산업|외환|씨티|대구|부산|광주|전북|경남|제주|제일|저축|축협)(?:중앙회)?\s?은행"
    r"|카카오\s?뱅크|토스\s?뱅크|케이\s?뱅크|새마을\s?금고|우체국|농협|수협|신협|(?:KB|NH|IBK|SC|iM|KDB|BNK)\s?[가-힣]{0,4}(?:은행|뱅크)?"
)
ACCOUNT = re.compile(rf"{_FREE}\d(?:[- ]?\d){{9,15}}{_CLOSED}(?![원달명개건]|\s{_UNIT})")
ACCOUNT_CUE = re.compile(
    rf"(?:{_BANK}|계좌[가-힣]{{0,4}}|입금|송금|후원금|예금주)[^\d.]{{0,16}}\Z"
    r"|(?<![가-힣])(?:신한|국민|하나|우리|기업)\s?[:(]?\s?\Z"
)
NO_ACCOUNT = re.compile(r"97[89]\d{10}|(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\d{4}|\d{6})")
"""Digits in a row that are a book or a time."""
ACCOUNT_CUE_BEHIND = re.compile(rf"\s?[(\[,/]?\s?(?:{_BANK}|예금주|계좌)")
CARD = re.compile(
    _FREE
    + r"(?:[3-69]\d{3}([- ]?)\d{4}\1\d{4}\1\d{4}|3[47]\d{2}([- ]?)\d{6}\2\d{5}|3[068]\d{2}([- ]?)\d{6}\3\d{4})"
    + _CLOSED
)


def _accounts(text: str, starts: Sequence[int]) -> Spans:
    for match in _matches(ACCOUNT, text, starts):
        is_named = ACCOUNT_CUE.search(_before(text, match.start(), 30))
        if (is_named or ACCOUNT_CUE_BEHIND.match(text, match.end())) and not NO_ACCOUNT.fullmatch(match.group()):
            yield match.span()


def _cards(text: str, starts: Sequence[int]) -> Spans:
    for match in _matches(CARD, text, starts):
        if is_luhn(_digits(match.group())):
            yield match.span()


def is_luhn(digits: str) -> bool:
    """Whether the last of DIGITS is the check digit of Luhn (ISO/IEC 7812)."""
    doubled = (int(digit) * (1 + k % 2) for k, digit in enumerate(reversed(digits)))
    return sum(value // 10 + value % 10 for value in doubled) % 10 == 0


# ---- e-mail ----

EMAIL = re.compile(
    r"[A-Za-z0-9_%+][A-Za-z0-9._%+-]{0,63}(?:@|\s?[(\[{]\s?(?:at|골뱅이)\s?[)\]}]\s?)"
    r"[A-Za-z0-9-]{1,63}(?:(?:\.|\s?[(\[{]\s?(?:dot|점)\s?[)\]}]\s?)[A-Za-z0-9-]{1,63}){0,5}"
    r"(?:\.|\s?[(\[{]\s?(?:dot|점)\s?[)\]}]\s?)[A-Za-z]{2,24}(?![A-Za-z0-9@])",
    re.IGNORECASE,
)


def _emails(text: str, _starts: Sequence[int]) -> Spans:
    if "@" in text or "at" in text.lower() or "골뱅이" in text:
        for match in EMAIL.finditer(text):
            yield match.span()


# ---- licence plates ----

_USE = "가나다라마거너더러머버서어저고노도로모보소오조구누두루무부수우주바사아자배하허호"
_REGION = "(?:서울|부산|대구|인천|광주|대전|울산|세종|경기|강원|충북|충남|전북|전남|경북|경남|제주)"
REGION_BEFORE = re.compile(rf"(?<![가-힣]){_REGION}\s?\Z")
PLATE = re.compile(
    rf"(?<![\d.,-])(?P<number>\d{{1,3}})(?P<blank>\s?)(?P<use>[{_USE}])(?P<gap>\s?)(?P<serial>\d{{4}})"
    r"(?![\d,.-]\d|\d|\.\s\d)(?![년월일억만천백원%~명개건호조번]|\s?[%~]|\s(?:[억조]|[만천백]\s?[원명개건\d]|[년월일원](?![가-힣])))"
)
VEHICLE = (
    "차량|승용차|번호판|차번호|차량번호|자동차|택시|트럭|화물차|승합차|버스|오토바이|렌터카|뺑소니"
    "|소나타|쏘나타|그랜저|아반떼|카니발|스타렉스|포터"
)
VEHICLE_BEFORE = re.compile(rf"(?:{VEHICLE})[^.\n]{{0,16}}\Z")
VEHICLE_BEHIND = re.compile(rf"\s?[)\]]?호?\s?[^.\n\d]{{0,10}}(?:{VEHICLE})")
COURT = re.compile(r"선고|판결|대법원|법원|고법|지법|헌재|사건|전원합의체")
FIRST_CASE_YEAR = 48
"""Two digits of the first year of the courts of Korea; the last one is 99."""
COUNTERS = frozenset("조호도")
"""Letters of plates that also follow numbers: 12조, 3호, 37도."""


def _plates(text: str, starts: Sequence[int]) -> Spans:
    for match in _matches(PLATE, text, starts):
        start, end = match.span()
        # Two letters and a blank, and the letter before them that must not be there.
        if region := REGION_BEFORE.search(_before(text, start, 4)):
            yield start - len(region.group()), end
        elif _is_plate(text, match, match["number"], match["use"]):
            yield start, end


def _is_plate(text: str, match: re.Match[str], number: str, use: str) -> bool:
    """Whether a number, a letter and four digits without a region are a plate and no case, clause or amount."""
    if len(number) == 1 or match["blank"]:
        return False
    start, end = match.span()
    if VEHICLE_BEFORE.search(_before(text, start, 24)) or VEHICLE_BEHIND.match(text, end):
        return True
    before = _before(text, start, 40)
    if before.rstrip().endswith("제") or (use in COUNTERS and match["gap"]):
        return False
    # Until 1999 a court case was called 98다1234.
    is_case = len(number) == 2 and not match["gap"] and int(number) >= FIRST_CASE_YEAR
    return not (is_case and (COURT.search(before) or COURT.search(text[end : end + 40])))


# ---- addresses ----

ADDRESS = re.compile(
    r"(?<![가-힣\d])(?:[가-힣]{1,6}[읍면]\s)?[가-힣][가-힣\d·]{0,11}?(?:대로|로|길)\s?(?:\d{1,4}번?[가나다라]?길\s?)?\d{1,4}(?:-\d{1,4})?"
    r"(?![\d.%-]|,\d{3}(?!\d)|번?[가나다라]?길|\s?[년월일원명개층세대위차])"
    r"(?:\s?\([가-힣\d, ]{2,20}\))?(?:,?\s?(?:[가-힣A-Za-z]{1,15}\s?)?(?:\d{1,4}동\s?)?\d{1,5}호)?"
    r"|(?<![가-힣])[가-힣]{1,6}(?:동|리|가)\s(?:산\s?)?\d{1,4}(?:-\d{1,4}(?:번지)?|번지)(?![\d.%-])(?:\s?(?:[가-힣A-Za-z]{1,15}\s?)?(?:\d{1,4}동\s?)?\d{1,5}호)?"
)
PLACE_BEFORE = re.compile(r"[가-힣]{1,6}(?:시|군|구|읍|면|동)\s?\(?\s?\Z|주소[^.\n]{0,20}\Z")


def _addresses(text: str, _starts: Sequence[int]) -> Spans:
    for match in ADDRESS.finditer(text):
        # 바로 3, 대로 2: a street stands behind its district.
        if PLACE_BEFORE.search(_before(text, match.start(), 24)):
            yield match.span()


FINDERS: dict[Kind, Callable[[str, Sequence[int]], Spans]] = {
    "resident_number": _resident_numbers,
    "phone": _phones,
    "account": _accounts,
    "card": _cards,
    "email": _emails,
    "vehicle": _plates,
    "address": _addresses,
}
