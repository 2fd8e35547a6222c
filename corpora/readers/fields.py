"""Which column of a file holds what: the names that newsrooms, portals and benchmarks use, in any spelling.

>>> spelling("뉴스 식별자") == spelling("뉴스식별자")
True
"""

import functools
from collections.abc import Iterable, Mapping

from corpora.characters import nfc
from corpora.foundation.errors import UsageError, suggest

FIELD_NAMES: Mapping[str, tuple[str, ...]] = {
    "text": (
        *("text", "content", "contents", "body", "article", "document", "article_body", "full_text"),
        *("본문", "내용", "기사", "기사본문", "기사 내용", "원문", "전문", "텍스트", "청원내용"),
        *("comments", "comment", "review", "reviews", "reply", "댓글", "댓글내용", "리뷰", "후기", "의견"),
        *("news_content", "passage", "기사본문내용", "sentence", "문장", "description"),
    ),
    "title": (
        "title",
        "headline",
        "제목",
        "기사제목",
        "기사 제목",
        "헤드라인",
        "subject",
        "news_title",
        "doc_title",
        "doc_name",
    ),
    "id": (
        "id",
        "news_id",
        "article_id",
        "doc_id",
        "guid",
        "uid",
        "passage_id",
        "아이디",
        "뉴스 식별자",
        "기사 번호",
        "기사 id",
    ),
    "date": (
        *(
            "date",
            "published_at",
            "published",
            "pub_date",
            "datetime",
            "created_at",
            "timestamp",
            "published_date",
            "publish_date",
            "doc_published",
            "write_date",
        ),
        *("작성일", "날짜", "일자", "일시", "입력일", "등록일", "게시일", "발행일", "보도일", "기사 일자", "작성 시각"),
    ),
    "section": (
        "section",
        "category",
        "topic",
        "news_category",
        "doc_class",
        "분류",
        "카테고리",
        "섹션",
        "통합 분류1",
        "통합 분류",
        "분야",
        "통합분류",
    ),
    "publisher": (
        "publisher",
        "provider",
        "media_name",
        "source_site",
        "doc_source",
        "언론사",
        "매체",
        "매체명",
        "신문사",
    ),
    "url": ("url", "link", "originallink", "링크", "주소", "기사 url"),
    "byline": ("byline", "author", "reporter", "writer", "기자", "기자명", "글쓴이", "기고자", "작성자"),
}
"""Field → names of its column, in the order in which they are tried; case, blanks and underscores do not matter."""


def spelling(name: str) -> str:
    """Return what is compared of a column's name."""
    return nfc(name).casefold().replace(" ", "").replace("_", "").replace("-", "").strip("\ufeff\u200b'\"")


_SPELLINGS = {field: tuple(dict.fromkeys(map(spelling, names))) for field, names in FIELD_NAMES.items()}


@functools.lru_cache(maxsize=256)
def candidates(columns: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """Return for each field the columns that may hold it, the most likely first.

    Args:
        columns: of a record, in order. The only column of a file is its text, whatever its name.

    >>> candidates(("뉴스 식별자", "Title", "본문"))["id"]
    ('뉴스 식별자',)
    """
    by_spelling: dict[str, str] = {}
    for column in columns:
        by_spelling.setdefault(spelling(column), column)
    found = {
        field: tuple(by_spelling[name] for name in names if name in by_spelling) for field, names in _SPELLINGS.items()
    }
    return found if len(columns) > 1 or any(found.values()) else found | {"text": columns}


def names_article(columns: Iterable[str]) -> bool:
    """Whether one of several columns is named like the text or the title of an article."""
    found = candidates((*columns, "", ""))
    return bool(found["text"] or found["title"])


def names_field(column: str) -> bool:
    """Whether a column is named like a field of an article."""
    return any(candidates((column, "", "")).values())


def parse_fields(arguments: Iterable[str]) -> dict[str, str]:
    """Read options such as `text=기사본문`; a later one of a field replaces an earlier one.

    Raises:
        UsageError: one has no `=`, or its field is unknown.
    """
    fields = {}
    for argument in arguments:
        name, equals, column = argument.partition("=")
        if not equals or not column:
            raise UsageError("--field", f"'{argument}' is not FIELD=COLUMN", "write for example text=기사본문")
        if name not in FIELD_NAMES:
            raise UsageError("--field", f"unknown field '{name}'", suggest(name, FIELD_NAMES))
        fields[name] = nfc(column)
    return fields


def column_named(name: str, columns: Iterable[str]) -> str | None:
    """Return the column that a user names, in any spelling; None if there is none."""
    return name if name in columns else next((c for c in columns if spelling(c) == spelling(name)), None)


def seen(columns: Iterable[str]) -> str:
    """Return a hint that names the columns of a record."""
    names = [f"'{name}'" for name in columns]
    return f"its columns are {', '.join(names[:12])}{' …' if len(names) > 12 else ''}" if names else "it is empty"


def is_scalar(value: object) -> bool:
    """Whether a value of a record is a text or a number; NaN, a missing value of pandas, is neither."""
    return isinstance(value, str | int | float) and value == value
