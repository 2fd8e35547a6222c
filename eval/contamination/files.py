"""What a contamination check writes: counts of every pair of task and training text, and the list of its hits.

DIR/contamination.json                    all pairs: counts by measure, digests, settings
DIR/contamination/TASK/CORPUS.json        one finished pair; a second run skips it
DIR/contamination/TASK/CORPUS.hits.tsv    the hits of this pair, one a line
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from corpora.foundation.config import Config
from corpora.foundation.errors import ResultError
from corpora.foundation.files import parse_signed, sha256, write_text
from corpora.overlap import MEASURES, Measure
from eval.cells.files import PART, Status

SCHEMA: Literal[1] = 1
FOLDER = "contamination"
OVERVIEW = f"{FOLDER}.json"
EXCERPT = 20
"""Hits of a pair that a published report keeps."""
FIRST, AGAIN = "run python -m eval.contamination first", "delete it and run python -m eval.contamination again"


class Counts(Config):
    """What one measure found for one task in one training text."""

    num_applicable: int
    """Examples with a text that is long enough for the measure."""
    num_touched: int
    """Examples of which the training text contains a text."""
    num_touched_short: int
    """Of these, the ones found only by texts of fewer than `min_quote` letters: people write them independently."""
    share: float | None
    """`num_touched / num_applicable`; None where the measure applies to no example."""
    fields: dict[str, int]
    """Touched examples by the field that was found: text, pair, question, context."""
    num_documents: int
    """Training documents, or examples, that contain any evaluation text; for n-grams, at least one of them."""


class Pair(Config):
    """One task against one corpus, or against its own training split."""

    schema_version: Literal[1] = Field(default=SCHEMA, alias="schema")
    task: str
    split: str
    """Evaluation split of the task, whose texts are looked for."""
    corpus: str
    """Name of the corpus, or of the task's training split."""
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
    """Fingerprint of `recipe`."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Everything that decides the counts: digests, settings, code, versions."""
    measures: dict[Measure, Counts] = Field(default_factory=dict)
    hits: str = ""
    """The file of hits, relative to the folder of `contamination.json`."""
    hits_sha256: str = ""
    """Of that file."""
    num_hits: int = 0
    """Hits that were found."""
    positions: list[int] | None = None
    """Indices of the touched examples in the evaluation file, from 0, by any measure; None in files from before they
    were listed. Scores without these examples follow from them where the file of hits is an excerpt."""
    is_excerpt: bool = False
    """Whether the file of hits lists only some of them, as in a published report."""

    @property
    def is_clean(self) -> bool:
        """Whether no measure found an example in the training text."""
        return not any(counts.num_touched for counts in self.measures.values())


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
    """Index of the example in the evaluation file, from 0."""
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
    """Return the path of a finished pair.

    Raises:
        ResultError: the names would lead elsewhere.
    """
    return _inside(out, task, corpus) / f"{corpus}.json"


def _inside(out: Path, task: str, corpus: str) -> Path:
    for part in (task, corpus):
        if not PART.fullmatch(part):
            raise ResultError(out / FOLDER, f"'{part[:60]}' is no name of a task or corpus", "give a plain name")
    return out / FOLDER / task


def hits_path(out: Path, task: str, corpus: str) -> Path:
    """Return the path of a pair's hits."""
    return _inside(out, task, corpus) / f"{corpus}.hits.tsv"


def read_pair(path: Path) -> Pair:
    """Read a finished pair.

    Raises:
        ResultError: the file is missing, damaged or of another schema.
    """
    try:
        return Pair.model_validate(parse_signed(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ResultError(path, error.strerror or str(error), FIRST) from error
    except ValueError as error:
        detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error).splitlines()[0]
        raise ResultError(path, f"not a pair of schema {SCHEMA} ({detail})", AGAIN) from error


def find_pairs(out: Path) -> tuple[list[Pair], list[ResultError]]:
    """Return all finished pairs under OUT in the order of `in_order`, and the errors of unreadable files."""
    pairs, errors = [], []
    for path in sorted((out / FOLDER).glob("*/*.json")):
        try:
            pair = read_pair(path)
            if pair_path(out, pair.task, pair.corpus) != path:
                raise ResultError(path, f"it is the pair of {pair.task} and {pair.corpus}", "put it where it belongs")
            pairs.append(pair)
        except ResultError as error:
            errors.append(error)
    return in_order(pairs), errors


def in_order(pairs: Iterable[Pair]) -> list[Pair]:
    """Sort pairs by task; the task's own training split comes first, then the corpora by name."""
    return sorted(pairs, key=lambda pair: (pair.task, pair.source != "split", pair.corpus))


def write_hits(path: Path, hits: Iterable[Hit]) -> None:
    """Write hits as tab-separated values.

    Raises:
        ResultError: the file cannot be written.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, "excel-tab", lineterminator="\n")
    writer.writerow(HIT_COLUMNS.values())
    writer.writerows([getattr(hit, name) for name in HIT_COLUMNS] for hit in hits)
    # JSON can hold a lone surrogate, UTF-8 cannot.
    write_text(path, buffer.getvalue().encode("utf-8", "replace").decode("utf-8"))


def read_hits(path: Path) -> list[Hit]:
    """Read a file of hits.

    Raises:
        ResultError: it is missing or damaged.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, "excel-tab")
            if next(rows, None) != list(HIT_COLUMNS.values()):
                raise ResultError(path, "not a file of hits", AGAIN)
            return [Hit.model_validate(dict(zip(HIT_COLUMNS, row, strict=True))) for row in rows]
    except OSError as error:
        raise ResultError(path, error.strerror or str(error), FIRST) from error
    except (csv.Error, UnicodeDecodeError, ValueError) as error:  # pydantic's ValidationError is a ValueError
        raise ResultError(path, f"not a file of hits ({str(error).splitlines()[0]})", AGAIN) from error


def all_hits(out: Path, pair: Pair) -> list[Hit]:
    """Read the hits that a pair's counts are of.

    Raises:
        ResultError: the file lists only some of them, has been changed, or cannot be read.
    """
    path = hits_path(out, pair.task, pair.corpus)
    hits = read_hits(path)
    if pair.is_excerpt:
        what = f"an excerpt of {len(hits)} of {pair.num_hits} hits"
        raise ResultError(path, what, "run python -m eval.contamination for all of them")
    if sha256(path) != pair.hits_sha256:
        raise ResultError(path, "not the hits that were counted", "run python -m eval.contamination again")
    return hits


def touched_positions(out: Path, pair: Pair) -> list[int]:
    """Return the indices of a pair's touched examples.

    Raises:
        ResultError: the pair does not list them, and its file of hits lists only some or cannot be read.
    """
    if pair.positions is not None:
        return pair.positions
    return positions_of(all_hits(out, pair))


def positions_of(hits: Iterable[Hit]) -> list[int]:
    """Return the indices of the examples that hits are of, ascending."""
    return sorted({hit.position for hit in hits})


def excerpt(hits: Sequence[Hit], size: int = EXCERPT) -> list[Hit]:
    """Return at most SIZE hits, equally many of every measure as far as there are; the order stays."""
    by_measure = {measure: [k for k, hit in enumerate(hits) if hit.measure == measure] for measure in MEASURES}
    rounds = max(map(len, by_measure.values()))
    in_turn = [found[k] for k in range(rounds) for found in by_measure.values() if k < len(found)]
    return [hits[k] for k in sorted(in_turn[:size])]
