"""KoBEST BoolQ: is the answer to a question about a passage yes? (Kim et al. 2022)."""

from functools import partial

from downstream.families.classification import Classification
from downstream.metrics import accuracy, macro_f1
from downstream.readers import read_labelled_rows
from downstream.substitutes import OtherSplit
from downstream.task import FinetuneConfig, Task
from downstream.tasks.kobest import LICENCE, SOURCE, kobest_files

LABELS = ("false", "true")

TASK = Task(
    name="kobest-boolq",
    title="KoBEST BoolQ",
    family=Classification(labels=LABELS),
    files=kobest_files("BoolQ"),
    num_examples={"train": 3_665, "dev": 700, "test": 1_404},
    # The answer is `True` or `FALSE` in any case.
    read=partial(
        read_labelled_rows,
        columns=("ID", "Text", "Question", "Answer"),
        labels={label: label for label in LABELS},
    ),
    takes_pairs=True,
    metrics=(macro_f1, accuracy),
    chance=1 / 2,
    finetune=FinetuneConfig(epochs=5, batch_size=16, max_length=256),
    source=SOURCE,
    licence=LICENCE,
    eval_split="test",
    substitute=OtherSplit("dev"),
)
