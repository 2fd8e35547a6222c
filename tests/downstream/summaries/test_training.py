"""Training of summarizers: fitted weights, cross-validation, ablation, the command."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from corpora.foundation.errors import DataError, UsageError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.summaries.articles import Article
from downstream.summaries.evaluation import RULES, paired_p, sentence_scores
from downstream.summaries.labelled import of_split
from downstream.summaries.training import LEXICAL, TrainingConfig, ablate, choose, cross_validate, fit, make_examples
from downstream.summarize import Summarizer, main

SAMPLE = SAMPLE_ROOT / "news.jsonl"
QUICK = TrainingConfig(folds=3, repeats=1)
Fails = Callable[..., AbstractContextManager[None]]
ArticleOf = Callable[..., Article]
WORDS = ["산은 높다.", "물이 맑다.", "해가 진다.", "별이 뜬다.", "꽃도 핀다.", "새가 운다.", "2시다.", "3월 5일이다."]
"""Eight sentences; the last two contain numbers."""


@pytest.fixture
def number_articles(article_of: ArticleOf) -> Callable[[int], list[Article]]:
    """Return a function that builds articles whose editor chooses the sentences with numbers."""
    return lambda num: [article_of(WORDS, chosen=(6, 7), group=str(k)) for k in range(num)]


def test_weights_follow_the_editor(number_articles: Callable[[int], list[Article]]) -> None:
    examples = make_examples(number_articles(30), ["lead", "numbers"])
    assert fit(examples, [], ["numbers"], QUICK).weights["numbers"] > 1
    model = fit(examples, [], ["lead", "numbers"], QUICK)
    assert model.weights["numbers"] > 0
    assert model.weights["lead"] < 0
    assert choose(model, examples[0])[:2] in ([6, 7], [7, 6])
    assert cross_validate(examples, [], ["lead", "numbers"], QUICK).mean() == pytest.approx(
        0.8
    )  # two of three are right


def test_pairs_count_for_their_weight(number_articles: Callable[[int], list[Article]], article_of: ArticleOf) -> None:
    names = ["lead", "numbers"]
    labelled, leading = make_examples(number_articles(30), names), []
    for k in range(300):
        leading += make_examples([article_of(WORDS, chosen=(0, 1), group=str(k))], names)
    weights = [
        fit(labelled, leading, names, QUICK.model_copy(update={"pair_weight": weight})).weights["numbers"]
        for weight in (0.0, 0.3, 3.0)
    ]
    assert weights[0] > weights[1] > weights[2]
    assert weights[0] == fit(labelled, [], names, QUICK).weights["numbers"]


def test_articles_on_one_story_stay_in_one_fold(
    monkeypatch: pytest.MonkeyPatch, number_articles: Callable[[int], list[Article]]
) -> None:
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


def test_ablation_separates_useful_from_useless_features(
    number_articles: Callable[[int], list[Article]],
) -> None:
    examples = make_examples(number_articles(30), ["numbers", "late_plan"])
    pairs = make_examples(number_articles(50), ["numbers", "late_plan"])
    rows = {row.left_out: row for row in ablate(examples, pairs, ["numbers", "late_plan"], QUICK)}
    whole, numbers, late_plan = rows["nothing"], rows["numbers"], rows["late_plan"]
    assert (whole.f1, whole.pairs_f1) == (pytest.approx(0.8), pytest.approx(0.8))
    assert (whole.p, whole.pairs_p) == (None, None)
    for f1, p in ((numbers.f1, numbers.p), (numbers.pairs_f1, numbers.pairs_p)):
        assert f1 is not None
        assert p is not None
        assert f1 < 0.3
        assert p < 0.05
    assert (late_plan.f1, late_plan.p, late_plan.pairs_f1, late_plan.pairs_p) == (whole.f1, 1.0, whole.pairs_f1, 1.0)
    assert {row.pairs_f1 for row in ablate(examples, [], ["numbers"], QUICK)} == {None}


def test_a_single_class_of_sentences_is_refused(fails: Fails, article_of: ArticleOf) -> None:
    with fails(DataError, "training data"):
        fit(make_examples([article_of(["가.", "나."], chosen=(0, 1))], ["lead"]), [], ["lead"], QUICK)


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


def test_a_missing_option_is_named(fails: Fails) -> None:
    with fails(UsageError, "--out"):
        main(["train", str(SAMPLE)])
    with fails(UsageError, "--split"):
        main(["evaluate", str(SAMPLE), "--split", "test"])
