"""Build a cleaned corpus in shards from raw files.

    python -m corpora.build SOURCE… --out DIR
    python -m corpora.build --recipe open_korean --data ROOT --out DIR

A source is a file or a folder of files. `PATH:line`, `PATH:block` and `PATH:file` set what a document is in plain text;
`PATH:text=COLUMN` names the column of the text. The output folder:

    DIR/documents-00000.jsonl, …   training documents: id, title, text; date, section and source if known
    DIR/held-out-00000.jsonl, …    held-out documents, for perplexity
    DIR/rejected.jsonl             unreadable records: where, reason, record
    DIR/manifest.json              settings, counts of every source, digest of every shard

Sources are read in order in constant memory, except for the digests of the texts so far. After an interruption the same
command keeps the finished sources; the result is bit-identical to an uninterrupted build.
"""

import argparse
import contextlib
import json
import logging
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import Field
from tqdm import tqdm

from corpora.cleaning import (
    MIN_QUOTE,
    Cleaner,
    CleaningConfig,
    Tally,
    digests_to_exclude,
    evaluation_texts,
    letters_of,
    text_digest,
)
from corpora.corpus import (
    MANIFEST,
    PREFIXES,
    PROGRESS,
    Manifest,
    ShardRecord,
    ShardWriter,
    SourceFile,
    SourceRecord,
    Split,
    add_counts,
    check_shards,
    describe,
    load_record,
    read_manifest,
    read_shard,
    summary_table,
)
from corpora.documents import Document, RejectedRecord, read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import Config, validate
from corpora.foundation.errors import DataError, UsageError
from corpora.foundation.files import atomic_file, fingerprint, write_json
from corpora.official import data_root
from corpora.overlap import EvaluationIndex
from corpora.readers.decoding import COMPRESSIONS, ENCODINGS, Encoding
from corpora.readers.records import TextUnit
from corpora.sources import (
    TEXT_UNITS,
    CorpusRecipe,
    Source,
    digest_of,
    find_inputs,
    parse_field,
    parse_source,
    read_corpus_recipe,
)
from corpora.training_text import BLOCK_LETTERS, Block, TrainingText, batches_of

logger = logging.getLogger(__name__)

REJECTED = "rejected.jsonl"


class BuildConfig(Config):
    """Settings of a build."""

    cleaning: CleaningConfig = CleaningConfig()
    text_unit: TextUnit = "block"
    """What a document is in plain text."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Which column holds what, e.g. `{"text": "기사본문"}`; unnamed ones are found by their usual names."""
    encoding: Encoding = "auto"
    """Of text files: UTF-8, UTF-16 or CP949; `auto`: recognized."""
    max_rejected: float = Field(default=0.5, ge=0, le=1)
    """Largest share of unreadable records in a source; with more it is refused."""
    exclude: tuple[Path, ...] = ()
    """Files whose texts are kept out of the corpus, such as evaluation data."""
    held_out: float = Field(default=0.01, ge=0, lt=1)
    """Share of held-out documents. The digest of a text decides, so the order of documents does not matter."""
    shard_mb: float = Field(default=8, gt=0)
    """Largest size of a shard in MB (1,000,000 bytes); a longer document gets a shard of its own."""


class _Finished(Config):
    """Record of a finished source while the build continues."""

    source: SourceRecord
    shards: tuple[ShardRecord, ...]


# ---- building ----


def build(sources: Sequence[Source | Path], out: Path, config: BuildConfig | None = None) -> Manifest:
    """Build a corpus, or continue an interrupted build.

    Args:
        sources: files and folders; a folder stands for all readable files below it, sorted.
        out: folder of the corpus. If it holds the finished corpus of these sources and settings, nothing is done.
        config: settings.

    Returns:
        The manifest, which is also written to OUT.

    Raises:
        DataError: a source or a file to exclude cannot be read, or no document is left.
        UsageError: OUT holds other files, or is inside a source.
        ResultError: OUT cannot be written.
    """
    config = config or BuildConfig()
    _check_out(out)
    inputs = find_inputs(sources, out, config.text_unit, config.fields, config.encoding)
    settings = _settings(config)
    if (out / MANIFEST).is_file():
        manifest = read_manifest(out)
        _check_same(out, manifest.settings, settings)
        _check_sources(out, manifest.sources, [file for _, file in inputs], is_finished=True)
        check_shards(out, manifest.shards)
        shutil.rmtree(out / PROGRESS, ignore_errors=True)  # a kill between the last two steps leaves it
        return manifest
    texts = list(dict.fromkeys(text for path in config.exclude for text in evaluation_texts(path)))
    excluded = digests_to_exclude(texts, config.cleaning)
    # Shorter texts are matched by their digests as whole documents only.
    index = EvaluationIndex([text for text in texts if len(letters_of(text)) >= MIN_QUOTE])
    finished = _resume(out, settings, [file for _, file in inputs])
    with tqdm(total=sum(file.size_bytes for _, file in inputs), unit="B", unit_scale=True, disable=None) as bar:
        corpus = _Corpus(out, config, Cleaner(config.cleaning, excluded), index, bar)
        for record in finished:
            corpus.remember(record)
        for path, file in inputs[len(finished) :]:
            corpus.add(path, file)
    return _finish(out, settings, corpus.finished)


def _settings(config: BuildConfig) -> dict[str, Any]:
    """Return the settings that decide the documents, as JSON reads them back."""
    settings = config.model_dump(mode="json", exclude={"text_unit", "fields", "encoding", "max_rejected", "exclude"})
    settings["exclude"] = [{"name": path.name, "sha256": digest_of(path)} for path in config.exclude]
    return settings


class _Corpus:
    """A corpus during its build."""

    def __init__(
        self, out: Path, config: BuildConfig, cleaner: Cleaner, index: EvaluationIndex, bar: "tqdm[Any]"
    ) -> None:
        self.finished: list[_Finished] = []
        self._out, self._config, self._cleaner, self._index, self._bar = out, config, cleaner, index, bar
        self._num_shards: Counter[Split] = Counter()

    def remember(self, record: _Finished) -> None:
        """Continue after a source that was finished earlier."""
        self.finished.append(record)
        self._num_shards.update(shard.split for shard in record.shards)
        self._bar.update(record.source.size_bytes)
        if self._config.cleaning.remove_duplicates:
            for shard in record.shards:
                documents = read_shard(self._out / shard.name)
                self._cleaner.seen.update(text_digest(document.text) for document in documents)

    def add(self, path: Path, file: SourceFile) -> None:
        """Read, clean and write a source, and record it."""
        logger.info("reading %s", path)
        number = len(self.finished)
        # A 64-bit digest below this is held out.
        threshold = int(self._config.held_out * 2**64)
        tally = Tally()
        reader = _Reader(path, file, self._bar)
        with contextlib.ExitStack() as stack:
            rejected = stack.enter_context(atomic_file(_rejected_path(self._out, number)))
            train, held_out = (stack.enter_context(self._writer(split, file.name)) for split in PREFIXES)
            taken = _share_of(reader.documents(rejected), file.share, tally)
            cleaned = self._cleaner.clean(taken, tally)
            for document in self._without_overlap(cleaned, tally):
                writer = held_out if text_digest(document.text) < threshold else train
                writer.write(document)
            self._check_rejected(path, reader, tally.num_read)
        record = _Finished(
            source=SourceRecord(
                **file.model_dump(),
                num_read=tally.num_read,
                num_rejected=reader.num_rejected,
                num_kept=train.num_documents,
                num_held_out=held_out.num_documents,
                num_chars=train.num_chars,
                dropped=dict(sorted(tally.dropped.items())),
                edited=dict(sorted(tally.edited.items())),
            ),
            shards=(*train.shards, *held_out.shards),
        )
        write_json(_progress_path(self._out, number), record.model_dump(mode="json"))
        self.finished.append(record)
        self._num_shards.update(shard.split for shard in record.shards)

    def _check_rejected(self, path: Path, reader: "_Reader", num_read: int) -> None:
        """Refuse a source most of whose records are bad: it is another format than its name says."""
        num_records = reader.num_rejected + num_read
        if reader.num_rejected > self._config.max_rejected * num_records or not num_read:
            count = "none" if not num_read else f"{num_read:,}"
            what = f"{count} of its {num_records:,} records can be read; the first bad one is {reader.first_reason}"
            fix = "name its columns with SOURCE:text=COLUMN, its encoding with --encoding, or allow more bad records"
            raise DataError(path, what, f"{fix} with --max-rejected")

    def _without_overlap(self, documents: Iterable[Document], tally: Tally) -> Iterator[Document]:
        """Drop documents that contain evaluation texts, exactly or nearly."""
        if not len(self._index):
            yield from documents
            return
        for some in batches_of(documents, BLOCK_LETTERS, size_of=lambda d: len(d.title) + len(d.text)):
            block = Block([TrainingText(d.id, (d.title, d.text) if d.title else (d.text,)) for d in some])
            is_touched = self._index.touched(block)
            if is_touched.any():
                tally.dropped["overlap"] += int(is_touched.sum())
            yield from (document for document, drop in zip(some, is_touched.tolist(), strict=True) if not drop)

    def _writer(self, split: Split, source: str) -> "ShardWriter":
        limit = int(self._config.shard_mb * 1_000_000)
        return ShardWriter(self._out, split, source, first=self._num_shards[split], limit=limit)


def _share_of(documents: Iterable[Document], share: float, tally: Tally) -> Iterator[Document]:
    """Yield a share of the documents, chosen by a hash of their texts, and count the others."""
    for document in documents:
        # Not the digest that chooses held-out documents: the two choices are independent.
        if share == 1 or int(fingerprint(["share", document.text])[:16], 16) < share * 2**64:
            yield document
        else:
            tally.num_read += 1
            tally.dropped["not_sampled"] += 1


class _Reader:
    """Reads the documents of a source, writes bad records to a file and updates the progress bar."""

    def __init__(self, path: Path, file: SourceFile, bar: "tqdm[Any]") -> None:
        self.num_rejected = 0
        self.first_reason = ""
        self._path, self._file, self._bar = path, file, bar
        self._rejected: IO[str] | None = None

    def documents(self, rejected: IO[str]) -> Iterator[Document]:
        """Yield the documents; their ids are unique among all sources."""
        self._rejected = rejected
        unit = self._file.text_unit or "block"
        left = self._file.size_bytes
        # gzip packs Korean text to about a third; an estimate for the progress bar.
        ratio = 3 if self._path.suffix.lower() in COMPRESSIONS else 1
        found = read_documents(
            self._path, fields=self._file.fields, text_unit=unit, rejected=self, encoding=self._file.encoding
        )
        for document in found:
            size = min(left, 3 * len(document.text) // ratio)
            left -= size
            self._bar.update(size)
            yield self._named(document)
        self._bar.update(left)

    def append(self, record: RejectedRecord) -> None:
        """Write a rejected record to the file, so that a million of them take no memory."""
        assert self._rejected is not None
        self.first_reason = self.first_reason or f"{record.where.rpartition('/')[2]}: {record.reason}"
        self.num_rejected += 1
        where = f"{self._file.name}:{record.where.rpartition(':')[2]}"
        line = {"where": where, "reason": record.reason, "record": record.record}
        self._rejected.write(json.dumps(line, ensure_ascii=False) + "\n")

    def _named(self, document: Document) -> Document:
        name, own = self._file.name, f"{document.source}:"
        # `file:line` if the source has no ids, `file#id` if it has.
        has_id = not document.id.startswith(own)
        id_ = f"{name}#{document.id}" if has_id else f"{name}:{document.id.removeprefix(own)}"
        return Document(document.text, id_, document.title, document.date, document.section, source=name)


def _finish(out: Path, settings: dict[str, Any], finished: Sequence[_Finished]) -> Manifest:
    sources = tuple(record.source for record in finished)
    totals = add_counts(sources)
    if not totals.num_kept:
        shutil.rmtree(out / PROGRESS)
        _remove_leftovers(out, keep=())
        reasons = describe({"rejected": totals.num_rejected, "held out": totals.num_held_out, **totals.dropped})
        raise DataError(out, f"no document is left ({reasons or 'none was read'})", "check sources and limits")
    with atomic_file(out / REJECTED, "wb") as file:
        for number in range(len(finished)):
            with _rejected_path(out, number).open("rb") as part:
                shutil.copyfileobj(part, file)
    shards = tuple(shard for record in finished for shard in record.shards)
    manifest = Manifest(schema=1, settings=settings, totals=totals, sources=sources, shards=shards)
    write_json(out / MANIFEST, manifest.model_dump(mode="json", by_alias=True))
    shutil.rmtree(out / PROGRESS)
    return manifest


# ---- resuming ----


def _progress_path(out: Path, number: int) -> Path:
    return out / PROGRESS / f"{number:04d}.json"


def _rejected_path(out: Path, number: int) -> Path:
    return out / PROGRESS / f"{number:04d}-{REJECTED}"


def _check_out(out: Path) -> None:
    """Refuse a folder with other files than a corpus."""
    if out.exists() and not out.is_dir():
        raise UsageError("--out", f"'{out}' is a file", "give a folder")
    ours = (out / MANIFEST).is_file() or (out / PROGRESS).is_dir()
    if out.is_dir() and not ours and any(out.iterdir()):
        raise UsageError("--out", f"'{out}' holds other files", "choose another --out or delete it")


def _resume(out: Path, settings: dict[str, Any], files: Sequence[SourceFile]) -> list[_Finished]:
    """Return the finished sources of an interrupted build, and remove unfinished files."""
    path = out / PROGRESS / "settings.json"
    if not _progress_path(out, 0).is_file():
        write_json(path, settings)  # no finished source depends on other settings
    _check_same(out, json.loads(path.read_text(encoding="utf-8")), settings)
    finished: list[_Finished] = []
    while (path := _progress_path(out, len(finished))).is_file():
        finished.append(load_record(_Finished, path))
    _check_sources(out, [record.source for record in finished], files, is_finished=False)
    shards = [shard for record in finished for shard in record.shards]
    check_shards(out, shards)
    _remove_leftovers(out, keep=[shard.name for shard in shards])
    return finished


def _remove_leftovers(out: Path, keep: Sequence[str]) -> None:
    """Remove shards of an unfinished source, and partly written files."""
    patterns = (*(f"{prefix}*.jsonl" for prefix in PREFIXES.values()), ".*.part", f"{PROGRESS}/.*.part")
    for path in [path for pattern in patterns for path in out.glob(pattern)]:
        if path.name not in keep:
            path.unlink()


def _check_same(out: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `UsageError` that names a setting if the corpus in OUT was begun with others."""
    for name in sorted({*there, *here}):
        old, new = there.get(name), here.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            _check_same(out, old, new)
        elif old != new:
            values = f"{name}={old}, not {new}" if isinstance(old, str | int | float) else f"another {name}"
            what = f"'{out}' holds a corpus with {values}"
            raise UsageError("--out", what, "choose another --out or delete it")


def _check_sources(out: Path, there: Sequence[SourceRecord], here: Sequence[SourceFile], *, is_finished: bool) -> None:
    """Raise `UsageError` unless OUT was built from these sources, or begun with the first of them."""
    files = [SourceFile(**record.model_dump(include=set(SourceFile.model_fields))) for record in there]
    if files == list(here if is_finished else here[: len(files)]):
        return
    changed = [old.name for old, new in zip(files, here, strict=False) if old != new]
    what = f"'{changed[0]}' was another source or another file" if changed else f"{len(files)} sources, not {len(here)}"
    raise UsageError("--out", f"'{out}' holds a corpus of other sources ({what})", "choose another --out or delete it")


# ---- command line ----


def recipe_inputs(recipe: CorpusRecipe, root: Path) -> tuple[list[Source], BuildConfig]:
    """Return the arguments of `build` for a recipe with files under the data root ROOT.

    Raises:
        DataError: a file is missing.
    """
    config = BuildConfig(cleaning=recipe.cleaning, exclude=recipe.excluded_under(root), held_out=recipe.held_out)
    return recipe.sources_under(root), config


def main(argv: list[str] | None = None) -> int:
    """Run the command; see the module's docstring."""
    parser = ArgumentParser("python -m corpora.build", "Clean raw text files and write them as a corpus in shards.")
    parser.add_argument(
        "sources", nargs="*", metavar="SOURCE", help="file or folder; PATH:line or PATH:text=COLUMN say how to read it"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the corpus")
    parser.add_argument("--text-unit", choices=TEXT_UNITS, default="block", help="what a document is in plain text")
    parser.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="FIELD=COLUMN",
        help="column of a field; repeatable",
    )
    parser.add_argument("--encoding", choices=ENCODINGS, default="auto", help="of text files; default: recognized")
    parser.add_argument(
        "--max-rejected", type=float, default=BuildConfig().max_rejected, metavar="SHARE", help="bad records allowed"
    )
    parser.add_argument("--min-chars", type=int, default=CleaningConfig().min_chars, help="drop shorter texts")
    parser.add_argument(
        "--min-hangul",
        type=float,
        default=CleaningConfig().min_hangul,
        help="drop texts with a smaller share of Hangul",
    )
    parser.add_argument("--keep-boilerplate", action="store_true", help="keep bylines, captions, copyright notices")
    parser.add_argument("--no-dedup", action="store_true", help="keep duplicate texts")
    parser.add_argument(
        "--exclude", nargs="+", type=Path, default=[], metavar="FILE", help="evaluation data to keep out of the corpus"
    )
    parser.add_argument(
        "--held-out", type=float, default=BuildConfig().held_out, metavar="SHARE", help="share of held-out documents"
    )
    parser.add_argument("--shard-mb", type=float, default=BuildConfig().shard_mb, help="largest size of a shard")
    parser.add_argument("--recipe", help="instead of all the above: a TOML file or a bundled recipe, e.g. open_korean")
    parser.add_argument(
        "--data", type=Path, help="data root of a recipe; default PRESSBERT_DATA, else the user's cache"
    )
    arguments = parser.parse(argv)
    sources, config = _inputs(arguments, parser)
    was_finished = (arguments.out / MANIFEST).is_file()
    manifest = build(sources, arguments.out, config)
    if was_finished:
        sys.stderr.write(f"nothing to do: {arguments.out} holds this corpus already\n")
    sys.stdout.write(f"{summary_table(manifest)}\n")
    return EXIT_DONE


def _inputs(arguments: argparse.Namespace, parser: ArgumentParser) -> tuple[list[Source], BuildConfig]:
    """Return sources and settings of the command line or of its recipe."""
    if arguments.recipe:
        given, free = vars(arguments), {"recipe", "data", "out"}
        changed = (name for name in given if (given[name] or None) != (parser.get_default(name) or None))
        if named := [name for name in changed if name not in free]:
            what = f"--{named[0].replace('_', '-')} is part of the recipe".replace("--sources", "SOURCE")
            raise UsageError("--recipe", what, "give one or the other")
        return recipe_inputs(read_corpus_recipe(arguments.recipe), data_root(arguments.data))
    if not arguments.sources:
        raise UsageError("SOURCE", "none given", "name files or folders, or a --recipe")
    values = {
        "cleaning": {
            "min_chars": arguments.min_chars,
            "min_hangul": arguments.min_hangul,
            "remove_boilerplate": not arguments.keep_boilerplate,
            "remove_duplicates": not arguments.no_dedup,
        },
        "text_unit": arguments.text_unit,
        "fields": {name: column for item in arguments.field for name, column in parse_field(item).items()},
        "encoding": arguments.encoding,
        "max_rejected": arguments.max_rejected,
        "exclude": arguments.exclude,
        "held_out": arguments.held_out,
        "shard_mb": arguments.shard_mb,
    }
    return [parse_source(source) for source in arguments.sources], validate(BuildConfig, values, parser.prog)


if __name__ == "__main__":
    run_command(main)
