"""The command: what it runs and skips, what a failed cell leaves, and how it continues after a crash."""

import csv
import datetime
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from corpora.foundation.errors import DataError, RecipeError, ResultError, SuiteError, UsageError
from corpora.foundation.files import fingerprint
from downstream import task as task_module
from downstream.finetuning.result import Result, read_result
from downstream.finetuning.search import Grid
from downstream.task import SAMPLE_SUFFIX, all_tasks, get_task
from eval import run_all
from eval.board.rows import read_reported
from eval.cells import run as running
from eval.cells.run import CellRunner
from eval.contamination import __main__ as contamination
from eval.contestants import tfidf
from eval.contestants.contestant import Job, Outcome, load_leaderboard
from eval.reference import REFERENCE_TOML

Fails = Callable[..., AbstractContextManager[None]]
Failing = Callable[[Callable[[Job], bool], Exception], Callable[[Job, Path], Outcome]]

ROOT = Path(__file__).resolve().parents[2]
COMPARED = ("nsmc", "klue-nli", "klue-sts", "korquad", "klue-mrc")
NSMC = ("--tasks", "nsmc-sample")


def run(out: Path, *arguments: str) -> int:
    """Run the leaderboard in this process, without measurements beside scores; see `test_measurements`."""
    return run_all.main([*arguments, "--out", str(out), "--without", "noise", "cost"])


def command(*arguments: object, cwd: Path = ROOT, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the leaderboard as users do: by path, in a process of its own."""
    return subprocess.run(
        [sys.executable, ROOT / "eval" / "run_all.py", *map(str, arguments), "--without", "noise", "cost"],
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        **more,
    )


def leaderboard(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        (out / "leaderboard.json").read_text(encoding="utf-8"), parse_constant=pytest.fail
    )
    return content


def measured(out: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = [row for row in leaderboard(out)["rows"] if row["source"] == "measured"]
    assert len({(row["model"], row["task"], row["metric"]) for row in rows}) == len(rows)
    return {(row["model"], row["task"], row["metric"]): row for row in rows}


def cells(out: Path) -> dict[str, bytes]:
    paths = sorted((out / "results").rglob("seed-*.json"))
    return {str(path.relative_to(out / "results")): path.read_bytes() for path in paths}


# --- which cells ----------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[CellRunner]:
    """Return the list of runners that `main` sets up from now on, in an empty folder; none of them runs."""
    runners: list[CellRunner] = []
    monkeypatch.setattr(CellRunner, "run", lambda runner: runners.append(runner))
    monkeypatch.chdir(tmp_path)
    return runners


def models_in(runner: CellRunner) -> list[str]:
    return list(dict.fromkeys(cell.model.name for cell in runner.cells))


def tasks_in(runner: CellRunner) -> list[str]:
    return list(dict.fromkeys(cell.task.name for cell in runner.cells))


def test_without_arguments_the_bundled_models_run_on_the_sample(
    asked: list[CellRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = load_leaderboard().seeds
    for root in (str(tmp_path), ""):
        monkeypatch.setenv("PRESSBERT_DATA", root)
        assert run_all.main([]) == 0
        found = asked.pop()
        assert tasks_in(found) == [f"{name}{SAMPLE_SUFFIX}" for name in COMPARED], root
        assert models_in(found) == ["majority", "tfidf", "pressbert-scratch", "pressbert-mini"], root
        assert len(found.cells) == 5 * (1 + 1 + 2 * seeds), root
        assert {cell.seed for cell in found.cells} == set(range(seeds)), root
    assert asked == []
    assert (tmp_path / "reports" / "leaderboard.html").is_file()


def test_with_a_data_root_the_published_comparison_runs(asked: list[CellRunner], tmp_path: Path) -> None:
    run_all.main(["--data", str(tmp_path)])
    assert tasks_in(asked[0]) == list(COMPARED)
    # An embedder comes with the first task of its own, behind models that have cells on all of them.
    assert set(models_in(asked[0])) == {n for n, entry in load_leaderboard().models.items() if entry.kind != "summary"}
    assert asked[0].root == tmp_path


def test_another_plan_runs_unchanged(asked: list[CellRunner], tmp_path: Path) -> None:
    plan = tmp_path / "mine.toml"
    plan.write_text('seeds = 2\ntasks = ["nsmc-sample"]\n[models.mine]\nkind = "tfidf"\n', encoding="utf-8")
    run_all.main(["--plan", str(plan)])
    assert [cell.key for cell in asked[0].cells] == [("nsmc-sample", "mine", 0)]


def test_a_task_named_twice_runs_once(asked: list[CellRunner]) -> None:
    run_all.main(["--tasks", "nsmc-sample", "NSMC_sample", "nsmc-sample", "--models", "tfidf", "--seeds", "7"])
    assert [cell.key for cell in asked[0].cells] == [("nsmc-sample", "tfidf", 0)]


def test_settings_reach_every_trained_model_on_every_task(asked: list[CellRunner]) -> None:
    run_all.main(["--models", "pressbert-scratch", "--set", "epochs=0.5", "--set", "batch_size=8"])
    (model,) = {cell.model.name: cell.model for cell in asked[0].cells}.values()
    for task in all_tasks().values():
        assert {"epochs": "0.5", "batch_size": "8"}.items() <= {
            k: str(v) for k, v in model.overrides(task).items()
        }.items()


# --- finished cells -------------------------------------------------------------------------------------------------


def test_a_second_run_skips_what_is_finished_and_shows_the_same(
    out: Path, ran: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (*NSMC, "--models", "majority", "pressbert-scratch", "--seeds", "2")
    assert run(out, *arguments) == 0
    assert len(ran) == 3
    before, rows = cells(out), measured(out)
    capsys.readouterr()
    assert run(out, *arguments) == 0
    assert len(ran) == 3
    assert cells(out) == before
    assert measured(out) == rows
    assert "3 of 3" in capsys.readouterr().err


def test_more_seeds_run_only_what_is_new(out: Path, ran: list[Any]) -> None:
    run(out, *NSMC, "--models", "pressbert-scratch", "--seeds", "1")
    run(out, *NSMC, "--models", "pressbert-scratch", "--seeds", "3")
    assert ran == [("pressbert-scratch", "nsmc-sample", seed) for seed in (0, 1, 2)]
    assert measured(out)["pressbert-scratch", "nsmc-sample", "accuracy"]["seeds"] == 3


def test_a_changed_recipe_runs_just_its_cell_again(out: Path, ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--tasks", "klue-sts-sample", "--models", "majority", "tfidf")
    run(out, *arguments)
    before = cells(out)
    ran.clear()
    monkeypatch.setitem(tfidf.SETTINGS, "ridge_alpha", 100.0)
    assert run(out, *arguments) == 0
    assert ran == [("tfidf", "klue-sts-sample", 0)]
    after = cells(out)
    assert [name for name in before if before[name] != after[name]] == ["klue-sts-sample/tfidf/seed-0.json"]
    assert json.loads(after["klue-sts-sample/tfidf/seed-0.json"])["recipe"]["settings"]["ridge_alpha"] == 100.0


def test_a_changed_setting_runs_just_the_trained_models_again(out: Path, ran: list[Any]) -> None:
    arguments = (*NSMC, "--models", "majority", "pressbert-scratch", "--seeds", "2")
    run(out, *arguments)
    ran.clear()
    run(out, *arguments, "--set", "epochs=0.5")
    assert ran == [("pressbert-scratch", "nsmc-sample", seed) for seed in (0, 1)]


def test_a_damaged_cell_is_run_again(out: Path, ran: list[Any]) -> None:
    arguments = (*NSMC, "--models", "majority", "pressbert-scratch", "--seeds", "1")
    run(out, *arguments)
    before = measured(out)
    path = out / "results" / "nsmc-sample" / "majority" / "seed-0.json"
    for damage in (b"", b'{"schema": 1, "model": "maj', b"\xff\xfe\x00"):
        ran.clear()
        path.write_bytes(damage)
        assert run(out, *arguments) == 0
        assert ran == [("majority", "nsmc-sample", 0)], damage
        assert read_result(path).metrics["accuracy"] == before["majority", "nsmc-sample", "accuracy"]["value"], damage
        assert set(measured(out)) == set(before), damage


def test_a_damaged_cell_that_was_not_asked_for_is_reported_and_left(
    out: Path, ran: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(out, *NSMC, "--models", "majority", "pressbert-scratch", "--seeds", "1")
    path = out / "results" / "nsmc-sample" / "majority" / "seed-0.json"
    path.write_bytes(b"{")
    ran.clear()
    capsys.readouterr()
    assert run(out, *NSMC, "--models", "pressbert-scratch", "--seeds", "1") == 0
    assert ran == []
    assert f"{path}: not a result of schema 1" in capsys.readouterr().err
    assert path.read_bytes() == b"{"
    assert {model for model, _, _ in measured(out)} == {"pressbert-scratch"}


def test_cells_of_earlier_calls_stay_in_the_table(out: Path) -> None:
    run(out, *NSMC, "--models", "majority")
    run(out, "--tasks", "klue-sts-sample", "--models", "tfidf")
    assert {(model, task) for model, task, _ in measured(out)} == {
        ("majority", "nsmc-sample"),
        ("tfidf", "klue-sts-sample"),
    }
    # What this call asked for comes first.
    assert next(iter(measured(out)))[:2] == ("tfidf", "klue-sts-sample")


def test_a_row_stays_as_it_is_when_another_model_is_asked_for(out: Path, ran: list[Any]) -> None:
    run(out, *NSMC, "--models", "pressbert-scratch", "--seeds", "3")
    run(out, *NSMC, "--models", "pressbert-scratch", "--seeds", "1", "--set", "epochs=0.5")
    key = ("pressbert-scratch", "nsmc-sample", "accuracy")
    before = measured(out)[key]
    assert before["seeds"] == 1
    run(out, *NSMC, "--models", "majority")
    assert ran[-1] == ("majority", "nsmc-sample", 0)
    # With a second model in the table it has places; all else stays.
    assert measured(out)[key] | {"rank": None} == before


def test_a_cell_from_before_a_task_got_another_metric_stops_nothing(out: Path) -> None:
    run(out, "--tasks", "klue-sts-sample", "--models", "majority")
    path = out / "results" / "klue-sts-sample" / "majority" / "seed-0.json"
    cell = json.loads(path.read_text(encoding="utf-8"))
    del cell["metrics"]["f1"], cell["columns"]["f1"]
    del cell["digest"]
    path.write_text(json.dumps(cell), encoding="utf-8")
    assert run(out, "--tasks", "klue-sts-sample", "--models", "majority") in {0, 1}
    assert ("majority", "klue-sts-sample", "pearson") in measured(out)


def test_trained_models_are_kept_only_if_asked(tmp_path: Path, ran: list[Any]) -> None:
    for options, num_kept in (((), 0), (("--keep-models",), 2)):
        out = tmp_path / str(num_kept)
        ran.clear()
        run(out, *NSMC, "--models", "pressbert-scratch", "--seeds", "2", *options)
        assert len(ran) == 2, options
        assert (out / "models").exists() == bool(num_kept), options
        assert len(list(out.glob("models/nsmc-sample/pressbert-scratch/seed-*/model"))) == num_kept, options


# --- cells that fail ------------------------------------------------------------------------------------------------


def test_a_model_that_fails_is_a_row_with_its_reason_and_stops_nothing(
    out: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = RuntimeError("the head | fell off\nand rolled away")
    monkeypatch.setattr(running, "run_model", failing(lambda job: job.model.name == "tfidf", error))
    arguments = ("--tasks", "nsmc-sample", "klue-sts-sample", "--models", "majority", "tfidf", "pressbert-scratch")
    assert run(out, *arguments, "--seeds", "1") == 1
    rows = measured(out)
    assert len(rows) == 3 * (1 + 2)
    for (model, task, _), row in rows.items():
        assert row["status"] == ("failed" if model == "tfidf" else "ok")
        if model == "tfidf":
            log = out / "logs" / f"{task}-tfidf-seed-0.txt"
            assert row["value"] is row["ci95"] is row["std"] is None
            assert row["reason"] == f"RuntimeError: the head | fell off; see {log}"
            text = log.read_text(encoding="utf-8")
            assert text.startswith("Traceback")
            assert "and rolled away" in text
    assert len(cells(out)) == 4
    shown, said = capsys.readouterr()
    assert "the head | fell off" in shown
    assert "the head | fell off" in said
    assert "Traceback" not in shown + said
    for kind in ("md", "html", "csv"):
        assert "the head" in (out / f"leaderboard.{kind}").read_text(encoding="utf-8")


def test_what_a_user_can_fix_is_the_reason_itself(out: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    error = SuiteError("runs/mine", "no config.json in it", "give the folder of a model")
    monkeypatch.setattr(running, "run_model", failing(lambda *_: True, error))
    assert run(out, *NSMC, "--models", "majority") == 1
    assert measured(out)["majority", "nsmc-sample", "accuracy"]["reason"] == str(error)
    assert not (out / "logs").exists()


def test_a_failed_cell_is_tried_again_by_the_next_run(
    out: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(running, "run_model", failing(lambda *_: True, RuntimeError("once")))
        assert run(out, *NSMC, "--models", "majority") == 1
    assert run(out, *NSMC, "--models", "majority") == 0
    assert measured(out)["majority", "nsmc-sample", "accuracy"]["status"] == "ok"


def test_a_seed_that_fails_leaves_the_others_and_a_note(
    out: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "run_model", failing(lambda job: job.seed == 2, RuntimeError("no luck")))
    assert run(out, *NSMC, "--models", "pressbert-scratch", "--seeds", "4") == 1
    row = measured(out)["pressbert-scratch", "nsmc-sample", "accuracy"]
    assert (row["status"], row["seeds"], row["std"]) == ("ok", 3, 0.0)
    assert row["value"] is not None
    assert "RuntimeError: no luck" in row["note"]
    assert "no luck" in capsys.readouterr().out
    assert len(cells(out)) == 3


def test_a_task_without_data_is_unavailable_and_says_which_command_would_help(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    arguments = ("--tasks", "korquad", "nsmc-sample", "--models", "majority", "tfidf")
    assert run(out, *arguments, "--data", str(tmp_path / "data")) == 1
    rows = measured(out)
    missing = {key: row for key, row in rows.items() if row["task"] == "korquad"}
    assert set(missing) == {(m, "korquad", k) for m in ("majority", "tfidf") for k in ("exact_match", "f1")}
    wanted = tmp_path / "data" / "korquad" / "KorQuAD_v1.0_dev.json"
    for row in missing.values():
        assert (row["status"], row["value"], row["seeds"]) == ("unavailable", None, 0)
        assert f"curl -fL --create-dirs -o '{wanted}' 'https://" in row["reason"]
    assert all(row["status"] == "ok" for key, row in rows.items() if key not in missing)
    published = [row for row in leaderboard(out)["rows"] if row["source"] == "reported" and row["task"] == "korquad"]
    assert len(published) == (5 + 5) * 2
    assert "curl" in capsys.readouterr().out


# --- what the user must fix -----------------------------------------------------------------------------------------


def test_a_name_that_is_not_known_is_one_line_and_exit_code_two(tmp_path: Path) -> None:
    done = command("--models", "tfdif", cwd=tmp_path)
    line = "--models: unknown model 'tfdif'; did you mean 'tfidf'?\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_argument_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    monkeypatch.chdir(tmp_path)
    cases: list[tuple[type[SuiteError], list[str], str, str]] = [
        (UsageError, ["--models", "tfdif"], "--models", "unknown model 'tfdif'; did you mean 'tfidf'?"),
        (UsageError, ["--tasks", "nsmc-sampel"], "--tasks", "unknown task 'nsmc-sampel'; did you mean 'nsmc-sample'?"),
        (UsageError, ["--sedes", "3"], "eval/run_all.py", "unknown option '--sedes'; did you mean '--seeds'?"),
        (UsageError, ["--models", "tfidf", "kpfbrt"], "--models", "did you mean 'kpfbert'?"),
        (UsageError, ["--tasks", "nsmc-sample", "korqad"], "--tasks", "did you mean 'korquad'?"),
        (UsageError, ["--seeds", "0"], "--seeds", "0 is less than 1"),
        (UsageError, ["--seeds", "many"], "eval/run_all.py", "'many'"),
        (UsageError, ["--models"], "eval/run_all.py", "--models"),
        (UsageError, ["nsmc"], "eval/run_all.py", "nsmc"),
        (UsageError, ["--set", "epochs"], "--set", "'epochs' is not KEY=VALUE"),
        (RecipeError, ["--set", "epoch=1"], "--set", "did you mean 'epochs'?"),
        (RecipeError, ["--set", "epochs=-1"], "--set", "epochs"),
        (DataError, ["--data", "no-such-folder"], "--data", "'no-such-folder' is not a folder"),
        (UsageError, ["--jobs", "0"], "--jobs", "0 is less than 1"),
        (UsageError, ["--threads", "0"], "--threads", "0 is less than 1"),
        (UsageError, ["--shard", "0/2"], "--shard", "'0/2' is not a share"),
        (UsageError, ["--shard", "3/2"], "--shard", "'3/2' is not a share"),
        (UsageError, ["--shard", "half"], "--shard", "'half' is not a share"),
        (UsageError, ["--shard", "1/2", "--validate"], "eval/run_all.py", "not allowed with"),
        (UsageError, ["--compare", "tfidf"], "eval/run_all.py", "--compare"),
        (UsageError, ["--compare", "tfidf", "majority"], "--compare", "no finished cell of 'tfidf'"),
        (UsageError, ["--from", "x.json", "--tasks", "nsmc"], "--tasks", "--from repeats a run unchanged"),
        (UsageError, ["--from", "x.json", "--models", "tfidf"], "--models", "--from repeats a run unchanged"),
        (UsageError, ["--from", "x.json", "--seeds", "3"], "--seeds", "--from repeats a run unchanged"),
        (UsageError, ["--allow-drift"], "--allow-drift", "--from"),
        (ResultError, ["--from", "x.json"], "x.json", "No such file"),
        (ResultError, ["--merge", "nowhere"], "nowhere", "no results in it"),
    ]
    for kind, arguments, where, what in cases:
        with fails(kind, f"{where}: ", what):
            run_all.main(arguments)
        assert list(tmp_path.iterdir()) == [], arguments


def test_a_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, fails: Fails, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("here first", encoding="utf-8")
    with fails(ResultError, tmp_path / "file", "--out"):
        run(tmp_path / "file" / "reports", *NSMC, "--models", "majority")
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "here first"


def test_a_full_disk_is_one_line_and_leaves_the_finished_cells(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: Fails
) -> None:
    written: list[int] = []

    def fsync(descriptor: int) -> None:
        written.append(descriptor)
        # One file is written before the second cell: the first cell.
        if len(written) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    first, second = (out / "results" / "nsmc-sample" / name / "seed-0.json" for name in ("majority", "tfidf"))
    with fails(ResultError, second, f"cannot write ({os.strerror(errno.ENOSPC)})"):
        run(out, *NSMC, "--models", "majority", "tfidf")
    assert capsys.readouterr().out == ""
    assert read_result(first).metrics["accuracy"] is not None
    assert [path for path in out.rglob("*") if path.is_file()] == [first]


def test_a_disk_that_fills_up_stops_the_run_instead_of_losing_more_work(
    out: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    calls: list[str] = []

    def full(path: Path, _: Result) -> None:
        calls.append(path.parent.name)
        raise ResultError(path, "cannot write", "free some space")

    monkeypatch.setattr(running, "write_result", full)
    with fails(ResultError, out / "results", "cannot write"):
        run(out, *NSMC, "--models", "majority", "tfidf")
    assert calls == ["majority"]


# --- killed and run again -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_that_was_killed_continues_where_it_was(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--tasks", "nsmc-sample", "korquad-sample", "--models", "majority", "tfidf"]
    with subprocess.Popen(
        [sys.executable, ROOT / "eval" / "run_all.py", *arguments, "--out", out, "--without", "noise", "cost"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("[4/4]"):
                os.kill(process.pid, signal.SIGKILL)
                break
        assert process.wait() == -signal.SIGKILL
    finished = cells(out)
    assert set(finished) == {
        "nsmc-sample/majority/seed-0.json",
        "nsmc-sample/tfidf/seed-0.json",
        "korquad-sample/majority/seed-0.json",
    }
    assert not (out / "leaderboard.json").exists()
    assert run(out, *arguments) == 0
    assert "3 of 4" in capsys.readouterr().err
    after = cells(out)
    assert {name: after[name] for name in finished} == finished
    assert set(after) - set(finished) == {"korquad-sample/tfidf/seed-0.json"}
    assert {(model, task) for model, task, _ in measured(out)} == {
        (model, task) for model in ("majority", "tfidf") for task in ("nsmc-sample", "korquad-sample")
    }


# --- two models against each other ------------------------------------------------------------------------------------


def test_two_models_are_compared_from_their_finished_cells_alone(
    out: Path, nothing_runs: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    run(out, "--tasks", "nsmc-sample", "klue-sts-sample", "--models", "majority", "tfidf")
    nothing_runs()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert run(out, "--compare", "tfidf", "majority") == 0
    shown = capsys.readouterr().out
    (pair,) = leaderboard(out)["comparisons"]
    assert (pair["a"], pair["b"], pair["task"]) == ("tfidf", "majority", "nsmc-sample")
    assert f"{100 * pair['difference']:+.2f}" in shown
    assert f"{pair['p_adjusted']:.3f}" in shown
    assert "STS" not in shown  # majority has no correlation there
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_models_without_a_task_in_common_are_one_line(out: Path, fails: Fails) -> None:
    run(out, *NSMC, "--models", "majority")
    run(out, "--tasks", "klue-sts-sample", "--models", "tfidf")
    with fails(UsageError, "--compare", "no task has figures of both 'majority' and 'tfidf'"):
        run(out, "--compare", "majority", "tfidf")
    with fails(UsageError, "--compare", "two different models"):
        run(out, "--compare", "majority", "majority")


# --- a run repeated from its manifest ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_settings_of_encoders_are_chosen_by_a_grid_once_and_repeated_as_chosen(
    out: Path,
    tmp_path: Path,
    tiny_encoder: Path,
    ran: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(run_all.GRIDS, "small", Grid((32,), (1e-4, 1e-3), (0.2,)))
    asked = (*NSMC, "--models", f"bert={tiny_encoder}", "majority", "--seeds", "2", "--grid", "small")
    assert run(out, *asked, "--set", "max_length=16") == 0
    assert len(ran) == 3
    grid = {cell: json.loads(content)["recipe"].get("grid") for cell, content in cells(out).items()}
    (chosen,) = {json.dumps(record) for cell, record in grid.items() if "bert" in cell}
    points = json.loads(chosen)["points"]
    assert [point["peak_lr"] for point in points] == [1e-4, 1e-3]
    best = max(points, key=lambda point: point["accuracy"])
    for cell, content in cells(out).items():
        if "bert" in cell:
            settings = json.loads(content)["recipe"]["finetune"]
            assert (settings["peak_lr"], settings["max_length"]) == (best["peak_lr"], 16)
        else:
            assert grid[cell] is None
    assert f"choosing settings: max_length=16, batch_size=32, peak_lr={best['peak_lr']}" in capsys.readouterr().err
    monkeypatch.setattr("downstream.finetuning.trainer._train", lambda *_, **__: pytest.fail("computed again"))
    assert run(out, *asked, "--set", "max_length=16") == 0
    assert run(tmp_path / "again", "--from", str(out)) == 0
    assert len(ran) == 6
    assert {json.loads(content)["recipe_sha256"] for content in cells(tmp_path / "again").values()} == {
        json.loads(content)["recipe_sha256"] for content in cells(out).values()
    }


def test_a_run_is_repeated_from_its_leaderboard(out: Path, tmp_path: Path, ran: list[Any]) -> None:
    asked = ("--tasks", "nsmc-sample", "klue-sts-sample", "--models", "majority", "pressbert-scratch", "--seeds", "2")
    run(out, *asked, "--set", "epochs=0.5")
    run(out, *NSMC, "--models", "tfidf")
    first = list(ran)
    ran.clear()
    again = tmp_path / "again"
    assert run(again, "--from", str(out / "leaderboard.json")) == 0
    assert sorted(ran) == sorted(first)
    assert set(cells(again)) == set(cells(out))
    for name, text in cells(again).items():
        assert json.loads(text)["recipe"] == json.loads(cells(out)[name])["recipe"]
    figures = [{key: row["value"] for key, row in measured(folder).items()} for folder in (out, again)]
    assert figures[0] == figures[1]
    ran.clear()
    assert run(out, "--from", str(out)) == 0
    assert ran == []


def test_a_run_is_not_repeated_on_other_data_unless_allowed(
    out: Path, tmp_path: Path, ran: list[Any], monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    run(out, *NSMC, "--models", "majority", "tfidf")
    ran.clear()
    shutil.copytree(task_module.SAMPLE_ROOT, tmp_path / "sample")
    monkeypatch.setattr(task_module, "SAMPLE_ROOT", tmp_path / "sample")
    path = get_task("nsmc-sample").path("train", tmp_path)
    path.write_bytes(path.read_bytes().replace(b".", b"!", 1))
    with fails(UsageError, out / "leaderboard.json", "majority on nsmc-sample: data_sha256 was", "--allow-drift"):
        run(tmp_path / "again", "--from", str(out / "leaderboard.json"))
    assert ran == []
    assert not (tmp_path / "again").exists()
    assert run(tmp_path / "again", "--from", str(out / "leaderboard.json"), "--allow-drift") == 0
    assert len(ran) == 2


def test_a_run_is_not_repeated_with_other_versions(
    out: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails, ran: list[Any]
) -> None:
    run(out, *NSMC, "--models", "majority", "tfidf")
    ran.clear()
    installed = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "9.9.9" if name == "scikit-learn" else installed(name))
    with fails(UsageError, out / "leaderboard.json", "tfidf on nsmc-sample: versions.scikit-learn was", "9.9.9"):
        run(out, "--from", str(out / "leaderboard.json"))
    assert ran == []


@pytest.mark.usefixtures("ran")
def test_a_run_is_repeated_with_another_setting_on_purpose(out: Path, tmp_path: Path) -> None:
    run(out, *NSMC, "--models", "pressbert-scratch", "--seeds", "1")
    assert run(tmp_path / "again", "--from", str(out), "--set", "epochs=0.25") == 0
    before, after = (json.loads(next(iter(cells(folder).values())))["recipe"] for folder in (out, tmp_path / "again"))
    assert after["finetune"] == before["finetune"] | {"epochs": 0.25}
    assert after | {"finetune": 0} == before | {"finetune": 0}


# --- checks and lists -------------------------------------------------------------------------------------------------


def test_what_would_run_is_checked_and_nothing_is_written(
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    nothing_runs: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    nothing_runs()
    assert run(out, *NSMC, "--models", "majority", "pressbert-scratch", "--seeds", "2", "--validate") == 0
    assert "셀 3개: 끝난 것 0, 실행할 것 3, 막힌 것 0" in capsys.readouterr().out
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    arguments = ("--tasks", "korquad", "--models", "majority", "--data", str(tmp_path / "data"), "--validate")
    assert run(out, *arguments) == 2
    assert "→ run: curl" in capsys.readouterr().out
    assert not out.exists()


def test_a_dry_run_prints_the_time_of_every_cell_and_of_all(
    out: Path, nothing_runs: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    nothing_runs()
    asked = ("--tasks", "nsmc-sample", "klue-sts-sample", "--models", "majority", "tfidf", "--dry-run", "--lang", "en")
    assert run(out, *asked) == 0
    shown = capsys.readouterr().out
    assert all(shown.count(name) == 2 for name in ("nsmc-sample", "klue-sts-sample", "majority", "tfidf"))
    assert "4 cells left, about " in shown
    assert not out.exists()


def test_tasks_and_models_are_listed(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(out, "--list") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*load_leaderboard().models, *COMPARED))
    assert not out.exists()


# --- shares and merging -----------------------------------------------------------------------------------------------


def test_shares_in_folders_of_their_own_are_merged_into_the_same_table(
    out: Path, tmp_path: Path, ran: list[Any], nothing_runs: Callable[[], None]
) -> None:
    asked = ("--tasks", "nsmc-sample", "klue-sts-sample", "--models", "majority", "tfidf")
    folders = [tmp_path / f"share-{k}" for k in (1, 2, 3)]
    for k, folder in enumerate(folders, start=1):
        assert run(folder, *asked, "--shard", f"{k}/3") == 0
        assert {path.name for path in folder.iterdir()} == {"results"}
    assert len(ran) == 4
    nothing_runs()
    assert run(out, "--merge", *map(str, folders)) == 0
    assert cells(out) == {name: text for folder in folders for name, text in cells(folder).items()}
    merged = {path.name: path.read_bytes() for path in out.glob("leaderboard.*")}
    # The command that would run them finds nothing to do and writes the same bytes.
    assert run(out, *asked) == 0
    assert {path.name: path.read_bytes() for path in out.glob("leaderboard.*")} == merged


def test_what_was_checked_for_overlap_goes_with_the_cells(out: Path, tmp_path: Path) -> None:
    folder, asked = tmp_path / "share", (*NSMC, "--models", "majority")
    run(folder, *asked)
    unchecked = (folder / "leaderboard.md").read_bytes()
    contamination.main(["--tasks", "nsmc-sample", "--out", str(folder)])
    run(folder, *asked)
    assert (folder / "leaderboard.md").read_bytes() != unchecked
    # Not every task of this plan has a sample.
    assert run(tmp_path / "planned", "--plan", str(REFERENCE_TOML), "--merge", str(folder)) == 0
    assert run(out, "--merge", str(folder)) == 0
    for pattern in ("leaderboard.*", "contamination.*", "contamination/*/*"):
        found = {path.relative_to(folder): path.read_bytes() for path in folder.glob(pattern) if path.is_file()}
        assert found
        assert {path.relative_to(out): path.read_bytes() for path in out.glob(pattern) if path.is_file()} == found


def test_a_merge_by_a_plan_shows_what_nobody_has_measured(out: Path, tmp_path: Path) -> None:
    folder, plan = tmp_path / "share", tmp_path / "plan.toml"
    kinds = {"majority": "majority", "tfidf": "tfidf", "vectors": "embedder"}
    entries = "".join(f'[models.{name}]\nkind = "{kind}"\n' for name, kind in kinds.items())
    plan.write_text(f'tasks = ["nsmc-sample", "klue-sts-sample"]\n{entries}', encoding="utf-8")
    run(folder, *NSMC, "--models", "majority")
    assert run(out, "--plan", str(plan), "--merge", str(folder)) == 0
    rows = measured(out)
    without = {(model, task) for (model, task, _), row in rows.items() if row["value"] is None}
    # Embedders are scored on pairs alone.
    assert without == {("tfidf", "nsmc-sample"), *((model, "klue-sts-sample") for model in kinds)}
    assert {(row["status"], row["reason"]) for row in rows.values() if row["value"] is None} == {
        ("unavailable", "not measured")
    }
    korean, english, page = ((out / f"leaderboard.{kind}").read_text("utf-8") for kind in ("md", "en.md", "html"))
    assert korean.count("| 측정 없음 |") == english.count("| not measured |") >= len(without)
    assert page.count(">측정 없음<") >= len(without)
    assert run(out, "--merge", str(folder)) == 0
    assert {model for model, _, _ in measured(out)} == {"majority"}


def test_what_failed_in_a_share_is_a_row_of_the_merged_table(
    out: Path, tmp_path: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(running, "run_model", failing(lambda job: job.model.name == "tfidf", RuntimeError("no luck")))
        assert run(tmp_path / "share", *NSMC, "--models", "majority", "tfidf", "--shard", "1/1") == 1
    assert run(out, "--merge", str(tmp_path / "share")) == 1
    rows = measured(out)
    assert rows["majority", "nsmc-sample", "accuracy"]["status"] == "ok"
    assert rows["tfidf", "nsmc-sample", "accuracy"]["reason"].startswith("RuntimeError: no luck")


def test_the_table_says_when_its_newest_cell_was_finished_and_not_when_it_was_written(out: Path) -> None:
    run(out, *NSMC, "--models", "majority")
    path = out / "results" / "nsmc-sample" / "majority" / "seed-0.json"
    cell = json.loads(path.read_text(encoding="utf-8"))
    cell["environment"]["finished"] = "2026-01-02T03:04:05.678901+00:00"
    del cell["digest"]
    path.write_text(json.dumps(cell), encoding="utf-8")
    run(out, *NSMC, "--models", "majority")
    assert leaderboard(out)["created"] == "2026-01-02T03:04:05+00:00"


# --- what is written and said ---------------------------------------------------------------------------------------

ROW_KEYS = {
    "model": str,
    "task": str,
    "metric": str,
    "source": str,
    "status": str,
    "reason": str,
    "value": float | None,
    "ci95": list | None,
    "seeds": int,
    "std": float | None,
    "num_examples": int,
    "split": str,
    "data_sha256": str,
    "num_parameters": int,
    "train_s": float,
    "eval_s": float,
    "rank": list | None,
    "size_bytes": int | None,
    "latency_ms": float | None,
    "sentences_per_s": float | None,
    "cpu_share": float | None,
    "noise": list,
    "clean": list,
}


def test_the_leaderboard_on_disk_is_what_the_contract_says(out: Path, ran: list[Any]) -> None:
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    assert run(out, "--tasks", "nsmc-sample", "klue-sts-sample", "--models", "majority", "pressbert-scratch") == 0
    assert ran
    content = leaderboard(out)
    assert set(content) == {"schema", "created", "manifest", "rows", "comparisons"}
    assert content["schema"] == 1
    assert before <= datetime.datetime.fromisoformat(content["created"]) <= datetime.datetime.now(datetime.UTC)
    assert {"versions", "git", "device", "cpu"} <= set(content["manifest"])
    assert {"python", "torch", "transformers", "pressbert"} <= set(content["manifest"]["versions"])
    assert content["manifest"]["cpu"]
    for row in content["rows"]:
        assert set(ROW_KEYS) <= set(row)
        assert all(isinstance(row[key], kind) for key, kind in ROW_KEYS.items())
        assert row["source"] in {"measured", "reported"}
        assert row["status"] in {"ok", "failed", "unavailable"}
        assert row["value"] is None or -1 <= row["value"] <= 1
        assert row["value"] is not None or row["reason"]
        if row["source"] == "measured" and row["value"] is not None:
            assert len(row["ci95"]) == 2
            assert row["ci95"][0] <= row["value"] <= row["ci95"][1]
            assert [len(part) for part in row["data_sha256"].split("+")] == [64, 64]
            assert row["num_examples"] == all_tasks()[row["task"]].num_examples[row["split"]]
            assert (row["std"] is None) == (row["seeds"] == 1)
    reported = [row for row in content["rows"] if row["source"] == "reported"]
    assert [row["value"] for row in reported] == [r.value for r in read_reported() if r.task in {"nsmc", "klue-sts"}]
    with (out / "leaderboard.csv").open(encoding="utf-8", newline="") as file:
        assert [record["value"] for record in csv.DictReader(file)] == [
            "" if row["value"] is None else str(row["value"]) for row in content["rows"]
        ]
    for name, text in cells(out).items():
        cell = json.loads(text)
        assert name == f"{cell['task']}/{cell['model']}/seed-{cell['seed']}.json"
        assert cell["recipe_sha256"] == fingerprint(cell["recipe"])


def test_stdout_has_the_table_and_stderr_the_messages(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(out, *NSMC, "--models", "majority")
    shown, said = capsys.readouterr()
    row = measured(out)["majority", "nsmc-sample", "accuracy"]
    assert f"{100 * row['value']:.2f}" in shown
    assert "91.29" in shown
    assert all(name in shown for name in ("majority", "kpfBERT", "KLUE-BERT", "KorBERT", "KoBERT", "mBERT"))
    assert "[1/1]" not in shown
    assert "[1/1] majority · nsmc-sample · seed 0" in said
    assert str(out / "leaderboard.html") in said
    assert "91.29" not in said


def test_it_runs_by_path_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = command(*NSMC, "--models", "majority", "--out", tmp_path / "out", cwd=tmp_path / "elsewhere")
    assert done.returncode == 0
    assert "NSMC" in done.stdout
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []
    names = {path.name for path in (tmp_path / "out").iterdir()}
    kinds = ("json", "csv", "md", "en.md", "html")
    assert names == {"results", "model-index", *(f"leaderboard.{kind}" for kind in kinds)}
    assert set(cells(tmp_path / "out")) == {"nsmc-sample/majority/seed-0.json"}


OPTIONS = (
    *("--models", "--tasks", "--seeds", "--set", "--from", "--allow-drift", "--data", "--out", "--keep-models"),
    *(
        "--jobs",
        "--threads",
        "--shard",
        "--merge",
        "--validate",
        "--dry-run",
        "--list",
        "--compare",
        "--without",
        "--plan",
    ),
)


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_all.main(["--help"])
    shown, said = capsys.readouterr()
    assert (ended.value.code, said) == (0, "")
    assert [option for option in OPTIONS if option not in shown] == []
    assert "--orders" not in shown
