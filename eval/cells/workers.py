"""Worker processes on one machine, each with its share of the threads and one accelerator."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from corpora.foundation.errors import cannot_write
from corpora.foundation.machine import devices, num_threads

PARENT_POLL_S = 1.0


class Worker:
    """A process that carries out orders one after another; libraries are imported once, and not for every order.

    An order and its answer are one line of JSON on its standard input and output. Its stderr goes to a log for people.
    It is started by its first order, and again by the one after its death.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Say what to start.

        Args:
            arguments: script and arguments.
            environment: variables on top of ours.
        """
        self._command, self._environment = [sys.executable, *arguments], os.environ | environment
        self._process: subprocess.Popen[str] | None = None
        self._reader = ThreadPoolExecutor(1)
        self._answer: Future[str] | None = None
        self.log, self.started = Path(), 0.0

    def give(self, order: Mapping[str, Any], log: Path) -> None:
        """Give it an order.

        Args:
            order: anything that JSON can say.
            log: file for its stderr, to be read while it works. Its path is added to the order as `log`, because a
                process that runs already has to open the file itself.

        Raises:
            ResultError: the log cannot be written.
        """
        self.log, self.started = log, time.perf_counter()
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("wb") as stderr:
                if self._process is None or self._process.poll() is not None:
                    self._process = subprocess.Popen(
                        self._command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=stderr,
                        encoding="utf-8",
                        env=self._environment,
                    )
        except OSError as error:
            raise cannot_write(log, error) from error
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has died; there will be no answer
            stdin.write(json.dumps({**order, "log": str(log)}, ensure_ascii=False) + "\n")
            stdin.flush()
        self._answer = self._reader.submit(stdout.readline)

    @property
    def is_busy(self) -> bool:
        """Whether an order is not answered yet, and the process lives."""
        return self._answer is not None and not self._answer.done()

    @property
    def elapsed_s(self) -> float:
        """Time since the order."""
        return time.perf_counter() - self.started

    def answer(self) -> dict[str, Any] | int:
        """Wait for the answer to the order; of a process that died instead return the exit code, negative for a signal.

        Raises:
            ValueError: nothing was ordered.
        """
        if self._process is None or self._answer is None:
            raise ValueError("nothing was ordered")
        line, self._answer = self._answer.result(), None
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        return self._process.wait()

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        self._reader.shutdown()


def answer_orders(parent: int, carry_out: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Be the process of a `Worker`: carry out the orders of the standard input until it ends, or the parent does.

    Args:
        parent: number of the process that orders.
        carry_out: order → answer.
    """
    end_with(parent)
    # What libraries print must not be read as an answer, and no child process may read an order.
    with (
        os.fdopen(os.dup(0), encoding="utf-8") as orders,
        os.fdopen(os.dup(1), "w", encoding="utf-8") as answers,
        Path(os.devnull).open("r+b", buffering=0) as nowhere,
    ):
        os.dup2(nowhere.fileno(), 0)
        os.dup2(2, 1)
        for line in orders:
            order = json.loads(line)
            with Path(order["log"]).open("ab") as log:
                _print_to(log.fileno())
            answer = json.dumps(carry_out(order))
            # The log may be removed now.
            _print_to(nowhere.fileno())
            answers.write(answer + "\n")
            answers.flush()


def _print_to(file: int) -> None:
    """Make stdout and stderr, also those of libraries and child processes, write to an open file."""
    sys.stdout.flush()
    sys.stderr.flush()
    for stream in (1, 2):
        os.dup2(file, stream)


def part_of_machine(slot: int, jobs: int, threads: int | None = None) -> dict[str, str]:
    """Return the environment of one of several workers.

    Args:
        slot: number of the worker among those that run at once, from 0.
        jobs: how many run at once.
        threads: CPU threads of each; default: all of them divided by JOBS.
    """
    share = str(threads or max(1, num_threads() // jobs))
    part = {"OMP_NUM_THREADS": share, "RAYON_NUM_THREADS": share}
    accelerators = devices()
    return part | ({"CUDA_VISIBLE_DEVICES": accelerators[slot % len(accelerators)]} if accelerators else {})


def end_with(parent: int) -> None:
    """End this process soon after its parent has ended, so that a killed run leaves no process behind."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
