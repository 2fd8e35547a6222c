"""The tools as scikit-learn's estimators, for pipelines, searches and cross-validation.

    from pressbert.estimators import EmbeddingTransformer, StoryClusterer, SummaryTransformer, TextClassifier

    make_pipeline(EmbeddingTransformer(), LogisticRegression()).fit(texts, labels).predict(texts)
    StoryClusterer(min_size=3).fit_predict(titles)                        # -1: in no story

They take a sequence of strings: a list, an array, a column of a table. The models are trained already: `fit` of a
transformer learns nothing, and `fit` of a classifier checks the labels. `StoryClusterer` finds its stories in `fit`.
`make_pipeline(EmbeddingTransformer())` is an `embedding_model` for BERTopic.
"""

import abc
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin, TransformerMixin

from apps.clustering import ClusteringConfig, cluster
from apps.stories.keywords import find_terms
from corpora.characters import as_texts
from downstream.classify import Classifier
from downstream.embed import Embedder
from downstream.moderate import Moderator
from downstream.summarize import Summarizer

__all__ = [
    "CommentClassifier",
    "EmbeddingTransformer",
    "StoryClusterer",
    "SummaryTransformer",
    "TextClassifier",
    "noun_terms",
]


class Labelling(Protocol):
    """A loaded model of texts, such as `Classifier` and `Moderator`."""

    @property
    def labels(self) -> Sequence[str]:
        """Names of the C labels."""

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the probabilities of the labels, (N, C)."""


class _TextEstimator(BaseEstimator):  # type: ignore[misc]
    """What all have in common: they take texts."""

    _needs_fit = False

    def __sklearn_tags__(self) -> Any:
        """Say what the estimator takes: one text per sample."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = self._needs_fit
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        """Whether it can be used."""
        return not self._needs_fit or hasattr(self, "labels_")


class _TextTransformer(TransformerMixin, _TextEstimator):  # type: ignore[misc]
    def fit(self, X: Sequence[str], y: object = None) -> Self:  # noqa: ARG002, N803
        """Learn nothing: the model is trained. Refuses what is no sequence of strings."""
        as_texts(X)
        return self


class EmbeddingTransformer(_TextTransformer):
    """Texts → sentence vectors, float32 (N, D) of length 1."""

    def __init__(self, model: str | None = None, *, batch_size: int = 64, is_int8: bool = False) -> None:
        """Set the parameters.

        Args:
            model: folder or hub id of an embedder or encoder; default: the bundled embedder.
            batch_size: texts per batch.
            is_int8: compute with weights of 8 bits.
        """
        self.model, self.batch_size, self.is_int8 = model, batch_size, is_int8

    def transform(self, X: Sequence[str]) -> NDArray[np.float32]:  # noqa: N803
        """Encode texts; see `downstream.embed.encode`."""
        return self._embedder().encode(X, batch_size=self.batch_size)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return a name for each of the D columns."""
        return np.array([f"embedding{k}" for k in range(self._embedder().dimension)], dtype=object)

    def _embedder(self) -> Embedder:
        return Embedder.load(self.model, is_int8=self.is_int8)


class SummaryTransformer(_TextTransformer):
    """Articles → summaries, (N,) strings with a sentence per line."""

    def __init__(
        self,
        model: str | None = None,
        *,
        sentences: int = 3,
        ratio: float | None = None,
        max_chars: int | None = None,
    ) -> None:
        """Set the parameters.

        Args:
            model: folder of a summarizer; default: the bundled one.
            sentences: of a summary.
            ratio: share of an article's sentences, in place of `sentences`.
            max_chars: of a summary at most.
        """
        self.model, self.sentences, self.ratio, self.max_chars = model, sentences, ratio, max_chars

    def transform(self, X: Sequence[str]) -> NDArray[np.object_]:  # noqa: N803
        """Summarize articles; see `downstream.summarize.Summarizer`."""
        summaries = Summarizer.load(self.model).summarize_many(
            as_texts(X), self.sentences, ratio=self.ratio, max_chars=self.max_chars
        )
        return np.array([str(summary) for summary in summaries], dtype=object)


class _PretrainedClassifier(ClassifierMixin, _TextEstimator, abc.ABC):  # type: ignore[misc]
    """A trained model of texts under the verbs of a classifier."""

    model: str | None

    def fit(self, X: Sequence[str], y: Iterable[object]) -> Self:  # noqa: N803
        """Check the texts and the labels; the model is trained and stays as it is.

        Raises:
            ValueError: a label is none of the model's, or there is not one for each text.
        """
        texts, labels = as_texts(X), [str(label) for label in y]
        if len(texts) != len(labels):
            raise ValueError(f"{len(texts)} texts and {len(labels)} labels: give one label for each text")
        if unknown := sorted({*labels} - {*self.classes_}):
            known = ", ".join(self.classes_)
            raise ValueError(f"y: the model has no label {unknown[0]!r}; its labels are {known}")
        return self

    @property
    def classes_(self) -> NDArray[np.str_]:
        """Labels in the order of the columns of `predict_proba`."""
        return np.array(sorted(self._opened().labels))

    def predict_proba(self, X: Sequence[str]) -> NDArray[np.float64]:  # noqa: N803
        """Return the probabilities of the labels, (N, C) in the order of `classes_`."""
        opened = self._opened()
        return opened.probabilities(as_texts(X))[:, np.argsort(opened.labels)]

    def predict(self, X: Sequence[str]) -> NDArray[np.str_]:  # noqa: N803
        """Return the most probable label of each text, (N,)."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _opened(self) -> Labelling:
        """Return the model, which is loaded once."""
        found: tuple[str | None, Labelling] | None = self.__dict__.get("_loaded")
        if found is None or found[0] != self.model:
            found = self._loaded = (self.model, self._load())
        return found[1]

    @abc.abstractmethod
    def _load(self) -> Labelling:
        """Open the model."""


class TextClassifier(_PretrainedClassifier):
    """Texts → labels by a fine-tuned model.

    To learn labels of your own, put a classifier behind an `EmbeddingTransformer`, or use `downstream.finetune`.
    """

    def __init__(self, model: str | None = None) -> None:
        """Set the parameters.

        Args:
            model: folder of a finished fine-tuning; default: the bundled model of film reviews.
        """
        self.model = model

    def _load(self) -> Labelling:
        return Classifier.load(self.model)


class CommentClassifier(_PretrainedClassifier):
    """Comments → `none`, `offensive` or `hate`."""

    def __init__(self, model: str | None = None) -> None:
        """Set the parameters.

        Args:
            model: folder of `python -m downstream.moderate train`; default: the bundled model.
        """
        self.model = model

    def _load(self) -> Labelling:
        return Moderator.load(self.model)


class StoryClusterer(ClusterMixin, _TextEstimator):  # type: ignore[misc]
    """Titles → stories.

    After `fit`, `labels_` holds the story of each title, −1 for none; `stories_` holds their headlines, keywords and
    members, the largest first.
    """

    _needs_fit = True

    def __init__(
        self,
        *,
        min_size: int = 3,
        min_log_odds: float = 0.0,
        join_similarity: float = 0.4,
        attach_similarity: float = 0.3,
        routine: str = "apart",
        model: str | None = None,
    ) -> None:
        """Set the parameters.

        Args:
            min_size: distinct titles of the smallest story.
            min_log_odds: mean log-odds from which on titles are a story; higher values give smaller and purer stories.
            join_similarity: similarity at which two stories are joined.
            attach_similarity: similarity at which a title in no story joins one.
            routine: `apart` keeps titles in routine formats out of stories, `group` groups them too.
            model: folder or hub id of an embedder; default: the bundled one.
        """
        self.min_size, self.min_log_odds, self.routine, self.model = min_size, min_log_odds, routine, model
        self.join_similarity, self.attach_similarity = join_similarity, attach_similarity

    def fit(self, X: Sequence[str], y: object = None) -> Self:  # noqa: ARG002, N803
        """Find the stories among titles.

        Raises:
            ValueError: X is one string, an element is no string, or a parameter is out of range.
        """
        settings = self.get_params()
        model = settings.pop("model")
        config = ClusteringConfig.model_validate(settings)
        found = cluster(as_texts(X), config, embedder=None if model is None else Embedder.load(model))
        self.labels_, self.stories_ = found.labels, found.stories
        return self


def noun_terms(text: str) -> list[str]:
    """Return the nouns and compounds of a text: an `analyzer` for `CountVectorizer` and `TfidfVectorizer`.

    >>> noun_terms("얀센 백신 예약 마감")
    ['얀센', '얀센 백신', '백신', '백신 예약', '예약', '예약 마감', '마감']
    """
    return [term.text for term in next(find_terms([text]))]
