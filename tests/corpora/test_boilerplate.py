"""Boilerplate is separated from sentences: lines by hand, look-alikes, and positions in a text."""

import doctest
import itertools
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corpora.boilerplate
from corpora.boilerplate import KINDS, segments_of
from corpora.foundation.files import SAMPLE_ROOT

BEFORE = "물빛시가 새 다리를 놓기로 했다."
BEHIND = "공사는 내년 3월에 시작한다."

BOILERPLATE = [
    ("byline", "김하늘 기자"),
    ("byline", "김하늘기자"),
    ("byline", "김하늘 기자 sky@mulbit.example"),
    ("byline", "/김하늘 기자 sky@mulbit.example"),
    ("byline", "로스마=한지우 특파원"),
    ("byline", "세종=김하늘 기자 sky@mulbit.example"),
    ("byline", "김하늘·한지우 기자"),
    ("byline", "글·사진 정다온 기자 daon@mulbit.example"),
    ("byline", "취재=김하늘, 한지우 기자"),
    ("byline", "영상취재: 김하늘"),
    ("byline", "물빛신문 경제부"),
    ("byline", "온라인뉴스팀"),
    ("byline", "물빛뉴스 디지털뉴스팀"),
    ("email", "sky@mulbit.example"),
    ("email", "제보 jebo@mulbit.example"),
    ("copyright", "<저작권자 ⓒ 물빛통신, 무단 전재 및 재배포 금지>"),
    ("copyright", "ⓒ 물빛일보, 무단 복제 금지"),
    ("copyright", "Copyright ⓒ Mulbit News. All rights reserved."),
    ("copyright", "저작권자(c) 물빛통신, 무단 전재-재배포 금지"),
    ("copyright", "무단전재 및 재배포, AI 학습 이용 금지"),
    ("caption", "25일 물빛시청 앞 광장. /사진=물빛통신"),
    ("caption", "25일 시민들이 다리 위를 걷고 있다. /사진=물빛일보 한지우 기자"),
    ("caption", "▲ 25일 물빛시 청사에서 회의가 열리고 있다."),
    ("caption", "사진=물빛군청 제공"),
    ("caption", "[사진] 공사 현장을 둘러보는 시장"),
    ("caption", "(사진=물빛군청)"),
    ("caption", "새로 놓일 다리의 조감도. /사진제공 물빛시"),
    ("caption", "다리 위를 걷는 시민들. 게티이미지뱅크"),
    ("caption", "드라마의 한 장면. (물빛방송 캡처)"),
    ("caption", "※ 사진은 기사 내용과 관련 없음"),
    ("related", "[관련기사] 물빛시 새 다리, 왜 늦어졌나"),
    ("related", "☞ 물빛시 다리 공사 일지"),
    ("related", "https://news.mulbit.example/2024/0501"),
    ("promotion", "▶ 물빛통신 구독하기"),
    ("promotion", "▶ 물빛신문, 네이버에서 구독하세요 ▶ 카톡 제보 ⓒ물빛신문, 무단 전재 및 재배포를 금지합니다."),
    ("promotion", "▶당신의 제보가 뉴스로 만들어집니다. 물빛신문은 여러분의 소중한 제보를 기다립니다."),
    ("notice", "[편집자 주: 이 글은 어제 썼다. 오늘 고쳤다.]"),
    ("notice", "물빛신문 구독신청"),
    ("notice", "네이버에서 물빛신문 받아보기"),
    ("notice", "문의: 물빛시청 교통과(02-123-4567)"),
    ("notice", "(이로동장 김하늘, 주무관 한지우 270-4805)"),
    ("notice", "출처: 대한민국 정책브리핑 보도자료"),
    ("notice", "김하늘 기자의 다른 기사 보기"),
    ("notice", "※ 제보는 물빛방송으로 해 주십시오"),
    ("notice", "▷ 카카오톡 : '물빛제보' 검색, 채널 추가"),
    ("notice", "시청자 여러분의 소중한 제보를 기다립니다."),
    ("notice", "이 기사는 인공지능의 도움을 받아 작성되었습니다."),
    ("timestamp", "입력 2024.05.01 09:30"),
    ("timestamp", "2024-05-01 09:30:00 송고"),
    ("broadcast", "[앵커]"),
    ("broadcast", "◀ 리포트 ▶"),
    ("broadcast", "MBS 뉴스 김하늘입니다."),
    ("broadcast", "지금까지 물빛시에서 김하늘이 전해드렸습니다."),
    ("broadcast", "김하늘 기자가 보도합니다."),
    ("end_mark", "(끝)"),
    ("end_mark", "- 끝 -"),
    ("end_mark", "* * *"),
    ("heading", "◇ 늦어진 까닭"),
    ("heading", "■ 공사 구간은 어디"),
    ("question", "―공사가 늦어진 까닭은."),
    ("question", "-다리는 언제 열리나."),
]

TEXT = [
    "김하늘 기자는 “다리가 흔들렸다”고 말했다.",
    "한지우 기자가 현장에서 시장을 만났다.",
    "기자가 묻자 시장은 고개를 저었다.",
    "기자회견은 오후 2시에 열렸다.",
    "기자협회는 25일 성명을 냈다.",
    "특파원으로 일하던 그는 3년 만에 돌아왔다.",
    "신청은 apply@mulbit.example로 하면 된다.",
    "전자우편(apply@mulbit.example)으로도 신청을 받는다.",
    "저작권법 개정안이 국회를 통과했다.",
    "무단 전재를 금지하는 법안이 발의됐다.",
    "법원은 무단 복제가 저작권 침해라고 판단했다.",
    "무단 배포를 금지해 달라는 요구가 나왔다.",
    "사진은 기록이자 예술이라고 그는 말했다.",
    "사진에는 공사 현장이 담겼다.",
    "사진제는 다음 달 2일까지 이어진다.",
    "사진을 제공한 시민에게는 상품권을 준다.",
    "그래픽 카드 값이 석 달 만에 올랐다.",
    "자료는 누구나 내려받을 수 있다.",
    "자료에 따르면 방문객은 3만 명이다.",
    "제보가 잇따르자 경찰이 수사에 나섰다.",
    "제보를 받은 시는 조사를 시작했다.",
    "유형별로는 ▲배송 지연 58.3% ▲환불 거부 24.9% 순이었다.",
    "관련 기사가 나간 뒤 시는 해명했다.",
    "관련 뉴스가 퍼지면서 주가가 내렸다.",
    "▶ 시는 유튜브 채널을 다음 달에 연다.",
    "문의가 잇따르자 시는 창구를 늘렸다.",
    "(시장은 지난해 이를 약속했다.)",
    "구독자는 1년 사이 두 배로 늘었다.",
    "유튜브 구독과 좋아요가 후원으로 이어졌다고 그는 설명했다.",
    "이 기사는 사실과 다르다고 시는 반박했다.",
    "뉴스를 본 시민들이 성금을 보냈다.",
    "물빛뉴스 김하늘 대표가 사임했다.",
    "앵커가 눈물을 보인 장면이 화제가 됐다.",
    "앵커 교체를 두고 논란이 일었다.",
    "인터뷰에서 그는 은퇴할 뜻을 밝혔다.",
    "리포트는 올해 성장률을 2.1%로 내다봤다.",
    "끝내 합의하지 못했다.",
    "끝은 보이지 않는다.",
    "2024년 5월 1일 다리가 열렸다.",
    "5월 1일 09:30 열차가 멈춰 섰다.",
    "입력 장치가 고장 나 발사가 미뤄졌다.",
    "“다리는 언제 열리나.”",
    "- 시는 다리의 이름을 공모하기로 했다.",
    "-3도까지 떨어진 날씨에도 행사는 열렸다.",
    "물빛시 온라인 뉴스팀을 꾸린 시는 홍보를 강화한다.",
    "경제부 장관이 현장을 찾았다.",
    "물빛신문 경제부 기자들이 파업에 들어갔다.",
    "위원 7명은 만장일치로 설치를 결정했다.",
    "게티이미지뱅크는 25일 새 요금제를 내놨다.",
    "홈페이지에서 신청하면 된다.",
    "네이버는 뉴스 댓글을 바꾼다고 밝혔다.",
    "방송 화면을 캡처해 퍼뜨린 이들이 붙잡혔다.",
]


def kinds_in(text: str) -> list[tuple[str, str]]:
    return [(segment.kind, text[segment.start : segment.end]) for segment in segments_of(text)]


def test_there_are_enough_lines_of_either_sort() -> None:
    assert len(BOILERPLATE) >= 40
    assert len(TEXT) >= 40


def test_a_line_that_is_no_text_is_told_by_its_kind(subtests: pytest.Subtests) -> None:
    for kind, line in BOILERPLATE:
        with subtests.test(kind=kind, line=line):
            assert kinds_in(f"{BEFORE}\n{line}\n{BEHIND}") == [("", BEFORE), (kind, line), ("", BEHIND)]


@pytest.mark.parametrize("line", TEXT)
@pytest.mark.parametrize("place", ["a line of its own", "inside a paragraph", "the last line"])
def test_a_sentence_that_looks_like_it_is_kept(line: str, place: str) -> None:
    parts = {
        "a line of its own": [BEFORE, "\n", line, "\n", BEHIND],
        "inside a paragraph": [BEFORE, " ", line, " ", BEHIND],
        "the last line": [BEFORE, "\n", line],
    }[place]
    expected = [("", part) for part in parts if part.strip()]
    assert kinds_in("".join(parts)) == expected


def test_a_dateline_is_parted_from_the_sentence_behind_it(subtests: pytest.Subtests) -> None:
    for text, dateline in [
        ("(서울=물빛통신) 김하늘 기자 = 금리가 올랐다.", "(서울=물빛통신) 김하늘 기자 ="),
        ("[물빛일보 김하늘 기자] 금리가 올랐다.", "[물빛일보 김하늘 기자]"),
        ("【서울=물빛통신】 금리가 올랐다.", "【서울=물빛통신】"),
        ("[물빛경제=김하늘 기자]금리가 올랐다.", "[물빛경제=김하늘 기자]"),
    ]:
        with subtests.test(text=text, dateline=dateline):
            assert kinds_in(text) == [("dateline", dateline), ("", "금리가 올랐다.")]


def test_what_sticks_to_the_last_sentence_is_parted_from_it(subtests: pytest.Subtests) -> None:
    for tail, kind in [
        (" 김하늘 기자 sky@mulbit.example", "byline"),
        ("/김하늘 기자", "byline"),
        (" /물빛=김하늘 기자 sky@mulbit.example", "byline"),
        ("[김하늘 기자 sky@mulbit.example]", "byline"),
        (" sky@mulbit.example", "email"),
        ("<저작권자 ⓒ 물빛통신, 무단 전재 금지>", "copyright"),
        (" (끝)", "end_mark"),
    ]:
        with subtests.test(tail=tail, kind=kind):
            assert kinds_in(f"{BEFORE} {BEHIND}{tail}") == [("", BEFORE), ("", BEHIND), (kind, tail.strip())]


def test_a_byline_sticks_to_a_sentence_without_a_full_stop() -> None:
    text = "물빛시는 다리를 놓기로 했다 김하늘 기자 sky@mulbit.example"
    assert kinds_in(text) == [("", "물빛시는 다리를 놓기로 했다"), ("byline", "김하늘 기자 sky@mulbit.example")]


def test_one_line_with_a_triangle_is_a_caption_and_several_are_a_list() -> None:
    one = "▲ 25일 회의장에 시민들이 모여 있다."
    two = "▲ 시는 다음 달 공청회를 연다."
    assert [kind for kind, _ in kinds_in(f"{BEFORE}\n{one}\n{BEHIND}")] == ["", "caption", ""]
    assert [kind for kind, _ in kinds_in(f"{BEFORE}\n{one}\n{two}\n▲ 국장 김하늘\n{BEHIND}")] == [
        "",
        "",
        "",
        "list",
        "",
    ]


def test_a_credited_line_is_a_caption_unless_the_article_ends_with_it() -> None:
    line = "28일 새벽 온실에서 로봇이 딸기를 따고 있다. /온시혁 기자"
    assert kinds_in(f"{line}\n{BEFORE}")[0] == ("caption", line)
    assert [kind for kind, _ in kinds_in(f"{BEFORE}\n{line}")] == ["", "", "byline"]


def test_of_the_sample_s_sentences_only_questions_and_datelines_are_taken_out() -> None:
    taken = []
    for line in (SAMPLE_ROOT / "news.jsonl").read_text(encoding="utf-8").splitlines():
        article = json.loads(line)
        for segment in segments_of(article["text"]):
            is_sentence = any(segment.start < end and start < segment.end for start, end in article["sentences"])
            if segment.kind and is_sentence:
                taken.append(segment.kind)
            elif not segment.kind:
                assert is_sentence, article["text"][segment.start : segment.end]
    assert set(taken) <= {"question", "dateline"}


def test_behind_a_heading_of_related_items_nothing_is_a_sentence(subtests: pytest.Subtests) -> None:
    items = ["1. 배우 A씨 결혼", "가수 B씨가 새 노래를 냈다.", "- 시장 “다리 놓겠다”", "그는 누구인가. 팬들은 놀랐다."]
    for heading in [
        *[
            "많이 본 뉴스",
            "가장 많이 본 기사",
            "[관련기사]",
            "관련 뉴스",
            "인기기사 TOP 5",
            "■ 이 시각 주요뉴스",
            "추천뉴스",
        ],
        *[
            "이 시각 핫뉴스",
            "<실시간 인기뉴스>",
            "랭킹뉴스",
            "물빛신문 주요 뉴스",
            "▶ 함께 볼만한 기사",
            "오늘의 추천 기사:",
        ],
    ]:
        for joint in ("\n", " "):
            with subtests.test(heading=heading, joint=joint):
                text = f"{BEFORE} 시민은 반겼다. {BEHIND}{joint}{heading}{joint}{joint.join(items)}"
                assert [line for kind, line in kinds_in(text) if not kind] == [BEFORE, "시민은 반겼다.", BEHIND]


def test_a_box_of_related_items_inside_an_article_ends_with_the_next_paragraph() -> None:
    paragraph = "시는 300억원을 들여 내년 3월에 시작하고 2028년까지 공사를 마칠 계획이라고 25일 밝혔다."
    text = "\n".join([BEFORE, "[관련기사]", "물빛시 다리, 왜 늦었나", paragraph, "시민은 반겼다.", BEHIND])
    assert [line for kind, line in kinds_in(text) if not kind] == [BEFORE, paragraph, "시민은 반겼다.", BEHIND]


def test_headline_time_and_dateline_in_one_line_are_parted_from_the_sentence(subtests: pytest.Subtests) -> None:
    headline = "물빛시, 새 다리 놓는다"
    for kinds, opening in [
        (["headline", "timestamp", "dateline"], f"{headline} 2024.05.01 09:30 (물빛=물빛통신) 김하늘 기자 ="),
        (["headline", "timestamp", "dateline"], f"{headline} 입력 2024-05-01 09:30:00 【서울=물빛시스】"),
        (["headline", "dateline"], f"{headline} (서울=물빛통신) 김하늘 기자 ="),
        (["headline", "dateline"], f"{headline} [물빛일보 김하늘 기자]"),
        (["timestamp", "dateline"], "입력 2024.05.01. 오전 9:30 (물빛=물빛통신) 김하늘 기자 ="),
    ]:
        with subtests.test(opening=opening):
            found = kinds_in(f"{opening} {BEFORE} {BEHIND}")
            assert [kind for kind, _ in found] == [*kinds, "", ""]
            assert [line for kind, line in found if not kind] == [BEFORE, BEHIND]
    for sentence in ["회의는 2024.05.01 09:30 시작한다.", "그는 (물빛=물빛통신) 기사를 읽었다."]:
        with subtests.test(sentence=sentence):
            assert kinds_in(sentence) == [("", sentence)]


ALPHABET = [
    *[
        "기자",
        "특파원",
        "김하늘 ",
        "사진",
        "제공",
        "무단",
        "전재",
        "금지",
        "입니다",
        "뉴스",
        "지금까지 ",
        "구독",
        "앵커",
    ],
    *["=", "@", "a.b", ".", "[", "]", "(", ")", "/", " ", "\n", "ⓒ", "-", "▶", "▲", "·", ",", "했다. ", "2024.05.01 "],
    *["\u0301", "\ud800", "\x00", "\u2028", "“", "”", "ᄒ", "\u1161", "שלום", "\U0001f389"],
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(ALPHABET), max_size=60).map("".join))
def test_nothing_but_white_space_lies_between_segments(text: str) -> None:
    cursor = 0
    for segment in segments_of(text):
        assert cursor <= segment.start < segment.end <= len(text)
        assert not text[cursor : segment.start].strip()
        assert text[segment.start : segment.end].strip()
        cursor = segment.end
    assert not text[cursor:].strip()


def test_no_pattern_takes_long_over_a_line_that_repeats_itself(subtests: pytest.Subtests) -> None:
    for unit in ["기자 ", "김하늘 기자 ", "기자, ", "a@", "가·", "[사진", "김하늘 기자=", "(끝", "▲ ", "했다 김하늘 "]:
        with subtests.test(unit=unit):
            started = time.process_time()
            for length in (40, 149, 3000):
                segments_of("".join(itertools.islice(itertools.cycle(unit), length)))
            assert time.process_time() - started < 2  # measured below 0.05


def test_every_kind_has_a_line_above() -> None:
    assert set(KINDS) <= {kind for kind, _ in BOILERPLATE}


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(corpora.boilerplate).failed == 0
