"""BERT with 8-bit weights: its products are exact, its arithmetic is that of the float model, its answers agree."""

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import downstream.runtimes.backends
from corpora.foundation.errors import CheckpointError, UsageError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.encoders.hub import bundled
from downstream.runtimes.backends import unsupported_reason
from downstream.runtimes.graph import Batch, Forward, Head, build_graph, open_session
from downstream.runtimes.predictor import Predictor, Runtime
from downstream.runtimes.weights import EncoderWeights
from downstream.task import get_task

if reason := unsupported_reason("numba-int8"):
    pytest.skip(f"runtime numba-int8: {reason}", allow_module_level=True)

from downstream.runtimes.kernels import bert as int8_bert
from downstream.runtimes.kernels import layers
from downstream.runtimes.kernels.bert import Int8Bert
from downstream.runtimes.kernels.layers import CHUNK, FloatArray, Product, Scratch
from downstream.runtimes.kernels.tiles import TILE

Fails = Callable[..., AbstractContextManager[None]]

CLASSIFIER = bundled("classifier")
NUM_IDS = 500
QUERY = "encoder.layer.0.attention.self.query"
LAYER_NAMES = [
    f"encoder.layer.0.{name}.{part}"
    for name in (
        *(f"attention.self.{part}" for part in ("query", "key", "value")),
        *("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense"),
        *("output.dense", "output.LayerNorm"),
    )
    for part in ("weight", "bias")
]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def random_weights(
    hidden_size: int = 128, *, num_layers: int = 2, inner: int = 256, num_heads: int = 2, deviation: float = 0.1
) -> EncoderWeights:
    """Return the weights of a classifier of three labels, drawn at random."""
    generator = np.random.default_rng(0)
    weights: dict[str, FloatArray] = {}

    def put(name: str, *shape: int) -> None:
        weights[name] = generator.normal(0, deviation, shape).astype(np.float32)

    def norm(name: str) -> None:
        put(f"{name}.bias", hidden_size)
        weights[f"{name}.weight"] = np.abs(1 + generator.normal(0, 0.2, hidden_size)).astype(np.float32)

    def dense(name: str, outputs: int, inputs: int) -> None:
        put(f"{name}.weight", outputs, inputs)
        put(f"{name}.bias", outputs)

    for name, size in (("word", NUM_IDS), ("position", 512), ("token_type", 2)):
        put(f"embeddings.{name}_embeddings.weight", size, hidden_size)
    norm("embeddings.LayerNorm")
    for k in range(num_layers):
        layer = f"encoder.layer.{k}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            dense(f"{layer}.{part}", hidden_size, hidden_size)
        dense(f"{layer}.intermediate.dense", inner, hidden_size)
        dense(f"{layer}.output.dense", hidden_size, inner)
        norm(f"{layer}.attention.output.LayerNorm")
        norm(f"{layer}.output.LayerNorm")
    dense("pooler.dense", hidden_size, hidden_size)
    dense("classifier", 3, hidden_size)
    config = {"num_hidden_layers": num_layers, "num_attention_heads": num_heads, "hidden_size": hidden_size}
    return EncoderWeights.from_tensors("model", config | {"model_type": "bert"}, weights)


@pytest.fixture(scope="module")
def bert() -> Int8Bert:
    return Int8Bert.from_weights(random_weights(), "labels")


def exact(head: Head) -> Forward:
    """Return the same weights in single precision."""
    return open_session(build_graph(random_weights(), head, INPUTS), threads=1)


def batch_of(lengths: Sequence[int]) -> Batch:
    """Return ids, mask and token types (B, T) of texts of these lengths, padded with ids that mean something."""
    generator = np.random.default_rng(sum(lengths))
    shape = (len(lengths), max(lengths))
    mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
    arrays = (generator.integers(0, NUM_IDS, shape), mask, generator.integers(0, 2, shape))
    return dict(zip(INPUTS, arrays, strict=True))


def scratch_of(rows: int, inputs: int, outputs: int) -> Scratch:
    return layers.Scratch(
        *(np.empty((rows, outputs), np.float32) for _ in range(5)),
        line=np.empty(inputs, np.uint8),
        tiles=np.empty(CHUNK * inputs, np.uint8),
        scales=np.empty(CHUNK, np.float32),
    )


def packed(weight: FloatArray, bias: FloatArray) -> Product:
    """Pack one matrix (K, M), as the query of a layer that has nothing else."""
    inputs = len(weight)
    tensors = {name: np.zeros((32, inputs) if name.endswith("weight") else 32, np.float32) for name in LAYER_NAMES}
    tensors |= {f"{QUERY}.weight": np.ascontiguousarray(weight.T), f"{QUERY}.bias": bias}
    sizes = {"num_heads": 1, "num_layers": 1, "hidden_size": inputs, "epsilon": 1e-12}
    layer = EncoderWeights(where="model", model_type="bert", tensors=tensors, **sizes)
    return next(int8_bert._pack_layers(layer)).query


# --- products ---------------------------------------------------------------------------------------------------------


def test_products_of_rounded_numbers_are_exact() -> None:
    counts = [*range(1, 2 * TILE + 2), 3 * TILE + 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7]
    for rows, (inputs, outputs) in itertools.product(counts, ((4, 32), (64, 96), (260, 64))):
        generator = np.random.default_rng(rows)
        x = generator.normal(0, 3, (rows, inputs)).astype(np.float32)
        weight = generator.normal(0, 2, (inputs, outputs)).astype(np.float32)
        bias = generator.normal(0, 1, outputs).astype(np.float32)
        out = np.full((rows, outputs), np.nan, np.float32)
        layers.multiply(x, packed(weight, bias), scratch_of(rows, inputs, outputs), out)
        row_scales, column_scales = np.abs(x).max(1, keepdims=True) / 127, np.abs(weight).max(0) / 127
        whole = np.floor(x / row_scales + 0.5) @ np.rint(weight / column_scales)  # exact in float32: below 2^24
        right = whole * row_scales * column_scales + bias
        assert np.allclose(out, right, rtol=1e-5, atol=1e-4), (rows, inputs, outputs)
        # And near what was to be multiplied.
        assert np.corrcoef(out.ravel(), (x @ weight + bias).ravel())[0, 1] > 0.999, (rows, inputs, outputs)


def test_rows_of_any_size_keep_their_numbers() -> None:
    for scale in (0.0, 1e-30, 1e-12, 1.0, 1e12):
        generator = np.random.default_rng(0)
        x, weight = (generator.normal(0, 1, shape).astype(np.float32) for shape in ((3, 64), (64, 32)))
        x[1] *= np.float32(scale)  # its neighbours have scales of their own
        out, nothing = np.empty((3, 32), np.float32), np.zeros(32, np.float32)
        layers.multiply(x, packed(weight, nothing), scratch_of(3, 64, 32), out)
        right = x @ weight
        assert out[::2] == pytest.approx(right[::2], abs=0.3), scale
        room = 0.3 * max(scale, 1e-20)
        assert out[1] == pytest.approx(right[1], abs=room), scale
        assert (np.abs(out[1]).max() > 0) == (scale > 1e-20), scale


def test_the_largest_sums_do_not_overflow() -> None:
    x, weight = np.ones((2, 4096), np.float32), np.ones((4096, 32), np.float32)
    x[1], weight[:, 1::2] = -1, -1
    out, nothing = np.empty((2, 32), np.float32), np.zeros(32, np.float32)
    layers.multiply(x, packed(weight, nothing), scratch_of(2, 4096, 32), out)
    assert out == pytest.approx(x @ weight, rel=1e-6)


def test_columns_of_zeros_stay_zero() -> None:
    out, bias = np.empty((2, 32), np.float32), np.arange(32, dtype=np.float32)
    product = packed(np.zeros((64, 32), np.float32), bias)
    layers.multiply(np.ones((2, 64), np.float32), product, scratch_of(2, 64, 32), out)
    assert out.tolist() == [bias.tolist()] * 2


# --- what surrounds them ----------------------------------------------------------------------------------------------


def test_powers_are_those_of_e() -> None:
    @layers.compiled
    def powers(x: FloatArray) -> None:
        for k in range(len(x)):
            x[k] = layers._exp(x[k])

    x = np.linspace(-87, 0, 300_000).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    powers(x)
    # A float's own rounding of x · log₂ e moves the result by up to 87 halves of its last digit.
    assert np.abs(x / exact - 1).max() < 8e-6
    near = exact > np.exp(-1)
    assert np.abs(x / exact - 1)[near].max() < 4e-7
    assert x[-1] == 1
    far = np.array([-200, -1e30], np.float32)
    powers(far)
    assert far.max() < 2e-38


def test_gelu_is_the_exact_one() -> None:
    x = np.linspace(-12, 12, 100_000).astype(np.float32).reshape(2, -1)
    exact = torch.nn.functional.gelu(torch.tensor(x, dtype=torch.float64)).numpy()
    layers.apply_gelu(x)
    assert np.abs(x - exact).max() < 5e-7


def test_the_norm_is_that_of_torch() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(3, 2, (2, 5, 96)).astype(np.float32)
    weight, bias = generator.normal(0, 1, (2, 96)).astype(np.float32)
    expected = torch.nn.functional.layer_norm(
        torch.tensor(x + y), (96,), torch.tensor(weight), torch.tensor(bias), 1e-12
    ).numpy()
    layers.add_normalized(x, y, weight, bias, np.float32(1e-12))
    assert x == pytest.approx(expected, abs=2e-5)


def test_attention_is_that_of_torch() -> None:
    every = itertools.product((32, 64, 96), [(1,), (31, 1, 32), (33, 12, 13), (70, 5), (200,)], (True, False))
    for width, lengths, cls_only in every:
        generator, heads = np.random.default_rng(0), 3
        size, spans = heads * width, np.concatenate([[0], np.cumsum(lengths)])
        query, key, value = generator.normal(0, 2, (3, spans[-1], size)).astype(np.float32)
        expected = []
        for start, end in itertools.pairwise(spans):
            parts = [torch.tensor(x[start:end]).view(-1, heads, width).transpose(0, 1) for x in (query, key, value)]
            context = torch.nn.functional.scaled_dot_product_attention(*parts).transpose(0, 1).reshape(-1, size)
            expected.append(context[:1] if cls_only else context)
        query, query_spans = (query[spans[:-1]], np.arange(len(spans))) if cls_only else (query, spans)
        out = np.full_like(query, np.nan)
        layers.attend(query, np.hstack([key, value]), spans, query_spans, heads, out)
        assert np.allclose(out, torch.cat(expected).numpy(), atol=1e-5), (width, lengths, cls_only)


# --- the whole --------------------------------------------------------------------------------------------------------


def test_states_are_near_those_of_floats(bert: Int8Bert) -> None:
    in_floats = exact("states")
    for lengths in ((1,), (19,), (1, 2, 3), (40, 7, 33), (130, 4), (12,) * 30):
        batch = batch_of(lengths)
        seen = batch["attention_mask"] == 1
        right, got = in_floats(batch)[seen], bert.states(**batch)[seen]
        cosines = (right * got).sum(1) / np.linalg.norm(right, axis=1) / np.linalg.norm(got, axis=1)
        assert cosines.min() > 0.998, lengths
        assert np.abs(right - got).max() > 1e-6, lengths  # they are not the same arithmetic


def test_padding_and_neighbours_change_nothing(bert: Int8Bert) -> None:
    lengths = (5, 40, 1, 23)
    batch = batch_of(lengths)
    together = bert.states(**batch)
    for row, length in enumerate(lengths):
        ids, types = (batch[name][row : row + 1, :length] for name in ("input_ids", "token_type_ids"))
        alone = bert.states(ids, None, types)[0]
        assert together[row, :length] == pytest.approx(alone, abs=1e-5)
        assert not together[row, length:].any()


def test_padding_on_the_left_keeps_its_positions(bert: Int8Bert) -> None:
    batch = batch_of((30, 9))
    batch["attention_mask"][1] = batch["attention_mask"][1, ::-1]
    seen = batch["attention_mask"] == 1
    right, got = exact("states")(batch)[seen], bert.states(**batch)[seen]
    assert (right * got).sum() / np.linalg.norm(right) / np.linalg.norm(got) > 0.998


def test_the_first_states_are_those_of_all(bert: Int8Bert) -> None:
    batch = batch_of((5, 40, 1, 23))
    assert bert.first_states(**batch) == pytest.approx(bert.states(**batch)[:, 0], abs=1e-5)
    logits = bert.run(batch)
    assert logits == pytest.approx(exact("labels")(batch), abs=0.2)
    assert np.ptp(logits[:, 0]) > 0.4


def test_means_leave_padding_out() -> None:
    embedder, batch = Int8Bert.from_weights(random_weights(), "mean"), batch_of((5, 40))
    means = embedder.run(batch)
    assert means.dtype == np.float32
    alone = embedder.run({name: array[:1, :5] for name, array in batch.items()})
    assert means[0] == pytest.approx(alone[0], abs=1e-5)
    right = exact("mean")(batch)
    cosines = (means * right).sum(1) / np.linalg.norm(means, axis=1) / np.linalg.norm(right, axis=1)
    assert cosines.min() > 0.998


def test_inputs_that_are_none_are_refused(bert: Int8Bert) -> None:
    batch = batch_of((5, 4))
    batch["attention_mask"][1] = 0
    with pytest.raises(ValueError, match="text 1 of the batch has no tokens"):
        bert.states(**batch)
    with pytest.raises(IndexError):
        bert.states(np.array([[1, NUM_IDS]]))


def test_threads_do_not_disturb_each_other(bert: Int8Bert) -> None:
    batches = [batch_of((length,)) for length in (3, 50, 17, 80)]
    alone = [bert.run(batch) for batch in batches]
    wrong: list[int] = []

    def ask(number: int) -> None:
        answers = (bert.run(batches[number]) for _ in range(50))
        wrong.extend(number for answer in answers if not np.array_equal(answer, alone[number]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_became_8_bits_is_not_kept_in_32(bert: Int8Bert) -> None:
    assert not any(name.startswith("encoder.") for name in bert._weights.tensors)


def test_what_fills_no_registers_or_is_no_bert_is_refused(fails: Fails) -> None:
    cases: tuple[tuple[EncoderWeights, Head, str], ...] = (
        (random_weights(96, num_heads=2), "labels", "its heads have 48 numbers, which is no multiple of 32"),
        (random_weights(inner=200), "labels", "its inner layers have 200 numbers"),
        (random_weights(), "spans", "the kernels run BERTs that label or embed texts, not bert with head 'spans'"),
        (replace(random_weights(), model_type="electra"), "mean", "not electra with head 'mean'"),
    )
    for weights, head, what in cases:
        with fails(CheckpointError, "model", what, 'use runtime="torch"'):
            Int8Bert.from_weights(weights, head)


# --- as a runtime -----------------------------------------------------------------------------------------------------


def test_the_bundled_classifier_answers_as_in_torch(tmp_path: Path) -> None:
    examples = get_task("nsmc-sample").read_split("test", SAMPLE_ROOT).examples
    ours, theirs = (Predictor.load(CLASSIFIER, name, root=tmp_path) for name in ("numba-int8", "torch"))
    assert ours.runtime.name == "numba-int8"
    equal = [a == b for a, b in zip(ours.predict(examples), theirs.predict(examples), strict=True)]
    assert len(equal) >= 100
    rows, right = (np.stack(predictor.outputs(examples)[0]) for predictor in (ours, theirs))
    assert np.corrcoef(rows.ravel(), right.ravel())[0, 1] > 0.999
    assert np.abs(rows - right).max() < 0.15
    # All answers are the same but those of the few examples whose labels are all but equally likely.
    is_clear = np.abs(right[:, 1] - right[:, 0]) > 0.05
    assert np.mean(is_clear) >= 0.95
    assert all(np.array(equal)[is_clear])
    assert not any(tmp_path.iterdir())  # no compiled code is kept


def test_it_computes_in_one_thread(fails: Fails) -> None:
    with fails(UsageError, "runtime numba-int8", "it computes in 1 thread, not in 2", "start more workers"):
        Runtime.load(CLASSIFIER, "numba-int8", threads=2)


def test_it_reads_berts_alone(tmp_path: Path, fails: Fails) -> None:
    for path in CLASSIFIER.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}), encoding="utf-8")
    with fails(CheckpointError, str(tmp_path), "hidden_act is 'relu'", 'use runtime="torch"'):
        Runtime.load(tmp_path, "numba-int8")


def test_other_processors_are_refused(monkeypatch: pytest.MonkeyPatch, fails: Fails) -> None:
    monkeypatch.setattr(downstream.runtimes.backends, "cpu_capabilities", lambda: {"avx2": True, "amx_int8": True})
    with fails(UsageError, "runtime numba-int8", "processors with AVX-512 VNNI", 'use runtime="torch"'):
        Runtime.load(CLASSIFIER, "numba-int8")
