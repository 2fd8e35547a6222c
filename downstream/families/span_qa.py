"""Family for questions answered by a span of their context, in the manner of SQuAD 1.1 and 2.0.

A context longer than the input is split into windows that overlap by `stride` tokens. Answers are sliced from the
context by character offsets and not joined from tokens: joining SentencePiece or byte-level tokens returns whole
white-space words, which limits KorQuAD's exact match to 24 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from corpora.foundation.errors import DataError
from downstream.task import Answer, Features, Prediction, QuestionExample

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class SpanQA:
    """Start and end of the answer among the context's tokens; [CLS] means "no answer"."""

    has_unanswerable: bool
    """Whether "" may be predicted: when the null score exceeds the best span's (threshold 0)."""
    stride: int = 128
    """Tokens by which neighbouring windows overlap."""
    max_query_length: int = 64
    """Tokens that a question is truncated to."""
    max_answer_length: int = 30
    """Longest answer in tokens."""
    n_best: int = 20
    """Candidate starts and ends per window."""

    auto_class = "AutoModelForQuestionAnswering"

    def check(self, example: QuestionExample, where: str) -> None:
        """Raise DataError for an unanswerable question in a task that has none, or an empty question or context."""
        if not example.answers and not self.has_unanswerable:
            raise DataError(where, "no answer, and the task has no unanswerable questions", "restore the official file")
        if not example.question.strip() or not example.context.strip():
            raise DataError(where, "empty question or context", "restore the official file")

    def head_config(self) -> dict[str, Any]:
        """Return nothing: the head has two outputs by default."""
        return {}

    def featurize(
        self,
        examples: Sequence[QuestionExample],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
        *,
        with_labels: bool,
    ) -> list[Features]:
        """Split every example into windows `[CLS] question [SEP] context [SEP]`.

        Labels are the tokens of the first gold answer; [CLS] in a window without it and for an unanswerable question.
        """
        # At least half of a short input is left for the context.
        query_length = min(self.max_query_length, max_length // 2)
        encoded = tokenizer(
            [_shorten(example.question, tokenizer, query_length) for example in examples],
            [example.context for example in examples],
            truncation="only_second",
            max_length=max_length,
            # The overlap must leave room to advance, also for tiny models with short inputs.
            stride=min(self.stride, max(0, (max_length - query_length - 3) // 2)),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        owners = encoded.pop("overflow_to_sample_mapping")
        offsets = encoded.pop("offset_mapping")
        features: list[Features] = []
        for k, owner in enumerate(owners):
            in_context = [side == 1 for side in encoded.sequence_ids(k)]
            context = examples[owner].context
            spans = [
                _trim(context, *span) if inside else None for span, inside in zip(offsets[k], in_context, strict=True)
            ]
            feature: Features = {key: encoded[key][k] for key in encoded}
            feature |= {"_example": owner, "_offsets": spans}
            if with_labels:
                null = feature["input_ids"].index(tokenizer.cls_token_id)
                start, end = _answer_tokens(spans, examples[owner].answers) or (null, null)
                feature |= {"start_positions": start, "end_positions": end}
            features.append(feature)
        return features

    def logits(self, model: "PreTrainedModel", batch: Mapping[str, Any]) -> "Tensor":
        """Return float (B, 2, T): start and end scores."""
        import torch

        outputs = model(**batch)
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=1)

    def decode(
        self, outputs: Sequence[Any], features: Sequence[Features], examples: Sequence[QuestionExample]
    ) -> list[Prediction]:
        """Return per example the best span over its windows, as an exact slice of the context, or ""."""
        best: list[tuple[float, str]] = [(-np.inf, "")] * len(examples)
        null = np.full(len(examples), np.inf)
        for scores, feature in zip(outputs, features, strict=True):
            owner = feature["_example"]
            null[owner] = min(null[owner], scores[0][0] + scores[1][0])
            score, start, end = self.best_span(scores, feature["_offsets"])
            if score > best[owner][0]:
                best[owner] = (score, examples[owner].context[start:end])
        return ["" if self.has_unanswerable and null[k] > score else answer for k, (score, answer) in enumerate(best)]

    def best_span(self, scores: Any, offsets: Sequence[tuple[int, int] | None]) -> tuple[float, int, int]:
        """Return score, start and end (code points) of the best allowed span of a window."""
        allowed = np.array([span is not None and span[1] > span[0] for span in offsets])
        length = len(offsets)
        start_scores = np.where(allowed, np.asarray(scores[0][:length], dtype=np.float64), -np.inf)
        end_scores = np.where(allowed, np.asarray(scores[1][:length], dtype=np.float64), -np.inf)
        starts = np.argsort(-start_scores, kind="stable")[: self.n_best]
        ends = np.argsort(-end_scores, kind="stable")[: self.n_best]
        sums = start_scores[starts][:, None] + end_scores[ends][None, :]
        span_length = ends[None, :] - starts[:, None] + 1
        sums = np.where((span_length >= 1) & (span_length <= self.max_answer_length), sums, -np.inf)
        row, column = np.unravel_index(int(np.argmax(sums)), sums.shape)
        first, last = offsets[starts[row]], offsets[ends[column]]
        if first is None or last is None or not np.isfinite(sums[row, column]):
            return -np.inf, 0, 0
        return float(sums[row, column]), first[0], last[1]


def _shorten(question: str, tokenizer: "PreTrainedTokenizerBase", length: int) -> str:
    """Truncate a question to its first LENGTH tokens."""
    question = question.strip()
    offsets = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"][:length]
    return question[: offsets[-1][1]] if offsets else question


def _trim(context: str, start: int, end: int) -> tuple[int, int]:
    """Exclude the blank that SentencePiece counts as part of the following subword."""
    while start < end and context[start].isspace():
        start += 1
    return start, end


def _answer_tokens(spans: Sequence[tuple[int, int] | None], answers: Sequence[Answer]) -> tuple[int, int] | None:
    """Return the first and last token that cover the first gold, or None if the window does not contain all of it."""
    if not answers:
        return None
    # A few golds of KorQuAD begin or end with a blank, which belongs to no token.
    stripped = answers[0].text.strip()
    low = answers[0].start + answers[0].text.index(stripped)
    high = low + len(stripped)
    covering = [k for k, span in enumerate(spans) if span is not None and span[0] < high and span[1] > low]
    if not covering:
        return None
    first, last = spans[covering[0]], spans[covering[-1]]
    assert first is not None
    assert last is not None
    return (covering[0], covering[-1]) if first[0] <= low and last[1] >= high else None
