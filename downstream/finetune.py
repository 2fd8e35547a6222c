"""Fine-tune an encoder on a task, score it, and save a plain transformers folder with its model card.

    python -m downstream.finetune nsmc --model klue/bert-base --out runs/nsmc

Running the command again continues from the last checkpoint, and does nothing once the folder is finished. The state
after the last step is what is scored: nothing is selected on the reported split.
"""

import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.foundation.errors import UsageError, cannot_write
from corpora.foundation.files import fingerprint, write_text
from corpora.foundation.machine import no_file_bars, training_precision, versions
from corpora.official import data_root
from downstream.encoders.folder import TASK_KEY, ModelFolder
from downstream.encoders.hub import resolve
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.families.multiple_choice import pad_choices
from downstream.finetuning.result import Result, read_result, score, write_result
from downstream.finetuning.subword_dropout import SubwordDropout
from downstream.task import Family, Features, FinetuneConfig, Prediction, Split, Task, get_task
from pretraining.vocabulary.tokenizer import save_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

RESULT_FILE = "result.json"
METRICS_FILE = "metrics.jsonl"
"""Of training: a line of loss and learning rate every fiftieth part of a run."""
# Runs below this are quicker to repeat than their checkpoints are to write.
CHECKPOINT_STEPS = 500
DROPOUT_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
# What torch's cross-entropy leaves out.
NO_LABEL = -100
# What model hubs call the families' work, by the class that loads them.
PIPELINES = {
    "AutoModelForMultipleChoice": "multiple-choice",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
}


WHOLE_TEXTS = "AutoModelForSequenceClassification"
"""What loads models that neither answer by places in a text nor choose among several."""


@dataclass(frozen=True)
class TaskData:
    """A task's two splits, read once and shared by every model."""

    train: Split
    eval: Split

    @property
    def sha256(self) -> str:
        """Digests of both files, joined by `+`."""
        return f"{self.train.sha256}+{self.eval.sha256}"


def _begin_with_new_head(folder: Path, tokenizer: "PreTrainedTokenizerBase", family: Family) -> Any:
    return load_model(folder, tokenizer, family.auto_class, family.head_config())


@dataclass(frozen=True)
class Lesson:
    """How a model is trained; by default an encoder with a new head on the labels of its task."""

    begin: Callable[[Path, "PreTrainedTokenizerBase", Family], Any] = _begin_with_new_head
    """Folder, its tokenizer, family → the model before the first step."""
    prepare: "Callable[[list[Features], Path], list[Features]]" = lambda features, _: features
    """Inputs of the training split, folder for what is long in the making → the inputs that are trained on."""
    loss: "Callable[[Any, dict[str, Tensor]], Tensor] | None" = None
    """Model and batch → loss; None: the one that transformers computes from the labels."""
    about: str = "Fine-tuned"
    """What was done, for the model card."""
    command: str = "python -m downstream.finetune {task} --model ENCODER"
    """What does it again, for the model card."""


FINETUNING = Lesson()


def read_task(task: Task, root: Path) -> TaskData:
    """Read and check both splits of a task.

    Raises:
        DataUnavailableError: a file is not to be had.
        DataError: a file is damaged.
    """
    # The split that is reported comes first: without it the rest is not worth downloading.
    reported = task.read_split(task.eval_split, root)
    return TaskData(task.read_split(task.train_split, root), reported)


def finetune(
    task: str | Task,
    encoder: str | Path,
    *,
    out: Path,
    model: str | None = None,
    seed: int = 0,
    data: TaskData | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Result:
    """Fine-tune ENCODER on TASK and score it on the task's evaluation split.

    Args:
        task: task or its name, e.g. `"nsmc"`.
        encoder: folder, hub id, or key of `downstream.encoders.hub.ENCODERS`.
        out: folder for the fine-tuned model, its card and `result.json`; an unfinished run there is continued.
        model: name in the result; default: the last part of ENCODER.
        seed: of head initialisation, data order and dropout.
        data: the task's splits if already read, or the data root; default: `PRESSBERT_DATA` or the cache.
        overrides: fields of `FinetuneConfig` that differ from the task's.

    Returns:
        The scored result, as saved in OUT.

    Raises:
        SuiteError: the encoder, the data or the folder is unusable.
    """
    task = get_task(task) if isinstance(task, str) else task
    config = validate(FinetuneConfig, task.finetune.model_dump() | dict(overrides or {}), f"{task.name} fine-tuning")
    splits = data if isinstance(data, TaskData) else read_task(task, data_root(data))
    folder = resolve(str(encoder))
    name = model or Path(str(encoder)).name
    recipe = finetune_recipe(task, name, ModelFolder(folder).digest(), config, splits)
    lesson = lesson_of(config)
    return complete(task, folder, out=out, seed=seed, splits=splits, config=config, recipe=recipe, lesson=lesson)


def lesson_of(config: FinetuneConfig) -> Lesson:
    """Return how an encoder is trained by a configuration: with the usual head, or with a BiLSTM on its layers."""
    if config.features == "none":
        return FINETUNING
    from downstream.finetuning.bilstm import begin

    about = f"A BiLSTM on {'the frozen' if config.frozen else 'the'} encoder's layers (`{config.features}`)"
    return Lesson(begin=lambda folder, tokenizer, family: begin(folder, tokenizer, family, config), about=about)


def complete(
    task: Task,
    folder: Path,
    *,
    out: Path,
    seed: int,
    splits: TaskData,
    config: FinetuneConfig,
    recipe: dict[str, Any],
    lesson: Lesson = FINETUNING,
) -> Result:
    """Return the result of a training: as it lies in OUT if that is finished, else trained, or continued, and scored.

    Args:
        task: what is trained and scored.
        folder: where the lesson begins.
        out: folder for model, card and result.
        seed: of head initialisation, data order and dropout.
        splits: of the task.
        config: of the training.
        recipe: everything but the seed that decides the predictions; `finetune_recipe` or more.
        lesson: how it is trained.

    Raises:
        UsageError: OUT holds the result of another run.
        SuiteError: the model or the folder is unusable.
    """
    if (out / RESULT_FILE).is_file():
        finished = read_result(out / RESULT_FILE)
        if finished.recipe_sha256 == fingerprint(recipe) and finished.seed == seed:
            logger.info("%s is finished", out)
            return finished
        raise UsageError(out, "the folder holds the result of another run", "give another folder with --out")
    with no_file_bars():
        return _train_and_score(
            task, folder, out=out, seed=seed, splits=splits, config=config, recipe=recipe, lesson=lesson
        )


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


def _train_and_score(
    task: Task,
    folder: Path,
    *,
    out: Path,
    seed: int,
    splits: TaskData,
    config: FinetuneConfig,
    recipe: dict[str, Any],
    lesson: Lesson,
) -> Result:
    from transformers import PrinterCallback, Trainer, set_seed

    if not logger.isEnabledFor(logging.INFO):
        logging.getLogger("transformers").setLevel(logging.ERROR)
    set_seed(seed)
    tokenizer = load_tokenizer(folder)
    model = lesson.begin(folder, tokenizer, task.family)
    if config.dropout is not None:
        set_dropout(model, config.dropout)
    precision = training_precision(config.precision)
    max_length = min(config.max_length, tokenizer.model_max_length)
    examples = some_of(splits.train.examples, config.train_examples)
    features = task.family.featurize(examples, tokenizer, max_length, with_labels=True)
    # Named by recipe and seed, so that an interrupted run is continued only by its own kind.
    checkpoints = out / "checkpoints" / f"{fingerprint(recipe)[:12]}-seed-{seed}"
    features = lesson.prepare(features, checkpoints)
    vary = None
    if config.subword_dropout:
        if task.family.auto_class != WHOLE_TEXTS:
            what = f"{task.title} is not answered for a text as a whole"
            raise UsageError("finetune subword_dropout", what, "leave subword_dropout out")
        vary = SubwordDropout(tokenizer, rate=config.subword_dropout, max_length=max_length)
    columns = _Columns(features, vary, seed)
    sampler = _LengthGroupedSampler(columns, config.batch_size, seed)

    class LengthGroupedTrainer(Trainer):
        def _get_train_sampler(self, _dataset: Any = None) -> Any:
            return sampler

        def create_optimizer(self, *arguments: Any) -> Any:
            optimizer = super().create_optimizer(*arguments)
            if config.head_lr is not None:
                set_head_rate(optimizer, model, config.head_lr)
            return optimizer

        def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
            if lesson.loss is None:
                return super().compute_loss(model, inputs, *arguments, **options)
            return lesson.loss(model, inputs)

    try:
        trainer = LengthGroupedTrainer(
            model=model,
            args=_training_arguments(config, checkpoints, seed, num_features=len(features), bf16=precision == "bf16"),
            train_dataset=columns,
            data_collator=_Collator(tokenizer),
            processing_class=tokenizer,
        )
        trainer.remove_callback(PrinterCallback)  # it prints to stdout, which carries the product
        started = time.perf_counter()
        trainer.train(resume_from_checkpoint=_last_checkpoint(checkpoints))
        losses = [entry for entry in trainer.state.log_history if "loss" in entry]
        write_text(out / METRICS_FILE, "".join(json.dumps(entry) + "\n" for entry in losses))
        train_s = time.perf_counter() - started
        # Training under bf16 leaves an autocast around forward; scores are read in single precision.
        model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
        started = time.perf_counter()
        predictions = predict(model, tokenizer, task.family, splits.eval.examples, max_length=max_length)
        result = score(
            task,
            splits.eval,
            predictions,
            model=recipe["model"],
            seed=seed,
            data_sha256=splits.sha256,
            recipe=recipe,
            recipe_sha256=fingerprint(recipe),
            train_s=train_s,
            eval_s=time.perf_counter() - started,
            device=str(model.device.type),
            precision=precision,
            num_parameters=sum(p.numel() for p in model.base_model.parameters()),
        )
        setattr(model.config, TASK_KEY, task.name)
        model.save_pretrained(out)
        save_tokenizer(tokenizer, out)
    except OSError as error:
        raise cannot_write(out, error) from error
    write_text(out / "README.md", model_card(task, result, lesson))
    write_result(out / RESULT_FILE, result)
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    return result


def set_dropout(model: Any, rate: float) -> None:
    """Have every dropout of a model drop RATE, those of attention included, and its config say so."""
    from torch import nn

    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
    for name in DROPOUT_KEYS:
        if hasattr(model.config, name):
            setattr(model.config, name, rate)


def set_head_rate(optimizer: Any, model: Any, rate: float) -> None:
    """Have what stands on the encoder of MODEL learn at RATE; a schedule made afterwards multiplies both rates."""
    encoder = {id(parameter) for parameter in model.base_model.parameters()}
    for group in list(optimizer.param_groups):
        head = [parameter for parameter in group["params"] if id(parameter) not in encoder]
        group["params"] = [parameter for parameter in group["params"] if id(parameter) in encoder]
        if head:
            optimizer.add_param_group({**group, "params": head, "lr": rate})


def some_of(examples: Sequence[Any], number: int | None) -> Sequence[Any]:
    """Return NUMBER of the examples in their order, or all; which ones is told by their ids, the same for all seeds."""
    if number is None or number >= len(examples):
        return examples
    ranked = sorted(range(len(examples)), key=lambda k: fingerprint(f"training part {examples[k].id}"))
    return [examples[k] for k in sorted(ranked[:number])]


def _training_arguments(config: FinetuneConfig, checkpoints: Path, seed: int, *, num_features: int, bf16: bool) -> Any:
    import torch
    from transformers import TrainingArguments

    steps = int(config.epochs * num_features / config.batch_size)
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.peak_lr,
        lr_scheduler_type="linear",
        warmup_steps=config.warmup_ratio,
        weight_decay=config.weight_decay,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        bf16=bf16,
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
        data_seed=seed,
        save_strategy="steps" if steps >= CHECKPOINT_STEPS else "no",
        save_steps=CHECKPOINT_STEPS,
        save_total_limit=1,
        logging_steps=max(1, steps // 50),
        report_to="none",
        disable_tqdm=not sys.stderr.isatty(),
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
    )


def _last_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint of an interrupted run, or None."""
    folders = folder.glob("checkpoint-*")
    # The state is the last file of a checkpoint: without it the save was cut short.
    whole = [folder for folder in folders if (folder / "trainer_state.json").is_file()]
    return str(max(whole, key=lambda folder: int(folder.name.removeprefix("checkpoint-")))) if whole else None


class _LengthGroupedSampler:
    """Examples of like length side by side, in an order that follows from seed and epoch alone.

    The Trainer's own sampler draws from one generator all along, so that a resumed run would see another order.
    """

    def __init__(self, columns: "_Columns", batch_size: int, seed: int) -> None:
        self._columns, self._batch_size, self._seed = columns, batch_size, seed

    def set_epoch(self, epoch: int) -> None:
        """Take note of the epoch that begins; called by the loader."""
        self._columns.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        import torch
        from transformers.trainer_pt_utils import get_length_grouped_indices

        grouped: Any = get_length_grouped_indices  # not annotated
        generator = torch.Generator().manual_seed(1_000_003 * self._seed + self._columns.epoch)
        return iter(grouped(self._columns.lengths, self._batch_size, generator=generator))

    def __len__(self) -> int:
        return len(self._columns)


class _Columns:
    """A training set of feature dicts without the keys that are not for the model; each epoch may vary them."""

    def __init__(self, features: Sequence[Features], vary: SubwordDropout | None = None, seed: int = 0) -> None:
        self._features = [{k: v for k, v in f.items() if not k.startswith("_")} for f in features]
        self._vary, self._seed = vary, seed
        self.lengths = [len(f["input_ids"]) for f in features]
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._features)

    def __getitem__(self, index: int) -> Features:
        if self._vary is None:
            return self._features[index]
        # Drawn from the place alone: a resumed run sees what one that was left alone would see.
        return self._vary(self._features[index], np.random.default_rng((self._seed, self.epoch, index)))


class _Collator:
    """Pad a batch to its own longest input, not to the maximum; where every token has a label, padding has none."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer

    def __call__(self, features: Sequence[Features]) -> dict[str, "Tensor"]:
        rows = [dict(f) for f in features]
        if isinstance(rows[0]["input_ids"][0], list):
            return pad_choices(self._tokenizer, rows)
        longest = max(len(row["input_ids"]) for row in rows)
        for row in rows:
            if isinstance(row.get("labels"), list):
                row["labels"] = row["labels"] + [NO_LABEL] * (longest - len(row["labels"]))
        return dict(self._tokenizer.pad(rows, return_tensors="pt"))


def predict(
    model: Any,
    tokenizer: "PreTrainedTokenizerBase",
    family: Family,
    examples: Sequence[Any],
    *,
    max_length: int,
    batch_size: int = 64,
) -> list[Prediction]:
    """Predict EXAMPLES in batches of like length; the order of the predictions is that of the examples."""
    features = family.featurize(examples, tokenizer, max_length, with_labels=False)
    outputs = outputs_of(model, tokenizer, family, features, batch_size=batch_size)
    return family.decode(outputs, features, examples)


def outputs_of(
    model: Any,
    tokenizer: "PreTrainedTokenizerBase",
    family: Family,
    features: Sequence[Features],
    *,
    batch_size: int = 64,
    title: str = "predict",
) -> list[Any]:
    """Return what the model's head says of every input, an array each, in their order.

    Args:
        model: in any mode; it is left in that of evaluation.
        tokenizer: the model's; it pads.
        family: of the task; it says what the logits are.
        features: inputs; those of like length are computed together.
        batch_size: inputs that are computed together.
        title: of the progress bar.
    """
    import torch
    from tqdm import tqdm

    order = sorted(range(len(features)), key=lambda k: -len(features[k]["input_ids"]))
    outputs: list[Any] = [None] * len(features)
    inputs = _Columns(features)
    collate = _Collator(tokenizer)
    model.eval()
    with torch.inference_mode():
        for first in tqdm(range(0, len(order), batch_size), desc=title, unit="batch", disable=None, leave=False):
            chosen = order[first : first + batch_size]
            batch = {key: value.to(model.device) for key, value in collate([inputs[k] for k in chosen]).items()}
            logits = family.logits(model, batch).float().cpu().numpy()  # (B, …)
            for k, row in zip(chosen, logits, strict=True):
                outputs[k] = np.asarray(row)
    return outputs


def load_finetuned(folder: Path) -> tuple[Any, "PreTrainedTokenizerBase", Task]:
    """Load a folder that `finetune` saved: model, tokenizer and the task it was trained on.

    Raises:
        CheckpointError: the folder is no finished fine-tuning.
    """
    model = ModelFolder(folder)
    task = get_task(model.task_name)
    tokenizer = load_tokenizer(folder)
    if model.has_bilstm:
        from downstream.finetuning import bilstm

        return bilstm.load(folder, task.family), tokenizer, task
    return load_model(folder, tokenizer, task.family.auto_class, task.family.head_config()), tokenizer, task


def model_card(task: Task, result: Result, lesson: Lesson = FINETUNING) -> str:
    """Return the README.md of a fine-tuned folder, with the YAML that model hubs read."""
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    pipeline = PIPELINES[task.family.auto_class]
    card = ModelCardData(
        language="ko",
        library_name="transformers",
        pipeline_tag=pipeline,
        # Weights learned from data carry its licence at the least; that of the encoder comes on top.
        license="other",
        license_name=f"data: {task.licence}; encoder: see its own card",
        model_name=f"{result.model} on {task.title}",
        eval_results=[
            EvalResult(
                task_type=pipeline,
                dataset_type=task.name,
                dataset_name=task.title,
                dataset_split=result.split,
                metric_type=key,
                metric_value=round(value, 6),
            )
            for key, value in result.metrics.items()
            if value is not None
        ],
    )
    lines = [
        f"# {result.model} fine-tuned on {task.title}",
        "",
        f"{lesson.about}. Data: {task.source} ({task.licence}).",
        f"Scored on `{result.split}` ({result.num_examples:,} examples), one seed.",
        "",
        "| metric | value |",
        "| --- | ---: |",
        *(f"| {key} | {'undefined' if v is None else f'{v:.4f}'} |" for key, v in result.metrics.items()),
        "",
        "Fine-tuning: `" + json.dumps(result.recipe["finetune"]) + f"`, seed {result.seed}.",
        "",
        f"Again: `{lesson.command.format(task=task.name)} --out DIR --seed {result.seed}`",
        "",
    ]
    return str(ModelCard(f"---\n{card.to_yaml()}\n---\n\n" + "\n".join(lines)))


def main(argv: list[str] | None = None) -> int:
    """Fine-tune from the command line; prints the scores as JSON."""
    parser = ArgumentParser("python -m downstream.finetune", "Fine-tune an encoder on a task and score it.")
    parser.add_argument("task", help="e.g. nsmc, klue-nli, nsmc-sample")
    parser.add_argument("--model", required=True, help="folder, hub id, or kpfbert, klue-bert, kobert, mbert")
    parser.add_argument("--out", type=Path, required=True, help="folder for the fine-tuned model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting, e.g. --set epochs=1"
    )
    arguments = parser.parse(argv)
    result = finetune(
        arguments.task,
        arguments.model,
        out=arguments.out,
        seed=arguments.seed,
        data=arguments.data,
        overrides=parse_overrides(arguments.set),
    )
    sys.stdout.write(json.dumps({"task": result.task, "metrics": result.metrics}, ensure_ascii=False) + "\n")
    return EXIT_DONE


def parse_overrides(pairs: Sequence[str]) -> dict[str, Any]:
    """Turn `key=value` strings into a dict; the config decides what the values mean.

    Raises:
        UsageError: a string has no `=`.
    """
    for pair in pairs:
        if "=" not in pair:
            raise UsageError("--set", f"'{pair}' is not KEY=VALUE", "write e.g. --set epochs=1")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


if __name__ == "__main__":
    run_command(main)
