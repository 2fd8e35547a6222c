"""What is compared: the file that lists it, names on the command line, and what makes a cell another cell."""

import contextlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.foundation import files
from corpora.foundation.errors import RecipeError, UsageError
from corpora.foundation.files import fingerprint
from downstream import task as task_module
from downstream.encoders.hub import ENCODERS, EncoderUnavailableError, bundled
from downstream.finetune import TaskData, read_task
from downstream.task import SAMPLE_ROOT, FinetuneConfig, Split, TextExample, get_task
from eval.contestants import baselines
from eval.contestants.contestant import (
    ModelEntry,
    build_scratch,
    cell_recipe,
    choose_models,
    code_sha256,
    load_leaderboard,
    run_cell,
)

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

NOWHERE = Path("/nonexistent")
PUBLISHED = ("kpfbert", "klue-bert", "korbert", "kobert", "mbert")
KNOWN = load_leaderboard().models
NSMC = get_task("nsmc-sample")


# --- leaderboard.toml -----------------------------------------------------------------------------------------------


def test_the_five_published_encoders_and_three_baselines_are_compared_on_five_tasks() -> None:
    leaderboard = load_leaderboard()
    kinds = {name: entry.kind for name, entry in leaderboard.models.items()}
    baseline_kinds = {"majority": "majority", "tfidf": "tfidf", "pressbert-scratch": "scratch"}
    assert {
        name: kind for name, kind in kinds.items() if kind not in {"summary", "finetuned"}
    } == baseline_kinds | dict.fromkeys(("pressbert-mini", *PUBLISHED), "encoder")
    assert leaderboard.tasks == ["nsmc", "klue-nli", "klue-sts", "korquad", "klue-mrc"]
    assert leaderboard.seeds >= 1
    assert all(name == entry.name for name, entry in leaderboard.models.items())
    assert all(KNOWN[name].encoder or name in ENCODERS for name in PUBLISHED)


@pytest.mark.parametrize("name", KNOWN)
def test_only_models_that_learn_nothing_by_chance_run_one_seed(name: str) -> None:
    assert KNOWN[name].is_deterministic == (KNOWN[name].kind in {"majority", "tfidf", "summary", "finetuned"})


@pytest.mark.parametrize("task", [*load_leaderboard().tasks, *(f"{name}-sample" for name in load_leaderboard().tasks)])
def test_departures_of_every_model_are_settings_of_every_task(task: str) -> None:
    for entry in KNOWN.values():
        assert set(entry.overrides(get_task(task))) <= set(FinetuneConfig.model_fields)


def test_the_sample_has_departures_of_its_own_where_they_are_given() -> None:
    entry = ModelEntry(name="m", finetune={"epochs": 1}, sample_finetune={"epochs": 2})
    assert entry.overrides(get_task("nsmc")) == {"epochs": 1}
    assert entry.overrides(NSMC) == {"epochs": 2}
    assert ModelEntry(name="m", finetune={"epochs": 1}).overrides(NSMC) == {"epochs": 1}
    longer = ModelEntry(
        name="m", sample_finetune={"epochs": 2, "dropout": 0.1}, task_finetune={NSMC.name: {"epochs": 3}}
    )
    assert longer.overrides(NSMC) == {"epochs": 3, "dropout": 0.1}
    assert longer.overrides(get_task("nsmc")) == {}


def test_a_task_may_have_departures_of_its_own_until_others_are_asked_for() -> None:
    entry = ModelEntry(name="m", finetune={"epochs": 1, "peak_lr": 1e-4}, task_finetune={"klue-sts": {"epochs": 5}})
    assert entry.overrides(get_task("klue-sts")) == {"epochs": 5, "peak_lr": 1e-4}
    assert entry.overrides(get_task("nsmc")) == {"epochs": 1, "peak_lr": 1e-4}
    assert entry.with_overrides({"epochs": 2}).overrides(get_task("klue-sts")) == {"epochs": 2, "peak_lr": 1e-4}


HEAD = 'seeds = 3\ntasks = ["nsmc"]\n'


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("seeds = 3\ntask = ['nsmc']\n[models.a]", "", "unknown key 'task'; did you mean 'tasks'?"),
        (HEAD + "sead = 3\n[models.a]", "", "unknown key 'sead'; did you mean 'seeds'?"),
        (HEAD + "[models.a]\nfinetun = {}", ", models.a", "unknown key 'finetun'; did you mean 'finetune'?"),
        (HEAD + "[models.a.task_finetune]\nnmsc = {}", ", models.a, task_finetune", "unknown task 'nmsc'"),
        (HEAD + "[models.a]\nkind = 'tfdif'", ", models.a", "kind='tfdif'"),
        (HEAD.replace("3", "0") + "[models.a]", "", "seeds=0"),
        (HEAD + "[models.a", "", "not a TOML file"),
    ],
    ids=["task", "sead", "finetun", "nmsc", "kind", "seeds", "syntax"],
)
def test_a_wrong_key_or_value_is_one_line(write: Write, fails: Fails, text: str, where: str, what: str) -> None:
    path = write("leaderboard.toml", text)
    with fails(RecipeError, f"{path}{where}: ", what):
        load_leaderboard(path)


def test_the_classifier_of_the_package_stands_for_itself_on_its_task_alone() -> None:
    for name, runtime in (("pressbert-classifier", "torch"), ("pressbert-classifier-fast", "auto")):
        entry = KNOWN[name]
        assert (entry.finetuned_folder, entry.runtime) == (bundled("classifier"), runtime)
        assert entry.applies_to(get_task("nsmc"))
        assert not entry.applies_to(get_task("klue-nli"))


def test_a_model_is_added_by_one_entry(write: Write) -> None:
    entry = load_leaderboard(write("leaderboard.toml", HEAD + "[models.mine]\nencoder = 'runs/mine'")).models["mine"]
    assert (entry.name, entry.kind, entry.encoder) == ("mine", "encoder", "runs/mine")


def test_a_runtime_is_recorded_with_the_libraries_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, task = KNOWN["pressbert-classifier-fast"], get_task("nsmc-sample")
    data = read_task(task, NOWHERE)
    whole = cell_recipe(entry, task, data)
    assert {"numba", "onnxruntime", "torch"} <= whole["versions"].keys()
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "numba" else real(name, *rest))
    less = cell_recipe(entry, task, data)
    assert whole["versions"].keys() - less["versions"].keys() == {"numba"}
    assert fingerprint(less) != fingerprint(whole)


# --- names on the command line --------------------------------------------------------------------------------------


def test_known_keys_are_chosen_in_the_order_given() -> None:
    assert choose_models(["tfidf", "kpfbert"], KNOWN) == [KNOWN["tfidf"], KNOWN["kpfbert"]]


def test_a_known_key_can_be_given_its_folder_and_keeps_its_settings(tmp_path: Path) -> None:
    known = {"korbert": ModelEntry(name="korbert", finetune={"epochs": 9})}
    (entry,) = choose_models([f"korbert={tmp_path}"], known)
    assert entry == ModelEntry(name="korbert", encoder=str(tmp_path), finetune={"epochs": 9})


def test_an_embedder_that_is_given_its_folder_stays_one(tmp_path: Path) -> None:
    known = {"mine": ModelEntry(name="mine", kind="embedder")}
    (entry,) = choose_models([f"mine={tmp_path}"], known)
    assert (entry.kind, entry.encoder) == ("embedder", str(tmp_path))


def test_a_new_key_names_a_folder(tmp_path: Path) -> None:
    (entry,) = choose_models([f"mine={tmp_path}"], KNOWN)
    assert (entry.name, entry.kind, entry.encoder) == ("mine", "encoder", str(tmp_path))


def test_a_folder_is_named_after_itself(tmp_path: Path) -> None:
    (tmp_path / "pressbert-small").mkdir()
    (entry,) = choose_models([f"{tmp_path}/pressbert-small/"], KNOWN)
    assert (entry.name, entry.kind) == ("pressbert-small", "encoder")
    assert Path(entry.encoder) == tmp_path / "pressbert-small"


def test_a_hub_id_is_named_after_its_last_part() -> None:
    (entry,) = choose_models(["klue/roberta-base"], KNOWN)
    assert (entry.name, entry.kind, entry.encoder) == ("roberta-base", "encoder", "klue/roberta-base")


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["kpfbrt"], "unknown model 'kpfbrt'; did you mean 'kpfbert'?"),
        (["tfidf", "tf-idf"], "unknown model 'tf-idf'; did you mean 'tfidf'?"),
        (["zzz"], "unknown model 'zzz'; choose from: klue-bert, kobert, korbert"),
        (["mine=/nonexistent"], "'/nonexistent' of 'mine=/nonexistent' is not a folder"),
        (["tfidf", "tfidf"], "two models are called 'tfidf'"),
        (["klue/bert-base", "google/bert-base"], "two models are called 'bert-base'; name them apart with KEY=FOLDER"),
    ],
)
def test_a_name_that_is_no_model_is_one_line(fails: Fails, names: list[str], what: str) -> None:
    with fails(UsageError, "--models: ", what):
        choose_models(names, KNOWN)


@pytest.mark.parametrize("name", ["./no-such-folder", "/no-such-folder", "no-such-folder/", "../no/such/folder"])
def test_a_path_that_is_no_folder_is_no_model(fails: Fails, name: str) -> None:
    with fails(UsageError, "--models: ", name):
        choose_models([name], KNOWN)


@pytest.mark.parametrize("name", [".", "/", "", "={}"], ids=["here", "root", "empty", "no key"])
def test_no_model_is_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(UsageError):
        assert choose_models([name.format(tmp_path)], KNOWN)[0].name


# --- what makes a cell another cell ---------------------------------------------------------------------------------


def data_of(*texts: str) -> TaskData:
    examples = tuple(TextExample(str(k), text, None, "positive") for k, text in enumerate(texts))
    return TaskData(Split(examples, "a" * 64), Split(examples, "b" * 64))


@pytest.mark.parametrize("name", ["majority", "tfidf", "pressbert-scratch"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_byte_of_the_data_makes_another_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, split: str
) -> None:
    before = fingerprint(cell_recipe(KNOWN[name], NSMC, read_task(NSMC, NOWHERE)))
    shutil.copytree(SAMPLE_ROOT, tmp_path / "sample")
    monkeypatch.setattr(task_module, "SAMPLE_ROOT", tmp_path / "sample")
    assert fingerprint(cell_recipe(KNOWN[name], NSMC, read_task(NSMC, NOWHERE))) == before
    path = NSMC.path(split, NOWHERE)
    path.write_bytes(path.read_bytes().replace(b".", b"!", 1))
    assert fingerprint(cell_recipe(KNOWN[name], NSMC, read_task(NSMC, NOWHERE))) != before


@pytest.mark.parametrize(
    "setting", [{"epochs": 2}, {"batch_size": 8}, {"peak_lr": 2e-5}, {"weight_decay": 0.1}, {"max_length": 64}]
)
def test_a_fine_tuning_setting_makes_another_cell(setting: dict[str, float]) -> None:
    entry, data = ModelEntry(name="m", kind="scratch", finetune={"warmup_ratio": 0.2}), data_of("가")
    changed = entry.model_copy(update={"finetune": entry.finetune | setting})
    assert cell_recipe(entry, NSMC, data) == cell_recipe(entry, NSMC, data)
    assert fingerprint(cell_recipe(changed, NSMC, data)) != fingerprint(cell_recipe(entry, NSMC, data))


def test_a_setting_spelt_out_as_the_tasks_default_makes_no_other_cell() -> None:
    entry, data = ModelEntry(name="m", kind="scratch"), data_of("가")
    same = entry.model_copy(update={"finetune": {"epochs": NSMC.finetune.epochs}})
    assert fingerprint(cell_recipe(same, NSMC, data)) == fingerprint(cell_recipe(entry, NSMC, data))


def test_a_setting_of_tfidf_makes_another_cell_of_tfidf_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names, data = ("majority", "tfidf", "pressbert-scratch"), data_of("가")
    before = {name: fingerprint(cell_recipe(KNOWN[name], NSMC, data)) for name in names}
    monkeypatch.setitem(baselines.SETTINGS, "C", 0.5)
    after = {name: fingerprint(cell_recipe(KNOWN[name], NSMC, data)) for name in names}
    assert [name for name in names if before[name] != after[name]] == ["tfidf"]


def test_every_model_and_every_task_makes_another_cell() -> None:
    data = data_of("가")
    entries = [KNOWN["majority"], KNOWN["tfidf"], KNOWN["pressbert-scratch"], ModelEntry(name="other", kind="scratch")]
    cells = [cell_recipe(e, get_task(t), data) for e in entries for t in ("nsmc", "nsmc-sample", "klue-nli")]
    assert len({fingerprint(cell) for cell in cells}) == 12


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "vocab.txt"])
def test_a_byte_of_an_encoder_makes_another_cell(write: Write, file: str) -> None:
    for name in ("model.safetensors", "config.json", "vocab.txt"):
        folder = write(f"encoder/{name}", "one").parent
    entry, data = ModelEntry(name="mine", encoder=str(folder)), data_of("가")
    before = cell_recipe(entry, NSMC, data)
    write("encoder/notes.md", "not the model")
    assert cell_recipe(entry, NSMC, data) == before
    write(f"encoder/{file}", "onf")
    assert fingerprint(cell_recipe(entry, NSMC, data)) != fingerprint(before)


def test_a_recipe_is_json_and_knows_no_seed() -> None:
    for name in ("majority", "tfidf", "pressbert-scratch"):
        recipe = cell_recipe(KNOWN[name], NSMC, data_of("가"))
        assert json.loads(json.dumps(recipe)) == recipe
        assert "seed" not in json.dumps(recipe)


def test_seeds_of_a_cell_share_their_recipe() -> None:
    data = read_task(NSMC, NOWHERE)
    recipe = cell_recipe(KNOWN["majority"], NSMC, data)
    results = [run_cell(KNOWN["majority"], NSMC, data, recipe, seed=seed, work=NOWHERE).result for seed in (0, 1)]
    assert [result.seed for result in results] == [0, 1]
    assert {result.recipe_sha256 for result in results} == {fingerprint(recipe)}


def test_a_misspelt_setting_of_a_model_is_one_line(fails: Fails) -> None:
    entry = ModelEntry(name="mine", kind="scratch", finetune={"peek_lr": 1e-3})
    with fails(RecipeError, "model mine on nsmc-sample: ", "unknown key 'peek_lr'", "'peak_lr'"):
        cell_recipe(entry, NSMC, data_of("가"))


@pytest.mark.parametrize("name", ["kpfbert", "korbert"])
def test_an_encoder_that_is_not_at_hand_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails, name: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with fails(EncoderUnavailableError, f"{name}: ", f"{name}=FOLDER"):
        cell_recipe(KNOWN[name], NSMC, data_of("가"))


def test_a_scratch_encoder_is_the_same_bytes_for_a_seed_and_others_for_another(tmp_path: Path) -> None:
    data = data_of("국회가 예산안을 의결했다", "국회가 법안을 의결하지 않았다", "시장이 예산을 늘렸다")
    folders = [build_scratch(data, tmp_path / str(k), seed=seed) for k, seed in enumerate((0, 0, 1))]
    contents = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert contents[0] == contents[1]
    assert {name for name in contents[0] if contents[0][name] != contents[2][name]} == {"model.safetensors"}


# --- the code behind a cell -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "touched"),
    [
        ("eval.contestants.baselines", {"majority", "tfidf"}),
        ("downstream.finetuning.ngrams", {"tfidf"}),
        ("downstream.finetune", {"pressbert-scratch", "kpfbert"}),
        ("downstream.tasks.nsmc", {"pressbert-scratch", "kpfbert"}),
        ("downstream.families.classification", {"pressbert-scratch", "kpfbert"}),
        ("pretraining.vocabulary.wordpiece", {"pressbert-scratch"}),
        ("downstream.tasks.korquad", set()),
    ],
)
def test_the_code_of_a_cell_is_that_of_its_model_and_task(
    monkeypatch: pytest.MonkeyPatch, module: str, touched: set[str]
) -> None:
    names = ("majority", "tfidf", "pressbert-scratch", "kpfbert")
    before = {name: code_sha256(KNOWN[name], NSMC) for name in names}
    syntax = files.module_syntax
    monkeypatch.setattr(files, "module_syntax", lambda name: syntax(name) + ("!" if name == module else ""))
    assert {name for name in names if code_sha256(KNOWN[name], NSMC) != before[name]} == touched


@pytest.mark.parametrize("toml", ["models = 3", "[models]\nfoo = 3"])
def test_a_model_that_is_no_table_is_one_line(tmp_path: Path, fails: Fails, toml: str) -> None:
    path = tmp_path / "leaderboard.toml"
    path.write_text('tasks = ["nsmc"]\n' + toml, encoding="utf-8")
    with fails(RecipeError, path, "a model is no table"):
        load_leaderboard(path)
