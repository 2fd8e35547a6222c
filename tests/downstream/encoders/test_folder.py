"""What a model folder holds is read from its files, without torch."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from corpora.foundation.errors import CheckpointError
from downstream.encoders.folder import BUNDLED, KORBERT_VOCAB, ModelFolder, bundled_models, find_models
from downstream.encoders.hub import bundled

Fails = Callable[..., AbstractContextManager[None]]


def folder_of(root: Path, name: str, config: dict[str, Any] | None = None, *files: str) -> Path:
    out = root / name
    out.mkdir()
    if config is not None:
        (out / "config.json").write_text(json.dumps(config))
    for file in files:
        (out / file).write_text("[]")
    return out


def test_kinds(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any] | None, tuple[str, ...], str]] = [
        ({"finetuning_task": "nsmc"}, (), "classifier"),
        ({"finetuning_task": "hate"}, (), "classifier"),
        ({"finetuning_task": "korquad"}, (), "reader"),
        ({"finetuning_task": "klue-mrc"}, (), "reader"),
        ({"architectures": ["BertForMaskedLM"]}, (), "encoder"),
        ({"architectures": ["BertForPreTraining"]}, (), "encoder"),
        ({"architectures": ["BertModel"]}, ("modules.json",), "embedder"),
        (None, ("summarizer.json",), "summarizer"),
        (None, ("head.json",), "summarizer"),
    ]
    for number, (config, files, kind) in enumerate(cases):
        assert ModelFolder(folder_of(tmp_path, str(number), config, *files)).kind == kind, (config, files)


def test_a_folder_of_something_else_is_refused(tmp_path: Path, fails: Fails) -> None:
    others = (None, {}, {"architectures": ["BertModel"]}, {"architectures": ["ElectraForPreTraining"]})
    for number, config in enumerate(others):
        folder = folder_of(tmp_path, str(number), config)
        with fails(CheckpointError, folder, "no model of a known kind"):
            _ = ModelFolder(folder).kind


def test_pairs_missing_folders_and_damaged_files_are_refused(tmp_path: Path, fails: Fails) -> None:
    pairs = folder_of(tmp_path, "m", {"finetuning_task": "klue-nli"})
    with fails(CheckpointError, pairs, "KLUE-NLI"):
        _ = ModelFolder(pairs).kind
    with fails(CheckpointError, tmp_path / "none", "no such folder"):
        _ = ModelFolder(tmp_path / "none").kind
    with fails(CheckpointError, tmp_path / "none", "no config.json"):
        _ = ModelFolder(tmp_path / "none").config
    for content, what in (("{", "not valid JSON"), ("[]", "a list"), ("", "not valid JSON")):
        (pairs / "config.json").write_text(content)
        with fails(CheckpointError, pairs / "config.json", what):
            _ = ModelFolder(pairs).kind


def test_a_folder_without_a_task_is_not_fine_tuned(tmp_path: Path, fails: Fails) -> None:
    assert ModelFolder(folder_of(tmp_path, "a", {"finetuning_task": "nsmc"})).task_name == "nsmc"
    plain = ModelFolder(folder_of(tmp_path, "b", {"model_type": "bert"}))
    assert not plain.is_finetuned
    with fails(CheckpointError, plain.path, "does not say which task it was fine-tuned on"):
        _ = plain.task_name


def test_facts_are_those_of_the_config(tmp_path: Path) -> None:
    config = {
        "model_type": "bert",
        "vocab_size": 9,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "max_position_embeddings": 16,
        "id2label": {"1": "positive", "0": "negative"},
        "bilstm": {},
    }
    known = ModelFolder(folder_of(tmp_path, "a", config))
    assert (known.model_type, known.vocab_size, known.hidden_size, known.num_attention_heads) == ("bert", 9, 8, 2)
    assert (known.labels, known.has_bilstm) == (("negative", "positive"), True)
    empty = ModelFolder(folder_of(tmp_path, "b", {}))
    assert (empty.model_type, empty.vocab_size, empty.hidden_size, empty.num_attention_heads) == ("bert", 0, 0, 0)
    assert (empty.labels, empty.has_bilstm, empty.architectures, empty.max_positions) == ((), False, (), None)
    positions = [({}, 16), ({"model_type": "roberta"}, 14), ({"model_type": "xlm-roberta", "pad_token_id": 3}, 12)]
    for number, (change, expected) in enumerate(positions):
        folder = folder_of(tmp_path, f"positions-{number}", config | change)
        assert ModelFolder(folder).max_positions == expected, change


def test_a_changed_config_keeps_its_other_entries(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "a", {"vocab_size": 9, "dtype": "float16"})
    ModelFolder(folder).save_config({"dtype": "float32"})
    assert ModelFolder(folder).config == {"vocab_size": 9, "dtype": "float32"}


def test_parameters_and_sizes_are_those_of_the_files() -> None:
    for name, prefix in (("classifier", "bert."), ("encoder", "bert."), ("embedder", "")):
        model = ModelFolder(bundled(name))
        weights = load_file(model.path / "model.safetensors")
        assert model.num_parameters == sum(v.size for key, v in weights.items() if key.startswith(prefix)), name
        assert model.weights_bytes == (model.path / "model.safetensors").stat().st_size, name
        assert model.size_bytes == sum(p.stat().st_size for p in model.path.rglob("*") if p.is_file()), name


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
    del kinds["moderator"]  # one of a kind, on a page of its own
    assert {"summarizer", "embedder", "classifier", "encoder"} <= kinds.keys()
    assert {model.name: model.kind for model in bundled_models()} == kinds
    assert all(model.is_bundled for model in bundled_models())


def test_the_fingerprinted_files_decide_the_encoder(standins: dict[str, Path]) -> None:
    names = {kind: [path.name for path in ModelFolder(folder).digest_files()] for kind, folder in standins.items()}
    assert all({"config.json", "model.safetensors"} <= set(listed) for listed in names.values())
    assert "vocab.txt" in names["mbert"]
    assert "spiece.model" in names["kobert"]
    assert KORBERT_VOCAB in names["korbert"]
    assert all(listed == sorted(listed) for listed in names.values())


def test_how_an_encoder_was_made_is_no_part_of_it(standins: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(standins["mbert"], tmp_path / "mbert")
    before = ModelFolder(folder).digest()
    for name in ("manifest.json", "recipe.json", "data.json", "result.json", "held-out-corpus.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    assert ModelFolder(folder).digest() == before
    (folder / "config.json").write_text("{}", encoding="utf-8")
    assert ModelFolder(folder).digest() != before


def test_torch_is_not_imported() -> None:
    code = """
import sys
from downstream.encoders.folder import bundled_models
for model in bundled_models():
    model.kind, model.digest(), model.size_bytes
    model.has_config and model.num_parameters
assert not {"torch", "transformers"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
