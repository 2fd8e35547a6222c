"""Fine-tuned folders as models of the comparison."""

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import fingerprint
from downstream.encoders.hub import bundled
from downstream.task import Task, TaskData, get_task
from eval.cells.plan import plan_cells
from eval.contestants.contestant import Job, load_leaderboard
from eval.contestants.encoder import Encoder
from eval.contestants.finetuned import Finetuned

Fails = Callable[..., AbstractContextManager[None]]

KNOWN = load_leaderboard().models
NSMC, STS = get_task("nsmc-sample"), get_task("klue-sts-sample")


def test_the_bundled_classifier_is_scored_on_its_own_task_alone() -> None:
    for name, runtime in (("pressbert-classifier", "torch"), ("pressbert-classifier-fast", "auto")):
        model = KNOWN[name]
        assert isinstance(model, Finetuned)
        assert (model.folder(), model.runtime) == (bundled("classifier"), runtime)
        assert model.applies_to(get_task("nsmc"))
        assert not model.applies_to(get_task("klue-nli"))


def test_a_backend_is_recorded_with_the_libraries_that_are_installed(
    monkeypatch: pytest.MonkeyPatch, small: Callable[[Task, int], TaskData]
) -> None:
    model, data = KNOWN["pressbert-classifier-fast"], small(NSMC, 1)
    whole = model.recipe(NSMC, data)
    assert {"numba", "onnxruntime", "torch"} <= whole["versions"].keys()
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "numba" else real(name, *rest))
    less = model.recipe(NSMC, data)
    assert whole["versions"].keys() - less["versions"].keys() == {"numba"}
    assert fingerprint(less) != fingerprint(whole)


def test_a_fine_tuned_folder_is_scored_by_the_backend_asked_for(
    tiny_encoder: Path,
    tmp_path: Path,
    fails: Fails,
    monkeypatch: pytest.MonkeyPatch,
    small: Callable[[Task, int], TaskData],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trained = Encoder(name="tiny", encoder=str(tiny_encoder), finetune={"epochs": 1, "max_length": 32})
    data = small(STS, 24)
    before = trained.run(Job(trained, STS, 0, data, trained.recipe(STS, data)), tmp_path / "work").result
    model = Finetuned(name="tiny-torch", encoder=str(tmp_path / "work" / "model"))
    assert [cell.task.name for cell in plan_cells([model], [NSMC, STS], 3)] == [STS.name]
    recipe = model.recipe(STS, data)
    assert recipe["runtime"] == "torch"
    result = model.run(Job(model, STS, 0, data, recipe), tmp_path).result
    assert result.predictions == pytest.approx(before.predictions, abs=1e-4)
    assert result.environment["runtime"] == "torch"
    assert result.num_parameters == before.num_parameters
    faster = model.model_copy(update={"runtime": "onnx"})
    assert fingerprint(faster.recipe(STS, data)) != fingerprint(recipe)
    with fails(CheckpointError, tiny_encoder, "which task"):
        plan_cells([model.model_copy(update={"encoder": str(tiny_encoder)})], [STS], 1)
