"""Experiments, repeatable: pretrain the arms of a study, fine-tune each on its tasks, test, and write the page.

    python -m eval.study NAME --data ROOT [--dry-run]
    python -m eval.study NAME --data ROOT --shard 2/8      # a share of the cells; the table afterwards, without --shard
    python -m eval.study NAME --data ROOT --dry-run --set tokens=2_000_000_000 --set pretraining.model.hidden_size=768

Corpora, vocabularies and encoders lie under WORK by what they are made of, so that studies share what they have in
common, a finished part is never made again, and an interrupted one is gone on with. OUT/NAME holds the results in the
leaderboard's own form, and the page in Korean and English; a score that another study under OUT has got of the same
encoder in the same way is taken over. `--publish docs/studies` begins with the cells that are there already, keeps
those of every arm there as soon as they are finished, and puts page and chart there in the end: so a study may be made
arm by arm on several machines that share nothing but that folder.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.official import data_root
from downstream.task import get_task
from eval.board.page import write_leaderboard
from eval.board.rows import LeaderboardFile
from eval.cells.archive import ARCHIVE, pack, restore
from eval.cells.files import FailedCell
from eval.cells.manifest import fold_manifest
from eval.cells.plan import parse_share, plan_cells, share_of
from eval.cells.run import CellRunner
from eval.contestants.contestant import Cell
from eval.contestants.encoder import Encoder
from eval.studies.estimate import dry_run
from eval.studies.page import write_page
from eval.studies.recipe import read_study
from eval.studies.run import StudyRun


def main(argv: list[str] | None = None) -> int:
    """Run a study from the command line; prints where its page is."""
    parser = ArgumentParser("python -m eval.study", "Pretrain the arms of a study, fine-tune, test, write the page.")
    parser.add_argument("study", help="a TOML file, or one of ours")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--work", type=Path, default=Path("runs/studies"), help="corpora, vocabularies, encoders")
    parser.add_argument("--out", type=Path, default=Path("reports/studies"), help="results and page, in OUT/NAME")
    parser.add_argument("--workers", type=int, default=2, help="processes that prepare text")
    parser.add_argument("--jobs", type=int, default=1, help="cells that run at once")
    parser.add_argument("--cpu", action="store_true", help="pretrain on the CPU although there is a GPU")
    parser.add_argument("--shard", metavar="I/N", help="run only share I of N of the cells, and write no page")
    parser.add_argument("--publish", type=Path, metavar="DIR", help="keep page, chart and cells in DIR/NAME, too")
    parser.add_argument("--dry-run", action="store_true", help="tell what it will take")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another scale, e.g. --set tokens=2_000_000_000"
    )
    arguments = parser.parse(argv)
    study = read_study(arguments.study, arguments.set)
    out: Path = arguments.out / study.name
    published: Path | None = arguments.publish
    if published and not arguments.dry_run:
        for archive in sorted(published.glob(f"*/{ARCHIVE}")):
            restore(archive, arguments.out / archive.parent.name)
    others = [path.parent for path in sorted(arguments.out.glob("*/results")) if path.parent != out]
    run = StudyRun(
        study,
        root=data_root(arguments.data),
        work=arguments.work,
        out=out,
        num_workers=arguments.workers,
        cpu=arguments.cpu,
        elsewhere=others,
    )
    if arguments.dry_run:
        sys.stdout.write(dry_run(run))
        return EXIT_DONE
    share = parse_share(arguments.shard) if arguments.shard else None

    def run_cells(cells: Sequence[Cell]) -> CellRunner:
        runner = CellRunner(cells, root=run.root, out=out, jobs=arguments.jobs, elsewhere=others)
        runner.run()
        if published:
            pack(out, published / study.name / ARCHIVE)
        return runner

    failed = _run_share(run, *share, run_cells) if share else _run_all(run, run_cells, published)
    return EXIT_FAILED_CELLS if failed else EXIT_DONE


def _run_share(
    run: StudyRun, index: int, count: int, run_cells: Callable[[Sequence[Cell]], CellRunner]
) -> list[FailedCell]:
    """Run share INDEX of COUNT of a study's cells, and return those that failed.

    An arm's cells follow when it is there, so that nobody waits for an arm of others while there is work to do.
    """
    study, tasks = run.study, [get_task(name) for name in run.study.tasks]
    arms = list(study.arms)
    named = [Encoder(name=arm, encoder="-") for arm in arms]
    mine = {cell.key for cell in share_of(plan_cells(named, tasks, study.seeds), index, count)}
    # Its share of the arms first, so that the shares begin with different ones.
    order = sorted(arms, key=lambda arm: arms.index(arm) % count != index - 1)
    failed: list[FailedCell] = []
    for record in run.make_encoders(order):
        cells = [cell for cell in plan_cells(run.entries([record]), tasks, study.seeds) if cell.key in mine]
        failed += run_cells(cells).failed
    return failed


def _run_all(
    run: StudyRun, run_cells: Callable[[Sequence[Cell]], CellRunner], published: Path | None
) -> list[FailedCell]:
    """Run a study's cells and write its page; return the cells that failed."""
    study, tasks = run.study, [get_task(name) for name in run.study.tasks]
    records = {record.arm: record for record in run.make_encoders(list(study.arms))}
    ordered = [records[arm] for arm in study.arms]
    runner = run_cells(plan_cells(run.entries(ordered), tasks, study.seeds))
    table = run.table(runner)
    board = LeaderboardFile(
        schema=1,
        created=max((cell.environment.get("finished", "") for cell in table.cells), default=""),
        manifest=fold_manifest(table.cells)
        | {"study": study.model_dump(), "arms": [record.model_dump() for record in ordered]},
        rows=table.rows,
        comparisons=table.comparisons,
    )
    write_leaderboard(run.out, board, [task.name for task in tasks])
    for folder in (run.out, *([published / study.name] if published else [])):
        for page in write_page(folder, study, ordered, table):
            sys.stdout.write(f"{page}\n")
    return runner.failed


if __name__ == "__main__":
    run_command(main)
