"""A recipe's data: from a corpus to rows, each step done once, the same bytes however many processes do it."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

import pretraining.data.tokens
import pretraining.training.dataset
from corpora.build import BuildConfig, build
from corpora.cleaning import text_digest
from corpora.foundation.errors import CheckpointError, DataError
from pretraining.data.tokens import tokenize_corpus
from pretraining.objective import ObjectiveConfig, RowLayout
from pretraining.objectives.dynamic_mlm import DynamicMlm
from pretraining.objectives.static_mlm_nsp import StaticMlmNsp, StaticMlmNspConfig
from pretraining.recipe import Recipe
from pretraining.training.dataset import Prepared, make_rows, open_tokens, prepare, special_ids

Fails = Callable[..., AbstractContextManager[None]]
Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def recipe(corpus: Path, vocabulary: Path) -> Callable[..., Recipe]:
    """Return a function that makes a recipe for the corpus in shards, with changes in the section `data`."""

    def make(objective: dict[str, Any] | None = None, seed: int = 0, **data: Any) -> Recipe:
        return Recipe(
            objective=objective or {"name": "dynamic_mlm"},
            data={"corpus": str(corpus), "tokenizer": str(vocabulary), "max_length": 64} | data,
            loop={"batch_size": 16},
            seed=seed,
        )

    return make


PAIRS = {"name": "static_mlm_nsp", "dupe_factor": 2}


def shards_in(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in sorted(cache.rglob("*.arrow"))}


def folders_in(cache: Path, start: str = "") -> set[str]:
    return {path.name for path in cache.iterdir() if path.name.startswith(start)}


def ids_of(prepared: Prepared) -> list[int]:
    return [piece for shard in prepared.train.corpus.shards for piece in shard.ids.values.tolist()]


# ---- from corpus to rows ----


def test_the_sample_needs_no_preparation(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, objective in enumerate([{"name": "dynamic_mlm"}, PAIRS]):
        with subtests.test(objective=objective):
            folder = tmp_path / str(number)
            folder.mkdir()
            recipe = Recipe(objective=objective, data={"corpus": "sample", "max_length": 128}, loop={"batch_size": 4})
            prepared = prepare(recipe, folder, num_workers=1)
            assert len(folders_in(folder)) == 6  # corpus, vocabulary, tokens and rows of both splits
            assert 90 < prepared.num_documents < 120
            assert prepared.num_tokens == len(ids_of(prepared)) > 20_000
            assert prepared.held_out is not None
            assert 0 < len(prepared.held_out.corpus) < len(prepared.train.corpus)
            tokenizer = Tokenizer.from_file(str(prepared.tokenizer / "tokenizer.json"))
            batch = prepared.train.micro_batches(0, process=0, num_processes=1, size=4)[0]
            assert len(batch["input_ids"]) == 4
            text = tokenizer.decode(batch["input_ids"][0].tolist(), skip_special_tokens=False)
            assert text.startswith("[CLS]")
            assert "[MASK]" in text
            assert "[SEP]" in text


def test_what_was_prepared_is_kept_and_opened_again(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(recipe(), tmp_path, num_workers=1)
    before = shards_in(tmp_path)

    def refuse(*_: object) -> None:
        pytest.fail("made again")

    monkeypatch.setattr(pretraining.data.tokens, "write_shard", refuse)
    monkeypatch.setattr(pretraining.training.dataset, "write_shard", refuse)
    second = prepare(recipe(), tmp_path, num_workers=4)
    assert second.digest == first.digest
    assert shards_in(tmp_path) == before
    assert ids_of(second) == ids_of(first)


def test_other_settings_have_other_rows_of_the_same_tokens(
    recipe: Callable[..., Recipe], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, change in enumerate(
        [
            {"seed": 1},
            {"max_length": 80},
            {"isolate_documents": False},
            {"objective": PAIRS},
        ]
    ):
        with subtests.test(change=change):
            folder = tmp_path / str(number)
            folder.mkdir()
            first, other = (prepare(recipe(**changes), folder, num_workers=1) for changes in ({}, change))
            assert first.digest != other.digest
            assert len(folders_in(folder, "tokens-")) == 2
            assert len(folders_in(folder, "rows-")) == 4
            again = prepare(recipe(), folder, num_workers=1)
            assert again.digest == first.digest
            assert ids_of(again) == ids_of(first)


def test_objectives_that_differ_in_masks_alone_share_their_rows(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    objectives: list[Any] = [
        {"name": "dynamic_mlm"},
        {"name": "dynamic_mlm", "mask_rate": 0.3},
        {"name": "replaced_token", "mlm_rate": 0.1},
    ]
    for objective in objectives:
        prepare(recipe(objective=objective), tmp_path, num_workers=1)
    assert len(folders_in(tmp_path, "rows-")) == 2
    for name in ("bart", "t5"):
        prepare(recipe(objective={"name": name}), tmp_path, num_workers=1)
    assert len(folders_in(tmp_path, "rows-")) == 4


def test_an_interrupted_preparation_is_completed_with_the_same_bytes(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    prepare(recipe(PAIRS), tmp_path, num_workers=1)
    before = shards_in(tmp_path)
    assert len(before) == 10
    for name in list(before)[::3]:
        (tmp_path / name).unlink()
    prepare(recipe(PAIRS), tmp_path, num_workers=1)
    assert shards_in(tmp_path) == before


@pytest.mark.slow
def test_four_processes_write_the_same_bytes_as_one(corpus: Path, vocabulary: Path, tmp_path: Path) -> None:
    tokenizer_json = vocabulary / "tokenizer.json"
    layout = RowLayout(64, isolate_documents=True, seed=5, specials=special_ids(tokenizer_json))
    objective = StaticMlmNsp(StaticMlmNspConfig(dupe_factor=2), layout)
    for num_workers in (1, 4):
        cache = tmp_path / str(num_workers)
        tokens, digest = tokenize_corpus(corpus, tokenizer_json, cache, num_workers=num_workers)
        rows, _ = make_rows(objective, tokens, digest, cache, split="train", num_workers=num_workers)
        assert len(rows.shards) == len(tokens.shards) == 4
    alone, together = shards_in(tmp_path / "1"), shards_in(tmp_path / "4")
    assert len(alone) == 8
    assert alone == together


def test_every_document_is_in_the_rows_whole(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    prepared = prepare(recipe(), tmp_path, num_workers=1)
    tokens = open_tokens(next(path for path in tmp_path.glob("tokens-train-*")))
    assert prepared.num_documents == len(tokens)
    for shard, rows in zip(tokens.shards, prepared.train.corpus.shards, strict=True):
        ids = rows.ids.values
        assert sorted(ids[ids > 4].tolist()) == sorted(shard.ids.values[shard.ids.values > 4].tolist())
        num_sequences = len(rows.lengths.values)
        assert len(ids) == len(shard.ids.values) + 2 * num_sequences


def test_held_out_rows_are_one_pass_over_held_out_documents(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    prepared = prepare(recipe({"name": "static_mlm_nsp", "dupe_factor": 4}), tmp_path, num_workers=1)
    assert prepared.held_out is not None
    assert prepared.held_out.objective.config.dupe_factor == 1
    assert prepared.train.objective.config.dupe_factor == 4
    tokens = open_tokens(next(path for path in tmp_path.glob("tokens-held-out-*")))
    num_tokens = sum(len(shard.ids.values) for shard in tokens.shards)
    num_fed = sum(len(shard.ids.values) for shard in prepared.held_out.corpus.shards)
    assert 0.8 * num_tokens < num_fed < 1.6 * num_tokens


def test_held_out_documents_that_make_no_row_are_no_held_out_rows(
    recipe: Callable[..., Recipe], tmp_path: Path, write: Write
) -> None:
    # One eojeol makes no pair. The digest of a text decides whether it is held out.
    single, whole = ([f"기사는{number}번{end}" for number in range(40)] for end in ("", " 실렸다. 다음 글도 있다."))
    texts = [t for t in single if text_digest(t) < 1 << 63][:5] + [t for t in whole if text_digest(t) >= 1 << 63][:5]
    build([write("news.txt", "\n\n".join(texts))], tmp_path / "corpus", BuildConfig(held_out=0.5))
    prepared = prepare(recipe(PAIRS, corpus=str(tmp_path / "corpus")), tmp_path / "cache", num_workers=1)
    tokens, _ = tokenize_corpus(
        tmp_path / "corpus", prepared.tokenizer / "tokenizer.json", tmp_path / "cache", split="held-out"
    )
    assert len(tokens) == 5
    assert prepared.num_documents == 5
    assert prepared.held_out is None


def test_a_single_file_is_a_corpus_without_held_out_rows(
    recipe: Callable[..., Recipe], tmp_path: Path, write: Write, subtests: pytest.Subtests
) -> None:
    for number, objective in enumerate([{"name": "dynamic_mlm"}, PAIRS]):
        with subtests.test(objective=objective):
            folder = tmp_path / str(number)
            folder.mkdir()
            path = write("news.txt", "금리가 올랐다. 총재는 말을 아꼈다.\n\n비가 온다. 우산을 챙기자.\n")
            prepared = prepare(recipe(objective, corpus=str(path)), folder / "cache", num_workers=2)
            assert prepared.held_out is None
            assert prepared.num_documents == 2
            assert len(prepared.train.corpus) > 0
            assert folders_in(folder / "cache", "rows-held-out") == set()


def test_another_text_in_the_same_file_has_other_rows(
    recipe: Callable[..., Recipe], tmp_path: Path, write: Write
) -> None:
    prepared = [
        prepare(recipe(corpus=str(write("news.txt", text))), tmp_path / "cache", num_workers=1)
        for text in ("금리가 올랐다.", "비가 온다.")
    ]
    assert prepared[0].digest != prepared[1].digest
    assert ids_of(prepared[0]) != ids_of(prepared[1])


# ---- corpora and vocabularies that do not suit ----


def test_a_corpus_without_text_is_an_error(
    recipe: Callable[..., Recipe], tmp_path: Path, write: Write, fails: Fails, subtests: pytest.Subtests
) -> None:
    for number, (content, what) in enumerate(
        [("\u200b\n\n\ufeff\n", "contains no text"), (" \n\n", "no documents"), ("", "zero bytes")]
    ):
        with subtests.test(content=content):
            folder = tmp_path / str(number)
            folder.mkdir()
            path = write("news.txt", content)
            with fails(DataError, path, what):
                prepare(recipe(corpus=str(path)), folder / "cache", num_workers=1)


def test_a_corpus_without_a_row_is_an_error(
    recipe: Callable[..., Recipe], tmp_path: Path, write: Write, fails: Fails
) -> None:
    path = write("news.txt", "금리\n\n비\n")  # no document has two eojeol to make a pair of
    with fails(DataError, path, "no text for a single row"):
        prepare(recipe(PAIRS, corpus=str(path)), tmp_path / "cache", num_workers=1)


def test_a_single_document_makes_no_pairs(
    recipe: Callable[..., Recipe], tmp_path: Path, write: Write, fails: Fails
) -> None:
    path = write("news.txt", "금리가 올랐다. 총재는 말을 아꼈다.\n")
    with fails(DataError, "corpus", "one document"):
        prepare(recipe(PAIRS, corpus=str(path)), tmp_path / "cache", num_workers=1)


def test_a_missing_corpus_or_vocabulary_is_an_error(
    recipe: Callable[..., Recipe], tmp_path: Path, fails: Fails
) -> None:
    with fails(DataError, tmp_path / "none", "no such"):
        prepare(recipe(corpus=str(tmp_path / "none")), tmp_path / "cache", num_workers=1)
    with fails(CheckpointError, tmp_path / "none" / "tokenizer.json", "no such file"):
        prepare(recipe(tokenizer=str(tmp_path / "none")), tmp_path / "cache", num_workers=1)


def test_damaged_rows_are_an_error(recipe: Callable[..., Recipe], tmp_path: Path, fails: Fails) -> None:
    prepare(recipe(), tmp_path, num_workers=1)
    shard = sorted(tmp_path.glob("rows-train-*/*.arrow"))[2]
    shard.write_bytes(shard.read_bytes()[:-400])
    with fails(CheckpointError, shard, "damaged", "delete it"):
        prepare(recipe(), tmp_path, num_workers=1)


# ---- the ids of a vocabulary ----


def test_random_tokens_are_neither_special_nor_unused(vocabulary: Path) -> None:
    specials = special_ids(vocabulary / "tokenizer.json")
    assert (specials.pad, specials.cls, specials.sep, specials.mask) == (0, 2, 3, 4)
    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    assert [tokenizer.id_to_token(number) for number in (5, 14)] == ["[unused0]", "[unused9]"]
    assert specials.ordinary.tolist() == list(range(15, tokenizer.get_vocab_size()))
    assert specials.vocab_size == tokenizer.get_vocab_size()


def test_inputs_of_real_text_contain_no_unused_token(
    corpus: Path, vocabulary: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, (whole_word, kind) in enumerate(itertools.product([False, True], [DynamicMlm, StaticMlmNsp])):
        with subtests.test(whole_word=whole_word, kind=kind):
            folder = tmp_path / str(number)
            folder.mkdir()
            layout = RowLayout(64, isolate_documents=True, seed=0, specials=special_ids(vocabulary / "tokenizer.json"))
            config = kind.settings(mask_rate=0.5, whole_word=whole_word)
            assert isinstance(config, ObjectiveConfig)
            tokens, digest = tokenize_corpus(corpus, vocabulary / "tokenizer.json", folder)
            rows, _ = make_rows(kind(config, layout), tokens, digest, folder, split="train", num_workers=1)
            source = pretraining.training.dataset.BatchSource(rows, kind(config, layout), 1)
            tensors = source.tensors(np.arange(50), np.zeros(50, np.int64))
            fed = tensors["input_ids"].numpy().ravel()
            assert not ((fed > 4) & (fed < 15)).any()
            assert (fed[tensors["masked_positions"].numpy()] == 4).mean() > 0.7
            assert (tensors["masked_ids"].numpy() != 4).all()
