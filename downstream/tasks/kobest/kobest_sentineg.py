"""KoBEST SentiNeg: polarity of reviews; those of dev and test turn others round by a negation (Kim et al. 2022)."""

from pathlib import Path

from corpora.characters import nfc
from downstream.families.classification import Classification
from downstream.metrics import accuracy, macro_f1
from downstream.readers import parse_choice, read_tsv_rows
from downstream.substitutes import OtherSplit
from downstream.task import FinetuneConfig, Task, TextExample
from downstream.tasks.kobest import LICENCE, SOURCE, kobest_files

LABELS = ("negative", "positive")


def read_reviews(path: Path) -> list[TextExample]:
    """Read the columns `ID`, `Text` and `Label`, whose order differs; label 0 is negative, 1 positive."""
    names = {str(k): label for k, label in enumerate(LABELS)}
    return [
        TextExample(id_, nfc(text), None, parse_choice(label, names, where))
        for where, (id_, text, label) in read_tsv_rows(path, "ID", "Text", "Label")
    ]


TASK = Task(
    name="kobest-sentineg",
    title="KoBEST SentiNeg",
    family=Classification(labels=LABELS),
    files=kobest_files("SentiNeg"),
    num_examples={"train": 3_649, "dev": 400, "test": 397},
    read=read_reviews,
    metrics=(macro_f1, accuracy),
    chance=1 / 2,
    finetune=FinetuneConfig(epochs=5, max_length=128),
    source=SOURCE,
    licence=LICENCE,
    eval_split="test",
    substitute=OtherSplit("dev"),
)
