"""A server under load, slow clients, hostile bodies and kills of its workers; writes a table.

    python -m benchmarks.soak --requests 50000 --slow 500 --out docs/benchmarks/soak.md
    python -m benchmarks.soak --seconds 60

Lost are requests without an answer outside of the second after a kill: what a worker computes when it is killed is
gone, and its clients see the connection end. Memory and descriptors are those of the processes that live throughout
(the supervisor and the workers that are not killed): the median of the last quarter of the time against that of the
second, since caches fill in the first.
"""

import argparse
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
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apps.serving.connections import raise_file_limit
from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from corpora.foundation.files import write_text
from corpora.foundation.machine import cpu_name

START_S = 180.0
SECONDS, LONGEST_S = 60.0, 3600.0
DRIP_S = 0.5
AFTER_KILL_S = 1.0
"""Seconds after a kill in which connections may end without an answer."""
TEXTS = (
    "배우들 연기가 정말 좋았다",
    "시간이 아깝다",
    "벼리시 의회가 예산 37억 원을 의결했다고 21일 밝혔다. 주민들은 반겼다.",
)
PATHS = (b"/classify", b"/embed")
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


SPARE_MB, SPARE_FILES = 16.0, 64
"""How much the last quarter may have above the second, beside a twentieth."""


@dataclass(frozen=True)
class Sample:
    """Memory and open files of the processes of the server, by process id."""

    memory_mb: dict[int, float]
    files: dict[int, int]


@dataclass
class Figures:
    """What the clients saw, and what the server needed."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    lost: int = 0
    ended_by_kill: int = 0
    errors: Counter[int] = field(default_factory=Counter)
    """Answers of 5xx but 503 with `Retry-After`, to whatever request."""
    health: Counter[bool] = field(default_factory=Counter)
    health_s: list[float] = field(default_factory=list)
    hostile: Counter[int] = field(default_factory=Counter)
    slow: Counter[str] = field(default_factory=Counter)
    """How the connections of slow clients ended."""
    kills: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    elapsed_s: float = 0.0

    @property
    def is_after_kill(self) -> bool:
        """Whether a worker was killed a moment ago."""
        return bool(self.kills) and time.monotonic() - self.kills[-1] < AFTER_KILL_S

    def add(self, status: int, has_retry_after: bool, elapsed_s: float) -> None:
        """Count an answer; status 0: none."""
        if status:
            self.statuses[status] += 1
            self.latencies_s.append(elapsed_s)
            self.note_error(status, has_retry_after)
        elif self.is_after_kill:
            self.ended_by_kill += 1
        else:
            self.lost += 1

    def note_error(self, status: int, has_retry_after: bool) -> None:
        """Count an answer that no client should get."""
        if status >= 500 and not (status == 503 and has_retry_after):
            self.errors[status] += 1

    @property
    def num_answered(self) -> int:
        """Requests with an answer, without those that are hostile, slow, or for health."""
        return sum(self.statuses.values())

    def quarters(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the median memory (MB) and open files of the second and the last quarter."""
        size = max(1, len(self.samples) // 4)
        parts = self.samples[size : 2 * size] or self.samples, self.samples[-size:]
        living = set.intersection(*(set(sample.files) for sample in self.samples)) if self.samples else set()

        def median(values: Iterable[float]) -> float:
            ordered = sorted(values)
            return ordered[len(ordered) // 2] if ordered else 0.0

        memory = [median(sum(one.memory_mb[pid] for pid in living) for one in part) for part in parts]
        files = [median(sum(one.files[pid] for pid in living) for one in part) for part in parts]
        return (memory[0], memory[1]), (files[0], files[1])

    def faults(self) -> list[str]:
        """Return what must not be."""
        (before_mb, after_mb), (before, after) = self.quarters()
        found = {
            "lost answers": self.lost > 0,
            "answers of 5xx": bool(self.errors),
            "health checks without an answer": self.health[False] > 0,
            "memory grows": after_mb > 1.05 * before_mb + SPARE_MB,
            "descriptors grow": after > 1.05 * before + SPARE_FILES,
        }
        return [name for name, is_found in found.items() if is_found]

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the table."""
        yield "requests answered", f"{self.num_answered:,} in {self.elapsed_s:.0f} s"
        yield "by status", counted(self.statuses)
        yield "p50 / p99", quantiles(self.latencies_s)
        yield "lost answers", f"{self.lost:,}"
        yield "5xx but 503 with `Retry-After`", counted(self.errors) or "0"
        yield "ended by a kill", f"{self.ended_by_kill:,} at {len(self.kills)} kills of workers"
        yield "hostile requests", counted(self.hostile)
        yield "connections of slow clients", counted(self.slow)
        yield "health checks", f"{self.health[True]:,} answered, {self.health[False]:,} not"
        yield "p50 / p99 of health checks", quantiles(self.health_s)
        (before_mb, after_mb), (before, after) = self.quarters()
        yield "memory, second and last quarter", f"{before_mb:.0f} and {after_mb:.0f} MB"
        yield "descriptors, second and last quarter", f"{before:,.0f} and {after:,.0f}"


def counted(counts: Counter[Any]) -> str:
    """Return counts by name."""
    return ", ".join(f"{name or 'no answer'}: {number:,}" for name, number in sorted(counts.items()))


def quantiles(seconds: Sequence[float]) -> str:
    """Return the median and the 99th percentile."""
    ordered = sorted(seconds) or [0.0]
    return " / ".join(f"{1000 * ordered[int(q * (len(ordered) - 1))]:.0f} ms" for q in (0.5, 0.99))


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


@dataclass
class End:
    """When the load ends: at a time, or after a number of answers."""

    at: float
    """Of the monotonic clock."""
    requests: int
    figures: Figures

    @property
    def is_near(self) -> bool:
        """Whether the load has ended."""
        return time.monotonic() > self.at or (0 < self.requests <= self.figures.num_answered)


async def ask(port: int, paths: Sequence[bytes], figures: Figures, end: End, seed: int) -> None:
    """Send mixed requests one after the other."""
    generator = random.Random(seed)  # noqa: S311 - the same load on every run
    for number in itertools.count():
        if end.is_near:
            return
        if generator.random() < 0.1:
            head, body = generator.choice(HOSTILE)
            status, has_retry_after = await exchange(port, b"/classify", body, head)
            figures.hostile[status] += 1
            figures.note_error(status, has_retry_after)
            continue
        path = generator.choice(paths)
        texts = [f"{generator.choice(TEXTS)} {seed} {number} {k}" for k in range(generator.randint(1, 4))]
        began = time.monotonic()
        status, has_retry_after = await exchange(port, path, json.dumps({"texts": texts}).encode())
        figures.add(status, has_retry_after, time.monotonic() - began)
        if status == 503:
            await asyncio.sleep(0.2)


async def drip(port: int, figures: Figures, end: End) -> None:
    """Hold a connection and send a byte of a head now and then, until the server ends it; then open another."""
    while not end.is_near:
        answer = b""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"POST /classify HTTP/1.1\r\nX: ")
                reading = asyncio.create_task(reader.read(64))
                # Its error is that of the connection, which the writer meets as well.
                reading.add_done_callback(lambda task: task.cancelled() or task.exception())
                while not end.is_near and not reading.done():
                    writer.write(b"a")
                    await writer.drain()
                    await asyncio.wait([reading], timeout=DRIP_S)
                if end.is_near and not reading.done():
                    reading.cancel()
                    return
                answer = await reading
            finally:
                writer.close()
        except OSError:
            await asyncio.sleep(0.2)
        figures.slow[answer[9:12].decode("ascii", "replace")] += 1


async def probe(port: int, figures: Figures, end: End) -> None:
    """Ask whether the server is alive."""
    while not end.is_near:
        began = time.monotonic()
        status, has_retry_after = await exchange(port, b"/health")
        if status or not figures.is_after_kill:
            figures.health[status == 200] += 1
            figures.health_s.append(time.monotonic() - began)
            figures.note_error(status, has_retry_after)
        await asyncio.sleep(0.25)


async def kill_workers(server: int, figures: Figures, end: End, every_s: float) -> None:
    """Kill the youngest worker now and then; the server starts another."""
    due = time.monotonic() + every_s
    while every_s and not end.is_near:
        await asyncio.sleep(min(every_s, 0.5))
        if time.monotonic() > due and len(workers := children(server)) > 1:
            due = time.monotonic() + every_s
            figures.kills.append(time.monotonic())
            with contextlib.suppress(ProcessLookupError):
                os.kill(workers[-1], signal.SIGKILL)


async def watch(server: int, figures: Figures, end: End) -> None:
    """Note memory and open files of all processes of the server."""
    while not end.is_near:
        family = [server, *children(server)]
        memory_mb = {pid: resident_mb(pid) for pid in family}
        figures.samples.append(Sample(memory_mb, {pid: count_files(pid) for pid in family}))
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
def serving(arguments: Sequence[str], num_workers: int, log: list[int]) -> Iterator[tuple[int, int]]:
    """Run a server; yields its process and its port. The lengths of its lines of log are added to LOG."""
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
            # A full pipe would stop it.
            reader = threading.Thread(target=lambda stream=server.stderr: log.extend(map(len, stream)), daemon=True)
            reader.start()
            yield server.pid, int(event["url"].rpartition(":")[2])
            server.send_signal(signal.SIGTERM)
            server.wait(60)
            reader.join(10)
        finally:
            if server.poll() is None:
                server.kill()


async def soak(
    server: int,
    port: int,
    *,
    paths: Sequence[bytes] = PATHS,
    seconds: float,
    requests: int,
    num_clients: int,
    num_slow: int,
    kill_every_s: float,
) -> Figures:
    """Load the endpoints PATHS of a server for a time, or until it has answered a number of requests."""
    figures = Figures()
    began = time.monotonic()
    end = End(began + seconds, requests, figures)
    tasks = [ask(port, paths, figures, end, seed) for seed in range(num_clients)]
    tasks += [drip(port, figures, end) for _ in range(num_slow)]
    tasks += [probe(port, figures, end), watch(server, figures, end)]
    tasks.append(kill_workers(server, figures, end, kill_every_s))
    await asyncio.gather(*tasks)
    figures.elapsed_s = time.monotonic() - began
    return figures


def page(figures: Figures, arguments: argparse.Namespace, log: Sequence[int]) -> str:
    """Return the page."""
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    lines = [
        "# The server in a soak",
        "",
        f"`python -m benchmarks.soak` on {cpu_name()}, Python {sys.version.split()[0]}. Server and clients share "
        f"{num_cores} core{'s' * (num_cores != 1)}, so that times are not those of a machine of its own.",
        "",
        f"{arguments.clients} clients send labels and vectors to compute, every tenth request hostile; {arguments.slow}"
        f" slow clients send a byte of a head every {DRIP_S} s; of {arguments.workers} workers the youngest is killed "
        f"every {arguments.kill_every:.0f} s.",
        "",
        "| what | figure |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in figures.rows()),
        f"| log | {len(log):,} lines, {sum(log) / 1e3:,.0f} kB |",
        "",
        f"Not as it must be: {', '.join(figures.faults()) or 'nothing'}.",
    ]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Load a server from the command line; exit code 1 if an answer was lost or a health check failed."""
    parser = ArgumentParser("python -m benchmarks.soak", "Load a server with mixed, slow and hostile clients.")
    parser.add_argument("--seconds", type=float, default=0.0, help="of load at most (60; with --requests 3600)")
    parser.add_argument("--requests", type=int, default=0, help="answers after which the load ends; 0: none (0)")
    parser.add_argument("--clients", type=int, default=16, help="that send requests one after the other (16)")
    parser.add_argument("--slow", type=int, default=100, help="clients that send a byte of a head now and then (100)")
    parser.add_argument("--workers", type=int, default=2, help="of the server (2)")
    parser.add_argument(
        "--kill-every", type=float, default=20.0, metavar="S", help="seconds between kills; 0: none (20)"
    )
    parser.add_argument("--out", type=Path, help="page to write; default: print it")
    arguments = parser.parse(argv)
    raise_file_limit()
    log: list[int] = []
    with serving(["--classify", "--embed"], arguments.workers, log) as (server, port):
        figures = asyncio.run(
            soak(
                server,
                port,
                seconds=arguments.seconds or (LONGEST_S if arguments.requests else SECONDS),
                requests=arguments.requests,
                num_clients=arguments.clients,
                num_slow=arguments.slow,
                kill_every_s=arguments.kill_every,
            )
        )
    text = page(figures, arguments, log)
    if arguments.out:
        write_text(arguments.out, text)
    sys.stdout.write(text)
    return EXIT_FAILED_CELLS if figures.faults() or figures.num_answered < arguments.requests else EXIT_DONE


if __name__ == "__main__":
    run_command(main)
