"""The loss curves and the model card of a finished run."""

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard
from PIL import Image

from pretraining.objective import MLM, NSP, get_objective
from pretraining.recipe import Recipe, check_recipe
from pretraining.training.report import draw_curves, render_pretraining_card

Lines = Sequence[Mapping[str, Any]]


def lines_of(*, nsp: bool, held_out: bool, steps: int = 40) -> list[dict[str, Any]]:
    """Return the metrics of a run that learns, one line every other step, held-out scores every eighth."""
    lines: list[dict[str, Any]] = []
    for step in range(2, steps + 1, 2):
        scores = {"mlm_loss": 3 + 4 * math.exp(-step / 10), "mlm_accuracy": 0.5 - 0.4 * math.exp(-step / 10)}
        if nsp:
            scores |= {"nsp_loss": 0.6, "nsp_accuracy": 0.5 + step / 100}
        lines.append({"step": step, **scores, "lr": 1e-3, "tokens": 1000 * step, "skipped": 0})
        if held_out and step % 8 == 0:
            lines.append({"step": step} | {f"held_out_{name}": value + 0.1 for name, value in scores.items()})
    return lines


def picture(path: Path, lines: Lines, title: str = "PressBERT test · dynamic_mlm") -> np.ndarray:
    """Draw LINES, and return the pixels; a complaint of the drawing library is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        draw_curves(path, lines, (MLM, NSP) if any("nsp_loss" in line for line in lines) else (MLM,), title)
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def has_colour(pixels: np.ndarray, colour: tuple[int, int, int]) -> bool:
    return bool((np.abs(pixels.astype(int) - colour).max(axis=-1) < 12).sum() > 20)


TRAINING, HELD_OUT = (0x1F, 0x4E, 0x8C), (0xC0, 0x39, 0x2B)


def test_curves_are_drawn_of_what_there_is(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (nsp, held_out) in enumerate(itertools.product([True, False], [True, False])):
        with subtests.test(nsp=nsp, held_out=held_out):
            folder = tmp_path / str(number)
            folder.mkdir()
            pixels = picture(folder / "loss.png", lines_of(nsp=nsp, held_out=held_out))
            assert has_colour(pixels, TRAINING)
            assert has_colour(pixels, HELD_OUT) == held_out
            # As many panels as measures: each third, or each half, has a curve.
            panels = np.array_split(pixels, 3 if nsp else 2, axis=1)
            assert all(has_colour(panel, TRAINING) for panel in panels)
            assert all(has_colour(panel, HELD_OUT) == held_out for panel in panels)


def test_another_run_gives_another_picture_and_the_same_run_the_same(tmp_path: Path) -> None:
    lines = lines_of(nsp=False, held_out=True)
    first, again = (picture(tmp_path / f"{name}.png", lines) for name in "ab")
    other = picture(tmp_path / "c.png", [*lines[:-1], lines[-1] | {"held_out_mlm_loss": 6.0}])
    assert (first == again).all()
    assert (first != other).any()


def test_a_run_with_little_to_show_has_a_picture_too(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, lines in enumerate(
        [
            [],
            [{"step": 1, "lr": 1e-3, "tokens": 100, "skipped": 1}],
            [{"step": 1, "mlm_loss": None, "mlm_accuracy": 0.0, "tokens": 100}, {"step": 1, "held_out_mlm_loss": None}],
            lines_of(nsp=True, held_out=False, steps=2),
        ]
    ):
        with subtests.test(lines=lines):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert picture(folder / "loss.png", lines).shape[-1] == 3


def test_held_out_scores_between_two_lines_of_training_are_drawn(tmp_path: Path) -> None:
    lines = lines_of(nsp=False, held_out=False)
    scores = {"held_out_mlm_loss": 4.0, "held_out_mlm_accuracy": 0.3}
    lines += [{"step": step} | scores for step in range(5, 40, 10)]
    pixels = picture(tmp_path / "loss.png", sorted(lines, key=lambda line: line["step"]))
    assert has_colour(pixels, HELD_OUT)


def test_a_run_with_a_korean_name_is_drawn_without_complaint(tmp_path: Path) -> None:
    assert has_colour(picture(tmp_path / "loss.png", lines_of(nsp=False, held_out=True), "PressBERT 벼리"), TRAINING)


MANIFEST: Mapping[str, Any] = {
    "num_parameters": 1_234_567,
    "num_documents": 2_500,
    "tokens": 9_876_543,
    "num_positions": 1_128,
    "steps": 4_000,
    "skipped": 3,
    "elapsed_s": 5_400.0,
    "device": "1 × Some Accelerator",
    "held_out": {"held_out_mlm_loss": 2.71828, "held_out_perplexity": None},
    "versions": {"python": "3.12.1", "torch": "2.11.0"},
}


def test_the_card_says_what_the_run_was_whatever_its_name(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, title in enumerate(["PressBERT mini", "PressBERT 벼리: #1 'a' \"b\"", "PressBERT - [x] {y}"]):
        with subtests.test(title=title):
            folder = tmp_path / str(number)
            folder.mkdir()
            recipe = Recipe(objective={"name": "dynamic_mlm", "mask_rate": 0.2}, seed=11)
            text = render_pretraining_card(recipe, MANIFEST, title, get_objective("dynamic_mlm", "here"))
            (folder / "README.md").write_text(text, encoding="utf-8")
            card = ModelCard.load(folder / "README.md")
            assert card.data.to_dict()["model_name"] == title
            assert (card.data.language, card.data.library_name) == ("ko", "transformers")
            assert card.text.lstrip().startswith(f"# {title}\n")
            told = (
                "1,234,567",
                "1,128",
                "2,500",
                "9,876,543",
                "4,000 (3)",
                "90.0 min on 1 × Some Accelerator",
                "2.7183",
                "torch 2.11.0",
            )
            assert [part for part in told if part not in card.text] == []
            assert '"mask_rate": 0.2' in card.text
            assert '"seed": 11' in card.text
            assert "perplexity |" not in card.text  # one that is no number has no row
            assert "initial embeddings" not in card.text


def test_the_card_counts_the_text_of_initial_embeddings() -> None:
    data = {"corpus": "here", "tokenizer": "here"}
    recipe = check_recipe({"objective": "dynamic_mlm", "data": data, "init": {"embeddings": "skip_gram"}}, "recipe")
    run = {**MANIFEST, "init_tokens": 1_499_660, "init_elapsed_s": 243.2}
    text = render_pretraining_card(recipe, run, "PressBERT", get_objective("dynamic_mlm", "here"))
    assert "| tokens that the initial embeddings were trained on before | 1,499,660 |" in text
