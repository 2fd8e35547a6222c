"""Building a corpus: what is in it, that an interruption changes no byte, and one line for whatever is wrong."""

import contextlib
import gzip
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from corpora import build as build_module
from corpora.build import BuildConfig, build, main
from corpora.cleaning import CleaningConfig
from corpora.corpus import PREFIXES, corpus_files, corpus_texts, read_corpus, read_manifest
from corpora.documents import Document
from corpora.foundation.errors import DataError, RecipeError, SuiteError, UsageError
from corpora.foundation.files import locked
from corpora.pipeline.executors import run_build
from corpora.pipeline.plan import Build, make_plan
from corpora.sources import Source, find_inputs, parse_source

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

ALL = BuildConfig(held_out=0)
CITIES = ("벼리시", "너울시", "다솔군", "서율시", "물안군", "도울시", "청람시")


def report(number: int) -> str:
    return f"{CITIES[number % 7]} 의회가 {number}번째 본회의에서 예산 {number * 37}억 원을 의결했다."


def as_jsonl(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def news(first: int, last: int) -> str:
    return as_jsonl(*({"id": str(k), "title": f"{k}번째 예산", "text": report(k)} for k in range(first, last)))


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def texts(folder: Path) -> list[str]:
    return [document.text for document in read_corpus(folder)]


# ---- what comes out ----


def test_a_corpus_has_shards_of_readable_records_and_a_manifest_that_adds_up(write: Write, tmp_path: Path) -> None:
    first = write("in/news.jsonl", news(0, 300) + '{"id": "bad"}\n' + as_jsonl({"id": "x", "text": "짧다"}))
    second = write("in/more.csv", "제목,본문,날짜,분류\n첫눈,서울에 첫눈이 “펑펑” 온다.,2024-12-18,날씨\n")
    out = tmp_path / "corpus"
    manifest = build([first, second], out, BuildConfig(held_out=0.2, shard_mb=0.01))
    assert json.loads((out / "manifest.json").read_text(encoding="utf-8"))["schema"] == 1
    assert set(content(out)) == {
        "manifest.json",
        "rejected.jsonl",
        ".lock",
        "dropped.jsonl",
        "report.md",
        *(shard.name for shard in manifest.shards),
    }

    records: dict[str, Any] = {}
    for shard in manifest.shards:
        data = (out / shard.name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (shard.size_bytes, shard.sha256)
        assert len(data) <= 10_000
        lines = data.decode().splitlines()
        assert len(lines) == shard.num_documents
        records |= {record["id"]: record for record in map(json.loads, lines)}
        assert "\\u" not in data.decode()
    assert [s.name for s in manifest.shards if s.split == "train"] == [f"documents-{k:05d}.jsonl" for k in range(6)]
    seventh = {"id": "news.jsonl#7", "title": "7번째 예산", "text": report(7), "source": "news.jsonl"}
    assert records["news.jsonl#7"] == seventh
    snow = {"title": "첫눈", "text": "서울에 첫눈이 “펑펑” 온다.", "date": "2024-12-18", "section": "날씨"}
    assert records["more.csv:2"] == {"id": "more.csv:2", "source": "more.csv", **snow}

    one, two = manifest.sources
    assert (one.name, one.sha256) == ("news.jsonl", hashlib.sha256(first.read_bytes()).hexdigest())
    assert one.size_bytes == first.stat().st_size
    assert (one.num_read, one.num_rejected, one.dropped) == (301, 1, {"too_short": 1})
    assert (two.num_read, two.num_rejected, two.dropped) == (1, 0, {})
    kept = list(read_corpus(out))
    assert one.num_kept + two.num_kept == manifest.totals.num_kept == len(kept)
    assert manifest.totals.num_held_out == len(list(read_corpus(out, "held-out")))
    assert manifest.totals.num_chars == sum(len(document.title) + len(document.text) for document in kept)
    for counts in (one, two, manifest.totals):
        assert counts.num_read == counts.num_kept + counts.num_held_out + sum(counts.dropped.values())
    assert not any(str(tmp_path).encode() in data for data in content(out).values())


def test_the_same_sources_and_settings_give_the_same_bytes_wherever_they_lie(write: Write, tmp_path: Path) -> None:
    for folder in ("here", "there"):
        source = write(f"{folder}/news.jsonl", news(0, 50) + "{\n")
        build([source], tmp_path / folder / "out")
    assert content(tmp_path / "here" / "out") == content(tmp_path / "there" / "out")


def test_a_document_longer_than_a_shard_has_one_of_its_own(write: Write, tmp_path: Path) -> None:
    long = " ".join(report(k) for k in range(100, 200))
    source = write("news.jsonl", news(0, 2) + as_jsonl({"text": long}) + news(3, 5))
    manifest = build([source], tmp_path / "out", BuildConfig(held_out=0, shard_mb=0.001))
    assert [shard.num_documents for shard in manifest.shards] == [2, 1, 2]
    assert texts(tmp_path / "out") == [report(0), report(1), long, report(3), report(4)]


def test_bad_records_are_set_aside_with_place_and_reason(write: Write, tmp_path: Path) -> None:
    source = write("news.jsonl", as_jsonl({"text": report(1)}) + "{\n" + as_jsonl({"text": " "}, {"text": report(2)}))
    manifest = build([source], tmp_path / "out", ALL)
    assert manifest.totals.num_rejected == 2
    lines = (tmp_path / "out" / "rejected.jsonl").read_text(encoding="utf-8").splitlines()
    rejected = [json.loads(line) for line in lines]
    assert [record["where"] for record in rejected] == ["news.jsonl:2", "news.jsonl:3"]
    assert "not valid JSON" in rejected[0]["reason"]
    assert rejected[0]["record"] == "{\n"
    assert rejected[1]["reason"] == "empty document"
    assert [set(record) for record in rejected] == [{"where", "reason", "fix", "record"}] * 2
    assert rejected[1]["fix"] == "remove the record or fill its text"


def test_decomposed_text_is_composed_and_the_duplicate_of_its_composed_form(write: Write, tmp_path: Path) -> None:
    composed = write("a.jsonl", as_jsonl({"text": report(1)}))
    decomposed = write("b.jsonl", unicodedata.normalize("NFD", as_jsonl({"text": report(1)}, {"text": report(2)})))
    manifest = build([composed, decomposed], tmp_path / "out", ALL)
    assert texts(tmp_path / "out") == [report(1), report(2)]
    assert manifest.sources[1].dropped == {"duplicate": 1}


def test_cleaning_is_as_configured(write: Write, tmp_path: Path) -> None:
    text = f"{report(1)}\n김하늘 기자 sky@press.example"
    source = write("a.jsonl", as_jsonl({"text": text}, {"text": text}, {"text": "짧다"}))
    manifest = build([source], tmp_path / "cleaned", ALL)
    assert texts(tmp_path / "cleaned") == [report(1)]
    assert (manifest.totals.dropped, manifest.totals.edited) == ({"duplicate": 1, "too_short": 1}, {"byline": 2})
    cleaning = CleaningConfig(min_chars=0, remove_boilerplate=False, remove_duplicates=False, privacy=())
    build([source], tmp_path / "raw", BuildConfig(held_out=0, cleaning=cleaning))
    assert texts(tmp_path / "raw") == [text, text, "짧다"]


def test_texts_of_evaluation_files_do_not_get_in(write: Write, tmp_path: Path) -> None:
    nsmc = write("ratings_test.txt", f"id\tdocument\tlabel\n1\t{report(3)}\t1\n")
    klue = write("dev.json", json.dumps([{"premise": report(4), "hypothesis": report(5)}]))
    source = write("a.jsonl", news(0, 10))
    manifest = build([source], tmp_path / "out", BuildConfig(held_out=0, exclude=(nsmc, klue)))
    assert texts(tmp_path / "out") == [report(k) for k in (0, 1, 2, 6, 7, 8, 9)]
    assert manifest.totals.dropped == {"excluded": 3}
    assert [file["name"] for file in manifest.settings["exclude"]] == ["ratings_test.txt", "dev.json"]


# ---- held out ----


def test_what_is_held_out_depends_on_the_text_alone(write: Write, tmp_path: Path) -> None:
    first = write("first.jsonl", news(0, 1000))
    second = write("second.jsonl", news(1000, 2000))
    backwards = write("backwards.txt", "\n".join(report(k).replace(" ", "  ") for k in range(1999, -1, -1)))
    config = BuildConfig(held_out=0.1)
    cases: dict[str, list[Path | Source]]
    cases = {"one": [first], "two": [second, first], "back": [Source(backwards, "line")]}
    held_out = {}
    for name, sources in cases.items():
        build(sources, tmp_path / name, config)
        held_out[name] = {document.text for document in read_corpus(tmp_path / name, "held-out")}
        assert held_out[name].isdisjoint(texts(tmp_path / name))
    assert held_out["one"] == held_out["two"] & {report(k) for k in range(1000)}
    assert held_out["two"] == held_out["back"]
    assert 150 < len(held_out["two"]) < 250  # 200 expected; beyond 3.7 standard deviations


def test_a_larger_share_holds_out_the_same_texts_and_more(write: Write, tmp_path: Path) -> None:
    source = write("news.jsonl", news(0, 500))
    held_out = []
    for share in (0, 0.1, 0.3):
        build([source], tmp_path / str(share), BuildConfig(held_out=share))
        held_out.append({document.text for document in read_corpus(tmp_path / str(share), "held-out")})
    assert set() == held_out[0] < held_out[1] < held_out[2]


def test_a_share_of_a_source_is_chosen_by_the_texts_alone_and_the_rest_counted(write: Write, tmp_path: Path) -> None:
    forwards = write("news.jsonl", news(0, 1000))
    backwards = write("backwards.txt", "\n".join(report(k) for k in range(999, -1, -1)))
    taken = {}
    for name, source in {
        "fifth": Source(forwards, share=0.2),
        "half": Source(forwards, share=0.5),
        "back": Source(backwards, "line", share=0.2),
    }.items():
        manifest = build([source], tmp_path / name, BuildConfig(held_out=0.1))
        taken[name] = {document.text for split in PREFIXES for document in read_corpus(tmp_path / name, split)}
        assert manifest.totals.num_read == 1000
        assert manifest.totals.dropped == {"not_sampled": 1000 - len(taken[name])}
        # One choice does not decide the other.
        assert 0.05 < manifest.totals.num_held_out / len(taken[name]) < 0.16
    assert taken["back"] == taken["fifth"] < taken["half"]
    assert 150 < len(taken["fifth"]) < 250


# ---- interruption ----

KILLED = """
import os, signal, sys
import corpora.pipeline.reading as reading
from corpora.build import main

left = int(sys.argv[1])
read = reading.read_documents

def reading_until_killed(*args, **kwargs):
    global left
    for document in read(*args, **kwargs):
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        yield document

reading.read_documents = reading_until_killed
main(sys.argv[2:])
"""


def run(sources: list[Path | Source], out: Path, config: BuildConfig, tasks: int = 1) -> None:
    """Build a corpus, and leave the results of its tasks in place."""
    plan = make_plan(config, find_inputs(sources, out, config.text_unit, config.fields))
    run_build(Build.begin(out, plan), tasks=tasks)


def marks(out: Path) -> dict[Path, int]:
    """Return the marks of finished tasks, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in out.glob(".progress/*/*/mark.json")}


def test_a_killed_build_keeps_finished_tasks_and_ends_with_the_same_bytes(
    write: Write, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    sources = [
        write("in/a.jsonl", news(0, 300) + "{\n"),
        write("in/b.jsonl", news(250, 500) + "{\n"),  # a sixth of it was in the first
        write("in/c.txt", "\n".join(report(k) for k in range(400, 700))),
    ]
    arguments = [*map(str, sources[:2]), f"{sources[2]}:line", "--held-out", "0.1", "--shard-mb", "0.01", "--out"]
    assert main([*arguments, str(tmp_path / "whole")]) == 0
    whole = content(tmp_path / "whole")
    for num_read, num_finished in ((150, 0), (750, 2)):
        with subtests.test(num_read=num_read):
            out = tmp_path / f"killed-{num_read}"
            command = [sys.executable, "-c", KILLED, str(num_read), *arguments, str(out)]
            done = subprocess.run(command, capture_output=True, check=False)
            assert done.returncode == -signal.SIGKILL
            finished = marks(out)
            assert len(finished) == num_finished
            assert list(out.glob(".progress/*/.*.part"))  # there is something to clear away
            with fails(DataError, out, "this corpus is not finished"):
                corpus_files(out)
            run([*sources[:2], Source(sources[2], "line")], out, BuildConfig(held_out=0.1, shard_mb=0.01))
            assert finished.items() <= marks(out).items()
            assert main([*arguments, str(out)]) == 0  # it clears away
            assert content(out) == whole


def test_work_of_an_interrupted_build_serves_other_sources_and_settings(write: Write, tmp_path: Path) -> None:
    a, b, c = (write(f"{name}.jsonl", news(k, k + 100)) for name, k in (("a", 0), ("b", 50), ("c", 100)))
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"missing\.jsonl"):
        build([a, b, tmp_path / "missing.jsonl"], out, ALL)
    bad = write("bad.jsonl", "{\n")
    with pytest.raises(DataError, match=r"bad\.jsonl"):
        build([a, b, bad], out, ALL)
    before = {path.parent.name for path in marks(out)}
    assert before
    run([c, a], out, BuildConfig(held_out=0.5))
    assert before <= {path.parent.name for path in marks(out)}
    build([c, a], out, BuildConfig(held_out=0.5))
    build([c, a], tmp_path / "at once", BuildConfig(held_out=0.5))
    assert content(out) == content(tmp_path / "at once")


def test_any_number_of_tasks_gives_the_same_bytes_and_a_flipped_byte_is_noticed(
    write: Write, tmp_path: Path, fails: Fails
) -> None:
    config = BuildConfig(held_out=0, cleaning=CleaningConfig(quality=False))
    long = " ".join(report(k) for k in range(9))
    sources = [
        write(f"{name}.jsonl", news(k, k + 40) + as_jsonl({"text": long.replace("예산", name, 1)}))
        for name, k in (("a", 0), ("b", 20), ("c", 40))
    ]
    build(sources, tmp_path / "one", config)
    assert read_manifest(tmp_path / "one").totals.dropped["near_duplicate"] == 2
    out = tmp_path / "two"
    run(sources, out, config, tasks=2)
    # Of every stage, one file of one task is damaged: it is noticed, and that task is run again.
    for stage in ("read", "filter", "exact", "near", "select"):
        (out / "manifest.json").unlink()
        for later in ("select", "clusters"):
            if stage != "select":
                shutil.rmtree(out / ".progress" / later)
        victim = max(
            (path for path in (out / ".progress" / stage).glob("*/*") if path.name != "mark.json"),
            key=lambda path: (path.stat().st_size, path),
        )
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
        if stage in ("read", "filter"):
            shutil.rmtree(out / ".progress" / ("filter" if stage == "read" else "exact"))
        with fails(DataError, victim, "changed since it was written"):
            run(sources, out, config)
        run(sources, out, config)
    build(sources, out, config)
    assert content(out) == content(tmp_path / "one")


def test_a_finished_corpus_is_left_alone(
    write: Write, tmp_path: Path, fails: Fails, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write("a.jsonl", news(0, 100))
    out = tmp_path / "out"
    arguments = [str(source), "--out", str(out)]
    assert main(arguments) == 0
    table, talk = capsys.readouterr()
    assert "nothing to do" not in talk
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert main(arguments) == 0
    again, talk = capsys.readouterr()
    assert again == table
    assert "nothing to do" in talk
    with fails(UsageError, "--out", "min_chars=5, not 6"):
        main([*arguments, "--min-chars", "6"])
    with fails(UsageError, "--out", "another exclude"):
        main([*arguments, "--exclude", str(source)])
    with fails(UsageError, "--out", "other sources (1 sources, not 2)"):
        main([str(source), *arguments])
    source.write_text(news(0, 99), encoding="utf-8")
    with fails(UsageError, "--out", "'a.jsonl' was another source or another file"):
        main(arguments)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_a_kill_between_the_last_two_steps_leaves_nothing_behind(write: Write, tmp_path: Path) -> None:
    source = write("a.jsonl", news(0, 10))
    build([source], tmp_path / "out")
    write("out/.progress/0000.json", "{}")
    build([source], tmp_path / "out")
    assert not (tmp_path / "out" / ".progress").exists()


def test_a_build_that_waited_for_the_same_build_leaves_its_corpus_alone(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = write("a.jsonl", news(0, 100)), tmp_path / "out"
    alone = build([source], tmp_path / "alone")

    @contextlib.contextmanager
    def locked_late(path: Path, label: str) -> Iterator[None]:
        monkeypatch.setattr(build_module, "locked", locked)
        build([source], out)  # by the process that held the lock
        with locked(path, label):
            yield

    monkeypatch.setattr(build_module, "locked", locked_late)
    monkeypatch.setattr(build_module, "run_build", run_once := Mock(side_effect=build_module.run_build))
    assert build([source], out) == alone
    assert run_once.call_count == 1
    assert content(out) == content(tmp_path / "alone")
    assert not (out / ".progress").exists()


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(write: Write, tmp_path: Path, fails: Fails) -> None:
    source = write("in/a.jsonl", news(0, 10))
    mine = write("full/documents-00000.jsonl", "mine")
    with fails(UsageError, "--out", "holds other files", "choose another --out"):
        build([source], tmp_path / "full")
    with fails(UsageError, "--out", "is a file"):
        build([source], mine)
    with fails(UsageError, "--out", "lies inside the source"):
        build([tmp_path / "in"], tmp_path / "in" / "out")
    assert mine.read_text(encoding="utf-8") == "mine"
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["a.jsonl"]


# ---- sources ----


def test_each_plain_text_source_may_have_a_unit_of_its_own(write: Write, tmp_path: Path) -> None:
    lines, blocks, whole = (
        write(f"{name}.txt", f"{report(k)}\n{report(k + 1)}\n\n{report(k + 2)}\n")
        for name, k in (("lines", 0), ("blocks", 10), ("whole", 20))
    )
    arguments = [f"{lines}:line", str(blocks), f"{whole}:file", "--held-out", "0", "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert [(document.id, document.text) for document in read_corpus(tmp_path / "out")] == [
        *((f"lines.txt:{line}", report(k)) for line, k in ((1, 0), (2, 1), (4, 2))),
        ("blocks.txt:1", f"{report(10)}\n{report(11)}"),
        ("blocks.txt:4", report(12)),
        ("whole.txt:1", f"{report(20)}\n{report(21)}\n\n{report(22)}"),
    ]
    assert main([str(blocks), "--text-unit", "line", "--held-out", "0", "--out", str(tmp_path / "lines")]) == 0
    assert texts(tmp_path / "lines") == [report(10), report(11), report(12)]


def test_columns_are_named_for_all_sources_or_for_one(write: Write, tmp_path: Path) -> None:
    a = write("a.jsonl", as_jsonl({"기사본문": report(1), "요약": report(11)}))
    b = write("b.json", json.dumps([{"title": report(2), "category": "사회"}]))
    text = write("c.txt", report(3))
    sources = [f"{a}:title=요약", f"{b}:text=title:section=category", str(text)]
    assert main([*sources, "--field", "text=기사본문", "--held-out", "0", "--out", str(tmp_path / "out")]) == 0
    assert [(d.title, d.text, d.section) for d in read_corpus(tmp_path / "out")] == [
        *[(report(11), report(1), ""), ("", report(2), "사회"), ("", report(3), "")]
    ]


def test_a_path_with_a_colon_in_it_is_a_path_first(write: Write) -> None:
    path = write("a:line", "")
    assert parse_source(str(path)) == Source(path)
    assert parse_source(f"{path}:line") == Source(path, "line")
    assert parse_source("missing.txt:line") == Source(Path("missing.txt"), "line")


def test_a_folder_is_read_with_all_below_it_in_order_and_equal_names_are_told_apart(
    write: Write, tmp_path: Path
) -> None:
    write("in/b/news.jsonl", as_jsonl({"id": "1", "text": report(2)}))
    write("in/a/news.jsonl", as_jsonl({"id": "1", "text": report(1)}, {"text": report(3)}))
    write("in/notes.txt.gz", gzip.compress(report(4).encode()))
    write("in/.hidden/news.jsonl", as_jsonl({"text": report(5)}))
    write("in/._news.jsonl", "no text at all")
    write("in/picture.png", b"\x89PNG")
    build([tmp_path / "in"], tmp_path / "out", ALL)
    assert [(document.id, document.text) for document in read_corpus(tmp_path / "out")] == [
        ("news.jsonl#1", report(1)),
        ("news.jsonl:2", report(3)),
        ("news.jsonl~2#1", report(2)),
        ("notes.txt.gz:1", report(4)),
    ]


@pytest.mark.parametrize(
    ("name", "data", "options", "kind", "what"),
    [
        ("missing.jsonl", None, [], DataError, "No such file"),
        (
            "a.jsonl",
            '{"txet": "본문", "no": 1}\n',
            [],
            DataError,
            "none of its 1 records can be read; the first bad one is a.jsonl:1: no text column",
        ),
        ("a.jsonl", b"\xff\xff\xff", ["--encoding", "utf-8"], DataError, "not UTF-8"),
        ("a.jsonl", '{"text": "본문이다 본문"}\n' + "{\n" * 3, [], DataError, "1 of its 4 records can be read"),
        ("a.pdf", "본문", [], DataError, "unknown format '.pdf'"),
        ("a.jsonl:line", '{"text": "본문"}\n', [], UsageError, "':line' is for plain text"),
        ("a.txt:text=내용", "본문", [], UsageError, "plain text has no column for 'text'"),
        ("a.jsonl:txet=내용", '{"text": "본문"}\n', [], UsageError, "unknown field 'txet'; did you mean 'text'?"),
        ("a.jsonl", '{"text": "본문"}\n', ["--field", "본문"], UsageError, "'본문' is not FIELD=COLUMN"),
        ("a.jsonl", '{"text": "본문"}\n', ["--exclude", "missing.tsv"], DataError, "missing.tsv: No such file"),
        ("a.jsonl", '{"text": "본문"}\n', ["--held-out", "1"], RecipeError, "held_out=1.0"),
        ("a.jsonl", '{"text": "본문"}\n', ["--min-hangul", "2"], RecipeError, "cleaning.min_hangul=2.0"),
        ("a.jsonl", '{"text": "본문"}\n', ["--min-char", "2"], UsageError, "unknown option '--min-char'"),
        ("a.jsonl", '{"text": "짧다"}\n{\n', [], DataError, "no document is left (1 rejected, 1 too_short)"),
    ],
)
def test_what_is_wrong_with_a_command_is_one_line(
    write: Write, tmp_path: Path, name: str, data: str | bytes | None, options: list[str], kind: type, what: str
) -> None:
    if data is not None:
        write(name.partition(":")[0], data)
    with pytest.raises(kind) as caught:
        main([str(tmp_path / name), "--out", str(tmp_path / "out"), *options])
    assert isinstance(caught.value, SuiteError)
    assert what in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    # Nothing of it is in the way of the next attempt.
    build([write("good.jsonl", news(0, 3))], tmp_path / "out", ALL)
    assert texts(tmp_path / "out") == [report(k) for k in range(3)]


def test_a_folder_with_nothing_to_read_is_one_line(write: Write, tmp_path: Path, fails: Fails) -> None:
    write("in/picture.png", b"\x89PNG")
    with fails(DataError, tmp_path / "in", "nothing to read"):
        build([tmp_path / "in"], tmp_path / "out")


def test_a_source_that_cannot_be_read_does_not_cost_the_sources_before_it(
    write: Write, tmp_path: Path, fails: Fails
) -> None:
    good, bad = write("a.jsonl", news(0, 100)), write("b.jsonl", b"\xff\n" * 100)
    out = tmp_path / "out"
    with fails(DataError, bad, "none of its 100 records"):
        build([good, bad], out, ALL)
    written = marks(out)
    write("b.jsonl", news(100, 200))
    run([good, bad], out, ALL)
    assert read_manifest(out).totals.num_kept == 200
    assert written.items() <= marks(out).items()


# ---- reading a corpus ----


def test_a_single_file_is_a_corpus_without_held_out_documents(write: Write) -> None:
    path = write("documents-1.jsonl", as_jsonl({"title": "제목", "text": "본문이다."}, {"text": "둘째다."}))
    assert corpus_files(path) == [path]
    assert corpus_files(path, "held-out") == []
    assert list(corpus_texts(path)) == ["제목\n본문이다.", "둘째다."]
    assert [document.text for document in read_corpus(path)] == ["본문이다.", "둘째다."]


def test_texts_are_title_and_text_of_every_document(write: Write, tmp_path: Path) -> None:
    source = write("a.jsonl", news(0, 60) + as_jsonl({"text": report(60)}))
    build([source], tmp_path / "out", BuildConfig(held_out=0, shard_mb=0.005))
    files = corpus_files(tmp_path / "out")
    assert len(files) > 1
    assert [text for file in files for text in corpus_texts(file)] == [
        *(f"{k}번째 예산\n{report(k)}" for k in range(60)),
        report(60),
    ]
    assert next(read_corpus(tmp_path / "out")) == Document(report(0), "a.jsonl#0", title="0번째 예산", source="a.jsonl")


def test_what_is_no_corpus_is_one_line(write: Write, tmp_path: Path, fails: Fails) -> None:
    with fails(DataError, tmp_path / "missing", "no such file or folder"):
        corpus_files(tmp_path / "missing")
    with fails(DataError, tmp_path, "manifest.json is missing", "python -m corpora.build"):
        corpus_files(tmp_path)
    out = tmp_path / "out"
    build([write("a.jsonl", news(0, 60))], out, ALL)
    (out / "documents-00000.jsonl").write_text("{}", encoding="utf-8")
    with fails(DataError, out / "documents-00000.jsonl", "missing or changed"):
        corpus_files(out)
    write("out/manifest.json", '{"schema": 2}')
    with fails(DataError, out / "manifest.json", "not the manifest of a corpus"):
        corpus_files(out)


# ---- the command ----


def test_the_command_prints_a_table_and_errors_without_a_traceback(write: Write, tmp_path: Path) -> None:
    write("news.jsonl", news(0, 10) + news(5, 7).replace('"id": "', '"id": "again') + "{\n")
    command = [sys.executable, "-m", "corpora.build", "news.jsonl", "--held-out", "0", "--out", "out"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    characters = sum(len(f"{k}번째 예산{report(k)}") for k in range(10))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "| source | read | kept | held out | rejected | dropped | characters |",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: |",
        f"| news.jsonl | 12 | 10 | 0 | 1 | 2 duplicate | {characters} |",
        f"| total | 12 | 10 | 0 | 1 | 2 duplicate | {characters} |",
    ]
    command[3] = "missing.jsonl"
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "missing.jsonl: No such file or directory; check the path and its permissions\n"


@pytest.mark.slow
@pytest.mark.real_data
def test_wikinews_and_petitions_make_a_corpus_that_is_the_same_by_two_processes(
    real_data: Path, tmp_path: Path
) -> None:
    names = ("corpus/boddari_wikinews.csv", "corpus/petitions.jsonl.gz", "klue/klue-nli-v1.1/klue-nli-v1.1_dev.json")
    wikinews_file, all_petitions, klue_nli = (real_data / name for name in names)
    if not (wikinews_file.is_file() and all_petitions.is_file() and klue_nli.is_file()):
        pytest.skip(f"put {', '.join(names)} under PRESSBERT_DATA to run this test")
    some_petitions = tmp_path / "petitions.jsonl"
    with gzip.open(all_petitions, "rt", encoding="utf-8") as lines:
        some = [*itertools.islice(lines, 250), *itertools.islice(lines, 450, 750)]
        some_petitions.write_text("".join(some), encoding="utf-8")
    sources = [wikinews_file, some_petitions]
    config = BuildConfig(exclude=(klue_nli,))
    out = tmp_path / "out"
    manifest = build(sources, out, config, tasks=2)
    build(sources, tmp_path / "at once", config)
    assert content(out) == content(tmp_path / "at once")
    wikinews, petitions = manifest.sources
    assert (wikinews.num_read, wikinews.num_rejected) == (644, 0)
    # One in seven articles has a sentence that is a premise of KLUE-NLI's dev set.
    assert wikinews.dropped["excluded"] >= 89
    assert wikinews.dropped["duplicate"] >= 7
    assert (petitions.num_read, petitions.num_rejected) == (544, 6)
    assert petitions.dropped["duplicate"] >= 19
    assert petitions.dropped["not_korean"] == 1
    assert 0.004 < manifest.totals.num_held_out / manifest.totals.num_kept < 0.016
    assert all(text == unicodedata.normalize("NFC", text) for file in corpus_files(out) for text in corpus_texts(file))


def test_documents_that_hold_an_evaluation_text_in_part_or_nearly_are_dropped(write: Write, tmp_path: Path) -> None:
    secret = (
        "주연 배우의 눈빛 하나로 두 시간을 끌고 가는 보기 드문 영화였고 음악과 촬영도 나무랄 데가 없어서 "
        "극장을 나서는 길에 한 번 더 볼까 망설였습니다"
    )
    evaluation = write("test.txt", f"id\tdocument\tlabel\n1\t{secret}\t1\n2\t정말 재밌다\t1\n")
    texts = [
        f"친구가 그러더군요. {secret} 저도 같은 생각입니다.",  # within a longer text
        secret.replace("보기 드문", "보기 드믄") + "!!",  # nearly
        secret.replace(" ", ""),  # the same letters
        "정말 재밌다",
        "처음부터 끝까지 정말 재밌다",  # too short to be anything but chance
        "감독의 전작이 훨씬 나았다고 생각합니다",
    ]
    source = write("reviews.txt", "\n".join(texts))
    config = BuildConfig(exclude=(evaluation,), held_out=0)
    manifest = build([Source(source, "line")], tmp_path / "corpus", config)
    assert [document.text for document in read_corpus(tmp_path / "corpus")] == texts[4:]
    assert manifest.sources[0].dropped == {"excluded": 2, "overlap": 2}
    assert manifest.sources[0].num_read == sum(manifest.sources[0].dropped.values()) + manifest.sources[0].num_kept
