"""A plug-in: the file format `.wire`, a task on such files, and a tool of the desk."""

import re
from collections.abc import Iterator
from pathlib import Path

from pressbert import plugin as pb


def read_wire(path: Path) -> Iterator[pb.Record]:
    """Read lines of `section|title|text`."""
    for number, line in enumerate(pb.read_decoded(path), start=1):
        where, cells = f"{path}:{number}", [] if isinstance(line, pb.BadLine) else line.strip().split("|")
        if len(cells) == 3:
            yield pb.Record(where, str(line), dict(zip(("section", "title", "text"), cells, strict=True)))
        else:
            yield pb.Record(where, str(line), {}, pb.DataError(where, "not section|title|text", "send it again"))


def read_sections(path: Path) -> list[pb.TextExample]:
    """Read titles with their sections."""
    examples = []
    for record in read_wire(path):
        if record.error:
            raise record.error
        examples.append(pb.TextExample(record.where, record.values["title"], None, record.values["section"]))
    return examples


def find_straight_quotes(text: str) -> list[pb.Correction]:
    """Find straight quotation marks, which newspapers do not print."""
    return [
        pb.Correction(m.start(), m.end(), m[0], (f"“{m[1]}”",), "quotes", "곧은따옴표", 1.0, "straight-quotes")
        for m in re.finditer(r'"([^"\n]*)"', text)
    ]


READER = pb.FileReader(".wire", read_wire)
TOOL = pb.Checker("straight-quotes", __name__, "find_straight_quotes")
TASK = pb.Task(
    name="wire-section",
    title="Wire section",
    family=pb.Classification(labels=("sports", "economy")),
    files={s: pb.OfficialFile(f"wire/{s}.wire", f"https://wire.example/{s}.wire", "CC0-1.0") for s in ("train", "dev")},
    num_examples={"train": 4, "dev": 2},
    read=read_sections,
    metrics=(pb.accuracy,),
    chance=0.5,
    finetune=pb.FinetuneConfig(epochs=1, max_length=64),
    source="An example; its data are invented",
    licence="CC0-1.0",
)
