"""The tables of a guide that a command writes: figures of the report, marks of the tests, nothing else on the page."""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from corpora.foundation.errors import UsageError
from eval.board.guide import GUIDES, fill_results, read_block, update_guides, write_block

Fails = Callable[..., AbstractContextManager[None]]
ROOT = Path(__file__).parents[3]

TABLE = """\
| task | `a` | `b` | `c` | `a` − `b` [95 %] |
| --- | ---: | ---: | ---: | ---: |
| `nsmc` | | old | 1.00 | |
| [`klue-nli`](x.md) | | | | |
| `klue-sts` | | | | |"""
FILLED = """\
| task | `a` | `b` | `c` | `a` − `b` [95 %] |
| --- | ---: | ---: | ---: | ---: |
| `nsmc` | **90.00** | 80.12 | 70.00 | +9.88 [+8.00, +11.00] * |
| [`klue-nli`](x.md) | 50.00 | 60.00 | – | -10.00 [-20.00, +1.00] |
| `klue-sts` | – | **70.00** | – | – |"""


def row(
    task: str, model: str, value: float | None, metric: str = "accuracy", source: str = "measured"
) -> dict[str, Any]:
    return {"task": task, "model": model, "metric": metric, "value": value, "source": source}


def pair(task: str, a: str, b: str, difference: float | None, ci95: list[float] | None, verdict: str) -> dict[str, Any]:
    figures = {"difference": difference, "ci95": ci95, "verdict": verdict, "is_clean_subset": task == "nsmc"}
    return {"task": task, "a": a, "b": b} | figures


REPORT = {
    "rows": [
        row("nsmc", "a", 0.9),
        row("nsmc", "b", 0.80123),
        row("nsmc", "b", 0.99, source="published"),
        row("nsmc", "c", 0.7),
        row("klue-nli", "a", 0.5),
        row("klue-nli", "b", 0.6),
        row("klue-nli", "c", None),
        row("klue-sts", "b", 0.7, "pearson"),
        row("klue-sts", "a", 0.1, "f1"),  # not what the task ranks by
    ],
    "comparisons": [
        pair("nsmc", "a", "b", 0.0988, [0.08, 0.11], "better"),
        pair("nsmc", "c", "b", -0.1, [-0.2, -0.1], "better"),
        pair("klue-nli", "b", "a", 0.1, [-0.01, 0.2], "tie"),
        pair("klue-sts", "b", "a", None, None, "better"),
    ],
}


def test_a_table_has_the_figures_of_the_report() -> None:
    assert fill_results(TABLE, REPORT) == FILLED
    assert fill_results(FILLED, REPORT) == FILLED


def test_nothing_but_the_block_is_rewritten(tmp_path: Path, fails: Fails) -> None:
    page = tmp_path / "page.md"
    written = "# 제목\n\n<!-- results -->\nold\n<!-- end -->\n\n<!-- other -->\nx\n<!-- end -->\n"
    page.write_text(written, encoding="utf-8")
    assert read_block(page, "results") == "old"
    write_block(page, "results", "OLD")
    rewritten = "# 제목\n\n<!-- results -->\n\nOLD\n\n<!-- end -->\n\n<!-- other -->\nx\n<!-- end -->\n"
    assert page.read_text(encoding="utf-8") == rewritten
    with fails(UsageError, page, "<!-- records -->"):
        write_block(page, "records", "x")
    assert page.read_text(encoding="utf-8") == rewritten


@pytest.mark.parametrize("is_there", [True, False])
def test_the_guides_beside_a_report_are_updated_if_there_are_any(tmp_path: Path, is_there: bool) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "leaderboard.json").write_text(json.dumps(REPORT), encoding="utf-8")
    guides = [tmp_path / name for name in GUIDES]
    for guide in guides if is_there else ():
        guide.write_text(f"<!-- results -->\n\n{TABLE}\n\n<!-- end -->\n", encoding="utf-8")
    assert update_guides(tmp_path / "reports") == (guides if is_there else [])
    for guide in guides if is_there else ():
        assert guide.read_text(encoding="utf-8") == f"<!-- results -->\n\n{FILLED}\n\n<!-- end -->\n"


def test_the_guides_of_the_project_are_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    shutil.copy(ROOT / "docs" / "reports" / "leaderboard.json", tmp_path / "reports")
    for name in GUIDES:
        shutil.copy(ROOT / "docs" / name, tmp_path)
    assert len(update_guides(tmp_path / "reports")) == 2
    for name in GUIDES:
        assert (tmp_path / name).read_bytes() == (ROOT / "docs" / name).read_bytes()
