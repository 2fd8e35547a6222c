"""The cost of a run, extrapolated from one micro-batch on a sample of its corpus."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corpora.corpus import corpus_files
from corpora.foundation.errors import DataError

if TYPE_CHECKING:
    from pretraining.recipe import LoopConfig
    from pretraining.training.dataset import Prepared
    from pretraining.training.trial import TrialTrainer

SAMPLE_BYTES = 4 << 20
"""Text of the sample."""
ARROW_BYTES_PER_TOKEN = {True: 3, False: 5}
"""Of ids and kinds, by whether ids fit two bytes."""
OPTIMIZER_STATES = 2


@dataclass(frozen=True)
class Estimate:
    """The cost of a run. Times in seconds, sizes in bytes."""

    num_parameters: int
    rows_per_epoch: int
    tokens_per_epoch: int
    epochs: float
    preparation_s: float
    steps: int
    step_s: float
    training_s: float
    memory_bytes: int
    disk_bytes: int
    device: str
    tokens_per_s: float
    matmul_share: float
    micro_batch_size: int

    @classmethod
    def from_sample(
        cls, trainer: "TrialTrainer", data: "Prepared", config: "LoopConfig", *, share: float, preparation_s: float
    ) -> "Estimate":
        """Time a micro-batch on a sample of the corpus, and extrapolate to the run.

        Args:
            trainer: of the sample.
            data: of the sample.
            config: of the loop.
            share: of the corpus that the sample is.
            preparation_s: time that the sample took, divided by the number of workers.
        """
        speed = trainer.time_micro_batch()
        rows, tokens = round(len(data.train.corpus) / share), round(data.num_tokens / share)
        has_short_ids = data.train.objective.layout.specials.vocab_size <= 1 << 16
        checkpoint = 4 * trainer.num_parameters * (1 + OPTIMIZER_STATES)
        # One checkpoint more than is kept exists while it is written; then the model itself.
        disk = (config.keep_checkpoints + 1) * checkpoint + 4 * trainer.num_parameters
        # Tokens without special ones, and rows: about the same size again.
        disk += 2 * tokens * ARROW_BYTES_PER_TOKEN[has_short_ids]
        accelerator = trainer.accelerator
        full_steps = _full_steps(config, data.train.objective.layout.max_length)
        return cls(
            num_parameters=trainer.num_parameters,
            rows_per_epoch=rows,
            tokens_per_epoch=tokens,
            epochs=full_steps * config.batch_size / rows,
            preparation_s=preparation_s / share,
            steps=config.steps,
            step_s=speed.step_s,
            training_s=speed.step_s * full_steps,
            memory_bytes=_peak_memory_bytes(trainer),
            disk_bytes=disk,
            device=f"{accelerator.num_processes} × {accelerator.device}, {accelerator.mixed_precision}",
            tokens_per_s=speed.tokens_per_s,
            matmul_share=speed.matmul_share,
            micro_batch_size=trainer.micro_batch_size,
        )

    def table(self, out: Path) -> str:
        """Return the estimate as a Markdown table, with a warning if the disk of OUT is too small."""
        free = _free_bytes(out)
        rows = [
            ("device", self.device),
            ("parameters", f"{self.num_parameters:,}"),
            ("rows per epoch", f"about {self.rows_per_epoch:,}"),
            ("tokens per epoch, without padding", f"about {self.tokens_per_epoch:,}"),
            ("epochs", f"{self.epochs:.2f}"),
            ("preparation of tokens and rows", format_duration(self.preparation_s)),
            ("rows at a time", f"{self.micro_batch_size:,}"),
            ("one step", f"{self.step_s:.3f} s, {self.tokens_per_s:,.0f} tokens/s"),
            ("share of the measured matmul rate", f"{100 * self.matmul_share:.1f} %"),
            (f"{self.steps:,} steps", format_duration(self.training_s)),
            ("peak memory", format_size(self.memory_bytes)),
            ("disk", f"{format_size(self.disk_bytes)} of {format_size(free)} free"),
        ]
        lines = ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]
        if self.disk_bytes > free:
            lines += ["", "The disk is too small for this run: free some space, or keep fewer checkpoints."]
        return "\n".join(lines) + "\n"


def _full_steps(config: "LoopConfig", max_length: int) -> float:
    """Return the steps with the longest rows that have as many positions as all steps together."""
    begin, positions = 0, 0
    for stage in config.stages:
        size, length = stage.batch_size or config.batch_size, stage.max_length or max_length
        positions += (stage.until - begin) * size * length
        begin = stage.until
    return positions / (config.batch_size * max_length) + config.steps - begin


def sample_corpus(corpus: Path, out: Path) -> float:
    """Write the first documents of every shard of a corpus to OUT, and return their share of its bytes.

    Raises:
        DataError: the corpus contains no text.
    """
    files = corpus_files(corpus)
    bytes_per_file = SAMPLE_BYTES // max(1, len(files))
    written = 0
    with out.open("wb") as sample:
        for file in files:
            with file.open("rb") as lines:
                size = 0
                for line in lines:
                    size += sample.write(line)
                    if size >= bytes_per_file:
                        break
                written += size
    if not written:
        raise DataError(corpus, "contains no text", "give a corpus with text in it")
    return written / sum(file.stat().st_size for file in files)


def _peak_memory_bytes(trainer: "TrialTrainer") -> int:
    import torch

    device = trainer.accelerator.device
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _free_bytes(out: Path) -> int:
    folder = out.resolve()
    while not folder.exists():
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def format_duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def format_size(size: float) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
