"""Which examples models differ on, how far, and what is shown of them."""

from pathlib import Path

import pytest

from downstream.finetuning.result import Result, score
from downstream.task import Answer, Prediction, QuestionExample, Split, Task, TextExample, get_task
from eval.board.disagreement import disagreement, find_disagreements, quality
from eval.board.rows import Table

NSMC, NER, QA, STS = (get_task(name) for name in ("nsmc", "klue-ner", "korquad", "klue-sts"))


def cell(task: Task, split: Split, predictions: list[Prediction], model: str, seed: int = 0) -> Result:
    return score(
        task,
        split,
        predictions,
        model=model,
        seed=seed,
        data_sha256=f"{'a' * 64}+{split.sha256}",
        recipe={},
        recipe_sha256="r",
        train_s=0,
        eval_s=0,
        device="cpu",
    )


def question(context: str, *answers: str) -> QuestionExample:
    return QuestionExample("q", "누구?", context, tuple(Answer(a, context.index(a)) for a in answers))


def test_an_answer_is_as_good_as_it_is_near_the_gold(subtests: pytest.Subtests) -> None:
    for task, prediction, example, expected in [
        (NSMC, "positive", TextExample("", "가", None, "positive"), 1.0),
        (NSMC, "negative", TextExample("", "가", None, "positive"), 0.0),
        (STS, 3.0, TextExample("", "가", "나", 4.0), 1 - 2 / 5),
        (STS, 0.0, TextExample("", "가", "나", 5.0), 0.0),
        (NER, "B-PS O O", TextExample("", "가 나다", None, "B-PS I-PS O"), 2 / 3),
        (QA, "서울", question("수도는 서울이다", "서울"), 1.0),
        (QA, "서울이다", question("수도는 서울이다", "서울"), 2 * 2 / 6),
        (QA, "", question("수도는 서울이다"), 1.0),
        (QA, "서울", question("수도는 서울이다"), 0.0),
    ]:
        with subtests.test(task=task, prediction=prediction, example=example, expected=expected):
            assert quality(task, prediction, example) == pytest.approx(expected)


def test_only_examples_on_which_models_differ_are_disputed_and_seeds_are_averaged() -> None:
    split = Split(tuple(TextExample(f"e{k}", f"평 {k}", None, "positive") for k in range(4)), "b" * 64)
    good, bad = "positive", "negative"
    cells = {
        "a": [cell(NSMC, split, [good, good, bad, good], "a", 0), cell(NSMC, split, [good, bad, bad, good], "a", 1)],
        "b": [cell(NSMC, split, [bad, good, bad, good], "b")],
    }
    found = disagreement(NSMC, split.examples, cells)
    assert (found.num_examples, found.num_disputed) == (4, 2)
    assert [example.id for example in found.examples] == ["e0", "e1"]  # the wider split first
    answers = {answer.model: answer for answer in found.examples[1].answers}
    assert (answers["a"].quality, answers["a"].verdict) == (0.5, "partly")
    assert (answers["b"].text, answers["b"].verdict) == ("positive", "right")
    assert found.examples[0].texts == {"text": "평 0"}
    assert found.examples[0].gold == "positive"
    assert len(disagreement(NSMC, split.examples, cells, shown=1).examples) == 1


def test_equal_splits_are_drawn_by_their_names_whatever_the_order_of_the_file() -> None:
    examples = [TextExample(f"e{k}", f"평 {k}", None, "positive") for k in range(30)]

    def shown(some: list[TextExample]) -> list[str]:
        split = Split(tuple(some), "b" * 64)
        cells = {m: [cell(NSMC, split, [label] * 30, m)] for m, label in (("a", "positive"), ("b", "negative"))}
        return [example.id for example in disagreement(NSMC, split.examples, cells, shown=5).examples]

    assert shown(examples) == shown(examples[::-1])
    assert shown(examples) != [f"e{k}" for k in range(5)]


def test_a_context_is_cut_around_its_answer_and_tags_are_shown_as_pieces() -> None:
    example = question("가" * 500 + "서울" + "나" * 500, "서울")
    split = Split((example,), "b" * 64)
    (shown,) = disagreement(
        QA, split.examples, {"a": [cell(QA, split, ["서울"], "a")], "b": [cell(QA, split, [""], "b")]}
    ).examples
    assert "서울" in shown.texts["context"]
    assert shown.texts["context"].startswith("…가")
    assert shown.texts["context"].endswith("나…")
    assert len(shown.texts["context"]) < 400
    assert [answer.text for answer in shown.answers] == ["서울", ""]

    tagged = Split((TextExample("t", "이순신 장군", None, "B-PS I-PS I-PS O O"),), "b" * 64)
    other = "B-LC O O O O"
    (shown,) = disagreement(
        NER,
        tagged.examples,
        {"a": [cell(NER, tagged, [str(tagged.golds[0])], "a")], "b": [cell(NER, tagged, [other], "b")]},
    ).examples
    assert shown.gold == "이순신:PS"
    assert [answer.text for answer in shown.answers] == ["이순신:PS", "이:LC"]


def test_examples_come_from_the_data_that_was_scored_and_from_no_other(caplog: pytest.LogCaptureFixture) -> None:
    task = get_task("nsmc-sample")
    split = task.read_split(task.eval_split, Path("/nonexistent"))
    labels = (["positive"] * len(split.examples), ["negative"] * len(split.examples))
    cells = [cell(task, split, list(some), model) for model, some in zip("ab", labels, strict=True)]
    (found,) = find_disagreements(Table([], [], cells), Path("/nonexistent"))
    assert found.num_disputed == len(split.examples)
    changed = [c.model_copy(update={"data_sha256": "x+y"}) for c in cells]
    assert find_disagreements(Table([], [], changed), Path("/nonexistent")) == []
    assert find_disagreements(Table([], [], cells[:1]), Path("/nonexistent")) == []
    gone = [c.model_copy(update={"task": "klue-tc"}) for c in cells]
    assert find_disagreements(Table([], [], gone), Path("/nonexistent")) == []
    assert "klue-tc" in caplog.text


def test_texts_that_abuse_people_are_counted_and_not_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    task = get_task("hate-trainsplit")
    split = Split(tuple(TextExample(f"e{k}", f"욕 {k}", None, "hate") for k in range(3)), "b" * 64)
    monkeypatch.setattr(type(task), "read_split", lambda *_: split)
    cells = [cell(task, split, [label] * 3, model) for model, label in (("a", "hate"), ("b", "none"))]
    (found,) = find_disagreements(Table([], [], cells), tmp_path)
    assert (found.num_disputed, found.examples) == (3, [])
