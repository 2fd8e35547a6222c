"""BERT with 8-bit weights: its products are exact, its arithmetic is that of the float model, its answers agree."""

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import downstream.runtimes.backends
from corpora.foundation.errors import CheckpointError, UsageError
from downstream.encoders.hub import bundled
from downstream.runtimes.backends import obstacle
from downstream.runtimes.numpy_bert import NumpyBert
from downstream.runtimes.predictor import Predictor, Runtime
from downstream.task import SAMPLE_ROOT, get_task

if reason := obstacle("numba-int8"):
    pytest.skip(f"runtime numba-int8: {reason}", allow_module_level=True)

from downstream.runtimes.kernels import bert as int8_bert
from downstream.runtimes.kernels import layers
from downstream.runtimes.kernels.bert import Int8Bert
from downstream.runtimes.kernels.layers import CHUNK, FloatArray, Product, Scratch
from downstream.runtimes.kernels.tiles import TILE

Fails = Callable[..., AbstractContextManager[None]]

CLASSIFIER = bundled("classifier")
NUM_IDS = 500


def random_bert(
    hidden_size: int = 128, *, num_layers: int = 2, inner: int = 256, num_heads: int = 2, deviation: float = 0.1
) -> NumpyBert:
    """Return a classifier of three labels with random weights; nobody asks its tokenizer."""
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
    tokenizer: Any = None
    return NumpyBert.of_weights(Path("model"), tokenizer, config, weights)


@pytest.fixture(scope="module")
def both() -> tuple[NumpyBert, Int8Bert]:
    bert = random_bert()
    return bert, Int8Bert.of(bert)


def batch_of(lengths: Sequence[int]) -> tuple[np.ndarray[Any, Any], ...]:
    """Return ids, mask and token types (B, T) of texts of these lengths, padded with ids that mean something."""
    generator = np.random.default_rng(sum(lengths))
    shape = (len(lengths), max(lengths))
    mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
    return generator.integers(0, NUM_IDS, shape), mask, generator.integers(0, 2, shape)


def scratch_of(rows: int, inputs: int, outputs: int) -> Scratch:
    return layers.Scratch(
        *(np.empty((rows, outputs), np.float32) for _ in range(5)),
        line=np.empty(inputs, np.uint8),
        tiles=np.empty(CHUNK * inputs, np.uint8),
        scales=np.empty(CHUNK, np.float32),
    )


def packed(weight: FloatArray, bias: FloatArray) -> Product:
    """Pack one matrix (K, M), through a layer that has nothing else."""
    size = weight.shape[0]
    third = {"qkv.weight": np.tile(weight, 3), "qkv.bias": np.tile(bias, 3)}
    rest = dict.fromkeys(("attention.output.dense", "intermediate.dense", "output.dense"), np.zeros((size, 32)))
    layer = third | {f"{name}.weight": value.astype(np.float32) for name, value in rest.items()}
    layer |= {f"{name}.bias": np.zeros(32, np.float32) for name in rest}
    norms = ("attention.output.LayerNorm", "output.LayerNorm")
    layer |= {f"{name}.{part}": np.zeros(1, np.float32) for name in norms for part in ("weight", "bias")}
    return next(iter(int8_bert._pack_layers([layer]))).query


# --- products ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [*range(1, 2 * TILE + 2), 3 * TILE + 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
@pytest.mark.parametrize(("inputs", "outputs"), [(4, 32), (64, 96), (260, 64)])
def test_products_of_rounded_numbers_are_exact(rows: int, inputs: int, outputs: int) -> None:
    generator = np.random.default_rng(rows)
    x = generator.normal(0, 3, (rows, inputs)).astype(np.float32)
    weight = generator.normal(0, 2, (inputs, outputs)).astype(np.float32)
    bias = generator.normal(0, 1, outputs).astype(np.float32)
    out = np.full((rows, outputs), np.nan, np.float32)
    layers.multiply(x, packed(weight, bias), scratch_of(rows, inputs, outputs), out)
    row_scales, column_scales = np.abs(x).max(1, keepdims=True) / 127, np.abs(weight).max(0) / 127
    whole = np.floor(x / row_scales + 0.5) @ np.rint(weight / column_scales)  # exact in float32: below 2^24
    assert out == pytest.approx(whole * row_scales * column_scales + bias, rel=1e-5, abs=1e-4)
    # And near what was to be multiplied.
    assert np.corrcoef(out.ravel(), (x @ weight + bias).ravel())[0, 1] > 0.999


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-12, 1.0, 1e12])
def test_rows_of_any_size_keep_their_numbers(scale: float) -> None:
    generator = np.random.default_rng(0)
    x, weight = (generator.normal(0, 1, shape).astype(np.float32) for shape in ((3, 64), (64, 32)))
    x[1] *= np.float32(scale)  # its neighbours have scales of their own
    out, nothing = np.empty((3, 32), np.float32), np.zeros(32, np.float32)
    layers.multiply(x, packed(weight, nothing), scratch_of(3, 64, 32), out)
    right = x @ weight
    assert out[::2] == pytest.approx(right[::2], abs=0.3)
    room = 0.3 * max(scale, 1e-20)
    assert out[1] == pytest.approx(right[1], abs=room)
    assert (np.abs(out[1]).max() > 0) == (scale > 1e-20)


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


@pytest.mark.parametrize("width", [32, 64, 96])
@pytest.mark.parametrize("lengths", [(1,), (31, 1, 32), (33, 12, 13), (70, 5), (200,)])
@pytest.mark.parametrize("is_first_enough", [True, False])
def test_attention_is_that_of_torch(width: int, lengths: tuple[int, ...], is_first_enough: bool) -> None:
    generator, heads = np.random.default_rng(0), 3
    size, spans = heads * width, np.concatenate([[0], np.cumsum(lengths)])
    query, key, value = generator.normal(0, 2, (3, spans[-1], size)).astype(np.float32)
    expected = []
    for start, end in itertools.pairwise(spans):
        parts = [torch.tensor(x[start:end]).view(-1, heads, width).transpose(0, 1) for x in (query, key, value)]
        context = torch.nn.functional.scaled_dot_product_attention(*parts).transpose(0, 1).reshape(-1, size)
        expected.append(context[:1] if is_first_enough else context)
    if is_first_enough:
        query, query_spans = query[spans[:-1]], np.arange(len(spans))
    else:
        query_spans = spans
    out = np.full_like(query, np.nan)
    layers.attend(query, np.hstack([key, value]), spans, query_spans, heads, out)
    assert out == pytest.approx(torch.cat(expected).numpy(), abs=1e-5)


# --- the whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(1,), (19,), (1, 2, 3), (40, 7, 33), (130, 4), (12,) * 30])
def test_states_are_near_those_of_floats(both: tuple[NumpyBert, Int8Bert], lengths: tuple[int, ...]) -> None:
    ids, mask, types = batch_of(lengths)
    right, got = (bert.states(ids, mask, types)[mask == 1] for bert in both)
    cosines = (right * got).sum(1) / np.linalg.norm(right, axis=1) / np.linalg.norm(got, axis=1)
    assert cosines.min() > 0.998
    assert np.abs(right - got).max() > 1e-6  # they are not the same arithmetic


def test_padding_and_neighbours_change_nothing(both: tuple[NumpyBert, Int8Bert]) -> None:
    lengths = (5, 40, 1, 23)
    ids, mask, types = batch_of(lengths)
    together = both[1].states(ids, mask, types)
    for row, length in enumerate(lengths):
        alone = both[1].states(ids[row : row + 1, :length], None, types[row : row + 1, :length])[0]
        assert together[row, :length] == pytest.approx(alone, abs=1e-5)
        assert not together[row, length:].any()


def test_padding_on_the_left_keeps_its_places(both: tuple[NumpyBert, Int8Bert]) -> None:
    ids, mask, types = batch_of((30, 9))
    mask[1] = mask[1, ::-1]
    right, got = (bert.states(ids, mask, types)[mask == 1] for bert in both)
    assert (right * got).sum() / np.linalg.norm(right) / np.linalg.norm(got) > 0.998


def test_the_first_states_are_those_of_all(both: tuple[NumpyBert, Int8Bert]) -> None:
    ids, mask, types = batch_of((5, 40, 1, 23))
    for bert in both:
        first = bert.first_states(ids, mask, types)
        assert first == pytest.approx(bert.states(ids, mask, types)[:, 0], abs=1e-5)
    ours = both[1].label_logits(ids, mask, types)
    assert ours == pytest.approx(both[0].label_logits(ids, mask, types), abs=0.2)
    assert np.ptp(ours[:, 0]) > 0.4


def test_means_leave_padding_out(both: tuple[NumpyBert, Int8Bert]) -> None:
    ids, mask, types = batch_of((5, 40))
    alone = both[1].means(ids[:1, :5], mask[:1, :5], types[:1, :5])
    assert both[1].means(ids, mask, types)[0] == pytest.approx(alone[0], abs=1e-5)


def test_a_text_without_tokens_is_refused(both: tuple[NumpyBert, Int8Bert]) -> None:
    ids, mask, _ = batch_of((5, 4))
    mask[1] = 0
    with pytest.raises(ValueError, match="text 1 of the batch has no tokens"):
        both[1].states(ids, mask)


def test_an_id_that_is_none_is_refused(both: tuple[NumpyBert, Int8Bert]) -> None:
    with pytest.raises(IndexError):
        both[1].states(np.array([[1, NUM_IDS]]))


def test_threads_do_not_disturb_each_other(both: tuple[NumpyBert, Int8Bert]) -> None:
    batches = [batch_of((length,)) for length in (3, 50, 17, 80)]
    alone = [both[1].label_logits(*batch) for batch in batches]
    wrong: list[int] = []

    def ask(number: int) -> None:
        answers = (both[1].label_logits(*batches[number]) for _ in range(50))
        wrong.extend(number for answer in answers if not np.array_equal(answer, alone[number]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_figures_of_the_model_stay(both: tuple[NumpyBert, Int8Bert]) -> None:
    assert both[1].num_parameters == both[0].num_parameters
    assert both[1].products_per_token == both[0].products_per_token
    # What became 8 bits is not kept in 32.
    assert not any(name.startswith("encoder.") for name in both[1]._weights)


@pytest.mark.parametrize(
    ("sizes", "what"),
    [
        ({"hidden_size": 96, "num_heads": 2}, "its heads have 48 numbers, which is no multiple of 32"),
        ({"inner": 200}, "its inner layers have 200 numbers"),
    ],
)
def test_sizes_that_fill_no_registers_are_refused(sizes: dict[str, int], what: str, fails: Fails) -> None:
    with fails(CheckpointError, "model", what, 'use runtime="torch"'):
        Int8Bert.of(random_bert(**sizes))


# --- as a runtime -----------------------------------------------------------------------------------------------------


def test_the_bundled_classifier_answers_as_in_torch(tmp_path: Path) -> None:
    examples = get_task("nsmc-sample").read_split("test", SAMPLE_ROOT).examples
    ours, theirs = (Predictor.load(CLASSIFIER, way, root=tmp_path) for way in ("numba-int8", "torch"))
    assert ours.runtime.name == "numba-int8"
    equal = [a == b for a, b in zip(ours.predict(examples), theirs.predict(examples), strict=True)]
    assert len(equal) >= 100
    assert np.mean(equal) >= 0.99
    rows, right = (np.stack(predictor.outputs(examples)[0]) for predictor in (ours, theirs))
    assert np.corrcoef(rows.ravel(), right.ravel())[0, 1] > 0.999
    assert not any(tmp_path.iterdir())  # nothing is exported, and no compiled code is kept


def test_it_computes_in_one_thread(fails: Fails) -> None:
    with fails(UsageError, "runtime numba-int8", "it computes in 1 thread, not in 2", "start more workers"):
        Runtime.load(CLASSIFIER, "numba-int8", threads=2)


def test_it_reads_plain_berts_alone(tmp_path: Path, fails: Fails) -> None:
    for path in CLASSIFIER.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}), encoding="utf-8")
    with fails(CheckpointError, str(tmp_path), "NumPy and Numba run plain BERTs", 'use runtime="torch"'):
        Runtime.load(tmp_path, "numba-int8")


def test_other_processors_are_told(monkeypatch: pytest.MonkeyPatch, fails: Fails) -> None:
    monkeypatch.setattr(downstream.runtimes.backends, "cpu_capabilities", lambda: {"avx2": True, "amx_int8": True})
    with fails(UsageError, "runtime numba-int8", "processors with AVX-512 VNNI", 'use runtime="torch"'):
        Runtime.load(CLASSIFIER, "numba-int8")
