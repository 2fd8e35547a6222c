"""Headlines for an article: sentences of its lead that are shortened, and the best one as it is.

    python -m downstream.headline write FILE… [--model DIR] [--json]
    python -m downstream.headline train PAIRS… --out DIR [--encoder FOLDER]
    python -m downstream.headline train PAIRS… --out DIR --model FOLDER
    python -m downstream.headline evaluate PAIRS… [--model DIR]

PAIRS are files of articles with titles, in any format of `corpora.documents`. Without `--model` a network learns which
words of a sentence a headline keeps (`downstream.headlines.compression`); with the result of the pretraining objective
`bart`, `t5`, `hybrid` or `gpt`, that model learns to generate. A headline with a number or a name that the article
does not have is refused (`downstream.headlines.facts`).

>>> article = "강릉시는 5일 시내버스 12대를 늘린다고 밝혔다. 새 버스는 다음 달부터 다닌다. 시민들은 반겼다."
>>> headline(article)[-1].text
'강릉시는 5일 시내버스 12대를 늘린다고 밝혔다.'
"""

import argparse
import functools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from corpora.foundation.files import alone
from downstream.encoders.hub import BUNDLED_SOURCE
from downstream.headlines.writer import NUM_BEAMS, Candidate, Headline, HeadlineWriter, bundled_writer

__all__ = ["Candidate", "Headline", "HeadlineWriter", "headline", "main"]


@functools.cache
def _writer(model: str) -> HeadlineWriter:
    return HeadlineWriter.load(model) if model else bundled_writer()


def headline(article: str, *, model: str | Path = "", count: int = 3) -> list[Headline]:
    """Write headlines for an article; the extractive one comes last.

    Args:
        article: raw text.
        model: folder that `python -m downstream.headline train` saved; default: the model that comes with the package.
        count: number of headlines beside the extractive one.

    Returns:
        At most COUNT headlines of the model, fewer if the others were refused, and the best sentence of the lead; empty
        for a text without a sentence.

    Raises:
        CheckpointError: the model is unusable.
        ValueError: an argument is invalid.
    """
    return _writer(str(model)).write(article, count, max(count, NUM_BEAMS))


def _train(arguments: argparse.Namespace) -> None:
    from downstream.finetuning.arguments import parse_overrides
    from downstream.headlines.compression_training import train_compression
    from downstream.headlines.training import train_headlines

    overrides = parse_overrides(arguments.set)
    with alone(arguments.out):
        if arguments.model:
            facts = train_headlines(arguments.files, arguments.model, arguments.out, overrides)
        else:
            facts = train_compression(arguments.files, arguments.out, arguments.encoder, overrides)
    sys.stdout.write(json.dumps({"num_pairs": facts["num_pairs"], "losses": facts["losses"]}) + "\n")


def _evaluate(arguments: argparse.Namespace) -> None:
    from downstream.headlines.evaluation import evaluate_headlines
    from downstream.headlines.pairs import read_pairs

    pairs = read_pairs(arguments.files, arguments.split)[: arguments.limit]
    scores = evaluate_headlines(_writer(str(arguments.model or "")), pairs, num_beams=arguments.beams)
    sys.stdout.write(json.dumps(scores.as_json(), indent=1) + "\n")


def _write(arguments: argparse.Namespace) -> int:
    from corpora.documents import RejectedRecord, read_files, report_rejected

    rejected: list[RejectedRecord] = []
    documents = read_files(arguments.files, rejected, text_unit="file")
    writer = _writer(str(arguments.model or ""))
    for document in documents:
        found = writer.write(document.text, arguments.count, max(arguments.count, arguments.beams))
        if arguments.json:
            line = json.dumps({"id": document.id, "headlines": [asdict(one) for one in found]}, ensure_ascii=False)
        else:
            line = "\n".join(one.text for one in found) + "\n"
        sys.stdout.write(line + "\n")
    return report_rejected(rejected)


ACTIONS: Mapping[str, Callable[[argparse.Namespace], int | None]] = {
    "train": _train,
    "evaluate": _evaluate,
    "write": _write,
}


def main(argv: list[str] | None = None) -> int:
    """Train, evaluate or use a headline model from the command line."""
    parser = ArgumentParser("python -m downstream.headline", "Write headlines that keep to the facts of an article.")
    parser.add_argument(
        "action",
        choices=tuple(ACTIONS),
        help="train: on pairs of title and body; evaluate: on held-out ones, as JSON; write: headlines of articles",
    )
    parser.add_argument(
        "files", nargs="+", type=Path, help="articles; a .txt file is one; write: - for the standard input"
    )
    parser.add_argument("--model", type=Path, help="train: a model that generates; others: a trained folder")
    parser.add_argument("--encoder", default=BUNDLED_SOURCE, help="train without --model: folder of a BERT")
    parser.add_argument("--out", type=Path, help="train: folder for the trained model")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="train: e.g. --set epochs=3")
    parser.add_argument("--beams", type=int, default=NUM_BEAMS, help="candidates of an article")
    parser.add_argument("--split", choices=("dev", "test"), default="test", help="evaluate: which held-out pairs")
    parser.add_argument("--limit", type=int, help="evaluate: the first N pairs only")
    parser.add_argument("--count", type=int, default=3, help="write: headlines beside the extractive one")
    parser.add_argument("--json", action="store_true", help="write: one JSON object an article")
    arguments = parser.parse(argv)
    if arguments.action == "train" and arguments.out is None:
        raise UsageError("--out", "missing for train", "give a folder")
    if arguments.model and arguments.encoder != BUNDLED_SOURCE:
        raise UsageError("--encoder", "not used with --model", "leave one of the two out")
    if arguments.count < 1 or arguments.beams < 1:
        raise UsageError("--count", f"{arguments.count} of {arguments.beams} beams", "give positive numbers")
    return ACTIONS[arguments.action](arguments) or EXIT_DONE


if __name__ == "__main__":
    run_command(main)
