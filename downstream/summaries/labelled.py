"""Articles with an editor's choice of sentences, read from every known layout.

* the embedded sample (`corpora/sample/news.jsonl`: `sentences` as offsets, `extractive` as indices);
* AI-Hub's document summaries (JSON: `documents`, each with `text` in paragraphs of sentences, `extractive`,
  `abstractive`), the data of KPFBERT/kpfbertsum;
* the JSONL of the Korean extraction contests on the same data (`article_original`, `extractive`, `abstractive`);
* an editor's choices among the sentences of texts that stand elsewhere (`corpora/sample/summary_choices.jsonl`: the
  text's file below the data root, the SHA-256 of the text, the chosen spans);
* any file that `corpora.documents` reads, with headlines: (body, headline) pairs, labelled by a greedy oracle.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpora.boilerplate import Segment
from corpora.characters import nfc
from corpora.documents import RejectedRecord, read_documents
from corpora.foundation.errors import DataError
from corpora.official import data_root
from corpora.readers.decoding import format_of, read_lines, read_text
from corpora.readers.records import parse_json_object
from downstream.summaries.articles import LONGEST_HEADLINE, Article, join_sentences, read_article
from downstream.summaries.rouge import characters, greedy_oracle


def read_labelled(path: Path, skipped: Counter[str] | None = None) -> Iterator[Article]:
    """Read labelled articles; the layout is detected.

    Files without labels must have headlines: a greedy oracle labels the sentences that cover the headline, or the
    abstract if there is one.

    Args:
        path: see the module; every format may be gzipped.
        skipped: filled with the number of articles without a usable label, by reason; they are left out in any case.

    Raises:
        DataError: the file cannot be read, or a record is not what its layout says.
    """
    skipped = skipped if skipped is not None else Counter()
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
        if "text_sha256" in record and "chosen" in record:
            yield from _read_choices(path)
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


def _read_choices(path: Path) -> Iterator[Article]:
    root = data_root(None)
    wanted: dict[str, dict[str, Mapping[str, Any]]] = {}
    for where, record in _records(path):
        try:
            wanted.setdefault(str(record["file"]), {})[str(record["text_sha256"])] = record
        except KeyError as error:
            raise DataError(where, f"not a choice of sentences ({error!r})", "restore the file") from error
    for name, records in wanted.items():
        found = 0
        for document in read_documents(root / name, rejected=[]):
            choice = records.pop(hashlib.sha256(document.text.encode()).hexdigest(), None)
            if choice is not None:
                found += 1
                article = read_article(document.text, document.title)
                extractive = overlapping(article, [(int(start), int(end)) for start, end in choice["chosen"]])
                yield replace(
                    article,
                    id=document.id,
                    group=document.id,
                    title=document.title,
                    extractive=extractive,
                    split=str(choice["split"]),
                    source=name,
                )
        if records:
            what = f"{len(records)} of the {len(records) + found} texts of {path.name} are not in it"
            raise DataError(root / name, what, "restore the file as it was published")


def overlapping(article: Article, spans: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Return the indices of the sentences that share most characters with SPANS, ascending."""
    chosen = set()
    for start, end in spans:
        shared = [min(end, sentence.end) - max(start, sentence.start) for sentence in article.sentences]
        best = max(range(len(shared)), key=shared.__getitem__, default=-1)
        if best >= 0 and shared[best] > 0:
            chosen.add(best)
    return tuple(sorted(chosen))


def _read_contest(path: Path, skipped: Counter[str]) -> Iterator[Article]:
    for where, record in _records(path):
        sentences = record.get("article_original")
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            raise DataError(where, "'article_original' is not a list of sentences", "restore the file")
        article = _labelled(
            [[sentence] for sentence in sentences], record, where, str(record.get("id", where)), skipped
        )
        if article is not None:
            yield article


def _read_ai_hub(documents: Any, path: Path, skipped: Counter[str]) -> Iterator[Article]:
    if not isinstance(documents, list):
        raise DataError(path, "'documents' is not a list", "give the file as AI-Hub publishes it")
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
    paragraphs: Sequence[Sequence[str]], record: Mapping[str, Any], where: str, id_: str, skipped: Counter[str]
) -> Article | None:
    """Build an article from sentences that are split already; None, and counted, if its labels are incomplete."""
    flat = [sentence for paragraph in paragraphs for sentence in paragraph]
    extractive = record.get("extractive")
    if not isinstance(extractive, list) or not extractive or None in extractive:
        skipped["labels missing"] += 1
        return None
    chosen = _indices(extractive, len(flat), where)
    # Blank sentences are dropped, so indices shift.
    new_index = {k: index for index, k in enumerate(k for k, sentence in enumerate(flat) if sentence.strip())}
    if any(k not in new_index for k in chosen):
        skipped["a blank sentence is chosen"] += 1
        return None
    kept = [[" ".join(nfc(s).split()) for s in paragraph if s.strip()] for paragraph in paragraphs]
    text, segments = join_sentences([paragraph for paragraph in kept if paragraph])
    abstract = record.get("abstractive") or ""
    return Article(
        text=text,
        sentences=segments,
        title=nfc(str(record.get("title") or "")),
        id=id_,
        extractive=tuple(new_index[k] for k in chosen),
        abstract=nfc(" ".join(map(str, abstract)) if isinstance(abstract, list) else str(abstract)),
        group=id_,
    )


def _indices(extractive: Any, num_sentences: int, where: str) -> tuple[int, ...]:
    if not isinstance(extractive, list) or not all(isinstance(k, int) and 0 <= k < num_sentences for k in extractive):
        what = f"extractive={extractive!r} does not name sentences 0 to {num_sentences - 1}"
        raise DataError(where, what, "restore the file")
    return tuple(sorted(set(extractive)))


def _read_pairs(path: Path, skipped: Counter[str]) -> Iterator[Article]:
    rejected: list[RejectedRecord] = []
    for document in read_documents(path, rejected=rejected):
        article = replace(read_article(document.text), id=document.id, group=document.id)
        reference = str(document.extra.get("abstract") or "") or document.title
        if not reference:
            skipped["no headline"] += 1
            continue
        labelled = label_by_oracle(article, nfc(reference))
        if labelled.extractive:
            yield labelled
        else:
            skipped["no sentence covers the headline"] += 1
    if rejected:
        skipped["unreadable record"] += len(rejected)


def label_by_oracle(article: Article, reference: str, *, max_sentences: int = 3) -> Article:
    """Label the sentences that a greedy oracle chooses to cover a headline or an abstract.

    The result has no title: a scorer that saw it would learn the oracle's rule instead of the text.
    """
    # A headline is shorter than any sentence, so F1 would favour the shortest sentence.
    is_headline = len(reference) <= LONGEST_HEADLINE
    chosen = greedy_oracle(
        [characters(text) for text in article.texts],
        characters(reference),
        max_sentences=max_sentences,
        measure="recall" if is_headline else "f1",
    )
    return replace(article, title="", extractive=tuple(sorted(chosen)), abstract=reference)


def of_split(articles: Iterable[Article], split: str) -> list[Article]:
    """Return the articles of SPLIT and those that belong to no split."""
    return [article for article in articles if not article.split or article.split == split]
