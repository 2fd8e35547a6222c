"""The models that all sessions share: each is loaded once, when it is first needed, and used by one at a time."""

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
"""Models that are kept; the one that was not used for the longest time makes way."""
DEFAULT = "default"
"""What each kind of model takes unless another is chosen: the backend that is ready soonest."""
RUNTIMES = (DEFAULT, "torch", "auto", "onnx")


@dataclass(frozen=True)
class ModelChoice:
    """A model and how it is run."""

    kind: Kind
    folder: Path | None
    """None: texts are compared by their letters alone, without a model."""
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
    """Models in memory."""

    def __init__(self, openers: Mapping[Kind, Callable[[Path, str], Any]] | None = None) -> None:
        """Begin with none.

        Args:
            openers: how a folder of each kind is loaded with a runtime; default: `OPENERS`.
        """
        self._openers = openers or OPENERS
        self._loaded: dict[tuple[ModelChoice, int], Loaded] = {}
        self._opening: dict[tuple[ModelChoice, int], threading.Lock] = {}
        self._lock = threading.Lock()

    @contextmanager
    def use(self, choice: ModelChoice) -> Iterator[Any]:
        """Lend a model to one caller at a time; it is loaded if it is not there.

        Raises:
            SuiteError: it cannot be loaded.
        """
        loaded = self._get(choice)
        with loaded.lock:
            loaded.used = time.monotonic()
            yield loaded.model

    def has(self, choice: ModelChoice) -> bool:
        """Whether a model is in memory."""
        return (choice, _stamp(choice)) in self._loaded

    def loaded(self) -> list[Loaded]:
        """Return the models in memory, the latest used first."""
        with self._lock:
            return sorted(self._loaded.values(), key=lambda loaded: -loaded.used)

    def _get(self, choice: ModelChoice) -> Loaded:
        key = (choice, _stamp(choice))
        with self._lock:
            opening = self._opening.setdefault(key, threading.Lock())
        # Two sessions that ask at once wait for the same loading.
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
    """Return when the files were written last: a folder that was made anew is loaded anew."""
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
"""What does without a model."""


def num_threads() -> int:
    """Return the threads that one model computes with."""
    return max(1, min(4, os.cpu_count() or 1))


def resident_bytes() -> int:
    """Return the memory that this process holds; where the system does not tell, the most it ever held."""
    status = Path("/proc/self/statm")
    if status.is_file():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
