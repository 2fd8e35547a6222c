"""Manifests: folded from the cells alone, read back as experiments, and strict about what is no longer the same."""

import json
import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from corpora.foundation.errors import ResultError, UsageError
from corpora.foundation.files import fingerprint
from downstream.finetuning.result import Result
from downstream.task import get_task
from eval.cells.manifest import Experiment, fold_manifest, origin, read_experiments, refuse_drift
from eval.contestants.contestant import load_leaderboard
from eval.contestants.encoder import Encoder

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

KNOWN = load_leaderboard().models
NSMC = get_task("nsmc-sample")


def cell(model: str, *, seed: int = 0, recipe: dict[str, Any] | None = None, **noted: str) -> Result:
    recipe = recipe or {"versions": {"python": "3.11.7"}}
    return Result(
        schema=1,
        model=model,
        task="nsmc-sample",
        split="test",
        seed=seed,
        metrics={"accuracy": 0.5},
        num_examples=2,
        data_sha256="a+b",
        recipe_sha256=fingerprint(recipe),
        recipe=recipe,
        train_s=0.0,
        eval_s=0.0,
        device="cpu",
        environment=noted,
        predictions=["positive", "negative"],
        columns={"accuracy": [[1.0], [0.0]]},
    )


def test_a_manifest_summarizes_the_origins_of_its_cells() -> None:
    trained = {"versions": {"python": "3.11.7", "torch": "2.10.0"}, "finetune": {"epochs": 2.0}}
    cells = [
        cell("tfidf", kind="tfidf", encoder="", cpu="one", git="abc"),
        cell("mine", recipe=trained, seed=1, kind="encoder", encoder="runs/mine", cpu="two", git="abc", device="H200"),
        cell("mine", recipe=trained, kind="encoder", encoder="runs/mine", cpu="one", git="def+", device="H200"),
    ]
    found = fold_manifest(cells)
    assert found["versions"] == {"python": "3.11.7", "torch": "2.10.0"}
    assert (found["cpu"], found["git"], found["device"]) == ("one / two", "abc / def+", "H200 / cpu")
    assert [(e["model"], e["kind"], e["encoder"], e["seeds"]) for e in found["experiments"]] == [
        ("tfidf", "tfidf", "", [0]),
        ("mine", "encoder", "runs/mine", [0, 1]),
    ]
    assert found["experiments"][1]["recipe"] == trained
    assert fold_manifest([cells[2], *cells[:2]]) | {"experiments": 0} == found | {"experiments": 0}


def test_versions_that_differ_between_cells_are_both_listed() -> None:
    cells = [
        cell(name, recipe={"versions": {"torch": version}}) for name, version in (("a", "2.10.0"), ("b", "2.11.0"))
    ]
    assert fold_manifest(cells)["versions"] == {"torch": "2.10.0 / 2.11.0"}


def test_a_leaderboard_without_cells_describes_this_machine() -> None:
    found = fold_manifest([])
    assert found["versions"]["python"] == platform.python_version()
    assert {"git", "device", "cpu", "experiments"} <= set(found)


def test_an_origin_says_which_weights_were_trained() -> None:
    for model, encoder in (
        (KNOWN["tfidf"], ""),
        (KNOWN["pressbert-scratch"], ""),
        (KNOWN["kpfbert"], "kpfbert"),
        (Encoder(name="mine", encoder="runs/mine"), "runs/mine"),
        # Its folder may be deleted: where it was says nothing.
        (Encoder(name="mine", encoder="/runs/mine", encoder_sha256="a" * 64), "mine"),
    ):
        found = origin(model, NSMC)
        assert (found["kind"], found["encoder"]) == (model.kind, encoder), model
        assert all(isinstance(value, str) for value in found.values()), model


def leaderboard(*cells: Result) -> str:
    return json.dumps({"schema": 1, "manifest": fold_manifest(cells), "rows": []})


def test_experiments_come_back_from_a_leaderboard_its_folder_or_its_manifest_alone(write: Write) -> None:
    recipe = {"finetune": {"epochs": 2.0, "peak_lr": 1e-3}, "versions": {}}
    found = cell("mine", recipe=recipe, kind="encoder", encoder="runs/mine")
    path = write("leaderboard.json", leaderboard(found))
    alone = write("manifest.json", json.dumps(fold_manifest([found])))
    (experiment,) = read_experiments(path)
    assert read_experiments(path.parent) == read_experiments(alone) == [experiment]
    assert (experiment.task, experiment.model, experiment.seeds) == ("nsmc-sample", "mine", [0])
    assert experiment.contestant == Encoder(name="mine", encoder="runs/mine", finetune=recipe["finetune"])
    assert experiment.contestant.overrides(NSMC) == recipe["finetune"]


def test_a_file_that_is_no_manifest_is_one_line(write: Write, fails: Fails) -> None:
    unknown = {"task": "nsmc", "model": "m", "kind": "oracle", "encoder": "", "seeds": [0], "recipe": {}}
    for content, what in (
        ("", "no manifest"),
        ("[]", "no manifest"),
        ("{}", "no manifest"),
        ('{"manifest": {"versions": {}}}', "no manifest"),
        ('{"manifest": {"experiments": [{"task": "nsmc"}]}}', "no manifest"),
        (json.dumps({"manifest": {"experiments": [unknown]}}), "no manifest"),
        ('{"manifest": {"experiments": []}}', "no experiment"),
    ):
        path = write("leaderboard.json", content)
        with fails(ResultError, path, what):
            read_experiments(path)


def test_a_manifest_that_is_not_there_is_one_line(tmp_path: Path, fails: Fails) -> None:
    with fails(ResultError, tmp_path / "leaderboard.json"):
        read_experiments(tmp_path)


def test_a_cell_from_before_origins_were_noted_cannot_be_repeated(write: Write, fails: Fails) -> None:
    path = write("leaderboard.json", leaderboard(cell("tfidf")))
    with fails(ResultError, path, "no manifest that says how its figures were computed"):
        read_experiments(path)


RECIPE = {"data_sha256": "a" * 64, "versions": {"torch": "2.10.0", "numpy": "2.0.0"}, "finetune": {"epochs": 1.0}}
EXPERIMENT = Experiment(task="nsmc", model="mine", kind="scratch", encoder="", seeds=[0], recipe=RECIPE)


def test_what_is_no_longer_the_same_is_one_line(fails: Fails) -> None:
    refuse_drift(Path("x.json"), EXPERIMENT, RECIPE)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"data_sha256": "b" * 64}, "mine on nsmc: data_sha256 was aaaaaaaaaaaa…aaaaaaaaaaaa and is bbbbbbbbbbbb…"),
        ({"versions": {"torch": "2.11.0", "numpy": "2.0.0"}}, "versions.torch was 2.10.0 and is 2.11.0 now"),
        ({"versions": {"torch": "2.10.0"}}, "versions.numpy was 2.0.0 and is absent now"),
        ({"finetune": {"epochs": 2.0}}, "finetune.epochs was 1.0 and is 2.0 now"),
        ({"precision": "bf16"}, "precision was absent and is bf16 now"),
    ]
    for change, what in changes:
        with fails(UsageError, "x.json: ", what, "--allow-drift"):
            refuse_drift(Path("x.json"), EXPERIMENT, RECIPE | change)


def test_what_was_changed_on_purpose_is_no_drift() -> None:
    refuse_drift(Path("x.json"), EXPERIMENT, RECIPE | {"finetune": {"epochs": 2.0}}, but={"finetune"})
