"""Model folders that others made: the only module that opens one with transformers, after a look at its files.

Nothing of a folder is run. Its config.json is reduced to keys that describe an encoder, with bounds on every size;
links lead nowhere else; files that a finished run has sealed (`seal`) are those that it wrote.
"""

import contextlib
import functools
import itertools
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError, cannot_write
from corpora.foundation.files import package_path, scratch_folder, sha256, write_json
from corpora.foundation.machine import no_file_bars
from pretraining.vocabulary.patterns import check_patterns

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

CONFIG_FILES = ("config.json", "bert_config.json")
"""The second is KorBERT's."""
SEAL_FILE = "digests.json"
SEALED = ("*.safetensors", "*/*.safetensors", "*.json", "*/config.json", "*.txt", "*.model")
"""Files whose digests are kept: what decides what a model computes."""
UNSEALED = {SEAL_FILE, "result.json", "recipe.json", "data.json", "manifest.json", "metrics.json"}
"""Records beside the model, some of which are written after it."""
LARGEST_JSON = 1 << 22
"""Bytes of a file of settings."""
LARGEST_VOCABULARY = 1 << 26
"""Bytes of a tokenizer's file."""
ENTRY_BYTES, SMALL_VOCABULARY = 300, 1 << 20
"""Bytes of a tokenizer's file for each subword, merges included, and beside them."""
MOST_FILES = 10_000
AGAIN = "download the folder again"
BUNDLED = package_path("downstream", "bundled")
BUNDLED_MANIFEST = "MANIFEST.json"

MOST = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), 512),
    **dict.fromkeys(("num_decoder_layers", "decoder_layers", "num_hidden_groups", "inner_group_num"), 512),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads"), 1_024),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 1_024),
    **dict.fromkeys(("hidden_size", "d_model", "dim", "n_embd", "emb_dim", "embedding_size"), 1 << 16),
    **dict.fromkeys(
        ("intermediate_size", "d_inner", "d_ff", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 1 << 18
    ),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 1 << 20),
    "vocab_size": 10_000_000,
    "type_vocab_size": 1_024,
}
"""Largest values of sizes, which are at least 1; of other whole numbers `MOST_OTHER`."""
MAY_BE_ZERO = frozenset({"type_vocab_size"})
"""Sizes of parts that a network may lack: DeBERTa has no segments."""
MOST_OTHER = 1_000_000_000
LONGEST_TEXT = 1_000
MOST_LABELS = 100_000
SPARE = 1 << 25
"""Parameters that a head may add to the stored ones."""

KEYS = frozenset(
    """
    activation activation_dropout activation_function add_cross_attention architectures attention_bias
    attention_dropout attention_probs_dropout_prob attention_type attention_window attn_pdrop attn_type bi_data
    bilstm block_repeats block_size block_sizes bos_token_id causal chunk_size_feed_forward clamp_len
    classifier_activation classifier_bias classifier_dropout classifier_dropout_prob classifier_pooling cls_token_id
    conv_act conv_kernel_size d_ff d_head d_inner d_kv d_model decoder_attention_heads decoder_bias decoder_ffn_dim
    decoder_layerdrop decoder_layers decoder_start_token_id dense_act_fn deterministic_flash_attn dim directionality
    down_scale_factor dropout dropout_rate dtype embd_pdrop embedding_dimension embedding_dropout embedding_size
    encoder_attention_heads encoder_ffn_dim encoder_layerdrop encoder_layers end_n_top eos_token_id
    feed_forward_proj ff_activation finetuning_task forced_eos_token_id gap_size gelu_activation
    generator_hidden_size global_attn_every_n_layers global_rope_theta head_dim head_ratio hidden_act
    hidden_activation hidden_dim hidden_dropout hidden_dropout_prob hidden_size id2label include_prompt init_std
    initializer_cutoff_factor initializer_factor initializer_range initializer_std inner_group_num intermediate_size
    is_decoder is_encoder_decoder is_gated_act label2id layer_norm_eps layer_norm_epsilon layer_types layerdrop
    legacy legacy_pooler local_attention local_rope_theta mask_shift mask_token_id max_length max_position_embeddings
    max_relative_positions mem_len mlp_bias mlp_dropout model_type n_embd n_head n_heads n_inner n_layer n_layers
    n_positions net_structure_type norm_bias norm_eps norm_rel_ebd num_attention_heads num_decoder_layers num_groups
    num_heads num_hidden_groups num_hidden_layers num_key_value_heads num_labels num_layers num_memory_blocks
    output_attentions output_hidden_states pad_token_id pool_q_only pooler_dropout pooler_fc_size pooler_hidden_act
    pooler_hidden_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type pooling_mode
    pooling_mode_cls_token pooling_mode_lasttoken pooling_mode_max_tokens pooling_mode_mean_sqrt_len_tokens
    pooling_mode_mean_tokens pooling_mode_weightedmean_tokens pooling_type pos_att_type position_biased_input
    position_buckets position_embedding_type pretraining_tp problem_type qa_dropout relative_attention
    relative_attention_max_distance relative_attention_num_buckets reorder_and_upcast_attn rescale_embeddings
    resid_pdrop return_dict reuse_len rms_norm_eps rope_parameters rotary_value same_length
    scale_attn_by_inverse_layer_idx scale_attn_weights scale_decoder_outputs scale_embedding sep_token_id
    separate_cls seq_classif_dropout share_att_key sinusoidal_embeddings sinusoidal_pos_embds sliding_window
    sparse_pred_ignore_index sparse_prediction start_n_top summary_activation summary_first_dropout
    summary_last_dropout summary_proj_to_labels summary_type summary_use_proj tie_encoder_decoder
    tie_word_embeddings tokenizer_class torch_dtype transformers_version truncate_seq type_vocab_size untie_r
    use_bias use_cache use_mems_eval use_mems_train vocab_size vocab_type word_embedding_dimension
    """.split()  # noqa: SIM905 - two hundred lines otherwise
)
"""Keys of config.json that are read: sizes, rates, ids and names of an encoder, of its head, and of a pooling."""


# ---- files ---------------------------------------------------------------------------------------------------------


def check_folder(folder: Path) -> None:
    """Refuse a folder with links that lead out of it, with special files, or with other files than were sealed.

    A folder that was checked is not read again until a file of it changes.

    Raises:
        CheckpointError: it has one of these.
    """
    if not folder.is_dir():
        return
    paths = _files_of(folder)
    _checked(folder, tuple(sorted((str(path), *_identity(path)) for path in paths)))


def _files_of(folder: Path) -> list[Path]:
    real = folder.resolve()
    paths: list[Path] = []
    # The hub's cache links the files of a snapshot to blobs beside it.
    roots = [real] + ([real.parents[1]] if real.parent.name == "snapshots" else [])
    for path in itertools.chain(folder.iterdir(), folder.glob("*/*")):
        if path.is_symlink() and not any(path.resolve().is_relative_to(root) for root in roots):
            raise CheckpointError(path, "a link that leads out of the folder", "copy the file into the folder")
        if path.is_dir():
            if path.suffix in (".json", ".safetensors"):
                raise CheckpointError(path, "a folder, not a file", AGAIN)
            continue
        if not path.is_file():
            raise CheckpointError(path, "neither a file nor a folder", "remove it")
        if path.suffix in {".json", ".txt", ".model"} and (size := path.stat().st_size) > LARGEST_VOCABULARY:
            raise CheckpointError(path, f"{size:,} bytes, more than settings or a vocabulary have", AGAIN)
        if len(paths) >= MOST_FILES:
            raise CheckpointError(folder, f"more than {MOST_FILES:,} files in it", "give the folder of one model")
        paths.append(path)
    return paths


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


@functools.lru_cache(maxsize=256)
def _checked(folder: Path, _files: tuple[tuple[str, int, int], ...]) -> None:
    """Compare the files of a folder with its seal, or with the manifest of what comes with the package."""
    for index in folder.glob("*.index.json"):
        parts = read_settings_file(index).get("weight_map", {})
        if not isinstance(parts, dict) or not all(
            isinstance(part, str) and Path(part).name == part for part in parts.values()
        ):
            raise CheckpointError(index, "it names files outside of the folder", AGAIN)
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(folder, "an adapter, whose model lies elsewhere", "merge it into its model and save that")
    if (folder / "tokenizer.json").is_file():
        _check_tokenizer(folder)
    for name, digest in _seal_of(folder).items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise CheckpointError(folder / SEAL_FILE, f"'{name}' lies outside of the folder", AGAIN)
        if not path.is_file() or sha256(path) != digest:
            what = "missing or changed since it was written: its digest is another one"
            raise CheckpointError(path, what, f"restore it; if the change is yours, delete {folder / SEAL_FILE}")


def _check_tokenizer(folder: Path) -> None:
    """Refuse a tokenizer's file that is far larger than a vocabulary of the model, before anything reads it."""
    path, vocab_size = folder / "tokenizer.json", None
    # Whoever opens the model names what is wrong with its config.
    with contextlib.suppress(CheckpointError):
        vocab_size = read_settings_file(folder / "config.json").get("vocab_size")
    if isinstance(vocab_size, int) and vocab_size > 0:
        size, most = path.stat().st_size, ENTRY_BYTES * vocab_size + SMALL_VOCABULARY
        if size > most:
            what = f"{size:,} bytes, more than the {most:,} of a vocabulary of {vocab_size:,} subwords"
            raise CheckpointError(path, what, "get the tokenizer that belongs to the model")
    check_patterns(path)


def _seal_of(folder: Path) -> dict[str, str]:
    """Return the digests of the files of a folder by their names; empty where none are known."""
    real = folder.resolve()
    if real.parent == BUNDLED.resolve() and (BUNDLED / BUNDLED_MANIFEST).is_file():
        listed = read_settings_file(BUNDLED / BUNDLED_MANIFEST).get("files", {})
        return {
            name.removeprefix(f"{real.name}/"): entry["sha256"]
            for name, entry in listed.items()
            # Cards are edited by hand, and decide nothing.
            if name.startswith(f"{real.name}/") and not name.endswith(".md")
        }
    if not (folder / SEAL_FILE).is_file():
        return {}
    files = read_settings_file(folder / SEAL_FILE).get("files")
    if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
        raise CheckpointError(folder / SEAL_FILE, "not a list of digests", AGAIN)
    return files


def seal(folder: Path) -> None:
    """Write the digests of a finished folder's files, by which a changed one is found when the folder is opened."""
    found = {path for pattern in SEALED for path in folder.glob(pattern)}
    paths = {path for path in found if path.name not in UNSEALED and not path.name.startswith("held-out-")}
    # Intermediate models lie in folders of their own.
    inside = {path for path in paths if path.parent == folder or not (path.parent / "tokenizer.json").is_file()}
    files = {path.relative_to(folder).as_posix(): sha256(path) for path in sorted(inside)}
    write_json(folder / SEAL_FILE, {"schema": 1, "files": files})


@contextlib.contextmanager
def model_files(out: Path) -> Iterator[Path]:
    """Yield a folder to save a model to; at the end its files are sealed and moved to OUT.

    A kill or a full disk leaves no half file under its real name.

    Raises:
        ResultError: OUT cannot be written.
    """
    from safetensors import SafetensorError

    try:
        with scratch_folder(out, ".model.") as scratch:
            yield scratch
            seal(scratch)
            for file in sorted(scratch.iterdir()):
                file.chmod(0o644)
                file.replace(out / file.name)
    except (OSError, SafetensorError) as error:
        raise cannot_write(out, error) from error


def read_settings_file(path: Path) -> dict[str, Any]:
    """Read a JSON object of a model folder.

    Raises:
        CheckpointError: it is missing, too large, no JSON, or no object.
    """
    content = read_settings_value(path)
    if not isinstance(content, dict):
        raise CheckpointError(path, f"a {type(content).__name__}, not an object", AGAIN)
    return content


def read_settings_value(path: Path) -> Any:
    """Read a JSON value of a model folder.

    Raises:
        CheckpointError: it is missing, too large, or no JSON.
    """
    try:
        if (size := path.stat().st_size) > LARGEST_JSON:
            raise CheckpointError(path, f"{size:,} bytes, more than settings have", AGAIN)
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(path, f"not valid JSON ({str(error).partition(chr(10))[0]})", AGAIN) from error


# ---- config --------------------------------------------------------------------------------------------------------


def read_config(file: Path) -> dict[str, Any]:
    """Read config.json: the keys of `KEYS`, each within bounds; others, such as code to load, are left out.

    Raises:
        CheckpointError: the file is damaged, or a value has the wrong type or is out of bounds.
    """
    content = read_settings_file(file)
    if others := sorted(content.keys() - KEYS):
        logger.info("%s: ignored: %s", file, ", ".join(others)[:LONGEST_TEXT])
    kept = {key: value for key, value in content.items() if key in KEYS}
    for key, value in kept.items():
        _check_value(file, key, value)
    heads, hidden = kept.get("num_attention_heads"), kept.get("hidden_size")
    if isinstance(heads, int) and isinstance(hidden, int) and hidden % heads and not kept.get("head_dim"):
        raise CheckpointError(file, f"num_attention_heads={heads} does not divide hidden_size={hidden}", AGAIN)
    return kept


def _check_value(file: Path, key: str, value: Any) -> None:
    """Refuse what no config has: sizes that are no positive numbers or too large, long texts, deep or large values."""
    shown = repr(value)[:60]
    if key in MOST:
        if value is None and key not in {"max_position_embeddings", "vocab_size", "hidden_size"}:
            return
        least = 0 if key in MAY_BE_ZERO else 1
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST[key]:
            raise CheckpointError(file, f"{key}={shown}: not a whole number from {least} to {MOST[key]:,}", AGAIN)
    elif key == "id2label":
        is_fine = isinstance(value, dict) and all(name.isdecimal() and len(name) < 8 for name in value)
        if value is not None and (not is_fine or len(value) > MOST_LABELS):
            raise CheckpointError(file, f"{key}={shown}: not names by number", AGAIN)
    elif not _is_small(value, MOST_LABELS if key == "label2id" else 1_000):
        raise CheckpointError(file, f"{key}={shown}: too large, too deep or not finite", AGAIN)


def _is_small(value: Any, most: int, depth: int = 3) -> bool:
    match value:
        case bool() | None:
            return True
        case int() | float():
            return math.isfinite(value) and abs(value) <= MOST_OTHER
        case str():
            return len(value) <= LONGEST_TEXT
        case list() | dict():
            inside = value.values() if isinstance(value, dict) else value
            return depth > 0 and len(value) <= most and all(_is_small(one, most, depth - 1) for one in inside)
    return False


def open_config(folder: Path, **changes: Any) -> "PreTrainedConfig":
    """Return transformers' config of a folder.

    Args:
        folder: with a config.json.
        changes: entries that replace those of the file.

    Raises:
        CheckpointError: the file is missing or damaged, or transformers does not know its architecture.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    check_folder(folder)
    file = next((folder / name for name in CONFIG_FILES if (folder / name).is_file()), None)
    if file is None:
        raise CheckpointError(folder, f"no {CONFIG_FILES[0]} in it", "give the folder of a transformers model")
    values = read_config(file)
    name = values.get("model_type", "bert")
    if not isinstance(name, str) or name not in CONFIG_MAPPING:
        what = f"transformers knows no model_type {name!r:.60}, and code that comes with a model is never run"
        raise CheckpointError(file, what, "give an encoder of a kind that transformers knows")
    mapping: Any = CONFIG_MAPPING
    try:
        config: PreTrainedConfig = mapping[name].from_dict(values, **changes)
    except (ValueError, TypeError, KeyError, AttributeError, StrictDataclassError) as error:
        raise CheckpointError(folder, f"the model cannot be read ({_first_line(error)})", AGAIN) from error
    return config


def check_sizes(where: Path, config: Any, num_stored: int) -> None:
    """Refuse a config whose network is far larger than the stored weights, before memory is allocated for it.

    Args:
        where: for the message.
        config: of the network.
        num_stored: parameters in the weight files.

    Raises:
        CheckpointError: it is.
    """

    def size(*names: str) -> int:
        found = next((value for name in names if isinstance(value := getattr(config, name, None), int)), 0)
        return max(0, found)

    width, layers = size("hidden_size", "d_model", "dim", "n_embd"), size("num_hidden_layers", "n_layers", "n_layer")
    if groups := size("num_hidden_groups"):
        layers = min(layers, groups)
    inner = size("intermediate_size", "d_inner", "hidden_dim", "d_ff")
    embedding = size("embedding_size") or width
    implied = embedding * (size("vocab_size") + size("max_position_embeddings")) + layers * 2 * width * (width + inner)
    if implied > 2 * num_stored + SPARE:
        what = f"its config describes {implied:,} parameters, and {num_stored:,} are stored"
        raise CheckpointError(where, what, "give the weights that belong to the config")


# ---- tokenizers and weights ----------------------------------------------------------------------------------------

FOREIGN_KEYS = frozenset({"auto_map", "custom_pipelines", "tokenizer_file", "vocab_file", "merges_file"})
"""Of tokenizer_config.json: code, and paths of other files."""


def open_tokenizer(folder: Path, kind: str = "AutoTokenizer", **options: Any) -> "PreTrainedTokenizerBase":
    """Open a tokenizer with transformers.

    Args:
        folder: with its files.
        kind: `AutoTokenizer` or `BertTokenizer`.
        options: of the class.

    Raises:
        CheckpointError: its config names code or files elsewhere.
    """
    import transformers

    check_folder(folder)
    file = folder / "tokenizer_config.json"
    if file.is_file():
        named = FOREIGN_KEYS & {key for key, value in read_settings_file(file).items() if value}
        if named:
            what = f"'{min(named)}' names code or other files, which are never loaded"
            raise CheckpointError(file, what, "remove the entry, or give a plain tokenizer")
    library: Any = transformers  # annotates only parts of itself
    options |= {"trust_remote_code": False, "local_files_only": True}
    tokenizer: PreTrainedTokenizerBase = getattr(library, kind).from_pretrained(folder, **options)
    return tokenizer


def open_model(auto_class: str, folder: Path, config: Any, **options: Any) -> Any:
    """Return what transformers loads from the safetensors of a folder, in single precision.

    Args:
        auto_class: name of the class, e.g. `AutoModel`.
        folder: with the weights.
        config: of the model, see `open_config`.
        options: of the class.

    Raises:
        CheckpointError: the weights are another number than the config describes.
    """
    import transformers

    check_folder(folder)
    check_sizes(folder, config, count_stored(folder.glob("*.safetensors")))
    with no_file_bars():
        return getattr(transformers, auto_class).from_pretrained(
            folder,
            config=config,
            # The stored dtype may be half precision, which CPUs without bf16 units compute a hundred times slower.
            dtype="float32",
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            **options,
        )


def count_stored(files: Iterable[Path]) -> int:
    """Return the number of parameters in safetensors files, from their headers.

    Raises:
        CheckpointError: a file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    count = 0
    for path in files:
        try:
            with safe_open(path, "numpy") as file:
                names: list[str] = list(file.keys())
                count += sum(math.prod(file.get_slice(name).get_shape()) for name in names)
        except (SafetensorError, OSError) as error:
            raise _damaged(path, error) from error
    return count


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Read a safetensors file.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error


def check_finite(where: object, tensors: Mapping[str, Any]) -> None:
    """Refuse weights with NaN or an infinite number, whose answers would mean nothing.

    Args:
        where: folder, for the message.
        tensors: by name, of torch or NumPy.

    Raises:
        CheckpointError: a tensor has one.
    """
    # A sum is not finite if one of its terms is not; half precision would overflow.
    for name, tensor in tensors.items():
        total = tensor.detach().sum() if hasattr(tensor, "detach") else tensor.sum()
        if not math.isfinite(float(total)):
            raise CheckpointError(where, f"{name} holds NaN or an infinite number", AGAIN)


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(path, f"damaged: the model cannot be read ({_first_line(error)})", "get the file again")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
