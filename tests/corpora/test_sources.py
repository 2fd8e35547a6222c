"""Corpus recipes: sources with their licences, and evaluation data that is sure to be kept out."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.build import build, main, recipe_inputs
from corpora.cleaning import evaluation_texts
from corpora.corpus import read_corpus
from corpora.foundation.errors import DataError, RecipeError, UsageError
from corpora.sources import RECIPES, Source, read_corpus_recipe

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

RECIPE = """
licence = "CC-BY-SA-4.0"
exclude = ["tests/*.txt"]
held_out = 0.0

[[sources]]
path = "reviews.txt"
text_unit = "line"
title = "reviews"
origin = "our own"
licence = "CC0-1.0"

[[sources]]
path = "news.csv"
fields = { text = "기사본문" }
share = 0.999
title = "news"
origin = "our own"
licence = "CC-BY-SA-4.0"
"""


@pytest.fixture
def root(write: Write) -> Path:
    write("root/reviews.txt", "배우의 연기가 정말 좋았던 영화\n다시 보고 싶은 마음이 드는 영화\n")
    write("root/news.csv", "기사본문\n시의회가 내년 예산안을 오늘 의결했다.\n")
    return write("root/tests/reviews.txt", "다시 보고 싶은 마음이 드는 영화\n").parents[1]


def test_a_recipe_names_its_sources_and_what_to_keep_out(root: Path, write: Write) -> None:
    recipe = read_corpus_recipe(str(write("ours.toml", RECIPE)))
    sources, config = recipe_inputs(recipe, root)
    assert sources == [
        Source(root / "reviews.txt", "line"),
        Source(root / "news.csv", None, {"text": "기사본문"}, 0.999),
    ]
    assert config.exclude == (root / "tests" / "reviews.txt",)
    assert [entry.licence for entry in recipe.sources] == ["CC0-1.0", "CC-BY-SA-4.0"]


def test_the_command_builds_what_a_recipe_says(
    root: Path, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "corpus"
    assert main(["--recipe", str(write("ours.toml", RECIPE)), "--data", str(root), "--out", str(out)]) == 0
    assert "1 excluded" in capsys.readouterr().out
    texts = [document.text for document in read_corpus(out)]
    assert texts == ["배우의 연기가 정말 좋았던 영화", "시의회가 내년 예산안을 오늘 의결했다."]


def test_the_sentences_of_a_source_may_be_documents(root: Path, write: Write, tmp_path: Path) -> None:
    write(
        "root/news.csv",
        "제목,기사본문\n시의회 예산 의결,시의회가 내년 예산안을 오늘 의결했다. 시장은 이를 반겼다.\n"
        "하천 정비,강변의 길이 넓어진다.\n빈 기사,\n",
    )
    path = write("ours.toml", RECIPE.replace('title = "news"', 'title = "news"\nsentences = true'))
    sources, config = recipe_inputs(read_corpus_recipe(str(path)), root)
    assert [source.sentences for source in sources] == [False, True]
    manifest = build(sources, tmp_path / "corpus", config)
    documents = [document for document in read_corpus(tmp_path / "corpus") if document.source == "news.csv"]
    assert [(document.id, document.title, document.text) for document in documents] == [
        ("news.csv:2/0", "", "시의회 예산 의결"),
        ("news.csv:2/1", "", "시의회가 내년 예산안을 오늘 의결했다."),
        ("news.csv:2/2", "", "시장은 이를 반겼다."),
        ("news.csv:3/0", "", "하천 정비"),
        ("news.csv:3/1", "", "강변의 길이 넓어진다."),
    ]
    for record in manifest.sources:
        assert record.num_read == record.num_kept + record.num_held_out + sum(record.dropped.values())


def test_an_error_for_a_missing_source_names_its_publisher(root: Path, write: Write, fails: Fails) -> None:
    recipe = read_corpus_recipe(str(write("ours.toml", RECIPE)))
    (root / "news.csv").unlink()
    with fails(DataError, root / "news.csv", "news", "our own"):
        recipe_inputs(recipe, root)


def test_evaluation_data_that_is_not_there_cannot_be_kept_out(root: Path, write: Write, fails: Fails) -> None:
    recipe = read_corpus_recipe(str(write("ours.toml", RECIPE)))
    (root / "tests" / "reviews.txt").unlink()
    with fails(DataError, root / "tests/*.txt", "cannot be excluded"):
        recipe_inputs(recipe, root)


def test_a_misspelt_recipe_and_a_misspelt_key_are_named(write: Write, fails: Fails) -> None:
    with fails(RecipeError, "open_koraen", "no such recipe", "open_korean"):
        read_corpus_recipe("open_koraen")
    path = write("ours.toml", RECIPE.replace("origin", "orgin"))
    with fails(RecipeError, path, "orgin"):
        read_corpus_recipe(str(path))


def test_a_recipe_and_settings_of_ones_own_contradict_each_other(root: Path, tmp_path: Path, fails: Fails) -> None:
    common = ["--data", str(root), "--out", str(tmp_path / "out")]
    with fails(UsageError, "--recipe", "--min-chars"):
        main(["--recipe", "open_korean", "--min-chars", "7", *common])
    with fails(UsageError, "--recipe", "SOURCE"):
        main(["reviews.txt", "--recipe", "open_korean", *common])
    with fails(UsageError, "SOURCE", "none given"):
        main(["--out", str(tmp_path / "out")])


def test_every_source_of_our_recipes_may_be_passed_on(subtests: pytest.Subtests) -> None:
    for path in sorted(RECIPES.glob("*.toml")):
        with subtests.test(path=path):
            recipe = read_corpus_recipe(path.stem)
            free = ("CC0", "CC-BY", "KOGL-1.0", "public domain", "MIT", "Apache-2.0", "Copyright Act of Korea")
            assert all(entry.licence.startswith(free) for entry in recipe.sources)
            assert not any("-NC" in entry.licence or "-ND" in entry.licence for entry in recipe.sources)
            assert "nsmc/ratings_test.txt" in recipe.exclude


@pytest.mark.real_data
def test_our_recipe_finds_its_files_and_builds_from_the_small_ones(real_data: Path, tmp_path: Path) -> None:
    recipe = read_corpus_recipe("open_korean")
    sources, config = recipe_inputs(recipe, real_data)
    assert len(sources) == len(recipe.sources)
    assert {path.name for path in config.exclude} >= {
        "ratings_test.txt",
        "KorQuAD_v1.0_dev.json",
        "klue-nli-v1.1_dev.json",
    }
    assert all(len(list(evaluation_texts(path))) > 0 for path in config.exclude)
    small = [source for source in sources if source.path.name in {"boddari_wikinews.csv", "news_titles_kocohub.txt.gz"}]
    nli = tuple(path for path in config.exclude if path.name.startswith("klue-nli"))
    manifest = build(small, tmp_path / "corpus", config.model_copy(update={"exclude": nli}))
    assert sum(source.num_kept for source in manifest.sources) > 2_000
    # The premises of KLUE-NLI were taken from Wikinews, among others.
    assert sum(source.dropped.get("excluded", 0) for source in manifest.sources) > 50
