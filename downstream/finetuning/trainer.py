"""Train a model on a task, score it, and save a plain transformers folder with its model card.

An interrupted run continues from its last checkpoint; a finished one is read back.
"""

import functools
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import UsageError, cannot_write
from corpora.foundation.files import alone, fingerprint, remove_lock, write_text
from corpora.foundation.machine import no_file_bars, use_one_device, versions
from downstream.encoders.folder import TASK_KEY, ModelFolder
from downstream.encoders.tokenizers import load_tokenizer
from downstream.families.classification import check_labels_differ
from downstream.finetuning.arguments import finetuning_precision, training_arguments
from downstream.finetuning.batches import (
    LENGTH_MULTIPLE,
    FeatureDataset,
    LengthGroupedSampler,
    PaddingCollator,
    micro_batches,
    trained_examples,
)
from downstream.finetuning.cards import render_model_card
from downstream.finetuning.method import TrainingMethod
from downstream.finetuning.prediction import predict
from downstream.finetuning.result import RESULT_FILE, Result, read_result, score, write_result
from downstream.finetuning.subword_dropout import SubwordDropout
from downstream.task import FinetuneConfig, Task, TaskData
from downstream.trainer_checkpoints import SafeCheckpoints, last_checkpoint
from pretraining.folders import check_folder, model_files
from pretraining.vocabulary.tokenizer import save_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from downstream.finetuning.estimate import FinetuneEstimate

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
"""Loss and learning rate in the course of the training."""
DROPOUT_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
WHOLE_TEXTS = "AutoModelForSequenceClassification"
"""Class of the models that label or score a text as a whole."""


@dataclass(frozen=True)
class TrainingRun:
    """One training: what is trained, on what, how, and where it is saved."""

    task: Task
    encoder: Path
    """Folder of the encoder or teacher that the method starts from."""
    out: Path
    """Folder for model, card and result."""
    seed: int
    """Of head initialisation, data order and dropout."""
    splits: TaskData
    config: FinetuneConfig
    recipe: dict[str, Any]
    """Everything but the seed that decides the predictions; `finetune_recipe` or more."""
    method: TrainingMethod = field(default_factory=TrainingMethod)
    reporters: tuple[str, ...] = ()
    """What the loss is shown in: `tensorboard`, `wandb`."""

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints; named by recipe and seed, so that only the same run continues from them."""
        return self.out / "checkpoints" / f"{fingerprint(self.recipe)[:12]}-seed-{self.seed}"

    @property
    def digest(self) -> str:
        """Fingerprint of what is trained, by which its checkpoints are told from others."""
        return fingerprint({"recipe": self.recipe, "seed": self.seed})


def finetune_recipe(
    task: Task, model: str, encoder_sha256: str, config: FinetuneConfig, data: TaskData
) -> dict[str, Any]:
    """Return everything but the seed that decides a fine-tuned model's predictions."""
    return {
        "model": model,
        "encoder_sha256": encoder_sha256,
        "task": task.name,
        "data_sha256": data.sha256,
        "finetune": config.model_dump(),
        "versions": versions("torch", "transformers", "tokenizers", "accelerate"),
    }


def train_and_evaluate(run: TrainingRun) -> Result:
    """Return the result of a run: read from its folder if it is finished, else trained, or continued, and scored.

    Raises:
        UsageError: the folder holds the result of another run, or another process writes to it.
        SuiteError: the model or the folder is unusable.
    """
    # A finished folder is read where nothing may be written, too.
    if (finished := _read_finished(run)) is not None:
        remove_lock(run.out)
        return finished
    with alone(run.out):
        # Another process may have finished it meanwhile.
        return _read_finished(run) or _train_and_save(run)


def _read_finished(run: TrainingRun) -> Result | None:
    path = run.out / RESULT_FILE
    if not path.is_file():
        return None
    finished = read_result(path)
    if finished.recipe_sha256 != fingerprint(run.recipe) or finished.seed != run.seed:
        raise UsageError(run.out, "the folder holds the result of another run", "give another folder with --out")
    check_folder(run.out)
    logger.info("%s is finished", run.out)
    return finished


def _train_and_save(run: TrainingRun) -> Result:
    with no_file_bars():
        result = _train(run)
    max_length = ModelFolder(run.out).max_length
    write_text(run.out / "README.md", render_model_card(run.task, result, run.method, max_length))
    write_result(run.out / RESULT_FILE, result)
    shutil.rmtree(run.out / "checkpoints", ignore_errors=True)
    return result


def _train(run: TrainingRun) -> Result:
    """Train, score and save the model."""
    from safetensors import SafetensorError

    from pretraining.training.attention import training_attention

    trainer, tokenizer, max_length = _prepare(run)
    try:
        started = time.perf_counter()
        with training_attention(trainer.model):
            _run_trainer(run, trainer)
        losses = [entry for entry in trainer.state.log_history if "loss" in entry]
        write_text(run.out / METRICS_FILE, "".join(json.dumps(entry) + "\n" for entry in losses))
        train_s = time.perf_counter() - started
        # Training under bf16 leaves an autocast around forward; scores are computed in single precision.
        model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
        result = _evaluate(run, model, tokenizer, max_length, train_s)
        setattr(model.config, TASK_KEY, run.task.name)
        # Plain transformers then truncates where this training did.
        tokenizer.model_max_length = max_length
        with model_files(run.out) as scratch:
            model.save_pretrained(scratch)
            save_tokenizer(tokenizer, scratch)
    except (OSError, SafetensorError) as error:
        raise cannot_write(run.out, error) from error
    return result


def _prepare(run: TrainingRun) -> tuple[Any, "PreTrainedTokenizerBase", int]:
    """Return the trainer of a run, with model and data, the tokenizer, and the length at which inputs are cut."""
    from transformers import set_seed

    use_one_device()
    if not logger.isEnabledFor(logging.INFO):
        logging.getLogger("transformers").setLevel(logging.ERROR)
    examples = _labelled(run)
    check_labels_differ(run.task.family, examples, f"{run.task.name}, training split")
    set_seed(run.seed)
    tokenizer = load_tokenizer(run.encoder)
    model = run.method.build(run.encoder, tokenizer, run.task.family)
    if run.config.dropout is not None:
        set_dropout(model, run.config.dropout)
    if run.config.checkpoint_activations:
        base = model.base_model
        # The second is its name in older versions of transformers.
        enable = getattr(base, "activation_checkpointing_enable", None) or base.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    max_length = _input_length(run, tokenizer.model_max_length)
    dataset = _training_set(run, tokenizer, max_length)
    try:
        return _build_trainer(run, model, tokenizer, dataset), tokenizer, max_length
    except OSError as error:
        raise cannot_write(run.out, error) from error


def _run_trainer(run: TrainingRun, trainer: Any) -> None:
    """Train to the last step, in micro-batches as large as fit if that is asked for.

    Raises:
        RecipeError: memory is too small; the message says which micro-batch fits.
    """
    import torch

    from downstream.finetuning.estimate import Probe, does_not_fit
    from pretraining.training.memory import is_out_of_memory

    where, batch_size = f"{run.task.name} fine-tuning", run.config.batch_size
    if run.config.micro_batch_size == "auto":
        # Dropout of the training is the same as with a given number.
        with torch.random.fork_rng():
            trainer.micro_batch_size = Probe(trainer, batch_size=batch_size).largest()
        logger.info("micro_batch_size=%d", trainer.micro_batch_size)
        if not trainer.micro_batch_size:
            raise does_not_fit(where, 1, 0)
    try:
        trainer.train(resume_from_checkpoint=last_checkpoint(run.checkpoints, run.digest))
        return
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # Outside of the handler, whose traceback keeps the activations.
    trainer.model.zero_grad(set_to_none=True)
    trainer.optimizer = trainer.lr_scheduler = None
    trainer.accelerator.free_memory()
    size = min(trainer.micro_batch_size or batch_size, batch_size)
    raise does_not_fit(where, size, Probe(trainer, batch_size=size // 2).largest() if size > 1 else 0)


def estimate_run(run: TrainingRun) -> "FinetuneEstimate":
    """Estimate time and memory of a run; nothing is written to its folder.

    Raises:
        RecipeError: a micro-batch does not fit in memory; the message says which one does.
        SuiteError: the model is unusable.
    """
    from downstream.finetuning.estimate import estimate_training
    from pretraining.training.attention import training_attention

    where, config = f"{run.task.name} fine-tuning", run.config
    with no_file_bars(), tempfile.TemporaryDirectory(prefix="pressbert-") as scratch:
        trainer, _, _ = _prepare(replace(run, out=Path(scratch)))
        with training_attention(trainer.model):
            return estimate_training(trainer, where=where, batch_size=config.batch_size, epochs=config.epochs)


def _input_length(run: TrainingRun, num_positions: int) -> int:
    """Return the length in tokens at which inputs are cut; one line warns if the encoder was trained on less."""
    asked = run.config.max_length
    trained = ModelFolder(run.encoder).trained_positions or num_positions
    if asked > trained:
        _warn_of_length(run.encoder.name, asked, trained, min(asked, num_positions))
    return min(asked, num_positions)


@functools.cache
def _warn_of_length(encoder: str, asked: int, trained: int, length: int) -> None:
    """Say that an encoder was trained on shorter inputs, once for each encoder and length."""
    what = f"inputs are cut to {length} tokens" if length == trained else f"give max_length={trained}"
    logger.warning("max_length=%d: %s was pretrained on inputs of up to %d tokens; %s", asked, encoder, trained, what)


def _labelled(run: TrainingRun) -> Sequence[Any]:
    """Return the labelled examples that are trained on."""
    return trained_examples(run.task, run.splits.train.examples, run.config, run.seed)


def _training_set(run: TrainingRun, tokenizer: "PreTrainedTokenizerBase", max_length: int) -> FeatureDataset:
    features = run.task.family.featurize(_labelled(run), tokenizer, max_length, with_labels=True)
    features = run.method.prepare(features, run.checkpoints)
    if not run.config.subword_dropout:
        return FeatureDataset(features)
    if run.task.family.auto_class != WHOLE_TEXTS:
        what = f"{run.task.title} does not label or score a text as a whole"
        raise UsageError("finetune subword_dropout", what, "leave subword_dropout out")
    augment = SubwordDropout(tokenizer, rate=run.config.subword_dropout, max_length=max_length)
    return FeatureDataset(features, augment, run.seed)


def _build_trainer(run: TrainingRun, model: Any, tokenizer: "PreTrainedTokenizerBase", dataset: FeatureDataset) -> Any:
    from transformers import PrinterCallback, Trainer

    sampler = LengthGroupedSampler(dataset, run.config.batch_size, run.seed)
    has_16_bits = finetuning_precision(run.config.precision) != "fp32"
    collator = PaddingCollator(tokenizer, LENGTH_MULTIPLE if has_16_bits else 1)

    class LengthGroupedTrainer(SafeCheckpoints, Trainer):
        run_digest = run.digest
        micro_batch_size: int | None = None

        def _get_train_sampler(self, _dataset: Any = None) -> Any:
            return sampler

        def create_optimizer(self, *arguments: Any) -> Any:
            optimizer = super().create_optimizer(*arguments)
            if run.config.head_lr is not None:
                set_head_learning_rate(optimizer, model, run.config.head_lr)
            return optimizer

        def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
            # A family whose loss is not the one of transformers' head has its own.
            loss = run.method.loss or getattr(run.task.family, "loss", None)
            return super().compute_loss(model, inputs, *arguments, **options) if loss is None else loss(model, inputs)

        def training_step(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
            size = self.micro_batch_size
            if size is None or len(inputs["input_ids"]) <= size:
                return super().training_step(model, inputs, *arguments, **options)
            model.train()
            total = 0.0
            for part, share in micro_batches(inputs, size, collator.multiple):
                loss = self.compute_loss(model, self._prepare_inputs(part)) * share
                self.accelerator.backward(loss)
                total += loss.detach()
            return total

    trainer = LengthGroupedTrainer(
        model=model,
        args=training_arguments(
            run.config, run.checkpoints, run.seed, num_features=len(dataset), reporters=run.reporters
        ),
        train_dataset=dataset,
        data_collator=collator,
        processing_class=tokenizer,
    )
    if isinstance(run.config.micro_batch_size, int):
        trainer.micro_batch_size = run.config.micro_batch_size
    trainer.remove_callback(PrinterCallback)  # it prints to stdout, which carries the product
    return trainer


def _evaluate(
    run: TrainingRun, model: Any, tokenizer: "PreTrainedTokenizerBase", max_length: int, train_s: float
) -> Result:
    started = time.perf_counter()
    predictions = predict(model, tokenizer, run.task.family, run.splits.eval.examples, max_length=max_length)
    return score(
        run.task,
        run.splits.eval,
        predictions,
        model=run.recipe["model"],
        seed=run.seed,
        data_sha256=run.splits.sha256,
        recipe=run.recipe,
        recipe_sha256=fingerprint(run.recipe),
        train_s=train_s,
        eval_s=time.perf_counter() - started,
        device=str(model.device.type),
        precision=finetuning_precision(run.config.precision),
        num_parameters=sum(p.numel() for p in model.base_model.parameters()),
    )


def set_dropout(model: Any, rate: float) -> None:
    """Set the rate of every dropout of a model, attention included, and record it in its config."""
    from torch import nn

    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
    for name in DROPOUT_KEYS:
        if hasattr(model.config, name):
            setattr(model.config, name, rate)


def set_head_learning_rate(optimizer: Any, model: Any, learning_rate: float) -> None:
    """Train the head of MODEL with LEARNING_RATE; a schedule created afterwards scales both learning rates."""
    encoder = {id(parameter) for parameter in model.base_model.parameters()}
    for group in list(optimizer.param_groups):
        head = [parameter for parameter in group["params"] if id(parameter) not in encoder]
        group["params"] = [parameter for parameter in group["params"] if id(parameter) in encoder]
        if head:
            optimizer.add_param_group({**group, "params": head, "lr": learning_rate})
