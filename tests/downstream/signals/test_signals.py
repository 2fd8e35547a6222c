"""Signals of stance, advertorials and clickbait: what is found where, and labels of one's own that are learnt."""

import importlib
import json
import random
from pathlib import Path

import numpy as np
import pytest

from corpora.foundation.errors import CheckpointError, DataError
from downstream.advertorial import advertorial
from downstream.clickbait import KINDS as CLICKBAIT_KINDS
from downstream.clickbait import clickbait
from downstream.signals.finding import Findings, lexicon
from downstream.signals.learning import Judge, read_labelled, train
from downstream.stance import stance

PIECES = (
    "", "“", "”", '"', "‘이것’", "…", "?", "비판했다", "충격", "02-123-4567", "http://", "www.a.kr", "1,000원",
    "한빛", "은 ", "\n",
    "\ud800", "\u200b", "가" * 50, "“" + "나" * 700 + "”", "(", "[단독]", "@", "100% 할인", "\x00", "ᄀ",
    "a@b.co", "#태그", "。",
)  # fmt: skip
ARTICLE = (
    "한빛시는 3일 산책로를 연다고 밝혔다. 시민단체는 “졸속 행정의 민낯”이라고 비판했다. 김하늘 의원은 "
    "“주민을 위한 길”이라며 환영했다. 시는 “곧 답하겠다”고 말했다. 사업비는 사실상 두 배로 늘 것으로 보인다."
)


def vectors(texts: object) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """Encode texts by their letters, in place of an embedder."""
    rows = np.array([[t.count(c) + 0.01 for c in "가나다라시산책로민은"] for t in texts], np.float32)  # type: ignore[attr-defined]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def kinds(found: Findings) -> list[tuple[str, str]]:
    return [(signal.kind, signal.text) for signal in found.signals]


def test_quotes_have_sides_and_speakers() -> None:
    found = stance(ARTICLE, "졸속 논란")
    quotes = [(s.kind, s.detail) for s in found.signals if s.kind.endswith("_quote")]
    assert quotes == [("critical_quote", "시민단체"), ("supportive_quote", "김하늘 의원"), ("neutral_quote", "시")]
    assert ("loaded", "졸속") in kinds(found)
    assert ("hedge", "것으로 보인다") in kinds(found)
    assert found.signals[0].part == "title"
    assert found.measures["critical_share"] == pytest.approx(1 / 3)
    assert found.measures["num_speakers"] >= 2


def test_plain_news_has_no_signals_of_stance_but_its_facts() -> None:
    found = stance("한빛시는 3일 새 도서관을 연다. 장서는 3만 권이다.")
    assert found.signals == ()
    assert found.measures["critical_share"] == 0


def test_advertising_is_found() -> None:
    text = (
        "한빛치과는 국내 최초로 30% 할인 행사를 한다. 한빛치과에 상담을 신청하세요. 문의는 02-123-4567, "
        "www.hanbit.kr. 한빛치과는 한빛치과의 자랑이다. 한빛치과. 광고"
    )
    found = advertorial(text)
    assert {kind for kind, _ in kinds(found)} == {"contact", "price", "praise", "call_to_action", "label", "name"}
    assert ("contact", "www.hanbit.kr") in kinds(found)
    assert found.measures["name_share"] > 0.2
    assert advertorial("시의회가 4일 예산안을 의결했다. 반대는 세 표였다.").signals == ()


def test_headlines_hold_back_exaggerate_and_name_numbers_that_the_text_lacks() -> None:
    text = "시민들은 공원에 나무를 심었다. 시는 3년 동안 관리한다."
    found = clickbait("충격! 결국 밝혀진 ‘이것’의 정체…300명?", text, encode=vectors)
    assert {kind for kind, _ in kinds(found)} >= {"bait", "pointer", "ellipsis", "question", "exclamation", "fragment"}
    assert ("unsupported_number", "300") in kinds(found)
    assert -1 <= found.measures["agreement"] <= 1
    plain = clickbait("시민들, 공원에 나무 심어", text, encode=vectors)
    assert plain.signals == ()
    assert plain.measures["covered"] > found.measures["covered"]
    assert set(clickbait("제목").measures) == set(CLICKBAIT_KINDS)


def test_hostile_texts_neither_crash_nor_shift_offsets() -> None:
    draw = random.Random(0)  # noqa: S311
    for number in range(3000):
        text, title = ("".join(draw.choices(PIECES, k=draw.randrange(12))) for _ in range(2))
        for found in (stance(text, title), advertorial(text, title), clickbait(title, text, encode=vectors)):
            for signal in found.signals:
                source = title if signal.part == "title" else text
                assert source[signal.start : signal.end] == signal.text, (number, signal)
            assert all(np.isfinite(value) for value in found.measures.values())
    for find in (stance, advertorial, clickbait):
        with pytest.raises(ValueError, match="not a string"):
            find(3)  # type: ignore[operator]


def test_the_lexicon_has_no_word_twice() -> None:
    for tool in ("stance", "advertorial", "clickbait"):
        for kind, words in lexicon(tool).items():
            assert len(words) == len(set(words)), (tool, kind)


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Return a file of articles with labels that the signals separate."""
    rows = [
        {"text": f"시민단체는 “{k}번 안은 졸속”이라고 비판했다.", "label": "against"}
        if k % 2
        else {"text": f"시는 “{k}번 안을 지지”한다며 환영했다.", "label": "for"}
        for k in range(40)
    ]
    path = tmp_path / "labelled.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_labels_of_ones_own_are_learnt_saved_and_loaded(labelled: Path, tmp_path: Path) -> None:
    judge = train(read_labelled(labelled), "stance", stance, None, labelled)
    assert judge.settings.scores["macro_f1"] > 0.9 > judge.settings.scores["macro_f1_most_frequent"]
    judge.save(tmp_path / "judge")
    again = Judge.load(tmp_path / "judge", "stance", stance)
    [row] = again.probabilities([("", "노조는 “밀실 합의”라고 규탄했다.")])
    assert again.settings.labels[int(row.argmax())] == "against"
    for folder, tool in ((tmp_path / "judge", "clickbait"), (tmp_path / "missing", "stance")):
        with pytest.raises(CheckpointError) as caught:
            Judge.load(folder, tool, stance)
        assert len(str(caught.value).splitlines()) == 1


def test_wrong_labelled_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "labelled.jsonl"
    for content, reason in (
        ('{"text": "글"}\n', "no label"),
        ('{"label": "a"}\n', "neither text nor title"),
        ('{"text": "글", "label": "a"}\n{"text": "말", "label": "b"}\n', "two labels"),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match=reason):
            read_labelled(path)


def test_the_commands_find_and_learn(labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    article = tmp_path / "article.txt"
    article.write_text(ARTICLE, encoding="utf-8")
    for tool in ("stance", "advertorial"):
        main = importlib.import_module(f"downstream.{tool}.__main__").main
        assert main([str(article), "--json", "--title", "졸속 논란"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert all(ARTICLE[s["start"] : s["end"]] == s["text"] for s in found["signals"] if s["part"] == "text"), tool
    main = importlib.import_module("downstream.stance.__main__").main
    assert main(["train", str(labelled), "--encoder", "none", "--out", str(tmp_path / "judge")]) == 0
    assert "macro-F1 in cross-validation" in capsys.readouterr().out
    assert main([str(article), "--model", str(tmp_path / "judge")]) == 0
    assert "P(against)" in capsys.readouterr().out
