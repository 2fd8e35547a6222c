"""KoBEST SentiNeg: polarity of reviews; those of dev and test turn others round by a negation (Kim et al. 2022)."""

from functools import partial

from downstream.families.classification import Classification
from downstream.readers import read_labelled_rows
from downstream.task import FinetuneConfig
from downstream.tasks.kobest._task import kobest_task

LABELS = ("negative", "positive")

TASK = kobest_task(
    "SentiNeg",
    family=Classification(labels=LABELS),
    num_examples={"train": 3_649, "dev": 400, "test": 397},
    read=partial(
        read_labelled_rows,
        columns=("ID", "Text", "Label"),
        labels={str(k): label for k, label in enumerate(LABELS)},
    ),
    finetune=FinetuneConfig(epochs=5, max_length=128),
)
