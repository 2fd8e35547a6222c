"""Metrics for Prometheus, summed over all worker processes.

The processes share the folder that `PROMETHEUS_MULTIPROC_DIR` names before this module is imported: each writes its own
files there, and the one that is asked reads all.
"""

import contextlib
import os
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The metrics of a worker."""

    def __init__(self) -> None:
        """Start at zero, or join the other workers' shared folder."""
        self._folder = os.environ.get(FOLDER_VARIABLE, "")
        remove_stale_gauges(self._folder)
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("pressbert_requests", "Answered requests.", ["path", "status"], registry=registry)
        self.request_s = Histogram(
            "pressbert_request_seconds",
            "Time from request to answer.",
            ["path"],
            buckets=SECONDS,
            registry=registry,
        )
        self.texts = Counter("pressbert_texts", "Answered texts.", ["endpoint", "source"], registry=registry)
        self.batch_size = Histogram(
            "pressbert_batch_size", "Texts computed together.", ["endpoint"], buckets=SIZES, registry=registry
        )
        self.batch_s = Histogram(
            "pressbert_batch_seconds", "Time of a batch.", ["endpoint"], buckets=SECONDS, registry=registry
        )
        self.wait_s = Histogram(
            "pressbert_wait_seconds",
            "Waiting time of a batch's oldest text.",
            ["endpoint"],
            buckets=SECONDS,
            registry=registry,
        )
        self.refused = Counter("pressbert_refused", "Requests answered with 503.", ["reason"], registry=registry)
        self.waiting = Gauge("pressbert_waiting", "Waiting texts.", registry=registry, multiprocess_mode="livesum")

    def observe_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests.labels(path, status).inc()
        self.request_s.labels(path).observe(seconds)

    def observe_texts(self, endpoint: str, *, cached: int, computed: int) -> None:
        """Count the texts of a request."""
        self.texts.labels(endpoint, "cache").inc(cached)
        self.texts.labels(endpoint, "computed").inc(computed)

    def observe_batch(self, group: Hashable, size: int, waited_s: float, took_s: float) -> None:
        """Count a batch; its group begins with the endpoint."""
        endpoint = str(group[0]) if isinstance(group, tuple) else str(group)
        self.batch_size.labels(endpoint).observe(size)
        self.wait_s.labels(endpoint).observe(waited_s)
        self.batch_s.labels(endpoint).observe(took_s)

    def render(self) -> tuple[bytes, str]:
        """Return the metrics of all workers, and their media type."""
        registry = self._registry
        if self._folder:
            registry = CollectorRegistry()
            collector: Any = multiprocess.MultiProcessCollector  # not annotated
            collector(registry, path=self._folder)
        return generate_latest(registry), CONTENT_TYPE_LATEST


def remove_stale_gauges(folder: str) -> None:
    """Remove the gauges of workers that are gone; their counters stay."""
    for path in Path(folder).glob("gauge_live*_*.db") if folder else ():
        pid = path.stem.rpartition("_")[2]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        except (ValueError, PermissionError):
            continue
