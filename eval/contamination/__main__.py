"""Find evaluation examples in training text.

    python -m eval.contamination --corpus runs/corpus --tasks nsmc korquad --data DATA --out reports

Every task is compared with every corpus made by `corpora.build` and with its own training split, by the measures of
`corpora.overlap`. All texts that a model reads are compared (text, pair, question, context), gold answers are not.
Written are `contamination.json`, `contamination.md` and, below `contamination/`, one pair of task and training text a
file with the list of its hits; see `eval.contamination.files`. `eval/run_all.py` reads these files and shows every
score with and without the examples that were found (`eval.board.clean_scores`).
"""

import sys
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from corpora.official import data_root
from downstream.task import SAMPLE_SUFFIX, get_task
from eval.contamination.check import ContaminationCheck, corpus_source
from eval.contamination.files import FOLDER
from eval.contestants.contestant import load_leaderboard


def main(argv: list[str] | None = None) -> int:
    """Run the command; see the module's docstring."""
    parser = ArgumentParser(
        "python -m eval.contamination",
        "Find evaluation texts in pretraining corpora and in the tasks' training splits.",
    )
    parser.add_argument(
        "--corpus", nargs="+", default=[], metavar="DIR", help="corpora made by corpora.build, as DIR or NAME=DIR"
    )
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="e.g. nsmc korquad nsmc-sample")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the official data files")
    parser.add_argument("--out", type=Path, default=Path("reports"), metavar="DIR", help="default: reports")
    arguments = parser.parse(argv)
    suffix = "" if arguments.data else SAMPLE_SUFFIX
    names = arguments.tasks or [name + suffix for name in load_leaderboard().tasks]
    tasks = list({task.name: task for task in map(get_task, names)}.values())
    corpora = [corpus_source(argument) for argument in arguments.corpus]
    taken = {task.train_split for task in tasks}
    for corpus in corpora:
        if corpus.name in taken:
            what = f"two training texts are called '{corpus.name}'"
            raise UsageError("--corpus", what, "give one of them another name with NAME=DIR")
        taken.add(corpus.name)
    check = ContaminationCheck(tasks, corpora, root=data_root(arguments.data), out=arguments.out)
    check.run()
    sys.stdout.write((arguments.out / f"{FOLDER}.md").read_text(encoding="utf-8"))
    return EXIT_FAILED_CELLS if check.failures else EXIT_DONE


if __name__ == "__main__":
    run_command(main)
