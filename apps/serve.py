"""Serve the tools over HTTP, on CPUs: summaries, stories, duplicates, keywords, labels, answers, blanks, vectors.

    python -m apps.serve --all
    python -m apps.serve --summarize --classify runs/nsmc --workers 2
    curl -s localhost:8000/classify -H 'content-type: application/json' -d '{"texts": ["배우들 연기가 정말 좋았다"]}'

Every worker is a process that computes in one thread and holds its own models, queue and cache. Backends that were not
measured before are measured before the first worker starts (`downstream.runtimes.selection`). On SIGTERM the server
answers what it accepted and exits. /docs describes the endpoints; `apps.serving.tools` has a file for each.
"""

import argparse
import contextlib
import importlib.util
import ipaddress
import multiprocessing
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from apps.serving.processes import Supervisor, WorkerConfig, log_event, log_lines
from apps.serving.services import ANY_ADDRESS, Settings, load_services
from apps.serving.tool import Tool, all_tools
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.foundation.errors import UsageError, suggest
from corpora.foundation.floors import check_floors
from downstream.encoders.hub import BUNDLED_SOURCE
from downstream.runtimes.backends import all_words, backends_for, unsupported_reason

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
STILL_S = 5.0
"""Seconds between two lines of log while one model is loaded."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
PACKAGES = ("fastapi", "prometheus_client", "uvicorn")


def prepare(settings: Settings, is_verbose: bool = False) -> list[dict[str, str]]:
    """Load every model once, measuring backends that were not measured before; returns what will be served."""
    log_lines(is_verbose=is_verbose)
    with progress() as report:
        services = load_services(settings, report)
    return [{"endpoint": s.endpoint, "model": s.model, "runtime": s.runtime} for s in services.values()]


@contextlib.contextmanager
def progress() -> Iterator[Callable[..., None]]:
    """Log what is loaded, and again every few seconds while it takes long."""
    current: dict[str, Any] = {}
    finished = threading.Event()

    def report(event: str, **fields: Any) -> None:
        current.clear()
        if event == "loading":
            current.update(fields, began=time.monotonic())
        log_event(event, **fields)

    def repeat() -> None:
        while not finished.wait(STILL_S):
            fields = dict(current)
            if began := fields.pop("began", None):
                log_event("still_loading", **fields, seconds=round(time.monotonic() - began))

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield report
    finally:
        finished.set()
        thread.join()


def serve(worker_config: WorkerConfig, num_workers: int) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        SuiteError: a model cannot be loaded, or the port is not available.
    """
    os.environ |= dict.fromkeys(ONE_THREAD, "1") | {"TOKENIZERS_PARALLELISM": "false"}
    supervisor = Supervisor(worker_config, num_workers)
    # In a process of its own: models must not stay in the memory of the supervisor.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        log_event("starting", tools=sorted(worker_config.settings.tools), workers=num_workers)
        served = pool.submit(prepare, worker_config.settings, worker_config.is_verbose).result()
    log_event("starting_workers", workers=num_workers)
    figures = tempfile.mkdtemp(prefix="pressbert-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = figures
    try:
        supervisor.run(lambda: log_event("listening", url=supervisor.url, workers=num_workers, served=served))
    finally:
        shutil.rmtree(figures, ignore_errors=True)
    log_event("stopped")


def supported_words() -> list[str]:
    """Return the words for backends of which this machine supports at least one."""
    return [word for word, names in all_words().items() if not all(map(unsupported_reason, names))]


def _check_runtime(word: str) -> None:
    """Refuse a backend that does not exist or that this machine does not support, before anything is loaded."""
    if word not in all_words():
        raise UsageError("--runtime", f"unknown runtime '{word}'", suggest(word, supported_words()))
    names = backends_for(word)
    if all(reasons := [unsupported_reason(name) for name in names]):
        raise UsageError("--runtime", f"{word}: {reasons[0]}", f"choose from {', '.join(supported_words())}")


def _chosen(arguments: argparse.Namespace, tools: Iterable[str]) -> dict[str, str]:
    """Return the tools that were asked for, with their models."""
    given = {name: getattr(arguments, name.replace("-", "_")) for name in tools}
    if blank := [name for name, source in given.items() if source is not None and not source.strip()]:
        raise UsageError(f"--{blank[0]}", "an empty folder", "give the model's folder, or the option alone")
    return {name: source or BUNDLED_SOURCE for name, source in given.items() if source is not None or arguments.all}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def default_hosts(host: str) -> tuple[str, ...]:
    """Return the names by which clients may reach a server that listens on an address, if no others are given.

    An address in a request is no name that another site could let resolve to this machine.
    """
    if is_loopback(host):
        return LOCAL_NAMES
    return (*LOCAL_NAMES, ANY_ADDRESS, socket.gethostname().lower(), host.lower())


def _parser(tools: Mapping[str, Tool]) -> ArgumentParser:
    parser = ArgumentParser("python -m apps.serve", "Serve models over HTTP on CPUs.")
    parser.add_argument("--all", action="store_true", help="serve every tool with its bundled model")
    for tool in tools.values():
        if tool.model:
            text = f"serve {tool.model}; without a folder, what is bundled"
            parser.add_argument(f"--{tool.name}", nargs="?", const=BUNDLED_SOURCE, metavar="DIR", help=text)
        else:
            parser.add_argument(
                f"--{tool.name}", action="store_const", const=BUNDLED_SOURCE, help="serve it; needs no model"
            )
    parser.add_argument("--runtime", default="auto", help=f"one of {', '.join(supported_words())}")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one, which is logged (8000)")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with one thread and its own models (1)")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="host name that clients may use; repeatable"
    )
    for option, default, text in (
        ("max-batch", 32, "texts per batch; 1: no batching"),
        ("max-waiting", 256, "texts that may wait in a worker; beyond, requests get 503 with Retry-After"),
        ("cache-mb", 64, "MB per worker for cached results; 0: no cache"),
        ("max-connections", 1024, "connections of a worker; beyond, the longest idle one makes room"),
        ("max-body-kb", 1024, "KB of the largest request, packed or not"),
    ):
        parser.add_argument(f"--{option}", type=int, default=default, help=f"{text} ({default})")
    parser.add_argument(
        "--timeout-s", type=float, default=10.0, help="seconds for an answer, and for a request to arrive (10)"
    )
    parser.add_argument(
        "--drain-s", type=float, default=2.0, help="seconds for connections to end when the server stops (2)"
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Serve from the command line."""
    tools = all_tools()
    arguments = _parser(tools).parse(argv)
    settings = validate(
        Settings,
        {
            "tools": _chosen(arguments, tools),
            "runtime": arguments.runtime,
            "max_batch": arguments.max_batch,
            "max_waiting": arguments.max_waiting,
            "cache_bytes": arguments.cache_mb << 20,
            "max_connections": arguments.max_connections,
            "head_timeout_s": arguments.timeout_s,
            "max_body_bytes": arguments.max_body_kb << 10,
            "timeout_s": arguments.timeout_s,
            "body_timeout_s": arguments.timeout_s,
            "drain_s": arguments.drain_s,
        },
        "apps.serve",
    )
    _check_runtime(settings.runtime)
    if not settings.tools:
        raise UsageError("apps.serve", "no model to serve", "give --all, or e.g. --summarize or --classify DIR")
    if arguments.workers < 1:
        raise UsageError("--workers", f"{arguments.workers} is less than 1", "give 1 or more")
    if missing := [package for package in PACKAGES if importlib.util.find_spec(package) is None]:
        raise UsageError("apps.serve", f"{', '.join(missing)} not installed", "pip install 'pressbert[serve]'")
    check_floors(extra="serve")
    for option, values in (("host", [arguments.host]), ("allow-host", arguments.allow_host)):
        if not all(value.strip() for value in values):
            # An empty address would mean every network of this machine.
            raise UsageError(f"--{option}", "an empty name", "give a name or an address, e.g. localhost")
    log_lines(is_verbose=arguments.verbose)
    hosts = tuple(name.lower() for name in arguments.allow_host) or default_hosts(arguments.host)
    serve(WorkerConfig(settings, hosts, (arguments.host, arguments.port), arguments.verbose), arguments.workers)
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
