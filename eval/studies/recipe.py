"""What an experiment is: a question, arms that differ in one thing, tasks that answer it. TOML under `eval/studies/`.

title = { ko = "목적함수", en = "The objective" }
question = { ko = "…", en = "…" }
source = "Devlin et al. 2019, table 5"
tokens = 20_000_000
tasks = ["nsmc", "klue-nli-devsplit"]
baseline = "mlm-nsp"

[pretraining]                      # of all arms, a recipe of `pretraining.run`
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
from corpora.sources import read_corpus_recipe
from downstream.task import FinetuneConfig, get_task
from pretraining.recipe import Recipe, check_recipe, set_value
from pretraining.vocabulary.wordpiece import VocabConfig

STUDIES = package_path("eval", "studies")
QUARTERS: Final = 4
"""Into which a run is divided: after each it leaves its model."""


class Words(Config):
    """A text in both languages."""

    ko: str
    en: str


class Phase(Config):
    """What an arm reads before the rest."""

    tokens: int = Field(ge=1)
    """Out of the arm's budget."""
    pretraining: dict[str, Any] = Field(default_factory=dict)
    """Departures from the arm's recipe."""


class Arm(Config):
    """One of the compared encoders."""

    title: Words
    pretraining: dict[str, Any] = Field(default_factory=dict)
    """Departures from the study's recipe, section by section; an objective replaces the other."""
    vocabulary: dict[str, Any] = Field(default_factory=dict)
    """Departures from the study's vocabulary."""
    corpus: str = ""
    """Another corpus recipe than the study's; the vocabulary stays that of the study's corpus."""
    tokens: int | None = Field(default=None, ge=1)
    """Another budget than the study's."""
    first: Phase | None = None
    """A run before, from whose weights this one goes on with what is left of the budget."""
    quarters: Literal[1, 2, 3, 4] = QUARTERS
    """Of its run, after which the encoder is taken as it is then; arms that differ in this alone share one run."""
    is_random: bool = False
    """The shape with its first weights: what pretraining is worth."""
    encoder: str = ""
    """Folder, hub id or known encoder that is there already; nothing is pretrained then."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Departures from the study's fine-tuning."""
    at: float | None = None
    """Its place on the axis of the chart."""
    line: str = ""
    """Which line of the chart its score belongs to; English."""


class Axis(Config):
    """Across what the chart draws scores, if not one below the other."""

    title: str
    """English."""
    is_log: bool = False


class PaperTable(Config):
    """The paper's own figures, to be printed beside ours."""

    title: str
    columns: list[str]
    rows: dict[str, list[float | str]]
    """By what the paper calls its arms."""


class Study(Config):
    """Everything that decides an experiment but the data."""

    name: str
    title: Words
    question: Words
    reading: Words = Words(ko="", en="")
    """What the figures show at this scale, and what they cannot; written by people who have read them."""
    source: str
    """The paper that asked first."""
    paper: list[PaperTable] = Field(default_factory=list)
    corpus: str = "open_korean"
    """A corpus recipe."""
    vocabulary: VocabConfig = VocabConfig(vocab_size=16_000)
    encoder: str = ""
    """Folder, hub id or known encoder of all arms that name no other and are not random; nothing is pretrained then."""
    pretraining: dict[str, Any] = Field(default_factory=dict)
    """A recipe of pretraining; corpus, tokenizer and the number of steps are filled in."""
    tokens: int = Field(default=20_000_000, ge=1)
    """Real tokens that each arm sees, special ones included, padding not: the same budget for all."""
    warmup_share: float = Field(default=0.1, ge=0, lt=1)
    """Of the steps."""
    tasks: list[str] = Field(min_length=1)
    seeds: int = Field(default=3, ge=1)
    """Of fine-tuning; each arm is pretrained once."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Departures from the tasks' fine-tuning defaults."""
    task_finetune: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Further departures on single tasks, by task; an arm's own have the last word."""
    baseline: str
    """The arm that the others are held against."""
    pairs: list[tuple[str, str]] = Field(default_factory=list)
    """Further pairs to tell the difference of: an arm, and what it is held against."""
    axis: Axis | None = None
    arms: dict[str, Arm]
    overrides: list[str] = Field(default_factory=list)
    """What was set differently from the file, as by `--set`."""

    def compared(self) -> list[tuple[str, str]]:
        """Return the pairs whose difference is told: all arms against the baseline, then those asked for."""
        pairs = [(arm, self.baseline) for arm in self.arms if arm != self.baseline]
        return pairs + [pair for pair in self.pairs if pair not in pairs]

    def encoder_of(self, arm: str) -> str:
        """Return the encoder that an arm finds there already; empty if it has to be made."""
        return self.arms[arm].encoder or ("" if self.arms[arm].is_random else self.encoder)

    def finetune_of(self, arm: str, task: str = "") -> dict[str, Any]:
        """Return an arm's departures from a task's fine-tuning defaults; without a name, from those of all others."""
        return self.finetune | self.task_finetune.get(task, {}) | self.arms[arm].finetune

    def same_run(self, arm: str) -> list[str]:
        """Return the arms whose encoders come from the run that an arm's comes from, the arm among them."""

        def run(name: str) -> dict[str, Any]:
            return self.arms[name].model_dump(exclude={"title", "quarters", "finetune", "at", "line"})

        return [name for name in self.arms if run(name) == run(arm)]

    def tokens_of(self, arm: str) -> int:
        """Return an arm's budget of tokens, with what it reads in a first phase."""
        return self.arms[arm].tokens or self.tokens

    def vocabulary_of(self, arm: str) -> VocabConfig:
        """Return an arm's vocabulary."""
        values = self.vocabulary.model_dump() | self.arms[arm].vocabulary
        return validate(VocabConfig, values, f"study {self.name}, arm {arm}, vocabulary")

    def recipe_of(self, arm: str, corpus: Path, tokenizer: Path, *, is_first: bool = False) -> Recipe:
        """Return an arm's recipe of pretraining, its number of steps still to be set.

        Args:
            arm: its name.
            corpus: folder.
            tokenizer: folder.
            is_first: of its first phase.

        Raises:
            RecipeError: it is wrong.
        """
        settings = self.arms[arm]
        values = merge(self.pretraining, settings.pretraining)
        if is_first and settings.first:
            values = merge(values, settings.first.pretraining)
        values["data"] = values.get("data", {}) | {"corpus": str(corpus), "tokenizer": str(tokenizer)}
        # Until the rows are counted; a warm-up must fit into it.
        values["loop"] = values.get("loop", {}) | {"warmup_steps": 0, "steps": 1}
        return check_recipe(values, f"study {self.name}, arm {arm}")


def merge(base: Mapping[str, Any], departures: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's values with others in their place: key by key within a section, an objective as a whole."""
    merged = dict(base)
    for section, values in departures.items():
        known = merged.get(section)
        if isinstance(values, Mapping) and isinstance(known, Mapping) and section != "objective":
            merged[section] = {**known, **values}
        else:
            merged[section] = values
    return merged


def read_study(name: str, overrides: Sequence[str] = ()) -> Study:
    """Read a study: a TOML file, or one of ours by its name.

    Args:
        name: path, or name of a file in `STUDIES`.
        overrides: `section.key=value` strings, as from `--set`: another scale.

    Raises:
        RecipeError: there is none of that name, or it is wrong somewhere.
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
        raise RecipeError(path, f"baseline '{study.baseline}' is no arm", suggest(study.baseline, study.arms))
    for name in (name for pair in study.pairs for name in pair):
        if name not in study.arms:
            raise RecipeError(path, f"'{name}' of the pairs is no arm", suggest(name, study.arms))
    for task in study.tasks:
        get_task(task)
    for task in study.task_finetune.keys() - set(study.tasks):
        raise RecipeError(path, f"'{task}' of task_finetune is no task of the study", suggest(task, study.tasks))
    for name in study.arms:
        _check_arm(study, name, f"{path}, arm {name}")
    return study


def _check_arm(study: Study, name: str, where: str) -> None:
    """Refuse an arm that is wrong somewhere.

    Raises:
        RecipeError: it is.
    """
    arm, encoder = study.arms[name], study.encoder_of(name)
    if (arm.at is None) is not (study.axis is None):
        raise RecipeError(where, "`at` and `axis` go together", "give every arm its place, or leave out both")
    if (arm.encoder and arm.is_random) or (encoder and (arm.pretraining or arm.quarters != QUARTERS)):
        raise RecipeError(where, "an encoder that is there is not pretrained", "leave out one of the two")
    is_whole = not (encoder or arm.is_random or arm.quarters != QUARTERS)
    if arm.first and not (is_whole and arm.first.tokens < study.tokens_of(name)):
        fix = "give it to an arm that is pretrained to its end, with fewer tokens than the arm has"
        raise RecipeError(where, "this arm cannot have a first phase", fix)
    for task in ("", *study.task_finetune):
        validate(FinetuneConfig, study.finetune_of(name, task), f"{where}, finetune")
    if not encoder:
        read_corpus_recipe(arm.corpus or study.corpus)
        study.vocabulary_of(name)
        for is_first in (False, True):
            study.recipe_of(name, Path("corpus"), Path("vocabulary"), is_first=is_first)
