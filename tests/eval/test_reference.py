"""The reference report: one command makes it, from a plan whose tasks and models are known."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from corpora.foundation.errors import ResultError, UsageError
from downstream.task import FinetuneConfig, get_task
from eval.cells import measurements
from eval.cells import run as running
from eval.cells.archive import ARCHIVE
from eval.cells.files import cell_path
from eval.contestants.contestant import load_leaderboard
from eval.measures.noise import NOISES, robustness
from eval.reference import REFERENCE_TOML, main, publish, refuse_absolute_folders

Fails = Callable[..., AbstractContextManager[None]]


def test_the_plan_has_the_models_asked_for_and_three_seeds_on_known_tasks() -> None:
    plan = load_leaderboard(REFERENCE_TOML)
    assert {"majority", "tfidf", "pressbert-scratch", "pressbert-mini", "e5-small"} <= set(plan.models)
    assert plan.seeds == 3
    official = [name for name in plan.tasks if get_task(name).is_official]
    assert plan.tasks[: len(official)] == official
    assert {"nsmc", "klue-nli", "klue-sts", "parakqc"} <= set(official)
    assert {f"kobest-{name}" for name in ("boolq", "copa", "hellaswag", "sentineg", "wic")} <= set(official)
    assert {"klue-tc-pool", "klue-dp-devsplit", "paws-x-devsplit"} <= set(plan.tasks)
    assert not any(get_task(name).is_sample for name in plan.tasks)
    for model in plan.models.values():
        assert not Path(model.source).is_absolute(), model.name
        assert set(model.overrides(get_task("nsmc"))) <= set(FinetuneConfig.model_fields), model.name


def test_one_command_makes_the_report_and_leaves_the_cells_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        measurements, "robustness", partial(robustness, noises=[NOISES["missing-spaces"]], max_examples=20)
    )
    work, out = tmp_path / "work", tmp_path / "reports"
    (out / "model-index").mkdir(parents=True)
    (out / "model-index" / "gone.yml").write_text("", encoding="utf-8")
    asked = ["--tasks", "nsmc-sample", "klue-sts-sample", "--models", "majority", "tfidf"]
    assert main([*asked, "--work", str(work), "--out", str(out)]) == 0
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert files == {
        *(f"leaderboard.{kind}" for kind in ("json", "csv", "md", "en.md", "html")),
        *(f"model-index/{model}.yml" for model in ("majority", "tfidf")),
        *("contamination.json", "contamination.md"),
        *(f"contamination/{task}/train.hits.tsv" for task in ("nsmc-sample", "klue-sts-sample")),
        "cells.tar.xz",
    }
    assert len(list((work / "results").rglob("seed-*.json"))) == 4
    page = (out / "leaderboard.html").read_text(encoding="utf-8")
    for section in ("table", "forest", "cost", "noise", "errors", "contamination", "manifest"):
        assert f'<section id="{section}"' in page
    assert str(tmp_path) not in page
    assert json.loads((out / "leaderboard.json").read_text(encoding="utf-8"))["rows"]
    assert str(out / "leaderboard.html") in capsys.readouterr().err
    before = {path: (out / path).read_bytes() for path in files}
    assert main([*asked, "--work", str(work), "--out", str(out)]) == 0
    assert {path: (out / path).read_bytes() for path in files} == before


def test_whoever_has_the_archive_runs_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        measurements, "robustness", partial(robustness, noises=[NOISES["missing-spaces"]], max_examples=20)
    )
    asked = ["--tasks", "nsmc-sample", "--models", "majority", "tfidf", "--out", str(tmp_path / "reports")]
    assert main([*asked, "--work", str(tmp_path / "one")]) == 0
    before = (tmp_path / "reports" / ARCHIVE).read_bytes()

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("run again")

    monkeypatch.setattr(running, "run_job", refuse)
    assert main([*asked, "--work", str(tmp_path / "two")]) == 0
    cells = [
        {path.relative_to(tmp_path / work): path.read_bytes() for path in (tmp_path / work).rglob("seed-*.json")}
        for work in ("one", "two")
    ]
    assert cells[0] == cells[1]
    assert {path.parts[0] for path in cells[0]} >= {"results", "noise", "cost"}
    assert (tmp_path / "reports" / ARCHIVE).read_bytes() == before
    capsys.readouterr()


def test_the_tables_are_written_again_from_the_archive_and_a_mix_of_states_is_refused_or_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: Fails
) -> None:
    monkeypatch.setattr(
        measurements, "robustness", partial(robustness, noises=[NOISES["missing-spaces"]], max_examples=20)
    )
    work, out = tmp_path / "one", tmp_path / "reports"
    asked = ["--tasks", "nsmc-sample", "--models", "majority", "tfidf", "--out", str(out)]
    assert main([*asked, "--work", str(work)]) == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr(running, "run_job", lambda *_, **__: pytest.fail("run"))
    assert main([*asked, "--tables", "--work", str(tmp_path / "two")]) == 0
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    # A cell of another state, and one from before anything but its predictions was noted.
    path = cell_path(work, "nsmc-sample", "tfidf", 0)
    cell = json.loads(path.read_text(encoding="utf-8"))
    cell["environment"]["git"] = "f" * 40 + "+"
    for name in ("ids", "targets", "clusters", "higher_is_better"):
        del cell[name]
    del cell["digest"]
    path.write_text(json.dumps(cell), encoding="utf-8")
    (out / ARCHIVE).unlink()
    with fails(ResultError, work / "leaderboard.json", "2 states of the source"):
        main([*asked, "--work", str(work)])
    assert main([*asked, "--work", str(work), "--mixed-states"]) == 0
    assert "소스 상태 2가지" in (out / "leaderboard.md").read_text(encoding="utf-8")
    rows = {row["model"]: row for row in json.loads((out / "leaderboard.json").read_text(encoding="utf-8"))["rows"]}
    assert rows["tfidf"]["commit"] == "f" * 40 + "+"
    capsys.readouterr()


def test_there_is_nothing_to_publish_without_a_leaderboard(tmp_path: Path, fails: Fails) -> None:
    with fails(ResultError, tmp_path, "no leaderboard"):
        publish(tmp_path, tmp_path / "reports")


def test_a_report_names_no_folder_of_this_machine(tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "leaderboard.html").write_text("", encoding="utf-8")
    for encoder, is_refused in ((str(tmp_path / "e5"), True), ("teachers/e5", False), ("klue/bert-base", False)):
        manifest = {"experiments": [{"model": "e5", "encoder": encoder}]}
        (tmp_path / "leaderboard.json").write_text(json.dumps({"manifest": manifest}), encoding="utf-8")
        if is_refused:
            with fails(ResultError, tmp_path / "leaderboard.json", "e5 was measured from", "a folder of this machine"):
                publish(tmp_path, tmp_path / "reports")
            assert not (tmp_path / "reports").exists()
        else:
            refuse_absolute_folders(tmp_path)
    asked = ["--models", f"multilingual-e5-small={tmp_path}", "--out", str(tmp_path / "reports")]
    with fails(UsageError, "--models", "a folder of this machine", "give a relative path"):
        main(asked)
    assert not (tmp_path / "reports").exists()
