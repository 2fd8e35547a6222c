"""Near-duplicates: against brute force, and texts that are no copies."""

import doctest
import unicodedata
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

import apps.stories.duplicates
from apps.stories.duplicates import (
    DuplicateConfig,
    DuplicateGroup,
    find_duplicates,
    have_same_facts,
    jaccard,
    letters_of,
    shingles_of,
)

SAME = [
    ("금리 3.5% 동결", "금리, 3.5% 동결"),
    ("5월 수출 45.6%↑…32년 만에 최대폭 상승", "5월 수출액, 전년 대비 45.6%↑… 32년 만에 최대폭 상승"),
    ("코로나19 신규 확진자 459명", "코로나 19 신규확진자 459명"),
    ("SNT모티브, 자사주 1,000억원 기부", "SNT모티브, 자사주 1000억 원 기부"),
    ("지난해 화폐 4조 7천 억 원 폐기", "지난해 화폐 4조 7천억 원 폐기"),
    ("‘노노갈등’ 심화…쟁의 새 변수 부상", "'노노갈등' 쟁의 새 변수 부상"),
    ("문 대통령, 김오수 검찰총장 임명장 수여", "문 대통령, 김오수 검찰총장에 임명장 수여"),
    ("KBC 출범", "kbc 출범"),
]
MINIMAL = [
    # numbers
    ("금리 3.5% 동결", "금리 4.5% 동결"),
    ("금리 3.5% 동결", "금리 35% 동결"),
    ("영업이익 3% 증가", "영업이익 -3% 증가"),
    ("징역 45년에서 42년으로 감형", "징역 42년에서 45년으로 감형"),
    ("신규 확진 2,592명", "신규 확진 2,593명"),
    ("시민 세 명 다쳐", "시민 네 명 다쳐"),
    ("예산 2조 확정", "예산 2억 확정"),
    ("첫 번째 재판 열려", "두 번째 재판 열려"),
    ("5월 수출 최대", "6월 수출 최대"),
    # names
    ("이준석 후보 지지율 상승", "나경원 후보 지지율 상승"),
    ("나경원, 이준석 정면 비판", "이준석, 나경원 정면 비판"),
    ("삼성전자 반도체 공장 착공", "현대차 반도체 공장 착공"),
    ("부산 신규 확진자 발생", "대구 신규 확진자 발생"),
    ("尹, 국민의힘 입당 검토", "李, 국민의힘 입당 검토"),
    ("NHN 컨퍼런스 개최", "SKT 컨퍼런스 개최"),
    ("경남도청 정례회 개회", "합천군 경남도청 정례회 개회"),
    # negations
    ("대통령 사과했다", "대통령 사과하지 않았다"),
    ("백신 맞는다", "백신 안 맞는다"),
    ("의혹 있다 주장", "의혹 없다 주장"),
    ("처분 공개 결정", "처분 비공개 결정"),
    ("사실이다 해명", "사실이 아니다 해명"),
    ("문제 풀었다", "문제 못 풀었다"),
    # words instead of others
    ("개헌 찬성 여론 확산", "개헌 반대 여론 확산"),
    ("집값 오른다 전망", "집값 내린다 전망"),
]


def test_copies_say_the_same() -> None:
    for first, second in SAME:
        assert have_same_facts(first, second), first
        assert have_same_facts(second, first), first


def test_a_number_a_name_or_a_negation_makes_another_text() -> None:
    for first, second in MINIMAL:
        assert not have_same_facts(first, second), first
        assert not have_same_facts(second, first), first
        # However alike the vectors are.
        points = np.ones((2, 1), np.float32)
        assert find_duplicates([first, second], points, DuplicateConfig(min_jaccard=0.01, least_jaccard=0)) == [], first


def test_heads_of_status_are_no_difference_and_heads_of_topic_are() -> None:
    title = "기준금리 석 달째 동결"
    for copy in (
        "[속보] {}",
        "[속보]{}",
        "{} [종합]",
        "{}(종합2보)",
        "<속보> {}",
        "속보 | {}",
        "[단독·영상] {}",
        "[헤럴드pic] {}",
        "【1보】 {}",
    ):
        assert find_duplicates([title, copy.format(title)]) == [DuplicateGroup(0, (0, 1))], copy
    for first, second in (
        ("[인사] 벼리시", "[부고] 벼리시"),
        ("[5월 실적] 너울차 판매 늘어", "[6월 실적] 너울차 판매 늘어"),
    ):
        assert find_duplicates([first, second], np.ones((2, 1), np.float32)) == [], first
    assert len(find_duplicates(["[5월 실적] 너울차 판매 늘어", "너울차 판매 늘어"])) == 1


BODY = (
    "벼리시의회가 17일 본회의를 열어 내년 예산안을 의결했다. 재적 의원 27명 가운데 16명이 찬성했다.\n"
    "의회는 야간 어린이 진료소 14곳의 운영비를 원안대로 두고, 축제 예산은 절반으로 줄였다. "
    "시장은 “시민의 뜻을 받들겠다”고 말했다.\n"
    "반대한 의원들은 지방채 발행이 지나치다고 지적했다. 다음 회기는 1월 8일에 시작된다."
)
"""A body in three paragraphs."""
DAILY = (
    "벼리시는 {day}일 오전 0시 기준으로 코로나19 확진자가 {new}명 늘어 모두 {total}명이라고 밝혔다. "
    "새로 확진된 {new}명 가운데 {home}명은 가족을 통해, {work}명은 직장에서 감염된 것으로 조사됐다. "
    "시는 접촉자 {contact}명을 자가 격리하도록 했다. 방역 당국은 마스크를 쓰고 모임을 줄여 달라고 거듭 당부했다."
)


def test_a_body_is_found_after_the_edits_of_newsrooms() -> None:
    words = BODY.split(" ")
    edits = {
        "byline": f"{BODY}\n김하늘 기자 sky@press.example",
        "dateline": f"(벼리=물빛통신) 김하늘 기자 = {BODY}",
        "copyright": f"{BODY}\n<저작권자 ⓒ 물빛통신, 무단 전재 및 재배포 금지>\n▶ 물빛통신 구독하기",
        "all of them": f"[벼리=물빛뉴스] 김하늘 기자 = {BODY}\nsky@press.example\n<저작권자 ⓒ 물빛통신, 재배포 금지>",
        "first sentence dropped": BODY.partition(". ")[2],
        "last sentence dropped": BODY.rpartition(". ")[0] + ".",
        "word replaced": " ".join([*words[:8], "가결했다", *words[9:]]),
        "straight quotes": BODY.replace("“", '"').replace("”", '"'),
        "paragraphs reordered": "\n".join(reversed(BODY.split("\n"))),
        "in one line": BODY.replace("\n", " "),
        "paragraph added": f"{BODY}\n한편 너울전자는 접이식 투명 휴대전화를 새로 내놓았다. 값은 38만 원이다.",
        "decomposed": unicodedata.normalize("NFD", BODY),
    }
    for name, copy in edits.items():
        assert copy != BODY, name
        for first, second in ((BODY, copy), (copy, BODY)):
            groups = find_duplicates(
                [first, second, DAILY.format(day=3, new=12, total=459, home=7, work=2, contact=81)]
            )
            assert [sorted(group.members) for group in groups] == [[0, 1]], name


def test_reports_in_a_fixed_wording_and_mere_parts_are_no_copies() -> None:
    first = DAILY.format(day=3, new=12, total=459, home=7, work=2, contact=81)
    second = DAILY.format(day=4, new=15, total=474, home=6, work=5, contact=93)
    assert find_duplicates([first, second]) == []
    other = "\n".join(titles(60))
    assert find_duplicates([BODY, f"{other}\n{BODY}"]) == []
    # One sentence of a body is a short text.
    assert find_duplicates([BODY, BODY.partition(". ")[0]]) == []


def test_boilerplate_alone_is_compared_as_it_is() -> None:
    line = "<저작권자 ⓒ 물빛통신, 무단 전재 및 재배포 금지>"
    assert find_duplicates([line, f"{line} "]) == [DuplicateGroup(0, (0, 1))]
    assert find_duplicates([f"{line}\n김하늘 기자", BODY]) == []


def titles(size: int) -> list[str]:
    """Return titles, of which some are others with a letter or two changed."""
    random = np.random.default_rng(4)
    syllables = [chr(code) for code in range(ord("가"), ord("가") + 2000, 7)]
    made: list[str] = []
    while len(made) < size:
        if made and random.random() < 0.4:
            letters = list(made[random.integers(len(made))])
            for _ in range(random.integers(1, 3)):
                letters[random.integers(len(letters))] = syllables[random.integers(len(syllables))]
            made.append("".join(letters))
        else:
            made.append("".join(syllables[k] for k in random.integers(0, len(syllables), random.integers(4, 60))))
    return sorted(set(made))


def test_every_setting_is_used() -> None:
    for setting, value in [("shingle", 2), ("min_jaccard", 0.5), ("min_cosine", 0.999), ("least_jaccard", 0.9)]:
        # Jaccard indices: 0.625 for the first two, 0.29 for the last two; cosines: 0.98 for these, 0.6 for those.
        texts = ["환경부, 기후정책실 물관리실 신설하기로", "기후정책실 물관리실 신설하기로, 환경부"]
        texts += ["벼리시의회 본회의 오늘 개회 선언", "오늘 벼리시의회 본회의 개회"]
        points = np.array([[1, 0, 0], [0.6, 0.8, 0], [0, 0.2, 0.98], [0, 0, 1]], np.float32)
        base = {"min_cosine": 0.9, "least_jaccard": 0.2}
        before = find_duplicates(texts, points, DuplicateConfig(**base))
        after = find_duplicates(texts, points, DuplicateConfig(**base | {setting: value}))
        assert before != after, setting
    shorter = " ".join(BODY.split()[:-14])
    for setting, value, others in [
        ("body_letters", 300, {}),
        ("body_jaccard", 0.99, {"body_containment": 1.0, "body_jaccard": 0.5, "least_size": 1.0}),
        ("body_containment", 1.0, {"body_containment": 0.6, "body_jaccard": 1.0}),
        ("least_size", 0.95, {"body_jaccard": 1.0}),
    ]:
        # Their ends differ, so that neither contains the other as a whole.
        texts = [BODY, f"{shorter} 시민들은 반겼다."]
        assert len(find_duplicates(texts, config=DuplicateConfig(**others))) == 1, setting
        assert find_duplicates(texts, config=DuplicateConfig(**others | {setting: value})) == [], setting


def test_embeddings_find_copies_in_another_order() -> None:
    texts = ["환경부, 기후정책실 물관리실 신설하기로", "기후정책실 물관리실 신설하기로, 환경부", "첫눈 내린 고갯길"]
    assert find_duplicates(texts) == []
    points = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    (group,) = find_duplicates(texts, points)
    assert set(group.members) == {0, 1}


def test_each_member_is_a_duplicate_of_its_representative(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a chain of small changes the ends are no duplicates, and connected components would put them together."""
    monkeypatch.setattr("apps.stories.duplicates._have_same_facts", lambda _, pairs: [True] * len(pairs))
    base = "가나다라마바사아자차카타파하거너더러머버서어저처커터퍼허"
    chain = [base[k : k + 20] for k in range(9)]
    config = DuplicateConfig()
    groups = find_duplicates(chain, config=config)
    assert len(groups) >= 2
    for group in groups:
        first = shingles_of(chain[group.representative], 5)
        assert all(jaccard(first, shingles_of(chain[member], 5)) >= config.min_jaccard for member in group.members)
    assert sum(len(group.members) for group in groups) == len({k for group in groups for k in group.members})


def test_the_order_of_texts_does_not_matter() -> None:
    texts = titles(300) + ["금리 3.5% 동결"] * 3 + ["금리, 3.5% 동결", ""]
    order = np.random.default_rng(0).permutation(len(texts)).tolist()

    def groups(some: Sequence[str]) -> set[frozenset[str]]:
        return {frozenset(some[k] for k in group.members) for group in find_duplicates(some)}

    assert groups(texts) == groups([texts[k] for k in order])


def test_the_text_with_most_copies_represents() -> None:
    texts = ["금리, 3.5% 동결", "금리 3.5% 동결", "금리 3.5% 동결", "금리 3.5%  동결"]
    assert find_duplicates(texts) == [DuplicateGroup(1, (1, 0, 2, 3))]


def test_nothing_to_compare_is_a_duplicate_of_nothing() -> None:
    for texts in [[], [""], ["첫눈"], ["", "", "···", "···"], ["첫눈", "막차"]]:
        assert find_duplicates(texts) == [], texts
        assert find_duplicates(texts, np.zeros((len(texts), 3), np.float32)) == [], texts


def test_hostile_texts_are_copies_of_themselves() -> None:
    for text in ["가", "🎉 첫눈", "a" * 100_000, "\ufffd첫눈", "<b>첫눈</b>"]:
        assert find_duplicates([text, "막차 연장", text]) == [DuplicateGroup(0, (0, 2))], text[:9]


def test_letters_are_what_readers_see() -> None:
    assert letters_of("“\uff21i”, 3.5%‧\uff11만") == "ai3\x0051만"
    assert letters_of("3.5") != letters_of("35")
    assert shingles_of("가나", 5) == {"가나"}
    assert shingles_of("가 나다-라마바", 5) == {"가나다라마", "나다라마바"}


def test_the_examples_are_true() -> None:
    assert doctest.testmod(apps.stories.duplicates).failed == 0


def test_what_is_no_list_of_texts_is_refused() -> None:
    for texts, what in (("문자열", "a single string"), (["제목", None], "not a string")):
        with pytest.raises(ValueError, match=what):
            find_duplicates(cast(Any, texts))
