"""Tools: what the server can do, each a Python function behind a path.

A file of a folder in `apps/serving/tools` with a constant `TOOL` is served: it names the functions, and how a request
for them looks, is computed and is answered. The arguments that a function takes are the fields of its request: they
are read from its signature, so an argument that is added later is an option of the server, too. A result is cached as
bytes of JSON without any text of the request: sentences and answers are stored as offsets, and converted to text for
the client that sent the text.
"""

import functools
import inspect
import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, get_type_hints

from pydantic import BaseModel, Field, StrictBool, StrictFloat, StrictInt, create_model
from pydantic.fields import FieldInfo
from pydantic_core import to_json, to_jsonable_python

from apps.serving.batching import Compute
from apps.serving.schemas import Strict
from corpora.foundation.config import discover
from corpora.foundation.plugins import plugins, refuse_taken
from corpora.foundation.texts import Texts

BUCKET = math.sqrt(2)
"""Texts whose lengths differ by no more than this factor are computed together."""
SAMPLE = "새 다리가 열렸다. 주민들은 반겼다."
STRICT: Mapping[type, Any] = {bool: StrictBool, int: StrictInt, float: StrictFloat}
KOREAN, ENGLISH = Texts("ko", "server"), Texts("en", "server")


class UnsuitableError(Exception):
    """A well-formed request that this model cannot answer."""

    def __init__(self, key: str, location: str = "", **values: Any) -> None:
        """Keep the key of a text under `server.unsuitable`, its values, and the location in the request."""
        super().__init__(key, location, values)
        self.key, self.location, self.values = f"unsuitable.{key}", location, values

    def __str__(self) -> str:
        """Return location and reason in English."""
        reason = ENGLISH(self.key, **self.values)
        return f"{self.location}: {reason}" if self.location else reason


@dataclass(frozen=True)
class TextItem:
    """One input of a request."""

    texts: tuple[str, ...]
    """All texts that determine the result."""
    settings: str = ""
    """Settings that determine the result."""


@dataclass(frozen=True)
class Service:
    """A tool with its model, ready to answer."""

    endpoint: str
    """Path without the slash, e.g. `classify`."""
    model: str
    """Name of the folder."""
    digest: str
    runtime: str
    about: dict[str, str]
    request: type[BaseModel]
    response: type[BaseModel]
    sample: TextItem
    """Input that is computed once before the first request."""
    items: Callable[[Any], list[TextItem]]
    """Request → inputs; raises UnsuitableError."""
    compute: Compute
    """Inputs with the same `settings` and number of texts → JSON; raises UnsuitableError."""
    show: Callable[[TextItem, bytes], bytes] = lambda _, value: value
    """Input and result → response."""
    described: type[BaseModel] | None = None
    """The part of `request` that `items` accepts, for the description; None: all of it."""
    is_cached: bool = True
    """Whether results are kept for equal requests; not if they contain texts of the request."""
    is_whole: bool = False
    """Whether a request is one input, whose result is the list of results."""

    def group(self, item: TextItem) -> tuple[str, str, int, int]:
        """Return the key of the group of inputs that are computed together."""
        return self.endpoint, item.settings, len(item.texts), round(math.log(self.cost(item), BUCKET))

    def cost(self, item: TextItem) -> int:
        """Return the characters of an input plus a constant for its overhead."""
        return 8 + sum(map(len, item.texts))


@dataclass(frozen=True)
class Tool:
    """A tool that the server offers."""

    name: str
    """Path without the slash, option of `apps.serve`, and section of its texts under `server.tool`. Without such texts,
    as in a plug-in, the docstring of `request` describes it."""
    functions: tuple[Callable[..., Any], ...]
    """Python functions whose arguments are those of a request."""
    request: type[BaseModel]
    response: type[BaseModel]
    open: Callable[[str, str], Service]
    """Folder or `bundled`, and runtime → the service; raises SuiteError."""
    model: str = ""
    """What is loaded, for `--help`; empty: it needs no model."""
    locations: Mapping[str, str] | None = None
    """Argument → its location in the request, where that is not a field of the same name, e.g. `articles.text`."""
    server_side: frozenset[str] = frozenset()
    """Arguments that only the server can fill, such as the loaded model."""


def all_tools() -> dict[str, Tool]:
    """Return every tool by its name, those of plug-ins included."""
    from apps.serving.tools import archives, drafts, texts, writing

    own = {
        name: tool for folder in (archives, drafts, texts, writing) for name, tool in discover(folder, "TOOL").items()
    }
    # Plug-ins of the desk are in the same group.
    added = {name: part for name, part in plugins("tools").items() if isinstance(part, Tool)}
    refuse_taken("tools", added, own)
    return dict(sorted((own | added).items()))


# --- requests ---------------------------------------------------------------------------------------------------------


def arguments_of(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default of each argument but `self`; `...` where there is no default."""
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    return {
        name: (hints.get(name, Any), ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    }


def request_model(
    name: str,
    about: str,
    functions: Sequence[Callable[..., Any]],
    fields: Mapping[str, tuple[Any, FieldInfo]],
    *,
    without: Sequence[str] = (),
) -> type[Strict]:
    """Return the schema of a request whose fields are the arguments of functions.

    Args:
        name: of the schema.
        about: its description.
        functions: their arguments become fields, with their types and defaults.
        fields: inputs, and arguments whose values are limited more than by their types; a default comes from the
            function.
        without: arguments that are filled from other fields, or by the server.
    """
    arguments = {key: value for function in functions for key, value in arguments_of(function).items()}
    made: dict[str, Any] = dict(fields)
    for key, (hint, default) in arguments.items():
        if key in without:
            continue
        kind, info = fields.get(key, (hint, Field()))
        info = FieldInfo.merge_field_infos(info, default=default) if default is not ... else info
        made[key] = (kind, info)
    for key, (kind, info) in made.items():
        about_it = describe_field(key) or next(filter(None, (documented(f, key) for f in functions)), "")
        made[key] = (_strict(kind), FieldInfo.merge_field_infos(info, description=about_it))
    return create_model(name, __base__=Strict, __doc__=about, **made)


def _strict(hint: Any) -> Any:
    """Return a type that takes what its JSON schema says: no number for a boolean, and no string for a number."""
    if isinstance(hint, UnionType):
        return functools.reduce(operator.or_, map(_strict, hint.__args__))
    return STRICT.get(hint, hint) if isinstance(hint, type) else hint


def describe_field(name: str) -> str:
    """Return what a field of a request means, in Korean and English; empty if the catalogue has no text for it."""
    return " · ".join(filter(None, (texts.get(f"field.{name}", "") for texts in (KOREAN, ENGLISH))))


def documented(function: Callable[..., Any], argument: str) -> str:
    """Return what a function's docstring says of an argument."""
    found = re.search(rf"^ {{4}}{argument}: (.+(?:\n {{8}}.+)*)", inspect.getdoc(function) or "", re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def options_json(request: BaseModel, *inputs: str) -> str:
    """Return the fields of a request but its inputs as JSON: the settings of its items."""
    options = request.model_dump(mode="json", exclude=set(inputs))
    return json.dumps(options, sort_keys=True, ensure_ascii=False)


# --- results ----------------------------------------------------------------------------------------------------------


def without_texts(result: Any) -> bytes:
    """Return a result as JSON in which every `text` beside a `start` and an `end` is left out."""
    return to_json(_strip(to_jsonable_python(result)))


def with_texts(source: str, value: bytes) -> Any:
    """Return a result with the texts of its offsets."""
    return _restore(source, json.loads(value))


def findings_service(tool: Tool, model: str, find: Callable[..., Sequence[Any]]) -> Service:
    """Return a service of a tool that finds places in single texts.

    Args:
        tool: its requests have `texts`, and its responses a list of findings for each.
        model: name in the answers.
        find: takes a text and the tool's options.
    """

    def items(request: Any) -> list[TextItem]:
        settings = options_json(request, "texts")
        return [TextItem((text,), settings) for text in request.texts]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [without_texts(find(item.texts[0], **json.loads(item.settings))) for item in batch]

    return Service(
        endpoint=tool.name,
        model=model,
        digest="",
        runtime="python",
        about={},
        request=tool.request,
        response=tool.response,
        sample=TextItem((SAMPLE,), "{}"),
        items=items,
        compute=compute,
        show=lambda item, value: to_json(with_texts(item.texts[0], value)),
        # Findings hold words of the text.
        is_cached=False,
    )


def _strip(value: Any) -> Any:
    if isinstance(value, list):
        return [_strip(part) for part in value]
    if not isinstance(value, dict):
        return value
    is_span = {"text", "start", "end"} <= value.keys()
    return {key: _strip(part) for key, part in value.items() if not (is_span and key == "text")}


def _restore(source: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_restore(source, part) for part in value]
    if not isinstance(value, dict):
        return value
    text = {"text": source[value["start"] : value["end"]]} if {"start", "end"} <= value.keys() else {}
    return text | {key: _restore(source, part) for key, part in value.items()}
