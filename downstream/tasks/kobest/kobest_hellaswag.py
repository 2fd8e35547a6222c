"""KoBEST HellaSwag: which of four sentences continues a text? (Kim et al. 2022)."""

from pathlib import Path

from corpora.characters import nfc
from downstream.families.multiple_choice import MultipleChoice
from downstream.readers import read_tsv_rows, unquote
from downstream.task import ChoiceExample, FinetuneConfig
from downstream.tasks.kobest._task import kobest_task

COLUMNS = ("context", "choice1", "choice2", "choice3", "choice4", "label")


def read_choices(path: Path) -> list[ChoiceExample]:
    """Read `context choice1 choice2 choice3 choice4 label` rows; there are no ids: the row number makes one."""
    return [
        ChoiceExample(
            str(number), nfc(unquote(context)), None, label, tuple(nfc(unquote(choice)) for choice in choices)
        )
        for number, (_, (context, *choices, label)) in enumerate(read_tsv_rows(path, *COLUMNS), start=1)
    ]


TASK = kobest_task(
    "HellaSwag",
    family=MultipleChoice(num_choices=4),
    num_examples={"train": 2_029, "dev": 500, "test": 500},
    read=read_choices,
    chance=1 / 4,
    finetune=FinetuneConfig(epochs=5, batch_size=16, max_length=256),
)
