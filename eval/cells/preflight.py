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
from corpora.foundation.texts import Language, Texts
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


class Preflight:
    """Checks of the cells that a run has."""

    def __init__(self, cells: Sequence[Cell], *, root: Path, out: Path, language: Language = "ko") -> None:
        """Keep what to check.

        Args:
            cells: what would be run.
            root: data root.
            out: folder of leaderboard and results.
            language: of the findings.
        """
        self.cells, self.root, self.out = list(cells), root, out
        self.texts = Texts(language, "report.check")
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
            self._refuse(self.texts("task", name=task.name), error)
            return None
        counts = f"{task.train_split} {len(data.train.examples):,} · {task.eval_split} {len(data.eval.examples):,}"
        self.findings.append(Finding(self.texts("task", name=task.name), self.texts("ready"), counts))
        return data

    def _check_model(
        self, model: Contestant, tasks: Sequence[Task], data: Mapping[str, TaskData | None]
    ) -> dict[str, dict[str, Any]]:
        """Return the recipes of the tasks on which the model would run."""
        name = self.texts("model", name=model.name)
        recipes: dict[str, dict[str, Any]] = {}
        try:
            for task in tasks:
                found = data[task.name]
                detail = model.check(task, found)
                if found is not None:
                    recipes[task.name] = model.recipe(task, found)
        except SuiteError as error:
            self._refuse(name, error)
            return {}
        key, values = detail
        self.findings.append(Finding(name, self.texts("ready"), self.texts(key, **values)))
        return recipes

    def _refuse(self, what: str, error: SuiteError) -> None:
        is_absent = isinstance(error, DataUnavailableError | EncoderUnavailableError)
        detail = self.texts("not_here", where=error.where) if is_absent else f"{error.where}: {error.what}"
        self.findings.append(Finding(what, self.texts("absent" if is_absent else "wrong"), detail, error.fix))

    def show(self, console: Console) -> None:
        """Print the findings as a table, and the commands below it, which must not be cut."""
        table = Table(show_lines=False)
        for key in ("what", "state", "detail"):
            table.add_column(self.texts(key), overflow="fold")
        for finding in self.findings:
            table.add_row(Text(finding.what), Text(finding.state), Text(finding.detail))
        console.print(table)
        for fix in dict.fromkeys(finding.fix for finding in self.findings if finding.fix):
            console.print(f"→ {fix}", markup=False, highlight=False, soft_wrap=True)
        counts = {"finished": self.num_finished, "ready": self.num_ready, "blocked": self.num_blocked}
        console.print(self.texts("summary", cells=len(self.cells), **counts), markup=False, highlight=False)


def print_known(models: Mapping[str, Contestant], root: Path, console: Console, language: Language = "ko") -> None:
    """Print the known tasks and models, and whether their files are on this machine. Nothing is read or downloaded."""
    texts = Texts(language, "report.known")
    tasks = Table(title=Text(texts("tasks")), title_justify="left")
    for key in ("name", "title", "metrics", "examples", "licence", "data"):
        tasks.add_column(texts(key), overflow="fold")
    for task in all_tasks().values():
        sizes = f"{task.num_examples[task.train_split]:,} / {task.num_examples[task.eval_split]:,}"
        metrics = ", ".join(metric.title_in(language) for metric in task.metrics)
        title, state = task.title_in(language), _data_state(task, root, texts)
        tasks.add_row(*map(Text, (task.name, title, metrics, sizes, task.licence, state)))
    console.print(tasks)
    table = Table(title=Text(texts("models")), title_justify="left")
    for key in ("name", "kind", "weights"):
        table.add_column(texts(key), overflow="fold")
    for name, model in models.items():
        table.add_row(*map(Text, (name, model.kind, _model_state(model, texts))))
    console.print(table)


def _data_state(task: Task, root: Path, texts: Texts) -> str:
    try:
        for split in (task.train_split, task.eval_split):
            for name in task.split_files.get(split, (split,)):
                task.path(name, root)
    except DataUnavailableError as error:
        return texts("missing", what=Path(error.where).name)
    return texts("here")


def _model_state(model: Contestant, texts: Texts) -> str:
    try:
        return texts("not_needed" if model.folder() is None else "here")
    except SuiteError as error:
        return texts("missing", what=error.fix)


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Return the values without repetition, in order; they need not be hashable."""
    distinct: list[Any] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct
