"""The files of a bundle: what is copied, digests, cards, and what an earlier bundle holds."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpora.foundation.cards import render_card
from corpora.foundation.errors import ResultError, cannot_write
from corpora.foundation.files import package_path, sha256
from corpora.foundation.machine import no_file_bars
from downstream.encoders.weights import halve_weights
from downstream.finetune import load_finetuned, predict
from downstream.task import Task
from pretraining.folders import SEAL_FILE

MANIFEST = "MANIFEST.json"
LABELLED = ("nli_softmax", "nli_ranking", "sts_cosine")
"""Stages of an embedder whose data have labels."""
MODELS = ("encoder", "classifier", "embedder")
"""The models that are trained here; the folder holds more."""
NOT_COPIED = (
    SEAL_FILE,
    ".*",
    "checkpoints",
    "data",
    "data.json",
    "loss.png",
    "manifest.json",
    "metrics.jsonl",
    "objective.safetensors",
    "recipe.json",
    "result.json",
    "stages",
)
"""Records of the training; the bundle's manifest summarises them."""


def copy_model(source: Path, out: Path, *, in_half_precision: bool, left_out: Sequence[str] = ()) -> None:
    """Copy what is needed to use a model, and replace an older folder.

    Other models in the folder, such as the reader beside an encoder or the models of earlier steps, are left out, and
    so are the files named in LEFT_OUT.

    Raises:
        ResultError: OUT cannot be written.
    """
    others = [path.name for path in source.iterdir() if (path / "tokenizer_config.json").is_file()]
    try:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(source, out, ignore=shutil.ignore_patterns(*NOT_COPIED, *left_out, *others))
        if in_half_precision:
            halve_weights(out)
    except OSError as error:
        raise cannot_write(out, error) from error


def score_classifier(folder: Path, task: Task, root: Path) -> dict[str, float]:
    """Return the metrics of a finished classifier on the evaluation split of its task."""
    model, tokenizer, _ = load_finetuned(folder)
    split = task.read_split(task.eval_split, root)
    max_length = min(128, tokenizer.model_max_length)
    with no_file_bars():
        predictions = predict(model, tokenizer, task.family, split.examples, max_length=max_length)
    return {metric.key: metric(predictions, split.golds) for metric in task.metrics}


def files_of(out: Path) -> dict[str, dict[str, Any]]:
    """Return digest and size of every file of a bundle but its manifest, by name."""
    return {
        path.relative_to(out).as_posix(): {"sha256": sha256(path), "size_bytes": path.stat().st_size}
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def read_bundled(out: Path) -> dict[str, Any]:
    """Return the manifest of a bundle, once its files match it.

    Raises:
        ResultError: there is none, or a file is missing or differs.
    """
    fix = "restore the folder, or leave out --continue to train everything from scratch"
    try:
        manifest = read_json(out / MANIFEST)
    except (OSError, ValueError) as error:
        raise ResultError(out, f"no readable {MANIFEST} in it to continue from", fix) from error
    for name, entry in manifest["files"].items():
        is_model = name.partition("/")[0] in MODELS
        if is_model and not ((out / name).is_file() and sha256(out / name) == entry["sha256"]):
            raise ResultError(out / name, f"not the file that {MANIFEST} lists", fix)
    return manifest


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a file that a finished step wrote."""
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values


def card(name: str, manifest: Mapping[str, Any], *, is_outdated: bool = False) -> str:
    """Return the model card of a bundled model, in Korean and in English, with the YAML that model hubs read.

    Args:
        name: of the model.
        manifest: of the bundle.
        is_outdated: the model was trained from an earlier encoder than the one in the bundle.
    """
    template = package_path("downstream", "templates", f"card_{name}.md")
    stages = manifest["recipe"]["embedder"].get("stages", [])
    labelled = sorted({name for stage in stages if stage["kind"] in LABELLED for name in stage["data"]})
    learns_headlines = any(stage["kind"].startswith("headline") for stage in stages)
    sources = [*manifest["sources"], *manifest[name].get("sources", [])]
    values = {**manifest, "sources": list({source["title"]: source for source in sources}.values())}
    return render_card(
        template, **values, is_outdated=is_outdated, labelled=labelled, learns_headlines=learns_headlines
    )
