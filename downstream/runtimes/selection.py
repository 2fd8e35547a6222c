"""Choose the backend for a network on this machine: time each one, check its answers, choose, explain, remember.

    choice, forward = choose(network, "auto", threads=1)
    print(choice.table())

A backend may win only if at least 99 % of its decisions on a fixed set of inputs are those of torch, or those of
onnx-fp32 where torch is not installed, and one that is
compiled at every start only if it is faster by a tenth. Every input is run once to be checked and to warm up, then
timed alone, as a request of its own. The choice is remembered for this network, processor, number of threads and set of
package versions.
"""

import json
import logging
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal

import numpy as np

from corpora.foundation.config import Config
from corpora.foundation.errors import CheckpointError, ResultError, SuiteError
from corpora.foundation.files import fingerprint, parse_signed, write_signed
from corpora.foundation.machine import cpu_name
from corpora.official import cache_root
from downstream.runtimes.backends import (
    REFERENCE,
    all_backends,
    backends_for,
    open_backend,
    reference_backend,
    unsupported_reason,
)
from downstream.runtimes.graph import GRAPH_VERSION, Forward
from downstream.runtimes.network import Network
from downstream.runtimes.probes import ProbeInputs
from downstream.runtimes.weights import FloatArray

logger = logging.getLogger(__name__)

SCHEMA: Literal[3] = 3
MIN_AGREEMENT = 0.99
COMPILED_HANDICAP = 1.1
"""By how much a backend that is compiled at every start must be faster than all that are not."""
CHECK_S, TIMING_S = 6.0, 1.5
"""Time for the reference's answers, and for the timed calls of each backend."""
MIN_INPUTS = 40
"""Inputs that are checked, however slow the network is."""
PACKAGES = ("torch", "transformers", "numba", "onnx", "onnxruntime")


def runtime_cache() -> Path:
    """Return the folder of the user's cache for remembered choices."""
    return cache_root().with_name("runtime")


class Candidate(Config):
    """What was measured of one backend."""

    name: str
    """Key of `downstream.runtimes.backends.all_backends`."""
    status: Literal["agrees", "disagrees", "failed", "unavailable"]
    reason: str = ""
    """Why there are no figures."""
    median_ms: float | None = None
    p99_ms: float | None = None
    agreement: float | None = None
    """Share of decisions that are the reference's."""
    max_deviation: float | None = None
    """Largest difference of an output from the reference's."""


class Choice(Config):
    """The backend that was chosen, and why."""

    schema_version: Literal[3] = SCHEMA
    word: str
    """What was asked for."""
    chosen: str
    candidates: tuple[Candidate, ...]
    num_inputs: int
    """Inputs that were compared."""
    threads: int
    cpu: str
    is_remembered: bool = False
    """Whether this was read instead of measured."""

    def table(self) -> str:
        """Return the explanation: a Markdown table of all candidates with the chosen one marked."""
        reference = next((c.median_ms for c in self.candidates if c.name == REFERENCE), None)
        lines = [
            f"runtime={self.word}: {self.chosen} ({self.cpu}, {self.threads} thread{'s' * (self.threads != 1)}, "
            f"one input at a time, {self.num_inputs} inputs{', remembered' * self.is_remembered})",
            "| runtime | median ms | p99 ms | × torch | agreement | max deviation | |",
            "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
        ]
        for row in self.candidates:
            note = "chosen" if row.name == self.chosen else row.reason or ("" if row.status == "agrees" else row.status)
            cells = ["", "", "", "", ""]
            if row.median_ms is not None and row.p99_ms is not None:
                cells[:2] = [f"{row.median_ms:.2f}", f"{row.p99_ms:.2f}"]
                cells[2] = "" if reference is None else f"{reference / row.median_ms:.1f}"
            if row.agreement is not None and row.max_deviation is not None:
                cells[3:] = [f"{100 * row.agreement:.1f} %", f"{row.max_deviation:.4f}"]
            lines.append(f"| {row.name} | {' | '.join(cells)} | {note} |")
        return "\n".join(lines)


def choose(
    network: Network, word: str, *, threads: int = 1, root: Path | None = None, again: bool = False
) -> tuple[Choice, Forward]:
    """Find the fastest backend that agrees with the reference.

    Args:
        network: what is to be run.
        word: a key of `downstream.runtimes.backends.all_words`. A single backend is taken without measuring.
        threads: that compute.
        root: folder of the cache; default: `runtime_cache()`.
        again: measure even if the choice is remembered.

    Returns:
        The choice, and the network ready to run on the chosen backend.

    Raises:
        UsageError: the word is unknown, or the backend is unsupported on this machine.
        CheckpointError: the network cannot be loaded, or no backend agrees with the reference.
        ResultError: the cache cannot be written.
    """
    names = backends_for(word)
    if len(names) == 1:
        only = Choice(word=word, chosen=names[0], candidates=(), num_inputs=0, threads=threads, cpu=cpu_name())
        return only, open_backend(names[0], network, threads=threads)
    path = (root or runtime_cache()) / "choices" / f"{_key(network, word, threads)[:32]}.json"
    choice = None if again else _remembered(path)
    if choice is None:
        choice = _measure(network, word, threads=threads)
        try:
            write_signed(path, choice.model_dump(mode="json"))
        except ResultError as error:
            raise ResultError(path, error.what, "set XDG_CACHE_HOME to a folder that can be written") from error
        for line in choice.table().splitlines():
            logger.info("%s: %s", network.where, line)
    return choice, open_backend(choice.chosen, network, threads=threads)


def _key(network: Network, word: str, threads: int) -> str:
    """Return a digest of all that may change the choice."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = ""
    return fingerprint(
        {
            "schema": SCHEMA,
            "network": network.digest,
            "word": word,
            "threads": threads,
            "cpu": cpu_name(),
            "unsupported": {name: unsupported_reason(name) for name in backends_for(word)},
            "graph": GRAPH_VERSION,
            "versions": found,
        }
    )


def _remembered(path: Path) -> Choice | None:
    """Read a choice; one that cannot be read is made again."""
    try:
        choice = Choice.model_validate_json(json.dumps(parse_signed(path.read_text(encoding="utf-8"))))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read (%s); the backends are measured again", path, type(error).__name__)
        return None
    if choice.chosen not in backends_for(choice.word):
        logger.warning("%s names no backend; they are measured again", path)
        return None
    return choice.model_copy(update={"is_remembered": True})


def _measure(network: Network, word: str, *, threads: int) -> Choice:
    probe = network.probe()
    # One backend in memory at a time.
    reference = _answers(open_backend(reference_backend(), network, threads=threads), probe, budget_s=CHECK_S)
    candidates = []
    for name in backends_for(word):
        logger.info("measuring %s", name)
        candidates.append(_examine(name, network, probe, reference, threads=threads))
    agreeing = [row for row in candidates if row.status == "agrees" and row.median_ms is not None]
    if not agreeing:
        reasons = "; ".join(f"{row.name}: {row.reason or row.status}" for row in candidates)
        raise CheckpointError(
            network.where, f"no {word} runtime will do ({reasons})", f'use runtime="{reference_backend()}"'
        )

    def cost(row: Candidate) -> float:
        return (row.median_ms or 0.0) * (COMPILED_HANDICAP if all_backends()[row.name].is_compiled else 1.0)

    return Choice(
        word=word,
        chosen=min(agreeing, key=cost).name,
        candidates=tuple(candidates),
        num_inputs=len(reference),
        threads=threads,
        cpu=cpu_name(),
    )


def _examine(
    name: str, network: Network, probe: ProbeInputs, reference: Sequence[FloatArray], *, threads: int
) -> Candidate:
    """Check and time one backend."""
    if reason := unsupported_reason(name):
        return Candidate(name=name, status="unavailable", reason=reason)
    try:
        forward = open_backend(name, network, threads=threads)
        answers = [forward(batch)[0] for batch in probe.inputs[: len(reference)]]
    except SuiteError as error:
        return Candidate(name=name, status="failed", reason=error.what)
    except Exception as error:  # each library has exceptions of its own, of all kinds
        return Candidate(name=name, status="failed", reason=f"{type(error).__name__}: {str(error)[:200]}")
    times_ms = _times_ms(forward, probe, len(reference))
    agreement = probe.agreement(reference, answers)
    return Candidate(
        name=name,
        status="agrees" if agreement >= MIN_AGREEMENT else "disagrees",
        median_ms=float(np.median(times_ms)),
        p99_ms=float(np.percentile(times_ms, 99)),
        agreement=agreement,
        max_deviation=max(float(np.abs(a - b).max()) for a, b in zip(reference, answers, strict=True)),
    )


def _answers(forward: Forward, probe: ProbeInputs, *, budget_s: float) -> list[FloatArray]:
    """Run the inputs one by one until all are done, or the time is over and there are enough."""
    answers: list[FloatArray] = []
    began = time.perf_counter()
    for batch in probe.inputs:
        if len(answers) >= MIN_INPUTS and time.perf_counter() - began > budget_s:
            break
        answers.append(forward(batch)[0])
    return answers


def _times_ms(forward: Forward, probe: ProbeInputs, count: int) -> list[float]:
    """Time the first COUNT inputs, again from the first while there is time, and fewer where it is over."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 4 * count:
        batch = probe.inputs[len(times) % count]
        started = time.perf_counter()
        forward(batch)
        times.append(1000 * (time.perf_counter() - started))
        if len(times) >= MIN_INPUTS and time.perf_counter() - began > TIMING_S:
            break
    return times
