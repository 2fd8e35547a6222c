"""KLUE-DP's metrics: labelled and unlabelled attachment, as KLUE-benchmark/KLUE-baseline computes them.

UAS and LAS are macro F1 there: over positions of heads, and over relations with all rare ones as one class. An eojeol
with a wrong head counts as a prediction of a class that no gold has, which lowers the macro average once more. The
micro averages are the usual shares of eojeols.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from downstream.metrics import FloatArray, Metric, class_counts, macro_f1_of_counts

# In the order of KLUE-baseline's ids.
KLUE_DP_RELATIONS = (
    "NP",
    "NP_AJT",
    "VP",
    "NP_SBJ",
    "VP_MOD",
    "NP_OBJ",
    "AP",
    "NP_CNJ",
    "NP_MOD",
    "VNP",
    "DP",
    "VP_AJT",
    "VNP_MOD",
    "NP_CMP",
    "VP_SBJ",
    "VP_CMP",
    "VP_OBJ",
    "VNP_CMP",
    "AP_MOD",
    "X_AJT",
    "VP_CNJ",
    "VNP_AJT",
    "IP",
    "X",
    "X_SBJ",
    "VNP_OBJ",
    "VNP_SBJ",
    "X_OBJ",
    "AP_AJT",
    "L",
    "X_MOD",
    "X_CNJ",
    "VNP_CNJ",
    "X_CMP",
    "AP_CMP",
    "AP_SBJ",
    "R",
    "NP_SVJ",
)
OTHERS = 15
"""Relations from this id on are one class."""
WRONG_HEAD = "wrong head"


def _arcs(predictions: Sequence[str], golds: Sequence[str]) -> Iterator[list[tuple[list[str], list[str]]]]:
    """Yield every sentence's predicted and gold `[head, relation]` by eojeol."""
    for number, (prediction, gold) in enumerate(zip(predictions, golds, strict=True), start=1):
        ours, theirs = ([item.split(":") for item in parsed.split()] for parsed in (prediction, gold))
        if len(ours) != len(theirs):
            raise ValueError(f"sentence {number}: {len(ours)} heads for {len(theirs)} eojeols")
        yield list(zip(ours, theirs, strict=True))


def _head_counts(predictions: Sequence[str], golds: Sequence[str]) -> FloatArray:
    """Counts for each position of a head: KLUE averages F1 over them."""
    classes = [str(position) for position in range(1 + max(len(gold.split()) for gold in golds))]
    rows = []
    for arcs in _arcs(predictions, golds):
        hits = [gold[0] for ours, gold in arcs if ours[0] == gold[0]]
        rows.append(class_counts(classes, hits, [ours[0] for ours, _ in arcs], [gold[0] for _, gold in arcs]))
    return np.array(rows)


def _relation_counts(predictions: Sequence[str], golds: Sequence[str]) -> FloatArray:
    """Counts for each relation; a wrong head is a class of its own among the predictions, as in KLUE's script."""
    merged = {name: min(k, OTHERS) for k, name in enumerate(KLUE_DP_RELATIONS)}
    classes = [*map(str, range(OTHERS + 1)), WRONG_HEAD]
    rows = []
    for arcs in _arcs(predictions, golds):
        found = [str(merged[ours[1]]) if ours[0] == gold[0] else WRONG_HEAD for ours, gold in arcs]
        real = [str(merged[gold[1]]) for _, gold in arcs]
        rows.append(class_counts(classes, [f for f, r in zip(found, real, strict=True) if f == r], found, real))
    return np.array(rows)


def _micro_of_counts(columns: FloatArray, weights: FloatArray) -> FloatArray:
    """Share of hits: every eojeol has one prediction and one gold."""
    hits, _, gold = np.split(weights @ columns, 3, axis=1)
    return np.asarray(hits.sum(axis=1) / gold.sum(axis=1))


uas = Metric("uas", "UAS", _head_counts, macro_f1_of_counts(absent=np.nan))
las = Metric("las", "LAS", _relation_counts, macro_f1_of_counts(absent=np.nan))
uas_micro = Metric("uas_micro", "UAS micro", _head_counts, _micro_of_counts)
las_micro = Metric("las_micro", "LAS micro", _relation_counts, _micro_of_counts)
