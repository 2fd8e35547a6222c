"""Fixtures of the tests of task files: a small file in a task's layout, and a model that is trained on it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from corpora.foundation.errors import DataError
from downstream.finetune import TaskData, finetune
from downstream.finetuning.result import Result
from downstream.task import Split, Task, get_task


@pytest.fixture
def read_small(write: Callable[[str, str], Path], tmp_path: Path) -> Callable[[str, str], Split]:
    """Return a function that reads CONTENT as the reported split of a task, through all checks."""

    def read(name: str, content: str) -> Split:
        task = get_task(name)
        path = write(task.files[task.eval_split].path, content)
        small = replace(task, num_examples={task.eval_split: len(task.read(path))})
        return small.read_split(task.eval_split, tmp_path)

    return read


@pytest.fixture
def refuses(read_small: Callable[[str, str], Split]) -> Callable[[str, str, str, str, str], None]:
    """Return a function: a file with OLD replaced by NEW must be refused with WHAT in the message."""

    def check(name: str, content: str, old: str, new: str, what: str) -> None:
        assert old in content
        with pytest.raises(DataError) as caught:
            read_small(name, content.replace(old, new))
        assert what in str(caught.value)

    return check


@pytest.fixture
def train_and_score(standins: dict[str, Path], tmp_path: Path) -> Callable[[str, Split], Result]:
    """Return a function that fine-tunes a stand-in on a few examples and scores it on the same ones."""

    def train(name: str, split: Split) -> Result:
        task: Task = get_task(name)
        overrides = {"epochs": 1, "batch_size": 4, "max_length": 32}
        data = TaskData(split, split)
        result = finetune(task, standins["klue-bert"], out=tmp_path / name, data=data, overrides=overrides)
        assert len(result.predictions) == len(split.examples)
        assert all(value is not None and 0 <= value <= 1 for value in result.metrics.values())
        assert list(result.metrics) == [metric.key for metric in task.metrics]
        for metric in task.metrics:
            assert metric(split.golds, split.golds) == 1.0
        return result

    return train
