"""Signals of an article's stance: quotes by side, hedges, and words that judge what they name.

    from downstream.stance import stance
    found = stance(article)
    found.signals                    # kind, start, end, text, detail
    found.measures["critical_share"]

    python -m downstream.stance article.txt --json
    python -m downstream.stance train labelled.jsonl --out FOLDER

A quote belongs to a side by the verb that reports it ("비판했다", "환영했다"), or by its own last words. No accuracy is
claimed: no labelled Korean articles are free to use; `train` learns from one's own.
"""

import re
from collections.abc import Iterator

from downstream.signals.finding import Findings, Signal, check_text, densities, find, in_order, pattern_of

QUOTE = re.compile(r"“([^“”\n]{2,600})”|\"([^\"\n]{2,600})\"|「([^」\n]{2,600})」")
SIDES = ("critical", "supportive", "neutral")
KINDS = ("critical_quote", "supportive_quote", "neutral_quote", "unattributed_quote", "hedge", "loaded")
REACH = 60
"""Characters behind a quote in which its verb is looked for."""
PRONOUNS = frozenset({"이", "그", "저", "나", "우리", "이날", "이들", "그들"})
CLOSING = 12
"""Characters at the end of a quote that say which side it takes, where the verb does not."""
SPEAKER = re.compile(
    r"([가-힣A-Za-z·.]{1,20}(?:[ \t]+[가-힣A-Za-z·.]{2,15}){0,2}?)(?:은|는|이|가|도|께서는|께서)[ \t,]*$"
)
SPEAKER_BEHIND = re.compile(
    r"^[이라고며면서 \t,]{0,8}[ \t]([가-힣A-Za-z·.]{2,20}(?:[ \t]+[가-힣A-Za-z·.]{2,15})?)(?:은|는|이|가)[ \t]"
)
SENTENCE_END = re.compile(r"[.!?。](?:\s|$)|\n")


def stance(text: str, title: str = "") -> Findings:
    """Find the signals of an article's stance.

    Args:
        text: of the article.
        title: its headline, in which hedges and loaded words are looked for, too.

    Returns:
        Signals and figures: `critical_share` and `supportive_share` of the quotes with a reporting verb,
        `num_speakers`, and densities by kind.

    Raises:
        ValueError: an argument is no string.
    """
    check_text(text)
    check_text(title, "title")
    signals = [*_quotes(text)]
    for part, given in (("title", title), ("text", text)):
        for kind, words, at_start in (("hedge", "hedges", False), ("loaded", "loaded", True)):
            pattern = pattern_of("stance", words, at_start=at_start)
            signals += find(pattern, given, kind, "title" if part == "title" else "text")
    ordered = in_order(signals)
    counts = {side: sum(s.kind == f"{side}_quote" for s in ordered) for side in SIDES}
    reported = sum(counts.values())
    measures = densities(ordered, KINDS, len(text) + len(title))
    measures |= {f"{side}_share": counts[side] / reported if reported else 0.0 for side in SIDES[:2]}
    measures["num_speakers"] = float(len({s.detail for s in ordered if s.detail}))
    return Findings(ordered, measures)


def _name(speaker: re.Match[str] | None) -> str:
    """Return the speaker of a match; a pronoun is none."""
    name = speaker[1].strip() if speaker else ""
    return "" if name in PRONOUNS else name


def _quotes(text: str) -> Iterator[Signal]:
    """Yield quotes with their side and, where it is found, their speaker."""
    for found in QUOTE.finditer(text):
        behind = text[found.end() : found.end() + REACH]
        end = SENTENCE_END.search(behind)
        behind = behind[: end.start()] if end else behind
        verbs = [
            (m.start(), side) for side in SIDES if (m := pattern_of("stance", side, at_start=False).search(behind))
        ]
        # The first word that reports is the verb; "반대한다고 말했다" is critical although it ends neutrally.
        side = next((s for _, s in sorted(verbs) if s != "neutral"), "neutral" if verbs else "")
        if side == "neutral":
            closing = found[0][-CLOSING:]
            side = next((s for s in SIDES[:2] if pattern_of("stance", s, at_start=False).search(closing)), side)
        before = SENTENCE_END.split(text[max(0, found.start() - REACH) : found.start()])[-1]
        speaker = SPEAKER.search(before) or SPEAKER_BEHIND.search(behind)
        kind = f"{side}_quote" if side else "unattributed_quote"
        yield Signal(kind, found.start(), found.end(), found[0], "text", _name(speaker))
