"""TF-IDF: characters alone teach it toy tasks, and it always predicts the same."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downstream.task import Answer, ChoiceExample, Prediction, QuestionExample, Task, TextExample, get_task
from eval.contestants.majority import Majority
from eval.contestants.tfidf import Tfidf

NOWHERE = Path("/nonexistent")
QUESTION_TASKS = ("korquad-sample", "klue-mrc-sample")


def text(label: str | float, one: str = "", two: str | None = None) -> TextExample:
    return TextExample("", one, two, label)


def question(asked: str, context: str, *answers: str) -> QuestionExample:
    return QuestionExample("", asked, context, tuple(Answer(answer, context.index(answer)) for answer in answers))


def tfidf(task: Task, train: Sequence[Any], evaluation: Sequence[Any]) -> Sequence[Prediction]:
    return Tfidf(name="tfidf").fit(task, train).predict(evaluation)


def first_metric(task: Task, predictions: Sequence[Prediction], examples: Sequence[Any]) -> float:
    return task.metrics[0](predictions, [example.gold for example in examples])


def test_relations_are_learnt_from_the_eojeol_and_heads_are_the_next_ones() -> None:
    train = [text("2:NP_SBJ 0:VP", f"{name}이 {verb}") for name in ("별", "달") for verb in ("간다.", "온다.")]
    train += [text("2:NP_OBJ 0:VP", f"{noun}을 {verb}") for noun in ("물", "길") for verb in ("간다.", "온다.")]
    task, evaluation = get_task("klue-dp"), [text("", "강이 산을 온다."), text("", "간다.")]
    assert tfidf(task, train, evaluation) == ["2:NP_SBJ 3:NP_OBJ 0:VP", "0:VP"]
    majority = Majority(name="majority").fit(task, train).predict(evaluation)
    assert majority == ["2:VP 3:VP 0:VP", "0:VP"]


def test_tags_are_learnt_from_the_characters_around() -> None:
    train = [
        text("B-PS I-PS O O O O", f"{name} 씨가 {verb}")
        for name in ("하늘", "보람", "가람")
        for verb in ("간다", "온다")
    ]
    train += [text("O O O O O", f"{noun}에 {verb}") for noun in ("학교", "시장") for verb in ("간다", "온다")]
    evaluation = [text("", "가온 씨가 간다"), text("", "공원에 온다")]
    assert tfidf(get_task("klue-ner"), train, evaluation) == ["B-PS I-PS O O O O", "O O O O O"]


@pytest.mark.slow
def test_answering_where_the_ranking_is_sure_is_no_worse_than_never_answering() -> None:
    """The threshold is fitted on articles that the ranking was not trained on, whose scores are lower."""
    task = get_task("klue-mrc-sample")
    train, dev = (task.read_split(split, NOWHERE).examples for split in ("train", "dev"))
    never = first_metric(task, [""] * len(dev), dev)
    assert first_metric(task, tfidf(task, train, dev), dev) >= never > 0.2


# --- tfidf learns ---------------------------------------------------------------------------------------------------

GOOD, BAD, THINGS = (
    ("좋다", "훌륭하다", "재밌다"),
    ("나쁘다", "지루하다", "별로다"),
    ("영화", "연기", "음악", "각본", "결말"),
)


def test_tfidf_learns_labels_from_characters() -> None:
    examples = [text("positive", f"{thing} 정말 {word}") for thing in THINGS for word in GOOD]
    examples += [text("negative", f"{thing} 정말 {word}") for thing in THINGS for word in BAD]
    train, unseen = examples[::2], examples[1::2]
    task = get_task("nsmc")
    assert first_metric(task, tfidf(task, train, unseen), unseen) == 1.0


def test_tfidf_learns_scores_from_the_similarity_of_two_texts() -> None:
    words = ["정부", "국회", "법원", "학교", "병원", "시장", "은행", "공항", "도서관", "박물관"]
    generator = np.random.default_rng(0)

    def pair() -> TextExample:
        one, others = generator.permutation(words)[:5], generator.permutation(words)
        shared = int(generator.integers(0, 6))
        two = [*one[:shared], *[word for word in others if word not in one][: 5 - shared]]
        return text(float(shared), " ".join(one), " ".join(two))

    train, unseen = [pair() for _ in range(80)], [pair() for _ in range(40)]
    task = get_task("klue-sts")
    assert first_metric(task, tfidf(task, train, unseen), unseen) > 0.95


def test_tfidf_learns_relations_of_pairs() -> None:
    subjects = ("기자", "시장", "의사", "교사", "판사", "배우", "가수", "농부")
    places = ("서울", "부산", "대구", "광주", "인천", "울산")
    examples = []
    for subject in subjects:
        for place in places:
            premise = f"{subject}는 어제 {place}에 갔다."
            examples.append(text("entailment", premise, f"{subject}는 {place}에 갔다."))
            examples.append(text("contradiction", premise, f"{subject}는 {place}에 가지 않았다."))
            examples.append(text("neutral", premise, f"{subject}는 회의 때문에 바빴을 것이다."))
    train, unseen = examples[: len(examples) // 2], examples[len(examples) // 2 :]
    task = get_task("klue-nli")
    assert first_metric(task, tfidf(task, train, unseen), unseen) > 0.95


CAPITALS = {
    "한국": "서울",
    "일본": "도쿄",
    "중국": "베이징",
    "몽골": "울란바토르",
    "태국": "방콕",
    "인도": "뉴델리",
    "터키": "앙카라",
    "이란": "테헤란",
    "가나": "아크라",
    "케냐": "나이로비",
    "페루": "리마",
    "칠레": "산티아고",
    "쿠바": "아바나",
    "영국": "런던",
    "독일": "베를린",
    "체코": "프라하",
    "그리스": "아테네",
    "스페인": "마드리드",
    "덴마크": "코펜하겐",
    "핀란드": "헬싱키",
}
COUNTRIES, CITIES = list(CAPITALS), list(CAPITALS.values())


def capitals(shift: int = 0, *, answerable: bool = True) -> list[QuestionExample]:
    """Return a question on every country, whose capital lies SHIFT places on, or one that its context leaves open."""
    examples = []
    for k, country in enumerate(COUNTRIES):
        city, other = CITIES[(k + shift) % len(CITIES)], COUNTRIES[(k + 7) % len(COUNTRIES)]
        context = f"날씨가 맑은 날이 많다. {country}의 수도는 {city}이다. 이웃 나라와 교역이 활발하다."
        asked = f"{country}의 수도는 어디인가?" if answerable else f"{other} 국왕이 즉위하던 해에 쓴 책은?"
        examples.append(question(asked, context, *([city] if answerable else [])))
    return examples


def test_tfidf_learns_to_cut_an_answer_from_its_context() -> None:
    train, unseen = capitals()[:14], capitals()[14:]
    task = get_task("korquad")
    assert tfidf(task, train, unseen) == CITIES[14:]


def test_tfidf_learns_which_questions_have_no_answer() -> None:
    unseen = capitals(shift=5) + capitals(shift=5, answerable=False)
    task = get_task("klue-mrc")
    predictions = tfidf(task, capitals() + capitals(answerable=False), unseen)
    assert first_metric(task, predictions, unseen) > 0.9


def test_tfidf_never_leaves_a_question_of_korquad_unanswered() -> None:
    assert "" not in tfidf(get_task("korquad"), capitals()[:14], capitals(answerable=False)[14:])


def test_tfidf_reads_no_label_of_the_evaluation_split() -> None:
    train = [text("positive", "참 좋다"), text("negative", "참 나쁘다"), text("positive", "좋다")]
    task = get_task("nsmc")
    same = [tfidf(task, train, [text(label, "좋은 영화")]) for label in ("positive", "negative")]
    assert same[0] == same[1]
    asked = "한국의 수도는 어디인가?"
    context = "한국의 수도는 서울이다. 부산은 항구다."
    said = [tfidf(get_task("korquad"), capitals(), [question(asked, context, gold)]) for gold in ("서울", "부산")]
    assert said[0] == said[1] == ["서울"]


# --- odd input ------------------------------------------------------------------------------------------------------


def test_empty_texts_are_survived() -> None:
    cases: list[tuple[str, list[Any], list[Any]]] = [
        ("nsmc", [text("positive", "좋다"), text("negative", ""), text("negative", "나쁘다")], [text("positive", "")]),
        ("klue-sts", [text(1.0, "", "가나다"), text(5.0, "가나다", "가나다"), text(0.0, "", "")], [text(0.0, "", "")]),
        (
            "klue-nli",
            [text("neutral", "", "가나다"), text("entailment", "가나다", ""), text("contradiction", "", "")],
            [text("neutral", "", ""), text("neutral", "가", "")],
        ),
        ("korquad", [question("누구?", "가", "가")], [question("?", "가", "가"), question("", "-", "-")]),
        ("klue-mrc", [question("누구?", "가"), question("언제?", "나")], [question("?", "다")]),
    ]
    for model in (Majority(name="majority"), Tfidf(name="tfidf")):
        for task, train, evaluation in cases:
            predictions = model.fit(get_task(task), train).predict(evaluation)
            assert len(predictions) == len(evaluation), (model.name, task)
            assert all(isinstance(p, str) or np.isfinite(p) for p in predictions), (model.name, task)


@settings(max_examples=10)
@given(st.lists(st.text(max_size=60).filter(str.strip), min_size=1, max_size=5))
def test_whatever_the_context_an_answer_is_cut_from_it(contexts: list[str]) -> None:
    unseen = [question("수도는 어디인가?", context) for context in contexts]
    answers = tfidf(get_task("korquad"), capitals()[:3], unseen)
    assert all(str(answer) in context for answer, context in zip(answers, contexts, strict=True))


# --- the samples ----------------------------------------------------------------------------------------------------

PREDICT = """
import json, sys
from pathlib import Path
from downstream.task import get_task
from eval.contestants.tfidf import Tfidf

def predict(name):
    task = get_task(name)
    splits = [task.read_split(split, Path("/nonexistent")) for split in (task.train_split, task.eval_split)]
    return Tfidf(name="tfidf").fit(task, splits[0].examples[:90]).predict(splits[1].examples)

json.dump({name: predict(name) for name in sys.argv[1:]}, sys.stdout)
"""


@pytest.mark.slow
def test_tfidf_answers_a_sample_by_slices_of_its_contexts_and_the_same_in_every_process() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PREDICT, *QUESTION_TASKS],
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # One thread each: they share the machine.
            env=os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        for seed in ("1", "2")
    ]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    one, two = (json.loads(output) for output in outputs)
    for name in QUESTION_TASKS:
        assert one[name] == two[name], name
        task = get_task(name)
        evaluation = task.read_split(task.eval_split, NOWHERE).examples
        assert all(answer in example.context for answer, example in zip(one[name], evaluation, strict=True)), name
        if name == "korquad-sample":
            assert first_metric(task, one[name], evaluation) > 1 / 3


@pytest.mark.slow
@pytest.mark.real_data
def test_tfidf_learns_sentiment_from_a_seventh_of_nsmc(real_data: Path) -> None:
    task = get_task("nsmc")
    train, test = (task.read(task.path(split, real_data)) for split in ("train", "test"))
    train, test = train[:20_000], test[:5_000]
    assert first_metric(task, tfidf(task, train, test), test) > 0.83
    predictions = Majority(name="majority").fit(task, train).predict(test)
    assert first_metric(task, predictions, test) == sum(e.label == predictions[0] for e in test) / len(test)


def test_tfidf_chooses_what_shares_characters_with_the_text_where_training_says_so() -> None:
    task = get_task("news-swag-sample")
    words = ["".join(chr(0xAC00 + (7 * k + 3 * j) % 11172) for j in range(6)) for k in range(400)]

    def example(k: int) -> ChoiceExample:
        own, right = words[4 * k : 4 * k + 4], k % 4
        choices = tuple(f"{own[0]} {own[1]}" if place == right else words[(9 * k + place) % 400] for place in range(4))
        return ChoiceExample(str(k), " ".join(own), None, str(right), choices)

    examples = [example(k) for k in range(100)]
    baseline = Tfidf(name="tfidf").fit(task, examples[:60])
    predictions = baseline.predict(examples[60:])
    assert task.metrics[0](predictions, [e.gold for e in examples[60:]]) > 0.9
    assert (baseline.num_parameters or 0) > 100
