"""Leases: one holder at a time, on any number of hosts; what falls silent is taken over, and the silent one notices."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.foundation.errors import UsageError
from eval.cells import leases
from eval.cells.leases import LeaseTakenError, is_taken, leased

ROOT = Path(__file__).resolve().parents[3]
Fails = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(leases.EXPIRY_VARIABLE, "0.4")
    return tmp_path / "models" / "nsmc" / "tfidf" / ".seed-0.lease"


def foreign(path: Path, number: int = 1, beat: int = 0, token: str = "silent") -> Path:
    """Write the file of another host's process."""
    file = path.with_name(f"{path.name}.{number}")
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"token": token, "host": "elsewhere", "process": 1, "beat": beat}
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def test_a_lease_has_one_holder_and_leaves_nothing_behind(path: Path, tmp_path: Path) -> None:
    with leased(path) as lease:
        assert lease.is_held()
        assert is_taken(path)
        with pytest.raises(LeaseTakenError), leased(path, is_waiting=False):
            pytest.fail("two holders")
        time.sleep(0.6)  # longer than the expiry: its heartbeats keep it
        assert is_taken(path)
        with pytest.raises(LeaseTakenError), leased(path, is_waiting=False):
            pytest.fail("a living holder lost its lease")
    assert not is_taken(path)
    assert list(tmp_path.iterdir()) == []


def test_a_lease_of_a_process_of_this_host_that_has_ended_is_taken_over_at_once(path: Path) -> None:
    code = "import os, pathlib, sys; from eval.cells.leases import leased\n"
    code += "held = leased(pathlib.Path(sys.argv[1])); held.__enter__(); os._exit(1)"
    environment = os.environ | {leases.EXPIRY_VARIABLE: "60"}
    subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False, env=environment)
    assert [file.name for file in path.parent.iterdir()] == [".seed-0.lease.1"]
    assert not is_taken(path)
    with leased(path, is_waiting=False) as lease:
        assert lease.number == 2


def test_a_silent_holder_elsewhere_is_taken_over_after_the_expiry_and_a_living_one_is_not(path: Path) -> None:
    foreign(path)
    started = time.monotonic()
    with leased(path) as lease:
        assert 0.4 <= time.monotonic() - started < 5
        assert lease.number == 2
    for beat in range(8):  # as many heartbeats as make twice the expiry
        foreign(path, beat=beat, token="living")
        assert is_taken(path)
        time.sleep(0.1)
    path.with_name(f"{path.name}.1").unlink()


def test_a_damaged_lease_expires_like_any_other(path: Path) -> None:
    foreign(path).write_text('{"half": ', encoding="utf-8")
    with leased(path) as lease:
        assert lease.number == 2


def test_who_was_stopped_for_too_long_finds_its_lease_lost(path: Path) -> None:
    with leased(path) as lease:
        other = foreign(path, number=2)
        assert not lease.is_held()
        time.sleep(0.2)  # a heartbeat of the one that lost it changes nothing
        assert not lease.is_held()
    assert other.is_file()  # the lease of the other is not removed


def test_of_many_that_find_a_lease_expired_one_takes_it_over(path: Path) -> None:
    foreign(path)
    holders, most = 0, 0
    numbers: list[int] = []
    guard = threading.Lock()

    def work() -> None:
        nonlocal holders, most
        with leased(path) as lease:
            with guard:
                holders += 1
                most = max(most, holders)
                numbers.append(lease.number)
            time.sleep(0.02)
            with guard:
                holders -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (most, len(numbers)) == (1, 8)


def test_a_wrong_expiry_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails) -> None:
    for value in ("soon", "0", "-1", "inf"):
        monkeypatch.setenv(leases.EXPIRY_VARIABLE, value)
        with fails(UsageError, leases.EXPIRY_VARIABLE), leased(path):
            pytest.fail(value)


@pytest.mark.slow
def test_processes_of_two_hosts_that_are_killed_end_with_the_same_leaderboard() -> None:
    """The benchmark `benchmarks.cell_queue` with fewer kills and tasks."""
    tasks = ("--tasks", "nsmc-sample", "klue-sts-sample")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cell_queue", "--kills", "3", "--processes", "3", *tasks],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["same_bytes"], done.stderr[-2000:]
    assert answer["killed"] >= 1
