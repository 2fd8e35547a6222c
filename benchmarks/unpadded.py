"""Speed of ModernBERT without padding (`pretraining.unpadded`) beside transformers' padded class; writes the page.

    python -m benchmarks.unpadded

The embedded articles in batches of 32 in random order, by a network with random weights. Both ways run in turn on the
same batches, and the median over rounds counts; padding tokens do not.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from corpora.documents import read_documents
from corpora.foundation.command import run_command
from corpora.foundation.files import write_text
from corpora.foundation.machine import cpu_name, versions
from downstream.encoders.hub import bundled
from downstream.encoders.tokenizers import load_tokenizer
from pretraining.recipe import SAMPLE, ModelConfig
from pretraining.unpadded import encode_unpadded, use_unpadded_attention

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "unpadded.md"
BATCH = 32
MAX_LENGTH = 512
SHAPES = {"4 × 256": (4, 256, 4), "6 × 512": (6, 512, 8)}
"""Layers, width and heads."""
Batch = tuple[Tensor, Tensor, Tensor]
"""Token ids, positions and mask, int64 (B, T)."""


def main(argv: list[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="Benchmark ModernBERT without padding.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args(argv)
    batches = make_batches()
    rows = [measure(name, shape, batches, arguments.rounds) for name, shape in SHAPES.items()]
    write_text(arguments.out, page(rows, batches, arguments.rounds))
    sys.stdout.write(f"{arguments.out}\n")
    return 0


def make_batches(num_texts: int | None = None) -> list[Batch]:
    """Return the embedded articles as padded batches."""
    tokenizer: Any = load_tokenizer(bundled("encoder"))
    texts = [document.text for document in read_documents(SAMPLE)][:num_texts]
    rows = [torch.tensor(ids) for ids in tokenizer(texts, truncation=True, max_length=MAX_LENGTH)["input_ids"]]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
    batches = []
    for first in range(0, len(rows), BATCH):
        some = [rows[k] for k in order[first : first + BATCH]]
        ids = torch.nn.utils.rnn.pad_sequence(some, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in some], batch_first=True)
        batches.append((ids, torch.arange(ids.shape[1]).expand(ids.shape), mask))
    return batches


def build(shape: tuple[int, int, int]) -> Any:
    """Return a ModernBERT with random weights, the same for the same shape."""
    from transformers import ModernBertModel

    layers, width, heads = shape
    config = ModelConfig(
        architecture="modernbert",
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    network: Any = ModernBertModel
    return network(config.network_config(16_000, 0)).eval()


def measure(name: str, shape: tuple[int, int, int], batches: list[Batch], rounds: int) -> dict[str, Any]:
    """Return real tokens per second of both ways, forward alone and with the backward pass."""
    stock, own = build(shape), build(shape)
    use_unpadded_attention(own)
    ways: dict[str, Callable[[Batch], Tensor]] = {
        "padded": lambda batch: stock(input_ids=batch[0], attention_mask=batch[2]).last_hidden_state,
        "unpadded": lambda batch: encode_unpadded(own, *batch),
    }
    num_tokens = sum(int(mask.sum()) for _, _, mask in batches)
    row: dict[str, Any] = {"name": name, "difference": 0.0}
    with torch.no_grad():
        for batch in batches:
            gap = (ways["padded"](batch) - ways["unpadded"](batch))[batch[2] > 0].abs().max()
            row["difference"] = max(row["difference"], float(gap))
    for is_training in (False, True):
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, compute in ways.items():
                started = time.perf_counter()
                for batch in batches:
                    with torch.set_grad_enabled(is_training):
                        states = compute(batch)
                        if is_training:
                            loss: Any = states[batch[2] > 0].square().mean()
                            loss.backward()
                times[way].append(time.perf_counter() - started)
        for way, seconds in times.items():
            row[f"{way}{'_training' if is_training else ''}"] = num_tokens / statistics.median(seconds)
    return row


def page(rows: list[dict[str, Any]], batches: list[Batch], rounds: int) -> str:
    """Return the page for the docs."""
    lengths = [int(length) for _, _, mask in batches for length in mask.sum(1)]
    positions = sum(mask.numel() for _, _, mask in batches)
    libraries = ", ".join(f"{name} {version}" for name, version in versions("torch", "transformers").items())
    lines = [
        "# ModernBERT without padding",
        "",
        "Written by `python -m benchmarks.unpadded`; do not edit.",
        "",
        f"- Machine: {cpu_name()}, {torch.get_num_threads()} threads; fp32; median of {rounds} rounds in turn.",
        f"- {libraries}.",
        f"- Text: {len(lengths)} embedded articles of {min(lengths)} to {max(lengths)} tokens, median "
        f"{statistics.median(lengths):.0f}, in batches of {BATCH} in random order: "
        f"{100 * sum(lengths) / positions:.0f} % of the padded positions are text.",
        "- Networks with random weights; local attention of 128 tokens in two of three layers.",
        "",
        "| layers × width | pass | padded, tokens/s | unpadded, tokens/s | factor | largest difference of a state |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        for title, suffix in (("forward", ""), ("forward and backward", "_training")):
            padded, unpadded = row[f"padded{suffix}"], row[f"unpadded{suffix}"]
            gap = "" if suffix else f"{row['difference']:.0e}"
            lines.append(
                f"| {row['name']} | {title} | {padded:,.0f} | {unpadded:,.0f} | {unpadded / padded:.2f} | {gap} |"
            )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    run_command(main)
