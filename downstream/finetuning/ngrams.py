"""Character n-grams: a text classifier by logistic regression over their TF-IDF, without a network.

classifier = NgramClassifier(texts, labels)
classifier.predict(["배우들 연기가 좋았다"])
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

LENGTHS = (1, 4)
"""Shortest and longest n-grams."""
C = 4.0
"""Inverse strength of regularisation."""
UNSEEN = -30.0
"""Log-probability of a label without training texts."""


class NgramClassifier:
    """Logistic regression over sublinear TF-IDF of character n-grams; deterministic."""

    def __init__(self, texts: Sequence[str], labels: Sequence[str], *, c: float = C) -> None:
        """Fit N texts and their labels, of which there are at least two different ones.

        Args:
            texts: N texts.
            labels: N labels.
            c: inverse strength of regularisation.
        """
        self._vectorizer = vectorizer(*LENGTHS)
        self._model = logistic_regression(c).fit(self._vectorizer.fit_transform(texts), labels)

    @property
    def num_parameters(self) -> int:
        """Weights of n-grams, coefficients and intercepts."""
        return len(self._vectorizer.idf_) + int(np.size(self._model.coef_) + np.size(self._model.intercept_))

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the most probable label of each text."""
        return [str(label) for label in self._model.predict(self._vectorizer.transform(texts))]

    def log_probabilities(self, texts: Sequence[str], labels: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the log-probabilities of LABELS, float (N, C), in their order."""
        found = self._model.predict_log_proba(self._vectorizer.transform(texts))  # (N, classes)
        known = {str(label): k for k, label in enumerate(self._model.classes_)}
        columns = [found[:, known[label]] if label in known else np.full(len(found), UNSEEN) for label in labels]
        probable: npt.NDArray[np.float64] = np.maximum(np.column_stack(columns), UNSEEN)
        return probable


def vectorizer(shortest: int, longest: int) -> TfidfVectorizer:
    """Return the TF-IDF vectorizer of character n-grams."""
    return TfidfVectorizer(analyzer="char", ngram_range=(shortest, longest), sublinear_tf=True, lowercase=False)


def logistic_regression(c: float = C) -> LogisticRegression:
    """Return the classifier over n-grams with the inverse strength of regularisation C, not fitted."""
    return LogisticRegression(C=c, max_iter=1000)
