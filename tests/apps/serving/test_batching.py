"""The batcher by itself: results return to their callers, waiting times are estimated, closing finishes the queue."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from apps.serving.batching import Batcher, Job, OverloadedError


def test_jobs_of_several_loops_return_to_their_loops() -> None:
    batcher = Batcher(max_waiting=100, max_batch=8, max_cost=1000)
    batcher.start()

    def caller(number: int, results: list[Any]) -> None:
        jobs = [Job("all", lambda items: [2 * item for item in items], number * 10 + k, 1) for k in range(5)]
        results.extend(asyncio.run(batcher.submit(jobs, timeout_s=10)))

    found: list[list[int]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=caller, args=(k, found[k])) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batcher.close()
    assert found == [[2 * (number * 10 + k) for k in range(5)] for number in range(4)]


def test_the_time_to_come_back_follows_from_the_speed() -> None:
    async def scenario() -> None:
        batcher = Batcher(max_waiting=100, max_batch=10, max_cost=1000)
        gate, entered = threading.Event(), threading.Event()

        def slow(items: Sequence[Any]) -> Sequence[Any]:
            time.sleep(0.05)
            return items

        def held(items: Sequence[Any]) -> Sequence[Any]:
            entered.set()
            assert gate.wait(20)
            return items

        batcher.start()
        await batcher.submit([Job("slow", slow, 0, 1)], timeout_s=10)  # 0.05 s for a cost of 1
        blocked = asyncio.create_task(batcher.submit([Job("held", held, 0, 1)], timeout_s=10))
        await asyncio.to_thread(entered.wait, 20)
        waiting = asyncio.create_task(batcher.submit([Job("slow", slow, k, 1) for k in range(60)], timeout_s=10))
        await asyncio.sleep(0)
        assert 2.9 <= batcher.expected_wait_s <= 10
        with pytest.raises(OverloadedError, match="would not be done in time") as caught:
            await batcher.submit([Job("slow", slow, 0, 1)], timeout_s=1.0)
        assert 3 <= caught.value.retry_after_s <= 10
        gate.set()
        assert await waiting == list(range(60))
        await blocked
        await asyncio.to_thread(batcher.close)
        with pytest.raises(OverloadedError, match="shutting down"):
            await batcher.submit([Job("slow", slow, 0, 1)], timeout_s=1.0)

    asyncio.run(scenario())


def test_closing_finishes_what_waits() -> None:
    async def scenario() -> None:
        batcher = Batcher(max_waiting=100, max_batch=1, max_cost=1)
        batcher.start()

        def slow(items: Sequence[Any]) -> Sequence[Any]:
            time.sleep(0.01)
            return items

        tasks = [asyncio.create_task(batcher.submit([Job("a", slow, k, 1)], timeout_s=20)) for k in range(20)]
        await asyncio.sleep(0)
        await asyncio.to_thread(batcher.close)
        assert await asyncio.gather(*tasks) == [[k] for k in range(20)]

    asyncio.run(scenario())
