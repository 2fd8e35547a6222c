"""Signals of advertising that is written as news: contacts, prices, praise, calls to act, and a name over and over.

    from downstream.advertorial import advertorial
    found = advertorial(article)
    found.signals, found.measures["name_share"]

    python -m downstream.advertorial article.txt --json
    python -m downstream.advertorial train labelled.jsonl --out FOLDER

No accuracy is claimed: no labelled Korean articles are free to use; `train` learns from one's own.
"""

import re
from collections import Counter

from downstream.signals.finding import Findings, Signal, check_text, densities, find, in_order, lexicon, pattern_of

PHONE = re.compile(r"(?<![\d-])(?:0\d{1,2}[-.) ]?\d{3,4}[-. ]?\d{4}|1[5-9]\d{2}[-. ]?\d{4})(?![\d-])")
LINK = re.compile(
    r"(?:https?://|www\.)[^\s<>\"'“”’)\]]{2,200}[\w/]|(?<![\w.@])[a-z0-9-]{2,40}\.(?:co\.kr|com|net|kr)(?![\w])", re.I
)
MAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{2,63}){1,4}")
MESSENGER = re.compile(r"@[가-힣A-Za-z0-9_]{2,30}|#[가-힣A-Za-z0-9_]{2,30}")
AMOUNT = re.compile(
    r"\d[\d,.]*[ \t]?(?:천|만|억)?[ \t]?원(?=[^가-힣]|에|의|으로|부터|대|짜리|을|이|$)|\d{1,3}[ \t]?%[ \t]?할인"
)
NAME = re.compile(r"[가-힣A-Za-z][가-힣A-Za-z0-9&+-]{1,15}")
ENDING = re.compile(r"(?:에서는|에서|으로는|으로|에게|까지|부터|이라는|라는|은|는|이|가|을|를|의|에|와|과|도|로|만)$")
KINDS = ("contact", "price", "praise", "call_to_action", "label", "name")
FEWEST, LEAST_SHARE = 5, 0.04
"""Occurrences, and share of the words, from which on a name is a signal."""


def advertorial(text: str, title: str = "") -> Findings:
    """Find the signals of advertising in an article.

    Args:
        text: of the article.
        title: its headline.

    Returns:
        Signals and figures: `name_share`, the share that the most frequent name has of the words, densities by kind.

    Raises:
        ValueError: an argument is no string.
    """
    check_text(text)
    check_text(title, "title")
    signals: list[Signal] = []
    for pattern in (PHONE, LINK, MAIL, MESSENGER):
        signals += find(pattern, text, "contact")
    signals += find(AMOUNT, text, "price")
    for part, given in (("title", title), ("text", text)):
        for kind in ("price", "praise", "call_to_action", "label"):
            pattern = pattern_of("advertorial", kind)
            signals += find(pattern, given, kind, "title" if part == "title" else "text")
    names, share = _names(text)
    ordered = in_order([*signals, *names])
    measures = densities(ordered, KINDS, len(text) + len(title)) | {"name_share": share}
    return Findings(ordered, measures)


def _names(text: str) -> tuple[list[Signal], float]:
    """Return where the most frequent name stands, and its share of the words."""
    words = [(found.start(), found[0]) for found in NAME.finditer(text)]
    without = {word: ENDING.sub("", word) if len(word) > 2 else word for _, word in words}
    # 한빛치과 ends like 사람과; that it also stands with an ending shows that it is whole.
    whole = set(without.values())
    stems = [(start, word if word in whole else without[word]) for start, word in words]
    common = frozenset(lexicon("advertorial")["common"])
    counts = Counter(stem for _, stem in stems if len(stem) > 1 and stem not in common)
    if not counts:
        return [], 0.0
    name, number = max(counts.items(), key=lambda pair: (pair[1], len(pair[0]), pair[0]))
    share = number / len(words)
    if number < FEWEST or share < LEAST_SHARE:
        return [], share
    return [
        Signal("name", start, start + len(stem), text[start : start + len(stem)])
        for start, stem in stems
        if stem == name
    ], share
