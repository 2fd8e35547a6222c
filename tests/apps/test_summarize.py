"""The command that summarises: its inputs and outputs, bad records, interrupted runs, exit codes."""

import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import apps.summarize
from apps.summarize import main
from corpora.foundation.errors import DataError, ResultError, UsageError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.summarize import Summarizer

ROOT = Path(apps.summarize.__file__).parents[1]
Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]
TEXT = "물빛시가 새 다리를 놓는다. 공사비는 300억원이다. 시민은 반겼다. 날은 흐렸다. 시는 내년에 마칠 계획이다."


def run(*arguments: str, stdin: str | bytes = "", encoding: str = "utf-8") -> tuple[int, str, str]:
    """Run the command as a process."""
    done = subprocess.run(
        [sys.executable, "-m", "apps.summarize", *arguments],
        cwd=ROOT,
        input=stdin if isinstance(stdin, bytes) else stdin.encode(),
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": encoding},
    )
    return done.returncode, done.stdout.decode(encoding), done.stderr.decode(encoding)


def records_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def jsonl(num: int, start: int = 0) -> str:
    records = (
        {"id": f"n{k}", "title": f"{k}번 기사", "text": f"{k}번 기사다. {TEXT}"} for k in range(start, start + num)
    )
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


# ---- faces ----


def test_a_text_from_the_standard_input_is_summarized() -> None:
    code, out, err = run("-", "--sentences", "2", stdin=f"\ufeff{TEXT}\n")
    assert (code, err) == (0, "")
    assert out.splitlines() == [s.text for s in Summarizer.load().summarize(TEXT, 2).sentences]


def test_jsonl_from_the_standard_input_gives_a_line_an_article() -> None:
    code, out, _ = run("-", "--json", stdin=jsonl(3))
    assert code == 0
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["n0", "n1", "n2"]


def test_without_arguments_the_sample_shows_what_it_does() -> None:
    code, out, err = run()
    assert code == 0
    assert len(out.splitlines()) == 3
    assert "sample" in err


def test_a_console_without_hangul_gets_one_line_instead_of_question_marks() -> None:
    code, out, err = run("-", stdin=TEXT, encoding="ascii")
    assert (code, out) == (2, "")
    assert err.startswith("standard output (ascii): it has no character")
    assert len(err.splitlines()) == 1


def test_what_the_user_must_fix_is_one_line_and_exit_code_2() -> None:
    for arguments, stdin, where, what in [
        (["nowhere.txt"], "", "nowhere.txt", "no such file"),
        (["-", "--sentences", "0"], TEXT, "python -m apps.summarize", "sentences=0"),
        (["-", "--ratio", "2"], TEXT, "python -m apps.summarize", "ratio"),
        (["-", "--sentence", "2"], TEXT, "python -m apps.summarize", "--sentences"),
        (["-", "--model", "nowhere"], TEXT, "nowhere", "no such folder"),
        (["pyproject.toml"], "", "pyproject.toml", "unknown format"),
        (["docs/images"], "", "docs/images", "no .jsonl, .json, .csv"),
    ]:
        code, out, err = run(*arguments, stdin=stdin)
        assert (code, out) == (2, ""), arguments
        assert err.startswith(where), arguments
        assert what in err, arguments
        assert len(err.splitlines()) == 1, arguments


# ---- files ----


def test_files_folders_and_gzip_are_read_in_order(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("in/b.jsonl", jsonl(2))
    write("in/a.txt", TEXT)
    write("in/sub/c.jsonl.gz", gzip.compress(jsonl(1, start=5).encode()))
    folder = write("in/note.md", "no article").parent
    assert main([str(folder), str(folder / "a.txt"), "--json"]) == 0  # a file that is named twice is read once
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["id"] for record in records] == ["a.txt", "n0", "n1", "n5"]
    assert [record["line"] for record in records] == [1, 1, 2, 1]


def test_several_articles_have_headings_in_plain_text(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(write("a.jsonl", jsonl(2))), "--sentences", "1"]) == 0
    assert capsys.readouterr().out.split("\n")[::3][:2] == ["# n0", "# n1"]


def test_korean_field_names_titles_and_options_reach_the_model(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"제목": "날은 흐렸다", "본문": TEXT, "아이디": 7}
    path = write("a.jsonl", json.dumps(record, ensure_ascii=False))
    assert main([str(path), "--json", "--sentences", "2", "--focus", "날", "--max-chars", "40", "--explain"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = Summarizer.load().summarize(TEXT, 2, title="날은 흐렸다", focus="날", max_chars=40, explain=True)
    assert found["id"] == "7"
    assert [s["text"] for s in found["sentences"]] == [s.text for s in expected.sentences]
    assert found["candidates"][0]["components"] == expected.candidates[0].components


def test_offsets_are_those_of_the_file_whatever_its_normal_form(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    text = unicodedata.normalize("NFD", TEXT)
    assert main([str(write("a.jsonl", json.dumps({"text": text}))), "--json"]) == 0
    for sentence in json.loads(capsys.readouterr().out)["sentences"]:
        assert text[sentence["start"] : sentence["end"]] == sentence["text"]


def test_a_lone_surrogate_comes_back_as_it_went_in(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("a.jsonl", json.dumps({"text": f"물빛시가 \ud800다리를 놓는다. {TEXT}"}))
    assert main([str(path), "--json", "--sentences", "9"]) == 0
    assert json.loads(capsys.readouterr().out)["sentences"][0]["text"] == "물빛시가 \ud800다리를 놓는다."


BAD = '{"id": "x", "text": "  "}\n{"id": "y"}\n{"id": "z", "te\n[1]\n'


def test_bad_records_are_listed_and_the_rest_is_done(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("a.jsonl", jsonl(1) + BAD + jsonl(1, start=1))
    assert main([str(path), "--json"]) == 1
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert [line.split(": ")[0] for line in captured.err.splitlines()] == [f"{path}:{k}" for k in (2, 3, 4, 5)]


def test_nan_is_no_text(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("a.jsonl", '{"title": "제목", "text": NaN}\n' + jsonl(1))
    assert main([str(path), "--json"]) == 1
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert captured.err.startswith(f"{path}:1: no text in it")


def test_bad_records_are_set_aside_beside_the_output(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = write("a.jsonl", jsonl(1) + BAD), tmp_path / "o.jsonl"
    assert main([str(path), "--out", str(out)]) == 1
    assert [record["line"] for record in records_of(tmp_path / "o.jsonl.rejected.jsonl")] == [2, 3, 4, 5]
    assert "4 records rejected" in capsys.readouterr().err
    assert main([str(path), "--out", str(out)]) == 1  # the second run remembers them
    assert len(records_of(tmp_path / "o.jsonl.rejected.jsonl")) == 4


def test_a_file_that_cannot_be_read_stops_only_itself(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write("a.jsonl", jsonl(1)), write("b.txt", b"\xff\xff")
    broken = write("c.jsonl.gz", gzip.compress((jsonl(50)).encode())[:-40])
    last = write("d.jsonl", jsonl(1, start=9))
    assert main([str(good), str(bad), str(broken), str(last), "--json"]) == 1
    captured = capsys.readouterr()
    assert [json.loads(captured.out.splitlines()[k])["id"] for k in (0, -1)] == ["n0", "n9"]
    assert "not UTF-8" in captured.err
    assert "cut off here" in captured.err


def test_an_article_of_bylines_has_an_empty_summary_and_a_word_about_it(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(write("a.txt", "김하늘 기자 sky@mulbit.example")), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["sentences"] == []
    assert captured.err.startswith("a.txt: no sentence")


def test_the_only_file_must_be_readable(write: Write, fails: Fails) -> None:
    path = write("b.xlsx", "no workbook")
    with fails(DataError, path, "not an Excel workbook"):
        main([str(path)])


def test_every_format_and_encoding_gives_the_same_summaries(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.loads(jsonl(1))["text"]
    rows = [["뉴스 식별자", "제목", "본문"], ["n0", "제목", text]]
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    record = json.dumps({"id": "n0", "text": text}, ensure_ascii=False)
    files = {
        "a.jsonl": record.encode(),
        "a.json": f'{{"items": [{record}]}}'.encode(),
        "a.csv": table.getvalue().encode("utf-8-sig"),
        "b.csv": table.getvalue().encode("utf-16"),
        "a.csv.gz": gzip.compress(table.getvalue().encode()),
    }
    expected = None
    for name, content in files.items():
        assert main([str(write(name, content)), "--json"]) == 0, name
        found = json.loads(capsys.readouterr().out)
        assert found["id"] == "n0", name
        expected = expected or found["sentences"]
        assert found["sentences"] == expected, name
        assert all(text[s["start"] : s["end"]] == s["text"] for s in found["sentences"]), name


def test_cp949_is_read_from_files_and_from_the_standard_input(write: Write) -> None:
    text = "다리가 열렸다. 시민들이 반겼다.\n"
    path = write("a.txt", text.encode("cp949"))
    for arguments, stdin in (([str(path)], ""), (["-"], text.encode("cp949"))):
        code, out, _ = run(*arguments, stdin=stdin)
        assert (code, out) == (0, "다리가 열렸다.\n시민들이 반겼다.\n"), arguments


# ---- batches ----


def test_a_batch_is_what_single_summaries_are(tmp_path: Path) -> None:
    out = tmp_path / "new" / "o.jsonl"
    assert main([str(SAMPLE_ROOT / "news.jsonl"), "--out", str(out)]) == 0
    articles = records_of(SAMPLE_ROOT / "news.jsonl")
    records = records_of(out)
    assert len(records) == 120
    for article, record in zip(articles[::20], records[::20], strict=True):
        alone = Summarizer.load().summarize(article["text"], title=article["title"])
        assert record["sentences"] == [
            {"text": s.text, "start": s.start, "end": s.end, "index": s.index, "score": s.score}
            for s in alone.sentences
        ]
    assert not out.with_name("o.jsonl.rejected.jsonl").exists()


@pytest.mark.parametrize("cut", [1, 30, 100_000])
def test_a_second_run_repairs_the_last_line_and_resumes(cut: int, write: Write, tmp_path: Path) -> None:
    files = [str(write("a.jsonl", jsonl(5) + BAD + jsonl(5, start=5))), str(write("b.txt", TEXT))]
    whole, again = tmp_path / "whole.jsonl", tmp_path / "again.jsonl"
    assert main([*files, "--out", str(whole)]) == 1
    assert main([*files, "--out", str(again)]) == 1
    again.write_bytes(again.read_bytes()[:-cut])
    rejected = tmp_path / "again.jsonl.rejected.jsonl"
    if cut == 100_000:
        rejected.write_bytes(rejected.read_bytes()[:-7])
    assert main([*files, "--out", str(again)]) == 1
    assert records_of(again) == records_of(whole)
    assert records_of(rejected) == records_of(tmp_path / "whole.jsonl.rejected.jsonl")


def test_a_killed_run_is_continued_without_loss_or_repetition(write: Write, tmp_path: Path) -> None:
    path, out = write("a.jsonl", jsonl(1500)), tmp_path / "o.jsonl"
    command = [sys.executable, "-m", "apps.summarize", str(path), "--out", str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while (not out.exists() or out.stat().st_size < 20_000) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = out.read_bytes().count(b"\n")
    assert 0 < done < 1500
    assert main([str(path), "--out", str(out)]) == 0
    assert [record["id"] for record in records_of(out)] == [f"n{k}" for k in range(1500)]


def test_a_finished_run_does_nothing_and_new_records_at_the_end_are_added(write: Write, tmp_path: Path) -> None:
    path, out = write("a.jsonl", jsonl(3)), tmp_path / "o.jsonl"
    assert main([str(path), "--out", str(out)]) == 0
    before = out.read_bytes()
    assert main([str(path), "--out", str(out)]) == 0
    assert out.read_bytes() == before
    path.write_text(jsonl(5), encoding="utf-8")
    assert main([str(path), "--out", str(out)]) == 0
    assert [record["id"] for record in records_of(out)] == ["n0", "n1", "n2", "n3", "n4"]


def test_an_output_of_another_run_is_refused(write: Write, tmp_path: Path, fails: Fails) -> None:
    path, out = write("a.jsonl", jsonl(3)), tmp_path / "o.jsonl"
    main([str(path), "--out", str(out)])
    with fails(UsageError, out, "another run"):
        main([str(path), "--out", str(out), "--sentences", "2"])
    with fails(UsageError, out, "another run"):
        main([str(write("b.txt", TEXT)), str(path), "--out", str(out)])
    # Other articles under the same name: the first three would be taken for done.
    path.write_text(jsonl(6).replace("n0", "m0"), encoding="utf-8")
    with fails(UsageError, out, "another run"):
        main([str(path), "--out", str(out)])
    stranger = write("mine.jsonl", "precious\n")
    with fails(UsageError, stranger, "another run"):
        main([str(path), "--out", str(stranger)])
    assert stranger.read_text(encoding="utf-8") == "precious\n"


def test_an_output_of_something_else_is_an_error(write: Write, tmp_path: Path, fails: Fails) -> None:
    path, out = write("a.jsonl", jsonl(3)), tmp_path / "o.jsonl"
    main([str(path), "--out", str(out)])
    with out.open("a", encoding="utf-8") as file:
        file.write("not JSON\n")
    with fails(ResultError, out, "last line"):
        main([str(path), "--out", str(out)])


def test_records_are_read_one_by_one(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gigabyte of JSONL must not be in memory: the first summary is out before the second record is read."""
    read: list[int] = []
    lines = (read.append(k) or line for k, line in enumerate(jsonl(3).splitlines(keepends=True)))
    monkeypatch.setattr("corpora.readers.records.read_decoded", lambda *_: lines)
    path = write("a.jsonl", "x")
    counts: list[int] = []

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            counts.append(len(read))
            return len(text)

    monkeypatch.setattr(sys, "stdout", Output())
    assert main([str(path), "--json"]) == 0
    assert counts == [1, 2, 3]
