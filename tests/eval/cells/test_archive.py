"""Finished cells in one file."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from corpora.foundation.errors import ResultError
from eval.cells.archive import ARCHIVE, pack, restore

Fails = Callable[..., AbstractContextManager[None]]


@pytest.mark.parametrize("share", [0, 0.1, 0.5])
def test_a_damaged_archive_is_one_line(tmp_path: Path, fails: Fails, share: float) -> None:
    (tmp_path / "work" / "results" / "nsmc" / "mine").mkdir(parents=True)
    (tmp_path / "work" / "results" / "nsmc" / "mine" / "seed-0.json").write_bytes(np.random.default_rng(0).bytes(5000))
    pack(tmp_path / "work", tmp_path / ARCHIVE)
    whole = (tmp_path / ARCHIVE).read_bytes()
    (tmp_path / ARCHIVE).write_bytes(whole[: int(share * len(whole))])
    with fails(ResultError, tmp_path / ARCHIVE, "no readable archive"):
        restore(tmp_path / ARCHIVE, tmp_path / "other")
    assert not (tmp_path / "other").exists()
