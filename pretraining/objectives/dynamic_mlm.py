"""RoBERTa: dynamic masking, full sentences, no next-sentence prediction.

Input: single segments. With isolated documents, a document is split into segments of whole sentences that fill a row as
far as possible, and the rest of the row is filled with segments of other documents. Otherwise rows are filled as in the
paper (FULL-SENTENCES): whole sentences across document boundaries, with an additional `[SEP]` at each.

Relations: differs from `static_mlm_nsp` in the input format, in dynamic masking (new masks in every epoch), and in the
missing next-sentence loss. The masking rate is exact per row instead of capped per sequence; with whole-word masking it
is approached from below, since an eojeol that would exceed it is skipped.

Source: Liu et al. 2019, “RoBERTa: A Robustly Optimized BERT Pretraining Approach”, sections 4.1 and 4.2.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from pretraining.architectures import ENCODERS
from pretraining.data.masking import Corruption, choose_positions, corrupt, uniforms
from pretraining.data.rows import SPECIAL, RowShard, SentenceIndex, SequenceBuilder, TokenSpan
from pretraining.data.tokens import TokenizedCorpus, TokenShard
from pretraining.objective import MaskedBatch, Objective, ObjectiveConfig, RowBatch, rate_at, token_share

SPECIALS_PER_ROW = 2  # [CLS] and one [SEP]


class DynamicMlm(Objective):
    """See the module."""

    name = "dynamic_mlm"
    paper = "Liu et al. 2019 (RoBERTa)"
    settings = ObjectiveConfig
    architectures = ENCODERS

    @property
    def row_settings(self) -> list[Any]:
        """No settings: they concern the masks only."""
        return ["full sentences"]

    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Fill rows with whole sentences."""
        layout, shard = self.layout, corpus.shards[number]
        builder = SequenceBuilder(shard, layout.specials)
        fill = _fill_by_document if layout.isolate_documents else _fill_across_documents
        fill(builder, shard, layout.max_length - SPECIALS_PER_ROW)
        rng = np.random.default_rng([layout.seed, number])
        return builder.rows(layout.max_length, rng, several=layout.isolate_documents)

    def mask(self, batch: RowBatch) -> MaskedBatch:
        """Draw masks as a function of row and epoch."""
        length = batch.input_ids.shape[1]
        choice, fates, replacements, rounding = (
            uniforms((self.layout.seed, purpose), batch.rows, batch.epochs, length) for purpose in range(4)
        )
        num_tokens = (batch.kinds != SPECIAL).sum(axis=1)
        num_predictions = token_share(rate_at(self.config.mask_rate, batch.progress), num_tokens, rounding[:, 0])
        choice = self.preferences(batch, choice)
        chosen = choose_positions(batch.kinds, num_predictions, choice, whole_word=self.config.whole_word)
        corrupted = corrupt(batch.input_ids, chosen, Corruption(fates, replacements), self.layout.specials)
        return MaskedBatch(corrupted, np.flatnonzero(chosen), batch.input_ids[chosen])

    def preferences(self, batch: RowBatch, draws: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:  # noqa: ARG002
        """Return the numbers by which positions are chosen, in [0, 1), the smallest first; here the DRAWS, (B, T)."""
        return draws


def _fill_by_document(builder: SequenceBuilder, shard: TokenShard, room: int) -> None:
    sentences = SentenceIndex(shard, longest=room)
    for document in range(len(shard)):
        for segment in sentences.segments(document):
            builder.add([segment])


def _fill_across_documents(builder: SequenceBuilder, shard: TokenShard, room: int) -> None:
    sentences = SentenceIndex(shard, longest=room)
    row: list[TokenSpan] = []
    for document in range(len(shard)):
        for number, (begin, end) in enumerate(sentences[document]):
            continues = bool(row) and number > 0
            used = sum(b - a + 1 for a, b in row) - 1  # the last [SEP] is not part of the room
            if row and used + (end - begin) + (not continues) > room:
                builder.add(row)
                row, continues = [], False
            if continues:
                row[-1] = (row[-1][0], end)
            else:
                row.append((begin, end))
    if row:
        builder.add(row)


OBJECTIVE = DynamicMlm
