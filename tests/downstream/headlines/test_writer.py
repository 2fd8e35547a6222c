"""Headlines: candidates that invent facts are refused, and the sentence of the lead is always there."""

import pytest

from downstream.headline import headline
from downstream.headlines.evaluation import HeadlineScores, evaluate_headlines
from downstream.headlines.pairs import Pair
from downstream.headlines.writer import HeadlineWriter, spaced_like

ARTICLE = """강릉시는 5일 시내버스 12대를 늘린다고 밝혔다. 새 버스는 다음 달부터 안목과 주문진을 오간다. 시는 버스에
30억 원을 썼다. 주민들은 배차 간격이 줄어들 것으로 기대했다. 김영수 시장은 “노선도 다시 짜겠다”고 말했다."""


def writer_of(*candidates: str) -> HeadlineWriter:
    return HeadlineWriter(lambda _, number: [(text, 0.5**k) for k, text in enumerate(candidates[:number], start=1)])


def test_candidates_that_invent_facts_are_refused() -> None:
    writer = writer_of(
        "강릉시 버스 13 대 증차",
        " 속초시 버스 12대 증차",
        "강릉시 버스 12 대 늘린다",
        "[UNK]",
        "강릉시 버스 12대 늘린다",
    )
    found = writer.candidates(ARTICLE)
    assert [candidate.text for candidate in found] == [
        "강릉시 버스 13 대 증차",
        "속초시 버스 12대 증차",
        "강릉시 버스 12 대 늘린다",
        "강릉시 버스 12대 늘린다",
    ]
    assert found[0].invented == ("13 대",)
    assert "속초" in found[1].invented[0]
    headlines = writer.write(ARTICLE)
    assert [(h.text, h.is_extractive) for h in headlines[:-1]] == [
        ("강릉시 버스 12 대 늘린다", False),
        ("강릉시 버스 12대 늘린다", False),
    ]
    assert headlines[-1].is_extractive
    assert headlines[-1].text in " ".join(ARTICLE.split())
    assert all(0 < h.score <= 1 for h in headlines)


def test_the_last_headline_is_a_sentence_of_the_lead() -> None:
    *shortened, sentence = headline(ARTICLE)
    assert sentence == HeadlineWriter().extractive(ARTICLE)
    assert shortened
    assert all(not found.is_extractive and len(found.text) < len(sentence.text) for found in shortened)
    assert headline("") == []
    assert len(writer_of("버스 99대").write(ARTICLE)) == 1
    for count, num_beams in ((0, 8), (4, 3)):
        with pytest.raises(ValueError, match="count"):
            HeadlineWriter().write(ARTICLE, count, num_beams)


def test_spaces_around_punctuation_are_those_of_the_text(subtests: pytest.Subtests) -> None:
    text = "수출이 3.5% 늘어 “최대”라고 했다. 한·중 회담(서울)은 A - B 방식, 1,200명이 왔다."
    for raw, expected in (
        ("수출 3 . 5 % 늘어", "수출 3.5% 늘어"),
        ("“ 최대 ” 수출 …", "“최대” 수출…"),
        ("한 · 중 회담 ( 서울 )", "한·중 회담(서울)"),
        ("A - B 방식", "A - B 방식"),
        ("1 , 200명", "1,200명"),
    ):
        with subtests.test(raw=raw):
            assert spaced_like(raw, text) == expected


def test_scores_count_what_the_check_prevents() -> None:
    writer = writer_of("강릉시 버스 13대 증차", "강릉시 시내버스 12대 늘린다")
    pairs = [Pair(ARTICLE, "강릉시 시내버스 12대 늘린다"), Pair(ARTICLE, "강릉시 버스 12대 증차")]
    scores = evaluate_headlines(writer, pairs, num_beams=2).as_json()
    assert (scores["num_texts"], scores["num_candidates"], scores["num_refused"], scores["num_without"]) == (2, 4, 2, 0)
    assert (scores["num_invented"], scores["num_invented_unchecked"]) == (0, 2)
    assert scores["rouge_l"]["written"] > scores["rouge_l"]["extractive"]
    assert scores["difference"] == pytest.approx(
        scores["rouge_l"]["written"] - scores["rouge_l"]["extractive"], abs=1e-5
    )


def test_scores_of_parts_are_joined() -> None:
    writer = writer_of("강릉시 버스 13대 증차", "강릉시 시내버스 12대 늘린다")
    pairs = [
        Pair(ARTICLE, "강릉시 시내버스 12대 늘린다"),
        Pair(ARTICLE, "강릉시 버스 12대 증차"),
        Pair(ARTICLE, "버스"),
    ]
    whole = evaluate_headlines(writer, pairs, num_beams=2)
    joined = HeadlineScores.join([evaluate_headlines(writer, some, num_beams=2) for some in (pairs[:1], pairs[1:])])
    assert joined.as_json() == whole.as_json()
    assert joined.headlines == whole.headlines == ("강릉시 시내버스 12대 늘린다",) * 3
    assert joined.seconds.shape == (3,)
    assert (joined.seconds > 0).all()


def test_without_accepted_candidates_the_headline_is_the_sentence() -> None:
    pairs = [Pair(ARTICLE, "강릉시 시내버스 12대 늘린다"), Pair(ARTICLE, "강릉시 버스 12대 증차")]
    empty = evaluate_headlines(writer_of("버스 99대"), pairs, num_beams=2).as_json()
    assert empty["num_without"] == 2
    assert empty["difference"] == 0
