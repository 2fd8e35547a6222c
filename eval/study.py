"""Experiments, repeatable: pretrain the arms of a study, fine-tune each on its tasks, test, and write the page.

    python -m eval.study NAME --data ROOT [--dry-run]
    python -m eval.study NAME --data ROOT --shard 2/8      # a share of the cells; the table afterwards, without --shard
    python -m eval.study NAME --data ROOT --dry-run --set tokens=2_000_000_000 --set pretraining.model.hidden_size=768

Corpora, vocabularies and encoders lie under WORK by what they are made of, so that studies share what they have in
common, a finished part is never made again, and an interrupted one is gone on with. OUT/NAME holds the results in the
leaderboard's own form, and the page in Korean and English; a score that another study under OUT has got of the same
encoder in the same way is taken over. `--publish docs/studies` begins with the cells that are there already, and puts
page, chart and cells there in the end.
"""

import sys
from pathlib import Path

from corpora.official import data_root
from corpora.runtime import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, UsageError, run_command
from downstream.task import get_task
from eval.archive import ARCHIVE, pack, restore
from eval.cells import Filler, plan_cells, share_of
from eval.manifest import fold_manifest
from eval.report import write_leaderboard
from eval.results import LeaderboardFile
from eval.study_estimate import dry_run
from eval.study_page import write_page
from eval.study_recipe import read_study
from eval.study_run import StudyRun


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
    run = StudyRun(
        study,
        root=data_root(arguments.data),
        work=arguments.work,
        out=out,
        num_workers=arguments.workers,
        cpu=arguments.cpu,
    )
    if arguments.dry_run:
        sys.stdout.write(dry_run(run))
        return EXIT_DONE
    tasks = [get_task(name) for name in study.tasks]
    names = list(study.arms)
    if arguments.shard:
        index, count = parse_share(arguments.shard)
        # Of the arms first, which then are there for the cells; those of others are waited for.
        names = names[index - 1 :: count] + [name for k, name in enumerate(names) if k % count != index - 1]
    records = {name: run.make_encoder(name) for name in names}
    ordered = [records[name] for name in study.arms]
    cells = plan_cells(run.entries(ordered), tasks, study.seeds)
    cells = share_of(cells, *parse_share(arguments.shard)) if arguments.shard else cells
    others = [path.parent for path in sorted(arguments.out.glob("*/results"))]
    published: Path | None = arguments.publish / study.name if arguments.publish else None
    if published and (published / ARCHIVE).is_file():
        restore(published / ARCHIVE, out)
    filler = Filler(cells, root=run.root, out=out, jobs=arguments.jobs, elsewhere=others)
    filler.fill()
    if published:
        pack(out, published / ARCHIVE)
    if not arguments.shard:
        table = run.table(filler)
        created = max((cell.environment.get("finished", "") for cell in table.cells), default="")
        board = LeaderboardFile(
            schema=1,
            created=created,
            manifest=fold_manifest(table.cells)
            | {"study": study.model_dump(), "arms": [record.model_dump() for record in ordered]},
            rows=table.rows,
            comparisons=table.comparisons,
        )
        write_leaderboard(out, board, [task.name for task in tasks])
        for folder in filter(None, (out, published)):
            for page in write_page(folder, study, ordered, table):
                sys.stdout.write(f"{page}\n")
    return EXIT_FAILED_CELLS if filler.gaps else EXIT_DONE


def parse_share(text: str) -> tuple[int, int]:
    """Read `I/N`.

    Raises:
        UsageError: it is no share.
    """
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise UsageError("--shard", f"'{text}' is no share", "give I/N with I from 1 to N, e.g. 1/4")
    return int(index), int(count)


if __name__ == "__main__":
    run_command(main)
