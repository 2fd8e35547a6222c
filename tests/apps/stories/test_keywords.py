"""Keywords: what counts as a term, the arithmetic of c-TF-IDF, and that terms do not repeat each other."""

import doctest
import math

import numpy as np
import pytest

import apps.stories.keywords
from apps.stories.keywords import ClassTfidf, find_terms


def terms(text: str) -> list[str]:
    return [term.text for term in next(find_terms([text]))]


def test_terms_are_nouns_as_they_are_written() -> None:
    for text, expected in [
        ("얀센 백신 예약", {"얀센", "백신", "예약", "얀센 백신", "백신 예약"}),
        ("코로나19 확진자", {"코로나19", "확진자"}),
        ("기준금리를 동결했다", {"기준금리", "동결"}),
        ("P4G 정상회의", {"P4G", "정상회의"}),
        ("재보궐 선거", {"재보궐", "선거"}),
        ("5G 요금제", {"5G", "요금제"}),
    ]:
        assert expected <= set(terms(text)), text


def test_terms_are_no_verbs_particles_numbers_or_single_letters() -> None:
    found = terms("그는 3만 명이 몰려 와서 또 갔다고 했다")
    assert not {"그", "3만", "몰려", "와서", "갔다고"} & set(found)
    assert all(len(term) > 1 for term in terms("與野 대치에 국회 또 멈췄다"))


def test_terms_are_slices_of_their_text() -> None:
    text = "누리호, 발사대 기립…한국형 발사체 11년 만에"
    for term in next(find_terms([text])):
        assert text[term.start : term.end] == term.text


def test_weights_are_class_tf_idf() -> None:
    texts = ["금리 동결", "금리 인상", "첫눈 소식", "첫눈 축제", "막차 연장"]
    keywords = ClassTfidf(num_keywords=9, diversity=0)(texts, np.array([0, 0, 1, 1, -1]))
    # Counted by hand: two nouns and their pair in each of five titles, one of which is in no story.
    weight = {keyword.text: keyword.weight for keyword in keywords[0]}
    assert weight["금리"] == pytest.approx(2 / 6 * math.log(1 + 15 / 3 / 2))
    assert weight["금리 동결"] == pytest.approx(1 / 6 * math.log(1 + 15 / 3 / 1))
    assert [story[0].text for story in keywords] == ["금리", "첫눈"]


def test_the_number_of_stories_does_not_come_from_the_last_one() -> None:
    """The notebook takes the size of the category it read last for all of them."""
    texts = ["금리 동결", "금리 인상", "첫눈 소식", "첫눈 축제"]
    labels = np.array([0, 0, 1, 1])
    both = ClassTfidf()(texts, labels)
    swapped = ClassTfidf()(texts, 1 - labels)
    assert both == swapped[::-1]


def test_what_is_everywhere_weighs_little() -> None:
    texts = [f"코로나19 {word} 소식" for word in ("접종", "접종", "확진", "확진", "치료", "치료")]
    keywords = ClassTfidf(num_keywords=2)(texts, np.array([0, 0, 1, 1, 2, 2]))
    assert [story[0].text for story in keywords] != ["코로나19"] * 3


def test_diversity_keeps_terms_from_repeating_each_other() -> None:
    texts = ["얀센 백신 예약 마감", "얀센 백신 예약 시작", "얀센 백신 예약 폭주", "얀센 백신 예약 종료"]
    labels = np.zeros(4, np.int64)

    def shared(diversity: float) -> int:
        (story,) = ClassTfidf(num_keywords=4, diversity=diversity)(texts, labels)
        chosen = [keyword.text for keyword in story]
        return sum(a != b and a in b for a in chosen for b in chosen)

    assert shared(0.7) < shared(0.0)


def test_terms_of_one_title_alone_are_left_out_where_others_are() -> None:
    texts = ["누리호 발사대 기립 현장", "누리호 발사대 기립 생중계", "누리호 발사대 기립 환호"]
    (story,) = ClassTfidf(num_keywords=3)(texts, np.zeros(3, np.int64))
    assert not {"현장", "생중계", "환호"} & {keyword.text for keyword in story}


def test_there_are_as_many_keywords_as_asked_for() -> None:
    for number in [0, 1, 5]:
        texts = ["누리호 발사대 기립 현장", "누리호 발사대 기립 생중계"]
        (story,) = ClassTfidf(num_keywords=number)(texts, np.zeros(2, np.int64))
        assert len(story) == number, number


def test_the_order_of_titles_does_not_matter() -> None:
    texts = ["금리 동결 결정", "금리 인상 보류", "물가 안정 대책", "물가 상승 전망"]
    labels = np.array([0, 0, 1, 1])
    order = [2, 0, 3, 1]
    assert ClassTfidf()(texts, labels) == ClassTfidf()([texts[k] for k in order], labels[order])


def test_without_stories_there_are_no_keywords() -> None:
    for texts in [[], ["첫눈"]]:
        assert ClassTfidf()(texts, np.full(len(texts), -1)) == [], texts


def test_titles_without_nouns_have_no_keywords() -> None:
    assert ClassTfidf()(["🎉🎉", "!!!", "ㅋㅋ"], np.zeros(3, np.int64)) == [()]


def test_the_examples_are_true() -> None:
    assert doctest.testmod(apps.stories.keywords).failed == 0
