"""Run the missing cells of models × tasks × seeds and write the leaderboard.

    python eval/run_all.py                                    # baselines and the bundled encoder on the sample
    python eval/run_all.py --tasks nsmc --models tfidf majority --data DATA
    python eval/run_all.py --compare tfidf majority           # which one is better, from finished cells
    python eval/run_all.py --validate --data DATA             # what would run, what is missing
    python eval/run_all.py --dry-run --plan eval/reference.toml --data DATA        # how long it would take here
    python eval/run_all.py --from reports/leaderboard.json --out again

A cell that fails or lacks its data is a row with its reason and never stops the others. Finished cells are skipped.
When a cell is run, its model is also scored on noised input and timed.

A folder of cells is a queue: any number of processes on any number of hosts may run the same command on it at once, and
`--executor slurm` submits them as jobs. With `--jobs N`, N processes run cells at once. Where machines
share no folder, each runs `--shard I/N` with otherwise equal arguments into a folder of its own; `--merge` with those
folders then writes the leaderboard.

Exit codes: 0 done, 1 finished but some cells failed, 2 something must be fixed first.
"""

import os
import sys
import tempfile
from pathlib import Path

# Small models on a busy machine: threads that spin while they wait slow each other down tenfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if not __package__:
    # Run by path, Python puts eval/ on the path and not the root that holds the five packages.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import argparse
import datetime
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, EXIT_USER_MUST_FIX, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.foundation.errors import UsageError, cannot_write, suggest
from corpora.foundation.texts import LANGUAGES, Language
from corpora.official import data_root
from downstream.finetuning.arguments import parse_overrides
from downstream.finetuning.result import Result
from downstream.finetuning.search import GRIDS
from downstream.task import SAMPLE_SUFFIX, FinetuneConfig, all_tasks, few_shot_name, get_task, read_task
from eval.board.clean_scores import find_touched, with_clean_scores
from eval.board.clusters import with_clusters
from eval.board.disagreement import find_disagreements
from eval.board.page import write_leaderboard
from eval.board.report import Evidence
from eval.board.rows import LeaderboardFile, build_table, compare_on_clean, of_newest_recipe
from eval.board.table import build_board, print_comparisons, print_terminal
from eval.cells.archive import merge_results
from eval.cells.estimate import estimate_cells, show_estimates
from eval.cells.executor import failures_of, job_arguments, parse_parameters, run_jobs
from eval.cells.files import FailedCell, find_cells, find_failures, not_measured
from eval.cells.manifest import fold_manifest, read_experiments, refuse_drift
from eval.cells.measurements import EXTRAS, find_measurements
from eval.cells.plan import parse_share, plan_cells, share_of
from eval.cells.preflight import Preflight, print_known
from eval.cells.run import CellRunner, run_ordered
from eval.cells.workers import answer_orders
from eval.contamination.report import merge_pairs
from eval.contestants.contestant import Cell, Leaderboard, choose_models, load_leaderboard


def _parser() -> ArgumentParser:
    parser = ArgumentParser("eval/run_all.py", "Run the missing cells of models × tasks and write the leaderboard.")
    what = parser.add_argument_group("what is compared")
    what.add_argument(
        "--models", nargs="+", metavar="MODEL", help="keys of leaderboard.toml, KEY=FOLDER, folders or hub ids"
    )
    what.add_argument("--tasks", nargs="+", metavar="TASK", help="e.g. nsmc korquad nsmc-sample")
    what.add_argument(
        "--few-shot",
        type=_numbers,
        default=[],
        metavar="N,N",
        help="also with N labelled training examples, drawn by the seed: 16,64,256",
    )
    what.add_argument(
        "--plan", type=Path, metavar="FILE", help="file with tasks, models and seeds (default: eval/leaderboard.toml)"
    )
    what.add_argument("--seeds", type=int, help="seeds per trained model (default: leaderboard.toml)")
    what.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override fine-tuning, e.g. --set epochs=1"
    )
    what.add_argument(
        "--grid",
        choices=list(GRIDS),
        help="tune every trained model on a tenth of each training split: batch size, learning rate and epochs as in "
        "the BERT paper, or on a wider grid for small encoders; of linear baselines the regularisation",
    )
    what.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="MANIFEST",
        help="repeat the run of a leaderboard.json: its models, tasks, seeds and settings",
    )
    what.add_argument("--allow-drift", action="store_true", help="with --from: run though data or versions differ")
    where = parser.add_argument_group("where")
    where.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    where.add_argument("--out", type=Path, default=Path("reports"), help="folder to write (default: reports)")
    where.add_argument("--lang", choices=LANGUAGES, default="ko", help="language of printed tables (default: ko)")
    where.add_argument("--keep-models", action="store_true", help="keep the fine-tuned models under OUT/models")
    how = parser.add_argument_group("how")
    how.add_argument("--jobs", type=int, default=1, metavar="N", help="cells that run at once (default: 1)")
    how.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="CPU threads of a cell (default: all, divided by jobs); another number changes the last digits of scores",
    )
    how.add_argument(
        "--without",
        nargs="+",
        default=[],
        choices=EXTRAS,
        metavar="WHAT",
        help="leave out measurements beside the score: noise (scores on noised input), cost (size and speed)",
    )
    how.add_argument(
        "--executor",
        choices=("here", "slurm", "local"),
        default="here",
        help="where cells run: in this process and its workers, in jobs of a Slurm cluster through submitit, or in "
        "such jobs on this machine (default: here)",
    )
    how.add_argument("--workers", type=int, default=4, metavar="N", help="jobs that --executor submits (default: 4)")
    how.add_argument(
        "--slurm", nargs="+", default=[], metavar="KEY=VALUE", help="parameters of jobs, e.g. partition=gpu"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--shard", metavar="I/N", help="run only share I of N, counted from 1, and write no table")
    instead.add_argument("--merge", nargs="+", type=Path, metavar="DIR", help="write the table of these folders' cells")
    instead.add_argument("--validate", action="store_true", help="check data, models and settings; train nothing")
    instead.add_argument("--dry-run", action="store_true", help="estimate the time of unfinished cells; write nothing")
    instead.add_argument("--list", action="store_true", help="list the tasks and models that are known")
    instead.add_argument("--compare", nargs=2, metavar=("A", "B"), help="test two models against each other")
    # For --jobs; its format may change with any version.
    instead.add_argument("--orders", type=int, help=argparse.SUPPRESS)
    return parser


def _numbers(text: str) -> list[int]:
    """Read `16,64,256`."""
    if not all(part.strip().isdecimal() and int(part) > 0 for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers such as 16,64,256")
    return sorted({int(part) for part in text.split(",")})


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse(argv)
    if arguments.orders:
        answer_orders(arguments.orders, run_ordered)
        return EXIT_DONE
    leaderboard = load_leaderboard(arguments.plan) if arguments.plan else load_leaderboard()
    if arguments.compare:
        return _compare(arguments)
    if arguments.list or arguments.validate or arguments.dry_run:
        os.environ["HF_HUB_OFFLINE"] = "1"  # checks and lists download nothing
    if arguments.merge:
        return _merge(arguments, leaderboard)
    root = data_root(arguments.data)
    if arguments.list:
        print_known(leaderboard.models, root, _console(), arguments.lang)
        return EXIT_DONE
    jobs = _at_least_one("--jobs", arguments.jobs)
    threads = None if arguments.threads is None else _at_least_one("--threads", arguments.threads)
    cells = _plan(arguments, leaderboard, root)
    if arguments.validate:
        return _validate(cells, root, arguments.out, arguments.lang)
    if arguments.dry_run:
        return _estimate(arguments, cells, root)
    if arguments.shard:
        cells = share_of(cells, *parse_share(arguments.shard))
    # Before an hour of training, not after it.
    _check_writable(arguments.out / "results")
    if arguments.executor != "here":
        return _run_on_cluster(arguments, sys.argv[1:] if argv is None else argv, cells, leaderboard)
    runner = CellRunner(
        cells,
        root=root,
        out=arguments.out,
        keep=arguments.keep_models,
        jobs=jobs,
        threads=threads,
        extras=[extra for extra in EXTRAS if extra not in arguments.without],
        grid=GRIDS[arguments.grid] if arguments.grid else None,
    )
    runner.run()
    if arguments.shard:
        sys.stderr.write(f"share {arguments.shard}: {len(cells)} cells; run without --shard for the table\n")
    else:
        tasks = [cell.task.name for cell in cells]
        models = [cell.model.name for cell in cells]
        _write(
            arguments.out,
            root,
            runner.failed,
            leaderboard,
            tasks=tasks,
            models=models,
            recipes=runner.recipes,
            language=arguments.lang,
        )
    return EXIT_FAILED_CELLS if runner.failed else EXIT_DONE


def _run_on_cluster(
    arguments: argparse.Namespace, argv: Sequence[str], cells: Sequence[Cell], leaderboard: Leaderboard
) -> int:
    """Run cells in jobs that share the folder, and write the leaderboard when all have ended."""
    if arguments.shard:
        raise UsageError("--executor", "jobs share the folder as a queue", "leave out --shard")
    run_jobs(
        job_arguments(argv),
        out=arguments.out,
        executor=arguments.executor,
        workers=_at_least_one("--workers", arguments.workers),
        parameters=parse_parameters(arguments.slurm),
    )
    failed = failures_of(arguments.out, cells)
    tasks, models = [cell.task.name for cell in cells], [cell.model.name for cell in cells]
    _write(
        arguments.out,
        data_root(arguments.data),
        failed,
        leaderboard,
        tasks=tasks,
        models=models,
        language=arguments.lang,
    )
    return EXIT_FAILED_CELLS if failed else EXIT_DONE


def _plan(arguments: argparse.Namespace, leaderboard: Leaderboard, root: Path) -> list[Cell]:
    """Return the cells that the command line asks for."""
    overrides = parse_overrides(arguments.set)
    validate(FinetuneConfig, overrides, "--set")
    if arguments.allow_drift and not arguments.source:
        raise UsageError("--allow-drift", "no manifest is given", "give one with --from")
    if arguments.source:
        return _plan_again(arguments, overrides, root)
    # Without arguments the embedded sample, with a data root the published comparison, and a plan unchanged.
    is_whole = bool(arguments.data or arguments.plan)
    suffix = "" if is_whole else SAMPLE_SUFFIX
    names = arguments.tasks or [name + suffix for name in leaderboard.tasks]
    tasks = list({task.name: task for task in map(get_task, names)}.values())
    if arguments.few_shot and arguments.grid:
        raise UsageError("--grid", "it would choose on more labels than --few-shot allows", "leave one of them out")
    tasks = [few for task in tasks for few in (task, *(get_task(few_shot_name(task, n)) for n in arguments.few_shot))]
    quick = [name for name, entry in leaderboard.models.items() if entry.is_bundled]
    models = choose_models(arguments.models or (list(leaderboard.models) if is_whole else quick), leaderboard.models)
    seeds = leaderboard.seeds if arguments.seeds is None else _at_least_one("--seeds", arguments.seeds)
    cells = plan_cells([model.with_overrides(overrides) for model in models], tasks, seeds)
    if not cells:
        what = "none of these models does any of these tasks"
        raise UsageError("--models", what, "see --list; embedders and summarizers have tasks of their own")
    return cells


def _plan_again(arguments: argparse.Namespace, overrides: Mapping[str, Any], root: Path) -> list[Cell]:
    """Return the cells of a manifest, after checking that nothing has changed."""
    for option in ("models", "tasks", "seeds", "plan", "grid"):
        if getattr(arguments, option) is not None:
            raise UsageError(f"--{option}", "--from repeats a run unchanged", f"leave out --{option}")
    cells: list[Cell] = []
    for name, experiments in groupby(read_experiments(arguments.source), key=lambda experiment: experiment.task):
        task = get_task(name)
        data = None if arguments.allow_drift else read_task(task, root)
        for experiment in experiments:
            model = experiment.contestant.with_overrides(dict(overrides))
            if data is not None:
                recipe = model.recipe(task, data)
                refuse_drift(arguments.source, experiment, recipe, but={"finetune"} if overrides else ())
            cells += [Cell(model, task, seed) for seed in experiment.seeds]
    return cells


def _at_least_one(option: str, value: int) -> int:
    if value < 1:
        raise UsageError(option, f"{value} is less than 1", "give 1 or more")
    return value


def _check_writable(folder: Path) -> None:
    """Create FOLDER if missing, and try to write into it; a killed process leaves no file.

    Raises:
        ResultError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise cannot_write(folder, error) from error


def _validate(cells: Sequence[Cell], root: Path, out: Path, language: Language) -> int:
    preflight = Preflight(cells, root=root, out=out, language=language)
    preflight.check()
    preflight.show(_console())
    return EXIT_USER_MUST_FIX if preflight.num_blocked else EXIT_DONE


def _estimate(arguments: argparse.Namespace, cells: Sequence[Cell], root: Path) -> int:
    found = []
    for one in estimate_cells(cells, root=root, out=arguments.out, with_noise="noise" not in arguments.without):
        sys.stderr.write(f"{one.model} · {one.task}\n")
        found.append(one)
    show_estimates(found, _console(), arguments.lang)
    return EXIT_USER_MUST_FIX if any(one.reason for one in found) else EXIT_DONE


def _compare(arguments: argparse.Namespace) -> int:
    a, b = arguments.compare
    if a == b:
        raise UsageError("--compare", f"'{a}' twice", "give two different models")
    os.environ["HF_HUB_OFFLINE"] = "1"  # local data tell which examples belong together; nothing is downloaded
    cells = with_clusters(_read_cells(arguments.out), data_root(arguments.data))
    touched, _ = find_touched(arguments.out)
    models = {cell.model for cell in cells}
    for name in (a, b):
        if name not in models:
            fix = suggest(name, models) if models else "run the models first"
            raise UsageError("--compare", f"no finished cell of '{name}' under {arguments.out}", fix)
    found = []
    for task in map(get_task, arguments.tasks or all_tasks()):
        # All models of the task, because p-values are corrected for all its pairs.
        by_model: dict[str, list[Result]] = {}
        for cell in cells:
            if cell.task == task.name:
                by_model.setdefault(cell.model, []).append(cell)
        if {a, b} <= set(by_model):
            counted = {model: of_newest_recipe(some) for model, some in by_model.items()}
            compared, _ = compare_on_clean(task, counted, touched.get(task.name))
            found += [comparison for comparison in compared if {comparison.a, comparison.b} == {a, b}]
    if not found:
        raise UsageError("--compare", f"no task has figures of both '{a}' and '{b}'", "run both on a task first")
    print_comparisons(found, a, b, _console(), arguments.lang)
    return EXIT_DONE


def _merge(arguments: argparse.Namespace, leaderboard: Leaderboard) -> int:
    errors = (*merge_results(arguments.merge, arguments.out), *merge_pairs(arguments.merge, arguments.out))
    for error in errors:
        sys.stderr.write(f"{error}\n")
    failed = find_failures(arguments.out)
    code = EXIT_FAILED_CELLS if failed else EXIT_DONE
    known = all_tasks()  # not every task has a sample
    tasks = arguments.tasks or [
        name for suffix in ("", SAMPLE_SUFFIX) for base in leaderboard.tasks if (name := base + suffix) in known
    ]
    os.environ["HF_HUB_OFFLINE"] = "1"  # the page quotes examples of local data; a merge downloads nothing
    models = arguments.models or list(leaderboard.models)
    if arguments.plan:
        planned = plan_cells(choose_models(models, leaderboard.models), [get_task(name) for name in tasks], 1)
        failed += not_measured(arguments.out, (cell.key for cell in planned))
    _write(
        arguments.out,
        data_root(arguments.data),
        failed,
        leaderboard,
        tasks=[get_task(name).name for name in tasks],
        models=models,
        language=arguments.lang,
    )
    return EXIT_FAILED_CELLS if errors else code


def _write(
    out: Path,
    root: Path,
    failed: Sequence[FailedCell],
    leaderboard: Leaderboard,
    *,
    tasks: Sequence[str],
    models: Sequence[str],
    recipes: Mapping[tuple[str, str], str] | None = None,
    language: Language = "ko",
) -> None:
    """Write and print the leaderboard of all finished cells of the folder; requested ones come first."""
    cells = with_clusters(_read_cells(out), root)
    measured, damaged = find_measurements(out, cells)
    touched, _ = find_touched(out)
    table = build_table(cells, failed, tasks=tasks, models=models, recipes=recipes, measured=measured, touched=touched)
    if others := len(cells) - len(table.cells):
        sys.stderr.write(f"{others} finished cells of other recipes or unknown tasks are not in the table\n")
    table, pairs, unusable = with_clean_scores(table, out)
    for error in (*damaged, *unusable):
        sys.stderr.write(f"{error}\n")
    evidence = Evidence(find_disagreements(table, root), pairs, measured.curves_of(table.cells))
    # The time of the newest cell, so that the same cells give the same bytes.
    newest = max((cell.environment["finished"] for cell in table.cells), default="")
    created = datetime.datetime.fromisoformat(newest) if newest else datetime.datetime.now(datetime.UTC)
    board_file = LeaderboardFile(
        schema=1,
        created=created.isoformat(timespec="seconds"),
        manifest=fold_manifest(table.cells),
        rows=table.rows,
        comparisons=table.comparisons,
    )
    write_leaderboard(out, board_file, leaderboard.tasks, evidence)
    print_terminal(build_board(board_file.rows, leaderboard.tasks), _console(), language)
    sys.stderr.write(f"{out / 'leaderboard.html'}\n")


def _read_cells(out: Path) -> list[Result]:
    """Return all finished cells of a folder; damaged ones are reported."""
    cells, damaged = find_cells(out)
    for error in damaged:
        sys.stderr.write(f"{error}\n")
    return cells


def _console() -> Console:
    """Return a console for stdout, of fixed width if stdout is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 120)


if __name__ == "__main__":
    run_command(main)
