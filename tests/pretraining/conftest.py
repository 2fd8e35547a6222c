"""A vocabulary, a corpus in shards, and corpora of consecutive token ids, whose rows reveal their origin."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState

from corpora.build import BuildConfig, build
from corpora.documents import read_documents
from corpora.foundation.files import SAMPLE_ROOT
from pretraining.data.rows import RowShard, SpecialIds
from pretraining.data.shards import Ragged, Sharded
from pretraining.data.tokens import TokenizedCorpus, TokenShard
from pretraining.objective import RowLayout
from pretraining.vocabulary.tokenizer import save_tokenizer
from pretraining.vocabulary.wordpiece import train_wordpiece

FIRST_PIECE = 10
"""Id of the first ordinary token; below are the special tokens 0 to 4 and unused slots."""

Structure = Sequence[Sequence[Sequence[int]]]
"""Documents of sentences of eojeol, each the number of its tokens."""


@dataclass(frozen=True)
class Numbered:
    """A corpus whose token ids are 10, 11, 12, … in order."""

    tokens: TokenizedCorpus
    document_starts: np.ndarray
    """First token id of each document; then the size of the vocabulary."""
    sentence_starts: np.ndarray
    eojeol_starts: np.ndarray

    @classmethod
    def from_structures(cls, shards: Sequence[Structure]) -> "Numbered":
        piece = FIRST_PIECE
        made: list[TokenShard] = []
        starts: tuple[list[int], list[int], list[int]] = ([], [], [])
        for shard in shards:
            first, num_tokens, ends, flags = piece, [0], [], []
            for document in shard:
                starts[0].append(piece)
                for sentence in document:
                    starts[1].append(piece)
                    for eojeol in sentence:
                        starts[2].append(piece)
                        flags += [1] + [0] * (eojeol - 1)
                        piece += eojeol
                    ends.append(piece - starts[0][-1])
                num_tokens.append(piece - first)
            made.append(
                TokenShard(
                    ids=Ragged(np.arange(first, piece, dtype=np.int32), np.array(num_tokens)),
                    eojeol_starts=np.array(flags, np.uint8),
                    sentence_ends=Ragged.from_lengths(
                        np.array([len(d) for d in shard], np.int64), np.array(ends, np.int32)
                    ),
                )
            )
        borders = [np.array([*numbers, piece]) for numbers in starts]
        return cls(Sharded.from_lengths(made, [len(shard) for shard in made]), *borders)

    @property
    def specials(self) -> SpecialIds:
        vocab_size = int(self.document_starts[-1])
        return SpecialIds(
            pad=0,
            cls=2,
            sep=3,
            mask=4,
            ordinary=np.arange(FIRST_PIECE, vocab_size),
            vocab_size=vocab_size,
            unused=tuple(range(5, FIRST_PIECE)),
        )

    def layout(self, max_length: int, *, isolate_documents: bool = True, seed: int = 0) -> RowLayout:
        return RowLayout(max_length, isolate_documents, seed, self.specials)

    def document_of(self, piece: int) -> int:
        return int(np.searchsorted(self.document_starts, piece, side="right")) - 1

    def sentence_of(self, piece: int) -> range:
        """Return the token ids of the sentence that contains PIECE."""
        return _span(self.sentence_starts, piece)

    def eojeol_of(self, piece: int) -> range:
        return _span(self.eojeol_starts, piece)


def _span(starts: np.ndarray, piece: int) -> range:
    number = int(np.searchsorted(starts, piece, side="right")) - 1
    return range(int(starts[number]), int(starts[number + 1]))


class RowSequence(NamedTuple):
    """A sequence of a row, with its masked tokens restored."""

    ids: list[int]
    first_length: int
    label: int
    fed: list[int]
    masked_positions: list[int]
    row: int

    @property
    def first(self) -> list[int]:
        """Segment A without its special tokens."""
        return self.ids[1 : self.first_length - 1]

    @property
    def second(self) -> list[int]:
        return self.ids[self.first_length : -1]


def _sequences(shard: RowShard) -> list[RowSequence]:
    sequences: list[RowSequence] = []
    for row in range(len(shard)):
        fed = shard.ids[row].tolist()
        ids, masked = list(fed), []
        if shard.masked_positions is not None and shard.masked_ids is not None:
            masked = shard.masked_positions[row].tolist()
            part = slice(int(shard.masked_positions.offsets[row]), int(shard.masked_positions.offsets[row + 1]))
            for position, piece in zip(masked, shard.masked_ids[part].tolist(), strict=True):
                ids[position] = piece
        begin = 0
        for number in range(int(shard.lengths.offsets[row]), int(shard.lengths.offsets[row + 1])):
            end = begin + int(shard.lengths.values[number])
            inside = [position - begin for position in masked if begin <= position < end]
            first_length, label = int(shard.first_lengths[number]), int(shard.labels[number])
            sequences.append(RowSequence(ids[begin:end], first_length, label, fed[begin:end], inside, row))
            begin = end
        assert begin == len(fed)
    return sequences


@pytest.fixture(scope="session")
def numbered() -> Callable[[Sequence[Structure]], Numbered]:
    """Return a function that builds a corpus of consecutive token ids from the structures of its shards."""
    return Numbered.from_structures


@pytest.fixture(scope="session")
def sequences_of() -> Callable[[RowShard], list[RowSequence]]:
    """Return a function that takes the rows of a shard apart."""
    return _sequences


@pytest.fixture(scope="session")
def structure() -> Callable[..., Structure]:
    """Return a function that draws the structure of some documents; bounds are included."""

    def draw(
        num_documents: int,
        *,
        sentences: tuple[int, int] = (1, 8),
        eojeol: tuple[int, int] = (1, 8),
        pieces: tuple[int, int] = (1, 3),
        seed: int = 0,
    ) -> Structure:
        rng = np.random.default_rng(seed)

        def number(bounds: tuple[int, int]) -> int:
            return int(rng.integers(bounds[0], bounds[1] + 1))

        return [
            [[number(pieces) for _ in range(number(eojeol))] for _ in range(number(sentences))]
            for _ in range(num_documents)
        ]

    return draw


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a WordPiece vocabulary trained on the sample. Tests do not write to it."""
    folder = tmp_path_factory.mktemp("vocabulary")
    texts = (document.text for document in read_documents(SAMPLE_ROOT / "news.jsonl"))
    save_tokenizer(train_wordpiece(texts, 2000, num_unused=10), folder)
    return folder


@pytest.fixture(scope="session")
def small_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a vocabulary of 600 entries, trained on the sample. Tests do not write to it."""
    folder = tmp_path_factory.mktemp("small") / "vocabulary"
    texts = (document.text for document in read_documents(SAMPLE_ROOT / "news.jsonl"))
    save_tokenizer(train_wordpiece(texts, 600), folder)
    return folder


@pytest.fixture(scope="session")
def slotted_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the small vocabulary with five slots `[unusedN]`. Tests do not write to it."""
    folder = tmp_path_factory.mktemp("slotted") / "vocabulary"
    texts = (document.text for document in read_documents(SAMPLE_ROOT / "news.jsonl"))
    save_tokenizer(train_wordpiece(texts, 605, num_unused=5), folder)
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a corpus of four training shards and one of held-out documents. Tests do not write to it."""
    folder = tmp_path_factory.mktemp("corpora") / "corpus"
    manifest = build([SAMPLE_ROOT / "news.jsonl"], folder, BuildConfig(held_out=0.1, shard_mb=0.06))
    assert [shard.split for shard in manifest.shards] == ["train"] * 4 + ["held-out"]
    return folder


@pytest.fixture(scope="session")
def few_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the first ten articles of the sample. Tests do not write to it."""
    path = tmp_path_factory.mktemp("few") / "news.jsonl"
    lines = (SAMPLE_ROOT / "news.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:10]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def quick_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do not measure the machine, and let every test have an accelerator of its own."""
    monkeypatch.setattr("pretraining.training.loop.matmul_flops_per_s", lambda *_, **__: 1e9)
    yield
    for state in (AcceleratorState, PartialState, GradientState):
        state._reset_state()
