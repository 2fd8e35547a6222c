"""Limits on connections: their number, the time for a request's head, and the time of an exchange.

A client that opens connections and sends nothing, or a byte at a time, holds each of them for a limited time; where
all are taken, the one that has waited longest for a head makes room for a new one. Health checks so get through.
"""

import asyncio
import contextlib
import sys

from uvicorn.protocols.http.h11_impl import H11Protocol

ACCEPTED_AT_A_TIME = 16
"""Connections that asyncio accepts before it serves them; by default it would accept as many as are queued."""
RESERVED_FILES = 128
"""Descriptors that are left to models, logs, metrics, and to connections that were accepted but not yet counted."""
MOST_FILES = 1 << 16
FEWEST = 8
LINGER_S = 2.0
"""Seconds for a client to take the last answer of a connection that ends."""
REFUSED = b"HTTP/1.1 %s\r\nconnection: close\r\n%scontent-length: 0\r\n\r\n"
TOO_SLOW = REFUSED % (b"408 Request Timeout", b"")
FULL = REFUSED % (b"503 Service Unavailable", b"retry-after: 1\r\n")


def raise_file_limit() -> int:
    """Allow this process as many open files as the system lets it; returns the number."""
    if sys.platform == "win32":
        return MOST_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Connections:
    """The open connections of a worker, in two groups: those that wait for a head, and those in an exchange."""

    def __init__(self, most: int, *, head_s: float, exchange_s: float) -> None:
        """Set the limits.

        Args:
            most: connections at a time.
            head_s: seconds for the head of a request, from the opening of the connection or the previous answer.
            exchange_s: seconds from the head to the last byte of the answer.
        """
        self.most, self._head_s, self._exchange_s = most, head_s, exchange_s
        self._waiting: dict[GuardedProtocol, asyncio.TimerHandle] = {}
        self._busy: dict[GuardedProtocol, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._waiting) + len(self._busy)

    def admit(self, new: "GuardedProtocol") -> None:
        """Count a new connection; if there are too many, the longest waiting one ends, or else the new one."""
        if len(self) >= self.most:
            if not self._waiting:
                new.end(FULL)
                return
            oldest = next(iter(self._waiting))
            self.forget(oldest)
            oldest.end(FULL)
        self._waiting[new] = new.loop.call_later(self._head_s, self._expire, new)

    def update(self, one: "GuardedProtocol") -> None:
        """Move a connection to the group that it is in."""
        if one.is_busy and one in self._waiting:
            self._waiting.pop(one).cancel()
            self._busy[one] = one.loop.call_later(self._exchange_s, self._abort, one)
        elif not one.is_busy and one in self._busy:
            self._busy.pop(one).cancel()
            self._waiting[one] = one.loop.call_later(self._head_s, self._expire, one)

    def forget(self, one: "GuardedProtocol") -> None:
        """Stop counting a connection."""
        for group in (self._waiting, self._busy):
            if (timer := group.pop(one, None)) is not None:
                timer.cancel()

    def _expire(self, one: "GuardedProtocol") -> None:
        self.forget(one)
        one.end(TOO_SLOW if one.has_begun else b"")

    def _abort(self, one: "GuardedProtocol") -> None:
        self.forget(one)
        one.transport.abort()


class GuardedProtocol(H11Protocol):
    """Uvicorn's protocol with the limits of `connections`, which a subclass sets."""

    connections_of_worker: Connections
    has_begun = False
    """Whether bytes of a head have arrived that is not complete."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection."""
        super().connection_made(transport)
        self.connections_of_worker.admit(self)

    def data_received(self, data: bytes) -> None:
        """Read, and note whether a request has begun."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self.has_begun = not self.is_busy
        self.connections_of_worker.update(self)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self.has_begun = False
        self.connections_of_worker.update(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self.connections_of_worker.forget(self)
        super().connection_lost(exc)

    def end(self, answer: bytes) -> None:
        """End the connection, with an answer that is no product of the application."""
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
            self.loop.call_later(LINGER_S, self.transport.abort)


def guarded(connections: Connections) -> type[GuardedProtocol]:
    """Return the protocol of a worker whose connections are limited."""
    return type("WorkerProtocol", (GuardedProtocol,), {"connections_of_worker": connections})
