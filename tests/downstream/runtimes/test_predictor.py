"""Other runtimes than torch: they answer what transformers does, the best is chosen and remembered, files are safe."""

import importlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import downstream.runtimes.backends
import downstream.runtimes.graph
import downstream.runtimes.network
import downstream.runtimes.selection
from corpora.foundation.errors import CheckpointError, UsageError
from downstream.embed import Embedder
from downstream.encoders.folder import TASK_KEY
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.families.classification import Regression
from downstream.families.span_qa import SpanQA
from downstream.finetune import finetune, load_finetuned, predict, read_task
from downstream.runtime import main
from downstream.runtimes.backends import REFERENCE, WAYS, obstacle, open_engine, ways_of
from downstream.runtimes.graph import (
    Exports,
    approximate_gelu,
    check_self_contained,
    compress,
    has_int8_units,
    open_session,
)
from downstream.runtimes.network import (
    SEQUENCE_HEAD,
    Network,
    Trial,
    exportable,
    finetuned_network,
    lognormal_lengths,
    read_finetuned,
    trial_texts,
)
from downstream.runtimes.predictor import (
    MAX_BATCH_TOKENS,
    MAX_PADDING,
    Predictor,
    Runtime,
    collate,
    fast_embedder,
    plan_batches,
)
from downstream.runtimes.selection import Choice, choose
from downstream.task import SAMPLE_ROOT, TextExample, get_task
from pretraining.vocabulary.tokenizer import save_tokenizer

Fails = Callable[..., AbstractContextManager[None]]

TASKS = ("nsmc-sample", "klue-nli-sample", "klue-sts-sample", "korquad-sample", "klue-mrc-sample")
GELUS = ("Gelu", "FastGelu")
EXACT = ("torch", "onnx-fp32", "openvino-fp32")

pytest.importorskip("onnxruntime", reason="needs onnx and onnxruntime: pip install 'pressbert[serve]'")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache for all tests that may share one."""
    return tmp_path_factory.mktemp("runtime")


@pytest.fixture(scope="module")
def folders(standins: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that gives a model's folder for a task, as fine-tuning leaves it; weights are random."""
    base = tmp_path_factory.mktemp("models")

    def folder(task_name: str, kind: str = "klue-bert") -> Path:
        out = base / f"{task_name}-{kind}"
        if not out.is_dir():
            task = get_task(task_name)
            tokenizer = load_tokenizer(standins[kind])
            torch.manual_seed(1)
            model = load_model(standins[kind], tokenizer, task.family.auto_class, task.family.head_config())
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.ndim == 2:
                        parameter.mul_(4)  # fresh weights answer the same to everything
                if task.family.auto_class == SEQUENCE_HEAD:
                    batch = tokenizer([e.text for e in some_examples(task_name)], padding=True, return_tensors="pt")
                    model.classifier.bias -= model.eval()(**batch).logits.mean(0)
            setattr(model.config, TASK_KEY, task.name)
            model.save_pretrained(out)
            save_tokenizer(tokenizer, out)
        return out

    return folder


def some_examples(task_name: str, count: int = 24) -> tuple[Any, ...]:
    task = get_task(task_name)
    return task.read_split(task.eval_split, SAMPLE_ROOT).examples[: 6 if isinstance(task.family, SpanQA) else count]


def outputs_of_transformers(folder: Path, examples: tuple[Any, ...]) -> list[np.ndarray[Any, Any]]:
    """Return the outputs of transformers' own classes, one feature at a time and without any padding."""
    model, tokenizer, task = load_finetuned(folder)
    max_length = min(task.finetune.max_length, tokenizer.model_max_length)
    rows = []
    for feature in task.family.featurize(examples, tokenizer, max_length, with_labels=False):
        batch = {k: torch.tensor([v]) for k, v in feature.items() if not k.startswith("_")}
        with torch.inference_mode():
            rows.append(task.family.logits(model.eval(), batch)[0].numpy())
    return rows


def corruptions(content: bytes) -> dict[str, bytes]:
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 0xFF
    return {"flipped": bytes(flipped), "cut": content[:-100], "empty": b""}


# --- the same answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_name", TASKS)
@pytest.mark.parametrize("way", EXACT)
def test_single_precision_gives_the_numbers_of_transformers(
    task_name: str, way: str, folders: Callable[..., Path], root: Path
) -> None:
    folder, examples = folders(task_name), some_examples(task_name)
    expected = outputs_of_transformers(folder, examples)
    rows, features = Predictor.load(folder, way, root=root).outputs(examples)
    assert len(rows) == len(features) == len(expected)
    for row, feature, right in zip(rows, features, expected, strict=True):
        # Behind the end of a span's window stands what belongs to the padding.
        own = row[..., : len(feature["input_ids"])] if row.ndim == 2 else row
        assert own == pytest.approx(right, abs=2e-4)


@pytest.mark.parametrize("kind", ["kpfbert", "korbert", "kobert", "mbert"])
def test_every_encoder_is_exported_faithfully(kind: str, folders: Callable[..., Path], root: Path) -> None:
    folder, examples = folders("nsmc-sample", kind), some_examples("nsmc-sample")
    rows, _ = Predictor.load(folder, "onnx-fp32", root=root).outputs(examples)
    assert np.stack(rows) == pytest.approx(np.stack(outputs_of_transformers(folder, examples)), abs=2e-4)


@pytest.mark.parametrize(
    ("task_name", "way"),
    [
        *((name, way) for way in ("onnx-int8", "openvino-int8") for name in TASKS),
        ("korquad-sample", "onnx-static"),
        ("nsmc-sample", "openvino-static"),
    ],
)
def test_eight_bits_stay_near(task_name: str, way: str, folders: Callable[..., Path], root: Path) -> None:
    if reason := obstacle(way):
        pytest.skip(reason)
    folder, examples = folders(task_name), some_examples(task_name)
    expected = outputs_of_transformers(folder, examples)
    rows, _ = Predictor.load(folder, way, root=root).outputs(examples)
    pairs = [(row[..., : right.shape[-1]], right) for row, right in zip(rows, expected, strict=True)]
    got, right = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    # Some of it is lost, but not the order of things. An untouched network would give the same digits.
    # Ranges that were measured beforehand lose more than those of every call.
    assert np.corrcoef(got, right)[0, 1] > (0.8 if way.endswith("static") else 0.9)
    assert np.abs(got - right).max() > 1e-6


@pytest.mark.parametrize("task_name", TASKS)
@pytest.mark.parametrize("way", ["torch", "onnx-fp32"])
def test_predictions_are_those_of_the_harness(
    task_name: str, way: str, folders: Callable[..., Path], root: Path
) -> None:
    folder, examples = folders(task_name), some_examples(task_name)
    model, tokenizer, task = load_finetuned(folder)
    max_length = min(task.finetune.max_length, tokenizer.model_max_length)
    expected = predict(model, tokenizer, task.family, examples, max_length=max_length)
    predictions = Predictor.load(folder, way, root=root).predict(examples)
    if isinstance(task.family, Regression):
        assert predictions == pytest.approx(expected, abs=2e-4)
    else:
        assert predictions == expected
        assert len(set(predictions)) > 1


def test_a_finished_fine_tuning_gives_its_stored_predictions(
    standins: dict[str, Path], tmp_path: Path, root: Path
) -> None:
    task = get_task("nsmc-sample")
    splits = read_task(task, SAMPLE_ROOT)
    splits = replace(splits, train=replace(splits.train, examples=splits.train.examples[:48]))
    settings = {"epochs": 1, "max_length": 24, "peak_lr": 1e-3}
    result = finetune(task, standins["klue-bert"], out=tmp_path / "out", data=splits, overrides=settings)
    predictor = Predictor.load(tmp_path / "out", "torch", root=root)
    assert predictor.finetuned.max_length == 24
    assert predictor.predict(splits.eval.examples) == result.predictions


@pytest.mark.parametrize("task_name", [*TASKS, "klue-ner"])
def test_the_size_of_a_model_is_told_without_loading_it(task_name: str, folders: Callable[..., Path]) -> None:
    finetuned = read_finetuned(folders(task_name))
    model, _, _ = load_finetuned(finetuned.folder)
    assert finetuned.num_parameters == sum(parameter.numel() for parameter in model.base_model.parameters())
    assert 4 * sum(p.numel() for p in model.parameters()) < finetuned.size_bytes < 2**20


def test_nothing_is_predicted_of_nothing(folders: Callable[..., Path], root: Path) -> None:
    assert Predictor.load(folders("nsmc-sample"), "torch", root=root).predict([]) == []


def test_tags_are_predicted_too(folders: Callable[..., Path], root: Path) -> None:
    folder, texts = folders("klue-ner"), [example.text for example in some_examples("nsmc-sample")]
    examples = [TextExample(str(k), text, None, "") for k, text in enumerate(texts)]
    both = [Predictor.load(folder, way, root=root).predict(examples) for way in ("torch", "onnx-fp32")]
    assert both[0] == both[1]
    assert [len(str(tags).split()) for tags in both[0]] == [len("".join(text.split())) for text in texts]


@pytest.mark.parametrize("way", EXACT)
def test_padding_and_company_change_nothing(way: str, folders: Callable[..., Path], root: Path) -> None:
    runtime = Runtime.load(folders("nsmc-sample"), way, root=root)
    generator = np.random.default_rng(0)
    features = [
        {name: [1] * n for name in runtime.network.inputs}
        | {"input_ids": list(map(int, generator.integers(5, 900, n)))}
        for n in (3, 9, 31)
    ]
    alone = [runtime.run(collate([f], runtime.network.inputs, padding=0))[0] for f in features]
    together = runtime.run(collate(features, runtime.network.inputs, padding=0))
    assert together == pytest.approx(np.stack(alone), abs=1e-4)
    assert together == pytest.approx(np.stack(runtime.run_features(features, padding=0)), abs=1e-4)


def test_an_input_that_is_missing_is_named(folders: Callable[..., Path], root: Path) -> None:
    runtime = Runtime.load(folders("nsmc-sample"), "torch", root=root)
    with pytest.raises(ValueError, match="attention_mask"):
        runtime.run({"input_ids": np.ones((1, 3), dtype=np.int64), "token_type_ids": np.zeros((1, 3), dtype=np.int64)})


def test_the_last_layer_of_a_classifier_computes_one_token(folders: Callable[..., Path]) -> None:
    finetuned = read_finetuned(folders("nsmc-sample"))
    module: Any = finetuned_network(finetuned).build_exported()
    seen: list[tuple[int, ...]] = []
    module.last.intermediate.register_forward_hook(lambda _module, inputs, _output: seen.append(tuple(inputs[0].shape)))
    module(*(torch.ones(2, 17, dtype=torch.long) for _ in range(3)))
    assert seen == [(2, 1, 32)]


def test_a_reader_of_spans_keeps_all_its_tokens(folders: Callable[..., Path]) -> None:
    model, tokenizer, task = load_finetuned(folders("korquad-sample"))
    names = tuple(tokenizer.model_input_names)
    output = exportable(model, task.family, names)(*(torch.ones(2, 17, dtype=torch.long) for _ in range(3)))
    assert output.shape == (2, 2, 17)


def test_threads_of_the_process_are_left_alone(folders: Callable[..., Path], root: Path) -> None:
    runtime = Runtime.load(folders("nsmc-sample"), "torch", threads=2, root=root)
    inside: list[int] = []
    module = torch.nn.Module.__call__

    def spy(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        inside.append(torch.get_num_threads())
        return module(self, *args, **kwargs)

    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Module, "__call__", spy)
        runtime.run({name: np.ones((1, 4), dtype=np.int64) for name in runtime.network.inputs})
    assert set(inside) == {2}
    assert torch.get_num_threads() == before


# --- embedders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["torch", "onnx-fp32", "onnx-int8"])
def test_an_embedder_keeps_its_vectors(way: str, standins: dict[str, Path], root: Path) -> None:
    embedder = Embedder.load(standins["kpfbert"], device="cpu")
    fast, runtime = fast_embedder(embedder, way, root=root)
    texts = ["정부, 부동산 대책 발표", "", "경기", "시의회가 내년 예산을 의결했다 " * 40]
    cosines = (embedder.encode(texts) * fast.encode(texts)).sum(1)
    assert runtime.name == way
    assert cosines == pytest.approx(1.0, abs=1e-2 if way == "onnx-int8" else 1e-5)
    assert np.linalg.norm(fast.encode(texts), axis=1) == pytest.approx(1.0)


def test_an_embedder_that_pools_otherwise_is_refused(standins: dict[str, Path], root: Path, fails: Fails) -> None:
    embedder = Embedder.load(standins["kpfbert"], device="cpu")
    own = embedder.encoder.compute_for(0)

    def turned(texts: Any, batch_size: int, advance: Any) -> Any:
        return own(texts, batch_size, advance)[:, ::-1]

    with fails(CheckpointError, standins["kpfbert"], "not the means"):
        fast_embedder(
            replace(embedder, encoder=replace(embedder.encoder, compute_for=lambda _: turned)), "onnx-fp32", root=root
        )


# --- batches and lengths ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(min_value=1, max_value=600), max_size=80))
def test_batches_hold_every_input_once_within_bounds(lengths: list[int]) -> None:
    batches = list(plan_batches(lengths))
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[k] for k in batch)
        padding = longest * len(batch) - sum(lengths[k] for k in batch)
        assert longest * len(batch) <= MAX_BATCH_TOKENS or len(batch) == 1
        assert padding <= MAX_PADDING * longest * len(batch)


def test_inputs_of_one_length_are_one_batch() -> None:
    assert list(plan_batches([20] * 50)) == [list(range(50))]


def test_the_lengths_are_those_of_comments() -> None:
    for count in (100, 20_000):
        lengths = lognormal_lengths(count, seed=1)
        assert np.mean(lengths) == pytest.approx(25, abs=0.5)
        assert np.median(lengths) == 19
        assert min(lengths) >= 4
        assert max(lengths) == 128
    assert lognormal_lengths(50) == lognormal_lengths(50) != lognormal_lengths(50, seed=1)
    assert sorted(lognormal_lengths(50)) == sorted(lognormal_lengths(50, seed=1))


def test_trial_texts_have_the_lengths_asked_for(standins: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(standins["klue-bert"])
    lengths = lognormal_lengths(100)
    got = [len(ids) for ids in tokenizer(trial_texts(tokenizer, lengths))["input_ids"]]
    longest_word = 12
    assert all(text.strip() for text in trial_texts(tokenizer, lengths))
    assert all(length - longest_word <= n <= max(length, longest_word) for n, length in zip(got, lengths, strict=True))


def test_a_trial_text_is_of_one_label_and_both_labels_have_as_many(standins: dict[str, Path]) -> None:
    examples = get_task("nsmc-sample").read_split("train", SAMPLE_ROOT).examples
    of_label = {
        label: " ".join(" ".join(example.text.split()) for example in examples if example.label == label)
        for label in ("negative", "positive")
    }
    texts = trial_texts(load_tokenizer(standins["klue-bert"]), lognormal_lengths(100))
    found = [[label for label, text in of_label.items() if trial in text] for trial in texts]
    assert sum("negative" in labels for labels in found) >= 49  # the one that begins with the last may go over
    assert sum("positive" in labels for labels in found) >= 49
    assert sum(not labels for labels in found) <= 1


# --- choosing ---------------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """Fake ways of running with stated speeds and answers; counts how often anything was measured."""

    network: Network
    opened: list[str]
    root: Path

    def choose(self, word: str = "auto", **options: Any) -> Choice:
        return choose(self.network, word, root=self.root, **options)[0]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Bench]:
    """Return a function that sets up a bench: way → (milliseconds, share of wrong answers) or an exception."""

    def set_up(**ways: tuple[float, float] | Exception | str) -> Bench:
        speeds = {name.replace("_", "-"): value for name, value in ways.items()}
        inputs = [{"input_ids": np.array([[k]], dtype=np.int64)} for k in range(100)]

        def agreement(reference: Any, other: Any) -> float:
            return float(np.mean([a.argmax() == b.argmax() for a, b in zip(reference, other, strict=True)]))

        def build() -> torch.nn.Module:
            raise AssertionError("the fake ways build nothing")

        network = Network("folder", "d" * 64, ("input_ids",), build, lambda: Trial(inputs, agreement), build, 1, 8)
        opened: list[str] = []
        now = [0.0]

        def open_engine(name: str, *_: Any, **__: Any) -> Any:
            opened.append(name)
            speed = speeds[name]
            if isinstance(speed, Exception):
                raise speed
            assert not isinstance(speed, str)
            milliseconds, wrong = speed

            def run(batch: Mapping[str, Any]) -> Any:
                now[0] += milliseconds / 1000
                label = 1 if batch["input_ids"][0, 0] < 100 * wrong else 0
                return np.array([[1 - label, label]], dtype=np.float32)

            return run

        monkeypatch.setattr(downstream.runtimes.selection, "open_engine", open_engine)
        monkeypatch.setattr(downstream.runtimes.selection.time, "perf_counter", lambda: now[0])
        monkeypatch.setattr(
            downstream.runtimes.selection,
            "obstacle",
            lambda name: speeds[name] if isinstance(speeds.get(name), str) else "" if name in speeds else "not here",
        )
        return Bench(network, opened, tmp_path / "cache")

    return set_up


def test_the_fastest_way_that_agrees_wins(bench: Callable[..., Bench]) -> None:
    found = bench(torch=(10, 0), onnx_fp32=(4, 0), onnx_int8=(2, 0.01), onnx_static=(1, 0.02)).choose()
    assert found.chosen == "onnx-int8"
    rows = {row.name: row for row in found.candidates}
    assert set(rows) == set(WAYS)
    assert rows["onnx-static"].status == "disagrees"
    assert rows["onnx-static"].agreement == pytest.approx(0.98)
    assert rows["onnx-int8"].agreement == pytest.approx(0.99)
    assert rows["onnx-int8"].median_ms == pytest.approx(2)
    assert rows["onnx-int8"].max_deviation == 1
    assert rows["openvino-fp32"].status == "unavailable"


@pytest.mark.parametrize(("compiled_ms", "chosen"), [(2.1, "onnx-int8"), (1.9, "onnx-int8"), (1.8, "numba-int8")])
def test_what_is_compiled_at_every_start_must_be_faster_by_a_tenth(
    bench: Callable[..., Bench], compiled_ms: float, chosen: str
) -> None:
    assert bench(torch=(10, 0), onnx_int8=(2, 0), numba_int8=(compiled_ms, 0)).choose().chosen == chosen
    assert bench(torch=(10, 0), numba_int8=(compiled_ms, 0)).choose().chosen == "numba-int8"


def test_a_way_that_fails_is_told_and_passed_over(bench: Callable[..., Bench]) -> None:
    found = bench(
        torch=(10, 0),
        onnx_fp32=CheckpointError("folder", "too large", "no"),
        onnx_int8=RuntimeError("odd node"),
        openvino_fp32="openvino not installed",
    ).choose()
    assert found.chosen == REFERENCE
    table = found.table()
    assert all(part in table for part in ("too large", "RuntimeError: odd node", "openvino not installed", "chosen"))
    assert table.count("\n| ") == len(WAYS) + 2


def test_a_word_for_one_library_keeps_to_it(bench: Callable[..., Bench]) -> None:
    assert bench(torch=(1, 0), onnx_fp32=(4, 0), onnx_int8=(3, 0)).choose("onnx").chosen == "onnx-int8"


def test_no_way_that_agrees_is_an_error(bench: Callable[..., Bench], fails: Fails) -> None:
    with fails(CheckpointError, "folder", "no onnx runtime will do", "disagrees", 'runtime="torch"'):
        bench(torch=(1, 0), onnx_fp32=(4, 0.5)).choose("onnx")


def test_a_choice_is_remembered(bench: Callable[..., Bench]) -> None:
    place = bench(torch=(10, 0), onnx_fp32=(4, 0))
    first = place.choose()
    place.opened.clear()
    second = place.choose()
    assert place.opened == ["onnx-fp32"]
    assert second == first.model_copy(update={"is_remembered": True})
    assert "remembered" in second.table()


@pytest.mark.parametrize("change", ["threads", "network", "versions", "again"])
def test_what_may_change_the_choice_has_it_measured_again(
    bench: Callable[..., Bench], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench(torch=(10, 0), onnx_fp32=(4, 0))
    place.choose()
    place.opened.clear()
    options: dict[str, Any] = {}
    if change == "network":
        place.network = replace(place.network, digest="e" * 64)
    elif change == "versions":
        monkeypatch.setattr(downstream.runtimes.selection.metadata, "version", lambda _: "99")
    else:
        options = {"threads": 2} if change == "threads" else {"again": True}
    place.choose(**options)
    assert set(place.opened) == {"torch", "onnx-fp32"}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"chosen": "onnx-fp32"}', "wrong name"], ids=str)
def test_a_damaged_memory_is_made_again(bench: Callable[..., Bench], content: bytes | str) -> None:
    place = bench(torch=(10, 0), onnx_fp32=(4, 0))
    place.choose()
    (path,) = (place.root / "choices").iterdir()
    whole = path.read_text(encoding="utf-8").replace('"chosen": "onnx-fp32"', '"chosen": "cuda"')
    path.write_bytes(content if isinstance(content, bytes) else whole.encode())
    place.opened.clear()
    assert place.choose().is_remembered is False
    assert set(place.opened) == {"torch", "onnx-fp32"}
    assert place.choose().is_remembered is True


@pytest.fixture(scope="module")
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a user's cache of its own, and make measuring short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(downstream.runtimes.selection, "TIMING_S", 0.05)
        patch.setattr(downstream.runtimes.network, "NUM_TRIALS", 60)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield downstream.runtimes.graph.runtime_cache()


def test_the_whole_way_from_folder_to_choice_and_table(
    folders: Callable[..., Path], user_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folders("klue-nli-sample")
    first = Runtime.load(folder)
    rows = {row.name: row for row in first.choice.candidates}
    assert set(rows) == set(WAYS)
    for name in ("torch", "onnx-fp32"):
        assert rows[name].status == "agrees"
        assert rows[name].agreement == 1.0
    assert all(row.reason for row in rows.values() if row.status in ("failed", "unavailable"))
    assert first.choice.num_inputs == 60
    # What lost is not kept, and nothing is there that could hold code.
    form = WAYS[first.name].form
    assert {path.stem for path in user_cache.rglob("*.onnx")} == ({form} if form else set())
    assert {path.suffix for path in user_cache.rglob("*") if path.is_file()} <= {".json", ".onnx"}
    again = Runtime.load(folder)
    assert (again.name, again.choice.is_remembered) == (first.name, True)
    assert main([str(folder)]) == 0
    table = capsys.readouterr().out
    assert table.startswith(f"runtime=auto: {first.name} ")
    assert table.count("chosen") == 1
    assert main([str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == again.choice.model_dump(mode="json")


@pytest.mark.parametrize("runtime", ["tensorrt", "onx", "", "onnx-int9"])
def test_an_unknown_runtime_is_named(runtime: str, folders: Callable[..., Path], fails: Fails) -> None:
    with fails(UsageError, "runtime", f"unknown runtime '{runtime}'", "onnx" if runtime.startswith("on") else ""):
        Runtime.load(folders("nsmc-sample"), runtime)


def test_words_stand_for_what_they_say() -> None:
    assert ways_of("torch") == ("torch",)
    assert ways_of("onnx") == ("onnx-fp32", "onnx-int8", "onnx-static")
    assert ways_of("openvino") == ("openvino-fp32", "openvino-bf16", "openvino-int8", "openvino-static")
    assert set(ways_of("auto")) == set(WAYS)


# --- what this machine has --------------------------------------------------------------------------------------------


def test_a_missing_package_is_told_with_the_remedy(
    folders: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    real = downstream.runtimes.backends.importlib.util.find_spec
    monkeypatch.setattr(
        downstream.runtimes.backends.importlib.util,
        "find_spec",
        lambda name: None if name == "openvino" else real(name),
    )
    with fails(UsageError, "runtime openvino-fp32", "openvino not installed", "pip install 'pressbert[serve]'"):
        Runtime.load(folders("nsmc-sample"), "openvino-fp32", root=tmp_path)


def test_a_package_that_does_not_import_is_told(monkeypatch: pytest.MonkeyPatch, fails: Fails) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with fails(UsageError, "runtime", "the package openvino cannot be imported", "pip install"):
        downstream.runtimes.graph.need("openvino")


@pytest.mark.parametrize(
    ("capabilities", "int8", "bf16"),
    [
        ({"architecture": "x86_64", "avx2": True}, False, False),
        ({"architecture": "x86_64", "avx512_vnni": True, "avx512_bf16": True}, True, True),
        ({"architecture": "x86_64", "avx_vnni": True}, True, False),
        ({"architecture": "x86_64", "amx_int8": True, "amx_bf16": True}, True, True),
        ({"architecture": "aarch64"}, True, False),
    ],
)
def test_the_processor_decides_over_bits_and_bf16(
    capabilities: dict[str, Any], int8: bool, bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert has_int8_units() is int8
    assert (obstacle("torch-bf16") == "") is bf16
    assert (obstacle("openvino-int8") == "") is int8


@pytest.mark.slow
def test_nothing_is_reported_to_the_makers_of_the_libraries(folders: Callable[..., Path], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    code = (
        "import sys; from pathlib import Path; from downstream.runtimes.predictor import Runtime\n"
        "for way in ('onnx-fp32', 'openvino-fp32'): Runtime.load(Path(sys.argv[1]), way, root=Path(sys.argv[2]))"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))} | {"HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folders("nsmc-sample")), str(tmp_path / "cache")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Both would leave the number there by which they tell one installation from another.
    assert [path.name for path in home.rglob("*") if path.is_file()] == []


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "no stamp", "bad stamp"])
def test_a_damaged_export_is_made_again(damage: str, folders: Callable[..., Path], tmp_path: Path) -> None:
    folder = folders("nsmc-sample")
    exports = Exports(finetuned_network(read_finetuned(folder)), tmp_path)
    whole = exports.read("fused")
    path = exports.path("fused")
    if damage == "no stamp":
        path.with_suffix(".json").unlink()
    elif damage == "bad stamp":
        path.with_suffix(".json").write_text("[]")
    else:
        path.write_bytes(corruptions(whole)[damage])
    again = exports.read("fused")
    stamp = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert path.read_bytes() == again
    assert stamp["size_bytes"] == len(again)
    rows, _ = Predictor.load(folder, "onnx-fp32", root=tmp_path).outputs(some_examples("nsmc-sample"))
    expected = outputs_of_transformers(folder, some_examples("nsmc-sample"))
    assert np.stack(rows) == pytest.approx(np.stack(expected), abs=2e-4)


def test_an_export_that_is_there_is_not_made_again(
    folders: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = Exports(finetuned_network(read_finetuned(folders("nsmc-sample"))), tmp_path)
    first = exports.read("int8")

    def never(*_: Any) -> None:
        raise AssertionError("it exports")

    monkeypatch.setattr(downstream.runtimes.graph, "export_plain", never)
    assert exports.read("int8") == first
    assert not list(tmp_path.rglob("*.part"))


def test_gelu_by_its_tanh_formula_is_within_its_bound(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    domains = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    graph = onnx.helper.make_graph([node], "gelu", [x], [y])
    exact, fast = tmp_path / "exact.onnx", tmp_path / "fast.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=domains, ir_version=9), exact)
    approximate_gelu(exact, fast)
    values: Any = {"x": np.linspace(-8, 8, 10_001, dtype=np.float32)}
    results = [open_session(path.read_bytes(), threads=1)(values) for path in (exact, fast)]
    assert 1e-5 < np.abs(results[0] - results[1]).max() < 5e-4


def test_only_8_bit_forms_approximate_gelu(folders: Callable[..., Path], tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    exports = Exports(finetuned_network(read_finetuned(folders("nsmc-sample"))), tmp_path)
    models = [onnx.load_model_from_string(exports.read(form)) for form in ("fused", "int8")]
    counts = [[sum(node.op_type == name for node in model.graph.node) for model in models] for name in GELUS]
    layers = read_finetuned(folders("nsmc-sample")).config["num_hidden_layers"]
    assert counts == [[layers, 0], [0, layers]]


def products(weights: Mapping[str, np.ndarray], transposed: frozenset[str], path: Path) -> None:
    """Write a graph that multiplies by each of WEIGHTS in turn."""
    onnx = pytest.importorskip("onnx")
    nodes, name = [], "x"
    for place, weight in enumerate(weights):
        result = f"y{place}" if place + 1 < len(weights) else "output"
        is_transposed = weight in transposed
        options = {"transB": 1} if is_transposed else {}
        tensor = weight.split(":")[0]
        nodes.append(onnx.helper.make_node("Gemm" if is_transposed else "MatMul", [name, tensor], [result], **options))
        name = result
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [None, None]) for n in ("x", "output"))
    tensors = [onnx.numpy_helper.from_array(array, n) for n, array in weights.items() if ":" not in n]
    graph = onnx.helper.make_graph(nodes, "products", [x], [y], tensors)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), path)


def test_weights_in_8_bits_are_off_by_half_a_step(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    generator = np.random.default_rng(0)
    # Columns of very different size, and one of zeros.
    first = (generator.standard_normal((24, 32)) * np.logspace(-3, 2, 32)).astype(np.float32)
    first[:, 5] = 0
    second, head = (generator.standard_normal(shape).astype(np.float32) for shape in ((32, 32), (32, 3)))
    weights = {"first": first, "second": second, "second:again": second, "head": head}
    source, target = tmp_path / "plain.onnx", tmp_path / "compressed.onnx"
    products(weights, frozenset({"second", "second:again"}), source)
    compress(source, target)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(target).graph.initializer}
    assert set(stored) == {
        "head",
        *(f"{n}.{part}" for n in ("first", "second") for part in ("bits", "scales", "zeros")),
    }
    rounded = {"first": stored["first.bits"] * stored["first.scales"]}
    rounded["second"] = stored["second.bits"] * stored["second.scales"][:, None]
    for name, axis in (("first", 0), ("second", 1)):
        assert stored[f"{name}.bits"].dtype == np.int8
        step = np.abs(weights[name]).max(axis=axis, keepdims=True) / 127
        assert (np.abs(rounded[name] - weights[name]) <= 0.5001 * step).all()
    assert (rounded["first"][:, 5] == 0).all()
    x = generator.standard_normal((7, 24)).astype(np.float32)
    expected = x @ rounded["first"] @ rounded["second"].T @ rounded["second"].T @ head
    # Not by onnxruntime, which multiplies such weights by activations of 8 bits, too.
    output = importlib.import_module("onnx.reference").ReferenceEvaluator(onnx.load(target)).run(None, {"x": x})[0]
    assert output == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_openvino_multiplies_in_8_bits(folders: Callable[..., Path], root: Path) -> None:
    if reason := obstacle("openvino-int8"):
        pytest.skip(reason)
    network = finetuned_network(read_finetuned(folders("nsmc-sample")))
    exports = Exports(network, root)
    engine = open_engine("openvino-int8", network, exports, threads=1)
    exact = open_engine("openvino-int8", replace(network, hidden_size=0), exports, threads=1)
    differences = [np.abs(engine(batch) - exact(batch)).max() for batch in network.trial().inputs[:5]]
    # The same weights: what differs are activations of 8 bits, and single precision differs by less than a millionth.
    assert 1e-5 < max(differences) < 0.1


def test_other_weights_are_another_export(folders: Callable[..., Path], tmp_path: Path) -> None:
    networks = [finetuned_network(read_finetuned(folders(name))) for name in ("nsmc-sample", "klue-nli-sample")]
    assert len({Exports(network, tmp_path).folder for network in networks}) == 2


def external_model(location: str) -> bytes:
    onnx = pytest.importorskip("onnx")
    tensor = onnx.TensorProto(name="weights", data_type=onnx.TensorProto.FLOAT, dims=[1])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    node = onnx.helper.make_node("Constant", [], ["y"], value=tensor)
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    return bytes(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [output])).SerializeToString())


@pytest.mark.parametrize("location", ["../../etc/passwd", "/etc/passwd", "beside.bin"])
def test_weights_in_other_files_are_refused(location: str, tmp_path: Path, fails: Fails) -> None:
    with fails(CheckpointError, tmp_path / "m.onnx", "'weights' lies in another file"):
        check_self_contained(external_model(location), tmp_path / "m.onnx")


def test_weights_in_other_files_are_refused_from_the_cache(
    folders: Callable[..., Path], tmp_path: Path, fails: Fails
) -> None:
    exports = Exports(finetuned_network(read_finetuned(folders("nsmc-sample"))), tmp_path)
    exports.read("plain")
    content = external_model("/etc/passwd")
    exports.path("plain").write_bytes(content)
    stamp = {"sha256": downstream.runtimes.graph.hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    exports.path("plain").with_suffix(".json").write_text(json.dumps(stamp))
    with fails(CheckpointError, exports.path("plain"), "another file"):
        exports.read("plain")


def test_an_export_that_computes_something_else_is_refused(
    folders: Callable[..., Path], tmp_path: Path, fails: Fails
) -> None:
    network = finetuned_network(read_finetuned(folders("nsmc-sample")))

    class Off(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network.build_exported()

        def forward(self, *inputs: torch.Tensor) -> Any:
            return self.inner(*inputs) + 0.5

    with fails(CheckpointError, network.where, "differs from torch", 'runtime="torch"'):
        Exports(replace(network, build_exported=Off), tmp_path).read("plain")
    assert not list(tmp_path.rglob("*.onnx"))


def test_a_network_too_large_for_one_file_is_refused(
    folders: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    monkeypatch.setattr(downstream.runtimes.graph, "PROTOBUF_LIMIT", 1000)
    with fails(CheckpointError, folders("nsmc-sample"), "do not fit in one ONNX file", 'runtime="torch"'):
        Runtime.load(folders("nsmc-sample"), "onnx-fp32", root=tmp_path)


def test_an_unwritable_cache_is_told(folders: Callable[..., Path], tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "exports").write_text("in the way")
    with fails(downstream.runtimes.graph.ResultError, tmp_path / "exports", "XDG_CACHE_HOME"):
        Runtime.load(folders("nsmc-sample"), "onnx-fp32", root=tmp_path)


def test_a_folder_that_is_no_fine_tuning_is_told(standins: dict[str, Path], fails: Fails) -> None:
    with fails(CheckpointError, standins["klue-bert"], "which task"):
        Predictor.load(standins["klue-bert"])


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_wants_at_least_one_thread(folders: Callable[..., Path], fails: Fails) -> None:
    with fails(UsageError, "--threads", "less than 1"):
        main([str(folders("nsmc-sample")), "--threads", "0"])


def test_transformers_is_the_reference(folders: Callable[..., Path]) -> None:
    module: Any = finetuned_network(read_finetuned(folders("nsmc-sample"))).build()
    assert type(module.model) is transformers.BertForSequenceClassification
    assert module.training is False
