"""KLUE-MRC: questions on news and Wikipedia, a third of them unanswerable (Park et al. 2021, KLUE v1.1)."""

from functools import partial

from downstream.families.span_qa import SpanQA
from downstream.metrics import klue_em, klue_rouge_w
from downstream.readers import article_of, read_squad
from downstream.task import FinetuneConfig, Task
from downstream.tasks.klue import LICENCE, SOURCE, klue_files

TASK = Task(
    name="klue-mrc",
    title="KLUE-MRC",
    family=SpanQA(has_unanswerable=True),
    files=klue_files("klue-mrc-v1.1"),
    num_examples={"train": 17_554, "dev": 5_841},
    sample_num_examples={"train": 180, "dev": 60},
    read=partial(read_squad, id_column="guid"),
    metrics=(klue_em, klue_rouge_w),
    chance=0.0,
    finetune=FinetuneConfig(epochs=5, batch_size=16, peak_lr=3e-5, warmup_ratio=0.0, max_length=512),
    source=SOURCE,
    licence=LICENCE,
    cluster=article_of,
)
