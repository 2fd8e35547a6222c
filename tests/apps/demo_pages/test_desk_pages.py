"""The desk, the moderation of comments and the signals without a browser, in AppTest."""

import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import apps.demo_pages.desk
from apps.demo_pages.desk import changes_html, marks_of, writers_in
from apps.demo_pages.moderation import to_csv
from apps.desk.changes import changes
from apps.desk.checkers import Correction
from apps.desk.draft import Examined, examine
from corpora.foundation.texts import Texts

KOREAN = Texts("ko", "demo")
DRAFT = "그렇게 하면 안되요. 시는 3일 다리를 연다. <b>굵은</b> 글."


def open_page(name: str) -> AppTest:
    """Return a page of the demo."""
    return run(AppTest.from_string(f"from apps.demo import draw\ndraw({name!r})", default_timeout=120))


def run(app: AppTest) -> AppTest:
    """Run a page until its job is done."""
    app.run()
    for _ in range(600):
        if not app.get("progress"):
            break
        time.sleep(0.1)
        app.run()
    assert not app.exception, app.exception
    return app


def test_models_that_write_headlines_are_found_in_folders(tmp_path: Path) -> None:
    (tmp_path / "models" / "titles").mkdir(parents=True)
    (tmp_path / "models" / "titles" / "headline.json").write_text("{}", encoding="utf-8")
    (tmp_path / "models" / "other").mkdir()
    assert writers_in([tmp_path / "models", tmp_path / "missing"]) == [tmp_path / "models" / "titles"]


def html_of(app: AppTest) -> str:
    return "".join(element.proto.body for element in app.get("html"))


def with_a_mistake(text: str, title: str = "", *_: object, **__: object) -> Examined:
    """Examine a draft with a checker that knows one mistake."""
    at = text.find("안되요")
    found = (Correction(at, at + 3, "안되요", ("안 돼요",), "spelling", "", 1.0, "ours"),) if at >= 0 else ()
    return Examined(title, text, found, (), (), (), (), {})


def test_a_correction_is_accepted_and_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps.demo_pages.desk, "examine", with_a_mistake)
    app = open_page("desk")
    app.text_area(key="desk-text").set_value(DRAFT)
    next(b for b in app.button if b.label == KOREAN("desk.go")).click()
    run(app)
    assert "&lt;b&gt;" in html_of(app)
    next(b for b in app.button if b.label.startswith("‘안 돼요’")).click()
    run(app)
    assert app.text_area(key="desk-text").value == DRAFT.replace("안되요", "안 돼요")
    assert not [b for b in app.button if b.label.startswith("‘안 돼요’")]
    app.button(key="desk-undo").click()
    run(app)
    assert app.text_area(key="desk-text").value == DRAFT
    assert app.button(key="desk-undo").disabled


def test_an_update_is_compared() -> None:
    table = changes_html(KOREAN, changes("시는 3일 다리를 연다.", "시는 5일 다리를 연다."))
    assert "3일" in table
    assert "5일" in table
    assert changes_html(KOREAN, []) == ""
    assert "<script>" not in changes_html(KOREAN, changes("", "<script>새 글</script> 끝."))


def test_a_comment_is_judged_and_softened() -> None:
    app = open_page("moderation")
    app.text_area(key="moderation-text").set_value("이런 멍청하고 못생긴 새끼들은 다 꺼져라")
    next(b for b in app.button if b.label == KOREAN("moderation.go")).click()
    run(app)
    assert len(app.warning) == 1
    assert KOREAN("moderation.manner_mask") in html_of(app)


def test_signals_are_marked() -> None:
    app = open_page("signals")
    next(b for b in app.button if b.label == KOREAN("signals.example")).click()
    run(app)
    assert KOREAN("signal.critical_quote") in html_of(app)


def test_corrections_are_numbered_and_tables_compute_nothing() -> None:
    found = with_a_mistake(DRAFT)
    assert [mark.label for mark in marks_of(KOREAN, found.corrections)] == ["1"]
    assert examine("", "").corrections == ()
    assert "'=1+1" in to_csv(("=1+1",), [(0.9, "hate")], 0.5)
