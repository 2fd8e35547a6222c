"""What a WordPiece vocabulary does with held-out text: splitting, unknowns, coverage and morphemes, as table and chart.

All figures come from eojeol that were counted and analysed once, so each tokenizer encodes a distinct eojeol a single
time: BERT's tokenizers never look across a blank.
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
from pretraining.vocab import BORDER, split_eojeol

if TYPE_CHECKING:
    from tokenizers import Tokenizer

REPORT, CHART = "report.md", "report.png"
TOKENIZER = "tokenizer.json"
KPFBERT = "kpfbert"
"""Folder under the data root: the published tokenizer that a vocabulary is compared with unless others are named."""
EXAMPLE = "언론진흥재단 BERT 모델을 공개합니다."
"""The worked example of kpfBERT's README."""
UNKNOWN = "[UNK]"
BATCH = 10_000
LONGEST_BAR = 7
"""Eojeol of this many tokens and more share a bar."""
NUM_LISTED = 20

# Hanja are the unified ones: NFC turns the compatibility ideographs of old Korean encodings into these.
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
    """Turn names of tokenizers into folders; None stands for the real kpfBERT's where it is at hand.

    Returns:
        Title in the report → folder; and what the report has to say about a missing one.

    Raises:
        UsageError: a name is neither a tokenizer folder nor the name of one under the data root.
        CheckpointError: a tokenizer is no cased WordPiece.
    """
    from pretraining.data.tokens import open_wordpiece

    root = data_root(None)
    if names is None and not (root / KPFBERT / TOKENIZER).is_file():
        return {}, [f"Not compared with {KPFBERT}: there is no `{KPFBERT}/{TOKENIZER}` under the data root."]
    folders = {KPFBERT: root / KPFBERT} if names is None else {}
    for name in names or ():
        found = [folder for folder in (Path(name), root / name) if (folder / TOKENIZER).is_file()]
        if not name or not found:
            fix = f"give a folder with a {TOKENIZER}, or the name of one under the data root {root}"
            raise UsageError("--compare", f"no tokenizer folder '{name}'", fix)
        title = found[0].resolve().name
        folders[name if title in folders else title] = found[0]
    for folder in folders.values():
        open_wordpiece(folder / TOKENIZER)  # found out now rather than after training
    return folders, []


@dataclass(frozen=True)
class HeldOut:
    """Text that no vocabulary of the report was trained on, analysed into morphemes."""

    eojeol: Mapping[str, int]
    """Distinct eojeol with their morpheme borders, as `split_eojeol` marks them, and their occurrences."""
    num_documents: int
    num_characters: int
    """Blanks included."""

    @property
    def num_eojeol(self) -> int:
        """Occurrences of eojeol."""
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
    """One tokenizer on held-out text. Shares are fractions; NaN-free, a share of nothing is 0."""

    name: str
    composition: Mapping[tuple[str, str], int]
    """Vocabulary entries by place in the word and script; special tokens and unused slots count apart."""
    num_single_syllables: Mapping[str, int]
    """Hangul entries of one syllable, by place in the word."""
    tokens_per_eojeol: Mapping[int, int]
    """Number of tokens → occurrences of eojeol that are split into so many."""
    num_characters: int
    num_unknown: int
    """Occurrences of the unknown token."""
    num_eojeol_unknown: int
    """Occurrences of eojeol with one or more of them."""
    num_eojeol_whole: int
    """Occurrences of eojeol that are one token, and a known one."""
    pieces: Mapping[str, int]
    """Known pieces that occur, with their occurrences."""
    hangul: Mapping[str, "MorphemeFit"]
    """The same for those of Hangul alone, held against the morphemes."""
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
        """Occurrences of eojeol."""
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
            "entries_used": _share(len(self.pieces), ordinary),
            "tokens_on_borders": _share(sum(fit.num_on_borders for fit in fits), num_hangul),
            "tokens_one_morpheme": _share(sum(fit.num_one_morpheme for fit in fits), num_hangul),
            "tokens_across": _share(sum(fit.num_across for fit in fits), num_hangul),
            "entries_one_morpheme": _share(sum(2 * f.num_one_morpheme > f.num_all for f in fits), len(fits)),
        }


@dataclass
class MorphemeFit:
    """Occurrences of a piece, and how they lie to the borders of morphemes."""

    num_all: int = 0
    num_on_borders: int = 0
    """Start and end on a border."""
    num_one_morpheme: int = 0
    """These, with no border between."""
    num_across: int = 0
    """A border lies inside."""


def measure(name: str, tokenizer: "Tokenizer", held_out: HeldOut) -> VocabMeasures:
    """Tokenise held-out text with a WordPiece tokenizer and count.

    Args:
        name: how the report calls it.
        tokenizer: without truncation and padding.
        held_out: of `analyse_held_out`.
    """
    lengths: collections.Counter[int] = collections.Counter()
    pieces: collections.Counter[str] = collections.Counter()
    hangul: collections.defaultdict[str, MorphemeFit] = collections.defaultdict(MorphemeFit)
    num_eojeol_unknown = num_eojeol_whole = 0
    distinct = iter(held_out.eojeol.items())
    while batch := list(itertools.islice(distinct, BATCH)):
        plain = [marked.replace(BORDER, "") for marked, _ in batch]
        encodings = tokenizer.encode_batch(plain, add_special_tokens=False)
        for eojeol, (marked, count), encoding in zip(plain, batch, encodings, strict=True):
            lengths[len(encoding.tokens)] += count
            num_eojeol_unknown += count * (UNKNOWN in encoding.tokens)
            num_eojeol_whole += count * (len(encoding.tokens) == 1 and UNKNOWN not in encoding.tokens)
            borders = _borders(marked)
            for piece, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
                pieces[piece] += count
                if piece != UNKNOWN and SCRIPTS["Hangul"].fullmatch(eojeol, start, end):
                    _fit(hangul[piece], borders, start, end, count)
    num_unknown = pieces.pop(UNKNOWN, 0)
    vocab = tokenizer.get_vocab()
    places = {piece: place_and_script(piece) for piece in vocab}
    ordinary = [piece for piece, (place, _) in places.items() if place in {STARTS, CONTINUATIONS}]
    single = (place for piece, (place, script) in places.items() if script == "Hangul" and len(_bare(piece)) == 1)
    return VocabMeasures(
        name=name,
        composition=collections.Counter(places.values()),
        num_single_syllables=collections.Counter(single),
        tokens_per_eojeol=lengths,
        num_characters=held_out.num_characters,
        num_unknown=num_unknown,
        num_eojeol_unknown=num_eojeol_unknown,
        num_eojeol_whole=num_eojeol_whole,
        pieces=pieces,
        hangul=hangul,
        longest=sorted(ordinary, key=lambda piece: (-len(_bare(piece)), piece))[:NUM_LISTED],
        example=tokenizer.encode(EXAMPLE, add_special_tokens=False).tokens,
    )


def _borders(marked: str) -> list[int]:
    """Return the places of the borders in an eojeol, its begin and end among them."""
    return [0, *itertools.accumulate(len(morpheme) for morpheme in marked.split(BORDER))]


def _fit(fit: MorphemeFit, borders: Sequence[int], start: int, end: int, count: int) -> None:
    inside = any(start < border < end for border in borders)
    on_borders = start in borders and end in borders
    fit.num_all += count
    fit.num_on_borders += count * on_borders
    fit.num_one_morpheme += count * (on_borders and not inside)
    fit.num_across += count * inside


def place_and_script(piece: str) -> tuple[str, str]:
    """Return where in a word a vocabulary entry stands and what it is written in; `("special tokens", "")` and such."""
    if re.fullmatch(r"\[.+\]", piece):
        return (UNUSED if piece.startswith("[unused") else SPECIAL), ""
    bare = _bare(piece)
    script = next((name for name, pattern in SCRIPTS.items() if pattern.fullmatch(bare)), OTHER)
    return (STARTS if bare == piece else CONTINUATIONS), script


def _bare(piece: str) -> str:
    """Return the characters of a piece. `##` alone is a piece of two hash signs."""
    return piece[2:] if piece.startswith("##") and len(piece) > 2 else piece


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _plain(value: float) -> str:
    return f"{value:.3f}"


def _percent(value: float) -> str:
    """Return a fraction as hundredths; the rare, such as unknown tokens, with the digits that tell it from nothing."""
    return "0 %" if not value else f"{100 * value:.{1 if value >= 0.01 else 3}f} %"


ROWS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "tokens_per_eojeol": ("tokens per eojeol", _plain),
    "tokens_per_character": ("tokens per character", _plain),
    "eojeol_whole": ("eojeol that are one token", _percent),
    "tokens_unknown": ("`[UNK]` among tokens", _percent),
    "eojeol_unknown": ("eojeol with `[UNK]`", _percent),
    "entries_used": ("entries that occur", _percent),
    "tokens_on_borders": ("Hangul tokens from border to border", _percent),
    "tokens_one_morpheme": ("Hangul tokens of one morpheme", _percent),
    "tokens_across": ("Hangul tokens across a border", _percent),
    "entries_one_morpheme": ("Hangul entries of one morpheme", _percent),
}

DEFINITIONS = """\
- An *eojeol* stands between blanks; control characters are dropped first, as BERT's normaliser does. A *token* is an
  occurrence of a piece, `[CLS]` and `[SEP]` not counted. *Characters* include blanks.
- *Eojeol that are one token*: share of all eojeol, that token not being `[UNK]`.
- *Entries that occur*: share of the vocabulary, without special tokens and unused slots, that the held-out text uses
  at least once. It grows with the text; compare it only within this table.
- *Morpheme borders* are those of Kiwi inside an eojeol, its begin and end included. Morphemes that share a syllable
  (`갔다` = `가` + `았` + `다`) have no border between them and count as one. *Hangul tokens* hold nothing but Hangul
  syllables.
- *From border to border*: the token starts and ends on a border. *Of one morpheme*: it does, and no border lies
  inside. *Across a border*: one lies inside.
- *Hangul entries of one morpheme*: among the Hangul entries that occur, those that are one morpheme in more than half
  of their occurrences.
- *Latin* is A–Z and a–z, *digits* 0–9, *Hanja* the unified ideographs; *other* is punctuation, symbols, further
  scripts and mixtures.
- The held-out documents were kept from the training of the new vocabulary, copies of them among the others were not.
  What other vocabularies were trained on is not known here."""


def write_report(
    out: Path, compared: Mapping[str, Path], held_out: HeldOut, *, command: str, facts: Sequence[str]
) -> list[VocabMeasures]:
    """Measure the tokenizer in OUT and those it is compared with, and write `report.md` and `report.png` beside it.

    Args:
        out: folder of the new tokenizer, after which its column is called.
        compared: title → folder of each further column.
        held_out: the text to measure on.
        command: that makes all of it again.
        facts: how the vocabulary was made, a line each.

    Raises:
        CheckpointError: a tokenizer is no cased WordPiece.
        ResultError: OUT cannot be written.
    """
    from pretraining.data.tokens import open_wordpiece

    title = out.resolve().name
    folders = {f"{title} (new)" if title in compared else title: out} | dict(compared)
    measures = [measure(name, open_wordpiece(folder / TOKENIZER), held_out) for name, folder in folders.items()]
    draw_report(out / CHART, measures)
    write_text(out / REPORT, render_report(measures, held_out, command=command, facts=facts))
    return measures


def render_report(measures: Sequence[VocabMeasures], held_out: HeldOut, *, command: str, facts: Sequence[str]) -> str:
    """Return the report in Markdown.

    Args:
        measures: the new vocabulary first, then what it is compared with.
        held_out: the text that was measured on.
        command: that makes all of it again.
        facts: how the vocabulary was made, a line each.
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
        "\n".join(f"- {m.name}: {_pieces(m.example)}" for m in measures),
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

    def entries(place: str, script: str) -> Callable[[VocabMeasures], int]:
        return lambda m: m.composition.get((place, script), 0)

    def syllables(place: str) -> Callable[[VocabMeasures], int]:
        return lambda m: m.num_single_syllables.get(place, 0)

    rows = [
        row("entries", lambda m: m.vocab_size),
        row(SPECIAL, entries(SPECIAL, "")),
        row(UNUSED, entries(UNUSED, "")),
    ]
    for place in (STARTS, CONTINUATIONS):
        rows += [row(f"{place}, {script}", entries(place, script)) for script in (*SCRIPTS, OTHER)]
        rows.append(row(f"{place}, single Hangul syllables (counted above)", syllables(place)))
    return rows


def _listings(measures: VocabMeasures) -> list[str]:
    frequent = sorted(measures.pieces, key=lambda piece: (-measures.pieces[piece], piece))[:NUM_LISTED]
    return [
        f"## Pieces of {measures.name}",
        f"The {len(measures.longest)} longest: {_pieces(measures.longest)}",
        f"The {len(frequent)} most frequent in the held-out text: {_pieces(frequent)}",
    ]


def _pieces(pieces: Iterable[str]) -> str:
    # A back quote inside code needs a longer fence.
    return " ".join(f"`` {piece} ``" if "`" in piece else f"`{piece}`" for piece in pieces)


PANELS = ("tokens_per_eojeol", "eojeol_whole", "eojeol_unknown", "tokens_one_morpheme")
COLOURS = ("#1f4e79", "#d1792b", "#5b8c5a", "#8b6a9e", "#a33b3b", "#6b7785")
LABEL_SIZE = 9


def draw_report(path: Path, measures: Sequence[VocabMeasures]) -> None:
    """Draw how many tokens eojeol are split into, and four figures of the table, as a PNG.

    All text in it is ASCII, because the fonts that every machine has hold no Hangul.

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
        places = [k + 1 - 0.4 + (number + 0.5) * width for k in range(LONGEST_BAR)]
        axes.bar(places, bars, width=width, color=colour, label=f"{name} ({m.vocab_size:,} entries)")
    ticks = [*map(str, range(1, LONGEST_BAR)), f"{LONGEST_BAR}+"]
    axes.set_xticks(range(1, LONGEST_BAR + 1), ticks)
    axes.set_xlabel("tokens per eojeol")
    axes.set_ylabel("share of eojeol (%)")
    axes.set_title("How many tokens an eojeol is split into", loc="left", fontsize=LABEL_SIZE + 2)
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
    """Return NAME as the chart can show it: a `$` would begin a formula, a leading `_` hides it from the legend."""
    return name.replace("$", r"\$").lstrip("_") if name.isascii() and name.strip("_ ") else f"vocabulary {number}"
