"""ELECTRA: replaced and judged tokens, the two networks, and that the exported encoder is plain."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import AutoModel, AutoModelForMaskedLM, BertConfig, ElectraForPreTraining

from pretraining.data.rows import SPECIAL
from pretraining.data.shards import Sharded
from pretraining.objectives.replaced_token import ReplacedToken, ReplacedTokenConfig, ReplacedTokenModel
from pretraining.training.batches import BatchSource

Corpus = Callable[[list[Any]], Any]
Draw = Callable[..., Any]

MASK = 4
TAIL = 1e-6


@pytest.fixture(scope="module")
def news(numbered: Corpus, structure: Draw) -> Any:
    return numbered([structure(80, seed=1)])


def make_source(corpus: Any, **settings: Any) -> BatchSource:
    objective = ReplacedToken(ReplacedTokenConfig(**settings), corpus.layout(48, isolate_documents=True, seed=0))
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, 8)


def make_model(source: BatchSource, *, seed: int = 0) -> ReplacedTokenModel:
    torch.manual_seed(seed)
    specials = source.objective.layout.specials
    config = BertConfig(
        vocab_size=specials.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=48,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = source.objective.build_model(config)
    assert isinstance(model, ReplacedTokenModel)
    model.use_attention(torch.device("cpu"))
    return model


def batch_of(source: BatchSource, step: int = 0) -> dict[str, torch.Tensor]:
    return source.micro_batches(step, process=0, num_processes=1, size=source.batch_size)[0]


def test_every_token_of_text_is_judged_or_masked_and_no_special_one(news: Any) -> None:
    source = make_source(news, mlm_rate=0.2)
    batch = batch_of(source)
    shards = [source.corpus.locate(int(row)) for row in source.rows(0)[0]]
    width = batch["input_ids"].shape[1]
    text = [
        place * width + position
        for place, (shard, row) in enumerate(shards)
        for position in np.flatnonzero(shard.columns()["kinds"][row] != SPECIAL)
    ]
    judged, masked, replaced = (
        set(batch[name].tolist()) for name in ("judged_positions", "masked_positions", "replaced_positions")
    )
    assert judged | masked == set(text)
    assert not judged & masked
    assert replaced < judged


def test_replaced_and_masked_tokens_have_the_configured_rates(news: Any, subtests: pytest.Subtests) -> None:
    for mask_rate, mlm_rate in [(0.15, 0.0), (0.1, 0.25)]:
        with subtests.test(mask_rate=mask_rate):
            source = make_source(news, mask_rate=mask_rate, mlm_rate=mlm_rate)
            counts = dict.fromkeys(("text", "replaced_positions", "masked_positions"), 0)
            for step in range(40):
                batch = batch_of(source, step)
                masked = len(batch.get("masked_positions", ()))
                counts["text"] += len(batch["judged_positions"]) + masked
                counts["replaced_positions"] += len(batch["replaced_positions"])
                counts["masked_positions"] += masked
            for name, rate in (("replaced_positions", mask_rate), ("masked_positions", mlm_rate)):
                low, high = stats.binom.ppf([TAIL, 1 - TAIL], counts["text"], rate)
                assert low <= counts[name] <= high


def test_inputs_and_labels_of_the_encoder_follow_from_the_samples_of_the_generator(
    news: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_source(news, mlm_rate=0.15)
    model, batch = make_model(source), batch_of(source)
    seen: dict[str, Any] = {}
    embed, encode, draw = model.network.bert.embeddings.forward, model.encode, model.vocabulary_loss

    def embeddings(input_ids: torch.Tensor, **others: Any) -> Any:
        seen.setdefault("generator", input_ids)
        return embed(input_ids=input_ids, **others)

    def watch(ids: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        seen["encoder"] = ids
        return encode(ids, *others)

    def watch_draws(*arguments: Any) -> Any:
        result = draw(*arguments)
        seen.setdefault("drawn", result[2])
        return result

    monkeypatch.setattr(model.network.bert.embeddings, "forward", embeddings)
    monkeypatch.setattr(model, "encode", watch)
    monkeypatch.setattr(model, "vocabulary_loss", watch_draws)
    outputs = model(**batch)

    places = batch["replaced_positions"]
    own = batch["input_ids"].flatten()
    assert (seen["generator"].flatten()[places] == MASK).all()
    assert torch.equal(seen["encoder"].flatten()[places], seen["drawn"])
    elsewhere = torch.ones_like(own, dtype=torch.bool)
    elsewhere[places] = False
    for name in ("generator", "encoder"):
        assert torch.equal(seen[name].flatten()[elsewhere], own[elsewhere])
    assert torch.equal(own[places], batch["replaced_ids"])

    changed = torch.zeros_like(own, dtype=torch.bool)
    changed[places] = seen["drawn"] != batch["replaced_ids"]
    assert changed.any()
    layout = [batch[name] for name in ("token_type_ids", "position_ids", "sequence_ids")]
    scores = model.judge(encode(seen["encoder"], *layout).flatten(0, 1)).squeeze(-1)[batch["judged_positions"]]
    labels = changed[batch["judged_positions"]]
    loss = torch.nn.functional.binary_cross_entropy(scores.double().sigmoid(), labels.double(), reduction="sum")
    assert outputs["rtd_loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert outputs["rtd_correct"].item() == ((scores > 0) == labels).sum().item()


def test_tokens_are_sampled_with_the_probabilities_of_the_generator() -> None:
    """Ten thousand samples from one distribution against its probabilities, by a chi-square test."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    model = ReplacedTokenModel(config, ReplacedTokenConfig(), mask_id=MASK)
    with torch.no_grad():
        model.network.bert.embeddings.word_embeddings.weight.normal_(std=0.5)
        states, labels = torch.randn(1, 8).expand(10_000, 8), torch.zeros(10_000, dtype=torch.int64)
        draws = torch.rand(10_000, dtype=torch.float64)
        _, _, drawn = model.vocabulary_loss(states, model.generator.bias, labels, draws)
        weight = model.network.bert.embeddings.word_embeddings.weight[:11]
        expected = torch.softmax((states[0] @ weight.t()).double(), -1) * len(draws)
    counts = np.bincount(drawn.numpy(), minlength=11)
    assert len(counts) == 11  # never one of the padding
    assert stats.chisquare(counts, expected.numpy()).pvalue > 1e-4
    assert expected.min() > 5
    order = torch.argsort(draws)
    assert (drawn[order].diff() >= 0).all()  # the same draw gives the same token on every machine


def test_extreme_draws_are_tokens_of_the_vocabulary() -> None:
    config = BertConfig(vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    model = ReplacedTokenModel(config, ReplacedTokenConfig(), mask_id=MASK)
    draws = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    labels = torch.zeros(2, dtype=torch.int64)
    drawn = model.vocabulary_loss(torch.randn(2, 8), model.generator.bias, labels, draws)[2]
    assert drawn.tolist() == [0, 6]


def test_the_encoder_learns_nothing_through_the_generators_draws(news: Any) -> None:
    source = make_source(news)
    model = make_model(source)
    outputs = model(**batch_of(source))
    outputs["rtd_loss"].backward()
    assert all(p.grad is None for p in model.generator.parameters())
    assert model.judge[0].weight.grad is not None


def test_embeddings_are_shared_and_learn_from_both(news: Any) -> None:
    source = make_source(news)
    words = []
    for name in ("generator_loss", "rtd_loss"):
        model = make_model(source)
        model(**batch_of(source))[name].backward()
        words.append(model.network.bert.embeddings.word_embeddings.weight.grad)
    assert all(gradient is not None and bool(gradient.any()) for gradient in words)


def test_the_generator_has_the_configured_width_and_depth(news: Any) -> None:
    model = make_model(make_source(news, generator_size=0.5, generator_layers=1))
    config = model.generator.config
    assert (config.hidden_size, config.num_attention_heads, config.intermediate_size) == (16, 2, 32)
    assert config.num_hidden_layers == len(model.generator.encoder.layer) == 1
    assert make_model(make_source(news)).generator.config.num_hidden_layers == 2


def test_the_terms_are_those_of_the_paper_and_one_more_where_the_encoder_predicts(news: Any) -> None:
    assert [(t.name, t.weight) for t in make_source(news).objective.terms] == [("rtd", 50.0), ("generator", 1.0)]
    names = [term.name for term in make_source(news, mlm_rate=0.1, rtd_weight=10).objective.terms]
    assert names == ["mlm", "rtd", "generator"]


def test_what_is_saved_is_a_plain_encoder_with_a_head_only_if_it_was_trained(
    news: Any, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, mlm_rate in enumerate([0.0, 0.1]):
        with subtests.test(mlm_rate=mlm_rate):
            folder = tmp_path / str(number)
            folder.mkdir()
            source = make_source(news, mlm_rate=mlm_rate)
            model = make_model(source)
            model.export({name: p.detach() for name, p in model.named_parameters()}).save_pretrained(folder)
            loaded, info = AutoModel.from_pretrained(folder, add_pooling_layer=False, output_loading_info=True)
            assert not info["missing_keys"]
            _, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
            assert bool(info["missing_keys"]) == (mlm_rate == 0)
            ids = torch.arange(5, 15)[None]
            positions, ones = torch.arange(10)[None], torch.ones(1, 10, dtype=torch.int64)
            ours = model.eval().encode(ids, torch.zeros_like(ids), positions, ones)
            torch.testing.assert_close(loaded.eval()(ids).last_hidden_state, ours, rtol=0, atol=1e-5)


def test_the_discriminator_is_one_of_transformers(news: Any, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for rate in (0.0, 0.1):
        source = make_source(news, mlm_rate=rate)
        model = make_model(source).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.05)  # biases, too
        state = dict(model.named_parameters())
        saved = model.variants(model.export(state), state)["discriminator"]
        saved.save_pretrained(tmp_path / str(rate))
        found, report = ElectraForPreTraining.from_pretrained(tmp_path / str(rate), output_loading_info=True)
        assert not any(report.values())
        ids = torch.arange(10, 30).view(2, 10)
        layout = (torch.zeros_like(ids), torch.arange(10).expand(2, 10), torch.ones_like(ids))
        with torch.no_grad(), subtests.test(rate=rate):
            expected = model.judge(model.encode(ids, *layout)).squeeze(-1)
            torch.testing.assert_close(found.eval()(ids).logits, expected, rtol=0, atol=1e-5)


def test_the_losses_are_those_of_transformers_classes(news: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder's is that of `ElectraForPreTraining` on what the generator made; of the masked-LM head, BERT's."""
    source = make_source(news, mlm_rate=0.15)
    model = make_model(source).eval()
    state = {name: p.detach() for name, p in model.named_parameters()}
    exported: Any = model.export(state)
    stock, masked_lm = model.variants(exported, state)["discriminator"].eval(), exported.eval()
    alone, shown, encode = BatchSource(source.corpus, source.objective, 1), [], model.encode

    def watch(ids: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        shown.append(ids)
        return encode(ids, *others)

    monkeypatch.setattr(model, "encode", watch)
    compared = 0
    for step in range(4000):
        (batch,) = alone.micro_batches(step, process=0, num_processes=1, size=1)
        if int(batch["sequence_ids"].max()) > 1 or not len(batch["masked_ids"]) or not len(batch["replaced_ids"]):
            continue
        with torch.no_grad():
            own = model(**batch)
            inputs = {"input_ids": shown[-1], "token_type_ids": batch["token_type_ids"]}
            scores = stock(**inputs).logits.flatten()[batch["judged_positions"]]
            is_replaced = (shown[-1] != batch["input_ids"]).flatten()[batch["judged_positions"]]
            expected = torch.nn.functional.binary_cross_entropy_with_logits(scores, is_replaced.float())
            labels = torch.full_like(batch["input_ids"], -100).flatten()
            labels[batch["masked_positions"]] = batch["masked_ids"]
            mlm = masked_lm(**inputs, labels=labels[None]).loss
        mean = own["rtd_loss"].item() / len(scores)
        assert mean == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)
        assert own["mlm_loss"].item() / len(batch["masked_ids"]) == pytest.approx(mlm.item(), rel=1e-6, abs=1e-6)
        compared += 1
        if compared == 200:
            break
    assert compared == 200


def test_a_continued_run_keeps_the_generator(news: Any) -> None:
    source = make_source(news, mlm_rate=0.1)
    model, other = make_model(source, seed=1), make_model(source, seed=2)
    state = {name: p.detach() for name, p in model.named_parameters()}
    weights = dict(model.export(state).state_dict()) | model.objective_parts(state)
    assert other.load(weights) == []
    batch = batch_of(source)
    with torch.no_grad():
        assert {k: v.item() for k, v in other(**batch).items()} == {k: v.item() for k, v in model(**batch).items()}
