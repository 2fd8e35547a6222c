"""Cells on disk, the rows made of them, and the published figures."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from corpora.foundation.errors import ResultError, cannot_write
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
from eval.cells.files import Gap, cell_path, drop_gap, find_cells, find_gaps, merge_results, retried, write_gap

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

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


def bare(cells: Sequence[Result]) -> list[Result]:
    """Return cells without the time that is noted while reading those that know none."""
    return [
        c.model_copy(update={"environment": {k: v for k, v in c.environment.items() if k != "finished"}}) for c in cells
    ]


def right(number: int) -> list[Prediction]:
    return ["positive"] * number + ["negative"] * (10 - number)


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


@pytest.mark.parametrize("others", [[], [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]])
def test_an_undefined_figure_is_no_value_but_a_reason(others: list[list[Prediction]]) -> None:
    predictions = [*others, [2.5] * 6]
    cells = [cell(p, task=STS, split=SCORES, seed=seed) for seed, p in enumerate(predictions)]
    pearson, f1 = rows_of_cells(STS, cells)
    assert (pearson.value, pearson.ci95, pearson.std, pearson.status) == (None, None, None, "ok")
    assert "Pearson" in pearson.reason
    assert f1.value is not None
    assert f1.reason == ""


def test_an_undefined_figure_is_null_on_disk(tmp_path: Path) -> None:
    constant = cell([2.5] * 6, task=STS, split=SCORES)
    write_result(tmp_path / "cell.json", constant)
    board = LeaderboardFile(schema=1, created="now", manifest={}, rows=rows_of_cells(STS, [constant]))
    for written in ((tmp_path / "cell.json").read_text(encoding="utf-8"), board.model_dump_json(by_alias=True)):
        assert "NaN" not in written
        json.loads(written, parse_constant=pytest.fail)
    assert read_result(tmp_path / "cell.json").metrics["pearson"] is None


def test_a_gap_is_a_row_for_each_metric_with_its_reason() -> None:
    rows = missing_rows(get_task("korquad"), "kobert", "unavailable", "run: curl")
    assert [(row.metric, row.value, row.status, row.reason) for row in rows] == [
        ("exact_match", None, "unavailable", "run: curl"),
        ("f1", None, "unavailable", "run: curl"),
    ]
    assert {(row.model, row.task, row.split, row.seeds) for row in rows} == {("kobert", "korquad", "dev", 0)}


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_cell_reads_back_as_it_was_written(tmp_path: Path) -> None:
    for n, original in enumerate((cell(right(8)), cell([1.25] * 6, task=STS, split=SCORES))):
        path = cell_path(tmp_path, original.task, original.model, n)
        write_result(path, original)
        assert read_result(path) == original
        assert json.loads(path.read_text(encoding="utf-8"))["schema"] == 1
    # The newest last, whatever its name.
    assert bare(find_cells(tmp_path)[0]) == [cell(right(8)), cell([1.25] * 6, task=STS, split=SCORES)]


def test_a_cell_keeps_what_its_score_interval_and_paired_tests_follow_from() -> None:
    result = cell(right(8))
    assert result.predictions == right(8)
    columns = result.metric_columns("accuracy")
    assert columns.shape == (10, 1)
    assert NSMC.metrics[0].fold(columns) == result.metrics["accuracy"] == 0.8


def whole() -> str:
    return json.dumps(cell(right(8)).model_dump(by_alias=True), ensure_ascii=False)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda: "", id="empty"),
        pytest.param(lambda: whole()[:200], id="truncated"),
        pytest.param(lambda: "[]", id="no object"),
        pytest.param(lambda: whole().replace('"schema": 1', '"schema": 2'), id="another schema"),
        pytest.param(lambda: whole().replace('"seed"', '"sead"'), id="misspelt key"),
        pytest.param(lambda: whole().encode("utf-8").replace(b"positive", b"\xff\xfe"), id="not UTF-8"),
        pytest.param(lambda: b"\x00" * 512, id="zeros"),
    ],
)
def test_a_damaged_cell_is_one_line_and_is_listed(
    write: Write, fails: Fails, tmp_path: Path, content: Callable[[], str | bytes]
) -> None:
    sound = cell(right(8))
    write_result(cell_path(tmp_path, "nsmc", "tfidf", 0), sound)
    damaged = write("results/nsmc/pressbert-scratch/seed-0.json", content())
    with fails(ResultError, damaged, "not a result of schema 1"):
        read_result(damaged)
    cells, errors = find_cells(tmp_path)
    assert bare(cells) == [sound]
    assert [error.where for error in errors] == [str(damaged)]


def test_only_whole_cells_are_found(write: Write, tmp_path: Path) -> None:
    assert find_cells(tmp_path) == ([], [])
    write("results/probe", "")
    write("results/nsmc/tfidf/.seed-0.json.abc.part", '{"half": ')
    assert find_cells(tmp_path) == ([], [])


def test_a_cell_of_a_model_with_a_slash_lies_in_one_folder(tmp_path: Path) -> None:
    assert cell_path(tmp_path, "nsmc", "klue/bert-base", 2) == tmp_path / "results/nsmc/klue--bert-base/seed-2.json"


def test_cells_stand_in_the_order_they_were_finished_in(tmp_path: Path) -> None:
    moments = [
        "2026-01-02T00:00:00.000002+00:00",
        "2026-01-01T00:00:00.000000+00:00",
        "2026-01-02T00:00:00.000001+00:00",
    ]
    for seed, moment in enumerate(moments):
        noted = cell(right(8), seed=seed).model_copy(update={"environment": {"finished": moment}})
        write_result(cell_path(tmp_path, "nsmc", "tfidf", seed), noted)
    cells, _ = find_cells(tmp_path)
    assert [c.seed for c in cells] == [1, 2, 0]
    assert [c.environment["finished"] for c in cells] == sorted(moments)


# --- gaps -----------------------------------------------------------------------------------------------------------

GAP = Gap(task="nsmc", model="mine", seed=1, status="failed", reason="OSError: no luck", at="2026-01-15")


def test_a_gap_counts_until_its_cell_is_finished_later(tmp_path: Path) -> None:
    write_gap(tmp_path, GAP)
    assert find_gaps(tmp_path) == [GAP]
    for finished, found in (("2026-01-14", [GAP]), ("2026-01-16", [])):
        noted = cell(right(8), seed=1).model_copy(update={"model": "mine", "environment": {"finished": finished}})
        write_result(cell_path(tmp_path, "nsmc", "mine", 1), noted)
        assert find_gaps(tmp_path) == found
    drop_gap(tmp_path, "nsmc", "mine", 1)
    assert not (tmp_path / "missing").exists()
    drop_gap(tmp_path, "nsmc", "mine", 1)


def test_a_folder_that_another_process_removes_is_made_again(tmp_path: Path) -> None:
    attempts = []

    def write() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise cannot_write(tmp_path, FileNotFoundError("gone")) from FileNotFoundError("gone")
        return "written"

    assert retried(write) == "written"
    (tmp_path / "file").write_text("here first", encoding="utf-8")
    with pytest.raises(ResultError):
        write_gap(tmp_path / "file", GAP)


def test_a_damaged_gap_is_one_line(tmp_path: Path, write: Write, fails: Fails) -> None:
    path = write("missing/nsmc/mine/seed-0.json", "{")
    with fails(ResultError, path, "not the note of a missing cell"):
        find_gaps(tmp_path)


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


def test_a_gap_is_a_row_where_nothing_is_finished_and_a_note_elsewhere() -> None:
    gaps = [GAP, GAP.model_copy(update={"model": "other", "status": "unavailable", "reason": "run: curl"})]
    rows = build_table([of("mine", 5)], gaps).rows
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
    none = build_table([old], [GAP], recipes={("nsmc", "mine"): new.recipe_sha256})
    assert shown(none.rows) == [("nsmc", "mine", "failed")]


def test_places_stand_with_the_ranking_metric_alone_and_need_two_models() -> None:
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


# --- merging --------------------------------------------------------------------------------------------------------


def put(folder: Path, result: Result) -> Path:
    path = cell_path(folder, result.task, result.model, result.seed)
    write_result(path, result)
    return path


def test_folders_are_merged_byte_for_byte_and_the_newest_of_a_cell_stays(tmp_path: Path) -> None:
    one, two, out = (tmp_path / name for name in ("one", "two", "out"))
    wanted = [put(one, of("a", 5, at="2026-01")), put(two, of("b", 6)), put(two, of("c", 7, at="2026-03"))]
    put(one, of("c", 1, at="2026-02"))
    put(out, of("a", 9, at="2025-12"))
    for folders in ([one, two], [two, one], [one, two, out]):
        assert merge_results(folders, out) == []
        merged = [out / path.relative_to(path.parents[3]) for path in wanted]
        assert [path.read_bytes() for path in merged] == [path.read_bytes() for path in wanted]
    assert len(list(out.rglob("*.json"))) == 3


def test_gaps_are_merged_and_give_way_to_cells(tmp_path: Path) -> None:
    one, two, out = (tmp_path / name for name in ("one", "two", "out"))
    write_gap(one, GAP)
    write_gap(two, GAP.model_copy(update={"model": "other"}))
    put(two, of("mine", 5, seed=1, at="2026-02"))
    assert merge_results([one, two], out) == []
    assert [gap.model for gap in find_gaps(out)] == ["other"]


def test_a_damaged_cell_is_told_of_and_not_merged(tmp_path: Path) -> None:
    put(tmp_path / "one", of("a", 5))
    damaged = put(tmp_path / "one", of("b", 5))
    damaged.write_text("{", encoding="utf-8")
    (error,) = merge_results([tmp_path / "one"], tmp_path / "out")
    assert error.where == str(damaged)
    assert len(list((tmp_path / "out").rglob("*.json"))) == 1


def test_a_folder_without_results_is_one_line(tmp_path: Path, fails: Fails) -> None:
    with fails(ResultError, tmp_path, "no results in it"):
        merge_results([tmp_path], tmp_path / "out")


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


def named(row: Row) -> str:
    return f"{row.model}-{row.task}-{row.metric}"


def test_the_published_table_is_there_to_the_digit() -> None:
    encoders = [row for row in REPORTED if row.model != "kpfsbert"]
    figures = {(row.model, row.task, row.metric): f"{100 * (row.value or 0):.2f}" for row in encoders}
    assert len(encoders) == len(figures) == 35
    assert figures == {
        (model, *column): text
        for model, texts in PUBLISHED.items()
        for column, text in zip(COLUMNS, texts, strict=True)
    }


@pytest.mark.parametrize("row", REPORTED, ids=named)
def test_a_published_figure_has_four_decimals_and_says_where_it_was_published(row: Row) -> None:
    assert row.value == round(row.value or 0, 4)
    assert row.reference
    assert (row.source, row.status, row.reason) == ("reported", "ok", "")
    assert (row.seeds, row.std, row.ci95, row.data_sha256) == (1, None, None, "")


@pytest.mark.parametrize("row", REPORTED, ids=named)
def test_a_published_figure_belongs_to_a_task_its_split_and_its_metric(row: Row) -> None:
    task = get_task(row.task)
    assert row.task == task.name == task.official_name
    assert row.split == task.eval_split
    assert row.num_examples == task.num_examples[task.eval_split]
    assert row.metric in {metric.key for metric in task.metrics}


COUNTED = [row for row in REPORTED if row.metric in {"exact_match", "accuracy"}]


@pytest.mark.parametrize("row", COUNTED, ids=named)
def test_a_published_share_is_one_that_so_many_examples_can_have(row: Row) -> None:
    hundredths, n = round(10_000 * (row.value or 0)), row.num_examples
    guess = hundredths * n // 10_000
    truncated = {10_000 * k // n for k in range(guess - 2, guess + 3)}
    rounded = {(20_000 * k + n) // (2 * n) for k in range(guess - 2, guess + 3)}
    assert hundredths in truncated | rounded


@pytest.mark.parametrize(
    ("model", "task", "metric", "other"),
    [("korbert", "klue-sts", "pearson", "89.52"), ("mbert", "korquad", "exact_match", "69.10")],
)
def test_a_figure_that_another_source_prints_differently_says_so(
    model: str, task: str, metric: str, other: str
) -> None:
    (row,) = (row for row in REPORTED if (row.model, row.task, row.metric) == (model, task, metric))
    assert other in row.note
    assert other not in PUBLISHED[model]


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


@pytest.mark.parametrize("name", all_tasks())
def test_a_task_and_its_sample_bring_the_published_figures_of_the_task(name: str) -> None:
    task = get_task(name)
    rows = reported_rows([task])
    assert rows == [row for row in REPORTED if row.task == task.official_name]
    substitute = replace(task, name="substitute", base=task.official_name)
    assert reported_rows([task, substitute]) == rows
