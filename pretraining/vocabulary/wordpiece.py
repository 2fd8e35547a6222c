"""Training of a cased Korean WordPiece vocabulary, on eojeol or on morphemes.

Lower-casing stays off and accents stay on: BERT's normalizer strips accents by NFD, which decomposes every Hangul
syllable into jamo that no vocabulary holds.

With `morpheme` the text is split into morphemes before training, so that no subword crosses a morpheme boundary:
`모델을` yields `모델` and `##을`, never `##델을`. The analyser is needed for training only, not for tokenization
("morpheme-based subword tokenization": KLUE, Park et al. 2021; kpfBERT's vocabulary was trained this way).
"""

import collections
import itertools
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from corpora.characters import nfc
from corpora.foundation.config import Config
from corpora.foundation.errors import DataError
from corpora.readers.records import TextUnit
from pretraining.vocabulary.splitting import stands_alone
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS, cased_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Segmentation: TypeAlias = Literal["eojeol", "morpheme"]

BOUNDARY = "\ue000"
"""Inside an eojeol, precedes each morpheme but the first. Text cannot contain it: BERT's normalizer drops it."""

# BERT's normalizer in two steps, with the morpheme analysis between them: first control characters are dropped and
# white space is unified, then each Hanja is surrounded by blanks, which would mislead the analyser.
_CLEAN = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
_SEPARATE_HANJA = normalizers.BertNormalizer(
    clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
)
_WORDS = pre_tokenizers.BertPreTokenizer()


class VocabConfig(Config):
    """Everything that decides a vocabulary, apart from the corpus."""

    vocab_size: int = Field(ge=len(SPECIAL_TOKENS) + 2)
    """Number of entries, special tokens and unused slots included."""
    segmentation: Segmentation = "eojeol"
    """Unit that no subword crosses."""
    min_frequency: int = Field(default=2, ge=1)
    """Two subwords are merged only if they are adjacent this often."""
    limit_alphabet: int = Field(default=3000, ge=1)
    """Single characters kept, the most frequent ones; each takes two entries, as word start and as continuation."""
    num_unused: int = Field(default=0, ge=0)
    """Slots `[unused0]`… after the special tokens, for later additions; kpfBERT has 500."""
    max_bytes: int = Field(default=2_000_000_000, ge=1)
    """Of a larger corpus a sample is used: the library counts pairs in 32 bits and overflows silently."""
    text_unit: TextUnit = "block"
    """Unit of a document in a single plain text file."""


@dataclass(frozen=True)
class WordCounts:
    """Word frequencies of a text, all that training needs of it; the size grows with the number of distinct words."""

    words: Mapping[str, int]
    """Words of BERT's pre-tokenizer and their frequencies. Those that begin with `BOUNDARY` continue an eojeol."""
    characters: Mapping[str, int]
    num_texts: int
    num_bytes: int
    """Of the text in UTF-8."""
    num_eojeol: int


def split_eojeol(text: str, segmentation: Segmentation = "eojeol") -> list[str]:
    """Split TEXT at blanks and, with `morpheme`, mark the morphemes inside each eojeol.

    Morphemes are the surface forms of the analyser (`corpora.sentences.kiwi`), not its dictionary forms. Where two
    share a syllable there is no boundary: `갔다` is `가` + `았` + `다`, and is split into `갔` and `다`.

    >>> [eojeol.replace(BOUNDARY, "|") for eojeol in split_eojeol("BERT 모델을 공개합니다.", "morpheme")]
    ['BERT', '모델|을', '공개|합니다|.']

    Args:
        text: any string; it is composed to NFC, and control characters are dropped as BERT's normalizer does.
        segmentation: whether to analyse morphemes.

    Returns:
        The eojeol in order, with `BOUNDARY` between the morphemes of each.
    """
    if segmentation == "eojeol":
        return _CLEAN.normalize_str(nfc(text)).split()
    lines = (_mark_morphemes(_CLEAN.normalize_str(line)) for line in re.split(r"[\r\n]", nfc(text)))
    return [marked for line in lines for eojeol in line.split() if (marked := eojeol.strip(BOUNDARY))]


def _mark_morphemes(line: str) -> str:
    from corpora.sentences import kiwi

    boundaries, end = {0, len(line)}, 0
    for token in kiwi().tokenize(line):
        if token.start >= end:
            boundaries.add(token.start)
        end = max(end, token.start + token.len)
    return BOUNDARY.join(line[a:b] for a, b in itertools.pairwise(sorted(boundaries)))


def count_words(texts: Iterable[str], segmentation: Segmentation = "eojeol") -> WordCounts:
    """Count the words of TEXTS in one pass.

    Args:
        texts: read one at a time, never held together.
        segmentation: with `morpheme`, words are parts of eojeol of one morpheme each.
    """
    eojeol: collections.Counter[str] = collections.Counter()
    num_texts = num_bytes = 0
    for text in texts:
        num_texts += 1
        num_bytes += len(text.encode())
        eojeol.update(split_eojeol(text, segmentation))
    num_eojeol = eojeol.total()
    words: collections.Counter[str] = collections.Counter()
    while eojeol:
        marked, count = eojeol.popitem()  # freed one by one: both tables of a large corpus would take gigabytes
        for word, _ in _WORDS.pre_tokenize_str(_SEPARATE_HANJA.normalize_str(marked)):
            first, *others = word.strip(BOUNDARY).split(BOUNDARY)
            words[first] += count
            for part in others:
                words[BOUNDARY + part] += count
    del words[""]  # a boundary between two punctuation marks
    characters: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word.removeprefix(BOUNDARY):
            characters[character] += count
    return WordCounts(words, characters, num_texts, num_bytes, num_eojeol)


def train_wordpiece(
    texts: Iterable[str] | WordCounts,
    vocab_size: int,
    *,
    min_frequency: int = 2,
    limit_alphabet: int = 3000,
    num_unused: int = 0,
    segmentation: Segmentation = "eojeol",
) -> "PreTrainedTokenizerFast":
    """Train a WordPiece vocabulary. The same text gives the same subwords, in NFC or NFD.

    Args:
        texts: training text, one or more sentences each, read once; or the result of `count_words`.
        vocab_size: maximum number of entries, special tokens and unused slots included; small texts support fewer.
        min_frequency: two subwords are merged only if they are adjacent this often.
        limit_alphabet: single characters kept, the most frequent ones.
        num_unused: slots `[unused0]`… with the ids from 5 on.
        segmentation: unit that no subword crosses; ignored for `WordCounts`.

    Returns:
        A cased tokenizer with `[PAD] 0 [UNK] 1 [CLS] 2 [SEP] 3 [MASK] 4`, the ids of the Korean BERTs.

    Raises:
        DataError: the texts contain no characters.
        ValueError: the vocabulary has no room beyond the special tokens and unused slots.
    """
    reserved = [*SPECIAL_TOKENS, *(f"[unused{k}]" for k in range(num_unused))]
    if num_unused < 0:
        raise ValueError(f"num_unused {num_unused} is negative")
    if vocab_size < len(reserved) + 2:
        unused = f" and {num_unused} unused slots" if num_unused else ""
        raise ValueError(f"vocab_size {vocab_size} leaves no room beside {len(SPECIAL_TOKENS)} special tokens{unused}")
    counts = texts if isinstance(texts, WordCounts) else count_words(texts, segmentation)
    # Word starts and continuations share the entries that remain.
    kept = alphabet(counts.characters, min(limit_alphabet, (vocab_size - len(reserved)) // 2))
    if not kept:
        raise DataError("vocabulary", "the texts contain no characters", "give a corpus with text in it")
    # The trainer numbers continuations in the order of a randomly seeded hash map, and breaks ties between equally
    # frequent pairs by number. Passing every single character as a special token makes training deterministic.
    # Characters outside this list, BOUNDARY among them, are dropped after the first character of a word is fixed, so
    # the text after a boundary is learnt as a continuation.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        limit_alphabet=0,
        special_tokens=[*reserved, *kept, *(f"##{c}" for c in kept if not stands_alone(c))],
        show_progress=False,
    )
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    repeated = (word for word, count in counts.words.items() for word in itertools.repeat(word, count))
    tokenizer.train_from_iterator(repeated, trainer)
    return cased_tokenizer(tokenizer.get_vocab())


def alphabet(counts: Mapping[str, int], limit: int) -> list[str]:
    """Return the LIMIT most frequent characters, control characters left out, in code point order."""
    characters = [c for c in counts if not unicodedata.category(c).startswith("C")]
    return sorted(sorted(characters, key=lambda c: (-counts[c], c))[:limit])
