"""KoBEST WiC: does a word mean the same in two sentences? (Kim et al. 2022)."""

from pathlib import Path

from corpora.characters import nfc
from downstream.families.classification import Classification
from downstream.metrics import accuracy, macro_f1
from downstream.readers import parse_choice, read_tsv_rows
from downstream.substitutes import OtherSplit
from downstream.task import FinetuneConfig, Task, TextExample
from downstream.tasks.kobest import LICENCE, SOURCE, kobest_files

LABELS = ("false", "true")


def read_pairs(path: Path) -> list[TextExample]:
    """Read the columns `ID`, `SENTENCE1`, `SENTENCE2` and `ANSWER`; the word stands in brackets in both sentences."""
    names = {label: label for label in LABELS}
    return [
        TextExample(id_, nfc(one), nfc(two), parse_choice(answer, names, where))
        for where, (id_, one, two, answer) in read_tsv_rows(path, "ID", "SENTENCE1", "SENTENCE2", "ANSWER")
    ]


TASK = Task(
    name="kobest-wic",
    title="KoBEST WiC",
    family=Classification(labels=LABELS),
    files=kobest_files("WiC"),
    num_examples={"train": 3_318, "dev": 610, "test": 1_260},
    read=read_pairs,
    takes_pairs=True,
    metrics=(macro_f1, accuracy),
    chance=1 / 2,
    finetune=FinetuneConfig(epochs=5, max_length=128),
    source=SOURCE,
    licence=LICENCE,
    eval_split="test",
    substitute=OtherSplit("dev"),
)
