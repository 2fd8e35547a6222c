"""The models that come with the package, made from open text: `python -m downstream.bundle --data ROOT`.

    downstream/bundled/
      recipe.toml     everything that decides them but the text itself
      encoder/        a pretrained BERT with its masked-LM head
      classifier/     it, fine-tuned on film reviews
      embedder/       it, trained to embed sentences
      MANIFEST.json   digests, sources with licences, seeds, tokens, times, machine, scores

Each is a plain folder of transformers or sentence-transformers. Weights are stored in half precision and computed with
in single precision. Steps are made once, under a work folder, and an interrupted one is gone on with; scores are those
of what is bundled, read back from its files. `--continue` goes on from what is bundled already: phases of the encoder
that it has been through are not trained again, and a model whose recipe and encoder are the same stays as it is.
With `--models` the others stay as they are even so; the manifest and their cards tell that they began with an earlier
encoder, and the next call makes them anew.
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
"""What the folder may weigh: it is part of every clone and every installation."""
EMBEDDER_FACTS = ("dimension", "num_parameters", "train_s", "scores", "baselines")
"""Of the embedder's own manifest."""
CORPUS = "corpus"
"""The name by which the embedder's stages call the corpus that the encoder was trained on."""
MODEL = "pressbert-mini"
"""What the bundled encoder is called in results."""
MODELS = ("encoder", "classifier", "embedder")
"""What is made here of all that lies in the folder."""
STEPS = ("corpus", "vocabulary", *MODELS)


class SelfTraining(Config):
    """How a classifier learns from fine-tuned ones of its own size, by texts without labels."""

    teachers: int = Field(default=3, ge=1)
    """Their number; they differ by their seeds."""
    unlabelled: list[str] = Field(min_length=1)
    """Files below the data root; in plain text every line is one."""
    distill: dict[str, Any] = Field(default_factory=dict)
    """Departures from the defaults of `DistillConfig` but for the layers, which are the teachers'."""


class ClassifierRecipe(Config):
    """How the classifier is fine-tuned."""

    task: str = "nsmc"
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Departures from the task's fine-tuning defaults."""
    seed: int = 0
    self_training: SelfTraining | None = None
    """None: the classifier is what was fine-tuned."""


class BundleRecipe(Config):
    """Everything that decides the bundled models but the text itself."""

    corpus: str
    """A corpus recipe: a TOML file, or one of ours."""
    vocabulary: VocabConfig
    encoder: list[dict[str, Any]] = Field(min_length=1)
    """Recipes of pretraining, one a phase; corpus, tokenizer and the weights to begin with are filled in."""
    classifier: ClassifierRecipe = ClassifierRecipe()
    embedder: dict[str, Any]
    """A recipe of embeddings; the source `corpus` stands for the corpus of the encoder."""


class Bundle:
    """The steps from text to bundled models."""

    def __init__(
        self,
        recipe: BundleRecipe,
        *,
        root: Path,
        work: Path,
        out: Path = BUNDLED,
        go_on: bool = False,
        models: Collection[str] = MODELS,
        num_workers: int = 1,
    ) -> None:
        """Check the recipe; nothing is made yet.

        Args:
            recipe: of `read_bundle_recipe`.
            root: data root.
            work: folder for everything that is not bundled: text, vocabulary, full-precision models, checkpoints.
            out: folder of the bundled models.
            go_on: begin with what OUT holds, as far as the recipe still says the same, instead of with nothing.
            models: those to be made; the others stay as OUT holds them, which only a bundle to go on from can do.
            num_workers: processes that prepare text.

        Raises:
            RecipeError: a part of the recipe is wrong.
            ResultError: there is nothing in OUT to go on from, or not what its manifest tells of.
            UsageError: something is left out of a bundle made from nothing, or the encoder although it has to grow.
        """
        self.recipe, self._root, self._work, self._out, self._num_workers = recipe, root, work, out, num_workers
        self.corpus_recipe: CorpusRecipe = read_corpus_recipe(recipe.corpus)
        self._before: dict[str, Any] = _read_bundled(out) if go_on else {}
        self._num_phases_before, self._kept = self._what_stays() if go_on else (0, frozenset[str]())
        if left_out := frozenset(MODELS) - frozenset(models):
            if not go_on:
                raise UsageError("--models", "a bundle made from nothing needs all of them", "add --continue")
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
        """Folder of the encoder as it is bundled, in half precision: classifier and embedder begin with its weights.

        So whoever fine-tunes the bundled encoder by the same recipe and seed gets the bundled classifier.
        """
        is_as_before = self._num_phases_before == len(self.phases)
        return (self._out if is_as_before else self._work) / "encoder"

    def _workshop(self, name: str, recipe: Any) -> Path:
        """Return the folder that a model is made in; another encoder or RECIPE has another one."""
        return self._work / f"{name}-{fingerprint([self._encoder_sha256(self.encoder), recipe])[:8]}"

    @property
    def _classifier(self) -> Path:
        return self._workshop("classifier", self.recipe.classifier.model_dump())

    @property
    def _embedder(self) -> Path:
        return self._workshop("embedder", self.recipe.embedder)

    def _phase_folder(self, number: int) -> Path:
        if number + 1 == self._num_phases_before:
            return self._out / "encoder"
        return self._work / f"encoder-{number + 1}"

    def _what_stays(self) -> tuple[int, frozenset[str]]:
        """Return how many phases the bundled encoder has been through, and which models are what the recipe says."""
        earlier = validate(BundleRecipe, self._before["recipe"], f"{self._out / MANIFEST}, recipe")
        phases, past = self.recipe.encoder, earlier.encoder
        is_same_text = (earlier.corpus, earlier.vocabulary) == (self.recipe.corpus, self.recipe.vocabulary)
        if not is_same_text or past != phases[: len(past)]:
            what = "the bundled encoder has been through another recipe than this one begins with"
            raise ResultError(self._out, what, "leave out --continue, and all is made anew")
        if len(past) < len(phases):
            return len(past), frozenset()
        encoder_sha256 = self._encoder_sha256(self._out / "encoder")
        are_same = {
            "classifier": earlier.classifier == self.recipe.classifier,
            "embedder": earlier.embedder == self.recipe.embedder,
        }
        kept = {
            name
            for name, same in are_same.items()
            if same and self._before[name].get("encoder_sha256") == encoder_sha256
        }
        return len(past), frozenset({"encoder"} | kept)

    @staticmethod
    def _encoder_sha256(folder: Path) -> str:
        return ModelFolder(folder).digest()

    def _phase(self, number: int, values: Mapping[str, Any]) -> Recipe:
        data = dict(values.get("data", {})) | {"corpus": str(self.corpus), "tokenizer": str(self.vocabulary)}
        model = dict(values.get("model", {}))
        if number:
            # The shape is that of the first phase, the weights those of the phase before.
            model = (
                dict(self.recipe.encoder[0].get("model", {})) | model | {"init": str(self._phase_folder(number - 1))}
            )
        return check_recipe({**values, "data": data, "model": model}, f"recipe, encoder, phase {number + 1}")

    def make(self, until: str = STEPS[-1]) -> None:
        """Make what is missing, in the order of `STEPS`, up to and with UNTIL.

        Raises:
            SuiteError: what stops a step stops this.
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
        tokenizer = train_wordpiece(
            texts,
            config.vocab_size,
            min_frequency=config.min_frequency,
            limit_alphabet=config.limit_alphabet,
            num_unused=config.num_unused,
            segmentation=config.segmentation,
        )
        save_tokenizer(tokenizer, self.vocabulary)

    def _make_encoder(self) -> None:
        if self._before and sha256(self.vocabulary / "vocab.txt") != self._before["encoder"]["vocabulary_sha256"]:
            what = "the bundled encoder has another vocabulary than the one that this text gives"
            raise ResultError(self._out, what, "leave out --continue, and all is made anew")
        for number in range(self._num_phases_before, len(self.phases)):
            out = self._phase_folder(number)
            Run(self.phases[number], out, cache=self._work / "data", num_workers=self._num_workers).train()
        halve(self._phase_folder(len(self.phases) - 1), self.encoder)

    def _make_classifier(self) -> None:
        recipe, more = self.recipe.classifier, self.recipe.classifier.self_training
        out = self._classifier
        if more is None:
            self._finetune(out, recipe.seed)
            return
        for number, teacher in enumerate(self._teachers):
            self._finetune(teacher, recipe.seed + number)
        distill(
            *self._teachers,
            out=out,
            model=MODEL,
            seed=recipe.seed,
            data=self._root,
            unlabelled=[self._root / name for name in more.unlabelled],
            overrides={"layers": self.phases[-1].model.num_hidden_layers} | more.distill,
        )

    @property
    def _teachers(self) -> list[Path]:
        """Folders of the fine-tuned models that the classifier is distilled from."""
        recipe, more = self.recipe.classifier, self.recipe.classifier.self_training
        numbers = range(1, 1 + more.teachers) if more else ()
        return [self._workshop(f"teacher-{n}", [recipe.task, recipe.finetune, recipe.seed]) for n in numbers]

    def _finetune(self, out: Path, seed: int) -> None:
        recipe = self.recipe.classifier
        overrides = recipe.finetune
        finetune(recipe.task, self.encoder, out=out, model=MODEL, seed=seed, data=self._root, overrides=overrides)

    def _make_embedder(self) -> None:
        train_embedder(self.encoder, self.embedder_recipe, out=self._embedder, data=self._root)

    def publish(self) -> dict[str, Any]:
        """Write the models to OUT in half precision, score them as they lie there, and write cards and manifest.

        Returns:
            The manifest.

        Raises:
            ResultError: OUT cannot be written, or would grow beyond `MAX_BYTES`.
        """
        out = self._out
        sources = {"encoder": self.encoder, "classifier": self._classifier, "embedder": self._embedder}
        for name, source in sources.items():
            if name not in self._kept:
                (halve if name == "classifier" else _copy)(source, out / name)
        manifest = self._manifest()
        for name in MODELS:
            is_behind = name != "encoder" and manifest[name].get("encoder_sha256") != manifest["encoder"]["sha256"]
            write_text(out / name / "README.md", card(name, manifest, is_behind=is_behind))
        manifest["files"] = _files(out)
        size = sum(entry["size_bytes"] for entry in manifest["files"].values())
        if size > MAX_BYTES:
            what = f"{size / 1e6:.1f} MB, more than the {MAX_BYTES / 1e6:.0f} MB that may be bundled"
            raise ResultError(out, what, "make the encoder smaller")
        write_json(out / MANIFEST, manifest)
        return manifest

    def _manifest(self) -> dict[str, Any]:
        corpus = read_manifest(self.corpus)
        facts = {
            name: self._before[name] if name in self._kept else tell()
            for name, tell in (
                ("encoder", self._encoder_facts),
                ("classifier", self._classifier_facts),
                ("embedder", self._embedder_facts),
            )
        }
        facts["encoder"] |= {"sha256": self._encoder_sha256(self._out / "encoder")}
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
        # Whoever repeats the run in one go has full precision there, and other bytes in the end.
        stored = past.get("stored_after", []) + ([self._num_phases_before] if self._before else [])
        return {
            "num_parameters": runs[-1]["num_parameters"],
            "vocabulary_sha256": sha256(self.vocabulary / "vocab.txt"),
            "tokens": past["tokens"] + sum(run["tokens"] for run in runs),
            "elapsed_s": round(past["elapsed_s"] + sum(run["elapsed_s"] for run in runs), 1),
            "device": past["device"] + [run["device"] for run in runs],
            "precision": past["precision"] + [run["precision"] for run in runs],
            "stored_after": stored,
            "versions": runs[-1]["versions"],
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
        return {"encoder_sha256": self._encoder_sha256(self.encoder)} | {key: embedder[key] for key in EMBEDDER_FACTS}


def halve(source: Path, out: Path) -> None:
    """Copy a transformers folder with its weights in half precision; whoever loads it computes in single precision.

    Raises:
        ResultError: OUT cannot be written.
    """
    import torch
    from safetensors.torch import load_file, save_file

    _copy(source, out)
    try:
        for path in out.glob("*.safetensors"):
            weights = {name: part.to(torch.float16).contiguous() for name, part in load_file(path).items()}
            save_file(weights, path, metadata={"format": "pt"})
        # transformers computes in the stored precision by default, and few CPUs have units for half precision.
        ModelFolder(out).save_config({"dtype": "float32"})
    except OSError as error:
        raise cannot_write(out, error) from error


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
"""What tells of the making: the bundle's manifest holds it in short."""


def _copy(source: Path, out: Path) -> None:
    """Copy a model folder without what is not needed to use it, in the place of an older one."""
    try:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(source, out, ignore=shutil.ignore_patterns(*NOT_COPIED))
    except OSError as error:
        raise cannot_write(out, error) from error


def _score_classifier(folder: Path, task: Task, root: Path) -> dict[str, float]:
    model, tokenizer, _ = load_finetuned(folder)
    split = task.read_split(task.eval_split, root)
    with no_file_bars():
        predictions = predict(
            model, tokenizer, task.family, split.examples, max_length=min(128, tokenizer.model_max_length)
        )
    return {metric.key: metric(predictions, split.golds) for metric in task.metrics}


def _files(out: Path) -> dict[str, dict[str, Any]]:
    return {
        path.relative_to(out).as_posix(): {"sha256": sha256(path), "size_bytes": path.stat().st_size}
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def _read_bundled(out: Path) -> dict[str, Any]:
    """Return the manifest of a bundle whose files are those that it tells of.

    Raises:
        ResultError: there is none, or a file is missing or another one.
    """
    fix = "bring the folder back as it was, or leave out --continue and make all anew"
    try:
        manifest = _read_json(out / MANIFEST)
    except (OSError, ValueError) as error:
        raise ResultError(out, f"no readable {MANIFEST} in it to go on from", fix) from error
    for name, entry in manifest["files"].items():
        is_model = name.partition("/")[0] in MODELS
        if is_model and not ((out / name).is_file() and sha256(out / name) == entry["sha256"]):
            raise ResultError(out / name, f"not the file that {MANIFEST} tells of", fix)
    return manifest


def _read_json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values


def card(name: str, manifest: Mapping[str, Any], *, is_behind: bool = False) -> str:
    """Return the model card of a bundled model, in Korean and in English, with the YAML that model hubs read.

    Args:
        name: of the model.
        manifest: of the bundle.
        is_behind: the model began with an earlier encoder than the one in the bundle.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(package_path("downstream", "templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, of our own figures
    )
    return environment.get_template(f"card_{name}.md").render(manifest, is_behind=is_behind)


def read_bundle_recipe(path: Path = BUNDLED / RECIPE) -> BundleRecipe:
    """Read what the bundled models are made by.

    Raises:
        RecipeError: it has an unknown key or a wrong value.
    """
    return validate(BundleRecipe, load_toml(path), path)


def main(argv: list[str] | None = None) -> int:
    """Make the bundled models from the command line; prints their scores as JSON."""
    parser = ArgumentParser("python -m downstream.bundle", "Make the models that come with the package.")
    parser.add_argument("--recipe", type=Path, default=BUNDLED / RECIPE)
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--work", type=Path, default=Path("runs/bundled"), help="folder for all that is not bundled")
    parser.add_argument("--out", type=Path, default=BUNDLED, help="folder of the bundled models")
    parser.add_argument("--until", choices=STEPS, default=STEPS[-1], help="stop behind this step; nothing is bundled")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="go on from what is bundled already")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="make these alone, with --continue")
    parser.add_argument("--workers", type=int, default=2, help="processes that prepare text")
    arguments = parser.parse(argv)
    bundle = Bundle(
        read_bundle_recipe(arguments.recipe),
        root=data_root(arguments.data),
        work=arguments.work,
        out=arguments.out,
        go_on=arguments.go_on,
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
