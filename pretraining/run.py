"""Pretrain a BERT by a recipe; the same command resumes an interrupted run.

    python -m pretraining.run RECIPE --out DIR [--dry-run]
    torchrun --nproc-per-node 8 -m pretraining.run RECIPE --out DIR

DIR becomes a transformers folder, with `metrics.jsonl`, `loss.png`, `manifest.json` and, until the run is finished,
`checkpoints/`.
"""

import json
import os
import sys
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from pretraining.recipe import find_recipe, read_recipe
from pretraining.training.run import Run


def main(argv: list[str] | None = None) -> int:
    """Pretrain from the command line; prints the held-out scores as JSON."""
    parser = ArgumentParser("python -m pretraining.run", "Pretrain a BERT by a recipe.")
    parser.add_argument("recipe", help="a TOML file, or one of ours: sample, mini, small, bert-base, …")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--cache", type=Path, help="folder for tokens and rows, which runs may share; default OUT/data")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes that prepare tokens and rows"
    )
    parser.add_argument("--cpu", action="store_true", help="stay on the CPU even if there is a GPU")
    parser.add_argument("--prepare", action="store_true", help="prepare tokens and rows, and stop")
    parser.add_argument(
        "--dry-run", action="store_true", help="time one step; estimate time, memory and disk of the run"
    )
    parser.add_argument(
        "--report-to", nargs="+", default=[], metavar="NAME", help="show metrics in tensorboard or wandb, if installed"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting, e.g. --set loop.steps=1000"
    )
    arguments = parser.parse(argv)
    recipe = read_recipe(find_recipe(arguments.recipe), arguments.set)
    run = Run(
        recipe,
        arguments.out,
        cache=arguments.cache,
        num_workers=arguments.workers,
        cpu=arguments.cpu,
        reporters=arguments.report_to,
    )
    if arguments.dry_run:
        sys.stdout.write(run.estimate().table(run.out))
    elif arguments.prepare:
        sys.stdout.write(f"{len(run.data.train.corpus):,} rows, {run.data.num_tokens:,} tokens in {run.cache}\n")
    elif manifest := run.train():
        sys.stdout.write(json.dumps({"tokens": manifest["tokens"], **manifest["held_out"]}) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
