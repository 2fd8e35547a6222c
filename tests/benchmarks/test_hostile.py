"""Hostile texts are the same ones for a seed, and what goes wrong with them is reported."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import hostile


def test_the_texts_of_a_seed_are_as_many_as_asked_and_of_all_kinds() -> None:
    texts = list(hostile.hostile_texts(300))
    assert len(texts) == 300
    assert texts == list(hostile.hostile_texts(300))
    assert texts != list(hostile.hostile_texts(300, seed=1))
    together = "".join(texts)
    for part in ("\ud800", "\u200b", "<script>", "\u1100", "💩", "\r\n", "되"):
        assert part in together, repr(part)
    assert max(map(len, texts)) >= hostile.VERY_LONG


def test_crashes_and_wrong_places_are_faults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def places(text: str) -> Iterator[hostile.Place]:
        if text == " ":
            raise OverflowError("too blank")
        yield 0, 1, "" if text == "\x00" else text[:1], text

    monkeypatch.setattr(
        hostile, "TOOLS", {"proofread": places, "awkward": lambda text: iter([(0, len(text), text, text)])}
    )
    _, faults = hostile.judge("proofread", ["가", " ", "\x00", ""])
    assert [fault.split(":")[1].strip() for fault in faults] == ["OverflowError", "[0", "[0"]
    page = tmp_path / "hostile.md"
    assert hostile.main(["--number", "20", "--tools", "awkward", "--out", str(page)]) == 0
    assert hostile.main(["--number", "20", "--tools", "proofread", "--out", str(page)]) != 0
    assert "OverflowError" in capsys.readouterr().err
    assert [line.split("|")[1].strip() for line in page.read_text(encoding="utf-8").splitlines()[-2:]] == [
        "proofread",
        "awkward",
    ]
