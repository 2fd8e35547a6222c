"""Answer questions from a passage, with the place of the answer in it, or tell that the passage holds none.

    reader = Reader.load(folder)
    found = reader.answer("금리는 몇 %인가?", passage)
    passage[found.start : found.end]

The model is a folder that `downstream.finetune` saved for KorQuAD or KLUE-MRC. Only the latter has learnt to say that
there is no answer. Without a model, `SentenceFinder` finds the sentence that the answer is likely to stand in.
"""

import collections
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpora.characters import compose, nfc
from corpora.foundation.errors import CheckpointError
from corpora.sentences import split_article
from downstream.families.span_qa import SpanQA
from downstream.runtimes.predictor import Predictor
from downstream.task import QuestionExample


@dataclass(frozen=True)
class Found:
    """An answer: `passage[start:end] == text`, in code points; an empty text where there is none."""

    text: str
    start: int
    end: int
    confidence: float
    """Of a model: share of the answer against "no answer", in [0, 1]; means little if it never learnt to refuse.

    Of `SentenceFinder`: share of the question's letters that the sentence has.
    """

    @property
    def is_answered(self) -> bool:
        """Whether the passage holds an answer, as far as the model can tell."""
        return self.end > self.start


class Reader:
    """A loaded model. Not for several threads at a time."""

    def __init__(self, predictor: Predictor) -> None:
        """Use a loaded model.

        Raises:
            CheckpointError: it answers no questions.
        """
        family = predictor.finetuned.family
        if not isinstance(family, SpanQA):
            what = f"a model for {predictor.finetuned.task.title}, which answers no questions"
            raise CheckpointError(predictor.finetuned.folder, what, "give a folder fine-tuned on korquad or klue-mrc")
        self.predictor, self._family = predictor, family

    @classmethod
    def load(cls, folder: str | Path, runtime: str = "torch", *, threads: int = 1) -> "Reader":
        """Load a fine-tuned folder; see `downstream.runtime.Predictor.load`.

        Raises:
            CheckpointError: the folder is no fine-tuned model that answers questions.
            UsageError: the runtime is unknown or unsupported on this machine.
        """
        return cls(Predictor.load(Path(folder), runtime, threads=threads))

    @property
    def can_refuse(self) -> bool:
        """Whether it was trained on questions without an answer."""
        return self._family.has_unanswerable

    def answer(self, question: str, passage: str) -> Found:
        """Find the answer to a question in a passage of any length.

        Raises:
            ValueError: the question or the passage is blank.
        """
        _refuse_blank(question, passage)
        source = passage
        passage, offsets = compose(source)
        example = QuestionExample("", nfc(question), passage, ())
        rows, features = self.predictor.outputs([example])
        null = min(float(row[0][0] + row[1][0]) for row in rows)
        score, start, end = max(
            (self._family.best_span(row, feature["_offsets"]) for row, feature in zip(rows, features, strict=True)),
            key=lambda span: span[0],
        )
        if not np.isfinite(score):
            return Found("", 0, 0, 0.0)
        confidence = 1 / (1 + math.exp(min(max(null - score, -500.0), 500.0)))
        if self.can_refuse and null > score:
            return Found("", 0, 0, confidence)
        if offsets is not None:
            start, end = offsets[start], offsets[end]
        return Found(source[start:end], start, end, confidence)


class SentenceFinder:
    """Finds the sentence of a passage that shares most with a question; needs no model, and gives no shorter answer.

    A sentence's score is the sum of the weights of the question's letter pairs that it holds. A pair that few sentences
    of the passage hold weighs more: log(1 + sentences / sentences with it).
    """

    def answer(self, question: str, passage: str) -> Found:
        """Find a sentence; none where no sentence has two letters in a row of the question.

        Raises:
            ValueError: the question or the passage is blank.
        """
        _refuse_blank(question, passage)
        source = passage
        passage, offsets = compose(source)
        sentences = split_article(passage)
        asked = _letter_pairs(nfc(question))
        held = [_letter_pairs(sentence.text) & asked for sentence in sentences]
        counts = collections.Counter(pair for pairs in held for pair in pairs)
        # Summed in one order, so that the same question has the same answer in every process.
        weights = {pair: math.log(1 + len(sentences) / max(1, counts[pair])) for pair in sorted(asked)}
        scores = [sum(weight for pair, weight in weights.items() if pair in pairs) for pairs in held]
        best = max(range(len(sentences)), key=scores.__getitem__)
        if not scores[best]:
            return Found("", 0, 0, 0.0)
        start, end = sentences[best].start, sentences[best].end
        if offsets is not None:
            start, end = offsets[start], offsets[end]
        return Found(source[start:end], start, end, scores[best] / sum(weights.values()))


def _refuse_blank(question: str, passage: str) -> None:
    if not question.strip() or not passage.strip():
        raise ValueError("the question or the passage is blank")


def _letter_pairs(text: str) -> set[str]:
    letters = "".join(text.split())
    return {letters[k : k + 2] for k in range(len(letters) - 1)}
