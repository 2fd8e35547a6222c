"""The pretraining loop: steps, metrics, and that it can stop and resume anywhere."""

import itertools
import json
import math
import os
import resource
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

import pretraining.training.accelerator
import pretraining.training.loop
import pretraining.training.optimizers
from corpora.documents import read_documents
from corpora.foundation.errors import CheckpointError, RecipeError, ResultError
from corpora.foundation.machine import Precision
from pretraining.model import MaskedLanguageModel
from pretraining.objective import all_objectives
from pretraining.recipe import SAMPLE, LoopConfig, Recipe
from pretraining.training.accelerator import make_accelerator
from pretraining.training.batches import BatchSource
from pretraining.training.loop import (
    HELD_OUT_EPOCH,
    NonFiniteError,
    Trainer,
)
from pretraining.training.metrics import read_metrics
from pretraining.training.optimizers import learning_rate, make_optimizers, orthogonalise
from pretraining.training.run import Run
from pretraining.training.state.checkpoints import load_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

Fails = Callable[..., AbstractContextManager[None]]
Sources = tuple[Path, Path]
RunFor = Callable[..., Run]
MakeTrainer = Callable[..., Trainer]

OBJECTIVES = sorted(all_objectives().keys() - {"distillation", "teacher_vectors"})
"""Those with a teacher have tests of their own."""
OF_TRANSFORMERS = ["dynamic_mlm", "static_mlm_nsp"]
"""Objectives whose loss transformers computes too."""
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}
LOOP = {"steps": 8, "batch_size": 8, "peak_lr": 1e-2, "warmup_steps": 2, "precision": "fp32", "log_every": 1}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def sources(corpus: Path, slotted_vocabulary: Path) -> Sources:
    """Return the sample corpus and a small vocabulary for it."""
    return corpus, slotted_vocabulary


def make_recipe(sources: Sources, objective: str = "dynamic_mlm", **sections: Mapping[str, Any]) -> Recipe:
    """Return a tiny recipe with changes to its sections."""
    corpus, tokenizer = sources
    kind = all_objectives()[objective]
    settings = kind.settings(**sections.get("settings", {}))
    return Recipe(
        objective={"name": objective} | settings.model_dump(),
        model={**SIZE, "architecture": kind.architectures[0], **sections.get("model", {})},
        data={"corpus": str(corpus), "tokenizer": str(tokenizer), "max_length": 32, **sections.get("data", {})},
        loop={**LOOP, **sections.get("loop", {})},
        seed=3,
    )


@pytest.fixture(scope="module")
def run_for(tmp_path_factory: pytest.TempPathFactory) -> RunFor:
    """Return a function that makes the run of a recipe in a folder; all share one cache of rows."""
    cache = tmp_path_factory.mktemp("cache")

    def make(recipe: Recipe, out: Path = cache) -> Run:
        out.mkdir(exist_ok=True)
        return Run(recipe, out, cache=cache, cpu=True)

    return make


@pytest.fixture
def make_trainer(sources: Sources, run_for: RunFor, tmp_path: Path) -> MakeTrainer:
    """Return a function that makes a trainer of a tiny recipe with changes, in a folder of a given name."""

    def make(
        objective: str = "dynamic_mlm", *, out: str = "out", held_out: bool = True, **sections: Mapping[str, Any]
    ) -> Trainer:
        recipe = make_recipe(sources, objective, **sections)
        run = run_for(recipe, tmp_path / out)
        run.data = run.data if held_out else replace(run.data, held_out=None)
        return run.make_trainer(make_accelerator(recipe.loop, cpu=True))

    return make


def metrics(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    """Return what the lines about training say under NAMES, step by step."""
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if "lr" in line]
    return [tuple(line[name] for name in names) for line in lines]


def causal_rows(objective: str) -> dict[str, float]:
    """Return settings with which small batches of the hybrid objective have causal rows."""
    return {"causal_share": 0.25} if objective == "hybrid" else {}


def clear(folder: Path) -> None:
    """Delete what the case before left."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def losses(folder: Path) -> list[float]:
    return [loss for (loss,) in metrics(folder, "mlm_loss")]


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.state.tensors()[0].items()}


def equal(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# --- the learning rate ----------------------------------------------------------------------------------------------


def test_the_learning_rate_warms_up_and_decays(subtests: pytest.Subtests) -> None:
    for decay, rates in [
        ("linear", [0.2, 0.4, 0.6, 0.8, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        ("constant", [0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1, 1, 1]),
        ("cosine", [0.2, 0.4, 0.6, 0.8, 1, *((1 + math.cos(math.pi * k / 6)) / 2 for k in range(1, 6))]),
    ]:
        with subtests.test(decay=decay):
            config = LoopConfig(steps=10, warmup_steps=4, peak_lr=3e-4, decay=decay)
            assert [learning_rate(config, step) for step in range(10)] == pytest.approx([3e-4 * rate for rate in rates])


@hypothesis.given(
    steps=st.integers(1, 200), share=st.floats(0, 0.99), decay=st.sampled_from(["linear", "cosine", "constant"])
)
def test_every_learning_rate_is_positive_and_none_exceeds_the_peak(steps: int, share: float, decay: Any) -> None:
    config = LoopConfig(steps=steps, warmup_steps=int(share * steps), peak_lr=2.0, decay=decay)
    rates = [learning_rate(config, step) for step in range(steps)]
    assert min(rates) > 0
    assert max(rates) == rates[config.warmup_steps] == 2.0
    assert rates[: config.warmup_steps + 1] == sorted(rates[: config.warmup_steps + 1])
    assert rates[config.warmup_steps :] == sorted(rates[config.warmup_steps :], reverse=True)


def test_matrices_and_embeddings_decay_and_nothing_else(make_trainer: MakeTrainer) -> None:
    model = make_trainer("static_mlm_nsp")._model
    names = {id(p): name for name, p in model.named_parameters()}
    (optimizer,) = make_optimizers(model, LoopConfig(weight_decay=0.125))
    groups = optimizer.param_groups
    decayed = {names[id(p)] for group in groups for p in group["params"] if group["weight_decay"] == 0.125}
    others = {names[id(p)] for group in groups for p in group["params"] if group["weight_decay"] == 0}
    assert decayed | others == set(names.values())
    assert len(decayed) + len(others) == len(names)
    assert decayed == {names[id(p)] for p in model.parameters() if p.ndim == 2}
    assert others == {names[id(p)] for p in model.parameters() if p.ndim == 1}


def test_muon_takes_the_matrices_between_hidden_layers_and_adamw_the_rest(make_trainer: MakeTrainer) -> None:
    model = make_trainer("static_mlm_nsp")._model
    names = {id(p): name for name, p in model.named_parameters()}
    muon, adamw = make_optimizers(model, LoopConfig(optimizer="muon", weight_decay=0.125, momentum=0.5))
    taken, left = ([names[id(p)] for group in o.param_groups for p in group["params"]] for o in (muon, adamw))
    assert sorted(taken + left) == sorted(names.values())
    assert set(taken) >= {name for name in names.values() if ".layer." in name and "dense.weight" in name}
    assert not any("embedding" in name or "bias" in name or "seq_relationship" in name for name in taken)
    assert [(group["weight_decay"], group["momentum"]) for group in muon.param_groups] == [(0.125, 0.5)]


def test_muon_iterates_in_the_precision_of_the_recipe(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """Even on a machine with fast bf16, where the recipe says fp32."""
    monkeypatch.setattr(
        pretraining.training.accelerator, "training_precision", lambda asked: "bf16" if asked == "auto" else asked
    )
    seen: list[torch.dtype] = []

    def watched(matrices: Tensor) -> Tensor:
        seen.append(matrices.dtype)
        return orthogonalise(matrices)

    monkeypatch.setattr(pretraining.training.optimizers, "orthogonalise", watched)
    precisions: tuple[Precision, ...] = ("auto", "bf16", "fp32")
    for precision in precisions:
        with subtests.test(precision=precision):
            muon, _ = make_optimizers(torch.nn.Linear(16, 16), LoopConfig(optimizer="muon", precision=precision))
            muon.param_groups[0]["params"][0].grad = torch.ones(16, 16)
            muon.step()
            assert seen == [torch.float32 if precision == "fp32" else torch.bfloat16]
            seen.clear()


# --- what a step computes -------------------------------------------------------------------------------------------


def reference_run(run: Run) -> tuple[list[float], dict[str, Tensor]]:
    """Train with transformers and PyTorch alone: one sequence per row, labels -100 where nothing is predicted."""
    config = run.recipe.loop
    model = run.build_model()
    network: Any = model.export({name: p.detach() for name, p in model.named_parameters()})
    decayed, others = (
        [p for name, p in network.named_parameters() if ("bias" in name or "LayerNorm" in name) == is_other]
        for is_other in (False, True)
    )
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=False,
    )
    means = []
    for step in range(config.steps):
        (batch,) = run.data.train.micro_batches(step, process=0, num_processes=1, size=config.batch_size)
        labels = torch.full_like(batch["input_ids"], -100).flatten()
        labels[batch["masked_positions"]] = batch["masked_ids"]
        inputs = {
            "input_ids": batch["input_ids"],
            "token_type_ids": batch["token_type_ids"],
            "attention_mask": (batch["sequence_ids"] > 0).long(),
            "labels": labels.view_as(batch["input_ids"]),
        }
        if "next_labels" in batch:
            inputs["next_sentence_label"] = batch["next_labels"]
        loss = network(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip)
        for group in optimizer.param_groups:
            group["lr"] = config.peak_lr * min((step + 1) / (config.warmup_steps + 1), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        means.append(loss.item())
    return means, {f"network.{name}": p.detach() for name, p in network.named_parameters()}


def test_training_is_what_plain_pytorch_makes_of_transformers_loss(
    make_trainer: MakeTrainer, sources: Sources, run_for: RunFor, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for objective in OF_TRANSFORMERS:
        with subtests.test(objective=objective):
            clear(tmp_path)
            sections: dict[str, Any] = {
                "model": STILL,
                "data": {"isolate_documents": False},
                "loop": {"decay": "constant", "weight_decay": 0.1, "clip": 0.5, "peak_lr": 3e-3},
            }
            trainer = make_trainer(objective, **sections)
            trainer.train()
            recipe = make_recipe(sources, objective, **sections)
            expected, network = reference_run(run_for(recipe))
            assert [loss for (loss,) in metrics(tmp_path / "out", "loss")] == pytest.approx(expected, rel=1e-5)
            assert expected[-1] < expected[0]
            for name, tensor in weights(trainer).items():
                torch.testing.assert_close(tensor[: len(network[name])], network[name], rtol=0, atol=1e-4, msg=name)


@pytest.mark.slow
def test_micro_batches_give_the_same_losses(
    make_trainer: MakeTrainer, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for objective in OBJECTIVES:
        with subtests.test(objective=objective):
            clear(tmp_path)
            sections: dict[str, Any] = {"model": STILL, "settings": causal_rows(objective)}
            loop = {"steps": 5, "peak_lr": 3e-3}
            whole = make_trainer(objective, out="whole", loop=loop, **sections)
            whole.train()
            make_trainer(objective, out="parts", loop=loop | {"micro_batch_size": 3}, **sections).train()
            names = ("loss", "tokens", *(f"{term.name}_loss" for term in whole._terms))
            # A line is silent about a term without predictions, and both must be silent about the same.
            ours, theirs = (
                [
                    {name: line[name] for name in names if name in line}
                    for line in read_metrics(tmp_path / out / "metrics.jsonl")
                    if "lr" in line
                ]
                for out in ("parts", "whole")
            )
            assert len(ours) == len(theirs) == loop["steps"]
            for line, expected in zip(ours, theirs, strict=True):
                assert line == pytest.approx(expected, rel=1e-5)
            assert set().union(*theirs) == set(names)


def test_micro_batches_have_the_configured_size(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = MaskedLanguageModel.forward

    def forward(model: MaskedLanguageModel, **batch: Tensor) -> dict[str, Tensor]:
        sizes.append(len(batch["input_ids"]))
        return original(model, **batch)

    monkeypatch.setattr(MaskedLanguageModel, "forward", forward)
    make_trainer(held_out=False, loop={"steps": 2, "micro_batch_size": 3}).train()
    assert sizes == [3, 3, 2] * 2


def test_a_batch_that_the_processes_cannot_share_evenly_is_refused(
    make_trainer: MakeTrainer, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = SimpleNamespace(num_processes=3, process_index=0, device=torch.device("cpu"))
    monkeypatch.setitem(globals(), "make_accelerator", lambda *_, **__: stand_in)
    with fails(RecipeError, "recipe", "loop.batch_size=8", "3 processes"):
        make_trainer()


# --- seeds ----------------------------------------------------------------------------------------------------------


def test_a_run_has_its_own_precision_whatever_was_trained_before() -> None:
    for asked, mixed in (("bf16", "bf16"), ("fp32", "no"), ("bf16", "bf16")):
        config = LoopConfig.model_validate({"precision": asked})
        assert make_accelerator(config, cpu=True).mixed_precision == mixed


def test_a_run_is_the_same_every_time_and_another_with_another_seed(
    sources: Sources, run_for: RunFor, tmp_path: Path
) -> None:
    ends = []
    for number, seed in enumerate((3, 3, 4)):
        recipe = make_recipe(sources, loop={"steps": 3}).model_copy(update={"seed": seed})
        trainer = run_for(recipe, tmp_path / str(number)).make_trainer(make_accelerator(recipe.loop, cpu=True))
        trainer.train()
        ends.append(weights(trainer))
    assert equal(ends[0], ends[1])
    assert not equal(ends[0], ends[2])


def test_every_seed_that_a_recipe_takes_can_be_trained_with(
    sources: Sources, run_for: RunFor, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, seed in enumerate([2**32 - 1, 2**63]):
        with subtests.test(seed=seed):
            folder = tmp_path / str(number)
            folder.mkdir()
            values = make_recipe(sources, loop={"steps": 2, "warmup_steps": 0}).model_dump() | {"seed": seed}
            try:
                recipe = Recipe(**values)
            except ValidationError:
                assert seed >= 2**32
                return
            trainer = run_for(recipe, folder / "out").make_trainer(make_accelerator(recipe.loop, cpu=True))
            trainer.train()
            assert trainer.progress.step == 2


def test_dropout_is_another_in_every_step(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows at a learning rate of almost 0: only dropout differs."""
    monkeypatch.setattr(
        BatchSource, "rows", lambda source, _: (np.arange(source.batch_size), np.zeros(source.batch_size, np.int64))
    )
    outs = {}
    for name, rate in (("with", 0.5), ("without", 0.0)):
        dropout = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
        loop = {"steps": 4, "peak_lr": 1e-30, "weight_decay": 0.0}
        trainer = make_trainer(out=name, model=dropout, loop=loop)
        trainer.train()
        outs[name] = losses(trainer._out)
    assert len(set(outs["with"])) == 4
    assert len(set(outs["without"])) == 1


# --- learning -------------------------------------------------------------------------------------------------------


def entropy_of_predictions(source: BatchSource, steps: int, entry: str) -> float:
    """Return the entropy of the tokens to predict, in nats: the loss of predicting by frequency alone."""
    counts: Counter[int] = Counter()
    for step in range(steps):
        for batch in source.micro_batches(step, process=0, num_processes=1, size=source.batch_size):
            counts.update(batch[entry].tolist())
    total = counts.total()
    return -sum(n / total * math.log(n / total) for n in counts.values())


@pytest.mark.slow
def test_every_objective_learns_more_than_the_frequencies_of_tokens(
    make_trainer: MakeTrainer, sources: Sources, run_for: RunFor, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    # Two documents, because one objective takes words of another document.
    text = next(iter(read_documents(SAMPLE))).text[:600]
    halves = [{"id": str(k), "text": half} for k, half in enumerate((text[:300], text[300:]))]
    for objective in OBJECTIVES:
        with subtests.test(objective=objective):
            clear(tmp_path)
            few = tmp_path / "few.jsonl"
            few.write_text("".join(json.dumps(half) + "\n" for half in halves), encoding="utf-8")
            # Static masks, masks of one eojeol, a wide generator that the embeddings serve alone, and an encoder with
            # small weights on its other losses learn fastest.
            quick = {"dupe_factor": 1, "generator_size": 1.0, "generator_layers": 1, "rtd_weight": 0.5}
            quick |= {"pair_rate": 0.1, "found_weight": 0.01, "share_weight": 0.01, "max_ngram": 1}
            settings = {k: v for k, v in quick.items() if k in all_objectives()[objective].settings.model_fields}
            loop = {
                "steps": 120 if objective == "xlnet" else 60,  # an order of prediction for each row learns slowly
                "batch_size": 16,
                "peak_lr": 1e-2,
                "warmup_steps": 10,
                "adam_beta2": 0.98,
                "log_every": 10,
            }
            sections = {
                "model": STILL | {"hidden_size": 64},
                "data": {"corpus": str(few)},
                "loop": loop,
                "settings": settings,
            }
            make_trainer(objective, **sections).train()
            source = run_for(make_recipe(sources, objective, **sections)).data.train
            others = {"replaced_token": ("generator", "replaced_ids")}
            term, entry = others.get(objective, (source.objective.terms[0].name, "masked_ids"))
            entropy = entropy_of_predictions(source, loop["steps"], entry)
            curve = [loss for (loss,) in metrics(tmp_path / "out", f"{term}_loss")]
            assert curve[0] > entropy
            assert curve[-1] < entropy - 0.25


def test_without_next_sentences_the_pairs_are_the_same_and_have_no_labels(
    make_trainer: MakeTrainer, sources: Sources, run_for: RunFor, tmp_path: Path
) -> None:
    pairs, masks = (
        run_for(make_recipe(sources, "static_mlm_nsp", settings={"next_sentence": asked})).data
        for asked in (True, False)
    )
    assert masks.digest == pairs.digest
    batch, other = (p.train.micro_batches(0, process=0, num_processes=1, size=8)[0] for p in (masks, pairs))
    assert other.keys() - batch.keys() == {"sequence_starts", "next_labels"}
    assert all(torch.equal(batch[name], other[name]) for name in batch)
    trainer = make_trainer("static_mlm_nsp", settings={"next_sentence": False})
    trainer.train()
    line = read_metrics(tmp_path / "out" / "metrics.jsonl")[0]
    assert line["loss"] == line["mlm_loss"]
    assert type(trainer._model.export(trainer.state.tensors()[0])).__name__ == "BertForMaskedLM"


@pytest.mark.slow
def test_a_student_learns_the_predictions_of_its_teacher(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    loop = {"steps": 120, "batch_size": 16, "peak_lr": 3e-3, "warmup_steps": 10, "log_every": 20}
    sections: dict[str, Any] = {"model": STILL, "loop": loop}
    make_trainer(out="teacher", **sections).train()
    teacher = make_trainer(out="teacher", **sections)
    teacher.train()  # finished: brings its last checkpoint back
    teacher._model.export(teacher.state.tensors()[0]).save_pretrained(tmp_path / "teacher")
    shallow: dict[str, Any] = sections | {"model": STILL | {"num_hidden_layers": 1}, "loop": loop | {"steps": 60}}
    settings = {"teacher": str(tmp_path / "teacher")}
    make_trainer("distillation", out="student", settings=settings, **shallow).train()
    # A student that begins with layers of its teacher has nothing to gain in masked tokens from so little text.
    soft, cosine = zip(*metrics(tmp_path / "student", "soft_loss", "cosine_loss"), strict=True)
    assert soft[-1] < 0.6 * soft[0]
    assert cosine[-1] < 0.95 * cosine[0]


# --- metrics ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_line_of_metrics_is_the_mean_of_its_steps(
    make_trainer: MakeTrainer, sources: Sources, run_for: RunFor, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for objective in OBJECTIVES:
        with subtests.test(objective=objective):
            clear(tmp_path)
            settings = causal_rows(objective)
            for name, every in (("each", 1), ("window", 3)):
                loop = {"log_every": every, "micro_batch_size": 5}
                make_trainer(objective, out=name, loop=loop, settings=settings).train()
            source = run_for(make_recipe(sources, objective, settings=settings)).data.train
            batches = [source.micro_batches(step, process=0, num_processes=1, size=8)[0] for step in range(8)]
            terms = source.objective.terms
            sizes = {term: [len(b[term.counted_by]) for b in batches] for term in terms}
            tokens = np.cumsum([int((b["sequence_ids"] > 0).sum()) for b in batches])
            each = {line["step"]: line for line in read_metrics(tmp_path / "each" / "metrics.jsonl") if "lr" in line}
            window = [line for line in read_metrics(tmp_path / "window" / "metrics.jsonl") if "lr" in line]
            assert [line["step"] for line in window] == [3, 6, 8]
            for line, first in zip(window, (1, 4, 7), strict=True):
                steps = range(first, line["step"] + 1)
                predicted = {term: [step for step in steps if sizes[term][step - 1]] for term in terms}
                assert not any(f"{term.name}_loss" in line for term in terms if not predicted[term])
                present = [term for term in terms if predicted[term]]
                for term, what in itertools.product(present, ("loss", "accuracy")):
                    values = [each[step][f"{term.name}_{what}"] for step in predicted[term]]
                    shares = [sizes[term][step - 1] for step in predicted[term]]
                    assert line[f"{term.name}_{what}"] == pytest.approx(np.average(values, weights=shares), rel=1e-5)
                assert line["loss"] == pytest.approx(sum(term.weight * line[f"{term.name}_loss"] for term in present))
                assert line["tokens"] == tokens[line["step"] - 1]
                assert line["lr"] == pytest.approx(1e-2 * min(line["step"] / 3, (9 - line["step"]) / 6))
                assert (line["skipped"], line["tokens_per_s"] > 0) == (0, True)
                assert line["matmul_share"] > 0
                assert 0 <= line["waiting_share"] <= 1


def test_a_line_that_a_kill_truncated_is_skipped(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "missing.jsonl") == []
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 6.5}\n{"step": 2, "loss": 6.25}\n{"step": 3, "lo', encoding="utf-8")
    assert read_metrics(path) == [{"step": 1, "loss": 6.5}, {"step": 2, "loss": 6.25}]


def test_a_disk_too_full_for_metrics_is_one_error_line(make_trainer: MakeTrainer, tmp_path: Path, fails: Fails) -> None:
    trainer = make_trainer(loop={"steps": 8, "checkpoint_every": 100})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (780, before[1]))
    try:
        with fails(ResultError, tmp_path / "out", "cannot write"):
            trainer.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [line["step"] for line in read_metrics(tmp_path / "out" / "metrics.jsonl")] == [1, 2]


# --- held-out text --------------------------------------------------------------------------------------------------


def reference_evaluation(trainer: Trainer, recipe: Recipe, source: BatchSource, num_rows: int) -> dict[str, float]:
    """Score held-out rows with transformers' own network, row by row."""
    state = trainer.state.tensors()[0]
    network: Any = trainer._model.export(state).eval()
    sums: Counter[str] = Counter()
    for row in range(num_rows):
        batch = source.tensors(np.array([row]), np.array([HELD_OUT_EPOCH]))
        inputs = {name: batch[name] for name in ("input_ids", "token_type_ids")}
        with torch.no_grad():
            outputs = network(**inputs)
        logits = outputs.prediction_logits if "next_labels" in batch else outputs.logits
        scores = logits[0][batch["masked_positions"]]
        sums["masked"] += len(scores)
        sums["mlm_loss"] += torch.nn.functional.cross_entropy(scores, batch["masked_ids"], reduction="sum").item()
        sums["mlm_correct"] += (scores.argmax(-1) == batch["masked_ids"]).sum().item()
        if "next_labels" in batch:
            pair, label = outputs.seq_relationship_logits, batch["next_labels"]
            sums["nsp_loss"] += torch.nn.functional.cross_entropy(pair, label).item()
            sums["nsp_correct"] += int(pair.argmax()) == int(label)
    means = {"mlm_loss": sums["mlm_loss"] / sums["masked"], "mlm_accuracy": sums["mlm_correct"] / sums["masked"]}
    if recipe.objective["name"] == "static_mlm_nsp":
        means |= {"nsp_loss": sums["nsp_loss"] / num_rows, "nsp_accuracy": sums["nsp_correct"] / num_rows}
    means["loss"] = means["mlm_loss"] + means.get("nsp_loss", 0.0)
    means["perplexity"] = math.exp(means["mlm_loss"])
    return {f"held_out_{name}": value for name, value in means.items()}


def test_held_out_scores_are_those_of_transformers(
    make_trainer: MakeTrainer, sources: Sources, run_for: RunFor, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for objective, num_rows in itertools.product(OF_TRANSFORMERS, [21, 10_000]):
        with subtests.test(objective=objective, num_rows=num_rows):
            clear(tmp_path)
            sections: dict[str, Any] = {"data": {"isolate_documents": False}, "loop": {"evaluate_rows": num_rows}}
            trainer, recipe = make_trainer(objective, **sections), make_recipe(sources, objective, **sections)
            source = run_for(recipe).data.held_out
            assert source is not None
            assert 21 < len(source.corpus) < 10_000
            expected = reference_evaluation(trainer, recipe, source, min(num_rows, len(source.corpus)))
            found = trainer.evaluate()
            assert found.pop("held_out_mlm_bits_per_character") > 0
            assert found == pytest.approx(expected, rel=1e-5)


def test_held_out_scores_are_the_same_every_time_and_know_no_dropout(make_trainer: MakeTrainer) -> None:
    dropout = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    trainer = make_trainer(model=dropout)
    first = trainer.evaluate()
    torch.manual_seed(12345)
    assert trainer.evaluate() == first
    assert trainer._model.training
    parts = make_trainer(out="parts", model=dropout, loop={"micro_batch_size": 3})
    assert parts.evaluate() == pytest.approx(first, rel=1e-6)


def test_what_nothing_was_predicted_for_has_no_score(make_trainer: MakeTrainer) -> None:
    """Not an accuracy of 0, which a chart would show as a failure."""
    for pair_rate, has_pairs in ((1e-9, False), (1.0, True)):
        found = make_trainer("shared_tokens", settings={"pair_rate": pair_rate}, out=f"{pair_rate}").evaluate()
        assert "held_out_mlm_accuracy" in found
        assert [name in found for name in ("held_out_found_loss", "held_out_found_accuracy")] == [has_pairs] * 2


def test_evaluations_follow_the_schedule_and_change_nothing(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    often = make_trainer(out="often", loop={"evaluate_every": 3})
    never = make_trainer(out="never", held_out=False)
    for trainer in (often, never):
        trainer.train()
    assert equal(weights(often), weights(never))
    told = [line["step"] for line in read_metrics(tmp_path / "often" / "metrics.jsonl") if "held_out_loss" in line]
    assert told == [3, 6, 8]
    assert not [line for line in read_metrics(tmp_path / "never" / "metrics.jsonl") if "held_out_loss" in line]
    assert losses(tmp_path / "often") == losses(tmp_path / "never")


# --- non-finite gradients ----------------------------------------------------------------------------------


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that spoils the loss of certain steps, counted from 1."""

    def spoil_steps(steps: Iterable[int], spoiled: Callable[[Tensor], Tensor] = lambda loss: loss * math.nan) -> None:
        original, numbers = MaskedLanguageModel.forward, itertools.count(1)

        def forward(model: MaskedLanguageModel, **batch: Tensor) -> dict[str, Tensor]:
            outputs = original(model, **batch)
            if model.training and next(numbers) in steps:
                outputs["mlm_loss"] = spoiled(outputs["mlm_loss"])
            return outputs

        monkeypatch.setattr(MaskedLanguageModel, "forward", forward)

    return spoil_steps


CONSTANT = {"decay": "constant", "warmup_steps": 0}


def test_a_step_without_a_finite_gradient_is_skipped_and_counted(
    make_trainer: MakeTrainer, spoil: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = MaskedLanguageModel.forward
    for optimizer in ("muon", "adamw"):
        clear(tmp_path)
        loop = {"optimizer": optimizer} | CONSTANT
        good = make_trainer(out="good", loop=loop | {"steps": 3})
        good.train()
        spoil({4})
        spoiled = make_trainer(out="spoiled", loop=loop | {"steps": 4})
        spoiled.train()
        monkeypatch.setattr(MaskedLanguageModel, "forward", forward)
        for ours, theirs in zip(spoiled.state.tensors(), good.state.tensors(), strict=True):
            assert equal(ours, theirs), optimizer
    lines = [line for line in read_metrics(tmp_path / "spoiled" / "metrics.jsonl") if "lr" in line]
    assert [line["skipped"] for line in lines] == [0, 0, 0, 1]
    assert [line["step"] for line in lines if line.get("mlm_loss") is not None] == [1, 2, 3]
    assert (spoiled.progress.step, spoiled.progress.skipped) == (4, 1)


def test_training_continues_after_a_skipped_step(
    make_trainer: MakeTrainer, spoil: Callable[..., None], tmp_path: Path
) -> None:
    spoil({2, 3, 6})
    trainer = make_trainer(loop={"max_skipped": 2, "log_every": 4})
    trainer.train()
    assert all(tensor.isfinite().all() for tensor in weights(trainer).values())
    lines = [line for line in read_metrics(tmp_path / "out" / "metrics.jsonl") if "lr" in line]
    assert [line["skipped"] for line in lines] == [2, 3]
    assert all(0 < line["mlm_loss"] < 10 for line in lines)


def test_a_diverged_run_is_noticed_where_its_steps_are_read(
    make_trainer: MakeTrainer, spoil: Callable[..., None], fails: Fails
) -> None:
    spoil(range(4, 100))
    trainer = make_trainer(loop=CONSTANT | {"steps": 50, "max_skipped": 2, "log_every": 5, "checkpoint_every": 50})
    with fails(NonFiniteError, "step 10", "7 steps in a row", "7 skipped in all"):
        trainer.train()


@pytest.mark.parametrize("every", [1, 3])
def test_a_diverged_run_stops_and_keeps_the_last_finite_state(
    make_trainer: MakeTrainer, spoil: Callable[..., None], tmp_path: Path, every: int, fails: Fails
) -> None:
    good = make_trainer(out="good", loop={"steps": 3} | CONSTANT)
    good.train()
    spoil(range(4, 100))
    loop = CONSTANT | {"steps": 50, "max_skipped": 2, "checkpoint_every": every, "keep_checkpoints": 1}
    trainer = make_trainer(out="spoiled", loop=loop)
    with fails(NonFiniteError, "step 6", "3 steps in a row", "3 skipped in all", "spoiled/checkpoints"):
        trainer.train()
    checkpoint = load_checkpoint(tmp_path / "spoiled" / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.step == 3
    assert equal(checkpoint.model, weights(good))
    last = read_metrics(tmp_path / "spoiled" / "metrics.jsonl")[-1]
    assert last["skipped"] == 2


def test_an_infinite_loss_is_no_good_step_although_its_gradient_is_finite(
    make_trainer: MakeTrainer, spoil: Callable[..., None], tmp_path: Path
) -> None:
    spoil({2}, lambda loss: loss + math.inf)
    trainer = make_trainer(loop={"steps": 3, "log_every": 3, "checkpoint_every": 2})
    trainer.train()
    assert trainer.progress.skipped == 1
    assert 0 < losses(tmp_path / "out")[0] < 10


# --- stopping and resuming ------------------------------------------------------------------------------------------


STOPS = {
    "before a step": ("_step", 5),
    "before a line of metrics": ("_log", 2),
    "before an evaluation": ("evaluate", 1),
    "before a checkpoint": ("save", 2),
    "before the first checkpoint": ("save", 1),
    "before the last checkpoint": ("save", 3),
}
SCHEDULE = {"checkpoint_every": 3, "log_every": 2, "evaluate_every": 4}
"""Lines of metrics and checkpoints do not fall on the same steps."""


def told(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics without what a clock decides."""
    clock = {"tokens_per_s", "matmul_share", "waiting_share"}
    return [{k: v for k, v in line.items() if k not in clock} for line in read_metrics(folder / "metrics.jsonl")]


@pytest.mark.slow
def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    cases = [("static_mlm_nsp", stop, "adamw") for stop in STOPS]
    cases += [(objective, "before a checkpoint", "muon") for objective in ("static_mlm_nsp", "bart", "t5")]
    for objective, stop, optimizer in cases:
        with subtests.test(stop=stop, objective=objective):
            clear(tmp_path)
            loop = SCHEDULE | {"optimizer": optimizer}
            whole = make_trainer(objective, out="whole", loop=loop)
            whole.train()
            with monkeypatch.context() as context:
                interrupt(context, *STOPS[stop])
                with pytest.raises(KeyboardInterrupt):
                    make_trainer(objective, out="parts", loop=loop).train()
            parts = make_trainer(objective, out="parts", loop=loop)
            parts.train()
            assert equal(weights(parts), weights(whole))
            assert equal(parts.state.tensors()[1], whole.state.tensors()[1])
            assert told(tmp_path / "parts") == told(tmp_path / "whole")
            assert (parts.progress.step, parts.progress.tokens) == (whole.progress.step, whole.progress.tokens)


def interrupt(monkeypatch: pytest.MonkeyPatch, name: str, call: int) -> None:
    original, numbers = getattr(Trainer, name), itertools.count(1)

    def method(trainer: Trainer, *arguments: Any) -> Any:
        if next(numbers) == call:
            raise KeyboardInterrupt
        return original(trainer, *arguments)

    monkeypatch.setattr(Trainer, name, method)


def test_a_run_resumed_many_times_is_bit_identical_to_an_uninterrupted_one(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = {"checkpoint_every": 1, "log_every": 3, "keep_checkpoints": 1}
    whole = make_trainer(out="whole", loop=loop)
    whole.train()
    for _ in range(3):
        with monkeypatch.context() as context:
            interrupt(context, "_step", 3)
            with pytest.raises(KeyboardInterrupt):
                make_trainer(out="parts", loop=loop).train()
            # A line that a kill truncated.
            with (tmp_path / "parts" / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write('{"step": 9, "lo')
    parts = make_trainer(out="parts", loop=loop)
    parts.train()
    assert equal(weights(parts), weights(whole))
    assert told(tmp_path / "parts") == told(tmp_path / "whole")


def train_and_be_killed(make: Callable[[], Trainer], step: int) -> None:
    """Train in a process of its own, which is killed before a step: only what it left on the disk is there then."""
    child = os.fork()
    if child == 0:
        try:
            trainer = make()
            original = trainer._step

            def killed_step(batches: Any) -> None:
                if trainer.progress.step == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                original(batches)

            trainer._step = killed_step  # type: ignore[method-assign]
            trainer.train()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.slow
def test_a_run_of_every_objective_is_bit_identical_after_sigkill(
    make_trainer: MakeTrainer, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    cases = [(objective, {}) for objective in OBJECTIVES] + [("dynamic_mlm", {"architecture": "modernbert"})]
    for objective, model in cases:
        with subtests.test(objective=objective, **model):
            clear(tmp_path)
            loop = SCHEDULE | {"average_last": 0.5}
            whole = make_trainer(objective, out="whole", loop=loop, model=model)
            whole.train()
            train_and_be_killed(lambda: make_trainer(objective, out="parts", loop=loop, model=model), 5)  # noqa: B023
            parts = make_trainer(objective, out="parts", loop=loop, model=model)
            parts.train()
            for ours, theirs in zip(parts.state.tensors(), whole.state.tensors(), strict=True):
                assert equal(ours, theirs)
            assert told(tmp_path / "parts") == told(tmp_path / "whole")


def test_a_damaged_checkpoint_costs_its_steps_and_changes_nothing(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = {"checkpoint_every": 2}
    whole = make_trainer(out="whole", loop=loop)
    whole.train()
    with monkeypatch.context() as context:
        interrupt(context, "_step", 8)
        with pytest.raises(KeyboardInterrupt):
            make_trainer(out="parts", loop=loop).train()
    path = tmp_path / "parts" / "checkpoints" / "checkpoint-00000006" / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    parts = make_trainer(out="parts", loop=loop)
    parts.train()
    assert "checkpoint-00000006: damaged" in caplog.text
    assert equal(weights(parts), weights(whole))
    assert told(tmp_path / "parts") == told(tmp_path / "whole")


def test_a_finished_run_takes_no_further_step(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer()
    trainer.train()
    lines = (tmp_path / "out" / "metrics.jsonl").read_bytes()
    interrupt(monkeypatch, "_step", 1)
    again = make_trainer()
    again.train()
    assert equal(weights(again), weights(trainer))
    assert (tmp_path / "out" / "metrics.jsonl").read_bytes() == lines


def test_the_checkpoint_of_another_model_is_refused(make_trainer: MakeTrainer, tmp_path: Path, fails: Fails) -> None:
    make_trainer(loop={"steps": 1}, held_out=False).train()
    with fails(CheckpointError, tmp_path / "out" / "checkpoints", "not those of this model"):
        make_trainer(model={"num_hidden_layers": 1}).train()
