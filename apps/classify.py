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
from pathlib import Path

from corpora.documents import RejectedRecord, read_files, report_rejected
from corpora.foundation.command import ArgumentParser, run_command
from corpora.readers.fields import parse_fields
from downstream.classify import Classifier

BLOCK = 256
"""Texts that are labelled together."""


def main(argv: list[str] | None = None) -> int:
    """Label texts from the command line."""
    parser = ArgumentParser("python -m apps.classify", "Label texts, with probabilities.")
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="files, folders, or - for the standard input"
    )
    parser.add_argument("--model", type=Path, help="folder of a fine-tuned model; default: bundled, film reviews")
    parser.add_argument("--runtime", help="backend, e.g. onnx-int8 or auto; default: the one that starts fastest")
    parser.add_argument("--field", action="append", default=[], metavar="text=COLUMN", help="column of the text")
    parser.add_argument("--json", action="store_true", help="print JSON, a line a text, with all probabilities")
    arguments = parser.parse(argv)
    fields = parse_fields(arguments.field)
    rejected: list[RejectedRecord] = []
    documents = read_files(arguments.files, rejected, fields=fields, text_unit="line")
    classifier = Classifier.load(arguments.model, arguments.runtime)
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
    return report_rejected(rejected)


if __name__ == "__main__":
    run_command(main)
