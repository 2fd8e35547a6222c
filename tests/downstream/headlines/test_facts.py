"""The check of headlines: numbers with their units, and names, are only those of the text."""

import pytest

from downstream.headlines.facts import invented, quantities

TEXT = """충청북도는 5일 청주시에서 제3차 회의를 열고 내년 예산 1조 2,000억 원을 확정했다. 김철수 지사는 “참가자 3만5천
명 가운데 12.5%가 20대”라며 두 차례 연기됐던 K-바이오 행사를 세 번째로 연다고 밝혔다. OECD 평균보다 2.5배 높다. 기온은
-3도였다. 삼성전자도 참여한다. 십오 명이 다쳤고 25~30명을 더 뽑는다. 절반이 찬성했다."""


def test_numbers_of_the_text_are_supported_in_any_spelling(subtests: pytest.Subtests) -> None:
    for headline in (
        "예산 1조2000억 확정",
        "예산 1.2조 원 확정",
        "예산 \uff11조 \uff12,\uff10\uff10\uff10억원",
        "3만5000명 참가",
        "35,000명 참가",
        "참가 12.5퍼센트가 20대",
        "2차례 연기 끝에 3번째",
        "2회 연기",
        "제3차 회의",
        "평균의 2.5배",
        "영하 3도",
        "15명 부상",
        "25명에서 30명",
        "5일 확정",
        "절반 찬성",
    ):
        with subtests.test(headline=headline):
            assert invented(headline, TEXT) == ()


def test_other_numbers_and_units_are_invented(subtests: pytest.Subtests) -> None:
    for headline, expected in (
        ("예산 1조 원 확정", "1조 원"),
        ("예산 2조2000억", "2조2000억"),
        ("3만 명 참가", "3만 명"),
        ("12.6% 올라", "12.6%"),
        ("12.5배 올라", "12.5배"),
        ("세 차례 연기", "세 차례"),
        ("3개 회의", "3개"),
        ("기온 3도", "3도"),
        ("16명 부상", "16명"),
        ("이십 명 부상", "이십 명"),
        ("마흔 명 부상", "마흔 명"),
        ("6일 확정", "6일"),
        ("2026년 예산", "2026년"),
        ("수십 명 찬성", "수십"),
        ("첫 회의", "첫"),
    ):
        with subtests.test(headline=headline):
            assert expected in invented(headline, TEXT)


def test_names_are_those_of_the_text(subtests: pytest.Subtests) -> None:
    for headline in ("김철수 지사 “행사 개최”", "청주시 회의", "삼성전자 참여", "K-바이오 행사", "oecd 평균"):
        with subtests.test(headline=headline):
            assert invented(headline, TEXT) == ()
    for headline, name in (
        ("김영희 지사", "김영희"),
        ("김철 지사", "김철"),  # part of a name
        ("LG전자 참여", "LG전자"),
        ("WHO 평균", "WHO"),
        ("서울시 회의", "서울"),
        ("美 행사", "美"),
    ):
        with subtests.test(headline=headline):
            assert any(found.startswith(name) for found in invented(headline, TEXT))


def test_numbers_are_read_with_their_units() -> None:
    found = [(str(q.value), q.unit) for q in quantities("1조 2,000억 원, 3 4, 스물두 명, 이천오백 원, 7월 8일 △5.0%")]
    assert ("1200000000000", "원") in found
    assert [value for value, unit in found if not unit] == ["3", "4"]
    assert {("22", "명"), ("2500", "원"), ("7", "월"), ("8", "일"), ("-5.0", "%")} <= set(found)
    read = {
        (str(q.value), q.unit) for q in quantities("6억 4천680만원, 1억2천3백만 원, 조회수 12 조회수 40, 5천 300명")
    }
    assert read == {("646800000", "원"), ("123000000", "원"), ("12", ""), ("40", ""), ("5300", "명")}


def test_the_short_form_of_a_particle_is_no_part_of_a_name() -> None:
    assert invented("장흥군서 개원", "장흥군은 11일 인재개발원이 개원했다고 밝혔다.") == ()
    assert invented("장성군서 개원", "장흥군은 11일 인재개발원이 개원했다고 밝혔다.") != ()
