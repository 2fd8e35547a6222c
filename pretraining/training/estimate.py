"""`--dry-run`: one step of a recipe on a sample of its corpus, and what the whole run will take."""

import os
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from corpora.corpus import corpus_files
from corpora.foundation.errors import DataError
from pretraining.recipe import Recipe
from pretraining.training.dataset import prepare

SAMPLE_BYTES = 4 << 20
"""Text that is tokenised to estimate the rest."""
ARROW_BYTES_PER_TOKEN = {True: 3, False: 5}
"""Of ids and kinds, by whether ids fit two bytes."""
OPTIMIZER_STATES = 2


@dataclass(frozen=True)
class Estimate:
    """What a run will take. Seconds, bytes."""

    num_parameters: int
    rows_per_pass: int
    tokens_per_pass: int
    passes: float
    preparation_s: float
    step_s: float
    training_s: float
    memory_bytes: int
    disk_bytes: int
    device: str
    tokens_per_s: float
    matmul_share: float


def dry_run(recipe: Recipe, out: Path, *, num_workers: int, cpu: bool = False) -> str:
    """Run one step of RECIPE (after one that warms up) and return a table of what the run will take.

    Nothing is written to OUT.

    Raises:
        SuiteError: what would stop the run stops this.
    """
    estimate = measure(recipe, num_workers=num_workers, cpu=cpu)
    free = _free_bytes(out)
    rows = [
        ("device", estimate.device),
        ("parameters", f"{estimate.num_parameters:,}"),
        ("rows in a pass over the corpus", f"about {estimate.rows_per_pass:,}"),
        ("real tokens in a pass", f"about {estimate.tokens_per_pass:,}"),
        ("passes", f"{estimate.passes:.2f}"),
        ("making tokens and rows", _duration(estimate.preparation_s)),
        ("one step", f"{estimate.step_s:.3f} s, {estimate.tokens_per_s:,.0f} real tokens/s"),
        ("share of the measured matmul rate", f"{100 * estimate.matmul_share:.1f} %"),
        (f"{recipe.loop.steps:,} steps", _duration(estimate.training_s)),
        ("memory at its peak", _size(estimate.memory_bytes)),
        ("disk", f"{_size(estimate.disk_bytes)} of {_size(free)} free"),
    ]
    lines = ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]
    if estimate.disk_bytes > free:
        lines += ["", "The disk is too small for this run: free some space, or keep fewer checkpoints."]
    return "\n".join(lines) + "\n"


def measure(recipe: Recipe, *, num_workers: int, cpu: bool = False) -> Estimate:
    """Measure two steps on a sample of the corpus and extrapolate."""
    import torch

    from pretraining.run import build_model
    from pretraining.training.loop import Trainer, make_accelerator

    corpus = recipe.data.corpus
    with tempfile.TemporaryDirectory(prefix="pressbert-") as scratch:
        folder = Path(scratch)
        share = 1.0
        sampled = recipe
        if Path(corpus).is_dir():
            share = _sample(Path(corpus), folder / "sample.jsonl")
            data = recipe.data.model_copy(update={"corpus": str(folder / "sample.jsonl")})
            sampled = recipe.model_copy(update={"data": data})
        started = time.perf_counter()
        prepared = prepare(sampled, folder, num_workers=1)
        prepared_s = time.perf_counter() - started
        accelerator = make_accelerator(recipe.loop, cpu=cpu)
        model = build_model(sampled, prepared)
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        trainer = Trainer(model, prepared.feed, None, recipe.loop, accelerator, folder)
        speed = trainer.time_steps()
    rows_per_pass = round(len(prepared.feed.corpus) / share)
    tokens_per_pass = round(prepared.num_tokens / share)
    small = prepared.feed.objective.layout.specials.vocab_size <= 1 << 16
    checkpoint = 4 * num_parameters * (1 + OPTIMIZER_STATES)
    # A checkpoint more than is kept lies on the disk while it is written; then the model itself.
    disk = (recipe.loop.keep_checkpoints + 1) * checkpoint + 4 * num_parameters
    # Tokens without special ones, and rows: about the same again for each pass that is written out.
    disk += 2 * tokens_per_pass * ARROW_BYTES_PER_TOKEN[small]
    if accelerator.device.type == "cuda":
        memory = torch.cuda.max_memory_allocated(accelerator.device)
    else:
        memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Estimate(
        num_parameters=num_parameters,
        rows_per_pass=rows_per_pass,
        tokens_per_pass=tokens_per_pass,
        passes=recipe.loop.steps * recipe.loop.batch_size / rows_per_pass,
        preparation_s=prepared_s / share / num_workers,
        step_s=speed.step_s,
        training_s=speed.step_s * recipe.loop.steps,
        memory_bytes=memory,
        disk_bytes=disk,
        device=f"{accelerator.num_processes} × {accelerator.device}, {accelerator.mixed_precision}",
        tokens_per_s=speed.tokens_per_s,
        matmul_share=speed.matmul_share,
    )


def _sample(corpus: Path, out: Path) -> float:
    """Write the first documents of every shard of a corpus, and return the share of its bytes that they are."""
    files = corpus_files(corpus)
    per_file = SAMPLE_BYTES // max(1, len(files))
    taken = 0
    with out.open("wb") as sample:
        for file in files:
            with file.open("rb") as lines:
                size = 0
                for line in lines:
                    size += sample.write(line)
                    if size >= per_file:
                        break
                taken += size
    total = sum(file.stat().st_size for file in files)
    if not taken:
        raise DataError(corpus, "holds no text", "give a corpus with text in it")
    return taken / total


def _free_bytes(out: Path) -> int:
    folder = out.resolve()
    while not folder.exists():
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def _size(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
