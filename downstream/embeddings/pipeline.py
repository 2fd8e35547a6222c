"""Sentence-transformers folders: read their settings, and open them without running code that they contain."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError
from corpora.foundation.floors import needs
from corpora.foundation.machine import quiet_transformers
from downstream.encoders.folder import PIPELINE_FILE, ModelFolder
from downstream.encoders.tokenizers import check_reads_hangul, load_tokenizer
from downstream.encoders.weights import find_pickles
from pretraining.folders import (
    CONFIG_FILES,
    check_finite,
    check_folder,
    check_sizes,
    count_stored,
    open_config,
    read_settings_file,
    read_settings_value,
)
from pretraining.vocabulary.splitting import add_rules

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_LENGTH = 512
"""BERT's; for a model whose files state no length."""
MODULE = re.compile(
    r"sentence_transformers(?:\.models|\.(?:base|sentence_transformer)\.modules)(?:\.[a-z_]+)?"
    r"\.(?:Transformer|Pooling|Normalize|Dense|Dropout|LayerNorm|WeightedLayerPooling)"
)
"""Modules that are opened, by their names in this and earlier versions."""
HANDED_ON = frozenset(
    {"attn_implementation", "_attn_implementation", "auto_map", "custom_pipelines", "experts_implementation"}
    | {"quantization_config", "trust_remote_code", "use_kernels"}
)
"""Entries of config.json that name code."""


def check_is_safe(folder: Path) -> None:
    """Refuse a sentence-transformers folder with pickled weights or custom modules.

    Raises:
        CheckpointError: it has one of them.
    """
    if not (folder / PIPELINE_FILE).is_file():
        return
    for module in _read_json(folder / PIPELINE_FILE, list):
        if not isinstance(module, dict):
            raise CheckpointError(folder / PIPELINE_FILE, f"{module!r:.40} is no module", "download it again")
        kind, path = str(module.get("type")), folder / str(module.get("path", ""))
        if not path.resolve().is_relative_to(folder.resolve()):
            raise CheckpointError(folder / PIPELINE_FILE, "a module lies outside of the folder", "download it again")
        if not MODULE.fullmatch(kind):
            fix = "load it with sentence_transformers yourself if you trust it"
            raise CheckpointError(folder / PIPELINE_FILE, f"module {kind} is custom code, which is never run", fix)
        pickled = find_pickles(path)
        if pickled and not any(path.glob("*.safetensors")):
            raise CheckpointError(pickled[0], "pickled weights", "save the model again as safetensors")

    _check_settings(folder)


def _check_settings(folder: Path) -> None:
    """Refuse settings that sentence_transformers would hand on to transformers: code, kernels, other files."""
    config = folder / CONFIG_FILES[0]
    raw = read_settings_file(config) if config.is_file() else {}
    named = sorted(HANDED_ON & {key for key, value in raw.items() if value})
    transformer = _read_json(folder / "sentence_bert_config.json", dict)
    named += [key for key, value in transformer.items() if key.endswith(("_args", "_kwargs")) and value]
    if named:
        what = f"'{named[0]}' in its settings may load code or other files, which is never done"
        raise CheckpointError(folder, what, "remove the entry, or give a plain model")


def _read_json(path: Path, kind: type[Any]) -> Any:
    value = read_settings_value(path) if path.is_file() else kind()
    if not isinstance(value, kind):
        raise CheckpointError(
            path, f"a {type(value).__name__} where a {kind.__name__} is expected", "download it again"
        )
    return value


def _config_of(folder: Path) -> Mapping[str, Any]:
    """Return the contents of config.json; empty if the file is missing."""
    model = ModelFolder(folder)
    return model.config if model.has_config else {}


def read_settings(folder: Path) -> dict[str, Any]:
    """Collect the settings that a sentence-transformers folder keeps in several files."""
    modules = _read_json(folder / PIPELINE_FILE, list)
    kinds = [str(module.get("type")).rsplit(".", 1)[-1] for module in modules]
    pooling = [module for module, kind in zip(modules, kinds, strict=True) if kind == "Pooling"]
    return {
        "kinds": kinds,
        "is_flat": not modules or not modules[0].get("path"),
        "transformer": _read_json(folder / "sentence_bert_config.json", dict),
        "pooling": _config_of(folder / str(pooling[0]["path"])) if pooling else {},
        "whole": _read_json(folder / "config_sentence_transformers.json", dict),
    }


def is_mean_pooling(settings: dict[str, Any]) -> bool:
    """Whether the folder is an encoder with mean pooling and nothing else that changes the direction of a vector.

    `downstream.embed train` makes such folders. They run without sentence_transformers, whose import takes longer than
    all others together.
    """
    pooling, transformer, whole = settings["pooling"], settings["transformer"], settings["whole"]
    modes = [name for name, is_on in pooling.items() if name.startswith("pooling_mode_") and is_on is True]
    return (
        settings["kinds"] in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
        and settings["is_flat"]
        and (pooling.get("pooling_mode", "mean") == "mean" and modes in ([], ["pooling_mode_mean_tokens"]))
        and not transformer.get("do_lower_case")
        and not transformer.get("processing_kwargs")
        and transformer.get("transformer_task", "feature-extraction") == "feature-extraction"
        and not whole.get("default_prompt_name")
        and not whole.get("truncate_dim")
    )


def open_tokenizer(folder: Path, settings: dict[str, Any]) -> "PreTrainedTokenizerBase":
    """Open the tokenizer of a sentence-transformers folder."""
    tokenizer = load_tokenizer(folder)
    tokenizer.model_max_length = pipeline_max_length(folder, settings)
    return tokenizer


def pipeline_max_length(folder: Path, settings: dict[str, Any]) -> int:
    """Return the length in tokens of a sentence-transformers model: the smallest that its files state."""
    model = ModelFolder(folder)
    stated = (
        (model.max_positions if model.has_config else None) or 0,
        int(settings["transformer"].get("max_seq_length") or 0),
        int(_read_json(folder / "tokenizer_config.json", dict).get("model_max_length") or 0),
    )
    return min((length for length in stated if length > 0), default=MAX_LENGTH)


def open_sentence_transformer(folder: Path, device: str) -> Any:
    """Open a folder with sentence-transformers, in single precision, without network access or custom code.

    Raises:
        CheckpointError: the folder is unsafe or unreadable.
        MissingPackageError: sentence-transformers is not installed.
    """
    needs("sentence_transformers")
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    check_folder(folder)
    check_is_safe(folder)
    first = _read_json(folder / PIPELINE_FILE, list)[:1]
    encoder = folder / str(first[0].get("path", "")) if first else folder
    if (encoder / CONFIG_FILES[0]).is_file():
        check_sizes(encoder, open_config(encoder), count_stored(encoder.glob("*.safetensors")))
    try:
        with quiet_transformers():
            model = SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True, "dtype": "float32"},
            )
    except (SafetensorError, OSError, RuntimeError, ValueError, KeyError, ImportError) as error:
        raise CheckpointError(folder, f"the model cannot be read ({error})", "download the folder again") from error
    _check_complete(folder, model.transformers_model)
    check_finite(folder, dict(model.named_parameters()))
    if (backend := getattr(model.tokenizer, "backend_tokenizer", None)) is not None:
        add_rules(backend)
        check_reads_hangul(folder, backend, model.tokenizer.unk_token_id)
    return model


def _check_complete(folder: Path, encoder: Any) -> None:
    """Refuse incomplete weights, which sentence_transformers would initialise at random with only a warning."""
    from safetensors import safe_open

    first = _read_json(folder / PIPELINE_FILE, list)[:1]
    stored: set[str] = set()
    for path in (path for module in first for path in (folder / str(module.get("path", ""))).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            stored.update(file.keys())
    # Checkpoints older than 2019 name LayerNorm's tensors gamma and beta; some prefix the names with a head's.
    known = {name.replace("gamma", "weight").replace("beta", "bias") for name in stored}
    known |= {name.partition(".")[2] for name in known}
    names = [] if encoder is None else encoder.state_dict()
    lost = [name for name in names if name.startswith(("encoder.layer", "embeddings.")) and name not in known]
    if lost:
        what = f"{len(lost)} encoder weights are missing, e.g. {lost[0]}"
        raise CheckpointError(folder, what, "give the weights that belong to the config")
