"""Signals of clickbait: what a headline holds back or exaggerates, and whether the article is about it.

    from downstream.clickbait import clickbait
    found = clickbait("결국 밝혀진 '이것'의 정체…누리꾼 발칵", article)
    found.signals, found.measures["agreement"]

    python -m downstream.clickbait articles.jsonl --json
    python -m downstream.clickbait train labelled.jsonl --out FOLDER

No accuracy is claimed: no labelled Korean headlines are free to use; `train` learns from one's own.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from downstream.signals.finding import Findings, Signal, check_text, find, in_order, pattern_of

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts → unit vectors (N, D)."""
QUESTION = re.compile(r"[?\uff1f]|(?:나|까|길래|는가|을까|ㄹ까|는지)(?=[…\"'”’\s]*$)")
ELLIPSIS = re.compile(r"…+|\.{2,}|‥+")
EXCLAMATION = re.compile(r"[!\uff01]+")
FRAGMENT = re.compile(r"[‘“'\"][^‘’“”'\"\n]{1,40}[’”'\"]")
NUMBER = re.compile(r"\d[\d,.]*\d|\d")
KINDS = ("question", "ellipsis", "exclamation", "bait", "pointer", "tag", "fragment", "unsupported_number")
SENTENCE = re.compile(r"[^.!?。\n]+[.!?。]?")
MAX_SENTENCES = 40
"""Sentences at the beginning of the article that the headline is compared with."""
SHORTEST = 8


def clickbait(title: str, text: str = "", *, encode: Encode | None = None) -> Findings:
    """Find the signals of clickbait in a headline.

    Args:
        title: the headline, which signals are looked for in.
        text: of the article; empty: the headline alone is looked at.
        encode: sentence vectors; default: the bundled embedder, if there is a text.

    Returns:
        Signals of the title and figures: their number by kind; with a text also `agreement`, the highest cosine of the
        headline and a sentence, and `covered`, the share of the headline's words whose beginning stands in the text.

    Raises:
        ValueError: an argument is no string.
    """
    check_text(title, "title")
    check_text(text)
    signals: list[Signal] = []
    for kind, pattern in (
        ("question", QUESTION),
        ("ellipsis", ELLIPSIS),
        ("exclamation", EXCLAMATION),
        ("fragment", FRAGMENT),
    ):
        signals += find(pattern, title, kind, "title")
    for kind in ("bait", "pointer", "tag"):
        signals += find(pattern_of("clickbait", kind), title, kind, "title")
    if text.strip():
        known = set(NUMBER.findall(text))
        signals += [s for s in find(NUMBER, title, "unsupported_number", "title") if s.text not in known]
    ordered = in_order(signals)
    measures = {kind: float(sum(s.kind == kind for s in ordered)) for kind in KINDS}
    if text.strip() and title.strip():
        measures["agreement"] = _agreement(title, text, encode)
        measures["covered"] = _covered(title, text)
    return Findings(ordered, measures)


def _agreement(title: str, text: str, encode: Encode | None) -> float:
    """Return the highest cosine of a headline and a sentence of the article."""
    if encode is None:
        from downstream.embed import Embedder

        encode = Embedder.load().encode
    sentences = [s.strip() for s in SENTENCE.findall(text) if len(s.strip()) >= SHORTEST][:MAX_SENTENCES]
    vectors = encode([title, *(sentences or [text])])
    return float((vectors[1:] @ vectors[0]).max())


def _covered(title: str, text: str) -> float:
    """Return the share of the headline's words whose first two characters stand in the text."""
    words = [word for word in re.findall(r"\w+", title) if len(word) > 1]
    return sum(word[:2] in text for word in words) / len(words) if words else 1.0
