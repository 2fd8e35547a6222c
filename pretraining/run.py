"""Pretrain a BERT by a recipe; the same command run again goes on where it stopped.

    python -m pretraining.run RECIPE --out DIR [--dry-run]
    torchrun --nproc-per-node 8 -m pretraining.run RECIPE --out DIR

DIR becomes a plain transformers folder; beside it lie `metrics.jsonl`, `loss.png`, `manifest.json` and, until the run
is finished, `checkpoints/`.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import CheckpointError, UsageError, cannot_write
from corpora.foundation.files import fingerprint, write_json, write_text
from corpora.foundation.machine import cpu_name, no_file_bars, versions
from pretraining.recipe import Recipe, find_recipe, read_recipe
from pretraining.training.checkpoints import OWN_PARTS
from pretraining.training.dataset import Prepared, prepare
from pretraining.vocabulary.tokenizer import save_tokenizer

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor

    from pretraining.model import PretrainingModel
    from pretraining.training.loop import Trainer

RECIPE_FILE, DATA_FILE, MANIFEST_FILE = "recipe.json", "data.json", "manifest.json"
INCIDENTAL = {
    "loop": {"log_every", "evaluate_every", "evaluate_rows", "checkpoint_every", "keep_checkpoints"}
    | {"export_steps", "max_skipped"},
}
"""Settings that decide what is told about a run, not what it ends in; they may change between sittings."""


def main(argv: list[str] | None = None) -> int:
    """Pretrain from the command line; prints the held-out scores as JSON."""
    parser = ArgumentParser("python -m pretraining.run", "Pretrain a BERT by a recipe.")
    parser.add_argument("recipe", help="a TOML file, or one of ours: sample, mini, small, bert-base, …")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--cache", type=Path, help="folder for tokens and rows, which runs may share; default OUT/data")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that make tokens and rows")
    parser.add_argument("--cpu", action="store_true", help="stay on the CPU although there is a GPU")
    parser.add_argument("--prepare", action="store_true", help="make tokens and rows, and stop")
    parser.add_argument("--dry-run", action="store_true", help="run one step; tell time, memory and disk of the run")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting, e.g. --set loop.steps=1000"
    )
    arguments = parser.parse(argv)
    recipe = read_recipe(find_recipe(arguments.recipe), arguments.set)
    if arguments.dry_run:
        from pretraining.training.estimate import dry_run

        sys.stdout.write(dry_run(recipe, arguments.out, num_workers=arguments.workers, cpu=arguments.cpu))
        return EXIT_DONE
    out: Path = arguments.out
    cache: Path = arguments.cache or out / "data"
    if arguments.prepare:
        prepared = prepare(recipe, cache, num_workers=arguments.workers)
        sys.stdout.write(f"{len(prepared.feed.corpus):,} rows, {prepared.num_tokens:,} tokens in {cache}\n")
        return EXIT_DONE
    manifest = pretrain(recipe, out, cache=cache, num_workers=arguments.workers, cpu=arguments.cpu)
    if manifest:
        sys.stdout.write(json.dumps({"tokens": manifest["tokens"], **manifest["held_out"]}) + "\n")
    return EXIT_DONE


def pretrain(
    recipe: Recipe, out: Path, *, cache: Path | None = None, num_workers: int = 1, cpu: bool = False
) -> dict[str, Any]:
    """Run a recipe to its end, from wherever it stands.

    Args:
        recipe: of `read_recipe`.
        out: folder of the model.
        cache: folder for tokens and rows; default `out/data`.
        num_workers: processes that make them.
        cpu: stay on the CPU although there is a GPU.

    Returns:
        The manifest of the finished run; empty on all processes but the main one.

    Raises:
        UsageError: the folder holds a run of another recipe.
        SuiteError: data, tokenizer or checkpoints are unusable, or the training diverged.
    """
    from pretraining.training.loop import CHECKPOINTS, Trainer, make_accelerator

    accelerator = make_accelerator(recipe.loop, cpu=cpu)
    _check_recipe(out, recipe)
    with accelerator.main_process_first():
        prepared = prepare(recipe, cache or out / "data", num_workers=num_workers)
    manifest_path = out / MANIFEST_FILE
    if manifest_path.is_file():
        manifest: dict[str, Any] = json.loads(manifest_path.read_text(encoding="utf-8"))
        if manifest["data_sha256"] != prepared.digest:
            raise UsageError("--out", f"{out} was trained on other text or another vocabulary", "give another folder")
        if not accelerator.is_main_process:
            return {}
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)  # a kill can come just before
        sys.stderr.write(f"{out}: finished already\n")
        return manifest
    _check_data(out, prepared)
    if accelerator.is_main_process:
        _claim(out, recipe, prepared)
    model = build_model(recipe, prepared)
    trainer = Trainer(model, prepared.feed, prepared.held_out, recipe.loop, accelerator, out)

    def export(step: int) -> None:
        state, _ = trainer.state()
        if accelerator.is_main_process:
            folder = step_folder(out, step)
            folder.mkdir(exist_ok=True)
            _save_atomically(model.export(state), {}, prepared.tokenizer, folder)
            facts = {"steps": step, "tokens": trainer.progress.tokens}
            write_json(folder / MANIFEST_FILE, facts | {"elapsed_s": round(trainer.progress.elapsed_s, 1)})
        accelerator.wait_for_everyone()

    trainer.train(export)
    return _finish(recipe, prepared, model, trainer, accelerator, out)


def step_folder(out: Path, step: int) -> Path:
    """Return where a run saves its model after a step of `export_steps`."""
    return out / f"step-{step:08d}"


def build_model(recipe: Recipe, prepared: Prepared) -> "PretrainingModel":
    """Return the model of a recipe with its first weights: random by the seed, or those of `model.init`.

    Raises:
        CheckpointError: `model.init` does not fit.
    """
    import torch

    objective = prepared.feed.objective
    specials = objective.layout.specials
    torch.manual_seed(recipe.seed)
    model = objective.build_model(recipe.model.bert_config(specials.vocab_size, specials.pad))
    if recipe.model.init:
        _initialise(model, Path(recipe.model.init))
    return model


def _initialise(model: "PretrainingModel", folder: Path) -> None:
    from pretraining.training.checkpoints import read_weights

    weights = read_weights(folder)
    try:
        missing = model.load(weights)
    except ValueError as error:
        raise CheckpointError(folder, str(error), "use the shape and the vocabulary of that model") from error
    # Heads that the checkpoint lacks start from random weights.
    encoder = [name for name in missing if name.startswith("bert.") and "pooler" not in name]
    if encoder:
        raise CheckpointError(folder, f"{encoder[0]} is missing", "set model.init to a BERT of the same shape")


def _check_recipe(out: Path, recipe: Recipe) -> None:
    """Refuse a folder of another recipe."""
    if (out / RECIPE_FILE).is_file():
        theirs = json.loads((out / RECIPE_FILE).read_text(encoding="utf-8"))
        own = json.loads(json.dumps(recipe.model_dump()))
        difference = _first_difference(_essential(theirs), _essential(own))
        if difference:
            raise UsageError("--out", f"{out} holds a run of another recipe ({difference})", "give another folder")


def _check_data(out: Path, prepared: Prepared) -> None:
    """Refuse a folder whose run was begun on other text."""
    path = out / DATA_FILE
    if path.is_file() and json.loads(path.read_text(encoding="utf-8"))["sha256"] != prepared.digest:
        raise UsageError("--out", f"{out} was begun on other text or another vocabulary", "give another folder")


def _claim(out: Path, recipe: Recipe, prepared: Prepared) -> None:
    """Note whose folder this is, and clear away what a kill left half-written."""
    for leftover in [*out.glob(".model.*"), *out.glob(".*.part")]:
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    write_json(out / RECIPE_FILE, recipe.model_dump())
    write_json(out / DATA_FILE, {"sha256": prepared.digest})


def _essential(recipe: dict[str, Any]) -> dict[str, Any]:
    return {
        section: {k: v for k, v in values.items() if k not in INCIDENTAL.get(section, set())}
        if isinstance(values, dict)
        else values
        for section, values in recipe.items()
    }


def _first_difference(theirs: Any, own: Any, place: str = "") -> str:
    if isinstance(theirs, dict) and isinstance(own, dict):
        for key in sorted(theirs.keys() | own.keys()):
            found = _first_difference(theirs.get(key), own.get(key), f"{place}.{key}".lstrip("."))
            if found:
                return found
        return ""
    return "" if theirs == own else f"{place}={theirs!r} there, {own!r} here"


def _finish(
    recipe: Recipe,
    prepared: Prepared,
    model: "PretrainingModel",
    trainer: "Trainer",
    accelerator: "Accelerator",
    out: Path,
) -> dict[str, Any]:
    """Save the model as transformers does, with card, curve and manifest; then delete the checkpoints."""
    from pretraining.training.loop import CHECKPOINTS, METRICS, read_metrics
    from pretraining.training.report import draw_curves, pretraining_card

    state, _ = trainer.state()
    if not accelerator.is_main_process:
        return {}
    objective, _ = recipe.objective_parts()
    exported = model.export(state)
    lines = read_metrics(out / METRICS)
    held_out = {k: v for line in lines for k, v in line.items() if k.startswith("held_out_")}
    progress = trainer.progress
    manifest = {
        "schema": 1,
        "recipe": recipe.model_dump(),
        "recipe_sha256": fingerprint(recipe.model_dump()),
        "data_sha256": prepared.digest,
        "num_documents": prepared.num_documents,
        "num_parameters": exported.num_parameters(),
        "steps": progress.step,
        "skipped": progress.skipped,
        "tokens": progress.tokens,
        "elapsed_s": round(progress.elapsed_s, 1),
        "processes": accelerator.num_processes,
        "precision": accelerator.mixed_precision,
        "device": _device_name(accelerator),
        "held_out": held_out,
        "versions": versions("torch", "transformers", "tokenizers", "accelerate", "datasets", "numpy"),
    }
    _save_atomically(exported, model.own_parts(state), prepared.tokenizer, out)
    title = f"PressBERT {out.resolve().name}"
    terms = prepared.feed.objective.terms
    draw_curves(out / "loss.png", lines, terms, f"{title} · {recipe.objective['name']}")
    write_text(out / "README.md", pretraining_card(recipe, manifest, title, objective.paper))
    write_json(out / MANIFEST_FILE, manifest)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    return manifest


def _save_atomically(model: Any, own_parts: "Mapping[str, Tensor]", tokenizer: Path, out: Path) -> None:
    """Save model and tokenizer beside OUT first, so that no half-written file ever has a real name."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file
    from transformers import BertTokenizer

    try:
        with tempfile.TemporaryDirectory(prefix=".model.", dir=out) as scratch, no_file_bars():
            model.save_pretrained(scratch)
            if own_parts:
                parts = {name: part.contiguous() for name, part in own_parts.items()}
                save_file(parts, Path(scratch) / OWN_PARTS, metadata={"format": "pt"})
            save_tokenizer(BertTokenizer.from_pretrained(tokenizer), Path(scratch))
            for file in sorted(Path(scratch).iterdir()):
                file.chmod(0o644)
                file.replace(out / file.name)
    except (OSError, SafetensorError) as error:
        raise cannot_write(out, error) from error


def _device_name(accelerator: "Accelerator") -> str:
    import torch

    if accelerator.device.type == "cuda":
        return f"{accelerator.num_processes} × {torch.cuda.get_device_name(accelerator.device)}"
    return cpu_name()


if __name__ == "__main__":
    run_command(main)
