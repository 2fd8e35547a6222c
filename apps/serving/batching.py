"""Micro-batching: waiting inputs of similar length are computed together, in one thread.

No request waits for a batch to fill. When the thread is free, it takes the oldest waiting input and others of its
group; a lone request is computed at once, and batches grow with the load. The queue is bounded: inputs that do not fit
are refused at once, with the time after which to retry.
"""

import asyncio
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Compute: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
"""Inputs of one group → one result each."""

MEMORY = 0.9
"""Weight of the previous value in the running mean of the speed."""


Reason: TypeAlias = Literal["shutting down", "the queue is full", "it would not be done in time", "not done in time"]


class OverloadedError(Exception):
    """Jobs are refused, or were not done in time."""

    def __init__(self, reason: Reason, retry_after_s: int) -> None:
        """Keep the reason and the whole seconds after which to retry."""
        super().__init__(reason)
        self.reason, self.retry_after_s = reason, retry_after_s


@dataclass(frozen=True)
class Job:
    """One input to compute."""

    group: Hashable
    """Only jobs of the same group are computed together, by the same function."""
    compute: Compute
    item: Any
    cost: int
    """Proportional to the computing time among jobs of the same kind, e.g. characters."""
    kind: str = ""
    """Jobs of one kind take the same time for the same cost."""


@dataclass
class _Call:
    """The unfinished jobs of one request."""

    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[list[Any]]"
    results: list[Any]
    missing: int


@dataclass
class _Waiting:
    job: Job
    call: _Call
    position: int
    number: int
    """Serial number in the order of arrival."""
    since: float = field(default_factory=time.perf_counter)


class Batcher:
    """A computing thread and its bounded queue."""

    def __init__(
        self,
        *,
        max_waiting: int,
        max_batch: int,
        max_cost: int,
        observe: Callable[[Hashable, int, float, float], object] = lambda *_: None,
    ) -> None:
        """Set the bounds; `start` starts the thread.

        Args:
            max_waiting: jobs that may wait.
            max_batch: jobs of a batch.
            max_cost: sum of the costs of a batch of more than one job.
            observe: called in the thread with the group, the size of a batch, and the seconds that its oldest job
                waited and that its computation took.
        """
        self._max_waiting, self._max_batch, self._max_cost, self._observe = max_waiting, max_batch, max_cost, observe
        self._groups: dict[Hashable, deque[_Waiting]] = {}
        self._num_waiting = self._arrived = 0
        self._cost_waiting: Counter[str] = Counter()
        self._s_per_cost: dict[str, float] = {}
        self._is_closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Refuse new jobs, and return when all waiting ones are done."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    @property
    def num_waiting(self) -> int:
        """Number of waiting jobs."""
        return self._num_waiting

    @property
    def expected_wait_s(self) -> float:
        """Estimated time until the waiting jobs are done."""
        # Of a kind that was not computed before, nothing is known.
        return sum(cost * self._s_per_cost.get(kind, 0.0) for kind, cost in self._cost_waiting.items())

    async def submit(self, jobs: Sequence[Job], *, timeout_s: float) -> list[Any]:
        """Compute jobs; returns their results in their order.

        Raises:
            OverloadedError: they do not all fit into the queue, would not be done in time, or were not.
        """
        loop = asyncio.get_running_loop()
        call = _Call(loop, loop.create_future(), [None] * len(jobs), len(jobs))
        with self._changed:
            self._admit(jobs, timeout_s)
            for position, job in enumerate(jobs):
                self._arrived += 1
                self._groups.setdefault(job.group, deque()).append(_Waiting(job, call, position, self._arrived))
            self._count(jobs, 1)
            self._changed.notify()
        try:
            async with asyncio.timeout(timeout_s):
                return await call.future
        except TimeoutError as error:
            raise OverloadedError("not done in time", self._retry_after_s()) from error
        finally:
            if call.missing:
                self._withdraw(call)

    def _withdraw(self, call: _Call) -> None:
        """Remove the jobs of a call that ended from the queue."""
        with self._changed:
            for group, queue in list(self._groups.items()):
                kept = deque(waiting for waiting in queue if waiting.call is not call)
                gone = [waiting for waiting in queue if waiting.call is call]
                self._count([waiting.job for waiting in gone], -1)
                self._groups[group] = kept
                if not kept:
                    del self._groups[group]

    def _admit(self, jobs: Sequence[Job], timeout_s: float) -> None:
        if self._is_closing:
            raise OverloadedError("shutting down", 1)
        if self._num_waiting + len(jobs) > self._max_waiting:
            raise OverloadedError("the queue is full", self._retry_after_s())
        if self.expected_wait_s > timeout_s:
            raise OverloadedError("it would not be done in time", self._retry_after_s())

    def _retry_after_s(self) -> int:
        return max(1, math.ceil(self.expected_wait_s))

    def _count(self, jobs: Sequence[Job], sign: int) -> None:
        """Count jobs that begin (+1) or end (−1) to wait."""
        self._num_waiting += sign * len(jobs)
        for job in jobs:
            self._cost_waiting[job.kind] += sign * job.cost

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._groups and not self._is_closing:
                    self._changed.wait()
                batch = self._take()
            if batch:
                self._run(batch)
            elif self._is_closing:
                return

    def _take(self) -> list[_Waiting]:
        """Take the oldest job and further ones of its group."""
        batch: list[_Waiting] = []
        if not self._groups:
            return batch
        group = min(self._groups, key=lambda key: self._groups[key][0].number)
        queue, cost = self._groups[group], 0
        while queue and len(batch) < self._max_batch and (not batch or cost + queue[0].job.cost <= self._max_cost):
            batch.append(queue.popleft())
            cost += batch[-1].job.cost
        self._count([waiting.job for waiting in batch], -1)
        if not queue:
            del self._groups[group]
        return batch

    def _run(self, batch: list[_Waiting]) -> None:
        began = time.perf_counter()
        results = self._compute(batch)
        took = time.perf_counter() - began
        per_cost = took / max(1, sum(waiting.job.cost for waiting in batch))
        kind = batch[0].job.kind
        before = self._s_per_cost.get(kind, per_cost)
        self._s_per_cost[kind] = MEMORY * before + (1 - MEMORY) * per_cost
        self._observe(batch[0].job.group, len(batch), began - batch[0].since, took)
        # Once for each loop, not for each job: waking a loop is expensive.
        for loop in {waiting.call.loop for waiting in batch}:
            done = [(w, result) for w, result in zip(batch, results, strict=True) if w.call.loop is loop]
            if not loop.is_closed():
                loop.call_soon_threadsafe(_deliver, done)

    def _compute(self, batch: list[_Waiting]) -> Sequence[Any]:
        """Return a result or an exception for each job."""
        compute = batch[0].job.compute
        try:
            results = compute([waiting.job.item for waiting in batch])
            assert len(results) == len(batch), "one result for each job"
        except Exception as error:  # any error belongs to its request, and must not end the thread
            if len(batch) == 1:
                return [error]
            return [self._compute([waiting])[0] for waiting in batch]
        return results


def _deliver(done: Sequence[tuple[_Waiting, Any]]) -> None:
    """Deliver results to their calls, in the thread of their loop."""
    for waiting, result in done:
        call = waiting.call
        if call.future.done():
            continue
        if isinstance(result, Exception):
            call.future.set_exception(result)
            continue
        call.results[waiting.position] = result
        call.missing -= 1
        if not call.missing:
            call.future.set_result(call.results)
