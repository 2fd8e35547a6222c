"""Attention of transformers' classes while they are fine-tuned on a CPU.

There torch's fused attention has a backward pass in bf16 that is slow on short inputs (`benchmarks/finetuning.py`). All
other inputs keep it.

Shapes: B inputs, H heads, T tokens, d width of a head.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

ATTENTION = "pressbert_training"
"""Name among the attention implementations of transformers."""
FUSED = "sdpa"
LONGEST = 128
"""Tokens of the longest input whose scores are stored; they grow with the square of its length."""
SPECIAL = ("is_causal", "position_bias", "softcap", "cache")
"""Options of layers with other scores than the plain ones."""


@contextlib.contextmanager
def training_attention(model: nn.Module) -> Iterator[None]:
    """Let transformers' networks inside MODEL that have fused attention use `attend` in the context, if on a CPU."""
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    networks: list[Any] = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    changed = [
        network
        for network in networks
        if network.device.type == "cpu"
        and network.config._attn_implementation == FUSED
        and getattr(network, "_supports_attention_backend", False)
    ]
    AttentionInterface.register(ATTENTION, attend)
    AttentionMaskInterface.register(ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS[FUSED])
    for network in changed:
        network.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        for network in changed:
            network.set_attn_implementation(FUSED)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return what each token reads, (B, T, H, d); transformers calls this in every layer.

    Args:
        module: the layer's attention.
        query: (B, H, T, d).
        key: (B, H, T, d).
        value: (B, H, T, d).
        attention_mask: bool (B, 1, T, T), whether a token sees another; None: as the layer says.
        dropout: of the probabilities.
        scaling: of the scores; None: 1 / √d.
        options: of the fused attention.
    """
    from transformers import AttentionInterface

    if _is_faster_plain(module, query, key, attention_mask, options):
        scores = (query * (query.shape[-1] ** -0.5 if scaling is None else scaling)) @ key.transpose(-1, -2)
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
        probabilities = F.dropout(scores.softmax(-1, dtype=torch.float32).to(value.dtype), dropout)
        return (probabilities @ value).transpose(1, 2).contiguous(), None
    implementations: Any = AttentionInterface  # not annotated
    fused: Any = implementations()[FUSED]
    read, _ = fused(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options)
    return read, None


def _is_faster_plain(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: Mapping[str, Any]
) -> bool:
    """Whether a backward pass follows that is faster without fused attention."""
    return (
        query.requires_grad
        and query.dtype == torch.bfloat16
        and query.shape == key.shape
        and query.shape[2] <= LONGEST
        and (not getattr(module, "is_causal", True) if mask is None else mask.dtype == torch.bool)
        and all(options.get(name) is None for name in SPECIAL)
    )
