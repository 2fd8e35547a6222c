"""Train a cased Korean WordPiece vocabulary, and report its figures on held-out text.

python -m pretraining.vocab CORPUS --out DIR --vocab-size 32000 --segmentation morpheme
"""

import shlex
import sys
from pathlib import Path
from typing import get_args

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.foundation.files import alone, sha256
from corpora.readers.records import TextUnit
from pretraining.vocabulary.build import build_vocabulary, corpus_sha256, is_finished, open_corpus
from pretraining.vocabulary.report import REPORT, choose_compared
from pretraining.vocabulary.tokenizer import TOKENIZER_FILE
from pretraining.vocabulary.wordpiece import Segmentation, VocabConfig


def main(argv: list[str] | None = None) -> int:
    """Train a vocabulary from the command line; prints the path of its report."""
    parser = ArgumentParser("python -m pretraining.vocab", "Train a WordPiece vocabulary and report on held-out text.")
    parser.add_argument("corpus", type=Path, help="folder of python -m corpora.build, or a .jsonl, .csv, .tsv, .txt")
    parser.add_argument("--out", type=Path, required=True, help="folder for tokenizer and report")
    parser.add_argument(
        "--vocab-size", type=int, required=True, help="entries, special tokens and unused slots included"
    )
    parser.add_argument("--segmentation", choices=get_args(Segmentation), help="unit that no subword crosses")
    parser.add_argument("--min-frequency", type=int, help="merge subwords that are adjacent this often (default: 2)")
    parser.add_argument("--limit-alphabet", type=int, help="single characters kept (default: 3000)")
    parser.add_argument("--unused", type=int, dest="num_unused", help="slots [unused0]… (default: 0)")
    parser.add_argument("--max-bytes", type=int, help="train on a sample of a larger corpus (default: 2 GB)")
    parser.add_argument("--text-unit", choices=get_args(TextUnit), help="unit of a document in a plain text file")
    parser.add_argument("--compare", nargs="*", metavar="NAME_OR_FOLDER", help="other tokenizers in the report")
    parser.add_argument("--allow-smaller", action="store_true", help="accept fewer entries if the corpus has no more")
    arguments = parser.parse(argv)

    given = {key: value for key in VocabConfig.model_fields if (value := getattr(arguments, key)) is not None}
    config = validate(VocabConfig, given, parser.prog)
    compared, notes = choose_compared(arguments.compare)
    settings = config.model_dump() | {"corpus_sha256": corpus_sha256(arguments.corpus)}
    if arguments.compare is not None:
        settings["compare"] = [f"{name}:{sha256(folder / TOKENIZER_FILE)[:12]}" for name, folder in compared.items()]
    of_manifest = " of its manifest" if arguments.corpus.is_dir() else ""
    if is_finished(arguments.out, settings):
        sys.stderr.write(f"{arguments.out} is finished: nothing to do\n")
    else:
        with alone(arguments.out):
            build_vocabulary(
                open_corpus(arguments.corpus, config.text_unit),
                config,
                arguments.out,
                compared=compared,
                settings=settings,
                facts=[f"Corpus: `{arguments.corpus}`, sha256{of_manifest} `{settings['corpus_sha256']}`.", *notes],
                command=f"{parser.prog} {shlex.join(sys.argv[1:] if argv is None else argv)}",
                allow_smaller=arguments.allow_smaller,
            )
    sys.stdout.write(f"{arguments.out / REPORT}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
