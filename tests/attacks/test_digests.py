"""A flipped bit in any kind of file that is stored is noticed when the file is opened."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from apps.clustering import CharNgrams, Stories
from corpora.build import BuildConfig, build
from corpora.corpus import read_corpus
from corpora.foundation.errors import SuiteError
from corpora.foundation.files import write_signed
from downstream.encoders.folder import BUNDLED
from downstream.encoders.hub import resolve
from downstream.finetuning.result import read_result
from downstream.trainer_checkpoints import MANIFEST, STATES, last_checkpoint
from eval.cells.files import find_failures, record_failure
from pretraining.folders import SEAL_FILE, seal
from pretraining.training.state.checkpoints import load_checkpoint, save_checkpoint
from pretraining.training.state.folder import Checkpoint
from tests.attacks.files import cell
from tests.attacks.models import build_model, load

FLIPS = 12
"""Bits that are flipped one after the other in each file."""


@dataclass(frozen=True)
class Kind:
    """A kind of stored folder: how it is written, what is read of it, and which files decide."""

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    files: str


def finished(folder: Path) -> None:
    shutil.rmtree(folder)
    build_model(folder)
    seal(folder)


def corpus(folder: Path) -> None:
    source = folder.parent / "articles.jsonl"
    lines = [{"text": f"벼리시 의회가 {k}번째 본회의에서 예산 {k * 37}억 원을 의결했다고 밝혔다."} for k in range(30)]
    source.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    build([source], folder, BuildConfig(held_out=0))


def checkpoint(folder: Path) -> None:
    save_checkpoint(folder, Checkpoint(1, {"w": torch.ones(9)}, {"w|m": torch.ones(9)}, {"a": 1}), keep=1)


def read_checkpoint(folder: Path) -> None:
    load_checkpoint(folder)


def trainer_checkpoint(folder: Path) -> None:
    from safetensors.torch import save_file

    from corpora.foundation.files import sha256

    path = folder / "checkpoint-4"
    path.mkdir()
    save_file({"generator|cpu": torch.random.get_rng_state()}, path / STATES)
    save_file({"w": torch.ones(9)}, path / "model.safetensors")
    (path / "trainer_state.json").write_text('{"global_step": 4}')
    files = {file.name: sha256(file) for file in path.iterdir()}
    write_signed(path / MANIFEST, {"schema": 1, "run": "a", "step": 4, "files": files, "states": {}})


def stories(folder: Path) -> None:
    titles = [f"{town} 의회 예산 {k * 10}억 의결" for town in ("벼리시", "물빛시", "새말군") for k in range(4)]
    Stories.fit(titles, embedder=CharNgrams()).save(folder)


def one_cell(folder: Path) -> None:
    write_signed(folder / "seed-0.json", cell(), indent=None)


def failure(folder: Path) -> None:
    record_failure(folder, ("nsmc-sample", "a", 0), "no weights")


KINDS = (
    Kind("a corpus", corpus, lambda folder: list(read_corpus(folder)), "*.jsonl"),
    Kind("the manifest of a corpus", corpus, lambda folder: list(read_corpus(folder)), "manifest.json"),
    Kind("a finished model", finished, lambda folder: load(folder, folder), "*.safetensors"),
    Kind("the config of a finished model", finished, lambda folder: load(folder, folder), "config.json"),
    Kind("the tokenizer of a finished model", finished, lambda folder: load(folder, folder), "tokenizer.json"),
    Kind("a checkpoint of pretraining", checkpoint, read_checkpoint, "checkpoint-*/*"),
    Kind(
        "a checkpoint of fine-tuning", trainer_checkpoint, lambda folder: last_checkpoint(folder, "a"), "checkpoint-*/*"
    ),
    Kind("stories", stories, Stories.load, "stories.json"),
    Kind("the vectors of stories", stories, Stories.load, "*.safetensors"),
    Kind("a cell", one_cell, lambda folder: read_result(folder / "seed-0.json"), "seed-0.json"),
    Kind("a failed cell", failure, find_failures, "missing/*/*/*.json"),
)


def flips(path: Path) -> Iterator[bytes]:
    """Yield the content of a file with one bit flipped, at places all over it."""
    content = path.read_bytes()
    generator = random.Random(path.name)  # noqa: S311 - the same flips on every run
    for _ in range(FLIPS):
        changed = bytearray(content)
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
        yield bytes(changed)


def test_a_flipped_bit_is_noticed_in_every_kind_of_file(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, kind in enumerate(KINDS):
        folder = tmp_path / str(number) / "folder"
        folder.mkdir(parents=True)
        kind.make(folder)
        kind.read(folder)
        found = sorted(path for path in folder.glob(kind.files) if path.stat().st_size)
        assert found, kind.name
        for path in found:
            with subtests.test(f"{kind.name}, {path.name}"):
                content = path.read_bytes()
                for changed in flips(path):
                    path.write_bytes(changed)
                    with pytest.raises(SuiteError) as caught:
                        kind.read(folder)
                    assert len(str(caught.value).splitlines()) == 1, kind.name
                path.write_bytes(content)
                kind.read(folder)


def test_a_flipped_bit_in_what_comes_with_the_package_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = tmp_path / "bundled"
    shutil.copytree(BUNDLED, bundled)
    monkeypatch.setattr("pretraining.folders.BUNDLED", bundled)
    for name in ("encoder", "classifier", "embedder", "summarizer"):
        path = next(iter((bundled / name).glob("*.safetensors")), bundled / name / "summarizer.json")
        content = path.read_bytes()
        assert resolve(str(bundled / name)) == bundled / name
        path.write_bytes(next(flips(path)))
        with pytest.raises(SuiteError, match="changed since it was written"):
            resolve(str(bundled / name))
        path.write_bytes(content)


def test_a_seal_lists_no_file_elsewhere(tmp_path: Path) -> None:
    build_model(tmp_path / "model")
    (tmp_path / "model" / SEAL_FILE).write_text('{"files": {"../outside": "0"}}')
    with pytest.raises(SuiteError, match="lies outside of the folder"):
        resolve(str(tmp_path / "model"))
