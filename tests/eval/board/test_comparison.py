"""Paired tests: exact where the answer is known, silent on equal models, awake to real differences, ranks that hold."""

import itertools
import time
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import f1_score

from downstream.finetuning.result import Result, score
from downstream.metrics import FloatArray, Metric, accuracy, klue_em, macro_f1, pearson, spearman
from downstream.task import Prediction, Split, TextExample, get_task
from eval.board.comparison import (
    ALPHA,
    Comparison,
    Sample,
    Verdict,
    compare_models,
    holm,
    paired_test,
    pseudo_values,
    rank_intervals,
    sample_of,
)

NSMC, STS = get_task("nsmc"), get_task("klue-sts")
DRAWS, ROUNDS = 1000, 400


def sample(seeds: Sequence[FloatArray], *, is_trained: bool = True) -> Sample:
    """Return what `sample_of` returns for right-or-wrong answers: one (N,) array of 0 and 1 a seed."""
    values = np.stack(seeds)
    return Sample(
        figures=values.mean(axis=1),
        values=values.mean(axis=0),
        disagreement=float(values.var(axis=0, ddof=1).mean()) / values.shape[1] if len(seeds) > 1 else 0.0,
        is_trained=is_trained,
    )


# --- pseudo-values --------------------------------------------------------------------------------------------------


def left_out(metric: Metric, columns: FloatArray) -> FloatArray:
    """Compute pseudo-values as they are defined, one example after another."""
    num, whole = len(columns), metric.fold(columns)
    without = [metric.fold(np.delete(columns, k, axis=0)) for k in range(num)]
    return num * whole - (num - 1) * np.array(without)


def test_pseudo_values_of_a_mean_are_the_numbers_themselves() -> None:
    right = np.random.default_rng(0).integers(0, 2, (500, 1)).astype(float)
    np.testing.assert_allclose(pseudo_values(accuracy, right), right[:, 0], atol=1e-9)


def test_pseudo_values_of_a_correlation_leave_each_example_out_once(subtests: pytest.Subtests) -> None:
    for metric in [pearson, spearman]:
        with subtests.test(metric=metric):
            generator = np.random.default_rng(1)
            gold = generator.integers(0, 6, 40).astype(float)
            columns = np.column_stack([np.round(gold + generator.normal(0, 2, 40), 1), gold])
            found = pseudo_values(metric, columns)
            np.testing.assert_allclose(found, left_out(metric, columns), atol=1e-8)
            reference = stats.pearsonr if metric is pearson else stats.spearmanr
            assert metric.fold(columns) == pytest.approx(reference(columns[:, 0], columns[:, 1]).statistic)
            assert found.mean() == pytest.approx(
                metric.fold(columns), abs=0.02
            )  # the jackknife's bias is of order 1 / N


def test_pseudo_values_of_macro_f1_leave_each_example_out_once() -> None:
    generator = np.random.default_rng(2)
    gold = generator.integers(0, 3, 60)
    guess = np.where(generator.random(60) < 0.6, gold, generator.integers(0, 3, 60))
    columns = np.column_stack([guess, gold]).astype(float)
    whole = f1_score(gold, guess, average="macro")
    without = [f1_score(np.delete(gold, k), np.delete(guess, k), average="macro") for k in range(60)]
    np.testing.assert_allclose(pseudo_values(macro_f1, columns), 60 * whole - 59 * np.array(without), atol=1e-8)


def test_an_example_that_a_metric_leaves_out_contributes_the_figure_itself() -> None:
    columns = np.array([[1.0], [0.0], [np.nan], [1.0], [np.nan]])
    found = pseudo_values(klue_em, columns)
    np.testing.assert_allclose(found[[2, 4]], 2 / 3)
    np.testing.assert_allclose(found, left_out(klue_em, columns), atol=1e-9)


# --- over examples alone --------------------------------------------------------------------------------------------


def test_a_p_value_over_examples_is_the_share_of_all_swaps_that_differ_as_much() -> None:
    generator = np.random.default_rng(3)
    a, b = generator.random((2, 12)).round(2)
    signs = np.array(list(itertools.product((-1, 1), repeat=12)))
    exact = float((np.abs(signs @ (a - b)) >= abs((a - b).sum()) - 1e-12).mean())
    found = paired_test(sample([a], is_trained=False), sample([b], is_trained=False))
    assert found.p_examples == pytest.approx(exact, abs=0.02)
    assert found.p == found.p_examples


def test_on_right_or_wrong_answers_it_is_mcnemars_exact_test(subtests: pytest.Subtests) -> None:
    for only_a, only_b in [(9, 1), (30, 20), (400, 330), (8, 8)]:
        with subtests.test(only_a=only_a, only_b=only_b):
            both = [1.0] * 700
            a = np.array([1.0] * only_a + [0.0] * only_b + both)
            b = np.array([0.0] * only_a + [1.0] * only_b + both)
            exact = stats.binomtest(only_a, only_a + only_b).pvalue
            found = paired_test(sample([a], is_trained=False), sample([b], is_trained=False))
            assert found.p_examples == pytest.approx(exact, abs=0.015)
            assert found.difference == pytest.approx((only_a - only_b) / len(a))


def test_an_interval_over_examples_is_that_of_the_mean_difference() -> None:
    generator = np.random.default_rng(4)
    a, b = generator.random((2, 3000)) < [[0.8], [0.75]]
    d = a.astype(float) - b
    found = paired_test(sample([a.astype(float)], is_trained=False), sample([b.astype(float)], is_trained=False))
    error = d.std() / np.sqrt(len(d))
    assert found.ci95 == pytest.approx((d.mean() - 1.96 * error, d.mean() + 1.96 * error), abs=0.1 * error)


def test_grouping_equal_examples_changes_no_probability(subtests: pytest.Subtests) -> None:
    for num_kinds in [2, 2000]:
        with subtests.test(num_kinds=num_kinds):
            generator = np.random.default_rng(5)
            values = generator.normal(0.01, 1, num_kinds)[generator.integers(0, num_kinds, 2000)]
            found = paired_test(sample([values], is_trained=False), sample([np.zeros(2000)], is_trained=False))
            z = values.sum() / np.sqrt((values**2).sum())
            assert found.p_examples == pytest.approx(2 * stats.norm.sf(abs(z)), abs=0.02)


def test_the_order_of_two_models_turns_only_the_sign() -> None:
    generator = np.random.default_rng(6)
    a, b = (sample(list((generator.random((3, 400)) < p).astype(float))) for p in (0.8, 0.7))
    one, two = paired_test(a, b), paired_test(b, a)
    assert one.difference == -two.difference > 0
    assert one.p_examples == pytest.approx(two.p_examples, abs=0.01)
    assert one.p == pytest.approx(two.p, abs=0.02)
    assert one.ci95 == pytest.approx([-end for end in two.ci95[::-1]], abs=0.01)


def test_the_same_seed_draws_the_same_rounds() -> None:
    generator = np.random.default_rng(7)
    a, b = (sample(list((generator.random((3, 400)) < p).astype(float))) for p in (0.8, 0.78))
    assert paired_test(a, b) == paired_test(a, b)
    assert paired_test(a, b) != paired_test(a, b, seed=1)


def test_fifty_thousand_answers_take_well_under_a_second() -> None:
    generator = np.random.default_rng(8)
    columns = [[(generator.random((50_000, 1)) < p).astype(float) for _ in range(3)] for p in (0.9, 0.895)]
    started = time.process_time()
    sides = [sample([pseudo_values(accuracy, array) for array in seeds]) for seeds in columns]
    paired_test(sides[0], sides[1], sides)
    assert time.process_time() - started < 1.0


# --- over examples and seeds: simulated models ------------------------------------------------------------------------


class World:
    """Models that answer a test set alike but for contested examples, where every seed tosses a coin of its own.

    Seeds of a model agree on 93 % of the answers, and their true accuracies scatter by `scatter`.
    """

    def __init__(self, num_examples: int, scatter: float, seed: int) -> None:
        """Store what all models have in common."""
        self.num_examples, self.scatter = num_examples, scatter
        self.generator = np.random.default_rng(seed)

    def kinds(self, shares: Sequence[float]) -> NDArray[np.int64]:
        """Draw a test set: the kind of each example."""
        return np.repeat(np.arange(len(shares)), self.generator.multinomial(self.num_examples, shares))

    @staticmethod
    def among(kinds: NDArray[np.int64], chosen: Sequence[int]) -> NDArray[np.bool_]:
        """Return which examples are of the chosen kinds."""
        return np.bincount(chosen, minlength=kinds.max() + 1).astype(bool)[kinds]

    def model(
        self,
        kinds: NDArray[np.int64],
        *,
        contested: Sequence[int],
        right: Sequence[int],
        seeds: int = 3,
        gain: float = 0.0,
        scatter: float | None = None,
    ) -> Sample:
        """Draw the seeds of a model that knows the RIGHT kinds and no others, and is GAIN better on what it doubts."""
        doubted = self.among(kinds, contested)
        strayed = self.generator.normal(gain, self.scatter if scatter is None else scatter, seeds)
        chance = np.clip(0.5 + strayed / 0.14, 0, 1)
        answers = np.tile(self.among(kinds, right).astype(float), (seeds, 1))
        answers[:, doubted] = self.generator.random((seeds, doubted.sum())) < chance[:, None]
        return sample(list(answers))

    def alike(self, *gains: float, seeds: int = 3, scatter: float | None = None) -> list[Sample]:
        """Draw models of one kind: 82 % surely right, 14 % contested, 4 % surely wrong."""
        kinds = self.kinds((0.82, 0.14, 0.04))
        return [self.model(kinds, contested=(1,), right=(0,), seeds=seeds, gain=g, scatter=scatter) for g in gains]

    def unalike(self, gain: float = 0.0) -> list[Sample]:
        """Draw two models that are equally good but for GAIN of the first, and err in different places."""
        both_doubt, a_doubts, b_doubts, one_knows, both = 0.07, 0.035, 0.035, 0.02, (0.72, 0.03)
        kinds = self.kinds((both_doubt, a_doubts, a_doubts, b_doubts, b_doubts, one_knows, one_knows, *both))
        a = self.model(kinds, contested=(0, 1, 2), right=(3, 5, 7), gain=gain)
        return [a, self.model(kinds, contested=(0, 3, 4), right=(1, 6, 7))]


def wins(p_values: Sequence[float | None]) -> float:
    return float(np.mean([p is not None and p <= ALPHA for p in p_values]))


def test_the_simulated_seeds_disagree_and_scatter_as_said() -> None:
    world = World(50_000, 0.0025, 0)
    (model,) = world.alike(0.0, seeds=200)
    agreement = np.mean([(1 - 2 * v * (1 - v)) for v in model.values])  # of two seeds drawn at random
    assert agreement == pytest.approx(0.93, abs=0.005)
    assert model.figures.std() == pytest.approx(0.0025, rel=0.2)


@pytest.mark.slow
def test_a_model_beats_itself_in_at_most_five_percent_of_draws(subtests: pytest.Subtests) -> None:
    for num_examples, scatter in [(500, 0.002), (500, 0.003), (50_000, 0.003)]:
        with subtests.test(num_examples=num_examples, scatter=scatter):
            world = World(num_examples, scatter, num_examples)
            tests = [paired_test(*world.alike(0.0, 0.0), rounds=ROUNDS) for _ in range(DRAWS)]
            assert wins([test.p for test in tests]) <= 0.05
            if num_examples == 50_000:
                # Examples alone know nothing of seeds: this is what the second half of the null hypothesis is for.
                assert wins([test.p_examples for test in tests]) > 0.3


def test_a_model_beats_itself_in_at_most_five_percent_of_draws_in_a_field_of_others() -> None:
    world = World(500, 0.003, 1)
    steady = sample_of_field(world, [0.003] * 3)
    p_values = []
    for _ in range(DRAWS // 2):
        pair = world.alike(0.0, 0.0)
        p_values.append(paired_test(*pair, [*pair, *steady], rounds=ROUNDS).p)
    assert wins(p_values) <= 0.05


def sample_of_field(world: World, scatters: Sequence[float]) -> list[Sample]:
    return [world.alike(0.0, scatter=scatter)[0] for scatter in scatters]


def test_a_noisy_model_does_not_hide_among_steady_ones() -> None:
    world = World(1000, 0.03, 2)
    p_values = []
    for _ in range(DRAWS // 2):
        pair = world.alike(0.0, 0.0)
        p_values.append(paired_test(*pair, [*pair, *sample_of_field(world, [0.004] * 4)], rounds=ROUNDS).p)
    assert wins(p_values) <= 0.05


def test_models_that_are_equally_good_on_different_examples_differ_as_rarely() -> None:
    world = World(2000, 0.005, 3)
    assert wins([paired_test(*world.unalike(), rounds=ROUNDS).p for _ in range(DRAWS // 2)]) <= 0.05


def test_a_point_more_on_fifty_thousand_examples_is_found(subtests: pytest.Subtests) -> None:
    for scatter, found in [(0.001, 0.99), (0.002, 0.85)]:
        with subtests.test(scatter=scatter, found=found):
            world = World(50_000, scatter, 4)
            field = sample_of_field(world, [scatter] * 3)
            p_values = []
            for _ in range(200):
                pair = world.unalike(gain=0.01)
                p_values.append(paired_test(*pair, [*pair, *field], rounds=ROUNDS).p)
            assert wins(p_values) >= found


def test_others_of_the_field_sharpen_what_three_seeds_tell_too_vaguely() -> None:
    world = World(1000, 0.03, 5)
    alone, together = [], []
    for _ in range(300):
        pair = world.alike(0.17, 0.0)
        field = [*pair, *sample_of_field(world, [0.03] * 6)]
        alone.append(paired_test(*pair, rounds=1500).p or 1.0)
        together.append(paired_test(*pair, field, rounds=1500).p or 1.0)
    at = ALPHA / 28  # where Holm's method begins with eight models
    assert np.mean(np.array(together) <= at) > 1.5 * np.mean(np.array(alone) <= at)


def test_one_collapsed_training_in_the_field_hides_no_difference() -> None:
    world = World(50_000, 0.001, 6)
    pair = world.alike(0.02, 0.0)
    field = [*pair, *sample_of_field(world, [0.001, 0.001])]
    collapsed = sample([np.zeros(50_000), np.ones(50_000), np.ones(50_000)])
    p = paired_test(*pair, [*field, collapsed]).p
    assert p is not None
    assert p <= ALPHA


def test_a_correlation_of_a_model_with_other_seeds_is_no_win() -> None:
    generator = np.random.default_rng(9)
    p_values = []
    for _ in range(200):
        gold = generator.uniform(0, 5, 150)
        common = gold + generator.normal(0, 0.8, 150)  # what all seeds see alike
        sides = []
        for _ in range(2):
            seeds = [common + generator.normal(0, generator.uniform(0.3, 0.6), 150) for _ in range(3)]
            columns = [np.column_stack([predicted, gold]) for predicted in seeds]
            values = np.stack([pseudo_values(pearson, array) for array in columns])
            noise = float(values.var(axis=0, ddof=1).mean()) / 150
            figures = np.array([pearson.fold(array) for array in columns])
            sides.append(Sample(figures, values.mean(axis=0), noise, is_trained=True))
        p_values.append(paired_test(*sides, rounds=ROUNDS).p)
    assert wins(p_values) <= 0.05
    assert wins(p_values) > 0


def test_the_scale_of_scores_is_nothing_to_a_correlation() -> None:
    generator = np.random.default_rng(10)
    gold = generator.uniform(0, 5, 200)
    good, bad = (gold + generator.normal(0, noise, 200) for noise in (0.5, 3.0))
    p_values = []
    for scale in (1.0, 1000.0):
        columns = [np.column_stack([good, gold]), np.column_stack([scale * bad, gold])]
        sides = [Sample(np.array([pearson.fold(c)]), pseudo_values(pearson, c), 0.0, is_trained=False) for c in columns]
        p_values.append(paired_test(*sides).p)
    assert p_values[0] == pytest.approx(p_values[1], abs=1e-3)
    assert p_values[0] is not None
    assert p_values[0] < 0.01


# --- many pairs -----------------------------------------------------------------------------------------------------


def test_holms_correction_is_that_of_a_worked_example() -> None:
    # 0.005 × 4, 0.01 × 3, 0.03 × 2, then 0.04 × 1 is not below its forerunner.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def outcome(a: str, b: str, verdict: Verdict) -> Comparison:
    return Comparison(
        task="nsmc",
        metric="accuracy",
        a=a,
        b=b,
        value_a=0.9,
        value_b=0.8,
        seeds_a=3,
        seeds_b=3,
        difference=0.1,
        verdict=verdict,
    )


def test_places_count_those_who_beat_a_model_and_those_it_beats() -> None:
    # No significant difference between One and Two, nor Two and Three, but One beats Three: ties are not transitive.
    found = [outcome("one", "two", "tie"), outcome("two", "three", "not_testable"), outcome("one", "three", "better")]
    assert rank_intervals(found) == {"one": (1, 2), "two": (1, 3), "three": (2, 3)}


def test_models_that_all_differ_have_a_place_each() -> None:
    found = [outcome("a", "b", "better"), outcome("a", "c", "better"), outcome("b", "c", "better")]
    assert rank_intervals(found) == {"a": (1, 1), "b": (2, 2), "c": (3, 3)}
    assert rank_intervals([]) == {}


# --- from cells -----------------------------------------------------------------------------------------------------

REVIEWS = Split(tuple(TextExample(str(k), f"평 {k}", None, "positive") for k in range(400)), "e" * 64)
PAIRS = Split(tuple(TextExample(str(k), "가", "나", float(k % 6)) for k in range(60)), "f" * 64)


def cell(
    model: str, predictions: Sequence[Prediction], *, seed: int = 0, is_trained: bool = True, data: str = "e"
) -> Result:
    is_review = isinstance(predictions[0], str)
    recipe = {"model": model} | ({"finetune": {"epochs": 1}} if is_trained else {})
    return score(
        NSMC if is_review else STS,
        REVIEWS if is_review else PAIRS,
        predictions,
        model=model,
        seed=seed,
        data_sha256="d" * 64 + "+" + data * 64,
        recipe=recipe,
        recipe_sha256=model,
        train_s=1.0,
        eval_s=1.0,
        device="cpu",
    )


def reviews(share: float, seed: int = 0) -> list[Prediction]:
    right = np.random.default_rng(seed).random(400) < share
    return ["positive" if r else "negative" for r in right]


def seeds(model: str, share: float, num: int = 3, first: int = 0) -> list[Result]:
    return [cell(model, reviews(share, first + k), seed=k) for k in range(num)]


def test_every_pair_of_a_task_is_compared_and_the_better_figure_stands_first() -> None:
    cells = {"weak": seeds("weak", 0.6), "strong": seeds("strong", 0.95, 5), "middle": seeds("middle", 0.8, 2)}
    found = compare_models(NSMC, cells)
    assert {(c.a, c.b) for c in found} == {("strong", "middle"), ("strong", "weak"), ("middle", "weak")}
    for c in found:
        assert (c.task, c.metric) == ("nsmc", "accuracy")
        assert c.value_a == pytest.approx(np.mean([r.metrics["accuracy"] for r in cells[c.a]]))
        assert c.difference == c.value_a - c.value_b > 0
        assert (c.seeds_a, c.seeds_b) == (len(cells[c.a]), len(cells[c.b]))
        assert c.ci95 is not None
        assert c.ci95[0] < c.difference < c.ci95[1]
        assert c.p is not None
        assert c.p_examples is not None
        assert c.p_adjusted is not None
        assert c.p_examples <= c.p <= c.p_adjusted
    assert [c.p_adjusted for c in found] == holm([c.p or 0 for c in found])
    assert {(c.a, c.b): c.verdict for c in found}["strong", "weak"] == "better"
    assert rank_intervals(found)["strong"][0] == 1


def test_the_order_of_models_and_cells_is_nothing_to_the_outcome() -> None:
    cells = {name: seeds(name, share, first=k) for k, (name, share) in enumerate([("b", 0.7), ("a", 0.8), ("c", 0.7)])}
    turned = {name: cells[name] for name in reversed(cells)}
    assert compare_models(NSMC, cells) == compare_models(NSMC, turned)


def test_a_trained_model_with_a_single_seed_is_not_testable(subtests: pytest.Subtests) -> None:
    for one, two in [(1, 1), (1, 3), (3, 1)]:
        with subtests.test(one=one, two=two):
            (found,) = compare_models(NSMC, {"a": seeds("a", 0.99, one), "b": seeds("b", 0.5, two, first=9)})
            assert (found.verdict, found.p, found.p_adjusted, found.reason) == ("not_testable", None, None, "one_seed")
            assert found.p_examples is not None
            assert found.p_examples < 0.001
            assert found.ci95 is not None


def test_models_that_learn_nothing_by_chance_need_no_second_seed() -> None:
    cells = {
        name: [cell(name, reviews(share), is_trained=False)] for name, share in (("tfidf", 0.9), ("majority", 0.5))
    }
    (found,) = compare_models(NSMC, cells)
    assert (found.a, found.verdict) == ("tfidf", "better")
    assert found.p == found.p_examples


def test_what_is_not_testable_counts_in_no_adjustment() -> None:
    cells = {
        "tfidf": [cell("tfidf", reviews(0.9), is_trained=False)],
        "majority": [cell("majority", reviews(0.5), is_trained=False)],
        "single": seeds("single", 0.7, 1),
    }
    by_pair = {(c.a, c.b): c for c in compare_models(NSMC, cells)}
    assert by_pair["tfidf", "majority"].p_adjusted == by_pair["tfidf", "majority"].p
    assert {by_pair[pair].verdict for pair in by_pair if "single" in pair} == {"not_testable"}
    assert rank_intervals(list(by_pair.values())) == {"tfidf": (1, 2), "majority": (2, 3), "single": (1, 3)}


def test_a_model_without_a_figure_is_left_out() -> None:
    constant = cell("constant", [2.5] * 60, is_trained=False)
    others = {
        name: [cell(name, [k % 6 + k % shift for k in range(60)], is_trained=False)]
        for name, shift in (("a", 2), ("b", 7))
    }
    found = compare_models(STS, {"constant": [constant], **others})
    assert [{c.a, c.b} for c in found] == [{"a", "b"}]
    assert compare_models(STS, {"constant": [constant], "none": []}) == []


def test_figures_on_other_data_are_not_compared() -> None:
    cells = {
        "old": [cell("old", reviews(0.5), is_trained=False, data="a")],
        "new": [cell("new", reviews(0.9), is_trained=False)],
    }
    (found,) = compare_models(NSMC, cells)
    assert (found.verdict, found.p, found.p_examples, found.ci95) == ("not_testable", None, None, None)
    assert found.reason == "other_data"


def test_a_figure_that_hangs_on_one_example_is_not_tested() -> None:
    # Without the one score that differs there is no correlation.
    cells = {
        "a": [cell("a", [5.0] + [1.0] * 59, is_trained=False)],
        "b": [cell("b", [float(k) for k in range(60)], is_trained=False)],
    }
    (found,) = compare_models(STS, cells)
    assert (found.verdict, found.reason) == ("not_testable", "undefined_without_example")


def test_a_sample_of_cells_is_what_the_definition_says() -> None:
    cells = seeds("m", 0.8)
    found = sample_of(NSMC.metrics[0], cells)
    answers = np.stack([c.metric_columns("accuracy")[:, 0] for c in cells])
    assert found.num_seeds == 3
    assert found.is_trained
    np.testing.assert_allclose(found.figures, answers.mean(axis=1))
    np.testing.assert_allclose(found.values, answers.mean(axis=0), atol=1e-8)
    assert found.disagreement == pytest.approx(answers.var(axis=0, ddof=1).mean() / 400)
    assert found.scatter == pytest.approx(answers.mean(axis=1).var(ddof=1))
    assert sample_of(NSMC.metrics[0], cells[:1]).scatter is None
