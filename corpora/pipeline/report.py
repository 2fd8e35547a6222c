"""`report.md`: what is in a corpus, and what was done to it."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corpora.corpus import Manifest, summary_table
from corpora.pipeline.duplicates import CLUSTERS, EXACT
from corpora.pipeline.filtering import FILTER, filter_key
from corpora.pipeline.plan import Build
from corpora.pipeline.reading import LINES
from corpora.pipeline.selection import SELECT
from corpora.pipeline.statistics import EOJEOL, EOJEOL_SHARE, LENGTHS, SAMPLE

REPORT = "report.md"
MODEL_ORDER = 4
"""Characters of an n-gram, the predicted one included."""
MODEL_CHARS = 1_000_000
"""Characters that the model is trained on, of all sources together."""
HELD_OUT_CHARS, ALL_HELD_OUT_CHARS = 50_000, 2_000_000
"""Characters that it predicts of a source, and of all."""
NUM_ROWS = 30
"""Longest table of years, sections and lines."""
NUM_CURVE_POINTS = 10


def render_report(build: Build, manifest: Manifest, selected: Sequence[str], clusters: Mapping[str, list[str]]) -> str:
    """Return the report in Markdown.

    Args:
        build: a build whose other stages are finished.
        manifest: of the corpus.
        selected: tasks of `select`, one a unit.
        clusters: tasks of `exact` and `clusters`.
    """
    counts = [build.workspace.counts(SELECT, key) for key in selected]
    languages = [build.workspace.counts(FILTER, filter_key(build, unit)) for unit in range(len(selected))]
    by_source = [(source.name, source) for source in manifest.sources]
    sections = [
        ("Sources", summary_table(manifest)),
        ("Dropped documents", _by_reason("reason", [(name, each.dropped) for name, each in by_source])),
        ("Edits", _by_reason("edit", [(name, each.edited) for name, each in by_source])),
        ("Personal data", _by_reason("kind", [(name, each.masked) for name, each in by_source])),
        ("Years", _counted("year", _total(each["years"] for each in counts))),
        ("Sections", _counted("section", _total(each["sections"] for each in counts))),
        ("Lengths", _lengths(_total(each["lengths"] for each in counts))),
        ("Hangul", _hangul(_total(each["hangul"] for each in languages))),
        ("Duplicates", _clusters(build, clusters)),
        ("Repeated lines", _lines(build)),
        ("Vocabulary growth", _growth(build, selected, counts)),
        ("Bits per character", _bits(build, selected)),
    ]
    return "# Corpus\n" + "".join(f"\n## {title}\n\n{text}\n" for title, text in sections)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown; numbers are aligned to the right."""
    written = [[_cell(value) for value in row] for row in rows]
    if not written:
        return "None."
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *written))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    # Text of the corpus is shown as text.
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def _total(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def _by_reason(what: str, sources: Sequence[tuple[str, Mapping[str, int]]]) -> str:
    """Return a row for each source and reason."""
    return _table(
        ("source", what, "count"),
        [(name, reason, count) for name, counts in sources for reason, count in counts.items()],
    )


def _counted(what: str, counts: Counter[str]) -> str:
    rows = sorted(counts.items()) if what == "year" else counts.most_common()
    shown = [(name or "unknown", count) for name, count in rows[:NUM_ROWS]]
    if len(rows) > NUM_ROWS:
        shown.append((f"{len(rows) - NUM_ROWS} others", sum(count for _, count in rows[NUM_ROWS:])))
    return _table((what, "documents"), shown)


def _lengths(counts: Counter[str]) -> str:
    limits = [str(limit) for limit in LENGTHS]
    names = [f"under {limit:,}" for limit in LENGTHS] + [f"{LENGTHS[-1]:,} and more"]
    return _table(("characters", "documents"), zip(names, (counts[each] for each in (*limits, "")), strict=True))


def _hangul(counts: Counter[str]) -> str:
    return _table(
        ("share of Hangul among letters", "documents read"),
        [(f"{int(tenth) * 10} to {int(tenth) * 10 + 10} %", counts[tenth]) for tenth in sorted(counts, key=int)],
    )


def _clusters(build: Build, tasks: Mapping[str, list[str]]) -> str:
    rows = []
    for stage, name in ((EXACT, "same text"), (CLUSTERS, "near-duplicates")):
        sizes = _total(build.workspace.counts(stage, key)["sizes"] for key in tasks[stage])
        ranges: Counter[int] = Counter()
        for size, count in sizes.items():
            ranges[int(math.log2(int(size)))] += count
        rows += [(f"{name}, {2**k:,} to {2 ** (k + 1) - 1:,} documents", ranges[k]) for k in sorted(ranges)]
    return _table(("clusters", "count"), rows)


def _lines(build: Build) -> str:
    rows: list[tuple[str, str, int]] = []
    for number, source in enumerate(build.plan.sources):
        for line, count in build.workspace.counts(LINES, build.plan.source_key(number))["top"]:
            rows.append((source.name, line, count))
    rows.sort(key=lambda row: (-row[2], row[:2]))
    return _table(("source", "line", "documents"), rows[:NUM_ROWS])


def _growth(build: Build, selected: Sequence[str], counts: Sequence[Mapping[str, Any]]) -> str:
    """Return how many distinct eojeol there are after so many, estimated from a share of them."""
    seen: set[int] = set()
    num_eojeol, points = 0, []
    for key, each in zip(selected, counts, strict=True):
        num_eojeol += each["num_eojeol"]
        seen.update(build.workspace.array(SELECT, key, EOJEOL).tolist())
        points.append((num_eojeol, len(seen) * EOJEOL_SHARE))
    step = max(1, math.ceil(len(points) / NUM_CURVE_POINTS))
    return _table(("eojeol", "distinct, about"), points[step - 1 :: step])


# ---- a small language model ----


def _bits(build: Build, selected: Sequence[str]) -> str:
    """Return bits per character of held-out texts by source, under a model of training texts of all sources."""
    share = MODEL_CHARS // max(len(selected), 1)
    model = CharModel()
    held_out: defaultdict[str, list[str]] = defaultdict(list)
    for unit, key in zip(build.plan.units, selected, strict=True):
        size = 0
        for record in build.workspace.records(SELECT, key, SAMPLE):
            if record["is_held_out"]:
                held_out[unit.file.name].append(record["text"])
            elif size < share:
                model.add(record["text"][: share - size])
                size += len(record["text"])
    rows = []
    largest = min(HELD_OUT_CHARS, ALL_HELD_OUT_CHARS // max(len(held_out), 1))
    for name, texts in held_out.items():
        text = "\n".join(texts)[:largest]
        rows.append((name, len(text), model.bits(text) / len(text)))
    note = (
        f"Under a model of {MODEL_ORDER} characters in a row, trained on {model.num_chars:,} characters of the corpus."
    )
    return f"{note}\n\n" + _table(("source", "characters", "bits per character"), rows)


class CharModel:
    """An n-gram model of characters, interpolated as by Witten and Bell (1991)."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.num_chars = 0
        self._counts: list[dict[str, Counter[str]]] = [defaultdict(Counter) for _ in range(MODEL_ORDER)]
        """For each length of a context: what followed each context."""

    def add(self, text: str) -> None:
        """Learn from a text."""
        self.num_chars += len(text)
        for length, counts in enumerate(self._counts):
            for k in range(length, len(text)):
                counts[text[k - length : k]][text[k]] += 1

    def bits(self, text: str) -> float:
        """Return the information of TEXT, in bits."""
        return -sum(math.log2(self._probability(text, k)) for k in range(len(text)))

    def _probability(self, text: str, position: int) -> float:
        probability = 1 / 0x110000
        for length in range(min(MODEL_ORDER - 1, position) + 1):
            followers = self._counts[length].get(text[position - length : position])
            if followers is None:
                break
            total, kinds = followers.total(), len(followers)
            probability = (followers[text[position]] + kinds * probability) / (total + kinds)
        return probability
