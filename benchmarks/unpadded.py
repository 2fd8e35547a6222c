"""Speed of ModernBERT without padding (`pretraining.unpadded`) beside transformers' padded class; writes the page.

    python -m benchmarks.unpadded --data ROOT

One batch of articles drawn at random, by networks with random weights: the embedded articles, and with `--data` those
of Wikinews; and for short texts a batch of the embedded articles' titles. Both ways run in turn on the same batch, and
the median over rounds counts; padding tokens do not.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
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
WIKINEWS = "corpus/boddari_wikinews.csv"
BATCH = 32
NUM_TITLES = 100
MAX_LENGTH = 512
Batch = tuple[Tensor, Tensor, Tensor]
"""Token ids, positions and mask, int64 (B, T)."""


@dataclass(frozen=True)
class Shape:
    """Of a network."""

    layers: int
    width: int
    heads: int
    rounds: int = 3

    @property
    def name(self) -> str:
        """Layers and width."""
        return f"{self.layers} × {self.width}"


SHAPES = (Shape(4, 256, 4), Shape(6, 512, 8))


def main(argv: list[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="Benchmark ModernBERT without padding.")
    parser.add_argument("--data", type=Path, help="data root with Wikinews")
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args(argv)
    articles = list(read_documents(SAMPLE, rejected=[]))
    batches = {"titles of embedded articles": make_batch([article.title for article in articles], NUM_TITLES)}
    batches["embedded articles"] = make_batch([article.text for article in articles])
    if arguments.data:
        batches["Wikinews"] = make_batch([a.text for a in read_documents(arguments.data / WIKINEWS, rejected=[])])
    rows = []
    for text, batch in batches.items():
        for shape in SHAPES:
            rows.append({"text": text} | measure(shape, batch))
            sys.stderr.write(f"{rows[-1]}\n")
    write_text(arguments.out, page(rows))
    sys.stdout.write(f"{arguments.out}\n")
    return 0


def make_batch(texts: Sequence[str], num_texts: int = BATCH) -> Batch:
    """Return random texts as a padded batch."""
    tokenizer: Any = load_tokenizer(bundled("encoder"))
    texts = random.Random(0).sample(texts, num_texts)  # noqa: S311 - no secrets
    rows = [torch.tensor(ids) for ids in tokenizer(texts, truncation=True, max_length=MAX_LENGTH)["input_ids"]]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return ids, torch.arange(ids.shape[1]).expand(ids.shape), mask


def build(shape: Shape) -> Any:
    """Return a ModernBERT with random weights, the same for the same shape."""
    from transformers import ModernBertForMaskedLM

    config = ModelConfig(
        architecture="modernbert",
        num_hidden_layers=shape.layers,
        hidden_size=shape.width,
        num_attention_heads=shape.heads,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    network: Any = ModernBertForMaskedLM
    return network(config.network_config(16_000, 0)).eval()


def measure(shape: Shape, batch: Batch) -> dict[str, Any]:
    """Return real tokens per second of both ways, forward alone and with the backward pass."""
    stock, own = build(shape), build(shape)
    use_unpadded_attention(own)
    is_text = batch[2] > 0
    ways: dict[str, Callable[[], Tensor]] = {
        "padded": lambda: stock.model(input_ids=batch[0], attention_mask=batch[2]).last_hidden_state,
        "unpadded": lambda: encode_unpadded(own.model, *batch),
    }
    lengths = batch[2].sum(1)
    row: dict[str, Any] = {"shape": shape.name, "rounds": shape.rounds, "texts": len(lengths)}
    row |= {
        "median": int(lengths.median()),
        "longest": int(lengths.max()),
        "share": float(lengths.sum() / is_text.numel()),
    }
    with torch.no_grad():
        # Of every tenth token: the logits of all take a gigabyte.
        logits = [own.decoder(own.head(compute()[is_text][::10])) for compute in ways.values()]
        row["difference"] = float((logits[0] - logits[1]).abs().max())
    for is_training in (False, True):
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(shape.rounds):
            for way, compute in ways.items():
                started = time.perf_counter()
                with torch.set_grad_enabled(is_training):
                    states = compute()
                    if is_training:
                        loss: Any = states[is_text].square().mean()
                        loss.backward()
                times[way].append(time.perf_counter() - started)
        for way, seconds in times.items():
            row[f"{way}{'_training' if is_training else ''}"] = int(lengths.sum()) / statistics.median(seconds)
    return row


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page for the docs."""
    libraries = ", ".join(f"{name} {version}" for name, version in versions("torch", "transformers").items())
    texts = {row["text"]: row for row in rows}
    num_threads = torch.get_num_threads()
    lines = [
        "# ModernBERT without padding",
        "",
        "Written by `python -m benchmarks.unpadded --data ROOT`; do not edit.",
        "",
        f"- Machine: {cpu_name()}, threads: {num_threads}; fp32; the median of the rounds, both ways in turn.",
        f"- {libraries}; the padded class is transformers' `ModernBertModel` with its default attention.",
        *(
            f"- {_capitalized(text)}: a batch of {row['texts']}, drawn at random, of at most {MAX_LENGTH} tokens; "
            f"median {row['median']}, longest {row['longest']}; {100 * row['share']:.0f} % of the padded positions "
            "are text."
            for text, row in texts.items()
        ),
        "- Networks with random weights; local attention of 128 tokens in two of three layers.",
        "",
        "| text | layers × width | pass | rounds | padded, tokens/s | unpadded, tokens/s | factor "
        "| largest difference of a logit |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        for title, suffix in (("forward", ""), ("forward and backward", "_training")):
            padded, unpadded = row[f"padded{suffix}"], row[f"unpadded{suffix}"]
            cells = [row["text"], row["shape"], title, str(row["rounds"]), f"{padded:,.0f}", f"{unpadded:,.0f}"]
            cells += [f"{unpadded / padded:.2f}", "" if suffix else f"{row['difference']:.0e}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    run_command(main)
