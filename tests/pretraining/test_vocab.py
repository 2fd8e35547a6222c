"""The vocabulary command: its input, its output and its errors."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from corpora import build
from corpora.corpus import read_manifest
from corpora.documents import read_documents
from corpora.foundation.errors import DataError, RecipeError, ResultError, UsageError
from corpora.foundation.files import SAMPLE_ROOT
from pretraining.vocab import main
from pretraining.vocabulary.build import Documents, open_corpus
from pretraining.vocabulary.wordpiece import (
    count_words,
    train_wordpiece,
)

Fails = Callable[..., AbstractContextManager[None]]
Write = Callable[[str, str | bytes], Path]

ROOT = Path(__file__).resolve().parents[2]
NEWS = SAMPLE_ROOT / "news.jsonl"


# ---- what is read of a corpus ----


def test_every_fiftieth_document_of_a_file_is_held_out(write: Write) -> None:
    path = write("c.txt", "\n".join(f"기사 {number}번" for number in range(120)))
    corpus = open_corpus(path, "line")
    assert list(corpus.held_out.read()) == ["기사 0번", "기사 50번", "기사 100번"]
    assert corpus.held_out.num_documents == 3
    assert len(list(corpus.train.read())) == corpus.train.num_documents == 117
    assert not set(corpus.train.read()) & set(corpus.held_out.read())


def test_a_sample_keeps_to_its_bytes_and_lies_evenly_whatever_the_order() -> None:
    texts = [f"기사 {number}번입니다" for number in range(4000)]
    budget = sum(len(text.encode()) for text in texts) // 4
    chosen = list(Documents.from_reader(lambda: iter(texts)).sample(budget))
    assert 0.9 * budget < sum(len(text.encode()) for text in chosen) <= budget
    assert 400 < sum(int(text[3:-4]) < 2000 for text in chosen) < 600
    backwards = set(Documents.from_reader(lambda: reversed(texts)).sample(budget))
    assert len(backwards & set(chosen)) > 0.95 * len(chosen)
    assert list(Documents.from_reader(lambda: iter(texts)).sample(4 * budget + 3)) == texts


# ---- the command ----


@pytest.fixture(autouse=True)
def no_data_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep what happens to lie under the user's data root out of the reports."""
    monkeypatch.delenv("PRESSBERT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(corpus: Path, out: Path, *options: object) -> int:
    return main([str(corpus), "--out", str(out), *map(str, options)])


def manifest_of(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    return content


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_command_leaves_a_tokenizer_its_report_and_its_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for number, segmentation in enumerate(["eojeol", "morpheme"]):
        with subtests.test(segmentation=segmentation):
            folder = tmp_path / str(number)
            folder.mkdir()
            out = folder / "o"
            news = folder / "news.jsonl"
            news.write_bytes(b"".join(NEWS.read_bytes().splitlines(keepends=True)[:60]))
            options = ("--vocab-size", 2000, "--segmentation", segmentation, "--unused", 20, "--min-frequency", 3)
            assert run(news, out, *options) == 0
            assert capsys.readouterr().out == f"{out / 'report.md'}\n"
            assert set(files_of(out)) == {
                *("tokenizer.json", "vocab.txt", "tokenizer_config.json", "report.md", "report.png", "manifest.json")
            }
            trained_on = [document for k, document in enumerate(read_documents(news)) if k % 50]
            vocab = train_wordpiece(
                (f"{document.title}\n{document.text}" for document in trained_on),
                2000,
                num_unused=20,
                min_frequency=3,
                segmentation=segmentation,
            ).get_vocab()
            assert (out / "vocab.txt").read_text(encoding="utf-8").splitlines() == sorted(vocab, key=vocab.__getitem__)
            manifest = manifest_of(out)
            assert manifest["finished"] is True
            assert manifest["counts"]["train_documents"] == len(trained_on)
            assert manifest["counts"]["entries"] == 2000
            assert {"tokenizers", "transformers", "kiwipiepy", "kiwipiepy_model"} <= set(manifest["versions"])
            assert "Not compared with kpfbert" in (out / "report.md").read_text(encoding="utf-8")


def test_the_same_command_again_does_nothing_and_another_is_refused(
    tmp_path: Path, fails: Fails, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    assert run(NEWS, out, "--vocab-size", 2500) == 0
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    capsys.readouterr()
    assert run(NEWS, out, "--vocab-size", 2500, "--segmentation", "eojeol") == 0
    printed = capsys.readouterr()
    assert (printed.out, "nothing to do" in printed.err) == (f"{out / 'report.md'}\n", True)
    with fails(UsageError, out, "another vocabulary", "vocab_size=2500", "2600"):
        run(NEWS, out, "--vocab-size", 2600)
    with fails(UsageError, out, "another vocabulary", "segmentation='eojeol'"):
        run(NEWS, out, "--vocab-size", 2500, "--segmentation", "morpheme")
    shorter = tmp_path / "n.jsonl"
    shorter.write_bytes(b"".join(NEWS.read_bytes().splitlines(keepends=True)[:100]))
    with fails(UsageError, out, "another vocabulary", "corpus_sha256"):
        run(shorter, out, "--vocab-size", 2500)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(NEWS, tmp_path / name / "o", "--vocab-size", 2500)
    first, second = files_of(tmp_path / "a" / "o"), files_of(tmp_path / "b" / "o")
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "report.png"):
        assert first[name] == second[name]


def test_an_unfinished_folder_is_redone_and_foreign_files_are_kept(tmp_path: Path, fails: Fails) -> None:
    out = tmp_path / "o"
    with fails(UsageError, "--vocab-size", "50,000 requested"):
        run(NEWS, out, "--vocab-size", 50_000)
    assert manifest_of(out)["finished"] is False
    assert run(NEWS, out, "--vocab-size", 2500) == 0
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "notes.txt").write_text("메모", encoding="utf-8")
    with fails(UsageError, theirs, "did not make"):
        run(NEWS, theirs, "--vocab-size", 2500)
    for content in ("{}", "[1]", "null", "{"):
        (theirs / "manifest.json").write_text(content, encoding="utf-8")
        with fails(UsageError, theirs, "manifest.json"):
            run(NEWS, theirs, "--vocab-size", 2500)
    assert set(files_of(theirs)) == {"notes.txt", "manifest.json"}


def test_a_size_that_the_corpus_does_not_support_is_refused_with_the_one_it_does(
    tmp_path: Path, fails: Fails, caplog: pytest.LogCaptureFixture
) -> None:
    options = ("--vocab-size", 50_000, "--min-frequency", 4)
    with fails(UsageError, "--vocab-size", "supports", "--min-frequency 4", "--allow-smaller"):
        run(NEWS, tmp_path / "o", *options)
    assert run(NEWS, tmp_path / "o", *options, "--allow-smaller") == 0
    supported = manifest_of(tmp_path / "o")["counts"]["entries"]
    assert 2500 < supported < 5000
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"the corpus supports {supported:,} entries at --min-frequency 4, not 50,000"
    ]
    report = (tmp_path / "o" / "report.md").read_text(encoding="utf-8")
    assert "50,000 entries were requested; the corpus supports no more" in report
    assert run(NEWS, tmp_path / "exact", "--vocab-size", supported, "--min-frequency", 4) == 0
    with fails(UsageError, "--vocab-size", f"supports {supported:,} entries"):
        run(NEWS, tmp_path / "more", "--vocab-size", supported + 1, "--min-frequency", 4)


def test_a_size_without_room_for_the_characters_is_refused_with_one_that_has(tmp_path: Path, fails: Fails) -> None:
    with fails(UsageError, "--vocab-size", "1,000 entries have room for 447 characters", "--limit-alphabet 447"):
        run(NEWS, tmp_path / "o", "--vocab-size", 1000, "--unused", 100)
    assert run(NEWS, tmp_path / "o", "--vocab-size", 1000, "--unused", 100, "--limit-alphabet", 447) == 0
    least = 5 + 2 * len(count_words(open_corpus(NEWS).train.read()).characters)
    with fails(UsageError, "--vocab-size", f"give {least:,} or more"):
        run(NEWS, tmp_path / "p", "--vocab-size", least - 1)
    assert run(NEWS, tmp_path / "p", "--vocab-size", least) == 0
    with fails(UsageError, "--vocab-size", "no room beside 505"):
        run(NEWS, tmp_path / "q", "--vocab-size", 506, "--unused", 500)


def test_a_built_corpus_is_tried_on_its_own_held_out_split(tmp_path: Path) -> None:
    build.main([str(NEWS), "--out", str(tmp_path / "corpus"), "--held-out", "0.2"])
    assert run(tmp_path / "corpus", tmp_path / "o", "--vocab-size", 2500) == 0
    manifest = read_manifest(tmp_path / "corpus")
    counts = manifest_of(tmp_path / "o")["counts"]
    assert counts["train_documents"] == manifest.totals.num_kept
    assert counts["held_out_documents"] == manifest.totals.num_held_out > 5
    assert "the corpus's own split" in (tmp_path / "o" / "report.md").read_text(encoding="utf-8")


def test_a_larger_corpus_than_the_budget_is_sampled_and_the_report_says_so(tmp_path: Path) -> None:
    run(NEWS, tmp_path / "o", "--vocab-size", 2500, "--max-bytes", 120_000)
    counts = manifest_of(tmp_path / "o")["counts"]
    assert 80_000 < counts["train_bytes"] <= 120_000
    assert 20 < counts["train_documents"] < 117
    assert "a sample of" in (tmp_path / "o" / "report.md").read_text(encoding="utf-8")


def test_records_that_hold_no_document_are_counted_in_the_report(write: Write, tmp_path: Path) -> None:
    good = NEWS.read_text(encoding="utf-8")
    run(write("c.jsonl", good + '{"text": " "}\n{"text"\n'), tmp_path / "o", "--vocab-size", 2500)
    assert manifest_of(tmp_path / "o")["counts"]["rejected_records"] == 2
    report = (tmp_path / "o" / "report.md").read_text(encoding="utf-8")
    assert "2 records were rejected, the first because: empty document" in report


def test_a_corpus_without_text_to_train_on_is_an_error(
    write: Write, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    for number, (content, what) in enumerate(
        [
            ("", "zero bytes"),
            (" \n\n", "no documents in it"),
            ("기사 하나뿐", "only document is held out"),
            (b"\xff\xff", "not UTF-8"),
        ]
    ):
        with subtests.test(content=content):
            folder = tmp_path / str(number)
            folder.mkdir()
            path = write("c.txt", content)
            with fails(DataError, path, what):
                run(path, folder / "o", "--vocab-size", 100)
            assert not (folder / "o").exists()


def test_a_file_of_bad_records_alone_names_the_first(write: Write, tmp_path: Path, fails: Fails) -> None:
    with fails(DataError, path := write("c.jsonl", '{"text": ""}\n'), "c.jsonl:1: empty document"):
        run(path, tmp_path / "o", "--vocab-size", 100)


def test_wrong_settings_are_named(tmp_path: Path, fails: Fails) -> None:
    for option, key in (("--min-frequency", "min_frequency"), ("--unused", "num_unused"), ("--max-bytes", "max_bytes")):
        with fails(RecipeError, "python -m pretraining.vocab", f"{key}=-1"):
            run(NEWS, tmp_path / "o", "--vocab-size", 2500, option, -1)
    with fails(RecipeError, "python -m pretraining.vocab", "vocab_size=3"):
        run(NEWS, tmp_path / "o", "--vocab-size", 3)


def test_an_unwritable_folder_is_found_out_before_training(tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with fails(ResultError, tmp_path / "file", "cannot write"):
        run(NEWS, tmp_path / "file" / "o", "--vocab-size", 2500)


def test_an_error_is_one_line_and_exit_code_2(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (arguments, told) in enumerate(
        [
            (
                ["no-such.jsonl", "--out", "o", "--vocab-size", "100"],
                "no-such.jsonl: no such file or folder; check the path",
            ),
            (
                [str(NEWS), "--out", "o", "--vocab-size", "100", "--compare", "kpfbart"],
                "--compare: no tokenizer folder",
            ),
            (
                [str(NEWS), "--out", "o", "--vocab-size", "100", "--segmentation", "syllable"],
                "invalid choice: 'syllable'",
            ),
            ([str(NEWS), "--out", "o"], "--vocab-size"),
        ]
    ):
        with subtests.test(arguments=arguments):
            folder = tmp_path / str(number)
            folder.mkdir()
            done = subprocess.run(
                [sys.executable, "-m", "pretraining.vocab", *arguments],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
                capture_output=True,
                text=True,
                encoding="utf-8",
                check=False,
            )
            assert (done.returncode, done.stdout) == (2, "")
            assert told in done.stderr
            assert len(done.stderr.splitlines()) == 1
            assert not (folder / "o").exists()
