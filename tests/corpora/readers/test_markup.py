"""Markup goes, text stays, and every character left knows where it was."""

import time

import pytest

from corpora.readers.markup import has_markup, plain_text, strip_markup

PAIRS = {
    "<p>첫 문단.</p><p>둘째 문단.</p>": "첫 문단.\n\n둘째 문단.",
    "첫 줄<br>둘째 줄<br/>셋째 줄<BR />끝": "첫 줄\n둘째 줄\n셋째 줄\n끝",
    '<div class="a"><span>금리가</span> <b>올랐다</b>.</div>': "금리가 올랐다.",
    "<script>var a = '<p>글</p>';</script>본문": "본문",
    "본문<script>alert(1)": "본문",
    "<style>p { color: red }</style>본문<!-- 주석 <p> -->": "본문",
    "<SCRIPT type='x'>x</SCRIPT >본문": "본문",
    "<b>&quot;새 다리&quot;</b> &lt;특집&gt; A&amp;B &#39;끝&#39; &#xAC00;": "\"새 다리\" <특집> A&B '끝' 가",
    "한&nbsp;칸": "한 칸",
    '<a href="https://press.example/?a=1&copy=2">링크</a>': "링크",
    "<figure><img src='a.jpg'/><figcaption>사진 설명</figcaption></figure>본문": "사진 설명\n\n본문",
    "<!DOCTYPE html><html><head><title>창 제목</title></head><body>본문</body></html>": "본문",
    "<iframe src='x'></iframe>본문<video>안 보임</video>": "본문",
}
TEXTS = (
    "a < b이고 c > d이다",
    "<표> 기준금리 추이",
    "<현대:OG>가 <6월:DT>에 밝혔다",
    "〈사진〉 <김하늘 기자>",
    "R&D 투자, AT&T, &copy 없음, &unknown; 그대로",
    "<3 좋아요 <- 화살표 ->",
    "if (a<b) { c>d }",
    "&#0; &#xD800; &#99999999;",
    "이메일 <sky@press.example>",
)


def test_markup_is_taken_out() -> None:
    assert {html: strip_markup(html) for html in PAIRS} == PAIRS


def test_what_is_no_markup_stays() -> None:
    assert [text for text in TEXTS if strip_markup(text) != text] == []
    assert [text for text in TEXTS if has_markup(text)] == []
    assert all(has_markup(html) for html in PAIRS if "<" in html and "nbsp" not in html)


def test_characters_know_where_they_were(subtests: pytest.Subtests) -> None:
    for html in (*PAIRS, *TEXTS):
        with subtests.test(html=html):
            plain = plain_text(html)
            for index, character in enumerate(plain.text):
                start, end = plain.span(index, index + 1)
                raw = html[start:end]
                assert raw == character or raw[0] in "<&", (character, raw)
            if plain.text:
                start, end = plain.span(0, len(plain.text))
                assert strip_markup(html[start:end]) == plain.text


def test_hostile_markup_takes_no_longer_than_its_length(subtests: pytest.Subtests) -> None:
    for unit in (
        "<!--",
        "<script>",
        "<script",
        "<p",
        "<",
        "&",
        "&#",
        "<p>",
        "<!doctype",
        "</script",
        "<textarea>",
        "<a ",
    ):
        with subtests.test(unit=unit):
            started = time.perf_counter()
            plain_text(unit * (400_000 // len(unit)))
            assert time.perf_counter() - started < 5
