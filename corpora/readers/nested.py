"""JSON of public corpora, whose articles lie deep: the newspapers of 모두의 말뭉치, and the data sets of AI-Hub.

>>> article = {"metadata": {"topic": "경제"}, "paragraph": [{"form": "금리 동결"}, {"form": "금리를 묶었다."}]}
>>> flatten(article)
{'topic': '경제', 'metadata': {'topic': '경제'}, 'title': '금리 동결', 'text': '금리를 묶었다.'}
"""

from collections.abc import Iterable
from typing import Any

from corpora.readers.fields import candidates, names_article, names_field

DEEPEST = 3
"""Objects within objects whose fields count as those of the article."""
SENTENCES = ("sentence", "form", "context", "content", "text", "paragraph")
"""Keys of the text in the objects of a list."""
PARAGRAPHS = ("paragraph", "paragraphs", "text", "article", "body")
"""Keys of lists that hold the text of an article."""
PARTS = ("contents", "content", "sentences")
"""Keys of lists that hold it where no other field does."""
VALUES = ("rendered", "value", "main", "#text", "_text", "__cdata", "#cdata-section")
"""Keys of a field's value where it has a format or a type: WordPress, Drupal, and XML that became JSON."""
SHORTEST_TEXT = 30
"""Characters of a text that make an object an article, whatever lists it holds besides."""


def flatten(article: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an article in one object, its text as one string; a flat one is returned as it is.

    The first paragraph of 모두의 말뭉치 (key `paragraph`) is the headline.
    """
    keys = _text_lists(article)
    if not keys and not any(isinstance(value, dict) for value in article.values()):
        return article
    flat: dict[str, Any] = {}
    _collect(article, flat, DEEPEST)
    for key in keys:
        parts = _texts(article[key])
        del flat[key]
        if key == "paragraph" and len(parts) > 1 and not isinstance(article[key][0], str):
            flat["title"] = parts.pop(0)
        flat["text"] = "\n".join(parts)
    return flat


def _text_lists(article: dict[str, Any]) -> list[str]:
    """Return the keys of lists that hold the text: of objects or lists, or, where no field is a text, of strings."""
    lists = {key: value for key, value in article.items() if isinstance(value, list) and value}
    found = [key for key, value in lists.items() if key in PARAGRAPHS and not isinstance(value[0], str | int | float)]
    if not lists or found or any(isinstance(article[column], str) for column in candidates(tuple(article))["text"]):
        return found
    named = (key for key in lists if key in (*PARAGRAPHS, *PARTS) and key != "text")
    return [key for key in named if _texts(lists[key])][:1]


def _collect(value: dict[str, Any], flat: dict[str, Any], depth: int) -> None:
    """Add fields that are not there yet, those of outer objects first."""
    value = {key: _plain(key, item) for key, item in value.items()}
    for key, item in value.items():
        if not isinstance(item, dict):
            flat.setdefault(key, item)
    for key, item in value.items():
        if isinstance(item, dict) and depth:
            # {"doc_class": {"class": "경제", "code": "E"}}: the object is named like a field.
            if isinstance(item.get("class"), str):
                flat.setdefault(key, item["class"])
            _collect(item, flat, depth - 1)
            flat.setdefault(key, item)


def _plain(key: str, value: Any) -> Any:
    """Return the value of a field that is written as an object: with its type, or beside its format."""
    while isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        [value] = value.values()
    if isinstance(value, dict) and names_field(key) and not names_article(value):
        return next((value[inner] for inner in VALUES if isinstance(value.get(inner), str)), value)
    return value


def _texts(items: Iterable[Any]) -> list[str]:
    """Return the paragraphs of a list: objects with a text, or lists of objects with sentences."""
    found = []
    for item in items:
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, list):
            found.append(" ".join(_texts(item)))
        elif isinstance(item, dict):
            text = next((item[key] for key in SENTENCES if isinstance(item.get(key), str)), "")
            found.append(text)
    return [text for text in found if text.strip()]


def records_of_object(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of an object that is none of itself: records by their key, or columns; empty if it is neither.

    Columns are what pandas writes by default, and keys what databases export.

    >>> records_of_object({"title": {"0": "금리 동결", "1": "첫눈"}, "text": {"0": "금리를 묶었다.", "1": "왔다."}})
    [{'title': '금리 동결', 'text': '금리를 묶었다.'}, {'title': '첫눈', 'text': '왔다.'}]
    >>> records_of_object({"a1": {"text": "금리를 묶었다."}, "a2": {"text": "첫눈이 왔다."}})
    [{'id': 'a1', 'text': '금리를 묶었다.'}, {'id': 'a2', 'text': '첫눈이 왔다.'}]
    """
    parts = [part for part in value.values() if isinstance(part, dict)]
    if not parts or len(parts) < len(value):
        return []
    names = parts[0].keys()
    if not names_article(value):
        # The parts of a single article or of a wrapper have little in common.
        is_alike = all(2 * len(part.keys() & names) > len(part.keys() | names) for part in parts)
        is_each_article = is_alike and all(names_article(flatten(part)) for part in parts)
        return [{"id": key} | part for key, part in value.items()] if len(parts) > 1 and is_each_article else []
    if names_article(names) or any(part.keys() != names for part in parts):
        return []
    return [{column: part[key] for column, part in value.items()} for key in names]


def is_article(value: dict[str, Any]) -> bool:
    """Whether an object is an article itself, not a wrapper of a list of articles."""
    flat = flatten(value)
    found = candidates(tuple(flat))
    texts = [flat[column] for column in found["text"] if isinstance(flat[column], str)]
    return bool(found["title"]) and any(len(text) >= SHORTEST_TEXT for text in texts)
