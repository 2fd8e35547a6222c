"""The bundled models: trained step by step from open text, stored in half precision, with cards and a manifest."""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

import pretraining.folders
from corpora.foundation.errors import RecipeError, ResultError, UsageError
from corpora.foundation.files import sha256
from downstream.bundle import MODELS, RECIPE, Bundle, main, read_bundle_recipe
from downstream.bundling.publishing import copy_model
from downstream.bundling.steps import MAX_BYTES
from downstream.embed import encode
from downstream.encoders.folder import BUNDLED, ModelFolder
from downstream.fill_mask import MaskFiller
from downstream.finetune import load_finetuned
from downstream.task import get_task

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

CORPUS = """
licence = "CC-BY-SA-4.0"
held_out = 0.2

[[sources]]
path = "news.jsonl"
title = "invented news"
origin = "the sample"
licence = "CC0-1.0"
"""

BUNDLE = """
corpus = "{corpus}"
vocabulary = {{ vocab_size = 600 }}
classifier = {{ task = "nsmc-sample", finetune = {{ epochs = 1, batch_size = 64 }} }}

[[encoder]]
objective = {{ name = "replaced_token", mlm_rate = 0.1, generator_size = 1.0 }}
data = {{ max_length = 32 }}
model = {{ hidden_size = 16, num_hidden_layers = 1, num_attention_heads = 1, max_position_embeddings = 128 }}
loop = {{ steps = 4, batch_size = 8, warmup_steps = 1, peak_lr = 1e-3 }}

[[encoder]]
objective = "dynamic_mlm"
data = {{ max_length = 64 }}
loop = {{ steps = 3, batch_size = 8, warmup_steps = 1, peak_lr = 1e-3 }}

[embedder]
storage = "float16"
evaluate = ["klue-sts-sample"]

[[embedder.stages]]
kind = "headline_body"
data = ["corpus"]
batch_size = 8

[[embedder.stages]]
kind = "sts_cosine"
data = ["klue-sts-sample"]
epochs = 1
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with root, work, recipe and the bundle that was made of them."""
    return make_in(tmp_path_factory.mktemp("bundle"), BUNDLE)


def make_in(folder: Path, recipe: str) -> Path:
    """Make a bundle of forty articles and two reviews without labels."""
    sample = Path(__file__).parents[2] / "corpora" / "sample" / "news.jsonl"
    (folder / "root").mkdir()
    (folder / "root" / "news.jsonl").write_text(
        "".join(sample.read_text(encoding="utf-8").splitlines(keepends=True)[:40]), encoding="utf-8"
    )
    (folder / "root" / "reviews.txt").write_text("배우들이 좋았다\n지루한 이야기\n", encoding="utf-8")
    (folder / "corpus.toml").write_text(CORPUS, encoding="utf-8")
    (folder / "recipe.toml").write_text(recipe.format(corpus=(folder / "corpus.toml").as_posix()), encoding="utf-8")
    assert make(folder) == 0
    return folder


def make(folder: Path, *more: str) -> int:
    places = ["--data", str(folder / "root"), "--work", str(folder / "work"), "--out", str(folder / "out")]
    return main(["--recipe", str(folder / "recipe.toml"), *places, "--workers", "1", *more])


@pytest.mark.slow
def test_what_is_bundled_loads_as_plain_folders_in_single_precision(made: Path) -> None:
    out = made / "out"
    tokenizer = AutoTokenizer.from_pretrained(out / "encoder")
    inputs = tokenizer("시의회가 예산안을 [MASK] 의결했다.", return_tensors="pt")
    for folder, kind in (("encoder", AutoModelForMaskedLM), ("classifier", AutoModelForSequenceClassification)):
        assert {t.dtype for t in load_file(out / folder / "model.safetensors").values()} == {torch.float16}
        model, info = kind.from_pretrained(out / folder, output_loading_info=True)
        assert not info["missing_keys"]
        assert model.dtype == torch.float32
        assert torch.isfinite(model(**inputs).logits).all()
    _, _, task = load_finetuned(out / "classifier")
    assert task.name == "nsmc-sample"
    assert encode(["국회", "예산안"], model=out / "embedder").shape == (2, 16)


@pytest.mark.slow
def test_the_manifest_tells_where_everything_comes_from(made: Path) -> None:
    out = made / "out"
    manifest = json.loads((out / "MANIFEST.json").read_text(encoding="utf-8"))
    assert manifest["licence"] == "CC-BY-SA-4.0"
    assert [source["licence"] for source in manifest["sources"]] == ["CC0-1.0"]
    assert manifest["sources"][0]["num_kept"] > 20
    assert manifest["encoder"]["tokens"] > 500
    assert 0 < manifest["encoder"]["held_out"]["mlm_loss"] < 10
    assert 0 <= manifest["classifier"]["metrics"]["accuracy"] <= 1
    assert manifest["embedder"]["scores"]["klue-sts-sample"].keys() >= {"pearson"}
    on_disk = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} - {"MANIFEST.json"}
    assert manifest["files"].keys() == on_disk
    assert all(sha256(out / name) == entry["sha256"] for name, entry in manifest["files"].items())
    # What tells of the making stays behind: checkpoints, predictions, curves.
    assert not {"result.json", "metrics.jsonl", "objective.safetensors"} & {Path(name).name for name in on_disk}
    assert "encoder/vocab.txt" in on_disk
    assert "classifier/vocab.txt" not in on_disk


@pytest.mark.slow
def test_scores_are_those_of_the_stored_weights(made: Path) -> None:
    [finetuned] = (made / "work").glob("classifier-*")
    result = json.loads((finetuned / "result.json").read_text(encoding="utf-8"))
    manifest = json.loads((made / "out" / "MANIFEST.json").read_text(encoding="utf-8"))
    assert manifest["classifier"]["metrics"]["accuracy"] == pytest.approx(result["metrics"]["accuracy"], abs=0.03)
    for name in ("encoder", "classifier"):
        before, after = (
            load_file(folder / "model.safetensors")
            for folder in (made / "work" / "encoder-2" if name == "encoder" else finetuned, made / "out" / name)
        )
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key].to(torch.float16), after[key]) for key in before)
    # Whoever fine-tunes the bundled encoder gets this classifier.
    assert result["recipe"]["encoder_sha256"] == ModelFolder(made / "out" / "encoder").digest()


@pytest.mark.slow
def test_cards_say_what_a_model_is_not_good_at_in_both_languages(made: Path, subtests: pytest.Subtests) -> None:
    for name in (
        "encoder",
        "classifier",
        "embedder",
    ):
        with subtests.test(name=name):
            card = ModelCard.load(made / "out" / name / "README.md")
            assert card.data.license == "cc-by-sa-4.0"
            assert card.data.language == "ko"
            assert "잘하지 못하는 것" in card.text
            assert "What it is not good at" in card.text
            assert "invented news" in card.text


@pytest.mark.slow
def test_a_second_call_trains_nothing_again(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in (made / "out").rglob("*") if path.is_file()}

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("made again")

    monkeypatch.setattr("pretraining.training.run.Run._finish", refuse)
    monkeypatch.setattr("downstream.finetuning.trainer._train", refuse)
    monkeypatch.setattr("downstream.bundling.steps.train_wordpiece", refuse)
    assert make(made) == 0
    assert {path: path.read_bytes() for path in (made / "out").rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_classifier_may_learn_from_several_and_from_texts_without_labels(made: Path, tmp_path: Path) -> None:
    more = 'self_training = {{ teachers = 2, unlabelled = ["reviews.txt"], distill = {{ ngram_weight = 1 }} }}'
    make_in(tmp_path, BUNDLE.replace("batch_size = 64 }} }}", "batch_size = 64 }}, " + more + " }}"))
    manifest = json.loads((tmp_path / "out" / "MANIFEST.json").read_text(encoding="utf-8"))["classifier"]
    assert [metrics.keys() for metrics in manifest["teachers"]] == [{"accuracy"}] * 2
    assert manifest["unlabelled"]["num_texts"] == 2
    assert (manifest["finetune"]["layers"], manifest["finetune"]["ngram_weight"]) == (1, 1.0)
    card = ModelCard.load(tmp_path / "out" / "classifier" / "README.md").text
    assert "선생으로 삼아, 이름표 없는 영화평 2건" in card
    assert "on 2 unlabelled reviews with the predictions of 2 models" in card
    assert "로그 확률을 1배로" in card
    assert "predictions with weight 1." in card
    own = json.loads((made / "out" / "MANIFEST.json").read_text(encoding="utf-8"))["classifier"]
    assert (own["teachers"], own["unlabelled"]) == ([], None)


@pytest.fixture
def elsewhere(made: Path, tmp_path: Path) -> Path:
    """Return a folder with what was bundled and what it was made of, but nothing of the work."""
    for name in ("root", "out"):
        shutil.copytree(made / name, tmp_path / name)
    shutil.copy(made / "recipe.toml", tmp_path)
    return tmp_path


def weights(folder: Path, name: str) -> bytes:
    return (folder / "out" / name / "model.safetensors").read_bytes()


def told(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "out" / "MANIFEST.json").read_text(encoding="utf-8"))
    return manifest


THIRD_PHASE = """
[[encoder]]
objective = "dynamic_mlm"
data = { max_length = 64 }
loop = { steps = 2, batch_size = 8, warmup_steps = 1, peak_lr = 1e-3 }
"""


@pytest.mark.slow
def test_a_bundle_is_continued_with_another_phase(made: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in the folder of the package, whose models are compared with its manifest whenever they are opened.
    monkeypatch.setattr(pretraining.folders, "BUNDLED", elsewhere / "out")
    recipe = elsewhere / "recipe.toml"
    recipe.write_text(recipe.read_text(encoding="utf-8") + THIRD_PHASE, encoding="utf-8")
    assert make(elsewhere, "--continue") == 0
    before, after = told(made)["encoder"], told(elsewhere)["encoder"]
    run = json.loads((elsewhere / "work" / "encoder-3" / "manifest.json").read_text(encoding="utf-8"))
    assert {path.name for path in (elsewhere / "work").glob("encoder-*")} == {"encoder-3"}
    assert after["tokens"] == before["tokens"] + run["tokens"]
    assert len(after["device"]) == 3
    assert (before["stored_after"], after["stored_after"]) == ([], [2])
    first, last = (load_file(folder / "out" / "encoder" / "model.safetensors") for folder in (made, elsewhere))
    moved = [(first[key].float() - last[key].float()).abs().max().item() for key in first]
    assert 0 < max(moved) < 0.05  # two steps away from where it was, not somewhere else
    assert weights(made, "classifier") != weights(elsewhere, "classifier")
    assert weights(made, "embedder") != weights(elsewhere, "embedder")


@pytest.mark.slow
def test_a_bundle_is_continued_with_one_model(made: Path, elsewhere: Path) -> None:
    recipe = elsewhere / "recipe.toml"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("epochs = 1, b", "epochs = 2, b"), encoding="utf-8")
    assert make(elsewhere, "--continue") == 0
    assert not list((elsewhere / "work").glob("e*"))
    assert [weights(made, name) == weights(elsewhere, name) for name in MODELS] == [True, False, True]
    before, after = told(made), told(elsewhere)
    assert after["encoder"] == before["encoder"]
    assert after["embedder"] == before["embedder"]
    assert (before["classifier"]["finetune"]["epochs"], after["classifier"]["finetune"]["epochs"]) == (1, 2)


FURTHER_STAGE = """
[[embedder.stages]]
kind = "headline_body"
data = ["corpus:{corpus}"]
batch_size = 8
held_out_days = 0.3
"""


@pytest.mark.slow
def test_a_bundled_embedder_is_continued_with_another_stage(made: Path, elsewhere: Path, fails: Fails) -> None:
    articles = CORPUS.replace("invented news", "news with headlines")
    (elsewhere / "articles.toml").write_text(articles, encoding="utf-8")
    recipe = elsewhere / "recipe.toml"
    further = FURTHER_STAGE.format(corpus=(elsewhere / "articles.toml").as_posix())
    recipe.write_text(recipe.read_text(encoding="utf-8") + further, encoding="utf-8")
    assert make(elsewhere, "--continue") == 0
    assert [weights(made, name) == weights(elsewhere, name) for name in MODELS] == [True, True, False]
    before, after = told(made)["embedder"], told(elsewhere)["embedder"]
    [folder] = (elsewhere / "work").glob("embedder-*")
    run = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    start, stage = run["stages"]
    assert start["scores"] == before["scores"]  # it starts from the bundled weights, and trains the new stage alone
    assert (stage["kind"], stage["sources"][0]["left_out"].keys()) == ("headline_body", {"held-out day"})
    assert after["train_s"] > before["train_s"]
    assert after["stored_after_stages"] == [2]
    assert [source["title"] for source in after["sources"]] == ["news with headlines"]
    assert make(elsewhere, "--continue") == 0
    assert told(elsewhere)["embedder"] == after
    # Another change than an addition starts from the encoder.
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("epochs = 1\n", "epochs = 2\n"), encoding="utf-8")
    assert make(elsewhere, "--continue") == 0
    assert "stored_after_stages" not in told(elsewhere)["embedder"]
    assert len(told(elsewhere)["recipe"]["embedder"]["stages"]) == 3
    recipe.write_text(recipe.read_text(encoding="utf-8").partition("[[embedder.stages]]")[0], encoding="utf-8")
    with fails(RecipeError, "recipe, embedder", "stages"):
        make(elsewhere, "--continue")


@pytest.mark.slow
def test_the_encoder_alone_may_grow_and_the_others_follow_later(made: Path, elsewhere: Path) -> None:
    recipe = elsewhere / "recipe.toml"
    changed = recipe.read_text(encoding="utf-8").replace("epochs = 1, b", "epochs = 2, b")
    recipe.write_text(changed + THIRD_PHASE, encoding="utf-8")
    assert make(elsewhere, "--continue", "--models", "encoder") == 0
    assert [weights(made, name) == weights(elsewhere, name) for name in MODELS] == [False, True, True]
    manifest = told(elsewhere)
    assert len(manifest["recipe"]["encoder"]) == 3
    assert manifest["recipe"]["classifier"] == told(made)["recipe"]["classifier"]
    assert manifest["classifier"] == told(made)["classifier"]
    for name in ("classifier", "embedder"):
        assert manifest[name]["encoder_sha256"] == told(made)["encoder"]["sha256"] != manifest["encoder"]["sha256"]
        now, before = (
            (folder / "out" / name / "README.md").read_text(encoding="utf-8") for folder in (elsewhere, made)
        )
        assert "앞선 판에서 시작해" in now
        assert "trained from an earlier version" in now
        assert "앞선 판에서 시작해" not in before
    assert make(elsewhere, "--continue") == 0
    after = told(elsewhere)
    assert after["encoder"] == manifest["encoder"]
    assert after["classifier"]["finetune"]["epochs"] == 2
    for name in ("classifier", "embedder"):
        assert after[name]["encoder_sha256"] == after["encoder"]["sha256"]
    # What was made before in the same folder is not in the way.
    recipe.write_text(recipe.read_text(encoding="utf-8") + THIRD_PHASE, encoding="utf-8")
    assert make(elsewhere, "--continue") == 0
    assert len(list((elsewhere / "work").glob("classifier-*"))) == 2


OWN_PHASE = """
[teacher]
is_int8 = false
attribution = "sentence vectors of a published encoder (MIT)"

[[embedder_phases]]
corpus = "{corpus}"
vocabulary = {{ vocab_size = 500, min_frequency = 1 }}
init = {{ embeddings = "by_pieces" }}
objective = "teacher_vectors"
data = {{ max_length = 48 }}
loop = {{ steps = 2, batch_size = 8, warmup_steps = 1, peak_lr = 1e-3 }}
"""


@pytest.mark.slow
def test_an_embedder_may_have_phases_vocabulary_and_teacher_of_its_own(
    made: Path, elsewhere: Path, fails: Fails
) -> None:
    sentences = CORPUS.replace('path = "news.jsonl"', 'path = "news.jsonl"\nsentences = true').replace(
        "invented news", "sentences of invented news"
    )
    (elsewhere / "sentences.toml").write_text(sentences, encoding="utf-8")
    recipe = elsewhere / "recipe.toml"
    own = OWN_PHASE.format(corpus=(elsewhere / "sentences.toml").as_posix())
    recipe.write_text(recipe.read_text(encoding="utf-8") + own, encoding="utf-8")
    with fails(UsageError, "--teacher", "not computed yet"):
        make(elsewhere, "--continue", "--models", "embedder")
    assert make(elsewhere, "--continue", "--teacher", str(made / "out" / "embedder")) == 0
    assert [weights(made, name) == weights(elsewhere, name) for name in MODELS] == [True, True, False]
    before, after = told(made), told(elsewhere)
    assert (after["encoder"], after["classifier"], after["sources"]) == (
        before["encoder"],
        before["classifier"],
        before["sources"],
    )
    assert after["embedder"]["encoder_sha256"] == before["encoder"]["sha256"]
    assert after["embedder"]["tokens"] > 100
    assert after["embedder"]["attribution"].endswith("(MIT)")
    assert [source["title"] for source in after["embedder"]["sources"]] == ["sentences of invented news"]
    tokenizers = [AutoTokenizer.from_pretrained(elsewhere / "out" / name) for name in ("encoder", "embedder")]
    assert tokenizers[0].get_vocab() != tokenizers[1].get_vocab()
    assert encode(["국회", "예산안"], model=elsewhere / "out" / "embedder").shape == (2, 16)
    card = (elsewhere / "out" / "embedder" / "README.md").read_text(encoding="utf-8")
    assert card.count("sentence vectors of a published encoder (MIT)") == 2
    assert "| sentences of invented news |" in card
    for path in (elsewhere / "work").glob("vectors-*/0*.npy"):
        path.unlink()  # the vectors are not needed again
    assert make(elsewhere, "--continue") == 0
    assert told(elsewhere) == after


@pytest.mark.slow
def test_an_embedder_may_continue_from_an_earlier_phase(made: Path, elsewhere: Path, fails: Fails) -> None:
    recipe = elsewhere / "recipe.toml"
    text = recipe.read_text(encoding="utf-8")
    recipe.write_text(f"embedder_start = 3\n{text}", encoding="utf-8")
    with fails(RecipeError, "recipe, embedder_start", "phase 3 of an encoder that has 2"):
        make(elsewhere, "--continue")
    recipe.write_text(f"embedder_start = 1\n{text}", encoding="utf-8")
    with fails(ResultError, elsewhere / "work" / "encoder-1", "phase 1 of the encoder", "is not here"):
        make(elsewhere, "--continue")
    shutil.copytree(made / "work" / "encoder-1", elsewhere / "work" / "encoder-1")
    assert make(elsewhere, "--continue") == 0
    assert [weights(made, name) == weights(elsewhere, name) for name in MODELS] == [True, True, False]
    assert told(elsewhere)["recipe"]["embedder_start"] == 1


@pytest.mark.slow
def test_an_encoder_may_learn_from_a_teacher_in_another_vocabulary(made: Path, elsewhere: Path) -> None:
    (elsewhere / "sentences.toml").write_text(CORPUS.replace("invented news", "more news"), encoding="utf-8")
    recipe = elsewhere / "recipe.toml"
    own = OWN_PHASE.format(corpus=(elsewhere / "sentences.toml").as_posix()).replace("embedder_phases", "encoder")
    recipe.write_text(recipe.read_text(encoding="utf-8") + own, encoding="utf-8")
    assert make(elsewhere, "--continue", "--teacher", str(made / "out" / "embedder")) == 0
    before, after = told(made), told(elsewhere)
    assert (before["encoder"]["attribution"], before["encoder"]["corpus"]) == ("", "corpus")
    assert after["encoder"]["attribution"] == "sentence vectors of a published encoder (MIT)"
    assert after["encoder"]["corpus"] == "sentences"
    assert before["encoder"]["vocabulary_sha256"] != after["encoder"]["vocabulary_sha256"]
    for name in MODELS:
        cards = [(folder / "out" / name / "README.md").read_text(encoding="utf-8") for folder in (made, elsewhere)]
        assert ["learnt the sentence vectors" in card for card in cards] == [False, True], name
        assert "sentence vectors of a published encoder (MIT)" in cards[1]


@pytest.mark.slow
def test_models_that_cannot_be_left_out_are_named(elsewhere: Path, fails: Fails) -> None:
    def begin(models: tuple[str, ...], *, resume: bool) -> None:
        recipe = read_bundle_recipe(elsewhere / "recipe.toml")
        places = {"root": elsewhere / "root", "work": elsewhere / "work", "out": elsewhere / "out"}
        Bundle(recipe, **places, resume=resume, models=models)

    with fails(UsageError, "--models", "from scratch needs all models"):
        begin(("encoder",), resume=False)
    begin(("classifier",), resume=True)
    recipe = elsewhere / "recipe.toml"
    recipe.write_text(recipe.read_text(encoding="utf-8") + THIRD_PHASE, encoding="utf-8")
    with fails(UsageError, "--models", "new phase of the encoder"):
        begin(("classifier",), resume=True)


@pytest.mark.slow
def test_unchanged_models_are_kept(made: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Run", "finetune", "train_embedder"):
        monkeypatch.setattr(f"downstream.bundling.steps.{name}", lambda *_, **__: pytest.fail("made again"))
    assert make(elsewhere, "--continue") == 0
    assert told(elsewhere) == told(made)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("recipe", "trained by another recipe"),
        ("vocabulary", "trained by another recipe"),
        ("weights", "not the file that MANIFEST.json lists"),
        ("manifest", "no readable MANIFEST.json"),
        ("text", "has another vocabulary"),
    ],
)
@pytest.mark.slow
def test_a_bundle_that_cannot_be_continued_is_refused(elsewhere: Path, fails: Fails, damage: str, what: str) -> None:
    recipe, out = elsewhere / "recipe.toml", elsewhere / "out"
    if damage == "manifest":
        (out / "MANIFEST.json").unlink()
    elif damage == "weights":
        path = out / "classifier" / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    elif damage == "text":
        recipe.write_text(recipe.read_text(encoding="utf-8") + THIRD_PHASE, encoding="utf-8")
        news = elsewhere / "root" / "news.jsonl"
        news.write_text("".join(news.read_text(encoding="utf-8").splitlines(keepends=True)[:20]), encoding="utf-8")
    else:
        before, after = {"recipe": ("steps = 4", "steps = 5"), "vocabulary": ("= 600", "= 620")}[damage]
        recipe.write_text(recipe.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
    with fails(ResultError, out, what):
        bundle = Bundle(
            read_bundle_recipe(recipe), root=elsewhere / "root", work=elsewhere / "work", out=out, resume=True
        )
        bundle.make()


@pytest.mark.slow
def test_a_bundle_that_cannot_be_finished_changes_nothing(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise ResultError("card", "no such template", "restore it")

    recipe = elsewhere / "recipe.toml"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("epochs = 1, b", "epochs = 2, b"), encoding="utf-8")
    before = {path: path.read_bytes() for path in (elsewhere / "out").rglob("*") if path.is_file()}
    for name, value in (("card", refuse), ("MAX_BYTES", 1_000)):
        with monkeypatch.context() as patch:
            patch.setattr(f"downstream.bundling.steps.{name}", value)
            with pytest.raises(ResultError):
                make(elsewhere, "--continue")
        assert {path: path.read_bytes() for path in (elsewhere / "out").rglob("*") if path.is_file()} == before
    assert make(elsewhere, "--continue") == 0


def test_other_models_in_a_folder_are_not_bundled(tmp_path: Path) -> None:
    """Objectives save other forms of their network, and runs the models of earlier steps, beside the encoder."""
    files = ["config.json", "tokenizer_config.json", "README.md", "recipe.json", "vocab.txt", "1_Pooling/config.json"]
    others = [f"{folder}/{name}" for folder in ("reader", "step-00000100") for name in ("config.json", files[1])]
    for name in files + others:
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("{}", encoding="utf-8")
    copy_model(tmp_path / "run", tmp_path / "out", in_half_precision=False, left_out=["vocab.txt"])
    copied = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
    assert copied == {"config.json", "tokenizer_config.json", "README.md", "1_Pooling/config.json"}


@pytest.mark.slow
def test_too_much_is_not_bundled(made: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails, tmp_path: Path) -> None:
    monkeypatch.setattr("downstream.bundling.steps.MAX_BYTES", 1_000)
    places: dict[str, Any] = {"root": made / "root", "work": made / "work", "out": tmp_path / "out"}
    with fails(ResultError, tmp_path / "out", "more than"):
        Bundle(read_bundle_recipe(made / "recipe.toml"), **places).publish()
    assert not (tmp_path / "out" / "MANIFEST.json").exists()


@pytest.mark.slow
def test_a_wrong_part_of_the_recipe_is_refused_at_once(made: Path, write: Write, fails: Fails) -> None:
    text = (made / "recipe.toml").read_text(encoding="utf-8")
    for before, after, what in (
        ('objective = "dynamic_mlm"', 'objective = "dynamic_mln"', "dynamic_mln"),
        ("max_length = 64", "max_length = 640", "max_length"),
        ('kind = "sts_cosine"', 'kind = "sts_cosin"', "sts_cosin"),
        ("[[embedder.stages]]", "[[embedder.stage]]", "stage"),
        ("batch_size = 64", "batch_sise = 64", "batch_sise"),
        ("batch_size = 64 }", 'batch_size = 64 }, self_training = { unlabelled = ["x"], distill = { a = 1 } }', "a"),
    ):
        assert before in text
        path = write("wrong.toml", text.replace(before, after))
        with fails(RecipeError, "", what):
            Bundle(read_bundle_recipe(path), root=made / "root", work=made / "work")


def test_our_own_models_read_what_they_were_trained_on_and_compute_in_single_precision() -> None:
    recipe = read_bundle_recipe()
    lengths = [
        max(phase["data"]["max_length"] for phase in phases) for phases in (recipe.encoder, recipe.embedder_phases)
    ]
    finetuned = min(lengths[0], get_task(recipe.classifier.task).finetune.max_length)
    read = {"encoder": lengths[0], "classifier": finetuned, "embedder": lengths[1]}
    for (name, longest), positions in zip(read.items(), (lengths[0], *lengths), strict=True):
        model, tokenizer = (kind.from_pretrained(BUNDLED / name) for kind in (AutoModel, AutoTokenizer))
        assert (model.config.max_position_embeddings, tokenizer.model_max_length) == (positions, longest), name
        assert model.dtype == torch.float32, name
        assert f"{longest}" in (BUNDLED / name / "README.md").read_text(encoding="utf-8"), name
    assert MaskFiller.load().max_length == lengths[0]


def test_our_own_recipe_is_sound_and_small_enough(tmp_path: Path) -> None:
    bundle = Bundle(read_bundle_recipe(BUNDLED / RECIPE), root=tmp_path, work=tmp_path)
    config = bundle.phases[0].recipe.model.network_config(bundle.recipe.vocabulary.vocab_size, 0)
    assert bundle.corpora[bundle.recipe.corpus].licence == "CC-BY-SA-4.0"
    per_layer = 12 * config.hidden_size**2
    size = config.num_hidden_layers * per_layer + config.vocab_size * config.hidden_size
    assert size < 10_000_000
    assert 3 * 2 * size < MAX_BYTES
