"""Run a study: pretrain its arms, fine-tune each on its tasks, test the differences, and write the page.

    python -m eval.study NAME --data ROOT [--dry-run]
    python -m eval.study NAME --data ROOT --shard 2/8      # a share of the cells; then the same without --shard
    python -m eval.study NAME --data ROOT --dry-run --set tokens=2_000_000_000 --set pretraining.model.hidden_size=768

Corpora, vocabularies and encoders are stored under WORK by a digest of what they are made of: studies share them, a
finished one is never made again, and an interrupted one is resumed. OUT/NAME holds the results in the leaderboard's
form and the page in Korean and English. Scores of the same encoder and recipe in another study under OUT are reused.
`--publish docs/studies` starts from the cells that are published there, publishes those of every arm when it is
finished, and finally the page and the chart: a study can so be run arm by arm on machines that share only that folder.
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
from eval.cells.plan import parse_share, share_of
from eval.cells.run import CellRunner
from eval.contestants.contestant import Cell
from eval.studies.estimate import dry_run
from eval.studies.page import ArmRecord, write_page
from eval.studies.recipe import read_study
from eval.studies.run import StudyRun


def main(argv: list[str] | None = None) -> int:
    """Run the command; prints the paths of the pages."""
    parser = ArgumentParser("python -m eval.study", "Pretrain, fine-tune and compare the arms of a study.")
    parser.add_argument("study", help="a TOML file, or one of ours")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--work", type=Path, default=Path("runs/studies"), help="corpora, vocabularies, encoders")
    parser.add_argument("--out", type=Path, default=Path("reports/studies"), help="results and page, in OUT/NAME")
    parser.add_argument("--workers", type=int, default=2, help="processes that prepare text")
    parser.add_argument("--jobs", type=int, default=1, help="cells that run at once")
    parser.add_argument("--cpu", action="store_true", help="pretrain on the CPU even if there is a GPU")
    parser.add_argument("--shard", metavar="I/N", help="run only share I of N of the cells, and write no page")
    parser.add_argument("--publish", type=Path, metavar="DIR", help="also write page, chart and cells to DIR/NAME")
    parser.add_argument("--dry-run", action="store_true", help="estimate time, memory and disk; run nothing")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting, e.g. tokens=2_000_000_000",
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

    Cells run as soon as their arm is finished, so that no share waits for an arm while it has other work.
    """
    arms = list(run.study.arms)
    # Which cells there are depends on the names alone.
    named = [ArmRecord(arm=arm, encoder="-", encoder_sha256="") for arm in arms]
    mine = {cell.key for cell in share_of(run.cells(named), index, count)}
    # Its share of the arms first, so that the shares begin with different ones.
    order = sorted(arms, key=lambda arm: arms.index(arm) % count != index - 1)
    failed: list[FailedCell] = []
    for record in run.make_encoders(order):
        failed += run_cells([cell for cell in run.cells([record]) if cell.key in mine]).failed
    return failed


def _run_all(
    run: StudyRun, run_cells: Callable[[Sequence[Cell]], CellRunner], published: Path | None
) -> list[FailedCell]:
    """Run a study's cells and write its page; return the cells that failed."""
    study, tasks = run.study, [get_task(name) for name in run.study.tasks]
    records = {record.arm: record for record in run.make_encoders(list(study.arms))}
    ordered = [records[arm] for arm in study.arms]
    runner = run_cells(run.cells(ordered))
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
