"""KoBEST BoolQ: is the answer to a question about a passage yes? (Kim et al. 2022)."""

from pathlib import Path

from corpora.characters import nfc
from downstream.families.classification import Classification
from downstream.metrics import accuracy, macro_f1
from downstream.readers import parse_choice, read_tsv_rows
from downstream.substitutes import OtherSplit
from downstream.task import FinetuneConfig, Task, TextExample
from downstream.tasks.kobest import LICENCE, SOURCE, kobest_files

LABELS = ("false", "true")


def read_questions(path: Path) -> list[TextExample]:
    """Read `ID Text Question Answer` rows; the answer is `True` or `FALSE` in any case."""
    names = {label: label for label in LABELS}
    return [
        TextExample(id_, nfc(passage), nfc(question), parse_choice(answer, names, where))
        for where, (id_, passage, question, answer) in read_tsv_rows(path, "ID", "Text", "Question", "Answer")
    ]


TASK = Task(
    name="kobest-boolq",
    title="KoBEST BoolQ",
    family=Classification(labels=LABELS),
    files=kobest_files("BoolQ"),
    num_examples={"train": 3_665, "dev": 700, "test": 1_404},
    read=read_questions,
    takes_pairs=True,
    metrics=(macro_f1, accuracy),
    chance=1 / 2,
    finetune=FinetuneConfig(epochs=5, batch_size=16, max_length=256),
    source=SOURCE,
    licence=LICENCE,
    eval_split="test",
    substitute=OtherSplit("dev"),
)
