"""Copies in a file are printed as groups; bad records are reported and lose nothing else."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from apps.duplicates import main
from corpora.foundation.errors import UsageError

Fails = Callable[..., AbstractContextManager[None]]
Write = Callable[[str, str], Path]
ROWS = (
    {"id": "a", "title": "한강 다리가 열렸다", "text": "한강에 새 다리가 열렸다. 시민들이 반겼다."},
    {"id": "b", "title": "한강 다리가 열렸다", "text": "오늘은 전국에 비가 온다. 우산을 챙겨야 한다."},
    {"id": "c", "title": "전국에 비", "text": "오늘은 전국에 비가 온다. 우산을 챙겨야 한다."},
)


def rows(*extra: str) -> str:
    return "\n".join([*(json.dumps(row, ensure_ascii=False) for row in ROWS), *extra]) + "\n"


def test_titles_and_texts_give_their_own_groups(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("day.jsonl", rows())
    for arguments, members in ((["--json"], ["a", "b"]), (["--by", "text", "--json"], ["b", "c"])):
        assert main([str(path), *arguments]) == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out)["members"] == members, arguments
        assert printed.err == "3 articles, 1 copies in 1 groups\n", arguments


def test_groups_are_printed_a_line_an_article(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(write("day.jsonl", rows()))]) == 0
    assert capsys.readouterr().out == "a\t한강 다리가 열렸다\nb\t한강 다리가 열렸다\n"


def test_bad_records_and_options_are_reported(write: Write, fails: Fails, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("day.jsonl", rows("{"))
    assert main([str(path)]) == 1
    assert f"{path}:4: not valid JSON" in capsys.readouterr().err
    with fails(UsageError, "--column", "'title' is not FIELD=NAME"):
        main([str(path), "--column", "title"])
