"""PAWS-X and ParaKQC: what the readers make of a file, and how a model is scored on them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from downstream.finetuning.result import Result
from downstream.task import Split, get_task

Read = Callable[[str, str], Split]

PAWS = "id\tsentence1\tsentence2\tlabel\n4\tA가 B를 샀다.\tB가 A를 샀다.\t0\n6\tNS\t“나”\t1\n"
GROUPS = [
    [f"{place}에 비가 {word}" for word in ("와", "오니", "올까", "오나", "옵니까") * 2] for place in ("서울", "부산")
]
PARAKQC = "".join(f"0\t{k}\t{text}\n" for k, group in enumerate(GROUPS) for text in group)


def test_rows_are_read_with_their_labels(read_small: Read) -> None:
    one, two = read_small("paws-x", PAWS).examples
    assert (one.id, one.text, one.pair, one.label) == ("4", "A가 B를 샀다.", "B가 A를 샀다.", "different")
    assert (two.text, two.pair, two.label) == ("NS", "“나”", "paraphrase")
    examples = read_small("parakqc", PARAKQC).examples
    assert [example.label for example in examples] == ["0"] * 10 + ["1"] * 10
    assert (examples[0].text, examples[19].id) == ("서울에 비가 와", "20")


def test_a_damaged_row_is_refused(refuses: Callable[..., None], subtests: pytest.Subtests) -> None:
    cases = [
        ("paws-x", PAWS, "\t1\n", "\t2\n", ":3: '2' is none of 0, 1"),
        ("paws-x", PAWS, "6\tNS", "4\tNS", "duplicate id '4'"),
        ("parakqc", PARAKQC, "0\t1\t부산에 비가 옵니까", "1\t1\t부산에 비가 옵니까", ":15: topic or kind changes"),
        ("parakqc", PARAKQC, "0\t0\t서울에 비가 와", "0\t서울에 비가 와", ":1: 2 columns where 3 are expected"),
        ("parakqc", PARAKQC, "부산에 비가 올까", " ", "an empty text or no group"),
    ]
    for name, content, old, new, what in cases:
        with subtests.test(name=name, what=what):
            refuses(name, content, old, new, what)


def test_a_stand_in_is_trained_and_scored(read_small: Read, train_and_score: Callable[[str, Split], Result]) -> None:
    result = train_and_score("paws-x", read_small("paws-x", PAWS))
    assert set(result.predictions) <= {"different", "paraphrase"}


@pytest.mark.real_data
def test_the_published_groups_are_read(real_data: Path) -> None:
    split = get_task("parakqc").read_split("test", real_data)
    assert len({example.label for example in split.examples}) == 1_000
    assert len({example.text for example in split.examples}) == 9_987
    assert split.sha256 == get_task("parakqc").files["test"].sha256
