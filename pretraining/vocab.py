"""Train a cased Korean WordPiece vocabulary.

Lower-casing stays off and accents stay on: BERT's normaliser strips accents by NFD, which takes every Hangul syllable
apart into jamo that no vocabulary holds.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from corpora.runtime import DataError

if TYPE_CHECKING:
    from transformers import BertTokenizer

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

    if vocab_size <= len(SPECIAL_TOKENS):
        raise ValueError(f"vocab_size {vocab_size} has no room beyond the {len(SPECIAL_TOKENS)} special tokens")
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        limit_alphabet=limit_alphabet,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    vocab = tokenizer.get_vocab()
    if len(vocab) == len(SPECIAL_TOKENS):
        raise DataError("vocabulary", "the texts hold no characters", "give a corpus with text in it")
    return BertTokenizer(vocab=vocab, do_lower_case=False, strip_accents=False)
