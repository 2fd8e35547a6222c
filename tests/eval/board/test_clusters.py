"""Clusters are resampled and swapped whole, as a direct recomputation does; examples in training text do not rank.

Questions on one article are right or wrong together; a resample of single questions is too narrow.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from downstream.finetuning.result import Result, score
from downstream.metrics import FloatArray, Metric, accuracy, bootstrap_ci95, korquad_em, macro_f1, pearson
from downstream.task import Prediction, Split, Task, TextExample, all_tasks, get_task
from eval.board.clusters import with_clusters
from eval.board.comparison import Sample, compare_models, paired_test, sample_of
from eval.board.rows import MAX_TOUCHED_SHARE, TouchedExamples, build_table

NLI = get_task("klue-nli")
OWNERS = np.repeat(np.arange(40), np.random.default_rng(0).integers(1, 12, 40))
"""Cluster of each example."""


def alike(seed: int) -> FloatArray:
    """Return right-or-wrong answers that agree within a cluster in nine of ten cases."""
    generator = np.random.default_rng(seed)
    of_cluster = generator.random(40) < 0.6
    return np.where(generator.random(len(OWNERS)) < 0.9, of_cluster[OWNERS], ~of_cluster[OWNERS]).astype(float)


def drawn_one_by_one(metric: Metric, columns: FloatArray, owners: Sequence[int], rounds: int) -> tuple[float, float]:
    """Compute the interval as it is defined: draw clusters, collect their examples, score them."""
    generator = np.random.default_rng(9)
    members = [np.flatnonzero(np.array(owners) == key) for key in sorted(set(owners))]
    figures = [
        metric.fold(columns[np.concatenate([members[k] for k in generator.integers(0, len(members), len(members))])])
        for _ in range(rounds)
    ]
    low, high = np.percentile(figures, [2.5, 97.5])
    return float(low), float(high)


def test_an_interval_over_clusters_is_that_of_clusters_drawn_one_by_one(subtests: pytest.Subtests) -> None:
    generator = np.random.default_rng(1)
    right = alike(1)
    scores = 2 * right + generator.normal(0, 1, len(right))
    for metric, columns in (
        (accuracy, right[:, None]),
        (macro_f1, np.column_stack([right, np.ones_like(right) * (generator.random(len(right)) < 0.7)])),
        (pearson, np.column_stack([scores, right])),
    ):
        with subtests.test(metric=metric.key):
            ours = bootstrap_ci95(metric, [columns], clusters=OWNERS.tolist())
            assert ours is not None
            width = ours[1] - ours[0]
            assert ours == pytest.approx(drawn_one_by_one(metric, columns, OWNERS.tolist(), 3000), abs=0.06 * width)
            if metric is accuracy:  # single examples look far too certain
                alone = bootstrap_ci95(metric, [columns]) or (0.0, 0.0)
                assert width > 1.5 * (alone[1] - alone[0])


def test_clusters_of_one_example_change_no_interval() -> None:
    right = alike(2)[:, None]
    alone, each = (bootstrap_ci95(accuracy, [right], clusters=c) for c in (None, list(range(len(right)))))
    assert alone == pytest.approx(each, abs=0.01)


def test_korquads_intervals_are_those_of_whole_articles(real_data: Path) -> None:
    split = get_task("korquad").read_split("dev", real_data)
    clusters = split.cluster_numbers
    assert clusters is not None
    assert len(set(clusters)) == 140
    # The first word of the paragraph, which is the answer to several questions of some articles.
    predictions = [example.context.split(".")[0].split(" ")[0].rstrip("은는이가") for example in split.examples]
    columns = korquad_em.columns(predictions, split.golds)
    ours, alone = (bootstrap_ci95(korquad_em, [columns], clusters=c) or (0.0, 0.0) for c in (clusters, None))
    expected = drawn_one_by_one(korquad_em, columns, clusters, 2000)
    assert ours == pytest.approx(expected, abs=0.08 * (ours[1] - ours[0]))
    assert ours[1] - ours[0] > 1.2 * (alone[1] - alone[0])


# --- paired tests ---------------------------------------------------------------------------------------------------


def sample(right: FloatArray, owners: FloatArray) -> Sample:
    sums = np.bincount(owners.astype(int), weights=right)
    return Sample(np.array([right.mean()]), sums, 0.0, is_trained=False, sizes=np.bincount(owners.astype(int)) * 1.0)


def test_a_p_value_is_the_share_of_all_swaps_of_whole_clusters_that_differ_as_much() -> None:
    generator = np.random.default_rng(3)
    owners = np.repeat(np.arange(11), [1, 9, 4, 4, 2, 7, 3, 5, 1, 6, 8])
    a, b = generator.random((2, len(owners))).round(2)
    sums = np.bincount(owners, weights=a - b)
    signs = np.array(list(itertools.product((-1, 1), repeat=11)))
    exact = float((np.abs(signs @ sums) >= abs(sums.sum()) - 1e-12).mean())
    found = paired_test(sample(a, owners), sample(b, owners))
    assert found.p == pytest.approx(exact, abs=0.02)
    assert found.difference == pytest.approx((a - b).mean())
    expected = drawn_one_by_one(accuracy, (a - b)[:, None], owners.tolist(), 4000)
    assert found.ci95 == pytest.approx(expected, abs=0.06 * (expected[1] - expected[0]))


def test_a_model_beats_an_equal_one_in_clusters_as_rarely_as_it_may() -> None:
    wins = {"whole": 0, "single": 0}
    for draw in range(200):
        a, b = alike(2 * draw + 100), alike(2 * draw + 101)
        whole = paired_test(sample(a, OWNERS), sample(b, OWNERS), rounds=400).p
        single = paired_test(
            Sample(np.array([a.mean()]), a, 0.0, is_trained=False),
            Sample(np.array([b.mean()]), b, 0.0, is_trained=False),
            rounds=400,
        ).p
        wins["whole"] += (whole or 1) <= 0.05
        wins["single"] += (single or 1) <= 0.05
    assert wins["whole"] <= 20, wins  # 5 % of 200 draws, with three standard errors
    assert wins["single"] >= 60, wins


def test_the_part_of_seeds_that_swaps_contain_is_that_of_cluster_sums() -> None:
    cells = [cell(answers(seed)) for seed in range(3)]
    found = sample_of(accuracy, cells)
    columns = np.stack([c.metric_columns("accuracy")[:, 0] for c in cells])  # (K, N)
    sums = np.stack([np.bincount(OWNERS, weights=row) for row in columns])
    assert found.sizes is not None
    assert found.sizes.tolist() == np.bincount(OWNERS).tolist()
    np.testing.assert_allclose(found.values, sums.mean(axis=0))
    assert found.disagreement == pytest.approx(sums.var(axis=0, ddof=1).sum() / len(OWNERS) ** 2)


# --- from cells -----------------------------------------------------------------------------------------------------

SPLIT = Split(
    tuple(TextExample(str(k), f"전제 {owner}", f"가설 {k}", "neutral") for k, owner in enumerate(OWNERS)),
    "e" * 64,
    tuple(f"전제 {owner}" for owner in OWNERS),
)


def answers(seed: int) -> list[Prediction]:
    return ["neutral" if right else "entailment" for right in alike(seed)]


def cell(predictions: Sequence[Prediction], model: str = "mine", split: Split = SPLIT, task: Task = NLI) -> Result:
    return score(
        task,
        split,
        predictions,
        model=model,
        seed=0,
        data_sha256=f"{'d' * 64}+{split.sha256}",
        recipe={"model": model},
        recipe_sha256=model,
        train_s=1.0,
        eval_s=1.0,
        device="cpu",
    )


def test_a_result_holds_ids_targets_and_clusters_of_its_examples() -> None:
    found = cell(answers(5))
    assert found.ids == [example.id for example in SPLIT.examples]
    assert found.targets == ["neutral"] * len(OWNERS)
    assert found.clusters == OWNERS.tolist()
    assert found.higher_is_better == {"accuracy": True}


def test_rows_and_comparisons_say_how_many_clusters_there_are() -> None:
    table = build_table([cell(answers(5), "one"), cell(answers(6), "two")], [])
    rows = [row for row in table.rows if row.source == "measured"]
    assert [(row.num_clusters, row.num_examples) for row in rows] == [(40, len(OWNERS))] * 2
    assert [(c.num_clusters, c.num_examples) for c in table.comparisons] == [(40, len(OWNERS))]
    alone = bootstrap_ci95(accuracy, [cell(answers(5)).metric_columns("accuracy")]) or (0.0, 0.0)
    assert rows[0].ci95 is not None
    assert rows[0].ci95[1] - rows[0].ci95[0] > 1.5 * (alone[1] - alone[0])


def test_cells_with_and_without_clusters_are_not_compared() -> None:
    old = cell(answers(5), "old").model_copy(update={"clusters": None, "ids": None, "targets": None})
    (found,) = compare_models(NLI, {"old": [old], "new": [cell(answers(6), "new")]})
    assert (found.verdict, found.reason) == ("not_testable", "other_data")


def test_old_cells_get_their_clusters_from_the_data_that_were_scored_and_from_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = get_task("korquad-sample")
    split = task.read_split("dev", Path("/nonexistent"))
    whole = cell([gold[0] for gold in split.golds], split=split, task=task)
    old = whole.model_copy(update={"clusters": None, "ids": None})
    other = old.model_copy(update={"data_sha256": f"{'d' * 64}+{'0' * 64}"})
    completed = with_clusters([old, other], Path("/nonexistent"))
    assert completed[0] == whole
    assert completed[1].clusters is None
    assert "clusters unknown" in caplog.text


def test_every_question_on_an_article_is_in_the_articles_cluster(subtests: pytest.Subtests) -> None:
    for name in ("korquad-sample", "korquad-qnli-sample", "news-swag-sample", "news-summary-sample", "klue-nli-sample"):
        with subtests.test(task=name):
            task = all_tasks()[name]
            split = task.read_split(task.eval_split, Path("/nonexistent"))
            numbers = split.cluster_numbers
            assert numbers is not None
            assert sorted(set(numbers)) == list(range(max(numbers) + 1))
            assert numbers[0] == 0
            if name == "korquad-qnli-sample":  # the four pairs of a block are of one article
                assert all(len(set(numbers[k : k + 4])) == 1 for k in range(0, len(numbers), 4))


# --- examples in training text --------------------------------------------------------------------------------------


def reviews(right: FloatArray, model: str) -> Result:
    examples = tuple(TextExample(str(k), f"평 {k}", None, "positive") for k in range(400))
    predictions: list[Prediction] = ["positive" if r else "negative" for r in right]
    return cell(predictions, model, Split(examples, "f" * 64), get_task("nsmc"))


def test_models_are_ranked_without_the_examples_that_training_text_contains(
    subtests: pytest.Subtests, fresh: Callable[[int], FloatArray]
) -> None:
    for num_touched, is_clean in ((int(400 * MAX_TOUCHED_SHARE), False), (100, True), (400, True)):
        with subtests.test(num_touched=num_touched):
            honest = fresh(0)
            knowing = fresh(1)
            knowing[:100] = 1.0  # it has read them
            cells = [reviews(honest, "honest"), reviews(knowing, "knowing")]
            touched = {"nsmc": TouchedExamples("f" * 64, frozenset(range(num_touched)))}
            table = build_table(cells, [], touched=touched)
            rows = {row.model: row for row in table.rows if row.source == "measured"}
            assert [row.is_clean_subset for row in rows.values()] == [is_clean] * 2
            assert rows["knowing"].value == pytest.approx(knowing.mean())
            if num_touched == 400:
                assert table.comparisons == []
                assert rows["knowing"].rank is rows["knowing"].clean_value is None
                continue
            (found,) = table.comparisons
            assert (found.is_clean_subset, found.num_examples) == (is_clean, 400 - num_touched * is_clean)
            if is_clean:
                assert found.verdict == "tie"
                assert rows["knowing"].clean_value == pytest.approx(knowing[100:].mean())
                assert rows["knowing"].num_clean_examples == 300
                assert rows["knowing"].clean_ci95 == bootstrap_ci95(accuracy, [knowing[100:, None]])
            else:
                assert found.verdict == "better"
                assert rows["knowing"].clean_value is None


@pytest.fixture
def fresh() -> Callable[[int], FloatArray]:
    """Return a function that draws 400 answers, three in five of them right."""
    return lambda seed: (np.random.default_rng(seed + 50).random(400) < 0.6).astype(float)


def test_examples_of_other_data_are_not_left_out() -> None:
    right = np.ones(400)
    touched = {"nsmc": TouchedExamples("0" * 64, frozenset(range(300)))}
    (row,) = (row for row in build_table([reviews(right, "a")], [], touched=touched).rows if row.source == "measured")
    assert (row.is_clean_subset, row.clean_value) == (False, None)
