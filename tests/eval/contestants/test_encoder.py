"""Pretrained encoders: what identifies them, how they are checked, and what is measured of one that was fine-tuned."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import fingerprint
from downstream.encoders.hub import EncoderUnavailableError
from downstream.finetuning.trainer import METRICS_FILE
from downstream.task import Task, TaskData, get_task
from eval.contestants.contestant import Job, load_leaderboard
from eval.contestants.curves import read_curve
from eval.contestants.encoder import Encoder

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

KNOWN = load_leaderboard().models
NSMC, STS = get_task("nsmc-sample"), get_task("klue-sts-sample")


def test_a_byte_of_an_encoder_makes_another_cell(write: Write, small: Callable[[Task, int], TaskData]) -> None:
    names, data = ("model.safetensors", "config.json", "vocab.txt"), small(NSMC, 1)
    for name in names:
        folder = write(f"encoder/{name}", "one").parent
    model = Encoder(name="mine", encoder=str(folder))
    before = model.recipe(NSMC, data)
    write("encoder/notes.md", "not the model")
    assert model.recipe(NSMC, data) == before
    for name in names:
        write(f"encoder/{name}", "onf")
        assert fingerprint(model.recipe(NSMC, data)) != fingerprint(before), name
        write(f"encoder/{name}", "one")


def test_a_missing_encoder_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails, small: Callable[[Task, int], TaskData]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for name in ("kpfbert", "korbert"):
        with fails(EncoderUnavailableError, f"{name}: ", f"{name}=FOLDER"):
            KNOWN[name].recipe(NSMC, small(NSMC, 1))


def test_an_encoder_known_by_its_digest_needs_no_folder(small: Callable[[Task, int], TaskData]) -> None:
    model = Encoder(name="mine", encoder="/nonexistent/runs/mine", encoder_sha256="a" * 64)
    assert model.recipe(NSMC, small(NSMC, 1))["encoder_sha256"] == "a" * 64
    assert model.source == "mine"


def test_a_fine_tuned_model_is_measured_as_it_was_scored(
    tiny_encoder: Path, tmp_path: Path, small: Callable[[Task, int], TaskData]
) -> None:
    model, data = (
        Encoder(name="tiny", encoder=str(tiny_encoder), finetune={"epochs": 1, "max_length": 32}),
        small(STS, 24),
    )
    outcome = model.run(Job(model, STS, 0, data, model.recipe(STS, data)), tmp_path / "work")
    fitted = outcome.fitted()
    assert fitted.predict(data.eval.examples) == pytest.approx(outcome.result.predictions, abs=1e-5)
    cost = fitted.cost(data.eval.examples)
    assert cost.num_parameters == outcome.result.num_parameters
    weights = tmp_path / "work" / "model" / "model.safetensors"
    assert cost.size_bytes == weights.stat().st_size
    # Four bytes a parameter, with the head.
    assert 4 * cost.num_parameters < cost.size_bytes < 4 * cost.num_parameters + 20_000
    assert 0 < cost.latency_ms_median <= cost.latency_ms_p95
    assert cost.sentences_per_s > 0
    assert cost.cpu_share > 0
    assert [(point.step, point.epoch) for point in outcome.curve] == [(1, 1.0)]
    assert outcome.curve[0].loss > 0


def test_a_file_of_metrics_is_a_learning_curve(write: Write, fails: Fails) -> None:
    lines = '{"step": 10, "epoch": 0.5, "loss": 0.7, "grad_norm": 1.0}\n{"step": 20, "epoch": 1.0, "loss": 0.4}\n'
    path = write(METRICS_FILE, lines + '{"step": 20, "train_runtime": 3.0}\n')
    assert [(point.step, point.loss) for point in read_curve(path)] == [(10, 0.7), (20, 0.4)]
    assert read_curve(path.with_name("none")) == ()
    with fails(CheckpointError, write("broken.jsonl", "{"), "not a file of training metrics"):
        read_curve(path.with_name("broken.jsonl"))
