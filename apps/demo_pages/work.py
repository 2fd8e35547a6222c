"""Background jobs: they report progress, can be cancelled, and stop when the page is closed."""

import threading
import time
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
ABANDONED_S = 60.0
"""Seconds without polling after which the page counts as closed."""
State = Literal["running", "done", "failed", "cancelled"]


class CancelledError(Exception):
    """The job was cancelled, or its page is closed."""


class Progress:
    """Progress of a job: the job calls it between steps, the page reads it."""

    def __init__(self) -> None:
        """Start without a step."""
        self.step, self.done, self.total = "", 0, 0
        self._cancelled = threading.Event()
        self._seen = time.monotonic()

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None:
        """Report the step, and how much of it is done.

        Raises:
            CancelledError: the job must stop.
        """
        if self._cancelled.is_set() or time.monotonic() - self._seen > ABANDONED_S:
            raise CancelledError
        self.step, self.done, self.total = step, done, total

    def look(self) -> None:
        """Record that the page is open."""
        self._seen = time.monotonic()

    def cancel(self) -> None:
        """Stop the job at its next step."""
        self._cancelled.set()


class Job(Generic[T]):
    """A running or finished job."""

    def __init__(self, work: Callable[[Progress], T]) -> None:
        """Start the thread."""
        self.progress = Progress()
        self.state: State = "running"
        self.error: Exception | None = None
        self._result: list[T] = []
        self._finished = threading.Event()
        threading.Thread(target=self._run, args=(work,), daemon=True, name="demo-job").start()

    def _run(self, work: Callable[[Progress], T]) -> None:
        try:
            self._result.append(work(self.progress))
            self.state = "done"
        except CancelledError:
            self.state = "cancelled"
        except Exception as error:  # any error must reach the page, which would wait forever
            self.error, self.state = error, "failed"
        finally:
            self._finished.set()

    @property
    def result(self) -> T:
        """The result of a job that is done."""
        assert self.state == "done", f"the job is {self.state}"
        return self._result[0]

    def wait(self, seconds: float) -> bool:
        """Wait for the end; returns whether the job has ended."""
        return self._finished.wait(seconds)
