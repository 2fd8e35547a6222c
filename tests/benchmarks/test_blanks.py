"""The page of missing words: whose it is, and that other models leave it alone."""

from pathlib import Path

import pytest

from benchmarks import blanks
from downstream.encoders.hub import bundled


def test_other_models_leave_the_page_of_the_bundled_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = tmp_path / "blanks.md"
    monkeypatch.setattr(blanks, "PAGE", ours)
    monkeypatch.setattr(
        blanks, "read_blanks", lambda: [blanks.NewsBlank("국회가 [MASK]을 의결했다.", frozenset({"예산안"}))]
    )
    assert blanks.main(["--model", str(bundled("encoder"))]) == 0
    printed = capsys.readouterr().out
    assert "| encoder | " in printed
    assert not ours.exists()
    assert blanks.main(["--model", str(bundled("encoder")), "--out", str(tmp_path / "other.md")]) == 0
    assert (tmp_path / "other.md").read_text(encoding="utf-8") == printed
    assert not ours.exists()
    assert blanks.main([]) == 0
    assert "| bundled encoder | " in ours.read_text(encoding="utf-8")
