"""Shared tokens: the pairs, their labels, and that the exported encoder is plain."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, BertConfig

from corpora.foundation.errors import DataError
from pretraining.data.rows import RowShard
from pretraining.data.shards import Ragged, Sharded
from pretraining.objectives.shared_tokens import MIN_EOJEOL, SharedTokens, SharedTokensConfig, SharedTokensModel
from pretraining.training.batches import BatchSource

Corpus = Callable[[list[Any]], Any]
Draw = Callable[..., Any]
Sequences = Callable[[RowShard], list[Any]]
Fails = Callable[..., AbstractContextManager[None]]

TAIL = 1e-6
LENGTH = 64
CLS, SEP, MASK = 2, 3, 4


@pytest.fixture(scope="module")
def news(numbered: Corpus, structure: Draw) -> Any:
    return numbered([structure(400, seed=1), structure(100, seed=2)])


def make_objective(corpus: Any, **settings: Any) -> SharedTokens:
    return SharedTokens(SharedTokensConfig(**settings), corpus.layout(LENGTH, isolate_documents=True, seed=0))


def make_source(corpus: Any, **settings: Any) -> BatchSource:
    objective = make_objective(corpus, **settings)
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, 16)


def make_model(source: BatchSource, *, seed: int = 0) -> SharedTokensModel:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=source.objective.layout.specials.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = source.objective.build_model(config)
    assert isinstance(model, SharedTokensModel)
    model.use_attention(torch.device("cpu"))
    return model


def batch_of(source: BatchSource, step: int = 0) -> dict[str, torch.Tensor]:
    return source.micro_batches(step, process=0, num_processes=1, size=source.batch_size)[0]


def texts_of(batch: dict[str, torch.Tensor], ids: np.ndarray) -> dict[tuple[int, int, int], list[int]]:
    """Return the ids of every text by row, sequence and segment."""
    texts: dict[tuple[int, int, int], list[int]] = {}
    sequences, segments = batch["sequence_ids"].numpy(), batch["token_type_ids"].numpy()
    for row, position in zip(*np.nonzero(sequences), strict=True):
        key = (int(row), int(sequences[row, position]), int(segments[row, position]))
        texts.setdefault(key, []).append(int(ids[row, position]))
    return texts


# ---- rows ----


def is_running(pieces: list[int]) -> bool:
    return pieces == list(range(pieces[0], pieces[0] + len(pieces)))


def eojeol_of(corpus: Any, pieces: list[int]) -> list[list[int]]:
    """Split tokens where they are not consecutive or an eojeol starts."""
    starts = set(corpus.eojeol_starts.tolist())
    words: list[list[int]] = []
    for piece in pieces:
        if piece in starts or not words or words[-1][-1] != piece - 1:
            words.append([])
        words[-1].append(piece)
    return words


def test_of_a_pair_one_text_runs_and_the_other_has_whole_eojeol_of_it_and_of_other_documents(
    news: Any, sequences_of: Sequences
) -> None:
    pairs = [s for s in sequences_of(make_objective(news, pair_rate=1.0).make_rows(news.tokens, 0)) if s.second]
    assert len(pairs) > 300
    num_own = num_words = num_first = num_turned = num_quoted = num_foreign_shard = 0
    for pair in pairs:
        original, changed = (pair.first, pair.second) if is_running(pair.first) else (pair.second, pair.first)
        assert is_running(original)
        document = news.document_of(original[0])
        assert document == news.document_of(original[-1])
        words = eojeol_of(news, changed)
        for word in words[:-1]:  # the room may end in the last
            whole = list(news.eojeol_of(word[0]))
            # Of another document what was taken may end within a word.
            assert word == whole or (news.document_of(word[0]) != document and set(word) < set(whole))
        own = [word for word in words if news.document_of(word[0]) == document]
        num_own += len(own)
        num_words += len(words)
        num_first += original == pair.first
        # In order but for one turn.
        falls = int((np.diff([word[0] for word in own]) < 0).sum())
        assert falls <= 1
        num_turned += falls
        num_quoted += any(word[0] not in original for word in own)
        num_foreign_shard += any(news.document_of(word[0]) >= 400 for word in words)
    # As a probability that is drawn evenly has it.
    assert 0.4 < num_own / num_words < 0.6
    for count, (low, high) in (
        (num_first, (0.35, 0.65)),
        (num_turned, (0.15, 0.5)),
        (num_quoted, (0.2, 0.5)),
        (num_foreign_shard, (0.1, 0.9)),
    ):
        assert low < count / len(pairs) < high


def test_all_of_a_document_is_read_in_pairs_or_in_single_segments(
    numbered: Corpus, structure: Draw, sequences_of: Sequences
) -> None:
    corpus = numbered([structure(60, sentences=(5, 12), eojeol=(4, 8), seed=3)])
    objective = make_objective(corpus, pair_rate=0.4)
    sequences = sequences_of(objective.make_rows(corpus.tokens, 0))
    singles = [s for s in sequences if not s.second]
    of_singles = [piece for s in singles for piece in s.first]
    assert len(set(of_singles)) == len(of_singles)
    paired = {corpus.document_of((s.first if is_running(s.first) else s.second)[0]) for s in sequences if s.second}
    # A document is one or the other, but for ends that are too short for a pair.
    whole = {corpus.document_of(piece) for piece in of_singles} - paired
    assert whole | paired == set(range(60))
    for document in whole:
        pieces = range(*corpus.document_starts[document : document + 2].tolist())
        assert set(pieces) <= set(of_singles)
    low, high = stats.binom.ppf([TAIL, 1 - TAIL], 60, 0.4)
    assert low <= len(paired) <= high


def test_stretches_of_a_few_eojeol_stay_single(numbered: Corpus, sequences_of: Sequences) -> None:
    corpus = numbered([[[[1] * (MIN_EOJEOL - 1)], [[2] * MIN_EOJEOL]]])
    sequences = sequences_of(make_objective(corpus, pair_rate=1.0).make_rows(corpus.tokens, 0))
    assert sorted(bool(s.second) for s in sequences) == [False, True]


def test_no_sequence_is_longer_than_a_row_even_of_long_eojeol(
    numbered: Corpus, structure: Draw, sequences_of: Sequences
) -> None:
    corpus = numbered([structure(50, sentences=(1, 4), eojeol=(1, 6), pieces=(1, 40), seed=4)])
    rows = make_objective(corpus, pair_rate=1.0).make_rows(corpus.tokens, 0)
    assert rows.ids.lengths.max() <= LENGTH
    assert all(len(s.first) <= (LENGTH - 3) // 2 for s in sequences_of(rows) if s.second)


def test_the_seed_decides_the_rows(news: Any) -> None:
    first, same = (make_objective(news).make_rows(news.tokens, 0).ids.values for _ in range(2))
    assert np.array_equal(first, same)
    objective = SharedTokens(SharedTokensConfig(), news.layout(LENGTH, isolate_documents=True, seed=1))
    assert not np.array_equal(objective.make_rows(news.tokens, 0).ids.values, first)


def test_other_pairs_are_other_rows_and_other_masks_are_not(news: Any) -> None:
    settings = [make_objective(news, **s).row_settings for s in ({}, {"mask_rate": 0.4}, {"pair_rate": 0.1})]
    assert settings[0] == settings[1] != settings[2]


def test_one_document_has_no_other_to_exchange_words_with(numbered: Corpus, fails: Fails) -> None:
    corpus = numbered([[[[1] * 9]]])
    with fails(DataError, "corpus", "one document"):
        make_objective(corpus).make_rows(corpus.tokens, 0)


# ---- labels ----


def test_what_is_found_and_what_is_shared_is_what_the_other_text_holds(news: Any) -> None:
    """Every label of some batches, looked up in plain sets."""
    source = make_source(news, pair_rate=0.6, mask_rate=0.3)
    for step in range(4):
        batch = batch_of(source, step)
        fed = batch["input_ids"].numpy()
        width = fed.shape[1]
        original = fed.copy().ravel()
        original[batch["masked_positions"].numpy()] = batch["masked_ids"].numpy()
        original = original.reshape(fed.shape)
        masked = np.zeros(fed.size, bool)
        masked[batch["masked_positions"].numpy()] = True
        shown = texts_of(batch, np.where(masked.reshape(fed.shape), -1, fed))
        whole = texts_of(batch, original)
        pairs = sorted({key[:2] for key in whole if key[2] == 1})
        found: dict[int, float] = {}
        for row, position in zip(*np.nonzero(batch["sequence_ids"].numpy()), strict=True):
            key = (int(row), int(batch["sequence_ids"][row, position]))
            at = int(row) * width + int(position)
            if key in pairs and original[row, position] not in (CLS, SEP) and not masked[at]:
                other = shown[*key, 1 - int(batch["token_type_ids"][row, position])]
                found[at] = float(fed[row, position] in other)
        assert dict(zip(batch["judged_positions"].tolist(), batch["found"].tolist(), strict=True)) == found
        assert 0.1 < np.mean(list(found.values())) < 0.7
        shares = []
        for pair in pairs:
            a, b = ([i for i in whole[*pair, segment] if i not in (CLS, SEP)] for segment in (0, 1))
            shares.append((sum(i in b for i in a) + sum(i in a for i in b)) / len(a + b))
        assert batch["shares"].tolist() == pytest.approx(shares)
        at = batch["pair_starts"].numpy()
        assert (fed.ravel()[at] == CLS).all()
        assert [(int(position) // width, int(batch["sequence_ids"].flatten()[position])) for position in at] == pairs


def test_single_segments_are_masked_and_not_judged(news: Any) -> None:
    batch = batch_of(make_source(news, pair_rate=1e-9))
    assert len(batch["masked_positions"]) > 0
    assert [len(batch[name]) for name in ("judged_positions", "found", "pair_starts", "shares")] == [0, 0, 0, 0]
    outputs = make_model(make_source(news))(**batch)
    assert outputs["found_loss"].item() == outputs["share_loss"].item() == 0
    assert outputs["mlm_loss"].item() > 0


def test_the_losses_are_those_of_the_labels(news: Any) -> None:
    source = make_source(news)
    model, batch = make_model(source), batch_of(source)
    outputs = model(**batch)
    layout = [batch[name] for name in ("input_ids", "token_type_ids", "position_ids", "sequence_ids")]
    states = model.encode(*layout).flatten(0, 1).double()
    found = batch["found"]
    p = torch.sigmoid(states[batch["judged_positions"]] @ model.judge.weight[0].double() + model.judge.bias.double())
    loss = -(found * p.log() + (1 - found) * (1 - p).log()).sum()
    assert outputs["found_loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert outputs["found_correct"].item() == ((p > 0.5) == (found > 0.5)).sum().item()
    pooler, head = model.network.bert.pooler.dense, model.network.cls.seq_relationship
    pooled = torch.tanh(states[batch["pair_starts"]] @ pooler.weight.double().T + pooler.bias.double())
    q = (pooled @ head.weight.double().T + head.bias.double()).softmax(-1)
    shares = batch["shares"]
    loss = -(shares * q[:, 0].log() + (1 - shares) * q[:, 1].log()).sum()
    assert outputs["share_loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert outputs["share_correct"].item() == ((q[:, 0] - shares).abs() <= 0.1).sum().item()


def test_the_terms_have_the_weights_of_the_recipe(news: Any) -> None:
    terms = make_objective(news, found_weight=2.0, share_weight=0.5).terms
    assert [(term.name, term.weight) for term in terms] == [("mlm", 1.0), ("found", 2.0), ("share", 0.5)]


@pytest.mark.slow
def test_an_encoder_learns_to_find_tokens_in_the_other_text(numbered: Corpus, structure: Draw) -> None:
    """Better than what frequencies tell; on rows that it was not trained on: it compares and does not remember."""
    corpus = numbered([structure(1000, seed=seed) for seed in (1, 2)])
    few = [replace(shard, ids=Ragged(10 + shard.ids.values % 47, shard.ids.offsets)) for shard in corpus.tokens.shards]
    tokens = Sharded.from_lengths(few, [len(shard.ids) for shard in few])
    layout = replace(
        corpus.layout(LENGTH), specials=replace(corpus.specials, vocab_size=57, ordinary=np.arange(10, 57))
    )
    objective = SharedTokens(SharedTokensConfig(pair_rate=1.0, mask_rate=0.1), layout)
    source, unseen = (
        BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, 32)
        for rows in (objective.make_rows(tokens, k) for k in (0, 1))
    )
    model = make_model(source)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for step in range(500):
        batch = batch_of(source, step)
        (model(**batch)["found_loss"] / len(batch["found"])).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        batch = batch_of(unseen)
        accuracy = float(model(**batch)["found_correct"]) / len(batch["found"])
    majority = max(float(batch["found"].mean()), 1 - float(batch["found"].mean()))
    assert accuracy > majority + 0.15, (accuracy, majority)


# ---- what comes out ----


def test_what_is_saved_is_a_plain_encoder_with_its_heads(news: Any, tmp_path: Path) -> None:
    model = make_model(make_source(news))
    model.export({name: p.detach() for name, p in model.named_parameters()}).save_pretrained(tmp_path)
    loaded, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]  # the pooler is there
    _, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    _, info = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert info["missing_keys"] == {"classifier.weight", "classifier.bias"}
    ids = torch.arange(10, 20)[None]
    ours = model.eval().encode(ids, torch.zeros_like(ids), torch.arange(10)[None], torch.ones_like(ids))
    torch.testing.assert_close(loaded.eval()(ids).last_hidden_state, ours, rtol=0, atol=1e-5)


def test_a_continued_run_keeps_the_judge(news: Any) -> None:
    source = make_source(news)
    model, other = make_model(source, seed=1), make_model(source, seed=2)
    state = {name: p.detach() for name, p in model.named_parameters()}
    assert other.load(dict(model.export(state).state_dict()) | model.objective_parts(state)) == []
    batch = batch_of(source)
    with torch.no_grad():
        assert {k: v.item() for k, v in other(**batch).items()} == {k: v.item() for k, v in model(**batch).items()}
