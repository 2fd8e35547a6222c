"""KoBEST WiC: does a word mean the same in two sentences? (Kim et al. 2022)."""

from functools import partial

from downstream.families.classification import Classification
from downstream.readers import read_labelled_rows
from downstream.task import FinetuneConfig
from downstream.tasks.kobest._task import kobest_task

LABELS = ("false", "true")

TASK = kobest_task(
    "WiC",
    family=Classification(labels=LABELS),
    num_examples={"train": 3_318, "dev": 610, "test": 1_260},
    # The word is in brackets in both sentences.
    read=partial(
        read_labelled_rows,
        columns=("ID", "SENTENCE1", "SENTENCE2", "ANSWER"),
        labels={label: label for label in LABELS},
    ),
    takes_pairs=True,
    finetune=FinetuneConfig(epochs=5, max_length=128),
)
