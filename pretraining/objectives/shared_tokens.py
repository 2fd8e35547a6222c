"""Shared tokens: the encoder compares two texts, token by token and as a whole.

Input: documents, with probability `pair_rate` as pairs `[CLS] A [SEP] B [SEP]`, otherwise as single segments like those
of `dynamic_mlm`. B is a segment in which each eojeol is kept with a probability drawn from [0, 1] for each pair, and
otherwise replaced by one of another document; with probability 1/2 it is rotated at an eojeol boundary, so that equal
tokens are not at equal distances. A is the original segment or, with probability 1/2, a run of its eojeol, like a
question that quotes a passage. The order of the two texts is random. Masking is dynamic.

| term | positions | label | weight |
| --- | --- | --- | --- |
| mlm | the `mask_rate` of the tokens | the original token | 1 |
| found | all other tokens of a pair | whether the other text, with its masks, contains the token | `found_weight` |
| share | `[CLS]` of a pair | the share of tokens that the other text contains, before masking | `share_weight` |

Relations: masks as in `dynamic_mlm`; the head of `[CLS]` as in `static_mlm_nsp`, whose probability of label 0 is the
share here. An encoder pretrained on single segments has never compared two texts, and the few thousand pairs of a task
are too few to learn it; labels for every token, as in ELECTRA, teach it within a few hundred steps.

Source: this project; pairs after translation language modelling (Lample and Conneau 2019, “Cross-lingual Language Model
Pretraining”), in which the second text is a translation of the first.
"""

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from corpora.foundation.errors import DataError
from pretraining.data.rows import SPECIAL, RowShard, SentenceIndex, SequenceBuilder, TokenSpan, eojeol_spans
from pretraining.data.tokens import TokenizedCorpus, TokenShard
from pretraining.model import MaskedLanguageModel
from pretraining.objective import MLM, LossTerm, ObjectiveConfig, RowBatch
from pretraining.objectives.dynamic_mlm import SPECIALS_PER_ROW, DynamicMlm
from pretraining.objectives.static_mlm_nsp import SPECIALS_PER_PAIR, SeededRandom

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MIN_EOJEOL = 3
"""Shorter segments stay single: there is hardly anything to replace or to rotate."""
CLOSE = 0.1
"""Maximum error of a share that counts as correct."""
INIT_STD = 0.02
"""Of BERT."""

Word = tuple[TokenShard, TokenSpan]


class SharedTokensConfig(ObjectiveConfig):
    """Settings of shared tokens."""

    pair_rate: float = Field(default=0.5, gt=0, le=1)
    """Probability that a document becomes pairs; the others remain running text."""
    found_weight: float = Field(default=5.0, gt=0)
    share_weight: float = Field(default=1.0, gt=0)


class SharedTokens(DynamicMlm):
    """See the module."""

    name = "shared_tokens"
    architectures = ("bert",)
    paper = "ours, after Lample and Conneau 2019 (XLM)"
    settings = SharedTokensConfig

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """Masked tokens, tokens that the other text contains, and their share."""
        config = self.config
        return (
            MLM,
            LossTerm("found", "found", "found", config.found_weight),
            LossTerm("share", "share ± 0.1", "shares", config.share_weight),
        )

    @property
    def row_settings(self) -> list[Any]:
        """The settings of the pairs; the others concern masks and loss only."""
        return [self.name, self.config.pair_rate]

    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Build pairs from some documents, single segments from the others, and pack them."""
        if len(corpus) < 2:
            raise DataError("corpus", "one document only", "shared_tokens replaces words by those of other documents")
        layout, shard = self.layout, corpus.shards[number]
        builder = SequenceBuilder(shard, layout.specials)
        rng = SeededRandom(f"{layout.seed} {number}")
        room = (layout.max_length - SPECIALS_PER_PAIR) // 2
        pairing = _Pairing(corpus, number, builder, room, rng)
        halves = SentenceIndex(shard, longest=room)
        wholes = SentenceIndex(shard, longest=layout.max_length - SPECIALS_PER_ROW)
        for document in range(len(shard)):
            if rng.random() < self.config.pair_rate:
                for segment in halves.segments(document):
                    pairing.pair(document, segment)
            else:
                for segment in wholes.segments(document):
                    builder.add([segment])
        order = np.random.default_rng([layout.seed, number])
        return builder.rows(layout.max_length, order, several=layout.isolate_documents)

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add positions and labels of the judged tokens and of the pairs.

        `judged_positions` int64 (J,) and `found` float64 (J,); `pair_starts` int64 (P,) and `shares` float64 (P,). All
        positions are in the flattened batch.
        """
        inputs = super().inputs(batch)
        sequences = batch.sequence_numbers
        is_pair = np.zeros(len(batch.sequence_starts), np.bool_)
        is_pair[sequences[batch.token_type_ids == 1]] = True
        of_pairs = (batch.kinds != SPECIAL) & is_pair[sequences]
        masked = np.zeros(of_pairs.size, np.bool_)
        masked[inputs["masked_positions"]] = True
        judged = of_pairs & ~masked.reshape(of_pairs.shape)
        texts = 2 * sequences + batch.token_type_ids
        size = self.layout.specials.vocab_size
        whole = _is_found(texts, batch.input_ids, of_pairs, size)
        counts = np.bincount(sequences[of_pairs], minlength=len(is_pair))
        shared = np.bincount(sequences[of_pairs], whole[of_pairs], minlength=len(is_pair))
        return inputs | {
            "judged_positions": np.flatnonzero(judged),
            "found": _is_found(texts, inputs["input_ids"], judged, size)[judged].astype(np.float64),
            "pair_starts": batch.sequence_starts[is_pair],
            "shares": shared[is_pair] / counts[is_pair],
        }

    def build_model(self, config: Any) -> "SharedTokensModel":
        """Return an encoder with heads for masked tokens, for `[CLS]`, and for every token of a pair."""
        return SharedTokensModel(config)


class _Pairing:
    """Builds the pairs of one shard."""

    def __init__(
        self, corpus: TokenizedCorpus, number: int, builder: SequenceBuilder, room: int, rng: random.Random
    ) -> None:
        self._corpus, self._shard, self._builder = corpus, corpus.shards[number], builder
        self._room, self._rng = room, rng
        self._first_document = int(corpus.starts[number])

    def pair(self, document: int, segment: TokenSpan) -> None:
        """Add a pair of SEGMENT of DOCUMENT and a text that shares some of its words."""
        rng, shard = self._rng, self._shard
        words = eojeol_spans(shard, segment)
        if len(words) < MIN_EOJEOL:
            self._builder.add([segment])
            return
        keep = rng.random()
        changed: list[Word] = []
        others: list[Word] = []
        for word in words:
            if rng.random() < keep:
                changed.append((shard, word))
            else:
                # Consecutive words of one document, as far as they last: they are coherent.
                others = others or self._words_of_another(document)
                changed.append(others.pop(0))
        if rng.random() < 0.5:
            turn = rng.randrange(1, len(changed))
            changed = changed[turn:] + changed[:turn]
        if rng.random() < 0.5:
            size = rng.randint(2, len(words))
            first = rng.randint(0, len(words) - size)
            words = words[first : first + size]
        a = (words[0][0], words[-1][1])
        begin, end = self._builder.append_tokens(*changed)
        b = (begin, min(end, begin + self._room))
        if rng.random() < 0.5:
            a, b = b, a
        self._builder.add([a], b)

    def _words_of_another(self, document: int) -> list[Word]:
        """Return the words of a random other document, starting at a random token."""
        own = self._first_document + document
        other = self._rng.randrange(len(self._corpus) - 1)
        shard, number = self._corpus.locate(other + (other >= own))
        begin, end = int(shard.ids.offsets[number]), int(shard.ids.offsets[number + 1])
        first = self._rng.randrange(begin, end)
        words = eojeol_spans(shard, (first, min(end, first + self._room)))
        # The first may be the rest of a word; the last may be cut too, which matters little.
        return [(shard, word) for word in words[1:] or words]


def _is_found(
    texts: npt.NDArray[np.int64], ids: npt.NDArray[Any], visible: npt.NDArray[np.bool_], vocab_size: int
) -> npt.NDArray[np.bool_]:
    """Return whether the other text of a pair contains the token, bool (B, T).

    Args:
        texts: int64 (B, T), text numbers; those of a pair differ in the last bit.
        ids: int64 (B, T).
        visible: bool (B, T), the positions that count in both texts.
        vocab_size: V.
    """
    shown = texts[visible] * vocab_size + ids[visible]
    wanted = (texts ^ 1) * vocab_size + ids
    found: npt.NDArray[np.bool_] = np.isin(wanted, shown) & visible
    return found


class SharedTokensModel(MaskedLanguageModel):
    """A BERT that compares two texts token by token. Shapes as in `PretrainingModel`; J judged tokens, P pairs."""

    def __init__(self, config: "PreTrainedConfig") -> None:
        """Build the network with random weights; CONFIG is that of the encoder as it will be saved."""
        super().__init__(config, next_sentence=True)
        self.judge = nn.Linear(config.hidden_size, 1)
        nn.init.normal_(self.judge.weight, std=INIT_STD)
        nn.init.zeros_(self.judge.bias)

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        masked_positions: Tensor,
        masked_ids: Tensor,
        judged_positions: Tensor,
        found: Tensor,
        pair_starts: Tensor,
        shares: Tensor,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts; the first arguments are those of `MaskedLanguageModel`.

        Args:
            input_ids: int64 (B, T), with masks.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            masked_positions: int64 (M,).
            masked_ids: int64 (M,).
            judged_positions: int64 (J,), in the flattened batch.
            found: float64 (J,), 1 where the other text contains the token.
            pair_starts: int64 (P,), positions of the `[CLS]` of pairs.
            shares: float64 (P,), in [0, 1].
        """
        states = self.encode(input_ids, token_type_ids, position_ids, sequence_ids).flatten(0, 1)  # (B·T, D)
        outputs = self.predict_masked(states[masked_positions], masked_ids)
        scores = self.judge(states[judged_positions]).squeeze(-1).float()  # (J,)
        outputs["found_loss"] = F.binary_cross_entropy_with_logits(scores, found.float(), reduction="sum")
        outputs["found_correct"] = ((scores > 0) == (found > 0.5)).sum().float()
        pair_scores = self.pair_scores(states[pair_starts])  # (P, 2)
        targets = torch.stack([shares, 1 - shares], -1).float()
        outputs["share_loss"] = F.cross_entropy(pair_scores, targets, reduction="sum")
        outputs["share_correct"] = ((pair_scores.softmax(-1)[:, 0] - targets[:, 0]).abs() <= CLOSE).sum().float()
        return outputs


OBJECTIVE = SharedTokens
