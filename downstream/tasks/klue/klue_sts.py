"""KLUE-STS: similarity of two sentences from 0 to 5 (Park et al. 2021, KLUE v1.1)."""

from pathlib import Path

from corpora.characters import nfc
from downstream.families.classification import Regression
from downstream.metrics import f1_at_3, pearson
from downstream.readers import parse_score, pick, read_json_rows
from downstream.substitutes import Division
from downstream.task import FinetuneConfig, Task, TextExample
from downstream.tasks.klue import LICENCE, SOURCE, klue_files


def read_pairs(path: Path) -> list[TextExample]:
    """Read `guid sentence1 sentence2 labels` objects; the label is `real-label`, the annotators' unrounded mean."""
    return [
        TextExample(
            pick(record, "guid", where, str),
            nfc(pick(record, "sentence1", where, str)),
            nfc(pick(record, "sentence2", where, str)),
            parse_score(pick(pick(record, "labels", where, dict), "real-label", where, object), where, 0, 5),
        )
        for where, record in read_json_rows(path)
    ]


TASK = Task(
    name="klue-sts",
    title="KLUE-STS",
    family=Regression(low=0, high=5),
    # No digest of train: the published bytes have not been seen.
    files=klue_files(
        "klue-sts-v1.1",
        known={
            "dev": ("b6a0ae0c370e21687f7eef0fdea872a328bb2ecbdb020c546cb870d28606bf80", 454_638),
        },
    ),
    num_examples={"train": 11_668, "dev": 519},
    sample_num_examples={"train": 190, "dev": 70},
    read=read_pairs,
    takes_pairs=True,
    metrics=(pearson, f1_at_3),
    chance=0.0,
    finetune=FinetuneConfig(epochs=4, max_length=128),
    source=SOURCE,
    licence=LICENCE,
    # A fifth of so few pairs is too small to estimate a correlation.
    substitute=Division(
        "dev",
        {"train": 313, "dev": 206},
        eval_share=0.4,
        finetune=FinetuneConfig(epochs=10, batch_size=16, max_length=128),
    ),
)
