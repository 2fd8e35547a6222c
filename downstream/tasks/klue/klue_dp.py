"""KLUE-DP: head and relation of every eojeol in news and reviews (Park et al. 2021, KLUE v1.1)."""

from pathlib import Path

from corpora.foundation.errors import DataError
from downstream.families.dependency import Dependency
from downstream.families.dependency_metrics import KLUE_DP_RELATIONS, las, las_micro, uas, uas_micro
from downstream.families.tagging import BLANK
from downstream.readers import REPAIR
from downstream.substitutes import Division
from downstream.task import FinetuneConfig, Task, TextExample
from downstream.tasks.klue import LICENCE, SOURCE, klue_files
from downstream.tasks.klue._layouts import read_annotated_sentences


def read_sentences(path: Path) -> list[TextExample]:
    """Read sentences of `index eojeol lemmas tags head relation` rows.

    The text is the eojeols joined by blanks; lemmas and tags are not read.
    """
    examples = []
    for id_, rows in read_annotated_sentences(path):
        words: list[str] = []
        labels: list[str] = []
        for where, row in rows:
            values = row.split("\t")
            if len(values) != 6 or values[0] != str(len(words) + 1) or not values[1].strip() or BLANK in values[1]:
                what = f"'{row.strip():.40}' is not eojeol {len(words) + 1} with its five columns"
                raise DataError(where, what, REPAIR)
            words.append(values[1])
            labels.append(f"{values[4]}:{values[5].strip()}")
        examples.append(TextExample(id_, BLANK.join(words), None, BLANK.join(labels)))
    return examples


TASK = Task(
    name="klue-dp",
    title="KLUE-DP",
    family=Dependency(relations=KLUE_DP_RELATIONS),
    files=klue_files(
        "klue-dp-v1.1",
        ".tsv",
        known={
            "dev": ("eb0d8532c0234934e058db0d31f2b01f093128715d6ae51f534a448434a48f01", 1_225_266),
        },
    ),
    num_examples={"train": 10_000, "dev": 2_000},
    read=read_sentences,
    metrics=(las, uas, las_micro, uas_micro),
    chance=0.0,
    finetune=FinetuneConfig(epochs=10, max_length=256),
    source=SOURCE,
    licence=LICENCE,
    substitute=Division("dev", {"train": 1_600, "dev": 400}),
)
