"""The loss curve and the model card of a finished run."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corpora.foundation.cards import render_card
from corpora.foundation.files import atomic_file, package_path

if TYPE_CHECKING:
    from pretraining.objective import LossTerm, Objective
    from pretraining.recipe import Recipe

SMOOTHING = 1 / 20
"""Window of the moving average, as a share of the curve."""


def draw_curves(path: Path, lines: Sequence[Mapping[str, Any]], terms: Sequence["LossTerm"], title: str) -> None:
    """Draw the loss of the first term and the measure of every term over tokens seen, as a PNG.

    Args:
        path: of the PNG.
        lines: of `metrics.jsonl`.
        terms: of the objective.
        title: of the chart.
    """
    from matplotlib.figure import Figure

    names = [(f"{terms[0].name}_loss", f"{terms[0].title}, loss in nats")]
    names += [(f"{term.name}_accuracy", f"{term.title}, {term.measure}") for term in terms]
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, len(names))
    steps = [line["step"] for line in lines if "tokens" in line]
    millions = [line["tokens"] / 1e6 for line in lines if "tokens" in line]

    def tokens(step: int) -> float:
        # A held-out evaluation may lie between two lines with token counts.
        return float(np.interp(step, steps, millions)) if steps else float(step)

    for panel, (name, label) in zip(panels, names, strict=True):
        seen = [(tokens(line["step"]), line[name]) for line in lines if line.get(name) is not None]
        held = [
            (tokens(line["step"]), line[f"held_out_{name}"])
            for line in lines
            if line.get(f"held_out_{name}") is not None
        ]
        if seen:
            xs, ys = zip(*seen, strict=True)
            panel.plot(xs, ys, color="#9db7d5", linewidth=0.8)
            panel.plot(xs, _smooth(ys), color="#1f4e8c", linewidth=1.6, label="training, smoothed")
        if held:
            xs, ys = zip(*held, strict=True)
            panel.plot(xs, ys, color="#c0392b", marker="o", markersize=4, linewidth=1.2, label="held-out")
            # To the right of the curve, so as not to cover it.
            text = {"textcoords": "offset points", "xytext": (6, 0), "va": "center", "color": "#c0392b"}
            panel.annotate(f"{ys[-1]:.3f}", (xs[-1], ys[-1]), **text)
        panel.set_xlabel("real tokens seen (million)")
        panel.set_title(label, fontsize=11)
        panel.grid(visible=True, color="#e5e5e5", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    # matplotlib's default font has no Hangul and would show boxes.
    if not any(unicodedata.name(character, "").startswith(("HANGUL", "CJK")) for character in title):
        figure.suptitle(title, fontsize=12)
    with atomic_file(path, "wb") as file:
        figure.savefig(file, format="png", dpi=120)


def _smooth(values: Sequence[float]) -> list[float]:
    """Return the exponential moving average with bias correction."""
    keep = 1 - 1 / max(1.0, SMOOTHING * len(values))
    smooth, total, weight = [], 0.0, 0.0
    for value in values:
        total = keep * total + (1 - keep) * value
        weight = keep * weight + (1 - keep)
        smooth.append(total / weight)
    return smooth


def render_pretraining_card(
    recipe: "Recipe", manifest: Mapping[str, Any], title: str, objective: "type[Objective] | Objective"
) -> str:
    """Return the README.md of a pretrained folder, with the YAML that model hubs read."""
    from huggingface_hub import ModelCardData

    head = ModelCardData(
        language="ko",
        library_name="transformers",
        pipeline_tag=objective.pipeline_tag,
        license="other",
        license_name="that of the corpus it was trained on",
        model_name=title,
    )
    return render_card(
        package_path("pretraining", "templates", "card_pretrained.md"),
        head,
        title=title,
        paper=objective.paper,
        note=objective.note,
        objective=recipe.objective["name"],
        recipe=json.dumps(recipe.model_dump(), ensure_ascii=False, indent=1),
        run=manifest,
    )
