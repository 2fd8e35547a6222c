"""Kill a command, run it again until it ends, and compare what it wrote with an uninterrupted run.

    python -m benchmarks.kills pretraining stories --runs 20
    python -m benchmarks.kills --out docs/benchmarks/kills.md

Every run is killed twice with SIGKILL, which goes to the whole group of processes: when it is about to create, rename
or remove the Nth file of its output folder, and when it is started again, at a time drawn from the length of an
uninterrupted run. Compared are the bytes that must not differ (weights, shards, predictions; times and dates may),
and the names of the files: nothing is left over.
"""

import contextlib
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.stories.records import STATE_FILE, VECTORS
from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from corpora.foundation.files import SAMPLE_ROOT, write_text
from corpora.foundation.machine import cpu_name, versions

NEWS = SAMPLE_ROOT / "news.jsonl"
RECIPE = """
objective = "dynamic_mlm"
data = { corpus = "sample", max_length = 64 }
model = { hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 2 }
loop = { steps = 40, batch_size = 8, warmup_steps = 5, checkpoint_every = 5, log_every = 5 }
"""
RANDOM_PART = re.compile(r"[0-9a-f]{8,}")
"""Of a file's name: digests, which differ where times are digested."""
PRELOADED = [
    *("accelerate", "datasets", "jinja2", "kiwipiepy", "pyarrow", "rich.console", "safetensors.torch", "scipy.sparse"),
    *("matplotlib.backends.backend_agg", "matplotlib.figure", "sklearn.cluster", "sklearn.linear_model", "torch"),
    *("torch.distributed.checkpoint.state_dict", "transformers.models.bert.modeling_bert", "transformers.trainer"),
    *("apps.clustering", "apps.stories.images", "apps.summarize", "corpora.build", "downstream.finetune"),
    *("downstream.finetuning.trainer", "eval.run_all", "pretraining.run", "pretraining.training.loop"),
]
"""What the process imports that the others are forks of."""
LEASE = re.compile(r"\.lease\.\d+$")
"""Of a killed process whose cell was finished: it counts for nothing, and nobody takes it over."""
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate")
Digest = Callable[[Path], str]


# ---- commands ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A command that is killed."""

    command: Callable[[Path, Path], list[str]]
    """Arguments after the interpreter, of a folder with the inputs and the output folder."""
    digest: Digest
    """Of what must not differ."""
    what: str
    """What is compared, for the page."""
    runs: int = 10
    """By default."""
    allowed: tuple[int, ...] = (0,)
    """Exit codes of a finished run."""


def files_digest(*patterns: str) -> Digest:
    """Return a function that digests the files of a folder that match."""

    def digest(out: Path) -> str:
        found = sorted({path for pattern in patterns for path in out.glob(pattern)})
        if not found:
            raise UsageError("benchmarks.kills", f"no {' or '.join(patterns)} in {out}", "see what the command printed")
        whole = hashlib.sha256()
        for path in found:
            whole.update(path.relative_to(out).as_posix().encode() + path.read_bytes())
        return whole.hexdigest()

    return digest


def predictions_digest(out: Path) -> str:
    """Digest the predictions and the metrics of the cells of a leaderboard."""
    cells = {
        path.relative_to(out).as_posix(): [cell["predictions"], cell["columns"], cell["metrics"]]
        for path in sorted(out.glob("results/*/*/*.json"))
        for cell in [json.loads(path.read_text(encoding="utf-8"))]
    }
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def stories_digest(out: Path) -> str:
    """Digest which articles are in which stories, and their vectors."""
    state = json.loads((out / "state" / STATE_FILE).read_text(encoding="utf-8"))
    titles = [article["title"] for article in state["articles"]]
    whole = hashlib.sha256(json.dumps([titles, state["story_of"]], ensure_ascii=False).encode())
    for path in sorted(out.glob(f"state/{VECTORS}")):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def pretraining(inputs: Path, out: Path) -> list[str]:
    """Return the command of a short pretraining."""
    recipe = inputs / "recipe.toml"
    if not recipe.is_file():
        recipe.write_text(RECIPE, encoding="utf-8")
    return ["-m", "pretraining.run", str(recipe), "--out", str(out), "--cpu", "--workers", "1"]


def finetuning(inputs: Path, out: Path) -> list[str]:
    """Return the command of a short fine-tuning."""
    given = inputs / "model"
    # Some checkpoints of it; with a model of its own a few steps, for tests.
    model, epochs = (str(given), 0.1) if given.is_dir() else ("pressbert-mini", 0.6)
    settings = [part for one in (f"epochs={epochs}", "batch_size=1", "max_length=32") for part in ("--set", one)]
    return ["-m", "downstream.finetune", "nsmc-sample", "--model", model, "--out", str(out), *settings]


def stories(inputs: Path, out: Path) -> list[str]:
    """Return the command that finds stories and keeps them."""
    file = inputs / "days.jsonl"
    if not file.is_file():
        write_text(file, "".join(_followed(articles(inputs))))
    folders = ["--out", str(out / "page"), "--stories", str(out / "state")]
    return ["-m", "apps.clustering", str(file), *folders, "--model", "letters"]


def _followed(path: str) -> Iterator[str]:
    """Yield each article of a file with two more about the same, so that there are stories."""
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        article = json.loads(line)
        for part in ("", " 속보", " 종합"):
            yield json.dumps(article | {"id": article["id"] + part, "title": article["title"] + part}) + "\n"


def summaries(inputs: Path, out: Path) -> list[str]:
    """Return the command that summarizes articles."""
    return ["-m", "apps.summarize", articles(inputs), "--out", str(out / "summaries.jsonl")]


def corpora(inputs: Path, out: Path) -> list[str]:
    """Return the command that builds a corpus."""
    return ["-m", "corpora.build", articles(inputs), "--out", str(out)]


def leaderboard(_inputs: Path, out: Path) -> list[str]:
    """Return the command of a comparison of two cheap models."""
    return [
        "-m",
        "eval.run_all",
        "--out",
        str(out),
        "--tasks",
        "nsmc-sample",
        "--models",
        "majority",
        "tfidf",
        "--without",
        "cost",
        "noise",
    ]


def articles(inputs: Path) -> str:
    """Return the path of the articles: those of the folder of inputs if it has any, else the sample."""
    given = inputs / "articles.jsonl"
    return str(given if given.is_file() else NEWS)


CASES = {
    "pretraining": Case(pretraining, files_digest("*.safetensors"), "weights", 20),
    "finetuning": Case(finetuning, files_digest("*.safetensors"), "weights"),
    "stories": Case(stories, stories_digest, "articles, their stories, vectors", 20),
    "summaries": Case(summaries, files_digest("*.jsonl"), "summaries"),
    "corpora": Case(corpora, files_digest("*.jsonl", "manifest.json"), "shards and manifest"),
    "leaderboard": Case(leaderboard, predictions_digest, "predictions, columns, metrics", allowed=(0, 1)),
}


# ---- kills ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kill:
    """When a command is killed; neither: never."""

    after_s: float | None = None
    at_write: int = 0
    """Number of the file operation in the output folder before which it is killed, from 1."""


Runner = Callable[[list[str], Path, Kill], int | None]
"""Runs a command with its output folder; returns its exit code, None if it was killed."""


@contextlib.contextmanager
def counted_writes(out: Path, kill_at: int) -> Iterator[None]:
    """Count what this process does to files of a folder, and kill its group before the operation KILL_AT.

    The number of operations is written to `OUT.writes` at the end.
    """
    prefix, count = str(out), 0

    def is_write(event: str, arguments: tuple[Any, ...]) -> bool:
        if event == "open":
            path, _, flags = arguments
            return bool(flags & (os.O_WRONLY | os.O_RDWR)) and str(path).startswith(prefix)
        return event in CHANGES and str(arguments[0]).startswith(prefix)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if is_write(event, arguments):
            count += 1
            if count == kill_at:
                os.killpg(os.getpgid(0), signal.SIGKILL)

    sys.addaudithook(hook)
    yield
    out.with_suffix(".writes").write_text(str(count), encoding="ascii")


def checkpoint_often() -> None:
    """Let a short fine-tuning write several checkpoints."""
    from downstream.finetuning import arguments

    arguments.CHECKPOINT_STEPS = 60


def run_here(command: list[str], out: Path, kill_at: int, prepare: Callable[[], object]) -> None:
    """Run a command (`-m MODULE …`) in this process; what it says is written to `OUT.said`."""
    prepare()
    os.setsid()
    said = os.open(out.with_suffix(".said"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    _, module, *arguments = command
    with counted_writes(out, kill_at):
        code = importlib.import_module(module).main(arguments)
    sys.exit(code)


def prepare_forks() -> Any:
    """Return the context of processes that are forks of one that has imported all."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def run_forked(
    command: list[str], out: Path, kill: Kill, prepare: Callable[[], object] = checkpoint_often
) -> int | None:
    """Run a command in a fork of a process that has imported it, so that kills fall on work and not on imports.

    Args:
        command: arguments after the interpreter.
        out: its output folder.
        kill: when it is killed.
        prepare: called in the fork before the command.

    Raises:
        UsageError: it ended with a traceback.
    """
    context = prepare_forks()
    process = context.Process(target=run_here, args=(command, out, kill.at_write, prepare))
    process.start()
    process.join(kill.after_s)
    if process.is_alive():
        assert process.pid is not None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()  # it has no group of its own yet
        process.join()
    if process.exitcode == -signal.SIGKILL:
        return None
    said = out.with_suffix(".said").read_text(encoding="utf-8", errors="replace")
    if "Traceback" in said:
        raise UsageError(f"benchmarks.kills {command[1]}", said[-600:], "see the traceback")
    code: int | None = process.exitcode
    return code


@dataclass
class Outcome:
    """What came of the runs of a command."""

    runs: int = 0
    same: int = 0
    at_writes: int = 0
    at_times: int = 0
    writes: int = 0
    """File operations of an uninterrupted run."""
    length_s: float = 0.0
    left_over: tuple[str, ...] = ()
    """Names of files that an uninterrupted run does not leave."""

    @property
    def is_right(self) -> bool:
        """Whether every run was killed and ended in the same bytes, with no file left over."""
        return self.same == self.runs <= self.at_writes and not self.left_over


def names_in(out: Path) -> set[str]:
    """Return the names of the files of a folder, without digests in them."""
    names = {RANDOM_PART.sub("*", path.relative_to(out).as_posix()) for path in out.rglob("*") if path.is_file()}
    return {name for name in names if not LEASE.search(name)}


def check(name: str, num_runs: int, folder: Path, run: Runner = run_forked) -> Outcome:
    """Kill a command in each of NUM_RUNS runs, and finish it.

    Args:
        name: of the command.
        num_runs: each is killed at a write, started again, killed at a time unless it ends before, and finished.
        folder: for inputs and outputs.
        run: runs a command.

    Raises:
        UsageError: the uninterrupted run fails.
    """
    case = CASES[name]
    generator = random.Random(0)  # noqa: S311 - the same kills on every run
    results = folder / name
    results.mkdir()
    whole = results / "whole"
    began = time.monotonic()
    code = run(case.command(folder, whole), whole, Kill())
    outcome = Outcome(num_runs, length_s=time.monotonic() - began)
    if code not in case.allowed:
        raise UsageError(f"benchmarks.kills {name}", f"the uninterrupted run ended with {code}", "run it by itself")
    outcome.writes = int(whole.with_suffix(".writes").read_text(encoding="ascii"))
    expected, names = case.digest(whole), names_in(whole)
    for number in range(num_runs):
        out = results / f"run-{number}"
        command = case.command(folder, out)
        # Spread over the whole run.
        at_write = 1 + int((number + generator.random()) * outcome.writes / num_runs)
        outcome.at_writes += run(command, out, Kill(at_write=at_write)) is None
        outcome.at_times += run(command, out, Kill(generator.uniform(0.2, 1.0) * outcome.length_s)) is None
        code = run(command, out, Kill())
        outcome.same += code in case.allowed and case.digest(out) == expected
        outcome.left_over += tuple(sorted(names_in(out) - names))
        shutil.rmtree(out)
    return outcome


# ---- page ----------------------------------------------------------------------------------------------------------


def page(outcomes: Iterable[tuple[str, Outcome]], kept: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of the page; KEPT are rows of other commands."""
    yield "# Kills\n\n"
    yield f"`python -m benchmarks.kills` on {cpu_name()}, Python {sys.version.split()[0]}, "
    yield ", ".join(f"{name} {version}" for name, version in versions().items() if name in ("torch", "transformers"))
    yield (
        ".\n\nEvery run is killed with SIGKILL before a file operation, started again, killed at a random time unless"
        " it ends before,\nand finished. *Same bytes* counts the runs whose result is that of an uninterrupted run, "
        "byte for byte.\n\n"
        "| command | compared | same bytes | killed at a file operation | killed at a time | left over | "
        "whole run s | file operations |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    yield from kept
    for name, one in outcomes:
        yield (
            f"| {name} | {CASES[name].what} | {one.same} of {one.runs} | {one.at_writes} | {one.at_times} | "
            f"{', '.join(one.left_over) or '0 files'} | {one.length_s:.1f} | {one.writes} |\n"
        )


def rows_of_others(path: Path | None, names: Iterable[str]) -> list[str]:
    """Return the rows of a page that are of other commands than NAMES."""
    if path is None or not path.is_file():
        return []
    others = [f"| {name} |" for name in CASES if name not in set(names)]
    return [
        line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.startswith(tuple(others))
    ]


def measure(names: Iterable[str], num_runs: int | None) -> Iterator[tuple[str, Outcome]]:
    """Kill commands, each in a folder of its own."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="pressbert-") as folder:
            yield name, check(name, num_runs or CASES[name].runs, Path(folder))


def main(argv: list[str] | None = None) -> int:
    """Kill commands from the command line; exit code 1 if a run ended in other bytes."""
    parser = ArgumentParser("python -m benchmarks.kills", "Kill commands, and compare what their repetition writes.")
    parser.add_argument("names", nargs="*", help=f"from: {', '.join(CASES)}; default: all")
    parser.add_argument("--runs", type=int, help="runs of each command; default: 10 or 20")
    parser.add_argument("--out", type=Path, help="page to write, in which rows of other commands stay; default: none")
    arguments = parser.parse(argv)
    if unknown := [name for name in arguments.names if name not in CASES]:
        raise UsageError(parser.prog, f"unknown command '{unknown[0]}'", f"choose from: {', '.join(CASES)}")
    outcomes: list[Outcome] = []

    def noted() -> Iterator[tuple[str, Outcome]]:
        for name, outcome in measure(names, arguments.runs):
            outcomes.append(outcome)
            yield name, outcome

    # The first fork waits until all is imported, which is no part of a run.
    first = prepare_forks().Process(target=int)
    first.start()
    first.join()
    lines, names = [], arguments.names or list(CASES)
    for line in page(noted(), rows_of_others(arguments.out, names)):
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
    if arguments.out:
        write_text(arguments.out, "".join(lines))
    return EXIT_DONE if all(outcome.is_right for outcome in outcomes) else EXIT_FAILED_CELLS


if __name__ == "__main__":
    run_command(main)
