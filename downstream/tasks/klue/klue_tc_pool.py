"""Headlines of KLUE-TC with a division of our own: the official one into train and dev is lost in this copy.

Two public copies of the headlines with their topics were put together, without the marks that say which part of KLUE-TC
they belong to. A hash of the text decides the part, and headlines that differ in nothing but blanks lie in the same
one. Scores are not comparable with those on `klue-tc`.
"""

from pathlib import Path

from corpora.characters import nfc
from corpora.foundation.errors import DataError
from corpora.official import OfficialFile
from corpora.readers.decoding import read_lines
from downstream.readers import REPAIR
from downstream.substitutes import Division
from downstream.task import FinetuneConfig, Task, TextExample
from downstream.tasks.klue import LICENCE, klue_tc

COLUMNS = ["title", "topic", "seen_in"]
POOL = OfficialFile(
    path="klue/ynat/ynat_all_labelled.tsv",
    url="https://github.com/lush93gh/korean_news_topic_classification",
    licence=LICENCE,
    obtain="write the labelled headlines of github lush93gh/korean_news_topic_classification and hcworkplace/"
    "news_topic_clasffication, each once, as rows `title topic seen_in` below a header to '{target}'",
)


def read_headlines(path: Path) -> list[TextExample]:
    """Read `title topic seen_in` rows; a headline may hold a tab, and its row number is the id."""
    lines = read_lines(path, "utf-8")
    header = next(lines, "").rstrip("\r\n").split("\t")
    if header != COLUMNS:
        raise DataError(f"{path}:1", f"the header is {header}", f"write {COLUMNS} above the rows")
    examples = []
    for number, line in enumerate(lines, start=1):
        *title, topic, _ = ["", "", *line.rstrip("\r\n").split("\t")]
        text = " ".join(" ".join(title).split())
        if not text or not topic:
            raise DataError(f"{path}:{number + 1}", "a row without headline or topic", REPAIR)
        examples.append(TextExample(str(number), nfc(text), None, topic))
    return examples


TASK = Task(
    name="klue-tc-pool",
    title="KLUE-TC 전체의 분할",
    family=klue_tc.TASK.family,
    files={"train": POOL, "dev": POOL},
    division=Division("pool", {}, eval_share=1 / 6),
    num_examples={"train": 45_212, "dev": 8_826},
    read=read_headlines,
    metrics=klue_tc.TASK.metrics,
    chance=klue_tc.TASK.chance,
    finetune=FinetuneConfig(epochs=4, max_length=128),
    source="headlines of Park et al. 2021, KLUE, from github lush93gh/korean_news_topic_classification and "
    "hcworkplace/news_topic_clasffication, in two parts of our own",
    licence=LICENCE,
)
