"""KorQuAD 1.0: questions on Korean Wikipedia, answered by a span (Lim et al. 2019)."""

from functools import partial

from corpora.official import OfficialFile
from downstream.families.span_qa import SpanQA
from downstream.metrics import korquad_char_f1, korquad_em
from downstream.readers import article_of, read_squad
from downstream.substitutes import Division
from downstream.task import FinetuneConfig, Task

URL = "https://korquad.github.io/dataset"
LICENCE = "CC BY-ND 2.0 KR"

TASK = Task(
    name="korquad",
    title="KorQuAD 1.0",
    family=SpanQA(has_unanswerable=False),
    files={
        "train": OfficialFile(
            path="korquad/KorQuAD_v1.0_train.json",
            url=f"{URL}/KorQuAD_v1.0_train.json",
            licence=LICENCE,
            sha256="40d5115879a701751781df721d901abfa736d8db5f89000f2619433f39bf2dd2",
            size_bytes=38_527_475,
        ),
        "dev": OfficialFile(
            path="korquad/KorQuAD_v1.0_dev.json",
            url=f"{URL}/KorQuAD_v1.0_dev.json",
            licence=LICENCE,
            sha256="25ffeb51e6c51ec02c071b60a10188e10005c144110f0d876b26079d80a35bdf",
            size_bytes=3_881_058,
        ),
    },
    num_examples={"train": 60_407, "dev": 5_774},
    sample_num_examples={"train": 180, "dev": 60},
    read=partial(read_squad, id_column="id"),
    metrics=(korquad_em, korquad_char_f1),
    chance=0.0,
    finetune=FinetuneConfig(epochs=3, batch_size=16, peak_lr=5e-5, max_length=384),
    source="Lim et al. 2019, KorQuAD 1.0, github korquad/korquad.github.io",
    licence=LICENCE,
    cluster=article_of,
    # Divided by article: paragraphs of one article answer each other's questions.
    substitute=Division("dev", {"train": 4_303, "dev": 1_471}, keys=lambda example: [example.title]),
)
