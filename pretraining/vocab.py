"""Train a cased Korean WordPiece vocabulary, and report on held-out text what it is worth.

    python -m pretraining.vocab CORPUS --out DIR --vocab-size 32000 --segmentation morpheme

Lower-casing stays off and accents stay on: BERT's normaliser strips accents by NFD, which takes every Hangul syllable
apart into jamo that no vocabulary holds.

With `morpheme` the text is cut into morphemes before training, so that no piece reaches across a border between two:
`모델을` teaches `모델` and `##을`, never `##델을`. The analyser decides which pieces exist and is not needed to use
them ("morpheme-based subword tokenization": KLUE, Park et al. 2021; kpfBERT's vocabulary was made so).
"""

import collections
import itertools
import json
import logging
import platform
import re
import shlex
import sys
import time
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from pydantic import Field
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from tqdm import tqdm

from corpora.corpus import MANIFEST as CORPUS_MANIFEST
from corpora.corpus import Split, corpus_files, corpus_texts, read_manifest
from corpora.documents import RejectedRecord, TextUnit, nfc, read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import Config, validate
from corpora.foundation.errors import DataError, UsageError, cannot_write
from corpora.foundation.files import sha256, write_json, write_text

if TYPE_CHECKING:
    from transformers import BertTokenizer, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

Segmentation: TypeAlias = Literal["eojeol", "morpheme"]

BORDER = "\ue000"
"""Stands inside an eojeol before each further morpheme. Text cannot hold it: BERT's normaliser drops it."""

HELD_OUT_EVERY = 50
"""Of a corpus without a held-out split, every so-many-th document is kept from training, beginning with the first."""
HELD_OUT_BYTES = 6_000_000
"""Of a larger held-out split an even sample is analysed; about two million characters, 15 s of analysis."""
MANIFEST = "manifest.json"
PACKAGES = ("pressbert", "tokenizers", "transformers", "kiwipiepy", "kiwipiepy_model")
"""Whose versions decide pieces or figures; the analyser's dictionary is a package of its own."""
MADE_BY = "pretraining.vocab"
"""Key of the settings in the manifest, by which this command knows its own."""

# BERT's normaliser in two steps, because the morphemes are found between them: first what does not belong to the text
# goes (control characters, kinds of blanks), then each Hanja is made a word, which would mislead the analyser.
_CLEAN = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
_PART_HANJA = normalizers.BertNormalizer(
    clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
)
_WORDS = pre_tokenizers.BertPreTokenizer()


class VocabConfig(Config):
    """What decides a vocabulary, apart from the corpus."""

    vocab_size: int = Field(ge=len(SPECIAL_TOKENS) + 2)
    """Number of pieces, special tokens and unused slots included."""
    segmentation: Segmentation = "eojeol"
    """What no piece reaches across."""
    min_frequency: int = Field(default=2, ge=1)
    """Two pieces are merged only if they stand side by side this often."""
    limit_alphabet: int = Field(default=3000, ge=1)
    """Single characters kept, the most frequent ones; each takes two places, as word start and as continuation."""
    num_unused: int = Field(default=0, ge=0)
    """Slots `[unused0]`… behind the special tokens, for pieces that are added later; kpfBERT has 500."""
    max_bytes: int = Field(default=2_000_000_000, ge=1)
    """Of a larger corpus an even sample is trained on: the library counts pairs in 32 bits and overflows silently."""
    text_unit: TextUnit = "block"
    """What a document is in a single plain text file."""


@dataclass(frozen=True)
class WordCounts:
    """All that training sees of a text; it grows with the number of different words, not with the text."""

    words: Mapping[str, int]
    """What BERT's pre-tokenizer calls words, with their occurrences. Those that `BORDER` begins continue an eojeol."""
    characters: Mapping[str, int]
    num_texts: int
    num_bytes: int
    """Of the text in UTF-8."""
    num_eojeol: int


def split_eojeol(text: str, segmentation: Segmentation = "eojeol") -> list[str]:
    """Split TEXT at blanks and, with `morpheme`, mark the morphemes inside each eojeol.

    Morphemes are the analyser's (`corpora.sentences.kiwi`) as they stand in the text, not its dictionary forms. Where
    two share a syllable there is no border: `갔다` is `가` + `았` + `다`, and is cut into `갔` and `다`.

    >>> [eojeol.replace(BORDER, "|") for eojeol in split_eojeol("BERT 모델을 공개합니다.", "morpheme")]
    ['BERT', '모델|을', '공개|합니다|.']

    Args:
        text: any string; it is composed to NFC, and control characters are dropped as BERT's normaliser does.
        segmentation: whether to look for morphemes.

    Returns:
        The eojeol in order, with `BORDER` between the morphemes of each.
    """
    if segmentation == "eojeol":
        return _CLEAN.normalize_str(nfc(text)).split()
    lines = (_mark_morphemes(_CLEAN.normalize_str(line)) for line in re.split(r"[\r\n]", nfc(text)))
    return [marked for line in lines for eojeol in line.split() if (marked := eojeol.strip(BORDER))]


def _mark_morphemes(line: str) -> str:
    from corpora.sentences import kiwi

    borders, end = {0, len(line)}, 0
    for token in kiwi().tokenize(line):
        if token.start >= end:
            borders.add(token.start)
        end = max(end, token.start + token.len)
    return BORDER.join(line[a:b] for a, b in itertools.pairwise(sorted(borders)))


def count_words(texts: Iterable[str], segmentation: Segmentation = "eojeol") -> WordCounts:
    """Count the words of TEXTS in one pass.

    Args:
        texts: read once, one after the other, and not held.
        segmentation: with `morpheme`, words are parts of eojeol that hold one morpheme each.
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
        marked, count = eojeol.popitem()  # let go one by one: of a large corpus, both tables at once are gigabytes
        for word, _ in _WORDS.pre_tokenize_str(_PART_HANJA.normalize_str(marked)):
            first, *others = word.strip(BORDER).split(BORDER)
            words[first] += count
            for part in others:
                words[BORDER + part] += count
    del words[""]  # a border between two punctuation marks
    characters: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word.removeprefix(BORDER):
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
) -> "BertTokenizer":
    """Train a WordPiece vocabulary. The same text gives the same pieces, whatever its normalisation form.

    Args:
        texts: training text, one or more sentences each, read once; or what `count_words` made of it.
        vocab_size: largest number of pieces, special tokens and unused slots included; small texts support fewer.
        min_frequency: two pieces are merged only if they stand side by side this often.
        limit_alphabet: single characters kept, the most frequent ones.
        num_unused: slots `[unused0]`… with the ids from 5 on.
        segmentation: what no piece reaches across; where TEXTS are counted already, it was decided there.

    Returns:
        A cased `BertTokenizer` with `[PAD] 0 [UNK] 1 [CLS] 2 [SEP] 3 [MASK] 4`, the ids of the Korean BERTs.

    Raises:
        DataError: the texts hold no characters at all.
        ValueError: the vocabulary has no room beyond the special tokens and unused slots.
    """
    from transformers import BertTokenizer

    reserved = [*SPECIAL_TOKENS, *(f"[unused{k}]" for k in range(num_unused))]
    if num_unused < 0:
        raise ValueError(f"num_unused {num_unused} is negative")
    if vocab_size < len(reserved) + 2:
        unused = f" and {num_unused} unused slots" if num_unused else ""
        raise ValueError(f"vocab_size {vocab_size} leaves no room beside {len(SPECIAL_TOKENS)} special tokens{unused}")
    counts = texts if isinstance(texts, WordCounts) else count_words(texts, segmentation)
    # Word starts and continuations share the room that the special tokens leave.
    kept = _alphabet(counts.characters, min(limit_alphabet, (vocab_size - len(reserved)) // 2))
    if not kept:
        raise DataError("vocabulary", "the texts hold no characters", "give a corpus with text in it")
    # The trainer numbers continuations in the order of a randomly seeded hash map, and breaks ties between equally
    # frequent pairs by number. Handing it every single character up front makes the same text give the same pieces.
    # Characters outside this list, BORDER with them, it drops from a word after deciding which character is the
    # first; so what follows a border is learnt as a continuation.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        limit_alphabet=0,
        special_tokens=[*reserved, *kept, *(f"##{c}" for c in kept if not _stands_alone(c))],
        show_progress=False,
    )
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    repeated = (word for word, count in counts.words.items() for word in itertools.repeat(word, count))
    tokenizer.train_from_iterator(repeated, trainer)
    return BertTokenizer(vocab=tokenizer.get_vocab(), do_lower_case=False, strip_accents=False)


def save_tokenizer(tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Save a tokenizer as `tokenizer.json` and, for WordPiece, as the plain `vocab.txt` that older tools read.

    Raises:
        ResultError: the folder cannot be written.
    """
    from transformers import BertTokenizer

    tokenizer.save_pretrained(folder)
    if isinstance(tokenizer, BertTokenizer):
        vocab = tokenizer.get_vocab()
        write_text(folder / "vocab.txt", "".join(f"{piece}\n" for piece in sorted(vocab, key=vocab.__getitem__)))


def _alphabet(counts: Mapping[str, int], limit: int) -> list[str]:
    """Return the most frequent characters in code point order."""
    characters = [c for c in counts if not unicodedata.category(c).startswith("C")]
    return sorted(sorted(characters, key=lambda c: (-counts[c], c))[:limit])


def _stands_alone(character: str) -> bool:
    """Whether BERT's pre-tokenizer makes a word of its own of CHARACTER: punctuation and Hanja."""
    ascii_symbol = character.isascii() and not character.isalnum()
    hanja = unicodedata.name(character, "").startswith("CJK ")
    return ascii_symbol or hanja or unicodedata.category(character).startswith("P")


@dataclass(frozen=True)
class Documents:
    """The documents of one split, read anew each time."""

    read: Callable[[], Iterator[str]]
    num_documents: int
    num_bytes: int
    """Of their text in UTF-8."""

    @classmethod
    def of(cls, read: Callable[[], Iterator[str]]) -> "Documents":
        """Read the documents once to measure them."""
        num_documents = num_bytes = 0
        for text in read():
            num_documents += 1
            num_bytes += len(text.encode())
        return cls(read, num_documents, num_bytes)

    def sample(self, max_bytes: int) -> Iterator[str]:
        """Yield the documents, or where they are more than MAX_BYTES, some that lie evenly among them.

        Which ones, their text decides: not their order, and not how they are spread over files.
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
    """What a vocabulary is trained on and what it is tried on."""

    train: Documents
    held_out: Documents
    rule: str
    """How the two were told apart."""
    rejected: Sequence[RejectedRecord] = ()
    """Records of a single file that hold no document."""


def open_corpus(path: Path, text_unit: TextUnit = "block") -> Corpus:
    """Open a folder made by `python -m corpora.build`, or a single file that `read_documents` reads.

    Raises:
        DataError: it cannot be read, or nothing in it is left to train on.
    """
    rejected: list[RejectedRecord] = []

    def read(split: Split) -> Iterator[str]:
        if path.is_dir():
            yield from itertools.chain.from_iterable(map(corpus_texts, corpus_files(path, split)))
        elif split == "train":
            rejected.clear()  # every reading meets the same ones
            for document in read_documents(path, text_unit=text_unit, rejected=rejected):
                yield f"{document.title}\n{document.text}" if document.title else document.text

    held_out = Documents.of(lambda: read("held-out"))
    if held_out.num_documents:
        rule, train = "the corpus's own split", Documents.of(lambda: read("train"))
    else:
        rule = f"every {HELD_OUT_EVERY}th document"
        held_out = Documents.of(lambda: itertools.islice(read("train"), 0, None, HELD_OUT_EVERY))
        train = Documents.of(lambda: (text for k, text in enumerate(read("train")) if k % HELD_OUT_EVERY))
    if not train.num_documents:
        reason = f" ({rejected[0].where}: {rejected[0].reason})" if rejected else ""
        what = "its only document is held out for the report" if held_out.num_documents else f"no text in it{reason}"
        raise DataError(path, what, "give 2 documents or more; in plain text, --text-unit line makes each line one")
    return Corpus(train, held_out, rule, tuple(rejected))


def make_vocabulary(corpus: Corpus, config: VocabConfig, *, allow_smaller: bool) -> tuple["BertTokenizer", WordCounts]:
    """Train a vocabulary of the size asked for, or say why there is none.

    Raises:
        UsageError: the size is too small for the characters of the corpus, or too large for its words.
    """
    num_reserved = len(SPECIAL_TOKENS) + config.num_unused
    room = (config.vocab_size - num_reserved) // 2
    if room < 1:
        what = f"{config.vocab_size:,} pieces leave no room beside {num_reserved:,} special tokens and unused slots"
        raise UsageError("--vocab-size", what, "give more, or lower --unused")
    expected = round(corpus.train.num_documents * min(1, config.max_bytes / max(1, corpus.train.num_bytes)))
    texts = tqdm(corpus.train.sample(config.max_bytes), total=expected, unit=" documents", disable=None)
    counts = count_words(texts, config.segmentation)
    num_characters = len(_alphabet(counts.characters, config.limit_alphabet))
    if num_characters > room:
        least = num_reserved + 2 * num_characters
        what = f"{config.vocab_size:,} pieces have room for {room:,} characters, and the corpus has {num_characters:,}"
        raise UsageError("--vocab-size", what, f"give {least:,} or more, or --limit-alphabet {room}")
    tokenizer = train_wordpiece(
        counts,
        config.vocab_size,
        min_frequency=config.min_frequency,
        limit_alphabet=config.limit_alphabet,
        num_unused=config.num_unused,
    )
    if len(tokenizer) < config.vocab_size:
        what = f"the corpus supports {len(tokenizer):,} pieces at --min-frequency {config.min_frequency}"
        if not allow_smaller:
            fix = f"give {len(tokenizer):,} or less, a larger corpus, or --allow-smaller"
            raise UsageError("--vocab-size", f"{config.vocab_size:,} asked for, {what}", fix)
        logger.warning("%s, not %s", what, f"{config.vocab_size:,}")
    return tokenizer, counts


def is_finished(out: Path, settings: Mapping[str, Any]) -> bool:
    """Whether OUT holds the vocabulary that SETTINGS ask for. An unfinished one, of whatever settings, may be redone.

    Raises:
        UsageError: OUT holds another vocabulary, or something else.
    """
    fix = "give another folder with --out"
    try:
        manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        found, finished = dict(manifest[MADE_BY]), bool(manifest["finished"])
    except (FileNotFoundError, NotADirectoryError) as error:
        if out.is_dir() and any(out.iterdir()):
            raise UsageError(out, "the folder holds files that this command did not make", fix) from error
        return False
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(out, f"its {MANIFEST} is not one of this command", fix) from error
    if finished and found != settings:
        first = min(key for key in {*found, *settings} if found.get(key) != settings.get(key))
        what = f"made with {first}={found.get(first)!r}, now asked for {settings.get(first)!r}"
        raise UsageError(out, f"the folder holds another vocabulary ({what})", fix)
    return finished


def corpus_sha256(path: Path) -> str:
    """Return the digest that stands for a corpus: of its manifest, which lists its files' digests, or of the file.

    Raises:
        DataError: there is no such file or folder, or no finished corpus in it.
    """
    if path.is_file():
        return sha256(path)
    read_manifest(path)  # tells what is wrong with a folder
    return sha256(path / CORPUS_MANIFEST)


def make_and_report(
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
        corpus: of `open_corpus`.
        config: of the vocabulary.
        out: folder for tokenizer, report and manifest.
        compared: names and folders of other tokenizers.
        settings: what decides the outcome, for the manifest.
        facts: lines for the report that the caller knows.
        command: that makes all of it again.
        allow_smaller: accept fewer pieces where the corpus supports no more.

    Raises:
        UsageError: the size does not fit the corpus.
        ResultError: OUT cannot be written.
    """
    from pretraining.vocabulary.report import analyse_held_out, write_report

    manifest = {MADE_BY: dict(settings), "finished": False}
    write_json(out / MANIFEST, manifest)  # found out now rather than after an hour
    started = time.perf_counter()
    tokenizer, counts = make_vocabulary(corpus, config, allow_smaller=allow_smaller)
    train_s = time.perf_counter() - started
    try:
        save_tokenizer(tokenizer, out)
    except OSError as error:
        raise cannot_write(out, error) from error
    held_out = analyse_held_out(corpus.held_out.sample(HELD_OUT_BYTES))
    made_with = {name: metadata.version(name) for name in PACKAGES}
    measures = write_report(
        out,
        compared,
        held_out,
        facts=[
            *facts,
            *_facts(corpus, config, counts, len(tokenizer), held_out.num_documents),
            f"Made with {', '.join(f'{name} {version}' for name, version in made_with.items())}.",
        ],
        command=command,
    )
    manifest |= {
        "finished": True,
        "command": command,
        "versions": {"python": platform.python_version()} | made_with,
        "vocab_sha256": sha256(out / "vocab.txt"),
        "counts": {
            "train_documents": counts.num_texts,
            "train_bytes": counts.num_bytes,
            "train_eojeol": counts.num_eojeol,
            "pieces": len(tokenizer),
            "rejected_records": len(corpus.rejected),
            "held_out_documents": held_out.num_documents,
            "held_out_eojeol": held_out.num_eojeol,
            "held_out_characters": held_out.num_characters,
        },
        "held_out": {m.name: m.shares() for m in measures},
        "train_s": round(train_s, 1),
    }
    write_json(out / MANIFEST, manifest)


def _facts(corpus: Corpus, config: VocabConfig, counts: WordCounts, num_pieces: int, num_held_out: int) -> list[str]:
    """Return how the vocabulary was made, in sentences for the report."""
    all_of_it = counts.num_texts == corpus.train.num_documents
    sampled = f"an even sample of {corpus.train.num_bytes / 1e6:,.1f} MB by the CRC-32 of each text (--max-bytes)"
    some_held_out = "" if num_held_out == corpus.held_out.num_documents else ", an even sample of them measured"
    facts = [
        f"{num_pieces:,} pieces, of which {len(SPECIAL_TOKENS)} special tokens and {config.num_unused} unused slots; "
        f"segmentation `{config.segmentation}`, min-frequency {config.min_frequency}, "
        f"limit-alphabet {config.limit_alphabet}.",
        f"Trained on {counts.num_texts:,} documents, {counts.num_bytes / 1e6:,.1f} MB, {counts.num_eojeol:,} eojeol: "
        f"{'all of the training split' if all_of_it else sampled}.",
        f"Held out: {corpus.rule}, {corpus.held_out.num_documents:,} documents{some_held_out}.",
    ]
    if num_pieces < config.vocab_size:
        facts.append(f"**{config.vocab_size:,} pieces were asked for; the corpus supports no more than these.**")
    if corpus.rejected:
        first = corpus.rejected[0]
        facts.append(f"{len(corpus.rejected):,} records were left out, the first for: {first.reason}.")
    return facts


def main(argv: list[str] | None = None) -> int:
    """Train a vocabulary from the command line; prints where its report is."""
    from pretraining.vocabulary.report import REPORT, TOKENIZER, choose_compared

    parser = ArgumentParser("python -m pretraining.vocab", "Train a WordPiece vocabulary and report what it is worth.")
    parser.add_argument("corpus", type=Path, help="folder of python -m corpora.build, or a .jsonl, .csv, .tsv, .txt")
    parser.add_argument("--out", type=Path, required=True, help="folder for tokenizer and report")
    parser.add_argument(
        "--vocab-size", type=int, required=True, help="pieces, special tokens and unused slots included"
    )
    parser.add_argument("--segmentation", choices=get_args(Segmentation), help="what no piece reaches across")
    parser.add_argument("--min-frequency", type=int, help="merge pieces that meet this often (default: 2)")
    parser.add_argument("--limit-alphabet", type=int, help="single characters kept (default: 3000)")
    parser.add_argument("--unused", type=int, dest="num_unused", help="slots [unused0]… (default: 0)")
    parser.add_argument("--max-bytes", type=int, help="train on an even sample of a larger corpus (default: 2 GB)")
    parser.add_argument("--text-unit", choices=get_args(TextUnit), help="a document of a plain text file")
    parser.add_argument("--compare", nargs="*", metavar="NAME_OR_FOLDER", help="tokenizers beside it in the report")
    parser.add_argument("--allow-smaller", action="store_true", help="take fewer pieces where the corpus has no more")
    arguments = parser.parse(argv)

    given = {key: value for key in VocabConfig.model_fields if (value := getattr(arguments, key)) is not None}
    config = validate(VocabConfig, given, parser.prog)
    compared, notes = choose_compared(arguments.compare)
    settings = config.model_dump() | {"corpus_sha256": corpus_sha256(arguments.corpus)}
    if arguments.compare is not None:
        settings["compare"] = [f"{name}:{sha256(folder / TOKENIZER)[:12]}" for name, folder in compared.items()]
    of_manifest = " of its manifest" if arguments.corpus.is_dir() else ""
    if is_finished(arguments.out, settings):
        sys.stderr.write(f"{arguments.out} is finished: nothing to do\n")
    else:
        make_and_report(
            open_corpus(arguments.corpus, config.text_unit),
            config,
            arguments.out,
            compared=compared,
            settings=settings,
            facts=[f"Corpus: `{arguments.corpus}`, sha256{of_manifest} `{settings['corpus_sha256']}`.", *notes],
            command=f"{parser.prog} {shlex.join(sys.argv[1:] if argv is None else argv)}",
            allow_smaller=arguments.allow_smaller,
        )
    sys.stdout.write(f"{arguments.out / REPORT}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
