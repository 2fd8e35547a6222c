"""Results as a `model-index` for each model, in the form of a model card's head.

ModelCardData(**yaml.safe_load(Path("reports/model-index/tfidf.yml").read_text()))
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from corpora.foundation.files import write_text
from downstream.families.classification import Regression
from downstream.families.dependency import Dependency
from downstream.families.retrieval import Retrieval
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import Tagging
from downstream.summaries.family import SentenceChoice
from downstream.task import Task, all_tasks, get_task
from eval.board.rows import Row

FOLDER = "model-index"


def write_model_index(out: Path, rows: Iterable[Row]) -> list[Path]:
    """Write `OUT/model-index/MODEL.yml` for every model with a measured figure on a known task; returns the files.

    Raises:
        ResultError: a file cannot be written.
    """
    by_model: dict[str, list[Row]] = {}
    for row in rows:
        if row.source == "measured" and row.value is not None and row.task in all_tasks():
            by_model.setdefault(row.model, []).append(row)
    paths = {model: out / FOLDER / f"{model.replace('/', '--')}.yml" for model in by_model}
    for model, path in paths.items():
        write_text(path, to_model_index(model, by_model[model]))
    return list(paths.values())


def to_model_index(model: str, rows: Sequence[Row]) -> str:
    """Return the measured rows of a model as YAML that `huggingface_hub` accepts.

    Args:
        model: its name.
        rows: with a value.
    """
    tasks = {row.task: get_task(row.task) for row in rows}
    results = [_result(tasks[row.task], row) for row in rows]
    return str(ModelCardData(language="ko", model_name=model, eval_results=results).to_yaml()) + "\n"


def _result(task: Task, row: Row) -> EvalResult:
    assert row.value is not None
    metric = next(metric for metric in task.metrics if metric.key == row.metric)
    facts = {"seeds": row.seeds, "num_examples": row.num_examples, "std": row.std, "ci95": list(row.ci95 or ())}
    return EvalResult(
        task_type=_task_type(task),
        dataset_type=task.name,
        dataset_name=task.title,
        dataset_split=row.split,
        dataset_revision=row.data_sha256.rpartition("+")[2],
        metric_type=row.metric,
        metric_name=metric.title,
        metric_value=round(row.value, 6),
        metric_args={key: value for key, value in facts.items() if value},
    )


def _task_type(task: Task) -> str:
    """Return the task type of model hubs."""
    if isinstance(task.family, SpanQA):
        return "question-answering"
    if isinstance(task.family, SentenceChoice):
        return "summarization"
    if isinstance(task.family, Retrieval):
        return "text-retrieval"
    if isinstance(task.family, Tagging | Dependency):
        return "token-classification"
    return "sentence-similarity" if isinstance(task.family, Regression) else "text-classification"
