"""ModernBERT without padding: the tokens of a batch in one row, and attention within each sequence alone.

On a GPU attention is torch's for sequences of any length (`torch.nn.attention.varlen`). Elsewhere local layers compute
blocks of the whole row, a block of queries with the block of keys on either side, where sequences are long. Other
layers take long sequences one after the other; short ones share windows, whose scores are computed at once, because
many small calls of torch's fused attention are slow, above all backward. Everything but the attention is
transformers' own.

Shapes: N tokens without padding, S sequences, H heads, d width of a head, G windows of W tokens.

Source: Warner et al. 2024 (ModernBERT), section 2.2.2; Beltagy et al. 2020 (Longformer) for the blocks.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

ATTENTION = "pressbert_unpadded"
"""Name among the attention implementations of transformers."""
HALVES = (torch.float16, torch.bfloat16)
WINDOW = 128
"""Sequences of at most so many tokens share windows of as many."""


@dataclass(frozen=True)
class Windows:
    """Windows of whole sequences, one after the other."""

    slots: Tensor
    """int64 (G × W,), the token of each slot; -1 for none."""
    places: Tensor
    """int64 (N,), the slot of each token; -1 for tokens of longer sequences."""
    numbers: Tensor
    """int64 (G, W), the sequence of each slot; -1 for none."""

    @classmethod
    def fill(cls, lengths: Sequence[int], device: torch.device) -> "Windows":
        """Put every sequence into the present window, or into a new one if it has no room; longer ones are left out."""
        slots: list[Tensor] = []
        begin, room = 0, 0
        for length in lengths:
            if length <= WINDOW:
                if length > room:
                    slots.append(torch.full((room,), -1))
                    room = WINDOW
                slots.append(torch.arange(begin, begin + length))
                room -= length
            begin += length
        every = torch.cat([*slots, torch.full((room,), -1)])
        is_text = every >= 0
        places = torch.full((begin,), -1)
        places[every[is_text]] = is_text.nonzero().squeeze(1)
        owners = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths, dtype=torch.long))
        numbers = torch.where(is_text, owners[every.clamp(min=0)] if begin else every, -1)
        return cls(every.to(device), places.to(device), numbers.view(-1, WINDOW).to(device))

    @functools.cached_property
    def _kept_masks(self) -> dict[int | None, Tensor]:
        return {}

    def mask(self, reach: int | None, dtype: torch.dtype) -> Tensor:
        """Return what is added to the scores, (G, 1, W, W).

        Args:
            reach: tokens on either side that a token sees; None: all of its sequence.
            dtype: of the scores.
        """
        if reach not in self._kept_masks:
            is_hidden = self.numbers[:, None, :, None] != self.numbers[:, None, None, :]
            if reach is not None:
                places = torch.arange(WINDOW, device=is_hidden.device)
                is_hidden = is_hidden | ((places[:, None] - places).abs() > reach)
            mask = torch.zeros(is_hidden.shape, dtype=dtype, device=is_hidden.device)
            self._kept_masks[reach] = mask.masked_fill_(is_hidden, torch.finfo(dtype).min)
        return self._kept_masks[reach]


@dataclass(frozen=True)
class Sequences:
    """Where the sequences of an unpadded batch begin and end."""

    borders: Tensor
    """int32 (S + 1,)."""
    longest: int
    """At least the tokens of the longest one."""

    @functools.cached_property
    def lengths(self) -> list[int]:
        """Tokens of each."""
        lengths: list[int] = self.borders.diff().tolist()
        return lengths

    @functools.cached_property
    def windows(self) -> Windows:
        """Windows of the short ones."""
        return Windows.fill(self.lengths, self.borders.device)

    @functools.cached_property
    def _kept_masks(self) -> dict[int, Tensor]:
        return {}

    def block_mask(self, reach: int, dtype: torch.dtype) -> Tensor:
        """Return what is added to the scores of local attention in blocks, (1, blocks, REACH, 3 × REACH).

        Args:
            reach: tokens on either side that a token sees; blocks of so many queries see the keys of three blocks.
            dtype: of the scores.
        """
        if reach not in self._kept_masks:
            num_tokens = sum(self.lengths)
            room = -num_tokens % reach
            numbers = torch.arange(len(self.lengths), device=self.borders.device)
            numbers = numbers.repeat_interleave(self.borders.diff(), output_size=num_tokens)
            own = F.pad(numbers, (0, room), value=-1).view(-1, reach, 1)
            theirs = F.pad(numbers, (reach, room + reach), value=-2).unfold(0, 3 * reach, reach)[:, None]
            places = torch.arange(3 * reach, device=numbers.device)
            is_near = (places[:reach, None] + reach - places).abs() <= reach
            is_hidden = ~((own == theirs) & is_near)
            mask = torch.zeros(is_hidden.shape, dtype=dtype, device=numbers.device)
            self._kept_masks[reach] = mask.masked_fill_(is_hidden, torch.finfo(dtype).min)[None]
        return self._kept_masks[reach]


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
    if query.device.type != "cpu" and query.dtype in HALVES and not dropout:
        parts = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]  # (N, H, d)
        return _attend_on_gpu(parts, attention_mask, scaling, reach).unsqueeze(0), None
    lengths = attention_mask.lengths
    if reach is not None and sum(length * length for length in lengths) > 3 * reach * sum(lengths):
        mask = attention_mask.block_mask(reach, query.dtype)
        return _attend_in_blocks(query, key, value, mask, scaling, dropout, reach).transpose(1, 2), None
    if max(lengths, default=0) <= WINDOW:
        return _attend_in_windows(query, key, value, attention_mask.windows, scaling, dropout, reach), None
    parts = []
    for q, k, v in zip(*(torch.split(tensor, lengths, dim=2) for tensor in (query, key, value)), strict=True):
        is_long = q.shape[2] > WINDOW
        near = _near(q, reach)
        parts.append(
            F.scaled_dot_product_attention(q, k, v, near, dropout, scale=scaling) if is_long else q.new_zeros(q.shape)
        )
    long = torch.cat(parts, dim=2).transpose(1, 2)
    if min(lengths) > WINDOW:
        return long, None
    return long + _attend_in_windows(query, key, value, attention_mask.windows, scaling, dropout, reach), None


def _attend_on_gpu(parts: list[Tensor], sequences: Sequences, scaling: float, reach: int | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    window = (-1, -1) if reach is None else (reach, reach)
    query, key, value = (part.contiguous() for part in parts)
    borders, longest = sequences.borders, sequences.longest
    read: Any = varlen_attn(query, key, value, borders, borders, longest, longest, scale=scaling, window_size=window)
    result: Tensor = read
    return result


def _near(query: Tensor, reach: int | None) -> Tensor | None:
    """Return which tokens of a sequence see which, bool (L, L); None: all do."""
    length = query.shape[2]
    if reach is None or length <= reach + 1:
        return None
    places = torch.arange(length, device=query.device)
    return (places[:, None] - places).abs() <= reach


class _Moved(torch.autograd.Function):
    """Lines of a tensor in another order.

    As every line has one place at most, the gradient is the opposite move; that of torch's indexing adds line by line.
    """

    @staticmethod
    def forward(ctx: Any, lines: Tensor, sources: Tensor, places: Tensor) -> Tensor:
        """Return the line of each source, zeros for -1; PLACES are those of the opposite move."""
        ctx.save_for_backward(places)
        return _taken(lines, sources)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Move the gradient back."""
        (places,) = ctx.saved_tensors
        return _taken(gradients[0], places), None, None


def _taken(lines: Tensor, sources: Tensor) -> Tensor:
    """Return the line of each source; zeros for -1."""
    taken = lines.index_select(0, sources.clamp(min=0))
    return taken.index_fill_(0, (sources < 0).nonzero().squeeze(1), 0)


def _attend_in_windows(
    query: Tensor, key: Tensor, value: Tensor, windows: Windows, scaling: float, dropout: float, reach: int | None
) -> Tensor:
    """Return what the tokens of short sequences read, (1, N, H, d), zeros for others; the tensors are (1, H, N, d)."""
    _, heads, num_tokens, width = query.shape
    move: Any = _Moved.apply  # not annotated

    def moved(tensor: Tensor) -> Tensor:
        """Return the vectors of the windows, (G, H, W, d)."""
        lines = tensor[0].transpose(0, 1).reshape(num_tokens, heads * width)
        slots: Tensor = move(lines, windows.slots, windows.places)
        return slots.view(-1, WINDOW, heads, width).transpose(1, 2)

    scores = (moved(query) * scaling) @ moved(key).transpose(-1, -2)
    scores = scores + windows.mask(reach, scores.dtype)
    probabilities = F.dropout(scores.softmax(-1).to(value.dtype), dropout)
    read = (probabilities @ moved(value)).transpose(1, 2).reshape(-1, heads * width)
    found: Tensor = move(read, windows.places, windows.slots)
    return found.view(1, num_tokens, heads, width)


def _attend_in_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, dropout: float, reach: int
) -> Tensor:
    """Attend to REACH tokens on either side; all tensors and the result are (1, H, N, d), MASK is `block_mask`."""
    _, heads, num_tokens, width = query.shape
    room = -num_tokens % reach
    blocks = F.pad(query[0], (0, 0, 0, room)).view(heads, -1, reach, width)

    def neighbours(tensor: Tensor) -> Tensor:
        """Return the keys or values of each block and of the ones around it, (H, blocks, 3 × reach, d)."""
        return F.pad(tensor[0], (0, 0, reach, room + reach)).unfold(1, 3 * reach, reach).transpose(-1, -2)

    read = F.scaled_dot_product_attention(blocks, neighbours(key), neighbours(value), mask, dropout, scale=scaling)
    return read.reshape(1, heads, -1, width)[:, :, :num_tokens]


def use_unpadded_attention(network: Any) -> None:
    """Let a ModernBERT of transformers attend by `attend`; its inputs are then those of `encode_unpadded`."""
    from transformers import AttentionInterface

    function: Any = attend
    AttentionInterface.register(ATTENTION, function)
    network.set_attn_implementation(ATTENTION)


def text_layout(sequence_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the text of a batch is; reads from the device that holds the batch.

    Args:
        sequence_ids: int64 (rows, T), as in `encode_unpadded`.

    Returns:
        Positions of the tokens in the flattened batch, int64 (N,); where the sequences begin among them, and N, int32
        (S + 1,).
    """
    rows = torch.arange(len(sequence_ids), device=sequence_ids.device)[:, None]
    numbers = (sequence_ids + sequence_ids.amax() * rows).flatten()
    positions = (sequence_ids > 0).flatten().nonzero().squeeze(1)
    begins = F.pad(numbers[positions].diff().ne(0), (1, 0), value=True).nonzero().squeeze(1)
    return positions, F.pad(begins, (0, 1), value=len(positions)).int()


def encode_unpadded(
    encoder: Any,
    input_ids: Tensor,
    position_ids: Tensor,
    sequence_ids: Tensor,
    layout: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Return the last hidden states, (rows, T, D), of rows of sequences; those of padding are 0.

    Args:
        encoder: a `ModernBertModel` after `use_unpadded_attention`.
        input_ids: int64 (rows, T).
        position_ids: int64 (rows, T), counted from the start of each sequence.
        sequence_ids: int64 (rows, T); the tokens of a sequence are neighbours of the same number, 0 is padding.
        layout: `text_layout` of the sequence ids; default: computed here.
    """
    rows, length = input_ids.shape
    positions, borders = text_layout(sequence_ids) if layout is None else layout
    sequences = Sequences(borders, length)
    hidden = encoder(
        input_ids=input_ids.flatten()[positions][None],
        position_ids=position_ids.flatten()[positions][None],
        attention_mask=dict.fromkeys(("full_attention", "sliding_attention"), sequences),
    ).last_hidden_state[0]  # (N, D)
    states: Tensor = hidden.new_zeros(rows * length, hidden.shape[1]).index_copy(0, positions, hidden)
    return states.view(rows, length, -1)
