"""Teacher vectors: masked tokens, and the sentence vectors of a published encoder.

Input: a corpus whose documents are sentences, with the teacher's vector of each (`python -m downstream.embed vectors`).
Rows as in `dynamic_mlm`. Within a row, a sequence stays unmasked with probability `whole_share`, since a finished
encoder embeds sentences without masks; masks in the others are dynamic. A document that does not fit one row is split,
and its parts have no vector.

| term | predictions | loss | weight |
| --- | --- | --- | --- |
| mlm | masked tokens | cross-entropy with the original token | 1 |
| vector | sentences | 1 − cos(W s, t) | `vector_weight` |
| cosine | sentences | mean over all sentences k of a micro-batch of (cos(s, sₖ) − cos(t, tₖ))² | `cosine_weight` |

Here s is the mean hidden state of a sentence, t the teacher's vector less the mean of all, which in many models is one
large direction, and W a linear map that is needed in training only. “Accuracy” of `vector` is the mean cosine; of
`cosine`, the share of pairs with an error of at most 0.1.

Relations: the loss of the embedder's stage of the same name (`downstream.embeddings.losses`), beside that of
`dynamic_mlm`. An encoder that learns both from the first step keeps its predictions of masked tokens.

Source: Reimers and Gurevych 2020, “Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation”
(vectors); Park et al. 2019, “Relational Knowledge Distillation” (cosines).
"""

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from corpora.foundation.errors import DataError, RecipeError
from pretraining.data.masking import uniforms
from pretraining.data.rows import SPECIAL, RowShard, SentenceIndex, SequenceBuilder
from pretraining.data.tokens import TokenizedCorpus
from pretraining.data.vectors import MANIFEST, SHARDS, StoredVectors, read_vector_manifest
from pretraining.model import MaskedLanguageModel
from pretraining.objective import MLM, LossTerm, MaskedBatch, ObjectiveConfig, RowBatch
from pretraining.objectives.dynamic_mlm import SPECIALS_PER_ROW, DynamicMlm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

CLOSE = 0.1
"""Maximum error of a cosine that counts as correct."""
WHOLE_PURPOSE = 4
"""Seeds the choice of unmasked sequences; `dynamic_mlm` uses the numbers below."""


class TeacherVectorsConfig(ObjectiveConfig):
    """Settings of teacher vectors."""

    vectors: str = ""
    """Folder with the vector of every training document, in their order."""
    whole_share: float = Field(default=0.5, ge=0, lt=1)
    """Share of the sequences that stay unmasked."""
    vector_weight: float = Field(default=4.0, gt=0)
    cosine_weight: float = Field(default=40.0, ge=0)


class TeacherVectors(DynamicMlm):
    """See the module."""

    name = "teacher_vectors"
    paper = "ours, after Reimers and Gurevych 2020"
    settings = TeacherVectorsConfig
    across_documents = False

    @classmethod
    def held_out_settings(cls, config: ObjectiveConfig) -> ObjectiveConfig:
        """Return settings without vectors: they are those of the training documents."""
        return config.model_copy(update={"vectors": ""})

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """Masked tokens, vectors, cosines."""
        config = self.config
        return (
            MLM,
            LossTerm("vector", "teacher vectors", "vector_starts", config.vector_weight, measure="cosine"),
            LossTerm("cosine", "cosines of pairs", "vector_starts", config.cosine_weight, measure="within 0.1"),
        )

    @property
    def row_settings(self) -> list[Any]:
        """The number of vectors, which must be that of the documents; held-out rows have none."""
        return [self.name, self._num_vectors]

    @property
    def sources(self) -> tuple[Path, ...]:
        """The digests of the vectors, if there are any."""
        folder = Path(self.config.vectors)
        return (folder / MANIFEST, folder / SHARDS) if self.config.vectors else ()

    @property
    def _num_vectors(self) -> int:
        return read_vector_manifest(Path(self.config.vectors)).num_texts if self.config.vectors else 0

    @functools.cached_property
    def _vectors(self) -> StoredVectors | None:
        return StoredVectors.open(Path(self.config.vectors)) if self.config.vectors else None

    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Pack documents into rows; the label of a sequence is the number of its vector + 1, or 0 without one."""
        layout, shard = self.layout, corpus.shards[number]
        if self.config.vectors and len(corpus) != self._num_vectors:
            what = f"{self._num_vectors:,} vectors in {self.config.vectors}, {len(corpus):,} training documents"
            raise DataError("corpus", what, "compute the vectors of this corpus: python -m downstream.embed vectors")
        builder = SequenceBuilder(shard, layout.specials)
        sentences = SentenceIndex(shard, longest=layout.max_length - SPECIALS_PER_ROW)
        first = int(corpus.starts[number])
        for document in range(len(shard)):
            segments = list(sentences.segments(document))
            has_vector = self.config.vectors and len(segments) == 1
            for segment in segments:
                builder.add([segment], label=first + document + 1 if has_vector else 0)
        order = np.random.default_rng([layout.seed, number])
        return builder.rows(layout.max_length, order, several=layout.isolate_documents)

    def mask(self, batch: RowBatch) -> MaskedBatch:
        """Draw masks in those sequences that do not stay whole."""
        flat = np.zeros(batch.input_ids.size, np.int64)
        flat[batch.sequence_starts] = 1
        numbers = np.cumsum(flat) - 1  # of the sequence of each position; padding belongs to the one before it
        draws = uniforms((self.layout.seed, WHOLE_PURPOSE), batch.rows, batch.epochs, batch.input_ids.shape[1])
        is_whole = draws.reshape(-1)[batch.sequence_starts] < self.config.whole_share
        kinds = np.where(is_whole[numbers].reshape(batch.kinds.shape), SPECIAL, batch.kinds)
        return super().mask(replace(batch, kinds=kinds))

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add `vector_starts`, int64 (N,), `[CLS]` of the sentences with a vector, and `vectors`, float64 (N, T)."""
        inputs = super().inputs(batch)
        numbers = batch.labels[batch.labels > 0] - 1
        vectors = np.zeros((0, 0)) if self._vectors is None else self._vectors.rows(numbers.tolist())
        return inputs | {"vector_starts": batch.sequence_starts[batch.labels > 0], "vectors": vectors}

    def build_model(self, config: Any) -> "TeacherVectorsModel":
        """Return an encoder with a masked-LM head and a map to the teacher's vectors.

        Raises:
            RecipeError: no vectors are named.
            DataError: the vectors are unfinished or damaged.
        """
        if self._vectors is None:
            raise RecipeError("objective.vectors", "missing", "compute them: python -m downstream.embed vectors")
        return TeacherVectorsModel(config, torch.from_numpy(self._vectors.mean()))


class TeacherVectorsModel(MaskedLanguageModel):
    """An encoder that predicts masked tokens and a teacher's sentence vectors; N sentences with a vector."""

    def __init__(self, config: "PreTrainedConfig", mean: Tensor) -> None:
        """Build the network with random weights.

        Args:
            config: of the encoder as it will be saved.
            mean: of the teacher's vectors, (T,).
        """
        super().__init__(config, next_sentence=False)
        self.map = nn.Linear(config.hidden_size, len(mean))
        self.mean: Tensor
        self.register_buffer("mean", mean, persistent=False)

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        masked_positions: Tensor,
        masked_ids: Tensor,
        vector_starts: Tensor,
        vectors: Tensor,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts; the first arguments are those of `MaskedLanguageModel`.

        Args:
            input_ids: int64 (B, T), with masks.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            masked_positions: int64 (M,).
            masked_ids: int64 (M,).
            vector_starts: int64 (N,), positions of `[CLS]` in the flattened batch.
            vectors: float64 (N, T), of the teacher.
        """
        states = self.encode(input_ids, token_type_ids, position_ids, sequence_ids).flatten(0, 1)  # (B·T, D)
        outputs = self.predict_masked(states[masked_positions], masked_ids)
        pooled = mean_states(states.float(), sequence_ids, vector_starts)  # (N, D)
        targets = F.normalize(vectors.float().reshape(-1, len(self.mean)) - self.mean, dim=-1)
        cosines = F.cosine_similarity(self.map(pooled.to(self.map.weight.dtype)).float(), targets, dim=-1)
        outputs["vector_loss"] = (1 - cosines).sum()
        outputs["vector_correct"] = cosines.detach().sum()
        unit = F.normalize(pooled, dim=-1)
        errors = unit @ unit.T - targets @ targets.T  # (N, N)
        share = 1 / max(1, len(unit))
        outputs["cosine_loss"] = errors.square().sum() * share
        outputs["cosine_correct"] = (errors.detach().abs() <= CLOSE).sum().float() * share
        return outputs


def mean_states(states: Tensor, sequence_ids: Tensor, starts: Tensor) -> Tensor:
    """Return the mean hidden state of sequences, special tokens included, (N, D).

    Args:
        states: (B·T, D).
        sequence_ids: int64 (B, T), the number of each token's sequence in its row.
        starts: int64 (N,), position of the first token of each sequence in the flattened batch.
    """
    rows, length = sequence_ids.shape
    keys = (sequence_ids + torch.arange(rows, device=states.device)[:, None] * (length + 1)).flatten()
    sums = states.new_zeros(rows * (length + 1), states.shape[1]).index_add(0, keys, states)
    counts = states.new_zeros(len(sums)).index_add(0, keys, states.new_ones(len(keys)))
    chosen = keys[starts]
    return sums[chosen] / counts[chosen, None]


OBJECTIVE = TeacherVectors
