"""Adaptive masks: how difficulties are counted, what they do to the masks, and that a killed run does not lose them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from pretraining.data.difficulty import FLOOR, OBSERVED, TokenDifficulties
from pretraining.data.rows import SPECIAL, WORD_INSIDE, WORD_START
from pretraining.data.shards import Sharded
from pretraining.objective import rate_at
from pretraining.objectives.adaptive_mlm import AdaptiveMlm, weighted, word_means
from pretraining.objectives.dynamic_mlm import DynamicMlm
from pretraining.recipe import ModelConfig, check_recipe
from pretraining.training.accelerator import make_accelerator
from pretraining.training.batches import BatchSource
from pretraining.training.loop import Trainer
from pretraining.training.metrics import read_metrics
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

LENGTH = 48
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": LENGTH}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def news(numbered: Callable[..., Any], structure: Callable[..., Any]) -> Any:
    return numbered([structure(80, seed=1)])


def make_source(corpus: Any, kind: type[DynamicMlm] = AdaptiveMlm, batch_size: int = 8, **settings: Any) -> BatchSource:
    objective = kind(kind.settings(**settings), corpus.layout(LENGTH))
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, batch_size, num_steps=100)


def make_model(source: BatchSource) -> Any:
    torch.manual_seed(1)
    shape = ModelConfig(**SIZE, **STILL)
    made = source.objective.build_model(shape.network_config(source.objective.layout.specials.vocab_size, 0))
    made.use_attention(torch.device("cpu"))
    return made


# --- difficulties ---------------------------------------------------------------------------------------------------


def test_a_difficulty_is_the_running_share_of_wrong_predictions() -> None:
    kept = TokenDifficulties(4, update_every=2)
    assert kept.values.tolist() == [1, 1, 1, 1]
    kept.observe(torch.tensor([[3, 1, 0, 90], [1, 1, 0, 0]]))
    kept.update(1)
    assert kept.values.tolist() == [1, 1, 1, 1]
    kept.observe(torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0]]))
    kept.update(2)
    first = [0.2 + 0.8 * 1.5 / 5, 0.2 + 0.8 * 1.5 / 2, 1, 0.2 + 0.8 * 0.5 / 91]
    assert kept.values == pytest.approx(first)
    # The next shares are those of the predictions since.
    kept.observe(torch.tensor([[1, 0, 0, 90], [0, 0, 0, 0]]))
    kept.update(4)
    assert kept.values == pytest.approx([0.2 * first[0] + 0.8 * 0.5 / 2, first[1], 1, 0.2 * first[3] + 0.8 * 0.5 / 91])
    for step in range(6, 12, 2):
        kept.observe(torch.tensor([[1, 0, 0, 900], [0, 0, 0, 0]]))
        kept.update(step)
    assert kept.weights is not None
    assert kept.weights[3] == FLOOR > kept.values[3]
    fixed = TokenDifficulties(4, update_every=None)
    assert fixed.weights is None
    assert not fixed.is_due(0)
    assert fixed.entries() == {}


def test_a_model_in_training_counts_its_predictions_for_any_number_of_processes(news: Any) -> None:
    source = make_source(news)
    model = make_model(source)
    for step in range(5):
        whole = source.micro_batches(step, process=0, num_processes=1, size=8)[0]
        counts = model(**whole)[OBSERVED]
        transform, bias = model.architecture.head(model.network)
        names = ("input_ids", "token_type_ids", "position_ids", "sequence_ids")
        states = transform(model.encode(*(whole[name] for name in names)).flatten(0, 1)[whole["masked_positions"]])
        scores = states @ model.network.get_input_embeddings().weight.T + bias
        wrong = scores[:, : model.vocab_size].argmax(-1) != whole["masked_ids"]
        for label in range(model.vocab_size):
            is_label = whole["masked_ids"] == label
            assert counts[:, label].tolist() == [int(is_label.sum()), int(wrong[is_label].sum())]
        parts = [source.micro_batches(step, process=k, num_processes=4, size=1) for k in range(4)]
        assert torch.equal(sum(model(**batch)[OBSERVED] for part in parts for batch in part), counts)
    assert OBSERVED not in model.eval()(**whole)


def test_the_loss_is_that_of_transformers(news: Any) -> None:
    source = make_source(news, batch_size=1)
    own = make_model(source).eval()
    stock: Any = own.export({name: p.detach() for name, p in own.named_parameters()}).eval()
    weights = np.random.default_rng(0).uniform(FLOOR, 1, source.objective.layout.specials.vocab_size)
    compared = 0
    for step in range(1000):
        (batch,) = source.micro_batches(step, process=0, num_processes=1, size=1, weights=weights)
        if int(batch["sequence_ids"].max()) > 1 or not len(batch["masked_ids"]):
            continue
        labels = torch.full_like(batch["input_ids"], -100).flatten()
        labels[batch["masked_positions"]] = batch["masked_ids"]
        with torch.no_grad():
            loss = stock(input_ids=batch["input_ids"], labels=labels.view_as(batch["input_ids"])).loss
            mine = own(**batch)["mlm_loss"] / len(batch["masked_ids"])
        assert mine.item() == pytest.approx(loss.item(), rel=1e-6)
        compared += 1
        if compared == 200:
            break
    assert compared == 200


# --- masks ----------------------------------------------------------------------------------------------------------


def test_the_first_of_a_weighted_draw_has_the_share_of_its_weight() -> None:
    rng = np.random.default_rng(3)
    weights = np.array([1.0, 0.5, 0.25, FLOOR])
    draws = rng.random((40_000, 4))
    numbers = weighted(draws, np.broadcast_to(weights, draws.shape))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    first = np.bincount(numbers.argmin(axis=1), minlength=4)
    assert stats.chisquare(first, len(draws) * weights / weights.sum()).pvalue > 1e-4
    # The second, after 0 is gone.
    second = np.bincount(numbers.argsort(axis=1)[numbers.argmin(axis=1) == 0][:, 1], minlength=4)[1:]
    assert stats.chisquare(second, second.sum() * weights[1:] / weights[1:].sum()).pvalue > 1e-4
    assert np.array_equal(weighted(draws, np.full(draws.shape, 0.3)).argsort(), draws.argsort())


def test_an_eojeol_has_the_mean_weight_of_its_tokens() -> None:
    kinds = np.array(
        [
            [SPECIAL, WORD_START, WORD_INSIDE, WORD_START, SPECIAL, WORD_INSIDE, WORD_INSIDE],
            [WORD_INSIDE, WORD_START, SPECIAL, SPECIAL, WORD_START, WORD_INSIDE, WORD_INSIDE],
        ]
    )
    weights = np.array([[9.0, 1, 3, 5, 9, 2, 4], [7.0, 1, 9, 9, 1, 2, 6]])
    means = word_means(weights, kinds)
    assert means.tolist() == [[9, 2, 2, 5, 9, 3, 3], [7, 1, 9, 9, 3, 3, 3]]


def test_difficult_tokens_are_masked_more_often_and_the_rate_stays(news: Any, subtests: pytest.Subtests) -> None:
    eojeol = np.searchsorted(news.eojeol_starts, np.arange(news.specials.vocab_size), side="right")
    weights = np.where(eojeol % 2, 1.0, 0.25)
    for whole_word in (False, True):
        with subtests.test(whole_word=whole_word):
            source = make_source(news, batch_size=64, mask_rate="0.4->0.15", whole_word=whole_word)
            plain = make_source(news, DynamicMlm, batch_size=64, mask_rate="0.4->0.15", whole_word=whole_word)
            for step in (0, 50, 99):
                chosen, uniform = (
                    source.micro_batches(step, process=0, num_processes=1, size=64, weights=w)[0]
                    for w in (weights, None)
                )
                same = plain.micro_batches(step, process=0, num_processes=1, size=64)[0]
                assert all(torch.equal(uniform[name], same[name]) for name in same)
                num_tokens = int((chosen["input_ids"] >= 10).sum() + (chosen["input_ids"] == news.specials.mask).sum())
                share = len(chosen["masked_ids"]) / num_tokens
                assert share == pytest.approx(rate_at("0.4->0.15", step / 99), abs=0.02)
                odd, odd_before = (weights[batch["masked_ids"].numpy()].round().mean() for batch in (chosen, uniform))
                # Without replacement, so below the 4 : 1 of the weights.
                assert odd_before == pytest.approx(0.5, abs=0.05)
                assert odd > (0.6 if whole_word else 0.65)


# --- runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def make_run(corpus: Path, small_vocabulary: Path, tmp_path: Path) -> Callable[..., Run]:
    def make(out: str, loop: Mapping[str, Any]) -> Run:
        recipe = check_recipe(
            {
                "objective": {"name": "adaptive_mlm", "mask_rate": "0.40->0.15", "update_every": 3},
                "model": SIZE,
                "data": {"corpus": str(corpus), "tokenizer": str(small_vocabulary), "max_length": LENGTH},
                "loop": {"batch_size": 16, "peak_lr": 5e-3, "warmup_steps": 5, "precision": "fp32"} | dict(loop),
            },
            "recipe",
        )
        (tmp_path / out).mkdir(exist_ok=True)
        return Run(recipe, tmp_path / out, cache=tmp_path / "cache", cpu=True)

    return make


class KilledError(Exception):
    """Stands for a kill."""


def test_a_killed_run_keeps_its_difficulties(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    loop = {"steps": 9, "checkpoint_every": 1, "log_every": 1, "warmup_steps": 2, "keep_checkpoints": 1}

    def trainer_of(out: str) -> Trainer:
        run = make_run(out, loop)
        return run.make_trainer(make_accelerator(run.recipe.loop, cpu=True))

    whole = trainer_of("whole")
    whole.train()
    parameters, entries = whole.state.tensors()
    assert len(set(whole.difficulties.values.tolist())) > 20
    original = Trainer._after_step
    for last in (2, 3, 4):  # before, at and after an update
        with subtests.test(killed_after=last):
            with monkeypatch.context() as patch:

                def after_step(trainer: Trainer, bar: Any, last: int = last) -> None:
                    original(trainer, bar)
                    if trainer.progress.step == last:
                        raise KilledError

                patch.setattr(Trainer, "_after_step", after_step)
                with pytest.raises(KilledError):
                    trainer_of(f"killed-{last}").train()
            resumed = trainer_of(f"killed-{last}")
            resumed.train()
            own_parameters, own_entries = resumed.state.tensors()
            assert own_entries.keys() == entries.keys()
            assert all(torch.equal(own_entries[name], entries[name]) for name in entries)
            assert all(torch.equal(own_parameters[name], parameters[name]) for name in parameters)


def test_it_learns_and_the_tokens_it_knows_become_rarer(make_run: Callable[..., Run]) -> None:
    run = make_run("out", {"steps": 40, "log_every": 5, "optimizer": "muon"})
    run.train()
    lines = [line for line in read_metrics(run.out / "metrics.jsonl") if "lr" in line]
    assert lines[-1]["mlm_loss"] < lines[0]["mlm_loss"] - 0.3
