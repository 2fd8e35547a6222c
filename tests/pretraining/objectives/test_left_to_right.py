"""Left to right: what is predicted, that nothing is seen of it, and that the saved model is transformers' own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, BertConfig, BertLMHeadModel

from pretraining.data.shards import Sharded
from pretraining.objective import ObjectiveConfig
from pretraining.objectives.left_to_right import LeftToRight, LeftToRightModel
from pretraining.training.batches import BatchSource

Corpus = Callable[[list[Any]], Any]
Draw = Callable[..., Any]

CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def news(numbered: Corpus, structure: Draw) -> Any:
    return numbered([structure(60, seed=1)])


def make_source(corpus: Any, *, isolate: bool = True) -> BatchSource:
    objective = LeftToRight(ObjectiveConfig(), corpus.layout(48, isolate_documents=isolate, seed=0))
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, 8)


def make_model(source: BatchSource, attention: str = "eager") -> LeftToRightModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=source.objective.layout.specials.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=48,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
    )
    model = source.objective.build_model(config)
    assert isinstance(model, LeftToRightModel)
    model.network.set_attn_implementation(attention)
    return model.eval()


def batch_of(source: BatchSource) -> dict[str, torch.Tensor]:
    return source.micro_batches(0, process=0, num_processes=1, size=source.batch_size)[0]


def hidden_of(model: LeftToRightModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    names = ("input_ids", "token_type_ids", "position_ids", "sequence_ids")
    with torch.no_grad():
        return model.encode(*(batch[name] for name in names))


def test_every_token_but_the_first_of_a_sequence_is_predicted_and_nothing_is_masked(news: Any) -> None:
    batch = batch_of(make_source(news))
    ids, sequences = batch["input_ids"].flatten(), batch["sequence_ids"].flatten()
    assert batch["masked_positions"].tolist() == [k for k in range(len(ids)) if sequences[k] and ids[k] != CLS]
    assert torch.equal(ids[batch["masked_positions"]], batch["masked_ids"])
    assert (batch["masked_ids"] == SEP).sum() == (ids == CLS).sum()
    # The state that tells a token is of the same sequence.
    assert torch.equal(sequences[batch["masked_positions"]], sequences[batch["masked_positions"] - 1])


def test_the_loss_is_that_of_transformers(news: Any) -> None:
    source = make_source(news, isolate=False)
    model = make_model(source)
    network: Any = model.export(dict(model.named_parameters())).eval()
    assert isinstance(network, BertLMHeadModel)
    for step in range(200):
        (batch, *_) = source.micro_batches(step, process=0, num_processes=1, size=1)
        mask = (batch["sequence_ids"] > 0).long()
        labels = batch["input_ids"].masked_fill(mask == 0, -100)
        with torch.no_grad():
            expected = network(
                input_ids=batch["input_ids"], token_type_ids=batch["token_type_ids"], attention_mask=mask, labels=labels
            )
            ours = model(**batch)
        assert float(ours["clm_loss"]) / len(batch["masked_positions"]) == pytest.approx(
            float(expected.loss), abs=1e-6, rel=1e-6
        )
        guesses = expected.logits[:, :-1].argmax(-1)
        right = (guesses == labels[:, 1:]) & (labels[:, 1:] >= 0)
        assert int(ours["clm_correct"]) == int(right.sum())


def test_a_later_token_changes_nothing_before_it(news: Any, subtests: pytest.Subtests) -> None:
    for attention in ["eager", "sdpa"]:
        with subtests.test(attention=attention):
            source = make_source(news, isolate=False)
            model, batch = make_model(source, attention), batch_of(source)
            before = hidden_of(model, batch)
            position = 9
            changed = batch["input_ids"].index_fill(1, torch.tensor([position]), 11)
            after = hidden_of(model, batch | {"input_ids": changed})
            torch.testing.assert_close(after[:, :position], before[:, :position], rtol=0, atol=0)
            assert ((after - before)[:, position:].abs().amax(-1) > 1e-4)[:, 0].all()
            assert ((after - before)[0, position + 1 :].abs().amax(-1) > 1e-6).any()


def test_a_packed_sequence_is_what_it_is_alone(news: Any, subtests: pytest.Subtests) -> None:
    for attention in ["eager", "sdpa"]:
        with subtests.test(attention=attention):
            source = make_source(news)
            model, batch = make_model(source, attention), batch_of(source)
            assert int(batch["sequence_ids"].max()) > 1
            packed = hidden_of(model, batch)
            for row in range(len(packed)):
                for number in range(1, int(batch["sequence_ids"][row].max()) + 1):
                    positions = np.flatnonzero((batch["sequence_ids"][row] == number).numpy())
                    names = ("input_ids", "token_type_ids", "position_ids", "sequence_ids")
                    alone = hidden_of(model, {name: batch[name][row : row + 1, positions] for name in names})
                    torch.testing.assert_close(packed[row, positions], alone[0], rtol=0, atol=1e-5)


def test_the_saved_folder_is_causal_for_whoever_loads_it(news: Any, tmp_path: Path) -> None:
    source = make_source(news, isolate=False)
    model, batch = make_model(source), batch_of(source)
    model.export(dict(model.named_parameters())).save_pretrained(tmp_path)
    inputs = {"input_ids": batch["input_ids"], "attention_mask": (batch["sequence_ids"] > 0).long()}
    encoder, language_model = AutoModel.from_pretrained(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path)
    assert encoder.config.is_decoder
    assert encoder.config.vocab_size == source.objective.layout.specials.vocab_size
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        torch.testing.assert_close(
            encoder(**inputs).last_hidden_state[real], hidden_of(model, batch)[real], rtol=0, atol=1e-5
        )
        changed = inputs | {"input_ids": inputs["input_ids"].index_fill(1, torch.tensor([9]), 11)}
        torch.testing.assert_close(
            language_model(**changed).logits[:, :9], language_model(**inputs).logits[:, :9], rtol=0, atol=0
        )


def test_its_rows_are_those_of_dynamic_masks(news: Any) -> None:
    from pretraining.objectives.dynamic_mlm import DynamicMlm

    layout = news.layout(48)
    ours, theirs = (kind(ObjectiveConfig(), layout) for kind in (LeftToRight, DynamicMlm))
    assert ours.row_settings == theirs.row_settings
    assert np.array_equal(ours.make_rows(news.tokens, 0).ids.values, theirs.make_rows(news.tokens, 0).ids.values)
