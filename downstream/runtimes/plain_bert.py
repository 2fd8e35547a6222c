"""Plain BERTs are ready without torch: which folders are of that kind, and their tokenizer.

    if is_plain_bert(folder):
        tokenizer = PlainTokenizer.load(folder)
        rows = tokenizer(["배우들 연기가 좋았다"])["input_ids"]

Importing torch and the models of transformers takes seconds, which is most of the time of whoever asks one question.
The weights are read by `downstream.runtimes.weights` and run by `downstream.runtimes.graph`.
"""

import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.characters import nfc
from corpora.foundation.errors import CheckpointError, SuiteError
from downstream.encoders.folder import ModelFolder
from downstream.encoders.tokenizers import check_reads_hangul
from downstream.runtimes.weights import unsupported_reason
from pretraining.folders import check_folder
from pretraining.vocabulary.splitting import add_rules, without_composing

if TYPE_CHECKING:
    import tokenizers

TOKENIZER_FILE = "tokenizer.json"
SURROGATES = re.compile("[\ud800-\udfff]")
INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
PLAIN_NORMALIZER = {"type": "BertNormalizer", "strip_accents": False, "lowercase": False}
"""What every tokenizer of ours does to composed text, besides `clean_text` and spaces around Chinese characters."""


def is_plain_bert(folder: Path) -> bool:
    """Whether a folder is a BERT that is read without torch, with a cased WordPiece and nothing unusual.

    Raises:
        CheckpointError: the folder is one that nothing is read of.
    """
    check_folder(folder)
    if unsupported_reason(folder):
        return False  # transformers says what is wrong with it, if anything is
    try:
        tokenizer = json.loads((folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
        normalizer = tokenizer.get("normalizer") or {}
        if [step.get("type") for step in normalizer.get("normalizers", ())] == ["NFC", "BertNormalizer"]:
            normalizer = normalizer["normalizers"][1]
        is_plain = (
            (tokenizer.get("model") or {}).get("type") == "WordPiece"
            and all(normalizer.get(key) == value for key, value in PLAIN_NORMALIZER.items())
            and (tokenizer.get("post_processor") or {}).get("type") == "TemplateProcessing"
        )
    except (OSError, ValueError, RecursionError, AttributeError, TypeError):
        return False
    return is_plain and ModelFolder(folder).model_type == "bert"


class PlainTokenizer:
    """A saved fast tokenizer, called as those of transformers are, as far as texts and pairs of texts need it."""

    def __init__(self, tokenizer: "tokenizers.Tokenizer", max_length: int) -> None:
        """Use an open tokenizer; MAX_LENGTH is what its model reads, special tokens included."""
        self._tokenizer, self._lock = tokenizer, threading.Lock()
        self.model_max_length = max_length
        self.model_input_names = INPUTS
        ids = {name: tokenizer.token_to_id(f"[{name}]") for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
        self.pad_token_id, self.mask_token_id, self.mask_token = ids["PAD"], ids["MASK"], "[MASK]"
        self.all_special_ids = [id_ for id_ in ids.values() if id_ is not None]

    @classmethod
    def load(cls, folder: Path) -> "PlainTokenizer":
        """Open the tokenizer of a folder that `is_plain_bert`.

        Raises:
            CheckpointError: it is damaged, or does not belong to the weights.
        """
        from tokenizers import Tokenizer

        check_folder(folder)
        model = ModelFolder(folder)
        try:
            tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
            tokenizer.no_padding()
            add_rules(tokenizer)
            check_reads_hangul(folder, tokenizer, tokenizer.token_to_id("[UNK]"))
        except SuiteError:
            raise
        except Exception as error:  # the tokenizers library raises plain Exception for what it cannot parse
            what = f"the tokenizer files are damaged ({error})"
            raise CheckpointError(folder, what, "download the folder again") from error
        # Python composes faster, for it sees at once that a text is composed.
        tokenizer.normalizer = without_composing(tokenizer)
        loaded = cls(tokenizer, model.max_positions or 512)
        if loaded.pad_token_id is None or loaded.mask_token_id is None:
            raise CheckpointError(folder / TOKENIZER_FILE, "it lacks [PAD] or [MASK]", "use the model's own files")
        if (size := max(loaded.get_vocab().values()) + 1) > model.vocab_size:
            what = f"the tokenizer has {size:,} subwords and the model {model.vocab_size:,}"
            raise CheckpointError(folder, what, "put tokenizer and weights of the same model in the folder")
        return loaded

    def __call__(
        self,
        texts: str | Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        truncation: bool | str = False,
        max_length: int | None = None,
        add_special_tokens: bool = True,
    ) -> dict[str, Any]:
        """Tokenize a text, or texts with their pairs; returns a list, or a list of lists, for each of `INPUTS`.

        Args:
            texts: what is tokenized.
            pairs: second texts.
            truncation: cut what is longer, at the end; of a pair, tokens of the longer text first.
            max_length: tokens from which on it is cut, special ones included; default: what the model reads.
            add_special_tokens: put [CLS] and [SEP] around.
        """
        rows: list[Any] = [_readable(text) for text in ([texts] if isinstance(texts, str) else texts)]
        if pairs is not None:
            rows = list(zip(rows, map(_readable, pairs), strict=True))
        with self._lock:  # truncation is a setting of the one tokenizer
            if truncation:
                self._tokenizer.enable_truncation(max_length or self.model_max_length, strategy="longest_first")
            else:
                self._tokenizer.no_truncation()
            found = self._tokenizer.encode_batch_fast(rows, add_special_tokens=add_special_tokens)
        columns = ([e.ids for e in found], [e.type_ids for e in found], [e.attention_mask for e in found])
        return {
            name: column[0] if isinstance(texts, str) else column for name, column in zip(INPUTS, columns, strict=True)
        }

    def get_vocab(self) -> dict[str, int]:
        """Return the subwords with their ids."""
        return self._tokenizer.get_vocab(with_added_tokens=True)

    def convert_ids_to_tokens(self, id_: int) -> str:
        """Return the subword of an id."""
        return str(self._tokenizer.id_to_token(id_))


def _readable(text: str) -> str:
    """Return a text in composed form; lone surrogates, which tokenizers refuses, become replacement marks."""
    return nfc(SURROGATES.sub("\ufffd", text))
