"""Tasks: facts about the data, one reading function, and a family that turns examples into tensors and back.

A task file under `downstream/tasks/` holds everything specific to its data. The embedded sample (`nsmc-sample`) and the
substitute for an official file that is not available (`klue-nli-devsplit`) are tasks with names of their own, so that a
score on substitute data is never taken for the official one.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeAlias

from pydantic import Field

from corpora.foundation.config import Config, discover
from corpora.foundation.errors import DataError, UsageError, suggest
from corpora.foundation.files import SAMPLE_ROOT, fingerprint, sha256
from corpora.foundation.machine import Precision
from corpora.foundation.plugins import with_plugins
from corpora.foundation.texts import Language
from corpora.official import OfficialFile, locate
from downstream.metrics import Metric

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from downstream.substitutes import Division, OtherSplit

SAMPLE_SUFFIX = "-sample"
FEW_SHOT_NAME = re.compile(rf"(?P<task>.+)-(?P<number>\d+)shot(?P<sample>{SAMPLE_SUFFIX})?")
FEW_SHOT_BATCH = 16
FEW_SHOT_STEPS = 200
"""Optimizer steps on few examples."""


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
    precision: Precision | Literal["fp16"] = "auto"
    """`auto`: chosen by the machine; results record it. `fp16` scales the loss and needs a GPU."""
    # Unset fields are left out of recipes: results from before these fields existed stay valid.
    features: Literal["none", "embeddings", "second-to-last", "last", "weighted-sum", "last-four"] = Field(
        default="none", exclude_if=lambda value: value == "none"
    )
    """Layers that a two-layer BiLSTM reads; `none`: transformers' head on the last. Devlin et al. 2019, 5.3."""
    micro_batch_size: Annotated[int, Field(ge=1)] | Literal["auto"] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Examples of a batch that are computed at a time, for less memory and the same gradient; `auto`: as many as fit.
    None: all."""
    checkpoint_activations: bool = Field(default=False, exclude_if=lambda value: value is False)
    """Whether the backward pass computes activations again, for less memory and about a third more time."""
    dropout: float | None = Field(default=None, ge=0, lt=1, exclude_if=lambda value: value is None)
    """Dropout rate in training; None: that of the encoder's config."""
    subword_dropout: float | None = Field(default=None, gt=0, lt=1, exclude_if=lambda value: value is None)
    """Probability of skipping a subword; see `downstream.finetuning.subword_dropout`. None: no subword dropout."""
    train_examples: int | None = Field(default=None, ge=1, exclude_if=lambda value: value is None)
    """Number of training examples; subsets are nested. None: all."""
    frozen: bool = Field(default=True, exclude_if=lambda value: value is True)
    """Whether the encoder below a BiLSTM is frozen; `false` is section 5.1's BiLSTM on top."""
    head_lr: float | None = Field(default=None, gt=0, allow_inf_nan=False, exclude_if=lambda value: value is None)
    """Peak learning rate of the head; a new BiLSTM needs a higher one than an encoder. None: `peak_lr`."""


@dataclass(frozen=True)
class TextExample:
    """One text or a pair of texts with its label."""

    id: str
    text: str
    pair: str | None
    """The second text of a pair."""
    label: str | float
    """Label name, score, or one tag for every character except blanks, joined by blanks."""

    @property
    def gold(self) -> str | float:
        """What a metric compares a prediction with."""
        return self.label


@dataclass(frozen=True)
class ChoiceExample(TextExample):
    """A text with choices of which one continues it; the label is the number of the correct one, from `"0"`.

    A baseline that reads it as a `TextExample` sees no choices and scores at chance level.
    """

    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """An answer span: `context[start:start + len(text)] == text`, in code points."""

    text: str
    start: int


@dataclass(frozen=True)
class QuestionExample:
    """A question on a context; unanswerable if it has no answers."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    question_type: int = 1
    """KLUE-MRC's: 1 paraphrase, 2 several sentences, 3 unanswerable."""
    title: str = ""
    """Title of the article that the context is from."""

    @property
    def gold(self) -> tuple[str, ...]:
        """What a metric compares a prediction with; `""` for an unanswerable question."""
        return tuple(answer.text for answer in self.answers) or ("",)


Example: TypeAlias = TextExample | QuestionExample
Prediction: TypeAlias = str | float
Features: TypeAlias = dict[str, Any]


class Family(Protocol):
    """How a kind of task is solved with an encoder: one head, one form of features, one decoding."""

    @property
    def auto_class(self) -> str:
        """Name of the transformers class that loads encoder and head, e.g. `AutoModelForQuestionAnswering`."""

    def check(self, example: Any, where: str) -> None:
        """Raise DataError if EXAMPLE is not valid for this family, e.g. has an unknown label."""

    def head_config(self) -> dict[str, Any]:
        """Return the model config entries that belong to the head (labels with ids, problem type)."""

    def featurize(
        self, examples: Sequence[Any], tokenizer: "PreTrainedTokenizerBase", max_length: int, *, with_labels: bool
    ) -> list[Features]:
        """Turn N examples into at least N feature dicts.

        Keys that are not inputs of the model begin with an underscore; `_example` is the index of the example.
        """

    def decode(self, outputs: Sequence[Any], features: Sequence[Features], examples: Sequence[Any]) -> list[Prediction]:
        """Turn one model output per feature into one prediction per example."""

    def logits(self, model: "PreTrainedModel", batch: Mapping[str, Any]) -> Any:
        """Run MODEL on a padded batch; returns a float tensor (B, …) whose rows go to `decode`."""


@dataclass(frozen=True)
class Task:
    """A benchmark task: its data and how it is scored, independent of any model."""

    name: str
    """Key on command lines and in results."""
    title: str
    """Name in tables."""
    family: Family
    files: Mapping[str, OfficialFile]
    """Split → file, or name → file where `split_files` combines several."""
    num_examples: Mapping[str, int]
    """Split → number of examples stated by the publisher; another number is an error."""
    read: Callable[[Path], list[Any]]
    """File → examples in file order; raises DataError with file and record."""
    metrics: tuple[Metric, ...]
    """The first one ranks."""
    chance: float
    """Score of guessing in the first metric, as a fraction."""
    finetune: FinetuneConfig
    source: str
    """Paper and repository."""
    licence: str
    takes_pairs: bool = False
    """Whether an example is a pair of texts, where the family supports both."""
    train_split: str = "train"
    eval_split: str = "dev"
    sample_num_examples: Mapping[str, int] = field(default_factory=dict)
    """Split → number of examples in the embedded sample; empty where there is no sample."""
    sample_paths: Mapping[str, str] = field(default_factory=dict)
    """Name in `files` → path in the embedded sample, where it differs from the official path."""
    split_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Split → names in `files`, in reading order; other splits are one file of the split's name."""
    split_of: Callable[[Any], str] | None = None
    """Example → its split, where one file holds several."""
    substitute: "Division | OtherSplit | None" = None
    """Substitute task for an official file that is not available."""
    base: str = ""
    """Name of the official task, for a task on a sample or on substitute data."""
    division: "Division | None" = None
    """For a task on one divided file: how it is divided."""
    few_shot: int | None = None
    """Number of labelled examples that are trained on, drawn by the training seed; None: the whole training split."""
    derive: Callable[[str, Sequence[Any]], list[Any]] | None = None
    """For a task derived from other texts: split name and what was read for it → the task's own examples, counted by
    `num_examples`. A file is divided first, so that no text of one part occurs in the other."""
    cluster: Callable[[Any], str] | None = None
    """Example as it is read → key of its cluster: examples that are drawn together, such as questions on one article.
    Intervals and tests resample whole clusters. A derived example `SOURCE/…` is in the cluster of its source. None:
    examples are independent, as far as the file says."""
    is_own: bool = False
    """Whether the suite made the task, or its splits: nobody has published figures on it."""

    def title_in(self, language: Language) -> str:
        """Return the name in tables; in English the key where the title is Korean."""
        return self.title if language == "ko" or self.title.isascii() else self.name

    @property
    def is_official(self) -> bool:
        """Whether examples and splits are their publisher's, so that figures can be compared with published ones."""
        return not (self.base or self.derive is not None or self.division is not None or self.is_own)

    @property
    def is_sample(self) -> bool:
        """Whether the data are the embedded sample's."""
        return self.name == self.base + SAMPLE_SUFFIX

    @property
    def official_name(self) -> str:
        """Key of the official task: its own, or that of the task it is a sample or substitute of."""
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
        """Return the path of the file NAME of `files`: embedded for a sample task, else under ROOT or downloaded.

        Raises:
            DataUnavailableError: it is missing and not downloadable; the message names the command that helps.
        """
        if self.is_sample:
            return SAMPLE_ROOT / self.sample_paths.get(name, self.files[name].path)
        return locate(self.files[name], root)

    def read_split(self, split: str, root: Path) -> "Split":
        """Read and check a split.

        Raises:
            DataUnavailableError: a file is missing and not downloadable.
            DataError: a file is damaged, has a wrong label, a duplicate id or another number of examples.
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
        cluster_of = {} if self.cluster is None else {example.id: self.cluster(example) for example in examples}
        if self.derive is not None:
            examples = self.derive(split, examples)
            digest = fingerprint({"source": digest, "examples": [asdict(example) for example in examples]})
            if cluster_of:
                cluster_of = {example.id: cluster_of[example.id.rpartition("/")[0]] for example in examples}
        if len(examples) != self.num_examples[split]:
            what = f"{len(examples):,} examples where {self.name} {split} has {self.num_examples[split]:,}"
            raise DataError(", ".join(map(str, paths)), what, "restore the official file")
        clusters = tuple(cluster_of[example.id] for example in examples) if cluster_of else None
        return Split(tuple(examples), digest, clusters)


@dataclass(frozen=True)
class Split:
    """The examples of a split, with a digest of what they were read from."""

    examples: tuple[Any, ...]
    sha256: str
    """Digest of the files' bytes; for a part of a file, also of the ids in it; for derived examples, also of the
    examples."""
    clusters: tuple[str, ...] | None = None
    """Key of each example's cluster; None where examples are independent."""

    @property
    def cluster_numbers(self) -> list[int] | None:
        """Number of each example's cluster, in the order in which clusters first occur; None without clusters."""
        if self.clusters is None:
            return None
        numbers = {key: number for number, key in enumerate(dict.fromkeys(self.clusters))}
        return [numbers[key] for key in self.clusters]

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


class TaskRegistry(dict[str, Task]):
    """Tasks by name. Few-shot tasks such as `nsmc-16shot` are made when asked for, and are not iterated over."""

    def __missing__(self, name: str) -> Task:
        """Return a few-shot task."""
        match = FEW_SHOT_NAME.fullmatch(name)
        full = dict.get(self, match["task"]) if match else None
        is_sample = match is not None and match["sample"] is not None
        if match is None or full is None or full.is_sample or (is_sample and not full.sample_num_examples):
            raise KeyError(name)
        if full.train_split == full.eval_split:
            raise KeyError(name)  # nothing is trained
        few = few_shot_task(full, int(match["number"]))
        return few.sample() if is_sample else few

    def __contains__(self, name: object) -> bool:
        """Whether NAME is a task or makes a few-shot task."""
        if super().__contains__(name):
            return True
        try:
            return isinstance(name, str) and self[name] is not None
        except KeyError:
            return False

    def get(self, name: str, default: Any = None, /) -> Any:
        """Return the task called NAME, few-shot tasks included, else DEFAULT."""
        try:
            return self[name]
        except KeyError:
            return default


def few_shot_name(task: Task, number: int) -> str:
    """Return the name of a task with NUMBER labelled training examples, e.g. `nsmc-16shot-sample` of `nsmc-sample`."""
    return f"{task.base}-{number}shot{SAMPLE_SUFFIX}" if task.is_sample else f"{task.name}-{number}shot"


def few_shot_task(task: Task, number: int) -> Task:
    """Return TASK with NUMBER labelled training examples, e.g. `nsmc-16shot`; the evaluation split is the same.

    Few examples are trained on for `FEW_SHOT_STEPS` steps: three epochs would be a handful (Zhang et al. 2021,
    Revisiting few-sample BERT fine-tuning).

    Raises:
        UsageError: NUMBER is less than one.
    """
    if number < 1:
        raise UsageError("--few-shot", f"{number} labelled examples", "give 1 or more")
    batch_size = min(FEW_SHOT_BATCH, task.finetune.batch_size)
    epochs = max(task.finetune.epochs, FEW_SHOT_STEPS * batch_size / number)
    return replace(
        task,
        name=f"{task.name}-{number}shot",
        title=f"{task.title} {number}개 학습",
        finetune=task.finetune.model_copy(update={"epochs": float(epochs), "batch_size": batch_size}),
        source=f"{task.source}; {number} labelled training examples",
        few_shot=number,
        substitute=None,
    )


@functools.cache
def all_tasks() -> TaskRegistry:
    """Return every task by name, samples, substitutes and those of plug-ins included."""
    from downstream import tasks
    from downstream.tasks import derived, klue, kobest, paraphrases

    found: dict[str, Task] = {}
    for package in (tasks, derived, klue, kobest, paraphrases):
        found |= discover(package, "TASK")
    found = with_plugins(found, "tasks", Task)
    official = dict(sorted(found.items()))
    samples = [task.sample() for task in official.values() if task.sample_num_examples]
    substitutes = [task.substitute.substitute_task(task) for task in official.values() if task.substitute is not None]
    return TaskRegistry(official | {task.name: task for task in (*samples, *substitutes)})


def get_task(name: str) -> Task:
    """Return the task called NAME; underscores may stand for hyphens.

    Raises:
        UsageError: there is none; the nearest name is suggested.
    """
    tasks = all_tasks()
    key = name.replace("_", "-").lower()
    if key not in tasks:
        raise UsageError("--tasks", f"unknown task '{name}'", suggest(key, tasks))
    return tasks[key]
