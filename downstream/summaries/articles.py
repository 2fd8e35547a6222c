"""An article as a summarizer sees it: sentences with their offsets, paragraphs, headline, and gold labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from corpora.boilerplate import Segment, segments_of
from corpora.lines import join_lines

LONGEST_HEADLINE = 70
"""Characters; a longer first line is no headline."""
MIN_SENTENCES_UNDER_HEADLINE = 3


@dataclass(frozen=True)
class Article:
    """A text with its sentences, and with an editor's choice among them if there is one.

    Sentences are identified by their index, never by their text: an article may repeat a sentence.
    """

    text: str
    """NFC."""
    sentences: tuple[Segment, ...]
    """What a summary may choose from, in order."""
    excluded: tuple[Segment, ...] = ()
    """Bylines, captions and the like, which a summary never holds; see `corpora.boilerplate`."""
    title: str = ""
    id: str = ""
    extractive: tuple[int, ...] = ()
    """Gold: indices into `sentences`, ascending; empty if unlabelled."""
    abstract: str = ""
    """Gold: a summary in free words; empty if there is none."""
    split: str = ""
    group: str = ""
    """Articles of one group report the same story; they stay on one side of a train/dev split."""

    @property
    def texts(self) -> list[str]:
        """The texts of the S sentences, each in one line."""
        return [join_lines(self.text[sentence.start : sentence.end]) for sentence in self.sentences]

    @property
    def starts_paragraph(self) -> list[bool]:
        """For each sentence, whether it begins a line; the first one always does."""
        ends = [0, *(sentence.end for sentence in self.sentences)]
        return [
            k == 0 or "\n" in self.text[end : sentence.start]
            for k, (end, sentence) in enumerate(zip(ends, self.sentences, strict=False))
        ]


def read_article(text: str, title: str = "") -> Article:
    """Split a text into sentences and excluded segments.

    A first line that ends like a headline and is followed by lines of sentences counts as the headline: it is
    excluded, and becomes the title if none is given.

    Args:
        text: NFC.
        title: headline, NFC; empty if unknown.
    """
    segments = segments_of(text)
    sentences = [segment for segment in segments if not segment.kind]
    if _has_headline(text, segments, sentences):
        headline = replace(segments[0], kind="headline")
        segments[0] = headline
        sentences = sentences[1:]
        title = title or text[headline.start : headline.end]
    excluded = tuple(segment for segment in segments if segment.kind)
    return Article(text=text, sentences=tuple(sentences), excluded=excluded, title=title)


def _has_headline(text: str, segments: Sequence[Segment], sentences: Sequence[Segment]) -> bool:
    if len(sentences) <= MIN_SENTENCES_UNDER_HEADLINE or segments[0] is not sentences[0]:
        return False
    first, second = sentences[:2]
    line = text[first.start : first.end]
    return (
        len(line) <= LONGEST_HEADLINE
        and "\n" in text[first.end : second.start]
        and not line.endswith(("다", "요", ":"))
        and not line.rstrip("”’\"')]").endswith((".", "?", "!"))
        # In lists and verse every line ends like a headline; below a real one there are sentences.
        and text[second.start : second.end].endswith((".", "”", '"'))
    )


def join_sentences(paragraphs: Sequence[Sequence[str]]) -> tuple[str, tuple[Segment, ...]]:
    """Join sentences that are split already: a space between sentences, a line break between paragraphs.

    Returns:
        The text, and the span of every sentence in it.
    """
    text = ""
    segments = []
    for paragraph in paragraphs:
        for k, sentence in enumerate(paragraph):
            text += ("" if not text else " " if k else "\n") + sentence
            segments.append(Segment(len(text) - len(sentence), len(text), ""))
    return text, tuple(segments)
