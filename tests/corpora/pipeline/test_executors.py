"""Executors: the same bytes wherever the tasks run, and jobs of Slurm that wait for each other."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from corpora.build import BuildConfig, build, main
from corpora.foundation.errors import UsageError

Write = Callable[[str, str | bytes], Path]


def archive(write: Write) -> Path:
    records = ({"id": str(k), "text": f"의회가 {k}번째 본회의에서 예산 {k * 37}억 원을 의결했다."} for k in range(30))
    return write("a.jsonl", "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def test_datatrove_gives_the_same_bytes(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("datatrove")
    source = archive(write)
    build([source], tmp_path / "local", BuildConfig())
    build([source], tmp_path / "datatrove", BuildConfig(), executor="datatrove")
    for path in (tmp_path / "local").iterdir():
        assert (tmp_path / "datatrove" / path.name).read_bytes() == path.read_bytes()


def test_jobs_of_slurm_wait_for_the_stage_before(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("datatrove")
    arguments = [str(archive(write)), "--out", str(tmp_path / "out"), "--executor", "slurm", "--tasks", "3"]
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="no sbatch here"):
        main(arguments)
    log = tmp_path / "log"
    sbatch = write("bin/sbatch", f'#!/bin/sh\necho "$@" >> {log}\necho Submitted batch job $(/usr/bin/wc -l < {log})\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert main([*arguments, "--option", "partition=cpu"]) == 0
    assert "run the same command again" in capsys.readouterr().err
    calls = [line for line in log.read_text(encoding="utf-8").splitlines() if "dependency=afterok" in line]
    waited_for = [int(found[1]) for line in calls if (found := re.search(r"afterok:(\d+)", line))]
    assert len(set(waited_for)) >= 7
    scripts = sorted((tmp_path / "out" / ".progress" / "slurm").glob("*/launch_script.slurm"))
    assert len(scripts) == 8
    assert all("--partition=cpu" in script.read_text(encoding="utf-8") for script in scripts)
    assert all("--array=0-2" in script.read_text(encoding="utf-8") for script in scripts)


def test_options_of_executors_are_checked(write: Write, tmp_path: Path) -> None:
    arguments = [str(archive(write)), "--out", str(tmp_path / "out")]
    for more, what in (
        (["--tasks", "0"], "0 processes"),
        (["--option", "partition=cpu"], "for Slurm"),
        (["--executor", "slurm", "--option", "cpu"], "not NAME=VALUE"),
    ):
        with pytest.raises(UsageError, match=what):
            main([*arguments, *more])
