"""Load any compared encoder with its tokenizer; the one place that knows their quirks.

Every source ends as a local folder: a known key or hub id is fetched into the hub cache, a folder is taken as it is.
Weights are read from safetensors only. Models that are published as pickled weights alone are converted once:

    python -m downstream.encoders SOURCE --out DIR

Quirks (sources: the models' repositories and model cards):

* kpfBERT has neither a trained pooler nor an NSP head; fine-tuning starts from a random pooler.
* All five are cased. Lower-casing would strip accents by NFD and with them the Hangul.
* KoBERT's vocabulary is a SentencePiece model with `[UNK] 0 [PAD] 1 [CLS] 2 [SEP] 3 [MASK] 4`; its hub folder names
  XLNet's tokenizer, which puts the special tokens last.
* KorBERT (ETRI, by licence only) marks the end of an eojeol by `_` instead of word continuations by `##`, splits on
  white space alone, and lists its pieces with counts in `vocab.korean.rawtext.list`.
* Only BERT, XLNet and ELECTRA take `token_type_ids`.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command

if TYPE_CHECKING:
    pass
from downstream.encoders.hub import ENCODERS
from downstream.encoders.weights import convert


def main(argv: list[str] | None = None) -> int:
    """Convert an encoder from the command line."""
    parser = ArgumentParser("python -m downstream.encoders", "Save an encoder as a plain folder with safetensors.")
    parser.add_argument("source", help=f"folder, hub id, or one of {', '.join(ENCODERS)}")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    arguments = parser.parse(argv)
    convert(arguments.source, arguments.out)
    sys.stdout.write(f"{arguments.out}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
