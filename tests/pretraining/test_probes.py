"""Probes: labels are read off hidden states, and the run stays the same."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from corpora.foundation.errors import DataError, RecipeError
from pretraining.probes import Probe, ridge
from pretraining.recipe import ProbeConfig, check_recipe
from pretraining.training.metrics import read_metrics
from pretraining.training.run import Run
from pretraining.vocabulary.tokenizer import open_wordpiece

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

Fails = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.tsv"
    lines = [f"{k}\t{'좋은 영화 추천' if k % 3 else '나쁜 연기 실망'} {k % 7}\t{int(k % 3 > 0)}" for k in range(90)]
    path.write_text("\n".join(["id\tdocument\tlabel", *lines]) + "\n", encoding="utf-8")
    return path


def recipe(
    corpus: Path, tokenizer: Path, architecture: str = "bert", objective: str = "dynamic_mlm", **loop: Any
) -> dict[str, Any]:
    return {
        "objective": objective,
        "model": {"architecture": architecture, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
        "data": {"corpus": str(corpus), "tokenizer": str(tokenizer), "max_length": 32},
        "loop": {"steps": 2, "batch_size": 4, "warmup_steps": 1, "precision": "fp32", "evaluate_every": 1} | loop,
    }


def test_ridge_regression_finds_a_linear_boundary() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(400, 5, generator=generator, dtype=torch.float64) * torch.tensor([1, 5, 0.1, 1, 1]) + 3
    labels = (points[:, 0] - 3 + (points[:, 1] - 3) / 5 > 0).long()
    predicted = ridge(points[:300], labels[:300], points[300:])
    assert (predicted == labels[300:]).double().mean() > 0.9
    assert (ridge(points[:300], labels[:300].roll(7), points[300:]) == labels[300:]).double().mean() < 0.7


def test_a_probe_reads_labels_off_hidden_states(
    labelled: Path, few_texts: Path, small_vocabulary: Path, tmp_path: Path
) -> None:
    config = ProbeConfig(file=str(labelled), text="document", num_texts=80)
    probe = Probe.read(config, open_wordpiece(small_vocabulary / "tokenizer.json"), 8)
    assert (probe.name, len(probe.ids), max(map(len, probe.ids))) == ("reviews", 80, 8)
    assert probe.labels[:4].tolist() == [0, 1, 1, 0]
    for architecture in ("bert", "modernbert"):
        values = check_recipe(recipe(few_texts, small_vocabulary, architecture), "recipe")
        model = Run(values, tmp_path, cache=tmp_path / "cache", cpu=True).build_model()
        model.use_attention(torch.device("cpu"))
        assert probe.accuracy(model.eval(), torch.device("cpu")) == 1.0  # the words differ


def test_probes_are_in_the_log_and_change_nothing(
    labelled: Path, few_texts: Path, small_vocabulary: Path, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    weights = []
    for name, probes in (("without", []), ("with", [{"file": str(labelled), "text": "document", "num_texts": 50}])):
        (tmp_path / name).mkdir()
        values = check_recipe(recipe(few_texts, small_vocabulary, probes=probes), "recipe")
        Run(values, tmp_path / name, cache=tmp_path / "cache", cpu=True).train()
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
        lines = [line for line in read_metrics(tmp_path / name / "metrics.jsonl") if "probe_reviews" in line]
        assert len(lines) == 2 * len(probes), name
    assert weights[0] == weights[1]
    values = check_recipe(
        recipe(few_texts, small_vocabulary, probes=[{"file": str(labelled), "text": "texd"}]), "recipe"
    )
    with subtests.test(case="column"), fails(DataError, labelled, "0 labels", "texd"):
        Run(values, tmp_path / "column", cache=tmp_path / "cache", cpu=True).train()
    with subtests.test(case="architecture"), fails(RecipeError, "recipe", "loop.probes", "bart"):
        check_recipe(recipe(few_texts, small_vocabulary, "bart", "bart", probes=[{"file": "x"}]), "recipe")
    assert json.dumps(values.model_dump())
