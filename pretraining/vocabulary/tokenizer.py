"""WordPiece tokenizers on disk: BERT's special tokens, saving, and opening for pretraining."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError, cannot_write
from corpora.foundation.files import write_json, write_text
from pretraining.folders import open_tokenizer
from pretraining.vocabulary.splitting import add_rules

if TYPE_CHECKING:
    from transformers import BertTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
PLAIN_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Names in `tokenizer_config.json` for a tokenizer that is all of its `tokenizer.json`, of transformers 4 and 5."""
PROBE = "각 Éa"
"""Text that a normalizer fit for Korean leaves unchanged: composed Hangul, an accent, upper and lower case."""


def save_tokenizer(tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Save a tokenizer as `tokenizer.json` and, for WordPiece, as the plain `vocab.txt` that older tools read.

    The file composes Hangul and splits off characters that the vocabulary lacks (`pretraining.vocabulary.splitting`),
    so that transformers gives the same tokens as the suite.

    Raises:
        ResultError: the folder cannot be written.
    """
    from tokenizers import models

    backend: Any = tokenizer.backend_tokenizer
    add_rules(backend)
    try:
        tokenizer.save_pretrained(folder)
    except Exception as error:  # the tokenizers library raises plain Exception for a full disk
        if isinstance(error, OSError) or "os error" not in str(error):
            raise
        raise cannot_write(folder, error) from error
    name_plain_class(folder, tokenizer.model_input_names)
    if isinstance(backend.model, models.WordPiece) and backend.model.continuing_subword_prefix:
        vocab = tokenizer.get_vocab()
        write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in sorted(vocab, key=vocab.__getitem__)))


def name_plain_class(folder: Path, model_input_names: Sequence[str]) -> None:
    """Let transformers open a saved tokenizer exactly as `tokenizer.json` says.

    A `BertTokenizer` takes no more than the vocabulary from there, and so would lose the rules.
    """
    config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    names = {"tokenizer_class": PLAIN_CLASSES[0], "model_input_names": list(model_input_names)}
    write_json(folder / CONFIG_FILE, config | names)


def cased_tokenizer(vocab: dict[str, int]) -> "PreTrainedTokenizerFast":
    """Return the tokenizer of a cased WordPiece vocabulary, with the rules of `pretraining.vocabulary.splitting`."""
    from transformers import BertTokenizer

    return with_rules(BertTokenizer(vocab=vocab, do_lower_case=False, strip_accents=False))


def load_wordpiece(folder: Path) -> "PreTrainedTokenizerFast":
    """Load the tokenizer of a folder that `open_wordpiece` opens, as a tokenizer of transformers."""
    opened: Any = open_tokenizer(folder, "BertTokenizer", do_lower_case=False, strip_accents=False)
    return with_rules(opened)


def with_rules(tokenizer: "BertTokenizer") -> "PreTrainedTokenizerFast":
    """Return a tokenizer with the rules of `pretraining.vocabulary.splitting`, which keeps them when it is saved.

    A `BertTokenizer` takes no more than the vocabulary from its `tokenizer.json`.
    """
    import transformers

    library: Any = transformers  # annotates only parts of itself
    backend: Any = tokenizer.backend_tokenizer
    add_rules(backend)
    names = ("unk_token", "pad_token", "cls_token", "sep_token", "mask_token")
    # Settings for tools that open vocab.txt by itself.
    kept = {name: getattr(tokenizer, name) for name in (*names, "do_lower_case", "strip_accents")}
    plain: PreTrainedTokenizerFast = library.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        padding_side="right",
        model_input_names=tokenizer.model_input_names,
        model_max_length=tokenizer.model_max_length,
        **kept,
    )
    return plain


def open_wordpiece(tokenizer_json: Path) -> Any:
    """Open a `tokenizer.json` for pretraining: a cased WordPiece with BERT's special tokens.

    Raises:
        CheckpointError: it is missing, damaged, not WordPiece, or lower-cases.
    """
    from tokenizers import Tokenizer

    train = "train one with python -m pretraining.vocab CORPUS --out DIR --vocab-size N"
    if not tokenizer_json.is_file():
        raise CheckpointError(tokenizer_json, "no such file", train)
    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_json))
    except Exception as error:  # tokenizers raises plain Exception for what it cannot parse
        raise CheckpointError(tokenizer_json, f"not a tokenizer file ({error})", train) from error
    if type(tokenizer.model).__name__ != "WordPiece":
        raise CheckpointError(tokenizer_json, f"a {type(tokenizer.model).__name__} tokenizer, not WordPiece", train)
    missing = [token for token in SPECIAL_TOKENS if tokenizer.token_to_id(token) is None]
    if missing:
        raise CheckpointError(tokenizer_json, f"{', '.join(missing)} missing", train)
    if tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str(PROBE) != PROBE:
        what = "its normalizer lower-cases or decomposes letters"
        raise CheckpointError(tokenizer_json, what, "set do_lower_case and strip_accents to false")
    add_rules(tokenizer)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))  # some files have them in the vocabulary only
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # “[SEP]” in an article is text
    return tokenizer
