"""Count the eojeol that the completer knows, in texts of news and public notices.

python -m downstream.complete.training --data ROOT --out downstream/complete/ngrams.safetensors
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from corpora.documents import read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.official import data_root
from corpora.sentences import split_article
from downstream.complete.ngrams import EojeolNgrams
from downstream.writing.training import texts_of

GENRES = ("press", "wikinews", "reviews")
WHOLE = ("corpus/press_releases_korea_kr.jsonl.gz", "corpus/boddari_book_review02.csv", "corpus/petitions.jsonl.gz")


def training_sentences(root: Path) -> Iterator[list[str]]:
    """Yield the eojeol of the sentences that are counted."""
    texts = [text for genre in GENRES for text in texts_of(root, genre, "train")]
    texts += [document.text for path in WHOLE for document in read_documents(root / path, rejected=[])]
    for text in texts:
        for sentence in split_article(text):
            words = sentence.text.split()
            yield words


def main(argv: list[str] | None = None) -> int:
    """Count from the command line."""
    parser = ArgumentParser("python -m downstream.complete.training", "Count what the completer knows.")
    parser.add_argument("--data", type=Path, help="data root")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    arguments = parser.parse(argv)
    ngrams = EojeolNgrams.of(training_sentences(data_root(arguments.data)))
    ngrams.save(arguments.out)
    sys.stdout.write(f"{len(ngrams.words)} eojeol, {len(ngrams.pairs)} pairs, {len(ngrams.triples)} triples\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
