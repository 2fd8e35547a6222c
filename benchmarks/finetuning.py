"""Fine-tuning steps on a CPU with torch's fused attention and with `pretraining.training.attention`; writes the page.

    python -m benchmarks.finetuning

The bundled encoder and one with random weights classify the embedded articles, cut to several lengths, in the precision
that training has on this machine. Both ways compute the same batch in turn, forward and backward, and the median over
rounds counts; padding tokens do not.
"""

import argparse
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from corpora.documents import read_documents
from corpora.foundation.command import run_command
from corpora.foundation.files import write_text
from corpora.foundation.machine import cpu_name, training_precision, versions
from downstream.encoders.hub import bundled
from downstream.encoders.tokenizers import load_tokenizer
from pretraining.recipe import SAMPLE
from pretraining.training.attention import LONGEST, training_attention

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "finetuning.md"
LENGTHS = (16, 32, 64, 128, 256, 512)
BATCH = 32
ROUNDS = 7
WIDE: dict[str, Any] = {"hidden_size": 768, "num_hidden_layers": 2, "num_attention_heads": 12}
"""Layers of BERT-base."""


def main(argv: list[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="Benchmark fine-tuning on a CPU.")
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args(argv)
    rows = []
    for name, model, rounds in ((*bundled_classifier(), ROUNDS), (*wide_classifier(), 3)):
        for length in LENGTHS:
            rows.append({"encoder": name, "longest": length} | measure(model, make_batch(length), rounds))
            sys.stderr.write(f"{rows[-1]}\n")
    write_text(arguments.out, page(rows))
    sys.stdout.write(f"{arguments.out}\n")
    return 0


def bundled_classifier() -> tuple[str, Any]:
    """Return the bundled encoder with a new head, and its name."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    load: Any = AutoModelForSequenceClassification.from_pretrained  # not annotated
    return "pressbert-mini", load(bundled("encoder"), trust_remote_code=False)


def wide_classifier() -> tuple[str, Any]:
    """Return two layers of BERT-base with random weights, and their name."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(vocab_size=16_000, intermediate_size=4 * WIDE["hidden_size"], **WIDE)
    return f"{WIDE['num_hidden_layers']} × {WIDE['hidden_size']}", BertForSequenceClassification(config)


def make_batch(longest: int, num_texts: int = BATCH) -> dict[str, Tensor]:
    """Return random articles with labels, cut to lengths from half of LONGEST to LONGEST, as a padded batch."""
    tokenizer: Any = load_tokenizer(bundled("encoder"))
    draw = random.Random(0)  # noqa: S311 - no secrets
    texts = draw.sample([article.text for article in read_documents(SAMPLE, rejected=[])], num_texts)
    lengths = [longest, *(draw.randint(longest // 2, longest) for _ in texts[1:])]
    rows = [
        torch.tensor(tokenizer(text, truncation=True, max_length=length)["input_ids"])
        for text, length in zip(texts, lengths, strict=True)
    ]
    return {
        "input_ids": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True),
        "attention_mask": torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True),
        "labels": torch.arange(num_texts) % 2,
    }


def measure(model: Any, batch: dict[str, Tensor], rounds: int) -> dict[str, Any]:
    """Return real tokens per second of both ways, and the largest difference of a loss."""
    model.eval()  # dropout would make the losses differ
    times: dict[str, list[float]] = {"fused": [], "ours": []}
    losses: dict[str, float] = {}
    _step(model, batch)
    for _ in range(rounds):
        for way, seconds in times.items():
            started = time.perf_counter()
            if way == "fused":
                losses[way] = _step(model, batch)
            else:
                with training_attention(model):
                    losses[way] = _step(model, batch)
            seconds.append(time.perf_counter() - started)
    num_tokens = int(batch["attention_mask"].sum())
    speeds = {way: num_tokens / statistics.median(seconds) for way, seconds in times.items()}
    return speeds | {"tokens": num_tokens, "rounds": rounds, "difference": abs(losses["fused"] - losses["ours"])}


def _step(model: Any, batch: dict[str, Tensor]) -> float:
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=training_precision() == "bf16"):
        loss = model(**batch).loss
    loss.backward()
    return float(loss.detach())


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page for the docs."""
    libraries = ", ".join(f"{name} {version}" for name, version in versions("torch", "transformers").items())
    lines = [
        "# Fine-tuning on a CPU",
        "",
        "Written by `python -m benchmarks.finetuning`; do not edit.",
        "",
        f"- Machine: {cpu_name()}, threads: {torch.get_num_threads()}; {training_precision()}; the median of the "
        "rounds, both ways in turn.",
        f"- {libraries}; fused: transformers' default attention (`sdpa`); ours: `pretraining.training.attention`, "
        f"which changes inputs of at most {LONGEST} tokens in bf16.",
        f"- {BATCH} embedded articles, cut to lengths from half the longest to the longest; forward and backward, "
        "without optimizer.",
        "",
        "| encoder | longest input | tokens | rounds | fused, tokens/s | ours, tokens/s | factor "
        "| difference of the loss |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cells = [row["encoder"], str(row["longest"]), f"{row['tokens']:,}", str(row["rounds"])]
        cells += [f"{row['fused']:,.0f}", f"{row['ours']:,.0f}", f"{row['ours'] / row['fused']:.2f}"]
        cells.append(f"{row['difference']:.0e}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    run_command(main)
