"""The proofreader: rules, morphemes and models together; `downstream.proofread` is its face."""

import functools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from corpora.characters import compose
from corpora.foundation.config import load_recipe
from corpora.foundation.files import package_path
from corpora.sentences import split_article
from downstream.writing.edits import KINDS, Correction, Edit, Kind, group, protected_spans, select
from downstream.writing.lexicon import Lexicon
from downstream.writing.linear import GapModel
from downstream.writing.morphemes import analyze
from downstream.writing.rules import Patterns, Rules, Words
from downstream.writing.spacing import Thresholds, spacing_edits
from downstream.writing.typos import TypoLimits, typo_edits

FOLDER = package_path("downstream", "writing")
LONGEST_SENTENCE = 500
"""Characters that are analyzed together; what is longer is cut at a blank."""
MIN_CONFIDENCE = 0.9
"""Confidence from which on a correction is shown."""
DEFAULT_KINDS = tuple(kind for kind in KINDS if kind != "style")
PIECE = re.compile(rf"\S.{{0,{LONGEST_SENTENCE - 1}}}(?=\s|$)|\S.{{0,{LONGEST_SENTENCE - 1}}}", re.DOTALL)


@dataclass(frozen=True)
class Proofreader:
    """Rules and loaded models. Not for several threads at a time."""

    rules: Rules
    style: Rules
    """The house list."""
    blanks: GapModel
    lexicon: Lexicon
    thresholds: Thresholds = field(default_factory=Thresholds)
    limits: TypoLimits = field(default_factory=TypoLimits)

    @classmethod
    def load(cls, house: str | Path | None = None) -> "Proofreader":
        """Load what comes with the package.

        Args:
            house: TOML file of a house list in the form of `downstream/writing/rules/style.toml`; default: that one.

        Raises:
            RecipeError: the list is missing or wrong.
        """
        path = Path(house) if house else FOLDER / "rules" / "style.toml"
        style = Rules(load_recipe(path, Words), Patterns(patterns=()))
        blanks, lexicon = (FOLDER / f"{name}.safetensors" for name in ("spacing", "lexicon"))
        return cls(Rules.load(), style, GapModel.load(blanks), Lexicon.load(lexicon))

    def proofread(
        self,
        text: str,
        *,
        only: Collection[Kind] = DEFAULT_KINDS,
        quotations: bool = False,
        min_confidence: float = MIN_CONFIDENCE,
    ) -> list[Correction]:
        """Find errors in a text of any length; see `downstream.proofread.proofread`."""
        if isinstance(only, str) or not set(only) <= set(KINDS):
            raise ValueError(f"only={only!r}: give a list of {', '.join(KINDS)}")
        composed, offsets = compose(text)
        edits = (
            edit
            for edit in self.edits(composed, only=only, quotations=quotations)
            if edit.kind in only and edit.confidence >= min_confidence
        )
        corrections = [
            found
            for found in group(composed, select(edits))
            if found.suggestions and found.suggestions[0] != found.text
        ]
        if offsets is None:
            return corrections
        placed = ((found, offsets[found.start], offsets[found.end]) for found in corrections)
        return [replace(found, start=start, end=end, text=text[start:end]) for found, start, end in placed]

    def edits(self, text: str, *, only: Collection[Kind], quotations: bool) -> Iterator[Edit]:
        """Yield what may be changed in a text in composed form, in no order; edits may overlap."""
        spans = protected_spans(text, with_quotations=not quotations)
        for edit in self._all_edits(text, only):
            # An insertion at the border of a span is outside.
            if not any(
                start < edit.end and edit.start < end if edit.end > edit.start else start < edit.start < end
                for start, end in spans
            ):
                yield edit

    def _all_edits(self, text: str, only: Collection[Kind]) -> Iterator[Edit]:
        yield from self.rules.edits(text)
        if "style" in only:
            yield from self.style.edits(text)
        if {"spacing", "spelling", "grammar"}.isdisjoint(only):
            return
        morphemes = list(analyze(list(_sentences(text))))
        if "spacing" in only:
            yield from spacing_edits(text, morphemes, self.blanks, self.thresholds)
        if not {"spelling", "grammar"}.isdisjoint(only):
            yield from typo_edits(text, morphemes, self.lexicon, self.limits)


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a text with their offsets, none longer than `LONGEST_SENTENCE`."""
    for sentence in split_article(text):
        if len(sentence.text) <= LONGEST_SENTENCE:
            yield sentence.start, sentence.text
            continue
        for piece in PIECE.finditer(sentence.text):
            yield sentence.start + piece.start(), piece.group()


@functools.cache
def bundled_proofreader() -> Proofreader:
    """Return the proofreader that comes with the package, loaded once."""
    return Proofreader.load()
