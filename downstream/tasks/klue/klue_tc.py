"""KLUE-TC, also called YNAT: the section of a Yonhap headline (Park et al. 2021, KLUE v1.1)."""

from functools import partial

from corpora.official import OfficialFile
from downstream.families.classification import Classification
from downstream.metrics import accuracy, macro_f1
from downstream.task import FinetuneConfig, Task
from downstream.tasks.klue._layouts import read_labelled_records

FOLDER = "klue/ynat-v1.1"
URL = "https://raw.githubusercontent.com/KLUE-benchmark/KLUE/main/klue_benchmark/ynat-v1.1"
LICENCE = "CC-BY-SA-4.0"

TASK = Task(
    name="klue-tc",
    title="KLUE-TC",
    # Label ids are KLUE-baseline's; Hugging Face's copy of the data has another order.
    family=Classification(labels=("정치", "경제", "사회", "생활문화", "세계", "IT과학", "스포츠")),
    files={
        split: OfficialFile(
            path=f"{FOLDER}/ynat-v1.1_{split}.json", url=f"{URL}/ynat-v1.1_{split}.json", licence=LICENCE
        )
        for split in ("train", "dev")
    },
    num_examples={"train": 45_678, "dev": 9_107},
    # `predefined_news_category` is the agency's category and not the gold label.
    read=partial(read_labelled_records, columns=("guid", "title", "label")),
    metrics=(macro_f1, accuracy),
    chance=1 / 7,
    finetune=FinetuneConfig(epochs=4, max_length=128),
    source="Park et al. 2021, KLUE, github KLUE-benchmark/KLUE",
    licence=LICENCE,
)
