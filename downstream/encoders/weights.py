"""Weights of encoders: loading with a head, converting pickled ones, and storing in half precision."""

import contextlib
import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError
from corpora.foundation.floors import needs
from corpora.foundation.machine import no_file_bars
from pretraining.folders import check_finite, model_files, open_config, open_model, read_tensors
from pretraining.vocabulary.tokenizer import save_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
from downstream.encoders.folder import SAFE_FILES, ModelFolder
from downstream.encoders.hub import resolve
from downstream.encoders.tokenizers import load_tokenizer

PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model-*.bin")
"""Patterns of the files; the second is that of large models in several parts."""
NOT_CONVERTED = {"architectures", "auto_map", "dtype", "model_type", "torch_dtype", "transformers_version"}
"""Entries of config.json that are written again for a converted folder."""
POOLER = "pooler."
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
    needs("torch", "transformers")
    if not any(folder.glob("*.safetensors")):
        pickled = [path.name for path in find_pickles(folder)]
        what = f"only pickled weights ({pickled[0]})" if pickled else "no model.safetensors in it"
        convert_it = f"convert once: python -m downstream.encoders '{folder}' --out DIR"
        raise CheckpointError(folder, what, convert_it if pickled else "put the model's weights in the folder")
    config: Any = open_config(folder, **head)
    config.pad_token_id = tokenizer.pad_token_id
    _check_vocabulary(folder, tokenizer, getattr(config, "vocab_size", 0))
    return _load(folder, folder, auto_class, config)[0]


def halve_weights(folder: Path) -> None:
    """Store the weights of a transformers folder in half precision; its config asks for single precision."""
    import torch
    from safetensors.torch import save_file

    for path in ModelFolder(folder).weight_files:
        weights = {name: part.to(torch.float16).contiguous() for name, part in read_tensors(path).items()}
        save_file(weights, path, metadata={"format": "pt"})
    # transformers computes in the stored precision by default, and few CPUs have units for half precision.
    ModelFolder(folder).save_config({"dtype": "float32"})


def convert(source: str, out: Path) -> None:
    """Save an encoder as a plain folder: config.json, tokenizer.json, model.safetensors.

    The heads it was pretrained with are kept where their weights are complete; others are left out. Pickled weights are
    read by torch's restricted unpickler (`weights_only=True`), which builds only tensors; use it on files from a
    trusted source.

    Raises:
        CheckpointError: the source cannot be found or read.
        ResultError: OUT cannot be written.
    """
    folder = resolve(source, patterns=(*SAFE_FILES, *PICKLED_WEIGHTS))
    tokenizer = load_tokenizer(folder)
    config = _plain_config(folder)
    config.pad_token_id = tokenizer.pad_token_id
    _check_vocabulary(folder, tokenizer, getattr(config, "vocab_size", 0))
    with tempfile.TemporaryDirectory() as staged:
        where, weights = folder, folder
        if not any(folder.glob("*.safetensors")):
            where, weights = _unpickle(folder, Path(staged)), Path(staged)
        model = _load_whole(where, weights, config)
        with model_files(out) as scratch, no_file_bars():
            model.save_pretrained(scratch)
            save_tokenizer(tokenizer, scratch)


def _plain_config(folder: Path) -> Any:
    """Return transformers' config of a folder, also of one whose file names no architecture."""
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    model = ModelFolder(folder)
    auto_config: Any = transformers.AutoConfig
    try:
        return auto_config.for_model(
            model.model_type, **{key: value for key, value in model.config.items() if key not in NOT_CONVERTED}
        )
    except (ValueError, TypeError, KeyError, StrictDataclassError) as error:
        what = f"transformers cannot read its config ({type(error).__name__}: {error})".splitlines()[0]
        raise CheckpointError(folder, what, "give an encoder of a kind that transformers knows") from error


def _unpickle(folder: Path, out: Path) -> Path:
    """Write the pickled weights of a folder to OUT as safetensors; returns the first pickle, for messages.

    Raises:
        CheckpointError: there are none, or they hold anything but named tensors.
    """
    import torch
    from safetensors.torch import save_file

    pickles = find_pickles(folder)
    if not pickles:
        raise CheckpointError(folder, "no model.safetensors in it", "put the model's weights in the folder")
    weights: dict[str, torch.Tensor] = {}
    for path in pickles:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # the unpickler raises whatever the broken bytes lead it to
            # torch's own message advises to switch the restriction off, which is unsafe.
            what = f"cannot be read as weights: damaged, or not only tensors ({type(error).__name__})"
            raise CheckpointError(path, what, "download it again from its publisher") from error
        if not isinstance(state, dict) or not state:
            raise CheckpointError(path, "holds no named weights", "give the checkpoint of an encoder")
        if odd := [key for key, part in state.items() if not isinstance(key, str) or not torch.is_tensor(part)]:
            raise CheckpointError(path, f"'{odd[0]}' is no named tensor", "give the checkpoint of an encoder")
        # Tied tensors share memory in a pickle and may not in safetensors.
        weights |= {key: part.contiguous().clone() for key, part in state.items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    return pickles[0]


def find_pickles(folder: Path) -> list[Path]:
    """Return the pickled weights of a folder, of which large models have several."""
    return sorted(path for pattern in PICKLED_WEIGHTS for path in folder.glob(pattern))


def _load_whole(where: Path, folder: Path, config: Any) -> Any:
    """Load the largest model that the weights are complete for: with all pretraining heads, with one, or with none.

    Raises:
        CheckpointError: the weights of the encoder are incomplete or damaged; the message begins with WHERE.
    """
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, MODEL_FOR_PRETRAINING_MAPPING

    mappings: dict[str, Any] = {
        "AutoModelForPreTraining": MODEL_FOR_PRETRAINING_MAPPING,
        "AutoModelForMaskedLM": MODEL_FOR_MASKED_LM_MAPPING,
    }
    for auto_class in (*(name for name, known in mappings.items() if type(config) in known), "AutoModel"):
        model, missing = _load(where, folder, auto_class, config)
        if not missing:
            return model
    # What is missing is the pooler: saved, it would be the same random one for every seed.
    return _load(where, folder, "AutoModel", config, add_pooling_layer=False)[0]


def _load(where: Path, folder: Path, auto_class: str, config: Any, **options: Any) -> tuple[Any, list[str]]:
    """Return a model in single precision, and the names of the weights that are initialised at random.

    Raises:
        CheckpointError: a weight of the encoder is missing or of another shape, or a file is damaged.
    """
    from safetensors import SafetensorError

    try:
        with _no_load_report():
            model, loaded = open_model(auto_class, folder, config, output_loading_info=True, **options)
    except (SafetensorError, OSError, RuntimeError, ValueError, AttributeError, KeyError, TypeError) as error:
        # transformers lists all kinds that it knows.
        reason = str(error).partition("Model type should be one of")[0].strip()
        raise CheckpointError(where, f"the model cannot be read ({reason})", FITTING) from error
    missing = sorted(loaded["missing_keys"])
    _check_complete(where, model, missing)
    check_finite(where, dict(model.named_parameters()))
    return model, missing


@contextlib.contextmanager
def _no_load_report() -> Iterator[None]:
    """Keep transformers from listing what is missing, which `_check_complete` judges, and from advising to train it."""
    logger = logging.getLogger("transformers.modeling_utils")
    # A level of its own would make transformers report on sharding instead.
    logger.addFilter(_is_error)
    try:
        yield
    finally:
        logger.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _check_vocabulary(folder: Path, tokenizer: "PreTrainedTokenizerBase", vocab_size: int) -> None:
    if max(tokenizer.get_vocab().values()) >= vocab_size:
        what = f"the tokenizer has {max(tokenizer.get_vocab().values()) + 1:,} subwords and the model {vocab_size:,}"
        raise CheckpointError(folder, what, "put tokenizer and weights of the same model in the folder")


def _check_complete(where: Path, model: Any, missing: Iterable[str]) -> None:
    """Refuse weights that lack a part of the encoder; only heads and the pooler may be initialised at random."""
    base = model.base_model
    prefix = "" if base is model else f"{model.base_model_prefix}."
    lost = [key for key in missing if key.startswith(prefix) and POOLER not in key]
    if lost:
        raise CheckpointError(where, f"{len(lost)} encoder weights are missing, e.g. {lost[0]}", FITTING)
