"""BERT: masked tokens and next-sentence prediction on sentence pairs, with masks drawn once.

Input: pairs `[CLS] A [SEP] B [SEP]`. A and B are stretches of sentences; B follows A (label 0) or comes from another
document (label 1), each half of the time. One document pass in ten aims at a shorter, random length. The whole corpus
is gone through `dupe_factor` times, each time with other pairs and masks, and what came out of it is fed unchanged in
every epoch.

Relations: unlike google-research/bert, the other document is never the same one, and a chunk of a single sentence is
split at an eojeol border instead of always becoming a random pair, since “sentence” means any span of text in the
paper; `single_sentence = "random"` brings the code's behaviour back, and with it more than half random pairs. Where
documents are isolated, several pairs share a row without seeing each other; otherwise each has a row of its own.

Source: Devlin et al. 2019, section 3.1 and appendix A.1; google-research/bert, create_pretraining_data.py.
"""

import random
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from corpora.foundation.errors import DataError
from pretraining.data.masking import Corruption, choose_positions, corrupt, uniforms
from pretraining.data.rows import SPECIAL, RowShard, SentenceIndex, SequenceBuilder, Stretch
from pretraining.data.shards import Ragged
from pretraining.data.tokens import TokenizedCorpus
from pretraining.objective import MLM, NSP, Masked, Objective, ObjectiveConfig, RowBatch, RowLayout, Term

REAL_NEXT, RANDOM_NEXT = 0, 1
"""The labels of transformers and google-research/bert."""
SPECIALS_PER_PAIR = 3
AT_ONCE = 4096


class StaticMlmNspConfig(ObjectiveConfig):
    """Settings of google-research/bert's data creation."""

    dupe_factor: int = Field(default=10, ge=1)
    """Passes over the corpus, each with other pairs and masks."""
    short_sequence_probability: float = Field(default=0.1, ge=0, le=1)
    """How often a document is cut to a shorter, random target length."""
    max_predictions: int | None = Field(default=None, ge=1)
    """Largest number of predictions in a sequence; default: `mask_rate` of the row, rounded up (20 of 128)."""
    single_sentence: Literal["split", "random"] = "split"
    """What becomes of a chunk of one sentence: split at an eojeol border, or always a random pair."""
    next_sentence: bool = True
    """Ask whether B follows A; otherwise the pairs are the same and only masked tokens are asked for."""


class StaticMlmNsp(Objective):
    """See the module."""

    name = "static_mlm_nsp"
    paper = "Devlin et al. 2019 (BERT)"
    settings = StaticMlmNspConfig

    @property
    def terms(self) -> tuple[Term, ...]:
        """Masked tokens and next sentences."""
        return (MLM, NSP) if self.config.next_sentence else (MLM,)

    @property
    def row_settings(self) -> list[Any]:
        """All but what is asked of the rows."""
        return [self.name, self.config.model_dump(exclude={"next_sentence"})]

    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Pair sentences, mask the pairs and pack them."""
        if len(corpus) < 2:
            raise DataError(
                "corpus", "one document only", "next-sentence prediction takes its random pairs from others"
            )
        layout, shard = self.layout, corpus.shards[number]
        builder = SequenceBuilder(shard, layout.specials)
        for repetition in range(self.config.dupe_factor):
            # A seeded sequence is what is wanted here, and Python's draws single numbers faster than NumPy's.
            rng = SeededRandom(f"{layout.seed} {number} {repetition}")
            pairing = _Pairing(corpus, number, builder, self.config, layout.max_length - SPECIALS_PER_PAIR, rng)
            for document in range(len(shard)):
                pairing.pair(document)
        order = np.random.default_rng([layout.seed, number])
        rows = builder.rows(layout.max_length, order, several=layout.isolate_documents)
        return _mask_once(rows, self.config, layout, number)

    def mask(self, batch: RowBatch) -> Masked:
        """Return the masks that the rows were made with."""
        assert batch.masked_at is not None
        assert batch.masked_ids is not None
        return Masked(batch.input_ids, batch.masked_at, batch.masked_ids)

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add where the pairs begin and what they are."""
        of_pairs = {"first_at": batch.first_at, "next_labels": batch.labels}
        return super().inputs(batch) | (of_pairs if self.config.next_sentence else {})


class SeededRandom(random.Random):
    """A random sequence that its seed decides on every machine and Python version."""


class _Pairing:
    """Makes the pairs of one pass over one shard."""

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
        # A sentence that alone exceeds the room would make a pair with itself impossible.
        self._sentences = SentenceIndex(self._shard, longest=max(1, room // 2))

    def pair(self, document: int) -> None:
        """Make the pairs of one document (rules 3 to 7 of create_pretraining_data.py)."""
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

    def _pair_chunk(self, document: int, sentences: Sequence[Stretch], first: int, last: int, target: int) -> int:
        """Make one pair of the sentences FIRST … LAST, and return the first sentence that is still unused."""
        rng = self._rng
        begin, end = sentences[first][0], sentences[last - 1][1]
        border: int | None
        if last - first > 1:
            leading = rng.randint(1, last - first - 1)
            border, unused = sentences[first + leading][0], first + leading
        else:
            border, unused = self._eojeol_border(begin, end), last
        if border is None and self._config.single_sentence == "split":
            # A single eojeol has no next: as a pair it could only be a random one and would tip the balance.
            return last
        if border is None or rng.random() < 0.5:
            a = (begin, end if border is None else border)
            self._add(a, self._random_next(document, target - (a[1] - a[0])), RANDOM_NEXT)
            # The sentences that were not taken go back.
            return unused
        self._add((begin, border), (border, end), REAL_NEXT)
        return last

    def _eojeol_border(self, begin: int, end: int) -> int | None:
        """Return a random eojeol border inside a sentence; None if there is none, or none is wanted."""
        if self._config.single_sentence == "random":
            return None
        borders = np.flatnonzero(self._shard.eojeol_starts[begin + 1 : end])
        return begin + 1 + int(borders[self._rng.randrange(len(borders))]) if len(borders) else None

    def _random_next(self, document: int, target: int) -> Stretch:
        """Take sentences of another document, from a random one on, until TARGET tokens are reached."""
        own = self._first_document + document
        other = self._rng.randrange(len(self._corpus) - 1)
        shard, number = self._corpus.locate(other + (other >= own))
        start = int(shard.ids.offsets[number])
        ends = (shard.sentence_ends[number] + start).tolist()
        chosen = self._rng.randrange(len(ends))
        begin = ends[chosen - 1] if chosen else start
        # A random text longer than a row is cut by `_add`; there is no need to bring more than that.
        end = next((e for e in ends[chosen:] if e - begin >= target), ends[-1])
        stretch = (begin, min(end, begin + 2 * self._room))
        return stretch if shard is self._shard else self._builder.bring((shard, stretch))

    def _add(self, a: Stretch, b: Stretch, label: int) -> None:
        """Cut the pair to the room, one token at a time from the longer side, at a random end of it; then add it."""
        (a_begin, a_end), (b_begin, b_end) = a, b
        while (excess := (a_end - a_begin) + (b_end - b_begin) - self._room) > 0:
            difference = (a_end - a_begin) - (b_end - b_begin)
            # Cuts in one go what the rule would take from one side before it turns to the other.
            cuts = min(excess, max(1, abs(difference)))
            at_front = self._rng.getrandbits(cuts).bit_count()
            if difference > 0:
                a_begin, a_end = a_begin + at_front, a_end - (cuts - at_front)
            else:
                b_begin, b_end = b_begin + at_front, b_end - (cuts - at_front)
        self._builder.add([(a_begin, a_end)], (b_begin, b_end), label=label)


def _mask_once(rows: RowShard, config: StaticMlmNspConfig, layout: RowLayout, number: int) -> RowShard:
    """Mask every sequence of ROWS for good."""
    lengths = rows.lengths.values
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[:-1]
    cap = config.max_predictions or int(np.ceil(config.mask_rate * layout.max_length))
    ids = rows.ids.values.copy()
    masked = np.zeros(len(ids), np.bool_)
    for first in range(0, len(lengths), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        places = starts[some, None] + np.arange(lengths[some].max())  # (B, T)
        inside = places < (starts[some] + lengths[some])[:, None]
        places = np.minimum(places, len(ids) - 1)
        kinds = np.where(inside, rows.kinds[places], SPECIAL)
        # Counted on all tokens of the sequence, rounded half to even, at least one.
        wanted = np.clip(np.rint(config.mask_rate * lengths[some]), 1, cap).astype(np.int64)
        sequences = np.arange(first, first + len(wanted))
        choice, fates, replacements = (
            uniforms((layout.seed, purpose), sequences, np.full(len(sequences), number), places.shape[1])
            for purpose in range(3)
        )
        chosen = choose_positions(kinds, wanted, choice, whole_word=config.whole_word)
        fed = corrupt(rows.ids.values[places], chosen, Corruption(fates, replacements), layout.specials)
        ids[places[chosen]] = fed[chosen]
        masked[places[chosen]] = True
    at = np.flatnonzero(masked)
    row = np.searchsorted(rows.ids.offsets, at, side="right") - 1
    counts = np.bincount(row, minlength=len(rows))
    return RowShard(
        ids=Ragged(ids, rows.ids.offsets),
        kinds=rows.kinds,
        lengths=rows.lengths,
        first_lengths=rows.first_lengths,
        labels=rows.labels,
        masked_at=Ragged.of(counts, (at - rows.ids.offsets[row]).astype(np.int32)),
        masked_ids=rows.ids.values[at],
    )


OBJECTIVE = StaticMlmNsp
