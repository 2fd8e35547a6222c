"""Span selection: questions and answers are right, and the reader that is saved is transformers' own."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, BertConfig, BertForQuestionAnswering

from pretraining.data.rows import RowShard
from pretraining.data.shards import Ragged, Sharded
from pretraining.objectives.span_selection import LONGEST_ANSWER, SpanSelection, SpanSelectionConfig, SpanSelectionModel
from pretraining.training.batches import BatchSource

Corpus = Callable[[list[Any]], Any]
Draw = Callable[..., Any]
Sequences = Callable[[RowShard], list[Any]]

LENGTH = 64
CLS, SEP, MASK = 2, 3, 4


@pytest.fixture(scope="module")
def news(numbered: Corpus, structure: Draw) -> Any:
    return numbered([structure(400, sentences=(2, 12), eojeol=(4, 9), seed=1)])


def make_objective(corpus: Any, length: int = LENGTH, **settings: Any) -> SpanSelection:
    return SpanSelection(SpanSelectionConfig(**settings), corpus.layout(length, isolate_documents=True, seed=0))


def make_source(corpus: Any, *, batch_size: int = 16, **settings: Any) -> BatchSource:
    objective = make_objective(corpus, **settings)
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, batch_size)


def make_model(source: BatchSource, *, seed: int = 0) -> SpanSelectionModel:
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
    assert isinstance(model, SpanSelectionModel)
    model.use_attention(torch.device("cpu"))
    return model


def batch_of(source: BatchSource, step: int = 0) -> dict[str, torch.Tensor]:
    return source.micro_batches(step, process=0, num_processes=1, size=source.batch_size)[0]


def asked(sequences: list[Any]) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Yield question, passage and answer of every pair; the answer is empty if the passage has none."""
    for sequence in sequences:
        if sequence.second:
            start, length = divmod(sequence.label, LONGEST_ANSWER)
            first = start - len(sequence.first) - 2
            yield sequence.first, sequence.second, sequence.second[first : first + length]


# ---- rows ----


def test_a_question_is_a_sentence_of_the_passage_without_the_answer_and_some_eojeol(
    news: Any, sequences_of: Sequences
) -> None:
    rows = make_objective(news, pair_rate=1.0, unanswerable_rate=0.0).make_rows(news.tokens, 0)
    pairs = list(asked(sequences_of(rows)))
    assert len(pairs) > 600
    dropped, lengths = [], []
    for question, passage, answer in pairs:
        assert passage == list(range(passage[0], passage[-1] + 1))
        assert answer
        assert set(answer) <= set(passage)
        # Whole eojeol: no piece of this corpus follows two others, so none is a particle.
        words = sorted({tuple(news.eojeol_of(piece)) for piece in answer})
        assert [piece for word in words for piece in word] == answer
        lengths.append(len(words))
        # In their order, and all of one sentence.
        assert question == sorted(set(question) - set(answer))
        sentence = news.sentence_of(answer[0])
        assert set(question) | set(answer) <= set(sentence) <= set(passage)
        beside = {answer[0] - 1, answer[-1] + 1} & set(sentence)
        assert beside <= set(question)
        others = len(sentence) - len(answer) - len(question)
        dropped.append(others / max(1, len(sentence) - len(answer)))
    assert 0.5 < np.mean(np.array(lengths) == 1) < 0.75
    assert max(lengths) == 3
    assert 0.1 < np.mean(dropped) < 0.3
    assert min(dropped) == 0


def test_some_passages_are_others_of_the_document(news: Any, sequences_of: Sequences) -> None:
    rows = make_objective(news, pair_rate=1.0, unanswerable_rate=0.5).make_rows(news.tokens, 0)
    pairs = list(asked(sequences_of(rows)))
    without = [(question, passage) for question, passage, answer in pairs if not answer]
    assert 0.3 < len(without) / len(pairs) < 0.5  # a document of one segment has no other
    for question, passage in without:
        assert not set(question) & set(passage)
        assert news.document_of(question[0]) == news.document_of(passage[0])


def test_particles_stay_in_the_question(numbered: Corpus, sequences_of: Sequences) -> None:
    """Every eojeol is a piece of its own and one of three particles."""
    corpus = numbered([[[[2] * 8] for _ in range(100)]])
    shard = corpus.tokens.shards[0]
    ids = shard.ids.values.copy()
    particles = ids.max() + 1 + np.arange(3)
    ids[shard.eojeol_starts == 0] = particles[np.arange((shard.eojeol_starts == 0).sum()) % 3]
    tokens = Sharded.from_lengths([replace(shard, ids=Ragged(ids, shard.ids.offsets))], [len(shard)])
    layout = corpus.layout(LENGTH, isolate_documents=True, seed=0)
    layout = replace(layout, specials=replace(layout.specials, vocab_size=int(particles[-1]) + 1))
    rows = SpanSelection(SpanSelectionConfig(pair_rate=1.0, most_dropped=0.0), layout).make_rows(tokens, 0)
    pairs = list(asked(sequences_of(rows)))
    assert len(pairs) > 50
    for question, passage, answer in pairs:
        assert answer[-1] not in particles
        at = passage.index(answer[0])
        assert question == passage[:at] + passage[at + len(answer) :]


def test_rare_tokens_are_asked_for_more_often(numbered: Corpus, sequences_of: Sequences) -> None:
    corpus = numbered([[[[1] * 10] for _ in range(300)]])
    shard = corpus.tokens.shards[0]
    ids = np.where(np.arange(len(shard.ids.values)) % 10 < 5, 10, shard.ids.values)  # half of the eojeol are the same
    tokens = Sharded.from_lengths([replace(shard, ids=Ragged(ids, shard.ids.offsets))], [len(shard)])
    rows = make_objective(corpus, pair_rate=1.0).make_rows(tokens, 0)
    frequent = [answer[0] == 10 for _, _, answer in asked(sequences_of(rows))]
    assert np.mean(frequent) < 0.2


def test_short_sentences_are_not_asked_about_and_no_sequence_is_longer_than_a_row(
    numbered: Corpus, structure: Draw, sequences_of: Sequences
) -> None:
    few = numbered([[[[1] * 4, [1] * 3]]])
    assert not any(s.second for s in sequences_of(make_objective(few, pair_rate=1.0).make_rows(few.tokens, 0)))
    long = numbered([structure(60, sentences=(1, 4), eojeol=(1, 9), pieces=(1, 90), seed=4)])
    rows = make_objective(long, pair_rate=1.0).make_rows(long.tokens, 0)
    assert rows.ids.lengths.max() <= LENGTH
    whole = make_objective(long, 512, pair_rate=1.0).make_rows(long.tokens, 0)
    assert (whole.labels % LONGEST_ANSWER).max() > 0
    assert all(len(answer) < LONGEST_ANSWER for _, _, answer in asked(sequences_of(whole)))


def test_the_seed_and_the_settings_of_questions_decide_the_rows(news: Any) -> None:
    first, same = (make_objective(news).make_rows(news.tokens, 0).ids.values for _ in range(2))
    assert np.array_equal(first, same)
    settings = [make_objective(news, **s).row_settings for s in ({}, {"mask_rate": 0.4}, {"most_dropped": 0.1})]
    assert settings[0] == settings[1] != settings[2]


# ---- losses ----


def test_the_loss_is_that_of_the_stock_class_for_every_pair(news: Any) -> None:
    source = make_source(news, mask_rate=0.15)
    model = make_model(source)
    exported = model.export({name: p.detach() for name, p in model.named_parameters()})
    reader = model.variants(exported, {name: p.detach() for name, p in model.named_parameters()})["reader"].eval()
    num_pairs = 0
    for step in range(15):
        batch = batch_of(source, step)
        numbers, positions = batch["pair_numbers"].tolist(), batch["pair_positions"]
        loss = correct = 0.0
        for number in range(len(batch["span_starts"])):
            at = [k for k, own in enumerate(numbers) if own == number]
            ids, kinds = (batch[name].flatten()[positions[at]][None] for name in ("input_ids", "token_type_ids"))
            assert ids[0, 0] == CLS
            assert (ids == SEP).sum() >= 2
            start, end = (batch[name][number] - at[0] for name in ("span_starts", "span_ends"))
            with torch.no_grad():
                found = reader(ids, token_type_ids=kinds, start_positions=start[None], end_positions=end[None])
            loss += found.loss.item()
            correct += float(found.start_logits.argmax() == start and found.end_logits.argmax() == end)
            num_pairs += 1
        outputs = model(**batch)
        assert outputs["span_loss"].item() == pytest.approx(loss, rel=1e-6)
        assert outputs["span_correct"].item() == correct
    assert num_pairs > 200


def test_batches_without_pairs_have_no_span(news: Any) -> None:
    source = make_source(news, pair_rate=1e-9)
    batch = batch_of(source)
    assert len(batch["span_starts"]) == 0
    outputs = make_model(source)(**batch)
    assert outputs["span_loss"].item() == outputs["span_correct"].item() == 0
    assert outputs["mlm_loss"].item() > 0


@pytest.mark.slow
def test_an_encoder_learns_to_answer(numbered: Corpus, structure: Draw) -> None:
    """Better than any one place; on rows that it was not trained on: it compares and does not remember."""
    corpus = numbered([structure(1500, sentences=(2, 6), eojeol=(5, 7), pieces=(1, 1), seed=seed) for seed in (1, 2)])
    few = [replace(shard, ids=Ragged(10 + shard.ids.values % 47, shard.ids.offsets)) for shard in corpus.tokens.shards]
    tokens = Sharded.from_lengths(few, [len(shard.ids) for shard in few])
    layout = corpus.layout(LENGTH, isolate_documents=True, seed=0)
    layout = replace(layout, specials=replace(corpus.specials, vocab_size=57, ordinary=np.arange(10, 57)))
    objective = SpanSelection(SpanSelectionConfig(pair_rate=1.0, mask_rate=0.05, most_dropped=0.2), layout)
    source, unseen = (
        BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, 32)
        for rows in (objective.make_rows(tokens, k) for k in (0, 1))
    )
    model = make_model(source)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for step in range(800):
        batch = batch_of(source, step)
        (model(**batch)["span_loss"] / len(batch["span_starts"])).backward()
        optimizer.step()
        optimizer.zero_grad()
    correct, places = 0.0, []
    for step in range(4):
        batch = batch_of(unseen, step)
        with torch.no_grad():
            correct += float(model(**batch)["span_correct"])
        numbers = batch["pair_numbers"]
        firsts = torch.searchsorted(numbers, torch.arange(len(batch["span_starts"])))
        places += list(
            zip((batch["span_starts"] - firsts).tolist(), (batch["span_ends"] - firsts).tolist(), strict=True)
        )
    accuracy, majority = correct / len(places), Counter(places).most_common(1)[0][1] / len(places)
    assert accuracy > majority + 0.15, (accuracy, majority)


# ---- what comes out ----


def test_encoder_and_reader_are_plain_folders(news: Any, tmp_path: Path) -> None:
    source = make_source(news)
    model = make_model(source)
    state = {name: p.detach() for name, p in model.named_parameters()}
    exported = model.export(state)
    exported.save_pretrained(tmp_path)
    _, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    model.variants(exported, state)["reader"].save_pretrained(tmp_path / "reader")
    _, info = BertForQuestionAnswering.from_pretrained(tmp_path / "reader", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def test_a_continued_run_keeps_the_head(news: Any) -> None:
    source = make_source(news)
    model, other = make_model(source, seed=1), make_model(source, seed=2)
    state = {name: p.detach() for name, p in model.named_parameters()}
    assert other.load(dict(model.export(state).state_dict()) | model.objective_parts(state)) == []
    batch = batch_of(source)
    with torch.no_grad():
        assert {k: v.item() for k, v in other(**batch).items()} == {k: v.item() for k, v in model(**batch).items()}
