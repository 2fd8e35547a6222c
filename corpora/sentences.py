"""Korean sentences with code-point offsets, split by kiwipiepy.

>>> [s.text for s in split_sentences("기준금리가 3.5%로 올랐다. 총재는 “지켜보자.”라고 말했다.")]
['기준금리가 3.5%로 올랐다.', '총재는 “지켜보자.”라고 말했다.']
"""

import functools
import re
from dataclasses import dataclass
from itertools import pairwise

from kiwipiepy import Kiwi


@dataclass(frozen=True)
class Sentence:
    """A sentence and its place: `text == source[start:end]`, in code points, end excluded."""

    text: str
    start: int
    end: int


@functools.cache
def kiwi() -> Kiwi:
    """Load the analyser once per process (about a second)."""
    return Kiwi(num_workers=1)


def split_sentences(text: str) -> list[Sentence]:
    """Split TEXT into sentences; together with the white space between them they are TEXT again.

    A line break always ends a sentence: in news it separates paragraphs, captions and bylines, and joining across it
    fuses sentences that the page keeps apart.

    Args:
        text: any string, of any length and normalisation form; lone surrogates and NUL are carried through.

    Returns:
        Sentences in order, without the white space around them. Empty for blank text.
    """
    sentences: list[Sentence] = []
    for line in re.finditer(r"[^\r\n]+", text):
        starts = [span.start for span in kiwi().split_into_sents(line.group())]
        # Each piece runs to the start of the next, so that nothing the analyser leaves out is lost.
        for start, end in pairwise([0, *starts[1:], len(line.group())]):
            piece = line.group()[start:end]
            if piece.strip():
                offset = line.start() + start + len(piece) - len(piece.lstrip())
                sentences.append(Sentence(piece.strip(), offset, offset + len(piece.strip())))
    return sentences
