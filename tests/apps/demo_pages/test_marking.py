"""Visitors' texts are escaped as HTML and Markdown, and marks are at their positions."""

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from apps.demo_pages.marking import AROUND, LONGEST_SHOWN, Mark, bars, escaped, literal, marked, one_line, paper, table

HOSTILE = "<script>alert('x')</script> & <img src=x onerror=alert(1)> \u202e 가\u1161 😀"


def plain(markup: str) -> str:
    """Return the text that a browser shows of HTML without tags and labels."""
    without_labels = re.sub(r'<span class="pb-label">.*?</span>', "", markup)
    return html.unescape(re.sub(r"<[^>]*>", "", without_labels))


@given(st.text(max_size=60), st.data())
def test_marked_text_is_the_text(text: str, data: st.DataObject) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=4, max_size=4)))
    marks = [Mark(ends[0], ends[1], "chosen", "①", hint='"<b>'), Mark(ends[2], ends[3], "excluded")]
    assert plain(marked(text, marks)) == re.sub("[\ud800-\udfff]", "\ufffd", text)


def test_no_tag_of_the_text_survives() -> None:
    markup = marked(HOSTILE, [Mark(3, 20, "answer", "<b>", hint='" onmouseover="alert(1)')])
    assert set(re.findall(r"<(/?\w+)", markup)) == {"mark", "/mark", "span", "/span"}
    assert "onmouseover=" not in re.sub(r'"[^"]*"', "", markup)
    assert "<script" not in paper(markup, title=HOSTILE)
    assert "<script" not in bars([(HOSTILE, 1.0, HOSTILE)], 1.0)


def test_a_lone_surrogate_becomes_a_sign_that_can_be_sent() -> None:
    assert escaped("가\ud800나").encode("utf-8").decode() == "가\ufffd나"
    assert one_line("가\ud800\n나") == "가\ufffd 나"
    literal("가\ud800").encode("utf-8")


def test_of_a_very_long_text_the_surroundings_of_the_marks_are_shown() -> None:
    text = "가" * LONGEST_SHOWN + "나" + "다" * LONGEST_SHOWN
    markup = marked(text, [Mark(LONGEST_SHOWN, LONGEST_SHOWN + 1, "chosen")], "… 줄임 …")
    shown = plain(markup)
    assert shown.count("… 줄임 …") == 2
    assert f"{'가' * AROUND}나{'다' * AROUND}" in shown
    assert len(shown) < 2 * AROUND + 50


def test_markdown_of_a_name_is_shown_as_it_is() -> None:
    for text in ["![x](http://e.example)", "**굵게**", ":smile: $x$", "<b>", "[a](b)", "# 제목", "1. 가"]:
        shown = literal(text)
        assert re.sub(r"\\(.)", r"\1", shown) == text, text
        assert not re.search(r"(?<!\\)[*_\[\]<>`$:!#(]", shown), text


def test_a_negative_bar_has_a_pattern() -> None:
    assert 'class="pb-bar pb-minus" style="width:50%"' in bars([("가", -0.5, "−0.50")], 1.0)
    assert 'class="pb-bar pb-plus" style="width:100%"' in bars([("가", 3.0, "3")], 1.0)


def test_a_table_names_its_rows_and_escapes_every_text() -> None:
    shown = table(["말", "<까닭>"], [["<b>몇일</b>", "‘며칠’ & 그 밖"]])
    assert shown.count('<th scope="col">') == 2
    assert '<th scope="row">&lt;b&gt;몇일&lt;/b&gt;</th><td>‘며칠’ &amp; 그 밖</td>' in shown
    assert "&lt;까닭&gt;" in shown
