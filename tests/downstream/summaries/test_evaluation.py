"""Evaluation of summaries: known answers of rules and scores, ROUGE with a named tokenizer, the paired test."""

import doctest
from collections.abc import Callable

import networkx
import numpy as np
import pytest
import scipy.stats

from downstream.summaries import evaluation
from downstream.summaries.articles import Article
from downstream.summaries.evaluation import (
    RULES,
    chosen_by,
    evaluate,
    pagerank,
    paired_p,
    rouge_scores,
    sentence_scores,
    table,
)
from downstream.summaries.features import terms
from downstream.summaries.labelled import of_split
from downstream.summarize import Summarizer

ArticleOf = Callable[..., Article]


# ---- rules ----


def test_the_rules_choose_three_in_order_and_fewer_in_shorter_articles(
    sample: list[Article], article_of: ArticleOf
) -> None:
    shorter = article_of(["하나뿐이다."], chosen=(0,)), article_of(["하나다.", "둘이다."], chosen=(0, 1))
    for name, rule in RULES.items():
        for article in (sample[0], *shorter):
            chosen = list(rule(article))
            assert chosen == sorted(set(chosen)), name
            assert len(chosen) <= min(3, len(article.sentences))
            assert name == "oracle" or len(chosen) == min(3, len(article.sentences))


def test_textrank_is_pagerank_on_shared_words(sample: list[Article]) -> None:
    article = sample[1]
    bags = [terms(text) for text in article.texts]
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(bags)))
    for a in range(len(bags)):
        for b in range(a):
            shared = len(set(bags[a]) & set(bags[b]))
            if shared:
                graph.add_edge(a, b, weight=shared / (np.log(len(bags[a])) + np.log(len(bags[b]))))
    ranks = networkx.pagerank(graph, alpha=0.85, tol=1e-10)
    assert RULES["textrank"](article) == sorted(sorted(ranks, key=lambda k: -ranks[k])[:3])


def test_an_isolated_sentence_gets_the_rank_of_random_visits() -> None:
    ranks = pagerank(np.array([[1.0, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]))
    assert ranks.sum() == pytest.approx(1)
    assert ranks[2] == ranks.min() > 0.05


def test_the_random_rule_is_the_same_each_time_and_near_chance_on_average(sample: list[Article]) -> None:
    chosen = [RULES["random"](article) for article in sample]
    assert chosen == [RULES["random"](article) for article in sample]
    hits = np.mean([len(set(c) & set(a.extractive)) / 3 for c, a in zip(chosen, sample, strict=True)])
    chance = np.mean([3 / len(a.sentences) for a in sample])
    assert abs(hits - chance) < 4 * 0.24 / np.sqrt(len(sample))


# ---- scores ----


def test_sentence_scores_by_hand() -> None:
    cases: tuple[tuple[list[int], list[int], tuple[float, ...]], ...] = (
        ([0, 1, 2], [0, 1, 2], (1, 1, 1)),
        ([0, 1], [0, 5, 7, 9], (0.5, 0.25, 1 / 3)),
        ([], [0], (0, 0, 0)),
        ([-1, 0], [0], (0.5, 1, 2 / 3)),
    )
    for chosen, gold, expected in cases:
        assert tuple(sentence_scores(chosen, gold).values()) == pytest.approx(expected), chosen


def test_a_summary_counts_for_the_sentences_it_overlaps_most(article_of: ArticleOf) -> None:
    article = article_of(["새 다리가 3월 5일에 열렸다. 그렇다.", "시민이 왔다.", "김하늘 기자"], chosen=(0,))
    summary = Summarizer.load().summarize(article.text, 5)
    assert [s.text for s in summary.sentences] == ["새 다리가 3월 5일에 열렸다.", "그렇다.", "시민이 왔다."]
    assert chosen_by(summary, article) == [0, 0, 1]


def test_rouge_is_named_by_its_tokenizer() -> None:
    scores = rouge_scores("금리가 올랐다.", "금리도 올랐다.")
    assert set(scores) == {f"rouge_{n}_{name}" for n in "12l" for name in ("characters", "kiwi-morphemes")}
    assert scores["rouge_1_characters"] == pytest.approx(5 / 6)
    assert scores["rouge_1_kiwi-morphemes"] == pytest.approx(4 / 5)


def test_gold_scores_one_and_the_oracle_bounds_rouge(sample: list[Article]) -> None:
    dev = of_split(sample, "dev")[:6]
    systems = {system.name: system for system in evaluate(Summarizer.load(), dev)}
    assert list(systems) == [*RULES, "pressbert"]
    # Without abstracts the reference is the editor's choice, which the oracle finds.
    assert systems["oracle"].mean("f1") == pytest.approx(1)
    for system in systems.values():
        assert 0 <= system.mean("f1") <= 1
        low, high = system.ci95("f1")
        assert low <= system.mean("f1") <= high
        assert system.mean("rouge_1_characters") <= systems["oracle"].mean("rouge_1_characters") + 1e-9


def test_articles_without_a_choice_cannot_be_scored(article_of: ArticleOf) -> None:
    with pytest.raises(ValueError, match="editor's choice"):
        evaluate(Summarizer.load(), [article_of(["가."])])


def test_the_paired_test_agrees_with_scipy_and_knows_no_difference() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.random(12) + 0.15, generator.random(12)
    exact = scipy.stats.permutation_test(
        (a, b), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert paired_p(a, b) == pytest.approx(exact, abs=0.02)
    assert paired_p(a, a) == 1.0
    assert paired_p(a + 5, a) == pytest.approx(2**-11, abs=0.002)


def test_the_table_holds_every_system_with_its_interval(sample: list[Article]) -> None:
    systems = evaluate(Summarizer.load(), of_split(sample, "dev")[:4])
    lines = table(systems).splitlines()
    assert "R-1 characters" in lines[0]
    assert "R-L kiwi-morphemes" in lines[0]
    assert [line.split(" | ")[0].strip("| ") for line in lines[2 : 2 + len(systems)]] == [s.name for s in systems]


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(evaluation).failed == 0
