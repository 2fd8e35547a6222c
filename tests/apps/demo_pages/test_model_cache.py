"""Models are loaded once for everybody, lent to one at a time, and make way for others."""

import mmap
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apps.demo_pages.model_cache import DEFAULT, MAX_LOADED, ModelCache, ModelChoice, resident_bytes
from apps.stories.space import CharNgrams
from corpora.foundation.errors import CheckpointError
from downstream.answer import SentenceFinder
from downstream.encoders.hub import bundled


class Opener:
    """Counts what it opens."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.opened: list[Path] = []
        self._seconds = seconds

    def __call__(self, folder: Path, _runtime: str) -> Any:
        time.sleep(self._seconds)
        self.opened.append(folder)
        return folder.name


def choice(folder: Path, runtime: str = DEFAULT) -> ModelChoice:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").touch()
    return ModelChoice("classifier", folder, runtime)


def test_a_model_is_loaded_once_however_many_ask_at_once(tmp_path: Path) -> None:
    opener = Opener(0.1)
    models = ModelCache({"classifier": opener})
    wanted = choice(tmp_path / "a")
    inside, most = 0, 0

    def borrow() -> None:
        nonlocal inside, most
        with models.use(wanted) as model:
            assert model == "a"
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    threads = [threading.Thread(target=borrow) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(opener.opened), most) == (1, 1)
    assert models.has(wanted)
    assert [loaded.choice for loaded in models.loaded()] == [wanted]


def test_another_runtime_and_new_files_are_loaded_again(tmp_path: Path) -> None:
    opener = Opener()
    models = ModelCache({"classifier": opener})
    for wanted in (choice(tmp_path / "a"), choice(tmp_path / "a", "onnx"), choice(tmp_path / "a")):
        with models.use(wanted):
            pass
    assert len(opener.opened) == 2
    os.utime(tmp_path / "a" / "config.json", (1, 1))
    with models.use(ModelChoice("classifier", tmp_path / "a")):
        pass
    assert len(opener.opened) == 3


def test_what_was_not_used_for_longest_makes_way(tmp_path: Path) -> None:
    models = ModelCache({"classifier": Opener()})
    choices = [choice(tmp_path / str(k)) for k in range(MAX_LOADED + 1)]
    for wanted in (*choices[:MAX_LOADED], choices[0], choices[MAX_LOADED]):
        with models.use(wanted):
            pass
    assert models.has(choices[0])
    assert not models.has(choices[1])
    assert len(models.loaded()) == MAX_LOADED


def test_a_model_that_cannot_be_loaded_can_be_tried_again(tmp_path: Path) -> None:
    def refuse(folder: Path, _runtime: str) -> Any:
        raise CheckpointError(folder, "damaged", "restore it")

    models = ModelCache({"classifier": refuse})
    for _ in range(2):
        with pytest.raises(CheckpointError, match="damaged"), models.use(choice(tmp_path / "a")):
            pass
    assert models.loaded() == []


def test_the_default_runtime_and_torch_answer_alike() -> None:
    models, texts = ModelCache(), ["연기가 정말 좋았다", "시간이 아까웠다"]
    answers: dict[str, list[Any]] = {}
    for runtime in (DEFAULT, "torch"):
        with models.use(ModelChoice("classifier", bundled("classifier"), runtime)) as classifier:
            labels = classifier.probabilities(texts)
        with models.use(ModelChoice("embedder", bundled("embedder"), runtime)) as embedder:
            answers[runtime] = [labels, embedder.encode(texts)]
    for default, torch in zip(*answers.values(), strict=True):
        np.testing.assert_allclose(default, torch, atol=1e-4)


def test_letters_need_no_folder() -> None:
    models = ModelCache({})
    with models.use(ModelChoice("embedder", None)) as letters, models.use(ModelChoice("reader", None)) as finder:
        assert (type(letters), type(finder)) == (CharNgrams, SentenceFinder)


def test_memory_is_in_bytes() -> None:
    before = resident_bytes()
    # From the system itself: other memory may be what an earlier test has given back.
    with mmap.mmap(-1, 60_000_000) as ballast:
        ballast.write(b"x" * len(ballast))
        assert 50_000_000 < resident_bytes() - before < 200_000_000
