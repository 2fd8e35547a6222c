"""Keystrokes that the completer saves on held-out press releases, beside the counts alone, and how long it takes.

    python -m benchmarks.complete --data ROOT --out docs/benchmarks

A writer types a text key by key. After each syllable three completions are shown; the writer takes the right one as
soon as it is there, with one keystroke, which types the blank behind it, too; one that is a part of the word, if
it saves more keys than it costs. A syllable costs the keys of its letters.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import write_text
from corpora.official import data_root
from corpora.sentences import split_article
from downstream.complete import Completer
from downstream.writing.hangul import FINALS, VOWELS, is_syllable, parts
from downstream.writing.training import Role, texts_of

SHOWN = 3
NUM_TEXTS = 12
LEAST_SAVED = 2
"""Keys of a completion that is only the beginning of the word, from which on the writer takes it."""
SENTENCES = 5
"""Of a text, from its beginning."""
DOUBLE_VOWELS, DOUBLE_FINALS = frozenset("ㅘㅙㅚㅝㅞㅟㅢ"), frozenset("ㄳㄵㄶㄺㄻㄼㄽㄾㄿㅀㅄ")


def keys_of(word: str) -> int:
    """Return the keystrokes of a word on the Korean keyboard."""
    keys = 0
    for letter in word:
        if not is_syllable(letter):
            keys += 1
            continue
        _, vowel, final = parts(letter)
        keys += 2 + (VOWELS[vowel] in DOUBLE_VOWELS) + (final > 0) + (FINALS[final] in DOUBLE_FINALS)
    return keys


def type_text(completer: Completer, sentences: Sequence[str], latencies: list[float]) -> tuple[int, int]:
    """Return the keystrokes of sentences without and with the completer."""
    plain = used = 0
    written = ""
    for sentence in sentences:
        for word in sentence.split():
            plain += keys_of(word) + 1
            used += _type_word(completer, written, word, latencies)
            written += word + " "
    return plain, used


def _type_word(completer: Completer, written: str, word: str, latencies: list[float]) -> int:
    """Return the keystrokes for a word and the blank behind it."""
    used = typed = 0
    while typed < len(word):
        begun = time.perf_counter()
        found = completer.complete(written + word[:typed], SHOWN)
        latencies.append(1000 * (time.perf_counter() - begun))
        fitting = [word[:typed] + one.text for one in found if word.startswith(word[:typed] + one.text)]
        longest = max(fitting, key=len, default="")
        if longest == word:
            return used + 1
        if keys_of(longest[typed:]) > LEAST_SAVED:
            used, typed = used + 1, len(longest)
        else:
            used, typed = used + keys_of(word[typed]), typed + 1
    return used + 1


def saved(rows: Sequence[tuple[int, int]]) -> float:
    """Return the share of keystrokes that is saved."""
    return 1 - sum(used for _, used in rows) / max(1, sum(plain for plain, _ in rows))


def interval(
    one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]], rounds: int = 1_000
) -> tuple[float, float]:
    """Return the 95 % interval of the difference between two completers, texts resampled in pairs."""
    rng = np.random.default_rng(0)
    differences = np.empty(rounds)
    for k in range(rounds):
        chosen = rng.integers(0, len(one), len(one)).tolist()
        differences[k] = saved([one[j] for j in chosen]) - saved([other[j] for j in chosen])
    low, high = np.quantile(differences, [0.025, 0.975])
    return float(low), float(high)


def page(root: Path, part: Role) -> str:
    """Measure, and return the page as Markdown."""
    texts = [[s.text for s in split_article(text)][:SENTENCES] for text in texts_of(root, "press", part)[:NUM_TEXTS]]
    lines, results = [], {}
    for name, with_model in (("counts", False), ("counts and model", True)):
        completer = Completer.load(with_model=with_model)
        completer.complete("첫 ")
        latencies: list[float] = []
        results[name] = [type_text(completer, sentences, latencies) for sentences in texts]
        p95 = float(np.quantile(latencies, 0.95))
        lines.append(f"| {name} | {saved(results[name]):.3f} | {np.median(latencies):.1f} | {p95:.1f} |")
    low, high = interval(results["counts and model"], results["counts"])
    keys = sum(plain for plain, _ in results["counts"])
    return "\n".join(
        [
            "# Completer: keystrokes saved on press releases",
            "",
            f"`python -m benchmarks.complete --data ROOT --part {part}`",
            "",
            f"{len(texts)} texts, {keys:,} keystrokes, {SHOWN} completions shown, one core.",
            "The encoder read these releases in its pretraining; the counts have not seen them.",
            "",
            "| completer | keystrokes saved | median, ms | p95, ms |",
            "| --- | ---: | ---: | ---: |",
            *lines,
            "",
            f"Difference of the two, 95 % interval over texts: {low:+.3f} to {high:+.3f}.",
            "",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = ArgumentParser("python -m benchmarks.complete", "Keystrokes that the completer saves.")
    parser.add_argument("--data", type=Path, help="data root")
    parser.add_argument("--part", choices=("tune", "test"), default="test")
    parser.add_argument("--out", type=Path, help="folder of the page; default: standard output only")
    arguments = parser.parse(argv)
    text = page(data_root(arguments.data), arguments.part)
    if arguments.out:
        write_text(arguments.out / "complete.md", text)
    sys.stdout.write(text)
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
