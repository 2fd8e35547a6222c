"""What a run needs: nothing is trained or downloaded, and whatever is missing comes with what to do."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from corpora.foundation.errors import CheckpointError
from downstream.task import all_tasks, get_task
from eval.cells.plan import plan_cells
from eval.cells.preflight import Preflight, print_known
from eval.cells.run import CellRunner
from eval.contestants.contestant import Contestant, choose_models, load_leaderboard
from eval.contestants.embedder import SentenceEmbedder
from eval.contestants.encoder import Encoder
from eval.contestants.scratch import Scratch

KNOWN = load_leaderboard().models
NSMC = get_task("nsmc-sample")


def shown(show: Callable[[Console], None]) -> str:
    console = Console(width=200, file=io.StringIO())
    show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def preflight_of(out: Path, entries: list[Contestant], *tasks: str, root: Path = Path("/nonexistent")) -> Preflight:
    found = Preflight(plan_cells(entries, [get_task(task) for task in tasks], 2), root=root, out=out)
    found.check()
    return found


def test_cells_of_models_that_need_nothing_are_ready(tmp_path: Path, nothing_runs: Callable[[], None]) -> None:
    nothing_runs()
    entries = [KNOWN["tfidf"], KNOWN["pressbert-scratch"]]
    found = preflight_of(tmp_path, entries, "nsmc-sample", "korquad-sample")
    assert (found.num_finished, found.num_ready, found.num_blocked) == (0, 2 * (1 + 2), 0)
    assert [finding.what for finding in found.findings] == [
        "과제 nsmc-sample",
        "과제 korquad-sample",
        "모델 tfidf",
        "모델 pressbert-scratch",
    ]
    assert {finding.state for finding in found.findings} == {"준비됨"}
    text = shown(found.show)
    assert "train 420 · test 140" in text
    assert "셀 6개: 끝난 것 0, 실행할 것 6, 막힌 것 0" in text
    assert list(tmp_path.iterdir()) == []


def test_finished_cells_are_counted_apart(tmp_path: Path) -> None:
    CellRunner(plan_cells([KNOWN["majority"]], [NSMC], 1), root=Path("/nonexistent"), out=tmp_path).run()
    found = preflight_of(tmp_path, [KNOWN["majority"], KNOWN["tfidf"]], "nsmc-sample")
    assert (found.num_finished, found.num_ready, found.num_blocked) == (1, 1, 0)


def test_missing_data_blocks_its_cells_alone_and_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    found = preflight_of(tmp_path, [KNOWN["majority"]], "korquad", "nsmc-sample", root=tmp_path / "data")
    assert (found.num_ready, found.num_blocked) == (1, 1)
    text = shown(found.show)
    wanted = tmp_path / "data" / "korquad" / "KorQuAD_v1.0_dev.json"
    assert f"→ run: curl -fL --create-dirs -o '{wanted}'" in text
    assert "이 컴퓨터에 없음" in text


def test_damaged_data_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "korquad" / "KorQuAD_v1.0_dev.json"
    path.parent.mkdir()
    path.write_text("{", encoding="utf-8")
    found = preflight_of(tmp_path / "out", [KNOWN["majority"]], "korquad", root=tmp_path)
    assert found.num_blocked == 1
    assert found.findings[0].state == "오류"
    assert str(path) in found.findings[0].detail
    assert found.findings[0].fix


def test_missing_weights_block_the_model_and_say_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for name in ("kpfbert", "korbert"):
        found = preflight_of(tmp_path, [KNOWN[name], KNOWN["majority"]], "nsmc-sample")
        assert (found.num_ready, found.num_blocked) == (1, 2), name
        (finding,) = (finding for finding in found.findings if finding.fix)
        assert (finding.what, finding.state) == (f"모델 {name}", "없음")
        assert f"{name}=FOLDER" in finding.fix


def test_an_encoder_is_loaded_and_tried_on_every_task(tmp_path: Path, tiny_encoder: Path) -> None:
    entries = choose_models([f"tiny={tiny_encoder}"], KNOWN)
    found = preflight_of(tmp_path, entries, "nsmc-sample", "korquad-sample")
    assert (found.num_ready, found.num_blocked) == (4, 0)
    assert found.findings[-1].state == "준비됨"
    assert "어휘 300" in found.findings[-1].detail


def test_an_encoder_with_a_file_missing_blocks_its_cells(tmp_path: Path, tiny_encoder: Path) -> None:
    for missing in ("model.safetensors", "config.json"):
        broken = tmp_path / f"without-{missing}"
        broken.mkdir()
        for path in tiny_encoder.iterdir():
            if path.name != missing:
                (broken / path.name).write_bytes(path.read_bytes())
        found = preflight_of(tmp_path / "out", choose_models([f"tiny={broken}"], KNOWN), "nsmc-sample")
        assert (found.num_ready, found.num_blocked) == (0, 2), missing
        assert found.findings[-1].state == "오류", missing
        assert str(broken) in found.findings[-1].detail, missing
        with pytest.raises(CheckpointError):
            Encoder(name="tiny", encoder=str(broken)).check(NSMC, None)


def test_a_misspelt_setting_of_a_model_blocks_it(tmp_path: Path) -> None:
    entry = Scratch(name="mine", finetune={"peek_lr": 1e-3})
    found = preflight_of(tmp_path, [entry], "nsmc-sample")
    assert found.num_blocked == 2
    assert "unknown key 'peek_lr'" in found.findings[-1].detail
    assert "'peak_lr'" in found.findings[-1].fix


def test_the_list_names_every_task_and_model_and_whether_it_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    text = shown(lambda console: print_known(KNOWN, tmp_path, console))
    lines = text.splitlines()
    for task in all_tasks().values():
        (line,) = (line for line in lines if f"│ {task.name} " in line)
        assert task.title in line
        assert ("있음" if task.is_sample else "없음: ") in line
    for name in KNOWN:
        assert any(f"│ {name} " in line for line in lines)
    assert sum("=FOLDER" in line for line in lines) == sum(not model.is_bundled for model in KNOWN.values())


def test_the_list_and_the_checks_are_in_the_language_asked_for(tmp_path: Path, tiny_encoder: Path) -> None:
    known = shown(lambda console: print_known(KNOWN, tmp_path, console, "en"))
    assert not re.findall("[가-힣]", known)
    entries = [KNOWN["tfidf"], KNOWN["pressbert-scratch"], Encoder(name="tiny", encoder=str(tiny_encoder))]
    cells = plan_cells(entries, [get_task("nsmc-sample"), get_task("klue-sts-sample"), get_task("korquad")], 1)
    found = Preflight(cells, root=tmp_path, out=tmp_path / "out", language="en")
    found.check()
    text = shown(found.show)
    assert not re.findall("[가-힣]", text)
    assert "missing" in text


def test_an_embedder_is_checked_by_its_files(tmp_path: Path, tiny_encoder: Path) -> None:
    there, gone = (SentenceEmbedder(name="e", encoder=str(folder)) for folder in (tiny_encoder, tmp_path / "no"))
    found = preflight_of(tmp_path / "out", [there], "klue-sts-sample")
    assert (found.num_ready, found.num_blocked) == (1, 0)
    found = preflight_of(tmp_path / "out", [gone], "klue-sts-sample")
    assert (found.num_ready, found.num_blocked) == (0, 1)
    assert any(finding.fix for finding in found.findings)
