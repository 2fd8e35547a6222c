"""Dry runs: recipes of all kinds can be tried."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from corpora.foundation.errors import RecipeError
from pretraining.recipe import RECIPES, find_recipe, read_recipe
from pretraining.training.memory import saved_bytes
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

Fails = Callable[..., AbstractContextManager[None]]

TINY = ("hidden_size=16", "num_attention_heads=2", "intermediate_size=32", "max_position_embeddings=32")


def never(*_: object) -> None:
    raise AssertionError("it builds the model")


@pytest.fixture
def teacher(slotted_vocabulary: Path, tmp_path: Path) -> Path:
    """Return the folder of a BERT of random weights."""
    torch.manual_seed(0)
    size = len((slotted_vocabulary / "vocab.txt").read_text(encoding="utf-8").splitlines())
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32}
    model = BertForMaskedLM(BertConfig(vocab_size=size, num_hidden_layers=4, **shape))
    model.save_pretrained(tmp_path / "teacher")
    return tmp_path / "teacher"


@pytest.mark.slow
def test_recipes_of_every_kind_can_be_tried(
    few_texts: Path, slotted_vocabulary: Path, teacher: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    tried: set[tuple[str, str]] = set()
    for path in sorted(RECIPES.glob("*.toml")):
        given = read_recipe(path, ["data.corpus=c", "data.tokenizer=t"])
        kind = (str(given.objective["name"]), given.model.architecture)
        if kind in tried:  # the other recipes of a kind differ in numbers
            continue
        tried.add(kind)
        with subtests.test(recipe=path.stem):
            settings = [f"data.corpus={few_texts}", f"data.tokenizer={slotted_vocabulary}", "data.max_length=32"]
            settings += [f"model.{value}" for value in TINY]
            settings.append(f"model.num_hidden_layers={min(4, given.model.num_hidden_layers)}")
            settings += ["loop.batch_size=4", "loop.micro_batch_size=2"]
            if given.objective["name"] == "teacher_vectors":
                continue  # vectors of these very texts: its own test tries them
            if given.objective["name"] == "distillation":
                settings += [f"objective.teacher={teacher}", "model.num_hidden_layers=2"]
            if given.model.embedding_size:
                settings.append("model.embedding_size=8")
            recipe = read_recipe(path, settings)
            estimate = Run(recipe, tmp_path / "out", cpu=True).estimate()
            assert estimate.steps == given.loop.steps
            assert estimate.micro_batch_size == 2
            assert estimate.training_s > 0


def test_a_model_larger_than_memory_is_one_line(
    few_texts: Path, slotted_vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    monkeypatch.setattr("pretraining.training.run.Run.make_trainer", never)
    settings = [f"data.corpus={few_texts}", f"data.tokenizer={slotted_vocabulary}", "model.hidden_size=65536"]
    recipe = read_recipe(find_recipe("bert-large"), settings)
    with fails(RecipeError, "model", "parameters need", "TB", "smaller model"):
        Run(recipe, tmp_path / "out", cpu=True).estimate()


def test_activations_can_be_computed_again_instead_of_kept(
    few_texts: Path, slotted_vocabulary: Path, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    for name in ("mini", "mini-modernbert", "mini-hybrid", "mini-gpt", "mini-bart", "mini-t5", "mini-electra"):
        settings = [f"data.corpus={few_texts}", f"data.tokenizer={slotted_vocabulary}", "data.max_length=32"]
        settings += [f"model.{value}" for value in TINY] + ["loop.batch_size=4", "loop.micro_batch_size=4"]
        recipe = read_recipe(find_recipe(name), [*settings, "loop.precision=fp32"])
        run = Run(recipe, tmp_path / name, cache=tmp_path / "cache", cpu=True)
        source, found = run.data.train, []
        [batch] = source.micro_batches(0, process=0, num_processes=1, size=4)
        for recompute in (False, True):
            model = run.build_model()
            model.use_attention(torch.device("cpu"))
            if recompute:
                model.recompute_activations()
            model.train()

            def compute(model: Any = model, batch: Any = batch, terms: Any = source.objective.terms) -> None:
                outputs = model(**batch)
                torch.stack([outputs[f"{term.name}_loss"] for term in terms]).sum().backward()

            torch.manual_seed(1)
            kept = saved_bytes(compute, model)
            found.append((kept, {key: p.grad for key, p in model.named_parameters() if p.grad is not None}))
        with subtests.test(recipe=name):
            (all_kept, expected), (some_kept, gradients) = found
            assert some_kept < 0.8 * all_kept
            assert gradients.keys() == expected.keys()
            for key, gradient in gradients.items():
                torch.testing.assert_close(gradient, expected[key], msg=key)
    for name in ("mini-albert", "mini-xlnet"):
        with subtests.test(recipe=name), fails(RecipeError, find_recipe(name), "loop.recompute_activations"):
            read_recipe(find_recipe(name), ["data.corpus=c", "data.tokenizer=t", "loop.recompute_activations=true"])
