"""What the benchmark of corpora asks for before it begins."""

from pathlib import Path

import pytest

from benchmarks.corpus import main
from corpora.foundation.errors import UsageError


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["archive"], "archive without --out"),
        (["speed", "--work", "w"], "speed without ARCHIVE"),
        (["executors", "a"], "executors without --work"),
        (["copies"], "copies without --work"),
    ],
)
def test_a_folder_that_is_not_given_is_asked_for(arguments: list[str], missing: str) -> None:
    with pytest.raises(UsageError, match=missing):
        main(arguments)


def test_an_archive_is_not_written_over_another(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    with pytest.raises(UsageError, match="exists already"):
        main(["archive", "--out", str(tmp_path), "--data", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
