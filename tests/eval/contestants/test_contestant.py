"""What is compared: the file that lists it, names on the command line, and what makes a cell another cell."""

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.foundation import files
from corpora.foundation.errors import DataError, RecipeError, UsageError
from corpora.foundation.files import SAMPLE_ROOT, fingerprint
from corpora.foundation.texts import Texts
from downstream import task as task_module
from downstream.encoders.folder import BUNDLED
from downstream.encoders.hub import ENCODERS
from downstream.finetune import finetune
from downstream.task import FinetuneConfig, Split, TaskData, TextExample, get_task, read_task
from eval.contestants import tfidf
from eval.contestants.contestant import Contestant, Job, all_kinds, choose_models, load_leaderboard, read_entry
from eval.contestants.embedder import SentenceEmbedder
from eval.contestants.encoder import Encoder
from eval.contestants.scratch import Scratch
from eval.contestants.tfidf import Tfidf

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

NOWHERE = Path("/nonexistent")
PUBLISHED = ("kpfbert", "klue-bert", "korbert", "kobert", "mbert")
KNOWN = load_leaderboard().models
NSMC = get_task("nsmc-sample")


def fingerprint_of(model: Contestant, data: TaskData) -> str:
    return fingerprint(model.recipe(NSMC, data))


# --- kinds ----------------------------------------------------------------------------------------------------------


def test_every_kind_answers_for_itself() -> None:
    assert set(all_kinds()) >= {"encoder", "scratch", "embedder", "finetuned", "summary", "majority", "tfidf"}
    for name, kind in all_kinds().items():
        model = kind(name="mine")
        assert (model.kind, model.name) == (name, "mine"), name
        assert Texts("ko", "report.check")(model.description, parameters=1, tokens=1), name
        assert isinstance(model.is_bundled, bool), name
        assert set(model.overrides(NSMC)) <= set(FinetuneConfig.model_fields), name
        assert kind.from_recipe("mine", "", {}).name == "mine", name
        assert read_entry("mine", {"kind": name, **model.model_dump()}, "here") == model, name
        if model.applies_to(NSMC):
            assert len(model.code_sha256(NSMC)) == 64, name


# --- leaderboard.toml -----------------------------------------------------------------------------------------------


def test_all_known_encoders_and_three_baselines_are_compared_on_five_tasks() -> None:
    leaderboard = load_leaderboard()
    kinds = {name: model.kind for name, model in leaderboard.models.items()}
    baseline_kinds = {"majority": "majority", "tfidf": "tfidf", "pressbert-scratch": "scratch"}
    assert {
        name: kind for name, kind in kinds.items() if kind not in {"summary", "finetuned", "embedder"}
    } == baseline_kinds | dict.fromkeys(ENCODERS, "encoder")
    assert ENCODERS.keys() > {"pressbert-mini", *PUBLISHED}
    assert leaderboard.tasks == ["nsmc", "klue-nli", "klue-sts", "korquad", "klue-mrc"]
    assert leaderboard.seeds >= 1
    assert all(name == model.name for name, model in leaderboard.models.items())
    assert all(name in ENCODERS and KNOWN[name].source == name for name in PUBLISHED)


def test_only_models_that_learn_nothing_by_chance_run_one_seed() -> None:
    for name, model in KNOWN.items():
        assert model.is_deterministic == (model.kind in {"majority", "tfidf", "summary", "finetuned", "embedder"}), name


def test_departures_of_every_model_are_settings_of_every_task() -> None:
    for task in (name + suffix for name in load_leaderboard().tasks for suffix in ("", "-sample")):
        for model in KNOWN.values():
            assert set(model.overrides(get_task(task))) <= set(FinetuneConfig.model_fields), (task, model.name)


def test_the_sample_has_departures_of_its_own_where_they_are_given() -> None:
    model = Encoder(name="m", finetune={"epochs": 1}, sample_finetune={"epochs": 2})
    assert model.overrides(get_task("nsmc")) == {"epochs": 1}
    assert model.overrides(NSMC) == {"epochs": 2}
    assert Encoder(name="m", finetune={"epochs": 1}).overrides(NSMC) == {"epochs": 1}
    longer = Encoder(name="m", sample_finetune={"epochs": 2, "dropout": 0.1}, task_finetune={NSMC.name: {"epochs": 3}})
    assert longer.overrides(NSMC) == {"epochs": 3, "dropout": 0.1}
    assert longer.overrides(get_task("nsmc")) == {}


def test_a_task_may_have_departures_of_its_own_until_others_are_asked_for() -> None:
    model = Encoder(name="m", finetune={"epochs": 1, "peak_lr": 1e-4}, task_finetune={"klue-sts": {"epochs": 5}})
    assert model.overrides(get_task("klue-sts")) == {"epochs": 5, "peak_lr": 1e-4}
    assert model.overrides(get_task("nsmc")) == {"epochs": 1, "peak_lr": 1e-4}
    assert model.with_overrides({"epochs": 2}).overrides(get_task("klue-sts")) == {"epochs": 2, "peak_lr": 1e-4}


HEAD = 'seeds = 3\ntasks = ["nsmc"]\n'


def test_a_wrong_key_or_value_is_one_line(write: Write, fails: Fails) -> None:
    for text, where, what in (
        ("seeds = 3\ntask = ['nsmc']\n[models.a]", "", "unknown key 'task'; did you mean 'tasks'?"),
        (HEAD + "sead = 3\n[models.a]", "", "unknown key 'sead'; did you mean 'seeds'?"),
        (HEAD + "[models.a]\nfinetun = {}", ", models.a", "unknown key 'finetun'; did you mean 'finetune'?"),
        (HEAD + "[models.a]\nkind = 'tfidf'\nfinetune = {}", ", models.a", "unknown key 'finetune'"),
        (HEAD + "[models.a.task_finetune]\nnmsc = {}", ", models.a, task_finetune", "unknown task 'nmsc'"),
        (
            HEAD + "[models.a]\nkind = 'distilled'\n[models.a.teachers]\nnmsc = []",
            ", models.a, teachers",
            "unknown task",
        ),
        (HEAD + "[models.a]\nkind = 'tfdif'", ", models.a", "kind='tfdif' is unknown; did you mean 'tfidf'?"),
        (HEAD.replace("3", "0") + "[models.a]", "", "seeds=0"),
        (HEAD + "[models.a", "", "not a TOML file"),
        ('tasks = ["nsmc"]\nmodels = 3', "", "a model is not a table"),
        ('tasks = ["nsmc"]\n[models]\nfoo = 3', "", "a model is not a table"),
    ):
        path = write("leaderboard.toml", text)
        with fails(RecipeError, f"{path}{where}: ", what):
            load_leaderboard(path)


def test_a_model_is_added_by_one_entry(write: Write) -> None:
    model = load_leaderboard(write("leaderboard.toml", HEAD + "[models.mine]\nencoder = 'runs/mine'")).models["mine"]
    assert model == Encoder(name="mine", encoder="runs/mine")


# --- names on the command line --------------------------------------------------------------------------------------


def test_known_keys_are_chosen_in_the_order_given() -> None:
    assert choose_models(["tfidf", "kpfbert"], KNOWN) == [KNOWN["tfidf"], KNOWN["kpfbert"]]


def test_a_folder_or_hub_id_on_the_command_line_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "pressbert-small").mkdir()
    known: Mapping[str, Contestant] = {
        "korbert": Encoder(name="korbert", finetune={"epochs": 9}),
        "mine": SentenceEmbedder(name="mine"),
        "plain": Tfidf(name="plain"),
        "new": Scratch(name="new", finetune={"epochs": 3}),
    }
    small = f"{tmp_path}/pressbert-small/"
    for name, model in {
        f"korbert={tmp_path}": Encoder(name="korbert", encoder=str(tmp_path), finetune={"epochs": 9}),
        f"mine={tmp_path}": SentenceEmbedder(name="mine", encoder=str(tmp_path)),
        f"plain={tmp_path}": Encoder(name="plain", encoder=str(tmp_path)),
        f"new={tmp_path}": Encoder(name="new", encoder=str(tmp_path), finetune={"epochs": 3}),
        f"other={tmp_path}": Encoder(name="other", encoder=str(tmp_path)),
        small: Encoder(name="pressbert-small", encoder=small),
        "klue/roberta-base": Encoder(name="roberta-base", encoder="klue/roberta-base"),
    }.items():
        assert choose_models([name], known) == [model], name


def test_a_name_that_is_no_model_is_one_line(fails: Fails) -> None:
    for names, what in (
        (["kpfbrt"], "unknown model 'kpfbrt'; did you mean 'kpfbert'?"),
        (["tfidf", "tf-idf"], "unknown model 'tf-idf'; did you mean 'tfidf'?"),
        (["zzz"], "unknown model 'zzz'; choose from: e5-small, kcelectra-base, kf-deberta-base"),
        (["mine=/nonexistent"], "'/nonexistent' of 'mine=/nonexistent' is not a folder"),
        (["tfidf", "tfidf"], "two models are called 'tfidf'"),
        (["klue/bert-base", "google/bert-base"], "two models are called 'bert-base'; name one of them with KEY=FOLDER"),
        *(([name], name) for name in ("./no-such-folder", "/no-such-folder", "no-such-folder/", "../no/such/folder")),
    ):
        with fails(UsageError, "--models: ", what):
            choose_models(names, KNOWN)


def test_no_model_is_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".", "/", "", f"={tmp_path}"):
        with contextlib.suppress(UsageError):
            assert choose_models([name], KNOWN)[0].name, name


# --- what makes a cell another cell ---------------------------------------------------------------------------------


def data_of(*texts: str) -> TaskData:
    examples = tuple(TextExample(str(k), text, None, "positive") for k, text in enumerate(texts))
    return TaskData(Split(examples, "a" * 64), Split(examples, "b" * 64))


def test_a_byte_of_the_data_makes_another_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("majority", "tfidf", "pressbert-scratch")
    before = {name: fingerprint_of(KNOWN[name], read_task(NSMC, NOWHERE)) for name in names}
    for split in ("train", "test"):
        copy = tmp_path / split
        shutil.copytree(SAMPLE_ROOT, copy)
        monkeypatch.setattr(task_module, "SAMPLE_ROOT", copy)
        for name in names:
            assert fingerprint_of(KNOWN[name], read_task(NSMC, NOWHERE)) == before[name], (split, name)
        path = NSMC.path(split, NOWHERE)
        path.write_bytes(path.read_bytes().replace(b".", b"!", 1))
        for name in names:
            assert fingerprint_of(KNOWN[name], read_task(NSMC, NOWHERE)) != before[name], (split, name)


def test_a_fine_tuning_setting_makes_another_cell() -> None:
    model, data = Scratch(name="m", finetune={"warmup_ratio": 0.2}), data_of("가")
    assert model.recipe(NSMC, data) == model.recipe(NSMC, data)
    for setting in ({"epochs": 2}, {"batch_size": 8}, {"peak_lr": 2e-5}, {"weight_decay": 0.1}, {"max_length": 64}):
        changed = model.with_overrides(dict(setting))
        assert fingerprint_of(changed, data) != fingerprint_of(model, data), setting


def test_a_setting_spelt_out_as_the_tasks_default_makes_no_other_cell() -> None:
    model, data = Scratch(name="m"), data_of("가")
    assert fingerprint_of(model.with_overrides({"epochs": NSMC.finetune.epochs}), data) == fingerprint_of(model, data)


def test_a_constant_of_tfidf_makes_another_cell_of_tfidf_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names, data = ("majority", "tfidf", "pressbert-scratch"), data_of("가")
    before = {name: fingerprint_of(KNOWN[name], data) for name in names}
    monkeypatch.setitem(tfidf.SETTINGS, "C", 0.5)
    assert [name for name in names if before[name] != fingerprint_of(KNOWN[name], data)] == ["tfidf"]


def test_every_model_and_every_task_makes_another_cell() -> None:
    data = data_of("가")
    models = [KNOWN["majority"], KNOWN["tfidf"], KNOWN["pressbert-scratch"], Scratch(name="other")]
    cells = [model.recipe(get_task(task), data) for model in models for task in ("nsmc", "nsmc-sample", "klue-nli")]
    assert len({fingerprint(cell) for cell in cells}) == 12


def test_a_recipe_is_json_and_knows_no_seed() -> None:
    for name in ("majority", "tfidf", "pressbert-scratch"):
        recipe = KNOWN[name].recipe(NSMC, data_of("가"))
        assert json.loads(json.dumps(recipe)) == recipe, name
        assert "seed" not in json.dumps(recipe), name


def test_seeds_of_a_cell_share_their_recipe() -> None:
    data, model = read_task(NSMC, NOWHERE), KNOWN["majority"]
    recipe = model.recipe(NSMC, data)
    results = [model.run(Job(model, NSMC, seed, data, recipe), NOWHERE).result for seed in (0, 1)]
    assert [result.seed for result in results] == [0, 1]
    assert {result.recipe_sha256 for result in results} == {fingerprint(recipe)}


def test_a_training_split_of_one_label_is_one_line_for_every_trained_model(tmp_path: Path, fails: Fails) -> None:
    data = data_of("정말 좋은 영화", "재미있다", "또 보고 싶다")
    for name, model in {name: KNOWN[name] for name in ("majority", "tfidf", "pressbert-scratch")}.items():
        job = Job(model, NSMC, 0, data, model.recipe(NSMC, data))
        with fails(DataError, "nsmc-sample, training split", "all 3 training examples have one label ('positive')"):
            model.run(job, tmp_path / name)
    with fails(DataError, "nsmc-sample, training split", "one label"):
        finetune(NSMC, BUNDLED / "encoder", out=tmp_path / "out", data=data)


def test_a_misspelt_setting_of_a_model_is_one_line(fails: Fails) -> None:
    model = Scratch(name="mine", finetune={"peek_lr": 1e-3})
    with fails(RecipeError, "model mine on nsmc-sample: ", "unknown key 'peek_lr'", "'peak_lr'"):
        model.recipe(NSMC, data_of("가"))


def test_the_code_of_a_cell_is_that_of_its_model_and_task(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("majority", "tfidf", "pressbert-scratch", "kpfbert")
    before = {name: KNOWN[name].code_sha256(NSMC) for name in names}
    syntax = files.module_syntax
    for module, touched in {
        "eval.contestants.majority": {"majority"},
        "eval.contestants.tfidf": {"tfidf"},
        "downstream.finetuning.ngrams": {"tfidf"},
        "downstream.finetuning.trainer": {"pressbert-scratch", "kpfbert"},
        "downstream.tasks.nsmc": {"pressbert-scratch", "kpfbert"},
        "downstream.families.classification": {"pressbert-scratch", "kpfbert"},
        "pretraining.vocabulary.wordpiece": {"pressbert-scratch"},
        "eval.contestants.scratch": {"pressbert-scratch"},
        "downstream.tasks.korquad": set(),
    }.items():
        monkeypatch.setattr(files, "module_syntax", lambda name, m=module: syntax(name) + ("!" if name == m else ""))
        assert {name for name in names if KNOWN[name].code_sha256(NSMC) != before[name]} == touched, module
