"""Recipes of sentence embedders: the training stages of an encoder and their data, in TOML; defaults are kpfSBERT's.

max_length = 128
evaluate = ["korsts-dev", "klue-sts"]

[[stages]]
kind = "nli_ranking"            # or another of those below
data = ["kornli", "klue-nli"]
batch_size = 64

[[stages]]
kind = "sts_cosine"
data = ["korsts"]
epochs = 4

Names of data:

* a task, for its training split: `kornli`, `klue-nli`, `korsts`, `klue-sts`, `kornli-devsplit`;
* one split or one file of a task: `korsts:train`, `kornli:snli` (the training data of kpfSBERT);
* for `teacher_vectors`, a folder of `downstream.embed vectors`;
* a corpus folder of `corpora.build`, or a file with titles and texts; `sample` stands for the embedded articles. Write
  `./nsmc` for a folder with the name of a task.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from corpora.foundation.config import Config, load_toml, validate
from corpora.foundation.errors import RecipeError, UsageError, suggest
from corpora.foundation.files import package_path
from downstream.embeddings.similarity import similarity_task

RECIPES = package_path("downstream", "recipes")
NLI_LABELS = ("contradiction", "entailment", "neutral")


class Stage(Config):
    """Settings of every stage."""

    columns: ClassVar[tuple[str, ...]]
    """Names of the columns: texts in the order of the loss's arguments, then the label, if there is one."""

    kind: str
    data: tuple[str, ...] = Field(min_length=1)
    """Sources, which are concatenated; see the module."""
    epochs: float = Field(default=1, gt=0, allow_inf_nan=False)
    """Passes over the rows."""
    batch_size: int = Field(default=16, ge=2)
    """Rows per optimizer step; with in-batch negatives, a larger batch is harder."""
    peak_lr: float = Field(default=2e-5, gt=0, allow_inf_nan=False)
    """Highest learning rate; linear warm-up to it, linear decay from it."""
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps with a rising learning rate."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """Of AdamW, except for biases and LayerNorm."""
    start_share: float = Field(default=0, ge=0, lt=1)
    """Share of the weights from before the stage in their average with the trained ones, which keeps more of what
    earlier stages taught; Wortsman et al. 2022, “Robust fine-tuning of zero-shot models”."""


class NliSoftmax(Stage):
    """Inference pairs: a classifier over (u, v, |u − v|) predicts the label.

    Source: Reimers and Gurevych 2019, section 3; first stage of kpfSBERT. Relations: `NliRanking` uses the same data
    and usually gives better similarities.
    """

    columns = ("sentence1", "sentence2", "label")
    kind: Literal["nli_softmax"]


class NliRanking(Stage):
    """Inference triples: rank a premise's entailed hypothesis above all others of the batch, contradictions included.

    Source: Henderson et al. 2017 (in-batch negatives); Gao et al. 2021, section 4 (contradictions as hard negatives).
    """

    columns = ("anchor", "positive", "negative")
    kind: Literal["nli_ranking"]
    temperature: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    """Divisor of the cosines before the softmax."""


class StsCosine(Stage):
    """Pairs with a similarity: squared error between the cosine and the score, scaled to [0, 1].

    Source: Reimers and Gurevych 2019, section 3; second stage of kpfSBERT, with four epochs.
    """

    columns = ("sentence1", "sentence2", "label")
    kind: Literal["sts_cosine"]
    epochs: float = Field(default=4, gt=0, allow_inf_nan=False)
    """Passes over the rows."""


class HeadlineBody(Stage):
    """Articles without labels: match headlines with bodies within the batch, in both directions.

    A title that the body repeats at its beginning is removed from the body; it would make the task trivial.
    """

    columns: ClassVar[tuple[str, ...]] = ("anchor", "positive")
    kind: Literal["headline_body"]
    batch_size: int = Field(default=64, ge=2)
    """Articles per optimizer step; each body is a negative of the other headlines."""
    temperature: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    """Divisor of the cosines before the softmax."""
    held_out_days: float = Field(default=0, ge=0, lt=1)
    """Share of the days whose articles are left out, so that the model can be tested on them; see `is_held_out`."""


class HeadlineDay(HeadlineBody):
    """Articles with dates: a similar article of the same day is a further negative of a headline.

    Articles whose day has no other one, or only of the same story, are left out.

    Source: Karpukhin et al. 2020 (DPR), section 3.2, where BM25 finds one negative beside those of the batch.
    """

    columns = ("anchor", "positive", "negative")
    kind: Literal["headline_day"]  # type: ignore[assignment]
    max_likeness: float = Field(default=0.3, gt=0, le=1)
    """Cosine of the TF-IDF of character n-grams above which two bodies may tell the same story."""


class DropoutPairs(Stage):
    """Texts without labels: match two encodings of a text that differ by dropout, among the texts of the batch.

    Source: Gao et al. 2021 (unsupervised SimCSE), section 3.
    """

    columns = ("anchor", "positive")
    kind: Literal["dropout_pairs"]
    batch_size: int = Field(default=64, ge=2)
    """Texts per optimizer step."""
    peak_lr: float = Field(default=3e-5, gt=0, allow_inf_nan=False)
    """Highest learning rate; Gao et al. 2021, appendix A."""
    temperature: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    """Divisor of the cosines before the softmax."""
    dropout: float = Field(default=0.1, gt=0, lt=1)
    """Dropout of the encoder during this stage, in place of its own; it makes the two encodings differ."""


class TeacherVectors(Stage):
    """Texts with the vectors of a teacher: give each text a vector from which a linear map finds the teacher's.

    The teacher's mean is subtracted from its vectors, since the vectors of many teachers share one large direction. The
    cosines of the texts of a batch are trained, too: they, and not the map, are what the finished model is used for.

    Source: Reimers and Gurevych 2020, “Making monolingual sentence embeddings multilingual” (vectors); Park et al.
    2019, “Relational knowledge distillation” (cosines).
    """

    columns = ("sentence", "label")
    kind: Literal["teacher_vectors"]
    batch_size: int = Field(default=128, ge=2)
    """Texts per optimizer step, of similar length."""
    peak_lr: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    """Highest learning rate; for a small encoder."""
    cosine_weight: float = Field(default=10.0, ge=0, allow_inf_nan=False)
    """Weight of the squared difference between the cosines of a batch, beside that of the vectors."""


AnyStage: TypeAlias = Annotated[
    NliSoftmax | NliRanking | StsCosine | HeadlineBody | HeadlineDay | DropoutPairs | TeacherVectors,
    Field(discriminator="kind"),
]
STAGES: Mapping[str, type[Stage]] = {
    "nli_softmax": NliSoftmax,
    "nli_ranking": NliRanking,
    "sts_cosine": StsCosine,
    "headline_body": HeadlineBody,
    "headline_day": HeadlineDay,
    "dropout_pairs": DropoutPairs,
    "teacher_vectors": TeacherVectors,
}


class EmbedRecipe(Config):
    """Everything that determines a trained embedder except the encoder and the contents of the data."""

    stages: tuple[AnyStage, ...] = Field(min_length=1)
    """In the order of training."""
    max_length: int = Field(default=128, ge=8)
    """Tokens of a text that the model reads, special tokens included, in training and afterwards."""
    dimensions: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Numbers of first components that are trained as vectors of their own, e.g. 64 and 128, in every stage; Kusupati
    et al. 2022, “Matryoshka representation learning”. `encode --dimension` shortens vectors."""
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    """Seed of heads, data order and dropout."""
    storage: Literal["float32", "float16"] = "float32"
    """Precision of the saved weights, from which the scores are computed; the computation is in single precision."""
    evaluate: tuple[str, ...] = ("korsts-dev", "klue-sts")
    """Similarity tasks that score the model before training and after each stage; nothing is selected by them."""
    licence: str = ""
    """SPDX identifier for the model card; default: the card lists the licences of the data."""
    checkpoint_every: int = Field(default=500, ge=1)
    """Steps between checkpoints within a stage; a shorter stage restarts from its beginning."""


def find_embed_recipe(name: str) -> Path:
    """Return the path of a recipe: a file, or the name of a bundled recipe.

    Raises:
        RecipeError: there is no such recipe.
    """
    known = {path.stem: path for path in RECIPES.glob("*.toml")}
    if name in known:
        return known[name]
    if not Path(name).is_file():
        raise RecipeError(name, "no such recipe", f"give a TOML file or a bundled recipe: {suggest(name, known)}")
    return Path(name)


def read_embed_recipe(path: Path, overrides: Mapping[str, Any] | None = None) -> EmbedRecipe:
    """Read a recipe.

    Args:
        path: TOML file.
        overrides: settings that replace those of the file, e.g. `{"seed": 1}`.

    Raises:
        RecipeError: a key is unknown or a value is wrong.
    """
    values = load_toml(path) | dict(overrides or {})
    stages = values.get("stages")
    if not isinstance(stages, list) or not stages:
        raise RecipeError(path, "no stages", f"start each stage with [[stages]] and a kind: {', '.join(STAGES)}")
    recipe = validate(
        EmbedRecipe, values | {"stages": [_read_stage(s, path, n) for n, s in enumerate(stages, 1)]}, path
    )
    for name in recipe.evaluate:
        try:
            similarity_task(name)
        except UsageError as error:
            raise RecipeError(f"{path}, evaluate", error.what, error.fix) from error
    return recipe


def _read_stage(values: Any, path: Path, number: int) -> Stage:
    where = f"{path}, stage {number}"
    kind = str(values.get("kind", "")) if isinstance(values, dict) else ""
    if kind not in STAGES:
        raise RecipeError(where, f"kind='{kind}' is unknown", suggest(kind, STAGES))
    return validate(STAGES[kind], values, where)
