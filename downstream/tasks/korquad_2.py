"""KorQuAD 2.1: questions on whole Wikipedia pages in HTML, answered by a span, which may be a table (Kim et al. 2019).

A page is tens of windows long, and answers longer than the family's `max_answer_length` cannot be predicted. The reader
follows the published description of the layout and has not been tried on the files.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpora.foundation.errors import DataError
from corpora.foundation.unpacking import open_zip
from corpora.official import OfficialFile
from downstream.families.span_qa import SpanQA
from downstream.metrics import korquad_2_char_f1, korquad_2_em
from downstream.readers import REPAIR, pick
from downstream.task import Answer, FinetuneConfig, QuestionExample, Task

URL = "https://github.com/korquad/korquad.github.io/raw/master/dataset/KorQuAD_2.1"
LICENCE = "CC BY-ND 2.0 KR"
LARGEST_PART = 1 << 28
"""Bytes of a file in an archive."""
NUM_ARCHIVES = {"train": 13, "dev": 2}
FILES = {f"{split}_{k:02}": split for split, count in NUM_ARCHIVES.items() for k in range(count)}
"""Name of an archive → its split."""


def read_pages(path: Path) -> list[QuestionExample]:
    """Read an archive of JSON files: `data[]` of `title`, `context` and `qas[]` with `id`, `question` and `answer`.

    Raises:
        DataError: the archive is damaged, its layout differs, or an answer is not at its offset.
    """
    examples: list[QuestionExample] = []
    for member, content in _members(path):
        for number, page in enumerate(pick(content, "data", member, list), start=1):
            page_at = f"{member}, page {number}"
            title, context = pick(page, "title", page_at, str), pick(page, "context", page_at, str)
            for qa in pick(page, "qas", page_at, list):
                id_ = pick(qa, "id", page_at, str)
                where = f"{member}, question {id_}"
                answer = pick(qa, "answer", where, dict)
                text, start = pick(answer, "text", where, str), pick(answer, "answer_start", where, int)
                if start < 0 or context[start : start + len(text)] != text:
                    raise DataError(where, f"the answer '{text:.40}' is not at offset {start}", REPAIR)
                question = pick(qa, "question", where, str)
                examples.append(QuestionExample(id_, question, context, (Answer(text, start),), title=title))
    return examples


def _members(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (where, content) of the JSON files in an archive, by name."""
    try:
        with open_zip(path) as archive:
            members = {each.filename: each for each in archive.members if each.filename.endswith(".json")}
            for name in sorted(members):
                content = archive.read(members[name], LARGEST_PART).decode("utf-8")
                yield f"{path}, {name}", json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"no archive of JSON files ({error})", REPAIR) from error


TASK = Task(
    name="korquad-2",
    title="KorQuAD 2.1",
    family=SpanQA(has_unanswerable=False),
    files={
        name: OfficialFile(
            path=f"korquad/KorQuAD_2.1_{name}.zip", url=f"{URL}/{split}/KorQuAD_2.1_{name}.zip", licence=LICENCE
        )
        for name, split in FILES.items()
    },
    split_files={split: tuple(name for name in FILES if FILES[name] == split) for split in NUM_ARCHIVES},
    num_examples={"train": 83_486, "dev": 10_165},
    read=read_pages,
    metrics=(korquad_2_em, korquad_2_char_f1),
    chance=0.0,
    cluster=lambda example: example.title,
    finetune=FinetuneConfig(epochs=2, batch_size=16, max_length=512),
    source="Kim et al. 2019, KorQuAD 2.0, github korquad/korquad.github.io",
    licence=LICENCE,
)
