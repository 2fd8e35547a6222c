"""Jobs that share a folder: their arguments, what they leave, and a run through submitit's local executor."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.foundation.errors import UsageError
from downstream.task import get_task
from eval.cells.executor import failures_of, job_arguments, parse_parameters
from eval.contestants.contestant import Cell, load_leaderboard

ROOT = Path(__file__).resolve().parents[3]
Fails = Callable[..., AbstractContextManager[None]]


def test_a_job_has_the_arguments_of_the_command_but_those_of_submitting() -> None:
    cases = {
        "--executor slurm --tasks nsmc korquad --workers 8 --out a": "--tasks nsmc korquad --out a",
        "--tasks nsmc --slurm partition=gpu gpus_per_node=1 --out a": "--tasks nsmc --out a",
        "--workers=2 --executor=local --jobs 2": "--jobs 2",
        "--out a --slurm partition=gpu": "--out a",
    }
    for given, kept in cases.items():
        assert job_arguments(given.split()) == [*kept.split(), "--shard", "1/1"], given


def test_parameters_are_pairs_and_whole_numbers_are_numbers(fails: Fails) -> None:
    assert parse_parameters(["partition=gpu", "gpus_per_node=1"]) == {"partition": "gpu", "gpus_per_node": 1}
    for wrong in ("gpu", "=1", "a b=1", "partition="):
        with fails(UsageError, "--slurm", wrong):
            parse_parameters([wrong])


def test_a_cell_that_no_job_has_finished_is_a_row_with_a_reason(tmp_path: Path) -> None:
    cells = [Cell(load_leaderboard().models["tfidf"], get_task("nsmc-sample"), 0)]
    (found,) = failures_of(tmp_path, cells)
    assert found.key == ("nsmc-sample", "tfidf", 0)
    assert "no job has finished it" in found.reason


@pytest.mark.slow
def test_jobs_of_submitits_local_executor_fill_the_folder_and_the_command_writes_the_table(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="pip install 'pressbert[slurm]' to run this test")
    out = tmp_path / "out"
    asked = ["--models", "majority", "tfidf", "--tasks", "nsmc-sample", "--without", "noise", "cost", "--out", str(out)]
    # In a process of its own: submitit closes the streams of the one that waits for its jobs.
    command = [sys.executable, "eval/run_all.py", *asked, "--executor", "local", "--workers", "2"]
    done = subprocess.run([*command, "--slurm", "timeout_min=5"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert sorted(path.parent.name for path in out.glob("results/*/*/seed-0.json")) == ["majority", "tfidf"]
    assert (out / "leaderboard.html").is_file()
    assert "2 jobs are submitted" in done.stderr
