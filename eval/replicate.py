"""Repeat the published comparison and set its figures beside the measured ones.

    python -m eval.replicate --data DATA --out reports/replication
    python -m eval.replicate --data DATA --out reports/replication --models klue-bert korbert=FOLDER --jobs 2
    python -m eval.replicate --out reports/replication --report      # from finished cells

Runs the models, tasks and seeds of `eval/replicate.toml` by `eval/run_all.py`, and prints for each published figure the
measured mean over seeds with its 95 % interval, the difference, and whether the published figure lies in the interval.
Published figures are best single runs with early stopping on the reported set, ours means of last steps: see
docs/replication.md.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import ResultError
from corpora.foundation.files import package_path, write_text
from downstream.task import all_tasks
from eval import run_all
from eval.board.rows import LeaderboardFile, Row
from eval.contestants.contestant import load_leaderboard

REPLICATE_TOML = package_path("eval", "replicate.toml")
REPORT = "replication.md"
"""The report, below OUT."""
HEADER = ("model", "task", "metric", "published", "measured", "95 %", "difference", "published inside?")


@dataclass(frozen=True)
class Replicated:
    """A published figure and the measured one; fractions."""

    published: Row
    measured: Row | None
    """None where the cell is not in the leaderboard."""

    @property
    def difference(self) -> float | None:
        """Measured minus published; None where nothing comparable was measured."""
        if self.published.value is None or self.measured is None or self.measured.value is None:
            return None
        return self.measured.value - self.published.value if self.is_comparable else None

    @property
    def is_comparable(self) -> bool:
        """Whether the measured figure is on the official task, not on a substitute or sample."""
        return self.measured is not None and self.measured.task == self.published.task

    @property
    def is_inside(self) -> bool | None:
        """Whether the published figure lies in the measured interval; None where there is none to compare."""
        if self.difference is None or self.measured is None or self.measured.ci95 is None:
            return None
        assert self.published.value is not None
        low, high = self.measured.ci95
        return low <= self.published.value <= high


def compare_with_published(rows: Sequence[Row], models: Sequence[str]) -> list[Replicated]:
    """Pair the published figures of MODELS with measured ones on the same task, or on what stands in for it.

    Args:
        rows: of a leaderboard, published figures among them.
        models: keys of the compared models.
    """
    tasks = all_tasks()
    measured = {
        (row.model, tasks[row.task].official_name, row.metric): row
        for row in rows
        if row.source == "measured" and row.task in tasks
    }
    return [
        Replicated(row, measured.get((row.model, row.task, row.metric)))
        for row in rows
        if row.source == "reported" and row.model in models
    ]


def render(found: Sequence[Replicated]) -> str:
    """Return the comparison as a Markdown table, with a summary and the reasons for empty cells below."""
    lines = [_line(HEADER), _line(["---"] * 3 + ["---:"] * 4 + ["---"])]
    reasons: dict[str, None] = {}
    for one in found:
        row, published = one.measured, f"{100 * (one.published.value or 0):.2f}"
        cells = [one.published.model, one.published.task, one.published.metric, published]
        if row is None or row.value is None:
            cells += ["—", "", "", row.status if row else "not run"]
            if row and row.reason:
                reasons[f"{row.model} · {row.task}: {row.reason}"] = None
        else:
            interval = "" if row.ci95 is None else f"{100 * row.ci95[0]:.2f} to {100 * row.ci95[1]:.2f}"
            difference = "" if one.difference is None else f"{100 * one.difference:+.2f}"
            verdict = {True: "yes", False: "no", None: f"not comparable: {row.task}"}[one.is_inside]
            cells += [f"{100 * row.value:.2f}", interval, difference, verdict]
        lines.append(_line(cells))
    compared = [one for one in found if one.is_inside is not None]
    inside = sum(one.is_inside is True for one in compared)
    lines += ["", f"{len(found)} published figures, {len(compared)} compared, {inside} inside the measured interval."]
    lines += ["", *(f"- {reason}" for reason in reasons)] if reasons else []
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def read_rows(out: Path) -> list[Row]:
    """Return the rows of the leaderboard in OUT.

    Raises:
        ResultError: there is none, or it is damaged.
    """
    path = out / "leaderboard.json"
    try:
        return list(LeaderboardFile.model_validate_json(path.read_text(encoding="utf-8")).rows)
    except (OSError, ValueError) as error:
        fix = "run python -m eval.replicate without --report"
        raise ResultError(path, f"no leaderboard ({type(error).__name__})", fix) from error


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code of `eval/run_all.py`."""
    parser = ArgumentParser("python -m eval.replicate", "Repeat the published comparison of five encoders.")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--out", type=Path, default=Path("reports/replication"), help="cells, leaderboard and report")
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="only these, e.g. klue-bert korbert=FOLDER")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these")
    parser.add_argument("--seeds", type=int, help="instead of three")
    parser.add_argument("--jobs", type=int, default=1, help="cells that run at once")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="other settings, for a trial")
    parser.add_argument("--report", action="store_true", help="run nothing: compare what is finished in OUT")
    arguments = parser.parse(argv)
    code = EXIT_DONE
    if not arguments.report:
        asked = ["--plan", str(REPLICATE_TOML), "--out", str(arguments.out), "--jobs", str(arguments.jobs)]
        asked += ["--without", "noise", "cost"]
        for option in ("data", "seeds"):
            value = getattr(arguments, option)
            asked += [] if value is None else [f"--{option}", str(value)]
        for option in ("models", "tasks"):
            asked += [f"--{option}", *getattr(arguments, option)] if getattr(arguments, option) else []
        asked += [part for pair in arguments.set for part in ("--set", pair)]
        code = run_all.main(asked)
    models = [name.partition("=")[0] for name in arguments.models or load_leaderboard(REPLICATE_TOML).models]
    report = render(compare_with_published(read_rows(arguments.out), models))
    write_text(arguments.out / REPORT, report)
    sys.stdout.write(report)
    return code


if __name__ == "__main__":
    run_command(main)
