"""Span selection: the encoder finds in a passage the words that a question leaves out.

Input: documents, with probability `pair_rate` as pairs `[CLS] question [SEP] passage [SEP]`, otherwise as single
segments like those of `dynamic_mlm`. A passage is a segment of whole sentences. Its question is one of the sentences
without a span of one to three eojeol, the answer, and without a share of the other eojeol, drawn from
[0, `most_dropped`) for each pair; those beside the answer stay. A question is shorter than two fifths of a row.

* An answer begins with a rare token more often than with a frequent one.
* Its last pieces stay in the question if they follow many different pieces, as particles do.
* With probability `unanswerable_rate` the passage is another segment of the document.

Masking is dynamic.

| term | positions | label | weight |
| --- | --- | --- | --- |
| mlm | the `mask_rate` of the tokens | the original token | 1 |
| span | all tokens of a pair | first and last token of the answer; `[CLS]` if the passage has none | `span_weight` |

The loss of a span is that of transformers' `BertForQuestionAnswering`, which is saved in the folder `reader`.

Relations: in the paper the passage is another document's, and the answer a name.

Source: Glass et al. 2020, “Span selection pre-training for question answering”; ours: questions and answers.
"""

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor, nn

from pretraining.data.rows import RowShard, SentenceIndex, SequenceBuilder, TokenSpan, eojeol_spans
from pretraining.data.shards import IntArray
from pretraining.data.tokens import TokenizedCorpus, TokenShard
from pretraining.model import MaskedLanguageModel
from pretraining.objective import MLM, LossTerm, ObjectiveConfig, RowBatch
from pretraining.objectives.dynamic_mlm import SPECIALS_PER_ROW, DynamicMlm
from pretraining.objectives.static_mlm_nsp import SPECIALS_PER_PAIR, SeededRandom

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

READER = "reader"
"""Folder of the network with the head of `BertForQuestionAnswering`, in that of the run."""
QUESTION_SHARE = 0.4
"""Longest question, as a share of a row."""
MIN_EOJEOL = 5
"""Shorter sentences are not asked about: too little would be left of them."""
NUM_EOJEOL_WEIGHTS = (0.6, 0.25, 0.15)
"""Probabilities of answers of one, two and three eojeol."""
NUM_PARTICLES = 60
"""Last pieces that stay in the question: those that follow the most different pieces."""
LONGEST_ANSWER = 64
"""Tokens; a label of a row is start times this, plus the length."""
SMOOTHING = 10.0
"""Added to the counts of tokens, of which the weights of answers are the inverse roots."""
INIT_STD = 0.02
"""Of BERT."""


class SpanSelectionConfig(ObjectiveConfig):
    """Settings of span selection."""

    pair_rate: float = Field(default=0.7, gt=0, le=1)
    """Probability that a document becomes passages with questions; the others remain running text."""
    span_weight: float = Field(default=1.0, gt=0)
    most_dropped: float = Field(default=0.8, ge=0, lt=1)
    unanswerable_rate: float = Field(default=0.2, ge=0, lt=1)
    """Most windows of a long text have no answer."""


class SpanSelection(DynamicMlm):
    """See the module."""

    name = "span_selection"
    architectures = ("bert",)
    paper = "after Glass et al. 2020"
    settings = SpanSelectionConfig

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """Masked tokens, and the answers of pairs."""
        return (MLM, LossTerm("span", "span", "span_starts", self.config.span_weight))

    @property
    def row_settings(self) -> list[Any]:
        """The settings of the questions; the others concern masks and loss only."""
        config = self.config
        return [self.name, config.pair_rate, config.most_dropped, config.unanswerable_rate]

    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Build questions and passages from some documents, single segments from the others, and pack them."""
        layout, shard = self.layout, corpus.shards[number]
        builder = SequenceBuilder(shard, layout.specials)
        rng = SeededRandom(f"{layout.seed} {number}")
        question_room = int(QUESTION_SHARE * (layout.max_length - SPECIALS_PER_PAIR))
        asking = _Asking(shard, builder, question_room, self.config, rng)
        passages = SentenceIndex(shard, longest=layout.max_length - SPECIALS_PER_PAIR - question_room)
        wholes = SentenceIndex(shard, longest=layout.max_length - SPECIALS_PER_ROW)
        for document in range(len(shard)):
            if rng.random() < self.config.pair_rate:
                asking.ask_all(list(passages.segments(document)), passages[document])
            else:
                for segment in wholes.segments(document):
                    builder.add([segment])
        order = np.random.default_rng([layout.seed, number])
        return builder.rows(layout.max_length, order, several=layout.isolate_documents)

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add the tokens of pairs and the places of answers among them.

        `pair_positions` int64 (N,), in the flattened batch; `pair_numbers` int64 (N,), the pair of each of these
        tokens; `span_starts` and `span_ends` int64 (P,), first and last token of the answer of each pair, as positions
        in `pair_positions`.
        """
        sequences = batch.sequence_numbers
        is_pair = np.zeros(len(batch.sequence_starts), np.bool_)
        is_pair[sequences[batch.token_type_ids == 1]] = True
        positions = np.flatnonzero(is_pair[sequences] & (batch.sequence_ids > 0))
        starts, lengths = np.divmod(batch.labels[is_pair], LONGEST_ANSWER)
        first = batch.sequence_starts[is_pair] + starts
        return super().inputs(batch) | {
            "pair_positions": positions,
            "pair_numbers": (np.cumsum(is_pair) - 1)[sequences.ravel()[positions]],
            "span_starts": np.searchsorted(positions, first),
            "span_ends": np.searchsorted(positions, first + np.maximum(lengths - 1, 0)),
        }

    def build_model(self, config: Any) -> "SpanSelectionModel":
        """Return an encoder with heads for masked tokens and for the ends of answers."""
        return SpanSelectionModel(config)


class _Asking:
    """Builds the questions of one shard."""

    def __init__(
        self, shard: TokenShard, builder: SequenceBuilder, room: int, config: SpanSelectionConfig, rng: random.Random
    ) -> None:
        self._shard, self._builder, self._room, self._config, self._rng = shard, builder, room, config, rng
        ids = shard.ids.values.astype(np.int64)
        size = int(ids.max(initial=0)) + 1
        self._weights = 1 / np.sqrt(np.bincount(ids, minlength=size) + SMOOTHING)
        self._is_particle = np.zeros(size, np.bool_)
        self._is_particle[_most_connected(ids, shard.eojeol_starts, size)] = True

    def ask_all(self, segments: Sequence[TokenSpan], sentences: Sequence[TokenSpan]) -> None:
        """Add a question about every segment of a document; a segment that cannot be asked about stays single."""
        for segment in segments:
            begin, end = segment
            asked = self._ask([each for each in sentences if begin <= each[0] and each[1] <= end])
            if asked is None:
                self._builder.add([segment])
                continue
            question, answer = asked
            others = [each for each in segments if each != segment]
            if others and self._rng.random() < self._config.unanswerable_rate:
                self._builder.add([question], self._rng.choice(others))
                continue
            passage_start = question[1] - question[0] + SPECIALS_PER_PAIR - 1
            start, length = passage_start + answer[0] - begin, answer[1] - answer[0]
            self._builder.add([question], segment, label=start * LONGEST_ANSWER + length)

    def _ask(self, sentences: Sequence[TokenSpan]) -> tuple[TokenSpan, TokenSpan] | None:
        """Return a question about one of some sentences, and the answer in the shard; None: none can be asked about."""
        rng, shard = self._rng, self._shard
        fitting = [eojeol_spans(shard, span) for span in sentences if span[1] - span[0] <= self._room]
        fitting = [words for words in fitting if len(words) >= MIN_EOJEOL]
        if not fitting:
            return None
        words = rng.choice(fitting)
        first = rng.choices(range(len(words)), [self._weights[shard.ids.values[begin]] for begin, _ in words])[0]
        last = min(first + rng.choices(range(len(NUM_EOJEOL_WEIGHTS)), NUM_EOJEOL_WEIGHTS)[0], len(words) - 1)
        begin, end = words[first][0], words[last][1]
        while end - 1 > words[last][0] and self._is_particle[shard.ids.values[end - 1]]:
            end -= 1
        if end - begin >= LONGEST_ANSWER:
            return None
        dropped = rng.random() * self._config.most_dropped
        parts: list[TokenSpan] = []
        for number, word in enumerate(words):
            if number == last and end < word[1]:
                parts.append((end, word[1]))
            elif not first <= number <= last and (number in (first - 1, last + 1) or rng.random() >= dropped):
                parts.append(word)
        return self._builder.append_tokens(*((shard, part) for part in parts)), (begin, end)


def _most_connected(ids: IntArray, eojeol_starts: IntArray, size: int) -> IntArray:
    """Return the last pieces of eojeol that follow the most different pieces."""
    ends = np.append(eojeol_starts[1:], 1)
    last = np.flatnonzero((ends == 1) & (eojeol_starts == 0))
    pairs = np.unique(ids[last - 1] * size + ids[last])
    counts = np.bincount(pairs % size, minlength=size)
    most: IntArray = np.argsort(-counts, kind="stable")[:NUM_PARTICLES]
    return most[counts[most] > 1]


class SpanSelectionModel(MaskedLanguageModel):
    """A BERT that points at answers. Shapes as in `PretrainingModel`; N tokens of pairs, P pairs."""

    def __init__(self, config: "PreTrainedConfig") -> None:
        """Build the network with random weights; CONFIG is that of the encoder as it will be saved."""
        super().__init__(config, next_sentence=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        nn.init.normal_(self.qa_outputs.weight, std=INIT_STD)
        nn.init.zeros_(self.qa_outputs.bias)

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        masked_positions: Tensor,
        masked_ids: Tensor,
        pair_positions: Tensor,
        pair_numbers: Tensor,
        span_starts: Tensor,
        span_ends: Tensor,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts; the first arguments are those of `MaskedLanguageModel`.

        Args:
            input_ids: int64 (B, T), with masks.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            masked_positions: int64 (M,).
            masked_ids: int64 (M,).
            pair_positions: int64 (N,), in the flattened batch.
            pair_numbers: int64 (N,), from 0 to P - 1.
            span_starts: int64 (P,), in the tokens of pairs.
            span_ends: int64 (P,), in the tokens of pairs.
        """
        states = self.encode(input_ids, token_type_ids, position_ids, sequence_ids).flatten(0, 1)  # (B·T, D)
        outputs = self.predict_masked(states[masked_positions], masked_ids)
        scores = self.qa_outputs(states[pair_positions]).float()  # (N, 2)
        shape, pairs = (len(span_starts), 2), pair_numbers[:, None].expand(-1, 2)
        highest = scores.new_full(shape, -torch.inf).scatter_reduce(0, pairs, scores.detach(), "amax")
        sums = scores.new_zeros(shape).scatter_add(0, pairs, (scores - highest[pair_numbers]).exp())
        wanted = torch.stack([scores[span_starts, 0], scores[span_ends, 1]], 1)  # (P, 2)
        outputs["span_loss"] = (highest + sums.log() - wanted).sum() / 2
        outputs["span_correct"] = (wanted.detach() >= highest).all(1).sum().float()
        return outputs

    def variants(self, exported: "PreTrainedModel", state: Mapping[str, Tensor]) -> "dict[str, PreTrainedModel]":
        """Return the reader, transformers' `BertForQuestionAnswering`."""
        from transformers import BertForQuestionAnswering

        encoder: Any = exported.base_model
        reader = BertForQuestionAnswering(encoder.config)
        weights = {f"bert.{name}": tensor for name, tensor in encoder.state_dict().items() if "pooler" not in name}
        head = {f"qa_outputs.{kind}": state[f"qa_outputs.{kind}"] for kind in ("weight", "bias")}
        reader.load_state_dict(weights | head)
        return {READER: reader}


OBJECTIVE = SpanSelection
