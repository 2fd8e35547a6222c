"""WordPiece tokenizers on disk: BERT's special tokens, saving, and opening for pretraining."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import write_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENIZER_FILE = "tokenizer.json"
PROBE = "각 Éa"
"""Text that a normalizer fit for Korean leaves unchanged: composed Hangul, an accent, upper and lower case."""


def save_tokenizer(tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Save a tokenizer as `tokenizer.json` and, for WordPiece, as the plain `vocab.txt` that older tools read.

    Raises:
        ResultError: the folder cannot be written.
    """
    from transformers import BertTokenizer

    tokenizer.save_pretrained(folder)
    if isinstance(tokenizer, BertTokenizer):
        vocab = tokenizer.get_vocab()
        write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in sorted(vocab, key=vocab.__getitem__)))


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
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))  # some files have them in the vocabulary only
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # “[SEP]” in an article is text
    return tokenizer
