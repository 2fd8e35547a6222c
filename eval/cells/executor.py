"""Jobs of a cluster that work on one folder of cells, submitted through submitit.

    python eval/run_all.py --data DATA --out SHARED --executor slurm --workers 8 --slurm partition=gpu gpus_per_node=1

Every job runs the same command on the same folder, which is a queue: a job takes the next free cell, and what a job
that was killed or timed out has left is taken over by another; see `eval.cells.leases`. submitit keeps scripts and logs
of the jobs under `OUT/jobs`. `local` runs them as processes of this machine, to try a command.
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from corpora.foundation.errors import UsageError
from corpora.foundation.files import package_path
from eval.cells.files import FailedCell, cell_path, failure_path, find_failures, record_failure
from eval.contestants.contestant import Cell

logger = logging.getLogger(__name__)

ExecutorName: TypeAlias = Literal["slurm", "local"]
RUN_ALL = package_path("eval", "run_all.py")
TIMEOUT_MIN = 24 * 60
"""Of a job, unless told otherwise."""
OWN_OPTIONS = {"--executor": 1, "--workers": 1, "--slurm": None}
"""Options of the submitting command alone, and how many values they take; None: up to the next option."""


def parse_parameters(pairs: Sequence[str]) -> dict[str, str | int]:
    """Read `KEY=VALUE` parameters of jobs; whole numbers are numbers.

    Raises:
        UsageError: one of them is no pair.
    """
    parameters: dict[str, str | int] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (key.isidentifier() and separator and value):
            raise UsageError("--slurm", f"'{pair}' is no KEY=VALUE", "give e.g. partition=gpu gpus_per_node=1")
        parameters[key] = int(value) if value.isdecimal() else value
    return parameters


def job_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a job: those of the command without its own options, and without a table."""
    kept: list[str] = []
    left: int | None = 0
    for argument in arguments:
        name = argument.partition("=")[0]
        if argument.startswith("--"):
            left = 0
            if name in OWN_OPTIONS:
                left = OWN_OPTIONS[name] if name == argument else 0
                continue
        if left is None:
            continue
        if left:
            left -= 1
            continue
        kept.append(argument)
    return [*kept, "--shard", "1/1"]


def run_jobs(
    arguments: Sequence[str], *, out: Path, executor: ExecutorName, workers: int, parameters: Mapping[str, Any]
) -> None:
    """Submit jobs that run a command on a shared folder, and wait for all of them.

    Args:
        arguments: of `eval/run_all.py`, as `job_arguments` returns them.
        out: folder of the leaderboard, which all jobs see.
        executor: where they run.
        workers: number of jobs.
        parameters: of submitit, such as `partition`.

    Raises:
        UsageError: submitit is not installed, or refuses a parameter.
    """
    try:
        import submitit
    except ImportError as error:
        fix = "run: pip install 'pressbert[slurm]'"
        raise UsageError("--executor", "submitit is not installed", fix) from error
    command = [sys.executable, str(RUN_ALL), *arguments]
    try:
        pool = submitit.AutoExecutor(folder=out / "jobs", cluster=executor)
        pool.update_parameters(**({"timeout_min": TIMEOUT_MIN, "name": "pressbert"} | dict(parameters)))
        jobs = [pool.submit(submitit.helpers.CommandFunction(command, verbose=False)) for _ in range(workers)]
    except (NameError, RuntimeError, ValueError, TypeError, FileNotFoundError, AssertionError) as error:
        raise UsageError(
            "--executor", f"{executor}: {error}", "check --slurm and that sbatch is on this host"
        ) from error
    sys.stderr.write(f"{workers} jobs are submitted; logs in {out / 'jobs'}\n")
    for job in jobs:
        if (failure := job.exception()) is not None:
            logger.warning("job %s: %s", job.job_id, str(failure).splitlines()[0])


def failures_of(out: Path, cells: Sequence[Cell]) -> list[FailedCell]:
    """Return the cells that jobs have left: those that failed, and those that no job has finished."""
    keys = {cell.key for cell in cells}
    for key in sorted(keys):
        if not cell_path(out, *key).is_file() and not failure_path(out, *key).is_file():
            reason = f"no job has finished it; see {out / 'jobs'}, and run the command again to go on"
            record_failure(out, key, reason)
    return [failed for failed in find_failures(out) if failed.key in keys]
