"""The command: what it writes, what it remembers, and one line for whatever is wrong."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from apps import clustering
from apps.clustering import main
from apps.stories.articles import Article
from apps.stories.space import Embedder
from corpora.foundation.errors import CheckpointError, DataError, RecipeError, ResultError, UsageError
from downstream.embeddings import embedder

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]
ROOT = Path(__file__).resolve().parents[2]
OUTPUT = {"stories.html", "stories.json", "stories.csv", "stories-map.png", "stories-largest.png"}


class News(Protocol):
    articles: tuple[Article, ...]
    events: NDArray[np.int64]


def as_jsonl(articles: tuple[Article, ...] | list[Article]) -> str:
    names = {"title": "제목", "id": "뉴스 식별자", "date": "일자", "category": "통합 분류1", "publisher": "언론사"}
    records = [{name: getattr(article, field) for field, name in names.items()} for article in articles]
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def run(*arguments: object) -> int:
    return main([*map(str, arguments), "--model", "letters"])


def test_a_file_becomes_a_page_tables_and_pictures(
    write: Write, news: News, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(write("day.jsonl", as_jsonl(news.articles) + "{\n"), "--out", out) == 0
    said = capsys.readouterr()
    assert said.out == f"{out / 'stories.html'}\n"
    for step in ("read", "embed", "group", "label", "duplicates", "page"):
        assert f"{step}: " in said.err
    assert "72 articles" in said.err
    assert "1 records rejected" in said.err
    assert {path.name for path in out.iterdir()} == OUTPUT | {"rejected.jsonl"}
    (rejected,) = map(json.loads, (out / "rejected.jsonl").read_text(encoding="utf-8").splitlines())
    assert rejected["where"].endswith("day.jsonl:73")
    data = json.loads((out / "stories.json").read_text(encoding="utf-8"))
    assert data["source"] == "day.jsonl"
    assert len(data["stories"]) >= 9
    # A corrected record is not reported again.
    assert run(write("day.jsonl", as_jsonl(news.articles)), "--out", out) == 0
    assert not (out / "rejected.jsonl").exists()


def test_figures_and_times_are_there_for_machines(
    write: Write, news: News, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(write("day.jsonl", as_jsonl(news.articles)), "--out", tmp_path, "--json")
    figures = json.loads(capsys.readouterr().out)
    assert figures["num_articles"] == 72
    assert set(figures["elapsed_s"]) == {"read", "model", "embed", "group", "label", "duplicates", "page"}


def test_options_reach_the_settings(write: Write, news: News, tmp_path: Path) -> None:
    options = ["--by-category", "--noise", "keep", "--min-size", 4, "--seed", 5, "--set", "join_at=2"]
    run(write("day.jsonl", as_jsonl(news.articles)), "--out", tmp_path, *options)
    settings = json.loads((tmp_path / "stories.json").read_text(encoding="utf-8"))["settings"]
    expected = {"by_category": True, "noise": "keep", "min_size": 4, "seed": 5, "join_at": 2.0}
    assert settings == expected | {"embedder": "letters"}


def test_columns_and_title_can_be_given(write: Write, tmp_path: Path) -> None:
    path = write("a.csv", "헤드라인,날\n" + "첫눈 온다,20210601\n" * 3)
    run(path, "--out", tmp_path, "--column", "title=헤드라인", "--column", "date=날", "--title", "첫눈 <소식>")
    html = (tmp_path / "stories.html").read_text(encoding="utf-8")
    assert "첫눈 &lt;소식&gt;" in html
    assert "2021-06-01" in html


def test_copies_can_be_found_by_text(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "벼리시의회가 17일 본회의를 열어 예산안을 의결했다. 재적 의원 27명 가운데 16명이 찬성했다."
    titles = ["예산안 의결", "벼리시 살림살이 정해져", "의회 소식"]
    lines = [
        json.dumps({"title": t, "content": b}, ensure_ascii=False)
        for t, b in zip(titles, [body, body, "다른 글"], strict=True)
    ]
    path = write("a.jsonl", "\n".join(lines))
    counts = []
    for by in ("title", "text"):
        run(path, "--out", tmp_path, "--duplicates-by", by, "--json")
        counts.append(json.loads(capsys.readouterr().out)["num_copies"])
    assert counts == [0, 1]


def test_without_a_file_the_sample_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run() == 0
    assert (tmp_path / "reports" / "stories" / "stories.html").is_file()


def test_without_a_bundled_embedder_letters_are_taken_and_a_line_says_so(
    write: Write, news: News, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedder, "BUNDLED", tmp_path / "none")
    path = write("day.jsonl", as_jsonl(news.articles))
    assert main([str(path), "--out", str(tmp_path / "a")]) == 0
    (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "letters alone" in line
    assert "--model" in line
    assert {p.name for p in (tmp_path / "a").iterdir()} == OUTPUT
    assert run(path, "--out", tmp_path / "b") == 0
    for name in OUTPUT:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_bundled_embedder_is_taken_where_there_is_one(
    write: Write, news: News, tmp_path: Path, sentence_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder, "BUNDLED", sentence_folder)
    path = write("day.jsonl", as_jsonl(news.articles))
    assert main([str(path), "--out", str(tmp_path / "a")]) == 0
    sha256 = embedder.Embedder.load(sentence_folder).sha256
    assert [folder.name for folder in (tmp_path / "a" / "cache").iterdir()] == [sha256[:16]]
    assert main([str(path), "--out", str(tmp_path / "b"), "--model", str(sentence_folder)]) == 0
    for name in OUTPUT:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    settings = json.loads((tmp_path / "a" / "stories.json").read_text(encoding="utf-8"))["settings"]
    assert settings == {"embedder": sha256[:12]}


def test_a_damaged_bundled_embedder_is_an_error_and_not_replaced(
    write: Write, tmp_path: Path, sentence_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(sentence_folder, damaged)
    (damaged / "model.safetensors").write_bytes(b"")
    monkeypatch.setattr(embedder, "BUNDLED", damaged)
    with pytest.raises(CheckpointError):
        main([str(write("a.txt", "첫눈\n")), "--out", str(tmp_path / "out")])


def test_vectors_are_kept_for_the_next_run(
    write: Write, news: News, tmp_path: Path, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "default_embedder", lambda: words)
    path = write("day.jsonl", as_jsonl(news.articles))
    assert main([str(path), "--out", str(tmp_path / "a"), "--cache", str(tmp_path / "cache")]) == 0
    words.num_texts = 0
    assert main([str(path), "--out", str(tmp_path / "b"), "--cache", str(tmp_path / "cache")]) == 0
    assert words.num_texts == 0
    for name in OUTPUT:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_stories_live_on_from_run_to_run(
    write: Write, news: News, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    morning = write("morning.jsonl", as_jsonl([a for a in news.articles if not a.id.endswith("-5")]))
    noon = write("noon.jsonl", as_jsonl(news.articles))
    state = ["--stories", tmp_path / "state"]

    def stories(name: str) -> dict[str, set[str]]:
        with (tmp_path / name / "stories.csv").open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["story"]]
        return {id_: {row["id"] for row in rows if row["story"] == id_} for id_ in {row["story"] for row in rows}}

    assert run(morning, "--out", tmp_path / "a", *state) == 0
    assert run(noon, "--out", tmp_path / "b", *state) == 0
    assert "10 new" in capsys.readouterr().err
    before, after = stories("a"), stories("b")
    assert all(ids <= after[id_] for id_, ids in before.items())
    assert sum(map(len, after.values())) > sum(map(len, before.values()))


def test_settings_of_kept_stories_cannot_be_changed(write: Write, news: News, tmp_path: Path, fails: Fails) -> None:
    path = write("day.jsonl", as_jsonl(news.articles))
    state = tmp_path / "state"
    run(path, "--out", tmp_path / "a", "--stories", state)
    with fails(UsageError, state, "'min_size' would change"):
        run(path, "--out", tmp_path / "a", "--stories", state, "--min-size", "4")


def test_kept_stories_refuse_another_model(
    write: Write, news: News, tmp_path: Path, words: Embedder, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    path = write("day.jsonl", as_jsonl(news.articles))
    run(path, "--out", tmp_path / "a", "--stories", tmp_path / "state")
    monkeypatch.setattr(clustering, "default_embedder", lambda: words)
    with fails(CheckpointError, "stories", "give the same --model"):
        main([str(path), "--out", str(tmp_path / "a"), "--stories", str(tmp_path / "state")])


def test_wrong_options_are_one_line_errors(write: Write, tmp_path: Path, fails: Fails) -> None:
    for options, kind, where, what in [
        (["--set", "min_sise=3"], RecipeError, "--set", "min_size"),
        (["--set", "min_size=x"], RecipeError, "--set", "min_size='x'"),
        (["--set", "min_size"], UsageError, "--set", "is not KEY=VALUE"),
        (["--min-size", "1"], RecipeError, "--set", "min_size=1"),
        (["--column", "title"], UsageError, "--column", "is not FIELD=NAME"),
        (["--column", "tilte=제목"], DataError, "--column", "'title'"),
        (["--nois", "keep"], UsageError, "python -m apps.clustering", "--noise"),
        (["--noise", "drop"], UsageError, "python -m apps.clustering", "invalid choice"),
    ]:
        path = write("a.txt", "첫눈\n")
        with fails(kind, where, what):
            run(path, "--out", tmp_path / "out", *options)


def test_a_folder_that_cannot_be_written_is_an_error_before_the_work(write: Write, fails: Fails) -> None:
    path, blocked = write("a.txt", "첫눈\n"), write("file", "")
    with fails(ResultError, blocked, "cannot write"):
        run(path, "--out", blocked / "out")


def test_wrong_files_and_models_are_one_line_errors(write: Write, tmp_path: Path, fails: Fails) -> None:
    with fails(DataError, tmp_path / "none.xlsx", "No such file"):
        run(tmp_path / "none.xlsx", "--out", tmp_path / "out")
    path = write("a.txt", "첫눈\n")
    with pytest.raises(CheckpointError):
        main([str(path), "--out", str(tmp_path / "out"), "--model", str(tmp_path / "no-model")])


def test_the_command_ends_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "apps.clustering", str(tmp_path / "none.json"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "No such file" in done.stderr


def test_the_import_loads_no_heavy_library() -> None:
    """A command that only reads or fails starts in less than a second."""
    heavy = "{'torch', 'transformers', 'sklearn', 'scipy', 'kiwipiepy', 'matplotlib', 'hdbscan'}"
    code = f"import sys, apps.clustering; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- the real day ----


@pytest.mark.real_data
@pytest.mark.slow
def test_the_real_day_is_put_in_order(real_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(real_data / "news" / "newstrust_20210601_sample.json", "--out", tmp_path, "--json")
    figures = json.loads(capsys.readouterr().out)
    assert figures["num_articles"] == 12_006
    assert 600 < figures["num_stories"] < 1200
    assert figures["num_noise"] < 0.6 * 12_006
    data = json.loads((tmp_path / "stories.json").read_text(encoding="utf-8"))
    (story,) = [s for s in data["stories"] if "조주빈" in s["headline"] and len(s["members"]) > 15]
    titles = [member["title"] for member in story["members"]]
    assert sum("조주빈" in title or "박사방" in title for title in titles) > 0.9 * len(titles)
