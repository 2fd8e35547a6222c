"""Noise: it alters its share of positions, always the same ones; keys compose as on a keyboard; endings stay Korean."""

import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downstream.metrics import accuracy, bootstrap_ci95, pearson
from downstream.task import Answer, Prediction, QuestionExample, TextExample, get_task
from eval.contestants.majority import Majority
from eval.measures.keyboard import (
    type_keys,
)
from eval.measures.noise import NOISES, apply, paired_drop, robustness, sample

NOWHERE = Path("/nonexistent")
ALL = list(NOISES.values())
SYLLABLES = [chr(code) for code in range(0xAC00, 0xD7A4)]
NEWS = "정부는 3일 새 부동산 대책을 발표했다. 전문가들은 “효과가 크지 않다.”라고 말했습니다. 시장은 어떻게 볼까요?"

hangul = st.text(st.sampled_from(SYLLABLES))
characters = st.one_of(
    st.sampled_from(SYLLABLES), st.sampled_from(" .!?ㅋㅠab12\n\t“”😀"), st.characters(codec="utf-8")
)
texts = st.text(characters, max_size=25)
composed = texts.map(lambda text: unicodedata.normalize("NFC", text))
rates = st.floats(0, 1)


def review(text: str, id_: str = "1") -> TextExample:
    return TextExample(id_, text, None, "positive")


def noised(kind: str, text: str, rate: float = 1.0, id_: str = "1", seed: int = 0) -> str:
    return apply(NOISES[kind], review(text, id_), rate, seed).text


def keys(text: str) -> str:
    return "".join(type_keys(one) if "가" <= one <= "힣" else one for one in text)


# --- the registry ---------------------------------------------------------------------------------------------------


def test_the_kinds_are_named_once_and_declare_rising_rates_up_to_one() -> None:
    assert {name: noise.name for name, noise in NOISES.items()} == {name: name for name in NOISES}
    assert set(NOISES) == {"missing-spaces", "extra-spaces", "jamo-typos", "nfd", "endings"}
    for noise in ALL:
        assert list(noise.rates) == sorted(set(noise.rates))
        assert all(0 < rate <= 1 for rate in noise.rates)
        assert re.search("[가-힣]", noise.title)
        assert re.search("[가-힣]", noise.description)
        assert re.search("[가-힣]", noise.unit)


def test_a_rate_outside_zero_to_one_is_refused() -> None:
    for noise in ALL:
        for rate in (-0.1, 1.1, float("nan")):
            with pytest.raises(ValueError, match=f"{noise.name}: rate {rate} is outside"):
                apply(noise, review("가 나"), rate, 0)


# --- what is altered -------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(text=composed, rate=rates, seed=st.integers(0, 9))
def test_noise_alters_texts_and_nothing_else_and_does_it_again(text: str, rate: float, seed: int) -> None:
    pair = TextExample("7", text, text[::-1], 3.5)
    for noise in ALL:
        first = apply(noise, pair, rate, seed)
        assert (first.id, first.label, first.gold) == ("7", 3.5, 3.5), noise.name
        assert apply(noise, pair, rate, seed) == first, noise.name
        assert apply(noise, pair, 0.0, seed) == pair, noise.name
        assert apply(noise, review(text), rate, seed).pair is None, noise.name


@settings(max_examples=20)
@given(context=composed, question=composed, rate=rates, data=st.data())
def test_answers_stay_where_they_are(context: str, question: str, rate: float, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(context)))
    text = context[start : data.draw(st.integers(start, len(context)))]
    example = QuestionExample("q", question, context, (Answer(text, start),), question_type=2)
    for noise in ALL:
        after = apply(noise, example, rate, 0)
        kept = (after.context, after.answers, after.gold, after.question_type)
        assert kept == (context, example.answers, (text,), 2), noise.name
        assert all(after.context[a.start : a.start + len(a.text)] == a.text for a in after.answers), noise.name


def test_a_question_is_noised_and_its_context_is_not() -> None:
    example = QuestionExample(
        "q", "조선을 세운 임금은 누가 뽑았습니까?", "조선의 첫 임금은 태조이다.", (Answer("태조", 10),)
    )
    for kind in ("missing-spaces", "extra-spaces", "jamo-typos", "nfd", "endings"):
        after = apply(NOISES[kind], example, 1.0, 0)
        assert after.question != example.question
        assert after.context == example.context


PINNED = {
    "missing-spaces": (0.5, "정부는 3일새부동산 대책을발표했다."),
    "extra-spaces": (0.3, "정부는 3일 새 부 동 산 대책 을 발 표 했다."),
    "jamo-typos": (0.3, "정부눈 3틸 새 부동산 대책을 발표했아."),
}


def test_the_same_positions_are_altered_by_every_version_of_this_suite() -> None:
    for kind, (rate, expected) in PINNED.items():
        assert noised(kind, "정부는 3일 새 부동산 대책을 발표했다.", rate, "nsmc-1", seed=7) == expected, kind


def test_neither_order_nor_process_nor_hash_seed_changes_what_is_altered() -> None:
    examples = [review(NEWS, str(k)) for k in range(5)]
    here = [[apply(noise, e, 0.4, 3).text for noise in ALL] for e in reversed(examples)][::-1]
    program = (
        "import json, sys\n"
        "from downstream.task import TextExample\n"
        "from eval.measures.noise import NOISES, apply\n"
        "examples = [TextExample(str(k), sys.argv[1], None, 'x') for k in range(5)]\n"
        "print(json.dumps([[apply(noise, e, 0.4, 3).text for noise in NOISES.values()] for e in examples]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, NEWS],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[3],
        env=os.environ | {"PYTHONHASHSEED": "12345", "PYTHONIOENCODING": "utf-8"},
    )
    assert json.loads(done.stdout) == here


def test_another_seed_or_example_is_altered_at_other_positions() -> None:
    text = "가나다 라마바 사아자 차카타 파하거 너더러 머버서 어저처" * 3
    for kind in ("missing-spaces", "extra-spaces", "jamo-typos"):
        variants = {noised(kind, text, 0.5, id_, seed) for id_ in ("1", "2", "3") for seed in (0, 1)}
        assert len(variants) == 6, kind


def test_the_texts_of_a_pair_are_altered_at_different_positions() -> None:
    text = "가 나 다 라 마 바 사 아 자 차 카 타 파 하 거 너"
    after = apply(NOISES["missing-spaces"], TextExample("1", text, text, 0.0), 0.5, 0)
    assert after.text != after.pair


@given(text=hangul, low=rates, high=rates)
def test_what_is_altered_at_a_rate_is_altered_at_every_higher_one(text: str, low: float, high: float) -> None:
    low, high = sorted((low, high))
    spaced = " ".join(text[k : k + 4] for k in range(0, len(text), 4))
    letters = spaced.replace(" ", "")

    def gaps(altered: str) -> set[int]:
        assert altered.replace(" ", "") == letters
        return {len(altered[:k].replace(" ", "")) for k, one in enumerate(altered) if one == " "}

    original = gaps(spaced)
    for kind in ("missing-spaces", "extra-spaces"):
        altered = [original ^ gaps(noised(kind, spaced, rate)) for rate in (low, high)]
        assert altered[0] <= altered[1], kind


def edits_of(kind: str, before: str, after: str) -> int:
    """Count what was altered from the texts alone."""
    if kind == "missing-spaces":
        return before.count(" ") - after.count(" ")
    if kind == "extra-spaces":
        return after.count(" ") - before.count(" ")
    return int(before != after)


def test_the_rate_is_the_share_of_eligible_positions() -> None:
    for kind, text in (
        ("missing-spaces", "가 나 다 라 마 바 사 아 자 차 카"),
        ("extra-spaces", "가나다라마바사아자차카"),
        ("jamo-typos", "값"),
        ("nfd", "값"),
        ("endings", "정부가 대책을 발표했다."),
    ):
        per_text = len(NOISES[kind].positions(text))
        assert per_text == (10 if kind.endswith("spaces") else 1), kind
        count = 4000 // per_text
        for rate in (0.03, 0.3, 0.9):
            altered = sum(edits_of(kind, text, noised(kind, text, rate, str(k))) for k in range(count))
            spread = np.sqrt(rate * (1 - rate) / (count * per_text))
            assert abs(altered / (count * per_text) - rate) < 4 * spread, (kind, rate)


# --- spaces ---------------------------------------------------------------------------------------------------------


@given(composed)
def test_without_spaces_only_the_letters_are_left(text: str) -> None:
    after = noised("missing-spaces", text)
    assert not re.search(r"\S +\S", after)
    assert "".join(after.split()) == "".join(text.split())


@given(composed)
def test_extra_spaces_part_syllables_and_change_no_letter(text: str) -> None:
    after = noised("extra-spaces", text)
    assert not re.search("[가-힣]{2}", after)
    assert "".join(after.split()) == "".join(text.split())


def test_spaces_by_hand() -> None:
    assert noised("missing-spaces", " 아버지가  방에 들어가신다.\n왜 ") == " 아버지가방에들어가신다.\n왜 "
    assert noised("extra-spaces", "KBS뉴스 3일자 ㅋㅋ") == "KBS뉴 스 3일 자 ㅋㅋ"


# --- normalization --------------------------------------------------------------------------------------------------


@given(composed)
def test_nfd_is_canonically_the_same_text(text: str) -> None:
    after = noised("nfd", text)
    assert unicodedata.is_normalized("NFD", after)
    assert unicodedata.normalize("NFC", after) == text
    assert noised("nfd", after) == after


def test_nfd_is_all_of_a_text_or_nothing() -> None:
    outcomes = {noised("nfd", "값이 올랐다", 0.5, str(k)) for k in range(40)}
    assert outcomes == {"값이 올랐다", unicodedata.normalize("NFD", "값이 올랐다")}


# --- scores ---------------------------------------------------------------------------------------------------------


class Parrot:
    """A model that calls negative what it has not read before, and keeps count of what it was asked."""

    def __init__(self, known: Sequence[TextExample]) -> None:
        self.texts = {example.text for example in known}
        self.asked: list[int] = []

    def __call__(self, examples: Sequence[Any]) -> list[Prediction]:
        self.asked.append(len(examples))
        return ["positive" if example.text in self.texts else "negative" for example in examples]


def reviews(count: int) -> list[TextExample]:
    return [review("영화가 좋다" if k % 2 else "굳", str(k)) for k in range(count)]


def test_what_noise_does_not_change_is_not_predicted_again_and_the_drop_is_paired() -> None:
    examples = reviews(40)
    parrot = Parrot(examples)
    noises = [NOISES["missing-spaces"]]
    clean, some, all_ = robustness(get_task("nsmc"), examples, parrot, noises=noises).conditions
    assert (clean.noise, clean.rate, clean.metrics, clean.num_altered) == ("clean", 0.0, {"accuracy": 1.0}, 0)
    assert (some.rate, all_.rate) == NOISES["missing-spaces"].rates
    assert all_.num_altered == 20
    assert 0 < some.num_altered < 20
    assert parrot.asked == [40, some.num_altered, 20]
    for condition in (some, all_):
        assert condition.metrics == {"accuracy": 1 - condition.num_altered / 40}
        right = condition.metric_columns("accuracy")[:, 0]
        assert right.tolist() == [float(not altered) for altered in condition.altered]


def test_a_model_is_scored_clean_and_under_every_kind_and_rate() -> None:
    examples = [review(NEWS, str(k)) for k in range(3)]
    found = robustness(get_task("nsmc"), examples, Parrot(examples), seed=4)
    expected = [("clean", 0.0), *((noise.name, rate) for noise in ALL for rate in noise.rates)]
    assert [(condition.noise, condition.rate) for condition in found.conditions] == expected
    assert (found.task, found.seed, sorted(found.ids)) == ("nsmc", 4, ["0", "1", "2"])
    assert type(found).model_validate_json(found.model_dump_json()) == found


def test_scores_are_those_of_the_tasks_metrics_on_the_sample() -> None:
    def predict(examples: Sequence[Any]) -> list[Prediction]:
        return [e.gold[0] if isinstance(e, QuestionExample) else e.label for e in examples]

    for name in ("nsmc-sample", "klue-sts-sample", "korquad-sample", "klue-mrc-sample"):
        task = get_task(name)
        split = task.read_split(task.eval_split, NOWHERE)
        found = robustness(task, split.examples, predict, max_examples=20)
        by_id = {example.id: example for example in split.examples}
        chosen = [by_id[id_] for id_ in found.ids]
        golds = [example.gold for example in chosen]
        assert len(chosen) == 20, name
        for condition in found.conditions:
            assert condition.metrics == {metric.key: metric(predict(chosen), golds) for metric in task.metrics}, name
            assert all(value == pytest.approx(1) for value in condition.metrics.values()), name


def test_tags_on_characters_get_only_noise_that_keeps_them() -> None:
    task = get_task("klue-ner")
    examples = [
        TextExample(str(k), "서울 시장이 김철수 씨를", None, "B-LC I-LC O O O B-PS I-PS I-PS O O") for k in range(9)
    ]

    def predict(chosen: Sequence[TextExample]) -> list[Prediction]:
        for example in chosen:
            task.family.check(example, "here")
        return [example.label for example in chosen]

    found = robustness(task, examples, predict)
    assert {condition.noise for condition in found.conditions} == {"clean", "missing-spaces", "extra-spaces"}
    assert all(condition.metrics["entity_f1"] == 1 for condition in found.conditions)
    assert found.conditions[-1].num_altered > 0


def test_an_undefined_metric_is_none() -> None:
    task = get_task("klue-sts-sample")
    examples = task.read_split(task.eval_split, NOWHERE).examples
    found = robustness(task, examples, Majority(name="majority").fit(task, examples).predict, max_examples=30)
    assert {condition.metrics["pearson"] for condition in found.conditions} == {None}
    assert {condition.metrics["f1"] is None for condition in found.conditions} == {False}
    columns = [found.conditions[k].metric_columns("pearson") for k in (0, 1)]
    assert paired_drop(pearson, columns[:1], columns[1:]) is None


def test_a_sample_depends_on_seed_and_ids_and_samples_are_nested() -> None:
    examples = reviews(200)
    assert sample(examples[::-1], 50, 0) == sample(examples, 50, 0)
    assert sample(examples, 200, 0)[:50] == sample(examples, 50, 0)
    assert sample(examples, 50, 1) != sample(examples, 50, 0)
    assert sorted(sample(examples, 999, 0), key=lambda e: int(e.id)) == examples
    positive = sum(e.text != "굳" for k in range(20) for e in sample(examples, 50, k))
    assert abs(positive - 500) < 4 * np.sqrt(1000 / 4)


def test_no_examples_are_no_score() -> None:
    with pytest.raises(ValueError, match="no examples"):
        robustness(get_task("nsmc"), [], lambda _: [])


def test_the_paired_drop_by_hand() -> None:
    clean = np.array([[1.0]] * 80 + [[0.0]] * 20)
    noisy = np.array([[1.0]] * 70 + [[0.0]] * 30)
    drop = paired_drop(accuracy, [clean], [noisy])
    assert drop is not None
    assert drop[0] == pytest.approx(0.1)
    # Ten of a hundred examples fall: a binomial share of 0.1, whose 95 % interval is 0.05 to 0.16.
    assert drop[1] == pytest.approx((0.05, 0.16), abs=0.011)
    alone = [bootstrap_ci95(accuracy, [column]) for column in (clean, noisy)]
    assert all(interval is not None and interval[1] - interval[0] > drop[1][1] - drop[1][0] for interval in alone)
    assert paired_drop(accuracy, [clean], [clean]) == (0.0, (0.0, 0.0))
    over_seeds = paired_drop(accuracy, [clean, clean], [noisy, clean])
    assert over_seeds is not None
    assert over_seeds[0] == pytest.approx(0.05)


# --- the official data ----------------------------------------------------------------------------------------------


@pytest.mark.real_data
def test_rates_are_met_on_film_reviews(real_data: Path) -> None:
    chosen = sample(get_task("nsmc").read_split("test", real_data).examples, 2000, 0)
    for kind, gap in (("missing-spaces", r"(?<=\S) +(?=\S)"), ("extra-spaces", "(?<=[가-힣])(?=[가-힣])")):
        eligible = sum(len(re.findall(gap, example.text)) for example in chosen)
        for rate in NOISES[kind].rates:
            left = sum(len(re.findall(gap, apply(NOISES[kind], example, rate, 0).text)) for example in chosen)
            assert abs((eligible - left) / eligible - rate) <= 4 * np.sqrt(rate * (1 - rate) / eligible)


@pytest.mark.real_data
def test_as_many_film_reviews_have_a_typo_as_the_rate_predicts(real_data: Path) -> None:
    chosen = sample(get_task("nsmc").read_split("test", real_data).examples, 2000, 0)
    num_syllables = [len(re.findall("[가-힣]", example.text)) for example in chosen]
    for rate in NOISES["jamo-typos"].rates:
        hit = [1 - (1 - rate) ** count for count in num_syllables]
        altered = sum(apply(NOISES["jamo-typos"], example, rate, 0) != example for example in chosen)
        assert abs(altered - sum(hit)) < 4 * np.sqrt(sum(p * (1 - p) for p in hit))


@pytest.mark.real_data
def test_endings_are_swapped_in_about_half_of_film_reviews(real_data: Path) -> None:
    chosen = sample(get_task("nsmc").read_split("test", real_data).examples, 300, 0)
    altered = sum(apply(NOISES["endings"], example, 1.0, 0) != example for example in chosen)
    assert 0.4 < altered / 300 < 0.75
