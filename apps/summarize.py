"""Summarize files of articles, folders of them, or the standard input.

    echo "…" | python -m apps.summarize -
    python -m apps.summarize article.txt --sentences 2
    python -m apps.summarize ARCHIVE --out summaries.jsonl

A `.txt` file is one article; `.jsonl`, `.json`, `.csv`, `.tsv`, `.xlsx` and `.parquet` have one per record, with a
column for the text (본문, content, …) and perhaps for title and id. The standard input is JSONL if its first line is a
JSON object, else one article. Without arguments, an article of the embedded sample is summarized.

Offsets count the code points of the text as read, whatever its Unicode form. With `--out` an interrupted run resumes
after the last complete line, if its input is the same or has grown. A bad record is written with its position and the
reason to `….rejected.jsonl` beside the output, and the command ends with exit code 1.
"""

import codecs
import hashlib
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.foundation.errors import DataError, ResultError, UsageError, cannot_write
from corpora.foundation.files import SAMPLE_ROOT, locked, parse_signed, write_signed, write_text
from corpora.readers.decoding import ENCODINGS, STANDARD_INPUT, Encoding, format_of, read_text
from corpora.readers.fields import candidates, column_named, is_scalar, parse_fields, seen
from corpora.readers.records import Record, find_files, parse_json_object, read_records
from downstream.summarize import RUNTIMES, Options, Summarizer, Summary

# ---- input ----


@dataclass(frozen=True)
class Item:
    """An article to summarize, or a bad record."""

    source: str
    """File as named by the user, `-` for the standard input."""
    line: int
    """Line of the record, or its number in a JSON array, from 1; 1 for a text file."""
    id: str = ""
    text: str = ""
    title: str = ""
    error: DataError | None = None


def read_items(
    files: list[str],
    start: tuple[int, int] = (0, 0),
    fields: Mapping[str, str] | None = None,
    encoding: Encoding = "auto",
) -> Iterator[Item]:
    """Read the articles of files one by one, with one article in memory.

    Args:
        files: names, `-` for the standard input.
        start: index of the file and line in it that were read last; reading starts after them.
        fields: column of `text`, `title` or `id`; others are found by their usual names.
        encoding: of text files.

    Yields:
        Articles, and bad records with their errors. A file that cannot be read is a bad record, unless it is the only
        file.

    Raises:
        DataError: the only file cannot be read.
    """
    for number, name in enumerate(files):
        if number < start[0]:
            continue
        line = start[1] if number == start[0] else 0
        try:
            for item in _read_file(name, fields or {}, encoding):
                if item.line > line:
                    line = item.line
                    yield item
        except DataError as error:
            if len(files) == 1:
                raise
            yield Item(name, line + 1, error=error)


def _read_file(name: str, fields: Mapping[str, str], encoding: Encoding) -> Iterator[Item]:
    if name == STANDARD_INPUT:
        yield from _read_standard_input(fields)
        return
    path = Path(name)
    for record in read_records(path, "file", encoding):
        yield _item(name, record, fields, path.name if format_of(path) == ".txt" else record.where)


def _read_standard_input(fields: Mapping[str, str]) -> Iterator[Item]:
    """Read JSON Lines as they come, and anything else as one article, in any encoding."""
    first = sys.stdin.buffer.readline()
    try:
        is_json = isinstance(parse_json_object(first.decode("utf-8-sig"), STANDARD_INPUT), dict)
    except UnicodeDecodeError:
        is_json = False
    if is_json:
        lines = itertools.chain([first.removeprefix(codecs.BOM_UTF8)], sys.stdin.buffer)
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = f"{STANDARD_INPUT}:{number}"
                try:
                    found = parse_json_object(line.decode(), where)
                except UnicodeDecodeError:
                    found = DataError(where, "not UTF-8", "write the records as UTF-8")
                is_bad = isinstance(found, DataError)
                record = Record(where, "", {}, found) if is_bad else Record(where, "", found)  # type: ignore[arg-type]
                yield _item(STANDARD_INPUT, record, fields, where)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "article.txt")
        path.write_bytes(first + sys.stdin.buffer.read())
        for record in read_records(path, "file"):
            error = record.error and DataError("standard input", record.error.what, "convert it to UTF-8")
            yield _item(STANDARD_INPUT, replace(record, error=error), fields, STANDARD_INPUT)


def _item(source: str, record: Record, fields: Mapping[str, str], position: str) -> Item:
    # Not read_documents: it normalizes to NFC, and offsets would not count the characters of the file.
    number = int(record.where.rpartition(":")[2])
    if record.error is not None:
        return Item(source, number, error=record.error)
    found = candidates(tuple(record.values))
    texts = {}
    for name in ("text", "title", "id"):
        columns = [column_named(fields[name], record.values)] if name in fields else found[name]
        values = (record.values.get(column) for column in columns if column is not None)
        texts[name] = next((str(value) for value in values if is_scalar(value)), "")
    error = None
    if not texts["text"].strip():
        fix = "fill it, or name the column with --field text=COLUMN"
        error = DataError(f"{source}:{number}", f"no text in it ({seen(record.values)})", fix)
    return Item(source, number, texts["id"] or position, texts["text"], texts["title"], error)


# ---- output ----


def to_record(item: Item, summary: Summary) -> dict[str, Any]:
    """Return the record of a summary."""
    sentences = [asdict(sentence) for sentence in summary.sentences]
    record: dict[str, Any] = {"id": item.id, "source": item.source, "line": item.line, "sentences": sentences}
    if summary.candidates:
        record["candidates"] = [asdict(sentence) for sentence in summary.candidates]
        record["excluded"] = [asdict(part) for part in summary.excluded]
    else:
        for sentence in sentences:
            del sentence["components"]
    return record


def to_line(record: Mapping[str, Any]) -> str:
    """Return a record as a line of JSON with readable Hangul; lone surrogates, which no file can hold, are escaped."""
    line = json.dumps(record, ensure_ascii=False)
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        line = json.dumps(record)
    return line + "\n"


class Batch:
    """An output file of one line per article that knows where an interrupted run stopped."""

    def __init__(self, out: Path, files: list[str], settings: Mapping[str, Any]) -> None:
        """Open OUT to resume or start it.

        Raises:
            UsageError: OUT holds summaries of other files or settings.
            ResultError: OUT cannot be written, or was not written by this command.
        """
        self.path, self.rejected = out, out.with_name(f"{out.name}.rejected.jsonl")
        about = out.with_name(f"{out.name}.run.json")
        run = {"files": {name: _state_of(name) for name in files}, "settings": dict(settings)}
        positions = {name: number for number, name in enumerate(files)}

        def position(record: Mapping[str, Any]) -> tuple[int, int]:
            return positions[record["source"]], int(record["line"])

        try:
            if out.exists() and not _continues(about, run):
                fix = "give another file with --out, or remove it"
                raise UsageError(out, "it holds the output of another run", fix)
            out.parent.mkdir(parents=True, exist_ok=True)
            write_signed(about, run)
            last = _repair(out)
            self.start = position(json.loads(last)) if last else (0, 0)
            _repair(self.rejected)
            # Records rejected after that position will be read again.
            kept = [line for line in _lines(self.rejected) if position(json.loads(line)) < self.start]
            write_text(self.rejected, "".join(kept))
            self.num_rejected = len(kept)
            self._files = [path.open("a", encoding="utf-8") for path in (out, self.rejected)]
        except OSError as error:
            raise cannot_write(out, error) from error
        except (KeyError, TypeError, ValueError) as error:
            what = f"its last line is no summary ({error!r})"
            raise ResultError(out, what, "give another file with --out") from error

    def write(self, record: Mapping[str, Any], *, is_rejected: bool = False) -> None:
        """Append a line and flush it."""
        file = self._files[is_rejected]
        try:
            file.write(to_line(record))
            file.flush()
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def close(self) -> None:
        """Close the files; an empty list of rejected records is removed."""
        try:
            for file in self._files:
                file.close()
            if not self.rejected.stat().st_size:
                self.rejected.unlink()
        except OSError as error:  # what the full disk has not taken before
            raise cannot_write(self.path, error) from error


def _state_of(name: str, size: int | None = None) -> list[Any]:
    """Return size and digest of an input file, or of its first SIZE bytes; nothing of the standard input."""
    if name == STANDARD_INPUT:
        return []
    digest, left = hashlib.sha256(), Path(name).stat().st_size if size is None else size
    size = left
    with Path(name).open("rb") as file:
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
    return [size, digest.hexdigest()]


def _continues(about: Path, run: Mapping[str, Any]) -> bool:
    """Whether a run is the one in ABOUT, of the same files, which may have grown since.

    Raises:
        ValueError: ABOUT is damaged.
    """
    theirs = parse_signed(read_text(about)) if about.is_file() else {}
    files = theirs.get("files")
    if not isinstance(files, dict) or theirs.get("settings") != run["settings"] or list(files) != list(run["files"]):
        return False
    return all(state == _state_of(name, state[0] if state else None) for name, state in files.items())


def _lines(path: Path) -> list[str]:
    # Not splitlines: a record may hold U+2028.
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [f"{line}\n" for line in text.split("\n") if line]


def _repair(path: Path) -> bytes:
    """Truncate an incomplete last line, and return the last complete one; empty if there is none."""
    last = b""
    if path.exists():
        size = 0
        with path.open("r+b") as file:
            for line in file:
                if line.endswith(b"\n"):
                    last = line
                    size += len(line)
            file.truncate(size)
    return last


# ---- command ----


def main(argv: list[str] | None = None) -> int:
    """Summarize from the command line."""
    parser = ArgumentParser("python -m apps.summarize", "Select the sentences that summarize Korean news articles.")
    parser.add_argument("files", nargs="*", help="files, folders, or - for the standard input")
    parser.add_argument("--sentences", type=int, default=3, help="maximum number of sentences (default: 3)")
    parser.add_argument("--ratio", type=float, help="instead of a number: share of an article's sentences")
    parser.add_argument("--max-chars", type=int, help="maximum characters of a summary")
    parser.add_argument("--title", default="", help="headline of articles without one")
    parser.add_argument("--focus", default="", help="words that selected sentences should contain, e.g. 부동산")
    parser.add_argument(
        "--explain", action="store_true", help="with --json or --out: all sentences, with parts of scores"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one line per article")
    parser.add_argument("--out", type=Path, help="write JSON to this file; an interrupted run resumes")
    parser.add_argument("--field", action="append", default=[], metavar="FIELD=COLUMN", help="e.g. text=본문")
    parser.add_argument("--encoding", choices=ENCODINGS, default="auto", help="of text files; default: recognized")
    parser.add_argument("--model", help="folder or hub id; default: the bundled model")
    parser.add_argument("--runtime", default="auto", choices=RUNTIMES)
    arguments = parser.parse(argv)
    fields = parse_fields(arguments.field)
    reading: dict[str, Any] = {"fields": fields, "encoding": arguments.encoding}
    settings = {
        "sentences": arguments.sentences,
        "ratio": arguments.ratio,
        "max_chars": arguments.max_chars,
        "focus": arguments.focus,
        "explain": arguments.explain,
    }
    try:
        Options(**settings)
    except ValueError as error:
        raise UsageError(parser.prog, str(error), f"see {parser.prog} --help") from error
    files = find_files(arguments.files)
    summarizer = Summarizer.load(arguments.model, arguments.runtime)

    def summarize(item: Item) -> Summary:
        return summarizer.summarize(item.text, title=item.title or arguments.title, **settings)

    if not files:
        sys.stderr.write("no file given: an article of the embedded sample\n")
        items: Iterator[Item] = itertools.islice(read_items([str(SAMPLE_ROOT / "news.jsonl")]), 1)
        return print_summaries(items, summarize, as_json=arguments.json)
    if arguments.out is None:
        is_alone = len(files) == 1 and format_of(Path(files[0])) == ".txt"
        return print_summaries(read_items(files, **reading), summarize, as_json=arguments.json, with_ids=not is_alone)
    about = settings | {"title": arguments.title, "model": arguments.model} | (reading if fields else {})
    return write_summaries(files, arguments.out, summarize, about, reading)


def print_summaries(
    items: Iterable[Item], summarize: Callable[[Item], Summary], *, as_json: bool, with_ids: bool = False
) -> int:
    """Print a summary for each article: its sentences, one per line, or a line of JSON."""
    num_bad = 0
    for item in items:
        if item.error is not None:
            sys.stderr.write(f"{item.error}\n")
            num_bad += 1
            continue
        summary = summarize(item)
        if not summary.sentences:
            sys.stderr.write(f"{item.id}: no sentences except bylines, captions and the like\n")
        heading = f"# {item.id}\n" if with_ids else ""
        text = to_line(to_record(item, summary)) if as_json else f"{heading}{summary}\n" + "\n" * with_ids
        sys.stdout.write(text)
        sys.stdout.flush()
    return EXIT_FAILED_CELLS if num_bad else EXIT_DONE


def write_summaries(
    files: list[str],
    out: Path,
    summarize: Callable[[Item], Summary],
    settings: Mapping[str, Any],
    reading: Mapping[str, Any],
) -> int:
    """Write summaries to a file, resuming an interrupted run."""
    with locked(out.with_name(f".{out.name}.lock"), f"{out}", is_kept=False):
        return _write_batch(Batch(out, files, settings), files, summarize, reading)


def _write_batch(
    batch: Batch, files: list[str], summarize: Callable[[Item], Summary], reading: Mapping[str, Any]
) -> int:
    out = batch.path
    counts = {"articles": 0, "rejected": batch.num_rejected}
    try:
        for item in tqdm(read_items(files, batch.start, **reading), desc="summarize", unit="article", disable=None):
            if item.error is None:
                batch.write(to_record(item, summarize(item)))
                counts["articles"] += 1
            else:
                reason = {"id": item.id, "source": item.source, "line": item.line, "reason": str(item.error)}
                batch.write(reason, is_rejected=True)
                counts["rejected"] += 1
    finally:
        batch.close()
    sys.stderr.write(f"{out}: {counts['articles']:,} articles summarized")
    sys.stderr.write(
        f", {counts['rejected']:,} records rejected, see {batch.rejected}\n" if counts["rejected"] else "\n"
    )
    return EXIT_FAILED_CELLS if counts["rejected"] else EXIT_DONE


if __name__ == "__main__":
    run_command(main)
