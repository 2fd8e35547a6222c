"""Checks of a task: its facts, its data where they lie under the data root, and its family.

check_task(TASK)                                  # raises CheckFailedError at the first fault
check_task("nsmc-sample", on_fail="return")       # the results of all checks
"""

import dataclasses
import functools
import inspect
import math
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from corpora.characters import nfc
from corpora.foundation.checks import CheckResult, Checks, NotApplicableError, OnFail
from corpora.foundation.errors import DataError, SuiteError
from corpora.official import OfficialFile, data_root
from downstream.encoders.hub import bundled
from downstream.metrics import Metric
from downstream.runtimes.plain_bert import PlainTokenizer
from downstream.task import FinetuneConfig, Split, Task, all_tasks, few_shot_task, get_task

TASK_CHECKS = Checks("task")
FAMILY_METHODS = ("check", "head_config", "featurize", "decode", "logits")
NUM_FEATURIZED = 50
SHORT = 32
"""Tokens to which inputs are cut in the checks of features."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A task with its data root."""

    task: Task
    root: Path

    @functools.cache  # noqa: B019  - lives as long as the checks run
    def split(self, name: str) -> Split:
        """Read a split; without its files a check does not apply."""
        for file in self.task.split_files.get(name, (name,)):
            is_there = self.task.is_sample or (self.root / self.task.files[file].path).is_file()
            if not is_there:
                raise NotApplicableError(f"{self.task.files[file].path} is not under {self.root}")
        return self.task.read_split(name, self.root)

    @property
    def examples(self) -> tuple[Any, ...]:
        """The examples that are scored."""
        return self.split(self.task.eval_split).examples


def check_task(task: Task | str, *, root: Path | None = None, on_fail: OnFail = "raise") -> list[CheckResult]:
    """Check a task. Checks of data whose files are missing are skipped; nothing is downloaded.

    Args:
        task: a task or the name of one.
        root: data root; default: `PRESSBERT_DATA`, else the user's cache.
        on_fail: `raise` at the first fault, `warn`, or `return`.

    Raises:
        CheckFailedError: a check failed.
        UsageError: there is no task of this name.
    """
    found = get_task(task) if isinstance(task, str) else task
    return TASK_CHECKS.run(Subject(found, data_root(root)), found.name, on_fail)


# --- facts ------------------------------------------------------------------------------------------------------------


@TASK_CHECKS.add
def name_is_in_kebab_case(subject: Subject) -> None:
    """The name can be typed on a command line and used as a file name."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", subject.task.name), f"name={subject.task.name!r}"


@TASK_CHECKS.add
def name_is_not_taken(subject: Subject) -> None:
    """No other task has the name."""
    other = all_tasks().get(subject.task.name)
    assert other is None or other.read == subject.task.read, f"there is another task called {subject.task.name}"


@TASK_CHECKS.add
def title_is_short(subject: Subject) -> None:
    """The title fits into the head of a column."""
    assert 0 < len(subject.task.title.strip()) <= 60, f"title={subject.task.title!r}"


@TASK_CHECKS.add
def title_has_an_english_form(subject: Subject) -> None:
    """The English table has a name for the task."""
    assert subject.task.title_in("en").isascii()


@TASK_CHECKS.add
def task_is_frozen(subject: Subject) -> None:
    """A task cannot be changed by accident."""
    assert _is_frozen(subject.task)


@TASK_CHECKS.add
def source_is_stated(subject: Subject) -> None:
    """Paper or repository are named."""
    assert len(subject.task.source.strip()) >= 5, f"source={subject.task.source!r}"


@TASK_CHECKS.add
def licence_is_stated(subject: Subject) -> None:
    """The task and each of its files state a licence."""
    assert subject.task.licence.strip(), "the task states none"
    for name, file in subject.task.files.items():
        assert file.licence.strip(), f"{name} states none"


@TASK_CHECKS.add
def files_are_official_files(subject: Subject) -> None:
    """There is at least one file, and each is an OfficialFile."""
    assert subject.task.files
    assert all(isinstance(file, OfficialFile) for file in subject.task.files.values())


@TASK_CHECKS.add
def paths_stay_under_the_root(subject: Subject) -> None:
    """Paths are relative and do not leave the data root."""
    for file in subject.task.files.values():
        path = PurePosixPath(file.path)
        assert not path.is_absolute(), file.path
        assert ".." not in path.parts, file.path


@TASK_CHECKS.add
def paths_differ(subject: Subject) -> None:
    """No two files have one path, unless one file holds several splits."""
    if subject.task.division is not None or subject.task.split_of is not None or subject.task.derive is not None:
        raise NotApplicableError("one file holds several splits")
    paths = [file.path for file in subject.task.files.values()]
    assert len(set(paths)) == len(paths)


@TASK_CHECKS.add
def addresses_are_https(subject: Subject) -> None:
    """Files come over HTTPS, or say how they are made."""
    for file in subject.task.files.values():
        is_embedded = subject.task.is_sample and not file.url
        assert is_embedded or file.obtain or urlsplit(file.url).scheme == "https", file.url


@TASK_CHECKS.add
def digests_are_sha256(subject: Subject) -> None:
    """A digest has 64 hexadecimal digits, a size is positive."""
    for file in subject.task.files.values():
        assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256), file.sha256
        assert file.size_bytes is None or file.size_bytes > 0, file.size_bytes


@TASK_CHECKS.add
def splits_have_files(subject: Subject) -> None:
    """Both splits name files that the task has."""
    for split in (subject.task.train_split, subject.task.eval_split):
        names = subject.task.split_files.get(split, (split,))
        assert all(name in subject.task.files for name in names), f"{split}: {names}"


@TASK_CHECKS.add
def splits_have_sizes(subject: Subject) -> None:
    """The publisher's number of examples is stated for both splits."""
    for split in (subject.task.train_split, subject.task.eval_split):
        assert subject.task.num_examples.get(split, 0) > 0, split


@TASK_CHECKS.add
def metrics_are_metrics(subject: Subject) -> None:
    """There is at least one metric, and no key occurs twice."""
    keys = [metric.key for metric in subject.task.metrics if isinstance(metric, Metric)]
    assert len(keys) == len(subject.task.metrics) >= 1
    assert len(set(keys)) == len(keys), keys


@TASK_CHECKS.add
def chance_is_a_fraction(subject: Subject) -> None:
    """The score of guessing is a fraction below one."""
    assert 0 <= subject.task.chance < 1, f"chance={subject.task.chance}"


@TASK_CHECKS.add
def finetuning_has_settings(subject: Subject) -> None:
    """Settings of fine-tuning are a FinetuneConfig."""
    assert isinstance(subject.task.finetune, FinetuneConfig)


@TASK_CHECKS.add
def few_shot_task_can_be_made(subject: Subject) -> None:
    """A task with few training examples keeps the evaluation split."""
    if subject.task.train_split == subject.task.eval_split:
        raise NotApplicableError("nothing is trained")
    few = few_shot_task(subject.task, 16)
    assert few.few_shot == 16
    assert few.num_examples[few.eval_split] == subject.task.num_examples[subject.task.eval_split]


# --- reading ----------------------------------------------------------------------------------------------------------


@TASK_CHECKS.add
def missing_file_is_a_data_error(subject: Subject) -> None:
    """The reader refuses a file that is not there by a DataError."""
    _must_refuse(subject.task, None)


@TASK_CHECKS.add
def empty_file_is_refused(subject: Subject) -> None:
    """An empty file gives a DataError or no examples."""
    _must_refuse(subject.task, b"")


@TASK_CHECKS.add
def random_bytes_are_refused(subject: Subject) -> None:
    """Bytes that are no text give a DataError or no examples, and no other error."""
    _must_refuse(subject.task, bytes(range(256)) * 4)


def _must_refuse(task: Task, content: bytes | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / PurePosixPath(next(iter(task.files.values())).path).name
        if content is not None:
            path.write_bytes(content)
        try:
            examples = task.read(path)
        except DataError as error:
            assert path.name in str(error), f"the message does not name the file: {error}"
        else:
            assert not examples, f"{len(examples)} examples of a file without any"


@TASK_CHECKS.add
def training_split_is_read(subject: Subject) -> None:
    """The training split has as many examples as its publisher states, with unique ids and valid labels."""
    subject.split(subject.task.train_split)


@TASK_CHECKS.add
def evaluation_split_is_read(subject: Subject) -> None:
    """So has the evaluation split."""
    assert subject.examples


@TASK_CHECKS.add
def reading_is_deterministic(subject: Subject) -> None:
    """Reading twice gives the same examples and digest."""
    assert subject.examples
    again = subject.task.read_split(subject.task.eval_split, subject.root)
    assert again == subject.split(subject.task.eval_split)


@TASK_CHECKS.add
def splits_are_different_data(subject: Subject) -> None:
    """Training and evaluation split are not the same examples."""
    if subject.task.train_split == subject.task.eval_split:
        raise NotApplicableError("nothing is trained")
    train, scored = subject.split(subject.task.train_split), subject.split(subject.task.eval_split)
    assert train.sha256 != scored.sha256


@TASK_CHECKS.add
def ids_are_texts(subject: Subject) -> None:
    """Every example has an id that is a text."""
    for example in subject.examples:
        assert isinstance(example.id, str), example.id
        assert example.id.strip(), "an empty id"


@TASK_CHECKS.add
def texts_are_composed(subject: Subject) -> None:
    """Every text is in NFC: tokenizers know composed Hangul only."""
    for example in subject.examples:
        for text in _texts(example):
            assert text == nfc(text), f"{example.id}: {text:.40}"


@TASK_CHECKS.add
def texts_are_not_blank(subject: Subject) -> None:
    """No example is without a text."""
    if not any(_texts(subject.examples[0])):
        raise NotApplicableError("examples hold no texts of their own")
    for example in subject.examples:
        assert any(text.strip() for text in _texts(example)), example.id


@TASK_CHECKS.add
def examples_are_frozen(subject: Subject) -> None:
    """Examples cannot be changed by a model."""
    assert _is_frozen(subject.examples[0])


def _is_frozen(value: Any) -> bool:
    parameters: Any = getattr(value, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _texts(example: Any) -> Iterator[str]:
    values = (getattr(example, field.name) for field in dataclasses.fields(example) if field.name != "id")
    yield from (value for value in values if isinstance(value, str))


@TASK_CHECKS.add
def clusters_are_keys(subject: Subject) -> None:
    """Where examples belong together, each has the key of its cluster, and there are several clusters."""
    if subject.task.cluster is None:
        raise NotApplicableError("examples are independent")
    keys = subject.split(subject.task.eval_split).clusters
    assert keys is not None
    assert all(isinstance(key, str) and key for key in keys)
    assert len(set(keys)) > 1, "a single cluster"


# --- scoring ----------------------------------------------------------------------------------------------------------


def _golds(subject: Subject) -> list[Any]:
    golds = [example.gold for example in subject.examples]
    if not all(isinstance(gold, str | float | tuple) for gold in golds):
        raise NotApplicableError("a gold answer is more than a label, a score or spans")
    return golds


def _answers(golds: list[Any]) -> list[Any]:
    """Return a prediction that is right for each gold: of several spans the first."""
    return [gold[0] if isinstance(gold, tuple) and gold else gold for gold in golds]


@TASK_CHECKS.add
def gold_scores_best(subject: Subject) -> None:
    """Predicting the gold answers has the best value of the first metric that is defined on these data."""
    golds, metric = _golds(subject), subject.task.metrics[0]
    best = metric(_answers(golds), golds)
    assert not math.isnan(best), "the metric of the gold answers is NaN"
    if metric.higher_is_better:
        assert best >= 0.999, f"{metric.key} of the gold answers is {best:.3f}"
    else:
        assert best <= 0.001, f"{metric.key} of the gold answers is {best:.3f}"


@TASK_CHECKS.add
def wrong_answers_score_less(subject: Subject) -> None:
    """Gold answers that are moved on by one example score less than at their places."""
    golds = _golds(subject)
    if len(set(map(str, golds))) < 2:
        raise NotApplicableError("all examples have one gold answer")
    shift = next(k for k in range(1, len(golds)) if golds[k:] + golds[:k] != golds)
    metric, moved = subject.task.metrics[0], golds[shift:] + golds[:shift]
    try:
        worse = metric(_answers(moved), golds)
    except ValueError as error:
        raise NotApplicableError(f"an answer fits its own example alone ({error})") from error
    difference = metric(_answers(golds), golds) - worse
    assert difference > 0 if metric.higher_is_better else difference < 0


# --- family -----------------------------------------------------------------------------------------------------------


@TASK_CHECKS.add
def family_has_its_methods(subject: Subject) -> None:
    """The family has the methods of `downstream.task.Family`, with documentation."""
    for name in FAMILY_METHODS:
        method = getattr(subject.task.family, name, None)
        assert callable(method), f"{name} is missing"
        assert inspect.getdoc(method), f"{name} has no docstring"


@TASK_CHECKS.add
def family_names_a_class_of_transformers(subject: Subject) -> None:
    """`auto_class` is a class that loads an encoder with a head."""
    _needs_head(subject)
    assert re.fullmatch(r"AutoModelFor\w+", subject.task.family.auto_class), subject.task.family.auto_class


@TASK_CHECKS.add
def family_refuses_an_unknown_answer(subject: Subject) -> None:
    """A label that the family does not know is a DataError."""
    example = subject.examples[0]
    if not isinstance(getattr(example, "label", None), str | float):
        raise NotApplicableError("examples have no label")
    if not subject.task.family.auto_class:
        raise NotApplicableError("labels are names of groups, of which there may be others")
    wrong: Any = float("inf") if isinstance(example.label, float) else "no such label\N{SNOWMAN}"
    try:
        subject.task.family.check(replace(example, label=wrong), "here")
    except DataError:
        return
    raise AssertionError(f"label={wrong!r} is accepted")


@TASK_CHECKS.add
def head_has_a_config(subject: Subject) -> None:
    """The entries of the head are a dictionary that can be saved."""
    _needs_head(subject)
    head = subject.task.family.head_config()
    assert isinstance(head, dict)
    assert all(isinstance(key, str) for key in head)


def _needs_head(subject: Subject) -> None:
    if not subject.task.family.auto_class:
        raise NotApplicableError("no encoder is fine-tuned on this family")


@functools.cache
def _tokenizer() -> Any:
    return PlainTokenizer.load(bundled("encoder"))


def _features(subject: Subject, *, with_labels: bool) -> list[dict[str, Any]]:
    _needs_head(subject)
    examples = subject.examples[:NUM_FEATURIZED]
    try:
        return subject.task.family.featurize(examples, _tokenizer(), SHORT, with_labels=with_labels)
    except (TypeError, AttributeError) as error:
        # Some families ask for offsets, which only tokenizers of transformers give.
        raise NotApplicableError(f"the family needs a tokenizer of transformers ({error})") from error


@TASK_CHECKS.add
def every_example_has_features(subject: Subject) -> None:
    """Features come in the order of the examples, at least one for each."""
    owners = [feature["_example"] for feature in _features(subject, with_labels=False)]
    assert owners == sorted(owners)
    assert set(owners) == set(range(len(subject.examples[:NUM_FEATURIZED])))


@TASK_CHECKS.add
def features_are_cut(subject: Subject) -> None:
    """No input is longer than asked for, and its parts have one length."""
    for feature in _features(subject, with_labels=False):
        assert len(feature["input_ids"]) <= SHORT
        assert len(feature["attention_mask"]) == len(feature["input_ids"])


@TASK_CHECKS.add
def labels_come_when_asked_for(subject: Subject) -> None:
    """Features have labels for training and none for prediction."""
    with_labels, without = (_features(subject, with_labels=wanted)[0] for wanted in (True, False))
    inputs = {"input_ids", "token_type_ids", "attention_mask"}
    assert {key for key in with_labels if not key.startswith("_")} - inputs, "no labels for training"
    assert not {key for key in without if not key.startswith("_")} - inputs, "labels for prediction"


@TASK_CHECKS.add
def errors_are_one_line(subject: Subject) -> None:
    """What the reader raises is a line that says where, what and what to do."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            subject.task.read(Path(folder) / "missing.file")
        except SuiteError as error:
            assert "\n" not in str(error)
            assert error.where
            assert error.fix
