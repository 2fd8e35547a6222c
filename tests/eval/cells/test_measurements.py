"""What is measured beside a score: once, with its cell, of the same model; and how it comes into the table."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corpora.foundation.errors import CheckpointError, ResultError, UsageError
from corpora.foundation.files import fingerprint
from downstream.embed import Embedder
from downstream.embeddings.similarity import evaluate_split
from downstream.finetune import TaskData, read_task
from downstream.finetuning.result import read_result
from downstream.task import Split, Task, get_task
from eval import run_all
from eval.board.disagreement import find_disagreements
from eval.board.rows import build_table
from eval.cells import run as filling
from eval.cells.files import cell_path, find_cells, merge_results
from eval.cells.measurements import COST, CURVES, NOISE, find_sidecars
from eval.cells.run import EXTRAS, Filler, plan_cells
from eval.contestants import contestant
from eval.contestants.contestant import METRICS_FILE, ModelEntry, build_scratch, load_leaderboard, read_curve, run_cell
from eval.measures.cost import measure
from eval.measures.noise import NOISES, robustness

Fails = Callable[..., AbstractContextManager[None]]
Write = Callable[[str, str | bytes], Path]

NOWHERE = Path("/nonexistent")
KNOWN = load_leaderboard().models
NSMC, STS = get_task("nsmc-sample"), get_task("klue-sts-sample")
KINDS = [NOISES["missing-spaces"], NOISES["nfd"]]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure two kinds of noise on forty examples, and time twenty."""
    monkeypatch.setattr(filling, "robustness", partial(robustness, noises=KINDS, max_examples=40))
    monkeypatch.setattr(contestant, "measure", partial(measure, max_single=20, max_batched=20))


def fill(out: Path, *names: str, task: Task = NSMC, **more: Any) -> Filler:
    cells = plan_cells([KNOWN[name] for name in names], [task], 2)
    filler = Filler(cells, root=NOWHERE, out=out, **({"extras": EXTRAS} | more))
    filler.fill()
    assert filler.gaps == []
    return filler


def table_of(out: Path) -> Any:
    cells, _ = find_cells(out)
    sidecars, errors = find_sidecars(out, cells)
    assert errors == []
    return build_table(cells, [], sidecars=sidecars)


def test_noise_and_cost_of_a_fitted_model_come_into_its_rows(out: Path) -> None:
    fill(out, "majority", "tfidf")
    rows = {row.model: row for row in table_of(out).rows if row.source == "measured"}
    told = NOISE.read(NOISE.path(out, NSMC.name, "tfidf", 0)).robustness
    row = rows["tfidf"]
    assert [(found.noise, found.rate) for found in row.noise] == [(k.name, rate) for k in KINDS for rate in k.rates]
    clean = told.conditions[0].metrics["accuracy"]
    assert clean is not None
    for found, condition in zip(row.noise, told.conditions[1:], strict=True):
        assert found.value == condition.metrics["accuracy"]
        assert found.drop == pytest.approx(clean - (found.value or 0))
        assert found.drop_ci95 is not None
        assert found.drop_ci95[0] <= (found.drop or 0) <= found.drop_ci95[1]
        assert found.num_examples == 40
    assert max(found.altered for found in row.noise) == 1
    # What never looks at the text loses nothing.
    assert {found.drop for found in rows["majority"].noise} == {0.0}
    assert row.latency_ms is not None
    assert row.latency_ms > 0
    assert row.num_parameters == COST.read(COST.path(out, NSMC.name, "tfidf", 0)).cost.num_parameters
    assert row.num_parameters > 1000 > rows["majority"].num_parameters == 1
    assert row.cost_cpu


def test_the_clean_score_under_noise_is_that_of_the_same_predictions(out: Path) -> None:
    fill(out, "tfidf")
    told = NOISE.read(NOISE.path(out, NSMC.name, "tfidf", 0)).robustness
    result = read_result(cell_path(out, NSMC.name, "tfidf", 0))
    examples = NSMC.read_split(NSMC.eval_split, NOWHERE).examples
    of_id = {e.id: float(p == e.gold) for e, p in zip(examples, result.predictions, strict=True)}
    assert told.conditions[0].columns["accuracy"] == [[of_id[example]] for example in told.ids]


def test_speed_is_taken_of_the_first_seed_and_noise_of_every_one(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def guess(entry: ModelEntry, *arguments: Any, **more: Any) -> Any:
        return run_cell(entry.model_copy(update={"kind": "majority"}), *arguments, **more)

    monkeypatch.setattr(filling, "run_cell", guess)
    fill(out, "pressbert-scratch")
    for kind, seeds in ((NOISE, [0, 1]), (COST, [0])):
        assert sorted(key[2] for key in kind.find(out)[0]) == seeds
    (row,) = (row for row in table_of(out).rows if row.source == "measured")
    assert row.seeds == 2
    assert row.noise
    assert row.latency_ms


def test_what_was_measured_is_not_measured_again(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(out, "majority")
    before = {path: path.read_bytes() for path in out.rglob("*.json")}
    with monkeypatch.context() as patch:
        patch.setattr(filling, "run_cell", lambda *_, **__: pytest.fail("a cell is run"))
        fill(out, "majority")
    assert {path: path.read_bytes() for path in out.rglob("*.json")} == before
    # Killed between measuring and the result: the cell is run again, and keeps what it has.
    cell_path(out, NSMC.name, "majority", 0).unlink()
    monkeypatch.setattr(filling, "robustness", lambda *_, **__: pytest.fail("measured again"))
    fill(out, "majority")
    sidecars = {path: data for path, data in before.items() if "results" not in path.parts}
    assert {path: path.read_bytes() for path in sidecars} == sidecars
    assert "lack what is measured" not in capsys.readouterr().err


def test_a_changed_recipe_measures_anew_and_old_measures_count_for_nothing(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eval.contestants import baselines

    fill(out, "tfidf")
    before = NOISE.read(NOISE.path(out, NSMC.name, "tfidf", 0)).recipe_sha256
    monkeypatch.setitem(baselines.SETTINGS, "C", 0.01)
    fill(out, "tfidf", extras=())
    assert NOISE.read(NOISE.path(out, NSMC.name, "tfidf", 0)).recipe_sha256 == before
    (row,) = (row for row in table_of(out).rows if row.source == "measured")
    assert row.noise == []
    assert row.latency_ms is None
    cell_path(out, NSMC.name, "tfidf", 0).unlink()
    fill(out, "tfidf")
    assert NOISE.read(NOISE.path(out, NSMC.name, "tfidf", 0)).recipe_sha256 != before


def test_a_finished_cell_that_lacks_measures_is_told_of(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(out, "majority", extras=())
    assert not (out / "noise").exists()
    assert not (out / "cost").exists()
    fill(out, "majority")
    assert "1 of them lack what is measured beside the score" in capsys.readouterr().err


def test_measures_go_with_their_cells_when_folders_are_merged(out: Path, tmp_path: Path) -> None:
    fill(tmp_path / "one", "majority")
    fill(tmp_path / "two", "tfidf")
    assert merge_results([tmp_path / "one", tmp_path / "two"], out) == []
    for model, folder in (("majority", "one"), ("tfidf", "two")):
        for kind in (NOISE, COST):
            copy, original = (kind.path(place, NSMC.name, model, 0) for place in (out, tmp_path / folder))
            assert copy.read_bytes() == original.read_bytes()


def test_a_damaged_measure_is_one_line_and_leaves_the_table(out: Path, fails: Fails) -> None:
    fill(out, "majority")
    path = NOISE.path(out, NSMC.name, "majority", 0)
    path.write_text('{"schema": 1}', encoding="utf-8")
    with fails(ResultError, path, "not a noise file", "delete it"):
        NOISE.read(path)
    cells, _ = find_cells(out)
    sidecars, (error,) = find_sidecars(out, cells)
    assert str(path) in str(error)
    assert build_table(cells, [], sidecars=sidecars).rows[0].noise == []


def test_the_command_measures_unless_told_not_to(out: Path, tmp_path: Path) -> None:
    asked = ["--tasks", "nsmc-sample", "--models", "majority"]
    assert run_all.main([*asked, "--out", str(out)]) == 0
    rows = json.loads((out / "leaderboard.json").read_text(encoding="utf-8"))["rows"]
    assert [found["noise"] for found in rows[0]["noise"]] == ["missing-spaces", "missing-spaces", "nfd"]
    assert rows[0]["cpu_share"] > 0
    assert run_all.main([*asked, "--out", str(tmp_path / "bare"), "--without", "noise", "cost"]) == 0
    assert {path.name for path in (tmp_path / "bare").iterdir() if path.is_dir()} == {"results", "model-index"}


# --- trained models -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an untrained tiny encoder."""
    return build_scratch(read_task(STS, NOWHERE), tmp_path_factory.mktemp("encoder") / "tiny", seed=0)


def small(task: Task, number: int) -> TaskData:
    data = read_task(task, NOWHERE)
    return TaskData(*(Split(split.examples[:number], split.sha256) for split in (data.train, data.eval)))


def test_a_fine_tuned_model_is_measured_as_it_was_scored(encoder: Path, tmp_path: Path) -> None:
    entry = ModelEntry(name="tiny", encoder=str(encoder), finetune={"epochs": 1, "max_length": 32})
    data = small(STS, 24)
    recipe = contestant.cell_recipe(entry, STS, data)
    filled = run_cell(entry, STS, data, recipe, seed=0, work=tmp_path / "work")
    fitted = filled.fitted()
    assert fitted.predict(data.eval.examples) == pytest.approx(filled.result.predictions, abs=1e-5)
    cost = fitted.cost(data.eval.examples)
    assert cost.num_parameters == filled.result.num_parameters
    assert cost.size_bytes is not None
    assert cost.size_bytes > 4 * filled.result.num_parameters
    assert [(point.step, point.epoch) for point in filled.curve] == [(1, 1.0)]
    assert filled.curve[0].loss > 0


def test_an_embedder_has_cells_on_similarity_tasks_alone_and_is_scored_by_its_cosines(
    encoder: Path, out: Path, fails: Fails
) -> None:
    entry = ModelEntry(name="tiny-embedder", kind="embedder", encoder=str(encoder))
    cells = plan_cells([entry], [NSMC, STS], 3)
    assert [cell.key for cell in cells] == [(STS.name, "tiny-embedder", 0)]
    filler = Filler(cells, root=NOWHERE, out=out, extras=EXTRAS)
    filler.fill()
    assert filler.gaps == []
    result = read_result(cell_path(out, *cells[0].key))
    embedder = Embedder.load(encoder)
    split = STS.read_split(STS.eval_split, NOWHERE)
    assert result.predictions == pytest.approx(evaluate_split(STS, split, embedder).predictions, abs=1e-5)
    assert result.recipe["embedder_sha256"] == embedder.sha256
    assert result.recipe_sha256 == fingerprint(result.recipe)
    assert COST.read(COST.path(out, *cells[0].key)).cost.num_parameters == embedder.num_parameters
    with pytest.MonkeyPatch.context() as patch, fails(UsageError, "--models", "none of these models does any"):
        patch.setattr(run_all, "choose_models", lambda *_: [entry])
        run_all.main(["--tasks", "nsmc-sample", "--models", "x", "--out", str(out)])


def test_a_fine_tuned_folder_is_scored_on_its_own_task_in_the_runtime_asked_for(
    encoder: Path, tmp_path: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trained = ModelEntry(name="tiny", encoder=str(encoder), finetune={"epochs": 1, "max_length": 32})
    data = small(STS, 24)
    before = run_cell(
        trained, STS, data, contestant.cell_recipe(trained, STS, data), seed=0, work=tmp_path / "work"
    ).result
    entry = ModelEntry(name="tiny-torch", kind="finetuned", encoder=str(tmp_path / "work" / "model"))
    assert [cell.task.name for cell in plan_cells([entry], [NSMC, STS], 3)] == [STS.name]
    recipe = contestant.cell_recipe(entry, STS, data)
    assert recipe["runtime"] == "torch"
    filled = run_cell(entry, STS, data, recipe, seed=0, work=tmp_path)
    assert filled.result.predictions == pytest.approx(before.predictions, abs=1e-4)
    assert filled.result.environment["runtime"] == "torch"
    assert filled.result.num_parameters == before.num_parameters
    faster = entry.model_copy(update={"runtime": "onnx"})
    assert fingerprint(contestant.cell_recipe(faster, STS, data)) != fingerprint(recipe)
    with fails(CheckpointError, encoder, "which task"):
        plan_cells([entry.model_copy(update={"encoder": str(encoder)})], [STS], 1)


def test_training_losses_become_a_learning_curve(out: Path, write: Write, fails: Fails, monkeypatch: Any) -> None:
    lines = [{"step": 10, "epoch": 0.5, "loss": 0.7, "grad_norm": 1.0}, {"step": 20, "epoch": 1.0, "loss": 0.4}]
    path = write(
        METRICS_FILE, "".join(json.dumps(line) + "\n" for line in [*lines, {"step": 20, "train_runtime": 3.0}])
    )
    curve = read_curve(path)
    assert [(point.step, point.loss) for point in curve] == [(10, 0.7), (20, 0.4)]
    assert read_curve(path.with_name("none")) == ()

    def learn(*arguments: Any, **more: Any) -> Any:
        from dataclasses import replace

        return replace(run_cell(*arguments, **more), curve=curve)

    monkeypatch.setattr(filling, "run_cell", learn)
    fill(out, "majority", extras=())
    cells, _ = find_cells(out)
    (found,) = find_sidecars(out, cells)[0].curves_of(cells)
    assert found == CURVES.read(CURVES.path(out, NSMC.name, "majority", 0))
    assert found.points == list(curve)
    with fails(CheckpointError, write("broken.jsonl", "{"), "not a file of training metrics"):
        read_curve(path.with_name("broken.jsonl"))


def test_summaries_are_for_summarisers_alone_and_have_no_noise(out: Path) -> None:
    task = get_task("news-summary-sample")
    names = ["majority", "lead-3", "oracle", "pressbert-summarizer"]
    filler = fill(out, *names, task=task)
    assert [cell.model.name for cell in filler.cells] == names[1:]
    assert not (out / "noise").exists()
    rows = {row.model: row for row in table_of(out).rows if row.metric == task.metrics[0].key}
    assert rows["oracle"].value == 1.0
    assert rows["pressbert-summarizer"].value > rows["lead-3"].value
    assert all(row.latency_ms is not None for row in rows.values())
    assert [cell.key for cell in plan_cells([KNOWN["lead-3"]], [NSMC], 1)] == []
    cells, _ = find_cells(out)
    (found,) = find_disagreements(build_table(cells, []), NOWHERE)
    assert found.num_disputed > 10
    example = found.examples[0]
    assert {answer.model: answer.quality for answer in example.answers}["oracle"] == 1.0
    assert example.gold == next(answer.text for answer in example.answers if answer.model == "oracle")
