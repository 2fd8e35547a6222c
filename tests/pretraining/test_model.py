"""The pretraining network against transformers' own: losses, gradients, packed rows, export and sizes."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel, AutoModelForMaskedLM, BertConfig, BertForMaskedLM, BertForPreTraining

import pretraining.model
from pretraining.model import VOCAB_MULTIPLE, MaskedLanguageModel
from pretraining.recipe import ModelConfig, find_recipe, read_recipe

pytestmark = pytest.mark.usefixtures("one_thread")

VOCAB_SIZE = 203
"""No multiple of 64."""
IGNORED = -100


def tiny_config(**changes: Any) -> BertConfig:
    values: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 40,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.05,  # large enough for mistakes to show, small enough for float32
    }
    return BertConfig(**(values | changes))


def make_model(*, next_sentence: bool = True, seed: int = 0, **changes: Any) -> MaskedLanguageModel:
    """Return a tiny network none of whose parameters is zero or one throughout."""
    torch.manual_seed(seed)
    model = MaskedLanguageModel(tiny_config(**changes), next_sentence=next_sentence)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "LayerNorm" in name:
                parameter += 0.2 * torch.randn_like(parameter)
    model.use_attention(torch.device("cpu"))
    return model.eval()


@pytest.fixture(scope="module")
def twins() -> tuple[MaskedLanguageModel, Any]:
    """Return a network and its export, for tests that change neither."""
    model = make_model()
    return model, plain(model)


def plain(model: MaskedLanguageModel) -> Any:
    """Return transformers' own network with the same weights."""
    return model.export(dict(model.named_parameters())).eval()


@dataclass(frozen=True)
class Input:
    """One sequence, as a single input of the network."""

    ids: list[int]
    types: list[int]
    targets: dict[int, int]
    """Position → token to predict."""
    label: int


def random_sequence(rng: np.random.Generator, length: int, *, share: float = 0.3) -> Input:
    border = int(rng.integers(1, length + 1))
    positions = np.flatnonzero(rng.random(length) < share)
    return Input(
        ids=rng.integers(0, VOCAB_SIZE, length).tolist(),
        types=[0] * border + [1] * (length - border),
        targets={int(position): int(rng.integers(0, VOCAB_SIZE)) for position in positions},
        label=int(rng.integers(0, 2)),
    )


def random_rows(seed: int, lengths: Sequence[Sequence[int]], *, share: float = 0.3) -> list[list[Input]]:
    rng = np.random.default_rng(seed)
    return [[random_sequence(rng, length, share=share) for length in row] for row in lengths]


def batch_of(rows: Sequence[Sequence[Input]], *, pad: int = 0) -> dict[str, Tensor]:
    """Put sequences side by side into rows, token by token."""
    width = max(sum(len(s.ids) for s in row) for row in rows)
    names = ("input_ids", "token_type_ids", "position_ids", "sequence_ids")
    grids: dict[str, list[list[int]]] = {name: [] for name in names}
    masked_positions, masked_ids, sequence_starts, labels = [], [], [], []
    for number, row in enumerate(rows):
        line: dict[str, list[int]] = {name: [] for name in names}
        for k, sequence in enumerate(row, start=1):
            start = number * width + len(line["input_ids"])
            sequence_starts.append(start)
            labels.append(sequence.label)
            masked_positions += [start + position for position in sequence.targets]
            masked_ids += list(sequence.targets.values())
            line["input_ids"] += sequence.ids
            line["token_type_ids"] += sequence.types
            line["position_ids"] += range(len(sequence.ids))
            line["sequence_ids"] += [k] * len(sequence.ids)
        for name, fill in zip(names, (pad, 0, 0, 0), strict=True):
            grids[name].append(line[name] + [fill] * (width - len(line[name])))
    lists = {
        **grids,
        "masked_positions": masked_positions,
        "masked_ids": masked_ids,
        "sequence_starts": sequence_starts,
        "next_labels": labels,
    }
    return {name: torch.tensor(values, dtype=torch.int64) for name, values in lists.items()}


def transformers_inputs(rows: Sequence[Sequence[Input]]) -> dict[str, Tensor]:
    """Return unpacked rows as transformers takes them, labels -100 wherever nothing is predicted."""
    width = max(len(row[0].ids) for row in rows)
    fields: dict[str, list[Any]] = {
        name: [] for name in ("input_ids", "token_type_ids", "attention_mask", "labels", "next_sentence_label")
    }
    for (sequence,) in rows:
        padding = [0] * (width - len(sequence.ids))
        fields["input_ids"].append(sequence.ids + padding)
        fields["token_type_ids"].append(sequence.types + padding)
        fields["attention_mask"].append([1] * len(sequence.ids) + padding)
        fields["labels"].append([sequence.targets.get(k, IGNORED) for k in range(width)])
        fields["next_sentence_label"].append(sequence.label)
    return {name: torch.tensor(values) for name, values in fields.items()}


def reference_losses(network: Any, rows: Sequence[Sequence[Input]]) -> dict[str, Tensor]:
    """Return the mean losses of transformers' classes: their sum as they report it, and its parts."""
    inputs = transformers_inputs(rows)
    labels, next_labels = inputs["labels"], inputs.pop("next_sentence_label")
    if isinstance(network, BertForPreTraining):
        outputs = network(**inputs, next_sentence_label=next_labels)
        mlm = torch.nn.functional.cross_entropy(outputs.prediction_logits.flatten(0, 1), labels.flatten())
        return {"loss": outputs.loss, "mlm_loss": mlm, "nsp_loss": outputs.loss - mlm}
    loss = network(**inputs).loss
    return {"loss": loss, "mlm_loss": loss}


def own_losses(model: MaskedLanguageModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean losses as the training loop makes them of the sums."""
    outputs = model(**batch)
    losses = {"mlm_loss": outputs["mlm_loss"] / len(batch["masked_positions"])}
    if "nsp_loss" in outputs:
        losses["nsp_loss"] = outputs["nsp_loss"] / len(batch["next_labels"])
    return {"loss": torch.stack(list(losses.values())).sum(), **losses}


UNPACKED = [[length] for length in (32, 32, 17, 5, 1, 29, 32, 8, 30, 31, 32, 32, 32, 25, 32, 32, 32, 32, 32, 32)]
"""With a share of 0.6, more predictions than a slice of the vocabulary layer holds."""


# --- losses and gradients -------------------------------------------------------------------------------------------


def test_losses_are_those_of_transformers(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    for next_sentence, slice_size in itertools.product([True, False], [pretraining.model.SLICE, 7]):
        with subtests.test(next_sentence=next_sentence, slice_size=slice_size), monkeypatch.context() as context:
            context.setattr(pretraining.model, "SLICE", slice_size)
            model, rows = make_model(next_sentence=next_sentence), random_rows(1, UNPACKED, share=0.6)
            batch = batch_of(rows)
            assert len(batch["masked_positions"]) > pretraining.model.SLICE
            theirs = reference_losses(plain(model), rows)
            ours = own_losses(model, batch)
            assert ours.keys() == theirs.keys()
            for name, loss in theirs.items():
                assert ours[name].item() == pytest.approx(loss.item(), rel=1e-6, abs=1e-6), name
    model = make_model(next_sentence=True)
    network, rng = plain(model), np.random.default_rng(5)
    for seed in range(200):
        rows = random_rows(seed, [[int(length)] for length in rng.integers(4, 33, 2)], share=0.5)
        with torch.no_grad():
            ours, theirs = own_losses(model, batch_of(rows)), reference_losses(network, rows)
        for name, loss in theirs.items():
            assert ours[name].item() == pytest.approx(loss.item(), rel=1e-6, abs=1e-6), (seed, name)


def test_gradients_are_those_of_transformers(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    for next_sentence, slice_size in itertools.product([True, False], [pretraining.model.SLICE, 7]):
        with subtests.test(next_sentence=next_sentence, slice_size=slice_size), monkeypatch.context() as context:
            context.setattr(pretraining.model, "SLICE", slice_size)
            model, rows = make_model(next_sentence=next_sentence), random_rows(1, UNPACKED, share=0.6)
            network = plain(model).double()  # the truth, free of rounding
            reference_losses(network, rows)["loss"].backward()
            own_losses(model, batch_of(rows))["loss"].backward()
            ours = {name.removeprefix("network."): p.grad for name, p in model.named_parameters()}
            theirs = {name: p.grad for name, p in network.named_parameters()}
            assert ours.keys() == theirs.keys()
            own_in_words = {name: ours[name][: len(truth)] for name, truth in theirs.items()}
            assert max(relative_errors(own_in_words, theirs).values()) <= 1e-6


def relative_errors(gradients: Mapping[str, Tensor], truths: Mapping[str, Tensor]) -> dict[str, float]:
    """Return by how much each gradient is off, as a share of its norm.

    Where the truth is zero, as for the bias of the keys, rounding is measured by the largest gradient there is.
    """
    largest = max(truth.norm().item() for truth in truths.values())
    return {
        name: (gradients[name].double() - truth.double()).norm().item() / max(truth.norm().item(), 1e-3 * largest)
        for name, truth in truths.items()
    }


def test_gradients_scale_with_the_loss() -> None:
    model, batch = make_model(), batch_of(random_rows(2, [[20], [12]]))
    gradients = []
    for scale in (1.0, 8.0):
        model.zero_grad()
        (scale * model(**batch)["mlm_loss"]).backward()
        gradients.append(model.network.bert.embeddings.word_embeddings.weight.grad.clone())
    torch.testing.assert_close(gradients[1], 8 * gradients[0])


def test_without_gradients_the_outputs_are_the_same() -> None:
    model, batch = make_model(), batch_of(random_rows(3, [[32, 8], [25]]))
    with_gradients = model(**batch)
    with torch.no_grad():
        without = model(**batch)
    assert {name: value.item() for name, value in without.items()} == {
        name: value.item() for name, value in with_gradients.items()
    }
    assert not any(value.requires_grad for value in without.values())


def test_a_batch_without_predictions_has_no_loss_and_no_gradient() -> None:
    model, batch = make_model(next_sentence=False), batch_of(random_rows(4, [[9], [4]], share=0.0))
    assert len(batch["masked_positions"]) == 0
    outputs = model(**batch)
    assert (outputs["mlm_loss"].item(), outputs["mlm_correct"].item()) == (0, 0)
    outputs["mlm_loss"].backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_in_bf16_losses_and_gradients_are_near_those_in_fp32() -> None:
    model, batch = make_model(initializer_range=0.05), batch_of(random_rows(5, [[32], [30]], share=0.5))
    own_losses(model, batch)["loss"].backward()
    exact = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        rough = own_losses(model, batch)
    rough["loss"].backward()
    assert rough["loss"].dtype == torch.float32
    assert rough["loss"].item() == pytest.approx(own_losses(model, batch)["loss"].item(), rel=0.01)
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert gradient.dtype == torch.float32
    assert torch.cosine_similarity(exact, gradient, dim=0) > 0.999


def test_rows_that_fill_up_change_neither_loss_nor_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = make_model(), batch_of(random_rows(1, UNPACKED, share=0.6))
    found, lengths = [], []
    linear = F.linear
    for multiple in (1, pretraining.model.ROW_MULTIPLE):
        monkeypatch.setattr(pretraining.model, "ROW_MULTIPLE", multiple)
        seen: list[int] = []
        monkeypatch.setattr(F, "linear", lambda x, *rest, seen=seen: (seen.append(len(x)), linear(x, *rest))[1])
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(**batch)
        outputs["mlm_loss"].backward()
        found.append((outputs, [p.grad.clone() for p in model.parameters() if p.grad is not None]))
        lengths.append([length for length in seen if length > len(UNPACKED)])
    (exact, exact_gradients), (filled, gradients) = found
    assert filled["mlm_loss"].item() == pytest.approx(exact["mlm_loss"].item(), rel=1e-4)
    assert filled["mlm_correct"] == exact["mlm_correct"]
    for one, other in zip(gradients, exact_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02 * other.abs().max().item())
    assert any(length % multiple for length in lengths[0])
    assert not any(length % multiple for length in lengths[1])
    states = torch.randn(65, 8)
    assert pretraining.model.fill_rows(states) is states  # in fp32 every shape is fast


# --- the padded vocabulary ------------------------------------------------------------------------------------------


def test_the_padded_vocabulary_changes_neither_loss_nor_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    padded, batch = make_model(), batch_of(random_rows(6, UNPACKED, share=0.6))
    monkeypatch.setattr(pretraining.model, "VOCAB_MULTIPLE", 1)
    exact = make_model(seed=1)
    assert exact.load(plain(padded).state_dict()) == []
    with torch.no_grad():  # whatever the padding is
        padded.network.bert.embeddings.word_embeddings.weight[VOCAB_SIZE:] = 50.0
        padded.network.cls.predictions.bias[VOCAB_SIZE:] = 50.0
    sums = []
    for model in (padded, exact):
        outputs = model(**batch)
        (outputs["mlm_loss"] + outputs["nsp_loss"]).backward()
        sums.append({name: value.item() for name, value in outputs.items()})
    assert sums[0] == pytest.approx(sums[1], rel=1e-6)
    ours, theirs = ({name: p.grad for name, p in model.named_parameters()} for model in (padded, exact))
    in_words = {name: ours[name][: len(gradient)] for name, gradient in theirs.items()}
    assert max(relative_errors(in_words, theirs).values()) <= 1e-6
    assert not any(ours[name][len(gradient) :].any() for name, gradient in theirs.items())


def test_the_vocabulary_is_padded_inside_and_not_in_the_export(subtests: pytest.Subtests) -> None:
    for vocab_size in [128, VOCAB_SIZE]:
        with subtests.test(vocab_size=vocab_size):
            model = make_model(vocab_size=vocab_size)
            inside = len(model.network.bert.embeddings.word_embeddings.weight)
            assert inside % VOCAB_MULTIPLE == 0
            assert vocab_size <= inside < vocab_size + VOCAB_MULTIPLE
            exported = plain(model)
            assert exported.config.vocab_size == vocab_size
            assert exported.bert.embeddings.word_embeddings.weight.shape == (vocab_size, 32)
            assert exported.cls.predictions.decoder.weight.shape == (vocab_size, 32)
            assert exported.cls.predictions.decoder.bias.shape == (vocab_size,)


# --- packed rows ----------------------------------------------------------------------------------------------------


def hidden_alone(network: Any, sequence: Input) -> Tensor:
    hidden: Tensor = network.bert(
        input_ids=torch.tensor([sequence.ids]), token_type_ids=torch.tensor([sequence.types])
    ).last_hidden_state[0]
    return hidden


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@hypothesis.given(
    lengths=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
)
@hypothesis.settings(max_examples=10)
def test_a_packed_row_gives_what_its_sequences_give_one_by_one(
    twins: tuple[MaskedLanguageModel, Any], attention: str, lengths: list[list[int]], seed: int
) -> None:
    model, network = twins
    model.network.set_attn_implementation(attention)
    rows = random_rows(seed, lengths)
    batch = batch_of(rows, pad=5)
    with torch.no_grad():
        grid = model.encode(*(batch[k] for k in ("input_ids", "token_type_ids", "position_ids", "sequence_ids")))
        for number, row in enumerate(rows):
            start = 0
            for sequence in row:
                packed = grid[number, start : start + len(sequence.ids)]
                alone = hidden_alone(network, sequence)
                torch.testing.assert_close(packed, alone, rtol=0, atol=1e-5)
                scores = network.cls.predictions(packed), network.cls.predictions(alone)
                torch.testing.assert_close(*scores, rtol=0, atol=1e-5)
                start += len(sequence.ids)


def test_the_loss_of_a_packed_row_is_that_of_its_sequences(subtests: pytest.Subtests) -> None:
    for attention in ["eager", "sdpa"]:
        with subtests.test(attention=attention):
            model, rows = make_model(), random_rows(7, [[9, 14, 3], [20], [1, 2]], share=0.5)
            model.network.set_attn_implementation(attention)
            packed = model(**batch_of(rows))
            alone = [model(**batch_of([[sequence]])) for row in rows for sequence in row]
            assert packed.keys() == {"mlm_loss", "mlm_correct", "nsp_loss", "nsp_correct"}
            for name, value in packed.items():
                assert value.item() == pytest.approx(sum(outputs[name].item() for outputs in alone), rel=1e-5), name


def test_other_sequences_of_a_row_are_not_attended_to(subtests: pytest.Subtests) -> None:
    for attention in ["eager", "sdpa"]:
        with subtests.test(attention=attention):
            model, (first, second, third) = make_model(), random_rows(8, [[6], [7], [8]])
            model.network.set_attn_implementation(attention)
            names = ("input_ids", "token_type_ids", "position_ids", "sequence_ids")
            with torch.no_grad():
                hidden = [
                    model.encode(*(batch_of([[*first, *other]], pad=pad)[name] for name in names))[0, :6]
                    for other, pad in ((second, 0), (third, 0), ((), 9))
                ]
            for other in hidden[1:]:
                torch.testing.assert_close(other, hidden[0], rtol=0, atol=1e-5)


def test_the_attention_is_chosen_by_the_device() -> None:
    model = make_model()
    model.use_attention(torch.device("cuda"))
    assert model.network.config._attn_implementation == "sdpa"
    model.use_attention(torch.device("cpu"))
    assert model.network.config._attn_implementation == "eager"


# --- counts of correct predictions ----------------------------------------------------------------------------------


def test_correct_predictions_are_those_with_the_highest_score(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for slice_size in [pretraining.model.SLICE, 7]:
        with subtests.test(slice_size=slice_size), monkeypatch.context() as context:
            context.setattr(pretraining.model, "SLICE", slice_size)
            model, rows = make_model(), random_rows(9, UNPACKED, share=0.6)
            batch, inputs = batch_of(rows), transformers_inputs(rows)
            with torch.no_grad():
                logits = plain(model)(**{k: v for k, v in inputs.items() if "label" not in k}).prediction_logits
            best = logits.flatten(0, 1)[batch["masked_positions"]].argmax(-1)
            rng = np.random.default_rng(0)
            hits = torch.from_numpy(rng.random(len(best)) < 0.4)
            batch["masked_ids"] = torch.where(hits, best, (best + 1) % VOCAB_SIZE)
            assert 0 < hits.sum() < len(hits)
            assert model(**batch)["mlm_correct"].item() == hits.sum().item()


def test_of_words_with_the_same_highest_score_the_first_is_the_prediction() -> None:
    model, batch = make_model(next_sentence=False), batch_of(random_rows(10, [[32]], share=0.9))
    with torch.no_grad():
        model.network.bert.embeddings.word_embeddings.weight.zero_()  # leaves the biases to decide
        model.network.cls.predictions.bias.zero_()
        model.network.cls.predictions.bias[[7, 100, VOCAB_SIZE - 1]] = 2.0
        model.network.cls.predictions.bias[VOCAB_SIZE:] = 9.0  # padding is no word
    count = len(batch["masked_ids"])
    for word, correct in {7: count, 100: 0, VOCAB_SIZE - 1: 0, 0: 0}.items():
        batch["masked_ids"][:] = word
        assert model(**batch)["mlm_correct"].item() == correct, word
    batch["masked_ids"][: count // 2] = 7
    assert model(**batch)["mlm_correct"].item() == count // 2


def test_correct_next_sentences_are_counted() -> None:
    model, rows = make_model(), random_rows(11, [[5, 9, 4], [12, 3]])
    batch = batch_of(rows)
    network = plain(model)
    truth = []
    for sequence in (s for row in rows for s in row):
        inputs = {"input_ids": torch.tensor([sequence.ids]), "token_type_ids": torch.tensor([sequence.types])}
        truth.append(int(network(**inputs).seq_relationship_logits.argmax()))
    batch["next_labels"] = torch.tensor(truth)
    assert model(**batch)["nsp_correct"].item() == len(truth)
    batch["next_labels"][[0, 3]] = 1 - batch["next_labels"][[0, 3]]
    assert model(**batch)["nsp_correct"].item() == len(truth) - 2


# --- saving and loading ---------------------------------------------------------------------------------------------


def test_an_export_is_loaded_by_transformers(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, next_sentence in enumerate([True, False]):
        with subtests.test(next_sentence=next_sentence):
            folder = tmp_path / str(number)
            folder.mkdir()
            model = make_model(next_sentence=next_sentence)
            exported = plain(model)
            assert type(exported) is (BertForPreTraining if next_sentence else BertForMaskedLM)
            exported.save_pretrained(folder)
            (row,) = random_rows(12, [[21]])
            names = ("input_ids", "token_type_ids", "position_ids", "sequence_ids")
            batch = batch_of([row])
            inputs = {name: batch[name] for name in ("input_ids", "token_type_ids")}
            with torch.no_grad():
                hidden = model.encode(*(batch[name] for name in names))
                scores = exported.cls.predictions(hidden)
                torch.testing.assert_close(
                    AutoModel.from_pretrained(folder)(**inputs).last_hidden_state, hidden, rtol=0, atol=1e-5
                )
                loaded = AutoModelForMaskedLM.from_pretrained(folder)
                torch.testing.assert_close(loaded(**inputs).logits, scores, rtol=0, atol=1e-5)
                if next_sentence:
                    whole, info = BertForPreTraining.from_pretrained(folder, output_loading_info=True)
                    assert not info["missing_keys"]
                    assert not info["unexpected_keys"]
                    pairs = model.network.cls.seq_relationship(model.network.bert.pooler(hidden))
                    torch.testing.assert_close(whole(**inputs).seq_relationship_logits, pairs, rtol=0, atol=1e-5)


def test_an_export_has_the_parameters_of_transformers_own_class() -> None:
    for next_sentence, kind in ((True, BertForPreTraining), (False, BertForMaskedLM)):
        ours = plain(make_model(next_sentence=next_sentence)).state_dict()
        theirs = kind(tiny_config()).state_dict()
        assert {name: value.shape for name, value in ours.items()} == {
            name: value.shape for name, value in theirs.items()
        }


def test_loading_an_export_brings_back_every_weight() -> None:
    model, other = make_model(seed=1), make_model(seed=2)
    weights = plain(model).state_dict()
    assert other.load(weights) == []
    again = plain(other).state_dict()
    assert all(torch.equal(again[name], value) for name, value in weights.items())
    batch = batch_of(random_rows(13, [[8, 9]]))
    assert {k: v.item() for k, v in other(**batch).items()} == {k: v.item() for k, v in model(**batch).items()}


def test_parameters_that_are_not_given_are_named_and_kept() -> None:
    weights = {k: v for k, v in plain(make_model(seed=1, next_sentence=False)).state_dict().items() if "bert." in k}
    model = make_model(seed=2)
    before = plain(model).state_dict()
    missing = model.load(weights)
    assert sorted(missing) == sorted(
        name for name, _ in model.network.named_parameters() if "pooler" in name or name.startswith("cls.")
    )
    after = plain(model).state_dict()
    assert all(torch.equal(after[name], weights[name]) for name in weights)
    assert all(torch.equal(after[name], before[name]) for name in missing)


def test_weights_of_another_shape_are_refused(subtests: pytest.Subtests) -> None:
    for change in [
        {"hidden_size": 64},
        {"intermediate_size": 64},
        {"max_position_embeddings": 64},
        {"type_vocab_size": 3},
        {"vocab_size": VOCAB_SIZE - 1},
        {"vocab_size": VOCAB_SIZE + 1},
        {"vocab_size": 256},  # as large as ours is with its padding
    ]:
        with subtests.test(change=change):
            weights = plain(make_model(**change)).state_dict()
            with pytest.raises(ValueError, match=r"is \(.*\), not \("):
                make_model().load(weights)


# --- sizes ----------------------------------------------------------------------------------------------------------


def sizes(config: ModelConfig, vocab_size: int, *, next_sentence: bool) -> dict[str, int]:
    """Return the number of parameters of the parts of an exported network, which is never filled with numbers."""
    with torch.device("meta"):
        model = MaskedLanguageModel(config.network_config(vocab_size, 0), next_sentence=next_sentence)
        exported: Any = model.export(dict(model.named_parameters()))
    assert {parameter.device.type for parameter in exported.parameters()} == {"meta"}
    pooler = sum(p.numel() for name, p in exported.named_parameters() if "pooler" in name)
    bert = sum(p.numel() for p in exported.bert.parameters())
    return {"bert": bert, "encoder": bert - pooler, "all": sum(p.numel() for p in exported.parameters())}


def shape_of(name: str) -> ModelConfig:
    return read_recipe(find_recipe(name), ["data.corpus=corpus", "data.tokenizer=vocabulary"]).model


def test_bert_base_has_its_size() -> None:
    """Devlin et al. 2019, section 3: L=12, H=768, A=12, 110M parameters."""
    assert shape_of("bert-base") == ModelConfig()
    size = sizes(ModelConfig(), 30_522, next_sentence=True)
    assert size["bert"] == 109_482_240
    assert size["bert"] == pytest.approx(110e6, rel=0.01)


def test_bert_large_has_its_size() -> None:
    """Devlin et al. 2019, section 3: L=24, H=1024, A=16, 340M parameters; with a vocabulary of 30,522 it is 335.1M."""
    large = shape_of("bert-large")
    assert (large.num_hidden_layers, large.hidden_size, large.num_attention_heads) == (24, 1024, 16)
    size = sizes(large, 30_522, next_sentence=True)
    assert size["bert"] == 335_141_888
    assert size["bert"] == pytest.approx(340e6, rel=0.015)


def test_kpfbert_has_its_size() -> None:
    """Its weights: 113,436,672 parameters without a pooler; 114,065,240 with the masked-LM head."""
    size = sizes(shape_of("kpfbert-base"), 36_440, next_sentence=False)
    assert (size["encoder"], size["all"]) == (113_436_672, 114_065_240)
    assert size["bert"] == size["encoder"]  # a masked-LM network has no pooler


def test_operations_of_a_step_are_those_that_are_counted() -> None:
    """The formula behind the share of the matrix rate, against PyTorch's counter."""
    model = make_model(next_sentence=False, hidden_size=64, intermediate_size=128, num_attention_heads=4)
    rows = random_rows(14, [[32]] * 6, share=0.4)
    batch = batch_of(rows)
    with FlopCounterMode(display=False) as counter:
        model(**batch)["mlm_loss"].backward()
    counted = counter.get_total_flops()
    padding = 6 * 64 * (VOCAB_MULTIPLE - VOCAB_SIZE % VOCAB_MULTIPLE) * len(batch["masked_positions"])
    formula = model.flops().total({"tokens": 6 * 32, "mlm": len(batch["masked_positions"])}, 32)
    assert formula == pytest.approx(counted - padding, rel=0.01)
