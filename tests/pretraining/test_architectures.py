"""Encoders other than BERT: they learn, their loss is transformers' own, and their folders are plain."""

import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from corpora.foundation.errors import CheckpointError, RecipeError
from pretraining.architectures import ENCODERS
from pretraining.evaluate import evaluate_mlm
from pretraining.model import MaskedLanguageModel
from pretraining.recipe import ModelConfig, check_recipe
from pretraining.training.metrics import read_metrics
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

Fails = Callable[..., AbstractContextManager[None]]
VOCAB_SIZE = 150
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "bert": {},
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16, "num_hidden_groups": 1},
    "modernbert": {"local_attention": 6, "num_hidden_layers": 3},
}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def shape_of(name: str, **settings: Any) -> ModelConfig:
    return ModelConfig(architecture=name, **{**SMALL, **SHAPES[name], **settings})


def build(name: str, **settings: Any) -> MaskedLanguageModel:
    torch.manual_seed(0)
    config = shape_of(name, **STILL, **settings).network_config(VOCAB_SIZE, 0)
    model = MaskedLanguageModel(config, next_sentence=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)  # biases and norms, too
    model.use_attention(torch.device("cpu"))
    return model


def random_batch(generator: np.random.Generator, *, packed: bool) -> dict[str, Tensor]:
    """Return rows of one sequence, or of two, with a quarter of the tokens to predict."""
    lengths = [(int(generator.integers(4, 10)), int(generator.integers(4, 10)) if packed else 0) for _ in range(3)]
    width = max(map(sum, lengths))
    ids, numbers, places = (np.zeros((3, width), np.int64) for _ in range(3))
    for row, (first, second) in enumerate(lengths):
        ids[row, : first + second] = generator.integers(5, VOCAB_SIZE, first + second)
        numbers[row, : first + second] = [1] * first + [2] * second
        places[row, : first + second] = [*range(first), *range(second)]
    masked = np.flatnonzero((numbers > 0) & (generator.random(numbers.shape) < 0.25))
    batch = {
        "input_ids": ids,
        "token_type_ids": np.zeros_like(ids),
        "position_ids": places,
        "sequence_ids": numbers,
        "masked_positions": masked,
        "masked_ids": generator.integers(5, VOCAB_SIZE, len(masked)),
    }
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def test_the_loss_is_that_of_transformers(subtests: pytest.Subtests) -> None:
    for name in ENCODERS:
        with subtests.test(architecture=name):
            model, generator = build(name), np.random.default_rng(1)
            stock: Any = model.export({key: p.detach() for key, p in model.named_parameters()}).eval()
            batches = (random_batch(generator, packed=False) for _ in itertools.count())
            for batch in itertools.islice((batch for batch in batches if len(batch["masked_ids"])), 200):
                labels = torch.full_like(batch["input_ids"], -100).flatten()
                labels[batch["masked_positions"]] = batch["masked_ids"]
                with torch.no_grad():
                    loss = stock(
                        input_ids=batch["input_ids"],
                        attention_mask=(batch["sequence_ids"] > 0).long(),
                        labels=labels.view_as(batch["input_ids"]),
                    ).loss
                    own = model(**batch)["mlm_loss"] / len(batch["masked_ids"])
                assert own.item() == pytest.approx(loss.item(), abs=1e-6, rel=1e-6)


def test_sequences_of_a_row_do_not_see_each_other(subtests: pytest.Subtests) -> None:
    for name in ENCODERS:
        with subtests.test(architecture=name):
            model, generator = build(name), np.random.default_rng(2)
            batch = random_batch(generator, packed=True)
            inputs = [batch[key] for key in ("token_type_ids", "position_ids", "sequence_ids")]
            before = model.encode(batch["input_ids"], *inputs)
            changed = torch.where(batch["sequence_ids"] == 2, 7, batch["input_ids"])
            after = model.encode(changed, *inputs)
            is_first = batch["sequence_ids"] == 1
            assert torch.equal(before[is_first], after[is_first])
            assert not torch.allclose(before[batch["sequence_ids"] == 2], after[batch["sequence_ids"] == 2])


def test_far_tokens_are_not_seen_by_the_local_layers_of_modernbert() -> None:
    model = build("modernbert")
    model.unpads = False  # as under torch.compile
    model.use_attention(torch.device("cpu"))
    seen: list[Tensor] = []
    for layer in model.network.model.layers:
        layer.attn.register_forward_pre_hook(
            lambda _, __, kwargs: seen.append(kwargs["attention_mask"]), with_kwargs=True
        )
    batch = random_batch(np.random.default_rng(3), packed=False)
    model(**batch)
    places = torch.arange(batch["input_ids"].shape[1])
    near = (places[:, None] - places[None, :]).abs() <= 3
    whole, local = seen[0][0, 0], seen[1][0, 0]
    is_text = batch["sequence_ids"][0] > 0
    assert (whole[is_text][:, is_text] == 0).all()
    assert torch.equal(local[is_text][:, is_text] == 0, near[is_text][:, is_text])


def test_factorised_and_shared_weights_are_fewer() -> None:
    def count(name: str, **settings: Any) -> int:
        return sum(p.numel() for p in build(name, num_hidden_layers=4, **settings).parameters())

    assert count("electra", embedding_size=8) < count("electra", embedding_size=32)
    shared, half, own = (count("albert", num_hidden_groups=groups) for groups in (1, 2, 4))
    assert shared < half < own
    assert half - shared == (own - half) // 2
    flops = [build("albert", num_hidden_layers=4, num_hidden_groups=n).flops().per_token for n in (1, 4)]
    assert flops[0] == pytest.approx(flops[1], rel=0.2)  # sharing saves memory, not time


@pytest.fixture
def make_run(corpus: Path, small_vocabulary: Path, tmp_path: Path) -> Callable[..., Run]:
    def make(name: str, out: str = "out", **model: Any) -> Run:
        recipe = check_recipe(
            {
                "objective": "dynamic_mlm",
                "model": {**SMALL, **SHAPES[name], "architecture": name, **model},
                "data": {"corpus": str(corpus), "tokenizer": str(small_vocabulary), "max_length": 32},
                "loop": {"steps": 30, "batch_size": 16, "peak_lr": 5e-3, "warmup_steps": 5, "precision": "fp32"}
                | {"log_every": 5, "optimizer": "muon"},
            },
            "recipe",
        )
        (tmp_path / out).mkdir(exist_ok=True)
        return Run(recipe, tmp_path / out, cache=tmp_path / "cache", cpu=True)

    return make


def test_every_architecture_learns_and_is_saved_as_a_plain_folder(
    make_run: Callable[..., Run], corpus: Path, subtests: pytest.Subtests, fails: Fails
) -> None:
    for name in set(ENCODERS) - {"bert"}:
        with subtests.test(architecture=name):
            run = make_run(name, name)
            run.train()
            losses = [line["mlm_loss"] for line in read_metrics(run.out / "metrics.jsonl") if "lr" in line]
            assert losses[-1] < losses[0] - 0.3
            assert json.loads((run.out / "config.json").read_text())["model_type"] == name
            _, report = AutoModelForMaskedLM.from_pretrained(run.out, output_loading_info=True)
            assert not report["missing_keys"]
            assert not report["unexpected_keys"]
            texts = AutoTokenizer.from_pretrained(run.out)(["시의회가 예산을 확정했다."], return_tensors="pt")
            assert AutoModel.from_pretrained(run.out)(**texts).last_hidden_state.shape[2] == 32
            scores = evaluate_mlm(run.out, corpus, max_length=32, max_rows=64)
            assert scores["mlm_loss"] == pytest.approx(losses[-1], abs=1.0)
            again = make_run(name, f"{name}-again", init=str(run.out)).build_model()
            saved = AutoModelForMaskedLM.from_pretrained(run.out).state_dict()
            for key, parameter in again.named_parameters():
                given = saved[key.removeprefix("network.")]
                assert torch.equal(parameter[: len(given)], given[: len(parameter)]), key
    with fails(CheckpointError, run.out, "is missing", "architecture (bert)"):
        make_run("bert", "other", init=str(run.out)).build_model()


def test_settings_that_do_not_fit_are_one_line(fails: Fails) -> None:
    data = {"corpus": "sample"}
    for objective, model, what in (
        ("static_mlm_nsp", {"architecture": "albert"}, "static_mlm_nsp with model.architecture=albert"),
        ("replaced_token", {"architecture": "electra"}, "replaced_token with model.architecture=electra"),
        ("dynamic_mlm", {"embedding_size": 16}, "model.embedding_size=16"),
        ("dynamic_mlm", {"num_hidden_groups": 2}, "model.num_hidden_groups=2"),
        ("dynamic_mlm", {"architecture": "albert", "num_hidden_groups": 13}, "exceeds model.num_hidden_layers=12"),
        ("dynamic_mlm", {"architecture": "gpt"}, "architecture='gpt'"),
    ):
        with fails(RecipeError, "recipe", what):
            check_recipe({"objective": objective, "model": model, "data": data}, "recipe")
