"""Ask all tools about a draft, or compare two versions of an article, from the command line.

python -m apps.desk draft.txt --archive earlier.jsonl --html desk.html
python -m apps.desk changes old.txt new.txt
"""

import dataclasses
import json
import sys
from pathlib import Path

from apps.desk.changes import changes
from apps.desk.draft import Earlier, examine
from apps.desk.export import to_html, to_text
from corpora.documents import RejectedRecord, read_documents, report_rejected
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import write_text
from corpora.foundation.texts import LANGUAGES, Texts
from corpora.readers.decoding import read_text
from downstream.headlines.writer import HeadlineWriter


def main(argv: list[str] | None = None) -> int:
    """Examine a draft, or print what an update changed."""
    given = sys.argv[1:] if argv is None else argv
    return _changes(given[1:]) if given[:1] == ["changes"] else _examine(given)


def _examine(argv: list[str]) -> int:
    parser = ArgumentParser(
        "python -m apps.desk", "Ask all tools about a draft; `changes` first compares two versions."
    )
    parser.add_argument("draft", type=Path, help="text file")
    parser.add_argument("--title", default="", help="headline of the draft")
    parser.add_argument("--archive", type=Path, help="earlier articles: jsonl, csv …")
    parser.add_argument("--headline-model", type=Path, help="folder of `python -m downstream.headline train`")
    parser.add_argument("--html", type=Path, help="write one HTML file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--lang", choices=LANGUAGES, default=LANGUAGES[0], help="language of the headings")
    arguments = parser.parse(argv)
    rejected: list[RejectedRecord] = []
    earlier = read_documents(arguments.archive, rejected=rejected) if arguments.archive else ()
    archive = [Earlier(document.title, document.text) for document in earlier]
    writer = HeadlineWriter.load(arguments.headline_model) if arguments.headline_model else None
    found = examine(read_text(arguments.draft), arguments.title, archive, writer=writer)
    texts = Texts(arguments.lang, "demo")
    if arguments.html:
        write_text(arguments.html, to_html(found, texts))
    if arguments.json:
        sys.stdout.write(json.dumps(dataclasses.asdict(found), ensure_ascii=False) + "\n")
    elif not arguments.html:
        sys.stdout.write(to_text(found, texts))
    return report_rejected(rejected)


def _changes(argv: list[str]) -> int:
    parser = ArgumentParser("python -m apps.desk changes", "Print what an update of an article changed.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON, a line a change")
    arguments = parser.parse(argv)
    for change in changes(read_text(arguments.old), read_text(arguments.new)):
        if arguments.json:
            sys.stdout.write(json.dumps(dataclasses.asdict(change), ensure_ascii=False) + "\n")
        else:
            sys.stdout.write(f"{change.kind}\t{_line(change.old_text)}\t→\t{_line(change.new_text)}\n")
    return EXIT_DONE


def _line(text: str) -> str:
    return " ".join(text.split()) or "–"


if __name__ == "__main__":
    run_command(main)
