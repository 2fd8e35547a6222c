"""PAWS-X in Korean: do two sentences of the same words mean the same? (Yang et al. 2019).

Training pairs are translated by machine, dev and test by people. Sentences that were not translated read `NS`.
"""

from functools import partial

from corpora.official import OfficialFile
from downstream.families.classification import Classification
from downstream.metrics import accuracy, macro_f1
from downstream.readers import read_labelled_rows
from downstream.substitutes import Division
from downstream.task import FinetuneConfig, Task

URL = "https://storage.googleapis.com/paws/pawsx/x-final.tar.gz"
LICENCE = "free for any purpose, acknowledgement appreciated"
LABELS = ("different", "paraphrase")
MEMBERS = {"train": "translated_train", "dev": "dev_2k", "test": "test_2k"}
"""Split → name of its file in the publisher's archive."""

TASK = Task(
    name="paws-x",
    title="PAWS-X 한국어",
    family=Classification(labels=LABELS),
    files={
        split: OfficialFile(
            path=f"paraphrase/pawsx_ko_{split}.tsv",
            url=URL,
            licence=LICENCE,
            obtain=f"run: mkdir -p \"$(dirname '{{target}}')\" && curl -fL '{URL}' | tar -xzO x-final/ko/{member}.tsv "
            "> '{target}'",
        )
        for split, member in MEMBERS.items()
    },
    num_examples={"train": 49_401, "dev": 2_000, "test": 2_000},
    read=partial(
        read_labelled_rows,
        columns=("id", "sentence1", "sentence2", "label"),
        labels={str(k): label for k, label in enumerate(LABELS)},
    ),
    takes_pairs=True,
    metrics=(accuracy, macro_f1),
    chance=1 / 2,
    # Learning rate and batch size are KoELECTRA's; its 15 epochs select the best checkpoint on dev.
    finetune=FinetuneConfig(epochs=5, peak_lr=3e-5, max_length=128),
    source="Yang et al. 2019, PAWS-X, github google-research-datasets/paws",
    licence=LICENCE,
    eval_split="test",
    substitute=Division("dev", {"train": 1_598, "dev": 402}),
)
