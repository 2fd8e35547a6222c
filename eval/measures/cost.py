"""What a trained model costs to run: size, and speed on one core of this machine on a task's own inputs.

    cost = measure(predict, split.examples, num_parameters=4_000_000, size_bytes=16_000_000)

Time is measured from text to answer, tokenizer and decoding included, at the inputs' own lengths. Memory is not
measured: a process that has just trained holds data and optimizer states. Training time is `Result.train_s`.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from corpora.foundation.config import Config
from corpora.foundation.machine import cpu_name
from eval.measures.noise import Predict, sample

THREADS = 1
MAX_SINGLE, MAX_BATCHED = 200, 2000
"""Examples that are timed one by one, and together."""
MIN_EXAMPLES = 20
"""Examples that are timed in any case, one by one and together."""
WARM_UP = 3
"""Calls before the clock starts: the first ones allocate and build caches."""
BUDGET_S = 30.0
"""Seconds after which no further examples are timed."""


class Cost(Config):
    """Size of a trained model and its speed on one core."""

    num_parameters: int | None
    """Of the encoder without its head, as in results; of a baseline its coefficients. None if unknown."""
    size_bytes: int | None
    """Of the weights on disk, head included. None for a model that is not saved."""
    latency_ms_median: float
    """Of one example at a time."""
    latency_ms_p95: float
    """What 95 % of the examples stay below."""
    num_single: int
    """Examples the latency is taken of."""
    sentences_per_s: float
    """Of many examples at once, in batches of similar length; a pair, or a question with its context, is one."""
    num_batched: int
    """Examples the rate is taken of."""
    threads: int
    """Threads that computed."""
    cpu_share: float
    """Processor time over wall time while examples were timed one by one.

    1 if one core worked all the time; less if the machine was busy with other work, so that times are too long; more
    if the model used more than one thread.
    """
    cpu: str
    """The processor's name."""


def measure(
    predict: Predict,
    examples: Sequence[Any],
    *,
    num_parameters: int | None = None,
    size_bytes: int | None = None,
    seed: int = 0,
    max_single: int = MAX_SINGLE,
    max_batched: int = MAX_BATCHED,
    budget_s: float = BUDGET_S,
) -> Cost:
    """Time a trained model on one thread; the thread settings of the process are restored afterwards.

    Args:
        predict: the model, e.g. a fitted baseline.
        examples: of the task's evaluation split, of which a seeded sample is timed.
        num_parameters: of the model, if known.
        size_bytes: of its weights on disk, if it has any.
        seed: of the sample; the same for all models that are compared.
        max_single: examples timed one by one, fewer if the budget is spent.
        max_batched: examples timed together, fewer if by their latency they would exceed the budget.
        budget_s: seconds for each of the two; at least `MIN_EXAMPLES` are timed in any case.

    Raises:
        ValueError: there are no examples.
    """
    if not examples:
        raise ValueError("no examples to time")
    # In random order, so that a sample that the budget cuts short is still random.
    chosen = sample(examples, max(max_single, max_batched), seed)
    with one_thread():
        for example in chosen[:WARM_UP]:
            predict([example])
        latencies_s, cpu_share = _time_each(predict, chosen[:max_single], budget_s)
        fitting = max(MIN_EXAMPLES, int(budget_s / max(float(np.median(latencies_s)), 1e-9)))
        batched = chosen[: min(max_batched, fitting)]
        started = time.perf_counter()
        predict(batched)
        batched_s = time.perf_counter() - started
    return Cost(
        num_parameters=num_parameters,
        size_bytes=size_bytes,
        latency_ms_median=round(1000 * float(np.median(latencies_s)), 4),
        latency_ms_p95=round(1000 * float(np.percentile(latencies_s, 95)), 4),
        num_single=len(latencies_s),
        sentences_per_s=round(len(batched) / batched_s, 3),
        num_batched=len(batched),
        threads=THREADS,
        cpu_share=round(cpu_share, 3),
        cpu=cpu_name(),
    )


def _time_each(predict: Predict, examples: Sequence[Any], budget_s: float) -> tuple[list[float], float]:
    """Return the seconds of each example by itself, and processor time over wall time."""
    latencies_s: list[float] = []
    began, processor_began = time.perf_counter(), time.process_time()
    for example in examples:
        if len(latencies_s) >= MIN_EXAMPLES and time.perf_counter() - began > budget_s:
            break
        started = time.perf_counter()
        predict([example])
        latencies_s.append(time.perf_counter() - started)
    return latencies_s, (time.process_time() - processor_began) / (time.perf_counter() - began)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch and the tokenizers to one thread, and restore their settings afterwards."""
    # Baselines compute without torch, which takes seconds to load.
    torch = sys.modules.get("torch")
    threads, parallelism = torch.get_num_threads() if torch else 0, os.environ.get("TOKENIZERS_PARALLELISM")
    if torch:
        torch.set_num_threads(THREADS)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # read at every batch
    try:
        yield
    finally:
        if torch:
            torch.set_num_threads(threads)
        if parallelism is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = parallelism
