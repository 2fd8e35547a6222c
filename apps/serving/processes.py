"""Worker processes: a supervisor starts them, replaces those that die, and ends them without dropping requests.

Every worker listens on the port itself, and the kernel distributes new connections (SO_REUSEPORT). Outside of Linux
they share one socket.
"""

import asyncio
import contextlib
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from apps.serving.services import Settings, load_services
from corpora.foundation.errors import CheckpointError, SuiteError, UsageError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from apps.serving.web import Serving

logger = logging.getLogger("apps.serve")

BACKLOG = 2048
SWITCH_INTERVAL_S = 0.001
"""Longest time for which the computing thread blocks the event loop; the default of 5 ms adds to latencies."""
RESTARTS, RESTART_WINDOW_S = 5, 60.0
"""Deaths of workers within a number of seconds after which the server gives up."""
HEADER_BYTES = 16 << 10
SPARE_S = 10.0
"""Seconds for a client to take an answer that was computed in time."""
HAS_REUSEPORT = sys.platform.startswith("linux")


@dataclass(frozen=True)
class WorkerConfig:
    """Configuration of a worker process."""

    settings: Settings
    hosts: tuple[str, ...]
    """Allowed host names; `ANY_ADDRESS`: every address; none: any name."""
    address: tuple[str, int]
    is_verbose: bool


def log_lines(*, is_verbose: bool) -> None:
    """Write log records to stderr unchanged: the server's lines of JSON, and warnings."""
    level = logging.INFO if is_verbose else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(message)s", force=True)
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogLimit())
    logger.setLevel(logging.INFO)


class LogLimit(logging.Filter):
    """Lets a number of warnings and errors of a logger through in a time; then one line says that more are left out."""

    def __init__(self, most: int = 20, per_s: float = 10.0) -> None:
        """Let MOST lines through in PER_S seconds."""
        super().__init__()
        self._most, self._per_s = most, per_s
        self._began, self._counts = time.monotonic(), Counter[tuple[str, int]]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        if record.levelno < logging.WARNING:
            return True
        if (at := time.monotonic()) - self._began > self._per_s:
            self._began, self._counts = at, Counter()
        key = (record.name, record.levelno)
        self._counts[key] += 1
        if self._counts[key] == self._most + 1:
            log_event("lines_left_out", logger=record.name, seconds=self._per_s)
        return self._counts[key] <= self._most


def _log_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of the event loop in one line without a traceback, which may contain a text of a request."""
    kind = type(context.get("exception")).__name__
    logger.error(json.dumps({"event": "loop_error", "kind": kind, "what": context.get("message", "")}))


def log_event(event: str, **fields: Any) -> None:
    """Write a line of structured log."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    logger.info(json.dumps({"time": now, "worker": os.getpid(), "event": event} | fields, ensure_ascii=False))


def listen(host: str, port: int, *, is_shared: bool) -> socket.socket:
    """Listen on an address, alone or beside the other workers.

    Raises:
        UsageError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=is_shared)
        # Connections inherit it. asyncio sets it only for sockets of a known protocol, and this one has none; on a
        # kept-alive connection the body of an answer would wait 40 ms for the acknowledgement of its head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, OverflowError) as error:
        # The message of the error repeats the address; an unknown name has no number.
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else str(error)
        raise UsageError(
            f"{host}:{port}", f"cannot listen there ({reason})", "give another --host or --port"
        ) from error


class Supervisor:
    """Keeps worker processes running."""

    def __init__(self, worker_config: WorkerConfig, num_workers: int) -> None:
        """Reserve the port; workers start with `run`.

        Raises:
            UsageError: the address is not available.
        """
        self._context = multiprocessing.get_context("spawn")
        self._num_workers = num_workers
        self._workers: dict[int, tuple[SpawnProcess, Connection]] = {}
        self._is_ending = False
        # Exclusively at first: otherwise another server on this port would share connections with this one.
        self._listener: socket.socket | None = listen(*worker_config.address, is_shared=False)
        self._worker_config = WorkerConfig(
            worker_config.settings, worker_config.hosts, self._listener.getsockname()[:2], worker_config.is_verbose
        )
        if HAS_REUSEPORT:
            self._listener.close()
            self._listener = None

    @property
    def url(self) -> str:
        """Address of the server."""
        host, port = self._worker_config.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self, when_ready: Callable[[], object]) -> None:
        """Keep the workers running until SIGTERM or SIGINT; return when all have finished.

        Args:
            when_ready: called once, when all workers accept requests.

        Raises:
            SuiteError: a worker could not start.
            CheckpointError: workers die repeatedly.
        """
        waker, wakened = self._context.Pipe()
        before = {
            number: signal.signal(number, lambda *_: self._end(waker)) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            for _ in range(self._num_workers):
                self._start()
            for _, pipe in list(self._workers.values()):
                self._wait_ready(pipe)
            if not self._is_ending:
                when_ready()
            deaths: list[float] = []
            while not self._is_ending:
                sentinels = {process.sentinel: pid for pid, (process, _) in self._workers.items()}
                for gone in wait([*sentinels, wakened]):
                    if isinstance(gone, int) and not self._is_ending:
                        self._replace(sentinels[gone], deaths)
        finally:
            self._stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, waker: Connection) -> None:
        self._is_ending = True
        waker.send(b"")

    def _start(self) -> Connection:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=run_worker, args=(self._worker_config, self._listener, theirs))
        process.start()
        theirs.close()
        assert process.pid is not None
        self._workers[process.pid] = process, ours
        return ours

    def _wait_ready(self, pipe: Connection) -> None:
        """Wait until a worker reports that it is ready, or why it is not."""
        while not self._is_ending:
            if not pipe.poll(0.1):
                continue
            try:
                word = pipe.recv()
            except EOFError:
                word = CheckpointError(
                    "apps.serve", "a worker died while it loaded its models", "see its messages above"
                )
            if isinstance(word, SuiteError):
                raise word
            return

    def _replace(self, pid: int, deaths: list[float]) -> None:
        """Start a worker instead of a dead one."""
        process, pipe = self._workers.pop(pid)
        process.join()
        reason = _last_error(pipe)
        log_event("worker_died", pid=pid, exit_code=process.exitcode, **({"reason": str(reason)} if reason else {}))
        now = time.monotonic()
        deaths[:] = [at for at in deaths if now - at < RESTART_WINDOW_S] + [now]
        if len(deaths) > RESTARTS:
            raise reason or CheckpointError(
                "apps.serve", f"workers died {len(deaths)} times in a minute", "see the log"
            )
        # Not waited for: it may die while it loads, and another one meanwhile.
        self._start()

    def _stop(self) -> None:
        """Let all workers finish accepted requests."""
        if self._listener is not None:
            # The kernel queues connections as long as any process holds the socket.
            self._listener.close()
        for process, _ in self._workers.values():
            process.terminate()
        settings = self._worker_config.settings
        deadline = time.monotonic() + settings.timeout_s + settings.drain_s + 10
        for process, _ in self._workers.values():
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                log_event("worker_killed", pid=process.pid)
                process.kill()
                process.join()
        self._workers.clear()


def _last_error(pipe: Connection) -> SuiteError | None:
    """Return why a worker could not start, if it has said so."""
    error: SuiteError | None = None
    with contextlib.suppress(EOFError, OSError):
        while pipe.poll():
            word = pipe.recv()
            error = word if isinstance(word, SuiteError) else error
    pipe.close()
    return error


def run_worker(worker_config: WorkerConfig, listener: socket.socket | None, pipe: Connection) -> None:
    """Run a worker: load the models, report it, and serve until SIGTERM or until the supervisor is gone."""
    from apps.serving.metrics import Metrics
    from apps.serving.web import Serving

    log_lines(is_verbose=worker_config.is_verbose)
    # Ctrl-C reaches every process of the terminal; the supervisor ends the workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    settings = worker_config.settings
    try:
        serving = Serving(load_services(settings), settings, Metrics())
        if listener is None:
            listener = listen(*worker_config.address, is_shared=True)
    except SuiteError as error:
        pipe.send(error)
        return
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    make_server(make_config(serving, worker_config.hosts), serving, lambda: pipe.send("ready")).run(sockets=[listener])


def make_config(serving: "Serving", hosts: Iterable[str]) -> Any:
    """Return uvicorn's settings of a worker; HOSTS as for `make_app`."""
    import uvicorn

    from apps.serving.connections import (
        ACCEPTED_AT_A_TIME,
        FEWEST,
        RESERVED_FILES,
        Connections,
        guarded,
        raise_file_limit,
    )
    from apps.serving.web import make_app

    settings = serving.settings
    most = min(settings.max_connections, max(FEWEST, raise_file_limit() - RESERVED_FILES))
    exchange_s = settings.body_timeout_s + settings.timeout_s + SPARE_S
    return uvicorn.Config(
        make_app(serving, hosts=hosts),
        http=guarded(Connections(most, head_s=settings.head_timeout_s, exchange_s=exchange_s)),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        backlog=ACCEPTED_AT_A_TIME,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_graceful_shutdown=int(settings.timeout_s) + 5,
    )


def _end_with(pipe: Connection) -> None:
    """End this process when the supervisor at the other end of the pipe is gone."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGTERM)


def make_server(config: Any, serving: "Serving", when_ready: Callable[[], object]) -> Any:
    """Return a uvicorn server that drains its connections before it stops."""
    import uvicorn

    class DrainingServer(uvicorn.Server):
        """A server that waits for connections to end before it closes them.

        Uvicorn closes idle connections at once, while a request may be in flight on one of them.
        """

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Start, and call `when_ready`."""
            await super().startup(sockets)
            asyncio.get_running_loop().set_exception_handler(_log_loop_error)
            for listener in sockets or ():
                # asyncio has set it to the number of connections that it accepts at a time.
                listener.listen(BACKLOG)
            when_ready()

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Handle SIGTERM here; uvicorn would raise it again after the shutdown."""
            before = signal.signal(signal.SIGTERM, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGTERM, before)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Stop listening, answer with `connection: close` for `drain_s`, then close what remains."""
            let_in = [connection for listener in sockets or () for connection in accept_all(listener)]
            for server in self.servers:
                server.close()
            # Not earlier: clients would open new connections that nobody accepts.
            serving.is_draining = True
            for connection in let_in:
                await asyncio.get_running_loop().connect_accepted_socket(self._make_protocol, connection)
            deadline = time.monotonic() + serving.settings.drain_s
            while self.server_state.connections and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
            await super().shutdown(sockets)

        def _make_protocol(self) -> asyncio.Protocol:
            kind: Any = self.config.http_protocol_class
            protocol: asyncio.Protocol = kind(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return protocol

    return DrainingServer(config)


def accept_all(listener: socket.socket) -> list[socket.socket]:
    """Accept every connection in the kernel's queue, which would be lost with the socket."""
    taken: list[socket.socket] = []
    listener.setblocking(False)
    with contextlib.suppress(OSError):
        while True:
            taken.append(listener.accept()[0])
    for connection in taken:
        connection.setblocking(False)
    return taken
