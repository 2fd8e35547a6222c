"""Weights of encoders: loading with a head, converting pickled ones, and storing in half precision."""

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError, cannot_write
from pretraining.vocabulary.tokenizer import save_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
from downstream.encoders.folder import SAFE_FILES, ModelFolder
from downstream.encoders.hub import resolve
from downstream.encoders.tokenizers import load_tokenizer

PICKLED_WEIGHTS = ("pytorch_model.bin",)
FITTING = "give the weights that belong to the config"


def load_model(folder: Path, tokenizer: "PreTrainedTokenizerBase", auto_class: str, head: Mapping[str, Any]) -> Any:
    """Load an encoder with a task head in single precision; the head and a missing pooler are initialised at random.

    Args:
        folder: a plain transformers folder with safetensors weights.
        tokenizer: its tokenizer; the model's padding id is set to the tokenizer's.
        auto_class: name of the transformers class, e.g. `AutoModelForSequenceClassification`.
        head: config entries of the head.

    Raises:
        CheckpointError: the weights are missing, pickled, damaged, or do not fit the vocabulary.
    """
    import transformers
    from safetensors import SafetensorError

    if not any(folder.glob("*.safetensors")):
        pickled = [name for name in PICKLED_WEIGHTS if (folder / name).is_file()]
        what = f"only pickled weights ({pickled[0]})" if pickled else "no model.safetensors in it"
        convert_it = f"convert once: python -m downstream.encoders '{folder}' --out DIR"
        raise CheckpointError(folder, what, convert_it if pickled else "put the model's weights in the folder")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **head)
        config.pad_token_id = tokenizer.pad_token_id
        _check_vocabulary(folder, tokenizer, config.vocab_size)
        model, loaded = getattr(transformers, auto_class).from_pretrained(
            folder,
            config=config,
            # The stored dtype may be half precision, which CPUs without bf16 units compute a hundred times slower.
            dtype="float32",
            output_loading_info=True,
        )
    except (SafetensorError, OSError, RuntimeError, ValueError, AttributeError) as error:
        raise CheckpointError(folder, f"the model cannot be read ({error})", "download the folder again") from error
    _check_complete(folder, loaded["missing_keys"])
    return model


def _check_vocabulary(folder: Path, tokenizer: "PreTrainedTokenizerBase", vocab_size: int) -> None:
    if max(tokenizer.get_vocab().values()) >= vocab_size:
        what = f"the tokenizer has {max(tokenizer.get_vocab().values()) + 1:,} subwords and the model {vocab_size:,}"
        raise CheckpointError(folder, what, "put tokenizer and weights of the same model in the folder")


def _check_complete(where: Path, missing: Iterable[str]) -> None:
    """Refuse weights that lack a part of the encoder; only heads and the pooler may be initialised at random."""
    lost = sorted(key for key in missing if ".encoder." in f".{key}" or ".embeddings." in f".{key}")
    if lost:
        what = f"{len(lost)} encoder weights are missing, e.g. {lost[0]}"
        raise CheckpointError(where, what, FITTING)


def halve_weights(folder: Path) -> None:
    """Store the weights of a transformers folder in half precision; its config asks for single precision."""
    import torch
    from safetensors.torch import load_file, save_file

    for path in ModelFolder(folder).weight_files:
        weights = {name: part.to(torch.float16).contiguous() for name, part in load_file(path).items()}
        save_file(weights, path, metadata={"format": "pt"})
    # transformers computes in the stored precision by default, and few CPUs have units for half precision.
    ModelFolder(folder).save_config({"dtype": "float32"})


def convert(source: str, out: Path) -> None:
    """Save an encoder as a plain folder: config.json, tokenizer.json, model.safetensors.

    Pickled weights are read by torch's restricted unpickler (`weights_only=True`), which builds only tensors; use it on
    files from a trusted source.

    Raises:
        CheckpointError: the source cannot be found or read.
        ResultError: OUT cannot be written.
    """
    import torch
    from transformers import AutoModelForMaskedLM, BertConfig

    folder = resolve(source, patterns=(*SAFE_FILES, *PICKLED_WEIGHTS))
    tokenizer = load_tokenizer(folder)
    settings = ModelFolder(folder).config
    config = BertConfig(**{k: v for k, v in settings.items() if k not in {"architectures", "dtype"}})
    config.pad_token_id = tokenizer.pad_token_id
    pickled = next((folder / name for name in PICKLED_WEIGHTS if (folder / name).is_file()), None)
    with tempfile.TemporaryDirectory() as scratch:
        if pickled is None or any(folder.glob("*.safetensors")):
            model = load_model(folder, tokenizer, "AutoModelForMaskedLM", {})
        else:
            _check_vocabulary(folder, tokenizer, config.vocab_size)
            try:
                state = torch.load(pickled, map_location="cpu", weights_only=True)
            except Exception as error:  # the unpickler raises whatever the broken bytes lead it to
                # torch's own message advises to switch the restriction off, which is unsafe.
                what = f"cannot be read as weights: damaged, or not only tensors ({type(error).__name__})"
                raise CheckpointError(pickled, what, "download it again from its publisher") from error
            if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
                raise CheckpointError(pickled, "holds no named weights", "give a BERT checkpoint")
            masked_lm: Any = AutoModelForMaskedLM
            model = masked_lm.from_config(config)
            # Checkpoints older than 2019 name LayerNorm's tensors gamma and beta.
            renamed = {k.replace("gamma", "weight").replace("beta", "bias"): v for k, v in state.items()}
            if not any(key.startswith("bert.") for key in renamed):
                # Saved from the bare encoder, without a head around it.
                renamed = {f"bert.{key}": value for key, value in renamed.items()}
            try:
                missing, _ = model.load_state_dict(renamed, strict=False)
            except RuntimeError as error:
                raise CheckpointError(pickled, f"the weights do not fit the config ({error})", FITTING) from error
            _check_complete(pickled, missing)
        model.save_pretrained(scratch)
        save_tokenizer(tokenizer, Path(scratch))
        try:
            shutil.copytree(scratch, out, dirs_exist_ok=True)
        except OSError as error:
            raise cannot_write(out, error) from error
