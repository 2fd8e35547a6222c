"""Fit the weights of sentence features to an editor's choices: a conditional logit (McFadden 1974).

The sentences of an article compete with each other: a chosen sentence should score higher than the others of its
article, whatever the scores in other articles. A logistic regression over all sentences would also have to explain
that a sentence of a short article is chosen more often than one of a long article.
"""

from collections.abc import Sequence

import numpy as np

from downstream.summaries.features import FloatArray

BIASES = (-100.0, 100.0)
"""Range in which the bias is sought."""


def fit_choices(
    values: Sequence[FloatArray], labels: Sequence[FloatArray], weights: Sequence[float], *, inverse_l2: float
) -> tuple[FloatArray, float]:
    """Maximize the probability of the chosen sentences, each against the sentences of its article.

    Args:
        values: features of each article's sentences, (S, F).
        labels: 1 for chosen sentences, else 0, (S,); in one article at least, some sentences are chosen and some not.
        weights: of the articles.
        inverse_l2: a smaller value means stronger regularization, as scikit-learn's `C`.

    Returns:
        The weights (F,) in log-odds per unit, and the bias with which the scores are probabilities: they add up to the
        number of chosen sentences.
    """
    from scipy.optimize import brentq, minimize
    from scipy.special import expit

    rows, chosen = np.concatenate(values), np.concatenate(labels)  # (N, F), (N,)
    lengths = [len(label) for label in labels]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(int)
    weight = np.repeat(np.asarray(weights, dtype=float), lengths)
    num_chosen = np.repeat(np.add.reduceat(chosen, starts), lengths)

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        odds = rows @ theta
        shifted = odds - np.repeat(np.maximum.reduceat(odds, starts), lengths)
        log_share = shifted - np.repeat(np.log(np.add.reduceat(np.exp(shifted), starts)), lengths)
        value = theta @ theta / (2 * inverse_l2) - weight @ (chosen * log_share)
        gradient = theta / inverse_l2 - rows.T @ (weight * (chosen - num_chosen * np.exp(log_share)))
        return float(value), gradient

    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", options={"ftol": 1e-12, "gtol": 1e-7})
    theta = np.asarray(found.x, dtype=float)
    odds = rows @ theta
    bias = brentq(lambda bias: float(weight @ (expit(odds + bias) - chosen)), *BIASES)
    return theta, float(bias)
