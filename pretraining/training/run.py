"""A pretraining run: one recipe, its prepared data and its folder, from the corpus to the finished model."""

import contextlib
import functools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.config import validate
from corpora.foundation.errors import CheckpointError, RecipeError, UsageError
from corpora.foundation.files import alone, fingerprint, locked, parse_signed, write_signed, write_text
from corpora.foundation.machine import no_file_bars, versions
from pretraining.architectures import ARCHITECTURES
from pretraining.data.positions import row_length
from pretraining.folders import check_folder, model_files, open_config
from pretraining.recipe import BY_PIECES, SKIP_GRAM, Recipe
from pretraining.training.dataset import Prepared, prepare
from pretraining.training.estimate import OPTIMIZER_STATES, Estimate, format_size, sample_corpus
from pretraining.training.report import draw_curves, render_pretraining_card
from pretraining.vocabulary.tokenizer import load_wordpiece, open_wordpiece, save_tokenizer

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor
    from transformers import PreTrainedModel

    from pretraining.model import PretrainingModel
    from pretraining.probes import Probe
    from pretraining.training.trial import TrialTrainer

RECIPE_FILE, DATA_FILE, MANIFEST_FILE = "recipe.json", "data.json", "manifest.json"
LOCK_FILE = "prepare.lock"
MICRO_BATCH = "micro_batch_size"
"""Entry of `DATA_FILE` of a run that chose its micro-batch itself."""
LIBRARIES = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "numpy")
REPORTING = {
    "loop": {"log_every", "evaluate_every", "evaluate_rows", "checkpoint_every", "keep_checkpoints"}
    | {"sharded_checkpoints", "export_steps", "max_skipped", "probes"},
}
"""Settings that do not affect the final weights; a resumed run may change them."""


class Run:
    """One recipe in one folder; every step resumes what an earlier process left."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        *,
        cache: Path | None = None,
        num_workers: int = 1,
        cpu: bool = False,
        reporters: Sequence[str] = (),
    ) -> None:
        """Describe the run; nothing is read or written yet.

        Args:
            recipe: from `read_recipe`.
            out: folder of the model.
            cache: folder of tokens and rows, which runs may share; default `out/data`.
            num_workers: processes that prepare the data.
            cpu: stay on the CPU even if there is a GPU.
            reporters: what shows the metrics, beside `metrics.jsonl`: `tensorboard`, `wandb`.
        """
        self.recipe, self.out, self.cache = recipe, out, cache or out / "data"
        self.num_workers, self.cpu, self.reporters = num_workers, cpu, tuple(reporters)
        self._init_cost: dict[str, Any] = {}

    @functools.cached_property
    def data(self) -> Prepared:
        """The prepared data; made on first access, by one process at a time: the others find its files.

        Raises:
            SuiteError: corpus or tokenizer are unusable.
        """
        with locked(self.cache / LOCK_FILE, "tokens and rows"):
            return prepare(self.recipe, self.cache, num_workers=self.num_workers)

    @property
    def num_positions(self) -> int:
        """Positions that the finished model was trained on: those of its rows, and of the model it started from."""
        own, init = self.recipe.data.max_length, Path(self.recipe.model.init)
        if not self.recipe.model.init or not (init / "config.json").is_file():
            return own
        config = open_config(init)
        return max(own, row_length(init) or int(getattr(config, "max_position_embeddings", own)))

    def build_model(self) -> "PretrainingModel":
        """Return the model with its initial weights: random by the recipe's seed, or those of `model.init`.

        Raises:
            CheckpointError: `model.init` does not fit.
        """
        import torch

        objective = self.data.train.objective
        specials = objective.layout.specials
        torch.manual_seed(self.recipe.seed)
        model = objective.build_model(self.recipe.model.network_config(specials.vocab_size, specials.pad))
        init, embeddings = self.recipe.model.init, self.recipe.init.embeddings
        if init:
            convert = self._vocabulary_map(init) if embeddings == BY_PIECES else None
            _load_initial_weights(model, Path(init), convert, self.recipe.init.positions)
        if embeddings and embeddings != BY_PIECES:
            self._set_embeddings(model, embeddings)
        return model

    def _set_embeddings(self, model: "PretrainingModel", source: str) -> None:
        """Set the word embeddings to skip-gram vectors, or to those of a model of another vocabulary."""
        from pretraining.initial_embeddings import embeddings_of, set_embeddings
        from pretraining.skip_gram import cached_skip_gram, scaled_like

        if source == SKIP_GRAM:
            weight = model.network.get_input_embeddings().weight
            shape = {"vocab_size": model.vocab_size, "width": weight.shape[1], "seed": self.recipe.seed}
            shards, digest = self.data.train.corpus.shards, self.data.digest
            found = cached_skip_gram(self.cache, shards, digest, **shape)
            vectors = scaled_like(found.vectors, weight)
            self._init_cost = {"init_tokens": found.tokens, "init_elapsed_s": round(found.elapsed_s, 1)}
        else:
            vectors = self._vocabulary_map(source)(embeddings_of(Path(source)))
        set_embeddings(model, vectors, source)

    def _vocabulary_map(self, folder: str) -> "Callable[[Tensor], Tensor]":
        """Return the function from values of another model's vocabulary to those of the run's, and print its kinds."""
        import torch

        from pretraining.initial_embeddings import Vocabulary, VocabularyMap

        found = VocabularyMap.between(Vocabulary.read(Path(folder)), Vocabulary.read(self.data.tokenizer))
        sys.stderr.write(f"init.embeddings: {found.summary()}\n")
        generator = torch.Generator().manual_seed(self.recipe.seed)
        return functools.partial(found.apply, generator=generator)

    def make_trainer(self, accelerator: "Accelerator") -> "TrialTrainer":
        """Return the trainer of the model with its initial weights."""
        from pretraining.training.trial import TrialTrainer

        data = self.data
        trainer = TrialTrainer(self.build_model(), data.train, data.held_out, self.recipe.loop, accelerator, self.out)
        if self.recipe.loop.carry_state:
            trainer.carry_state(Path(self.recipe.model.init))
        return trainer

    def estimate(self) -> Estimate:
        """Time one micro-batch on a sample of the corpus, after a warm-up; nothing is written to the folder.

        Raises:
            RecipeError: a micro-batch does not fit in memory; the message says which one does.
            SuiteError: anything else that would stop the run.
        """
        from pretraining.training.accelerator import make_accelerator

        with tempfile.TemporaryDirectory(prefix="pressbert-") as scratch:
            folder, share, recipe = Path(scratch), 1.0, self.recipe
            if Path(recipe.data.corpus).is_dir():
                share = sample_corpus(Path(recipe.data.corpus), folder / "sample.jsonl")
                data = recipe.data.model_copy(update={"corpus": str(folder / "sample.jsonl")})
                recipe = recipe.model_copy(update={"data": data})
            sample = Run(recipe, folder, cache=folder, cpu=self.cpu)
            started = time.perf_counter()
            prepared = sample.data
            preparation_s = (time.perf_counter() - started) / self.num_workers
            _require_memory(self.recipe, prepared)
            trainer = sample.make_trainer(make_accelerator(recipe.loop, cpu=self.cpu))
            largest = trainer.largest_fitting(trainer.micro_batch_size)
            if largest < trainer.micro_batch_size and not (largest and recipe.loop.micro_batch_size == "auto"):
                raise trainer.does_not_fit(largest)
            trainer.micro_batch_size = largest
            return Estimate.from_sample(trainer, prepared, recipe.loop, share=share, preparation_s=preparation_s)

    def train(self) -> dict[str, Any]:
        """Train to the last step, resuming from the newest checkpoint, and save the model.

        Returns:
            The manifest of the finished run; empty on all processes but the main one.

        Raises:
            UsageError: the folder holds a run of another recipe or other data, or another process trains in it.
            SuiteError: data, tokenizer or checkpoints are unusable, or training diverged.
        """
        from pretraining.training.metrics import check_reporters

        check_reporters(self.reporters)
        # Of processes that train together, one holds the lock.
        with alone(self.out) if os.environ.get("RANK", "0") == "0" else contextlib.nullcontext():
            return self._train()

    def _train(self) -> dict[str, Any]:
        from pretraining.training.accelerator import make_accelerator
        from pretraining.training.metrics import open_reporter

        self._check_recipe()
        self._check_records()
        # Before the processes form a group, in which nobody waits for hours.
        digest = self.data.digest
        accelerator = make_accelerator(self.recipe.loop, cpu=self.cpu)
        if accelerator.is_main_process:
            self._lengthen()
        accelerator.wait_for_everyone()
        manifest = self._read(MANIFEST_FILE)
        if manifest:
            if manifest.get("data_sha256") != digest:
                raise UsageError(
                    "--out", f"{self.out} was trained on another corpus or vocabulary", "give another folder"
                )
            return self._finished(manifest) if accelerator.is_main_process else {}
        begun = self._read(DATA_FILE)
        if begun and begun.get("sha256") != digest:
            raise UsageError("--out", f"{self.out} was begun on another corpus or vocabulary", "give another folder")
        if accelerator.is_main_process:
            self._begin()
        trainer = self.make_trainer(accelerator)
        if self.recipe.loop.micro_batch_size == "auto":
            self._choose_micro_batch_size(trainer, begun)
        trainer.probes = self._probes(trainer)
        if accelerator.is_main_process:
            trainer.reports = [open_reporter(name, self.out) for name in self.reporters]
        _run_trainer(trainer, functools.partial(self._export, trainer))
        state = trainer.final_weights()
        return self._finish(trainer, state) if accelerator.is_main_process else {}

    def _probes(self, trainer: "TrialTrainer") -> "list[Probe]":
        """Return the probes of the recipe.

        Raises:
            RecipeError: the model is sharded.
            DataError: a file is unusable.
        """
        from pretraining.probes import Probe

        configs = self.recipe.loop.probes
        if configs and trainer.accelerator.distributed_type == "FSDP":
            raise RecipeError("loop.probes", "the model is sharded", "leave the probes out, or train without FSDP")
        tokenizer = open_wordpiece(self.data.tokenizer / "tokenizer.json")
        return [Probe.read(config, tokenizer, self.recipe.data.max_length) for config in configs]

    def _read(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file of the folder; empty if there is none."""
        path = self.out / name
        if not path.is_file():
            return {}
        try:
            return parse_signed(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self._damaged(name, str(error).partition("\n")[0]) from error

    def _damaged(self, name: str, reason: str) -> CheckpointError:
        fix = "restore it, or delete the folder to start from the beginning"
        return CheckpointError(self.out / name, f"damaged ({reason})", fix)

    def _check_records(self) -> None:
        """Look at what an earlier process has written before data are prepared, which may take hours."""
        manifest, begun = self._read(MANIFEST_FILE), self._read(DATA_FILE)
        if manifest and not (isinstance(manifest.get("held_out"), dict) and isinstance(manifest.get("tokens"), int)):
            raise self._damaged(MANIFEST_FILE, "no tokens and held-out scores in it")
        if begun and not (isinstance(begun.get("sha256"), str) and isinstance(begun.get(MICRO_BATCH, 1), int)):
            raise self._damaged(DATA_FILE, "no digest of the data in it")

    def _their_recipe(self) -> dict[str, Any]:
        """Return the recipe of the run in the folder; settings that are newer than the folder have their defaults."""
        theirs = self._read(RECIPE_FILE)
        if not theirs:
            return {}
        recipe: dict[str, Any] = json.loads(json.dumps(validate(Recipe, theirs, self.out / RECIPE_FILE).model_dump()))
        return recipe

    def _check_recipe(self) -> None:
        theirs, own = self._their_recipe(), json.loads(json.dumps(self.recipe.model_dump()))
        if theirs and own["loop"]["extendable"] and theirs["loop"]["extendable"]:
            theirs["loop"]["steps"] = own["loop"]["steps"]
        difference = theirs and _first_difference(_without_reporting(theirs), _without_reporting(own))
        if difference:
            raise UsageError("--out", f"{self.out} holds a run of another recipe ({difference})", "give another folder")

    def _lengthen(self) -> None:
        """Turn a run of other `loop.steps` back into its last step that is the same for both.

        The recipe on disk is rewritten last, so that a kill in between is made good by the same command.

        Raises:
            UsageError: the folder has no such step.
        """
        theirs, loop = self._their_recipe(), self.recipe.loop
        if not theirs or theirs["loop"]["steps"] == loop.steps:
            return
        from pretraining.training.loop import CHECKPOINTS, STABLE
        from pretraining.training.state.folder import checkpoint_folder, steps_of

        shared = min(type(loop)(**theirs["loop"]).stable_steps, loop.stable_steps)
        kept = [step for step in steps_of(self.out / STABLE) if step <= shared]
        found = [step for step in steps_of(self.out / CHECKPOINTS) if step <= shared]
        if not kept and not found:
            what = f"loop.steps={loop.steps}, but {self.out} has no checkpoint up to step {shared}"
            raise UsageError("--set", what, f"give {theirs['loop']['steps']} as before, or another folder")
        if kept:
            shutil.copytree(self.out / STABLE, self.out / CHECKPOINTS, dirs_exist_ok=True)
        for step in steps_of(self.out / CHECKPOINTS):
            if step > shared:
                shutil.rmtree(checkpoint_folder(self.out / CHECKPOINTS, step))
        (self.out / MANIFEST_FILE).unlink(missing_ok=True)
        write_signed(self.out / RECIPE_FILE, self.recipe.model_dump())

    def _begin(self) -> None:
        """Write recipe and digest of the data, and delete temporary files of a killed process."""
        for leftover in [*self.out.glob(".model.*"), *self.out.glob("*/.model.*"), *self.out.glob(".*.part")]:
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        write_signed(self.out / RECIPE_FILE, self.recipe.model_dump())
        chosen = {key: value for key, value in self._read(DATA_FILE).items() if key == MICRO_BATCH}
        write_signed(self.out / DATA_FILE, {"sha256": self.data.digest} | chosen)

    def _choose_micro_batch_size(self, trainer: "TrialTrainer", begun: Mapping[str, Any]) -> None:
        """Compute as many rows at a time as fit; a resumed run computes as many as before, or dropout would differ."""
        number = int(begun.get(MICRO_BATCH, 0)) or trainer.largest_fitting(trainer.micro_batch_size)
        if not number:
            raise trainer.does_not_fit(0)
        trainer.micro_batch_size = number
        if trainer.accelerator.is_main_process:
            write_signed(self.out / DATA_FILE, {"sha256": self.data.digest, MICRO_BATCH: number})

    def _export(self, trainer: "TrialTrainer", step: int) -> None:
        """Save the model of an intermediate step."""
        state = trainer.final_weights()
        if trainer.accelerator.is_main_process:
            folder = step_folder(self.out, step)
            folder.mkdir(exist_ok=True)
            exported = trainer.model.export(state, self.num_positions)
            self._save(exported, {}, folder)
            self._save_variants(trainer.model.variants(exported, state), folder)
            facts = {"steps": step, "tokens": trainer.progress.tokens} | self._init_cost
            write_signed(folder / MANIFEST_FILE, facts | {"elapsed_s": round(trainer.progress.elapsed_s, 1)})
        trainer.accelerator.wait_for_everyone()

    def _finish(self, trainer: "TrialTrainer", state: "Mapping[str, Tensor]") -> dict[str, Any]:
        """Save the model with card, loss curve and manifest; then delete the checkpoints."""
        from pretraining.training.metrics import METRICS, read_metrics

        exported = trainer.model.export(state, self.num_positions)
        lines = read_metrics(self.out / METRICS)
        manifest = self._manifest(trainer, exported.num_parameters(), lines)
        self._save(exported, trainer.model.objective_parts(state), self.out)
        self._save_variants(trainer.model.variants(exported, state), self.out)
        title = f"PressBERT {self.out.resolve().name}"
        objective = self.data.train.objective
        draw_curves(self.out / "loss.png", lines, objective.terms, f"{title} · {objective.name}")
        write_text(self.out / "README.md", render_pretraining_card(self.recipe, manifest, title, objective))
        write_signed(self.out / MANIFEST_FILE, manifest)
        self._delete_checkpoints()
        return manifest

    def _finished(self, manifest: dict[str, Any]) -> dict[str, Any]:
        check_folder(self.out)
        self._delete_checkpoints()  # a kill may have come just before
        sys.stderr.write(f"{self.out}: finished already\n")
        return manifest

    def _delete_checkpoints(self) -> None:
        from pretraining.training.loop import CHECKPOINTS

        shutil.rmtree(self.out / CHECKPOINTS, ignore_errors=True)

    def _manifest(self, trainer: "TrialTrainer", num_parameters: int, lines: list[dict[str, Any]]) -> dict[str, Any]:
        from pretraining.training.accelerator import device_name

        progress, recipe = trainer.progress, self.recipe.model_dump()
        return {
            "schema": 1,
            "recipe": recipe,
            "recipe_sha256": fingerprint(recipe),
            "data_sha256": self.data.digest,
            "num_documents": self.data.num_documents,
            "num_parameters": num_parameters,
            "num_positions": self.num_positions,
            "steps": progress.step,
            "skipped": progress.skipped,
            "tokens": progress.tokens,
            "elapsed_s": round(progress.elapsed_s, 1),
            **self._init_cost,
            "processes": trainer.accelerator.num_processes,
            "precision": trainer.accelerator.mixed_precision,
            "device": device_name(trainer.accelerator),
            "held_out": {k: v for line in lines for k, v in line.items() if k.startswith("held_out_")},
            "versions": versions(*LIBRARIES),
        }

    def _save(self, model: Any, parts: "Mapping[str, Tensor]", folder: Path) -> None:
        """Save model, parts of the objective and tokenizer to FOLDER; files are written elsewhere and renamed."""
        from safetensors.torch import save_file

        from pretraining.model import OBJECTIVE_PARTS_FILE

        with model_files(folder) as scratch, no_file_bars():
            model.save_pretrained(scratch)
            if parts:
                contiguous = {name: part.contiguous() for name, part in parts.items()}
                save_file(contiguous, scratch / OBJECTIVE_PARTS_FILE, metadata={"format": "pt"})
            tokenizer = load_wordpiece(self.data.tokenizer)
            tokenizer.model_max_length = self.num_positions
            self.data.train.objective.adapt_tokenizer(tokenizer)
            save_tokenizer(tokenizer, scratch)

    def _save_variants(self, variants: "Mapping[str, PreTrainedModel]", folder: Path) -> None:
        """Save other forms of the network to folders in FOLDER."""
        for name, variant in variants.items():
            (folder / name).mkdir(exist_ok=True)
            self._save(variant, {}, folder / name)


def _run_trainer(trainer: "TrialTrainer", export: Callable[[int], None]) -> None:
    """Train to the last step.

    Raises:
        RecipeError: memory is too small; the message says which micro-batch fits.
    """
    from pretraining.training.memory import is_out_of_memory

    try:
        trainer.train(export)
        return
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # Outside of the handler, whose traceback keeps the activations.
    raise trainer.does_not_fit(trainer.largest_fitting(trainer.micro_batch_size // 2))


def _require_memory(recipe: Recipe, data: Prepared) -> None:
    """Raise RecipeError if weights, gradients and optimizer states alone exceed main memory.

    The system ends a process that builds a model too large for it, without an error. The model is built here without
    memory; a teacher or a generator comes on top.
    """
    import torch

    from pretraining.training.memory import free_bytes

    specials = data.train.objective.layout.specials
    config = recipe.model.network_config(specials.vocab_size, specials.pad)
    with torch.device("meta"):
        network = ARCHITECTURES[recipe.model.architecture].build(config, next_sentence=False)
    needed, free = 4 * network.num_parameters() * (2 + OPTIMIZER_STATES), free_bytes()
    if needed > free:
        what = (
            f"{network.num_parameters():,} parameters need {format_size(needed)} in training, {format_size(free)} free"
        )
        raise RecipeError("model", what, "use a smaller model or a machine with more memory")


def step_folder(out: Path, step: int) -> Path:
    """Return the folder of the model that a run saves after a step of `export_steps`."""
    return out / f"step-{step:08d}"


def _load_initial_weights(
    model: "PretrainingModel",
    folder: Path,
    convert: "Callable[[Tensor], Tensor] | None" = None,
    num_positions: int | None = None,
) -> None:
    """Load the weights of a folder; CONVERT makes values of its vocabulary those of the run's."""
    from pretraining.model import read_weights

    weights = read_weights(folder, model.architecture.prefix)
    try:
        if convert:
            weights = {k: convert(w) if model.has_vocabulary(k) else w for k, w in weights.items()}
        missing = model.load(weights, num_positions)
    except ValueError as error:
        raise CheckpointError(folder, str(error), "use the shape and the vocabulary of that model") from error
    # Heads that the checkpoint lacks keep their random weights.
    encoder = [name for name in missing if model.architecture.is_needed(name)]
    if encoder:
        fix = f"set model.init to an encoder of the same shape and architecture ({model.architecture.name})"
        raise CheckpointError(folder, f"{encoder[0]} is missing", fix)


def _without_reporting(recipe: dict[str, Any]) -> dict[str, Any]:
    return {
        section: {k: v for k, v in values.items() if k not in REPORTING.get(section, set())}
        if isinstance(values, dict)
        else values
        for section, values in recipe.items()
    }


def _first_difference(theirs: Any, own: Any, key: str = "") -> str:
    if isinstance(theirs, dict) and isinstance(own, dict):
        for name in sorted(theirs.keys() | own.keys()):
            found = _first_difference(theirs.get(name), own.get(name), f"{key}.{name}".lstrip("."))
            if found:
                return found
        return ""
    return "" if theirs == own else f"{key}={theirs!r} there, {own!r} here"
