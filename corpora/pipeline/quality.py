"""Quality of a Korean text: measures of C4, Gopher and FineWeb, with limits for Korean.

The measures are those of Raffel et al. 2020 (C4), Rae et al. 2021 (Gopher, table A1) and Penedo et al. 2024 (FineWeb).
Limits lie beyond the 99.5th percentile of press releases, Wikinews, petitions, rulings and documentation; the benchmark
`benchmarks/corpus.py` counts on other texts of these sources what each rule drops. English stop words become particles
and endings: without them a text is a table, a menu or a list of keywords.

Short texts such as headlines and comments are not judged: no share of theirs is stable.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MIN_CHARS = 200
"""Fewest characters of a text that is judged."""
MIN_LINES = 5
"""Fewest lines of which a share is taken."""
PARTICLES = re.compile(r"[은는이가을를에의로도와과다고며서지면만게한할된인](?=[\s.,!?”’\"')\]]|\Z)")
"""Endings of eojeol that sentences have and lists of keywords lack."""
SENTENCE_END = (*".!?…。\"'”’)]", "다", "요", "음", "함", "임")
BULLETS = tuple("-*•·▪■□▶▷●○◆◇※ㅇ")
SYMBOLS = re.compile(r"[^\w\s*.,!?%()\[\]{}\"'“”‘’·:;/~\-–—…]")
"""Neither letters nor the marks of prose; asterisks hide names and swear words."""
SHORT_LINE = 12
"""Characters of a line without a sentence; FineWeb's 30, as Korean takes less than half as many letters."""


@dataclass(frozen=True)
class Rule:
    """A limit of a measure."""

    measure: str
    least: float = float("-inf")
    most: float = float("inf")
    origin: str = ""
    """Who uses the measure, and their limit for English."""


RULES: Mapping[str, Rule] = {
    "few_particles": Rule("particles", least=0.08, origin="Gopher: two stop words"),
    "word_length": Rule("word_length", least=1.7, most=8, origin="Gopher: 3 to 10"),
    "symbols": Rule("symbols", most=0.08, origin="Gopher: 0.1 of the words"),
    "bullets": Rule("bullets", most=0.9, origin="Gopher: 0.9"),
    "ellipses": Rule("ellipses", most=0.3, origin="Gopher: 0.3"),
    "digits": Rule("digits", most=0.25, origin="tables of figures"),
    "code": Rule("braces", most=0.02, origin="C4: any brace"),
    "short_lines": Rule("short_lines", most=0.67, origin="FineWeb: 0.67"),
    "no_sentences": Rule("sentence_ends", least=0.12, origin="FineWeb: 0.12"),
    "duplicate_lines": Rule("duplicate_lines", most=0.2, origin="Gopher: 0.2 of the characters"),
    "top_bigram": Rule("top_bigram", most=0.25, origin="Gopher: 0.2 of the characters"),
    "repeated_ngrams": Rule("repeated_ngrams", most=0.45, origin="Gopher: 0.15 for 5 words, 0.10 for 10"),
}
"""Name → rule, in the order in which they are tried."""


def low_quality(text: str) -> str | None:
    """Return the first rule that a text breaks, or None; short texts break none."""
    if len(text) < MIN_CHARS:
        return None
    found = measures(text)
    return next(
        (name for name, rule in RULES.items() if not rule.least <= found[rule.measure] <= rule.most),
        None,
    )


def measures(text: str) -> dict[str, float]:
    """Return the measures of a text; those of lines are neutral where there are too few lines."""
    words = text.split()
    lines = [line for line in text.split("\n") if line.strip()]
    num_chars = max(len(text), 1)
    num_letters = max(sum(map(len, words)), 1)
    counts = Counter(words)
    return {
        "particles": len(PARTICLES.findall(text)) / max(len(words), 1),
        "word_length": num_letters / max(len(words), 1),
        "symbols": len(SYMBOLS.findall(text)) / num_chars,
        "digits": sum(map(text.count, "0123456789")) / num_chars,
        "braces": (text.count("{") + text.count("}")) / num_chars,
        "bullets": _share(lines, lambda line: line.startswith(BULLETS)),
        "ellipses": _share(lines, lambda line: line.endswith(("…", "..."))),
        "short_lines": _share(lines, lambda line: len(line) < SHORT_LINE),
        "sentence_ends": _share(lines, lambda line: line.rstrip().endswith(SENTENCE_END), few=1.0),
        "duplicate_lines": _duplicate_share(lines, num_letters),
        "top_bigram": _top_share(words, counts, 2, num_letters),
        "repeated_ngrams": _repeated_share(words, counts, 5, num_letters),
    }


def _share(lines: Sequence[str], holds: Callable[[str], bool], few: float = 0.0) -> float:
    return sum(map(holds, lines)) / len(lines) if len(lines) >= MIN_LINES else few


def _duplicate_share(lines: Sequence[str], num_letters: int) -> float:
    """Return the share of the letters in lines that the text had before."""
    seen: set[str] = set()
    repeated = 0
    for line in lines:
        if line in seen:
            repeated += len(line.replace(" ", ""))
        seen.add(line)
    return repeated / num_letters


def _top_share(words: Sequence[str], word_counts: Mapping[str, int], size: int, num_letters: int) -> float:
    """Return the largest share of the letters in an n-gram of words that occurs three times or more."""
    # Few n-grams are made of words that occur so often.
    frequent = {word for word, count in word_counts.items() if count > 2}
    grams = zip(*(words[k:] for k in range(size)), strict=False)
    counts = Counter(gram for gram in grams if frequent.issuperset(gram))
    shares = (count * sum(map(len, gram)) / num_letters for gram, count in counts.items() if count > 2)
    return max(shares, default=0.0)


def _repeated_share(words: Sequence[str], word_counts: Mapping[str, int], size: int, num_letters: int) -> float:
    """Return the share of the letters in n-grams of words that occurred before; overlapping ones count once."""
    # An n-gram that occurs twice is a run of words that do.
    if bytes([1] * size) not in bytes(word_counts[word] > 1 for word in words):
        return 0.0
    seen: set[tuple[str, ...]] = set()
    repeated = 0
    covered = 0
    for k in range(len(words) - size + 1):
        gram = tuple(words[k : k + size])
        if gram in seen:
            repeated += sum(map(len, words[max(k, covered) : k + size]))
            covered = k + size
        seen.add(gram)
    return repeated / num_letters
