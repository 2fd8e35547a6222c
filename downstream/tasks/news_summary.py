"""Three-sentence extractive summaries of news, compared with an editor's choice: the project's own 120 articles.

AI-Hub's document summaries, which kpfbertsum was trained on, are available to registered persons in Korea only, and
their publisher states no checksum; `python -m downstream.summarize evaluate FILE` scores a model on them.
"""

from corpora.official import OfficialFile
from downstream.summaries.family import METRICS, SentenceChoice, SummaryExample, read_choices
from downstream.task import SAMPLE_SUFFIX, FinetuneConfig, Task

FILE = OfficialFile(path="news.jsonl", url="", licence="CC0-1.0")


def split_of(example: SummaryExample) -> str:
    """Return the split of an article; articles on one story belong to one split."""
    return example.article.split


def story_of(example: SummaryExample) -> str:
    """Return the key of the story that an article reports."""
    return example.article.group or example.article.id


TASK = Task(
    name=f"news-summary{SAMPLE_SUFFIX}",
    base="news-summary",
    title="뉴스 세 문장 요약 (sample)",
    family=SentenceChoice(),
    files={"train": FILE, "dev": FILE},
    num_examples={"train": 90, "dev": 30},
    split_of=split_of,
    read=read_choices,
    metrics=METRICS,
    # Three random sentences: 3 over the number of sentences, averaged over the articles of dev.
    chance=0.22,
    finetune=FinetuneConfig(),
    source="corpora/sample/SOURCES.md",
    licence=FILE.licence,
    cluster=story_of,
)
