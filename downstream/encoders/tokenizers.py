"""Tokenizers of all compared encoders, as fast tokenizers with the ids that each model was trained with."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError, SuiteError
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
from downstream.encoders.folder import KORBERT_VOCAB, ModelFolder

SENTENCEPIECE_BPE = 2  # TrainerSpec.ModelType
TYPED_MODELS = {"bert", "xlnet", "electra"}
DEFAULT_MAX_LENGTH = 512
TYPED_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of an encoder folder, always a fast one: span answers need its offsets.

    Raises:
        CheckpointError: the folder holds no supported vocabulary, or a damaged one.
    """
    model = ModelFolder(folder)
    model_type = model.model_type
    try:
        tokenizer = _open_tokenizer(folder, model_type)
    except SuiteError:
        raise
    except Exception as error:  # the tokenizers library raises plain Exception for what it cannot parse
        raise CheckpointError(folder, f"the tokenizer files are damaged ({error})", "download them again") from error
    if model_type in TYPED_MODELS:
        tokenizer.model_input_names = TYPED_INPUTS
    else:
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.model_max_length = model.max_positions or DEFAULT_MAX_LENGTH
    return tokenizer


def _open_tokenizer(folder: Path, model_type: str) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer, BertTokenizer

    sentencepiece_files = sorted(folder.glob("*.model"))
    if (folder / KORBERT_VOCAB).is_file():
        return _korbert_tokenizer(folder / KORBERT_VOCAB)
    if sentencepiece_files and model_type == "bert" and not _is_plain(folder):
        return _sentencepiece_tokenizer(sentencepiece_files[0])
    tokenizer: PreTrainedTokenizerBase
    if (folder / "vocab.txt").is_file():
        listed = set((folder / "vocab.txt").read_text(encoding="utf-8").split("\n"))
        # BertTokenizer would append missing tokens, with ids that the model has no embedding for.
        if missing := [token for token in SPECIAL_TOKENS if token not in listed]:
            what = f"the vocabulary lacks {', '.join(missing)}"
            raise CheckpointError(folder / "vocab.txt", what, "use the model's own files")
        tokenizer = BertTokenizer.from_pretrained(folder, do_lower_case=False, strip_accents=False)
    elif (folder / "tokenizer.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    else:
        raise CheckpointError(folder, "no vocab.txt, tokenizer.json or *.model in it", "copy the tokenizer files in")
    return tokenizer


def _is_plain(folder: Path) -> bool:
    """Whether the folder was saved by this suite: its tokenizer.json needs no model-specific handling."""
    path = folder / "tokenizer_config.json"
    if not path.is_file() or not (folder / "tokenizer.json").is_file():
        return False
    name = str(json.loads(path.read_text(encoding="utf-8")).get("tokenizer_class", ""))
    return name in {"PreTrainedTokenizerFast", "TokenizersBackend"}


def _wrap(tokenizer: Any, path: Path) -> "PreTrainedTokenizerBase":
    """Wrap a `tokenizers` tokenizer as a BERT one: template, special tokens, right padding."""
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
    """KoBERT: the subwords of a SentencePiece model in BERT's template."""
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
    """KorBERT's WordPiece variant: greedy longest match over `eojeol_`, no `##`, lines of `subword<TAB>count`."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    lines = path.read_text(encoding="utf-8").split("\n")
    subwords = [
        line.split("\t")[0].strip() for line in lines if line and not line.startswith(("n_iters=", "max_length="))
    ]
    # The id is the line number, also after a subword that is listed twice.
    vocab = {subword: id_ for id_, subword in enumerate(subwords)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", continuing_subword_prefix=""))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.BertNormalizer(handle_chinese_chars=False, lowercase=False, strip_accents=False),
            normalizers.Replace(Regex(r"(?<=\S)(?=\s|\z)"), "_"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrap(tokenizer, path)
