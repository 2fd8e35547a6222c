"""Personal data in Korean texts: what is masked, what only looks like it, and offsets that slice back."""

import doctest
import random
from collections import Counter

import pytest

import corpora.pipeline.privacy
from corpora.pipeline.privacy import (
    ACCOUNT,
    BARE_PHONE,
    CARD,
    DEFAULT_KINDS,
    KINDS,
    LOCAL_PHONE,
    NUMBER_START,
    PHONES,
    PLACEHOLDERS,
    PLATE,
    RESIDENT,
    Kind,
    _matches,
    find,
    has_check_digit,
    is_luhn,
    mask,
)


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(corpora.pipeline.privacy).failed == 0


def test_check_digits_are_those_of_worked_examples() -> None:
    # 9·2+0·3+0·4+1·5+0·6+1·7+1·8+2·9+3·2+4·3+5·4+6·5 = 124; (11 − 124 mod 11) mod 10 = 8
    assert has_check_digit("9001011234568")
    assert not has_check_digit("9001011234567")
    assert is_luhn("79927398713")  # Wikipedia's example
    assert not is_luhn("79927398710")


def wide(text: str) -> str:
    """Return TEXT in full-width forms."""
    return "".join(chr(ord(character) + 0xFEE0) for character in text)


PLANTED: list[tuple[Kind, str]] = [
    ("resident_number", "주민등록번호는 «900101-1234568»이다."),
    ("resident_number", "번호 «900101-1234567»은 검증 숫자가 틀려도 번호의 꼴이다."),
    ("resident_number", "외국인 «850315-5678901»씨"),
    ("resident_number", "«9001011234568» 한 줄로"),
    ("resident_number", "2021년에 난 아이 «210315-3123456»"),
    ("resident_number", "«2103153123456» 새 번호에는 검증 숫자가 없다."),
    ("resident_number", "«900101-1******»"),
    ("resident_number", f"«{wide('900101-1234568')}»"),
    *(
        ("phone", f"문의는 «{number}» 입니다")
        for number in (
            *("010-1234-5678", "010.1234.5678", "010 1234 5678", "01012345678", "011-234-5678", "(010)1234-5678"),
            *(
                "02-123-4567",
                "02)1234-5678",
                "(02) 123-4567",
                "031-123-4567",
                "064 123 4567",
                "051.123.4567",
                "0212345678",
            ),
            *("070-1234-5678", "080-123-4567", "0505-123-4567", "1588-1234", "1544-9000", "1600-1234", "02-123-4567~9"),
            *("+82-10-1234-5678", "+82 10 1234 5678", "+82-2-123-4567", "+821012345678", "82-10-1234-5678", "730-1234"),
            *(wide("010-1234-5678"), "010–1234–5678", "+82 (0)10-1234-5678"),
        )
    ),
    ("account", "국민은행 «123456-78-901234»로 보내 주십시오."),
    ("account", "계좌번호: «110-123-456789» 예금주 김하늘"),
    ("account", "카카오뱅크 «3333012345678»"),
    ("account", "«352-1234-5678-93»(농협, 예금주 한지우)"),
    ("account", "후원 계좌(신한은행 «140 012 345678»)"),
    ("card", "카드 «4111-1111-1111-1111» 결제"),
    ("card", "«5555555555554444» 승인"),
    ("card", "«3782 822463 10005» 승인"),
    *(
        ("email", f"메일 «{address}»로")
        for address in ("sky@press.example", "a.b+c@mail.press.example", "sky(at)press.example")
    ),
    ("vehicle", "그는 «12가3456» 승용차를 몰았다."),
    ("vehicle", "«123가 4567» 차량"),
    ("vehicle", "«서울 12 바 3456» 택시"),
    ("vehicle", "번호판 «98다1234»"),
]

LOOKALIKES = (
    "2021-06-01 12:30에 시작해 2021.06.02까지",
    "20210601093000 1622505600000",
    "가격은 1,234,567원, 12조 3456억 원, 12조3456억, 9,900원",
    "전년 2,345,678명보다 1234명 늘어 10.5%에서 12.75%로",
    "ISBN 978-89-374-6000-1, 9788937460005, 89-374-6000-1, ISSN 1225-1234",
    "대법원 1998. 5. 29. 선고 98다1234 판결, 97누12345, 2019다12345, 2020고합1234",
    "임진왜란(1592-1598)과 남북전쟁(1861-1865), 1600-1680년의 사람",
    "제12조 2019년, 제3호 2020년, 종로 3가 1234, 12월 3일",
    "법인등록번호 110111-1234567, 사업자등록번호 123-45-67890",
    "3-1, 2-0으로 이겼다. 통산 1234-5678. 버전 10.0.1234.5678, IP 192.168.0.1",
    "코스피 2345.67, 환율 1234.50원, 경도 127.0012345, 우편번호 03045",
    "123456-1234567890은 번호가 아니고 991301-1234567에는 13월이 없다.",
    "@sky 계정, 3@4, C# @Override",
)


def test_what_is_planted_is_found_where_it_stands(subtests: pytest.Subtests) -> None:
    for kind, marked in PLANTED:
        with subtests.test(text=marked):
            before, _, rest = marked.partition("«")
            inside, _, behind = rest.partition("»")
            text = f"{before}{inside}{behind}"
            assert [(text[start:end], found) for start, end, found in find(text)] == [(inside, kind)]
            masked = mask(text)
            assert masked.text == f"{before}{PLACEHOLDERS[kind]}{behind}"
            assert masked.counts == Counter([kind])
            assert not find(masked.text)


def test_dates_prices_statistics_books_and_rulings_are_left_alone(subtests: pytest.Subtests) -> None:
    for text in LOOKALIKES:
        with subtests.test(text=text):
            assert mask(text).text == text


def test_addresses_are_masked_on_demand_down_to_the_building_and_places_stay() -> None:
    text = "서울 종로구 세종대로 175, 101동 1203호와 경기 수원시 팔달구 매산로 1가길 12에 산다."
    assert mask(text).text == text
    assert KINDS[:-1] == DEFAULT_KINDS
    assert mask(text, KINDS).text == "서울 종로구 [주소]와 경기 수원시 팔달구 [주소]에 산다."
    for place in ("종로구에서 3명", "바로 3일 뒤", "세종대로에서", "수원시 2024년"):
        assert mask(place, KINDS).text == place


def test_numbers_are_found_wherever_a_search_of_every_position_finds_them() -> None:
    rng = random.Random(0)  # noqa: S311 - no secrets
    parts = (
        "010",
        "02",
        "82",
        "+82",
        "0082",
        "1588",
        "5",
        "1234",
        "901212",
        "12",
        "가",
        "(",
        ")",
        "-",
        ".",
        " ",
        ",",
        "원",
    )
    patterns = (PHONES, BARE_PHONE, LOCAL_PHONE, RESIDENT, ACCOUNT, CARD, PLATE)
    num_found = Counter[int]()
    for _ in range(20_000):
        text = "".join(rng.choice(parts) for _ in range(rng.randrange(2, 12)))
        starts = [match.start() for match in NUMBER_START.finditer(text)]
        for number, pattern in enumerate(patterns):
            expected = [match.span() for match in pattern.finditer(text)]
            assert [match.span() for match in _matches(pattern, text, starts)] == expected, text
            num_found[number] += len(expected)
    assert min(num_found[number] for number in range(len(patterns))) > 0, num_found


def test_a_region_belongs_to_a_plate_unless_it_is_the_end_of_a_longer_word() -> None:
    for text, hidden in {
        "서울 12바 3456": "[차량번호]",
        "서울12바3456": "[차량번호]",
        "남서울 12바 3456": "남서울 [차량번호]",
        "차는 경기 7가 1234 번": "차는 [차량번호] 번",
        "차는 성경기 7가 1234 번": "차는 성경기 7가 1234 번",
    }.items():
        assert mask(text).text == hidden
