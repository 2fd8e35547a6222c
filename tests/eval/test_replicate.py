"""The replication: published and measured figures side by side, run end to end with a stand-in."""

from pathlib import Path

import pytest

from corpora.foundation.errors import ResultError
from eval import replicate
from eval.board.rows import Row, read_reported
from eval.contestants.contestant import load_leaderboard


def row(model: str, task: str, value: float | None, **more: object) -> Row:
    return Row(model=model, task=task, metric="accuracy", value=value, **more)  # type: ignore[arg-type]


def test_a_published_figure_is_compared_with_the_interval_of_the_measured_one() -> None:
    rows = [
        row("a", "nsmc", 0.90, source="reported"),
        row("b", "nsmc", 0.80, source="reported"),
        row("c", "nsmc", 0.70, source="reported"),
        row("d", "nsmc", 0.60, source="reported"),
        row("e", "nsmc", 0.50, source="reported"),
        row("a", "nsmc", 0.89, ci95=(0.88, 0.90)),
        row("b", "nsmc", 0.83, ci95=(0.81, 0.84)),
        row("c", "nsmc", None, status="unavailable", reason="run: curl x"),
        row("d", "nsmc-sample", 0.99, ci95=(0.98, 1.0)),
    ]
    found = replicate.compare_with_published(rows, ["a", "b", "c", "d"])
    assert [one.is_inside for one in found] == [True, False, None, None]
    assert [one.difference for one in found][:2] == pytest.approx([-0.01, 0.03])
    text = replicate.render(found)
    assert "| a | nsmc | accuracy | 90.00 | 89.00 | 88.00 to 90.00 | -1.00 | yes |" in text
    assert "| b | nsmc | accuracy | 80.00 | 83.00 | 81.00 to 84.00 | +3.00 | no |" in text
    assert "| c | nsmc | accuracy | 70.00 | — |  |  | unavailable |" in text
    assert "not comparable: nsmc-sample |" in text
    assert "4 published figures, 2 compared, 1 inside the measured interval." in text
    assert "- c · nsmc: run: curl x" in text


def test_it_runs_end_to_end_and_reports_again_from_finished_cells(
    tiny_encoder: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked = ["--models", f"kpfbert={tiny_encoder}", "--tasks", "nsmc-sample", "klue-sts"]
    asked += ["--seeds", "2", "--set", "epochs=0.1", "--data", str(tmp_path), "--out", str(out)]
    assert replicate.main(asked) == 1  # the official file is missing
    printed = capsys.readouterr().out
    assert "not comparable: nsmc-sample |" in printed
    assert "| kpfbert | klue-sts | pearson | 92.95 | — |  |  | unavailable |" in printed
    assert "klue-sts-v1.1_dev.json" in printed
    assert (out / replicate.REPORT).read_text(encoding="utf-8") in printed
    assert replicate.main(["--out", str(out), "--report", "--models", "kpfbert"]) == 0
    assert "not comparable: nsmc-sample |" in capsys.readouterr().out
    with pytest.raises(ResultError, match="no leaderboard"):
        replicate.main(["--out", str(tmp_path / "empty"), "--report"])


def test_the_plan_is_five_models_on_five_tasks_with_three_seeds() -> None:
    plan = load_leaderboard(replicate.REPLICATE_TOML)
    assert (plan.seeds, len(plan.tasks), len(plan.models)) == (3, 5, 5)
    assert {(row.model, row.task) for row in read_reported() if row.model in plan.models} == {
        (model, task) for model in plan.models for task in plan.tasks
    }
