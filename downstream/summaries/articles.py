"""An article as a summarizer sees it: sentences with their offsets, paragraphs, headline, and gold labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from corpora.boilerplate import Segment, segments_of
from corpora.characters import remove_invisible
from corpora.readers.lines import join_lines

LONGEST_HEADLINE = 70
"""Characters; a longer first line is no headline."""
MIN_SENTENCES_UNDER_HEADLINE = 3
SENTENCE_END = re.compile(r"(?:[.!?…。][”’\"')\]」』]*|[가-힣](?:다|요|죠|까|[었았했됐]음|함|됨))$")


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
    source: str = ""
    """File of the text, where the editor's choices stand in another file; see `downstream.summaries.labelled`."""
    group: str = ""
    """Articles of one group report the same story; they stay on one side of a train/dev split."""

    @property
    def texts(self) -> list[str]:
        """The texts of the S sentences, each in one line."""
        return [join_lines(self.text[sentence.start : sentence.end]) for sentence in self.sentences]


def read_article(text: str, title: str = "") -> Article:
    """Split a text into sentences and excluded segments.

    A first line that ends like a headline, above lines most of which end like sentences, counts as the headline: it is
    excluded, and becomes the title if none is given. So does what stands before time and dateline in one line.

    Args:
        text: NFC.
        title: headline, NFC; empty if unknown.
    """
    segments = [segment for segment in segments_of(text) if remove_invisible(text[segment.start : segment.end]).strip()]
    sentences = [segment for segment in segments if not segment.kind]
    if _has_headline(text, title, segments, sentences):
        headline = replace(segments[0], kind="headline")
        segments[0] = headline
        sentences = sentences[1:]
        title = title or text[headline.start : headline.end]
    elif segments and segments[0].kind == "headline":
        title = title or text[segments[0].start : segments[0].end]
    excluded = tuple(segment for segment in segments if segment.kind)
    return Article(text=text, sentences=tuple(sentences), excluded=excluded, title=title)


def _has_headline(text: str, title: str, segments: Sequence[Segment], sentences: Sequence[Segment]) -> bool:
    if len(sentences) <= MIN_SENTENCES_UNDER_HEADLINE or segments[0] is not sentences[0]:
        return False
    lines = [join_lines(text[sentence.start : sentence.end]) for sentence in sentences]
    first = lines[0]
    if "\n" not in text[sentences[0].end : sentences[1].start] or len(first) > LONGEST_HEADLINE:
        return False
    if title and "".join(first.split()) == "".join(title.split()):
        return True
    # In lists and verse every line ends like a headline; below a real one most lines are sentences.
    num_ended = sum(map(ends_like_sentence, lines[1:]))
    return not ends_like_sentence(first) and not first.endswith(":") and 2 * num_ended > len(lines) - 1


def ends_like_sentence(line: str) -> bool:
    """Whether a line ends in a full stop or in a verb ending: texts without full stops have headlines, too.

    >>> [ends_like_sentence(line) for line in ("다리가 열렸다", "“가자”고 말했다.", "시장 “다리 놓겠다”")]
    [True, True, False]
    """
    return SENTENCE_END.search(line) is not None


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
