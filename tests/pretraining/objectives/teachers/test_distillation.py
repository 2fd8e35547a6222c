"""DistilBERT: the student begins with its teacher's layers and learns what the teacher expects."""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, BertModel

from corpora.foundation.errors import CheckpointError, RecipeError
from pretraining.data.shards import Sharded
from pretraining.objectives.teachers.distillation import Distillation, DistillationConfig, DistillationModel
from pretraining.training.batches import BatchSource

Corpus = Callable[[list[Any]], Any]
Draw = Callable[..., Any]
Fails = Callable[..., AbstractContextManager[None]]

SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.2,
}
"""Weights large enough that networks disagree."""


@pytest.fixture(scope="module")
def news(numbered: Corpus, structure: Draw) -> Any:
    return numbered([structure(60, seed=1)])


@pytest.fixture(scope="module")
def vocab_size(news: Any) -> int:
    return int(news.layout(48, isolate_documents=True, seed=0).specials.vocab_size)


@pytest.fixture(scope="module")
def teacher(vocab_size: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    torch.manual_seed(1)
    BertForMaskedLM(BertConfig(vocab_size=vocab_size, num_hidden_layers=6, **SIZE)).save_pretrained(folder)
    return folder


def make_source(corpus: Any, **settings: Any) -> BatchSource:
    objective = Distillation(DistillationConfig(**settings), corpus.layout(48, isolate_documents=True, seed=0))
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, 8)


def make_student(source: BatchSource, num_layers: int = 3, **changes: Any) -> DistillationModel:
    specials = source.objective.layout.specials
    config = BertConfig(vocab_size=specials.vocab_size, num_hidden_layers=num_layers, **(SIZE | changes))
    model = source.objective.build_model(config)
    assert isinstance(model, DistillationModel)
    model.use_attention(torch.device("cpu"))
    return model


def batch_of(source: BatchSource) -> dict[str, torch.Tensor]:
    return source.micro_batches(0, process=0, num_processes=1, size=8)[0]


def test_a_student_begins_with_every_nth_layer(news: Any, teacher: Path, subtests: pytest.Subtests) -> None:
    for num_layers, taken in [(3, [0, 2, 4]), (2, [0, 3]), (6, [0, 1, 2, 3, 4, 5]), (4, [0, 1, 3, 4])]:
        with subtests.test(num_layers=num_layers):
            student = make_student(make_source(news, teacher=str(teacher)), num_layers).network
            whole = AutoModelForMaskedLM.from_pretrained(teacher)
            for own, source in enumerate(taken):
                ours, theirs = student.bert.encoder.layer[own], whole.bert.encoder.layer[source]
                for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
                    assert torch.equal(mine, other), name
            assert torch.equal(
                student.bert.embeddings.position_embeddings.weight, whole.bert.embeddings.position_embeddings.weight
            )
            assert torch.equal(
                student.cls.predictions.transform.dense.weight, whole.cls.predictions.transform.dense.weight
            )


def test_a_student_that_is_its_teacher_has_nothing_to_learn_from_it(news: Any, teacher: Path) -> None:
    source = make_source(news, teacher=str(teacher))
    with torch.no_grad():
        outputs, batch = make_student(source, 6)(**(batch := batch_of(source))), batch
    assert outputs["soft_loss"].item() == pytest.approx(0, abs=1e-3)
    assert outputs["soft_correct"].item() == len(batch["masked_positions"])
    assert outputs["cosine_loss"].item() == pytest.approx(0, abs=1e-3)
    assert outputs["cosine_correct"].item() == pytest.approx(len(batch["text_positions"]), rel=1e-6)


def test_losses_are_those_of_the_paper(news: Any, teacher: Path) -> None:
    source = make_source(news, teacher=str(teacher), temperature=3.0)
    student, batch = make_student(source), batch_of(source)
    whole = AutoModelForMaskedLM.from_pretrained(teacher).eval()
    plain = student.export({name: p.detach() for name, p in student.named_parameters()}).eval()
    own = {"mlm": 0.0, "soft": 0.0, "cosine": 0.0}
    rows, width = batch["input_ids"].shape
    for row in range(rows):
        for number in range(1, int(batch["sequence_ids"][row].max()) + 1):
            at = (batch["sequence_ids"][row] == number).nonzero().squeeze(1)
            inputs = {"input_ids": batch["input_ids"][row, at][None], "output_hidden_states": True}
            with torch.no_grad():
                taught, learnt = whole(**inputs), plain(**inputs)
            masked = {
                int(p) % width: int(i)
                for p, i in zip(batch["masked_positions"], batch["masked_ids"], strict=True)
                if int(p) // width == row
            }
            for place, position in enumerate(at.tolist()):
                if position in masked:
                    target, scores = taught.logits[0, place].double(), learnt.logits[0, place].double()
                    own["mlm"] -= scores.log_softmax(-1)[masked[position]].item()
                    p, q = (target / 3).softmax(-1), (scores / 3).softmax(-1)
                    own["soft"] += 9 * (p * (p / q).log()).sum().item()
                if row * width + position in set(batch["text_positions"].tolist()):
                    pair = (taught.hidden_states[-1][0, place].double(), learnt.hidden_states[-1][0, place].double())
                    own["cosine"] += 1 - torch.cosine_similarity(*pair, dim=0).item()
    with torch.no_grad():
        outputs = student(**batch)
    for name, value in own.items():
        assert outputs[f"{name}_loss"].item() == pytest.approx(value, rel=1e-4), name


def test_the_teacher_neither_learns_nor_is_saved(news: Any, teacher: Path) -> None:
    source = make_source(news, teacher=str(teacher))
    student = make_student(source)
    outputs = student(**batch_of(source))
    sum(outputs[f"{term.name}_loss"] * term.weight for term in source.objective.terms).backward()
    assert all(p.grad is not None for p in student.network.bert.encoder.parameters())
    assert all(p.grad is None for p in student._teacher[0].parameters())
    assert not student._teacher[0].training
    student.train()
    assert not student._teacher[0].training
    state = {name: p.detach() for name, p in student.named_parameters()}
    assert all(name.startswith("network.") for name in state)
    assert student.objective_parts(state) == {}


def test_a_teacher_that_does_not_fit_is_an_error_before_training(
    news: Any, teacher: Path, vocab_size: int, tmp_path: Path, fails: Fails
) -> None:
    with fails(RecipeError, "objective.teacher", "not a model folder"):
        make_student(make_source(news, teacher=str(tmp_path)))
    with fails(RecipeError, "recipe", "model.hidden_size=16", "32"):
        make_student(make_source(news, teacher=str(teacher)), hidden_size=16)
    with fails(RecipeError, "recipe", "model.num_hidden_layers=7", "6"):
        make_student(make_source(news, teacher=str(teacher)), 7)
    other = tmp_path / "other"
    BertForMaskedLM(BertConfig(vocab_size=vocab_size + 1, num_hidden_layers=6, **SIZE)).save_pretrained(other)
    with fails(RecipeError, "recipe", f"{vocab_size:,}"):
        make_student(make_source(news, teacher=str(other)))
    headless = tmp_path / "headless"
    BertModel(BertConfig(vocab_size=vocab_size, num_hidden_layers=6, **SIZE)).save_pretrained(headless)
    with fails(CheckpointError, headless, "is missing", "masked-LM head"):
        make_student(make_source(news, teacher=str(headless)))


def test_the_teachers_weights_are_part_of_what_a_run_was_trained_on(news: Any, teacher: Path) -> None:
    sources = make_source(news, teacher=str(teacher)).objective.sources
    assert [path.name for path in sources] == ["model.safetensors"]


def test_a_student_takes_the_positions_it_has(news: Any, teacher: Path) -> None:
    student = make_student(make_source(news, teacher=str(teacher)), max_position_embeddings=40)
    assert student.network.bert.embeddings.position_embeddings.weight.shape == (40, 32)


def test_rows_longer_than_the_teacher_reads_are_an_error(news: Any, teacher: Path, fails: Fails) -> None:
    source = make_source(news, teacher=str(teacher))
    layout = dataclasses.replace(source.objective.layout, max_length=49)
    objective = type(source.objective)(source.objective.config, layout)
    config = BertConfig(vocab_size=layout.specials.vocab_size, num_hidden_layers=2, **SIZE)
    with fails(RecipeError, "recipe", "data.max_length=49", "48 positions"):
        objective.build_model(config)
