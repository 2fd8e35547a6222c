"""Training and scoring of summarisers: known answers of rules and figures, what ablation shows, the command's faces."""

import doctest
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import networkx
import numpy as np
import pytest
import scipy.stats

import downstream.summaries.evaluation as evaluation
from corpora.foundation.errors import DataError, UsageError
from downstream.summaries.articles import Article, join_sentences
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
from downstream.summaries.labelled import of_split, read_labelled
from downstream.summaries.training import LEXICAL, TrainingConfig, ablate, choose, cross_validate, fit, make_examples
from downstream.summarize import Summarizer, main
from downstream.task import SAMPLE_ROOT

SAMPLE = SAMPLE_ROOT / "news.jsonl"
QUICK = TrainingConfig(folds=3, repeats=1)
Fails = Callable[..., AbstractContextManager[None]]


@pytest.fixture(scope="module")
def sample() -> list[Article]:
    return list(read_labelled(SAMPLE))


def article_of(
    sentences: Sequence[str], extractive: Sequence[int] = (0,), group: str = "g", title: str = ""
) -> Article:
    text, segments = join_sentences([sentences])
    return Article(text, segments, title=title, extractive=tuple(extractive), group=group)


WORDS = ["산은 높다.", "물이 맑다.", "해가 진다.", "별이 뜬다.", "꽃도 핀다.", "새가 운다.", "2시다.", "3월 5일이다."]
"""Eight sentences, of which the last two have numbers."""


def number_articles(num: int) -> list[Article]:
    """Return articles whose editor takes the sentences with numbers."""
    return [article_of(WORDS, (6, 7), str(k)) for k in range(num)]


# ---- rules ----


def test_the_rules_choose_three_in_order_and_fewer_where_there_are_fewer(sample: list[Article]) -> None:
    for name, rule in RULES.items():
        for article in (sample[0], article_of(["하나뿐이다."]), article_of(["하나다.", "둘이다."], (0, 1))):
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


def test_a_sentence_like_no_other_gets_no_less_than_its_random_visits() -> None:
    ranks = pagerank(np.array([[1.0, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]))
    assert ranks.sum() == pytest.approx(1)
    assert ranks[2] == ranks.min() > 0.05


def test_the_random_rule_is_the_same_each_time_and_near_chance_on_average(sample: list[Article]) -> None:
    chosen = [RULES["random"](article) for article in sample]
    assert chosen == [RULES["random"](article) for article in sample]
    hits = np.mean([len(set(c) & set(a.extractive)) / 3 for c, a in zip(chosen, sample, strict=True)])
    chance = np.mean([3 / len(a.sentences) for a in sample])
    assert abs(hits - chance) < 4 * 0.24 / np.sqrt(len(sample))


# ---- figures ----


@pytest.mark.parametrize(
    ("chosen", "gold", "figures"),
    [
        ([0, 1, 2], [0, 1, 2], (1, 1, 1)),
        ([0, 1], [0, 5, 7, 9], (0.5, 0.25, 1 / 3)),
        ([], [0], (0, 0, 0)),
        ([-1, 0], [0], (0.5, 1, 2 / 3)),
    ],
)
def test_sentence_figures_by_hand(chosen: list[int], gold: list[int], figures: tuple[float, ...]) -> None:
    assert tuple(sentence_scores(chosen, gold).values()) == pytest.approx(figures)


def test_a_summary_counts_for_the_sentences_it_overlaps_most() -> None:
    article = article_of(["새 다리가 3월 5일에 열렸다. 그렇다.", "시민이 왔다.", "김하늘 기자"], (0,))
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


def test_articles_without_a_choice_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="editor's choice"):
        evaluate(Summarizer.load(), [article_of(["가."], ())])


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


# ---- training ----


def test_weights_follow_the_editor() -> None:
    examples = make_examples(number_articles(30), ["lead", "numbers"])
    model = fit(examples, [], ["lead", "numbers"], QUICK)
    assert model.weights["numbers"] > 2
    assert model.weights["lead"] < 0
    assert choose(model, examples[0])[:2] in ([6, 7], [7, 6])
    assert cross_validate(examples, [], ["lead", "numbers"], QUICK).mean() == pytest.approx(
        0.8
    )  # two of three are right


def test_pairs_count_for_the_share_they_are_given() -> None:
    names = ["lead", "numbers"]
    labelled, leading = make_examples(number_articles(30), names), []
    for k in range(300):
        leading += make_examples([article_of(WORDS, (0, 1), str(k))], names)
    weights = [
        fit(labelled, leading, names, QUICK.model_copy(update={"pair_weight": weight})).weights["numbers"]
        for weight in (0.0, 0.3, 3.0)
    ]
    assert weights[0] > weights[1] > weights[2]
    assert weights[0] == fit(labelled, [], names, QUICK).weights["numbers"]


def test_articles_on_one_story_never_part_between_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    articles = [article for article in number_articles(6) for _ in range(3)]
    examples = make_examples(articles, ["lead"])
    seen: list[set[str]] = []
    original = fit

    def watch(training: Sequence[object], *rest: object) -> object:
        seen.append({example.article.group for example in training})
        return original(training, *rest)

    monkeypatch.setattr("downstream.summaries.training.fit", watch)
    cross_validate(examples, [], ["lead"], QUICK)
    assert [len(groups) for groups in seen] == [4, 4, 4]


def test_ablation_shows_what_a_feature_is_worth_and_what_is_worth_nothing() -> None:
    examples = make_examples(number_articles(30), ["numbers", "outlook"])
    pairs = make_examples(number_articles(50), ["numbers", "outlook"])
    rows = {row.left_out: row for row in ablate(examples, pairs, ["numbers", "outlook"], QUICK)}
    whole, numbers, outlook = rows["nothing"], rows["numbers"], rows["outlook"]
    assert (whole.f1, whole.pairs_f1) == (pytest.approx(0.8), pytest.approx(0.8))
    assert (whole.p, whole.pairs_p) == (None, None)
    for f1, p in ((numbers.f1, numbers.p), (numbers.pairs_f1, numbers.pairs_p)):
        assert f1 is not None
        assert p is not None
        assert f1 < 0.3
        assert p < 0.05
    assert (outlook.f1, outlook.p, outlook.pairs_f1, outlook.pairs_p) == (whole.f1, 1.0, whole.pairs_f1, 1.0)
    assert {row.pairs_f1 for row in ablate(examples, [], ["numbers"], QUICK)} == {None}


def test_nothing_to_tell_apart_is_told(fails: Fails) -> None:
    with fails(DataError, "training data"):
        fit(make_examples([article_of(["가.", "나."], (0, 1))], ["lead"]), [], ["lead"], QUICK)


def test_the_features_are_worth_far_more_than_lead_and_textrank(sample: list[Article]) -> None:
    """Cross-validated on the training split, without pairs."""
    training = of_split(sample, "train")
    f1 = cross_validate(make_examples(training, LEXICAL), [], LEXICAL, TrainingConfig(repeats=1))
    for rule in ("lead-3", "textrank"):
        other = np.array([sentence_scores(RULES[rule](a), a.extractive)["f1"] for a in training])
        assert f1.mean() > other.mean() + 0.1
        assert paired_p(f1, other) < 0.001


# ---- command ----


def test_a_model_is_trained_saved_loaded_and_scored_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    body = "물빛시가 새 다리를 놓는다. 시민은 반겼다. 공사는 3월에 한다. 값은 비싸다. 날은 흐렸다. 끝이다."
    pairs.write_text(json.dumps({"title": "새 다리 놓는다", "text": body}) + "\n", encoding="utf-8")
    out = tmp_path / "model"
    quick = ["--set", "folds=2", "--set", "repeats=1"]
    assert main(["train", str(SAMPLE), "--pairs", str(pairs), "--out", str(out), *quick]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert set(trained["weights"]) == set(LEXICAL)
    model = Summarizer.load(out).model
    assert model.weights == trained["weights"]
    assert (model.recipe["num_articles"], model.recipe["num_pairs"]) == (90, 1)
    assert (out / "README.md").read_text(encoding="utf-8").startswith("---\nlanguage: ko")
    assert main(["evaluate", str(SAMPLE), "--model", str(out), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["num_articles"] == 30
    assert figures["systems"]["pressbert"]["figures"]["f1"] > figures["systems"]["lead-3"]["figures"]["f1"]
    assert main(["ablate", str(SAMPLE), "--features", "lead", "length", *quick]) == 0
    assert "| length |" in capsys.readouterr().out


def test_an_encoder_adds_its_features_and_is_found_again(
    standins: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = SAMPLE.read_text(encoding="utf-8").splitlines()[:12]
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(lines), encoding="utf-8")
    out = tmp_path / "model"
    encoder = str(standins["klue-bert"])
    command = ["train", str(few), "--encoder", encoder, "--out", str(out), "--set", "folds=2", "--set", "repeats=1"]
    assert main(command) == 0
    assert {"embedding_centrality", "embedding_headline"} < set(json.loads(capsys.readouterr().out)["weights"])
    record = json.loads(lines[0])
    summarizer = Summarizer.load(out, runtime="torch")
    summary = summarizer.summarize(record["text"], title=record["title"], explain=True)
    assert len(summary.sentences) == 3
    assert any(s.components["embedding_headline"] for s in summary.candidates)
    assert next(summarizer.summarize_many([record["text"]])) == summarizer.summarize(record["text"])


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["train", str(SAMPLE)], "--out"),
        (["evaluate", str(SAMPLE), "--split", "test"], "--split"),
    ],
)
def test_a_command_that_lacks_something_says_so(arguments: list[str], where: str, fails: Fails) -> None:
    with fails(UsageError, where):
        main(arguments)


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(evaluation).failed == 0
