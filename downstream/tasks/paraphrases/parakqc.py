"""ParaKQC as retrieval: 1,000 groups of ten Korean questions and commands that mean the same (Cho et al. 2020).

Every text is asked for, and the nine others of its group are what it should find among 9,999. Groups are ten lines in a
row, as published; nothing is trained, so there is one split. Some groups of one topic are near each other, and 13 texts
occur twice: the highest score is a little below one.
"""

from pathlib import Path

from corpora.characters import nfc
from corpora.foundation.errors import DataError
from corpora.official import OfficialFile
from corpora.readers.decoding import read_lines
from downstream.families.retrieval import Retrieval, RetrievalExample
from downstream.metrics import mrr, recall_at_1
from downstream.readers import REPAIR
from downstream.task import FinetuneConfig, Task

GROUP = 10
"""Lines of a group."""
LICENCE = "CC-BY-SA-4.0"


def read_groups(path: Path) -> list[RetrievalExample]:
    """Read `topic<TAB>kind<TAB>text` rows without a header; ten rows in a row have the same topic and kind."""
    examples: list[RetrievalExample] = []
    kinds: list[str] = []
    for number, line in enumerate(read_lines(path, "utf-8")):
        row = line.rstrip("\r\n").split("\t")
        if len(row) != 3:
            raise DataError(f"{path}:{number + 1}", f"{len(row)} columns where 3 are expected", REPAIR)
        kinds.append("/".join(row[:2]))
        if kinds[-1] != kinds[number - number % GROUP]:
            raise DataError(f"{path}:{number + 1}", "topic or kind changes within a group of ten rows", REPAIR)
        examples.append(RetrievalExample(str(number + 1), nfc(row[2]), None, str(number // GROUP)))
    return examples


TASK = Task(
    name="parakqc",
    title="ParaKQC 검색",
    family=Retrieval(),
    files={
        "test": OfficialFile(
            path="parakqc/paraKQC_v1.txt",
            url="https://raw.githubusercontent.com/warnikchow/paraKQC/master/data/paraKQC_v1.txt",
            licence=LICENCE,
            sha256="8a40f48c78c2710e5e64c1fa3a1c3dc720cb21a92f2ff375e3097973ad57e6d6",
            size_bytes=704_972,
        )
    },
    num_examples={"test": 10_000},
    read=read_groups,
    metrics=(recall_at_1, mrr),
    # Nine of the 9,999 others are right.
    chance=9 / 9_999,
    finetune=FinetuneConfig(),
    source="Cho et al. 2020, ParaKQC, github warnikchow/paraKQC",
    licence=LICENCE,
    # The ten texts of a group find each other or not.
    cluster=lambda example: str(example.label),
    train_split="test",
    eval_split="test",
)
