"""NSMC: polarity of Korean film reviews (Park 2016, e9t/nsmc)."""

from pathlib import Path

from corpora.characters import nfc
from corpora.foundation.errors import DataError
from corpora.official import OfficialFile
from downstream.families.classification import Classification
from downstream.metrics import accuracy
from downstream.readers import REPAIR, read_tsv_rows
from downstream.task import FinetuneConfig, Task, TextExample

URL = "https://raw.githubusercontent.com/e9t/nsmc/master"
LABELS = ("negative", "positive")


def read_ratings(path: Path) -> list[TextExample]:
    """Read `id document label` rows; label 0 is negative, 1 positive. Five train and three test reviews are empty."""
    examples = []
    for where, (id_, document, label) in read_tsv_rows(path, "id", "document", "label"):
        if label not in {"0", "1"}:
            raise DataError(where, f"label '{label}' is neither 0 nor 1", REPAIR)
        examples.append(TextExample(id_, nfc(document), None, LABELS[int(label)]))
    return examples


TASK = Task(
    name="nsmc",
    title="NSMC",
    family=Classification(labels=LABELS),
    files={
        "train": OfficialFile(
            path="nsmc/ratings_train.txt",
            url=f"{URL}/ratings_train.txt",
            licence="CC0-1.0",
            sha256="e03b7d14e9e41be8d464a28057cd25d7396c53e67aa7fd5f7e552c59b0ee2940",
            size_bytes=14_628_807,
        ),
        "test": OfficialFile(
            path="nsmc/ratings_test.txt",
            url=f"{URL}/ratings_test.txt",
            licence="CC0-1.0",
            sha256="8ac9f64052f11dbf6ae0acb5e038f03d90a76f0eda7820cfb3a92d02edfcebda",
            size_bytes=4_893_335,
        ),
    },
    num_examples={"train": 150_000, "test": 50_000},
    sample_num_examples={"train": 420, "test": 140},
    read=read_ratings,
    metrics=(accuracy,),
    chance=0.5,
    finetune=FinetuneConfig(epochs=3, max_length=128),
    source="Park 2016, Naver sentiment movie corpus, github e9t/nsmc",
    licence="CC0-1.0",
    eval_split="test",
)
