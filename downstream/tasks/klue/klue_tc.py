"""KLUE-TC, also called YNAT: the section of a Yonhap headline (Park et al. 2021, KLUE v1.1)."""

from functools import partial

from downstream.families.classification import Classification
from downstream.metrics import accuracy, macro_f1
from downstream.task import FinetuneConfig, Task
from downstream.tasks.klue import LICENCE, SOURCE, klue_files
from downstream.tasks.klue._layouts import read_labelled_records

TASK = Task(
    name="klue-tc",
    title="KLUE-TC",
    # Label ids are KLUE-baseline's; Hugging Face's copy of the data has another order.
    family=Classification(labels=("정치", "경제", "사회", "생활문화", "세계", "IT과학", "스포츠")),
    files=klue_files("ynat-v1.1"),
    num_examples={"train": 45_678, "dev": 9_107},
    # `predefined_news_category` is the agency's category and not the gold label.
    read=partial(read_labelled_records, columns=("guid", "title", "label")),
    metrics=(macro_f1, accuracy),
    chance=1 / 7,
    finetune=FinetuneConfig(epochs=4, max_length=128),
    source=SOURCE,
    licence=LICENCE,
)
