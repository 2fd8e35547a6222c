"""Fixtures of the tests of the evaluation: folders of results, and cells that are run without training."""

from collections.abc import Callable
from pathlib import Path

import pytest

from downstream.task import Split, Task, TaskData, get_task, read_task
from eval.cells import run as running
from eval.contestants import scratch
from eval.contestants.contestant import Job, Outcome
from eval.contestants.majority import Majority

RunModel = Callable[[Job, Path], Outcome]


def guess(job: Job, work: Path) -> Outcome:
    """Run a cell; a model that is trained guesses, after leaving a folder as a trained one does."""
    if job.model.is_deterministic:
        return job.model.run(job, work)
    (work / "model").mkdir(parents=True)
    return Majority(name=job.model.name).run(job, work)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return the folder of a leaderboard, not made yet."""
    return tmp_path / "out"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Return the list of (model, task, seed) that are run from now on; trained models guess."""
    calls: list[tuple[str, str, int]] = []

    def note(job: Job, work: Path) -> Outcome:
        calls.append((job.model.name, job.task.name, job.seed))
        return guess(job, work)

    monkeypatch.setattr(running, "run_model", note)
    return calls


@pytest.fixture
def failing() -> Callable[[Callable[[Job], bool], Exception], RunModel]:
    """Return a function that makes a `run_model` which guesses, and raises an error for chosen cells."""

    def make(on: Callable[[Job], bool], error: Exception) -> RunModel:
        def run_or_raise(job: Job, work: Path) -> Outcome:
            if on(job):
                raise error
            return guess(job, work)

        return run_or_raise

    return make


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which a cell that is run fails the test."""
    return lambda: monkeypatch.setattr(running, "run_model", lambda job, _: pytest.fail(f"{job.label} is run"))


@pytest.fixture
def small() -> Callable[[Task, int], TaskData]:
    """Return a function that reads the first examples of both splits of a task of the sample."""

    def read(task: Task, number: int) -> TaskData:
        data = read_task(task, Path("/nonexistent"))
        return TaskData(*(Split(split.examples[:number], split.sha256) for split in (data.train, data.eval)))

    return read


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an untrained BERT with 300 subwords and 16 dimensions."""
    folder = tmp_path_factory.mktemp("encoder") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "ARCHITECTURE", scratch.ARCHITECTURE | {"vocab_size": 300, "hidden_size": 16})
        return scratch.build_scratch(read_task(get_task("nsmc-sample"), Path("/nonexistent")), folder, seed=0)
