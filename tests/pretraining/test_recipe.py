"""Recipes: those of the package load, and a wrong key, value or combination is one error line."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.foundation.errors import RecipeError
from pretraining.objective import all_objectives
from pretraining.objectives.dynamic_mlm import DynamicMlm
from pretraining.objectives.static_mlm_nsp import StaticMlmNsp
from pretraining.recipe import RECIPES, Recipe, find_recipe, read_recipe

Fails = Callable[..., AbstractContextManager[None]]
Write = Callable[[str, str | bytes], Path]

PLACES = ("data.corpus=corpus", "data.tokenizer=vocabulary")
SMALL = """
objective = "dynamic_mlm"
data = { corpus = "corpus", tokenizer = "vocabulary", max_length = 128 }
model = { hidden_size = 64, num_hidden_layers = 2, num_attention_heads = 2 }
loop = { steps = 100, warmup_steps = 10, batch_size = 8 }
"""


@pytest.fixture
def small(write: Write) -> Path:
    return write("small.toml", SMALL)


def test_recipes_come_with_the_package() -> None:
    assert (RECIPES / "mini.toml").is_file()


def test_a_recipe_of_the_package_needs_nothing_but_corpus_and_vocabulary(subtests: pytest.Subtests) -> None:
    for path in sorted(RECIPES.glob("*.toml")):
        with subtests.test(path=path):
            assert find_recipe(path.stem) == path
            recipe = read_recipe(path, PLACES)
            assert (recipe.data.corpus, recipe.data.tokenizer) == ("corpus", "vocabulary")
            objective, config = recipe.objective_parts()
            assert recipe.objective == {"name": objective.name} | config.model_dump()
            assert path.read_text(encoding="utf-8").startswith("#")
            if path.stem == "sample":
                assert read_recipe(path).data.corpus == "sample"
            else:
                with pytest.raises(RecipeError, match="is missing"):
                    read_recipe(path)


def test_every_objective_has_a_recipe_of_either_size() -> None:
    recipes = {path.stem: read_recipe(path, PLACES) for path in RECIPES.glob("*.toml")}
    for width, named in ((256, "mini"), (768, "base")):
        found = {r.objective["name"] for name, r in recipes.items() if r.model.hidden_size == width and named in name}
        assert found == set(all_objectives()), named
    modern = recipes["modernbert-base"]
    assert (modern.model.architecture, modern.model.num_hidden_layers) == ("modernbert", 22)


def test_a_recipe_may_extend_another(write: Write) -> None:
    base = write("base.toml", SMALL + "seed = 4")
    variant = write("variant.toml", 'extends = "base.toml"\nobjective = "gpt"\nmodel = { architecture = "gpt2" }')
    recipe, inherited = read_recipe(variant, ["loop.steps=50"]), read_recipe(base)
    assert (recipe.objective["name"], recipe.model.architecture) == ("gpt", "gpt2")
    assert recipe.model == inherited.model.model_copy(update={"architecture": "gpt2"})
    assert recipe.loop == inherited.loop.model_copy(update={"steps": 50})
    assert (recipe.data, recipe.seed) == (inherited.data, 4)
    whole = write("whole.toml", 'extends = "variant.toml"\nobjective = { name = "dynamic_mlm", mask_rate = 0.3 }')
    assert read_recipe(whole, ["model.architecture=bert"]).objective["mask_rate"] == 0.3
    mini = read_recipe(write("own.toml", 'extends = "mini"'), PLACES)
    assert mini == read_recipe(find_recipe("mini"), PLACES)


def test_a_recipe_that_extends_itself_or_nothing_is_an_error(write: Write, fails: Fails) -> None:
    first = write("first.toml", 'extends = "second.toml"')
    second = write("second.toml", 'extends = "first.toml"')
    with fails(RecipeError, second, "'first.toml' leads back to first.toml"):
        read_recipe(first)
    with fails(RecipeError, "minni", "no such recipe", "'mini'"):
        read_recipe(write("third.toml", 'extends = "minni"'))


def test_a_recipe_may_be_any_file(small: Path) -> None:
    assert find_recipe(str(small)) == small


def test_an_unknown_recipe_names_the_nearest(fails: Fails) -> None:
    with fails(RecipeError, "minni", "no such recipe", "'mini'"):
        find_recipe("minni")


def test_defaults_of_a_recipe_are_the_values_of_the_papers(write: Write) -> None:
    recipe = read_recipe(write("bert.toml", 'objective = "static_mlm_nsp"'), PLACES)
    assert recipe.objective["mask_rate"] == 0.15
    assert (recipe.objective["dupe_factor"], recipe.objective["short_sequence_probability"]) == (10, 0.1)
    model, loop = recipe.model, recipe.loop
    assert (model.hidden_size, model.num_hidden_layers, model.num_attention_heads) == (768, 12, 12)
    assert (loop.steps, loop.batch_size, loop.peak_lr, loop.warmup_steps) == (1_000_000, 256, 1e-4, 10_000)
    assert (loop.adam_beta1, loop.adam_beta2, loop.adam_epsilon, loop.weight_decay) == (0.9, 0.999, 1e-6, 0.01)
    assert (loop.clip, loop.decay) == (1.0, "linear")
    assert (model.hidden_dropout_prob, model.max_position_embeddings, recipe.data.max_length) == (0.1, 512, 512)


def test_the_network_has_the_shape_of_the_recipe(small: Path) -> None:
    model = read_recipe(small).model
    config = model.network_config(vocab_size=123, pad_token_id=1)
    assert (config.vocab_size, config.pad_token_id) == (123, 1)
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers) == (64, 256, 2)
    wide = read_recipe(small, ["model.intermediate_size=100"]).model
    assert wide.network_config(123, 0).intermediate_size == 100


def test_a_recipe_read_again_from_what_was_resolved_is_the_same(small: Path) -> None:
    recipe = read_recipe(small, ["objective.mask_rate=0.2"])
    again = Recipe(**json.loads(json.dumps(recipe.model_dump())))
    assert again == recipe
    assert again.objective == {"name": "dynamic_mlm", "mask_rate": 0.2, "whole_word": False}
    assert again.objective_parts()[1].mask_rate == 0.2


# ---- wrong keys and values ----


def test_a_wrong_key_or_value_is_an_error_with_a_suggestion(
    small: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    for override, what in [
        ("loop.stepps=5", ("unknown key 'loop.stepps'", "'steps'")),
        ("model.hiden_size=64", ("unknown key 'model.hiden_size'", "'hidden_size'")),
        ("data.max_lenght=64", ("unknown key 'data.max_lenght'", "'max_length'")),
        ("sede=5", ("unknown key 'sede'", "'seed'")),
        ("lop.steps=5", ("unknown key 'lop'", "'loop'")),
        ("objective.mask_rat=0.1", ("unknown key 'mask_rat'", "'mask_rate'", "dynamic_mlm")),
        ("objective.dupe_factor=5", ("unknown key 'dupe_factor'", "dynamic_mlm")),
        ("objective=dynamic_mln", ("unknown objective 'dynamic_mln'", "'dynamic_mlm'")),
        ("objective.name=static_mlm", ("unknown objective 'static_mlm'", "'static_mlm_nsp'")),
        ("objective.mask_rate=0", ("mask_rate=0",)),
        ("objective.mask_rate=1.0", ("mask_rate=1.0",)),
        ("objective=5", ("objective=5",)),
        ("loop.steps=0", ("loop.steps=0",)),
        ("loop.steps=many", ("loop.steps='many'",)),
        ("loop.decay=quadratic", ("loop.decay='quadratic'", "linear")),
        ("data.max_length=7", ("data.max_length=7",)),
        ("data=5", ("data=5",)),
        ("seed=-1", ("seed=-1",)),
        ("seed=18446744073709551616", ("seed=18446744073709551616",)),  # 2 ** 64
    ]:
        with subtests.test(override=override), fails(RecipeError, small, *what):
            read_recipe(small, [override])


def test_a_recipe_without_an_objective_is_an_error(write: Write, fails: Fails) -> None:
    path = write("empty.toml", "seed = 1")
    with fails(RecipeError, path, "objective", "required"):
        read_recipe(path, PLACES)


def test_an_objective_without_a_name_is_an_error(write: Write, fails: Fails) -> None:
    path = write("nameless.toml", "objective = { mask_rate = 0.2 }")
    with fails(RecipeError, path, "objective.name", "dynamic_mlm", "static_mlm_nsp"):
        read_recipe(path, PLACES)


def test_a_file_that_is_not_toml_is_an_error(write: Write, fails: Fails, subtests: pytest.Subtests) -> None:
    for content in ["objective = ", "objective = 'a'\nobjective = 'b'", b"\xb0\xa1"]:
        with subtests.test(content=content):
            path = write("bad.toml", content)
            with fails(RecipeError, path, "not a TOML file"):
                read_recipe(path)


def test_a_missing_recipe_is_an_error(tmp_path: Path, fails: Fails) -> None:
    with fails(RecipeError, tmp_path / "none.toml", "No such file"):
        read_recipe(tmp_path / "none.toml")


# ---- values that contradict each other ----


def test_contradictory_values_are_an_error(small: Path, fails: Fails, subtests: pytest.Subtests) -> None:
    for overrides, what, mended in [
        (["model.num_attention_heads=3"], ("hidden_size=64", "num_attention_heads=3"), "model.hidden_size=66"),
        (
            ["model.max_position_embeddings=127"],
            ("max_length=128", "max_position_embeddings=127"),
            "data.max_length=127",
        ),
        (["loop.warmup_steps=100"], ("warmup_steps=100", "steps=100"), "loop.steps=101"),
        (["loop.warmup_steps=200", "loop.decay=cosine"], ("warmup_steps=200", "steps=100"), "loop.decay=constant"),
        (["loop.micro_batch_size=9"], ("micro_batch_size=9", "batch_size=8"), "loop.batch_size=9"),
        (
            ["objective=static_mlm_nsp", "objective.max_predictions=129"],
            ("max_predictions=129", "max_length=128"),
            "objective.max_predictions=128",
        ),
        (["data.corpus="], ("data.corpus is missing", "python -m corpora.build"), "data.corpus=folder"),
        (["data.tokenizer="], ("data.tokenizer is missing", "python -m pretraining.vocab"), "data.corpus=sample"),
    ]:
        with subtests.test(overrides=overrides):
            with fails(RecipeError, small, *what):
                read_recipe(small, overrides)
            read_recipe(small, [*overrides, mended])


# ---- --set ----


def test_a_value_set_on_the_command_line_wins(small: Path, subtests: pytest.Subtests) -> None:
    for override, section, key, value in [
        ("loop.steps=1_000", "loop", "steps", 1000),
        ("loop.peak_lr=1e-3", "loop", "peak_lr", 1e-3),
        ("loop.compile=true", "loop", "compile", True),
        ("loop.decay=cosine", "loop", "decay", "cosine"),
        ('loop.decay="cosine"', "loop", "decay", "cosine"),
        ("data.corpus=/somewhere/말뭉치 1", "data", "corpus", "/somewhere/말뭉치 1"),
        ("data.corpus=a=b", "data", "corpus", "a=b"),
        ("model.init=", "model", "init", ""),
    ]:
        with subtests.test(override=override):
            assert getattr(getattr(read_recipe(small, [override]), section), key) == value


def test_the_last_of_two_values_wins(small: Path) -> None:
    recipe = read_recipe(small, ["seed=1", "seed=2", "data={ corpus = 'other', tokenizer = 'v' }"])
    assert recipe.seed == 2
    assert (recipe.data.corpus, recipe.data.max_length) == ("other", 512)


def test_the_objective_can_be_set_by_its_name(write: Write, subtests: pytest.Subtests) -> None:
    for objective in ['"dynamic_mlm"', '{ name = "dynamic_mlm", mask_rate = 0.3 }']:
        with subtests.test(objective=objective):
            path = write("r.toml", SMALL.replace('"dynamic_mlm"', objective))
            kind, config = read_recipe(path, ["objective=static_mlm_nsp", "objective.dupe_factor=3"]).objective_parts()
            assert kind is StaticMlmNsp
            assert (config.model_dump()["dupe_factor"], config.mask_rate) == (3, 0.15)


def test_a_setting_of_the_objective_can_be_set(write: Write, subtests: pytest.Subtests) -> None:
    for objective in ['"dynamic_mlm"', '{ name = "dynamic_mlm" }']:
        with subtests.test(objective=objective):
            path = write("r.toml", SMALL.replace('"dynamic_mlm"', objective))
            kind, config = read_recipe(path, ["objective.whole_word=true"]).objective_parts()
            assert kind is DynamicMlm
            assert config.whole_word is True


def test_a_malformed_override_is_an_error(small: Path, fails: Fails, subtests: pytest.Subtests) -> None:
    for override in ["loop.steps", "", "=5", "loop.steps:5"]:
        told = ("--set", f"'{override}' is not KEY=VALUE", "--set loop.steps=1000")
        with subtests.test(override=override), fails(RecipeError, *told):
            read_recipe(small, [override])


def test_an_override_inside_a_value_is_an_error(write: Write, fails: Fails, subtests: pytest.Subtests) -> None:
    for override in ["seed.value=5", "loop.steps.value=5"]:
        with subtests.test(override=override), fails(RecipeError, "--set", "is not a section"):
            read_recipe(write("r.toml", f"seed = 1\n{SMALL}"), [override])


def test_a_folder_whose_name_is_a_value_is_put_in_quotes(small: Path, fails: Fails, subtests: pytest.Subtests) -> None:
    for name in ["2024", "true"]:
        with subtests.test(name=name):
            assert read_recipe(small, [f"data.corpus='{name}'"]).data.corpus == name
            with fails(RecipeError, small, f"data.corpus={name.capitalize()}", "string"):
                read_recipe(small, [f"data.corpus={name}"])
