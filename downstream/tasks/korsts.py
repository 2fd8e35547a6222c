"""KorSTS: similarity of two sentences from 0 to 5, translated from STS-B (Ham et al. 2020)."""

from pathlib import Path

from corpora.characters import nfc
from corpora.official import OfficialFile
from downstream.families.classification import Regression
from downstream.metrics import pearson, spearman
from downstream.readers import parse_score, read_tsv_rows
from downstream.substitutes import OtherSplit
from downstream.task import FinetuneConfig, Task, TextExample

FOLDER = "kornlu/KorSTS"
URL = "https://raw.githubusercontent.com/kakaobrain/KorNLUDatasets/master/KorSTS"
LICENCE = "CC-BY-SA-4.0"


def read_pairs(path: Path) -> list[TextExample]:
    """Read `score sentence1 sentence2` rows. The publisher's ids repeat across sources, so the row number is the id."""
    rows = read_tsv_rows(path, "score", "sentence1", "sentence2")
    return [
        TextExample(str(number), nfc(one), nfc(two), parse_score(score, where, 0, 5))
        for number, (where, (score, one, two)) in enumerate(rows, start=1)
    ]


TASK = Task(
    name="korsts",
    title="KorSTS",
    family=Regression(low=0, high=5),
    files={
        "train": OfficialFile(
            path=f"{FOLDER}/sts-train.tsv",
            url=f"{URL}/sts-train.tsv",
            licence=LICENCE,
            sha256="b5aaa7f957d6ff46f4b6834a8b0f024a9234a6eefe9289aed66746b4533da3b8",
            size_bytes=1_046_952,
        ),
        "dev": OfficialFile(
            path=f"{FOLDER}/sts-dev.tsv",
            url=f"{URL}/sts-dev.tsv",
            licence=LICENCE,
            sha256="d835b65b424401fbcce6be28a78159df8d61f5b19977ea7a0b83b8cb6105f393",
            size_bytes=307_276,
        ),
        "test": OfficialFile(
            path=f"{FOLDER}/sts-test.tsv",
            url=f"{URL}/sts-test.tsv",
            licence=LICENCE,
            sha256="13f83a3440d9db52d134eb40303ce021b03264aa338fbf2871c8786ce04d2105",
            size_bytes=249_596,
        ),
    },
    num_examples={"train": 5_749, "dev": 1_500, "test": 1_379},
    read=read_pairs,
    takes_pairs=True,
    metrics=(spearman, pearson),
    chance=0.0,
    finetune=FinetuneConfig(epochs=4, max_length=128),
    source="Ham et al. 2020, KorNLI and KorSTS, github kakaobrain/KorNLUDatasets",
    licence=LICENCE,
    eval_split="test",
    substitute=OtherSplit("dev"),
)
