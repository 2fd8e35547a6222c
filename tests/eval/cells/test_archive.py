"""Finished cells of other folders: merged, and packed as one file."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from corpora.foundation.errors import ResultError
from downstream.finetuning.result import Result, score, write_result
from downstream.task import Split, TextExample, get_task
from eval.cells.archive import ARCHIVE, merge_results, pack, restore
from eval.cells.files import FailedCell, cell_path, find_failures, write_failure

Fails = Callable[..., AbstractContextManager[None]]

NSMC = get_task("nsmc")
SENTIMENTS = Split(tuple(TextExample(str(k), f"평 {k}", None, "positive") for k in range(10)), "e" * 64)
FAILED = FailedCell(task="nsmc", model="mine", seed=1, status="failed", reason="OSError: no luck", at="2026-01-15")


def test_a_damaged_archive_is_one_line(tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "work" / "results" / "nsmc" / "mine").mkdir(parents=True)
    (tmp_path / "work" / "results" / "nsmc" / "mine" / "seed-0.json").write_bytes(np.random.default_rng(0).bytes(5000))
    pack(tmp_path / "work", tmp_path / ARCHIVE)
    whole = (tmp_path / ARCHIVE).read_bytes()
    for share in (0, 0.1, 0.5):
        (tmp_path / ARCHIVE).write_bytes(whole[: int(share * len(whole))])
        with fails(ResultError, tmp_path / ARCHIVE, "not a readable archive"):
            restore(tmp_path / ARCHIVE, tmp_path / "other")
        assert not (tmp_path / "other").exists(), share


def of(model: str, number: int, *, seed: int = 0, at: str = "2026") -> Result:
    """Return a cell with NUMBER right answers of ten."""
    result = score(
        NSMC,
        SENTIMENTS,
        ["positive"] * number + ["negative"] * (10 - number),
        model=model,
        seed=seed,
        data_sha256="d" * 64,
        recipe={"name": "a"},
        recipe_sha256="a" * 64,
        train_s=1.0,
        eval_s=0.5,
        device="cpu",
    )
    return result.model_copy(update={"environment": {"finished": (at + "-01-01"[len(at) - 4 :])[:10]}})


def put(folder: Path, result: Result) -> Path:
    path = cell_path(folder, result.task, result.model, result.seed)
    write_result(path, result)
    return path


def test_folders_are_merged_byte_for_byte_and_the_newest_of_a_cell_stays(tmp_path: Path) -> None:
    one, two, out = (tmp_path / name for name in ("one", "two", "out"))
    wanted = [put(one, of("a", 5, at="2026-01")), put(two, of("b", 6)), put(two, of("c", 7, at="2026-03"))]
    put(one, of("c", 1, at="2026-02"))
    put(out, of("a", 9, at="2025-12"))
    for folders in ([one, two], [two, one], [one, two, out]):
        assert merge_results(folders, out) == []
        merged = [out / path.relative_to(path.parents[3]) for path in wanted]
        assert [path.read_bytes() for path in merged] == [path.read_bytes() for path in wanted]
    assert len(list(out.rglob("*.json"))) == 3


def test_failures_are_merged_and_give_way_to_cells(tmp_path: Path) -> None:
    one, two, out = (tmp_path / name for name in ("one", "two", "out"))
    write_failure(one, FAILED)
    write_failure(two, FAILED.model_copy(update={"model": "other"}))
    put(two, of("mine", 5, seed=1, at="2026-02"))
    assert merge_results([one, two], out) == []
    assert [failed.model for failed in find_failures(out)] == ["other"]


def test_a_damaged_cell_is_reported_and_not_merged(tmp_path: Path) -> None:
    put(tmp_path / "one", of("a", 5))
    damaged = put(tmp_path / "one", of("b", 5))
    damaged.write_text("{", encoding="utf-8")
    (error,) = merge_results([tmp_path / "one"], tmp_path / "out")
    assert error.where == str(damaged)
    assert len(list((tmp_path / "out").rglob("*.json"))) == 1


def test_a_folder_without_results_is_one_line(tmp_path: Path, fails: Fails) -> None:
    with fails(ResultError, tmp_path, "no results in it"):
        merge_results([tmp_path], tmp_path / "out")
