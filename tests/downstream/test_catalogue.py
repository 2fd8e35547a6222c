"""Folders are told apart by their files."""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.foundation.errors import CheckpointError
from downstream.catalogue import bundled_models, describe_model, find_models
from downstream.encoders.hub import BUNDLED

Fails = Callable[..., AbstractContextManager[None]]


def folder_of(root: Path, name: str, config: dict[str, object] | None = None, *files: str) -> Path:
    out = root / name
    out.mkdir()
    if config is not None:
        (out / "config.json").write_text(json.dumps(config))
    for file in files:
        (out / file).write_text("[]")
    return out


@pytest.mark.parametrize(
    ("config", "files", "kind"),
    [
        ({"finetuning_task": "nsmc"}, (), "classifier"),
        ({"finetuning_task": "hate"}, (), "classifier"),
        ({"finetuning_task": "korquad"}, (), "reader"),
        ({"finetuning_task": "klue-mrc"}, (), "reader"),
        ({"architectures": ["BertForMaskedLM"]}, (), "encoder"),
        ({"architectures": ["BertForPreTraining"]}, (), "encoder"),
        ({"architectures": ["BertModel"]}, ("modules.json",), "embedder"),
        (None, ("summarizer.json",), "summarizer"),
        (None, ("head.json",), "summarizer"),
    ],
)
def test_kinds(tmp_path: Path, config: dict[str, object] | None, files: tuple[str, ...], kind: str) -> None:
    assert describe_model(folder_of(tmp_path, "m", config, *files)).kind == kind


@pytest.mark.parametrize(
    "config", [None, {}, *({"architectures": [name]} for name in ("BertModel", "ElectraForPreTraining"))]
)
def test_a_folder_of_something_else_is_refused(tmp_path: Path, config: dict[str, object] | None, fails: Fails) -> None:
    folder = folder_of(tmp_path, "m", config)
    with fails(CheckpointError, folder, "no model of a known kind"):
        describe_model(folder)


def test_pairs_missing_folders_and_damaged_files_are_refused(tmp_path: Path, fails: Fails) -> None:
    pairs = folder_of(tmp_path, "m", {"finetuning_task": "klue-nli"})
    with fails(CheckpointError, pairs, "KLUE-NLI"):
        describe_model(pairs)
    with fails(CheckpointError, tmp_path / "none", "no such folder"):
        describe_model(tmp_path / "none")
    (pairs / "config.json").write_text("{")
    with fails(CheckpointError, pairs / "config.json", "cannot be read"):
        describe_model(pairs)


def test_models_are_found_one_level_below_and_once(tmp_path: Path, standins: dict[str, Path]) -> None:
    shutil.copytree(standins["kpfbert"], tmp_path / "encoder")
    folder_of(tmp_path, "answers", {"finetuning_task": "korquad"})
    folder_of(tmp_path, "nothing", {})
    found = find_models([tmp_path, tmp_path / "encoder", tmp_path / "missing"])
    assert [(model.kind, model.name) for model in found] == [("reader", "answers"), ("encoder", "encoder")]
    assert found[1].size_bytes > 100_000


def test_what_is_bundled_is_known_as_such() -> None:
    # Whatever is bundled can be chosen in the demo.
    kinds = {path.name: path.name for path in BUNDLED.iterdir() if path.is_dir()}
    assert {"summarizer", "embedder", "classifier", "encoder"} <= kinds.keys()
    assert {model.name: model.kind for model in bundled_models()} == kinds
    assert all(model.is_bundled for model in bundled_models())
