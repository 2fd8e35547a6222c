"""What emoji, rare characters, decomposed Hangul and long words cost a classifier; writes the page in the docs.

    python -m benchmarks.characters --data DATA
    python -m benchmarks.characters --data DATA --model runs/nsmc-kpfbert --examples 5000

Every test review of NSMC is changed in the same way, and the accuracy compared with that on the reviews as they are.
The times are those of the tokenizer alone, with and without the rules of `pretraining.vocabulary.splitting`.
"""

import argparse
import statistics
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from corpora.foundation.command import run_command
from corpora.foundation.files import write_text
from corpora.foundation.machine import cpu_name, versions
from corpora.official import data_root
from downstream.classify import Classifier
from downstream.encoders.folder import BUNDLED
from downstream.runtimes.plain_bert import TOKENIZER_FILE, PlainTokenizer
from downstream.task import TextExample, get_task
from pretraining.vocabulary.tokenizer import open_wordpiece

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "characters.md"
LIBRARIES = ("transformers", "tokenizers", "onnxruntime")
BATCH = 2_000
ROUNDS = 5
CHANGES: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "decomposed (NFD)": lambda text: unicodedata.normalize("NFD", text),
    "😀 behind the last word": lambda text: f"{text}😀",
    "👨‍👩‍👧 behind the last word": lambda text: f"{text}👨‍👩‍👧",
    "👍🏽 before the first word": lambda text: f"👍🏽{text}",
    "鸞 behind the last word": lambda text: f"{text}鸞",
    "쀍 behind the last word": lambda text: f"{text}쀍",
    "😀 behind every word": lambda text: " ".join(f"{word}😀" for word in text.split()),
    "😀 for every blank": lambda text: "😀".join(text.split()),
}


def accuracy(classifier: Classifier, examples: Sequence[TextExample], change: Callable[[str], str]) -> float:
    """Return the share of examples whose label is predicted from the changed text."""
    right = 0
    for first in range(0, len(examples), BATCH):
        batch = examples[first : first + BATCH]
        best = classifier.probabilities([change(example.text) for example in batch]).argmax(axis=1)
        right += sum(classifier.labels[k] == example.label for k, example in zip(best, batch, strict=True))
    return right / len(examples)


def tokenizer_times(folder: Path, texts: Sequence[str]) -> dict[str, float]:
    """Return microseconds a text of several tokenizers, medians of `ROUNDS` in turn."""
    published = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    bare = open_wordpiece(folder / TOKENIZER_FILE)
    # Without the rules: the last step of each is BERT's own.
    bare.normalizer, bare.pre_tokenizer = list(bare.normalizer)[-1], list(bare.pre_tokenizer)[-1]
    own = PlainTokenizer.load(folder)
    calls: dict[str, Callable[[], object]] = {
        "without the rules, as transformers calls it": lambda: bare.encode_batch(texts),
        "with the rules, as transformers calls it": lambda: published.encode_batch(texts),
        "with the rules, as the classifier calls it": lambda: own(texts),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: 1e6 * statistics.median(seconds) / len(texts) for name, seconds in times.items()}


def page(title: str, scores: dict[str, float], num_examples: int, times: dict[str, float]) -> str:
    """Return the page."""
    plain = scores["as it is"]
    lines = [
        "# Characters that a vocabulary lacks",
        "",
        "Written by `python -m benchmarks.characters`; do not edit.",
        "",
        f"- Model: {title}.",
        f"- The first {num_examples:,} test reviews of NSMC, each changed in the same way.",
        f"- Machine: {cpu_name()}, one thread for the tokenizer; process time, median of {ROUNDS} rounds in turn.",
        f"- {', '.join(f'{name} {version}' for name, version in versions(*LIBRARIES).items())}.",
        "",
        "| review | accuracy | difference |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {100 * score:.2f} | {100 * (score - plain):+.2f} |" for name, score in scores.items()),
        "",
        "| tokenizer | µs a review | × first row |",
        "| --- | ---: | ---: |",
    ]
    first = next(iter(times.values()))
    lines += [f"| {name} | {value:.1f} | {value / first:.2f} |" for name, value in times.items()]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Measure, and print and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.characters", description=__doc__)
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--model", type=Path, help="folder fine-tuned on nsmc; default: the bundled classifier")
    parser.add_argument("--examples", type=int, default=50_000, help="test reviews, from the first on")
    parser.add_argument("--out", type=Path, help="page to write; default: the docs' page without --model, else none")
    arguments = parser.parse_args(argv)
    folder = arguments.model or BUNDLED / "classifier"
    examples = get_task("nsmc").read_split("test", data_root(arguments.data)).examples[: arguments.examples]
    classifier = Classifier.load(folder)
    scores = {}
    for name, change in CHANGES.items():
        scores[name] = accuracy(classifier, examples, change)
        sys.stderr.write(f"{name}: {100 * scores[name]:.2f}\n")
    times = tokenizer_times(folder, [example.text for example in examples])
    title = f"`{folder}`" if arguments.model else "the bundled classifier"
    text = page(title, scores, len(examples), times)
    if out := arguments.out or (None if arguments.model else PAGE):
        write_text(out, text)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    run_command(main)
