"""Titles in routine formats: horoscopes, weather, appointments, obituaries, share prices, pictures and the like.

They are alike because of their format and not because of an event, so they are in no story and have a section of their
own.

>>> routine_kind("[인사] 벼리시"), routine_kind("벼리시, 인사 담당자 교육 열어")
('인사', '')
"""

import functools
import re
from collections.abc import Iterator, Mapping

from apps.stories.articles import HEADS

ANGLED = re.compile(r"^\s*[<〈《][^<>〈〉《》]{0,40}[>〉》]")
"""A head in angle brackets opens the title; elsewhere they are quotation marks."""

IN_HEAD: Mapping[str, re.Pattern[str]] = {
    "운세": re.compile(r"운세|띠별|별자리|사주"),
    "날씨": re.compile(r"날씨|기상\s?(?:정보|예보)|일기예보|미세먼지"),
    "인사": re.compile(r"(?:[가-힣]{1,4}계\s?)?인사(?:\s?(?:발령|이동|동정))?"),
    "부고": re.compile(r"(?:오늘의\s?)?(?:부고|부음|궂긴\s?소식|訃告|訃音)"),
    "동정": re.compile(
        r"(?:[가-힣]{1,5}\s)?(?:동정|사랑방|게시판|단신|모임|알림|알립니다|본사\s?(?:손님|내방)|화촉|결혼|신간|새\s?책|모집|행사)"
    ),
    "증시": re.compile(
        r".*(?:특징주|스팟|시황|증시|공시|환율|株|상한가)|(?:코스피|코스닥|외환|채권|선물|유가증권).*|(?:개장|마감|장\s?중)"
        r"|\d{1,2}:\d\d|(?:주식|종목|테마주?).*",
    ),
    "포토": re.compile(r".*(?:포토|사진|화보|pic|photo).*", re.IGNORECASE),
    "만평": re.compile(r".*(?:만평|만화|십자말|낱말|퀴즈|스도쿠).*"),
    "뉴스 모음": re.compile(
        r".*(?:헤드라인|실시간\s?뉴스|간추린|뉴스\s?종합|오늘의\s?(?:뉴스|1면|신문)|조간|석간|(?:아침|굿모닝|모닝)\s?(?:뉴스|브리핑)"
        r"|주요\s?(?:뉴스|신문|일간지)).*"
    ),
    "일정": re.compile(r".*(?:일정|캘린더|편성|오늘의\s?(?:경기|TV|방송|행사|메모|증시)).*"),
}
"""Kind → the heads of its titles, matched as a whole, or at the beginning for those that end in .*"""
_RELATIVE = (
    r"(?:부친|모친|장인|장모|조부|조모|외조부|외조모|빙부|빙모|시부|시모|배우자|부인|남편|본인|형제|자매|자녀)상"
    r"(?!\s?(?:을\s)?(?:받|수상|시상|후보|선정|탄))"
)
"""A relative's death; 장인상 is a prize, too."""
_INDEX = r"(?:코스피|코스닥|코스피200|다우|나스닥|닛케이|상하이(?:종합)?지수|항셍|환율|비트코인)"
IN_TITLE: Mapping[str, re.Pattern[str]] = {
    "운세": re.compile(r"^(?:.{0,12}\s)?(?:오늘|내일|주간|이번\s?주|\d월)의?\s.{0,6}운세|띠별\s?운세"),
    "날씨": re.compile(
        r"^(?:오늘|내일|모레|주말|출근길|퇴근길)의?\s?날씨|(?:낮|한낮|아침|최고|최저)\s?(?:최고|최저)?\s?(?:기온)?\s?(?:영하\s?)?\d+\s?(?:도|℃|~)"
        r".*(?:비|눈|더위|추위|맑|흐|소나기|자외선|한파|구름)|(?:비|눈|더위|추위|맑|흐|소나기|자외선|한파|구름).*"
        r"(?:낮|한낮|아침)\s?(?:최고|최저)?\s?(?:기온)?\s?(?:영하\s?)?\d+\s?(?:도|℃)"
        r"|(?:맑|흐리|흐려|초여름|더위|추위|소나기|빗방울).*(?:내일|모레|오늘|출근길|오후까지|낮\s?동안).*(?:전국|곳곳|중부|남부|수도권|자외선|더위|비|눈)"
        r"|(?:내일|모레|오후까지|출근길).*(?:맑고|흐려|초여름\s?더위|빗방울|소나기)"
    ),
    "인사": re.compile(
        r"(?:\d\s?일(?:자)?|승진|전보|신문|일보|방송|뉴스|그룹|공사|은행|증권)(?:\s?및\s?전보)?\s인사(?:\s?[外외])?$"
    ),
    "부고": re.compile(rf"{_RELATIVE}|(?:등|의)\s부고$|별세\s?[外외]$|궂긴\s?소식"),
    "동정": re.compile(r"^(?:오늘의\s)?동정\b"),
    "증시": re.compile(
        rf"주가\s?(?:무려\s?|장\s?초반?부터\s?|장초반부터\s?)?[\d+]|분?만에 주가"
        r"|주가.{0,12}(?:강세|약세|급등|급락|상승세|하락세|↑|↓)"
        rf"|{_INDEX}.{{0,20}}(?:개장|마감|출발|포인트|\dp|선\s(?:회복|붕괴)|(?:상승|하락|보합)\s?(?:세|마감|출발))"
        r"|지분\s?변동|조회공시|기업공시|특징주|시황변동"
    ),
    "만평": re.compile(r"(?:만평|블론디|네\s?컷\s?만화)\s?(?:\d|$)|블론디"),
    "로또": re.compile(r"(?:로또|복권).*(?:당첨|추첨|번호)|\d{3,4}회.*당첨\s?번호"),
    "뉴스 모음": re.compile(r"헤드라인(?:-|\s?\d|$)|^(?:오늘의\s)?(?:주요\s?)?뉴스\s?(?:브리핑|헤드라인)"),
    "일정": re.compile(
        r"(?:오늘|내일|이번\s?주|주간|\d일)의?\s?(?:주요\s?)?(?:일정|경기|TV|프로그램|증시\s?메모)(?:\s?[-\[(\u3014\d]|$)|TV\s?(?:편성|프로그램)"
    ),
}
"""Kind → what its titles contain."""


@functools.lru_cache(1 << 15)
def routine_kind(title: str) -> str:
    """Return the kind of routine format of a title, "" for none."""
    for head in _heads(title[:300]):
        for part in (head, *re.split(r"[·/,|+]", head)):
            for kind, pattern in IN_HEAD.items():
                if pattern.fullmatch(part.strip()) or (kind in ("운세", "날씨") and pattern.search(part)):
                    return kind
    for kind, pattern in IN_TITLE.items():
        if pattern.search(title[:300]):
            return kind
    return ""


def _heads(title: str) -> Iterator[str]:
    for found in HEADS.finditer(title):
        yield found[0][1:-1].strip()
    if opening := ANGLED.match(title):
        yield opening[0].strip()[1:-1].strip()
