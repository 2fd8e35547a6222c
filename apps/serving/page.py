"""The OpenAPI description as a self-contained HTML page: every endpoint with an example to copy."""

import html
import json
from collections.abc import Mapping
from typing import Any

STYLE = (
    "body{font:16px/1.6 sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}"
    "h2{margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem}code,pre{background:#f2f2f2;border-radius:4px}"
    "code{padding:.1em .3em}pre{padding:1rem;overflow:auto}table{border-collapse:collapse;width:100%}"
    "td,th{border:1px solid #ccc;padding:.3rem .6rem;text-align:left;vertical-align:top}"
)


def describe(description: Mapping[str, Any]) -> str:
    """Return an OpenAPI description as an HTML page."""
    info = description["info"]
    parts = [
        "<!doctype html><html lang=ko><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{html.escape(info['title'])}</title><style>{STYLE}</style>",
        f"<h1>{html.escape(info['title'])}</h1><p>{html.escape(info.get('summary', ''))}</p>",
        "<p>기계가 읽는 설명: <a href=openapi.json><code>openapi.json</code></a></p>",
    ]
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(path, method, operation, description))
    return "".join(parts) + "</html>\n"


def _operation(path: str, method: str, operation: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    parts = [
        f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>",
        f"<p>{html.escape(operation.get('summary', ''))}. {html.escape(operation.get('description', ''))}</p>",
    ]
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        body = json.dumps(example(schema, description), ensure_ascii=False)
        command = f"curl -s localhost:8000{path} -H 'content-type: application/json' -d '{body}'"
        parts.append(f"<pre>{html.escape(command)}</pre>")
    rows = "".join(
        f"<tr><td>{code}</td><td>{html.escape(answer.get('description', ''))}</td></tr>"
        for code, answer in operation["responses"].items()
    )
    parts.append(f"<table><tr><th>상태</th><th>뜻</th></tr>{rows}</table>")
    return "".join(parts)


def example(schema: Mapping[str, Any], description: Mapping[str, Any]) -> Any:
    """Return a value of a schema: its own example, or one composed of its parts' examples."""
    if "$ref" in schema:
        return example(description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]], description)
    if "examples" in schema:
        return schema["examples"][0]
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        return {name: example(properties[name], description) for name in schema.get("required", [])}
    if schema.get("type") == "array":
        return [example(schema["items"], description)]
    return schema.get("default")
