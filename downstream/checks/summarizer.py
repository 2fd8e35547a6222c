"""Checks of a summarizer: slices, limits, options, and texts as they come from newsrooms.

check_summarizer(Summarizer.load(folder))
"""

import itertools
import time
import unicodedata
from collections.abc import Iterator
from typing import Any, Protocol

from corpora.documents import Document
from corpora.foundation.checks import CheckResult, Checks, OnFail
from downstream.summaries.summarizer import Summary

SUMMARIZER_CHECKS = Checks("summarizer")
ARTICLE = (
    "[서울=물빛통신] 김하늘 기자 = 물빛시가 새 다리를 24일 열었다.\n\n"
    "시는 다음 달부터 버스 노선 네 개를 다리로 돌린다고 밝혔다. 공사에는 3년 동안 412억 원이 들었다. "
    "시장은 “출근 시간이 15분 줄어든다. 주민의 오랜 바람이었다.”라고 말했다.\n"
    "주민들은 반겼다. 하지만 다리 아래 상인들은 손님이 줄까 걱정한다. "
    "시는 상인을 위한 주차장을 내년 3월까지 짓겠다고 약속했다. 전문가들은 교통량을 반년마다 재야 한다고 조언한다.\n"
    "무단 전재 및 재배포 금지"
)
TITLE = "물빛시 새 다리 열려…버스 노선도 바뀐다"
SENTENCE = "시는 다음 달부터 버스 노선을 바꾼다고 24일 밝혔다."
LONG_SENTENCES = 400
MAX_LONG_S = 30.0


class SummarizerLike(Protocol):
    """What is checked: the two methods of `downstream.summarize.Summarizer`."""

    def summarize(self, article: str, sentences: int = 3, **options: Any) -> Summary:
        """Summarize one article."""

    def summarize_many(self, articles: Any, sentences: int = 3, **options: Any) -> Iterator[Summary]:
        """Summarize articles, one after another."""


def check_summarizer(summarizer: SummarizerLike, *, name: str = "", on_fail: OnFail = "raise") -> list[CheckResult]:
    """Check a summarizer.

    Args:
        summarizer: a loaded one.
        name: used in messages; default: its class.
        on_fail: `raise` at the first fault, `warn`, or `return`.

    Raises:
        CheckFailedError: a check failed.
    """
    return SUMMARIZER_CHECKS.run(summarizer, name or type(summarizer).__name__, on_fail)


def _assert_slices(article: str, summary: Summary) -> None:
    for sentence in summary.sentences:
        assert article[sentence.start : sentence.end] == sentence.text, f"{sentence.text!r:.60} is no slice"
        assert sentence.text.strip(), "a blank sentence"


def _refuses(summarizer: SummarizerLike, article: Any, **options: Any) -> None:
    try:
        summarizer.summarize(article, **options)
    except ValueError:
        return
    raise AssertionError(f"{options or type(article).__name__} is accepted")


# --- what a summary is ------------------------------------------------------------------------------------------------


@SUMMARIZER_CHECKS.add
def sentences_are_slices(summarizer: SummarizerLike) -> None:
    """Every sentence is an exact slice of the article."""
    summary = summarizer.summarize(ARTICLE)
    assert summary.sentences
    _assert_slices(ARTICLE, summary)


@SUMMARIZER_CHECKS.add
def sentences_are_in_order(summarizer: SummarizerLike) -> None:
    """Sentences come in the order of the article and do not overlap."""
    found = summarizer.summarize(ARTICLE, 5).sentences
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))
    assert all(a.index < b.index for a, b in itertools.pairwise(found))


@SUMMARIZER_CHECKS.add
def scores_are_probabilities(summarizer: SummarizerLike) -> None:
    """Scores lie between 0 and 1."""
    assert all(0 <= sentence.score <= 1 for sentence in summarizer.summarize(ARTICLE).sentences)


@SUMMARIZER_CHECKS.add
def text_is_one_sentence_a_line(summarizer: SummarizerLike) -> None:
    """`str()` has a line for each sentence."""
    summary = summarizer.summarize(ARTICLE)
    assert len(str(summary).splitlines()) == len(summary.sentences)


@SUMMARIZER_CHECKS.add
def furniture_is_left_out(summarizer: SummarizerLike) -> None:
    """Copyright notices are in no summary."""
    assert "무단 전재" not in str(summarizer.summarize(ARTICLE, 20))


# --- options ----------------------------------------------------------------------------------------------------------


@SUMMARIZER_CHECKS.add
def number_is_a_limit(summarizer: SummarizerLike) -> None:
    """No more sentences come than are asked for."""
    for number in (1, 2, 4):
        assert 1 <= len(summarizer.summarize(ARTICLE, number).sentences) <= number, f"sentences={number}"


@SUMMARIZER_CHECKS.add
def more_than_there_are_is_no_error(summarizer: SummarizerLike) -> None:
    """Asking for more sentences than there are gives those there are."""
    assert len(summarizer.summarize(ARTICLE, 100).sentences) <= 12


@SUMMARIZER_CHECKS.add
def summaries_are_nested(summarizer: SummarizerLike) -> None:
    """A longer summary is not shorter."""
    lengths = [len(summarizer.summarize(ARTICLE, number).sentences) for number in (1, 2, 3, 4)]
    assert lengths == sorted(lengths)


@SUMMARIZER_CHECKS.add
def characters_are_a_limit(summarizer: SummarizerLike) -> None:
    """With `max_chars`, a summary is not longer."""
    for limit in (40, 80, 200):
        text = "".join(sentence.text for sentence in summarizer.summarize(ARTICLE, 5, max_chars=limit).sentences)
        assert len(text) <= limit, f"max_chars={limit}: {len(text)}"


@SUMMARIZER_CHECKS.add
def ratio_is_a_share(summarizer: SummarizerLike) -> None:
    """With `ratio`, a larger share gives no fewer sentences."""
    few, many = (len(summarizer.summarize(ARTICLE, ratio=ratio).sentences) for ratio in (0.2, 0.8))
    assert 1 <= few <= many


@SUMMARIZER_CHECKS.add
def title_is_accepted(summarizer: SummarizerLike) -> None:
    """A title may be given, and is never part of the summary."""
    assert TITLE not in str(summarizer.summarize(ARTICLE, title=TITLE))


@SUMMARIZER_CHECKS.add
def focus_is_accepted(summarizer: SummarizerLike) -> None:
    """A focus may be given."""
    _assert_slices(ARTICLE, summarizer.summarize(ARTICLE, 1, focus="상인"))


@SUMMARIZER_CHECKS.add
def explanation_has_every_candidate(summarizer: SummarizerLike) -> None:
    """With `explain`, every chosen sentence is among the candidates, which are slices too."""
    summary = summarizer.summarize(ARTICLE, explain=True)
    spans = {(sentence.start, sentence.end) for sentence in summary.candidates}
    assert {(sentence.start, sentence.end) for sentence in summary.sentences} <= spans
    assert all(ARTICLE[sentence.start : sentence.end] == sentence.text for sentence in summary.candidates)


@SUMMARIZER_CHECKS.add
def invalid_numbers_are_refused(summarizer: SummarizerLike) -> None:
    """Zero sentences, shares above one and negative lengths are a ValueError."""
    for options in ({"sentences": 0}, {"sentences": -1}, {"ratio": 0.0}, {"ratio": 1.5}, {"max_chars": 0}):
        _refuses(summarizer, ARTICLE, **options)


@SUMMARIZER_CHECKS.add
def other_types_are_refused(summarizer: SummarizerLike) -> None:
    """Bytes, None and lists are a ValueError."""
    for article in (ARTICLE.encode(), None, [ARTICLE], 3):
        _refuses(summarizer, article)


# --- texts as they come -----------------------------------------------------------------------------------------------


@SUMMARIZER_CHECKS.add
def blank_text_has_no_summary(summarizer: SummarizerLike) -> None:
    """Blank text gives an empty summary."""
    for article in ("", " \n\t ", "\ufeff"):
        assert summarizer.summarize(article).sentences == (), repr(article)


@SUMMARIZER_CHECKS.add
def single_sentence_is_its_own_summary(summarizer: SummarizerLike) -> None:
    """An article of one sentence is summarized by it."""
    [only] = summarizer.summarize(SENTENCE).sentences
    assert only.text == SENTENCE


@SUMMARIZER_CHECKS.add
def text_without_an_ending_is_read(summarizer: SummarizerLike) -> None:
    """Text without a full stop is summarized as well."""
    article = SENTENCE.removesuffix(".")
    _assert_slices(article, summarizer.summarize(article))


@SUMMARIZER_CHECKS.add
def decomposed_hangul_is_read(summarizer: SummarizerLike) -> None:
    """Decomposed Hangul (NFD) gives the same sentences, as slices of what was given."""
    decomposed = unicodedata.normalize("NFD", ARTICLE)
    summary = summarizer.summarize(decomposed)
    _assert_slices(decomposed, summary)
    composed = [unicodedata.normalize("NFC", sentence.text) for sentence in summary.sentences]
    assert composed == [sentence.text for sentence in summarizer.summarize(ARTICLE).sentences]


@SUMMARIZER_CHECKS.add
def windows_line_ends_are_read(summarizer: SummarizerLike) -> None:
    """CR LF line ends give slices."""
    article = ARTICLE.replace("\n", "\r\n")
    _assert_slices(article, summarizer.summarize(article))


@SUMMARIZER_CHECKS.add
def odd_characters_are_read(summarizer: SummarizerLike) -> None:
    """Emoji, Hanja, zero-width and control characters, and lone surrogates raise nothing."""
    for odd in (
        "👩‍👩‍👧‍👦 다리가 열렸다.",
        "大橋가 開通했다.",
        "다\u200b리가 열렸다.",
        "다리가\x00 열렸다.",
        "다리가 \ud800 열렸다.",
    ):
        article = f"{odd} {SENTENCE}"
        _assert_slices(article, summarizer.summarize(article))


@SUMMARIZER_CHECKS.add
def other_languages_are_read(summarizer: SummarizerLike) -> None:
    """Text without Hangul raises nothing."""
    article = "The bridge opened on Monday. Buses will use it next month. Residents cheered."
    _assert_slices(article, summarizer.summarize(article))


@SUMMARIZER_CHECKS.add
def markup_is_data(summarizer: SummarizerLike) -> None:
    """Angle brackets and braces in a text are text."""
    article = f"<b>{SENTENCE}</b> {{title}} 시민은 5 < 7 이라고 말했다. {SENTENCE[2:]}"
    _assert_slices(article, summarizer.summarize(article))


@SUMMARIZER_CHECKS.add
def repetition_is_left_out(summarizer: SummarizerLike) -> None:
    """A sentence that an article repeats is chosen once."""
    texts = [sentence.text for sentence in summarizer.summarize(f"{SENTENCE} " * 6, 4).sentences]
    assert len(texts) == 1, texts


@SUMMARIZER_CHECKS.add
def long_articles_take_little_time(summarizer: SummarizerLike) -> None:
    """Four hundred sentences take seconds."""
    article = " ".join(
        f"{number}번째 회의에서 위원 {number % 7}명이 안건을 처리했다." for number in range(LONG_SENTENCES)
    )
    began = time.perf_counter()
    _assert_slices(article, summarizer.summarize(article))
    elapsed_s = time.perf_counter() - began
    assert elapsed_s < MAX_LONG_S, f"{elapsed_s:.0f} s"


# --- many articles ----------------------------------------------------------------------------------------------------


@SUMMARIZER_CHECKS.add
def summaries_are_deterministic(summarizer: SummarizerLike) -> None:
    """The same article has the same summary."""
    assert summarizer.summarize(ARTICLE) == summarizer.summarize(ARTICLE)


@SUMMARIZER_CHECKS.add
def many_are_as_one(summarizer: SummarizerLike) -> None:
    """A summary does not depend on other articles, and the order is kept."""
    articles = [SENTENCE, ARTICLE, SENTENCE]
    assert list(summarizer.summarize_many(articles)) == [summarizer.summarize(article) for article in articles]


@SUMMARIZER_CHECKS.add
def many_are_lazy(summarizer: SummarizerLike) -> None:
    """The first summary comes before all articles are read: a stream may be endless."""

    def endless() -> Iterator[str]:
        while True:
            yield ARTICLE

    found = summarizer.summarize_many(endless())
    assert next(found) == next(found) == summarizer.summarize(ARTICLE)


@SUMMARIZER_CHECKS.add
def documents_are_read(summarizer: SummarizerLike) -> None:
    """Documents with titles may be given instead of texts."""
    [summary] = summarizer.summarize_many([Document(ARTICLE, "1", title=TITLE)])
    assert summary == summarizer.summarize(ARTICLE, title=TITLE)


@SUMMARIZER_CHECKS.add
def no_articles_give_no_summaries(summarizer: SummarizerLike) -> None:
    """An empty list gives nothing."""
    assert list(summarizer.summarize_many([])) == []
