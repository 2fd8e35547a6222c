"""Korean hate speech, hate: is a comment on entertainment news hateful, offensive or neither? (Moon et al. 2020)."""

from functools import partial
from pathlib import Path

from corpora.characters import nfc
from corpora.official import OfficialFile
from downstream.families.classification import Classification
from downstream.metrics import accuracy, macro_f1
from downstream.readers import read_tsv_rows, unquote
from downstream.substitutes import Division
from downstream.task import FinetuneConfig, Task, TextExample

URL = "https://raw.githubusercontent.com/kocohub/korean-hate-speech/master/labeled"
LICENCE = "CC-BY-SA-4.0"


def read_comments(path: Path, *, label_column: str) -> list[TextExample]:
    """Read `comments contain_gender_bias bias hate` rows; one of the last two is the label, the row number the id."""
    rows = read_tsv_rows(path, "comments", label_column)
    return [
        TextExample(str(number), nfc(unquote(comment)), None, label)
        for number, (_, (comment, label)) in enumerate(rows, start=1)
    ]


TASK = Task(
    name="hate",
    title="BEEP! hate",
    # Label ids are KoELECTRA's.
    family=Classification(labels=("none", "offensive", "hate")),
    files={
        "train": OfficialFile(
            path="hate/train.tsv",
            url=f"{URL}/train.tsv",
            licence=LICENCE,
            sha256="ebebacdcd023af2c4acc8c0a37695fb6433ac04fc009feff8f222724e303a5a9",
            size_bytes=913_546,
        ),
        "dev": OfficialFile(path="hate/dev.tsv", url=f"{URL}/dev.tsv", licence=LICENCE),
    },
    num_examples={"train": 7_896, "dev": 471},
    read=partial(read_comments, label_column="hate"),
    metrics=(macro_f1, accuracy),
    chance=1 / 3,
    # KoELECTRA trains ten epochs and selects the best checkpoint on dev; no checkpoint is selected here.
    finetune=FinetuneConfig(epochs=4, max_length=128),
    source="Moon, Cho and Lee 2020, BEEP!, github kocohub/korean-hate-speech",
    licence=LICENCE,
    substitute=Division("train", {"train": 6_366, "dev": 1_530}),
)
