"""Long work in a thread of its own: it tells how far it is, can be cancelled, and stops when nobody looks any more."""

import threading
import time
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
ABANDONED_S = 60.0
"""Without a look for so long, the page is closed."""
State = Literal["running", "done", "failed", "cancelled"]


class CancelledError(Exception):
    """The work was cancelled, or nobody waits for it."""


class Progress:
    """What work calls between its steps, and what the page reads."""

    def __init__(self) -> None:
        """Begin without a step."""
        self.step, self.done, self.total = "", 0, 0
        self._cancelled = threading.Event()
        self._seen = time.monotonic()

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None:
        """Tell the step, and how much of it is done.

        Raises:
            CancelledError: the work is to stop.
        """
        if self._cancelled.is_set() or time.monotonic() - self._seen > ABANDONED_S:
            raise CancelledError
        self.step, self.done, self.total = step, done, total

    def look(self) -> None:
        """Note that somebody waits."""
        self._seen = time.monotonic()

    def cancel(self) -> None:
        """Have the work stop at its next step."""
        self._cancelled.set()


class Job(Generic[T]):
    """Work that was begun."""

    def __init__(self, work: Callable[[Progress], T]) -> None:
        """Begin."""
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
        except Exception as error:  # whatever it is, the page has to tell it and not wait for ever
            self.error, self.state = error, "failed"
        finally:
            self._finished.set()

    @property
    def result(self) -> T:
        """What the work made; only of one that is done."""
        assert self.state == "done", f"the job is {self.state}"
        return self._result[0]

    def wait(self, seconds: float) -> bool:
        """Wait for the end, and tell whether it has come."""
        return self._finished.wait(seconds)
