"""T5: paired sentinels, the loss of transformers' own class, and a folder that generates."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, T5ForConditionalGeneration

from corpora.foundation.errors import RecipeError
from pretraining.data.shards import Sharded
from pretraining.objectives.t5 import T5, draw_spans
from pretraining.recipe import LoopConfig, ModelConfig, check_recipe
from pretraining.training.batches import BatchSource
from pretraining.training.metrics import read_metrics
from pretraining.training.optimizers import make_optimizers
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

LENGTH = 48
PAD, CLS, SEP = 0, 2, 3
SENTINELS = range(5, 10)
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": LENGTH}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def news(numbered: Callable[..., Any], structure: Callable[..., Any]) -> Any:
    return numbered([structure(200, seed=1)])


def make_source(corpus: Any, size: int = 16, **settings: Any) -> BatchSource:
    objective = T5(T5.settings(**settings), corpus.layout(LENGTH))
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, size)


def pairs(source: BatchSource, epochs: int = 1) -> list[tuple[list[int], list[int]]]:
    """Return text and target of every row, without `[CLS]` and `[SEP]`."""
    found = []
    for epoch in range(epochs):
        for row in range(len(source.corpus)):
            batch = source.tensors(np.array([row]), np.array([epoch]))
            text, target = batch["input_ids"][0].tolist(), batch["masked_ids"].tolist()
            assert (text[0], text[-1], target[-1]) == (CLS, SEP, SEP)
            assert batch["decoder_input_ids"][0].tolist() == [PAD, *target[:-1]]
            found.append((text[1:-1], target[:-1]))
    return found


def filled(text: list[int], target: list[int]) -> tuple[list[int], list[int]]:
    """Return the text with the target's spans in place of its sentinels, and the lengths of the spans."""
    begins = [k for k, token in enumerate(target) if token in SENTINELS]
    spans = {target[a]: target[a + 1 : b] for a, b in itertools.pairwise(begins)}
    whole = [t for token in text for t in (spans[token] if token in SENTINELS else [token])]
    return whole, [len(span) for span in spans.values()]


def test_text_and_target_together_are_the_original(news: Any, subtests: pytest.Subtests) -> None:
    for whole_word in (False, True):
        with subtests.test(whole_word=whole_word):
            lost = total = 0
            sizes: list[int] = []
            for text, target in pairs(make_source(news, whole_word=whole_word), epochs=2):
                own = [t for t in text if t in SENTINELS]
                # Each sentinel of the text once in the target, in the same order, and one more for the end.
                assert [t for t in target if t in SENTINELS] == [*own, SENTINELS[len(own)]]
                assert own == list(SENTINELS[: len(own)])
                assert target[-1] == SENTINELS[len(own)]
                assert not any(a in SENTINELS and b in SENTINELS for a, b in itertools.pairwise(text))
                original, lengths = filled(text, target)
                assert original == list(range(original[0], original[0] + len(original)))
                assert min(lengths) > 0
                if len(original) >= 20:
                    lost, total, sizes = lost + sum(lengths), total + len(original), sizes + lengths
                if whole_word:
                    left = set(text)
                    for piece in original:
                        word = [p for p in news.eojeol_of(piece) if p in original]
                        assert len({p in left for p in word}) == 1
            assert lost / total == pytest.approx(0.15, abs=0.015)
            if not whole_word:
                assert np.mean(sizes) == pytest.approx(3.0, abs=0.4)


def test_spans_are_apart_and_may_be_anywhere() -> None:
    rng = np.random.default_rng(0)
    covered = np.zeros(20)
    for _ in range(3000):
        spans = draw_spans(20, 6, 3.0, rng)
        assert len(spans) == 2
        assert sum(end - begin for begin, end in spans) == 6
        assert spans[0][1] < spans[1][0]
        for begin, end in spans:
            covered[begin:end] += 1
    assert covered.min() > 300  # the ends of a text, too
    assert draw_spans(1, 1, 3.0, rng) == [(0, 1)]
    assert draw_spans(0, 0, 3.0, rng) == []
    assert draw_spans(4, 3, 1.0, rng)[-1][1] <= 4


def test_a_vocabulary_with_too_few_slots_is_one_line(news: Any, fails: Callable[..., Any]) -> None:
    layout = news.layout(LENGTH)
    short = replace(layout, specials=replace(layout.specials, unused=(5, 6)))
    for settings, given, needed in (
        ({}, short, 3),
        ({"mask_rate": "0.15->0.5"}, layout, 9),
        ({"mask_rate": 0.95}, layout, 13),
    ):
        with fails(RecipeError, "objective t5", f"need {needed} sentinels", f"--unused {needed}"):
            T5(T5.settings(**settings), given)


@pytest.fixture(scope="module")
def model(news: Any) -> Any:
    torch.manual_seed(2)
    shape = ModelConfig(architecture="t5", **SIZE, **STILL)
    source = make_source(news)
    made = source.objective.build_model(shape.network_config(source.objective.layout.specials.vocab_size, 0))
    made.use_attention(torch.device("cpu"))
    return made.eval()


def test_the_loss_is_that_of_transformers(news: Any, model: Any) -> None:
    stock: Any = model.export({name: p.detach() for name, p in model.named_parameters()}).eval()
    assert isinstance(stock, T5ForConditionalGeneration)
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


def test_relative_positions_are_neither_decayed_nor_orthogonalised(news: Any) -> None:
    shape = ModelConfig(architecture="t5", **SIZE | {"num_attention_heads": 8})
    objective = make_source(news).objective
    model = objective.build_model(shape.network_config(objective.layout.specials.vocab_size, 0))
    names = {id(p): name for name, p in model.named_parameters()}
    muon, adamw = make_optimizers(model, LoopConfig(optimizer="muon", weight_decay=0.125))
    taken = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    decayed, others = ({names[id(p)] for p in group["params"]} for group in adamw.param_groups)
    assert taken | decayed | others == set(names.values())
    assert decayed == {"network.shared.weight"}
    assert {name for name in others if "norm" not in name} == {
        f"network.{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        for side in ("encoder", "decoder")
    }


def test_a_trained_folder_generates_in_plain_transformers(
    corpus: Path, slotted_vocabulary: Path, tmp_path: Path
) -> None:
    values: dict[str, Any] = {
        "objective": "t5",
        "model": {**SIZE, "architecture": "t5"},
        "data": {"corpus": str(corpus), "tokenizer": str(slotted_vocabulary), "max_length": 40},
        "loop": {"steps": 30, "batch_size": 16, "peak_lr": 5e-3, "warmup_steps": 5, "precision": "fp32"}
        | {"log_every": 5, "optimizer": "muon"},
    }
    out = tmp_path / "t5"
    out.mkdir()
    Run(check_recipe(values, "recipe"), out, cache=tmp_path / "cache", cpu=True).train()
    losses = [line["denoising_loss"] for line in read_metrics(out / "metrics.jsonl") if "lr" in line]
    assert losses[-1] < losses[0] - 0.3
    network, report = AutoModelForSeq2SeqLM.from_pretrained(out, output_loading_info=True)
    assert isinstance(network, T5ForConditionalGeneration)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(out)
    text = tokenizer("시의회가 [unused0] 확정했다.", return_tensors="pt")
    assert tokenizer.convert_tokens_to_ids("[unused0]") in text["input_ids"][0]
    torch.manual_seed(0)
    made = network.generate(**text, do_sample=True, num_return_sequences=20, max_new_tokens=20)
    assert (made[:, 0] == tokenizer.pad_token_id).all()
    ends = (made == tokenizer.sep_token_id).int()
    behind = ends.cumsum(dim=1) - ends > 0
    assert behind.any()
    assert (made[behind] == tokenizer.pad_token_id).all()
    # Another phase begins with the weights of this one.
    more = values | {"model": values["model"] | {"init": str(out)}}
    again = Run(check_recipe(more, "recipe"), tmp_path / "again", cache=tmp_path / "cache", cpu=True).build_model()
    saved = network.state_dict()
    for name, parameter in again.named_parameters():
        given = saved[name.removeprefix("network.")]
        assert torch.equal(parameter[: len(given)], given), name
