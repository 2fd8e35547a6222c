"""GPT-BERT: the losses of transformers' two classes, no sight of later tokens, and two folders of the same weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer, ModernBertDecoderForCausalLM, ModernBertForMaskedLM

from downstream.fill_mask import MaskFiller
from pretraining.data.shards import Sharded
from pretraining.evaluate import evaluate_mlm
from pretraining.objectives.dynamic_mlm import DynamicMlm
from pretraining.objectives.hybrid import Hybrid
from pretraining.recipe import ModelConfig, check_recipe
from pretraining.training.accelerator import make_accelerator
from pretraining.training.batches import BatchSource
from pretraining.training.loop import Trainer
from pretraining.training.metrics import read_metrics
from pretraining.training.optimizers import is_hidden_matrix
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

LENGTH = 48
SIZE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "max_position_embeddings": LENGTH}
SIZE |= {"local_attention": 8}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ROWS = ("input_ids", "token_type_ids", "position_ids", "sequence_ids")


@pytest.fixture(scope="module")
def news(numbered: Callable[..., Any], structure: Callable[..., Any]) -> Any:
    return numbered([structure(80, sentences=(3, 8), seed=1)])


def make_source(corpus: Any, batch_size: int = 1, **settings: Any) -> BatchSource:
    objective = Hybrid(Hybrid.settings(**settings), corpus.layout(LENGTH))
    rows = objective.make_rows(corpus.tokens, 0)
    return BatchSource(Sharded.from_lengths([rows], [len(rows)]), objective, batch_size)


@pytest.fixture(scope="module")
def model(news: Any) -> Any:
    torch.manual_seed(2)
    shape = ModelConfig(architecture="modernbert", **SIZE, **STILL)
    objective = make_source(news).objective
    made = objective.build_model(shape.network_config(objective.layout.specials.vocab_size, 0))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    made.use_attention(torch.device("cpu"))
    return made.eval()


def networks(model: Any) -> tuple[Any, Any]:
    """Return what is saved."""
    encoder = model.export({name: p.detach() for name, p in model.named_parameters()}).eval()
    return encoder, model.variants(encoder, {})["decoder"].eval()


def batch_of(source: BatchSource, step: int) -> dict[str, Tensor]:
    return source.micro_batches(step, process=0, num_processes=1, size=source.batch_size)[0]


def test_rows_are_causal_at_the_ratio_of_the_recipe_and_anew_in_every_epoch(news: Any) -> None:
    source = make_source(news, batch_size=64)
    objective = source.objective
    assert [term.weight for term in objective.terms] == [15 / 16, 1 / 16]
    plain = DynamicMlm(DynamicMlm.settings(), objective.layout)
    masked_source = BatchSource(source.corpus, plain, 64)
    rows = np.arange(64) % len(source.corpus)
    kinds = []
    for epoch in range(80):
        batch, masked = (s.tensors(rows, np.full(64, epoch)) for s in (source, masked_source))
        is_causal = batch["causal_rows"] == 1
        kinds.append(is_causal)
        assert torch.equal(batch["input_ids"][~is_causal], masked["input_ids"][~is_causal])
        width = batch["input_ids"].shape[1]
        assert not is_causal[batch["masked_positions"] // width].any()
        assert is_causal[batch["causal_positions"] // width].all()
        ids, sequences = batch["input_ids"], batch["sequence_ids"]
        assert not (ids[is_causal] == objective.layout.specials.mask).any()
        assert len(batch["causal_ids"]) == int((sequences[is_causal] > 0).sum() - (ids[is_causal] == 2).sum())
        assert torch.equal(ids.flatten()[batch["causal_positions"]], batch["causal_ids"])
        # The state that predicts is of the same sequence.
        for name in ("masked_positions", "causal_positions"):
            assert torch.equal(sequences.flatten()[batch[name]], sequences.flatten()[batch[name] - 1])
    share = torch.stack(kinds).float()
    assert share.mean() == pytest.approx(1 / 16, abs=4 * (1 / 16 * 15 / 16 / share.numel()) ** 0.5)
    assert share.any(dim=0).sum() > 50


def test_the_losses_are_those_of_transformers(news: Any, model: Any) -> None:
    source = make_source(news, causal_share=0.5)
    encoder, decoder = networks(model)
    compared = {"mlm": 0, "clm": 0}
    for step in range(2000):
        batch = batch_of(source, step)
        if int(batch["sequence_ids"].max()) > 1:
            continue
        kind = "clm" if int(batch["causal_rows"]) else "mlm"
        ids, positions = batch["input_ids"], batch["causal_positions" if kind == "clm" else "masked_positions"]
        if not len(positions) or compared[kind] == 100:
            continue
        with torch.no_grad():
            own = model(**batch)
            if kind == "clm":
                loss = decoder(input_ids=ids, labels=ids).loss
            else:
                # Read one position to the left.
                labels = torch.full_like(ids, -100)
                labels[0, positions - 1] = batch["masked_ids"]
                loss = encoder(input_ids=ids, labels=labels).loss
        assert own[f"{kind}_loss"].item() / len(positions) == pytest.approx(loss.item(), rel=1e-6)
        assert own["mlm_loss" if kind == "clm" else "clm_loss"] == 0
        compared[kind] += 1
    assert compared == {"mlm": 100, "clm": 100}


def test_later_tokens_and_other_sequences_change_nothing_in_causal_rows(news: Any, model: Any) -> None:
    source = make_source(news, batch_size=4, causal_share=0.5)
    _, decoder = networks(model)
    for step in range(20):
        batch = batch_of(source, step)
        ids, is_causal, middle = batch["input_ids"], batch["causal_rows"] == 1, batch["input_ids"].shape[1] // 2
        inputs = {name: batch[name] for name in (*ROWS, "causal_rows")}
        changed = torch.cat([ids[:, :middle], torch.full_like(ids[:, middle:], 20)], dim=1)
        with torch.no_grad():
            before, after = model.encode_rows(**inputs), model.encode_rows(**inputs | {"input_ids": changed})
            assert torch.equal(before[is_causal, :middle], after[is_causal, :middle])
            assert not torch.equal(before[~is_causal, :middle], after[~is_causal, :middle]) or is_causal.all()
            assert torch.equal(decoder(ids).logits[:, :middle], decoder(changed).logits[:, :middle])
            others = torch.where(batch["sequence_ids"] == 1, 20, ids)
            second = batch["sequence_ids"] == 2
            assert torch.equal(model.encode_rows(**inputs | {"input_ids": others})[second], before[second])


def test_encoder_and_decoder_agree_on_rows_longer_than_their_window(model: Any) -> None:
    encoder, decoder = networks(model)
    for implementation in ("eager", "sdpa"):
        for network in (encoder, decoder):
            network.set_attn_implementation(implementation)
        ids = torch.randint(10, 500, (3, LENGTH), generator=torch.Generator().manual_seed(1))
        ones = torch.ones_like(ids)
        places = torch.arange(LENGTH).expand(3, -1)
        model.network.set_attn_implementation(implementation)
        with torch.no_grad():
            hidden = model.encode_rows(ids, 0 * ids, places, ones, ones[:, 0])
            scores = encoder.decoder(encoder.head(hidden))
            assert (decoder(input_ids=ids).logits - scores).abs().max() < 1e-6
            # Without a mask over later tokens it is another function.
            assert (decoder(input_ids=ids).logits - encoder(input_ids=ids).logits).abs().max() > 0.1
    model.network.set_attn_implementation("eager")


def test_muon_takes_the_matrices_between_hidden_layers(model: Any) -> None:
    taken = {name for name, p in model.named_parameters() if is_hidden_matrix(name, p)}
    assert {name for name, p in model.named_parameters() if p.ndim == 2} - taken == {
        "network.model.embeddings.tok_embeddings.weight"
    }


class KilledError(Exception):
    """Stands for a kill."""


def test_a_run_learns_resumes_and_is_saved_as_two_folders(
    corpus: Path, small_vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = check_recipe(
        {
            "objective": {"name": "hybrid", "causal_share": 0.25},
            "model": {**SIZE, "architecture": "modernbert"},
            "data": {"corpus": str(corpus), "tokenizer": str(small_vocabulary), "max_length": LENGTH},
            "loop": {"steps": 24, "batch_size": 16, "peak_lr": 8e-3, "warmup_steps": 4, "precision": "fp32"}
            | {"log_every": 6, "optimizer": "muon", "checkpoint_every": 7},
        },
        "recipe",
    )
    runs = [Run(recipe, tmp_path / name, cache=tmp_path / "cache", cpu=True) for name in ("whole", "killed")]
    for run in runs:
        run.out.mkdir()
    whole, killed = runs
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
    for name in ("model.safetensors", "decoder/model.safetensors"):
        assert (killed.out / name).read_bytes() == (whole.out / name).read_bytes()

    lines = [line for line in read_metrics(whole.out / "metrics.jsonl") if "lr" in line]
    for name in ("mlm_loss", "clm_loss"):
        assert lines[-1][name] < lines[0][name] - 0.3
    kinds: tuple[tuple[Any, Path], ...] = (
        (ModernBertForMaskedLM, whole.out),
        (ModernBertDecoderForCausalLM, whole.out / "decoder"),
    )
    encoder, decoder = (kind.from_pretrained(folder, output_loading_info=True) for kind, folder in kinds)
    for _, report in (encoder, decoder):
        assert not report["missing_keys"]
        assert not report["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(whole.out / "decoder")
    begun = tokenizer("시의회가", return_tensors="pt")["input_ids"][:, :-1]
    torch.manual_seed(0)
    made = decoder[0].generate(begun, do_sample=True, num_return_sequences=10, max_new_tokens=20)
    assert (made[:, : begun.shape[1]] == begun).all()
    assert decoder[0].generation_config.eos_token_id == tokenizer.sep_token_id
    assert len(set(tokenizer.batch_decode(made))) > 5

    assert "logits[:, i - 1]" in (whole.out / "README.md").read_text(encoding="utf-8")
    assert encoder[0].config.mask_shift == 1
    # Held-out masks are predicted where the config says: better than by frequency.
    scores = evaluate_mlm(whole.out, corpus, max_length=LENGTH, max_rows=64)
    assert scores["mlm_loss"] == pytest.approx(lines[-1]["mlm_loss"], abs=1.0)
    text = "시의회가 [MASK] 예산을 확정했다."
    (blank,) = MaskFiller.load(whole.out).fill(text, 1)
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    (place,) = (ids[0] == tokenizer.mask_token_id).nonzero()
    with torch.no_grad():
        chances = encoder[0].eval()(ids).logits[0, int(place) - 1].softmax(-1)
    ordinary = [id_ for token, id_ in tokenizer.get_vocab().items() if not token.startswith("[")]
    assert blank.candidates[0].probability == pytest.approx(float(chances[ordinary].max()), rel=1e-5)
