"""Serve summaries, labels, vectors and answers over HTTP, on CPUs.

    python -m apps.serve --summarize --classify runs/nsmc --workers 2
    curl -s localhost:8000/classify -H 'content-type: application/json' -d '{"texts": ["배우들 연기가 정말 좋았다"]}'

Every worker is a process that computes in one thread and holds its own models, queue and cache. Backends that were not
measured before are measured before the first worker starts (`downstream.runtimes.selection`). On SIGTERM the server
answers what it accepted and exits. /docs describes the endpoints.
"""

import importlib.util
import ipaddress
import multiprocessing
import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor

from apps.serving.processes import Supervisor, WorkerConfig, log_event, log_lines
from apps.serving.services import BUNDLED, Settings, load_services
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.foundation.errors import UsageError
from downstream.runtimes.backends import WORDS, backends_for

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
PACKAGES = ("fastapi", "prometheus_client", "uvicorn")


def prepare(settings: Settings) -> list[dict[str, str]]:
    """Load every model once, measuring backends that were not measured before; returns what will be served."""
    return [{"endpoint": s.endpoint, "model": s.model, "runtime": s.runtime} for s in load_services(settings).values()]


def serve(worker_config: WorkerConfig, num_workers: int) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        SuiteError: a model cannot be loaded, or the port is not available.
    """
    os.environ |= dict.fromkeys(ONE_THREAD, "1") | {"TOKENIZERS_PARALLELISM": "false"}
    supervisor = Supervisor(worker_config, num_workers)
    # In a process of its own: models must not stay in the memory of the supervisor.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        served = pool.submit(prepare, worker_config.settings).result()
    figures = tempfile.mkdtemp(prefix="pressbert-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = figures
    try:
        supervisor.run(lambda: log_event("listening", url=supervisor.url, workers=num_workers, served=served))
    finally:
        shutil.rmtree(figures, ignore_errors=True)
    log_event("stopped")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def main(argv: list[str] | None = None) -> int:
    """Serve from the command line."""
    parser = ArgumentParser("python -m apps.serve", "Serve models over HTTP on CPUs.")
    for name, what in (
        ("summarize", "a summarizer"),
        ("embed", "an embedder"),
        ("classify", "a model fine-tuned on texts or pairs"),
    ):
        text = f"serve {what}; without a folder, the bundled one"
        parser.add_argument(f"--{name}", nargs="?", const=BUNDLED, default="", metavar="DIR", help=text)
    parser.add_argument("--answer", default="", metavar="DIR", help="serve a model fine-tuned on questions")
    parser.add_argument("--runtime", default="auto", help=f"one of {', '.join(WORDS)}")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one, which is logged (8000)")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with one thread and its own models (1)")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="host name that clients may use; repeatable"
    )
    for name, default, text in (
        ("max-batch", 32, "texts per batch; 1: no batching"),
        ("max-waiting", 256, "texts that may wait in a worker; beyond, requests get 503 with Retry-After"),
        ("cache-mb", 64, "MB per worker for cached results; 0: no cache"),
        ("max-body-kb", 1024, "KB of the largest request"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    parser.add_argument(
        "--timeout-s", type=float, default=10.0, help="seconds for an answer, and for a request to arrive (10)"
    )
    parser.add_argument(
        "--drain-s", type=float, default=2.0, help="seconds for connections to end when the server stops (2)"
    )
    arguments = parser.parse(argv)
    settings = validate(
        Settings,
        {
            "summarize": arguments.summarize,
            "embed": arguments.embed,
            "classify": arguments.classify,
            "answer": arguments.answer,
            "runtime": arguments.runtime,
            "max_batch": arguments.max_batch,
            "max_waiting": arguments.max_waiting,
            "cache_bytes": arguments.cache_mb << 20,
            "max_body_bytes": arguments.max_body_kb << 10,
            "timeout_s": arguments.timeout_s,
            "body_timeout_s": arguments.timeout_s,
            "drain_s": arguments.drain_s,
        },
        "apps.serve",
    )
    backends_for(settings.runtime)
    if not any((settings.summarize, settings.embed, settings.classify, settings.answer)):
        raise UsageError("apps.serve", "no model to serve", "give e.g. --summarize, --embed or --classify DIR")
    if arguments.workers < 1:
        raise UsageError("--workers", f"{arguments.workers} is less than 1", "give 1 or more")
    if missing := [package for package in PACKAGES if importlib.util.find_spec(package) is None]:
        raise UsageError("apps.serve", f"{', '.join(missing)} not installed", "pip install 'pressbert[serve]'")
    log_lines(is_verbose=arguments.verbose)
    local = LOCAL_NAMES if is_loopback(arguments.host) and not arguments.allow_host else ()
    hosts = (*local, *(name.lower() for name in arguments.allow_host))
    serve(WorkerConfig(settings, hosts, (arguments.host, arguments.port), arguments.verbose), arguments.workers)
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
