"""The command of a tool that finds signals: print them for articles, or learn one's own labels."""

import dataclasses
import json
import sys
from pathlib import Path

from corpora.documents import RejectedRecord, read_files, report_rejected
from corpora.foundation.command import EXIT_DONE, ArgumentParser
from corpora.foundation.files import alone
from downstream.encoders.hub import BUNDLED_SOURCE
from downstream.signals.finding import Findings
from downstream.signals.learning import Find, Judge, read_labelled, train


def run(tool: str, about: str, find: Find, argv: list[str] | None) -> int:
    """Run the command of a tool.

    Args:
        tool: its name under `downstream`.
        about: what it does.
        find: its function.
        argv: arguments; `train` as the first one learns labels.
    """
    given = sys.argv[1:] if argv is None else argv
    return _train(tool, find, given[1:]) if given[:1] == ["train"] else _find(tool, about, find, given)


def _find(tool: str, about: str, find: Find, argv: list[str]) -> int:
    parser = ArgumentParser(f"python -m downstream.{tool}", f"{about} `train` as the first argument learns labels.")
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="articles: txt, jsonl, csv …; folders; - for the standard input",
    )
    parser.add_argument("--title", default="", help="headline of all articles that have none")
    parser.add_argument("--model", type=Path, help="folder of `train`, whose probabilities are added")
    parser.add_argument("--json", action="store_true", help="print JSON, a line an article")
    arguments = parser.parse(argv)
    rejected: list[RejectedRecord] = []
    documents = read_files(arguments.files, rejected, text_unit="file")
    judge = Judge.load(arguments.model, tool, find) if arguments.model else None
    for document in documents:
        title = document.title or arguments.title
        found = find(document.text, title)
        shares = {}
        if judge is not None:
            [row] = judge.probabilities([(title, document.text)])
            shares = dict(zip(judge.settings.labels, map(float, row), strict=True))
        sys.stdout.write(_json(document.id, found, shares) if arguments.json else _text(document.id, found, shares))
    return report_rejected(rejected)


def _json(id_: str, found: Findings, shares: dict[str, float]) -> str:
    record = {"id": id_, **dataclasses.asdict(found)} | ({"probabilities": shares} if shares else {})
    return json.dumps(record, ensure_ascii=False) + "\n"


def _text(id_: str, found: Findings, shares: dict[str, float]) -> str:
    lines = [id_]
    lines += [f"  {s.kind}\t{s.part} {s.start}–{s.end}\t{' '.join(s.text.split())}\t{s.detail}" for s in found.signals]
    lines += [f"  {name} = {value:.3f}" for name, value in found.measures.items()]
    lines += [f"  P({label}) = {value:.3f}" for label, value in shares.items()]
    return "\n".join(lines) + "\n"


def _train(tool: str, find: Find, argv: list[str]) -> int:
    parser = ArgumentParser(f"python -m downstream.{tool} train", "Learn one's own labels from signals and an encoder.")
    parser.add_argument("file", type=Path, help="records with text or title, and label")
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    parser.add_argument("--encoder", default=BUNDLED_SOURCE, help="folder or hub id of any encoder, or none")
    arguments = parser.parse(argv)
    encoder = None if arguments.encoder == "none" else arguments.encoder
    with alone(arguments.out):
        judge = train(read_labelled(arguments.file), tool, find, encoder, arguments.file)
        judge.save(arguments.out)
    scores = judge.settings.scores
    sys.stdout.write(
        f"{arguments.out}\nmacro-F1 in cross-validation {scores['macro_f1']:.3f}, "
        f"of the most frequent label {scores['macro_f1_most_frequent']:.3f}, {scores['num_articles']:.0f} articles\n"
    )
    return EXIT_DONE
