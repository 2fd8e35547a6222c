"""Completion offers verbs, actions and options; the scripts are valid for the shells that are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from apps.command import VERBS, main
from apps.completion import SCRIPTS, candidates

MODULES = {name: verb.module for name, verb in VERBS.items()}


def test_verbs_actions_and_options_are_offered() -> None:
    assert candidates([], MODULES) == sorted(VERBS)
    assert {"--sentences", "--json", "--help"} <= set(candidates(["summarize"], MODULES))
    assert {"train", "encode", "--help"} <= set(candidates(["embed"], MODULES))
    assert {"--model", "--seed"} <= set(candidates(["embed", "train"], MODULES))
    assert candidates(["completion"], MODULES) == ["bash", "fish", "zsh"]
    assert candidates(["nonsense"], MODULES) == candidates(["demo"], MODULES) == []


def test_the_scripts_are_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SCRIPTS:
        assert main(["completion", shell]) == 0
        script = tmp_path / shell
        script.write_text(capsys.readouterr().out, encoding="utf-8")
        assert "pressbert --complete" in script.read_text(encoding="utf-8")
        if program := shutil.which(shell):
            done = subprocess.run([program, "-n", str(script)], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), shell


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    if (bash := shutil.which("bash")) is None:
        pytest.skip("bash is not installed")
    program = tmp_path / "pressbert"
    program.write_text('#!/bin/sh\necho "$@" >> "$0.log"\nprintf "summarize\\nstories\\nembed\\n"\n', encoding="utf-8")
    program.chmod(0o755)
    script = SCRIPTS["bash"] + 'COMP_WORDS=(pressbert s); COMP_CWORD=1; _pressbert; echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(
        [bash, "-c", script], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["summarize", "stories"], done.stderr
    assert (tmp_path / "pressbert.log").read_text(encoding="utf-8").strip() == "--complete"
