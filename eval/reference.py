"""Write the reference report under `docs/reports/` from `eval/reference.toml`.

    python -m eval.reference --data DATA
    python -m eval.reference --data DATA --corpus open_korean=runs/corpus --grid small --jobs 2
    python -m eval.reference --data DATA --tables

Cells are stored under WORK; an interrupted run is resumed. Published in OUT are the table in all its forms, the page,
the model-index, the counts of contamination with 20 hits a pair, and all predictions as `cells.tar.xz`; the table in
`evaluation.md` beside OUT gets the new figures. The next run starts from these cells on any machine: a cell whose
recipe is unchanged is not run again, and another model can be compared with ours example by example. `--tables` writes
the report again from these cells; nothing is run, and cells of the plan that nobody has run are rows without a figure.

A report is of one state of the source: cells of other states are refused unless `--mixed-states` is given, and marked
then.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

from pydantic import ValidationError

from corpora.foundation.command import ArgumentParser, run_command
from corpora.foundation.errors import ResultError, UsageError, cannot_write
from corpora.foundation.files import atomic_file, package_path, write_signed
from downstream.finetuning.search import GRIDS
from eval import run_all
from eval.board import model_index
from eval.board.guide import update_guides
from eval.cells.archive import ARCHIVE, pack, restore
from eval.contamination import __main__ as contamination_command
from eval.contamination.files import FOLDER as CONTAMINATION
from eval.contamination.files import OVERVIEW, ContaminationFile, hits_path, pair_path, read_hits, write_hits
from eval.contamination.report import publish_excerpts
from eval.contestants.contestant import load_leaderboard

REFERENCE_TOML = package_path("eval", "reference.toml")
PUBLISHED = ("leaderboard.*", f"{model_index.FOLDER}/*.yml")
"""Patterns below WORK of the files that are copied."""


def refuse_absolute_folders(work: Path) -> None:
    """Refuse a leaderboard that names a model's folder by its place on this machine, which nobody else has.

    Raises:
        ResultError: it does.
    """
    experiments = json.loads((work / "leaderboard.json").read_text(encoding="utf-8"))["manifest"]["experiments"]
    for experiment in experiments:
        if Path(experiment["encoder"]).is_absolute():
            what = f"{experiment['model']} was measured from {experiment['encoder']}, a folder of this machine"
            fix = f"delete its cells under {work / 'results'}, and give a relative path to the model"
            raise ResultError(work / "leaderboard.json", what, fix)


def publish(work: Path, out: Path) -> list[Path]:
    """Replace the report in OUT by that of WORK, with excerpts of the contamination, and pack the cells.

    Returns:
        The files.

    Raises:
        ResultError: there is no leaderboard in WORK, it names a folder of this machine, or OUT cannot be written.
    """
    if not (work / "leaderboard.html").is_file():
        raise ResultError(work, "no leaderboard in it", "run python -m eval.reference without interruption")
    refuse_absolute_folders(work)
    sources = sorted(path for pattern in PUBLISHED for path in work.glob(pattern) if path.is_file())
    try:
        for folder in (model_index.FOLDER, CONTAMINATION):
            shutil.rmtree(out / folder, ignore_errors=True)  # files of removed models and tasks
        for source in sources:
            with atomic_file(out / source.relative_to(work), "wb") as file:
                file.write(source.read_bytes())
    except OSError as error:
        raise cannot_write(out, error) from error
    excerpts = publish_excerpts(work, out)
    pack(work, out / ARCHIVE)
    return [*(out / source.relative_to(work) for source in sources), *excerpts, out / ARCHIVE]


def restore_pairs(out: Path, work: Path) -> None:
    """Copy the contamination checks of a published report to WORK, except those that are there.

    Raises:
        ResultError: they are damaged, or WORK cannot be written.
    """
    if not (out / OVERVIEW).is_file():
        return
    try:
        pairs = ContaminationFile.model_validate_json((out / OVERVIEW).read_bytes()).pairs
    except ValidationError as error:
        raise ResultError(out / OVERVIEW, "not an overview of contamination", "delete it") from error
    for pair in pairs:
        target = pair_path(work, pair.task, pair.corpus)
        if pair.status == "ok" and not target.is_file():
            write_hits(hits_path(work, pair.task, pair.corpus), read_hits(hits_path(out, pair.task, pair.corpus)))
            write_signed(target, pair.model_dump(by_alias=True))


def refuse_mixed_states(work: Path) -> None:
    """Refuse a leaderboard whose rows come from several states of the source.

    Raises:
        ResultError: they do.
    """
    rows = json.loads((work / "leaderboard.json").read_text(encoding="utf-8"))["rows"]
    states = sorted({state for row in rows for state in row["commit"].split(" / ") if state})
    if len(states) > 1:
        what = f"its figures come from {len(states)} states of the source ({', '.join(s[:9] for s in states)})"
        fix = f"delete the cells of other states under {work / 'results'}, or add --mixed-states to mark them"
        raise ResultError(work / "leaderboard.json", what, fix)


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code of `eval/run_all.py`."""
    parser = ArgumentParser("python -m eval.reference", "Write the reference report under docs/reports/.")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--work", type=Path, default=Path("runs/reference"), help="cells (default: runs/reference)")
    parser.add_argument("--out", type=Path, default=Path("docs/reports"), help="report (default: docs/reports)")
    parser.add_argument("--plan", type=Path, default=REFERENCE_TOML, help="what is compared (default: ours)")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these tasks, for a trial")
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="only these models, for a trial")
    parser.add_argument("--seeds", type=int, help="instead of the plan's, for a trial")
    parser.add_argument("--corpus", nargs="+", default=[], metavar="DIR", help="pretraining corpora to check")
    parser.add_argument("--tables", action="store_true", help="write the report again from its cells; run nothing")
    parser.add_argument("--mixed-states", action="store_true", help="publish cells of several source states, marked")
    parser.add_argument("--grid", choices=list(GRIDS), help="tune every trained model by this grid, baselines too")
    parser.add_argument("--jobs", type=int, default=1, help="cells that run at once")
    arguments = parser.parse(argv)
    for model in arguments.models or []:
        folder = model.partition("=")[2]
        if Path(folder).is_absolute():
            what = f"the report would name '{folder}', a folder of this machine"
            raise UsageError("--models", what, "give a relative path")
    if (arguments.out / ARCHIVE).is_file():
        restore(arguments.out / ARCHIVE, arguments.work)
    tasks = arguments.tasks or load_leaderboard(arguments.plan).tasks
    where = ["--out", str(arguments.work)] + (["--data", str(arguments.data)] if arguments.data else [])
    asked = ["--plan", str(arguments.plan), "--tasks", *tasks, *where]
    asked += ["--models", *arguments.models] if arguments.models else []
    if arguments.tables:
        restore_pairs(arguments.out, arguments.work)
        return _publish(arguments, run_all.main([*asked, "--merge", str(arguments.work)]))
    corpora = ["--corpus", *arguments.corpus] if arguments.corpus else []
    contamination_command.main(["--tasks", *tasks, *corpora, *where])
    asked += ["--jobs", str(arguments.jobs)]
    asked += ["--seeds", str(arguments.seeds)] if arguments.seeds is not None else []
    asked += ["--grid", arguments.grid] if arguments.grid else []
    return _publish(arguments, run_all.main(asked))


def _publish(arguments: argparse.Namespace, code: int) -> int:
    if not (arguments.mixed_states or arguments.tables):
        refuse_mixed_states(arguments.work)
    for path in (*publish(arguments.work, arguments.out), *update_guides(arguments.out)):
        sys.stderr.write(f"{path}\n")
    return code


if __name__ == "__main__":
    run_command(main)
