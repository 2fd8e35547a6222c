"""Tokenization of a corpus into Arrow shards, in parallel: `documents → sentences → eojeol → token ids`.

BERT's WordPiece splits at blanks first, so the tokens of a text are those of its eojeol, concatenated. Eojeol repeat
often: each distinct one is tokenized once and looked up afterwards, which is faster than tokenizing running text and
yields the eojeol boundaries of whole-word masking for free.
"""

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpora.corpus import corpus_files, corpus_texts
from corpora.foundation.errors import DataError
from corpora.foundation.files import fingerprint, sha256
from corpora.sentences import ends_sentence
from pretraining.data.packing import expand_spans
from pretraining.data.shards import IntArray, Ragged, Sharded, read_shard, run_jobs, write_shard
from pretraining.vocabulary.tokenizer import open_wordpiece

FORMAT = 2
"""Incremented when the tokenization of the same corpus changes."""
MAX_KNOWN_EOJEOL = 1_000_000
"""Distinct eojeol cached by one process; about 200 MB."""
SEPARATOR = "[SEP]"
BLOCK = 100
"""Distinct eojeol encoded together."""
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""Treated as blanks; BERT's normalizer would delete most of them and join the eojeol around them."""


class EojeolTokenizer:
    """Encodes texts as token ids, with a cache of eojeol.

    The ids equal `tokenizer.encode(text, add_special_tokens=False)` of the whole text, with control characters replaced
    by blanks and the names of special tokens as ordinary text.
    """

    def __init__(self, tokenizer_json: Path) -> None:
        """Open a WordPiece `tokenizer.json`.

        Raises:
            CheckpointError: the file is missing, damaged, not WordPiece, or lower-cases.
        """
        self._tokenizer = open_wordpiece(tokenizer_json)
        self._separator_id = self._tokenizer.token_to_id(SEPARATOR)
        added = [token.content for token in self._tokenizer.get_added_tokens_decoder().values()]
        self._special = re.compile("|".join(map(re.escape, added)))
        self._reset()

    def _reset(self) -> None:
        self._numbers = _Numbers()
        self._ids = np.zeros(0, np.int32)
        self._offsets = np.zeros(1, np.int64)
        self._ends = np.zeros(0, np.bool_)

    def encode(self, texts: Iterable[str]) -> "TokenShard":
        """Tokenize TEXTS, one document each.

        A sentence ends with its line, or with an eojeol for which `ends_sentence` holds. Documents without tokens are
        left out.
        """
        if len(self._numbers) > MAX_KNOWN_EOJEOL:
            self._reset()
        eojeol: list[int] = []
        line_ends: list[int] = []
        document_ends: list[int] = [0]
        number = self._numbers.__getitem__
        for text in texts:
            for line in CONTROL.sub(" ", text).split("\n"):
                words = line.split()
                if words:
                    eojeol.extend(map(number, words))
                    line_ends.append(len(eojeol))
            if len(eojeol) > document_ends[-1]:
                document_ends.append(len(eojeol))
        self._encode_new()
        return self._assemble(np.asarray(eojeol, np.int64), np.asarray(line_ends, np.int64), np.asarray(document_ends))

    def _encode_new(self) -> None:
        """Tokenize the eojeol that are not cached yet."""
        new = list(itertools.islice(self._numbers, len(self._ends), None))
        if not new:
            return
        ids, lengths = self._encode_eojeol(new)
        self._ids = np.concatenate([self._ids, ids])
        self._offsets = np.concatenate([self._offsets, self._offsets[-1] + np.cumsum(lengths)])
        self._ends = np.concatenate([self._ends, np.fromiter(map(ends_sentence, new), np.bool_, len(new))])

    def _encode_eojeol(self, eojeol: list[str]) -> tuple[IntArray, IntArray]:
        """Return the concatenated token ids of all EOJEOL, and the number of tokens of each.

        One call per eojeol would cost more than the encoding, so blocks of them are joined by a special token, which
        marks the boundaries in the output. Eojeol that contain a special token's name are encoded alone, as text.
        """
        odd = [k for k, word in enumerate(eojeol) if self._special.search(word)]
        plain = eojeol.copy()
        for k in odd:
            plain[k] = ""
        blocks = [SEPARATOR.join(plain[k : k + BLOCK]) + SEPARATOR for k in range(0, len(plain), BLOCK)]
        self._tokenizer.encode_special_tokens = False
        encodings = [e.ids for e in self._tokenizer.encode_batch_fast(blocks, add_special_tokens=False)]
        self._tokenizer.encode_special_tokens = True
        ids = np.fromiter(itertools.chain.from_iterable(encodings), np.int32, sum(map(len, encodings)))
        separators = np.flatnonzero(ids == self._separator_id)
        lengths = np.diff(separators, prepend=-1) - 1
        ids = np.delete(ids, separators)
        for k in odd:
            own = self._tokenizer.encode(eojeol[k], add_special_tokens=False).ids
            ids = np.insert(ids, int(lengths[:k].sum()), own)
            lengths[k] = len(own)
        return ids, lengths

    def _assemble(self, eojeol: IntArray, line_ends: IntArray, document_ends: IntArray) -> "TokenShard":
        lengths = np.diff(self._offsets)[eojeol]  # tokens of each eojeol of the running text
        ends = self._ends[eojeol]
        ends[line_ends - 1] = True
        ids = self._ids[expand_spans(self._offsets[:-1][eojeol], lengths)]
        token_ends = np.concatenate([[0], np.cumsum(lengths)])
        document_offsets = token_ends[document_ends]
        sentence_offsets = np.unique(np.concatenate([token_ends[1:][ends], document_offsets]))
        # The offsets of a document without tokens coincide.
        document_offsets = np.unique(document_offsets)
        starts = np.zeros(len(ids), np.uint8)
        starts[token_ends[:-1][lengths > 0]] = 1
        small = self._tokenizer.get_vocab_size() <= 1 << 16
        return TokenShard(
            ids=Ragged(ids.astype(np.uint16 if small else np.int32), document_offsets),
            eojeol_starts=starts,
            sentence_ends=_per_document(sentence_offsets, document_offsets),
        )


def _per_document(sentence_offsets: IntArray, document_offsets: IntArray) -> Ragged:
    """Turn the offsets of all sentences into the ends of each document's sentences, counted from its start."""
    first = np.searchsorted(sentence_offsets, document_offsets)
    starts = np.repeat(document_offsets[:-1], np.diff(first))
    return Ragged((sentence_offsets[1:] - starts).astype(np.int32), first)


class _Numbers(dict[str, int]):
    """Numbers words in the order of their first look-up."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


@dataclass(frozen=True)
class TokenShard:
    """The tokens of some documents. N documents, T tokens, S sentences."""

    ids: Ragged
    """Token ids of each document, without special tokens; uint16 where the vocabulary allows, else int32."""
    eojeol_starts: IntArray
    """uint8 (T,): 1 where an eojeol starts."""
    sentence_ends: Ragged
    """int32; the end of each sentence, in tokens from the start of its document."""

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.ids)

    def columns(self) -> dict[str, Ragged]:
        """Return the shard as Arrow columns."""
        starts = Ragged(self.eojeol_starts, self.ids.offsets)
        return {"input_ids": self.ids, "eojeol_starts": starts, "sentence_ends": self.sentence_ends}

    @classmethod
    def from_columns(cls, columns: dict[str, Ragged]) -> "TokenShard":
        """Return the shard of Arrow columns."""
        return cls(columns["input_ids"], columns["eojeol_starts"].values, columns["sentence_ends"])


TokenizedCorpus = Sharded[TokenShard]


def tokenize_corpus(
    corpus: Path, tokenizer_json: Path, cache: Path, *, split: str = "train", source: str = "", num_workers: int = 1
) -> tuple[TokenizedCorpus, str]:
    """Tokenize a corpus; shards of an interrupted call are kept.

    Args:
        corpus: folder made by `corpora.build`, or a single file that `read_documents` reads.
        tokenizer_json: of the WordPiece vocabulary.
        cache: the shards are stored under it, in one folder per corpus and vocabulary.
        split: `train` or `held-out`.
        source: name of the source in the manifest whose documents are taken; empty: all.
        num_workers: processes; the bytes do not depend on it.

    Returns:
        The tokenized documents, and their digest.

    Raises:
        DataError: the corpus is unreadable or empty.
        CheckpointError: the tokenizer is unusable.
    """
    files = corpus_files(corpus, "held-out" if split == "held-out" else "train", source=source)
    vocabulary = (tokenizer_json, sha256(tokenizer_json) if tokenizer_json.is_file() else "")
    _opened(vocabulary)  # an unusable one is an error before any work
    parts = [FORMAT, split, vocabulary[1], _digest(corpus, files)]
    digest = fingerprint([*parts, source] if source else parts)
    folder = cache / f"tokens-{split}-{digest[:12]}"
    jobs = [(file, vocabulary, folder / f"tokens-{k:05d}.arrow") for k, file in enumerate(files)]
    left = [job for job in jobs if not job[2].is_file()]
    sizes = [file.stat().st_size for file, _, _ in left]
    run_jobs(_tokenize_file, left, num_workers=num_workers, label=f"tokenize {split}", sizes=sizes)
    shards = [TokenShard.from_columns(read_shard(path)) for _, _, path in jobs]
    tokenized = Sharded.from_lengths(shards, [len(shard) for shard in shards])
    if split == "train" and not len(tokenized):
        raise DataError(corpus, "contains no text", "give a corpus with text in it")
    return tokenized, digest


def _digest(corpus: Path, files: list[Path]) -> list[str]:
    """Return the digest of the corpus manifest, which lists the files' digests, or the digests of the files."""
    manifest = corpus / "manifest.json"
    return [sha256(manifest)] if manifest.is_file() else [sha256(file) for file in files]


Vocabulary = tuple[Path, str]
"""A `tokenizer.json` and its SHA-256."""

_tokenizers: dict[Vocabulary, EojeolTokenizer] = {}  # one per process: its cache serves the next file too


def _opened(vocabulary: Vocabulary) -> EojeolTokenizer:
    if vocabulary not in _tokenizers:
        _tokenizers.clear()
        _tokenizers[vocabulary] = EojeolTokenizer(vocabulary[0])
    return _tokenizers[vocabulary]


def _tokenize_file(job: tuple[Path, Vocabulary, Path]) -> None:
    file, vocabulary, out = job
    shard = _opened(vocabulary).encode(corpus_texts(file))
    write_shard(out, shard.columns())
