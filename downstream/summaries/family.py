"""Family of tasks that choose sentences of an article: extractive summaries, compared with an editor's choice.

Systems are rules (`random`, `lead-3`, `textrank`, `lexrank`, and `oracle`, which reads the reference) and summarizers.
A prediction is a string of the chosen sentences' indices, separated by spaces; -1 stands for a sentence that overlaps
none of the editor's. A summarizer gets raw text and title, as for its users, and splits sentences and bylines itself;
rules get the editor's sentences.

Such systems are not fine-tuned like an encoder with a head: train them with `python -m downstream.extractive` or
`python -m downstream.summarize train`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from corpora.foundation.errors import DataError, UsageError
from downstream.metrics import Metric, mean_metric
from downstream.summaries.articles import Article
from downstream.summaries.evaluation import NUM_SENTENCES, RULES, chosen_by, reference_of, rouge_scores, sentence_scores
from downstream.summaries.labelled import read_labelled
from downstream.summaries.rouge import TOKENIZERS
from downstream.summaries.summarizer import Summarizer
from downstream.task import Prediction

ROUGE_TITLES = {"rouge_1": "R-1", "rouge_2": "R-2", "rouge_l": "R-L"}


@dataclass(frozen=True)
class SummaryExample:
    """An article with an editor's choice of sentences."""

    article: Article

    @property
    def id(self) -> str:
        """Id of the article."""
        return self.article.id

    @property
    def text(self) -> str:
        """Text of the article."""
        return self.article.text

    @property
    def gold(self) -> Article:
        """The article, whose labels a metric compares with a prediction."""
        return self.article

    @property
    def target(self) -> tuple[int, ...]:
        """Indices of the editor's choice, as results keep them."""
        return self.article.extractive


def read_choices(path: Path) -> list[SummaryExample]:
    """Read the articles with an editor's choice of sentences.

    Raises:
        DataError: the file cannot be read, or a record is not what its layout says.
    """
    return [SummaryExample(article) for article in read_labelled(path) if article.extractive]


def indices_of(prediction: Any) -> list[int]:
    """Return the indices in a prediction."""
    return [int(index) for index in str(prediction).split()]


def to_prediction(indices: Sequence[int]) -> str:
    """Format indices of chosen sentences as a prediction.

    >>> to_prediction([0, 3, 5])
    '0 3 5'
    """
    return " ".join(map(str, indices))


def choose_sentences(system: str, source: str | Path | None = None) -> Callable[[Sequence[Any]], list[Prediction]]:
    """Return a function from examples to predictions.

    Args:
        system: a key of `RULES`, or `summarizer`.
        source: folder or hub id of a summarizer; default: the bundled one.

    Raises:
        UsageError: the system is unknown.
        CheckpointError: the summarizer is missing or unusable.
    """
    if system in RULES:
        return lambda examples: [to_prediction(RULES[system](example.article)) for example in examples]
    if system != "summarizer":
        raise UsageError("system", f"'{system}' is unknown", f"choose from {', '.join([*RULES, 'summarizer'])}")
    summarizer = Summarizer.load(source)

    def predict(examples: Sequence[Any]) -> list[Prediction]:
        articles = [example.article for example in examples]
        summaries = [summarizer.summarize(a.text, NUM_SENTENCES, title=a.title) for a in articles]
        return [to_prediction(chosen_by(*both)) for both in zip(summaries, articles, strict=True)]

    return predict


def _sentence_metric(key: str, title: str) -> Metric:
    def of_example(prediction: Any, article: Article) -> float:
        return sentence_scores(indices_of(prediction), article.extractive)[key]

    return mean_metric(f"sentence_{key}", title, of_example)


def _rouge_metric(variant: str, tokenizer: str) -> Metric:
    def of_example(prediction: Any, article: Article) -> float:
        texts = article.texts
        chosen = "\n".join(texts[k] for k in indices_of(prediction) if k >= 0)
        return rouge_scores(chosen, reference_of(article))[f"{variant}_{tokenizer}"]

    return mean_metric(f"{variant}_{tokenizer}".replace("-", "_"), f"{ROUGE_TITLES[variant]} {tokenizer}", of_example)


METRICS = (
    _sentence_metric("f1", "문장 F1"),
    _sentence_metric("precision", "문장 P"),
    _sentence_metric("recall", "문장 R"),
    *(_rouge_metric(variant, tokenizer) for tokenizer in TOKENIZERS for variant in ROUGE_TITLES),
)
"""Means over articles; ROUGE is F1, with each tokenizer."""


@dataclass(frozen=True)
class SentenceChoice:
    """Extractive summaries."""

    auto_class = ""

    def check(self, example: SummaryExample, where: str) -> None:
        """Raise DataError for an article without chosen sentences."""
        if not example.article.extractive:
            raise DataError(where, "no sentence is chosen", "restore the file")

    def refuse(self, *_arguments: Any, **_settings: Any) -> NoReturn:
        """Raise UsageError: transformers has no head for this family."""
        raise UsageError(
            "news-summary",
            "an encoder cannot be fine-tuned on this task",
            "train with python -m downstream.extractive train, and give the folder",
        )

    head_config = featurize = decode = logits = refuse
