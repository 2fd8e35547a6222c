"""Initial word embeddings for a vocabulary from those of a model with another one.

A token of the new vocabulary gets the mean of the old tokens that spell it; a token of both vocabularies so keeps its
embedding. Special tokens correspond by their roles, slots by their names. A token that nothing spells is drawn from the
normal distribution of the old embeddings, whose scores do not stand out. Biases of the output get the mean of the same
tokens.

| token | WordPiece | SentencePiece |
| --- | --- | --- |
| begins an eojeol | `대한` | `▁대한` |
| inside an eojeol | `##대한` | `대한` |

Source of the means: Gee et al. 2022, “Fast vocabulary transfer for language model compression”; of the rest: Hewitt
2021, “Initializing new word embeddings for pretrained language models”.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from corpora.foundation.errors import CheckpointError
from pretraining.folders import open_config, open_model, open_tokenizer

if TYPE_CHECKING:
    from pretraining.model import PretrainingModel

METASPACE = "▁"
ROLES = ("pad", "unk", "cls", "sep", "mask")
SLOT = re.compile(r"\[unused\d+\]")
Form: TypeAlias = tuple[bool, str]
"""Whether a token begins an eojeol, and its text."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a tokenizer."""

    forms: Mapping[Form, int]
    """Ids of ordinary tokens."""
    named: Mapping[str, int]
    """Ids of special tokens by their roles, and of slots by their names."""
    size: int

    @classmethod
    def read(cls, folder: Path) -> "Vocabulary":
        """Read the vocabulary of a model's folder.

        Raises:
            CheckpointError: it has no tokenizer, or one that is neither WordPiece nor SentencePiece.
        """
        try:
            tokenizer: Any = open_tokenizer(folder)
        except (OSError, ValueError) as error:
            raise CheckpointError(folder, "no tokenizer", "give a folder with tokenizer.json or vocab.txt") from error
        vocab: dict[str, int] = tokenizer.get_vocab()
        roles = {role: getattr(tokenizer, f"{role}_token_id") for role in ROLES}
        named = {role: id_ for role, id_ in roles.items() if id_ is not None}
        special = {*tokenizer.all_special_ids}
        named |= {token: id_ for token, id_ in vocab.items() if SLOT.fullmatch(token)}
        ordinary = {token: id_ for token, id_ in vocab.items() if id_ not in special and token not in named}
        prefix = getattr(tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None)
        if prefix:
            forms = {_wordpiece_form(token, prefix): id_ for token, id_ in ordinary.items()}
        elif any(token.startswith(METASPACE) for token in ordinary):
            forms = {(token.startswith(METASPACE), token.removeprefix(METASPACE)): k for token, k in ordinary.items()}
        else:
            what = f"a {type(tokenizer.backend_tokenizer.model).__name__} tokenizer without marks of where words begin"
            raise CheckpointError(folder, what, "give a model with a WordPiece or SentencePiece vocabulary")
        return cls(forms, named, max(vocab.values()) + 1)

    def spell(self, form: Form) -> list[int]:
        """Return the longest tokens, from left to right, that spell a token; empty if they cannot.

        A token of the other kind, such as one that begins an eojeol in the middle of one, is taken only where none of
        the right kind fits.
        """
        is_first, text = form
        ids: list[int] = []
        begin = 0
        while begin < len(text):
            kind = is_first and begin == 0
            found = self._longest(kind, text[begin:]) or self._longest(not kind, text[begin:])
            if found is None:
                return []
            ids.append(self.forms[found])
            begin += len(found[1])
        return ids

    def _longest(self, is_first: bool, text: str) -> Form | None:
        candidates = ((is_first, text[:end]) for end in range(len(text), 0, -1))
        return next((form for form in candidates if form in self.forms), None)


def _wordpiece_form(token: str, prefix: str) -> Form:
    return not token.startswith(prefix), token.removeprefix(prefix)


@dataclass(frozen=True)
class VocabularyMap:
    """For every token of a vocabulary the tokens of another one whose mean it gets."""

    ids: Tensor
    """int64 (N,): old ids, those of one new token after those of another."""
    starts: Tensor
    """int64 (V,): where the old ids of each new token begin."""
    num_old: int
    """Entries of the old vocabulary."""

    @classmethod
    def between(cls, old: Vocabulary, new: Vocabulary) -> "VocabularyMap":
        """Map the tokens of NEW to those of OLD."""
        parts: list[list[int]] = [[] for _ in range(new.size)]
        for name, id_ in new.named.items():
            parts[id_] = [old.named[name]] if name in old.named else []
        for form, id_ in new.forms.items():
            parts[id_] = old.spell(form)
        lengths = torch.tensor([0, *map(len, parts)])
        return cls(torch.tensor([k for ids in parts for k in ids], dtype=torch.int64), lengths.cumsum(0)[:-1], old.size)

    @property
    def lengths(self) -> Tensor:
        """Number of old tokens of each new one, int64 (V,)."""
        return torch.diff(self.starts, append=torch.tensor([len(self.ids)]))

    def apply(self, values: Tensor, generator: torch.Generator) -> Tensor:
        """Return values of the new tokens, of the shape of the old ones' but for its first axis.

        Args:
            values: (old vocabulary, …); embeddings, or biases.
            generator: draws the embeddings of tokens that nothing spells.

        Raises:
            ValueError: there are fewer values than entries in the old vocabulary.
        """
        if len(values) < self.num_old:
            raise ValueError(f"{len(values):,} embeddings for a vocabulary of {self.num_old:,} entries")
        table = values[: self.num_old].float().reshape(self.num_old, -1)
        means = torch.nn.functional.embedding_bag(self.ids, table, self.starts, mode="mean")
        is_missing = self.lengths == 0
        mean, deviation = table.mean(0), table.std(0) if values.ndim > 1 else torch.zeros(1)
        noise = torch.randn(int(is_missing.sum()), table.shape[1], generator=generator)
        means[is_missing] = mean + noise * deviation
        return means.reshape(-1, *values.shape[1:]).to(values.dtype)

    def summary(self) -> str:
        """Return the numbers of tokens by the number of their parts."""
        lengths = self.lengths
        counts = [int((lengths == 1).sum()), int((lengths > 1).sum()), int((lengths == 0).sum())]
        return "{:,} tokens taken over, {:,} means of several, {:,} drawn".format(*counts)


def embeddings_of(folder: Path) -> Tensor:
    """Return the word embeddings of a model of transformers, (V, E).

    Raises:
        CheckpointError: it is not one.
    """
    try:
        model: Any = open_model("AutoModel", folder, open_config(folder))
    except (OSError, ValueError) as error:
        raise CheckpointError(folder, f"not a model ({error})", "give a transformers folder") from error
    weights: Tensor = model.get_input_embeddings().weight.detach()
    return weights


def set_embeddings(model: "PretrainingModel", vectors: Tensor, where: object) -> None:
    """Set the word embeddings of a model that will be trained.

    Args:
        model: to change.
        vectors: (V, E); NaN keeps the random embedding of a token.
        where: for the error.

    Raises:
        CheckpointError: the width differs.
    """
    weight: Tensor = model.network.get_input_embeddings().weight
    if vectors.shape[1] != weight.shape[1]:
        what = f"embeddings of width {vectors.shape[1]}, those of the model have {weight.shape[1]}"
        raise CheckpointError(where, what, "set model.hidden_size, or model.embedding_size, to that width")
    is_given = ~vectors.isnan().any(1)
    with torch.no_grad():
        weight[: len(vectors)][is_given] = vectors[is_given]
