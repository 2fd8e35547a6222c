"""Runs that are lengthened, taken into another phase, or averaged at their end; settings that change on the way."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from corpora.foundation.errors import CheckpointError, RecipeError, UsageError
from pretraining.objective import ObjectiveConfig, rate_at
from pretraining.objectives.dynamic_mlm import DynamicMlm
from pretraining.recipe import LoopConfig, Recipe, check_recipe
from pretraining.training.accelerator import make_accelerator
from pretraining.training.loop import STABLE, Trainer
from pretraining.training.metrics import read_metrics
from pretraining.training.optimizers import learning_rate
from pretraining.training.run import Run
from pretraining.training.state.averaging import WeightAverage

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

Fails = Callable[..., AbstractContextManager[None]]
STABLE_DECAY = {"decay": "warmup_stable_decay", "decay_steps": 2, "extendable": True}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.fixture
def make_run(corpus: Path, small_vocabulary: Path, cache: Path, tmp_path: Path) -> Callable[..., Run]:
    """Return a function that makes a tiny run with changes to its loop, in a folder of a given name."""

    def make(out: str = "out", *, model: Mapping[str, Any] | None = None, seed: int = 3, **loop: Any) -> Run:
        recipe = check_recipe(
            {
                "objective": "dynamic_mlm",
                "model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
                | {"max_position_embeddings": 32}
                | dict(model or {}),
                "data": {"corpus": str(corpus), "tokenizer": str(small_vocabulary), "max_length": 32},
                "loop": {"steps": 6, "batch_size": 8, "peak_lr": 1e-2, "warmup_steps": 1, "precision": "fp32"}
                | {"log_every": 1, "checkpoint_every": 1}
                | loop,
                "seed": seed,
            },
            "recipe",
        )
        (tmp_path / out).mkdir(exist_ok=True)
        return Run(recipe, tmp_path / out, cache=cache, cpu=True)

    return make


def model_of(run: Run) -> bytes:
    return (run.out / "model.safetensors").read_bytes()


class KilledError(Exception):
    """Stands for a kill."""


def kill_after(step: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train a run up to a step, and no further."""
    original = Trainer._after_step

    def after_step(trainer: Trainer, bar: Any) -> None:
        original(trainer, bar)
        if trainer.progress.step == step:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_after_step", after_step)
        with pytest.raises(KilledError):
            run.train()


# --- longer runs ----------------------------------------------------------------------------------------------------


def test_the_rate_is_constant_up_to_the_last_steps() -> None:
    config = LoopConfig(steps=10, warmup_steps=2, peak_lr=1.0, decay="warmup_stable_decay", decay_steps=4)
    rates = [learning_rate(config, step) for step in range(10)]
    assert rates == pytest.approx([1 / 3, 2 / 3, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25])
    assert config.stable_steps == 6


def test_a_lengthened_run_is_bit_identical_to_a_longer_one(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = STABLE_DECAY
    longer = make_run("longer", steps=9, **loop)
    longer.train()
    finished = make_run("finished", steps=6, **loop)
    finished.train()
    manifest = make_run("finished", steps=9, **loop).train()
    assert manifest["steps"] == 9
    assert model_of(finished) == model_of(longer)
    steps = [line["step"] for line in read_metrics(finished.out / "metrics.jsonl") if "lr" in line]
    assert steps == list(range(1, 10))
    # Killed in its decay, and then lengthened.
    kill_after(5, make_run("killed", steps=6, **loop), monkeypatch)
    make_run("killed", steps=9, **loop).train()
    assert model_of(make_run("killed", steps=9, **loop)) == model_of(longer)
    constant = [make_run(f"constant-{steps}", steps=steps, decay="constant", extendable=True) for steps in (3, 4)]
    for run in constant:
        run.train()
    make_run("constant-3", steps=4, decay="constant", extendable=True).train()
    assert model_of(constant[0]) == model_of(constant[1])


def test_a_run_that_decays_with_its_length_is_not_lengthened(make_run: Callable[..., Run], fails: Fails) -> None:
    make_run().train()
    with fails(UsageError, "--out", "loop.steps=6 there, 9 here"):
        make_run(steps=9).train()
    for settings, what in (
        ({"decay": "linear", "extendable": True}, "loop.extendable"),
        ({"decay": "warmup_stable_decay"}, "loop.decay_steps=0"),
        ({"decay": "linear", "decay_steps": 2}, "loop.decay_steps=2"),
        ({"decay": "warmup_stable_decay", "decay_steps": 6}, "exceed loop.steps=6"),
        ({"carry_state": True}, "loop.carry_state without model.init"),
    ):
        with fails(RecipeError, "recipe", what):
            make_run(**settings)
    extendable = make_run("stable", **STABLE_DECAY)
    extendable.train()
    with fails(UsageError, "--set", "no checkpoint up to step 3"):
        make_run("stable", **STABLE_DECAY, steps=5).train()
    assert extendable.train()["steps"] == 6


def test_a_phase_takes_over_the_optimizers_of_the_one_before(make_run: Callable[..., Run], fails: Fails) -> None:
    first = make_run("first", **STABLE_DECAY)
    first.train()
    stable = next((first.out / STABLE).glob("checkpoint-*"))
    second = make_run("second", model={"init": str(first.out)}, carry_state=True, warmup_steps=0)
    trainer = second.make_trainer(make_accelerator(second.recipe.loop, cpu=True))
    _, entries = trainer.state.tensors()
    kept = load_file(stable / "optimizer.safetensors")
    assert entries.keys() == kept.keys()
    assert all(torch.equal(entries[name], kept[name]) for name in kept)
    assert trainer.progress.step == 0
    other = make_run("other")
    other.train()
    third = make_run("third", model={"init": str(other.out)}, carry_state=True)
    with fails(CheckpointError, other.out / STABLE, "no checkpoint", "extendable"):
        third.make_trainer(make_accelerator(third.recipe.loop, cpu=True))


# --- averages -------------------------------------------------------------------------------------------------------


def test_the_mean_of_the_last_weights_is_saved_and_evaluated(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Tensor]] = []
    original = Trainer._after_step

    def after_step(trainer: Trainer, bar: Any) -> None:
        seen.append({name: tensor.clone() for name, tensor in trainer.model.named_parameters()})
        original(trainer, bar)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_after_step", after_step)
        averaged = make_run("averaged", average_last=0.5)
        averaged.train()
    saved = load_file(averaged.out / "model.safetensors")
    for name, tensor in saved.items():
        mean = torch.stack([weights[f"network.{name}"].detach() for weights in seen[3:]]).mean(dim=0)
        assert torch.allclose(tensor, mean[: len(tensor)], atol=1e-6), name
    plain = make_run("plain")
    plain.train()
    assert model_of(plain) != model_of(averaged)
    lines = [read_metrics(run.out / "metrics.jsonl") for run in (plain, averaged)]
    trained = [[line["mlm_loss"] for line in of_run if "lr" in line] for of_run in lines]
    assert trained[0] == trained[1]  # averaging does not touch the training
    assert lines[0][-1]["held_out_mlm_loss"] != lines[1][-1]["held_out_mlm_loss"]


def test_an_averaged_run_that_was_killed_is_bit_identical(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_run("whole", average_last=0.5, optimizer="muon")
    whole.train()
    for step in (2, 4, 5):
        kill_after(step, make_run(f"killed-{step}", average_last=0.5, optimizer="muon"), monkeypatch)
        resumed = make_run(f"killed-{step}", average_last=0.5, optimizer="muon")
        resumed.train()
        assert model_of(resumed) == model_of(whole), step


def test_weights_are_back_after_an_evaluation_of_their_mean() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    average = WeightAverage(["w"], [parameter], first_step=2)
    for step, value in enumerate((1.0, 2.0, 6.0), start=1):
        parameter.data.fill_(value)
        average.update(step)
    assert average
    with average.in_use():
        assert parameter.tolist() == [4.0, 4.0, 4.0]
    assert parameter.tolist() == [6.0, 6.0, 6.0]


# --- a masking rate that changes ------------------------------------------------------------------------------------


def test_the_masking_rate_falls_from_the_first_step_to_the_last(make_run: Callable[..., Run]) -> None:
    assert [rate_at("0.40->0.15", done) for done in (0.0, 0.5, 1.0)] == pytest.approx([0.4, 0.275, 0.15])
    assert rate_at(0.2, 0.3) == rate_at("0.2", 0.3) == 0.2
    run = make_run(steps=201, batch_size=32)
    config = ObjectiveConfig.model_validate({"masking_rate": "0.60->0.10"})
    source = run.data.train
    falling = type(source)(source.corpus, DynamicMlm(config, source.objective.layout), 32, 201)
    shares = []
    for step in (0, 100, 200):
        (batch,) = falling.micro_batches(step, process=0, num_processes=1, size=32)
        tokens = int((batch["sequence_ids"] > 0).sum()) - 2 * 32
        shares.append(len(batch["masked_ids"]) / tokens)
    assert shares == pytest.approx([0.6, 0.35, 0.1], abs=0.04)
    held_out = falling.tensors(np.arange(32), np.zeros(32, np.int64))
    assert len(held_out["masked_ids"]) / (int((held_out["sequence_ids"] > 0).sum()) - 64) == pytest.approx(
        0.1, abs=0.04
    )


def test_a_wrong_masking_rate_is_one_line(fails: Fails) -> None:
    data = {"corpus": "sample"}
    for rate in ("0.4->", "0.4->1.5", "a->b", "0.4 0.2", 1.5):
        with fails(RecipeError, "recipe, objective dynamic_mlm", "mask_rate"):
            check_recipe({"objective": {"name": "dynamic_mlm", "mask_rate": rate}, "data": data}, "recipe")
    with fails(RecipeError, "recipe, objective static_mlm_nsp", "mask_rate"):
        check_recipe({"objective": {"name": "static_mlm_nsp", "mask_rate": "0.4->0.2"}, "data": data}, "recipe")
    recipe = check_recipe({"objective": {"name": "dynamic_mlm", "masking_rate": "0.4->0.2"}, "data": data}, "recipe")
    assert isinstance(recipe, Recipe)
    assert recipe.objective["mask_rate"] == "0.4->0.2"
    with fails(RecipeError, "recipe", "loop.extendable"):
        loop = {"decay": "constant", "extendable": True}
        check_recipe({"objective": recipe.objective, "data": data, "loop": loop}, "recipe")
