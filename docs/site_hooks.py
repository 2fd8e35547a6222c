"""Hooks of MkDocs: what the pages have for GitHub and for the tests is written as MkDocs reads it."""

import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace `python run`, the mark of blocks that tests run, and links to files outside docs/ by their paths."""
    markdown = markdown.replace("```python run", "```python")
    if "/" in page.file.src_uri:
        return markdown
    return LINK.sub(lambda found: f"{found[1]} (`{found[2].removeprefix('../')}`)", markdown)
