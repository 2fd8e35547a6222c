"""Whole runs: the finished folder, refusals, and runs that are killed, resumed or distributed over processes."""

import concurrent.futures
import contextlib
import io
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.utils import DistributedType
from huggingface_hub import ModelCard
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForPreTraining, BertModel

import pretraining.training.accelerator
import pretraining.training.dataset
import pretraining.training.loop
import pretraining.training.run
from corpora.documents import read_documents
from corpora.foundation.command import run_command
from corpora.foundation.errors import CheckpointError, ResultError, UsageError
from corpora.foundation.files import locked
from pretraining.architectures import ARCHITECTURES
from pretraining.recipe import SAMPLE, LoopConfig, read_recipe
from pretraining.run import main
from pretraining.training.accelerator import make_accelerator
from pretraining.training.loop import Trainer
from pretraining.training.metrics import read_metrics
from pretraining.training.run import LOCK_FILE, Run
from pretraining.training.trial import TrialTrainer
from pretraining.vocabulary.tokenizer import save_tokenizer
from pretraining.vocabulary.wordpiece import train_wordpiece

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

Fails = Callable[..., AbstractContextManager[None]]
WriteRecipe = Callable[..., Path]
Command = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("PRESSBERT_KILLS", "3"))
STEPS = 12 * KILLS
VOCAB_SIZE = 600
QUICK = ("--cpu", "--workers", "1")
PRODUCTS = {
    "README.md",
    "config.json",
    "digests.json",
    "loss.png",
    "manifest.json",
    "metrics.jsonl",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
}
ACCOUNTS = {"data", "data.json", "recipe.json"}
"""Files by which a run recognises itself."""


def recipe_text(corpus: Path, tokenizer: Path, objective: str, steps: int) -> str:
    return f"""
objective = "{objective}"
seed = 5
model = {{ hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 2, max_position_embeddings = 32 }}
data = {{ corpus = "{corpus}", tokenizer = "{tokenizer}", max_length = 32 }}

[loop]
steps = {steps}
batch_size = 8
peak_lr = 5e-3
warmup_steps = {min(2, steps - 1)}
precision = "fp32"
log_every = 1
evaluate_every = 5
evaluate_rows = 41
checkpoint_every = 1
"""


@pytest.fixture
def write_recipe(corpus: Path, small_vocabulary: Path, tmp_path: Path) -> WriteRecipe:
    """Return a function that writes a tiny recipe to a file."""

    def write(
        objective: str = "dynamic_mlm", *, text: Path = corpus, tokenizer: Path = small_vocabulary, steps: int = 5
    ) -> Path:
        path = tmp_path / f"{objective}.toml"
        path.write_text(recipe_text(text, tokenizer, objective, steps), encoding="utf-8")
        return path

    return write


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs the command in this process, and gives its exit code, output and errors."""

    def run_here(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["pretraining.run", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            run_command(main)
        out, err = capfd.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, out, err

    return run_here


def assert_refused(outcome: tuple[int, str, str], *what: str) -> None:
    code, out, err = outcome
    assert (code, out) == (2, ""), err
    assert len(err.splitlines()) == 1, err
    assert all(part in err for part in what), err


def start(*arguments: object, module: tuple[str, ...] = ("-m", "pretraining.run")) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, *module, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=environment,
    )


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def told(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics without what a clock decides."""
    clock = {"tokens_per_s", "matmul_share", "waiting_share"}
    return [{k: v for k, v in line.items() if k not in clock} for line in read_metrics(folder / "metrics.jsonl")]


def weights(folder: Path) -> dict[str, Tensor]:
    stored: dict[str, Tensor] = load_file(folder / "model.safetensors")
    return stored


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int) -> None:
    """Interrupt the process at a certain call of a function."""
    original, numbers = getattr(owner, name), itertools.count(1)

    def function(*arguments: Any, **options: Any) -> Any:
        if next(numbers) == call:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, function)


def never(*_: object, **__: object) -> None:
    raise AssertionError("it trains")


# --- a finished run -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(corpus: Path, small_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """Return a recipe, the folder of its uninterrupted run, and its output. Tests do not change them."""
    root = tmp_path_factory.mktemp("finished")
    recipe = root / "recipe.toml"
    recipe.write_text(recipe_text(corpus, small_vocabulary, "static_mlm_nsp", STEPS), encoding="utf-8")
    with pytest.MonkeyPatch.context() as context, contextlib.redirect_stdout(io.StringIO()) as out:
        context.setattr(pretraining.training.loop, "matmul_flops_per_s", lambda *_, **__: 1e9)
        assert main([str(recipe), "--out", str(root / "벼리: small"), *QUICK]) == 0
    return recipe, root / "벼리: small", out.getvalue()


def test_the_folder_is_a_whole_transformers_folder(finished: tuple[Path, Path, str]) -> None:
    _, folder, _ = finished
    assert {path.name for path in folder.iterdir()} == PRODUCTS | ACCOUNTS
    assert not [path for ending in ("bin", "pt", "part") for path in folder.rglob(f"*.{ending}")]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("벼리시의회가 예산안을 [MASK] 의결했다.", return_tensors="pt")
    loaders = (AutoModel, AutoModelForMaskedLM, BertForPreTraining)
    models = [kind.from_pretrained(folder, output_loading_info=True) for kind in loaders]
    assert not models[2][1]["missing_keys"]
    assert not models[2][1]["unexpected_keys"]
    with torch.no_grad():
        hidden = models[0][0](**inputs).last_hidden_state
        logits = models[1][0](**inputs).logits
        assert torch.equal(models[2][0](**inputs).prediction_logits, logits)
        assert torch.equal(models[2][0].bert(**inputs).last_hidden_state, hidden)
    assert logits.shape[-1] == len(tokenizer) == models[0][0].config.vocab_size
    assert {value.dtype for value in weights(folder).values()} == {torch.float32}


def test_the_vocabulary_is_the_one_it_was_trained_with(
    finished: tuple[Path, Path, str], small_vocabulary: Path
) -> None:
    _, folder, _ = finished
    assert (folder / "vocab.txt").read_bytes() == (small_vocabulary / "vocab.txt").read_bytes()
    ours, theirs = (AutoTokenizer.from_pretrained(path) for path in (folder, small_vocabulary))
    for document in itertools.islice(read_documents(SAMPLE), 5):
        assert ours(document.text)["input_ids"] == theirs(document.text)["input_ids"]


def test_everybody_may_read_what_a_run_leaves(finished: tuple[Path, Path, str]) -> None:
    modes = {path.name: path.stat().st_mode & 0o444 for path in finished[1].iterdir() if path.is_file()}
    assert modes == dict.fromkeys(modes, 0o444)


def test_the_manifest_says_what_was_trained_and_how_good_it_is(finished: tuple[Path, Path, str]) -> None:
    recipe, folder, out = finished
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["recipe"] == read_recipe(recipe).model_dump()
    assert (manifest["steps"], manifest["skipped"], manifest["processes"]) == (STEPS, 0, 1)
    assert manifest["precision"] == "no"
    assert manifest["num_parameters"] == sum(p.numel() for p in weights(folder).values())
    lines = read_metrics(folder / "metrics.jsonl")
    assert manifest["tokens"] == max(line.get("tokens", 0) for line in lines)
    held_out = {k: v for k, v in lines[-1].items() if k != "step"}
    assert lines[-1]["step"] == STEPS
    assert manifest["held_out"] == held_out
    kinds = ("loss", "mlm_loss", "mlm_accuracy", "mlm_bits_per_character", "nsp_loss", "nsp_accuracy", "perplexity")
    assert held_out.keys() == {f"held_out_{kind}" for kind in kinds}
    assert len(out.splitlines()) == 1
    assert json.loads(out) == {"tokens": manifest["tokens"], **held_out}


def test_the_model_card_is_one_a_hub_reads(finished: tuple[Path, Path, str]) -> None:
    _, folder, _ = finished
    card = ModelCard.load(folder / "README.md")
    assert (card.data.language, card.data.library_name, card.data.pipeline_tag) == ("ko", "transformers", "fill-mask")
    assert card.data.to_dict()["model_name"] == "PressBERT 벼리: small"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert f"{manifest['tokens']:,}" in card.text
    assert f"{manifest['held_out']['held_out_mlm_loss']:.4f}" in card.text
    assert '"peak_lr": 0.005' in card.text


def test_the_loss_curve_is_a_picture(finished: tuple[Path, Path, str]) -> None:
    path = finished[1] / "loss.png"
    with Image.open(path) as image:
        assert image.format == "PNG"
        image.verify()
    with Image.open(path) as image:
        assert min(image.size) > 300
        assert len(image.convert("L").getcolors() or []) > 10


def test_a_finished_run_is_not_done_again(
    finished: tuple[Path, Path, str], run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, folder, out = finished
    before = content(folder)
    monkeypatch.setattr(Trainer, "train", never)
    code, again, err = run(recipe, "--out", folder, *QUICK)
    assert (code, again) == (0, out)
    assert err == f"{folder}: finished already\n"
    assert content(folder) == before


def test_reporting_settings_may_change_for_a_finished_run(
    finished: tuple[Path, Path, str], run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, folder, out = finished
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.setattr(Trainer, "train", never)
    settings = ("--set", "loop.log_every=7", "--set", "loop.keep_checkpoints=1", "--set", "loop.max_skipped=0")
    assert run(recipe, "--out", tmp_path / "copy", *QUICK, *settings)[:2] == (0, out)
    assert weights(tmp_path / "copy").keys() == weights(folder).keys()


def test_the_folder_of_another_recipe_is_not_overwritten(
    finished: tuple[Path, Path, str], run: Command, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for setting, what in [
        ("seed=6", "seed=5 there, 6 here"),
        ("loop.peak_lr=1e-3", "loop.peak_lr=0.005 there, 0.001 here"),
        ("loop.micro_batch_size=2", "loop.micro_batch_size=None there, 2 here"),
        ("model.num_hidden_layers=1", "model.num_hidden_layers=2 there, 1 here"),
        ("objective.mask_rate=0.2", "objective.mask_rate=0.15 there, 0.2 here"),
        ("objective=dynamic_mlm", "objective"),
        ("data.max_length=16", "data.max_length=32 there, 16 here"),
    ]:
        with subtests.test(setting=setting), monkeypatch.context() as context:
            recipe, folder, _ = finished
            before = content(folder)
            context.setattr(Trainer, "train", never)
            assert_refused(run(recipe, "--out", folder, *QUICK, "--set", setting), "--out", str(folder), what)
            assert content(folder) == before


# --- other text -----------------------------------------------------------------------------------------------------


def test_a_run_is_not_continued_on_other_text_or_another_vocabulary(
    write_recipe: WriteRecipe,
    small_vocabulary: Path,
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    for number, (is_finished, changed) in enumerate(itertools.product([True, False], ["text", "vocabulary"])):
        with subtests.test(is_finished=is_finished, changed=changed):
            folder = tmp_path / str(number)
            folder.mkdir()
            news, tokenizer = folder / "news.jsonl", folder / "vocabulary"
            lines = SAMPLE.read_text(encoding="utf-8").splitlines(keepends=True)
            news.write_text("".join(lines[:6]), encoding="utf-8")
            shutil.copytree(small_vocabulary, tokenizer)
            recipe = write_recipe(text=news, tokenizer=tokenizer, steps=3)
            with monkeypatch.context() as context:
                if not is_finished:
                    interrupt(context, Trainer, "_step", 3)
                assert run(recipe, "--out", folder / "out", *QUICK)[0] == (0 if is_finished else 130)
            if changed == "text":
                news.write_text("".join(lines[1:7]), encoding="utf-8")
            else:
                texts = (document.text for document in read_documents(SAMPLE))
                save_tokenizer(train_wordpiece(texts, VOCAB_SIZE + 1), tokenizer)
            before = {name: data for name, data in content(folder / "out").items() if not name.startswith("data/")}
            with monkeypatch.context() as context:
                context.setattr(Trainer, "train", never)
                outcome = run(recipe, "--out", folder / "out", *QUICK)
            assert_refused(outcome, "--out", "another corpus or vocabulary", "another folder")
            after = content(folder / "out")
            assert {name: after[name] for name in before} == before


def test_without_held_out_text_there_are_no_held_out_scores(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path
) -> None:
    news = tmp_path / "news.jsonl"
    lines = SAMPLE.read_text(encoding="utf-8").splitlines(keepends=True)
    news.write_text("".join(lines[:6]), encoding="utf-8")
    code, out, _ = run(write_recipe(text=news, steps=2), "--out", tmp_path / "out", *QUICK)
    assert code == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["held_out"] == {}
    assert json.loads(out) == {"tokens": manifest["tokens"]}
    assert {path.name for path in (tmp_path / "out").iterdir()} == PRODUCTS | ACCOUNTS


# --- settings, caches and mistakes ----------------------------------------------------------------------------------


def test_settings_on_the_command_line_go_before_those_of_the_recipe(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path
) -> None:
    settings = ("loop.steps=2", "model.num_hidden_layers=1", "objective.mask_rate=0.4", "loop.decay=constant")
    arguments = [part for setting in settings for part in ("--set", setting)]
    assert run(write_recipe(), "--out", tmp_path / "out", *QUICK, *arguments)[0] == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["steps"] == 2
    assert manifest["recipe"]["objective"] == {"name": "dynamic_mlm", "mask_rate": 0.4, "whole_word": False}
    assert manifest["recipe"]["loop"]["decay"] == "constant"
    assert not [name for name in weights(tmp_path / "out") if "layer.1." in name]


def test_rows_can_be_prepared_and_shared(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, cache = write_recipe(steps=2), tmp_path / "cache"
    with monkeypatch.context() as context:
        context.setattr(Trainer, "train", never)
        code, out, _ = run(recipe, "--out", tmp_path / "out", "--cache", cache, *QUICK, "--prepare")
    assert code == 0
    assert out.endswith(f" tokens in {cache}\n")
    assert int(out.split(" rows, ")[0].replace(",", "")) > 100
    assert not (tmp_path / "out").exists()
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert before
    for name in ("one", "other"):
        assert run(recipe, "--out", tmp_path / name, "--cache", cache, *QUICK)[0] == 0
        assert not (tmp_path / name / "data").exists()
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before
    assert weights(tmp_path / "one").keys() == weights(tmp_path / "other").keys()
    same = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "other")]
    assert same[0] == same[1]


def test_the_recipe_of_the_sample_needs_nothing_else(run: Command, tmp_path: Path) -> None:
    small = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64}
    settings = [f"model.{key}={value}" for key, value in small.items()]
    settings += ["loop.steps=2", "loop.warmup_steps=1", "loop.precision=fp32", "objective.dupe_factor=1"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    code, out, err = run("sample", "--out", tmp_path / "out", *QUICK, *arguments)
    assert code == 0, err
    assert json.loads(out)["held_out_perplexity"] > 1
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) > VOCAB_SIZE


def test_a_mistake_is_one_line_and_code_2(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for number, (arguments, what) in enumerate(
        [
            (("--set", "data.tokenizer=missing/vocabulary"), ("missing/vocabulary/tokenizer.json", "no such file")),
            (("--set", "data.corpus=missing/corpus"), ("missing/corpus", "no such file or folder")),
            (("--set", "data.corpus="), ("data.corpus is missing",)),
            (("--set", "loop.stepz=3"), ("loop.stepz", "did you mean 'steps'?")),
            (("--set", "loop.steps=0"), ("loop.steps=0",)),
            (("--set", "loop.steps"), ("'loop.steps' is not KEY=VALUE",)),
            (("--set", "model.init=missing/model"), ("missing/model", "no safetensors weights")),
            (("--recipe", "x"), ("unknown option '--recipe'",)),
            (("--workers", "many"), ("--workers",)),
        ]
    ):
        with subtests.test(arguments=arguments), monkeypatch.context() as context:
            folder = tmp_path / str(number)
            folder.mkdir()
            context.setattr(Trainer, "train", never)
            assert_refused(run(write_recipe(), "--out", folder / "out", *QUICK, *arguments), *what)


def test_an_unknown_recipe_and_an_output_that_is_a_file_are_errors(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path
) -> None:
    assert_refused(run("minj", "--out", tmp_path / "out"), "minj", "did you mean 'mini'?")
    assert_refused(run("mini"), "--out")
    (tmp_path / "file").write_text("in the way")
    assert_refused(run(write_recipe(), "--out", tmp_path / "file", *QUICK), str(tmp_path / "file"), "cannot write")


def test_a_mistyped_path_can_be_corrected_in_the_same_folder(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, wrong in enumerate(["text", "tokenizer"]):
        with subtests.test(wrong=wrong):
            folder = tmp_path / str(number)
            folder.mkdir()
            mistyped = {wrong: folder / "missing"}
            assert run(write_recipe(steps=2, **mistyped), "--out", folder / "out", *QUICK)[0] == 2
            code, _, err = run(write_recipe(steps=2), "--out", folder / "out", *QUICK)
            assert code == 0, err


# --- first weights --------------------------------------------------------------------------------------------------


STILL = ("--set", "loop.peak_lr=1e-30", "--set", "loop.weight_decay=0.0", "--set", "loop.steps=1")
"""Such a run keeps its initial weights."""


def test_a_run_starts_from_the_weights_of_another(
    finished: tuple[Path, Path, str], write_recipe: WriteRecipe, run: Command, tmp_path: Path
) -> None:
    arguments = (*QUICK, *STILL, "--set", "loop.warmup_steps=0", "--set", f"model.init={finished[1]}")
    for objective in ("static_mlm_nsp", "dynamic_mlm"):
        assert run(write_recipe(objective), "--out", tmp_path / objective, *arguments)[0] == 0
        given, found = weights(finished[1]), weights(tmp_path / objective)
        assert found.keys() <= given.keys()
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, given[name], rtol=0, atol=1e-12, msg=name)


def test_positions_that_were_not_trained_are_not_exported(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    recipe, before = write_recipe(), ""
    room = ("--set", "model.max_position_embeddings=96", "--set", "loop.warmup_steps=0")
    # Rows of a phase, and what is trained by then: a later phase on shorter rows forgets no position.
    for name, length, trained in (("first", 32, 32), ("second", 48, 48), ("third", 32, 48)):
        with subtests.test(phase=name):
            phase = ("--set", f"data.max_length={length}", "--set", f"model.init={before}")
            assert run(recipe, "--out", tmp_path / name, *QUICK, *STILL, *room, *phase)[0] == 0
            model, tokenizer = (kind.from_pretrained(tmp_path / name) for kind in (AutoModel, AutoTokenizer))
            assert model.config.max_position_embeddings == tokenizer.model_max_length == trained
            with torch.no_grad():
                inputs = tokenizer("예산안을 의결했다 " * 99, truncation=True, return_tensors="pt")
                assert model(**inputs).last_hidden_state.shape[1] == trained
            assert f"| {trained} |" in (tmp_path / name / "README.md").read_text(encoding="utf-8")
            if before:
                given, found = (
                    weights(Path(folder))[ARCHITECTURES["bert"].positions] for folder in (before, tmp_path / name)
                )
                torch.testing.assert_close(found[: len(given)], given, rtol=0, atol=1e-12)
            before = str(tmp_path / name)


def test_later_positions_begin_as_copies_of_those_of_the_initial_model(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    recipe = write_recipe()
    room = ("--set", "model.max_position_embeddings=96", "--set", "loop.warmup_steps=0")
    assert run(recipe, "--out", tmp_path / "first", *QUICK, *STILL, *room, "--set", "data.max_length=32")[0] == 0
    given = weights(tmp_path / "first")[ARCHITECTURES["bert"].positions]
    assert given.std(dim=0).min() > 0
    longer = ("--set", "data.max_length=80", "--set", f"model.init={tmp_path / 'first'}")
    for used, settings in ((32, ()), (24, ("--set", "init.positions=24"))):
        with subtests.test(used=used):
            out = tmp_path / f"{used}"
            assert run(recipe, "--out", out, *QUICK, *STILL, *room, *longer, *settings)[0] == 0
            found = weights(out)[ARCHITECTURES["bert"].positions]
            copies = torch.cat([given[:used]] * 4)[:80]
            torch.testing.assert_close(found, copies, rtol=0, atol=1e-12)


def test_a_bare_encoder_is_loaded_and_its_heads_are_random(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path
) -> None:
    torch.manual_seed(9)
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=32,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "encoder")
    arguments = (*QUICK, *STILL, "--set", "loop.warmup_steps=0", "--set", f"model.init={tmp_path / 'encoder'}")
    assert run(write_recipe("static_mlm_nsp"), "--out", tmp_path / "out", *arguments)[0] == 0
    given, found = weights(tmp_path / "encoder"), weights(tmp_path / "out")
    for name, tensor in given.items():
        torch.testing.assert_close(found[f"bert.{name}"], tensor, rtol=0, atol=1e-12, msg=name)
    assert found["cls.predictions.transform.dense.weight"].std() > 0.01


@pytest.mark.slow
def test_first_weights_that_do_not_fit_are_refused(
    finished: tuple[Path, Path, str],
    write_recipe: WriteRecipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: Fails,
    subtests: pytest.Subtests,
) -> None:
    for number, kind in enumerate(["other vocabulary", "padded vocabulary", "other size", "no encoder", "damaged"]):
        with subtests.test(kind=kind), monkeypatch.context() as context:
            case_folder = tmp_path / str(number)
            case_folder.mkdir()
            context.setattr(Trainer, "train", never)
            stored, folder = weights(finished[1]), case_folder / "init"
            folder.mkdir()
            words = "bert.embeddings.word_embeddings.weight"
            if kind == "other vocabulary":
                stored[words] = stored[words][:-1].clone()
            elif kind == "padded vocabulary":
                stored[words] = torch.nn.functional.pad(stored[words], (0, 0, 0, 640 - VOCAB_SIZE))
            elif kind == "other size":
                stored = {name: tensor[..., :16].clone() for name, tensor in stored.items()}
            elif kind == "no encoder":
                stored = {name: tensor for name, tensor in stored.items() if "encoder" not in name}
            save_file(stored, folder / "model.safetensors")
            if kind == "damaged":
                path = folder / "model.safetensors"
                path.write_bytes(path.read_bytes()[:5000])
            recipe = read_recipe(write_recipe("static_mlm_nsp"), [f"model.init={folder}"])
            with fails(CheckpointError, folder):
                Run(recipe, case_folder / "out", cpu=True).train()


# --- diverging runs ------------------------------------------------------------------------------------


def test_a_far_too_high_learning_rate_ends_the_run_with_one_line(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path
) -> None:
    settings = ("loop.peak_lr=1e32", "loop.max_skipped=3", "loop.steps=60", "loop.warmup_steps=0", "loop.log_every=100")
    arguments = [part for setting in settings for part in ("--set", setting)]
    outcome = run(write_recipe(), "--out", tmp_path / "out", *QUICK, *arguments)
    assert_refused(outcome, "the gradient was not finite in 4 steps in a row", "loop.peak_lr")
    assert list((tmp_path / "out" / "checkpoints").iterdir())
    assert not (tmp_path / "out" / "manifest.json").exists()


# --- the end of a run -----------------------------------------------------------------------------------------------


ENDS = {
    "before the weights": (Run, "_save", 1),
    "before the tokenizer": (pretraining.training.run, "save_tokenizer", 1),
    "before the curve": (pretraining.training.run, "draw_curves", 1),
    "before the card": (pretraining.training.run, "write_text", 1),
    "before the manifest": (pretraining.training.run, "write_signed", 1),
    "before the checkpoints are deleted": (shutil, "rmtree", -1),
}


@pytest.mark.slow
def test_a_run_killed_at_its_end_is_finished_by_the_next(
    write_recipe: WriteRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for number, moment in enumerate(ENDS):
        with subtests.test(moment=moment):
            folder = tmp_path / str(number)
            folder.mkdir()
            recipe = read_recipe(write_recipe(steps=2))
            whole = Run(recipe, folder / "whole", cpu=True).train()
            with monkeypatch.context() as context:
                if moment == "before the checkpoints are deleted":
                    kill_before_deletion(context, folder / "parts" / "checkpoints")
                else:
                    interrupt(context, *ENDS[moment])
                with pytest.raises(KeyboardInterrupt):
                    Run(recipe, folder / "parts", cpu=True).train()
            parts = Run(recipe, folder / "parts", cpu=True).train()
            clock = {"elapsed_s"}
            assert {k: v for k, v in parts.items() if k not in clock} == {
                k: v for k, v in whole.items() if k not in clock
            }
            assert {path.name for path in (folder / "parts").iterdir()} == PRODUCTS | ACCOUNTS
            for name in ("model.safetensors", "config.json", "tokenizer.json"):
                assert (folder / "parts" / name).read_bytes() == (folder / "whole" / name).read_bytes()


def kill_before_deletion(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    original = shutil.rmtree

    def rmtree(path: Any, *arguments: Any, **options: Any) -> None:
        if Path(path) == folder:
            raise KeyboardInterrupt
        original(path, *arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", rmtree)


def test_temporary_files_of_a_kill_are_deleted(write_recipe: WriteRecipe, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / ".model.k1ll3d").mkdir(parents=True)
    (out / ".model.k1ll3d" / "model.safetensors").write_bytes(b"half")
    (out / ".metrics.jsonl.k1ll3d.part").write_bytes(b"half")
    Run(read_recipe(write_recipe(steps=1)), out, cpu=True).train()
    assert {path.name for path in out.iterdir()} == PRODUCTS | ACCOUNTS


def test_a_full_disk_at_the_end_is_one_error_line(
    write_recipe: WriteRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    original = Run._save

    def save_on_full_disk(*arguments: Any) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
        try:
            original(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    recipe = read_recipe(write_recipe(steps=1))
    with monkeypatch.context() as context:
        context.setattr(Run, "_save", save_on_full_disk)
        with fails(ResultError, tmp_path / "out", "cannot write"):
            Run(recipe, tmp_path / "out", cpu=True).train()
    assert not {path.name for path in (tmp_path / "out").iterdir()} & (PRODUCTS - {"metrics.jsonl"})
    assert Run(recipe, tmp_path / "out", cpu=True).train()["steps"] == 1


# --- kills ----------------------------------------------------------------------------------------------------------


def last_step(folder: Path) -> int:
    return max((line["step"] for line in read_metrics(folder / "metrics.jsonl")), default=0)


def wait_for_step(process: subprocess.Popen[str], folder: Path, step: int) -> None:
    """Wait until a run has written a line about STEP; for step 0, until it has made its folder."""
    give_up = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < give_up:
        if folder.is_dir() and last_step(folder) >= step:
            return
        time.sleep(0.002)


@pytest.mark.slow
def test_a_run_killed_many_times_is_bit_identical_to_an_uninterrupted_one(
    finished: tuple[Path, Path, str], tmp_path: Path
) -> None:
    recipe, whole, out = finished
    parts = tmp_path / "parts"
    rng = np.random.default_rng(20_240_817)
    for number in range(KILLS):
        # The first one early, while rows are made or just after; later ones meet steps and the checkpoint after each.
        reached, ahead = last_step(parts), int(rng.integers(1, 9)) if number else 0
        process = start(recipe, "--out", parts, *QUICK)
        wait_for_step(process, parts, reached + ahead if ahead else 0)
        time.sleep(rng.random() * (0.02 if ahead else 0.4))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (parts / "manifest.json").exists()
    process = start(recipe, "--out", parts, *QUICK)
    again, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert again == out
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert told(parts) == told(whole)
    assert not (parts / "checkpoints").exists()


def test_reporting_settings_may_change_on_resume(
    write_recipe: WriteRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recipe(steps=6)
    Run(read_recipe(path), tmp_path / "whole", cpu=True).train()
    with monkeypatch.context() as context:
        interrupt(context, Trainer, "_step", 4)
        with pytest.raises(KeyboardInterrupt):
            Run(read_recipe(path), tmp_path / "parts", cpu=True).train()
    changes = ["loop.log_every=2", "loop.evaluate_every=6", "loop.evaluate_rows=8", "loop.checkpoint_every=4"]
    Run(read_recipe(path, changes), tmp_path / "parts", cpu=True).train()
    assert weights_are_equal(tmp_path / "parts", tmp_path / "whole")
    steps = [line["step"] for line in read_metrics(tmp_path / "parts" / "metrics.jsonl") if "lr" in line]
    assert steps == [1, 2, 3, 4, 6]


def weights_are_equal(ours: Path, theirs: Path) -> bool:
    return (ours / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()


def test_a_begun_run_of_another_recipe_is_not_overwritten(
    write_recipe: WriteRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    path = write_recipe(steps=4)
    with monkeypatch.context() as context:
        interrupt(context, Trainer, "_step", 3)
        with pytest.raises(KeyboardInterrupt):
            Run(read_recipe(path), tmp_path / "out", cpu=True).train()
    before = content(tmp_path / "out")
    monkeypatch.setattr(Trainer, "train", never)
    with fails(UsageError, "--out", str(tmp_path / "out"), "loop.steps=4 there, 5 here"):
        Run(read_recipe(path, ["loop.steps=5"]), tmp_path / "out", cpu=True).train()
    assert content(tmp_path / "out") == before


# --- several processes ----------------------------------------------------------------------------------------------


LAUNCHER = """
import os

import pretraining.training.loop
import corpora.foundation.machine
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from corpora.foundation.command import run_command
from pretraining.run import main

corpora.foundation.machine.MATMUL_SIDE = 64
if "ACCELERATE_USE_FSDP" in os.environ:
    # accelerate shards on accelerators only; to it, these are two of them that compute like CPUs.
    PartialState(cpu=True)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU

train, step = pretraining.training.loop.Trainer.train, pretraining.training.loop.Trainer._step


def told_train(trainer, *arguments):
    kind = type(next(iter(trainer._model.parameters()))).__name__
    print(f"{trainer.accelerator.num_processes} processes, {kind}", flush=True)
    train(trainer, *arguments)


def stopped_step(trainer, batches):
    if trainer.progress.step == int(os.environ.get("STOP_AT", -1)):
        raise SystemExit(0)
    step(trainer, batches)


pretraining.training.loop.Trainer.train, pretraining.training.loop.Trainer._step = told_train, stopped_step
run_command(main)
"""
SHARDED = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "BertLayer",
}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
DEALT = [
    "model.hidden_dropout_prob=0.0",
    "model.attention_probs_dropout_prob=0.0",
    # AdamW has its part in it too.
    "loop.optimizer=muon",
    "loop.checkpoint_every=3",
    "loop.log_every=2",
]


@pytest.fixture(scope="module")
def begun(corpus: Path, small_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return a recipe of 8 steps and two folders of one process: a run that stopped after step 4, and a whole one."""
    root = tmp_path_factory.mktemp("begun")
    path = root / "recipe.toml"
    path.write_text(recipe_text(corpus, small_vocabulary, "static_mlm_nsp", 8), encoding="utf-8")
    recipe = read_recipe(path, DEALT)
    with pytest.MonkeyPatch.context() as context:
        context.setattr(pretraining.training.loop, "matmul_flops_per_s", lambda *_, **__: 1e9)
        Run(recipe, root / "whole", cpu=True).train()
        interrupt(context, Trainer, "_step", 5)
        with pytest.raises(KeyboardInterrupt):
            Run(recipe, root / "stopped", cpu=True).train()
    return path, root / "stopped", root / "whole"


def deal(folder: Path, recipe: Path, module: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Run a recipe in two processes, and return what they print."""
    arguments = [part for setting in DEALT for part in ("--set", setting)]
    with pytest.MonkeyPatch.context() as context:
        for name, value in environment.items():
            context.setenv(name, value)
        process = start(recipe, "--out", folder, *QUICK, *arguments, module=(*TORCHRUN, *module))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def assert_lines_are_near(ours: Path, theirs: Path, is_meant: Callable[[dict[str, Any]], bool]) -> None:
    """Compare some lines of metrics to 1e-5."""
    found, expected = ([line for line in told(folder) if is_meant(line)] for folder in (ours, theirs))
    assert expected
    for own, their in zip(found, expected, strict=True):
        assert own == pytest.approx(their, rel=1e-5, abs=1e-5)


def is_of_one_process(line: dict[str, Any]) -> bool:
    """Whether a line covers steps of one process: the line of step 4 includes step 3, of the first process."""
    return "lr" in line and line["step"] != 4


def assert_weights_are_near(ours: Path, theirs: Path) -> None:
    stored, truth = weights(ours), weights(theirs)
    assert stored.keys() == truth.keys()
    for name, tensor in stored.items():
        torch.testing.assert_close(
            tensor, truth[name], rtol=0, atol=1e-4, msg=lambda told, name=name: f"{name}: {told}"
        )


@pytest.fixture(scope="module")
def dealt(begun: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that one process began and two have finished, by the command of the documentation."""
    recipe, stopped, _ = begun
    folder = tmp_path_factory.mktemp("dealt") / "out"
    shutil.copytree(stopped, folder)
    out = deal(folder, recipe, ("-m", "pretraining.run"), {})
    assert len(out.splitlines()) == 1
    return folder


@pytest.mark.slow
def test_two_processes_train_like_one(begun: tuple[Path, Path, Path], dealt: Path) -> None:
    assert_lines_are_near(dealt, begun[2], is_of_one_process)
    assert_weights_are_near(dealt, begun[2])
    manifest = json.loads((dealt / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["processes"] == 2


@pytest.mark.slow
def test_a_line_of_metrics_is_right_although_another_number_of_processes_began_it(
    begun: tuple[Path, Path, Path], dealt: Path
) -> None:
    assert_lines_are_near(dealt, begun[2], lambda line: line["step"] == 4)


@pytest.mark.slow
def test_held_out_scores_do_not_depend_on_the_number_of_processes(begun: tuple[Path, Path, Path], dealt: Path) -> None:
    assert_lines_are_near(dealt, begun[2], lambda line: "held_out_loss" in line)


@pytest.mark.slow
def test_a_sharded_model_trains_like_an_unsharded_one(begun: tuple[Path, Path, Path], tmp_path: Path) -> None:
    recipe, stopped, whole = begun
    shutil.copytree(stopped, tmp_path / "out")
    script = tmp_path / "launch.py"
    script.write_text(LAUNCHER, encoding="utf-8")
    # Steps 4 to 7, and a checkpoint after step 6.
    out = deal(tmp_path / "out", recipe, (str(script),), SHARDED | {"STOP_AT": "7"})
    assert out.count("2 processes, DTensor") == 2
    # Each process has written its part, and one process continues from both.
    checkpoint = tmp_path / "out" / "checkpoints" / "checkpoint-00000006"
    assert len(list(checkpoint.glob("shard-*.safetensors"))) == 2
    assert not (checkpoint / "model.safetensors").exists()
    Run(read_recipe(recipe, DEALT), tmp_path / "out", cpu=True).train()
    assert_lines_are_near(tmp_path / "out", whole, is_of_one_process)
    assert_weights_are_near(tmp_path / "out", whole)


def test_the_data_is_ready_before_the_processes_form_a_group(
    write_recipe: WriteRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a group nobody waits for longer than its time limit, and tokens of a large corpus take hours."""
    run, rows = Run(read_recipe(write_recipe()), tmp_path / "out", cpu=True), []

    class GroupError(Exception):
        pass

    def form(*_: object, **__: object) -> None:
        rows.extend((tmp_path / "out" / "data").glob("rows-*/*.arrow"))
        raise GroupError

    monkeypatch.setattr(pretraining.training.accelerator, "make_accelerator", form)
    with pytest.raises(GroupError):
        run.train()
    assert rows
    # A second process of the same run waits for the first one's files, and makes none.
    monkeypatch.setattr(pretraining.training.dataset, "run_jobs", lambda _, jobs, **__: never() if jobs else None)
    again = Run(read_recipe(write_recipe()), tmp_path / "out", cpu=True)
    with concurrent.futures.ThreadPoolExecutor(1) as pool, locked(again.cache / LOCK_FILE):
        waiting = pool.submit(lambda: again.data.digest)
        with pytest.raises(concurrent.futures.TimeoutError):
            waiting.result(timeout=0.3)
    assert waiting.result() == run.data.digest


@pytest.mark.skipif(torch.cuda.is_available(), reason="processes take the GPUs there are")
def test_processes_without_gpus_form_a_group_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all would write to the same folder."""
    given = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    for name, value in (given | {"MASTER_PORT": "0"}).items():
        monkeypatch.setenv(name, value)
    try:
        accelerator = make_accelerator(LoopConfig(precision="fp32"))
        assert accelerator.distributed_type == DistributedType.MULTI_CPU
        assert accelerator.device.type == "cpu"
    finally:
        with contextlib.suppress(Exception):
            torch.distributed.destroy_process_group()


# --- time and memory ------------------------------------------------------------------------------------------------


def test_a_dry_run_times_a_micro_batch_and_writes_nothing(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    monkeypatch.setattr(Trainer, "_step", lambda *_: steps.append(1))
    for setting, rows in (("loop.micro_batch_size=2", 2), ("loop.micro_batch_size=auto", 8), ("seed=5", 8)):
        code, out, err = run(write_recipe(), "--out", tmp_path / "out", *QUICK, "--dry-run", "--set", setting)
        assert code == 0, err
        assert f"| rows at a time | {rows} |" in out
        assert "| 5 steps |" in out
        assert not (tmp_path / "out").exists()
    assert not steps  # a whole step of a large batch takes minutes


def test_a_lack_of_memory_is_one_line_with_the_rows_that_fit(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    recipe, fits = write_recipe(), "--set loop.micro_batch_size=4 fits"

    def lacking(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    for name, found, options, what in (
        ("dry run", 4, ("--dry-run",), ("8 rows at a time", fits)),
        ("none in a dry run", 0, ("--dry-run",), ("not even one row fits",)),
        ("training", 4, (), ("8 rows at a time", fits)),
        ("none to be chosen", 0, ("--set", "loop.micro_batch_size=auto"), ("not even one row fits",)),
    ):
        with subtests.test(case=name), monkeypatch.context() as context:
            context.setattr(Trainer, "_step", lacking)
            context.setattr(TrialTrainer, "largest_fitting", lambda *_, found=found: found)
            assert_refused(run(recipe, "--out", tmp_path / name, *QUICK, *options), "loop.micro_batch_size", *what)


def test_rows_chosen_to_fit_give_the_same_model_and_are_kept_on_resume(
    write_recipe: WriteRecipe, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, auto = write_recipe(), ("--set", "loop.micro_batch_size=auto")
    assert run(recipe, "--out", tmp_path / "given", *QUICK, "--set", "loop.micro_batch_size=2")[0] == 0
    with monkeypatch.context() as context:
        context.setattr(TrialTrainer, "largest_fitting", lambda *_: 2)
        interrupt(context, Trainer, "_step", 4)
        with pytest.raises(KeyboardInterrupt):
            Run(read_recipe(recipe, ["loop.micro_batch_size=auto"]), tmp_path / "auto", cpu=True).train()
    monkeypatch.setattr(TrialTrainer, "largest_fitting", never)
    assert run(recipe, "--out", tmp_path / "auto", *QUICK, *auto)[0] == 0
    given, chosen = weights(tmp_path / "given"), weights(tmp_path / "auto")
    assert all(torch.equal(given[name], chosen[name]) for name in given)
