"""KLUE-DP: head and relation of every eojeol in news and reviews (Park et al. 2021, KLUE v1.1)."""

from pathlib import Path

from corpora.foundation.errors import DataError
from corpora.official import OfficialFile
from corpora.readers.decoding import read_lines
from downstream.families.dependency import Dependency
from downstream.families.dependency_metrics import KLUE_DP_RELATIONS, las, las_micro, uas, uas_micro
from downstream.families.tagging import BLANK
from downstream.readers import REPAIR
from downstream.substitutes import Division
from downstream.task import FinetuneConfig, Task, TextExample

FOLDER = "klue/klue-dp-v1.1"
URL = "https://raw.githubusercontent.com/KLUE-benchmark/KLUE/main/klue_benchmark/klue-dp-v1.1"
LICENCE = "CC-BY-SA-4.0"


def read_sentences(path: Path) -> list[TextExample]:
    """Read sentences of `index eojeol lemmas tags head relation` rows after a line `## id<TAB>sentence`.

    The text is the eojeols joined by blanks; lemmas and tags are not read.
    """
    examples: list[TextExample] = []
    id_ = ""
    words: list[str] = []
    labels: list[str] = []
    # The added empty line ends the last sentence.
    for number, line in enumerate([*read_lines(path, "utf-8"), "\n"], start=1):
        row = line.rstrip("\r\n").split("\t")
        if line.startswith("##"):
            # Five lines at the top describe the format; the sentence's own line comes last.
            id_ = row[0][2:].strip()
        elif line.strip():
            if len(row) != 6 or row[0] != str(len(words) + 1) or not row[1].strip() or BLANK in row[1]:
                what = f"'{line.strip():.40}' is not eojeol {len(words) + 1} with its five columns"
                raise DataError(f"{path}:{number}", what, REPAIR)
            words.append(row[1])
            labels.append(f"{row[4]}:{row[5].strip()}")
        elif words:
            if not id_:
                raise DataError(f"{path}:{number}", "the sentence that ends here has no '## id' line", REPAIR)
            examples.append(TextExample(id_, BLANK.join(words), None, BLANK.join(labels)))
            id_, words, labels = "", [], []
    return examples


TASK = Task(
    name="klue-dp",
    title="KLUE-DP",
    family=Dependency(relations=KLUE_DP_RELATIONS),
    files={
        "train": OfficialFile(
            path=f"{FOLDER}/klue-dp-v1.1_train.tsv", url=f"{URL}/klue-dp-v1.1_train.tsv", licence=LICENCE
        ),
        "dev": OfficialFile(
            path=f"{FOLDER}/klue-dp-v1.1_dev.tsv",
            url=f"{URL}/klue-dp-v1.1_dev.tsv",
            licence=LICENCE,
            sha256="eb0d8532c0234934e058db0d31f2b01f093128715d6ae51f534a448434a48f01",
            size_bytes=1_225_266,
        ),
    },
    num_examples={"train": 10_000, "dev": 2_000},
    read=read_sentences,
    metrics=(las, uas, las_micro, uas_micro),
    chance=0.0,
    finetune=FinetuneConfig(epochs=10, max_length=256),
    source="Park et al. 2021, KLUE, github KLUE-benchmark/KLUE",
    licence=LICENCE,
    substitute=Division("dev", {"train": 1_600, "dev": 400}),
)
