"""The file of a study: a question, arms that differ in one factor, tasks to score them. TOML under `eval/studies/`.

title = { ko = "목적함수", en = "The objective" }
question = { ko = "…", en = "…" }
source = "Devlin et al. 2019, table 5"
tokens = 20_000_000
tasks = ["nsmc", "klue-nli-devsplit"]
baseline = "mlm-nsp"

[pretraining]                      # recipe of `pretraining.run`, for all arms
objective = "dynamic_mlm"
model = { hidden_size = 256, num_hidden_layers = 4, num_attention_heads = 4 }

[arms.mlm-nsp]
title = { ko = "MLM + NSP", en = "MLM + NSP" }
pretraining = { objective = { name = "static_mlm_nsp", dupe_factor = 2 } }
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from corpora.foundation.config import Config, load_toml, validate
from corpora.foundation.errors import RecipeError, suggest
from corpora.foundation.files import package_path
from corpora.foundation.texts import Language
from corpora.sources import read_corpus_recipe
from downstream.task import FinetuneConfig, get_task
from pretraining.recipe import Recipe, check_recipe, set_value
from pretraining.vocabulary.wordpiece import VocabConfig

STUDIES = package_path("eval", "studies")
QUARTERS: Final = 4
"""Parts of a run; it exports its model after each."""


class Bilingual(Config):
    """A text of a study's file in both languages."""

    ko: str
    en: str

    def text(self, language: Language) -> str:
        """Return the text in one language."""
        return self.ko if language == "ko" else self.en


class Phase(Config):
    """A first phase of pretraining with settings of its own."""

    tokens: int = Field(ge=1)
    """Of the arm's budget."""
    pretraining: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the arm's recipe."""


class Arm(Config):
    """One of the compared encoders."""

    title: Bilingual
    pretraining: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the study's recipe, key by key; an objective is replaced as a whole."""
    vocabulary: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the study's vocabulary."""
    corpus: str = ""
    """Corpus recipe instead of the study's; the vocabulary is still trained on the study's corpus."""
    tokens: int | None = Field(default=None, ge=1)
    """Budget instead of the study's."""
    first: Phase | None = None
    """A run before this one, which starts from its weights and uses the rest of the budget."""
    quarters: Literal[1, 2, 3, 4] = QUARTERS
    """The encoder is the model after this quarter of the run; arms that differ in nothing else share one run."""
    is_random: bool = False
    """Randomly initialized weights instead of pretraining."""
    encoder: str = ""
    """Existing encoder, as a folder, hub id or known name; nothing is pretrained then."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the study's fine-tuning."""
    tasks: list[str] | None = Field(default=None, min_length=1)
    """Those of the study's that it is scored on; None: all. Some networks have no head for some tasks."""
    at: float | None = None
    """Position on the axis of the chart."""
    line: str = ""
    """Line of the chart that its score belongs to, in English."""


class Axis(Config):
    """Horizontal axis of the chart."""

    title: str
    """In English."""
    is_log: bool = False


class PaperTable(Config):
    """Figures of the paper, printed beside ours."""

    title: str
    columns: list[str]
    rows: dict[str, list[float | str]]
    """By the paper's names of its models."""


class Study(Config):
    """Everything that decides a study except the data."""

    name: str
    title: Bilingual
    question: Bilingual
    reading: Bilingual = Bilingual(ko="", en="")
    """Findings and limits, written by people who have read the results."""
    source: str
    """The paper that the question comes from."""
    paper: list[PaperTable] = Field(default_factory=list)
    corpus: str = "open_korean"
    """A corpus recipe."""
    vocabulary: VocabConfig = VocabConfig(vocab_size=16_000)
    encoder: str = ""
    """Existing encoder of all arms that name no other and are not random; nothing is pretrained then."""
    pretraining: dict[str, Any] = Field(default_factory=dict)
    """Recipe of pretraining; corpus, tokenizer and number of steps are filled in."""
    tokens: int = Field(default=20_000_000, ge=1)
    """Budget of each arm: tokens including special ones, without padding."""
    warmup_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps with warm-up."""
    tasks: list[str] = Field(min_length=1)
    seeds: int = Field(default=3, ge=1)
    """Seeds of fine-tuning; each arm is pretrained once."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the tasks' fine-tuning defaults."""
    task_finetune: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Further overrides by task; those of an arm take precedence."""
    baseline: str
    """The arm that all others are compared with."""
    pairs: list[tuple[str, str]] = Field(default_factory=list)
    """Further pairs to compare: an arm, and what it is compared with."""
    axis: Axis | None = None
    is_by_source: bool = False
    """Whether the page has a table of the held-out bits per character of every source of the study's corpus."""
    arms: dict[str, Arm]
    overrides: list[str] = Field(default_factory=list)
    """Settings that replace those of the file, as from `--set`."""

    def compared(self) -> list[tuple[str, str]]:
        """Return the pairs that are compared: all arms against the baseline, then the further pairs."""
        pairs = [(arm, self.baseline) for arm in self.arms if arm != self.baseline]
        return pairs + [pair for pair in self.pairs if pair not in pairs]

    def encoder_of(self, arm: str) -> str:
        """Return an arm's existing encoder; empty if it has to be pretrained or is random."""
        return self.arms[arm].encoder or ("" if self.arms[arm].is_random else self.encoder)

    def finetune_of(self, arm: str, task: str = "") -> dict[str, Any]:
        """Return an arm's overrides of a task's fine-tuning defaults; without a name, those of tasks not named."""
        return self.finetune | self.task_finetune.get(task, {}) | self.arms[arm].finetune

    def tasks_of(self, arm: str) -> list[str]:
        """Return the tasks that an arm is scored on, in the study's order."""
        own = self.arms[arm].tasks
        return [task for task in self.tasks if own is None or task in own]

    def same_run(self, arm: str) -> list[str]:
        """Return the arms whose encoders come from the same run as an arm's, the arm included."""

        def run(name: str) -> dict[str, Any]:
            return self.arms[name].model_dump(exclude={"title", "quarters", "finetune", "tasks", "at", "line"})

        return [name for name in self.arms if run(name) == run(arm)]

    def tokens_of(self, arm: str) -> int:
        """Return an arm's budget of tokens, its first phase included."""
        return self.arms[arm].tokens or self.tokens

    def vocabulary_of(self, arm: str) -> VocabConfig:
        """Return an arm's vocabulary."""
        values = self.vocabulary.model_dump() | self.arms[arm].vocabulary
        return validate(VocabConfig, values, f"study {self.name}, arm {arm}, vocabulary")

    def recipe_of(self, arm: str, corpus: Path, tokenizer: Path, *, is_first: bool = False) -> Recipe:
        """Return an arm's recipe of pretraining; the caller sets its number of steps.

        Args:
            arm: its name.
            corpus: folder.
            tokenizer: folder.
            is_first: whether to return that of its first phase.

        Raises:
            RecipeError: the recipe is invalid.
        """
        settings = self.arms[arm]
        values = merge(self.pretraining, settings.pretraining)
        if is_first and settings.first:
            values = merge(values, settings.first.pretraining)
        values["data"] = values.get("data", {}) | {"corpus": str(corpus), "tokenizer": str(tokenizer)}
        # Valid until the rows are counted and the steps are known.
        loop = values.get("loop", {})
        values["loop"] = loop | {"warmup_steps": 0, "steps": 1 + loop.get("decay_steps", 0)}
        return check_recipe(values, f"study {self.name}, arm {arm}")


def merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's values with overrides: key by key within a section, an objective as a whole."""
    merged = dict(base)
    for section, values in overrides.items():
        known = merged.get(section)
        if isinstance(values, Mapping) and isinstance(known, Mapping) and section != "objective":
            merged[section] = {**known, **values}
        else:
            merged[section] = values
    return merged


def read_study(name: str, overrides: Sequence[str] = ()) -> Study:
    """Read a study from a TOML file, or one of ours by its name.

    Args:
        name: path, or name of a file in `STUDIES`.
        overrides: `section.key=value` strings, as from `--set`.

    Raises:
        RecipeError: there is no such study, or its file is invalid.
    """
    known = {path.stem: path for path in STUDIES.glob("*.toml")}
    path = known.get(name, Path(name))
    if not path.is_file():
        raise RecipeError(name, "no such study", f"give a TOML file, or one of ours: {suggest(name, known)}")
    values = {"name": path.stem, "overrides": list(overrides)} | load_toml(path)
    for override in overrides:
        set_value(values, override)
    study = validate(Study, values, path)
    if study.baseline not in study.arms:
        raise RecipeError(path, f"baseline '{study.baseline}' is not an arm", suggest(study.baseline, study.arms))
    for name in (name for pair in study.pairs for name in pair):
        if name not in study.arms:
            raise RecipeError(path, f"'{name}' of the pairs is not an arm", suggest(name, study.arms))
    for task in study.tasks:
        get_task(task)
    for task in study.task_finetune.keys() - set(study.tasks):
        raise RecipeError(path, f"'{task}' of task_finetune is not a task of the study", suggest(task, study.tasks))
    for name in study.arms:
        _check_arm(study, name, f"{path}, arm {name}")
    return study


def _check_arm(study: Study, name: str, where: str) -> None:
    """Check the settings of an arm.

    Raises:
        RecipeError: they are invalid.
    """
    arm, encoder = study.arms[name], study.encoder_of(name)
    if (arm.at is None) is not (study.axis is None):
        raise RecipeError(where, "`at` and `axis` go together", "give every arm its position, or leave out both")
    for task in set(arm.tasks or ()) - set(study.tasks):
        raise RecipeError(where, f"'{task}' is not a task of the study", suggest(task, study.tasks))
    if (arm.encoder and arm.is_random) or (encoder and (arm.pretraining or arm.quarters != QUARTERS)):
        raise RecipeError(where, "an existing encoder is not pretrained", "leave out one of the two")
    is_complete = not (encoder or arm.is_random or arm.quarters != QUARTERS)
    if arm.first and not (is_complete and arm.first.tokens < study.tokens_of(name)):
        fix = "give it to an arm that is pretrained to its end, with fewer tokens than the arm has"
        raise RecipeError(where, "this arm cannot have a first phase", fix)
    for task in ("", *study.task_finetune):
        validate(FinetuneConfig, study.finetune_of(name, task), f"{where}, finetune")
    if not encoder:
        read_corpus_recipe(arm.corpus or study.corpus)
        study.vocabulary_of(name)
        for is_first in (False, True):
            study.recipe_of(name, Path("corpus"), Path("vocabulary"), is_first=is_first)
