"""Multiple choice: what a model reads, what comes out, and that the loss is transformers' own."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpora.foundation.errors import DataError
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.families.multiple_choice import MultipleChoice, pad_choices
from downstream.finetune import TaskData, finetune, load_finetuned, predict, read_task
from downstream.task import ChoiceExample, Split, get_task

Fails = Callable[..., AbstractContextManager[None]]

FAMILY = MultipleChoice(4)
NOWHERE = Path("/nonexistent")
EXAMPLES = [
    ChoiceExample("a", "시의회가 예산을 늘렸다.", None, "2", ("비가 왔다.", "눈이 왔다.", "시민이 반겼다.", "끝.")),
    ChoiceExample("b", "경기가 끝났다. " * 40, None, "0", ("이겼다.", "졌다 하고 말했다.", "비겼다.", "모두 떠났다.")),
]


@pytest.fixture(scope="module")
def tokenizer(standins: dict[str, Path]) -> Any:
    return load_tokenizer(standins["klue-bert"])


def test_a_damaged_example_is_refused(fails: Fails, subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"label": "4"}, "label '4' is not a choice"),
        ({"label": "x"}, "label 'x' is not a choice"),
        ({"choices": ("가", "나", "다")}, "3 different choices where there should be 4"),
        ({"choices": ("가", "나", "다", "가")}, "3 different choices where there should be 4"),
    ]
    for changed, what in cases:
        with subtests.test(what=what):
            FAMILY.check(EXAMPLES[0], "here")
            with fails(DataError, "here", what):
                FAMILY.check(replace(EXAMPLES[0], **changed), "here")


def test_every_choice_is_read_behind_the_end_of_the_text(tokenizer: Any) -> None:
    features = FAMILY.featurize(EXAMPLES, tokenizer, 32, with_labels=True)
    assert [feature["labels"] for feature in features] == [2, 0]
    assert [feature["_example"] for feature in features] == [0, 1]
    for feature, example in zip(features, EXAMPLES, strict=True):
        whole = tokenizer(example.text)["input_ids"][1:-1]
        for ids, types, choice in zip(feature["input_ids"], feature["token_type_ids"], example.choices, strict=True):
            own = tokenizer(choice)["input_ids"][1:-1]
            context = [i for i, side in zip(ids[1:-1], types[1:-1], strict=True) if side == 0][:-1]
            assert len(ids) <= 32
            assert [i for i, side in zip(ids, types, strict=True) if side == 1] == [*own, tokenizer.sep_token_id]
            assert context == whole[-len(context) :]
    assert tokenizer.truncation_side == "right"


def test_a_batch_has_a_row_for_every_choice_and_its_loss_is_the_cross_entropy_over_them(
    standins: dict[str, Path], tokenizer: Any
) -> None:
    features = FAMILY.featurize(EXAMPLES, tokenizer, 48, with_labels=True)
    rows = [{key: value for key, value in feature.items() if not key.startswith("_")} for feature in features]
    batch = pad_choices(tokenizer, rows)
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 4, 48)
    model = load_model(standins["klue-bert"], tokenizer, FAMILY.auto_class, FAMILY.head_config()).eval()
    with torch.no_grad():
        output = model(**batch)
        alone = torch.cat(
            [
                model(**{key: torch.tensor([[row[key][c]]]) for key in row if key != "labels"}).logits.flatten()
                for row in rows
                for c in range(4)
            ]
        ).view(2, 4)
    assert torch.allclose(output.logits, alone, atol=1e-5)
    assert float(output.loss) == pytest.approx(-float(alone.log_softmax(-1)[[0, 1], [2, 0]].mean()), abs=1e-5)


def test_the_highest_choice_is_predicted() -> None:
    scores = [np.array([0.1, 0.3, 0.2, -1.0]), np.array([5.0, 0.3, 0.2, -1.0])]
    assert FAMILY.decode(scores, [{}, {}], EXAMPLES) == ["1", "0"]


def test_a_fine_tuned_folder_gives_its_predictions_again_in_batches_of_any_size(
    standins: dict[str, Path], tmp_path: Path
) -> None:
    task = get_task("news-swag-sample")
    whole = read_task(task, NOWHERE)
    data = TaskData(*(replace(s, examples=s.examples[:n]) for s, n in ((whole.train, 32), (whole.eval, 9))))
    settings = {"epochs": 1, "batch_size": 8, "max_length": 48}
    result = finetune(task, standins["klue-bert"], out=tmp_path / "out", data=data, overrides=settings)
    assert result.num_examples == 9
    model, tokenizer, loaded = load_finetuned(tmp_path / "out")
    assert loaded == task
    for batch_size in (1, 4):
        again = predict(model, tokenizer, task.family, data.eval.examples, max_length=48, batch_size=batch_size)
        assert again == result.predictions


def test_it_learns_which_choice_is_right(standins: dict[str, Path], tmp_path: Path) -> None:
    """The right choice names the text's own word; the others name another."""
    words = ("예산", "경기", "시민", "위원회")
    generator = np.random.default_rng(0)
    examples = []
    for k in range(160):
        order = generator.permutation(4)
        right = int(generator.integers(4))
        choices = tuple(f"{words[w]} {'끝' if c == right else '또'}" for c, w in enumerate(order))
        examples.append(ChoiceExample(str(k), "결과", None, str(right), choices))
    data = TaskData(Split(tuple(examples[40:]), "0" * 64), Split(tuple(examples[:40]), "1" * 64))
    settings = {"epochs": 6, "batch_size": 16, "max_length": 16, "peak_lr": 3e-3}
    task = get_task("news-swag")
    result = finetune(task, standins["klue-bert"], out=tmp_path / "out", data=data, overrides=settings)
    assert (result.metrics["accuracy"] or 0.0) > 0.9
