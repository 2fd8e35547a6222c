"""Metrics against the official scripts' outputs, worked examples, real dev sets, scikit-learn and SciPy."""

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from downstream.metrics import (
    KLUE_NER_TAGS,
    FloatArray,
    Metric,
    accuracy,
    bootstrap_ci95,
    char_macro_f1,
    entity_f1,
    f1_at_3,
    klue_em,
    klue_mrc_rouge_w,
    klue_rouge_w,
    korquad_char_f1,
    korquad_em,
    macro_f1,
    macro_precision,
    macro_recall,
    normalize_klue_mrc,
    normalize_korquad,
    pearson,
    spearman,
)
from downstream.task import QuestionExample, get_task

VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "metric_vectors.json").read_text(encoding="utf-8"))

Vector = dict[str, Any]


def score_span(vector: Vector, normalize: Callable[[str], str], **metrics: Metric) -> Vector:
    predictions, golds = [vector["prediction"]], [vector["answers"]]
    return {
        "norm_prediction": normalize(vector["prediction"]),
        "norm_answers": [normalize(answer) for answer in vector["answers"] or [""]],
    } | {key: metric(predictions, golds) for key, metric in metrics.items()}


def score_spans(vector: Vector, rows: str, id_: str, golds: str, scale: float, **metrics: Metric) -> Vector:
    predictions = [vector["predictions"].get(row[id_]) for row in vector[rows]]
    return {key: scale * metric(predictions, [row[golds] for row in vector[rows]]) for key, metric in metrics.items()}


def score_flat(scale: float, **metrics: Callable[[Any, Any], float]) -> Callable[[Vector], Vector]:
    return lambda v: {key: scale * metric(v["predictions"], v["labels"]) for key, metric in metrics.items()}


def score_tags(vector: Vector) -> Vector:
    """Score a flat sequence as one sentence: the metrics add the O of [CLS] and [SEP] that it begins and ends with."""
    assert {vector[key][edge] for key in ("predictions", "labels") for edge in (0, -1)} == {"O"}
    predictions, golds = ([" ".join(vector[key][1:-1])] for key in ("predictions", "labels"))
    return {
        "entity_macro_f1": 100 * entity_f1(predictions, golds),
        "char_macro_f1": 100 * char_macro_f1(predictions, golds),
    }


SCORERS: dict[str, Callable[[Vector], Vector]] = {
    "korquad_v1": lambda v: score_span(v, normalize_korquad, exact_match=korquad_em, f1=korquad_char_f1),
    "korquad_v1_dataset": lambda v: score_spans(
        v, "qas", "id", "answers", 100, exact_match=korquad_em, f1=korquad_char_f1
    ),
    "klue_mrc": lambda v: score_span(v, normalize_klue_mrc, exact_match=klue_em, rouge_w=klue_rouge_w),
    "klue_mrc_dataset": lambda v: score_spans(
        v, "examples", "guid", "answers", 100, exact_match=klue_em, rouge_w=klue_rouge_w
    ),
    "klue_mrc_dataset_missing": lambda v: score_spans(
        v, "labels", "qid", "ground_truth", 1, exact_match=klue_em, rouge=klue_rouge_w
    ),
    "klue_sts": lambda v: score_flat(100, pearsonr=pearson, f1=f1_at_3)(v) | score_flat(1, spearmanr_0_1=spearman)(v),
    "klue_nli": score_flat(100, accuracy=accuracy),
    "nsmc": score_flat(100, accuracy=accuracy),
    "ynat": score_flat(100, macro_f1=macro_f1, accuracy_for_contrast=accuracy),
    "hate_speech": score_flat(
        1, macro_precision_0_1=macro_precision, macro_recall_0_1=macro_recall, macro_f1_0_1=macro_f1
    ),
    "klue_ner": score_tags,
}


def test_every_group_of_vectors_has_its_scorer() -> None:
    assert set(VECTORS) - {"about", "tokenization_kpfbert"} == set(SCORERS)


def test_a_score_is_that_of_the_official_script(subtests: pytest.Subtests) -> None:
    for group, vector in [(name, row) for name in SCORERS for row in VECTORS[name]]:
        with subtests.test(vector=vector["id"]):
            for key, ours in SCORERS[group](vector).items():
                official = vector[key]
                if isinstance(official, str | list):
                    assert ours == official, key
                else:
                    assert ours == pytest.approx(math.nan if official is None else official, abs=1e-6, nan_ok=True), key


# prediction, golds, KorQuAD EM and F1, KLUE EM and ROUGE-W: computed with the official scripts
WORKED_EXAMPLES: list[tuple[str, list[str], float | None, float, float, float]] = [
    ("서울특별시는", ["서울특별시"], 0, 0.9091, 0, 0.9091),
    ("국립 중앙 박물관", ["국립중앙박물관"], 0, 1.0, 0, 0.375),
    ("국립중앙박물관.", ["국립중앙박물관"], 1, 1.0, 1, 1.0),
    ("오'브라이언", ["오브라이언"], 0, 1.0, 1, 1.0),
    ("《토지》", ["토지"], 1, 1.0, 0, 0.6667),
    ("‘광장’", ["광장"], 1, 1.0, 0, 0.6667),
    ("“광장”", ["광장"], 0, 0.6667, 0, 0.6667),
    ("세종(이도)", ["세종이도"], 0, 1.0, 1, 1.0),
    ("세종(이도)", ["세종 이도"], 1, 1.0, 0, 0.4444),
    ("코로나-19", ["코로나19"], 1, 1.0, 1, 1.0),
    ("3·1 운동", ["31 운동"], 0, 0.8889, 0, 0.7273),
    ("3.5", ["35"], 1, 1.0, 1, 1.0),
    ("BTS", ["bts"], 1, 1.0, 1, 1.0),
    ("1987년 6월", ["1987년 6월 10일"], 0, 0.8235, 0, 0.8),
    ("구대", ["대구"], 0, 1.0, 0, 0.5),
    ("바나나나나", ["바나나"], 0, 0.75, 0, 0.75),
    ("한국 언론 재단", ["한국언론진흥재단"], 0, 0.8571, 0, 0.25),
    ("약 3개월", ["3개월", "약 3개월"], 1, 1.0, 1, 1.0),
    ("세 달 정도", ["3개월", "세 달"], 0, 0.6667, 0, 0.6667),
    ("", ["3개월"], 0, 0.0, 0, 0.0),
    ("", ["?!"], 1, 0.0, 1, 1.0),
    ("", [""], None, 0.0, 1, 1.0),
    ("서울", [""], None, 0.0, 0, 0.0),
    ("２０２２년", ["2022년"], 0, 0.2, 0, 0.2),
]


def test_worked_examples_of_answer_scores(subtests: pytest.Subtests) -> None:
    for prediction, golds, em, f1, klue, rouge_w in WORKED_EXAMPLES:
        with subtests.test(prediction=prediction, golds=golds):
            if em is not None:  # KorQuAD has no unanswerable questions
                assert korquad_em([prediction], [golds]) == em
                assert korquad_char_f1([prediction], [golds]) == pytest.approx(f1, abs=5e-5)
            assert klue_em([prediction], [golds]) == klue
            assert klue_rouge_w([prediction], [golds]) == pytest.approx(rouge_w, abs=5e-5)


def test_difflib_drops_popular_characters_of_golds_from_200_characters_on() -> None:
    assert klue_mrc_rouge_w("음" + "ㅋ" * 150, "ㅋ" * 200) == 0.0
    assert klue_mrc_rouge_w("음" + "ㅋ" * 150, "ㅋ" * 199) == pytest.approx(0.857, abs=5e-4)


def test_worked_examples_of_entity_scores(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, float, float]] = [
        ("B-PS I-PS", "B-PS I-PS", 100, 100),
        ("B-LC I-LC", "B-PS I-PS", 0, 69.23),
        ("I-PS I-PS", "B-PS I-PS", 0, 89.74),
        ("B-PS I-PS O", "B-PS I-PS I-PS", 0, 95.90),
    ]
    for predicted, gold, entity, character in cases:
        with subtests.test(predicted=predicted, gold=gold):
            assert 100 * entity_f1([predicted], [gold]) == pytest.approx(entity, abs=5e-3)
            assert 100 * char_macro_f1([predicted], [gold]) == pytest.approx(character, abs=5e-3)


def test_another_number_of_tags_than_characters_is_refused(subtests: pytest.Subtests) -> None:
    for metric in (
        entity_f1,
        char_macro_f1,
    ):
        with (
            subtests.test(metric=metric.key),
            pytest.raises(ValueError, match="sentence 2: 1 tags for 2 characters"),
        ):
            metric(["O", "B-PS"], ["O", "B-PS I-PS"])


def test_no_entity_anywhere_is_no_score_and_a_missed_one_is_zero() -> None:
    assert math.isnan(entity_f1(["O O", ""], ["I-PS O", ""]))
    assert entity_f1(["O O"], ["B-PS O"]) == 0.0
    assert char_macro_f1(["O O", ""], ["O O", ""]) == 1.0


# --- real dev sets --------------------------------------------------------------------------------------------------


def whole_eojeol(example: QuestionExample) -> str:
    """Stretch the gold to the white space around it."""
    start, end = example.answers[0].start, example.answers[0].start + len(example.answers[0].text)
    while start > 0 and not example.context[start - 1].isspace():
        start -= 1
    while end < len(example.context) and not example.context[end].isspace():
        end += 1
    return example.context[start:end]


RULES: dict[str, Callable[[int, QuestionExample], str | None]] = {
    "gold": lambda _, e: e.gold[0],
    "whole_eojeol_cover": lambda _, e: whole_eojeol(e),
    "gold_plus_eun": lambda _, e: e.gold[0] + "은",
    "first_three_eojeol": lambda _, e: " ".join(e.context.split()[:3]),
    "gold_without_spaces": lambda _, e: "".join(e.gold[0].split()),
    "empty": lambda _, _e: "",
    "every_second_missing": lambda k, e: None if k % 2 else e.gold[0],
}
SPAN_METRICS = {
    "korquad_dev": {"exact_match": korquad_em, "f1": korquad_char_f1},
    "klue_mrc_metric_on_korquad_dev": {"exact_match": klue_em, "rouge_w": klue_rouge_w},
}
OFFICIAL = VECTORS["about"]["on_real_dev_sets"]


@pytest.mark.real_data
def test_answers_by_rule_score_on_korquad_dev_as_with_the_official_script(
    real_data: Path, subtests: pytest.Subtests
) -> None:
    for figures, rule in [(name, rule) for name in SPAN_METRICS for rule in OFFICIAL[name] if rule in RULES]:
        with subtests.test(figures=figures, rule=rule):
            split = get_task("korquad").read_split("dev", real_data)
            predictions = [RULES[rule](k, example) for k, example in enumerate(split.examples)]
            for key, metric in SPAN_METRICS[figures].items():
                assert 100 * metric(predictions, split.golds) == pytest.approx(OFFICIAL[figures][rule][key], abs=1e-6)


@pytest.mark.real_data
def test_character_overlap_scores_on_klue_sts_dev_as_with_the_official_script(real_data: Path) -> None:
    split = get_task("klue-sts").read_split("dev", real_data)
    sets = [(set(e.text) - {" "}, set(e.pair) - {" "}) for e in split.examples]
    predictions = [5 * len(one & other) / len(one | other) for one, other in sets]
    official = OFFICIAL["klue_sts_dev"]["jaccard5"]
    assert 100 * pearson(predictions, split.golds) == pytest.approx(official["pearsonr"], abs=1e-6)
    assert 100 * f1_at_3(predictions, split.golds) == pytest.approx(official["f1"], abs=1e-6)
    assert spearman(predictions, split.golds) == pytest.approx(official["spearmanr_0_1"], abs=1e-6)


@pytest.mark.real_data
def test_a_constant_scores_on_klue_sts_dev_only_in_f1(real_data: Path) -> None:
    golds = get_task("klue-sts").read_split("dev", real_data).golds
    constant = [5.0] * len(golds)
    assert 100 * f1_at_3(constant, golds) == pytest.approx(OFFICIAL["klue_sts_dev"]["all_positive_f1"], abs=1e-6)
    assert math.isnan(pearson(constant, golds))
    assert bootstrap_ci95(pearson, [pearson.columns(constant, golds)], rounds=10) is None


@pytest.mark.real_data
def test_one_label_for_all_scores_its_share(real_data: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, float]] = [
        ("klue-nli", "entailment", OFFICIAL["klue_nli_dev"]["all_entailment"]),
        ("nsmc", "positive", OFFICIAL["nsmc_test"]["all_1"]),
    ]
    for task, label, percent in cases:
        with subtests.test(task=task):
            golds = get_task(task).read_split(get_task(task).eval_split, real_data).golds
            assert 100 * accuracy([label] * len(golds), golds) == pytest.approx(percent, abs=1e-6)


TAG_RULES: dict[str, Callable[[str], str]] = {
    "gold": lambda tag: tag,
    "all_O": lambda _: "O",
    "every_B_made_I": lambda tag: tag.replace("B-", "I-"),
    "LC_OG_swapped": lambda tag: tag.translate(str.maketrans("LCOG", "OGLC")) if tag[2:] in {"LC", "OG"} else tag,
    "QT_dropped": lambda tag: "O" if tag.endswith("QT") else tag,
}


@pytest.mark.real_data
def test_tags_by_rule_score_on_klue_ner_dev_as_with_the_official_script(
    real_data: Path, subtests: pytest.Subtests
) -> None:
    for rule in TAG_RULES:
        with subtests.test(rule=rule):
            golds = get_task("klue-ner").read_split("dev", real_data).golds
            predictions = [" ".join(map(TAG_RULES[rule], gold.split())) for gold in golds]
            official = OFFICIAL["klue_ner_dev"][rule]
            assert 100 * entity_f1(predictions, golds) == pytest.approx(official["entity_macro_f1"], abs=1e-6)
            assert 100 * char_macro_f1(predictions, golds) == pytest.approx(official["char_macro_f1"], abs=1e-6)
            assert sum(len(gold.split()) + 2 for gold in golds) == OFFICIAL["klue_ner_dev"]["length_with_cls_sep"]


# --- independent references on random data --------------------------------------------------------------------------


def random_labels(seed: int) -> tuple[list[str], list[str]]:
    """Draw 60 golds of 5 classes, of which `e` is never predicted, and predictions right half of the time."""
    generator = np.random.default_rng(seed)
    golds = generator.choice(list("abcde"), 60)
    guesses = generator.choice(list("abcd"), 60)
    right = (generator.random(60) < 0.5) & (golds != "e")
    return np.where(right, golds, guesses).tolist(), golds.tolist()


def random_scores(seed: int) -> tuple[list[float], list[float]]:
    """Draw 60 correlated scores from 0 to 5 with many ties among the golds."""
    generator = np.random.default_rng(seed)
    golds = np.round(generator.uniform(0, 5, 60) * 2) / 2
    return (golds + generator.normal(0, 1.5, 60)).tolist(), golds.tolist()


def random_tags(seed: int) -> tuple[list[str], list[str]]:
    """Draw 60 sentences of 0 to 8 tags, as many for every seed, and predictions with a third of them drawn anew."""
    generator = np.random.default_rng(seed)
    golds, predictions = [], []
    for k in range(60):
        gold = generator.choice(KLUE_NER_TAGS, k % 9, p=[0.05] * 12 + [0.4])
        other = generator.choice(KLUE_NER_TAGS, len(gold))
        golds.append(" ".join(gold))
        predictions.append(" ".join(np.where(generator.random(len(gold)) < 2 / 3, gold, other)))
    return predictions, golds


def flat(sentences: Sequence[str]) -> list[str]:
    """Concatenate sentences as KLUE does, with [CLS] and [SEP] as O."""
    return [tag for sentence in sentences for tag in ("O", *sentence.split(), "O")]


def flat_entity_f1(predictions: Sequence[str], golds: Sequence[str]) -> float:
    """Find the entities of the whole concatenation by a regular expression, and average F1 over their types."""

    def spans(sentences: Sequence[str]) -> set[tuple[str, int, int]]:
        text = " ".join(flat(sentences)) + " "
        return {(m[1], *m.span()) for m in re.finditer(r"(?<!\S)B-(\w\w) (?:I-\1 )*", re.sub(r"\bO\b", "O---", text))}

    ours, theirs = spans(predictions), spans(golds)
    return float(
        np.mean(
            [
                2 * sum(kind == k for k, *_ in ours & theirs) / sum(kind == k for k, *_ in [*ours, *theirs])
                for kind in {kind for kind, *_ in ours | theirs}
            ]
        )
    )


def flat_character_f1(predictions: Sequence[str], golds: Sequence[str]) -> float:
    ours, theirs = flat(predictions), flat(golds)
    return float(sklearn.metrics.f1_score(theirs, ours, labels=KLUE_NER_TAGS, average="macro", zero_division=1.0))


def sklearn_macro(name: str) -> Callable[[Any, Any], float]:
    score = getattr(sklearn.metrics, f"{name}_score")
    return lambda predictions, golds: float(score(golds, predictions, average="macro", zero_division=0))


REFERENCES: list[tuple[Metric, Callable[[int], Any], Callable[[Any, Any], float]]] = [
    (accuracy, random_labels, lambda p, g: float(sklearn.metrics.accuracy_score(g, p))),
    (macro_f1, random_labels, sklearn_macro("f1")),
    (macro_precision, random_labels, sklearn_macro("precision")),
    (macro_recall, random_labels, sklearn_macro("recall")),
    (pearson, random_scores, lambda p, g: float(scipy.stats.pearsonr(p, g).statistic)),
    (spearman, random_scores, lambda p, g: float(scipy.stats.spearmanr(p, g).statistic)),
    (f1_at_3, random_scores, lambda p, g: float(sklearn.metrics.f1_score(np.array(g) >= 3, np.array(p) >= 3))),
    (entity_f1, random_tags, flat_entity_f1),
    (char_macro_f1, random_tags, flat_character_f1),
]


def test_a_figure_is_that_of_an_independent_reference(subtests: pytest.Subtests) -> None:
    for seed in range(5):
        for metric, draw, reference in REFERENCES:
            with subtests.test(metric=metric.key, seed=seed):
                predictions, golds = draw(seed)
                assert metric(predictions, golds) == pytest.approx(reference(predictions, golds), abs=1e-9)


def test_a_correlation_with_a_constant_is_undefined(subtests: pytest.Subtests) -> None:
    for metric in (
        pearson,
        spearman,
    ):
        for constant in (
            0.0,
            0.1,
            3.3,
            1e6 / 3,
        ):
            with subtests.test(metric=metric.key, constant=constant):
                _, golds = random_scores(0)
                assert math.isnan(metric([constant] * len(golds), golds))
                assert math.isnan(metric(golds, [constant] * len(golds)))


def test_a_correlation_of_nearly_equal_scores_is_defined() -> None:
    assert pearson([3.0 + 1e-6 * k for k in range(5)], [0.0, 1.0, 2.0, 3.0, 4.0]) == pytest.approx(1.0)


def test_another_number_of_predictions_than_golds_is_refused(subtests: pytest.Subtests) -> None:
    for metric in (
        accuracy,
        macro_f1,
        pearson,
        korquad_em,
        klue_rouge_w,
    ):
        with subtests.test(metric=metric.key):
            for predictions, golds in (([], []), ([1], []), ([], [1]), ([1], [1, 2])):
                with pytest.raises(ValueError, match=metric.key):
                    metric(predictions, golds)


# --- weights and the bootstrap --------------------------------------------------------------------------------------

TENTHS = st.integers(0, 50).map(lambda k: k / 10)
ANSWERS = st.text("가나 .A", max_size=4)
TAG_PAIRS = st.lists(st.tuples(*[st.sampled_from(("O", "B-PS", "I-PS", "B-LC", "I-LC"))] * 2), max_size=5)
EXAMPLES: dict[Metric, st.SearchStrategy[tuple[Any, Any]]] = {
    **dict.fromkeys(
        (accuracy, macro_f1, macro_precision, macro_recall), st.tuples(st.sampled_from("abc"), st.sampled_from("abc"))
    ),
    **dict.fromkeys((pearson, spearman, f1_at_3), st.tuples(TENTHS, TENTHS)),
    **dict.fromkeys(
        (korquad_em, korquad_char_f1, klue_em, klue_rouge_w),
        st.tuples(st.none() | ANSWERS, st.lists(ANSWERS, max_size=2)),
    ),
    **dict.fromkeys(
        (entity_f1, char_macro_f1),
        TAG_PAIRS.map(lambda pairs: (" ".join(one for one, _ in pairs), " ".join(two for _, two in pairs))),
    ),
}


def test_a_weight_counts_like_so_many_copies_of_the_example(subtests: pytest.Subtests) -> None:
    for metric in EXAMPLES:
        with subtests.test(metric=metric.key):
            check_weights(metric)


def check_weights(metric: Metric) -> None:
    @settings(max_examples=60)
    @given(st.lists(st.tuples(EXAMPLES[metric], st.integers(0, 3)), min_size=1, max_size=12))
    def check(rows: list[tuple[tuple[Any, Any], int]]) -> None:
        compare_with_copies(metric, rows)

    check()


def compare_with_copies(metric: Metric, rows: list[tuple[tuple[Any, Any], int]]) -> None:
    weights = np.array([float(weight) for _, weight in rows])
    copies = [example for example, weight in rows for _ in range(weight)]
    if not copies:
        return
    columns = metric.columns([prediction for (prediction, _), _ in rows], [gold for (_, gold), _ in rows])
    weighted = metric.aggregate(columns, np.stack([weights, np.ones(len(rows)), weights]))
    repeated = metric([prediction for prediction, _ in copies], [gold for _, gold in copies])
    assert weighted[[0, 2]] == pytest.approx([repeated] * 2, abs=1e-9, nan_ok=True)
    assert weighted[1] == pytest.approx(metric.fold(columns), abs=1e-9, nan_ok=True)


def scipy_interval(
    reference: Callable[[Any, Any], float], seeds: Sequence[Sequence[Any]], golds: Sequence[Any]
) -> tuple[float, float]:
    def statistic(places: FloatArray) -> float:
        rows = places.astype(int)
        return float(np.mean([reference(np.array(p)[rows], np.array(golds)[rows]) for p in seeds]))

    interval = scipy.stats.bootstrap(
        (np.arange(len(golds)),), statistic, vectorized=False, n_resamples=1500, method="percentile", rng=0
    ).confidence_interval
    return float(interval.low), float(interval.high)


@pytest.mark.slow
def test_an_interval_is_that_of_scipy_s_percentile_bootstrap(subtests: pytest.Subtests) -> None:
    for num_seeds in (
        1,
        2,
    ):
        for metric, draw, reference in [
            r for r in REFERENCES if r[0] in {accuracy, macro_f1, pearson, spearman, entity_f1}
        ]:
            with subtests.test(metric=metric.key, num_seeds=num_seeds):
                golds = draw(0)[1]
                runs = [draw(0)[0], golds[:30] + draw(1)[0][30:]][:num_seeds]  # two unlike runs on the same examples
                ours = bootstrap_ci95(metric, [metric.columns(run, golds) for run in runs])
                assert ours is not None
                assert ours[0] < np.mean([metric(run, golds) for run in runs]) < ours[1]
                noise = 0.06 * (ours[1] - ours[0])  # 3 standard errors of a 2.5 % quantile from 1,500 rounds
                assert ours == pytest.approx(scipy_interval(reference, runs, golds), abs=noise)


def test_an_interval_is_repeatable_and_depends_on_the_seed() -> None:
    columns = [pearson.columns(*random_scores(3))]
    assert bootstrap_ci95(pearson, columns) == bootstrap_ci95(pearson, columns)
    assert bootstrap_ci95(pearson, columns) != bootstrap_ci95(pearson, columns, seed=1)


def test_seeds_are_resampled_together() -> None:
    """Two runs that are right where the other is wrong always average to one half."""
    right = accuracy.columns([1] * 20 + [0] * 20, [1] * 40)
    assert bootstrap_ci95(accuracy, [right, 1 - right]) == (0.5, 0.5)


def test_an_interval_shrinks_with_the_root_of_the_number_of_examples() -> None:
    widths = []
    for n in (500, 50_000):
        low, high = bootstrap_ci95(accuracy, [accuracy.columns([1] * n, [1, 0] * (n // 2))]) or (0.0, 0.0)
        widths.append(high - low)
        assert high - low == pytest.approx(2 * 1.96 * 0.5 / math.sqrt(n), rel=0.05)
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.1)


def test_an_undefined_figure_has_no_interval() -> None:
    assert bootstrap_ci95(pearson, [pearson.columns([1.0] * 5, [0.0, 1.0, 2.0, 3.0, 4.0])], rounds=10) is None
    assert bootstrap_ci95(klue_em, [klue_em.columns([None, None], [["가"], ["나"]])], rounds=10) is None


def test_unanswered_questions_are_left_out_of_klue_intervals() -> None:
    with_gaps = klue_em.columns(["가", "나", None] * 10, [["가"], ["가"], ["가"]] * 10)
    without = klue_em.columns(["가", "나"] * 10, [["가"], ["가"]] * 10)
    assert bootstrap_ci95(klue_em, [with_gaps]) == pytest.approx(bootstrap_ci95(klue_em, [without]), abs=0.06)
