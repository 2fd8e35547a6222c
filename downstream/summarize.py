"""Summaries of Korean news: the most informative sentences, word for word.

    python -m downstream.summarize train corpora/sample/news.jsonl --pairs DATA/corpus/boddari_wikinews.csv --out DIR
    python -m downstream.summarize evaluate corpora/sample/news.jsonl --split dev
    python -m downstream.summarize ablate corpora/sample/news.jsonl

Abstractive summaries are out of scope: what is printed under a newspaper's name should be in the article.

>>> article = "새 다리가 열렸다. 시는 다음 달 버스 노선을 바꿀 계획이다. 주민들은 반겼다. 하늘은 맑았다."
>>> str(summarize(article, sentences=1, title="새 다리 개통, 버스 노선도 바뀐다"))
'시는 다음 달 버스 노선을 바꿀 계획이다.'
"""

import functools

from downstream.summaries.summarizer import (
    BUNDLED,
    RUNTIMES,
    Excluded,
    Options,
    Summarizer,
    Summary,
    SummarySentence,
    Titled,
)

__all__ = [
    "BUNDLED",
    "RUNTIMES",
    "Excluded",
    "Options",
    "Summarizer",
    "Summary",
    "SummarySentence",
    "Titled",
    "main",
    "summarize",
]


@functools.cache
def bundled_summarizer() -> Summarizer:
    """Return the summarizer that comes with the package, loaded once."""
    return Summarizer.load()


def summarize(
    article: str,
    sentences: int = 3,
    *,
    ratio: float | None = None,
    max_chars: int | None = None,
    title: str = "",
    focus: str = "",
    explain: bool = False,
) -> Summary:
    """Summarize an article with the bundled model, offline; arguments and result as in `Summarizer.summarize`.

    Raises:
        ValueError: an argument is invalid.
    """
    return bundled_summarizer().summarize(
        article, sentences, ratio=ratio, max_chars=max_chars, title=title, focus=focus, explain=explain
    )


def main(argv: list[str] | None = None) -> int:
    """Train, evaluate or ablate a summarizer from the command line."""
    from downstream.summaries.training import main as run  # NumPy and pydantic are not needed for the import

    return run(argv)


if __name__ == "__main__":
    from corpora.foundation.command import run_command

    run_command(main)
