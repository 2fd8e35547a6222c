"""The documents keep their word: twins agree, commands parse, links resolve, examples run, figures are the files' own.

Every test loops over the documents and lists what is wrong as `document: line`.
"""

import argparse
import contextlib
import importlib
import importlib.util
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apps.clustering import ClusteringConfig
from apps.demo import PAGES
from corpora.foundation.files import SAMPLE_ROOT
from downstream.embeddings.recipe import read_embed_recipe
from downstream.encoders.hub import ENCODERS
from downstream.runtimes.backends import WORDS
from downstream.task import all_tasks, get_task
from eval.board.rows import read_reported
from eval.contestants.contestant import all_kinds, read_entry
from pretraining.objective import all_objectives
from pretraining.recipe import read_recipe

ROOT = Path(__file__).resolve().parents[1]
README = ("README.md", "README.en.md")
EVALUATION = ("docs/evaluation.md", "docs/evaluation.en.md")
PAIRS = (README, *((f"docs/{p.name.replace('.en', '')}", f"docs/{p.name}") for p in sorted(ROOT.glob("docs/*.en.md"))))
"""Korean and English."""
OTHERS = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "corpora/sample/SOURCES.md", "examples/README.md")
DOCUMENTS = tuple(name for name in (*(name for pair in PAIRS for name in pair), *OTHERS) if (ROOT / name).is_file())
ENGLISH = tuple(name for name in DOCUMENTS if name not in {korean for korean, _ in PAIRS})
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"\d+\.\d{2,}")
FOLDERS = "corpora|pretraining|downstream|eval|apps|tests|benchmarks|docs|examples"
PLACES = rf"(?<![\w/.-])(?:(?:{FOLDERS})/[\w./-]*|\.ci/\w+)"
NOT_OURS = {"pytest", "streamlit"}
UNCLEAR = ("told apart", "to be had", "untold", "goes on", "as it stands")
"""Phrases that had a private meaning in this project."""


class Block(NamedTuple):
    """A fenced block."""

    document: str
    info: str
    text: str


class Command(NamedTuple):
    """A line of a shell block, without assignments in front."""

    document: str
    line: str
    words: list[str]

    @property
    def module(self) -> str:
        """The module or script that Python runs, also below torchrun and accelerate; empty for other programs."""
        if "-m" in self.words:
            return self.words[self.words.index("-m") + 1]
        if self.words[0] == "pressbert":
            return "apps.command"
        return self.words[1] if self.words[0] == "python" else ""

    @property
    def arguments(self) -> list[str]:
        return self.words[1 if self.words[0] == "pressbert" else self.words.index(self.module) + 1 :]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, info: str | None = None) -> list[Block]:
    found = [Block(name, *match) for match in FENCE.findall(read(name))]
    return [block for block in found if info in (None, block.info)]


def prose(name: str) -> str:
    return FENCE.sub("", read(name))


def literals(name: str) -> list[str]:
    """Return what a document marks as code: spans, and the lines of its blocks."""
    return re.findall(r"`([^`\n]+)`", prose(name)) + [
        line for block in blocks(name) for line in block.text.splitlines()
    ]


def commands() -> Iterator[Command]:
    for name in DOCUMENTS:
        for block in blocks(name, "sh"):
            for line in filter(str.strip, block.text.splitlines()):
                for part in line.split(" | "):
                    words = shlex.split(part, comments=True)
                    yield Command(name, line, words[next(k for k, word in enumerate(words) if "=" not in word) :])


def programs() -> list[str]:
    """Return every module and script of ours that a document runs or names behind `python -m`, but for examples."""
    named = {found.rstrip(".") for name in DOCUMENTS for found in re.findall(r"python -m ([\w.]+)", read(name))}
    found = ({command.module for command in commands()} | named) - {"", *NOT_OURS}
    return sorted(program for program in found if not program.startswith("examples/"))


def main_of(program: str) -> Any:
    """Return the `main` of a module, package or script."""
    if program.endswith(".py"):
        program = program.removesuffix(".py").replace("/", ".")
    specification = importlib.util.find_spec(program)
    is_package = specification is not None and specification.submodule_search_locations is not None
    return importlib.import_module(f"{program}.__main__" if is_package else program).main


class Parsed(BaseException):
    """Raised as soon as a command line is parsed, so that the command does nothing."""


def parse(monkeypatch: pytest.MonkeyPatch, program: str, arguments: list[str]) -> str:
    """Parse ARGUMENTS with the command's own parser; returns what is wrong with them, or nothing."""
    original, depth = argparse.ArgumentParser.parse_known_args, [0]

    def parse_known_args(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        depth[0] += 1
        namespace, unknown = original(self, *args, **kwargs)
        depth[0] -= 1
        if depth[0]:  # a subparser
            return namespace, unknown
        raise Parsed(f"unknown {unknown}" if unknown else "")

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_known_args", parse_known_args)
        try:
            main_of(program)(arguments)
        except Parsed as parsed:
            return str(parsed)
        except (Exception, SystemExit) as error:
            return f"{type(error).__name__}: {error}"
    return "never parsed"


def help_of(program: str, *before: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main_of(program)([*before, "--help"])
    return text.getvalue()


def options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


def anchors(name: str) -> set[str]:
    """Return the anchors that GitHub makes of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(name), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def tables(name: str) -> list[list[list[str]]]:
    """Return the cells of every table, header first and without the line of dashes."""
    found = re.findall(r"^\|.+\n\|[ :|-]+\n(?:\|.*\n?)+", prose(name), re.MULTILINE)
    cells = [[[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()] for table in found]
    return [[table[0], *table[2:]] for table in cells]


# --- the twins ------------------------------------------------------------------------------------------------------


def test_the_twins_have_the_same_shape() -> None:
    for korean, english in PAIRS:
        levels = [[len(m) for m in re.findall(r"^(#+) ", prose(name), re.MULTILINE)] for name in (korean, english)]
        assert levels[0] == levels[1], f"{korean}: other levels of headings than {english}"
        assert len(levels[0]) >= 3, korean
        pairs = zip(blocks(korean), blocks(english), strict=True)
        different = [block.text for block, other in pairs if block[1:] != other[1:]]
        assert different == [], f"{korean}: other code than {english}"
        for name in (korean, english):
            assert read(name).count("\n```") == 2 * len(blocks(name)), f"{name}: a fence is not closed"
        shapes = [[[len(row) for row in table] for table in tables(name)] for name in (korean, english)]
        assert shapes[0] == shapes[1], f"{korean}: other tables than {english}"
        figures = [sorted(FIGURE.findall(prose(name))) for name in (korean, english)]
        assert figures[0] == figures[1], f"{korean}: other figures than {english}"


def test_a_newcomer_sees_picture_commands_and_python_on_the_first_screen() -> None:
    for name in README:
        head = "\n".join(read(name).splitlines()[:22])
        for needed in ("<img src=", "```sh\nmake demo", "make leaderboard", "```python run\n", "print(summarize("):
            assert needed in head, f"{name}: {needed} comes later than line 22"


def test_the_first_paragraph_says_whether_a_published_encoder_was_measured() -> None:
    rows = json.loads(read("docs/reports/leaderboard.json"))["rows"]
    published = {row.model for row in read_reported()}
    measured = [row for row in rows if row["model"] in published and row["source"] == "measured" and row["value"]]
    for name, words in zip(
        README, ("아직 여기에서 측정하지 않았습니다", "No published encoder has been measured here yet"), strict=True
    ):
        paragraph = read(name).split("\n\n")[2]
        assert (words in paragraph) == (not measured), name


def test_the_words_are_plain() -> None:
    found = [f"{name}: {phrase}" for name in ENGLISH for phrase in UNCLEAR if phrase in " ".join(prose(name).split())]
    assert found == []


def test_bold_text_ends_where_markdown_sees_it() -> None:
    lines = [f"{name}: {line}" for name in DOCUMENTS for line in prose(name).splitlines()]
    assert [line for line in lines if re.search(r"\*\*[^*\s][^*]*[^\w*\s]\*\*\w", line)] == []


def test_the_page_on_evaluation_takes_ten_minutes() -> None:
    words = [word for word in prose(EVALUATION[1]).split() if re.search(r"\w", word)]
    assert len(words) <= 2000


# --- what they name -------------------------------------------------------------------------------------------------


def test_everything_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    missing = []
    for name in DOCUMENTS:
        made = {found for text in literals(name) for found in re.findall(r"\bmake ([a-z][\w-]*)", text)}
        missing += [f"{name}: make {target}" for target in sorted(made - targets)]
        paths = {path for text in literals(name) for path in re.findall(PLACES, text)}
        missing += [f"{name}: {path}" for path in sorted(paths) if not (ROOT / path).exists()]
    assert missing == []


def test_every_link_and_picture_leads_somewhere() -> None:
    broken = []
    for name in DOCUMENTS:
        links = re.findall(r"\]\(([^)\s]+)\)", prose(name)) + re.findall(r'src="([^"]+)"', prose(name))
        for link in links:
            path, _, anchor = link.partition("#")
            target = ((ROOT / name).parent / path) if path else ROOT / name
            if not target.is_file():
                broken.append(f"{name}: {link}")
            elif anchor and anchor not in anchors(str(target.resolve().relative_to(ROOT))):
                broken.append(f"{name}: {link} (no such heading)")
    assert broken == []


def test_the_official_layout_is_the_registrys() -> None:
    published = {file.path for task in all_tasks().values() if not task.base for file in task.files.values()}
    for name in EVALUATION:
        listed = {line.removeprefix("DATA/") for line in literals(name) if line.startswith("DATA/")}
        assert listed, name
        assert listed <= published, name


def test_the_tables_list_everything_there_is() -> None:
    listed = {
        "evaluation": (all_kinds(), [task.name for task in all_tasks().values() if not task.is_sample]),
        "experiments": ([path.stem for path in ROOT.glob("eval/studies/*.toml")],),
        "pretraining": (all_objectives(), [path.stem for path in ROOT.glob("pretraining/recipes/*.toml")]),
        "serving": (WORDS,),
    }
    for guide, names in listed.items():
        for name in (f"docs/{guide}.md", f"docs/{guide}.en.md"):
            cells = {
                span
                for table in tables(name)
                for row in table
                for cell in row
                for span in re.findall(r"`([^`]+)`", cell)
            }
            assert {entry for group in names for entry in group} - cells == set(), name


def test_the_guide_to_the_demo_names_its_pages_and_fields_as_they_are_called() -> None:
    pages = tuple(page.name for page in PAGES)
    for name, language in (("docs/demo.md", "ko"), ("docs/demo.en.md", "en")):
        texts = tomllib.loads(read(f"corpora/texts/{language}.toml"))["demo"]
        assert [row[0] for row in tables(name)[0][1:]] == [texts[page]["title"] for page in pages], name
        for field in ("add", "runtime"):
            assert f"*{texts['sidebar'][field]}*" in prose(name), f"{name}: {field}"


# --- figures --------------------------------------------------------------------------------------------------------


def reported_cells() -> dict[frozenset[str], set[str]]:
    """Return the figures of the reference report by {task, model}, and differences by {task, model, model}."""
    report = json.loads(read("docs/reports/leaderboard.json"))
    found: dict[frozenset[str], set[str]] = {}
    for row in report["rows"]:
        values = [row["value"], *(clean["value"] for clean in row["clean"])]
        figures = {f"{100 * value:.2f}" for value in values if value is not None}
        found.setdefault(frozenset((row["task"], row["model"])), set()).update(figures)
    for row in report["comparisons"]:
        figures = {f"{100 * abs(value):.2f}" for value in (row["difference"], *row["ci95"])}
        found[frozenset((row["task"], row["a"], row["b"]))] = figures
    return found


def test_the_measured_figures_are_the_reports() -> None:
    reported = reported_cells()
    for name in (*README, *EVALUATION, "docs/embeddings.md", "docs/embeddings.en.md"):
        checked = 0
        for header, *lines in tables(name):
            for line in lines:
                for column, cell in zip(header[1:], line[1:], strict=True):
                    key = frozenset(re.findall(r"`([\w-]+)`", f"{line[0]} {column}"))
                    for figure in FIGURE.findall(cell) if key in reported else ():
                        assert figure in reported[key], f"{name}: {sorted(key)}: {figure}"
                        checked += 1
        assert checked >= 6, name


def test_the_published_figures_are_the_files() -> None:
    reported: dict[str, list[str]] = {}
    for task in ("nsmc", "klue-nli", "klue-sts", "korquad", "klue-mrc"):
        for metric in get_task(task).metrics:
            for row in read_reported():
                is_published_with_kpfbert = row.reference.startswith("KPFBERT/")
                if is_published_with_kpfbert and (row.task, row.metric) == (task, metric.key) and row.value is not None:
                    reported.setdefault(ENCODERS[row.model].title, []).append(f"{100 * row.value:.2f}")
    for name in README:
        rows = [line for line in prose(name).splitlines() if re.match(r"\| \S*BERT \|", line)]
        assert {line.split("|")[1].strip(): FIGURE.findall(line) for line in rows} == reported, name


def test_what_was_tried_has_the_figures_of_the_studies() -> None:
    rows = re.findall(r"^\|.*?\| ([^|]+) \| \[[\w-]+\]\((studies/[^)]+)\) \|$", read("docs/pretraining.en.md"), re.M)
    assert len(rows) >= 6
    for figures, page in rows:
        scores = re.findall(r"(?<=\| )(\d+\.\d\d)(?= \[)", read(f"docs/{page}"))
        assert set(re.findall(r"\d+\.\d\d", figures)) <= set(scores), page


def test_the_figures_of_speed_are_the_benchmarks() -> None:
    for guide, number in (("serving", 20), ("clustering", 4)):
        measured = set(re.findall(r"\d+\.\d+", read(f"docs/benchmarks/{guide}.md")))
        for name in (f"docs/{guide}.md", f"docs/{guide}.en.md"):
            some = tables(name) if guide == "serving" else tables(name)[:1]
            cells = [cell for table in some for row in table for cell in row[1:]]
            # Not the parts of an address such as 0.0.0.0.
            quoted = {figure for cell in cells for figure in re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", cell)}
            assert len(quoted) >= number, name
            assert quoted <= measured, f"{name}: {quoted - measured}"


def test_the_figures_of_the_model_of_comments_are_the_benchmarks() -> None:
    [across] = re.findall(r"^\| beep \| k-mhas \|(.*)$", read("docs/benchmarks/moderate.md"), re.MULTILINE)
    measured = set(re.findall(r"0\.\d+", across))
    for name, model in zip(README, ("댓글 모델", "model of comments"), strict=True):
        [row] = [line for line in prose(name).splitlines() if line.startswith(f"| {model} |")]
        quoted = set(re.findall(r"0\.\d+", row))
        assert len(quoted) >= 2, name
        assert quoted <= measured, f"{name}: {quoted - measured}"


def test_the_figures_of_the_model_of_headlines_are_the_benchmarks() -> None:
    [all_sources] = re.findall(r"^\| all \|(.*)\|$", read("docs/benchmarks/headlines.md"), re.MULTILINE)
    number, headline, sentence, beginning, *_ = (cell.strip() for cell in all_sources.split("|"))
    for name in ("README.md", "README.en.md", "docs/headlines.md", "docs/headlines.en.md"):
        assert all(value in read(name) for value in (number, headline, sentence)), name
        assert name.startswith("README") or beginning in read(name), name


def test_the_settings_of_clustering_have_their_defaults() -> None:
    defaults = ClusteringConfig().model_dump(exclude={"by_category"})
    for name in ("docs/clustering.md", "docs/clustering.en.md"):
        rows = [row for table in tables(name) for row in table if row[0].startswith("`") and len(row) == 3]
        pairs = [pair for row in rows for pair in zip(re.findall(r"`(\w+)`", row[0]), row[1].split(","), strict=False)]
        said = {key: type(defaults[key])(value.strip("` ")) for key, value in pairs if key in defaults}
        assert said == defaults, name


@pytest.mark.slow
def test_the_scores_of_summaries_are_measured_again(capsys: pytest.CaptureFixture[str]) -> None:
    main_of("downstream.summarize")(["evaluate", str(SAMPLE_ROOT / "news.jsonl"), "--split", "dev"])
    printed = re.findall(r"^\| ([\w-]+) \|(.*)$", capsys.readouterr().out, re.MULTILINE)
    measured = {system: set(re.findall(r"\d+\.\d+", figures)) for system, figures in printed}
    for name in ("docs/summarization.md", "docs/summarization.en.md"):
        systems = re.findall(r"^\| `([\w-]+)` \|(.* \[.*)$", prose(name), re.MULTILINE)
        assert len(systems) == 5, name
        for system, figures in systems:
            assert set(re.findall(r"\d+\.\d+", figures)) <= measured[system], f"{name}: {system}"


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


def test_shell_blocks_hold_known_commands_only() -> None:
    known = {"accelerate", "echo", "export", "make", "pressbert", "python", "source", "torchrun"}
    assert [f"{c.document}: {c.line}" for c in commands() if c.words[0] not in known] == []


def test_every_command_line_is_one_that_the_commands_parser_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    known, seen = programs(), dict[str, str]()
    for command in commands():
        if command.module in known and command.line not in seen:
            wrong = parse(monkeypatch, command.module, command.arguments)
            seen[command.line] = f"{command.document}: {command.line}: {wrong}" if wrong else ""
    assert len(seen) > 40
    assert list(filter(None, seen.values())) == []


def test_every_option_in_prose_belongs_to_a_command() -> None:
    embed = [("downstream.embed", action) for action in ("encode", "evaluate", "train", "vectors")]
    known = {option for command in [*zip(programs(), strict=True), *embed] for option in options(help_of(*command))}
    for name in DOCUMENTS:
        spans = re.findall(r"`((?!accelerate|docker)[^`\n]+)`", prose(name))
        assert {option for span in spans for option in options(span)} - known == set(), name


def test_every_task_on_a_command_line_exists() -> None:
    for command in commands():
        # Those of a corpus are processes.
        if "--tasks" in command.words and command.module not in {"corpora.build", "benchmarks.corpus"}:
            behind = command.words[command.words.index("--tasks") + 1 :]
            names = behind[: next((k for k, word in enumerate(behind) if word.startswith("--")), len(behind))]
            assert names, command.line
            assert [get_task(name).name for name in names] == names, command.line


# Libraries are imported once; each command is a copy of the process that imports our modules and runs as `__main__`.
FORKED = """
import os, runpy, sys
import numpy, pydantic, rich.console, rich.table

sys.path[0] = os.getcwd()
out, *programs = sys.argv[1:]
for number, program in enumerate(programs):
    process = os.fork()
    if not process:
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{out}/{number}.{name}", os.O_CREAT | os.O_WRONLY), stream)
        sys.argv = [program, "--help"]
        if program.endswith(".py"):
            sys.path[0] = os.path.dirname(os.path.abspath(program))
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        sys.exit("went on behind --help")
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    open(f"{out}/{number}.code", "w").write(str(status))
"""


@pytest.mark.slow
def test_every_command_answers_help_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path), *programs()]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"}, check=True)
    for number, program in enumerate(programs()):
        code, said, shown = ((tmp_path / f"{number}.{name}").read_text("utf-8") for name in ("code", "err", "out"))
        assert (code, said) == ("0", ""), program
        assert "--help" in shown, program


# --- examples -------------------------------------------------------------------------------------------------------


def test_every_python_block_compiles() -> None:
    for name in DOCUMENTS:
        for block in (*blocks(name, "python"), *blocks(name, "python run")):
            compile(block.text, f"{name}: {block.text.splitlines()[0]}", "exec")


def test_every_block_marked_so_runs_and_prints_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    for name in ENGLISH:
        for block in blocks(name, "python run"):
            where = f"{name}: {block.text.splitlines()[0]}"
            exec(compile(block.text, where, "exec"), {"__name__": "example"})
            printed = capsys.readouterr().out.splitlines()
            said = re.findall(r"^# → (.+)$", block.text, re.MULTILINE)
            assert printed[: len(said)] == said, where


def test_every_example_script_is_short_and_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scripts = sorted((ROOT / "examples").glob("*.py"))
    assert len(scripts) >= 3
    monkeypatch.chdir(tmp_path)
    for script in scripts:
        assert len(script.read_text(encoding="utf-8").splitlines()) <= 25, script.name
        runpy.run_path(str(script), run_name="__main__")


def test_every_toml_block_is_valid(tmp_path: Path) -> None:
    for name in ENGLISH:
        for block in blocks(name, "toml"):
            values = tomllib.loads(block.text)
            path = tmp_path / "recipe.toml"
            path.write_text(block.text, encoding="utf-8")
            if "stages" in values:
                assert len(read_embed_recipe(path).stages) == len(values["stages"]), name
            elif "objective" in values:
                assert read_recipe(path).objective["name"] == values["objective"]["name"], name
            else:
                entries = values["models"]
                assert [read_entry(key, entry, name).name for key, entry in entries.items()] == list(entries), name
