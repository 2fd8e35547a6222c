"""KoBEST HellaSwag: which of four sentences continues a text? (Kim et al. 2022)."""

from pathlib import Path

from corpora.characters import nfc
from downstream.families.multiple_choice import MultipleChoice
from downstream.metrics import accuracy, macro_f1
from downstream.readers import read_tsv_rows, unquote
from downstream.substitutes import OtherSplit
from downstream.task import ChoiceExample, FinetuneConfig, Task
from downstream.tasks.kobest import LICENCE, SOURCE, kobest_files

COLUMNS = ("context", "choice1", "choice2", "choice3", "choice4", "label")


def read_choices(path: Path) -> list[ChoiceExample]:
    """Read `context choice1 choice2 choice3 choice4 label` rows; there are no ids: the row number makes one."""
    return [
        ChoiceExample(
            str(number), nfc(unquote(context)), None, label, tuple(nfc(unquote(choice)) for choice in choices)
        )
        for number, (_, (context, *choices, label)) in enumerate(read_tsv_rows(path, *COLUMNS), start=1)
    ]


TASK = Task(
    name="kobest-hellaswag",
    title="KoBEST HellaSwag",
    family=MultipleChoice(num_choices=4),
    files=kobest_files("HellaSwag"),
    num_examples={"train": 2_029, "dev": 500, "test": 500},
    read=read_choices,
    metrics=(macro_f1, accuracy),
    chance=1 / 4,
    finetune=FinetuneConfig(epochs=5, batch_size=16, max_length=256),
    source=SOURCE,
    licence=LICENCE,
    eval_split="test",
    substitute=OtherSplit("dev"),
)
