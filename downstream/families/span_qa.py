"""Family for questions answered by a span of their context, in the manner of SQuAD 1.1 and 2.0.

A context longer than the input is split into windows that overlap by `stride` tokens. Answers are sliced from the
context by character offsets and not joined from tokens: joining SentencePiece or byte-level tokens returns whole
white-space words, which limits KorQuAD's exact match to 24 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from corpora.characters import compose
from corpora.foundation.errors import DataError
from downstream.task import Features, Prediction, QuestionExample

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
        contexts = [compose(example.context) for example in examples]
        encoded = tokenizer(
            [_shorten(example.question, tokenizer, query_length) for example in examples],
            [composed for composed, _ in contexts],
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
            spans = [
                _source_span(*contexts[owner], *span) if inside else None
                for span, inside in zip(offsets[k], in_context, strict=True)
            ]
            features.append({key: encoded[key][k] for key in encoded} | {"_example": owner, "_offsets": spans})
        if with_labels:
            golds = _covered_golds(features, examples)
            for feature in features:
                null = feature["input_ids"].index(tokenizer.cls_token_id)
                start, end = _answer_tokens(feature["_offsets"], golds[feature["_example"]]) or (null, null)
                feature |= {"start_positions": start, "end_positions": end}
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


def _source_span(composed: str, source_offsets: list[int] | None, start: int, end: int) -> tuple[int, int]:
    """Return the place of a token in the context as it was given, without the blank that SentencePiece counts to it."""
    while start < end and composed[start].isspace():
        start += 1
    return (start, end) if source_offsets is None else (source_offsets[start], source_offsets[end])


def _covered_golds(features: Sequence[Features], examples: Sequence[QuestionExample]) -> list[tuple[int, int] | None]:
    """Return the first gold of each example, from its first to its last character that has a token; else None.

    Blanks, zero-width and control characters have none; a few golds of KorQuAD begin or end with one.
    """
    golds = [
        (answer.start, answer.start + len(answer.text)) if answer is not None else None
        for answer in (next(iter(example.answers), None) for example in examples)
    ]
    found: list[tuple[int, int] | None] = [None] * len(examples)
    for feature in features:
        owner = feature["_example"]
        gold = golds[owner]
        for low, high in filter(None, feature["_offsets"]):
            if gold is None or high <= low or high <= gold[0] or low >= gold[1]:
                continue
            start, end = max(low, gold[0]), min(high, gold[1])
            before = found[owner] or (start, end)
            found[owner] = min(start, before[0]), max(end, before[1])
    return found


def _answer_tokens(spans: Sequence[tuple[int, int] | None], gold: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the first and last token that cover a gold, or None if the window does not contain all of it."""
    if gold is None:
        return None
    low, high = gold
    covering = [k for k, span in enumerate(spans) if span is not None and span[0] < high and span[1] > low]
    if not covering:
        return None
    first, last = spans[covering[0]], spans[covering[-1]]
    assert first is not None
    assert last is not None
    return (covering[0], covering[-1]) if first[0] <= low and last[1] >= high else None
