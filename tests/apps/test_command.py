"""`pressbert VERB …` is `python -m MODULE …`."""

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from apps import command, duplicates
from apps.command import VERBS, main, runnable
from corpora.foundation.errors import UsageError

Fails = Callable[..., AbstractContextManager[None]]
Write = Callable[[str, str], Path]
ROOT = Path(__file__).resolve().parents[2]


def test_every_verb_names_a_module_with_a_main() -> None:
    for name, verb in VERBS.items():
        spec = importlib.util.find_spec(runnable(verb.module))
        assert spec is not None, name
        if name != "demo":
            assert "def main(argv" in Path(spec.origin or "").read_text(encoding="utf-8"), name


def test_help_lists_every_verb_and_needs_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in VERBS if f"\n  {name} " not in printed] == []


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("pressbert ")


def test_an_unknown_verb_is_one_line_with_the_closest(fails: Fails) -> None:
    with fails(UsageError, "pressbert", "unknown verb 'sumarize'", "did you mean 'summarize'?"):
        main(["sumarize"])


def test_usage_and_errors_name_what_was_typed(fails: Fails, capsys: pytest.CaptureFixture[str]) -> None:
    for verb, module in (("duplicates", "python -m apps.duplicates"), ("moderate", "python -m downstream.moderate")):
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        assert capsys.readouterr().out.startswith(f"usage: pressbert {verb} ["), verb
        with fails(UsageError, f"pressbert {verb}", "unknown option '--joson'", "did you mean '--json'?"):
            main([verb, "x", "--joson"])
        with fails(UsageError, module, "'--joson'"):
            importlib.import_module(runnable(VERBS[verb].module)).main(["x", "--joson"])
    with fails(UsageError, "pressbert embed train", "see pressbert embed train --help"):
        main(["embed", "train"])


def test_arguments_reach_the_module(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    titles = write("titles.txt", "한강 다리가 열렸다\n한강 다리가 열렸다!\n비가 온다\n")
    assert main(["duplicates", str(titles), "--json"]) == 0
    by_verb = capsys.readouterr()
    assert duplicates.main([str(titles), "--json"]) == 0
    assert capsys.readouterr() == by_verb
    assert len(json.loads(by_verb.out)["members"]) == 2


def test_the_demo_is_streamlit_with_the_path_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def note(program: str, arguments: list[str]) -> None:
        started.append((program, arguments))
        raise SystemExit(0)

    monkeypatch.setattr("os.execv", note)
    with pytest.raises(SystemExit):
        main(["demo", "--server.port", "9000"])
    [(program, arguments)] = started
    assert program == sys.executable
    assert arguments[1:4] == ["-m", "streamlit", "run"]
    assert Path(arguments[4]) == ROOT / "apps" / "demo.py"
    assert arguments[5:] == ["--server.port", "9000"]


def test_a_process_ends_with_the_code_of_its_verb() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "apps.command", "classify", "/nowhere.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("/nowhere.txt: ")
    assert len(done.stderr.splitlines()) == 1
    assert command.run.__doc__
