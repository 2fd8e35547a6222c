"""The customer's own commands from beginning to end."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from downstream.task import get_task

ROOT = Path(__file__).resolve().parents[1]
FORMS = {f"leaderboard.{kind}" for kind in ("json", "md", "en.md", "html", "csv")}
FOLDERS = {"results", "cost", "curves", "model-index"}


def leaderboard(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "eval/run_all.py", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def rows_in(out: Path, source: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = json.loads((out / "leaderboard.json").read_text(encoding="utf-8"))["rows"]
    return {(row["model"], row["task"], row["metric"]): row for row in rows if row["source"] == source}


@pytest.mark.slow
def test_the_bundled_models_fill_the_sample_and_a_second_run_skips_them(tmp_path: Path) -> None:
    models, tasks = ("majority", "tfidf", "pressbert-scratch"), ("nsmc-sample", "korquad-sample")
    # A few steps: that it learns is shown elsewhere, here it only has to go the whole way.
    arguments = ("--models", *models, "--tasks", *tasks, "--seeds", 1, "--set", "epochs=0.05", "--out", tmp_path)
    arguments += ("--without", "noise")
    first = leaderboard(*arguments)
    assert first.returncode == 0, first.stderr
    assert {path.name for path in tmp_path.iterdir()} == FORMS | FOLDERS
    rows = rows_in(tmp_path, "measured")
    metrics = {"nsmc-sample": ("accuracy",), "korquad-sample": ("exact_match", "f1")}
    assert set(rows) == {(model, task, metric) for model in models for task in tasks for metric in metrics[task]}
    for (model, task, _), row in rows.items():
        assert row["status"] == "ok"
        assert row["ci95"][0] <= row["value"] <= row["ci95"][1]
        assert row["num_examples"] == get_task(task).num_examples[row["split"]]
        assert (row["num_parameters"] == 1) == (model == "majority")
    assert len(rows_in(tmp_path, "reported")) == (5 + 5) * 3
    assert all(title in first.stdout for title in (*models, "kpfBERT", "KLUE-BERT", "KorBERT", "KoBERT", "mBERT"))

    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.json")}
    second = leaderboard(*arguments)
    assert len(written) == len(models) * len(tasks)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.json")} == written
    assert second.returncode == 0
    assert second.stdout == first.stdout
    assert rows_in(tmp_path, "measured") == rows


@pytest.mark.slow
@pytest.mark.real_data
def test_the_baselines_score_the_whole_of_nsmc_beside_the_published_figures(real_data: Path, tmp_path: Path) -> None:
    arguments = ("--tasks", "nsmc", "--models", "majority", "tfidf", "--data", real_data, "--out", tmp_path)
    done = leaderboard(*arguments, "--without", "noise", "cost")
    assert done.returncode == 0, done.stderr
    rows = rows_in(tmp_path, "measured")
    majority, tfidf = (rows[model, "nsmc", "accuracy"] for model in ("majority", "tfidf"))
    labels = [
        Counter(line.rsplit("\t", 1)[1] for line in path.read_text(encoding="utf-8").splitlines()[1:])
        for path in (real_data / "nsmc" / "ratings_train.txt", real_data / "nsmc" / "ratings_test.txt")
    ]
    ((most_frequent, _),) = labels[0].most_common(1)
    assert majority["value"] == labels[1][most_frequent] / 50_000
    assert tfidf["value"] >= 0.870
    for row in (majority, tfidf):
        assert (row["status"], row["split"], row["num_examples"]) == ("ok", "test", 50_000)
        assert row["ci95"][0] < row["value"] < row["ci95"][1]
        assert row["ci95"][1] - row["ci95"][0] < 0.01
    reported = rows_in(tmp_path, "reported")
    assert len(reported) == 10
    table = (tmp_path / "leaderboard.md").read_text(encoding="utf-8")
    assert all(f"{100 * row['value']:.2f}" in table for row in (*rows.values(), *reported.values()))
    assert all(f"{100 * row['value']:.2f}" in done.stdout for row in (*rows.values(), *reported.values()))
