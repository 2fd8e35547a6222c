"""Cost: what is counted and timed, on one thread, and that the process is as before afterwards."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from corpora.foundation.machine import cpu_name
from downstream.task import Prediction, TextExample
from eval.measures.cost import MIN_EXAMPLES, WARM_UP, Cost, measure, one_thread
from eval.measures.noise import sample

Fails = Callable[..., AbstractContextManager[None]]

NOWHERE = Path("/nonexistent")
EXAMPLES = [TextExample(str(k), "영화가 좋다 " * (k % 7 + 1), None, "positive") for k in range(60)]


class Sleeper:
    """A model that takes 2 ms an example and keeps what it was asked."""

    def __init__(self, each_s: float = 0.002) -> None:
        self.each_s = each_s
        self.batches: list[list[str]] = []
        self.threads: set[tuple[int, str | None]] = set()

    def __call__(self, examples: Sequence[Any]) -> list[Prediction]:
        self.batches.append([example.id for example in examples])
        self.threads.add((torch.get_num_threads(), os.environ.get("TOKENIZERS_PARALLELISM")))
        time.sleep(self.each_s * len(examples))
        return ["positive"] * len(examples)


@pytest.fixture(autouse=True)
def two_threads() -> Any:
    """Start from settings that are not those of the measurement."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


# --- threads --------------------------------------------------------------------------------------------------------


def test_the_model_runs_on_one_thread_and_the_settings_of_the_process_are_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for parallelism in (None, "true"):
        if parallelism is None:
            monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
        else:
            monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallelism)
        sleeper = Sleeper()
        cost = measure(sleeper, EXAMPLES, max_single=MIN_EXAMPLES)
        assert cost.threads == 1
        assert sleeper.threads == {(1, "false")}
        assert (torch.get_num_threads(), os.environ.get("TOKENIZERS_PARALLELISM")) == (2, parallelism)


def test_a_model_that_fails_leaves_the_settings_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)

    def fail(_examples: Sequence[Any]) -> list[Prediction]:
        raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        measure(fail, EXAMPLES)
    assert (torch.get_num_threads(), os.environ.get("TOKENIZERS_PARALLELISM")) == (2, None)


def test_settings_are_nested() -> None:
    with one_thread():
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


# --- timing ---------------------------------------------------------------------------------------------------------


def test_examples_are_timed_one_by_one_and_together() -> None:
    sleeper = Sleeper()
    cost = measure(sleeper, EXAMPLES, num_parameters=7, size_bytes=28, max_single=30, max_batched=50)
    chosen = [example.id for example in sample(EXAMPLES, 50, 0)]
    assert sleeper.batches == [[one] for one in chosen[:WARM_UP] + chosen[:30]] + [chosen]
    assert (cost.num_single, cost.num_batched) == (30, 50)
    assert (cost.num_parameters, cost.size_bytes, cost.cpu) == (7, 28, cpu_name())
    assert 2 <= cost.latency_ms_median <= cost.latency_ms_p95
    assert 0 < cost.sentences_per_s <= 500
    # Who sleeps takes no processor time, as one who waits for a busy machine.
    assert 0 <= cost.cpu_share < 0.5
    assert Cost.model_validate_json(cost.model_dump_json()) == cost


def test_what_is_not_known_is_not_made_up() -> None:
    cost = measure(Sleeper(0.0), EXAMPLES, max_single=20)
    assert (cost.num_parameters, cost.size_bytes) == (None, None)
    assert cost.latency_ms_median > 0
    assert cost.sentences_per_s > 0


def test_the_same_examples_are_timed_every_time_and_others_for_another_seed() -> None:
    asked = []
    for seed in (0, 0, 1):
        sleeper = Sleeper(0.0)
        measure(sleeper, EXAMPLES, seed=seed, max_single=20)
        asked.append(sleeper.batches)
    assert asked[0] == asked[1] != asked[2]


def test_a_spent_budget_ends_the_timing_but_not_before_a_few_examples() -> None:
    sleeper = Sleeper()
    cost = measure(sleeper, EXAMPLES, budget_s=0.0)
    assert (cost.num_single, cost.num_batched) == (MIN_EXAMPLES, MIN_EXAMPLES)
    cost = measure(sleeper, EXAMPLES, budget_s=0.1)
    assert MIN_EXAMPLES <= cost.num_single <= 50
    assert MIN_EXAMPLES <= cost.num_batched <= 50


def test_a_task_of_few_examples_is_timed_on_all_of_them() -> None:
    cost = measure(Sleeper(0.0), EXAMPLES[:5])
    assert (cost.num_single, cost.num_batched) == (5, 5)


def test_no_examples_are_no_cost() -> None:
    with pytest.raises(ValueError, match="no examples"):
        measure(Sleeper(), [])
