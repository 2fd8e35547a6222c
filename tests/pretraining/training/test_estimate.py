"""Dry runs: recipes of all kinds can be tried."""

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from corpora.documents import read_documents
from pretraining.recipe import RECIPES, SAMPLE, read_recipe
from pretraining.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "quick_start")

TINY = ("hidden_size=16", "num_attention_heads=2", "intermediate_size=32", "max_position_embeddings=32")


@pytest.fixture
def teacher(slotted_vocabulary: Path, tmp_path: Path) -> Path:
    """Return the folder of a BERT of random weights."""
    torch.manual_seed(0)
    size = len((slotted_vocabulary / "vocab.txt").read_text(encoding="utf-8").splitlines())
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32}
    model = BertForMaskedLM(BertConfig(vocab_size=size, num_hidden_layers=4, **shape))
    model.save_pretrained(tmp_path / "teacher")
    return tmp_path / "teacher"


def test_recipes_of_every_kind_can_be_tried(
    slotted_vocabulary: Path, teacher: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    corpus = tmp_path / "corpus.txt"
    texts = [document.text for document, _ in zip(read_documents(SAMPLE), range(8), strict=False)]
    corpus.write_text("\n\n".join(texts), encoding="utf-8")
    tried: set[tuple[str, str]] = set()
    for path in sorted(RECIPES.glob("*.toml")):
        given = read_recipe(path, ["data.corpus=c", "data.tokenizer=t"])
        kind = (str(given.objective["name"]), given.model.architecture)
        if kind in tried:  # the other recipes of a kind differ in numbers
            continue
        tried.add(kind)
        with subtests.test(recipe=path.stem):
            settings = [f"data.corpus={corpus}", f"data.tokenizer={slotted_vocabulary}", "data.max_length=32"]
            settings += [f"model.{value}" for value in TINY]
            settings.append(f"model.num_hidden_layers={min(4, given.model.num_hidden_layers)}")
            settings += ["loop.batch_size=4", "loop.micro_batch_size=2"]
            if given.objective["name"] == "distillation":
                settings += [f"objective.teacher={teacher}", "model.num_hidden_layers=2"]
            if given.model.embedding_size:
                settings.append("model.embedding_size=8")
            recipe = read_recipe(path, settings)
            estimate = Run(recipe, tmp_path / "out", cpu=True).estimate()
            assert estimate.steps == given.loop.steps
            assert estimate.micro_batch_size == 2
            assert estimate.training_s > 0
