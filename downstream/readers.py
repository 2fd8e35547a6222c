"""Readers shared by task files: the layouts that more than one Korean benchmark is published in.

Texts of classification tasks enter as NFC. Contexts and answers of question tasks stay as they are, because their
official offsets and scores count the characters of the file.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpora.documents import read_lines, read_text
from corpora.runtime import DataError
from downstream.task import Answer, QuestionExample

REPAIR = "restore the official file"


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: it is missing, empty, not UTF-8 or truncated.
    """
    try:
        return json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(path, f"not valid JSON ({error}); it may be truncated", REPAIR) from error


def read_json_rows(path: Path, *columns: str) -> Iterator[tuple[str, list[Any]]]:
    """Read a JSON array of objects; yields (where, values of COLUMNS).

    Raises:
        DataError: the layout is another, or a column is missing.
    """
    rows = read_json(path)
    if not isinstance(rows, list):
        raise DataError(path, f"a {type(rows).__name__} where an array is expected", REPAIR)
    for number, row in enumerate(rows, start=1):
        where = f"{path}, record {number}"
        yield where, [pick(row, column, where) for column in columns]


def pick(record: Any, column: str, where: str) -> Any:
    """Return RECORD[COLUMN].

    Raises:
        DataError: RECORD is no object or has no such column.
    """
    if not isinstance(record, dict) or column not in record:
        raise DataError(where, f"missing column '{column}'", REPAIR)
    return record[column]


def read_tsv_rows(path: Path, *columns: str) -> Iterator[tuple[str, list[str]]]:
    """Read a tab-separated file with a header and no quoting; yields (where, values of COLUMNS).

    A CSV reader would take quotation marks for quoting and lose rows: KorSTS train 5,749 → 5,703.

    Raises:
        DataError: a column is missing in the header, or a row has another number of columns.
    """
    lines = read_lines(path)
    header = next(lines, "").rstrip("\r\n").split("\t")
    for column in columns:
        if column not in header:
            raise DataError(f"{path}:1", f"missing column '{column}' (the header has {header})", REPAIR)
    places = [header.index(column) for column in columns]
    for number, line in enumerate(lines, start=2):
        row = line.rstrip("\r\n").split("\t")
        if len(row) != len(header):
            what = f"{len(row)} columns where the header has {len(header)}"
            raise DataError(f"{path}:{number}", what, REPAIR)
        yield f"{path}:{number}", [row[place] for place in places]


def parse_score(value: Any, where: str, low: float, high: float) -> float:
    """Return VALUE as a number.

    Raises:
        DataError: it is none, or outside [low, high].
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
        DataError: the layout is another, or an answer is not where its offset says.
    """
    examples: list[QuestionExample] = []
    for article in pick(read_json(path), "data", str(path)):
        for paragraph in pick(article, "paragraphs", str(path)):
            context = pick(paragraph, "context", f"{path}, article '{article.get('title')}'")
            for qa in pick(paragraph, "qas", str(path)):
                id_ = pick(qa, id_column, f"{path}, article '{article.get('title')}'")
                where = f"{path}, question {id_}"
                examples.append(
                    QuestionExample(
                        id=id_,
                        question=pick(qa, "question", where),
                        context=context,
                        answers=tuple(_answers(qa, context, where)),
                        question_type=int(qa.get("question_type", 1)),
                    )
                )
    return examples


def _answers(qa: dict[str, Any], context: str, where: str) -> Iterator[Answer]:
    impossible = bool(qa.get("is_impossible", False))
    answers = pick(qa, "answers", where)
    if impossible == bool(answers):
        raise DataError(where, f"is_impossible is {impossible} with {len(answers)} answers", REPAIR)
    for answer in answers:
        text, start = pick(answer, "text", where), pick(answer, "answer_start", where)
        if context[start : start + len(text)] != text:
            raise DataError(where, f"the answer '{text}' is not at offset {start}", REPAIR)
        yield Answer(text, start)
