"""Lengths of batches: rounded up where matrices are multiplied in 16 bits, with the same loss."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Trainer

from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.finetune import finetune
from downstream.finetuning.batches import LENGTH_MULTIPLE, FeatureDataset, PaddingCollator, micro_batches
from downstream.finetuning.prediction import compute_logits
from downstream.task import TaskData, TextExample, get_task, read_task

ROOT = Path("/nonexistent")


def few(name: str, count: int) -> TaskData:
    data = read_task(get_task(name), ROOT)
    return TaskData(*(replace(split, examples=split.examples[:count]) for split in (data.train, data.eval)))


def examples(name: str) -> list[Any]:
    if name == "klue-ner":
        return [TextExample(text, text, None, "O O O") for text in ("예산이", "예 산 이")]
    return list(few(name, 3).train.examples)


# Not of answers in texts: transformers' heads for them count padding among the places where an answer may begin.
@pytest.mark.parametrize("name", ["nsmc-sample", "klue-sts-sample", "klue-ner", "news-swag-sample"])
def test_rounded_lengths_change_neither_loss_nor_texts(standins: dict[str, Path], name: str) -> None:
    folder, family = standins["klue-bert"], get_task(name).family
    tokenizer = load_tokenizer(folder)
    model = load_model(folder, tokenizer, family.auto_class, family.head_config()).eval()
    features = family.featurize(examples(name), tokenizer, 61, with_labels=True)
    dataset = FeatureDataset(features)
    rows = [dataset[k] for k in range(len(dataset))]
    plain, rounded = PaddingCollator(tokenizer)(rows), PaddingCollator(tokenizer, 8)(rows)
    length = plain["input_ids"].shape[-1]
    assert length % 8, "the test needs a length to round up"
    assert rounded["input_ids"].shape == (*plain["input_ids"].shape[:-1], -(-length // 8) * 8)
    assert torch.equal(rounded["input_ids"][..., :length], plain["input_ids"])
    assert int(rounded["attention_mask"][..., length:].sum()) == 0
    with torch.no_grad():
        losses = [float(model(**batch).loss) for batch in (plain, rounded)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def test_logits_in_16_bits_are_those_in_32_but_for_rounding(standins: dict[str, Path]) -> None:
    folder, family = standins["klue-bert"], get_task("nsmc-sample").family
    tokenizer = load_tokenizer(folder)
    model = load_model(folder, tokenizer, family.auto_class, family.head_config())
    features = family.featurize(few("nsmc-sample", 20).train.examples, tokenizer, 61, with_labels=False)
    exact, rough = (
        torch.tensor(np.stack(compute_logits(model, tokenizer, family, features, batch_size=7, precision=precision)))
        for precision in ("fp32", "bf16")
    )
    assert exact.dtype == rough.dtype == torch.float32
    assert not torch.equal(exact, rough)
    torch.testing.assert_close(rough, exact, rtol=0.05, atol=0.01)


def test_parts_of_a_batch_are_rounded_up_to_its_length_at_most(standins: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(standins["klue-bert"])
    rows = [{"input_ids": [5] * n, "attention_mask": [1] * n} for n in (3, 9, 20, 17)]
    batch = PaddingCollator(tokenizer)(rows)
    lengths = [part["input_ids"].shape[1] for part, _ in micro_batches(batch, 2, 8)]
    assert lengths == [16, 20]


def test_lengths_above_the_longest_input_of_an_encoder_are_not_made(standins: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(standins["klue-bert"])
    tokenizer.model_max_length = 20
    rows = [{"input_ids": [5] * n, "attention_mask": [1] * n} for n in (3, 20)]
    assert PaddingCollator(tokenizer, 8)(rows)["input_ids"].shape == (2, 20)


@pytest.mark.parametrize(("precision", "multiple"), [("bf16", LENGTH_MULTIPLE), ("fp32", 1)])
@pytest.mark.parametrize("micro_batch_size", [None, 3])
def test_a_training_in_16_bits_has_rounded_lengths(
    standins: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    multiple: int,
    micro_batch_size: int | None,
) -> None:
    lengths: list[int] = []
    compute_loss = Trainer.compute_loss

    def watched(self: Any, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        lengths.append(inputs["input_ids"].shape[1])
        return compute_loss(self, model, inputs, *arguments, **options)

    monkeypatch.setattr(Trainer, "compute_loss", watched)
    settings = {"epochs": 1, "batch_size": 4, "precision": precision, "micro_batch_size": micro_batch_size}
    finetune(
        get_task("nsmc-sample"),
        standins["klue-bert"],
        out=tmp_path / "model",
        data=few("nsmc-sample", 32),
        overrides=settings,
    )
    assert len(lengths) >= 8
    assert all(length % multiple == 0 for length in lengths)
    assert multiple > 1 or any(length % LENGTH_MULTIPLE for length in lengths)
