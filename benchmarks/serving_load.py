"""A load on a server from a process of its own; part of `benchmarks.server`.

    python -m benchmarks.serving_load http://127.0.0.1:8000 --connections 16 --seconds 5

Every connection sends its next request when it has the answer to the last: the load follows what the server does, and
the number of connections sets how many requests are under way. All texts are different but for a stated share.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from corpora.foundation.command import run_command

LOAD_SECONDS = 5.0


@dataclass
class Load:
    """What came of a load."""

    seconds: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)
    """Status → requests."""
    dropped: int = 0
    """Requests that were sent and not answered whole."""
    refused: int = 0
    """Connections that were not let in."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    """Of the requests that were answered by 200."""
    p99_refusal_ms: float = 0.0
    """Of those that were answered by 503."""
    retry_after_s: tuple[int, ...] = ()
    """All values of the header Retry-After."""

    @property
    def per_s(self) -> float:
        """Requests answered by 200, a second."""
        return self.statuses.get("200", 0) / self.seconds


# --- the load ---------------------------------------------------------------------------------------------------------


class Client:
    """Connections that send texts for a while."""

    def __init__(self, url: str, texts: Sequence[str], *, seconds: float, repeated: float, limit: int) -> None:
        """Prepare.

        Args:
            url: of the server.
            texts: what the requests are made of.
            seconds: how long.
            repeated: share of requests that send an earlier text again.
            limit: requests after which to stop; 0: none.
        """
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._texts, self._repeated, self._limit = texts, repeated, limit
        self._deadline = time.perf_counter() + seconds
        self._random = np.random.default_rng(0)
        self._sent = 0
        # Texts of another run are not texts of this one.
        self._run = f"{time.time_ns() % 1_000_000:x}-"
        self.times: dict[str, list[float]] = {}
        self.load = Load()
        self._retry_after: set[int] = set()

    async def run(self, connections: int) -> Load:
        """Send; returns what came of it."""
        started = time.perf_counter()
        await asyncio.gather(*(self._connection() for _ in range(connections)))
        load = self.load
        load.seconds = time.perf_counter() - started
        load.statuses = {status: len(times) for status, times in self.times.items()}
        if answered := self.times.get("200"):
            load.p50_ms, load.p99_ms = (1000 * float(np.percentile(answered, q)) for q in (50, 99))
        if refused := self.times.get("503"):
            load.p99_refusal_ms = 1000 * float(np.percentile(refused, 99))
        load.retry_after_s = tuple(sorted(self._retry_after))
        return load

    def _is_over(self) -> bool:
        return time.perf_counter() > self._deadline or bool(self._limit and self._sent >= self._limit)

    def _request(self) -> bytes:
        self._sent += 1
        number = self._sent
        if number > 1 and self._random.random() < self._repeated:
            number = int(self._random.integers(1, number))
        body = json.dumps(
            {"texts": [f"{self._texts[number % len(self._texts)]} {self._run}{number}"]}, ensure_ascii=False
        ).encode()
        head = f"POST /classify HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

    async def _connection(self) -> None:
        while not self._is_over():
            try:
                reader, writer = await asyncio.open_connection(self._host, self._port)
            except OSError:
                self.load.refused += 1
                await asyncio.sleep(0.05)
                continue
            with contextlib.suppress(OSError):
                await self._talk(reader, writer)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send requests on one connection until the server or the time ends it."""
        while not self._is_over():
            started = time.perf_counter()
            writer.write(self._request())
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                await reader.readexactly(int(head.split("content-length:")[1].split("\r\n")[0]))
            except (asyncio.IncompleteReadError, OSError):
                self.load.dropped += 1
                return
            self.times.setdefault(head.split()[1], []).append(time.perf_counter() - started)
            if "retry-after:" in head:
                self._retry_after.add(int(head.split("retry-after:")[1].split("\r\n")[0]))
            if "connection: close" in head:
                return


def send(url: str, texts: Path, connections: int, *, seconds: float, repeated: float = 0.0, limit: int = 0) -> Load:
    """Put a load on a server from another process."""
    done = subprocess.run(
        load_command(url, texts, connections, seconds, repeated, limit), capture_output=True, check=True
    )
    return Load(**json.loads(done.stdout))


def load_command(
    url: str, texts: Path, connections: int, seconds: float, repeated: float = 0.0, limit: int = 0
) -> list[str]:
    """Return the command that loads a server."""
    options = {"connections": connections, "seconds": seconds, "repeated": repeated, "limit": limit}
    values = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return [sys.executable, "-m", "benchmarks.serving_load", url, "--texts", str(texts), *values]


def main(argv: list[str] | None = None) -> int:
    """Load a server; prints what came of it as JSON."""
    parser = argparse.ArgumentParser(description="Load a server.")
    parser.add_argument("url")
    parser.add_argument("--texts", type=Path, help="JSON list of texts")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=LOAD_SECONDS)
    parser.add_argument("--repeated", type=float, default=0.0, help="share of texts that were sent before")
    parser.add_argument("--limit", type=int, default=0, help="requests; 0: no limit")
    arguments = parser.parse_args(argv)
    texts = json.loads(arguments.texts.read_text(encoding="utf-8")) if arguments.texts else ["한 줄로 된 댓글"]
    client = Client(arguments.url, texts, seconds=arguments.seconds, repeated=arguments.repeated, limit=arguments.limit)
    load = asyncio.run(client.run(arguments.connections))
    sys.stdout.write(json.dumps(dataclasses.asdict(load)) + "\n")
    return 0


if __name__ == "__main__":
    run_command(main)
