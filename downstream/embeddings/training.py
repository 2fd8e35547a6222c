"""Train a sentence embedder stage by stage with sentence-transformers' trainer; the result is a plain folder of it.

The same call resumes an interrupted run: finished stages are kept, and a stage resumes from its last checkpoint. On a
CPU the result is bit-identical to an uninterrupted run. Each stage starts from the last step of the one before; nothing
is selected by scores. Checkpoints contain PyTorch's own files, which are read as tensors only; the finished folder
contains safetensors alone.

Tools for sentence-transformers accept the finished folder: `mteb run -m DIR -t KorSTS KLUE-STS`.
"""

import json
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpora.foundation.errors import RecipeError, ResultError, UsageError, cannot_write
from corpora.foundation.files import fingerprint, parse_signed, scratch_folder, sha256, write_signed, write_text
from corpora.foundation.machine import cpu_name, quiet_transformers, training_precision, versions
from corpora.official import data_root
from downstream.embeddings.cards import embedder_card
from downstream.embeddings.embedder import model_files
from downstream.embeddings.pipeline import open_sentence_transformer
from downstream.embeddings.pooling import default_device
from downstream.embeddings.recipe import EmbedRecipe, NliSoftmax, Stage
from downstream.embeddings.rows import Rows, read_rows, text_key
from downstream.embeddings.similarity import LEXICAL, EvaluationSuite, lexical_split
from downstream.encoders.folder import PIPELINE_FILE
from downstream.encoders.hub import resolve
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import halve_weights, load_model
from pretraining.folders import seal
from pretraining.vocabulary.tokenizer import TOKENIZER_FILE, name_plain_class, save_tokenizer

logger = logging.getLogger(__name__)

WORK = "stages"
"""Folder of finished stages and of checkpoints; removed at the end of the run."""
STAGE_FILE = "stage.json"
NEW = ".new."
"""Beginning of the name of a folder that is not complete."""
MANIFEST_FILE = "manifest.json"
METRICS_FILE = "metrics.jsonl"
SEED_STEP = 1_000_003
"""Distance between the seeds of two stages; large, so that neighbouring seeds of runs share no stage seed."""
MAX_SEEN_SHARE = 0.05
"""Largest share of a task's pairs that may occur in the training rows; official splits share a few."""


def train_embedder(encoder: str | Path, recipe: EmbedRecipe, *, out: Path, data: Path | None = None) -> dict[str, Any]:
    """Train an embedder, or resume an interrupted training.

    Args:
        encoder: folder, hub id or known encoder; or a sentence-transformers folder, to train it further.
        recipe: from `read_embed_recipe`.
        out: folder for the model, its card, `manifest.json` and `metrics.jsonl`.
        data: data root of the tasks; default: `PRESSBERT_DATA` or the cache.

    Returns:
        The manifest: recipe, data, seeds, versions, times, and scores before training and after every stage.

    Raises:
        UsageError: the folder holds another finished run.
        RecipeError: the data do not fit their stages, or contain the evaluation pairs.
        SuiteError: the encoder, the data or the folder is unusable.
    """
    folder, root = resolve(str(encoder)), data_root(data)
    suite = EvaluationSuite.from_names(recipe.evaluate, root)
    # All data are read before training, so that a missing file is reported now and not after hours.
    rows = [read_rows(stage, root, f"stage {number}") for number, stage in enumerate(recipe.stages, start=1)]
    seen = _count_seen_pairs(suite, rows)
    _check_dimensions(recipe)
    base = {
        "encoder_sha256": sha256(*model_files(folder)),
        "max_length": recipe.max_length,
        "dimensions": list(recipe.dimensions),
        "seed": recipe.seed,
        "precision": training_precision(),
        "versions": versions("torch", "transformers", "sentence-transformers", "tokenizers", "accelerate"),
    }
    plan = [
        {"stage": stage.model_dump(), "data_sha256": [source.sha256 for source in stage_rows.sources]}
        for stage, stage_rows in zip(recipe.stages, rows, strict=True)
    ]
    digest = fingerprint(base | {"plan": plan, "storage": recipe.storage})
    if (out / MANIFEST_FILE).is_file():
        manifest = _read_record(out / MANIFEST_FILE)
        if manifest.get("recipe_sha256") != digest:
            raise UsageError(out, "the folder holds the result of another run", "give another folder with --out")
        shutil.rmtree(out / WORK, ignore_errors=True)  # left over if the run was killed at its very end
        logger.info("%s is finished", out)
        return manifest
    from safetensors import SafetensorError

    work = out / WORK
    try:
        with quiet_transformers():
            current = _prepare(folder, work / f"0-{fingerprint(base)[:12]}", recipe, suite)
            records = [_read_record(current / STAGE_FILE)]
            for number, (stage, stage_rows) in enumerate(zip(recipe.stages, rows, strict=True), start=1):
                target = work / f"{number}-{fingerprint(base | {'plan': plan[:number]})[:12]}"
                current = _train_stage(current, target, number, stage, stage_rows, recipe, suite)
                records.append(_read_record(current / STAGE_FILE))
            manifest = {
                "schema": 1,
                "recipe": recipe.model_dump(),
                "recipe_sha256": digest,
                "encoder": Path(str(encoder)).name,
                **base,
                "stages": records,
                "unavailable": dict(suite.unavailable),
                "seen_pairs": seen,
            }
            return _finish(current, out, recipe, suite, manifest)
    except (OSError, SafetensorError) as error:
        raise cannot_write(out, error) from error


def _check_dimensions(recipe: EmbedRecipe) -> None:
    """Refuse a stage whose loss has no shorter vectors.

    Raises:
        RecipeError: there is one, and the recipe has `dimensions`.
    """
    for number, stage in enumerate(recipe.stages, start=1):
        if recipe.dimensions and isinstance(stage, NliSoftmax):
            what = f"dimensions={list(recipe.dimensions)} with {stage.kind}, whose classifier needs all components"
            raise RecipeError(f"stage {number}", what, "use nli_ranking, or leave out dimensions")


def _count_seen_pairs(suite: EvaluationSuite, rows: Sequence[Rows]) -> dict[str, int]:
    """Count for each task the evaluation pairs that occur in the training rows.

    Raises:
        RecipeError: they are more than official splits share.
    """
    counts = {}
    trained = {pair for stage_rows in rows for pair in stage_rows.pairs()}
    for name, (_, split) in suite.tasks.items():
        pairs = [frozenset((text_key(pair.text), text_key(pair.pair or ""))) for pair in split.examples]
        counts[name] = sum(pair in trained for pair in pairs)
        if counts[name] > MAX_SEEN_SHARE * len(pairs):
            what = f"{counts[name]:,} of the {len(pairs):,} pairs of {name} are in the training data"
            raise RecipeError("evaluate", what, "remove the task from evaluate, or its data from the stages")
    return counts


def _prepare(folder: Path, target: Path, recipe: EmbedRecipe, suite: EvaluationSuite) -> Path:
    """Save the encoder with its pooling as a sentence-transformers folder, the start of the first stage."""
    if (target / STAGE_FILE).is_file():
        return target
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import set_seed

    if (folder / PIPELINE_FILE).is_file():
        model: Any = open_sentence_transformer(folder, "cpu")
    else:
        with tempfile.TemporaryDirectory() as scratch:
            tokenizer = load_tokenizer(folder)
            # Our loader handles the quirks of published encoders; sentence_transformers then reads a plain folder.
            # Weights that the encoder has not, such as a pooler that no vector uses, are drawn from the seed.
            set_seed(recipe.seed)
            load_model(folder, tokenizer, "AutoModel", {}).save_pretrained(scratch)
            save_tokenizer(tokenizer, Path(scratch))
            encoder: Any = Transformer(scratch)
        pooling: Any = Pooling(encoder.get_embedding_dimension(), "mean")
        model = SentenceTransformer(modules=[encoder, pooling], device="cpu")
    if max(recipe.dimensions, default=0) > model.get_embedding_dimension():
        what = f"dimensions={list(recipe.dimensions)}, and the vectors have {model.get_embedding_dimension()}"
        raise RecipeError("recipe", what, "leave out the larger dimensions")
    model.max_seq_length = min(recipe.max_length, model.max_seq_length)
    return _save(model, target, {"kind": "start"}, suite)


def _save(model: Any, target: Path, record: dict[str, Any], suite: EvaluationSuite) -> Path:
    """Save and score the model of a stage; its folder appears only when it is complete."""
    with scratch_folder(target.parent, NEW) as folder:
        _write_model(model, folder)
        write_signed(folder / STAGE_FILE, record | {"scores": suite.score(folder)})
        folder.rename(target)
    return target


def _write_model(model: Any, folder: Path) -> None:
    model.save_pretrained(str(folder), create_model_card=False)
    for file in folder.rglob(TOKENIZER_FILE):
        name_plain_class(file.parent, model.tokenizer.model_input_names)
    for file in folder.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = parse_signed(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultError(path, f"damaged ({error})", "delete the folder that contains it") from error
    return record


def _train_stage(
    start: Path, target: Path, number: int, stage: Stage, rows: Rows, recipe: EmbedRecipe, suite: EvaluationSuite
) -> Path:
    """Train a stage from the folder START to the folder TARGET, unless TARGET is finished already."""
    if (target / STAGE_FILE).is_file():
        return target
    from downstream.embeddings.trainer import run_stage

    seed = (recipe.seed + SEED_STEP * number) % (1 << 32)
    model = open_sentence_transformer(start, default_device())
    before = [weight.detach().clone() for weight in model.parameters()] if stage.start_share else []
    # Named after the stage, so that another stage never resumes from them.
    checkpoints = target.with_name(f"{target.name}-checkpoints")
    trained = run_stage(
        model,
        stage,
        rows,
        dimensions=recipe.dimensions,
        checkpoints=checkpoints,
        seed=seed,
        checkpoint_every=recipe.checkpoint_every,
        title=f"stage {number} ({stage.kind})",
    )
    for weight, past in zip(model.parameters(), before, strict=False):
        weight.detach().lerp_(past, stage.start_share)
    record = {
        **stage.model_dump(),
        "sources": [vars(source) | {"left_out": dict(source.left_out)} for source in rows.sources],
        "num_rows": len(rows),
        "seed": seed,
        **trained,
    }
    _save(model, target, record, suite)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return target


def _finish(
    current: Path, out: Path, recipe: EmbedRecipe, suite: EvaluationSuite, manifest: dict[str, Any]
) -> dict[str, Any]:
    """Write the model of the last stage, its card and the manifest, and delete the work folder."""
    model = open_sentence_transformer(current, "cpu")
    lines = []
    for number, record in enumerate(manifest["stages"]):
        log = record.pop("log", [])
        lines += [{"stage": number} | line for line in log]
        record["losses"] = [line["loss"] for line in log[:1] + log[-1:]]
    with scratch_folder(out, NEW) as folder:
        _write_model(model, folder)
        if recipe.storage == "float16":
            halve_weights(folder)
        manifest |= {
            "scores": suite.score(folder),
            "baselines": {
                measure: {
                    name: lexical_split(*task_and_split, measure).metrics
                    for name, task_and_split in suite.tasks.items()
                }
                for measure in LEXICAL
            },
            "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
            "dimension": model.get_embedding_dimension(),
            "train_s": round(sum(record.get("train_s", 0.0) for record in manifest["stages"]), 1),
            "device": _device_name(),
        }
        write_text(folder / "README.md", embedder_card(out.resolve().name, manifest, suite))
        write_text(folder / METRICS_FILE, "".join(json.dumps(line) + "\n" for line in lines))
        seal(folder)
        for path in folder.iterdir():
            if (out / path.name).is_dir():
                shutil.rmtree(out / path.name)
            path.replace(out / path.name)
    write_signed(out / MANIFEST_FILE, manifest)
    shutil.rmtree(out / WORK, ignore_errors=True)
    return manifest


def _device_name() -> str:
    import torch

    return torch.cuda.get_device_name() if default_device() == "cuda" else cpu_name()
