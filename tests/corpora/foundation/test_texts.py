"""Every language has the same texts, which name the same values."""

import string

import pytest

from corpora.foundation.texts import LANGUAGES, Texts, catalogue, spreadsheet_text


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_all_languages_have_the_same_keys() -> None:
    keys = {language: set(catalogue(language)) for language in LANGUAGES}
    assert keys["ko"] == keys["en"]
    assert keys["ko"]


def test_a_text_names_the_same_values_in_every_language() -> None:
    ko, en = catalogue("ko"), catalogue("en")
    assert [key for key in ko if fields(ko[key]) != fields(en[key])] == []


def test_values_are_filled_in_and_sections_shorten_keys() -> None:
    assert Texts("en", "demo")("summary.which", count=3) == Texts("en")("demo.summary.which", count=3)
    assert "3" in Texts("ko", "demo")("summary.which", count=3)


def test_a_missing_text_is_an_error_unless_there_is_another() -> None:
    texts = Texts("ko", "demo")
    assert texts.get("label.nobody", "own label") == "own label"
    with pytest.raises(KeyError, match=r"demo\.label\.nobody"):
        texts("label.nobody")


def test_no_cell_of_a_table_is_a_formula() -> None:
    for text in ("=1+1", "+1", "-1", "@a", "\n=1+1", " \t=1+1", "\t1", "\r1", "\uff1d1+1", "\uff0d1", "\uff20a"):
        assert spreadsheet_text(text) == f"'{text}", text
    for text in ("", "제목", "1 = 1", "a+b", "“=1”", " "):
        assert spreadsheet_text(text) == text, text
