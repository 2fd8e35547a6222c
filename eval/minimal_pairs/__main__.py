"""The command `python -m eval.minimal_pairs`."""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from corpora.documents import read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import UsageError, suggest
from corpora.official import data_root
from corpora.sentences import split_article
from downstream.writing.likelihood import MaskedScorer
from eval.minimal_pairs import SOURCES, Pair, make_pairs, wins
from eval.minimal_pairs.ngram import SyllableNgrams
from eval.minimal_pairs.phenomena import BY_NAME

BASELINE_FILES = (
    "corpus/press_releases_korea_kr.jsonl.gz",
    "corpus/press_releases_municipal.jsonl.gz",
    "corpus/boddari_book_review02.csv",
    "corpus/msdocs_architecture_ko.jsonl.gz",
)
"""What the baseline counts: no text of the pairs."""


def accuracies(pairs: Sequence[Pair], scores: Mapping[str, float]) -> dict[str, float]:
    """Return the share of pairs won by phenomenon, over all, and on sources that the bundled encoder has not seen."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        won = wins(scores[pair.right], scores[pair.wrong])
        values[pair.phenomenon].append(won)
        values["unseen sources" if SOURCES[pair.source].is_unseen else "seen sources"].append(won)
    phenomena = {pair.phenomenon for pair in pairs}
    means = {name: sum(found) / len(found) for name, found in values.items()}
    means["mean of phenomena"] = sum(means[name] for name in phenomena) / len(phenomena)
    return means


def table(pairs: Sequence[Pair], model: Mapping[str, float], baseline: Mapping[str, float] | None) -> str:
    """Return the results as Markdown."""
    numbers: defaultdict[str, int] = defaultdict(int)
    for pair in pairs:
        numbers[pair.phenomenon] += 1
        numbers["unseen sources" if SOURCES[pair.source].is_unseen else "seen sources"] += 1
    numbers["mean of phenomena"] = len(pairs)
    lines = ["| phenomenon | pairs | model | 5-grams |", "| --- | ---: | ---: | ---: |"]
    for name in model:
        beside = f"{baseline[name]:.3f}" if baseline else ""
        lines.append(f"| {name} | {numbers[name]} | {model[name]:.3f} | {beside} |")
    return "\n".join(lines)


def baseline_sentences(root: Path) -> list[str]:
    """Return the sentences that the baseline counts."""
    return [
        sentence.text
        for path in BASELINE_FILES
        for document in read_documents(root / path, rejected=[])
        for sentence in split_article(document.text)
    ]


def main(argv: list[str] | None = None) -> int:
    """Score a masked language model on the pairs."""
    parser = ArgumentParser("python -m eval.minimal_pairs", "Score a masked language model on minimal pairs.")
    parser.add_argument("model", nargs="?", type=Path, help="a plain BERT with its head; default: the bundled encoder")
    parser.add_argument("--data", type=Path, help="data root")
    parser.add_argument(
        "--sample", action="store_true", help="pairs of the embedded sample alone, without the baseline"
    )
    parser.add_argument("--phenomena", nargs="+", metavar="NAME", help=f"of {', '.join(BY_NAME)}; default: all")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the pairs as TSV")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse(argv)
    root = None if arguments.sample else data_root(arguments.data)
    wanted = arguments.phenomena or list(BY_NAME)
    if unknown := [name for name in wanted if name not in BY_NAME]:
        raise UsageError("--phenomena", f"unknown phenomenon '{unknown[0]}'", suggest(unknown[0], BY_NAME))
    pairs = [pair for pair in make_pairs(root) if pair.phenomenon in wanted]
    if arguments.write:
        rows = [
            "phenomenon\tsource\tright\twrong",
            *("\t".join((p.phenomenon, p.source, p.right, p.wrong)) for p in pairs),
        ]
        arguments.write.write_text("\n".join(rows) + "\n", encoding="utf-8")
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.right, pair.wrong)))
    scorer = MaskedScorer.load(arguments.model)
    model = accuracies(pairs, dict(zip(texts, scorer.log_likelihoods(texts), strict=True)))
    baseline = None
    if root is not None:
        ngrams = SyllableNgrams.of(baseline_sentences(root))
        baseline = accuracies(pairs, {text: ngrams.log_likelihood(text) for text in texts})
    if arguments.json:
        sys.stdout.write(json.dumps({"model": model, "baseline": baseline}, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(table(pairs, model, baseline) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
