"""BART: every corruption by itself, the loss of transformers' own class, and a folder that generates."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BartForConditionalGeneration

from corpora.foundation.errors import RecipeError
from pretraining.data.rows import SENTENCE_START, WORD_INSIDE, WORD_START
from pretraining.data.shards import Sharded
from pretraining.objectives.bart import Bart, infilled, span_lengths
from pretraining.recipe import LoopConfig, ModelConfig, check_recipe
from pretraining.training.batches import BatchSource, collate
from pretraining.training.metrics import read_metrics
from pretraining.training.optimizers import EMBEDDING, make_optimizers
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

LENGTH = 48
CLS, SEP, MASK = 2, 3, 4
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": LENGTH}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NOTHING: dict[str, Any] = {"infilling_rate": 0.0, "permute_sentences": False}


@pytest.fixture(scope="module")
def news(numbered: Callable[..., Any], structure: Callable[..., Any]) -> Any:
    return numbered([structure(200, seed=1)])


def make_source(corpus: Any, size: int = 16, **settings: Any) -> BatchSource:
    objective = Bart(Bart.settings(**settings), corpus.layout(LENGTH))
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, size)


def pairs(source: BatchSource, epochs: int = 1) -> list[tuple[list[int], list[int]]]:
    """Return the corrupted text and the original of every row, without their special tokens."""
    found = []
    for epoch in range(epochs):
        rows = np.arange(len(source.corpus))
        batch = source.tensors(rows, np.full(len(rows), epoch))
        targets = torch.zeros_like(batch["decoder_input_ids"]).flatten()
        targets[batch["masked_positions"]] = batch["masked_ids"]
        for ids, numbers, begun, target in zip(
            batch["input_ids"],
            batch["sequence_ids"],
            batch["decoder_input_ids"],
            targets.view_as(batch["decoder_input_ids"]),
            strict=True,
        ):
            text, written = ids[numbers > 0].tolist(), target[target > 0].tolist()
            assert (text[0], text[-1], written[-1]) == (CLS, SEP, SEP)
            assert begun[: len(written)].tolist() == [CLS, *written[:-1]]
            assert len(text) <= LENGTH
            found.append((text[1:-1], written[:-1]))
    return found


def test_rows_are_segments_of_one_document_that_know_where_sentences_start(news: Any) -> None:
    source = make_source(news)
    (shard,) = source.corpus.shards
    assert (shard.lengths.lengths == 1).all()
    seen: list[int] = []
    for row in range(len(shard)):
        ids, kinds = (v[row][1:-1] for v in (shard.ids, shard.columns()["kinds"]))
        assert news.document_of(int(ids[0])) == news.document_of(int(ids[-1]))
        for piece, kind in zip(ids.tolist(), kinds.tolist(), strict=True):
            expected = WORD_START if piece in news.eojeol_starts else WORD_INSIDE
            assert kind == (SENTENCE_START if piece in news.sentence_starts else expected)
        seen += ids.tolist()
    assert sorted(seen) == news.tokens.shards[0].ids.values.tolist()


def test_each_corruption_by_itself(news: Any, subtests: pytest.Subtests) -> None:
    with subtests.test("none"):
        assert all(text == original for text, original in pairs(make_source(news, **NOTHING)))
    with subtests.test("masking"):
        found = pairs(make_source(news, **NOTHING | {"mask_rate": 0.25}))
        assert all(t in (MASK, o) for text, original in found for t, o in zip(text, original, strict=True))
        assert share(found, lambda text, _: text.count(MASK)) == pytest.approx(0.25, abs=0.02)
    with subtests.test("deletion"):
        found = pairs(make_source(news, **NOTHING | {"deletion_rate": 0.25}))
        for text, original in found:
            left = set(text)
            assert text == [piece for piece in original if piece in left]
        assert share(found, lambda text, original: len(original) - len(text)) == pytest.approx(0.25, abs=0.02)
    with subtests.test("permutation"):
        found = pairs(make_source(news, **NOTHING | {"permute_sentences": True}))
        changed = 0
        for text, original in found:
            assert sorted(text) == original
            ends = {news.sentence_of(piece).stop for piece in original}
            assert all(b == a + 1 or a + 1 in ends or a == original[-1] for a, b in itertools.pairwise(text))
            changed += text != original
        assert changed > 50
    with subtests.test("rotation"):
        found = pairs(make_source(news, **NOTHING | {"rotation_rate": 1.0}), epochs=3)
        for text, original in found:
            middle = original.index(text[0])
            assert text == original[middle:] + original[:middle]
        shares = [original.index(text[0]) / len(original) for text, original in found if len(original) > 20]
        assert 0.4 < np.mean(shares) < 0.6
    with subtests.test("whole eojeol"):
        found = pairs(make_source(news, **NOTHING | {"deletion_rate": 0.25, "whole_word": True}))
        for text, original in found:
            left = set(text)
            assert all(len({p in left for p in news.eojeol_of(piece) if p in original}) == 1 for piece in original)


def share(found: list[tuple[list[int], list[int]]], count: Callable[[list[int], list[int]], int]) -> float:
    return sum(count(text, original) for text, original in found) / sum(len(original) for _, original in found)


def test_infilling_replaces_spans_of_poisson_lengths_by_one_mask_each(news: Any) -> None:
    found = pairs(make_source(news, permute_sentences=False), epochs=3)
    lost = 0
    for text, original in found:
        kept = [piece for piece in text if piece != MASK]
        left = set(kept)
        assert kept == [piece for piece in original if piece in left]
        lost += len(original) - len(kept)
    assert lost / sum(len(original) for _, original in found) == pytest.approx(0.3, abs=0.01)
    # Without the last span, which is shortened.
    rng = np.random.default_rng(0)
    lengths = [length for _ in range(200) for length in span_lengths(300, 3.0, rng)[:-1]]
    observed = np.bincount(lengths, minlength=9)[:9]
    expected = stats.poisson(3.0).pmf(np.arange(9))
    assert stats.chisquare(observed, expected / expected.sum() * observed.sum()).pvalue > 1e-4
    # A span of length 0 inserts a mask, anywhere, unless the text would grow.
    units = [np.array([k]) for k in range(10)]
    places = set()
    for _ in range(300):
        text = infilled(units, [3, 0], np.array([99]), rng).tolist()
        assert (len(text), text.count(99)) == (9, 2)
        places.add(text.index(99))
    assert places >= set(range(8))
    assert infilled(units, [1, 0, 0], np.array([99]), rng).tolist().count(99) == 1


def test_a_row_is_corrupted_by_seed_epoch_and_number_alone(news: Any) -> None:
    source = make_source(news)
    rows, epochs = np.arange(20), np.arange(20) % 3
    whole = collate(source.corpus, rows, epochs, 0)
    together = source.objective.mask(whole)
    for row in range(20):
        alone = source.objective.mask(collate(source.corpus, rows[row : row + 1], epochs[row : row + 1], 0))
        size = alone.input_ids.shape[1]
        assert (alone.input_ids[0] == together.input_ids[row][:size]).all()
    other = source.objective.mask(replace(whole, epochs=epochs + 3))
    assert other.input_ids.shape != together.input_ids.shape or (other.input_ids != together.input_ids).any()
    seeded = Bart(Bart.settings(), replace(source.objective.layout, seed=1)).mask(whole)
    assert seeded.input_ids.shape != together.input_ids.shape or (seeded.input_ids != together.input_ids).any()
    with pytest.raises(ValueError, match="mask_rate"):
        Bart.settings(mask_rate=1.0)


@pytest.fixture(scope="module")
def model(news: Any) -> Any:
    torch.manual_seed(2)
    shape = ModelConfig(architecture="bart", **SIZE, **STILL)
    source = make_source(news)
    made = source.objective.build_model(shape.network_config(source.objective.layout.specials.vocab_size, 0))
    made.use_attention(torch.device("cpu"))
    return made.eval()


def test_the_loss_is_that_of_transformers(news: Any, model: Any) -> None:
    stock: Any = model.export({name: p.detach() for name, p in model.named_parameters()}).eval()
    assert isinstance(stock, BartForConditionalGeneration)
    source = make_source(news, size=3)
    for step in range(200):
        (batch,) = source.micro_batches(step, process=0, num_processes=1, size=3)
        labels = torch.full_like(batch["decoder_input_ids"], -100).flatten()
        labels[batch["masked_positions"]] = batch["masked_ids"]
        with torch.no_grad():
            loss = stock(
                input_ids=batch["input_ids"],
                attention_mask=(batch["sequence_ids"] > 0).long(),
                labels=labels.view_as(batch["decoder_input_ids"]),
            ).loss
            own = model(**batch)["denoising_loss"] / len(batch["masked_ids"])
        assert own.item() == pytest.approx(loss.item(), abs=1e-6, rel=1e-6)


def test_later_tokens_and_padding_change_nothing(news: Any, model: Any) -> None:
    source = make_source(news, size=4)
    for step in range(20):
        (batch,) = source.micro_batches(step, process=0, num_processes=1, size=4)
        before = model.decode(batch["input_ids"], batch["sequence_ids"], batch["decoder_input_ids"])
        middle = batch["decoder_input_ids"].shape[1] // 2
        changed = batch["decoder_input_ids"].clone()
        changed[:, middle:] = 20
        after = model.decode(batch["input_ids"], batch["sequence_ids"], changed)
        assert torch.equal(before[:, :middle], after[:, :middle])
        assert not torch.equal(before[:, middle:], after[:, middle:])
        padded = torch.where(batch["sequence_ids"] == 0, 20, batch["input_ids"])
        assert torch.equal(model.decode(padded, batch["sequence_ids"], batch["decoder_input_ids"]), before)


def test_muon_takes_no_embedding(model: Any) -> None:
    names = {id(p): name for name, p in model.named_parameters()}
    muon, adamw = make_optimizers(model, LoopConfig(optimizer="muon"))
    taken, left = ([names[id(p)] for group in o.param_groups for p in group["params"]] for o in (muon, adamw))
    assert sorted(taken + left) == sorted(names.values())
    assert {name for name in left if name.endswith("weight") and "norm" not in name} == {
        "network.model.shared.weight",
        "network.model.encoder.embed_positions.weight",
        "network.model.decoder.embed_positions.weight",
    }
    assert len(taken) == 2 * (4 + 2) + 2 * (8 + 2)
    assert not any(EMBEDDING.search(name) for name in taken)


def test_a_trained_folder_generates_in_plain_transformers(
    corpus: Path, small_vocabulary: Path, tmp_path: Path, fails: Callable[..., Any]
) -> None:
    values: dict[str, Any] = {
        "objective": "bart",
        "model": {**SIZE, "architecture": "bart"},
        "data": {"corpus": str(corpus), "tokenizer": str(small_vocabulary), "max_length": 40},
        "loop": {"steps": 30, "batch_size": 16, "peak_lr": 5e-3, "warmup_steps": 5, "precision": "fp32"}
        | {"log_every": 5, "optimizer": "muon"},
    }
    out = tmp_path / "bart"
    out.mkdir()
    run = Run(check_recipe(values, "recipe"), out, cache=tmp_path / "cache", cpu=True)
    run.train()
    losses = [line["denoising_loss"] for line in read_metrics(out / "metrics.jsonl") if "lr" in line]
    assert losses[-1] < losses[0] - 0.3
    network, report = AutoModelForSeq2SeqLM.from_pretrained(out, output_loading_info=True)
    assert isinstance(network, BartForConditionalGeneration)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(out)
    texts = tokenizer(["시의회가 [MASK] 확정했다.", "시장은"], return_tensors="pt", padding=True)
    torch.manual_seed(0)
    made = network.generate(**texts, do_sample=True, num_return_sequences=10, max_new_tokens=20)
    assert (made[:, 0] == tokenizer.cls_token_id).all()
    ends = (made == tokenizer.sep_token_id).int()
    behind = ends.cumsum(dim=1) - ends > 0
    assert (made[behind] == tokenizer.pad_token_id).all()
    assert len(set(tokenizer.batch_decode(made))) > 10
    # Another phase begins with the weights of this one, with more positions.
    more = values | {"model": values["model"] | {"init": str(out)}, "data": values["data"] | {"max_length": 48}}
    again = Run(check_recipe(more, "recipe"), tmp_path / "again", cache=tmp_path / "cache", cpu=True).build_model()
    saved = network.state_dict()
    for name, parameter in again.named_parameters():
        given = saved[name.removeprefix("network.")]
        assert torch.equal(parameter[: len(given)], given[: len(parameter)]), name
    with fails(RecipeError, "recipe", "isolate_documents=false"):
        check_recipe(values | {"data": values["data"] | {"isolate_documents": False}}, "recipe")
