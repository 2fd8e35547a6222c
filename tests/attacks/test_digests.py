"""A flipped bit in any kind of file that is stored is noticed when the file is opened."""

import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from apps.clustering import CharNgrams, Stories
from apps.stories.space import EmbeddingCache
from corpora.build import BuildConfig, build
from corpora.corpus import read_corpus
from corpora.foundation.arrays import read_arrays, write_arrays
from corpora.foundation.errors import SuiteError
from corpora.foundation.files import package_path, sha256, write_signed
from corpora.pipeline.workspace import Workspace
from downstream.encoders.folder import BUNDLED
from downstream.encoders.hub import resolve
from downstream.finetuning.result import read_result
from downstream.headlines.settings import HeadlineConfig, read_facts
from downstream.runtimes.selection import Choice, _remembered
from downstream.signals.learning import Judge, JudgeSettings
from downstream.trainer_checkpoints import MANIFEST, STATES, last_checkpoint
from eval.cells.files import find_failures, record_failure
from eval.cells.measurements import CURVES, CurveFile
from eval.contamination.files import Pair, pair_path, read_pair
from pretraining.data.shards import Ragged, read_shard, write_shard
from pretraining.data.vectors import MANIFEST as VECTOR_MANIFEST
from pretraining.data.vectors import SHARDS, TEXTS, StoredVectors, VectorManifest
from pretraining.folders import SEAL_FILE, seal
from pretraining.recipe import Recipe
from pretraining.training.run import Run
from pretraining.training.state.checkpoints import load_checkpoint, save_checkpoint
from pretraining.training.state.folder import Checkpoint
from pretraining.vocabulary.build import MADE_BY, is_finished
from tests.attacks.files import cell
from tests.attacks.models import build_model
from tests.attacks.openers import load

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


def arrays(folder: Path) -> None:
    write_arrays(folder / "a.safetensors", {"a": np.arange(9), "b": np.ones((2, 3), np.float32)})


def judge(folder: Path) -> None:
    """Write a model of one's own labels, without an encoder."""
    settings = JudgeSettings(schema=1, tool="clickbait", labels=["a", "b"], measures=["letters"], encoder=None)
    one = np.ones(1, np.float32)
    Judge(settings, one, one, np.ones((1, 2), np.float32), np.ones(2, np.float32), lambda *_: [], None).save(folder)


def shard(folder: Path) -> None:
    numbers = np.arange(6, dtype=np.int32)
    write_shard(folder / "a.arrow", {"input_ids": Ragged.from_lengths(np.array([2, 4]), numbers)})


def vectors(folder: Path) -> None:
    """Write vectors of two texts."""
    (folder / TEXTS).write_text('"a"\n"b"\n')
    np.save(folder / "00000.npy", np.ones((2, 4), np.float16))
    manifest = VectorManifest(
        model="a",
        model_sha256="0",
        prompt="",
        is_int8=False,
        dimension=4,
        num_texts=2,
        texts_sha256=sha256(folder / TEXTS),
    )
    write_signed(folder / VECTOR_MANIFEST, manifest.model_dump())
    write_signed(folder / SHARDS, {"00000.npy": sha256(folder / "00000.npy")})


def task(folder: Path) -> None:
    """Write a finished task of a build."""
    with Workspace(folder).task("clean", "00000") as one:
        one.write_array("numbers", np.arange(9))


def read_task(folder: Path) -> None:
    # What is damaged is removed, so that the task runs again.
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    try:
        Workspace(copy).array("clean", "00000", "numbers")
    finally:
        shutil.rmtree(copy)


def begun(folder: Path) -> None:
    """Write the records that a pretraining begins with."""
    for name in ("recipe.json", "data.json", "manifest.json"):
        write_signed(folder / name, {"steps": 4, "sha256": "a" * 64})


def read_begun(folder: Path) -> None:
    for name in ("recipe.json", "data.json", "manifest.json"):
        Run(Recipe(objective={"name": "dynamic_mlm"}), folder)._read(name)


def pair(folder: Path) -> None:
    path = pair_path(folder, "nsmc-sample", "news")
    write_signed(
        path, Pair(schema=1, task="nsmc-sample", split="test", corpus="news", source="corpus").model_dump(by_alias=True)
    )


def curve(folder: Path) -> None:
    points = [{"step": 1, "epoch": 0.5, "loss": 0.7}]
    key = {"schema": 1, "task": "nsmc-sample", "model": "a", "seed": 0, "recipe_sha256": "0"}
    write_signed(folder / "seed-0.json", CurveFile(**key, points=points).model_dump(by_alias=True))


def vocabulary(folder: Path) -> None:
    write_signed(folder / "manifest.json", {MADE_BY: {"vocab_size": 9}, "finished": True})


def headline(folder: Path) -> None:
    write_signed(folder / "headline.json", {"settings": HeadlineConfig().model_dump()})


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
    Kind("a learning curve", curve, lambda folder: CURVES.read(folder / "seed-0.json"), "*.json"),
    Kind(
        "overlaps with training text", pair, lambda folder: read_pair(pair_path(folder, "nsmc-sample", "news")), "*/*/*"
    ),
    Kind("arrays", arrays, lambda folder: read_arrays(folder / "a.safetensors"), "*"),
    Kind("a model of one's own labels", judge, lambda folder: Judge.load(folder, "clickbait", lambda *_: []), "*"),
    Kind("tokens and rows", shard, lambda folder: read_shard(folder / "a.arrow"), "*.arrow"),
    Kind("vectors of texts", vectors, StoredVectors.open, "*"),
    Kind("a task of a build", task, read_task, "*/*/*"),
    Kind("the records of a pretraining", begun, read_begun, "*.json"),
    Kind("the manifest of a vocabulary", vocabulary, lambda folder: is_finished(folder, {"vocab_size": 9}), "*.json"),
    Kind("the settings of a headline model", headline, read_facts, "*.json"),
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


def test_a_flipped_bit_in_a_file_beside_the_code_is_noticed(tmp_path: Path, subtests: pytest.Subtests) -> None:
    found = [path for package in ("apps", "downstream") for path in package_path(package).rglob("*.safetensors")]
    found = [path for path in found if not path.is_relative_to(BUNDLED)]
    assert len(found) >= 4
    for path in found:
        with subtests.test(path.name):
            read_arrays(path, is_required=True)
            for changed in itertools.islice(flips(path), 3):
                (tmp_path / path.name).write_bytes(changed)
                with pytest.raises(SuiteError):
                    read_arrays(tmp_path / path.name, is_required=True)


def test_what_can_be_made_again_is_made_again_where_a_bit_was_flipped(tmp_path: Path) -> None:
    """Vectors of titles, and backends that were measured, are caches."""
    titles = ["벼리시 의회 예산 의결", "물빛시 새 다리"]
    EmbeddingCache(tmp_path, CharNgrams()).encode(titles)
    [path] = tmp_path.rglob("*.safetensors")
    choice = Choice(word="auto", chosen="torch", candidates=(), num_inputs=1, threads=1, cpu="a")
    remembered = tmp_path / "choice.json"
    write_signed(remembered, choice.model_dump(mode="json"))
    assert len(EmbeddingCache(tmp_path, CharNgrams())._vectors) == 2
    assert _remembered(remembered) is not None
    for changed, other in zip(flips(path), flips(remembered), strict=True):
        path.write_bytes(changed)
        remembered.write_bytes(other)
        assert not EmbeddingCache(tmp_path, CharNgrams())._vectors
        assert _remembered(remembered) is None


def test_metrics_of_a_cell_are_folded_again_from_its_columns(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """With its digest, too: who edits a score can compute another digest."""
    half = {"accuracy": [[1.0], [0.0]]}
    for name, changes in {
        "a better score": {"metrics": {"accuracy": 0.99}},
        "better numbers of the examples": {"columns": {"accuracy": [[1.0], [1.0]]}},
        "no score": {"metrics": {"accuracy": None}},
        "fewer examples": {"columns": {"accuracy": [[1.0]]}},
        "more examples": {"num_examples": 3},
    }.items():
        with subtests.test(name):
            write_signed(tmp_path / "cell.json", cell(**{"columns": half} | changes))
            with pytest.raises(SuiteError, match="not a result of schema 1"):
                read_result(tmp_path / "cell.json")
    write_signed(tmp_path / "cell.json", cell(columns=half))
    assert read_result(tmp_path / "cell.json").metrics == {"accuracy": 0.5}


def test_a_seal_lists_no_file_elsewhere(tmp_path: Path) -> None:
    build_model(tmp_path / "model")
    (tmp_path / "model" / SEAL_FILE).write_text('{"files": {"../outside": "0"}}')
    with pytest.raises(SuiteError, match="lies outside of the folder"):
        resolve(str(tmp_path / "model"))
