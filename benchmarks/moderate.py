"""How well hateful and offensive comments are found across sources, through evasion, and without accusing names.

    PRESSBERT_DATA=DATA python -m benchmarks.moderate
    PRESSBERT_DATA=DATA python -m benchmarks.moderate --parts softening

- Across sources: trained on BEEP!, tested on K-MHaS' validation file as hate or none, and the reverse. Every second
  comment of the other source may choose the threshold; the rest is reported, also at a threshold of 0.5.
- Evasion: harmful comments of the reported half, disguised in every manner.
- Names: the sentences of benchmarks/data/moderate_identity.txt, all of them neutral.
- Softening: comments of the reported half that are flagged. Content words are nouns, numerals, roots, verbs,
  adjectives and adverbs by Kiwi's tags (`downstream.moderate.softening.CONTENT_TAGS`); one that an edit touches is not
  kept, whatever stands for it.
- Three classes: BEEP! on the project's own split, against character n-grams on the same examples by a paired bootstrap.

The training recipe is that of the bundled model but for the sources. Writes the parts into docs/benchmarks/moderate.md;
the others stay as they are.
"""

import functools
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import write_text
from corpora.official import data_root
from downstream.finetuning.ngrams import NgramClassifier
from downstream.metrics import macro_f1
from downstream.moderate.evasion import disguise
from downstream.moderate.model import Encode, Moderator, bundled_moderator, open_encoder
from downstream.moderate.softening import content_words, soften_with
from downstream.moderate.sources import LABELS
from downstream.moderate.training import Examples, ModeratorRecipe, fit, judge_examples, read_recipe, read_training
from downstream.task import get_task

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "moderate.md"
IDENTITY = Path(__file__).resolve().parent / "data" / "moderate_identity.txt"
THRESHOLDS = tuple(k / 100 for k in range(20, 81))
NUM_DISGUISED, NUM_SOFTENED = 400, 80
ROUNDS = 2000
PARTS = {
    "across": "Across sources",
    "evasion": "Evasion",
    "names": "Neutral sentences with names of people",
    "softening": "Softening",
    "three": "Three classes",
}
"""What is measured, and the heading of its part of the page."""
NAMES = {"blanks": "blanks, dots", "jamo": "jamo", "numerals": "numerals", "emoji": "emoji", "repeated": "repetitions"}


@dataclass(frozen=True)
class Across:
    """A model of one source, and how it does on the reported half of the other."""

    train: str
    test: str
    moderator: Moderator
    threshold: float
    """Chosen on the half that is not reported."""
    at_chosen: float
    """Macro-F1."""
    at_half: float
    """Macro-F1 at 0.5."""
    baseline: float
    """Macro-F1 of the n-grams alone, with a threshold of their own."""
    precision: float
    """At the threshold that the training source says has a precision of 0.8."""
    harmful: tuple[str, ...]
    """The harmful comments of the reported half."""
    harmless: tuple[str, ...]
    """The others."""


def binary_f1(golds: NDArray[np.bool_], flagged: NDArray[np.bool_]) -> float:
    """Return the macro-F1 of harmful or not."""
    return macro_f1(flagged.astype(str).tolist(), golds.astype(str).tolist())


def best_threshold(scores: NDArray[np.float64], golds: NDArray[np.bool_]) -> float:
    """Return the threshold with the highest macro-F1."""
    return max(THRESHOLDS, key=lambda threshold: binary_f1(golds, scores >= threshold))


def across(recipe: ModeratorRecipe, train: Examples, test: Examples, added: Examples, encode: Encode) -> Across:
    """Train on one source and score on the other."""
    golds = np.array([comment.label != "none" for comment in test.comments])
    half = np.arange(len(test)) % 2 == 1
    model = fit(recipe, train, added, encode)
    scores = model.scores(judge_examples(model, test))
    threshold = best_threshold(scores[~half], golds[~half])
    letters = replace(model, encode=None)
    plain = letters.scores(judge_examples(letters, test))
    own = best_threshold(plain[~half], golds[~half])
    flagged = scores[half] >= model.settings.thresholds.get("0.80", 1.0)
    return Across(
        train.comments[0].source,
        test.comments[0].source,
        model,
        threshold,
        binary_f1(golds[half], scores[half] >= threshold),
        binary_f1(golds[half], scores[half] >= 0.5),
        binary_f1(golds[half], plain[half] >= own),
        float(golds[half][flagged].mean()) if flagged.any() else 0.0,
        tuple(c.text for k, c in enumerate(test.comments) if half[k] and golds[k]),
        tuple(c.text for k, c in enumerate(test.comments) if half[k] and not golds[k]),
    )


def flag_rate(model: Moderator, texts: Sequence[str], threshold: float) -> float:
    """Return the share of texts at or above a threshold."""
    return float((model.scores(model.probabilities(texts)) >= threshold).mean())


def evasion(found: Across) -> dict[str, tuple[float, float]]:
    """Return how many harmful and harmless comments are flagged as written, and disguised in each manner."""
    draw = random.Random(0)  # noqa: S311
    groups = [draw.sample(group, min(NUM_DISGUISED, len(group))) for group in (found.harmful, found.harmless)]
    rates: dict[str, tuple[float, float]] = {}
    for name, kind in {"as written": "", **{name: kind for kind, name in NAMES.items()}}.items():
        shown = [[disguise(text, kind, draw) if kind else text for text in group] for group in groups]
        harmful, harmless = (flag_rate(found.moderator, texts, found.threshold) for texts in shown)
        rates[name] = harmful, harmless
    return rates


@dataclass(frozen=True)
class Softening:
    """What the proposals of one manner do to flagged comments."""

    manner: str
    number: int
    passed: float
    """Share below the threshold."""
    kept: float
    """Share of content words that no edit touches, mean over comments."""
    kept_together: float
    """The same over all words of all comments."""
    one_each: float
    """What `kept` would be if a single content word were edited in each comment."""


def softening(found: Across) -> list[Softening]:
    """Return what each manner does."""
    draw = random.Random(1)  # noqa: S311
    chosen = draw.sample(found.harmful, min(4 * NUM_SOFTENED, len(found.harmful)))
    settings = found.moderator.settings.model_copy(update={"thresholds": {"0.80": found.threshold}})
    model = replace(found.moderator, settings=settings)
    flagged = ((text, made) for text in chosen if (made := soften_with(model, text)))
    pairs = list(itertools.islice(flagged, NUM_SOFTENED))
    sizes = np.array([len(content_words(text)) for text, _ in pairs])
    rows: list[Softening] = []
    for k, first in enumerate(pairs[0][1]):
        kept = np.array([made[k].kept for _, made in pairs])
        passed = float(np.mean([made[k].is_below for _, made in pairs]))
        together = float((kept * sizes).sum() / sizes.sum())
        one_each = float(np.where(sizes > 0, 1 - 1 / np.maximum(sizes, 1), 1).mean())
        rows.append(Softening(first.manner, len(pairs), passed, float(kept.mean()), together, one_each))
    return rows


@dataclass(frozen=True)
class ThreeClasses:
    """Macro-F1 on BEEP!'s own split."""

    alone: float
    with_headlines: float
    of_both: float
    """Of a model that learns from the other sources as well, for the comment alone."""
    baseline: float
    difference: tuple[float, float]
    """95 % interval of the model with headlines less the n-grams."""


def three_classes(recipe: ModeratorRecipe, examples: Examples, encode: Encode, root: Path) -> ThreeClasses:
    """Train on a part of BEEP!, the first source, and on it and the others together; score on its other part."""
    task = get_task("hate-trainsplit")
    first = [k for k, comment in enumerate(examples.comments) if comment.source == recipe.sources[0].name]
    others = sorted(set(range(len(examples))) - set(first))
    parts = {name: [first[int(e.id) - 1] for e in task.read_split(name, root).examples] for name in ("train", "dev")}
    train, dev = examples.take(parts["train"]), examples.take(parts["dev"])
    golds = [comment.label for comment in dev.comments]
    model = fit(recipe, train, train.take([]), encode)
    said = [
        [LABELS[k] for k in judge_examples(model, dev, with_headlines=flag).argmax(axis=1)] for flag in (False, True)
    ]
    of_both = fit(recipe, examples.take([*parts["train"], *others]), train.take([]), encode)
    said.append([LABELS[k] for k in judge_examples(of_both, dev).argmax(axis=1)])
    ngrams = NgramClassifier([c.text for c in train.comments], [c.label for c in train.comments])
    baseline = ngrams.predict([c.text for c in dev.comments])
    draw = np.random.default_rng(0)
    differences = []
    for _ in range(ROUNDS):
        rows = draw.integers(0, len(golds), len(golds))
        pick = [[answers[k] for k in rows] for answers in (said[1], baseline, golds)]
        differences.append(macro_f1(pick[0], pick[2]) - macro_f1(pick[1], pick[2]))
    low, high = np.quantile(differences, (0.025, 0.975))
    scores = [macro_f1(answers, golds) for answers in (*said, baseline)]
    return ThreeClasses(scores[0], scores[1], scores[2], scores[3], (float(low), float(high)))


def across_part(both: Sequence[Across]) -> str:
    """Return the figures of transfer."""
    rows = "\n".join(
        f"| {a.train} | {a.test} | {a.at_chosen:.3f} | {a.threshold:.2f} | {a.at_half:.3f} | {a.baseline:.3f} "
        f"| {a.precision:.3f} |"
        for a in both
    )
    return f"""\
Trained on one source, tested on the other as harmful or not. Every second comment of the other source chose the
threshold, the rest is reported. *Precision* is that of the threshold which has 0.8 in cross-validation on the training
source.

| trained on | tested on | macro-F1 | threshold | macro-F1 at 0.5 | n-grams alone | precision |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
{rows}
"""


def evasion_part(found: Across) -> str:
    """Return what disguises cost."""
    rates = evasion(found)
    whole, _ = rates["as written"]
    hidden = "\n".join(
        f"| {name} | {rate:.1%} | {whole - rate:+.1%} | {wrong:.1%} |" for name, (rate, wrong) in rates.items()
    )
    return f"""\
{NUM_DISGUISED} harmful and as many harmless comments of {found.test}, judged by the model of {found.train} at the
chosen threshold; half of the words are disguised.

| disguise | recall | recall lost | harmless flagged |
| --- | ---: | ---: | ---: |
{hidden}
"""


def names_part(both: Sequence[Across]) -> str:
    """Return how often names of people are flagged."""
    bundled = bundled_moderator()
    names = [
        ("bundled, precision 0.80", flag_rate(bundled, sentences(), bundled.threshold(0.8))),
        *((f"{a.train}, threshold {a.threshold:.2f}", flag_rate(a.moderator, sentences(), a.threshold)) for a in both),
    ]
    neutral = "\n".join(f"| {name} | {rate:.1%} |" for name, rate in names)
    return f"""{len(sentences())} sentences, none of which is in the training data.

| model and threshold | flagged |
| --- | ---: |
{neutral}
"""


def softening_part(found: Across) -> str:
    """Return how many comments pass, and what is kept of them."""
    rows = softening(found)
    soft = "\n".join(
        f"| {row.manner} | {row.number} | {row.passed:.1%} | {row.kept:.1%} | {row.kept_together:.1%} |" for row in rows
    )
    return f"""\
Flagged comments of {found.test} by the model of {found.train}. Content words are nouns, numerals, roots, verbs,
adjectives and adverbs by Kiwi; one that an edit touches is not kept, whatever stands for it. Comments are short: if one
content word were edited in each, {rows[0].one_each:.1%} would be kept on the mean.

| manner | comments | below the threshold | content words kept, mean of comments | of all words |
| --- | ---: | ---: | ---: | ---: |
{soft}
"""


def three_part(three: ThreeClasses) -> str:
    """Return the figures of three classes."""
    return f"""\
BEEP! hate, `hate-trainsplit`, macro-F1: {three.alone:.4f} for the comment alone, {three.with_headlines:.4f} with its
headline, {three.baseline:.4f} for character n-grams. The difference of the last two is within
[{three.difference[0]:+.4f}, {three.difference[1]:+.4f}] with 95 % (paired bootstrap, {ROUNDS:,} rounds).

These models learn from the training part of that split alone. One that learns from K-MHaS as well, as the bundled one
does, has {three.of_both:.4f} for the comment alone. K-MHaS calls fewer comments harmful than BEEP! does; the model
draws the line as BEEP! does, which tells offence from hate.
"""


def parts_of_page(page: Path) -> dict[str, str]:
    """Return the parts of a page by heading; none if there is no page."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return {head: body.lstrip("\n") for head, _, body in (part.partition("\n") for part in text.split("\n## ")[1:])}


def page(parts: dict[str, str]) -> str:
    """Return the page with the parts that were measured."""
    head = "# Comments: hate and offence\n\n`PRESSBERT_DATA=DATA python -m benchmarks.moderate`\n"
    shown = [f"## {title}\n\n{parts[title].rstrip()}\n" for title in PARTS.values() if title in parts]
    return "\n".join([head, *shown])


def sentences() -> list[str]:
    """Return the neutral sentences with names of people."""
    return IDENTITY.read_text(encoding="utf-8").splitlines()


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = ArgumentParser("python -m benchmarks.moderate", "Measure the model of comments.")
    parser.add_argument("--data", type=Path, help="data root; default: PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured; default: all")
    arguments = parser.parse(argv)
    root, recipe = data_root(arguments.data), read_recipe()
    encode = open_encoder("bundled", "", "benchmark")
    labelled, added = read_training(recipe, root)
    examples, more = Examples.from_comments(labelled, encode), Examples.from_comments(added, encode)
    first, second = recipe.sources[0].name, recipe.sources[1].name
    of = {name: examples.take([k for k, c in enumerate(labelled) if c.source == name]) for name in (first, second)}
    forth = functools.cache(lambda: across(recipe, of[first], of[second], more, encode))
    back = functools.cache(lambda: across(recipe, of[second], of[first], more, encode))
    measures: dict[str, Callable[[], str]] = {
        "across": lambda: across_part([forth(), back()]),
        "evasion": lambda: evasion_part(forth()),
        "names": lambda: names_part([forth(), back()]),
        "softening": lambda: softening_part(forth()),
        "three": lambda: three_part(three_classes(recipe, examples, encode, root)),
    }
    parts = parts_of_page(PAGE)
    for name in arguments.parts:
        parts[PARTS[name]] = measures[name]()
        write_text(PAGE, page(parts))
    sys.stdout.write(f"{PAGE}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
