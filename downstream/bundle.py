"""Train the models that come with the package, from open text: `python -m downstream.bundle --data ROOT`.

    downstream/bundled/
      recipe.toml     everything that decides the models except the text itself
      encoder/        a pretrained BERT with its masked-LM head
      classifier/     the encoder fine-tuned on film reviews
      embedder/       the encoder trained to embed sentences
      MANIFEST.json   digests, sources with licences, seeds, tokens, times, machine, scores

Each is a plain folder of transformers or sentence-transformers. Weights are stored in half precision and used in single
precision. Finished steps are kept under a work folder, and an interrupted step is resumed. Scores are computed from the
stored weights. `--continue` starts from the models that are bundled already: finished phases of the encoder are not
trained again, and a model whose recipe and encoder are unchanged is kept. With `--models` all others are kept as well;
if the encoder changed, the manifest and their cards say so, and the next call trains them again.
"""

import json
import logging
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from corpora.build import build, recipe_inputs
from corpora.corpus import corpus_files, corpus_texts, read_manifest
from corpora.foundation.cards import render_card
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import Config, load_toml, validate
from corpora.foundation.errors import ResultError, UsageError, cannot_write
from corpora.foundation.files import fingerprint, package_path, sha256, write_json, write_text
from corpora.foundation.machine import no_file_bars
from corpora.official import data_root
from corpora.sources import CorpusRecipe, read_corpus_recipe
from downstream.distill import DistillConfig, distill
from downstream.embeddings.recipe import EmbedRecipe
from downstream.embeddings.training import train_embedder
from downstream.encoders.folder import BUNDLED, ModelFolder
from downstream.encoders.weights import halve_weights
from downstream.finetune import finetune, load_finetuned, predict
from downstream.task import FinetuneConfig, Task, get_task
from pretraining.evaluate import evaluate_mlm
from pretraining.recipe import Recipe, check_recipe
from pretraining.training.run import Run
from pretraining.vocabulary.tokenizer import save_tokenizer
from pretraining.vocabulary.wordpiece import VocabConfig, train_wordpiece

logger = logging.getLogger(__name__)

RECIPE = "recipe.toml"
MANIFEST = "MANIFEST.json"
MAX_BYTES = 60_000_000
"""Limit of the folder's size: it is part of every clone and every installation."""
EMBEDDER_FACTS = ("dimension", "num_parameters", "train_s", "scores", "baselines")
"""Entries that are copied from the embedder's own manifest."""
CORPUS = "corpus"
"""Name of the encoder's training corpus in the embedder's stages."""
MODEL = "pressbert-mini"
"""Name of the bundled encoder in results."""
MODELS = ("encoder", "classifier", "embedder")
"""The models that are trained here; the folder holds more."""
STEPS = ("corpus", "vocabulary", *MODELS)


class SelfTraining(Config):
    """Distillation of fine-tuned classifiers into one of the same size, with unlabelled texts."""

    teachers: int = Field(default=3, ge=1)
    """Number of teachers; they differ by their seeds."""
    unlabelled: list[str] = Field(min_length=1)
    """Files below the data root; in plain text every line is one text."""
    distill: dict[str, Any] = Field(default_factory=dict)
    """Overrides of `DistillConfig`; the number of layers is the teachers'."""


class ClassifierRecipe(Config):
    """How the classifier is fine-tuned."""

    task: str = "nsmc"
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the task's fine-tuning defaults."""
    seed: int = 0
    self_training: SelfTraining | None = None
    """None: the classifier is the fine-tuned model itself."""


class BundleRecipe(Config):
    """Everything that decides the bundled models except the text itself."""

    corpus: str
    """A corpus recipe: a TOML file, or one of ours."""
    vocabulary: VocabConfig
    encoder: list[dict[str, Any]] = Field(min_length=1)
    """Pretraining recipes, one a phase; corpus, tokenizer and initial weights are filled in."""
    classifier: ClassifierRecipe = ClassifierRecipe()
    embedder: dict[str, Any]
    """Recipe of the embedder; the source `corpus` is the encoder's training corpus."""


class Bundle:
    """The steps from text to bundled models."""

    def __init__(
        self,
        recipe: BundleRecipe,
        *,
        root: Path,
        work: Path,
        out: Path = BUNDLED,
        resume: bool = False,
        models: Collection[str] = MODELS,
        num_workers: int = 1,
    ) -> None:
        """Check the recipe; nothing is trained yet.

        Args:
            recipe: see `read_bundle_recipe`.
            root: data root.
            work: folder for everything that is not bundled: text, vocabulary, full-precision models, checkpoints.
            out: folder of the bundled models.
            resume: keep what OUT holds as far as the recipe has not changed, instead of starting from scratch.
            models: those to train; the others are kept, which needs `resume`.
            num_workers: processes that prepare text.

        Raises:
            RecipeError: a part of the recipe is wrong.
            ResultError: `resume`, and OUT holds no bundle, or its files differ from its manifest.
            UsageError: a model is left out without `resume`, or the encoder although it has a new phase.
        """
        self.recipe, self._root, self._work, self._out, self._num_workers = recipe, root, work, out, num_workers
        self.corpus_recipe: CorpusRecipe = read_corpus_recipe(recipe.corpus)
        self._before: dict[str, Any] = _read_bundled(out) if resume else {}
        self._num_phases_before, self._kept = self._reusable() if resume else (0, frozenset[str]())
        if left_out := frozenset(MODELS) - frozenset(models):
            if not resume:
                raise UsageError("--models", "a bundle from scratch needs all models", "add --continue")
            if "encoder" in left_out - self._kept:
                raise UsageError("--models", "the recipe has a new phase of the encoder", "name the encoder, too")
            self._kept |= left_out
        self.phases = [self._phase(number, values) for number, values in enumerate(recipe.encoder)]
        stages = [
            stage | {"data": [str(self.corpus) if name == CORPUS else name for name in stage.get("data", [])]}
            for stage in recipe.embedder.get("stages", [])
        ]
        classifier = recipe.classifier
        settings = get_task(classifier.task).finetune.model_dump() | classifier.finetune
        validate(FinetuneConfig, settings, "recipe, classifier, finetune")
        if classifier.self_training is not None:
            validate(DistillConfig, settings | classifier.self_training.distill, "recipe, classifier, self_training")
        self.embedder_recipe = validate(EmbedRecipe, recipe.embedder | {"stages": stages}, "recipe, embedder")

    @property
    def corpus(self) -> Path:
        """Folder of the corpus."""
        return self._work / "corpus"

    @property
    def vocabulary(self) -> Path:
        """Folder of the tokenizer."""
        return self._work / "vocabulary"

    @property
    def encoder(self) -> Path:
        """Folder of the encoder as it is bundled, in half precision: classifier and embedder start from its weights.

        So fine-tuning the bundled encoder by the same recipe and seed reproduces the bundled classifier.
        """
        is_unchanged = self._num_phases_before == len(self.phases)
        return (self._out if is_unchanged else self._work) / "encoder"

    def _work_folder(self, name: str, recipe: Any) -> Path:
        """Return the folder that a model is trained in; it depends on the encoder and RECIPE."""
        return self._work / f"{name}-{fingerprint([ModelFolder(self.encoder).digest(), recipe])[:8]}"

    @property
    def _classifier(self) -> Path:
        return self._work_folder("classifier", self.recipe.classifier.model_dump())

    @property
    def _embedder(self) -> Path:
        return self._work_folder("embedder", self.recipe.embedder)

    def _phase_folder(self, number: int) -> Path:
        if number + 1 == self._num_phases_before:
            return self._out / "encoder"
        return self._work / f"encoder-{number + 1}"

    def _reusable(self) -> tuple[int, frozenset[str]]:
        """Return the number of finished phases of the bundled encoder, and the models whose recipe is unchanged."""
        earlier = validate(BundleRecipe, self._before["recipe"], f"{self._out / MANIFEST}, recipe")
        phases, past = self.recipe.encoder, earlier.encoder
        is_same_text = (earlier.corpus, earlier.vocabulary) == (self.recipe.corpus, self.recipe.vocabulary)
        if not is_same_text or past != phases[: len(past)]:
            what = "the bundled encoder was trained by another recipe than the first phases of this one"
            raise ResultError(self._out, what, "leave out --continue to train everything from scratch")
        if len(past) < len(phases):
            return len(past), frozenset()
        encoder_sha256 = ModelFolder(self._out / "encoder").digest()
        kept = {
            name
            for name in ("classifier", "embedder")
            if getattr(earlier, name) == getattr(self.recipe, name)
            and self._before[name].get("encoder_sha256") == encoder_sha256
        }
        return len(past), frozenset({"encoder"} | kept)

    def _phase(self, number: int, values: Mapping[str, Any]) -> Recipe:
        data = dict(values.get("data", {})) | {"corpus": str(self.corpus), "tokenizer": str(self.vocabulary)}
        model = dict(values.get("model", {}))
        if number:
            # The architecture is that of the first phase, the weights those of the previous phase.
            model = (
                dict(self.recipe.encoder[0].get("model", {})) | model | {"init": str(self._phase_folder(number - 1))}
            )
        return check_recipe({**values, "data": data, "model": model}, f"recipe, encoder, phase {number + 1}")

    def make(self, until: str = STEPS[-1]) -> None:
        """Run the missing steps in the order of `STEPS`, up to and including UNTIL.

        Raises:
            SuiteError: a step fails.
        """
        steps: dict[str, Callable[[], object]] = {
            "corpus": self._make_corpus,
            "vocabulary": self._make_vocabulary,
            "encoder": self._make_encoder,
            "classifier": self._make_classifier,
            "embedder": self._make_embedder,
        }
        for name in STEPS[: STEPS.index(until) + 1]:
            if name in self._kept:
                continue
            logger.info("%s …", name)
            steps[name]()

    def _make_corpus(self) -> None:
        sources, config = recipe_inputs(self.corpus_recipe, self._root)
        build(sources, self.corpus, config)

    def _make_vocabulary(self) -> None:
        if (self.vocabulary / "tokenizer.json").is_file():
            return
        config = self.recipe.vocabulary
        texts = (text for file in corpus_files(self.corpus) for text in corpus_texts(file))
        settings = config.model_dump(include={"min_frequency", "limit_alphabet", "num_unused", "segmentation"})
        save_tokenizer(train_wordpiece(texts, config.vocab_size, **settings), self.vocabulary)

    def _make_encoder(self) -> None:
        if self._before and sha256(self.vocabulary / "vocab.txt") != self._before["encoder"]["vocabulary_sha256"]:
            what = "the bundled encoder has another vocabulary than the one that this text gives"
            raise ResultError(self._out, what, "leave out --continue to train everything from scratch")
        for number in range(self._num_phases_before, len(self.phases)):
            out = self._phase_folder(number)
            Run(self.phases[number], out, cache=self._work / "data", num_workers=self._num_workers).train()
        _copy(self._phase_folder(len(self.phases) - 1), self.encoder, in_half_precision=True)

    def _make_classifier(self) -> None:
        recipe, training = self.recipe.classifier, self.recipe.classifier.self_training
        if training is None:
            self._finetune(self._classifier, recipe.seed)
            return
        for number, teacher in enumerate(self._teachers):
            self._finetune(teacher, recipe.seed + number)
        distill(
            *self._teachers,
            out=self._classifier,
            model=MODEL,
            seed=recipe.seed,
            data=self._root,
            unlabelled=[self._root / name for name in training.unlabelled],
            overrides={"layers": self.phases[-1].model.num_hidden_layers} | training.distill,
        )

    @property
    def _teachers(self) -> list[Path]:
        """Folders of the fine-tuned models that the classifier is distilled from."""
        recipe, training = self.recipe.classifier, self.recipe.classifier.self_training
        numbers = range(1, 1 + training.teachers) if training else ()
        return [self._work_folder(f"teacher-{n}", [recipe.task, recipe.finetune, recipe.seed]) for n in numbers]

    def _finetune(self, out: Path, seed: int) -> None:
        recipe = self.recipe.classifier
        overrides = recipe.finetune
        finetune(recipe.task, self.encoder, out=out, model=MODEL, seed=seed, data=self._root, overrides=overrides)

    def _make_embedder(self) -> None:
        train_embedder(self.encoder, self.embedder_recipe, out=self._embedder, data=self._root)

    def publish(self) -> dict[str, Any]:
        """Write the models to OUT in half precision, score the stored weights, and write cards and manifest.

        Returns:
            The manifest.

        Raises:
            ResultError: OUT cannot be written, or would be larger than `MAX_BYTES`.
        """
        out = self._out
        sources = {"encoder": self.encoder, "classifier": self._classifier, "embedder": self._embedder}
        for name, source in sources.items():
            if name not in self._kept:
                # The encoder and the embedder are saved in half precision already.
                _copy(source, out / name, in_half_precision=name == "classifier")
        manifest = self._manifest()
        for name in MODELS:
            is_outdated = name != "encoder" and manifest[name].get("encoder_sha256") != manifest["encoder"]["sha256"]
            write_text(out / name / "README.md", card(name, manifest, is_outdated=is_outdated))
        manifest["files"] = _files(out)
        size = sum(entry["size_bytes"] for entry in manifest["files"].values())
        if size > MAX_BYTES:
            what = f"{size / 1e6:.1f} MB, more than the {MAX_BYTES / 1e6:.0f} MB that may be bundled"
            raise ResultError(out, what, "make the encoder smaller")
        write_json(out / MANIFEST, manifest)
        return manifest

    def _manifest(self) -> dict[str, Any]:
        corpus = read_manifest(self.corpus)
        collectors = (self._encoder_facts, self._classifier_facts, self._embedder_facts)
        facts = {
            name: self._before[name] if name in self._kept else collect()
            for name, collect in zip(MODELS, collectors, strict=True)
        }
        facts["encoder"] |= {"sha256": ModelFolder(self._out / "encoder").digest()}
        recipe = self.recipe.model_dump()
        recipe |= {name: self._before["recipe"][name] for name in ("classifier", "embedder") if name in self._kept}
        return {
            "schema": 1,
            "licence": self.corpus_recipe.licence,
            "recipe": recipe,
            "sources": [
                entry.model_dump(include={"title", "origin", "licence"})
                | source.model_dump(include={"name", "sha256", "num_kept", "num_held_out", "num_chars", "dropped"})
                for entry, source in zip(self.corpus_recipe.sources, corpus.sources, strict=True)
            ],
        } | facts

    def _encoder_facts(self) -> dict[str, Any]:
        new = range(self._num_phases_before, len(self.phases))
        runs = [_read_json(self._phase_folder(number) / "manifest.json") for number in new]
        past = self._before.get("encoder", {"tokens": 0, "elapsed_s": 0, "device": [], "precision": []})
        # An uninterrupted run keeps full precision between these phases, and ends in other bytes.
        stored = past.get("stored_after", []) + ([self._num_phases_before] if self._before else [])
        facts = {key: runs[-1][key] for key in ("num_parameters", "num_positions", "versions")}
        return facts | {
            "vocabulary_sha256": sha256(self.vocabulary / "vocab.txt"),
            "tokens": past["tokens"] + sum(run["tokens"] for run in runs),
            "elapsed_s": round(past["elapsed_s"] + sum(run["elapsed_s"] for run in runs), 1),
            "device": past["device"] + [run["device"] for run in runs],
            "precision": past["precision"] + [run["precision"] for run in runs],
            "stored_after": stored,
            "held_out": evaluate_mlm(self._out / "encoder", self.corpus),
        }

    def _classifier_facts(self) -> dict[str, Any]:
        task = get_task(self.recipe.classifier.task)
        finetuned = _read_json(self._classifier / "result.json")
        return {
            "task": task.name,
            "encoder_sha256": finetuned["recipe"]["encoder_sha256"],
            "split": task.eval_split,
            "seed": finetuned["seed"],
            "data_sha256": finetuned["data_sha256"],
            "finetune": finetuned["recipe"]["finetune"],
            "unlabelled": finetuned["recipe"].get("unlabelled"),
            "teachers": [_read_json(teacher / "result.json")["metrics"] for teacher in self._teachers],
            "elapsed_s": finetuned["train_s"],
            "metrics": _score_classifier(self._out / "classifier", task, self._root),
        }

    def _embedder_facts(self) -> dict[str, Any]:
        embedder = _read_json(self._embedder / "manifest.json")
        return {"encoder_sha256": ModelFolder(self.encoder).digest()} | {key: embedder[key] for key in EMBEDDER_FACTS}


NOT_COPIED = (
    ".*",
    "checkpoints",
    "data",
    "data.json",
    "loss.png",
    "manifest.json",
    "metrics.jsonl",
    "objective.safetensors",
    "recipe.json",
    "result.json",
    "stages",
)
"""Records of the training; the bundle's manifest summarises them."""


def _copy(source: Path, out: Path, *, in_half_precision: bool) -> None:
    """Copy what is needed to use a model, and replace an older folder.

    Raises:
        ResultError: OUT cannot be written.
    """
    try:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(source, out, ignore=shutil.ignore_patterns(*NOT_COPIED))
        if in_half_precision:
            halve_weights(out)
    except OSError as error:
        raise cannot_write(out, error) from error


def _score_classifier(folder: Path, task: Task, root: Path) -> dict[str, float]:
    model, tokenizer, _ = load_finetuned(folder)
    split = task.read_split(task.eval_split, root)
    max_length = min(128, tokenizer.model_max_length)
    with no_file_bars():
        predictions = predict(model, tokenizer, task.family, split.examples, max_length=max_length)
    return {metric.key: metric(predictions, split.golds) for metric in task.metrics}


def _files(out: Path) -> dict[str, dict[str, Any]]:
    return {
        path.relative_to(out).as_posix(): {"sha256": sha256(path), "size_bytes": path.stat().st_size}
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def _read_bundled(out: Path) -> dict[str, Any]:
    """Return the manifest of a bundle, once its files match it.

    Raises:
        ResultError: there is none, or a file is missing or differs.
    """
    fix = "restore the folder, or leave out --continue to train everything from scratch"
    try:
        manifest = _read_json(out / MANIFEST)
    except (OSError, ValueError) as error:
        raise ResultError(out, f"no readable {MANIFEST} in it to continue from", fix) from error
    for name, entry in manifest["files"].items():
        is_model = name.partition("/")[0] in MODELS
        if is_model and not ((out / name).is_file() and sha256(out / name) == entry["sha256"]):
            raise ResultError(out / name, f"not the file that {MANIFEST} lists", fix)
    return manifest


def _read_json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values


def card(name: str, manifest: Mapping[str, Any], *, is_outdated: bool = False) -> str:
    """Return the model card of a bundled model, in Korean and in English, with the YAML that model hubs read.

    Args:
        name: of the model.
        manifest: of the bundle.
        is_outdated: the model was trained from an earlier encoder than the one in the bundle.
    """
    template = package_path("downstream", "templates", f"card_{name}.md")
    return render_card(template, **manifest, is_outdated=is_outdated)


def read_bundle_recipe(path: Path = BUNDLED / RECIPE) -> BundleRecipe:
    """Read the recipe of the bundled models.

    Raises:
        RecipeError: it has an unknown key or a wrong value.
    """
    return validate(BundleRecipe, load_toml(path), path)


def main(argv: list[str] | None = None) -> int:
    """Train the bundled models from the command line; prints their scores as JSON."""
    parser = ArgumentParser("python -m downstream.bundle", "Train the models that come with the package.")
    parser.add_argument("--recipe", type=Path, default=BUNDLED / RECIPE)
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--work", type=Path, default=Path("runs/bundled"), help="folder for all that is not bundled")
    parser.add_argument("--out", type=Path, default=BUNDLED, help="folder of the bundled models")
    parser.add_argument("--until", choices=STEPS, default=STEPS[-1], help="stop after this step; nothing is bundled")
    parser.add_argument("--continue", dest="resume", action="store_true", help="start from the models bundled already")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="train only these, with --continue")
    parser.add_argument("--workers", type=int, default=2, help="processes that prepare text")
    arguments = parser.parse(argv)
    bundle = Bundle(
        read_bundle_recipe(arguments.recipe),
        root=data_root(arguments.data),
        work=arguments.work,
        out=arguments.out,
        resume=arguments.resume,
        models=arguments.models,
        num_workers=arguments.workers,
    )
    bundle.make(arguments.until)
    if arguments.until == STEPS[-1]:
        manifest = bundle.publish()
        scores = {name: manifest[name] for name in ("classifier", "embedder")}
        sys.stdout.write(json.dumps({"encoder": manifest["encoder"]["held_out"]} | scores, ensure_ascii=False) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
