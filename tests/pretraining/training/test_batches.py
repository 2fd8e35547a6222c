"""Batches: rows side by side with the positions of their sequences; the data of a step, whoever asks for it."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pretraining.data.rows import SPECIAL
from pretraining.data.shards import Sharded
from pretraining.objective import ObjectiveConfig
from pretraining.objectives.dynamic_mlm import DynamicMlm
from pretraining.objectives.static_mlm_nsp import StaticMlmNsp, StaticMlmNspConfig
from pretraining.training.batches import BatchSource, collate

Corpus = Callable[[list[Any]], Any]
Draw = Callable[..., Any]

MAX_LENGTH = 48
KINDS = ["isolated", "across documents", "pairs", "pairs alone"]


def make_source(
    corpus: Any, kind: str = "isolated", *, batch_size: int = 8, seed: int = 0, max_length: int = MAX_LENGTH
) -> BatchSource:
    layout = corpus.layout(max_length, isolate_documents=kind in {"isolated", "pairs"}, seed=seed)
    if kind.startswith("pairs"):
        objective: Any = StaticMlmNsp(StaticMlmNspConfig(dupe_factor=1), layout)
    else:
        objective = DynamicMlm(ObjectiveConfig(), layout)
    shards = [objective.make_rows(corpus.tokens, number) for number in range(len(corpus.tokens.shards))]
    return BatchSource(Sharded.from_lengths(shards, [len(shard) for shard in shards]), objective, batch_size)


@pytest.fixture(scope="module")
def news(numbered: Corpus, structure: Draw) -> Any:
    """Return a corpus in three shards, the second of which is empty."""
    return numbered([structure(60, seed=1), [], structure(40, seed=2)])


def source_with_straddling_step(corpus: Any, kind: str) -> tuple[BatchSource, int]:
    """Return a source, and the step in which its first pass ends and the second begins."""
    num_rows = len(make_source(corpus, kind).corpus)
    batch_size = next(size for size in range(10, num_rows) if num_rows % size)
    return make_source(corpus, kind, batch_size=batch_size), num_rows // batch_size


def row_of(source: BatchSource, row: int) -> list[tuple[list[int], list[int], int, int]]:
    """Return ids and kinds, the length of A and the label of each sequence of a row, from its shard."""
    shard, place = source.corpus.locate(row)
    sequences, begin = [], 0
    ids, kinds = shard.ids[place].tolist(), shard.columns()["kinds"][place].tolist()
    for number in range(int(shard.lengths.offsets[place]), int(shard.lengths.offsets[place + 1])):
        end = begin + int(shard.lengths.values[number])
        first, label = int(shard.first_lengths[number]), int(shard.labels[number])
        sequences.append((ids[begin:end], kinds[begin:end], first, label))
        begin = end
    return sequences


def test_rows_lie_side_by_side_as_their_sequences_say(news: Any, subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            source = make_source(news, kind)
            rows = np.random.default_rng(0).permutation(len(source.corpus))[:12]
            batch = collate(source.corpus, rows, np.arange(12), pad_id=0)
            width = max(sum(len(ids) for ids, *_ in row_of(source, row)) for row in rows.tolist())
            assert batch.input_ids.shape == (12, width)
            sequence_starts, labels = [], []
            for line, row in enumerate(rows.tolist()):
                sequences = row_of(source, row)
                expected: dict[str, list[int]] = {
                    name: [] for name in ("input_ids", "kinds", "sequence_ids", "position_ids", "token_type_ids")
                }
                for number, (ids, kinds, first, label) in enumerate(sequences, start=1):
                    sequence_starts.append(line * width + len(expected["input_ids"]))
                    labels.append(label)
                    expected["input_ids"] += ids
                    expected["kinds"] += kinds
                    expected["sequence_ids"] += [number] * len(ids)
                    expected["position_ids"] += range(len(ids))
                    expected["token_type_ids"] += [0] * first + [1] * (len(ids) - first)
                padding = [0] * (width - len(expected["input_ids"]))
                for name, values in expected.items():
                    assert getattr(batch, name)[line].tolist() == values + padding, name
            assert batch.sequence_starts.tolist() == sequence_starts
            assert batch.labels.tolist() == labels
            assert (batch.input_ids.ravel()[batch.sequence_starts] == 2).all()


def test_padding_is_the_pad_token_and_is_special(news: Any) -> None:
    source = make_source(news, "pairs alone")
    batch = collate(source.corpus, np.arange(10), np.zeros(10, np.int64), pad_id=7)
    padding = batch.sequence_ids == 0
    assert padding.any()
    assert (batch.input_ids[padding] == 7).all()
    assert (batch.kinds[padding] == SPECIAL).all()
    assert (batch.input_ids[~padding] != 7).all()


def test_segment_b_has_its_sep_and_segment_a_both_of_its_own(news: Any) -> None:
    source = make_source(news, "pairs alone")
    batch = collate(source.corpus, np.arange(20), np.zeros(20, np.int64), pad_id=0)
    for ids, types in zip(batch.input_ids.tolist(), batch.token_type_ids.tolist(), strict=True):
        first, second = (place for place, piece in enumerate(ids) if piece == 3)
        assert types == [0] * (first + 1) + [1] * (second - first) + [0] * (len(ids) - second - 1)


def test_masks_drawn_once_lie_where_the_row_does(news: Any) -> None:
    source = make_source(news, "pairs")
    rows = np.arange(len(source.corpus) - 6, len(source.corpus))
    batch = collate(source.corpus, rows, np.zeros(6, np.int64), pad_id=0)
    assert batch.masked_positions is not None
    assert batch.masked_ids is not None
    restored = batch.input_ids.copy()
    restored.ravel()[batch.masked_positions] = batch.masked_ids
    runs = np.diff(restored, axis=1)[(np.diff(batch.token_type_ids) == 0) & (batch.kinds[:, 1:] != SPECIAL)]
    # Within a segment the token ids are consecutive; the token after [CLS] does not count.
    assert (runs[runs < np.median(restored)] == 1).mean() > 0.9
    assert (batch.kinds.ravel()[batch.masked_positions] != SPECIAL).all()
    assert (batch.input_ids.ravel()[batch.masked_positions] == 4).mean() > 0.5
    counts = [int(shard.masked_positions.lengths[place]) for shard, place in map(source.corpus.locate, rows.tolist())]
    assert np.bincount(batch.masked_positions // batch.input_ids.shape[1]).tolist() == counts


# ---- the data of a step ----


def test_every_epoch_feeds_every_row_once_in_another_order(news: Any) -> None:
    source = make_source(news, batch_size=1)
    size = len(source.corpus)
    orders = [[int(source.rows(epoch * size + place)[0][0]) for place in range(size)] for epoch in range(3)]
    assert all(sorted(order) == list(range(size)) for order in orders)
    assert len({tuple(order) for order in [*orders, range(size)]}) == 4
    assert [int(source.rows(step)[1][0]) for step in (0, size - 1, size, 3 * size)] == [0, 0, 1, 3]


def test_the_rows_of_a_step_do_not_depend_on_earlier_calls(news: Any) -> None:
    steps = [40, 3, 41, 2, 90, 40]
    source = make_source(news)
    for step in steps:
        asked, fresh = source.rows(step), make_source(news).rows(step)
        assert [part.tolist() for part in asked] == [part.tolist() for part in fresh]
    assert source.rows(3)[0].tolist() != make_source(news, seed=1).rows(3)[0].tolist()


def test_steps_follow_each_other_without_a_gap(news: Any) -> None:
    source, single = make_source(news, batch_size=7), make_source(news, batch_size=1)
    for step in range(20):
        rows, epochs = source.rows(step)
        alone = [single.rows(7 * step + place) for place in range(7)]
        assert rows.tolist() == [int(row[0]) for row, _ in alone]
        assert epochs.tolist() == [int(epoch[0]) for _, epoch in alone]


def test_a_batch_may_be_larger_than_the_corpus(news: Any) -> None:
    size = len(make_source(news).corpus)
    rows, epochs = make_source(news, batch_size=2 * size + 5).rows(0)
    assert Counter(epochs.tolist()) == {0: size, 1: size, 2: 5}
    assert Counter(rows[: 2 * size].tolist()) == dict.fromkeys(range(size), 2)


def test_a_large_corpus_is_shuffled_by_blocks(news: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(make_source(news).corpus)
    monkeypatch.setattr("pretraining.training.batches.BLOCK_ROWS", 7)
    assert size % 7  # the last block is shorter
    test_every_epoch_feeds_every_row_once_in_another_order(news)
    test_the_rows_of_a_step_do_not_depend_on_earlier_calls(news)
    test_steps_follow_each_other_without_a_gap(news)
    test_a_batch_may_be_larger_than_the_corpus(news)
    epoch = make_source(news, batch_size=size).rows(0)[0] // 7
    assert np.count_nonzero(np.diff(epoch)) == epoch.max()  # each block once
    assert epoch.tolist() != sorted(epoch.tolist())
    source = make_source(news, batch_size=3)
    for step in range(60):
        source.rows(step)
    assert len(source._kept) <= 6
    assert max(map(len, source._kept.values())) <= max(7, epoch.max() + 1)


def taken_apart(batches: list[dict[str, Any]]) -> list[tuple[list[int], list[int], list[int], list[int]]]:
    """Return ids, segments, masked positions and masked ids of every row, without its padding."""
    rows = []
    for batch in batches:
        arrays = {name: tensor.numpy() for name, tensor in batch.items()}
        width = arrays["input_ids"].shape[1]
        for line, sequence_ids in enumerate(arrays["sequence_ids"]):
            length = int((sequence_ids > 0).sum())
            own = arrays["masked_positions"] // width == line
            ids, types = (arrays[name][line, :length].tolist() for name in ("input_ids", "token_type_ids"))
            rows.append(
                (ids, types, (arrays["masked_positions"][own] % width).tolist(), arrays["masked_ids"][own].tolist())
            )
    return rows


def test_every_number_of_processes_feeds_the_same_step(news: Any, subtests: pytest.Subtests) -> None:
    for kind, num_processes in itertools.product(KINDS, [2, 3]):
        with subtests.test(kind=kind, num_processes=num_processes):
            source, straddling = source_with_straddling_step(news, kind)
            for step in (0, straddling):
                alone = taken_apart(source.micro_batches(step, process=0, num_processes=1, size=100))
                together = []
                for process in range(num_processes):
                    own = make_source(news, kind, batch_size=source.batch_size)
                    together.append(
                        taken_apart(own.micro_batches(step, process=process, num_processes=num_processes, size=3))
                    )
                assert len(alone) == source.batch_size
                assert sorted(row for rows in together for row in rows) == sorted(alone)
                assert max(map(len, together)) - min(map(len, together)) <= 1


def test_micro_batches_are_as_large_as_allowed(news: Any) -> None:
    batches = make_source(news, batch_size=10).micro_batches(0, process=0, num_processes=1, size=4)
    assert [len(batch["input_ids"]) for batch in batches] == [4, 4, 2]


def test_rows_of_similar_length_share_a_micro_batch(news: Any) -> None:
    source, num_shared, num_drawn = make_source(news, "pairs alone", batch_size=24), 0, 0
    for step in range(4):
        batches = source.micro_batches(step, process=0, num_processes=1, size=4)
        lengths = [(batch["sequence_ids"] > 0).sum(1).tolist() for batch in batches]
        flat = [length for some in lengths for length in some]
        assert flat == sorted(flat)
        drawn = source.rows(step)[0]
        assert sorted(flat) == sorted(sum(len(ids) for ids, *_ in row_of(source, row)) for row in drawn.tolist())
        num_shared += sum(batch["input_ids"].numel() for batch in batches)
        num_drawn += sum(
            collate(source.corpus, drawn[k : k + 4], np.zeros(4, np.int64), pad_id=0).input_ids.size
            for k in range(0, 24, 4)
        )
    assert num_shared < 0.9 * num_drawn


def test_a_batch_between_two_epochs_masks_each_row_by_its_own(news: Any, subtests: pytest.Subtests) -> None:
    for kind in ["isolated", "across documents"]:
        with subtests.test(kind=kind):
            source, step = source_with_straddling_step(news, kind)
            rows, epochs = source.rows(step)
            assert set(epochs.tolist()) == {0, 1}
            fed = taken_apart([source.tensors(rows, epochs)])
            num_others = 0
            for number, epoch in enumerate(epochs):
                row = rows[number : number + 1]
                own, other = (taken_apart([source.tensors(row, np.array([e]))]) for e in (epoch, epoch ^ 1))
                assert fed[number] == own[0]
                num_others += own[0] != other[0]
            assert num_others >= 8  # a short row may have no prediction in either


def test_static_masks_repeat_in_every_epoch_and_dynamic_ones_do_not(news: Any) -> None:
    rows = np.arange(10)
    for kind, repeats in (("pairs", True), ("isolated", False)):
        source = make_source(news, kind)
        first, again, second = (taken_apart([source.tensors(rows, np.full(10, epoch))]) for epoch in (0, 0, 1))
        assert first == again
        assert [before == after for before, after in zip(first, second, strict=True)] == [repeats] * 10


def test_tensors_are_what_the_network_takes(news: Any, subtests: pytest.Subtests) -> None:
    for kind, names in [("isolated", set()), ("pairs", {"sequence_starts", "next_labels"})]:
        with subtests.test(kind=kind):
            import torch

            tensors = make_source(news, kind).micro_batches(0, process=0, num_processes=1, size=8)[0]
            common = {"input_ids", "token_type_ids", "position_ids", "sequence_ids", "masked_positions", "masked_ids"}
            assert set(tensors) == common | names
            assert {tensor.dtype for tensor in tensors.values()} == {torch.int64}
            assert len(tensors["masked_positions"]) == len(tensors["masked_ids"]) > 0
            if names:
                assert len(tensors["sequence_starts"]) == len(tensors["next_labels"]) > 8
                assert set(tensors["next_labels"].tolist()) == {0, 1}


def test_rows_are_padded_with_the_pad_token_of_the_vocabulary(news: Any) -> None:
    source = make_source(news, "pairs alone")
    tensors = source.tensors(np.arange(10), np.zeros(10, np.int64))
    padding = tensors["sequence_ids"] == 0
    assert padding.any()
    assert (tensors["input_ids"][padding] == source.objective.layout.specials.pad).all()
