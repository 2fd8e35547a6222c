"""Charts of a report as plain geometry, which the page's template draws as SVG. Figures in, coordinates out."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from downstream.task import get_task
from eval.board.rows import Row
from eval.board.table import Block, Board, interval_text, model_title, percent, task_title
from eval.cells.measurements import IDLE_SHARE, CurveFile

WIDTH, LABEL_WIDTH, VALUE_WIDTH, ROW_HEIGHT = 640, 170, 60, 26
PLOT_HEIGHT, AXIS_WIDTH, MARGIN = 260, 46, 14
NUM_COLOURS = 8
"""Colours of lines; with more models they repeat."""


@dataclass(frozen=True)
class Chart:
    """What the template draws."""

    title: str
    """In Korean."""
    title_en: str
    is_ranking: bool
    """Whether it shows a task's ranking metric."""
    height: int
    marks: list[dict[str, Any]]
    ticks: list[dict[str, Any]]
    """Of the axis across."""
    levels: list[dict[str, Any]]
    """Of the axis up; none in a forest plot."""


def forest(board: Board, number: int) -> Chart:
    """Lay out a mark and interval for each figure of a column.

    Circles are measured on official data, squares on substitutes, diamonds are published.
    """
    entries = [
        (block, line.model, row)
        for block, lines in board.blocks
        for line in lines
        if (row := line.rows[number]) is not None and row.value is not None
    ]
    bounds = [bound for _, _, row in entries for bound in (row.ci95 or (row.value, row.value)) if bound is not None]
    low, high = (min(bounds), max(bounds)) if bounds else (0.0, 1.0)
    margin = max(0.02, 0.08 * (high - low))
    low, high = max(low - margin, 0.0 if low >= 0 else -1.0), min(high + margin, 1.0)
    scale = _scale(low, high, LABEL_WIDTH + 10, WIDTH - VALUE_WIDTH + 10)
    shapes: dict[Block, str] = {
        "measured": "circle",
        "on_sample": "square",
        "on_other": "square",
        "reported": "diamond",
    }
    marks = []
    for k, (block, model, row) in enumerate(entries):
        assert row.value is not None
        ci_low, ci_high = row.ci95 or (row.value, row.value)
        marks.append(
            {
                "label": model_title(model),
                "shape": shapes[block],
                "y": ROW_HEIGHT * k + ROW_HEIGHT // 2,
                "x": scale(row.value),
                "low": scale(ci_low),
                "high": scale(ci_high),
                "value": percent(row.value),
                "hint": f"{model_title(model)} · {percent(row.value)} {interval_text(row.ci95)}".strip(),
            }
        )
    ticks = [low + (high - low) * k / 4 for k in range(5)]
    column = board.columns[number]
    return Chart(
        title=column.title,
        title_en=column.title_en,
        is_ranking=column.is_ranking,
        height=ROW_HEIGHT * len(entries),
        marks=marks,
        ticks=[{"x": scale(tick), "label": f"{100 * tick:.1f}"} for tick in ticks],
        levels=[],
    )


def scatter(task: str, rows: Sequence[Row], colours: Mapping[str, int]) -> Chart:
    """Lay out the figures of a task against latency on a logarithmic scale.

    Args:
        task: the task's name.
        rows: its measured rows in the ranking metric; those without value or latency are left out.
        colours: model → number of its colour.
    """
    points = [(row, row.latency_ms, row.value) for row in rows if row.latency_ms and row.value is not None]
    logs = [math.log10(latency) for _, latency, _ in points] or [0.0]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    high += high == low
    across = _scale(low, high, AXIS_WIDTH, WIDTH - MARGIN)
    bottom, top = _padded([value for *_, value in points])
    up = _scale(bottom, top, PLOT_HEIGHT - MARGIN, MARGIN)
    marks = [
        {
            "x": across(math.log10(latency)),
            "y": up(value),
            "label": model_title(row.model),
            # Beside the mark, on the side with room.
            "anchor": "end" if across(math.log10(latency)) > WIDTH * 0.66 else "start",
            "is_busy": row.cpu_share is not None and row.cpu_share < IDLE_SHARE,
            "colour": colours[row.model],
            "hint": f"{model_title(row.model)} · {latency:g} ms · {percent(value)}",
        }
        for row, latency, value in points
    ]
    _separate_labels(marks)
    return Chart(
        **_titles(task, f" {get_task(task).metrics[0].title}"),
        is_ranking=True,
        height=PLOT_HEIGHT,
        marks=marks,
        ticks=[{"x": across(power), "label": f"{10.0**power:g} ms"} for power in range(low, high + 1)],
        levels=[{"y": up(level), "label": f"{100 * level:.0f}"} for level in _levels(bottom, top)],
    )


def _separate_labels(marks: list[dict[str, Any]]) -> None:
    """Set the height of every mark's label so that labels of near marks do not overlap."""
    taken: list[float] = []
    for mark in sorted(marks, key=lambda mark: (mark["y"], mark["x"])):
        height = max([mark["y"], *(y + 15 for y in taken if abs(y - mark["y"]) < 15)])
        taken.append(height)
        mark["label_y"] = height


def learning_curves(task: str, curves: Sequence[CurveFile], colours: Mapping[str, int]) -> Chart:
    """Lay out the training losses of a task's cells, one line per seed."""
    last = max(point.step for curve in curves for point in curve.points)
    losses = [point.loss for curve in curves for point in curve.points]
    across = _scale(0, last, AXIS_WIDTH, WIDTH - MARGIN)
    top = max(losses) * 1.05 or 1.0
    up = _scale(0.0, top, PLOT_HEIGHT - MARGIN, MARGIN)
    marks = [
        {
            "points": " ".join(f"{across(point.step)},{up(point.loss)}" for point in curve.points),
            "dots": [{"x": across(point.step), "y": up(point.loss)} for point in curve.points],
            "label": model_title(curve.model),
            "colour": colours[curve.model],
            "hint": f"{model_title(curve.model)} · seed {curve.seed} · {curve.points[-1].loss:.4f}",
        }
        for curve in curves
    ]
    return Chart(
        **_titles(task),
        is_ranking=True,
        height=PLOT_HEIGHT,
        marks=marks,
        ticks=[{"x": across(last * k / 4), "label": f"{last * k / 4:,.0f}"} for k in range(5)],
        levels=[{"y": up(top * k / 4), "label": f"{top * k / 4:.2f}"} for k in range(5)],
    )


def _titles(task: str, metric: str = "") -> dict[str, str]:
    korean, english = (f"{task_title(get_task(task), language)}{metric}" for language in ("ko", "en"))
    return {"title": korean, "title_en": english}


def colours_of(models: Sequence[str]) -> dict[str, int]:
    """Return the number of each model's colour, in the order they come."""
    return {model: k % NUM_COLOURS for k, model in enumerate(dict.fromkeys(models))}


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    margin = max(0.02, 0.1 * (high - low))
    return low - margin, high + margin


def _levels(low: float, high: float) -> list[float]:
    """Return round numbers between LOW and HIGH, five to ten of them."""
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if (high - low) / step <= 8)
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: round(start + (end - start) * (value - low) / span, 1)
