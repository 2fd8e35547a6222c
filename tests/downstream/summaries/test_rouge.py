"""ROUGE by hand-counted cases, against the usual package where that is installed, and the oracle's choices."""

import doctest
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score import rouge_scorer

import downstream.summaries.rouge
from downstream.summaries.rouge import (
    TOKENIZERS,
    characters,
    greedy_oracle,
    longest_common_subsequence,
    morphemes,
    rouge_l,
    rouge_n,
)


def test_rouge_n_counts_an_n_gram_as_often_as_it_occurs_in_both() -> None:
    # the, the, cat against the, cat, sat: two of three unigrams; bigrams the-the, the-cat against the-cat, cat-sat.
    ours, theirs = ["the", "the", "cat"], ["the", "cat", "sat"]
    assert (rouge_n(ours, theirs, 1).precision, rouge_n(ours, theirs, 1).recall) == (2 / 3, 2 / 3)
    assert rouge_n(ours, theirs, 2).f1 == 0.5


def test_rouge_l_is_the_longest_common_subsequence() -> None:
    # Lin 2004, section 3: police kill the gunman has three words of police killed the gunman in order.
    reference = ["police", "killed", "the", "gunman"]
    assert rouge_l(["police", "kill", "the", "gunman"], reference).f1 == 0.75
    assert rouge_l(["the", "gunman", "kill", "police"], reference).f1 == 0.5


def test_an_empty_text_scores_zero() -> None:
    for tokens in ([], ["가"]):
        assert rouge_n(tokens, [], 1).f1 == rouge_n([], tokens, 2).f1 == rouge_l(tokens, []).f1 == 0.0, tokens


@given(st.text("가나다", max_size=12), st.text("가나다", max_size=12))
def test_the_subsequence_has_the_length_of_the_textbook_algorithm(a: str, b: str) -> None:
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, j in itertools.product(range(len(a)), range(len(b))):
        lengths[i + 1][j + 1] = lengths[i][j] + 1 if a[i] == b[j] else max(lengths[i][j + 1], lengths[i + 1][j])
    assert longest_common_subsequence(a, b) == lengths[-1][-1]


def test_scores_agree_with_the_rouge_score_package() -> None:
    class Tokenizer:
        def tokenize(self, text: str) -> list[str]:
            return characters(text)

    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], tokenizer=Tokenizer())
    generator = np.random.default_rng(0)
    for _ in range(50):
        ours, theirs = ("".join(generator.choice(list("가나다라마바 ."), size=generator.integers(1, 41))) for _ in "ab")
        scores = scorer.score(theirs, ours)
        a, b = characters(ours), characters(theirs)
        for key, overlap in (("rouge1", rouge_n(a, b, 1)), ("rouge2", rouge_n(a, b, 2)), ("rougeL", rouge_l(a, b))):
            assert scores[key].fmeasure == pytest.approx(overlap.f1)
            assert scores[key].precision == pytest.approx(overlap.precision)


def test_hangul_is_not_erased_and_punctuation_is() -> None:
    assert characters("금리, 3.5%↑ “올랐다”") == list("금리35올랐다")
    assert morphemes("금리가 “올랐다”!") == ["금리", "가", "오르", "었", "다"]


def test_tokenizers_accept_any_text() -> None:
    for name, tokenize in TOKENIZERS.items():
        for text in ("", " \n", "\ud800\x00", "ㅋㅋㅋ", "🎉"):
            assert isinstance(tokenize(text), list), (name, text)


def test_the_oracle_starts_with_the_largest_gain_and_stops_without_a_gain() -> None:
    # By hand: 0 shares nothing; 2 has all of the reference but for `마`, which 1 adds; 3 only repeats.
    sentences = [list("하히호"), list("마"), list("가나다라"), list("가나")]
    assert greedy_oracle(sentences, list("가나다라마")) == [2, 1]


def test_the_oracle_penalizes_text_outside_the_reference() -> None:
    sentences = [list("가나다라" + "하히호후흐헤해허효휴"), list("가나다")]
    assert greedy_oracle(sentences, list("가나다라"), max_sentences=1) == [1]
    assert greedy_oracle(sentences, list("가나다라"), max_sentences=1, measure="recall") == [0]


def test_the_oracle_takes_the_first_of_equals_and_no_sentence_twice() -> None:
    assert greedy_oracle([list("가나"), list("가나"), list("다라")], list("가나다라")) == [0, 2]


def test_no_n_gram_of_the_oracle_crosses_two_sentences() -> None:
    # 가 and 나 apart make no bigram 가나, so that the second sentence alone is best.
    assert greedy_oracle([list("가"), list("나가나")], list("가나"), max_sentences=1) == [1]


def test_the_oracle_chooses_nothing_where_nothing_is_shared() -> None:
    cases: list[list[list[str]]] = [[], [[]], [list("가")]]
    for sentences in cases:
        assert greedy_oracle(sentences, list("나다")) == [], sentences


def coverage(tokens: Sequence[str], reference: Sequence[str]) -> float:
    total = 0.0
    for n in (1, 2):
        ours, theirs = (set(zip(*(part[k:] for k in range(n)), strict=False)) for part in (tokens, reference))
        total += 2 * len(ours & theirs) / max(1, len(ours) + len(theirs))
    return total


def test_the_greedy_choice_begins_with_the_best_single_sentence() -> None:
    generator = np.random.default_rng(1)
    for _ in range(30):
        sentences = [generator.choice(list("가나다라마"), size=generator.integers(1, 9)).tolist() for _ in range(5)]
        reference = generator.choice(list("가나다라마"), size=8).tolist()
        chosen = greedy_oracle(sentences, reference)
        assert len(set(chosen)) == len(chosen) <= 3
        values = [coverage(tokens, reference) for tokens in sentences]
        assert values[chosen[0]] == max(values)


def test_the_documented_examples_hold() -> None:
    assert doctest.testmod(downstream.summaries.rouge).failed == 0
