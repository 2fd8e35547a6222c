"""Summarize files of articles, folders of them, or the standard input.

    echo "…" | python -m apps.summarize -
    python -m apps.summarize article.txt --sentences 2
    python -m apps.summarize ARCHIVE --out summaries.jsonl

A `.txt` file is one article, a `.jsonl` file has one per line with `text` (or 본문, content, …) and optionally `title`
and `id`; both may be gzipped. The standard input is JSONL if its first line is a JSON object, else one article. Without
arguments, an article of the embedded sample is summarized.

Offsets count the code points of the text as read, whatever its Unicode form. With `--out` an interrupted run resumes
after the last complete line. A bad record is written with its position and the reason to `….rejected.jsonl` beside the
output, and the command ends with exit code 1.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from corpora.documents import FIELD_NAMES, format_of, parse_json_object, read_lines, read_text
from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.foundation.errors import DataError, ResultError, UsageError, cannot_write
from corpora.foundation.files import write_json, write_text
from downstream.summarize import RUNTIMES, Options, Summarizer, Summary
from downstream.task import SAMPLE_ROOT

STANDARD_INPUT = "-"
SUFFIXES = (".txt", ".jsonl")


# ---- input ----


@dataclass(frozen=True)
class Item:
    """An article to summarize, or a bad record."""

    source: str
    """File as named by the user, `-` for the standard input."""
    line: int
    """Line of the record in a JSONL file, from 1; 1 for a text file."""
    id: str = ""
    text: str = ""
    title: str = ""
    error: DataError | None = None


def find_files(paths: Iterable[str]) -> list[str]:
    """Return the files to read without repetitions, those of a folder sorted by name.

    Raises:
        UsageError: a path does not exist, or a folder holds no article.
    """
    files: list[str] = []
    for name in paths:
        path = Path(name)
        if name == STANDARD_INPUT or path.is_file():
            files.append(name)
            continue
        if not path.is_dir():
            raise UsageError(name, "no such file or folder", "check the path")
        inside = [str(file) for file in sorted(path.rglob("*")) if file.is_file() and format_of(file) in SUFFIXES]
        if not inside:
            raise UsageError(name, f"no {' or '.join(SUFFIXES)} files in it", "give the folder that holds the articles")
        files += inside
    return list(dict.fromkeys(files))


def read_items(files: list[str], start: tuple[int, int] = (0, 0)) -> Iterator[Item]:
    """Read the articles of files one by one, with one article in memory.

    Args:
        files: names, `-` for the standard input.
        start: index of the file and line in it that were read last; reading starts after them.

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
            for item in _read_file(name):
                if item.line > line:
                    line = item.line
                    yield item
        except DataError as error:
            if len(files) == 1:
                raise
            yield Item(name, line + 1, error=error)


def _read_file(name: str) -> Iterator[Item]:
    path = Path(name)
    if name == STANDARD_INPUT:
        yield from _read_standard_input()
    elif format_of(path) == ".txt":
        yield _item(name, 1, {"text": read_text(path)}, path.name)
    elif format_of(path) == ".jsonl":
        yield from _read_records(name, read_lines(path))
    else:
        raise DataError(name, f"unknown format '{format_of(path)}'", f"use {' or '.join(SUFFIXES)}, or .gz of these")


def _read_standard_input() -> Iterator[Item]:
    # Whatever the console's encoding, piped text is UTF-8, possibly with a byte order mark.
    lines = (line.decode("utf-8-sig") for line in sys.stdin.buffer)
    try:
        first = next(lines, "")
        rest = itertools.chain([first], lines)
        if isinstance(parse_json_object(first, STANDARD_INPUT), dict):
            yield from _read_records(STANDARD_INPUT, rest)
        else:
            yield _item(STANDARD_INPUT, 1, {"text": "".join(rest)}, STANDARD_INPUT)
    except UnicodeDecodeError as error:
        raise DataError("standard input", "not UTF-8", "convert it, e.g. with iconv -f cp949 -t utf-8") from error


def _read_records(source: str, lines: Iterable[str]) -> Iterator[Item]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{source}:{number}"
            record = parse_json_object(line, where)
            if isinstance(record, DataError):
                yield Item(source, number, error=record)
            else:
                yield _item(source, number, record, where)


def _item(source: str, line: int, record: Mapping[str, Any], position: str) -> Item:
    # Not read_documents: it normalizes to NFC, and offsets would not count the characters of the file.
    text, title, id_ = (
        next((str(record[key]) for key in FIELD_NAMES[name] if isinstance(record.get(key), str | int | float)), "")
        for name in ("text", "title", "id")
    )
    error = None
    if not text.strip():
        known = ", ".join(FIELD_NAMES["text"])
        error = DataError(f"{source}:{line}", "no text in it", f"fill one of the fields {known}")
    return Item(source, line, id_ or position, text, title, error)


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
        run = {"files": files, "settings": dict(settings)}
        positions = {name: number for number, name in enumerate(files)}

        def position(record: Mapping[str, Any]) -> tuple[int, int]:
            return positions[record["source"]], int(record["line"])

        try:
            if out.exists() and (not about.is_file() or json.loads(read_text(about)) != run):
                fix = "give another file with --out, or remove it"
                raise UsageError(out, "it holds the output of another run", fix)
            out.parent.mkdir(parents=True, exist_ok=True)
            write_json(about, run)
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
        for file in self._files:
            file.close()
        if not self.rejected.stat().st_size:
            self.rejected.unlink()


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
    parser.add_argument("--model", help="folder or hub id; default: the bundled model")
    parser.add_argument("--runtime", default="auto", choices=RUNTIMES)
    arguments = parser.parse(argv)
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
        is_alone = len(files) == 1 and format_of(Path(files[0])) != ".jsonl"
        return print_summaries(read_items(files), summarize, as_json=arguments.json, with_ids=not is_alone)
    about = settings | {"title": arguments.title, "model": arguments.model}
    return write_summaries(files, arguments.out, summarize, about)


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
    files: list[str], out: Path, summarize: Callable[[Item], Summary], settings: Mapping[str, Any]
) -> int:
    """Write summaries to a file, resuming an interrupted run."""
    batch = Batch(out, files, settings)
    counts = {"articles": 0, "rejected": batch.num_rejected}
    try:
        for item in tqdm(read_items(files, batch.start), desc="summarize", unit="article", disable=None):
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
