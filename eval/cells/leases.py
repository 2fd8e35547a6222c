"""Leases on cells: a folder of cells is a queue that processes on any number of machines share.

A lease is a file that its holder creates atomically and rewrites every few seconds. It says who holds it: a token, the
host, the process and a counter, the heartbeat. A process that finds the same heartbeat for longer than the expiry takes
the lease over, at once if the holder was a process of this host that has ended. Nothing else is needed of the file
system than that creating a link fails if it exists: no locks, which network file systems may lack, and no clocks that
agree, because each process measures the silence itself.

Files of one lease are numbered. The holder is who created the highest number; a lease is taken over by creating the
next one, which one process can do. Whoever was stopped for longer than the expiry finds a higher number and has lost
the lease; it must not publish its work then.
"""

import contextlib
import json
import logging
import os
import platform
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from corpora.foundation.errors import UsageError, cannot_write
from corpora.foundation.files import atomic_file
from eval.cells.files import remove_empty, retried

logger = logging.getLogger(__name__)

EXPIRY_S = 60.0
"""Silence after which a lease is taken over."""
EXPIRY_VARIABLE = "PRESSBERT_LEASE_S"
"""Environment variable with another expiry in seconds; the same on all machines that share a folder."""
BEATS_PER_EXPIRY = 6
POLL_S = 0.2


class LeaseTakenError(Exception):
    """Another process holds the lease."""


@dataclass
class Lease:
    """A lease that this process holds, or has lost."""

    path: Path
    """Of the lease; its files are numbered."""
    number: int
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    _stopped: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def file(self) -> Path:
        """The file of this holder."""
        return _numbered(self.path, self.number)

    def is_held(self) -> bool:
        """Whether no other process has taken the lease over."""
        found = _newest(self.path)
        return found is not None and found[0] == self.number and found[1].get("token") == self.token

    def content(self, beat: int) -> str:
        """Return what the file says."""
        host, process = _here()
        return json.dumps({"token": self.token, "host": host, "process": process, "beat": beat})

    def keep(self, period_s: float) -> None:
        """Renew the lease until it is released or lost."""
        beat = 0
        while not self._stopped.wait(period_s):
            beat += 1
            if not self.is_held():
                logger.warning("%s: another process has taken over after a pause of this one", self.path)
                return
            with contextlib.suppress(OSError), atomic_file(self.file) as file:
                file.write(self.content(beat))

    def release(self) -> None:
        """Remove the files of this holder and of those before it; a higher number is another's."""
        self._stopped.set()
        for number, file in _files(self.path):
            if number <= self.number:
                file.unlink(missing_ok=True)
        for pattern in (f".{self.path.name}.*.part", f"{self.path.name}.*.part"):
            for partial in self.path.parent.glob(pattern):  # of a process that was killed while it wrote
                partial.unlink(missing_ok=True)


@contextlib.contextmanager
def leased(path: Path, label: str = "", *, is_waiting: bool = True) -> Iterator[Lease]:
    """Hold the lease PATH; its files and the folders created for it are removed afterwards.

    Args:
        path: of the lease, in a folder that all processes see.
        label: name of the work in the line that says this process waits; empty: no line.
        is_waiting: whether to wait for another holder to finish or to fall silent.

    Raises:
        LeaseTakenError: another process holds the lease, and IS_WAITING is false.
        ResultError: the lease cannot be written.
        UsageError: the variable of the expiry is no number.
    """
    expiry = expiry_s()
    is_announced = False
    while (lease := _acquire(path, expiry)) is None:
        if not is_waiting:
            raise LeaseTakenError(path)
        if label and not is_announced:
            sys.stderr.write(f"{label}: another process runs it; waiting\n")
            is_announced = True
        time.sleep(min(POLL_S, expiry / BEATS_PER_EXPIRY))
    heart = threading.Thread(target=lease.keep, args=(expiry / BEATS_PER_EXPIRY,), daemon=True)
    heart.start()
    try:
        yield lease
    finally:
        lease.release()
        heart.join()
        lease.release()  # a beat that was under way may have written the file again
    remove_empty(path.parent, levels=3)


def is_taken(path: Path) -> bool:
    """Whether another process holds the lease PATH and has not fallen silent."""
    found = _newest(path)
    return found is not None and not _is_expired(path, found, expiry_s())


def expiry_s() -> float:
    """Return the silence in seconds after which a lease is taken over.

    Raises:
        UsageError: the environment variable is no positive number.
    """
    value = os.environ.get(EXPIRY_VARIABLE) or str(EXPIRY_S)
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(EXPIRY_VARIABLE, f"'{value}' is no number of seconds", f"give one, e.g. {EXPIRY_S:g}")
    return seconds


def _acquire(path: Path, expiry: float) -> Lease | None:
    found = _newest(path)
    if found is not None and not _is_expired(path, found, expiry):
        return None
    lease = Lease(path, 1 if found is None else found[0] + 1)
    return lease if retried(lambda: _create(lease)) else None


def _create(lease: Lease) -> bool:
    """Create the file of a lease with its content; returns whether no other process was quicker.

    Raises:
        ResultError: it cannot be written.
    """
    scratch = lease.file.with_name(f"{lease.file.name}.{lease.token}.part")
    try:
        lease.file.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(lease.content(0), encoding="utf-8")
        try:
            lease.file.hardlink_to(scratch)
        except FileExistsError:
            return False
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(lease.file, error) from error
    return True


_seen: dict[Path, tuple[object, float]] = {}
"""Lease → what was last seen of its holder, and since when this process has seen just that."""


def _is_expired(path: Path, found: tuple[int, dict[str, object]], expiry: float) -> bool:
    host, _ = _here()
    if found[1].get("host") == host and not _is_alive(found[1].get("process")):
        return True
    before, since = _seen.get(path, (None, 0.0))
    if before != found:
        _seen[path] = (found, time.monotonic())
        return False
    return time.monotonic() - since > expiry


def _is_alive(process: object) -> bool:
    if not isinstance(process, int):
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _here() -> tuple[str, int]:
    """Return a name of this host that no other has, and the id of this process."""
    return _host(), os.getpid()


@cache
def _host() -> str:
    parts = [platform.node()]
    # A host that was started again, and a container, count their processes from 1 again.
    for source in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            parts.append(
                str(Path(source).readlink()) if source.endswith("pid") else Path(source).read_text("ascii").strip()
            )
    return " ".join(parts)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _files(path: Path) -> list[tuple[int, Path]]:
    """Return the files of a lease by number, the newest last."""
    prefix = f"{path.name}."
    found = []
    with contextlib.suppress(FileNotFoundError):
        for entry in path.parent.iterdir():
            number = entry.name.removeprefix(prefix)
            if entry.name.startswith(prefix) and number.isdecimal():
                found.append((int(number), entry))
    return sorted(found)


def _newest(path: Path) -> tuple[int, dict[str, object]] | None:
    """Return number and content of the file that counts; None if the lease is free."""
    for number, file in reversed(_files(path)):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue  # released meanwhile
        except (OSError, ValueError):
            content = {}  # damaged: it expires like any other
        return number, content if isinstance(content, dict) else {}
    return None
