"""Commands that are killed and run again write the same bytes as an uninterrupted run."""

import contextlib
import importlib
import io
import os
import signal
import time
from pathlib import Path

import pytest

from benchmarks.kills import check
from tests.attacks.models import build_model


def forked(command: list[str], kill_after_s: float | None) -> int | None:
    """Run a command in a fork of this process, which has imported all it needs; kill it after a time."""
    main = importlib.import_module(command[1]).main
    process = os.fork()
    if not process:
        code = 1
        quiet = io.StringIO()
        with contextlib.suppress(BaseException), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            code = main(command[2:])
        os._exit(code)
    deadline = None if kill_after_s is None else time.monotonic() + kill_after_s
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        if deadline is not None and time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            deadline = None
        time.sleep(0.005)
    return None if os.WIFSIGNALED(ended[1]) else os.waitstatus_to_exitcode(ended[1])


def test_stories_corpora_and_fine_tuning_survive_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr("downstream.finetuning.arguments.CHECKPOINT_STEPS", 20)
    for name in ("stories", "corpora", "finetuning"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "finetuning":
            build_model(folder / "model")
        with subtests.test(name):
            same, kills = check(name, 3, folder, run=forked, kills_a_run=1)
            assert same == 3
            assert kills > 0
