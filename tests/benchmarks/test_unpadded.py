"""The benchmark of unpadded batches measures both ways on the same text, and finds the same states."""

from benchmarks.unpadded import BATCH, make_batches, measure, page


def test_both_ways_are_measured_and_agree() -> None:
    batches = make_batches(6)
    assert [len(ids) for ids, _, _ in batches] == [6]
    assert BATCH > 6
    row = measure("2 × 32", (2, 32, 2), batches, 1)
    assert row["difference"] < 1e-4
    assert min(row[way] for way in ("padded", "unpadded", "padded_training", "unpadded_training")) > 0
    text = page([row | {"padded": 1000.0, "unpadded": 2500.0}], batches, 1)
    assert "| 2 × 32 | forward | 1,000 | 2,500 | 2.50 |" in text
