"""Quality rules: each drops what it is for, and articles break none."""

from pathlib import Path

import pytest

import corpora.cleaning
from corpora.documents import read_documents
from corpora.pipeline.quality import MIN_CHARS, RULES, low_quality, measures

SAMPLE = Path(corpora.cleaning.__file__).parent / "sample" / "news.jsonl"
SENTENCES = [
    "벼리시 의회는 17일 본회의에서 내년 예산을 의결했다.",
    "예산은 올해보다 조금 늘었고 대부분은 도로를 고치는 데 쓴다.",
    "주민들은 버스가 더 자주 다니기를 바란다고 말했다.",
    "시장은 봄까지 새 노선을 정하겠다며 의견을 듣겠다고 했다.",
    "도서관은 밤에도 문을 열고 아이들이 쓸 방을 따로 둔다.",
    "공원에는 나무를 심고 오래된 의자를 바꾸기로 했다.",
    "의원들은 표결에 앞서 두 시간 동안 토론을 벌였다.",
]
ARTICLE = "\n".join(SENTENCES)

BROKEN = {
    "few_particles": "예산 의결 국회 차량 버스 노선 도서관 공원 나무 책상 토론 표결 " * 6,
    "word_length": (ARTICLE.replace(" ", "") + "\n") * 2,
    "symbols": ARTICLE.replace(" ", " ♥★☆♣ "),
    "bullets": "\n".join(f"- {sentence}" for sentence in SENTENCES),
    "ellipses": "\n".join(sentence.replace("다.", "다…") for sentence in SENTENCES),
    "digits": "\n".join(f"{sentence} {k}12345678901234567890" for k, sentence in enumerate(SENTENCES)),
    "code": ARTICLE.replace("을", "을 {x}"),
    "short_lines": ARTICLE + "\n정치는\n경제는" * 10,
    "no_sentences": "\n".join(sentence[:-2] + "한 소식 목록" for sentence in SENTENCES),
    "duplicate_lines": "\n".join([*SENTENCES, *SENTENCES[:4]]),
    "top_bigram": " ".join(sentence + " 벼리시의회가 의결하였습니다." for sentence in SENTENCES),
    "repeated_ngrams": " ".join(SENTENCES * 2),
}


def test_every_rule_drops_what_it_is_for(subtests: pytest.Subtests) -> None:
    assert BROKEN.keys() == RULES.keys()
    assert low_quality(ARTICLE) is None
    for name, text in BROKEN.items():
        with subtests.test(rule=name):
            assert len(text) >= MIN_CHARS
            rule = RULES[name]
            assert not rule.least <= measures(text)[rule.measure] <= rule.most
            assert low_quality(text) is not None


def test_articles_break_no_rule_and_short_texts_are_not_judged() -> None:
    assert [low_quality(document.text) for document in read_documents(SAMPLE)] == [None] * 120
    assert low_quality("예산 의결 회의 " * 3) is None


def test_shares_of_repeated_text_are_counted_by_hand() -> None:
    found = measures("가나 다라\n가나 다라\n마")
    assert found["duplicate_lines"] == 4 / 9
    assert measures(" ".join("가나다라마" * 2))["repeated_ngrams"] == 5 / 10
    assert measures("하하 호호 하하 호호 하하 호호 끝")["top_bigram"] == 12 / 13


def test_a_word_that_recurs_is_no_recurring_ngram() -> None:
    assert measures("하하 호호 하하 흐흐 하하 히히 끝")["top_bigram"] == 0
    assert measures("하하 호호 하하 호호 끝")["top_bigram"] == 0
    # The longest pair occurs once; the share is that of the pair that occurs three times.
    assert measures("하 호 하 호 하 호 " + "가" * 30 + " 끝")["top_bigram"] == 6 / 37
    assert measures("가 나 다 라 마 바 나 다 라 마 가")["repeated_ngrams"] == 0
