"""Minimal pairs differ in one place, come out the same every time, and are scored with ties as one half."""

from eval.minimal_pairs import make_pairs, wins
from eval.minimal_pairs.__main__ import accuracies
from eval.minimal_pairs.ngram import SyllableNgrams
from eval.minimal_pairs.phenomena import BY_NAME, PHENOMENA

EXAMPLES = {
    "object-particle": ("그는 소설을 읽었다.", "그는 소설를 읽었다."),
    "topic-particle": ("이 사람은 왔다.", "이 사람는 왔다."),
    "subject-particle": ("그 나라가 이겼다.", "그 나라이 이겼다."),
    "and-particle": ("우리 학교와 집을 오간다.", "우리 학교과 집을 오간다."),
    "direction-particle": ("우리는 서울로 갔다.", "우리는 서울으로 갔다."),
    "genitive-case": ("우리 초등학교의 역사는 길다.", "우리 초등학교를 역사는 길다."),
    "particle-order": ("서울 학교에서는 쉰다.", "서울 학교는에서 쉰다."),
    "negative-polarity": ("갈 수밖에 없다.", "갈 수밖에 있다."),
    "tense-adverb": ("지난해 공사를 시작했다.", "내년 공사를 시작했다."),
    "doe-dwae": ("일이 되고 있다.", "일이 돼고 있다."),
    "an-anh": ("가지 않는다.", "가지 안는다."),
    "counter": ("두 명이 왔다.", "두 마리가 왔다."),
    "quoting-ending": ("일을 했다고 말했다.", "일을 했라고 말했다."),
    "spacing": ("우리 학교에서 만났다.", "우리 학교 에서 만났다."),
    "speech-level": ("저는 집에 갑니다.", "저는 집에 간다."),
    "vowel-harmony": ("선물을 받았다.", "선물을 받었다."),
    "adnominal-ending": ("일찍 자고 쉬는 사람", "일찍 자고 쉰다 사람"),
}


def test_every_phenomenon_makes_its_example() -> None:
    assert set(EXAMPLES) == set(BY_NAME)
    assert {name: BY_NAME[name].make(right) for name, (right, _) in EXAMPLES.items()} == {
        name: wrong for name, (_, wrong) in EXAMPLES.items()
    }


def test_pairs_of_the_sample_are_the_same_every_time_and_differ() -> None:
    pairs = make_pairs(None)
    assert pairs == make_pairs(None)
    assert len(pairs) > 1_000
    assert {pair.phenomenon for pair in pairs} <= {phenomenon.name for phenomenon in PHENOMENA}
    assert all(pair.right != pair.wrong for pair in pairs)


def test_ties_count_half() -> None:
    assert [wins(2, 1), wins(1, 2), wins(1, 1)] == [1.0, 0.0, 0.5]
    pairs = make_pairs(None)[:40]
    same = dict.fromkeys([text for pair in pairs for text in (pair.right, pair.wrong)], 0.0)
    assert accuracies(pairs, same)["mean of phenomena"] == 0.5


def test_the_baseline_prefers_what_it_has_counted() -> None:
    ngrams = SyllableNgrams.of(["그는 책을 읽었다.", "책을 샀다."])
    assert ngrams.log_likelihood("책을 읽었다.") > ngrams.log_likelihood("책를 읽었다.")
