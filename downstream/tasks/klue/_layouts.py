"""The layouts of KLUE's files: records with labelled texts, and sentences with a row for each unit."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from corpora.characters import nfc
from corpora.foundation.errors import DataError
from corpora.readers.decoding import read_lines
from downstream.readers import REPAIR, pick, read_json_rows
from downstream.task import TextExample


def read_labelled_records(path: Path, *, columns: Sequence[str]) -> list[TextExample]:
    """Read a JSON array of labelled texts or pairs of texts; COLUMNS are those of the id, the texts and the label."""
    examples = []
    for where, record in read_json_rows(path):
        id_, text, *pair, label = (pick(record, column, where, str) for column in columns)
        examples.append(TextExample(id_, nfc(text), nfc(pair[0]) if pair else None, label))
    return examples


def read_annotated_sentences(path: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Read sentences that have a row for each unit, between a line `## id<TAB>…` and an empty line.

    Yields:
        Id of a sentence, and (where, row without its line end) of each unit.

    Raises:
        DataError: a sentence has no line with its id.
    """
    id_ = ""
    rows: list[tuple[str, str]] = []
    # The added empty line ends the last sentence.
    for number, line in enumerate(itertools.chain(read_lines(path, "utf-8"), ["\n"]), start=1):
        row = line.rstrip("\r\n")
        if row.startswith("##"):
            # Five lines at the top describe the format; the sentence's own line comes last.
            id_ = row[2:].split("\t")[0].strip()
        elif row.strip("\t"):
            rows.append((f"{path}:{number}", row))
        elif rows:
            if not id_:
                raise DataError(f"{path}:{number}", "the sentence that ends here has no '## id' line", REPAIR)
            yield id_, rows
            id_, rows = "", []
