"""Dependency parsing: which tokens stand for eojeols, the loss, decoding, and KLUE's scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch

from corpora.foundation.errors import UsageError
from downstream.distill import distill
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.families.dependency import NO_TARGET, Dependency
from downstream.families.dependency_metrics import KLUE_DP_RELATIONS, las, las_micro, uas, uas_micro
from downstream.finetune import TaskData, finetune
from downstream.finetuning.batches import FeatureDataset, PaddingCollator
from downstream.finetuning.prediction import compute_logits
from downstream.metrics import bootstrap_ci95
from downstream.task import Split, TextExample, get_task

FAMILY = get_task("klue-dp").family
EXAMPLES = [
    TextExample("a", "시의회가 새 예산을 늘렸다.", None, "4:NP_SBJ 3:DP 4:NP_OBJ 0:VP"),
    TextExample("b", "끝났다.", None, "0:VP"),
]


@pytest.fixture(scope="module")
def tokenizer(standins: dict[str, Path]) -> Any:
    return load_tokenizer(standins["klue-bert"])


def test_an_eojeol_is_its_last_token_and_its_label_names_the_token_of_its_head(tokenizer: Any) -> None:
    assert isinstance(FAMILY, Dependency)
    first, second = FAMILY.featurize(EXAMPLES, tokenizer, 64, with_labels=True)
    tokens = first["_words"]
    assert list(tokens) == [0, 1, 2, 3]
    assert tokens[3] == len(first["input_ids"]) - 2  # before [SEP]
    for word, (head, relation) in enumerate(
        [(tokens[3], "NP_SBJ"), (tokens[2], "DP"), (tokens[3], "NP_OBJ"), (0, "VP")]
    ):
        label = first["labels"][tokens[word]]
        assert divmod(label, len(FAMILY.relations)) == (head, FAMILY.relations.index(relation))
    assert sum(label != NO_TARGET for label in first["labels"]) == 4
    assert second["labels"].count(NO_TARGET) == len(second["input_ids"]) - 1


def test_a_head_that_is_cut_off_is_no_target_and_every_eojeol_gets_a_head(tokenizer: Any) -> None:
    (feature,) = FAMILY.featurize(EXAMPLES[:1], tokenizer, 6, with_labels=True)
    assert len(feature["input_ids"]) == 6
    assert len(feature["_words"]) < 4
    scores = np.zeros((6, 2 * FAMILY.arc_size + len(FAMILY.relations)))
    (prediction,) = FAMILY.decode([scores], [feature], EXAMPLES[:1])
    FAMILY.check(TextExample("", EXAMPLES[0].text, None, prediction), "prediction")


def test_scores_that_are_sure_of_the_gold_parse_decode_to_it_and_have_no_loss(tokenizer: Any) -> None:
    features = FAMILY.featurize(EXAMPLES, tokenizer, 64, with_labels=True)
    rows = []
    for feature in features:
        scores = np.zeros((len(feature["input_ids"]), 2 * FAMILY.arc_size + len(FAMILY.relations)))
        for token, label in enumerate(feature["labels"]):
            scores[token, FAMILY.arc_size + token] = 50  # as a head: a direction of its own
            if label != NO_TARGET:
                head, relation = divmod(label, len(FAMILY.relations))
                scores[token, head] = 1
                scores[token, 2 * FAMILY.arc_size + relation] = 50
        rows.append(scores)
    assert FAMILY.decode(rows, features, EXAMPLES) == [example.label for example in EXAMPLES]
    longest = max(map(len, rows))
    padded = torch.tensor(np.stack([np.pad(row, ((0, longest - len(row)), (0, 0))) for row in rows]))
    batch = PaddingCollator(tokenizer)([FeatureDataset(features)[k] for k in range(2)])

    class Sure:
        def __call__(self, **_inputs: Any) -> Any:
            return type("Output", (), {"logits": padded})

    assert float(FAMILY.loss(Sure(), batch)) < 1e-6


def test_the_loss_is_the_mean_cross_entropy_of_heads_plus_that_of_relations(
    tokenizer: Any, standins: dict[str, Path]
) -> None:
    model = load_model(standins["klue-bert"], tokenizer, FAMILY.auto_class, FAMILY.head_config()).eval()
    features = FAMILY.featurize(EXAMPLES, tokenizer, 64, with_labels=True)
    batch = PaddingCollator(tokenizer)([FeatureDataset(features)[k] for k in range(2)])
    outputs = compute_logits(
        model, tokenizer, FAMILY, [{k: v for k, v in f.items() if k != "labels"} for f in features]
    )
    arcs, relations = [], []
    for scores, feature in zip(outputs, features, strict=True):
        tokens = list(feature["_words"].values())
        for token in tokens:
            head, relation = divmod(feature["labels"][token], len(FAMILY.relations))
            own = scores[token, : FAMILY.arc_size]
            products = {c: own @ scores[c, FAMILY.arc_size : 2 * FAMILY.arc_size] for c in [0, *tokens]}
            arcs.append(np.log(sum(np.exp(v) for v in products.values())) - products[head])
            rest = scores[token, 2 * FAMILY.arc_size :]
            relations.append(np.log(np.exp(rest).sum()) - rest[relation])
    with torch.no_grad():
        assert float(FAMILY.loss(model, batch)) == pytest.approx(np.mean(arcs) + np.mean(relations), rel=1e-4)


def test_a_parser_learns_and_is_no_teacher(standins: dict[str, Path], tmp_path: Path) -> None:
    split = Split(
        tuple(TextExample(f"{k}", *(EXAMPLES[k % 2].text, None, EXAMPLES[k % 2].label)) for k in range(16)), "0"
    )
    overrides = {"epochs": 30, "batch_size": 8, "max_length": 32, "peak_lr": 3e-3}
    result = finetune(
        "klue-dp", standins["klue-bert"], out=tmp_path / "m", data=TaskData(split, split), overrides=overrides
    )
    assert result.metrics["las_micro"] == 1.0
    with pytest.raises(UsageError, match="no probabilities of labels"):
        distill(tmp_path / "m", out=tmp_path / "student", data=TaskData(split, split))


def test_scores_are_those_of_the_official_rules() -> None:
    generator = np.random.default_rng(0)
    golds, predictions = [], []
    for length in generator.integers(1, 12, 200):
        heads = [*generator.integers(1, length + 1, length)]
        names = generator.choice(KLUE_DP_RELATIONS, length)
        golds.append(" ".join(f"{h}:{n}" for h, n in zip(heads, names, strict=True)))
        others = np.where(generator.random(length) < 0.8, heads, generator.integers(0, length + 1, length))
        wrong = np.where(generator.random(length) < 0.8, names, generator.choice(KLUE_DP_RELATIONS, length))
        predictions.append(" ".join(f"{h}:{n}" for h, n in zip(others, wrong, strict=True)))
    (ph, pr), (gh, gr) = (
        zip(*(item.split(":") for parsed in some for item in parsed.split()), strict=True)
        for some in (predictions, golds)
    )
    # Relations from the sixteenth on are one class; a wrong head is a prediction of a class of its own.
    real = [min(KLUE_DP_RELATIONS.index(r), 15) for r in gr]
    found = [min(KLUE_DP_RELATIONS.index(r), 15) if a == b else -2 for a, b, r in zip(ph, gh, pr, strict=True)]
    for metric, expected in (
        (uas, sklearn.metrics.f1_score(gh, ph, average="macro")),
        (uas_micro, sklearn.metrics.accuracy_score(gh, ph)),
        (las, sklearn.metrics.f1_score(real, found, average="macro")),
        (las_micro, sklearn.metrics.accuracy_score(real, found)),
    ):
        assert metric(predictions, golds) == pytest.approx(expected, abs=1e-12), metric.key
        assert metric(golds, golds) == 1.0
        low, high = bootstrap_ci95(metric, [metric.columns(predictions, golds)], rounds=200) or (1, 0)
        assert low < expected < high
    with pytest.raises(ValueError, match="sentence 1: 1 heads for 2 eojeols"):
        uas(["0:VP"], ["2:NP 0:VP"])
