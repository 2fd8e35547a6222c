"""Dates as portals, feeds, archives and spreadsheets write them, in ISO 8601.

>>> parse_date("입력 2021.06.01. 오후 9:30")
'2021-06-01T21:30'
>>> parse_date("Tue, 01 Jun 2021 09:30:00 +0900")
'2021-06-01T09:30:00+09:00'
>>> parse_date("어제")
''
"""

import datetime
import re

from corpora.characters import nfc

EXCEL_DAY_0 = datetime.datetime(1899, 12, 30)  # noqa: DTZ001 - spreadsheets know no time zone
EXCEL_DAYS = range(20_000, 80_000)
"""Numbers of days that are read as an Excel date: 1954 to 2119."""
EPOCH_S = range(10**8, 10**10)
"""Numbers that are read as seconds since 1970: 1973 to 2286; a thousand times as many are milliseconds."""
KOREA = datetime.timezone(datetime.timedelta(hours=9))
ZONES = {
    "KST": 540,
    "JST": 540,
    "UTC": 0,
    "GMT": 0,
    "UT": 0,
    "Z": 0,
    "EST": -300,
    "EDT": -240,
    "PST": -480,
    "PDT": -420,
}
"""Minutes east of Greenwich."""
MONTHS = dict(zip("jan feb mar apr may jun jul aug sep oct nov dec".split(), range(1, 13), strict=True))  # noqa: SIM905

_YEAR_FIRST = re.compile(
    r"(?<!\d)(?P<year>\d{4}|\d{2})\s?(?:[-./\u2010-\u2015\uff0e\uff0f]|년)\s?(?P<month>\d{1,2})\s?"
    r"(?:[-./\u2010-\u2015\uff0e\uff0f]|월)\s?(?P<day>\d{1,2})(?!\d)\s?일?"
)
_DIGITS = re.compile(r"(?<!\d)(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)(?!\d)")
_ALL_DIGITS = re.compile(
    r"(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)?"
)
_DAY_FIRST = re.compile(r"(?<!\d)(?P<day>\d{1,2})[\s-](?P<month>[A-Za-z]{3})[a-z]*\.?,?[\s-](?P<year>\d{4})(?!\d)")
_MONTH_FIRST = re.compile(r"(?P<month>[A-Za-z]{3})[a-z]*\.?\s(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s(?P<year>\d{4})(?!\d)")
_DATES = (_DIGITS, _YEAR_FIRST, _DAY_FIRST, _MONTH_FIRST)
_HALF = r"(?P<half>오전|오후|낮|밤|새벽|아침|저녁|[AaPp]\.?\s?[Mm]\.?)"
_TIME = re.compile(
    rf"\A[\sT,.]*(?:\(?[월화수목금토일](?:요일)?\)?)?[\sT,.]*(?:{_HALF}\s?)?"
    r"(?P<hour>\d{1,2})(?:\s?(?::|\uff1a|시)\s?(?P<minute>\d{1,2})?(?!\d))"
    r"(?:\s?(?::|\uff1a|분)\s?(?:(?P<second>\d{1,2})(?!\d)\s?초?(?:[.,]\d+)?)?)?"
    r"(?:\s?(?P<behind>[AaPp]\.?[Mm]\.?)(?![A-Za-z]))?"
    r"\s?(?P<zone>[+-]\d\d:?\d\d|[+-]\d\d(?!\d)|[A-Z]{1,4}(?![A-Za-z]))?"
)
_AFTERNOON = {"오후", "저녁", "밤", "pm"}
_NUMBER = re.compile(r"\d+(?:\.\d*)?")


def parse_date(value: object) -> str:
    """Return a date in ISO 8601, with time and time zone where they are given; empty if it is no date.

    Read are `2021-06-01`, `2021.6.1. 오후 9:30`, `2021년 6월 1일 9시 30분`, `20210601`, `20210601093000`, `21.06.01`,
    RFC 822 and 3339, English month names, seconds and milliseconds since 1970 (in Korean time), and the days of
    spreadsheets. Words before the date (`입력`, `기사입력`) and weekdays are skipped. Forms with the year at the end in
    figures, such as `6/1/2021`, are ambiguous and no date.

    Args:
        value: of any type; a `date` or `datetime` is taken as it is.
    """
    if isinstance(value, datetime.datetime | datetime.date):
        return _iso(value) if isinstance(value, datetime.datetime) else value.isoformat()
    text = nfc(str(value)).strip()
    if _NUMBER.fullmatch(text) and (found := _from_number(text)):
        return found
    for pattern in _DATES:
        for match in pattern.finditer(text):
            if found := _from_match(match, text[match.end() :]):
                return found
    return ""


def _from_number(text: str) -> str:
    """Read digits alone: a day of a spreadsheet, a stamp of digits, or seconds since 1970."""
    number = float(text)
    if int(number) in EXCEL_DAYS:
        moment = EXCEL_DAY_0 + datetime.timedelta(seconds=round(number * 86_400))
        return _iso(moment) if number % 1 else moment.date().isoformat()
    if stamp := _ALL_DIGITS.fullmatch(text):
        return _build(stamp.groupdict(), None)
    seconds = number / 1000 if int(number / 1000) in EPOCH_S else number
    if int(seconds) in EPOCH_S and not _DIGITS.fullmatch(text):
        return _iso(datetime.datetime.fromtimestamp(int(seconds), KOREA))
    return ""


def _from_match(match: re.Match[str], behind: str) -> str:
    """Read a date and the time behind it."""
    parts = match.groupdict()
    if not parts["month"].isdecimal():
        month = MONTHS.get(parts["month"].lower())
        if month is None:
            return ""
        parts["month"] = str(month)
    if len(parts["year"]) == 2:
        parts["year"] = f"20{parts['year']}" if int(parts["year"]) < 70 else f"19{parts['year']}"
    time = _TIME.match(behind)
    if time is None:
        return _build(parts, None)
    clock = {name: time[name] for name in ("hour", "minute", "second")}
    half = (time["half"] or time["behind"] or "").replace(".", "").replace(" ", "").lower()
    hour = int(clock["hour"])
    if half in _AFTERNOON and hour < 12 and not (half == "밤" and hour < 6):
        hour += 12
    elif half in {"오전", "새벽", "am"} and hour == 12:
        hour = 0
    elif half == "낮" and hour < 6:
        hour += 12
    with_time = _build(parts | clock | {"hour": str(hour)}, _zone(time["zone"]))
    return with_time or _build(parts, None)


def _zone(text: str | None) -> datetime.timezone | None:
    if not text:
        return None
    if text[0] in "+-":
        minutes = int(text[1:3]) * 60 + int(text[3:].lstrip(":") or 0)
        return datetime.timezone(datetime.timedelta(minutes=-minutes if text[0] == "-" else minutes))
    return datetime.timezone(datetime.timedelta(minutes=ZONES[text])) if text in ZONES else None


def _build(parts: dict[str, str | None], zone: datetime.timezone | None) -> str:
    """Return the parts in ISO 8601; empty if there is no such day or time."""
    numbers = {name: int(value) for name, value in parts.items() if value}
    try:
        if "hour" not in numbers:
            return datetime.date(numbers["year"], numbers["month"], numbers["day"]).isoformat()
        has_second = "second" in numbers
        moment = datetime.datetime(**{"minute": 0} | numbers, tzinfo=zone)
        return moment.isoformat(timespec="seconds" if has_second else "minutes")
    except ValueError:
        return ""


def _iso(moment: datetime.datetime) -> str:
    return moment.isoformat(timespec="seconds" if moment.second else "minutes")
