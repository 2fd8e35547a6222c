"""Find articles that print the same text: exact copies and near-duplicates.

    python -m apps.duplicates titles.csv
    python -m apps.duplicates articles.jsonl --by text --json > copies.jsonl

Files are read as by `apps.clustering`: BigKinds exports, JSON, JSONL, CSV, TSV, or lines of titles. A record that
cannot be read is reported with its line, and the command ends with exit code 1. From Python:
`apps.clustering.find_duplicates`.
"""

import json
import sys
from pathlib import Path

from apps.stories.articles import parse_columns, read_articles
from apps.stories.duplicates import find_duplicates
from corpora.documents import RejectedRecord, report_rejected
from corpora.foundation.command import ArgumentParser, run_command


def main(argv: list[str] | None = None) -> int:
    """Find duplicates from the command line."""
    parser = ArgumentParser("python -m apps.duplicates", "Find articles that print the same text.")
    parser.add_argument("file", type=Path, metavar="FILE", help="articles or titles")
    parser.add_argument("--by", choices=["title", "text"], default="title", help="what is compared")
    parser.add_argument("--column", action="append", default=[], metavar="FIELD=NAME", help="e.g. title=헤드라인")
    parser.add_argument("--json", action="store_true", help="print JSON, a line a group")
    arguments = parser.parse(argv)
    rejected: list[RejectedRecord] = []
    articles = read_articles(arguments.file, columns=parse_columns(arguments.column), rejected=rejected)
    texts = [article.title if arguments.by == "title" else article.text or article.title for article in articles]
    groups = find_duplicates(texts)
    for number, group in enumerate(groups):
        members = [articles[index] for index in group.members]
        if arguments.json:
            record = {"id": articles[group.representative].id, "members": [article.id for article in members]}
            sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            lines = "".join(f"{article.id}\t{article.title}\n" for article in members)
            sys.stdout.write(("\n" if number else "") + lines)
    copies = sum(len(group.members) - 1 for group in groups)
    sys.stderr.write(f"{len(articles):,} articles, {copies:,} copies in {len(groups):,} groups\n")
    return report_rejected(rejected)


if __name__ == "__main__":
    run_command(main)
