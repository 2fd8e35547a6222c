"""BertSumExt: a Transformer over the sentences of an article, on top of any encoder (Liu and Lapata 2019).

    python -m downstream.extractive train DATA --model klue/bert-base --out runs/bertsum

DATA is AI-Hub's document summaries, the contests' JSONL, or articles with headlines; see
`downstream.summaries.labelled`. Every sentence gets a [CLS] before and a [SEP] behind it, segments alternate from
sentence to sentence, and two more layers let the sentences' vectors see each other. An article that is longer than
the encoder reads is read in overlapping windows: every sentence is scored, whatever the length. Running the command
again continues an interrupted training.

The folder holds an encoder that transformers loads as it is, and beside it `head.safetensors` with `head.json`.
"""

from typing import TYPE_CHECKING

from corpora.foundation.command import run_command

if TYPE_CHECKING:
    pass


def main(argv: list[str] | None = None) -> int:
    """Train from the command line."""
    from downstream.summaries.scorer_training import main as run

    return run(argv)


if __name__ == "__main__":
    run_command(main)
