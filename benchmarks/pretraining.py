"""Speed of pretraining relative to named baselines on the same machine; writes the page in the docs.

    python -m benchmarks.pretraining DATA/nsmc/reviews_unlabeled.txt.gz

Every set-up runs several times in turn, each time in its own process, and the median counts. All use the same reviews
(about 20 tokens on average), the same vocabulary and the same BERT; padding tokens do not count.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from corpora.build import BuildConfig, build
from corpora.corpus import corpus_files, corpus_texts
from corpora.foundation.command import run_command
from corpora.foundation.errors import UsageError
from corpora.foundation.files import write_text
from corpora.foundation.machine import cpu_name, versions
from corpora.sources import Source
from pretraining.data.tokens import tokenize_corpus
from pretraining.recipe import Recipe
from pretraining.training.run import Run
from pretraining.vocabulary.tokenizer import open_wordpiece, save_tokenizer
from pretraining.vocabulary.wordpiece import train_wordpiece

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "pretraining.md"
VOCAB_SIZE = 16_000
MODEL: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
WARM_UP_STEPS = 3
BASELINES: dict[str, tuple[str, dict[str, Any]]] = {
    "trainer": ("transformers Trainer, stock MLM collator, default settings (batch 8, fp32)", {}),
    "trainer-bf16": (
        "the same, batch 64, bf16",
        {"per_device_train_batch_size": 64, "bf16": True},
    ),
    "trainer-grouped": (
        'the same, batch 64, bf16, `train_sampling_strategy="group_by_length"`',
        {"per_device_train_batch_size": 64, "bf16": True, "train_sampling_strategy": "group_by_length"},
    ),
}
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("`pretraining.run`, rows of 128, 32 rows at a time", {}),
    "ours-nsp": ("the same with the original objective (MLM + NSP)", {"objective": "static_mlm_nsp"}),
    "ours-sdpa": ("the same as the first, with PyTorch's fused attention", {"attention": "sdpa"}),
    "ours-whole-head": ("…, with the scores of all predictions at once", {"slice": 1 << 30}),
    "ours-any-rows": ("…, with any number of masked positions in a matrix product", {"row_multiple": 1}),
    "ours-default-malloc": ("…, with the C library's default memory settings", {"malloc": False}),
    "ours-fp32": ("…, in fp32", {"precision": "fp32"}),
    "ours-compile": ("…, with `torch.compile`", {"compile": True}),
}


def main(argv: list[str] | None = None) -> int:
    """Run every set-up and write the page."""
    parser = argparse.ArgumentParser(description="Benchmark pretraining.")
    parser.add_argument("reviews", type=Path, help="one text a line, e.g. nsmc/reviews_unlabeled.txt.gz")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="per set-up and round, warm-up not counted")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--set-up", help="internal: run one set-up and print its figures")
    parser.add_argument("--work", type=Path, help="internal: folder of the corpus")
    arguments = parser.parse_args(argv)
    if arguments.set_up:
        figures = run_set_up(arguments.set_up, arguments.work, arguments.seconds)
        sys.stdout.write(json.dumps(figures) + "\n")
        return 0
    if not arguments.reviews.is_file():
        raise UsageError(arguments.reviews, "no such file", "give a text file with one text a line")
    with tempfile.TemporaryDirectory(prefix="pressbert-benchmark-") as scratch:
        work = Path(scratch)
        make_corpus(arguments.reviews, work)
        results: dict[str, list[dict[str, Any]]] = {}
        names = ["matmul", *BASELINES, *OURS, "tokenizers", "corpus", "memory", "memory-10x", "loading"]
        for number in range(arguments.rounds):
            for name in names:
                command = [sys.executable, "-m", "benchmarks.pretraining", str(arguments.reviews)]
                command += ["--set-up", name, "--work", str(work), "--seconds", str(arguments.seconds)]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
                results.setdefault(name, []).append(json.loads(done.stdout))
                sys.stderr.write(f"round {number + 1}, {name}: {done.stdout}")
    write_text(arguments.out, page(results, arguments.rounds))
    sys.stdout.write(f"{arguments.out}\n")
    return 0


def make_corpus(reviews: Path, work: Path) -> None:
    """Build the corpus, a tenfold one, and the vocabulary."""
    config = BuildConfig(held_out=0.0)
    build([Source(reviews, text_unit="line")], work / "corpus", config)
    files = corpus_files(work / "corpus")
    save_tokenizer(train_wordpiece([t for file in files for t in corpus_texts(file)], VOCAB_SIZE), work / "vocabulary")
    # The tenfold corpus is the first files of the single one, ten times over: same text, ten times as many shards.
    for name, times in (("small", 1), ("tenfold", 10)):
        (work / name).mkdir()
        for number in range(times):
            for file in files[:2]:
                shutil.copy(file, work / name / f"{number}-{file.name}")


def run_set_up(name: str, work: Path, seconds: float) -> dict[str, Any]:
    """Measure one set-up in this process."""
    if name == "matmul":
        return measure_matmul()
    if name in BASELINES:
        return measure_trainer(BASELINES[name][1], work, seconds)
    if name in OURS:
        return measure_ours(OURS[name][1], work, seconds)
    if name == "tokenizers":
        return measure_tokenizers(work)
    if name == "loading":
        return measure_loading(work)
    if name == "corpus":
        return measure_corpus(work)
    return measure_memory(work, "tenfold" if name == "memory-10x" else "small")


def measure_matmul() -> dict[str, Any]:
    """Measure what the machine's matrix products reach."""
    import torch

    from corpora.foundation.machine import matmul_flops_per_s

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        "fp32_gflops_per_s": matmul_flops_per_s(device, torch.float32) / 1e9,
        "bf16_gflops_per_s": matmul_flops_per_s(device, torch.bfloat16) / 1e9,
        "threads": torch.get_num_threads(),
    }


def measure_trainer(options: dict[str, Any], work: Path, seconds: float) -> dict[str, Any]:
    """Train with transformers' Trainer until SECONDS are over."""
    import torch
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        BertTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    tokenizer = BertTokenizer.from_pretrained(work / "vocabulary")
    texts = _texts(work, 60_000)
    encoded = [{"input_ids": ids} for ids in tokenizer(texts, truncation=True, max_length=512)["input_ids"]]
    torch.manual_seed(0)
    counted = {"tokens": 0, "steps": 0, "started": 0.0, "elapsed": 0.0}

    class Counting(Trainer):
        def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
            if counted["steps"] >= WARM_UP_STEPS:
                counted["tokens"] += int(inputs["attention_mask"].sum())
            return super().training_step(model, inputs, *rest)

    class Clock(TrainerCallback):
        def on_step_end(self, *arguments: Any, **_: Any) -> Any:
            control = arguments[-1]
            counted["steps"] += 1
            if counted["steps"] == WARM_UP_STEPS:
                counted["started"] = time.perf_counter()
            counted["elapsed"] = time.perf_counter() - counted["started"]
            control.should_training_stop = counted["steps"] > WARM_UP_STEPS and counted["elapsed"] > seconds
            return control

    with tempfile.TemporaryDirectory() as out:
        trainer = Counting(
            model=BertForMaskedLM(BertConfig(vocab_size=VOCAB_SIZE, intermediate_size=1024, **MODEL)),
            args=TrainingArguments(
                output_dir=out,
                max_steps=100_000,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=not torch.cuda.is_available(),
                **options,
            ),
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
            train_dataset=encoded,
            callbacks=[Clock()],
        )
        with contextlib.redirect_stdout(sys.stderr):
            trainer.train()
    return {"tokens_per_s": counted["tokens"] / counted["elapsed"], "steps": counted["steps"]}


def measure_ours(options: dict[str, Any], work: Path, seconds: float) -> dict[str, Any]:
    """Train with our loop until SECONDS are over."""
    from pretraining.model import PretrainingModel
    from pretraining.training.accelerator import make_accelerator

    run = make_run(work, options)
    with contextlib.ExitStack() as changes:
        if not options.get("malloc", True):
            changes.enter_context(mock.patch("pretraining.training.loop.keep_freed_memory"))
        if "slice" in options:
            changes.enter_context(mock.patch("pretraining.model.SLICE", options["slice"]))
        if "row_multiple" in options:
            changes.enter_context(mock.patch("pretraining.model.ROW_MULTIPLE", options["row_multiple"]))
        if "attention" in options:
            changes.enter_context(mock.patch.object(PretrainingModel, "use_attention"))
        trainer = run.make_trainer(make_accelerator(run.recipe.loop))
        if "attention" in options:
            trainer.model.network.set_attn_implementation(options["attention"])
        speed = trainer.time_steps(seconds, warm_up=WARM_UP_STEPS)
    source = run.data.train
    return {
        "tokens_per_s": speed.tokens_per_s,
        "matmul_share": speed.matmul_share,
        "packing": run.data.num_tokens / (len(source.corpus) * source.objective.layout.max_length),
        "tokens_per_sequence": run.data.num_tokens / sum(len(shard.labels) for shard in source.corpus.shards),
        "step_ms": 1000 * speed.step_s,
    }


def make_run(work: Path, options: dict[str, Any], *, corpus: str = "corpus", num_workers: int | None = None) -> Run:
    """Return the run of a set-up of ours."""
    objective = {"name": options.get("objective", "dynamic_mlm")}
    if objective["name"] == "static_mlm_nsp":
        objective["dupe_factor"] = 1
    values: dict[str, Any] = {
        "objective": objective,
        "model": MODEL,
        "data": {"corpus": str(work / corpus), "tokenizer": str(work / "vocabulary"), "max_length": 128},
        "loop": {"batch_size": 32} | {key: options[key] for key in ("precision", "compile") if key in options},
    }
    return Run(Recipe(**values), work, cache=work / f"cache-{corpus}", num_workers=num_workers or os.cpu_count() or 1)


def measure_loading(work: Path) -> dict[str, Any]:
    """Measure the time to make a batch."""
    source = make_run(work, {}).data.train
    source.micro_batches(0, process=0, num_processes=1, size=32)
    times = []
    for step in range(1, 201):
        started = time.perf_counter()
        source.micro_batches(step, process=0, num_processes=1, size=32)
        times.append(time.perf_counter() - started)
    return {"batch_ms": 1000 * statistics.median(times)}


def measure_tokenizers(work: Path) -> dict[str, Any]:
    """Measure `tokenizers` alone on the texts of the corpus, with one thread and with all."""
    texts = [text for file in corpus_files(work / "corpus") for text in corpus_texts(file)]
    size = sum(len(text.encode()) for text in texts)
    tokenizer = open_wordpiece(work / "vocabulary" / "tokenizer.json")
    figures = {}
    for label, parallel in (("one", "false"), ("all", "true")):
        os.environ["TOKENIZERS_PARALLELISM"] = parallel
        started = time.perf_counter()
        for first in range(0, len(texts), 1000):
            tokenizer.encode_batch_fast(texts[first : first + 1000], add_special_tokens=False)
        figures[f"mb_per_s_{label}"] = size / 1e6 / (time.perf_counter() - started)
    return figures


def measure_corpus(work: Path) -> dict[str, Any]:
    """Measure reading, tokenizing and packing of the corpus, with one process and with all."""
    size = sum(len(text.encode()) for file in corpus_files(work / "corpus") for text in corpus_texts(file))
    figures: dict[str, Any] = {"corpus_mb": size / 1e6}
    for label, workers in (("one", 1), ("all", os.cpu_count() or 1)):
        run = make_run(work, {}, num_workers=workers)
        shutil.rmtree(run.cache, ignore_errors=True)
        started = time.perf_counter()
        tokenize_corpus(work / "corpus", work / "vocabulary" / "tokenizer.json", run.cache, num_workers=workers)
        tokenized = time.perf_counter()
        assert run.data.num_tokens  # prepared on access
        finished = time.perf_counter()
        figures |= {
            f"tokenise_mb_per_s_{label}": size / 1e6 / (tokenized - started),
            f"mb_per_s_{label}": size / 1e6 / (finished - started),
        }
    return figures


def measure_memory(work: Path, name: str) -> dict[str, Any]:
    """Measure the peak memory of one process that tokenizes and packs a corpus."""
    files = sorted((work / name).glob("*.jsonl"))
    size = sum(len(text.encode()) for file in files for text in corpus_texts(file))
    write_manifest(work, name, files)
    run = make_run(work, {}, corpus=name, num_workers=1)
    with _peak_memory() as peak:
        assert run.data.num_tokens  # prepared on access
    shutil.rmtree(run.cache)
    return {"peak_mb": peak["bytes"] / 1e6, "corpus_mb": size / 1e6}


def write_manifest(work: Path, name: str, files: list[Path]) -> None:
    """Turn a folder of shards into a corpus by writing its manifest."""
    from corpora.foundation.files import sha256, write_json

    manifest = json.loads((work / "corpus" / "manifest.json").read_text(encoding="utf-8"))
    pattern = manifest["shards"][0]
    manifest["shards"] = [
        pattern | {"name": file.name, "sha256": sha256(file), "size_bytes": file.stat().st_size} for file in files
    ]
    write_json(work / name / "manifest.json", manifest)


@contextlib.contextmanager
def _peak_memory() -> Iterator[dict[str, int]]:
    """Watch the anonymous memory of this process; pages of mapped files do not count, the system can reclaim them."""
    peak = {"bytes": 0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            text = Path("/proc/self/status").read_text(encoding="utf-8")
            own = next(line for line in text.splitlines() if line.startswith("RssAnon"))
            peak["bytes"] = max(peak["bytes"], 1024 * int(own.split()[1]))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _texts(work: Path, count: int) -> list[str]:
    texts: list[str] = []
    for file in corpus_files(work / "corpus"):
        for text in corpus_texts(file):
            texts.append(text)
            if len(texts) == count:
                return texts
    return texts


def page(results: dict[str, list[dict[str, Any]]], rounds: int) -> str:
    """Return the page for the docs."""

    def median(name: str, key: str) -> float:
        return float(statistics.median(result[key] for result in results[name]))

    def spread(name: str) -> str:
        values = [result["tokens_per_s"] for result in results[name]]
        return f"{min(values):,.0f}–{max(values):,.0f}"

    first, grouped = median("trainer", "tokens_per_s"), median("trainer-grouped", "tokens_per_s")
    libraries = versions("torch", "transformers", "tokenizers", "accelerate", "datasets")
    lines = [
        "# Pretraining speed",
        "",
        "Written by `python -m benchmarks.pretraining DATA/nsmc/reviews_unlabeled.txt.gz`; do not edit.",
        "",
        f"- Machine: {cpu_name()}, {int(median('matmul', 'threads'))} threads; matrix product of 2048³: "
        f"{median('matmul', 'fp32_gflops_per_s'):,.0f} GFLOP/s in fp32, "
        f"{median('matmul', 'bf16_gflops_per_s'):,.0f} GFLOP/s in bf16.",
        f"- Text: vocabulary of {VOCAB_SIZE:,}; {median('ours', 'tokens_per_sequence'):.1f} tokens per review with "
        "`[CLS]` and `[SEP]`. Model: BERT, 4 layers × 256, no dropout, 15 % masked.",
        f"- Median (and range) of {rounds} rounds in turn, each set-up in its own process.",
        "- " + ", ".join(f"{name} {version}" for name, version in libraries.items()) + ".",
        "",
        "## Training",
        "",
        "| set-up | real tokens/s | range | × Trainer, default | × Trainer, grouped | share of bf16 matmul rate |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, (label, _) in (BASELINES | OURS).items():
        speed = median(name, "tokens_per_s")
        share = f"{100 * median(name, 'matmul_share'):.1f} %" if name in OURS and name != "ours-fp32" else ""
        lines.append(
            f"| {label} | {speed:,.0f} | {spread(name)} | {speed / first:.2f} | {speed / grouped:.2f} | {share} |"
        )
    batch_ms, step_ms = median("loading", "batch_ms"), median("ours", "step_ms")
    lines += [
        "",
        f"- Packing: {100 * median('ours', 'packing'):.2f} % of the positions hold real tokens "
        f"({100 * median('ours-nsp', 'packing'):.2f} % for sentence pairs).",
        f"- Data loading: a batch of 32 rows takes {batch_ms:.2f} ms to make, {100 * batch_ms / step_ms:.2f} % of the "
        f"{step_ms:.0f} ms of a step; it is made during the previous step.",
        "",
        "## Corpus",
        "",
        f"From JSON lines to packed rows on disk, {median('corpus', 'corpus_mb'):.0f} MB of text; `tokenizers` "
        "alone encodes the same texts, already in memory, with `encode_batch_fast` and discards the result. The "
        "time includes the start of processes.",
        "",
        "| | one process | all cores |",
        "| --- | ---: | ---: |",
    ]
    alone = {label: median("tokenizers", f"mb_per_s_{label}") for label in ("one", "all")}
    lines.append(f"| `tokenizers` alone | {alone['one']:.2f} MB/s | {alone['all']:.2f} MB/s |")
    for title, key in (("reading and tokenizing", "tokenise_mb_per_s"), ("and packing into rows", "mb_per_s")):
        speeds = {label: median("corpus", f"{key}_{label}") for label in ("one", "all")}
        cells = [f"{speed:.2f} MB/s ({100 * speed / alone[label]:.0f} %)" for label, speed in speeds.items()]
        lines.append(f"| {title} | {cells[0]} | {cells[1]} |")
    lines += [
        "",
        "| corpus | MB of text | peak memory of the process |",
        "| --- | ---: | ---: |",
        *(
            f"| {label} | {median(name, 'corpus_mb'):.1f} | {median(name, 'peak_mb'):.0f} MB |"
            for label, name in (("1×", "memory"), ("10×", "memory-10x"))
        ),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    run_command(main)
