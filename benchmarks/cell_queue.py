"""Processes on two hosts share one folder of cells while some are killed: is the leaderboard the same to the byte?

    python -m benchmarks.cell_queue --kills 10 --processes 4

Every process runs the same command on one folder. Half of them take a name of another host, so that those of the other
half cannot see which processes have ended and have to wait until a lease expires. Killed ones are replaced. At the end
the leaderboard is compared with that of an undisturbed run; what a clock says is set to the same moment in both.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eval import run_all
from eval.cells import leases

MODELS = ("majority", "tfidf")
TASKS = ("nsmc-sample", "klue-sts-sample", "klue-nli-sample", "korquad-sample")
EXPIRY_S = 2.0
TIMES = {"train_s": 1.5, "eval_s": 0.25}
MOMENT = "2026-01-02T03:04:05.000000+00:00"


def start(host: str, arguments: Sequence[str]) -> int:
    """Start a copy of this process that runs the leaderboard as a process of HOST; returns its id."""
    process = os.fork()
    if process:
        return process
    leases._host = lambda: host  # type: ignore[assignment]  # noqa: SLF001 - another host is what is simulated
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the whole process
    os._exit(run_all.main(list(arguments)))


def run_killed(arguments: Sequence[str], *, processes: int, kills: int, seed: int = 0) -> int:
    """Run the command in several processes of two hosts, kill some, and replace them.

    Args:
        arguments: of `eval/run_all.py`.
        processes: that run at once.
        kills: at random moments.
        seed: of the moments.

    Returns:
        How many processes were killed before they ended by themselves.

    Raises:
        RuntimeError: a process that was not killed failed.
    """
    os.environ[leases.EXPIRY_VARIABLE] = str(EXPIRY_S)
    moments = np.random.default_rng(seed)
    running = {start(f"host {k % 2}", arguments): f"host {k % 2}" for k in range(processes)}
    num_killed = 0
    for _ in range(kills):
        time.sleep(moments.uniform(0.1, 1.5))
        process = list(running)[moments.integers(len(running))]
        host = running.pop(process)
        os.kill(process, signal.SIGKILL)
        num_killed += os.WIFSIGNALED(os.waitpid(process, 0)[1])
        running[start(host, arguments)] = host
    for process in running:
        if (status := os.waitpid(process, 0)[1]) != 0:
            raise RuntimeError(f"a process ended with status {status}")
    return num_killed


def still(out: Path) -> None:
    """Give all cells of a folder the same moment and the same times."""
    for path in (out / "results").rglob("seed-*.json"):
        cell = json.loads(path.read_text(encoding="utf-8"))
        cell |= TIMES
        cell["environment"]["finished"] = MOMENT
        del cell["digest"]
        path.write_text(json.dumps(cell), encoding="utf-8")


def leaderboard(out: Path, arguments: Sequence[str]) -> dict[str, bytes]:
    """Write the leaderboard of a folder again, without what a clock says; returns the bytes of its files."""
    still(out)
    code = run_all.main([*arguments, "--out", str(out)])
    if code:
        raise RuntimeError(f"{out}: cells failed")
    return {path.name: path.read_bytes() for path in out.glob("leaderboard.*")}


def compare(folder: Path, *, processes: int, kills: int, tasks: Sequence[str]) -> tuple[int, bool]:
    """Return how many processes were killed, and whether the leaderboards are the same."""
    arguments = ["--models", *MODELS, "--tasks", *tasks, "--without", "noise", "cost"]
    num_killed = run_killed([*arguments, "--out", str(folder / "shared")], processes=processes, kills=kills)
    left = [path for path in (folder / "shared").rglob("*") if ".lease" in path.name or path.suffix == ".part"]
    if left:
        raise RuntimeError(f"files are left behind: {left}")
    run_all.main([*arguments, "--out", str(folder / "alone")])
    return num_killed, leaderboard(folder / "shared", arguments) == leaderboard(folder / "alone", arguments)


def main(argv: list[str] | None = None) -> None:
    """Run the benchmark and print what was found."""
    parser = argparse.ArgumentParser(description="Kill processes that share a folder of cells.")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        num_killed, is_same = compare(
            Path(folder), processes=arguments.processes, kills=arguments.kills, tasks=arguments.tasks
        )
    answer = {"processes": arguments.processes, "kills": arguments.kills, "killed": num_killed, "same_bytes": is_same}
    answer["elapsed_s"] = round(time.monotonic() - started, 1)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
