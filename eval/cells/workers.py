"""Worker processes on one machine, each with its share of the threads and one accelerator."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from corpora.foundation.errors import cannot_write
from corpora.foundation.machine import devices, num_threads

PARENT_POLL_S = 1.0


class Worker:
    """A process of this suite. Its stderr goes to a log for people; its stdout is for its parent."""

    def __init__(self, arguments: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        """Start it.

        Args:
            arguments: script and arguments.
            log: file for its stderr, to be read while it runs.
            environment: variables on top of ours.

        Raises:
            ResultError: the log cannot be written.
        """
        self.log, self.started = log, time.perf_counter()
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("wb") as stderr:
                self._process = subprocess.Popen(
                    [sys.executable, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    encoding="utf-8",
                    env=os.environ | environment,
                )
        except OSError as error:
            raise cannot_write(log, error) from error

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def elapsed_s(self) -> float:
        """Time since its start."""
        return time.perf_counter() - self.started

    def end(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()

    def outcome(self) -> tuple[int, str]:
        """Wait for its end and return the exit code, negative for a signal, and its stdout, which must be short."""
        output, _ = self._process.communicate()
        return self._process.returncode, output.strip()


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
