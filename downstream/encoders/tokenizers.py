"""Tokenizers of all compared encoders, as fast tokenizers with the ids that each model was trained with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError, SuiteError
from corpora.foundation.floors import needs
from downstream.encoders.folder import KORBERT_VOCAB, ModelFolder
from pretraining.folders import check_folder, open_tokenizer
from pretraining.vocabulary.splitting import add_rules
from pretraining.vocabulary.tokenizer import CONFIG_FILE, PLAIN_CLASSES, SPECIAL_TOKENS, TOKENIZER_FILE, with_rules

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

VOCAB_FILE = "vocab.txt"
SENTENCEPIECE_BPE = 2  # TrainerSpec.ModelType
TYPED_MODELS = {"bert", "xlnet", "electra", "albert"}
DEFAULT_MAX_LENGTH = 512
TYPED_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
HANGUL_LINE = "이 나라의 한 기자가 이런 일을 다시 보고 그 사실을 알리는 글이다"
"""Common syllables; a vocabulary that lacks most of them is not one of Korean."""


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of an encoder folder, always a fast one: span answers need its offsets.

    It composes Hangul and splits off characters that its vocabulary lacks; see `pretraining.vocabulary.splitting`.

    Raises:
        CheckpointError: the folder holds no supported vocabulary, or a damaged one, or none of Hangul.
        MissingPackageError: transformers is not installed.
    """
    needs("transformers")
    check_folder(folder)
    model = ModelFolder(folder)
    model_type = model.model_type
    try:
        tokenizer = _open_tokenizer(folder, model_type)
        add_rules(tokenizer.backend_tokenizer)
        check_reads_hangul(folder, tokenizer.backend_tokenizer, tokenizer.unk_token_id)
    except SuiteError:
        raise
    except Exception as error:  # the tokenizers library raises plain Exception for what it cannot parse
        what = f"the tokenizer files are damaged ({error})"[:400]
        raise CheckpointError(folder, what, "download them again") from error
    if model_type in TYPED_MODELS:
        tokenizer.model_input_names = TYPED_INPUTS
    else:
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.model_max_length = model.max_positions or DEFAULT_MAX_LENGTH
    return tokenizer


def _open_tokenizer(folder: Path, model_type: str) -> "PreTrainedTokenizerBase":
    sentencepiece_files = sorted(folder.glob("*.model"))
    if (folder / KORBERT_VOCAB).is_file():
        return _korbert_tokenizer(folder / KORBERT_VOCAB)
    if sentencepiece_files and model_type == "bert" and not _is_plain(folder):
        return _sentencepiece_tokenizer(sentencepiece_files[0])
    has_vocab, has_json = ((folder / name).is_file() for name in (VOCAB_FILE, TOKENIZER_FILE))
    if not has_vocab and not has_json:
        raise CheckpointError(folder, "no vocab.txt, tokenizer.json or *.model in it", "copy the tokenizer files in")
    vocab = _read_vocab(folder / VOCAB_FILE) if has_vocab else {}
    bert = _bert_normalizer(folder) if has_json else {}
    tokenizer: PreTrainedTokenizerBase
    if has_json and (_is_plain(folder) or not (has_vocab or bert)):
        tokenizer = open_tokenizer(folder)
    else:
        # The library reads a byte order mark in vocab.txt as part of the first token.
        given: dict[str, Any] = {} if has_json else {"vocab": vocab}
        opened: Any = open_tokenizer(folder, "BertTokenizer", **_casing(folder, bert), **given)
        tokenizer = with_rules(opened)
    return tokenizer


def _read_vocab(path: Path) -> dict[str, int]:
    """Read the subwords of a `vocab.txt`, with their ids.

    Raises:
        CheckpointError: it lacks one of BERT's special tokens.
    """
    lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    vocab = {line: id_ for id_, line in enumerate(lines)}
    # BertTokenizer would append missing tokens, with ids that the model has no embedding for.
    if missing := [token for token in SPECIAL_TOKENS if token not in vocab]:
        raise CheckpointError(path, f"the vocabulary lacks {', '.join(missing)}", "use the model's own files")
    return vocab


def _bert_normalizer(folder: Path) -> dict[str, Any]:
    """Return the settings of BERT's normalizer in a folder's `tokenizer.json`; empty if it has none."""
    normalizer = json.loads((folder / TOKENIZER_FILE).read_text(encoding="utf-8")).get("normalizer") or {}
    steps: list[dict[str, Any]] = normalizer.get("normalizers", [normalizer])
    return next((step for step in steps if step.get("type") == "BertNormalizer"), {})


def _casing(folder: Path, bert: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a folder says of letter case and accents: its config first, then its normalizer; else cased."""
    stated = {"do_lower_case": bert.get("lowercase"), "strip_accents": bert.get("strip_accents")}
    if (folder / CONFIG_FILE).is_file():
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        stated |= {key: config[key] for key in stated if config.get(key) is not None}
    lowers, strips = bool(stated["do_lower_case"]), stated["strip_accents"]
    return {"do_lower_case": lowers, "strip_accents": lowers if strips is None else bool(strips)}


def check_reads_hangul(folder: Path, tokenizer: "Tokenizer", unknown_id: int | None) -> None:
    """Refuse a tokenizer that makes [UNK] of most of a line of Hangul, or gives ids that its vocabulary lacks.

    Raises:
        CheckpointError: it does.
    """
    ids = tokenizer.encode(HANGUL_LINE, add_special_tokens=False).ids
    last = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if (largest := max(tokenizer.encode(HANGUL_LINE).ids, default=0)) > last:
        what = f"its tokenizer gives the id {largest:,}, and the last one of its vocabulary is {last:,}"
        raise CheckpointError(folder, what, "download the tokenizer files again")
    if unknown_id is not None and 2 * ids.count(unknown_id) > len(ids):
        what = f"its tokenizer makes [UNK] of {ids.count(unknown_id)} of {len(ids)} tokens of a line of Hangul"
        fix = "use a Korean model; if it is cased, set do_lower_case and strip_accents to false in " + CONFIG_FILE
        raise CheckpointError(folder, what, fix)


def _is_plain(folder: Path) -> bool:
    """Whether the folder was saved by this suite: its tokenizer.json needs no model-specific handling."""
    path = folder / CONFIG_FILE
    if not path.is_file() or not (folder / TOKENIZER_FILE).is_file():
        return False
    return str(json.loads(path.read_text(encoding="utf-8")).get("tokenizer_class", "")) in PLAIN_CLASSES


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
