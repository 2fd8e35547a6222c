"""BART: an encoder reads a corrupted text, a decoder writes the original.

Input: one segment of whole sentences a row. The corruptions, in this order; each has its setting:

| corruption | setting | |
| --- | --- | --- |
| sentence permutation | `permute_sentences` | the sentences of the segment in random order |
| document rotation | `rotation_rate` | the segment begins at a random token, what was before it comes last |
| token deletion | `deletion_rate` | random tokens are left out |
| token masking | `mask_rate` | random tokens become `[MASK]` |
| text infilling | `infilling_rate`, `span_length` | spans of random length become one `[MASK]` each |

The lengths of spans are of a Poisson distribution; a span of length 0 inserts a `[MASK]`.

The defaults are those of the authors' large model, section 5.1. With `whole_word` deletion, masking and the lengths of
spans count eojeol. Spans do not overlap; the last one is shortened to the share of tokens that they cover, and
insertions never make a text longer than the original.

Target: the original text and `[SEP]`; the decoder begins with `[CLS]`. The authors' begins with `</s>` and first
predicts `<s>`, which is the same for every text. The saved folder says so, and `generate` restores a text.

Relations: differs from `dynamic_mlm` in the decoder, which writes all tokens and not only the masked ones; from `t5` in
the target.

Source: Lewis et al. 2020, “BART: Denoising sequence-to-sequence pre-training for natural language generation,
translation, and comprehension”, sections 2.2 and 5.1.
"""

import numpy as np
from pydantic import AliasChoices, Field

from pretraining.data.rows import SENTENCE_START
from pretraining.data.shards import IntArray
from pretraining.objective import ObjectiveConfig
from pretraining.seq2seq import Denoising, joined, units_of


class BartConfig(ObjectiveConfig):
    """Settings of BART."""

    mask_rate: float = Field(default=0.0, ge=0, lt=1, validation_alias=AliasChoices("mask_rate", "masking_rate"))
    """Share of tokens that become `[MASK]` one by one."""
    deletion_rate: float = Field(default=0.0, ge=0, lt=1)
    """Share of tokens that are left out."""
    infilling_rate: float = Field(default=0.3, ge=0, lt=1)
    """Share of tokens in spans that become one `[MASK]`."""
    span_length: float = Field(default=3.0, ge=1, le=100)
    """Mean of the Poisson distribution of the lengths of spans."""
    permute_sentences: bool = True
    """Whether sentences come in random order."""
    rotation_rate: float = Field(default=0.0, ge=0, le=1)
    """Share of texts that are rotated."""


class Bart(Denoising):
    """See the module."""

    name = "bart"
    architectures = ("bart",)
    paper = "Lewis et al. 2020 (BART)"
    settings = BartConfig

    def corrupt(
        self,
        ids: IntArray,
        kinds: IntArray,
        progress: float,  # noqa: ARG002
        rng: np.random.Generator,
    ) -> tuple[IntArray, IntArray]:
        """Return the corrupted text, and the original as the target."""
        config, mask = self.config, np.array([self.layout.specials.mask])
        order = np.arange(len(ids))
        if config.permute_sentences:
            order = permuted_sentences(kinds, rng)
        if rng.random() < config.rotation_rate:
            order = np.roll(order, -int(rng.integers(max(1, len(ids)))))
        units = units_of(ids[order], kinds[order], whole_word=config.whole_word)
        deleted = _choose(len(units), config.deletion_rate, rng)
        units = [unit for unit, is_deleted in zip(units, deleted, strict=True) if not is_deleted]
        masked = _choose(len(units), config.mask_rate, rng)
        units = [mask.repeat(len(unit)) if is_masked else unit for unit, is_masked in zip(units, masked, strict=True)]
        lengths = span_lengths(_share(len(units), config.infilling_rate, rng), config.span_length, rng)
        return infilled(units, lengths, mask, rng), ids


def permuted_sentences(kinds: IntArray, rng: np.random.Generator) -> IntArray:
    """Return the positions of a text's tokens with its sentences in random order, int64 (N,).

    Args:
        kinds: uint8 (N,); a sentence that is cut off by the start of the text starts there.
        rng: draws the order.
    """
    starts = np.flatnonzero(kinds == SENTENCE_START)
    sentences = np.split(np.arange(len(kinds)), starts[starts > 0])
    return joined([sentences[k] for k in rng.permutation(len(sentences))])


def span_lengths(num_units: int, mean: float, rng: np.random.Generator) -> list[int]:
    """Draw the lengths of spans that cover NUM_UNITS units, zeros included; the last one is shortened to the sum."""
    lengths: list[int] = []
    left = num_units
    while left > 0:
        lengths.append(min(left, int(rng.poisson(mean))))
        left -= lengths[-1]
    return lengths


def infilled(units: list[IntArray], lengths: list[int], mask: IntArray, rng: np.random.Generator) -> IntArray:
    """Replace spans of units by one MASK each; every arrangement of the spans is equally likely.

    Args:
        units: tokens of each unit.
        lengths: units of each span; 0 inserts a mask, as long as the text does not become longer than it was.
        mask: its token, (1,).
        rng: draws the arrangement.
    """
    # Of single units that stay, and of spans.
    items = np.array([-1] * (len(units) - sum(lengths)) + lengths)
    parts: list[IntArray] = []
    unit, room = 0, sum(lengths) - sum(length > 0 for length in lengths)
    for item in rng.permutation(items).tolist():
        if item < 0:
            parts.append(units[unit])
            unit += 1
        elif item > 0 or room > 0:
            parts.append(mask)
            unit, room = unit + item, room - (item == 0)
    return joined(parts)


def _share(num_units: int, rate: float, rng: np.random.Generator) -> int:
    """Return RATE of a number of units, rounded so that the expectation is exact."""
    return int(rate * num_units + rng.random())


def _choose(num_units: int, rate: float, rng: np.random.Generator) -> list[bool]:
    """Choose RATE of a number of units."""
    chosen: list[bool] = (rng.permutation(num_units) < _share(num_units, rate, rng)).tolist()
    return chosen


OBJECTIVE = Bart
