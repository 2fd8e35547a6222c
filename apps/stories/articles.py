"""Articles of a day: reads the exports of newsrooms, and cleans titles for comparison.

Read are all formats of `corpora.documents.read_documents`, e.g. BigKinds' XLSX exports (일자, 언론사, 제목, 통합 분류1,
본문, …) and the sample of KPFBERT/kpfSBERT_Clustering (a JSON array of `title` and `category`).

>>> clean_title("[속보] 얀센 백신 예약 마감(종합2보)")
'얀센 백신 예약 마감'
>>> clean_title("[오늘의 운세] 6월 2일")
'오늘의 운세 6월 2일'
"""

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from corpora.characters import nfc
from corpora.documents import Document, RejectedRecord, Rejects, name_column, read_documents
from corpora.foundation.errors import DataError, UsageError, suggest
from corpora.readers.dates import KOREA, parse_date
from corpora.readers.decoding import Encoding

FIELDS = {"category": "section"}
"""Field of an article → field of a document, where they differ."""
COLUMNS = ("title", "id", "text", "date", "category", "publisher", "url")
"""Fields whose columns can be named."""

LONGEST_TITLE = 300
"""Characters of a title that are compared."""
POSITION = re.compile(r"\d+|.+\.\w+:\d+.*")
"""An id that `to_articles` and the readers of files give: the position of an article, as in `noon.csv:12`."""
SURROGATES = re.compile("[\ud800-\udfff]")
# Heads such as [속보] give the kind of an article, not its story; (종합2보) is the number of a revision.
# The last two pairs of brackets are the full-width [] and the tortoise-shell ones.
HEADS = re.compile(
    r"\[[^\[\]]{0,60}\]|【[^【】]{0,60}】|\uff3b[^\uff3b\uff3d]{0,60}\uff3d|\u3014[^\u3014\u3015]{0,60}\u3015"
)
STATUS = r"(?:종합\s?\d?\s?보?|\d\s?보|속보|상보|단독|긴급|영상|동영상|포토|사진|화보|전문|공식|수정|재송|업데이트)"
REVISION = re.compile(rf"[(<〈]\s?{STATUS}\s?[)>〉]|^\s*(?:속보|단독|긴급)\s?[|:ㅣ]\s")
STATUS_HEAD = re.compile(rf"{STATUS}|.*(?:pic|photo|포토|사진|영상|화보|컷|TV)(?:뉴스)?", re.IGNORECASE)
"""A head that says how an article is published, not what it is about: [속보], [2보], [헤럴드pic]."""
DAY = re.compile(r"\d+\s?[년월일]자?|[월화수목금토일]요일|\([월화수목금토일]\)|\d")
BRACKETS = re.compile(r"[\[\]()【】\uff3b\uff3d\u3014\u3015]")


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
        case Document(text=text, title=title, section=section):
            fields = {
                "title": title or text.partition("\n")[0],
                "text": text if title else "",
                "category": section.partition(">")[0].strip(),  # BigKinds: 사회>사건_사고
                "publisher": article.publisher,
                "url": article.url,
            }
            fields = {name: _printable(value) for name, value in fields.items()}
            return Article(id=article.id or position, date=_korean_time(parse_date(article.date)), **fields)
    raise ValueError(f"an article is {article!r:.40}; give a title, an Article or a Document")


def _printable(text: str) -> str:
    return SURROGATES.sub("\ufffd", nfc(text))


def known_positions(known_articles: Sequence[Article], listed: Sequence[Article]) -> dict[Article, int]:
    """Return the index of each article of LISTED that is known.

    An article is known by its id and title; one without an id, or with its position in a file for one, by everything
    else, as often as it occurs.
    """
    known = {(article.id, article.title): index for index, article in enumerate(known_articles)}
    by_content: dict[Article, list[int]] = {}
    for index, article in enumerate(known_articles):
        by_content.setdefault(replace(article, id=""), []).append(index)
    positions: dict[Article, int] = {}
    num_seen = Counter[Article]()
    for article in dict.fromkeys(listed):
        content = replace(article, id="")
        alike, number = by_content.get(content, ()), num_seen[content]
        num_seen[content] += 1
        if (article.id, article.title) in known:
            positions[article] = known[article.id, article.title]
        elif POSITION.fullmatch(article.id) and number < len(alike):
            positions[article] = alike[number]
    return positions


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


def topic_heads(title: str) -> frozenset[str]:
    """Return the heads that `clean_title` removes and that name a topic.

    >>> sorted(topic_heads("[단독·종합] [5월 완성차 실적] 판매량 늘어"))
    ['5월 완성차 실적']
    """
    title = _printable(title[: 4 * LONGEST_TITLE])
    heads = [" ".join(found[0][1:-1].split()) for found in HEADS.finditer(title)]
    return frozenset(
        head for head in heads if not all(STATUS_HEAD.fullmatch(part.strip()) for part in re.split(r"[·/,|+]", head))
    )


def _has_letters(text: str) -> bool:
    return any(map(str.isalnum, text))


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
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    rejected: Rejects | None = None,
    encoding: Encoding = "auto",
) -> list[Article]:
    """Read the articles of a file.

    Args:
        path: of any format of `corpora.documents.read_documents`; a line of `.txt` is a title.
        columns: column of each field, e.g. `{"title": "헤드라인"}`; others are found by their usual names.
        rejected: bad records are appended to it; without it the first one raises.
        encoding: of text files.

    Raises:
        DataError: the file cannot be read, has no titles, or, without `rejected`, contains a bad record.
    """
    fields: dict[str, str] = {}
    for name, column in (columns or {}).items():
        if name not in COLUMNS:
            raise DataError("--column", f"unknown field '{name}'", suggest(name, COLUMNS))
        fields[FIELDS.get(name, name)] = column
    bad: list[RejectedRecord] = []
    documents = read_documents(
        path,
        fields=fields,
        text_unit="line",
        rejected=None if rejected is None else _Both(bad, rejected),
        encoding=encoding,
        needed="title",
    )
    articles = [_to_article(document, document.id) for document in documents]
    if not articles and bad:
        fix = "name it: --column title=…" if bad[0].fix == name_column("title") else bad[0].fix
        raise DataError(path, f"no titles ({bad[0].where}: {bad[0].reason})", fix)
    return articles


class _Both:
    """Passes rejected records on, and keeps the first for the message."""

    def __init__(self, first: list[RejectedRecord], rejected: Rejects) -> None:
        self._first, self._rejected = first, rejected
        self.kept_in = rejected
        """Where they end up, whose memory is bounded."""

    def append(self, record: RejectedRecord) -> None:
        if not self._first:
            self._first.append(record)
        self._rejected.append(record)


def _korean_time(date: str) -> str:
    """Return a date to the minute, in Korean time if it names a time zone: newsrooms count days in Seoul."""
    if "T" not in date:
        return date
    moment = datetime.datetime.fromisoformat(date)
    moment = moment.astimezone(KOREA).replace(tzinfo=None) if moment.tzinfo else moment
    return moment.isoformat(timespec="minutes")
