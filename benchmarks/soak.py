"""A server under load, slow clients, hostile bodies and kills of its workers, for a stated time; prints a table.

    python -m benchmarks.soak --seconds 60 --clients 16 --slow 500

Lost are requests without an answer, and answers of 5xx but 503 with `Retry-After`, outside of the second after a kill:
what a worker computes when it is killed is gone, and its clients see the connection end.
"""

import asyncio
import contextlib
import gzip
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.foundation.errors import UsageError

START_S = 180.0
AFTER_KILL_S = 1.0
"""Seconds after a kill in which connections may end without an answer."""
TEXTS = (
    "배우들 연기가 정말 좋았다",
    "시간이 아깝다",
    "벼리시 의회가 예산 37억 원을 의결했다고 21일 밝혔다. 주민들은 반겼다.",
)
HOSTILE: tuple[tuple[bytes, bytes], ...] = (
    (b"", b'{"texts": ' + b"[" * 100_000),
    (b"", b'{"texts": [' + b"9" * 10_000 + b"]}"),
    (b"", b'{"texts": ["\xff"]}'),
    (b"Content-Encoding: gzip\r\n", gzip.compress(b"a" * (1 << 24))),
    (b"Content-Encoding: gzip\r\n", b"\x1f\x8b\x08\x00" + b"\xff" * 20),
    (b"Transfer-Encoding: chunked\r\n", b'{"texts": []}'),
    (b"", b"a" * (1 << 21)),
)
"""Lines of head, and bodies."""


@dataclass
class Figures:
    """What the clients saw."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    lost: int = 0
    ended_by_kill: int = 0
    health: Counter[bool] = field(default_factory=Counter)
    hostile: Counter[int] = field(default_factory=Counter)
    kills: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    @property
    def is_after_kill(self) -> bool:
        """Whether a worker was killed a moment ago."""
        return bool(self.kills) and time.monotonic() - self.kills[-1] < AFTER_KILL_S

    def add(self, status: int, has_retry_after: bool, elapsed_s: float) -> None:
        """Count an answer; status 0: none."""
        if status:
            self.statuses[status] += 1
            self.latencies_s.append(elapsed_s)
        is_lost = not status or (status >= 500 and not (status == 503 and has_retry_after))
        if is_lost and self.is_after_kill:
            self.ended_by_kill += 1
        elif is_lost:
            self.lost += 1

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the table."""
        ordered = sorted(self.latencies_s) or [0.0]
        yield "requests answered", f"{sum(self.statuses.values()):,}"
        yield "by status", ", ".join(f"{status}: {count:,}" for status, count in sorted(self.statuses.items()))
        yield "p50 / p99", " / ".join(f"{1000 * ordered[int(q * (len(ordered) - 1))]:.0f} ms" for q in (0.5, 0.99))
        yield "lost answers", f"{self.lost:,}"
        yield "ended by a kill", f"{self.ended_by_kill:,} at {len(self.kills)} kills of workers"
        yield "hostile requests", ", ".join(f"{status}: {n:,}" for status, n in sorted(self.hostile.items()))
        yield "health checks", f"{self.health[True]:,} answered, {self.health[False]:,} not"
        if self.memory_mb:
            half = len(self.memory_mb) // 2
            yield (
                "memory",
                f"{max(self.memory_mb[:half] or [0]):.0f} MB at most in the first half, "
                + (f"{max(self.memory_mb[half:]):.0f} MB in the second"),
            )
            yield "open files", f"{max(self.files):,} at most, {self.files[-1]:,} at the end"


async def exchange(port: int, path: bytes, body: bytes = b"", head: bytes = b"") -> tuple[int, bool]:
    """Send a request; returns the status, 0 for no answer, and whether there is a `Retry-After`."""
    method = b"POST" if body else b"GET"
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(
                b"%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n%s%s\r\n"
                % (method, path, length, head)
            )
            writer.write(body)
            # A refusal may come before all is sent.
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            answer = await asyncio.wait_for(reader.read(), 40)
        finally:
            writer.close()
    except (OSError, TimeoutError):
        return 0, False
    if not answer.startswith(b"HTTP/1.1 "):
        return 0, False
    return int(answer[9:12]), b"retry-after" in answer.partition(b"\r\n\r\n")[0].lower()


async def ask(port: int, figures: Figures, until: float, seed: int) -> None:
    """Send mixed requests one after the other."""
    generator = random.Random(seed)  # noqa: S311 - the same load on every run
    for number in itertools.count():
        if time.monotonic() > until:
            return
        if generator.random() < 0.1:
            head, body = generator.choice(HOSTILE)
            status, _ = await exchange(port, b"/classify", body, head)
            figures.hostile[status] += 1
            continue
        path = generator.choice((b"/classify", b"/embed"))
        texts = [f"{generator.choice(TEXTS)} {seed} {number} {k}" for k in range(generator.randint(1, 4))]
        began = time.monotonic()
        status, has_retry_after = await exchange(port, path, json.dumps({"texts": texts}).encode())
        figures.add(status, has_retry_after, time.monotonic() - began)
        if status == 503:
            await asyncio.sleep(0.2)


async def drip(port: int, until: float) -> None:
    """Hold a connection and send a byte of a head now and then."""
    while time.monotonic() < until:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"POST /classify HTTP/1.1\r\nX: ")
                while time.monotonic() < until:
                    writer.write(b"a")
                    await writer.drain()
                    await asyncio.sleep(0.5)
            finally:
                writer.close()
        except OSError:
            await asyncio.sleep(0.2)


async def probe(port: int, figures: Figures, until: float) -> None:
    """Ask whether the server is alive."""
    while time.monotonic() < until:
        status, _ = await exchange(port, b"/health")
        if status or not figures.is_after_kill:
            figures.health[status == 200] += 1
        await asyncio.sleep(0.25)


async def kill_workers(server: int, figures: Figures, until: float, every_s: float) -> None:
    """Kill a worker now and then; the server starts another."""
    while every_s and time.monotonic() + 2 * every_s < until:
        await asyncio.sleep(every_s)
        if len(workers := children(server)) > 1:
            figures.kills.append(time.monotonic())
            with contextlib.suppress(ProcessLookupError):
                os.kill(workers[-1], signal.SIGKILL)


async def watch(server: int, figures: Figures, until: float) -> None:
    """Note memory and open files of all processes of the server."""
    while time.monotonic() < until:
        family = [server, *children(server)]
        figures.memory_mb.append(sum(map(resident_mb, family)))
        figures.files.append(sum(map(count_files, family)))
        await asyncio.sleep(1)


def children(pid: int) -> list[int]:
    """Return the worker processes of a server, oldest first."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(child) for child in found if b"resource_tracker" not in command_of(int(child))]


def command_of(pid: int) -> bytes:
    """Return the command line of a process; empty if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process; 0 if it is gone."""
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def count_files(pid: int) -> int:
    """Return the open files of a process; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0


@contextlib.contextmanager
def serving(arguments: Sequence[str], num_workers: int) -> Iterator[tuple[int, int]]:
    """Run a server; returns its process and its port."""
    command = [sys.executable, "-m", "apps.serve", "--port", "0", "--workers", str(num_workers), *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            deadline = time.monotonic() + START_S
            for line in server.stderr:
                event: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
                if event.get("event") == "listening":
                    break
                if time.monotonic() > deadline:
                    raise UsageError("benchmarks.soak", "the server does not start", "see its messages")
            else:
                raise UsageError("benchmarks.soak", "the server ended", "start python -m apps.serve by itself")
            # What it logs now is not needed, and a full pipe would stop it.
            drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
            yield server.pid, int(event["url"].rpartition(":")[2])
            server.send_signal(signal.SIGTERM)
            server.wait(60)
            drain.wait(10)
        finally:
            if server.poll() is None:
                server.kill()


async def soak(
    server: int, port: int, *, seconds: float, num_clients: int, num_slow: int, kill_every_s: float
) -> Figures:
    """Load a server for a time."""
    figures = Figures()
    until = time.monotonic() + seconds
    tasks = [ask(port, figures, until, seed) for seed in range(num_clients)]
    tasks += [drip(port, until) for _ in range(num_slow)]
    tasks += [probe(port, figures, until), watch(server, figures, until)]
    tasks.append(kill_workers(server, figures, until, kill_every_s))
    await asyncio.gather(*tasks)
    return figures


def main(argv: list[str] | None = None) -> int:
    """Load a server from the command line; exit code 1 if an answer was lost or a health check failed."""
    parser = ArgumentParser("python -m benchmarks.soak", "Load a server with mixed, slow and hostile clients.")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load (60)")
    parser.add_argument("--clients", type=int, default=16, help="that send requests one after the other (16)")
    parser.add_argument("--slow", type=int, default=100, help="clients that send a byte of a head now and then (100)")
    parser.add_argument("--workers", type=int, default=2, help="of the server (2)")
    parser.add_argument(
        "--kill-every", type=float, default=20.0, metavar="S", help="seconds between kills; 0: none (20)"
    )
    arguments = parser.parse(argv)
    with serving(["--classify", "--embed"], arguments.workers) as (server, port):
        figures = asyncio.run(
            soak(
                server,
                port,
                seconds=arguments.seconds,
                num_clients=arguments.clients,
                num_slow=arguments.slow,
                kill_every_s=arguments.kill_every,
            )
        )
    sys.stdout.write("| what | figure |\n| --- | --- |\n")
    sys.stdout.write("".join(f"| {name} | {value} |\n" for name, value in figures.rows()))
    return EXIT_FAILED_CELLS if figures.lost or figures.health[False] else EXIT_DONE


if __name__ == "__main__":
    run_command(main)
