"""Readers shared by task files: layouts that several Korean benchmarks are published in.

Texts of classification tasks are normalised to NFC. Contexts and answers of question tasks are not, because their
official offsets and scores count the characters of the file.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from corpora.characters import nfc
from corpora.foundation.errors import DataError
from corpora.readers.decoding import read_lines, read_text
from downstream.task import Answer, QuestionExample, TextExample

REPAIR = "restore the official file"
KINDS = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    list: "an array",
    dict: "an object",
    object: "a value",
}

ValueT = TypeVar("ValueT")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: it is missing, empty, not UTF-8 or truncated.
    """
    try:
        return json.loads(read_text(path, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"not valid JSON ({error}); it may be truncated", REPAIR) from error


def read_json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Read a JSON array; yields (where, record).

    Raises:
        DataError: it is not an array.
    """
    rows = read_json(path)
    if not isinstance(rows, list):
        raise DataError(path, f"a {type(rows).__name__} where an array is expected", REPAIR)
    for number, row in enumerate(rows, start=1):
        yield f"{path}, record {number}", row


def pick(record: Any, column: str, where: str, kind: type[ValueT]) -> ValueT:
    """Return RECORD[COLUMN], which must be of type KIND.

    Raises:
        DataError: RECORD is not an object, or its column is missing or of another type.
    """
    if not isinstance(record, dict) or column not in record:
        raise DataError(where, f"missing column '{column}'", REPAIR)
    value = record[column]
    # JSON's true is an int in Python, but not a number here.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        what = f"column '{column}' holds {value!r:.40} where {KINDS[kind]} is expected"
        raise DataError(where, what, REPAIR)
    return value


def read_tsv_rows(path: Path, *columns: str) -> Iterator[tuple[str, list[str]]]:
    """Read a tab-separated file with a header and no quoting; yields (where, values of COLUMNS).

    A CSV reader would interpret quotation marks as quoting and lose rows: KorSTS train 5,749 → 5,703.

    Raises:
        DataError: a column is missing in the header, or a row has another number of columns.
    """
    lines = read_lines(path, "utf-8")
    header = next(lines, "").rstrip("\r\n").split("\t")
    for column in columns:
        if column not in header:
            raise DataError(f"{path}:1", f"missing column '{column}' (the header has {header})", REPAIR)
    positions = [header.index(column) for column in columns]
    for number, line in enumerate(lines, start=2):
        row = line.rstrip("\r\n").split("\t")
        if len(row) != len(header):
            what = f"{len(row)} columns where the header has {len(header)}"
            raise DataError(f"{path}:{number}", what, REPAIR)
        yield f"{path}:{number}", [row[position] for position in positions]


def read_labelled_rows(path: Path, *, columns: Sequence[str], labels: Mapping[str, str]) -> list[TextExample]:
    """Read a tab-separated file of labelled texts or pairs of texts.

    Args:
        path: the file, with a header.
        columns: names of the columns with the id, the text or the two texts, and the label.
        labels: value in the file, in lower case → label.

    Raises:
        DataError: see `read_tsv_rows`; or a label is none of LABELS.
    """
    return [
        TextExample(id_, nfc(text), nfc(pair[0]) if pair else None, parse_choice(label, labels, where))
        for where, (id_, text, *pair, label) in read_tsv_rows(path, *columns)
    ]


def unquote(value: str) -> str:
    """Undo CSV quoting, which some publishers apply to the few values with a quotation mark and to no others."""
    is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1].replace('""', '"') if is_quoted else value


def parse_choice(value: str, names: Mapping[str, str], where: str) -> str:
    """Return the label that VALUE is written for, whatever its case.

    Raises:
        DataError: VALUE is not in NAMES.
    """
    if value.strip().lower() not in names:
        raise DataError(where, f"'{value}' is none of {', '.join(names)}", REPAIR)
    return names[value.strip().lower()]


def parse_score(value: Any, where: str, low: float, high: float) -> float:
    """Return VALUE as a number.

    Raises:
        DataError: it is not a number, or outside [low, high].
    """
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = float("nan")
    if not low <= score <= high:
        raise DataError(where, f"score {value!r} is not a number from {low:g} to {high:g}", REPAIR)
    return score


def read_squad(path: Path, *, id_column: str) -> list[QuestionExample]:
    """Read the SQuAD layout: KorQuAD 1.0 (`id`) and KLUE-MRC (`guid`, `is_impossible`, `question_type`).

    Raises:
        DataError: the layout differs, or an answer is not at its offset.
    """
    examples: list[QuestionExample] = []
    for number, article in enumerate(pick(read_json(path), "data", str(path), list), start=1):
        article_at = f"{path}, article {number}"
        title = pick(article, "title", article_at, str)
        for paragraph in pick(article, "paragraphs", article_at, list):
            context = pick(paragraph, "context", article_at, str)
            for qa in pick(paragraph, "qas", article_at, list):
                id_ = pick(qa, id_column, article_at, str)
                where = f"{path}, question {id_}"
                examples.append(
                    QuestionExample(
                        id=id_,
                        question=pick(qa, "question", where, str),
                        context=context,
                        answers=tuple(_answers(qa, context, where)),
                        question_type=pick(qa, "question_type", where, int) if "question_type" in qa else 1,
                        title=title,
                    )
                )
    return examples


def article_of(example: QuestionExample) -> str:
    """Return the key of the article that a question is on: its title, or the context where there is no title."""
    return example.title or example.context


def premise_of(example: TextExample) -> str:
    """Return the key of the premise, which several hypotheses share."""
    return example.text


def _answers(qa: Any, context: str, where: str) -> Iterator[Answer]:
    impossible = pick(qa, "is_impossible", where, bool) if "is_impossible" in qa else False
    answers = pick(qa, "answers", where, list)
    if impossible == bool(answers):
        raise DataError(where, f"is_impossible is {impossible} with {len(answers)} answers", REPAIR)
    for answer in answers:
        text, start = pick(answer, "text", where, str), pick(answer, "answer_start", where, int)
        if start < 0 or context[start : start + len(text)] != text:
            raise DataError(where, f"the answer '{text}' is not at offset {start}", REPAIR)
        yield Answer(text, start)
