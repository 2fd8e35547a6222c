"""What a task is: facts, one reading function, a family that turns examples into tensors and back.

A task file under `downstream/tasks/` holds all that is particular to its data. Its embedded sample, where there is one,
is a task of its own (`nsmc-sample`), because a score on a substitute split must never pass for the official one.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pydantic import Field

from corpora.official import OfficialFile, locate
from corpora.runtime import Config, DataError, UsageError, discover, nearest, sha256
from downstream.metrics import Metric

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SAMPLE_ROOT = Path(str(files("corpora"))) / "sample"
SAMPLE_SUFFIX = "-sample"


class FinetuneConfig(Config):
    """How an encoder is fine-tuned on a task; the defaults are KLUE-baseline's."""

    epochs: float = Field(default=3, gt=0, allow_inf_nan=False)
    """Passes over the training split."""
    batch_size: int = Field(default=32, ge=1)
    """Examples (question–window pairs) per optimizer step."""
    peak_lr: float = Field(default=5e-5, gt=0, allow_inf_nan=False)
    """Highest learning rate; linear warm-up to it, linear decay from it."""
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps that warm up."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """AdamW's, on all weights but biases and LayerNorm."""
    max_length: int = Field(default=128, ge=8)
    """Longest input in tokens, special tokens included."""


@dataclass(frozen=True)
class TextExample:
    """One text or a pair of texts with its label."""

    id: str
    text: str
    pair: str | None
    """The second text of a pair."""
    label: str | float
    """Label name, or score."""

    @property
    def gold(self) -> str | float:
        """What a metric compares a prediction with."""
        return self.label


@dataclass(frozen=True)
class Answer:
    """An answer span: `context[start:start + len(text)] == text`, in code points."""

    text: str
    start: int


@dataclass(frozen=True)
class QuestionExample:
    """A question on a context. No answers: the context does not answer it."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    question_type: int = 1
    """KLUE-MRC's: 1 paraphrase, 2 several sentences, 3 unanswerable."""

    @property
    def gold(self) -> tuple[str, ...]:
        """What a metric compares a prediction with; only the empty string answers the unanswerable."""
        return tuple(answer.text for answer in self.answers) or ("",)


Example: TypeAlias = TextExample | QuestionExample
Prediction: TypeAlias = str | float
Features: TypeAlias = dict[str, Any]


class Family(Protocol):
    """A way of solving tasks with an encoder: one head, one form of features, one decoding."""

    @property
    def auto_class(self) -> str:
        """Name of the transformers class that loads encoder and head, e.g. `AutoModelForQuestionAnswering`."""

    def check(self, example: Any, where: str) -> None:
        """Raise DataError if EXAMPLE cannot be one of this family's (a label that is none of the labels)."""

    def head_config(self) -> dict[str, Any]:
        """Return the model config entries that belong to the head (labels with ids, problem type)."""

    def featurize(
        self, examples: Sequence[Any], tokenizer: "PreTrainedTokenizerBase", max_length: int, *, with_labels: bool
    ) -> list[Features]:
        """Turn N examples into at least N feature dicts.

        Keys that a model's forward does not take begin with an underscore; `_example` is the index of the example.
        """

    def decode(self, outputs: Sequence[Any], features: Sequence[Features], examples: Sequence[Any]) -> list[Prediction]:
        """Turn one model output per feature into one prediction per example."""

    def logits(self, model: "PreTrainedModel", batch: Mapping[str, Any]) -> Any:
        """Run MODEL on a padded batch; returns a float tensor (B, …) whose rows go to `decode`."""


@dataclass(frozen=True)
class Task:
    """A benchmark task: data and how it is scored. Knows nothing of any model."""

    name: str
    """Key on command lines and in results."""
    title: str
    """Name in tables."""
    family: Family
    files: Mapping[str, OfficialFile]
    """Split → file."""
    num_examples: Mapping[str, int]
    """Split → number of examples that the publisher states; another number is an error."""
    read: Callable[[Path], list[Any]]
    """File → examples in file order; raises DataError with file and record."""
    metrics: tuple[Metric, ...]
    """The first one ranks."""
    chance: float
    """What guessing scores in the first metric, as a fraction."""
    finetune: FinetuneConfig
    source: str
    """Paper and repository."""
    licence: str
    train_split: str = "train"
    eval_split: str = "dev"
    sample_num_examples: Mapping[str, int] = field(default_factory=dict)
    """Split → number of examples in the embedded sample; empty where there is no sample."""
    base: str = ""
    """For a task on substitute data: the official task it stands in for."""

    @property
    def official_name(self) -> str:
        """The official task's key: its own, or that of the task it stands in for."""
        return self.base or self.name

    def sample(self) -> "Task":
        """Return this task on the embedded sample, under its own name."""
        return replace(
            self,
            name=self.name + SAMPLE_SUFFIX,
            title=f"{self.title} (sample)",
            num_examples=self.sample_num_examples,
            sample_num_examples={},
            source="corpora/sample/SOURCES.md",
            licence="CC0-1.0",
            base=self.name,
        )

    def path(self, split: str, root: Path) -> Path:
        """Return the file of a split: embedded for a sample task, else under ROOT or downloaded.

        Raises:
            DataUnavailableError: it is not to be had; the message holds the command that would help.
        """
        if self.base:
            return SAMPLE_ROOT / self.files[split].path
        return locate(self.files[split], root)

    def read_split(self, split: str, root: Path) -> "Split":
        """Read and check a split.

        Raises:
            DataUnavailableError: the file is not to be had.
            DataError: the file is damaged, has a wrong label, a duplicate id or another number of examples.
        """
        path = self.path(split, root)
        examples = self.read(path)
        seen: set[str] = set()
        for number, example in enumerate(examples, start=1):
            where = f"{path}, example {number}"
            if example.id in seen:
                raise DataError(where, f"duplicate id '{example.id}'", "restore the official file")
            seen.add(example.id)
            self.family.check(example, where)
        if len(examples) != self.num_examples[split]:
            what = f"{len(examples):,} examples where {self.name} {split} has {self.num_examples[split]:,}"
            raise DataError(path, what, "restore the official file")
        return Split(tuple(examples), sha256(path))


@dataclass(frozen=True)
class Split:
    """The examples of a split, with the SHA-256 of the bytes they were read from."""

    examples: tuple[Any, ...]
    sha256: str

    @property
    def golds(self) -> list[Any]:
        """What metrics compare predictions with, in order."""
        return [example.gold for example in self.examples]


@functools.cache
def all_tasks() -> dict[str, Task]:
    """Return every task and every sample task by name."""
    from downstream import tasks

    official: dict[str, Task] = discover(tasks, "TASK")
    samples = [task.sample() for task in official.values() if task.sample_num_examples]
    return official | {task.name: task for task in samples}


def get_task(name: str) -> Task:
    """Return the task called NAME; underscores may stand for hyphens.

    Raises:
        UsageError: there is none; the nearest name is given.
    """
    tasks = all_tasks()
    key = name.replace("_", "-").lower()
    if key not in tasks:
        raise UsageError("--tasks", f"unknown task '{name}'", nearest(key, tasks))
    return tasks[key]
