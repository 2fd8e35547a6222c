"""Convert an encoder to a plain folder with safetensors weights: `python -m downstream.encoders SOURCE --out DIR`."""

import sys
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import alone
from downstream.encoders.hub import ENCODERS
from downstream.encoders.weights import convert


def main(argv: list[str] | None = None) -> int:
    """Convert an encoder from the command line."""
    parser = ArgumentParser("python -m downstream.encoders", "Save an encoder as a plain folder with safetensors.")
    parser.add_argument("source", help=f"folder, hub id, or one of {', '.join(ENCODERS)}")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    arguments = parser.parse(argv)
    with alone(arguments.out):
        convert(arguments.source, arguments.out)
    sys.stdout.write(f"{arguments.out}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
