"""Fine-tuning the stand-ins: what is saved, that it is reproducible and resumable, and that it learns."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoTokenizer, Trainer

import downstream.finetuning.arguments
from corpora.foundation.errors import CheckpointError, RecipeError, ResultError, UsageError
from corpora.foundation.files import LOCK_FILE
from downstream.encoders.tokenizers import load_tokenizer
from downstream.families.classification import Classification, Regression
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import Tagging
from downstream.finetune import (
    TaskData,
    finetune,
    load_finetuned,
    parse_overrides,
    predict,
    read_task,
)
from downstream.finetuning.batches import FeatureDataset, PaddingCollator, subsample
from downstream.finetuning.result import Result, read_result
from downstream.finetuning.trainer import set_dropout
from downstream.runtimes.network import read_finetuned
from downstream.task import Split, Task, TextExample, get_task

Fails = Callable[..., AbstractContextManager[None]]

KINDS = ("kpfbert", "klue-bert", "korbert", "kobert", "mbert")
TASKS = ("nsmc-sample", "klue-sts-sample", "korquad-sample")
NER = "klue-ner"
CELLS = [*((kind, task) for task in (*TASKS, NER) for kind in KINDS), ("kpfbert", "klue-mrc-sample")]
FAST: Mapping[str, Any] = {"epochs": 1, "batch_size": 16, "max_length": 64, "peak_lr": 1e-3}
SPAN: Mapping[str, Any] = FAST | {"max_length": 96}


def first_examples(name: str) -> tuple[Task, TaskData]:
    """Return a task with few enough examples, of its sample where it has one: a question is several windows."""
    task = get_task(name)
    if name == NER:
        return task, tagged_data(64, held_out=16)
    whole = read_task(task, Path("/nonexistent"))
    train, dev = (8, 5) if isinstance(task.family, SpanQA) else (48, 16)
    parts = (
        replace(split, examples=split.examples[:number], clusters=split.clusters and split.clusters[:number])
        for split, number in ((whole.train, train), (whole.eval, dev))
    )
    return task, TaskData(*parts)


def overrides_of(task: Task) -> Mapping[str, Any]:
    return SPAN if isinstance(task.family, SpanQA) else FAST


@dataclass(frozen=True)
class Cell:
    """One finished fine-tuning."""

    kind: str
    task: Task
    data: TaskData
    out: Path
    result: Result


@pytest.fixture(scope="module")
def cells(standins: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    root = tmp_path_factory.mktemp("finetuned")
    return [train_cell(kind, name, standins[kind], root / f"{kind}-{name}") for kind, name in CELLS]


def train_cell(kind: str, name: str, encoder: Path, out: Path) -> Cell:
    task, data = first_examples(name)
    return Cell(kind, task, data, out, finetune(task, encoder, out=out, data=data, overrides=overrides_of(task)))


@pytest.fixture(scope="module")
def nsmc() -> tuple[Task, TaskData]:
    return first_examples("nsmc-sample")


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def text_data(rows: list[tuple[str, str | float]], *, held_out: int) -> TaskData:
    examples = tuple(TextExample(str(k), text, None, label) for k, (text, label) in enumerate(rows))
    return TaskData(Split(examples[held_out:], "0" * 64), Split(examples[:held_out], "1" * 64))


def tagged_data(number: int, *, held_out: int) -> TaskData:
    """Return sentences with two places and a person in them; every eighth is longer than an input of `FAST`."""
    generator = np.random.default_rng(0)
    words = ("시의회", "예산", "위원회", "기자", "시민", "사업", "경기", "결과")
    names = {"서울": "B-LC I-LC", "강원도": "B-LC I-LC I-LC", "홍길동": "B-PS I-PS I-PS"}
    examples = []
    for k in range(number):
        text = list(generator.choice([*words, *names], 90 if k % 8 == 0 else 6))
        tags = " ".join(names.get(word, " ".join("O" for _ in word)) for word in text)
        examples.append(TextExample(str(k), " ".join(text), None, tags))
    return TaskData(Split(tuple(examples[held_out:]), "0" * 64), Split(tuple(examples[:held_out]), "1" * 64))


# --- every encoder on every kind of task ----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_result_is_scored_and_in_range(cells: list[Cell], subtests: pytest.Subtests) -> None:
    for cell in cells:
        with subtests.test(kind=cell.kind, task=cell.task.name):
            result = cell.result
            assert (result.model, result.task, result.split) == (cell.kind, cell.task.name, cell.task.eval_split)
            assert result.num_examples == len(result.predictions) == len(cell.data.eval.examples)
            assert list(result.metrics) == [metric.key for metric in cell.task.metrics]
            for metric in cell.task.metrics:
                value = result.metrics[metric.key]
                low = -1 if metric.key == "pearson" else 0
                assert value is None or low <= value <= 1
                again = metric(result.predictions, cell.data.eval.golds)
                assert value == pytest.approx(again, nan_ok=True) if value is not None else np.isnan(again)
            assert result.recipe["finetune"] == cell.task.finetune.model_dump() | dict(overrides_of(cell.task))
            stored = load_file(cell.out / "model.safetensors")
            assert result.num_parameters == sum(v.numel() for name, v in stored.items() if name.startswith("bert."))


@pytest.mark.slow
def test_the_folder_is_a_whole_transformers_folder(cells: list[Cell], subtests: pytest.Subtests) -> None:
    for cell in cells:
        with subtests.test(kind=cell.kind, task=cell.task.name):
            names = {path.name for path in cell.out.iterdir()}
            assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "result.json"} <= names
            assert "checkpoints" not in names
            assert not list(cell.out.rglob("*.bin")) + list(cell.out.rglob("*.pt")) + list(cell.out.rglob("*.part"))
            assert read_result(cell.out / "result.json") == cell.result
            assert {value.dtype for value in load_file(cell.out / "model.safetensors").values()} == {torch.float32}


@pytest.mark.slow
def test_the_model_card_is_one_a_hub_reads(cells: list[Cell], subtests: pytest.Subtests) -> None:
    for cell in cells:
        with subtests.test(kind=cell.kind, task=cell.task.name):
            card = ModelCard.load(cell.out / "README.md")
            assert card.data.language == "ko"
            assert card.data.library_name == "transformers"
            assert card.data.to_dict()["model-index"]
            scored = {entry.metric_type: entry.metric_value for entry in card.data.eval_results or []}
            known = {key: value for key, value in cell.result.metrics.items() if value is not None}
            assert scored == pytest.approx(known, abs=1e-6)
            assert cell.task.title in card.text
            assert cell.task.licence in card.text


@pytest.mark.slow
def test_plain_transformers_gives_the_stored_predictions(cells: list[Cell], subtests: pytest.Subtests) -> None:
    for cell in cells:
        with subtests.test(kind=cell.kind, task=cell.task.name):
            tokenizer = AutoTokenizer.from_pretrained(cell.out)
            model = getattr(transformers, cell.task.family.auto_class).from_pretrained(cell.out)
            max_length = cell.result.recipe["finetune"]["max_length"]
            predictions = predict(model, tokenizer, cell.task.family, cell.data.eval.examples, max_length=max_length)
            assert predictions == pytest.approx(cell.result.predictions, abs=1e-5)


@pytest.mark.slow
def test_the_loaded_folder_gives_the_stored_predictions(
    cells: list[Cell], standins: dict[str, Path], subtests: pytest.Subtests
) -> None:
    for cell in cells:
        with subtests.test(kind=cell.kind, task=cell.task.name):
            model, tokenizer, task = load_finetuned(cell.out)
            assert task == cell.task
            assert model.dtype == torch.float32
            max_length = cell.result.recipe["finetune"]["max_length"]
            predictions = predict(model, tokenizer, task.family, cell.data.eval.examples, max_length=max_length)
            assert predictions == pytest.approx(cell.result.predictions, abs=1e-5)
            text = "시의회가 예산을 확정했다."
            assert tokenizer(text, text)["input_ids"] == load_tokenizer(standins[cell.kind])(text, text)["input_ids"]


@pytest.mark.slow
def test_predictions_do_not_depend_on_batches_or_order(cells: list[Cell], subtests: pytest.Subtests) -> None:
    for cell in cells:
        with subtests.test(kind=cell.kind, task=cell.task.name):
            model, tokenizer, task = load_finetuned(cell.out)
            examples = cell.data.eval.examples
            max_length = cell.result.recipe["finetune"]["max_length"]
            for batch_size in (1, 3):
                again = predict(model, tokenizer, task.family, examples, max_length=max_length, batch_size=batch_size)
                assert again == pytest.approx(cell.result.predictions, abs=1e-5)
            backwards = predict(model, tokenizer, task.family, examples[::-1], max_length=max_length, batch_size=5)
            assert backwards[::-1] == pytest.approx(cell.result.predictions, abs=1e-5)


@pytest.mark.slow
def test_predictions_are_labels_scores_or_slices_of_the_context(cells: list[Cell], subtests: pytest.Subtests) -> None:
    for cell in cells:
        with subtests.test(kind=cell.kind, task=cell.task.name):
            family = cell.task.family
            for prediction, example in zip(cell.result.predictions, cell.data.eval.examples, strict=True):
                if isinstance(family, Classification):
                    assert prediction in family.labels
                elif isinstance(family, SpanQA):
                    assert isinstance(prediction, str)
                    assert prediction in example.context
                    assert prediction == prediction.strip()
                    assert prediction or family.has_unanswerable
                elif isinstance(family, Tagging):
                    assert isinstance(prediction, str)
                    assert len(prediction.split()) == len(example.text.replace(" ", ""))
                    assert set(prediction.split()) <= set(family.tags)
                else:
                    assert isinstance(prediction, float)
            assert not isinstance(family, Regression) or len(set(cell.result.predictions)) > 8


# --- seeds ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_seed_fixes_every_byte(standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path) -> None:
    task, data = nsmc
    results = {
        name: finetune(task, standins["kobert"], out=tmp_path / name, data=data, overrides=FAST, seed=seed)
        for name, seed in {"one": 3, "again": 3, "other": 4}.items()
    }
    assert results["one"].predictions == results["again"].predictions
    assert weights(tmp_path / "one") == weights(tmp_path / "again")
    assert weights(tmp_path / "one") != weights(tmp_path / "other")
    assert results["one"].recipe_sha256 == results["other"].recipe_sha256
    for name in ("config.json", "tokenizer.json", "README.md"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_seed_decides_the_head_and_a_missing_pooler_and_nothing_else(
    standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path
) -> None:
    task, data = nsmc
    still = {**FAST, "peak_lr": 1e-30, "weight_decay": 0.0}  # what is left is the start
    for seed in (0, 1):
        finetune(task, standins["kpfbert"], out=tmp_path / str(seed), data=data, overrides=still, seed=seed)
    first, second = (load_file(tmp_path / seed / "model.safetensors") for seed in ("0", "1"))
    differ = {name for name in first if not torch.allclose(first[name], second[name], atol=1e-20)}
    assert differ == {"classifier.weight", "bert.pooler.dense.weight"}


# --- finished and interrupted runs ----------------------------------------------------------------------------------


@pytest.fixture
def finished(standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path) -> Path:
    task, data = nsmc
    finetune(task, standins["klue-bert"], out=tmp_path / "out", data=data, overrides=FAST)
    return tmp_path / "out"


def never(*_: object, **__: object) -> None:
    raise AssertionError("it trains")


def test_a_finished_folder_is_not_trained_again(
    finished: Path, standins: dict[str, Path], nsmc: tuple[Task, TaskData], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, data = nsmc
    before = {path: path.read_bytes() for path in finished.iterdir()}
    monkeypatch.setattr(Trainer, "train", never)
    (finished / LOCK_FILE).touch()  # of a process that was killed at its end
    again = finetune(task, standins["klue-bert"], out=finished, data=data, overrides=FAST)
    assert again == read_result(finished / "result.json")
    assert {path: path.read_bytes() for path in finished.iterdir()} == before


def test_a_folder_of_another_run_is_left_alone(
    finished: Path,
    standins: dict[str, Path],
    nsmc: tuple[Task, TaskData],
    monkeypatch: pytest.MonkeyPatch,
    fails: Fails,
    subtests: pytest.Subtests,
) -> None:
    cases: list[dict[str, Any]] = [
        {"seed": 1},
        {"overrides": {**FAST, "epochs": 2}},
        {"model": "another name"},
        {"encoder": "kpfbert"},
        {"task": "klue-nli-sample"},
    ]
    for change in cases:
        with subtests.test(change=change):
            before = {path: path.read_bytes() for path in finished.iterdir()}
            monkeypatch.setattr(Trainer, "train", never)
            task, data = first_examples(change["task"]) if "task" in change else nsmc
            settings = {"overrides": FAST} | {key: change[key] for key in change.keys() - {"task", "encoder"}}
            with fails(UsageError, finished, "another run", "--out"):
                finetune(task, standins[change.get("encoder", "klue-bert")], out=finished, data=data, **settings)
            assert {path: path.read_bytes() for path in finished.iterdir()} == before


def test_a_damaged_result_is_not_taken_for_a_finished_run(
    finished: Path, standins: dict[str, Path], nsmc: tuple[Task, TaskData], fails: Fails
) -> None:
    (finished / "result.json").write_text('{"schema": 1')
    with fails(ResultError, finished / "result.json", "not a result"):
        finetune(nsmc[0], standins["klue-bert"], out=finished, data=nsmc[1], overrides=FAST)


class Steps:
    """Watches the training steps of every trainer, and interrupts one where it is asked to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[int] = []
        """The trainer's count at the start of every step."""
        self.rates: list[float] = []
        """The learning rate of every step."""
        self.stop_at = -1
        original = Trainer.training_step

        def step(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
            if trainer.state.global_step == self.stop_at:
                raise KeyboardInterrupt
            self.taken.append(trainer.state.global_step)
            self.rates.append(trainer.optimizer.param_groups[0]["lr"])
            return original(trainer, *args, **kwargs)

        monkeypatch.setattr(Trainer, "training_step", step)
        monkeypatch.setattr(downstream.finetuning.arguments, "CHECKPOINT_STEPS", 4)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


LONG: Mapping[str, Any] = {**FAST, "epochs": 2, "batch_size": 8}
"""6 steps an epoch, 12 in all; a checkpoint after step 4, and after step 8 in the midst of the second epoch."""


def test_an_interrupted_run_continues_from_its_checkpoint(
    standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path, steps: Steps
) -> None:
    task, data = nsmc
    steps.stop_at = 10
    with pytest.raises(KeyboardInterrupt):
        finetune(task, standins["klue-bert"], out=tmp_path, data=data, overrides=LONG)
    assert steps.taken == list(range(10))
    assert not (tmp_path / "result.json").exists()
    steps.taken.clear()
    steps.stop_at = -1
    result = finetune(task, standins["klue-bert"], out=tmp_path, data=data, overrides=LONG)
    assert steps.taken == list(range(8, 12))
    assert read_result(tmp_path / "result.json") == result
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.slow
def test_an_interrupted_run_is_bit_identical_to_an_uninterrupted_one(
    standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path, steps: Steps, subtests: pytest.Subtests
) -> None:
    for number, change in enumerate(
        (
            {},
            {"subword_dropout": 0.5},
        )
    ):
        with subtests.test(change=change):
            folder = tmp_path / str(number)
            folder.mkdir()
            task, data = nsmc
            settings = {**LONG, **change}
            whole = finetune(task, standins["klue-bert"], out=folder / "whole", data=data, overrides=settings)
            steps.stop_at = 10
            with pytest.raises(KeyboardInterrupt):
                finetune(task, standins["klue-bert"], out=folder / "parts", data=data, overrides=settings)
            steps.stop_at = -1
            parts = finetune(task, standins["klue-bert"], out=folder / "parts", data=data, overrides=settings)
            assert weights(folder / "parts") == weights(folder / "whole")
            assert parts.predictions == whole.predictions


def test_an_incomplete_checkpoint_is_skipped(
    standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path, steps: Steps
) -> None:
    task, data = nsmc
    steps.stop_at = 10
    with pytest.raises(KeyboardInterrupt):
        finetune(task, standins["klue-bert"], out=tmp_path, data=data, overrides=LONG)
    (tmp_path / "checkpoints" / "checkpoint-12").mkdir()
    steps.taken.clear()
    steps.stop_at = -1
    finetune(task, standins["klue-bert"], out=tmp_path, data=data, overrides=LONG)
    assert steps.taken == list(range(8, 12))


@pytest.mark.slow
def test_the_checkpoint_of_another_run_is_not_continued(
    standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path, steps: Steps, subtests: pytest.Subtests
) -> None:
    for number, change in enumerate(
        (
            {"seed": 1},
            {"overrides": {**LONG, "peak_lr": 1e-5}},
        )
    ):
        with subtests.test(change=change):
            folder = tmp_path / str(number)
            folder.mkdir()
            task, data = nsmc
            steps.stop_at = 10
            with pytest.raises(KeyboardInterrupt):
                finetune(task, standins["klue-bert"], out=folder / "out", data=data, overrides=LONG)
            steps.stop_at = -1
            settings = {"overrides": LONG} | change
            finetune(task, standins["klue-bert"], out=folder / "clean", data=data, **settings)
            steps.taken.clear()
            try:
                finetune(task, standins["klue-bert"], out=folder / "out", data=data, **settings)
            except UsageError:
                return
            assert weights(folder / "out") == weights(folder / "clean")


def test_a_short_run_writes_no_checkpoints(
    standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path, steps: Steps
) -> None:
    steps.stop_at = 2  # of three
    with pytest.raises(KeyboardInterrupt):
        finetune(nsmc[0], standins["klue-bert"], out=tmp_path, data=nsmc[1], overrides=FAST)
    assert not list(tmp_path.rglob("checkpoint-*"))


def test_the_rate_warms_up_for_its_share_and_decays(
    standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path, steps: Steps
) -> None:
    settings = {**LONG, "warmup_ratio": 1 / 3, "peak_lr": 6e-4}
    finetune(nsmc[0], standins["klue-bert"], out=tmp_path, data=nsmc[1], overrides=settings)
    assert steps.rates == pytest.approx([6e-4 * min(k / 4, (12 - k) / 8) for k in range(12)])


# --- learning -------------------------------------------------------------------------------------------------------


LEARN: Mapping[str, Any] = {"epochs": 6, "batch_size": 16, "max_length": 32, "peak_lr": 3e-3}


@pytest.mark.slow
def test_a_word_that_decides_is_learned_from_random_weights(
    standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    rows: list[tuple[str, str | float]] = []
    for k in range(320):
        text = list(generator.choice(["시의회", "예산", "위원회", "기자", "시민", "사업", "경기", "결과"], 6))
        if k % 2:
            text[generator.integers(6)] = "올해"
        rows.append((" ".join(text), "positive" if k % 2 else "negative"))
    data = text_data(rows, held_out=64)
    result = finetune(nsmc[0], standins["klue-bert"], out=tmp_path, data=data, overrides=LEARN)
    assert result.metrics["accuracy"] is not None
    assert result.metrics["accuracy"] > 0.9


@pytest.mark.slow
def test_scores_follow_the_text(standins: dict[str, Path], tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows: list[tuple[str, str | float]] = []
    for count in (k % 6 for k in range(320)):
        others = generator.choice(["예산", "위원회", "시민", "사업", "경기", "결과"], 5 - count)
        rows.append((" ".join(generator.permutation(["올해"] * count + list(others))), float(count)))
    data = text_data(rows, held_out=64)
    task, settings = get_task("klue-sts-sample"), {**LEARN, "epochs": 10}
    result = finetune(task, standins["klue-bert"], out=tmp_path, data=data, overrides=settings)
    assert len(set(result.predictions)) > 32
    assert result.metrics["pearson"] is not None
    assert result.metrics["pearson"] > 0.9


@pytest.mark.slow
def test_names_are_learned_also_in_sentences_longer_than_the_input(standins: dict[str, Path], tmp_path: Path) -> None:
    data = tagged_data(320, held_out=64)
    result = finetune(get_task(NER), standins["klue-bert"], out=tmp_path, data=data, overrides=LEARN)
    assert result.metrics["entity_f1"] is not None
    assert result.metrics["entity_f1"] > 0.9
    assert result.metric_columns("entity_f1").shape == (64, 18)
    assert ModelCard.load(tmp_path / "README.md").data.pipeline_tag == "token-classification"
    tagger = transformers.pipeline("token-classification", str(tmp_path), aggregation_strategy="simple", device="cpu")
    found = {(entity["word"], entity["entity_group"]) for entity in tagger("홍길동 강원도 경기 서울")}
    assert found == {("홍길동", "PS"), ("강원도", "LC"), ("서울", "LC")}


def test_padding_has_no_label(standins: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(standins["klue-bert"])
    family = get_task(NER).family
    short, long = (TextExample("1", text, None, "O O O") for text in ("예산이", "예 산 이"))
    features = family.featurize([short, long], tokenizer, 64, with_labels=True)
    batch = PaddingCollator(tokenizer)(FeatureDataset(features))
    assert batch["labels"].shape == batch["input_ids"].shape
    assert ((batch["labels"] == -100) == (batch["attention_mask"] == 0)).all()
    assert (batch["labels"] == -100).any()


# --- settings -------------------------------------------------------------------------------------------------------


def test_a_wrong_setting_is_named(
    standins: dict[str, Path],
    nsmc: tuple[Task, TaskData],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: Fails,
    subtests: pytest.Subtests,
) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"epoch": 1}, "did you mean 'epochs'?"),
        ({"max_len": 64}, "did you mean 'max_length'?"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": "many"}, "batch_size='many'"),
        ({"warmup_ratio": 1.0}, "warmup_ratio=1.0"),
        ({"max_length": 7}, "max_length=7"),
        ({"peak_lr": "nan"}, "peak_lr"),
        ({"peak_lr": "inf"}, "peak_lr"),
        ({"epochs": "inf"}, "epochs"),
    ]
    for overrides, what in cases:
        with subtests.test(overrides=overrides):
            monkeypatch.setattr(Trainer, "train", never)
            with fails(RecipeError, "nsmc-sample fine-tuning", what):
                finetune(nsmc[0], standins["kpfbert"], out=tmp_path / "out", data=nsmc[1], overrides=overrides)
            assert not (tmp_path / "out").exists()


def test_inputs_are_never_longer_than_the_model_takes(standins: dict[str, Path], tmp_path: Path) -> None:
    long = " ".join(["예산을"] * 900)
    data = text_data([(long, "positive"), (long[:-1], "negative")] * 2, held_out=2)
    settings = {**FAST, "max_length": 4096}
    result = finetune(get_task("nsmc-sample"), standins["kpfbert"], out=tmp_path, data=data, overrides=settings)
    assert result.num_examples == 2


def test_a_length_beyond_the_trained_positions_is_said_once(
    standins: dict[str, Path],
    nsmc: tuple[Task, TaskData],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    subtests: pytest.Subtests,
) -> None:
    task, data = nsmc
    manifest = {"recipe": {"data": {"max_length": 24}, "model": {"init": ""}}}
    # Folders of earlier versions hold all positions of the network; today's hold those that were trained.
    for name, positions, trained, length in (
        ("earlier", 512, 24, 40),
        ("today's", 24, 24, 24),
        ("longer", 512, 512, 40),
    ):
        with subtests.test(folder=name):
            encoder = tmp_path / name
            shutil.copytree(standins["klue-bert"], encoder)
            model = transformers.AutoModel.from_pretrained(encoder)
            table = model.embeddings.position_embeddings.weight
            model.embeddings.position_embeddings = torch.nn.Embedding.from_pretrained(table[:positions].detach())
            model.config.max_position_embeddings = positions
            model.save_pretrained(encoder)
            if positions > trained:
                (encoder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
            caplog.clear()
            for seed in (0, 1):
                out = tmp_path / f"{name}-{seed}"
                finetune(task, encoder, out=out, data=data, seed=seed, overrides=FAST | {"max_length": 40})
            told = [record.getMessage() for record in caplog.records if "pretrained on inputs" in record.getMessage()]
            assert len(told) == (trained < 40)
            assert all("max_length=40" in line and name in line and "24 tokens" in line for line in told)
            # Plain transformers, our classifier and the card cut where the training did.
            text = "재미있는 영화 " * 99
            assert len(AutoTokenizer.from_pretrained(out)(text, truncation=True)["input_ids"]) == length
            assert read_finetuned(out).max_length == length
            (out / "result.json").unlink()
            assert read_finetuned(out).max_length == length
            assert f"cut at {length} tokens" in (out / "README.md").read_text(encoding="utf-8")


def test_overrides_are_read_from_the_command_line(fails: Fails) -> None:
    assert parse_overrides(["epochs=1", "peak_lr=5e-5", "a=b=c"]) == {"epochs": "1", "peak_lr": "5e-5", "a": "b=c"}
    assert parse_overrides([]) == {}
    with fails(UsageError, "--set", "'epochs' is not KEY=VALUE", "--set epochs=1"):
        parse_overrides(["peak_lr=1", "epochs"])


def test_an_unfinished_folder_is_not_loaded(standins: dict[str, Path], fails: Fails) -> None:
    with fails(CheckpointError, standins["kpfbert"], "which task it was fine-tuned on"):
        load_finetuned(standins["kpfbert"])


def test_an_unwritable_folder_is_one_line(
    standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path, fails: Fails
) -> None:
    (tmp_path / "file").write_text("in the way")
    with fails(ResultError, tmp_path / "file", "cannot write"):
        finetune(nsmc[0], standins["klue-bert"], out=tmp_path / "file" / "out", data=nsmc[1], overrides=FAST)


# --- the command ----------------------------------------------------------------------------------------------------


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "downstream.finetune", *arguments]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PRESSBERT_DATA": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment
    )


@pytest.mark.slow
def test_the_command_prints_one_line_of_json(standins: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    model = str(standins["klue-bert"])
    process = start("nsmc-sample", "--model", model, "--out", str(out), "--set", "epochs=1", "--set", "max_length=32")
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    assert len(stdout.splitlines()) == 1
    result = read_result(out / "result.json")
    assert json.loads(stdout) == {"task": "nsmc-sample", "metrics": result.metrics}
    assert result.num_examples == 140
    assert result.recipe["finetune"]["epochs"] == 1
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_a_mistake_is_one_line_on_stderr_and_code_2(standins: dict[str, Path], tmp_path: Path) -> None:
    model, out = str(standins["klue-bert"]), str(tmp_path / "out")
    usual = ("--model", model, "--out", out)
    mistakes = {
        ("nsmc-sampel", *usual): "did you mean 'nsmc-sample'?",
        ("nsmc-sample", "--modell", model, "--model", model, "--out", out): "did you mean '--model'?",
        ("nsmc-sample", *usual, "--set", "epochs"): "'epochs' is not KEY=VALUE",
        ("nsmc-sample", *usual, "--set", "epoch=1"): "did you mean 'epochs'?",
        ("nsmc-sample", "--model", "kpfbrt", "--out", out): "did you mean 'kpfbert'?",
        ("nsmc-sample", "--model", model): "--out",
        ("nsmc-sample", *usual, "--seed", "one"): "--seed",
        ("nsmc-sample", *usual, "--data", str(tmp_path / "nowhere")): "nowhere",
    }
    # Two at a time: that is how many cores there are.
    pending = list(mistakes.items())
    while pending:
        pair, pending = pending[:2], pending[2:]
        for process, (arguments, what) in zip([start(*arguments) for arguments, _ in pair], pair, strict=True):
            stdout, stderr = process.communicate(timeout=120)
            assert (process.returncode, stdout) == (2, ""), (arguments, stderr)
            assert len(stderr.splitlines()) == 1, stderr
            assert what in stderr
    assert not (tmp_path / "out").exists()


# --- fewer examples -------------------------------------------------------------------------------------------------


def test_dropout_may_be_another_than_the_encoders(
    standins: dict[str, Path], nsmc: tuple[Task, TaskData], tmp_path: Path
) -> None:
    task, data = nsmc
    results = {
        rate: finetune(
            task, standins["klue-bert"], out=tmp_path / str(rate), data=data, overrides=FAST | {"dropout": rate}
        )
        for rate in (0.0, 0.5)
    }
    for rate, result in results.items():
        assert result.recipe["finetune"]["dropout"] == rate
        config = json.loads((tmp_path / str(rate) / "config.json").read_text(encoding="utf-8"))
        assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == rate
    weights = [load_file(tmp_path / str(rate) / "model.safetensors")["classifier.weight"] for rate in results]
    assert not torch.equal(*weights)
    model, *_ = load_finetuned(tmp_path / "0.5")
    set_dropout(model, 0.25)
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}


def test_fewer_examples_are_part_of_more_and_the_same_for_every_seed(
    nsmc: tuple[Task, TaskData], standins: dict[str, Path], tmp_path: Path
) -> None:
    task, data = nsmc
    examples = data.train.examples
    ten, twenty = (subsample(examples, number) for number in (10, 20))
    assert (len(ten), len(twenty)) == (10, 20)
    assert [e for e in examples if e in twenty] == list(twenty)
    assert {e.id for e in ten} < {e.id for e in twenty}
    assert subsample(examples, None) is subsample(examples, 10_000) is examples
    result = finetune(task, standins["klue-bert"], out=tmp_path, data=data, overrides=FAST | {"train_examples": 10})
    assert result.recipe["finetune"]["train_examples"] == 10
