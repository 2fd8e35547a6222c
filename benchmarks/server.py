"""Benchmark of the server on a CPU; writes the page in the docs.

    python -m benchmarks.server

The load comes from a process of its own (`benchmarks.serving_load`). Measured are throughput within a latency limit
against a plain FastAPI server, overload and recovery, memory over many requests, and shutdown by SIGTERM.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.serving_load import LOAD_SECONDS, Load, load_command, send
from corpora.foundation.command import run_command
from corpora.foundation.files import SAMPLE_ROOT, write_json, write_text
from corpora.foundation.machine import cpu_name, versions
from downstream.encoders.folder import TASK_KEY
from downstream.runtimes.probes import lognormal_lengths, probe_texts
from downstream.task import get_task

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "server.md"
LIBRARIES = ("torch", "transformers", "tokenizers", "numba", "onnxruntime", "fastapi", "uvicorn")
LIMIT_MS = 50.0
GOAL = 3.0
"""How many times the throughput of the plainest server ours is to have."""
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)
OVERLOAD = 256
REPEATED = 0.146
"""Share of the first 20,000 comments of kocohub/korean-hate-speech (unlabeled) that stood there before."""
START_S = 180.0
NUM_TEXTS = 500
MODEL: dict[str, Any] = {
    "vocab_size": 16_000,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}


# --- the servers ------------------------------------------------------------------------------------------------------


def make_model(folder: Path) -> Path:
    """Save a fine-tuned folder of the bundled models' shape with random weights."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from corpora.foundation.machine import no_file_bars
    from pretraining.vocabulary.tokenizer import save_tokenizer
    from pretraining.vocabulary.wordpiece import train_wordpiece

    task = get_task("nsmc")
    reviews = get_task("nsmc-sample").read_split("train", SAMPLE_ROOT).examples
    tokenizer = train_wordpiece([example.text for example in reviews], 16_000)
    config = BertConfig(**MODEL)
    config.update(task.family.head_config() | {TASK_KEY: task.name})
    torch.manual_seed(0)
    with no_file_bars():
        BertForSequenceClassification(config).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    write_json(folder.with_suffix(".json"), probe_texts(tokenizer, lognormal_lengths(NUM_TEXTS)))
    return folder


@contextlib.contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Run a server; yields its address when it is ready, and its process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-m", *command], stderr=stderr, env=environment)
    try:
        deadline = time.monotonic() + START_S
        url = ""
        while not url:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command)} did not start:\n{log.read_text(encoding='utf-8')}")
            time.sleep(0.1)
            for line in log.read_text(encoding="utf-8").splitlines():
                if '"listening"' in line:
                    url = json.loads(line)["url"]
        yield url, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)


def plain_server(folder: Path, port: int) -> None:
    """A plain server: FastAPI, torch in single precision, one request after another."""
    import socket

    import torch
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from downstream.finetune import load_finetuned

    torch.set_num_threads(1)
    model, tokenizer, _ = load_finetuned(folder)
    model.eval()
    labels = list(model.config.id2label.values())
    app = FastAPI()

    class Body(BaseModel):
        texts: list[str]

    @app.post("/classify")
    async def classify(body: Body) -> Any:
        with torch.inference_mode():
            batch = tokenizer(body.texts, return_tensors="pt", truncation=True, max_length=128, padding=True)
            shares = model(**batch).logits.softmax(-1)
        return {"results": [dict(zip(labels, row, strict=True)) for row in shares.tolist()]}

    listener = socket.create_server(("127.0.0.1", port))
    # As uvicorn sets it on sockets of its own: the parts of an answer do not wait for each other.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    sys.stderr.write(json.dumps({"event": "listening", "url": address}) + "\n")
    sys.stderr.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])


def highest(url: str, texts: Path, seconds: float, repeated: float = 0.0) -> tuple[int, Load]:
    """Return the number of connections with the highest throughput within the latency limit, and its load."""
    send(url, texts, 4, seconds=1.0)  # warms up
    best = (1, send(url, texts, 1, seconds=seconds, repeated=repeated))
    for connections in CONNECTIONS[1:]:
        load = send(url, texts, connections, seconds=seconds, repeated=repeated)
        if load.p99_ms > LIMIT_MS:
            break
        best = max(best, (connections, load), key=lambda pair: pair[1].per_s)
    return best


def workers_memory_mb(supervisor: int) -> list[float]:
    """Return the memory of the workers in MB without file pages."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text(encoding="utf-8").split()
    found = []
    for child in children:
        command = Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8")
        status = Path(f"/proc/{child}/status").read_text(encoding="utf-8")
        if "spawn_main" in command:
            found.append(int(status.split("RssAnon:")[1].split()[0]) / 1024)
    return found


# --- the measurements -------------------------------------------------------------------------------------------------


def measure_server(scratch: Path, seconds: float, requests: int) -> dict[str, Any]:
    """Measure throughput, overload, memory and shutdown of the server."""
    folder = make_model(scratch / "model")
    ours = ["apps.serve", "--classify", str(folder), "--port", "0", "--runtime"]
    texts, log = scratch / "model.json", scratch / "server.log"
    return {
        "throughput": measure_throughput(folder, ours, texts, log, seconds),
        "overload": measure_overload(ours, texts, log, seconds),
        **measure_endurance(ours, texts, log, seconds, requests),
    }


def measure_throughput(
    folder: Path, ours: list[str], texts: Path, log: Path, seconds: float
) -> dict[str, tuple[int, Load]]:
    """Return the best number of connections and its load for each kind of server."""
    no_batches, no_cache = ["--max-batch", "1"], ["--cache-mb", "0"]
    servers = {
        "FastAPI, torch fp32, one request after the other": ["benchmarks.server", "--plain", str(folder)],
        "ours, torch fp32, no batches, no cache": [*ours, "torch", *no_batches, *no_cache],
        "ours, runtime chosen here, no batches, no cache": [*ours, "auto", *no_batches, *no_cache],
        "… with batches": [*ours, "auto", *no_cache],
        f"… with the cache, {100 * REPEATED:g} % of the texts repeated": [*ours, "auto"],
    }
    throughput = {}
    for title, command in servers.items():
        with running(command, log) as (url, _):
            throughput[title] = highest(url, texts, seconds, REPEATED if "repeated" in title else 0.0)
            sys.stderr.write(f"{title}: {throughput[title]}\n")
    return throughput


def measure_overload(ours: list[str], texts: Path, log: Path, seconds: float) -> dict[str, Load]:
    """Return the loads before, during and after overload."""
    with running([*ours, "auto", "--cache-mb", "0", "--max-waiting", "32"], log) as (url, _):
        return {
            name: send(url, texts, connections, seconds=seconds)
            for name, connections in (("calm", 4), ("over", OVERLOAD), ("after", 4))
        }


def measure_endurance(ours: list[str], texts: Path, log: Path, seconds: float, requests: int) -> dict[str, Any]:
    """Return the memory of two workers over many requests, and the load during shutdown."""
    # A cache that fills early: any growth after that is a leak.
    with running([*ours, "auto", "--workers", "2", "--cache-mb", "1"], log) as (url, process):
        memory = []
        for count in (requests // 10, *[requests * 9 // 40] * 4):
            send(url, texts, 16, seconds=3600, limit=count, repeated=REPEATED)
            memory.append(workers_memory_mb(process.pid))
            sys.stderr.write(f"memory of the workers: {memory[-1]} MB\n")
        client = subprocess.Popen(load_command(url, texts, 32, seconds), stdout=subprocess.PIPE)
        time.sleep(1.0 + seconds / 2)
        process.send_signal(signal.SIGTERM)
        exit_code = process.wait(60)
        ended = Load(**json.loads(client.communicate()[0]))
    return {"memory": memory, "requests": requests, "end": ended, "exit_code": exit_code}


def page(figures: dict[str, Any]) -> list[str]:
    """Return the lines of the page."""
    rows: dict[str, tuple[int, Load]] = figures["throughput"]
    first = next(iter(rows.values()))[1].per_s
    overload: dict[str, Load] = figures["overload"]
    over, ended = overload["over"], figures["end"]
    before, after = figures["memory"][0], figures["memory"][-1]
    answered, refused = over.statuses.get("200", 0), over.statuses.get("503", 0)
    others = sum(over.statuses.values()) - answered - refused
    seconds = ", ".join(map(str, over.retry_after_s))
    calm, later = overload["calm"], overload["after"]
    lines = [
        "# The server on a CPU",
        "",
        "Written by `python -m benchmarks.server`; do not edit.",
        "",
        f"- Machine: {cpu_name()}, {os.cpu_count()} threads.",
        "- " + ", ".join(f"{name} {version}" for name, version in versions(*LIBRARIES).items()) + ".",
        "",
        "A random model of the bundled shape, one text a request, connections kept open, the load from a second",
        f"process on the same machine. Shown is the highest throughput of 1 to {CONNECTIONS[-1]} connections whose p99",
        f"stays within {LIMIT_MS:g} ms.",
        "",
        "| one worker | connections | requests/s | p50 ms | p99 ms | × first row |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for title, (connections, load) in rows.items():
        times = f"{load.p50_ms:.1f} | {load.p99_ms:.1f}"
        lines.append(f"| {title} | {connections} | {load.per_s:,.0f} | {times} | {load.per_s / first:.1f} |")
    best = max(load.per_s for _, load in rows.values()) / first
    return [
        *lines,
        "",
        f"- The goal of {GOAL:g} times the first row is {'reached' if best >= GOAL else 'missed on this machine'}.",
        f"- Overload: {OVERLOAD} connections that never pause, a queue of 32. {answered:,} requests were answered",
        f"  (p99 {over.p99_ms:.0f} ms), {refused:,} refused by 503 (p99 {over.p99_refusal_ms:.0f} ms) with",
        f"  `Retry-After: {seconds}`, {others} otherwise, {over.dropped} dropped.",
        f"- With 4 connections before it: {calm.per_s:,.0f} requests/s, p99 {calm.p99_ms:.1f} ms; after it:",
        f"  {later.per_s:,.0f} requests/s, p99 {later.p99_ms:.1f} ms, {later.statuses.get('503', 0)} refused.",
        f"- Memory of two workers after {figures['requests'] // 10:,} requests:",
        f"  {' and '.join(f'{mb:.1f}' for mb in before)} MB; after {figures['requests']:,}:",
        f"  {' and '.join(f'{mb:.1f}' for mb in after)} MB (a cache of 1 MB each).",
        f"- SIGTERM under load (32 connections): {sum(ended.statuses.values()):,} answered, {ended.dropped} dropped,",
        f"  exit code {figures['exit_code']}.",
        "",
    ]


def main(argv: list[str] | None = None) -> int:
    """Measure and write the page, or run the plain server."""
    parser = argparse.ArgumentParser(description="Benchmark the server.")
    parser.add_argument("--seconds", type=float, default=LOAD_SECONDS, help="seconds of each measurement")
    parser.add_argument("--requests", type=int, default=50_000, help="requests over which memory is measured")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--plain", type=Path, help="run the plain server with this folder")
    arguments = parser.parse_args(argv)
    if arguments.plain:
        plain_server(arguments.plain, 0)
        return 0
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory(prefix="pressbert-benchmark-") as scratch:
        figures = measure_server(Path(scratch), arguments.seconds, arguments.requests)
    write_text(arguments.out, "\n".join(page(figures)))
    sys.stdout.write(f"{arguments.out}\n")
    return 0


if __name__ == "__main__":
    run_command(main)
