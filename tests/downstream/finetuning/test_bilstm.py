"""A BiLSTM on an encoder's layers: which ones it reads, what is trained, and that a saved one is restored."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from corpora.foundation.errors import CheckpointError, RecipeError
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.families.classification import Classification
from downstream.families.tagging import Tagging
from downstream.finetune import TaskData, finetune, load_finetuned, predict, read_task
from downstream.finetuning import bilstm
from downstream.finetuning.result import Result
from downstream.finetuning.trainer import set_head_learning_rate
from downstream.task import FinetuneConfig, Split, TextExample, get_task
from pretraining.folders import SEAL_FILE

Fails = Callable[..., AbstractContextManager[None]]

NOWHERE = Path("/nonexistent")
FAST: Mapping[str, Any] = {"epochs": 1, "batch_size": 16, "max_length": 32, "peak_lr": 1e-3}
BINARY = Classification(labels=("no", "yes"))


@pytest.fixture(scope="module")
def encoder(standins: dict[str, Path]) -> Path:
    return standins["klue-bert"]


def begin(encoder: Path, **settings: Any) -> tuple[bilstm.BiLstmModel, Any]:
    tokenizer = load_tokenizer(encoder)
    torch.manual_seed(0)
    return bilstm.build(encoder, tokenizer, BINARY, FinetuneConfig(**settings)), tokenizer


def few(name: str, train: int, dev: int) -> TaskData:
    whole = read_task(get_task(name), NOWHERE)
    return TaskData(*(replace(s, examples=s.examples[:n]) for s, n in ((whole.train, train), (whole.eval, dev))))


# --- the layers -----------------------------------------------------------------------------------------------------


def test_it_reads_the_layers_that_are_asked_for(encoder: Path, subtests: pytest.Subtests) -> None:
    for features in (
        "embeddings",
        "second-to-last",
        "last",
        "weighted-sum",
    ):
        with subtests.test(features=features):
            model, tokenizer = begin(encoder, features=features)
            inputs = tokenizer(["시의회가 예산을 늘렸다."], return_tensors="pt")
            plain = load_model(encoder, tokenizer, "AutoModel", {}).eval()
            with torch.no_grad():
                hidden = plain(**inputs, output_hidden_states=True).hidden_states
                expected = {
                    "embeddings": hidden[0],
                    "second-to-last": hidden[1],
                    "last": hidden[2],
                    "weighted-sum": (hidden[1] + hidden[2]) / 2,  # weights begin equal
                }[features]
                torch.testing.assert_close(model.train()._features(inputs), expected)


def test_four_layers_side_by_side_need_four(encoder: Path, fails: Fails) -> None:
    with fails(RecipeError, "features=last-four", "the encoder has 2 layers"):
        begin(encoder, features="last-four")


def test_four_layers_side_by_side_are_the_last_four() -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=5, num_attention_heads=2, intermediate_size=16)
    encoder = BertModel(config).eval()
    model = bilstm.BiLstmModel(encoder, layers="last-four", kind="sequence", num_outputs=2, is_frozen=True)
    inputs = {"input_ids": torch.arange(6)[None], "attention_mask": torch.ones(1, 6, dtype=torch.long)}
    with torch.no_grad():
        hidden = encoder(**inputs, output_hidden_states=True).hidden_states
    torch.testing.assert_close(model._features(inputs), torch.cat(hidden[2:], dim=-1))
    assert model.lstm.input_size == 32
    assert model(**inputs).logits.shape == (1, 2)


def test_a_task_without_such_a_head_is_refused(encoder: Path, fails: Fails, tmp_path: Path) -> None:
    data = few("news-swag-sample", 8, 4)
    with fails(RecipeError, "features", "MultipleChoice"):
        finetune("news-swag-sample", encoder, out=tmp_path, data=data, overrides=FAST | {"features": "last"})


def test_padding_changes_nothing(encoder: Path) -> None:
    model, tokenizer = begin(encoder, features="last")
    texts = ["비가 왔다.", "시의회가 내년 예산을 크게 늘렸다고 시민이 말했다."]
    model.eval()
    with torch.no_grad():
        together = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        alone = torch.cat([model(**tokenizer([text], return_tensors="pt")).logits for text in texts])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


# --- training -------------------------------------------------------------------------------------------------------


def test_a_frozen_encoder_is_left_as_it_is_and_everything_else_learns(
    encoder: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, (features, frozen) in enumerate(
        (
            ("weighted-sum", True),
            ("last", True),
            ("last", False),
        )
    ):
        with subtests.test(features=features, frozen=frozen):
            folder = tmp_path / str(number)
            folder.mkdir()
            data = few("nsmc-sample", 32, 8)
            overrides = FAST | {"features": features, "frozen": frozen}
            result = finetune("nsmc-sample", encoder, out=folder / "out", data=data, overrides=overrides)
            before = {f"encoder.{name}": p for name, p in load_file(encoder / "model.safetensors").items()}
            after = load_file(folder / "out" / bilstm.WEIGHTS_FILE)
            fresh, _ = begin(encoder, features=features, frozen=frozen)
            changed = {
                name: not torch.equal(
                    tensor, before.get(name.replace("encoder.", "encoder.bert.", 1), before.get(name, tensor))
                )
                for name, tensor in after.items()
                if name.startswith("encoder.") and "pooler" not in name
            }
            assert changed
            assert any(changed.values()) is not frozen
            assert not torch.equal(after["lstm.weight_hh_l1"], fresh.state_dict()["lstm.weight_hh_l1"])
            assert torch.any(after["layer_weights"] != 0) == (features == "weighted-sum")
            assert result.recipe["finetune"]["features"] == features


def test_the_head_may_learn_at_a_rate_of_its_own(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, Any]] = []

    def note(optimizer: Any, model: Any, rate: float) -> None:
        set_head_learning_rate(optimizer, model, rate)
        seen.append((optimizer, model))

    monkeypatch.setattr("downstream.finetuning.trainer.set_head_learning_rate", note)
    settings = {"features": "last", "frozen": False, "head_lr": 1e-2, "warmup_ratio": 0.0}
    finetune("nsmc", encoder, out=tmp_path / "out", data=few("nsmc-sample", 32, 8), overrides={**FAST, **settings})
    ((optimizer, model),) = seen
    rates = {id(p): group["initial_lr"] for group in optimizer.param_groups for p in group["params"]}
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    learnt = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert len(rates) == len(learnt) == sum(len(group["params"]) for group in optimizer.param_groups)
    for name, parameter in learnt.items():
        assert rates[id(parameter)] == (1e-3 if name.startswith("encoder.") else 1e-2), name
        if "bias" in name:
            assert decays[id(parameter)] == 0.0, name


def test_settings_that_are_not_asked_for_are_not_in_the_recipe() -> None:
    """So results of before there was a BiLSTM are still finished."""
    assert not {"features", "frozen"} & set(FinetuneConfig().model_dump())
    asked = FinetuneConfig(features="last", frozen=False).model_dump()
    assert (asked["features"], asked["frozen"]) == ("last", False)
    assert FinetuneConfig.model_validate(FinetuneConfig().model_dump()) == FinetuneConfig()


@pytest.mark.slow
def test_a_saved_folder_gives_its_predictions_again(encoder: Path, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, name in enumerate(
        (
            "nsmc-sample",
            "klue-sts-sample",
            "korquad-sample",
            "klue-ner",
        )
    ):
        with subtests.test(name=name):
            folder = tmp_path / str(number)
            folder.mkdir()
            result, data = _train(encoder, folder, name)
            names = {path.name for path in folder.iterdir()}
            assert {"config.json", bilstm.WEIGHTS_FILE, "tokenizer.json", "README.md", "result.json"} <= names
            model, tokenizer, task = load_finetuned(folder)
            assert task.name == name
            for batch_size in (1, 5):
                again = predict(model, tokenizer, task.family, data.eval.examples, max_length=32, batch_size=batch_size)
                assert again == pytest.approx(result.predictions, abs=1e-5)


def _train(encoder: Path, out: Path, name: str) -> tuple[Result, TaskData]:
    if name == "klue-ner":
        rows = [TextExample(str(k), "홍길동 기자", None, "B-PS I-PS I-PS O O") for k in range(24)]
        data = TaskData(Split(tuple(rows[8:]), "0" * 64), Split(tuple(rows[:8]), "1" * 64))
    else:
        data = few(name, 8 if name == "korquad-sample" else 32, 8)
    overrides = FAST | {"features": "second-to-last"}
    return finetune(name, encoder, out=out, data=data, overrides=overrides), data


def test_the_folder_is_refused_where_a_plain_one_is_expected(encoder: Path, tmp_path: Path, fails: Fails) -> None:
    _train(encoder, tmp_path, "nsmc-sample")
    tokenizer = load_tokenizer(tmp_path)
    with fails(CheckpointError, tmp_path, "the model cannot be read"):
        load_model(tmp_path, tokenizer, BINARY.auto_class, BINARY.head_config())
    (tmp_path / bilstm.WEIGHTS_FILE).write_bytes(b"damaged")
    with fails(CheckpointError, tmp_path / bilstm.WEIGHTS_FILE, "changed since it was written"):
        load_finetuned(tmp_path)
    (tmp_path / SEAL_FILE).unlink()
    with fails(CheckpointError, tmp_path, "the model cannot be read"):
        load_finetuned(tmp_path)


def test_it_learns_tags_from_a_frozen_encoder(encoder: Path, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    names = {"서울": "B-LC I-LC", "홍길동": "B-PS I-PS I-PS"}
    examples = []
    for k in range(160):
        text = list(generator.choice(["예산", "시민", "경기", *names], 5))
        tags = " ".join(names.get(word, " ".join("O" for _ in word)) for word in text)
        examples.append(TextExample(str(k), " ".join(text), None, tags))
    data = TaskData(Split(tuple(examples[40:]), "0" * 64), Split(tuple(examples[:40]), "1" * 64))
    task = get_task("klue-ner")
    assert isinstance(task.family, Tagging)
    overrides = FAST | {"features": "embeddings", "epochs": 8, "peak_lr": 1e-2}
    result = finetune(task, encoder, out=tmp_path, data=data, overrides=overrides)
    right = [p == g for p, g in zip(result.predictions, data.eval.golds, strict=True)]
    assert np.mean(right) > 0.9
