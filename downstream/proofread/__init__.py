"""Errors in Korean text: spelling, grammar, blanks, punctuation, numbers, and a house style, offline and in context.

    python -m downstream.proofread article.txt
    python -m downstream.proofread --fix --only spacing < draft.txt > fixed.txt

>>> for found in proofread("이렇게 하면 안되요. 몇일 걸릴수 있습니다."):
...     print(found.text, "→", found.suggestions[0], found.kind)
안되요 → 안 돼요 grammar
몇일 → 며칠 spelling
걸릴수 → 걸릴 수 spacing

Rules, neighbours on the keyboard and a morphological analysis say what may be meant; a model of blanks and the
analyzer's language model judge it in its context. What is shown is meant to be right: many errors are not found.
"""

from collections.abc import Collection

from downstream.writing.edits import KINDS, Correction, Kind, apply
from downstream.writing.proofreader import DEFAULT_KINDS, MIN_CONFIDENCE, Proofreader, bundled_proofreader

__all__ = ["DEFAULT_KINDS", "KINDS", "MIN_CONFIDENCE", "Correction", "Kind", "Proofreader", "apply", "fix", "proofread"]


def proofread(
    text: str,
    *,
    only: Collection[Kind] = DEFAULT_KINDS,
    quotations: bool = False,
    min_confidence: float = MIN_CONFIDENCE,
) -> list[Correction]:
    """Find errors in a text of any length.

    Args:
        text: any string. Addresses, tags, file names and code in it are left alone.
        only: kinds of errors that are looked for; `style`, the house list, only if it is named.
        quotations: whether quotations and titles in marks are corrected, too.
        min_confidence: from which on a correction is shown, in [0, 1].

    Returns:
        Corrections in order, without overlaps; offsets are code points of the text as it was given.

    Raises:
        ValueError: there is no such kind.
    """
    return bundled_proofreader().proofread(text, only=only, quotations=quotations, min_confidence=min_confidence)


def fix(text: str, *, only: Collection[Kind] = DEFAULT_KINDS, quotations: bool = False) -> str:
    """Return a text with the first suggestion for every error; line breaks stay; arguments as in `proofread`."""
    return apply(text, proofread(text, only=only, quotations=quotations))
