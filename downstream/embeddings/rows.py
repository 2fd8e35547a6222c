"""Training rows of the stages of an embedder: read from their data, and drawn into batches."""

import collections
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from corpora.corpus import MANIFEST, read_corpus
from corpora.documents import Document
from corpora.foundation.errors import DataError, RecipeError, suggest
from corpora.foundation.files import SAMPLE_ROOT, fingerprint, sha256
from corpora.readers.dates import parse_date
from downstream.embeddings.embedder import clean_text
from downstream.embeddings.neighbours import same_day_negatives
from downstream.embeddings.recipe import (
    NLI_LABELS,
    DropoutPairs,
    HeadlineBody,
    HeadlineDay,
    NliRanking,
    NliSoftmax,
    Stage,
    StsCosine,
    TeacherVectors,
)
from downstream.families.classification import Classification, Regression
from downstream.task import Task, TextExample, all_tasks, get_task
from pretraining.data.vectors import MANIFEST as VECTOR_MANIFEST
from pretraining.data.vectors import StoredVectors

SAMPLE = "sample"
STRETCH = 32
"""Batches within which texts are sorted by length."""


@dataclass
class Source:
    """Origin of rows, for the manifest."""

    name: str
    sha256: str
    licence: str
    """Empty if unknown."""
    num_rows: int = 0
    left_out: collections.Counter[str] = field(default_factory=collections.Counter)
    """Number of examples or documents without a row, by reason."""
    attribution: str = ""
    """Of the teacher whose vectors these are."""


@dataclass(frozen=True)
class Rows:
    """Training rows of a stage."""

    columns: Mapping[str, Sequence[Any]]
    """Column → N values."""
    keys: Sequence[frozenset[bytes]] | None
    """Digests of each row's texts, which no other row of its batch may share; None without in-batch negatives."""
    sources: Sequence[Source]
    vectors: Sequence[StoredVectors] = ()
    """Of teachers; the label of a row is its number in all of them together."""

    def __len__(self) -> int:
        """Return N."""
        return len(next(iter(self.columns.values())))

    def pairs(self) -> Iterator[frozenset[bytes]]:
        """Yield the first two texts of every row as an unordered pair of digests; nothing where a row has one text."""
        one, two, *_ = self.columns.values()
        if self.vectors:
            return
        yield from (frozenset((text_key(a), text_key(b))) for a, b in zip(one, two, strict=True))


def text_key(text: str) -> bytes:
    """Return a digest of a text without its white space."""
    return hashlib.blake2b("".join(text.split()).encode(), digest_size=8).digest()


def read_rows(stage: Stage, root: Path, where: str) -> Rows:
    """Read the data of a stage.

    Args:
        stage: settings of the stage.
        root: data root of the tasks.
        where: position in the recipe, for error messages.

    Raises:
        RecipeError: a source is unknown or does not fit the stage.
        DataError: a source is unavailable or damaged, or gives fewer than two rows.
    """
    if isinstance(stage, TeacherVectors):
        return _read_vectors(stage, where)
    has_batch_negatives = "label" not in stage.columns
    sources: list[Source] = []
    rows: list[tuple[Any, ...]] = []
    known: set[tuple[Any, ...]] = set()
    for name in stage.data:
        source, found = _read_source(stage, name, root, where)
        for row in found:
            # With in-batch negatives a second copy adds nothing; elsewhere it counts as a weight.
            if has_batch_negatives and row in known:
                source.left_out["repeated"] += 1
            else:
                known.add(row)
                rows.append(row)
                source.num_rows += 1
        sources.append(source)
    if len(rows) < 2:
        raise DataError(f"{where}, data", f"{len(rows)} rows in {', '.join(stage.data)}", "give more data")
    columns = dict(zip(stage.columns, zip(*rows, strict=True), strict=True))
    keys = [frozenset(map(text_key, row)) for row in rows] if has_batch_negatives else None
    return Rows(columns, keys, sources)


def _read_vectors(stage: TeacherVectors, where: str) -> Rows:
    folders = []
    for name in stage.data:
        if not (Path(name) / VECTOR_MANIFEST).is_file():
            raise RecipeError(
                f"{where}, data", f"'{name}' is no folder of vectors", "python -m downstream.embed vectors"
            )
        folders.append((name, StoredVectors.open(Path(name))))
    if len({vectors.manifest.dimension for _, vectors in folders}) > 1:
        raise RecipeError(f"{where}, data", "the teachers' vectors differ in length", "give a stage to each teacher")
    texts = [clean_text(text) for _, vectors in folders for text in vectors.texts]
    sources = [
        Source(name, vectors.sha256, "", len(vectors.texts), attribution=vectors.manifest.attribution)
        for name, vectors in folders
    ]
    return Rows({"sentence": texts, "label": range(len(texts))}, None, sources, [vectors for _, vectors in folders])


def _read_source(stage: Stage, name: str, root: Path, where: str) -> tuple[Source, Iterable[tuple[Any, ...]]]:
    where = f"{where}, data"
    if name.partition(":")[0].replace("_", "-").lower() in all_tasks():
        task, source, examples = _read_task_part(name, root, where)
        _check_fits(stage, task, examples, where)
        if isinstance(stage, NliRanking):
            return source, _triples(examples, source.left_out)
        if isinstance(stage, DropoutPairs):
            return source, _identical_pairs(chain.from_iterable((e.text, e.pair or "") for e in examples))
        return source, _labelled_pairs(examples, task)
    path = SAMPLE_ROOT / "news.jsonl" if name == SAMPLE else Path(name)
    if not isinstance(stage, HeadlineBody | DropoutPairs) or not path.exists():
        raise RecipeError(where, f"'{name}' is not a task, file or folder", suggest(name, all_tasks()))
    documents = list(read_corpus(path))
    source = Source(name, sha256(path / MANIFEST if path.is_dir() else path), "CC0-1.0" if name == SAMPLE else "")
    if isinstance(stage, HeadlineBody):
        articles = _of_training_days(headlines(documents, source.left_out), stage.held_out_days, source.left_out)
        if isinstance(stage, HeadlineDay):
            return source, _same_day(list(articles), stage.max_likeness, source.left_out)
        return source, ((title, body) for title, body, _ in articles)
    return source, _identical_pairs(chain.from_iterable((d.title, *d.text.split("\n")) for d in documents))


def _read_task_part(name: str, root: Path, where: str) -> tuple[Task, Source, Sequence[Any]]:
    """Read `task`, `task:split` or `task:file`."""
    key, _, part = name.partition(":")
    task = get_task(key)
    part = part or task.train_split
    if part in task.num_examples:
        split = task.read_split(part, root)
        return task, Source(name, split.sha256, task.licence), split.examples
    if part not in task.files:
        raise RecipeError(where, f"{task.name} has no part '{part}'", suggest(part, {*task.num_examples, *task.files}))
    path = task.path(part, root)
    examples = task.read(path)
    for number, example in enumerate(examples, start=1):
        task.family.check(example, f"{path}, example {number}")
    return task, Source(name, sha256(path), task.licence), examples


def _check_fits(stage: Stage, task: Task, examples: Sequence[Any], where: str) -> None:
    family = task.family
    if isinstance(stage, NliSoftmax | NliRanking):
        fits, wanted = isinstance(family, Classification) and set(family.labels) == set(NLI_LABELS), "kornli, klue-nli"
    elif isinstance(stage, StsCosine):
        fits, wanted = isinstance(family, Regression), "korsts, klue-sts"
    elif isinstance(stage, DropoutPairs):
        fits, wanted = isinstance(examples[0], TextExample), "nsmc, a corpus folder"
    else:
        fits, wanted = False, "a corpus folder or a file with titles and texts"
    if not fits:
        raise RecipeError(where, f"{task.name} does not fit this stage", f"give e.g. {wanted}")


def _labelled_pairs(examples: Iterable[TextExample], task: Task) -> Iterator[tuple[str, str, int | float]]:
    for example in examples:
        if isinstance(task.family, Regression):
            low, high = task.family.low, task.family.high
            label: int | float = (float(example.label) - low) / (high - low)
        else:
            label = NLI_LABELS.index(str(example.label))
        yield clean_text(example.text), clean_text(example.pair), label


def _triples(examples: Iterable[TextExample], left_out: collections.Counter[str]) -> Iterator[tuple[str, str, str]]:
    """Yield premise, entailed hypothesis and contradicting hypothesis; a premise's contradictions are used in turn."""
    hypotheses: dict[str, dict[str, list[str]]] = {}
    for example in examples:
        of_premise = hypotheses.setdefault(clean_text(example.text), {label: [] for label in NLI_LABELS})
        of_premise[str(example.label)].append(clean_text(example.pair))
    for premise, found in hypotheses.items():
        entailed, contradicting = found["entailment"], found["contradiction"]
        if not entailed or not contradicting:
            left_out["premise without entailment or without contradiction"] += 1
            continue
        for k, hypothesis in enumerate(entailed):
            yield premise, hypothesis, contradicting[k % len(contradicting)]


def headlines(documents: Iterable[Document], left_out: collections.Counter[str]) -> Iterator[tuple[str, str, str]]:
    """Yield title, body and day."""
    for document in documents:
        title, body = clean_text(document.title).strip(), clean_text(document.text).strip()
        body = body.removeprefix(title).strip()
        if title and body:
            yield title, body, parse_date(document.date)[:10]
        else:
            left_out["no title" if body else "no text but the title"] += 1


def is_held_out(day: str, share: float) -> bool:
    """Return whether a day is among the SHARE of all days that a hash holds out; articles without a day never are."""
    return bool(day) and int(fingerprint(f"same day {day}")[:8], 16) < share * (1 << 32)


def _of_training_days(
    articles: Iterable[tuple[str, str, str]], held_out_days: float, left_out: collections.Counter[str]
) -> Iterator[tuple[str, str, str]]:
    for article in articles:
        if is_held_out(article[2], held_out_days):
            left_out["held-out day"] += 1
        else:
            yield article


def _same_day(
    articles: Sequence[tuple[str, str, str]], max_likeness: float, left_out: collections.Counter[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield title, body and the body of a similar article of the day."""
    unique = list(dict.fromkeys(articles))
    left_out["repeated"] += len(articles) - len(unique)
    negatives = same_day_negatives([day for *_, day in unique], [body for _, body, _ in unique], max_likeness)
    for (title, body, _), negative in zip(unique, negatives, strict=True):
        if negative is None:
            left_out["no other story of the day"] += 1
        else:
            yield title, body, unique[negative][1]


def _identical_pairs(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        clean = clean_text(text).strip()
        if clean:
            yield clean, clean


def make_batches(rows: Rows, stage: Stage, seed: int) -> list[list[int]]:
    """Draw the batches of a whole stage in advance, so that a resumed stage uses the same ones.

    Texts with a teacher's vectors are put into batches of similar length, which saves padding: stretches of 32 batches
    are sorted by length, and their batches shuffled. With in-batch negatives, no two rows of a batch share a text,
    which would be a false negative: a row goes into the first batch with room after the last batch that contains one of
    its texts. Batches less than half as large as the largest one are dropped.

    Args:
        rows: training rows.
        stage: settings of the stage.
        seed: of the order.

    Returns:
        Row numbers of each optimizer step.
    """
    generator = np.random.default_rng(seed)
    batches: list[list[int]] = []
    num_steps = None
    while num_steps is None or len(batches) < num_steps:
        order = generator.permutation(len(rows)).tolist()
        if isinstance(stage, TeacherVectors):
            batches += _by_length(order, [len(text) for text in rows.columns["sentence"]], stage.batch_size, generator)
        else:
            batches += _one_pass(order, rows.keys, stage.batch_size)
        num_steps = num_steps or max(1, round(stage.epochs * len(batches)))
    return batches[:num_steps]


def _by_length(order: list[int], lengths: Sequence[int], size: int, generator: np.random.Generator) -> list[list[int]]:
    """Cut ORDER into batches of rows of similar length, within stretches of 32 batches."""
    batches: list[list[int]] = []
    for first in range(0, len(order), STRETCH * size):
        stretch = sorted(order[first : first + STRETCH * size], key=lengths.__getitem__)
        found = [stretch[k : k + size] for k in range(0, len(stretch), size)]
        batches += [found[k] for k in generator.permutation(len(found))]
    return batches


def _one_pass(order: list[int], keys: Sequence[frozenset[bytes]] | None, size: int) -> list[list[int]]:
    if keys is None:
        return [order[first : first + size] for first in range(0, len(order), size)]
    batches: list[list[int]] = []
    next_open: list[int] = []  # for a full batch, a later one that may have room: skips full batches in few steps
    last_batch: dict[bytes, int] = {}
    for row in order:
        index = max(last_batch.get(key, -1) + 1 for key in keys[row])
        full = []
        while index < len(batches) and len(batches[index]) == size:
            full.append(index)
            index = next_open[index]
        for passed in full:
            next_open[passed] = index
        if index == len(batches):
            batches.append([])
            next_open.append(index + 1)
        batches[index].append(row)
        last_batch |= dict.fromkeys(keys[row], index)
    largest = max(map(len, batches))
    return [batch for batch in batches if 2 * len(batch) >= largest]
