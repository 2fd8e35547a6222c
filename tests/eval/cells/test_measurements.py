"""What is measured beside a score: once, with its cell, of the same model; and how it comes into the table."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corpora.foundation.errors import ResultError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.finetuning.result import read_result
from downstream.task import Task, get_task
from eval import run_all
from eval.board.rows import build_table
from eval.cells import measurements
from eval.cells import run as running
from eval.cells.archive import merge_results
from eval.cells.files import cell_path, find_cells
from eval.cells.measurements import COST, CURVES, EXTRAS, NOISE, find_measurements
from eval.cells.plan import plan_cells
from eval.cells.run import CellRunner
from eval.contestants import contestant, tfidf
from eval.contestants.contestant import Job, Outcome, load_leaderboard
from eval.contestants.curves import CurvePoint
from eval.measures.cost import measure
from eval.measures.noise import NOISES, robustness

Fails = Callable[..., AbstractContextManager[None]]

NOWHERE = Path("/nonexistent")
KNOWN = load_leaderboard().models
NSMC, STS = get_task("nsmc-sample"), get_task("klue-sts-sample")
OFFICIAL = replace(get_task("nsmc"), num_examples=NSMC.num_examples)
"""The official task on the files of the sample, which lie under the official names."""
KINDS = [NOISES["missing-spaces"], NOISES["nfd"]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure two kinds of noise on forty examples, and time twenty."""
    monkeypatch.setattr(measurements, "robustness", partial(robustness, noises=KINDS, max_examples=40))
    monkeypatch.setattr(contestant, "measure", partial(measure, max_single=20, max_batched=20))


def run(out: Path, *names: str, task: Task = NSMC, **more: Any) -> None:
    cells = plan_cells([KNOWN[name] for name in names], [task], 2)
    runner = CellRunner(cells, out=out, **({"root": NOWHERE, "extras": EXTRAS} | more))
    runner.run()
    assert runner.failed == []


def table_of(out: Path) -> Any:
    cells, _ = find_cells(out)
    measured, errors = find_measurements(out, cells)
    assert errors == []
    return build_table(cells, [], measured=measured)


def test_noise_and_cost_of_a_fitted_model_come_into_its_rows(out: Path) -> None:
    run(out, "majority", "tfidf")
    rows = {row.model: row for row in table_of(out).rows if row.source == "measured"}
    noise = NOISE.read(NOISE.path(out, NSMC.name, "tfidf", 0)).robustness
    row = rows["tfidf"]
    assert [(found.noise, found.rate) for found in row.noise] == [(k.name, rate) for k in KINDS for rate in k.rates]
    clean = noise.conditions[0].metrics["accuracy"]
    assert clean is not None
    for found, condition in zip(row.noise, noise.conditions[1:], strict=True):
        assert found.value == condition.metrics["accuracy"]
        assert found.drop == pytest.approx(clean - (found.value or 0))
        assert found.drop_ci95 is not None
        assert found.drop_ci95[0] <= (found.drop or 0) <= found.drop_ci95[1]
        assert found.num_examples == 40
    assert max(found.altered for found in row.noise) == 1
    # What never looks at the text loses nothing.
    assert {found.drop for found in rows["majority"].noise} == {0.0}
    assert row.latency_ms is not None
    assert row.latency_ms > 0
    assert row.num_parameters == COST.read(COST.path(out, NSMC.name, "tfidf", 0)).cost.num_parameters
    assert row.num_parameters > 1000 > rows["majority"].num_parameters == 1
    assert row.cost_cpu


def test_the_clean_score_under_noise_is_that_of_the_same_predictions(out: Path) -> None:
    run(out, "tfidf")
    noise = NOISE.read(NOISE.path(out, NSMC.name, "tfidf", 0)).robustness
    result = read_result(cell_path(out, NSMC.name, "tfidf", 0))
    examples = NSMC.read_split(NSMC.eval_split, NOWHERE).examples
    of_id = {e.id: float(p == e.gold) for e, p in zip(examples, result.predictions, strict=True)}
    assert noise.conditions[0].columns["accuracy"] == [[of_id[example]] for example in noise.ids]


@pytest.mark.parametrize("task", [NSMC, OFFICIAL], ids=["sample", "official"])
def test_speed_is_taken_of_the_first_seed_and_noise_of_every_one_but_on_the_sample(
    out: Path, ran: list[Any], task: Task
) -> None:
    run(out, "pressbert-scratch", task=task, root=SAMPLE_ROOT)
    assert len(ran) == 2
    for kind, seeds in ((NOISE, [0] if task.is_sample else [0, 1]), (COST, [0])):
        assert sorted(key[2] for key in kind.find(out)[0]) == seeds
    (row,) = (row for row in table_of(out).rows if row.source == "measured")
    assert row.seeds == 2
    assert row.noise
    assert row.latency_ms


def test_what_was_measured_is_not_measured_again(
    out: Path, ran: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(out, "majority")
    before = {path: path.read_bytes() for path in out.rglob("*.json")}
    run(out, "majority")
    assert len(ran) == 1
    assert {path: path.read_bytes() for path in out.rglob("*.json")} == before
    # Killed between measuring and the result: the cell is run again, and keeps what it has.
    cell_path(out, NSMC.name, "majority", 0).unlink()
    monkeypatch.setattr(measurements, "robustness", lambda *_, **__: pytest.fail("measured again"))
    run(out, "majority")
    measured = {path: data for path, data in before.items() if "results" not in path.parts}
    assert {path: path.read_bytes() for path in measured} == measured
    assert "lack measurements" not in capsys.readouterr().err


def test_a_changed_recipe_is_measured_again_and_old_measurements_are_ignored(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(out, "tfidf")
    before = NOISE.read(NOISE.path(out, NSMC.name, "tfidf", 0)).recipe_sha256
    monkeypatch.setitem(tfidf.SETTINGS, "C", 0.01)
    run(out, "tfidf", extras=())
    assert NOISE.read(NOISE.path(out, NSMC.name, "tfidf", 0)).recipe_sha256 == before
    (row,) = (row for row in table_of(out).rows if row.source == "measured")
    assert row.noise == []
    assert row.latency_ms is None
    cell_path(out, NSMC.name, "tfidf", 0).unlink()
    run(out, "tfidf")
    assert NOISE.read(NOISE.path(out, NSMC.name, "tfidf", 0)).recipe_sha256 != before


def test_a_finished_cell_that_lacks_measurements_is_reported(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(out, "majority", extras=())
    assert not (out / "noise").exists()
    assert not (out / "cost").exists()
    run(out, "majority")
    assert "1 of them lack measurements" in capsys.readouterr().err


def test_measures_go_with_their_cells_when_folders_are_merged(out: Path, tmp_path: Path) -> None:
    run(tmp_path / "one", "majority")
    run(tmp_path / "two", "tfidf")
    assert merge_results([tmp_path / "one", tmp_path / "two"], out) == []
    for model, folder in (("majority", "one"), ("tfidf", "two")):
        for kind in (NOISE, COST):
            copy, original = (kind.path(place, NSMC.name, model, 0) for place in (out, tmp_path / folder))
            assert copy.read_bytes() == original.read_bytes()


def test_a_damaged_measure_is_one_line_and_leaves_the_table(out: Path, fails: Fails) -> None:
    run(out, "majority")
    path = NOISE.path(out, NSMC.name, "majority", 0)
    path.write_text('{"schema": 1}', encoding="utf-8")
    with fails(ResultError, path, "not a noise file", "delete it"):
        NOISE.read(path)
    cells, _ = find_cells(out)
    measured, (error,) = find_measurements(out, cells)
    assert str(path) in str(error)
    assert build_table(cells, [], measured=measured).rows[0].noise == []


def test_the_command_measures_unless_asked_not_to(out: Path, tmp_path: Path) -> None:
    asked = ["--tasks", "nsmc-sample", "--models", "majority"]
    assert run_all.main([*asked, "--out", str(out)]) == 0
    rows = json.loads((out / "leaderboard.json").read_text(encoding="utf-8"))["rows"]
    assert [found["noise"] for found in rows[0]["noise"]] == ["missing-spaces", "missing-spaces", "nfd"]
    assert rows[0]["cpu_share"] > 0
    assert run_all.main([*asked, "--out", str(tmp_path / "bare"), "--without", "noise", "cost"]) == 0
    assert {path.name for path in (tmp_path / "bare").iterdir() if path.is_dir()} == {"results", "model-index"}


def test_training_losses_are_kept_as_a_learning_curve(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curve = (CurvePoint(step=10, epoch=0.5, loss=0.7), CurvePoint(step=20, epoch=1.0, loss=0.4))

    def learn(job: Job, work: Path) -> Outcome:
        return replace(job.model.run(job, work), curve=curve)

    monkeypatch.setattr(running, "run_model", learn)
    run(out, "majority", extras=())
    cells, _ = find_cells(out)
    (found,) = find_measurements(out, cells)[0].curves_of(cells)
    assert found == CURVES.read(CURVES.path(out, NSMC.name, "majority", 0))
    assert found.points == list(curve)
