"""Initial embeddings of a vocabulary from those of another one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

from corpora.foundation.errors import CheckpointError, RecipeError
from pretraining.initial_embeddings import Vocabulary, VocabularyMap
from pretraining.recipe import check_recipe
from pretraining.training.run import Run
from pretraining.vocabulary.tokenizer import cased_tokenizer, save_tokenizer

Fails = Callable[..., AbstractContextManager[None]]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def wordpiece(folder: Path, *tokens: str) -> Path:
    """Save a WordPiece vocabulary of the special tokens and TOKENS."""
    save_tokenizer(cased_tokenizer({token: k for k, token in enumerate([*SPECIAL, *tokens])}), folder)
    return folder


def sentencepiece(folder: Path, *tokens: str) -> Path:
    """Save a Unigram vocabulary with the special tokens of XLM-R."""
    vocab = [(token, -float(k)) for k, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *tokens, "<mask>"])]
    backend = Tokenizer(models.Unigram(vocab, unk_id=3))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    names = {
        "cls_token": "<s>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(folder)
    return folder


def applied(old: Path, new: Path, values: Tensor) -> tuple[Tensor, Vocabulary]:
    vocabulary = Vocabulary.read(new)
    generator = torch.Generator().manual_seed(0)
    return VocabularyMap.between(Vocabulary.read(old), vocabulary).apply(values, generator), vocabulary


def test_a_token_gets_the_mean_of_the_tokens_that_spell_it(tmp_path: Path, subtests: pytest.Subtests) -> None:
    old = wordpiece(tmp_path / "old", "[unused0]", "대한", "##민", "##민국", "##국", "국", "##회", "##대", "의")
    new = wordpiece(
        tmp_path / "new",
        "의",
        "[unused0]",
        "대한민국",
        "국회",
        "##국",
        "##국회",
        "##의",
        "의국",
        "##대한",
        "밤",
        "의밤",
    )
    ids = {token: k for k, token in enumerate((old / "vocab.txt").read_text(encoding="utf-8").split())}
    values = torch.eye(len(ids), dtype=torch.float64)
    found, vocabulary = applied(old, new, values)
    assert found.dtype == torch.float64
    expected = {
        "의": ["의"],
        "대한민국": ["대한", "##민국"],  # the longest token first
        "국회": ["국", "##회"],
        "##국": ["##국"],  # not 국, which begins an eojeol
        "##국회": ["##국", "##회"],
        "##의": ["의"],  # there is none inside an eojeol
        "의국": ["의", "##국"],
        "##대한": [],  # “##대” spells its first half, and there is no 한
    }
    for token, parts in expected.items():
        with subtests.test(token=token):
            is_first = not token.startswith("##")
            row = found[vocabulary.forms[is_first, token.removeprefix("##")]]
            if parts:
                mean = torch.stack([values[ids[part]] for part in parts]).mean(0)
                torch.testing.assert_close(row, mean)
            else:
                assert row.count_nonzero() == len(row)
    for k, token in enumerate([*SPECIAL, "의", "[unused0]"]):
        assert found[k].argmax() == ids[token], token


def test_a_token_that_nothing_spells_looks_like_the_others(tmp_path: Path) -> None:
    letters = [chr(ord("가") + k) for k in range(400)]
    old = wordpiece(tmp_path / "old", *letters[:200])
    new = wordpiece(tmp_path / "new", *letters[200:])
    values = 3 + 0.5 * torch.randn(205, 64, generator=torch.Generator().manual_seed(1))
    found, _ = applied(old, new, values)
    torch.testing.assert_close(found[5:].mean(0), values.mean(0), rtol=0, atol=0.15)
    assert float(found[5:].std(0).mean()) == pytest.approx(0.5, rel=0.05)
    biases, _ = applied(old, new, values[:, 0])
    torch.testing.assert_close(biases[5:], values[:, 0].mean().expand(200))


def test_sentencepiece_marks_where_words_begin(tmp_path: Path) -> None:
    old = sentencepiece(tmp_path / "old", "▁국회", "국회", "▁의", "의", "원", ",")
    new = wordpiece(tmp_path / "new", "국회", "##국회", "의원", "##의원", ",")
    values = torch.eye(11)
    found, _ = applied(old, new, values)
    pad, unk, cls, sep, mask = (found[k].argmax().item() for k in range(5))
    assert (pad, unk, cls, sep, mask) == (1, 3, 0, 2, 10)
    parts = [row.nonzero().flatten().tolist() for row in found[5:]]
    assert parts == [[4], [5], [6, 8], [7, 8], [9]]


def make_recipe(tokenizer: Path, corpus: Path, **others: Any) -> dict[str, Any]:
    return {
        "objective": "dynamic_mlm",
        "data": {"corpus": str(corpus), "tokenizer": str(tokenizer), "max_length": 32},
        "model": SHAPE | {"max_position_embeddings": 32} | others.pop("model", {}),
        **others,
    }


@pytest.fixture(scope="module")
def other(small_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BertForMaskedLM]:
    """Return a model with the small vocabulary. Tests do not change it."""
    folder = tmp_path_factory.mktemp("other")
    torch.manual_seed(3)
    model = BertForMaskedLM(BertConfig(vocab_size=600, max_position_embeddings=32, **SHAPE))
    torch.nn.init.normal_(model.cls.predictions.bias)
    model.save_pretrained(folder)
    for path in small_vocabulary.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder, model


def test_a_run_starts_from_a_model_with_another_vocabulary(
    other: tuple[Path, BertForMaskedLM],
    vocabulary: Path,
    few_texts: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, given = other
    recipe = make_recipe(vocabulary, few_texts, model={"init": str(folder)}, init={"embeddings": "by_pieces"})
    run = Run(check_recipe(recipe, "recipe"), tmp_path / "out", cache=tmp_path / "cache", cpu=True)
    model = run.build_model()
    assert "tokens taken over" in capsys.readouterr().err
    exported = model.export(dict(model.named_parameters()))
    old, new = Vocabulary.read(folder), Vocabulary.read(vocabulary)
    shared = [(old.forms[form], new.forms[form]) for form in old.forms.keys() & new.forms.keys()]
    assert len(shared) > 400
    theirs, own = torch.tensor(shared).T
    parameters = dict(exported.named_parameters())
    for name, weight in given.named_parameters():
        if model.has_vocabulary(name):
            assert len(parameters[name]) == new.size
            torch.testing.assert_close(parameters[name][own], weight[theirs], rtol=0, atol=1e-7, msg=name)
        else:
            torch.testing.assert_close(parameters[name], weight, rtol=0, atol=0, msg=name)


def test_embeddings_alone_come_from_another_model(
    vocabulary: Path, few_texts: Path, tmp_path: Path, fails: Fails
) -> None:
    old = sentencepiece(tmp_path / "old", *(f"▁{letter}" for letter in "국회의원은"))
    torch.manual_seed(4)
    given = BertModel(BertConfig(vocab_size=10, max_position_embeddings=8, **SHAPE))
    given.save_pretrained(old)
    recipe = make_recipe(vocabulary, few_texts, init={"embeddings": str(old)})
    cache = tmp_path / "cache"
    model = Run(check_recipe(recipe, "recipe"), tmp_path / "out", cache=cache, cpu=True).build_model()
    words = model.network.get_input_embeddings().weight
    position = Vocabulary.read(vocabulary).forms[True, "의"]
    torch.testing.assert_close(words[position], given.get_input_embeddings().weight[6])
    narrow = make_recipe(vocabulary, few_texts, model={"hidden_size": 8}, init={"embeddings": str(old)})
    with fails(CheckpointError, old, "width 16", "8"):
        Run(check_recipe(narrow, "recipe"), tmp_path / "out", cache=cache, cpu=True).build_model()


def test_what_cannot_be_mapped_is_refused(
    small_vocabulary: Path, few_texts: Path, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    (tmp_path / "empty").mkdir()
    with subtests.test(case="no tokenizer"), fails(CheckpointError, tmp_path / "empty", "no tokenizer"):
        Vocabulary.read(tmp_path / "empty")
    backend = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(tmp_path / "bpe")
    with subtests.test(case="letters"), fails(CheckpointError, tmp_path / "bpe", "BPE", "SentencePiece"):
        Vocabulary.read(tmp_path / "bpe")
    recipe = make_recipe(small_vocabulary, few_texts, init={"embeddings": "by_pieces"})
    with subtests.test(case="no model"), fails(RecipeError, "recipe", "without model.init"):
        check_recipe(recipe, "recipe")
    recipe = make_recipe(small_vocabulary, few_texts, model={"init": "x"}, init={"embeddings": "y"})
    with subtests.test(case="state"), fails(RecipeError, "recipe", "loop.carry_state"):
        check_recipe(recipe | {"loop": {"carry_state": True}}, "recipe")
    with subtests.test(case="too few"), pytest.raises(ValueError, match="600"):
        applied(small_vocabulary, small_vocabulary, torch.zeros(599, 2))
