"""Kill a command again and again, run it until it ends, and compare what it wrote with an uninterrupted run.

    python -m benchmarks.kills pretraining --runs 20
    python -m benchmarks.kills finetuning corpora leaderboard --runs 10

The kill is SIGKILL to the whole group of processes, at a time drawn from the length of the uninterrupted run. Compared
are the bytes that must not differ: weights, shards and predictions; times and dates may.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from downstream.task import SAMPLE_ROOT

NEWS = SAMPLE_ROOT / "news.jsonl"
RECIPE = """
objective = "dynamic_mlm"
data = { corpus = "sample", max_length = 64 }
model = { hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 2 }
loop = { steps = 40, batch_size = 8, warmup_steps = 5, checkpoint_every = 5, log_every = 5 }
"""
Digest = Callable[[Path], str]


@dataclass(frozen=True)
class Case:
    """A command that is killed."""

    command: Callable[[Path, Path], list[str]]
    """Arguments after the interpreter, of a folder with the inputs and the output folder."""
    digest: Digest
    """Of what must not differ."""
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
    """Digest the predictions of the cells of a leaderboard."""
    cells = {
        path.relative_to(out).as_posix(): json.loads(path.read_text(encoding="utf-8"))["predictions"]
        for path in sorted(out.glob("results/*/*/*.json"))
    }
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def stories_digest(out: Path) -> str:
    """Digest which articles are in which stories."""
    state = json.loads((out / "stories.json").read_text(encoding="utf-8"))
    titles = [article["title"] for article in state["articles"]]
    return hashlib.sha256(json.dumps([titles, state["story_of"]], ensure_ascii=False).encode()).hexdigest()


def pretraining(inputs: Path, out: Path) -> list[str]:
    """Return the command of a short pretraining."""
    recipe = inputs / "recipe.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    return ["-m", "pretraining.run", str(recipe), "--out", str(out), "--cpu", "--workers", "1"]


def finetuning(inputs: Path, out: Path) -> list[str]:
    """Return the command of a short fine-tuning."""
    # More steps than are between two checkpoints.
    settings = [part for setting in ("epochs=3", "batch_size=1", "max_length=32") for part in ("--set", setting)]
    model = inputs / "model" if (inputs / "model").is_dir() else "pressbert-mini"
    return ["-m", "downstream.finetune", "nsmc-sample", "--model", str(model), "--out", str(out), *settings]


def stories(_inputs: Path, out: Path) -> list[str]:
    """Return the command that finds stories and keeps them."""
    return ["-m", "apps.clustering", str(NEWS), "--out", str(out / "page"), "--stories", str(out), "--model", "letters"]


def corpora(_inputs: Path, out: Path) -> list[str]:
    """Return the command that builds a corpus."""
    return ["-m", "corpora.build", str(NEWS), "--out", str(out)]


def leaderboard(_inputs: Path, out: Path) -> list[str]:
    """Return the command of a comparison of two cheap models."""
    tasks = ["--tasks", "nsmc-sample", "--models", "majority", "tfidf"]
    return [str(SAMPLE_ROOT.parents[1] / "eval" / "run_all.py"), "--out", str(out), *tasks]


CASES = {
    "pretraining": Case(pretraining, files_digest("*.safetensors")),
    "finetuning": Case(finetuning, files_digest("*.safetensors")),
    "stories": Case(stories, stories_digest),
    "corpora": Case(corpora, files_digest("*.jsonl", "manifest.json")),
    "leaderboard": Case(leaderboard, predictions_digest, (0, 1)),
}


Runner = Callable[[list[str], float | None], int | None]


def run_once(command: list[str], kill_after_s: float | None = None) -> int | None:
    """Run a command; returns its exit code, None if it was killed."""
    with subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    ) as process:
        try:
            _, messages = process.communicate(timeout=kill_after_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None
    if b"Traceback" in messages:
        raise UsageError("benchmarks.kills", messages.decode(errors="replace")[-300:], "see the traceback")
    return process.returncode


def check(name: str, num_runs: int, folder: Path, *, run: Runner = run_once, kills_a_run: int = 2) -> tuple[int, int]:
    """Kill a command in NUM_RUNS runs; returns how many ended in the same bytes, and the number of kills.

    Args:
        name: of the command.
        num_runs: each is killed and then run to its end.
        folder: for inputs and outputs.
        run: runs a command, and kills it after a number of seconds; returns its exit code, None if it was killed.
        kills_a_run: at most; a command that ends before its kill is run again all the same.
    """
    case = CASES[name]
    generator = random.Random(0)  # noqa: S311 - the same kills on every run
    whole = folder / "whole"
    began = time.monotonic()
    code = run(case.command(folder, whole), None)
    length_s = time.monotonic() - began
    if code not in case.allowed:
        raise UsageError(f"benchmarks.kills {name}", f"the uninterrupted run ended with {code}", "run it by itself")
    expected = case.digest(whole)
    same = kills = 0
    for number in range(num_runs):
        out = folder / f"run-{number}"
        for _ in range(kills_a_run):
            code = run(case.command(folder, out), generator.uniform(0.2, 1.0) * length_s)
            kills += code is None
        code = run(case.command(folder, out), None)
        same += code in case.allowed and case.digest(out) == expected
        shutil.rmtree(out)
    return same, kills


def report(names: Iterable[str], num_runs: int) -> Iterable[tuple[str, int, int]]:
    """Yield for each command how many runs ended in the same bytes, and the number of kills."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="pressbert-") as folder:
            yield name, *check(name, num_runs, Path(folder))


def main(argv: list[str] | None = None) -> int:
    """Kill commands from the command line; exit code 1 if a run ended in other bytes."""
    parser = ArgumentParser("python -m benchmarks.kills", "Kill commands, and compare what their repetition writes.")
    parser.add_argument("names", nargs="*", help=f"from: {', '.join(CASES)}; default: all")
    parser.add_argument("--runs", type=int, default=10, help="runs of each command, each killed up to twice (10)")
    arguments = parser.parse(argv)
    if unknown := [name for name in arguments.names if name not in CASES]:
        raise UsageError(parser.prog, f"unknown command '{unknown[0]}'", f"choose from: {', '.join(CASES)}")
    is_same = True
    sys.stdout.write("| command | same bytes | kills |\n| --- | --- | --- |\n")
    for name, same, kills in report(arguments.names or CASES, arguments.runs):
        sys.stdout.write(f"| {name} | {same} of {arguments.runs} | {kills} |\n")
        sys.stdout.flush()
        is_same = is_same and same == arguments.runs
    return EXIT_DONE if is_same else EXIT_FAILED_CELLS


if __name__ == "__main__":
    run_command(main)
