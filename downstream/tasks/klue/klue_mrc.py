"""KLUE-MRC: questions on news and Wikipedia, a third of them unanswerable (Park et al. 2021, KLUE v1.1)."""

from functools import partial

from corpora.official import OfficialFile
from downstream.families.span_qa import SpanQA
from downstream.metrics import klue_em, klue_rouge_w
from downstream.readers import article_of, read_squad
from downstream.task import FinetuneConfig, Task

FOLDER = "klue/klue-mrc-v1.1"
URL = "https://raw.githubusercontent.com/KLUE-benchmark/KLUE/main/klue_benchmark/klue-mrc-v1.1"


TASK = Task(
    name="klue-mrc",
    title="KLUE-MRC",
    family=SpanQA(has_unanswerable=True),
    files={
        split: OfficialFile(
            path=f"{FOLDER}/klue-mrc-v1.1_{split}.json",
            url=f"{URL}/klue-mrc-v1.1_{split}.json",
            licence="CC-BY-SA-4.0",
        )
        for split in ("train", "dev")
    },
    num_examples={"train": 17_554, "dev": 5_841},
    sample_num_examples={"train": 180, "dev": 60},
    read=partial(read_squad, id_column="guid"),
    metrics=(klue_em, klue_rouge_w),
    chance=0.0,
    finetune=FinetuneConfig(epochs=5, batch_size=16, peak_lr=3e-5, warmup_ratio=0.0, max_length=512),
    source="Park et al. 2021, KLUE, github KLUE-benchmark/KLUE",
    licence="CC-BY-SA-4.0",
    cluster=article_of,
)
