"""XLNet: spans and orders, what a token sees, the loss of transformers' own class, and text from the saved folder."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from transformers import AutoTokenizer, XLNetLMHeadModel

from corpora.foundation.errors import CheckpointError, RecipeError
from pretraining.data.rows import SPECIAL, WORD_START
from pretraining.data.shards import Sharded
from pretraining.evaluate import evaluate_mlm
from pretraining.objectives.xlnet import Xlnet, choose_spans, predicted_places, random_order
from pretraining.recipe import LoopConfig, ModelConfig, check_recipe
from pretraining.training.accelerator import make_accelerator
from pretraining.training.batches import BatchSource
from pretraining.training.loop import Trainer
from pretraining.training.metrics import read_metrics
from pretraining.training.optimizers import make_optimizers
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

LENGTH = 48
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8, "max_position_embeddings": LENGTH}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def source(numbered: Callable[..., Any], structure: Callable[..., Any]) -> BatchSource:
    corpus = numbered([structure(80, sentences=(3, 8), seed=1)])
    objective = Xlnet(Xlnet.settings(), corpus.layout(LENGTH))
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, 4)


@pytest.fixture(scope="module")
def model(source: BatchSource) -> Any:
    torch.manual_seed(2)
    shape = ModelConfig(architecture="xlnet", **SIZE, **STILL)
    made = source.objective.build_model(shape.network_config(source.objective.layout.specials.vocab_size, 0))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    made.use_attention(torch.device("cpu"))
    return made.eval()


def batch_of(source: BatchSource, step: int) -> dict[str, Tensor]:
    return source.micro_batches(step, process=0, num_processes=1, size=source.batch_size)[0]


# --- spans and orders -----------------------------------------------------------------------------------------------


def test_spans_have_every_length_alike_and_one_sixth_of_the_tokens_is_predicted() -> None:
    rng = np.random.default_rng(5)
    kinds = np.full((300, 601), WORD_START, np.uint8)
    kinds[:, [0, 300, 600]] = SPECIAL
    draws = [rng.random(kinds.shape) for _ in range(4)]
    chosen = choose_spans(kinds, 1 / 6, draws, max_span=5)
    assert not chosen[kinds == SPECIAL].any()
    num_tokens = int((kinds != SPECIAL).sum())
    assert chosen.sum() / num_tokens == pytest.approx(1 / 6, abs=0.003)
    # The first context of each row: its span has a length from one to five, and lies anywhere in six times as many.
    lengths, places = Counter[int](), []
    for row in range(len(kinds)):
        span = 1 + int(draws[0][row, 1] * 5)
        inside = np.flatnonzero(chosen[row, 1 : 1 + 6 * span])
        assert inside.tolist() == list(range(inside[0], inside[0] + span))
        lengths[span] += 1
        places.append(inside[0] / (5 * span + 1))
    assert stats.chisquare([lengths[k] for k in range(1, 6)]).pvalue > 1e-4
    assert stats.kstest(places, "uniform").pvalue > 1e-6
    # Texts shorter than a context keep the share, too; so do rates that are no fraction of a whole number.
    short = np.full((4000, 9), WORD_START, np.uint8)
    short[:, [0, 8]] = SPECIAL
    for rate in (1 / 6, 0.22):
        some = choose_spans(short, rate, [rng.random(short.shape) for _ in range(4)], max_span=5)
        assert some.sum() / (7 * len(short)) == pytest.approx(rate, abs=0.01)


def test_the_order_of_predicted_tokens_is_random_and_the_others_come_first() -> None:
    rng = np.random.default_rng(6)
    chosen = np.zeros((6000, 5), np.bool_)
    chosen[:, [1, 2, 4]] = True
    order = random_order(chosen, rng.random(chosen.shape))
    assert (order[:, [0, 3]] == 0).all()
    seen = Counter(map(tuple, order[:, [1, 2, 4]].tolist()))
    assert set(seen) == {(1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)}
    assert stats.chisquare(list(seen.values())).pvalue > 1e-4
    rows, places = predicted_places(torch.tensor([1, 4, 11]), torch.Size((3, 5)))
    assert rows.tolist() == [0, 1, 4]
    assert places.tolist() == [[1, 4], [-1, -1], [1, -1]]
    assert predicted_places(torch.tensor([], dtype=torch.long), torch.Size((3, 5)))[1].tolist() == [[-1]] * 3


def test_an_epoch_has_its_own_spans_and_order(source: BatchSource) -> None:
    rows = np.arange(4)
    first, again, other = (source.tensors(rows, np.full(4, epoch)) for epoch in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["order"], other["order"])
    assert torch.equal(first["input_ids"], other["input_ids"])
    assert torch.equal(first["order"].flatten().nonzero()[:, 0], first["masked_positions"])
    assert torch.equal(first["input_ids"].flatten()[first["masked_positions"]], first["masked_ids"])


# --- what a token sees ----------------------------------------------------------------------------------------------


def predictions(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """Return the states that predict, (M, D)."""
    kept: list[Tensor] = []
    handle = model.network.transformer.register_forward_hook(lambda *a: kept.append(a[2].last_hidden_state))
    with torch.no_grad():
        model(**batch)
    handle.remove()
    rows, _ = predicted_places(batch["masked_positions"], batch["input_ids"].shape)
    return kept[0].flatten(0, 1)[rows]


def test_tokens_later_in_the_order_and_the_token_itself_change_nothing(source: BatchSource, model: Any) -> None:
    moved = Counter[str]()
    for step in range(20):
        batch = batch_of(source, step)
        before = predictions(model, batch)
        order = batch["order"].flatten()[batch["masked_positions"]]
        rows = batch["masked_positions"] // batch["input_ids"].shape[1]
        for limit in range(1, int(order.max()) + 1):
            changed = torch.where(batch["order"] >= limit, 20, batch["input_ids"])
            after = predictions(model, batch | {"input_ids": changed})
            assert torch.equal(after[order <= limit], before[order <= limit])
            moved["later"] += int((after[order > limit] != before[order > limit]).any(dim=1).sum())
            moved["all"] += int((order > limit).sum())
        # Another sequence of a row changes nothing, either.
        second = batch["sequence_ids"] == 2
        if second.any():
            of_second = second.flatten()[batch["masked_positions"]]
            changed = torch.where(batch["sequence_ids"] == 1, 20, batch["input_ids"])
            assert torch.equal(predictions(model, batch | {"input_ids": changed})[of_second], before[of_second])
        assert len(rows) == len(before)
    # Tokens earlier in the order are seen, where they are in the same sequence.
    assert moved["later"] > 0.3 * moved["all"]


def test_a_packed_sequence_is_what_it_is_alone(source: BatchSource, model: Any) -> None:
    compared = 0
    for step in range(10):
        batch = batch_of(source, step)
        packed, width = predictions(model, batch), batch["input_ids"].shape[1]
        for row, number in {(int(r), int(batch["sequence_ids"][r, c])) for r in range(4) for c in range(width)}:
            places = (batch["sequence_ids"][row] == number).nonzero()[:, 0] + row * width
            inside = torch.isin(batch["masked_positions"], places)
            if number == 0 or not inside.any():
                continue
            names = ("input_ids", "token_type_ids", "position_ids", "sequence_ids", "order")
            alone = {name: batch[name].flatten()[places][None] for name in names}
            alone["masked_positions"] = torch.searchsorted(places, batch["masked_positions"][inside])
            alone["masked_ids"] = batch["masked_ids"][inside]
            torch.testing.assert_close(predictions(model, alone), packed[inside], rtol=0, atol=1e-5)
            compared += 1
    assert compared > 40


def test_the_loss_is_that_of_transformers(source: BatchSource, model: Any) -> None:
    stock: Any = model.export({name: p.detach() for name, p in model.named_parameters()}, LENGTH).eval()
    assert isinstance(stock, XLNetLMHeadModel)
    for step in range(200):
        batch = batch_of(source, step)
        ids, order, sequences = (batch[name] for name in ("input_ids", "order", "sequence_ids"))
        length = ids.shape[1]
        # By the definition, pair by pair.
        hidden = torch.ones(len(ids), length, length)
        for row in range(len(ids)):
            seen = (order[row] == 0)[None, :] | (order[row][None, :] < order[row][:, None])
            hidden[row][seen & (sequences[row][None, :] == sequences[row][:, None])] = 0
        most = int((order > 0).sum(dim=1).max())
        targets, labels = torch.zeros(len(ids), most, length), torch.full((len(ids), most), -100)
        for row in range(len(ids)):
            for number, place in enumerate((order[row] > 0).nonzero()[:, 0].tolist()):
                targets[row, number, place] = 1
                labels[row, number] = ids[row, place]
        with torch.no_grad():
            loss = stock(input_ids=ids, perm_mask=hidden, target_mapping=targets, labels=labels).loss
            own = model(**batch)["plm_loss"] / len(batch["masked_ids"])
        assert own.item() == pytest.approx(loss.item(), rel=1e-6)


# --- training -------------------------------------------------------------------------------------------------------


def test_muon_takes_whole_matrices_and_biases_do_not_decay(model: Any) -> None:
    names = {id(p): name for name, p in model.named_parameters()}
    muon, adamw = make_optimizers(model, LoopConfig(optimizer="muon", weight_decay=0.125))
    taken = {names[id(p)].rpartition("layer.")[2] for group in muon.param_groups for p in group["params"]}
    parts = {*(f"rel_attn.{part}" for part in "qkvor"), "ff.layer_1.weight", "ff.layer_2.weight"}
    assert taken == {f"{layer}.{part}" for layer in range(2) for part in parts}
    decayed, others = ({names[id(p)] for p in group["params"]} for group in adamw.param_groups)
    tables = {"network.transformer.word_embedding.weight", "network.transformer.mask_emb"}
    assert decayed == tables | {f"network.transformer.layer.{k}.rel_attn.seg_embed" for k in range(2)}
    assert {name for name in others if "_bias" in name} == {
        f"network.transformer.layer.{k}.rel_attn.r_{part}_bias" for k in range(2) for part in "rsw"
    }
    # A matrix that is divided into heads is updated as the whole matrix: all of its singular values are near 1.
    parameter = next(p for name, p in model.named_parameters() if name.endswith("0.rel_attn.q"))
    before = parameter.detach().clone()
    left, right = (torch.linalg.qr(torch.randn(32, 32))[0] for _ in range(2))
    parameter.grad = (left * torch.linspace(0.3, 1, 32) @ right).view(32, 8, 4)
    for group in muon.param_groups:
        group["lr"] = 1.0
        group["weight_decay"] = 0.0
    muon.step()
    values = torch.linalg.svdvals((parameter.detach() - before).flatten(1)) / (0.2 * 32**0.5)
    assert 0.6 < values.min() < values.max() < 1.3
    parameter.data.copy_(before)
    parameter.grad = None


class KilledError(Exception):
    """Stands for a kill."""


def test_a_run_learns_resumes_and_generates_in_plain_transformers(
    corpus: Path, small_vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Callable[..., Any]
) -> None:
    values: dict[str, Any] = {
        "objective": "xlnet",
        "model": {**SIZE, "architecture": "xlnet"},
        "data": {"corpus": str(corpus), "tokenizer": str(small_vocabulary), "max_length": LENGTH},
        "loop": {"steps": 24, "batch_size": 16, "peak_lr": 8e-3, "warmup_steps": 4, "precision": "fp32"}
        | {"log_every": 6, "optimizer": "muon", "checkpoint_every": 7},
    }
    recipe = check_recipe(values, "recipe")
    whole, killed, again = (Run(recipe, tmp_path / name, cache=tmp_path / "cache", cpu=True) for name in "wka")
    for run in (whole, killed, again):
        run.out.mkdir()
    whole.train()
    original = Trainer._after_step

    def after_step(trainer: Trainer, bar: Any) -> None:
        original(trainer, bar)
        if trainer.progress.step == 9:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_after_step", after_step)
        with pytest.raises(KilledError):
            killed.make_trainer(make_accelerator(recipe.loop, cpu=True)).train()
    killed.train()
    assert (killed.out / "model.safetensors").read_bytes() == (whole.out / "model.safetensors").read_bytes()
    lines = [line for line in read_metrics(whole.out / "metrics.jsonl") if "lr" in line]
    assert lines[-1]["plm_loss"] < lines[0]["plm_loss"] - 0.3

    network, report = XLNetLMHeadModel.from_pretrained(whole.out, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(whole.out)
    assert tokenizer.model_max_length == LENGTH
    begun = tokenizer("시의회가", return_tensors="pt")["input_ids"][:, :-1]
    torch.manual_seed(0)
    made = network.generate(begun, do_sample=True, num_return_sequences=10, max_new_tokens=12)
    assert made.shape == (10, begun.shape[1] + 12)
    assert (made[:, : begun.shape[1]] == begun).all()
    assert len(set(tokenizer.batch_decode(made))) > 5
    with fails(CheckpointError, whole.out, "xlnet"):
        evaluate_mlm(whole.out, corpus)
    # Another phase starts from the weights.
    values["model"]["init"] = str(whole.out)
    second = Run(check_recipe(values, "recipe"), again.out, cache=tmp_path / "cache", cpu=True)
    assert second.num_positions == LENGTH
    saved = network.state_dict()
    for name, parameter in second.build_model().named_parameters():
        given = saved[name.removeprefix("network.")]
        assert torch.equal(parameter[: len(given)], given), name
    values["objective"] = {"name": "xlnet", "whole_word": True}
    with fails(RecipeError, "recipe", "whole_word"):
        check_recipe(values, "recipe")
