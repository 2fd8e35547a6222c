"""Unpadded ModernBERT: states and gradients equal those of transformers' class."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import ModernBertConfig, ModernBertForMaskedLM

from pretraining.unpadded import WINDOW, Windows, encode_unpadded, text_layout, use_unpadded_attention

pytestmark = pytest.mark.usefixtures("one_thread")


def network(local_attention: int = 16, positions: int = 512) -> Any:
    torch.manual_seed(0)
    others = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    config = ModernBertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=positions,
        local_attention=local_attention,
        initializer_range=0.2,
        pad_token_id=0,
        **others,
    )
    return ModernBertForMaskedLM(config).eval()


def padded(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return random tokens, positions and the mask of rows of the given lengths."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, 100, mask.shape, generator=torch.Generator().manual_seed(1)) * mask
    return ids, torch.arange(max(lengths)).expand(mask.shape), mask


def test_logits_and_gradients_are_those_of_the_stock_class(subtests: pytest.Subtests) -> None:
    short = [[40, 7, 23, 1, 40], [9], [300, 17, 120, 64, 65, 33], [600, 5]]
    # Where a token sees 64 on either side, sequences of 100 are in windows.
    for lengths, local_attention in [*((some, 16) for some in short), ([100, 128, 3, 60, 60], 128), ([129, 140], 512)]:
        stock, own = network(local_attention), network(local_attention)
        use_unpadded_attention(own)
        ids, positions, mask = padded(lengths)
        expected = stock(input_ids=ids, attention_mask=mask).logits
        states = encode_unpadded(own.model, ids, positions, mask)
        logits = own.decoder(own.head(states))
        with subtests.test(lengths=lengths):
            torch.testing.assert_close(logits[mask > 0], expected[mask > 0], rtol=0, atol=1e-5)
            assert not states[mask == 0].any()
            for found in (expected, logits):
                found[mask > 0].square().mean().backward()
            own_gradients = dict(own.named_parameters())
            for name, parameter in stock.named_parameters():
                torch.testing.assert_close(own_gradients[name].grad, parameter.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_sequences_of_a_row_do_not_see_each_other() -> None:
    own = network()
    use_unpadded_attention(own)
    ids, positions, _ = padded([70])
    lengths = [25, 1, 40]
    numbers = torch.repeat_interleave(torch.tensor([1, 2, 3, 0]), torch.tensor([*lengths, 4]))[None]
    places = torch.cat([torch.arange(length) for length in [*lengths, 4]])[None]
    packed = encode_unpadded(own.model, ids, places, numbers)
    begin = 0
    for length in lengths:
        part = slice(begin, begin + length)
        alone = encode_unpadded(own.model, ids[:, part], positions[:, :length], torch.ones(1, length, dtype=torch.long))
        torch.testing.assert_close(packed[:, part], alone, rtol=0, atol=1e-5)
        begin += length


def test_short_sequences_share_windows() -> None:
    lengths = [100, 20, 300, 8, 1, 128, 90, 40]
    windows = Windows.fill(lengths, torch.device("cpu"))
    number_of = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    assert windows.numbers.shape == (5, WINDOW)
    assert [sorted(set(row.tolist())) for row in windows.numbers] == [[0, 1, 3], [-1, 4], [5], [-1, 6], [-1, 7]]
    is_text = windows.slots >= 0
    assert torch.equal(windows.numbers.flatten()[is_text], number_of[windows.slots[is_text]])
    assert torch.equal(windows.places[windows.slots[is_text]], is_text.nonzero().squeeze(1))
    assert torch.equal(windows.places < 0, number_of == 2)
    assert Windows.fill([], torch.device("cpu")).numbers.shape == (0, WINDOW)


def test_a_context_of_8192_is_computed_in_blocks() -> None:
    own, stock = network(128, 8192), network(128, 8192)
    use_unpadded_attention(own)
    ids, positions, mask = padded([8192])
    with torch.no_grad():
        states = encode_unpadded(own.model, ids, positions, mask)
        assert states.isfinite().all()
        # The first tokens of a long text see what those of its beginning see in the local layers alone.
        short = 1200
        found = encode_unpadded(own.model, ids[:, :short], positions[:, :short], mask[:, :short])
        expected = stock.model(input_ids=ids[:, :short], attention_mask=mask[:, :short]).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


def test_the_layout_of_a_batch_is_where_its_sequences_are() -> None:
    numbers = torch.tensor([[1, 1, 2, 0], [1, 2, 2, 2], [0, 0, 0, 0], [1, 1, 1, 0]])
    positions, borders = text_layout(numbers)
    assert positions.tolist() == [0, 1, 2, 4, 5, 6, 7, 12, 13, 14]
    assert borders.tolist() == [0, 2, 3, 4, 7, 10]
    assert [part.tolist() for part in text_layout(torch.zeros(1, 3, dtype=torch.long))] == [[], [0, 0]]


def test_the_probabilities_of_attention_are_dropped_in_blocks_and_in_whole_sequences() -> None:
    own = network()
    use_unpadded_attention(own)
    for lengths in ([300, 200], [12, 9]):
        ids, positions, mask = padded(lengths)
        torch.manual_seed(0)
        before = encode_unpadded(own.model.eval(), ids, positions, mask)
        for layer in own.model.layers:
            layer.attn.attention_dropout = 0.5
        after = encode_unpadded(own.model.train(), ids, positions, mask)
        assert not torch.allclose(before, after)
        assert after.isfinite().all()
