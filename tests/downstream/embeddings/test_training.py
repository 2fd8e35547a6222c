"""Training embedders from stand-ins: every stage learns, a killed run ends like a whole one, the folder is plain."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, Trainer

from corpora.foundation.errors import RecipeError, ResultError, UsageError
from corpora.foundation.files import parse_signed
from downstream.embed import Embedder, encode, main, shorten
from downstream.embeddings.pipeline import open_sentence_transformer
from downstream.embeddings.recipe import STAGES, EmbedRecipe, read_embed_recipe
from downstream.embeddings.rows import read_rows
from downstream.embeddings.similarity import evaluate_embedder, evaluate_lexical
from downstream.embeddings.trainer import run_stage
from downstream.embeddings.training import STAGE_FILE, WORK, train_embedder

Fails = Callable[..., AbstractContextManager[None]]
NOWHERE = Path("/nonexistent")

QUICK: Mapping[str, Any] = {"epochs": 0.2, "batch_size": 8, "peak_lr": 1e-3}
DATA = {
    "nli_softmax": "klue-nli-sample",
    "nli_ranking": "klue-nli-sample",
    "sts_cosine": "klue-sts-sample",
    "headline_body": "sample",
    "headline_day": "sample",
    "dropout_pairs": "klue-nli-sample",
}


def recipe_of(*stages: Mapping[str, Any], **settings: Any) -> EmbedRecipe:
    built = tuple(STAGES[stage["kind"]](**{"data": (DATA[stage["kind"]],), **QUICK, **stage}) for stage in stages)
    return EmbedRecipe(**{"stages": built, "max_length": 48, "evaluate": ("klue-sts-sample",), **settings})


def bytes_of(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def encoder(standins: dict[str, Path]) -> Path:
    return standins["klue-bert"]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Name an empty data root: all data are the embedded sample's."""
    monkeypatch.setenv("PRESSBERT_DATA", str(tmp_path))
    return iter(())


SOFTMAX_THEN_COSINE = ({"kind": "nli_softmax", "epochs": 0.3}, {"kind": "sts_cosine", "epochs": 0.5})


@pytest.fixture(scope="module")
def finished(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run of two stages. Nobody writes into it."""
    out = tmp_path_factory.mktemp("embedders") / "sbert"
    train_embedder(encoder, recipe_of(*SOFTMAX_THEN_COSINE), out=out, data=out.parent)
    return out


class Steps:
    """Watches the training steps of every trainer, and interrupts one where it is asked to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[int] = []
        """The trainer's count at the start of every step."""
        self.stop_at = -1
        original = Trainer.training_step

        def step(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
            if len(self.taken) == self.stop_at:
                raise KeyboardInterrupt
            self.taken.append(trainer.state.global_step)
            return original(trainer, *args, **kwargs)

        monkeypatch.setattr(Trainer, "training_step", step)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


# --- learning -------------------------------------------------------------------------------------------------------


EPOCHS = {
    "nli_softmax": 3,
    "nli_ranking": 5,
    "sts_cosine": 4,
    "headline_body": 4,
    "headline_day": 4,
    "dropout_pairs": 1,
}


@pytest.mark.parametrize(("kind", "epochs"), EPOCHS.items())
def test_every_stage_lowers_its_loss(encoder: Path, tmp_path: Path, kind: str, epochs: int) -> None:
    learn = {"kind": kind, "epochs": epochs, "batch_size": 16, "peak_lr": 2e-3}
    manifest = train_embedder(encoder, recipe_of(learn, max_length=24, evaluate=()), out=tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    assert len(losses) > 5
    assert {line["stage"] for line in lines} == {1}
    assert np.mean(losses[-3:]) < (0.95 if kind == "nli_softmax" else 0.8) * losses[0]
    assert manifest["stages"][1]["losses"] == [losses[0], losses[-1]]


def test_headlines_find_their_articles_after_training(encoder: Path, tmp_path: Path) -> None:
    learn = {"kind": "headline_body", "epochs": 12, "batch_size": 40, "peak_lr": 3e-3}
    recipe = recipe_of(learn, max_length=24, evaluate=())
    rows = read_rows(recipe.stages[0], NOWHERE, "stage 1").columns
    train_embedder(encoder, recipe, out=tmp_path / "out")

    def hits(model: Path) -> float:
        titles, bodies = encode(rows["anchor"], model=model), encode(rows["positive"], model=model)
        return float(np.mean((titles @ bodies.T).argmax(axis=1) == np.arange(len(titles))))

    assert hits(tmp_path / "out") > max(0.5, hits(encoder))


def test_the_first_components_are_trained_as_vectors_too(encoder: Path, tmp_path: Path, fails: Fails) -> None:
    learn = {"kind": "headline_body", "epochs": 6, "batch_size": 40, "peak_lr": 3e-3}
    plain = recipe_of(learn, max_length=24, evaluate=())
    rows = read_rows(plain.stages[0], NOWHERE, "stage 1").columns

    def hits(dimensions: tuple[int, ...]) -> float:
        out = tmp_path / str(len(dimensions))
        train_embedder(encoder, recipe_of(learn, max_length=24, evaluate=(), dimensions=dimensions), out=out)
        titles, bodies = (shorten(encode(rows[side], model=out), 4) for side in ("anchor", "positive"))
        return float(np.mean((titles @ bodies.T).argmax(axis=1) == np.arange(len(titles))))

    assert hits((4,)) > hits(()) + 0.05
    with fails(RecipeError, "stage 1", "needs all components", "nli_ranking"):
        train_embedder(encoder, recipe_of({"kind": "nli_softmax"}, dimensions=(4,)), out=tmp_path / "no")
    with fails(RecipeError, "recipe", "4096"):
        train_embedder(encoder, recipe_of(learn, dimensions=(4096,)), out=tmp_path / "long")


def test_a_stage_is_averaged_with_the_weights_before_it(encoder: Path, tmp_path: Path) -> None:
    learn = {"kind": "headline_body", "epochs": 2, "batch_size": 40, "peak_lr": 3e-3}
    start = tmp_path / "start"
    train_embedder(encoder, recipe_of(learn, max_length=24, evaluate=()), out=start)
    weights = []
    for share in (0.0, 0.25):
        recipe = recipe_of(learn | {"start_share": share}, max_length=24, evaluate=())
        train_embedder(start, recipe, out=tmp_path / str(share))
        weights.append(load_file(tmp_path / str(share) / "model.safetensors"))
    before, (trained, averaged) = load_file(start / "model.safetensors"), weights
    for name, weight in averaged.items():
        assert torch.allclose(weight, 0.25 * before[name] + 0.75 * trained[name], atol=1e-6)
    assert any(not torch.equal(before[name], trained[name]) for name in trained)


def first_loss(folder: Path, scratch: Path, kind: str, **settings: Any) -> float:
    """Return the loss of the first steps of a stage that changes nothing."""
    stage = STAGES[kind](kind=kind, data=(DATA[kind],), epochs=0.1, peak_lr=1e-30, batch_size=8, **settings)
    rows = read_rows(stage, NOWHERE, "stage 1")
    model = open_sentence_transformer(folder, "cpu")
    ran = run_stage(model, stage, rows, checkpoints=scratch, seed=0, checkpoint_every=99, title="")
    return float(ran["log"][0]["loss"])


def test_more_dropout_makes_the_two_encodings_of_a_text_differ_more(finished: Path, tmp_path: Path) -> None:
    config = json.loads((finished / "config.json").read_text())
    assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0.1
    assert first_loss(finished, tmp_path, "dropout_pairs", dropout=0.5) > first_loss(
        finished, tmp_path, "dropout_pairs", dropout=1e-9
    )


def test_the_temperature_scales_the_cosines(finished: Path, tmp_path: Path) -> None:
    # Hot, all cosines count alike: of the eight entailed and eight contradicting hypotheses one is chosen by chance.
    assert first_loss(finished, tmp_path, "nli_ranking", temperature=1e6) == pytest.approx(np.log(16), abs=1e-4)
    assert abs(first_loss(finished, tmp_path, "nli_ranking", temperature=0.05) - np.log(16)) > 1e-2


# --- the finished folder --------------------------------------------------------------------------------------------


def test_the_folder_is_plain_and_free_of_pickles_and_work(finished: Path) -> None:
    names = {str(path.relative_to(finished)) for path in finished.rglob("*")}
    assert names >= {"modules.json", "1_Pooling/config.json", "config.json", "model.safetensors", "tokenizer.json"}
    assert names >= {"README.md", "manifest.json", "metrics.jsonl"}
    assert {Path(name).suffix for name in names if "." in name} == {".json", ".safetensors", ".md", ".jsonl"}
    assert not [name for name in names if name.startswith((".", WORK, STAGE_FILE))]
    assert {path.stat().st_mode & 0o777 for path in finished.rglob("*") if path.is_file()} == {0o644}


def test_sentence_transformers_gives_the_same_vectors(finished: Path) -> None:
    texts = ["시의회가 예산을 확정했다.", "경기는 연장 끝에 끝났다. " * 30, ""]
    model = SentenceTransformer(str(finished), device="cpu")
    assert model.max_seq_length == Embedder.load(finished).max_length == 48
    assert np.abs(model.encode(texts, normalize_embeddings=True) - encode(texts, model=finished)).max() < 1e-5


def test_the_manifest_describes_the_training(finished: Path, encoder: Path) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    start, softmax, cosine = manifest["stages"]
    assert (manifest["encoder"], manifest["dimension"], manifest["seed"]) == ("klue-bert", 32, 0)
    assert manifest["versions"].keys() >= {"torch", "sentence-transformers", "transformers", "python"}
    assert manifest["encoder_sha256"] == Embedder.load(encoder).sha256
    assert manifest["num_parameters"] == sum(v.numel() for v in load_file(finished / "model.safetensors").values())
    assert (softmax["kind"], softmax["num_rows"], softmax["num_steps"]) == ("nli_softmax", 300, 11)
    assert (cosine["kind"], cosine["num_rows"], cosine["num_steps"]) == ("sts_cosine", 190, 12)
    assert softmax["seed"] != cosine["seed"]
    assert len(softmax["sources"][0]["sha256"]) == 64
    assert manifest["train_s"] == pytest.approx(softmax["train_s"] + cosine["train_s"], abs=0.11)
    assert start["scores"] != softmax["scores"] != cosine["scores"] == manifest["scores"]
    assert manifest["seen_pairs"] == {"klue-sts-sample": 0}


def test_its_scores_can_be_reproduced(finished: Path) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    again = evaluate_embedder("klue-sts-sample", finished).metrics
    assert again == pytest.approx(manifest["scores"]["klue-sts-sample"], abs=1e-6)
    for measure, scores in manifest["baselines"].items():
        assert scores["klue-sts-sample"] == pytest.approx(evaluate_lexical("klue-sts-sample", measure).metrics)


def test_the_card_is_one_a_hub_reads(finished: Path) -> None:
    card = ModelCard.load(finished / "README.md")
    assert (card.data.language, card.data.library_name) == ("ko", "sentence-transformers")
    assert card.data.pipeline_tag == "sentence-similarity"
    assert card.data.to_dict()["license_name"] == "data: CC0-1.0"
    manifest = json.loads((finished / "manifest.json").read_text())
    scored = {entry.metric_type: entry.metric_value for entry in card.data.eval_results or []}
    known = manifest["scores"]["klue-sts-sample"]
    assert scored == pytest.approx({f"cosine_{key}": value for key, value in known.items()}, abs=1e-6)
    for score in (known["pearson"], manifest["baselines"]["tfidf"]["klue-sts-sample"]["pearson"]):
        assert f"{score:.4f}" in card.text
    assert "klue-nli-sample (CC0-1.0)" in card.text
    assert "한계" in card.text


def test_half_precision_and_a_licence_go_to_the_folder(finished: Path, encoder: Path, tmp_path: Path) -> None:
    recipe = recipe_of(*SOFTMAX_THEN_COSINE, storage="float16", licence="CC-BY-SA-4.0")
    manifest = train_embedder(encoder, recipe, out=tmp_path / "out")
    assert {value.dtype for value in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.float16}
    # Few CPUs have units for half precision.
    assert AutoModel.from_pretrained(tmp_path / "out").dtype == torch.float32
    assert len(bytes_of(tmp_path / "out")) < 0.6 * len(bytes_of(finished))
    again = evaluate_embedder("klue-sts-sample", tmp_path / "out").metrics
    assert again == pytest.approx(manifest["scores"]["klue-sts-sample"], abs=1e-6)
    single = json.loads((finished / "manifest.json").read_text())["scores"]["klue-sts-sample"]
    assert again["pearson"] == pytest.approx(single["pearson"], abs=0.01)
    assert ModelCard.load(tmp_path / "out" / "README.md").data.license == "cc-by-sa-4.0"


def test_an_embedder_is_trained_further(finished: Path, tmp_path: Path) -> None:
    recipe = recipe_of({"kind": "headline_body", "peak_lr": 1e-30, "weight_decay": 0.0}, max_length=512)
    manifest = train_embedder(finished, recipe, out=tmp_path / "out")
    old, new = (load_file(folder / "model.safetensors") for folder in (finished, tmp_path / "out"))
    assert all(torch.allclose(old[name], new[name], atol=1e-12) for name in old)
    assert manifest["stages"][0]["scores"] == manifest["scores"]
    assert Embedder.load(tmp_path / "out").max_length == 48  # what it was trained to read


# --- seeds, and runs that are finished, killed or another's -----------------------------------------------------------


def test_another_seed_gives_other_weights(finished: Path, encoder: Path, tmp_path: Path) -> None:
    # That the same seed gives the same bytes, the killed runs show.
    train_embedder(encoder, recipe_of(*SOFTMAX_THEN_COSINE, seed=1, evaluate=()), out=tmp_path / "out")
    assert bytes_of(tmp_path / "out") != bytes_of(finished)


@pytest.mark.parametrize(
    "stop_at",
    [
        pytest.param(9, id="first", marks=pytest.mark.slow),
        pytest.param(11, id="between", marks=pytest.mark.slow),
        pytest.param(20, id="second"),
    ],
)
def test_a_killed_run_is_bit_identical_to_an_uninterrupted_one(
    finished: Path, encoder: Path, tmp_path: Path, steps: Steps, stop_at: int
) -> None:
    recipe = recipe_of(*SOFTMAX_THEN_COSINE, checkpoint_every=4)
    steps.stop_at = stop_at
    with pytest.raises(KeyboardInterrupt):
        train_embedder(encoder, recipe, out=tmp_path / "out")
    assert steps.taken == [*range(11), *range(12)][:stop_at]
    assert not (tmp_path / "out" / "manifest.json").exists()
    # What a kill leaves in the midst of writing is passed over.
    for checkpoints in (tmp_path / "out" / WORK).glob("*-checkpoints"):
        (checkpoints / "checkpoint-10").mkdir()
    for leftover in (tmp_path / "out" / WORK / ".new.killed", tmp_path / "out" / ".new.killed"):
        leftover.mkdir()
    steps.taken, steps.stop_at = [], -1
    manifest = train_embedder(encoder, recipe, out=tmp_path / "out")
    first, second = {9: (8, 0), 11: (11, 0), 20: (11, 8)}[stop_at]
    assert steps.taken == [*range(first, 11), *range(second, 12)]
    assert bytes_of(tmp_path / "out") == bytes_of(finished)
    assert manifest["scores"] == json.loads((finished / "manifest.json").read_text())["scores"]
    assert not (tmp_path / "out" / WORK).exists()
    assert not list((tmp_path / "out").glob(".new.*"))


def test_weights_that_the_encoder_has_not_are_drawn_from_the_seed(encoder: Path, tmp_path: Path) -> None:
    """Masked language models have no pooler; that of the embedder, which no vector uses, is the same in every run."""
    bare, names = tmp_path / "bare", ("first", "second")
    shutil.copytree(encoder, bare, ignore=shutil.ignore_patterns("digests.json"))
    weights = load_file(bare / "model.safetensors")
    save_file({k: v for k, v in weights.items() if "pooler" not in k}, bare / "model.safetensors", {"format": "pt"})
    for number, name in enumerate(names):
        torch.manual_seed(number)
        train_embedder(bare, recipe_of({"kind": "sts_cosine"}, evaluate=()), out=tmp_path / name)
    assert any("pooler" in key for key in load_file(tmp_path / "first" / "model.safetensors"))
    assert len({bytes_of(tmp_path / name) for name in names}) == 1


def test_a_resumed_run_draws_the_same_dropout(encoder: Path, tmp_path: Path, steps: Steps) -> None:
    recipe = recipe_of({"kind": "dropout_pairs", "epochs": 0.15}, checkpoint_every=3, evaluate=())
    train_embedder(encoder, recipe, out=tmp_path / "whole")
    whole = list(steps.taken)
    steps.taken, steps.stop_at = [], 5
    with pytest.raises(KeyboardInterrupt):
        train_embedder(encoder, recipe, out=tmp_path / "parts")
    steps.taken, steps.stop_at = [], -1
    train_embedder(encoder, recipe, out=tmp_path / "parts")
    assert steps.taken == whole[3:]
    assert bytes_of(tmp_path / "parts") == bytes_of(tmp_path / "whole")


def test_a_finished_run_is_not_run_again(finished: Path, encoder: Path, steps: Steps) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    manifest = train_embedder(encoder, recipe_of(*SOFTMAX_THEN_COSINE), out=finished)
    assert manifest == parse_signed((finished / "manifest.json").read_text())
    assert steps.taken == []
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_the_folder_of_another_run_is_not_overwritten(
    finished: Path, standins: dict[str, Path], steps: Steps, fails: Fails
) -> None:
    before = bytes_of(finished)
    changes: tuple[dict[str, Any], ...] = (
        {"seed": 1},
        {"max_length": 32},
        {"storage": "float16"},
        {"stages": ({"kind": "sts_cosine"},)},
        {"encoder": "mbert"},
    )
    for change in changes:
        settings = {name: value for name, value in change.items() if name not in {"encoder", "stages"}}
        recipe = recipe_of(*change.get("stages", SOFTMAX_THEN_COSINE), **settings)
        with fails(UsageError, finished, "another run", "--out"):
            train_embedder(standins[change.get("encoder", "klue-bert")], recipe, out=finished)
        assert steps.taken == [], change
        assert bytes_of(finished) == before, change


def test_an_unchanged_stage_is_reused_if_a_later_one_changes(
    finished: Path, encoder: Path, tmp_path: Path, steps: Steps
) -> None:
    steps.stop_at = 15
    other = (SOFTMAX_THEN_COSINE[0], {"kind": "sts_cosine", "epochs": 0.25})
    with pytest.raises(KeyboardInterrupt):
        train_embedder(encoder, recipe_of(*other), out=tmp_path / "out")
    steps.taken, steps.stop_at = [], -1
    train_embedder(encoder, recipe_of(*SOFTMAX_THEN_COSINE), out=tmp_path / "out")
    assert steps.taken == list(range(12))
    assert bytes_of(tmp_path / "out") == bytes_of(finished)


# --- scores -------------------------------------------------------------------------------------------------


def test_data_that_are_scored_on_are_not_trained_on(encoder: Path, tmp_path: Path, steps: Steps, fails: Fails) -> None:
    stage = {"kind": "sts_cosine", "data": ("klue-sts-sample:dev",)}
    with fails(RecipeError, "evaluate", "70 of the 70 pairs of klue-sts-sample are in the training data"):
        train_embedder(encoder, recipe_of(stage), out=tmp_path / "out")
    assert steps.taken == []
    assert not (tmp_path / "out").exists()


def test_a_task_without_data_is_listed_and_not_scored(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    recipe = recipe_of({"kind": "sts_cosine"}, evaluate=("klue-sts-sample", "korsts-dev"))
    manifest = train_embedder(encoder, recipe, out=tmp_path / "out")
    assert manifest["scores"].keys() == {"klue-sts-sample"}
    assert "sts-dev.tsv" in manifest["unavailable"]["korsts-dev"]
    assert "korsts-dev: not scored" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_an_encoder_with_quirks_keeps_its_tokenizer(standins: dict[str, Path], tmp_path: Path) -> None:
    still = {"kind": "sts_cosine", "epochs": 0.05, "peak_lr": 1e-30, "weight_decay": 0.0}
    texts = ["시의회가 예산 3조 2,000억 원을 확정했다.", "“경기는 끝났다”며 海外 팬들이 울었다", ""]
    for kind in ("korbert", "kobert"):
        out = tmp_path / kind
        train_embedder(standins[kind], recipe_of(still, max_length=512, evaluate=()), out=out)
        assert np.abs(encode(texts, model=out) - encode(texts, model=standins[kind])).max() < 1e-5, kind
        theirs = SentenceTransformer(str(out), device="cpu").encode(texts, normalize_embeddings=True)
        assert np.abs(encode(texts, model=out) - theirs).max() < 1e-5, kind


def test_an_unwritable_folder_is_named(encoder: Path, tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "file").write_text("in the way")
    with fails(ResultError, tmp_path / "file", "cannot write"):
        train_embedder(encoder, recipe_of({"kind": "sts_cosine"}), out=tmp_path / "file" / "out")


# --- the command ----------------------------------------------------------------------------------------------------

RECIPE = """
max_length = 48
evaluate = ["klue-sts-sample"]
[[stages]]
kind = "sts_cosine"
data = ["klue-sts-sample"]
epochs = 0.5
batch_size = 8
"""


def test_the_command_prints_the_scores(
    encoder: Path, write: Callable[[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = write("recipe.toml", RECIPE), tmp_path / "out"
    assert main(["train", str(path), "--model", str(encoder), "--out", str(out), "--seed", "5"]) == 0
    printed = json.loads(capsys.readouterr().out)
    manifest = json.loads((out / "manifest.json").read_text())
    assert printed == manifest["scores"]
    assert manifest["recipe"] == json.loads(json.dumps(read_embed_recipe(path, {"seed": 5}).model_dump()))


def test_the_process_scores_an_embedder_without_a_data_root(finished: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "downstream.embed", "evaluate", "klue-sts-sample", "--model", str(finished)]
    environment = os.environ | {"PRESSBERT_DATA": "", "XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3], env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    manifest = json.loads((finished / "manifest.json").read_text())
    assert json.loads(done.stdout)["metrics"] == pytest.approx(manifest["scores"]["klue-sts-sample"], abs=1e-6)


def test_a_mistake_is_one_line_on_stderr_and_code_2(encoder: Path, write: Callable[[str, str], Path]) -> None:
    path = write("recipe.toml", RECIPE.replace("epochs", "epoch"))
    command = [sys.executable, "-m", "downstream.embed", "train", str(path), "--model", str(encoder), "--out", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "did you mean 'epochs'?" in done.stderr
