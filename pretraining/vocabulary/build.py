"""A vocabulary from a corpus: documents split into training and held-out text, training, report and manifest."""

import itertools
import logging
import platform
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from corpora.corpus import MANIFEST as CORPUS_MANIFEST
from corpora.corpus import Split, corpus_files, corpus_texts, read_manifest
from corpora.documents import RejectedRecord, read_documents
from corpora.foundation.errors import DataError, UsageError, cannot_write
from corpora.foundation.files import LOCK_FILE, parse_signed, sha256, write_signed
from corpora.readers.records import TextUnit
from pretraining.vocabulary.report import analyse_held_out, write_report
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS, save_tokenizer
from pretraining.vocabulary.wordpiece import VocabConfig, WordCounts, alphabet, count_words, train_wordpiece

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

HELD_OUT_EVERY = 50
"""Of a corpus without a held-out split, every 50th document is held out, beginning with the first."""
HELD_OUT_BYTES = 6_000_000
"""Of a larger held-out split a sample is analysed; about two million characters, 15 s of analysis."""
MANIFEST = "manifest.json"
PACKAGES = ("pressbert", "tokenizers", "transformers", "kiwipiepy", "kiwipiepy_model")
"""Packages whose versions decide the subwords or the figures; the analyser's dictionary is one of its own."""
MADE_BY = "pretraining.vocab"
"""Key of the settings in the manifest; marks a folder as made by this command."""


@dataclass(frozen=True)
class Documents:
    """The documents of one split, read again on every pass."""

    read: Callable[[], Iterator[str]]
    num_documents: int
    num_bytes: int
    """Of their text in UTF-8."""

    @classmethod
    def from_reader(cls, read: Callable[[], Iterator[str]]) -> "Documents":
        """Read the documents once to count them."""
        num_documents = num_bytes = 0
        for text in read():
            num_documents += 1
            num_bytes += len(text.encode())
        return cls(read, num_documents, num_bytes)

    def sample(self, max_bytes: int) -> Iterator[str]:
        """Yield all documents or, where they exceed MAX_BYTES, those whose CRC-32 is below their share.

        The sample depends on the texts alone, not on their order or their files.
        """
        left = max_bytes
        for text in self.read():
            encoded = text.encode()
            is_chosen = self.num_bytes <= max_bytes or zlib.crc32(encoded) / 2**32 < max_bytes / self.num_bytes
            if is_chosen and len(encoded) <= left:
                left -= len(encoded)
                yield text


@dataclass(frozen=True)
class Corpus:
    """Training and held-out text of a vocabulary."""

    train: Documents
    held_out: Documents
    rule: str
    """How the two were split."""
    rejected: Sequence[RejectedRecord] = ()
    """Records of a single file that hold no document."""


def open_corpus(path: Path, text_unit: TextUnit = "block") -> Corpus:
    """Open a folder made by `python -m corpora.build`, or a single file that `read_documents` reads.

    Raises:
        DataError: it cannot be read, or no training text is left.
    """
    rejected: list[RejectedRecord] = []

    def read(split: Split) -> Iterator[str]:
        if path.is_dir():
            yield from itertools.chain.from_iterable(map(corpus_texts, corpus_files(path, split)))
        elif split == "train":
            rejected.clear()  # every pass meets the same ones
            for document in read_documents(path, text_unit=text_unit, rejected=rejected):
                yield f"{document.title}\n{document.text}" if document.title else document.text

    held_out = Documents.from_reader(lambda: read("held-out"))
    if held_out.num_documents:
        rule, train = "the corpus's own split", Documents.from_reader(lambda: read("train"))
    else:
        rule = f"every {HELD_OUT_EVERY}th document"
        held_out = Documents.from_reader(lambda: itertools.islice(read("train"), 0, None, HELD_OUT_EVERY))
        train = Documents.from_reader(lambda: (text for k, text in enumerate(read("train")) if k % HELD_OUT_EVERY))
    if not train.num_documents:
        reason = f" ({rejected[0].where}: {rejected[0].reason})" if rejected else ""
        what = "its only document is held out for the report" if held_out.num_documents else f"no text in it{reason}"
        raise DataError(path, what, "give at least 2 documents; in plain text, --text-unit line makes each line one")
    return Corpus(train, held_out, rule, tuple(rejected))


def corpus_sha256(path: Path) -> str:
    """Return the digest of a corpus: of its manifest, which lists its files' digests, or of the single file.

    Raises:
        DataError: there is no such file or folder, or no finished corpus in it.
    """
    if path.is_file():
        return sha256(path)
    read_manifest(path)  # raises with the reason where the folder is no corpus
    return sha256(path / CORPUS_MANIFEST)


def train_vocabulary(
    corpus: Corpus, config: VocabConfig, *, allow_smaller: bool
) -> tuple["PreTrainedTokenizerFast", WordCounts]:
    """Train a vocabulary of exactly the configured size.

    Raises:
        UsageError: the size is too small for the characters of the corpus, or too large for its words.
    """
    num_reserved = len(SPECIAL_TOKENS) + config.num_unused
    room = (config.vocab_size - num_reserved) // 2
    if room < 1:
        what = f"{config.vocab_size:,} entries leave no room beside {num_reserved:,} special tokens and unused slots"
        raise UsageError("--vocab-size", what, "give more, or lower --unused")
    expected = round(corpus.train.num_documents * min(1, config.max_bytes / max(1, corpus.train.num_bytes)))
    texts = tqdm(corpus.train.sample(config.max_bytes), total=expected, unit=" documents", disable=None)
    counts = count_words(texts, config.segmentation)
    num_characters = len(alphabet(counts.characters, config.limit_alphabet))
    if num_characters > room:
        least = num_reserved + 2 * num_characters
        what = f"{config.vocab_size:,} entries have room for {room:,} characters, and the corpus has {num_characters:,}"
        raise UsageError("--vocab-size", what, f"give {least:,} or more, or --limit-alphabet {room}")
    options = config.model_dump(include={"min_frequency", "limit_alphabet", "num_unused"})
    tokenizer = train_wordpiece(counts, config.vocab_size, **options)
    if len(tokenizer) < config.vocab_size:
        what = f"the corpus supports {len(tokenizer):,} entries at --min-frequency {config.min_frequency}"
        if not allow_smaller:
            fix = f"give {len(tokenizer):,} or less, a larger corpus, or --allow-smaller"
            raise UsageError("--vocab-size", f"{config.vocab_size:,} requested, {what}", fix)
        logger.warning("%s, not %s", what, f"{config.vocab_size:,}")
    return tokenizer, counts


def is_finished(out: Path, settings: Mapping[str, Any]) -> bool:
    """Whether OUT holds the vocabulary of these SETTINGS. An unfinished one, of any settings, may be overwritten.

    Raises:
        UsageError: OUT holds another vocabulary, or other files.
    """
    fix = "give another folder with --out"
    try:
        manifest = parse_signed((out / MANIFEST).read_text(encoding="utf-8"))
        found, finished = dict(manifest[MADE_BY]), bool(manifest["finished"])
    except (FileNotFoundError, NotADirectoryError) as error:
        if out.is_dir() and any(path.name != LOCK_FILE for path in out.iterdir()):
            raise UsageError(out, "the folder holds files that this command did not make", fix) from error
        return False
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(out, f"its {MANIFEST} was not written by this command", fix) from error
    if finished and found != settings:
        first = min(key for key in {*found, *settings} if found.get(key) != settings.get(key))
        what = f"made with {first}={found.get(first)!r}, requested {settings.get(first)!r}"
        raise UsageError(out, f"the folder holds another vocabulary ({what})", fix)
    return finished


def build_vocabulary(
    corpus: Corpus,
    config: VocabConfig,
    out: Path,
    *,
    compared: Mapping[str, Path],
    settings: Mapping[str, Any],
    facts: Sequence[str],
    command: str,
    allow_smaller: bool = False,
) -> None:
    """Train, save, measure and report.

    Args:
        corpus: from `open_corpus`.
        config: of the vocabulary.
        out: folder for tokenizer, report and manifest.
        compared: names and folders of other tokenizers in the report.
        settings: everything that decides the result, for the manifest.
        facts: lines for the report that the caller knows.
        command: reproduces the folder.
        allow_smaller: accept fewer entries where the corpus supports no more.

    Raises:
        UsageError: the size does not fit the corpus.
        ResultError: OUT cannot be written.
    """
    manifest = {MADE_BY: dict(settings), "finished": False}
    write_signed(out / MANIFEST, manifest)  # fails now rather than after an hour of training
    started = time.perf_counter()
    tokenizer, counts = train_vocabulary(corpus, config, allow_smaller=allow_smaller)
    train_s = time.perf_counter() - started
    try:
        save_tokenizer(tokenizer, out)
    except OSError as error:
        raise cannot_write(out, error) from error
    held_out = analyse_held_out(corpus.held_out.sample(HELD_OUT_BYTES))
    made_with = {name: metadata.version(name) for name in PACKAGES}
    facts = [
        *facts,
        *_facts(corpus, config, counts, len(tokenizer), held_out.num_documents),
        f"Made with {', '.join(f'{name} {version}' for name, version in made_with.items())}.",
    ]
    measures = write_report(out, compared, held_out, facts=facts, command=command)
    manifest |= {
        "finished": True,
        "command": command,
        "versions": {"python": platform.python_version()} | made_with,
        "vocab_sha256": sha256(out / "vocab.txt"),
        "counts": {
            "train_documents": counts.num_texts,
            "train_bytes": counts.num_bytes,
            "train_eojeol": counts.num_eojeol,
            "entries": len(tokenizer),
            "rejected_records": len(corpus.rejected),
            "held_out_documents": held_out.num_documents,
            "held_out_eojeol": held_out.num_eojeol,
            "held_out_characters": held_out.num_characters,
        },
        "held_out": {m.name: m.shares() for m in measures},
        "train_s": round(train_s, 1),
    }
    write_signed(out / MANIFEST, manifest)


def _facts(corpus: Corpus, config: VocabConfig, counts: WordCounts, num_entries: int, num_held_out: int) -> list[str]:
    """Return how the vocabulary was trained, in sentences for the report."""
    is_whole = counts.num_texts == corpus.train.num_documents
    sampled = f"a sample of {corpus.train.num_bytes / 1e6:,.1f} MB by the CRC-32 of each text (--max-bytes)"
    some_held_out = "" if num_held_out == corpus.held_out.num_documents else ", a sample of them measured"
    facts = [
        f"{num_entries:,} entries with {len(SPECIAL_TOKENS)} special tokens and {config.num_unused} unused slots; "
        f"segmentation `{config.segmentation}`, min-frequency {config.min_frequency}, "
        f"limit-alphabet {config.limit_alphabet}.",
        f"Trained on {counts.num_texts:,} documents, {counts.num_bytes / 1e6:,.1f} MB, {counts.num_eojeol:,} eojeol: "
        f"{'the whole training split' if is_whole else sampled}.",
        f"Held out: {corpus.rule}, {corpus.held_out.num_documents:,} documents{some_held_out}.",
    ]
    if num_entries < config.vocab_size:
        facts.append(f"**{config.vocab_size:,} entries were requested; the corpus supports no more than these.**")
    if corpus.rejected:
        first = corpus.rejected[0]
        facts.append(f"{len(corpus.rejected):,} records were rejected, the first because: {first.reason}.")
    return facts
