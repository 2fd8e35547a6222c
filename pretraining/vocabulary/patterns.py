"""Patterns in a tokenizer's file: those that may search without end are refused before any text is split by them.

The library searches by backtracking, and ends the process where that takes too long. Tokenizers need no repeated group
with a choice or another repetition inside, such as `(a+)+`, which takes twice as long for each further letter.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpora.foundation.errors import CheckpointError

LONGEST = 100_000
"""Characters of a pattern; ours list the letters of a vocabulary."""
MOST_REPETITIONS = 4
"""Repetitions without end in one branch; each of them is another power of the length of a text."""
CLASS, GROUP = r"\[\^?\]?(?:\\.|[^\]\\])*\]", r"\(\?(?:[:=!>]|<[=!]|[a-z-]+:)|\("
TOKEN = re.compile(rf"\\.|{CLASS}|{GROUP}|\)|\||[*+?]|\{{\d*,?\d*\}}|.", re.DOTALL)
"""A part of a pattern: an escape, a class, a bracket, a choice, a repetition, or a letter."""
ENDLESS = re.compile(r"[*+]|\{\d*,\}|\{\d*,?\d{4,}\}")


def check_patterns(path: Path) -> None:
    """Look at the patterns of a `tokenizer.json`.

    Raises:
        CheckpointError: one of them may search without end, or the file is damaged.
    """
    content = path.read_bytes()
    if b"Regex" not in content and b"\\u" not in content:
        return  # most tokenizers have none, and parsing takes longer than looking
    try:
        patterns = list(_patterns(json.loads(content)))
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(path, f"the tokenizer is not valid JSON ({reason})", "download it again") from error
    for pattern in patterns:
        if is_risky(pattern):
            what = f"the tokenizer's pattern {pattern[:60]!r} may search without end"
            raise CheckpointError(path, what, "give a tokenizer without repetitions in repetitions")


def _patterns(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(found := value.get("Regex"), str):
            yield found
        value = [part for key, part in value.items() if key != "vocab"]
    if isinstance(value, list):
        for part in value:
            if isinstance(part, dict | list):
                yield from _patterns(part)


def is_risky(pattern: str) -> bool:
    """Whether the time of a search may grow faster than a small power of the length of a text."""
    if len(pattern) > LONGEST:
        return True
    tokens = TOKEN.findall(pattern)
    # Of every open group: whether it has a choice or a repetition, and the repetitions without end of its branch.
    groups: list[tuple[bool, int]] = [(False, 0)]
    closed: bool | None = None
    for token in tokens:
        has, number = groups[-1]
        if token.startswith("("):
            groups.append((False, 0))
            closed = None
            continue
        if token == ")" and len(groups) > 1:
            has, inside = groups.pop()
            outer, number = groups[-1]
            groups[-1] = (outer or has, number + inside)
            closed = has
            continue
        if ENDLESS.fullmatch(token):
            if closed or number + 1 > MOST_REPETITIONS:
                return True
            groups[-1] = (True, number + 1)
        elif token == "|":
            groups[-1] = (True, 0)
        elif token == "?" or token.startswith("{"):
            groups[-1] = (True, number)
        closed = None
    return False
