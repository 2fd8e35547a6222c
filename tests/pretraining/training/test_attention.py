"""Attention in fine-tuning on CPUs: values and gradients of fused attention, and only where it is faster."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertLMHeadModel,
    ElectraConfig,
    ElectraForSequenceClassification,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    PreTrainedModel,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
)

from pretraining.training import attention
from pretraining.training.attention import ATTENTION, FUSED, LONGEST, training_attention

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 50,
}
QUIET: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LONG: dict[str, Any] = {"max_position_embeddings": LONGEST + 20}


NETWORKS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": lambda: BertForSequenceClassification(BertConfig(**SHAPE, **QUIET, **LONG)),
    "roberta": lambda: RobertaForSequenceClassification(RobertaConfig(**SHAPE, **QUIET, **LONG)),
    "electra": lambda: ElectraForSequenceClassification(ElectraConfig(**SHAPE, **QUIET, **LONG, embedding_size=16)),
    "albert": lambda: AlbertForSequenceClassification(
        AlbertConfig(**SHAPE, **QUIET, **LONG, embedding_size=16, classifier_dropout_prob=0.0)
    ),
    "modernbert": lambda: ModernBertForSequenceClassification(
        ModernBertConfig(**SHAPE, **LONG, pad_token_id=0, local_attention=8)
    ),
}


def inputs(length: int) -> dict[str, Tensor]:
    """Return two texts with labels, one of LENGTH and a shorter one."""
    ids = torch.arange(2 * length).view(2, length) % 45 + 5
    mask = torch.ones_like(ids)
    mask[1, length // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([0, 1])}


def step(model: PreTrainedModel, batch: dict[str, Tensor]) -> tuple[float, list[Tensor], int]:
    """Return the loss of a step under bf16, the gradients, and how often fused attention was called."""
    model.zero_grad()
    fused = torch.nn.functional.scaled_dot_product_attention
    with mock.patch("torch.nn.functional.scaled_dot_product_attention", side_effect=fused) as calls:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
    return float(loss.detach()), [p.grad.clone() for p in model.parameters() if p.grad is not None], calls.call_count


@pytest.mark.parametrize("kind", list(NETWORKS))
def test_short_inputs_are_trained_without_fused_attention(kind: str) -> None:
    torch.manual_seed(0)
    model = NETWORKS[kind]()
    assert model.config._attn_implementation == FUSED
    batch = inputs(20)
    loss, gradients, calls = step(model, batch)
    assert calls == 2
    with training_attention(model):
        ours, own, calls = step(model, batch)
        assert calls == 0
        assert ATTENTION not in model.config.to_json_string()  # a checkpoint is plain transformers
        model.train(mode=False)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            batches = mock.patch("torch.nn.functional.scaled_dot_product_attention", side_effect=ZeroDivisionError)
            with batches, pytest.raises(ZeroDivisionError):
                model(**batch)  # without a backward pass nothing changes
        model.train()
    assert ours == pytest.approx(loss, abs=1e-2)
    assert len(own) == len(gradients) > 10
    total, difference = (sum(float(g.square().sum()) for g in some) for some in (gradients, _minus(own, gradients)))
    assert difference < 0.01 * total
    assert model.config._attn_implementation == FUSED
    assert step(model, batch)[2] == 2


def _minus(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    return [one - two for one, two in zip(left, right, strict=True)]


def test_the_values_are_those_of_fused_attention() -> None:
    torch.manual_seed(1)
    layer: Any = torch.nn.Module()
    layer.is_causal = False
    query, key, value = (torch.randn(2, 3, 7, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    visible = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    visible[1, :, :, 4:] = False
    for mask in (None, visible):
        for scaling in (None, 0.5):
            read, _ = attention.attend(layer, query, key, value, mask, scaling=scaling)
            q, k, v = (tensor.detach().float() for tensor in (query, key, value))
            wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scaling)
            torch.testing.assert_close(read.float(), wanted.transpose(1, 2), atol=2e-2, rtol=0)
            assert read.grad_fn is not None
    torch.manual_seed(2)
    dropped, _ = attention.attend(layer, query, key, value, visible, dropout=0.5)
    torch.manual_seed(3)
    assert not torch.equal(dropped, attention.attend(layer, query, key, value, visible, dropout=0.5)[0])


@pytest.mark.parametrize("case", ["long", "single precision", "causal", "position bias"])
def test_other_inputs_keep_fused_attention(case: str) -> None:
    torch.manual_seed(0)
    bert = BertConfig(**SHAPE, **QUIET, **LONG, is_decoder=case == "causal")
    batch = inputs(LONGEST + 1 if case == "long" else 20)
    model: PreTrainedModel = BertForSequenceClassification(bert)
    if case == "causal":
        model = BertLMHeadModel(bert)
        batch = {"input_ids": batch["input_ids"], "labels": batch["input_ids"]}
    if case == "position bias":
        model = T5ForConditionalGeneration(
            T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4)
        )
        model.config.decoder_start_token_id = 0
        batch["labels"] = batch["input_ids"]
    with training_attention(model):
        if case == "single precision":
            fused = torch.nn.functional.scaled_dot_product_attention
            with mock.patch("torch.nn.functional.scaled_dot_product_attention", side_effect=fused) as calls:
                model(**batch).loss.backward()
            assert calls.call_count == 2
        elif case == "position bias":
            assert model.config._attn_implementation != ATTENTION
            assert step(model, batch)[0] > 0
        else:
            assert step(model, batch)[2] == 2
