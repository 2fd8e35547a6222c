"""The weights of a summarizer on disk: a readable JSON file, and a model card.

    {"schema": 1, "weights": {"lead": 1.27, …}, "bias": -2.1, "redundancy": 0.6, "encoder": null, "scorer": null, …}

`encoder` names the sentence embedder and `scorer` the BertSumExt of the neural features: a folder relative to the
model's, `bundled`, or a hub id. A folder of `downstream.extractive` is a model with that one feature.
"""

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from corpora.foundation.cards import render_card
from corpora.foundation.config import Config
from corpora.foundation.errors import CheckpointError, suggest
from corpora.foundation.files import package_path, write_json, write_text
from downstream.encoders.folder import SCORER_FILE, SUMMARIZER_FILE
from downstream.encoders.hub import BUNDLED_SOURCE, resolve
from downstream.summaries.features import FEATURES, NEEDS_ENCODER, NEEDS_SCORER, Encode, Score
from pretraining.folders import seal

TEMPLATE = package_path("downstream", "templates", "card_summarizer.md")


class SummaryModel(Config):
    """Weights of sentence features; see `downstream.summaries.choice_model`."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    weights: dict[str, float] = Field(min_length=1)
    """Feature of `downstream.summaries.features.FEATURES` → log-odds per unit."""
    bias: float = 0.0
    redundancy: float = Field(default=0.6, gt=0)
    """TF-IDF cosine from which on a sentence is a repetition of a better one and skipped; above 1: never."""
    encoder: str | None = None
    """Embedder of the embedding features: a folder relative to the model's, `bundled`, or a hub id."""
    scorer: str | None = None
    """BertSumExt of the feature `scorer`: a folder relative to the model's, or a hub id."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Data with their digests, settings and versions, from which the weights can be reproduced."""

    @field_validator("weights")
    @classmethod
    def _features_are_known(cls, weights: dict[str, float]) -> dict[str, float]:
        for name in weights:
            if name not in FEATURES:
                raise ValueError(f"unknown feature '{name}'; {suggest(name, FEATURES)}")
        return weights

    @property
    def needs_encoder(self) -> bool:
        """Whether the model has embedding features."""
        return not NEEDS_ENCODER.isdisjoint(self.weights)

    @property
    def needs_scorer(self) -> bool:
        """Whether the model has the feature `scorer`."""
        return not NEEDS_SCORER.isdisjoint(self.weights)


def open_model(source: str | Path, runtime: str = "auto") -> tuple[SummaryModel, Encode | None, Score | None]:
    """Open a saved model with the networks of its features, which are loaded at their first use.

    Args:
        source: folder or hub id.
        runtime: backend of the networks, see `downstream.runtime`.

    Raises:
        CheckpointError: there is no such folder, or its files are missing or damaged.
    """
    folder = resolve(str(source))
    if (folder / SUMMARIZER_FILE).is_file():
        model = _read(folder / SUMMARIZER_FILE)
    elif (folder / SCORER_FILE).is_file():
        model = SummaryModel(weights={"scorer": 1.0}, scorer=".")
    else:
        fix = "give a folder that downstream.summarize or downstream.extractive saved"
        raise CheckpointError(folder, f"neither {SUMMARIZER_FILE} nor {SCORER_FILE} in it", fix)
    encode = _opener(folder, model.encoder, "encoder", open_encoder, runtime) if model.needs_encoder else None
    score = _opener(folder, model.scorer, "scorer", open_scorer, runtime) if model.needs_scorer else None
    return model, encode, score


def _read(path: Path) -> SummaryModel:
    try:
        return SummaryModel.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError, OSError) as error:
        detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise CheckpointError(path, f"not a summarizer of schema 1 ({detail})", "restore or train it again") from error


def _opener(
    folder: Path, name: str | None, what: str, open_part: Callable[[str, str], Any], runtime: str
) -> Callable[..., Any]:
    """Return a function that loads a network at its first call."""
    if name is None:
        raise CheckpointError(
            folder / SUMMARIZER_FILE, f"its features need an {what}, but none is named", "train it again"
        )
    inside = folder / name
    source = str(inside) if inside.is_dir() else name
    loaded = functools.cache(lambda: open_part(source, runtime))
    return lambda texts: loaded()(texts)


def open_encoder(source: str, runtime: str = "torch") -> Encode:
    """Open a sentence embedder: `bundled`, a folder or a hub id.

    Args:
        source: the model.
        runtime: see `downstream.runtime`; `auto` is the GPU if there is one, else the fastest backend of this CPU.
    """
    from downstream.embeddings.embedder import Embedder

    embedder = Embedder.load(None if source == BUNDLED_SOURCE else source)
    if runtime != "torch" and (runtime != "auto" or embedder.device == "cpu"):
        from downstream.runtimes.predictor import fast_embedder

        embedder, _ = fast_embedder(embedder, runtime)
    return embedder.encode


def open_scorer(source: str, runtime: str = "torch") -> Score:
    """Open a BertSumExt: a folder or a hub id; `runtime` as for `open_encoder`."""
    from downstream.summaries.scorer import SentenceScorer

    return SentenceScorer.load(source, runtime).log_odds


def save_model(folder: Path, model: SummaryModel, figures: Mapping[str, float]) -> None:
    """Write a model and its card.

    Args:
        folder: created if missing.
        model: the model with its recipe.
        figures: description → score, for the card.

    Raises:
        ResultError: the folder cannot be written.
    """
    write_json(folder / SUMMARIZER_FILE, model.model_dump(by_alias=True))
    seal(folder)
    write_text(folder / "README.md", model_card(model, figures))


def model_card(model: SummaryModel, figures: Mapping[str, float]) -> str:
    """Return the README.md of a model folder, with the YAML that model hubs read."""
    from huggingface_hub import ModelCardData

    head = ModelCardData(
        language="ko",
        license="cc-by-sa-4.0",
        library_name="pressbert",
        pipeline_tag="summarization",
        tags=["extractive"],
    )
    recipe = json.dumps(model.recipe, ensure_ascii=False)
    return render_card(TEMPLATE, head, model=model, features=FEATURES, figures=figures, recipe=recipe)
