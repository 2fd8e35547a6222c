"""The protocol of pretraining objectives: row format, masking, and the heads of the model.

One file per objective under `pretraining/objectives/`, found by the `name` of its `OBJECTIVE`.
"""

import abc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, AliasChoices, Field

from corpora.foundation.config import Config, discover
from corpora.foundation.errors import RecipeError, suggest
from corpora.foundation.plugins import with_plugins
from pretraining.data.rows import RowShard, SpecialIds
from pretraining.data.shards import IntArray
from pretraining.data.tokens import TokenizedCorpus

if TYPE_CHECKING:
    from pretraining.model import PretrainingModel


def _check_rate(value: float | str) -> float | str:
    for rate in _ends(value):
        if not 0 < rate < 1:
            raise ValueError("a masking rate is above 0 and below 1")
    return value


def _ends(value: float | str) -> tuple[float, float]:
    """Return the first and the last masking rate of a run."""
    if isinstance(value, str):
        first, arrow, last = value.partition("->")
        try:
            return float(first), float(last if arrow else first)
        except ValueError as error:
            raise ValueError('write a number, or first and last rate as "0.40->0.15"') from error
    return value, value


MaskRate: TypeAlias = Annotated[float | str, AfterValidator(_check_rate)]
"""Share of tokens to predict: a number, or `"0.40->0.15"`, which falls linearly from the first step to the last one."""


def rate_at(value: float | str, progress: float) -> float:
    """Return the masking rate after a share PROGRESS of the run."""
    first, last = _ends(value)
    return first + (last - first) * progress


class ObjectiveConfig(Config):
    """Settings of all masked objectives; each adds its own."""

    mask_rate: MaskRate = Field(default=0.15, validation_alias=AliasChoices("mask_rate", "masking_rate"))
    """Share of tokens to predict. Default: Devlin et al. 2019, section 3.1; a falling one: Ankner et al. 2023, “Dynamic
    masking rate schedules for MLM pretraining”."""
    whole_word: bool = False
    """Mask whole eojeol, noun and particle together, instead of single subwords."""


@dataclass(frozen=True)
class RowLayout:
    """The format of rows."""

    max_length: int
    """Tokens of a row, special ones included."""
    isolate_documents: bool
    """Pack sequences that do not attend to each other; otherwise the input format of the objective's paper."""
    seed: int
    specials: SpecialIds


@dataclass(frozen=True)
class RowBatch:
    """Rows, padded to the longest. Shapes: B rows, T tokens, Q sequences, M masked positions."""

    rows: IntArray
    """int64 (B,): row numbers in the corpus."""
    epochs: IntArray
    """int64 (B,): epoch of each row."""
    input_ids: IntArray
    """int64 (B, T)."""
    kinds: IntArray
    """uint8 (B, T): `SPECIAL`, `WORD_START` or `WORD_INSIDE`; padding is special."""
    sequence_ids: IntArray
    """int64 (B, T): 1, 2, … for the sequences of a row, 0 for padding."""
    position_ids: IntArray
    """int64 (B, T): counted from the start of the sequence."""
    token_type_ids: IntArray
    """int64 (B, T): 0 in segment A, 1 in segment B."""
    sequence_starts: IntArray
    """int64 (Q,): positions of `[CLS]` in the flattened batch."""
    labels: IntArray
    """int64 (Q,)."""
    masked_positions: IntArray | None
    """int64 (M,), in the flattened batch; None for dynamic masking."""
    masked_ids: IntArray | None
    """int64 (M,): the original tokens."""
    progress: float = 1.0
    """Share of the run's steps that are done; 1 for held-out rows."""
    weights: npt.NDArray[np.float64] | None = None
    """float64 (V,): of the vocabulary's entries in the choice of masks (`pretraining.data.difficulty`); None: all
    alike, as for held-out rows."""

    @property
    def sequence_numbers(self) -> IntArray:
        """int64 (B, T): number of each position's sequence in the batch; padding belongs to the one before it."""
        starts = np.zeros(self.input_ids.size, np.int64)
        starts[self.sequence_starts] = 1
        numbers: IntArray = (np.cumsum(starts) - 1).reshape(self.input_ids.shape)
        return numbers


@dataclass(frozen=True)
class MaskedBatch:
    """A batch with masks. Shapes as in `RowBatch`."""

    input_ids: IntArray
    """int64 (B, T), with masks."""
    masked_positions: IntArray
    """int64 (M,), in the flattened batch, ascending."""
    masked_ids: IntArray
    """int64 (M,): the original tokens."""


@dataclass(frozen=True)
class LossTerm:
    """A term of the loss. The model returns `NAME_loss` and `NAME_correct`, summed over the term's predictions."""

    name: str
    title: str
    """Name in charts."""
    counted_by: str
    """Entry of the batch with one element per prediction."""
    weight: float = 1.0
    """Weight of the term's mean over predictions in the loss of a step."""
    token_ids: str = ""
    """Entry of the batch with the predicted tokens, if the loss is a cross-entropy of tokens."""
    measure: str = "accuracy"
    """What `NAME_correct` counts, in charts."""


MLM = LossTerm("mlm", "MLM", "masked_positions", token_ids="masked_ids")
NSP = LossTerm("nsp", "NSP", "next_labels")


class Objective(abc.ABC):
    """A pretraining objective with its settings and its row layout.

    All methods are functions of settings, layout and arguments alone.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    settings: ClassVar[type[ObjectiveConfig]]
    architectures: ClassVar[tuple[str, ...]] = ("bert",)
    """Values of `model.architecture` that it can train."""
    across_documents: ClassVar[bool] = True
    """Whether a sequence may go beyond the end of a document (`data.isolate_documents = false`)."""
    pipeline_tag: ClassVar[str] = "fill-mask"
    """What the saved folder does, by the names of model hubs."""
    note: ClassVar[str] = ""
    """What a user of the saved folder must know; Markdown for its card."""

    def __init__(self, config: ObjectiveConfig, layout: RowLayout) -> None:
        """Create the objective; CONFIG is of the type `settings`."""
        self.config: Any = config
        self.layout = layout

    @classmethod
    def held_out_settings(cls, config: ObjectiveConfig) -> ObjectiveConfig:
        """Return the settings for held-out rows, which are read in one pass."""
        return config

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """The terms of the loss."""
        return (MLM,)

    @property
    def row_settings(self) -> list[Any]:
        """Everything that decides the rows beside corpus and layout: objectives with equal values share rows."""
        return [self.name, self.config.model_dump()]

    @property
    def update_every(self) -> int | None:
        """Steps between updates of the weights of `RowBatch`; None: there are none."""
        return None

    @property
    def sources(self) -> tuple[Path, ...]:
        """Files beside corpus and vocabulary that decide the result of a run."""
        return ()

    @abc.abstractmethod
    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Make the rows of token shard NUMBER of a corpus.

        Raises:
            DataError: the corpus does not suit the objective.
        """

    @abc.abstractmethod
    def mask(self, batch: RowBatch) -> MaskedBatch:
        """Return the inputs with masks, and the tokens to predict."""

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Return a batch as arguments of the model's `forward`."""
        masked = self.mask(batch)
        return {
            "input_ids": masked.input_ids,
            "token_type_ids": batch.token_type_ids,
            "position_ids": batch.position_ids,
            "sequence_ids": batch.sequence_ids,
            "masked_positions": masked.masked_positions,
            "masked_ids": masked.masked_ids,
        }

    def adapt_tokenizer(self, tokenizer: Any) -> None:  # noqa: B027 (most networks take BERT's inputs)
        """Change the tokenizer that is saved with the network, where the network needs it."""

    def build_model(self, config: Any) -> "PretrainingModel":
        """Return a network with random weights and the heads of this objective.

        Args:
            config: of transformers, for one of `architectures`.
        """
        from pretraining.model import MaskedLanguageModel

        return MaskedLanguageModel(config, next_sentence=NSP in self.terms)


def all_objectives() -> dict[str, type[Objective]]:
    """Return every objective under `pretraining/objectives/` and of plug-ins, by name."""
    from pretraining import objectives
    from pretraining.objectives import teachers

    own = discover(objectives, "OBJECTIVE") | discover(teachers, "OBJECTIVE")
    return with_plugins(own, "objectives", Objective)


def get_objective(name: str, where: object) -> type[Objective]:
    """Return the objective called NAME.

    Raises:
        RecipeError: there is none; the error suggests the closest name.
    """
    known = all_objectives()
    if name not in known:
        raise RecipeError(where, f"unknown objective '{name}'", suggest(name, known))
    return known[name]


def token_share(rate: float, num_tokens: npt.NDArray[np.int64], draws: npt.NDArray[np.float64]) -> IntArray:
    """Return the number of predictions in NUM_TOKENS, int64 (B,), so that the expected share is exactly RATE.

    Fractions are rounded up with a probability equal to the fraction.
    """
    counts: IntArray = np.floor(rate * num_tokens + draws).astype(np.int64)
    return counts
