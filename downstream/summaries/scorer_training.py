"""Train a BertSumExt: the command of `downstream.extractive`.

The weights after the last step are saved and scored; nothing is selected on the held-out articles. An interrupted run
resumes from its last checkpoint, and is bit-identical to an uninterrupted run.
"""

import json
import logging
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from corpora.foundation.cards import render_card
from corpora.foundation.command import EXIT_DONE, ArgumentParser
from corpora.foundation.config import Config, validate
from corpora.foundation.errors import DataError, UsageError, cannot_write
from corpora.foundation.files import alone, fingerprint, package_path, sha256, write_json, write_text
from corpora.foundation.machine import no_file_bars, training_precision, versions
from downstream.encoders.folder import SCORER_FILE, ModelFolder
from downstream.encoders.hub import resolve
from downstream.encoders.tokenizers import load_tokenizer
from downstream.finetuning.arguments import parse_overrides
from downstream.summaries.articles import Article
from downstream.summaries.labelled import of_split, read_labelled
from downstream.summaries.scorer import (
    HEAD_FILE,
    HeadConfig,
    SentenceScorer,
    Settings,
    Window,
    build_head,
    build_model,
    collate,
    load_encoder,
    make_windows,
    read_settings,
    states_of,
)
from downstream.trainer_checkpoints import SafeCheckpoints, last_checkpoint
from pretraining.folders import seal
from pretraining.vocabulary.tokenizer import save_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

TEMPLATE = package_path("downstream", "templates", "card_sentence_scorer.md")


class ExtractiveConfig(Config):
    """Training settings of a BertSumExt."""

    epochs: float = Field(default=3, gt=0, allow_inf_nan=False)
    """Passes over the training articles."""
    batch_size: int = Field(default=16, ge=1)
    """Windows per optimizer step."""
    peak_lr: float = Field(default=2e-5, gt=0, allow_inf_nan=False)
    """Highest learning rate of the encoder; linear warm-up to it, linear decay from it."""
    head_lr: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    """Highest learning rate of the layers over sentences, whose initial weights are random."""
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps with a rising learning rate."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """Of AdamW."""
    max_length: int = Field(default=512, ge=16)
    """Longest window in tokens; the encoder's limit if that is shorter."""
    checkpoint_steps: int = Field(default=500, ge=1)
    """Steps between checkpoints."""
    held_out: float = Field(default=0.05, ge=0, lt=1)
    """Share of the articles that are scored at the end, chosen by a hash of their group, if the data have no splits."""
    head: HeadConfig = Field(default_factory=HeadConfig)


def train(
    articles: Sequence[Article],
    encoder: str | Path,
    *,
    out: Path,
    seed: int = 0,
    config: ExtractiveConfig | None = None,
    data: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Train a BertSumExt and save it, or resume an interrupted training.

    Args:
        articles: labelled articles. Those of the split `dev`, or a share if there are no splits, are held out.
        encoder: folder, hub id, or key of `downstream.encoders.hub.ENCODERS`.
        out: folder for the model and its card.
        seed: of the head, data order and dropout.
        config: settings.
        data: origin of the articles, for the recipe.

    Returns:
        Scores on the held-out articles after the last step.

    Raises:
        SuiteError: the encoder, the data or the folder is unusable.
    """
    config = config or ExtractiveConfig()
    folder = resolve(str(encoder))
    training, held_out = split_off_held_out(articles, config.held_out)
    if not training:
        raise DataError("training data", "no labelled articles", "give a file with labels, or with headlines")
    recipe = {
        "encoder_sha256": ModelFolder(folder).digest(),
        "data": dict(data or {}),
        "num_articles": len(training),
        "config": config.model_dump(),
        "seed": seed,
        "precision": training_precision(),
        "versions": versions("torch", "transformers", "tokenizers", "accelerate"),
    }
    if (out / SCORER_FILE).is_file():
        finished = read_settings(out / SCORER_FILE)
        if fingerprint(finished.recipe) == fingerprint(recipe):
            logger.info("%s is finished", out)
            return finished.metrics
        raise UsageError(out, "the folder holds another model", "give another folder with --out")
    with no_file_bars():
        return _train_and_save(training, held_out, folder, out=out, seed=seed, config=config, recipe=recipe)


def split_off_held_out(articles: Sequence[Article], share: float) -> tuple[list[Article], list[Article]]:
    """Return training and held-out articles: by their splits, else SHARE of the groups by a hash of their names."""
    if any(article.split for article in articles):
        return of_split(articles, "train"), [article for article in articles if article.split == "dev"]
    is_held_out = [int(fingerprint(article.group)[:8], 16) < share * 16**8 for article in articles]
    parts = [[a for a, is_out in zip(articles, is_held_out, strict=True) if is_out == part] for part in (False, True)]
    return parts[0], parts[1]


def _train_and_save(
    training: Sequence[Article],
    held_out: Sequence[Article],
    folder: Path,
    *,
    out: Path,
    seed: int,
    config: ExtractiveConfig,
    recipe: dict[str, Any],
) -> dict[str, float]:
    from safetensors.torch import save_file
    from transformers import set_seed

    from pretraining.training.attention import training_attention

    if not logger.isEnabledFor(logging.INFO):
        logging.getLogger("transformers").setLevel(logging.ERROR)
    set_seed(seed)
    tokenizer = load_tokenizer(folder)
    encoder = load_encoder(folder, tokenizer)
    model = build_model(encoder, build_head(encoder.config.hidden_size, config.head))
    max_length = min(config.max_length, tokenizer.model_max_length)
    rows = list(_training_rows(training, tokenizer, max_length))
    # Named after the recipe, so that another recipe never resumes from them.
    checkpoints = out / "checkpoints" / fingerprint(recipe)[:12]
    try:
        trainer = _make_trainer(model, rows, tokenizer, config, checkpoints, seed)
        trainer.run_digest = fingerprint({"recipe": recipe, "seed": seed})
        with training_attention(model):
            trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints, trainer.run_digest))
        model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
        scorer = SentenceScorer(states_of(model.encoder), model.head.float().cpu(), tokenizer, max_length)
        metrics = precision_on(scorer, held_out)
        model.encoder.save_pretrained(out)
        save_tokenizer(tokenizer, out)
        state = {name: value.detach().cpu().contiguous() for name, value in model.head.state_dict().items()}
        save_file(state, out / HEAD_FILE)
    except OSError as error:
        raise cannot_write(out, error) from error
    settings = Settings(head=config.head, max_length=max_length, recipe=recipe, metrics=metrics)
    write_text(out / "README.md", model_card(settings))
    # Written last, as the mark of a complete folder.
    write_json(out / SCORER_FILE, settings.model_dump())
    seal(out)
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    return metrics


def _training_rows(
    articles: Sequence[Article], tokenizer: "PreTrainedTokenizerBase", max_length: int
) -> Iterator[tuple[Window, list[float]]]:
    """Yield every window of every article with the labels of its sentences."""
    for article in articles:
        gold = set(article.extractive)
        for window in make_windows(article.texts, tokenizer, max_length):
            yield window, [float(k in gold) for k in window.sentences]


def _make_trainer(
    model: Any,
    rows: list[tuple[Window, list[float]]],
    tokenizer: "PreTrainedTokenizerBase",
    config: ExtractiveConfig,
    checkpoints: Path,
    seed: int,
) -> Any:
    import torch
    from transformers import PrinterCallback, Trainer, TrainingArguments

    def collate_rows(batch: Sequence[tuple[Window, list[float]]]) -> dict[str, "Tensor"]:
        return collate([window for window, _ in batch], tokenizer, [labels for _, labels in batch])

    groups = [
        {"params": list(model.encoder.parameters()), "lr": config.peak_lr},
        {"params": list(model.head.parameters()), "lr": config.head_lr},
    ]

    class ScorerTrainer(SafeCheckpoints, Trainer):
        pass

    trainer = ScorerTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(checkpoints),
            num_train_epochs=config.epochs,
            per_device_train_batch_size=config.batch_size,
            lr_scheduler_type="linear",
            warmup_steps=config.warmup_ratio,
            max_grad_norm=1.0,
            bf16=training_precision() == "bf16",
            use_cpu=not torch.cuda.is_available(),
            seed=seed,
            data_seed=seed,
            save_strategy="steps",
            save_steps=config.checkpoint_steps,
            logging_steps=100,
            report_to="none",
            disable_tqdm=not sys.stderr.isatty(),
            dataloader_pin_memory=torch.cuda.is_available(),
            remove_unused_columns=False,
        ),
        train_dataset=rows,
        data_collator=collate_rows,
        optimizers=(torch.optim.AdamW(groups, weight_decay=config.weight_decay), None),
    )
    # Our forward passes unknown arguments to the encoder; the Trainer would add `num_items_in_batch`.
    trainer.model_accepts_loss_kwargs = False
    trainer.remove_callback(PrinterCallback)  # it prints to stdout, which carries the product
    return trainer


def precision_on(scorer: SentenceScorer, articles: Sequence[Article]) -> dict[str, float]:
    """Return the mean precision at the number of gold sentences; {} for no articles."""
    if not articles:
        return {}
    shares = []
    for article in articles:
        best = np.argsort(-scorer.log_odds(article.texts), kind="stable")[: len(article.extractive)]
        shares.append(len(set(best.tolist()) & set(article.extractive)) / len(article.extractive))
    return {"precision": round(float(np.mean(shares)), 6), "num_articles": float(len(articles))}


def model_card(settings: Settings) -> str:
    """Return the README.md of a model folder, with the YAML that model hubs read."""
    from huggingface_hub import ModelCardData

    head = ModelCardData(
        language="ko",
        library_name="transformers",
        pipeline_tag="summarization",
        tags=["extractive", "BertSumExt"],
        license="other",
        license_name="see the encoder and the training data",
    )
    recipe = json.dumps(settings.recipe, ensure_ascii=False)
    return render_card(TEMPLATE, head, settings=settings, head_file=HEAD_FILE, recipe=recipe)


def read_training_data(paths: Sequence[Path]) -> tuple[list[Article], dict[str, Any]]:
    """Read labelled articles from files and folders.

    Returns:
        The articles; and their origin: digests of the files, and the number of skipped articles by reason.

    Raises:
        DataError: a file cannot be read, or a folder is empty.
    """
    files = []
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        if not inside:
            raise DataError(path, "an empty folder", "give the folder that contains the data")
        files += inside
    skipped: Counter[str] = Counter()
    articles = [article for path in files for article in read_labelled(path, skipped)]
    for reason, count in skipped.items():
        logger.warning("%d articles skipped: %s", count, reason)
    digests = {path.name: sha256(path) for path in files}
    return articles, {"sha256": digests, "left_out": dict(skipped)}


def main(argv: list[str] | None = None) -> int:
    """Train from the command line; prints the scores on the held-out articles as JSON."""
    parser = ArgumentParser("python -m downstream.extractive", "Train a BertSumExt on labelled articles.")
    parser.add_argument("command", choices=["train"])
    parser.add_argument("data", type=Path, nargs="+", help="files or folders; see downstream.summaries.labelled")
    parser.add_argument("--model", required=True, help="encoder: folder, hub id, or kpfbert, klue-bert, …")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. --set epochs=1")
    arguments = parser.parse(argv)
    values = nest_keys(parse_overrides(arguments.set))
    config = validate(ExtractiveConfig, values, "--set")
    articles, data = read_training_data(arguments.data)
    with alone(arguments.out):
        metrics = train(articles, arguments.model, out=arguments.out, seed=arguments.seed, config=config, data=data)
    sys.stdout.write(json.dumps({"out": str(arguments.out), "metrics": metrics}, ensure_ascii=False) + "\n")
    return EXIT_DONE


def nest_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted keys such as `head.num_layers` into nested dictionaries."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        outer, _, inner = key.rpartition(".")
        (nested.setdefault(outer, {}) if outer else nested)[inner] = value
    return nested
