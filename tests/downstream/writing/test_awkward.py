"""Awkward wording: every rule finds its example and neither of the two that it must not find."""

import io
import random

import pytest

from downstream.awkward import awkward, score_words
from downstream.awkward.__main__ import main
from downstream.awkward.rules import all_rules
from downstream.writing.likelihood import bundled_scorer


def test_every_rule_finds_its_example_and_not_the_two_others() -> None:
    rules = [compiled.rule for compiled in all_rules()]
    assert len({rule.name for rule in rules}) == len(rules) >= 60
    for compiled in all_rules():
        rule = compiled.rule
        assert list(compiled.spans(rule.wrong)), rule.name
        assert not [text for text in rule.right if list(compiled.spans(text))], rule.name


def test_findings_are_slices_and_quotations_are_left_alone() -> None:
    text = "그는 “잊혀졌다”고 했다. 이름이 잊혀졌다. 도움을 필요로 한다."
    assert [found.text for found in awkward(text)] == ["잊혀졌다", "을 필요로 한다"]
    assert next(found.text for found in awkward(text, quotations=True)) == "잊혀졌다"
    assert all(text[found.start : found.end] == found.text for found in awkward(text, quotations=True))


def test_an_unlikely_word_is_found_by_the_model() -> None:
    right, wrong = "정부는 새로운 대책을 발표했다.", "정부는 새로운 고양을 발표했다."
    likely, unlikely = bundled_scorer().log_likelihoods([right, wrong])
    assert likely > unlikely
    assert not [found for found in awkward(right, unlikely=True) if found.kind == "unlikely"]
    wrong = "검찰은 횡령 혐의로 겨울을 구속했다."
    assert [found.text for found in awkward(wrong, unlikely=True) if found.kind == "unlikely"] == ["겨울을"]


def test_the_stem_of_a_word_is_scored_with_its_ending_in_sight() -> None:
    scorer, text = bundled_scorer(), "정부는 새로운 대책을 발표했다."
    [words], [stems] = scorer.words([text]), scorer.stems([text])
    assert [word.tokens for word in words] == [stem.tokens for stem in stems]
    assert all(
        stem.log_probability == pytest.approx(word.log_probability, rel=1e-4)
        for word, stem in zip(words, stems, strict=True)
        if len(word.tokens) == 1
    )
    assert words[2].tokens == ("대책", "##을")
    assert stems[2].log_probability > words[2].log_probability
    assert (8, 11, stems[2].log_probability) in score_words([text])[0]


def test_hostile_texts_are_survived_with_exact_slices() -> None:
    rng = random.Random(1)  # noqa: S311
    alphabet = "가나의에 을를지여져되어것은이다 한 명의 \t\n\x00\ud800“”()1,\u1100\u1161"
    texts = ["", "의 " * 2_000, "[" * 200, *("".join(rng.choices(alphabet, k=60)) for _ in range(200))]
    for text in texts:
        for found in awkward(text, quotations=True):
            assert text[found.start : found.end] == found.text
    for text in ("\ud800", "그는 \ud83d 고양을 발표했다.", "👨\u200d👩\u200d👧 발표했다."):
        for found in awkward(text, unlikely=True, quotations=True):
            assert text[found.start : found.end] == found.text, text


def test_the_command_names_place_and_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("첫 줄.\n이름이 잊혀졌다.\n"))
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("-:2:5: 잊혀졌다 (passive) ")
