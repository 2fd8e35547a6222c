"""Look for the texts of evaluation splits in training text, and count what is found.

An example is touched by a training text that contains one of its texts by a measure of `corpora.overlap`; the measure
applies to an example if it applies to one of its texts.
"""

import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tqdm import tqdm

from corpora.characters import nfc
from corpora.cleaning import letters_of
from corpora.corpus import MANIFEST, corpus_files, read_corpus, read_manifest
from corpora.foundation.errors import DataUnavailableError, ResultError, SuiteError, UsageError
from corpora.foundation.files import code_digest, fingerprint, sha256, write_signed
from corpora.foundation.machine import versions
from corpora.near_duplicates import SimilarSets
from corpora.overlap import MEASURES, EvaluationIndex, Match, Measure
from corpora.sentences import split_by_rules
from corpora.training_text import TrainingText, blocks_of
from downstream.summaries.family import SummaryExample
from downstream.task import ChoiceExample, Example, Split, Task, TextExample
from eval.contamination.files import (
    SCHEMA,
    Counts,
    Hit,
    Pair,
    find_pairs,
    hits_path,
    pair_path,
    positions_of,
    read_pair,
    write_hits,
)
from eval.contamination.report import SETTINGS, write_overview

if TYPE_CHECKING:
    from eval.cells.files import Status

CODE = (
    *(part.__module__ for part in (EvaluationIndex, SimilarSets, TrainingText, split_by_rules, letters_of, nfc)),
    __name__,
)
"""Modules that decide what is a hit; their digest is a part of a pair's recipe."""
CORPUS_NAME = re.compile(r"\w[\w.-]*")


# ---- evaluation data and training text ----


def texts_of(example: Example | SummaryExample) -> dict[str, str]:
    """Return the texts of an example that a model reads, by field."""
    if isinstance(example, SummaryExample):
        return {"text": example.text}
    if isinstance(example, ChoiceExample):
        return {"text": example.text} | {f"choice {k}": choice for k, choice in enumerate(example.choices)}
    if isinstance(example, TextExample):
        return {"text": example.text} | ({} if example.pair is None else {"pair": example.pair})
    return {"question": example.question, "context": example.context}


@dataclass(frozen=True)
class EvaluationTexts:
    """The distinct texts of an evaluation split, and the examples that they belong to."""

    task: Task
    split: Split
    occurrences: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Text → indices of examples in the split, with the field."""

    def __post_init__(self) -> None:
        """Collect the texts."""
        for position, example in enumerate(self.split.examples):
            for name, text in texts_of(example).items():
                self.occurrences.setdefault(text, []).append((position, name))

    @property
    def fingerprint(self) -> str:
        """A digest of all texts as they were read."""
        return fingerprint(ascii(self.occurrences))  # ASCII, as a lone surrogate cannot be encoded


@dataclass(frozen=True)
class Source:
    """Training text: a corpus, or a task's training split."""

    name: str
    kind: Literal["corpus", "split"]
    sha256: str
    num_documents: int | None
    """None if the documents have to be read to be counted."""
    read: Callable[[], Iterator[TrainingText]]


def corpus_source(argument: str) -> Source:
    """Open a corpus given as `DIR` or `NAME=DIR`.

    Raises:
        UsageError: the name cannot be a file's name.
        DataError: the corpus is missing, unfinished, or lacks a shard.
    """
    name, path = "", Path(argument)
    if "=" in argument and not path.exists():
        name, _, folder = argument.partition("=")
        path = Path(folder)
    name = name or path.resolve().name
    if not CORPUS_NAME.fullmatch(name):
        raise UsageError("--corpus", f"'{name}' cannot be a file's name", "write NAME=DIR, with letters and digits")
    corpus_files(path)
    is_built = path.is_dir()

    def read() -> Iterator[TrainingText]:
        for document in read_corpus(path):
            yield TrainingText(document.id, tuple(part for part in (document.title, document.text) if part))

    return Source(
        name=name,
        kind="corpus",
        sha256=sha256(path / MANIFEST if is_built else path),
        num_documents=read_manifest(path).totals.num_kept if is_built else None,
        read=read,
    )


def split_source(task: Task, split: Split) -> Source:
    """Open the training split of a task."""

    def read() -> Iterator[TrainingText]:
        for example in split.examples:
            yield TrainingText(example.id, tuple(texts_of(example).values()))

    return Source(task.train_split, "split", split.sha256, len(split.examples), read)


# ---- checking ----


class ContaminationCheck:
    """One run: tasks × training texts, the folder of the results, and the pairs that failed."""

    def __init__(self, tasks: Sequence[Task], corpora: Sequence[Source], *, root: Path, out: Path) -> None:
        """Store the arguments; nothing is read yet.

        Args:
            tasks: whose evaluation splits are looked for.
            corpora: training text, beside each task's own training split.
            root: data root.
            out: folder of the leaderboard.
        """
        self.tasks, self.corpora, self.root, self.out = tasks, corpora, root, out
        self.failures: list[Pair] = []
        self._skipped = 0

    def run(self) -> None:
        """Check every pair that is not finished; each corpus is read once for all tasks.

        Raises:
            SuiteError: a corpus is damaged, or the folder cannot be written.
        """
        self.write()  # now, so that a folder that cannot be written is reported before the work and not after it
        texts = [found for task in self.tasks if (found := self._check_task(task)) is not None]
        for corpus in self.corpora:
            self._check(corpus, texts)
        if self._skipped:
            self._log(f"{self._skipped} pairs were finished before and skipped")
        self.write()

    def write(self) -> None:
        """Write the overview of all finished pairs in the folder; a failed pair is listed if it is not among them."""
        pairs, errors = find_pairs(self.out)
        for error in errors:
            self._log(str(error))
        finished = {(pair.task, pair.corpus) for pair in pairs}
        write_overview([*pairs, *(f for f in self.failures if (f.task, f.corpus) not in finished)], self.out)

    def _check_task(self, task: Task) -> EvaluationTexts | None:
        """Check a task against its own training split; returns its texts, or None if they cannot be read."""
        try:
            texts = EvaluationTexts(task, task.read_split(task.eval_split, self.root))
        except SuiteError as error:
            self._record_failure(task, task.train_split, "split", error)
            for corpus in self.corpora:
                self._record_failure(task, corpus.name, corpus.kind, error)
            return None
        if task.train_split == task.eval_split:
            return texts  # nothing is trained
        try:
            train = split_source(task, task.read_split(task.train_split, self.root))
        except SuiteError as error:
            self._record_failure(task, task.train_split, "split", error)
        else:
            self._check(train, [texts])
        return texts

    def _check(self, source: Source, tasks: Sequence[EvaluationTexts]) -> None:
        """Look for the texts of those tasks that are not finished, all in one pass over SOURCE."""
        unfinished = [texts for texts in tasks if not self._is_finished(texts, source)]
        self._skipped += len(tasks) - len(unfinished)
        if not unfinished:
            return
        started = time.perf_counter()
        indexes = [EvaluationIndex(list(texts.occurrences), SETTINGS) for texts in unfinished]
        num_documents = 0
        label = unfinished[0].task.name if source.kind == "split" else source.name
        with tqdm(total=source.num_documents, unit="doc", unit_scale=True, desc=label, disable=None) as bar:
            for block in blocks_of(source.read()):
                for index in indexes:
                    index.scan(block)
                num_documents += len(block.ids)
                bar.update(len(block.ids))
        for texts, index in zip(unfinished, indexes, strict=True):
            pair = self._write_pair(texts, source, index, num_documents)
            found = ", ".join(f"{measure}={counts.num_touched}" for measure, counts in pair.measures.items())
            self._log(f"{pair.task} in {pair.corpus}: of {pair.num_examples} examples {found}")
        self._log(f"{source.name}: {num_documents} documents in {time.perf_counter() - started:.1f} s")

    def _is_finished(self, texts: EvaluationTexts, source: Source) -> bool:
        path = pair_path(self.out, texts.task.name, source.name)
        hits = hits_path(self.out, texts.task.name, source.name)
        if not path.is_file() or not hits.is_file():
            return False
        try:
            pair = read_pair(path)
        except ResultError:
            return False  # `write` has reported it
        same_recipe = pair.recipe_sha256 == fingerprint(self._recipe(texts, source))
        return same_recipe and pair.source == source.kind and pair.hits_sha256 == sha256(hits) and not pair.is_excerpt

    def _recipe(self, texts: EvaluationTexts, source: Source) -> dict[str, Any]:
        """Return everything that decides a pair's counts and hits."""
        return {
            "task": texts.task.name,
            "data_sha256": texts.split.sha256,
            "texts_sha256": texts.fingerprint,
            "corpus_sha256": source.sha256,
            "settings": SETTINGS.model_dump(),
            "code_sha256": code_digest(CODE),
            "versions": versions("numpy"),
        }

    def _write_pair(self, texts: EvaluationTexts, source: Source, index: EvaluationIndex, num_documents: int) -> Pair:
        task = texts.task
        all_hits: list[Hit] = []
        measures: dict[Measure, Counts] = {}
        for measure in MEASURES:
            hits = _hits(measure, texts, index)
            applies = index.applies(measure).tolist()
            suited = (found for found, holds in zip(texts.occurrences.values(), applies, strict=True) if holds)
            num_applicable = len({position for found in suited for position, _ in found})
            measures[measure] = _counts(hits, num_applicable, index.num_documents(measure), SETTINGS.min_quote)
            all_hits += hits
        path = hits_path(self.out, task.name, source.name)
        write_hits(path, all_hits)
        recipe = self._recipe(texts, source)
        pair = Pair(
            schema=SCHEMA,
            task=task.name,
            split=task.eval_split,
            corpus=source.name,
            source=source.kind,
            num_examples=len(texts.split.examples),
            num_documents=num_documents,
            corpus_sha256=source.sha256,
            data_sha256=texts.split.sha256,
            recipe_sha256=fingerprint(recipe),
            recipe=recipe,
            measures=measures,
            hits=path.relative_to(self.out).as_posix(),
            hits_sha256=sha256(path),
            num_hits=len(all_hits),
            positions=positions_of(all_hits),
        )
        write_signed(pair_path(self.out, task.name, source.name), pair.model_dump(by_alias=True))
        return pair

    def _record_failure(self, task: Task, corpus: str, kind: Literal["corpus", "split"], error: SuiteError) -> None:
        status: Status = "unavailable" if isinstance(error, DataUnavailableError) else "failed"
        self.failures.append(
            Pair(
                schema=SCHEMA,
                task=task.name,
                split=task.eval_split,
                corpus=corpus,
                source=kind,
                status=status,
                reason=str(error),
            )
        )
        self._log(f"{task.name} in {corpus}: {status}: {error}")

    @staticmethod
    def _log(line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _hits(measure: Measure, texts: EvaluationTexts, index: EvaluationIndex) -> list[Hit]:
    """Return the hits of one measure in the order of the examples."""
    examples, distinct = texts.split.examples, list(texts.occurrences)
    hits = [
        _hit(measure, examples[position].id, position, name, distinct[match.text], match)
        for match in index.matches(measure)
        for position, name in texts.occurrences[distinct[match.text]]
    ]
    return sorted(hits, key=lambda hit: hit.position)


def _hit(measure: Measure, example: str, position: int, name: str, text: str, match: Match) -> Hit:
    return Hit(
        measure=measure,
        example=example,
        position=position,
        field=name,
        num_letters=len(letters_of(nfc(text))),
        similarity=round(match.similarity, 4),
        num_documents=match.num_documents,
        document=match.document,
        text=" ".join(text.split()),
        snippet=match.snippet,
    )


def _counts(hits: Collection[Hit], num_applicable: int, num_documents: int, min_letters: int) -> Counts:
    touched = {hit.position for hit in hits}
    by_longer = {hit.position for hit in hits if hit.num_letters >= min_letters}
    fields = sorted({hit.field for hit in hits})
    return Counts(
        num_applicable=num_applicable,
        num_touched=len(touched),
        num_touched_short=len(touched - by_longer),
        share=len(touched) / num_applicable if num_applicable else None,
        fields={name: len({hit.position for hit in hits if hit.field == name}) for name in fields},
        num_documents=num_documents,
    )
