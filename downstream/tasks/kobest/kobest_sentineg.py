"""KoBEST SentiNeg: polarity of reviews; those of dev and test turn others round by a negation (Kim et al. 2022)."""

from functools import partial

from downstream.families.classification import Classification
from downstream.metrics import accuracy, macro_f1
from downstream.readers import read_labelled_rows
from downstream.substitutes import OtherSplit
from downstream.task import FinetuneConfig, Task
from downstream.tasks.kobest import LICENCE, SOURCE, kobest_files

LABELS = ("negative", "positive")

TASK = Task(
    name="kobest-sentineg",
    title="KoBEST SentiNeg",
    family=Classification(labels=LABELS),
    files=kobest_files("SentiNeg"),
    num_examples={"train": 3_649, "dev": 400, "test": 397},
    read=partial(
        read_labelled_rows,
        columns=("ID", "Text", "Label"),
        labels={str(k): label for k, label in enumerate(LABELS)},
    ),
    metrics=(macro_f1, accuracy),
    chance=1 / 2,
    finetune=FinetuneConfig(epochs=5, max_length=128),
    source=SOURCE,
    licence=LICENCE,
    eval_split="test",
    substitute=OtherSplit("dev"),
)
