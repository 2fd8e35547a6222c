"""What may be corrected in a draft: the tools that find it, in one list, and how a correction is accepted."""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from corpora.foundation.plugins import plugins, refuse_taken


@dataclass(frozen=True)
class Correction:
    """A part of a draft that a tool would change: `text[start:end]` in code points."""

    start: int
    end: int
    text: str
    suggestions: tuple[str, ...]
    """Texts that may replace it, the likeliest first; empty for a remark."""
    kind: str
    reason: str
    confidence: float
    tool: str
    """Name of the checker."""


@dataclass(frozen=True)
class Checker:
    """A tool whose findings have `start`, `end`, `kind`, and perhaps `suggestions`, `reason` and `confidence`."""

    name: str
    module: str
    function: str
    """Takes a text, and returns its findings."""

    @property
    def is_installed(self) -> bool:
        """Whether the module is part of this installation."""
        return importlib.util.find_spec(self.module) is not None

    def run(self, text: str) -> list[Correction]:
        """Return the tool's findings."""
        find: Callable[[str], Sequence[Any]] = getattr(importlib.import_module(self.module), self.function)
        return [
            Correction(
                found.start,
                found.end,
                text[found.start : found.end],
                tuple(getattr(found, "suggestions", ())),
                str(found.kind),
                str(getattr(found, "reason", "")),
                float(getattr(found, "confidence", 1.0)),
                self.name,
            )
            for found in find(text)
        ]


CHECKERS = (
    Checker("proofread", "downstream.proofread", "proofread"),
    Checker("awkward", "downstream.awkward", "awkward"),
)
"""In the order of their say where two want to change the same words."""


def all_checkers() -> tuple[Checker, ...]:
    """Return our checkers, and those of plug-ins (`pressbert.tools`)."""
    added = {name: part for name, part in plugins("tools").items() if isinstance(part, Checker)}
    refuse_taken("tools", added, {checker.name for checker in CHECKERS})
    return (*CHECKERS, *added.values())


def check(text: str, checkers: Sequence[Checker] | None = None) -> list[Correction]:
    """Return the corrections of all installed checkers in the order of the text, without overlaps.

    Args:
        text: the draft.
        checkers: default: `all_checkers()`.
    """
    chosen: list[Correction] = []
    for checker in all_checkers() if checkers is None else checkers:
        if checker.is_installed:
            for found in checker.run(text):
                if all(found.end <= other.start or other.end <= found.start for other in chosen):
                    chosen.append(found)
    return sorted(chosen, key=lambda found: (found.start, found.end))


def accept(text: str, correction: Correction, suggestion: int = 0) -> str:
    """Return a text with a correction made.

    Args:
        text: the draft that the correction was found in.
        correction: one with suggestions.
        suggestion: which of them.

    Raises:
        ValueError: the draft has changed since, or there is no such suggestion.
    """
    if text[correction.start : correction.end] != correction.text:
        raise ValueError(f"{correction.text!r} does not stand at {correction.start}: check the draft again")
    if not 0 <= suggestion < len(correction.suggestions):
        raise ValueError(f"suggestion {suggestion}: there are {len(correction.suggestions)}")
    return text[: correction.start] + correction.suggestions[suggestion] + text[correction.end :]
