"""How fast a BERT answers on a CPU, step by step; writes the page in the docs.

    python -m benchmarks.serving
    python -m benchmarks.serving --model runs/nsmc --student runs/nsmc-student --data DATA

The steps repeat the serving case of Le and Kaehler 2020 ("How we scaled BERT to serve 1+ billion daily requests on
CPUs") on this machine: one thread, one text at a time, texts of the lengths of comments. Random weights do for times;
a trained model given with `--model` is scored beside them. The server around it is measured by `benchmarks.server`.
"""

import argparse
import functools
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from apps.serving.cache import ResultCache
from corpora.foundation.command import run_command
from corpora.foundation.files import fingerprint, write_text
from corpora.foundation.machine import cpu_name, versions
from corpora.official import data_root
from downstream.families.classification import Classification
from downstream.runtimes.backends import BACKENDS, has_int8_units, open_backend, unsupported_reason
from downstream.runtimes.graph import Batch, Forward, Graph, open_session
from downstream.runtimes.network import Network, read_finetuned, with_head
from downstream.runtimes.predictor import Predictor, collate
from downstream.runtimes.probes import (
    LENGTH_SEED,
    LOG_DEVIATION,
    MAX_TOKENS,
    MEAN_TOKENS,
    ProbeInputs,
    lognormal_lengths,
)
from downstream.runtimes.selection import MIN_AGREEMENT
from downstream.runtimes.weights import EncoderWeights

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "serving.md"
FAMILY = Classification(labels=("negative", "positive"))
INPUTS = ("input_ids", "token_type_ids", "attention_mask")
LIBRARIES = ("torch", "transformers", "tokenizers", "onnx", "onnxruntime")
NUM_TEXTS = 100
BLOCKS = 10
"""Parts of the texts; each row takes one at a time."""


@dataclass(frozen=True)
class Shape:
    """An architecture."""

    layers: int
    hidden_size: int
    vocab_size: int

    @property
    def heads(self) -> int:
        """Attention heads of 64 numbers each."""
        return self.hidden_size // 64


BASE = Shape(12, 768, 36_440)
HALF = Shape(6, 768, 36_440)
MINI = Shape(4, 256, 16_000)
"""That of the bundled models."""
GOALS = {HALF: 50.0, MINI: 150.0}
"""How many times as fast as the first row the best backend of a shape is to be."""
KEPT, FASTER = 0.97, 1.6
"""What a student of half the layers is to keep of its teacher's score, and how many times as fast it is to be: the
claims of Sanh et al. 2019."""
MAX_LOSS = 0.005
"""By how much the score of the fastest backend may differ from torch's."""
NUM_COMPARED = 200
"""Texts that teacher and student are timed on in turn."""


@dataclass
class Row:
    """One line of the table."""

    title: str
    shape: Shape | None
    """None: nothing is computed."""
    open: Callable[[], Forward]
    """Makes the network ready to run."""
    is_padded: bool = False
    times_ms: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    """Processor time of all calls that were timed."""

    @property
    def median_ms(self) -> float:
        """Of all rounds together."""
        return statistics.median(self.times_ms)

    @property
    def p99_ms(self) -> float:
        """Of all rounds together."""
        return float(np.percentile(self.times_ms, 99))


def main(argv: list[str] | None = None) -> int:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description="Benchmark serving.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--model", type=Path, action="append", default=[], help="fine-tuned folder to score as well")
    parser.add_argument("--student", type=Path, help="student of the first --model, compared with it in turn")
    parser.add_argument("--data", type=Path, help="data root of the models' tasks")
    parser.add_argument("--limit", type=int, default=0, help="examples that a model is scored on; 0: all")
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args(argv)
    if arguments.student and not arguments.model:
        parser.error("--student needs its teacher as --model")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rows = step_rows()
    # Before anything else has had it compiled.
    compile_s = None if unsupported_reason("numba-int8") else time_compiling()
    measure(rows, arguments.rounds)
    lines = step_section(rows, arguments.rounds, compile_s)
    for folder in (*arguments.model, *([arguments.student] if arguments.student else [])):
        lines += model_section(folder, data_root(arguments.data), arguments.limit)
    if arguments.student:
        lines += student_section(arguments.model[0], arguments.student, data_root(arguments.data), arguments.limit)
    write_text(arguments.out, "\n".join(lines))
    sys.stdout.write(f"{arguments.out}\n")
    return 0


# --- the steps --------------------------------------------------------------------------------------------------------


def step_rows() -> list[Row]:
    """Return the lines of the table; each changes one thing against the one before."""

    def row(title: str, shape: Shape, name: str, *, is_padded: bool = False) -> Row:
        return Row(title, shape, lambda: open_backend(name, random_network(shape), threads=1), is_padded)

    def fetching(shape: Shape) -> list[Row]:
        title = "… weights fetched while others are multiplied, Numba"
        return [] if unsupported_reason("numba-int8") else [row(title, shape, "numba-int8")]

    return [
        row("12 layers × 768, fp32, torch, padded to 128", BASE, "torch", is_padded=True),
        row("… at its own length", BASE, "torch"),
        row("… 6 layers", HALF, "torch"),
        Row("… int8, ONNX Runtime, graph as exported", HALF, functools.partial(open_unfused, HALF)),
        row("… fused, last layer for [CLS] only", HALF, "onnx-int8"),
        *fetching(HALF),
        Row("… a text that was asked for before: cache", None, open_cache),
        row("6 layers × 768, fp32, ONNX Runtime, fused", HALF, "onnx-fp32"),
        row("12 layers × 768, int8, ONNX Runtime, fused", BASE, "onnx-int8"),
        row("4 layers × 256, fp32, torch, padded to 128", MINI, "torch", is_padded=True),
        row("… at its own length", MINI, "torch"),
        row("… ONNX Runtime, fused, last layer for [CLS] only", MINI, "onnx-fp32"),
        row("… int8", MINI, "onnx-int8"),
        *fetching(MINI),
    ]


def random_model(shape: Shape) -> Any:
    """Return a sequence classifier of transformers with random weights."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.hidden_size,
    )
    return BertForSequenceClassification(config)


def random_network(shape: Shape) -> Network:
    """Describe a sequence classifier with random weights."""
    build = functools.partial(random_model, shape)
    return Network(
        where=f"{shape.layers} × {shape.hidden_size}",
        digest=fingerprint([shape.layers, shape.hidden_size, shape.vocab_size, versions("torch", "transformers")]),
        inputs=INPUTS,
        head="labels",
        build=lambda: with_head(build(), FAMILY, INPUTS),
        weights=lambda: without_torch(build()),
        probe=lambda: ProbeInputs(random_inputs(shape.vocab_size), lambda *_: 1.0),
    )


def without_torch(model: Any) -> EncoderWeights:
    """Return the weights of a model of transformers."""
    return EncoderWeights.from_tensors("random", model.config.to_dict(), model.state_dict())


def time_compiling() -> float:
    """Return what the first model of a process takes to be made ready by Numba, its import included, in seconds."""
    weights = without_torch(random_model(MINI))
    started = time.perf_counter()
    from downstream.runtimes.kernels.bert import Int8Bert

    Int8Bert.from_weights(weights, "labels")
    return time.perf_counter() - started


def random_inputs(vocab_size: int) -> list[Batch]:
    """Return ids of the fixed lengths, one row each."""
    generator = np.random.default_rng(LENGTH_SEED)
    rows = [generator.integers(5, vocab_size, (1, length)) for length in lognormal_lengths(NUM_TEXTS)]
    return [dict(zip(INPUTS, (ids, np.zeros_like(ids), np.ones_like(ids)), strict=True)) for ids in rows]


def open_unfused(shape: Shape) -> Forward:
    """Open torch's own export in 8 bits, every layer for all tokens and no nodes joined: quantization alone."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    module: Any = random_network(shape).build()
    module.model.set_attn_implementation("eager")
    with tempfile.TemporaryDirectory(prefix="pressbert-benchmark-") as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, target = Path(scratch) / "unfused.onnx", Path(scratch) / "unfused-int8.onnx"
        torch.onnx.export(
            module,
            tuple(torch.ones(2, 7, dtype=torch.long) for _ in INPUTS),
            str(source),
            input_names=list(INPUTS),
            output_names=["output"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in INPUTS},
            opset_version=17,
            dynamo=False,
        )
        quantize_dynamic(
            str(source),
            str(target),
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=not has_int8_units(),
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True},
        )
        return open_session(Graph(target.read_bytes(), {}), threads=1)


def open_cache() -> Forward:
    """Return the look-up of a result that is there; the key is taken from the text, as in the server."""
    cache = ResultCache(64 << 20)
    text = "배우들 연기가 정말 좋았고 이야기도 끝까지 힘을 잃지 않았다"
    cache.put(cache.key("digest", "classify", "", text), b'{"label":"positive"}')

    def run(_: Batch) -> Any:
        assert cache.get(cache.key("digest", "classify", "", text)) is not None

    return run


def measure(rows: Sequence[Row], rounds: int) -> None:
    """Time all rows in turn, a few texts each, so that what else the machine does falls on all of them alike."""
    forwards = [row.open() for row in rows]
    # Ids of the smallest vocabulary are in all of them.
    inputs = random_inputs(MINI.vocab_size)
    for number in range(rounds * BLOCKS):
        for row, forward in zip(rows, forwards, strict=True):
            batches = [pad(b) if row.is_padded else b for b in inputs[number % BLOCKS :: BLOCKS]]
            for batch in batches[:1] if row.is_padded else batches:
                forward(batch)  # warms up: the caches hold the weights of the row before
            for batch in batches:
                started, cpu_started = time.perf_counter(), time.process_time()
                forward(batch)
                row.times_ms.append(1000 * (time.perf_counter() - started))
                row.cpu_s += time.process_time() - cpu_started
        done = ", ".join(f"{row.median_ms:.2f}" for row in rows)
        sys.stderr.write(f"{number + 1} of {rounds * BLOCKS}: {done} ms\n")


def pad(batch: Batch) -> Batch:
    """Return a batch with zeros up to the largest length."""
    return {name: np.pad(rows, ((0, 0), (0, MAX_TOKENS - rows.shape[1]))) for name, rows in batch.items()}


def step_section(rows: Sequence[Row], rounds: int, compile_s: float | None) -> list[str]:
    """Return the table of steps."""
    lengths = lognormal_lengths(NUM_TEXTS)
    share = sum(row.cpu_s for row in rows) / (sum(sum(row.times_ms) for row in rows) / 1000)
    first = rows[0].median_ms
    libraries = LIBRARIES if unsupported_reason("numba-int8") else (*LIBRARIES, "numba")
    lines = [
        "# Serving on a CPU",
        "",
        "Written by `python -m benchmarks.serving`; do not edit.",
        "",
        f"- Machine: {cpu_name()}, {'with' if has_int8_units() else 'without'} units for 8-bit products; one thread.",
        f"- {NUM_TEXTS} texts, whose lengths are the quantiles of a lognormal distribution (mean {MEAN_TOKENS:g}, "
        f"deviation of the logarithm {LOG_DEVIATION}) up to {MAX_TOKENS}: mean {statistics.mean(lengths):.1f}, median "
        f"{statistics.median(lengths):g}, largest {max(lengths)} tokens. Comments on Korean news have mean 26.3, "
        "median 18, 0.77 (20,000 of kocohub/korean-hate-speech, kpfBERT's vocabulary).",
        f"- One text at a time, from token ids to logits; {rounds} rounds in turn. The median is that of a text of "
        "median length; a padded text always has 128 tokens.",
        f"- Processor time over wall time: {share:.2f}. Below 1 other work held the machine up and times are too long.",
        "- " + ", ".join(f"{name} {version}" for name, version in versions(*libraries).items()) + ".",
        "",
        "## Step by step",
        "",
        "Random weights; the numbers that they give are the same in every row of a shape, up to rounding and the"
        " error of 8 bits.",
        "",
        "| set-up | median ms | p99 ms | × first row |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        digits = 2 if row.median_ms >= 0.1 else 4
        ratio = first / row.median_ms
        lines.append(f"| {row.title} | {row.median_ms:.{digits}f} | {row.p99_ms:.{digits}f} | {ratio:,.1f} |")
    lines.append("")
    for shape, goal in GOALS.items():
        best = min((row for row in rows if row.shape == shape), key=lambda row: row.median_ms)
        ratio = first / best.median_ms
        lines.append(
            f"- {shape.layers} layers × {shape.hidden_size}: {ratio:,.1f} times as fast at best (“{best.title}”);"
            f" the goal of {goal:g} is {'reached' if ratio >= goal else 'missed on this machine'}."
        )
    if compile_s is not None:
        lines.append(f"- Numba compiles at every start, which took {compile_s:.1f} s with its import.")
    if not has_int8_units():
        lines.append(
            "- Without units for 8-bit products a core does at most 64 of them a cycle (AVX2), and 32 in single"
            " precision: int8 cannot be more than twice as fast here. With VNNI it can be four times as fast."
        )
    return [*lines, ""]


# --- trained models ---------------------------------------------------------------------------------------------------


def model_section(folder: Path, root: Path, limit: int) -> list[str]:
    """Return speed and score of a trained model on every backend."""
    task = read_finetuned(folder).task
    split = task.read_split(task.eval_split, root)
    examples, golds = split.examples[: limit or None], split.golds[: limit or None]
    metric = task.metrics[0]
    lines = [
        f"## {folder.resolve().name}, trained on {task.title}",
        "",
        f"Scored on {len(examples):,} examples of `{task.eval_split}`;"
        " times are from text to answer, with tokenizer and decoding.",
        "",
        f"| runtime | median ms | p99 ms | {metric.key} | same answer as torch |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    reference: list[Any] = []
    found: list[tuple[float, str, float, float]] = []  # median, backend, score, agreement
    for name in BACKENDS:
        if unsupported_reason(name):
            continue
        predictor = Predictor.load(folder, name)
        predictions = predictor.predict(examples)
        reference = reference or predictions
        single = [[example] for example in (*examples[:BLOCKS], *examples[:NUM_TEXTS])]
        times_ms = time_each(predictor.predict, single)[BLOCKS:]  # the first ones warm up
        median, p99, score = statistics.median(times_ms), np.percentile(times_ms, 99), metric(predictions, golds)
        agreement = float(np.mean([a == b for a, b in zip(reference, predictions, strict=True)]))
        found.append((median, name, score, agreement))
        lines.append(f"| {name} | {median:.2f} | {p99:.2f} | {score:.4f} | {100 * agreement:.2f} % |")
        sys.stderr.write(lines[-1] + "\n")
    _, name, score, agreement = min(found)
    is_reached = abs(score - found[0][2]) <= MAX_LOSS and agreement >= MIN_AGREEMENT
    return [
        *lines,
        "",
        f"- The fastest, {name}, is {100 * abs(score - found[0][2]):.2f} points of {metric.key} from torch and gives"
        f" {100 * agreement:.2f} % of its answers; the goal of {100 * MAX_LOSS:g} points and {100 * MIN_AGREEMENT:g} %"
        f" is {'reached' if is_reached else 'missed'}.",
        "",
    ]


def student_section(teacher: Path, student: Path, root: Path, limit: int) -> list[str]:
    """Return what a student keeps of its teacher, and how much faster it is, both on the same backend."""
    both = {"teacher": teacher, "student": student}
    task = read_finetuned(teacher).task
    split = task.read_split(task.eval_split, root)
    examples, golds = split.examples[: limit or None], split.golds[: limit or None]
    metric = task.metrics[0]
    lines = [
        "## Teacher and student",
        "",
        f"{len(examples):,} examples of {task.title}, `{task.eval_split}`."
        " Times are from token ids to logits, one text at a time and the two models in turn.",
        "",
        f"| runtime | {metric.key}: teacher | student | kept | median ms: teacher | student | × as fast |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    kept, faster = [], []
    for backend in ("torch", "onnx-fp32", "onnx-int8"):
        predictors = {name: Predictor.load(folder, backend) for name, folder in both.items()}
        inputs = single_inputs(predictors["teacher"], examples[:NUM_COMPARED])
        times: dict[str, list[float]] = {name: [] for name in both}
        for first in range(0, len(inputs), BLOCKS):
            for name, predictor in predictors.items():
                block = inputs[first : first + BLOCKS]
                times[name] += time_each(predictor.runtime.run, [block[0], *block])[1:]
        taught, learnt = (metric(predictors[name].predict(examples), golds) for name in both)
        slow, fast = (statistics.median(times[name]) for name in both)
        kept.append(learnt / taught)
        faster.append(slow / fast)
        cells = f"{taught:.4f} | {learnt:.4f} | {100 * kept[-1]:.1f} % | {slow:.2f} | {fast:.2f} | {faster[-1]:.2f}"
        lines.append(f"| {backend} | {cells} |")
        sys.stderr.write(lines[-1] + "\n")
    is_reached = min(kept) >= KEPT and max(faster) >= FASTER
    goal = f"at least {100 * KEPT:g} % kept and {FASTER:g} times as fast on one backend or another"
    return [*lines, "", f"- The goal, {goal}, is {'reached' if is_reached else 'missed on this machine'}.", ""]


def single_inputs(predictor: Predictor, examples: Sequence[Any]) -> list[Batch]:
    """Return what a model computes for each example, or each window of one, by itself."""
    finetuned = predictor.finetuned
    features = finetuned.family.featurize(examples, finetuned.tokenizer, finetuned.max_length, with_labels=False)
    padding = int(finetuned.tokenizer.pad_token_id or 0)
    return [collate([feature], predictor.runtime.network.inputs, padding=padding) for feature in features]


def time_each(run: Callable[[Any], object], inputs: Sequence[Any]) -> list[float]:
    """Return the milliseconds of each call."""
    times = []
    for value in inputs:
        started = time.perf_counter()
        run(value)
        times.append(1000 * (time.perf_counter() - started))
    return times


if __name__ == "__main__":
    run_command(main)
