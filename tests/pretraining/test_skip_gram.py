"""Skip-gram vectors: tokens of the same company are near, and a run starts from them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pretraining.data.rows import SPECIAL
from pretraining.recipe import check_recipe
from pretraining.skip_gram import TokenRun, _pairs, cached_skip_gram, scaled_like, token_runs, train_skip_gram
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread")


def company(num_sequences: int = 1500) -> TokenRun:
    """Return sequences of eight tokens, each of 1–9 or of 10–18."""
    rng = np.random.default_rng(0)
    first = rng.choice([1, 10], size=num_sequences)
    ids = (first[:, None] + rng.integers(0, 9, (num_sequences, 8))).ravel()
    return TokenRun(ids, np.repeat(np.arange(num_sequences), 8))


def test_tokens_of_the_same_company_are_near() -> None:
    vectors = train_skip_gram([company()], 20, 16, seed=1, epochs=12)
    assert vectors[[0, 19]].isnan().all()
    unit = torch.nn.functional.normalize(vectors[1:19] - vectors[1:19].mean(0), dim=1)
    near = unit @ unit.t()
    same = torch.cat([near[:9, :9].flatten(), near[9:, 9:].flatten()]).mean()
    assert same > near[:9, 9:].mean() + 0.5
    again = train_skip_gram([company()], 20, 16, seed=1, epochs=12)
    torch.testing.assert_close(again, vectors, rtol=0, atol=0, equal_nan=True)
    scaled = scaled_like(vectors, torch.randn(50, 16) * 0.02)
    torch.testing.assert_close(scaled[1:19].mean(0), torch.zeros(16), rtol=0, atol=1e-6)
    assert float(scaled[1:19].std()) == pytest.approx(0.02, rel=0.1)


def test_pairs_stay_in_their_sequence() -> None:
    ids, sequences = np.arange(12), np.repeat([0, 1], 6)
    centres, contexts = _pairs(ids, sequences, np.random.default_rng(0))
    assert (sequences[centres] == sequences[contexts]).all()
    assert set(np.abs(centres - contexts)) <= set(range(1, 6))
    assert sorted(zip(centres.tolist(), contexts.tolist(), strict=True)) == sorted(
        zip(contexts.tolist(), centres.tolist(), strict=True)
    )
    assert (np.abs(centres - contexts) == 1).sum() == 20  # neighbours always


def test_a_run_starts_from_skip_gram_vectors(few_texts: Path, small_vocabulary: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def run(objective: str) -> Run:
        values = {
            "objective": objective,
            "model": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
            "data": {"corpus": str(few_texts), "tokenizer": str(small_vocabulary), "max_length": 32},
            "init": {"embeddings": "skip_gram"},
        }
        return Run(check_recipe(values, "recipe"), tmp_path / "out", cache=cache, cpu=True)

    model = run("dynamic_mlm").build_model()
    weight = model.network.get_input_embeddings().weight
    [path] = cache.glob("skip-gram-*.safetensors")
    written = path.stat().st_mtime_ns
    again = run("dynamic_mlm").build_model()
    assert path.stat().st_mtime_ns == written
    shards = run("dynamic_mlm").data.train.corpus.shards
    digest = run("dynamic_mlm").data.digest
    cost = cached_skip_gram(cache, shards, digest, vocab_size=model.vocab_size, width=16, seed=0)
    assert path.stat().st_mtime_ns == written
    assert cost.tokens == sum(int((shard.kinds != SPECIAL).sum()) for shard in shards) > 0
    assert cost.elapsed_s > 0
    torch.testing.assert_close(again.network.get_input_embeddings().weight, weight, rtol=0, atol=0)
    assert float(weight[:600].detach().std()) == pytest.approx(0.02, rel=0.3)
    # Masks that are drawn once hide no token from the vectors.
    plain, masked = (
        np.sort(np.concatenate([found.ids for found in token_runs(run(name).data.train.corpus.shards)]))
        for name in ("dynamic_mlm", "static_mlm_nsp")
    )
    mask = run("dynamic_mlm").data.train.objective.layout.specials.mask
    assert mask not in masked
    assert set(masked) == set(plain)
