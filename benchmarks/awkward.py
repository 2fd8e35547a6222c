"""Precision of the rules for awkward wording, by the hits that were judged by eye, and how often words are unlikely.

    python -m benchmarks.awkward --data ROOT --out docs/benchmarks

`benchmarks/data/awkward_judged.tsv` holds hits in Wikinews, press releases, reviews and petitions, at most 14 for a
rule, each with a verdict: would an editor change it? One reader judged them. Those of the part
`refined` were seen before the rules got their last form; those of the part `fresh` were not.

Unlikely words (`--unlikely`) are counted in clean press releases: on the part `tune` of
`downstream.writing.training.role_of` the threshold is chosen that flags `RATE` words in 1,000 eojeol, on the part
`test` it is reported. Beside it stands how many words are found that were exchanged for a word of another sentence with
the same last syllable.
"""

import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import write_text
from corpora.official import data_root
from corpora.sentences import split_article
from downstream.awkward import LONGEST_SCORED, UNLIKELY, score_words
from downstream.awkward.rules import all_rules
from downstream.readers import read_tsv_rows
from downstream.writing.edits import protected_spans
from downstream.writing.training import Role, texts_of

JUDGED = Path("benchmarks/data/awkward_judged.tsv")
Z = 1.96
RATE = 2.0
"""Words of clean text in 1,000 eojeol that may be called unlikely."""
NUM_EOJEOL = 3_500
"""Of each part, at random."""
NUM_EXCHANGED = 100
THRESHOLDS = tuple(-k / 4 for k in range(32, 81))
EXCHANGED = re.compile(r"(?<!\S)[가-힣]{2,5}(?!\S)")


def wilson(hits: int, number: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    share = hits / number
    middle = (share + Z * Z / (2 * number)) / (1 + Z * Z / number)
    half = Z * (share * (1 - share) / number + Z * Z / (4 * number * number)) ** 0.5 / (1 + Z * Z / number)
    return middle - half, middle + half


def sentences_of(root: Path, role: Role) -> list[str]:
    """Return sentences of press releases, at random, of about `NUM_EOJEOL` eojeol."""
    draw = random.Random(3)  # noqa: S311
    texts = [s.text for text in texts_of(root, "press", role) for s in split_article(text)]
    texts = [text for text in texts if len(text.split()) >= 5 and len(text) <= LONGEST_SCORED]
    draw.shuffle(texts)
    ends = np.cumsum([len(text.split()) for text in texts])
    return texts[: int(np.searchsorted(ends, NUM_EOJEOL)) + 1]


def exchanged(sentences: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield sentences with one eojeol of another sentence, and its place."""
    draw = random.Random(4)  # noqa: S311
    words = [word for sentence in sentences for word in EXCHANGED.findall(sentence)]
    for sentence in sentences:
        places = list(EXCHANGED.finditer(sentence))
        if not places:
            continue
        place = draw.choice(places)
        fitting = [word for word in words if word[-1] == place[0][-1] and word != place[0] and word not in sentence]
        if fitting:
            word = draw.choice(fitting)
            text = sentence[: place.start()] + word + sentence[place.end() :]
            yield text, place.start(), place.start() + len(word)


def scores_of(sentences: Sequence[str]) -> list[list[tuple[int, int, float]]]:
    """Return the words of each sentence that can be called unlikely: places and log-probabilities."""
    scored: list[list[tuple[int, int, float]]] = []
    for sentence, words in zip(sentences, score_words(sentences), strict=True):
        spans = protected_spans(sentence, with_quotations=True)
        scored.append([one for one in words if all(one[1] <= start or end <= one[0] for start, end in spans)])
    return scored


def measured(root: Path, role: Role) -> tuple[list[str], int, NDArray[np.float64]]:
    """Return sentences of a part, their eojeol, and the log-probabilities of their words."""
    sentences = sentences_of(root, role)
    values = np.array([value for words in scores_of(sentences) for _, _, value in words])
    return sentences, sum(len(sentence.split()) for sentence in sentences), values


def unlikely_rows(root: Path) -> list[str]:
    """Choose the threshold on one part and report on another."""
    _, eojeol, flat = measured(root, "tune")
    chosen = max((t for t in THRESHOLDS if 1000 * (flat < t).sum() / eojeol <= RATE), default=THRESHOLDS[-1])
    sentences, eojeol, flat = measured(root, "test")
    wrong = list(exchanged(sentences))[:NUM_EXCHANGED]
    found = scores_of([text for text, _, _ in wrong])
    rows = []
    for name, threshold in (("chosen on the part `tune`", chosen), ("default", UNLIKELY)):
        rate = 1000 * (flat < threshold).sum() / eojeol
        hits = [
            any(value < threshold and a < end and start < b for a, b, value in words)
            for (_, start, end), words in zip(wrong, found, strict=True)
        ]
        rows.append(f"| {name} | {threshold:g} | {rate:.2f} | {np.mean(hits):.3f} |")
    return [
        "",
        "## Unlikely words",
        "",
        f"Press releases, {eojeol:,} eojeol of the part `test`. The threshold is the highest with at most {RATE:g} "
        "flags in 1,000 eojeol on the part `tune`. The encoder read both parts in its pretraining.",
        "",
        f"*Found* is the share of {len(wrong)} words that were exchanged for one of another sentence.",
        "",
        "| threshold | log-probability | flags in 1,000 eojeol | found |",
        "| --- | ---: | ---: | ---: |",
        *rows,
        "",
    ]


def page(root: Path | None) -> str:
    """Return the page as Markdown, with unlikely words if there is a data root."""
    kinds = {compiled.rule.name: compiled.rule.kind for compiled in all_rules()}
    good: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for _, (verdict, part, rule) in read_tsv_rows(JUDGED, "verdict", "part", "rule"):
        for name in (kinds[rule], f"all, {part}", "all"):
            total[name] += 1
            good[name] += verdict == "awkward"
    rows = []
    for name in (*sorted(total.keys() - {"all"}), "all"):
        low, high = wilson(good[name], total[name])
        rows.append(f"| {name} | {total[name]} | {good[name] / total[name]:.3f} | {low:.3f}–{high:.3f} |")
    command = "python -m benchmarks.awkward" + (" --data ROOT" if root else "")
    head = ["# Awkward wording: hits judged by eye", "", f"`{command}`", ""]
    table = [
        f"{len(kinds)} rules.",
        "",
        "| hits | number | precision | 95 % |",
        "| --- | ---: | ---: | ---: |",
        *rows,
        "",
    ]
    return "\n".join([*head, *table[:-1], *(unlikely_rows(root) if root else [""])])


def main(argv: list[str] | None = None) -> int:
    """Compute the precision from the command line."""
    parser = ArgumentParser("python -m benchmarks.awkward", "Precision of the rules for awkward wording.")
    parser.add_argument("--out", type=Path, help="folder of the page; default: standard output only")
    parser.add_argument("--data", type=Path, help="data root, to count unlikely words; default: they are left out")
    arguments = parser.parse(argv)
    text = page(data_root(arguments.data) if arguments.data else None)
    if arguments.out:
        write_text(arguments.out / "awkward.md", text)
    sys.stdout.write(text)
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
