"""Two texts that share some of their words: which tokens of one are found in the other, and how many there are.

Input: documents, each with a probability of `pair_rate` as pairs `[CLS] A [SEP] B [SEP]`, otherwise as single segments
like those of `dynamic_mlm`. B is a stretch of sentences of which each eojeol was kept with a probability k, drawn anew
for each pair from all of [0, 1], and otherwise gave its place to one of another document; half the time it is turned
around at an eojeol border, so that what is alike does not stand at the same distance. A is the same stretch as it was
written, or half the time a run of its eojeol, as a question quotes a passage. Which of the two comes first is drawn,
too. Masks are drawn at feeding time.

| term | where | what is learnt | weight |
| --- | --- | --- | --- |
| mlm | the `mask_rate` of the tokens | the token | 1 |
| found | every other token of a pair | whether the other text, as it is fed, holds the same piece | `found_weight` |
| share | `[CLS]` of a pair | the share of its tokens whose piece the other text holds, before masks | `share_weight` |

Relations: masks as in `dynamic_mlm`; heads of `[CLS]` as in `static_mlm_nsp`, where 0 means what belongs together: here
its probability is the share. An encoder that has read single segments alone has never compared two, and does not learn
it from the few thousand pairs of a task; labels for every token, as ELECTRA has, teach it within a few hundred steps.

Source: ours; pairs after translation language modelling (Lample and Conneau 2019, “Cross-lingual Language Model
Pretraining”), where the second text is a translation of the first.
"""

import itertools
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from corpora.foundation.errors import DataError
from pretraining.data.rows import SPECIAL, RowShard, SentenceIndex, SequenceBuilder, Stretch
from pretraining.data.tokens import TokenizedCorpus, TokenShard
from pretraining.model import MaskedLanguageModel
from pretraining.objective import MLM, ObjectiveConfig, RowBatch, Term
from pretraining.objectives.dynamic_mlm import SPECIALS_PER_ROW, DynamicMlm
from pretraining.objectives.static_mlm_nsp import SPECIALS_PER_PAIR, SeededRandom

if TYPE_CHECKING:
    from transformers import BertConfig

MIN_EOJEOL = 3
"""What is shorter stays single: there is hardly anything to exchange or to turn around."""
CLOSE = 0.1
"""A share is counted as right within this of the true one."""
INIT_STD = 0.02
"""Of BERT."""

Word = tuple[TokenShard, Stretch]


class SharedTokensConfig(ObjectiveConfig):
    """Settings of shared tokens."""

    pair_rate: float = Field(default=0.5, gt=0, le=1)
    """How often a document is read as pairs; the others keep the encoder used to running text."""
    found_weight: float = Field(default=5.0, gt=0)
    share_weight: float = Field(default=1.0, gt=0)


class SharedTokens(DynamicMlm):
    """See the module."""

    name = "shared_tokens"
    paper = "ours, after Lample and Conneau 2019 (XLM)"
    settings = SharedTokensConfig

    @property
    def terms(self) -> tuple[Term, ...]:
        """Masked tokens, tokens that the other text holds, and their share."""
        config = self.config
        return (
            MLM,
            Term("found", "found", "found", config.found_weight),
            Term("share", "share ± 0.1", "shares", config.share_weight),
        )

    @property
    def row_settings(self) -> list[Any]:
        """What pairs are made; masks are drawn later."""
        return [self.name, self.config.pair_rate]

    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Make pairs of some documents, single segments of the others, and pack them."""
        if len(corpus) < 2:
            raise DataError("corpus", "one document only", "shared tokens exchanges words with other documents")
        layout, shard = self.layout, corpus.shards[number]
        builder = SequenceBuilder(shard, layout.specials)
        rng = SeededRandom(f"{layout.seed} {number}")
        room = (layout.max_length - SPECIALS_PER_PAIR) // 2
        pairing = _Pairing(corpus, number, builder, room, rng)
        halves = SentenceIndex(shard, longest=room)
        wholes = SentenceIndex(shard, longest=layout.max_length - SPECIALS_PER_ROW)
        for document in range(len(shard)):
            if rng.random() < self.config.pair_rate:
                for stretch in halves.stretches(document):
                    pairing.pair(document, stretch)
            else:
                for stretch in wholes.stretches(document):
                    builder.add([stretch])
        order = np.random.default_rng([layout.seed, number])
        return builder.rows(layout.max_length, order, several=layout.isolate_documents)

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add, for the pairs, which tokens are judged and what is true of them.

        `judged_at` int64 (J,), `found` float64 (J,); `pairs_at` int64 (P,), where the pairs begin, and `shares` float64
        (P,), all positions counted through the whole batch.
        """
        inputs = super().inputs(batch)
        sequences = _sequence_numbers(batch)  # (B, T)
        is_pair = np.zeros(len(batch.first_at), np.bool_)
        is_pair[sequences[batch.token_type_ids == 1]] = True
        of_pairs = (batch.kinds != SPECIAL) & is_pair[sequences]
        masked = np.zeros(of_pairs.size, np.bool_)
        masked[inputs["masked_at"]] = True
        judged = of_pairs & ~masked.reshape(of_pairs.shape)
        texts = 2 * sequences + batch.token_type_ids
        size = self.layout.specials.vocab_size
        whole = _is_found(texts, batch.input_ids, of_pairs, size)
        counts = np.bincount(sequences[of_pairs], minlength=len(is_pair))
        shared = np.bincount(sequences[of_pairs], whole[of_pairs], minlength=len(is_pair))
        return inputs | {
            "judged_at": np.flatnonzero(judged),
            "found": _is_found(texts, inputs["input_ids"], judged, size)[judged].astype(np.float64),
            "pairs_at": batch.first_at[is_pair],
            "shares": shared[is_pair] / counts[is_pair],
        }

    def build_model(self, config: "BertConfig") -> "SharedTokensModel":
        """Return an encoder with a head for masked tokens, one for `[CLS]`, and one for every token of a pair."""
        return SharedTokensModel(config)


class _Pairing:
    """Makes the pairs of one shard."""

    def __init__(
        self, corpus: TokenizedCorpus, number: int, builder: SequenceBuilder, room: int, rng: random.Random
    ) -> None:
        self._corpus, self._shard, self._builder = corpus, corpus.shards[number], builder
        self._room, self._rng = room, rng
        self._first_document = int(corpus.starts[number])

    def pair(self, document: int, stretch: Stretch) -> None:
        """Add STRETCH of DOCUMENT, and beside it a text that shares some of its words."""
        rng, shard = self._rng, self._shard
        words = _eojeol(shard, stretch)
        if len(words) < MIN_EOJEOL:
            self._builder.add([stretch])
            return
        keep = rng.random()
        changed: list[Word] = []
        others: list[Word] = []
        for word in words:
            if rng.random() < keep:
                changed.append((shard, word))
            else:
                # A run of words from one document, as far as it goes: they make some sense together.
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
        begin, end = self._builder.bring(*changed)
        b = (begin, min(end, begin + self._room))
        if rng.random() < 0.5:
            a, b = b, a
        self._builder.add([a], b)

    def _words_of_another(self, document: int) -> list[Word]:
        """Return words of a random other document from a random one on."""
        own = self._first_document + document
        other = self._rng.randrange(len(self._corpus) - 1)
        shard, number = self._corpus.locate(other + (other >= own))
        begin, end = int(shard.ids.offsets[number]), int(shard.ids.offsets[number + 1])
        first = self._rng.randrange(begin, end)
        words = _eojeol(shard, (first, min(end, first + self._room)))
        # The first may be the rest of a word that was cut; so may the last, which matters little.
        return [(shard, word) for word in words[1:] or words]


def _eojeol(shard: TokenShard, stretch: Stretch) -> list[Stretch]:
    begin, end = stretch
    borders = [begin, *(begin + 1 + np.flatnonzero(shard.eojeol_starts[begin + 1 : end])).tolist(), end]
    return list(itertools.pairwise(borders))


def _sequence_numbers(batch: RowBatch) -> npt.NDArray[np.int64]:
    """Return (B, T), to which sequence of the batch each place belongs; padding counts to the one before."""
    starts = np.zeros(batch.input_ids.size, np.int64)
    starts[batch.first_at] = 1
    numbers: npt.NDArray[np.int64] = (np.cumsum(starts) - 1).reshape(batch.input_ids.shape)
    return numbers


def _is_found(
    texts: npt.NDArray[np.int64], ids: npt.NDArray[Any], visible: npt.NDArray[np.bool_], vocab_size: int
) -> npt.NDArray[np.bool_]:
    """Return (B, T), where the other text of a pair shows the piece that stands here.

    Args:
        texts: int64 (B, T), numbers of texts; those of a pair differ in their last bit.
        ids: int64 (B, T).
        visible: bool (B, T), the places that count, here and there.
        vocab_size: number of pieces.
    """
    shown = texts[visible] * vocab_size + ids[visible]
    wanted = (texts ^ 1) * vocab_size + ids
    found: npt.NDArray[np.bool_] = np.isin(wanted, shown) & visible
    return found


class SharedTokensModel(MaskedLanguageModel):
    """A BERT that compares two texts token by token. Letters as in `PretrainingModel`; J judged tokens, P pairs."""

    def __init__(self, config: "BertConfig") -> None:
        """Build the network with random weights; CONFIG is of the encoder as it will be saved."""
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
        masked_at: Tensor,
        masked_ids: Tensor,
        judged_at: Tensor,
        found: Tensor,
        pairs_at: Tensor,
        shares: Tensor,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts; the first arguments are those of `MaskedLanguageModel`.

        Args:
            input_ids: int64 (B, T), as fed.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            masked_at: int64 (M,).
            masked_ids: int64 (M,).
            judged_at: int64 (J,), positions through the flattened batch.
            found: float64 (J,), 1 where the other text shows the same piece.
            pairs_at: int64 (P,), positions of the `[CLS]` of pairs.
            shares: float64 (P,), in [0, 1].
        """
        states = self.encode(input_ids, token_type_ids, position_ids, sequence_ids).flatten(0, 1)  # (B·T, D)
        outputs = self.predict_masked(states[masked_at], masked_ids)
        scores = self.judge(states[judged_at]).squeeze(-1).float()  # (J,)
        outputs["found_loss"] = F.binary_cross_entropy_with_logits(scores, found.float(), reduction="sum")
        outputs["found_correct"] = ((scores > 0) == (found > 0.5)).sum().float()
        of_pairs = self.pair_scores(states[pairs_at])  # (P, 2)
        targets = torch.stack([shares, 1 - shares], -1).float()
        outputs["share_loss"] = F.cross_entropy(of_pairs, targets, reduction="sum")
        outputs["share_correct"] = ((of_pairs.softmax(-1)[:, 0] - targets[:, 0]).abs() <= CLOSE).sum().float()
        return outputs


OBJECTIVE = SharedTokens
