"""A pretraining recipe: objective, model, data and loop, as TOML that lists departures from these defaults only.

objective = { name = "dynamic_mlm", mask_rate = 0.2 }
model = { hidden_size = 256, num_hidden_layers = 4 }
data = { corpus = "corpus", tokenizer = "vocabulary", max_length = 128 }
loop = { steps = 10_000, batch_size = 64 }

`extends = "mini"` makes it a variant of another recipe instead: it lists departures from that one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from corpora.foundation.config import Config, load_toml, validate
from corpora.foundation.errors import RecipeError, suggest
from corpora.foundation.files import SAMPLE_ROOT, package_path
from corpora.foundation.machine import Precision
from pretraining.architectures import ARCHITECTURES
from pretraining.objective import Objective, ObjectiveConfig, get_objective

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

RECIPES = package_path("pretraining", "recipes")
SAMPLE = SAMPLE_ROOT / "news.jsonl"
EXTENDS = "extends"
"""Key of a recipe that lists departures from another one: a name of the package's, or a file beside it."""

BY_PIECES, SKIP_GRAM = "by_pieces", "skip_gram"
"""Values of `init.embeddings`."""


class ModelConfig(Config):
    """Shape of the encoder. Defaults: BERT-base (Devlin et al. 2019, section 3)."""

    architecture: Literal["bert", "electra", "albert", "modernbert", "gpt2", "bart", "t5", "xlnet"] = "bert"
    """See `pretraining.architectures`."""
    hidden_size: int = Field(default=768, ge=8)
    num_hidden_layers: int = Field(default=12, ge=1)
    """Of `bart` and `t5`: of the encoder, and as many of the decoder."""
    num_attention_heads: int = Field(default=12, ge=1)
    intermediate_size: int | None = Field(default=None, ge=8)
    """Width of the feed-forward layer; default 4 × `hidden_size`, two thirds of it in ModernBERT."""
    embedding_size: int | None = Field(default=None, ge=8)
    """Width of the embeddings of `electra` and `albert`; default `hidden_size`."""
    num_hidden_groups: int = Field(default=1, ge=1)
    """Sets of weights that the layers of `albert` share; as many as layers: nothing is shared."""
    local_attention: int = Field(default=128, ge=2)
    """Tokens that the local layers of `modernbert` see, half of them on either side."""
    max_position_embeddings: int = Field(default=512, ge=8)
    """Positions of the network in training; the saved model has those that were trained: `data.max_length`, and those
    of `init`."""
    type_vocab_size: int = Field(default=2, ge=2)
    hidden_dropout_prob: float = Field(default=0.1, ge=0, lt=1)
    """Of `t5` and `xlnet`: in the attention, too."""
    attention_probs_dropout_prob: float = Field(default=0.1, ge=0, lt=1)
    init: str = ""
    """Folder of a model to initialise from, e.g. after a first phase on shorter rows; default: random weights."""

    def network_config(self, vocab_size: int, pad_token_id: int) -> "PreTrainedConfig":
        """Return transformers' configuration of the network."""
        return ARCHITECTURES[self.architecture].config(self, vocab_size, pad_token_id)


class InitConfig(Config):
    """Initial embeddings."""

    embeddings: str = ""
    """Default: those of `model.init`, which has the same vocabulary, or random ones. `by_pieces`: the model in
    `model.init` has another vocabulary, and a token gets the mean of the tokens there that spell it
    (`pretraining.initial_embeddings`); all other weights are copied. FOLDER: in the same way those of another model,
    whose other weights are not used. `skip_gram`: vectors that are trained on the rows first (`pretraining.skip_gram`).
    """
    positions: int | None = Field(default=None, ge=1)
    """Position embeddings of `model.init` that are used, counted from the first; the later ones begin as copies of
    them. Default: all."""


class DataConfig(Config):
    """Corpus, vocabulary and row format."""

    corpus: str = ""
    """Folder made by `python -m corpora.build`, a file, or `sample` for the embedded articles."""
    tokenizer: str = ""
    """Folder made by `python -m pretraining.vocab`; may be empty for the sample corpus, then one is trained."""
    max_length: int = Field(default=512, ge=8)
    """Tokens of a row, special ones included."""
    isolate_documents: bool = True
    """Sequences of a row neither attend to each other nor share positions; false for the papers' input formats."""


class StageConfig(Config):
    """The steps of a run before `until` that have other rows."""

    until: int = Field(ge=1)
    """Number of steps after which the next stage begins."""
    batch_size: int | None = Field(default=None, ge=1)
    """Default: `loop.batch_size`."""
    max_length: int | None = Field(default=None, ge=8)
    """Default: `data.max_length`; not longer, since the saved model has that many positions."""


class ProbeConfig(Config):
    """Labelled texts on which hidden states are tried (`pretraining.probes`)."""

    file: str
    """Of a format in `corpora.readers.records`; not one on which a score is reported."""
    text: str = "text"
    """Column of the text."""
    label: str = "label"
    """Column of the label."""
    num_texts: int = Field(default=2000, ge=50)
    """The first ones of the file."""


class LoopConfig(Config):
    """The training loop. Defaults: Devlin et al. 2019, appendix A.2."""

    steps: int = Field(default=1_000_000, ge=1)
    """Optimizer steps."""
    batch_size: int = Field(default=256, ge=1)
    """Rows per optimizer step, over all processes."""
    stages: list[StageConfig] = Field(default_factory=list)
    """Schedule of batch sizes and lengths of rows: `[{ until = 900, max_length = 128, batch_size = 1024 }]`, in order;
    the steps after the last one have the recipe's values."""
    micro_batch_size: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None
    """Rows that one process computes at a time; `auto`: as many as fit in memory; default: its share of the batch."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """`muon`: matrices between hidden layers use `pretraining.training.optimizers.Muon`, at the same learning rate."""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    """Of Muon."""
    peak_lr: float = Field(default=1e-4, gt=0)
    warmup_steps: int = Field(default=10_000, ge=0)
    decay: Literal["linear", "cosine", "constant", "warmup_stable_decay"] = "linear"
    """Learning rate after the warm-up: falls to 0 at the last step, stays constant, or stays constant up to the last
    `decay_steps` and falls linearly to 0 in them (Hägele et al. 2024)."""
    decay_steps: int = Field(default=0, ge=0)
    """Of `warmup_stable_decay`."""
    extendable: bool = False
    """Keep the state of the last step with the constant rate in `stable/`: the same command with more `steps`, or
    another run with `carry_state`, continues from it."""
    carry_state: bool = False
    """Continue with the optimizers' state of `model.init`, an `extendable` run, instead of a new state."""
    average_last: float = Field(default=0.0, ge=0, lt=1)
    """Share of the steps at the end whose weights are averaged; the mean is what is evaluated last and saved."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Not on biases and LayerNorm weights."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    adam_epsilon: float = Field(default=1e-6, gt=0)
    clip: float = Field(default=1.0, gt=0)
    """Maximum global gradient norm."""
    precision: Precision = "auto"
    recompute_activations: bool = False
    """Compute the activations of a layer again in the backward pass instead of keeping them: less memory, a second
    forward pass."""
    compile: bool = False
    """Compile the encoder with `torch.compile`; faster on GPUs, needs a C++ compiler on CPUs."""
    log_every: int = Field(default=50, ge=1)
    """Steps between lines of `metrics.jsonl`."""
    evaluate_every: int = Field(default=1000, ge=1)
    """Steps between held-out evaluations; there is always one at the end."""
    evaluate_rows: int = Field(default=2048, ge=1)
    """Maximum number of held-out rows per evaluation."""
    probes: list[ProbeConfig] = Field(default_factory=list)
    """Labels that are predicted from hidden states at every evaluation: `[{ file = "reviews.tsv" }]`."""
    checkpoint_every: int = Field(default=1000, ge=1)
    """Steps between checkpoints; there is always one at the end."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Default 2: a damaged checkpoint costs one interval instead of the run."""
    sharded_checkpoints: bool = True
    """If the model is sharded (FSDP), each process writes its part of a checkpoint to a disk that all share; otherwise
    the main process gathers all and writes it. Any number of processes resumes from either."""
    export_steps: list[int] = Field(default_factory=list)
    """Steps after which the model is saved in `step-…` too, to measure scores in the course of a run."""
    max_skipped: int = Field(default=10, ge=0)
    """Consecutive steps with a non-finite gradient that are skipped before the run stops."""

    @property
    def stable_steps(self) -> int:
        """Number of steps that are the same for any larger number of `steps`."""
        after_warmup = {"constant": self.steps, "warmup_stable_decay": self.steps - self.decay_steps}
        without_average = self.steps - round(self.average_last * self.steps)
        return min(after_warmup.get(self.decay, self.warmup_steps), without_average)


class Recipe(Config):
    """Everything that decides a run. `objective` holds the objective's name and settings."""

    objective: dict[str, Any]
    model: ModelConfig = ModelConfig()
    init: InitConfig = InitConfig()
    data: DataConfig = DataConfig()
    loop: LoopConfig = LoopConfig()
    seed: int = Field(default=0, ge=0, lt=1 << 32)

    def objective_parts(self, where: object = "recipe") -> tuple[type[Objective], ObjectiveConfig]:
        """Return the objective's class and its validated settings."""
        settings = dict(self.objective)
        objective = get_objective(str(settings.pop("name", "")), f"{where}, objective.name")
        return objective, validate(objective.settings, settings, f"{where}, objective {objective.name}")


def find_recipe(name: str) -> Path:
    """Return the path of a recipe: a file, or the name of a recipe of the package.

    Raises:
        RecipeError: there is none of that name.
    """
    known = {path.stem: path for path in RECIPES.glob("*.toml")}
    if name in known:
        return known[name]
    if not Path(name).is_file():
        raise RecipeError(name, "no such recipe", f"give a TOML file, or one of ours: {suggest(name, known)}")
    return Path(name)


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and validate a recipe.

    Args:
        path: TOML file.
        overrides: `section.key=value` strings, as from `--set`; values are TOML, or else plain strings.

    Raises:
        RecipeError: a key is unknown, a value is wrong, or two values contradict each other.
    """
    values = _read_values(path)
    for override in overrides:
        set_value(values, override)
    return check_recipe(values, path)


def _read_values(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the content of a recipe, on top of that of the recipe that it extends."""
    values = load_toml(path)
    if EXTENDS not in values:
        return values
    name = str(values.pop(EXTENDS))
    beside = path.parent / name
    base = beside if beside.is_file() else find_recipe(name)
    if base.resolve() in (own := (*seen, path.resolve())):
        raise RecipeError(path, f"{EXTENDS} = '{name}' leads back to {base.name}", "extend a recipe that does not")
    inherited = _read_values(base, own)
    for key, value in values.items():
        kept = inherited.get(key)
        # Settings of another objective mean nothing to this one.
        if key != "objective" and isinstance(value, dict) and isinstance(kept, dict):
            inherited[key] = {**kept, **value}
        else:
            inherited[key] = value
    return inherited


def check_recipe(values: Mapping[str, Any], where: object) -> Recipe:
    """Return the recipe of VALUES, the content of a TOML file.

    Raises:
        RecipeError: as `read_recipe`; the message begins with WHERE.
    """
    if isinstance(values.get("objective"), str):
        values = {**values, "objective": {"name": values["objective"]}}
    recipe = validate(Recipe, dict(values), where)
    _, config = recipe.objective_parts(where)
    for what, fix in _contradictions(recipe, config) + _misfits(recipe):
        raise RecipeError(where, what, fix)
    # With all defaults filled in.
    return recipe.model_copy(update={"objective": {"name": recipe.objective["name"]} | config.model_dump()})


def set_value(values: dict[str, Any], override: str) -> None:
    """Apply a `--set section.key=value` to the content of a TOML file.

    Args:
        values: changed in place.
        override: its value is TOML, or else a plain string.

    Raises:
        RecipeError: it is malformed, or a part of the key is not a section.
    """
    import tomllib

    dotted, equals, text = override.partition("=")
    if not equals or not dotted:
        raise RecipeError("--set", f"'{override}' is not KEY=VALUE", "write e.g. --set loop.steps=1000")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *sections, key = dotted.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if isinstance(inner, str) and section == "objective":
            inner = values[section] = {"name": inner}
        if not isinstance(inner, dict):
            raise RecipeError(
                "--set", f"'{section}' of '{override}' is not a section", "write e.g. --set loop.steps=1000"
            )
        values = inner
    values[key] = value


def _misfits(recipe: Recipe) -> list[tuple[str, str]]:
    """Return settings that the architecture or the objective has no use for."""
    model = recipe.model
    objective, config = recipe.objective_parts()
    is_pair = bool(getattr(config, "next_sentence", False))
    suited = ("bert",) if is_pair else objective.architectures
    rules = [
        (
            model.architecture not in suited,
            f"objective {objective.name} with model.architecture={model.architecture}",
            f"it takes {', '.join(suited)}",
        ),
        (
            not recipe.data.isolate_documents and not objective.across_documents,
            f"data.isolate_documents=false with objective {objective.name}",
            "its rows are segments of single documents",
        ),
        (
            model.embedding_size is not None and model.architecture not in {"electra", "albert"},
            f"model.embedding_size={model.embedding_size} with model.architecture={model.architecture}",
            "electra and albert have factorised embeddings",
        ),
        (
            model.num_hidden_groups > 1 and model.architecture != "albert",
            f"model.num_hidden_groups={model.num_hidden_groups} with model.architecture={model.architecture}",
            "only the layers of albert share weights",
        ),
        (
            recipe.loop.recompute_activations and not ARCHITECTURES[model.architecture].can_recompute,
            f"loop.recompute_activations with model.architecture={model.architecture}",
            "its layers cannot be computed again; use a smaller loop.micro_batch_size",
        ),
        (
            bool(recipe.loop.probes) and not ARCHITECTURES[model.architecture].has_encoder,
            f"loop.probes with model.architecture={model.architecture}",
            "it has no hidden states of single texts here",
        ),
        (
            recipe.init.positions is not None and not model.init,
            "init.positions without model.init",
            "set model.init to the folder of that model",
        ),
        (
            model.num_hidden_groups > model.num_hidden_layers,
            f"model.num_hidden_groups={model.num_hidden_groups} exceeds model.num_hidden_layers="
            f"{model.num_hidden_layers}",
            "give at most one set of weights to each layer",
        ),
    ]
    return [(what, fix) for broken, what, fix in rules if broken]


def _contradictions(recipe: Recipe, config: ObjectiveConfig) -> list[tuple[str, str]]:
    model, data, loop = recipe.model, recipe.data, recipe.loop
    rate = getattr(config, "mask_rate", None)
    max_predictions = getattr(config, "max_predictions", None) or 0
    rules = [
        (
            model.hidden_size % model.num_attention_heads != 0,
            f"model.hidden_size={model.hidden_size} is not divisible by model.num_attention_heads="
            f"{model.num_attention_heads}",
            "change one of them",
        ),
        (
            data.max_length > model.max_position_embeddings,
            f"data.max_length={data.max_length} exceeds model.max_position_embeddings={model.max_position_embeddings}",
            "shorten the rows or give the model more positions",
        ),
        (
            loop.decay != "constant" and loop.warmup_steps >= loop.steps,
            f"loop.warmup_steps={loop.warmup_steps} is not below loop.steps={loop.steps}",
            "shorten the warm-up",
        ),
        (
            (loop.decay == "warmup_stable_decay") != (loop.decay_steps > 0),
            f"loop.decay_steps={loop.decay_steps} with loop.decay={loop.decay}",
            "warmup_stable_decay needs a number of steps for its decay, and nothing else has one",
        ),
        (
            loop.decay_steps > 0 and loop.decay_steps + loop.warmup_steps > loop.steps,
            f"loop.warmup_steps={loop.warmup_steps} and loop.decay_steps={loop.decay_steps} exceed loop.steps="
            f"{loop.steps}",
            "shorten one of them",
        ),
        (
            loop.extendable and (loop.decay not in {"constant", "warmup_stable_decay"} or isinstance(rate, str)),
            f"loop.extendable with loop.decay={loop.decay} and objective.mask_rate={rate}",
            "a run can be lengthened if its learning rate and masking rate do not depend on loop.steps",
        ),
        (
            loop.carry_state and not model.init,
            "loop.carry_state without model.init",
            "set model.init to the folder of an extendable run",
        ),
        (
            recipe.init.embeddings == BY_PIECES and not model.init,
            f"init.embeddings={BY_PIECES} without model.init",
            "set model.init to the folder of a model with another vocabulary",
        ),
        (
            recipe.init.embeddings == SKIP_GRAM and bool(model.init),
            f"init.embeddings={SKIP_GRAM} with model.init",
            "that model has embeddings that were trained",
        ),
        (
            bool(recipe.init.embeddings) and loop.carry_state,
            f"loop.carry_state with init.embeddings={recipe.init.embeddings}",
            "the optimizers' state is that of the old embeddings",
        ),
        (
            isinstance(loop.micro_batch_size, int) and loop.micro_batch_size > loop.batch_size,
            f"loop.micro_batch_size={loop.micro_batch_size} exceeds loop.batch_size={loop.batch_size}",
            "a micro-batch is part of the batch",
        ),
        (
            max_predictions > data.max_length,
            f"objective.max_predictions={max_predictions} exceeds data.max_length={data.max_length}",
            "predict fewer tokens than the row has",
        ),
        *_wrong_stages(recipe),
        (not data.corpus, "data.corpus is missing", "set it to a folder made by python -m corpora.build"),
        (
            bool(data.corpus) and not data.tokenizer and data.corpus != "sample",
            "data.tokenizer is missing",
            "set it to a folder made by python -m pretraining.vocab",
        ),
    ]
    return [(what, fix) for broken, what, fix in rules if broken]


def _wrong_stages(recipe: Recipe) -> list[tuple[bool, str, str]]:
    stages, data = recipe.loop.stages, recipe.data
    ends = [0, *(stage.until for stage in stages)]
    return [
        (
            ends != sorted(set(ends)) or ends[-1] > recipe.loop.steps,
            f"loop.stages end at steps {ends[1:]} of {recipe.loop.steps}",
            "give them in order, none after loop.steps",
        ),
        (
            any((stage.max_length or 0) > data.max_length for stage in stages),
            f"loop.stages with rows longer than data.max_length={data.max_length}",
            "set data.max_length to the longest",
        ),
    ]
