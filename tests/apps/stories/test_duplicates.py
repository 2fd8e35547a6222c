"""Near-duplicates: against brute force, and texts that must stay apart."""

import doctest
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
    # words in the place of others
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
