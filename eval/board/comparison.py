"""Which of two models is better on a task, and which ranks each may have: paired tests over examples and seeds.

Equally good models differ by two chances: the examples in the test set, and the seeds of training. A test over
examples alone ignores the second: on 50,000 reviews it finds a significant difference between a model and itself with
other seeds in up to six of ten draws, because accuracies that scatter by 0.3 points over seeds differ by more than
the sampling of so many examples explains (Sellam et al. 2022 find the same for BERT). One round of the null hypothesis
here contains both:

* examples: A's and B's answers to an example are swapped with probability 1/2, all seeds of the example together: the
  paired randomisation test (Noreen 1989) on the mean over seeds;
* seeds: normal noise is added to the difference of the two means. Its variance is itself drawn from the uncertainty
  that a few seeds leave, `s² f / χ²(f)`, which gives Student's t its tail. Permuting seed labels would be no test: of
  three and three there are 20 permutations, too few for 5 %. Seeds of one model disagree about single examples; the
  swaps already contain this part of the noise, and it is subtracted.

`s²` and `f` are Welch's (1947), from the two models compared. Three seeds say little about a variance: Welch's t then
has two to four degrees of freedom, and after the correction for 20 pairs needs a difference of ten standard errors. If
the task has at least three trained models, the median of their variances is an estimate from all of them that one
collapsed training cannot spoil; the larger of the two estimates is used. So three lucky seeds make no model look
steadier than the others, and a noisy model does not profit from the others. A model is then found different from
itself in 2 to 4 % of draws; the worst case seen is 6 %, for equally good models of which one scatters three times as
much as all others.

A trained model with a single seed is not testable. A deterministic one has no noise over seeds.

A metric that is not a mean (correlation, macro F1) enters through its jackknife pseudo-values (Tukey 1958), which for
a mean are the per-example values themselves. Swapping raw predictions instead would mix the scales of two models'
scores, and a correlation would fall for that reason alone.

Where a task has clusters, such as the questions on one article, examples of a cluster are right or wrong together.
Whole clusters are then swapped and resampled instead of single examples, and their number is part of the outcome.

Within a task the p-values of all pairs are adjusted together by Holm's method (1979). A model's ranks run from one
behind those significantly better to one before those significantly worse; with the error over all pairs held at 5 %,
all these intervals hold at once with 95 % (Mogstad et al. 2024). Unlike groups of letters they stay correct if "no
significant difference" is not transitive: A and C may differ though neither differs from B.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.config import Config
from downstream.finetuning.result import Result
from downstream.metrics import FloatArray, Metric
from downstream.task import Task

BoolArray: TypeAlias = NDArray[np.bool_]

ALPHA = 0.05
ROUNDS = 10_000
MIN_FIELD = 3
"""Trained models from which on the median of their variances is used."""
BLOCK = 2_000_000
"""Numbers in memory at a time while rounds are drawn."""

Verdict: TypeAlias = Literal["better", "tie", "not_testable"]
Reason: TypeAlias = Literal["", "one_seed", "other_data", "undefined_without_example"]


class Comparison(Config):
    """A pair of models on a task in its ranking metric; `a` is the one with the higher figure."""

    task: str
    metric: str
    a: str
    b: str
    value_a: float
    """Mean over seeds, as a fraction."""
    value_b: float
    seeds_a: int
    seeds_b: int
    num_examples: int = 0
    """That were compared."""
    num_clusters: int | None = None
    """Clusters that were swapped and resampled whole; None where examples are independent."""
    is_clean_subset: bool = False
    """Whether examples that occur in training text were left out; see `eval.board.clean_scores`."""
    difference: float
    """`value_a - value_b`, never negative."""
    ci95: tuple[float, float] | None = None
    """95 % interval of the difference over other examples and, where their noise is known, other seeds."""
    p_examples: float | None = None
    """Over examples alone: whether these trained models differ, not their recipes."""
    p: float | None = None
    """Over examples and seeds: whether the models differ. None where that is not testable."""
    p_adjusted: float | None = None
    """`p` after Holm's adjustment over all pairs of the task."""
    verdict: Verdict
    """`better`: a is significantly better than b. `tie`: no significant difference."""
    reason: Reason = ""
    """Why it is not testable: a trained model has one seed, the evaluation data differ, or the metric is undefined
    without one of the examples."""


@dataclass(frozen=True)
class Sample:
    """A model on a task: its figures over seeds, and the contribution of every example."""

    figures: FloatArray
    """(K,) figure of each seed."""
    values: FloatArray
    """(N,) pseudo-value of each example, averaged over seeds; with clusters (G,), summed over each."""
    disagreement: float
    """Variance of one seed's figure that comes from disagreeing with other seeds about examples; 0 for one seed."""
    is_trained: bool
    """Whether another seed would give another figure."""
    sizes: FloatArray | None = None
    """(G,) number of examples of each cluster; None where every example stands for itself."""

    @property
    def num_seeds(self) -> int:
        """K."""
        return len(self.figures)

    @property
    def figure(self) -> float:
        """Mean over seeds."""
        return float(self.figures.mean())

    @cached_property
    def scatter(self) -> float | None:
        """Sample variance over seeds of a trained model; None for a single seed."""
        return float(self.figures.var(ddof=1)) if self.is_trained and self.num_seeds > 1 else None


def sample_of(metric: Metric, cells: Sequence[Result], kept: BoolArray | None = None) -> Sample:
    """Collect the seeds of one model on one task.

    Args:
        metric: the ranking one.
        cells: one a seed, of one recipe, in which the metric is defined.
        kept: (N,) which examples count; default: all.
    """
    chosen = slice(None) if kept is None else kept
    columns = [cell.metric_columns(metric.key)[chosen] for cell in cells]
    values = np.stack([pseudo_values(metric, array) for array in columns])  # (K, N)
    disagreement, sizes = 0.0, None
    if cells[0].clusters is not None:
        owners = np.unique(np.array(cells[0].clusters)[chosen], return_inverse=True)[1]
        sizes = np.bincount(owners).astype(np.float64)
        values = np.stack([np.bincount(owners, weights=row) for row in values])  # (K, G)
    if len(cells) > 1:
        total = len(columns[0])
        variances = values.var(axis=0, ddof=1)
        disagreement = float(variances.mean()) / total if sizes is None else float(variances.sum()) / total**2
    return Sample(
        figures=np.array([metric.fold(array) for array in columns]),
        values=values.mean(axis=0),
        disagreement=disagreement,
        # The recipe of whatever is trained says how.
        is_trained="finetune" in cells[0].recipe,
        sizes=sizes,
    )


def pseudo_values(metric: Metric, columns: FloatArray) -> FloatArray:
    """Return jackknife pseudo-values: N times the figure less N − 1 times the figure without the example.

    Args:
        metric: what is folded.
        columns: (N, K) per-example numbers.

    Returns:
        (N,), for a mean the numbers themselves; NaN where the figure without the example is undefined.
    """
    # Equal rows are interchangeable, so each distinct one is left out once.
    rows, inverse, counts = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
    without: list[FloatArray] = []
    block = max(1, BLOCK // len(rows))
    for first in range(0, len(rows), block):
        left_out = np.arange(first, min(first + block, len(rows)))
        weights = np.tile(counts.astype(np.float64), (len(left_out), 1))
        weights[np.arange(len(left_out)), left_out] -= 1
        without.append(metric.aggregate(rows, weights))
    num = len(columns)
    whole = float(metric.aggregate(rows, counts[None].astype(np.float64))[0])
    distinct = num * whole - (num - 1) * np.concatenate(without)
    # Rounded, because the difference of large near-equal numbers has errors that would make equal values distinct.
    return np.round(distinct[inverse.ravel()], 9)


@dataclass(frozen=True)
class PairedTest:
    """What a test of two samples found."""

    difference: float
    ci95: tuple[float, float]
    p_examples: float
    p: float | None


def paired_test(
    a: Sample, b: Sample, field: Sequence[Sample] = (), *, seed: int = 0, rounds: int = ROUNDS
) -> PairedTest:
    """Test whether A and B differ, over the same N examples and over seeds.

    Args:
        a: one model.
        b: the other.
        field: all models of the task, A and B included; where three of them are trained, their scatter counts too.
        seed: of the rounds.
        rounds: random swaps per example.

    Returns:
        The difference A − B with its interval and p-values; `p` is None if the noise over seeds is unknown.
    """
    generator = np.random.default_rng(seed)
    swapped, resampled = _example_noise(a.values - b.values, a.sizes, generator, rounds)
    difference = a.figure - b.figure
    is_testable = all(sample.scatter is not None or not sample.is_trained for sample in (a, b))
    noise = np.zeros((2, rounds))
    if is_testable:
        known = sum(sample.disagreement / sample.num_seeds for sample in (a, b))
        unknown = np.maximum(0.0, _seed_variances(a, b, field, generator, rounds) - known)
        noise = np.sqrt(unknown) * generator.standard_normal((2, rounds))
    low, high = difference + np.percentile(resampled + noise[0], [2.5, 97.5])
    return PairedTest(
        difference=difference,
        ci95=(float(low), float(high)),
        p_examples=_p_value(swapped, difference),
        p=_p_value(swapped + noise[1], difference) if is_testable else None,
    )


def _example_noise(
    values: FloatArray, sizes: FloatArray | None, generator: np.random.Generator, rounds: int
) -> tuple[FloatArray, FloatArray]:
    """Draw (R,) means with random signs, and (R,) deviations of the mean when the values are resampled.

    Args:
        values: (N,), or the sums of G clusters.
        sizes: (G,) number of examples of each cluster.
        generator: source of randomness.
        rounds: R.
    """
    if sizes is not None:
        return _cluster_noise(values, sizes, generator, rounds)
    kinds, counts = np.unique(np.round(values, 9), return_counts=True)
    total = len(values)
    is_coarse = 4 * len(kinds) < total
    swapped, resampled = np.empty(rounds), np.empty(rounds)
    block = max(1, BLOCK // (len(kinds) if is_coarse else total))
    for first in range(0, rounds, block):
        size = min(block, rounds - first)
        chosen = slice(first, first + size)
        if is_coarse:
            # Examples of equal value are interchangeable: of 50,000 right-or-wrong answers a dozen kinds remain.
            heads = generator.binomial(counts, 0.5, size=(size, len(kinds)))
            swapped[chosen] = (2 * heads - counts) @ kinds / total
            drawn = generator.multinomial(total, counts / total, size=size)
            resampled[chosen] = (drawn - counts) @ kinds / total
        else:
            heads = generator.integers(0, 2, size=(size, total), dtype=np.int8)
            swapped[chosen] = (2.0 * heads - 1.0) @ values / total
            drawn = generator.integers(0, total, size=(size, total))
            resampled[chosen] = values[drawn].mean(axis=1) - values.mean()
    return swapped, resampled


def _cluster_noise(
    sums: FloatArray, sizes: FloatArray, generator: np.random.Generator, rounds: int
) -> tuple[FloatArray, FloatArray]:
    """Do what `_example_noise` does with whole clusters; resamples differ in their number of examples."""
    number, total = len(sums), sizes.sum()
    swapped, resampled = np.empty(rounds), np.empty(rounds)
    block = max(1, BLOCK // number)
    for first in range(0, rounds, block):
        size = min(block, rounds - first)
        chosen = slice(first, first + size)
        heads = generator.integers(0, 2, size=(size, number), dtype=np.int8)
        swapped[chosen] = (2.0 * heads - 1.0) @ sums / total
        drawn = generator.multinomial(number, np.full(number, 1 / number), size=size)
        resampled[chosen] = (drawn @ sums) / (drawn @ sizes) - sums.sum() / total
    return swapped, resampled


def _seed_variances(
    a: Sample, b: Sample, field: Sequence[Sample], generator: np.random.Generator, rounds: int
) -> FloatArray:
    """Draw (R,) plausible variances of the difference of A's and B's means over seeds."""
    trained = [sample for sample in (a, b) if sample.scatter is not None]
    parts = np.array([sample.scatter / sample.num_seeds for sample in trained if sample.scatter is not None])
    own = float(parts.sum())
    draws = np.zeros(rounds)
    if own > 0:
        degrees = own**2 / float((parts**2 / [sample.num_seeds - 1 for sample in trained]).sum())
        draws = own * degrees / generator.chisquare(degrees, rounds)
    others = [sample for sample in field if sample.scatter is not None]
    if trained and len(others) >= MIN_FIELD:
        # A median of so few draws has no tabled distribution; the same median of drawn variances simulates it.
        degrees_each = np.array([sample.num_seeds - 1 for sample in others])
        medians = np.median(generator.chisquare(degrees_each, (rounds, len(others))) / degrees_each, axis=1)
        common = float(np.median([sample.scatter for sample in others if sample.scatter is not None]))
        common *= sum(1 / sample.num_seeds for sample in trained)
        if common / medians.mean() > own:
            draws = common / medians
    return np.asarray(draws, dtype=np.float64)


def _p_value(null: FloatArray, difference: float) -> float:
    """Return the share of rounds at least as far from zero; the observation counts as one round, so p > 0."""
    # Sums in another order differ in the last bits.
    return (1 + int((np.abs(null) >= abs(difference) - 1e-12).sum())) / (1 + len(null))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for being tested together, by Holm's step-down method."""
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return [float(p) for p in adjusted]


def compare_models(
    task: Task,
    cells: Mapping[str, Sequence[Result]],
    *,
    touched: Collection[int] = (),
    rounds: int = ROUNDS,
) -> list[Comparison]:
    """Test all pairs of models on a task in its ranking metric, adjusted together.

    The outcome depends on the cells alone, not on the order of the models.

    Args:
        task: the task.
        cells: model → its cells of one recipe, one a seed.
        touched: indices of evaluation examples that are left out.
        rounds: of each test, or more where there are many pairs.

    Returns:
        A comparison for each pair of models whose figures are defined; models without one are left out.
    """
    metric = task.metrics[0]
    if any(len(touched) >= found[0].num_examples for found in cells.values() if found):
        return []  # nothing is left to compare on
    defined = {m: c for m, c in sorted(cells.items()) if c and all(x.metrics.get(metric.key) is not None for x in c)}
    samples = {model: sample_of(metric, found, _kept(found[0], touched)) for model, found in defined.items()}
    samples = {model: found for model, found in samples.items() if not np.isnan(found.figures).any()}
    questions = {model: _questions(defined[model][0]) for model in samples}
    pairs = list(itertools.combinations(samples, 2))
    # With fewer rounds no p-value could stay below ALPHA after the adjustment for so many pairs.
    rounds = max(rounds, 100 * len(pairs))
    comparisons = []
    for pair in pairs:
        a, b = sorted(pair, key=lambda model: -samples[model].figure)
        untested = Comparison(
            task=task.name,
            metric=metric.key,
            a=a,
            b=b,
            value_a=samples[a].figure,
            value_b=samples[b].figure,
            seeds_a=samples[a].num_seeds,
            seeds_b=samples[b].num_seeds,
            num_examples=defined[a][0].num_examples - len(touched),
            num_clusters=None if (sizes := samples[a].sizes) is None else len(sizes),
            is_clean_subset=bool(touched),
            difference=samples[a].figure - samples[b].figure,
            verdict="not_testable",
        )
        if questions[a] != questions[b]:
            comparisons.append(untested.model_copy(update={"reason": "other_data"}))
        elif np.isnan(samples[a].values + samples[b].values).any():
            comparisons.append(untested.model_copy(update={"reason": "undefined_without_example"}))
        else:
            field = [samples[model] for model in samples if questions[model] == questions[a]]
            found = paired_test(samples[a], samples[b], field, rounds=rounds)
            outcome = {"ci95": found.ci95, "p_examples": found.p_examples, "p": found.p}
            comparisons.append(untested.model_copy(update=outcome | {"reason": "one_seed" if found.p is None else ""}))
    return _corrected(comparisons)


def _kept(cell: Result, touched: Collection[int]) -> BoolArray | None:
    if not touched:
        return None
    kept = np.ones(cell.num_examples, np.bool_)
    kept[list(touched)] = False
    return kept


def _questions(cell: Result) -> tuple[object, ...]:
    """Return what two cells must have in common to be compared example by example."""
    evaluated = cell.data_sha256.rpartition("+")[2]  # the digest of the evaluation split comes last
    return cell.num_examples, evaluated, cell.clusters is None


def _corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    adjusted = iter(holm([c.p for c in comparisons if c.p is not None]))
    corrected = []
    for comparison in comparisons:
        if comparison.p is not None:
            p = next(adjusted)
            verdict: Verdict = "better" if p <= ALPHA else "tie"
            comparison = comparison.model_copy(update={"p_adjusted": p, "verdict": verdict})
        corrected.append(comparison)
    return corrected


def rank_intervals(comparisons: Sequence[Comparison]) -> dict[str, tuple[int, int]]:
    """Return the ranks that each compared model of a task may have, best and worst.

    Args:
        comparisons: all pairs of the task.

    Returns:
        Model → (1 + models significantly better, number of models − models significantly worse).
    """
    models = sorted({model for c in comparisons for model in (c.a, c.b)})
    won = [(c.a, c.b) for c in comparisons if c.verdict == "better"]
    return {
        model: (1 + sum(loser == model for _, loser in won), len(models) - sum(winner == model for winner, _ in won))
        for model in models
    }
