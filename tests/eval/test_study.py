"""Studies: arms that differ in one factor, pretrained once, scored like every model, with a page in two languages."""

import fcntl
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from PIL import Image

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS
from corpora.foundation.errors import RecipeError, UsageError
from corpora.foundation.files import fingerprint, parse_signed, write_json, write_signed
from downstream.encoders.folder import ModelFolder
from downstream.finetuning.result import read_result
from downstream.task import get_task
from eval.board.rows import Row
from eval.cells.archive import ARCHIVE, pack, restore
from eval.cells.plan import parse_share
from eval.contestants.contestant import Job, Outcome
from eval.studies.estimate import ArmEstimate, estimate
from eval.studies.page import ArmRecord, _draw_lines, draw_chart
from eval.studies.recipe import STUDIES, merge, read_study
from eval.studies.run import StudyRun
from eval.study import main
from pretraining.training.run import Run

Fails = Callable[..., AbstractContextManager[None]]

CORPUS = """
licence = "CC0-1.0"
held_out = 0.3

[[sources]]
path = "news.jsonl"
title = "news"
origin = "the sample"
licence = "CC0-1.0"
"""

STUDY = """
title = {{ ko = "작은 연구", en = "A small study" }}
question = {{ ko = "무엇이 나은가?", en = "Which is better?" }}
reading = {{ ko = "작아서 알 수 없다.", en = "Too small to tell." }}
source = "nobody"
corpus = "{corpus}"
is_by_source = true
vocabulary = {{ vocab_size = 600 }}
tokens = 3_000
tasks = ["nsmc-sample"]
seeds = 2
baseline = "mlm"
pairs = [["random", "half"]]
finetune = {{ epochs = 1, batch_size = 32, peak_lr = 1e-3 }}

[pretraining]
objective = "dynamic_mlm"
data = {{ max_length = 32 }}
loop = {{ batch_size = 8, peak_lr = 1e-3 }}

[pretraining.model]
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 1
max_position_embeddings = 128

[arms.random]
title = {{ ko = "무작위", en = "random" }}
is_random = true

[arms.mlm]
title = {{ ko = "MLM", en = "MLM" }}

[arms.half]
title = {{ ko = "반", en = "half of the run" }}
quarters = 2

[arms.other]
title = {{ ko = "다른 글", en = "other text" }}
corpus = "{other}"

[arms.rtd]
title = {{ ko = "바뀐 토큰", en = "replaced" }}
pretraining = {{ objective = {{ name = "replaced_token", generator_size = 1.0 }} }}
tokens = 1_500

[[paper]]
title = "nobody, table 1"
columns = ["accuracy"]
rows = {{ "theirs" = [12.5] }}
"""


def write_study(folder: Path) -> Path:
    """Write the study with its corpus; returns its file."""
    sample = Path(__file__).parents[2] / "corpora" / "sample" / "news.jsonl"
    (folder / "root").mkdir(parents=True)
    articles = sample.read_text(encoding="utf-8").splitlines(keepends=True)[:20]
    (folder / "root" / "news.jsonl").write_text("".join(articles), encoding="utf-8")
    (folder / "corpus.toml").write_text(CORPUS, encoding="utf-8")
    (folder / "other.toml").write_text(CORPUS + "share = 0.5\n", encoding="utf-8")
    path = folder / "small.toml"
    corpora = {name: (folder / f"{name}.toml").as_posix() for name in ("corpus", "other")}
    path.write_text(STUDY.format(**corpora), encoding="utf-8")
    return path


UNTIMED = "import pretraining.training.loop as loop; loop.matmul_flops_per_s = lambda *_, **__: 1e9"
"""Statements after which the matmul rate of the machine, which is only printed, is not measured."""


@pytest.fixture(scope="module", autouse=True)
def untimed() -> Iterator[None]:
    """Do not measure the matmul rate of the machine, which is only printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pretraining.training.loop.matmul_flops_per_s", lambda *_, **__: 1e9)
        yield


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path)


def run(study: Path, *more: str) -> int:
    folder = study.parent
    where = ["--data", str(folder / "root"), "--work", str(folder / "work"), "--out", str(folder / "out")]
    return main([str(study), *where, *more])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a study that was made, once for all tests that look at it."""
    path = write_study(tmp_path_factory.mktemp("study"))
    assert run(path) == EXIT_DONE
    return path


@pytest.mark.slow
def test_the_page_is_written_in_two_languages(made: Path) -> None:
    out = made.parent / "out" / "small"
    korean, english = ((out / name).read_text(encoding="utf-8") for name in ("small.md", "small.en.md"))
    for page, words in ((korean, ("무작위", "작아서 알 수 없다.")), (english, ("random", "Too small to tell."))):
        assert all(word in page for word in words)
        assert "| theirs | 12.5 |" in page
        assert page.count("\n| ") >= 10
    assert korean.count("|") == english.count("|")
    with Image.open(out / "chart.png") as image:
        assert image.format == "PNG"
    assert len(list(out.glob("results/nsmc-sample/*/seed-*.json"))) == 10


@pytest.mark.slow
def test_differences_are_those_against_the_baseline_and_the_pairs_asked_for(made: Path) -> None:
    page = (made.parent / "out" / "small" / "small.en.md").read_text(encoding="utf-8")
    table = page[page.index("## Differences") : page.index("## The paper")]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| NSMC")]
    differences = {(cell[1], cell[2]): float(cell[3]) for cell in cells}
    names = ["random", "half of the run", "other text", "replaced"]
    assert list(differences) == [*((name, "MLM") for name in names), ("random", "half of the run")]
    scores = {}
    for line in page[page.index("## Results") : page.index("## Differences")].splitlines():
        if line.startswith("| ") and "[" in line:
            name, figures = line.strip("| ").split(" | ")
            scores[name] = float(figures.split()[0])
    for (arm, against), difference in differences.items():
        assert difference == pytest.approx(scores[arm] - scores[against], abs=0.011)


def test_scores_over_an_axis_are_drawn_as_lines() -> None:
    from matplotlib.figure import Figure

    study = read_study("training-set-size")
    figure = Figure()
    panel = figure.subplots()
    _draw_lines(panel, study, {arm: (0.5 + k / 100, 0.4, 0.6) for k, arm in enumerate(study.arms)})
    lines = {line.get_label(): line.get_xydata() for line in panel.get_lines()}
    assert set(lines) == {"pretrained", "not pretrained"}
    assert [place for place, _ in lines["pretrained"]] == [500, 2_000, 5_000, 20_000]
    assert [value for _, value in lines["not pretrained"]] == pytest.approx([51, 53, 55, 57])
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["500", "2,000", "5,000", "20,000"]


@pytest.mark.filterwarnings("error")
def test_charts_name_arms_beside_a_forest_and_lines_in_a_legend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    for name in ("masking-rate", "training-set-size", "feature-based"):
        study = read_study(name)
        rows = [Row(model=arm, task="nsmc", metric="accuracy", value=0.8) for arm in study.arms]
        draw_chart(tmp_path / "chart.png", study, rows)
    assert [len(figure.legends) for figure in drawn] == [0, 1, 0]
    one_line, _, forest = (figure.axes[0] for figure in drawn)
    assert not any("%" in label.get_text() for label in one_line.get_yticklabels())
    assert [text.get_text() for text in drawn[1].legends[0].get_texts()] == ["pretrained", "not pretrained"]
    assert forest.get_yticklabels()[0].get_text() == "fine-tuning"


@pytest.mark.slow
def test_a_finished_study_runs_nothing_again(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = made.parent / "out" / "small"
    before = {path: path.read_bytes() for path in out.rglob("*.json")}

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("made again")

    monkeypatch.setattr("pretraining.training.run.Run._finish", refuse)
    monkeypatch.setattr("eval.cells.run.run_model", refuse)
    assert run(made, "--shard", "1/1") == EXIT_DONE
    assert capsys.readouterr().out == ""
    assert run(made) == EXIT_DONE
    assert [Path(line) for line in capsys.readouterr().out.splitlines()] == [out / "small.md", out / "small.en.md"]
    assert {path: path.read_bytes() for path in out.rglob("*.json")} == before


@pytest.mark.slow
def test_scores_of_another_study_are_reused(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = made.with_name("twin.toml")
    text = made.read_text(encoding="utf-8").replace("[arms.mlm]", "[arms.same]").replace('"mlm"', '"same"')
    text = text.replace('pairs = [["random", "half"]]', "")
    twin.write_text(text.replace("[arms.half]", "[arms.halved]\nfinetune = { epochs = 2 }"), encoding="utf-8")
    ran = []

    def note(job: Job, _: Path) -> None:
        ran.append(job.model.name)
        raise RecipeError("nothing", "runs here", "look")

    monkeypatch.setattr("eval.cells.run.run_model", note)
    assert run(twin) == EXIT_FAILED_CELLS
    assert ran == ["halved", "halved"]
    ours, theirs = (
        read_result(made.parent / "out" / study / "results" / "nsmc-sample" / arm / "seed-1.json")
        for study, arm in (("twin", "same"), ("small", "mlm"))
    )
    assert (ours.model, ours.recipe) == ("same", theirs.recipe | {"model": "same"})
    assert ours.recipe_sha256 == fingerprint(ours.recipe) != theirs.recipe_sha256
    assert ours.predictions == theirs.predictions


@pytest.mark.slow
def test_shares_in_separate_processes_give_the_same_results(made: Path, study: Path) -> None:
    folder = study.parent
    where = ["--data", str(folder / "root"), "--work", str(folder / "work"), "--out", str(folder / "out")]
    script = f"{UNTIMED}; import sys; from eval.study import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, str(study), *where]
    # Sums depend on the number of threads in their last bits.
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    with subprocess.Popen(
        [*command, "--shard", "1/2"], stderr=subprocess.PIPE, text=True, env=os.environ | threads
    ) as other:
        assert run(study, "--shard", "2/2") == EXIT_DONE
        said = other.communicate()[1]
    assert other.returncode == EXIT_DONE, said
    assert run(study) == EXIT_DONE
    pages, scores = [], []
    for out in (made.parent / "out" / "small", folder / "out" / "small"):
        page = (out / "small.en.md").read_text(encoding="utf-8")
        pages.append(page[page.index("## Results") :])
        paths = sorted(out.glob("results/*/*/*.json"))
        found = [read_result(path) for path in paths]
        scores.append(
            [(path.name, cell.model, cell.metrics, cell.predictions) for path, cell in zip(paths, found, strict=True)]
        )
    assert pages[0] == pages[1]
    assert scores[0] == scores[1]
    assert len(scores[0]) == 10


@pytest.mark.slow
def test_an_arm_that_another_process_runs_comes_last(made: Path, tmp_path: Path) -> None:
    folder = made.parent
    where = {"root": folder / "root", "work": folder / "work", "out": tmp_path}
    run = StudyRun(read_study(str(made)), **where, num_workers=1)
    names = ["mlm", "half", "rtd", "random"]
    records = run.make_encoders(names)
    lock = run.plan("mlm").folder.with_suffix(".lock")
    with lock.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            run.make_encoder("mlm", is_waiting=False)
        # "half" is a part of the same run.
        assert [next(records).arm for _ in range(2)] == ["rtd", "random"]
    assert [record.arm for record in records] == ["mlm", "half"]


@pytest.mark.slow
def test_arms_read_their_budget_of_tokens_and_little_more(made: Path) -> None:
    paths = (made.parent / "work").glob("encoder-*/manifest.json")
    manifests = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    # One with other text, none of its own for half of a run.
    assert len(manifests) == 3
    tokens = {manifest["recipe"]["objective"]["name"]: manifest["tokens"] for manifest in manifests}
    assert tokens.keys() == {"dynamic_mlm", "replaced_token"}
    assert 2_800 < tokens["dynamic_mlm"] < 3_400
    assert 1_300 < tokens["replaced_token"] < 1_900


@pytest.mark.slow
def test_an_arm_may_be_a_checkpoint_or_have_another_corpus(made: Path) -> None:
    board = json.loads((made.parent / "out" / "small" / "leaderboard.json").read_text(encoding="utf-8"))
    arms = {arm["arm"]: arm for arm in board["manifest"]["arms"]}
    assert arms["half"]["tokens"] == pytest.approx(arms["mlm"]["tokens"] / 2, rel=0.1)
    assert Path(arms["half"]["encoder"]).parent == Path(arms["mlm"]["encoder"])
    assert arms["half"]["held_out_loss"] > arms["mlm"]["held_out_loss"]
    texts = {made.parent / "work" / arms[name]["recipe"]["data"]["corpus"] for name in ("mlm", "other")}
    kept = [json.loads((path / "manifest.json").read_text(encoding="utf-8"))["totals"] for path in texts]
    assert sorted(total["dropped"].get("not_sampled", 0) > 0 for total in kept) == [False, True]
    assert {arms[name]["recipe"]["data"]["tokenizer"] for name in ("mlm", "other")} == {
        arms["mlm"]["recipe"]["data"]["tokenizer"]
    }


@pytest.mark.slow
def test_an_arm_may_have_a_first_phase(study: Path) -> None:
    text = study.read_text(encoding="utf-8")
    phase = "first = { tokens = 2_000, pretraining = { seed = 1, data = { max_length = 16 } } }"
    study.write_text(text.replace("quarters = 2", phase), encoding="utf-8")
    folder = study.parent
    where = {"root": folder / "root", "work": folder / "work", "out": folder / "out" / "small"}
    run = StudyRun(read_study(str(study)), **where, num_workers=1)
    plan, whole = run.plan("half"), run.plan("mlm")
    assert plan.first is not None
    lengths = [phase.recipe.data.max_length for phase in (plan.first, plan, whole)]
    assert lengths == [16, 32, 32]
    # Another beginning is another encoder, though the rest is the same recipe.
    assert len({phase.folder for phase in (plan.first, plan, whole)}) == 3
    takes = {arm.arm: arm for arm in estimate(run)}
    assert takes["half"].steps == plan.first.recipe.loop.steps + plan.recipe.loop.steps
    record = run.make_encoder("half")
    manifests = [
        json.loads((phase.folder / "manifest.json").read_text(encoding="utf-8")) for phase in (plan.first, plan)
    ]
    assert Path(manifests[1]["recipe"]["model"]["init"]) == plan.first.folder
    assert record.encoder == plan.folder.name
    assert record.tokens == sum(manifest["tokens"] for manifest in manifests)
    assert record.elapsed_s == sum(manifest["elapsed_s"] for manifest in manifests)
    assert 2_900 < record.tokens < 3_500
    # A finished phase is not made again.
    before = {path: path.stat().st_mtime_ns for path in (folder / "work").glob("encoder-*/model.safetensors")}
    assert run.make_encoder("half") == record
    assert {path: path.stat().st_mtime_ns for path in (folder / "work").glob("encoder-*/model.safetensors")} == before
    assert len(before) == 2
    assert [arm.device for arm in estimate(run) if arm.arm == "half"] == ["done"]


@pytest.mark.slow
def test_a_dry_run_estimates_and_makes_no_encoder(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(study, "--dry-run") == EXIT_DONE
    differences = capsys.readouterr().out
    assert "| mlm |" in differences
    assert "10 cells of fine-tuning in " in differences
    assert not list((study.parent / "work").glob("encoder-*"))
    assert not (study.parent / "out").exists()


@pytest.mark.slow
def test_the_unfinished_work_of_a_study_is_estimated(made: Path, study: Path) -> None:
    def left(path: Path) -> dict[str, ArmEstimate]:
        folder = path.parent
        where = {"root": folder / "root", "work": folder / "work", "out": folder / "out" / "small"}
        return {arm.arm: arm for arm in estimate(StudyRun(read_study(str(path)), **where, num_workers=1))}

    done = left(made)
    assert {arm.device for arm in done.values()} == {"", "done"}
    assert {(arm.cells, arm.finetuning_s, arm.training_s) for arm in done.values()} == {(0, 0.0, 0.0)}
    arms = left(study)
    assert {arm.cells for arm in arms.values()} == {2}
    assert min(arm.finetuning_s for arm in arms.values()) > 0
    assert (arms["mlm"].steps, arms["mlm"].training_s) > (0, 0.0) == (arms["random"].steps, arms["random"].training_s)
    assert arms["half"].device == "the same run"
    # What is there at one scale is not there at another.
    where = {"root": made.parent / "root", "work": made.parent / "work", "out": made.parent / "out" / "small"}
    larger = read_study(str(made), ["tokens=30_000"])
    wider = read_study(str(made), ["pretraining.model.hidden_size=32"])
    longer = read_study(str(made), ["finetune.epochs=2"])
    for scale in (larger, wider, longer):
        cells = {arm.arm: arm.cells for arm in estimate(StudyRun(scale, **where, num_workers=1))}
        # An arm with a budget of its own is the same under another one of the study.
        assert cells.pop("rtd") == (0 if scale is larger else 2)
        assert set(cells.values()) == {2}
    # An encoder of the same shape is tried once for all arms.
    assert arms["mlm"].finetuning_s == arms["other"].finetuning_s


def test_sections_are_merged_key_by_key_and_objectives_replaced() -> None:
    base = {
        "objective": {"name": "dynamic_mlm", "mask_rate": 0.3},
        "loop": {"batch_size": 8, "peak_lr": 1.0},
        "seed": 1,
    }
    merged = merge(base, {"objective": {"name": "replaced_token"}, "loop": {"peak_lr": 2.0}, "data": {"max_length": 9}})
    assert merged == {
        "objective": {"name": "replaced_token"},
        "loop": {"batch_size": 8, "peak_lr": 2.0},
        "seed": 1,
        "data": {"max_length": 9},
    }
    assert base["loop"] == {"batch_size": 8, "peak_lr": 1.0}


def test_a_wrong_study_is_reported_before_anything_runs(study: Path, fails: Fails) -> None:
    cases = [
        ('baseline = "mlm"', 'baseline = "mln"', "mln"),
        ("peak_lr = 1e-3 }\n\n[pretraining]", "peek_lr = 1e-3 }\n\n[pretraining]", "peek_lr"),
        ("max_length = 32", "max_length = 512", "max_length"),
        ('name = "replaced_token"', 'name = "replaced_tokens"', "replaced_tokens"),
        ("is_random = true", 'is_random = true\nencoder = "kpfbert"', "encoder"),
        ("seeds = 2", 'seeds = 2\nencoder = "kpfbert"', "encoder"),
        ('"half"]]', '"halve"]]', "halve"),
        ("seeds = 2", 'seeds = 2\naxis = { title = "tokens" }', "axis"),
        ("is_random = true", "is_random = true\nat = 1.0", "axis"),
        ("is_random = true", "is_random = true\nfirst = { tokens = 1_000 }", "first phase"),
        ("quarters = 2", "quarters = 2\nfirst = { tokens = 1_000 }", "first phase"),
        ("tokens = 1_500", 'tokens = 1_500\ntasks = ["nmsc-sample"]', "nmsc-sample"),
        ("tokens = 1_500", "tokens = 1_500\nfirst = { tokens = 1_500 }", "first phase"),
        ("tokens = 1_500", "first = { tokens = 1_500, pretraining = { loop = { rate = 1 } } }", "loop.rate"),
    ]
    text = study.read_text(encoding="utf-8")
    for before, after, what in cases:
        assert before in text
        study.write_text(text.replace(before, after), encoding="utf-8")
        with fails(RecipeError, "", what):
            read_study(str(study))


def test_an_arm_may_be_scored_on_some_of_the_tasks(study: Path) -> None:
    both = ["nsmc-sample", "klue-sts-sample"]
    found = read_study(str(study), [f"tasks={json.dumps(both)}", 'arms.rtd.tasks=["nsmc-sample"]'])
    assert found.tasks_of("mlm") == both
    run = StudyRun(found, root=study.parent, work=study.parent, out=study.parent, num_workers=1)
    cells = run.cells([ArmRecord(arm=arm, encoder="-", encoder_sha256="") for arm in found.arms])
    assert len(cells) == found.seeds * (2 * len(found.arms) - 1)
    assert {cell.task.name for cell in cells if cell.model.name == "rtd"} == {"nsmc-sample"}


def test_an_arm_may_decay_in_its_last_steps(study: Path) -> None:
    found = read_study(str(study), ['arms.mlm.pretraining.loop={decay="warmup_stable_decay", decay_steps=20}'])
    assert found.recipe_of("mlm", Path("c"), Path("v")).loop.decay_steps == 20


def test_another_scale_is_set_on_the_command_line(study: Path, fails: Fails) -> None:
    found = read_study(str(study), ["tokens=2_000_000_000", "pretraining.model.num_hidden_layers=12"])
    assert found.tokens == 2_000_000_000
    assert found.recipe_of(found.baseline, Path("c"), Path("v")).model.num_hidden_layers == 12
    assert found.overrides == ["tokens=2_000_000_000", "pretraining.model.num_hidden_layers=12"]
    assert read_study(str(study)).overrides == []
    with fails(RecipeError, "--set", "'tokens'", "KEY=VALUE"):
        read_study(str(study), ["tokens"])
    with fails(RecipeError, "study small", "model.layers"):
        read_study(str(study), ["pretraining.model.layers=12"])


@pytest.mark.slow
def test_a_study_of_fine_tuning_uses_an_existing_encoder(made: Path, tmp_path: Path) -> None:
    encoder = next((made.parent / "work").glob("encoder-*/config.json")).parent
    path = write_study(tmp_path)
    text = path.read_text(encoding="utf-8")
    text = text[: text.index("[arms.mlm]")].replace("seeds = 2", f'seeds = 1\nencoder = "{encoder.as_posix()}"')
    text = text.replace('pairs = [["random", "half"]]', "")
    text += """
[arms.mlm]
title = { ko = "MLM", en = "MLM" }

[arms.slow]
title = { ko = "느리게", en = "slow" }
finetune = { peak_lr = 1e-5 }
"""
    path.write_text(text, encoding="utf-8")
    assert run(path) == EXIT_DONE
    assert not list((tmp_path / "work").glob("encoder-*"))
    page = (tmp_path / "out" / "small" / "small.en.md").read_text(encoding="utf-8")
    weights = ModelFolder(encoder).digest()
    assert f"not pretrained here: `{encoder.name}` (sha256 {weights[:12]}…)." in page
    # Nothing is known of time and losses of any arm: no such columns.
    assert "| model | parameters | tokens read |\n" in page
    assert "| slow |  |  |\n" in page


def test_overrides_of_arms_take_precedence_over_those_of_tasks(tmp_path: Path, fails: Fails) -> None:
    path = write_study(tmp_path)
    text = path.read_text(encoding="utf-8")
    own = "task_finetune = { nsmc-sample = { epochs = 3, batch_size = 8 } }\n\n[pretraining]\n"
    text = text.replace("\n[pretraining]\n", own, 1)
    path.write_text(text.replace("[arms.half]", "[arms.half]\nfinetune = { epochs = 2 }"), encoding="utf-8")
    study = read_study(str(path))
    assert study.finetune_of("mlm") == {"epochs": 1, "batch_size": 32, "peak_lr": 1e-3}
    work = StudyRun(study, root=tmp_path, work=tmp_path, out=tmp_path, num_workers=1)
    records = [ArmRecord(arm=arm, encoder="e", encoder_sha256="") for arm in ("mlm", "half")]
    task, other = get_task("nsmc-sample"), get_task("nsmc")
    on_task, on_others = ([entry.overrides(name) for entry in work.entries(records)] for name in (task, other))
    assert on_task == [
        {"epochs": 3, "batch_size": 8, "peak_lr": 1e-3},
        {"epochs": 2, "batch_size": 8, "peak_lr": 1e-3},
    ]
    assert [settings["epochs"] for settings in on_others] == [1, 2]
    path.write_text(text.replace("{ nsmc-sample = {", "{ nsmc-sampel = {"), encoding="utf-8")
    with fails(RecipeError, path, "'nsmc-sampel' of task_finetune", "nsmc-sample"):
        read_study(str(path))
    path.write_text(text.replace("epochs = 3", "epohcs = 3"), encoding="utf-8")
    with fails(RecipeError, f"{path}, arm random, finetune", "epohcs", "epochs"):
        read_study(str(path))


def test_an_unknown_study_is_one_line(fails: Fails) -> None:
    with fails(RecipeError, "objectiv", "no such study", "objective"):
        read_study("objectiv")
    for text in ("3/2", "0/2", "a/b", "1"):
        with fails(UsageError, "--shard", text):
            parse_share(text)


def test_our_studies_are_sound() -> None:
    for path in sorted(STUDIES.glob("*.toml")):
        found = read_study(path.stem)
        assert found.seeds >= 3, path.stem
        assert found.question.ko != found.question.en, path.stem
        assert found.reading.ko.count("- ") == found.reading.en.count("- ") >= 3, path.stem
        assert len(found.arms) >= 2, path.stem


@pytest.mark.slow
def test_a_run_starts_from_published_cells(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = tmp_path / "docs"
    assert run(made, "--publish", str(docs)) == EXIT_DONE
    files = {path.name: path.read_bytes() for path in (docs / "small").iterdir()}
    assert set(files) == {"small.md", "small.en.md", "chart.png", "cells.tar.xz"}
    assert files["small.md"] == (made.parent / "out" / "small" / "small.md").read_bytes()

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("run again")

    monkeypatch.setattr("eval.cells.run.run_model", refuse)
    assert run(made, "--publish", str(docs), "--out", str(tmp_path / "elsewhere")) == EXIT_DONE
    assert {path.name: path.read_bytes() for path in (docs / "small").iterdir()} == files
    capsys.readouterr()


@pytest.fixture
def elsewhere(made: Path, tmp_path: Path) -> list[str]:
    """Return the arguments of a machine that has nothing but the published folder of the study."""
    assert run(made, "--publish", str(tmp_path / "docs")) == EXIT_DONE
    return [f"--{name}={tmp_path / name}" for name in ("work", "out")] + ["--publish", str(tmp_path / "docs")]


@pytest.mark.slow
def test_a_published_study_needs_no_encoder(
    made: Path, elsewhere: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path.name: path.read_bytes() for path in (tmp_path / "docs" / "small").iterdir()}
    with tarfile.open(tmp_path / "docs" / "small" / ARCHIVE, "r:xz") as archive:
        texts = [file.read().decode() for name in archive.getnames() if (file := archive.extractfile(name))]
        assert sum(name.startswith("arms/") for name in archive.getnames()) == 5
    assert not any(str(made.parent.parent) in text for text in texts)

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("made again")

    monkeypatch.setattr("pretraining.training.run.Run._finish", refuse)
    monkeypatch.setattr("eval.cells.run.run_model", refuse)
    assert run(made, *elsewhere) == EXIT_DONE
    assert not list((tmp_path / "work").glob("encoder-*/config.json"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "docs" / "small").iterdir()} == files
    # Another study has some of these arms.
    text = made.read_text(encoding="utf-8").replace("[arms.rtd]", "[arms.electra]")
    half = text[text.index("[arms.half]") : text.index("[arms.other]")]
    another = made.with_name("another.toml")
    another.write_text(text.replace(half, "").replace('pairs = [["random", "half"]]', ""), encoding="utf-8")
    assert run(another, *elsewhere) == EXIT_DONE
    pages = [(tmp_path / "docs" / name / f"{name}.en.md").read_text(encoding="utf-8") for name in ("small", "another")]
    differences = [[line for line in page.splitlines() if line.startswith("| replaced |")] for page in pages]
    assert differences[0] == differences[1]
    assert len(differences[0]) == 2


@pytest.mark.slow
def test_a_damaged_record_is_ignored_with_a_warning(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = made.parent
    where = {"root": folder / "root", "work": folder / "work", "out": tmp_path, "num_workers": 1}
    run = StudyRun(read_study(str(made)), elsewhere=[folder / "out" / "small"], **where)
    plan = run.plan("rtd")
    whole = run.finished("rtd", plan)
    assert whole is not None
    record = tmp_path / "arms" / "rtd.json"
    known = StudyRun(read_study(str(made)), **where)
    assert known.finished("rtd", plan) == whole
    for text in ("", "{", "[]", '{"arm": "rtd"}', record.read_text(encoding="utf-8").replace('"tokens"', '"token"')):
        record.write_text(text, encoding="utf-8")
        caplog.clear()
        assert known.finished("rtd", plan) is None
        assert f"{record}: not a record of an arm" in caplog.text
    assert known.make_encoder("rtd") == whole
    assert known.finished("rtd", plan) == whole


@pytest.mark.slow
def test_checkpoints_of_one_run_are_reused_all_or_none(
    made: Path, elsewhere: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = read_study("steps")
    assert study.same_run("ltr-2") == ["ltr-1", "ltr-2", "ltr-3", "ltr-4"]
    assert study.same_run("mlm-2-decayed") == ["mlm-2-decayed"]
    finished = []

    def note(run: Run, *_: object) -> None:
        finished.append(run.recipe.objective["name"])
        raise RecipeError("nothing", "runs here", "look")

    monkeypatch.setattr("pretraining.training.run.Run._finish", note)
    another = made.with_name("along.toml")
    another.write_text(made.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(RecipeError, match="runs here"):
        run(another, *elsewhere)
    # Its end is known from the other study, but not the way there from the same run.
    assert finished == ["dynamic_mlm"]
    assert not (tmp_path / "out" / "along" / "arms" / "mlm.json").exists()


@pytest.mark.slow
def test_a_page_lists_machines_if_they_differ(made: Path, tmp_path: Path) -> None:
    docs, out = tmp_path / "docs", tmp_path / "out"
    assert run(made, "--publish", str(docs)) == EXIT_DONE
    assert "etrained on" not in (docs / "small" / "small.en.md").read_text(encoding="utf-8")
    restore(docs / "small" / ARCHIVE, out / "small")
    for path in (out / "small").rglob("*.json"):
        if "rtd" in (path.stem, path.parent.name):
            about = parse_signed(path.read_text(encoding="utf-8"))
            where = about if path.parent.name == "arms" else about.get("environment", {})
            where |= {"device": "One", "precision": "bf16"} if where is about else {"cpu": "Two", "precision": "bf16"}
            (write_json if where is about else write_signed)(path, about)
    assert run(made, f"--out={out}") == EXIT_DONE
    page = (out / "small" / "small.en.md").read_text(encoding="utf-8")
    assert "| One, bf16 | replaced |" in page
    assert "| Two, bf16 | replaced |" in page
    assert "| random · MLM · half of the run · other text |" in page[page.index("### Fine-tuned on") :]
    assert "| MLM · half of the run · other text |" in page[page.index("### Pretrained on") :]


@pytest.mark.slow
def test_a_missing_cell_of_a_published_study_runs_again(
    made: Path, elsewhere: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = tmp_path / "begun" / "results" / "nsmc-sample" / "mlm" / "seed-1.json"
    restore(tmp_path / "docs" / "small" / ARCHIVE, tmp_path / "begun")
    lost.unlink()
    pack(tmp_path / "begun", tmp_path / "docs" / "small" / ARCHIVE)
    ran = []

    def note(job: Job, work: Path) -> Outcome:
        ran.append((job.model.name, job.seed))
        return job.model.run(job, work)

    monkeypatch.setattr("eval.cells.run.run_model", note)
    assert run(made, *elsewhere) == EXIT_DONE
    # The same weights come out, so the other cell of the arm counts.
    assert ran == [("mlm", 1)]
    assert len(list((tmp_path / "work").glob("encoder-*/config.json"))) == 1
    pages = [folder / "small" / "small.en.md" for folder in (tmp_path / "docs", made.parent / "out")]
    results = [(text := page.read_text(encoding="utf-8"))[text.index("## Results") :] for page in pages]
    assert results[0] == results[1]
