"""What an objective provides: how its rows are made, how they are masked, and which heads learn from them.

One file per objective under `pretraining/objectives/`, found by the `name` of its `OBJECTIVE`.
"""

import abc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from corpora.foundation.config import Config, discover
from corpora.foundation.errors import RecipeError, suggest
from pretraining.data.rows import RowShard, SpecialIds
from pretraining.data.shards import IntArray
from pretraining.data.tokens import TokenizedCorpus

if TYPE_CHECKING:
    from transformers import BertConfig

    from pretraining.model import PretrainingModel


class ObjectiveConfig(Config):
    """Settings that all masked objectives share; each adds its own."""

    mask_rate: float = Field(default=0.15, gt=0, lt=1)
    """Share of tokens to predict. 0.15: Devlin et al. 2019, section 3.1."""
    whole_word: bool = False
    """Mask eojeol with all their pieces, noun and particle together, instead of single pieces."""


@dataclass(frozen=True)
class RowLayout:
    """What rows are made for."""

    max_length: int
    """Tokens of a row, special ones included."""
    isolate_documents: bool
    """Pack sequences that do not see each other; otherwise as the objective's paper does."""
    seed: int
    specials: SpecialIds


@dataclass(frozen=True)
class RowBatch:
    """Some rows side by side, padded to the longest. B rows, T positions, Q sequences."""

    rows: IntArray
    """int64 (B,): their numbers in the corpus."""
    epochs: IntArray
    """int64 (B,): the pass over the corpus that each is fed in."""
    input_ids: IntArray
    """int64 (B, T)."""
    kinds: IntArray
    """uint8 (B, T): what each token is to masking; padding is special."""
    sequence_ids: IntArray
    """int64 (B, T): 1, 2, … for the sequences of a row, 0 for padding."""
    position_ids: IntArray
    """int64 (B, T): counted from the begin of the sequence."""
    token_type_ids: IntArray
    """int64 (B, T): 0 in segment A, 1 in segment B."""
    first_at: IntArray
    """int64 (Q,): where the sequences begin, counted through the whole batch."""
    labels: IntArray
    """int64 (Q,)."""
    masked_at: IntArray | None
    """int64 (M,), counted through the whole batch; None where masks are still to be drawn."""
    masked_ids: IntArray | None


@dataclass(frozen=True)
class Masked:
    """A masked batch. M predictions."""

    input_ids: IntArray
    """int64 (B, T), as fed."""
    masked_at: IntArray
    """int64 (M,), ascending, counted through the whole batch."""
    masked_ids: IntArray
    """int64 (M,): the tokens to be predicted."""


@dataclass(frozen=True)
class Term:
    """A part of the loss. The model returns `NAME_loss` and `NAME_correct`, sums over the term's predictions."""

    name: str
    title: str
    """Name in charts."""
    counted_by: str
    """Entry of the batch that is as long as the term has predictions."""
    weight: float = 1.0
    """In the loss of a step, where each term counts by its mean over predictions."""


MLM = Term("mlm", "MLM", "masked_at")
NSP = Term("nsp", "NSP", "next_labels")


class Objective(abc.ABC):
    """A pretraining objective with its settings, for rows of a certain layout.

    What a subclass makes is a function of its settings, the layout and the arguments alone.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    settings: ClassVar[type[ObjectiveConfig]]

    def __init__(self, config: ObjectiveConfig, layout: RowLayout) -> None:
        """Take the settings, of the type `settings`."""
        self.config: Any = config
        self.layout = layout

    @property
    def terms(self) -> tuple[Term, ...]:
        """What the loss of a step is made of."""
        return (MLM,)

    @property
    def row_settings(self) -> list[Any]:
        """What decides the rows beside corpus and layout: objectives that agree in it share them."""
        return [self.name, self.config.model_dump()]

    @property
    def sources(self) -> tuple[Path, ...]:
        """Files beside corpus and vocabulary that decide what a run ends in."""
        return ()

    @abc.abstractmethod
    def make_rows(self, corpus: TokenizedCorpus, number: int) -> RowShard:
        """Make the rows of token shard NUMBER of a corpus.

        Raises:
            DataError: the corpus does not suit the objective.
        """

    @abc.abstractmethod
    def mask(self, batch: RowBatch) -> Masked:
        """Return what is fed and what is to be predicted."""

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Return a batch as the model's `forward` takes it, by argument."""
        masked = self.mask(batch)
        return {
            "input_ids": masked.input_ids,
            "token_type_ids": batch.token_type_ids,
            "position_ids": batch.position_ids,
            "sequence_ids": batch.sequence_ids,
            "masked_at": masked.masked_at,
            "masked_ids": masked.masked_ids,
        }

    def build_model(self, config: "BertConfig") -> "PretrainingModel":
        """Return a network of the shape CONFIG, with random weights and the heads of this objective."""
        from pretraining.model import MaskedLanguageModel

        return MaskedLanguageModel(config, next_sentence=NSP in self.terms)


def all_objectives() -> dict[str, type[Objective]]:
    """Return every objective under `pretraining/objectives/`, by name."""
    from pretraining import objectives

    return discover(objectives, "OBJECTIVE")


def get_objective(name: str, where: object) -> type[Objective]:
    """Return the objective called NAME.

    Raises:
        RecipeError: there is none; the nearest is named.
    """
    known = all_objectives()
    if name not in known:
        raise RecipeError(where, f"unknown objective '{name}'", suggest(name, known))
    return known[name]


def token_share(rate: float, num_tokens: npt.NDArray[np.int64], draws: npt.NDArray[np.float64]) -> IntArray:
    """Return how many of NUM_TOKENS to predict so that the expected share is exactly RATE.

    The fraction that is left over is rounded up with a probability equal to it.
    """
    counts: IntArray = np.floor(rate * num_tokens + draws).astype(np.int64)
    return counts
