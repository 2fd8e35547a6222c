"""Where the tasks of a build run: in this process, in several, or by datatrove on this machine, on Slurm or on Ray.

Every executor runs the same tasks of the same plan, so the corpus has the same bytes.
"""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tqdm import tqdm

from corpora.corpus import PROGRESS
from corpora.foundation.errors import UsageError
from corpora.pipeline.plan import Build
from corpora.pipeline.stages import STAGES, Stage, run_tasks, unfinished

ExecutorName: TypeAlias = Literal["local", "datatrove", "slurm", "ray"]
Pool: TypeAlias = concurrent.futures.ProcessPoolExecutor | None
EXECUTORS: tuple[ExecutorName, ...] = get_args(ExecutorName)


def run_build(
    build: Build, executor: ExecutorName = "local", tasks: int = 1, options: Mapping[str, str] | None = None
) -> None:
    """Run what is unfinished of a build; on Slurm, only submit its jobs.

    Args:
        build: a build that was begun.
        executor: where its tasks run.
        tasks: processes, or jobs of a cluster, that share the tasks of a stage.
        options: of the executor of datatrove, such as the partition of a cluster.

    Raises:
        UsageError: a library or program is missing.
        SuiteError: of the first task that failed; the results of finished tasks remain.
    """
    RUNNERS[executor](build, tasks, options or {})


# ---- processes of this machine ----


def _run_local(build: Build, tasks: int, options: Mapping[str, str]) -> None:
    assert not options
    with processes(tasks) as pool:
        for stage in STAGES:
            run_stage(build, stage, pool)


@contextlib.contextmanager
def processes(count: int) -> Iterator[Pool]:
    """Start processes for the tasks of stages; None stands for this one."""
    if count == 1:
        yield None
        return
    # Spawned: a fork of a process with threads can deadlock.
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(concurrent.futures.ProcessPoolExecutor(count, mp_context=context))
        stack.callback(pool.shutdown, cancel_futures=True)
        yield pool


def run_stage(build: Build, stage: Stage, pool: Pool) -> None:
    """Run what is unfinished of a stage, with a progress bar on a terminal.

    Args:
        build: a build whose earlier stages are finished.
        stage: what is run.
        pool: processes; None: this one.
    """
    sizes = [task.size_bytes for task in stage.tasks(build)]
    left = unfinished(build, stage)
    unit = "B" if max(sizes, default=1) > 1 else "task"
    with tqdm(total=sum(sizes), desc=stage.name, unit=unit, unit_scale=True, disable=None, leave=False) as bar:
        bar.update(sum(sizes) - sum(sizes[number] for number in left))
        for number in _finished(build.out, stage, left, pool):
            bar.update(sizes[number])


def _finished(out: Path, stage: Stage, left: Sequence[int], pool: Pool) -> Iterator[int]:
    """Run tasks, and yield the number of each when it is finished."""
    if pool is None or len(left) < 2:
        for number in left:
            run_tasks(out, stage.name, [number])
            yield number
        return
    futures = {pool.submit(run_tasks, out, stage.name, [number]): number for number in left}
    for future in concurrent.futures.as_completed(futures):
        future.result()
        yield futures[future]


# ---- datatrove: this machine, Slurm, Ray ----


@dataclass(frozen=True)
class StageShare:
    """A step of a pipeline of datatrove: every `world_size`-th task of a stage."""

    out: Path
    name: str

    def __call__(self, data: object, rank: int, world_size: int) -> None:
        """Run the tasks of a rank; DATA is nothing, since tasks read and write files."""
        del data
        run_tasks(self.out, self.name, slice(rank, None, world_size))


def _run_by_datatrove(build: Build, tasks: int, options: Mapping[str, str], *, kind: ExecutorName) -> None:
    executor, defaults = _executor_of(kind, tasks)
    out = build.out.resolve()
    previous: Any = None
    for stage in STAGES:
        settings: dict[str, Any] = {**defaults, **options}
        if kind == "slurm":
            settings |= {"job_name": f"corpus-{stage.name}", "depends": previous}
        previous = executor(
            pipeline=[StageShare(out, stage.name)],
            tasks=tasks,
            logging_dir=str(out / PROGRESS / kind / stage.name),
            # Our marks say what is finished; those of datatrove know neither sources nor settings.
            skip_completed=False,
            **settings,
        )
        if kind != "slurm":
            previous.run()
    if kind == "slurm":
        previous.run()  # submits those it depends on first


def _executor_of(kind: ExecutorName, tasks: int) -> tuple[Any, dict[str, Any]]:
    """Return the class of datatrove and its default settings.

    Raises:
        UsageError: it is not installed, or the machine has no Slurm.
    """
    try:
        match kind:
            case "slurm":
                from datatrove.executor import SlurmPipelineExecutor

                if shutil.which("sbatch") is None:
                    raise UsageError("--executor slurm", "no sbatch here", "run it on a machine that submits jobs")
                return SlurmPipelineExecutor, {"partition": "normal", "time": "24:00:00", "mem_per_cpu_gb": 4}
            case "ray":
                import ray  # noqa: F401 - datatrove names it only when it starts
                from datatrove.executor import RayPipelineExecutor

                return RayPipelineExecutor, {"workers": tasks}
            case _:
                from datatrove.executor import LocalPipelineExecutor

                return LocalPipelineExecutor, {"workers": tasks, "start_method": "spawn"}
    except ImportError as error:
        what = f"{error.name} is not installed"
        fix = "pip install 'pressbert[scale]'" if error.name != "ray" else "pip install ray"
        raise UsageError(f"--executor {kind}", what, fix) from error


RUNNERS: Mapping[ExecutorName, Callable[[Build, int, Mapping[str, str]], None]] = {
    "local": _run_local,
    "datatrove": functools.partial(_run_by_datatrove, kind="datatrove"),
    "slurm": functools.partial(_run_by_datatrove, kind="slurm"),
    "ray": functools.partial(_run_by_datatrove, kind="ray"),
}
