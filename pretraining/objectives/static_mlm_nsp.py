"""BERT: masked language modelling with static masking, and next-sentence prediction on sentence pairs.

Input: pairs `[CLS] A [SEP] B [SEP]` of consecutive sentences; B follows A (label 0) or comes from another document
(label 1), with equal probability. One document in ten is cut to a shorter, random target length. The corpus is
duplicated `dupe_factor` times, with different pairs and masks each time; the rows are the same in every epoch.

Relations: unlike google-research/bert, the other document is never the same one, and a chunk of a single sentence is
split at an eojeol boundary instead of always becoming a random pair, since “sentence” means any span of text in the
paper; `single_sentence = "random"` restores the code's behaviour, with more than half random pairs. A sentence longer
than half a row is first cut into pieces of that length, so that it can be part of a pair; the code keeps it whole and
truncates the pair, which gives other lengths of A where many sentences are long. Random replacements are never special
or unused tokens. With isolated documents, several pairs are packed into a row without attending to each other;
otherwise each pair has its own row.

Source: Devlin et al. 2019, section 3.1 and appendix A.1; google-research/bert, create_pretraining_data.py.
"""

import random
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, Field

from corpora.foundation.errors import DataError
from pretraining.architectures import ENCODERS
from pretraining.data.masking import Corruption, choose_positions, corrupt, uniforms
from pretraining.data.rows import SPECIAL, RowShard, SentenceIndex, SequenceBuilder, TokenSpan
from pretraining.data.shards import Ragged
from pretraining.data.tokens import TokenizedCorpus
from pretraining.objective import MLM, NSP, LossTerm, MaskedBatch, Objective, ObjectiveConfig, RowBatch, RowLayout

REAL_NEXT, RANDOM_NEXT = 0, 1
"""The labels of transformers and google-research/bert."""
SPECIALS_PER_PAIR = 3
SEQUENCES_PER_BLOCK = 4096


class StaticMlmNspConfig(ObjectiveConfig):
    """Settings of google-research/bert's data creation."""

    mask_rate: float = Field(default=0.15, gt=0, lt=1, validation_alias=AliasChoices("mask_rate", "masking_rate"))
    """Share of tokens to predict; one number, since the masks are drawn before the training."""
    dupe_factor: int = Field(default=10, ge=1)
    """Duplications of the corpus, each with different pairs and masks."""
    short_sequence_probability: float = Field(default=0.1, ge=0, le=1)
    """Probability that a document is cut to a shorter, random target length."""
    max_predictions: int | None = Field(default=None, ge=1)
    """Maximum number of predictions in a sequence; default: `mask_rate` of the row, rounded up (20 of 128)."""
    single_sentence: Literal["split", "random"] = "split"
    """Treatment of a chunk of one sentence: split at an eojeol boundary, or always a random pair."""
    next_sentence: bool = True
    """Predict whether B follows A; otherwise the pairs are the same without this loss."""


class StaticMlmNsp(Objective):
    """See the module."""

    name = "static_mlm_nsp"
    paper = "Devlin et al. 2019 (BERT)"
    settings = StaticMlmNspConfig
    architectures = ENCODERS

    @classmethod
    def held_out_settings(cls, config: ObjectiveConfig) -> ObjectiveConfig:
        """Return settings without repetitions."""
        return config.model_copy(update={"dupe_factor": 1})

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """Masked tokens and next sentences."""
        return (MLM, NSP) if self.config.next_sentence else (MLM,)

    @property
    def row_settings(self) -> list[Any]:
        """All settings but `next_sentence`, which concerns the loss only."""
        return [self.name, self.config.model_dump(exclude={"next_sentence"})]

    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Pair sentences, mask the pairs and pack them."""
        if len(corpus) < 2:
            raise DataError("corpus", "one document only", "next-sentence prediction needs at least two")
        layout, shard = self.layout, corpus.shards[number]
        builder = SequenceBuilder(shard, layout.specials)
        for repetition in range(self.config.dupe_factor):
            # Python draws single numbers faster than NumPy.
            rng = SeededRandom(f"{layout.seed} {number} {repetition}")
            pairing = _Pairing(corpus, number, builder, self.config, layout.max_length - SPECIALS_PER_PAIR, rng)
            for document in range(len(shard)):
                pairing.pair(document)
        order = np.random.default_rng([layout.seed, number])
        rows = builder.rows(layout.max_length, order, several=layout.isolate_documents)
        return _mask_once(rows, self.config, layout, number)

    def mask(self, batch: RowBatch) -> MaskedBatch:
        """Return the static masks of the rows."""
        assert batch.masked_positions is not None
        assert batch.masked_ids is not None
        return MaskedBatch(batch.input_ids, batch.masked_positions, batch.masked_ids)

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add the positions of `[CLS]` and the next-sentence labels."""
        of_pairs = {"sequence_starts": batch.sequence_starts, "next_labels": batch.labels}
        return super().inputs(batch) | (of_pairs if self.config.next_sentence else {})


class SeededRandom(random.Random):
    """A generator whose sequence depends on the seed alone, on every machine and Python version."""


class _Pairing:
    """Builds the sentence pairs of one duplication of one shard."""

    def __init__(
        self,
        corpus: TokenizedCorpus,
        number: int,
        builder: SequenceBuilder,
        config: StaticMlmNspConfig,
        room: int,
        rng: random.Random,
    ) -> None:
        self._corpus, self._shard, self._builder, self._config = corpus, corpus.shards[number], builder, config
        self._first_document = int(corpus.starts[number])
        self._room, self._rng = room, rng
        # A sentence longer than the room could not be part of a pair.
        self._sentences = SentenceIndex(self._shard, longest=max(1, room // 2))

    def pair(self, document: int) -> None:
        """Build the pairs of one document (rules 3 to 7 of create_pretraining_data.py)."""
        rng, sentences = self._rng, self._sentences[document]
        target = self._room
        if rng.random() < self._config.short_sequence_probability:
            target = rng.randint(2, self._room)
        first = 0
        while first < len(sentences):
            last, length = first, 0
            while last < len(sentences) and length < target:
                length += sentences[last][1] - sentences[last][0]
                last += 1
            first = self._pair_chunk(document, sentences, first, last, target)

    def _pair_chunk(self, document: int, sentences: Sequence[TokenSpan], first: int, last: int, target: int) -> int:
        """Build one pair from the sentences FIRST to LAST (excluded), and return the first unused sentence."""
        rng = self._rng
        begin, end = sentences[first][0], sentences[last - 1][1]
        boundary: int | None
        if last - first > 1:
            leading = rng.randint(1, last - first - 1)
            boundary, unused = sentences[first + leading][0], first + leading
        else:
            boundary, unused = self._eojeol_boundary(begin, end), last
        if boundary is None and self._config.single_sentence == "split":
            # A single eojeol could only become a random pair, and would bias the labels.
            return last
        if boundary is None or rng.random() < 0.5:
            a = (begin, end if boundary is None else boundary)
            self._add(a, self._random_next(document, target - (a[1] - a[0])), RANDOM_NEXT)
            # The sentences of the discarded B are used again.
            return unused
        self._add((begin, boundary), (boundary, end), REAL_NEXT)
        return last

    def _eojeol_boundary(self, begin: int, end: int) -> int | None:
        """Return a random eojeol boundary inside a sentence; None if there is none, or the settings need none."""
        if self._config.single_sentence == "random":
            return None
        boundaries = np.flatnonzero(self._shard.eojeol_starts[begin + 1 : end])
        return begin + 1 + int(boundaries[self._rng.randrange(len(boundaries))]) if len(boundaries) else None

    def _random_next(self, document: int, target: int) -> TokenSpan:
        """Return sentences of another document, starting at a random one, of TARGET tokens or more."""
        own = self._first_document + document
        other = self._rng.randrange(len(self._corpus) - 1)
        shard, number = self._corpus.locate(other + (other >= own))
        start = int(shard.ids.offsets[number])
        ends = (shard.sentence_ends[number] + start).tolist()
        chosen = self._rng.randrange(len(ends))
        begin = ends[chosen - 1] if chosen else start
        # `_add` truncates the pair, so twice the room is enough.
        end = next((e for e in ends[chosen:] if e - begin >= target), ends[-1])
        span = (begin, min(end, begin + 2 * self._room))
        return span if shard is self._shard else self._builder.append_tokens((shard, span))

    def _add(self, a: TokenSpan, b: TokenSpan, label: int) -> None:
        """Truncate the pair to the room, token by token at a random end of the longer side, and add it."""
        (a_begin, a_end), (b_begin, b_end) = a, b
        while (excess := (a_end - a_begin) + (b_end - b_begin) - self._room) > 0:
            difference = (a_end - a_begin) - (b_end - b_begin)
            # All tokens that the rule removes from one side before it turns to the other.
            cuts = min(excess, max(1, abs(difference)))
            at_front = self._rng.getrandbits(cuts).bit_count()
            if difference > 0:
                a_begin, a_end = a_begin + at_front, a_end - (cuts - at_front)
            else:
                b_begin, b_end = b_begin + at_front, b_end - (cuts - at_front)
        self._builder.add([(a_begin, a_end)], (b_begin, b_end), label=label)


def _mask_once(rows: RowShard, config: StaticMlmNspConfig, layout: RowLayout, number: int) -> RowShard:
    """Apply static masking to every sequence of ROWS."""
    lengths = rows.lengths.values
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[:-1]
    cap = config.max_predictions or int(np.ceil(config.mask_rate * layout.max_length))
    ids = rows.ids.values.copy()
    masked = np.zeros(len(ids), np.bool_)
    for first in range(0, len(lengths), SEQUENCES_PER_BLOCK):
        some = slice(first, first + SEQUENCES_PER_BLOCK)
        positions = starts[some, None] + np.arange(lengths[some].max())  # (Q, T)
        inside = positions < (starts[some] + lengths[some])[:, None]
        positions = np.minimum(positions, len(ids) - 1)
        kinds = np.where(inside, rows.kinds[positions], SPECIAL)
        # Of all tokens of the sequence, rounded half to even, at least one.
        num_predictions = np.clip(np.rint(config.mask_rate * lengths[some]), 1, cap).astype(np.int64)
        sequences = np.arange(first, first + len(num_predictions))
        choice, fates, replacements = (
            uniforms((layout.seed, purpose), sequences, np.full(len(sequences), number), positions.shape[1])
            for purpose in range(3)
        )
        chosen = choose_positions(kinds, num_predictions, choice, whole_word=config.whole_word)
        corrupted = corrupt(rows.ids.values[positions], chosen, Corruption(fates, replacements), layout.specials)
        ids[positions[chosen]] = corrupted[chosen]
        masked[positions[chosen]] = True
    masked_positions = np.flatnonzero(masked)
    row = np.searchsorted(rows.ids.offsets, masked_positions, side="right") - 1
    counts = np.bincount(row, minlength=len(rows))
    return RowShard(
        ids=Ragged(ids, rows.ids.offsets),
        kinds=rows.kinds,
        lengths=rows.lengths,
        first_lengths=rows.first_lengths,
        labels=rows.labels,
        masked_positions=Ragged.from_lengths(counts, (masked_positions - rows.ids.offsets[row]).astype(np.int32)),
        masked_ids=rows.ids.values[masked_positions],
    )


OBJECTIVE = StaticMlmNsp
