"""Report on WordPiece vocabularies: splitting, unknown tokens, coverage and morphemes on held-out text, with a chart.

Eojeol are counted and analysed once, and each tokenizer encodes a distinct eojeol once: BERT's tokenizers split at
blanks first.
"""

import collections
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import UsageError
from corpora.foundation.files import atomic_file, write_text
from corpora.official import data_root
from pretraining.vocabulary.tokenizer import TOKENIZER_FILE, open_wordpiece
from pretraining.vocabulary.wordpiece import BOUNDARY, split_eojeol

if TYPE_CHECKING:
    from tokenizers import Tokenizer

REPORT, CHART = "report.md", "report.png"
KPFBERT = "kpfbert"
"""Folder under the data root with the published tokenizer, the default comparison."""
EXAMPLE = "언론진흥재단 BERT 모델을 공개합니다."
"""The worked example of kpfBERT's README."""
UNKNOWN = "[UNK]"
BATCH = 10_000
LONGEST_BAR = 7
"""Eojeol of this many tokens or more share a bar."""
NUM_LISTED = 20

# Unified Hanja only: NFC maps the compatibility ideographs of old Korean encodings to these.
SCRIPTS: Mapping[str, re.Pattern[str]] = {
    "Hangul": re.compile("[가-힣]+"),
    "Hanja": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]+"),
    "Latin": re.compile("[A-Za-z]+"),
    "digits": re.compile("[0-9]+"),
}
OTHER = "other"
STARTS, CONTINUATIONS = "word starts", "continuations"
SPECIAL, UNUSED = "special tokens", "unused slots"


def choose_compared(names: Sequence[str] | None) -> tuple[dict[str, Path], list[str]]:
    """Resolve names of tokenizers to folders; None means kpfBERT's, if it is under the data root.

    Returns:
        Title in the report → folder; and lines for the report about a missing tokenizer.

    Raises:
        UsageError: a name is neither a tokenizer folder nor the name of one under the data root.
        CheckpointError: a tokenizer is not a cased WordPiece.
    """
    root = data_root(None)
    if names is None and not (root / KPFBERT / TOKENIZER_FILE).is_file():
        return {}, [f"Not compared with {KPFBERT}: there is no `{KPFBERT}/{TOKENIZER_FILE}` under the data root."]
    folders = {KPFBERT: root / KPFBERT} if names is None else {}
    for name in names or ():
        found = [folder for folder in (Path(name), root / name) if (folder / TOKENIZER_FILE).is_file()]
        if not name or not found:
            fix = f"give a folder with a {TOKENIZER_FILE}, or the name of one under the data root {root}"
            raise UsageError("--compare", f"no tokenizer folder '{name}'", fix)
        title = found[0].resolve().name
        folders[name if title in folders else title] = found[0]
    for folder in folders.values():
        open_wordpiece(folder / TOKENIZER_FILE)  # fails now rather than after training
    return folders, []


@dataclass(frozen=True)
class HeldOut:
    """Held-out text, analysed into morphemes."""

    eojeol: Mapping[str, int]
    """Distinct eojeol with their morpheme boundaries, as `split_eojeol` marks them, and their frequencies."""
    num_documents: int
    num_characters: int
    """Blanks included."""

    @property
    def num_eojeol(self) -> int:
        """Number of eojeol, repetitions included."""
        return sum(self.eojeol.values())


def analyse_held_out(texts: Iterable[str]) -> HeldOut:
    """Count the eojeol of TEXTS by their morphemes."""
    eojeol: collections.Counter[str] = collections.Counter()
    num_documents = num_characters = 0
    for text in texts:
        num_documents += 1
        num_characters += len(text)
        eojeol.update(split_eojeol(text, "morpheme"))
    return HeldOut(eojeol, num_documents, num_characters)


@dataclass(frozen=True)
class VocabMeasures:
    """One tokenizer on held-out text. Shares are fractions; a share of nothing is 0."""

    name: str
    composition: Mapping[tuple[str, str], int]
    """Vocabulary entries by position in the word and script; special tokens and unused slots have keys of their own."""
    num_single_syllables: Mapping[str, int]
    """Hangul entries of one syllable, by position in the word."""
    tokens_per_eojeol: Mapping[int, int]
    """Number of tokens → number of eojeol split into that many."""
    num_characters: int
    num_unknown: int
    """Number of unknown tokens."""
    num_eojeol_unknown: int
    """Number of eojeol with at least one unknown token."""
    num_eojeol_whole: int
    """Number of eojeol that are a single known token."""
    token_counts: Mapping[str, int]
    """Frequencies of the known tokens that occur."""
    hangul: Mapping[str, "MorphemeFit"]
    """Tokens of Hangul syllables alone, compared with the morphemes."""
    longest: Sequence[str]
    """The longest entries."""
    example: Sequence[str]
    """Tokens of `EXAMPLE`."""

    @property
    def vocab_size(self) -> int:
        """Number of entries."""
        return sum(self.composition.values())

    @property
    def num_eojeol(self) -> int:
        """Number of eojeol, repetitions included."""
        return sum(self.tokens_per_eojeol.values())

    @property
    def num_tokens(self) -> int:
        """Tokens of the whole text."""
        return sum(length * count for length, count in self.tokens_per_eojeol.items())

    def shares(self) -> dict[str, float]:
        """Return the figures of the table, keyed as in `ROWS`."""
        ordinary = self.vocab_size - self.composition.get((SPECIAL, ""), 0) - self.composition.get((UNUSED, ""), 0)
        fits = self.hangul.values()
        num_hangul = sum(fit.num_all for fit in fits)
        return {
            "tokens_per_eojeol": _share(self.num_tokens, self.num_eojeol),
            "tokens_per_character": _share(self.num_tokens, self.num_characters),
            "eojeol_whole": _share(self.num_eojeol_whole, self.num_eojeol),
            "tokens_unknown": _share(self.num_unknown, self.num_tokens),
            "eojeol_unknown": _share(self.num_eojeol_unknown, self.num_eojeol),
            "entries_used": _share(len(self.token_counts), ordinary),
            "tokens_on_borders": _share(sum(fit.num_on_boundaries for fit in fits), num_hangul),
            "tokens_one_morpheme": _share(sum(fit.num_one_morpheme for fit in fits), num_hangul),
            "tokens_across": _share(sum(fit.num_across for fit in fits), num_hangul),
            "entries_one_morpheme": _share(sum(2 * f.num_one_morpheme > f.num_all for f in fits), len(fits)),
        }


@dataclass
class MorphemeFit:
    """Occurrences of a subword relative to morpheme boundaries."""

    num_all: int = 0
    num_on_boundaries: int = 0
    """Starts and ends on a boundary."""
    num_one_morpheme: int = 0
    """The same, with no boundary inside."""
    num_across: int = 0
    """A boundary lies inside."""


def measure(name: str, tokenizer: "Tokenizer", held_out: HeldOut) -> VocabMeasures:
    """Tokenize held-out text with a WordPiece tokenizer and count.

    Args:
        name: title in the report.
        tokenizer: without truncation and padding.
        held_out: from `analyse_held_out`.
    """
    lengths: collections.Counter[int] = collections.Counter()
    token_counts: collections.Counter[str] = collections.Counter()
    hangul: collections.defaultdict[str, MorphemeFit] = collections.defaultdict(MorphemeFit)
    num_eojeol_unknown = num_eojeol_whole = 0
    distinct = iter(held_out.eojeol.items())
    while batch := list(itertools.islice(distinct, BATCH)):
        plain = [marked.replace(BOUNDARY, "") for marked, _ in batch]
        encodings = tokenizer.encode_batch(plain, add_special_tokens=False)
        for eojeol, (marked, count), encoding in zip(plain, batch, encodings, strict=True):
            lengths[len(encoding.tokens)] += count
            num_eojeol_unknown += count * (UNKNOWN in encoding.tokens)
            num_eojeol_whole += count * (len(encoding.tokens) == 1 and UNKNOWN not in encoding.tokens)
            boundaries = _boundaries(marked)
            for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
                token_counts[token] += count
                if token != UNKNOWN and SCRIPTS["Hangul"].fullmatch(eojeol, start, end):
                    _fit(hangul[token], boundaries, start, end, count)
    num_unknown = token_counts.pop(UNKNOWN, 0)
    vocab = tokenizer.get_vocab()
    kinds = {entry: position_and_script(entry) for entry in vocab}
    ordinary = [entry for entry, (position, _) in kinds.items() if position in {STARTS, CONTINUATIONS}]
    single = (position for entry, (position, script) in kinds.items() if script == "Hangul" and len(_bare(entry)) == 1)
    return VocabMeasures(
        name=name,
        composition=collections.Counter(kinds.values()),
        num_single_syllables=collections.Counter(single),
        tokens_per_eojeol=lengths,
        num_characters=held_out.num_characters,
        num_unknown=num_unknown,
        num_eojeol_unknown=num_eojeol_unknown,
        num_eojeol_whole=num_eojeol_whole,
        token_counts=token_counts,
        hangul=hangul,
        longest=sorted(ordinary, key=lambda entry: (-len(_bare(entry)), entry))[:NUM_LISTED],
        example=tokenizer.encode(EXAMPLE, add_special_tokens=False).tokens,
    )


def _boundaries(marked: str) -> list[int]:
    """Return the offsets of the morpheme boundaries in an eojeol, its start and end included."""
    return [0, *itertools.accumulate(len(morpheme) for morpheme in marked.split(BOUNDARY))]


def _fit(fit: MorphemeFit, boundaries: Sequence[int], start: int, end: int, count: int) -> None:
    inside = any(start < boundary < end for boundary in boundaries)
    on_boundaries = start in boundaries and end in boundaries
    fit.num_all += count
    fit.num_on_boundaries += count * on_boundaries
    fit.num_one_morpheme += count * (on_boundaries and not inside)
    fit.num_across += count * inside


def position_and_script(entry: str) -> tuple[str, str]:
    """Return the position in a word and the script of a vocabulary entry; `("special tokens", "")` for special ones."""
    if re.fullmatch(r"\[.+\]", entry):
        return (UNUSED if entry.startswith("[unused") else SPECIAL), ""
    bare = _bare(entry)
    script = next((name for name, pattern in SCRIPTS.items() if pattern.fullmatch(bare)), OTHER)
    return (STARTS if bare == entry else CONTINUATIONS), script


def _bare(entry: str) -> str:
    """Return an entry without its continuation prefix. `##` alone is an entry of two hash signs."""
    return entry[2:] if entry.startswith("##") and len(entry) > 2 else entry


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _plain(value: float) -> str:
    return f"{value:.3f}"


def _percent(value: float) -> str:
    """Return a fraction in percent; below 1 %, such as unknown tokens, with three decimals."""
    return "0 %" if not value else f"{100 * value:.{1 if value >= 0.01 else 3}f} %"


ROWS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "tokens_per_eojeol": ("tokens per eojeol", _plain),
    "tokens_per_character": ("tokens per character", _plain),
    "eojeol_whole": ("eojeol that are one token", _percent),
    "tokens_unknown": ("`[UNK]` among tokens", _percent),
    "eojeol_unknown": ("eojeol with `[UNK]`", _percent),
    "entries_used": ("entries that occur", _percent),
    "tokens_on_borders": ("Hangul tokens from boundary to boundary", _percent),
    "tokens_one_morpheme": ("Hangul tokens of one morpheme", _percent),
    "tokens_across": ("Hangul tokens across a boundary", _percent),
    "entries_one_morpheme": ("Hangul entries of one morpheme", _percent),
}

DEFINITIONS = """\
- An *eojeol* is delimited by blanks; control characters are dropped first, as BERT's normalizer does. A *token* is an
  occurrence of a vocabulary entry; `[CLS]` and `[SEP]` are not counted. *Characters* include blanks.
- *Eojeol that are one token*: share of all eojeol; `[UNK]` does not count.
- *Entries that occur*: share of the vocabulary, without special tokens and unused slots, that the held-out text uses
  at least once. It grows with the text; compare it within this table only.
- *Morpheme boundaries* are those of Kiwi inside an eojeol, its start and end included. Morphemes that share a syllable
  (`갔다` = `가` + `았` + `다`) have no boundary between them and count as one. *Hangul tokens* consist of Hangul
  syllables only.
- *From boundary to boundary*: the token starts and ends on a boundary. *Of one morpheme*: the same, with no boundary
  inside. *Across a boundary*: with a boundary inside.
- *Hangul entries of one morpheme*: among the Hangul entries that occur, those that are one morpheme in more than half
  of their occurrences.
- *Latin* is A–Z and a–z, *digits* 0–9, *Hanja* the unified ideographs; *other* is punctuation, symbols, other scripts
  and mixtures.
- The held-out documents were excluded from the training of the new vocabulary; copies of them among other documents
  were not. The training text of the other vocabularies is unknown."""


def write_report(
    out: Path, compared: Mapping[str, Path], held_out: HeldOut, *, command: str, facts: Sequence[str]
) -> list[VocabMeasures]:
    """Measure the tokenizer in OUT and the compared ones, and write `report.md` and `report.png` to OUT.

    Args:
        out: folder of the new tokenizer; its name is the title of the column.
        compared: title → folder of each other column.
        held_out: text to measure on.
        command: reproduces the folder.
        facts: how the vocabulary was trained, a line each.

    Raises:
        CheckpointError: a tokenizer is not a cased WordPiece.
        ResultError: OUT cannot be written.
    """
    title = out.resolve().name
    folders = {f"{title} (new)" if title in compared else title: out} | dict(compared)
    measures = [measure(name, open_wordpiece(folder / TOKENIZER_FILE), held_out) for name, folder in folders.items()]
    draw_report(out / CHART, measures)
    write_text(out / REPORT, render_report(measures, held_out, command=command, facts=facts))
    return measures


def render_report(measures: Sequence[VocabMeasures], held_out: HeldOut, *, command: str, facts: Sequence[str]) -> str:
    """Return the report in Markdown.

    Args:
        measures: the new vocabulary first, then the compared ones.
        held_out: the text that was measured.
        command: reproduces the folder.
        facts: how the vocabulary was trained, a line each.
    """
    names = [m.name for m in measures]
    shares = [m.shares() for m in measures]
    held_out_size = (
        f"{held_out.num_documents:,} documents, {held_out.num_eojeol:,} eojeol "
        f"({len(held_out.eojeol):,} distinct), {held_out.num_characters:,} characters"
    )
    parts = [
        f"# Vocabulary {names[0]}",
        "\n".join(f"- {fact}" for fact in [*facts, f"Held-out text: {held_out_size}."]),
        f"```sh\n{command}\n```",
        "## On held-out text",
        _table(names, [(title, [form(s[key]) for s in shares]) for key, (title, form) in ROWS.items()]),
        f"![Tokens per eojeol and four figures of the table, by vocabulary]({CHART})",
        DEFINITIONS,
        "## Composition",
        _table(names, _composition_rows(measures)),
        "## Worked example",
        f"`{EXAMPLE}`",
        "\n".join(f"- {m.name}: {_quoted(m.example)}" for m in measures),
        *itertools.chain.from_iterable(_listings(m) for m in measures),
    ]
    return "\n\n".join(parts) + "\n"


def _table(names: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    lines = [["", *(name.replace("|", "\\|") for name in names)], ["---", *("---:" for _ in names)]]
    lines += [[title, *cells] for title, cells in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _composition_rows(measures: Sequence[VocabMeasures]) -> list[tuple[str, list[str]]]:
    def row(title: str, count: Callable[[VocabMeasures], int]) -> tuple[str, list[str]]:
        return title, [f"{count(m):,}" for m in measures]

    def entries(position: str, script: str) -> Callable[[VocabMeasures], int]:
        return lambda m: m.composition.get((position, script), 0)

    def syllables(position: str) -> Callable[[VocabMeasures], int]:
        return lambda m: m.num_single_syllables.get(position, 0)

    rows = [
        row("entries", lambda m: m.vocab_size),
        row(SPECIAL, entries(SPECIAL, "")),
        row(UNUSED, entries(UNUSED, "")),
    ]
    for position in (STARTS, CONTINUATIONS):
        rows += [row(f"{position}, {script}", entries(position, script)) for script in (*SCRIPTS, OTHER)]
        rows.append(row(f"{position}, single Hangul syllables (counted above)", syllables(position)))
    return rows


def _listings(measures: VocabMeasures) -> list[str]:
    counts = measures.token_counts
    frequent = sorted(counts, key=lambda token: (-counts[token], token))[:NUM_LISTED]
    return [
        f"## Entries of {measures.name}",
        f"The {len(measures.longest)} longest: {_quoted(measures.longest)}",
        f"The {len(frequent)} most frequent in the held-out text: {_quoted(frequent)}",
    ]


def _quoted(tokens: Iterable[str]) -> str:
    # A backtick inside code needs a longer fence.
    return " ".join(f"`` {token} ``" if "`" in token else f"`{token}`" for token in tokens)


PANELS = ("tokens_per_eojeol", "eojeol_whole", "eojeol_unknown", "tokens_one_morpheme")
COLOURS = ("#1f4e79", "#d1792b", "#5b8c5a", "#8b6a9e", "#a33b3b", "#6b7785")
LABEL_SIZE = 9


def draw_report(path: Path, measures: Sequence[VocabMeasures]) -> None:
    """Draw the distribution of tokens per eojeol and four figures of the table, as a PNG.

    Its text is ASCII, because the default fonts have no Hangul.

    Raises:
        ResultError: the file cannot be written.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    names = [_ascii(m.name, number) for number, m in enumerate(measures, start=1)]
    colours = list(itertools.islice(itertools.cycle(COLOURS), len(measures)))
    figure = Figure(
        figsize=(11, 4.8 + 0.5 * max(0, len(measures) - 2)),
        dpi=120,
        layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06, hspace=0.06),
    )
    grid = figure.add_gridspec(len(PANELS), 2, width_ratios=(3, 2))
    _draw_lengths(figure.add_subplot(grid[:, 0]), measures, names, colours)
    for row, key in enumerate(PANELS):
        values = [m.shares()[key] for m in measures]
        _draw_panel(figure.add_subplot(grid[row, 1]), key, values, colours)
    with atomic_file(path, "wb") as file:
        figure.savefig(file, format="png")


def _draw_lengths(axes: Any, measures: Sequence[VocabMeasures], names: Sequence[str], colours: Sequence[str]) -> None:
    width = 0.8 / len(measures)
    for number, (m, name, colour) in enumerate(zip(measures, names, colours, strict=True)):
        bars = [0.0] * LONGEST_BAR
        for length, count in m.tokens_per_eojeol.items():
            bars[min(max(length, 1), LONGEST_BAR) - 1] += 100 * _share(count, m.num_eojeol)
        centres = [k + 1 - 0.4 + (number + 0.5) * width for k in range(LONGEST_BAR)]
        axes.bar(centres, bars, width=width, color=colour, label=f"{name} ({m.vocab_size:,} entries)")
    ticks = [*map(str, range(1, LONGEST_BAR)), f"{LONGEST_BAR}+"]
    axes.set_xticks(range(1, LONGEST_BAR + 1), ticks)
    axes.set_xlabel("tokens per eojeol")
    axes.set_ylabel("share of eojeol (%)")
    axes.set_title("Tokens per eojeol", loc="left", fontsize=LABEL_SIZE + 2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=LABEL_SIZE)


def _draw_panel(axes: Any, key: str, values: Sequence[float], colours: Sequence[str]) -> None:
    title, form = ROWS[key]
    bars = axes.barh(range(len(values)), values, color=colours, height=0.7)
    axes.bar_label(bars, labels=[form(value) for value in values], padding=3, fontsize=LABEL_SIZE)
    axes.set_xlim(0, max(values) * 1.2 or 1)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title.replace("`", ""), loc="left", fontsize=LABEL_SIZE)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _ascii(name: str, number: int) -> str:
    """Return NAME as the chart can show it: `$` would start a formula, a leading `_` hides it from the legend."""
    return name.replace("$", r"\$").lstrip("_") if name.isascii() and name.strip("_ ") else f"vocabulary {number}"
