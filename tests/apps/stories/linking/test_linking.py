"""Log-odds of pairs, groups of titles, and routine formats."""

import doctest
import importlib
from types import ModuleType

import numpy as np
import pytest

import apps.stories.page
from apps.stories.articles import Article
from apps.stories.clusters import CharNgrams, ClusteringConfig, Clusters, cluster
from apps.stories.linking.groups import Levels, attached, cut_by_category, link
from apps.stories.linking.growth import Judge
from apps.stories.linking.pairs import PairFeatures
from apps.stories.linking.routine import routine_kind
from apps.stories.state import Stories

BOOKING = [
    "얀센 백신 예약 18시간 만에 90만명분 마감",
    "얀센 백신 18시간 만에 최종 마감…90만 명 예약",
    "얀센백신 예약 첫날 1차 80만 명분 예약 마감",
    "얀센 백신 사전예약 종료…90만명 몰려",
]
VIDEO = [
    "방탄소년단 '다이너마이트' 뮤직비디오 조회수 11억 돌파",
    "방탄소년단, ‘다이너마이트’ 뮤직비디오 11억뷰 돌파",
    "BTS '다이너마이트' MV, 공개 10개월 만에 11억뷰 돌파",
    "‘Dynamite’ 뮤직비디오, 11억 뷰 돌파…통산 3번째 기록한 방탄소년단",
]
UNRELATED = [
    "고흥군, 유자 가공 공장 준공식 열어",
    "백신 접종률 높인 성북구 통장들",
    "백신 접종 건강보험 자료로 분석한다",
    "홍석천, 백신 맞고 소감 전해",
    "골목 서점이 문을 닫는 까닭",
    "강릉 해변에 돌아온 두루미",
    "프로배구 새 외국인 선수 입국",
    "중고 피아노 값 오른 이유",
    "지하철 막차 한 시간 늘린다",
    "폐교에 들어선 시골 천문대",
]


def stories_of(clusters: Clusters) -> set[frozenset[str]]:
    return {frozenset(clusters.articles[m.index].title for m in story.members) for story in clusters.stories}


def found(*titles: str, **settings: object) -> set[frozenset[str]]:
    return stories_of(cluster(titles, ClusteringConfig(**settings), embedder=CharNgrams()))  # type: ignore[arg-type]


def test_a_pair_means_the_same_in_a_file_of_any_size() -> None:
    def odds(*others: str) -> float:
        texts = [BOOKING[0], BOOKING[1], *others]
        return float(PairFeatures(texts).log_odds_of(np.array([0]), np.array([1]))[0])

    many = [
        f"{place} {what} {number}번째 행사" for place in UNRELATED for what in ("서점", "축제") for number in range(60)
    ]
    assert odds() == pytest.approx(odds(*many), abs=0.6)


def test_log_odds_of_a_table_are_those_of_its_pairs() -> None:
    texts = [*BOOKING, *VIDEO, *UNRELATED, "숫자 없는 제목", "?!"]
    features = PairFeatures(texts)
    every = np.arange(len(texts))
    table = features.log_odds(every, every)
    first, second = np.triu_indices(len(texts), 1)
    np.testing.assert_allclose(table[first, second], features.log_odds_of(first, second), atol=1e-4)
    np.testing.assert_allclose(table, table.T, atol=1e-5)
    inside = table[:4, :4][~np.eye(4, dtype=bool)]
    assert inside.mean() > table[:4, 4:].max()


def test_a_file_of_one_event_gives_its_story_and_a_file_of_none_gives_none() -> None:
    assert found(*BOOKING) == {frozenset(BOOKING)}
    assert found(*UNRELATED) == set()


def test_events_are_distinguished_in_a_small_file_and_unrelated_titles_left_out() -> None:
    assert found(*BOOKING, *VIDEO, *UNRELATED) == {frozenset(BOOKING), frozenset(VIDEO)}


def test_a_story_across_categories_keeps_its_largest_part() -> None:
    titles = [*BOOKING, *VIDEO]
    for categories, parts in (
        (["사회"] * 4, {frozenset(BOOKING)}),
        (["사회", "사회", "정치", "정치"], {frozenset(BOOKING[:2])}),
        (["사회", "사회", "사회", "정치"], {frozenset(BOOKING[:3])}),
    ):
        articles = [Article(t, category=c) for t, c in zip(titles, [*categories, *["연예"] * 4], strict=True)]
        clusters = cluster(articles, ClusteringConfig(by_category=True), embedder=CharNgrams())
        assert stories_of(clusters) == {*parts, frozenset(VIDEO)}, categories
    labels = cut_by_category(np.array([0, 0, 0, -1]), np.array(["a", "b", "c", "a"], object), 3)
    assert labels.tolist() == [-1] * 4


def test_every_level_is_used() -> None:
    again = ["얀센백신 예약 첫날 1차로 80만 명분 예약 마감", "얀센 백신 사전예약 종료…90만명이나 몰려"]
    texts = sorted([*BOOKING, *again, *VIDEO, *UNRELATED])
    features = PairFeatures(texts)

    def groups(**levels: float) -> list[int]:
        return link(features, 2, Levels(**levels)).tolist()

    apart = {"log_odds": 3.5, "join": 2.0, "join_facts": 99.0, "join_least": 0.05, "attach": 2.0}
    for level, value in (("log_odds", -1.0), ("join", 0.05), ("join_facts", 0.1), ("attach", 0.05)):
        assert groups(**apart | {level: value}) != groups(**apart), level
    assert groups(**apart | {"join_facts": 0.1, "join_least": 0.9}) == groups(**apart)


def test_kept_stories_take_by_the_same_levels() -> None:
    stories = Stories.fit([*BOOKING, *VIDEO], embedder=CharNgrams())
    assert len(stories.stories) == 2
    joined = stories.assign(["얀센 백신 예약 첫날 마감…90만명 몰려", *UNRELATED], embedder=CharNgrams())
    assert joined[0] is not None
    assert set(joined[1:]) == {None}
    assert stories.found() == []


def test_titles_are_taken_each_by_its_story_alone() -> None:
    stories = {"booking": BOOKING[:3], "video": VIDEO[:3]}
    new = [BOOKING[3], VIDEO[3], *UNRELATED[:3], BOOKING[0]]
    for levels in (Levels(), Levels(log_odds=-2.0), Levels(log_odds=2.0, attach=0.2), Levels(log_odds=9.0, attach=2.0)):
        judge = Judge(stories, new, levels)
        features = PairFeatures(texts := sorted({*new, *BOOKING[:3], *VIDEO[:3]}))
        for story, titles in stories.items():
            labels = np.full(len(texts), -1)
            labels[[texts.index(title) for title in titles]] = 0
            members = np.flatnonzero(labels == 0)
            expected = []
            for title in new:
                number = np.array([texts.index(title)])
                is_linked = features.log_odds(number, members).clip(-6, 6).mean() >= levels.log_odds
                is_attached = attached(features, labels, number, levels.attach)[0] == 0
                expected.append(bool(title in titles or is_linked or is_attached))
            assert judge.takes_each([story] * len(new), new).tolist() == expected, (levels, story)
            assert [judge.takes(story, [title]) for title in new] == expected, (levels, story)
    mixed = Judge(stories, new, Levels()).takes_each(["booking", "video", "video"], [BOOKING[3], BOOKING[3], VIDEO[3]])
    assert mixed.tolist() == [True, False, True]


ROUTINE = {
    "운세": ["[오늘의 운세] 6월 2일", "오늘의 운세(6월 1일)", "2026년 1월 3일 띠별 운세", "<별자리 운세> 3월 첫째 주"],
    "날씨": [
        "[날씨] 내일 맑음",
        "오늘의 날씨- 2021년 6월 2일",
        "내일 맑고 초여름 더위…낮 최고 30도",
        "【내일 날씨】 전국 비",
    ],
    "인사": ["[인사] 벼리시", "<인사> 너울전자 外", "벼리일보 인사", "6월 2일 인사", "[경제계 인사] 너울전자"],
    "부고": ["[부고] 김하늘씨 부친상", "김하늘 벼리시 팀장 모친상", "<오늘의 부고>", "【부음】 한지우씨 별세"],
    "동정": ["[동정] 김하늘 벼리시장", "[게시판] 벼리문화재단", "[단신] 너울전자 外"],
    "증시": [
        "[특징주] 너울전자, 실적에 강세",
        "너울전자 주가 7%↑",
        "[코스피(마감)] 17.95포인트 오른 3,221.87",
        "너울전자, 지분변동",
    ],
    "포토": ["[포토] 배우 김하늘, 밝은 미소", "[헤럴드pic] 발언하는 시장", "[벼리포토] 첫눈", "[사진]면회"],
    "만평": ["[만평] 6월 2일", "블론디 6월 2일자"],
    "로또": ["제1,100회 로또 당첨번호 1, 2, 3", "[로또] 1100회 당첨 번호"],
    "일정": ["[오늘의 경기] 프로야구", "[오늘의 국회 일정(1일)] 정당 대표", "6월1일(화) TV 편성표"],
    "뉴스 모음": ["[뉴스9 헤드라인]", "[YTN 실시간뉴스] 예약 시작", "[간추린 뉴스] 벼리시 외"],
}
NOT_ROUTINE = (
    "벼리시, 인사 담당자 교육 열어",
    "날씨 보험 판다…너울화재 새 상품",
    "배우 김하늘, 사진전 연다",
    "로또 판매점 늘린다",
    "총장 인사 앞두고 사의",
    "[종합] 얀센 예약 마감",
    "국회 의사일정 합의",
    "장인상 받은 대장장이",
    "벼리 장인상 수상자 발표",
)


def test_routine_formats_are_known_by_kind() -> None:
    for kind, titles in ROUTINE.items():
        for title in titles:
            assert routine_kind(title) == kind, title
    for title in NOT_ROUTINE:
        assert routine_kind(title) == "", title


def test_routine_titles_are_in_no_story_but_in_a_list_of_their_own() -> None:
    photos = [f"[포토] 얀센 백신 예약 마감 {word}" for word in ("현장", "안내", "창구", "화면")]
    clusters = cluster([*BOOKING, *photos, *["[인사] 벼리시"] * 4], embedder=CharNgrams())
    assert stories_of(clusters) == {frozenset(BOOKING)}
    assert clusters.routine == {"인사": (8, 9, 10, 11), "포토": (4, 5, 6, 7)}
    grouped = cluster(photos, ClusteringConfig(routine="group"), embedder=CharNgrams())
    assert len(grouped.stories) == 1
    kept = Stories.fit(BOOKING, embedder=CharNgrams())
    assert kept.assign(photos, embedder=CharNgrams()) == [None] * 4


def test_the_examples_are_true() -> None:
    modules: list[ModuleType] = [apps.stories.page]
    modules += [importlib.import_module(f"apps.stories.linking.{name}") for name in ("routine", "words")]
    for module in modules:
        assert doctest.testmod(module).failed == 0, module.__name__
