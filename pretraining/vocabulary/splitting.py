"""What every tokenizer of ours does before it looks words up: compose Hangul, and split off what it does not know.

WordPiece turns a whole word into [UNK] if one of its characters is in no subword, or if it has more characters than
`max_input_chars_per_word`. An emoji behind a word so hides the word. `add_rules` writes rules into a tokenizer that end
this, and they are saved in its `tokenizer.json`:

- Text is composed (NFC) first; a vocabulary of decomposed Hangul gets decomposed text (NFD) afterwards.
- A run of characters that no subword has is a word of its own, and so one [UNK].
- So is a character that subwords begin with and never go on with, such as ㎢ in `100㎢`.
- A word that is too long is cut.

Words that are no [UNK] without the rules have the same tokens with them.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

COMPOSING = ("NFC", "NFKC")
BRACKETED = re.compile(r"\[[^\]]+\]|<[^>]+>")
"""Names of special and unused entries, which are no text."""
SELECTORS = "\ufe0e\ufe0f"
"""Variation selectors: how the character before them is drawn."""
END_MARK = "_"
"""Ends a word in KorBERT's vocabulary, which does not mark the inside of words."""
SYLLABLES, JAMO = ("가", "힣"), ("\u1100", "\u11ff")


def add_rules(tokenizer: "Tokenizer") -> None:
    """Add the rules that are missing to a tokenizer, in place; a second call changes nothing.

    Tokenizers other than WordPiece are only made to compose Hangul: their unknown characters cost no word.
    """
    from tokenizers import models, normalizers

    steps = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    if _first_type(tokenizer.normalizer) not in COMPOSING:
        steps.insert(0, normalizers.NFC())
    if isinstance(tokenizer.model, models.WordPiece):
        alphabet = _Alphabet(tokenizer)
        if alphabet.is_decomposed and _types(tokenizer.normalizer)[-1:] != ["NFD"]:
            steps.append(normalizers.NFD())
        _add_splits(tokenizer, alphabet)
    if len(steps) > 1 or tokenizer.normalizer is None:
        tokenizer.normalizer = normalizers.Sequence(steps)


def without_composing(tokenizer: "Tokenizer") -> Any:
    """Return the normalizer of a tokenizer with the rules, without its first step NFC: for text that is composed."""
    from tokenizers import normalizers

    inner = [step for step in tokenizer.normalizer if not isinstance(step, normalizers.NFC)]
    return inner[0] if len(inner) == 1 else normalizers.Sequence(inner)


class _Alphabet:
    """The characters of a WordPiece vocabulary."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        self.prefix = prefix = tokenizer.model.continuing_subword_prefix
        starts, inside = [], []
        for subword in tokenizer.get_vocab(with_added_tokens=False):
            if not subword or subword in added or (subword[0] in "[<" and BRACKETED.fullmatch(subword)):
                continue
            if prefix and subword.startswith(prefix) and subword != prefix:
                inside.append(subword[len(prefix) :])
            else:
                starts.append(subword[0])
                inside.append(subword[1:] if prefix else subword)
        self.continuing = set("".join(inside))
        """Characters that are found behind another one of the same word."""
        self.known = self.continuing.union(starts)
        self.alone: set[str] = set()
        """Characters that are a word wherever they stand."""
        if "BertPreTokenizer" in _types(tokenizer.pre_tokenizer):
            self.alone = {character for character in self.known if stands_alone(character)}
        self.is_decomposed = self._count(JAMO) > self._count(SYLLABLES)

    def _count(self, ends: tuple[str, str]) -> int:
        return sum(ends[0] <= character <= ends[1] for character in self.known)

    @property
    def only_starting(self) -> set[str]:
        """Characters that begin a word wherever they stand, those aside that are one."""
        return {c for c in self.known - self.continuing - self.alone if not c.isspace()}


def stands_alone(character: str) -> bool:
    """Whether BERT makes a word of a character wherever it stands: punctuation and Chinese characters."""
    point = ord(character)
    is_ascii_mark = 33 <= point < 127 and not character.isalnum()
    is_chinese = 0x3400 <= point <= 0x4DBF or 0x4E00 <= point <= 0x9FFF or 0xF900 <= point <= 0xFAFF
    return is_ascii_mark or is_chinese or 0x20000 <= point <= 0x2FA1F or unicodedata.category(character)[0] == "P"


def _add_splits(tokenizer: "Tokenizer", alphabet: _Alphabet) -> None:
    from tokenizers import Regex, pre_tokenizers

    limit = tokenizer.model.max_input_chars_per_word
    splits = [(_split_pattern(alphabet, limit), "isolated")]
    if lost := set(SELECTORS) - alphabet.known:
        splits.insert(0, (f"[{character_class(lost)}]+", "removed"))
    steps: list[Any] = [] if tokenizer.pre_tokenizer is None else [tokenizer.pre_tokenizer]
    there = _patterns(tokenizer.pre_tokenizer)
    missing = [(pattern, behaviour) for pattern, behaviour in splits if pattern not in there]
    if missing:
        splitters = [pre_tokenizers.Split(Regex(pattern), behaviour) for pattern, behaviour in missing]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splitters, *steps])


def _split_pattern(alphabet: _Alphabet, limit: int) -> str:
    r"""Return the pattern of the words of their own, in Oniguruma's syntax.

    `\G` is the position behind the last match: only there and at the start of a word can a word that is too long begin,
    so all other positions are passed at once.
    """
    unknown = f"[^{character_class(alphabet.known)}\\s]+" + ("" if alphabet.prefix else f"(?:{END_MARK}(?!\\S))?")
    inside = character_class({c for c in alphabet.known - alphabet.alone if not c.isspace()})
    too_long = f"(?:(?<!\\S)|\\G)(?=\\S{{{limit + 1}}})(?:[{inside}]{{1,{limit}}}|[^{inside}\\s])" if inside else ""
    starting = f"(?<=\\S)(?=[{character_class(alphabet.only_starting)}])" if alphabet.only_starting else ""
    return "|".join(filter(None, (unknown, too_long, starting)))


def character_class(characters: Iterable[str]) -> str:
    """Return the inside of a regular expression's bracket that holds CHARACTERS, as ranges of code points."""
    ranges: list[list[int]] = []
    for point in sorted(map(ord, set(characters))):
        if ranges and point == ranges[-1][1] + 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "".join(rf"\x{{{low:x}}}" + (rf"-\x{{{high:x}}}" if high > low else "") for low, high in ranges)


def _state(part: Any) -> dict[str, Any]:
    """Return a normalizer or pre-tokenizer as `tokenizer.json` has it."""
    state: dict[str, Any] = {} if part is None else json.loads(part.__getstate__())
    return state


def _types(part: Any) -> list[str]:
    """Return the names of the steps of a normalizer or pre-tokenizer."""
    state = _state(part)
    inner = state.get("normalizers", state.get("pretokenizers", [state])) if state else []
    return [str(step["type"]) for step in inner]


def _first_type(normalizer: Any) -> str:
    return next(iter(_types(normalizer)), "")


def _patterns(pre_tokenizer: Any) -> set[str]:
    state = _state(pre_tokenizer)
    return {step["pattern"].get("Regex", "") for step in state.get("pretokenizers", [state]) if "pattern" in step}
