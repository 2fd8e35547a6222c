"""T5: spans of a text become sentinels, and a decoder writes the spans.

Input: one segment of whole sentences a row, `mask_rate` of its tokens in spans with a mean of `span_length` tokens.
Spans neither touch nor overlap. Each becomes a sentinel of its own, in the order of the text; sentinels are the slots
`[unused0]`, `[unused1]`, … of the vocabulary (`python -m pretraining.vocab … --unused N`).

| | tokens |
| --- | --- |
| text | a b c d e f g |
| encoder | `[CLS]` a `[unused0]` d e f `[unused1]` `[SEP]` |
| decoder, target | `[unused0]` b c `[unused1]` g `[unused2]` `[SEP]` |

Target: each sentinel of the input with the tokens of its span, and a last sentinel for the end. The decoder begins with
`[PAD]`, as the authors' does. The tokenizer of the saved folder reads sentinels in a text, and `generate` writes what
they stand for.

Relations: differs from `bart` in the target, which has the lost tokens only and so is short, and in the architecture:
relative positions, no biases, RMSNorm before each part. With `whole_word` rate and lengths count eojeol. In the
authors' code every text ends with a span and therefore has no last sentinel; here spans begin anywhere, and the target
ends as in the paper.

Source: Raffel et al. 2020, “Exploring the limits of transfer learning with a unified text-to-text transformer”,
sections 2.1.1, 3.1.4 and 3.3.4.
"""

from typing import Any

import numpy as np
from pydantic import Field

from corpora.foundation.errors import RecipeError
from pretraining.data.shards import IntArray
from pretraining.objective import ObjectiveConfig, RowLayout, rate_at
from pretraining.seq2seq import SPECIALS_PER_ROW, Denoising, joined, units_of


class T5Config(ObjectiveConfig):
    """Settings of T5; the default of `mask_rate` is the authors'."""

    span_length: float = Field(default=3.0, ge=1)
    """Mean length of a span. Default: section 3.3.4."""


class T5(Denoising):
    """See the module."""

    name = "t5"
    architectures = ("t5",)
    paper = "Raffel et al. 2020 (T5)"
    settings = T5Config

    def __init__(self, config: ObjectiveConfig, layout: RowLayout) -> None:
        """Create the objective.

        Raises:
            RecipeError: the vocabulary has fewer slots than a row may have sentinels.
        """
        super().__init__(config, layout)
        longest = layout.max_length - SPECIALS_PER_ROW
        highest = max(rate_at(self.config.mask_rate, progress) for progress in (0.0, 1.0))
        counts = range(1, min(longest, int(highest * longest) + 1) + 1)
        most = 1 + max(num_spans(longest, count, self.config.span_length) for count in counts)
        if len(layout.specials.unused) < most:
            what = f"rows of {layout.max_length} tokens need {most} sentinels, and the vocabulary has "
            what += f"{len(layout.specials.unused)} slots [unusedN]"
            raise RecipeError("objective t5", what, f"train one with python -m pretraining.vocab … --unused {most}")

    @property
    def decoder_start(self) -> int:
        """Token that the decoder begins with."""
        return self.layout.specials.pad

    def adapt_tokenizer(self, tokenizer: Any) -> None:
        """Let the tokenizer read sentinels in a text."""
        super().adapt_tokenizer(tokenizer)
        sentinels = tokenizer.convert_ids_to_tokens(list(self.layout.specials.unused))
        tokenizer.add_special_tokens({"extra_special_tokens": sentinels})

    def corrupt(
        self, ids: IntArray, kinds: IntArray, progress: float, rng: np.random.Generator
    ) -> tuple[IntArray, IntArray]:
        """Return the text with sentinels, and the sentinels with the text that they replace."""
        units = units_of(ids, kinds, whole_word=self.config.whole_word)
        count = int(rate_at(self.config.mask_rate, progress) * len(units) + rng.random())
        spans = draw_spans(len(units), min(max(count, 1), len(units)), self.config.span_length, rng)
        sentinels = [np.array([sentinel]) for sentinel in self.layout.specials.unused]
        source: list[IntArray] = []
        target: list[IntArray] = []
        end = 0
        for sentinel, (begin, after) in zip(sentinels, spans, strict=False):
            source += [*units[end:begin], sentinel]
            target += [sentinel, *units[begin:after]]
            end = after
        return joined(source + units[end:]), joined([*target, sentinels[len(spans)]])


def num_spans(num_units: int, num_noise: int, mean: float) -> int:
    """Return the number of spans of NUM_NOISE of NUM_UNITS units, so that their mean length is near MEAN.

    Spans must not touch: between any two of them a unit stays.
    """
    return min(max(round(num_noise / mean), 1), num_noise, num_units - num_noise + 1)


def draw_spans(num_units: int, num_noise: int, mean: float, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Draw spans; all lengths of the same sum and all places are equally likely.

    Args:
        num_units: of the text.
        num_noise: units in spans.
        mean: length of a span.
        rng: draws them.

    Returns:
        Begin and end (excluded) of each span, in order, with at least one unit between two of them.
    """
    count = num_spans(num_units, num_noise, mean)
    if count < 1:
        return []
    cuts = np.sort(rng.choice(num_noise - 1, count - 1, replace=False)) + 1
    lengths = np.diff(np.concatenate([[0], cuts, [num_noise]]))
    # Places between the units that stay, each with at most one span.
    places = np.sort(rng.choice(num_units - num_noise + 1, count, replace=False))
    begins = places + np.cumsum(lengths) - lengths
    return list(zip(begins.tolist(), (begins + lengths).tolist(), strict=True))


OBJECTIVE = T5
