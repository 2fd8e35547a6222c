"""Majority: what it answers, by hand."""

from typing import Any

import pytest

from downstream.task import Answer, QuestionExample, TextExample, get_task
from eval.cells.plan import plan_cells
from eval.contestants.majority import Majority
from eval.contestants.tfidf import Tfidf


def text(label: str | float, one: str = "") -> TextExample:
    return TextExample("", one, None, label)


def question(context: str, *answers: str) -> QuestionExample:
    return QuestionExample("", "?", context, tuple(Answer(answer, context.index(answer)) for answer in answers))


def test_majority_predicts_the_most_frequent_label_tag_or_answer_and_the_mean_score() -> None:
    answered = [question("서울 부산", "서울"), question("부산 서울", "부산", "서울"), question("부산", "부산")]
    tagged = [text("B-PS I-PS O O", "하늘 이다"), text("O", "네")]
    cases: list[tuple[str, list[Any], list[Any], list[Any]]] = [
        ("nsmc", [text("negative"), text("positive"), text("negative")], [text("positive")] * 4, ["negative"] * 4),
        ("klue-sts", [text(1.0), text(2.0), text(4.5)], [text(0.0)] * 2, [2.5, 2.5]),
        ("korquad", answered, [question("대구", "대구")], ["부산"]),
        ("klue-ner", tagged, [text("", "가 나다"), text("", "라")], ["O O O", "O"]),
        ("klue-mrc", [question("서울", "서울"), question("부산"), question("대구")], [question("인천")], [""]),
    ]
    for task, train, evaluation, expected in cases:
        fitted = Majority(name="majority").fit(get_task(task), train)
        assert fitted.num_parameters == 1, task
        assert fitted.predict(evaluation) == (pytest.approx(expected) if task == "klue-sts" else expected), task


def test_the_most_frequent_state_of_a_turn_is_predicted_for_every_user_turn() -> None:
    task = get_task("klue-wos")
    dialogues = [("user: 가\nsys: 나\nuser: 다", '[["a-b-c"], []]'), ("user: 가", "[[]]")]
    train = [TextExample(str(k), text, None, label) for k, (text, label) in enumerate(dialogues)]
    assert Majority(name="majority").fit(task, train).predict(train) == ["[[], []]", "[[]]"]
    assert [cell.model.name for cell in plan_cells([Majority(name="m"), Tfidf(name="t")], [task], 1)] == ["m"]
