"""How much of the evaluation data stands in training text, and what scores are worth without it.

    python -m eval.contamination --corpus runs/corpus --tasks nsmc korquad --data DATA --out reports

Every task is compared with every corpus made by `corpora.build` and with its own training split, by the measures of
`corpora.overlap`. All texts that a model reads are compared (text, pair, question, context), gold answers are not. An
example is touched if one of its texts is, and a measure applies to it if it applies to one of them. What comes out:

    DIR/contamination.json                    all pairs: counts by measure, digests, settings
    DIR/contamination.md                      the same to read
    DIR/contamination/TASK/CORPUS.json        one finished pair, which is what makes a second run skip it
    DIR/contamination/TASK/CORPUS.hits.tsv    what was found in this pair, to read or to open as a table

`touched_examples` and `clean_score` read these files, for scores with and without the touched examples.
"""

import csv
import io
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import Field, ValidationError
from tqdm import tqdm

from corpora import overlap, sentences
from corpora.cleaning import letters_of
from corpora.corpus import MANIFEST, corpus_files, read_corpus, read_manifest
from corpora.documents import nfc
from corpora.foundation.config import Config
from corpora.foundation.errors import DataUnavailableError, ResultError, SuiteError, UsageError
from corpora.foundation.files import atomic_file, fingerprint, sha256, write_json, write_text
from corpora.foundation.machine import versions
from corpora.overlap import (
    MEASURES,
    EvaluationIndex,
    Match,
    Measure,
    OverlapConfig,
    TrainingText,
    blocks_of,
)
from downstream.finetuning.result import Result
from downstream.metrics import FloatArray, Metric, bootstrap_ci95
from downstream.summaries.family import SummaryExample
from downstream.task import ChoiceExample, Example, Split, Task, TextExample, get_task
from eval.board.rows import CleanFigure, Table
from eval.cells.files import Status

SCHEMA: Literal[1] = 1
SETTINGS = OverlapConfig()
CODE = tuple(Path(str(module.__file__)) for module in (overlap, sentences))
FOLDER = "contamination"
CORPUS_NAME = re.compile(r"\w[\w.-]*")

MEASURE_TITLES: Mapping[Measure, tuple[str, str]] = {
    "exact": ("완전 일치", "exact"),
    "normalised": ("정규화 일치", "normalised"),
    "ngram": ("어절 13-gram", "13-gram of eojeol"),
    "letter_ngram": ("글자 13-gram", "13-gram of letters"),
    "minhash": ("MinHash", "MinHash"),
}
MEASURE_MEANINGS: Mapping[Measure, tuple[str, str]] = {
    "exact": (
        "학습 문서의 제목, 본문 또는 한 줄과 NFC로 똑같음",
        "equal, as NFC, to the title, the text or a line of a training document",
    ),
    "normalised": (
        "대소문자, 빈칸, 문장 부호, 기호를 빼면 똑같음. {min_quote}자부터는 더 긴 글에 통째로 들어 있어도 해당",
        "equal without case, white space, punctuation and symbols; from {min_quote} letters on also as part of a "
        "longer text",
    ),
    "ngram": (
        "잇따른 {ngram}어절이 하나라도 학습 글에 있음. {ngram}어절보다 짧은 글에는 쓸 수 없음",
        "any {ngram} eojeol in a row occur in the training text; not applicable to shorter texts",
    ),
    "letter_ngram": (
        "잇따른 {ngram}글자 조각의 {min_share:.0%} 이상이 학습 글 어딘가에 있음. {ngram}자보다 짧은 글에는 쓸 수 없음",
        "{min_share:.0%} of the runs of {ngram} letters occur anywhere in the training text; not applicable to shorter "
        "texts",
    ),
    "minhash": (
        "{shingle}글자 조각 집합의 자카드 지수가 {min_jaccard} 이상인 글, 줄 또는 문장({min_quote}자부터)이 있음. "
        "{shingle}자보다 짧은 글에는 쓸 수 없음",
        "the set of runs of {shingle} letters has a Jaccard index of {min_jaccard} or more with that of a text, line "
        "or sentence (of {min_quote} letters or more); not applicable to texts below {shingle} letters",
    ),
}


# ---- what is on the disk ----


class Counts(Config):
    """What one measure found for one task in one corpus."""

    num_applicable: int
    """Examples with a text that is long enough for the measure."""
    num_touched: int
    num_touched_short: int
    """Of these, the ones that only texts of fewer than `min_quote` letters touch: people write them independently."""
    share: float | None
    """`num_touched / num_applicable`; None where the measure applies to no example."""
    fields: dict[str, int]
    """Touched examples by the field that is touched: text, pair, question, context."""
    num_documents: int
    """Training documents, or examples, that touch any text; for n-grams, those with at least one of them."""


class Pair(Config):
    """One task against one corpus, or against its own training split."""

    schema_version: Literal[1] = Field(default=SCHEMA, alias="schema")
    task: str
    split: str
    """Of the task, whose examples are looked for."""
    corpus: str
    """The corpus's name, or that of the task's training split."""
    source: Literal["corpus", "split"]
    status: Status = "ok"
    reason: str = ""
    """Why there are no counts, and what to do."""
    num_examples: int = 0
    num_documents: int = 0
    """Training documents, or examples, that were read."""
    corpus_sha256: str = ""
    """Of the corpus's manifest, which lists the digests of its shards; of a single file or split, its own."""
    data_sha256: str = ""
    """Of the evaluation split, as in results."""
    recipe_sha256: str = ""
    """Fingerprint of what decides the counts."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """What the fingerprint was taken of: digests, settings, code, versions."""
    measures: dict[Measure, Counts] = Field(default_factory=dict)
    hits: str = ""
    """The file of hits, relative to the folder of `contamination.json`."""
    hits_sha256: str = ""


class ContaminationFile(Config):
    """`contamination.json`. It holds no time and no folder: the same data give the same bytes."""

    schema_version: Literal[1] = Field(default=SCHEMA, alias="schema")
    pairs: tuple[Pair, ...]


class Hit(Config):
    """A text of an evaluation example that a measure found in training text."""

    measure: Measure
    example: str
    """The example's id."""
    position: int
    """The example's place in the evaluation file, counted from 0."""
    field: str
    num_letters: int
    similarity: float
    """See `corpora.overlap.Match`, as the next three."""
    num_documents: int
    document: str
    text: str
    """The evaluation text, white space collapsed."""
    snippet: str


HIT_COLUMNS: Mapping[str, str] = {
    "measure": "기준 (measure)",
    "example": "예제 (example)",
    "position": "순번 (position)",
    "field": "항목 (field)",
    "num_letters": "글자 수 (letters)",
    "similarity": "유사도 (similarity)",
    "num_documents": "학습 문서 수 (documents)",
    "document": "학습 문서 (document)",
    "text": "평가 글 (evaluation text)",
    "snippet": "학습 글 (training text)",
}
"""Field → heading in a file of hits."""


def pair_path(out: Path, task: str, corpus: str) -> Path:
    """Return where a finished pair lies."""
    return out / FOLDER / task / f"{corpus}.json"


def hits_path(out: Path, task: str, corpus: str) -> Path:
    """Return where a pair's hits lie."""
    return out / FOLDER / task / f"{corpus}.hits.tsv"


def read_pair(path: Path) -> Pair:
    """Read a finished pair.

    Raises:
        ResultError: the file is missing, damaged or of another schema.
    """
    fix = "delete it and run python -m eval.contamination again"
    try:
        return Pair.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ResultError(path, error.strerror or str(error), "run python -m eval.contamination first") from error
    except ValidationError as error:
        raise ResultError(path, f"not a pair of schema {SCHEMA} ({error.errors()[0]['msg']})", fix) from error


def find_pairs(out: Path) -> tuple[list[Pair], list[ResultError]]:
    """Return all finished pairs under OUT, a task's own training split first, and what could not be read."""
    pairs, errors = [], []
    for path in sorted((out / FOLDER).glob("*/*.json")):
        try:
            pairs.append(read_pair(path))
        except ResultError as error:
            errors.append(error)
    return sorted(pairs, key=_order), errors


def merge_pairs(folders: Iterable[Path], out: Path) -> list[ResultError]:
    """Copy the finished pairs of other leaderboard folders to OUT, with their hits; of the same pair the last stays.

    Returns:
        What could not be read.

    Raises:
        ResultError: OUT cannot be written.
    """
    errors: list[ResultError] = []
    for folder in folders:
        pairs, damaged = find_pairs(folder)
        errors += damaged
        for pair in pairs:
            # The pair comes last, because it is what says that the hits are there.
            for path in (hits_path, pair_path):
                source = path(folder, pair.task, pair.corpus)
                if source.is_file():
                    with atomic_file(path(out, pair.task, pair.corpus), "wb") as file:
                        file.write(source.read_bytes())
    merged, _ = find_pairs(out)
    if merged:
        _write_overview(merged, out)
    return errors


def _write_overview(pairs: Sequence[Pair], out: Path) -> None:
    content = ContaminationFile(schema=SCHEMA, pairs=tuple(pairs))
    write_json(out / f"{FOLDER}.json", content.model_dump(by_alias=True))
    write_text(out / f"{FOLDER}.md", to_markdown(pairs))


def _order(pair: Pair) -> tuple[str, bool, str]:
    return pair.task, pair.source != "split", pair.corpus


def write_hits(path: Path, hits: Iterable[Hit]) -> None:
    """Write hits as tab-separated values.

    Raises:
        ResultError: the file cannot be written.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, "excel-tab", lineterminator="\n")
    writer.writerow(HIT_COLUMNS.values())
    writer.writerows([getattr(hit, name) for name in HIT_COLUMNS] for hit in hits)
    # A lone surrogate, which JSON can hold, is no text that could be written.
    write_text(path, buffer.getvalue().encode("utf-8", "replace").decode("utf-8"))


def read_hits(path: Path) -> list[Hit]:
    """Read a file of hits.

    Raises:
        ResultError: it is missing or damaged.
    """
    fix = "delete it and run python -m eval.contamination again"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, "excel-tab")
            if next(rows, None) != list(HIT_COLUMNS.values()):
                raise ResultError(path, "not a file of hits", fix)
            return [Hit.model_validate(dict(zip(HIT_COLUMNS, row, strict=True))) for row in rows]
    except OSError as error:
        raise ResultError(path, error.strerror or str(error), "run python -m eval.contamination first") from error
    except (csv.Error, UnicodeDecodeError, ValueError) as error:  # pydantic's ValidationError is a ValueError
        raise ResultError(path, f"not a file of hits ({str(error).splitlines()[0]})", fix) from error


# ---- scores with and without the touched examples ----

AnyMeasure: TypeAlias = Measure | Literal["any"]


@dataclass(frozen=True)
class Touched:
    """The examples of a task that a corpus touches."""

    task: str
    data_sha256: str
    """Of the evaluation split they are in."""
    num_examples: int
    """In this split."""
    ids: frozenset[str]
    positions: frozenset[int]
    """Their places in the evaluation file, counted from 0."""


@dataclass(frozen=True)
class Figure:
    """A metric on some examples, averaged over seeds."""

    value: float | None
    """Fraction; None where it is undefined, as without examples."""
    ci95: tuple[float, float] | None
    """95 % bootstrap interval over these examples."""
    num_examples: int


@dataclass(frozen=True)
class CleanScore:
    """A metric on all examples, on those that are not touched, and on those that are."""

    all: Figure
    clean: Figure
    touched: Figure


def touched_examples(out: Path, task: str, corpus: str, *, min_letters: int = 0) -> dict[AnyMeasure, Touched]:
    """Return the examples of a task that a corpus touches, by measure, and by `any` of them.

    Args:
        out: folder of `contamination.json`.
        task: the task's name.
        corpus: the corpus's name, or that of the task's training split.
        min_letters: shorter texts touch nothing; 20 leaves out what people write independently of each other.

    Raises:
        ResultError: the pair was not checked yet, or its files are damaged.
    """
    pair, path = read_pair(pair_path(out, task, corpus)), hits_path(out, task, corpus)
    hits = [hit for hit in read_hits(path) if hit.num_letters >= min_letters]
    if sha256(path) != pair.hits_sha256:
        raise ResultError(path, "not the hits that were counted", "run python -m eval.contamination again")
    of_measure: dict[AnyMeasure, list[Hit]] = {
        measure: [hit for hit in hits if hit.measure == measure] for measure in MEASURES
    }
    return {
        measure: Touched(
            task=task,
            data_sha256=pair.data_sha256,
            num_examples=pair.num_examples,
            ids=frozenset(hit.example for hit in found),
            positions=frozenset(hit.position for hit in found),
        )
        for measure, found in (of_measure | {"any": hits}).items()
    }


def clean_score(
    result: Result | Sequence[Result], touched: Touched, *, seed: int = 0, keys: Collection[str] | None = None
) -> dict[str, CleanScore]:
    """Return each metric of a result with and without the touched examples; nothing is predicted anew.

    Args:
        result: one model's result on a task, or its results of several seeds, which are averaged.
        touched: of the same task.
        seed: of the bootstrap.
        keys: of the metrics that are wanted; default: all.

    Returns:
        Metric key → figures.

    Raises:
        ResultError: a result is of another task or other data than TOUCHED.
        ValueError: there is no result.
    """
    results = [result] if isinstance(result, Result) else list(result)
    if not results:
        raise ValueError("no result to score")
    for each in results:
        _check_same_data(each, touched)
    is_touched = np.zeros(touched.num_examples, np.bool_)
    is_touched[list(touched.positions)] = True
    scores = {}
    for metric in get_task(touched.task).metrics:
        if (keys is None or metric.key in keys) and all(metric.key in each.columns for each in results):
            columns = [each.metric_columns(metric.key) for each in results]
            groups = (np.ones_like(is_touched), ~is_touched, is_touched)
            figures = [_figure(metric, [array[group] for array in columns], seed) for group in groups]
            scores[metric.key] = CleanScore(*figures)
    return scores


def _check_same_data(result: Result, touched: Touched) -> None:
    where = f"{result.model} on {result.task}, seed {result.seed}"
    evaluated = result.data_sha256.rpartition("+")[2]  # behind that of the training split
    if result.task != touched.task:
        raise ResultError(where, f"the touched examples are of {touched.task}", "give those of the same task")
    if evaluated != touched.data_sha256 or result.num_examples != touched.num_examples:
        what = "scored on other data than were checked for contamination"
        raise ResultError(where, what, "run python -m eval.contamination again with the same --data")


def _figure(metric: Metric, columns: list[FloatArray], seed: int) -> Figure:
    num_examples = len(columns[0])
    values = [metric.fold(array) for array in columns] if num_examples else [np.nan]
    if np.isnan(values).any():
        return Figure(None, None, num_examples)
    return Figure(float(np.mean(values)), bootstrap_ci95(metric, columns, seed=seed), num_examples)


def with_clean_scores(table: Table, out: Path) -> tuple[Table, list[Pair], list[ResultError]]:
    """Add figures without the touched examples to the rows of those tasks that were checked.

    Args:
        table: of the folder's cells.
        out: folder of the leaderboard, in which `python -m eval.contamination` has left its files, or none.

    Returns:
        The table, all pairs of its tasks that were checked, and what could not be used.
    """
    pairs, errors = find_pairs(out)
    names = {cell.task for cell in table.cells}
    pairs = [pair for pair in pairs if pair.status == "ok" and pair.task in names]
    figures: dict[tuple[str, str], list[CleanFigure]] = {}
    for pair in pairs:
        metric = get_task(pair.task).metrics[0].key
        try:
            touched = touched_examples(out, pair.task, pair.corpus)["any"]
            for model, cells in table.cells_of(pair.task).items():
                if touched.positions and (found := clean_score(cells, touched, keys={metric}).get(metric)) is not None:
                    figures.setdefault((pair.task, model), []).append(_clean_figure(pair, touched, found))
        except ResultError as error:
            errors.append(error)
    rows = [
        row.model_copy(update={"clean": figures[row.task, row.model]})
        if row.source == "measured"
        and (row.task, row.model) in figures
        and row.metric == get_task(row.task).metrics[0].key
        else row
        for row in table.rows
    ]
    return replace(table, rows=rows), pairs, errors


def _clean_figure(pair: Pair, touched: Touched, found: CleanScore) -> CleanFigure:
    return CleanFigure(
        corpus=pair.corpus,
        source=pair.source,
        num_touched=len(touched.positions),
        value=found.clean.value,
        ci95=found.clean.ci95,
        touched_value=found.touched.value,
    )


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
    """The distinct texts of an evaluation split, and where each of them stands."""

    task: Task
    split: Split
    places: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Text → places of examples in the split, with the field."""

    def __post_init__(self) -> None:
        """Collect the texts."""
        for position, example in enumerate(self.split.examples):
            for name, text in texts_of(example).items():
                self.places.setdefault(text, []).append((position, name))

    @property
    def fingerprint(self) -> str:
        """A digest of all texts as they were read."""
        return fingerprint(ascii(self.places))  # ASCII, as a lone surrogate cannot be encoded


@dataclass(frozen=True)
class Source:
    """Training text: a corpus, or a task's training split."""

    name: str
    kind: Literal["corpus", "split"]
    sha256: str
    num_documents: int | None
    """None where it takes reading them to know."""
    read: Callable[[], Iterator[TrainingText]]


def corpus_source(argument: str) -> Source:
    """Open a corpus given as `DIR`, or as `NAME=DIR` where folders are called alike.

    Raises:
        UsageError: the name is no name.
        DataError: it is missing, unfinished, or lacks a shard.
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


class Check:
    """One call: which pairs are asked for, where they go, and what became of them."""

    def __init__(self, tasks: Sequence[Task], corpora: Sequence[Source], *, root: Path, out: Path) -> None:
        """Remember the question; nothing is read yet.

        Args:
            tasks: whose evaluation splits are looked for.
            corpora: training text, beside each task's own training split.
            root: data root.
            out: folder of the leaderboard.
        """
        self.tasks, self.corpora, self.root, self.out = tasks, corpora, root, out
        self.missing: list[Pair] = []
        self._skipped = 0

    def fill(self) -> None:
        """Check every pair that is not finished; each corpus is read once for all tasks."""
        self.write()  # a folder that cannot be written is told now, not at the end
        texts = [found for task in self.tasks if (found := self._check_task(task)) is not None]
        for corpus in self.corpora:
            self._check(corpus, texts)
        if self._skipped:
            self._tell(f"{self._skipped} pairs were finished before and skipped")
        self.write()

    def write(self) -> list[Pair]:
        """Write `contamination.json` and `contamination.md` of all pairs in the folder and this call's gaps.

        A gap shows only where nothing is finished.
        """
        pairs, errors = find_pairs(self.out)
        for error in errors:
            self._tell(str(error))
        finished = {(pair.task, pair.corpus) for pair in pairs}
        pairs += [pair for pair in self.missing if (pair.task, pair.corpus) not in finished]
        pairs.sort(key=_order)
        _write_overview(pairs, self.out)
        return pairs

    def _check_task(self, task: Task) -> EvaluationTexts | None:
        """Check a task against its own training split; returns its texts, if they are to be had."""
        try:
            texts = EvaluationTexts(task, task.read_split(task.eval_split, self.root))
        except SuiteError as error:
            self._miss(task, task.train_split, "split", error)
            for corpus in self.corpora:
                self._miss(task, corpus.name, corpus.kind, error)
            return None
        try:
            train = split_source(task, task.read_split(task.train_split, self.root))
        except SuiteError as error:
            self._miss(task, task.train_split, "split", error)
        else:
            self._check(train, [texts])
        return texts

    def _check(self, source: Source, tasks: Sequence[EvaluationTexts]) -> None:
        """Look for the texts of those tasks that are not finished, all in one pass."""
        left = [texts for texts in tasks if not self._is_finished(texts, source)]
        self._skipped += len(tasks) - len(left)
        if not left:
            return
        started = time.perf_counter()
        indexes = [EvaluationIndex(list(texts.places), SETTINGS) for texts in left]
        num_documents = 0
        label = left[0].task.name if source.kind == "split" else source.name
        with tqdm(total=source.num_documents, unit="doc", unit_scale=True, desc=label, disable=None) as bar:
            for block in blocks_of(source.read()):
                for index in indexes:
                    index.scan(block)
                num_documents += len(block.ids)
                bar.update(len(block.ids))
        for texts, index in zip(left, indexes, strict=True):
            pair = self._write_pair(texts, source, index, num_documents)
            found = ", ".join(f"{measure}={counts.num_touched}" for measure, counts in pair.measures.items())
            self._tell(f"{pair.task} in {pair.corpus}: of {pair.num_examples} examples {found}")
        self._tell(f"{source.name}: {num_documents} documents in {time.perf_counter() - started:.1f} s")

    def _is_finished(self, texts: EvaluationTexts, source: Source) -> bool:
        path = pair_path(self.out, texts.task.name, source.name)
        hits = hits_path(self.out, texts.task.name, source.name)
        if not path.is_file() or not hits.is_file():
            return False
        try:
            pair = read_pair(path)
        except ResultError:
            return False  # told when the folder was read; the pair is checked anew
        same_recipe = pair.recipe_sha256 == fingerprint(self._recipe(texts, source))
        return same_recipe and pair.source == source.kind and pair.hits_sha256 == sha256(hits)

    def _recipe(self, texts: EvaluationTexts, source: Source) -> dict[str, Any]:
        """Return everything that decides a pair's counts and hits."""
        return {
            "task": texts.task.name,
            "data_sha256": texts.split.sha256,
            "texts_sha256": texts.fingerprint,
            "corpus_sha256": source.sha256,
            "settings": SETTINGS.model_dump(),
            "code_sha256": sha256(*CODE, Path(__file__)),
            "versions": versions("numpy"),
        }

    def _write_pair(self, texts: EvaluationTexts, source: Source, index: EvaluationIndex, num_documents: int) -> Pair:
        task, examples = texts.task, texts.split.examples
        distinct = list(texts.places)
        all_hits: list[Hit] = []
        measures: dict[Measure, Counts] = {}
        for measure in MEASURES:
            hits = [
                _hit(measure, examples[position].id, position, name, distinct[match.text], match)
                for match in index.matches(measure)
                for position, name in texts.places[distinct[match.text]]
            ]
            hits.sort(key=lambda hit: hit.position)
            applies = index.applies(measure).tolist()
            suited = (places for places, holds in zip(texts.places.values(), applies, strict=True) if holds)
            num_applicable = len({position for places in suited for position, _ in places})
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
            num_examples=len(examples),
            num_documents=num_documents,
            corpus_sha256=source.sha256,
            data_sha256=texts.split.sha256,
            recipe_sha256=fingerprint(recipe),
            recipe=recipe,
            measures=measures,
            hits=path.relative_to(self.out).as_posix(),
            hits_sha256=sha256(path),
        )
        write_json(pair_path(self.out, task.name, source.name), pair.model_dump(by_alias=True))
        return pair

    def _miss(self, task: Task, corpus: str, kind: Literal["corpus", "split"], error: SuiteError) -> None:
        status: Status = "unavailable" if isinstance(error, DataUnavailableError) else "failed"
        self.missing.append(
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
        self._tell(f"{task.name} in {corpus}: {status}: {error}")

    @staticmethod
    def _tell(line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


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


# ---- to read ----


def to_markdown(pairs: Sequence[Pair]) -> str:
    """Return pairs as tables in GitHub Markdown, headings in Korean and English."""
    titles = [_title(measure) for measure in MEASURES]
    head = ["과제 (task)", "학습 글 (training text)", "예제 (examples)", *titles]
    found = [pair for pair in pairs if pair.status == "ok"]
    lines = [
        "# 평가 예제와 학습 글의 겹침 (contamination)",
        "",
        "## 닿은 예제 (touched examples)",
        "",
        f"닿은 예제 수, 기준을 쓸 수 있는 예제 중 비율, 그리고 {SETTINGS.min_quote}자 이상 글로 닿은 예제 수. "
        "—는 기준을 쓸 수 있을 만큼 긴 예제가 없음.",
        "Touched examples, their share of the examples that the measure applies to, and how many of them are touched "
        f"by a text of {SETTINGS.min_quote} letters or more. — where no example is long enough for the measure.",
        "",
        *_table(head, [[*_place(pair), f"{pair.num_examples:,}", *_touched_cells(pair)] for pair in found]),
        "",
        "## 닿은 학습 문서 (training documents that touch)",
        "",
        "기준에 걸린 평가 글이 하나라도 들어 있는 문서 수. 13-gram은 조각이 하나라도 들어 있는 문서 수.",
        "Documents with any evaluation text that the measure finds; for 13-grams, with any single one of them.",
        "",
        *_table(
            [*head[:2], "문서 (documents)", *titles],
            [[*_place(pair), f"{pair.num_documents:,}", *_document_cells(pair)] for pair in found],
        ),
        "",
        "## 기준 (measures)",
        "",
        *map(_meaning, MEASURES),
        "",
    ]
    gaps = [f"- {pair.task} · {pair.corpus}: {pair.reason}" for pair in pairs if pair.status != "ok"]
    if gaps:
        lines += ["## 확인하지 못한 쌍 (pairs that could not be checked)", "", *gaps, ""]
    return "\n".join(lines)


def _meaning(measure: Measure) -> str:
    korean, english = (meaning.format(**SETTINGS.model_dump()) for meaning in MEASURE_MEANINGS[measure])
    return f"- **{_title(measure)}**: {korean}. / {english[0].upper()}{english[1:]}."


def _title(measure: Measure) -> str:
    return " · ".join(dict.fromkeys(MEASURE_TITLES[measure]))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", "---", *["---:"] * (len(head) - 2)]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]


def _place(pair: Pair) -> tuple[str, str]:
    own = " (자체 학습 분할, own training split)" if pair.source == "split" else ""
    return f"{pair.task} {pair.split}", f"{pair.corpus}{own}"


def _touched_cells(pair: Pair) -> Iterator[str]:
    for counts in pair.measures.values():
        if counts.share is None:
            yield "—"
        else:
            longer = counts.num_touched - counts.num_touched_short
            yield f"{counts.num_touched:,} ({100 * counts.share:.2f}%) · {longer:,}"


def _document_cells(pair: Pair) -> Iterator[str]:
    for counts in pair.measures.values():
        yield "—" if counts.share is None else f"{counts.num_documents:,}"
