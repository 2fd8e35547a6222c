"""Attacks on the server: half-open connections, bodies without end, two lengths, foreign names, floods of log."""

import asyncio
import contextlib
import gzip
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from pydantic_core import to_json

pytest.importorskip("fastapi", reason="needs the packages of the server: pip install 'pressbert[serve]'")

from apps.serve import default_hosts
from apps.serving.metrics import Metrics
from apps.serving.processes import LogLimit, listen, make_config, make_server
from apps.serving.services import Settings
from apps.serving.tool import Service, TextItem
from apps.serving.tools.texts.classify import ClassifyRequest, ClassifyResponse
from apps.serving.web import Serving

SETTINGS = Settings(
    max_connections=8, head_timeout_s=0.6, body_timeout_s=0.4, timeout_s=2.0, max_body_bytes=10_000, drain_s=0.1
)


def service() -> Service:
    """Return a service that answers at once."""
    return Service(
        endpoint="classify",
        model="fake",
        digest="1" * 64,
        runtime="torch",
        about={"task": "nsmc"},
        request=ClassifyRequest,
        response=ClassifyResponse,
        sample=TextItem(("견본",)),
        items=lambda request: [TextItem((getattr(text, "text", text),)) for text in request.texts],
        compute=lambda batch: [to_json({"label": "a", "scores": {"a": 1.0}}) for _ in batch],
    )


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Run the server of a worker in a thread; returns its port."""
    ready = threading.Event()
    listener = listen("127.0.0.1", 0, is_shared=False)
    serving = Serving({"classify": service()}, SETTINGS, Metrics())
    server = make_server(make_config(serving, default_hosts("0.0.0.0")), serving, ready.set)
    server.capture_signals = contextlib.nullcontext  # only the main thread may handle signals
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    assert ready.wait(10)
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(10)


def ask(port: int, request: bytes, timeout_s: float = 3.0) -> int:
    """Send bytes; returns the status of the answer, 0 for none."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as client:
        client.settimeout(timeout_s)
        with contextlib.suppress(ConnectionError):
            client.sendall(request)
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = client.recv(1 << 16)
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0


def post(body: bytes, *lines: str, host: str = "localhost", length: bool = True) -> bytes:
    """Return a request to classify."""
    head = ["POST /classify HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *lines]
    if length:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


GOOD = '{"texts": ["좋다"]}'.encode()
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
DEEP = b'{"texts": ' + b"[" * 9_000
HOSTILE: list[tuple[str, bytes, set[int]]] = [
    ("two lengths of one body", post(GOOD, "Transfer-Encoding: chunked"), {400}),
    ("two numbers of bytes", post(GOOD, "Content-Length: 3"), {400}),
    ("a negative number of bytes", post(GOOD, "Content-Length: -1", length=False), {400}),
    ("a number of bytes beyond all", post(GOOD, f"Content-Length: {10**30}", length=False), {400, 413}),
    ("a chunk of no size", post(b"zz\r\n", "Transfer-Encoding: chunked", length=False), {400}),
    ("a head of a megabyte", b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 20), {400, 431}),
    ("ten thousand lines of head", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", {400, 431}),
    ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", {0, 400}),
    ("a foreign name", post(GOOD, host="evil.example"), {421}),
    ("a name like ours", post(GOOD, host="localhost.evil.example"), {421}),
    ("no name", b"GET /models HTTP/1.0\r\n\r\n", {421}),
    ("a body of a megabyte", post(b"a" * (1 << 20)), {413}),
    ("a body that unpacks to a megabyte", post(gzip.compress(b"a" * (1 << 20)), "Content-Encoding: gzip"), {413}),
    ("damaged gzip", post(b"\x1f\x8b\x08\x00" + b"\xff" * 20, "Content-Encoding: gzip"), {400}),
    ("gzip of four hundred members", post(gzip.compress(b"") * 400, "Content-Encoding: gzip"), {400}),
    ("an unknown packing", post(GOOD, "Content-Encoding: zstd"), {415}),
    ("a list nine thousand deep", post(DEEP), {422}),
    ("a number of five thousand digits", post(b'{"texts": [' + b"9" * 5_000 + b"]}"), {422}),
    ("half a character", post(b'{"texts": ["\xff"]}'), {422}),
    ("a lone surrogate", post(b'{"texts": ["\\ud800"]}'), {200, 422}),
    ("NaN", post(b'{"texts": [NaN]}'), {422}),
    ("nine thousand texts", post(b'{"texts": [' + b'"",' * 3_000 + b'""]}'), {422, 503, 200}),
    ("a path that leads up", b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", {404}),
    ("two hosts", post(GOOD, "Host: evil.example"), {400}),
    ("a host in the address", b"GET http://evil.example/models HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 404, 421}),
    ("a host with a user", post(GOOD, host="localhost@evil.example"), {400, 421}),
    ("a blank before a colon", post(GOOD, f"Content-Length : {len(GOOD)}", length=False), {400}),
    ("a number of bytes with a sign", post(GOOD, f"Content-Length: +{len(GOOD)}", length=False), {400}),
    ("a number of bytes in hexadecimal", post(GOOD, "Content-Length: 0x14", length=False), {400}),
    ("two numbers of bytes in a line", post(GOOD, f"Content-Length: {len(GOOD)}, 3", length=False), {400}),
    ("two ways of transfer", post(GOOD, "Transfer-Encoding: chunked, identity", length=False), {400, 501}),
    ("a transfer that is almost chunked", post(GOOD, "Transfer-Encoding: xchunked", length=False), {400, 501}),
    ("a transfer in two lines", post(GOOD, *["Transfer-Encoding: chunked"] * 2, length=False), {400, 501}),
    ("a length behind a bare line feed", post(GOOD, "X: y\nContent-Length: 3"), {400}),
    ("a folded length", post(GOOD, "X: y\r\n Content-Length: 3"), {200, 400}),
    ("a negative chunk", post(b"-1\r\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked", length=False), {400}),
    ("a chunk beyond all", post(b"f" * 17 + b"\r\n", "Transfer-Encoding: chunked", length=False), {400, 408, 413}),
    ("a zero byte in a line", post(GOOD, "X: a\0b"), {400}),
    ("a zero byte in a path", b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 404}),
    ("a path in other writing", "GET /\u202e HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), {400, 404}),
    ("an upgrade", post(GOOD, "Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAAA"), {200, 400}),
    ("a version that is none", b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", {307, 400, 505}),
    ("duplicate keys", post(b'{"texts": ["a"], "texts": 1}'), {422}),
    ("a line break in a name", post(GOOD, "X-Request-Id: a\r\nEvil: b"), {200}),
]


def test_hostile_requests_are_refused_and_the_next_one_is_answered(port: int, subtests: pytest.Subtests) -> None:
    for name, request, statuses in HOSTILE:
        with subtests.test(name):
            began = time.monotonic()
            assert ask(port, request) in statuses, name
            assert time.monotonic() - began < 1.5, name
            assert ask(port, HEALTH) == 200, name


def test_a_client_may_name_an_address_and_this_machine(port: int) -> None:
    for host in ("localhost", "127.0.0.1:8000", "192.0.2.7:80", "[::1]:80"):
        assert ask(port, post(GOOD, host=host)) == 200, host
    assert default_hosts("127.0.0.1") == ("localhost", "127.0.0.1", "[::1]")


def test_half_open_connections_end_and_health_is_answered_throughout(port: int) -> None:
    slow = [socket.create_connection(("127.0.0.1", port), timeout=3) for _ in range(40)]
    try:
        for client in slow:
            with contextlib.suppress(ConnectionError):
                client.sendall(b"GET /health HTTP/1.1\r\nX: ")
        began = time.monotonic()
        while time.monotonic() - began < 1.2:
            for client in slow:
                with contextlib.suppress(OSError):
                    client.sendall(b"a")
            assert ask(port, HEALTH) == 200
        for client in slow:
            client.settimeout(1)
            with contextlib.suppress(ConnectionError):
                answer = client.recv(100)
                assert answer == b"" or answer.startswith((b"HTTP/1.1 408", b"HTTP/1.1 503")), answer
    finally:
        for client in slow:
            client.close()


def test_a_body_that_drips_ends(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=3) as client:
        client.sendall(post(GOOD)[: -len(GOOD)] + b"{")
        assert client.recv(100).startswith(b"HTTP/1.1 408")


def test_a_flood_of_errors_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    limit = LogLimit(most=3, per_s=60)
    make: Callable[[int], logging.LogRecord] = lambda level: logging.LogRecord("a", level, "", 0, "x", None, None)  # noqa: E731
    with caplog.at_level(logging.INFO, "apps.serve"):
        assert [limit.filter(make(logging.ERROR)) for _ in range(1_000)].count(True) == 3
        assert all(limit.filter(make(logging.INFO)) for _ in range(10))
    assert [record.getMessage().count("lines_left_out") for record in caplog.records] == [1]


def test_no_test_reaches_another_machine() -> None:
    for reach in (
        lambda: socket.create_connection(("192.0.2.1", 80), timeout=0.1),
        lambda: socket.create_connection(("example.org", 80), timeout=0.1),
    ):
        with pytest.raises(AssertionError, match="reaches for the network"):
            reach()
