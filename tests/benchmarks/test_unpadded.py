"""The benchmark of unpadded batches measures both ways on the same text, and finds the same logits."""

from benchmarks.unpadded import Shape, make_batch, measure, page
from corpora.documents import read_documents
from pretraining.recipe import SAMPLE


def test_both_ways_are_measured_and_agree() -> None:
    batch = make_batch([article.text for article in read_documents(SAMPLE, rejected=[])], 6)
    assert [len(part) for part in batch] == [6] * 3
    row = {"text": "embedded articles"} | measure(Shape(3, 32, 2, rounds=1), batch)
    assert row["difference"] < 1e-5
    assert min(row[way] for way in ("padded", "unpadded", "padded_training", "unpadded_training")) > 0
    text = page([row | {"padded": 1000.0, "unpadded": 2500.0}])
    assert "| embedded articles | 3 × 32 | forward | 1 | 1,000 | 2,500 | 2.50 |" in text
    assert "Embedded articles: a batch of 6" in text
