"""Distillation on a task: what a student begins with, what it loses by, that it learns, and what its folder is."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import BertConfig, BertModel, Trainer, XLNetConfig, XLNetForSequenceClassification

import downstream.finetuning.arguments
import downstream.finetuning.distillation
from corpora.foundation.errors import CheckpointError, DataError, RecipeError, UsageError
from corpora.foundation.machine import training_precision
from downstream.distill import distill
from downstream.encoders.folder import TASK_KEY, ModelFolder
from downstream.encoders.tokenizers import load_tokenizer
from downstream.finetune import TaskData, finetune, load_finetuned
from downstream.finetuning.batches import NO_LABEL, FeatureDataset, PaddingCollator, draw_few, subsample
from downstream.finetuning.distillation import (
    TEACHER_LOGITS,
    DistillConfig,
    Teacher,
    TeacherEnsemble,
    distillation_loss,
    kept_layers,
    soft_loss,
)
from downstream.finetuning.ngrams import NgramClassifier
from downstream.finetuning.result import Result, read_result
from downstream.runtimes.network import read_finetuned
from downstream.task import Split, TextExample, get_task, read_task
from pretraining.vocabulary.tokenizer import save_tokenizer

Fails = Callable[..., AbstractContextManager[None]]

WORDS = ("시의회", "예산", "위원회", "기자", "시민", "사업", "경기", "결과")
LEARN: Mapping[str, Any] = {"epochs": 6, "batch_size": 16, "max_length": 32, "peak_lr": 3e-3}
BRIEF: Mapping[str, Any] = {"epochs": 1, "batch_size": 16, "max_length": 48, "peak_lr": 1e-3}
KINDS = ("nsmc-sample", "klue-nli-sample", "klue-sts-sample", "korquad-sample", "klue-ner")


def reviews(number: int, *, first: int = 0) -> list[TextExample]:
    """Return texts whose label hangs on one word."""
    generator = np.random.default_rng(first)
    examples = []
    for k in range(number):
        text = list(generator.choice(WORDS, 6))
        if k % 2:
            text[generator.integers(6)] = "올해"
        examples.append(TextExample(str(first + k), " ".join(text), None, "positive" if k % 2 else "negative"))
    return examples


@pytest.fixture(scope="module")
def encoder(standins: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an encoder of four layers."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = load_tokenizer(standins["klue-bert"])
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64
    )
    BertModel(config).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def data() -> TaskData:
    return TaskData(Split(tuple(reviews(256)), "0" * 64), Split(tuple(reviews(96, first=1000)), "1" * 64))


@pytest.fixture(scope="module")
def teacher(encoder: Path, data: TaskData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "out"
    result = finetune("nsmc-sample", encoder, out=out, data=data, overrides=LEARN, model="mentor")
    assert accuracy(result) > 0.9
    return out


def accuracy(result: Result) -> float:
    value = result.metrics["accuracy"]
    assert value is not None
    return value


def mentor_of(kind: str, encoder: Path, folder: Path) -> tuple[Teacher, dict[str, torch.Tensor]]:
    """Return an untrained teacher of a task, and a batch of its training split with labels."""
    from downstream.encoders.weights import load_model

    task, tokenizer = get_task(kind), load_tokenizer(encoder)
    torch.manual_seed(1)
    model = load_model(encoder, tokenizer, task.family.auto_class, task.family.head_config())
    setattr(model.config, TASK_KEY, task.name)
    model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    if kind == "klue-ner":
        examples: Any = [
            TextExample("1", "홍길동 기자", None, "B-PS I-PS I-PS O O"),
            TextExample("2", "예산", None, "O O"),
        ]
    else:
        examples = task.read_split("train", Path("/nonexistent")).examples[:6]
    features = task.family.featurize(examples, tokenizer, 64, with_labels=True)[:6]
    return Teacher(folder), PaddingCollator(tokenizer)(FeatureDataset(features))


# --- what a student begins with ---------------------------------------------------------------------------------------


def test_layers_are_spread_from_the_first_to_the_last(subtests: pytest.Subtests) -> None:
    """The first is the authors' choice, in scripts/extract.py of their code."""
    for depth, count, expected in (
        (12, 6, [0, 2, 4, 7, 9, 11]),
        (4, 2, [0, 3]),
        (12, 12, list(range(12))),
        (6, 3, [0, 2, 5]),
        (4, 1, [0]),
    ):
        with subtests.test(depth=depth, count=count):
            assert kept_layers(depth, count) == expected


def test_a_student_begins_with_its_teachers_weights(teacher: Path, data: TaskData, tmp_path: Path) -> None:
    still = {**BRIEF, "peak_lr": 1e-30, "weight_decay": 0.0}  # what is left is the start
    distill(teacher, out=tmp_path, data=data, overrides=still)
    own, whole = (load_file(folder / "model.safetensors") for folder in (tmp_path, teacher))
    source = {"0": "0", "1": "3"}
    for name, weight in own.items():
        before, is_layer, rest = name.partition("encoder.layer.")
        number, _, part = rest.partition(".")
        original = f"{before}{is_layer}{source[number]}.{part}" if is_layer else name
        assert torch.allclose(weight, whole[original], atol=1e-20), name
    assert len(whole) - len(own) == 2 * sum(".layer.1." in name for name in whole)
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == 2


def test_a_whole_student_of_an_untrained_teacher_has_nothing_to_learn_but_labels(
    encoder: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, kind in enumerate(KINDS):
        with subtests.test(kind=kind):
            folder = tmp_path / str(number)
            folder.mkdir()
            mentor, batch = mentor_of(kind, encoder, folder)
            config = DistillConfig(layers=4, hard_weight=0.0)
            student = mentor.student(config).eval()
            assert mentor.loss(student, batch, config).item() == pytest.approx(0.0, abs=1e-5)
            labels = DistillConfig(layers=4, soft_weight=1e-9, hard_weight=2.0, cosine_weight=0.0)
            expected = 2 * student(**batch).loss.item()
            assert mentor.loss(student, batch, labels).item() == pytest.approx(expected, rel=1e-5)


def test_padding_is_no_part_of_the_loss(encoder: Path, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, kind in enumerate(KINDS):
        with subtests.test(kind=kind):
            folder = tmp_path / str(number)
            folder.mkdir()
            mentor, batch = mentor_of(kind, encoder, folder)
            config = DistillConfig(layers=2, hard_weight=0.0)  # in that of spans transformers counts padding
            student = mentor.student(config).eval()
            wider = {
                name: torch.nn.functional.pad(rows, (0, 7), value=-100 if name == "labels" else 0)
                if rows.shape == batch["input_ids"].shape
                else rows
                for name, rows in batch.items()
            }
            short, wide = (mentor.loss(student, rows, config).item() for rows in (batch, wider))
            assert wide == pytest.approx(short, rel=1e-3, abs=1e-6)
            assert short > 0


# --- the losses -------------------------------------------------------------------------------------------------------


def test_the_soft_loss_is_hintons() -> None:
    """By hand: softened by 2, the distributions are (.5, .5) and (.75, .25)."""
    own, taught = torch.tensor([[0.0, 0.0]]), torch.tensor([[2 * np.log(3.0), 0.0]])
    expected = 4 * (0.75 * np.log(0.75 / 0.5) + 0.25 * np.log(0.25 / 0.5))
    mask = torch.ones(1, 3, dtype=torch.int64)
    assert float(soft_loss(get_task("nsmc").family, own, taught, mask, 2.0)) == pytest.approx(expected)


def test_scores_are_compared_by_their_squared_difference() -> None:
    mask = torch.ones(2, 3, dtype=torch.int64)
    own, taught = torch.tensor([[1.0], [2.0]]), torch.tensor([[4.0], [2.0]])
    assert float(soft_loss(get_task("klue-sts").family, own, taught, mask, 9.0)) == pytest.approx(4.5)


def test_texts_without_labels_are_no_part_of_the_hard_loss(teacher: Path, data: TaskData) -> None:
    mentor = Teacher(teacher)
    student = mentor.student(DistillConfig(layers=2)).eval()
    features = mentor.task.family.featurize(data.train.examples[:4], mentor.tokenizer, 32, with_labels=True)
    bare = [feature | {"labels": -100} for feature in features]
    collate = PaddingCollator(mentor.tokenizer)
    soft = DistillConfig(layers=2, hard_weight=0.0)
    hard = DistillConfig(layers=2, hard_weight=1.0)
    batches = [collate(FeatureDataset(rows)) for rows in (features, bare)]
    labelled, unlabelled = (mentor.loss(student, batch, hard).item() for batch in batches)
    assert unlabelled == pytest.approx(mentor.loss(student, batches[1], soft).item())
    assert labelled > unlabelled


def test_the_teacher_does_not_change(teacher: Path, data: TaskData) -> None:
    before = (teacher / "model.safetensors").read_bytes()
    mentor = Teacher(teacher)
    kept = {name: weight.clone() for name, weight in mentor._model.state_dict().items()}
    student = mentor.student(DistillConfig(layers=2)).train()
    features = mentor.task.family.featurize(data.train.examples[:4], mentor.tokenizer, 32, with_labels=True)
    mentor.loss(
        student, PaddingCollator(mentor.tokenizer)(FeatureDataset(features)), DistillConfig(layers=2)
    ).backward()
    assert not mentor._model.training
    assert all(parameter.grad is None for parameter in mentor._model.parameters())
    assert all(torch.equal(weight, kept[name]) for name, weight in mentor._model.state_dict().items())
    assert (teacher / "model.safetensors").read_bytes() == before


# --- what comes out ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def student(teacher: Path, data: TaskData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("student") / "out"
    distill(teacher, out=out, data=data)
    return out


def test_a_student_of_half_the_layers_keeps_97_percent_of_the_accuracy(teacher: Path, student: Path) -> None:
    own, whole = (read_result(folder / "result.json") for folder in (student, teacher))
    assert accuracy(own) >= 0.97 * accuracy(whole)
    assert own.num_parameters < whole.num_parameters
    assert own.model == "mentor-2l"
    settings = own.recipe["finetune"]
    assert settings["layers"] == 2
    assert {key: settings[key] for key in whole.recipe["finetune"]} == whole.recipe["finetune"]
    assert own.recipe["encoder_sha256"] != whole.recipe["encoder_sha256"]


def test_a_student_is_a_fine_tuned_folder(student: Path, data: TaskData) -> None:
    from downstream.runtimes.predictor import Predictor

    model, _, task = load_finetuned(student)
    assert (task.name, len(model.base_model.encoder.layer)) == ("nsmc-sample", 2)
    finetuned = read_finetuned(student)
    assert finetuned.max_length == 32
    result = read_result(student / "result.json")
    assert Predictor.load(student, "torch").predict(data.eval.examples) == result.predictions
    card = ModelCard.load(student / "README.md")
    assert "2 of its teacher's 4 layers" in card.text
    assert "python -m downstream.distill TEACHER --out DIR --seed 0" in card.text
    assert {path.name for path in student.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}


def test_a_student_may_be_a_teacher(student: Path, data: TaskData, tmp_path: Path) -> None:
    result = distill(student, out=tmp_path, data=data, overrides=BRIEF)
    assert result.recipe["finetune"]["layers"] == 1
    assert result.model == "mentor-2l-1l"


def test_a_seed_fixes_every_byte_and_a_finished_folder_is_left(
    teacher: Path, data: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    for name, seed in (("one", 3), ("again", 3), ("other", 4)):
        distill(teacher, out=tmp_path / name, data=data, overrides=BRIEF, seed=seed)
    one, again, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "again", "other"))
    assert one == again != other

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it trains")

    monkeypatch.setattr(Trainer, "train", never)
    kept = distill(teacher, out=tmp_path / "one", data=data, overrides=BRIEF, seed=3)
    assert kept == read_result(tmp_path / "one" / "result.json")
    with fails(UsageError, tmp_path / "one", "another run"):
        distill(teacher, out=tmp_path / "one", data=data, overrides={**BRIEF, "temperature": 4}, seed=3)


def test_an_interrupted_run_ends_like_one_that_was_not(
    teacher: Path, data: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downstream.finetuning.arguments, "CHECKPOINT_STEPS", 5)
    whole = distill(teacher, out=tmp_path / "whole", data=data, overrides=BRIEF)
    original = Trainer.training_step
    with monkeypatch.context() as patch:

        def step(trainer: Trainer, *arguments: Any, **options: Any) -> Any:
            if trainer.state.global_step == 12:
                raise KeyboardInterrupt
            return original(trainer, *arguments, **options)

        patch.setattr(Trainer, "training_step", step)
        with pytest.raises(KeyboardInterrupt):
            distill(teacher, out=tmp_path / "cut", data=data, overrides=BRIEF)
    assert not (tmp_path / "cut" / "result.json").exists()
    continued = distill(teacher, out=tmp_path / "cut", data=data, overrides=BRIEF)
    assert continued.predictions == whole.predictions
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut"))
    assert one == other


# --- texts without labels ---------------------------------------------------------------------------------------------


def test_texts_without_labels_are_learned_from_and_those_of_the_splits_left_out(
    teacher: Path, data: TaskData, tmp_path: Path
) -> None:
    fresh = [example.text for example in reviews(40, first=5000)]
    known = [data.eval.examples[0].text, data.train.examples[0].text.replace(" ", "  "), fresh[0]]
    (tmp_path / "texts.txt").write_text("\n".join(fresh + known) + "\n", encoding="utf-8")
    plain = distill(teacher, out=tmp_path / "plain", data=data, overrides=BRIEF)
    more = distill(teacher, out=tmp_path / "more", data=data, overrides=BRIEF, unlabelled=[tmp_path / "texts.txt"])
    assert (more.recipe["unlabelled"]["num_texts"], more.recipe["unlabelled"]["num_left_out"]) == (40, 3)
    assert more.recipe_sha256 != plain.recipe_sha256
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "more"))
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert "40 unlabelled texts" in ModelCard.load(tmp_path / "more" / "README.md").text


# --- students of their own --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stranger(standins: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an encoder of another width, depth and vocabulary than the teacher's."""
    folder = tmp_path_factory.mktemp("stranger") / "stranger"
    tokenizer = load_tokenizer(standins["mbert"])
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=48, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    BertModel(config).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    return folder


def test_another_encoder_learns_the_logits_of_a_teacher(
    teacher: Path, stranger: Path, data: TaskData, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = goals_of(monkeypatch)
    settings = {**LEARN, "epochs": 4, "hard_weight": 0.0, "max_length": 48, "precision": "fp32"}
    result = distill(teacher, out=tmp_path / "out", student=stranger, data=data, unlabelled=[texts], overrides=settings)
    (goals,) = seen
    fresh = reviews(40, first=5000)
    np.testing.assert_allclose(goals, logits_of(teacher, [*data.train.examples, *fresh]), atol=1e-4)
    # It has seen no label: what it knows is the teacher's.
    assert accuracy(result) > 0.8
    assert result.model == "stranger"
    assert result.recipe["teachers_sha256"] == [ModelFolder(teacher).digest()]
    assert result.recipe["encoder_sha256"] == ModelFolder(stranger).digest()
    config = ModelFolder(tmp_path / "out").config
    assert (config["hidden_size"], config["num_hidden_layers"]) == (48, 2)
    card = ModelCard.load(tmp_path / "out" / "README.md").text
    assert "Fine-tuned on the outputs of mentor, also trained on 40 unlabelled texts" in card
    assert "python -m downstream.distill TEACHER --unlabelled FILE --student ENCODER" in card


def test_a_student_of_its_own_has_the_settings_of_the_task(
    teacher: Path, stranger: Path, data: TaskData, tmp_path: Path
) -> None:
    brief = {key: BRIEF[key] for key in ("epochs", "max_length")}
    result = distill(teacher, out=tmp_path / "out", student=stranger, data=data, overrides=brief)
    task = get_task("nsmc-sample").finetune
    assert result.recipe["finetune"]["peak_lr"] == task.peak_lr != LEARN["peak_lr"]
    assert result.recipe["finetune"]["cosine_weight"] == 0


def test_pairs_without_scores_are_learned_from(
    encoder: Path, stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mentor_of("klue-sts-sample", encoder, tmp_path / "teacher")
    splits = read_task(get_task("klue-sts-sample"), tmp_path)
    held_out, known = splits.eval.examples[0], splits.train.examples[0]
    pairs = [
        *({"text": f"올해 예산 {k}", "pair": f"내년 예산 {k}"} for k in range(10)),
        {"text": known.text, "pair": "새 글"},  # a known text in a new pair
        {"text": known.text, "pair": known.pair},
        {"text": "새 글", "pair": held_out.text.replace(" ", "  ")},
        {"text": "올해 예산 3", "pair": "내년  예산 3"},
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs), encoding="utf-8")
    seen = goals_of(monkeypatch)
    result = distill(
        tmp_path / "teacher", out=tmp_path / "out", student=stranger, unlabelled=[path], overrides=BRIEF, data=splits
    )
    assert (result.recipe["unlabelled"]["num_texts"], result.recipe["unlabelled"]["num_left_out"]) == (11, 3)
    assert seen[0].shape == (len(splits.train.examples) + 11, 1)


def test_scores_that_are_missing_are_no_part_of_the_hard_loss(encoder: Path, tmp_path: Path) -> None:
    mentor, batch = mentor_of("klue-sts-sample", encoder, tmp_path / "teacher")
    student = mentor.student(DistillConfig(layers=4)).eval()
    goals = torch.zeros(len(batch["labels"]), 1)
    config = DistillConfig(layers=4, soft_weight=1e-9, hard_weight=1.0, cosine_weight=0.0)
    missing = batch["labels"].clone()
    missing[0] = NO_LABEL
    loss = distillation_loss(
        mentor.task.family, student, {**batch, "labels": missing, TEACHER_LOGITS: goals}, config
    ).item()
    with torch.no_grad():
        scores = student(**{key: rows for key, rows in batch.items() if key != "labels"}).logits[:, 0]
    assert loss == pytest.approx((scores - batch["labels"])[1:].square().mean().item(), rel=1e-5)


# --- several teachers -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def colleague(encoder: Path, data: TaskData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a teacher that knows less."""
    out = tmp_path_factory.mktemp("colleague") / "out"
    finetune("nsmc-sample", encoder, out=out, data=data, overrides=BRIEF, model="colleague", seed=5)
    return out


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(example.text for example in reviews(40, first=5000)) + "\n", encoding="utf-8")
    return path


def goals_of(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that will hold the goals of the trainings to come."""
    seen, original = [], TeacherEnsemble.logits

    def goals(council: Any, *arguments: Any) -> Any:
        seen.append(original(council, *arguments))
        return seen[-1]

    monkeypatch.setattr(TeacherEnsemble, "logits", goals)
    return seen


def logits_of(folder: Path, examples: Sequence[TextExample]) -> Any:
    """Return what a fine-tuned model says of each text on its own, (N, C)."""
    model, tokenizer, _ = load_finetuned(folder)
    rows = []
    for example in examples:
        inputs = tokenizer(example.text, truncation=True, max_length=48, return_tensors="pt")
        rows.append(model.eval()(**inputs).logits.detach().numpy()[0])
    return np.stack(rows)


def test_of_several_teachers_the_mean_is_learned_and_ngrams_speak_of_texts_without_labels(
    teacher: Path, colleague: Path, data: TaskData, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = goals_of(monkeypatch)
    settings = {
        **BRIEF,
        "layers": 4,
        "cosine_weight": 0.0,
        "ngram_weight": 2.0,
        "train_examples": 64,
        "precision": "fp32",
    }
    result = distill(teacher, colleague, out=tmp_path / "out", data=data, unlabelled=[texts], overrides=settings)
    (goals,) = seen
    labelled = subsample(data.train.examples, 64)
    fresh = reviews(40, first=5000)
    expected = np.mean([logits_of(folder, [*labelled, *fresh]) for folder in (teacher, colleague)], axis=0)
    ngrams = NgramClassifier([e.text for e in labelled], [str(e.label) for e in labelled])
    expected[64:] += 2.0 * ngrams.log_probabilities([e.text for e in fresh], ("negative", "positive"))
    np.testing.assert_allclose(goals, expected, atol=1e-4)
    assert result.recipe["further_teachers_sha256"] == [ModelFolder(colleague).digest()]
    card = ModelCard.load(tmp_path / "out" / "README.md").text
    assert "4 of its teacher's 4 layers, of 2 teachers, also trained on 40 unlabelled texts" in card
    assert "python -m downstream.distill TEACHER TEACHER --unlabelled FILE" in card


def test_given_logits_are_learned_in_place_of_the_teachers_own(teacher: Path, data: TaskData) -> None:
    mentor = Teacher(teacher)
    student = mentor.student(DistillConfig(layers=4)).eval()
    features = mentor.task.family.featurize(data.train.examples[:4], mentor.tokenizer, 32, with_labels=True)
    soft = DistillConfig(layers=4, hard_weight=0.0, cosine_weight=0.0)
    collate = PaddingCollator(mentor.tokenizer)
    goals = np.array([[3.0, -1.0], [0.0, 0.0], [0.5, 2.0], [-2.0, 2.0]], dtype=np.float32)
    batch = collate(
        FeatureDataset(
            [feature | {TEACHER_LOGITS: goal} for feature, goal in zip(features, goals.tolist(), strict=True)]
        )
    )
    logits = student(**collate(FeatureDataset(features))).logits
    expected = soft_loss(mentor.task.family, logits, torch.tensor(goals), batch["attention_mask"], soft.temperature)
    assert mentor.loss(student, batch, soft).item() == pytest.approx(soft.soft_weight * expected.item(), rel=1e-5)
    assert mentor.loss(student, collate(FeatureDataset(features)), soft).item() == pytest.approx(0.0, abs=1e-5)


def test_what_a_teacher_said_before_a_kill_is_not_asked_again(
    teacher: Path, colleague: Path, data: TaskData, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = {"data": data, "unlabelled": [texts], "overrides": BRIEF}
    whole = distill(teacher, colleague, out=tmp_path / "whole", **settings)
    asked, original = [], downstream.finetuning.distillation.compute_logits

    def outputs(*arguments: Any, title: str, **options: Any) -> Any:
        assert options["precision"] == training_precision()  # as teachers that answer during training
        if len(asked) == 1:
            asked.append("killed")
            raise KeyboardInterrupt
        asked.append(title)
        return original(*arguments, title=title, **options)

    monkeypatch.setattr(downstream.finetuning.distillation, "compute_logits", outputs)
    with pytest.raises(KeyboardInterrupt):
        distill(teacher, colleague, out=tmp_path / "cut", **settings)
    continued = distill(teacher, colleague, out=tmp_path / "cut", **settings)
    assert len(asked) == 3
    assert continued.predictions == whole.predictions
    assert not (tmp_path / "cut" / "checkpoints").exists()


def test_further_seeds_read_what_the_teacher_said_to_the_first(
    teacher: Path, stranger: Path, data: TaskData, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = {"data": data, "unlabelled": [texts], "student": stranger, "overrides": BRIEF}
    plain = distill(teacher, out=tmp_path / "plain", seed=1, **settings)
    kept = tmp_path / "kept"
    distill(teacher, out=tmp_path / "first", seed=0, logits=kept, **settings)
    [path] = kept.iterdir()
    asked, original = [], downstream.finetuning.distillation.compute_logits

    def outputs(*arguments: Any, **options: Any) -> Any:
        asked.append(options["title"])
        return original(*arguments, **options)

    monkeypatch.setattr(downstream.finetuning.distillation, "compute_logits", outputs)
    second = distill(teacher, out=tmp_path / "second", seed=1, logits=kept, **settings)
    assert not asked
    assert second.predictions == plain.predictions
    assert second.recipe == plain.recipe
    # Other texts, and inputs that are cut elsewhere, are other logits.
    for change in ({"unlabelled": []}, {"overrides": {**BRIEF, "max_length": 8}}):
        distill(teacher, out=tmp_path / str(len(asked)), logits=kept, **(settings | change))
    assert len(asked) == 2
    assert len(list(kept.iterdir())) == 3
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError):
        distill(teacher, out=tmp_path / "damaged", logits=kept, **settings)


def test_logits_of_a_single_teacher_that_answers_during_training_are_not_kept(
    teacher: Path, data: TaskData, tmp_path: Path, fails: Fails
) -> None:
    with fails(UsageError, "--logits", "computed during training"):
        distill(teacher, out=tmp_path / "out", data=data, logits=tmp_path / "kept", overrides=BRIEF)
    assert not (tmp_path / "kept").exists()


def test_a_student_of_a_few_shot_teacher_sees_the_examples_of_its_seed(
    encoder: Path, stranger: Path, data: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = get_task("nsmc-16shot-sample")
    finetune(task, encoder, out=tmp_path / "teacher", data=data, overrides=BRIEF)
    seen = goals_of(monkeypatch)
    settings = {**BRIEF, "precision": "fp32"}
    distill(tmp_path / "teacher", out=tmp_path / "out", student=stranger, seed=3, data=data, overrides=settings)
    few = draw_few(task, data.train.examples, 3)
    assert len(few) == 16
    np.testing.assert_allclose(seen[0], logits_of(tmp_path / "teacher", few), atol=1e-4)


def test_teachers_of_different_tasks_are_refused(
    teacher: Path, encoder: Path, data: TaskData, tmp_path: Path, fails: Fails
) -> None:
    mentor_of("klue-nli-sample", encoder, tmp_path / "other")
    with fails(UsageError, tmp_path / "other", "fine-tuned on klue-nli-sample, the first teacher on nsmc-sample"):
        distill(teacher, tmp_path / "other", out=tmp_path / "out", data=data)
    mentor_of("korquad-sample", encoder, tmp_path / "reader")
    with fails(UsageError, "teachers", "does not label or score a text as a whole"):
        distill(tmp_path / "reader", tmp_path / "reader", out=tmp_path / "out")


def test_ngrams_need_texts_to_speak_of(teacher: Path, data: TaskData, tmp_path: Path, fails: Fails) -> None:
    with fails(UsageError, "ngram_weight", "--unlabelled"):
        distill(teacher, out=tmp_path / "out", data=data, overrides={"ngram_weight": 1})


def test_ngrams_do_not_speak_of_pairs(encoder: Path, tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"text": "글", "pair": "말"}\n', encoding="utf-8")
    for kind in ("klue-sts-sample", "klue-nli-sample"):
        mentor_of(kind, encoder, tmp_path / kind)
        with fails(UsageError, "ngram_weight", "does not label single texts"):
            distill(
                tmp_path / kind,
                out=tmp_path / "out",
                unlabelled=[tmp_path / "pairs.jsonl"],
                overrides={"ngram_weight": 1},
            )


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_pairs_need_both_texts_and_answers_have_no_texts_without_labels(
    encoder: Path, tmp_path: Path, fails: Fails
) -> None:
    mentor_of("klue-nli-sample", encoder, tmp_path / "teacher")
    (tmp_path / "texts.txt").write_text("글\n", encoding="utf-8")
    with fails(DataError, f"{tmp_path}/texts.txt:1", "missing column 'pair'"):
        distill(tmp_path / "teacher", out=tmp_path / "out", unlabelled=[tmp_path / "texts.txt"])
    (tmp_path / "pairs.jsonl").write_text(
        '{"text": "글", "pair": "말"}\n{"text": "글", "pair": " "}\n', encoding="utf-8"
    )
    with fails(DataError, f"{tmp_path}/pairs.jsonl:2", "no second text", "columns text and pair"):
        distill(tmp_path / "teacher", out=tmp_path / "out", unlabelled=[tmp_path / "pairs.jsonl"])
    mentor_of("korquad-sample", encoder, tmp_path / "reader")
    with fails(UsageError, "--unlabelled", "does not label or score a text as a whole"):
        distill(tmp_path / "reader", out=tmp_path / "out", unlabelled=[tmp_path / "texts.txt"])


def test_a_wrong_setting_is_named(
    teacher: Path, data: TaskData, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"layer": 2}, "did you mean 'layers'?"),
        ({"layers": 5}, "layers=5, the teacher has 4"),
        ({"layers": 0}, "layers=0"),
        ({"features": "last"}, "a student has its teacher's head"),
        ({"temperature": 0}, "temperature=0"),
        ({"soft_weight": -1}, "soft_weight=-1"),
    ]
    for overrides, what in cases:
        with subtests.test(overrides=overrides):
            where = "distillation" if overrides in ({"layers": 5}, {"features": "last"}) else "nsmc-sample distillation"
            with fails(RecipeError, where, what):
                distill(teacher, out=tmp_path / "out", data=data, overrides=overrides)
            assert not (tmp_path / "out").exists()


def test_a_student_of_its_own_has_its_layers_and_no_cosine_loss(
    teacher: Path, stranger: Path, encoder: Path, data: TaskData, tmp_path: Path, fails: Fails
) -> None:
    for overrides, what in (({"layers": 2}, "layers=2"), ({"cosine_weight": 0.5}, "cosine_weight=0.5")):
        with fails(RecipeError, "distillation", what, "leave it out"):
            distill(teacher, out=tmp_path / "out", student=stranger, data=data, overrides=overrides)
    mentor_of("korquad-sample", encoder, tmp_path / "reader")
    with fails(UsageError, "teachers", "does not label or score a text as a whole", "--student"):
        distill(tmp_path / "reader", out=tmp_path / "out", student=stranger)


def test_what_is_no_teacher_is_refused(encoder: Path, tmp_path: Path, data: TaskData, fails: Fails) -> None:
    with fails(CheckpointError, encoder, "which task it was fine-tuned on"):
        distill(encoder, out=tmp_path / "out", data=data)
    task, tokenizer = get_task("nsmc-sample"), load_tokenizer(encoder)
    config = XLNetConfig(vocab_size=len(tokenizer), d_model=32, n_layer=2, n_head=2, d_inner=64, num_labels=2)
    config.update({TASK_KEY: task.name})
    XLNetForSequenceClassification(config).save_pretrained(tmp_path / "xlnet")
    for path in encoder.glob("*token*"):
        shutil.copy(path, tmp_path / "xlnet")
    with fails(CheckpointError, tmp_path / "xlnet", "cannot be removed one by one"):
        distill(tmp_path / "xlnet", out=tmp_path / "out", data=data)


def test_a_teacher_with_another_kind_of_head_is_refused(
    encoder: Path, tmp_path: Path, data: TaskData, fails: Fails
) -> None:
    few = TaskData(Split(data.train.examples[:16], "0" * 64), Split(data.eval.examples[:8], "1" * 64))
    finetune("nsmc-sample", encoder, out=tmp_path / "bilstm", data=few, overrides={**BRIEF, "features": "last"})
    with fails(CheckpointError, tmp_path / "bilstm", "cannot be removed one by one"):
        distill(tmp_path / "bilstm", out=tmp_path / "out", data=few)


@pytest.mark.slow
def test_the_command_prints_student_and_teacher(encoder: Path, tmp_path: Path) -> None:
    teacher, out = tmp_path / "teacher", tmp_path / "out"
    settings = {**BRIEF, "max_length": 16}
    taught = finetune("nsmc-sample", encoder, out=teacher, overrides=settings)
    command = [sys.executable, "-m", "downstream.distill", str(teacher), "--out", str(out), "--set", "temperature=3"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PRESSBERT_DATA": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False)
    assert done.returncode == 0, done.stderr
    result = read_result(out / "result.json")
    assert json.loads(done.stdout) == {"task": "nsmc-sample", "metrics": result.metrics, "teachers": [taught.metrics]}
    assert result.recipe["finetune"]["temperature"] == 3
    assert "Traceback" not in done.stderr
