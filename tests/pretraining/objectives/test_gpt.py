"""GPT: the loss of transformers' own class, no sight of later tokens, and text that stops."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, GPT2LMHeadModel

from corpora.foundation.errors import CheckpointError
from pretraining.data.shards import Sharded
from pretraining.evaluate import evaluate_mlm
from pretraining.objectives.gpt import Gpt
from pretraining.recipe import ModelConfig, check_recipe
from pretraining.training.batches import BatchSource
from pretraining.training.metrics import read_metrics
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 48}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def source(numbered: Callable[..., Any], structure: Callable[..., Any]) -> BatchSource:
    corpus = numbered([structure(60, seed=1)])
    objective = Gpt(Gpt.settings(), corpus.layout(48))
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, 1)


@pytest.fixture(scope="module")
def model(source: BatchSource) -> Any:
    torch.manual_seed(2)
    shape = ModelConfig(architecture="gpt2", **SIZE, **STILL)
    made = source.objective.build_model(shape.network_config(source.objective.layout.specials.vocab_size, 0))
    made.use_attention(torch.device("cpu"))
    return made.eval()


def batches(source: BatchSource, count: int) -> list[dict[str, torch.Tensor]]:
    return [source.micro_batches(step, process=0, num_processes=1, size=1)[0] for step in range(count)]


def test_the_loss_is_that_of_transformers(source: BatchSource, model: Any) -> None:
    stock: Any = model.export({name: p.detach() for name, p in model.named_parameters()}).eval()
    assert isinstance(stock, GPT2LMHeadModel)
    compared = 0
    for batch in batches(source, 1600):
        if int(batch["sequence_ids"].max()) > 1 or compared == 200:
            continue
        ids = batch["input_ids"]
        with torch.no_grad():
            loss = stock(input_ids=ids, labels=torch.where(batch["sequence_ids"] > 0, ids, -100)).loss
            own = model(**batch)["clm_loss"] / len(batch["masked_ids"])
        assert own.item() == pytest.approx(loss.item(), abs=1e-6, rel=1e-6)
        compared += 1
    assert compared == 200


def test_later_tokens_and_other_sequences_change_nothing(source: BatchSource, model: Any) -> None:
    for batch in batches(source, 20):
        inputs = [batch[name] for name in ("token_type_ids", "position_ids", "sequence_ids")]
        before = model.encode(batch["input_ids"], *inputs)
        middle = batch["input_ids"].shape[1] // 2
        changed = batch["input_ids"].clone()
        changed[:, middle:] = 20
        after = model.encode(changed, *inputs)
        assert torch.equal(before[:, :middle], after[:, :middle])
        second = batch["sequence_ids"] == 2
        if second.any():
            changed = torch.where(batch["sequence_ids"] == 1, 20, batch["input_ids"])
            assert torch.equal(model.encode(changed, *inputs)[second], before[second])


def test_a_trained_folder_generates_in_plain_transformers(
    corpus: Path, small_vocabulary: Path, tmp_path: Path, fails: Callable[..., Any]
) -> None:
    recipe = check_recipe(
        {
            "objective": "gpt",
            "model": {**SIZE, "architecture": "gpt2"},
            "data": {"corpus": str(corpus), "tokenizer": str(small_vocabulary), "max_length": 48},
            "loop": {"steps": 30, "batch_size": 16, "peak_lr": 5e-3, "warmup_steps": 5, "precision": "fp32"}
            | {"log_every": 5, "optimizer": "muon"},
        },
        "recipe",
    )
    out = tmp_path / "gpt"
    out.mkdir()
    Run(recipe, out, cache=tmp_path / "cache", cpu=True).train()
    losses = [line["clm_loss"] for line in read_metrics(out / "metrics.jsonl") if "lr" in line]
    assert losses[-1] < losses[0] - 0.3
    network, report = GPT2LMHeadModel.from_pretrained(out, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert network.generation_config.eos_token_id == tokenizer.sep_token_id
    begun = tokenizer("시의회가", return_tensors="pt")["input_ids"][:, :-1]
    torch.manual_seed(0)
    made = network.generate(begun, do_sample=True, num_return_sequences=20, max_new_tokens=20)
    assert (made[:, : begun.shape[1]] == begun).all()
    ends = (made == tokenizer.sep_token_id).int()
    behind = ends.cumsum(dim=1) - ends > 0
    assert (made[behind] == tokenizer.pad_token_id).all()
    assert len(set(tokenizer.batch_decode(made))) > 10
    with fails(CheckpointError, out, "gpt2"):
        evaluate_mlm(out, corpus)
