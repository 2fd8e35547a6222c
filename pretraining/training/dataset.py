"""The data of a recipe: corpus → tokens → rows, in parallel; each stage is cached under a digest of its inputs."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from corpora.foundation.errors import DataError
from corpora.foundation.files import fingerprint, sha256
from pretraining.data.rows import RowCorpus, RowShard, SpecialIds
from pretraining.data.shards import Sharded, read_shard, run_jobs, write_shard
from pretraining.data.tokens import TokenizedCorpus, TokenShard, tokenize_corpus
from pretraining.objective import Objective, RowLayout
from pretraining.recipe import SAMPLE, Recipe
from pretraining.training.batches import BatchSource, BatchStage
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS, open_wordpiece, save_tokenizer
from pretraining.vocabulary.wordpiece import train_wordpiece

FORMAT = 1
"""Incremented when the rows of the same tokens change."""
SAMPLE_HELD_OUT = 0.1
SAMPLE_VOCAB_SIZE = 2000
INSIDE_WORD = "##"
UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class Prepared:
    """The prepared data of a run."""

    train: BatchSource
    held_out: BatchSource | None
    tokenizer: Path
    """Folder of the vocabulary."""
    digest: str
    """Of corpus, vocabulary and rows."""
    num_documents: int
    num_tokens: int
    """Per epoch, special tokens included."""


def prepare(recipe: Recipe, cache: Path, *, num_workers: int) -> Prepared:
    """Make the tokens and rows that are missing in the cache, and open them.

    Args:
        recipe: of the run.
        cache: folder for tokens and rows; runs may share it.
        num_workers: processes; the bytes do not depend on it.

    Raises:
        DataError: the corpus is empty or does not suit the objective.
        CheckpointError: the tokenizer is unusable.
    """
    corpus, tokenizer = _sources(recipe, cache)
    tokenizer_json = tokenizer / "tokenizer.json"
    layout = RowLayout(
        max_length=recipe.data.max_length,
        isolate_documents=recipe.data.isolate_documents,
        seed=recipe.seed,
        specials=special_ids(tokenizer_json),
    )
    kind, config = recipe.objective_parts()
    sources: dict[str, BatchSource] = {}
    digests: list[str] = []
    num_documents = 0
    for split in ("train", "held-out"):
        tokens, digest = tokenize_corpus(corpus, tokenizer_json, cache, split=split, num_workers=num_workers)
        if split == "train":
            num_documents = len(tokens)
        elif len(tokens) < 2:
            continue
        else:
            config = kind.held_out_settings(config)
        objective = kind(config, layout)
        make = functools.partial(
            make_rows, tokens=tokens, digest=digest, cache=cache, split=split, num_workers=num_workers
        )
        rows, own = make(objective)
        if split == "train":
            digests.append(own)
            stages, others = _stages(recipe, objective, rows, make)
            digests += others
            sources[split] = BatchSource(rows, objective, recipe.loop.batch_size, recipe.loop.steps, stages)
        elif len(rows):
            digests.append(own)
            sources[split] = BatchSource(rows, objective, recipe.loop.batch_size)
    if not len(sources["train"].corpus):
        raise DataError(corpus, "contains no text for a single row", "give more text")
    if files := sources["train"].objective.sources:
        digests.append(sha256(*files))
    return Prepared(
        train=sources["train"],
        held_out=sources.get("held-out"),
        tokenizer=tokenizer,
        digest=fingerprint(digests),
        num_documents=num_documents,
        num_tokens=sum(len(shard.ids.values) for shard in sources["train"].corpus.shards),
    )


def _stages(
    recipe: Recipe, objective: Objective, rows: RowCorpus, make: Callable[[Objective], tuple[RowCorpus, str]]
) -> tuple[tuple[BatchStage, ...], list[str]]:
    """Make the rows of shorter stages, once for each length; return the stages and the digests of their rows.

    Args:
        recipe: of the run.
        objective: of the last stage.
        rows: of the last stage.
        make: makes the rows of an objective, and their digest.
    """
    made = {objective.layout.max_length: (objective, rows)}
    stages, digests = [], []
    for stage in recipe.loop.stages:
        length = stage.max_length or recipe.data.max_length
        if length not in made:
            shorter = type(objective)(objective.config, replace(objective.layout, max_length=length))
            shorter_rows, digest = make(shorter)
            made[length] = (shorter, shorter_rows)
            digests.append(digest)
        own, corpus = made[length]
        stages.append(BatchStage(stage.until, corpus, own, stage.batch_size or recipe.loop.batch_size))
    return tuple(stages), digests


def special_ids(tokenizer_json: Path) -> SpecialIds:
    """Return the token ids of a vocabulary that rows need.

    Raises:
        CheckpointError: the tokenizer is unusable.
    """
    vocab: dict[str, int] = open_wordpiece(tokenizer_json).get_vocab()
    unused = {i for token, i in vocab.items() if token[:1] == "[" and UNUSED.fullmatch(token)}
    ordinary = sorted({i for token, i in vocab.items() if token not in SPECIAL_TOKENS} - unused)
    return SpecialIds(
        pad=vocab["[PAD]"],
        cls=vocab["[CLS]"],
        sep=vocab["[SEP]"],
        mask=vocab["[MASK]"],
        ordinary=np.array(ordinary, np.int64),
        vocab_size=max(vocab.values()) + 1,
        unused=tuple(sorted(unused)),
        num_characters=_num_characters(vocab, ordinary),
    )


def _num_characters(vocab: Mapping[str, int], ordinary: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the characters of each token, int64 (V,), without the mark of tokens inside a word."""
    counts = np.zeros(max(vocab.values()) + 1, np.int64)
    is_ordinary = set(ordinary)
    for token, id_ in vocab.items():
        if id_ in is_ordinary:
            counts[id_] = len(token.removeprefix(INSIDE_WORD))
    return counts


def make_rows(
    objective: Objective, tokens: TokenizedCorpus, digest: str, cache: Path, *, split: str, num_workers: int
) -> tuple[RowCorpus, str]:
    """Make the rows of an objective, one job per token shard; shards of an interrupted call are kept.

    Args:
        objective: of the run.
        tokens: the tokenized corpus.
        digest: of the tokenized corpus.
        cache: folder of tokens and rows.
        split: of the corpus.
        num_workers: processes.

    Returns:
        The rows, and their digest.
    """
    layout = objective.layout
    settings = [*objective.row_settings, layout.max_length, layout.isolate_documents, layout.seed]
    own = fingerprint([FORMAT, digest, settings])
    folder = cache / f"rows-{split}-{own[:12]}"
    tokens_folder = cache / f"tokens-{split}-{digest[:12]}"
    paths = [folder / f"rows-{k:05d}.arrow" for k in range(len(tokens.shards))]
    left = [k for k, path in enumerate(paths) if not path.is_file()]
    jobs = [(objective, tokens_folder, k, paths[k]) for k in left]
    sizes = [tokens.shards[k].ids.values.nbytes for k in left]
    run_jobs(_make_shard, jobs, num_workers=num_workers, label=f"rows {split}", sizes=sizes)
    shards = [RowShard.from_columns(read_shard(path)) for path in paths]
    return Sharded.from_lengths(shards, [len(shard) for shard in shards]), own


_opened: dict[Path, TokenizedCorpus] = {}  # one per process: a corpus has thousands of shards


def _make_shard(job: tuple[Objective, Path, int, Path]) -> None:
    objective, tokens_folder, number, out = job
    if tokens_folder not in _opened:
        _opened.clear()
        _opened[tokens_folder] = open_tokens(tokens_folder)
    write_shard(out, objective.make_rows(_opened[tokens_folder], number).columns())


def open_tokens(folder: Path) -> TokenizedCorpus:
    """Open the finished token shards of a folder."""
    shards = [TokenShard.from_columns(read_shard(path)) for path in sorted(folder.glob("tokens-*.arrow"))]
    return Sharded.from_lengths(shards, [len(shard) for shard in shards])


def _sources(recipe: Recipe, cache: Path) -> tuple[Path, Path]:
    """Return the folders of corpus and tokenizer; those of the embedded sample are made here."""
    data = recipe.data
    if data.corpus != "sample":
        return Path(data.corpus), Path(data.tokenizer)
    from corpora.build import BuildConfig, build
    from corpora.cleaning import CleaningConfig
    from corpora.corpus import corpus_files, corpus_texts

    corpus = cache / "sample-corpus"
    # The articles are invented, and so are the addresses in them.
    build([SAMPLE], corpus, BuildConfig(held_out=SAMPLE_HELD_OUT, cleaning=CleaningConfig(privacy=())))
    tokenizer = Path(data.tokenizer) if data.tokenizer else cache / "sample-vocabulary"
    if not (tokenizer / "tokenizer.json").is_file():
        texts = [text for file in corpus_files(corpus) for text in corpus_texts(file)]
        save_tokenizer(train_wordpiece(texts, SAMPLE_VOCAB_SIZE), tokenizer)
    return corpus, tokenizer
