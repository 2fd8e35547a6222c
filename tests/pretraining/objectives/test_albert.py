"""ALBERT: the order of segments, masked runs of eojeol, and the losses of transformers' own class."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import AlbertForPreTraining

from pretraining.data.rows import SPECIAL, WORD_INSIDE, WORD_START, RowShard
from pretraining.data.shards import Sharded
from pretraining.objectives.albert import ALONE, SWAPPED, Albert, AlbertConfig, choose_ngrams, ngram_lengths
from pretraining.recipe import ModelConfig
from pretraining.training.batches import BatchSource

Corpus = Callable[[list[Any]], Any]
Sequences = Callable[[RowShard], list[Any]]

LENGTH = 64


@pytest.fixture(scope="module")
def news(numbered: Corpus, structure: Callable[..., Any]) -> Any:
    return numbered([structure(400, seed=1), structure(100, seed=2)])


def make_source(corpus: Any, **settings: Any) -> BatchSource:
    objective = Albert(AlbertConfig(**settings), corpus.layout(LENGTH))
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, 16)


def test_pairs_are_consecutive_whole_sentences_and_half_of_them_are_swapped(news: Any, sequences_of: Sequences) -> None:
    source = make_source(news)
    sequences = sequences_of(source.corpus.shards[0])
    pairs = [s for s in sequences if s.second]
    assert len(pairs) > 200
    for pair in pairs:
        first, second = (pair.second, pair.first) if pair.label == SWAPPED else (pair.first, pair.second)
        assert first + second == list(range(first[0], second[-1] + 1))
        assert news.document_of(first[0]) == news.document_of(second[-1])
        assert second[0] in news.sentence_starts
    assert all(s.label == ALONE for s in sequences if not s.second)
    swapped = sum(pair.label == SWAPPED for pair in pairs)
    assert stats.binomtest(swapped, len(pairs)).pvalue > 1e-6
    # Every token of the corpus is in one sequence.
    shard = news.tokens.shards[0]
    assert sorted(t for s in sequences for t in s.first + s.second) == shard.ids.values.tolist()


def test_a_run_of_n_eojeol_is_drawn_with_a_probability_proportional_to_1_over_n() -> None:
    draws = np.random.default_rng(0).random(66_000)
    assert (ngram_lengths(draws, 1) == 1).all()
    for longest in (2, 3, 5):
        counts = np.bincount(ngram_lengths(draws, longest), minlength=longest + 1)[1:]
        shares = 1 / np.arange(1, longest + 1)
        assert len(counts) == longest
        assert stats.chisquare(counts, shares / shares.sum() * len(draws)).pvalue > 1e-6, longest
    # One run in each row, which has room for one of three eojeol of two tokens.
    kinds = np.tile(np.array([SPECIAL, *[WORD_START, WORD_INSIDE] * 9, SPECIAL], np.uint8), (300, 1))
    starts = np.ones(kinds.shape)
    starts[:, 7] = 0.0  # the fourth eojeol comes first
    sizes = np.random.default_rng(1).random(kinds.shape)
    chosen = choose_ngrams(kinds, np.full(300, 6), starts, sizes, max_ngram=3)
    for row, length in enumerate(ngram_lengths(sizes[:, 7], 3)):
        assert chosen[row, 7 : 7 + 2 * length].all()


def test_runs_are_whole_eojeol_and_as_many_as_the_row_has_room_for() -> None:
    kinds = np.full((400, 202), WORD_START, np.uint8)
    kinds[:, 1::2] = WORD_INSIDE  # eojeol of two tokens
    kinds[:, [0, 101, 201]] = SPECIAL
    rng = np.random.default_rng(0)
    counts = np.full(400, 6)
    chosen = choose_ngrams(kinds, counts, rng.random(kinds.shape), rng.random(kinds.shape), max_ngram=3)
    assert not chosen[kinds == SPECIAL].any()
    assert (chosen.sum(axis=1) <= 6).all()
    assert chosen.sum(axis=1).mean() > 5
    for row in range(400):
        marked = chosen[row].astype(int)
        starts = np.flatnonzero(np.diff(np.concatenate([[0], marked])) == 1)
        ends = np.flatnonzero(np.diff(np.concatenate([marked, [0]])) == -1)
        for start, end in zip(starts, ends, strict=True):
            assert kinds[row, start] == WORD_START or kinds[row, start - 1] == SPECIAL
            assert end == kinds.shape[1] - 1 or kinds[row, end + 1] != WORD_INSIDE
    lone = choose_ngrams(kinds, np.full(400, 2), rng.random(kinds.shape), np.full(kinds.shape, 0.1), max_ngram=3)
    assert Counter(lone.sum(axis=1).tolist()).most_common(1)[0][0] == 2
    room = choose_ngrams(kinds, np.full(400, 200), np.zeros(kinds.shape), rng.random(kinds.shape), max_ngram=3)
    assert room[kinds != SPECIAL].all()


@pytest.fixture
def model() -> Callable[[BatchSource], Any]:
    def make(source: BatchSource) -> Any:
        torch.manual_seed(1)
        shape = ModelConfig(
            architecture="albert",
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            embedding_size=16,
            max_position_embeddings=LENGTH,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        made = source.objective.build_model(shape.network_config(source.objective.layout.specials.vocab_size, 0))
        made.network.config.classifier_dropout_prob = 0.0
        made.use_attention(torch.device("cpu"))
        return made.eval()

    return make


def test_the_losses_are_those_of_transformers(news: Any, model: Callable[[BatchSource], Any]) -> None:
    source = make_source(news)
    own = model(source)
    stock: Any = own.export({name: p.detach() for name, p in own.named_parameters()}).eval()
    alone = type(source)(source.corpus, source.objective, 1)
    compared = 0
    for step in range(2000):
        (batch,) = alone.micro_batches(step, process=0, num_processes=1, size=1)
        if int(batch["sequence_ids"].max()) > 1 or not len(batch["order_labels"]) or not len(batch["masked_ids"]):
            continue
        if compared == 200:
            break
        labels = torch.full_like(batch["input_ids"], -100).flatten()
        labels[batch["masked_positions"]] = batch["masked_ids"]
        with torch.no_grad():
            loss = stock(
                input_ids=batch["input_ids"],
                token_type_ids=batch["token_type_ids"],
                attention_mask=(batch["sequence_ids"] > 0).long(),
                labels=labels.view_as(batch["input_ids"]),
                sentence_order_label=batch["order_labels"],
            ).loss
            outputs = own(**batch)
        mine = outputs["mlm_loss"] / len(batch["masked_ids"]) + outputs["sop_loss"] / len(batch["order_labels"])
        assert mine.item() == pytest.approx(loss.item(), abs=1e-6, rel=1e-6)
        compared += 1
    assert compared == 200


def test_the_saved_network_has_both_heads_and_nothing_more(
    news: Any, model: Callable[[BatchSource], Any], tmp_path: Path
) -> None:
    own = model(make_source(news))
    own.export({name: p.detach() for name, p in own.named_parameters()}).save_pretrained(tmp_path)
    _, report = AlbertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
