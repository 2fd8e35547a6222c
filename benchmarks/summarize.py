"""Quality of summaries on held-out articles, and their speed relative to a plain loop; writes the tables in the docs.

    python -m benchmarks.summarize [--quality]

The plain loop has the same model, splitting and selection, and runs the network like a notebook: in fp32, one input at
a time, padded to the model's length. Weights are random, which does not change the time. Every set-up runs in its own
process, several times in alternation; the median is reported.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.summary_quality import section
from corpora.foundation.command import run_command
from corpora.foundation.files import SAMPLE_ROOT, write_text
from corpora.foundation.machine import cpu_name, training_precision, versions
from downstream.summaries.labelled import read_labelled
from downstream.summarize import Summarizer

SPEED = "## Speed"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "summarize.md"
NUM_TOKENS = 500
"""Tokens of an article, [CLS] and [SEP] of its sentences included."""
NUM_ARTICLES = 24
PADDED_SENTENCE = 128
"""Tokens of a padded sentence in the plain loop: the usual limit of sentence encoders."""
PADDED_ARTICLE = 512
"""Tokens, and sentence slots, of a padded article in kpfbertsum's notebook."""
SHAPES: dict[str, dict[str, Any]] = {
    "mini": {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024},
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
}
SET_UPS: dict[str, str] = {
    "lexical": "the bundled model: features of the text alone",
    "embeddings-mini": "with features of sentence embeddings, encoder of 4 × 256",
    "embeddings-mini-plain": "… in the plain loop",
    "bertsum-mini": "BertSumExt on an encoder of 4 × 256",
    "bertsum-mini-torch": '… with `runtime="torch"`',
    "bertsum-mini-plain": "… in the plain loop",
    "bertsum-base": "BertSumExt on an encoder of 12 × 768",
    "bertsum-base-torch": '… with `runtime="torch"`',
    "bertsum-base-plain": "… in the plain loop",
}


def main(argv: list[str] | None = None) -> int:
    """Run every set-up and write the page."""
    parser = argparse.ArgumentParser(description="Benchmark summaries.")
    parser.add_argument("--quality", action="store_true", help="measure quality alone and keep the page's speed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="per set-up, round and function")
    parser.add_argument("--set-ups", nargs="*", default=list(SET_UPS), choices=SET_UPS)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--set-up", help="internal: run one set-up and print its figures")
    parser.add_argument("--work", type=Path, help="internal: folder of the models")
    arguments = parser.parse_args(argv)
    if arguments.set_up:
        sys.stdout.write(json.dumps(measure(arguments.set_up, arguments.work, arguments.seconds)) + "\n")
        return 0
    quality = "\n".join(section())
    if arguments.quality:
        _, mark, speed = arguments.out.read_text(encoding="utf-8").partition(SPEED)
        write_text(arguments.out, f"{quality}\n\n{mark}{speed}")
        return 0
    with tempfile.TemporaryDirectory(prefix="pressbert-benchmark-") as scratch:
        work = Path(scratch)
        make_models(work, {name.split("-")[1] for name in arguments.set_ups if "-" in name})
        results: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.set_ups}
        for number in range(arguments.rounds):
            for name in arguments.set_ups:
                command = [sys.executable, "-m", "benchmarks.summarize", "--set-up", name, "--work", str(work)]
                command += ["--seconds", str(arguments.seconds)]
                # Backends are measured again, and their choice is not kept.
                environment = os.environ | {"XDG_CACHE_HOME": scratch}
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment)
                results[name].append(json.loads(done.stdout))
                sys.stderr.write(f"round {number + 1}, {name}: {done.stdout}")
    write_text(arguments.out, f"{quality}\n\n{page(results, arguments.rounds)}")
    sys.stdout.write(f"{arguments.out}\n")
    return 0


def make_models(work: Path, shapes: set[str]) -> None:
    """Save a vocabulary, articles of the wanted length, and for each shape an embedder and a BertSumExt."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    from downstream.encoders.folder import SCORER_FILE
    from downstream.summaries.scorer import HEAD_FILE, HeadConfig, build_head
    from pretraining.vocabulary.tokenizer import save_tokenizer
    from pretraining.vocabulary.wordpiece import train_wordpiece

    articles = list(read_labelled(SAMPLE_ROOT / "news.jsonl"))
    tokenizer = train_wordpiece([text for article in articles for text in article.texts], 16_000)
    texts: list[str] = []
    remaining = [text for article in articles for text in article.texts]
    while len(texts) < NUM_ARTICLES:
        length, chosen = 0, []
        while remaining and length + len(tokenizer(remaining[-1])["input_ids"]) <= NUM_TOKENS:
            chosen.append(remaining.pop())
            length += len(tokenizer(chosen[-1])["input_ids"])
        texts.append(" ".join(chosen))
    (work / "articles.json").write_text(json.dumps(texts), encoding="utf-8")
    for shape in shapes:
        torch.manual_seed(0)
        encoder = BertModel(BertConfig(vocab_size=16_000, **SHAPES[shape]), add_pooling_layer=False)
        encoder.save_pretrained(work / shape)
        save_tokenizer(tokenizer, work / shape)
        head = HeadConfig()
        state = build_head(encoder.config.hidden_size, head).state_dict()
        save_file({name: value.contiguous() for name, value in state.items()}, work / shape / HEAD_FILE)
        settings = {"head": head.model_dump(), "max_length": 512, "recipe": {}, "metrics": {}}
        (work / shape / SCORER_FILE).write_text(json.dumps(settings), encoding="utf-8")


def measure(name: str, work: Path, seconds: float) -> dict[str, float]:
    """Measure one set-up in this process: article by article, and through the iterator."""
    articles: list[str] = json.loads((work / "articles.json").read_text(encoding="utf-8"))
    summarizer = open_summarizer(name, work)
    summarizer.summarize(articles[0])  # loads the networks
    latencies: list[float] = []
    while sum(latencies) < seconds:
        started = time.perf_counter()
        summarizer.summarize(articles[len(latencies) % len(articles)])
        latencies.append(time.perf_counter() - started)
    started = time.perf_counter()
    count = 0
    while time.perf_counter() - started < seconds:
        count += sum(1 for _ in summarizer.summarize_many(articles))
    batched_s = time.perf_counter() - started
    return {
        "articles_per_s": len(latencies) / sum(latencies),
        "batched_articles_per_s": count / batched_s,
        "median_ms": 1000 * statistics.median(latencies),
    }


def open_summarizer(name: str, work: Path) -> Summarizer:
    """Load the model of a set-up."""
    from downstream.summaries.model import SummaryModel, open_encoder
    from downstream.summaries.scorer import SentenceScorer

    if name == "lexical":
        return Summarizer.load()
    kind, shape, *rest = name.split("-")
    is_plain = "plain" in rest
    runtime = "torch" if "torch" in rest else "auto"
    if kind == "bertsum":
        score = PlainScorer(work / shape) if is_plain else SentenceScorer.load(work / shape, runtime).log_odds
        return Summarizer(SummaryModel(schema=1, weights={"scorer": 1.0}), score=score)
    weights = Summarizer.load().model.weights | {"embedding_centrality": 0.3, "embedding_headline": 0.3}
    encode = PlainEncoder(work / shape) if is_plain else open_encoder(str(work / shape), runtime)
    return Summarizer(SummaryModel(schema=1, weights=weights), encode=encode)


class PlainEncoder:
    """Sentence embeddings one at a time, padded, in fp32."""

    def __init__(self, folder: Path) -> None:
        """Load the encoder with transformers alone."""
        from transformers import AutoModel, AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model: Any = AutoModel.from_pretrained(folder, dtype="float32").eval()

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        """Return unit vectors, (N, D)."""
        import torch

        rows = []
        for text in texts:
            batch = self._tokenizer(
                text, padding="max_length", truncation=True, max_length=PADDED_SENTENCE, return_tensors="pt"
            )
            with torch.no_grad():
                hidden = self._model(**batch).last_hidden_state[0]  # (T, D)
            mask = batch["attention_mask"][0].unsqueeze(-1)
            mean = (hidden * mask).sum(0) / mask.sum()
            rows.append((mean / mean.norm()).numpy())
        return np.stack(rows)


class PlainScorer:
    """BertSumExt as in kpfbertsum's notebook: an article at a time, 512 tokens and 512 sentence slots, fp32."""

    def __init__(self, folder: Path) -> None:
        """Load encoder and head in single precision."""
        from safetensors.torch import load_file

        from downstream.encoders.tokenizers import load_tokenizer
        from downstream.summaries.scorer import HEAD_FILE, HeadConfig, build_head, build_model, load_encoder

        self._tokenizer = load_tokenizer(folder)
        encoder = load_encoder(folder, self._tokenizer)
        head = build_head(encoder.config.hidden_size, HeadConfig())
        head.load_state_dict(load_file(folder / HEAD_FILE))
        self._model = build_model(encoder, head).eval()

    def __call__(self, sentences: Sequence[str]) -> NDArray[np.float64]:
        """Return log-odds, (S,)."""
        import torch

        from downstream.summaries.scorer import collate, make_windows

        (window,) = make_windows(sentences, self._tokenizer, PADDED_ARTICLE)
        batch = {}
        for key, value in collate([window], self._tokenizer).items():
            batch[key] = torch.nn.functional.pad(value, (0, PADDED_ARTICLE - value.shape[1]))
        with torch.no_grad():
            scores: NDArray[np.float64] = self._model(**batch)["logits"][0, : len(sentences)].double().numpy()
        return scores


def page(results: dict[str, list[dict[str, float]]], rounds: int) -> str:
    """Return the part of the page on speed."""

    def median(name: str, key: str) -> float:
        return statistics.median(result[key] for result in results[name])

    libraries = versions("torch", "transformers", "tokenizers", "numpy")
    lines = [
        SPEED,
        "",
        f"- Machine: {cpu_name()}, {os.cpu_count()} cores, {'with' if training_precision() == 'bf16' else 'without'} "
        "units for bf16.",
        f"- Articles of {NUM_TOKENS} tokens; three sentences. Every figure includes splitting, features and selection.",
        "- The plain loop runs in fp32, one input at a time; it pads a sentence to "
        f"{PADDED_SENTENCE} tokens for an embedder, and an article to {PADDED_ARTICLE} tokens and as many sentence "
        "slots for BertSumExt, as kpfbertsum does.",
        '- Ours has `runtime="auto"` unless stated otherwise.',
        "- Single: `summarize`. Batched: `summarize_many`, which computes one article at a time as well, so that no "
        "summary depends on other articles.",
        f"- Median of {rounds} alternating rounds, each set-up in its own process.",
        "- " + ", ".join(f"{name} {version}" for name, version in libraries.items()) + ".",
        "",
        "| model | single, articles/s | median ms | batched, articles/s | × plain, single | × plain, batched |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in results:
        cells = [SET_UPS[name]]
        cells += [f"{median(name, key):,.1f}" for key in ("articles_per_s", "median_ms", "batched_articles_per_s")]
        plain = f"{name.removesuffix('-torch')}-plain"
        if plain in results and plain != name:
            base = median(plain, "articles_per_s")
            cells += [f"{median(name, key) / base:.1f}" for key in ("articles_per_s", "batched_articles_per_s")]
        else:
            cells += ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    run_command(main)
