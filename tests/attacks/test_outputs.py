"""Names and reasons that others wrote: text in every format of the leaderboard, and harmless in a terminal."""

import json
import logging
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from corpora.foundation.command import LineFormatter
from corpora.foundation.errors import UsageError, printable
from corpora.foundation.files import write_signed
from eval.run_all import main as leaderboard
from tests.attacks.files import board, cell, failed

HOSTILE = {
    "a script": "<script>alert(1)<--script>",
    "a picture": "<img src=x onerror=alert(2)>",
    "a link": "[a](javascript:alert(3))",
    "a picture of Markdown": "![a](http:__evil.example_a.png)",
    "a cell": "a|b",
    "a cell behind a backslash": "a\\|b",
    "a formula": "=HYPERLINK(1)",
    "code": "`a",
    "an entity": "&lt;script&gt;",
}
"""Names of models without the slash, which a folder cannot have."""
REASON = "\n\n# forged\n\n<script>alert(4)</script> | a | \x1b]0;x\x07 \u202e [a](javascript:alert(5)) <!-- "


class Tags(HTMLParser):
    """Counts tags and attributes that run something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "img"):
            self.found.append(tag)
        self.found += [key for key, value in attrs if key.startswith("on") or (value or "").startswith("javascript:")]


def written(folder: Path, names: list[str]) -> tuple[Path, str]:
    """Write a leaderboard of models of these names, each of which has failed on a second task."""
    for name in names:
        if "\\" in name:  # no name of a folder, but of a record
            continue
        board(cell(model=name), name=f"nsmc-sample/{name}")(folder / name)
        board(failed(model=name, task="klue-nli-sample", reason=REASON), "missing", f"klue-nli-sample/{name}")(
            folder / f"{name}-missing"
        )
    out = folder / "out"
    sources = [str(path / "board") for path in sorted(folder.iterdir()) if path != out]
    assert leaderboard(["--merge", *sources, "--out", str(out)]) in (0, 1)
    return out, (out / "leaderboard.md").read_text(encoding="utf-8")


def test_names_and_reasons_are_text_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "hostile").mkdir()
    plain, ours = written(tmp_path / "plain", ["a", "b"])
    capsys.readouterr()
    out, text = written(tmp_path / "hostile", list(HOSTILE.values()))
    said = "".join(capsys.readouterr())
    with subtests.test("terminal"):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", said)
    for language in ("leaderboard.md", "leaderboard.en.md"):
        with subtests.test(language):
            text, ours = ((folder / language).read_text(encoding="utf-8") for folder in (out, plain))
            tags = {tag for tag in re.findall(r"<[^ >]*", text) if not tag.startswith("<--")}
            assert tags == set(re.findall(r"<[^ >]*", ours))
            assert re.findall(r"\]\([^)]*\)", text) == re.findall(r"\]\([^)]*\)", ours)
            assert "# forged" not in text.splitlines()
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
            for rows in re.findall(r"(?:^\|.*\n)+", text, re.M):
                # A backslash escapes the bar behind it, and itself.
                cells = [re.sub(r"\\.", "", row).count("|") for row in rows.splitlines()]
                assert len(set(cells)) == 1, rows
    with subtests.test("HTML"):
        parsers = [Tags(), Tags()]
        for parser, folder in zip(parsers, (out, plain), strict=True):
            parser.feed((folder / "leaderboard.html").read_text(encoding="utf-8"))
        assert set(parsers[0].found) == set(parsers[1].found)
        assert parsers[0].found.count("script") == parsers[1].found.count("script")
    with subtests.test("CSV"):
        lines = (out / "leaderboard.csv").read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if re.search(r'(^|,)"?[=+@]', line)]
    with subtests.test("names of files"):
        assert {path.parent for path in (out / "model-index").iterdir()} == {out / "model-index"}
        json.loads((out / "leaderboard.json").read_text(encoding="utf-8"))


def test_a_record_with_a_name_that_steers_a_terminal_is_refused(tmp_path: Path) -> None:
    for number, name in enumerate(("a\x1b[2J", "a\u202eb", "a\x7f", "a\nb", "a\u2028b", "..", "a\\b", "a" * 300)):
        path = tmp_path / str(number) / "missing" / "nsmc-sample" / "a" / "seed-0.json"
        write_signed(path, failed(model=name))
        with pytest.raises(Exception, match="no name of a task or model"):
            leaderboard(["--merge", str(tmp_path / str(number)), "--out", str(tmp_path / "out")])


def test_a_pair_of_contamination_leads_nowhere_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board(cell())(tmp_path)
    pair = {"schema": 1, "task": "../../..", "split": "test", "corpus": "up", "source": "corpus"}
    write_signed(tmp_path / "board" / "contamination" / "nsmc-sample" / "news.json", pair)
    out = tmp_path / "deep" / "out"
    assert leaderboard(["--merge", str(tmp_path / "board"), "--out", str(out)]) == 1
    assert "'../../..' is no name of a task or corpus" in "".join(capsys.readouterr())
    assert not list(tmp_path.rglob("up.*"))


def test_messages_are_one_line_and_steer_no_terminal() -> None:
    name = "a\x1b]0;x\x07\u202e\nERROR forged\r.jsonl"
    assert printable(name) == "a\\x1b]0;x\\x07\\u202e ERROR forged .jsonl"
    assert printable("벼리시 ‘예산’ — 37억 원…") == "벼리시 ‘예산’ — 37억 원…"
    assert str(UsageError(name, "what", "fix")) == "a\\x1b]0;x\\x07\\u202e ERROR forged .jsonl: what; fix"
    record = logging.LogRecord("a", 30, "", 0, "%s: odd", (name,), None)
    assert LineFormatter("%(levelname)s %(message)s").format(record) == f"WARNING {printable(name)}: odd"
