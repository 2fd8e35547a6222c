"""Read the weights of a BERT, RoBERTa or ELECTRA without torch, all under the names of transformers' BERT.

    weights = EncoderWeights.from_folder(folder)
    weights.tensors["encoder.layer.0.attention.self.query.weight"]          # float32 (D, D)

RoBERTa numbers positions from `pad_token_id` + 1; the rows before that are cut off, so that position 0 is the first
row for all. The heads of RoBERTa and ELECTRA for whole texts are a dense layer and a projection, as BERT's pooler and
classifier are, and get their names. Sources: Devlin et al. 2019; Liu et al. 2019; Clark et al. 2020.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.errors import CheckpointError
from downstream.encoders.folder import ModelFolder
from pretraining.folders import check_finite, check_folder

FloatArray: TypeAlias = NDArray[np.float32]

WEIGHTS_FILE = "model.safetensors"
PREFIXES: Mapping[str, str] = {"bert": "bert.", "roberta": "roberta.", "xlm-roberta": "roberta.", "electra": "electra."}
"""Kinds of model that are understood, as config.json calls them → what the encoder's weights begin with."""
HEAD_NAMES = {"classifier.dense.": "pooler.dense.", "classifier.out_proj.": "classifier."}
DECODER = "cls.predictions.decoder."
"""Output embeddings of the masked-LM head, with their bias."""
STORED_AS = {"F16", "F32"}


@dataclass(frozen=True)
class EncoderWeights:
    """The weights of an encoder in single precision, with those of the head that its folder holds."""

    where: str
    """Folder, for messages."""
    model_type: str
    """A key of `PREFIXES`."""
    num_heads: int
    num_layers: int
    hidden_size: int
    epsilon: float
    """Of LayerNorm."""
    tensors: Mapping[str, FloatArray] = field(repr=False)

    @classmethod
    def from_folder(cls, folder: Path) -> "EncoderWeights":
        """Read a folder.

        Raises:
            CheckpointError: `unsupported_reason` has one, the weights are damaged, or they do not fit the config.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        if reason := unsupported_reason(folder):
            raise CheckpointError(folder, f"cannot be read without torch: {reason}", 'use runtime="torch"')
        check_folder(folder)
        model = ModelFolder(folder)
        try:
            stored = load_file(folder / WEIGHTS_FILE)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(folder, f"the model cannot be read ({error})", "download the folder again") from error
        weights = cls.from_tensors(str(folder), model.config, stored)
        check_finite(folder, weights.tensors)
        shape = weights.tensors["embeddings.word_embeddings.weight"].shape
        if shape != (model.vocab_size, int(model.config.get("embedding_size", model.hidden_size))):
            what = f"word embeddings of shape {shape} do not fit the config"
            raise CheckpointError(folder, what, "give the weights that belong to the config")
        return weights

    @classmethod
    def from_tensors(cls, where: str, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> "EncoderWeights":
        """Use loaded weights.

        Args:
            where: folder, for messages.
            config: contents of config.json.
            tensors: weights with the names that transformers gives them.
        """
        model_type = str(config["model_type"])
        named = {_plain_name(name, model_type): np.asarray(value, np.float32) for name, value in tensors.items()}
        if config.get("tie_word_embeddings", True):
            # Some folders store copies of what is tied.
            named = {name: value for name, value in named.items() if not name.startswith(DECODER)}
        if PREFIXES[model_type] == "roberta.":
            positions = "embeddings.position_embeddings.weight"
            named[positions] = named[positions][int(config.get("pad_token_id", 1)) + 1 :]
        return cls(
            where=where,
            model_type=model_type,
            num_heads=int(config["num_attention_heads"]),
            num_layers=int(config["num_hidden_layers"]),
            hidden_size=int(config["hidden_size"]),
            epsilon=float(config.get("layer_norm_eps", 1e-12)),
            tensors=named,
        )

    @property
    def num_parameters(self) -> int:
        """Of encoder and pooler, and of the masked-LM head where there is one."""
        return sum(value.size for name, value in self.tensors.items() if not name.startswith("classifier."))

    @property
    def products_per_token(self) -> int:
        """Multiplications that the layers need for one token, those between tokens left out."""
        layers = (value for name, value in self.tensors.items() if name.startswith("encoder.layer."))
        return sum(value.size for value in layers if value.ndim == 2)

    def require(self, name: str) -> FloatArray:
        """Return a tensor.

        Raises:
            CheckpointError: the folder was saved without it.
        """
        if name not in self.tensors:
            raise CheckpointError(self.where, f"weights are missing: {name}", "give a folder that was saved with it")
        return self.tensors[name]

    def joint(self, *names: str) -> tuple[FloatArray, FloatArray]:
        """Return linear layers side by side: weights (inputs, outputs) for products from the right, and biases."""
        weights = [self.require(f"{name}.weight") for name in names]
        biases = [self.require(f"{name}.bias") for name in names]
        return np.ascontiguousarray(np.concatenate(weights).T), np.concatenate(biases)


def unsupported_reason(folder: Path) -> str:
    """Return why a folder cannot be read by `EncoderWeights`, or nothing; weights are not loaded."""
    from safetensors import SafetensorError, safe_open

    try:
        config = ModelFolder(folder).config
        with safe_open(folder / WEIGHTS_FILE, "numpy") as file:
            stored = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    except (CheckpointError, OSError, SafetensorError) as error:
        return str(error)
    if config.get("model_type") not in PREFIXES:
        return f"model_type is {config.get('model_type')!r}, not one of {', '.join(PREFIXES)}"
    for key, wanted in (("hidden_act", "gelu"), ("position_embedding_type", "absolute"), ("is_decoder", False)):
        if config.get(key, wanted) != wanted:
            return f"{key} is {config[key]!r}, not {wanted!r}"
    if others := sorted({*stored.values()} - STORED_AS):
        return f"weights are stored as {others[0]}"
    names = {_plain_name(name, str(config["model_type"])) for name in stored}
    missing = sorted(_encoder_names(int(config.get("num_hidden_layers", 0))) - names)
    return f"{len(missing)} encoder weights are missing, e.g. {missing[0]}" if missing else ""


def _plain_name(name: str, model_type: str) -> str:
    """Return what BERT calls a weight."""
    name = name.removeprefix(PREFIXES[model_type])
    for start, plain in HEAD_NAMES.items():
        if name.startswith(start):
            return plain + name.removeprefix(start)
    return name


def _encoder_names(num_layers: int) -> set[str]:
    """Return the names of all weights of an encoder."""
    names = {f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")}
    parts = [f"attention.self.{part}" for part in ("query", "key", "value")]
    parts += [f"{block}.{part}" for block in ("attention.output", "output") for part in ("dense", "LayerNorm")]
    modules = ["embeddings.LayerNorm"]
    modules += [f"encoder.layer.{k}.{part}" for k in range(num_layers) for part in (*parts, "intermediate.dense")]
    return names | {f"{module}.{kind}" for module in modules for kind in ("weight", "bias")}
