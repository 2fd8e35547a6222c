"""Errors are found with exact offsets, right text is left alone, and no text makes it crash."""

import io
import json
import random
import unicodedata
from pathlib import Path

import pytest

from corpora.documents import read_documents
from corpora.foundation.files import SAMPLE_ROOT
from downstream.proofread import KINDS, Correction, apply, fix, proofread
from downstream.proofread.__main__ import main

WRONG = {
    "이렇게 하면 안되요.": "이렇게 하면 안 돼요.",
    "내일이면 다 되서 갈 거에요.": "내일이면 다 돼서 갈 거예요.",
    "그러면 되고 말고요.": "그러면 되고 말고요.",
    "몇일 동안 비가 왔다.": "며칠 동안 비가 왔다.",
    "왠만하면 오늘 끝내자.": "웬만하면 오늘 끝내자.",
    "웬지 기분이 좋다.": "왠지 기분이 좋다.",
    "오랫만에 만났다.": "오랜만에 만났다.",
    "그는 기자로써 일했다.": "그는 기자로서 일했다.",
    "이로서 문제가 풀렸다.": "이로써 문제가 풀렸다.",
    "밥을 먹던지 말던지 해라.": "밥을 먹든지 말든지 해라.",
    "제가 먼저 할께요.": "제가 먼저 할게요.",
    "그럴 수 밖에 없다.": "그럴 수밖에 없다.",
    "먹을수 있는 음식이다.": "먹을 수 있는 음식이다.",
    "비가 올것 같다.": "비가 올 것 같다.",
    "하고있는 일이 많다.": "하고 있는 일이 많다.",
    "학교 에서 공부했다.": "학교에서 공부했다.",
    "이해가 않되는 일이다.": "이해가 안 되는 일이다.",
    "하지 안고 있다.": "하지 않고 있다.",
    "정답을 맞췄다.": "정답을 맞혔다.",
    "눈에 띠는 변화가 없다.": "눈에 띄는 변화가 없다.",
    "그 영화는 재미있엇다.": "그 영화는 재미있었다.",
    "감기 빨리 낳으세요.": "감기 빨리 나으세요.",
    "어의없는 일이 벌어졌다.": "어이없는 일이 벌어졌다.",
    "지금 안경를 쓰고 있다.": "지금 안경을 쓰고 있다.",
}
RIGHT = (
    "돼지고기를 먹었다.",
    "그는 학생이 아니에요.",
    "얼마나 울었던지 모른다.",
    "정부로서는 어쩔 수 없다.",
    "소리가 창밖에서 들렸다.",
    "바람이 불지 않는다.",
    "책임으로서의 자유를 말한다.",
    "씨앗을 뿌렸다.",
    "선생님들께 드렸다.",
    "빼앗고 싶지 않다.",
    "그중 하나를 골랐다.",
    "시는 광주예술의전당에서 공연을 연다.",
    "나주 작은미술관에서 전시를 연다.",
    "유럽에서 원숭이두창이 다시 퍼졌다.",
    "미세먼지 24시간 평균 농도가 높다.",
    "회의를 열어 출하 시기를 조절했다.",
    "후배에게 패해 은메달을 땄다.",
    "자국이 처음 낸 중재안을 받아들였다.",
    "그뿐만 아니라 터널뿐만 아니라 다리도 막혔다.",
    "건물철거 및 대지 인도를 청구했다.",
)
ALPHABET = (
    "가나돼되않안을를것수 있다없\t\n\r.,!?\"'“”‘’()[]{}<>#@_-0123456789abcXYZ\x00\u200b\ufeff\ud800ㅋㅠㄱ각힣"
    "\u1100\u1161\u11a8😀漢字\uff05\uff8a"
)


def test_common_errors_are_corrected() -> None:
    assert {wrong: fix(wrong) for wrong in WRONG} == WRONG


def test_right_text_is_left_alone() -> None:
    flagged = {text: proofread(text) for text in RIGHT}
    assert not [text for text, found in flagged.items() if found], flagged


def test_few_words_of_edited_articles_are_flagged() -> None:
    texts = [document.text for document in read_documents(SAMPLE_ROOT / "news.jsonl")][:25]
    flags = [found for text in texts for found in proofread(text)]
    assert len(flags) <= sum(len(text.split()) for text in texts) / 500, flags


def test_quotations_addresses_and_tags_are_left_alone_unless_asked() -> None:
    text = "그는 “안되요”라고 했다. https://news.example/안되요 #몇일 a@b.example"
    assert proofread(text) == []
    assert [found.suggestions[0] for found in proofread(text, quotations=True)] == ["안 돼요”라고"]


def test_only_some_kinds_are_looked_for() -> None:
    text = "몇일 동안 먹을수 있다. 금번 행사는 끝났다."
    assert fix(text, only=["spacing"]) == "몇일 동안 먹을 수 있다. 금번 행사는 끝났다."
    assert fix(text, only=["style"]) == "몇일 동안 먹을수 있다. 이번 행사는 끝났다."
    with pytest.raises(ValueError, match="give a list"):
        proofread(text, only="spacing")  # type: ignore[arg-type]


def test_line_breaks_stay_where_they_are() -> None:
    text = "몇일 전이다.\r\n\r\n  안되요.\n\n\n먹을수 있다.\n"
    fixed = fix(text)
    assert fixed == "며칠 전이다.\r\n\r\n  안 돼요.\n\n\n먹을 수 있다.\n"


def test_offsets_are_those_of_decomposed_text() -> None:
    text = unicodedata.normalize("NFD", "이렇게 하면 안되요. 몇일 뒤에 봐요.")
    found = proofread(text)
    assert [text[one.start : one.end] for one in found] == [one.text for one in found]
    assert [one.suggestions[0] for one in found] == ["안 돼요", "며칠"]
    assert unicodedata.normalize("NFC", apply(text, found)) == "이렇게 하면 안 돼요. 며칠 뒤에 봐요."


def check(text: str, found: list[Correction]) -> None:
    """Check offsets, order and values of corrections."""
    end = 0
    for one in found:
        assert end <= one.start < one.end <= len(text), one
        assert text[one.start : one.end] == one.text, one
        assert one.kind in KINDS, one
        assert one.suggestions[0] != one.text, one
        assert 0 <= one.confidence <= 1, one
        assert one.reason, one
        end = one.end


def test_hostile_texts_are_survived_with_exact_slices() -> None:
    rng = random.Random(0)  # noqa: S311
    texts = [
        "",
        " ",
        "\n",
        "가" * 3_000,
        "안되요 " * 400,
        "\ud800안되요\x00",
        "“" * 50,
        "(" * 300 + "안되요",
        "되" * 99,
    ]
    texts += ["".join(rng.choices(ALPHABET, k=rng.randrange(80))) for _ in range(300)]
    for text in texts:
        check(text, proofread(text, quotations=True, min_confidence=0))


def test_the_command_prints_and_fixes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "첫 줄이다.\n이렇게 하면 안되요.\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("-:2:8: 안되요 → 안 돼요 (")
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["suggestions"] == ["안 돼요"]
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["--fix", "-"]) == 0
    assert capsys.readouterr().out == "첫 줄이다.\n이렇게 하면 안 돼요.\n"


def test_a_text_may_be_in_cp949(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "draft.txt"
    path.write_bytes("첫 줄이다.\r\n이렇게 하면 안되요.\r\n".encode("cp949"))
    assert main([str(path), "--fix"]) == 0
    assert capsys.readouterr().out == "첫 줄이다.\r\n이렇게 하면 안 돼요.\r\n"
