"""Articles as a summariser sees them: sentences with their places, paragraphs, what stands around, and gold if known.

Labelled articles are read from

* the embedded sample (`corpora/sample/news.jsonl`: `sentences` as offsets, `extractive` as indices);
* AI-Hub's document summaries (JSON: `documents`, each with `text` in paragraphs of sentences, `extractive`,
  `abstractive`), the data of KPFBERT/kpfbertsum;
* the JSONL of the Korean extraction contests on the same data (`article_original`, `extractive`, `abstractive`);
* any file that `corpora.documents` reads, with headlines: (body, headline) pairs without labels.

Sentences are known by their index throughout, never by their text: an article may hold a sentence twice.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corpora.boilerplate import Segment, segments_of
from corpora.documents import RejectedRecord, format_of, nfc, parse_json_object, read_documents, read_lines, read_text
from corpora.foundation.errors import DataError
from downstream.summaries.rouge import characters, greedy_oracle

LONGEST_HEADLINE = 70
"""Characters of the longest first line that may be a headline."""
MIN_SENTENCES_UNDER_HEADLINE = 3


@dataclass(frozen=True)
class Article:
    """A text with its sentences, and with an editor's choice among them where there is one."""

    text: str
    """NFC."""
    sentences: tuple[Segment, ...]
    """What a summary may choose from, in order."""
    around: tuple[Segment, ...] = ()
    """What it may not: see `corpora.boilerplate`."""
    title: str = ""
    id: str = ""
    extractive: tuple[int, ...] = ()
    """Gold: indices into `sentences`, ascending; empty where nobody chose."""
    abstract: str = ""
    """Gold: a summary in free words; empty where there is none."""
    split: str = ""
    group: str = ""
    """Articles of one group tell the same story and must not part between training and evaluation."""

    @property
    def texts(self) -> list[str]:
        """The sentences' texts, S of them."""
        return [self.text[sentence.start : sentence.end] for sentence in self.sentences]

    @property
    def starts_paragraph(self) -> list[bool]:
        """Whether each sentence begins a line; the first one does."""
        ends = [0, *(sentence.end for sentence in self.sentences)]
        return [
            k == 0 or "\n" in self.text[end : sentence.start]
            for k, (end, sentence) in enumerate(zip(ends, self.sentences, strict=False))
        ]


def read_article(text: str, title: str = "") -> Article:
    """Split a text into sentences and what stands around them.

    A first line that ends like a headline, with sentences in the lines below, is taken for one: it is not chosen, and
    is the title where none is given.

    Args:
        text: NFC.
        title: headline, NFC; empty if not known.
    """
    segments = segments_of(text)
    sentences = [segment for segment in segments if not segment.kind]
    if _has_headline(text, segments, sentences):
        headline = replace(segments[0], kind="headline")
        segments[0] = headline
        sentences = sentences[1:]
        title = title or text[headline.start : headline.end]
    around = tuple(segment for segment in segments if segment.kind)
    return Article(text=text, sentences=tuple(sentences), around=around, title=title)


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
        # Lists and verse have such lines throughout; a headline stands over sentences.
        and text[second.start : second.end].endswith((".", "”", '"'))
    )


def join_sentences(paragraphs: Sequence[Sequence[str]]) -> tuple[str, tuple[Segment, ...]]:
    """Join sentences that somebody else has split: by a blank, and by a line break between paragraphs.

    Returns:
        The text and the place of every sentence in it.
    """
    text = ""
    segments = []
    for paragraph in paragraphs:
        for k, sentence in enumerate(paragraph):
            text += ("" if not text else " " if k else "\n") + sentence
            segments.append(Segment(len(text) - len(sentence), len(text), ""))
    return text, tuple(segments)


@dataclass
class Skipped:
    """Why articles were left out, and how many."""

    reasons: Counter[str] = field(default_factory=Counter)


def read_labelled(path: Path, skipped: Skipped | None = None) -> Iterator[Article]:
    """Read articles with labels, in whichever of the known layouts the file has.

    Files without labels must have headlines: a sentence is labelled if a greedy oracle would choose it to cover the
    headline, or the abstract where there is one.

    Args:
        path: see the module; any of the formats may be gzipped.
        skipped: counts articles that hold no usable label; they are left out either way.

    Raises:
        DataError: the file cannot be read, or a record is not what its layout says.
    """
    skipped = skipped if skipped is not None else Skipped()
    suffix = format_of(path)
    if suffix == ".json":
        value = _parse(path)
        if isinstance(value, dict) and "documents" in value:
            yield from _read_ai_hub(value["documents"], path, skipped)
            return
    if suffix == ".jsonl":
        first = next((line for line in read_lines(path) if line.strip()), "{}")
        record = parse_json_object(first, f"{path}:1")
        if isinstance(record, DataError):
            raise record
        if "article_original" in record:
            yield from _read_contest(path, skipped)
            return
        if "sentences" in record and "extractive" in record:
            yield from _read_sample(path)
            return
    yield from _read_pairs(path, skipped)


def _parse(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"not valid JSON ({error})", "download it again") from error


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            where = f"{path}:{number}"
            record = parse_json_object(line, where)
            if isinstance(record, DataError):
                raise record
            yield where, record


def _read_sample(path: Path) -> Iterator[Article]:
    for where, record in _records(path):
        try:
            spans = [(int(start), int(end)) for start, end in record["sentences"]]
            text, extractive = str(record["text"]), record["extractive"]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(where, f"not an article with sentence offsets ({error!r})", "restore the file") from error
        if nfc(text) != text or any(not 0 <= start < end <= len(text) for start, end in spans):
            raise DataError(where, "offsets outside the text, or a text that is not NFC", "restore the file")
        yield Article(
            text=text,
            sentences=tuple(Segment(start, end, "") for start, end in spans),
            title=nfc(str(record.get("title", ""))),
            id=str(record.get("id", where)),
            extractive=_indices(extractive, len(spans), where),
            abstract=nfc(str(record.get("abstract", ""))),
            split=str(record.get("split", "")),
            group=str(record.get("related") or record.get("id", where)),
        )


def _read_contest(path: Path, skipped: Skipped) -> Iterator[Article]:
    for where, record in _records(path):
        sentences = record.get("article_original")
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            raise DataError(where, "'article_original' is no list of sentences", "restore the file")
        article = _labelled(
            [[sentence] for sentence in sentences], record, where, str(record.get("id", where)), skipped
        )
        if article is not None:
            yield article


def _read_ai_hub(documents: Any, path: Path, skipped: Skipped) -> Iterator[Article]:
    if not isinstance(documents, list):
        raise DataError(path, "'documents' is no list", "give the file as AI-Hub publishes it")
    for number, record in enumerate(documents, start=1):
        where = f"{path}, document {number}"
        try:
            paragraphs = [[str(item["sentence"]) for item in paragraph] for paragraph in record["text"]]
        except (KeyError, TypeError) as error:
            what = f"no paragraphs of sentences in 'text' ({error!r})"
            raise DataError(where, what, "give the file as AI-Hub publishes it") from error
        article = _labelled(paragraphs, record, where, str(record.get("id", where)), skipped)
        if article is not None:
            yield article


def _labelled(
    paragraphs: Sequence[Sequence[str]], record: Mapping[str, Any], where: str, id_: str, skipped: Skipped
) -> Article | None:
    """Make an article of somebody else's sentences; None, and counted, if its labels are incomplete."""
    flat = [sentence for paragraph in paragraphs for sentence in paragraph]
    extractive = record.get("extractive")
    if not isinstance(extractive, list) or not extractive or None in extractive:
        skipped.reasons["labels missing"] += 1
        return None
    chosen = _indices(extractive, len(flat), where)
    # Blank sentences cannot be shown to anybody; what was chosen keeps its place among the rest.
    places = {k: place for place, k in enumerate(k for k, sentence in enumerate(flat) if sentence.strip())}
    if any(k not in places for k in chosen):
        skipped.reasons["a blank sentence is chosen"] += 1
        return None
    kept = [[" ".join(nfc(s).split()) for s in paragraph if s.strip()] for paragraph in paragraphs]
    text, segments = join_sentences([paragraph for paragraph in kept if paragraph])
    abstract = record.get("abstractive") or ""
    return Article(
        text=text,
        sentences=segments,
        title=nfc(str(record.get("title") or "")),
        id=id_,
        extractive=tuple(places[k] for k in chosen),
        abstract=nfc(" ".join(map(str, abstract)) if isinstance(abstract, list) else str(abstract)),
        group=id_,
    )


def _indices(extractive: Any, num_sentences: int, where: str) -> tuple[int, ...]:
    if not isinstance(extractive, list) or not all(isinstance(k, int) and 0 <= k < num_sentences for k in extractive):
        what = f"extractive={extractive!r} does not name sentences 0 to {num_sentences - 1}"
        raise DataError(where, what, "restore the file")
    return tuple(sorted(set(extractive)))


def _read_pairs(path: Path, skipped: Skipped) -> Iterator[Article]:
    # A review's `제목` is its own headline, not the book's.
    rejected: list[RejectedRecord] = []
    for document in read_documents(path, rejected=rejected):
        article = replace(read_article(document.text), id=document.id, group=document.id)
        reference = str(document.extra.get("abstract") or "") or document.title
        if not reference:
            skipped.reasons["no headline"] += 1
            continue
        labelled = label_by_oracle(article, nfc(reference))
        if labelled.extractive:
            yield labelled
        else:
            skipped.reasons["no sentence covers the headline"] += 1
    if rejected:
        skipped.reasons["unreadable record"] += len(rejected)


def label_by_oracle(article: Article, reference: str, *, max_sentences: int = 3) -> Article:
    """Label the sentences that a greedy oracle would choose to cover a headline or an abstract.

    The title is left out of the result: a scorer that saw it would learn the oracle's rule instead of the text.
    """
    # A headline is shorter than any sentence, so that an F1 would look for the shortest.
    is_headline = len(reference) <= LONGEST_HEADLINE
    chosen = greedy_oracle(
        [characters(text) for text in article.texts],
        characters(reference),
        max_sentences=max_sentences,
        measure="recall" if is_headline else "f1",
    )
    return replace(article, title="", extractive=tuple(sorted(chosen)), abstract=reference)


def of_split(articles: Iterable[Article], split: str) -> list[Article]:
    """Return the articles of a split; of those that belong to none, all."""
    return [article for article in articles if not article.split or article.split == split]
