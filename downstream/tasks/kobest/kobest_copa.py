"""KoBEST COPA: which of two sentences is the cause or the result of a third? (Kim et al. 2022)."""

from collections.abc import Mapping
from pathlib import Path

from corpora.characters import nfc
from downstream.families.multiple_choice import MultipleChoice
from downstream.readers import parse_choice, read_tsv_rows
from downstream.task import ChoiceExample, FinetuneConfig
from downstream.tasks.kobest._task import kobest_task

CONNECTIVES: Mapping[str, str] = {"원인": "왜냐하면", "결과": "그래서"}
"""Kind of question → conjunction behind the sentence, so that both choices continue a text."""
CHOICES: Mapping[str, str] = {"1": "0", "2": "1"}


def read_choices(path: Path) -> list[ChoiceExample]:
    """Read `ID sentence question 1 2 Answer` rows; the answer is 1 or 2."""
    rows = read_tsv_rows(path, "ID", "sentence", "question", "1", "2", "Answer")
    return [
        ChoiceExample(
            id_,
            f"{nfc(sentence)} {parse_choice(question, CONNECTIVES, where)}",
            None,
            parse_choice(answer, CHOICES, where),
            (nfc(first), nfc(second)),
        )
        for where, (id_, sentence, question, first, second, answer) in rows
    ]


TASK = kobest_task(
    "COPA",
    family=MultipleChoice(num_choices=2),
    num_examples={"train": 3_076, "dev": 500, "test": 1_000},
    read=read_choices,
    finetune=FinetuneConfig(epochs=5, batch_size=16, max_length=128),
)
