"""The speed-run board: a record is the first model that reaches the level, with every seed."""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import benchmarks.speedrun
from benchmarks.speedrun import DOCS, board, data_digest, main, make_record, write_boards
from corpora.build import BuildConfig, build
from corpora.corpus import corpus_files, corpus_texts
from corpora.foundation.errors import UsageError
from pretraining.recipe import SAMPLE, Recipe, check_recipe
from pretraining.vocabulary.tokenizer import save_tokenizer
from pretraining.vocabulary.wordpiece import train_wordpiece

Fails = Callable[..., AbstractContextManager[None]]
HEADS = ("record", "tokens", "core seconds", "by seed", "commit", "CPU")


@pytest.fixture
def boards(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("speedrun.md", "speedrun.en.md"):
        shutil.copy(DOCS / name, folder / name)
    return folder


@pytest.mark.parametrize("embeddings", ["", "skip_gram"])
def test_a_recipe_is_run_with_every_seed_and_recorded(
    embeddings: str, boards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pretraining.training.loop.matmul_flops_per_s", lambda *_, **__: 1e12)
    corpus, vocabulary = tmp_path / "corpus", tmp_path / "vocabulary"
    few = tmp_path / "few.jsonl"
    few.write_text("".join(SAMPLE.read_text(encoding="utf-8").splitlines(keepends=True)[:12]), encoding="utf-8")
    build([few], corpus, BuildConfig(held_out=0.0))
    texts = [text for file in corpus_files(corpus)[:1] for text in corpus_texts(file)]
    save_tokenizer(train_wordpiece(texts, 300), vocabulary)
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(
        """
objective = "dynamic_mlm"
model = { hidden_size = 16, num_hidden_layers = 1, num_attention_heads = 2 }
data = { max_length = 32 }
loop = { steps = 6, batch_size = 4, warmup_steps = 1, peak_lr = 1e-2, precision = "fp32" }
""",
        encoding="utf-8",
    )
    scored: list[Path] = []

    def score(folder: Path, _: Path, *, max_rows: int) -> dict[str, float]:
        scored.append(folder)
        assert max_rows == 64
        return {"mlm_perplexity": {"step-00000002": 50.0, "step-00000004": 30.0}[folder.name]}

    monkeypatch.setattr(benchmarks.speedrun, "evaluate_mlm", score)
    places = ["--corpus", str(corpus), "--tokenizer", str(vocabulary), "--work", str(tmp_path / "work")]
    options = ["--every", "2", "--rows", "64", "--out", str(boards), "--set", f"init.embeddings={embeddings}"]
    assert main([str(recipe), "--name", "tiny", *places, *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    record = json.loads((boards / "speedrun" / "tiny.json").read_text(encoding="utf-8"))
    assert [folder.name for folder in scored] == ["step-00000002", "step-00000004"] * 2
    assert [run["seed"] for run in record["runs"]] == [0, 1]
    exported = json.loads((scored[1] / "manifest.json").read_text(encoding="utf-8"))
    initial = exported.get("init_tokens", 0)
    assert record["runs"][0]["tokens"] == exported["tokens"] + initial
    assert (initial > 0) == (embeddings == "skip_gram")  # the pass through the text before is counted
    assert printed["tokens"] == record["tokens"] == round(sum(run["tokens"] for run in record["runs"]) / 2)
    assert record["recipe"]["loop"]["export_steps"] == []
    assert "corpus" not in record["recipe"]["data"]
    for name in ("speedrun.md", "speedrun.en.md"):
        page = (boards / name).read_text(encoding="utf-8")
        assert f"| [tiny](speedrun/tiny.json) | {record['tokens']:,} |" in page
        assert page.count("<!-- records -->") == page.count("<!-- end -->") == 1


def test_the_board_holds_what_reached_the_level_in_order(boards: Path) -> None:
    recipe = check_recipe({"objective": "dynamic_mlm", "data": {"corpus": "c", "tokenizer": "t"}}, "recipe")

    def record(name: str, *tokens: int, reached: bool = True) -> dict[str, Any]:
        machine = {"commit": "c0ffee", "cpu": "CPU"}
        runs = [{"seed": k, "tokens": n, "core_s": 2.0 * n, "reached": reached} | machine for k, n in enumerate(tokens)]
        return make_record(name, recipe, runs, level=35.2, data_sha256="d")

    records = [record("slow", 3000, 5000), record("quick", 1000, 1200), record("failed", 10, 20, reached=False)]
    lines = board(records, HEADS).splitlines()
    assert [line.split("|")[1].strip()[:7] for line in lines[2:]] == ["[quick]", "[slow]("]
    assert "| 1,100 | 2,200 | 1,000, 1,200 | c0ffee | CPU |" in lines[2]
    assert board(records[2:], HEADS) == ""
    shutil.copytree(DOCS / "speedrun", boards / "speedrun")
    before = [(boards / name).read_bytes() for name in ("speedrun.md", "speedrun.en.md")]
    write_boards(boards)
    # The pages of the project are up to date.
    assert [(boards / name).read_bytes() for name in ("speedrun.md", "speedrun.en.md")] == before


def test_seeds_can_be_added_to_a_record(
    boards: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: Fails
) -> None:
    ran: list[int] = []

    def reach(recipe: Recipe, out: Path, _: Path, *, level: float, max_rows: int) -> dict[str, Any]:
        assert (level, max_rows) == (35.2, 4096)
        assert out.name.startswith("x-")
        ran.append(recipe.seed)
        return {"tokens": 1000 + recipe.seed, "core_s": 5.0, "perplexity": 35.0, "reached": True}

    texts = {"c": "same", "d": "same", "e": "other"}
    monkeypatch.setattr(benchmarks.speedrun, "reach", reach)
    monkeypatch.setattr(benchmarks.speedrun, "data_digest", lambda recipe: texts[recipe.data.corpus])
    command = ["mini", "--name", "x", "--corpus", "c", "--tokenizer", "t", "--out", str(boards), "--seeds"]
    assert main([*command, "3", "3"]) == 0
    assert ran == [3]
    assert "[x]" not in (boards / "speedrun.md").read_text(encoding="utf-8")  # one seed is no record
    # On another machine, where corpus and tokenizer have other paths.
    elsewhere = ["mini", "--name", "x", "--corpus", "d", "--tokenizer", "u", "--out", str(boards), "--seeds"]
    assert main([*elsewhere, "1", "3"]) == 0
    assert ran == [3, 1]
    record = json.loads((boards / "speedrun" / "x.json").read_text(encoding="utf-8"))
    assert [run["seed"] for run in record["runs"]] == [1, 3]
    assert "| [x](speedrun/x.json) | 1,002 | 5 | 1,001, 1,003 |" in (boards / "speedrun.md").read_text(encoding="utf-8")
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {
        "name": "x",
        "tokens": 1002,
        "core_s": 5.0,
        "reached": True,
    }
    with fails(UsageError, "--name", "another recipe"):
        main([*command, "5", "--set", "loop.batch_size=128"])
    with fails(UsageError, "--name", "another corpus or vocabulary"):
        main(["mini", "--name", "x", "--corpus", "e", "--tokenizer", "t", "--out", str(boards), "--seeds", "5"])
    assert ran == [3, 1]


def test_seeds_that_finish_side_by_side_are_all_recorded(boards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["mini", "--name", "x", "--corpus", "c", "--tokenizer", "t", "--out", str(boards), "--seeds"]

    def reach(recipe: Recipe, *_: Any, **__: Any) -> dict[str, Any]:
        if recipe.seed == 0:
            main([*command, "1"])  # begins later and is finished first
        return {"tokens": 1000 + recipe.seed, "core_s": 5.0, "perplexity": 35.0, "reached": True}

    monkeypatch.setattr(benchmarks.speedrun, "reach", reach)
    monkeypatch.setattr(benchmarks.speedrun, "data_digest", lambda _: "same")
    assert main([*command, "0"]) == 0
    record = json.loads((boards / "speedrun" / "x.json").read_text(encoding="utf-8"))
    assert [run["seed"] for run in record["runs"]] == [0, 1]
    assert (record["tokens"], record["reached"]) == (1000, True)
    assert [path.name for path in (boards / "speedrun").iterdir()] == ["x.json"]


def test_the_digest_of_the_data_is_that_of_texts_and_vocabulary(tmp_path: Path) -> None:
    def digest(name: str, corpus: Path, vocabulary: str = "{}") -> str:
        tokenizer = tmp_path / f"{name}-tokenizer"
        tokenizer.mkdir()
        (tokenizer / "tokenizer.json").write_text(vocabulary, encoding="utf-8")
        data = {"corpus": str(corpus), "tokenizer": str(tokenizer)}
        return data_digest(check_recipe({"objective": "dynamic_mlm", "data": data}, "recipe"))

    def built(name: str, first: int = 0, *, held_out: float = 0.2) -> Path:
        file = tmp_path / f"{name}.jsonl"
        lines = SAMPLE.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(lines[first : first + 12]), encoding="utf-8")
        build([file], tmp_path / name, BuildConfig(held_out=held_out))
        return tmp_path / name

    same = digest("a", built("a"))
    assert digest("moved", (tmp_path / "a").rename(tmp_path / "elsewhere")) == same
    others = [digest("b", built("b", 1)), digest("c", built("c", held_out=0.0)), digest("d", tmp_path / "c", "[]")]
    assert len({same, *others}) == 4


def test_a_board_without_a_place_for_its_table_is_refused(boards: Path, fails: Fails) -> None:
    (boards / "speedrun.md").write_text("no table", encoding="utf-8")
    with fails(UsageError, boards / "speedrun.md", "<!-- records -->"):
        write_boards(boards)
