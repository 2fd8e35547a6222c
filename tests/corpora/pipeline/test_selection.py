"""Documents without duplicates and evaluation texts."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from corpora.build import BuildConfig, build
from corpora.cleaning import CleaningConfig
from corpora.corpus import read_corpus
from corpora.documents import Document
from corpora.pipeline.selection import EvaluationTexts

Write = Callable[[str, str | bytes], Path]

CONFIG = CleaningConfig()
BODY = "한국은행이 기준금리를 3.0%로 묶었다."
SENTENCE = "미래도시 위원회는 17일 노후 청사를 헐기로 했다."


def as_jsonl(*records: dict[str, str]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def test_the_same_letters_in_other_blanks_marks_and_case_are_a_duplicate_and_the_first_is_kept(
    write: Write, tmp_path: Path
) -> None:
    texts = [
        "KBS 기준금리 동결",
        "kbs  기준 금리\n동결",
        "KBS ‘기준금리’ 동결!",
        "\u200bKBS 기준금리 동결",
        "KBS 기준금리 2회 동결",
    ]
    source = write("a.jsonl", as_jsonl(*({"text": text} for text in texts)))
    manifest = build([source], tmp_path / "once", BuildConfig(held_out=0))
    assert [document.text for document in read_corpus(tmp_path / "once")] == [texts[0], texts[4]]
    assert manifest.totals.dropped == {"duplicate": 3}
    all_kept = BuildConfig(held_out=0, cleaning=CleaningConfig(remove_duplicates=False))
    assert build([source], tmp_path / "all", all_kept).totals.num_kept == 5


def test_an_evaluation_text_does_not_come_through_nor_does_a_text_that_quotes_it(
    write: Write, subtests: pytest.Subtests
) -> None:
    for exclude, text in [
        ("정말 재밌다", "정말재밌다"),
        (SENTENCE, SENTENCE.replace(" ", "\n")),
        (SENTENCE, f"{BODY}\n{SENTENCE}\n총재는 말을 아꼈다."),
        (SENTENCE, f"{BODY} {SENTENCE} 총재는 말을 아꼈다."),
        (f"{BODY} {SENTENCE}", f"첫 줄이다.\n{BODY} {SENTENCE}\n끝 줄이다."),
        (f"(서울=물빛통신) 김하늘 기자 = {SENTENCE}", SENTENCE),
    ]:
        with subtests.test(exclude=exclude, text=text):
            texts = EvaluationTexts([write("dev.json", json.dumps([exclude]))], CONFIG)
            documents = [Document(text, "1"), Document("다른 기사다.", "2")]
            assert [reason for _, reason in texts.reasons(documents)] == ["excluded", ""]


def test_an_evaluation_text_in_the_headline_counts_and_a_short_one_inside_a_text_does_not(write: Write) -> None:
    texts = EvaluationTexts([write("dev.json", json.dumps([SENTENCE, "정말 재밌다."]))], CONFIG)
    documents = [Document(BODY, "1", title=SENTENCE), Document("정말 재밌다. 또 보고 싶다.", "2")]
    assert [reason for _, reason in texts.reasons(documents)] == ["excluded", ""]


def test_a_line_of_marks_with_a_letter_of_an_evaluation_text_is_no_quote(write: Write) -> None:
    texts = EvaluationTexts([write("dev.json", json.dumps(["1", SENTENCE]))], CONFIG)
    documents = [Document(f"{BODY}\n1 {'-' * 40}\n총재는 말을 아꼈다.", "1"), Document("1 ---", "2")]
    assert [reason for _, reason in texts.reasons(documents)] == ["", "excluded"]


def test_drops_and_edits_are_counted_and_nothing_else_of_a_document_changes(write: Write, tmp_path: Path) -> None:
    source = write(
        "a.jsonl",
        as_jsonl(
            {
                "id": "1",
                "text": f"{BODY}\n김하늘 기자",
                "title": " 금리\u200b  동결 ",
                "date": "2024-12-17",
                "section": "경제",
            },
            {"id": "2", "text": BODY},
            {"id": "3", "text": "짧다"},
            {"id": "4", "text": "(끝)"},
            {"id": "5", "text": "금리 동결 소식", "title": "금리 동결 소식"},
        ),
    )
    manifest = build([source], tmp_path / "out", BuildConfig(held_out=0))
    assert list(read_corpus(tmp_path / "out")) == [
        Document(BODY, "a.jsonl#1", title="금리 동결", date="2024-12-17", section="경제", source="a.jsonl"),
        Document("금리 동결 소식", "a.jsonl#5", source="a.jsonl"),  # the headline equals the text and is left out
    ]
    totals = manifest.totals
    assert totals.num_read == 5
    assert totals.dropped == {"duplicate": 1, "too_short": 1, "empty": 1}
    assert totals.edited == {"byline": 1, "end_mark": 1}
