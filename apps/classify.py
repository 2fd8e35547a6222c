"""Label texts: film reviews by the bundled model, or any single texts by a fine-tuned folder.

    echo "배우들 연기가 좋았다" | python -m apps.classify -
    python -m apps.classify comments.csv --field text=댓글 --json > labels.jsonl

A text is a line of a `.txt` file or of the standard input, or a record of `.jsonl`, `.json`, `.csv` or `.tsv`. A record
that cannot be read is reported with its line, and the command ends with exit code 1. From Python:
`downstream.classify.Classifier`.
"""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from corpora.documents import Document, RejectedRecord, read_documents
from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.readers.fields import parse_fields
from downstream.classify import Classifier

STANDARD_INPUT = "-"
BLOCK = 256
"""Texts that are labelled together."""


def read_texts(path: str, fields: dict[str, str], rejected: list[RejectedRecord]) -> Iterator[Document]:
    """Yield the texts of a file, or of the standard input for `-`; bad records go to REJECTED.

    Raises:
        DataError: the file cannot be read.
    """
    if path != STANDARD_INPUT:
        yield from read_documents(Path(path), fields=fields, text_unit="line", rejected=rejected)
        return
    for number, line in enumerate(sys.stdin, start=1):
        if text := line.strip():
            yield Document(text, f"{STANDARD_INPUT}:{number}")


def main(argv: list[str] | None = None) -> int:
    """Label texts from the command line."""
    parser = ArgumentParser("python -m apps.classify", "Label texts, with probabilities.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, or - for the standard input")
    parser.add_argument("--model", type=Path, help="folder of a fine-tuned model; default: bundled, film reviews")
    parser.add_argument("--runtime", help="backend, e.g. onnx-int8 or auto; default: the one that starts fastest")
    parser.add_argument("--field", action="append", default=[], metavar="text=COLUMN", help="column of the text")
    parser.add_argument("--json", action="store_true", help="print JSON, a line a text, with all probabilities")
    arguments = parser.parse(argv)
    fields = parse_fields(arguments.field)
    classifier = Classifier.load(arguments.model, arguments.runtime)
    rejected: list[RejectedRecord] = []
    documents = (document for path in arguments.files for document in read_texts(path, fields, rejected))
    while block := list(itertools.islice(documents, BLOCK)):
        rows = classifier.probabilities([document.text for document in block])
        for document, row in zip(block, rows.tolist(), strict=True):
            scores = dict(zip(classifier.labels, (round(value, 6) for value in row), strict=True))
            label = max(scores, key=scores.__getitem__)
            if arguments.json:
                record = {"id": document.id, "label": label, "probabilities": scores, "text": document.text}
                sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
            else:
                sys.stdout.write(f"{label}\t{scores[label]:.4f}\t{' '.join(document.text.split())}\n")
        sys.stdout.flush()
    for bad in rejected:
        sys.stderr.write(f"{bad.where}: {bad.reason}; correct the record or remove it\n")
    return EXIT_FAILED_CELLS if rejected else EXIT_DONE


if __name__ == "__main__":
    run_command(main)
