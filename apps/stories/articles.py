"""Articles of a day: reads the exports of newsrooms, and cleans titles for comparison.

Formats: the sample of KPFBERT/kpfSBERT_Clustering (a JSON array of `title` and `category`), BigKinds' XLSX exports
(일자, 언론사, 제목, 통합 분류1, 본문, …), and CSV, TSV, JSONL or plain lines with such columns.

>>> clean_title("[속보] 얀센 백신 예약 마감(종합2보)")
'얀센 백신 예약 마감'
>>> clean_title("[오늘의 운세] 6월 2일")
'오늘의 운세 6월 2일'
"""

import datetime
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from apps.stories.xlsx import read_sheet
from corpora.documents import FIELD_NAMES, Document, RejectedRecord, format_of, nfc, read_documents
from corpora.foundation.errors import DataError, UsageError, suggest

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "title": ("title", "headline", "제목", "기사제목", "text"),
    "id": ("id", "news_id", "guid", "뉴스 식별자", "뉴스식별자"),
    "text": ("content", "body", "본문", "내용", "text"),
    "date": ("date", "published_at", "일자", "날짜", "작성일"),
    "category": ("category", "section", "통합 분류1", "통합 분류", "분류", "카테고리", "섹션"),
    "publisher": ("publisher", "provider", "언론사", "매체", "매체명"),
    "url": ("url", "link", "URL", "링크"),
}
"""Column names of each field, in the order they are tried."""

LONGEST_TITLE = 300
"""Characters of a title that are compared."""
SURROGATES = re.compile("[\ud800-\udfff]")
# Heads such as [속보] give the kind of an article, not its story; (종합2보) is the number of a revision.
# The last two pairs of brackets are the full-width [] and the tortoise-shell ones.
HEADS = re.compile(
    r"\[[^\[\]]{0,60}\]|【[^【】]{0,60}】|\uff3b[^\uff3b\uff3d]{0,60}\uff3d|\u3014[^\u3014\u3015]{0,60}\u3015"
)
REVISION = re.compile(r"\(\s?(?:종합\s?\d?\s?보?|\d\s?보|속보|상보|영상|포토|사진|전문|공식)\s?\)")
DAY = re.compile(r"\d+\s?[년월일]자?|[월화수목금토일]요일|\([월화수목금토일]\)|\d")
BRACKETS = re.compile(r"[\[\]()【】\uff3b\uff3d\u3014\u3015]")
DATE = re.compile(r"(\d{4})[-./년 ]{0,2}(\d{1,2})[-./월 ]{0,2}(\d{1,2})일?(?:[T ]{1,2}(\d{1,2}):(\d{2}))?")
EXCEL_DAY_0 = datetime.date(1899, 12, 30)
EXCEL_DAYS = range(20_000, 80_000)
"""Numbers that are parsed as Excel dates: 1954 to 2119."""


@dataclass(frozen=True)
class Article:
    """An article, or its headline alone; every string is NFC."""

    title: str
    """As shown."""
    id: str = ""
    text: str = ""
    date: str = ""
    """ISO 8601, `2021-06-01` or `2021-06-01T09:30`; empty if unknown."""
    category: str = ""
    publisher: str = ""
    url: str = ""


Articles: TypeAlias = Iterable[str | Article | Document]


def to_articles(articles: Articles) -> list[Article]:
    """Return articles for titles, documents or articles; a missing id becomes the position, from 1.

    A lone surrogate, which no file can hold, becomes U+FFFD.

    Raises:
        ValueError: ARTICLES is one string, or an element is no article.
    """
    if isinstance(articles, str):
        raise ValueError("articles is one string; give a list of titles")
    return [_to_article(article, str(number)) for number, article in enumerate(articles, start=1)]


def _to_article(article: object, position: str) -> Article:
    match article:
        case str():
            return Article(_printable(article), position)
        case Article():
            fields = {name: _printable(value) for name, value in vars(article).items()}
            return Article(**fields | {"id": fields["id"] or position})
        case Document(text=text, title=title, date=date, section=section):
            fields = {"title": title or text.partition("\n")[0], "text": text if title else "", "category": section}
            fields = {name: _printable(value) for name, value in fields.items()}
            return Article(id=article.id or position, date=parse_date(date), **fields)
    raise ValueError(f"an article is {article!r:.40}; give a title, an Article or a Document")


def _printable(text: str) -> str:
    return SURROGATES.sub("\ufffd", nfc(text))


def clean_title(title: str) -> str:
    """Return a title without heads and revision marks, at most `LONGEST_TITLE` characters.

    A title that consists of a head, or of a head and a date, keeps the text in the brackets. A title without a letter
    or digit becomes empty.
    """
    title = _printable(title[: 4 * LONGEST_TITLE])
    bare = " ".join(REVISION.sub(" ", HEADS.sub(" ", title)).split())
    if not _has_letters(DAY.sub("", bare)):
        bare = " ".join(BRACKETS.sub(" ", title).split())
    return bare[:LONGEST_TITLE] if _has_letters(bare) else ""


def _has_letters(text: str) -> bool:
    return any(map(str.isalnum, text))


def parse_date(value: object) -> str:
    """Parse a date of an export; returns ISO 8601 with the time if given, empty if it is no date.

    >>> [parse_date(value) for value in ("20210601", "2021.6.1. 09:30", "2021년 6월 1일", 44348, "어제")]
    ['2021-06-01', '2021-06-01T09:30', '2021-06-01', '2021-06-01', '']
    """
    text = str(value).strip()
    if re.fullmatch(r"\d{5}(?:\.\d*)?", text) and int(float(text)) in EXCEL_DAYS:
        return (EXCEL_DAY_0 + datetime.timedelta(days=int(float(text)))).isoformat()
    found = DATE.match(text.replace(". ", " ").removesuffix(".0"))
    if found is None:
        return ""
    year, month, day, hour, minute = (int(part or 0) for part in found.groups())
    try:
        moment = datetime.datetime(year, month, day, hour, minute, tzinfo=datetime.UTC)
    except ValueError:
        return ""
    return moment.strftime("%Y-%m-%dT%H:%M" if found[4] else "%Y-%m-%d")


def parse_columns(options: Iterable[str]) -> dict[str, str]:
    """Parse options of the form `FIELD=NAME`, e.g. `title=헤드라인`.

    Raises:
        UsageError: an option has another form.
    """
    columns = {}
    for option in options:
        field, _, column = option.partition("=")
        if not field or not column:
            raise UsageError("--column", f"'{option}' is not FIELD=NAME", "write for example title=헤드라인")
        columns[field] = column
    return columns


def read_articles(
    path: Path, *, columns: Mapping[str, str] | None = None, rejected: list[RejectedRecord] | None = None
) -> list[Article]:
    """Read the articles of a file.

    Args:
        path: `.json` (array), `.jsonl`, `.csv`, `.tsv`, `.txt` (a title a line), any of them with `.gz` behind, or
            `.xlsx` (first sheet).
        columns: columns of fields, e.g. `{"title": "헤드라인"}`; others are found by `COLUMNS`.
        rejected: bad records are appended here; without it the first one raises.

    Raises:
        DataError: the file cannot be read, has no titles, or, without `rejected`, holds a bad record.
    """
    columns = columns or {}
    if unknown := set(columns) - set(COLUMNS):
        name = min(unknown)
        raise DataError("--column", f"unknown field '{name}'", suggest(name, COLUMNS))
    if path.suffix.lower() == ".xlsx":
        return _read_xlsx(path, columns, rejected)
    if format_of(path) == ".txt":
        lines = read_documents(path, text_unit="line", rejected=rejected)
        return [Article(document.text, document.id) for document in lines]
    names = [columns["title"]] if "title" in columns else list(COLUMNS["title"])
    for name in names:
        # If every record lacks this column, the column has another name.
        bad: list[RejectedRecord] = []
        fields = {"text": name} | ({"id": columns["id"]} if "id" in columns else {})
        documents = list(read_documents(path, fields=fields, rejected=bad))
        if documents:
            break
    else:
        raise _without_titles(path, names, bad)
    if bad and rejected is None:
        raise DataError(bad[0].where, bad[0].reason, "correct the record or remove it")
    if rejected is not None:
        rejected.extend(bad)
    records = [_record_of(document) for document in documents]
    _check_columns(path, columns, records)
    return [_from_record(d.text, d.id, record, columns) for d, record in zip(documents, records, strict=True)]


def _without_titles(path: Path, names: list[str], bad: list[RejectedRecord]) -> DataError:
    reason = f" ({bad[0].where}: {bad[0].reason})" if bad else ""
    return DataError(
        path, f"no titles, in none of the columns {', '.join(names)}{reason}", "name the column: --column title=…"
    )


def _record_of(document: Document) -> dict[str, Any]:
    """Return the record of a document: the reader keeps some fields under names of its own."""
    known = {"date": document.date, "section": document.section}
    return {name: value for field, value in known.items() if value for name in FIELD_NAMES[field]} | dict(
        document.extra
    )


def _check_columns(path: Path, columns: Mapping[str, str], records: list[dict[str, Any]]) -> None:
    """Refuse a named column that is in no record; the reader has checked titles and ids."""
    for name in set(columns.values()) - {columns.get("title"), columns.get("id")}:
        if not any(name in record for record in records):
            raise DataError(path, f"no column '{name}'", suggest(name, {key for record in records for key in record}))


def _from_record(title: str, id_: str, record: Mapping[str, Any], columns: Mapping[str, str]) -> Article:
    def find(name: str) -> str:
        choices = (columns[name],) if name in columns else COLUMNS[name]
        value = next((record[choice] for choice in choices if record.get(choice) not in (None, "", [])), "")
        value = value[0] if isinstance(value, list) else value
        return _printable(str(value)).strip()

    return Article(
        title=title,
        id=find("id") or id_,
        text=find("text"),
        date=parse_date(find("date")),
        category=find("category").partition(">")[0].strip(),  # BigKinds: 사회>사건_사고
        publisher=find("publisher"),
        url=find("url"),
    )


def _read_xlsx(path: Path, columns: Mapping[str, str], rejected: list[RejectedRecord] | None) -> list[Article]:
    rows = read_sheet(path)
    header = [nfc(cell.strip()) for cell in next(rows, (0, []))[1]]
    names = [columns["title"]] if "title" in columns else list(COLUMNS["title"])
    column = next((name for name in names if name in header), None)
    if column is None:
        raise _without_titles(path, names, [])
    _check_columns(path, columns, [dict.fromkeys(header)])
    articles: list[Article] = []
    seen: set[str] = set()
    for number, row in rows:
        record = {name: cell for name, cell in zip(header, row, strict=False) if name}
        where, title = f"{path.name}:{number}", _printable(record.get(column, "")).strip()
        article = _from_record(title, where, record, columns)
        reason = "" if title else "empty document"
        reason = f"duplicate id '{article.id}'" if article.id in seen else reason
        if not reason:
            seen.add(article.id)
            articles.append(article)
        elif rejected is None:
            raise DataError(where, reason, "correct the record or remove it")
        else:
            rejected.append(RejectedRecord(where, reason, str(record)[:200]))
    if not articles:
        raise DataError(path, "no articles in it", "export it again")
    return articles
