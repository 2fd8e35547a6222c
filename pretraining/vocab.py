"""Train a cased Korean WordPiece vocabulary.

Lower-casing stays off and accents stay on: BERT's normaliser strips accents by NFD, which takes every Hangul syllable
apart into jamo that no vocabulary holds.
"""

import collections
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from corpora.runtime import DataError, write_text

if TYPE_CHECKING:
    from transformers import BertTokenizer, PreTrainedTokenizerBase

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def train_wordpiece(
    texts: Iterable[str], vocab_size: int, *, min_frequency: int = 2, limit_alphabet: int = 3000
) -> "BertTokenizer":
    """Train a WordPiece vocabulary on raw eojeol.

    Args:
        texts: training text, one or more sentences each.
        vocab_size: largest number of pieces, special tokens included; small texts support fewer.
        min_frequency: a piece is merged only if it occurs this often.
        limit_alphabet: single characters kept, the most frequent ones.

    Returns:
        A cased `BertTokenizer` with `[PAD] 0 [UNK] 1 [CLS] 2 [SEP] 3 [MASK] 4`, the ids of the Korean BERTs.

    Raises:
        DataError: the texts hold no characters at all.
        ValueError: the vocabulary has no room beyond the special tokens.
    """
    from transformers import BertTokenizer

    if vocab_size < len(SPECIAL_TOKENS) + 2:
        raise ValueError(f"vocab_size {vocab_size} leaves no room beside {len(SPECIAL_TOKENS)} special tokens")
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    texts = list(texts)
    # Word starts and continuations share the room that the special tokens leave.
    room = (vocab_size - len(SPECIAL_TOKENS)) // 2
    alphabet = _alphabet(texts, min(limit_alphabet, room))
    # The trainer numbers continuations in the order of a randomly seeded hash map, and breaks ties between equally
    # frequent pairs by number. Handing it every single character up front makes the same text give the same pieces.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        limit_alphabet=0,
        special_tokens=[*SPECIAL_TOKENS, *alphabet],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    vocab = tokenizer.get_vocab()
    if not alphabet:
        raise DataError("vocabulary", "the texts hold no characters", "give a corpus with text in it")
    return BertTokenizer(vocab=vocab, do_lower_case=False, strip_accents=False)


def save_tokenizer(tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Save a tokenizer as `tokenizer.json` and, for WordPiece, as the plain `vocab.txt` that older tools read.

    Raises:
        ResultError: the folder cannot be written.
    """
    from transformers import BertTokenizer

    tokenizer.save_pretrained(folder)
    if isinstance(tokenizer, BertTokenizer):
        vocab = tokenizer.get_vocab()
        write_text(folder / "vocab.txt", "".join(f"{piece}\n" for piece in sorted(vocab, key=vocab.__getitem__)))


def _alphabet(texts: Sequence[str], limit: int) -> list[str]:
    """Return the most frequent characters as word starts, then as continuations, in code point order."""
    counts: collections.Counter[str] = collections.Counter()
    for text in texts:
        counts.update(text)
    for character in [c for c in counts if c.isspace() or unicodedata.category(c).startswith("C")]:
        del counts[character]
    kept = sorted(sorted(counts, key=lambda c: (-counts[c], c))[:limit])
    return kept + [f"##{c}" for c in kept if not _stands_alone(c)]


def _stands_alone(character: str) -> bool:
    """Whether BERT's pre-tokenizer makes a word of its own of CHARACTER: punctuation and Hanja."""
    ascii_symbol = character.isascii() and not character.isalnum()
    hanja = unicodedata.name(character, "").startswith("CJK ")
    return ascii_symbol or hanja or unicodedata.category(character).startswith("P")
