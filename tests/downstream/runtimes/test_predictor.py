"""Predictors and embedders: they answer what transformers does on every backend, alone and in company."""

import itertools
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from corpora.foundation.errors import CheckpointError, UsageError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.embed import Embedder
from downstream.encoders.folder import TASK_KEY
from downstream.encoders.tokenizers import load_tokenizer
from downstream.families.classification import Regression
from downstream.finetune import finetune, load_finetuned, predict, read_task
from downstream.runtime import Predictor, Runtime, fast_embedder, main
from downstream.runtimes.network import finetuned_network, read_finetuned
from downstream.runtimes.predictor import MAX_BATCH_TOKENS, MAX_PADDING, collate, plan_batches
from downstream.runtimes.probes import lognormal_lengths, probe_texts
from downstream.task import TextExample, get_task

Fails = Callable[..., AbstractContextManager[None]]
Folders = Callable[..., Path]

TASKS = ("nsmc-sample", "klue-nli-sample", "klue-sts-sample", "korquad-sample", "klue-mrc-sample")
EXACT = ("torch", "onnx-fp32")


# --- the same answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_name", TASKS)
def test_outputs_and_predictions_are_those_of_transformers(task_name: str, reference: Callable[..., Any]) -> None:
    right = reference(task_name)
    model, tokenizer, task = load_finetuned(right.folder)
    max_length = min(task.finetune.max_length, tokenizer.model_max_length)
    expected = predict(model, tokenizer, task.family, right.examples, max_length=max_length)
    for name in EXACT:
        predictor = Predictor.load(right.folder, name)
        rows, features = predictor.outputs(right.examples)
        assert len(rows) == len(features) == len(right.outputs)
        for row, feature, output in zip(rows, features, right.outputs, strict=True):
            # Behind the end of a span's window stands what belongs to the padding.
            own = row[..., : len(feature["input_ids"])] if row.ndim == 2 else row
            assert own == pytest.approx(output, abs=2e-4), name
        predictions = predictor.predict(right.examples)
        if isinstance(task.family, Regression):
            assert predictions == pytest.approx(expected, abs=2e-4), name
        else:
            assert predictions == expected, name
            assert len(set(predictions)) > 1
        assert predictor.predict([]) == []


def test_every_encoder_gives_the_numbers_of_transformers(reference: Callable[..., Any]) -> None:
    for kind in ("kpfbert", "korbert", "kobert", "mbert"):
        right = reference("nsmc-sample", kind)
        rows, _ = Predictor.load(right.folder, "onnx-fp32").outputs(right.examples)
        assert np.stack(rows) == pytest.approx(np.stack(right.outputs), abs=2e-4), kind


def test_folders_of_other_architectures_run_where_they_can(
    standins: dict[str, Path], tmp_path: Path, fails: Fails
) -> None:
    texts = [TextExample(str(k), text, None, "") for k, text in enumerate(("비가 온다", "시의회가 예산을 의결했다"))]
    for name, sizes in (("Roberta", {}), ("Electra", {"embedding_size": 16}), ("DistilBert", {"dim": 32})):
        torch.manual_seed(1)
        config = getattr(transformers, f"{name}Config")(
            vocab_size=3100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, **sizes
        )
        config.pad_token_id = 0
        setattr(config, TASK_KEY, "nsmc")
        folder = tmp_path / name
        getattr(transformers, f"{name}ForSequenceClassification")(config).save_pretrained(folder)
        for file in ("vocab.txt", "tokenizer_config.json"):
            (folder / file).write_bytes((standins["klue-bert"] / file).read_bytes())
        right = Predictor.load(folder, "torch").outputs(texts)[0]
        if name == "DistilBert":
            with fails(CheckpointError, folder, "model_type is 'distilbert', not one of bert", 'runtime="torch"'):
                Predictor.load(folder, "onnx-int8")
        else:
            got = Predictor.load(folder, "onnx-fp32").outputs(texts)[0]
            assert np.stack(got) == pytest.approx(np.stack(right), abs=1e-5), name


def test_eight_bits_stay_near(reference: Callable[..., Any]) -> None:
    for task_name in TASKS:
        right = reference(task_name)
        rows, _ = Predictor.load(right.folder, "onnx-int8").outputs(right.examples)
        pairs = [(row[..., : output.shape[-1]], output) for row, output in zip(rows, right.outputs, strict=True)]
        got, expected = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
        # Some of it is lost, but not the order of things. An untouched network would give the same digits.
        assert np.corrcoef(got, expected)[0, 1] > 0.9, task_name
        assert np.abs(got - expected).max() > 1e-6, task_name


def test_tags_are_predicted_too(folders: Folders, reference: Callable[..., Any]) -> None:
    folder, texts = folders("klue-ner"), [example.text for example in reference("nsmc-sample").examples]
    examples = [TextExample(str(k), text, None, "") for k, text in enumerate(texts)]
    both = [Predictor.load(folder, name).predict(examples) for name in EXACT]
    assert both[0] == both[1]
    assert [len(str(tags).split()) for tags in both[0]] == [len("".join(text.split())) for text in texts]


def test_a_finished_fine_tuning_gives_its_stored_predictions(standins: dict[str, Path], tmp_path: Path) -> None:
    task = get_task("nsmc-sample")
    splits = read_task(task, SAMPLE_ROOT)
    splits = replace(splits, train=replace(splits.train, examples=splits.train.examples[:48]))
    settings = {"epochs": 1, "max_length": 24, "peak_lr": 1e-3}
    result = finetune(task, standins["klue-bert"], out=tmp_path / "out", data=splits, overrides=settings)
    predictor = Predictor.load(tmp_path / "out", "torch")
    assert predictor.finetuned.max_length == 24
    assert predictor.predict(splits.eval.examples) == result.predictions


def test_the_size_of_a_model_is_known_without_loading_it(folders: Folders) -> None:
    for task_name in (*TASKS, "klue-ner"):
        finetuned = read_finetuned(folders(task_name))
        model, _, _ = load_finetuned(finetuned.folder)
        assert finetuned.num_parameters == sum(p.numel() for p in model.base_model.parameters()), task_name
        assert 4 * sum(p.numel() for p in model.parameters()) < finetuned.size_bytes < 2**20, task_name


def test_padding_and_company_change_nothing(folders: Folders) -> None:
    generator = np.random.default_rng(0)
    for name in EXACT:
        runtime = Runtime.load(folders("nsmc-sample"), name)
        features = [
            {key: [1] * n for key in runtime.network.inputs}
            | {"input_ids": list(map(int, generator.integers(5, 900, n)))}
            for n in (3, 9, 31)
        ]
        alone = [runtime.run(collate([f], runtime.network.inputs, padding=0))[0] for f in features]
        together = runtime.run(collate(features, runtime.network.inputs, padding=0))
        assert together == pytest.approx(np.stack(alone), abs=1e-4), name
        assert together == pytest.approx(np.stack(runtime.run_features(features, padding=0)), abs=1e-4), name


def test_an_input_that_is_missing_is_named(folders: Folders) -> None:
    runtime = Runtime.load(folders("nsmc-sample"), "torch")
    with pytest.raises(ValueError, match="attention_mask"):
        runtime.run({"input_ids": np.ones((1, 3), dtype=np.int64), "token_type_ids": np.zeros((1, 3), dtype=np.int64)})


def test_threads_of_the_process_are_left_alone(folders: Folders) -> None:
    runtime = Runtime.load(folders("nsmc-sample"), "torch", threads=2)
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


def test_transformers_is_the_reference(folders: Folders) -> None:
    module: Any = finetuned_network(read_finetuned(folders("nsmc-sample"))).build()
    assert type(module.model) is transformers.BertForSequenceClassification
    assert module.training is False


def test_models_that_run_on_no_backend_are_refused(
    standins: dict[str, Path], folders: Folders, tmp_path: Path, fails: Fails
) -> None:
    with fails(CheckpointError, standins["klue-bert"], "which task"):
        Predictor.load(standins["klue-bert"])
    for path in folders("nsmc-sample").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {TASK_KEY: "news-swag"}), encoding="utf-8")
    with fails(CheckpointError, tmp_path, "run on no backend", "downstream.finetune.predict"):
        Predictor.load(tmp_path, "torch")


# --- embedders --------------------------------------------------------------------------------------------------------


def test_an_embedder_keeps_its_vectors(standins: dict[str, Path]) -> None:
    embedder = Embedder.load(standins["kpfbert"], device="cpu")
    texts = ["정부, 부동산 대책 발표", "", "경기", "시의회가 내년 예산을 의결했다 " * 40]
    for name in ("torch", "onnx-fp32", "onnx-int8"):
        fast, runtime = fast_embedder(embedder, name)
        assert runtime.name == name
        cosines = (embedder.encode(texts) * fast.encode(texts)).sum(1)
        assert cosines == pytest.approx(1.0, abs=1e-2 if name == "onnx-int8" else 1e-5), name
        assert np.linalg.norm(fast.encode(texts), axis=1) == pytest.approx(1.0), name


def test_an_embedder_that_pools_otherwise_is_refused(standins: dict[str, Path], fails: Fails) -> None:
    embedder = Embedder.load(standins["kpfbert"], device="cpu")
    own = embedder.encoder.compute_for(0)

    def turned(texts: Any, batch_size: int, advance: Any) -> Any:
        return own(texts, batch_size, advance)[:, ::-1]

    with fails(CheckpointError, standins["kpfbert"], "not the means"):
        fast_embedder(replace(embedder, encoder=replace(embedder.encoder, compute_for=lambda _: turned)), "onnx-fp32")


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


def test_probe_texts_have_the_lengths_asked_for(standins: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(standins["klue-bert"])
    lengths = lognormal_lengths(100)
    got = [len(ids) for ids in tokenizer(probe_texts(tokenizer, lengths))["input_ids"]]
    longest_word = 12
    assert all(text.strip() for text in probe_texts(tokenizer, lengths))
    assert all(length - longest_word <= n <= max(length, longest_word) for n, length in zip(got, lengths, strict=True))


def test_a_probe_text_is_of_one_label_and_both_labels_have_as_many(standins: dict[str, Path]) -> None:
    examples = get_task("nsmc-sample").read_split("train", SAMPLE_ROOT).examples
    of_label = {
        label: " ".join(" ".join(example.text.split()) for example in examples if example.label == label)
        for label in ("negative", "positive")
    }
    texts = probe_texts(load_tokenizer(standins["klue-bert"]), lognormal_lengths(100))
    found = [[label for label, text in of_label.items() if probe in text] for probe in texts]
    assert sum("negative" in labels for labels in found) >= 49  # the one that begins with the last may go over
    assert sum("positive" in labels for labels in found) >= 49
    assert sum(not labels for labels in found) <= 1


def test_the_command_wants_at_least_one_thread(folders: Folders, fails: Fails) -> None:
    with fails(UsageError, "--threads", "less than 1"):
        main([str(folders("nsmc-sample")), "--threads", "0"])
