"""Commands that are killed while they write, and run again: the same bytes as without a kill, and nothing left over."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import CASES, Kill, Outcome, check, main, page, rows_of_others, run_forked
from tests.attacks.models import build_model
from tests.benchmarks.preparing import save_often

RECIPE = """
objective = "dynamic_mlm"
data = { corpus = "INPUTS/articles.jsonl", tokenizer = "INPUTS/model", max_length = 16 }
model = { hidden_size = 16, num_hidden_layers = 1, num_attention_heads = 2 }
loop = { steps = 4, batch_size = 2, warmup_steps = 1, checkpoint_every = 2, log_every = 2 }
"""
NUM_KILLS = 3
TEXT = "물빛시가 새 다리를 놓는다. 공사비는 300억원이다. 시민은 반겼다. 날은 흐렸다. 시는 내년에 마칠 계획이다."


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Return a folder with a few articles, a tiny model and a short recipe."""
    build_model(tmp_path / "model")
    (tmp_path / "recipe.toml").write_text(RECIPE.replace("INPUTS", str(tmp_path)), encoding="utf-8")
    records: list[dict[str, Any]] = [
        {"id": f"a{k}", "title": f"{k}번 기사", "text": f"{k}번. {TEXT}"} for k in range(12)
    ]
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    (tmp_path / "articles.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path


def run(command: list[str], out: Path, kill: Kill) -> int | None:
    """Run a command; kills at a time are left to the benchmark, whose commands run longer."""
    return 0 if kill.after_s else run_forked(command, out, kill, save_often)


def test_what_is_killed_and_run_again_ends_in_the_same_bytes(inputs: Path, subtests: pytest.Subtests) -> None:
    for name in CASES:
        with subtests.test(name):
            outcome = check(name, NUM_KILLS, inputs, run)
            assert outcome.is_right, (name, outcome)
            assert outcome.at_writes == NUM_KILLS, (name, outcome)
            assert outcome.writes >= NUM_KILLS, (name, outcome)


def test_another_result_or_a_file_that_is_left_over_is_found(tmp_path: Path) -> None:
    def run(_command: list[str], out: Path, kill: Kill) -> int | None:
        out.mkdir(exist_ok=True)
        (out / "summaries.jsonl").write_text("same" if out.name in ("whole", "run-0") else "other")
        if out.name == "run-0":
            (out / ".summaries.jsonl.x.part").touch()
        out.with_suffix(".writes").write_text("5")
        return None if kill.at_write or kill.after_s else 0

    outcome = check("summaries", 2, tmp_path, run)
    assert outcome == Outcome(2, 1, 2, 2, 5, outcome.length_s, (".summaries.jsonl.x.part",))
    assert not outcome.is_right
    assert "| summaries | summaries | 1 of 2 | 2 | 2 | .summaries.jsonl.x.part |" in "".join(
        page([("summaries", outcome)])
    )
    (tmp_path / "kills.md").write_text("".join(page([("summaries", outcome), ("corpora", outcome)])), encoding="utf-8")
    assert [row.split()[1] for row in rows_of_others(tmp_path / "kills.md", ["summaries"])] == ["corpora"]
    with pytest.raises(Exception, match="unknown command 'weather'"):
        main(["weather"])
