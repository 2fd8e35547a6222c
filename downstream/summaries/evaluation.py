"""Evaluate summaries: against an editor's choice of sentences, against references in free words, and against rules.

    python -m downstream.summarize evaluate corpora/sample/news.jsonl --split dev

A model reads the raw text, as its users do, and splits sentences and bylines itself; each sentence that it chooses
counts as the editor's sentence with the largest overlap. The rules get the editor's sentences.

Sentence precision, recall and F1 are means over articles. ROUGE compares with the abstract if there is one, else with
the editor's sentences. Confidence intervals are bootstraps over articles; p-values are those of the two-sided paired
randomization test on sentence F1 (Noreen 1989).
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from downstream.metrics import FloatArray, Metric, bootstrap_ci95
from downstream.summaries.articles import Article
from downstream.summaries.features import TfidfVectors, terms
from downstream.summaries.rouge import TOKENIZERS, characters, greedy_oracle, rouge_l, rouge_n
from downstream.summaries.summarizer import Summarizer, Summary

NUM_SENTENCES = 3
DAMPING = 0.85
"""Of PageRank, as in Mihalcea and Tarau 2004."""
ROUNDS = 10_000

Choose: TypeAlias = Callable[[Article], Sequence[int]]
"""Article → indices of the chosen sentences."""


# ---- rules ----


def choose_lead(article: Article) -> list[int]:
    """Choose the first sentences."""
    return list(range(min(NUM_SENTENCES, len(article.sentences))))


def choose_random(article: Article) -> list[int]:
    """Choose random sentences; the seed is a function of the article."""
    generator = np.random.default_rng([len(article.text), *article.text[:100].encode("utf-8", "replace")])
    num = len(article.sentences)
    return sorted(generator.choice(num, size=min(NUM_SENTENCES, num), replace=False).tolist())


def choose_textrank(article: Article) -> list[int]:
    """Choose by TextRank: PageRank on shared terms over summed log lengths (Mihalcea and Tarau 2004, section 4.1)."""
    bags = [terms(text) for text in article.texts]
    sets = [set(bag) for bag in bags]
    logs = [math.log(max(2, len(bag))) for bag in bags]
    similarity = [
        [len(a & b) / (x + y) for b, y in zip(sets, logs, strict=True)] for a, x in zip(sets, logs, strict=True)
    ]
    return _best(pagerank(np.array(similarity)))


def choose_lexrank(article: Article) -> list[int]:
    """Choose by continuous LexRank: PageRank on the cosines of TF-IDF vectors (Erkan and Radev 2004, section 3.3)."""
    vectors = TfidfVectors(article.texts)
    num = range(len(article.sentences))
    return _best(pagerank(np.array([[vectors.cosine(a, b) for b in num] for a in num])))


def choose_oracle(article: Article) -> list[int]:
    """Choose greedily by the reference itself: an upper bound for ROUGE, though not for sentence scores."""
    sentences = [characters(text) for text in article.texts]
    return sorted(greedy_oracle(sentences, characters(reference_of(article)), max_sentences=NUM_SENTENCES))


def pagerank(similarity: FloatArray) -> FloatArray:
    """Return the PageRank (S,) of similarities (S, S); a row of zeros stands for equal links to all sentences."""
    num = len(similarity)
    weights = similarity - np.diag(np.diag(similarity))
    sums = weights.sum(axis=1, keepdims=True)
    steps = np.where(sums > 0, weights / np.where(sums > 0, sums, 1.0), 1.0 / max(1, num))
    ranks = np.full(num, 1.0 / max(1, num))
    for _ in range(100):
        ranks = (1 - DAMPING) / max(1, num) + DAMPING * steps.T @ ranks
    return np.asarray(ranks)


def _best(scores: FloatArray) -> list[int]:
    return sorted(np.argsort(-scores, kind="stable")[:NUM_SENTENCES].tolist())


RULES: Mapping[str, Choose] = {
    "random": choose_random,
    "lead-3": choose_lead,
    "textrank": choose_textrank,
    "lexrank": choose_lexrank,
    "oracle": choose_oracle,
}


# ---- scores ----


def reference_of(article: Article) -> str:
    """Return the reference of ROUGE: the abstract, else the editor's sentences."""
    texts = article.texts
    return article.abstract or " ".join(texts[k] for k in article.extractive)


def chosen_by(summary: Summary, article: Article) -> list[int]:
    """Map the sentences of a summary to those of ARTICLE, by the number of shared characters; -1 without overlap."""
    chosen = []
    for sentence in summary.sentences:
        shared = [min(sentence.end, s.end) - max(sentence.start, s.start) for s in article.sentences]
        best = max(range(len(shared)), key=shared.__getitem__, default=-1)
        chosen.append(best if best >= 0 and shared[best] > 0 else -1)
    return chosen


def sentence_scores(chosen: Sequence[int], gold: Sequence[int]) -> dict[str, float]:
    """Return precision, recall and F1 of chosen sentence indices against gold ones.

    >>> sentence_scores([0, 1, 2], [0, 2, 5])["f1"]
    0.6666666666666666
    """
    hits = len(set(chosen) & set(gold))
    return {
        "precision": hits / max(1, len(chosen)),
        "recall": hits / max(1, len(gold)),
        "f1": 2 * hits / max(1, len(chosen) + len(gold)),
    }


def rouge_scores(candidate: str, reference: str) -> dict[str, float]:
    """Return the F1 of ROUGE-1, -2 and -L by each tokenizer, e.g. `rouge_2_kiwi-morphemes`."""
    scores = {}
    for name, tokenize in TOKENIZERS.items():
        ours, theirs = tokenize(candidate), tokenize(reference)
        scores[f"rouge_1_{name}"] = rouge_n(ours, theirs, 1).f1
        scores[f"rouge_2_{name}"] = rouge_n(ours, theirs, 2).f1
        scores[f"rouge_l_{name}"] = rouge_l(ours, theirs).f1
    return scores


@dataclass(frozen=True)
class System:
    """Scores of a model or rule on each of N articles."""

    name: str
    figures: Mapping[str, FloatArray]
    """Score → (N,)."""

    def mean(self, key: str) -> float:
        """Return the mean of a score over articles."""
        return float(self.figures[key].mean())

    def ci95(self, key: str) -> tuple[float, float]:
        """Return the 95 % bootstrap interval of a mean score."""
        interval = bootstrap_ci95(MEAN, [self.figures[key][:, None]])
        assert interval is not None, "no score of this module is ever undefined"
        return interval


def _columns(predictions: Sequence[Any], _golds: Sequence[Any]) -> FloatArray:
    return np.array([[float(value)] for value in predictions])


def _mean(columns: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray(weights @ columns[:, 0] / weights.sum(axis=1))


MEAN = Metric("mean", "mean", _columns, _mean)


def score_system(name: str, chosen: Iterable[tuple[Sequence[int], str]], articles: Sequence[Article]) -> System:
    """Score the chosen sentences: for each article their indices, and the text of the summary."""
    rows = [
        sentence_scores(indices, article.extractive) | rouge_scores(text, reference_of(article))
        for (indices, text), article in zip(chosen, articles, strict=True)
    ]
    return System(name, {key: np.array([row[key] for row in rows]) for key in rows[0]})


def evaluate(summarizer: Summarizer, articles: Sequence[Article], name: str = "pressbert") -> list[System]:
    """Score a model and the rules on labelled articles.

    Args:
        summarizer: the model, which gets text and title of each article.
        articles: at least one article, each with an editor's choice.
        name: name of the model in the table.

    Returns:
        The rules, then the model.

    Raises:
        ValueError: there is no article, or an article without a choice.
    """
    if not articles or not all(article.extractive for article in articles):
        raise ValueError("give at least one article, each with an editor's choice of sentences")
    systems = [score_system(rule, _choices(choose, articles), articles) for rule, choose in RULES.items()]
    summaries = [summarizer.summarize(article.text, NUM_SENTENCES, title=article.title) for article in articles]
    chosen = [(chosen_by(summary, article), str(summary)) for summary, article in zip(summaries, articles, strict=True)]
    return [*systems, score_system(name, chosen, articles)]


def _choices(choose: Choose, articles: Sequence[Article]) -> Iterable[tuple[Sequence[int], str]]:
    for article in articles:
        indices, texts = choose(article), article.texts
        yield indices, "\n".join(texts[k] for k in indices)


@functools.cache
def _signs(num: int, rounds: int, seed: int) -> FloatArray:
    return np.random.default_rng(seed).choice([-1.0, 1.0], size=(rounds, num))


def paired_p(a: FloatArray, b: FloatArray, *, rounds: int = ROUNDS, seed: int = 0) -> float:
    """Return the two-sided p-value of the paired randomization test on the means of A and B, (N,) each.

    Under the null hypothesis the scores of A and B on an article are exchangeable. The observed assignment counts as
    one of the rounds, so that no p-value is 0 (Phipson and Smyth 2010).
    """
    differences = a - b
    observed = abs(differences.sum())
    extreme = np.abs(_signs(len(a), rounds, seed) @ differences) >= observed - 1e-9
    return float((extreme.sum() + 1) / (rounds + 1))


# ---- tables ----


def table(systems: Sequence[System]) -> str:
    """Return a Markdown table in percent, with p-values of the last system against all others."""
    model = systems[-1]
    keys = [key for key in model.figures if key.startswith("rouge")]
    titles = [f"R-{key.split('_')[1].upper()} {key.split('_')[2]}" for key in keys]
    lines = [
        f"| system | precision | recall | sentence F1 [95 %] | p | {' | '.join(titles)} |",
        "| --- | ---: | ---: | ---: | ---: |" + " ---: |" * len(keys),
    ]
    for system in systems:
        low, high = system.ci95("f1")
        p = "" if system is model else f"{paired_p(model.figures['f1'], system.figures['f1']):.4f}"
        cells = [
            system.name,
            f"{100 * system.mean('precision'):.1f}",
            f"{100 * system.mean('recall'):.1f}",
            f"{100 * system.mean('f1'):.1f} [{100 * low:.1f}, {100 * high:.1f}]",
            p,
            *(f"{100 * system.mean(key):.1f}" for key in keys),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    num = len(model.figures["f1"])
    lines += ["", f"{num} articles. p: {model.name} against the system of the row, paired by article, on sentence F1."]
    return "\n".join(lines) + "\n"


def as_json(systems: Sequence[System]) -> dict[str, Any]:
    """Return the scores as fractions, with intervals and p-values, for JSON."""
    model = systems[-1]
    return {
        "num_articles": len(model.figures["f1"]),
        "systems": {
            system.name: {
                "figures": {key: round(system.mean(key), 6) for key in system.figures},
                "f1_ci95": [round(bound, 6) for bound in system.ci95("f1")],
                "p": None if system is model else paired_p(model.figures["f1"], system.figures["f1"]),
            }
            for system in systems
        },
    }
