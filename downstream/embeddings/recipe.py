"""A recipe of sentence embeddings: in which stages an encoder learns, from which data. TOML; defaults are kpfSBERT's.

max_length = 128
evaluate = ["korsts-dev", "klue-sts"]

[[stages]]
kind = "nli_ranking"            # nli_softmax, nli_ranking, sts_cosine, headline_body, dropout_pairs
data = ["kornli", "klue-nli"]
batch_size = 64

[[stages]]
kind = "sts_cosine"
data = ["korsts"]
epochs = 4

Data are named in one of these ways:

* a task, for its training split: `kornli`, `klue-nli`, `korsts`, `klue-sts`, `kornli-devsplit`;
* one split or one file of a task: `korsts:train`, `kornli:snli` (the part that kpfSBERT learned from);
* a corpus folder of `corpora.build`, or a file with titles and texts; `sample` is the embedded articles. A folder that
  is called like a task is written `./nsmc`.
"""

import collections
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import Field

from corpora.corpus import MANIFEST, read_corpus
from corpora.documents import Document
from corpora.foundation.config import Config, load_toml, validate
from corpora.foundation.errors import DataError, RecipeError, UsageError, suggest
from corpora.foundation.files import package_path, sha256
from downstream.embeddings.embedder import clean_text
from downstream.embeddings.similarity import similarity_task
from downstream.families.classification import Classification, Regression
from downstream.task import SAMPLE_ROOT, Task, TextExample, all_tasks, get_task

RECIPES = package_path("downstream", "recipes")
NLI_LABELS = ("contradiction", "entailment", "neutral")
SAMPLE = "sample"


class Stage(Config):
    """What all stages have in common."""

    columns: ClassVar[tuple[str, ...]]
    """Of its rows: texts in the order that the loss takes them, then the label, if there is one."""

    kind: str
    data: tuple[str, ...] = Field(min_length=1)
    """Sources, which are put together; see the module."""
    epochs: float = Field(default=1, gt=0, allow_inf_nan=False)
    """Passes over the rows."""
    batch_size: int = Field(default=16, ge=2)
    """Rows per optimizer step; where the others of a batch are the negatives, larger is harder."""
    peak_lr: float = Field(default=2e-5, gt=0, allow_inf_nan=False)
    """Highest learning rate; linear warm-up to it, linear decay from it."""
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps that warm up."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """AdamW's, on all weights but biases and LayerNorm."""


class NliSoftmax(Stage):
    """Inference pairs: a classifier over (u, v, |u − v|) names the label.

    Source: Reimers and Gurevych 2019, section 3; first stage of kpfSBERT. Relations: `NliRanking` uses the same data
    and is usually better for similarity.
    """

    columns = ("sentence1", "sentence2", "label")
    kind: Literal["nli_softmax"]


class NliRanking(Stage):
    """Inference triples: a premise finds what it entails among all hypotheses of the batch, its contradiction included.

    Source: Henderson et al. 2017 (in-batch negatives); Gao et al. 2021, section 4 (contradictions as hard negatives).
    """

    columns = ("anchor", "positive", "negative")
    kind: Literal["nli_ranking"]
    temperature: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    """The cosines are divided by it before the softmax."""


class StsCosine(Stage):
    """Pairs with a similarity: the cosine is drawn to the score, brought to 0 to 1, by its squared error.

    Source: Reimers and Gurevych 2019, section 3; second stage of kpfSBERT, which takes four epochs.
    """

    columns = ("sentence1", "sentence2", "label")
    kind: Literal["sts_cosine"]
    epochs: float = Field(default=4, gt=0, allow_inf_nan=False)
    """Passes over the rows."""


class HeadlineBody(Stage):
    """Articles, no labels: a headline finds its body among those of the batch, and the body its headline.

    A title that the body repeats at its beginning is taken off there, or nothing would have to be learned.
    """

    columns = ("anchor", "positive")
    kind: Literal["headline_body"]
    batch_size: int = Field(default=64, ge=2)
    """Articles per optimizer step; the bodies of the others are the negatives."""
    temperature: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    """The cosines are divided by it before the softmax."""


class DropoutPairs(Stage):
    """Any texts, no labels: a text finds itself, seen through another dropout, among the texts of the batch.

    Source: Gao et al. 2021 (unsupervised SimCSE), section 3.
    """

    columns = ("anchor", "positive")
    kind: Literal["dropout_pairs"]
    batch_size: int = Field(default=64, ge=2)
    """Texts per optimizer step."""
    peak_lr: float = Field(default=3e-5, gt=0, allow_inf_nan=False)
    """Highest learning rate; Gao et al. 2021, appendix A."""
    temperature: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    """The cosines are divided by it before the softmax."""
    dropout: float = Field(default=0.1, gt=0, lt=1)
    """Of the encoder during this stage, whatever its own: it is what tells the two views apart."""


AnyStage: TypeAlias = Annotated[
    NliSoftmax | NliRanking | StsCosine | HeadlineBody | DropoutPairs, Field(discriminator="kind")
]
STAGES: Mapping[str, type[Stage]] = {
    "nli_softmax": NliSoftmax,
    "nli_ranking": NliRanking,
    "sts_cosine": StsCosine,
    "headline_body": HeadlineBody,
    "dropout_pairs": DropoutPairs,
}


class EmbedRecipe(Config):
    """Everything but encoder and data that decides a trained embedder."""

    stages: tuple[AnyStage, ...] = Field(min_length=1)
    """One after the other."""
    max_length: int = Field(default=128, ge=8)
    """Tokens that are read of a text, special tokens included, in training and ever after."""
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    """Of heads, order and dropout."""
    storage: Literal["float32", "float16"] = "float32"
    """Precision of the saved weights; computed is in single precision. Scores are those of the saved weights."""
    evaluate: tuple[str, ...] = ("korsts-dev", "klue-sts")
    """Similarity tasks that the model is scored on at the start and after each stage; nothing is selected by them."""
    licence: str = ""
    """SPDX identifier for the model's card; default: the licences of the data are listed."""
    checkpoint_every: int = Field(default=500, ge=1)
    """Steps between checkpoints within a stage; a shorter stage is repeated from its beginning."""


def find_embed_recipe(name: str) -> Path:
    """Return the path of a recipe: a file, or one of those that come with the package.

    Raises:
        RecipeError: there is none of that name.
    """
    known = {path.stem: path for path in RECIPES.glob("*.toml")}
    if name in known:
        return known[name]
    if not Path(name).is_file():
        raise RecipeError(name, "no such recipe", f"give a TOML file, or one of ours: {suggest(name, known)}")
    return Path(name)


def read_embed_recipe(path: Path, overrides: Mapping[str, Any] | None = None) -> EmbedRecipe:
    """Read a recipe.

    Args:
        path: TOML file.
        overrides: settings that replace those of the file, e.g. `{"seed": 1}`.

    Raises:
        RecipeError: a key is unknown or a value is wrong.
    """
    values = load_toml(path) | dict(overrides or {})
    stages = values.get("stages")
    if not isinstance(stages, list) or not stages:
        raise RecipeError(path, "no stages", f"begin each with [[stages]] and a kind: {', '.join(STAGES)}")
    recipe = validate(
        EmbedRecipe, values | {"stages": [_read_stage(s, path, n) for n, s in enumerate(stages, 1)]}, path
    )
    for name in recipe.evaluate:
        try:
            similarity_task(name)
        except UsageError as error:
            raise RecipeError(f"{path}, evaluate", error.what, error.fix) from error
    return recipe


def _read_stage(values: Any, path: Path, number: int) -> Stage:
    where = f"{path}, stage {number}"
    kind = str(values.get("kind", "")) if isinstance(values, dict) else ""
    if kind not in STAGES:
        raise RecipeError(where, f"kind='{kind}' is none that is known", suggest(kind, STAGES))
    return validate(STAGES[kind], values, where)


@dataclass
class Source:
    """Where rows came from, as the manifest tells it."""

    name: str
    sha256: str
    licence: str
    """Empty where it is not known."""
    num_rows: int = 0
    left_out: collections.Counter[str] = field(default_factory=collections.Counter)
    """Examples or documents that made no row, by reason."""


@dataclass(frozen=True)
class Rows:
    """What a stage learns from."""

    columns: Mapping[str, Sequence[Any]]
    """Column → N values."""
    keys: Sequence[frozenset[bytes]] | None
    """Of each row, what no other row of its batch may have too; None where the rows of a batch do not meet."""
    sources: Sequence[Source]

    def __len__(self) -> int:
        """Return N."""
        return len(next(iter(self.columns.values())))

    def pairs(self) -> Iterator[frozenset[bytes]]:
        """Yield for every row its first two texts, in no order and whatever their blanks."""
        one, two, *_ = self.columns.values()
        return (frozenset((text_key(a), text_key(b))) for a, b in zip(one, two, strict=True))


def text_key(text: str) -> bytes:
    """Return a digest that texts share if they differ in blanks alone."""
    return hashlib.blake2b("".join(text.split()).encode(), digest_size=8).digest()


def read_rows(stage: Stage, root: Path, where: str) -> Rows:
    """Read the data of a stage.

    Args:
        stage: which.
        root: data root of the tasks.
        where: place in the recipe, for errors.

    Raises:
        RecipeError: a source is unknown or does not fit the stage.
        DataError: a source cannot be had or is damaged, or nothing in it makes a row.
    """
    do_meet = "label" not in stage.columns
    sources: list[Source] = []
    rows: list[tuple[Any, ...]] = []
    known: set[tuple[Any, ...]] = set()
    for name in stage.data:
        source, found = _read_source(stage, name, root, where)
        for row in found:
            # Where rows are each other's negatives, a second copy says nothing new; elsewhere it has its weight.
            if do_meet and row in known:
                source.left_out["repeated"] += 1
            else:
                known.add(row)
                rows.append(row)
                source.num_rows += 1
        sources.append(source)
    if len(rows) < 2:
        raise DataError(f"{where}, data", f"{len(rows)} rows in {', '.join(stage.data)}", "give more data")
    columns = dict(zip(stage.columns, zip(*rows, strict=True), strict=True))
    return Rows(columns, [frozenset(map(text_key, row)) for row in rows] if do_meet else None, sources)


def _read_source(stage: Stage, name: str, root: Path, where: str) -> tuple[Source, Iterable[tuple[Any, ...]]]:
    where = f"{where}, data"
    if name.partition(":")[0].replace("_", "-").lower() in all_tasks():
        task, source, examples = _read_task_part(name, root, where)
        _check_fits(stage, task, examples, where)
        if isinstance(stage, NliRanking):
            return source, _triples(examples, source.left_out)
        if isinstance(stage, DropoutPairs):
            return source, _twins(chain.from_iterable((e.text, e.pair or "") for e in examples))
        return source, _labelled_pairs(examples, task)
    path = SAMPLE_ROOT / "news.jsonl" if name == SAMPLE else Path(name)
    if not isinstance(stage, HeadlineBody | DropoutPairs) or not path.exists():
        raise RecipeError(where, f"'{name}' is no task, file or folder", suggest(name, all_tasks()))
    documents = list(read_corpus(path))
    source = Source(name, sha256(path / MANIFEST if path.is_dir() else path), "CC0-1.0" if name == SAMPLE else "")
    if isinstance(stage, HeadlineBody):
        return source, _headlines(documents, source.left_out)
    return source, _twins(chain.from_iterable((d.title, *d.text.split("\n")) for d in documents))


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
    """Yield every entailed hypothesis with its premise and one that contradicts it, the premise's in turn."""
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


def _headlines(documents: Iterable[Document], left_out: collections.Counter[str]) -> Iterator[tuple[str, str]]:
    for document in documents:
        title, body = clean_text(document.title).strip(), clean_text(document.text).strip()
        body = body.removeprefix(title).strip()
        if title and body:
            yield title, body
        else:
            left_out["no title" if body else "no text but the title"] += 1


def _twins(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        clean = clean_text(text).strip()
        if clean:
            yield clean, clean


def make_batches(rows: Rows, stage: Stage, seed: int) -> list[list[int]]:
    """Draw the batches of a whole stage, so that a resumed one finds the same.

    Where rows meet, no two of a batch have a text in common, since what counts as a negative must be one: each goes
    into the first batch with room that is behind all batches with a text of its own. Batches less than half full are
    left out, unless there are no fuller ones.

    Args:
        rows: what the stage learns from.
        stage: its settings.
        seed: of the order.

    Returns:
        Row numbers of each optimizer step.
    """
    generator = np.random.default_rng(seed)
    batches: list[list[int]] = []
    num_steps = None
    while num_steps is None or len(batches) < num_steps:
        batches += _one_pass(generator.permutation(len(rows)).tolist(), rows.keys, stage.batch_size)
        num_steps = num_steps or max(1, round(stage.epochs * len(batches)))
    return batches[:num_steps]


def _one_pass(order: list[int], keys: Sequence[frozenset[bytes]] | None, size: int) -> list[list[int]]:
    if keys is None:
        return [order[first : first + size] for first in range(0, len(order), size)]
    batches: list[list[int]] = []
    behind: list[int] = []  # of a full batch, the next that may have room
    last: dict[bytes, int] = {}
    for row in order:
        place = max(last.get(key, -1) + 1 for key in keys[row])
        full = []
        while place < len(batches) and len(batches[place]) == size:
            full.append(place)
            place = behind[place]
        for passed in full:
            behind[passed] = place
        if place == len(batches):
            batches.append([])
            behind.append(place + 1)
        batches[place].append(row)
        last |= dict.fromkeys(keys[row], place)
    fullest = max(map(len, batches))
    return [batch for batch in batches if 2 * len(batch) >= fullest]
