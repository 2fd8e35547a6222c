"""Inputs of visitors: texts and files, read with limits; and every error as one sentence in their language.

Files are read by `corpora.documents`, `apps.stories.articles` and `apps.summarize` from a temporary file that is
removed afterwards.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from apps.stories.articles import Article, read_articles
from apps.summarize import Item, read_items
from corpora.documents import RejectedRecord, read_documents
from corpora.foundation.errors import CheckpointError, DataError, SuiteError, UsageError
from corpora.foundation.files import package_path
from corpora.foundation.texts import Texts
from corpora.readers.fields import candidates
from corpora.readers.records import read_records

MAX_UPLOAD_MB = 20
MAX_ARTICLE, MAX_PASSAGE, MAX_COMMENT, MAX_BLANKS = 2_000_000, 100_000, 5_000, 1_000
"""Characters of one text."""
MAX_ARTICLES, MAX_TITLES, MAX_COMMENTS = 5_000, 50_000, 20_000
"""Records of one file."""
TITLE_TYPES = COMMENT_TYPES = ("txt", "jsonl", "csv", "json", "tsv", "xlsx", "xls")
ARTICLE_TYPES = (*TITLE_TYPES, "hwp", "hwpx", "docx")


class InputError(Exception):
    """An input that is refused: the key of a sentence in the catalogue of texts, and its values."""

    def __init__(self, key: str, **values: object) -> None:
        """Keep key and values; the language is chosen when the error is shown."""
        super().__init__(key)
        self.key, self.values = key, values


@dataclass(frozen=True)
class ReadFile:
    """The records of a file, and the rejected ones."""

    records: tuple[Any, ...]
    rejected: tuple[RejectedRecord, ...] = ()


def check_text(text: str, limit: int, empty: str = "error.empty") -> str:
    """Return a text if it is neither blank nor too long.

    Raises:
        InputError: it is blank or too long.
    """
    if not text.strip():
        raise InputError(empty)
    if len(text) > limit:
        raise InputError("error.long", size=len(text), limit=limit)
    return text


@contextmanager
def as_file(name: str, content: bytes, types: Sequence[str]) -> Iterator[Path]:
    """Write an upload to a temporary file of the same name.

    Raises:
        InputError: it is too large, empty, or its name ends in none of TYPES.
    """
    plain = re.sub(r"[/\\\0]", "_", name)[-120:] or "upload"
    suffix = Path(plain).suffix.lower().removeprefix(".")
    if suffix not in types:
        raise InputError("error.format", name=plain, types=", ".join(f".{kind}" for kind in types))
    if not content:
        raise InputError("error.empty_file", name=plain)
    if len(content) > MAX_UPLOAD_MB * 1_000_000:
        raise InputError("error.large", size=len(content) / 1e6, limit=MAX_UPLOAD_MB)
    with tempfile.TemporaryDirectory(prefix="pressbert-demo-") as folder:
        path = Path(folder) / plain
        path.write_bytes(content)
        yield path


def read_article_file(name: str, content: bytes) -> ReadFile:
    """Read articles to summarize, as `apps.summarize.Item`s whose source is the name of the file.

    Texts are unchanged, so offsets count the characters of the file.

    Raises:
        InputError: see `as_file`; too many articles, or one too long.
        DataError: the file cannot be read.
    """
    with as_file(name, content, ARTICLE_TYPES) as path:
        found = list(_limited(read_items([str(path)]), MAX_ARTICLES))
        items = [_renamed(item, path) for item in found if item.error is None]
        rejected = [
            RejectedRecord(f"{path.name}:{item.line}", item.error.what, "", item.error.fix)
            for item in found
            if item.error is not None
        ]
    _check_any(items, rejected)
    for item in items:
        check_text(item.text, MAX_ARTICLE)
    return ReadFile(tuple(items), tuple(rejected))


def _renamed(item: Item, path: Path) -> Item:
    return replace(item, source=path.name, id=item.id.removeprefix(f"{path.parent}/"))


def read_title_file(name: str, content: bytes) -> ReadFile:
    """Read a day's articles, as `apps.stories.articles.Article`s.

    Raises:
        InputError: see `as_file`; too many titles, or fewer than two.
        DataError: the file cannot be read.
    """
    rejected: list[RejectedRecord] = []
    with as_file(name, content, TITLE_TYPES) as path:
        articles: Sequence[Article] = read_articles(path, rejected=rejected)
    if len(articles) > MAX_TITLES:
        raise InputError("error.many", limit=MAX_TITLES)
    if len(articles) < 2:
        raise InputError("error.few_titles")
    return ReadFile(tuple(articles), tuple(rejected))


def read_comment_file(name: str, content: bytes, column: str | None = None) -> ReadFile:
    """Read comments, one per line or record, as texts.

    Args:
        name: of the file.
        content: its bytes.
        column: that holds the comments; None: the one that `corpora.readers.fields` finds.

    Raises:
        InputError: see `as_file`; too many comments, or none.
        DataError: the file cannot be read.
    """
    rejected: list[RejectedRecord] = []
    fields = {"text": column} if column else None
    with as_file(name, content, COMMENT_TYPES) as path:
        documents = _limited(read_documents(path, fields=fields, text_unit="line", rejected=rejected), MAX_COMMENTS)
        texts = tuple(document.text[:MAX_COMMENT] for document in documents)
    _check_any(texts, rejected)
    return ReadFile(texts, tuple(rejected))


def comment_columns(name: str, content: bytes) -> tuple[tuple[str, ...], str | None]:
    """Return the columns of a file of comments, and the one that is read if no other is chosen; None if there is none.

    Raises:
        InputError: see `as_file`.
        DataError: the file cannot be read.
    """
    with as_file(name, content, COMMENT_TYPES) as path:
        columns = next((tuple(record.values) for record in read_records(path, "line") if record.error is None), ())
    return columns, next(iter(candidates(columns)["text"]), None)


def _check_any(found: Sequence[object], rejected: Sequence[RejectedRecord]) -> None:
    """Refuse a file without a good record; the first bad one says why."""
    if found:
        return
    if rejected:
        raise DataError(rejected[0].where, rejected[0].reason, "correct the file")
    raise InputError("error.no_records")


def _limited(records: Iterator[Any], limit: int) -> Iterator[Any]:
    for number, record in enumerate(records, start=1):
        if number > limit:
            raise InputError("error.many", limit=limit)
        yield record


# ---- uploads, read by a process of their own ----

CHILD_BYTES, CHILD_S = 3 << 30, 60.0
"""Memory, of which the libraries take a part, and time of the process that reads an upload."""
READERS: Mapping[str, tuple[Callable[..., Any], Sequence[str]]] = {
    "articles": (read_article_file, ARTICLE_TYPES),
    "titles": (read_title_file, TITLE_TYPES),
    "comments": (read_comment_file, COMMENT_TYPES),
    "columns": (comment_columns, COMMENT_TYPES),
}
"""Readers by name, and the types of file that they take."""
RECORDS: Mapping[str, type[Any]] = {"Item": Item, "Article": Article}


def read_upload(kind: str, name: str, content: bytes, column: str | None = None) -> Any:
    """Call one of `READERS` in a process with limits: a file that fills memory or never ends harms no other visitor.

    Raises:
        InputError: see the reader; or the file takes too much memory or time.
        DataError: see the reader.
    """
    with as_file(name, content, READERS[kind][1]) as path:
        command = [sys.executable, "-m", "apps.demo_pages.inputs", kind, str(path), *filter(None, [column])]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=CHILD_S, check=True, cwd=path.parent, env=_env()
            )
            answer = json.loads(done.stdout)
        except (subprocess.SubprocessError, ValueError) as error:
            raise InputError("error.heavy", name=path.name) from error
    match answer:
        case {"refused": [key, values]}:
            raise InputError(key, **values)
        case {"error": [where, what, fix]}:
            raise DataError(where, what, fix)
        case {"columns": [columns, found]}:
            return tuple(columns), found
    records = tuple(one if isinstance(one, str) else RECORDS[one.pop("type")](**one) for one in answer["records"])
    return ReadFile(records, tuple(RejectedRecord(**one) for one in answer["rejected"]))


def _env() -> dict[str, str]:
    """Return the environment of the process: our packages are found from wherever it runs."""
    root = str(package_path("apps").parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


def _plain(record: Any) -> Any:
    return record if isinstance(record, str) else {"type": type(record).__name__, **vars(record)}


def main(argv: Sequence[str]) -> None:
    """Read an upload and print what is in it as JSON: KIND FILE [COLUMN]."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (CHILD_BYTES, CHILD_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (int(CHILD_S), int(CHILD_S)))
    kind, file, *column = argv
    path = Path(file)
    try:
        found = READERS[kind][0](path.name, path.read_bytes(), *column)
    except InputError as error:
        answer: dict[str, Any] = {"refused": [error.key, error.values]}
    except SuiteError as error:
        answer = {"error": [error.where, error.what, error.fix]}
    else:
        if isinstance(found, ReadFile):
            records = [
                one if isinstance(one, str) else {"type": type(one).__name__, **vars(one)} for one in found.records
            ]
            answer = {"records": records, "rejected": list(map(vars, found.rejected))}
        else:
            answer = {"columns": found}
    sys.stdout.write(json.dumps(answer))


# ---- errors ----

COLUMNS = re.compile(r"no \w+ column \(its columns are (.+?)\)")
KNOWN: Sequence[tuple[str, str]] = (
    ("zero bytes", "error.empty_file"),
    ("not UTF-8", "error.not_utf8"),
    (COLUMNS.pattern, "error.no_column_seen"),
    ("no text column|no titles|no text in it", "error.no_column"),
    ("not valid JSON|an object is expected|an array is expected", "error.json"),
    ("not valid CSV|where the header has", "error.csv"),
    ("not an Excel workbook", "error.xlsx"),
    ("no documents in it|no articles in it|empty document", "error.no_records"),
    ("duplicate id", "error.duplicate_id"),
    ("lone surrogate", "error.surrogate"),
)
"""Pattern of a reader's message → key of a sentence."""


def explain(error: Exception, texts: Texts) -> str:
    """Return what is wrong, and what to do, in the visitor's language.

    Of unexpected errors only the type is shown.
    """
    match error:
        case InputError():
            return texts(error.key, **error.values)
        case CheckpointError():
            return texts("error.model", where=Path(error.where).name, what=error.what, fix=error.fix)
        case UsageError() if error.where.startswith("runtime"):
            return texts("error.runtime", what=error.what)
        case SuiteError():
            return _reader_error(error.where, error.what, texts)
        case ValueError() if "no blank" in str(error):
            return texts("error.no_blank")
        case ValueError() if found := re.search(r"has (\d+) tokens and the model reads (\d+)", str(error)):
            return texts("error.tokens", size=int(found[1]), limit=int(found[2]))
    return texts("error.unforeseen", kind=type(error).__name__)


def explain_rejected(record: RejectedRecord, texts: Texts) -> str:
    """Return why a record was rejected, with its line."""
    return _reader_error(record.where, record.reason, texts)


def _reader_error(where: str, what: str, texts: Texts) -> str:
    key = next((key for pattern, key in KNOWN if re.search(pattern, what)), "error.unreadable")
    columns = found[1] if (found := COLUMNS.search(what)) else ""
    sentence = texts(key, name=Path(where.rsplit(":", 1)[0]).name, what=what, columns=columns)
    line = re.search(r":(\d+)$", where)
    return f"{texts('error.line', line=int(line[1]))} {sentence}" if line else sentence


if __name__ == "__main__":
    main(sys.argv[1:])
