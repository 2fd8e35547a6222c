"""The switch --few-shot: columns of their own, every seed with examples of its own, and no grid beside it."""

import json
from pathlib import Path

import pytest

from corpora.foundation.errors import UsageError
from downstream.finetuning.result import read_result
from eval import run_all
from eval.cells.files import cell_path
from eval.contestants.majority import Majority


def test_columns_of_few_examples_stand_beside_the_full_one(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, list[str]]] = []
    fit = Majority.fit

    def note(self: Majority, task: object, train: list[object]) -> object:
        seen.append((task.name, [example.id for example in train]))  # type: ignore[attr-defined]
        return fit(self, task, train)  # type: ignore[arg-type]

    monkeypatch.setattr(Majority, "fit", note)
    arguments = ["--tasks", "nsmc-sample", "--few-shot", "64,16", "--models", "majority", "tfidf", "--seeds", "2"]
    assert run_all.main([*arguments, "--out", str(out), "--without", "noise", "cost"]) == 0
    assert [(name, len(ids)) for name, ids in seen] == [
        ("nsmc-sample", 420),
        ("nsmc-16shot-sample", 16),
        ("nsmc-16shot-sample", 16),
        ("nsmc-64shot-sample", 64),
        ("nsmc-64shot-sample", 64),
    ]
    assert seen[1][1] != seen[2][1]
    rows = json.loads((out / "leaderboard.json").read_text(encoding="utf-8"))["rows"]
    tfidf = {row["task"]: row for row in rows if row["model"] == "tfidf"}
    assert list(tfidf) == ["nsmc-sample", "nsmc-16shot-sample", "nsmc-64shot-sample"]
    assert [row["seeds"] for row in tfidf.values()] == [1, 2, 2]
    assert tfidf["nsmc-16shot-sample"]["value"] < tfidf["nsmc-sample"]["value"]
    assert "16개 학습" in (out / "leaderboard.md").read_text(encoding="utf-8")
    first = read_result(cell_path(out, "nsmc-16shot-sample", "tfidf", 0))
    assert first.recipe_sha256 == read_result(cell_path(out, "nsmc-16shot-sample", "tfidf", 1)).recipe_sha256
    capsys.readouterr()


def test_what_makes_no_sense_is_one_line(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="more labels than --few-shot allows"):
        run_all.main(["--tasks", "nsmc-sample", "--few-shot", "16", "--grid", "paper", "--out", str(out)])
    for text in ("16,x", "0", ""):
        with pytest.raises((UsageError, SystemExit)):
            run_all.main(["--few-shot", text, "--out", str(out)])
    capsys.readouterr()
