"""The steps from text to bundled models."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from corpora.build import build, recipe_inputs
from corpora.corpus import corpus_files, corpus_texts, read_manifest
from corpora.foundation.config import validate
from corpora.foundation.errors import RecipeError, ResultError, UsageError
from corpora.foundation.files import fingerprint, sha256, write_json, write_text
from corpora.sources import read_corpus_recipe
from downstream.bundling.publishing import (
    MANIFEST,
    MODELS,
    card,
    copy_model,
    files_of,
    read_bundled,
    read_json,
    score_classifier,
)
from downstream.bundling.recipe import (
    BundleRecipe,
    Materials,
    Phase,
    Vocabulary,
    corpus_recipes,
    read_phases,
    stage_corpora,
)
from downstream.distill import DistillConfig, distill
from downstream.embeddings.embedder import BATCH_SIZE, Embedder
from downstream.embeddings.recipe import EmbedRecipe
from downstream.embeddings.training import train_embedder
from downstream.embeddings.vectors import write_vectors
from downstream.encoders.folder import BUNDLED, ModelFolder
from downstream.finetune import finetune
from downstream.task import FinetuneConfig, get_task
from pretraining.data.vectors import SHARDS
from pretraining.evaluate import evaluate_mlm
from pretraining.training.run import Run
from pretraining.vocabulary.tokenizer import save_tokenizer
from pretraining.vocabulary.wordpiece import VocabConfig, train_wordpiece

logger = logging.getLogger(__name__)

MAX_BYTES = 60_000_000
"""Limit of the folder's size: it is part of every clone and every installation."""
EMBEDDER_FACTS = ("dimension", "num_parameters", "train_s", "scores", "baselines")
"""Entries that are copied from the embedder's own manifest."""
EMBEDDER_PARTS: Mapping[str, Any] = {"embedder_phases": [], "embedder_start": None, "teacher": None}
"""Parts of the recipe that decide the embedder beside its own, and their defaults."""
MODEL = "pressbert-mini"
"""Name of the bundled encoder in results."""
STEPS = ("corpus", "vocabulary", *MODELS)


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
        teacher: Path | None = None,
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
            teacher: folder of the encoder whose vectors are learnt from; needed until they are computed.

        Raises:
            RecipeError: a part of the recipe is wrong.
            ResultError: `resume`, and OUT holds no bundle, or its files differ from its manifest.
            UsageError: a model is left out without `resume`, or the encoder although it has a new phase.
        """
        self.recipe, self._root, self._work, self._out, self._num_workers = recipe, root, work, out, num_workers
        self._teacher, self._materials = teacher, Materials(work, recipe)
        self._before: dict[str, Any] = read_bundled(out) if resume else {}
        self._num_stages_before = 0
        """Stages of the embedder that need not be trained again."""
        self._num_phases_before, self._kept = self._reusable() if resume else (0, frozenset[str]())
        if left_out := frozenset(MODELS) - frozenset(models):
            if not resume:
                raise UsageError("--models", "a bundle from scratch needs all models", "add --continue")
            if "encoder" in left_out - self._kept:
                raise UsageError("--models", "the recipe has a new phase of the encoder", "name the encoder, too")
            self._kept |= left_out
        folders = [self._phase_folder(number) for number in range(len(recipe.encoder))]
        self.phases = read_phases(recipe.encoder, self._materials, folders, start=None, key="encoder")
        if (recipe.embedder_start or 1) > len(recipe.encoder):
            what = f"phase {recipe.embedder_start} of an encoder that has {len(recipe.encoder)}"
            raise RecipeError("recipe, embedder_start", what, "give the number of a phase")
        self.embedder_phases = self._read_embedder_phases()
        stages = recipe.embedder.get("stages", [])[self._num_stages_before :]
        self._stage_corpora = stage_corpora(recipe.corpus, stages)
        phases = [phase.corpus for phase in self._all_phases]
        self.corpora = corpus_recipes([recipe.corpus, *phases, *self._stage_corpora.values()])
        """Corpus recipes by name; the first one is the bundle's own."""
        places = {source: str(self._materials.corpus(name)) for source, name in self._stage_corpora.items()}
        stages = [stage | {"data": [places.get(name, name) for name in stage.get("data", [])]} for stage in stages]
        classifier = recipe.classifier
        settings = get_task(classifier.task).finetune.model_dump() | classifier.finetune
        validate(FinetuneConfig, settings, "recipe, classifier, finetune")
        if classifier.self_training is not None:
            validate(DistillConfig, settings | classifier.self_training.distill, "recipe, classifier, self_training")
        self.embedder_recipe = validate(EmbedRecipe, recipe.embedder | {"stages": stages}, "recipe, embedder")

    @property
    def corpus(self) -> Path:
        """Folder of the corpus."""
        return self._materials.corpus()

    @property
    def _all_phases(self) -> list[Phase]:
        return [*self.phases, *self.embedder_phases]

    @property
    def _vocabulary(self) -> Path:
        """Folder of the encoder's tokenizer."""
        return self._materials.vocabulary(self.phases[-1].vocabulary)

    def _read_embedder_phases(self) -> list[Phase]:
        """Return the phases of the embedder; their folders depend on the encoder, which may not be trained yet."""
        phases = self.recipe.embedder_phases
        is_trained = self.encoder.is_dir()
        folders = [self._embedder_phase_folder(number) if is_trained else self._work for number in range(len(phases))]
        return read_phases(phases, self._materials, folders, start=self._embedder_start, key="embedder_phases")

    def _embedder_phase_folder(self, number: int) -> Path:
        recipe = [self.recipe.embedder_start, self.recipe.embedder_phases[: number + 1]]
        return self._work_folder(f"embedder-phase-{number + 1}", recipe)

    @property
    def _embedder_start(self) -> Path:
        """Folder of the model that the embedder continues from."""
        last = len(self.recipe.encoder)
        number = self.recipe.embedder_start or last
        return self.encoder if number == last else self._phase_folder(number - 1)

    @property
    def encoder(self) -> Path:
        """Folder of the encoder as it is bundled, in half precision: classifier and embedder start from its weights.

        So fine-tuning the bundled encoder by the same recipe and seed reproduces the bundled classifier.
        """
        is_unchanged = self._num_phases_before == len(self.recipe.encoder)
        return (self._out if is_unchanged else self._work) / "encoder"

    def _work_folder(self, name: str, recipe: Any) -> Path:
        """Return the folder that a model is trained in; it depends on the encoder and RECIPE."""
        return self._work / f"{name}-{fingerprint([ModelFolder(self.encoder).digest(), recipe])[:8]}"

    @property
    def _classifier(self) -> Path:
        return self._work_folder("classifier", self.recipe.classifier.model_dump())

    @property
    def _embedder(self) -> Path:
        recipe = [*self._recipe_of("embedder", self.recipe), self._num_stages_before]
        return self._work_folder("embedder", recipe)

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
            if self._recipe_of(name, earlier) == self._recipe_of(name, self.recipe)
            and self._before[name].get("encoder_sha256") == encoder_sha256
        }
        if "embedder" not in kept and self._before["embedder"].get("encoder_sha256") == encoder_sha256:
            self._num_stages_before = self._num_reusable_stages(earlier)
        return len(past), frozenset({"encoder"} | kept)

    def _num_reusable_stages(self, earlier: BundleRecipe) -> int:
        """Return the number of stages of an EARLIER embedder if the recipe only adds stages after them, otherwise 0."""
        (past, *past_parts), (now, *parts) = (self._recipe_of("embedder", recipe) for recipe in (earlier, self.recipe))
        stages, all_stages = past["stages"], now.get("stages", [])
        is_longer = stages == all_stages[: len(stages)] and past | {"stages": all_stages} == now
        return len(stages) if is_longer and past_parts == parts else 0

    @staticmethod
    def _recipe_of(name: str, recipe: BundleRecipe) -> list[Any]:
        """Return what decides a model beside the encoder."""
        names = [name, *(EMBEDDER_PARTS if name == "embedder" else ())]
        values = recipe.model_dump()
        return [values[part] for part in names]

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
        # Text and vocabulary are the encoder's; the embedder's phases and stages make what they need.
        kept = self._kept | ({"corpus", "vocabulary"} if "encoder" in self._kept and until in MODELS else set())
        for name in STEPS[: STEPS.index(until) + 1]:
            if name in kept:
                continue
            logger.info("%s …", name)
            steps[name]()

    def _make_corpus(self, name: str = "") -> Path:
        name = name or self.recipe.corpus
        sources, config = recipe_inputs(self.corpora.get(name) or read_corpus_recipe(name), self._root)
        build(sources, self._materials.corpus(name), config, tasks=self._num_workers)
        return self._materials.corpus(name)

    def _make_vocabulary(self, vocabulary: Vocabulary | None = None) -> None:
        folder = self._materials.vocabulary(vocabulary)
        if (folder / "tokenizer.json").is_file():
            return
        config: VocabConfig = vocabulary or self.recipe.vocabulary
        corpus = self._make_corpus(vocabulary.corpus if vocabulary else "")
        texts = (text for file in corpus_files(corpus) for text in corpus_texts(file))
        settings = config.model_dump(include={"min_frequency", "limit_alphabet", "num_unused", "segmentation"})
        save_tokenizer(train_wordpiece(texts, config.vocab_size, **settings), folder)

    def _make_vectors(self, phase: Phase) -> None:
        corpus, out, settings = (
            self._materials.corpus(phase.corpus),
            self._materials.vectors(phase.corpus),
            self.recipe.teacher,
        )
        if (out / SHARDS).is_file() or settings is None:
            return
        if self._teacher is None:
            what = f"the vectors of {phase.corpus} are not computed yet"
            raise UsageError("--teacher", what, "give the folder of the teacher, or leave out --models embedder")
        teacher = Embedder.load(self._teacher, is_int8=settings.is_int8)
        texts = [text for file in corpus_files(corpus) for text in corpus_texts(file)]
        write_vectors(
            texts, teacher, out, prompt=settings.prompt, attribution=settings.attribution, batch_size=BATCH_SIZE
        )

    def _pretrain(self, phase: Phase, out: Path) -> None:
        self._make_corpus(phase.corpus)
        self._make_vocabulary(phase.vocabulary)
        if phase.has_teacher:
            self._make_vectors(phase)
        Run(phase.recipe, out, cache=self._work / "data", num_workers=self._num_workers).train()

    def _make_encoder(self) -> None:
        new = range(self._num_phases_before, len(self.phases))
        is_same = self.phases[new[0]].vocabulary == self.phases[new[0] - 1].vocabulary if new else True
        if self._before and is_same:
            self._make_vocabulary(self.phases[-1].vocabulary)
            if sha256(self._vocabulary / "vocab.txt") != self._before["encoder"]["vocabulary_sha256"]:
                what = "the bundled encoder has another vocabulary than the one that this text gives"
                raise ResultError(self._out, what, "leave out --continue to train everything from scratch")
        for number in new:
            self._pretrain(self.phases[number], self._phase_folder(number))
        copy_model(self._phase_folder(len(self.phases) - 1), self.encoder, in_half_precision=True)

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
            overrides={"layers": self.phases[-1].recipe.model.num_hidden_layers} | training.distill,
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
        for corpus in self._stage_corpora.values():
            self._make_corpus(corpus)
        start = self._out / "embedder" if self._num_stages_before else self._pretrain_embedder()
        train_embedder(start, self.embedder_recipe, out=self._embedder, data=self._root)

    def _pretrain_embedder(self) -> Path:
        """Train the phases of the embedder alone, and return the folder that its stages start from."""
        start = self._embedder_start
        if not start.is_dir():
            what = f"phase {self.recipe.embedder_start} of the encoder, which the embedder continues from, is not here"
            raise ResultError(start, what, "give the work folder that it was trained in, or leave out --continue")
        # The folders are those of the encoder that there is now.
        self.embedder_phases = self._read_embedder_phases()
        for number, phase in enumerate(self.embedder_phases):
            start = self._embedder_phase_folder(number)
            self._pretrain(phase, start)
        return start

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
                # The encoder and the embedder are saved in half precision already. tokenizer.json holds what vocab.txt
                # does; the encoder keeps it for tools that read nothing else.
                is_classifier = name == "classifier"
                left_out = ["vocab.txt"] if is_classifier else []
                copy_model(source, self._stored(name), in_half_precision=is_classifier, left_out=left_out)
        manifest = self._manifest()
        current = manifest["encoder"]["sha256"]
        outdated = {name for name in MODELS if manifest[name].get("encoder_sha256", current) != current}
        # Whatever may fail comes before the first change in OUT.
        entries = [entry for name in MODELS for entry in files_of(self._stored(name)).values()]
        entries += [entry for name, entry in files_of(out).items() if name.partition("/")[0] not in MODELS]
        size = sum(entry["size_bytes"] for entry in entries)
        if size > MAX_BYTES:
            what = f"{size / 1e6:.1f} MB, more than the {MAX_BYTES / 1e6:.0f} MB that may be bundled"
            raise ResultError(out, what, "make the encoder smaller")
        cards = {name: card(name, manifest, is_outdated=name in outdated) for name in MODELS}
        for name, text in cards.items():
            if name not in self._kept:
                copy_model(self._stored(name), out / name, in_half_precision=False)
            write_text(out / name / "README.md", text)
        manifest["files"] = files_of(out)
        write_json(out / MANIFEST, manifest)
        return manifest

    def _stored(self, name: str) -> Path:
        """Return the folder of a model as it is stored.

        A new one is opened there for its scores: what lies in OUT is checked against the manifest that lies there, too.
        """
        return (self._out if name in self._kept else self._work / "stored") / name

    def _manifest(self) -> dict[str, Any]:
        collectors = (self._encoder_facts, self._classifier_facts, self._embedder_facts)
        facts = {
            name: self._before[name] if name in self._kept else collect()
            for name, collect in zip(MODELS, collectors, strict=True)
        }
        facts["encoder"] |= {"sha256": ModelFolder(self._stored("encoder")).digest()}
        recipe = self.recipe.model_dump()
        recipe |= {name: self._before["recipe"][name] for name in ("classifier", "embedder") if name in self._kept}
        if "embedder" in self._kept:
            recipe |= {name: self._before["recipe"].get(name, default) for name, default in EMBEDDER_PARTS.items()}
        is_kept = "encoder" in self._kept
        return {
            "schema": 1,
            "licence": self.corpora[self.recipe.corpus].licence,
            "recipe": recipe,
            "sources": self._before["sources"]
            if is_kept
            else self._sources(self.recipe.corpus, *(phase.corpus for phase in self.phases)),
        } | facts

    def _sources(self, *corpora: str, past: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
        """Return the sources of corpora, each once, after those of the PAST."""
        found = {source["title"]: source for source in past}
        for name in dict.fromkeys(corpora):
            records = read_manifest(self._materials.corpus(name)).sources
            for entry, source in zip(self.corpora[name].sources, records, strict=True):
                found.setdefault(
                    entry.title,
                    entry.model_dump(include={"title", "origin", "licence"})
                    | source.model_dump(include={"name", "sha256", "num_kept", "num_held_out", "num_chars", "dropped"}),
                )
        return list(found.values())

    def _encoder_facts(self) -> dict[str, Any]:
        new = range(self._num_phases_before, len(self.phases))
        runs = [read_json(self._phase_folder(number) / "manifest.json") for number in new]
        past = self._before.get("encoder", {"tokens": 0, "elapsed_s": 0, "device": [], "precision": []})
        # An uninterrupted run keeps full precision between these phases, and ends in other bytes.
        stored = past.get("stored_after", []) + ([self._num_phases_before] if self._before else [])
        facts = {key: runs[-1][key] for key in ("num_parameters", "num_positions", "versions")}
        return facts | {
            "vocabulary_sha256": sha256(self._vocabulary / "vocab.txt"),
            "tokens": past["tokens"] + sum(run["tokens"] for run in runs),
            "elapsed_s": round(past["elapsed_s"] + sum(run["elapsed_s"] for run in runs), 1),
            "device": past["device"] + [run["device"] for run in runs],
            "precision": past["precision"] + [run["precision"] for run in runs],
            "stored_after": stored,
            "attribution": self._attribution(self.phases),
            "corpus": Path(self.phases[-1].corpus).stem,
            "held_out": evaluate_mlm(self._stored("encoder"), self._materials.corpus(self.phases[-1].corpus)),
        }

    def _attribution(self, phases: Sequence[Phase]) -> str:
        """Return the line that names the teacher of PHASES; empty without one."""
        teacher = self.recipe.teacher if any(phase.has_teacher for phase in phases) else None
        return teacher.attribution if teacher else ""

    def _classifier_facts(self) -> dict[str, Any]:
        task = get_task(self.recipe.classifier.task)
        finetuned = read_json(self._classifier / "result.json")
        return {
            "task": task.name,
            "encoder_sha256": finetuned["recipe"]["encoder_sha256"],
            "split": task.eval_split,
            "seed": finetuned["seed"],
            "data_sha256": finetuned["data_sha256"],
            "finetune": finetuned["recipe"]["finetune"],
            "unlabelled": finetuned["recipe"].get("unlabelled"),
            "teachers": [read_json(teacher / "result.json")["metrics"] for teacher in self._teachers],
            "elapsed_s": finetuned["train_s"],
            "metrics": score_classifier(self._stored("classifier"), task, self._root),
        }

    def _embedder_facts(self) -> dict[str, Any]:
        embedder = read_json(self._embedder / "manifest.json")
        facts = {"encoder_sha256": ModelFolder(self.encoder).digest()} | {key: embedder[key] for key in EMBEDDER_FACTS}
        corpora = [name for name in self._stage_corpora.values() if name != self.recipe.corpus]
        if self._num_stages_before:
            past: dict[str, Any] = self._before["embedder"]
            facts["train_s"] = round(facts["train_s"] + past["train_s"], 1)
            # An uninterrupted run keeps full precision between these stages, and ends in other bytes.
            facts["stored_after_stages"] = [*past.get("stored_after_stages", []), self._num_stages_before]
            return past | facts | {"sources": self._sources(*corpora, past=past.get("sources", []))}
        if self.embedder_phases:
            folders = [self._embedder_phase_folder(number) for number in range(len(self.embedder_phases))]
            runs = [read_json(folder / "manifest.json") for folder in folders]
            facts |= {
                "num_positions": runs[-1]["num_positions"],
                "tokens": sum(run["tokens"] for run in runs),
                "elapsed_s": round(sum(run["elapsed_s"] for run in runs), 1),
                "device": [run["device"] for run in runs],
                "attribution": self._attribution(self.embedder_phases),
            }
        return facts | {"sources": self._sources(*(phase.corpus for phase in self.embedder_phases), *corpora)}
