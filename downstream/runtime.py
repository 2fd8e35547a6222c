"""Run fine-tuned models on a CPU: one word chooses the backend, the answers are those of `downstream.finetune.predict`.

    predictor = Predictor.load(folder, runtime="auto")
    predictor.predict([TextExample("1", "배우들 연기가 좋았다", None, "")])      # ["positive"]

`torch` is what transformers computes, in single precision; `onnx` is the better of `onnx-fp32` and `onnx-int8` here;
`auto` is the best of all backends. The table that explains a choice:

    python -m downstream.runtime FOLDER
"""

import json
import sys
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from downstream.runtimes.backends import all_words
from downstream.runtimes.network import finetuned_network, read_finetuned
from downstream.runtimes.predictor import Predictor, Runtime, fast_embedder
from downstream.runtimes.selection import choose

__all__ = ["Predictor", "Runtime", "fast_embedder"]


def main(argv: list[str] | None = None) -> int:
    """Measure the backends for a fine-tuned folder from the command line; prints the table."""
    parser = ArgumentParser("python -m downstream.runtime", "Find the fastest backend for a fine-tuned model here.")
    parser.add_argument("folder", type=Path, help="of a finished fine-tuning")
    parser.add_argument("--runtime", default="auto", help=f"one of {', '.join(all_words())}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="measure even if a choice is remembered")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse(argv)
    if arguments.threads < 1:
        raise UsageError("--threads", f"{arguments.threads} is less than 1", "give 1 or more")
    network = finetuned_network(read_finetuned(arguments.folder))
    choice, _ = choose(network, arguments.runtime, threads=arguments.threads, again=arguments.again)
    text = json.dumps(choice.model_dump(mode="json"), ensure_ascii=False) if arguments.json else choice.table()
    sys.stdout.write(f"{text}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
