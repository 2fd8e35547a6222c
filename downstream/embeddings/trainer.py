"""One training stage on sentence-transformers' trainer: loss, batches, checkpoints, progress.

This module imports sentence_transformers, which is slow; `downstream.embeddings.training` imports it for a stage only.
"""

import json
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses
from torch.utils.data import BatchSampler
from tqdm import tqdm
from transformers import PrinterCallback, set_seed

from corpora.foundation.files import fingerprint
from corpora.foundation.machine import training_precision
from downstream.embeddings.losses import TeacherLoss
from downstream.embeddings.recipe import (
    NLI_LABELS,
    DropoutPairs,
    HeadlineBody,
    NliRanking,
    NliSoftmax,
    Stage,
    StsCosine,
    TeacherVectors,
)
from downstream.embeddings.rows import Rows, make_batches
from downstream.trainer_checkpoints import SafeCheckpoints, last_checkpoint
from pretraining.training.attention import training_attention

logger = logging.getLogger(__name__)

LOSS_FILE = "loss.safetensors"
STATE_FILE = "trainer_state.json"


def run_stage(
    model: Any,
    stage: Stage,
    rows: Rows,
    *,
    dimensions: Sequence[int] = (),
    checkpoints: Path,
    seed: int,
    checkpoint_every: int,
    title: str,
) -> dict[str, Any]:
    """Train a model in place, from its last checkpoint if there is one.

    Args:
        model: a `SentenceTransformer`.
        stage: settings of the stage.
        rows: training rows.
        dimensions: numbers of first components that are trained as vectors, too.
        checkpoints: folder for checkpoints, not shared with another stage.
        seed: of heads, data order and dropout.
        checkpoint_every: steps between checkpoints; a shorter stage has none.
        title: name of the stage in the progress bar and the log.

    Returns:
        `num_steps`; `train_s`, summed over all resumed runs; and `log`, a list of step, mean loss since the previous
        entry, and learning rate.
    """
    batches = make_batches(rows, stage, seed)
    set_seed(seed)
    if isinstance(stage, DropoutPairs):
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = stage.dropout
    logger.info("%s: rows=%d steps=%d", title, len(rows), len(batches))
    with tqdm(total=len(batches), desc=title, unit="step", disable=None) as bar:
        trainer = _StageTrainer(
            batches,
            bar,
            model=model,
            args=_training_arguments(stage, checkpoints, seed, len(batches), checkpoint_every),
            train_dataset=Dataset.from_dict({name: list(values) for name, values in rows.columns.items()}),
            loss=_build_loss(stage, model, rows, dimensions),
        )
        trainer.remove_callback(PrinterCallback)  # it prints to stdout, which carries the product
        trainer.run_digest = fingerprint(
            {"stage": stage.model_dump(), "dimensions": list(dimensions), "seed": seed, "checkpoints": checkpoints.name}
        )
        with training_attention(model):
            trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints, trainer.run_digest))
    log = [
        {"step": line["step"], "loss": line["loss"], "lr": line["learning_rate"]}
        for line in trainer.state.log_history
        if "loss" in line
    ]
    return {"num_steps": len(batches), "train_s": round(trainer.elapsed_s, 1), "log": log}


def _build_loss(stage: Stage, model: Any, rows: Rows, dimensions: Sequence[int]) -> torch.nn.Module:
    if isinstance(stage, TeacherVectors):
        return TeacherLoss(model, rows.vectors, stage.cosine_weight, dimensions)
    loss = _pair_loss(stage, model)
    if not dimensions:
        return loss
    return losses.MatryoshkaLoss(model, loss, sorted({*dimensions, model.get_embedding_dimension()}, reverse=True))


def _pair_loss(stage: Stage, model: Any) -> torch.nn.Module:
    if isinstance(stage, NliSoftmax):
        return losses.SoftmaxLoss(model, model.get_embedding_dimension(), num_labels=len(NLI_LABELS))
    if isinstance(stage, StsCosine):
        return losses.CosineSimilarityLoss(model)
    assert isinstance(stage, NliRanking | HeadlineBody | DropoutPairs)
    scale = 1 / stage.temperature
    if isinstance(stage, HeadlineBody):
        return losses.MultipleNegativesRankingLoss(
            model, scale, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
        )
    return losses.MultipleNegativesRankingLoss(model, scale)


def _training_arguments(
    stage: Stage, checkpoints: Path, seed: int, num_steps: int, checkpoint_every: int
) -> SentenceTransformerTrainingArguments:
    return SentenceTransformerTrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=1,  # the batches of all epochs are drawn in advance
        per_device_train_batch_size=stage.batch_size,
        learning_rate=stage.peak_lr,
        lr_scheduler_type="linear",
        warmup_steps=stage.warmup_ratio,
        weight_decay=stage.weight_decay,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        bf16=training_precision() == "bf16",
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
        data_seed=seed,
        save_strategy="steps" if num_steps > checkpoint_every else "no",
        save_steps=checkpoint_every,
        logging_steps=max(1, min(50, num_steps // 20)),
        report_to="none",
        disable_tqdm=True,  # its bar writes to stdout
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
    )


class _Schedule(BatchSampler):
    """Batches that were drawn in advance."""

    def __init__(self, batches: Sequence[list[int]], batch_size: int) -> None:
        super().__init__(range(len(batches)), batch_size, drop_last=False)
        self._batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


class _StageTrainer(SafeCheckpoints, SentenceTransformerTrainer):
    """Trainer with given batches, whose checkpoints include the weights of the loss."""

    def __init__(self, batches: Sequence[list[int]], bar: "tqdm[NoReturn]", **settings: Any) -> None:
        self._batches, self._bar = batches, bar
        self._started, self._before_s = time.perf_counter(), 0.0
        super().__init__(**settings)

    @property
    def elapsed_s(self) -> float:
        """Seconds of this run and of the interrupted ones up to their checkpoints."""
        return self._before_s + time.perf_counter() - self._started

    def get_batch_sampler(self, *_: Any, **__: Any) -> BatchSampler:
        """Return the batches of the whole stage."""
        return _Schedule(self._batches, self.args.per_device_train_batch_size)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Disable the library's model card: it would consume random numbers to draw examples."""

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Compute a step and update the progress bar, which starts at the resumed step."""
        loss = super().training_step(*arguments, **options)
        self._bar.update(self.state.global_step + 1 - self._bar.n)
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the loss, and add the elapsed time to the state, from which a resumed run continues."""
        super().log(logs | {"elapsed_s": self.elapsed_s}, start_time)
        if "loss" in logs:
            self._bar.set_postfix(loss=f"{logs['loss']:.4f}")
            line = f"step={self.state.global_step} loss={logs['loss']:.6g} lr={logs['learning_rate']:.3g}"
            logger.info(line)

    def _loss_weights(self) -> dict[str, torch.Tensor]:
        """Return the weights of the loss outside the model: the classifier of `nli_softmax`."""
        assert isinstance(self.loss, torch.nn.Module)
        return {name: value for name, value in self.loss.state_dict().items() if not name.startswith("model.")}

    def _save(self, output_dir: str | None = None, *_: Any, **__: Any) -> None:
        """Save the model without a card, and the weights of the loss, which the library does not save."""
        folder = Path(output_dir or str(self.args.output_dir))
        self.model.save_pretrained(str(folder), create_model_card=False)
        save_file(self._loss_weights(), folder / LOSS_FILE)

    def _load_from_checkpoint(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_checkpoint(*arguments, **options)
        folder = Path(arguments[0])
        assert isinstance(self.loss, torch.nn.Module)
        self.loss.load_state_dict(load_file(folder / LOSS_FILE), strict=False)
        lines = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))["log_history"]
        self._before_s = max((line["elapsed_s"] for line in lines), default=0.0)
