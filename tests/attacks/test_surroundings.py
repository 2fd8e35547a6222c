"""A full disk, no rights, no descriptors, no home, a clock that goes back, two processes: nothing is lost."""

import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apps.clustering import main as find_stories
from apps.stories.state import Stories
from apps.summarize import main as summarize
from corpora.build import main as build
from corpora.foundation.command import run_command
from corpora.foundation.errors import UsageError
from corpora.foundation.files import LOCK_FILE, locked, write_signed
from corpora.official import cache_root
from downstream.clickbait.__main__ import main as clickbait
from downstream.embed import main as embed
from downstream.encoders.__main__ import main as convert
from downstream.finetune import main as finetune
from downstream.headline import main as headline
from downstream.moderate.__main__ import main as moderate
from downstream.trainer_checkpoints import MANIFEST, last_checkpoint
from eval.cells.files import clear_failure, find_failures, record_failure
from eval.run_all import main as leaderboard
from pretraining.run import main as pretrain
from pretraining.vocab import main as train_vocabulary
from tests.attacks.models import build_model

Run = Callable[[Path], int]
TEXT = "물빛시가 새 다리를 놓는다. 공사비는 300억원이다. 시민은 반겼다. 날은 흐렸다. 시는 내년에 마칠 계획이다."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny model, and articles in `a.jsonl` and `b.jsonl`."""
    root = tmp_path_factory.mktemp("base")
    build_model(root / "model")
    for name in ("a", "b"):
        records = (
            {"id": f"{name}{k}", "title": f"{name} {k}번 기사", "text": f"{k}번 기사다. {TEXT}"} for k in range(40)
        )
        lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (root / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return root


def writers(base: Path) -> dict[str, Run]:
    """Return commands that write to `--out`, by name."""
    articles = str(base / "a.jsonl")
    model = str(base / "model")
    settings = ["--set", "epochs=0.1", "--set", "max_length=16"]
    return {
        "summaries": lambda out: summarize([articles, "--out", str(out / "summaries.jsonl")]),
        "stories": lambda out: find_stories(
            [articles, "--out", str(out / "page"), "--stories", str(out / "state"), "--model", "letters"]
        ),
        "corpus": lambda out: build([articles, "--out", str(out)]),
        "conversion": lambda out: convert([model, "--out", str(out)]),
        "vocabulary": lambda out: train_vocabulary([articles, "--out", str(out), "--vocab-size", "150", "--compare"]),
        "fine-tuning": lambda out: finetune(["nsmc-sample", "--model", model, "--out", str(out), *settings]),
        "leaderboard": lambda out: leaderboard(
            ["--models", "majority", "--tasks", "nsmc-sample", "--without", "cost", "noise", "--out", str(out)]
        ),
        "pretraining": lambda out: pretrain(["sample", "--out", str(out), "--cpu", "--workers", "1"]),
    }


def outcome(run: Run, out: Path) -> tuple[int, str]:
    """Run a command as a process would; returns its exit code and what it says."""
    said = io.StringIO()
    with (
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.StringIO()),
        pytest.raises(SystemExit) as ended,
    ):
        run_command(lambda _: run(out))
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.getvalue()


@contextlib.contextmanager
def limited(kind: int, soft: int) -> Iterator[None]:
    """Lower a limit of this process."""
    before = resource.getrlimit(kind)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)
        signal.signal(signal.SIGXFSZ, ignored)


@contextlib.contextmanager
def free_descriptors(number: int) -> Iterator[None]:
    """Leave this process a number of descriptors that it may open."""
    taken = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    limit = next(k for k in range(1 << 16) if k - sum(one < k for one in taken) == number)
    with limited(resource.RLIMIT_NOFILE, limit):
        yield


def last_line(said: str) -> str:
    """Return the last line; progress may stand before it."""
    assert "Traceback" not in said
    return said.strip().splitlines()[-1]


def test_a_disk_that_is_full_is_one_line_and_leaves_no_half_file(
    base: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name, run in writers(base).items():
        with subtests.test(name):
            out = tmp_path / name
            with limited(resource.RLIMIT_FSIZE, 2_000):
                code, said = outcome(run, out)
            assert code == 2, (name, said)
            assert "cannot write" in last_line(said), (name, said)
            halves = [path.name for path in out.rglob("*.safetensors") if path.stat().st_size <= 2_000]
            assert halves == [], name


@pytest.mark.skipif(sys.platform != "linux", reason="counts the descriptors in /proc")
def test_no_free_descriptors_is_one_line_and_loses_nothing(
    base: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name, run in writers(base).items():
        with subtests.test(name):
            for number in (0, 2):
                out = tmp_path / f"{name}-{number}"
                with free_descriptors(number):
                    code, said = outcome(run, out)
                if code:  # a command that opens one file at a time needs no more
                    assert code == 2, (name, number, said)
                    assert "Too many open files" in last_line(said), (name, number, said)
                    assert "ulimit -n" in last_line(said), (name, number, said)
                assert code or number, (name, number)
                if name in ("summaries", "stories", "corpus"):
                    assert outcome(run, out)[0] == 0, (name, number)
                    assert not [path.name for path in out.rglob("*.part")], (name, number)
    ids = [json.loads(line)["id"] for line in (tmp_path / "summaries-0" / "summaries.jsonl").open(encoding="utf-8")]
    assert ids == [f"a{k}" for k in range(40)]
    for command in (["corpora.build", str(base / "a.jsonl"), "--out", str(tmp_path / "child")],):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5)),
        )
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert "Too many open files" in done.stderr


def test_a_folder_that_cannot_be_written_is_one_line(base: Path, tmp_path: Path, subtests: pytest.Subtests) -> None:
    (tmp_path / "file").write_text("")
    for name, run in writers(base).items():
        with subtests.test(name):
            code, said = outcome(run, tmp_path / "file" / "out")
            assert code == 2, (name, said)
            assert "cannot write" in last_line(said) or "Not a directory" in last_line(said), (name, said)


def test_no_home_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(UsageError, match="set HOME or XDG_CACHE_HOME"):
        cache_root()


def test_a_clock_that_goes_back_brings_no_old_checkpoint_and_no_failure_back(tmp_path: Path) -> None:
    for step, time in ((4, 2_000_000_000), (8, 1_000_000_000)):
        path = tmp_path / f"checkpoint-{step}"
        path.mkdir()
        write_signed(path / MANIFEST, {"schema": 1, "run": "a", "step": step, "files": {}, "states": {}})
        os.utime(path, (time, time))
    assert last_checkpoint(tmp_path, "a") == str(tmp_path / "checkpoint-8")
    key = ("nsmc-sample", "a", 0)
    record_failure(tmp_path, key, "no weights")
    clear_failure(tmp_path, key)  # the cell is finished, whatever time it says
    assert find_failures(tmp_path) == []


def test_a_second_process_does_not_train_in_the_same_folder(
    base: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    model, articles = str(base / "model"), str(base / "a.jsonl")
    trainers: dict[str, Run] = {
        name: writers(base)[name] for name in ("conversion", "vocabulary", "fine-tuning", "pretraining")
    }
    trainers |= {
        "headlines": lambda out: headline(["train", articles, "--model", model, "--out", str(out)]),
        "labels of one's own": lambda out: clickbait(["train", articles, "--out", str(out)]),
        "an embedder": lambda out: embed(["train", "kpfsbert", "--model", model, "--out", str(out)]),
        "a moderator": lambda out: moderate(["train", "--out", str(out)]),
    }
    for name, run in trainers.items():
        with subtests.test(name):
            out = tmp_path / name
            with locked(out / LOCK_FILE, is_kept=False):
                code, said = outcome(run, out)
            assert code == 2, (name, said)
            assert "another process writes to it" in last_line(said), (name, said)
            assert list(out.iterdir()) == [], name


def at_once(*runs: Callable[[], int]) -> list[int]:
    """Run functions in threads of their own; returns what they return. A lock is between threads as well."""
    codes = [-1] * len(runs)

    def keep(number: int) -> None:
        codes[number] = runs[number]()

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return codes


def test_two_processes_lose_no_article(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, files = tmp_path / "state", [base / "a.jsonl", base / "b.jsonl"]

    def join(file: Path) -> int:
        return find_stories([str(file), "--out", str(tmp_path / "page"), "--stories", str(state), "--model", "letters"])

    assert at_once(*[lambda file=file: join(file) for file in files]) == [0, 0]
    assert len(Stories.load(state).articles) == 80
    out = tmp_path / "summaries.jsonl"
    arguments = [str(base / "a.jsonl"), "--out", str(out)]
    assert at_once(lambda: summarize(arguments), lambda: summarize(arguments)) == [0, 0]
    ids = [json.loads(line)["id"] for line in out.read_text(encoding="utf-8").splitlines()]
    assert ids == [f"a{k}" for k in range(40)]
    capsys.readouterr()
