"""Summaries: exact slices of any text, options, offsets in every normal form, explained scores."""

import doctest
import itertools
import json
import os
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import downstream.summarize
from corpora.characters import may_compose
from corpora.documents import Document
from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.summaries.features import FEATURES
from downstream.summaries.model import SummaryModel
from downstream.summarize import Summarizer, Summary, summarize

ROOT = Path(downstream.summarize.__file__).parents[1]
ARTICLE = """(물빛=물빛통신) 김하늘 기자 = 물빛시가 낡은 하늘다리를 헐고 새 다리를 놓기로 했다. 공사비는 300억원이다.

하늘다리는 1974년에 지어져 안전 진단에서 가장 낮은 등급을 받았다. 시민들은 반겼다. “30년을 건넜는데 섭섭하지요.”

시는 내년 3월 공사를 시작해 2028년까지 마칠 계획이다. 부동산 값이 오르리라는 기대도 나온다. 날은 흐렸다.
김하늘 기자 sky@mulbit.example
<저작권자 ⓒ 물빛통신, 무단 전재 및 재배포 금지>"""
TITLE = "물빛시, 낡은 하늘다리 헐고 새로 놓는다"


@pytest.fixture(scope="module")
def articles() -> list[str]:
    lines = (SAMPLE_ROOT / "news.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines[:12]]


def assert_sound(summary: Summary, source: str, num: int) -> None:
    assert len(summary.sentences) <= num
    assert all(source[s.start : s.end] == s.text and s.text for s in summary.sentences)
    assert all(0 <= s.score <= 1 for s in summary.sentences)
    indices = [s.index for s in summary.sentences]
    assert indices == sorted(set(indices))
    ends = [0, *(s.end for s in summary.sentences)]
    assert all(end <= s.start for end, s in zip(ends, summary.sentences, strict=False))
    assert len({"".join(s.text.split()) for s in summary.sentences}) == len(summary.sentences)


def test_a_summary_is_sentences_of_the_article_in_its_order_without_excluded_segments() -> None:
    summary = summarize(ARTICLE, title=TITLE)
    assert_sound(summary, ARTICLE, 3)
    assert len(summary.sentences) == 3
    assert summary.sentences[0].text == "물빛시가 낡은 하늘다리를 헐고 새 다리를 놓기로 했다."
    assert summary.sentences[0].index == 0
    assert str(summary) == "\n".join(s.text for s in summary.sentences)
    assert not any(mark in str(summary) for mark in ("기자", "@", "ⓒ"))


def test_the_number_of_sentences_is_the_requested_number_or_share() -> None:
    assert [len(summarize(ARTICLE, num).sentences) for num in (1, 2, 5, 100)] == [1, 2, 5, 8]
    assert [len(summarize(ARTICLE, ratio=ratio).sentences) for ratio in (0.01, 0.25, 0.5, 1)] == [1, 2, 4, 8]


def test_a_summary_stays_within_its_number_of_composed_characters() -> None:
    shortest = min(len(s.text) for s in summarize(ARTICLE, 100).sentences)
    for limit in (1, shortest - 1, shortest, 30, 60, 100, 1000):
        summary = summarize(ARTICLE, 100, max_chars=limit)
        assert len(str(summary)) <= limit
        assert bool(summary.sentences) == (limit >= shortest), limit
    decomposed = unicodedata.normalize("NFD", ARTICLE)
    summaries = [summarize(text, 100, max_chars=60) for text in (ARTICLE, decomposed)]
    assert [s.index for s in summaries[0].sentences] == [s.index for s in summaries[1].sentences] != []


def test_sentences_on_the_focus_come_first_and_an_absent_focus_changes_nothing() -> None:
    assert "부동산" not in str(summarize(ARTICLE, 1))
    for focus in ("부동산", "부동산 값", unicodedata.normalize("NFD", "부동산")):
        (sentence,) = summarize(ARTICLE, 1, focus=focus).sentences
        assert "부동산" in sentence.text, focus
    plain, focused = summarize(ARTICLE), summarize(ARTICLE, focus="핵융합")
    assert focused == plain


def test_a_headline_draws_its_sentence() -> None:
    scores = {}
    for title in ("", "날은 흐렸다"):
        candidates = summarize(ARTICLE, title=title, explain=True).candidates
        scores[title] = next(s.score for s in candidates if s.text == "날은 흐렸다.")
    assert scores["날은 흐렸다"] > 1.5 * scores[""]  # measured 1.9


def test_a_repetition_is_skipped_even_if_it_is_not_literal() -> None:
    text = "물빛시가 새 다리를 놓는다. 시민은 반겼다. 물빛시가 새  다리를 놓는다. 물빛시가 새 다리를 놓는다."
    assert len(summarize(text, 4).sentences) == 2
    text = "물빛시가 새 다리를 내년 3월에 놓는다. 물빛시가 새 다리를 내년 3월에 꼭 놓는다. 하늘은 종일 흐렸다."
    assert [s.index for s in summarize(text, 2).sentences][-1] == 2


def test_a_text_without_sentences_has_an_empty_summary() -> None:
    boilerplate = "<저작권자 ⓒ 물빛통신, 무단 전재 및 재배포 금지>\n(끝)"
    for text in ("", " \n\u3000", "김하늘 기자 sky@mulbit.example", boilerplate):
        summary = summarize(text)
        assert (summary.sentences, str(summary)) == ((), ""), text


def test_an_explanation_adds_up_and_covers_all_sentences_and_excluded_segments() -> None:
    summary = summarize(ARTICLE, 2, title=TITLE, focus="공사", explain=True)
    assert [s.index for s in summary.candidates] == list(range(8))
    for sentence in summary.candidates:
        odds = 2.718281828459045 ** sum(sentence.components.values())
        assert sentence.score == pytest.approx(odds / (1 + odds), abs=1e-4)
        assert set(sentence.components) <= {*FEATURES, "focus", "bias"}
    assert [part.kind for part in summary.excluded] == ["dateline", "byline", "copyright"]
    assert all(ARTICLE[part.start : part.end] == part.text for part in summary.excluded)
    plain = summarize(ARTICLE, 2, title=TITLE, focus="공사")
    assert [(s.text, s.start, s.score) for s in plain.sentences] == [
        (s.text, s.start, s.score) for s in summary.sentences
    ]
    assert not any(s.components for s in plain.sentences)


def test_invalid_arguments_are_refused_at_once() -> None:
    invalid: tuple[tuple[str, object], ...] = (
        *(("sentences", value) for value in (0, -1, 2.5, True)),
        *(("ratio", value) for value in (0, 1.1, float("nan"))),
        ("max_chars", 0),
        ("focus", None),
    )
    for name, value in invalid:
        options: dict[str, Any] = {name: value}
        with pytest.raises(ValueError, match=name):
            summarize(ARTICLE, **options)
        with pytest.raises(ValueError, match=name):
            Summarizer.load().summarize_many([ARTICLE], **options)
    with pytest.raises(ValueError, match="must be strings"):
        summarize(b"bytes")


def test_every_normal_form_gives_the_same_sentences(articles: list[str]) -> None:
    for form, article in itertools.product(("NFC", "NFD", "NFKD"), articles):
        if form == "NFKD":  # compatibility forms change the text itself; only its Hangul is of interest here
            article = unicodedata.normalize("NFKC", article)
        plain, other = summarize(article), summarize(source := unicodedata.normalize(form, article))
        assert_sound(other, source, 3)
        assert [s.index for s in other.sentences] == [s.index for s in plain.sentences]
        assert [s.score for s in other.sentences] == [s.score for s in plain.sentences], form
        assert [unicodedata.normalize("NFC", s.text) for s in other.sentences] == [s.text for s in plain.sentences]


def test_every_character_that_composes_with_the_one_before_it_is_known() -> None:
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.normalize("NFD", chr(code))
        if len(parts) > 1 and unicodedata.is_normalized("NFC", chr(code)):
            assert all(map(may_compose, parts[1:]))
        if unicodedata.combining(chr(code)):
            assert may_compose(chr(code))


def test_articles_come_out_one_by_one_as_they_would_alone(articles: list[str]) -> None:
    summarizer = Summarizer.load()
    taken = 0

    def feed() -> list[str]:
        nonlocal taken
        for article in articles:
            taken += 1
            yield article

    summaries = summarizer.summarize_many(feed())
    first = next(summaries)
    assert taken == 1
    alone = [summarizer.summarize(article) for article in articles]
    assert [first, *summaries] == alone
    assert list(summarizer.summarize_many(reversed(articles)))[::-1] == alone


def test_documents_bring_their_titles() -> None:
    (summary,) = Summarizer.load().summarize_many([Document(ARTICLE, "1", title=TITLE)])
    assert summary == summarize(ARTICLE, title=TITLE)


# ---- hostile text ----

PIECES = [
    *["물빛시가 새 다리를 놓는다. ", "시민은 반겼다! ", "왜? ", "정말… ", "했다 그리고 ", "끝이다.그러나 "],
    *["“가자. 얼른.”이라고 ", "‘“가”라고 ‘나’라고’ ", "“", "”", '"', "'", "‘", "「", "」"],
    *["김하늘 기자 sky@mulbit.example", "(서울=물빛통신) 김하늘 기자 = ", "ⓒ", "▲ ", "사진=물빛", "기자 "],
    *["\n", "\r\n", "\r", "\n\n", "\t", " ", "\u3000", "\u2028", "\x85", "\x0b", "\xa0", "\u200b", "\ufeff"],
    *["\x00", "\ud800", "\udfff", "\U0010ffff", "\ufffd", "👨‍👩‍👧‍👦", "🇰🇷", "👍🏽", "שלום ", "مرحبا. ", "\u202e"],
    *[
        "ㅋㅋㅋ",
        "ᄒ",
        "\u1161",
        "\u11ab",
        "\u0301",
        "e\u0301",
        "한\u0301",
        "\u1112\u1161\u11ab",
        "が",
        "か\u3099",
        "漢字",
    ],
    *["<p>문단</p>", "<br/>", "&nbsp;", "<script>alert(1)</script>", "3.5%", "1.", "가.", "A.B.C.", "........", "!?"],
    *["가" * 300, "가나다 " * 80, "다 " * 60],
]
hostile = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=40).map("".join)
NUM_EXAMPLES = int(os.environ.get("PRESSBERT_HOSTILE_EXAMPLES", "150"))
"""10,000 in a thorough run."""


@settings(max_examples=NUM_EXAMPLES)
@given(
    text=hostile, num=st.integers(1, 6), title=st.one_of(st.just(""), hostile), focus=st.one_of(st.just(""), hostile)
)
def test_any_text_has_a_sound_summary_the_same_in_a_batch_and_decomposed(
    text: str, num: int, title: str, focus: str
) -> None:
    summary = summarize(text, num, title=title, focus=focus)
    assert_sound(summary, text, num)
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    alone = summarize(composed, num)
    other = summarize(decomposed, num)
    assert_sound(other, decomposed, num)
    assert [(s.index, s.score) for s in other.sentences] == [(s.index, s.score) for s in alone.sentences]
    assert [unicodedata.normalize("NFC", s.text) for s in other.sentences] == [s.text for s in alone.sentences]
    batch = list(Summarizer.load().summarize_many([ARTICLE, composed, decomposed, composed], num))
    assert batch[1:] == [alone, other, alone]


@pytest.mark.slow
def test_a_megabyte_is_summarized() -> None:
    for unit in ("가나다라 마바사 아자차카 ", "가", "“", "시민은 모두 반겼다\n", "시민은 반겼다. ", "\u0301"):
        text = unit * (1_000_000 // len(unit.encode()))
        started = time.process_time()
        assert_sound(summarize(text), text, 3)
        assert time.process_time() - started < 20, unit  # measured 0.1 to 3


# ---- models ----


def write_model(folder: Path, **changes: object) -> Path:
    folder.mkdir(exist_ok=True)
    values = {"schema": 1, "weights": {"lead": 1.0}, "bias": 0.0, "redundancy": 0.6} | changes
    (folder / "summarizer.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def test_the_weights_of_the_file_decide(tmp_path: Path) -> None:
    summarizer = Summarizer.load(write_model(tmp_path / "lead"))
    assert [s.index for s in summarizer.summarize(ARTICLE).sentences] == [0, 1, 2]
    backwards = Summarizer.load(write_model(tmp_path / "back", weights={"lead": -1.0}), runtime="torch")
    assert [s.index for s in backwards.summarize(ARTICLE).sentences] == [5, 6, 7]


DAMAGES: tuple[tuple[dict[str, object], str], ...] = (
    ({"weights": {"leed": 1.0}}, "did you mean 'lead'?"),
    ({"weights": {}}, "not a summarizer"),
    ({"schema": 2}, "not a summarizer"),
    ({"surplus": 1}, "not a summarizer"),
    ({"weights": {"embedding_headline": 1.0}}, "none is named"),
    ({"weights": {"scorer": 1.0}}, "none is named"),
)


def test_a_damaged_model_is_named(tmp_path: Path, fails: Callable[..., AbstractContextManager[None]]) -> None:
    for changes, what in DAMAGES:
        folder = write_model(tmp_path / "m", **changes)
        with fails(CheckpointError, folder, what):
            Summarizer.load(folder)


def test_a_folder_without_a_model_is_refused(
    tmp_path: Path, fails: Callable[..., AbstractContextManager[None]]
) -> None:
    with fails(CheckpointError, tmp_path, "summarizer.json"):
        Summarizer.load(tmp_path)
    with pytest.raises(ValueError, match="runtime"):
        Summarizer.load(runtime="abacus")


def test_the_bundled_weights_have_sane_signs_and_need_the_text_alone() -> None:
    model = Summarizer.load().model
    assert not model.needs_encoder
    assert not model.needs_scorer
    positive = ("first", "centrality", "headline", "length", "amount", "organization")
    for name in (*positive, "late_plan", "late_schedule"):
        assert model.weights[name] > 0, name
    for name in ("second", "quotation", "fragment", "reference"):
        assert model.weights[name] < 0, name


def test_a_summary_does_not_depend_on_how_sentences_are_joined(articles: list[str]) -> None:
    for article in articles:
        sentences = [s.text for s in summarize(article, explain=True).candidates]
        for title in ("", TITLE):
            summaries = {str(summarize(joint.join(sentences), title=title)) for joint in (" ", "\n", "\n\n", "\r\n")}
            assert len(summaries) == 1


def test_a_first_sentence_without_a_full_stop_is_no_headline() -> None:
    lead = "물빛시 하늘다리에서 열차가 탈선해 11명이 다쳤다"
    text = f"{lead}\n경찰은 원인을 조사하고 있다\n시장은 “유감이다”\n사고는 25일 났다\n날은 흐렸다"
    assert summarize(text, explain=True).candidates[0].text == lead
    headline = "물빛시, 하늘다리 헐고 새로 놓는 까닭"
    assert [part.kind for part in summarize(f"{headline}\n{text}", explain=True).excluded] == ["headline"]


def test_a_sentence_that_refers_to_another_is_held_back_until_that_one_is_chosen() -> None:
    model = SummaryModel(schema=1, weights={"length": 1.0, "reference": -9.0})
    text = "시는 다리를 놓기로 했다. 이에 대해 시민들은 앞다투어 크게 반겼다고 한다. 날은 흐렸다. 비도 조금 왔다."
    assert [s.index for s in Summarizer(model).summarize(text, 1).sentences] == [0]
    assert [s.index for s in Summarizer(model).summarize(text, 2).sentences] == [0, 1]


def test_nothing_that_says_nothing_fills_up_a_number_of_characters() -> None:
    sentence = "물빛시가 낡은 하늘다리를 헐고 새 다리를 놓기로 했다."
    for filler in ("1. 배우 A씨 결혼", "왜 그랬을까?", "(웃음)", "- 새 다리 개통"):
        assert str(summarize(f"{sentence}\n{filler}\n{filler} 2", max_chars=60)) == sentence, filler


def test_a_wrapped_sentence_is_an_exact_slice_and_one_line_of_the_summary() -> None:
    text = "물빛시가 낡은 하늘다리를 헐고 새 다리를 놓기로 했다고 25일 밝\n혔다. 시민은 반겼다."
    for source in (text, unicodedata.normalize("NFD", text)):
        [sentence] = summarize(source, 1).sentences
        assert source[sentence.start : sentence.end] == sentence.text
        assert "\n" in sentence.text
        joined = unicodedata.normalize("NFC", str(summarize(source, 1)))
        assert joined == "물빛시가 낡은 하늘다리를 헐고 새 다리를 놓기로 했다고 25일 밝혔다."


def test_neither_the_import_nor_a_summary_loads_heavy_libraries() -> None:
    code = (
        "import sys, downstream.summarize as d; heavy = {'torch', 'transformers', 'kiwipiepy', 'sklearn', 'scipy'};"
        "before = set(sys.modules) & (heavy | {'numpy', 'pydantic'}); d.summarize('다리가 열렸다. 시민이 왔다.');"
        "print(sorted(before), sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(downstream.summarize).failed == 0


def test_weights_that_do_not_exist_are_named() -> None:
    with pytest.raises(ValueError, match="unknown feature 'x'"):
        SummaryModel(schema=1, weights={"x": 1.0})


# ---- HTML ----

SENTENCES = (
    "시는 다음 달 버스 노선을 바꿀 계획이다.",
    "새 다리가 열렸기 때문이다.",
    "주민들은 반겼다.",
    "하늘은 맑았다.",
)


def test_html_is_in_no_sentence_and_offsets_are_those_of_the_source(subtests: pytest.Subtests) -> None:
    plain = summarize("\n".join(SENTENCES), sentences=2)
    paragraphs = "".join(f"<p>{sentence}</p>" for sentence in SENTENCES)
    for name, html in {
        "paragraphs": paragraphs,
        "script": f"<script>var text = '새 다리가 열렸다.';</script>{paragraphs}<style>p {{}}</style>",
        "line breaks": "<br/>".join(SENTENCES),
        "page": f"<!DOCTYPE html><html><head><title>창 제목</title></head><body>{paragraphs}</body></html>",
        "comment": f"<!-- {SENTENCES[2]} --><div>{paragraphs}</div>",
    }.items():
        with subtests.test(name=name):
            summary = summarize(html, sentences=2)
            assert str(summary) == str(plain)
            assert [html[s.start : s.end] for s in summary.sentences] == [s.text for s in summary.sentences]


def test_tags_and_entities_inside_a_sentence_stay_in_its_slice() -> None:
    html = "<p>시는 <b>버스</b> 노선을 &quot;다음 달&quot; 바꿀 계획이다.</p>"
    [sentence] = summarize(unicodedata.normalize("NFD", html), sentences=1).sentences
    assert unicodedata.normalize("NFC", sentence.text) == html.removeprefix("<p>").removesuffix("</p>")


def test_angle_brackets_of_newspapers_are_text() -> None:
    article = "<현대:OG>가 새 차를 내놓았다. 값은 A&B가 a < b로 정했다."
    assert str(summarize(article, sentences=2)) == article.replace(". ", ".\n")
