"""ALBERT: masked n-grams of eojeol, and the order of two consecutive segments.

Input: pairs of consecutive segments of a document, divided at a random sentence boundary, and swapped with probability
½; a segment that is one sentence stays alone and has no label. Every epoch has new masks: runs of up to
`max_ngram` eojeol, a run of n with a probability proportional to 1/n.

| term | predictions | label |
| --- | --- | --- |
| mlm | the `mask_rate` of the tokens | the original token |
| sop | `[CLS]` of every pair | 1 if the segments are swapped |

Relations: differs from `static_mlm_nsp` in the second loss, which both segments of one document must decide by their
coherence and not by their topic, and in the masks of whole words. The layers share their weights, and the embeddings
are narrower, if the recipe's `model` says so. The authors' masks are n-grams of words, too; theirs are static.

Source: Lan et al. 2020, “ALBERT: A Lite BERT for Self-supervised Learning of Language Representations”, sections 3.1
and 4.1; labels as in transformers' `AlbertForPreTraining`.
"""

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from pretraining.data.masking import Corruption, corrupt, uniforms
from pretraining.data.rows import SPECIAL, WORD_START, RowShard, SentenceIndex, SequenceBuilder
from pretraining.data.shards import IntArray
from pretraining.data.tokens import TokenizedCorpus
from pretraining.model import MaskedLanguageModel, PretrainingModel
from pretraining.objective import (
    MLM,
    LossTerm,
    MaskedBatch,
    ObjectiveConfig,
    RowBatch,
    rate_at,
    token_share,
)
from pretraining.objectives.dynamic_mlm import DynamicMlm

SOP = LossTerm("sop", "SOP", "order_labels")
SPECIALS_PER_PAIR = 3
IN_ORDER, SWAPPED, ALONE = 0, 1, 2
"""Labels of sequences; the last is that of a segment without a second one."""


class AlbertConfig(ObjectiveConfig):
    """Settings of ALBERT."""

    max_ngram: int = Field(default=3, ge=1)
    """Eojeol of the longest run that is masked."""


class Albert(DynamicMlm):
    """See the module."""

    name = "albert"
    architectures = ("albert",)
    paper = "Lan et al. 2020 (ALBERT)"
    settings = AlbertConfig

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """Masked tokens and the order of segments."""
        return (MLM, SOP)

    @property
    def row_settings(self) -> list[Any]:
        """No settings: they concern the masks only."""
        return ["ordered segments"]

    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Divide segments of whole sentences in two, and swap half of them."""
        layout, shard = self.layout, corpus.shards[number]
        builder, room = SequenceBuilder(shard, layout.specials), layout.max_length - SPECIALS_PER_PAIR
        sentences = SentenceIndex(shard, longest=room)
        draw = random.Random(f"{layout.seed} {number}")  # noqa: S311
        for document in range(len(shard)):
            starts = {begin for begin, _ in sentences[document]}
            for begin, end in sentences.segments(document):
                inner = sorted(start for start in starts if begin < start < end)
                if not inner:
                    builder.add([(begin, end)], label=ALONE)
                    continue
                middle = draw.choice(inner)
                first, second = (begin, middle), (middle, end)
                is_swapped = draw.random() < 0.5
                if is_swapped:
                    first, second = second, first
                builder.add([first], second, label=SWAPPED if is_swapped else IN_ORDER)
        rng = np.random.default_rng([layout.seed, number])
        return builder.rows(layout.max_length, rng, several=layout.isolate_documents)

    def mask(self, batch: RowBatch) -> MaskedBatch:
        """Draw runs of eojeol as a function of row and epoch."""
        length = batch.input_ids.shape[1]
        starts, fates, replacements, rounding, sizes = (
            uniforms((self.layout.seed, purpose), batch.rows, batch.epochs, length) for purpose in range(5)
        )
        num_tokens = (batch.kinds != SPECIAL).sum(axis=1)
        rate = rate_at(self.config.mask_rate, batch.progress)
        counts = token_share(rate, num_tokens, rounding[:, 0])
        chosen = choose_ngrams(batch.kinds, counts, starts, sizes, max_ngram=self.config.max_ngram)
        corrupted = corrupt(batch.input_ids, chosen, Corruption(fates, replacements), self.layout.specials)
        return MaskedBatch(corrupted, np.flatnonzero(chosen), batch.input_ids[chosen])

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add the positions of `[CLS]` of the pairs and their labels."""
        is_pair = batch.labels != ALONE
        return super().inputs(batch) | {
            "pair_starts": batch.sequence_starts[is_pair],
            "order_labels": batch.labels[is_pair],
        }

    def build_model(self, config: Any) -> PretrainingModel:
        """Return an ALBERT with heads for masked tokens and for the order of segments."""
        return AlbertModel(config, next_sentence=True)


def ngram_lengths(draws: npt.NDArray[np.float64], max_ngram: int) -> IntArray:
    """Return the eojeol of runs, from 1 to MAX_NGRAM, a length n with a probability proportional to 1/n.

    Args:
        draws: uniform in [0, 1), of any shape.
        max_ngram: longest run.
    """
    shares = 1 / np.arange(1, max_ngram + 1)
    limits = np.cumsum(shares)[:-1] / shares.sum()
    lengths: IntArray = 1 + np.searchsorted(limits, draws, side="right")
    return lengths


def choose_ngrams(
    kinds: IntArray,
    num_predictions: IntArray,
    starts: npt.NDArray[np.float64],
    sizes: npt.NDArray[np.float64],
    *,
    max_ngram: int,
) -> npt.NDArray[np.bool_]:
    """Choose runs of whole eojeol to predict.

    Args:
        kinds: uint8 (B, T), `SPECIAL`, `WORD_START` or `WORD_INSIDE`.
        num_predictions: int (B,), most positions per row; a run that would exceed them is skipped.
        starts: uniform (B, T); the eojeol of a row begin runs in their order.
        sizes: uniform (B, T); the length of a run that begins at a position.
        max_ngram: eojeol of the longest run.

    Returns:
        bool (B, T), never true on a special token.
    """
    lengths = ngram_lengths(sizes, max_ngram)
    chosen = np.zeros(kinds.shape, np.bool_)
    for row in range(len(kinds)):
        maskable = np.flatnonzero(kinds[row] != SPECIAL)
        # A run ends at a special token; an eojeol that is cut off by one starts behind it.
        is_behind = np.diff(maskable, prepend=-2) > 1
        begins = np.flatnonzero((kinds[row][maskable] == WORD_START) | is_behind)
        blocks = np.cumsum(is_behind)[begins]
        ends = np.append(begins[1:], len(maskable))
        left = int(num_predictions[row])
        for word in np.argsort(starts[row][maskable[begins]], kind="stable").tolist():
            if left <= 0:
                break
            last = min(word + int(lengths[row, maskable[begins[word]]]), len(begins)) - 1
            while blocks[last] != blocks[word]:
                last -= 1
            run = maskable[begins[word] : ends[last]]
            if len(run) <= left and not chosen[row, run].any():
                chosen[row, run] = True
                left -= len(run)
    return chosen


class AlbertModel(MaskedLanguageModel):
    """An ALBERT with both heads. Shapes as in `PretrainingModel`; P pairs."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        masked_positions: Tensor,
        masked_ids: Tensor,
        pair_starts: Tensor,
        order_labels: Tensor,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts.

        Args:
            input_ids: int64 (B, T), with masks.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            masked_positions: int64 (M,), in the flattened batch.
            masked_ids: int64 (M,), the original tokens.
            pair_starts: int64 (P,), positions of the pairs' `[CLS]` in the flattened batch.
            order_labels: int64 (P,), 1 for swapped segments.

        Returns:
            `mlm_loss`, `mlm_correct`, `sop_loss`, `sop_correct`; float32 scalars.
        """
        hidden = self.encode(input_ids, token_type_ids, position_ids, sequence_ids).flatten(0, 1)  # (B·T, D)
        outputs = self.predict_masked(hidden[masked_positions], masked_ids)
        albert = self.encoder
        pooled = albert.pooler_activation(albert.pooler(hidden[pair_starts]))
        scores = self.network.sop_classifier(pooled).float()  # (P, 2)
        outputs["sop_loss"] = F.cross_entropy(scores, order_labels, reduction="sum")
        outputs["sop_correct"] = (scores.argmax(-1) == order_labels).sum().float()
        return outputs


OBJECTIVE = Albert
