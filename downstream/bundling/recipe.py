"""The recipe of the bundled models, and the folders of what their encoders are pretrained from.

corpus = "open_korean"                  # of the vocabulary, and of every phase that names no other

[vocabulary]
vocab_size = 16_000

[[encoder]]                             # phases of pretraining; each continues from the weights of the one before
objective = "dynamic_mlm"

[[embedder_phases]]                     # of the embedder alone; the first one continues from `embedder_start`
corpus = "open_korean_sentences"
vocabulary = { vocab_size = 16_000, segmentation = "morpheme", corpus = "open_korean_2" }
init = { embeddings = "by_pieces" }
objective = "teacher_vectors"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from corpora.foundation.config import Config, load_toml, validate
from corpora.foundation.errors import RecipeError
from corpora.foundation.files import fingerprint
from corpora.sources import CorpusRecipe, read_corpus_recipe
from downstream.encoders.folder import BUNDLED
from pretraining.recipe import Recipe, check_recipe
from pretraining.vocabulary.wordpiece import VocabConfig

RECIPE = "recipe.toml"
CORPUS = "corpus"
"""Name of the encoder's training corpus in the embedder's stages; `corpus:NAME` is that of another recipe."""
TEACHER_OBJECTIVE = "teacher_vectors"
"""Objective whose vectors are computed here."""


class Vocabulary(VocabConfig):
    """A vocabulary of a phase."""

    corpus: str = ""
    """Recipe of the text that it is trained on; default: that of the phase."""


class Teacher(Config):
    """A published encoder whose sentence vectors are learnt from; its folder is given with the command."""

    prompt: str = ""
    """Written before every text."""
    is_int8: bool = True
    """Weights of 8 bits."""
    attribution: str
    """Line for the cards, with the teacher's name and licence."""


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
    """Pretraining recipes, one a phase; corpus, tokenizer and initial weights are filled in. A phase may have a
    `corpus` and a `vocabulary` of its own; the phases after it keep the vocabulary."""
    classifier: ClassifierRecipe = ClassifierRecipe()
    embedder: dict[str, Any]
    """Recipe of the embedder; the source `corpus` is the encoder's training corpus, `corpus:NAME` another one."""
    embedder_phases: list[dict[str, Any]] = Field(default_factory=list)
    """Pretraining of the embedder alone, before its stages."""
    embedder_start: int | None = Field(default=None, ge=1)
    """Phase of the encoder, counted from 1, after which the embedder's own begin; default: the last."""
    teacher: Teacher | None = None
    """Of the phases with the objective `teacher_vectors`."""


def read_bundle_recipe(path: Path = BUNDLED / RECIPE) -> BundleRecipe:
    """Read the recipe of the bundled models.

    Raises:
        RecipeError: it has an unknown key or a wrong value.
    """
    return validate(BundleRecipe, load_toml(path), path)


@dataclass(frozen=True)
class Materials:
    """The folders of corpora, vocabularies and vectors under the work folder, by what decides them."""

    work: Path
    recipe: BundleRecipe

    def corpus(self, name: str = "") -> Path:
        """Return the folder of a corpus; that of the whole bundle without a name."""
        is_own = name not in {"", self.recipe.corpus}
        return self.work / (f"corpus-{Path(name).stem}" if is_own else "corpus")

    def vocabulary(self, vocabulary: Vocabulary | None = None) -> Path:
        """Return the folder of a tokenizer; that of the whole bundle without an argument."""
        return self.work / ("vocabulary" if vocabulary is None else f"vocabulary-{_digest(vocabulary)}")

    def vectors(self, corpus: str) -> Path:
        """Return the folder with the teacher's vectors of a corpus."""
        teacher = self.recipe.teacher
        assert teacher is not None
        return self.work / f"vectors-{Path(corpus).stem}-{_digest(teacher)}"


def _digest(config: Config) -> str:
    return fingerprint(config.model_dump())[:8]


@dataclass(frozen=True)
class Phase:
    """A phase of pretraining."""

    recipe: Recipe
    corpus: str
    """Recipe of its text."""
    vocabulary: Vocabulary | None
    """None: that of the whole bundle."""

    @property
    def has_teacher(self) -> bool:
        """Whether it learns from a teacher's vectors."""
        return bool(self.recipe.objective["name"] == TEACHER_OBJECTIVE)


def corpus_recipes(names: Sequence[str]) -> dict[str, CorpusRecipe]:
    """Return corpus recipes by name, each once.

    Raises:
        RecipeError: one is unknown or wrong.
    """
    return {name: read_corpus_recipe(name) for name in dict.fromkeys(names)}


def stage_corpora(own: str, stages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the corpus recipe of each source of an embedder's stages that is a corpus.

    Args:
        own: recipe of the encoder's corpus.
        stages: of the embedder.
    """
    sources = dict.fromkeys(source for stage in stages for source in stage.get("data", []))
    names = {source: source.partition(":") for source in sources}
    return {source: name or own for source, (kind, _, name) in names.items() if kind == CORPUS}


def read_phases(
    phases: Sequence[Mapping[str, Any]],
    materials: Materials,
    folders: Sequence[Path],
    *,
    start: Path | None,
    key: str,
) -> list[Phase]:
    """Return the phases of a chain.

    Args:
        phases: of the recipe.
        materials: folders of what they are trained on.
        folders: of their models, one a phase.
        start: model that the first one continues from; None: random weights.
        key: of the phases in the recipe, for error messages.

    Raises:
        RecipeError: a phase is wrong.
    """
    recipe = materials.recipe
    shape = dict(recipe.encoder[0].get("model", {}))
    found: list[Phase] = []
    vocabulary: Vocabulary | None = None
    for number, given in enumerate(phases):
        where = f"recipe, {key}, phase {number + 1}"
        values = dict(given)
        corpus = str(values.pop("corpus", recipe.corpus))
        if own := values.pop("vocabulary", None):
            vocabulary = validate(Vocabulary, own, f"{where}, vocabulary")
            vocabulary = vocabulary.model_copy(update={"corpus": vocabulary.corpus or corpus})
        places = {"corpus": str(materials.corpus(corpus)), "tokenizer": str(materials.vocabulary(vocabulary))}
        init = folders[number - 1] if number else start
        if init is not None:
            # The architecture is that of the first phase, the weights those of the previous phase.
            values["model"] = shape | dict(values.get("model", {})) | {"init": str(init)}
        objective = values.get("objective")
        objective = {"name": objective} if isinstance(objective, str) else dict(objective or {})
        if objective.get("name") == TEACHER_OBJECTIVE:
            if recipe.teacher is None:
                raise RecipeError(where, f"objective {TEACHER_OBJECTIVE} without a teacher", "add a section [teacher]")
            objective["vectors"] = str(materials.vectors(corpus))
        values |= {"objective": objective, "data": dict(values.get("data", {})) | places}
        found.append(Phase(check_recipe(values, where), corpus, vocabulary))
    return found
