"""Fill blanks in a text with a masked language model: the encoder at the work it was pretrained on.

    filler = MaskFiller.load()
    [blank] = filler.fill("내일은 전국에 [MASK]가 내린다")
    [candidate.text for candidate in blank.candidates]

Source: Devlin et al. 2019, section 3.1. Blanks of one text are filled independently: each is predicted while the others
are still blank.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.documents import nfc
from corpora.runtime import CheckpointError
from downstream.encoders import bundled, load_model, load_tokenizer
from pretraining.machine import no_file_bars

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BLANK = re.compile(r"\[MASK\]|\[mask\]|_{2,}|□")
"""What stands for a blank: the encoder's own token, or what one writes on paper."""
MASKED_LM = "ForMaskedLM"
CONTINUATION, WORD_START = "##", "▁"
"""How WordPiece marks a piece inside a word, and SentencePiece one that begins it."""


@dataclass(frozen=True)
class Candidate:
    """A piece that may stand in a blank."""

    text: str
    """Without the vocabulary's own marks."""
    probability: float
    """Among all pieces of the vocabulary, in [0, 1]."""
    is_continuation: bool
    """Whether it goes on with the word before the blank."""


@dataclass(frozen=True)
class Blank:
    """A blank of a text, `text[start:end]` in code points of the composed form, with what may stand there."""

    start: int
    end: int
    candidates: tuple[Candidate, ...]
    """The most probable first."""


class MaskFiller:
    """A loaded encoder with its masked-LM head."""

    def __init__(self, model: Any, tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
        """Use a model in single precision; see `load`."""
        self._model, self._tokenizer, self.folder = model.eval(), tokenizer, folder
        vocabulary = tokenizer.get_vocab()
        marks = [mark for mark in (CONTINUATION, WORD_START) if any(piece.startswith(mark) for piece in vocabulary)]
        self._mark = marks[0] if marks else ""
        # What no text holds cannot be the answer.
        self._never = sorted(
            {id_ for piece, id_ in vocabulary.items() if piece.startswith("[unused")} | set(tokenizer.all_special_ids)
        )

    @classmethod
    def load(cls, folder: Path | None = None) -> "MaskFiller":
        """Load a transformers folder, by default the bundled encoder.

        Raises:
            CheckpointError: it is none, or was saved without the head that predicts tokens.
        """
        folder = folder or bundled("encoder")
        tokenizer = load_tokenizer(folder)
        with no_file_bars():
            model = load_model(folder, tokenizer, "AutoModelForMaskedLM", {})
        named = model.config.architectures or []
        if not any(name.endswith(MASKED_LM) for name in named):
            what = f"saved as {', '.join(named) or 'a bare encoder'}, without the head that predicts tokens"
            raise CheckpointError(folder, what, "give an encoder that was saved with its masked-LM head")
        return cls(model, tokenizer, folder)

    @property
    def num_parameters(self) -> int:
        """Of encoder and head."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    @property
    def max_length(self) -> int:
        """Tokens that are read, special tokens included."""
        return int(self._tokenizer.model_max_length)

    def fill(self, text: str, num_candidates: int = 10) -> tuple[Blank, ...]:
        """Predict what stands in the blanks of a text.

        Args:
            text: with `[MASK]`, `□` or `__` for every blank.
            num_candidates: pieces for each blank.

        Returns:
            The blanks in order.

        Raises:
            ValueError: the text has no blank, is longer than the model reads, or no candidate is asked for.
        """
        import torch

        if num_candidates < 1:
            raise ValueError(f"num_candidates={num_candidates} is less than 1")
        text = nfc(text)
        places = [found.span() for found in BLANK.finditer(text)]
        if not places:
            raise ValueError("no blank in the text: write [MASK] where a word is missing")
        mask = str(self._tokenizer.mask_token)
        encoded = self._tokenizer(BLANK.sub(mask, text), return_tensors="pt")
        ids: torch.Tensor = encoded["input_ids"]  # (1, T)
        if ids.shape[1] > self.max_length:
            raise ValueError(f"the text has {ids.shape[1]} tokens and the model reads {self.max_length}")
        at = (ids[0] == self._tokenizer.mask_token_id).nonzero().flatten()
        assert len(at) == len(places), "a blank was lost by the tokenizer"
        names = self._tokenizer.model_input_names
        with torch.inference_mode():
            logits = self._model(**{name: encoded[name] for name in names}).logits[0, at].float()  # (blanks, V)
            probabilities = logits.softmax(-1)
            probabilities[:, self._never] = 0
            values, best = probabilities.topk(min(num_candidates, probabilities.shape[1]))
        return tuple(
            Blank(start, end, tuple(self._candidate(i, p) for i, p in zip(row.tolist(), shares.tolist(), strict=True)))
            for (start, end), row, shares in zip(places, best, values, strict=True)
        )

    def _candidate(self, id_: int, probability: float) -> Candidate:
        piece = str(self._tokenizer.convert_ids_to_tokens(id_))
        goes_on = piece.startswith(CONTINUATION) if self._mark == CONTINUATION else not piece.startswith(WORD_START)
        text = piece.removeprefix(CONTINUATION).strip(WORD_START).removesuffix("_")
        return Candidate(text, probability, bool(self._mark) and goes_on)


def filled(text: str, blank: Blank, candidate: Candidate) -> tuple[str, int, int]:
    """Put a candidate into a blank of a text.

    Returns:
        The text, and where the candidate stands in it. A piece that goes on with a word joins it.
    """
    text = nfc(text)
    before = text[: blank.start].rstrip() if candidate.is_continuation else text[: blank.start]
    return before + candidate.text + text[blank.end :], len(before), len(before) + len(candidate.text)
