"""Check without training what a run needs: data, weights, tokenizers and settings of every cell.

Nothing is downloaded: what is missing on this machine is named with the command that gets it. Checks use the thing:
splits are read to the last example, weights are loaded under the task's head, and a few examples are predicted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpora.foundation.errors import DataUnavailableError, SuiteError
from corpora.foundation.files import fingerprint
from downstream.encoders.hub import EncoderUnavailableError
from downstream.task import Task, TaskData, all_tasks, read_task
from eval.cells.files import read_finished
from eval.contestants.contestant import Cell, Contestant


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    state: str
    """One word, for the table."""
    detail: str
    """What was found, or what is wrong."""
    fix: str = ""
    """What to do; empty where nothing has to be done."""


def _refusal(what: str, error: SuiteError) -> Finding:
    is_absent = isinstance(error, DataUnavailableError | EncoderUnavailableError)
    if is_absent:
        return Finding(what, "없음", f"{error.where}: 이 컴퓨터에 없음", error.fix)
    return Finding(what, "오류", f"{error.where}: {error.what}", error.fix)


class Preflight:
    """Checks of the cells that a run has."""

    def __init__(self, cells: Sequence[Cell], *, root: Path, out: Path) -> None:
        """Keep what to check.

        Args:
            cells: what would be run.
            root: data root.
            out: folder of leaderboard and results.
        """
        self.cells, self.root, self.out = list(cells), root, out
        self.findings: list[Finding] = []
        self.num_finished, self.num_ready, self.num_blocked = 0, 0, 0

    def check(self) -> None:
        """Check every task, every model, and every model's settings on every task."""
        data = {task.name: self._check_task(task) for task in _distinct(cell.task for cell in self.cells)}
        for model in _distinct(cell.model for cell in self.cells):
            tasks = _distinct(cell.task for cell in self.cells if cell.model == model)
            recipes = self._check_model(model, tasks, data)
            for cell in self.cells:
                if cell.model == model:
                    self._count(cell, recipes.get(cell.task.name))

    def _count(self, cell: Cell, recipe: dict[str, Any] | None) -> None:
        if recipe is None:
            self.num_blocked += 1
            return
        found = read_finished(self.out, cell.key)
        is_finished = found is not None and found.recipe_sha256 == fingerprint(recipe)
        self.num_finished += is_finished
        self.num_ready += not is_finished

    def _check_task(self, task: Task) -> TaskData | None:
        try:
            data = read_task(task, self.root)
        except SuiteError as error:
            self.findings.append(_refusal(f"과제 {task.name}", error))
            return None
        counts = f"{task.train_split} {len(data.train.examples):,} · {task.eval_split} {len(data.eval.examples):,}"
        self.findings.append(Finding(f"과제 {task.name}", "준비됨", counts))
        return data

    def _check_model(
        self, model: Contestant, tasks: Sequence[Task], data: Mapping[str, TaskData | None]
    ) -> dict[str, dict[str, Any]]:
        """Return the recipes of the tasks on which the model would run."""
        name = f"모델 {model.name}"
        recipes: dict[str, dict[str, Any]] = {}
        try:
            for task in tasks:
                found = data[task.name]
                detail = model.check(task, found)
                if found is not None:
                    recipes[task.name] = model.recipe(task, found)
        except SuiteError as error:
            self.findings.append(_refusal(name, error))
            return {}
        self.findings.append(Finding(name, "준비됨", detail))
        return recipes

    def show(self, console: Console) -> None:
        """Print the findings as a table, and the commands below it, which must not be cut."""
        table = Table(show_lines=False)
        for title in ("무엇", "상태", "내용"):
            table.add_column(title, overflow="fold")
        for finding in self.findings:
            table.add_row(Text(finding.what), Text(finding.state), Text(finding.detail))
        console.print(table)
        for fix in dict.fromkeys(finding.fix for finding in self.findings if finding.fix):
            console.print(f"→ {fix}", markup=False, highlight=False, soft_wrap=True)
        counts = f"끝난 것 {self.num_finished}, 실행할 것 {self.num_ready}, 막힌 것 {self.num_blocked}"
        console.print(f"셀 {len(self.cells)}개: {counts}", markup=False, highlight=False)


def print_known(models: Mapping[str, Contestant], root: Path, console: Console) -> None:
    """Print the known tasks and models, and whether their files are on this machine. Nothing is read or downloaded."""
    tasks = Table(title=Text("과제"), title_justify="left")
    for title in ("이름", "제목", "지표", "예제", "라이선스", "자료"):
        tasks.add_column(title, overflow="fold")
    for task in all_tasks().values():
        sizes = f"{task.num_examples[task.train_split]:,} / {task.num_examples[task.eval_split]:,}"
        metrics = ", ".join(metric.title for metric in task.metrics)
        tasks.add_row(*map(Text, (task.name, task.title, metrics, sizes, task.licence, _data_state(task, root))))
    console.print(tasks)
    table = Table(title=Text("모델"), title_justify="left")
    for title in ("이름", "종류", "가중치"):
        table.add_column(title, overflow="fold")
    for name, model in models.items():
        table.add_row(*map(Text, (name, model.kind, _model_state(model))))
    console.print(table)


def _data_state(task: Task, root: Path) -> str:
    try:
        for split in (task.train_split, task.eval_split):
            for name in task.split_files.get(split, (split,)):
                task.path(name, root)
    except DataUnavailableError as error:
        return f"없음: {Path(error.where).name}"
    return "있음"


def _model_state(model: Contestant) -> str:
    try:
        return "필요 없음" if model.folder() is None else "있음"
    except SuiteError as error:
        return f"없음: {error.fix}"


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Return the values without repetition, in order; they need not be hashable."""
    distinct: list[Any] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct
