"""Students of fine-tuned models as models of the comparison."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from corpora.foundation.errors import RecipeError
from corpora.foundation.files import fingerprint
from downstream.distill import distill
from downstream.encoders.folder import ModelFolder
from downstream.finetune import finetune
from downstream.task import Task, TaskData, get_task
from eval.cells.estimate import Speed
from eval.cells.files import read_finished
from eval.cells.plan import plan_cells
from eval.cells.run import CellRunner
from eval.contestants.contestant import Job, load_leaderboard
from eval.contestants.distilled import Distilled

Fails = Callable[..., AbstractContextManager[None]]
Small = Callable[[Task, int], TaskData]

NSMC, STS = get_task("nsmc-sample"), get_task("klue-sts-sample")
BRIEF: dict[str, Any] = {"epochs": 1, "max_length": 32}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of ten pairs without scores."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    lines = [json.dumps({"text": f"올해 예산 {k}", "pair": f"내년 예산 {k}"}, ensure_ascii=False) for k in range(10)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def student(tiny_encoder: Path, pairs: Path, small: Small, tmp_path: Path) -> Distilled:
    """Return a student of a fine-tuned stand-in."""
    finetune(STS, tiny_encoder, out=tmp_path / "teacher", data=small(STS, 24), overrides=BRIEF)
    return Distilled(
        name="student",
        encoder=str(tiny_encoder),
        finetune=BRIEF,
        teachers={STS.name: [tmp_path / "teacher"]},
        unlabelled=[pairs],
        logits=tmp_path / "logits",
    )


def test_a_student_takes_part_in_the_tasks_of_its_teachers(student: Distilled) -> None:
    assert [cell.task.name for cell in plan_cells([student], [NSMC, STS], 3)] == [STS.name] * 3
    assert not student.is_bundled
    again = Distilled.from_recipe("student", student.source, {"finetune": BRIEF})
    assert (again.encoder, again.finetune) == (student.encoder, student.finetune)


def test_a_cell_is_what_the_command_trains(student: Distilled, small: Small, tmp_path: Path) -> None:
    data = small(STS, 24)
    recipe = student.recipe(STS, data)
    outcome = student.run(Job(student, STS, 1, data, recipe), tmp_path / "work")
    teacher = student.teachers[STS.name][0]
    plain = distill(
        teacher,
        out=tmp_path / "plain",
        student=student.encoder,
        seed=1,
        data=data,
        unlabelled=student.unlabelled,
        overrides=BRIEF,
    )
    assert outcome.result.predictions == plain.predictions
    assert (outcome.result.model, outcome.result.recipe) == ("student", recipe)
    assert recipe["teachers_sha256"] == plain.recipe["teachers_sha256"] == [ModelFolder(teacher).digest()]
    assert recipe["unlabelled_sha256"] == plain.recipe["unlabelled"]["sha256"]
    assert outcome.fitted().predict(data.eval.examples) == pytest.approx(plain.predictions, abs=1e-5)


def test_another_teacher_or_text_is_another_cell(
    student: Distilled, small: Small, tiny_encoder: Path, tmp_path: Path
) -> None:
    data = small(STS, 24)
    finetune(STS, tiny_encoder, out=tmp_path / "other", seed=1, data=data, overrides=BRIEF)
    (tmp_path / "more.jsonl").write_text('{"text": "글", "pair": "말"}\n', encoding="utf-8")
    changes: list[dict[str, Any]] = [
        {},
        {"teachers": {STS.name: [tmp_path / "other"]}},
        {"unlabelled": [tmp_path / "more.jsonl"]},
        {"finetune": BRIEF | {"temperature": 3.0}},
    ]
    recipes = {fingerprint(student.model_copy(update=change).recipe(STS, data)) for change in changes}
    assert len(recipes) == len(changes)
    # Where its logits are kept changes nothing.
    assert fingerprint(student.model_copy(update={"logits": None}).recipe(STS, data)) in recipes


def test_a_finished_cell_does_not_say_where_its_teachers_are(student: Distilled, small: Small, fails: Fails) -> None:
    data = small(STS, 24)
    again = Distilled.from_recipe("student", student.source, student.recipe(STS, data))
    with fails(RecipeError, "model student on klue-sts-sample", "teachers are not known", "`teachers` of its entry"):
        again.recipe(STS, data)


def test_a_student_has_no_settings_of_its_teachers_layers(student: Distilled, fails: Fails) -> None:
    assert student.finetune_config(STS).cosine_weight == 0
    for setting in ({"layers": 2}, {"cosine_weight": 0.5}):
        with fails(RecipeError, "distillation", next(iter(setting))):
            student.with_overrides(setting).finetune_config(STS)


def test_estimates_count_texts_without_labels_and_keep_nothing(student: Distilled, small: Small) -> None:
    data = small(STS, 24)
    assert student.num_trained(STS, data) == len(data.train.examples) + 10
    trial = student.trial()
    assert trial.num_trained(STS, data) == len(data.train.examples)
    assert (trial.logits, trial.finetune["epochs"]) == (None, 1)
    longer = student.with_overrides({"epochs": 3})
    assert (
        Speed(2.0, 0.5).cell_s(longer, STS, data) == 6 * (len(data.train.examples) + 10) + len(data.eval.examples) / 2
    )


def test_a_worker_process_trains_a_student_of_a_file_of_models(
    student: Distilled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "models.toml"
    [teacher], [pairs] = student.teachers[STS.name], student.unlabelled
    plan.write_text(
        f"""seeds = 1
tasks = ["{STS.name}"]
[models.student]
kind = "distilled"
encoder = "{student.encoder}"
finetune = {{ epochs = 1, max_length = 32, train_examples = 32 }}
unlabelled = ["{pairs}"]
logits = "{tmp_path / "logits"}"
teachers = {{ {STS.name} = ["{teacher}"] }}
""",
        encoding="utf-8",
    )
    monkeypatch.setenv("PRESSBERT_DATA", "")
    cells = plan_cells(list(load_leaderboard(plan).models.values()), [STS], 1)
    CellRunner(cells, root=Path("/nonexistent"), out=tmp_path / "out", threads=1).run()
    result = read_finished(tmp_path / "out", (STS.name, "student", 0))
    assert result is not None
    assert result.recipe["teachers_sha256"] == [ModelFolder(teacher).digest()]
    assert len(list((tmp_path / "logits").iterdir())) == 1
