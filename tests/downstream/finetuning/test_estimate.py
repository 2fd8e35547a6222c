"""Memory and time of a fine-tuning: micro-batches give the whole batch's gradient, and what does not fit is said."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer

from corpora.foundation.errors import RecipeError, UsageError
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.finetune import finetune, main, plan
from downstream.finetuning import trainer as training
from downstream.finetuning.arguments import training_arguments
from downstream.finetuning.batches import FeatureDataset, PaddingCollator, micro_batches
from downstream.finetuning.estimate import Probe
from downstream.task import FinetuneConfig, TaskData, get_task, read_task
from pretraining.training import memory
from pretraining.training.metrics import check_reporters

Fails = Callable[..., AbstractContextManager[None]]

ROOT = Path("/nonexistent")


def few(name: str, count: int = 13) -> TaskData:
    data = read_task(get_task(name), ROOT)
    return TaskData(*(replace(split, examples=split.examples[:count]) for split in (data.train, data.eval)))


def gradient(model: Any) -> dict[str, torch.Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def test_micro_batches_give_the_gradient_of_the_batch(standins: dict[str, Path], subtests: pytest.Subtests) -> None:
    folder = standins["klue-bert"]
    tokenizer = load_tokenizer(folder)
    for name in ("nsmc-sample", "klue-sts-sample", "korquad-sample"):
        family = get_task(name).family
        model = load_model(folder, tokenizer, family.auto_class, family.head_config()).eval()
        dataset = FeatureDataset(family.featurize(few(name).train.examples, tokenizer, 64, with_labels=True))
        batch = PaddingCollator(tokenizer)([dataset[k] for k in range(13)])
        model(**batch).loss.backward()
        whole = gradient(model)
        for size in (1, 4, 5, 13):
            with subtests.test(task=name, size=size):
                parts = list(micro_batches(batch, size))
                assert sum(len(part["input_ids"]) for part, _ in parts) == 13
                assert sum(share for _, share in parts) == pytest.approx(1)
                for part, share in parts:
                    (model(**part).loss * share).backward()
                for key, value in gradient(model).items():
                    torch.testing.assert_close(value, whole[key], rtol=1e-4, atol=1e-6, msg=key)


def test_token_labels_weigh_by_their_number(standins: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(standins["klue-bert"])
    model = load_model(standins["klue-bert"], tokenizer, "AutoModelForTokenClassification", {"num_labels": 3}).eval()
    ids = [[2, *range(5, 5 + n), 3] for n in (1, 2, 9, 4, 17)]
    rows = [{"input_ids": row, "attention_mask": [1] * len(row), "labels": [k % 3 for k in row]} for row in ids]
    batch = PaddingCollator(tokenizer)(rows)
    model(**batch).loss.backward()
    whole = gradient(model)
    parts = list(micro_batches(batch, 2))
    assert [part["input_ids"].shape[1] for part, _ in parts] == [4, 11, 19]  # cut to their own longest
    for part, share in parts:
        (model(**part).loss * share).backward()
    for key, value in gradient(model).items():
        torch.testing.assert_close(value, whole[key], rtol=1e-4, atol=1e-6, msg=key)


def test_a_training_in_micro_batches_ends_like_one_in_whole_batches(
    standins: dict[str, Path], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    settings = {"epochs": 1, "batch_size": 8, "max_length": 32, "peak_lr": 1e-4, "dropout": 0.0, "precision": "fp32"}
    data = few("nsmc-sample", 20)
    ways: dict[str, dict[str, Any]] = {
        "whole": {},
        "three": {"micro_batch_size": 3},
        "auto": {"micro_batch_size": "auto"},
        "again": {"checkpoint_activations": True},
    }
    weights = {}
    for name, more in ways.items():
        out = tmp_path / name
        result = finetune("nsmc-sample", standins["klue-bert"], out=out, data=data, overrides=settings | more)
        assert {k: v for k, v in result.recipe["finetune"].items() if k in more} == more
        model = load_model(out, load_tokenizer(out), "AutoModelForSequenceClassification", {})
        weights[name] = torch.cat([p.detach().flatten() for p in model.parameters()])
    before = load_model(standins["klue-bert"], load_tokenizer(standins["klue-bert"]), "AutoModel", {})
    moved = weights["whole"][: sum(p.numel() for p in before.embeddings.parameters())]
    start = torch.cat([p.detach().flatten() for p in before.embeddings.parameters()])
    assert (moved - start).abs().max() > 1e-5
    for name in ("three", "auto", "again"):
        with subtests.test(way=name):
            torch.testing.assert_close(weights[name], weights["whole"], rtol=0, atol=2e-5)


@pytest.mark.slow
def test_running_out_of_memory_is_answered_with_what_fits(
    standins: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails, subtests: pytest.Subtests
) -> None:
    data, step = few("nsmc-sample", 16), Trainer.compute_loss

    def limited(error: Exception) -> Callable[..., Any]:
        def compute_loss(self: Trainer, model: Any, inputs: Any, *more: Any, **options: Any) -> Any:
            if len(inputs["input_ids"]) > 4:
                raise error
            return step(self, model, inputs, *more, **options)

        return compute_loss

    for number, (error, asked, found, told) in enumerate(
        (
            (torch.OutOfMemoryError("CUDA out of memory."), None, 4, ("16 inputs", "micro_batch_size=4 fits")),
            (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 8, 2, ("8 inputs", "micro_batch_size=2 fits")),
            (MemoryError(), None, 0, ("not even one fits", "checkpoint_activations")),
        )
    ):
        with subtests.test(error=error), monkeypatch.context() as context:
            context.setattr(Trainer, "compute_loss", limited(error))
            context.setattr(Probe, "largest", lambda _, found=found: found)
            overrides = {"epochs": 1, "batch_size": 16, "max_length": 16} | (
                {"micro_batch_size": asked} if asked else {}
            )
            with fails(RecipeError, "nsmc-sample fine-tuning", *told):
                finetune(
                    "nsmc-sample", standins["klue-bert"], out=tmp_path / str(number), data=data, overrides=overrides
                )
    monkeypatch.setattr(Trainer, "compute_loss", limited(RuntimeError("something else")))
    with pytest.raises(RuntimeError, match="something else"):
        finetune("nsmc-sample", standins["klue-bert"], out=tmp_path / "else", data=data, overrides={"batch_size": 16})


def test_a_dry_run_says_what_a_training_takes_and_leaves_nothing(
    standins: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    command = ["nsmc-sample", "--model", str(standins["klue-bert"]), "--out", str(out), "--set", "batch_size=16"]
    assert main([*command, "--dry-run", "--set", "epochs=2", "--set", "micro_batch_size=4"]) == 0
    table = capsys.readouterr().out
    assert "| one micro-batch | 4 inputs" in table
    assert "| largest micro-batch that fits | 16 inputs |" in table
    assert f"| {2 * -(-420 // 16)} steps |" in table
    assert not out.exists()
    # Room for the weights, gradients and optimizer states, and for few activations.
    monkeypatch.setattr(memory, "free_bytes", lambda: 1 << 20)
    with pytest.raises(RecipeError, match="out of memory with 16 inputs at a time, and not even one fits"):
        main([*command, "--dry-run"])


def test_the_estimated_memory_grows_with_the_micro_batch_and_the_trials_leave_no_gradient(
    standins: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan("nsmc-sample", standins["klue-bert"], out=tmp_path, data=few("nsmc-sample", 64), overrides={"epochs": 1})
    trainer, _, _ = training._prepare(run)
    probe = Probe(trainer, batch_size=32)
    one, two, eight = (probe.memory_bytes(size) for size in (1, 2, 8))
    assert one < two < eight
    assert eight - two == pytest.approx(6 * (two - one), rel=0.01)
    parameters = sum(p.numel() for p in trainer.model.parameters())
    assert one > 4 * 4 * parameters  # weights, gradients and two states
    for room, size in ((one, 1), (two, 2), (eight, 8), (10 * eight, 32)):
        monkeypatch.setattr(memory, "free_bytes", lambda room=room: (room - 4 * parameters + 1000) / memory.ROOM)
        assert probe.largest() == size
    assert all(p.grad is None for p in trainer.model.parameters())


def test_precision_and_reporters_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails) -> None:
    config = FinetuneConfig(precision="fp16", checkpoint_activations=True)
    with fails(UsageError, "precision=fp16", "no GPU"):
        training_arguments(config, tmp_path / "out" / "checkpoints" / "x", 0, num_features=8)
    with fails(UsageError, "--report-to", "tensorbord"):
        check_reporters(["tensorbord"])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with fails(UsageError, "--report-to", "wandb is not installed"):
        check_reporters(["wandb"])


def test_training_keeps_to_one_device(
    standins: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    run = plan("nsmc-sample", standins["klue-bert"], out=tmp_path, data=few("nsmc-sample"), overrides={"epochs": 1})
    trainer, _, _ = training._prepare(run)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert trainer.args.per_device_train_batch_size == run.config.batch_size
