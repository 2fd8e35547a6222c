"""Denoising with an encoder-decoder: the encoder reads a corrupted text, the decoder writes the target.

A row is one segment of one document. Several segments of a row would have to be kept apart in the encoder, in the
decoder and in the attention between the two; rows of one segment need no more than the padding masks of transformers.

The corruption is a function of (seed, epoch, row), as the masks of the other objectives.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pretraining.architectures import EncoderDecoder
from pretraining.data.rows import WORD_INSIDE, RowShard, SentenceIndex, SequenceBuilder
from pretraining.data.shards import IntArray
from pretraining.data.tokens import TokenizedCorpus
from pretraining.model import Flops, PretrainingModel, layer_flops
from pretraining.objective import LossTerm, MaskedBatch, Objective, RowBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedModel

SPECIALS_PER_ROW = 2  # [CLS] and [SEP]
DENOISING = LossTerm("denoising", "denoising", "masked_positions", token_ids="masked_ids")


@dataclass(frozen=True)
class DenoisingBatch(MaskedBatch):
    """A batch of corrupted texts and targets. Shapes: B rows, T tokens of the encoder, U of the decoder, M of targets.

    `masked_positions` are in the flattened batch of the decoder; `masked_ids` are the tokens of all targets.
    """

    sequence_ids: IntArray
    """int64 (B, T): 1 on the text, 0 on padding."""
    decoder_input_ids: IntArray
    """int64 (B, U): the targets, shifted to the right by the start token."""


class Denoising(Objective):
    """Base of the objectives of encoder-decoders; each adds its corruption."""

    pipeline_tag = "text2text-generation"
    across_documents = False

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """The tokens of the target."""
        return (DENOISING,)

    @property
    def row_settings(self) -> list[Any]:
        """No settings: they concern the corruption only."""
        return ["one segment"]

    @property
    def decoder_start(self) -> int:
        """Token that the decoder begins with."""
        return self.layout.specials.cls

    @abc.abstractmethod
    def corrupt(
        self, ids: IntArray, kinds: IntArray, progress: float, rng: np.random.Generator
    ) -> tuple[IntArray, IntArray]:
        """Return the corrupted text and the target, both without `[CLS]` and `[SEP]`.

        Args:
            ids: int (N,), tokens of a segment.
            kinds: uint8 (N,), `WORD_START`, `WORD_INSIDE` or `SENTENCE_START`.
            progress: share of the run that is done.
            rng: of the row in this epoch.

        Returns:
            int (≤ N,), int (≤ `max_length` - 2,).
        """

    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Make a row of each segment of whole sentences."""
        layout, shard = self.layout, corpus.shards[number]
        builder = SequenceBuilder(shard, layout.specials, with_sentences=True)
        sentences = SentenceIndex(shard, longest=layout.max_length - SPECIALS_PER_ROW)
        for document in range(len(shard)):
            for segment in sentences.segments(document):
                builder.add([segment])
        return builder.rows(layout.max_length, np.random.default_rng([layout.seed, number]), several=False)

    def mask(self, batch: RowBatch) -> DenoisingBatch:
        """Corrupt each row as a function of row and epoch."""
        specials = self.layout.specials
        sources: list[IntArray] = []
        targets: list[IntArray] = []
        for row, epoch, ids, kinds, sequence_ids in zip(
            batch.rows, batch.epochs, batch.input_ids, batch.kinds, batch.sequence_ids, strict=True
        ):
            rng = np.random.default_rng([self.layout.seed, int(epoch), int(row)])
            body = slice(1, int((sequence_ids > 0).sum()) - 1)
            source, target = self.corrupt(ids[body], kinds[body], batch.progress, rng)
            sources.append(np.concatenate([[specials.cls], source, [specials.sep]]))
            targets.append(np.append(target, specials.sep))
        input_ids, is_text = _stack(sources, specials.pad)
        labels, is_target = _stack(targets, specials.pad)
        begun, _ = _stack([np.concatenate([[self.decoder_start], target[:-1]]) for target in targets], specials.pad)
        return DenoisingBatch(
            input_ids, np.flatnonzero(is_target), labels[is_target], is_text.astype(np.int64), decoder_input_ids=begun
        )

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Return a batch as arguments of the model's `forward`."""
        corrupted = self.mask(batch)
        return {
            "input_ids": corrupted.input_ids,
            "sequence_ids": corrupted.sequence_ids,
            "decoder_input_ids": corrupted.decoder_input_ids,
            "masked_positions": corrupted.masked_positions,
            "masked_ids": corrupted.masked_ids,
        }

    def adapt_tokenizer(self, tokenizer: Any) -> None:
        """Let the tokenizer make the inputs of the network, which has no segments."""
        tokenizer.model_input_names = ["input_ids", "attention_mask"]

    def build_model(self, config: Any) -> PretrainingModel:
        """Return an encoder-decoder that knows where a text begins and ends."""
        specials = self.layout.specials
        config.bos_token_id, config.eos_token_id = specials.cls, specials.sep
        config.decoder_start_token_id = self.decoder_start
        # A text that is cut off at the longest length has no end.
        config.forced_eos_token_id = None
        return DenoisingModel(config)


def _stack(arrays: Sequence[IntArray], fill: int) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Pad arrays to the longest; return them as int64 (B, T), and where they are no padding, bool (B, T)."""
    lengths = np.array([len(array) for array in arrays])
    is_filled: npt.NDArray[np.bool_] = np.arange(lengths.max()) < lengths[:, None]
    stacked = np.full(is_filled.shape, fill, np.int64)
    stacked[is_filled] = np.concatenate(arrays)
    return stacked, is_filled


def units_of(ids: IntArray, kinds: IntArray, *, whole_word: bool) -> list[IntArray]:
    """Divide a text into the units of its corruption: tokens, or eojeol.

    Args:
        ids: int (N,).
        kinds: uint8 (N,); an eojeol that is cut off by the start of the text starts there.
        whole_word: whether units are whole eojeol.
    """
    firsts = np.flatnonzero(kinds != WORD_INSIDE) if whole_word else np.arange(len(ids))
    return np.split(ids, firsts[firsts > 0]) if len(ids) else []


def joined(parts: Sequence[IntArray]) -> IntArray:
    """Return the tokens of all parts, int64."""
    tokens: IntArray = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
    return tokens


class DenoisingModel(PretrainingModel):
    """An encoder-decoder. Shapes as in `DenoisingBatch`."""

    architecture: EncoderDecoder

    def __init__(self, config: Any) -> None:
        """Build it with random weights."""
        super().__init__(config, next_sentence=False)

    def decode(self, input_ids: Tensor, sequence_ids: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """Return the last hidden states of the decoder, (B, U, D); none depends on later tokens of its input."""
        # transformers would read masks of two dimensions from the device, to see whether there is any padding.
        of_text = self._attention_mask((sequence_ids > 0)[:, None, None, :])
        length = decoder_input_ids.shape[1]
        earlier = torch.ones(1, 1, length, length, dtype=torch.bool, device=decoder_input_ids.device).tril()
        masks = {"attention_mask": of_text, "decoder_attention_mask": self._attention_mask(earlier)}
        return self.architecture.decode(self.network, input_ids, decoder_input_ids, masks)

    def forward(
        self,
        input_ids: Tensor,
        sequence_ids: Tensor,
        decoder_input_ids: Tensor,
        masked_positions: Tensor,
        masked_ids: Tensor,
    ) -> dict[str, Tensor]:
        """Return `denoising_loss` and `denoising_correct`, sums over the M tokens of the targets.

        Args:
            input_ids: int64 (B, T), corrupted.
            sequence_ids: int64 (B, T), 0 on padding.
            decoder_input_ids: int64 (B, U).
            masked_positions: int64 (M,), in the flattened batch of the decoder.
            masked_ids: int64 (M,), the tokens to predict there.
        """
        hidden = self.decode(input_ids, sequence_ids, decoder_input_ids).flatten(0, 1)  # (B·U, D)
        outputs = self.predict_masked(hidden[masked_positions], masked_ids)
        return {"denoising_loss": outputs["mlm_loss"], "denoising_correct": outputs["mlm_correct"]}

    def flops(self) -> Flops:
        """Return the floating-point operations of a training step, without the attention scores of the decoder."""
        config = self.network.config
        head = 6.0 * config.hidden_size * self.vocab_size
        encoder, decoder = (layer_flops(stack) for stack in self.architecture.stacks(self.network))
        per_position = 12.0 * config.num_hidden_layers * config.hidden_size
        return Flops(encoder, per_position, {"denoising": decoder + head})

    def export(self, state: "Mapping[str, Tensor]", num_positions: int | None = None) -> "PreTrainedModel":
        """Return the network, which generates from the token that its decoder begins with."""
        exported = super().export(state, num_positions)
        generation: Any = exported.generation_config
        for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
            setattr(generation, name, getattr(exported.config, name))
        return exported
