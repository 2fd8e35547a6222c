"""Models shared by all sessions: each is loaded once, on first use, and used by one session at a time."""

import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from downstream.encoders.folder import Kind

MAX_LOADED = 6
"""Maximum number of loaded models; the least recently used one is evicted."""
DEFAULT = "default"
"""The backend of each kind of model that loads fastest."""
RUNTIMES = (DEFAULT, "torch", "auto", "onnx")


@dataclass(frozen=True)
class ModelChoice:
    """A model and how it is run."""

    kind: Kind
    folder: Path | None
    """None: compare texts by their letters, without a model."""
    runtime: str = DEFAULT

    @property
    def name(self) -> str:
        """Last part of the folder."""
        return self.folder.resolve().name if self.folder else "letters"


@dataclass
class Loaded:
    """A model in memory."""

    choice: ModelChoice
    model: Any
    load_s: float
    used: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class ModelCache:
    """Loaded models."""

    def __init__(self, openers: Mapping[Kind, Callable[[Path, str], Any]] | None = None) -> None:
        """Start empty.

        Args:
            openers: functions that load a folder of each kind with a runtime; default: `OPENERS`.
        """
        self._openers = openers or OPENERS
        self._loaded: dict[tuple[ModelChoice, int], Loaded] = {}
        self._opening: dict[tuple[ModelChoice, int], threading.Lock] = {}
        self._lock = threading.Lock()

    @contextmanager
    def use(self, choice: ModelChoice) -> Iterator[Any]:
        """Lend a model to one caller at a time; load it if necessary.

        Raises:
            SuiteError: it cannot be loaded.
        """
        loaded = self._get(choice)
        with loaded.lock:
            loaded.used = time.monotonic()
            yield loaded.model

    def has(self, choice: ModelChoice) -> bool:
        """Whether a model is loaded."""
        return (choice, _stamp(choice)) in self._loaded

    def loaded(self) -> list[Loaded]:
        """Return the loaded models, the most recently used first."""
        with self._lock:
            return sorted(self._loaded.values(), key=lambda loaded: -loaded.used)

    def _get(self, choice: ModelChoice) -> Loaded:
        key = (choice, _stamp(choice))
        with self._lock:
            opening = self._opening.setdefault(key, threading.Lock())
        # Concurrent requests for one model wait for one load.
        with opening:
            if key not in self._loaded:
                started = time.perf_counter()
                model = (
                    MODEL_FREE[choice.kind]()
                    if choice.folder is None
                    else self._openers[choice.kind](choice.folder, choice.runtime)
                )
                found = Loaded(choice, model, time.perf_counter() - started, time.monotonic())
                with self._lock:
                    self._loaded[key] = found
                    while len(self._loaded) > MAX_LOADED:
                        oldest = min(self._loaded, key=lambda k: self._loaded[k].used)
                        del self._loaded[oldest]
                return found
            return self._loaded[key]


def _stamp(choice: ModelChoice) -> int:
    """Return when the files were last written: a folder that changed is loaded again."""
    if choice.folder is None:
        return 0
    return max((path.stat().st_mtime_ns for path in choice.folder.glob("*") if path.is_file()), default=0)


def _letters() -> Any:
    from apps.stories.space import CharNgrams

    return CharNgrams()


def _sentence_finder() -> Any:
    from downstream.answer import SentenceFinder

    return SentenceFinder()


def _open_summarizer(folder: Path, runtime: str) -> Any:
    from downstream.summarize import Summarizer

    return Summarizer.load(folder, "torch" if runtime == DEFAULT else runtime)


def _open_embedder(folder: Path, runtime: str) -> Any:
    from downstream.embed import Embedder

    if runtime == DEFAULT:
        return Embedder.load(folder)
    from downstream.runtimes.predictor import fast_embedder

    return fast_embedder(Embedder.load(folder, device="cpu"), runtime, threads=num_threads())[0]


def _open_classifier(folder: Path, runtime: str) -> Any:
    from downstream.classify import Classifier

    return Classifier.load(folder, None if runtime == DEFAULT else runtime, threads=num_threads())


def _open_reader(folder: Path, runtime: str) -> Any:
    from downstream.answer import Reader

    return Reader.load(folder, "torch" if runtime == DEFAULT else runtime, threads=num_threads())


def _open_encoder(folder: Path, _runtime: str) -> Any:
    from downstream.fill_mask import MaskFiller

    return MaskFiller.load(folder)


OPENERS: Mapping[Kind, Callable[[Path, str], Any]] = {
    "summarizer": _open_summarizer,
    "embedder": _open_embedder,
    "classifier": _open_classifier,
    "reader": _open_reader,
    "encoder": _open_encoder,
}


MODEL_FREE: Mapping[Kind, Callable[[], Any]] = {"embedder": _letters, "reader": _sentence_finder}
"""Replacements for models."""


def num_threads() -> int:
    """Return the number of threads of a model."""
    return max(1, min(4, os.cpu_count() or 1))


def resident_bytes() -> int:
    """Return the resident memory of this process, or its peak where the system reports no current value."""
    status = Path("/proc/self/statm")
    if status.is_file():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
