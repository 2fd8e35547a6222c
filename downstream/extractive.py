"""BertSumExt: a Transformer over the sentences of an article, on top of any encoder (Liu and Lapata 2019).

    python -m downstream.extractive train DATA --model klue/bert-base --out runs/bertsum

DATA is AI-Hub's document summaries, the contests' JSONL, or articles with headlines; see
`downstream.summaries.labelled`. The same command resumes an interrupted training.

The folder contains an encoder in the layout of transformers, and `head.safetensors` with `head.json`.
"""

from corpora.foundation.command import run_command


def main(argv: list[str] | None = None) -> int:
    """Train from the command line."""
    from downstream.summaries.scorer_training import main as run  # NumPy and pydantic are not needed for the import

    return run(argv)


if __name__ == "__main__":
    run_command(main)
