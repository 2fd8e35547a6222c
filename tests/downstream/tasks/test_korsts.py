"""KorSTS: all rows are read where a CSV reader would lose some, and a missing split is named."""

from pathlib import Path

import pytest

from corpora.foundation.errors import DataUnavailableError
from downstream.finetune import read_task
from downstream.task import get_task

KORSTS = get_task("korsts")


@pytest.mark.real_data
def test_no_row_is_lost_to_quotation_marks(real_data: Path, subtests: pytest.Subtests) -> None:
    for split, num_examples in (
        ("train", 5_749),
        ("dev", 1_500),
    ):
        with subtests.test(split=split, num_examples=num_examples):
            examples = KORSTS.read_split(split, real_data).examples
            assert len(examples) == num_examples
            assert all(0 <= example.label <= 5 for example in examples)
            assert any('"' in example.text for example in examples)


def test_rows_keep_their_quotation_marks_and_scores(tmp_path: Path) -> None:
    path = tmp_path / "sts-dev.tsv"
    header = "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2\n"
    path.write_text(
        header + 'main-news\ta\t2012\t1\t3.800\t"인용이 열리고\t그는 "아니다"라고 했다.\n', encoding="utf-8"
    )
    (example,) = KORSTS.read(path)
    assert (example.text, example.pair, example.label) == ('"인용이 열리고', '그는 "아니다"라고 했다.', 3.8)
    assert KORSTS.takes_pairs


def test_the_missing_test_split_is_unavailable_and_no_other_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "kornlu" / "KorSTS"
    folder.mkdir(parents=True)
    (folder / "sts-dev.tsv").write_text("only the dev split is here", encoding="utf-8")
    with pytest.raises(DataUnavailableError, match=r"sts-test\.tsv: not under .* curl -fL"):
        read_task(KORSTS, tmp_path)
