"""KoBEST BoolQ: is the answer to a question about a passage yes? (Kim et al. 2022)."""

from functools import partial

from downstream.families.classification import Classification
from downstream.readers import read_labelled_rows
from downstream.task import FinetuneConfig
from downstream.tasks.kobest._task import kobest_task

LABELS = ("false", "true")

TASK = kobest_task(
    "BoolQ",
    family=Classification(labels=LABELS),
    num_examples={"train": 3_665, "dev": 700, "test": 1_404},
    # The answer is `True` or `FALSE` in any case.
    read=partial(
        read_labelled_rows,
        columns=("ID", "Text", "Question", "Answer"),
        labels={label: label for label in LABELS},
    ),
    takes_pairs=True,
    finetune=FinetuneConfig(epochs=5, batch_size=16, max_length=256),
)
