"""Features: by hand on small articles, standardized within the article, neutral where nothing is known."""

import doctest
import math
from collections.abc import Callable

import numpy as np
import pytest

import downstream.summaries.features
from downstream.summaries.articles import Article, read_article
from downstream.summaries.features import (
    FEATURES,
    NEEDS_ENCODER,
    NEEDS_SCORER,
    FloatArray,
    TfidfVectors,
    relevance,
    sentence_features,
    standardize,
)

ArticleOf = Callable[..., Article]
LEXICAL = [name for name in FEATURES if name not in NEEDS_ENCODER | NEEDS_SCORER]


def feature(article: Article, name: str) -> FloatArray:
    return sentence_features(article, [name])[:, 0]


def test_lead_falls_with_the_position(article_of: ArticleOf) -> None:
    assert feature(article_of([f"문장 {k}." for k in range(4)]), "lead").tolist() == [1, 1 / 2, 1 / 3, 1 / 4]


def test_the_first_sentence_has_a_feature_of_its_own_however_sentences_are_joined(article_of: ArticleOf) -> None:
    for paragraphs in ([["가.", "나.", "다."]], [["가."], ["나."], ["다."]], [["가.", "나."], ["다."]]):
        assert feature(article_of(*paragraphs), "first").tolist() == [1, 0, 0]
        assert (
            sentence_features(article_of(*paragraphs), LEXICAL)
            == sentence_features(article_of(["가.", "나.", "다."]), LEXICAL)
        ).all()


def test_quotation_and_reference_by_hand(article_of: ArticleOf) -> None:
    article = article_of(
        ["그는 왔다.", "그는 “그렇다”고 했다.", "“네”", "한편 비가 왔다.", "이에 대해 말했다.", "한편화가 왔다."]
    )
    assert feature(article, "quotation") == pytest.approx([0, 5 / 13, 1, 0, 0, 0])
    # The first sentence has none before it.
    assert feature(article, "reference").tolist() == [0, 1, 0, 1, 1, 0]


def test_fragments_and_amounts_by_hand(article_of: ArticleOf) -> None:
    cases = {
        "다리가 열렸다.": (0, 0),
        "다리가 열렸다": (0, 0),
        "“다리가 열렸습니다.”": (0, 0),
        "예산은 3억 원이다.[1]": (0, 1),
        "참가자는 1,200명이었다(잠정).": (0, 1),
        "사업을 추진함": (0, 0),
        "5월 3일 열렸다.": (0, 0),
        "이 페이지에 만족하십니까?": (1, 0),
        "사진 2. 다리 개통 모습": (1, 0),
        "다리 개통, 7.5% 빨라진 출근길": (1, 1),
    }
    article = article_of(list(cases))
    for text, fragment, amount in zip(cases, feature(article, "fragment"), feature(article, "amount"), strict=True):
        assert (fragment, amount) == cases[text], text


def test_a_headline_raises_sentences_with_its_words_in_spite_of_other_particles(article_of: ArticleOf) -> None:
    sentences = ["날씨가 맑았다.", "하늘다리를 물빛시가 헐었다.", "시민이 모였다."]
    values = feature(article_of(sentences, title="물빛시, 하늘다리 철거"), "headline")
    assert values.argmax() == 1
    # Without a headline the first sentence stands in for it.
    assert feature(article_of([*sentences, "날씨가 맑겠다."]), "headline").argmax() == 3


def test_centrality_is_the_cosine_with_the_sum_of_all_sentences() -> None:
    vectors = TfidfVectors(["가나 다라", "가나 마바", "사아"])
    # idf of 가나 is log(1 + 3/2), of the others log 4; every row has length 1.
    common, rare = math.log(2.5), math.log(4)
    norm = math.hypot(common, rare)
    rows = np.array([[common, rare, 0, 0], [common, 0, rare, 0], [0, 0, 0, norm]]) / norm
    total = rows.sum(axis=0)
    assert vectors.centrality == pytest.approx(rows @ total / np.linalg.norm(total))
    assert vectors.cosine(0, 1) == pytest.approx(rows[0] @ rows[1])
    assert vectors.similarity("마바 사아 없음") == pytest.approx(
        rows @ np.array([0, 0, rare, rare]) / math.hypot(rare, rare)
    )


def test_length_and_numbers_by_hand(article_of: ArticleOf) -> None:
    article = article_of(
        ["짧다.", "이 문장은 앞의 것보다 훨씬 더 길다.", "3월 5일 7.5%로 올랐다.", "시는 내년에 고칠 계획이다."]
    )
    assert feature(article, "length").argmax() == 1
    numbers = feature(article, "numbers")
    assert numbers.argmax() == 2
    assert feature(article, "first_numbers").tolist() == [numbers[0], 0, 0, 0]


def test_plans_and_schedules_count_more_the_later_they_stand(article_of: ArticleOf) -> None:
    cases = {
        "시는 내년에 다리를 놓기로 했다.": (0, 0),
        "이르면 다음 달 길이 열린다.": (0, 1 / 4),
        "지난해 다리가 열렸다.": (0, 0),
        "앞으로도 애쓰겠다고 했다.": (3 / 4, 0),
        "2027년까지 학교를 지을 계획이다.": (1, 1),
    }
    article = article_of(list(cases))
    found = zip(feature(article, "late_plan"), feature(article, "late_schedule"), strict=True)
    for (text, expected), values in zip(cases.items(), found, strict=True):
        assert values == pytest.approx(expected), text
    assert feature(article_of(["시는 내년에 다리를 놓기로 했다."]), "late_plan").tolist() == [0]


def test_organizations_and_the_second_sentence_by_hand(article_of: ArticleOf) -> None:
    cases = {"물빛시는 다리를 고쳤다.": 1, "교육청이 학교를 짓는다.": 1, "다리가 열렸다.": 0, "시민들은 반겼다.": 0}
    article = article_of(list(cases))
    for text, value in zip(cases, feature(article, "organization"), strict=True):
        assert value == cases[text], text
    assert feature(article, "second").tolist() == [0, 1, 0, 0]


def test_a_sentence_introduces_the_words_that_only_later_sentences_repeat(article_of: ArticleOf) -> None:
    # 다리 comes three times and 버스 twice; 노선 comes once.
    article = article_of(["다리 하나.", "버스 노선.", "다리 버스.", "다리 셋."])
    assert feature(article, "introduces") == pytest.approx(standardize(np.array([1.0, 1.0, 0.0, 0.0])))


def test_standardized_values_have_mean_0_and_deviation_1_or_are_all_0() -> None:
    values = standardize(np.array([1.0, 2.0, 6.0]))
    assert (values.mean(), values.std()) == (pytest.approx(0), pytest.approx(1))
    assert not standardize(np.array([3.0, 3.0])).any()


def test_relevance_is_the_share_of_the_focus_that_a_sentence_has() -> None:
    texts = ["부동산 시장이 식었다.", "부동의 1위다.", "AI가 왔다.", "부 동산"]
    assert relevance(texts, "부동산").tolist() == [1, 0.5, 0, 1]
    assert relevance(texts, "ai").tolist() == [0, 0, 1, 0]


def test_features_are_finite_numbers_for_any_text() -> None:
    for text in ("", "가", "!!!", "\ud800 \x00", "한 문장뿐이다.", "가. 가. 가. 가. 가. 가. 가."):
        article = read_article(text, title=text)
        values = sentence_features(article, LEXICAL)
        assert values.shape == (len(article.sentences), len(LEXICAL)), text
        assert np.isfinite(values).all(), text


def encode(texts: list[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Encode texts with 다리 in one direction, all others in another."""
    return np.array([[1, 0] if "다리" in text else [0, 1] for text in texts], dtype=np.float32)


def test_embeddings_compare_sentences_with_all_others_and_with_the_headline_in_one_call(article_of: ArticleOf) -> None:
    calls = []

    def counting(texts: list[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        calls.append(texts)
        return encode(texts)

    article = article_of(["새 다리다.", "비가 온다.", "다리가 길다."], title="다리")
    values = sentence_features(article, ["embedding_centrality", "embedding_headline"], encode=counting)
    assert values[:, 0] == pytest.approx(standardize(np.array([2.0, 1.0, 2.0])))
    assert values[:, 1] == pytest.approx(standardize(np.array([1.0, 0.0, 1.0])))
    assert calls == [[*article.texts, "다리"]]


def test_a_scorer_s_log_odds_go_in_as_they_are(article_of: ArticleOf) -> None:
    article = article_of(["가.", "나."])
    values = sentence_features(article, ["lead", "scorer"], score=lambda texts: np.array([-3.0, len(texts)]))
    assert values.tolist() == [[1, -3], [0.5, 2]]


def test_a_feature_that_cannot_be_computed_is_named(article_of: ArticleOf) -> None:
    for name in ("embedding_centrality", "scorer", "leed"):
        with pytest.raises(ValueError, match=name):
            sentence_features(article_of(["가."]), [name])


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(downstream.summaries.features).failed == 0
