"""Cells are filled once, whole, and alike: by one process or many, in shares, through kills and rivals for a folder."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from corpora.foundation import files
from corpora.foundation.errors import DataUnavailableError, ResultError
from corpora.foundation.files import SAMPLE_ROOT, fingerprint
from corpora.foundation.machine import use_one_device
from downstream import task as task_module
from downstream.finetuning.result import Result, read_result
from downstream.task import Task, TaskData, get_task, read_task
from eval import run_all
from eval.cells import leases
from eval.cells import run as running
from eval.cells.files import cell_path, failure_path, find_failures
from eval.cells.plan import plan_cells
from eval.cells.run import CellRunner, run_job
from eval.cells.workers import Worker, part_of_machine
from eval.contestants.contestant import Cell, Job, Outcome, load_leaderboard

Fails = Callable[..., AbstractContextManager[None]]

ROOT = Path(__file__).resolve().parents[3]
KNOWN = load_leaderboard().models
NSMC, STS = get_task("nsmc-sample"), get_task("klue-sts-sample")
VOLATILE = {"train_s", "eval_s", "environment", "digest"}
"""What of a cell tells of the moment it was made."""


def files_in(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


def cell_of(model: str, task: Task = NSMC, seed: int = 0) -> Cell:
    return Cell(KNOWN[model], task, seed)


def runner_of(out: Path, *cells: Cell, **more: Any) -> CellRunner:
    return CellRunner(cells, root=Path("/nonexistent"), out=out, **more)


def command(*arguments: object) -> list[str]:
    return [sys.executable, str(ROOT / "eval" / "run_all.py"), *map(str, arguments)]


# --- one process ----------------------------------------------------------------------------------------------------


def test_a_cell_notes_where_it_comes_from(out: Path) -> None:
    runner_of(out, cell_of("tfidf")).run()
    noted = read_result(cell_path(out, "nsmc-sample", "tfidf", 0)).environment
    assert noted["kind"] == "tfidf"
    assert noted["encoder"] == ""
    assert noted["finished"].endswith("+00:00")
    assert len(noted["code_sha256"]) == 64
    assert {"platform", "cpu", "git"} <= set(noted)
    assert files_in(out) == ["results/nsmc-sample/tfidf/seed-0.json"]


def test_a_failure_is_recorded_and_removed_once_the_cell_is_finished(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(running, "run_model", lambda *_: 1 / 0)
        runner = runner_of(out, cell_of("majority"))
        runner.run()
    (failed,) = find_failures(out)
    assert runner.failed == [failed]
    assert (failed.status, failed.seed) == ("failed", 0)
    assert "ZeroDivisionError" in failed.reason
    runner_of(out, cell_of("majority")).run()
    assert find_failures(out) == []
    assert not (out / "missing").exists()
    assert "majority · nsmc-sample: failed: ZeroDivisionError" in capsys.readouterr().err


def test_what_keeps_a_task_from_running_is_reported_once_and_recorded_for_every_seed(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> TaskData:
        raise DataUnavailableError("nsmc/x.txt", "not there", "run: curl")

    monkeypatch.setattr(running, "read_task", refuse)
    cells = plan_cells([KNOWN["pressbert-scratch"]], [NSMC], 3)
    runner = runner_of(out, *cells)
    runner.run()
    assert [(failed.seed, failed.status) for failed in runner.failed] == [(seed, "unavailable") for seed in range(3)]
    assert capsys.readouterr().err.count("run: curl") == 1


def test_changed_code_is_reported_and_discards_no_training(
    out: Path, ran: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = plan_cells([KNOWN["tfidf"], KNOWN["pressbert-scratch"]], [NSMC], 2)
    runner_of(out, *cells).run()
    ran.clear()
    syntax = files.module_syntax
    changed = {"eval.contestants.tfidf", "downstream.finetuning.trainer"}
    monkeypatch.setattr(files, "module_syntax", lambda module: syntax(module) + ("!" if module in changed else ""))
    capsys.readouterr()
    runner_of(out, *cells).run()
    assert ran == [("tfidf", "nsmc-sample", 0)]
    said = capsys.readouterr().err
    assert "2 of them were made by other code of the same version" in said
    assert str(out / "results") in said


# --- what a change touches --------------------------------------------------------------------------------------------

ALL = [
    (model, task) for task in ("nsmc-sample", "klue-sts-sample") for model in ("majority", "tfidf", "pressbert-scratch")
]


@pytest.fixture
def again(
    out: Path, ran: list[tuple[str, str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[tuple[str, str]]]:
    """Run all cells on a copy of the sample; return a function that says which of them run when asked for again."""
    shutil.copytree(SAMPLE_ROOT, tmp_path / "sample")
    monkeypatch.setattr(task_module, "SAMPLE_ROOT", tmp_path / "sample")
    cells = plan_cells([KNOWN[model] for model in ("majority", "tfidf", "pressbert-scratch")], [NSMC, STS], 1)
    runner_of(out, *cells).run()
    assert [(model, task) for model, task, _ in ran] == ALL

    def run() -> list[tuple[str, str]]:
        ran.clear()
        runner_of(out, *cells).run()
        return [(model, task) for model, task, _ in ran]

    assert run() == []
    return run


def test_a_byte_of_a_dataset_touches_the_cells_of_its_task_alone(again: Callable[[], list[tuple[str, str]]]) -> None:
    for split in ("train", "dev"):
        path = STS.path(split, Path("/nonexistent"))
        assert path != get_task("klue-sts").path
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("다.", "다!", 1), encoding="utf-8")
        assert again() == [(model, task) for model, task in ALL if task == "klue-sts-sample"], split
        assert again() == [], split


def test_a_package_version_touches_the_models_that_compute_with_it(
    again: Callable[[], list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, touched in {
        "torch": {"pressbert-scratch"},
        "transformers": {"pressbert-scratch"},
        "scikit-learn": {"tfidf"},
        "numpy": {"majority", "tfidf"},
        "pressbert": {"majority", "tfidf", "pressbert-scratch"},
        "rich": set[str](),
    }.items():
        before = metadata.version
        monkeypatch.setattr(
            metadata, "version", lambda name, before=before, other=package: "9.9.9" if name == other else before(name)
        )
        assert again() == [(model, task) for model, task in ALL if model in touched], package
        assert again() == [], package


# --- rivals for a cell ------------------------------------------------------------------------------------------------


def test_two_processes_never_run_the_same_cell(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, model = read_task(NSMC, Path("/nonexistent")), KNOWN["majority"]
    job = Job(model, NSMC, 0, data, model.recipe(NSMC, data))
    begun, go_on, calls = threading.Event(), threading.Event(), []

    def slow(job: Job, work: Path) -> Outcome:
        calls.append(threading.current_thread().name)
        begun.set()
        assert go_on.wait(20)
        return job.model.run(job, work)

    monkeypatch.setattr(running, "run_model", slow)
    results: list[Result] = []
    rivals = [
        threading.Thread(target=lambda: results.append(run_job(job, out=out)), name=name)
        for name in ("first", "second")
    ]
    rivals[0].start()
    assert begun.wait(20)
    rivals[1].start()
    said = ""
    while "another process runs it" not in said:
        said += capsys.readouterr().err
        time.sleep(0.01)
    go_on.set()
    for rival in rivals:
        rival.join(20)
    assert calls == ["first"]
    assert results[0] == results[1]
    assert files_in(out) == ["results/nsmc-sample/majority/seed-0.json"]
    assert not (out / "models").exists()


def test_files_of_a_killed_process_are_removed(out: Path) -> None:
    cell = cell_path(out, "nsmc-sample", "majority", 0)
    torn = cell.parent / ".seed-0.json.abc.part"
    lease = out / "models" / "nsmc-sample" / "majority" / ".seed-0.lease.1"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    content = {"token": "t", "host": leases._host(), "process": ended.pid, "beat": 3}
    for path, text in (
        (torn, '{"half": '),
        (lease, json.dumps(content)),
        (lease.with_name(f".{lease.name}.x.part"), ""),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    runner_of(out, cell_of("majority")).run()
    assert files_in(out) == ["results/nsmc-sample/majority/seed-0.json"]
    assert not (out / "models").exists()


@pytest.mark.slow
def test_shares_that_run_at_once_in_one_folder_do_not_disturb_each_other(out: Path) -> None:
    arguments = ("--models", "majority", "tfidf", "--tasks", "nsmc-sample", "klue-sts-sample", "--out", out)
    arguments += ("--without", "noise", "cost")
    shares = [
        subprocess.Popen(
            command(*arguments, "--shard", f"{k}/2"), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for k in (1, 2)
    ]
    ended = [share.communicate() for share in shares]
    assert [share.returncode for share in shares] == [0, 0], ended
    assert [shown for shown, _ in ended] == ["", ""]
    assert all(f"share {k}/2: 2 cells" in said for k, (_, said) in enumerate(ended, start=1))
    expected = [
        f"results/{task}/{model}/seed-0.json" for task in (STS.name, NSMC.name) for model in ("majority", "tfidf")
    ]
    assert files_in(out) == sorted(expected)


# --- worker processes -------------------------------------------------------------------------------------------------


def content(out: Path) -> dict[str, dict[str, Any]]:
    """Return what the cells of a folder hold, apart from the moment they were made in."""
    paths = sorted((out / "results").rglob("seed-*.json"))
    cells = {str(path.relative_to(out)): json.loads(path.read_text(encoding="utf-8")) for path in paths}
    return {name: {key: cell[key] for key in set(cell) - VOLATILE} for name, cell in cells.items()}


@pytest.fixture
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_cells_are_the_same_files_in_this_process_and_in_processes_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--models", "majority", "pressbert-scratch", "--tasks", "klue-sts-sample", "--seeds", "1"]
    asked += ["--set", "epochs=0.05", "--set", "max_length=32", "--without", "noise", "cost"]
    assert run_all.main([*asked, "--out", str(tmp_path / "one")]) == 0
    alone = content(tmp_path / "one")
    assert len(alone) == 2
    capsys.readouterr()
    assert run_all.main([*asked, "--jobs", "2", "--threads", "1", "--out", str(tmp_path / "jobs")]) == 0
    assert content(tmp_path / "jobs") == alone
    said = capsys.readouterr().err
    assert all(f"[{k}/2]" in said for k in (1, 2))
    assert not (tmp_path / "jobs" / "logs").exists()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes workers run other code than the leaderboard's."""

    def replace(code: str) -> None:
        path = tmp_path / "worker.py"
        path.write_text(
            f"import json, os, signal, sys, time\norder = json.loads(sys.stdin.readline())\n{code}", encoding="utf-8"
        )
        monkeypatch.setattr(running, "RUN_ALL", path)

    return replace


def test_a_worker_that_is_killed_is_a_failure_with_its_log_and_stops_nothing(
    out: Path, script: Callable[[str], None]
) -> None:
    script("sys.stderr.write('out of breath\\n'); sys.stderr.flush(); os.kill(os.getpid(), signal.SIGKILL)")
    runner = runner_of(out, cell_of("majority"), cell_of("tfidf"), jobs=2)
    runner.run()
    assert {failed.model for failed in runner.failed} == {"majority", "tfidf"}
    for failed in runner.failed:
        log = out / "logs" / f"nsmc-sample-{failed.model}-seed-0.txt"
        assert failed.reason == f"its process was ended by signal 9; see {log}"
        assert log.read_text(encoding="utf-8") == "out of breath\n"
    assert len(find_failures(out)) == 2


def test_the_failure_that_a_worker_records_is_reported(out: Path, script: Callable[[str], None]) -> None:
    failed = {"task": "nsmc-sample", "model": "majority", "seed": 0, "status": "unavailable", "reason": "no network"}
    failed |= {"at": "2026-01-15T00:00:00.000000+00:00"}
    path = failure_path(out, "nsmc-sample", "majority", 0)
    script(f"os.makedirs({str(path.parent)!r}); open({str(path)!r}, 'w').write({json.dumps(failed)!r}); sys.exit(1)")
    runner = runner_of(out, cell_of("majority"), jobs=2)
    runner.run()
    assert [failed.model_dump() for failed in runner.failed] == [failed]
    assert not (out / "logs").exists()


def test_a_worker_that_cannot_write_ends_the_run_and_the_other_workers(
    out: Path, tmp_path: Path, script: Callable[[str], None], fails: Fails
) -> None:
    script(
        f"mark = {str(tmp_path)!r} + '/alive'\n"
        "if order['model']['name'] == 'majority':\n"
        "    open(mark, 'w').write(str(os.getpid())); time.sleep(60)\n"
        "while not os.path.exists(mark) or not open(mark).read(): time.sleep(0.01)\n"
        "error = {'where': 'disk', 'what': 'full', 'fix': 'free some space'}\n"
        "print(json.dumps({'code': 2, 'error': error}), flush=True)"
    )
    started = time.monotonic()
    with fails(ResultError, "disk: full"):
        runner_of(out, cell_of("majority"), cell_of("tfidf"), jobs=2).run()
    assert time.monotonic() - started < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "alive").read_text(encoding="utf-8")), 0)


def test_at_most_as_many_workers_run_at_once_as_asked_for(
    out: Path, tmp_path: Path, script: Callable[[str], None]
) -> None:
    script(
        f"folder = {str(tmp_path)!r} + '/running'; os.makedirs(folder, exist_ok=True)\n"
        "mine = f'{folder}/{os.getpid()}'; open(mine, 'w').close(); time.sleep(0.2)\n"
        f"open({str(tmp_path)!r} + '/seen', 'a').write(f'{{len(os.listdir(folder))}}\\n'); os.remove(mine); sys.exit(3)"
    )
    cells = plan_cells([KNOWN["majority"], KNOWN["tfidf"]], [NSMC, STS], 1)
    runner_of(out, *cells, jobs=2).run()
    seen = [int(line) for line in (tmp_path / "seen").read_text(encoding="utf-8").split()]
    assert len(seen) == 4
    assert max(seen) <= 2


def test_threads_and_devices_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5")
    parts = [part_of_machine(slot, 3) for slot in range(3)]
    assert [part["OMP_NUM_THREADS"] for part in parts] == ["2", "2", "2"]
    assert [part["CUDA_VISIBLE_DEVICES"] for part in parts] == ["2", "GPU-5", "2"]
    assert part_of_machine(0, 3, threads=5)["OMP_NUM_THREADS"] == "5"
    assert part_of_machine(0, 99)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" not in part_of_machine(0, 2)


def test_a_single_process_keeps_to_one_of_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    use_one_device()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    use_one_device()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_a_worker_ends_soon_after_its_parent_was_killed() -> None:
    child = (
        "import sys, time; from eval.cells.workers import end_with; "
        "end_with(int(sys.argv[1])); print('up'); time.sleep(60)"
    )
    parent = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-u', '-c', {child!r}, str(os.getpid())]); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
        # The pipe closes once the last process that holds it has ended.
        started = time.monotonic()
        assert process.stdout.read() == ""
        assert time.monotonic() - started < 20


def test_a_worker_says_where_it_cannot_log(tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "file").write_text("here first", encoding="utf-8")
    with fails(ResultError, tmp_path / "file" / "logs" / "x.txt", "cannot write"):
        Worker(["-c", "pass"], {}).give({}, tmp_path / "file" / "logs" / "x.txt")


ANSWERS = """
import os, sys
from eval.cells.workers import answer_orders

def carry_out(order):
    print("printed", order["number"], flush=True)
    os.system(f"cat; echo from a child {order['number']}")
    if order["number"] == 2:
        os.kill(os.getpid(), 9)
    return {"number": order["number"], "process": os.getpid()}

answer_orders(int(sys.argv[1]), carry_out)
"""


def test_one_process_answers_many_orders_each_with_its_log_and_another_follows_a_dead_one(tmp_path: Path) -> None:
    worker = Worker(["-c", ANSWERS, str(os.getpid())], {"PYTHONPATH": str(ROOT)})
    try:
        answers = []
        for number in range(5):
            worker.give({"number": number}, tmp_path / "logs" / f"{number}.txt")
            answers.append(worker.answer())
            assert not worker.is_busy
    finally:
        worker.end()
    assert answers[2] == -signal.SIGKILL
    said = [answer for answer in answers if isinstance(answer, dict)]
    assert [answer["number"] for answer in said] == [0, 1, 3, 4]
    first, second, third, fourth = (answer["process"] for answer in said)
    assert first == second != third == fourth
    for number in range(5):
        log = (tmp_path / "logs" / f"{number}.txt").read_text(encoding="utf-8").splitlines()
        assert {*log} == {f"from a child {number}", f"printed {number}"}


# --- killed at random moments ---------------------------------------------------------------------------------------


TIMES = {"train_s": 1.5, "eval_s": 0.25}
MOMENT = "2026-01-02T03:04:05.000000+00:00"


def still(out: Path) -> None:
    """Give every cell the same moment and the same times: what a clock says is all that may differ of two runs."""
    for path in (out / "results").rglob("seed-*.json"):
        cell = json.loads(path.read_text(encoding="utf-8"))
        cell |= TIMES
        cell["environment"]["finished"] = MOMENT
        del cell["digest"]
        path.write_text(json.dumps(cell), encoding="utf-8")
    for path in (out / "cost").rglob("seed-*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        found["train_s"] = TIMES["train_s"]
        del found["digest"]
        found["cost"] |= {"latency_ms_median": 1.0, "latency_ms_p95": 2.0, "sentences_per_s": 9.0, "cpu_share": 1.0}
        found["cost"] |= {"num_single": 20, "num_batched": 20}
        path.write_text(json.dumps(found), encoding="utf-8")


def board(out: Path) -> dict[str, bytes]:
    """Return the bytes of the leaderboard's files."""
    paths = [path for path in out.rglob("*") if path.is_file() and path.parent.name in {out.name, "model-index"}]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


# Everything is imported once; each run is a copy of the process, so that a kill meets work and not an import.
KILLED = """
import os, signal, sys, time
import numpy as np
from eval import run_all

moments = np.random.default_rng(0)
for number in range(10):
    # Processes of a worker begin by importing, so that their run is given longer.
    jobs, longest = (["--jobs", "2"], 6.0) if number == 3 else ([], 0.8)
    process = os.fork()
    if not process:
        os._exit(run_all.main(sys.argv[1:] + jobs))
    time.sleep(moments.uniform(0.1, longest))
    os.kill(process, signal.SIGKILL)
    print("killed" if os.WIFSIGNALED(os.waitpid(process, 0)[1]) else "finished", file=sys.__stderr__)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_ten_times_ends_with_the_same_leaderboard(tmp_path: Path) -> None:
    asked = ["--models", "majority", "tfidf", "--tasks", "nsmc-sample", "klue-sts-sample", "klue-nli-sample"]
    assert run_all.main([*asked, "--out", str(tmp_path / "whole")]) == 0
    out = tmp_path / "killed"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *asked, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ends = [line for line in done.stderr.splitlines() if line in {"killed", "finished"}]
    assert len(ends) == 10
    assert ends.count("killed") >= 3
    for path in out.glob("results/*/*/seed-*.json"):
        assert read_result(path).recipe_sha256 == fingerprint(read_result(path).recipe)
    assert run_all.main([*asked, "--out", str(out)]) == 0
    assert content(out) == content(tmp_path / "whole")
    written = board(out)
    assert run_all.main([*asked, "--out", str(out)]) == 0
    assert board(out) == written
    expected = {f"{cell.task.name}/{cell.model.name}/seed-0.json" for cell in planned(asked)}
    for folder in ("results", "noise", "cost"):
        assert set(files_in(out / folder)) == expected
    assert {path.name for path in out.iterdir()} == {
        *("results", "noise", "cost", "model-index"),
        *(name for name in written if "/" not in name),
    }

    for folder in (out, tmp_path / "whole"):
        still(folder)
        assert run_all.main([*asked, "--out", str(folder)]) == 0
    assert board(out) == board(tmp_path / "whole")


def planned(asked: Sequence[str]) -> list[Cell]:
    where = asked.index("--tasks")
    return plan_cells([KNOWN[name] for name in asked[1:where]], [get_task(name) for name in asked[where + 1 :]], 1)
