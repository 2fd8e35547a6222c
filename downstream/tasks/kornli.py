"""KorNLI: inference on sentences translated by machine (train) and by humans (dev, test) (Ham et al. 2020)."""

from pathlib import Path

from corpora.characters import nfc
from corpora.official import OfficialFile
from downstream.families.classification import Classification
from downstream.metrics import accuracy
from downstream.readers import premise_of, read_tsv_rows
from downstream.substitutes import Division
from downstream.task import FinetuneConfig, Task, TextExample

FOLDER = "kornlu/KorNLI"
URL = "https://raw.githubusercontent.com/kakaobrain/KorNLUDatasets/master/KorNLI"
LICENCE = "CC-BY-SA-4.0"


def read_pairs(path: Path) -> list[TextExample]:
    """Read `sentence1 sentence2 gold_label` rows. There are no ids: file name and row number make one."""
    rows = read_tsv_rows(path, "sentence1", "sentence2", "gold_label")
    return [
        TextExample(f"{path.name}:{number}", nfc(premise), nfc(hypothesis), label)
        for number, (_, (premise, hypothesis, label)) in enumerate(rows, start=1)
    ]


TASK = Task(
    name="kornli",
    title="KorNLI",
    family=Classification(labels=("entailment", "contradiction", "neutral")),
    files={
        "snli": OfficialFile(
            path=f"{FOLDER}/snli_1.0_train.ko.tsv", url=f"{URL}/snli_1.0_train.ko.tsv", licence=LICENCE
        ),
        "multinli": OfficialFile(
            path=f"{FOLDER}/multinli.train.ko.tsv", url=f"{URL}/multinli.train.ko.tsv", licence=LICENCE
        ),
        "dev": OfficialFile(
            path=f"{FOLDER}/xnli.dev.ko.tsv",
            url=f"{URL}/xnli.dev.ko.tsv",
            licence=LICENCE,
            sha256="821fb1c1c2e538ac2724a6132da36ffa379eb9a542ceb89243b3cf711377382c",
            size_bytes=511_383,
        ),
        "test": OfficialFile(path=f"{FOLDER}/xnli.test.ko.tsv", url=f"{URL}/xnli.test.ko.tsv", licence=LICENCE),
    },
    split_files={"train": ("snli", "multinli")},
    num_examples={"train": 942_854, "dev": 2_490, "test": 5_010},
    read=read_pairs,
    takes_pairs=True,
    metrics=(accuracy,),
    chance=1 / 3,
    # Learning rate and batch size are KoELECTRA's; its 15 epochs use MultiNLI alone, with the best selected on dev.
    finetune=FinetuneConfig(epochs=3, batch_size=64, max_length=128),
    source="Ham et al. 2020, KorNLI and KorSTS, github kakaobrain/KorNLUDatasets",
    licence=LICENCE,
    eval_split="test",
    cluster=premise_of,
    # KLUE-NLI's settings: the training part is closer to its size.
    substitute=Division("dev", {"train": 1_983, "dev": 507}, finetune=FinetuneConfig(epochs=5, max_length=128)),
)
