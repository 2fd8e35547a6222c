"""Rows made of finished and failed cells, and the published figures."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from downstream.encoders.hub import ENCODERS
from downstream.finetuning.result import Result, read_result, score, write_result
from downstream.metrics import bootstrap_ci95
from downstream.task import Prediction, Split, Task, TextExample, all_tasks, get_task
from eval.board.rows import (
    REPORTED_JSON,
    LeaderboardFile,
    Row,
    build_table,
    missing_rows,
    read_reported,
    reported_rows,
    rows_of_cells,
)
from eval.cells.files import FailedCell

NSMC, STS = get_task("nsmc"), get_task("klue-sts")
SENTIMENTS = Split(tuple(TextExample(str(k), f"평 {k}", None, "positive") for k in range(10)), "e" * 64)
SCORES = Split(tuple(TextExample(str(k), "가", "나", float(k)) for k in range(6)), "f" * 64)


def cell(
    predictions: Sequence[Prediction],
    *,
    task: Task = NSMC,
    split: Split = SENTIMENTS,
    seed: int = 0,
    recipe: str = "a",
    train_s: float = 1.0,
) -> Result:
    return score(
        task,
        split,
        predictions,
        model="pressbert-scratch",
        seed=seed,
        data_sha256="d" * 64,
        recipe={"name": recipe},
        recipe_sha256=recipe * 64,
        train_s=train_s,
        eval_s=0.5,
        device="cpu",
        num_parameters=7,
    )


def right(number: int) -> list[Prediction]:
    return ["positive"] * number + ["negative"] * (10 - number)


FAILED = FailedCell(task="nsmc", model="mine", seed=1, status="failed", reason="OSError: no luck", at="2026-01-15")


def test_figures_of_another_state_than_the_newest_cells_are_marked() -> None:
    moments = {"old": ("1" * 40, "2026-01-01"), "newest": ("2" * 40, "2026-01-03"), "same": ("2" * 40, "2026-01-02")}
    cells = [
        cell(right(8)).model_copy(update={"model": model, "environment": {"git": state, "finished": finished}})
        for model, (state, finished) in moments.items()
    ]
    rows = build_table([*cells, cell(right(7)).model_copy(update={"model": "unknown"})], []).rows
    assert {row.model: row.is_older_state for row in rows if row.source == "measured"} == {
        "old": True,
        "newest": False,
        "same": False,
        "unknown": False,
    }


# --- rows -----------------------------------------------------------------------------------------------------------


def test_seeds_are_folded_into_mean_deviation_and_interval() -> None:
    cells = [cell(right(n), seed=seed, train_s=float(n)) for seed, n in enumerate((8, 9, 7))]
    (row,) = rows_of_cells(NSMC, cells)
    assert row.value == pytest.approx(0.8)
    assert row.std == pytest.approx(0.1)  # sample deviation of 0.8, 0.9, 0.7: squares 0, 1, 1 over n − 1 = 2
    assert row.ci95 is not None
    assert row.ci95[0] < 0.8 < row.ci95[1]
    assert row.ci95 == bootstrap_ci95(NSMC.metrics[0], [c.metric_columns("accuracy") for c in cells])
    assert (row.seeds, row.train_s, row.eval_s) == (3, 8.0, 0.5)
    assert (row.model, row.task, row.metric, row.split) == ("pressbert-scratch", "nsmc", "accuracy", "test")
    assert (row.source, row.status, row.reason, row.note) == ("measured", "ok", "", "")
    assert (row.num_examples, row.num_parameters, row.data_sha256) == (10, 7, "d" * 64)


def test_a_single_seed_has_an_interval_and_no_deviation() -> None:
    (row,) = rows_of_cells(NSMC, [cell(right(6))])
    assert row.value == pytest.approx(0.6)
    assert row.std is None
    assert row.ci95 is not None
    assert row.ci95[0] < 0.6 < row.ci95[1]


def test_equal_seeds_deviate_by_nothing() -> None:
    (row,) = rows_of_cells(NSMC, [cell(right(6), seed=seed) for seed in range(3)])
    assert row.std == 0.0


def test_a_perfect_score_has_an_interval_without_width() -> None:
    (row,) = rows_of_cells(NSMC, [cell(right(10))])
    assert (row.value, row.ci95) == (1.0, (1.0, 1.0))


def test_cells_of_another_recipe_are_left_out_of_the_mean() -> None:
    cells = [cell(right(1), seed=2, recipe="b"), cell(right(9), seed=1), cell(right(7), seed=0)]
    (row,) = rows_of_cells(NSMC, cells)
    assert (row.value, row.seeds) == (pytest.approx(0.8), 2)


def test_a_task_gives_a_row_for_each_of_its_metrics() -> None:
    rows = rows_of_cells(STS, [cell([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], task=STS, split=SCORES)])
    assert [(row.metric, row.value) for row in rows] == [("pearson", pytest.approx(1.0)), ("f1", 1.0)]


def test_an_undefined_figure_is_no_value_but_a_reason() -> None:
    constant: list[Prediction] = [2.5] * 6
    for predictions in ([constant], [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], constant]):
        cells = [cell(p, task=STS, split=SCORES, seed=seed) for seed, p in enumerate(predictions)]
        pearson, f1 = rows_of_cells(STS, cells)
        assert (pearson.value, pearson.ci95, pearson.std, pearson.status) == (None, None, None, "ok"), len(cells)
        assert "Pearson" in pearson.reason, len(cells)
        assert f1.value is not None, len(cells)
        assert f1.reason == "", len(cells)


def test_an_undefined_figure_is_null_on_disk(tmp_path: Path) -> None:
    constant = cell([2.5] * 6, task=STS, split=SCORES)
    write_result(tmp_path / "cell.json", constant)
    board = LeaderboardFile(schema=1, created="now", manifest={}, rows=rows_of_cells(STS, [constant]))
    for written in ((tmp_path / "cell.json").read_text(encoding="utf-8"), board.model_dump_json(by_alias=True)):
        assert "NaN" not in written
        json.loads(written, parse_constant=pytest.fail)
    assert read_result(tmp_path / "cell.json").metrics["pearson"] is None


def test_a_failed_cell_is_a_row_for_each_metric_with_its_reason() -> None:
    rows = missing_rows(get_task("korquad"), "kobert", "unavailable", "run: curl")
    assert [(row.metric, row.value, row.status, row.reason) for row in rows] == [
        ("exact_match", None, "unavailable", "run: curl"),
        ("f1", None, "unavailable", "run: curl"),
    ]
    assert {(row.model, row.task, row.split, row.seeds) for row in rows} == {("kobert", "korquad", "dev", 0)}


# --- tables ---------------------------------------------------------------------------------------------------------


def of(model: str, number: int, *, task: Task = NSMC, seed: int = 0, recipe: str = "a", at: str = "2026") -> Result:
    return cell(right(number), seed=seed, recipe=recipe).model_copy(
        update={"model": model, "task": task.name, "environment": {"finished": at}}
    )


def shown(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    return [(row.task, row.model, row.status) for row in rows if row.source == "measured"]


def test_what_was_asked_for_comes_first_and_the_rest_by_name() -> None:
    tasks = [NSMC, get_task("nsmc-sample"), get_task("klue-nli")]
    cells = [of(model, 5, task=task) for task in tasks for model in ("c", "b", "a")]
    table = build_table(cells, [], tasks=["nsmc-sample", "korquad"], models=["b", "x"])
    order = [(task, model, "ok") for task in ("nsmc-sample", "klue-nli", "nsmc") for model in ("b", "a", "c")]
    assert shown(table.rows) == order
    assert table.rows == build_table(cells[::-1], [], tasks=["nsmc-sample", "korquad"], models=["b", "x"]).rows
    assert {row.task for row in table.rows if row.source == "reported"} == {"nsmc", "klue-nli"}


def test_a_failed_cell_is_a_row_where_nothing_is_finished_and_a_note_elsewhere() -> None:
    failed = [FAILED, FAILED.model_copy(update={"model": "other", "status": "unavailable", "reason": "run: curl"})]
    rows = build_table([of("mine", 5)], failed).rows
    assert shown(rows) == [("nsmc", "mine", "ok"), ("nsmc", "other", "unavailable")]
    assert rows[0].note == "일부 시드 실패: OSError: no luck"
    assert (rows[1].reason, rows[1].value) == ("run: curl", None)


def test_the_recipe_that_was_asked_for_counts_and_not_a_newer_one() -> None:
    old, new = of("mine", 5, recipe="a", at="2026-01"), of("mine", 9, recipe="b", at="2026-02")
    assert [row.value for row in build_table([old, new], []).rows[:1]] == [0.9]
    asked = build_table([old, new], [], recipes={("nsmc", "mine"): old.recipe_sha256})
    assert [row.value for row in asked.rows[:1]] == [0.5]
    assert asked.cells == [old]
    # Of a recipe with no cell at all an older figure would be somebody else's.
    none = build_table([old], [FAILED], recipes={("nsmc", "mine"): new.recipe_sha256})
    assert shown(none.rows) == [("nsmc", "mine", "failed")]


def test_ranks_are_of_the_ranking_metric_alone_and_need_two_models() -> None:
    figures = [float(k) for k in range(6)]
    cells = [
        cell(p, task=STS, split=SCORES).model_copy(update={"model": model, "environment": {"finished": "2026"}})
        for model, p in (("one", figures), ("two", [0.0, 1.0, 3.0, 2.0, 5.0, 4.0]))
    ]
    table = build_table(cells, [])
    ranks = {(row.model, row.metric): row.rank for row in table.rows if row.source == "measured"}
    assert ranks == {("one", "pearson"): (1, 2), ("two", "pearson"): (1, 2), ("one", "f1"): None, ("two", "f1"): None}
    assert [(c.a, c.b, c.verdict) for c in table.comparisons] == [("one", "two", "tie")]
    assert [row.rank for row in build_table(cells[:1], []).rows[:2]] == [None, None]


def test_cells_of_a_task_that_is_not_known_are_left_out() -> None:
    table = build_table([of("mine", 5).model_copy(update={"task": "of-tomorrow"}), of("mine", 5)], [])
    assert shown(table.rows) == [("nsmc", "mine", "ok")]
    assert len(table.cells) == 1


# --- the published comparison ---------------------------------------------------------------------------------------

COLUMNS = (
    ("nsmc", "accuracy"),
    ("klue-nli", "accuracy"),
    ("klue-sts", "pearson"),
    ("korquad", "exact_match"),
    ("korquad", "f1"),
    ("klue-mrc", "exact_match"),
    ("klue-mrc", "rouge_w"),
)
# KPFBERT/kpfbert README of 2021-10-22.
PUBLISHED = {
    "kpfbert": ("91.29", "87.67", "92.95", "86.42", "94.95", "69.51", "75.84"),
    "klue-bert": ("90.62", "81.33", "91.14", "83.84", "93.23", "61.91", "68.38"),
    "korbert": ("90.46", "80.56", "89.85", "20.11", "82.00", "30.56", "58.59"),
    "kobert": ("89.92", "79.53", "86.17", "16.85", "71.36", "28.56", "42.06"),
    "mbert": ("87.33", "73.30", "85.66", "68.10", "90.02", "44.58", "55.92"),
}
REPORTED = read_reported()


def test_the_published_table_is_there_to_the_digit() -> None:
    encoders = [row for row in REPORTED if row.model in PUBLISHED]
    figures = {(row.model, row.task, row.metric): f"{100 * (row.value or 0):.2f}" for row in encoders}
    assert len(encoders) == len(figures) == 35
    assert figures == {
        (model, *column): text
        for model, texts in PUBLISHED.items()
        for column, text in zip(COLUMNS, texts, strict=True)
    }


def test_authors_tables_are_there_to_the_digit() -> None:
    # NSMC, KorNLI, KorSTS, KorQuAD (exact match, F1), hate speech.
    tables = {
        "koelectra-base-v3": "90.63 82.24 85.53 84.83 93.45 67.61",
        "koelectra-small-v3": "89.36 78.60 80.79 82.11 91.13 63.07",
        "kcelectra-base": "91.71 81.65 82.65 70.60 90.11",
        "tunib-electra-ko-base": "90.95 82.27 85.00 64.01 90.32 71.40",
        "tunib-electra-ko-small": "89.56 77.08 78.76 61.17 87.64 64.50",
    }
    others = [row for row in REPORTED if row.model not in {*PUBLISHED, "kpfsbert"}]
    found = {
        name: " ".join(f"{100 * (row.value or 0):.2f}" for row in others if row.model == name)
        for name in {row.model for row in others}
    }
    assert found == tables
    assert found.keys() <= ENCODERS.keys()


def test_a_published_figure_says_where_it_was_published_and_belongs_to_a_task_its_split_and_its_metric() -> None:
    for row in REPORTED:
        assert row.value == round(row.value or 0, 4), row
        assert row.reference, row
        assert (row.source, row.status, row.reason) == ("reported", "ok", ""), row
        assert (row.seeds, row.std, row.ci95, row.data_sha256) == (1, None, None, ""), row
        task = get_task(row.task)
        assert row.task == task.name == task.official_name, row
        assert row.split == task.eval_split, row
        assert row.num_examples == task.num_examples[task.eval_split], row
        assert row.metric in {metric.key for metric in task.metrics}, row


def test_a_published_share_is_one_that_so_many_examples_can_have() -> None:
    counted = [row for row in REPORTED if row.metric in {"exact_match", "accuracy"}]
    assert counted
    for row in counted:
        hundredths, n = round(10_000 * (row.value or 0)), row.num_examples
        guess = hundredths * n // 10_000
        truncated = {10_000 * k // n for k in range(guess - 2, guess + 3)}
        rounded = {(20_000 * k + n) // (2 * n) for k in range(guess - 2, guess + 3)}
        assert hundredths in truncated | rounded, row


def test_a_figure_that_another_source_prints_differently_says_so() -> None:
    for model, task, metric, other in (
        ("korbert", "klue-sts", "pearson", "89.52"),
        ("mbert", "korquad", "exact_match", "69.10"),
    ):
        (row,) = (row for row in REPORTED if (row.model, row.task, row.metric) == (model, task, metric))
        assert other in row.note, model
        assert other not in PUBLISHED[model], model


def test_notes_on_reported_figures_are_in_both_languages() -> None:
    noted = [row for row in REPORTED if row.note]
    assert noted
    for row in noted:
        assert row.note_en.isascii()
        assert re.findall(r"[0-9.]+[0-9]", row.note_en) == re.findall(r"[0-9.]+[0-9]", row.note)


def test_answers_that_were_cut_at_white_space_carry_a_note() -> None:
    noted = {(row.model, row.task, row.metric) for row in REPORTED if "23.92" in row.note}
    impossible = {
        (row.model, row.task, row.metric)
        for row in REPORTED
        if (row.task, row.metric) == ("korquad", "exact_match") and (row.value or 0) < 0.2392
    }
    assert noted == impossible == {(model, "korquad", "exact_match") for model in ("korbert", "kobert")}


def test_the_file_of_published_figures_names_its_schema() -> None:
    content = json.loads(REPORTED_JSON.read_text(encoding="utf-8"))
    assert content["schema"] == 1
    assert content["about"]


def test_a_task_and_its_sample_bring_the_published_figures_of_the_task() -> None:
    for name, task in all_tasks().items():
        rows = reported_rows([task])
        assert rows == [row for row in REPORTED if row.task == task.official_name], name
        substitute = replace(task, name="substitute", base=task.official_name)
        assert reported_rows([task, substitute]) == rows, name
