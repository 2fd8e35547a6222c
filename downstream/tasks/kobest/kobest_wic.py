"""KoBEST WiC: does a word mean the same in two sentences? (Kim et al. 2022)."""

from functools import partial

from downstream.families.classification import Classification
from downstream.metrics import accuracy, macro_f1
from downstream.readers import read_labelled_rows
from downstream.substitutes import OtherSplit
from downstream.task import FinetuneConfig, Task
from downstream.tasks.kobest import LICENCE, SOURCE, kobest_files

LABELS = ("false", "true")

TASK = Task(
    name="kobest-wic",
    title="KoBEST WiC",
    family=Classification(labels=LABELS),
    files=kobest_files("WiC"),
    num_examples={"train": 3_318, "dev": 610, "test": 1_260},
    # The word is in brackets in both sentences.
    read=partial(
        read_labelled_rows,
        columns=("ID", "SENTENCE1", "SENTENCE2", "ANSWER"),
        labels={label: label for label in LABELS},
    ),
    takes_pairs=True,
    metrics=(macro_f1, accuracy),
    chance=1 / 2,
    finetune=FinetuneConfig(epochs=5, max_length=128),
    source=SOURCE,
    licence=LICENCE,
    eval_split="test",
    substitute=OtherSplit("dev"),
)
