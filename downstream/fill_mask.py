"""Fill blanks in a text with a masked language model, as an encoder was pretrained to do.

    filler = MaskFiller.load()
    [blank] = filler.fill("내일은 전국에 [MASK]가 내린다")
    [candidate.text for candidate in blank.candidates]

Source: Devlin et al. 2019, section 3.1. Blanks of one text are filled independently: each is predicted while the others
are still blank. What follows a blank without a space continues its word, as a particle does (`[MASK]가`): WordPiece
would begin a new word there, and the model would predict another word than the one that is missing.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corpora.characters import nfc
from corpora.foundation.errors import CheckpointError
from corpora.foundation.machine import num_threads, quiet_transformers
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import bundled
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.runtimes.graph import MASKED_POSITIONS, build_graph, open_session
from downstream.runtimes.plain_bert import PlainTokenizer, is_plain_bert
from downstream.runtimes.weights import EncoderWeights, FloatArray

BLANK = re.compile(r"\[MASK\]|\[mask\]|_{2,}|□")
"""Spellings of a blank: the encoder's own token, or what one writes on paper."""
MASKED_LM_WEIGHTS = "cls.predictions"
"""Name of the head in the weights of a BERT."""
GLUED = re.compile(r"[^\W_]+")
"""Letters and digits behind a blank."""
CONTINUATION, WORD_START = "##", "▁"
"""How WordPiece marks a subword inside a word, and SentencePiece one that begins a word."""


@dataclass(frozen=True)
class Candidate:
    """A subword predicted for a blank."""

    text: str
    """Without the vocabulary's own marks."""
    probability: float
    """Among all subwords of the vocabulary, in [0, 1]."""
    is_continuation: bool
    """Whether it continues the word before the blank."""


@dataclass(frozen=True)
class Blank:
    """A blank of a text, `text[start:end]` in code points of the composed form (NFC)."""

    start: int
    end: int
    candidates: tuple[Candidate, ...]
    """The most probable first."""


class MaskFiller:
    """A loaded encoder with its masked-LM head."""

    def __init__(
        self, score: Callable[[list[int], list[int]], FloatArray], tokenizer: Any, folder: Path, num_parameters: int
    ) -> None:
        """Use a loaded model; see `load`.

        Args:
            score: token ids (T,) and the positions (n,) of blanks in them → logits (n, V).
            tokenizer: its tokenizer, of transformers or a `PlainTokenizer`.
            folder: where it comes from.
            num_parameters: of encoder and head.
        """
        self._score, self._tokenizer, self.folder, self.num_parameters = score, tokenizer, folder, num_parameters
        self._vocabulary = vocabulary = tokenizer.get_vocab()
        marks = [mark for mark in (CONTINUATION, WORD_START) if any(subword.startswith(mark) for subword in vocabulary)]
        self._mark = marks[0] if marks else ""
        # No text contains them.
        unused = {id_ for subword, id_ in vocabulary.items() if subword.startswith("[unused")}
        self._never = sorted(unused | set(tokenizer.all_special_ids))

    @classmethod
    def load(cls, folder: str | Path | None = None) -> "MaskFiller":
        """Load a transformers folder, by default the bundled encoder.

        Raises:
            CheckpointError: it is none, or was saved without the head that predicts tokens.
        """
        folder = Path(folder) if folder else bundled("encoder")
        if not is_plain_bert(folder):
            return cls._load_with_transformers(folder)
        weights, tokenizer = EncoderWeights.from_folder(folder), PlainTokenizer.load(folder)
        if not {f"{MASKED_LM_WEIGHTS}.transform.dense.weight", f"{MASKED_LM_WEIGHTS}.bias"} <= weights.tensors.keys():
            raise _headless(folder, "a BERT")
        graph = build_graph(weights, "masked_tokens", ["input_ids", "attention_mask"])
        run = open_session(graph, threads=num_threads())

        def score(ids: list[int], positions: list[int]) -> FloatArray:
            rows = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
            return run(rows | {MASKED_POSITIONS: np.array(positions)})

        return cls(score, tokenizer, folder, weights.num_parameters)

    @classmethod
    def _load_with_transformers(cls, folder: Path) -> "MaskFiller":
        import torch

        tokenizer = load_tokenizer(folder)
        with quiet_transformers():
            model = load_model(folder, tokenizer, "AutoModelForMaskedLM", {}).eval()
        found = ModelFolder(folder)
        if not found.has_masked_lm_head:
            raise _headless(folder, ", ".join(found.architectures) or "a bare encoder")

        # Some networks predict a mask at a position before it (`pretraining.objectives.hybrid`).
        shift = int(getattr(model.config, "mask_shift", 0))

        @torch.inference_mode()
        def score(ids: list[int], positions: list[int]) -> FloatArray:
            read = [position - shift for position in positions]
            logits: FloatArray = model(input_ids=torch.tensor([ids])).logits[0, read].float().numpy()
            return logits

        return cls(score, tokenizer, folder, sum(parameter.numel() for parameter in model.parameters()))

    @property
    def max_length(self) -> int:
        """Tokens that are read, special tokens included: as many as the encoder was trained on."""
        longest = int(self._tokenizer.model_max_length)
        return min(longest, ModelFolder(self.folder).trained_positions or longest)

    def fill(self, text: str, num_candidates: int = 10) -> tuple[Blank, ...]:
        """Predict the blanks of a text.

        Args:
            text: with `[MASK]`, `□` or `__` for every blank.
            num_candidates: subwords for each blank.

        Returns:
            The blanks in order.

        Raises:
            ValueError: the text has no blank, is longer than the model reads, or no candidate is asked for.
        """
        if num_candidates < 1:
            raise ValueError(f"num_candidates={num_candidates} is less than 1")
        text = nfc(text)
        spans = [found.span() for found in BLANK.finditer(text)]
        if not spans:
            raise ValueError("no blank in the text: write [MASK] where a word is missing")
        mask = str(self._tokenizer.mask_token)
        ids = self._tokenizer(BLANK.sub(mask, text))["input_ids"]
        if self._mark == CONTINUATION:
            ids = self._glue(ids, [text[end:] for _, end in spans])
        if len(ids) > self.max_length:
            raise ValueError(f"the text has {len(ids)} tokens and the model reads {self.max_length}")
        positions = [position for position, id_ in enumerate(ids) if id_ == self._tokenizer.mask_token_id]
        assert len(positions) == len(spans), "a blank was lost by the tokenizer"
        logits = self._score(ids, positions).astype(np.float64)  # (n, V)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = odds / odds.sum(axis=1, keepdims=True)
        probabilities[:, self._never] = 0
        # Stable: of equally probable subwords the first of the vocabulary.
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :num_candidates]
        return tuple(
            Blank(start, end, tuple(self._candidate(int(id_), float(row[id_])) for id_ in chosen))
            for (start, end), row, chosen in zip(spans, probabilities, best, strict=True)
        )

    def _glue(self, ids: list[int], rests: list[str]) -> list[int]:
        """Return token ids in which the letters behind a blank continue its word.

        Args:
            ids: of the whole text, as the tokenizer cuts it.
            rests: text behind each blank.
        """
        glued: list[int] = []
        behind, position = iter(rests), 0
        while position < len(ids):
            glued.append(ids[position])
            position += 1
            if glued[-1] != self._tokenizer.mask_token_id or (found := GLUED.match(next(behind))) is None:
                continue
            subwords, spelt = self._continuation(found[0])
            begun = self._tokenizer(spelt)["input_ids"][1:-1]
            # Words of other alphabets may be split differently on their own; then they are left unchanged.
            if subwords and ids[position : position + len(begun)] == begun:
                glued += subwords
                position += len(begun)
        return glued

    def _continuation(self, letters: str) -> tuple[list[int], str]:
        """Split letters inside a word into subwords as WordPiece does, the longest first.

        Returns:
            The subwords, and what they spell: LETTERS as far as the vocabulary goes.
        """
        subwords: list[int] = []
        start = 0
        while start < len(letters):
            ends = (
                end for end in range(len(letters), start, -1) if CONTINUATION + letters[start:end] in self._vocabulary
            )
            if not (end := next(ends, 0)):
                break
            subwords.append(self._vocabulary[CONTINUATION + letters[start:end]])
            start = end
        return subwords, letters[:start]

    def _candidate(self, id_: int, probability: float) -> Candidate:
        subword = str(self._tokenizer.convert_ids_to_tokens(id_))
        is_wordpiece = self._mark == CONTINUATION
        continues = subword.startswith(CONTINUATION) if is_wordpiece else not subword.startswith(WORD_START)
        text = subword.removeprefix(CONTINUATION).strip(WORD_START).removesuffix("_")
        return Candidate(text, probability, bool(self._mark) and continues)


def _headless(folder: Path, what: str) -> CheckpointError:
    return CheckpointError(
        folder,
        f"saved as {what}, without the head that predicts tokens",
        "give an encoder that was saved with its masked-LM head",
    )


def filled(text: str, blank: Blank, candidate: Candidate) -> tuple[str, int, int]:
    """Put a candidate into a blank of a text.

    Returns:
        The text, and the span of the candidate in it. A subword that continues a word joins it.
    """
    text = nfc(text)
    before = text[: blank.start].rstrip() if candidate.is_continuation else text[: blank.start]
    return before + candidate.text + text[blank.end :], len(before), len(before) + len(candidate.text)
