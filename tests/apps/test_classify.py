"""Texts of files and of the standard input get labels; bad records are reported and lose nothing else."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from apps.classify import main
from downstream.classify import Classifier

Write = Callable[[str, str], Path]
TEXTS = ("배우들 연기가 정말 좋았다", "돈이 아까운 영화")


def test_lines_get_the_labels_of_the_classifier(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    classifier = Classifier.load()
    expected = classifier.probabilities(TEXTS)
    assert main([str(write("reviews.txt", "\n".join(TEXTS))), "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["text"] for record in records] == list(TEXTS)
    for record, row in zip(records, expected, strict=True):
        assert list(record["probabilities"].values()) == pytest.approx(row, abs=1e-5)
        assert record["label"] == classifier.labels[int(row.argmax())]


def test_the_standard_input_is_read_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TEXTS[0]}\n\n{TEXTS[1]}\n"))
    assert main(["-"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[2] for line in lines] == list(TEXTS)
    assert {line[0] for line in lines} <= set(Classifier.load().labels)


def test_bad_records_are_reported_and_the_others_labelled(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("c.jsonl", f'{{"댓글": "{TEXTS[0]}"}}\n{{"댓글": ""}}\n{{"댓글": "{TEXTS[1]}"}}\n')
    assert main([str(path), "--field", "text=댓글"]) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert printed.err == f"{path}:2: empty document; remove the record or fill its text\n"
