"""No step waits for the device: it runs on one that has no values to read.

Tensors of the device `meta` have shapes and no content: whatever would be read from them (`item`, `tolist`, `bool`,
`nonzero`, a selection by a mask) is an error.
"""

import contextlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

import pretraining.model
from pretraining.objective import all_objectives
from pretraining.recipe import check_recipe
from pretraining.training.accelerator import make_accelerator
from pretraining.training.loop import Trainer
from pretraining.training.run import Run
from pretraining.training.state.progress import DeviceSums, Progress, StepCounters

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}
META = torch.device("meta")


@pytest.fixture
def on_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let accelerate take `meta` for an accelerator, and give it what it lacks."""
    monkeypatch.setattr(Accelerator, "device", META)
    monkeypatch.setattr(
        importlib.import_module("torch.optim.adam"), "_device_dtype_check_for_fused", lambda *_, **__: 0
    )

    def attention(query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object) -> Tensor:
        return (query @ key.mT).softmax(-1) @ value

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(pretraining.model, "_compute_dtype", lambda default, _: default)


@pytest.fixture
def make_trainer(few_texts: Path, slotted_vocabulary: Path, tmp_path: Path) -> Callable[..., Trainer]:
    """Return a function that makes a trainer on `meta`."""

    def make(objective: str, architecture: str, optimizer: str) -> Trainer:
        values: dict[str, Any] = {
            "objective": objective,
            "model": SIZE | NO_DROPOUT | {"architecture": architecture},
            "data": {"corpus": str(few_texts), "tokenizer": str(slotted_vocabulary), "max_length": 32},
            "loop": {"steps": 100, "batch_size": 4, "micro_batch_size": 2, "warmup_steps": 2, "average_last": 0.99},
        }
        recipe = check_recipe(values | {"loop": values["loop"] | {"optimizer": optimizer, "precision": "fp32"}}, "test")
        run = Run(recipe, tmp_path, cache=tmp_path / "cache", cpu=True)
        assert run.data.num_tokens
        with META:
            return run.make_trainer(make_accelerator(recipe.loop, cpu=True))

    return make


@pytest.mark.usefixtures("on_meta")
def test_no_step_reads_from_the_device(make_trainer: Callable[..., Trainer], subtests: pytest.Subtests) -> None:
    cases = [
        (name, kind.architectures[0])
        for name, kind in sorted(all_objectives().items())
        if name not in {"distillation", "teacher_vectors"}  # they need a teacher
    ]
    for objective, architecture in [*cases, ("dynamic_mlm", "modernbert")]:
        with subtests.test(objective=objective, architecture=architecture):
            trainer = make_trainer(objective, architecture, "muon" if objective in {"albert", "bart"} else "adamw")
            if architecture == "modernbert":
                trainer.model.to(torch.bfloat16)  # without padding, as on a GPU
            trainer._step(trainer._batches(0))
            assert trainer.progress.step == 1
            assert {tensor.device for tensor in trainer._sums.values.values()} == {META}


@pytest.mark.usefixtures("on_meta")
def test_what_reads_from_the_device_is_noticed(make_trainer: Callable[..., Trainer]) -> None:
    """Otherwise the test above could not fail."""
    trainer = make_trainer("dynamic_mlm", "bert", "adamw")
    trainer._step(trainer._batches(0))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        trainer._read_counters()
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        trainer._sums.read()
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        torch.zeros(3, device=META)[torch.ones(3, dtype=torch.bool, device=META)]


def test_counters_are_those_of_a_loop_that_reads_after_every_step(subtests: pytest.Subtests) -> None:
    bad = [0, 1, 1, 1, 0, 0, 1, 1, 0, 1]
    for every in (1, 2, 3, 10):
        with subtests.test(every=every):
            counters, sums, progress, most = StepCounters(torch.device("cpu")), DeviceSums(), Progress(), 0
            for step, is_bad in enumerate(bad):
                skipped = torch.tensor(bool(is_bad))
                counters.add(torch.tensor(10 + step), skipped)
                loss = torch.tensor(float("nan") if is_bad else 1.5 * step)
                sums.add({"mlm_loss": loss, "mlm": torch.tensor(step)}, skipped)
                if (step + 1) % every == 0:
                    most = max(most, counters.read(progress))
            most = max(most, counters.read(progress))
            assert (progress.tokens, progress.skipped, progress.skipped_in_a_row, most) == (145, 6, 1, 3)
            good = [step for step, is_bad in enumerate(bad) if not is_bad]
            assert sums.read() == {"mlm_loss": 1.5 * sum(good), "mlm": sum(good)}
