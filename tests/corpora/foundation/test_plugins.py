"""Plug-ins are found by their entry points, in other packages that are installed; faulty ones are named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corpora.foundation.plugins import GROUPS, PREFIX

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "plugin"
USE = """
import json, pathlib, sys
from apps.desk.checkers import accept, check
from corpora.documents import read_documents
from downstream.task import all_tasks
from pressbert.checks import check_reader, check_task
import pressbert_wire

root = pathlib.Path(sys.argv[1])
documents = list(read_documents(root / "wire" / "train.wire"))
draft = '그는 "가자"라고 했다.'
[found] = [correction for correction in check(draft) if correction.tool == "straight-quotes"]
results = check_task("wire-section", root=root) + check_reader(pressbert_wire.READER, root / "wire" / "train.wire")
print(json.dumps({
    "is_task": "wire-section" in all_tasks(),
    "titles": [document.title for document in documents],
    "draft": accept(draft, found),
    "passed": sum(result.status == "passed" for result in results),
    "failed": [result.name for result in results if result.status == "failed"],
}))
"""


def installed(folder: Path, entry_points: str, **modules: str) -> Path:
    """Write what pip would leave of a package: its modules and its metadata."""
    info = folder / "pressbert_wire-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pressbert-wire\nVersion: 0.1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return folder


def run(folder: Path, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_example_adds_a_task_a_reader_and_a_tool(tmp_path: Path) -> None:
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLE.glob("*.*")) <= 60
    project = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    declared = [line.split(".", 1)[1] for line in project.splitlines() if line.startswith("entry-points.")]
    groups: dict[str, list[str]] = {}
    for line in declared:
        group, _, entry = line.removeprefix('"').partition('".')
        groups.setdefault(group, []).append(entry.replace('"', ""))
    points = "".join(f"[{group}]\n" + "\n".join(entries) + "\n" for group, entries in groups.items())
    assert sorted(groups) == ["pressbert.readers", "pressbert.tasks", "pressbert.tools"]
    folder = installed(tmp_path / "site", points, pressbert_wire=(EXAMPLE / "pressbert_wire.py").read_text("utf-8"))
    data = tmp_path / "data" / "wire"
    data.mkdir(parents=True)
    rows = ["sports|막판 역전골로 웃은 원정팀|경기가 끝났다.", "economy|기준금리 동결|금리는 그대로다."]
    lines = ["sports|홈팀이 이겼다|접전이었다.", "economy|환율이 올랐다|달러가 강세다."]
    (data / "train.wire").write_text("\n".join([*rows, *lines]), encoding="utf-8")
    (data / "dev.wire").write_text(
        "sports|연장 끝에 비겼다|골은 없었다.\neconomy|수출이 늘었다|반도체 덕이다.", encoding="utf-8"
    )
    done = run(folder, USE, str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["is_task"]
    assert found["titles"][:2] == ["막판 역전골로 웃은 원정팀", "기준금리 동결"]
    assert found["draft"] == "그는 “가자”라고 했다."
    assert found["failed"] == []
    assert found["passed"] >= 60


def test_faulty_plugins_are_named_in_one_line(tmp_path: Path, subtests: pytest.Subtests) -> None:
    code = "from corpora.foundation.errors import SuiteError\nfrom downstream.task import all_tasks\n"
    code += "try:\n    all_tasks()\nexcept SuiteError as error:\n    print(error)\n"
    task = (EXAMPLE / "pressbert_wire.py").read_text(encoding="utf-8")
    for number, (source, what) in enumerate(
        (
            ("raise RuntimeError('no licence')", "cannot be loaded (RuntimeError: no licence)"),
            ("TASK = 3", "3 is no Task"),
            (task.replace('"wire-section"', '"nsmc"'), "pressbert.tasks has a part of this name"),
        )
    ):
        with subtests.test(what=what):
            points = "[pressbert.tasks]\nwire = pressbert_wire:TASK\n"
            folder = installed(tmp_path / str(number), points, pressbert_wire=source)
            done = run(folder, code)
            assert what in done.stdout, done.stderr
            assert len(done.stdout.splitlines()) == 1


def test_steps_backends_and_the_rest_are_asked_for_by_their_group(tmp_path: Path) -> None:
    source = """
from corpora.cleaning import Step
from downstream.runtimes.backends import Backend
from eval.contestants.majority import CONTESTANT as Majority
from apps.serving.function_tool import function_tool
from pretraining.objectives.dynamic_mlm import OBJECTIVE as Dynamic

def find_quotes(text):
    "Find quotations."
    return [text[text.index("“") + 1 : text.index("”")]] if "“" in text else []

TOOL = function_tool(find_quotes)

class Mine(Dynamic):
    name = "mine"

class Often(Majority):
    kind = "often"

STEP = Step("no-digits", lambda text: "".join(c for c in text if not c.isdigit()))
BACKEND = Backend(lambda network, threads: None, unsupported=lambda: "no such chip")
"""
    names = {"tools": "TOOL", "steps": "STEP", "backends": "BACKEND", "contestants": "Often", "objectives": "Mine"}
    points = "".join(f"[{PREFIX}{group}]\nmine = parts:{name}\n" for group, name in names.items())
    assert set(names) | {"readers", "tasks"} == set(GROUPS)
    code = """
from corpora.cleaning import CleaningConfig, edit
from downstream.runtimes.backends import all_words, unsupported_reason
from eval.contestants.contestant import all_kinds
from pretraining.objective import all_objectives
print(edit("3월 1일에 다리가 열렸다.", CleaningConfig(steps=("no-digits",))))
print("steps" in CleaningConfig().model_dump(), "mine" in all_words()["auto"], unsupported_reason("mine"))
import json
from apps.serving.services import Settings, load_services
service = load_services(Settings(tools={"find-quotes": "bundled"}))["find-quotes"]
items = service.items(service.request(texts=["그는 “가자.”라고 했다."]))
print([json.loads(value) for value in service.compute(items)])
print("often" in all_kinds(), "mine" in all_objectives())
try:
    CleaningConfig(steps=("no-digit",))
except ValueError as error:
    print("did you mean 'no-digits'?" in str(error))
"""
    done = run(installed(tmp_path / "site", points, parts=source), code)
    lines = ["('월 일에 다리가 열렸다.', {'no-digits'})", "False True no such chip", "[['가자.']]", "True True", "True"]
    assert done.stdout.splitlines() == lines, done.stderr
