"""The desk: what an update changed, corrections that are accepted, parts of the draft, an export that is escaped."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from apps.desk.__main__ import main
from apps.desk.changes import changes
from apps.desk.checkers import Checker, Correction, accept, check
from apps.desk.draft import LONGEST_BULLET, Earlier, Part, examine, shortened
from apps.desk.export import to_html, to_text
from corpora.foundation.texts import Texts
from downstream.headlines.writer import HeadlineWriter

OLD = (
    "한빛시는 3일 강변 산책로를 연다고 밝혔다. 사업비는 12억 원이다. "
    "김하늘 시장은 개장식에 참석한다. 시민단체는 반발했다."
)
NEW = (
    "한빛시는 5일 강변 산책로를 연다고 밝혔다. 사업비는 12억 원이다. "
    "박가람 시장은 개장식에 참석한다. 주차장은 80면이다."
)
KOREAN = Texts("ko", "demo")


@dataclass(frozen=True)
class Found:
    """What a tool finds."""

    start: int
    end: int
    suggestions: tuple[str, ...]
    kind: str = "spelling"
    reason: str = "‘돼’가 맞다"
    confidence: float = 0.9


def find_wrong(text: str) -> Sequence[Found]:
    """Find a misspelt word, as a checker does."""
    at = text.find("안되요")
    return [Found(at, at + 3, ("안 돼요",))] if at >= 0 else []


def test_numbers_names_and_statements_that_changed_are_named() -> None:
    found = [(change.kind, change.old_text, change.new_text) for change in changes(OLD, NEW)]
    assert sorted(found) == [
        ("added", "", "주차장은 80면이다."),
        ("name", "김하늘", "박가람"),
        ("number", "3일", "5일"),
        ("removed", "시민단체는 반발했다.", ""),
    ]
    assert changes(OLD, OLD) == []
    moved = ". ".join(reversed(OLD.rstrip(".").split(". "))) + "."
    assert changes(OLD, moved) == []
    [change] = changes("새 다리가 곧 열린다.", "새 다리가 곧 열립니다.")
    assert change.kind == "reworded"
    assert [c.kind for c in changes("", NEW)] == ["added"] * 4
    assert [c.kind for c in changes(OLD, "")] == ["removed"] * 4


def test_changes_are_exact_slices_of_any_texts() -> None:
    draw = random.Random(0)  # noqa: S311
    pieces = (
        "한빛시는 3일 밝혔다. ",
        "12억 원",
        "김하늘 ",
        "\n",
        "“",
        "”",
        "\ud800",
        "1,2,3",
        ".",
        " ",
        "가" * 30,
        "\u200b",
        "<b>",
        "A사 ",
    )
    for _ in range(150):
        old, new = ("".join(draw.choices(pieces, k=draw.randrange(14))) for _ in range(2))
        for change in changes(old, new):
            assert old[change.old_start : change.old_end] == change.old_text, (old, new)
            assert new[change.new_start : change.new_end] == change.new_text, (old, new)
    with pytest.raises(ValueError, match="old is 3"):
        changes(3, "")  # type: ignore[arg-type]


def test_corrections_are_collected_and_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    checkers = (
        Checker("ours", __name__, "find_wrong"),
        Checker("again", __name__, "find_wrong"),
        Checker("absent", "downstream.not_there", "find"),
    )
    monkeypatch.setattr(Checker, "is_installed", property(lambda self: self.name != "absent"))
    monkeypatch.setitem(__import__("sys").modules, __name__, __import__("types").SimpleNamespace(find_wrong=find_wrong))
    text = "그러면 안되요. 끝."
    [correction] = check(text, checkers)
    assert (correction.text, correction.tool) == ("안되요", "ours")
    assert accept(text, correction) == "그러면 안 돼요. 끝."
    for draft, number in (("달라진 글", 0), (text, 1)):
        with pytest.raises(ValueError, match=r"again|there are"):
            accept(draft, correction, number)


def test_spelling_and_wording_are_checked_with_the_tools_there_are() -> None:
    text = "시민들로 하여금 떠나게 하면 안되요."
    found = {(correction.tool, correction.text) for correction in check(text)}
    assert found == {("proofread", "안되요"), ("awkward", "로 하여금")}


def test_bullets_are_short_parts_of_the_draft() -> None:
    long = (
        "시는 산책로를 걷는 주민이 하루 삼천 명에 이를 것으로 내다봤고, 시민단체는 주차장이 모자라다고 지적하며 "
        "대책을 요구했으며, 상인들은 손님이 늘어날 것이라며 반겼다."
    )
    found = shortened(long, Part(long, 0, len(long)), LONGEST_BULLET)
    assert found is not None
    assert len(found.text) <= LONGEST_BULLET
    assert long[found.start : found.end] == found.text
    assert shortened("가" * 200, Part("가" * 200, 0, 200), LONGEST_BULLET) is None


def test_a_draft_is_examined_and_exported_escaped() -> None:
    text = f"{OLD} <script>alert(1)</script> 끝났다."
    archive = [Earlier("금리 동결", "한은이 기준금리를 연 3.5%로 동결했다."), Earlier("산책로", text), Earlier("")]
    found = examine(text, "산책로 <b>개장</b>", archive)
    assert [each.index for each in found.copies] == [1]
    assert [each.index for each in found.similar] == [1, 0]
    for part in (*found.summary, *found.bullets, *found.headlines):
        assert text[part.start : part.end] == part.text
    assert all(len(part.text) <= LONGEST_BULLET for part in found.bullets)
    page = to_html(found, KOREAN)
    assert "<script>" not in page
    assert "<b>" not in page
    assert text in to_text(found, KOREAN)
    for hostile in ("", " ", "\ud800", "?", "\n\n"):
        assert to_html(examine(hostile, hostile), KOREAN)


def test_corrections_stand_in_the_export() -> None:
    correction = Correction(0, 3, "안되요", ("안 돼요",), "spelling", "", 1.0, "ours")
    found = examine("안되요.", "")
    shown = to_text(type(found)(**found.__dict__ | {"corrections": (correction,)}), KOREAN)
    assert "안되요 → 안 돼요" in shown


def test_headlines_of_a_model_come_before_parts_of_the_draft() -> None:
    writer = HeadlineWriter(lambda _body, _beams: [("한빛시 강변 산책로 3일 개장", 0.9), ("사업비 99억 원", 0.8)])
    found = examine(OLD, "", writer=writer)
    assert found.written_headlines == ("한빛시 강변 산책로 3일 개장",), "a number that the draft lacks is refused"
    heading = KOREAN("desk.headlines")
    assert f"[{heading}]\n한빛시 강변 산책로 3일 개장\n" in to_text(found, KOREAN)
    assert examine("", "", writer=writer).written_headlines == ()


def test_the_command_examines_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("old.txt", OLD), ("new.txt", NEW)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["changes", str(tmp_path / "old.txt"), str(tmp_path / "new.txt"), "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main([str(tmp_path / "old.txt"), "--json", "--html", str(tmp_path / "desk.html")]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == OLD
    assert "<h1>" in (tmp_path / "desk.html").read_text(encoding="utf-8")


def test_a_bad_record_of_the_archive_costs_itself_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft, archive = tmp_path / "draft.txt", tmp_path / "archive.jsonl"
    draft.write_text(OLD, encoding="utf-8")
    article = json.dumps({"title": "강변 산책로", "text": OLD}, ensure_ascii=False)
    archive.write_text(f'{{"title": "빈 기사", "text": null}}\n{article}\n', encoding="utf-8")
    assert main([str(draft), "--archive", str(archive), "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.err == f"{archive}:1: column 'text' holds no text; name another column or fill this one\n"
    assert "강변 산책로" in json.dumps(json.loads(printed.out)["similar"], ensure_ascii=False)
