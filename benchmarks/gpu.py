"""Speed of pretraining on one GPU, beside transformers' Trainer in the same run; writes the page in the docs.

    python -m benchmarks.gpu

Base shapes on rows of 512 tokens in bf16, on the embedded articles, repeated: a plain checkout is enough. Every set-up
runs in its own process, and all together stay below `--budget` seconds: what is left then is named as not measured.
Without a GPU the same code runs at a tiny shape, and the page says that nothing was measured.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.documents import read_documents
from corpora.foundation.command import run_command
from corpora.foundation.files import write_text
from corpora.foundation.machine import versions
from pretraining.recipe import SAMPLE, Recipe, check_recipe
from pretraining.training.run import Run

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "gpu.md"
VOCABULARY = Path(__file__).resolve().parents[1] / "downstream" / "bundled" / "encoder"
TRAINER_BATCH = 32
MASK_RATE = 0.15
LONGEST_SET_UP_S = 150.0


@dataclass(frozen=True)
class Scale:
    """Size of the models and of the text."""

    shapes: Mapping[str, Mapping[str, int]]
    """Settings of `model` by architecture."""
    max_length: int
    batch_size: int
    num_texts: int
    warm_up: int
    """Steps before the clock starts."""


SHAPE = {"hidden_size": 768, "num_attention_heads": 12, "max_position_embeddings": 512}
BASE = Scale(
    {
        "bert": SHAPE | {"num_hidden_layers": 12},
        "modernbert": SHAPE | {"num_hidden_layers": 22, "intermediate_size": 1152},
    },
    max_length=512,
    batch_size=128,
    num_texts=6000,
    warm_up=3,
)
TINY_SHAPE = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 64}
TINY = Scale({"bert": TINY_SHAPE, "modernbert": TINY_SHAPE}, max_length=64, batch_size=4, num_texts=20, warm_up=1)
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@dataclass(frozen=True)
class SetUp:
    """What is measured."""

    title: str
    architecture: str
    is_trainer: bool = False
    compile: bool = False


SET_UPS: Mapping[str, SetUp] = {
    f"{architecture}-{suffix}": SetUp(title, architecture, **options)
    for architecture in BASE.shapes
    for suffix, title, options in (
        ("trainer", f"transformers Trainer, {TRAINER_BATCH} texts a step", {"is_trainer": True}),
        ("ours", "`pretraining.run`", {}),
        ("ours-compile", "`pretraining.run` with `loop.compile`", {"compile": True}),
    )
}


def main(argv: list[str] | None = None) -> int:
    """Run every set-up and write the page."""
    parser = argparse.ArgumentParser(description="Benchmark pretraining on a GPU.")
    parser.add_argument("--seconds", type=float, default=20.0, help="per set-up, warm-up not counted")
    parser.add_argument("--budget", type=float, default=500.0, help="seconds in all")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--set-up", choices=tuple(SET_UPS), help="internal: run one set-up and print its figures")
    parser.add_argument("--work", type=Path, help="internal: folder of the text")
    arguments = parser.parse_args(argv)
    scale, seconds = (BASE, arguments.seconds) if has_gpu() else (TINY, 0.1)
    if arguments.set_up:
        sys.stdout.write(json.dumps(measure(SET_UPS[arguments.set_up], arguments.work, scale, seconds)) + "\n")
        return 0
    started = time.perf_counter()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="pressbert-benchmark-") as scratch:
        make_text(Path(scratch), scale)
        for name in SET_UPS:
            left = arguments.budget - (time.perf_counter() - started)
            results[name] = run_apart(name, Path(scratch), arguments.seconds, min(left, LONGEST_SET_UP_S))
            sys.stderr.write(f"{name}: {json.dumps(results[name])}\n")
    write_text(arguments.out, page(results, is_measured=has_gpu(), elapsed_s=time.perf_counter() - started))
    sys.stdout.write(f"{arguments.out}\n")
    return 0


def has_gpu() -> bool:
    """Whether there is a CUDA device."""
    import torch

    return torch.cuda.is_available()


def run_apart(name: str, work: Path, seconds: float, limit_s: float) -> dict[str, Any]:
    """Run a set-up in its own process; one that fails or takes longer than LIMIT_S gives its reason as `failed`."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--set-up", name, "--work", str(work)]
    command += ["--seconds", str(seconds)]
    if limit_s < seconds:
        return {"failed": "no time left"}
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"failed": f"longer than {limit_s:.0f} s"}
    except subprocess.CalledProcessError as error:
        return {"failed": f"exit code {error.returncode}"}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def make_text(work: Path, scale: Scale) -> None:
    """Write the embedded articles as one text a line, as often as needed."""
    texts = [" ".join(document.text.split()) for document in read_documents(SAMPLE)]
    lines = (texts * (scale.num_texts // len(texts) + 1))[: scale.num_texts]
    (work / "text.jsonl").write_text(
        "".join(json.dumps({"text": line}, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8"
    )


def measure(set_up: SetUp, work: Path, scale: Scale, seconds: float) -> dict[str, Any]:
    """Train for SECONDS; return tokens per second without padding, peak memory and the rest of the figures."""
    import torch

    figures = (measure_trainer if set_up.is_trainer else measure_ours)(set_up, work, scale, seconds)
    if torch.cuda.is_available():
        figures["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        figures["device"] = torch.cuda.get_device_name()
    return figures


def make_recipe(set_up: SetUp, work: Path, scale: Scale) -> Recipe:
    """Return the recipe of a set-up of ours."""
    values: dict[str, Any] = {
        "objective": {"name": "dynamic_mlm", "mask_rate": MASK_RATE},
        "model": {"architecture": set_up.architecture} | dict(scale.shapes[set_up.architecture]) | NO_DROPOUT,
        "data": {
            "corpus": str(work / "text.jsonl"),
            "tokenizer": str(VOCABULARY),
            "max_length": scale.max_length,
        },
        "loop": {"batch_size": scale.batch_size, "micro_batch_size": "auto", "compile": set_up.compile},
    }
    return check_recipe(values, "recipe")


def measure_ours(set_up: SetUp, work: Path, scale: Scale, seconds: float) -> dict[str, Any]:
    """Train with our loop."""
    import torch

    from corpora.foundation.machine import matmul_flops_per_s
    from pretraining.training.accelerator import compute_dtype, make_accelerator

    run = Run(make_recipe(set_up, work, scale), work / "out", cache=work / "cache")
    trainer = run.make_trainer(make_accelerator(run.recipe.loop))
    trainer.micro_batch_size = max(1, trainer.largest_fitting(trainer.micro_batch_size))
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    speed = trainer.time_steps(seconds, warm_up=scale.warm_up)
    return {
        "tokens_per_s": speed.tokens_per_s,
        "matmul_share": speed.matmul_share,
        "matmul_tflops_per_s": matmul_flops_per_s(trainer.accelerator.device, compute_dtype(run.recipe.loop)) / 1e12,
        "rows_at_a_time": trainer.micro_batch_size,
        "num_parameters": trainer.num_parameters,
    }


def measure_trainer(set_up: SetUp, work: Path, scale: Scale, seconds: float) -> dict[str, Any]:
    """Train the same network with transformers' Trainer, padded, with its stock collator."""
    import torch
    import transformers
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainerCallback, TrainingArguments

    tokenizer: Any = AutoTokenizer.from_pretrained(VOCABULARY, trust_remote_code=False, local_files_only=True)
    texts = [document.text for document in read_documents(work / "text.jsonl")]
    encoded = [
        {"input_ids": ids} for ids in tokenizer(texts, truncation=True, max_length=scale.max_length)["input_ids"]
    ]
    config: Any = make_recipe(set_up, work, scale).model.network_config(len(tokenizer), tokenizer.pad_token_id)
    classes = {"bert": "BertForMaskedLM", "modernbert": "ModernBertForMaskedLM"}
    torch.manual_seed(0)
    network = getattr(transformers, classes[set_up.architecture])(config)
    counted = {"tokens": 0.0, "steps": 0.0, "started": 0.0, "elapsed": 0.0}

    class Counting(Trainer):
        def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
            if counted["steps"] >= scale.warm_up:
                counted["tokens"] += int(inputs["attention_mask"].sum())
            return super().training_step(model, inputs, *rest)

    class Clock(TrainerCallback):
        def on_step_end(self, *arguments: Any, **_: Any) -> Any:
            control = arguments[-1]
            counted["steps"] += 1
            if counted["steps"] == scale.warm_up:
                counted["started"] = _now()
            counted["elapsed"] = _now() - counted["started"]
            control.should_training_stop = counted["steps"] > scale.warm_up and counted["elapsed"] > seconds
            return control

    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(sys.stderr):
        Counting(
            model=network,
            args=TrainingArguments(
                output_dir=out,
                max_steps=100_000,
                per_device_train_batch_size=min(TRAINER_BATCH, scale.batch_size),
                bf16=torch.cuda.is_available(),
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=not torch.cuda.is_available(),
            ),
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASK_RATE),
            train_dataset=encoded,
            callbacks=[Clock()],
        ).train()
    return {"tokens_per_s": counted["tokens"] / counted["elapsed"]}


def _now() -> float:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def page(results: Mapping[str, Mapping[str, Any]], *, is_measured: bool, elapsed_s: float) -> str:
    """Return the page for the docs."""
    libraries = ", ".join(f"{name} {version}" for name, version in versions("torch", "transformers").items())
    lines = [
        "# Pretraining on a GPU",
        "",
        "Written by `python -m benchmarks.gpu`; do not edit.",
        "",
        f"- Rows of {BASE.max_length} tokens, bf16, no dropout, {100 * MASK_RATE:.0f} % masked, vocabulary of 16,000: "
        "BERT of 12 × 768, ModernBERT of 22 × 768. The text is the embedded articles; padding does not count.",
        f"- {libraries}.",
    ]
    if not is_measured:
        lines += [
            "",
            "**Not measured**: this page was written on a machine without a GPU; the same code ran at a tiny shape.",
        ]
    else:
        devices = sorted({str(figures["device"]) for figures in results.values() if "device" in figures})
        rates = [figures["matmul_tflops_per_s"] for figures in results.values() if "matmul_tflops_per_s" in figures]
        reached = f"; matrix products reach {max(rates):,.0f} TFLOP/s in bf16" if rates else ""
        lines.append(f"- Machine: {', '.join(devices)}{reached}; {elapsed_s:.0f} s in all.")
    lines += [
        "",
        "| model | set-up | real tokens/s | × Trainer | share of bf16 matmul rate | peak memory | rows at a time |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, set_up in SET_UPS.items():
        figures = results.get(name, {"failed": "not run"}) if is_measured else {"failed": ""}
        baseline = results.get(f"{set_up.architecture}-trainer", {}).get("tokens_per_s")
        cells = _cells(figures, baseline)
        lines.append(f"| {set_up.architecture} | {set_up.title} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cells(figures: Mapping[str, Any], baseline: float | None) -> list[str]:
    """Return the last cells of a row."""
    if "failed" in figures:
        reason = f": {figures['failed']}" if figures["failed"] else ""
        return [f"not measured{reason}", "", "", "", ""]
    share = figures.get("matmul_share")
    return [
        f"{figures['tokens_per_s']:,.0f}",
        f"{figures['tokens_per_s'] / baseline:.2f}" if baseline else "",
        f"{100 * share:.1f} %" if share is not None else "",
        f"{figures['peak_gb']:.1f} GB" if "peak_gb" in figures else "",
        f"{figures['rows_at_a_time']:,}" if "rows_at_a_time" in figures else "",
    ]


if __name__ == "__main__":
    run_command(main)
