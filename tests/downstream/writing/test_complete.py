"""Completions continue what is written, come from counts, and the model ranks them."""

import io

import pytest

from downstream.complete import Completer, complete, forms_of
from downstream.complete.__main__ import main
from downstream.complete.ngrams import EojeolNgrams

SENTENCES = [["시는", "예산을", "확정했다."], ["시는", "예산을", "확정했다."], ["시는", "예산을", "확보했다."]] * 3


def test_counts_back_off_from_triples_to_single_eojeol() -> None:
    ngrams = EojeolNgrams.of(SENTENCES)
    assert [word for word, _ in ngrams.candidates(["시는", "예산을"], "확", 5)] == ["확정했다.", "확보했다."]
    assert [word for word, _ in ngrams.candidates(["모르는", "말"], "예", 5)] == ["예산을"]
    assert ngrams.candidates(["시는"], "없는말", 5) == []


def test_words_of_the_text_itself_are_completed() -> None:
    completer = Completer(EojeolNgrams.of(SENTENCES), None)
    found = completer.complete("새결도서관에서 만났다. 새결")
    assert {one.text for one in found} == {"도서관에서", "도서관"}
    assert forms_of("도서관에서,") == ("도서관에서", "도서관")


def test_completions_are_probabilities_that_continue_the_text() -> None:
    found = complete("전라남도는 올해 예산을 확보했다고 밝", 5)
    assert found[0].text.startswith("혔다")
    assert 0 < sum(one.probability for one in found) <= 1 + 1e-9
    assert [one.probability for one in found] == sorted((one.probability for one in found), reverse=True)
    with pytest.raises(ValueError, match="less than 1"):
        complete("시", 0)


def test_hostile_texts_are_survived() -> None:
    texts = [
        "",
        " ",
        "\n",
        "\ud800",
        "\x00가",
        "ㄱ",
        "가" * 5_000,
        "😀",
        "\u1100",
        "a" * 9_999 + " 시",
        "[MASK] " * 300,
    ]
    for text in texts:
        assert all(one.text for one in complete(text)), text


def test_the_command_prints_completions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("전라남도는 올해 예산을 확보했다고 밝"))
    assert main(["--count", "2"]) == 0
    assert "혔다" in capsys.readouterr().out
