"""Cells on disk: finished, damaged and failed ones."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.foundation.errors import ResultError, cannot_write
from downstream.finetuning.result import Result, read_result, score, write_result
from downstream.task import Prediction, Split, Task, TextExample, get_task
from eval.cells.files import FailedCell, cell_path, clear_failure, find_cells, find_failures, retried, write_failure

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

NSMC, STS = get_task("nsmc"), get_task("klue-sts")
SENTIMENTS = Split(tuple(TextExample(str(k), f"평 {k}", None, "positive") for k in range(10)), "e" * 64)
SCORES = Split(tuple(TextExample(str(k), "가", "나", float(k)) for k in range(6)), "f" * 64)


def cell(
    predictions: Sequence[Prediction],
    *,
    task: Task = NSMC,
    split: Split = SENTIMENTS,
    seed: int = 0,
    recipe: str = "a",
    train_s: float = 1.0,
) -> Result:
    return score(
        task,
        split,
        predictions,
        model="pressbert-scratch",
        seed=seed,
        data_sha256="d" * 64,
        recipe={"name": recipe},
        recipe_sha256=recipe * 64,
        train_s=train_s,
        eval_s=0.5,
        device="cpu",
        num_parameters=7,
    )


def bare(cells: Sequence[Result]) -> list[Result]:
    """Return cells without the time that is noted while reading those that know none."""
    return [
        c.model_copy(update={"environment": {k: v for k, v in c.environment.items() if k != "finished"}}) for c in cells
    ]


def right(number: int) -> list[Prediction]:
    return ["positive"] * number + ["negative"] * (10 - number)


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_cell_reads_back_as_it_was_written(tmp_path: Path) -> None:
    originals = [cell(right(8)), cell([1.25] * 6, task=STS, split=SCORES, seed=1)]
    for original in originals:
        path = cell_path(tmp_path, original.task, original.model, original.seed)
        write_result(path, original)
        assert read_result(path) == original
        assert json.loads(path.read_text(encoding="utf-8"))["schema"] == 1
    # The newest last, whatever its name.
    assert bare(find_cells(tmp_path)[0]) == originals


def test_a_cell_keeps_what_its_score_interval_and_paired_tests_follow_from() -> None:
    result = cell(right(8))
    assert result.predictions == right(8)
    columns = result.metric_columns("accuracy")
    assert columns.shape == (10, 1)
    assert NSMC.metrics[0].fold(columns) == result.metrics["accuracy"] == 0.8


def test_a_damaged_cell_is_one_line_and_is_listed(write: Write, fails: Fails, tmp_path: Path) -> None:
    sound = cell(right(8)).model_copy(update={"model": "tfidf"})
    write_result(cell_path(tmp_path, "nsmc", "tfidf", 0), sound)
    whole = json.dumps(sound.model_dump(by_alias=True), ensure_ascii=False)
    damages: dict[str, str | bytes] = {
        "empty": "",
        "truncated": whole[:200],
        "no object": "[]",
        "another schema": whole.replace('"schema": 1', '"schema": 2'),
        "misspelt key": whole.replace('"seed"', '"sead"'),
        "not UTF-8": whole.encode("utf-8").replace(b"positive", b"\xff\xfe"),
        "zeros": b"\x00" * 512,
        "of another model": whole,
        "an edited score": whole.replace('"accuracy": 0.8', '"accuracy": 0.9').replace("tfidf", "pressbert-scratch"),
        "a date that is none": whole.replace('"environment": {', '"environment": {"finished": "soon", '),
    }
    for name, content in damages.items():
        damaged = write("results/nsmc/pressbert-scratch/seed-0.json", content)
        if name != "of another model":
            with fails(ResultError, damaged, "not a result of schema 1"):
                read_result(damaged)
        cells, errors = find_cells(tmp_path)
        assert bare(cells) == [sound], name
        assert [error.where for error in errors] == [str(damaged)], name


def test_only_whole_cells_are_found(write: Write, tmp_path: Path) -> None:
    assert find_cells(tmp_path) == ([], [])
    write("results/probe", "")
    write("results/nsmc/tfidf/.seed-0.json.abc.part", '{"half": ')
    assert find_cells(tmp_path) == ([], [])


def test_a_cell_of_a_model_with_a_slash_lies_in_one_folder(tmp_path: Path) -> None:
    assert cell_path(tmp_path, "nsmc", "klue/bert-base", 2) == tmp_path / "results/nsmc/klue--bert-base/seed-2.json"


def test_cells_are_in_the_order_they_were_finished_in(tmp_path: Path) -> None:
    moments = [
        "2026-01-02T00:00:00.000002+00:00",
        "2026-01-01T00:00:00.000000+00:00",
        "2026-01-02T00:00:00.000001+00:00",
    ]
    for seed, moment in enumerate(moments):
        noted = cell(right(8), seed=seed).model_copy(update={"environment": {"finished": moment}})
        write_result(cell_path(tmp_path, "nsmc", noted.model, seed), noted)
    cells, _ = find_cells(tmp_path)
    assert [c.seed for c in cells] == [1, 2, 0]
    assert [c.environment["finished"] for c in cells] == sorted(moments)


# --- failed cells ----------------------------------------------------------------------------------------------------

FAILED = FailedCell(task="nsmc", model="mine", seed=1, status="failed", reason="OSError: no luck", at="2026-01-15")


def test_a_failure_counts_until_its_cell_is_finished_later(tmp_path: Path) -> None:
    write_failure(tmp_path, FAILED)
    assert find_failures(tmp_path) == [FAILED]
    for finished, found in (("2026-01-14", [FAILED]), ("2026-01-16", [])):
        noted = cell(right(8), seed=1).model_copy(update={"model": "mine", "environment": {"finished": finished}})
        write_result(cell_path(tmp_path, "nsmc", "mine", 1), noted)
        assert find_failures(tmp_path) == found
    clear_failure(tmp_path, ("nsmc", "mine", 1))
    assert not (tmp_path / "missing").exists()
    clear_failure(tmp_path, ("nsmc", "mine", 1))


def test_a_folder_that_another_process_removes_is_made_again(tmp_path: Path) -> None:
    attempts = []

    def write() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise cannot_write(tmp_path, FileNotFoundError("gone")) from FileNotFoundError("gone")
        return "written"

    assert retried(write) == "written"
    (tmp_path / "file").write_text("here first", encoding="utf-8")
    with pytest.raises(ResultError):
        write_failure(tmp_path / "file", FAILED)


def test_a_damaged_failure_is_one_line(tmp_path: Path, write: Write, fails: Fails) -> None:
    path = write("missing/nsmc/mine/seed-0.json", "{")
    with fails(ResultError, path, "not the record of a failed cell"):
        find_failures(tmp_path)
