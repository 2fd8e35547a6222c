"""One attack, and the walk over all: refused in one line, nothing run, nothing written elsewhere, quickly."""

import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from corpora.foundation.command import run_command

Entry = Callable[[Path, Path], object]
"""What is given the attack: its path, and a folder to write to."""
LONGEST_S = 60.0
"""Seconds after which an attack is ended that should have been refused."""


@dataclass(frozen=True)
class Attack:
    """A trick: what it writes, what it is given to, and what must come of it."""

    name: str
    make: Callable[[Path], Path]
    """Writes the attack into a fresh folder; returns what is given to the entries."""
    entries: tuple[Entry, ...]
    says: str = ""
    """Part of the message."""
    codes: tuple[int, ...] = (2,)
    """Exit codes that are right; 0 and 1 where the rest of the input is read and the attack does nothing."""
    max_s: float = 1.0
    max_mb: float = 200.0


@dataclass(frozen=True)
class Outcome:
    """What came of an attack; seconds of processor time."""

    code: int
    message: str
    elapsed_s: float
    grown_mb: float


def run(attack: Attack, entry: Entry, path: Path, out: Path) -> Outcome:
    """Give an attack to an entry as a command would be run; the second time if the first one had to import a lot."""
    outcome = _run_once(entry, path, out)
    if outcome.elapsed_s > attack.max_s or outcome.grown_mb > attack.max_mb:
        outcome = _run_once(entry, path, out)
    return outcome


def _run_once(entry: Entry, path: Path, out: Path) -> Outcome:
    stderr, stdout = io.StringIO(), io.StringIO()
    code = -1

    def main(_: list[str] | None) -> int:
        result = entry(path, out)
        return result if isinstance(result, int) else 0

    before_mb = _reset_peak()
    began = _processor_s()
    with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(stdout), _limited():
        try:
            run_command(main)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else -1
    elapsed_s = _processor_s() - began
    return Outcome(code, stderr.getvalue(), elapsed_s, _peak_mb() - before_mb)


def _processor_s() -> float:
    """Return the processor time of this process and of the finished ones that it started: others do not count."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"not refused within {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _status_mb(key: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    return 0.0


def _reset_peak() -> float:
    """Set the largest resident memory back to the present one; returns it in MB, 0 where there is no /proc."""
    if sys.platform != "linux":
        return 0.0
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
        return _status_mb("VmRSS")
    return _status_mb("VmHWM")


def _peak_mb() -> float:
    return _status_mb("VmHWM") if sys.platform == "linux" else 0.0


def files_below(*folders: Path) -> set[str]:
    """Return the paths of all files in folders."""
    return {f"{parent}/{name}" for folder in folders for parent, _, names in os.walk(folder) for name in names}
