"""The OpenAPI description as a self-contained HTML page: every endpoint with an example to copy."""

import html
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from apps.serving.tool import KOREAN

STYLE = (
    "body{font:16px/1.6 sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}"
    "h2{margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem}code,pre{background:#f2f2f2;border-radius:4px}"
    "code{padding:.1em .3em}pre{padding:1rem;overflow:auto}table{border-collapse:collapse;width:100%}"
    "td,th{border:1px solid #ccc;padding:.3rem .6rem;text-align:left;vertical-align:top;word-break:keep-all}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere}.wide{overflow-x:auto}th{background:#f7f7f7}"
    ".wide td:nth-child(2){white-space:nowrap}.wide td:last-child{min-width:14rem}"
    "nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1rem;padding:0;list-style:none}summary{cursor:pointer;margin:.7rem 0}"
)


def describe(description: Mapping[str, Any], address: str) -> str:
    """Return an OpenAPI description as an HTML page.

    Args:
        description: of the server.
        address: host and port of the server, for the examples.
    """
    info = description["info"]
    parts = [
        "<!doctype html><html lang=ko><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{html.escape(info['title'])}</title><style>{STYLE}</style>",
        f"<h1>{html.escape(info['title'])}</h1><p>{html.escape(info.get('summary', ''))}</p>",
        f"<p>{html.escape(KOREAN('page.machine'))} <a href=openapi.json><code>openapi.json</code></a></p>",
    ]
    links = (
        f"<li><a href='#{_anchor(path)}'><code>{html.escape(path)}</code></a></li>" for path in description["paths"]
    )
    parts.append(f"<nav><ul>{''.join(links)}</ul></nav>")
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(path, method, operation, description, address))
    return "".join(parts) + "</html>\n"


def _anchor(path: str) -> str:
    return html.escape(path.strip("/").replace("/", "-"), quote=True)


def _operation(
    path: str, method: str, operation: Mapping[str, Any], description: Mapping[str, Any], address: str
) -> str:
    summary, about = operation.get("summary", ""), operation.get("description", "").split("\n\n")
    parts = [
        f"<h2 id='{_anchor(path)}'><code>{method.upper()} {html.escape(path)}</code></h2>",
        f"<p><b>{html.escape(summary)}</b></p>",
        *(f"<p>{html.escape(paragraph)}</p>" for paragraph in about if paragraph),
    ]
    command = f"curl -s {shlex.quote(address + path)}"
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        body = json.dumps(example(schema, description), ensure_ascii=False)
        command += f" -H 'content-type: application/json' -d {shlex.quote(body)}"
        parts.append(_fields(schema, description))
    parts.append(f"<pre>{html.escape(command)}</pre>")
    rows = "".join(
        f"<tr><td>{code}</td><td>{html.escape(answer.get('description', ''))}</td></tr>"
        for code, answer in operation["responses"].items()
    )
    statuses = f"<tr><th>{KOREAN('page.status')}</th><th>{KOREAN('page.meaning')}</th></tr>{rows}"
    parts.append(f"<details><summary>{KOREAN('page.statuses')}</summary><table>{statuses}</table></details>")
    return "".join(parts)


def _fields(schema: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    """Return the fields of a request as a table; fields of a field are listed under its name."""
    head = "".join(f"<th>{KOREAN(f'page.{name}')}</th>" for name in ("field", "value", "default", "meaning"))
    rows = "".join(
        f"<tr><td><code>{html.escape(name)}</code></td><td>{html.escape(kind)}</td>"
        f"<td><code>{html.escape(default)}</code></td><td>{html.escape(about)}</td></tr>"
        for name, kind, default, about in _rows(schema, description, "")
    )
    return f"<div class=wide><table><tr>{head}</tr>{rows}</table></div>"


def _rows(
    schema: Mapping[str, Any], description: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, kind, default and meaning of each field."""
    schema = _resolved(schema, description)
    for name, part in schema.get("properties", {}).items():
        is_required = name in schema.get("required", [])
        default = KOREAN("page.required") if is_required else json.dumps(part.get("default"), ensure_ascii=False)
        yield prefix + name, kind_of(part, description), default, part.get("description", "")
        for inner in _objects(part, description):
            yield from _rows(inner, description, f"{prefix}{name}.")


def _objects(schema: Mapping[str, Any], description: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects that a field holds."""
    schema = _resolved(schema, description)
    if "properties" in schema:
        yield schema
    for part in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        yield from _objects(part, description)


def kind_of(schema: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    """Return type and limits of a field in short, e.g. `integer 1…50`."""
    schema = _resolved(schema, description)
    if "anyOf" in schema:
        return " | ".join(kind_of(part, description) for part in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    kind = str(schema.get("type", ""))
    if kind == "array":
        kind = f"[{kind_of(schema['items'], description)}]"
    low, high = (
        next((_number(schema[name]) for name in names if name in schema), "")
        for names in (
            ("minimum", "exclusiveMinimum", "minItems", "minLength"),
            ("maximum", "exclusiveMaximum", "maxItems", "maxLength"),
        )
    )
    return f"{kind} {low}…{high}" if low or high else kind


def _number(value: float) -> str:
    """Return a limit as it is written: pydantic gives 50 as 50.0."""
    return str(int(value)) if float(value).is_integer() else str(value)


def _resolved(schema: Mapping[str, Any], description: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return found


def example(schema: Mapping[str, Any], description: Mapping[str, Any]) -> Any:
    """Return a value of a schema: its own example, or one composed of its parts' examples."""
    schema = _resolved(schema, description)
    if "examples" in schema:
        return schema["examples"][0]
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        return {name: example(properties[name], description) for name in schema.get("required", [])}
    if schema.get("type") == "array":
        return [example(schema["items"], description)]
    return schema.get("default")
