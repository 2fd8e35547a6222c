"""What a task is: facts, one reading function, a family that turns examples into tensors and back.

A task file under `downstream/tasks/` holds all that is particular to its data. Its embedded sample (`nsmc-sample`), and
what stands in where an official file cannot be had (`klue-nli-devsplit`), are tasks of their own, because a score on a
substitute split must never pass for the official one.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from pydantic import Field

from corpora.foundation.config import Config, discover
from corpora.foundation.errors import DataError, UsageError, suggest
from corpora.foundation.files import fingerprint, sha256
from corpora.foundation.machine import Precision
from corpora.official import OfficialFile, locate
from downstream.metrics import Metric

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from downstream.substitutes import Division, OtherSplit

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
    precision: Precision = "auto"
    """`auto` leaves it to the machine; results tell what it was."""
    # Left out of recipes where nothing is asked for, so that results of before they were there are still their own.
    features: Literal["none", "embeddings", "second-to-last", "last", "weighted-sum", "last-four"] = Field(
        default="none", exclude_if=lambda value: value == "none"
    )
    """Layers that a two-layer BiLSTM reads; `none`: transformers' own head on the last. Devlin et al. 2019, 5.3."""
    dropout: float | None = Field(default=None, ge=0, lt=1, exclude_if=lambda value: value is None)
    """While it learns; None: what the encoder was saved with."""
    subword_dropout: float | None = Field(default=None, gt=0, lt=1, exclude_if=lambda value: value is None)
    """Cut words into shorter pieces now and then; see `downstream.finetuning.subword_dropout`. None: never."""
    train_examples: int | None = Field(default=None, ge=1, exclude_if=lambda value: value is None)
    """Train on so many of the examples: a number of them holds every smaller one. None: on all."""
    frozen: bool = Field(default=True, exclude_if=lambda value: value is True)
    """Whether the encoder below a BiLSTM is left as it is; `false` is section 5.1's BiLSTM on top."""
    head_lr: float | None = Field(default=None, gt=0, allow_inf_nan=False, exclude_if=lambda value: value is None)
    """Highest rate of what stands on the encoder; a new BiLSTM learns little at an encoder's. None: PEAK_LR."""


@dataclass(frozen=True)
class TextExample:
    """One text or a pair of texts with its label."""

    id: str
    text: str
    pair: str | None
    """The second text of a pair."""
    label: str | float
    """Label name, score, or one tag for every character but blanks, joined by blanks."""

    @property
    def gold(self) -> str | float:
        """What a metric compares a prediction with."""
        return self.label


@dataclass(frozen=True)
class ChoiceExample(TextExample):
    """A text with choices of which one continues it; the label is the number of the right one, from `"0"`.

    A text example to whoever knows nothing of choices, for whom there is nothing but chance to be had from the text.
    """

    choices: tuple[str, ...] = ()


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
    title: str = ""
    """Of the article that the context is from."""

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
    """Split → file, or name → file where `split_files` puts several together."""
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
    takes_pairs: bool = False
    """Whether an example is a pair of texts, where the family knows both."""
    train_split: str = "train"
    eval_split: str = "dev"
    sample_num_examples: Mapping[str, int] = field(default_factory=dict)
    """Split → number of examples in the embedded sample; empty where there is no sample."""
    sample_paths: Mapping[str, str] = field(default_factory=dict)
    """Name in `files` → where it lies in the embedded sample, if not where the official file would."""
    split_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Split → names in `files`, in the order they are read; a split that is not in here is one file of its name."""
    split_of: Callable[[Any], str] | None = None
    """Example → its split, where one file holds several."""
    substitute: "Division | OtherSplit | None" = None
    """What stands in, as a task of its own, where an official file cannot be had."""
    base: str = ""
    """For a task on substitute data: the official task it stands in for."""
    division: "Division | None" = None
    """For a task on one divided file: how it is divided."""
    derive: Callable[[str, Sequence[Any]], list[Any]] | None = None
    """For a task made out of other texts: a split's name and what was read for it → the task's own examples, of which
    `num_examples` speaks. A file is divided first, so that what is made of one part holds nothing of the other."""

    @property
    def is_sample(self) -> bool:
        """Whether the data are the embedded sample's."""
        return self.name == self.base + SAMPLE_SUFFIX

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
            substitute=None,
        )

    def path(self, name: str, root: Path) -> Path:
        """Return where the file NAME of `files` lies: embedded for a sample task, else under ROOT or downloaded.

        Raises:
            DataUnavailableError: it is not to be had; the message holds the command that would help.
        """
        if self.is_sample:
            return SAMPLE_ROOT / self.sample_paths.get(name, self.files[name].path)
        return locate(self.files[name], root)

    def read_split(self, split: str, root: Path) -> "Split":
        """Read and check a split.

        Raises:
            DataUnavailableError: the file is not to be had.
            DataError: the file is damaged, has a wrong label, a duplicate id or another number of examples.
        """
        paths = [self.path(name, root) for name in self.split_files.get(split, (split,))]
        examples: list[Any] = []
        seen: set[str] = set()
        for path in paths:
            for number, example in enumerate(self.read(path), start=1):
                where = f"{path}, example {number}"
                if example.id in seen:
                    raise DataError(where, f"duplicate id '{example.id}'", "restore the official file")
                seen.add(example.id)
                if self.derive is None:
                    self.family.check(example, where)
                examples.append(example)
        digest = sha256(*paths)
        if self.split_of is not None:
            examples = [example for example in examples if self.split_of(example) == split]
        if self.division is not None:
            examples = self.division.parts(examples)[split]
        if self.split_of is not None or self.division is not None:
            digest = fingerprint({"file": digest, "ids": [example.id for example in examples]})
        if self.derive is not None:
            examples = self.derive(split, examples)
            digest = fingerprint({"source": digest, "examples": [asdict(example) for example in examples]})
        if len(examples) != self.num_examples[split]:
            what = f"{len(examples):,} examples where {self.name} {split} has {self.num_examples[split]:,}"
            raise DataError(", ".join(map(str, paths)), what, "restore the official file")
        return Split(tuple(examples), digest)


@dataclass(frozen=True)
class Split:
    """The examples of a split, with a digest of what they were read from."""

    examples: tuple[Any, ...]
    sha256: str
    """Of the files' bytes; for a part of a file, of that and the ids in the part; for derived examples, of that and
    the examples."""

    @property
    def golds(self) -> list[Any]:
        """What metrics compare predictions with, in order."""
        return [example.gold for example in self.examples]


@dataclass(frozen=True)
class TaskData:
    """A task's two splits, read once and shared by every model."""

    train: Split
    eval: Split

    @property
    def sha256(self) -> str:
        """Digests of both files, joined by `+`."""
        return f"{self.train.sha256}+{self.eval.sha256}"


def read_task(task: Task, root: Path) -> TaskData:
    """Read and check both splits of a task.

    Raises:
        DataUnavailableError: a file is missing and cannot be downloaded.
        DataError: a file is damaged.
    """
    # The reported split comes first: without it the training split is not worth downloading.
    reported = task.read_split(task.eval_split, root)
    return TaskData(task.read_split(task.train_split, root), reported)


@functools.cache
def all_tasks() -> dict[str, Task]:
    """Return every task by name, with the samples and substitutes that stand in for them."""
    from downstream import tasks
    from downstream.tasks import derived

    official: dict[str, Task] = dict(sorted((discover(tasks, "TASK") | discover(derived, "TASK")).items()))
    samples = [task.sample() for task in official.values() if task.sample_num_examples]
    substitutes = [task.substitute.substitute_task(task) for task in official.values() if task.substitute is not None]
    return official | {task.name: task for task in (*samples, *substitutes)}


def get_task(name: str) -> Task:
    """Return the task called NAME; underscores may stand for hyphens.

    Raises:
        UsageError: there is none; the nearest name is given.
    """
    tasks = all_tasks()
    key = name.replace("_", "-").lower()
    if key not in tasks:
        raise UsageError("--tasks", f"unknown task '{name}'", suggest(key, tasks))
    return tasks[key]
