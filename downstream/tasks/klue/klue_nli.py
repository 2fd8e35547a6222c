"""KLUE-NLI: does the premise entail, contradict or leave open the hypothesis? (Park et al. 2021, KLUE v1.1)."""

from functools import partial

from downstream.families.classification import Classification
from downstream.metrics import accuracy
from downstream.readers import premise_of
from downstream.substitutes import Division
from downstream.task import FinetuneConfig, Task
from downstream.tasks.klue import LICENCE, SOURCE, klue_files
from downstream.tasks.klue._layouts import read_labelled_records

TASK = Task(
    name="klue-nli",
    title="KLUE-NLI",
    # Label ids are KLUE-baseline's; Hugging Face's copy of the data has neutral 1, contradiction 2.
    family=Classification(labels=("entailment", "contradiction", "neutral")),
    files=klue_files(
        "klue-nli-v1.1",
        known={
            "train": ("8d32e7e4ff97804a23f277fee8740f1341ac82e1c0c7b34f1be21952e4813996", 12_576_683),
            "dev": ("0699db82be17766b26e199864e6260443e17ec6e91d1870e876419e388f245b1", 1_498_298),
        },
    ),
    num_examples={"train": 24_998, "dev": 3_000},
    sample_num_examples={"train": 300, "dev": 120},
    read=partial(read_labelled_records, columns=("guid", "premise", "hypothesis", "gold_label")),
    takes_pairs=True,
    metrics=(accuracy,),
    chance=1 / 3,
    finetune=FinetuneConfig(epochs=5, max_length=128),
    source=SOURCE,
    licence=LICENCE,
    cluster=premise_of,
    substitute=Division("dev", {"train": 2_382, "dev": 618}),
)
