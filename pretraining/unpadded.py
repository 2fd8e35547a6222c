"""ModernBERT without padding: the tokens of a batch in one row, and attention within each sequence alone.

On a GPU attention is torch's for sequences of any length (`torch.nn.attention.varlen`). Elsewhere sequences of similar
length are computed together, and local layers compute blocks: a block of queries with the block of keys on either side.
Everything but the attention is transformers' own.

Shapes: N tokens without padding, Q sequences, H heads, d width of a head, B sequences of a group, L their length.

Source: Warner et al. 2024 (ModernBERT), section 2.2.2; Beltagy et al. 2020 (Longformer) for the blocks.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

ATTENTION = "pressbert_unpadded"
"""Name among the attention implementations of transformers."""
LONGEST_WITH_SCORES = 512
"""Longest sequence whose attention scores are computed at once."""
HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Group:
    """Sequences of similar length."""

    positions: Tensor
    """int64 (B, L): of their tokens among the N; those behind the end of a sequence are any."""
    is_token: Tensor
    """bool (B, L)."""


@dataclass(frozen=True)
class Sequences:
    """Where the sequences of an unpadded batch begin and end."""

    borders: Tensor
    """int32 (Q + 1,)."""
    longest: int
    """At least the tokens of the longest one."""

    @functools.cached_property
    def groups(self) -> list[Group]:
        """All sequences, together with those of similar length."""
        starts, lengths = self.borders[:-1].long(), self.borders.diff().long()
        padded = [group_length(length) for length in lengths.tolist()]
        sizes = torch.tensor(padded, device=lengths.device)
        groups = []
        for size in sorted(set(padded)):
            chosen = sizes == size
            steps = torch.arange(size, device=lengths.device)
            is_token = steps < lengths[chosen, None]
            groups.append(Group(torch.where(is_token, starts[chosen, None] + steps, 0), is_token))
        return groups


def group_length(length: int) -> int:
    """Return the length that a sequence is padded to in its group: 8, 16, 24, 32, 48, 64, 96, …, at most half more."""
    size = 8
    while size < length:
        if size * 3 // 2 >= length and size >= 16:
            return size * 3 // 2
        size *= 2
    return size


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Sequences,
    *,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return what each token reads from its sequence, (1, N, H, d); transformers calls this in every layer.

    Args:
        module: the layer's attention.
        query: (1, H, N, d).
        key: (1, H, N, d).
        value: (1, H, N, d).
        attention_mask: the sequences.
        scaling: of the scores.
        dropout: of the probabilities.
        sliding_window: tokens on either side that a token sees, itself included; None: all.
    """
    del module
    reach = None if sliding_window is None else sliding_window - 1
    parts = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]  # (N, H, d)
    if query.is_cuda and query.dtype in HALVES and not dropout:
        return _attend_on_gpu(parts, attention_mask, scaling, reach).unsqueeze(0), None
    output = torch.zeros_like(parts[2])
    for group in attention_mask.groups:
        q, k, v = (part[group.positions].transpose(1, 2) for part in parts)  # (B, H, L, d)
        length = q.shape[2]
        if reach is not None and length > 2 * reach:
            read = _attend_in_blocks(q, k, v, group.is_token, scaling, dropout, reach)
        else:
            read = _attend_at_once(q, k, v, group.is_token, scaling, dropout, reach)
        output = output.index_put((group.positions[group.is_token],), read.transpose(1, 2)[group.is_token])
    return output.unsqueeze(0), None


def _attend_on_gpu(parts: list[Tensor], sequences: Sequences, scaling: float, reach: int | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    window = (-1, -1) if reach is None else (reach, reach)
    query, key, value = (part.contiguous() for part in parts)
    borders, longest = sequences.borders, sequences.longest
    read: Any = varlen_attn(query, key, value, borders, borders, longest, longest, scale=scaling, window_size=window)
    result: Tensor = read
    return result


def _attend_at_once(
    q: Tensor, k: Tensor, v: Tensor, is_token: Tensor, scaling: float, dropout: float, reach: int | None
) -> Tensor:
    """Attend with one matrix of scores a sequence; tensors are (B, H, L, d), IS_TOKEN is bool (B, L)."""
    visible = is_token[:, None, None, :]  # (B, 1, 1, L)
    if reach is not None and q.shape[2] > reach + 1:
        steps = torch.arange(q.shape[2], device=q.device)
        visible = visible & ((steps[:, None] - steps).abs() <= reach)
    if q.shape[2] > LONGEST_WITH_SCORES:
        return F.scaled_dot_product_attention(q, k, v, visible, dropout, scale=scaling)
    return _weighted(q @ k.transpose(-1, -2) * scaling, visible, dropout) @ v


def _attend_in_blocks(
    q: Tensor, k: Tensor, v: Tensor, is_token: Tensor, scaling: float, dropout: float, reach: int
) -> Tensor:
    """Attend to REACH tokens on either side, in blocks of so many; arguments and result as in `_attend_at_once`."""
    batch, heads, length, width = q.shape
    num_blocks = -(-length // reach)
    room = num_blocks * reach - length
    blocks = F.pad(q, (0, 0, 0, room)).view(batch, heads, num_blocks, reach, width)

    def neighbours(tensor: Tensor) -> Tensor:
        """Return the keys or values of each block and of the ones around it, (B, H, blocks, 3 × reach, d)."""
        padded = F.pad(tensor, (0, 0, reach, room + reach))
        return padded.unfold(2, 3 * reach, reach).transpose(-1, -2)

    own, theirs = torch.arange(reach, device=q.device), torch.arange(3 * reach, device=q.device)
    near = (own[:, None] + reach - theirs).abs() <= reach  # (reach, 3 × reach)
    exists = F.pad(is_token, (reach, room + reach)).unfold(1, 3 * reach, reach)  # (B, blocks, 3 × reach)
    visible = exists[:, None, :, None, :] & near
    scores = blocks @ neighbours(k).transpose(-1, -2) * scaling
    read = _weighted(scores, visible, dropout) @ neighbours(v)
    return read.reshape(batch, heads, num_blocks * reach, width)[:, :, :length]


def _weighted(scores: Tensor, visible: Tensor, dropout: float) -> Tensor:
    """Return attention probabilities of scores; a row that sees nothing, which is padding, gets equal ones."""
    hidden = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    probabilities = hidden.softmax(-1, dtype=torch.float32).to(scores.dtype)
    return F.dropout(probabilities, dropout) if dropout else probabilities


def use_unpadded_attention(network: Any) -> None:
    """Let a ModernBERT of transformers attend by `attend`; its inputs are then those of `encode_unpadded`."""
    from transformers import AttentionInterface

    function: Any = attend
    AttentionInterface.register(ATTENTION, function)
    network.set_attn_implementation(ATTENTION)


def encode_unpadded(encoder: Any, input_ids: Tensor, position_ids: Tensor, sequence_ids: Tensor) -> Tensor:
    """Return the last hidden states, (rows, T, D), of rows of sequences; those of padding are 0.

    Args:
        encoder: a `ModernBertModel` after `use_unpadded_attention`.
        input_ids: int64 (rows, T).
        position_ids: int64 (rows, T), counted from the start of each sequence.
        sequence_ids: int64 (rows, T); the tokens of a sequence are neighbours of the same number, 0 is padding.
    """
    rows, length = input_ids.shape
    numbers = sequence_ids + sequence_ids.amax() * torch.arange(rows, device=input_ids.device)[:, None]
    chosen = (sequence_ids > 0).flatten().nonzero().squeeze(1)  # (N,)
    kept = numbers.flatten()[chosen]
    begins = F.pad(kept.diff().ne(0), (1, 0), value=True).nonzero().squeeze(1)
    borders = F.pad(begins, (0, 1), value=len(chosen)).int()
    sequences = Sequences(borders, length)
    hidden = encoder(
        input_ids=input_ids.flatten()[chosen][None],
        position_ids=position_ids.flatten()[chosen][None],
        attention_mask=dict.fromkeys(("full_attention", "sliding_attention"), sequences),
    ).last_hidden_state[0]  # (N, D)
    states: Tensor = hidden.new_zeros(rows * length, hidden.shape[1]).index_put((chosen,), hidden)
    return states.view(rows, length, -1)
