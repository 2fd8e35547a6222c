"""Schedules of batch sizes and lengths of rows within a run."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora.foundation.errors import RecipeError
from pretraining.recipe import check_recipe
from pretraining.training.loop import Trainer
from pretraining.training.metrics import read_metrics
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

Fails = Callable[..., AbstractContextManager[None]]
STAGES = [
    {"until": 2, "max_length": 16, "batch_size": 6},
    {"until": 4, "max_length": 16},
    {"until": 5, "batch_size": 10},
]


@pytest.fixture
def make_run(corpus: Path, small_vocabulary: Path, tmp_path: Path) -> Callable[..., Run]:
    def make(stages: list[dict[str, Any]], out: str = "out", **loop: Any) -> Run:
        values = {
            "objective": "dynamic_mlm",
            "model": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
            "data": {"corpus": str(corpus), "tokenizer": str(small_vocabulary), "max_length": 32},
            "loop": {"steps": 7, "batch_size": 4, "warmup_steps": 1, "precision": "fp32", "log_every": 1}
            | {"checkpoint_every": 1, "stages": stages}
            | loop,
        }
        (tmp_path / out).mkdir(exist_ok=True)
        return Run(check_recipe(values, "recipe"), tmp_path / out, cache=tmp_path / "cache", cpu=True)

    return make


def test_stages_have_their_own_rows_and_share_epochs(make_run: Callable[..., Run]) -> None:
    source = make_run(STAGES).data.train
    shapes = []
    for step in range(7):
        [batch] = source.micro_batches(step, process=0, num_processes=1, size=100)
        shapes.append((len(batch["input_ids"]), batch["input_ids"].shape[1] > 16))
    assert shapes == [(6, False), (6, False), (4, False), (4, False), (10, True), (4, True), (4, True)]
    short, long = source.stage(0).corpus, source.corpus
    assert source.stage(3).corpus is short
    assert source.stage(4).corpus is source.stage(6).corpus is long
    assert len(short) > 1.5 * len(long)
    for steps in (range(4), range(4, 7)):
        rows = np.concatenate([source.rows(step)[0] for step in steps])
        assert len(set(rows.tolist())) == len(rows)  # no row comes twice in an epoch
    plain = make_run([]).data.train
    assert make_run([], "again").data.digest != make_run(STAGES, "other").data.digest
    assert [plain.rows(step)[0].tolist() for step in range(3)] == [
        plain._rows_at(plain.stage(0), 0, np.arange(4 * step, 4 * step + 4)).tolist() for step in range(3)
    ]


def test_a_run_with_stages_resumes_and_counts_its_tokens(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_run(STAGES, "whole")
    tokens = whole.train()["tokens"]
    expected = sum(
        int((batch["sequence_ids"] > 0).sum())
        for step in range(7)
        for batch in whole.data.train.micro_batches(step, process=0, num_processes=1, size=100)
    )
    assert tokens == expected
    parts = make_run(STAGES, "parts")
    original = Trainer._step

    def stop(self: Trainer, batches: Any) -> None:
        if self.progress.step == 3:
            raise KeyboardInterrupt
        original(self, batches)

    with monkeypatch.context() as context:
        context.setattr(Trainer, "_step", stop)
        with pytest.raises(KeyboardInterrupt):
            parts.train()
    make_run(STAGES, "parts").train()
    assert (parts.out / "model.safetensors").read_bytes() == (whole.out / "model.safetensors").read_bytes()


def test_a_dry_run_counts_the_positions_of_all_stages(make_run: Callable[..., Run]) -> None:
    estimate = make_run(STAGES).estimate()
    positions = 2 * 6 * 16 + 2 * 4 * 16 + 10 * 32 + 2 * 4 * 32
    assert estimate.training_s == pytest.approx(estimate.step_s * positions / (4 * 32))


def test_stages_out_of_order_are_refused(make_run: Callable[..., Run], fails: Fails, subtests: pytest.Subtests) -> None:
    for stages, what in (
        ([{"until": 3}, {"until": 3}], "[3, 3] of 7"),
        ([{"until": 8}], "[8] of 7"),
        ([{"until": 3, "max_length": 64}], "max_length=32"),
    ):
        with subtests.test(stages=stages), fails(RecipeError, "recipe", what):
            make_run(stages)


def test_the_log_has_bits_per_character_and_the_norm_of_the_gradient(make_run: Callable[..., Run]) -> None:
    run = make_run([], "log", clip=1e-3)
    run.train()
    lines = read_metrics(run.out / "metrics.jsonl")
    lengths = run.data.train.objective.layout.specials.num_characters
    assert lengths is not None
    [batch] = run.data.train.micro_batches(0, process=0, num_processes=1, size=100)
    characters = int(lengths[batch["masked_ids"].numpy()].sum())
    bits = lines[0]["mlm_loss"] * len(batch["masked_ids"]) / np.log(2)
    assert lines[0]["mlm_bits_per_character"] == pytest.approx(bits / characters)
    assert any("held_out_mlm_bits_per_character" in line for line in lines)
    assert all(line["gradient_norm"] > 1e-3 for line in lines if "lr" in line)  # before it is clipped
