"""The documents keep their word: twins agree, commands and paths exist, examples run, figures are the files' own."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from downstream.encoders.hub import ENCODERS
from downstream.task import SAMPLE_ROOT, all_tasks, get_task
from eval.cells.files import read_reported
from eval.contestants.contestant import ModelEntry
from pretraining.recipe import read_recipe

ROOT = Path(__file__).resolve().parents[1]
TWINS = ("README.md", "README.en.md")
ENGLISH = sorted((ROOT / "docs").glob("*.en.md"))
PAIRS = (TWINS, *((f"docs/{path.name.replace('.en', '')}", f"docs/{path.name}") for path in ENGLISH))
"""Korean and English."""
DOCUMENTS = (*(name for pair in PAIRS for name in pair), "CONTRIBUTING.md", "CHANGELOG.md", "corpora/sample/SOURCES.md")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[tuple[str, str]]:
    """Return (info string, content) of every fenced block."""
    return FENCE.findall(read(name))


def prose(name: str) -> str:
    return FENCE.sub("", read(name))


def literals(name: str) -> list[str]:
    """Return what a document marks as code: spans, and the lines of its blocks."""
    return re.findall(r"`([^`\n]+)`", prose(name)) + [line for _, block in blocks(name) for line in block.splitlines()]


def commands(name: str) -> list[list[str]]:
    """Return the words of every command in the shell blocks, without assignments in front."""
    lines = [line for info, block in blocks(name) if info == "sh" for line in block.splitlines() if line.strip()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[next(k for k, word in enumerate(line) if "=" not in word) :] for line in words if line]


def program(words: list[str]) -> tuple[str, ...]:
    """Return a Python command without its arguments: `-m module`, or a script's path."""
    return tuple(words[1:3] if words[1] == "-m" else words[1:2])


PYTHON_COMMANDS = [words for name in DOCUMENTS for words in commands(name) if words[0] == "python"]
PROGRAMS = sorted(
    {program(words) for words in PYTHON_COMMANDS}
    | {("-m", found) for name in DOCUMENTS for found in re.findall(r"python -m ([\w.]+)", read(name))}
)


@cache
def help_of(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command, "--help"],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


def named_by(info: str) -> list[tuple[str, int, str]]:
    """Return (document, number, content) of every block with this info string; a twin's are the other's."""
    names = [name for name in DOCUMENTS if name not in {english for _, english in PAIRS}]
    return [(name, k, block) for name in names for k, (found, block) in enumerate(blocks(name)) if found == info]


def block_id(block: tuple[str, int, str]) -> str:
    return f"{block[0]}-{block[1]}"


# --- the twins ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_the_twins_have_the_same_levels_of_headings(pair: tuple[str, str]) -> None:
    korean, english = ([len(m) for m in re.findall(r"^(#+) ", prose(name), re.MULTILINE)] for name in pair)
    assert korean == english
    assert len(korean) > 3


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_the_twins_have_the_same_code_blocks(pair: tuple[str, str]) -> None:
    assert blocks(pair[0]) == blocks(pair[1])
    assert all(read(name).count("\n```") == 2 * len(blocks(name)) for name in pair)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_the_twins_have_tables_of_the_same_shape(pair: tuple[str, str]) -> None:
    korean, english = ([line.count("|") for line in prose(name).splitlines() if line[:1] == "|"] for name in pair)
    assert korean == english


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_the_twins_have_the_same_figures(pair: tuple[str, str]) -> None:
    korean, english = (sorted(re.findall(r"\d+\.\d{2,}", prose(name))) for name in pair)
    assert korean == english


# --- what they name -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_target_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    assert {found for text in literals(name) for found in re.findall(r"\bmake ([a-z][\w-]*)", text)} <= targets


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_exists(name: str) -> None:
    pattern = r"(?<![\w/.-])(?:(?:corpora|pretraining|downstream|eval|apps|tests|benchmarks|docs)/[\w./-]*|\.ci/\w+)"
    named = {path for text in literals(name) for path in re.findall(pattern, text)}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_to_a_file(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", prose(name))
    assert [link for link in links if not ((ROOT / name).parent / link).is_file()] == []


def test_the_official_layout_is_the_registrys() -> None:
    listed = {line.removeprefix("DATA/") for line in literals(TWINS[0]) if line.startswith("DATA/")}
    published = {file.path for task in all_tasks().values() if not task.base for file in task.files.values()}
    assert listed
    assert listed <= published


def test_the_published_comparison_is_the_files() -> None:
    reported: dict[str, list[str]] = {}
    for task in ("nsmc", "klue-nli", "klue-sts", "korquad", "klue-mrc"):
        for metric in get_task(task).metrics:
            for row in read_reported():
                if (row.task, row.metric) == (task, metric.key) and row.value is not None:
                    reported.setdefault(ENCODERS[row.model].title, []).append(f"{100 * row.value:.2f}")
    for name in TWINS:
        rows = [line for line in prose(name).splitlines() if re.match(r"\| \S*BERT \|", line)]
        figures = {line.split("|")[1].strip(): re.findall(r"\d+\.\d\d", line) for line in rows}
        assert figures == reported


def test_what_was_tried_has_the_figures_of_the_studies() -> None:
    rows = re.findall(r"^\|.*?\| ([^|]+) \| \[[\w-]+\]\((studies/[^)]+)\) \|$", read("docs/pretraining.en.md"), re.M)
    assert len(rows) >= 6
    for figures, page in rows:
        scores = re.findall(r"(?<=\| )(\d+\.\d\d)(?= \[)", read(f"docs/{page}"))
        assert set(re.findall(r"\d+\.\d\d", figures)) <= set(scores), page


def test_the_sources_of_the_sample_count_what_is_there() -> None:
    entries = dict(re.findall(r"^\| `([\w./-]+)` \|[^|]*\| (\d+) \|", read("corpora/sample/SOURCES.md"), re.MULTILINE))
    counted = {
        task.files[split].path: str(len(task.read_split(split, SAMPLE_ROOT).examples))
        for task in all_tasks().values()
        if task.is_sample and task.derive is None
        for split in task.files
    }
    counted["news.jsonl"] = str(len(read("corpora/sample/news.jsonl").splitlines()))
    assert entries == counted


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTS)
def test_shell_blocks_hold_known_commands_only(name: str) -> None:
    known = {"echo", "make", "python", "source", "export", "torchrun", "accelerate"}
    assert {words[0] for words in commands(name)} <= known


@pytest.mark.parametrize("command", PROGRAMS, ids=" ".join)
def test_every_command_answers_help(command: tuple[str, ...]) -> None:
    done = help_of(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--help" in done.stdout


@pytest.mark.parametrize("words", PYTHON_COMMANDS, ids=" ".join)
def test_every_option_of_a_command_is_in_its_help(words: list[str]) -> None:
    assert {word for word in words if word.startswith("--")} <= options(help_of(*program(words)).stdout)


@pytest.mark.parametrize("name", TWINS)
def test_every_option_in_prose_belongs_to_a_command(name: str) -> None:
    spans = re.findall(r"`([^`\n]+)`", prose(name))
    known = {option for command in PROGRAMS for option in options(help_of(*command).stdout)}
    assert {option for span in spans for option in options(span)} <= known


@pytest.mark.parametrize("words", [w for w in PYTHON_COMMANDS if "--tasks" in w], ids=" ".join)
def test_every_task_on_a_command_line_exists(words: list[str]) -> None:
    behind = words[words.index("--tasks") + 1 :]
    names = behind[: next((k for k, word in enumerate(behind) if word.startswith("--")), len(behind))]
    assert names
    assert [get_task(name).name for name in names] == names


# --- examples -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", named_by("python") + named_by("python run"), ids=block_id)
def test_every_example_compiles(block: tuple[str, int, str]) -> None:
    compile(block[2], block_id(block), "exec")


@pytest.mark.parametrize("block", named_by("python run"), ids=block_id)
def test_every_example_marked_so_runs(block: tuple[str, int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(block[2], block_id(block), "exec"), {"__name__": "example"})


@pytest.mark.parametrize("block", named_by("toml"), ids=block_id)
def test_every_toml_block_is_valid(block: tuple[str, int, str], tmp_path: Path) -> None:
    values = tomllib.loads(block[2])
    if "objective" in values:
        path = tmp_path / "recipe.toml"
        path.write_text(block[2], encoding="utf-8")
        assert read_recipe(path).objective["name"] == values["objective"]["name"]
    else:
        entries = values["models"]
        assert [ModelEntry(name=name, **entry).name for name, entry in entries.items()] == list(entries)
