"""Fixtures for tests of summaries."""

from collections.abc import Callable, Sequence

import pytest

from corpora.foundation.files import SAMPLE_ROOT
from downstream.summaries.articles import Article, join_sentences
from downstream.summaries.labelled import read_labelled


@pytest.fixture(scope="session")
def sample() -> list[Article]:
    """Return the embedded articles with their editors' choices."""
    return list(read_labelled(SAMPLE_ROOT / "news.jsonl"))


@pytest.fixture(scope="session")
def article_of() -> Callable[..., Article]:
    """Return a function that builds an article from paragraphs of sentences."""

    def build(*paragraphs: Sequence[str], chosen: Sequence[int] = (), group: str = "g", title: str = "") -> Article:
        text, sentences = join_sentences(paragraphs)
        return Article(text, sentences, title=title, extractive=tuple(chosen), group=group)

    return build
