"""Graphs: every head of every kind of encoder gives the numbers of transformers, and 8 bits stay near."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers
from transformers import BertConfig, ElectraConfig, RobertaConfig

from corpora.foundation.errors import CheckpointError
from downstream.encoders.folder import BUNDLED
from downstream.runtimes.backends import has_int8_units
from downstream.runtimes.graph import MASKED_POSITIONS, Batch, Graph, build_graph, open_session
from downstream.runtimes.weights import EncoderWeights

Fails = Callable[..., AbstractContextManager[None]]

SIZES: dict[str, Any] = {
    "vocab_size": 200,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "num_labels": 3,
}
CONFIGS: dict[str, Any] = {
    "Bert": BertConfig(**SIZES),
    # Positions begin behind the padding id, and there is one token type.
    "Roberta": RobertaConfig(**SIZES, pad_token_id=1, max_position_embeddings=66, type_vocab_size=1),
    "Electra": ElectraConfig(**SIZES, embedding_size=16),
    "Electra as wide as its embeddings": ElectraConfig(**SIZES, embedding_size=32),
}
CLASSES = {
    "labels": "ForSequenceClassification",
    "spans": "ForQuestionAnswering",
    "tags": "ForTokenClassification",
    "mean": "Model",
    "states": "Model",
}
INPUTS = ("input_ids", "token_type_ids", "attention_mask")


def random_model(config: Any, name: str) -> Any:
    """Return a model of transformers whose weights give different answers to different inputs."""
    torch.manual_seed(1)
    config.num_labels = 2 if name.endswith("QuestionAnswering") else 3
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def random_batch(lengths: tuple[int, ...] = (7, 23, 12), *, padding: int = 0) -> Batch:
    """Return ids of these lengths, padded on the right."""
    generator = np.random.default_rng(0)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.where(mask, generator.integers(5, 200, mask.shape), padding)
    return {"input_ids": ids, "token_type_ids": generator.integers(0, 2, mask.shape) * mask, "attention_mask": mask}


def weights_of(model: Any) -> EncoderWeights:
    return EncoderWeights.from_tensors("model", model.config.to_dict(), model.state_dict())


def expected(model: Any, head: str, batch: Batch) -> Any:
    with torch.inference_mode():
        output = model(**{name: torch.from_numpy(array) for name, array in batch.items()})
    if head == "spans":
        return torch.stack([output.start_logits, output.end_logits], 1).numpy()
    if head in ("labels", "tags"):
        return output.logits.numpy()
    states, mask = output.last_hidden_state.numpy(), batch["attention_mask"][..., None]
    return states if head == "states" else (states * mask).sum(1) / mask.sum(1)


def own_tokens(head: str, output: Any, batch: Batch) -> Any:
    """Leave out what a head says of padding."""
    mask = batch["attention_mask"] == 1
    if head == "spans":
        return output.transpose(0, 2, 1)[mask]
    return output[mask] if head in ("tags", "states") else output


@pytest.mark.parametrize("name", CONFIGS)
def test_every_head_gives_the_numbers_of_transformers(name: str) -> None:
    kind, config = name.split()[0], CONFIGS[name]
    batch = random_batch(padding=config.pad_token_id)
    without_types = {key: value for key, value in batch.items() if key != "token_type_ids"}
    for head, class_name in CLASSES.items():
        model = random_model(config, kind + class_name)
        for inputs in (batch, without_types) if kind != "Roberta" else (without_types,):
            session = open_session(build_graph(weights_of(model), head, tuple(inputs)), threads=1)
            output, right = session(inputs), expected(model, head, inputs)
            assert output.shape == right.shape, (head, len(inputs))
            assert output.dtype == np.float32
            deviation = np.abs(own_tokens(head, output - right, inputs)).max()
            assert deviation < 5e-5, (head, len(inputs), deviation)
            assert np.ptp(own_tokens(head, right, inputs)) > 0.1, head


def test_masked_tokens_are_scored_where_they_are_asked_for() -> None:
    for is_tied in (True, False):
        config = BertConfig(**SIZES, tie_word_embeddings=is_tied)
        model = random_model(config, "BertForMaskedLM")
        batch = random_batch((9,))
        graph = build_graph(weights_of(model), "masked_tokens", INPUTS)
        output = open_session(graph, threads=1)({**batch, MASKED_POSITIONS: np.array([4, 1, 8])})
        right = expected(model, "tags", batch)[0, [4, 1, 8]]
        assert output == pytest.approx(right, abs=5e-5), is_tied
        assert weights_of(model).num_parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", CONFIGS)
def test_eight_bits_stay_near(name: str) -> None:
    kind, config = name.split()[0], CONFIGS[name]
    batch = {k: v for k, v in random_batch(padding=config.pad_token_id).items() if k != "token_type_ids"}
    for head, class_name in CLASSES.items():
        weights = weights_of(random_model(config, kind + class_name))
        # Without 8-bit units, sums of two products of 8 bits saturate; 7 bits are used there.
        for reduce_range in (False, True) if has_int8_units() else (True,):
            right, got = (
                own_tokens(head, open_session(graph, threads=1)(batch), batch)
                for graph in (
                    build_graph(weights, head, tuple(batch)),
                    build_graph(weights, head, tuple(batch), is_int8=True, reduce_range=reduce_range),
                )
            )
            # An untouched network would give the same digits.
            assert np.corrcoef(got.ravel(), right.ravel())[0, 1] > 0.97, (head, reduce_range)
            assert np.abs(got - right).max() > 1e-5, (head, reduce_range)


def test_weights_in_8_bits_are_off_by_half_a_step() -> None:
    weights = EncoderWeights.from_folder(BUNDLED / "classifier")
    for levels in (127, 64):
        graph = build_graph(weights, "labels", INPUTS, is_int8=True, reduce_range=levels == 64)
        model = onnx.load_model_from_string(graph.content)
        names = {node.op_type: node.input for node in model.graph.node}
        rounded, scales = (graph.arrays[name] for name in names["QAttention"][1:5:3])
        weight, _ = weights.joint(*(f"encoder.layer.2.attention.self.{part}" for part in ("query", "key", "value")))
        assert rounded.dtype == np.int8
        assert np.abs(rounded).max() == levels
        assert (np.abs(rounded * scales - weight) <= 0.5001 * scales).all()


def test_columns_of_zeros_stay_zero() -> None:
    model = random_model(CONFIGS["Bert"], "BertForSequenceClassification")
    with torch.no_grad():
        model.classifier.weight[1] = 0
        model.classifier.bias[1] = 0.25
    graph = build_graph(weights_of(model), "labels", INPUTS, is_int8=True)
    assert open_session(graph, threads=1)(random_batch())[:, 1].tolist() == [0.25] * 3


def test_padding_and_company_change_nothing() -> None:
    weights = weights_of(random_model(CONFIGS["Bert"], "BertForSequenceClassification"))
    session = open_session(build_graph(weights, "labels", INPUTS), threads=1)
    batch = random_batch((3, 9, 31))
    together = session(batch)
    for row, length in enumerate((3, 9, 31)):
        alone = session({name: array[row : row + 1, :length] for name, array in batch.items()})
        assert together[row] == pytest.approx(alone[0], abs=1e-5)


def nodes(graph: Graph) -> list[Any]:
    return list(onnx.load_model_from_string(graph.content).graph.node)


def test_only_8_bit_graphs_approximate_gelu() -> None:
    weights = weights_of(random_model(CONFIGS["Bert"], "BertForSequenceClassification"))
    for is_int8, counts in ((False, [2, 0]), (True, [0, 2])):
        operators = [node.op_type for node in nodes(build_graph(weights, "labels", INPUTS, is_int8=is_int8))]
        assert [operators.count(name) for name in ("Gelu", "FastGelu")] == counts


def test_gelu_by_its_tanh_formula_is_within_its_bound() -> None:
    values: Any = {"x": np.linspace(-8, 8, 10_001, dtype=np.float32)}
    domains = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    results = []
    for operator in ("Gelu", "FastGelu"):
        node = onnx.helper.make_node(operator, ["x"], ["y"], domain="com.microsoft")
        graph = onnx.helper.make_graph([node], "gelu", [x], [y])
        model = onnx.helper.make_model(graph, opset_imports=domains, ir_version=8)
        results.append(open_session(Graph(model.SerializeToString(), {}), threads=1)(values))
    exact = torch.nn.functional.gelu(torch.from_numpy(values["x"])).numpy()
    assert np.abs(results[0] - exact).max() < 2e-6
    assert 1e-5 < np.abs(results[0] - results[1]).max() < 5e-4


def test_the_last_layer_of_a_classifier_computes_one_token() -> None:
    weights = weights_of(random_model(CONFIGS["Bert"], "BertForSequenceClassification"))
    classifier, states = (nodes(build_graph(weights, head, INPUTS)) for head in ("labels", "states"))
    for graph, attentions in ((classifier, 1), (states, 2)):
        operators = [node.op_type for node in graph]
        assert operators.count("Attention") == attentions
        assert operators.count("Slice") == operators.count("MultiHeadAttention") == 2 - attentions


def test_weights_stay_where_the_session_reads_them() -> None:
    weights = weights_of(random_model(CONFIGS["Bert"], "BertForSequenceClassification"))
    batch = random_batch()
    session = open_session(build_graph(weights, "labels", INPUTS), threads=1)
    right = session(batch)
    del weights
    other = [np.full(50_000, k, np.float32) for k in range(200)]  # would take the place of what was freed
    assert session(batch).tolist() == right.tolist()
    assert len(other) == 200


def test_a_head_that_is_missing_is_named(fails: Fails) -> None:
    weights = EncoderWeights.from_folder(BUNDLED / "encoder")
    for head, name in (("labels", "classifier.weight"), ("spans", "qa_outputs.weight")):
        with fails(CheckpointError, BUNDLED / "encoder", f"weights are missing: {name}"):
            build_graph(weights, head, INPUTS)
    without = {key: value for key, value in weights.tensors.items() if not key.startswith("cls.")}
    with fails(CheckpointError, BUNDLED / "encoder", "weights are missing: cls.predictions.transform.dense.weight"):
        build_graph(replace(weights, tensors=without), "masked_tokens", INPUTS)


@pytest.mark.slow
def test_nothing_is_reported_to_the_makers_of_the_libraries(tmp_path: Path) -> None:
    code = "from downstream.classify import Classifier; Classifier.load().probabilities(['연기가 좋았다'])"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))} | {"HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    # It would leave the number there by which one installation is known from another.
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
