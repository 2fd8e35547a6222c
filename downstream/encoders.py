"""Load any compared encoder with its tokenizer; the one place that knows their quirks.

Every source ends as a local folder: a known key or hub id is fetched into the hub cache, a folder is taken as it is.
Weights are read from safetensors only. Models that are published as pickled weights alone are converted once:

    python -m downstream.encoders SOURCE --out DIR

Quirks (sources: the models' repositories and model cards):

* kpfBERT has neither a trained pooler nor an NSP head; fine-tuning starts from a random pooler.
* All five are cased. Lower-casing would strip accents by NFD and with them the Hangul.
* KoBERT's vocabulary is a SentencePiece model with `[UNK] 0 [PAD] 1 [CLS] 2 [SEP] 3 [MASK] 4`; its hub folder names
  XLNet's tokenizer, which puts the special tokens last.
* KorBERT (ETRI, by licence only) marks the end of an eojeol by `_` instead of word continuations by `##`, splits on
  white space alone, and lists its pieces with counts in `vocab.korean.rawtext.list`.
* Only BERT, XLNet and ELECTRA take `token_type_ids`.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import CheckpointError, SuiteError, cannot_write, nearest
from corpora.foundation.files import package_path, sha256
from pretraining.vocab import SPECIAL_TOKENS, save_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class EncoderUnavailableError(CheckpointError):
    """An encoder that is neither at hand nor to be had."""


@dataclass(frozen=True)
class Encoder:
    """An encoder of the comparison."""

    title: str
    hub_id: str | None
    """None where the weights are handed out by licence only, or come with the package."""
    vocab_size: int
    note: str = ""
    folder: Path | None = None
    """Where it lies if it comes with the package."""


BUNDLED = package_path("downstream", "bundled")
"""The models that come with the package; see `downstream.bundle`."""


ENCODERS: Mapping[str, Encoder] = {
    "pressbert-mini": Encoder("PressBERT mini", None, 16_000, "comes with the package", BUNDLED / "encoder"),
    "kpfbert": Encoder("kpfBERT", "jinmang2/kpfbert", 36_440, "third-party upload of KPFBERT/kpfbert"),
    "klue-bert": Encoder("KLUE-BERT", "klue/bert-base", 32_000),
    "korbert": Encoder("KorBERT", None, 30_797, "WordPiece variant; ETRI licence, files by application"),
    "kobert": Encoder("KoBERT", "skt/kobert-base-v1", 8_002),
    "mbert": Encoder("mBERT", "google-bert/bert-base-multilingual-cased", 119_547),
}

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
KORBERT_VOCAB = "vocab.korean.rawtext.list"
SAFE_FILES = ("*.json", "*.txt", "*.model", "*.safetensors", KORBERT_VOCAB)
NOTES = ("result.json", "manifest.json", "recipe.json", "data.json", "held-out-*.json")
"""What the suite writes beside a model: how it was made and how it scored."""
PICKLED_WEIGHTS = ("pytorch_model.bin",)
SENTENCEPIECE_BPE = 2  # TrainerSpec.ModelType
FITTING = "give the weights that belong to the config"
TYPED_MODELS = {"bert", "xlnet", "electra"}
TYPED_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


def bundled(name: str) -> Path:
    """Return the folder of a model that comes with the package: `encoder`, `classifier` or `embedder`.

    Raises:
        CheckpointError: it is not there in this installation.
    """
    folder = BUNDLED / name
    if not (folder / "config.json").is_file():
        raise EncoderUnavailableError(folder, f"no {name} is bundled", "make it: make bundled")
    return folder


def is_bundled(name: str) -> bool:
    """Tell whether NAME is an encoder that comes with the package."""
    return name in ENCODERS and ENCODERS[name].folder is not None


def resolve(name: str, *, patterns: tuple[str, ...] = SAFE_FILES) -> Path:
    """Return the local folder of an encoder.

    Args:
        name: a folder, a key of `ENCODERS`, or a hub id such as `klue/bert-base`.
        patterns: files to fetch from the hub; never code, and no pickles unless asked.

    Raises:
        CheckpointError: nothing is known by that name, or the hub cannot be reached.
    """
    if name and Path(name).is_dir():
        return Path(name)
    known = ENCODERS.get(name)
    if known is not None and known.folder is not None:
        return bundled(known.folder.name)
    if known is not None and known.hub_id is None:
        fix = f"give its folder, e.g. --models {name}=FOLDER"
        raise EncoderUnavailableError(name, f"{known.title} is not on a hub ({known.note})", fix)
    hub_id = known.hub_id if known is not None else name
    if hub_id is None or not HUB_ID.fullmatch(hub_id):
        raise CheckpointError(name, "no such folder, known encoder or hub id", nearest(name, ENCODERS))
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=list(patterns)))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        fix = f"check the name and the network, or give a folder: --models {name.split('/')[-1]}=FOLDER"
        raise EncoderUnavailableError(
            name, f"'{hub_id}' is not in the local cache and cannot be downloaded", fix
        ) from error
    if patterns == SAFE_FILES and not any(folder.glob("*.safetensors")):
        fix = f"convert once: python -m downstream.encoders {name} --out DIR, then --models {name.split('/')[-1]}=DIR"
        raise CheckpointError(name, f"'{hub_id}' is published as pickled weights only", fix)
    return folder


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of an encoder folder, always a fast one: span answers need its offsets.

    Raises:
        CheckpointError: the folder holds no vocabulary that is understood, or a damaged one.
    """
    config = _read_config(folder)
    try:
        tokenizer = _open_tokenizer(folder, config)
    except SuiteError:
        raise
    except Exception as error:  # the tokenizers library raises plain Exception for what it cannot parse
        raise CheckpointError(folder, f"the tokenizer files are damaged ({error})", "download them again") from error
    if config.get("model_type", "bert") in TYPED_MODELS:
        tokenizer.model_input_names = TYPED_INPUTS
    else:
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    positions = int(config.get("max_position_embeddings", 512))
    # RoBERTa numbers positions from pad_token_id + 1.
    offset = int(config.get("pad_token_id", 1)) + 1 if config.get("model_type") in {"roberta", "xlm-roberta"} else 0
    tokenizer.model_max_length = positions - offset
    return tokenizer


def _open_tokenizer(folder: Path, config: Mapping[str, Any]) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer, BertTokenizer

    pieces = sorted(folder.glob("*.model"))
    if (folder / KORBERT_VOCAB).is_file():
        return _korbert_tokenizer(folder / KORBERT_VOCAB)
    if pieces and config.get("model_type", "bert") == "bert" and not _is_plain(folder):
        return _sentencepiece_tokenizer(pieces[0])
    tokenizer: PreTrainedTokenizerBase
    if (folder / "vocab.txt").is_file():
        pieces_listed = set((folder / "vocab.txt").read_text(encoding="utf-8").split("\n"))
        # BertTokenizer would append what is missing, with ids that the model has no embedding for.
        if missing := [token for token in SPECIAL_TOKENS if token not in pieces_listed]:
            what = f"the vocabulary lacks {', '.join(missing)}"
            raise CheckpointError(folder / "vocab.txt", what, "use the model's own files")
        tokenizer = BertTokenizer.from_pretrained(folder, do_lower_case=False, strip_accents=False)
    elif (folder / "tokenizer.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    else:
        raise CheckpointError(folder, "no vocab.txt, tokenizer.json or *.model in it", "copy the tokenizer files in")
    return tokenizer


def load_model(folder: Path, tokenizer: "PreTrainedTokenizerBase", auto_class: str, head: Mapping[str, Any]) -> Any:
    """Load an encoder with a task head in single precision; the head, and a missing pooler, start at random.

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
            # The stored dtype may be half precision, which CPUs without bf16 units run a hundred times slower.
            dtype="float32",
            output_loading_info=True,
        )
    except (SafetensorError, OSError, RuntimeError, ValueError, AttributeError) as error:
        raise CheckpointError(folder, f"the model cannot be read ({error})", "download the folder again") from error
    _check_complete(folder, loaded["missing_keys"])
    return model


def _check_vocabulary(folder: Path, tokenizer: "PreTrainedTokenizerBase", vocab_size: int) -> None:
    if max(tokenizer.get_vocab().values()) >= vocab_size:
        what = f"the tokenizer has {max(tokenizer.get_vocab().values()) + 1:,} pieces and the model {vocab_size:,}"
        raise CheckpointError(folder, what, "put tokenizer and weights of the same model in the folder")


def _check_complete(where: Path, missing: Iterable[str]) -> None:
    """Refuse weights with gaps in the encoder; only heads and the pooler may start at random."""
    lost = sorted(key for key in missing if ".encoder." in f".{key}" or ".embeddings." in f".{key}")
    if lost:
        what = f"{len(lost)} encoder weights are missing, e.g. {lost[0]}"
        raise CheckpointError(where, what, FITTING)


def weights_sha256_paths(folder: Path) -> list[Path]:
    """Return the files that decide what the encoder computes: weights, config and tokenizer, in a fixed order."""
    found = sorted(path for pattern in SAFE_FILES for path in folder.glob(pattern))
    return [path for path in found if not any(path.match(note) for note in NOTES)]


def encoder_digest(folder: Path) -> str:
    """Return the sha256 of the files that decide what the encoder computes."""
    return sha256(*weights_sha256_paths(folder))


def _read_config(folder: Path) -> dict[str, Any]:
    for name in ("config.json", "bert_config.json"):
        if (folder / name).is_file():
            try:
                config = json.loads((folder / name).read_text(encoding="utf-8"))
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                raise CheckpointError(folder / name, f"not valid JSON ({error})", "download it again") from error
            return config if isinstance(config, dict) else {}
    raise CheckpointError(folder, "no config.json in it", "give the folder of a transformers model")


def _is_plain(folder: Path) -> bool:
    """Whether the folder was saved by this suite, whose tokenizer.json already has every quirk resolved."""
    path = folder / "tokenizer_config.json"
    if not path.is_file() or not (folder / "tokenizer.json").is_file():
        return False
    name = str(json.loads(path.read_text(encoding="utf-8")).get("tokenizer_class", ""))
    return name in {"PreTrainedTokenizerFast", "TokenizersBackend"}


def _wrap(tokenizer: Any, path: Path) -> "PreTrainedTokenizerBase":
    """Dress a `tokenizers` tokenizer as a BERT one: template, special tokens, right padding."""
    import transformers
    from tokenizers import processors

    ids = {name: tokenizer.token_to_id(f"[{name}]") for name in ("UNK", "PAD", "CLS", "SEP", "MASK")}
    missing = [f"[{name}]" for name, id_ in ids.items() if id_ is None]
    if missing:
        raise CheckpointError(path, f"the vocabulary lacks {', '.join(missing)}", "use the model's own files")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["CLS"]), ("[SEP]", ids["SEP"])],
    )
    library: Any = transformers  # annotates only parts of itself
    wrapped: PreTrainedTokenizerBase = library.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        padding_side="right",
        model_input_names=TYPED_INPUTS,
    )
    return wrapped


def _sentencepiece_tokenizer(path: Path) -> "PreTrainedTokenizerBase":
    """KoBERT: the pieces of a SentencePiece model in BERT's template."""
    from google.protobuf.message import DecodeError
    from tokenizers import Tokenizer, models
    from transformers.convert_slow_tokenizer import SentencePieceExtractor, SpmConverter

    extractor: Any = SentencePieceExtractor  # both annotate only parts of themselves
    spm_converter: Any = SpmConverter

    class Original:
        vocab_file = str(path)

    def build_bpe(proto: Any) -> Tokenizer:
        # The converter of transformers 5.23 passes its extractor a list where that expects a type.
        parts = extractor(str(path)).extract(None)
        model = models.BPE(parts["vocab"], parts["merges"], unk_token=proto.trainer_spec.unk_piece, fuse_unk=True)
        tokenizer = Tokenizer(model)
        tokenizer.add_tokens(parts["additional_special_tokens"])
        return tokenizer

    try:
        converter = spm_converter(Original())
        if converter.proto.trainer_spec.model_type == SENTENCEPIECE_BPE:
            converter.tokenizer = build_bpe
        return _wrap(converter.converted(), path)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise CheckpointError(path, f"not a SentencePiece model ({error})", "download it again") from error


def _korbert_tokenizer(path: Path) -> "PreTrainedTokenizerBase":
    """KorBERT's WordPiece variant: greedy longest match over `eojeol_`, no `##`, lines of `piece<TAB>count`."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    lines = path.read_text(encoding="utf-8").split("\n")
    pieces = [
        line.split("\t")[0].strip() for line in lines if line and not line.startswith(("n_iters=", "max_length="))
    ]
    # The id is the line's number, also behind a piece that is listed twice.
    vocab = {piece: id_ for id_, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", continuing_subword_prefix=""))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.BertNormalizer(handle_chinese_chars=False, lowercase=False, strip_accents=False),
            normalizers.Replace(Regex(r"(?<=\S)(?=\s|\z)"), "_"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrap(tokenizer, path)


def convert(source: str, out: Path) -> None:
    """Save an encoder as a plain folder: config.json, tokenizer.json, model.safetensors.

    Pickled weights are read by torch's restricted unpickler (`weights_only=True`), which builds tensors and nothing
    else; use it on files whose origin you know.

    Raises:
        CheckpointError: the source cannot be found or read.
        ResultError: OUT cannot be written.
    """
    import torch
    from transformers import AutoModelForMaskedLM, BertConfig

    folder = resolve(source, patterns=(*SAFE_FILES, *PICKLED_WEIGHTS))
    tokenizer = load_tokenizer(folder)
    config = BertConfig(**{k: v for k, v in _read_config(folder).items() if k not in {"architectures", "dtype"}})
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
                # torch's own message advises to switch the restriction off, which is what must not be done.
                what = f"cannot be read as weights: damaged, or more than tensors ({type(error).__name__})"
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


def main(argv: list[str] | None = None) -> int:
    """Convert an encoder from the command line."""
    parser = ArgumentParser("python -m downstream.encoders", "Save an encoder as a plain folder with safetensors.")
    parser.add_argument("source", help=f"folder, hub id, or one of {', '.join(ENCODERS)}")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    arguments = parser.parse(argv)
    convert(arguments.source, arguments.out)
    sys.stdout.write(f"{arguments.out}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
